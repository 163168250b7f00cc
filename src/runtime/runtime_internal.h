/*
 * runtime_internal.h: what the files of src/runtime share.
 *
 * Who touches what:
 *   - a dur__loop, its instances and its pools: only the loop's own thread, except `done` (any worker pushes).
 *   - a dur__lookout: see its states; its mutex is taken alone.
 *   - a dur__inside: under its mutex, which is taken before the two below and held over what gives starts back, and
 * lane_close.
 *   - dur__work (local queue, running activities, sessions): under its mutex.
 *   - a dur__task belongs to one place at a time: a loop's pool or commit, the local queue, a worker, a loop's `done`
 *     list, a loop's acks.  Flags that others raise (cancelled) are atomic.
 *   - everything else in dur_runtime is constant after start, or atomic, or under `mutex`.
 * Lock order: work.mutex, then runtime.mutex; neither is held over a call of the store, the log or user code.
 */
#ifndef DURITE_RUNTIME_INTERNAL_H
#define DURITE_RUNTIME_INTERNAL_H

#include "base/assert.h"
#include "base/bell.h"
#include "base/buf.h"
#include "base/drive.h"
#include "base/list.h"
#include "base/map.h"
#include "base/thread.h"
#include "client/names.h"
#include "core/parent.h"
#include "obs/log_internal.h"
#include "obs/metrics_internal.h"
#include "provider/provider_internal.h"
#include "provider/starts.h"
#include "replay/replay.h"
#include "runtime/registry_internal.h"
#include <durite/activity.h>
#include <durite/runtime.h>
#include <durite/step.h>
#include <durite/sys/clock.h>
#include <durite/sys/store.h>
#include <durite/sys/waker.h>
#include <stdatomic.h>

typedef struct dur__loop dur__loop;
typedef struct dur__inst dur__inst;
typedef struct dur__task dur__task;
typedef struct dur__lookout dur__lookout;
typedef struct dur__worker dur__worker;

/* ---- letters: arrivals on their way to a handler ---- */

typedef struct dur__letter {
    dur__arrival arrival; /* arrival.link also links it in inboxes and pools; arrival.cookie is the letter */
    dur_arena *arena;     /* its texts (messages); NULL: the task's */
    uint64_t message_id;  /* 0: not from the queue */
    dur__task *task;      /* the activity whose end it is, or NULL */
} dur__letter;

/* ---- activities on this node ---- */

#define DUR__WAITS_LONG_US UINT64_C(100000) /* unstarted work is for the others after this (L9) */

typedef enum dur__task_state {
    DUR__TASK_IDLE,     /* in a pool or a commit */
    DUR__TASK_QUEUED,   /* in the local queue */
    DUR__TASK_RUNNING,  /* a worker is inside it */
    DUR__TASK_DONE,     /* on its way to a loop, or there */
    DUR__TASK_ABANDONED /* its worker never came back in time; result ignored */
} dur__task_state;

typedef struct dur__kept_text dur__kept_text;

struct dur__task {
    dur__link link; /* queue, running, acks or pool */
    dur__task *next_done;
    dur__letter letter; /* its completion */
    dur_arena *arena;   /* everything below, what the activity allocates and its result */
    dur_runtime *runtime;
    dur__loop *loop;     /* whom the completion goes to */
    dur__inst *inst;     /* registered in inst->tasks (loop's thread only) */
    atomic_uint holders; /* the place that it belongs to, and inst->tasks: an abandoned one ends beside its instance */
    uint64_t serial;     /* never reused */
    uint32_t epoch;      /* owner under whose id the row is locked */
    dur_activity_ref ref;
    const char *token;
    dur_work_item item; /* ActivityExecute */
    uint32_t delivery;
    uint64_t alone;              /* its ticket at the gate; 0: it never had one, or it is back */
    bool has_session;            /* counted in work.sessions */
    bool row_gone;               /* loop: cancelled or lost; the completion is dropped */
    bool dropping;               /* loop, while a commit is built: the same turn deletes the row */
    bool routed;                 /* it has changed loops once */
    bool ack_bare;               /* ack without a completion */
    atomic_bool local;           /* it has no row: its instance's lease is all that speaks for it (local.c) */
    const dur__handler *handler; /* NULL: built in */
    atomic_int state;
    atomic_bool cancelled;
    atomic_bool told; /* it has asked, and knows that it is cancelled */
    bool stopped;     /* under work.mutex: cancelled by a stop alone, and wanted as ever */
    bool overdue;     /* under work.mutex: it has not come back in time, which was said and counted */
    bool unanswered;  /* stopped and told: what it returned then says nothing, and another node runs it again */
    uint64_t queued_at_us, started_at_us, cancelled_at_us; /* monotonic */
    dur__bell cancel_bell;                                 /* none yet, or what cancelling rings; under work.mutex */
    struct dur_act *act;                                   /* taken by the host: what it has in hand, and … */
    dur__worker *host;                                     /* … on whose account */
    struct dur_client *client;
    struct sqlite3 *sqlite;
    const char *worker_id;
    char *key, *attempt_key;    /* made when they are asked for */
    dur__kept_text *kept_texts; /* outcomes for which the arena had no memory (activity.c) */
    uint64_t ack_retry_at_us;   /* of an ack, or of giving it back */
    uint32_t ack_tries;
    struct {
        uint64_t delay_ms;
        bool ignore_attempt;
        const char *reason; /* it becomes a dead letter; NULL: it is abandoned */
    } back;                 /* in loop->backs */
};

