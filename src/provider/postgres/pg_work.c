/*
 * pg_work.c: the worker queue and its sessions.
 *
 * Rows of sessions are locked in one order, so that nobody waits in a circle: those of work that a transaction holds
 * are locked first of all, behind its owner's fence, in order of their ids (DUR__PG_LOCK_SESSIONS).  From then on
 * nobody waits for one: a session that is locked, or just being made, by somebody else is not claimed this time
 * (DUR__PG_CLAIM_SESSIONS), and its work waits with it.
 */
#include "provider/postgres/pg_doubts.h"
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"
#include "provider/postgres/pg_works.h"

/* ---- fetch ------------------------------------------------------------------------------------------------------- */

/* Macros among the texts: clang-format would give each an indentation of its own. */
/* clang-format off */
#define FETCH(which, order)                                                                                            \
    "WITH RECURSIVE " DUR__PG_HANDLERS("ha", "@worker", "owner IS NULL", "$12::text[]") ","                            \
    " n AS MATERIALIZED (SELECT #now AS now), c AS MATERIALIZED (SELECT x.* FROM ha CROSS JOIN LATERAL (SELECT w.id,"  \
    " w.instance_id, w.session_id, w.crashes_alone FROM @worker w WHERE w.handler = ha.h AND w.owner IS NULL AND"      \
    " w.until_ms <= (SELECT now FROM n)"                                                                               \
    " AND " which                                                                                                      \
    " AND " DUR__PG_TAG_ADMITTED("$6::bigint", "$7::text[]")                                                           \
    " AND (w.session_id IS NULL OR ($8::text IS NOT NULL AND NOT EXISTS (SELECT 1 FROM @sessions s WHERE s.session_id" \
    " = w.session_id AND s.holder <> $8::text AND (s.owner IS NOT NULL OR s.until_ms > (SELECT now FROM n)))))"        \
    " AND ($2::text IS NULL OR EXISTS (SELECT 1 FROM @owners o WHERE o.owner = $2::text AND o.dead = 0))"              \
    " ORDER BY " order " LIMIT $4::bigint FOR UPDATE OF w SKIP LOCKED) x ORDER BY " order " LIMIT $4::bigint),"        \
    " want AS MATERIALIZED (SELECT DISTINCT c.session_id AS session, $8::text AS node, $2::text AS owner, $9::bigint"  \
    " AS lock_ms, CASE WHEN $2::text IS NULL THEN n.now + $9::bigint ELSE 0 END AS until_ms FROM c, n WHERE"           \
    " c.session_id IS NOT NULL), " DUR__PG_CLAIM_SESSIONS("$11::bigint") ","                                           \
    " k AS (SELECT c.*, row_number() OVER (ORDER BY c.id) AS at FROM c WHERE c.session_id IS NULL OR c.session_id"     \
    " IN (SELECT session_id FROM claimed)),"                                                                           \
    " u AS (UPDATE @worker w SET token = $10::text || '-w' || k.at, owner = $2::text, attempts = w.attempts + 1,"      \
    " runs_alone = $5::bigint = 2,"                                                                                    \
    " until_ms = CASE WHEN $2::text IS NULL THEN n.now + $3::bigint ELSE 0 END FROM k, n"                              \
    " WHERE w.instance_id = k.instance_id AND w.id = k.id RETURNING w.id, w.instance_id, w.execution_id,"              \
    " w.activity_id, w.token, w.attempts, w.crashes, " DUR__PG_CRASHES_ALONE("w", "w.id") " AS crashes_alone, w.json)"   \
    " SELECT * FROM u ORDER BY id"
/* clang-format on */

static const char fetch_sql[] = FETCH("($5::bigint = 0 OR w.crashes < 2)", "id");
static const char fetch_suspects_sql[] = FETCH("w.crashes >= 2", "crashes_alone, id");

