/*
 * pg_late.c: answers that do not come in the time for which the caller waits (dur_deadline_us).
 *
 * libpq waits for as long as the network says that the server lives.  Whoever has a deadline waits in poll instead, and
 * the session whose answer is late is given up with its question, and so is a session that is not there yet.
 *
 * A node's own sessions have no deadline, and wait for no lock (hurries): one that says nothing for a multiple of the
 * owner's timeout is lost, by a pooler that has mixed up its sessions or a firewall that has forgotten the connection.
 * The node says so, gives the session up, and learns from another what has happened.  Where it was only slow the next
 * one gets twice the time.  That holds from the first byte on: a new session is as likely to be lost as an old one.  It
 * holds for any session while it is set up, too, and for those of the pool in a process that runs an owner, where 30 s
 * are the least for what waits for locks, but not for statements that may walk over everything (walks).
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
#define PATIENCE_SHARED_US UINT64_C(30000000) /* of sessions of nobody; two waits for a lock are shorter */
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

/* ---- silence ---- */

typedef struct silence {
    dur__pg_conn *conn;
    uint64_t since_us, say_us;
} silence;

static silence silence_begin(dur__pg_conn *conn) {
    return (silence){ conn, dur__monotonic_us(), SAY_AFTER_US };
}

/* UINT64_MAX: as long as it takes. */
static uint64_t patience_of(dur__pg_conn *conn, uint64_t now_us) {
    uint64_t us = conn->patience_us;
    if (us == 0 && conn->setting_up && !conn->store->caller_clock) us = PATIENCE_SHARED_US;
    if (us < PATIENCE_SHARED_US && us != 0 && conn->may_wait && !conn->setting_up) us = PATIENCE_SHARED_US;
    if (now_us - conn->gave_up_us > TROUBLE_ENDS_US) conn->given_up = 0;
    return us != 0 ? us << conn->given_up : UINT64_MAX;
}

/* Some do not belong to a node, and have the whole time of their caller. */
static bool is_patient(const dur__pg_conn *conn) {
    return conn->hurries || conn->patience_us != 0 || conn->setting_up;
}

static void name_session(const dur__pg_conn *conn, char out[64]) {
    int backend = PQbackendPID(conn->pg);
    if (backend != 0)
        snprintf(out, 64, "session of server process %d", backend);
    else
        snprintf(out, 64, "a new session");
}

/* The first time after a second, then after 3, 7, 15 … seconds. */
static void say_silent(const dur__pg_conn *conn, uint64_t waited_us) {
    char line[300], which[64];
    name_session(conn, which);
    snprintf(line, sizeof(line), "the server, or a pooler in front of it, has not answered %s for %llu s (%s)%s",
             conn->hurries ? "this node" : "a call", (unsigned long long)(waited_us / 1000000), which,
             conn->hurries ? ": what it has to write waits, and without a sign of life it starts nothing new" : "");
    dur_log_say(DUR_LOG_WARN, "durite::provider", line);
}

static void give_up(dur__pg_conn *conn, uint64_t now_us, uint64_t waited_us) {
    char line[200], which[64];
    if (conn->given_up < DOUBLINGS_MAX) conn->given_up++;
    conn->gave_up_us = now_us;
    name_session(conn, which);
    snprintf(line, sizeof(line), "no answer for %llu ms: the %s is given up for a new one",
             (unsigned long long)(waited_us / 1000), PQbackendPID(conn->pg) != 0 ? which : "new session");
    dur_log_say(DUR_LOG_WARN, "durite::provider", line);
}

/* How long to wait for the next sign of life before this is asked again; 0: no longer. */
static uint64_t silence_left_us(silence *s) {
    uint64_t now_us = dur__monotonic_us(), waited_us = now_us - s->since_us;
    if (!is_patient(s->conn)) return dur__pg_in_time(SAY_AFTER_US);
    uint64_t patience_us = patience_of(s->conn, now_us);
    if (waited_us >= s->say_us) {
        say_silent(s->conn, waited_us);
        s->say_us = 2 * s->say_us + SAY_AFTER_US;
    }
    if (waited_us >= patience_us) {
        give_up(s->conn, now_us, waited_us);
        return 0;
    }
    uint64_t say_us = s->say_us > waited_us ? s->say_us - waited_us : SAY_AFTER_US;
    uint64_t left_us = patience_us - waited_us;
    return dur__pg_in_time(left_us < say_us ? left_us : say_us);
}

