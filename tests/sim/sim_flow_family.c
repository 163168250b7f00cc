/*
 * sim_flow_family.c: children, starts, keys, status, sagas, and what is recorded.
 */
#include "sim_flow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MASK_ENDS (1u << SIM_CALL_CANCEL | 1u << SIM_CALL_TERMINATE)

/* "… call-12 …": did call 12 ask for an end? */
static bool somebody_asked(const char *reason) {
    const char *mark = strstr(reason, "call-");
    const sim_call *call = mark == NULL ? NULL : sim_call_at((uint32_t)strtoul(mark + 5, NULL, 10));
    return call != NULL && (MASK_ENDS >> call->kind & 1) != 0;
}

static const char *child_input(sim_lane *lane, const sim_op *op) {
    return dur_format(lane->flow->ctx, "%s|0|1||%.*s", sim_child_ticket(lane, op), (int)op->body_size, op->body);
}

/* What a child answered must be its own program's. */
static void judge_child(sim_lane *lane, const sim_op *op, dur_future *child, dur_code code, const char *value) {
    dur_ctx *ctx = lane->flow->ctx;
    const char *text =
        dur_format(ctx, "%s|%" PRIu64 "|", sim_child_ticket(lane, op), sim_program_fold(op->body, op->body_size));
    bool fails = sim_program_fails(op->body, op->body_size);
    const char *reason = dur_reason(child);
    if (code == DUR_OK && !fails && strncmp(value, text, strlen(text)) == 0) return;
    if (code == DUR_EFAILED && fails && strncmp(reason, "planned ", 8) == 0 &&
        strncmp(reason + 8, text, strlen(text)) == 0)
        return;
    if (code == DUR_ECANCELLED && somebody_asked(reason)) return;
    if (code == DUR_ETIMEOUT && op->kind == 'C') return;
    if (code == DUR_EFAILED && op->kind == 'H' && strstr(reason, "exist") != NULL) return;
    sim_fail("flow %s: child %s answered %s \"%s\" instead of %s\"%s\"", lane->flow->ticket, sim_child_ticket(lane, op),
             dur_code_name(code), code == DUR_OK ? value : reason, fails ? "planned " : "", text);
}

static void do_child(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    const char *value = NULL, *input = child_input(lane, op);
    dur_future *child = NULL;
    dur_code code = DUR_OK;
    if (op->kind == 'H') {
        const char *id = op->n[0] < SIM_SHARED ? dur_format(ctx, "s%u", op->n[0])
                                               : dur_format(ctx, "%s-%u", dur_instance_id(ctx), op->n[0] - SIM_SHARED);
        child = dur_orchestration(ctx, "Flow", input, .instance = id);
        code = dur_try(child, &value);
    } else if (op->kind == 'C') {
        child = dur_orchestration(ctx, "Leaf", input);
        code = dur_try_for(child, op->n[0], &value);
    } else {
        const char *version = op->n[0] == 1 ? "1.0.0" : op->n[0] == 2 ? "2.0.0" : NULL;
        const char *own = dur_format(ctx, "k%s", sim_child_ticket(lane, op));
        const char *name = op->n[0] == 0 ? "Leaf" : "Flow";
        child = dur_orchestration(ctx, name, input, .version = version, .instance = op->n[0] == 3 ? own : NULL);
        code = dur_try(child, &value);
    }
    if (sim_stopped(lane, code)) return;
    judge_child(lane, op, child, code, value);
    lane->fold = sim_fold(lane->fold, op->kind == 'c' ? sim_program_fold(op->body, op->body_size) : (uint64_t)op->kind);
}

