/*
 * pg_lane.c: lanes: the rounds of a loop in one round trip, and how it sleeps.
 */
#include "base/assert.h"
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"

#include <poll.h>
#include <stdlib.h>

#define SAFETY_MS 1000u /* a look at least so often: every notification may be lost … */
#define BEATEN_US 3000000u
#define SAFETY_BEATEN_MS 60000u /* … but an owner's beat looks each second for all its lanes */
#define NOTIFY_WAIT_MS 2u
#define FAKE_TIME_SLICE_MS 2u /* how often a sleeper looks at a clock that only a test moves */

static dur__pg_lane *lane_of(dur_lane *lane) {
    return (dur__pg_lane *)(void *)lane;
}

int dur__pg_lane_open(dur_provider *self, const dur_lane_options *options, dur_lane **out, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    int code = options->owner != NULL
                   ? dur__pg_owner_check(store, "postgres.lane_open", options->owner, DUR_ESTATE, err)
                   : DUR_OK;
    if (code != DUR_OK) return code;
    dur__pg_lane *lane = dur__xcalloc(1, sizeof(*lane));
    lane->base.store = self;
    lane->store = store;
    lane->conn = dur__pg_conn_new(store);
    lane->conn->want_listen = !store->pooler;
    lane->conn->hurries = true;
    dur__pg_set_patience(lane->conn, dur__pg_owner_timeout_ms(store, options->owner));
    if (options->owner != NULL) lane->conn->owner_key = dur__pg_owner_key(store, options->owner);
    lane->holder = dur__pg_random_holder(store);
    lane->owner = dur__xstrdup(options->owner);
    lane->waker = options->waker;
    lane->next_due_ms = DUR_NEVER;
    lane->handlers = options->handlers;
    lane->more = true; /* the first look sees everything */
    lane->rounds = DUR__PG_NO_ROUND;
    lane->unborn_works = dur__pg_array_text();
    code = dur__pg_connect(lane->conn, err);
    if (code != DUR_OK) {
        dur__pg_conn_free(lane->conn);
        dur__free(lane->owner);
        dur__free(lane);
        return code;
    }
    dur__mutex_lock(&store->mutex);
    dur__list_push(&store->lanes, &lane->link);
    dur__mutex_unlock(&store->mutex);
    *out = &lane->base;
    return DUR_OK;
}

/* Nobody is asked any more to give something up; where that fails it goes with the owner. */
static const char leave_sql[] = "DELETE FROM @lanes WHERE holder = $2::bigint";

static void leave(dur__pg_lane *lane) {
    dur__pg_args args;
    dur__pg_batch batch;
    if (lane->owner == NULL || dur__pg_connect(lane->conn, NULL) != DUR_OK) return;
    dur__pg_batch_begin(&batch, lane->conn, false);
    dur__pg_args_begin(lane->store, &args);
    dur__pg_i64(&args, lane->holder);
    dur__pg_batch_add(&batch, leave_sql, &args);
    (void)dur__pg_batch_run(&batch, "postgres.lane_close", NULL);
    dur__pg_batch_end(&batch);
}

void dur__pg_lane_close(dur_lane *base) {
    dur__pg_lane *lane = lane_of(base);
    dur__mutex_lock(&lane->store->mutex);
    dur__list_unlink(&lane->link);
    dur__mutex_unlock(&lane->store->mutex);
    dur__pg_held_up_forget(lane);
    dur__pg_leases_free(lane);
    dur__buf_free(&lane->unborn_works.data);
    leave(lane);
    dur__pg_conn_free(lane->conn); /* the leases stay with their owner */
    dur__free(lane->owner);
    dur__free(lane);
}

/* ---- sleeping ---------------------------------------------------------------------------------------------------- */

static void flush_notification(dur__pg_lane *lane) {
    dur__pg_batch batch;
    lane->notify_pending = lane->notify_urgent = false;
    if (dur__pg_connect(lane->conn, NULL) != DUR_OK) return;
    dur__pg_batch_begin(&batch, lane->conn, false);
    dur__pg_batch_notify_first(&batch);
    (void)dur__pg_batch_run(&batch, "postgres.notify", NULL);
    dur__pg_batch_end(&batch);
}

/* Milliseconds until something comes by itself, for one that has slept so long. */
static uint64_t quiet_ms(const dur__pg_lane *lane, uint64_t slept_ms) {
    bool beaten = lane->owner != NULL && dur__monotonic_us() - atomic_load(&lane->store->beaten_us) < BEATEN_US;
    uint64_t most = beaten ? SAFETY_BEATEN_MS : SAFETY_MS;
    most = most > slept_ms ? most - slept_ms : 0;
    if (lane->more) return 0;
    uint64_t next = dur__pg_lane_due_ms(lane);
    if (next == DUR_NEVER) return most;
    uint64_t now = dur__pg_lane_now_ms(lane);
    uint64_t left = next > now ? next - now : 0;
    return left < most ? left : most;
}

