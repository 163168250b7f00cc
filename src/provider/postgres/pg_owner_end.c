/*
 * pg_owner_end.c: the end of an owner: what it held is free again.
 *
 * One short transaction marks its row (dead: 1 it has died, 2 it has left) and deletes the rows of its lanes: it waits
 * for whatever is just being taken under its name, and from then on nothing is.  What it has is freed in batches of
 * later transactions, which skip what somebody has locked.  The owner's row goes behind the one that finds nothing
 * left; any node that sees a marked one carries on, so whoever began may die at any point.
 */
#include "provider/postgres/pg_doubts.h"
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"
#include "provider/postgres/pg_works.h"

#include <stdlib.h>

#define BATCH "500"

/* ---- the mark ---------------------------------------------------------------------------------------------------- */

/* Outside of lanes its own row is locked by whoever takes something (FOR KEY SHARE). */
static const char lock_sql[] = "SELECT 1 FROM @owners WHERE owner = $2::text FOR UPDATE";
/* $3: only if it has not beaten since; NULL: it leaves. */
static const char mark_sql[] =
    "WITH u AS (UPDATE @owners SET dead = CASE WHEN $3::bigint IS NULL THEN 2 ELSE 1 END WHERE owner = $2::text AND"
    " dead = 0 AND ($3::bigint IS NULL OR beat_ms = $3::bigint) RETURNING 1)"
    " SELECT 1 / (CASE WHEN count(*) = 1 OR $3::bigint IS NULL THEN 1 ELSE 0 END) FROM u";
static const char lanes_sql[] = "DELETE FROM @lanes WHERE owner = $2::text";

int dur__pg_owner_mark(dur__pg_conn *conn, const char *owner, const int64_t *beat_ms, dur_error *err) {
    dur__pg_args args;
    dur__pg_batch batch;
    dur__pg_batch_begin(&batch, conn, true);
    dur__pg_batch_add_id(&batch, lock_sql, owner);
    dur__pg_args_of(conn->store, &args, owner);
    if (beat_ms != NULL)
        dur__pg_i64(&args, *beat_ms);
    else
        dur__pg_null(&args);
    dur__pg_batch_add(&batch, mark_sql, &args);
    dur__pg_batch_add_id(&batch, lanes_sql, owner);
    if (beat_ms != NULL) dur__pg_crash_begin_add(&batch, owner);
    int code = dur__pg_batch_run(&batch, "postgres.owner", err);
    if (strcmp(batch.sqlstate, "22012") == 0 || dur__pg_waited_too_long(&batch)) /* soon it may be otherwise */
        code = dur_error_set(err, DUR_EBUSY, true, "postgres.owner", "owner %s is at work", owner);
    dur__pg_batch_end(&batch);
    return code;
}

/*
 * A process that stood still, or a machine that was switched off, in the middle of a batch: the server waits for the
 * rest of it, for as long as the connection seems to be there, and keeps every row that was locked.  Its sessions are
 * those of its lanes, which hold the owner's lock of life, and whoever takes something under its name, with the
 * fence's. The beat is compared once more.
 */
static const char end_batches_sql[] =
    "SELECT pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity a WHERE a.datname = current_database() AND"
    " a.usename = current_user AND a.pid <> pg_backend_pid() AND a.xact_start < clock_timestamp() - interval '200 ms'"
    " AND a.pid IN (SELECT l.pid FROM pg_catalog.pg_locks l WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND"
    " l.database = a.datid AND l.classid::bigint << 32 | l.objid::bigint IN ($3::bigint, $4::bigint)) AND EXISTS"
    " (SELECT 1 FROM @owners WHERE owner = $2::text AND beat_ms = $5::bigint)";

void dur__pg_owner_end_batches(dur__pg_conn *conn, const char *owner, int64_t beat_ms) {
    dur__pg_args args;
    dur__pg_batch batch;
    if (dur__pg_connect(conn, NULL) != DUR_OK) return;
    dur__pg_batch_begin(&batch, conn, false);
    dur__pg_args_of(conn->store, &args, owner);
    dur__pg_i64(&args, dur__pg_owner_key(conn->store, owner));
    dur__pg_i64(&args, dur__pg_fence_key(conn->store, owner));
    dur__pg_i64(&args, beat_ms);
    dur__pg_batch_add(&batch, end_batches_sql, &args);
    (void)dur__pg_batch_run(&batch, "postgres.owner", NULL); /* the next try to take it over tells */
    dur__pg_batch_end(&batch);
}

/* ---- freeing ----------------------------------------------------------------------------------------------------- */

/* Some of its leases are locked, skipping what somebody has, and looked at by the statements behind that: their ids are
   handed on in a setting of the transaction. */
static const char some_leases_sql[] =
    "SELECT set_config('durite.some', coalesce(array_agg(t.instance_id)::text, '{}'), true) FROM (SELECT instance_id"
    " FROM @instances WHERE owner = $2::text ORDER BY instance_id LIMIT " BATCH " FOR UPDATE SKIP LOCKED) t";
#define IS_ONE_OF_THEM "instance_id = ANY (nullif(current_setting('durite.some', true), '')::text[])"
#define CLEAN "(SELECT o.dead = 2 FROM @owners o WHERE o.owner = $2::text)"
/* What it had taken and not used is not counted where it left; otherwise what was acquired and not committed may be
   what killed it.  Should it live after all its lanes are told what they have lost. */