struct dur__worker {
    dur__link link; /* work.workers */
    dur__thread thread;
    bool hosts; /* it has no thread: the host has taken the task, or the step runs it */
    dur_runtime *runtime;
    dur__task *task; /* running; under work.mutex */
    bool exited, left_behind;
    unsigned index;
    char id[96];
    dur__reserve reserve; /* whole when an activity begins: what its end needs */
    dur__cover cover;
};

/* Why a node takes no more work. */
typedef enum dur__full {
    DUR__FULL_NOT,     /* it takes some */
    DUR__FULL_LONG,    /* its slots are full of activities that run long, and others could run what waits */
    DUR__FULL_OVERDUE, /* each slot has an activity that does not end although it was cancelled */
} dur__full;

typedef struct dur__work {
    dur__mutex mutex;
    dur__cond changed; /* tasks to take, or the end */
    dur__link queue;   /* to be started, oldest first */
    dur__link taken;   /* the same, for the host to take */
    dur__link blocked; /* their session is busy, or too many are: they wait for an activity of one to end here */
    dur__link running;
    dur__link workers;
    size_t queued, taken_count, blocked_count, running_count, reserved, idle, abandoned, waking;
    size_t worker_serial;
    size_t threads;          /* in `workers`, those that the host lends left out */
    dur__link leaving;       /* workers whose threads have ended, or are about to: to be joined */
    size_t leave;            /* so many idle ones may go */
    size_t idle_least;       /* since the keeper looked last */
    uint64_t run_us;         /* how long activities have run lately, on the average */
    uint64_t grow_at_us;     /* no thread is started before: the last one could not be */
    uint64_t finished_at_us; /* when an activity has last ended here */
    size_t withheld;         /* so much of the prefetch is not used: what waited here waited too long (work_queue.c) */
    dur__full full_said;     /* the keeper's alone, as is … */
    uint64_t full_said_us;   /* … when */
    atomic_size_t in_hand;   /* taken by a worker and not yet with a loop */
    dur__map sessions;       /* names */
    size_t session_count;
    uint64_t batch_at_us;
    bool closed;            /* no worker begins another activity … */
    bool exit;              /* … and those that have none end */
    dur__cond idle_changed; /* for stop: something has ended */
} dur__work;

/* ---- instances ---- */

typedef enum dur__inst_state {
    DUR__INST_ACQUIRED,   /* fetched, not looked at */
    DUR__INST_READY,      /* in loop->ready: has a live handler and something to take */
    DUR__INST_COMMITTING, /* in loop->commits: its turn is on the way */
    DUR__INST_PARKED,     /* in loop->parked: waits on its stack */
    DUR__INST_LEAVING,    /* in loop->commits: no handler any more, the lease goes back with this commit */
    DUR__INST_GONE,
    DUR__INST_STATES
} dur__inst_state;

typedef struct dur__rerun dur__rerun;

struct dur__inst {
    dur__link link;
    dur__loop *loop;
    dur__inst_state state;
    char *id;
    char *token;
    uint64_t store_key;
    uint64_t execution_id;
    const dur__handler *handler;
    dur__exec *exec;
    size_t bytes;       /* as counted in loop->parked_bytes */
    dur__parent parent; /* its text is ours */
    uint64_t birth;
    bool first_turn;        /* its commit makes the instance's row */
    bool uncommitted;       /* acquired, nothing committed since (L6) */
    uint64_t unborn;        /* its start is not in the store: the first turn writes it (unborn.c); 0: it is */
    uint64_t alone;         /* its ticket at the gate, until it has committed; 0: none */
    bool queue_gap;         /* the store has queue messages that it was not given: read them when a dequeue waits */
    bool again;             /* more can be taken as soon as the turn is committed */
    bool abandons;          /* LEAVING by abandon_orchestration_item: a commit would clear the count */
    bool leaves;            /* the commit at hand gives the lease back */
    bool starving;          /* in loop->starving: its queue could not be read */
    bool renewed;           /* in runtime->renewals */
    dur__link inbox;        /* letters that came while a turn was out */
    dur__link strays;       /* starts for an instance that exists: consumed with the next commit */
    dur__link drained;      /* letters that the commit at hand consumes beside the turn's own */
    dur__map tasks;         /* schedule id → dur__task of this execution on this node */
    dur__link ends;         /* letters of local activities that came while there was no handler */
    bool asked;             /* somebody wants the lease to be given up when the commit at hand is answered */
    bool sharing;           /* the commit at hand writes rows of local activities, and keeps the lease */
    dur__task **converting; /* the last worker items of the commit at hand are theirs */
    size_t converting_count;
    dur_arena *recover_arena; /* NULL: nothing; else … */
    dur_turn_work *recover;   /* … what was local under an earlier lease, for the next commit to write */
    size_t recover_count;
    dur_turn_commit *commit;
    dur_arena *commit_arena;
    dur__task **eager; /* by worker item; NULL where not asked */
    size_t eager_count;
    uint32_t tries;
    size_t granted;    /* rooms in the local queue that the turn being built has and has no task for */
    bool reread;       /* what came for it could not be kept: it is replayed when the commit at hand is answered */
    uint32_t restarts; /* in a row without a commit */
    uint64_t retry_at_us;
    bool unknown;      /* the outcome of the last try was not learned */
    bool doubted;      /* … or that of an earlier one of this commit: it may have happened since it was looked for */
    bool contested;    /* refused for its position then, perhaps because that try has happened */
    dur__rerun *rerun; /* double run */
};

