/*
 * bench_pg_limit.c: what PostgreSQL itself can do with the rows of a step: array statements, nothing else.
 *
 * The ruler (limit) never changes: Duroxide's schema and indexes, text keys; per step two history rows, one worker row
 * deleted by its token and one inserted; 20 steps a commit, one pipeline and one Sync each; the better of one and two
 * connections.  own_limit writes what the library writes into tables that it has made: the fence (the rows of the
 * instances are locked, their tokens compared) and a row of history per step; the instance's row is written when it
 * begins and when it ends.  commit is one step per commit there.  All sessions have the settings that the library's
 * have, so that both sides get the same plans.
 */
#include "bench.h"
#ifdef BENCH_POSTGRES
#include "bench_pg.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_PER_INSTANCE = 5 };
enum { FENCE, HISTORY, TAKEN, ADDED, ENDED, STATEMENTS };

/* What a probe writes. */
typedef enum probe_kind { RULER, OWN } probe_kind;

static const char ruler_schema[] =
    "CREATE TABLE history(instance_id TEXT NOT NULL, execution_id BIGINT NOT NULL, event_id BIGINT NOT NULL,"
    " event_type TEXT NOT NULL, event_data TEXT NOT NULL, created_at BIGINT NOT NULL,"
    " PRIMARY KEY(instance_id, execution_id, event_id));"
    "CREATE TABLE worker_queue(id BIGSERIAL PRIMARY KEY, work_item TEXT NOT NULL, visible_at BIGINT NOT NULL,"
    " lock_token TEXT, locked_until BIGINT, attempt_count INTEGER NOT NULL DEFAULT 0, instance_id TEXT,"
    " execution_id BIGINT, activity_id BIGINT, session_id TEXT, tag TEXT, created_at BIGINT);"
    "CREATE INDEX worker_lock ON worker_queue(lock_token, id);"
    "CREATE INDEX worker_identity ON worker_queue(instance_id, execution_id, activity_id);"
    "CREATE INDEX worker_visible ON worker_queue(visible_at, lock_token, id);";

/* $1 instances, $2 events, $3 texts of events; $1 tokens; $1 instances, $2 activities, $3 tokens, $4 items. */
static const char *const ruler_sql[STATEMENTS] = {
    NULL,
    "INSERT INTO history(instance_id, execution_id, event_id, event_type, event_data, created_at) SELECT t.i, 1, t.e,"
    " CASE WHEN t.e % 2 = 1 THEN 'ActivityCompleted' ELSE 'ActivityScheduled' END, t.j, 1700000000000"
    " FROM unnest($1::text[], $2::bigint[], $3::text[]) AS t(i, e, j)",
    "DELETE FROM worker_queue WHERE lock_token = ANY ($1::text[])",
    "INSERT INTO worker_queue(work_item, visible_at, lock_token, locked_until, attempt_count, instance_id,"
    " execution_id, activity_id, created_at) SELECT t.j, 0, t.t, 1, 1, t.i, 1, t.a, 1700000000000"
    " FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) AS t(i, a, t, j)",
};
/* Of the fence $1 instances; $1 instances that begin; $1 instances that end.  Both events in one row. */
static const char *const own_sql[STATEMENTS] = {
    "SELECT count(*) FROM (SELECT 1 FROM unnest($1::text[]) AS t(i) JOIN dur_instances i ON i.instance_id = t.i AND"
    " i.token = t.i FOR KEY SHARE OF i SKIP LOCKED) x",
    "INSERT INTO dur_history(instance_id, execution_id, first_id, count, open, at_ms, block) SELECT t.i, 1, t.e,"
    " 2, 1, 1700000000000, t.j FROM unnest($1::text[], $2::bigint[], $3::text[]) AS t(i, e, j)",
    NULL,
    "INSERT INTO dur_instances(instance_id, has_row, has_history, known, name, version, current_execution, created_at,"
    " started_at, token, owner, holder, status) SELECT t.i, true, true, true, 'Steps', '1.0.0', 1, 1700000000000,"
    " 1700000000000, t.i, 'durite-32698a579b08f1f9e8912571', 1, 1 FROM unnest($1::text[]) AS t(i)",
    "UPDATE dur_instances i SET token = NULL, owner = NULL, holder = NULL, status = 2, output = '', completed_at ="
    " 1700000000000 FROM unnest($1::text[]) AS t(i) WHERE i.instance_id = t.i",
};

