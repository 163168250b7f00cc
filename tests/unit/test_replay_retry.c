/* Retries: backoffs, jitter, timeouts of attempts and of the whole, predicates, final failures, and width. */
#include "replay_driver.h"

static const dur_retry *policy;
static dur_outcome retried(dur_ctx *ctx, const char *input) {
    dur_future *future = dur_activity(ctx, "A", input, .retry = policy, .tag = "t", .session = "s");
    const char *value = "";
    dur_code code = dur_try(future, &value);
    return dur_completef(ctx, "%s %s %d", dur_code_name((int)code), code == DUR_OK ? value : dur_reason(future),
                         dur_is_final(future));
}

/* Delays (fire_at minus stamp) of the timers between failing attempts; -1: none. */
static void expect_delays(const dur_retry *with, const int *delays, size_t count) {
    driver d;
    policy = with;
    driver_init(&d, retried);
    driver_start(&d, "");
    size_t id = 2;
    for (size_t i = 0; i < count; i++) {
        driver_fail(&d, id, "no", true);
        driver_replay(&d);
        if (delays[i] < 0) {
            id += 2;
            assert_int_equal(driver_event(&d, id).kind, DUR_EVENT_ACTIVITY_SCHEDULED);
            continue;
        }
        dur_event timer = driver_event(&d, id + 2);
        assert_int_equal(timer.kind, DUR_EVENT_TIMER_CREATED);
        assert_int_equal(timer.fire_at_ms - timer.timestamp_ms, delays[i]);
        driver_fire(&d, id + 2);
        id += 4;
    }
    assert_string_equal(driver_event(&d, id).tag, "t");
    driver_done(&d, id, "at last");
    assert_string_equal(d.output, "DUR_OK at last 0");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

static void test_backoffs(void **state) {
    (void)state;
    expect_delays(DUR_RETRY(.attempts_max = 5, .delay_ms = 10, .delay_factor = 3, .delay_ms_max = 100),
                  (int[]){ 10, 30, 90, 100 }, 4);
    expect_delays(DUR_RETRY(.attempts_max = 4, .backoff = DUR_BACKOFF_FIXED, .delay_ms = 7), (int[]){ 7, 7, 7 }, 3);
    expect_delays(DUR_RETRY(.attempts_max = 4, .backoff = DUR_BACKOFF_LINEAR, .delay_ms = 7, .delay_ms_max = 20),
                  (int[]){ 7, 14, 20 }, 3);
    expect_delays(DUR_RETRY(.attempts_max = 3, .backoff = DUR_BACKOFF_NONE), (int[]){ -1, -1 }, 2);
    expect_delays(DUR_RETRY(.attempts_max = 0), (int[]){ 100, 200 }, 2); /* the defaults: 3 attempts */
}

static void test_gives_up(void **state) {
    (void)state;
    driver d;
    policy = DUR_RETRY(.attempts_max = 2, .backoff = DUR_BACKOFF_NONE);
    driver_init(&d, retried);
    driver_start(&d, "");
    assert_true(driver_sent(&d, "w ", "\"attempt\":1"));
    assert_false(driver_sent(&d, "w ", "first_id")); /* it is the first */
    driver_fail(&d, 2, "first", true);
    assert_true(driver_sent(&d, "w ", "\"attempt\":2,\"first_id\":2"));
    assert_string_equal(d.logs[0], "1 activity A failed, attempt 1 of 2: first");
    driver_fail(&d, 4, "second", true);
    assert_string_equal(d.output, "DUR_EFAILED second 0");
    driver_free(&d);
    driver_init(&d, retried);
    driver_start(&d, "");
    driver_fail(&d, 2, "hopeless", false); /* marked final */
    assert_string_equal(d.output, "DUR_EFAILED hopeless 1");
    driver_free(&d);
}

static void test_jitter_is_recorded(void **state) {
    (void)state;
    driver d;
    policy = DUR_RETRY(.attempts_max = 2, .backoff = DUR_BACKOFF_FIXED, .delay_ms = 1000, .jitter = 0.5);
    driver_init(&d, retried);
    driver_start(&d, "");
    driver_fail(&d, 2, "no", true);
    dur_event timer = driver_event(&d, 4);
    uint64_t delay = timer.fire_at_ms - timer.timestamp_ms;
    assert_true(delay >= 500 && delay <= 1000);
    assert_int_not_equal(delay, 1000);
    d.random = 12345; /* another random stream on replay changes nothing and warns of nothing */
    assert_int_equal(driver_replay(&d), DUR_OK);
    assert_int_equal(dur__exec_turn(d.exec)->log_count, 0);
    driver_free(&d);
}

static void test_timeouts(void **state) {
    (void)state;
    driver d;
    policy =
        DUR_RETRY(.attempts_max = 3, .backoff = DUR_BACKOFF_NONE, .attempt_timeout_ms = 30, .total_timeout_ms = 70);
    driver_init(&d, retried);
    driver_start(&d, "");
    assert_string_equal(driver_kinds(&d), "OrchestrationStarted ActivityScheduled TimerCreated TimerCreated");
    driver_fire(&d, 4); /* the attempt's */
    driver_replay(&d);
    assert_non_null(
        strstr(driver_kinds(&d), "TimerFired(4) ActivityCancelRequested(2) ActivityScheduled TimerCreated"));
    driver_fire(&d, 3); /* the whole call's */
    assert_string_equal(d.output, "DUR_ETIMEOUT timeout: activity timed out 0");
    assert_true(driver_sent(&d, "c 7", ""));
    assert_true(driver_sent(&d, "t 8", ""));
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
    policy = DUR_RETRY(.attempts_max = 3, .attempt_timeout_ms = 30, .no_retry_on_timeout = true);
    driver_init(&d, retried);
    driver_start(&d, "");
    driver_fire(&d, 3);
    assert_string_equal(d.output, "DUR_ETIMEOUT timeout: activity timed out 0");
    driver_free(&d);
}

static dur_outcome plain_timeout(dur_ctx *ctx, const char *input) {
    dur_future *future = dur_activity(ctx, "A", input, .timeout_ms = 50);
    return dur_completef(ctx, "%s", dur_code_name((int)dur_try(future, NULL)));
}
static void test_timeout_of_a_plain_activity(void **state) {
    (void)state;
    driver d;
    driver_init(&d, plain_timeout);
    driver_start(&d, "");
    driver_fail(&d, 2, "no second attempt", true);
    assert_string_equal(d.output, "DUR_EFAILED");
    driver_free(&d);
    driver_init(&d, plain_timeout);
    driver_start(&d, "");
    driver_replay(&d);
    driver_fire(&d, 3);
    assert_string_equal(d.output, "DUR_ETIMEOUT");
    driver_free(&d);
}

static bool only_busy(const char *reason, uint32_t attempt, void *data) {
    (*(int *)data)++;
    return attempt < 10 && strcmp(reason, "busy") == 0;
}
static void test_predicate(void **state) {
    (void)state;
    driver d;
    int calls = 0;
    policy =
        DUR_RETRY(.attempts_max = 9, .backoff = DUR_BACKOFF_NONE, .predicate = only_busy, .predicate_data = &calls);
    driver_init(&d, retried);
    driver_start(&d, "");
    driver_fail(&d, 2, "busy", true);
    driver_fail(&d, 4, "wrong", true);
    assert_int_equal(calls, 2);
    assert_string_equal(d.output, "DUR_EFAILED wrong 0");
    driver_free(&d);
}

/* C1: any width, no stack per retry. */
static dur_outcome wide(dur_ctx *ctx, const char *input) {
    size_t count = strtoul(input, NULL, 10), failed = 0;
    dur_future **all = dur_alloc(ctx, count * sizeof(*all));
    for (size_t i = 0; i < count; i++)
        all[i] = dur_activity(ctx, "A", "", .retry = DUR_RETRY(.attempts_max = 2, .backoff = DUR_BACKOFF_NONE));
    dur_join_n(all, count);
    for (size_t i = 0; i < count; i++)
        failed += dur_code_of(all[i]) != DUR_OK;
    return dur_completef(ctx, "%zu", failed);
}
static void test_ten_thousand(void **state) {
    (void)state;
    enum { WIDTH = 10000 };
    driver d;
    driver_init(&d, wide);
    d.exec = dur__exec_new(&d.options);
    assert_int_equal(dur__exec_start(d.exec, &(dur__exec_begin){ .input = "10000" }, 1, &d.err), DUR_OK);
    dur_failure failure = { .category = DUR_FAILURE_APPLICATION, .message = "no", .retryable = true };
    dur__arrival *arrivals = calloc(2 * WIDTH, sizeof(*arrivals));
    uint64_t order = 0;
    for (int round = 0; round < 2; round++) { /* all fail once; every tenth fails again */
        const dur__turn *turn = dur__exec_turn(d.exec);
        assert_int_equal(turn->worker_item_count, WIDTH);
        for (size_t i = 0; i < turn->worker_item_count; i++) {
            dur__arrival *arrival = &arrivals[order++];
            bool fails = round == 0 || i % 10 == 0;
            arrival->item = (dur_work_item){ .kind = fails ? DUR_WORK_ACTIVITY_FAILED : DUR_WORK_ACTIVITY_COMPLETED,
                                             .execution_id = 1,
                                             .id = turn->worker_items[i].item.id,
                                             .result = "",
                                             .details = &failure };
            arrival->order_id = order;
            dur__exec_offer(d.exec, arrival);
        }
        dur__exec_turn_done(d.exec);
        for (bool took = true; took;)
            assert_int_equal(dur__exec_step(d.exec, 2, &took, &d.err), DUR_OK);
    }
    assert_int_equal(dur__stacks_in_use(d.stacks), 0);
    assert_string_equal(dur__exec_turn(d.exec)->output, "1000");
    driver_free(&d);
    free(arrivals);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_backoffs),
        cmocka_unit_test(test_gives_up),
        cmocka_unit_test(test_jitter_is_recorded),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_timeout_of_a_plain_activity),
        cmocka_unit_test(test_predicate),
        cmocka_unit_test(test_ten_thousand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