/* ---- loops ---- */

/* A thread that waits in the store's fetch while its loop sleeps: stores without wake-ups.  Two of each loop. */
#define DUR__LOOKOUTS 2

typedef enum dur__lookout_state {
    DUR__LOOKOUT_IDLE,   /* the loop looks itself */
    DUR__LOOKOUT_WANTED, /* the loop sleeps */
    DUR__LOOKOUT_FOUND,  /* item or work is there for the loop's next round */
    DUR__LOOKOUT_TAKING  /* that round is on its way: item, work and arena are the loop's to read */
} dur__lookout_state;

struct dur__lookout {
    dur__loop *loop;
    bool for_work, started;
    dur__thread thread;
    dur__mutex mutex; /* guards state, exit and until_us; taken alone */
    dur__cond changed;
    dur__lookout_state state;
    bool exit;
    uint64_t until_us; /* FOUND: then it goes back */
    uint32_t failures; /* in a row */
    dur_arena *arena;  /* of what it has found */
    dur_orchestration_item item;
    dur_leased_work work;
};

/* The user code that a loop is inside of: stuck.c. */
typedef struct dur__inside {
    dur__mutex mutex;
    dur__inst *inst; /* NULL: none */
    uint64_t since_us, warn_at_us;
    dur__guest guest;
    bool left_behind; /* a stop did not wait for it: the loop has no lane, nothing of it is committed any more */
} dur__inside;

struct dur__loop {
    dur_runtime *runtime;
    unsigned index;
    dur__thread thread;
    bool started;
    bool ended; /* its thread has; under work.mutex */
    dur__inside inside;
    dur_waker *waker;
    dur_lane *lane;
    bool fallback; /* a store without lanes */
    dur__lookout lookouts[DUR__LOOKOUTS];
    uint32_t epoch;
    const char *owner;
    dur__stacks *stacks;
    dur_arena *arena;         /* of one round */
    dur__taker taker;         /* of starts that nobody has written … */
    dur__start_taken *unborn; /* … and room for them */
    bool others_wait;         /* the last fetch has found as many as it may take, or there was none yet */
    dur__map instances;
    dur__link ready, commits, parked, starving;
    dur__link restarts;   /* leased, and their handlers are to be replayed: at the end of the round, or later */
    dur__reserve reserve; /* every pass begins with it whole: what a pass has begun needs no memory to be ended */
    dur__cover cover;
    uint32_t shortages; /* of memory, in a row */
    size_t parked_count;
    uint64_t starving_until_us;
    uint64_t parked_bytes;
    dur__link acks;
    dur__link backs;                   /* tasks that this node cannot keep, until the store has taken them back */
    dur__link hand_out;                /* tasks locked by this round, pushed together */
    size_t hand_out_count, handed_out; /* waiting; given to workers by this round */
    _Atomic(dur__task *) done;         /* workers push here, newest first */
    atomic_bool asleep;                /* or about to: a finished task must wake it */
    atomic_bool rests;                 /* … and so must a start */
    size_t expected;                   /* handed out by the last commit and not yet back: the gather rule */
    dur__link free_tasks, free_letters;
    size_t free_task_count, free_letter_count;
    dur_arena **free_arenas;
    size_t free_arena_count, free_arena_room;
    uint64_t now_ms;
    uint64_t seen_id, seen_now_ms, next_due_ms;
    uint64_t arrival_serial, token_serial, token_prefix;
    uint32_t failures; /* rounds in a row */
    uint64_t retry_at_us;
    uint64_t pause_us;     /* FENCED, NO_OWNER: before the next pass */
    uint64_t rest_at_us;   /* when dur__loop_rest began */
    bool rest_endless;     /* nothing is due, however long it rests */
    bool look_instances;   /* something may be there to acquire */
    bool look_work;        /* … to take from the shared queue */
    bool sessions_skipped; /* the last look at the shared queue left sessions out: too many are in use here */
    bool owed_look;        /* woken by a completion, perhaps by something else too: look soon */
    bool news;             /* the last wait ended for a reason that is not known */
    uint32_t suspect_instance, suspect_work; /* may be there to take, as the last look has told (dur_round); 0: none */
    bool suspect_work_known;                 /* a look at the shared queue has told: until then no order is known */
    bool suspect_last;                       /* the last fetch was for one: the others first */
    bool work_waiting_long;
    bool suspect_instances_none, suspect_work_none; /* what was told was not there; until the next news */
    bool stale;                                     /* waits for a new owner id */
    bool settles;                                   /* of the last round, as in dur_round */
    bool gathered;                                  /* a completion has come since the last commit */
    uint32_t local_takes, empty_looks;
    uint32_t work_doublings;          /* of what it asks for, one each time that it got all of it */
    uint64_t handed_at_us, return_us; /* when the last tasks went out, 0: one is back; how long that takes */
    uint32_t gathers_in_vain;         /* so many in a row saw no completion */
    size_t told;                      /* clients whom the last round has told of an end, and … */
    uint64_t told_at_us;              /* … when */
    uint32_t starts_in_vain;          /* so often in a row none of them has started another */
    uint64_t last_return_us;
    atomic_bool quiet; /* draining: nothing is left to run or commit */
    atomic_bool asked; /* dur_runtime_check wants to know what it has */
};

