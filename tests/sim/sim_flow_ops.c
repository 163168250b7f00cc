/*
 * sim_flow_ops.c: activities, timers, messages, branches.
 */
#include "sim_flow.h"

#include <string.h>

static bool is_settled_ok(sim_lane *lane, const sim_op *op, dur_code code, const char *what) {
    if (sim_stopped(lane, code)) return false;
    if (code != DUR_OK) sim_fail("flow %s@%zu: %s: %s", lane->flow->ticket, op->at, what, dur_code_name(code));
    return true;
}

static dur_future *echo(sim_lane *lane, const char *path, uint32_t number) {
    return dur_activity(lane->flow->ctx, "Echo", dur_format(lane->flow->ctx, "%s#%u", path, number));
}

static void do_one(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    const char *path = sim_path(lane, op), *value = NULL;
    const char *input = dur_format(ctx, "%s#%u", path, op->n[0]);
    dur_future *future = NULL;
    if (op->kind == 'g')
        future = dur_activity(ctx, "Gpu", input, .tag = "gpu");
    else if (op->kind == 's')
        future = dur_activity(ctx, "Sess", input, .session = op->n[1] == 0 ? "sess0" : "sess1");
    else if (op->kind == 'w')
        future = dur_activity(ctx, "Tell", input);
    else
        future = dur_activity(ctx, "Echo", input);
    dur_code code = dur_try(future, &value);
    if (sim_stopped(lane, code)) return;
    sim_expect_echo(lane, path, op->n[0], code, value);
    lane->fold = sim_fold(lane->fold, op->kind == 'w' ? 'w' : sim_echo(op->n[0]));
}

static void do_many(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    dur_scope *scope = op->n[0] % 2 == 0 ? dur_scope_begin(ctx) : NULL;
    dur_future *futures[4];
    const char *paths[4];
    for (uint32_t i = 0; i < op->n[1]; i++) {
        paths[i] = dur_format(ctx, "%s/%u", sim_path(lane, op), i);
        futures[i] = echo(lane, paths[i], op->n[0] + i);
    }
    if (op->n[0] % 3 == 0)
        dur_try(dur_all_of(ctx, futures, op->n[1]), NULL);
    else if (op->n[0] % 3 == 1)
        dur_any_n(futures, op->n[1]);
    else
        dur_join_n(futures, op->n[1]);
    for (uint32_t i = 0; i < op->n[1] && !lane->stopped; i++) {
        const char *value = NULL;
        dur_code code = dur_try(futures[i], &value);
        if (sim_stopped(lane, code)) break;
        sim_expect_echo(lane, paths[i], op->n[0] + i, code, value);
        lane->fold = sim_fold(lane->fold, sim_echo(op->n[0] + i));
    }
    if (scope != NULL) dur_scope_end(scope);
}

static bool worth_it(const char *reason, uint32_t attempt, void *data) {
    (void)attempt;
    (void)data;
    return strstr(reason, "planned") != NULL;
}

static void do_retry(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    const char *path = sim_path(lane, op), *value = NULL;
    uint32_t fails = op->kind == 'x' ? 100 : op->n[1];
    const char *input = dur_format(ctx, "%s#%u:%u", path, op->n[0], fails);
    uint32_t attempts = op->kind == 'x' ? 3 : op->n[2];
    const dur_retry *retry =
        DUR_RETRY(.attempts_max = attempts, .delay_ms = 20 + op->n[0], .backoff = (dur_backoff)op->n[3],
                  .jitter = op->n[0] % 3 == 0 ? 0.5 : 0, .total_timeout_ms = op->n[0] % 7 == 0 ? 3600000 : 0,
                  .predicate = op->n[0] % 5 == 0 ? worth_it : NULL);
    dur_future *future = dur_activity(ctx, "Flaky", input, .retry = retry);
    dur_code code = dur_try(future, &value);
    if (sim_stopped(lane, code)) return;
    if (fails < attempts) {
        sim_expect_echo(lane, path, op->n[0], code, value);
        lane->fold = sim_fold(lane->fold, sim_echo(op->n[0]));
        return;
    }
    if (code != DUR_EFAILED || strstr(dur_reason(future), path) == NULL || dur_is_final(future) != (op->kind == 'x'))
        sim_fail("flow %s: activity %s should have failed: %s \"%s\"%s", lane->flow->ticket, path, dur_code_name(code),
                 dur_reason(future), dur_is_final(future) ? " final" : "");
    lane->fold = sim_fold(lane->fold, op->kind == 'x' ? (uint64_t)'x' : 3);
}

