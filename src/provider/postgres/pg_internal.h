/*
 * pg_internal.h: what the files of the PostgreSQL store share.
 *
 * SQL texts are written with two abbreviations (pg_sql.c): @name is a table of this store, qualified and quoted; #now
 * is the store's time in milliseconds, evaluated once per statement.  #now is the first parameter of its statement when
 * the clock is the caller's, so every statement begins with dur__pg_args_begin, which fills $1.
 *
 * A batch is a pipeline of statements that ends with one Sync: one round trip, one transaction.  Nothing in a batch can
 * depend on an answer of the same batch, except inside the server.
 */
#ifndef DURITE_PROVIDER_PG_INTERNAL_H
#define DURITE_PROVIDER_PG_INTERNAL_H

#include "base/buf.h"
#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "base/thread.h"
#include "provider/postgres/pg_methods.h"
#include "provider/turn.h"

#include <durite/postgres.h>
#include <durite/sys/provider_methods.h>

#include <libpq-fe.h>

#define DUR__PG_ARGS 32
#define DUR__PG_BATCH 44
#define DUR__PG_TOKEN_SIZE 33
#define DUR__PG_PIN_SIZE 40
#define DUR__PG_DEFAULT_POOL 4u
#define DUR__PG_DELAY_FOREVER ((uint64_t)INT64_MAX / 4)

typedef struct dur__pg dur__pg;

/* How long a statement waits for a lock: far longer than a commit takes. */
#define DUR__PG_LOCK_WAIT "10000"
#define DUR__PG_LOCK_WAIT_HURRIED "300" /* milliseconds */

/* One connection.  Used by one thread at a time. */
typedef struct dur__pg_conn {
    dur__pg *store;
    PGconn *pg;        /* NULL: not connected */
    dur__map prepared; /* by address of the SQL text */
    unsigned next_name;
    uint64_t sessions;               /* so many there were */
    uint64_t batches, plan_again_at; /* of this session */
    int backend;                     /* process id of the last session, also after it was lost */
    bool want_listen;                /* LISTEN again after a reconnect */
    bool foreign;                    /* the caller's own: unnamed statements, never closed */
    bool farewell;                   /* the server itself has said that it ends this session (pg_batch.c) */
    bool hurries;                    /* waits for a lock only for a moment: others wait for it (pg_held_up.c) */
    int64_t owner_key;               /* not 0: shows that this owner lives, by a lock that ends with the session */
    dur__link link;                  /* in store->idle */
} dur__pg_conn;

/* Parameters of a statement; arrays are binary, scalars text. */
typedef struct dur__pg_args {
    int count;
    const char *values[DUR__PG_ARGS];
    int lengths[DUR__PG_ARGS];
    int formats[DUR__PG_ARGS];
    Oid types[DUR__PG_ARGS];
    dur__buf owned[DUR__PG_ARGS];
    char numbers[DUR__PG_ARGS][24];
} dur__pg_args;

/* An array that grows: start, add, then hand it to the arguments. */
typedef struct dur__pg_array {
    dur__buf data;
    Oid element;
    uint32_t count;
    bool has_null;
} dur__pg_array;

/*
 * The rows that a statement is about: each column is an array, and a parameter of the statement.  Rows are put in value
 * by value, from the first column to the last.
 */
#define DUR__PG_COLUMNS 16
typedef struct dur__pg_table {
    const char *types; /* of the columns: t text, i bigint */
    dur__pg_array columns[DUR__PG_COLUMNS];
    int next;      /* the column that the next value is of */
    uint32_t rows; /* begun */
} dur__pg_table;

