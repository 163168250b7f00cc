/*
 * test_example_sessions.c: sessions under crashes: another node takes them over.
 */
#include "example_test.h"

#define main example_main
#include "../../examples/sessions.c"
#undef main

static void two_models_are_trained(void **state) {
    (void)state;
    for (int crashes = 0; crashes < 2; crashes++) {
        dur_test *t = NULL;
        OK(dur_test_new(&t, DUR_TEST(.handlers = handlers, .crash_every_wait = crashes == 1), &failure));
        OK(dur_test_start(t, &failure, "Train", "resnet", .instance = "a"));
        OK(dur_test_start(t, &failure, "Train", "bert", .instance = "b"));
        OK(dur_test_run_to_end(t, "a", &failure));
        OK(dur_test_run_to_end(t, "b", &failure));
        assert_string_equal(dur_test_output(t, "a"), "load@resnet fit@resnet");
        assert_string_equal(dur_test_output(t, "b"), "load@bert fit@bert");
        dur_test_free(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(two_models_are_trained) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
