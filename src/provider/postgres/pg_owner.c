/*
 * pg_owner.c: runtimes that show life, and what becomes of the locks of one that does not.
 *
 * The keeper's session and those of the lanes share an advisory lock under the owner's key (pg_conn.c), so one of them
 * that is terminated says nothing about the process; and there is a row with the last beat.  The lock is evidence only
 * on the server process that the owner locked it with: after a restart all locks are gone and everybody would take
 * everybody for dead, so then only the beat counts.
 *
 * What an observer concludes from its looks, and how long that takes, is in pg_look.c.
 */
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"

#include <stdio.h>
#include <stdlib.h>

#define OWNER_TIMEOUT_MS 10000u
#define AGAIN_MS 100u /* after a take-over that was refused; then twice as long, up to the usual second */
#define AGAIN_DOUBLED_MAX 3u
#define END_US 250000u       /* so long a beat frees what a dead peer had; the rest comes with the next */
#define RELEASE_US 10000000u /* … and whoever leaves */
#define FORGET_US 5000000u   /* what no look has shown for so long is not there any more */

static const char insert_sql[] =
    "INSERT INTO @owners (owner, timeout_ms, beat_ms, lock_key, server_start, session_lock) VALUES"
    " ($2::text, $3::bigint, #now, $4::bigint, " DUR__PG_SERVER_START ", $5::boolean)";
static const char serve_sql[] =
    "INSERT INTO @served (activity, handler, owner) SELECT $4::boolean, h, $2::text FROM unnest($3::text[]) AS x(h) ON"
    " CONFLICT DO NOTHING";
/* What was to be told to lanes that are gone, and to nobody else, would stay for ever. */
static const char forget_lost_sql[] = "DELETE FROM @lost WHERE at_ms < #now - 86400000";
/*
 * One statement a second: the beat, what there is to do for the lanes of this owner (every notification may be lost),
 * and the peers; pg_locks is read once for all of them.  Each beat differs from the one before, whatever the clock
 * says, and tells it: where the store has forgotten a beat it has forgotten more (pg_lease.c).
 */
static const char beat_sql[] =
    "WITH n AS MATERIALIZED (SELECT #now AS now, " DUR__PG_SERVER_START " AS start), l AS MATERIALIZED (SELECT"
    " l.classid::bigint << 32 | l.objid::bigint AS key, l.pid FROM pg_catalog.pg_locks l WHERE l.locktype = 'advisory' "
    "AND"
    " l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()) AND l.objsubid = 1"
    " AND l.granted),"
    " b AS (UPDATE @owners SET beat_ms = CASE WHEN $1::bigint IS NULL THEN greatest((SELECT now FROM n), beat_ms + 1)"
    " ELSE $1::bigint END, server_start = CASE WHEN $3::boolean THEN (SELECT start"
    " FROM n) ELSE server_start END, session_lock = $3::boolean WHERE owner = $2::text AND dead = 0 RETURNING beat_ms)"
    " SELECT n.now, EXISTS (SELECT 1 FROM @instances WHERE " DUR__PG_FREE " AND " DUR__PG_VISIBLE
    ") OR EXISTS (SELECT 1 FROM @instances WHERE holder = ANY ($4::bigint[]) AND ready_at <= (SELECT now FROM n))"
    " OR EXISTS (SELECT 1 FROM @worker WHERE owner IS NULL AND until_ms <= (SELECT now FROM n))"
    " OR EXISTS (SELECT 1 FROM @lost WHERE holder = ANY ($4::bigint[])), o.owner, o.beat_ms,"
    " o.timeout_ms, o.session_lock AND o.server_start = n.start AND o.lock_key NOT IN (SELECT l.key FROM l), "
    "n.start, o.dead,"
    " (SELECT beat_ms FROM @owners WHERE owner = $2::text), b.beat_ms, (SELECT crashed_ms FROM @meta)"
    " FROM n CROSS JOIN b LEFT JOIN @owners o ON o.owner <> $2::text";

/* ---- keepers ----------------------------------------------------------------------------------------------------- */

/* With the mutex. */
static dur__pg_keeper *keeper_of(dur__pg *store, const char *owner) {
    DUR__LIST_EACH(&store->keepers, at) {
        dur__pg_keeper *keeper = DUR__CONTAINER(at, dur__pg_keeper, link);
        if (strcmp(keeper->owner, owner) == 0) return keeper;
    }
    return NULL;
}

