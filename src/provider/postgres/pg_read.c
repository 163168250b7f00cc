/*
 * pg_read.c: reading and appending history, status and key-value state, outside turns.
 */
#include "provider/postgres/pg_pieces.h"
#include "provider/postgres/pg_turn.h"

static const char read_sql[] =
    "SELECT " DUR__PG_BLOCK " FROM @history h WHERE h.instance_id = $2::text AND h.execution_id = CASE WHEN $3::bigint"
    " <> 0 THEN $3::bigint ELSE (SELECT current_execution FROM @instances WHERE instance_id = $2::text) END ORDER BY"
    " h.first_id";

int dur__pg_read(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution_id, dur_event_row **out,
                 size_t *count, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    PGresult *rows;
    dur__pg_args_of(store, &args, instance);
    dur__pg_id(&args, execution_id);
    int code = dur__pg_one(store, "postgres.read", read_sql, &args, false, &rows, err);
    *out = dur__pg_read_blocks(rows, 0, code == DUR_OK ? PQntuples(rows) : 0, 0, instance, arena, count);
    PQclear(rows);
    return code;
}

static const char mark_sql[] =
    "UPDATE @instances i SET has_history = true, known = true,"
    " status = CASE WHEN $3::bigint > i.current_execution THEN 1 ELSE coalesce(i.status, 1) END,"
    " output = CASE WHEN $3::bigint > i.current_execution THEN NULL ELSE i.output END,"
    " started_at = CASE WHEN $3::bigint > i.current_execution OR i.status IS NULL THEN #now ELSE i.started_at END,"
    " completed_at = CASE WHEN $3::bigint > i.current_execution THEN 0 ELSE i.completed_at END,"
    " pin = CASE WHEN $3::bigint > i.current_execution THEN NULL ELSE i.pin END,"
    " current_execution = greatest(i.current_execution, $3::bigint),"
    " ready_at = CASE WHEN i.known THEN i.ready_at ELSE (SELECT min(q.order_ms) FROM @queue q WHERE q.instance_id ="
    " i.instance_id) END, ready_due = CASE WHEN i.known THEN i.ready_due ELSE coalesce((SELECT min(q.due_ms) FROM"
    " @queue q"
    " WHERE q.instance_id = i.instance_id), 0) END WHERE i.instance_id = $2::text";

/* It locks the row, or makes it, as who ends leases does: turns under way are waited for, and what they wrote is seen
   behind that. */
int dur__pg_append(dur_provider *self, const char *instance, uint64_t execution_id, const dur_event_row *events,
                   size_t count, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_batch batch;
    dur__pg_array ids = dur__pg_array_text();
    for (size_t i = 0; i < count; i++)
        if (events[i].event_id == 0)
            return dur_error_set(err, DUR_EINVAL, false, "postgres.append", "event %zu has id 0", i);
    if (count == 0) return DUR_OK;
    int code = dur__pg_batch_open(&batch, store, true, err);
    if (code != DUR_OK) return code;
    dur__pg_add_text(&ids, instance);
    dur__pg_batch_add_ids(&batch, dur__pg_lock_to_end_sql, &ids);
    dur__buf_free(&ids.data);
    dur__pg_send_past_execution(&batch, instance, execution_id);
    dur__pg_send_events(&batch, instance, execution_id, events, count);
    dur__pg_args_of(store, &args, instance);
    dur__pg_id(&args, execution_id);
    dur__pg_batch_add(&batch, mark_sql, &args);
    dur__pg_batch_notify(&batch);
    code = dur__pg_batch_run(&batch, "postgres.append", err);
    if (code == DUR_ECONFLICT) code = dur_error_set(err, DUR_ECONFLICT, false, "postgres.append", "duplicate event");
    dur__pg_batch_end(&batch);
    return code;
}

/* ---- status and key-value state ---------------------------------------------------------------------------------- */

static const char status_sql[] =
    "SELECT custom_status, custom_status_version FROM @instances WHERE instance_id = $2::text AND"
    " custom_status_version > $3::bigint";

