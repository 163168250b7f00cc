/*
 * sim_machine.h: the machine's own: what its processes share, and how a turn is handed from one to the other.
 *
 * Everything here lies in one mapping that is made before the first fork.  At any moment one process runs: the one
 * whose turn it is.  So nothing here needs a lock, and whoever runs sees what the one before has written.
 */
#ifndef TESTS_SIM_SIM_MACHINE_H
#define TESTS_SIM_SIM_MACHINE_H

#include "sim.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/types.h>

#define SIM_NEVER UINT64_MAX
#define SIM_TRACE_BYTES (8u << 20)
#define SIM_BACKENDS_MAX 32
#define SIM_BACKEND_UNKNOWN (-1) /* a connection that is being made */
#define SIM_JUDGE SIM_ACTORS_MAX /* its slot */

typedef enum sim_state {
    SIM_ABSENT,   /* no process: not begun, dead, stopped or done */
    SIM_AT_POINT, /* inside a step, or between two */
    SIM_ASLEEP,   /* until its deadline, or a descriptor is ready */
    SIM_BLOCKED,  /* wants a lock that somebody has, or an answer of the server */
    SIM_ENDED,    /* has closed; its process ends */
    SIM_BROKEN    /* sim_fail */
} sim_state;

typedef enum sim_order {
    SIM_GO,
    SIM_STOP,    /* between two steps: close */
    SIM_CHECK,   /* between two steps: sim_check */
    SIM_DIE_LATE /* at once; but what was sent to a server arrives there */
} sim_order;

typedef struct sim_slot {
    _Atomic uint32_t turn; /* a futex: whose turn it is */
    pid_t pid;
    sim_state state;
    sim_order order;                /* obeyed between two steps */
    bool top;                       /* stands between two steps */
    bool alone;                     /* nothing interrupts it, and its sleeps move the clock */
    bool refused;                   /* sim_open has returned NULL */
    bool done;                      /* SIM_DONE, or what the judge has answered */
    uint32_t quantum;               /* points that it passes before it stops */
    uint64_t deadline_ns;           /* asleep: until then */
    uint64_t heard;                 /* the count of changes when it last looked */
    int fault_errno;                /* of the write that fails */
    uint32_t fault_in;              /* which: the n-th from now; 0: none */
    uint32_t fault_count;           /* and how many behind it */
    int backend;                    /* SIM_BLOCKED: the server process that it waits for; 0: another lock */
    int backends[SIM_BACKENDS_MAX]; /* server processes of its connections, newest last */
    size_t backend_count;
    char name[24];
    sim_rng random; /* for getrandom */
    sim_rng pace;   /* how long things take */
} sim_slot;

typedef struct sim_common {
    uint64_t seed;    /* these three stand first: clock/sim_clock.c reads them */
    uint64_t mono_ns; /* moves at each look, at each point, and when everybody sleeps */
    int64_t wall_ns;  /* what the wall clock has beyond that */
    uint64_t changes; /* counts whatever may wake somebody: writes, unlocks, closes */
    uint64_t points;
    uint64_t begin_ns;
    _Atomic uint32_t machine_turn; /* a futex, as in a slot */
    _Atomic uint64_t turns;        /* given so far */
    size_t running;                /* the slot that has got the last one */
    bool stalls;                   /* looks at clocks take long now and then */
    bool failed;
    char failure[2048];
    uint64_t trace_hash;
    bool tracing;
    size_t trace_bytes;
    char trace[SIM_TRACE_BYTES];
    sim_slot slots[SIM_ACTORS_MAX + 1];
    _Alignas(64) unsigned char ledger[SIM_SHARED_BYTES];
} sim_common;

extern sim_common *sim_shared_memory; /* NULL: no run, and libc is libc */
extern sim_slot *sim_me;              /* NULL: the machine itself, and everybody on memory */
extern bool sim_outside;              /* the machine's own calls: libc is libc */

/* ---- sim_libc.c: where an actor stops ---- */