typedef struct prober {
    PGconn *pg;
    probe_kind kind;
    pthread_t thread;
    unsigned index, steps_per_commit;
    double seconds;
    uint64_t steps;
    double *durations_us; /* NULL: not wanted */
    size_t duration_count, duration_room;
} prober;

/* ---- arrays as texts: {"a","b"} ---------------------------------------------------------------------------------- */

typedef struct text_array {
    char *data;
    size_t size, room;
} text_array;

static void put(text_array *a, const char *text, size_t size) {
    if (a->size + size + 1 > a->room) {
        a->room = (a->size + size + 1) * 2;
        a->data = realloc(a->data, a->room);
        if (a->data == NULL) exit(EXIT_FAILURE);
    }
    memcpy(a->data + a->size, text, size);
    a->size += size;
    a->data[a->size] = '\0';
}

static void element(text_array *a, const char *text) {
    put(a, a->size == 0 ? "{\"" : ",\"", 2);
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') put(a, "\\", 1);
        put(a, at, 1);
    }
    put(a, "\"", 1);
}

/* ---- one commit -------------------------------------------------------------------------------------------------- */

enum { INSTANCES, EVENTS, TEXTS, BEFORE, OWNERS, ACTIVITIES, TOKENS, ITEMS, COLUMNS };

static void fill(text_array *columns, const prober *p, uint64_t generation, unsigned step) {
    bench ids = { .random_ids = false };
    char id[64], text[800], token[96], number[24];
    for (unsigned i = 0; i < p->steps_per_commit; i++) {
        unsigned long long event = step * 2 + 3;
        char prefix[16];
        snprintf(prefix, sizeof(prefix), "o%u", p->index);
        bench_id(&ids, id, prefix, generation * p->steps_per_commit + i);
        for (unsigned k = 0; k < 2 && p->kind == RULER; k++) {
            element(&columns[INSTANCES], id);
            snprintf(number, sizeof(number), "%llu", event + k);
            element(&columns[EVENTS], number);
            snprintf(text, sizeof(text),
                     "{\"event_id\":%llu,\"source_event_id\":%llu,\"instance_id\":\"%s\",\"execution_id\":1,"
                     "\"timestamp_ms\":1700000000000,\"duroxide_version\":\"0.1.0\",\"type\":%s}",
                     event + k, event + k - 1, id,
                     k == 0 ? "\"ActivityCompleted\",\"result\":\"\""
                            : "\"ActivityScheduled\",\"name\":\"Noop\",\"input\":\"\"");
            element(&columns[TEXTS], text);
        }
        if (p->kind != RULER) {
            element(&columns[INSTANCES], id);
            snprintf(number, sizeof(number), "%llu", event);
            element(&columns[EVENTS], number);
            snprintf(text, sizeof(text),
                     "[1700000000000,\"0.1.0\",[\"ActivityCompleted\",{\"result\":\"\"},%llu],[\"ActivityScheduled\","
                     "{\"name\":\"Noop\",\"input\":\"\"}]]",
                     event - 1);
            element(&columns[TEXTS], text);
        }
        snprintf(token, sizeof(token), "lock-%s-%llu", id, event - 1);
        element(&columns[BEFORE], token);
        element(&columns[OWNERS], id);
        snprintf(number, sizeof(number), "%llu", event + 1);
        element(&columns[ACTIVITIES], number);
        snprintf(token, sizeof(token), "lock-%s-%llu", id, event + 1);
        element(&columns[TOKENS], token);
        snprintf(text, sizeof(text),
                 "{\"ActivityExecute\":{\"instance\":\"%s\",\"execution_id\":1,\"id\":%llu,\"name\":\"Noop\","
                 "\"input\":\"\",\"orchestration_name\":\"Steps\",\"orchestration_version\":\"1.0.0\"}}",
                 id, event + 1);
        element(&columns[ITEMS], text);
    }
    for (int i = 0; i < COLUMNS; i++)
        put(&columns[i], "}", 1);
}

