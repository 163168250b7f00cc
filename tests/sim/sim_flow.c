/*
 * sim_flow.c: the orchestration that runs a program (sim_program.c), and checks every answer that it gets.
 *
 * Its input is "TICKET|AT|FOLD|RECEIVED|PROGRAM"; its end is "TICKET|FOLD|RECEIVED".
 */
#include "sim_flow.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *sim_path(const sim_lane *lane, const sim_op *op) {
    return dur_format(lane->flow->ctx, "%s@%zu%s", lane->flow->ticket, op->at, lane->mark);
}

const char *sim_child_ticket(const sim_lane *lane, const sim_op *op) {
    return dur_format(lane->flow->ctx, "%s.%zu%s", lane->flow->ticket, op->at, lane->mark);
}

bool sim_stopped(sim_lane *lane, dur_code code) {
    if (code != DUR_ECANCELLED || dur_cancel_reason(lane->flow->ctx) == NULL) return false;
    lane->stopped = true;
    return true;
}

void sim_receive(sim_flow_state *flow, char letter, const char *data) {
    char *rest;
    unsigned long number = strtoul(data + (data[0] != '\0'), &rest, 10);
    const sim_call *call = sim_call_at((uint32_t)number);
    if (data[0] != letter || rest == data + 1 || *rest != '\0' || call == NULL ||
        call->kind != (letter == 'm' ? SIM_CALL_SEND : SIM_CALL_RAISE) ||
        strcmp(call->instance, dur_instance_id(flow->ctx)) != 0)
        sim_fail("flow %s (%s) received \"%s\", which nobody sent to it", flow->ticket, dur_instance_id(flow->ctx),
                 data);
    flow->received = dur_format(flow->ctx, "%s%s,", flow->received, data);
    sim_hint_add(flow->ticket, (uint32_t)number);
}

void sim_expect_echo(sim_lane *lane, const char *path, uint64_t number, dur_code code, const char *value) {
    const char *expected = dur_format(lane->flow->ctx, "%s=%" PRIu64, path, sim_echo(number));
    if (code != DUR_OK || value == NULL || strcmp(value, expected) != 0)
        sim_fail("flow %s: activity %s was answered with %s \"%s\" instead of \"%s\"", lane->flow->ticket, path,
                 dur_code_name(code), value == NULL ? "" : value, expected);
}

bool sim_lane_run(sim_lane *lane, size_t at, size_t end) {
    sim_flow_state *flow = lane->flow;
    size_t next = at;
    for (sim_op op; sim_op_read(flow->program, end, &next, &op);) {
        lane->next = next;
        sim_do(lane, &op);
        if (lane->stopped || op.kind == 'n' || op.kind == 'f') return false;
    }
    return true;
}

static void forget(void *nothing) {
    (void)nothing;
}

static dur_outcome give_up(sim_flow_state *flow, sim_lane *lane) {
    dur_ctx *ctx = flow->ctx;
    const char *value = NULL;
    const char *path = dur_format(ctx, "%s@undo", flow->ticket);
    /* What is scheduled after a cancel works. */
    dur_code code = dur_try(dur_activity(ctx, "Echo", dur_format(ctx, "%s#7", path)), &value);
    sim_expect_echo(lane, path, 7, code, value);
    const char *text = dur_format(ctx, "%s|%" PRIu64 "|%s", flow->ticket, lane->fold, flow->received);
    return lane->fold % 2 == 0 ? dur_complete(ctx, text) : dur_fail(ctx, text);
}

dur_outcome sim_flow(dur_ctx *ctx, const char *input) {
    sim_flow_state *flow = dur_alloc(ctx, sizeof(*flow));
    char *field[5] = { dur_strdup(ctx, input) };
    for (size_t i = 1; i < 5; i++) {
        char *bar = strchr(field[i - 1], '|');
        if (bar == NULL) sim_fail("instance %s has the input \"%s\"", dur_instance_id(ctx), input);
        *bar = '\0';
        field[i] = bar + 1;
    }
    flow->ctx = ctx;
    flow->ticket = field[0];
    flow->received = field[3];
    flow->program = field[4];
    sim_lane *lane = dur_alloc(ctx, sizeof(*lane));
    *lane = (sim_lane){ .flow = flow, .mark = "", .fold = strtoull(field[2], NULL, 10) };
    sim_hint_add(flow->ticket, SIM_NO_MESSAGE);
    dur_on_drop(ctx, forget, NULL);

    size_t size = strlen(flow->program);
    bool whole = sim_lane_run(lane, strtoul(field[1], NULL, 10), size);
    if (lane->stopped || (!whole && dur_cancel_reason(ctx) != NULL)) return give_up(flow, lane);
    const char *text = dur_format(ctx, "%s|%" PRIu64 "|%s", flow->ticket, lane->fold, flow->received);
    if (whole) return dur_complete(ctx, text);
    if (flow->program[lane->next - 2] == 'f') return dur_failf(ctx, "planned %s", text);
    const char *again = dur_format(ctx, "%s|%zu|%" PRIu64 "|%s|%s", flow->ticket, lane->next, lane->fold,
                                   flow->received, flow->program);
    const char *version = lane->fold % 3 == 0 ? "2.0.0" : lane->fold % 3 == 1 ? "1.0.0" : NULL;
    return dur_continue_as_new(ctx, again,
                               .version = strcmp(dur_orchestration_name(ctx), "Flow") == 0 ? version : NULL);
}