void dur__pg_work_fetch_add(dur__pg_batch *batch, const dur_work_fetch *how, const char *token_prefix, int *at) {
    dur__pg_args args;
    dur__pg_array tags = dur__pg_array_text();
    *at = -1;
    for (size_t i = 0; i < how->tags.tag_count; i++)
        dur__pg_add_text(&tags, how->tags.tags[i]);
    dur__pg_args_of(batch->conn->store, &args, how->owner);
    dur__pg_u64(&args, how->lock_ms);
    dur__pg_i64(&args, how->max > 0 ? (int64_t)how->max : 1);
    dur__pg_i64(&args, (int64_t)how->kind);
    dur__pg_i64(&args, (int64_t)how->tags.mode);
    dur__pg_array_arg(&args, &tags);
    dur__pg_text(&args, how->session_owner);
    dur__pg_u64(&args, how->session_lock_ms);
    dur__pg_text(&args, token_prefix);
    dur__pg_i64(&args, batch->conn->store->schema_key);
    dur__pg_handlers(&args, how->handlers);
    *at = dur__pg_batch_add(batch, how->kind == DUR_FETCH_SUSPECT ? fetch_suspects_sql : fetch_sql, &args);
}

size_t dur__pg_work_fetch_read(const dur__pg_batch *batch, int at, dur_arena *arena, dur_leased_work *out, size_t max) {
    const PGresult *rows = batch->results[at];
    size_t count = 0;
    for (int row = 0; row < PQntuples(rows) && count < max; row++) {
        dur_leased_work *work = &out[count++];
        memset(work, 0, sizeof(*work));
        work->ref.row_id = dur__pg_get_u64(rows, row, 0);
        work->ref.instance = dur__pg_get_text(rows, row, 1, arena);
        work->ref.execution_id = dur__pg_get_u64(rows, row, 2);
        work->ref.activity_id = dur__pg_get_u64(rows, row, 3);
        work->lock_token = dur__pg_get_text(rows, row, 4, arena);
        work->attempt_count = (uint32_t)dur__pg_get_u64(rows, row, 5);
        work->crashes = (uint32_t)dur__pg_get_u64(rows, row, 6);
        work->crashes_alone = (uint32_t)dur__pg_get_u64(rows, row, 7);
        work->json = dur__pg_get_json(rows, row, 8, arena);
    }
    return count;
}

static int fetch_once(dur__pg *store, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out, size_t *count,
                      dur_error *err) {
    dur__pg_conn *conn;
    dur__pg_batch batch;
    char prefix[DUR__PG_TOKEN_SIZE];
    int at;
    *count = 0;
    int code = dur__pg_borrow(store, &conn, err);
    if (code != DUR_OK) return code;
    int backend = conn->backend;
    dur__pg_token(store, prefix);
    dur__pg_batch_begin(&batch, conn, true);
    if (how->owner != NULL) dur__pg_owner_fence_add(&batch, how->owner);
    dur__pg_work_fetch_add(&batch, how, prefix, &at);
    code = dur__pg_batch_run(&batch, "postgres.fetch_work", err);
    if (code == DUR_OK) *count = dur__pg_work_fetch_read(&batch, at, arena, out, how->max > 0 ? how->max : 1);
    dur__pg_batch_end(&batch);
    code = dur__pg_undo_unknown(conn, backend, prefix, code, err);
    dur__pg_return(conn);
    return code;
}

static int fetch_some(dur__pg *store, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out, size_t *count,
                      dur_error *err) {
    uint64_t deadline = dur__pg_deadline(store->long_poll ? how->poll_ms : 0);
    int code = DUR_OK;
    *count = 0;
    if (how->tags.mode == DUR_TAGS_NONE || (how->handlers != NULL && how->handlers->count == 0)) return DUR_OK;
    do {
        code = fetch_once(store, arena, how, out, count, err);
    } while (code == DUR_OK && *count == 0 && dur__pg_poll_pause(store, deadline));
    return code;
}

int dur__pg_fetch_work_item(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                            dur_error *err) {
    dur_work_fetch seeds = *how;
    size_t count;
    seeds.owner = NULL;
    seeds.kind = DUR_FETCH_ANY;
    seeds.max = 1;
    memset(out, 0, sizeof(*out));
    return fetch_some(dur__pg_of(self), arena, &seeds, out, &count, err);
}

int dur__pg_fetch_works(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                        size_t *count, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    int code = fetch_some(store, arena, how, out, count, err);
    if (code != DUR_OK || *count > 0 || how->owner == NULL) return code;
    return dur__pg_owner_check(store, "postgres.fetch_works", how->owner, DUR_ELEASE, err);
}