static bool silence_poll(silence *s, int fd, short events, uint64_t most_us) {
    struct pollfd one = { .fd = fd, .events = events };
    if (poll(&one, 1, (int)(most_us / 1000 + 1)) <= 0) return false;
    if ((one.revents & POLLIN) != 0) *s = silence_begin(s->conn);
    return true;
}

/* Until there is an answer, or the time is over (false).  What could not be sent at once is sent here. */
static bool wait_for_answer(dur__pg_conn *conn) {
    PGconn *pg = conn->pg;
    silence s = silence_begin(conn);
    while (PQisBusy(pg)) {
        uint64_t left_us = silence_left_us(&s);
        if (left_us == 0) return false;
        int unsent = PQflush(pg);
        if (unsent < 0) return true; /* the next result says why */
        (void)silence_poll(&s, PQsocket(pg), (short)(unsent > 0 ? POLLIN | POLLOUT : POLLIN), left_us);
        if (PQconsumeInput(pg) != 1) return true;
    }
    return true;
}

static bool waits_without_limit(const dur__pg_conn *conn) {
    return dur_deadline_us() == DUR_NO_DEADLINE && !is_patient(conn);
}

bool dur__pg_answers(dur__pg_conn *conn) {
    return waits_without_limit(conn) || wait_for_answer(conn);
}

bool dur__pg_is_late(const dur__pg_conn *conn, const PGresult *result) {
    return result == NULL && PQstatus(conn->pg) == CONNECTION_OK && PQtransactionStatus(conn->pg) == PQTRANS_ACTIVE;
}

PGresult *dur__pg_exec(dur__pg_conn *conn, const char *sql) {
    PGconn *pg = conn->pg;
    if (waits_without_limit(conn)) return PQexec(pg, sql);
    PGresult *last = NULL, *next;
    if (PQsendQuery(pg, sql) != 1) return NULL;
    while (wait_for_answer(conn) && (next = PQgetResult(pg)) != NULL) {
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
static void open_in_time(dur__pg_conn *conn, const char *const *keywords, const char *const *values) {
    uint64_t most_us = given_us(value_of(keywords, values, "connect_timeout")), begin_us = dur__monotonic_us();
    silence s = silence_begin(conn);
    conn->pg = PQconnectStartParams(keywords, values, 0);
    PostgresPollingStatusType next =
        conn->pg == NULL || PQstatus(conn->pg) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
    while (next == PGRES_POLLING_READING || next == PGRES_POLLING_WRITING) {
        uint64_t waited_us = dur__monotonic_us() - begin_us;
        uint64_t left_us = most_us > waited_us ? silence_left_us(&s) : 0;
        if (left_us == 0) break;
        if (most_us - waited_us < left_us) left_us = most_us - waited_us;
        if (silence_poll(&s, PQsocket(conn->pg), next == PGRES_POLLING_READING ? POLLIN : POLLOUT, left_us))
            next = PQconnectPoll(conn->pg);
    }
}

/* Of several addresses each has the time that libpq is given. */
static void open_each_in_time(dur__pg_conn *conn, const char **keywords, const char **values) {
    char seconds[24];
    uint64_t patience_us = patience_of(conn, dur__monotonic_us());
    uint64_t most_us = dur__pg_in_time(patience_us);
    snprintf(seconds, sizeof(seconds), "%llu", (unsigned long long)(most_us / 1000000u + 1));
    for (size_t i = 0; keywords[i] != NULL && most_us != UINT64_MAX; i++) {
        if (strcmp(keywords[i], "connect_timeout") == 0 && given_us(values[i]) > most_us) values[i] = seconds;
    }
    conn->pg = PQconnectdbParams(keywords, values, 0);
}

void dur__pg_open_session(dur__pg_conn *conn, const char **keywords, const char **values) {
    bool real = !conn->store->caller_clock || dur_deadline_us() != DUR_NO_DEADLINE; /* else libpq's time is better */
    if (real && one_address((const char *const *)keywords, (const char *const *)values))
        open_in_time(conn, (const char *const *)keywords, (const char *const *)values);
    else
        open_each_in_time(conn, keywords, values);
    if (conn->pg != NULL) (void)PQsetnonblocking(conn->pg, 1); /* who sends to somebody that does not read waits here */
}
