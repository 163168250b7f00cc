/*
 * engine.h: what the files of src/replay share.  README.md says in which order to read them.
 *
 * Two places run code here.  The engine applies arrivals and settles futures on the caller's stack; a branch runs the
 * user's code on its own.  exec->running is the branch that is on the processor, NULL while the engine is.
 * A function that finds the execution broken (nondeterminism, arena limit) leaves the branch for good when one is
 * running, and returns false or nothing otherwise: every loop of the engine looks at exec->broken.
 */
#ifndef DURITE_REPLAY_INTERNAL_H
#define DURITE_REPLAY_INTERNAL_H

#include "base/assert.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "replay/body.h"
#include "base/heap.h"
#include "replay/replay.h"

typedef struct dur__branch dur__branch;
typedef struct dur__leaf dur__leaf;
typedef struct dur__retrying dur__retrying;
typedef struct dur__combined dur__combined;
typedef struct dur__topic dur__topic;

struct dur_ctx {
    dur__exec *exec;
};

/* ---- memory with a lifetime: the execution's, or a scope's (scope.c) ---- */

typedef struct dur__region {
    dur_arena *arena;
    size_t bytes; /* accounted to the execution's limit */
    size_t refs;  /* the scope, and each branch whose base it is */
} dur__region;

struct dur_scope {
    dur__exec *exec;
    dur__branch *branch;
    dur_scope *outer; /* NULL: the branch's base */
    dur__region *region;
    dur__link futures; /* that are open, or hold an unreported message; in order of creation */
};

/* Zeroed memory of a scope.  Over the limit the execution breaks. */
void *dur__scope_alloc(dur_scope *scope, size_t size);
char *dur__scope_text(dur_scope *scope, const char *text);
char *dur__scope_vformat(dur_scope *scope, const char *format, va_list args);
dur__region *dur__region_new(void); /* NULL: no memory */
/* For a text that is needed for this group only. */
dur_arena *dur__passing(dur__exec *exec);
void dur__region_unref(dur__exec *exec, dur__region *region);
void dur__scope_close(dur_scope *scope); /* drop what is open, free the region; not for a base */
void dur__graveyard_clear(dur__exec *exec);

/* ---- futures (future.c) ---- */

typedef enum dur__future_kind {
    DUR__FUTURE_LEAF,
    DUR__FUTURE_RETRY,
    DUR__FUTURE_BRANCH,
    DUR__FUTURE_COMBINED,
    DUR__FUTURE_PLAIN /* settled by the engine itself: a system call of an original history */
} dur__future_kind;

struct dur_future {
    dur__exec *exec;
    dur_scope *scope;
    dur__link owned;      /* in scope->futures */
    dur__link dependents; /* dur__node: who waits for it */
    dur_future *next;     /* in the queue of settlements to be told */
    uint64_t settled;     /* number of the settlement; 0: open */
    const char *text;     /* value or reason */
    dur_code code;
    dur__future_kind kind;
    bool detached, is_none, is_final, decode; /* decode: the value is JSON, a text or null (remote KV) */
    union {
        dur__leaf *leaf;
        dur__retrying *retry;
        dur__branch *branch;
        dur__combined *combined;
    } of;               /* NULL once it is over */
    dur__leaf *holds;   /* a dequeue whose message came with the value: until a waiting call has reported it */
    dur_future *fellow; /* the next one that holds the same */
};

/* One place that waits for a future: a call of a branch, or a combined future. */
typedef struct dur__node {
    dur__link link;
    dur__branch *branch;
    dur_future *combined;
} dur__node;

dur_future *dur__future_new(dur__exec *exec, dur__future_kind kind);
/* Settle it (once) and tell everyone who waits.  text is copied. */
void dur__settle(dur_future *future, dur_code code, const char *text);
/* Give it up: what is open below it is dropped and it settles as cancelled. */
void dur__future_drop(dur_future *future, const char *reason);
/* Its scope goes and it was detached: what is below goes on without it. */
void dur__future_orphan(dur_future *future);
/* A waiting call is about to return it. */
void dur__future_reported(dur_future *future);
void dur__future_hold(dur_future *future, dur__leaf *leaf);
/* The futures of a scope, in order of creation. */
void dur__futures_drop(dur_scope *scope, const char *reason);