/* ---- ack --------------------------------------------------------------------------------------------------------- */

void dur__pg_put_claim(dur__pg_table *rows, const char *instance, const dur_activity_ref *ref, const char *token) {
    dur__pg_put_text(rows, instance);
    dur__pg_put_id(rows, ref->row_id);
    dur__pg_put_text(rows, token);
}

void dur__pg_put_taken(dur__pg_table *rows, const dur_turn_commit *turn) {
    for (size_t i = 0; i < turn->worker_consumed_count; i++)
        dur__pg_put_claim(rows, turn->instance, &turn->worker_consumed[i].ref, turn->worker_consumed[i].lock_token);
}

static void ack_lost(dur_work_ack *ack) {
    dur_error_set(&ack->error, DUR_ELEASE, false, "postgres.ack_work", "the worker row is gone or its lock has ended");
}

void dur__pg_acks_commit(dur__pg_conn *conn, dur_work_ack *acks, size_t count) {
    dur__pg_batch batch;
    dur__pg_turn_plan plan;
    dur_error err = DUR_ERROR_INIT;
    if (count == 0) return;
    int code = dur__pg_connect(conn, &err);
    if (code != DUR_OK) {
        for (size_t i = 0; i < count; i++)
            acks[i].error = err;
        return;
    }
    dur__pg_batch_begin(&batch, conn, true);
    dur__pg_turns_add(&batch, NULL, NULL, 0, acks, count, &plan);
    if (plan.for_lanes) dur__pg_batch_notify(&batch);
    code = dur__pg_batch_run(&batch, "postgres.ack_work", &err);
    if (code != DUR_OK && count > 1 && (dur__pg_refused(&batch, code) || dur__pg_waited_too_long(&batch))) {
        dur__pg_acks_commit(conn, acks, count / 2);
        dur__pg_acks_commit(conn, acks + count / 2, count - count / 2);
    } else {
        for (size_t i = 0; i < count; i++) {
            if (code == DUR_OK)
                dur_error_clear(&acks[i].error);
            else if (strcmp(batch.sqlstate, "22012") == 0)
                ack_lost(&acks[i]);
            else
                acks[i].error = err;
        }
    }
    dur__pg_batch_end(&batch);
}

int dur__pg_ack_works(dur_provider *self, dur_work_ack *acks, size_t count, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_conn *conn;
    int code = dur__pg_borrow(store, &conn, err);
    if (code != DUR_OK) return code;
    dur__pg_acks_commit(conn, acks, count);
    dur__pg_return(conn);
    dur__pg_wake(store, NULL, NULL);
    return DUR_OK;
}

int dur__pg_ack_work_item(dur_provider *self, const char *lock_token, const dur_message_row *completion,
                          dur_error *err) {
    dur_work_ack ack = { .lock_token = lock_token, .completion = completion };
    int code = dur__pg_ack_works(self, &ack, 1, err);
    if (code == DUR_OK && ack.error.code != DUR_OK) {
        if (err != NULL) *err = ack.error;
        code = (int)ack.error.code;
    }
    return code;
}

const char dur__pg_lock_sessions_sql[] =
    "SELECT count(*) FROM (" DUR__PG_LOCK_SESSIONS("w.token = ANY ($2::text[])") ") t";

/* ---- one row ----------------------------------------------------------------------------------------------------- */

static const char enqueue_sql[] =
    "INSERT INTO @worker (instance_id, execution_id, activity_id, tag, session_id, since_ms, json, handler)"
    " VALUES ($2::text, $3::bigint, $4::bigint, $5::text, $6::text, #now, $7::text, $8::text)";

int dur__pg_enqueue_for_worker(dur_provider *self, const dur_message_row *item, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_batch batch;
    int code = dur__pg_batch_open(&batch, store, true, err);
    if (code != DUR_OK) return code;
    dur__pg_args_of(store, &args, item->instance);
    dur__pg_id(&args, item->execution_id);
    dur__pg_id(&args, item->activity_id);
    dur__pg_text(&args, item->tag);
    dur__pg_text(&args, item->session_id);
    dur__pg_json(&args, item->json);
    dur__pg_text(&args, dur__pg_handler_of(item));
    dur__pg_batch_add(&batch, enqueue_sql, &args);
    dur__pg_batch_notify(&batch);
    code = dur__pg_batch_run(&batch, "postgres.enqueue_work", err);
    dur__pg_batch_end(&batch);
    if (code == DUR_OK) dur__pg_wake(store, NULL, NULL);
    return code;
}