int dur__pg_get_custom_status(dur_provider *self, dur_arena *arena, const char *instance, uint64_t last_seen,
                              bool *changed, const char **status, uint64_t *version, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    PGresult *result;
    *changed = false;
    *status = NULL;
    *version = 0;
    dur__pg_args_of(store, &args, instance);
    dur__pg_u64(&args, last_seen);
    int code = dur__pg_one(store, "postgres.status", status_sql, &args, false, &result, err);
    if (code == DUR_OK && PQntuples(result) > 0) {
        *changed = true;
        *status = dur__pg_get_text(result, 0, 0, arena);
        *version = dur__pg_get_u64(result, 0, 1);
    }
    PQclear(result);
    return code;
}

/* The running execution's writes stand before the state that it began with; NULL there means cleared. */
static const char value_sql[] =
    "SELECT value FROM @kv_delta WHERE instance_id = $2::text AND key = $3::text UNION ALL SELECT value FROM @kv WHERE"
    " instance_id = $2::text AND key = $3::text AND NOT EXISTS (SELECT 1 FROM @kv_delta WHERE instance_id = $2::text"
    " AND key = $3::text)";

int dur__pg_get_kv_value(dur_provider *self, dur_arena *arena, const char *instance, const char *key,
                         const char **value, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_args_of(store, &args, instance);
    dur__pg_text(&args, key);
    return dur__pg_first_text(store, "postgres.kv", value_sql, &args, arena, value, err);
}

static const char values_sql[] =
    "SELECT key, value, stamp_ms FROM @kv_delta WHERE instance_id = $2::text AND value IS NOT NULL UNION ALL SELECT"
    " k.key, k.value, k.stamp_ms FROM @kv k WHERE k.instance_id = $2::text AND NOT EXISTS (SELECT 1 FROM @kv_delta d"
    " WHERE d.instance_id = k.instance_id AND d.key = k.key) ORDER BY 1";

dur_key_value *dur__pg_read_values(const PGresult *rows, int from, int count, int column, dur_arena *arena) {
    dur_key_value *all = count > 0 ? dur_arena_zalloc(arena, (size_t)count * sizeof(*all)) : NULL;
    for (int i = 0; i < count; i++)
        all[i] = (dur_key_value){ .key = dur__pg_get_text(rows, from + i, column, arena),
                                  .value = dur__pg_get_text(rows, from + i, column + 1, arena),
                                  .last_updated_at_ms = dur__pg_get_u64(rows, from + i, column + 2) };
    return all;
}

int dur__pg_get_kv_all_values(dur_provider *self, dur_arena *arena, const char *instance, dur_key_value **out,
                              size_t *count, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    PGresult *rows;
    dur__pg_args_of(store, &args, instance);
    int code = dur__pg_one(store, "postgres.kv", values_sql, &args, false, &rows, err);
    *count = code == DUR_OK ? (size_t)PQntuples(rows) : 0;
    *out = dur__pg_read_values(rows, 0, (int)*count, 0, arena);
    PQclear(rows);
    return code;
}

static const char stats_sql[] =
    "SELECT (SELECT count(*) FROM @queue q WHERE q.instance_id = i.instance_id AND q.queue IS NOT NULL), v.n, v.bytes"
    " FROM @instances i, LATERAL (SELECT count(*) AS n, coalesce(sum(octet_length(x.value)), 0) AS bytes FROM (SELECT"
    " value FROM @kv_delta d WHERE d.instance_id = i.instance_id AND d.value IS NOT NULL UNION ALL SELECT k.value FROM"
    " @kv k WHERE k.instance_id = i.instance_id AND NOT EXISTS (SELECT 1 FROM @kv_delta d WHERE d.instance_id ="
    " k.instance_id AND d.key = k.key)) x) v WHERE i.instance_id = $2::text AND i.known";

int dur__pg_get_instance_stats(dur_provider *self, dur_arena *arena, const char *instance, bool *found,
                               dur_instance_stats *out, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    uint64_t *const numbers[] = { &out->queue_pending_count, &out->kv_user_key_count, &out->kv_total_value_bytes };
    dur_event_row *events;
    size_t count;
    memset(out, 0, sizeof(*out));
    dur__pg_args_of(store, &args, instance);
    int code = dur__pg_numbers(store, "postgres.stats", stats_sql, &args, numbers, sizeof(numbers) / sizeof(numbers[0]),
                               found, err);
    if (code != DUR_OK || !*found) return code;
    code = dur__pg_read(self, arena, instance, 0, &events, &count, err);
    for (size_t i = 0; code == DUR_OK && i < count; i++)
        out->history_size_bytes += events[i].json.size;
    out->history_event_count = code == DUR_OK ? count : 0;
    return code;
}