static void send(const prober *p, int number, int count, const char *const *values) {
    char name[16];
    snprintf(name, sizeof(name), "s%d", number);
    if (PQsendQueryPrepared(p->pg, name, count, values, NULL, NULL, 0) != 1) bench_pg_die(p->pg, "probe");
}

static bool writes(const prober *p, int statement, unsigned step) {
    bool first = step == 0, last = step == STEPS_PER_INSTANCE - 1;
    if (p->kind == RULER) return statement == HISTORY || statement == TAKEN || statement == ADDED;
    return statement == HISTORY || (statement == FENCE && !first && !last) || (statement == ADDED && first) ||
           (statement == ENDED && last);
}

static void commit_steps(const prober *p, text_array *columns, unsigned step) {
    const char *history[] = { columns[INSTANCES].data, columns[EVENTS].data, columns[TEXTS].data };
    const char *taken[] = { columns[BEFORE].data };
    const char *added[] = { columns[OWNERS].data, columns[ACTIVITIES].data, columns[TOKENS].data, columns[ITEMS].data };
    const char *const *values[STATEMENTS] = { added, history, taken, added, added };
    const int counts[STATEMENTS] = { 1, 3, 1, p->kind == OWN ? 1 : 4, 1 };
    int waiting = 1; /* for the Sync */
    for (int i = 0; i < STATEMENTS; i++) {
        if (!writes(p, i, step)) continue;
        send(p, i, counts[i], values[i]);
        waiting++;
    }
    if (PQpipelineSync(p->pg) != 1) bench_pg_die(p->pg, "probe");
    while (waiting > 0) {
        PGresult *result = PQgetResult(p->pg);
        ExecStatusType status = PQresultStatus(result);
        if (result != NULL && status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_PIPELINE_SYNC)
            bench_pg_die(p->pg, PQresultErrorMessage(result));
        if (result == NULL || status == PGRES_PIPELINE_SYNC) waiting--;
        PQclear(result);
    }
}

static void *probe(void *arg) {
    prober *p = arg;
    text_array columns[COLUMNS];
    memset(columns, 0, sizeof(columns));
    double begin = bench_now(), now = begin;
    for (uint64_t generation = 0; now - begin < p->seconds; generation++) {
        for (unsigned step = 0; step < STEPS_PER_INSTANCE; step++) {
            for (int i = 0; i < COLUMNS; i++)
                columns[i].size = 0;
            fill(columns, p, generation, step);
            double before = bench_now();
            commit_steps(p, columns, step);
            now = bench_now();
            if (p->duration_count < p->duration_room) p->durations_us[p->duration_count++] = (now - before) * 1e6;
            p->steps += p->steps_per_commit;
        }
    }
    for (int i = 0; i < COLUMNS; i++)
        free(columns[i].data);
    return NULL;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static PGconn *session(const bench *b, const char *schema, const char *const *statements) {
    char sql[200];
    PGconn *pg = bench_pg_connect(b);
    bench_pg_run(pg, bench_pg_settings);
    snprintf(sql, sizeof(sql), "SET search_path = %s", schema);
    bench_pg_run(pg, sql);
    for (int i = 0; i < STATEMENTS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "s%d", i);
        if (statements[i] == NULL) continue;
        PGresult *result = PQprepare(pg, name, statements[i], 0, NULL);
        if (PQresultStatus(result) != PGRES_COMMAND_OK) bench_pg_die(pg, "prepare");
        PQclear(result);
    }
    if (PQenterPipelineMode(pg) != 1) bench_pg_die(pg, "pipeline");
    return pg;
}

