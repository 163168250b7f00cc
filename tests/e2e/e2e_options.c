/*
 * e2e_options.c: options of a runtime and of an activity that change what happens: tags, sessions, versions of
 * histories, limits, stacks, parking; and what an activity may ask about itself.
 */
#include "harness.h"
#include <poll.h>
#include <pthread.h>

static atomic_int noticed;

/* ---- handlers ---- */

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

/* The node that runs it: worker ids are "work-NUMBER-NODE". */
static dur_outcome node(dur_act *act, const char *input) {
    (void)input;
    const char *id = dur_act_worker_id(act);
    return dur_act_complete(act, strchr(id + strlen("work-"), '-') + 1);
}

static dur_outcome third_time(dur_act *act, const char *input) {
    if (dur_act_attempt(act) < 3) return dur_act_failf(act, "%s on %s", dur_act_tag(act), dur_act_session(act));
    return dur_act_completef(act, "%s %s %s %u", input, dur_act_tag(act), dur_act_session(act), dur_act_attempt(act));
}

static void *watch_flag(void *act) {
    while (!dur_act_cancelled(act))
        pause_ms(1);
    return NULL;
}
/* Waits for its cancellation by descriptor, and a thread of its own by flag. */
static dur_outcome polls(dur_act *act, const char *input) {
    pthread_t helper;
    if (pthread_create(&helper, NULL, watch_flag, act) != 0) return dur_act_fail(act, "no thread");
    struct pollfd wait = { .fd = dur_act_cancel_fd(act), .events = POLLIN };
    while (poll(&wait, 1, -1) != 1)
        continue;
    pthread_join(helper, NULL);
    atomic_fetch_add(&noticed, 1);
    return dur_act_complete(act, input);
}

/* Which nodes serve the three kinds of activities. */
static dur_outcome three_tags(dur_ctx *ctx, const char *input) {
    dur_future *plain = dur_activity(ctx, "Node", input);
    dur_future *a = dur_activity(ctx, "Node", input, .tag = "a");
    dur_future *b = dur_activity(ctx, "Node", input, .tag = "b");
    dur_join(plain, a, b);
    const char *on_plain = dur_await(plain), *on_a = dur_await(a), *on_b = dur_await(b);
    return dur_completef(ctx, "%s %s %s", on_plain, on_a, on_b);
}

/* Two executions; the second is given the node that served the first. */
static dur_outcome in_session(dur_ctx *ctx, const char *first) {
    if (dur_execution_id(ctx) == 1) {
        first = dur_await(dur_activity(ctx, "Node", "", .session = "s"));
        dur_await(dur_pulse(ctx, "Go"));
        return dur_continue_as_new(ctx, first);
    }
    for (int i = 0; i < 10; i++) {
        const char *next = dur_await(dur_activity(ctx, "Node", "", .session = "s"));
        if (strcmp(next, first) != 0) return dur_completef(ctx, "%s, then %s", first, next);
    }
    return dur_completef(ctx, "always %s", first);
}

static dur_outcome retried(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "ThirdTime", input, .tag = "t", .session = "s",
                                                    .retry = DUR_RETRY(.attempts_max = 5, .delay_ms = 1))));
}

static dur_outcome gives_up(dur_ctx *ctx, const char *input) {
    dur_future *polling = dur_activity(ctx, "Polls", input);
    dur_await(dur_pulse(ctx, "Enough"));
    dur_drop(polling);
    return dur_complete(ctx, "dropped");
}

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome deep(dur_ctx *ctx, const char *input) {
    volatile char large[600 * 1024];
    for (size_t i = 0; i < sizeof(large); i += 512)
        large[i] = (char)i;
    const char *got = dur_await(dur_activity(ctx, "Echo", input));
    return dur_completef(ctx, "%s %d", got, large[512] == 0);
}

static dur_outcome too_much(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "payload") == 0) dur_await(dur_activity(ctx, "Echo", dur_format(ctx, "%0100d", 1)));
    if (strcmp(input, "status") == 0) dur_status_set(ctx, "more than ten");
    if (strcmp(input, "value") == 0) dur_kv_set(ctx, "k", "123456");
    for (int i = 0; strcmp(input, "keys") == 0 && i < 3; i++)
        dur_kv_set(ctx, dur_format(ctx, "k%d", i), "");
    return dur_complete(ctx, "too much was accepted");
}

static dur_outcome fan(dur_ctx *ctx, const char *input) {
    dur_future *all[50];
    for (size_t i = 0; i < 50; i++)
        all[i] = dur_activity(ctx, "Echo", input);
    dur_join_n(all, 50);
    return dur_complete(ctx, dur_await(all[49]));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ACTIVITY("Node", node),
    DUR_ACTIVITY("ThirdTime", third_time),
    DUR_ACTIVITY("Polls", polls),
    DUR_ORCHESTRATION("ThreeTags", "1.0.0", three_tags),
    DUR_ORCHESTRATION("InSession", "1.0.0", in_session),
    DUR_ORCHESTRATION("Retried", "1.0.0", retried),
    DUR_ORCHESTRATION("GivesUp", "1.0.0", gives_up),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("Deep", "1.0.0", deep),
    DUR_ORCHESTRATION("TooMuch", "1.0.0", too_much),
    DUR_ORCHESTRATION("Fan", "1.0.0", fan),
    DUR_HANDLERS_END,
};