/* Either of two: what wins is checked, what loses is dropped. */
static void do_race(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    const char *path = sim_path(lane, op), *value = NULL;
    dur_code code = DUR_OK;
    if (op->kind == 'o') {
        const char *input = dur_format(ctx, "%s#%u", path, op->n[0]);
        code = dur_try(dur_activity(ctx, "Taken", input, .timeout_ms = op->n[1] + 1), &value);
    } else {
        dur_future *work = echo(lane, path, op->n[0]);
        dur_future *timer = dur_timer(ctx, op->n[1]);
        dur_future *first = dur_select(work, timer);
        code = dur_try(first, &value);
        if (first == timer && code == DUR_OK) code = DUR_ETIMEOUT;
    }
    if (sim_stopped(lane, code)) return;
    if (code != DUR_ETIMEOUT) sim_expect_echo(lane, path, op->n[0], code, value);
    lane->fold = sim_fold(lane->fold, (uint64_t)op->kind);
}

static void do_timers(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    uint32_t count = op->kind == 'T' ? op->n[1] : 1;
    dur_future *timers[4];
    for (uint32_t i = 0; i < count; i++)
        timers[i] = dur_timer(ctx, op->n[0] + (uint64_t)i * 10);
    dur_join_n(timers, count);
    for (uint32_t i = 0; i < count; i++) {
        if (!is_settled_ok(lane, op, dur_try(timers[i], NULL), "a timer")) return;
    }
    if (count > 1 && dur_any(timers[1], timers[0]) != timers[0])
        sim_fail("flow %s@%zu: of two timers the second came first", lane->flow->ticket, op->at);
    lane->fold = sim_fold(lane->fold, (uint64_t)op->kind);
}

static dur_code one_message(sim_lane *lane, const sim_op *op, const char *queue, const char **value) {
    dur_ctx *ctx = lane->flow->ctx;
    dur_future *message = dur_message(ctx, queue);
    if (op->n[3] == 0) return dur_try_for(message, op->n[2], value);
    dur_future *timer = dur_timer(ctx, op->n[2]);
    dur_future *first = NULL;
    if (op->n[3] == 1) {
        first = dur_select(message, timer);
    } else {
        dur_code code = dur_try(dur_first_of(ctx, (dur_future *const[]){ message, timer }, 2), value);
        if (code == DUR_OK && dur_is_settled(timer) && dur_code_of(timer) == DUR_OK) return DUR_ETIMEOUT;
        return code;
    }
    dur_code code = dur_try(first, value);
    return first == timer && code == DUR_OK ? DUR_ETIMEOUT : code;
}

static void do_messages(sim_lane *lane, const sim_op *op) {
    sim_flow_state *flow = lane->flow;
    const char *queue = op->n[0] == 0 ? "q0" : "q1", *value = NULL;
    if (op->kind == 'Q') {
        while (dur_try_message(flow->ctx, queue, &value) == DUR_OK)
            sim_receive(flow, 'm', value);
    }
    for (uint32_t i = 0; op->kind == 'q' && i < op->n[1]; i++) {
        dur_code code = one_message(lane, op, queue, &value);
        if (sim_stopped(lane, code)) return;
        if (code == DUR_ETIMEOUT) break;
        if (!is_settled_ok(lane, op, code, "a message")) return;
        sim_receive(flow, 'm', value);
    }
    lane->fold = sim_fold(lane->fold, (uint64_t)op->kind);
}

/* What nobody has looked at is in its place again. */
static void do_give_up(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    dur_future *message = dur_message(ctx, op->n[0] == 0 ? "q0" : "q1");
    dur_code code = dur_try(dur_timer(ctx, op->n[1]), NULL);
    dur_drop(message);
    if (is_settled_ok(lane, op, code, "a timer")) lane->fold = sim_fold(lane->fold, (uint64_t)op->kind);
}

