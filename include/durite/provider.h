/*
 * provider.h: opening a store.
 *
 * A store is where everything durable lives.  Clients and runtimes on one store share one handle or open their own;
 * handles on one file in one process share what they must.  Thread class of dur_provider: any thread.
 */
#ifndef DURITE_PROVIDER_H
#define DURITE_PROVIDER_H

#include <durite/error.h>
#include <durite/export.h>
#include <durite/memory.h>

DUR_BEGIN_DECLS

typedef struct dur_provider dur_provider;
struct dur_world;

/*
 * Open a store by its URL:
 *   memory:                 in this process's memory, gone when the last handle is closed; each open of "memory:" is
 *                           another store, memory:name is shared by name
 *   sqlite:PATH             a SQLite file, created with mode 0600 when missing; sqlite::memory: (one connection, tests)
 *   postgres://…?schema=s   a schema of a PostgreSQL database (package libdurite-postgres); also postgresql://
 * Parameters behind "?" of a sqlite URL: durability=full|relaxed (default full), create=0 (must exist), busy_ms=N (how
 * long a call that writes waits while another program holds the file's write lock; default 60000). Of a memory and a
 * sqlite URL: poll=short|long (default short): whether a fetch of sys/store.h that finds nothing answers at once or
 * waits for its poll_ms.  Runtimes and clients do not care: they are woken. *out is yours: dur_provider_close.  Codes:
 * DUR_EINVAL (bad URL), DUR_ENOTFOUND (no such file, or the library for postgres is not installed: the message names
 * the package), DUR_EIO, DUR_ECORRUPT (not a database), DUR_ESCHEMA (newer than this library), DUR_ESTATE (sqlite:
 * beside a -wal whose database is missing or was replaced; the message says what to do), DUR_EBUSY, DUR_EPERM,
 * DUR_EFULL.  Any thread.  Since 0.1.
 */
DUR_API int dur_open(dur_provider **out, const char *url, dur_error *err);

/* Options of every store; zero means default. */
typedef struct dur_open_options {
    size_t size;
    const struct dur_world *world; /* NULL: the real one.  Tests inject time (memory and sqlite) */
} dur_open_options;
#define DUR_OPEN_OPTIONS(...) (&(dur_open_options){ .size = sizeof(dur_open_options), __VA_ARGS__ })
DUR_API int dur_open_ex(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err);

/*
 * Close a handle.  NULL is allowed.  Runtimes and clients on it keep the store itself open until they end, so any
 * order of closing is safe.  A transaction of this thread that was begun with the last one (dur_sqlite_begin) is rolled
 * back, with a WARN in the log.  Since 0.1.
 */
DUR_API void dur_provider_close(dur_provider *store);

/* "memory", "sqlite", …  Borrowed. */
DUR_API const char *dur_provider_name(const dur_provider *store);

/*
 * Maintenance of a store that has it; DUR_EUNSUPPORTED names the method otherwise.
 * check reads everything and says what is wrong first (DUR_ECORRUPT; the message names table, instance and finding):
 * not only what is damaged, but also what nobody would ever come back to, such as a message that gives nobody a reason
 * to look, a row locked by an owner that is not registered, events that are missing, or a child whose parent's history
 * does not have the call that the child answers to.  A store in use may be checked;
 * it costs a walk over all rows.  backup writes a copy to a new file while the store is used (how to restore it:
 * docs/operations.md); vacuum gives at most pages_max freed pages back and says how many are left.
 */
DUR_API int dur_provider_check(dur_provider *store, dur_error *err);
DUR_API int dur_provider_backup(dur_provider *store, const char *target, dur_error *err);
DUR_API int dur_provider_vacuum(dur_provider *store, uint64_t pages_max, uint64_t *pages_left, dur_error *err);

/*
 * Make a scheme known ("mystore" for mystore:…), so that dur_open, durite-kit and the tools can open it.  The opener
 * gets the whole URL.  Known schemes cannot be replaced: DUR_EEXISTS (postgres and postgresql are known once
 * dur_postgres_register has been called; before that, whoever registers them has them).  Any thread.
 */
typedef int dur_open_fn(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err);
DUR_API int dur_provider_register(const char *scheme, dur_open_fn *open, dur_error *err);

DUR_END_DECLS

#endif
