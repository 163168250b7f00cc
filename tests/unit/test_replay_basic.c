/* Activities, timers, await, select, join, how handlers end, and replay of a history by the code that wrote it. */
#include "replay_driver.h"

static dur_outcome order(dur_ctx *ctx, const char *id) {
    const char *slot = dur_await(dur_activity(ctx, "Reserve", id));
    dur_future *paid = dur_pulse(ctx, "Paid");
    dur_future *late = dur_timer(ctx, DUR_DAYS(1));
    if (dur_select(paid, late) == late) return dur_fail(ctx, "never paid");
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Ship", slot, .tag = "eu")));
}

static void test_order(void **state) {
    (void)state;
    driver d;
    driver_init(&d, order);
    assert_int_equal(driver_start(&d, "o1"), DUR_OK);
    assert_true(driver_sent(&d, "w ", "\"Reserve\""));
    assert_int_equal(driver_replay(&d), DUR_OK);
    assert_int_equal(driver_done(&d, 2, "slot-7"), DUR_OK);
    assert_int_equal(driver_replay(&d), DUR_OK);
    assert_int_equal(driver_raise(&d, "Paid", "yes"), DUR_OK);
    assert_true(driver_sent(&d, "t 5", ""));
    assert_int_equal(driver_replay(&d), DUR_OK);
    assert_int_equal(driver_done(&d, 7, "shipped"), DUR_OK);
    assert_int_equal(d.end, DUR__END_COMPLETED);
    assert_string_equal(d.output, "shipped");
    assert_string_equal(driver_kinds(&d),
                        "OrchestrationStarted ActivityScheduled ActivityCompleted(2) ExternalSubscribed TimerCreated "
                        "ExternalEvent ActivityScheduled ActivityCompleted(7) OrchestrationCompleted");
    assert_int_equal(driver_replay(&d), DUR_OK);
    assert_true(dur__exec_finished(d.exec));
    driver_free(&d);
}

static void test_never_paid(void **state) {
    (void)state;
    driver d;
    driver_init(&d, order);
    driver_start(&d, "o1");
    driver_done(&d, 2, "slot-7");
    assert_int_equal(driver_fire(&d, 5), DUR_OK);
    assert_int_equal(d.end, DUR__END_FAILED);
    assert_string_equal(d.output, "never paid");
    assert_string_equal(driver_kinds(&d),
                        "OrchestrationStarted ActivityScheduled ActivityCompleted(2) ExternalSubscribed TimerCreated "
                        "TimerFired(5) ExternalSubscribedCancelled(4) OrchestrationFailed");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

static dur_outcome waits_a_minute(dur_ctx *ctx, const char *input) {
    (void)input;
    uint64_t before = dur_now_ms(ctx);
    dur_await(dur_timer(ctx, DUR_MINUTES(1)));
    return dur_complete(ctx, dur_now_ms(ctx) - before >= DUR_MINUTES(1) ? "waited" : "early");
}

/* The runtime's clock is an estimate of the store's, by which timers are due. */
static void a_fired_timer_is_never_in_the_future(void **state) {
    (void)state;
    driver d;
    driver_init(&d, waits_a_minute);
    driver_start(&d, "x");
    dur_work_item fired = { .kind = DUR_WORK_TIMER_FIRED,
                            .execution_id = d.options.execution_id,
                            .id = 4,
                            .fire_at_ms = d.now + DUR_MINUTES(1) };
    driver_offer(&d, &fired);
    assert_int_equal(driver_run(&d), DUR_OK);
    assert_int_equal(d.end, DUR__END_COMPLETED);
    assert_string_equal(d.output, "waited");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

static dur_outcome fan(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *parts[3];
    for (int i = 0; i < 3; i++)
        parts[i] = dur_activity(ctx, "Part", dur_format(ctx, "%d", i));
    dur_join_n(parts, 3);
    const char *a = dur_await(parts[0]), *b = dur_await(parts[1]), *c = dur_await(parts[2]);
    return dur_completef(ctx, "%s%s%s", a, b, c);
}

static void test_join(void **state) {
    (void)state;
    driver d;
    driver_init(&d, fan);
    driver_start(&d, "");
    driver_done(&d, 4, "c");
    driver_done(&d, 2, "a");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_done(&d, 3, "b");
    assert_string_equal(d.output, "abc");
    driver_free(&d);
}

static void test_failed_await_ends_the_handler(void **state) {
    (void)state;
    driver d;
    driver_init(&d, fan);
    driver_start(&d, "");
    driver_fail(&d, 2, "broken", true);
    driver_done(&d, 3, "b");
    driver_done(&d, 4, "c");
    assert_int_equal(d.end, DUR__END_FAILED);
    assert_string_equal(d.output, "broken");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_never_paid),
        cmocka_unit_test(a_fired_timer_is_never_in_the_future),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_failed_await_ends_the_handler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