/* What the loops know, for dur_runtime_check.  `one` is held by the one that asks. */
typedef struct dur__census {
    dur__mutex one, mutex;
    dur__cond answered;
    size_t waiting;   /* loops that have not answered */
    dur__map known;   /* tokens … */
    dur__map parked;  /* … of leases of instances that only wait: token → instance … */
    dur_arena *arena; /* … and their texts */
} dur__census;

/* ---- the keeper ---- */

typedef struct dur__keeper_times {
    uint64_t beat, let_go, rows, instances, sessions, cleanup, unserved, going, shrink; /* next, monotonic µs */
    uint32_t beats_failed, let_goes_failed;
    bool sessions_seen;
} dur__keeper_times;

/* ---- a runtime without threads: step.c; its thread's alone, except `on` ---- */

typedef struct dur__stepped {
    bool on;
    dur__thread home;
    dur__driver driver;
    bool driving;          /* in the driver's list */
    bool in_pass;          /* user code of a handler is no moment for another pass */
    bool resting;          /* the lane rests: */
    dur_rest rest;         /* what the host may sleep on … */
    uint64_t due_us;       /* … and until when; not resting: not before */
    uint64_t keeper_us;    /* the keeper's next */
    int pollset;           /* 0: nobody has asked for a descriptor */
    uint32_t idle_in_vain; /* rests in a row that could not begin, although nothing was done */
    dur__worker worker;    /* activities that run inside a step */
    dur_host_fn *host;     /* what the host does while calls of its thread wait; NULL: nothing */
    void *host_data;
    uint64_t host_us; /* when the host has something to do again */
    uint64_t work_us; /* there was no memory to begin an activity: not before */
} dur__stepped;

/* ---- the runtime ---- */

typedef enum dur__phase { DUR__PHASE_RUN, DUR__PHASE_DRAIN, DUR__PHASE_RELEASE } dur__phase;

#define DUR__COUNT(runtime_, name_) dur__count(&(runtime_)->counters.name_, 1)
#define DUR__COUNT_N(runtime_, name_, n_) dur__count(&(runtime_)->counters.name_, (n_))

enum { DUR__TIMES_BYTES = 64 };

/* Trouble that comes again and again, with whatever is asked of the store meanwhile (backoff.c). */
typedef struct dur__said {
    int code;
    uint64_t last_us; /* when it came last; 0: never */
    uint64_t next_us; /* when it is said next … */
    uint64_t step_us; /* … and how long after that again */
    uint64_t unsaid;  /* how often it came since it was said */
} dur__said;

struct dur_runtime {
    atomic_uint references; /* the host's, one per thread that may be left behind */
    uint64_t process;
    dur_runtime_options options; /* defaults filled in, texts are ours */
    char **owned;                /* texts of options */
    size_t owned_count;
    dur_provider *store;
    dur_registry *registries[2];
    size_t registry_count;
    const dur_world *world;
    bool fake_time; /* which others move while we sleep: look often */
    bool has_owners;
    dur_version_range versions;
    dur_capability_filter filter;
    dur_tag_filter tag_filter;
    dur_handler_filter handlers;   /* orchestrations that it runs (fleet.c) */
    dur_handler_filter activities; /* and activities, the built-in ones among them */
    dur_arena *fleet_arena;        /* their keys */
    dur__names names;              /* … for whoever misspells one */
    dur__map unserved;             /* what no node had at the last look; the keeper's alone */
    struct dur__going *going;      /* what clients have made stand still (going.c); the keeper's alone */
    char *going_after;             /* … where the next look goes on; NULL: at the beginning */
    size_t tag_count;

    dur__mutex mutex;
    dur__cond changed; /* phase, keeper's alarm */
    char **owner_ids;  /* all that this runtime had; the last is current.  Under mutex */
    size_t owner_id_count;
    _Atomic(const char *) owner;
    char session_owner_own[64]; /* stores without owners */
    atomic_uint epoch;          /* grows when the owner id changes */
    atomic_int phase;
    atomic_uint_fast64_t beat_boot_ms; /* last beat that got through */
    uint64_t refusal_told_ms;          /* boot time of the last line about a take-over that is refused; keeper only */
    uint64_t first_beat_us;            /* when the keeper is to begin with them, monotonic */
    atomic_uint peers;
    atomic_bool crash_hint;                /* a dead owner's work was set free */
    atomic_uint_fast64_t careful_until_us; /* an owner died not long ago: starts are written before they run */
    atomic_bool owner_stale;               /* the store may hold leases of ours that we do not know of */
    bool keeper_kicked, keeper_exit;       /* under mutex */
    bool stopped;                          /* under mutex: threads that were left behind may put their loops away */
    atomic_uint_fast64_t release_until_us;

    dur__loop *loops;
    size_t loop_count;
    dur__map directory; /* instance → loop, with several loops; under mutex */
    dur__work work;
    dur__thread keeper;
    bool keeper_started;
    dur__keeper_times keeper_next; /* the keeper's alone, as is … */
    dur_arena *keeper_arena;
    dur__reserve keeper_reserve;
    dur__reserve stop_reserve; /* a stop cannot be refused */
    dur__stepped stepped;
    atomic_uint_fast64_t task_serial;
    dur__map renewals;     /* token → text, stores without owners; under mutex */
    dur__map unregistered; /* name → backoff state; under mutex */
    dur__said said_round;  /* trouble with the store; under mutex … */
    dur__said said_turn;   /* … what it means for turns … */
    dur__said said_owner;  /* … for the owner's id … */
    dur__said said_beat;   /* … and for its signs of life */
    dur__metrics counters;
    dur__census census;
};