static const char lost_sql[] =
    "INSERT INTO @lost (holder, instance_id, at_ms) SELECT holder, instance_id, #now FROM @instances WHERE"
    " " IS_ONE_OF_THEM " AND holder IS NOT NULL AND NOT " CLEAN;
/* clang-format off */
static const char leases_sql[] =
    "WITH c AS MATERIALIZED (SELECT " CLEAN " AS clean),"
    " i0 AS (SELECT x.instance_id, x.acquisitions, c.clean::integer AS less, NOT c.clean AS died, 0 AS until FROM"
    " @instances x, c WHERE x." IS_ONE_OF_THEM "), " DUR__PG_ENDS " " DUR__PG_END_ROWS(
    " crashes = i.crashes + CASE WHEN f.died AND i.acquisitions > 0 THEN 1 ELSE 0 END, crashes_alone ="
    " i.crashes_alone + CASE WHEN f.died AND i.acquisitions > 0 AND i.runs_alone THEN 1 ELSE 0 END,");
/* clang-format on */
static const char works_sql[] =
    "UPDATE @worker w SET token = NULL, owner = NULL, until_ms = 0, since_ms = #now, crashes = w.crashes + CASE WHEN"
    " c.clean THEN 0 ELSE 1 END, crashes_alone = w.crashes_alone + CASE WHEN w.runs_alone AND NOT c.clean THEN 1 ELSE 0"
    " END, attempts = CASE WHEN c.clean THEN greatest(w.attempts - 1, 0) ELSE w.attempts END FROM (SELECT o.dead = 2 AS"
    " clean FROM @owners o WHERE o.owner = $2::text) c, (SELECT x.instance_id, x.id FROM @worker x WHERE x.owner ="
    " $2::text ORDER BY x.instance_id, x.id LIMIT " BATCH " FOR UPDATE SKIP LOCKED) l WHERE " DUR__PG_IS_L;
static const char sessions_sql[] =
    "UPDATE @sessions SET owner = NULL, until_ms = CASE WHEN holder = $2::text OR lock_ms = 0 THEN 0 ELSE #now +"
    " lock_ms END WHERE session_id IN (SELECT session_id FROM @sessions WHERE owner = $2::text ORDER BY session_id"
    " LIMIT " BATCH " FOR UPDATE SKIP LOCKED) AND owner = $2::text";
/* The last one; what is left is locked by somebody. */
static const char forget_sql[] =
    "WITH d AS (DELETE FROM @owners WHERE owner = $2::text AND dead > 0 AND NOT EXISTS (SELECT 1 FROM @instances WHERE"
    " owner = $2::text) AND NOT EXISTS (SELECT 1 FROM @worker WHERE owner = $2::text) AND NOT EXISTS (SELECT 1 FROM"
    " @sessions WHERE owner = $2::text) RETURNING 1) SELECT count(*) > 0 OR NOT EXISTS (SELECT 1 FROM @owners WHERE"
    " owner = $2::text) FROM d";

static uint32_t touched(const dur__pg_batch *batch, int at) {
    return (uint32_t)strtoul(PQcmdTuples(batch->results[at]), NULL, 10);
}

static int free_some(dur__pg_conn *conn, const char *owner, uint32_t *count, dur_error *err) {
    dur__pg_batch batch;
    dur__pg_batch_begin(&batch, conn, true);
    dur__pg_batch_add_id(&batch, some_leases_sql, owner);
    dur__pg_batch_add_id(&batch, lost_sql, owner);
    int leases = dur__pg_batch_add_id(&batch, leases_sql, owner);
    dur__pg_batch_add_id(&batch, sessions_sql, owner);
    int works = dur__pg_batch_add_id(&batch, works_sql, owner);
    dur__pg_batch_notify(&batch);
    int code = dur__pg_batch_run(&batch, "postgres.owner", err);
    *count = code == DUR_OK ? touched(&batch, leases) + touched(&batch, works) : 0;
    dur__pg_batch_end(&batch);
    return code;
}

/* By itself: whoever has locked the owner's row holds up nothing else. */
static int forget(dur__pg_conn *conn, const char *owner, bool *finished, dur_error *err) {
    dur__pg_batch batch;
    dur__pg_batch_begin(&batch, conn, true);
    int at = dur__pg_batch_add_id(&batch, forget_sql, owner);
    dur__pg_crash_end_add(&batch, owner);
    int code = dur__pg_batch_run(&batch, "postgres.owner", err);
    *finished = code == DUR_OK && dur__pg_get_bool(batch.results[at], 0, 0);
    dur__pg_batch_end(&batch);
    return code;
}

int dur__pg_owner_free(dur__pg_conn *conn, const char *owner, uint64_t most_us, uint32_t *freed, bool *finished,
                       dur_error *err) {
    uint64_t began_us = dur__monotonic_us();
    uint32_t some;
    *finished = false;
    do {
        int code = free_some(conn, owner, &some, err);
        if (code != DUR_OK) return code;
        *freed += some;
    } while (some > 0 && dur__monotonic_us() - began_us < most_us);
    return some > 0 ? DUR_OK : forget(conn, owner, finished, err);
}
