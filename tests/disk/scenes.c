/*
 * scenes.c: handlers that use everything, and the script.
 */
#include "disk/scenes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- activities ---- */

static dur_outcome echo(dur_act *act, const char *input) {
    activity_ran(act);
    return dur_act_completef(act, "<%s>", input);
}

static dur_outcome token(dur_act *act, const char *input) { /* another one each time that it runs */
    activity_ran(act);
    return dur_act_completef(act, "%s-%lu", input, next_token());
}

static dur_outcome flaky(dur_act *act, const char *input) {
    activity_ran(act);
    return dur_act_attempt(act) < 3 ? dur_act_fail(act, "not yet") : dur_act_complete(act, input);
}

static dur_outcome bad(dur_act *act, const char *input) {
    activity_ran(act);
    return dur_act_fail_final(act, input);
}

/* ---- orchestrations ---- */

static dur_outcome order(dur_ctx *ctx, const char *input) {
    const char *charged = dur_await(dur_activity(ctx, "Token", "charge"));
    dur_kv_set(ctx, "charged", charged);
    dur_status_set(ctx, "charged");
    dur_await(dur_timer(ctx, 300));
    const char *sent = dur_await(dur_activity(ctx, "Echo", input));
    return dur_completef(ctx, "%s %s", sent, charged);
}

static dur_outcome waiter(dur_ctx *ctx, const char *input) {
    dur_future *late = dur_timer(ctx, DUR_HOURS(1000)), *message = dur_message(ctx, "q");
    (void)input;
    if (dur_select(late, message) == late) return dur_fail(ctx, "late");
    const char *one = dur_await(message);
    const char *two = dur_await(dur_message(ctx, "q"));
    const char *go = dur_await(dur_pulse(ctx, "Go"));
    return dur_completef(ctx, "%s %s %s", one, two, go);
}

static dur_outcome fails(dur_ctx *ctx, const char *input) {
    return dur_fail(ctx, input);
}

static dur_outcome parent(dur_ctx *ctx, const char *input) {
    dur_future *good = dur_orchestration(ctx, "Order", input);
    dur_future *failing = dur_orchestration(ctx, "Fails", "child cannot");
    dur_start(ctx, "Order", "loose", .instance = dur_format(ctx, "%s-loose", dur_instance_id(ctx)));
    const char *answer = dur_await(good);
    if (dur_try(failing, NULL) == DUR_OK) return dur_fail(ctx, "it should have failed");
    return dur_completef(ctx, "%s %s", dur_reason(failing), answer);
}

static dur_outcome cycle(dur_ctx *ctx, const char *input) {
    const char *message = dur_await(dur_message(ctx, "q"));
    const char *sum = dur_format(ctx, "%s%s", input, message);
    dur_kv_set(ctx, "sum", sum);
    dur_status_set(ctx, sum);
    if (dur_execution_id(ctx) < 3) return dur_continue_as_new(ctx, sum);
    return dur_complete(ctx, sum);
}

static dur_outcome troubled(dur_ctx *ctx, const char *input) {
    dur_future *three[3];
    dur_saga *saga = dur_saga_begin(ctx);
    for (int i = 0; i < 3; i++)
        three[i] = dur_activity(ctx, "Token", input);
    dur_join_n(three, 3);
    const char *last = dur_await(three[2]);
    dur_saga_undo(saga, "Echo", "undo");
    dur_await(dur_activity(ctx, "Flaky", "f", .retry = DUR_RETRY(.attempts_max = 5, .delay_ms = 100)));
    if (dur_try(dur_activity(ctx, "Bad", "cannot"), NULL) == DUR_OK) return dur_fail(ctx, "it should have failed");
    return dur_completef(ctx, "%zu not undone, %s", dur_saga_compensate(saga), last);
}

