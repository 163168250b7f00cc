/*
 * memory_internal.h: the rows of the memory store and what its files share.
 *
 * One mutex guards everything.  Every method enters (which reads the clocks once and lets time take effect) and leaves
 * (which wakes whoever may have something to do).  Nothing inside is handed out: texts are copied in and out.
 *
 * Invariants, true whenever the mutex is free:
 *   - a message is in exactly one tree of its channel: `given` while the holder of the lease knows it, else `now`
 *     (undelayed) or `later` (delayed); it is also in one of the instance's reason trees unless the holder knows it
 *     or the last release said that it was seen;
 *   - an instance that nobody leases is in a bucket's ready tree, in `wall` or in `boot` exactly when it will be worth
 *     fetching now, at that wall time, or at that boot time; a leased one is in `wall` or `boot` when time will
 *     bring it a message or take its lock;
 *   - a worker row is on a shelf when it can be fetched, in `work_times` or `work_delays` when time will make it so, in
 *     none of them while it is locked under an owner.
 */
#ifndef DURITE_PROVIDER_MEMORY_INTERNAL_H
#define DURITE_PROVIDER_MEMORY_INTERNAL_H

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "base/thread.h"
#include "provider/memory/memory_tree.h"

#include <durite/provider.h>
#include <durite/sys/provider_methods.h>

#define DUR__MEM_TOKEN_SIZE 33 /* 32 hex digits and the NUL */
#define DUR__MEM_MESSAGE_ID_MS DUR_HOURS(24)
#define DUR__MEM_WAITED_LONG_MS 100u

typedef struct dur__mem dur__mem;
typedef struct dur__mem_instance dur__mem_instance;
typedef struct dur__mem_owner dur__mem_owner;
typedef struct dur__mem_lane dur__mem_lane;

/* Messages of one queue of an instance, or (queue NULL) all its messages that are not of a queue. */
typedef struct dur__mem_channel {
    char *queue;
    dur__mem_tree now, later, given; /* by (order_ms, id) */
} dur__mem_channel;

typedef struct dur__mem_message {
    uint64_t id;
    uint64_t due_ms;   /* 0: visible whatever the clock says */
    uint64_t order_ms; /* due time, or when it came (came_ms) */
    uint32_t attempts; /* fetches */
    bool counted;      /* the holder of the lease got it by a fetch, which counted */
    dur_work_kind kind;
    uint64_t execution_id, activity_id;
    dur__mem_instance *instance;
    dur__mem_channel *channel;
    dur__mem_node place;  /* in the channel */
    dur__mem_node reason; /* in instance->reason_now or reason_later */
    dur__mem_node timer;  /* TimerFired: in instance->timers by (activity_id, id) */
    char *handler;        /* a start's or continue-as-new's; NULL: says nothing */
    char *parent;         /* a start's; NULL: it is nobody's call */
    dur__link call;       /* in the family of its parent */
    size_t json_size;
    char json[];
} dur__mem_message;

/* Messages on their way to a caller; zeroed: empty.  Free items. */
typedef struct dur__mem_batch {
    dur__mem_message **items;
    size_t count, room;
} dur__mem_batch;

typedef struct dur__mem_event {
    uint64_t event_id;
    size_t json_size;
    char *json;
} dur__mem_event;

typedef struct dur__mem_execution {
    uint64_t execution_id;
    bool has_row; /* false: known by its events only */
    dur_status status;
    char *output;
    uint64_t started_at_ms, completed_at_ms;
    bool has_pin;
    dur_semver pin;
    dur__mem_event *events; /* by event_id */
    size_t event_count, event_room;
    size_t event_bytes;
} dur__mem_execution;

typedef struct dur__mem_value {
    char *key;
    char *value; /* NULL, in the delta only: cleared */
    uint64_t stamp_ms;
} dur__mem_value;

/* A message id that was accepted, kept to recognise a second one. */
typedef struct dur__mem_accepted {
    dur__link link; /* in instance->accepted, oldest first */
    uint64_t execution_id;
    uint64_t boot_ms;
    char text[];
} dur__mem_accepted;

/* Instances with the same handler and pinned version, so that a fetch looks only at those that it may take. */
typedef struct dur__mem_bucket {
    struct dur__mem_bucket *next;
    char *handler; /* "": none is needed */
    bool lost;     /* those are anybody's (dur__mem_look) */
    bool has_pin;
    dur_semver pin;
    dur__mem_tree ready[2]; /* by (order_ms, id) of the first reason; [1]: suspects */
} dur__mem_bucket;

