/*
 * pg_internal.h: what the files of the PostgreSQL store share: the store, its lanes and their leases.
 */
#ifndef DURITE_PROVIDER_PG_INTERNAL_H
#define DURITE_PROVIDER_PG_INTERNAL_H

#include "base/heap.h"
#include "base/thread.h"
#include "provider/postgres/pg_methods.h"
#include "provider/postgres/pg_wire.h"
#include "provider/turn.h"

#include <durite/postgres.h>

#define DUR__PG_TOKEN_SIZE 33
#define DUR__PG_DEFAULT_POOL 4u

/* In a process: somebody waits for changes of an instance. */
typedef struct dur__pg_watch {
    dur_watch base;
    dur__pg *store;
    char *instance;
    dur__cond cond;
    bool changed, waiting;
    uint64_t look_us;           /* then it reports a change at the latest */
    struct dur__pg_watch *same; /* of the same instance */
    dur__link link;
} dur__pg_watch;

/* A look of this process at all owners. */
typedef struct dur__pg_glance {
    int64_t now_ms;    /* the server's clock */
    uint64_t asked_us; /* our own: before the look … */
    uint64_t seen_us;  /* … and after it; 0: there was none */
} dur__pg_glance;

/* What it shows of a peer. */
typedef struct dur__pg_sight {
    int64_t beat_ms; /* by the server's clock, or beyond it: each differs from the one before */
    uint64_t timeout_ms;
    bool is_free; /* its lock, while that is evidence */
} dur__pg_sight;

/* What this process knows of a peer. */
typedef struct dur__pg_look {
    char *owner;
    dur__pg_glance at; /* the last one that showed it */
    dur__pg_sight last;
    uint64_t silent_us; /* how long that beat has been the last one, at our looks … */
    uint64_t quiet_us;  /* … and with what can be told of how old it was at the first of them */
    uint64_t free_us;   /* how long the lock was free at every look */
    uint32_t refused;   /* take-overs in a row that did not succeed */
} dur__pg_look;

typedef struct dur__pg_keeper {
    char *owner;
    uint64_t timeout_ms;
    dur__pg_conn *conn;
    int64_t beat_ms;      /* the last one that was answered; 0: none; … */
    int64_t server_start; /* … and by which server */
    bool went_back;       /* the store is not in the state that it had told */
    dur__link link;
} dur__pg_keeper;

typedef struct dur__pg_lane {
    dur_lane base;
    dur__pg *store;
    dur__pg_conn *conn;
    int64_t holder; /* this lane in the instances' rows */
    char *owner;
    dur_waker *waker;
    const dur_handler_filter *handlers;      /* NULL: all */
    char unknown_prefix[DUR__PG_TOKEN_SIZE]; /* of the tokens of the last round */
    bool unknown;                            /* the outcome of a round was not learned: what it took is unknown too */
    int lost_backend;                        /* the session of that round */
    dur__pg_array unborn_works; /* tokens of work that its first turns have locked for us, if it happened */
    bool notify_pending;        /* others are to be told of a round … */
    bool notify_urgent;         /* … and have something to do, not only to see */
    /* what the last probe or look has said (pg_round.c) */
    uint64_t next_due_ms, now_ms, answered_us;
    uint64_t seen_id, seen_ms; /* of the last look */
    bool more;                 /* a look would find something */
    unsigned held_looks;       /* in a row that found a message for a row that somebody held */
    bool unseen;               /* something became visible that no round has asked for since */
    bool works_late, free_instances, free_work;
    uint32_t suspect_instance, suspect_work; /* as in dur_round */
    bool asks_for_work; /* it has asked before: what a round that does not ask leaves unseen may be for it */
    bool crowded;       /* the last look found as many as it may take */
    bool passed_over;   /* the last whole look saw free instances and was not there to take any */
    uint64_t whole_look_us, whole_look_ms;
    atomic_bool news;      /* something was sent or set free since the last look */
    atomic_bool doubts;    /* the server may know less than the lane (pg_lease.c) */
    uint64_t rest_at_us;   /* since when it has had nothing to do; 0: it has */
    dur__map held_up;      /* instances whose rows somebody else held, see pg_held_up.c */
    dur__map leases;       /* what it holds, see pg_lease.c */
    int64_t server_start;  /* of the server on which history is as the leases say; 0: not known */
    int64_t timeline;      /* of its log */
    uint64_t session;      /* the one in which that was learned: another may find another database */
    int64_t rounds;        /* number of the last one; the first is DUR__PG_NO_ROUND + 1 */
    int64_t unknown_round; /* … of the one whose outcome was not learned */
    dur__heap timers;      /* of its leases, those that it has not handed out, see pg_timer.c */
    dur__map timers_by_id; /* all of them */
    dur__link link;        /* in store->lanes */
} dur__pg_lane;