/* In pieces: when the beats stop, the long sleep ends too. */
static uint64_t rest_ms(dur__pg_lane *lane) {
    uint64_t now = dur__monotonic_us();
    if (lane->rest_at_us == 0) lane->rest_at_us = now;
    uint64_t slept_ms = (now - lane->rest_at_us) / 1000u;
    if (lane->notify_pending && slept_ms >= NOTIFY_WAIT_MS) flush_notification(lane);
    uint64_t ms = quiet_ms(lane, slept_ms);
    if (ms > SAFETY_MS) ms = SAFETY_MS;
    /* too early for another notification, or not worth a round trip of its own if work comes */
    if (lane->notify_pending && NOTIFY_WAIT_MS - slept_ms < ms) ms = NOTIFY_WAIT_MS - slept_ms;
    return lane->store->caller_clock && ms > FAKE_TIME_SLICE_MS ? FAKE_TIME_SLICE_MS : ms;
}

int dur__pg_lane_rest(dur_lane *base, dur_rest *out, dur_error *err) {
    dur__pg_lane *lane = lane_of(base);
    (void)err;
    if (lane->notify_pending && lane->notify_urgent && dur__pg_may_notify(lane->store, true)) flush_notification(lane);
    if (lane->conn->pg != NULL && dur__pg_drain_notifications(lane->conn, lane->owner)) atomic_store(&lane->news, true);
    if (lane->more || lane->unseen) { /* told once; the round must not forget it */
        atomic_store(&lane->news, true);
        lane->more = lane->unseen = false;
    }
    uint64_t ms = atomic_load(&lane->news) ? 0 : rest_ms(lane);
    if (ms == 0 || !dur_waker_sleep_begin(lane->waker)) {
        lane->rest_at_us = 0;
        return DUR_OK;
    }
    out->us = ms * 1000u;
    out->fds[out->fd_count++] = (struct pollfd){ .fd = dur_waker_fd(lane->waker), .events = POLLIN };
    if (lane->conn->pg != NULL)
        out->fds[out->fd_count++] = (struct pollfd){ .fd = PQsocket(lane->conn->pg), .events = POLLIN };
    return DUR_OK;
}

int dur__pg_lane_rise(dur_lane *base, const dur_rest *slept, bool *news, dur_error *err) {
    dur__pg_lane *lane = lane_of(base);
    (void)err;
    *news = dur_waker_sleep_end(lane->waker);
    if (slept->fd_count > 1 && slept->fds[1].revents != 0) {
        bool lost = PQconsumeInput(lane->conn->pg) != 1; /* the next round reconnects and looks */
        if (lost || dur__pg_drain_notifications(lane->conn, lane->owner)) {
            atomic_store(&lane->news, true);
            *news = true;
        }
    }
    if (*news) lane->rest_at_us = 0;
    return DUR_OK;
}

/* ---- reads of a leased instance ---------------------------------------------------------------------------------- */

#define HELD "i.instance_id = $2::text AND i.token = $3::text AND (i.owner IS NOT NULL OR i.expires_at > #now)"
static const char held_sql[] = "SELECT i.name, i.version, i.current_execution, i.acquisitions, " DUR__PG_LAST(
    "h.instance_id = i.instance_id AND h.execution_id = CASE WHEN $4::bigint <> 0 THEN $4::bigint ELSE"
    " i.current_execution END") " FROM @instances i WHERE " HELD;
static const char events_sql[] =
    "SELECT " DUR__PG_BLOCK " FROM @instances i JOIN @history h ON h.instance_id = i.instance_id AND h.execution_id ="
    " CASE WHEN $4::bigint <> 0 THEN $4::bigint ELSE i.current_execution END WHERE " HELD " ORDER BY h.first_id";
static const char snapshot_sql[] =
    "SELECT k.key, k.value, k.stamp_ms FROM @kv k WHERE k.instance_id = $2::text ORDER BY k.key";
/* What is handed out here is known to the holder and does not come again with a round. */
static const char messages_sql[] =
    "WITH c AS (SELECT q.instance_id, q.id, q.delivered <> 0 AS given FROM @instances i JOIN @queue q ON q.instance_id"
    " = i.instance_id WHERE " HELD " AND ($5::text IS NULL OR q.queue = $5::text) AND (q.order_ms, q.id) > ($6::bigint,"
    " $7::bigint) AND q.due_ms <= #now ORDER BY q.order_ms, q.id LIMIT $8::bigint),"
    " u AS (UPDATE @queue q SET delivered = 1, attempts = CASE WHEN c.given THEN q.attempts ELSE -q.attempts END FROM c"
    " WHERE q.instance_id = c.instance_id AND q.id = c.id RETURNING q.id, q.order_ms, CASE WHEN q.attempts > 0 THEN"
    " q.attempts ELSE 1 - q.attempts END, q.queue, q.json)"
    " SELECT * FROM u ORDER BY order_ms, id";