/* ---- leaves: what history knows as schedules and subscriptions (leaf.c) ---- */

typedef enum dur__leaf_kind {
    DUR__LEAF_ACTIVITY,
    DUR__LEAF_TIMER,
    DUR__LEAF_PULSE,
    DUR__LEAF_MESSAGE,
    DUR__LEAF_CHILD
} dur__leaf_kind;

typedef enum dur__leaf_role { /* to whom it answers */
                              DUR__ROLE_FUTURE,
                              DUR__ROLE_ATTEMPT,
                              DUR__ROLE_DELAY,
                              DUR__ROLE_ATTEMPT_TIMEOUT,
                              DUR__ROLE_TOTAL_TIMEOUT
} dur__leaf_role;

/* A message that history holds and no waiting call has reported. */
typedef struct dur__held {
    dur__link link; /* in its topic's memory, by seq */
    uint64_t seq;   /* order of arrival */
    const char *queue;
    char data[];
} dur__held;

struct dur__leaf {
    uint64_t id; /* its event; 0: not recorded yet (original histories) */
    dur__leaf_kind kind;
    dur__leaf_role role;
    bool detached;
    bool dropped; /* original histories: given up, its record is still to come */
    bool is_try;
    bool marked;          /* history says that its message has not been reported */
    bool is_system;       /* original: a system call, answered by the engine */
    dur_future *future;   /* NULL: nobody listens */
    dur__retrying *retry; /* of the other roles */
    const char *name;     /* interned: activity, orchestration */
    dur__topic *topic;    /* event, queue */
    char *instance;       /* child's id; owned */
    const char *site;
    dur__link wait;      /* in topic->waits; in the free list; until it is bound, in exec->unbound */
    dur__link trying;    /* in exec->tries; once it has a message, in exec->unmarked */
    dur__held *held;     /* dequeue: the message given to it, not yet reported */
    dur_future *holders; /* … whose value it is: the dequeue's future, or first-of futures that it won */
    uint64_t turn;       /* in which its work item was made; 0: an earlier one */
    size_t item;         /* index + 1 of that work item */
    uint64_t attempt;    /* of its retry policy; 0: none */
    uint64_t first_id;   /* activity: the first attempt's id, where this is a later one of the same call; else 0 */
    uint64_t limit_ms, limit_id; /* try-dequeue: only messages older than this */
};

/* All open leaves by id; ids only grow, so that appending keeps the order. */
typedef struct dur__open {
    struct dur__open_entry {
        uint64_t id;
        dur__leaf *leaf; /* NULL: closed */
    } * entries;
    size_t first, count, room, live;
    uint32_t activities; /* of the live ones */
} dur__open;

dur__leaf *dur__leaf_new(dur__exec *exec, dur__leaf_kind kind, const char *site);
void dur__leaf_free(dur__exec *exec, dur__leaf *leaf);
/* Give its command; it is open from there on.  False: broken. */
bool dur__leaf_schedule(dur__exec *exec, dur__leaf *leaf, dur_event *event);
/* Its record stands in history (event_id is set): make it findable, and in a new group emit its work. */
void dur__leaf_bind(dur__exec *exec, dur__leaf *leaf, const dur_event *event);
dur__leaf *dur__open_find(const dur__exec *exec, uint64_t id);
dur__leaf *dur__open_after(const dur__exec *exec, uint64_t id); /* the open leaf with the next larger id; NULL: none */
/* The event that gives it up; false: a timer has none. */
bool dur__leaf_drop_event(const dur__leaf *leaf, const char *reason, dur_event *out);
void dur__leaf_dropped(dur__exec *exec, dur__leaf *leaf); /* its drop is recorded: effects, then closed */
/* It is answered: closed, and its future, retry or nobody hears of it. */
void dur__leaf_answer(dur__exec *exec, dur__leaf *leaf, dur_code code, const char *text, bool is_final);
/* Record its drop and close it.  Whoever it answers to is not told. */
void dur__leaf_drop(dur__exec *exec, dur__leaf *leaf, const char *reason);
/* A message was delivered: to the oldest wait, or into memory. */
void dur__topic_deliver(dur__exec *exec, dur__topic *topic, dur__held *held);
dur__held *dur__held_new(dur__exec *exec, const char *queue, const char *data);
void dur__leaf_close(dur__exec *exec, dur__leaf *leaf);
const char *dur__leaf_text(const dur__leaf *leaf, char *out, size_t out_size);
const char *dur__intern(dur__exec *exec, const char *name);