/* runtime.c */
const char *dur__runtime_session_owner(dur_runtime *runtime, const char *owner); /* owner: the lane's, or NULL */
const dur__handler *dur__runtime_find(dur_runtime *runtime, dur_handler_kind kind, const char *name,
                                      const char *version);
void dur__runtime_release(dur_runtime *runtime);       /* one reference */
extern _Thread_local dur_runtime *dur__runtime_inside; /* the runtime whose thread this is */
/* This is a child of the process that has started it, where nobody runs anything of it and nothing may be written. */
static inline bool dur__runtime_forked(const dur_runtime *runtime) {
    return runtime->process != dur__process_serial();
}

static inline dur__phase dur__runtime_phase(dur_runtime *runtime) {
    return (dur__phase)atomic_load(&runtime->phase);
}

/* fleet.c */
void dur__fleet_take(dur_runtime *runtime); /* after the registries: what this runtime has */
void dur__fleet_free(dur_runtime *runtime);
/* Keeper: what no node has; true: a session is to move. */
bool dur__fleet_look(dur_runtime *runtime, dur_arena *arena);

/* going.c: end what a client was about to end or to delete when it died */
void dur__going_look(dur_runtime *runtime, dur_arena *arena);
void dur__going_free(dur_runtime *runtime);
static inline bool dur__fleet_runs(const dur_runtime *runtime) {
    return runtime->handlers.count > 0;
}

/* options.c */
int dur__options_take(dur_runtime *runtime, const dur_runtime_options *given, dur_error *err);
void dur__options_free(dur_runtime *runtime);

/* loop.c */
/* One pass does what there is to do, and never sleeps: a thread that calls it does so in between (dur__loop_main), a
   host by itself (step.c). */
typedef enum dur__pass {
    DUR__PASS_MORE,      /* call it again */
    DUR__PASS_IDLE,      /* nothing to do until something comes */
    DUR__PASS_FENCED,    /* not until it has beaten: pause_us */
    DUR__PASS_NO_OWNER,  /* not until there is a new owner id: pause_us */
    DUR__PASS_NO_MEMORY, /* not until there is some: pause_us */
    DUR__PASS_ENDED      /* released, or left behind */
} dur__pass;
dur__pass dur__loop_pass(dur__loop *loop);
/* Behind IDLE: what the host may sleep on.  False: something has come, call pass.  Then, behind the sleep: has it? */
bool dur__loop_rest(dur__loop *loop, dur_rest *out);
bool dur__loop_rise(dur__loop *loop, const dur_rest *slept);
void dur__loop_drop(dur__loop *loop);
int dur__loop_open(dur__loop *loop, dur_runtime *runtime, unsigned index, dur_error *err);
void dur__loop_main(void *loop);
void dur__loop_close(dur__loop *loop);
void dur__loop_done(dur__loop *loop, dur__task *task); /* any thread: the activity has ended */
void dur__loop_take_done(dur__loop *loop);
void dur__loop_run_ready(dur__loop *loop);
void dur__loop_make_ready(dur__loop *loop, dur__inst *inst);
void dur__loop_queue_commit(dur__inst *inst); /* COMMITTING with a handler, LEAVING without */

/* With inside.mutex, its thread inside user code for good: what others wait for is given back, the lane is closed. */
void dur__loop_disown(dur__loop *loop);

/* stuck.c: around everything that runs user code on a loop's thread, and around nothing that asks the store */
void dur__user_enter(dur__inst *inst);
void dur__user_leave(dur__inst *inst);
void dur__stuck_warn(dur_runtime *runtime);                     /* the keeper: of those that are slow */
bool dur__stuck_leave_behind(dur__loop *loop, dur__buf *names); /* false: it is not inside user code */

/* lookout.c: nothing of it does anything on a store with lanes */
int dur__lookouts_start(dur__loop *loop); /* before the loop's own thread; 0, or an errno */
/* Before a round: what was found is handed to it, and lives until the next call of this or the next sleep. */
void dur__lookouts_offer(dur__loop *loop);
void dur__lookouts_sleep(dur__loop *loop, bool look); /* the loop sleeps; look: in its place */
void dur__lookouts_stop(dur__loop *loop);             /* any thread: no fetch begins after this */
void dur__lookouts_close(dur__loop *loop); /* the loop has ended: wait for the last fetch; what it brings goes back */

/* round.c */
bool dur__round_due(dur__loop *loop, uint64_t now_us);
void dur__round(dur__loop *loop);
uint64_t dur__round_next_us(dur__loop *loop, uint64_t now_us); /* how long nothing has to be submitted again */

/* route.c: where completions and taken work go */
void dur__route_completion(dur__loop *loop, dur__task *task);
void dur__route_work(dur__loop *loop, const dur_leased_work *work, uint64_t alone); /* alone: its ticket, or 0 */
void dur__route_hand_out(dur__loop *loop);
uint64_t dur__route_backs(dur__loop *loop, uint64_t now_us);    /* those that are due; when the next is, UINT64_MAX */
void dur__route_give_back(dur__loop *loop, uint64_t waited_us); /* tasks that waited so long unstarted */
void dur__route_acked(dur__loop *loop, dur__task *task, const dur_error *answer);

