/*
 * fault_store.c: faults of the original when the store has trouble.  The store here is any store behind a decorator
 * that fails on purpose.
 */
#include "e2e/harness.h"
#include "support/faulty.h"
#include <durite/sys/store.h>

static atomic_int runs;
static atomic_int cancelled;
static dur_provider *faulty_store; /* of the test that runs, if it is decorated */

static dur_outcome echo(dur_act *act, const char *input) {
    atomic_fetch_add(&runs, 1);
    return dur_act_complete(act, input);
}

static atomic_int inside_session, overlaps;
static dur_outcome alone(dur_act *act, const char *input) {
    if (atomic_fetch_add(&inside_session, 1) != 0) atomic_fetch_add(&overlaps, 1);
    dur_act_sleep(act, 3);
    atomic_fetch_sub(&inside_session, 1);
    return dur_act_complete(act, input);
}

/* Until something has failed, and a moment longer: whoever hears of the fault has time to do the wrong thing. */
static dur_outcome takes_its_time(dur_act *act, const char *input) {
    atomic_fetch_add(&runs, 1);
    while (faulty_store != NULL && dur__faulty_faults(faulty_store) == 0)
        dur_act_sleep(act, 20);
    for (int i = 0; i < 10; i++)
        if (dur_act_sleep(act, 20)) atomic_fetch_add(&cancelled, 1);
    return dur_act_complete(act, input);
}

static dur_outcome three_steps(dur_ctx *ctx, const char *input) {
    const char *value = input;
    for (int i = 0; i < 3; i++)
        value = dur_await(dur_activity(ctx, "Echo", value));
    dur_await(dur_orchestration(ctx, "One", "x"));
    return dur_complete(ctx, value);
}

static dur_outcome one(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

static dur_outcome slow(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "TakesItsTime", input)));
}

static dur_outcome two_sessions(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < 10; i++) {
        dur_future *a = dur_activity(ctx, "Echo", input, .session = "a");
        dur_future *b = dur_activity(ctx, "Echo", input, .session = "b");
        dur_future *plain = dur_activity(ctx, "Echo", input);
        dur_join(a, b, plain);
    }
    return dur_complete(ctx, "done");
}

static dur_outcome same_session(dur_ctx *ctx, const char *input) {
    enum { MANY = 8 };
    dur_future *all[MANY];
    for (int i = 0; i < MANY; i++)
        all[i] = dur_activity(ctx, "Alone", input, .session = "s");
    dur_join_n(all, MANY);
    return dur_complete(ctx, dur_await(all[MANY - 1]));
}

enum { BACKLOG = 50 };
static atomic_int session_gate;
static dur_outcome gated(dur_act *act, const char *input) {
    while (atomic_load(&session_gate) == 0 && !dur_act_sleep(act, 2)) {
    }
    return dur_act_complete(act, input);
}

static dur_outcome backlog(dur_ctx *ctx, const char *input) {
    dur_future *all[BACKLOG];
    for (int i = 0; i < BACKLOG; i++)
        all[i] = dur_activity(ctx, "Gated", input, .session = "busy");
    dur_join_n(all, BACKLOG);
    return dur_complete(ctx, "done");
}

static dur_outcome in_session(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input, .session = input)));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Gated", gated),
    DUR_ORCHESTRATION("Backlog", "1.0.0", backlog),
    DUR_ORCHESTRATION("InSession", "1.0.0", in_session),
    DUR_ACTIVITY("Echo", echo),
    DUR_ACTIVITY("Alone", alone),
    DUR_ORCHESTRATION("SameSession", "1.0.0", same_session),
    DUR_ACTIVITY("TakesItsTime", takes_its_time),
    DUR_ORCHESTRATION("ThreeSteps", "1.0.0", three_steps),
    DUR_ORCHESTRATION("One", "1.0.0", one),
    DUR_ORCHESTRATION("Slow", "1.0.0", slow),
    DUR_ORCHESTRATION("TwoSessions", "1.0.0", two_sessions),
    DUR_HANDLERS_END,
};

/* Put a decorator in front of the store of this test. */
static void decorate(world *w, bool minimal) {
    dur_provider *wrapped = NULL;
    OK(w, minimal ? dur__minimal_wrap(&wrapped, w->store, &w->err) : dur__faulty_wrap(&wrapped, w->store, 7, &w->err));
    w->store = faulty_store = wrapped;
    dur_client_free(w->client);
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    atomic_store(&runs, 0);
    atomic_store(&cancelled, 0);
}