struct dur__pg {
    dur_provider base;
    char **keywords; /* of PQconnectdbParams, ended by NULL */
    char **values;
    char *schema;        /* as given */
    char *identity;      /* which store it is, among those of this process */
    dur__buf prefix;     /* quoted and with a dot */
    char channel[64];    /* of LISTEN */
    int64_t schema_key;  /* for advisory locks */
    char *given_options; /* the caller's startup options; NULL: none */
    bool pooler;         /* transaction mode: no session state */
    bool session_pooler; /* session mode: what we set is undone when we leave */
    bool long_poll;
    bool must_exist;
    bool temporary; /* its schema goes with it */
    bool caller_clock;
    const dur_world *world;
    size_t pool_max;
    uint64_t serial;
    atomic_int server_version; /* 0: not known yet */

    dur__mutex mutex;
    dur__cond freed; /* a pooled connection came back */
    dur__link idle;
    size_t opened;        /* pooled ones, idle or not */
    uint64_t pool_say_us; /* not before this is it said again that somebody waits for one */
    dur__map sqls;        /* expanded texts by address */
    dur__link lanes, watches, keepers;
    /* what was seen of the peers: by this process, whatever id it has just now */
    dur__map looks;
    dur__pg_glance looked;
    int64_t server_start; /* as of the last look */
    /* watching: one of the waiting threads reads the listening connection */
    dur__pg_conn *listener;
    bool listener_busy;
    dur__pg_watch *reader; /* the one that reads; woken by its waker instead of its condition */
    dur_waker *reader_waker;
    dur__map watched;             /* the first watch of each instance */
    dur__map backends;            /* sessions of this process: their notifications are no news */
    dur__cond changed;            /* for long polls */
    _Atomic uint64_t beaten_us;   /* an owner's beat has looked for its lanes */
    _Atomic uint64_t notified_us; /* the last notification of a lane */
    /* estimate of the server's time */
    atomic_ullong offset_known;
    _Atomic int64_t clock_offset_ms;
};

static inline dur__pg *dur__pg_of(dur_provider *self) {
    return (dur__pg *)(void *)self;
}

/* pg_open.c */
extern const dur_provider_methods dur__pg_methods;        /* the server's clock */
extern const dur_provider_methods dur__pg_caller_methods; /* the caller's clock: tests */

/* pg_handler.c */
void dur__pg_handlers(dur__pg_args *args, const dur_handler_filter *filter); /* a parameter: DUR__PG_HANDLERS */
const char *dur__pg_handler_of(const dur_message_row *item);                 /* as its worker row says it */

/* pg_history.c */
/* The events of `count` rows that are of one instance, from row `from` on, whose block begins at this column. */
dur_event_row *dur__pg_read_blocks(const PGresult *rows, int from, int count, int column, const char *instance,
                                   dur_arena *arena, size_t *events);

/* pg_schema.c */
#define DUR__PG_SCHEMA_VERSION 1
typedef struct dur__pg_migration {
    const char *const *parts; /* SQL texts, ended by NULL */
    int min_known;            /* from here on only libraries that know this schema version may use the schema */
} dur__pg_migration;
int dur__pg_migrate(dur__pg *store, dur_error *err);
int dur__pg_drop_schema(dur__pg *store, dur_error *err);
/* As a later version of this library would: further migrations behind ours.  For tests. */
int dur__pg_migrate_further(dur__pg *store, const dur__pg_migration *more, int count, dur_error *err);

/* pg_time.c */
void dur__pg_saw_now(dur__pg *store, uint64_t now_ms);
uint64_t dur__pg_deadline(uint64_t timeout_ms);
void dur__pg_token(dur__pg *store, char out[DUR__PG_TOKEN_SIZE]);
int64_t dur__pg_random_holder(dur__pg *store);
bool dur__pg_poll_pause(dur__pg *store, uint64_t deadline_us); /* false: the deadline has come */