typedef struct dur__pg_batch {
    dur__pg_conn *conn;
    PGresult *results[DUR__PG_BATCH];
    bool preparing[DUR__PG_BATCH]; /* the statement is preceded by its Prepare */
    const char *sqls[DUR__PG_BATCH];
    int count;
    int code;    /* of sending */
    bool pooled; /* its connection goes back to the pool */
    dur_error error;
    bool inside; /* of a transaction that was begun before */
    bool writes; /* a lost connection leaves the outcome unknown */
    char sqlstate[6];
    int failed_at;         /* statement that failed; -1: none */
    bool late;             /* given up before its answers */
    bool ended;            /* instead of an answer there was a last word, of the server or of a pooler */
    bool notified;         /* statement 0 is a notification with a Sync of its own */
    bool notify;           /* a notification follows in a transaction of its own */
    dur__pg_array targets; /* instances whose owners are told */
} dur__pg_batch;

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
    atomic_bool news;         /* something was sent or set free since the last look */
    atomic_bool doubts;       /* the server may know less than the lane (pg_lease.c) */
    atomic_bool in_round;     /* in lane_round */
    bool stepped;             /* dur_lane_options */
    atomic_bool takes_starts; /* somebody runs it who takes starts */
    atomic_uint starts_wait;  /* in its inbox */
    atomic_bool asleep;       /* … whoever puts one there must wake it */
    uint64_t rest_at_us;      /* since when it has had nothing to do; 0: it has */
    atomic_uint load;         /* turns of its rounds, the last ones counting most */
    dur__link inbox;          /* starts that wait for it */
    dur__map held_up;         /* instances whose rows somebody else held, see pg_held_up.c */
    dur__map leases;          /* what it holds, see pg_lease.c */
    int64_t server_start;     /* of the server on which history is as the leases say; 0: not known */
    uint64_t session;         /* the one in which that was learned: another may find another database */
    int64_t rounds;           /* number of the last one; the first is DUR__PG_NO_ROUND + 1 */
    int64_t unknown_round;    /* … of the one whose outcome was not learned */
    dur__heap timers;         /* of its leases, those that it has not handed out, see pg_timer.c */
    dur__map timers_by_id;    /* all of them */
    dur__link starts;         /* taken from the inbox, not written yet */
    uint64_t start_serial;
    char start_prefix[DUR__PG_TOKEN_SIZE]; /* of their tokens */
    dur__link link;                        /* in store->lanes */
} dur__pg_lane;

typedef struct dur__pg_request dur__pg_request; /* pg_inbox.c */