static void do_start(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    const char *wanted = op->n[0] % 2 == 0 ? dur_format(ctx, "d%s", sim_child_ticket(lane, op)) : NULL;
    const char *id = dur_start(ctx, "Flow", child_input(lane, op), .instance = wanted);
    if (id == NULL || (wanted != NULL && strcmp(id, wanted) != 0))
        sim_fail("flow %s: started %s as %s", lane->flow->ticket, wanted == NULL ? "any" : wanted, id);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static const char *const keys[] = { "k0", "k1", "k2" };

static void expect_key(sim_lane *lane, size_t at, uint32_t key) {
    uint32_t number = sim_program_key(lane->flow->program, at, key);
    const char *value = dur_kv_get(lane->flow->ctx, keys[key]);
    const char *expected = number == 0 ? NULL : dur_format(lane->flow->ctx, "%s=%u", lane->flow->ticket, number);
    if ((value == NULL) != (expected == NULL) || (value != NULL && strcmp(value, expected) != 0))
        sim_fail("flow %s@%zu: key k%u is \"%s\" instead of \"%s\"", lane->flow->ticket, at, key,
                 value == NULL ? "(none)" : value, expected == NULL ? "(none)" : expected);
}

static void do_key(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    size_t count = 0;
    for (uint32_t i = 0; i < 3; i++)
        expect_key(lane, op->at, i);
    if (op->n[1] % 5 == 0)
        dur_kv_clear(ctx, keys[op->n[0]]);
    else
        dur_kv_set(ctx, keys[op->n[0]], dur_format(ctx, "%s=%u", lane->flow->ticket, op->n[1]));
    for (uint32_t i = 0; i < 3; i++) {
        expect_key(lane, lane->next, i);
        count += sim_program_key(lane->flow->program, lane->next, i) != 0;
    }
    for (size_t i = 1; i < dur_kv_count(ctx); i++) {
        const char *before = dur_strdup(ctx, dur_kv_key(ctx, i - 1));
        if (strcmp(before, dur_kv_key(ctx, i)) >= 0)
            sim_fail("flow %s@%zu: key %s stands before %s", lane->flow->ticket, op->at, before, dur_kv_key(ctx, i));
    }
    if (dur_kv_count(ctx) != count || dur_kv_prune(ctx, 1) != 0 || dur_kv_count(ctx) != count)
        sim_fail("flow %s@%zu: %zu keys instead of %zu", lane->flow->ticket, op->at, dur_kv_count(ctx), count);
}

static void do_remote_key(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    const char *value = NULL, *other = dur_format(ctx, "r%u", op->n[0]);
    dur_future *future = dur_kv_remote(ctx, other, "k0");
    dur_code code = dur_try(future, &value);
    if (sim_stopped(lane, code) || code == DUR_EFAILED) return;
    if (code != DUR_OK)
        sim_fail("flow %s@%zu: a key of %s: %s", lane->flow->ticket, op->at, other, dur_code_name(code));
    if (dur_is_none(future)) return;
    const sim_call *call = sim_call_at((uint32_t)strtoul(value, NULL, 10));
    if (call == NULL || call->kind != SIM_CALL_START || strcmp(call->instance, other) != 0)
        sim_fail("flow %s@%zu: key k0 of %s is \"%s\"", lane->flow->ticket, op->at, other, value);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static void do_saga(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    const char *path = sim_path(lane, op), *value = NULL;
    dur_saga *saga = dur_saga_begin(ctx);
    for (unsigned i = 0; i < 2; i++) {
        dur_saga_undo(saga, "Echo", dur_format(ctx, "%s/u%u#1", path, i));
        const char *step = dur_format(ctx, "%s/%u", path, i);
        dur_code code = dur_try(dur_activity(ctx, "Echo", dur_format(ctx, "%s#%u", step, op->n[0])), &value);
        if (sim_stopped(lane, code)) break;
        sim_expect_echo(lane, step, op->n[0], code, value);
    }
    bool cancelled = lane->stopped;
    size_t failed = dur_saga_compensate(saga);
    if (failed > 0 && (dur_cancel_reason(ctx) == NULL || cancelled))
        sim_fail("flow %s@%zu: %zu compensations failed", lane->flow->ticket, op->at, failed);
    lane->stopped = lane->stopped || dur_cancel_reason(ctx) != NULL;
}

static void do_recorded(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    const char *first = dur_guid(ctx);
    const char *second = dur_guid(ctx);
    uint64_t number = dur_random(ctx);
    uint64_t other = dur_random(ctx);
    uint64_t now = dur_now_ms(ctx);
    const char *version = dur_orchestration_version(ctx), *name = dur_orchestration_name(ctx);
    const char *parent = dur_parent_instance(ctx);
    bool child = strchr(lane->flow->ticket, '.') != NULL; /* or started by another flow, which is nobody's child */
    if ((strcmp(name, "Flow") != 0 && strcmp(name, "Leaf") != 0) || (parent != NULL && !child) ||
        dur_execution_id(ctx) < 1 || dur_history_events(ctx) < 1)
        sim_fail("flow %s@%zu: is %s below %s", lane->flow->ticket, op->at, name, parent == NULL ? "nobody" : parent);
    if (strlen(first) != 36 || strcmp(first, second) == 0 || number == other || now == 0 ||
        !dur_patched(ctx, "sim-patch") || (strcmp(version, "1.0.0") != 0 && strcmp(version, "2.0.0") != 0))
        sim_fail("flow %s@%zu: %s %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %s", lane->flow->ticket, op->at, first, second,
                 number, other, now, version);
}

static void do_status(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    const char *text = dur_format(ctx, "%s:%u", lane->flow->ticket, op->n[0]);
    dur_status_set(ctx, text);
    const char *status = dur_status_get(ctx);
    if (status == NULL || strcmp(status, text) != 0)
        sim_fail("flow %s@%zu: status is %s", lane->flow->ticket, op->at, status == NULL ? "none" : status);
    if (op->n[0] % 4 == 0) dur_status_clear(ctx);
}

/* Something that nobody waits for: it goes on, or it is given up at once. */
static void do_detached(sim_lane *lane, const sim_op *op) {
    dur_ctx *ctx = lane->flow->ctx;
    dur_future *future = dur_activity(
        ctx, "Echo", dur_format(ctx, "%s#%u:%u", sim_path(lane, op), op->n[0], op->n[0] % 3 == 0 ? SIM_DROPPED : 0));
    if (op->n[0] % 3 > 0)
        dur_detach(future);
    else
        dur_drop(future);
    if (op->n[0] % 3 == 0 && dur_try(future, NULL) != DUR_ECANCELLED)
        sim_fail("flow %s@%zu: what was dropped is %s", lane->flow->ticket, op->at, dur_code_name(dur_code_of(future)));
}

void sim_do_family(sim_lane *lane, const sim_op *op) {
    switch (op->kind) {
    case 'c':
    case 'C':
    case 'H':
        do_child(lane, op);
        return;
    case 'd':
        do_start(lane, op);
        break;
    case 'k':
        do_key(lane, op);
        break;
    case 'K':
        do_remote_key(lane, op);
        break;
    case 'G':
        do_saga(lane, op);
        break;
    case 'm':
        do_recorded(lane, op);
        break;
    case 'u':
        do_status(lane, op);
        break;
    case 'D':
        do_detached(lane, op);
        break;
    case 'n':
    case 'f':
        break;
    default:
        sim_fail("flow %s@%zu: no such operation: %c", lane->flow->ticket, op->at, op->kind);
    }
    if (!lane->stopped) lane->fold = sim_fold(lane->fold, (uint64_t)op->kind);
}