/* ---- event names and queues (mailbox.c) ---- */

struct dur__topic {
    dur__link waits;           /* leaves that are live and unsatisfied, oldest first */
    dur__link memory;          /* dur__held */
    dur__link *messages;       /* pairing heap of arrivals, oldest on top */
    dur__heap_item ready;      /* in mailbox.ready: a message could be taken */
    dur__link hungry;          /* in mailbox.hungry: a wait, and no message */
    uint64_t last_ms, last_id; /* the last one offered */
    bool is_queue;
    size_t users; /* leaves of an event's name */
    char name[];
};

typedef struct dur__mailbox {
    dur__link *others; /* pairing heap: everything but queue messages */
    dur__heap ready;
    dur__link hungry;
    dur__link *hungry_at; /* where dur__exec_hungry stands; NULL: something has changed */
    size_t hungry_index;
    dur__map events, queues;
} dur__mailbox;

void dur__mailbox_init(dur__mailbox *mailbox);
void dur__mailbox_free(dur__mailbox *mailbox);
dur__topic *dur__topic_get(dur__mailbox *mailbox, const char *name, bool is_queue);
void dur__topic_release(dur__exec *exec, dur__topic *topic); /* one leaf less uses it */
void dur__topic_changed(dur__exec *exec, dur__topic *topic); /* its waits or messages did */
dur__arrival *dur__mailbox_take(dur__exec *exec);
/* The oldest message of the queue if it is older than the limit; unlinked. */
dur__arrival *dur__mailbox_take_older(dur__exec *exec, dur__topic *topic, uint64_t limit_ms, uint64_t limit_id);

/* ---- the nouns (schedule.c) ---- */

/* With arguments that were checked; first_id as of dur__retry_start. */
dur_future *dur__activity(dur__exec *exec, const dur_activity_args *own, uint64_t first_id);
/* Of an activity that was just scheduled: the id that its key has; 0: none yet. */
uint64_t dur__activity_first_id(const dur_future *future);
dur_future *dur__message_wait(dur__exec *exec, const char *name, bool is_try, const char *site);
void dur__activity_args(dur__exec *exec, const char *call, const dur_activity_args *args, dur_activity_args *own);
/* Replay has no threads; a runtime's keeper asks where a handler is while it runs (dur__exec_where). */
#define dur__exec_at(exec_, site_)                                                                                     \
    do {                                                                                                               \
        if ((site_) != NULL) __atomic_store_n(&(exec_)->where, (site_), __ATOMIC_RELAXED);                             \
    } while (0)

static inline uint64_t dur__after(uint64_t now_ms, uint64_t delay_ms) {
    return delay_ms > UINT64_MAX - now_ms ? UINT64_MAX : now_ms + delay_ms;
}

/* ---- branches (branch.c) ---- */

typedef struct dur__dropper {
    struct dur__dropper *next;
    void (*fn)(void *);
    void *arg;
} dur__dropper;

struct dur__branch {
    dur__heap_item order; /* hi: its number */
    dur__exec *exec;
    dur__link link; /* in exec->branches */
    dur__branch *next_dying;
    dur_scope base;
    dur_scope *scope;
    dur_future *future; /* NULL: the first branch, or nobody's */
    dur_branch_fn *fn;  /* NULL: the first branch */
    void *arg;
    dur__body *body;
    dur__dropper *droppers;
    dur_outcome outcome;
    dur_code code; /* when it failed: of what */
    bool ended, detached;
    bool began, returned; /* its code: run at all, run to its end */
    unsigned throws;      /* while it is unwound */
    struct {
        dur__node *nodes;
        size_t count, room;
        size_t missing; /* settlements until it can go on */
    } wait;
};