#define CLAIMED "w.token = $2::text AND (w.owner IS NOT NULL OR w.until_ms > #now)"

/* clang-format off */
static const char renew_sql[] =
    "WITH l AS MATERIALIZED (" DUR__PG_LOCK_SESSIONS("w.token = $2::text") "), u AS (UPDATE @worker w SET until_ms ="
    " CASE WHEN w.owner IS NULL THEN #now + $3::bigint ELSE w.until_ms END WHERE (SELECT count(*) FROM l) >= 0 AND"
    " " CLAIMED " RETURNING w.session_id), s AS (" DUR__PG_TOUCH_SESSIONS("#now", "u") ") SELECT 1 FROM u";
/* clang-format on */

int dur__pg_renew_work_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_args_of(store, &args, lock_token);
    dur__pg_u64(&args, extend_ms);
    return dur__pg_write_locked(store, "postgres.renew_work", renew_sql, &args, err);
}

static const char abandon_sql[] =
    "UPDATE @worker w SET token = NULL, owner = NULL, since_ms = #now, until_ms = CASE WHEN $3::bigint > 0 THEN #now +"
    " $3::bigint ELSE 0 END, attempts = CASE WHEN $4::boolean THEN greatest(w.attempts - 1, 0) ELSE w.attempts END,"
    " crashes = CASE WHEN $4::boolean THEN w.crashes ELSE 0 END,"
    " crashes_alone = CASE WHEN $4::boolean THEN w.crashes_alone ELSE 0 END WHERE " CLAIMED " RETURNING 1";

int dur__pg_abandon_work_item(dur_provider *self, const char *lock_token, uint64_t delay_ms, bool ignore_attempt,
                              dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_args_of(store, &args, lock_token);
    dur__pg_u64(&args, delay_ms);
    dur__pg_bool(&args, ignore_attempt);
    int code = dur__pg_write_locked(store, "postgres.abandon_work", abandon_sql, &args, err);
    dur__pg_wake(store, NULL, NULL);
    return code;
}

/* A token is an instance's or a worker row's. */
static const char alone_sql[] =
    "WITH i AS (UPDATE @instances SET runs_alone = false WHERE token = $2::text) UPDATE @worker SET runs_alone = false"
    " WHERE token = $2::text";

int dur__pg_alone_ended(dur_provider *self, const char *lock_token, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_args_of(store, &args, lock_token);
    return dur__pg_write(store, "postgres.alone_ended", alone_sql, &args, NULL, err);
}

static const char bury_sql[] =
    "WITH d AS (DELETE FROM @worker w WHERE " CLAIMED " RETURNING w.instance_id, w.json)"
    " INSERT INTO @dead_letters (instance_id, reason, at_ms, json) SELECT d.instance_id, $3::text, #now, d.json FROM d"
    " RETURNING 1";

int dur__pg_dead_letter_work(dur_provider *self, const char *lock_token, const char *reason, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_args_of(store, &args, lock_token);
    dur__pg_text(&args, reason);
    return dur__pg_write_locked(store, "postgres.dead_letter_work", bury_sql, &args, err);
}

/* ---- arrays of claims -------------------------------------------------------------------------------------------- */

/* clang-format off */
static const char check_sql[] =
    "WITH n AS MATERIALIZED (SELECT #now AS now), s0 AS MATERIALIZED ("
    DUR__PG_LOCK_SESSIONS("$5::bigint > 0 AND w.token = ANY ($4::text[])") "), u AS ("
    "UPDATE @worker w SET until_ms = CASE WHEN w.owner IS NULL THEN n.now + $5::bigint ELSE w.until_ms END FROM n, "
    DUR__PG_LOCK_WORKS_AS("", ", n, " DUR__PG_CLAIMS, "$5::bigint > 0 AND (SELECT count(*) FROM s0) >= 0 AND "
    DUR__PG_IS_CLAIMED) " WHERE " DUR__PG_IS_L " RETURNING w.session_id), s AS ("
    DUR__PG_TOUCH_SESSIONS("(SELECT now FROM n)", "u") ") " DUR__PG_ARE_CLAIMED;
