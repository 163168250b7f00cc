/*
 * neighbour.h: what others do with a PostgreSQL server that Durite uses too: administrators, other applications, poolers.
 */
#ifndef TESTS_HOSTILE_NEIGHBOUR_H
#define TESTS_HOSTILE_NEIGHBOUR_H

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

__attribute__((format(printf, 2, 3))) static inline void pg_do(PGconn *db, const char *format, ...) {
    char sql[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(sql, sizeof(sql), format, args);
    va_end(args);
    free(pg_text(db, sql));
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
#endif

#endif
