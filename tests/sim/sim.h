/*
 * sim.h: the two halves of the simulator, and what they owe each other.
 *
 * The machine (sim_main.c, sim_schedule.c, sim_actor.c, sim_libc.c, sim_wire.c) runs actors, one at a time, under a
 * seed: who goes on, when time passes, who freezes, dies, or meets an error.  It knows nothing of orchestrations.
 * The workload (sim_plan.c, sim_flow.c, sim_node.c, sim_client.c, sim_ledger.c, sim_judge.c) says what actors do and
 * what must hold.  It knows nothing of scheduling, and uses public headers only.
 *
 * On SQLite and PostgreSQL each actor is a process without threads.  It stops wherever it calls libc for a wait, a
 * lock, a write or a statement (sim_libc.c stands in front of libc), and goes on when the machine says so.  On memory
 * all actors live in one process, and a step is never interrupted.  In both cases clocks and randomness are the
 * machine's: clock_gettime, time and getrandom answer by the seed, in the library, in SQLite and in libpq alike.
 */
#ifndef TESTS_SIM_SIM_H
#define TESTS_SIM_SIM_H

#include <durite/durite.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- choices: every one from a stream that the seed begins ------------------------------------------------------- */

typedef struct sim_rng {
    uint64_t state;
} sim_rng;

/* A stream of its own for each purpose, so that a new choice in one place moves none in another. */
sim_rng sim_stream(uint64_t seed, const char *purpose, uint64_t number);
uint64_t sim_next(sim_rng *rng);
uint64_t sim_below(sim_rng *rng, uint64_t bound);                /* 0 … bound - 1; bound > 0 */
uint64_t sim_between(sim_rng *rng, uint64_t low, uint64_t high); /* both included */
bool sim_chance(sim_rng *rng, unsigned percent);

/* ---- one run ----------------------------------------------------------------------------------------------------- */

typedef enum sim_store { SIM_MEMORY, SIM_SQLITE, SIM_POSTGRES } sim_store;

#define SIM_ACTORS_MAX 16
#define SIM_SHARED_BYTES (4u << 20)

typedef struct sim_run {
    uint64_t seed;
    sim_store store;
    const char *url;        /* every actor opens it; on memory: */
    dur_provider *provider; /* the one store, which actors use and do not close; else NULL */
    void *shared;           /* SIM_SHARED_BYTES, zeroed when the run begins, the same memory in every process: the
                               workload's ledger.  An actor may be killed between any two stores into it */
    bool calm;              /* no faults in this run: stricter promises hold (each activity runs once, …) */
} sim_run;

/* Virtual wall clock, as clock_gettime tells it; a call does not move it.  A jump of the wall clock is a fault. */
uint64_t sim_now_ms(void);
/* A line of the trace, by whoever runs. */
void sim_note(const char *format, ...) DUR_PRINTF(1, 2);
/* A promise was broken: the run ends here, as failed.  Does not return. */
_Noreturn void sim_fail(const char *format, ...) DUR_PRINTF(1, 2);

/* ---- the workload, called by the machine ------------------------------------------------------------------------- */

typedef enum sim_role { SIM_NODE, SIM_CLIENT } sim_role; /* administrators are clients */

typedef struct sim_part {
    sim_role role;
    char name[24]; /* "node1", "client2", "admin1": in the trace */
} sim_part;

/* Who takes part in this run, the same at each call: a function of the seed.  How many. */
size_t sim_plan(const sim_run *run, sim_part parts[SIM_ACTORS_MAX]);

/* Who an actor is. */
typedef struct sim_seat {
    const sim_run *run;
    size_t number; /* in the plan */
    unsigned life; /* from 0; one more after each death, stop or end */
    bool finale;   /* faults are over.  Nodes open with every handler and their defaults from here on */
} sim_seat;

/* What an actor wants after a step. */
typedef struct sim_rest {
    enum { SIM_MORE, SIM_SLEEP, SIM_DONE } want;
    uint64_t ms; /* SIM_SLEEP: at most so long */
    int fd;      /* … or until it is readable; -1: none */
} sim_rest;

/*
 * An actor's life: open, steps, close (a clean stop).  In a process of its own, or, on memory, in the one process.  A
 * node is a runtime without threads (DUR_THREADS_NONE): a step is dur_runtime_step(…, 0, …), and it sleeps by
 * dur_runtime_next_ms and dur_runtime_fd.  A client's step is its next call; it must remember in the ledger what it has
 * begun before the call, and how the call was answered behind it: a client that dies in between does not know.
 * A client that is done does not step again.  On memory a client never waits inside a call (no timeouts above 0).
 * open returns NULL if the store refuses (the machine tries again later, as another life).
 */
void *sim_open(const sim_seat *seat);
sim_rest sim_step(void *self);
void sim_close(void *self);
/* A node, at a quiet point: dur_runtime_check.  Breaks: sim_fail. */
void sim_check(void *self);

/*
 * The judge: a process of its own (memory: inline), which nothing interrupts.
 * quiet: every living actor sleeps, and nothing is due.  What may not be so at such a moment: dur_provider_check, and
 * the ledger: nothing that was accepted and could be delivered now waits.  all_served: every handler of the plan is on
 * a living node that is neither frozen nor stopped; otherwise what waits may wait for a node.
 * done: in the finale: has everything ended that can end by itself?  (The machine moves time on until it has.)
 * end: behind that: the ledger as a whole: nothing lost, nothing twice, in order, results as computed, histories
 * replay.
 */
void sim_judge_quiet(const sim_run *run, bool all_served);
bool sim_judge_done(const sim_run *run);
void sim_judge_end(const sim_run *run);
/* For a report: what the ledger says of the run, on standard output, a few lines. */
void sim_judge_tell(const sim_run *run);

/* Is every handler of the plan on one of these nodes?  living[number of part]. */
bool sim_all_served(const sim_run *run, const bool living[SIM_ACTORS_MAX]);

#endif