/* A lease has ended without its holder, and work may have been open that has no row. */
typedef enum dur__mem_look {
    DUR__MEM_LOOK_NONE,
    DUR__MEM_LOOK,
    DUR__MEM_LOOK_CRASH /* its owner died */
} dur__mem_look;

struct dur__mem_instance {
    char *id;
    bool has_row;
    char *name, *version, *parent, *suspended, *custom_status;
    char *handler;  /* what a node must have to run it; NULL: nothing */
    uint64_t birth; /* 0: none */
    uint64_t custom_status_version;
    uint64_t current_execution; /* highest that was committed or appended; 0: none */
    uint64_t created_at_ms, updated_at_ms;
    uint64_t start_at_ms;            /* when the start that waits was enqueued */
    dur__mem_execution **executions; /* by execution_id */
    size_t execution_count, execution_room;
    size_t event_count; /* of all executions */
    dur__map kv, kv_delta;
    dur__map accepted_ids;
    dur__link accepted;

    dur__mem_channel plain;
    dur__map queues; /* dur__mem_channel by name */
    dur__mem_tree reason_now, reason_later;
    dur__mem_tree timers;
    dur__mem_tree works; /* by (activity_id, row id) */
    size_t message_count, queue_message_count, start_count, cancel_count;

    /* the lease; token is empty when there is none */
    char token[DUR__MEM_TOKEN_SIZE];
    dur__mem_owner *owner;    /* NULL: a timed lock */
    dur__mem_lane *lane;      /* who is told of messages; NULL: nobody */
    uint64_t expires_boot_ms; /* of a timed lock */
    uint32_t acquisitions;    /* in a row without a commit */
    uint32_t crashes;         /* of those acquisitions (with 0 of them: old, and nothing) … */
    uint32_t crashes_alone;   /* … and while it ran alone */
    bool runs_alone;
    uint64_t not_before_ms; /* given back with a delay that lasts; 0: none */
    uint32_t open;          /* activities that were open after the last turn with events: a hint */
    dur__mem_look look;     /* a reason to fetch it, until the holder of a lease commits */
    uint64_t look_ms;       /* since when */

    dur__mem_node place; /* in bucket->ready[], wall or boot */
    dur__link by_owner;  /* in owner->leases */
    dur__link by_lane;   /* in lane->leases */
    dur__link told;      /* in lane->told: there may be messages to hand out */
    dur__link sibling;   /* in the family of its parent */
    bool marked;         /* scratch of delete */
};

static inline bool dur__mem_suspect(const dur__mem_instance *instance) {
    return instance->acquisitions > 0 && instance->crashes >= DUR_SUSPECT_CRASHES;
}

typedef struct dur__mem_family {
    char *parent;
    dur__link children; /* instances */
    dur__link calls;    /* starts that wait, also behind others */
} dur__mem_family;

typedef struct dur__mem_session {
    char *name;
    char *holder;          /* worker node; NULL: never claimed */
    bool held;             /* the holder's claim is valid */
    dur__mem_owner *owner; /* valid while this one lives; NULL: until expires_boot_ms */
    uint64_t lock_ms;
    uint64_t active_boot_ms;
    dur__mem_node expiry; /* in mem->session_times by (expires, serial) */
    uint64_t serial;
    dur__link rows;
    size_t row_count;
    dur__link by_owner; /* in owner->sessions */
} dur__mem_session;

typedef enum dur__mem_shelf_kind { DUR__MEM_PLAIN, DUR__MEM_SESSION_FREE, DUR__MEM_SESSION_HELD } dur__mem_shelf_kind;

/* Worker rows that can be fetched by the same callers. */
typedef struct dur__mem_shelf {
    char *key;
    dur__mem_shelf_kind kind;
    char *tag;             /* NULL: untagged */
    char *handler;         /* the activity's name; NULL: not known */
    char *holder;          /* SESSION_HELD */
    dur__mem_tree rows[2]; /* by (id, 0); [1]: suspects */
} dur__mem_shelf;

