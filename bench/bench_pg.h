/*
 * bench_pg.h: the parts of the benchmark that speak to PostgreSQL themselves.
 */
#ifndef BENCH_PG_H
#define BENCH_PG_H

#include "bench.h"
#include <libpq-fe.h>

extern const char bench_pg_settings[]; /* of a session: as the library sets them */
PGconn *bench_pg_connect(const bench *b);
void bench_pg_run(PGconn *pg, const char *sql); /* exits on failure */
void bench_pg_die(PGconn *pg, const char *what);
int bench_pg_pid(void);

#endif
