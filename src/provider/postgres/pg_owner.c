/*
 * pg_owner.c: runtimes that show life, and what becomes of the locks of one that does not.
 *
 * The keeper's session and those of the lanes share an advisory lock under the owner's key (pg_conn.c), so one of them
 * that is terminated says nothing about the process; and there is a row with the time of the last beat.  The lock is
 * evidence only on the server process that the owner locked it with: after a restart all locks are gone and everybody
 * would take everybody for dead, so then only the beat counts.
 */
#include "provider/postgres/pg_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define OWNER_TIMEOUT_MS 10000u
#define LOOKS_APART_US 700000u
#define SILENT_MS                                                                                                      \
    1200 /* longer than a beat's second: one that lives has shown it, also when it lost all its sessions */

#define JUMP_MS 2000 /* more than this between two clocks is a jump of the server's */

/* A peer whose lock was free. */
typedef struct dur__pg_look {
    char *owner;
    int64_t beat_ms;
    uint64_t at_us;
} dur__pg_look;

#define SERVER_START "(SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint)"

static const char insert_sql[] =
    "INSERT INTO @owners (owner, timeout_ms, beat_ms, lock_key, server_start, session_lock) VALUES ($2::text,"
    " $3::bigint,"
    " #now, $4::bigint, " SERVER_START ", $5::boolean)";
/*
 * One statement a second: the beat, what there is to do for the lanes of this owner (every notification may be lost),
 * and the peers; pg_locks is read once for all of them.
 */
static const char beat_sql[] =
    "WITH n AS MATERIALIZED (SELECT #now AS now, " SERVER_START " AS start), l AS MATERIALIZED (SELECT DISTINCT"
    " l.classid::bigint << 32 | l.objid::bigint AS key FROM pg_catalog.pg_locks l WHERE l.locktype = 'advisory' AND"
    " l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()) AND l.objsubid = 1"
    " AND l.granted),"
    " b AS (UPDATE @owners SET beat_ms = (SELECT now FROM n), server_start = CASE WHEN $3::boolean THEN (SELECT start"
    " FROM n) ELSE server_start END, session_lock = $3::boolean WHERE owner = $2::text RETURNING beat_ms)"
    " SELECT b.beat_ms, EXISTS (SELECT 1 FROM @instances WHERE owner IS NULL AND suspended IS NULL AND known AND"
    " ready_at IS NOT NULL AND ready_at <= (SELECT now FROM n) AND (token IS NULL OR expires_at <= (SELECT now FROM"
    " n))) OR EXISTS (SELECT 1 FROM @instances WHERE holder = ANY ($4::bigint[]) AND ready_at <= (SELECT now FROM n))"
    " OR EXISTS (SELECT 1 FROM @worker WHERE owner IS NULL AND until_ms <= (SELECT now FROM n))"
    " OR EXISTS (SELECT 1 FROM @lost WHERE holder = ANY ($4::bigint[])), o.owner, o.beat_ms, n.now - o.beat_ms,"
    " n.now - greatest(o.beat_ms, CASE WHEN $1::bigint IS NULL THEN n.start ELSE 0 END) >= o.timeout_ms AS silent,"
    " o.session_lock AND o.server_start = n.start AND o.lock_key NOT IN (SELECT l.key FROM l) AS free"
    " FROM n CROSS JOIN b LEFT JOIN @owners o ON o.owner <> $2::text";

/* ---- keepers ----------------------------------------------------------------------------------------------------- */

static dur__pg_keeper *keeper_find(dur__pg *store, const char *owner, bool take) {
    dur__pg_keeper *found = NULL;
    dur__mutex_lock(&store->mutex);
    DUR__LIST_EACH(&store->keepers, at) {
        dur__pg_keeper *keeper = DUR__CONTAINER(at, dur__pg_keeper, link);
        if (strcmp(keeper->owner, owner) == 0) found = keeper;
    }
    if (found != NULL && take) dur__list_unlink(&found->link);
    dur__mutex_unlock(&store->mutex);
    return found;
}

static void look_free(dur__pg_look *look) {
    free(look->owner);
    free(look);
}

static void keeper_free(dur__pg_keeper *keeper) {
    dur__map_entry *entry;
    if (keeper == NULL) return;
    for (size_t i = 0; (entry = dur__map_next(&keeper->looks, &i)) != NULL;)
        look_free(entry->value);
    dur__map_free(&keeper->looks);
    dur__pg_conn_free(keeper->conn);
    free(keeper->owner);
    free(keeper);
}

