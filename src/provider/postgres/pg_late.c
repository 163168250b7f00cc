/*
 * pg_late.c: answers that do not come in the time for which the caller waits (dur_deadline_us).
 *
 * libpq waits for as long as the network says that the server lives.  Whoever has a deadline waits in poll instead, and
 * the session whose answer is late is given up with its question.  A node waits as long as it takes, and says so.
 */
#include "provider/postgres/pg_internal.h"

#include <durite/log.h>
#include <poll.h>
#include <stdio.h>

#define SAY_AFTER_US UINT64_C(1000000)

uint64_t dur__pg_in_time(uint64_t us) {
    uint64_t deadline_us = dur_deadline_us(), now_us = dur__monotonic_us();
    if (deadline_us == DUR_NO_DEADLINE) return us;
    uint64_t left_us = deadline_us > now_us ? deadline_us - now_us : 0;
    return left_us < us ? left_us : us;
}

int dur__pg_late(dur_error *err, const char *op) {
    return dur_error_set(err, DUR_EUNAVAILABLE, true, op,
                         "the server, or a pooler in front of it, has not answered in the time given");
}

/* A second after the question, then twice as long each time; who is left is whoever has hung in the meantime. */
static void say_silent(const dur__pg_conn *conn, uint64_t waited_us) {
    char line[300];
    snprintf(line, sizeof(line),
             "the server, or a pooler in front of it, has not answered this node for %llu s (session of server process "
             "%d): what it has to write waits, and without a sign of life it starts nothing new",
             (unsigned long long)(waited_us / 1000000), conn->backend);
    dur_log_say(DUR_LOG_WARN, "durite::provider", line);
}

/* Until there is an answer, or the time is over (false). */
static bool wait_for_answer(PGconn *pg, const dur__pg_conn *node) {
    uint64_t begin_us = dur__monotonic_us(), say_us = SAY_AFTER_US;
    while (PQisBusy(pg)) {
        uint64_t waited_us = dur__monotonic_us() - begin_us;
        if (node != NULL && waited_us >= say_us) {
            say_silent(node, waited_us);
            say_us = 2 * say_us + SAY_AFTER_US;
        }
        uint64_t left_us = dur__pg_in_time(node != NULL && say_us > waited_us ? say_us - waited_us : SAY_AFTER_US);
        if (left_us == 0) return false;
        struct pollfd answer = { .fd = PQsocket(pg), .events = POLLIN };
        (void)poll(&answer, 1, (int)(left_us / 1000 + 1));
        if (PQconsumeInput(pg) != 1) return true; /* the next result says why */
    }
    return true;
}

bool dur__pg_answers(const dur__pg_conn *conn) {
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