static const char return_sql[] =
    "UPDATE @worker w SET token = NULL, owner = NULL, until_ms = 0, since_ms = n.now, attempts = greatest(w.attempts"
    " - 1, 0) FROM (SELECT #now AS now) n, " DUR__PG_LOCK_WORKS_AS("", ", (SELECT #now AS now) n, " DUR__PG_CLAIMS,
    DUR__PG_IS_CLAIMED) " WHERE " DUR__PG_IS_L;
/* clang-format on */

static void claims_args(dur__pg *store, dur__pg_args *args, const dur_worker_claim *claims, size_t count) {
    dur__pg_table rows = dur__pg_table_of(DUR__PG_CLAIM_TYPES);
    for (size_t i = 0; i < count; i++)
        dur__pg_put_claim(&rows, claims[i].ref.instance, &claims[i].ref, claims[i].lock_token);
    dur__pg_args_begin(store, args);
    dur__pg_table_args(args, &rows);
}

int dur__pg_check_works(dur_provider *self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                        bool *lost, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    PGresult *result;
    claims_args(store, &args, claims, count);
    dur__pg_u64(&args, extend_ms);
    int code = dur__pg_one(store, "postgres.check_works", check_sql, &args, extend_ms > 0, &result, err);
    for (size_t i = 0; code == DUR_OK && i < count; i++)
        lost[i] = !dur__pg_get_bool(result, (int)i, 0);
    PQclear(result);
    return code;
}

int dur__pg_return_works(dur_provider *self, const dur_worker_claim *claims, size_t count, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    claims_args(store, &args, claims, count);
    int code = dur__pg_write(store, "postgres.return_works", return_sql, &args, NULL, err);
    dur__pg_wake(store, NULL, NULL);
    return code;
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static const char renew_sessions_sql[] =
    "WITH l AS MATERIALIZED (SELECT session_id FROM @sessions WHERE holder = ANY ($2::text[]) ORDER BY session_id FOR"
    " UPDATE) UPDATE @sessions SET until_ms = CASE WHEN owner IS NULL THEN #now + $3::bigint ELSE until_ms END"
    " WHERE session_id IN (SELECT session_id FROM l) AND holder = ANY ($2::text[]) AND (owner IS NOT NULL OR"
    " until_ms > #now) AND #now - active_ms < $4::bigint";
static const char cleanup_sql[] =
    "DELETE FROM @sessions WHERE session_id IN (SELECT s.session_id FROM @sessions s WHERE NOT EXISTS (SELECT 1 FROM"
    " @worker w WHERE w.session_id = s.session_id AND NOT (w.owner IS NULL AND " DUR__PG_HOLDER_HAS_NOT
    ")) AND CASE WHEN s.owner IS NULL THEN s.until_ms <= #now ELSE #now -"
    " s.active_ms >= $2::bigint END ORDER BY s.session_id FOR UPDATE SKIP LOCKED)"; /* what is locked is in use */

int dur__pg_renew_session_lock(dur_provider *self, const char *const *owners, size_t owner_count, uint64_t extend_ms,
                               uint64_t idle_ms, uint64_t *renewed, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_array holders = dur__pg_array_text();
    for (size_t i = 0; i < owner_count; i++)
        dur__pg_add_text(&holders, owners[i]);
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &holders);
    dur__pg_u64(&args, extend_ms);
    dur__pg_u64(&args, idle_ms);
    return dur__pg_write(store, "postgres.renew_session", renew_sessions_sql, &args, renewed, err);
}

int dur__pg_cleanup_orphaned_sessions(dur_provider *self, uint64_t idle_ms, uint64_t *removed, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_args_begin(store, &args);
    dur__pg_u64(&args, idle_ms);
    return dur__pg_write(store, "postgres.cleanup_sessions", cleanup_sql, &args, removed, err);
}
