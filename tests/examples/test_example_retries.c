/*
 * test_example_retries.c: the flaky one is tried again, the hopeless one is not.
 */
#include "example_test.h"

#define main example_main
#include "../../examples/retries.c"
#undef main

static dur_test *begin(void) {
    dur_test *t = NULL;
    OK(dur_test_new(&t, DUR_TEST(.handlers = handlers, .evict_every_wait = true), &failure));
    return t;
}

static void as_it_is_written(void **state) {
    (void)state;
    dur_test *t = begin();
    OK(dur_test_start(t, &failure, "Resilient", "done", .instance = "r"));
    OK(dur_test_run_to_end(t, "r", &failure));
    assert_string_equal(dur_test_output(t, "r"), "done on attempt 3, placeholder");
    assert_int_equal(dur_test_calls(t, "Flaky"), 3);
    assert_int_equal(dur_test_calls(t, "Hopeless"), 1);
    dur_test_free(t);
}

static void five_failures_are_too_many(void **state) {
    (void)state;
    dur_test *t = begin();
    OK(dur_test_mock(t, &failure, "Flaky", .result = "ok", .fail_times = 5, .reason = "down"));
    OK(dur_test_start(t, &failure, "Resilient", "done", .instance = "r"));
    OK(dur_test_run_to_end(t, "r", &failure));
    assert_int_equal(dur_test_status(t, "r"), DUR_INSTANCE_FAILED);
    assert_non_null(strstr(dur_test_output(t, "r"), "down"));
    assert_int_equal(dur_test_calls(t, "Flaky"), 5);
    dur_test_free(t);
}

static void four_are_not(void **state) {
    (void)state;
    dur_test *t = begin();
    OK(dur_test_mock(t, &failure, "Flaky", .result = "ok", .fail_times = 4));
    OK(dur_test_mock(t, &failure, "Hopeless", .result = "image"));
    OK(dur_test_start(t, &failure, "Resilient", "done", .instance = "r"));
    OK(dur_test_run_to_end(t, "r", &failure));
    assert_string_equal(dur_test_output(t, "r"), "ok, image");
    dur_test_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_it_is_written),
        cmocka_unit_test(five_failures_are_too_many),
        cmocka_unit_test(four_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
