/*
 * replay.h: one execution of a handler, as a pure function of its history.
 *
 * No thread, clock, provider or file: time comes in with each step, randomness through a function.  The runtime
 *   1. makes an exec (dur__exec_new),
 *   2. starts it (dur__exec_start) or replays what is stored (dur__exec_replay_event …, dur__exec_replay_end),
 *   3. offers arrivals (dur__exec_offer) and steps (dur__exec_step) until nothing can be taken,
 *   4. commits what dur__exec_turn returns, and says so (dur__exec_turn_done); goes on with 3 while the exec is parked.
 * Rules: README.md beside this file.  Thread class: pinned to one thread (its loop's).
 */
#ifndef DURITE_REPLAY_ENGINE_H
#define DURITE_REPLAY_ENGINE_H

#include "base/list.h"
#include "core/parent.h"
#include "coro/coro.h"
#include <durite/orchestration.h>
#include <durite/sys/arena.h>
#include <durite/sys/event.h>
#include <durite/sys/provider_methods.h> /* values only: dur_event_row, dur_key_value, dur_semver */
#include <durite/sys/work.h>

typedef struct dur__exec dur__exec;

typedef struct dur__exec_limits { /* 0: no limit */
    uint64_t payload_bytes_max;
    uint64_t custom_status_bytes_max;
    uint64_t kv_keys_max;
    uint64_t kv_value_bytes_max;
    uint64_t tag_bytes_max;
    uint64_t arena_bytes_max; /* beyond: broken with DUR_ELIMIT, the instance is to be suspended */
} dur__exec_limits;

typedef struct dur__exec_options {
    const char *instance; /* copied, as are all texts */
    uint64_t execution_id;
    const char *name;
    const char *version;
    dur_orchestration_fn *fn;
    void *data;           /* dur_handler_data */
    void (*unwind)(void); /* NULL: dropped frames are thrown away; else it throws, see dur_handler */
    size_t stack_bytes;
    dur__stacks *stacks;
    const dur_key_value *kv; /* state at the end of the previous execution */
    size_t kv_count;
    void (*random)(void *data, void *out, size_t size);
    void *random_data;
    dur__exec_limits limits;
    uint64_t cancel_grace_ms;
    bool queue_eager; /* a store that cannot leave messages in the queue: record each as it comes */
    /* A try-dequeue finds nothing among what was offered: offer what there is of the queue behind this place.  A code
       other than DUR_OK breaks the execution with it.  NULL: all that there is was offered. */
    int (*more)(void *data, const char *queue, uint64_t after_ms, uint64_t after_id, dur_error *err);
    void *more_data;
} dur__exec_options;

dur__exec *dur__exec_new(const dur__exec_options *options);
void dur__exec_free(dur__exec *exec); /* drops a parked handler; NULL allowed.  The mailbox must have been drained */

/* ---- beginning ---- */

typedef struct dur__exec_begin {
    const char *input;
    dur__parent parent;
    uint64_t birth; /* of the instance; 0: none */
    const dur_carried *carried;
    size_t carried_count;
    const char *initial_custom_status;
    /* Order of the start message: a try-dequeue before the first wait sees queue messages older than it that have been
       offered.  Both 0: all that have been offered. */
    uint64_t order_ms, order_id;
} dur__exec_begin;

/* Records OrchestrationStarted (event 1) and runs.  The result is as of dur__exec_step. */
int dur__exec_start(dur__exec *exec, const dur__exec_begin *begin, uint64_t now_ms, dur_error *err);

/* Give the stored events one by one, in order; the event may be freed afterwards.  DUR_ENONDETERMINISM with a report
   (step, both sides, source line), DUR_ECORRUPT for a history that is none. */
int dur__exec_replay_event(dur__exec *exec, const dur_event *event, dur_error *err);
/* No more stored events.  Checks that none is left over on either side; the exec is live from here on. */
int dur__exec_replay_end(dur__exec *exec, dur_error *err);

/* ---- arrivals ---- */

/* One message or completion for this execution.  Owned by the runtime; linked into the exec's mailbox from offer until
   it is consumed (then in turn.consumed) or drained. */
