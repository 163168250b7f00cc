/*
 * neighbour.h: what others do with a PostgreSQL server that Durite uses too: administrators, other applications,
 * poolers.
 */
#ifndef TESTS_HOSTILE_NEIGHBOUR_H
#define TESTS_HOSTILE_NEIGHBOUR_H

#include "e2e/pooler.h"
#include "hostile.h"

#ifdef HAVE_LIBPQ
#include <libpq-fe.h>

static inline PGconn *pg_connect(const char *url) {
    PGconn *db = PQconnectdb(url);
    if (PQstatus(db) != CONNECTION_OK) fail_msg("%s", PQerrorMessage(db));
    return db;
}

/* To the server of the tests. */
static inline PGconn *pg_beside(void) {
    return pg_connect(getenv("DURITE_TEST_URL"));
}

/* The first column of the first row; NULL: there is none. */
static inline char *pg_text(PGconn *db, const char *sql) {
    PGresult *result = PQexec(db, sql);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) fail_msg("%s: %s", sql, PQresultErrorMessage(result));
    char *text = PQntuples(result) > 0 ? strdup(PQgetvalue(result, 0, 0)) : NULL;
    PQclear(result);
    return text;
}

__attribute__((format(printf, 2, 3))) static inline long pg_number(PGconn *db, const char *format, ...) {
    char sql[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(sql, sizeof(sql), format, args);
    va_end(args);
    char *text = pg_text(db, sql);
    long number = text != NULL ? strtol(text, NULL, 10) : -1;
    free(text);
    return number;
}
#define pg_do(...) ((void)pg_number(__VA_ARGS__))

/* Of a URL that world_setup has made. */
static inline void schema_of(const world *w, char out[80]) {
    const char *at = strstr(w->url, "schema=");
    snprintf(out, 80, "%.*s", (int)strcspn(at + 7, "&"), at + 7);
}

/* The URL of the tests for another database; false: it is not one that we can change. */
static inline bool url_of_database(char *out, size_t room, const char *database) {
    const char *url = getenv("DURITE_TEST_URL"), *at = strstr(url, "/postgres?");
    if (at == NULL) return false;
    snprintf(out, room, "%.*s/%s%s", (int)(at - url), url, database, at + strlen("/postgres"));
    return true;
}

static inline void drop_role(PGconn *db, const char *role) {
    pg_do(db, "REASSIGN OWNED BY %s TO CURRENT_USER; DROP OWNED BY %s; DROP ROLE %s", role, role, role);
}

/* Rows of our tables that sessions have read, as far as they have ended. */
static inline long rows_visited(PGconn *db, const char *schema) {
    return pg_number(db,
                     "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables WHERE"
                     " schemaname = '%s'",
                     schema);
}

/* Until no session of that name is there: then all that it has read is counted. */
static inline void until_gone(PGconn *db, const char *application) {
    for (uint64_t end_ms = now_ms() + patience_ms();
         pg_number(db, "SELECT count(*) FROM pg_stat_activity WHERE application_name = '%s'", application) > 0;
         pause_ms(5))
        if (now_ms() > end_ms) fail_msg("sessions do not end");
}

/* A store of another URL than the test's, in its schema. */
static inline world elsewhere(const world *w, const char *url) {
    world other = { 0 };
    char schema[80];
    schema_of(w, schema);
    snprintf(other.url, sizeof(other.url), "%s&schema=%s", url, schema);
    world_open_store(&other);
    OK(&other, dur_client_new(&other.client, other.store, &other.err));
    return other;
}

static inline void leave(world *other) {
    world_stop(other);
    dur_client_free(other->client);
    dur_provider_close(other->store);
}

/* ---- a workflow that uses everything a store has ----------------------------------------------------------------- */

static inline dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static inline dur_outcome child(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

/* Twice: the first execution continues as new. */
static inline dur_outcome everything(dur_ctx *ctx, const char *input) {
    dur_status_set(ctx, "begun");
    dur_kv_set(ctx, "key", input);
    dur_future *both[] = { dur_activity(ctx, "Echo", input), dur_activity(ctx, "Echo", input, .session = input) };
    dur_join_n(both, 2);
    dur_await(dur_activity(ctx, "Echo", input));
    dur_await(dur_orchestration(ctx, "Child", input));
    dur_await(dur_timer(ctx, 1));
    const char *late = NULL;
    dur_try_for(dur_pulse(ctx, "Never"), 1, &late);
    const char *message = dur_await(dur_message(ctx, "box"));
    if (strcmp(message, "again") == 0) return dur_continue_as_new(ctx, input);
    return dur_complete(ctx, message);
}

static const dur_handler everything_handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("Child", "1.0.0", child),
    DUR_ORCHESTRATION("Everything", "1.0.0", everything),
    DUR_HANDLERS_END,
};

static inline void do_everything(world *w, const char *instance) {
    start(w, "Everything", instance, instance);
    OK(w, dur_client_send(w->client, &w->err, instance, "box", "again", .message_id = "1"));
    OK(w, dur_client_send(w->client, &w->err, instance, "box", "done", .message_id = "2"));
    expect(w, instance, "done");
}

/* ---- pgbouncer --------------------------------------------------------------------------------------------------- */

typedef struct bouncer {
    char dir[80];
    pid_t pid;
} bouncer;

/* In front of the server of this URL; false: there is none on this machine. */
static inline bool bouncer_start_at(bouncer *b, const char *url, const char *user, const char *settings) {
    const char *host = strstr(url, "host=/");
    char path[100];
    if (access("/usr/sbin/pgbouncer", X_OK) != 0 || host == NULL) return false;
    temporary_path(b->dir, sizeof(b->dir), "durite-bouncer-XXXXXX");
    if (mkdtemp(b->dir) == NULL) return false;
    snprintf(path, sizeof(path), "%s/pgbouncer.ini", b->dir);
    FILE *file = fopen(path, "w");
    fprintf(file,
            "[databases]\npostgres = host=%.*s user=%s\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = %s\n"
            "listen_port = 5432\nauth_type = any\nmax_client_conn = 100\nlogfile = %s/log\npidfile = %s/pid\n%s\n",
            (int)strcspn(host + 5, "&"), host + 5, user, b->dir, b->dir, b->dir, settings);
    fclose(file);
    chmod(b->dir, 0777);
    chmod(path, 0666);
    b->pid = fork();
    if (b->pid != 0) return true;
    pooler_become(path);
}

/* In front of the tests' server. */
static inline bool bouncer_start(bouncer *b, const char *user, const char *settings) {
    return bouncer_start_at(b, getenv("DURITE_TEST_URL"), user, settings);
}

static inline PGconn *bouncer_connect(const bouncer *b) {
    char url[200];
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&application_name=app&client_encoding=UTF8",
             b->dir);
    for (uint64_t end_ms = now_ms() + patience_ms();; pause_ms(10)) { /* it takes a moment to come up */
        PGconn *db = PQconnectdb(url);
        if (PQstatus(db) == CONNECTION_OK) return db;
        if (now_ms() > end_ms) fail_msg("%s", PQerrorMessage(db));
        PQfinish(db);
    }
}

static inline void bouncer_stop(bouncer *b) {
    char command[100];
    kill(b->pid, SIGTERM);
    (void)node_wait(b->pid);
    snprintf(command, sizeof(command), "rm -rf '%s'", b->dir);
    assert_int_equal(system(command), 0);
}
#endif

#endif