dur__branch *dur__branch_new(dur__exec *exec, dur_branch_fn *fn, void *arg, dur_scope *parent);
void dur__branch_wake(dur__branch *branch);
void dur__branch_drop(dur__branch *branch); /* with everything that it owns */
void dur__branch_unwait(dur__branch *branch);
void dur__branches_run(dur__exec *exec);  /* until each waits, the handler has returned, or broken */
void dur__branches_free(dur__exec *exec); /* all of them, without records */
/* End the running branch here; nothing of its frames is run again. */
_Noreturn void dur__branch_fail(dur__exec *exec, dur_code code, const char *reason);
/* the attribute, not the keyword: analysers know it in front of a printf */
__attribute__((noreturn)) void dur__branch_failf(dur__exec *exec, const char *format, ...) DUR_PRINTF(2, 3);
/* The execution is broken: leave the running branch for good; returns only when none is running. */
void dur__branch_leave(dur__exec *exec);
/* A call that waits and finds nobody running: does not return where a branch is being unwound. */
void dur__unwind_on(void);
void dur__branch_suspend(dur__exec *exec);

enum { DUR__OUTCOME_NONE, DUR__OUTCOME_COMPLETE, DUR__OUTCOME_FAIL, DUR__OUTCOME_CONTINUE };

/* ---- composite futures (retry.c, combine.c) ---- */

/* first_id: of the call that this one repeats, whose key it keeps; 0: a call of its own. */
dur_future *dur__retry_start(dur__exec *exec, const dur_activity_args *args, const dur_retry *policy,
                             uint64_t first_id);
/* An attempt has its id. */
void dur__retry_bound(dur__retrying *retry, uint64_t id);
uint64_t dur__retry_first_id(const dur__retrying *retry);
/* One of its leaves has been answered, and is closed. */
void dur__retry_hear(dur__exec *exec, dur__retrying *retry, dur__leaf_role role, dur_code code, const char *text,
                     bool is_final);
void dur__retry_drop(dur__exec *exec, dur__retrying *retry, const char *reason);
void dur__retry_detach(dur__retrying *retry);
void dur__retry_orphan(dur__retrying *retry);
void dur__retries_free(dur__exec *exec);
void dur__combined_hear(dur_future *combined, dur_future *member);
void dur__combined_drop(dur_future *combined);

/* ---- commands: recorded, or compared with the record (match.c, emit.c) ---- */

/* event_id, timestamp_ms and what only the record knows (fire_at_ms, last_updated_at_ms) are filled.  False: broken. */
bool dur__command(dur__exec *exec, dur_event *event, const char *site);
/* A system call: both of its events.  *result is borrowed until the next command.  False: broken, or (original
   histories) the answer is not known yet. */
bool dur__command_pair(dur__exec *exec, dur_event *event, const char *made, const char **result, const char *site);
bool dur__match(dur__exec *exec, dur_event *event, const char *site);
/* Is it what history holds next? */
bool dur__match_is_next(const dur__exec *exec, const dur_event *event);
bool dur__match_compare(dur__exec *exec, const dur_event *record, const dur_event *event, const char *site);
bool dur__match_pair(dur__exec *exec, dur_event *event, const char **result, const char *site);
bool dur__match_marker(dur__exec *exec, const char *id);      /* is it the next record?  Takes it. */
bool dur__match_drop(dur__exec *exec, const dur__leaf *leaf); /* is this drop the next record?  Does not take it. */
bool dur__match_end(dur__exec *exec);                         /* nothing may be left over in the group */
void dur__event_describe(const dur_event *event, char *out, size_t out_size);
bool dur__is_marker(const dur_event *event);
bool dur__is_pair_name(const char *name);

void dur__emit(dur__exec *exec, dur_event *event); /* a new event: id, stamp, row */
void dur__log_held(dur__exec *exec, dur_log_level level, const char *format, ...) DUR_PRINTF(3, 4);
void dur__log_vheld(dur__exec *exec, dur_log_level level, const char *format, va_list args);
void dur__break(dur__exec *exec, dur_code code, const char *format, ...) DUR_PRINTF(3, 4);
const dur_event *dur__event_copy(dur_arena *arena, const dur_event *event, dur_event *out);
const dur_failure *dur__failure_copy(dur_arena *arena, const dur_failure *failure);

