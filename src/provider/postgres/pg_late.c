/*
 * pg_late.c: answers that do not come in the time for which the caller waits (dur_deadline_us).
 *
 * libpq waits for as long as the network says that the server lives.  Whoever has a deadline waits in poll instead, and
 * the session whose answer is late is given up with its question, and so is a session that is not there yet.
 *
 * A node's own sessions have no deadline, and wait for no lock (hurries): an answer that takes a multiple of the
 * owner's timeout is lost, by a pooler that has mixed up its sessions or a firewall that has forgotten the connection.
 * The node says so, gives the session up, and learns from another what has happened.  Where it was only slow the next
 * one gets twice the time.
 */
#include "provider/postgres/pg_internal.h"

#include <durite/log.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#define SAY_AFTER_US UINT64_C(1000000)
#define PATIENCE_TIMEOUTS 3u
#define TIMEOUT_MOST_MS 3600000u
#define DOUBLINGS_MAX 5u
#define TROUBLE_ENDS_US UINT64_C(3600000000) /* an hour without it, and it begins with the shortest time again */

uint64_t dur__pg_in_time(uint64_t us) {
    uint64_t deadline_us = dur_deadline_us(), now_us = dur__monotonic_us();
    if (deadline_us == DUR_NO_DEADLINE) return us;
    uint64_t left_us = deadline_us > now_us ? deadline_us - now_us : 0;
    return left_us < us ? left_us : us;
}

/* By the real clock: in a fake world an answer is as late as its scheduler likes. */
void dur__pg_set_patience(dur__pg_conn *conn, uint64_t owner_timeout_ms) {
    uint64_t ms = owner_timeout_ms < TIMEOUT_MOST_MS ? owner_timeout_ms : TIMEOUT_MOST_MS;
    conn->patience_us = conn->store->caller_clock ? 0 : PATIENCE_TIMEOUTS * ms * 1000u;
}

int dur__pg_late(dur_error *err, const char *op) {
    return dur_error_set(err, DUR_EUNAVAILABLE, true, op,
                         "the server, or a pooler in front of it, has not answered in the time given");
}

/* The first time after a second, then after 3, 7, 15 … seconds. */
static void say_silent(const dur__pg_conn *conn, uint64_t waited_us) {
    char line[300];
    snprintf(line, sizeof(line),
             "the server, or a pooler in front of it, has not answered this node for %llu s (session of server process "
             "%d): what it has to write waits, and without a sign of life it starts nothing new",
             (unsigned long long)(waited_us / 1000000), conn->backend);
    dur_log_say(DUR_LOG_WARN, "durite::provider", line);
}

static bool gives_up(dur__pg_conn *node, uint64_t waited_us) {
    uint64_t now_us = dur__monotonic_us();
    if (now_us - node->gave_up_us > TROUBLE_ENDS_US) node->given_up = 0;
    if (node->patience_us == 0 || waited_us < node->patience_us << node->given_up) return false;
    if (node->given_up < DOUBLINGS_MAX) node->given_up++;
    node->gave_up_us = now_us;
    char line[200];
    snprintf(line, sizeof(line), "no answer for %llu s: the session of server process %d is given up for a new one",
             (unsigned long long)(waited_us / 1000000), node->backend);
    dur_log_say(DUR_LOG_WARN, "durite::provider", line);
    return true;
}

/* Until there is an answer, or the time is over (false). */
static bool wait_for_answer(PGconn *pg, dur__pg_conn *node) {
    uint64_t begin_us = dur__monotonic_us(), say_us = SAY_AFTER_US;
    while (PQisBusy(pg)) {
        uint64_t waited_us = dur__monotonic_us() - begin_us;
        if (node != NULL && waited_us >= say_us) {
            say_silent(node, waited_us);
            say_us = 2 * say_us + SAY_AFTER_US;
        }
        if (node != NULL && gives_up(node, waited_us)) return false;
        uint64_t left_us = dur__pg_in_time(node != NULL && say_us > waited_us ? say_us - waited_us : SAY_AFTER_US);
        if (left_us == 0) return false;
        struct pollfd answer = { .fd = PQsocket(pg), .events = POLLIN };
        (void)poll(&answer, 1, (int)(left_us / 1000 + 1));
        if (PQconsumeInput(pg) != 1) return true; /* the next result says why */
    }
    return true;
}

