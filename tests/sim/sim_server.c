/*
 * sim_server.c: the machine's own session with a PostgreSQL server: who waits for a lock, who is gone, what to drop.
 */
#include "sim_machine.h"

#ifdef HAVE_LIBPQ
#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>

static PGconn *session;

/* libpq is here on the machine's own account: libc is libc meanwhile. */
static bool ask(const char *text, char *out, size_t room) {
    sim_outside = true;
    PGresult *result = PQexec(session, text);
    bool fine = PQresultStatus(result) == PGRES_TUPLES_OK || PQresultStatus(result) == PGRES_COMMAND_OK;
    if (out != NULL) snprintf(out, room, "%s", PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "");
    if (!fine) fprintf(stderr, "# sim: %s: %s", text, PQerrorMessage(session));
    PQclear(result);
    sim_outside = false;
    return fine;
}

bool sim_server_open(const char *url, const char *schema, char *out, size_t room) {
    char text[256];
    sim_outside = true;
    session = PQconnectdb(url);
    bool fine = PQstatus(session) == CONNECTION_OK;
    if (!fine) fprintf(stderr, "# sim: %s", PQerrorMessage(session));
    sim_outside = false;
    snprintf(out, room, "%s%sschema=%s", url, strchr(url, '?') != NULL ? "&" : "?", schema);
    snprintf(text, sizeof(text), "SET client_min_messages = error; DROP SCHEMA IF EXISTS %s CASCADE", schema);
    return fine && ask(text, NULL, 0);
}

bool sim_server_blocked(int backend) {
    char text[128], answer[8];
    snprintf(text, sizeof(text), "SELECT cardinality(pg_blocking_pids(%d)) > 0", backend);
    return ask(text, answer, sizeof(answer)) && answer[0] == 't';
}

void sim_server_settle(const int *backends, size_t count) {
    char text[768], answer[8] = "0";
    int size = snprintf(text, sizeof(text), "SELECT count(*) FROM pg_stat_activity WHERE pid IN (0");
    for (size_t i = 0; i < count; i++)
        size += snprintf(text + size, sizeof(text) - (size_t)size, ",%d", backends[i]);
    snprintf(text + size, sizeof(text) - (size_t)size, ") AND wait_event_type IS DISTINCT FROM 'Lock'");
    for (int i = 0; i < 500; i++) {
        if (!ask(text, answer, sizeof(answer)) || strcmp(answer, "0") == 0) return;
        (void)sim_real_poll(NULL, 0, 1);
    }
}

void sim_server_close(const char *schema) {
    char text[128];
    snprintf(text, sizeof(text), "DROP SCHEMA IF EXISTS %s CASCADE", schema);
    (void)ask(text, NULL, 0);
    sim_outside = true;
    PQfinish(session);
    sim_outside = false;
}

#else

bool sim_server_open(const char *url, const char *schema, char *out, size_t room) {
    (void)url, (void)schema, (void)out, (void)room;
    return false;
}
bool sim_server_blocked(int backend) {
    (void)backend;
    return false;
}
void sim_server_settle(const int *backends, size_t count) {
    (void)backends, (void)count;
}
void sim_server_close(const char *schema) {
    (void)schema;
}
#endif
