/*
 * fault_determinism.c: C24, the gaps in the original's detection of nondeterminism: each change of code below would
 * have gone unnoticed there.  A history is recorded with one handler and replayed against others.
 */
#include "e2e/harness.h"

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

typedef struct story { /* the recorded handler, and how another one differs from it */
    const char *activity, *input, *kid, *version;
    bool no_status;
} story;

static dur_outcome told(dur_ctx *ctx, const char *input, const story *changed) {
    const char *first = dur_await(dur_activity(ctx, changed->activity != NULL ? changed->activity : "Echo",
                                               changed->input != NULL ? changed->input : input));
    dur_future *kid = dur_orchestration(ctx, "Kid", "k", .instance = changed->kid != NULL ? changed->kid : "fixed-kid",
                                        .version = changed->version != NULL ? changed->version : "1.0.0");
    dur_kv_set(ctx, "key", "value");
    if (!changed->no_status) dur_status_set(ctx, "status");
    const char *second = dur_await(kid);
    dur_await(dur_timer(ctx, 1));
    return dur_completef(ctx, "%s%s", first, second);
}

static dur_outcome recorded(dur_ctx *ctx, const char *input) {
    return told(ctx, input, &(story){ .no_status = false });
}
static dur_outcome extra_command_at_the_end(dur_ctx *ctx, const char *input) {
    dur_outcome outcome = recorded(ctx, input);
    (void)dur_activity(ctx, "Echo", "extra");
    return outcome;
}
static dur_outcome returns_early(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}
static dur_outcome other_activity_name(dur_ctx *ctx, const char *input) {
    return told(ctx, input, &(story){ .activity = "Ohce" });
}
static dur_outcome other_input(dur_ctx *ctx, const char *input) {
    return told(ctx, input, &(story){ .input = "other" });
}
static dur_outcome other_child_id(dur_ctx *ctx, const char *input) {
    return told(ctx, input, &(story){ .kid = "other-kid" });
}
static dur_outcome other_child_version(dur_ctx *ctx, const char *input) {
    return told(ctx, input, &(story){ .version = "2.0.0" });
}
static dur_outcome last_command_removed(dur_ctx *ctx, const char *input) {
    return told(ctx, input, &(story){ .no_status = true });
}
static dur_outcome kv_removed(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "Echo", input));
    dur_future *kid = dur_orchestration(ctx, "Kid", "k", .instance = "fixed-kid", .version = "1.0.0");
    dur_status_set(ctx, "status");
    return dur_complete(ctx, dur_await(kid));
}
static dur_outcome kind_changed(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_timer(ctx, 1));
    return dur_complete(ctx, "");
}
static dur_outcome status_text_and_timer_changed(dur_ctx *ctx, const char *input) { /* allowed: only a warning */
    const char *first = dur_await(dur_activity(ctx, "Echo", input));
    dur_future *kid = dur_orchestration(ctx, "Kid", "k", .instance = "fixed-kid", .version = "1.0.0");
    dur_kv_set(ctx, "key", "value");
    dur_status_set(ctx, "another text");
    const char *second = dur_await(kid);
    dur_await(dur_timer(ctx, 5000));
    return dur_completef(ctx, "%s%s", first, second);
}
static dur_outcome kid(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}

static int replay(const char *history, dur_orchestration_fn *fn, dur_error *err) {
    const dur_handler handlers[] = { DUR_ORCHESTRATION("R", "1.0.0", fn), DUR_HANDLERS_END };
    return dur_replay_history(NULL, handlers, history, err);
}

static void fault_c24_changed_code_is_noticed(void **state) {
    world *w = *state;
    static const struct {
        const char *what;
        dur_orchestration_fn *fn;
    } changes[] = {
        { "extra command at the end", extra_command_at_the_end },
        { "early return", returns_early },
        { "activity name", other_activity_name },
        { "input", other_input },
        { "child id", other_child_id },
        { "child version", other_child_version },
        { "key-value call removed", kv_removed },
        { "last command of its group removed", last_command_removed },
        { "kind", kind_changed },
    };
    const dur_handler handlers[] = { DUR_ACTIVITY("Echo", echo), DUR_ORCHESTRATION("R", "1.0.0", recorded),
                                     DUR_ORCHESTRATION("Kid", "1.0.0", kid), DUR_HANDLERS_END };
    char *history = NULL;
    RUN(w, handlers);
    start(w, "R", "a", "r");
    expect(w, "r", "ak");
    OK(w, dur_client_history(&history, w->client, "r", 0, &w->err));
    OK(w, replay(history, recorded, &w->err));
    OK(w, replay(history, status_text_and_timer_changed, &w->err));
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        int code = replay(history, changes[i].fn, &w->err);
        if (code != DUR_ENONDETERMINISM) fail_msg("%s: %s: %s", changes[i].what, dur_code_name(code), w->err.message);
        print_message("%s: %s\n", changes[i].what, w->err.message);
    }
    dur_free(history);
}

static void nondeterminism_suspends_and_a_fixed_deploy_resumes(void **state) {
    world *w = *state;
    const dur_handler good[] = { DUR_ACTIVITY("Echo", echo), DUR_ORCHESTRATION("R", "1.0.0", recorded),
                                 DUR_ORCHESTRATION("Kid", "1.0.0", kid), DUR_HANDLERS_END };
    const dur_handler bad[] = { DUR_ACTIVITY("Echo", echo), DUR_ORCHESTRATION("R", "1.0.0", kind_changed),
                                DUR_ORCHESTRATION("Kid", "1.0.0", kid), DUR_HANDLERS_END };
    const dur_handler no_kid[] = { DUR_ACTIVITY("Echo", echo), DUR_ORCHESTRATION("R", "1.0.0", recorded),
                                   DUR_HANDLERS_END };
    char *result = NULL;
    RUN(w, no_kid);
    start(w, "R", "a", "r");
    until_history(w, "r", "\"SubOrchestrationScheduled\"", 1);
    world_stop(w);
    RUN(w, bad);
    assert_int_equal(dur_client_result(&result, w->client, "r", patience_ms(), &w->err), DUR_ESUSPENDED);
    assert_non_null(strstr(w->err.message, "activity \"Echo\""));
    assert_non_null(strstr(w->err.message, "fault_determinism.c:"));
    world_stop(w);
    RUN(w, good);
    OK(w, dur_client_resume(w->client, "r", &w->err));
    expect(w, "r", "ak");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(fault_c24_changed_code_is_noticed),
        TEST(nondeterminism_suspends_and_a_fixed_deploy_resumes),
    };
    return cmocka_run_group_tests_name("fault_determinism", tests, NULL, NULL);
}
