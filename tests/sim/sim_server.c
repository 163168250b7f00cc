/*
 * sim_server.c: the machine's own session with a PostgreSQL server: who waits for a lock, who is gone, what to drop.
 */
#include "sim_machine.h"

#ifdef HAVE_LIBPQ
#include <errno.h>
#include <libpq-fe.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

/* The address of another database of the same server, and our schema in it. */
static void address(const char *url, const char *database, char *out, size_t room) {
    const char *host = strstr(url, "://"), *path = host != NULL ? strchr(host + 3, '/') : NULL;
    const char *rest = path != NULL ? strchr(path, '?') : NULL;
    snprintf(out, room, "%.*s/%s%s%sschema=sim", (int)(path != NULL ? path - url : (long)strlen(url)), url, database,
             rest != NULL ? rest : "?", rest != NULL ? "&" : "");
}

/* To make a schema takes longer than most runs: it is made once for a server, by a process that leaves no trace here,
   and copied. */
static bool make_template(const char *url) {
    char text[256], answer[8] = "";
    if (!ask("SELECT 1 FROM pg_database WHERE datname = 'sim_template'", answer, sizeof(answer))) return false;
    if (answer[0] == '1') return true;
    if (!ask("CREATE DATABASE sim_template", NULL, 0)) return false;
    address(url, "sim_template", text, sizeof(text));
    pid_t pid = fork();
    if (pid == 0) {
        dur_provider *store = NULL;
        dur_error err = DUR_ERROR_INIT;
        sim_outside = true;
        if (dur_open(&store, text, &err) != DUR_OK) fprintf(stderr, "# sim: %s: %s\n", text, err.message);
        dur_provider_close(store);
        _exit(store == NULL);
    }
    int status = 1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status == 0;
}

bool sim_server_open(const char *url, const char *name, bool empty, char *out, size_t room) {
    char text[256];
    sim_outside = true;
    session = PQconnectdb(url);
    bool fine = PQstatus(session) == CONNECTION_OK;
    if (!fine) fprintf(stderr, "# sim: %s", PQerrorMessage(session));
    sim_outside = false;
    address(url, name, out, room);
    snprintf(text, sizeof(text), "CREATE DATABASE %s%s", name, empty ? "" : " TEMPLATE sim_template");
    return fine && (empty || make_template(url)) && ask(text, NULL, 0);
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

void sim_server_close(const char *name) {
    char text[128];
    snprintf(text, sizeof(text), "DROP DATABASE IF EXISTS %s WITH (FORCE)", name);
    (void)ask(text, NULL, 0);
    sim_outside = true;
    PQfinish(session);
    sim_outside = false;
}

#else

bool sim_server_open(const char *url, const char *name, bool empty, char *out, size_t room) {
    (void)url, (void)name, (void)empty, (void)out, (void)room;
    return false;
}
bool sim_server_blocked(int backend) {
    (void)backend;
    return false;
}
void sim_server_settle(const int *backends, size_t count) {
    (void)backends, (void)count;
}
void sim_server_close(const char *name) {
    (void)name;
}
#endif
