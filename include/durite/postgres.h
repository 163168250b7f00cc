/*
 * postgres.h: a PostgreSQL store with options, and your own transactions on it (library libdurite-postgres).
 *
 * dur_open("postgres://…") loads the library by itself; link with -ldurite-postgres only for what is declared here.
 */
#ifndef DURITE_POSTGRES_H
#define DURITE_POSTGRES_H

#include <durite/client.h>
#include <durite/provider.h>

DUR_BEGIN_DECLS

struct pg_conn; /* PGconn of libpq-fe.h */

/*
 * What stands between us and the server.  NONE: nothing; our settings go with the request for a session, which poolers
 * refuse: then opening fails and says so.  SESSION: a pooler that lends a session until we leave; we set what we need,
 * and DISCARD ALL at the end.  TRANSACTION: one that lends a session for a transaction: no session locks, no LISTEN, no
 * named statements, and nothing is left in its sessions.
 */
typedef enum dur_postgres_pooler {
    DUR_POSTGRES_POOLER_NONE,
    DUR_POSTGRES_POOLER_SESSION,
    DUR_POSTGRES_POOLER_TRANSACTION
} dur_postgres_pooler;

typedef struct dur_postgres_options {
    size_t size;
    const char *conninfo; /* URL or keyword=value text of libpq; multi-host, TLS and the rest are libpq's */
    const char *schema;   /* NULL: "public"; created when missing (and permitted) */
    uint32_t pool;        /* connections for calls outside lanes and owners; 0: 4 */
    dur_postgres_pooler pooler;
    bool must_exist;               /* do not create or migrate: DUR_ESCHEMA when the schema is not there or older */
    const struct dur_world *world; /* for tokens; and, with caller_clock, for time: tests */
    bool caller_clock;
    bool long_poll; /* poll_ms of a fetch is honoured (the runtime does not need it) */
    bool temporary; /* the schema is this store's alone: dropped WITH ALL IT HOLDS now, if it is there, and when the
                       store is closed.  For tests.  Must be named, and not "public" */
} dur_postgres_options;
#define DUR_POSTGRES(...) (&(dur_postgres_options){ .size = sizeof(dur_postgres_options), __VA_ARGS__ })

/*
 * Open a store.  Codes: DUR_EINVAL (bad options, no such parameter, a database whose encoding is neither UTF8 nor
 * SQL_ASCII), DUR_EUNAVAILABLE (no server; may be tried again),
 * DUR_EPERM (password, missing rights), DUR_ESCHEMA (the schema is newer than this library, or must_exist).  No message
 * contains a password.  Any thread.  Since 0.1.
 */
DUR_API int dur_postgres_open(dur_provider **out, const dur_postgres_options *options, dur_error *err);

/*
 * The same by URL, as dur_open calls it.  Parameters of ours, removed before libpq sees the URL:
 *   schema=NAME  pool=N  pooler=none|session|transaction  poll=short|long  migrate=0  clock=server|caller  temporary=1
 */
DUR_API int dur_postgres_open_url(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err);

/* Make dur_open know postgres: and postgresql: in a program that is linked statically.  Call it once, any thread. */
DUR_API int dur_postgres_register(dur_error *err);

/*
 * Your own transaction, on your own connection to the same database: begin it with BEGIN, call these, and COMMIT or
 * ROLLBACK; they happen if and only if you commit.  When one fails with a code of ours (DUR_EEXISTS, DUR_ENOTFOUND,
 * DUR_ESTATE) the transaction can go on; after DUR_EIO and the like it is aborted, as with any failed
 * statement, and further calls are DUR_ESTATE.  Under REPEATABLE READ or SERIALIZABLE a row that has changed since your
 * snapshot is DUR_EBUSY, and the transaction is aborted: begin it again.  They lock the row of the instance until you
 * end the transaction: keep it short, and where you touch several instances do so in order of their ids.  The
 * connection must not be in pipeline mode, and its client_encoding must be UTF8 (or SQL_ASCII: bytes): with another one
 * the server would convert what you give, so it is refused, and the transaction can go on; SET LOCAL client_encoding =
 * 'UTF8' is enough.  Other settings do not matter.  Nodes are told by NOTIFY when you commit, so PREPARE TRANSACTION
 * fails.  Under REPEATABLE READ or SERIALIZABLE an instance that was started after your snapshot is not there for
 * _send and _pulse: DUR_ENOTFOUND.  Codes: DUR_EINVAL (client_encoding among them), DUR_ESTATE (no transaction is open,
 * or it is aborted, or read only: which aborts it), and those of dur_client_start, _send and _pulse; DUR_EBUSY where a
 * start would replace a finished instance that a node holds just now, which would wait for your transaction.
 */
DUR_API int dur_postgres_start(dur_provider *store, struct pg_conn *db, const dur_start_args *args, dur_error *err);
DUR_API int dur_postgres_pulse(dur_provider *store, struct pg_conn *db, const dur_message_args *args, dur_error *err);
DUR_API int dur_postgres_send(dur_provider *store, struct pg_conn *db, const dur_message_args *args, dur_error *err);

DUR_END_DECLS

#endif
