/*
 * minimal_features.c: every feature of an orchestration on the smallest provider there is (examples/providers): each
 * optional method is a fallback here.  The same orchestration runs on the memory store, and must answer the same.
 */
#include "e2e/harness.h"

#include <durite/sys/provider_methods.h>

int minimal_register(dur_error *err);

/* ---- activities -------------------------------------------------------------------------------------------------- */

static dur_outcome shout(dur_act *act, const char *input) {
    return dur_act_completef(act, "%s!", input);
}
static dur_outcome where(dur_act *act, const char *input) {
    (void)input;
    return dur_act_completef(act, "%s/%s", dur_act_tag(act) != NULL ? dur_act_tag(act) : "-",
                             dur_act_session(act) != NULL ? dur_act_session(act) : "-");
}
static dur_outcome third_time(dur_act *act, const char *input) {
    (void)input;
    if (dur_act_attempt(act) < 3) return dur_act_fail(act, "not yet");
    return dur_act_completef(act, "attempt %u", dur_act_attempt(act));
}

/* ---- orchestrations ---------------------------------------------------------------------------------------------- */

static dur_outcome branch(dur_ctx *ctx, void *arg) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Shout", arg)));
}

static dur_outcome child(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Shout", input)));
}

static dur_outcome second_half(dur_ctx *ctx, const char *said) {
    const char *kept = dur_kv_get(ctx, "kept"), *gone = dur_kv_get(ctx, "gone");
    const char *left = dur_await(dur_message(ctx, "work"));
    dur_status_set(ctx, "done");
    return dur_completef(ctx, "%s; kept %s, gone %s, left %s", said, kept != NULL ? kept : "none",
                         gone != NULL ? gone : "none", left);
}

static dur_outcome everything(dur_ctx *ctx, const char *input) {
    if (input[0] != '\0') return second_half(ctx, input);
    dur_status_set(ctx, "busy");
    dur_kv_set(ctx, "kept", "yes");
    dur_kv_set(ctx, "gone", "yes");
    dur_kv_clear(ctx, "gone");
    const char *plain = dur_await(dur_activity(ctx, "Shout", "one"));
    const char *tagged = dur_await(dur_activity(ctx, "Where", "", .tag = "red"));
    const char *on_session = dur_await(dur_activity(ctx, "Where", "", .session = "s1"));
    const char *retried = dur_await(dur_activity(ctx, "ThirdTime", "", .retry = DUR_RETRY(.delay_ms = 1)));
    dur_future *two = dur_activity(ctx, "Shout", "two"), *three = dur_spawn(ctx, branch, "three");
    dur_join(two, three);
    dur_future *never = dur_timer(ctx, DUR_HOURS(1)), *soon = dur_timer(ctx, 5);
    const char *first = dur_select(never, soon) == soon ? "soon" : "never";
    const char *kid = dur_await(dur_orchestration(ctx, "Child", "kid"));
    bool sane = dur_now_ms(ctx) > 0;
    size_t guid = strlen(dur_guid(ctx));
    dur_future *go = dur_pulse(ctx, "Go");
    dur_future *late = dur_timer(ctx, DUR_HOURS(1));
    const char *event = dur_select(go, late) == go ? dur_await(go) : "late";
    const char *a = dur_await(dur_message(ctx, "work"));
    const char *b = dur_await(dur_message(ctx, "work"));
    return dur_continue_as_new(ctx, dur_format(ctx, "%s %s %s %s %s %s %s %s %d %zu %s %s %s", plain, tagged,
                                               on_session, retried, dur_await(two), dur_await(three), first, kid, sane,
                                               guid, event, a, b));
}

static dur_outcome stubborn(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_kv_set(ctx, "waits", "yes");
    if (dur_try(dur_pulse(ctx, "Never"), NULL) == DUR_ECANCELLED)
        dur_kv_set(ctx, "cleaned", dur_await(dur_activity(ctx, "Shout", "up")));
    return dur_complete(ctx, "");
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Shout", shout),
    DUR_ACTIVITY("Where", where),
    DUR_ACTIVITY("ThirdTime", third_time),
    DUR_ORCHESTRATION("Child", "1.0.0", child),
    DUR_ORCHESTRATION("Everything", "1.0.0", everything),
    DUR_ORCHESTRATION("Stubborn", "1.0.0", stubborn),
    DUR_HANDLERS_END,
};

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static int open_world(void **state, const char *url) {
    static bool registered;
    world *w = calloc(1, sizeof(*w));
    if (!registered) OK(w, minimal_register(&w->err));
    registered = true;
    snprintf(w->url, sizeof(w->url), "%s", url);
    world_open_store(w);
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    *state = w;
    return 0;
}
static int on_minimal(void **state) {
    return open_world(state, "minimal:");
}
static int on_memory(void **state) {
    return open_world(state, "memory:minimal-features");
}

static void run_all(world *w) {
    static const char *const tags[] = { "red", NULL };
    RUN(w, handlers, .tags = DUR_TAG_AND_DEFAULT, .worker_tags = tags, .double_run = true);
}

static void value_is(world *w, const char *instance, const char *key, const char *expected) {
    char *value = NULL;
    OK(w, dur_client_kv_wait(&value, w->client, instance, key, patience_ms(), &w->err));
    assert_string_equal(value, expected);
    dur_free(value);
}

static void every_feature(void **state) {
    world *w = *state;
    start(w, "Everything", "", "e");
    run_all(w);
    until_history(w, "e", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "e", "Go", "went"));
    for (int i = 1; i <= 3; i++)
        OK(w, dur_client_send(w->client, &w->err, "e", "work", i == 1 ? "w1" : i == 2 ? "w2" : "w3"));
    expect(w, "e", "one! red/- -/s1 attempt 3 two! three! soon kid! 1 36 went w1 w2; kept yes, gone none, left w3");
    value_is(w, "e", "kept", "yes");
}

static void cancel_and_clean_up(void **state) {
    world *w = *state;
    start(w, "Stubborn", "", "s");
    run_all(w);
    until_history(w, "s", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_cancel(w->client, "s", "enough", &w->err));
    expect_failure(w, "s", DUR_ECANCELLED, "enough");
    value_is(w, "s", "cleaned", "up!");
}

/* What is left of a runtime that stopped is taken up by the next: nothing lives only in memory of the runtime. */
static void another_runtime_goes_on(void **state) {
    world *w = *state;
    start(w, "Everything", "", "e");
    run_all(w);
    until_history(w, "e", "\"ExternalSubscribed\"", 1);
    world_stop(w);
    OK(w, dur_client_pulse(w->client, &w->err, "e", "Go", "later"));
    for (int i = 1; i <= 3; i++)
        OK(w, dur_client_send(w->client, &w->err, "e", "work", "w"));
    run_all(w);
    expect(w, "e", "one! red/- -/s1 attempt 3 two! three! soon kid! 1 36 later w w; kept yes, gone none, left w");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        { "every_feature_on_minimal", every_feature, on_minimal, world_teardown, NULL },
        { "every_feature_on_memory", every_feature, on_memory, world_teardown, NULL },
        { "cancel_and_clean_up_on_minimal", cancel_and_clean_up, on_minimal, world_teardown, NULL },
        { "another_runtime_goes_on_on_minimal", another_runtime_goes_on, on_minimal, world_teardown, NULL },
    };
    return cmocka_run_group_tests_name("kit_features", tests, NULL, NULL);
}