/* ---- effects of a turn (effects.c) ---- */

void dur__effect_scheduled(dur__exec *exec, dur__leaf *leaf, const dur_event *event);
void dur__effect_dropped(dur__exec *exec, dur__leaf *leaf);
void dur__effect_started(dur__exec *exec, const dur_event *chained);
void dur__effect_grace(dur__exec *exec, uint64_t request_id);
void dur__effect_ended(dur__exec *exec, const char *version); /* end, output and failure are set */
void dur__turn_room(dur__exec *exec);                         /* so that dur__exec_turn needs no memory */
void dur__effects_free(dur__exec *exec);

/* ---- arrivals and the end (arrive.c, finish.c) ---- */

void dur__apply_started(dur__exec *exec, const dur_event *event);
void dur__apply_arrival(dur__exec *exec, const dur_event *event);
/* Live: what a message is as an event.  False: consumed and not recorded. */
bool dur__arrival_event(dur__exec *exec, const dur_work_item *item, dur_event *out);
void dur__finish_returned(dur__exec *exec); /* the first branch has ended */
void dur__finish_returned_now(dur__exec *exec);
void dur__finish_failed(dur__exec *exec, const dur_failure *failure);
bool dur__finish_forced(dur__exec *exec, const dur_event *terminal); /* ended from outside: only take note */
const dur_failure *dur__cancelled_failure(dur__exec *exec, const char *said);
bool dur__terminal_command(dur__exec *exec, dur_event *event, const char *site);
void dur__markers_free(dur__exec *exec);
bool dur__mark(dur__exec *exec, const char *what, const dur__leaf *leaf); /* false: history holds no such marker here */
void dur__quiesce(dur__exec *exec);                                       /* run all branches, decide try-dequeues */

/* ---- histories of the original (original.c) ---- */

typedef struct dur__pending dur__pending;
bool dur__original_command(dur__exec *exec, dur_event *event, dur__leaf *leaf, dur_future *answer, const char *made,
                           const char *site);
void dur__original_drop(dur__exec *exec, dur__leaf *leaf, const char *reason);
void dur__original_replay(dur__exec *exec, const dur_event *event);
/* A system call: the branch waits for its answer, in life too. */
const char *dur__original_system(dur__exec *exec, const char *name, const char *input, const char *made,
                                 const char *site);
void dur__original_end(dur__exec *exec);
void dur__original_forget(dur__exec *exec, const dur_future *answer);
void dur__original_settle(dur__exec *exec); /* live: record what is pending, one by one */
void dur__original_free(dur__exec *exec);

/* ---- key values and status (ctx_kv.c, ctx_status.c) ---- */

typedef struct dur__kv {
    struct dur__kv_entry {
        char *key, *value;
        uint64_t stamp_ms;
    } * entries; /* by key */
    size_t count, room;
} dur__kv;

void dur__kv_load(dur__exec *exec, const dur_key_value *kv, size_t count);
void dur__kv_free(dur__exec *exec);
void dur__kv_stamp(dur__exec *exec, const char *key, uint64_t stamp_ms);

/* ---- the execution ---- */

typedef struct dur__group { /* replay: a stored arrival and its commands */
    dur_event arrival;
    dur_event *records;
    size_t count, room, next;
    bool filled;
    dur_arena *arena;
} dur__group;

struct dur__exec {
    dur_ctx ctx;
    dur__cover cover; /* while it runs: an allocation that fails breaks it (exec.c) */
    jmp_buf way_out;
    dur__exec_options options; /* texts are ours */
    dur_arena *arena;          /* texts of the options and the Started event */