typedef struct dur__mem_work {
    uint64_t id;
    dur__mem_instance *instance;
    uint64_t execution_id, activity_id;
    char *tag, *handler;
    dur__mem_session *session;
    uint32_t attempts;
    uint32_t crashes, crashes_alone;
    bool runs_alone;
    char *token;            /* NULL: not locked */
    dur__mem_owner *owner;  /* NULL: the lock is timed */
    uint64_t until_boot_ms; /* end of the timed lock */
    uint64_t not_before_ms; /* given back with a delay that lasts; 0: none */
    uint64_t since_boot_ms; /* when it was put on its shelf */
    dur__mem_shelf *shelf;
    dur__mem_node place; /* on a shelf, in mem->work_times or in mem->work_delays */
    dur__mem_node by_ref;
    dur__link by_owner;
    dur__link by_session;
    size_t json_size;
    char json[];
} dur__mem_work;

static inline bool dur__mem_work_suspect(const dur__mem_work *work) {
    return work->crashes >= DUR_SUSPECT_CRASHES;
}

/* The handlers that an owner has; count SIZE_MAX: all. */
typedef struct dur__mem_has {
    char **keys;
    size_t count;
} dur__mem_has;

struct dur__mem_owner {
    char *id;
    dur__mem_has handlers, activities;
    uint64_t timeout_ms;
    uint64_t beat_boot_ms;
    dur__link leases, works, sessions;
};

typedef struct dur__mem_letter {
    uint64_t id;
    char *instance, *reason;
    uint64_t at_ms;
    size_t json_size;
    char json[];
} dur__mem_letter;

/* One instance that somebody watches; lives while watched, whether the instance exists or not. */
typedef struct dur__mem_point {
    char *instance;
    size_t watchers;
    uint64_t changes;
    dur__cond changed;
} dur__mem_point;

/* Instances that a lane is to be told of; zeroed: none. */
typedef struct dur__mem_names {
    char **list;
    size_t count, room;
} dur__mem_names;

struct dur__mem_lane {
    dur_lane base;
    dur__mem *mem;
    char *owner;
    dur_waker *waker;
    const dur_handler_filter *handlers;
    dur__link link; /* in mem->lanes */
    dur__link leases, told;
    dur__mem_names lost, asked;
    uint64_t looked; /* mem->stamp when the last round ended */
};

struct dur__mem {
    dur__mutex mutex;
    dur__cond changed; /* something became visible: for long polls */
    const dur_world *world;
    bool real_time;  /* who sleeps until something is due finds it due; else others move the clock */
    char *name;      /* NULL: not shared */
    size_t handles;  /* guarded by the registry's mutex */
    uint64_t serial; /* of the process that made it */

    uint64_t now_ms, boot_ms; /* read when entering */
    uint64_t came_ms;         /* order of undelayed messages: the time, and never less than it was */
    uint64_t stamp;           /* grows when something becomes fetchable */
    uint64_t stamp_told;      /* up to here sleepers have been woken */
    dur__mem_lane *self;      /* the lane inside a round: not to be woken */

    dur__map instances;
    dur__map families;
    dur__map leases;   /* dur__mem_instance by token */
    dur__map messages; /* by id */
    uint64_t last_message_id;
    dur__mem_bucket *buckets;
    dur__mem_tree wall, boot; /* instances by (time, serial of insertion) */
    uint64_t last_place;
    dur__map owners;
    dur__link members; /* of crashes that are in doubt (memory_doubt.c) */
    uint64_t last_crash;
    uint64_t crashed_at_ms; /* wall */
    dur__link lanes;
    dur__map points;
    dur__map letters;
    uint64_t last_letter_id;

    dur__map works;  /* dur__mem_work by row id */
    dur__map claims; /* dur__mem_work by token */
    uint64_t last_work_id;
    dur__map shelves;
    dur__mem_tree work_times;  /* by (until_boot_ms, id) */
    dur__mem_tree work_delays; /* by (not_before_ms, id) */
    dur__map sessions;
    dur__mem_tree session_times;
    uint64_t last_session;
    dur__buf scratch;
    bool no_room;         /* since the round began: something was left where it is */
    dur__reserve reserve; /* for the change under way */
    dur__cover cover;     /* of whoever is inside */
};

/* What a change may need (memory_room.c); zeroed: a little. */
typedef struct dur__mem_need {
    size_t bytes;
    size_t messages, parents; /* new ones, and those that name a parent */
    size_t works, letters;
} dur__mem_need;

