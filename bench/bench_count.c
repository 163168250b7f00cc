/*
 * bench_count.c: what the store is asked to do, counted inside SQLite.
 *
 * Every connection that this process opens (the engine's and the probes') gets two hooks through an auto extension: a
 * statement trace, and a commit hook.  A transaction counts as a commit when it has changed rows since the last one of
 * its connection: only such a commit appends frames to the WAL and pays for an fsync.  The engine uses neither hook.
 *
 * The first connection of a workload that commits is its writer; the settings are read back from that very connection
 * when the runtime has stopped and nobody else uses it.
 */
#include "bench.h"
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { CONNECTIONS_MAX = 64 };

typedef struct connection {
    sqlite3 *db;
    sqlite3_int64 changes; /* touched by the connection's own thread only */
} connection;

static atomic_ullong statements, commits;
static _Atomic(sqlite3 *) writer;
static connection connections[CONNECTIONS_MAX];
static pthread_mutex_t connections_lock = PTHREAD_MUTEX_INITIALIZER;

static int on_statement(unsigned what, void *data, void *statement, void *text) {
    (void)data;
    (void)statement;
    (void)text;
    if (what == SQLITE_TRACE_STMT) atomic_fetch_add_explicit(&statements, 1, memory_order_relaxed);
    if (what == SQLITE_TRACE_CLOSE) {
        pthread_mutex_lock(&connections_lock);
        for (size_t i = 0; i < CONNECTIONS_MAX; i++)
            if (connections[i].db == statement) connections[i].db = NULL;
        pthread_mutex_unlock(&connections_lock);
        sqlite3 *closed = statement;
        atomic_compare_exchange_strong(&writer, &closed, NULL);
    }
    return 0;
}

static int on_commit(void *data) {
    connection *c = data;
    sqlite3_int64 changes = sqlite3_total_changes64(c->db);
    sqlite3 *none = NULL;
    if (changes == c->changes) return 0;
    c->changes = changes;
    atomic_fetch_add_explicit(&commits, 1, memory_order_relaxed);
    atomic_compare_exchange_strong(&writer, &none, c->db);
    return 0;
}

static int on_open(sqlite3 *db, const char **message, const struct sqlite3_api_routines *api) {
    (void)message;
    (void)api;
    pthread_mutex_lock(&connections_lock);
    connection *c = NULL;
    for (size_t i = 0; i < CONNECTIONS_MAX && c == NULL; i++)
        if (connections[i].db == NULL) c = &connections[i];
    if (c != NULL) *c = (connection){ .db = db };
    pthread_mutex_unlock(&connections_lock);
    sqlite3_trace_v2(db, SQLITE_TRACE_STMT | SQLITE_TRACE_CLOSE, on_statement, NULL);
    if (c != NULL) sqlite3_commit_hook(db, on_commit, c);
    return SQLITE_OK;
}

void bench_count_install(void) {
    /* SQLite declares the entry point without its arguments; it calls it with those of on_open. */
    union {
        int (*real)(sqlite3 *, const char **, const struct sqlite3_api_routines *);
        void (*declared)(void);
    } entry = { .real = on_open };
    sqlite3_auto_extension(entry.declared);
}

bench_counts bench_count(void) {
    return (bench_counts){ .statements = atomic_load(&statements), .commits = atomic_load(&commits) };
}

static void pragma(sqlite3 *db, const char *sql, char *out, size_t size) {
    sqlite3_stmt *statement = NULL;
    snprintf(out, size, "?");
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
        snprintf(out, size, "%s", (const char *)sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
}

void bench_settings_read(bench *b) {
    sqlite3 *db = atomic_load(&writer);
    char level[16], mode[16], page[16];
    static const char *const levels[] = { "OFF", "NORMAL", "FULL", "EXTRA" };
    if (db == NULL) return;
    pragma(db, "PRAGMA synchronous", level, sizeof(level));
    pragma(db, "PRAGMA journal_mode", mode, sizeof(mode));
    pragma(db, "PRAGMA page_size", page, sizeof(page));
    snprintf(b->settings, sizeof(b->settings),
             "\"synchronous\":\"%s\",\"journal_mode\":\"%s\",\"page_size\":%d,\"sqlite\":\"%s\"",
             level[0] >= '0' && level[0] <= '3' ? levels[level[0] - '0'] : "unknown", mode, atoi(page),
             sqlite3_libversion());
}
