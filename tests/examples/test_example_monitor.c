/*
 * test_example_monitor.c: round after round, each a new execution, until something is down.
 */
#include "example_test.h"

#define main example_main
#include "../../examples/monitor.c"
#undef main

static dur_outcome down_in(dur_act *act, const char *round, void *data) {
    return dur_act_complete(act, strtoul(round, NULL, 10) == *(unsigned long *)data ? "down" : "up");
}

static void a_hundred_rounds_and_a_crash_at_each_wait(void **state) {
    (void)state;
    dur_test *t = NULL;
    unsigned long last = 100;
    OK(dur_test_new(&t, DUR_TEST(.handlers = handlers, .crash_every_wait = true), &failure));
    OK(dur_test_mock(t, &failure, "Probe", .fn = down_in, .data = &last));
    OK(dur_test_start(t, &failure, "Monitor", "1", .instance = "m"));
    OK(dur_test_run_to_end(t, "m", &failure));
    assert_string_equal(dur_test_output(t, "m"), "down in round 100");
    assert_int_equal(dur_test_events(t, "m", "OrchestrationStarted"), 100);
    assert_int_equal(dur_test_calls(t, "Probe"), 100);
    dur_test_free(t);
}

static void its_status_tells_the_round(void **state) {
    (void)state;
    dur_test *t = NULL;
    dur_instance_info *info = NULL;
    OK(dur_test_new(&t, DUR_TEST(.handlers = handlers), &failure));
    OK(dur_test_start(t, &failure, "Monitor", "1", .instance = "m"));
    OK(dur_test_advance(t, 15, &failure));
    OK(dur_client_info(&info, dur_test_client(t), "m", &failure));
    assert_string_equal(info->custom_status, "round 2: up");
    dur_instance_info_free(info);
    dur_test_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hundred_rounds_and_a_crash_at_each_wait),
        cmocka_unit_test(its_status_tells_the_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