/* What dur_open gives out: one per handle. */
typedef struct dur__mem_handle {
    dur_provider base;
    dur__mem *mem;
    bool long_poll;
} dur__mem_handle;

static inline dur__mem *dur__mem_of(dur_provider *self) {
    return ((dur__mem_handle *)(void *)self)->mem;
}

/* How long a fetch may block. */
static inline uint64_t dur__mem_poll_ms(dur_provider *self, uint64_t poll_ms) {
    return ((dur__mem_handle *)(void *)self)->long_poll ? poll_ms : 0;
}

/* The boot time at which a lock of ms ends. */
static inline uint64_t dur__mem_boot_after(const dur__mem *mem, uint64_t ms) {
    return ms > UINT64_MAX - 1 - mem->boot_ms ? UINT64_MAX - 1 : mem->boot_ms + ms;
}

/* The wall time at which a delay of ms ends; 0: there is none. */
static inline uint64_t dur__mem_wall_after(const dur__mem *mem, uint64_t ms) {
    if (ms == 0) return 0;
    return ms > UINT64_MAX - 1 - mem->now_ms ? UINT64_MAX - 1 : mem->now_ms + ms;
}

/* memory_store.c */
bool dur__mem_enter(dur__mem *mem);        /* false: no memory, and nobody has entered */
void dur__mem_enter_anyway(dur__mem *mem); /* for what needs none */
void dur__mem_leave(dur__mem *mem);
void dur__mem_advance(dur__mem *mem);            /* reads the clocks and lets time take effect */
uint64_t dur__mem_next_due(const dur__mem *mem); /* wall time of the next change by time; DUR_NEVER */
/* Sleep on cond (mutex held) until it is signalled, time brings something, or deadline (monotonic µs): false then. */
bool dur__mem_sleep(dur__mem *mem, dur__cond *cond, uint64_t deadline_us);
uint64_t dur__mem_deadline(uint64_t timeout_ms);
void dur__mem_token(dur__mem *mem, char out[DUR__MEM_TOKEN_SIZE]);
void dur__mem_bury(dur__mem *mem, const char *instance, const char *reason, const char *json, size_t json_size);
void dur__mem_letter_free(dur__mem_letter *letter);

/* memory_room.c.  False: there is no memory, and nothing has changed. */
bool dur__mem_room(dur__mem *mem, const dur__mem_need *need);
bool dur__mem_room_bytes(dur__mem *mem, size_t bytes);
bool dur__mem_room_turn(dur__mem *mem, dur__mem_instance *instance, const dur__mem_execution *execution,
                        const dur_turn_commit *turn, bool letters);
bool dur__mem_room_append(dur__mem *mem, const dur__mem_execution *execution, const char *instance,
                          const dur_event_row *events, size_t count);
bool dur__mem_room_fetch(dur__mem *mem, dur__mem_instance *instance, const dur_fetch *how);
/* With what *bytes says of those before it: all are copied at the end. */
bool dur__mem_room_held(dur__mem *mem, dur__mem_instance *instance, size_t *bytes);
bool dur__mem_room_work(dur__mem *mem, const dur__mem_work *work, const dur_work_fetch *how);
void dur__mem_need_message(dur__mem *mem, dur__mem_need *need, const dur_message_row *item);
void dur__mem_need_work(dur__mem_need *need, const dur_message_row *item);
void dur__mem_need_letters(dur__mem *mem, dur__mem_need *need, dur__mem_instance *instance);
void dur__mem_need_erase(dur__mem *mem, dur__mem_need *need, dur__mem_instance *instance);
size_t dur__mem_need_name(const dur__mem_names *names, const char *instance);

/* memory_instance.c: instances, executions, KV */
dur__mem_instance *dur__mem_find(dur__mem *mem, const char *id);
dur__mem_instance *dur__mem_make(dur__mem *mem, const char *id);
void dur__mem_settle(dur__mem *mem, dur__mem_instance *instance); /* places it again, or frees it when it is empty */
void dur__mem_place(dur__mem *mem, dur__mem_instance *instance);
void dur__mem_erase(dur__mem *mem, dur__mem_instance *instance, dur_delete_result *count); /* all of it */
bool dur__mem_exists(const dur__mem_instance *instance);
dur_status dur__mem_status(const dur__mem_instance *instance); /* RUNNING where nothing is known */
bool dur__mem_ended(const dur__mem_instance *instance);        /* for good: COMPLETED or FAILED */
bool dur__mem_finished(const dur__mem_instance *instance);     /* completed or failed, nothing waiting to start it */
dur__mem_execution *dur__mem_execution_find(const dur__mem_instance *instance, uint64_t execution_id);
dur__mem_execution *dur__mem_execution_make(dur__mem *mem, dur__mem_instance *instance, uint64_t execution_id);
void dur__mem_execution_free(dur__mem_execution *execution);
uint64_t dur__mem_last_event(const dur__mem_execution *execution);
int dur__mem_events_check(const dur__mem_execution *execution, const dur_event_row *events, size_t count,
                          dur_error *err);