bool dur__pg_answers(dur__pg_conn *conn) {
    bool limited = dur_deadline_us() != DUR_NO_DEADLINE;
    return (!limited && !conn->hurries) || wait_for_answer(conn->pg, conn->hurries ? conn : NULL);
}

PGresult *dur__pg_exec(PGconn *pg, const char *sql) {
    if (dur_deadline_us() == DUR_NO_DEADLINE) return PQexec(pg, sql);
    PGresult *last = NULL, *next;
    if (PQsendQuery(pg, sql) != 1) return NULL;
    while (wait_for_answer(pg, NULL) && (next = PQgetResult(pg)) != NULL) {
        bool failed = last != NULL && PQresultStatus(last) == PGRES_FATAL_ERROR;
        PQclear(failed ? next : last);
        if (!failed) last = next;
        if (PQstatus(pg) == CONNECTION_BAD) break;
    }
    if (!PQisBusy(pg)) return last;
    PQclear(last);
    return NULL;
}

/* ---- a new session ---- */

static const char *value_of(const char *const *keywords, const char *const *values, const char *keyword) {
    const char *value = NULL;
    for (; *keywords != NULL; keywords++, values++) {
        if (strcmp(*keywords, keyword) == 0) value = *values;
    }
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool resolves_to_one(const char *host) {
    struct addrinfo *all = NULL;
    const struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    if (host[0] == '/' || host[0] == '@') return true; /* a socket of this machine */
    if (getaddrinfo(host, NULL, &hints, &all) != 0) return false;
    bool one = all != NULL && all->ai_next == NULL;
    freeaddrinfo(all);
    return one;
}

/* Only then is one limit for all of it right: of several addresses libpq tries the next by itself, but not in steps. */
static bool one_address(const char *const *keywords, const char *const *values) {
    const char *host = value_of(keywords, values, "hostaddr");
    if (host == NULL) host = value_of(keywords, values, "host");
    if (host == NULL && (value_of(keywords, values, "service") != NULL || getenv("PGSERVICE") != NULL)) return false;
    if (host == NULL) host = getenv("PGHOSTADDR");
    if (host == NULL) host = getenv("PGHOST");
    return host == NULL || (strchr(host, ',') == NULL && resolves_to_one(host));
}

static uint64_t given_us(const char *seconds) {
    long long given = seconds != NULL ? strtoll(seconds, NULL, 10) : 0;
    if (given <= 0 || given > INT32_MAX) return UINT64_MAX;
    return (uint64_t)(given == 1 ? 2 : given) * 1000000u; /* 1 is 2 to libpq */
}

/* Until the time is up; then it is neither open nor refused. */
static PGconn *open_in_time(const char *const *keywords, const char *const *values) {
    uint64_t most_us = given_us(value_of(keywords, values, "connect_timeout")), begin_us = dur__monotonic_us();
    PGconn *pg = PQconnectStartParams(keywords, values, 0);
    PostgresPollingStatusType next =
        pg == NULL || PQstatus(pg) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
    while (next == PGRES_POLLING_READING || next == PGRES_POLLING_WRITING) {
        uint64_t waited_us = dur__monotonic_us() - begin_us;
        uint64_t left_us = dur__pg_in_time(most_us > waited_us ? most_us - waited_us : 0);
        if (left_us == 0) break;
        struct pollfd step = { .fd = PQsocket(pg), .events = next == PGRES_POLLING_READING ? POLLIN : POLLOUT };
        if (poll(&step, 1, left_us < SAY_AFTER_US ? (int)(left_us / 1000 + 1) : 1000) > 0) next = PQconnectPoll(pg);
    }
    return pg;
}

PGconn *dur__pg_open_session(const char **keywords, const char **values) {
    char seconds[24];
    if (dur_deadline_us() == DUR_NO_DEADLINE) return PQconnectdbParams(keywords, values, 0);
    if (one_address((const char *const *)keywords, (const char *const *)values))
        return open_in_time((const char *const *)keywords, (const char *const *)values);
    uint64_t left_us = dur__pg_in_time(UINT64_MAX);
    snprintf(seconds, sizeof(seconds), "%llu", (unsigned long long)(left_us / 1000000u + 1));
    for (size_t i = 0; keywords[i] != NULL; i++) {
        if (strcmp(keywords[i], "connect_timeout") == 0 && given_us(values[i]) > left_us) values[i] = seconds;
    }
    return PQconnectdbParams(keywords, values, 0);
}