static void fault_c07_a_failed_renewal_cancels_no_activity(void **state) {
    world *w = *state;
    decorate(w, true);
    dur__faulty_add(w->store, &(dur__fault_plan){ .method = "renew_work_item_lock", .count = 1 });
    RUN(w, handlers, .worker_lock_timeout_ms = 3000);
    start(w, "Slow", "kept", "s");
    expect(w, "s", "kept");
    assert_int_equal(atomic_load(&cancelled), 0);
    assert_int_equal(atomic_load(&runs), 1);
    assert_int_equal(dur__faulty_faults(w->store), 1);
}

static void fault_c08_commits_that_fail_for_a_while_fail_nothing(void **state) {
    world *w = *state;
    decorate(w, false);
    dur__faulty_add(w->store, &(dur__fault_plan){ .method = "turn", .first = 2, .count = 9 });
    RUN(w, handlers);
    start(w, "ThreeSteps", "through", "t");
    expect(w, "t", "through");
    assert_int_equal(atomic_load(&runs), 4);
    assert_true(dur__faulty_faults(w->store) > 6);
}

static void fault_c09_a_lost_answer_is_looked_up(void **state) {
    world *w = *state;
    decorate(w, false);
    for (uint64_t n = 1; n <= 6; n++)
        dur__faulty_add(w->store, &(dur__fault_plan){ .method = "turn", .first = n * 2, .after = true });
    RUN(w, handlers);
    start(w, "ThreeSteps", "once", "t");
    expect(w, "t", "once");
    assert_int_equal(history_count(w, "t", 0, "\"ActivityCompleted\""), 3);
    assert_int_equal(history_count(w, "t", 0, "\"ActivityScheduled\""), 3);
}

static void fault_c21_sessions_at_the_limit_do_not_stall(void **state) {
    world *w = *state;
    RUN(w, handlers, .max_sessions = 1);
    start(w, "TwoSessions", "", "s");
    expect(w, "s", "done");
}

static void fault_c21_a_session_runs_one_activity_at_a_time(void **state) {
    world *w = *state;
    atomic_store(&overlaps, 0);
    RUN(w, handlers, .worker_concurrency = 4);
    start(w, "SameSession", "one", "a");
    start(w, "SameSession", "two", "b");
    expect(w, "a", "one");
    expect(w, "b", "two");
    assert_int_equal(atomic_load(&overlaps), 0);
}

/* A backlog of one session, longer than a node may take in advance, holds nobody else up. */
static void fault_c21_a_busy_session_is_in_nobodys_way(void **state) {
    world *w = *state;
    atomic_store(&session_gate, 0);
    RUN(w, handlers, .worker_concurrency = 2, .prefetch = 4);
    start(w, "Backlog", "", "a");
    until_history(w, "a", "\"ActivityScheduled\"", BACKLOG);
    start(w, "One", "plain", "b");
    start(w, "InSession", "other", "c");
    expect(w, "b", "plain");
    expect(w, "c", "other");
    atomic_store(&session_gate, 1);
    expect(w, "a", "done");
}

static void fault_c22_times_are_times(void **state) {
    world *w = *state;
    dur_instance_info *info = NULL;
    faulty_store = NULL;
    RUN(w, handlers);
    start(w, "Slow", "", "s");
    until_history(w, "s", "\"ActivityScheduled\"", 1);
    OK(w, dur_client_info(&info, w->client, "s", &w->err));
    uint64_t created = info->created_at_ms;
    assert_true(created > 1700000000000u);
    dur_instance_info_free(info);
    expect(w, "s", "");
    OK(w, dur_client_info(&info, w->client, "s", &w->err));
    assert_int_equal(info->created_at_ms, created);
    assert_true(info->updated_at_ms > created);
    dur_instance_info_free(info);
}

static void fault_c23_a_worker_ack_is_tried_again(void **state) {
    world *w = *state;
    decorate(w, true);
    dur__faulty_add(w->store, &(dur__fault_plan){ .method = "ack", .count = 5 });
    RUN(w, handlers);
    start(w, "One", "once", "o");
    expect(w, "o", "once");
    assert_int_equal(atomic_load(&runs), 1);
}