/* pool.c: tasks, letters and arenas of a loop */
dur_arena *dur__pool_arena(dur__loop *loop);
void dur__pool_arena_back(dur__loop *loop, dur_arena *arena);
dur__letter *dur__pool_letter(dur__loop *loop);
void dur__pool_letter_back(dur__loop *loop, dur__letter *letter); /* a task's letter gives the task back */
dur__task *dur__pool_task(dur__loop *loop);
void dur__pool_task_back(dur__loop *loop, dur__task *task);
void dur__task_leave(dur__task *task); /* any thread: one who held it does not look at it any more */
void dur__pool_free(dur__loop *loop);

/* instance.c */
dur__inst *dur__inst_new(dur__loop *loop, const dur_orchestration_item *item);
void dur__inst_move(dur__inst *inst, dur__inst_state to);
void dur__inst_receive(dur__inst *inst, dur__letter *letter); /* an arrival or stray for a live instance */
void dur__inst_drop_exec(dur__inst *inst);                    /* end the handler; completions go through the queue */
void dur__inst_free(dur__inst *inst);                         /* and forget it */
void dur__inst_forget_parent(dur__inst *inst);
void dur__inst_return_letter(dur__loop *loop,
                             dur__letter *letter);            /* not consumed: a completion goes through the queue */
void dur__inst_step(dur__inst *inst);                         /* READY: run, then commit, park or break */
void dur__inst_ran(const dur__inst *inst, uint64_t begin_us); /* its handler, since then: too long is logged */
void dur__inst_settle(dur__inst *inst);                       /* after a commit: offer what came, go on or park */
void dur__inst_attach(dur__inst *inst, dur__task *task);
void dur__inst_detach(dur__task *task); /* from its instance, if it has one */
void dur__inst_broken(dur__inst *inst, int code, const dur_error *why);
void dur__inst_committed_once(dur__inst *inst); /* clears `uncommitted` at the gate */
dur__exec *dur__inst_exec_new(dur__inst *inst, const dur_key_value *kv, size_t kv_count);

/* local.c */
struct dur__open_work;
bool dur__local_any(const dur__inst *inst);
void dur__local_rows(dur__inst *inst); /* its commit is complete: the rows that it has to write beside its own */
void dur__local_written(dur__inst *inst);
void dur__local_learn(dur__inst *inst); /* the lease is gone: by the commit at hand? */
void dur__local_end(dur__loop *loop, dur__task *task);
void dur__local_return(dur__loop *loop, dur__task *task);
void dur__local_offer(dur__inst *inst);
void dur__local_forget(dur__inst *inst); /* all tasks of it: local ones are told */
void dur__local_share(dur__loop *loop, uint64_t waited_us);
/* open: what is open in the item's history, less the completions among its messages. */
void dur__local_recover(dur__inst *inst, struct dur__open_work *open, const dur_orchestration_item *item,
                        const dur_event *started);

/* unborn.c */
size_t dur__unborn_take(dur__loop *loop); /* starts of this process: how many; some may be ready to run */
void dur__unborn_born(dur__inst *inst, const dur_turn_commit *answer);
void dur__unborn_failed(dur__inst *inst, const dur_error *err);
void dur__unborn_drop(dur__loop *loop); /* all of them, and those that wait: no round will come soon */

/* triage.c */
void dur__triage(dur__loop *loop, const dur_orchestration_item *item, uint64_t alone);
void dur__triage_unborn(dur__loop *loop, const dur__start_taken *start);
/* shortage.c */
bool dur__loop_has_memory(dur__loop *loop); /* its reserve is whole; false: pause_us */
void dur__loop_covered(dur__loop *loop);    /* until dur__cover_end(&loop->cover) */
bool dur__loop_room(size_t payload);        /* for one item with so many bytes of users' texts */
bool dur__loop_room_fetch(dur__loop *loop, size_t count);
/* Its handler is dropped for want of memory; the lease is kept, and it is replayed after a while. */
void dur__inst_later(dur__inst *inst);

void dur__triage_restarts(dur__loop *loop); /* L4: lease kept, handler dropped: replay what the store has now */
/* Keep messages of a leased instance as dead letters, with a line in the log. */
typedef enum dur__dead {
    DUR__DEAD_KEPT,
    DUR__DEAD_TO_CONSUME, /* the store keeps none: the commit at hand must take them out of the queue */
    DUR__DEAD_FAILED      /* they are still in the queue */
} dur__dead;
dur__dead dur__dead_letters(dur__inst *inst, const uint64_t *ids, size_t count, const char *reason);
/* Decode one message; NULL: dead letter or left in place (logged).  Where the store keeps no dead letters the next
   commit consumes it. */
dur__letter *dur__letter_from_message(dur__inst *inst, const dur_fetched_message *message);

/* turn_commit.c */
bool dur__turn_build(dur__inst *inst);
void dur__turn_unbuild(dur__inst *inst); /* what a build that was left has done */ /* false: nothing to commit */
/* A start for an instance that exists: false where it is the very call that made it, delivered once more. */
bool dur__start_refused(const dur__inst *inst, const dur_work_item *start);
/* The lease goes back and nothing else happens.  seen: what is left in the queue is no reason to come back at once. */
void dur__release(dur__inst *inst, uint64_t delay_ms, bool give_back, bool seen);
/* Of one that has not begun and never will: its starts go with the lease, and in the same commit, by the store, which
   knows also what has come and was not handed out here, all that was sent to it. */
