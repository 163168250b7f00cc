/*
 * sim_load.h: the workload's own: programs, handlers, and what the plan decides.
 *
 * A flow is an orchestration that runs a program: a text of operations, made by the plan.  What it computes can be said
 * without running it (sim_program_fold), except for what it receives, which it lists.  Who it is says its ticket: the
 * number of the start call, and for children the ticket of the parent and the place of the call.  So an answer, a
 * message or a result that belongs to somebody else is seen at once, also where an id was used twice.
 */
#ifndef TESTS_SIM_SIM_LOAD_H
#define TESTS_SIM_SIM_LOAD_H

#include "sim_ledger.h"

#include <durite/step.h>

/* ---- programs (sim_program.c) ------------------------------------------------------------------------------------ */

/* One operation: a letter, up to four numbers, and for some a program of its own: "c3:0{a5;t20;}". */
typedef struct sim_op {
    char kind;
    uint32_t n[4];
    const char *body; /* not ended by NUL */
    size_t body_size;
    size_t at; /* where it stands in the whole program */
} sim_op;

/* Read the operation at *next of program[0 … size - 1], and move on.  False: there is none. */
bool sim_op_read(const char *program, size_t size, size_t *next, sim_op *out);
/* A program, by the stream.  depth: how often children may have children. */
void sim_program_make(char *out, size_t size, sim_rng *rng, unsigned depth);
/* One for a crowd: it reads queues, and waits long enough that nobody is saved by a deadline. */
void sim_program_make_for_crowd(char *out, size_t size, sim_rng *rng);
/* What all its operations together compute. */
uint64_t sim_program_fold(const char *program, size_t size);
/* Does it end by a planned failure? */
bool sim_program_fails(const char *program, size_t size);
uint64_t sim_fold(uint64_t fold, uint64_t value);
uint64_t sim_echo(uint64_t number); /* what an activity answers; never 0 */
/* The last "k" before `at` at the top of the program that has this key: its value; 0: none. */
uint32_t sim_program_key(const char *program, size_t at, uint32_t key);

/* ---- names ------------------------------------------------------------------------------------------------------- */

#define SIM_ROOTS 6  /* ids of clients: "r0" … */
#define SIM_SHARED 3 /* ids that clients and parents use beside each other: "s0" … */
#define SIM_OWN 2    /* ids of children that a parent uses again, in its next execution and its next life: "r0-0" … */
#define SIM_QUEUES 2
#define SIM_SESSIONS 2
#define SIM_DROPPED 77 /* of an activity: it is given up in the turn that asks for it, and never leaves */
#define SIM_NO_MESSAGE UINT32_MAX

/* The program that a ticket runs; false: no such start.  *program is cut at *size. */
bool sim_ticket_program(const char *ticket, const char **program, size_t *size);

/* Handlers, one bit each. */
enum {
    SIM_H_FLOW1 = 1u << 0,
    SIM_H_FLOW2 = 1u << 1,
    SIM_H_LEAF = 1u << 2,
    SIM_H_ECHO = 1u << 3,
    SIM_H_FLAKY = 1u << 4,
    SIM_H_SESS = 1u << 5,
    SIM_H_TELL = 1u << 6,
    SIM_H_TAKEN = 1u << 7,
    SIM_H_GPU = 1u << 8, /* serves the tag, and has the activity */
    SIM_H_ALL = (1u << 9) - 1
};
/* A table of these, in static memory until the next call; no more than one node opens at a time. */
const dur_handler *sim_handlers(unsigned mask, bool taken);

dur_activity_fn sim_act_echo, sim_act_flaky, sim_act_sess, sim_act_tell, sim_act_taken;
dur_orchestration_fn sim_flow;

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

typedef struct sim_node_plan {
    unsigned handlers;
    uint32_t parked_max, max_sessions, worker_concurrency, prefetch;
    bool evict_every_turn, double_run, activities_only, stable;
    uint64_t owner_timeout_ms, session_lock_timeout_ms, session_idle_timeout_ms, cancel_grace_ms;
} sim_node_plan;

typedef struct sim_world {
    size_t nodes, clients, admins;
    bool crowd; /* all do something with the same one or two ids, without a pause: races, not scenery */
    sim_node_plan node[5];
} sim_world;

void sim_world_make(sim_world *out, const sim_run *run);
bool sim_crowd(const sim_run *run);

/* ---- actors ------------------------------------------------------------------------------------------------------ */

typedef struct sim_node sim_node;
sim_node *sim_node_open(const sim_seat *seat);
sim_rest sim_node_step(sim_node *node);
void sim_node_close(sim_node *node);
void sim_node_check(sim_node *node);

typedef struct sim_client {
    const sim_run *run;
    size_t number; /* in the plan */
    bool admin;
    bool inside;         /* of a node: its store is that node's */
    dur_provider *store; /* ours; NULL: the run's, or the node's */
    dur_client *client;
    uint64_t wake_ms; /* virtual: no step before */
} sim_client;
sim_client *sim_client_open(const sim_seat *seat, bool admin);
sim_rest sim_client_step(sim_client *self);
void sim_client_close(sim_client *self);
void sim_client_do(sim_client *self, sim_rng *rng);
void sim_admin_do(sim_client *self, sim_rng *rng);
/* An id that a client may mean: one that was started lately, or any. */
void sim_pick_id(char *out, size_t size, sim_rng *rng);
void sim_pick_any(char *out, size_t size, sim_rng *rng);
/* An answer that no call may give. */
void sim_answered(const char *call, const char *instance, int code, const dur_error *err);

/* ---- the judge --------------------------------------------------------------------------------------------------- */

/* What is known of the end of a flow, by its ticket. */
typedef struct sim_end {
    char ticket[SIM_TICKET_MAX];
    char instance[SIM_ID_MAX];
    char text[SIM_TEXT_MAX]; /* "TICKET|FOLD|RECEIVED" */
} sim_end;

typedef struct sim_case {
    const sim_run *run;
    dur_provider *store;
    dur_client *client;
    dur_instance_list *instances;
    dur_dead_letter_list *letters;
    sim_end *ends;
    size_t end_count, end_max;
} sim_case;

void sim_case_open(sim_case *self, const sim_run *run);
void sim_case_close(sim_case *self);
/* Take down an end that was told or is stored; NULL: the text has none.  An end of this ticket that says something
   else: sim_fail. */
const sim_end *sim_case_end(sim_case *self, const char *instance, const char *text);
const sim_end *sim_case_find(const sim_case *self, const char *ticket);
void sim_judge_messages(sim_case *self);
void sim_judge_starts(sim_case *self);
void sim_judge_ends(sim_case *self);
void sim_judge_works(sim_case *self);
bool sim_has_run(const char *path); /* an activity */
void sim_judge_histories(sim_case *self, bool end, bool all_served);

#endif
