/*
 * pg_help.h: what the tests of the PostgreSQL store share: a schema of its own per test, and a connection beside it.
 */
#ifndef DURITE_TESTS_PG_HELP_H
#define DURITE_TESTS_PG_HELP_H

#include "store_help.h"

#include <durite/postgres.h>
#include <libpq-fe.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct pg_bench {
    bench b;
    PGconn *db; /* for looking from outside */
    char schema[64];
    char url[1024];
} pg_bench;

static inline const char *pg_server(void) {
    return getenv("DURITE_TEST_POSTGRES");
}

static inline void pg_do(PGconn *db, const char *sql) {
    PGresult *result = PQexec(db, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) fail_msg("%s: %s", sql, PQresultErrorMessage(result));
    PQclear(result);
}

static inline long pg_number(PGconn *db, const char *sql) {
    PGresult *result = PQexec(db, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK) fail_msg("%s: %s", sql, PQresultErrorMessage(result));
    long number = strtol(PQgetvalue(result, 0, 0), NULL, 10);
    PQclear(result);
    return number;
}

/* Another node, which is registered and lives. */
static inline void pg_foreign_owner(pg_bench *p) {
    pg_do(p->db, dur_arena_format(p->b.arena,
                                  "INSERT INTO %s.dur_owners (owner, timeout_ms, beat_ms, lock_key, server_start,"
                                  " session_lock) VALUES ('old', 60000, 9000000000000, 1, 0, false)",
                                  p->schema));
}

static inline void pg_pause_ms(long ms) {
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

static inline uint64_t pg_monotonic_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

static inline int pg_setup(void **state) {
    static unsigned serial;
    pg_bench *p = calloc(1, sizeof(*p));
    const char *prefix = getenv("DURITE_TEST_SCHEMA");
    snprintf(p->schema, sizeof(p->schema), "%.20su_%d_%u", prefix != NULL ? prefix : "", (int)getpid(), ++serial);
    /* Sessions of its own name: a test that ends sessions must not end those of a test that runs beside it. */
    snprintf(p->url, sizeof(p->url), "%s&schema=%s&application_name=durite_%s", pg_server(), p->schema, p->schema);
    p->db = PQconnectdb(pg_server());
    if (PQstatus(p->db) != CONNECTION_OK) fprintf(stderr, "%s\n", PQerrorMessage(p->db));
    p->b.arena = dur_arena_new();
    int code = dur_open(&p->b.store, p->url, &p->b.err);
    if (code != DUR_OK) fprintf(stderr, "%s\n", p->b.err.message);
    *state = p;
    return code;
}

static inline int pg_teardown(void **state) {
    pg_bench *p = *state;
    char sql[128];
    dur_provider_close(p->b.store);
    /* Where a test stopped the server and then failed, a teardown that fails too would be all that is told of it. */
    PQreset(p->db);
    snprintf(sql, sizeof(sql), "SET client_min_messages = error; DROP SCHEMA IF EXISTS %s CASCADE", p->schema);
    pg_do(p->db, sql);
    PQfinish(p->db);
    dur_arena_free(p->b.arena);
    free(p);
    return 0;
}

/* From here on a commit on another isolation level fails. */
static inline void pg_watch_levels(pg_bench *p) {
    char sql[600];
    snprintf(sql, sizeof(sql),
             "CREATE FUNCTION %s.level() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF"
             " current_setting('transaction_isolation') <> 'read committed' THEN RAISE EXCEPTION 'isolation level %%',"
             " current_setting('transaction_isolation'); END IF; RETURN NEW; END $$;"
             "CREATE TRIGGER level BEFORE INSERT ON %s.dur_history FOR EACH ROW EXECUTE FUNCTION %s.level()",
             p->schema, p->schema, p->schema);
    pg_do(p->db, sql);
}

#define PG_TEST(test) cmocka_unit_test_setup_teardown(test, pg_setup, pg_teardown)

/* Without a server every test of the program is skipped, and says so. */
#define PG_MAIN(tests)                                                                                                 \
    do {                                                                                                               \
        dur_postgres_register(NULL);                                                                                   \
        if (pg_server() == NULL) {                                                                                     \
            puts("1..1\nok 1 - all # SKIP no PostgreSQL server: DURITE_TEST_POSTGRES is not set "                      \
                 "(tools/with-postgres)");                                                                             \
            return 0;                                                                                                  \
        }                                                                                                              \
        return cmocka_run_group_tests(tests, NULL, NULL);                                                              \
    } while (0)

#endif