void dur__forget(dur__inst *inst, const uint64_t *ids, size_t count);
/* The same, and the acquisition stays counted (L6): on the way to poison. */
/* Of one that has not begun: these starts, letters, are refused, and their parents told. */
void dur__release_refusing(dur__inst *inst, dur__link *calls);
void dur__release_counted(dur__inst *inst, uint64_t delay_ms);
void dur__suspend(dur__inst *inst, const char *reason);
dur_turn_commit *dur__commit_begin(dur__inst *inst); /* an empty commit with token, position and listed messages */
void dur__commit_end(dur__inst *inst);               /* frees it; locked work that was not handed out is forgotten */
/* It happened: effects go out; then, when those of all others of the round are out, the rest is put away. */
void dur__commit_effects(dur__inst *inst);
void dur__commit_put_away(dur__inst *inst);

/* ending.c: ending an instance without its handler */
typedef struct dur__ending {
    const dur_failure *failure;
    bool corrupted;                     /* the history cannot be read */
    const dur_orchestration_item *item; /* NULL: the instance is live, its history is read from the store */
    const dur_work_item *start;         /* no history: the start message */
} dur__ending;
int dur__ending_build(dur__inst *inst, const dur__ending *ending, dur_error *err);
/* SubOrchFailed for whoever started an instance that exists already. */
dur_failure dur__cancelled_by(const dur_work_item *request); /* borrows its reason */
void dur__ending_refuse_start(dur_work_item *out, dur_arena *arena, const dur_work_item *start);

/* retry_commit.c */
/* The answer to one turn: it is fine, and its effects go out; or it is not. */
void dur__commit_confirmed(dur__inst *inst, const dur_turn_commit *answer);
void dur__commit_refused(dur__inst *inst, const dur_turn_commit *answer);
void dur__commit_retry(dur__inst *inst, const dur_error *why, bool unknown);
void dur__commit_learn(dur__inst *inst); /* L7: did it happen? */
void dur__commit_abandon(dur__inst *inst);
void dur__inst_lost(dur__inst *inst, const char *why); /* the lease is somebody else's */

/* park.c */
void dur__park(dur__inst *inst);
void dur__unpark(dur__inst *inst);
void dur__park_trim(dur__loop *loop);

/* work_queue.c */
void dur__work_init(dur__work *work);
void dur__work_destroy(dur__work *work);
size_t dur__work_room(dur_runtime *runtime);
bool dur__work_any(dur_runtime *runtime); /* something is here, or about to be */
static inline size_t dur__work_room_all(const dur_runtime *runtime) {
    return (size_t)runtime->options.worker_concurrency + runtime->options.prefetch;
}
dur__full dur__work_full(dur_runtime *runtime, uint64_t for_us, dur__buf *name); /* so long; name: one that runs */
bool dur__work_flows(dur_runtime *runtime, uint64_t within_us); /* what is put in front begins at once, or soon */
size_t dur__work_reserve(dur_runtime *runtime, size_t want, bool alone); /* alone: beyond the room, too */
void dur__work_unreserve(dur_runtime *runtime, size_t count);
void dur__work_push(dur_runtime *runtime, dur__link *tasks, size_t count);
void dur__work_nudge(dur_runtime *runtime, uint64_t after_us);  /* wake another worker when the queue is not drained */
bool dur__work_withdraw(dur_runtime *runtime, dur__task *task); /* true: it was waiting and is the caller's again */
size_t dur__work_take_waiting(dur_runtime *runtime, dur__loop *loop, dur__link *out, uint64_t waited_us, bool local);
void dur__work_finished(dur_runtime *runtime, dur__task *task); /* under the mutex */

/* narrate.c */
void dur__narrate_start(dur_runtime *runtime);
void dur__narrate_turn(const dur__inst *inst, const dur__turn *turn);
void dur__narrate_activity_start(const dur__task *task);
void dur__narrate_activity_end(const dur__task *task, bool cancelled);

/* step.c */
void dur__step_open(dur_runtime *runtime); /* on the thread that will step */
void dur__step_close(dur_runtime *runtime);
void dur__step_beat(dur_runtime *runtime); /* from inside an activity: the keeper's, if something is due */
bool dur__step_wait(dur_runtime *runtime,
                    uint64_t until_us); /* stop: one more step, or sleep; false: the time is over */

/* worker.c */
bool dur__worker_run_one(dur__worker *worker);
void dur__worker_covered(dur__worker *worker, dur__cover *cover);
void dur__worker_free(dur__worker *worker); /* on this thread, without waiting; false: nothing to run */
void dur__worker_name(dur__worker *worker, dur_runtime *runtime);
void dur__worker_begin(dur__worker *worker, dur__task *task); /* under work.mutex */
/* False: the task was abandoned meanwhile; then only left_behind may follow, which frees the worker. */
bool dur__worker_finish(dur__worker *worker, dur__task *task);
void dur__worker_left_behind(dur__worker *worker, dur__task *task);
/* More threads, where work waits for one; microseconds until it should be asked again, UINT64_MAX: nothing waits. */
uint64_t dur__workers_grow(dur_runtime *runtime);
/* Threads that there are now. */
size_t dur__workers_count(dur_runtime *runtime);
/* Fewer, where some were idle since the last call. */
void dur__workers_shrink(dur_runtime *runtime);
int dur__workers_start(dur_runtime *runtime, dur_error *err);
int dur__worker_add(dur_runtime *runtime);
void dur__workers_stop(dur_runtime *runtime);
void dur__task_fill(dur__task *task, const dur_work_item *item);
void dur__task_complete(dur__task *task, const char *result);
void dur__task_fail(dur__task *task, const dur_failure *failure);

