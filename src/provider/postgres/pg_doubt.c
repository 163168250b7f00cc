/*
 * pg_doubt.c: crashes in which something ran alone among suspects, but not alone in the process.
 *
 * Of each such crash dur_crashed has everything that was counted in it: worker rows, and instances (work_id 0); a crash
 * is named after the owner that died.  It is in doubt as long as one of the others has not shown that it can end (view
 * dur_doubts, which fetches ask); what was blamed for it, or went without showing anything, stays for good.  Rows go
 * when nothing that ran alone in their crash is a suspect any more, with the death of some later owner.
 */
#include "provider/postgres/pg_doubts.h"
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"

#define ALONE_THERE                                                                                                    \
    " EXISTS (SELECT 1 FROM @instances WHERE owner = $2::text AND runs_alone AND acquisitions > 0) OR EXISTS (SELECT " \
    "1 FROM @worker WHERE owner = $2::text AND runs_alone) OR EXISTS (SELECT 1 FROM @crashed WHERE crash = $2::text)"
/* What is counted for the first time since it has shown something: what was remembered of it before is over. */
#define ANEW(table, id, counted)                                                                                       \
    "WITH a AS (DELETE FROM @crashed c WHERE c.crash <> $2::text AND (c.alone OR NOT c.for_good) AND EXISTS (SELECT 1" \
    " FROM " table " x WHERE x.instance_id = c.instance_id AND c.work_id = " id                                        \
    " AND x.owner = $2::text AND x.crashes"                                                                            \
    " = 0" counted "))"
#define REMEMBER(table, id, counted)                                                                                   \
    " INSERT INTO @crashed (crash, instance_id, work_id, alone) SELECT $2::text, x.instance_id, " id ", x.runs_alone"  \
    " FROM " table " x WHERE x.owner = $2::text" counted " AND (" ALONE_THERE ") ON CONFLICT DO NOTHING"

static const char instances_sql[] =
    ANEW("@instances", "0", " AND x.acquisitions > 0") REMEMBER("@instances", "0", " AND x.acquisitions > 0");
static const char locals_sql[] =
    "INSERT INTO @crashed (crash, instance_id, work_id, alone) SELECT $2::text,"
    " x.instance_id, " DUR__PG_LOCAL_WORK ", false FROM @instances x WHERE x.owner ="
    " $2::text AND x.acquisitions = 0 AND " DUR__PG_IS_OPEN("x") " AND (" ALONE_THERE ") ON CONFLICT DO NOTHING";
static const char works_sql[] = ANEW("@worker", "x.id", "") REMEMBER("@worker", "x.id", "");
static const char forget_sql[] = "DELETE FROM @crashed c WHERE NOT EXISTS (SELECT 1 FROM @crashed a WHERE a.crash ="
                                 " c.crash AND a.alone AND " DUR__PG_UNPROVEN("a") ")";
static const char told_sql[] = "UPDATE @meta SET crashed_ms = #now";

void dur__pg_crash_begin_add(dur__pg_batch *batch, const char *owner) {
    dur__pg_batch_add_id(batch, instances_sql, owner);
    dur__pg_batch_add_id(batch, locals_sql, owner);
    dur__pg_batch_add_id(batch, works_sql, owner);
    dur__pg_batch_add_id(batch, told_sql, owner);
}

void dur__pg_crash_end_add(dur__pg_batch *batch, const char *owner) {
    dur__pg_batch_add_id(batch, forget_sql, owner);
}

static const char blame_sql[] =
    "WITH i AS (UPDATE @instances SET runs_alone = false WHERE token = $2::text RETURNING instance_id), w AS (UPDATE"
    " @worker SET runs_alone = false WHERE token = $2::text RETURNING instance_id, id) UPDATE @crashed c SET for_good ="
    " true FROM (SELECT instance_id, 0 AS id FROM i UNION ALL SELECT instance_id, id FROM w) x WHERE c.instance_id ="
    " x.instance_id AND c.work_id = x.id";

int dur__pg_blame(dur_provider *self, const char *lock_token, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_args_of(store, &args, lock_token);
    return dur__pg_write(store, "postgres.blame", blame_sql, &args, NULL, err);
}
