/*
 * sim_flow.h: a flow and its lanes: the handler and its branches, which run operations beside each other.
 */
#ifndef TESTS_SIM_SIM_FLOW_H
#define TESTS_SIM_SIM_FLOW_H

#include "sim_load.h"

typedef struct sim_flow_state {
    dur_ctx *ctx;
    const char *ticket;
    const char *program;
    const char *received; /* "m3,e7,": in the order in which the flow got them */
} sim_flow_state;

typedef struct sim_lane {
    sim_flow_state *flow;
    const char *mark; /* "" for the handler, "x" and "y" for two branches */
    uint64_t fold;
    bool stopped;                  /* cancelled */
    size_t at, end;                /* of a branch */
    size_t next;                   /* behind the operation that is done */
    const struct sim_lane *before; /* the branch that was spawned before this one; NULL: none */
    bool begun;
} sim_lane;

/* Run program[at … end - 1].  False: not to its end. */
bool sim_lane_run(sim_lane *lane, size_t at, size_t end);
/* One operation, waited for, checked and folded. */
void sim_do(sim_lane *lane, const sim_op *op);
void sim_do_family(sim_lane *lane, const sim_op *op); /* children, starts, sagas, keys … */

const char *sim_path(const sim_lane *lane, const sim_op *op);
const char *sim_child_ticket(const sim_lane *lane, const sim_op *op);
/* Was this the instance's own cancellation?  Then the lane ends here. */
bool sim_stopped(sim_lane *lane, dur_code code);
void sim_receive(sim_flow_state *flow, char letter, const char *data);
void sim_expect_echo(sim_lane *lane, const char *path, uint64_t number, dur_code code, const char *value);

#endif
