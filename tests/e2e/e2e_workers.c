/*
 * e2e_workers.c: retries, tags, sessions, unregistered handlers, drain, several runtimes on one store.
 */
#include "harness.h"

static dur_outcome attempts(dur_act *act, const char *input) {
    unsigned long good = strtoul(input, NULL, 10);
    if (dur_act_attempt(act) < good) return dur_act_failf(act, "attempt %u", dur_act_attempt(act));
    return dur_act_completef(act, "%u", dur_act_attempt(act));
}
static dur_outcome final_failure(dur_act *act, const char *input) {
    return dur_act_fail_final(act, input);
}
static dur_outcome too_slow(dur_act *act, const char *input) {
    if (dur_act_attempt(act) == 1) dur_act_sleep(act, 60000);
    return dur_act_complete(act, input);
}
static dur_outcome where(dur_act *act, const char *input) {
    (void)input;
    const char *tag = dur_act_tag(act);
    return dur_act_complete(act, tag == NULL ? "default" : tag);
}
static dur_outcome starts_more(dur_act *act, const char *input) {
    dur_error err = DUR_ERROR_INIT;
    int code = dur_client_start(dur_act_client(act), &err, "Retry", "1", .instance = input,
                                .exists = DUR_START_RETURN_EXISTING);
    return code == DUR_OK ? dur_act_complete(act, "started") : dur_act_fail(act, err.message);
}
static dur_outcome brief(dur_act *act, const char *input) {
    dur_act_sleep(act, 100);
    return dur_act_complete(act, input);
}

static atomic_bool second_has_run;
static dur_outcome waits_for_second(dur_act *act, const char *input) {
    while (!atomic_load(&second_has_run) && !dur_act_sleep(act, 5)) {
    }
    return dur_act_complete(act, input);
}
static dur_outcome second(dur_act *act, const char *input) {
    atomic_store(&second_has_run, true);
    return dur_act_complete(act, input);
}
static dur_outcome both(dur_ctx *ctx, const char *input) {
    dur_future *first = dur_activity(ctx, "WaitsForSecond", input);
    dur_future *other = dur_activity(ctx, "Second", input);
    dur_join(first, other);
    return dur_complete(ctx, dur_await(first));
}

static bool only_first(const char *reason, uint32_t attempt, void *data) {
    (void)data;
    return attempt < 2 && strstr(reason, "attempt") != NULL;
}

static dur_outcome retry(dur_ctx *ctx, const char *input) {
    dur_future *f = dur_activity(ctx, "Attempts", input, .retry = DUR_RETRY(.attempts_max = 4, .delay_ms = 1));
    const char *value = NULL;
    return dur_try(f, &value) == DUR_OK ? dur_complete(ctx, value) : dur_failf(ctx, "gave up: %s", dur_reason(f));
}

static dur_outcome retry_kinds(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *fixed =
        dur_activity(ctx, "Attempts", "3", .retry = DUR_RETRY(.backoff = DUR_BACKOFF_FIXED, .delay_ms = 2));
    dur_future *linear =
        dur_activity(ctx, "Attempts", "3", .retry = DUR_RETRY(.backoff = DUR_BACKOFF_LINEAR, .delay_ms = 2));
    dur_future *none = dur_activity(ctx, "Attempts", "3", .retry = DUR_RETRY(.backoff = DUR_BACKOFF_NONE));
    dur_future *jitter = dur_activity(ctx, "Attempts", "3", .retry = DUR_RETRY(.delay_ms = 2, .jitter = 1.0));
    dur_future *final = dur_activity(ctx, "Final", "no use", .retry = DUR_RETRY(.attempts_max = 9, .delay_ms = 1));
    dur_future *asked = dur_activity(ctx, "Attempts", "3", .retry = DUR_RETRY(.delay_ms = 1, .predicate = only_first));
    dur_future *slow = /* on a busy machine more than the first attempt may be late */
        dur_activity(ctx, "TooSlow", "second",
                     .retry = DUR_RETRY(.attempts_max = 1000, .backoff = DUR_BACKOFF_FIXED, .delay_ms = 1,
                                        .attempt_timeout_ms = 50));
    dur_future *total =
        dur_activity(ctx, "TooSlow", "x", .retry = DUR_RETRY(.attempts_max = 99, .total_timeout_ms = 30));
    dur_join(fixed, linear, none, jitter, final, asked, slow, total);
    const char *slow_value = dur_await(slow);
    return dur_completef(ctx, "%d%d%d%d %s %d %s %s %d", dur_code_of(fixed), dur_code_of(linear), dur_code_of(none),
                         dur_code_of(jitter), dur_reason(final), dur_is_final(final), dur_reason(asked), slow_value,
                         dur_code_of(total) == DUR_ETIMEOUT);
}