void dur__mem_events_add(dur__mem_instance *instance, dur__mem_execution *execution, const dur_event_row *events,
                         size_t count);
dur_event_row *dur__mem_events_copy(const dur__mem_execution *execution, dur_arena *arena, size_t *count);
void dur__mem_row(dur__mem *mem, dur__mem_instance *instance, const dur_execution_metadata *metadata);
void dur__mem_handler(dur__mem_instance *instance, const dur_execution_metadata *metadata); /* as a turn says */
dur__mem_family *dur__mem_family_of(dur__mem *mem, const char *parent);
dur__mem_family *dur__mem_family_make(dur__mem *mem, const char *parent);
void dur__mem_family_leave(dur__mem *mem, const char *parent, dur__link *member);
void dur__mem_set_text(char **at, const char *text);
void dur__mem_changed(dur__mem *mem, const dur__mem_instance *instance); /* tells the watchers */

/* memory_kv.c */
void dur__mem_kv_apply(dur__mem_instance *instance, const dur_event_row *event);
void dur__mem_kv_merge(dur__mem_instance *instance);
dur_key_value *dur__mem_kv_snapshot(const dur__mem_instance *instance, dur_arena *arena, size_t *count);
dur_key_value *dur__mem_kv_merged(const dur__mem_instance *instance, dur_arena *arena, size_t *count);
void dur__mem_kv_free(dur__map *map);
int dur__mem_get_kv_value(dur_provider *self, dur_arena *arena, const char *instance, const char *key,
                          const char **value, dur_error *err);
int dur__mem_get_kv_all_values(dur_provider *self, dur_arena *arena, const char *instance, dur_key_value **out,
                               size_t *count, dur_error *err);

/* memory_message.c: messages, and what the holder of a lease knows of them */
dur__mem_message *dur__mem_enqueue(dur__mem *mem, const dur_message_row *item, uint64_t delay_ms);
void dur__mem_message_free(dur__mem *mem, dur__mem_message *message); /* the caller settles its instance */
bool dur__mem_visible(const dur__mem *mem, const dur__mem_message *message);
dur__mem_message *dur__mem_first_reason(const dur__mem *mem, const dur__mem_instance *instance);
dur__mem_message *dur__mem_first_start(const dur__mem_instance *instance); /* NULL: none is waiting */
dur__mem_message *dur__mem_first_orphan(const dur__mem *mem, const dur__mem_instance *instance);
uint64_t dur__mem_next_reason(const dur__mem *mem, const dur__mem_instance *instance); /* due; DUR_NEVER */
void dur__mem_bury_orphans(dur__mem *mem, dur__mem_instance *instance);
/* Hand out what the holder does not know, at most queue_max of each queue (0: all); true when some were left out.
   A fetch counts; what comes to a lease that is held does not. */
bool dur__mem_give(dur__mem *mem, dur__mem_instance *instance, bool fetch, uint32_t queue_max, dur__mem_batch *batch);
void dur__mem_take_back(dur__mem *mem, dur__mem_instance *instance, uint64_t seen_id, uint64_t seen_now_ms);
void dur__mem_all_count(dur__mem_instance *instance); /* every message is a reason again */
typedef void dur__mem_message_fn(dur__mem *mem, dur__mem_message *message, void *arg);
void dur__mem_each_given(dur__mem *mem, dur__mem_instance *instance, dur__mem_message_fn *fn, void *arg);
void dur__mem_each_message(dur__mem *mem, dur__mem_instance *instance, dur__mem_message_fn *fn, void *arg);
void dur__mem_batch_add(dur__mem_batch *batch, dur__mem_message *message);
void dur__mem_batch_sort(dur__mem_batch *batch);  /* by (order_ms, id) */
void dur__mem_uncount(dur__mem_message *message); /* the fetch that handed it out does not count */
dur_fetched_message dur__mem_message_copy(const dur__mem_message *message, dur_arena *arena);
dur__mem_channel *dur__mem_channel_find(dur__mem_instance *instance, const char *queue);

