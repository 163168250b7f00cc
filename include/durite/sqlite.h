/*
 * sqlite.h: a SQLite store with options, and your own transactions on it.
 */
#ifndef DURITE_SQLITE_H
#define DURITE_SQLITE_H

#include <durite/activity.h>
#include <durite/client.h>
#include <durite/provider.h>

DUR_BEGIN_DECLS

struct sqlite3;

typedef struct dur_sqlite_options {
    size_t size;
    const char *path; /* file, or ":memory:" (one connection, for tests) */
    bool must_exist;
    bool relaxed_durability; /* true: synchronous=NORMAL; a power loss may take the last commits.  Default: FULL */
    uint32_t wal_pages;      /* checkpoint after so many pages; 0: 4000 */
    uint64_t busy_ms;        /* see below; 0: 60 s */
    const struct dur_world *world;
} dur_sqlite_options;
/*
 * While another program holds the file's write lock (BEGIN IMMEDIATE in sqlite3, say), calls that read work as always,
 * and so does opening a store that exists; calls that write wait, each for busy_ms, and then return DUR_EBUSY
 * (retryable) having done nothing.  Runtimes try again for ever.  The log says after a second, and then less and less
 * often, who has the lock.
 */
/*
 * A file that this library had open in the parent at a fork() is DUR_EFORKED in the child, by every path and also when
 * it was closed since: SQLite would lock nothing there.  Open it after the fork, close it before, or exec.  Nor may a
 * connection of your own (sqlite3_open) be open at a fork, and nobody can tell you.
 */
#define DUR_SQLITE(...) (&(dur_sqlite_options){ .size = sizeof(dur_sqlite_options), __VA_ARGS__ })
DUR_API int dur_sqlite_open(dur_provider **out, const dur_sqlite_options *options, dur_error *err);

/*
 * Your own transaction on the same file, with your own connection.  begin waits for the writer's turn and issues BEGIN
 * IMMEDIATE; commit and rollback end it and let the others go on.  One is open at a time on a file, on the thread that
 * has begun it; on another file it may have another.  Your connection makes no automatic checkpoints meanwhile; the
 * store makes them.
 *
 * Inside, on the same thread: start, send and pulse below take part, they happen if and only if you commit.  Any other
 * call that writes to the store (of a client, begin, dur_provider_vacuum, dur_runtime_start and dur_runtime_stop) is
 * DUR_EDEADLK, and nothing has happened; calls that read work and do not see what you have written.  Do not wait inside
 * for the end of an instance: nothing ends before you do.  Other stores may be opened and closed.
 *
 * Everybody else who writes waits for you, in this process and in others: keep it short.  A call of another thread
 * returns DUR_EBUSY (retryable) when it has waited for busy_ms; runtimes keep everything and try again.  When somebody
 * waits, the log says after a second, and then less and less often, who has begun it and for how long it has been open.
 *
 * It ends, rolled back, with a WARN in the log where nobody is told otherwise: when the activity or handler returns in
 * which it was begun (whose outcome stands), when its thread ends, when the store's handle is closed inside or the host
 * freed.  It ends with its connection: sqlite3_close rolls back; after start, send or pulse SQLite answers SQLITE_BUSY
 * to it instead, because statements of ours are open, until you commit or roll back.  A COMMIT or ROLLBACK of your own
 * ends it, too: what follows is DUR_ESTATE, and says which of the two it was; others notice when they have waited for a
 * second.  A thread that lives on and does not come back cannot be told from one that is busy: its transaction is open
 * until the thread, its activity or its connection ends; of an activity that its host has taken dur_act_end ends what
 * was begun on dur_act_sqlite's connection.
 *
 * Bracket every write with them.  A bare BEGIN works, but may wait long beside a busy runtime, and a call of a client
 * while one of this process is open fails with DUR_EBUSY, which says so, when it has waited 5 s (or busy_ms).
 * A connection that was used here has a function durite_transaction(), by which we learn that it is closed.
 * Codes: DUR_EINVAL (another file), DUR_ESTATE (no transaction begun here), DUR_EDEADLK, DUR_EBUSY, DUR_EIO,
 * DUR_ENOMEM, DUR_EFORKED.
 */
DUR_API int dur_sqlite_begin(dur_provider *store, struct sqlite3 *db, dur_error *err);
DUR_API int dur_sqlite_commit(dur_provider *store, struct sqlite3 *db, dur_error *err);
DUR_API int dur_sqlite_rollback(dur_provider *store, struct sqlite3 *db, dur_error *err);
DUR_API int dur_sqlite_start(dur_provider *store, struct sqlite3 *db, const dur_start_args *args, dur_error *err);
DUR_API int dur_sqlite_pulse(dur_provider *store, struct sqlite3 *db, const dur_message_args *args, dur_error *err);
DUR_API int dur_sqlite_send(dur_provider *store, struct sqlite3 *db, const dur_message_args *args, dur_error *err);

/* A connection to the store's file for this activity, opened on first use and closed when it ends, with settings as
   sqlite3_open leaves them; NULL with err set when the store is not a SQLite file.  Use it with the bracket above on
   dur_act_store(act). */
DUR_API struct sqlite3 *dur_act_sqlite(dur_act *act, dur_error *err);
DUR_API dur_provider *dur_act_store(dur_act *act);

DUR_END_DECLS

#endif