struct dur__pg {
    dur_provider base;
    char **keywords; /* of PQconnectdbParams, ended by NULL */
    char **values;
    char *schema;        /* as given */
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

/* pg_sql.c */
const char *dur__pg_sql(dur__pg *store, const char *text);
void dur__pg_args_begin(dur__pg *store, dur__pg_args *args);              /* fills $1, the caller's time */
void dur__pg_args_of(dur__pg *store, dur__pg_args *args, const char *id); /* the same, and $2: what it is about */
void dur__pg_args_free(dur__pg_args *args);
void dur__pg_text(dur__pg_args *args, const char *text); /* NULL: null; borrowed */
void dur__pg_json(dur__pg_args *args, dur_text text);
void dur__pg_i64(dur__pg_args *args, int64_t value);
void dur__pg_u64(dur__pg_args *args, uint64_t value); /* a time or a count: cut at the largest bigint */
void dur__pg_id(dur__pg_args *args, uint64_t value);  /* an id: 2^63 and above wrap and come back */
void dur__pg_bool(dur__pg_args *args, bool value);
void dur__pg_null(dur__pg_args *args);
void dur__pg_null_texts(dur__pg_args *args);                                 /* of an array of texts */
void dur__pg_array_arg(dur__pg_args *args, dur__pg_array *array);            /* takes the array */
void dur__pg_array_copy_arg(dur__pg_args *args, const dur__pg_array *array); /* leaves it */
dur__pg_array dur__pg_array_text(void);
dur__pg_array dur__pg_array_i64(void);
void dur__pg_add_text(dur__pg_array *array, const char *text);
void dur__pg_add_json(dur__pg_array *array, dur_text text);
void dur__pg_add_i64(dur__pg_array *array, int64_t value);
void dur__pg_add_null(dur__pg_array *array);
void dur__pg_add_all(dur__pg_array *to, const dur__pg_array *from);
dur__pg_table dur__pg_table_of(const char *types);
void dur__pg_put_text(dur__pg_table *table, const char *text); /* NULL: null */
void dur__pg_put_json(dur__pg_table *table, dur_text text);
void dur__pg_put_i64(dur__pg_table *table, int64_t value);
void dur__pg_put_id(dur__pg_table *table, uint64_t value);               /* as dur__pg_id */
void dur__pg_table_args(dur__pg_args *args, dur__pg_table *table);       /* the next parameters; takes the table */
const char *dur__pg_pin(dur_semver version, char out[DUR__PG_PIN_SIZE]); /* as a text of bigint[] */
void dur__pg_table_free(dur__pg_table *table);                           /* of which nothing was taken */
int64_t dur__pg_ms(uint64_t value); /* cut at a quarter of the largest bigint, so that sums do not overflow */
/* reading */
const char *dur__pg_get(const PGresult *result, int row, int column); /* NULL: null */
int64_t dur__pg_get_i64(const PGresult *result, int row, int column); /* null: 0 */
uint64_t dur__pg_get_u64(const PGresult *result, int row, int column);
bool dur__pg_get_bool(const PGresult *result, int row, int column);
char *dur__pg_get_text(const PGresult *result, int row, int column, dur_arena *arena);
dur_text dur__pg_get_json(const PGresult *result, int row, int column, dur_arena *arena);

/* pg_conn.c */
dur__pg_conn *dur__pg_conn_new(dur__pg *store);
void dur__pg_conn_free(dur__pg_conn *conn);
int dur__pg_connect(dur__pg_conn *conn, dur_error *err); /* does nothing when the connection is fine */
void dur__pg_disconnect(dur__pg_conn *conn);
int dur__pg_borrow(dur__pg *store, dur__pg_conn **out, dur_error *err);
void dur__pg_return(dur__pg_conn *conn);
int dur__pg_error(dur_error *err, const char *op, const char *sqlstate, const char *message);
/* The same, with what the connection knows: which role needs which rights, what a pooler does to prepared statements.
 */
int dur__pg_error_of(const dur__pg_conn *conn, dur_error *err, const char *op, const char *sqlstate,
                     const char *message);
int dur__pg_simple(dur__pg_conn *conn, const char *sql, dur_error *err); /* one text, nothing returned */
/* pg_late.c: of `us`, what is left until the caller's deadline; whether a result has come by then; PQexec that is given
   up then (NULL: and the connection is of no use any more). */
uint64_t dur__pg_in_time(uint64_t us);
bool dur__pg_answers(const dur__pg_conn *conn);
PGresult *dur__pg_exec(PGconn *pg, const char *sql);
int dur__pg_late(dur_error *err, const char *op);
/* PQconnectdbParams, given up then: neither CONNECTION_OK nor CONNECTION_BAD.  values: changed. */
PGconn *dur__pg_open_session(const char **keywords, const char **values);
/* True: whoever has sent this ends the session. */
bool dur__pg_note_farewell(dur__pg_conn *conn, const PGresult *result);
int dur__pg_begin(dur__pg_conn *conn, dur_error *err); /* a transaction of several batches */
/* Commit where the code is DUR_OK, otherwise undo it: the code, or that of the commit. */
int dur__pg_end(dur__pg_conn *conn, const char *op, int code, dur_error *err);
/* DUR_OK when this session, which we have lost, is over at the server. */
int dur__pg_end_session(dur__pg_conn *conn, int backend, dur_error *err);

/* pg_batch.c */
void dur__pg_batch_begin(dur__pg_batch *batch, dur__pg_conn *conn, bool writes);
/* On a connection of the pool, which the end of the batch gives back. */
int dur__pg_batch_open(dur__pg_batch *batch, dur__pg *store, bool writes, dur_error *err);
int dur__pg_batch_add(dur__pg_batch *batch, const char *sql, dur__pg_args *args); /* index; frees the arguments */
/* About the rows of a table, which it takes; -1: there are none, and nothing is sent. */
int dur__pg_batch_add_rows(dur__pg_batch *batch, const char *sql, dur__pg_table *table);
/* About one id; about several, which it leaves. */
int dur__pg_batch_add_id(dur__pg_batch *batch, const char *sql, const char *id);
int dur__pg_batch_add_ids(dur__pg_batch *batch, const char *sql, const dur__pg_array *ids);
void dur__pg_batch_notify(dur__pg_batch *batch);       /* when it is committed; the last that is added */
void dur__pg_batch_notify_first(dur__pg_batch *batch); /* everybody, before its first statement: of an earlier one */
int dur__pg_batch_run(dur__pg_batch *batch, const char *op, dur_error *err);
void dur__pg_batch_end(dur__pg_batch *batch);
/* One statement on a connection of the pool. */
int dur__pg_one(dur__pg *store, const char *op, const char *sql, dur__pg_args *args, bool writes, PGresult **out,
                dur_error *err);

/* ---- pg_rows.c: single statements, by what is wanted of their answer ----------------------------------------------
 */

typedef void dur__pg_read_row(const PGresult *rows, int row, dur_arena *arena, void *out);
typedef struct dur__pg_rows {
    dur_arena *arena;
    size_t size; /* of what a row is read into, zeroed */
    dur__pg_read_row *read;
    void *rows;
    size_t count;
} dur__pg_rows;

/* All rows. */
int dur__pg_list(dur__pg *store, const char *op, const char *sql, dur__pg_args *args, dur__pg_rows *out,
                 dur_error *err);
/* The first column of the first row; NULL: there is none. */
int dur__pg_first_text(dur__pg *store, const char *op, const char *sql, dur__pg_args *args, dur_arena *arena,
                       const char **out, dur_error *err);
/* The first row, a number in each column. */
int dur__pg_numbers(dur__pg *store, const char *op, const char *sql, dur__pg_args *args, uint64_t *const *out,
                    size_t count, bool *found, dur_error *err);
/* How many rows it wrote, where somebody asks. */
int dur__pg_write(dur__pg *store, const char *op, const char *sql, dur__pg_args *args, uint64_t *touched,
                  dur_error *err);

/* It returns the row whose lock it is about; none: DUR_ELEASE. */
int dur__pg_write_locked(dur__pg *store, const char *op, const char *sql, dur__pg_args *args, dur_error *err);

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
void dur__pg_turns_add(dur__pg *store, dur__pg_batch *batch, dur__pg_lane *lane, dur_turn_commit **turns, size_t count,
                       dur_work_ack *acks, size_t ack_count, dur__pg_turn_plan *plan);
void dur__pg_turns_read(const dur__pg_batch *batch, const dur__pg_turn_plan *plan, dur__pg_lane *lane,
                        dur_turn_commit **turns, size_t count);
bool dur__pg_touches_values(const dur_turn_commit *turn); /* key-value state */
bool dur__pg_turn_seen(const dur_turn_commit *turn);      /* it changes what watches watch */
/* All of them; where the batch is refused, without those that are found to be the reason.  Each turn has its answer. */
void dur__pg_turns_commit(dur__pg *store, dur__pg_conn *conn, dur__pg_lane *lane, dur_arena *arena,
                          dur_turn_commit **turns, size_t count);
/* Which instance it is of is known, and the start that it writes is one of the lane's; false: it is refused. */
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
void dur__pg_fetch_add(dur__pg *store, dur__pg_batch *batch, const dur_fetch *how, int64_t holder,
                       uint32_t held_queue_max, const char *token_prefix, uint64_t low_ms, int64_t round,
                       dur__pg_fetch_plan *plan);
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
void dur__pg_owner_fence_add(dur__pg *store, dur__pg_batch *batch, const char *owner);
int64_t dur__pg_fence_key(const dur__pg *store, const char *owner);

/* pg_work.c */
void dur__pg_work_fetch_add(dur__pg *store, dur__pg_batch *batch, const dur_work_fetch *how, const char *token_prefix,
                            int *at);
size_t dur__pg_work_fetch_read(const dur__pg_batch *batch, int at, dur_arena *arena, dur_leased_work *out, size_t max);
void dur__pg_acks_commit(dur__pg *store, dur__pg_conn *conn, dur_work_ack *acks, size_t count);
/* The sessions of work that somebody holds, in order: waits, and is therefore the first that a transaction locks. */
#define DUR__PG_LOCK_SESSIONS(which)                                                                                   \
    "SELECT s.session_id FROM @sessions s WHERE s.session_id IN (SELECT w.session_id FROM @worker w WHERE " which      \
    " AND w.session_id IS NOT NULL) ORDER BY s.session_id FOR UPDATE"
void dur__pg_sessions_lock_add(dur__pg *store, dur__pg_batch *batch, dur__pg_array *tokens); /* takes the array */
/* They were locked so; one that was made since may be somebody else's just now, who says himself that it is used. */
#define DUR__PG_TOUCH_SESSIONS(now, from)                                                                              \
    "UPDATE @sessions SET active_ms = " now " WHERE session_id IN (SELECT t.session_id FROM @sessions t WHERE"         \
    " t.session_id IN (SELECT session_id FROM " from " WHERE session_id IS NOT NULL) FOR UPDATE SKIP LOCKED)"
/*
 * Of want (session, node, owner, lock_ms, until_ms) those that are free, or that node's, and that nobody has locked:
 * claimed (session_id).  n (now) is there.  Who makes one has a lock of its name, so that nobody waits for the maker.
 * In order of their ids: SKIP LOCKED waits all the same for a row that is changed again in the moment in which the
 * change before it ends (PostgreSQL locks the later versions of such a row without asking).
 */
#define DUR__PG_CLAIM_SESSIONS(seed)                                                                                   \
    "there AS MATERIALIZED (SELECT s.session_id FROM @sessions s WHERE s.session_id IN (SELECT session FROM want)"     \
    " ORDER BY s.session_id FOR UPDATE SKIP LOCKED),"                                                                  \
    " changed AS (UPDATE @sessions s SET holder = w.node, owner = w.owner, lock_ms = w.lock_ms,"                       \
    " until_ms = w.until_ms, active_ms = n.now FROM want w, there t, n WHERE s.session_id = t.session_id AND"          \
    " w.session = t.session_id AND (s.holder = w.node OR (s.owner IS NULL AND s.until_ms <= n.now)) RETURNING"         \
    " s.session_id), missing AS MATERIALIZED (SELECT w.* FROM want w WHERE NOT EXISTS (SELECT 1 FROM @sessions s"      \
    " WHERE s.session_id = w.session) AND pg_catalog.pg_try_advisory_xact_lock(pg_catalog.hashtextextended(w.session," \
    " " seed "))), made AS (INSERT INTO @sessions (session_id, holder, owner, lock_ms, until_ms, active_ms) SELECT"    \
    " w.session, w.node, w.owner, w.lock_ms, w.until_ms, n.now FROM missing w, n ON CONFLICT (session_id) DO NOTHING"  \
    " RETURNING session_id), claimed AS (SELECT session_id FROM changed UNION ALL SELECT session_id FROM made)"

/* pg_inbox.c: starts that their first turn writes */
/* Hands starts to lanes and waits; done[i]: it was written or refused, its answer is there.  Else: do it yourself. */
void dur__pg_inbox_starts(dur__pg *store, dur_start_request *starts, size_t count, bool *done);
/* After a round: whoever waits for the starts that these turns were to write is told what was learned. */
bool dur__pg_start_valid(const dur__pg_lane *lane, dur_turn_commit *turn); /* false: error and fault are set */
void dur__pg_inbox_answer(dur__pg_lane *lane, dur_turn_commit **turns, size_t count);
void dur__pg_inbox_close(dur__pg_lane *lane); /* nobody will take what waits there */

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

/* pg_admin.c and pg_delete.c */
/* In a transaction: delete an instance and all below it, and tell the lanes that held them; unless one of them runs
 * (DUR_ERUNNING) or has just begun (DUR_ECHILD). */
int dur__pg_delete_tree(dur__pg_conn *conn, const char *instance, dur_error *err);
/* Before anything about them is read: lock their rows, in order, and make those that are missing: one that somebody is
   just putting in the place of another cannot be locked by a statement that does not see it yet. */
void dur__pg_lock_to_end_add(dur__pg_batch *batch, const dur__pg_array *ids);

/* Shared pieces of SQL. */
#define DUR__PG_SERVER_START "(SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint)"
#define DUR__PG_CANCEL "10"
#define DUR__PG_NEVER_BEGINS "9223372036854775807" /* next_execution of what has ended: nothing is needed */
#define DUR__PG_CONTINUE_AS_NEW "1"
/* Kinds of messages that start: START_ORCHESTRATION, CONTINUE_AS_NEW. */
/* The owner of session s has no handler for worker row w. */
#define DUR__PG_HOLDER_HAS_NOT                                                                                         \
    "s.owner IS NOT NULL AND w.handler <> '' AND NOT EXISTS (SELECT 1 FROM @served v WHERE v.activity AND v.handler"   \
    " IN (w.handler, '') AND v.owner = s.owner)"
#define DUR__PG_STARTS "(0, " DUR__PG_CONTINUE_AS_NEW ")"
/* The parent that a child's first turn needs: of that birth (0: of any), or brought here with history and without. */
#define DUR__PG_IS_MEANT(row, birth)                                                                                   \
    "(" row ".known AND (" birth " = 0 OR " row ".birth = " birth " OR " row ".birth IS NULL AND " row ".has_history)" \
    ")"
/*
 * Lock the row of one instance, if it is there.  It may come between this statement and the next, which would see it
 * without the lock; so whether it was locked is handed on in a setting of the transaction.
 */
#define DUR__PG_LOCK_ONE(strength)                                                                                     \
    "SELECT set_config('durite.locked', count(*)::text, true) FROM (SELECT 1 FROM @instances WHERE instance_id ="      \
    " $2::text FOR " strength ") t"
#define DUR__PG_IS_LOCKED "current_setting('durite.locked', true) = '1'"
/* The handler that runs the instance of a row. */
#define DUR__PG_NEEDS                                                                                                  \
    "CASE WHEN status IN (2, 3) THEN '' WHEN next_execution > current_execution THEN coalesce(next, '') WHEN name IS"  \
    " NULL OR version IS NULL THEN '' ELSE name || chr(64) || CASE version WHEN '0.0.0' THEN '' ELSE version END END "
/* Nobody holds it under an owner, and it has a reason to be fetched; with the second: now, as n(now) says. */
#define DUR__PG_FREE "owner IS NULL AND suspended IS NULL AND known AND ready_at IS NOT NULL"
#define DUR__PG_VISIBLE "ready_at <= (SELECT now FROM n) AND (token IS NULL OR expires_at <= (SELECT now FROM n))"
/* Of an instance's row i: how its current execution stands; whether it has ended and nothing begins it anew. */
#define DUR__PG_STATUS "coalesce(i.status, 1)"
#define DUR__PG_STARTS_WAIT                                                                                            \
    "EXISTS (SELECT 1 FROM @queue s WHERE s.instance_id = i.instance_id AND s.kind IN " DUR__PG_STARTS ")"
#define DUR__PG_FINISHED "(" DUR__PG_STATUS " IN (2, 3) AND NOT " DUR__PG_STARTS_WAIT ")"
/* Tell the lanes that hold the instances of $2 that they do so no more. */
#define DUR__PG_TELL_LOST                                                                                              \
    "INSERT INTO @lost (holder, instance_id, at_ms) SELECT holder, instance_id, #now FROM @instances WHERE"            \
    " instance_id = ANY ($2::text[]) AND token IS NOT NULL AND holder IS NOT NULL"
/* An instance's row i that stands for nothing any more. */
#define DUR__PG_EMPTY                                                                                                  \
    "NOT i.known AND NOT EXISTS (SELECT 1 FROM @queue q WHERE q.instance_id = i.instance_id) AND NOT EXISTS (SELECT 1" \
    " FROM @worker w WHERE w.instance_id = i.instance_id)"
extern const char dur__pg_sweep_sql[]; /* those of $2, where nobody holds them */
/*
 * Parts of a statement that ends the leases of i0 (instance_id, acquisitions, less, died, until), which were locked by
 * a statement before it.  Its holder no longer has its messages.  Attempts were counted at the acquisition; `less`
 * takes one back.  A commit since then (acquisitions 0) has cleared them, and need not have touched the messages that
 * it left. What was handed to a lease that was held is not counted: its attempts were made negative.
 */
#define DUR__PG_TAKE_BACK                                                                                              \
    "g AS (UPDATE @queue q SET delivered = 0, attempts = CASE WHEN q.attempts < 0 THEN -q.attempts WHEN"               \
    " i0.acquisitions = 0 THEN 0 ELSE greatest(q.attempts - i0.less, 0) END FROM i0 WHERE q.instance_id ="             \
    " i0.instance_id AND q.delivered <> 0)"
/* And what waits for them, from when on. */
#define DUR__PG_WAITING                                                                                                \
    "m AS (SELECT i0.*, (SELECT min(q.order_ms) FROM @queue q WHERE q.instance_id = i0.instance_id) AS at,"            \
    " (SELECT min(q.due_ms) FROM @queue q WHERE q.instance_id = i0.instance_id) AS due FROM i0)"
/*
 * A number of an event that a damaged row has may be the largest there is: a sum that went out of range would fail the
 * statements of all other instances, too.
 */
#define DUR__PG_PLUS(id, n) "(least(" id ", 9223372036854775807 - (" n ")) + (" n "))"
/*
 * The handlers of a parameter, as ha(h); where that is NULL, all that rows of the table have for which `free` holds,
 * one probe of an index each.  Begins a WITH RECURSIVE.
 */
#define DUR__PG_HANDLERS(ha, table, free, parameter)                                                                   \
    ha "_all(h) AS ((SELECT handler FROM " table " WHERE " free " AND " parameter " IS NULL ORDER BY handler LIMIT 1)" \
       " UNION ALL SELECT (SELECT handler FROM " table " WHERE " free " AND handler > " ha "_all.h ORDER BY handler"   \
       " LIMIT 1) FROM " ha "_all WHERE h IS NOT NULL), " ha "(h) AS MATERIALIZED (SELECT h FROM " ha "_all WHERE h"   \
       " IS NOT NULL UNION ALL SELECT unnest(" parameter "))"
/* That parameter. */
void dur__pg_handlers(dur__pg_args *args, const dur_handler_filter *filter);
/* What a worker row says of it. */
const char *dur__pg_handler_of(const dur_message_row *item);
/* The executions that there are: past ones, and those in their instances' rows. */
#define DUR__PG_EXECUTIONS                                                                                             \
    "(SELECT instance_id, execution_id, status, output, started_at, completed_at FROM @executions UNION ALL SELECT"    \
    " instance_id, current_execution, status, output, started_at, completed_at FROM @instances WHERE status IS NOT"    \
    " NULL)"
/* How many activities were open behind the last turn of instance i; nothing is, once it has ended.  When its last turn
   was.  For statements behind the one that locks i: turns write history without writing i. */
#define DUR__PG_LAST_OF(i, column)                                                                                     \
    "(SELECT h." column " FROM @history h WHERE h.instance_id = " i ".instance_id AND h.execution_id = " i             \
    ".current_execution ORDER BY h.first_id DESC LIMIT 1)"
#define DUR__PG_IS_OPEN(i)                                                                                             \
    "(coalesce(" i ".status, 1) NOT IN (2, 3) AND coalesce(" DUR__PG_LAST_OF(i, "open") ", 0) > 0)"
/*
 * All of it, and the rows: they are free from `until` on (0: at once).  `died`: the owner has.  What may have been
 * local to it is a reason to look, whatever waits; 2: it was running, or might have been, when the owner died.
 */
#define DUR__PG_LOOK_OF(i, died)                                                                                       \
    "CASE WHEN NOT " DUR__PG_IS_OPEN(i) " THEN " i ".look WHEN " died " AND " i ".acquisitions = 0 THEN 2 ELSE"        \
                                        " greatest(" i ".look, 1) END"
#define DUR__PG_ENDS                                                                                                   \
    DUR__PG_TAKE_BACK ", " DUR__PG_WAITING ", f AS MATERIALIZED (SELECT m.*, CASE WHEN x.token IS NULL THEN x.look"    \
                      " ELSE " DUR__PG_LOOK_OF(                                                                        \
                          "x", "m.died") " END AS look, #now AS now FROM m JOIN @instances x ON x.instance_id ="       \
                                         " m.instance_id)"
#define DUR__PG_END_ROWS(columns)                                                                                      \
    "UPDATE @instances i SET token = NULL, owner = NULL, holder = NULL, look = f.look, expires_at = NULL,"             \
    " acquisitions = greatest(i.acquisitions - f.less, 0), not_before = f.until," columns                              \
    " ready_at = CASE WHEN f.look > 0 THEN greatest(least(f.at, f.now), f.until) ELSE f.at + greatest(f.until - f.at," \
    " 0) END, ready_due = CASE WHEN f.look > 0 THEN f.until ELSE greatest(coalesce(f.due, 0), f.until) END FROM f"     \
    " WHERE i.instance_id = f.instance_id"
#define DUR__PG_END_LEASES DUR__PG_ENDS " " DUR__PG_END_ROWS("")
/* A row h of history, as dur__pg_read_blocks reads it: in order of first_id. */
#define DUR__PG_BLOCK "h.execution_id, h.first_id, h.count, h.block"
/* The events of `count` rows that are of one instance, from row `from` on, whose block begins at this column. */
dur_event_row *dur__pg_read_blocks(const PGresult *rows, int from, int count, int column, const char *instance,
                                   dur_arena *arena, size_t *events);
/* The last one of the rows h that the condition names; NULL: there is none. */
/* clang-format off */
#define DUR__PG_LAST(condition)                                                                                        \
    "(SELECT " DUR__PG_PLUS("h.first_id", "h.count - 1") " FROM @history h WHERE " condition " ORDER BY h.first_id"    \
    " DESC LIMIT 1)"
/* clang-format on */
/* Of an event e(instance, execution, id) that comes alone: where a row has it already, the id of that row, so that it
   is refused as a duplicate. */
#define DUR__PG_NEW_EVENT_ID                                                                                           \
    "coalesce((SELECT CASE WHEN p.first_id > e.id - p.count THEN p.first_id END FROM (SELECT h.first_id, h.count FROM" \
    " @history h WHERE h.instance_id = e.instance AND h.execution_id = e.execution AND h.first_id < e.id ORDER BY"     \
    " h.first_id DESC LIMIT 1) p), e.id)"
#define DUR__PG_KIND_TIMER "5"
#define DUR__PG_KIND_QUEUE "7"

#endif