static dur_runtime *also(world *w, const dur_runtime_options *options) {
    dur_runtime *runtime = NULL;
    OK(w, dur_runtime_start(&runtime, options, &w->err));
    return runtime;
}
#define ALSO(w, ...) also(w, DUR_RUNTIME(.store = (w)->store, .handlers = handlers, __VA_ARGS__))

static void stop(world *w, dur_runtime *runtime) {
    OK(w, dur_runtime_stop(runtime, patience_ms(), &w->err));
}

/* ---- tags ---- */

/* "chosen" runs alone until all that it serves has been done; what is left is for "rest". */
static void choose(world *w, dur_tag_choice choice, size_t serves, const char *expected) {
    static const char *const only_a[] = { "a", NULL };
    bool named = choice == DUR_TAG_ONLY || choice == DUR_TAG_AND_DEFAULT;
    char id[16];
    snprintf(id, sizeof(id), "t%d", (int)choice);
    dur_runtime *chosen = ALSO(w, .worker_node_id = "chosen", .tags = choice, .worker_tags = named ? only_a : NULL);
    start(w, "ThreeTags", "", id);
    until_history(w, id, "\"ActivityScheduled\"", 3);
    until_history(w, id, "\"ActivityCompleted\"", serves);
    dur_runtime *rest = ALSO(w, .worker_node_id = "rest", .tags = DUR_TAG_ANY);
    if (serves == 3) stop(w, rest);
    expect(w, id, expected);
    if (serves < 3) stop(w, rest);
    stop(w, chosen);
}

static void tag_filter_default_only(void **state) {
    choose(*state, DUR_TAG_DEFAULT_ONLY, 1, "chosen rest rest");
}
static void tag_filter_tags(void **state) {
    choose(*state, DUR_TAG_ONLY, 1, "rest chosen rest");
}
static void tag_filter_default_and_tags(void **state) {
    choose(*state, DUR_TAG_AND_DEFAULT, 2, "chosen chosen rest");
}
static void tag_filter_any(void **state) {
    choose(*state, DUR_TAG_ANY, 3, "chosen chosen chosen");
}
static void tag_filter_none(void **state) {
    choose(*state, DUR_TAG_NONE, 0, "rest rest rest");
}

/* ---- sessions ---- */

static void a_session_stays_with_its_node(void **state) {
    world *w = *state;
    dur_runtime *one = ALSO(w, .worker_node_id = "one");
    start(w, "InSession", "", "i");
    until_history(w, "i", "\"ExternalSubscribed\"", 1);
    dur_runtime *two = ALSO(w, .worker_node_id = "two");
    OK(w, dur_client_pulse(w->client, &w->err, "i", "Go", ""));
    expect(w, "i", "always one");
    stop(w, two);
    stop(w, one);
}

static void a_node_keeps_its_sessions_over_a_restart(void **state) {
    world *w = *state;
    dur_runtime *one = ALSO(w, .worker_node_id = "one");
    start(w, "InSession", "", "i");
    until_history(w, "i", "\"ExternalSubscribed\"", 1);
    dur_runtime *two = ALSO(w, .worker_node_id = "two");
    stop(w, one);
    one = ALSO(w, .worker_node_id = "one");
    OK(w, dur_client_pulse(w->client, &w->err, "i", "Go", ""));
    expect(w, "i", "always one");
    stop(w, two);
    stop(w, one);
}

static void a_session_of_a_node_that_is_gone_moves(void **state) {
    world *w = *state;
    dur_runtime *one =
        ALSO(w, .worker_node_id = "one", .session_lock_timeout_ms = 200, .session_lock_renewal_buffer_ms = 100,
             .session_idle_timeout_ms = 300, .session_cleanup_interval_ms = 100, .worker_lock_timeout_ms = 300,
             .worker_lock_renewal_buffer_ms = 200);
    start(w, "InSession", "", "i");
    until_history(w, "i", "\"ExternalSubscribed\"", 1);
    stop(w, one);
    dur_runtime *two = ALSO(w, .worker_node_id = "two");
    OK(w, dur_client_pulse(w->client, &w->err, "i", "Go", ""));
    expect(w, "i", "one, then two");
    stop(w, two);
}