/* activity.c */
struct dur_act {
    dur__task *task;
};
void dur__activity_run(dur__task *task);
void dur__activity_ended(dur__task *task, const dur_outcome *given);
void dur__activity_texts_free(dur__task *task);
void dur__activity_cleanup(dur__task *task);
void dur__activity_sqlite_close(dur__task *task);

/* syscalls.c */
const char *dur__syscall_name(size_t index); /* of the built-in activities; NULL: no more */
bool dur__syscall_known(const char *name);
void dur__syscall_run(dur__task *task);

/* session.c */
bool dur__session_admit(dur_runtime *runtime, const char *session); /* under work.mutex: false: busy, or too many */
bool dur__session_busy(dur_runtime *runtime, const char *session);  /* under work.mutex */
bool dur__session_closed(dur_runtime *runtime);                     /* under work.mutex: enough of them wait here */
void dur__session_leave(dur_runtime *runtime, const char *session); /* under work.mutex */
bool dur__session_full(dur_runtime *runtime);                       /* under work.mutex */
void dur__session_free(dur_runtime *runtime);

/* cancel.c */
void dur__cancel_task(dur_runtime *runtime, dur__task *task); /* a running one: flag and descriptor */
void dur__cancel_locked(dur__task *task);                     /* the same, under work.mutex */
int dur__cancel_fd(dur__task *task);

/* poison.c: L6, for the whole process: one suspect at a time */
uint64_t dur__gate_claim(dur_runtime *runtime); /* a ticket, for one suspect; 0: somebody has it */
bool dur__gate_open(void);                      /* somebody has it: others wait, which is logged once */
/* What the ticket is for: from now on it runs alone.  The time begins again when an activity starts. */
bool dur__gate_held(void); /* a suspect runs alone, or is about to be fetched */
void dur__gate_enter(uint64_t ticket, const char *token, uint32_t crashes, const char *what);
void dur__gate_started(uint64_t ticket);
void dur__gate_release(uint64_t *ticket); /* any thread; also one that has expired, or 0 */
uint64_t dur__gate_due_us(const dur_runtime *runtime);
void dur__gate_expire(dur_runtime *runtime, dur_arena *arena, uint64_t now_us); /* the keeper */

/* backoff.c */
uint64_t dur__backoff_ms(uint64_t base_ms, uint32_t tries, uint64_t max_ms); /* base·2^tries, capped, never wraps */
uint64_t dur__backoff_jitter_us(const dur_world *world, uint64_t ms);        /* in microseconds, ±20 % */
uint64_t dur__backoff_unregistered(dur_runtime *runtime, const char *what, const char *name, const char *version);
bool dur__backoff_say(dur_runtime *runtime,
                      const char *what); /* of what comes again and again: is it to be said now? */
/* Is this to be said?  At first, then after a second, two, four, … a minute; times: how often it was not said. */
bool dur__trouble_say(dur_runtime *runtime, dur__said *said, int code, char times[DUR__TIMES_BYTES]);
void dur__backoff_free(dur_runtime *runtime);

/* keeper.c */
void dur__keeper_begin(dur_runtime *runtime); /* after a registration, before the threads: look for dead owners */
void dur__keeper_open(dur_runtime *runtime);
void dur__keeper_main(void *runtime);
uint64_t dur__keeper_pass(dur_runtime *runtime); /* without a thread: what is due; when the next is, monotonic µs */
void dur__keeper_kick(dur_runtime *runtime);
void dur__keeper_look(dur_runtime *runtime); /* what it has to do next may have changed */
bool dur__keeper_fenced(dur_runtime *runtime);
void dur__keeper_renew_owner(dur_runtime *runtime); /* let go of everything and begin again under a new id */
size_t dur__keeper_abandon_all(dur_runtime *runtime, dur__buf *names); /* stop: who still runs is left behind */
void dur__keeper_release(dur_runtime *runtime, const char *owner);     /* goodbye */
int dur__keeper_register(dur_runtime *runtime, dur_error *err);        /* a new owner id */
void dur__keeper_renew_add(dur__inst *inst);                           /* timed locks only */
void dur__keeper_renew_remove(dur__inst *inst);

/* double_run.c */
void dur__rerun_begin(dur__inst *inst, const dur_orchestration_item *item, const dur_key_value *kv, size_t kv_count);
int dur__rerun_check(dur__inst *inst, dur_error *err); /* before a commit: the history with this turn replays */
void dur__rerun_keep(dur__inst *inst);                 /* after it */
void dur__rerun_free(dur__rerun *rerun);

/* census.c */
void dur__census_init(dur__census *census);
void dur__census_destroy(dur__census *census);
void dur__census_answer(dur__loop *loop); /* the loop's thread, between two passes */

/* directory.c: which loop has an instance; only with several loops */
void dur__directory_put(dur_runtime *runtime, const char *instance, dur__loop *loop);
void dur__directory_remove(dur_runtime *runtime, const char *instance, dur__loop *loop);
dur__loop *dur__directory_get(dur_runtime *runtime, const char *instance);

#endif