void dur__pg_keepers_close(dur__pg *store) {
    dur__link *link;
    while ((link = dur__list_pop(&store->keepers)) != NULL)
        keeper_free(DUR__CONTAINER(link, dur__pg_keeper, link));
}

int dur__pg_owner_register(dur_provider *self, const dur_owner_options *options, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_batch batch;
    dur__pg_keeper *keeper = dur__xcalloc(1, sizeof(*keeper));
    keeper->owner = dur__xstrdup(options->owner);
    keeper->conn = dur__pg_conn_new(store);
    keeper->conn->owner_key = dur__pg_owner_key(store, options->owner);
    int code = dur__pg_connect(keeper->conn, err);
    if (code == DUR_OK) {
        dur__pg_batch_begin(&batch, keeper->conn, true);
        dur__pg_args_begin(store, &args);
        dur__pg_text(&args, options->owner);
        dur__pg_u64(&args, options->timeout_ms > 0 ? options->timeout_ms : OWNER_TIMEOUT_MS);
        dur__pg_i64(&args, keeper->conn->owner_key);
        dur__pg_bool(&args, !store->pooler);
        dur__pg_batch_add(&batch, insert_sql, &args);
        code = dur__pg_batch_run(&batch, "postgres.owner", err);
        if (code == DUR_ECONFLICT)
            code = dur_error_set(err, DUR_EEXISTS, false, "postgres.owner", "owner %s is registered", options->owner);
        dur__pg_batch_end(&batch);
    }
    if (code != DUR_OK) {
        keeper_free(keeper);
        return code;
    }
    dur__mutex_lock(&store->mutex);
    dur__list_push(&store->keepers, &keeper->link);
    dur__mutex_unlock(&store->mutex);
    return DUR_OK;
}

/* ---- the end of an owner ----------------------------------------------------------------------------------------- */

/* Nobody may be in the middle of taking something under this name. */
static const char fence_sql[] = "SELECT 1 / (CASE WHEN pg_try_advisory_xact_lock($2::bigint) THEN 1 ELSE 0 END)";
static const char forget_sql[] =
    "WITH d AS (DELETE FROM @owners WHERE owner = $2::text AND ($3::bigint IS NULL OR beat_ms = $3::bigint)"
    " RETURNING 1)"
    " SELECT 1 / (CASE WHEN count(*) = 1 OR $3::bigint IS NULL THEN 1 ELSE 0 END) FROM d";
static const char lock_leases_sql[] =
    "SELECT count(*) FROM (SELECT 1 FROM @instances WHERE owner = $2::text ORDER BY instance_id FOR UPDATE) t";
/* $3: it stopped cleanly, so what it had taken and not used is not counted. */
static const char leases_sql[] =
    "WITH i0 AS (SELECT instance_id, acquisitions FROM @instances WHERE owner = $2::text),"
    " g AS (UPDATE @queue q SET given = false, attempts = CASE WHEN $3::boolean AND i0.acquisitions > 0 THEN"
    " greatest(q.attempts - 1, 0) ELSE q.attempts END FROM i0 WHERE q.instance_id = i0.instance_id AND q.given),"
    " m AS (SELECT i0.instance_id, (SELECT min(q.order_ms) FROM @queue q WHERE q.instance_id = i0.instance_id) AS at,"
    " (SELECT min(q.due_ms) FROM @queue q WHERE q.instance_id = i0.instance_id) AS due FROM i0)"
    " UPDATE @instances i SET token = NULL, owner = NULL, holder = NULL, expires_at = NULL, acquisitions = CASE WHEN"
    " $3::boolean THEN greatest(i.acquisitions - 1, 0) ELSE i.acquisitions END, ready_at = m.at, ready_due ="
    " coalesce(m.due, 0) FROM m WHERE i.instance_id = m.instance_id";
static const char works_sql[] =
    "UPDATE @worker SET token = NULL, owner = NULL, until_ms = 0, since_ms = #now, suspect = suspect OR NOT"
    " $3::boolean,"
    " attempts = CASE WHEN $3::boolean THEN greatest(attempts - 1, 0) ELSE attempts END WHERE owner = $2::text";
static const char sessions_sql[] =
    "UPDATE @sessions SET owner = NULL, until_ms = CASE WHEN ($3::boolean AND holder = $2::text) OR lock_ms = 0 THEN 0"
    " ELSE #now + lock_ms END WHERE owner = $2::text";