/* memory_lease.c: locks on instances */
bool dur__mem_leased(const dur__mem_instance *instance);
/* The acquisition says nothing against the instance: neither its count nor those of its messages keep it. */
void dur__mem_lease_uncount(dur__mem *mem, dur__mem_instance *instance);
void dur__mem_lease_end(dur__mem *mem, dur__mem_instance *instance, uint64_t seen_id, uint64_t seen_now_ms);
void dur__mem_lease_lost(dur__mem *mem, dur__mem_instance *instance); /* ends it behind its holder's back */
void dur__mem_lease_hold(dur__mem *mem, dur__mem_instance *instance, dur__mem_owner *owner, dur__mem_lane *lane);
dur__mem_instance *dur__mem_lease_find(dur__mem *mem, const char *token);
bool dur__mem_fetch_one(dur__mem *mem, dur__mem_lane *lane, const dur_fetch *how, dur_arena *arena,
                        dur_orchestration_item *out);
bool dur__mem_fetchable(dur__mem *mem, const dur_fetch *how);
uint32_t dur__mem_suspect_first(dur__mem *mem, const dur_fetch *how);
int dur__mem_fetch_orchestration_item(dur_provider *self, dur_arena *arena, const dur_fetch *how,
                                      dur_orchestration_item *out, dur_error *err);
int dur__mem_abandon_orchestration_item(dur_provider *self, const char *lock_token, uint64_t delay_ms,
                                        bool ignore_attempt, dur_error *err);
int dur__mem_renew_orchestration_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms,
                                           dur_error *err);
int dur__mem_fetch_turns(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                         size_t *count, dur_error *err);

/* memory_turn.c: the commit */
void dur__mem_commit(dur__mem *mem, dur__mem_lane *lane, dur_arena *arena, dur_turn_commit *turn);
int dur__mem_ack_orchestration_item(dur_provider *self, dur_turn_commit *turn, dur_error *err);
int dur__mem_commit_turns(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err);
int dur__mem_append(dur_provider *self, const char *instance, uint64_t execution_id, const dur_event_row *events,
                    size_t count, dur_error *err);
int dur__mem_read(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution_id,
                  dur_event_row **out, size_t *count, dur_error *err);

/* memory_work.c: the worker queue */
dur__mem_work *dur__mem_work_add(dur__mem *mem, const dur_message_row *item);
void dur__mem_work_remove(dur__mem *mem, dur__mem_work *work); /* the caller settles its instance */
void dur__mem_work_drop(dur__mem *mem, dur__mem_work *work);   /* the same for one that nobody has seen end */
void dur__mem_work_unlock(dur__mem *mem, dur__mem_work *work, uint64_t delay_ms);
void dur__mem_shelf_free(dur__mem_shelf *shelf);
void dur__mem_work_place(dur__mem *mem, dur__mem_work *work);
bool dur__mem_work_lock_eagerly(dur__mem *mem, dur__mem_work *work, const dur_turn_commit *turn, const char *token);
dur__mem_work *dur__mem_work_find(dur__mem *mem, const dur_activity_ref *ref, const char *instance);
dur__mem_work *dur__mem_work_claimed(dur__mem *mem, const dur_worker_claim *claim, const char *instance);
bool dur__mem_work_fetch(dur__mem *mem, const dur_work_fetch *how, dur_arena *arena, dur_leased_work *out);
dur__mem_work *dur__mem_work_first(dur__mem *mem, const dur_work_fetch *how, dur_fetch_kind kind);
void dur__mem_work_ack(dur__mem *mem, dur_work_ack *ack);
void dur__mem_work_touch(dur__mem *mem, dur__mem_work *work); /* its session was active */
void dur__mem_work_due(dur__mem *mem);                        /* locks and delays that have ended */
int dur__mem_enqueue_for_worker(dur_provider *self, const dur_message_row *item, dur_error *err);
int dur__mem_fetch_work_item(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                             dur_error *err);
int dur__mem_ack_work_item(dur_provider *self, const char *lock_token, const dur_message_row *completion,
                           dur_error *err);