/* pg_message.c: sending to instances */
typedef struct dur__pg_outbox {
    dur__pg_table messages;  /* the first column: whom they are for */
    dur__pg_array locks;     /* what else is locked with them */
    dur__pg_array receivers; /* who must exist, or the message goes nowhere */
    bool ends_leases;        /* of others: their rows are locked FOR UPDATE */
} dur__pg_outbox;
void dur__pg_outbox_begin(dur__pg_outbox *box);
void dur__pg_outbox_add(dur__pg_outbox *box, const dur_message_row *item, uint64_t delay_ms);
void dur__pg_outbox_add_behind(dur__pg_outbox *box,
                               const dur_message_row *item);         /* undelayed if its due time has passed */
void dur__pg_outbox_lock(dur__pg_outbox *box, const char *instance); /* with the targets */
/* Makes and locks rows, in one pass. */
void dur__pg_outbox_send_locks(dur__pg_outbox *box, dur__pg_batch *batch);
void dur__pg_outbox_send(dur__pg_outbox *box, dur__pg_batch *batch); /* as messages of turns */
void dur__pg_outbox_end(dur__pg_outbox *box);
extern const char dur__pg_sweep_sql[]; /* of $2: those that stand for nothing, and that nobody holds (DUR__PG_EMPTY) */
int dur__pg_start_on(dur__pg_conn *conn, dur_start_request *start, dur_error *err); /* in the caller's transaction */
int dur__pg_existing_on(dur__pg_conn *conn, const dur_message_row *item, uint64_t delay_ms, dur_error *err);

/* pg_commit.c: the one way to commit turns */
typedef struct dur__pg_turn_plan {
    int work_at;      /* statement whose rows are the new worker rows; -1: none */
    int timers_at;    /* … the new timers that the lane keeps */
    bool takes;       /* something under the owner's name */
    bool sends;       /* messages that are visible at once, perhaps to instances of this very lane */
    uint64_t due_ms;  /* the first of the others that it sends to its own instances */
    bool for_lanes;   /* other lanes have something to do afterwards */
    bool for_watches; /* a state that somebody may watch has changed */
} dur__pg_turn_plan;
/* Add the statements of these turns and acks.  Answers are read by dur__pg_turns_read after the batch ran. */
void dur__pg_turns_add(dur__pg_batch *batch, dur__pg_lane *lane, dur_turn_commit **turns, size_t count,
                       dur_work_ack *acks, size_t ack_count, dur__pg_turn_plan *plan);
void dur__pg_turns_read(const dur__pg_batch *batch, const dur__pg_turn_plan *plan, dur__pg_lane *lane,
                        dur_turn_commit **turns, size_t count);
bool dur__pg_touches_values(const dur_turn_commit *turn); /* key-value state */
bool dur__pg_turn_seen(const dur_turn_commit *turn);      /* it changes what watches watch */
/* All of them; where the batch is refused, without those that are found to be the reason.  Each turn has its answer. */
void dur__pg_turns_commit(dur__pg_conn *conn, dur__pg_lane *lane, dur_arena *arena, dur_turn_commit **turns,
                          size_t count);
/* Which instance it is of is known, and if it writes its start it is a lane's; false: it is refused. */
bool dur__pg_turn_found(const dur__pg_lane *lane, dur_turn_commit *turn);
void dur__pg_turns_failed(dur_turn_commit **turns, size_t count, const dur_error *err);
bool dur__pg_refused(const dur__pg_batch *batch, int code); /* a comparison or a unique key, not the store */
/* pg_refused.c: answer those of the turns that a comparison refuses; how many are left, in front.  DUR_OK: it was
   learned. */
int dur__pg_leave_refused(dur__pg_conn *conn, dur__pg_lane *lane, dur_arena *arena, dur_turn_commit **turns,
                          size_t *count, dur_error *err);

/* pg_round.c */
uint64_t dur__pg_lane_now_ms(const dur__pg_lane *lane); /* the store's time */
uint64_t dur__pg_lane_due_ms(const dur__pg_lane *lane); /* when something comes that it knows of; DUR_NEVER */