static int send(dur__pg *store, dur__pg_batch *batch, const char *sql, const char *owner, bool clean) {
    dur__pg_args args;
    dur__pg_args_begin(store, &args);
    dur__pg_text(&args, owner);
    if (sql != lock_leases_sql) dur__pg_bool(&args, clean);
    return dur__pg_batch_add(batch, sql, &args);
}

/* Everything under the owner is free.  beat_ms: only if it has not beaten since (NULL: whatever). */
static int owner_end(dur__pg *store, dur__pg_conn *conn, const char *owner, const int64_t *beat_ms, bool clean,
                     uint32_t *freed, dur_error *err) {
    dur__pg_args args;
    dur__pg_batch batch;
    dur__pg_batch_begin(&batch, conn, true);
    dur__pg_args_begin(store, &args);
    dur__pg_i64(&args, dur__pg_owner_key(store, owner) ^ 1);
    dur__pg_batch_add(&batch, fence_sql, &args);
    dur__pg_args_begin(store, &args);
    dur__pg_text(&args, owner);
    if (beat_ms != NULL)
        dur__pg_i64(&args, *beat_ms);
    else
        dur__pg_null(&args);
    dur__pg_batch_add(&batch, forget_sql, &args);
    send(store, &batch, lock_leases_sql, owner, clean);
    int leases = send(store, &batch, leases_sql, owner, clean);
    int works = send(store, &batch, works_sql, owner, clean);
    send(store, &batch, sessions_sql, owner, clean);
    dur__pg_batch_notify(&batch);
    int code = dur__pg_batch_run(&batch, "postgres.owner", err);
    if (code == DUR_OK)
        *freed += (uint32_t)strtoul(PQcmdTuples(batch.results[leases]), NULL, 10) +
                  (uint32_t)strtoul(PQcmdTuples(batch.results[works]), NULL, 10);
    else if (strcmp(batch.sqlstate, "22012") == 0) /* a comparison: soon it may be otherwise */
        code = dur_error_set(err, DUR_EBUSY, true, "postgres.owner", "owner %s is at work", owner);
    dur__pg_batch_end(&batch);
    return code;
}

/* ---- looking for dead peers -------------------------------------------------------------------------------------- */

/*
 * Milliseconds until a peer whose lock is free counts as dead: then it was free at two looks, no beat has come since
 * before the first, and one should have.  Negative: it is not suspected.
 */
static int64_t until_dead(dur__pg_keeper *keeper, const char *owner, int64_t beat_ms, int64_t silent_ms,
                          bool free_now) {
    dur__pg_look *look = dur__map_get(&keeper->looks, owner);
    if (look != NULL && (!free_now || look->beat_ms != beat_ms)) {
        dur__map_remove(&keeper->looks, owner);
        look_free(look);
        look = NULL;
    }
    if (!free_now) return -1;
    if (look == NULL) {
        look = dur__xcalloc(1, sizeof(*look));
        look->owner = dur__xstrdup(owner);
        look->beat_ms = beat_ms;
        look->at_us = dur__monotonic_us();
        dur__map_put(&keeper->looks, look->owner, look);
    }
    uint64_t since_us = dur__monotonic_us() - look->at_us;
    int64_t apart = since_us < LOOKS_APART_US ? (int64_t)((LOOKS_APART_US - since_us) / 1000u) + 1 : 0;
    int64_t since_ms = (int64_t)(since_us / 1000u); /* counts where the server's clock went back */
    int64_t quiet = SILENT_MS - (silent_ms > since_ms ? silent_ms : since_ms);
    return apart > quiet ? apart : quiet;
}

/*
 * When the server's clock jumps, everybody seems silent until the next beat.  Seen by the difference to our own clock,
 * which does not jump; for as long as a timeout silence is then no evidence.
 */
static bool clock_jumped(dur__pg_keeper *keeper, const dur__pg *store, int64_t now_ms) {
    uint64_t now_us = dur__monotonic_us();
    int64_t apart_ms = now_ms - (int64_t)(now_us / 1000u);
    bool known = keeper->clocks_known && !store->caller_clock;
    if (known && (apart_ms - keeper->clocks_apart_ms > JUMP_MS || keeper->clocks_apart_ms - apart_ms > JUMP_MS))
        keeper->jumped_until_us = now_us + OWNER_TIMEOUT_MS * 1000u;
    keeper->clocks_known = true;
    keeper->clocks_apart_ms = apart_ms;
    return now_us < keeper->jumped_until_us;
}