static void drop(const bench *b, const char *schema) {
    char sql[200];
    PGconn *pg = bench_pg_connect(b);
    snprintf(sql, sizeof(sql), "SET client_min_messages = warning; DROP SCHEMA IF EXISTS %s CASCADE", schema);
    bench_pg_run(pg, sql);
    PQfinish(pg);
}

static void make(bench *b, const char *schema, bool own) {
    char text[1200];
    dur_error err = DUR_ERROR_INIT;
    dur_provider *store = NULL;
    drop(b, schema);
    if (own) {
        snprintf(text, sizeof(text), "%s%cschema=%s", b->url, strchr(b->url, '?') != NULL ? '&' : '?', schema);
        bench_check(dur_open(&store, text, &err), &err, "probe");
        dur_provider_close(store);
        return;
    }
    PGconn *pg = bench_pg_connect(b);
    snprintf(text, sizeof(text), "CREATE SCHEMA %s; SET search_path = %s", schema, schema);
    bench_pg_run(pg, text);
    bench_pg_run(pg, ruler_schema);
    PQfinish(pg);
}

static double rate(bench *b, probe_kind kind, unsigned connections, unsigned steps_per_commit, double seconds,
                   double *durations, size_t *duration_count) {
    prober probers[2];
    char schema[64];
    double all = 0;
    snprintf(schema, sizeof(schema), "bench_probe_%d", bench_pg_pid());
    const char *const *const sql[] = { [RULER] = ruler_sql, [OWN] = own_sql };
    make(b, schema, kind != RULER);
    for (unsigned i = 0; i < connections; i++)
        probers[i] = (prober){ .pg = session(b, schema, sql[kind]),
                               .kind = kind,
                               .index = i,
                               .steps_per_commit = steps_per_commit,
                               .seconds = seconds,
                               .durations_us = durations,
                               .duration_room = duration_count != NULL ? *duration_count : 0 };
    double begin = bench_now();
    for (unsigned i = 0; i < connections; i++)
        pthread_create(&probers[i].thread, NULL, probe, &probers[i]);
    for (unsigned i = 0; i < connections; i++) {
        pthread_join(probers[i].thread, NULL);
        all += (double)probers[i].steps;
        PQfinish(probers[i].pg);
    }
    double elapsed = bench_now() - begin;
    if (duration_count != NULL) *duration_count = probers[0].duration_count;
    drop(b, schema);
    return all / elapsed;
}

void bench_pg_probes(bench *b) {
    double seconds = b->quick ? 0.05 : b->seconds < 3 ? b->seconds : 3;
    size_t count = 200000;
    double *durations = malloc(count * sizeof(*durations));
    if (durations == NULL) exit(EXIT_FAILURE);
    bench_progress("limit probes");
    bench_result *r = bench_result_add(b, "limit", "{}");
    double one = rate(b, RULER, 1, 20, seconds, NULL, NULL);
    double two = rate(b, RULER, 2, 20, seconds, NULL, NULL);
    b->limit = one > two ? one : two;
    double own_one = rate(b, OWN, 1, 20, seconds, NULL, NULL), own_two = rate(b, OWN, 2, 20, seconds, NULL, NULL);
    b->own_limit = own_one > own_two ? own_one : own_two;
    rate(b, OWN, 1, 1, seconds, durations, &count);
    b->commit_us = bench_percentile(durations, count, 50);
    free(durations);
    bench_metric(r, "steps_per_s", b->limit);
    bench_metric(r, "one_connection", one);
    bench_metric(r, "two_connections", two);
    bench_metric(r, "own_steps_per_s", b->own_limit);
    bench_metric(r, "commit_us", b->commit_us);
}

#endif