typedef struct dur__arrival {
    dur__link link;
    dur_work_item item; /* texts live as long as the arrival */
    uint64_t order_ms;  /* oldest first: by (order_ms, order_id) */
    uint64_t order_id;
    void *cookie; /* the runtime's */
    bool unused;  /* consumed and not recorded: nobody waits for it any more */
} dur__arrival;

void dur__exec_offer(dur__exec *exec, dur__arrival *arrival);

/*
 * Take the oldest arrival that can be taken, record it, apply it and run all branches until each waits (one group).
 * *took is false when there was none.  DUR_OK; or the exec is broken and must be freed: DUR_ENONDETERMINISM,
 * DUR_ELIMIT (arena), DUR_ENOMEM (no stack, or no memory: nothing of it is the execution's fault).
 */
int dur__exec_step(dur__exec *exec, uint64_t now_ms, bool *took, dur_error *err);

/* A queue that a dequeue waits for and of which the mailbox has no message: the store may have more behind (order_ms,
   order_id), the last one offered of that queue.  The i-th such queue; NULL: no more.  Borrowed until the next step. */
const char *dur__exec_hungry(dur__exec *exec, size_t i, uint64_t *order_ms, uint64_t *order_id);

/* ---- the turn: everything since the last turn_done ---- */

typedef enum dur__end { DUR__END_NOT, DUR__END_COMPLETED, DUR__END_FAILED, DUR__END_CONTINUED } dur__end;

typedef struct dur__turn_item {
    dur_work_item item;
    uint64_t due_ms; /* 0: at once */
} dur__turn_item;

typedef struct dur__turn_log {
    dur_log_level level;
    const char *message;
} dur__turn_log;

typedef struct dur__turn {
    uint64_t first_event_id; /* of events; expected_last is one less */
    const dur_event_row *events;
    size_t event_count;
    const dur__turn_item *worker_items; /* ActivityExecute, without those cancelled in the same turn */
    size_t worker_item_count;
    /* TimerFired, StartOrchestration (children, detached), CancelInstance (dropped children, grace), SubOrch* to the
       parent, ContinueAsNew */
    const dur__turn_item *orchestrator_items;
    size_t orchestrator_item_count;
    uint32_t open_activities;             /* scheduled and neither answered nor dropped, after this turn */
    const uint64_t *cancelled_activities; /* schedule ids, of earlier turns */
    size_t cancelled_activity_count;
    const uint64_t *dropped_timers; /* schedule ids, of earlier turns */
    size_t dropped_timer_count;
    dur__link *consumed; /* arrivals taken or ignored in this turn, in order */
    const dur__turn_log *logs;
    size_t log_count;
    dur__end end;
    const char *output;         /* completed: result; failed: text for people; continued: input */
    const dur_failure *failure; /* failed */
} dur__turn;

/* Valid until the next call on the exec other than accessors.  An empty turn has event_count 0 and nothing consumed. */
const dur__turn *dur__exec_turn(dur__exec *exec);
/* turn.consumed alone, also of one that is broken. */
dur__link *dur__exec_consumed(dur__exec *exec);
/* The turn is committed: forget it (the runtime has taken the consumed arrivals over). */
void dur__exec_turn_done(dur__exec *exec);

/* ---- looking ---- */
uint64_t dur__exec_last_event(const dur__exec *exec);
bool dur__exec_finished(const dur__exec *exec);
size_t dur__exec_bytes(const dur__exec *exec); /* arena and touched stack, roughly */
size_t dur__exec_stack_high_water(const dur__exec *exec);
uint64_t dur__exec_age_ms(const dur__exec *exec);   /* from the first event to the last one recorded */
const char *dur__exec_where(const dur__exec *exec); /* site of the last scheduling call; any thread */
/* "what does it wait for": the i-th open leaf as text ("activity Ship #7 (order.c:31)"); false: no more. */
bool dur__exec_waiting(const dur__exec *exec, size_t i, char *out, size_t out_size);

/* After the end, or before freeing: take what is left in the mailbox, one by one; NULL: empty. */
typedef enum dur__left { DUR__LEFT_CONSUME, DUR__LEFT_KEEP, DUR__LEFT_DEAD } dur__left;
dur__arrival *dur__exec_drain(dur__exec *exec, dur__left *verdict);

#endif
