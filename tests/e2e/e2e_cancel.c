/*
 * e2e_cancel.c: cancellation that the handler sees, terminate, suspend and resume, start policies.
 */
#include "harness.h"

static atomic_int undone;
static atomic_int noticed;

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}
static dur_outcome undo(dur_act *act, const char *input) {
    atomic_fetch_add(&undone, 1);
    return dur_act_complete(act, input);
}
static dur_outcome endless(dur_act *act, const char *input) {
    while (!dur_act_sleep(act, 60000))
        continue;
    atomic_fetch_add(&noticed, 1);
    return dur_act_complete(act, input);
}

static dur_outcome compensates(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *event = dur_pulse(ctx, "Never");
    if (dur_try(event, NULL) == DUR_ECANCELLED) {
        dur_await(dur_activity(ctx, "Undo", dur_cancel_reason(ctx)));
        return dur_complete(ctx, "cleaned up");
    }
    return dur_complete(ctx, "odd");
}

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome stubborn(dur_ctx *ctx, const char *input) {
    (void)input;
    while (dur_history_events(ctx) < 1000000)
        (void)dur_try(dur_pulse(ctx, "Never"), NULL);
    return dur_complete(ctx, "odd");
}

static dur_outcome runs_endless(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Endless", input)));
}

static dur_outcome family(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Waits", "", .instance = "kid")));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ACTIVITY("Undo", undo),
    DUR_ACTIVITY("Endless", endless),
    DUR_ORCHESTRATION("Compensates", "1.0.0", compensates),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("Stubborn", "1.0.0", stubborn),
    DUR_ORCHESTRATION("RunsEndless", "1.0.0", runs_endless),
    DUR_ORCHESTRATION("Family", "1.0.0", family),
    DUR_HANDLERS_END,
};

static void a_cancelled_handler_can_clean_up(void **state) {
    world *w = *state;
    atomic_store(&undone, 0);
    RUN(w, handlers, .double_run = true);
    start(w, "Compensates", "", "c");
    until_history(w, "c", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_cancel(w->client, "c", "changed my mind", &w->err));
    OK(w, dur_client_cancel(w->client, "c", "again", &w->err));
    expect_failure(w, "c", DUR_ECANCELLED, "changed my mind");
    assert_int_equal(atomic_load(&undone), 1);
    assert_int_equal(history_count(w, "c", 0, "\"OrchestrationCancelRequested\""), 1);
    OK(w, dur_client_cancel(w->client, "c", "too late", &w->err));
}

static void cancel_before_the_first_turn(void **state) {
    world *w = *state;
    start(w, "Waits", "", "c");
    OK(w, dur_client_cancel(w->client, "c", "early", &w->err));
    RUN(w, handlers);
    expect_failure(w, "c", DUR_ECANCELLED, "early");
}

static void cancel_reaches_children_and_activities(void **state) {
    NEEDS_THREADS("its activity waits for the test");
    world *w = *state;
    atomic_store(&noticed, 0);
    RUN(w, handlers);
    start(w, "Family", "", "f");
    until_history(w, "kid", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_cancel(w->client, "f", "all of you", &w->err));
    expect_failure(w, "f", DUR_ECANCELLED, "all of you");
    expect_failure(w, "kid", DUR_ECANCELLED, "parent");
    start(w, "RunsEndless", "", "r");
    dur_metrics m = { .size = sizeof(m) };
    do {
        pause_ms(1);
        OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    } while (m.activities_running == 0);
    OK(w, dur_client_cancel(w->client, "r", "stop it", &w->err));
    expect_failure(w, "r", DUR_ECANCELLED, "stop it");
    while (atomic_load(&noticed) == 0)
        pause_ms(1);
}

static void grace_ends_a_handler_that_goes_on(void **state) {
    world *w = *state;
    RUN(w, handlers, .cancel_grace_ms = 50);
    start(w, "Stubborn", "", "s");
    until_history(w, "s", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_cancel(w->client, "s", "enough", &w->err));
    expect_failure(w, "s", DUR_ECANCELLED, "enough");
}

static void terminate_always_works(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Stubborn", "", "s");
    until_history(w, "s", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_terminate(w->client, "s", "now", &w->err));
    expect_failure(w, "s", DUR_ECANCELLED, "now");
    start(w, "NobodyKnowsThis", "", "u");
    OK(w, dur_client_terminate(w->client, "u", "unregistered", &w->err));
    expect_failure(w, "u", DUR_ECANCELLED, "unregistered");
    start(w, "Family", "", "f");
    until_history(w, "kid", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_terminate(w->client, "kid", "orphaned", &w->err));
    expect_failure(w, "f", DUR_EFAILED, "orphaned");
    assert_int_equal(dur_client_terminate(w->client, "nobody", "x", &w->err), DUR_ENOTFOUND);
}