    /* where we are */
    bool replaying; /* the group at hand is stored */
    bool original;  /* a history without trace: original.c */
    bool started, live, finished;
    dur_code broken;
    dur_error error;
    uint64_t last_id;  /* the last event of history up to our position */
    uint64_t read_id;  /* the last stored event that was given to us */
    uint64_t now_ms;   /* stamp of the group at hand */
    uint64_t began_ms; /* stamp of the first */
    uint64_t settlements, held_seq;
    uint64_t group_ms, group_id; /* order of the group's arrival */
    const char *where;           /* site of the last call; others look at it while the handler runs */
    dur__group group;

    /* what Started said */
    const char *input;
    dur__parent parent;
    uint64_t birth;
    const char *cancel_reason;
    uint64_t cancel_id; /* event of the request */

    /* what is open */
    dur__open open;
    dur__link free_leaves; /* through leaf->wait */
    dur__link unbound;     /* the same: made, and not recorded yet */
    dur__link tries;
    dur__link unmarked; /* dequeues with a message that no call has reported, of which history does not say so yet */
    dur__link retries;
    dur__mailbox mailbox;
    dur_future *settled_first, *settled_last;
    bool telling;

    /* branches */
    dur__link branches; /* by number */
    dur__heap runnable;
    dur__branch *running;
    dur__branch *root;
    dur__branch *dying_first, *dying_last;
    dur__branch *owners; /* of the running branch, which has dropped them: they go when it is gone */
    bool burying;
    uint64_t branch_count;
    size_t stack_high_water;

    /* memory */
    dur__region *region;
    dur__region **graves;
    size_t grave_count, grave_room;
    size_t bytes;

    /* state that handlers see */
    dur__kv kv;
    char *status;
    dur__map names;   /* interned */
    dur__map markers; /* id -> answer */
    dur__pending *pending_first, *pending_last;
    dur_arena *pending_arena;
    dur__map expected_drops; /* original: recorded, the code has not given them yet */
    bool returned;           /* original: the first branch has ended, the terminal record is to come */
    bool forced;             /* original: cancelled or failed from below, only the terminal record is to come */

    /* the turn */
    uint64_t turn; /* its number, from 1 */
    uint64_t turn_first_id;
    dur_arena *turn_arena;
    dur__buf json;
    struct dur__row_at {
        dur_event_row row;
        size_t at;
    } * rows;
    size_t row_count, row_room;
    dur_event_row *row_out;
    size_t row_out_room;
    struct dur__effect {
        dur__turn_item out;
        bool undone;
    } * worker, *orchestrator;
    size_t worker_count, worker_room, orchestrator_count, orchestrator_room;
    dur__turn_item *item_out;
    size_t item_out_room;
    uint64_t *cancelled, *timers;
    size_t cancelled_count, cancelled_room, timer_count, timer_room;
    dur__turn_log *logs;
    size_t log_count, log_room;
    dur__link consumed;
    dur__turn turn_out;
    dur__end end;
    const char *output;
    const dur_failure *failure;
};

/* Room for one more element. */
#define DUR__GROW(array, count, room)                                                                                  \
    do {                                                                                                               \
        if ((count) == (room)) {                                                                                       \
            size_t larger_ = (room) == 0 ? 8 : (room)*2;                                                               \
            (array) = dur__xrealloc((array), larger_ * sizeof(*(array)));                                              \
            (room) = larger_;                                                                                          \
        }                                                                                                              \
    } while (0)

/* Public calls begin with this: the execution whose branch is running.  NULL: not inside a handler.  A ctx that is not
   the running one ends the branch. */
dur__exec *dur__enter(const dur_ctx *ctx, const char *call);
dur__exec *dur__current(void);
void dur__current_set(dur__exec *exec);

/* Texts that a handler gives: fails the branch when one is missing, too long, not UTF-8, or a name with control
   characters, which no client could say. */
void dur__need_name(dur__exec *exec, const char *call, const char *what, const char *text, size_t max);
/* Why an instance with such an id makes no others, in the turn's arena. */
const char *dur__unnameable_text(dur__exec *exec);
void dur__need_version(dur__exec *exec, const char *call, const char *version); /* NULL: none is fine */
const char *dur__need_payload(dur__exec *exec, const char *call, const char *what, const char *text);
void dur__need_size(dur__exec *exec, const char *call, size_t size, size_t min);

#define DUR__SYSCALL "__duroxide_syscall:"

#endif
