/* Cancellation (R5), failures from below, and the end of an execution (R6). */
#include "replay_driver.h"

static dur_outcome cleans_up(dur_ctx *ctx, const char *input) {
    dur_future *a = dur_activity(ctx, "A", input, .retry = DUR_RETRY(.attempts_max = 5, .attempt_timeout_ms = 100)),
               *e = NULL;
    e = dur_pulse(ctx, "e");
    dur_future *child = dur_orchestration(ctx, "C", input);
    dur_future *kept = dur_activity(ctx, "Kept", input);
    dur_detach(kept);
    const char *value = "";
    dur_code code = dur_try(a, &value);
    if (dur_cancel_reason(ctx) == NULL) return dur_complete(ctx, "not cancelled");
    dur_status_setf(ctx, "%s %s %s %s %s", dur_code_name((int)code), dur_reason(a), dur_code_name((int)dur_code_of(e)),
                    dur_code_name((int)dur_code_of(child)), dur_code_name((int)dur_code_of(kept)));
    dur_await(dur_activity(ctx, "Undo", "")); /* what is scheduled later works */
    return dur_continue_as_new(ctx, "again");
}

static void test_cancel(void **state) {
    (void)state;
    driver d;
    driver_init(&d, cleans_up);
    driver_start_ex(
        &d,
        &(dur__exec_begin){
            .input = "",
            .parent = { .instance = "dad", .has_id = true, .id = 9, .has_execution_id = true, .execution_id = 3 } });
    driver_cancel(&d, "enough");
    assert_string_equal(driver_kinds(&d), "OrchestrationStarted ActivityScheduled TimerCreated ExternalSubscribed "
                                          "SubOrchestrationScheduled ActivityScheduled OrchestrationCancelRequested "
                                          "ActivityCancelRequested(2) ExternalSubscribedCancelled(4) "
                                          "SubOrchestrationCancelRequested(5) CustomStatusUpdated ActivityScheduled");
    assert_string_equal(driver_event(&d, 11).status,
                        "DUR_ECANCELLED cancelled: enough DUR_ECANCELLED DUR_ECANCELLED DUR_ERUNNING");
    assert_true(driver_sent(&d, "o@6010 {\"CancelInstance\"", "\"cancel_seq\":7")); /* the grace: now 1010 + 5000 */
    assert_true(driver_sent(&d, "o@0 {\"CancelInstance\"", "parent cancelled"));
    assert_true(driver_sent(&d, "c 2", ""));
    assert_true(driver_sent(&d, "t 3", ""));
    assert_false(driver_sent(&d, "c 6", ""));
    size_t rows = d.row_count;
    driver_cancel(&d, "again"); /* consumed, not recorded */
    assert_int_equal(d.row_count, rows);
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_done(&d, 12, "");
    assert_int_equal(d.end, DUR__END_FAILED); /* whatever it returned */
    assert_string_equal(d.output, "cancelled: enough");
    assert_true(driver_sent(&d, "o@0 {\"SubOrchFailed\"", "\"parent_execution_id\":3"));
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

static dur_outcome stubborn(dur_ctx *ctx, const char *input) {
    (void)input;
    while (dur_history_events(ctx) < 1000000) {
        const char *value;
        dur_try(dur_activity(ctx, "Loop", ""), &value);
        dur_try(dur_pulse(ctx, "e"), &value);
    }
    return dur_complete(ctx, "");
}
static void test_grace(void **state) {
    (void)state;
    driver d;
    driver_init(&d, stubborn);
    driver_start(&d, "");
    driver_cancel(&d, "stop");
    driver_offer(&d,
                 &(dur_work_item){ .kind = DUR_WORK_CANCEL_INSTANCE, .reason = "x", .cancel_seq = 99 }); /* another's */
    driver_run(&d);
    assert_int_equal(d.end, DUR__END_NOT);
    driver_replay(&d);
    driver_offer(&d, &(dur_work_item){ .kind = DUR_WORK_CANCEL_INSTANCE, .reason = "x", .cancel_seq = 3 });
    driver_run(&d);
    assert_int_equal(d.end, DUR__END_FAILED);
    assert_string_equal(d.output, "cancelled: stop");
    assert_string_equal(driver_kinds(&d),
                        "OrchestrationStarted ActivityScheduled OrchestrationCancelRequested "
                        "ActivityCancelRequested(2) ExternalSubscribed ExternalSubscribedCancelled(5) "
                        "OrchestrationFailed");
    assert_int_equal(driver_replay(&d), DUR_OK); /* an end from outside is understood */
    assert_true(dur__exec_finished(d.exec));
    driver_free(&d);
}

static dur_outcome never_looks(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_pulse(ctx, "e"));
    return dur_complete(ctx, "unreachable");
}
static void test_cancel_ends_a_handler_that_awaits(void **state) {
    (void)state;
    driver d;
    driver_init(&d, never_looks);
    driver_start(&d, "");
    driver_cancel(&d, "why not");
    assert_string_equal(d.output, "cancelled: why not");
    assert_string_equal(driver_kinds(&d), "OrchestrationStarted ExternalSubscribed OrchestrationCancelRequested "
                                          "ExternalSubscribedCancelled(2) OrchestrationFailed");
    driver_free(&d);
}