static void suspend_and_resume(void **state) {
    world *w = *state;
    dur_instance_info *info = NULL;
    char *result = NULL;
    RUN(w, handlers);
    start(w, "Waits", "", "s");
    until_history(w, "s", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_suspend(w->client, "s", "maintenance", &w->err));
    OK(w, dur_client_pulse(w->client, &w->err, "s", "Go", "went"));
    assert_int_equal(dur_client_result(&result, w->client, "s", patience_ms(), &w->err), DUR_ESUSPENDED);
    assert_non_null(strstr(w->err.message, "maintenance"));
    OK(w, dur_client_info(&info, w->client, "s", &w->err));
    assert_true(info->suspended);
    assert_int_equal(info->status, DUR_INSTANCE_RUNNING);
    dur_instance_info_free(info);
    OK(w, dur_client_resume(w->client, "s", &w->err));
    expect(w, "s", "went");
    assert_int_equal(dur_client_suspend(w->client, "s", "late", &w->err), DUR_ESTATE);
}

static void start_policies(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Waits", "", "s");
    assert_int_equal(dur_client_start(w->client, &w->err, "Waits", "", .instance = "s"), DUR_EEXISTS);
    OK(w, dur_client_start(w->client, &w->err, "Waits", "", .instance = "s", .exists = DUR_START_RETURN_EXISTING));
    assert_int_equal(
        dur_client_start(w->client, &w->err, "Waits", "", .instance = "s", .exists = DUR_START_REPLACE_FINISHED),
        DUR_EEXISTS);
    until_history(w, "s", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "s", "Go", "one"));
    expect(w, "s", "one");
    assert_int_equal(dur_client_start(w->client, &w->err, "Waits", "", .instance = "s"), DUR_EEXISTS);
    OK(w, dur_client_start(w->client, &w->err, "Waits", "", .instance = "s", .exists = DUR_START_REPLACE_FINISHED));
    until_history(w, "s", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "s", "Go", "two"));
    expect(w, "s", "two");
}

static void a_delayed_start_comes_later(void **state) {
    world *w = *state;
    dur_instance_info *info = NULL;
    RUN(w, handlers);
    OK(w, dur_client_start(w->client, &w->err, "Compensates", "", .instance = "d", .delay_ms = 100));
    OK(w, dur_client_info(&info, w->client, "d", &w->err));
    assert_true(info->start_pending);
    assert_int_equal(info->status, DUR_INSTANCE_RUNNING);
    dur_instance_info_free(info);
    until_history(w, "d", "\"ExternalSubscribed\"", 1);
}

static uint64_t messages_waiting(world *w) {
    dur_store_counts counts = { .size = sizeof(counts) };
    OK(w, dur_client_counts(&counts, w->client, &w->err));
    return counts.orchestrator_queue + counts.timer_queue;
}

/* Who ends before the grace of a request is over leaves its message behind: it does nothing when it is due, and goes
   with the instance when that is replaced. */
static void a_grace_that_nobody_needs_does_no_harm(void **state) {
    world *w = *state;
    RUN(w, handlers, .cancel_grace_ms = 300);
    start(w, "Compensates", "", "c");
    until_history(w, "c", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_cancel(w->client, "c", "enough", &w->err));
    expect_failure(w, "c", DUR_ECANCELLED, "enough");
    size_t events = history_count(w, "c", 0, "\"event_id\"");
    for (uint64_t waited_ms = 0; messages_waiting(w) > 0; waited_ms++) {
        assert_true(waited_ms < patience_ms());
        pause_ms(1);
    }
    assert_int_equal(history_count(w, "c", 0, "\"event_id\""), events);
    world_stop(w);
    RUN(w, handlers);
    start(w, "Compensates", "", "again");
    until_history(w, "again", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_cancel(w->client, "again", "enough", &w->err));
    expect_failure(w, "again", DUR_ECANCELLED, "enough");
    OK(w, dur_client_start(w->client, &w->err, "Waits", "", .instance = "again", .exists = DUR_START_REPLACE_FINISHED));
    until_history(w, "again", "\"ExternalSubscribed\"", 1);
    assert_int_equal(messages_waiting(w), 0);
    OK(w, dur_client_pulse(w->client, &w->err, "again", "Go", "anew"));
    expect(w, "again", "anew");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_grace_that_nobody_needs_does_no_harm),
        TEST(a_cancelled_handler_can_clean_up),
        TEST(cancel_before_the_first_turn),
        TEST(cancel_reaches_children_and_activities),
        TEST(grace_ends_a_handler_that_goes_on),
        TEST(terminate_always_works),
        TEST(suspend_and_resume),
        TEST(start_policies),
        TEST(a_delayed_start_comes_later),
    };
    return cmocka_run_group_tests_name("e2e_cancel", tests, NULL, NULL);
}
