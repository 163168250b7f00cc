/*
 * chaos_server.c: the servers: one that tools/with-postgres has made, and a second place beside it, for a standby.
 */
#include "chaos.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int shell(const char *format, ...) {
    char command[4000];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    return system(command);
}

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value != NULL ? value : "";
}

void servers_begin(chaos *c) {
    const char *data = setting("DURITE_TEST_POSTGRES_DATA");
    snprintf(c->base, sizeof(c->base), "%.*s", (int)(strlen(data) - strlen("/data")), data);
    server *first = &c->servers[0], *second = &c->servers[1];
    snprintf(first->socket, sizeof(first->socket), "%.118s", c->base);
    snprintf(second->socket, sizeof(second->socket), "%.110s/b", c->base);
    for (size_t i = 0; i < SERVERS; i++) {
        snprintf(c->servers[i].data, sizeof(c->servers[i].data), "%s/data", c->servers[i].socket);
        snprintf(c->servers[i].log, sizeof(c->servers[i].log), "%s/server-%zu.log", c->folder, i);
    }
}

void server_url(const chaos *c, const char *user, char *out, size_t room) {
    snprintf(out, room, "postgres:///postgres?host=%s,%s&user=%s&target_session_attrs=read-write", c->servers[0].socket,
             c->servers[1].socket, user);
}

bool server_start(chaos *c, size_t which) {
    const server *s = &c->servers[which];
    const char *as = setting("DURITE_TEST_POSTGRES_AS"), *clock = setting("DURITE_POSTGRES_CLOCK");
    return shell(
               "cd / && %s env %s%s '%s/pg_ctl' -D '%s' -l '%s' -w -t 120 -o \"-c unix_socket_directories='%s'\" start"
               " >>'%s.ctl' 2>&1",
               as, clock[0] != '\0' ? "LD_PRELOAD=" : "", clock, setting("DURITE_TEST_POSTGRES_BIN"), s->data, s->log,
               s->socket, s->log) == 0;
}

static pid_t postmaster(const server *s) {
    char path[200];
    long pid = 0;
    snprintf(path, sizeof(path), "%s/postmaster.pid", s->data);
    FILE *in = fopen(path, "r");
    if (in == NULL) return 0;
    if (fscanf(in, "%ld", &pid) != 1) pid = 0;
    fclose(in);
    return (pid_t)pid;
}

/* Its parent, or 0: it is gone, or dead. */
static pid_t parent_of(pid_t pid) {
    char path[64], line[400], state = 'Z';
    int parent = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *in = fopen(path, "r");
    if (in == NULL) return 0;
    const char *behind = fgets(line, sizeof(line), in) != NULL ? strrchr(line, ')') : NULL;
    fclose(in);
    if (behind == NULL || sscanf(behind + 1, " %c %d", &state, &parent) != 2 || state == 'Z') return 0;
    return parent;
}

bool server_is_up(const chaos *c, size_t which) {
    pid_t pid = postmaster(&c->servers[which]);
    return pid > 0 && parent_of(pid) != 0;
}

/* The postmaster stands still first, so that it has no further children. */
void server_kill(chaos *c, size_t which) {
    pid_t pid = postmaster(&c->servers[which]), children[1000];
    size_t count = 0;
    if (pid <= 0 || parent_of(pid) == 0) return;
    kill(pid, SIGSTOP);
    DIR *all = opendir("/proc");
    for (struct dirent *at; (at = readdir(all)) != NULL && count < 1000;) {
        pid_t other = isdigit((unsigned char)at->d_name[0]) ? (pid_t)strtol(at->d_name, NULL, 10) : 0;
        if (other > 0 && parent_of(other) == pid) children[count++] = other;
    }
    closedir(all);
    kill(pid, SIGKILL);
    for (size_t i = 0; i < count; i++)
        kill(children[i], SIGKILL);
    for (size_t i = 0; i < count; i++)
        while (parent_of(children[i]) != 0)
            pause_ms(5);
    while (parent_of(pid) != 0)
        pause_ms(5);
    /* Until somebody buries it, it would pass for running. */
    shell("rm -f '%s/postmaster.pid' '%s'/.s.PGSQL.*", c->servers[which].data, c->servers[which].socket);
}

void server_put_away(chaos *c, size_t which) {
    server_kill(c, which);
    shell("rm -rf '%s'", c->servers[which].data);
}

PGconn *admin_begin(chaos *c) {
    char url[600];
    server_url(c, "durite", url, sizeof(url));
    for (uint64_t end_ms = now_ms() + 60000;; pause_ms(50)) {
        PGconn *db = PQconnectdb(url);
        if (PQstatus(db) == CONNECTION_OK) return db;
        if (now_ms() > end_ms) {
            fprintf(stderr, "there is no primary: %s\n", PQerrorMessage(db));
            exit(1);
        }
        PQfinish(db);
    }
}

bool sql_try(PGconn *db, char *out, size_t room, const char *sql) {
    PGresult *result = PQexec(db, sql);
    ExecStatusType status = PQresultStatus(result);
    bool good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    const char *text = !good ? PQresultErrorMessage(result) : PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "";
    if (out != NULL) snprintf(out, room, "%s", text);
    PQclear(result);
    return good;
}

long sql_number(PGconn *db, const char *format, ...) {
    char sql[3000], text[300];
    va_list args;
    va_start(args, format);
    vsnprintf(sql, sizeof(sql), format, args);
    va_end(args);
    if (sql_try(db, text, sizeof(text), sql)) return strtol(text, NULL, 10);
    fprintf(stderr, "%.200s: %s\n", sql, text);
    return -1;
}
