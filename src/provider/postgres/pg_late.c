/*
 * pg_late.c: answers that do not come in the time for which the caller waits (dur_deadline_us).
 *
 * libpq waits for as long as the network says that the server lives.  Whoever has a deadline waits in poll instead, and
 * the session whose answer is late is given up with its question.
 */
#include "provider/postgres/pg_internal.h"

#include <poll.h>

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

bool dur__pg_answers(PGconn *pg) {
    if (dur_deadline_us() == DUR_NO_DEADLINE) return true;
    while (PQisBusy(pg)) {
        uint64_t left_us = dur__pg_in_time(1000000);
        if (left_us == 0) return false;
        struct pollfd answer = { .fd = PQsocket(pg), .events = POLLIN };
        (void)poll(&answer, 1, (int)(left_us / 1000 + 1));
        if (PQconsumeInput(pg) != 1) return true; /* the next result says why */
    }
    return true;
}

PGresult *dur__pg_exec(PGconn *pg, const char *sql) {
    if (dur_deadline_us() == DUR_NO_DEADLINE) return PQexec(pg, sql);
    PGresult *last = NULL, *next;
    if (PQsendQuery(pg, sql) != 1) return NULL;
    while (dur__pg_answers(pg) && (next = PQgetResult(pg)) != NULL) {
        bool failed = last != NULL && PQresultStatus(last) == PGRES_FATAL_ERROR;
        PQclear(failed ? next : last);
        if (!failed) last = next;
        if (PQstatus(pg) == CONNECTION_BAD) break;
    }
    if (!PQisBusy(pg)) return last;
    PQclear(last);
    return NULL;
}