static dur_outcome placed(dur_ctx *ctx, const char *input) {
    const char *one = dur_await(dur_activity(ctx, "Echo", "1", .session = "S"));
    const char *two = dur_await(dur_activity(ctx, "Echo", "2", .session = "S"));
    const char *gpu = dur_await(dur_activity(ctx, "Echo", "3", .tag = "gpu"));
    const char *theirs = dur_await(dur_kv_remote(ctx, input, "charged"));
    const char *guid = dur_guid(ctx);
    return dur_completef(ctx, "%s%s%s %s %s", one, two, gpu, theirs, guid);
}

static dur_outcome stubborn(dur_ctx *ctx, const char *input) {
    (void)input;
    if (dur_try(dur_pulse(ctx, "Never"), NULL) == DUR_OK) return dur_complete(ctx, "it came");
    dur_await(dur_activity(ctx, "Token", "refund"));
    return dur_complete(ctx, "refunded");
}

static dur_outcome version_one(dur_ctx *ctx, const char *input) {
    dur_await(dur_pulse(ctx, "Next"));
    return dur_continue_as_new(ctx, input);
}

static dur_outcome version_two(dur_ctx *ctx, const char *input) {
    bool patched = dur_patched(ctx, "receipt");
    return dur_completef(ctx, "two %s%s", dur_await(dur_activity(ctx, "Echo", input)), patched ? " patched" : "");
}

#define COMMON                                                                                                         \
    DUR_ACTIVITY("Echo", echo), DUR_ACTIVITY("Token", token), DUR_ACTIVITY("Flaky", flaky), DUR_ACTIVITY("Bad", bad),  \
        DUR_ORCHESTRATION("Order", "1.0.0", order), DUR_ORCHESTRATION("Waiter", "1.0.0", waiter),                      \
        DUR_ORCHESTRATION("Fails", "1.0.0", fails), DUR_ORCHESTRATION("Parent", "1.0.0", parent),                      \
        DUR_ORCHESTRATION("Cycle", "1.0.0", cycle), DUR_ORCHESTRATION("Troubled", "1.0.0", troubled),                  \
        DUR_ORCHESTRATION("Placed", "1.0.0", placed), DUR_ORCHESTRATION("Stubborn", "1.0.0", stubborn),                \
        DUR_ORCHESTRATION("Ver", "1.0.0", version_one)

static const dur_handler handlers_one[] = { COMMON, DUR_HANDLERS_END };
static const dur_handler handlers_two[] = { COMMON, DUR_ORCHESTRATION("Ver", "2.0.0", version_two), DUR_HANDLERS_END };

/* ---- the script ---- */

#define DO(verb_, ...)                                                                                                 \
    { .verb = (verb_), .a = __VA_ARGS__ }