int dur__mem_renew_work_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms, dur_error *err);
int dur__mem_abandon_work_item(dur_provider *self, const char *lock_token, uint64_t delay_ms, bool ignore_attempt,
                               dur_error *err);
int dur__mem_fetch_works(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                         size_t *count, dur_error *err);
int dur__mem_ack_works(dur_provider *self, dur_work_ack *acks, size_t count, dur_error *err);
int dur__mem_check_works(dur_provider *self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                         bool *lost, dur_error *err);
int dur__mem_return_works(dur_provider *self, const dur_worker_claim *claims, size_t count, dur_error *err);
int dur__mem_alone_ended(dur_provider *self, const char *lock_token, dur_error *err);

/* memory_doubt.c; work: a row's id, 0: the instance itself */
uint32_t dur__mem_doubts(dur__mem *mem, const char *instance,
                         uint64_t work); /* crashes alone that are not to be told */
void dur__mem_doubt_for_good(dur__mem *mem, const char *instance, uint64_t work);
void dur__mem_crash_begin(dur__mem *mem, const dur__mem_owner *owner);
#define DUR__MEM_LOCAL UINT64_MAX /* as a row's id: what was local under the lease that its owner's death has ended */
void dur__mem_doubt_row(dur__mem *mem, const char *instance, uint64_t work); /* such work has this row now */
void dur__mem_doubt_no_more(dur__mem *mem, const char *instance);            /* … and no other */
void dur__mem_crash_end(dur__mem *mem);
void dur__mem_doubts_free(dur__mem *mem);
const char *dur__mem_check_doubts(dur__mem *mem, const char **who);
int dur__mem_blame(dur_provider *self, const char *lock_token, dur_error *err);
int dur__mem_dead_letter_work(dur_provider *self, const char *lock_token, const char *reason, dur_error *err);

/* memory_session.c */
dur__mem_session *dur__mem_session_make(dur__mem *mem, const char *name);
bool dur__mem_session_admits(const dur__mem_session *session, const char *holder);
void dur__mem_session_claim(dur__mem *mem, dur__mem_session *session, const char *holder, dur__mem_owner *owner,
                            uint64_t lock_ms);
void dur__mem_session_tidy(dur__mem *mem, dur__mem_session *session);   /* frees it when nothing needs it */
void dur__mem_session_orphan(dur__mem *mem, dur__mem_session *session); /* its owner is gone */
void dur__mem_sessions_due(dur__mem *mem);
void dur__mem_session_free(dur__mem_session *session);
int dur__mem_renew_session_lock(dur_provider *self, const char *const *owners, size_t owner_count, uint64_t extend_ms,
                                uint64_t idle_ms, uint64_t *renewed, dur_error *err);
int dur__mem_cleanup_orphaned_sessions(dur_provider *self, uint64_t idle_ms, uint64_t *removed, dur_error *err);

/* memory_owner.c */
dur__mem_owner *dur__mem_owner_find(dur__mem *mem, const char *id); /* NULL gives NULL */
void dur__mem_owner_free(dur__mem_owner *owner);
bool dur__mem_session_stuck(const dur__mem_work *work); /* it is free, and its session's owner has no handler for it */
bool dur__mem_unserved(dur__mem *mem, const dur__mem_instance *instance); /* it waits, and no owner has its handler */
int dur__mem_list_unserved(dur_provider *self, dur_arena *arena, size_t each, dur_unserved **out, size_t *count,
                           dur_error *err);
int dur__mem_owner_register(dur_provider *self, const dur_owner_options *options, dur_error *err);
int dur__mem_owner_beat(dur_provider *self, const char *owner, dur_owner_report *out, dur_error *err);
int dur__mem_owner_release(dur_provider *self, const char *owner, dur_error *err);
int dur__mem_owner_holdings(dur_provider *self, dur_arena *arena, const char *owner, dur_holding **out, size_t *count,
                            dur_error *err);