static void every_attempt_keeps_tag_and_session(void **state) {
    world *w = *state;
    RUN(w, handlers, .tags = DUR_TAG_ANY, .double_run = true);
    start(w, "Retried", "in", "r");
    expect(w, "r", "in t s 3");
    assert_int_equal(history_count(w, "r", 0, "\"type\":\"ActivityFailed\""), 2);
    assert_int_equal(history_count(w, "r", 0, "\"session_id\":\"s\",\"tag\":\"t\""), 3);
    assert_int_equal(history_count(w, "r", 0, "t on s"), 2);
}

/* ---- cancellation, as an activity sees it ---- */

static void cancellation_reaches_descriptor_and_flag(void **state) {
    NEEDS_THREADS("its activity waits for the test");
    world *w = *state;
    atomic_store(&noticed, 0);
    RUN(w, handlers);
    start(w, "GivesUp", "", "g");
    dur_metrics m = { .size = sizeof(m) };
    do
        OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    while (m.activities_running < 1);
    OK(w, dur_client_pulse(w->client, &w->err, "g", "Enough", ""));
    expect(w, "g", "dropped");
    while (atomic_load(&noticed) < 1)
        pause_ms(1);
}

/* ---- versions of histories ---- */

static void a_history_outside_the_range_is_left_alone(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Waits", "", "old");
    until_history(w, "old", "\"ExternalSubscribed\"", 1);
    world_stop(w);
    RUN(w, handlers, .replay_version_min = "9.0.0", .replay_version_max = "9.9.9");
    OK(w, dur_client_pulse(w->client, &w->err, "old", "Go", "late"));
    start(w, "TooMuch", "", "new"); /* not pinned yet: anybody may begin it */
    expect(w, "new", "too much was accepted");
    assert_int_equal(history_count(w, "old", 0, "\"event_id\""), 2);
    world_stop(w);
    RUN(w, handlers);
    expect(w, "old", "late");
}

/* ---- limits, stacks, parking ---- */

static void limits_are_options(void **state) {
    world *w = *state;
    RUN(w, handlers, .payload_bytes_max = 99, .custom_status_bytes_max = 10, .kv_value_bytes_max = 5, .kv_keys_max = 2);
    static const char *const limits[] = { "payload", "status", "value", "keys" };
    for (size_t i = 0; i < 4; i++) {
        start(w, "TooMuch", limits[i], limits[i]);
        expect_failure(w, limits[i], DUR_EFAILED, "limit");
    }
    world_stop(w);
    RUN(w, handlers);
    for (size_t i = 0; i < 4; i++) {
        char id[16];
        snprintf(id, sizeof(id), "fine-%zu", i);
        start(w, "TooMuch", limits[i], id);
        expect(w, id, "too much was accepted");
    }
}

static void a_larger_stack_holds_more(void **state) {
    world *w = *state;
    RUN(w, handlers, .stack_bytes = 1024 * 1024);
    start(w, "Deep", "in", "d");
    expect(w, "d", "in 1");
}

static void handlers_over_the_budget_are_replayed(void **state) {
    world *w = *state;
    RUN(w, handlers, .parked_bytes_max = 20000);
    for (int i = 0; i < 50; i++) {
        char id[16];
        snprintf(id, sizeof(id), "w%d", i);
        start(w, "Waits", "", id);
        until_history(w, id, "\"ExternalSubscribed\"", 1);
    }
    for (int i = 0; i < 50; i++) {
        char id[16];
        snprintf(id, sizeof(id), "w%d", i);
        OK(w, dur_client_pulse(w->client, &w->err, id, "Go", id));
        expect(w, id, id);
    }
    dur_metrics m = { .size = sizeof(m) };
    OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    assert_true(m.evictions > 0);
    assert_true(m.replays > 0);
}

static void the_smallest_runtime_does_everything(void **state) {
    world *w = *state;
    RUN(w, handlers, .orchestration_concurrency = 1, .worker_concurrency = 1, .prefetch = 1);
    for (int i = 0; i < 3; i++) {
        char id[16];
        snprintf(id, sizeof(id), "f%d", i);
        start(w, "Fan", id, id);
    }
    expect(w, "f0", "f0");
    expect(w, "f1", "f1");
    expect(w, "f2", "f2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(tag_filter_default_only),
        TEST(tag_filter_tags),
        TEST(tag_filter_default_and_tags),
        TEST(tag_filter_any),
        TEST(tag_filter_none),
        TEST(a_session_stays_with_its_node),
        TEST(a_node_keeps_its_sessions_over_a_restart),
        TEST(a_session_of_a_node_that_is_gone_moves),
        TEST(every_attempt_keeps_tag_and_session),
        TEST(cancellation_reaches_descriptor_and_flag),
        TEST(a_history_outside_the_range_is_left_alone),
        TEST(limits_are_options),
        TEST(a_larger_stack_holds_more),
        TEST(handlers_over_the_budget_are_replayed),
        TEST(the_smallest_runtime_does_everything),
    };
    return cmocka_run_group_tests_name("e2e_options", tests, NULL, NULL);
}