static dur__pg_keeper *keeper_find(dur__pg *store, const char *owner, bool take) {
    dur__mutex_lock(&store->mutex);
    dur__pg_keeper *found = keeper_of(store, owner);
    if (found != NULL && take) dur__list_unlink(&found->link);
    dur__mutex_unlock(&store->mutex);
    return found;
}

uint64_t dur__pg_owner_timeout_ms(dur__pg *store, const char *owner) {
    const dur__pg_keeper *keeper = owner != NULL ? keeper_find(store, owner, false) : NULL;
    return keeper != NULL ? keeper->timeout_ms : OWNER_TIMEOUT_MS;
}

/* With the mutex: the longest; 0: there is no owner here. */
uint64_t dur__pg_owners_timeout_ms(const dur__pg *store) {
    uint64_t ms = 0;
    DUR__LIST_EACH(&store->keepers, at) {
        const dur__pg_keeper *keeper = DUR__CONTAINER(at, dur__pg_keeper, link);
        if (keeper->timeout_ms > ms) ms = keeper->timeout_ms;
    }
    return ms;
}

/* What was seen of those that no look since this time has shown; UINT64_MAX: of all. */
static void looks_forget(dur__pg *store, uint64_t before_us) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&store->looks, &i)) != NULL;) {
        dur__pg_look *look = entry->value;
        if (look->at.seen_us >= before_us) continue;
        dur__map_remove(&store->looks, look->owner);
        dur__free(look->owner);
        dur__free(look);
    }
}

static void keeper_free(dur__pg_keeper *keeper) {
    if (keeper == NULL) return;
    dur__pg_conn_free(keeper->conn);
    dur__free(keeper->owner);
    dur__free(keeper);
}

void dur__pg_keepers_close(dur__pg *store) {
    dur__link *link;
    while ((link = dur__list_pop(&store->keepers)) != NULL)
        keeper_free(DUR__CONTAINER(link, dur__pg_keeper, link));
    looks_forget(store, UINT64_MAX);
    dur__map_free(&store->looks);
}

/* What it has; '': everything. */
static void serve(dur__pg_batch *batch, const char *owner, bool activity, const dur_handler_filter *filter) {
    dur__pg_args args;
    dur__pg_array keys = dur__pg_array_text();
    for (size_t i = 0; filter != NULL && i < filter->count; i++)
        dur__pg_add_text(&keys, filter->keys[i]);
    if (filter == NULL) dur__pg_add_text(&keys, "");
    dur__pg_args_of(batch->conn->store, &args, owner);
    dur__pg_array_arg(&args, &keys);
    dur__pg_bool(&args, activity);
    dur__pg_batch_add(batch, serve_sql, &args);
}