const step steps[] = {
    /* a new file; an order that is charged once */
    DO(START, "Order", "s0-a", "shoes"),
    DO(RESULT, "s0-a"),
    DO(VALUE, "s0-a", "charged"),
    DO(STATUS, "s0-a", "charged"),
    DO(SCENE, NULL),
    /* queue and event; what nobody took is a dead letter */
    DO(START, "Waiter", "s1-w", ""),
    DO(ENQUEUE, "s1-w", "q", "m1"),
    DO(ENQUEUE, "s1-w", "q", "m2"),
    DO(UNTIL, "s1-w", "\"ExternalSubscribed\""),
    DO(ENQUEUE, "s1-w", "q", "m3"),
    DO(RAISE, "s1-w", "Go", "now"),
    DO(RESULT, "s1-w", "m1 m2 now"),
    DO(DEAD_LETTERS, NULL, .code = 1),
    DO(FORGET, NULL),
    DO(DEAD_LETTERS, NULL, .code = 0),
    DO(SCENE, NULL),
    /* children, and what is nobody's child */
    DO(START, "Parent", "s2-p", "tree"),
    DO(RESULT, "s2-p"),
    DO(RESULT, "s2-p-loose"),
    DO(SCENE, NULL),
    /* continue as new; prune */
    DO(START, "Cycle", "s3-c", ""),
    DO(ENQUEUE, "s3-c", "q", "a"),
    DO(ENQUEUE, "s3-c", "q", "b"),
    DO(VALUE, "s3-c", "sum", "ab"),
    DO(ENQUEUE, "s3-c", "q", "c"),
    DO(RESULT, "s3-c", "abc"),
    DO(EXECUTIONS, "s3-c", .code = 3),
    DO(PRUNE, "s3-c"),
    DO(EXECUTIONS, "s3-c", .code = 1),
    DO(SCENE, NULL),
    /* many at once, retries, compensation */
    DO(START, "Troubled", "s4-t", "x"),
    DO(RESULT, "s4-t"),
    DO(SCENE, NULL),
    /* sessions, tags, values of others */
    DO(START, "Placed", "s5-p", "s0-a"),
    DO(RESULT, "s5-p"),
    DO(SCENE, NULL),
    /* versions */
    DO(START_V1, "Ver", "s6-v", "in"),
    DO(UNTIL, "s6-v", "\"ExternalSubscribed\""),
    DO(UPGRADE, NULL),
    DO(RAISE, "s6-v", "Next", ""),
    DO(RESULT, "s6-v", "two <in> patched"),
    DO(SCENE, NULL),
    /* the ways to end early */
    DO(START, "Stubborn", "s7-a", ""),
    DO(START, "Stubborn", "s7-b", ""),
    DO(START, "Stubborn", "s7-c", ""),
    DO(UNTIL, "s7-c", "\"ExternalSubscribed\""),
    DO(CANCEL, "s7-a"),
    DO(RESULT, "s7-a", .code = DUR_ECANCELLED),
    DO(TERMINATE, "s7-b"),
    DO(RESULT, "s7-b", .code = DUR_ECANCELLED),
    DO(SUSPEND, "s7-c"),
    DO(SUSPENDED, "s7-c"),
    DO(RAISE, "s7-c", "Never", ""),
    DO(SUSPENDED, "s7-c"),
    DO(RESUME, "s7-c"),
    DO(RESULT, "s7-c", "it came"),
    DO(SCENE, NULL),
    /* deleted, and started again under its id */
    DO(START, "Order", "s8-d", "first"),
    DO(RESULT, "s8-d"),
    DO(DELETE, "s8-d"),
    DO(ABSENT, "s8-d"),
    DO(START, "Order", "s8-d", "second", .policy = DUR_START_FAIL),
    DO(RESULT, "s8-d"),
    DO(START, "Waiter", "s8-d", "third", .policy = DUR_START_REPLACE_FINISHED),
    DO(ENQUEUE, "s8-d", "q", "m1"),
    DO(UNTIL, "s8-d", "m1"),
    DO(ENQUEUE, "s8-d", "q", "m2"),
    DO(DELETE, "s8-d"),
    DO(START, "Waiter", "s8-d", "fourth", .policy = DUR_START_FAIL),
    DO(DELETE, "s8-d"),
    DO(ABSENT, "s8-d"),
    DO(SCENE, NULL),
    /* a start in the future, a clean end, a smaller file */
    DO(START_LATER, "Order", "s9-o", "later"),
    DO(RESTART, NULL),
    DO(VACUUM, NULL),
    DO(RESULT, "s9-o"),
    DO(RESTART, NULL),
    DO(START, "Parent", "s9-p", "last"),
    DO(RESTART, NULL),
    DO(RESULT, "s9-p"),
    DO(SCENE, NULL),
};
const int step_count = (int)(sizeof(steps) / sizeof(steps[0]));

int scene_first(int at) {
    while (at > 0 && steps[at - 1].verb != SCENE)
        at--;
    return at;
}

int scene_end(int at) {
    while (steps[at].verb != SCENE)
        at++;
    return at;
}

const dur_handler *handlers_at(int at) {
    for (int i = 0; i <= at; i++)
        if (steps[i].verb == UPGRADE) return handlers_two;
    return handlers_one;
}