/* pg_timer.c */
uint64_t dur__pg_timers_next(const dur__pg_lane *lane); /* when the first of them is due; DUR_NEVER: there is none */
/* All that are due, behind what is held already. */
void dur__pg_timers_hand_out(dur__pg_lane *lane, uint64_t now_ms, dur_arena *arena, dur_round *round);

/* pg_held_up.c */
bool dur__pg_waited_too_long(const dur__pg_batch *batch); /* it failed because somebody held a row */
/* Refuse the turns whose rows are held, of all (waited), or of those whose rows were: how many are left, in front. */
size_t dur__pg_leave_held_up(dur__pg_lane *lane, dur_turn_commit **turns, size_t count, bool waited);
void dur__pg_held_up_forget(dur__pg_lane *lane);

/* pg_fetch.c */
#define DUR__PG_NO_ROUND 1 /* as a round that hands messages out: it is of no lane */
typedef struct dur__pg_fetch_plan {
    int claim_at, works_at, history_at, kv_at, give_at; /* -1: not asked */
} dur__pg_fetch_plan;
void dur__pg_fetch_add(dur__pg_batch *batch, const dur_fetch *how, int64_t holder, uint32_t held_queue_max,
                       const char *token_prefix, uint64_t low_ms, int64_t round, dur__pg_fetch_plan *plan);
/* Two parameters: the versions that pass; the texts must live until the statement is sent. */
typedef struct dur__pg_range {
    char least[DUR__PG_PIN_SIZE], most[DUR__PG_PIN_SIZE];
} dur__pg_range;
void dur__pg_range_args(dur__pg_args *args, const dur_capability_filter *filter, dur__pg_range *texts);
dur_fetched_message dur__pg_read_message(const PGresult *rows, int row, int column, dur_arena *arena);
/* held may be NULL where nothing is held. */
void dur__pg_fetch_read(const dur__pg_batch *batch, const dur__pg_fetch_plan *plan, dur_arena *arena,
                        dur_orchestration_item **items, size_t *count, dur_held_message **held, size_t *held_count);
/* Give back whatever a batch whose outcome was not learned took, under tokens with this prefix. */
int dur__pg_undo_claims(dur__pg_conn *conn, const char *token_prefix, dur_error *err);
/* The same outside a lane, for a batch that was answered with code: DUR_EUNAVAILABLE when nothing was taken. */
int dur__pg_undo_unknown(dur__pg_conn *conn, int backend, const char *token_prefix, int code, dur_error *err);
/* Before anything is taken under an owner's name; births: refused where the owner is dead. */
void dur__pg_lane_fence_add(dur__pg_batch *batch, const dur__pg_lane *lane, bool births);
void dur__pg_owner_fence_add(dur__pg_batch *batch, const char *owner);
int64_t dur__pg_fence_key(const dur__pg *store, const char *owner);

/* pg_work.c */
void dur__pg_work_fetch_add(dur__pg_batch *batch, const dur_work_fetch *how, const char *token_prefix, int *at);
size_t dur__pg_work_fetch_read(const dur__pg_batch *batch, int at, dur_arena *arena, dur_leased_work *out, size_t max);
extern const char dur__pg_lock_sessions_sql[]; /* of work with the tokens $2: DUR__PG_LOCK_SESSIONS */
void dur__pg_acks_commit(dur__pg_conn *conn, dur_work_ack *acks, size_t count);

/* pg_notify.c */
void dur__pg_wake(dur__pg *store, const dur__pg_lane *but, const char *instance); /* lanes and watches */
void dur__pg_wake_lanes(dur__pg *store, const dur__pg_lane *but);
void dur__pg_wake_watches(dur__pg *store, const char *instance); /* of the instance; NULL: all */
bool dur__pg_may_notify(dur__pg *store, bool urgent);
void dur__pg_session_known(dur__pg *store, int backend, bool ours);
bool dur__pg_drain_notifications(dur__pg_conn *conn, const char *owner); /* true: something for us */