/* memory_lane.c */
void dur__mem_lane_tell(dur__mem_lane *lane, dur__mem_instance *instance);
void dur__mem_lane_lost(dur__mem_lane *lane, const char *instance);
void dur__mem_lane_ask(dur__mem_lane *lane, const char *instance); /* to give it up */
int dur__mem_lane_open(dur_provider *self, const dur_lane_options *options, dur_lane **out, dur_error *err);
int dur__mem_lane_round(dur_lane *lane, dur_arena *arena, dur_round *round, dur_error *err);
int dur__mem_lane_rest(dur_lane *lane, dur_rest *out, dur_error *err);
int dur__mem_lane_rise(dur_lane *lane, const dur_rest *slept, bool *news, dur_error *err);
void dur__mem_lane_close(dur_lane *lane);
int dur__mem_lane_messages(dur_lane *lane, dur_arena *arena, const char *instance, const char *lock_token,
                           const char *queue, uint64_t after_due_ms, uint64_t after_id, size_t max,
                           dur_fetched_message **out, size_t *count, dur_error *err);
int dur__mem_lane_history(dur_lane *lane, dur_arena *arena, const char *instance, const char *lock_token,
                          uint64_t execution_id, dur_orchestration_item *out, dur_error *err);

/* memory_client.c */
void dur__mem_accepted_free(dur__mem_instance *instance);
void dur__mem_accepted_forget(dur__mem *mem, dur__mem_instance *instance, uint64_t ended_execution);
int dur__mem_enqueue_for_orchestrator(dur_provider *self, const dur_message_row *item, uint64_t delay_ms,
                                      dur_error *err);
int dur__mem_enqueue_start(dur_provider *self, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms,
                           bool *existed, dur_error *err);
int dur__mem_enqueue_existing(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err);
int dur__mem_get_custom_status(dur_provider *self, dur_arena *arena, const char *instance, uint64_t last_seen,
                               bool *changed, const char **status, uint64_t *version, dur_error *err);
int dur__mem_watch_open(dur_provider *self, const char *instance, dur_watch **out, dur_error *err);
int dur__mem_watch_wait(dur_watch *watch, uint64_t timeout_ms, dur_error *err);
void dur__mem_watch_wake(dur_watch *watch);
void dur__mem_watch_close(dur_watch *watch);
int dur__mem_enqueue_starts(dur_provider *self, dur_start_request *starts, size_t count, dur_error *err);
int dur__mem_get_instance_stats(dur_provider *self, dur_arena *arena, const char *instance, bool *found,
                                dur_instance_stats *out, dur_error *err);

/* memory_admin.c and memory_delete.c */
int dur__mem_list_instances(dur_provider *self, dur_arena *arena, const dur_instance_query *query,
                            dur_instance_row **out, size_t *count, dur_error *err);
int dur__mem_get_instance(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out,
                          dur_error *err);
int dur__mem_list_executions(dur_provider *self, dur_arena *arena, const char *instance, dur_execution_row **out,
                             size_t *count, dur_error *err);
int dur__mem_get_system_metrics(dur_provider *self, dur_system_metrics *out, dur_error *err);
int dur__mem_get_queue_depths(dur_provider *self, dur_queue_depths *out, dur_error *err);
int dur__mem_delete_instances(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count,
                              bool force, dur_delete_result *out, dur_error *err);
int dur__mem_delete_instances_bulk(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out,
                                   dur_error *err);
bool dur__mem_tree_finished(dur__mem *mem, dur__mem_instance *root, const char **running);
/* With room for the message that follows (NULL: none). */
int dur__mem_erase_tree(dur__mem *mem, dur__mem_instance *root, const dur_message_row *next, dur_delete_result *out,
                        dur_error *err);
int dur__mem_prune_executions(dur_provider *self, const char *instance, const dur_prune_options *options,
                              dur_prune_result *out, dur_error *err);
int dur__mem_prune_executions_bulk(dur_provider *self, const dur_bulk_filter *filter, const dur_prune_options *options,
                                   dur_prune_result *out, dur_error *err);
int dur__mem_dead_letter_messages(dur_provider *self, const char *instance, const uint64_t *ids, size_t count,
                                  const char *reason, dur_error *err);
int dur__mem_list_dead_letters(dur_provider *self, dur_arena *arena, uint64_t after_id, size_t limit,
                               dur_dead_letter **out, size_t *count, dur_error *err);
int dur__mem_delete_dead_letters(dur_provider *self, const uint64_t *ids, size_t count, dur_error *err);
int dur__mem_set_suspended(dur_provider *self, const char *instance, const char *reason, dur_error *err);

/* memory_check.c */
int dur__mem_check(dur_provider *self, dur_error *err);

#endif