static dur_outcome judges(dur_ctx *ctx, const char *input) {
    dur_future *future = dur_activity(ctx, "A", input, .retry = DUR_RETRY(.attempts_max = 9));
    if (dur_try(future, NULL) != DUR_EPOISON) return dur_fail(ctx, "not poison");
    return dur_complete(ctx, dur_reason(future));
}
/* What crashes its process each time is the handler's to judge, and not tried again. */
static void test_poison_reaches_the_handler(void **state) {
    (void)state;
    static const dur_failure poison = { .category = DUR_FAILURE_POISON,
                                        .poison = DUR_POISON_ACTIVITY,
                                        .attempt_count = 10,
                                        .max_attempts = 10,
                                        .instance = "inst",
                                        .execution_id = 1,
                                        .activity_name = "A",
                                        .activity_id = 2,
                                        .message = "ran 10 times and the process died each time" };
    driver d;
    driver_init(&d, judges);
    driver_start(&d, "");
    driver_offer(&d,
                 &(dur_work_item){ .kind = DUR_WORK_ACTIVITY_FAILED, .execution_id = 1, .id = 2, .details = &poison });
    driver_run(&d);
    assert_int_equal(d.end, DUR__END_COMPLETED);
    assert_string_equal(d.output, "poison: activity A#2 ran 10 times and the process died each time");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

/* Of the others those that are not the application's never reach it. */
static void test_failure_from_below(void **state) {
    (void)state;
    static const dur_failure failures[] = {
        { .category = DUR_FAILURE_INFRASTRUCTURE, .operation = "op", .message = "gone" },
        { .category = DUR_FAILURE_CONFIGURATION, .resource = "r", .message = "changed" },
    };
    for (size_t i = 0; i < 2; i++) {
        driver d;
        driver_init(&d, cleans_up);
        driver_start(&d, "");
        driver_offer(&d, &(dur_work_item){
                             .kind = DUR_WORK_ACTIVITY_FAILED, .execution_id = 1, .id = 2, .details = &failures[i] });
        driver_run(&d);
        assert_int_equal(d.end, DUR__END_FAILED);
        assert_string_equal(driver_kinds(&d), "OrchestrationStarted ActivityScheduled TimerCreated ExternalSubscribed "
                                              "SubOrchestrationScheduled ActivityScheduled ActivityFailed(2) "
                                              "ActivityCancelRequested(2) ExternalSubscribedCancelled(4) "
                                              "SubOrchestrationCancelRequested(5) OrchestrationFailed");
        assert_int_equal(driver_event(&d, 11).details->category, failures[i].category);
        assert_int_equal(driver_replay(&d), DUR_OK);
        driver_free(&d);
    }
}

static dur_outcome leaves_all_open(dur_ctx *ctx, const char *input) {
    dur_activity(ctx, "A", input);
    dur_timer(ctx, 5);
    dur_pulse(ctx, "e");
    dur_message(ctx, "q");
    dur_orchestration(ctx, "C", input);
    if (*input != 'n') dur_await(dur_timer(ctx, 1));
    return *input == 'c' ? dur_continue_as_new(ctx, "x") : dur_fail(ctx, "x");
}
/* C17, C18: what is open goes with the end, in order of creation, and the terminal event is the last. */
static void test_terminal_turn(void **state) {
    (void)state;
    driver d;
    driver_init(&d, leaves_all_open);
    driver_start(&d, "c");
    driver_offer(&d, &(dur_work_item){ .kind = DUR_WORK_TIMER_FIRED, .execution_id = 1, .id = 7 });
    driver_offer(&d, &(dur_work_item){ .kind = DUR_WORK_ACTIVITY_COMPLETED, .execution_id = 1, .id = 2, .result = "" });
    driver_offer(&d, &(dur_work_item){ .kind = DUR_WORK_EXTERNAL_RAISED, .name = "e", .data = "" });
    driver_offer(&d, &(dur_work_item){ .kind = DUR_WORK_CANCEL_INSTANCE, .reason = "" });
    driver_run(&d);
    assert_string_equal(driver_kinds(&d),
                        "OrchestrationStarted ActivityScheduled TimerCreated ExternalSubscribed "
                        "ExternalSubscribedPersistent SubOrchestrationScheduled TimerCreated TimerFired(7) "
                        "ActivityCancelRequested(2) ExternalSubscribedCancelled(4) "
                        "ExternalSubscribedPersistentCancelled(5) SubOrchestrationCancelRequested(6) "
                        "OrchestrationContinuedAsNew");
    assert_string_equal(driver_event(&d, 9).reason, "orchestration_terminal_continued_as_new");
    assert_true(driver_sent(&d, "t 3", ""));
    assert_true(driver_sent(&d, "o@0 {\"CancelInstance\"", "inst::sub::6"));
    size_t kept = 0, consumed = 0;
    dur__left verdict;
    for (dur__arrival *left; (left = dur__exec_drain(d.exec, &verdict)) != NULL; free(left))
        verdict == DUR__LEFT_KEEP ? kept++ : consumed++;
    assert_int_equal(kept, 2);
    assert_int_equal(consumed, 1);
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

/* C6: scheduled and dropped in one turn: history knows, the queues never hear. */
static void test_same_turn_is_not_sent(void **state) {
    (void)state;
    driver d;
    driver_init(&d, leaves_all_open);
    driver_start(&d, "n");
    assert_int_equal(d.end, DUR__END_FAILED);
    assert_int_equal(d.item_count, 0);
    assert_non_null(strstr(driver_kinds(&d), "SubOrchestrationCancelRequested(6)"));
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

/* R2: unknown, settled and foreign answers are consumed without a record. */
static void test_stray_answers(void **state) {
    (void)state;
    driver d;
    driver_init(&d, cleans_up);
    driver_start(&d, "");
    size_t rows = d.row_count;
    driver_done(&d, 77, "unknown");
    driver_offer(
        &d, &(dur_work_item){
                .kind = DUR_WORK_ACTIVITY_COMPLETED, .execution_id = 2, .id = 2, .result = "of another execution" });
    driver_run(&d);
    driver_fire(&d, 2); /* an activity */
    driver_child_done(&d, 3, "a timer");
    assert_int_equal(d.row_count, rows);
    assert_int_equal(d.log_count, 2);
    assert_non_null(strstr(d.logs[0], "1 ignored TimerFired for the activity A #2 (" __FILE__));

    driver_fail(&d, 6, "kept", true);
    rows = d.row_count;
    driver_fail(&d, 6, "twice", true); /* C19 */
    assert_int_equal(d.row_count, rows);
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_grace),
        cmocka_unit_test(test_cancel_ends_a_handler_that_awaits),
        cmocka_unit_test(test_failure_from_below),
        cmocka_unit_test(test_poison_reaches_the_handler),
        cmocka_unit_test(test_terminal_turn),
        cmocka_unit_test(test_same_turn_is_not_sent),
        cmocka_unit_test(test_stray_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