int dur__pg_owner_register(dur_provider *self, const dur_owner_options *options, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_batch batch;
    dur__pg_keeper *keeper = dur__xcalloc(1, sizeof(*keeper));
    keeper->owner = dur__xstrdup(options->owner);
    keeper->conn = dur__pg_conn_new(store);
    keeper->timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : OWNER_TIMEOUT_MS;
    keeper->conn->hurries = true; /* who waits cannot beat */
    dur__pg_set_patience(keeper->conn, keeper->timeout_ms);
    keeper->conn->owner_key = dur__pg_owner_key(store, options->owner);
    int code = dur__pg_connect(keeper->conn, err);
    if (code == DUR_OK) {
        dur__pg_batch_begin(&batch, keeper->conn, true);
        dur__pg_args_of(store, &args, options->owner);
        dur__pg_u64(&args, keeper->timeout_ms);
        dur__pg_i64(&args, keeper->conn->owner_key);
        dur__pg_bool(&args, !store->pooler);
        dur__pg_batch_add(&batch, insert_sql, &args);
        serve(&batch, options->owner, false, options->handlers);
        serve(&batch, options->owner, true, options->activities);
        dur__pg_args_begin(store, &args);
        dur__pg_batch_add(&batch, forget_lost_sql, &args);
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

static const char known_sql[] = "SELECT owner FROM @owners WHERE owner = $2::text AND dead = 0";

int dur__pg_owner_check(dur__pg *store, const char *op, const char *owner, dur_code missing, dur_error *err) {
    dur__pg_args args;
    PGresult *result;
    dur__pg_args_of(store, &args, owner);
    int code = dur__pg_one(store, op, known_sql, &args, false, &result, err);
    if (code == DUR_OK && PQntuples(result) == 0)
        code = dur_error_set(err, missing, false, op, "owner %s is not registered", owner);
    PQclear(result);
    return code;
}

/* ---- looking for dead peers -------------------------------------------------------------------------------------- */

static dur__pg_look *look_of(dur__pg *store, const char *owner) {
    dur__pg_look *look = dur__map_get(&store->looks, owner);
    if (look == NULL) {
        look = dur__xcalloc(1, sizeof(*look));
        look->owner = dur__xstrdup(owner);
        dur__map_put(&store->looks, look->owner, look);
    }
    return look;
}

static void sooner(dur_owner_report *out, uint64_t ms) {
    if (out->look_again_ms == 0 || ms < out->look_again_ms) out->look_again_ms = ms;
}

/* With the mutex.  True: it is dead. */
static bool look_at_one(dur__pg *store, const char *peer, const dur__pg_glance *at, const dur__pg_sight *sight,
                        dur_owner_report *out) {
    dur__pg_look *look = look_of(store, peer);
    dur__pg_look_add(look, &store->looked, at, sight);
    /* A store that was told the caller's time has no other clock. */
    bool silent =
        store->caller_clock ? at->now_ms - sight->beat_ms >= (int64_t)sight->timeout_ms : dur__pg_look_silent(look);
    uint64_t left_us = dur__pg_look_left_us(look);
    if (silent || left_us == 0) return true;
    look->refused = 0;
    out->peers++;
    if (left_us != UINT64_MAX) sooner(out, left_us / 1000u + 1); /* it seems dead: then this can be told */
    return false;
}

/*
 * It lives after all, or its last statement still runs, or somebody else was faster: a further look tells.  True: not
 * for the first time, so what it has begun does not end by itself.
 */
static bool refused(dur__pg *store, const char *peer, dur_owner_report *out) {
    dur__mutex_lock(&store->mutex);
    dur__pg_look *look = dur__map_get(&store->looks, peer);
    bool again = look != NULL && look->refused > 0;
    if (look != NULL && look->refused <= AGAIN_DOUBLED_MAX) sooner(out, AGAIN_MS << look->refused++);
    dur__mutex_unlock(&store->mutex);
    return again;
}

static int mark_and_free(dur__pg_keeper *keeper, const char *peer, bool marked, int64_t beat_ms, dur_owner_report *out,
                         dur_error *why) {
    bool finished = false;
    uint32_t before = out->freed;
    int code = dur__pg_connect(keeper->conn, why);
    if (code == DUR_OK && !marked) {
        code = dur__pg_owner_mark(keeper->conn, peer, &beat_ms, why);
        if (code == DUR_OK) {
            out->taken_over++;
            snprintf(out->last_dead, sizeof(out->last_dead), "%s", peer);
        }
    }
    if (code == DUR_OK) code = dur__pg_owner_free(keeper->conn, peer, END_US, &out->freed, &finished, why);
    if (code == DUR_OK && !finished && out->freed > before) sooner(out, 1); /* there is more */
    if (code != DUR_OK || finished || out->freed > before) return code;
    return dur_error_set(why, DUR_EBUSY, true, "postgres.owner", "somebody has locked rows that owner %s held", peer);
}

/* marked: it is dead, and whoever has said so has perhaps not come further. */
static void end_peer(dur__pg *store, dur__pg_keeper *keeper, const char *peer, bool marked, int64_t beat_ms,
                     dur_owner_report *out) {
    dur_error why = DUR_ERROR_INIT;
    if (mark_and_free(keeper, peer, marked, beat_ms, out, &why) == DUR_OK || !refused(store, peer, out)) return;
    dur__pg_owner_end_batches(keeper->conn, peer, beat_ms);
    out->refused++;
    snprintf(out->last_refused, sizeof(out->last_refused), "%s", peer);
    snprintf(out->refused_why, sizeof(out->refused_why), "%.150s", why.message);
}

static void look_at_peers(dur__pg *store, dur__pg_keeper *keeper, const PGresult *peers, uint64_t asked_us,
                          dur_owner_report *out) {
    dur__pg_glance at = { .now_ms = (int64_t)out->now_ms, .asked_us = asked_us };
    int64_t server_start = dur__pg_get_i64(peers, 0, 6);
    bool *dead = dur__xcalloc((size_t)PQntuples(peers), sizeof(bool));
    dur__mutex_lock(&store->mutex);
    at.seen_us = dur__monotonic_us();
    if (server_start != store->server_start) { /* while it was away nobody could beat */
        looks_forget(store, UINT64_MAX);
        memset(&store->looked, 0, sizeof(store->looked));
    }
    store->server_start = server_start;
    for (int row = 0; row < PQntuples(peers); row++) {
        dur__pg_sight sight = { .beat_ms = dur__pg_get_i64(peers, row, 3),
                                .timeout_ms = dur__pg_get_u64(peers, row, 4),
                                .is_free = dur__pg_get_bool(peers, row, 5) };
        const char *peer = dur__pg_get(peers, row, 2);
        if (peer == NULL) continue;                                             /* there is none */
        if (dur__pg_get_i64(peers, row, 7) != 0) look_of(store, peer)->at = at; /* for the count of refusals */
        dead[row] = dur__pg_get_i64(peers, row, 7) != 0 || look_at_one(store, peer, &at, &sight, out);
    }
    store->looked = at;
    if (at.seen_us > FORGET_US) looks_forget(store, at.seen_us - FORGET_US);
    dur__mutex_unlock(&store->mutex);
    for (int row = 0; row < PQntuples(peers); row++) {
        const char *peer = dur__pg_get(peers, row, 2);
        if (dead[row])
            end_peer(store, keeper, peer, dur__pg_get_i64(peers, row, 7) != 0, dur__pg_get_i64(peers, row, 3), out);
    }
    dur__free(dead);
}

void dur__pg_owner_doubt(dur__pg *store, const char *owner) {
    dur__mutex_lock(&store->mutex);
    dur__pg_keeper *keeper = keeper_of(store, owner);
    if (keeper != NULL) keeper->went_back = true;
    dur__mutex_unlock(&store->mutex);
}

/* Behind a pooler their sessions do not end with the server. */
static void doubt_lanes(dur__pg *store) {
    DUR__LIST_EACH(&store->lanes, at) atomic_store(&DUR__CONTAINER(at, dur__pg_lane, link)->doubts, true);
}

/* What the beat says of the store itself: whether it is the one that it was. */
static void look_at_store(dur__pg *store, dur__pg_keeper *keeper, const PGresult *beat, dur_owner_report *out) {
    int64_t before_ms = dur__pg_get_i64(beat, 0, 8), server_start = dur__pg_get_i64(beat, 0, 6);
    dur__mutex_lock(&store->mutex);
    bool other = keeper->server_start != 0 && keeper->server_start != server_start;
    if (before_ms < keeper->beat_ms) keeper->went_back = true;
    if (other) doubt_lanes(store);
    keeper->beat_ms = dur__pg_get_i64(beat, 0, 9);
    keeper->server_start = server_start;
    out->went_back = keeper->went_back;
    dur__mutex_unlock(&store->mutex);
    if (other) dur__pg_wake_lanes(store, NULL);
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
    uint64_t asked_us = dur__monotonic_us();
    dur__pg_batch_begin(&batch, keeper->conn, false); /* repeating a beat does no harm */
    dur__pg_args_of(store, &args, owner);
    dur__pg_bool(&args, !store->pooler);
    dur__pg_array_arg(&args, &holders);
    int beat = dur__pg_batch_add(&batch, beat_sql, &args);
    code = dur__pg_batch_run(&batch, "postgres.beat", err);
    out->still_ours = code == DUR_OK && PQntuples(batch.results[beat]) > 0;
    if (out->still_ours) {
        out->now_ms = dur__pg_get_u64(batch.results[beat], 0, 0);
        dur__pg_saw_now(store, out->now_ms);
        atomic_store(&store->beaten_us, dur__monotonic_us());
        look_at_store(store, keeper, batch.results[beat], out);
        look_at_peers(store, keeper, batch.results[beat], asked_us, out);
        out->crashed_at_ms = dur__pg_get_u64(batch.results[beat], 0, 10); /* those of this look come with the next */
        if (out->freed > 0) dur__pg_wake(store, NULL, NULL);
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
    if (code == DUR_OK) code = dur__pg_owner_mark(keeper->conn, owner, NULL, err);
    bool finished = false;
    if (code == DUR_OK) code = dur__pg_owner_free(keeper->conn, owner, RELEASE_US, &freed, &finished, err);
    if (code == DUR_OK) { /* what somebody holds just now is freed by whoever beats next */
        keeper_free(keeper);
        dur__pg_wake(store, NULL, NULL);
        return DUR_OK;
    }
    dur__mutex_lock(&store->mutex);
    dur__list_push(&store->keepers, &keeper->link); /* it may be tried again */
    dur__mutex_unlock(&store->mutex);
    return code;
}