static void look_at_peers(dur__pg *store, dur__pg_keeper *keeper, const PGresult *peers, dur_owner_report *out) {
    bool jumped = clock_jumped(keeper, store, (int64_t)out->now_ms);
    for (int row = 0; row < PQntuples(peers); row++) {
        const char *peer = dur__pg_get(peers, row, 2);
        if (peer == NULL) continue; /* there is none */
        int64_t beat_ms = dur__pg_get_i64(peers, row, 3);
        int64_t silent_ms = jumped ? 0 : dur__pg_get_i64(peers, row, 4);
        int64_t left = until_dead(keeper, peer, beat_ms, silent_ms, dur__pg_get_bool(peers, row, 6));
        if (left != 0 && (jumped || !dur__pg_get_bool(peers, row, 5))) {
            out->peers++;
            if (left > 0 && (out->look_again_ms == 0 || (uint64_t)left < out->look_again_ms))
                out->look_again_ms = (uint64_t)left;
            continue;
        }
        if (dur__pg_connect(keeper->conn, NULL) != DUR_OK ||
            owner_end(store, keeper->conn, peer, &beat_ms, false, &out->freed, NULL) != DUR_OK)
            continue; /* somebody else was faster, or it lives after all */
        out->taken_over++;
        snprintf(out->last_dead, sizeof(out->last_dead), "%s", peer);
        (void)until_dead(keeper, peer, beat_ms, 0, false);
    }
}

int dur__pg_owner_beat(dur_provider *self, const char *owner, dur_owner_report *out, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_batch batch;
    memset(out, 0, sizeof(*out));
    dur__pg_keeper *keeper = keeper_find(store, owner, false);
    out->now_ms = dur__pg_now_ms(self);
    if (keeper == NULL) return DUR_OK; /* not registered here: not ours */
    int code = dur__pg_connect(keeper->conn, err);
    if (code != DUR_OK) return code;
    dur__pg_array holders = dur__pg_array_i64();
    dur__mutex_lock(&store->mutex);
    DUR__LIST_EACH(&store->lanes, at) {
        const dur__pg_lane *lane = DUR__CONTAINER(at, dur__pg_lane, link);
        if (lane->owner != NULL && strcmp(lane->owner, owner) == 0) dur__pg_add_i64(&holders, lane->holder);
    }
    dur__mutex_unlock(&store->mutex);
    dur__pg_batch_begin(&batch, keeper->conn, false); /* repeating a beat does no harm */
    dur__pg_args_begin(store, &args);
    dur__pg_text(&args, owner);
    dur__pg_bool(&args, !store->pooler);
    dur__pg_array_arg(&args, &holders);
    int beat = dur__pg_batch_add(&batch, beat_sql, &args);
    code = dur__pg_batch_run(&batch, "postgres.beat", err);
    out->still_ours = code == DUR_OK && PQntuples(batch.results[beat]) > 0;
    if (out->still_ours) {
        out->now_ms = dur__pg_get_u64(batch.results[beat], 0, 0);
        dur__pg_saw_now(store, out->now_ms);
        atomic_store(&store->beaten_us, dur__monotonic_us());
        look_at_peers(store, keeper, batch.results[beat], out);
        if (out->freed > 0) dur__pg_wake_local(store, NULL);
        if (dur__pg_get_bool(batch.results[beat], 0, 1)) dur__pg_wake_lanes(store, NULL);
    }
    dur__pg_batch_end(&batch);
    return code;
}

int dur__pg_owner_release(dur_provider *self, const char *owner, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_keeper *keeper = keeper_find(store, owner, true);
    uint32_t freed = 0;
    if (keeper == NULL) return DUR_OK; /* one that was taken for dead has nothing left to release */
    int code = dur__pg_connect(keeper->conn, err);
    if (code == DUR_OK) code = owner_end(store, keeper->conn, owner, NULL, true, &freed, err);
    if (code == DUR_OK) {
        keeper_free(keeper);
        dur__pg_wake_local(store, NULL);
        return DUR_OK;
    }
    dur__mutex_lock(&store->mutex);
    dur__list_push(&store->keepers, &keeper->link); /* it may be tried again */
    dur__mutex_unlock(&store->mutex);
    return code;
}
