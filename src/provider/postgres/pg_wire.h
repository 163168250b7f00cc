/*
 * pg_wire.h: connections, statements and their parameters, batches and answers.  Nothing here knows a table.
 *
 * SQL texts are written with two abbreviations (pg_sql.c): @name is a table of this store, qualified and quoted; #now
 * is the store's time in milliseconds, evaluated once per statement.  #now is the first parameter of its statement when
 * the clock is the caller's, so every statement begins with dur__pg_args_begin, which fills $1.
 *
 * A batch is a pipeline of statements that ends with one Sync: one round trip, one transaction.  Nothing in a batch can
 * depend on an answer of the same batch, except inside the server.
 */
#ifndef DURITE_PROVIDER_PG_WIRE_H
#define DURITE_PROVIDER_PG_WIRE_H

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"

#include <durite/sys/provider_methods.h>

#include <libpq-fe.h>

#define DUR__PG_ARGS 32
#define DUR__PG_BATCH 44
#define DUR__PG_PIN_SIZE 40
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
    bool setting_up;                 /* or leaving: nothing of that takes long */
    bool may_wait;                   /* what is asked may wait for somebody's lock, as long as the usual time */
    uint64_t patience_us; /* so long without an answer, and the session is given up; 0: it may take as long … */
    unsigned given_up;    /* … twice as long for each time that it was given up lately (pg_late.c) … */
    uint64_t gave_up_us;  /* … the last time then */
    int64_t owner_key;    /* not 0: shows that this owner lives, by a lock that ends with the session */
    dur__link link;       /* in store->idle */
} dur__pg_conn;

/* Parameters of a statement; arrays are binary, scalars text. */
typedef struct dur__pg_args {
    int count;
    bool walks; /* its statement may go through everything: how long that takes says nothing */
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
void dur__pg_table_free(dur__pg_table *table);                           /* of which nothing was taken */
const char *dur__pg_pin(dur_semver version, char out[DUR__PG_PIN_SIZE]); /* as a text of bigint[] */
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
/* DUR_OK where the session hands texts on as they are; where not, DUR_EINVAL says what to change. */
int dur__pg_check_encoding(const PGconn *pg, const char *op, dur_error *err);
int dur__pg_simple(dur__pg_conn *conn, const char *sql, dur_error *err); /* one text, nothing returned */
/* pg_late.c: of `us`, what is left until the caller's deadline; whether a result has come by then, and while there was
   patience; PQexec that is given up then (NULL: and the connection is of no use any more). */
uint64_t dur__pg_in_time(uint64_t us);
void dur__pg_set_patience(dur__pg_conn *conn, uint64_t owner_timeout_ms); /* 0: there is no owner */
bool dur__pg_answers(dur__pg_conn *conn);
PGresult *dur__pg_exec(dur__pg_conn *conn, const char *sql);
bool dur__pg_is_late(const dur__pg_conn *conn, const PGresult *result); /* what it has returned: it was given up */
int dur__pg_late(dur_error *err, const char *op);
/* PQconnectdbParams, given up then: neither CONNECTION_OK nor CONNECTION_BAD.  values: changed. */
void dur__pg_open_session(dur__pg_conn *conn, const char **keywords, const char **values);
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

/* pg_rows.c: single statements, by what is wanted of their answer */
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

#endif
