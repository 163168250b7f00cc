/*
 * bench_limit.c: what the store itself can do, with bare SQL and nothing else.
 *
 * The ruler (limit) never changes: Duroxide's schema and indexes, text keys; per step two history rows, one worker row
 * deleted by its token and one inserted; 20 steps a commit, synchronous=FULL.  own_limit writes what our engine
 * writes for a step: into a file that the library has made, with the library's own statements.  commit is one
 * step per commit.
 */
#include "bench.h"
#include "provider/sqlite/sqlite_sql.h"
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char ruler_schema[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000; PRAGMA cache_size=-65536;"
    "CREATE TABLE history(instance_id TEXT NOT NULL, execution_id INTEGER NOT NULL, event_id INTEGER NOT NULL,"
    " event_type TEXT NOT NULL, event_data TEXT NOT NULL, created_at INTEGER NOT NULL,"
    " PRIMARY KEY(instance_id, execution_id, event_id)) WITHOUT ROWID;"
    "CREATE TABLE worker_queue(id INTEGER PRIMARY KEY AUTOINCREMENT, work_item TEXT NOT NULL,"
    " visible_at INTEGER NOT NULL, lock_token TEXT, locked_until INTEGER, attempt_count INTEGER NOT NULL DEFAULT 0,"
    " instance_id TEXT, execution_id INTEGER, activity_id INTEGER, session_id TEXT, tag TEXT, created_at INTEGER);"
    "CREATE INDEX worker_lock ON worker_queue(lock_token, id);"
    "CREATE INDEX worker_identity ON worker_queue(instance_id, execution_id, activity_id);"
    "CREATE INDEX worker_visible ON worker_queue(visible_at, lock_token, id);";

/* The settings of the library's writer, except that SQLite checkpoints by itself after the same number of pages. */
static const char own_settings[] =
    "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=4000; PRAGMA cache_size=-32768;"
    "PRAGMA temp_store=MEMORY;";

enum {
#define NAME_(name, text) OWN_##name,
    DUR__SQ_STATEMENTS(NAME_)
#undef NAME_
};
static const char *const own_sql[] = {
#define TEXT_(name, text) text,
    DUR__SQ_STATEMENTS(TEXT_)
#undef TEXT_
};

typedef struct probe {
    sqlite3 *db;
    sqlite3_stmt *begin, *commit, *event, *take, *put;
} probe;

static void die(probe *p, const char *what) {
    fprintf(stderr, "durite-bench: probe: %s: %s\n", what, sqlite3_errmsg(p->db));
    exit(EXIT_FAILURE);
}

static void prepare(probe *p, sqlite3_stmt **out, const char *sql) {
    if (sqlite3_prepare_v3(p->db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL) != SQLITE_OK) die(p, sql);
}

static void run(probe *p, sqlite3_stmt *statement) {
    int rc = sqlite3_step(statement);
    if (rc != SQLITE_DONE && rc != SQLITE_ROW) die(p, sqlite3_sql(statement));
    sqlite3_reset(statement);
}

static void remove_probe(const char *path) {
    char file[700];
    static const char *const suffixes[] = { "", "-wal", "-shm", ".lock" };
    for (size_t i = 0; i < 4; i++) {
        snprintf(file, sizeof(file), "%s%s", path, suffixes[i]);
        unlink(file);
    }
}

/* An empty store with the tables and indexes of today. */
static void make_own(const char *path) {
    char url[700];
    dur_provider *store = NULL;
    dur_error err = DUR_ERROR_INIT;
    snprintf(url, sizeof(url), "sqlite:%s", path);
    bench_check(dur_open(&store, url, &err), &err, "probe");
    dur_provider_close(store);
}

static void probe_open(probe *p, const char *path, const char *schema) {
    if (sqlite3_open(path, &p->db) != SQLITE_OK) die(p, path);
    if (sqlite3_exec(p->db, schema, NULL, NULL, NULL) != SQLITE_OK) die(p, "schema");
    prepare(p, &p->begin, "BEGIN IMMEDIATE");
    prepare(p, &p->commit, "COMMIT");
}

static void probe_close(probe *p) {
    sqlite3_finalize(p->begin);
    sqlite3_finalize(p->commit);
    sqlite3_finalize(p->event);
    sqlite3_finalize(p->take);
    sqlite3_finalize(p->put);
    sqlite3_close(p->db);
}

static void event_text(char out[320], const char *instance, unsigned long long event, const char *type) {
    snprintf(out, 320,
             "{\"event_id\":%llu,\"source_event_id\":%llu,\"instance_id\":\"%s\",\"execution_id\":1,"
             "\"timestamp_ms\":1700000000000,\"duroxide_version\":\"0.1.26\",\"type\":\"%s\",\"name\":\"Noop\","
             "\"result\":\"0123456789012345678901234567890123456789\"}",
             event, event - 1, instance, type);
}

static void work_text(char out[320], const char *instance, unsigned long long event) {
    snprintf(out, 320,
             "{\"ActivityExecute\":{\"instance\":\"%s\",\"execution_id\":1,\"id\":%llu,\"name\":\"Noop\","
             "\"input\":\"\"}}",
             instance, event);
}

/* One step of one instance in the ruler's schema. */
static void ruler_step(probe *p, const char *instance, unsigned long long event) {
    char text[320], token[96];
    for (unsigned i = 0; i < 2; i++) {
        event_text(text, instance, event + i, i == 0 ? "ActivityCompleted" : "ActivityScheduled");
        sqlite3_bind_text(p->event, 1, instance, -1, SQLITE_STATIC);
        sqlite3_bind_int64(p->event, 2, (sqlite3_int64)(event + i));
        sqlite3_bind_text(p->event, 3, i == 0 ? "ActivityCompleted" : "ActivityScheduled", -1, SQLITE_STATIC);
        sqlite3_bind_text(p->event, 4, text, -1, SQLITE_STATIC);
        run(p, p->event);
    }
    snprintf(token, sizeof(token), "lock-%s-%llu", instance, event - 1);
    sqlite3_bind_text(p->take, 1, token, -1, SQLITE_STATIC);
    run(p, p->take);
    snprintf(token, sizeof(token), "lock-%s-%llu", instance, event + 1);
    work_text(text, instance, event + 1);
    sqlite3_bind_text(p->put, 1, text, -1, SQLITE_STATIC);
    sqlite3_bind_text(p->put, 2, token, -1, SQLITE_STATIC);
    sqlite3_bind_text(p->put, 3, instance, -1, SQLITE_STATIC);
    sqlite3_bind_int64(p->put, 4, (sqlite3_int64)(event + 1));
    run(p, p->put);
}

/* What a step is in the library's own tables: its activity is local, so the block of its two events is all. */
static void own_step(probe *p, sqlite3_int64 key, unsigned long long event) {
    char text[320];
    int size = snprintf(text, sizeof(text),
                        "[1700000000000,\"0.1.0\",[\"ActivityCompleted\",{\"result\":\"\"},%llu],"
                        "[\"ActivityScheduled\",{\"name\":\"Noop\",\"input\":\"\"}]]",
                        event - 1);
    const sqlite3_int64 columns[] = { key, 1, (sqlite3_int64)event, 2, 1700000000000, 1 };
    for (int i = 0; i < 6; i++)
        sqlite3_bind_int64(p->event, i + 1, columns[i]);
    sqlite3_bind_text(p->event, 7, text, size, SQLITE_STATIC);
    run(p, p->event);
}

static void ruler_prepare(probe *p) {
    prepare(p, &p->event,
            "INSERT INTO history(instance_id, execution_id, event_id, event_type, event_data, created_at)"
            " VALUES(?1, 1, ?2, ?3, ?4, 1700000000000)");
    prepare(p, &p->take, "DELETE FROM worker_queue WHERE lock_token = ?1");
    prepare(p, &p->put,
            "INSERT INTO worker_queue(work_item, visible_at, lock_token, locked_until, attempt_count,"
            " instance_id, execution_id, activity_id, created_at)"
            " VALUES(?1, 0, ?2, 1, 1, ?3, 1, ?4, 1700000000000)");
}

static void own_prepare(probe *p) {
    prepare(p, &p->event, own_sql[OWN_HISTORY_ADD]);
}

enum { STEPS_PER_INSTANCE = 5 };

double bench_limit_steps(const char *path, double seconds, unsigned steps_per_commit, bool random_ids) {
    probe p = { 0 };
    bench ids = { .random_ids = random_ids };
    uint64_t steps = 0, generation = 0;
    remove_probe(path);
    probe_open(&p, path, ruler_schema);
    ruler_prepare(&p);
    double begin = bench_now(), now = begin;
    for (; now - begin < seconds; now = bench_now(), generation++) {
        for (unsigned step = 0; step < STEPS_PER_INSTANCE; step++) {
            run(&p, p.begin);
            for (unsigned i = 0; i < steps_per_commit; i++) {
                char id[64];
                bench_id(&ids, id, "bench", generation * steps_per_commit + i);
                ruler_step(&p, id, step * 2 + 3);
            }
            run(&p, p.commit);
            steps += steps_per_commit;
        }
    }
    probe_close(&p);
    return (double)steps / (now - begin);
}

static double own_steps(const char *path, double seconds, unsigned steps_per_commit, double *durations, size_t *count) {
    probe p = { 0 };
    uint64_t steps = 0, generation = 0;
    size_t room = *count;
    *count = 0;
    remove_probe(path);
    make_own(path);
    probe_open(&p, path, own_settings);
    own_prepare(&p);
    double begin = bench_now(), now = begin;
    for (; now - begin < seconds; generation++) {
        for (unsigned step = 0; step < STEPS_PER_INSTANCE; step++) {
            double before = bench_now();
            run(&p, p.begin);
            for (unsigned i = 0; i < steps_per_commit; i++)
                own_step(&p, (sqlite3_int64)(generation * steps_per_commit + i + 1), step * 2 + 3);
            run(&p, p.commit);
            now = bench_now();
            if (*count < room) durations[(*count)++] = (now - before) * 1e6;
            steps += steps_per_commit;
        }
    }
    probe_close(&p);
    return (double)steps / (now - begin);
}

double bench_own_limit_steps(const char *path, double seconds, unsigned steps_per_commit) {
    size_t none = 0;
    return own_steps(path, seconds, steps_per_commit, NULL, &none);
}

double bench_commit_us(const char *path, double seconds) {
    size_t count = 1000000;
    double *durations = malloc(count * sizeof(*durations));
    if (durations == NULL) return 0;
    own_steps(path, seconds, 1, durations, &count);
    double median = bench_percentile(durations, count, 50);
    free(durations);
    return median;
}

void bench_probes(bench *b) {
    char path[600];
    if (strncmp(b->url, "postgres", 8) == 0) bench_pg_probes(b);
    if (strncmp(b->url, "sqlite:", 7) != 0) return;
    double seconds = b->quick ? 0.05 : b->seconds < 4 ? b->seconds : 4;
    snprintf(path, sizeof(path), "%s/probe.db", b->dir);
    bench_progress("limit probes");
    bench_result *r = bench_result_add(b, "limit", "{}");
    b->limit = bench_limit_steps(path, seconds, 20, false);
    b->own_limit = bench_own_limit_steps(path, seconds, 20);
    b->commit_us = bench_commit_us(path, seconds);
    remove_probe(path);
    bench_metric(r, "steps_per_s", b->limit);
    bench_metric(r, "own_steps_per_s", b->own_limit);
    bench_metric(r, "commit_us", b->commit_us);
}