static dur_outcome tagged(dur_ctx *ctx, const char *input) {
    const char *plain = dur_await(dur_activity(ctx, "Where", input));
    const char *gpu = dur_await(dur_activity(ctx, "Where", input, .tag = "gpu"));
    return dur_completef(ctx, "%s %s", plain, gpu);
}

static dur_outcome starved(dur_ctx *ctx, const char *input) {
    const char *value;
    dur_code code = dur_try_for(dur_activity(ctx, "Where", input, .tag = "nobody serves this"), 50, &value);
    return dur_complete(ctx, dur_code_name(code));
}

static dur_outcome session_fan(dur_ctx *ctx, const char *input) {
    size_t count = strtoul(input, NULL, 10);
    dur_future **futures = dur_alloc(ctx, count * sizeof(*futures));
    for (size_t i = 0; i < count; i++)
        futures[i] = dur_activity(ctx, "Where", "", .session = dur_format(ctx, "s%zu", i % 15));
    dur_join_n(futures, count);
    size_t good = 0;
    for (size_t i = 0; i < count; i++)
        good += dur_code_of(futures[i]) == DUR_OK;
    return dur_completef(ctx, "%zu", good);
}

static dur_outcome asks_for_start(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "StartsMore", input)));
}
static dur_outcome brief_fan(dur_ctx *ctx, const char *input) {
    dur_future *a = dur_activity(ctx, "Brief", input);
    dur_future *b = dur_activity(ctx, "Brief", input);
    dur_join(a, b);
    return dur_complete(ctx, "both");
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Attempts", attempts),
    DUR_ACTIVITY("Final", final_failure),
    DUR_ACTIVITY("TooSlow", too_slow),
    DUR_ACTIVITY("Where", where),
    DUR_ACTIVITY("StartsMore", starts_more),
    DUR_ACTIVITY("Brief", brief),
    DUR_ORCHESTRATION("Retry", "1.0.0", retry),
    DUR_ORCHESTRATION("RetryKinds", "1.0.0", retry_kinds),
    DUR_ORCHESTRATION("Tagged", "1.0.0", tagged),
    DUR_ORCHESTRATION("Starved", "1.0.0", starved),
    DUR_ORCHESTRATION("SessionFan", "1.0.0", session_fan),
    DUR_ORCHESTRATION("AsksForStart", "1.0.0", asks_for_start),
    DUR_ORCHESTRATION("BriefFan", "1.0.0", brief_fan),
    DUR_HANDLERS_END,
};

static void retries_until_it_works_or_gives_up(void **state) {
    world *w = *state;
    RUN(w, handlers, .double_run = true);
    start(w, "Retry", "3", "good");
    start(w, "Retry", "9", "bad");
    expect(w, "good", "3");
    expect_failure(w, "bad", DUR_EFAILED, "gave up: attempt 4");
}

static void every_kind_of_retry(void **state) {
    world *w = *state;
    RUN(w, handlers, .worker_concurrency = 4, .double_run = true);
    start(w, "RetryKinds", "", "r");
    expect(w, "r", "0000 no use 1 attempt 2 second 1");
}

static void tags_route_to_their_runtime(void **state) {
    world *w = *state;
    static const char *const tags[] = { "gpu", NULL };
    dur_runtime *gpu = NULL;
    RUN(w, handlers);
    OK(w, dur_runtime_start(
              &gpu, DUR_RUNTIME(.store = w->store, .handlers = handlers, .tags = DUR_TAG_ONLY, .worker_tags = tags),
              &w->err));
    start(w, "Tagged", "", "t");
    start(w, "Starved", "", "s");
    expect(w, "t", "default gpu");
    expect(w, "s", "DUR_ETIMEOUT");
    OK(w, dur_runtime_stop(gpu, patience_ms(), &w->err));
}

