/*
 * bench_pg.c: what the server is asked to do, counted by the server.
 *
 * Transactions come from pg_stat_database, statements from pg_stat_statements (where it is loaded), bytes of WAL from
 * pg_stat_wal.  A session reports its numbers at most once a second and when it ends, so they are read before a store
 * is opened and after it is closed.  Round trips are Syncs and simple queries, counted here: the functions of libpq
 * that send them are found in this program first.
 */
#include "bench.h"
#ifdef BENCH_POSTGRES
#include "bench_pg.h"
#include <dlfcn.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char bench_pg_settings[] = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET "
                                 "enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan; SET jit = off";

static atomic_ullong round_trips;

#define FOUND_FIRST __attribute__((visibility("default")))

FOUND_FIRST int PQpipelineSync(PGconn *pg) {
    static int (*real)(PGconn *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "PQpipelineSync");
    atomic_fetch_add_explicit(&round_trips, 1, memory_order_relaxed);
    return real(pg);
}

FOUND_FIRST PGresult *PQexec(PGconn *pg, const char *sql) {
    static PGresult *(*real)(PGconn *, const char *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "PQexec");
    atomic_fetch_add_explicit(&round_trips, 1, memory_order_relaxed);
    return real(pg, sql);
}

void bench_pg_die(PGconn *pg, const char *what) {
    fprintf(stderr, "durite-bench: %s: %s\n", what, PQerrorMessage(pg));
    exit(EXIT_FAILURE);
}

/* Parameters that are the store's, and that libpq does not know. */
static bool is_the_stores(const char *parameter) {
    static const char *const names[] = { "schema=", "pool=", "pooler=", "poll=", "migrate=", "clock=", "temporary=" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strncmp(parameter, names[i], strlen(names[i])) == 0) return true;
    return false;
}

static void url_for_libpq(const char *url, char *out, size_t room) {
    size_t size = strcspn(url, "?");
    snprintf(out, room, "%.*s", (int)size, url);
    char separator = '?';
    for (const char *at = url + size; *at != '\0';) {
        size_t length = strcspn(++at, "&");
        size_t used = strlen(out);
        if (!is_the_stores(at)) {
            snprintf(out + used, room - used, "%c%.*s", separator, (int)length, at);
            separator = '&';
        }
        at += length;
    }
}

/* The last one counts: the one that the workload has, whatever schema the caller's URL names. */
static const char *schema_of(const bench *b) {
    const char *found = NULL;
    for (const char *at = b->store_url; (at = strstr(at, "schema=")) != NULL;)
        found = at += strlen("schema=");
    return strncmp(b->url, "postgres", 8) == 0 ? found : NULL;
}

PGconn *bench_pg_connect(const bench *b) {
    char url[1024];
    url_for_libpq(b->url, url, sizeof(url));
    PGconn *pg = PQconnectdb(url);
    if (PQstatus(pg) != CONNECTION_OK) bench_pg_die(pg, "connect");
    return pg;
}

void bench_pg_run(PGconn *pg, const char *sql) {
    PGresult *result = PQexec(pg, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK) bench_pg_die(pg, sql);
    PQclear(result);
}

int bench_pg_pid(void) {
    return (int)getpid();
}

void bench_pg_drop(bench *b) {
    const char *schema = schema_of(b);
    char sql[200];
    if (schema == NULL) return;
    PGconn *pg = bench_pg_connect(b);
    snprintf(sql, sizeof(sql), "SET client_min_messages = warning; DROP SCHEMA IF EXISTS %.60s CASCADE", schema);
    bench_pg_run(pg, sql);
    PQfinish(pg);
}

/* The numbers of the whole server: nobody else is to use it meanwhile.  NAN: it does not count that. */
static double number(PGconn *pg, const char *sql) {
    PGresult *result = PQexec(pg, sql);
    double value = PQresultStatus(result) == PGRES_TUPLES_OK ? strtod(PQgetvalue(result, 0, 0), NULL) : (double)NAN;
    PQclear(result);
    return value;
}

double bench_pg_bytes(const bench *b) {
    const char *schema = schema_of(b);
    char sql[300];
    if (schema == NULL) return 0;
    PGconn *pg = bench_pg_connect(b);
    snprintf(sql, sizeof(sql),
             "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND relnamespace = "
             "'%.60s'::regnamespace",
             schema);
    double bytes = number(pg, sql);
    PQfinish(pg);
    return bytes;
}

bench_server bench_server_count(const bench *b) {
    static bool asked;
    bench_server now = { .round_trips = (double)atomic_load(&round_trips) };
    if (strncmp(b->url, "postgres", 8) != 0) return now;
    PGconn *pg = bench_pg_connect(b);
    if (!asked) bench_pg_run(pg, "SET client_min_messages = warning");
    if (!asked) PQclear(PQexec(pg, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"));
    asked = true;
    now.known = true;
    now.transactions = number(pg, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()");
    now.statements = number(pg, "SELECT sum(calls) FROM pg_stat_statements");
    now.wal_bytes = number(pg, "SELECT wal_bytes FROM pg_stat_wal");
    PQfinish(pg);
    return now;
}

void bench_server_metrics(const bench *b, bench_result *r, const bench_server *before, double steps) {
    bench_server after = bench_server_count(b);
    if (!after.known) return;
    double transactions = (after.transactions - before->transactions) / steps;
    bench_metric(r, "commits_per_step", transactions);
    bench_metric(r, "transactions_per_step", transactions);
    bench_metric(r, "round_trips_per_step", (after.round_trips - before->round_trips) / steps);
    bench_metric(r, "statements_per_step", (after.statements - before->statements) / steps);
    bench_metric(r, "wal_bytes_per_step", (after.wal_bytes - before->wal_bytes) / steps);
}

void bench_pg_settings_read(bench *b) {
    static const char *const names[] = { "server_version", "fsync",        "synchronous_commit", "full_page_writes",
                                         "shared_buffers", "max_wal_size", "wal_sync_method" };
    if (strncmp(b->url, "postgres", 8) != 0) return;
    PGconn *pg = bench_pg_connect(b);
    b->settings[0] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char sql[64];
        size_t size = strlen(b->settings);
        snprintf(sql, sizeof(sql), "SHOW %s", names[i]);
        PGresult *result = PQexec(pg, sql);
        if (PQresultStatus(result) == PGRES_TUPLES_OK)
            snprintf(b->settings + size, sizeof(b->settings) - size, "%s\"%s\":\"%s\"", i > 0 ? "," : "", names[i],
                     PQgetvalue(result, 0, 0));
        PQclear(result);
    }
    PQfinish(pg);
}

#else /* without libpq there is no server to ask */

bench_server bench_server_count(const bench *b) {
    (void)b;
    return (bench_server){ .known = false };
}
void bench_server_metrics(const bench *b, bench_result *r, const bench_server *before, double steps) {
    (void)b, (void)r, (void)before, (void)steps;
}
void bench_pg_settings_read(bench *b) {
    (void)b;
}
void bench_pg_probes(bench *b) {
    (void)b;
}
void bench_pg_drop(bench *b) {
    (void)b;
}
double bench_pg_bytes(const bench *b) {
    (void)b;
    return 0;
}

#endif