/* pg_owner.c */
/* `missing`: the owner is not registered. */
int dur__pg_owner_check(dur__pg *store, const char *op, const char *owner, dur_code missing, dur_error *err);
void dur__pg_keepers_close(dur__pg *store);
void dur__pg_owner_doubt(dur__pg *store, const char *owner); /* its next beat tells that the store went back */
int64_t dur__pg_owner_key(const dur__pg *store, const char *owner);
uint64_t dur__pg_owners_timeout_ms(const dur__pg *store);             /* with the mutex: the longest; 0: none */
uint64_t dur__pg_owner_timeout_ms(dur__pg *store, const char *owner); /* registered here, or the default */

/* pg_owner_end.c: the end of an owner */
/* From here on nothing is taken under its name; only if it has not beaten since (NULL: it leaves). */
int dur__pg_owner_mark(dur__pg_conn *conn, const char *owner, const int64_t *beat_ms, dur_error *err);
/* What it had is free: as much as is possible in so long. */
int dur__pg_owner_free(dur__pg_conn *conn, const char *owner, uint64_t most_us, uint32_t *freed, bool *finished,
                       dur_error *err);
void dur__pg_owner_end_batches(dur__pg_conn *conn, const char *owner, int64_t beat_ms);

/* pg_lease.c: what a lane knows of the instances that it holds */
typedef struct dur__pg_lease {
    char *token;
    uint64_t execution, last; /* where its history ends; last is DUR_NOT_COMPARED: not known */
    bool committed;           /* since it was acquired: there is nothing to clear in its row */
    bool bare;              /* nothing was ever in its queue but its start and timers that the lane keeps, no values */
    bool lost_work;         /* it was acquired with `look` set */
    bool in_doubt;          /* a turn of it was in a round whose outcome was not learned … */
    bool may_be_over;       /* … and would have ended the lease … */
    uint64_t doubtful_last; /* … or would have brought its history here */
    bool accounted;         /* while both sides are compared: the store says the same, or has told where it went */
    dur__link timers;       /* see pg_timer.c */
    size_t timer_count;
    char instance[];
} dur__pg_lease;
void dur__pg_timers_forget(dur__pg_lane *lane, dur__pg_lease *of);
dur__pg_lease *dur__pg_lease_of(const dur__pg_lane *lane,
                                const dur_turn_commit *turn); /* under its token; NULL: none */
void dur__pg_lease_note(dur__pg_lane *lane, const dur_orchestration_item *item);
dur__pg_lease *dur__pg_lease_commit(dur__pg_lane *lane, const dur_turn_commit *turn); /* NULL: it has ended */
void dur__pg_lease_told(dur__pg_lane *lane, const char *instance); /* it was given a message: it is bare no more */
void dur__pg_lease_forget(dur__pg_lane *lane, const char *instance);
void dur__pg_leases_free(dur__pg_lane *lane);
/* Before anything of a round: a new session may find another database, also in the middle of one. */
int dur__pg_lane_connect(dur__pg_lane *lane, dur_error *err);
/* A batch of the lane was not answered; turns: those in it. */
void dur__pg_lane_lost(dur__pg_lane *lane, int backend, dur_turn_commit **turns, size_t count);
/* Where there is a doubt: what the lane holds is what the store says that it holds. */
int dur__pg_leases_compare(dur__pg_lane *lane, dur_error *err);

/* pg_read.c: key, value, stamp, from this column on; NULL: there are none. */
dur_key_value *dur__pg_read_values(const PGresult *rows, int from, int count, int column, dur_arena *arena);

/* pg_look.c */
/* before: the last look of this process, which may have been before this peer came. */
void dur__pg_look_add(dur__pg_look *look, const dur__pg_glance *before, const dur__pg_glance *at,
                      const dur__pg_sight *sight);
bool dur__pg_look_silent(const dur__pg_look *look);      /* for its whole timeout */
uint64_t dur__pg_look_left_us(const dur__pg_look *look); /* until it is dead if it stays so; UINT64_MAX: locked */

/* pg_delete.c */
/* In a transaction: delete an instance and all below it, and tell the lanes that held them; unless one of them runs
 * (DUR_ERUNNING) or has just begun (DUR_ECHILD). */
int dur__pg_delete_tree(dur__pg_conn *conn, const char *instance, dur_error *err);
/* Before anything about those of $2 is read: lock their rows, in order, and make those that are missing: one that
   somebody is just putting in the place of another cannot be locked by a statement that does not see it yet. */
extern const char dur__pg_lock_to_end_sql[];

#endif