static void begin(dur__pg_lane *lane, dur__pg_args *args, const char *instance, const char *token, uint64_t execution) {
    dur__pg_args_of(lane->store, args, instance);
    dur__pg_text(args, token);
    dur__pg_id(args, execution);
}

static int not_held(dur_error *err) {
    return dur_error_set(err, DUR_ELEASE, false, "postgres.lane", "Invalid lock token");
}

int dur__pg_lane_messages(dur_lane *base, dur_arena *arena, const char *instance, const char *lock_token,
                          const char *queue, uint64_t after_due_ms, uint64_t after_id, size_t max,
                          dur_fetched_message **out, size_t *count, dur_error *err) {
    dur__pg_lane *lane = lane_of(base);
    dur__pg_args args;
    dur__pg_batch batch;
    *out = NULL;
    *count = 0;
    int code = dur__pg_connect(lane->conn, err);
    if (code != DUR_OK) return code;
    dur__pg_batch_begin(&batch, lane->conn, false); /* may be repeated */
    begin(lane, &args, instance, lock_token, 0);
    int held = dur__pg_batch_add(&batch, held_sql, &args);
    begin(lane, &args, instance, lock_token, 0);
    dur__pg_text(&args, queue);
    dur__pg_u64(&args, after_due_ms);
    dur__pg_id(&args, after_id);
    dur__pg_i64(&args, max > 0 ? (int64_t)max : INT64_MAX);
    int rows = dur__pg_batch_add(&batch, messages_sql, &args);
    code = dur__pg_batch_run(&batch, "postgres.lane_messages", err);
    if (code == DUR_OK && PQntuples(batch.results[held]) == 0) code = not_held(err);
    if (code == DUR_OK) {
        const PGresult *result = batch.results[rows];
        dur__pg_lease_told(lane, instance);
        *count = (size_t)PQntuples(result);
        *out = dur_arena_zalloc(arena, (*count + 1) * sizeof(**out));
        for (int i = 0; i < PQntuples(result); i++)
            (*out)[i] = dur__pg_read_message(result, i, 0, arena);
    }
    dur__pg_batch_end(&batch);
    return code;
}

static void read_history(const dur__pg_batch *batch, int held, int events, int kv, dur_arena *arena,
                         dur_orchestration_item *out) {
    const PGresult *row = batch->results[held], *rows = batch->results[events], *values = batch->results[kv];
    out->orchestration_name = dur__pg_get_text(row, 0, 0, arena);
    out->version = dur__pg_get_text(row, 0, 1, arena);
    out->execution_id = dur__pg_get_u64(row, 0, 2);
    out->acquisitions = (uint32_t)dur__pg_get_u64(row, 0, 3);
    out->last_event_id = dur__pg_get_u64(row, 0, 4);
    out->history = dur__pg_read_blocks(rows, 0, PQntuples(rows), 0, out->instance, arena, &out->history_count);
    out->kv = dur__pg_read_values(values, 0, PQntuples(values), 0, arena);
    out->kv_count = (size_t)PQntuples(values);
}

int dur__pg_lane_history(dur_lane *base, dur_arena *arena, const char *instance, const char *lock_token,
                         uint64_t execution_id, dur_orchestration_item *out, dur_error *err) {
    dur__pg_lane *lane = lane_of(base);
    dur__pg_args args;
    dur__pg_batch batch;
    memset(out, 0, sizeof(*out));
    int code = dur__pg_connect(lane->conn, err);
    if (code != DUR_OK) return code;
    dur__pg_batch_begin(&batch, lane->conn, false);
    begin(lane, &args, instance, lock_token, execution_id);
    int held = dur__pg_batch_add(&batch, held_sql, &args);
    begin(lane, &args, instance, lock_token, execution_id);
    int events = dur__pg_batch_add(&batch, events_sql, &args);
    begin(lane, &args, instance, lock_token, execution_id);
    int kv = dur__pg_batch_add(&batch, snapshot_sql, &args);
    code = dur__pg_batch_run(&batch, "postgres.lane_history", err);
    if (code == DUR_OK && PQntuples(batch.results[held]) == 0) code = not_held(err);
    if (code == DUR_OK) {
        out->instance = dur_arena_strdup(arena, instance);
        read_history(&batch, held, events, kv, arena, out);
        out->lock_token = dur_arena_strdup(arena, lock_token);
        if (execution_id != 0) out->execution_id = execution_id;
        if (out->execution_id == 0) out->execution_id = 1;
        if (execution_id == 0) dur__pg_lease_note(lane, out);
    }
    dur__pg_batch_end(&batch);
    return code;
}