/* A line of the trace, and its hash. */
void sim_trace(const char *who, const char *format, ...) DUR_PRINTF(2, 3);
/* One more point is passed; the actor stops there when its quantum is used up. */
void sim_point(const char *what, long detail);
/* Until one of fds is ready (how many are), the deadline (0), or, between two steps, an order (0). */
int sim_wait(struct pollfd *fds, nfds_t count, uint64_t deadline_ns);
/* On to whoever is next, in this state; returns when it is this actor's turn again. */
void sim_hand_over(sim_state state);
/* It is another's turn: a slot's, or the machine's. */
void sim_turn_give(_Atomic uint32_t *turn);
/* A write, truncate or sync: true, with errno set, if this one is to fail. */
bool sim_write_fails(const char *what);
int sim_real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);

/* ---- sim_wire.c: sockets to a PostgreSQL server, a statement at a time ---- */

bool sim_wire_owns(int fd);
/* Readable for the client: an answer is here.  Moves statements on. */
bool sim_wire_ready(int fd);
/* The server process that has not answered; 0: none. */
int sim_wire_backend(int fd);
void sim_wire_flush_all(void);
void sim_wire_closed(int fd);

/* ---- sim_server.c: the machine's own session with that server ---- */

/* A database of that name; empty, or with a schema that was made before.  *out: its address. */
bool sim_server_open(const char *url, const char *name, bool empty, char *out, size_t room);
bool sim_server_blocked(int backend);
/* A process has ended: until its sessions are gone, or wait for a lock. */
void sim_server_settle(const int *backends, size_t count);
void sim_server_close(const char *name);

/* ---- sim_actor.c: processes ---- */

void sim_actor_spawn(const sim_seat *seat, const sim_part *part);
/* One turn, and those that follow without the machine: all->running is who had the last one.  false: somebody broke a
   promise, crashed, or did not come back. */
bool sim_actor_resume(size_t number, uint32_t quantum);
void sim_actor_kill(size_t number);
void sim_actor_kill_late(size_t number); /* by its own hand, when all that it has sent is with the server */
typedef enum sim_verdict { SIM_JUDGE_QUIET, SIM_JUDGE_SERVED, SIM_JUDGE_DONE, SIM_JUDGE_END } sim_verdict;
/* The judge, from its begin to its end; *answer is what sim_judge_done says. */
bool sim_judge_run(const sim_run *run, sim_verdict what, bool *answer);

/* ---- sim_main.c ---- */

/* The run is over: what it leaves for whoever began it, and the end of its process. */
_Noreturn void sim_run_ended(bool fine);

/* ---- sim_replay.c: a kept trace is a schedule ---- */

typedef enum sim_decided { SIM_DECIDED_NOTHING, SIM_DECIDED_TURN, SIM_DECIDED_WAIT, SIM_DECIDED_TIME } sim_decided;
typedef struct sim_decision {
    sim_decided kind;
    char who[24];    /* TURN; else "-" */
    uint64_t number; /* TURN: points that were passed; TIME: ns since the begin */
    sim_state state; /* TURN: how it came back: at a point, since its points were used up; absent, or asleep */
    uint64_t rng;    /* where the stream of choices stood before */
    uint64_t at_ns;  /* and the clock, since the begin */
} sim_decision;

/* Follow this file; whose seed it is. */
bool sim_replay_open(const char *path, uint64_t *seed);
/* false: there is none to follow, or no more. */
bool sim_replay_next(sim_decision *out);
/* The last one could not be followed.  After many of them in a row the run goes on by its seed. */
void sim_replay_missed(void);
void sim_decision_trace(const sim_decision *made);
/* The trace of a run that has failed, in DURITE_SIM_KEEP or here: the file's name. */
bool sim_trace_keep(char *path, size_t room);

/* ---- sim_schedule.c ---- */

/* A run from its begin to its end; false: it failed, and the reason is in failure. */
bool sim_schedule(sim_run *run);
/* By an actor that stops: the next decision, where it is a turn and nothing else; NULL: the machine is asked. */
sim_slot *sim_schedule_next(void);

#endif