uint64_t dur__backoff_ms(uint64_t base_ms, uint32_t tries, uint64_t max_ms); /* src/runtime/backoff.c */

static void fault_c26_backoff_never_wraps(void **state) {
    (void)state;
    uint64_t before = 0;
    for (uint32_t tries = 0; tries < 200; tries++) {
        uint64_t delay = dur__backoff_ms(100, tries, 3000);
        assert_in_range(delay, before, 3000);
        before = delay;
    }
    assert_int_equal(dur__backoff_ms(100, UINT32_MAX, 3000), 3000);
    assert_int_equal(dur__backoff_ms(UINT64_MAX / 2, 64, UINT64_MAX), UINT64_MAX);
}

static void fault_c34_an_escaped_nul_poisons_nothing(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "One", "\\u0000 and \"\\u0000\"", "n");
    expect(w, "n", "\\u0000 and \"\\u0000\"");
}

static void fault_c35_a_stale_token_writes_nothing(void **state) {
    world *w = *state;
    dur_arena *arena = dur_arena_new();
    dur_orchestration_item item = { 0 };
    start(w, "One", "x", "stale");
    OK(w, dur_store_fetch_orchestration_item(w->store, arena, &(dur_fetch){ .lock_ms = 60000 }, &item, &w->err));
    OK(w, dur_store_abandon_orchestration_item(w->store, item.lock_token, 0, true, &w->err));
    static const char json[] = "{}";
    dur_event_row row = { .event_id = 1, .kind = DUR_EVENT_ORCHESTRATION_STARTED, .json = { json, 2 } };
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .execution_id = 1,
                             .events = &row,
                             .event_count = 1,
                             .expected_last = DUR_NOT_COMPARED };
    assert_int_equal(dur_store_ack_orchestration_item(w->store, &turn, &w->err), DUR_ELEASE);
    dur_event_row *rows = NULL;
    size_t count = 1;
    OK(w, dur_store_read(w->store, arena, "stale", 0, &rows, &count, &w->err));
    assert_int_equal(count, 0);
    dur_arena_free(arena);
}

/* Every kind of trouble at every call of the store: the outcome is the same as without. */
static void a_fault_at_any_call_changes_nothing(void **state) {
    world *w = *state;
    static const char *const methods[] = { "lane_round", "lane_history", "lane_messages",
                                           "watch_open", "owner_beat",   "turn" };
    decorate(w, false);
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
        dur__faulty_add(w->store, &(dur__fault_plan){ .method = methods[i], .count = UINT64_MAX, .per_mille = 200 });
    RUN(w, handlers);
    size_t count = scaled(40, 5);
    for (size_t i = 0; i < count; i++) {
        char id[24];
        snprintf(id, sizeof(id), "t-%zu", i);
        start(w, "ThreeSteps", id, id);
    }
    for (size_t i = 0; i < count; i++) {
        char id[24];
        char *result = NULL;
        snprintf(id, sizeof(id), "t-%zu", i);
        int code;
        do
            code = dur_client_result(&result, w->client, id, patience_ms(), &w->err);
        while (code != DUR_OK && w->err.retryable);
        OK(w, code);
        assert_string_equal(result, id);
        dur_free(result);
        assert_int_equal(history_count(w, id, 0, "\"ActivityCompleted\""), 3);
    }
}

int main(void) {
    if (getenv("DURITE_TEST_LOG") != NULL) dur_log_set_sink(dur_log_text, stderr, DUR_LOG_DEBUG);
    const struct CMUnitTest tests[] = {
        TEST(fault_c07_a_failed_renewal_cancels_no_activity),
        TEST(fault_c08_commits_that_fail_for_a_while_fail_nothing),
        TEST(fault_c09_a_lost_answer_is_looked_up),
        TEST(fault_c21_sessions_at_the_limit_do_not_stall),
        TEST(fault_c21_a_session_runs_one_activity_at_a_time),
        TEST(fault_c21_a_busy_session_is_in_nobodys_way),
        TEST(fault_c22_times_are_times),
        TEST(fault_c23_a_worker_ack_is_tried_again),
        TEST(fault_c26_backoff_never_wraps),
        TEST(fault_c34_an_escaped_nul_poisons_nothing),
        TEST(fault_c35_a_stale_token_writes_nothing),
        TEST(a_fault_at_any_call_changes_nothing),
    };
    return cmocka_run_group_tests_name("fault_store", tests, NULL, NULL);
}