static void do_event(sim_lane *lane, const sim_op *op) {
    sim_flow_state *flow = lane->flow;
    const char *value = NULL;
    dur_code code = dur_try_for(dur_pulse(flow->ctx, op->n[0] == 0 ? "e0" : "e1"), op->n[1], &value);
    if (sim_stopped(lane, code)) return;
    if (code != DUR_ETIMEOUT) {
        if (!is_settled_ok(lane, op, code, "an event")) return;
        sim_receive(flow, 'e', value);
    }
    lane->fold = sim_fold(lane->fold, (uint64_t)op->kind);
}

/* ---- branches ---------------------------------------------------------------------------------------------------- */

static dur_outcome branch_run(dur_ctx *ctx, void *arg) {
    sim_lane *lane = arg;
    if (lane->before != NULL && !lane->before->begun)
        sim_fail("flow %s: branch %s begins before %s", lane->flow->ticket, lane->mark, lane->before->mark);
    lane->begun = true;
    sim_lane_run(lane, lane->at, lane->end);
    return dur_completef(ctx, "%s", lane->mark);
}

static dur_outcome branch_message(dur_ctx *ctx, void *arg) {
    sim_flow_state *flow = arg;
    const char *value = dur_await(dur_message(ctx, "q0"));
    sim_receive(flow, 'm', value);
    return dur_complete(ctx, value);
}

static dur_outcome branch_slow(dur_ctx *ctx, void *arg) {
    (void)arg;
    dur_await(dur_timer(ctx, 60));
    return dur_complete(ctx, "slow");
}

static void do_branches(sim_lane *lane, const sim_op *op) {
    sim_flow_state *flow = lane->flow;
    dur_future *futures[2];
    sim_lane *lanes[2];
    for (size_t i = 0; i < 2; i++) {
        lanes[i] = dur_alloc(flow->ctx, sizeof(*lanes[i]));
        size_t at = (size_t)(op->body - flow->program);
        const char *mark = dur_format(flow->ctx, "%s%c", lane->mark, "xy"[i]);
        *lanes[i] = (sim_lane){ .flow = flow,
                                .mark = mark,
                                .fold = 1,
                                .at = at,
                                .end = at + op->body_size,
                                .before = i > 0 ? lanes[i - 1] : NULL };
        futures[i] = dur_spawn(flow->ctx, branch_run, lanes[i]);
    }
    dur_join_n(futures, 2);
    for (size_t i = 0; i < 2; i++) {
        dur_code code = dur_try(futures[i], NULL);
        lane->stopped = lane->stopped || lanes[i]->stopped;
        if (lane->stopped || !is_settled_ok(lane, op, code, "a branch")) return;
        lane->fold = sim_fold(lane->fold, lanes[i]->fold);
    }
}

static void do_branch_race(sim_lane *lane, const sim_op *op) {
    sim_flow_state *flow = lane->flow;
    const char *value = NULL;
    dur_future *branch =
        op->kind == 'y' ? dur_spawn(flow->ctx, branch_message, flow) : dur_spawn(flow->ctx, branch_slow, NULL);
    dur_code code = dur_try_for(branch, op->n[1], &value);
    if (sim_stopped(lane, code)) return;
    if (code != DUR_ETIMEOUT && !is_settled_ok(lane, op, code, "a branch")) return;
    lane->fold = sim_fold(lane->fold, (uint64_t)op->kind);
}

void sim_do(sim_lane *lane, const sim_op *op) {
    dur_trace(lane->flow->ctx, DUR_LOG_DEBUG, "%s: %c", sim_path(lane, op), op->kind);
    switch (op->kind) {
    case 'a':
    case 'g':
    case 's':
    case 'w':
        do_one(lane, op);
        break;
    case 'A':
        do_many(lane, op);
        break;
    case 'r':
    case 'x':
        do_retry(lane, op);
        break;
    case 'o':
    case 'S':
        do_race(lane, op);
        break;
    case 't':
    case 'T':
        do_timers(lane, op);
        break;
    case 'q':
    case 'Q':
        do_messages(lane, op);
        break;
    case 'O':
        do_give_up(lane, op);
        break;
    case 'e':
        do_event(lane, op);
        break;
    case 'b':
        do_branches(lane, op);
        break;
    case 'y':
    case 'z':
        do_branch_race(lane, op);
        break;
    default:
        sim_do_family(lane, op);
    }
}