static void more_sessions_than_a_runtime_may_hold(void **state) {
    world *w = *state;
    RUN(w, handlers, .worker_concurrency = 4);
    start(w, "SessionFan", "120", "f");
    expect(w, "f", "120");
}

static void an_activity_may_use_a_client(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "AsksForStart", "started-by-activity", "a");
    expect(w, "a", "started");
    expect(w, "started-by-activity", "1");
}

static void unregistered_work_waits_for_a_runtime_that_knows_it(void **state) {
    world *w = *state;
    const dur_handler poor[] = { DUR_ORCHESTRATION("Retry", "1.0.0", retry), DUR_HANDLERS_END };
    RUN(w, poor, .unregistered_backoff_ms = 20);
    start(w, "Tagged", "", "unknown-orchestration");
    start(w, "Retry", "1", "unknown-activity");
    until_history(w, "unknown-activity", "\"ActivityScheduled\"", 1);
    pause_ms(200); /* several tries; none of them may count */
    world_stop(w);
    RUN(w, handlers, .tags = DUR_TAG_ANY);
    expect(w, "unknown-activity", "1");
    expect(w, "unknown-orchestration", "default gpu");
}

static void stopping_lets_running_activities_end(void **state) {
    NEEDS_THREADS("its activity waits for the test");
    world *w = *state;
    RUN(w, handlers);
    start(w, "BriefFan", "", "b");
    dur_metrics m = { .size = sizeof(m) };
    do {
        pause_ms(1);
        OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    } while (m.activities_running < 2);
    world_stop(w);
    RUN(w, handlers);
    expect(w, "b", "both");
    OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    assert_int_equal(m.activity_success, 0); /* both had ended and were recorded before the stop */
}

static void two_runtimes_share_the_work(void **state) {
    world *w = *state;
    dur_runtime *second = NULL;
    RUN(w, handlers);
    OK(w, dur_runtime_start(&second, DUR_RUNTIME(.store = w->store, .handlers = handlers), &w->err));
    for (int i = 0; i < 50; i++) {
        char id[16];
        snprintf(id, sizeof(id), "r-%d", i);
        start(w, "Retry", "2", id);
    }
    for (int i = 0; i < 50; i++) {
        char id[16];
        snprintf(id, sizeof(id), "r-%d", i);
        expect(w, id, "2");
    }
    OK(w, dur_runtime_stop(second, patience_ms(), &w->err));
}

static const dur_handler with_both[] = {
    DUR_ACTIVITY("WaitsForSecond", waits_for_second),
    DUR_ACTIVITY("Second", second),
    DUR_ORCHESTRATION("Both", "1.0.0", both),
    DUR_HANDLERS_END,
};
static const dur_handler only_activities[] = {
    DUR_ACTIVITY("WaitsForSecond", waits_for_second),
    DUR_ACTIVITY("Second", second),
    DUR_HANDLERS_END,
};

/* One worker is busy until the other activity has run, which its node has taken too: it must let it go. */
static void unstarted_work_goes_to_another_node(void **state) {
    world *w = *state;
    dur_runtime *helper = NULL;
    atomic_store(&second_has_run, false);
    RUN(w, with_both, .worker_concurrency = 1);
    OK(w, dur_runtime_start(
              &helper, DUR_RUNTIME(.store = w->store, .handlers = only_activities, .worker_concurrency = 1), &w->err));
    start(w, "Both", "in the end", "b");
    expect(w, "b", "in the end");
    OK(w, dur_runtime_stop(helper, DUR_SECONDS(20), &w->err));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(retries_until_it_works_or_gives_up),   TEST(every_kind_of_retry),
        TEST(tags_route_to_their_runtime),          TEST(more_sessions_than_a_runtime_may_hold),
        TEST(an_activity_may_use_a_client),         TEST(unregistered_work_waits_for_a_runtime_that_knows_it),
        TEST(stopping_lets_running_activities_end), TEST(two_runtimes_share_the_work),
        TEST(unstarted_work_goes_to_another_node),
    };
    return cmocka_run_group_tests_name("e2e_workers", tests, NULL, NULL);
}
