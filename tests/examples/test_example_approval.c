/*
 * test_example_approval.c: twelve hours of patience, twice, without waiting for them.
 */
#include "example_test.h"

#define main example_main
#include "../../examples/approval.c"
#undef main

static dur_test *begin(const char *request) {
    dur_test *t = NULL;
    OK(dur_test_new(&t, DUR_TEST(.handlers = handlers, .crash_every_wait = true), &failure));
    OK(dur_test_start(t, &failure, "Approval", request, .instance = "a"));
    return t;
}

static void a_decision_that_comes_early_counts(void **state) {
    (void)state;
    dur_test *t = begin("chairs");
    OK(dur_test_send(t, &failure, "a", "Decision", "yes"));
    OK(dur_test_run_to_end(t, "a", &failure));
    assert_string_equal(dur_test_output(t, "a"), "decided: yes");
    assert_int_equal(dur_test_calls(t, "Notify"), 1);
    dur_test_free(t);
}

static void who_does_not_decide_is_asked_again(void **state) {
    (void)state;
    dur_test *t = begin("chairs");
    OK(dur_test_run_until_blocked(t, &failure));
    assert_true(dur_test_waits(t, "a", DUR_WAIT_MESSAGE, "Decision"));
    OK(dur_test_advance(t, DUR_HOURS(12), &failure));
    assert_int_equal(dur_test_calls(t, "Notify"), 2);
    OK(dur_test_send(t, &failure, "a", "Decision", "no"));
    OK(dur_test_run_to_end(t, "a", &failure));
    assert_string_equal(dur_test_output(t, "a"), "decided: no");
    dur_test_free(t);
}

static void after_a_day_nobody_has_decided(void **state) {
    (void)state;
    dur_test *t = begin("chairs");
    uint64_t begin_ms = dur_test_now_ms(t);
    OK(dur_test_run_to_end(t, "a", &failure));
    assert_string_equal(dur_test_output(t, "a"), "nobody decided in time");
    assert_int_equal(dur_test_now_ms(t) - begin_ms, DUR_HOURS(24));
    dur_test_free(t);
}

static int somebody_decides(dur_test *t, void *data, dur_error *err) {
    (void)data;
    int code = dur_test_start(t, err, "Approval", "chairs", .instance = "a");
    if (code == DUR_OK) code = dur_test_run_until_blocked(t, err);
    return code == DUR_OK ? dur_test_send(t, err, "a", "Decision", "yes", .message_id = "d") : code;
}

static void who_is_withdrawn_is_not_asked_for_again(void **state) {
    (void)state;
    dur_test *t = begin("holidays");
    OK(dur_test_run_until_blocked(t, &failure));
    OK(dur_test_cancel(t, "a", "no holidays after all", &failure));
    OK(dur_test_run_to_end(t, "a", &failure));
    assert_int_equal(dur_test_calls(t, "Notify"), 1);
    dur_test_free(t);
}

static void whatever_happens_it_ends(void **state) {
    (void)state;
    OK(dur_test_explore(NULL,
                        DUR_EXPLORE(.handlers = handlers, .scenario = somebody_decides, .runs = 300, .crashes = true,
                                    .reorder = true, .duplicates = true, .late_messages = true, .cancels = true,
                                    .clock_jumps = true),
                        &failure));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_decision_that_comes_early_counts), cmocka_unit_test(who_does_not_decide_is_asked_again),
        cmocka_unit_test(after_a_day_nobody_has_decided),     cmocka_unit_test(who_is_withdrawn_is_not_asked_for_again),
        cmocka_unit_test(whatever_happens_it_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
