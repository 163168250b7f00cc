/*
 * pg_turn_one.c: a round that is one step and nothing else.
 *
 * It compares and writes the same as the array statements of pg_turn.c and pg_turn_write.c, row by row: with a single
 * row an array costs as much as the row.  What is not exactly one step goes the usual way.
 */
#include "provider/postgres/pg_turn.h"

#define OR_NOTHING " SELECT 1 / count(*) FROM u"
static const char row_sql[] =
    "WITH u AS (UPDATE @instances i SET step_id = $11::bigint, step_token = $12::text, step_json = $13::text,"
    " step_handler = $14::text, last_event = $6::bigint, updated_at = #now, acquisitions = 0 WHERE i.step_id IS NOT "
    "DISTINCT FROM $10::bigint"
    " AND i.instance_id = $2::text AND i.current_execution = $4::bigint AND (i.token = $3::text) IS TRUE AND (i.owner"
    " = $7::text) IS TRUE AND (i.holder = $8::bigint) IS TRUE AND i.last_event = $5::bigint"
    " AND " DUR__PG_FENCE("$9::bigint") " RETURNING 1), h AS (INSERT INTO @history (instance_id, execution_id,"
                                        " event_id, events, json, written) VALUES ($2::text, $4::bigint, $15::bigint, "
                                        "2, $16::text, $17::text))" OR_NOTHING;
static const char taken_sql[] =
    "WITH u AS (DELETE FROM @worker w WHERE w.instance_id = $2::text AND w.id = $3::bigint AND w.token = $4::text AND"
    " w.owner IS NOT NULL AND w.session_id IS NULL RETURNING 1)" OR_NOTHING;
static const char work_sql[] =
    "INSERT INTO @worker (instance_id, execution_id, activity_id, tag, attempts, token, owner, since_ms, json,"
    " handler) VALUES"
    " ($2::text, $3::bigint, $4::bigint, $5::text, 1, $6::text, $8::text, #now, $7::text, $9::text) RETURNING id, true";

static bool is_kv(const dur_event_row *event) {
    return event->kind >= DUR_EVENT_KEY_VALUE_SET && event->kind <= DUR_EVENT_KEY_VALUES_CLEARED;
}

bool dur__pg_is_one_step(const dur_turn_commit *turn) {
    if (turn->event_count != 2 || turn->worker_consumed_count != 1 || turn->worker_item_count != 1 ||
        turn->consumed_count + turn->cancelled_count + turn->timers_dropped_count + turn->orchestrator_item_count > 0 ||
        turn->writes_start || !dur__pg_in_first_row(turn, 1))
        return false;
    const dur_turn_work *next = &turn->worker_items[0];
    const dur_worker_claim *done = &turn->worker_consumed[0];
    return next->lock_token != NULL && next->lock_token[0] != '\0' && next->message.session_id == NULL &&
           done->ref.row_id != 0 && !is_kv(&turn->events[0]) && !is_kv(&turn->events[1]);
}

static void begin(dur__pg *store, dur__pg_args *args, const dur_turn_commit *turn) {
    dur__pg_args_begin(store, args);
    dur__pg_text(args, turn->instance);
}

/* gone: the step in the row that is done; 0: that was none.  made: what is next stands there. */
static void send_row(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, const dur_turn_commit *turn,
                     int64_t gone, bool made) {
    dur__pg_args args;
    dur__pg_row_text row = DUR__PG_ROW_TEXT_INIT;
    (void)dur__pg_row_of_events(turn, 0, &row); /* both of them */
    begin(store, &args, turn);
    dur__pg_text(&args, turn->lock_token);
    dur__pg_i64(&args, (int64_t)turn->execution_id);
    dur__pg_i64(&args, (int64_t)turn->expected_last);
    dur__pg_i64(&args, (int64_t)turn->events[1].event_id);
    dur__pg_text(&args, lane->owner);
    dur__pg_i64(&args, lane->holder);
    dur__pg_i64(&args, dur__pg_fence_key(store, lane->owner));
    if (gone != 0)
        dur__pg_i64(&args, gone);
    else
        dur__pg_null(&args);
    if (made) {
        const dur_turn_work *next = &turn->worker_items[0];
        dur__pg_i64(&args, dur__pg_step_id(&next->message));
        dur__pg_text(&args, next->lock_token);
        dur__pg_json(&args, dur__pg_step_text(lane, turn));
        dur__pg_text(&args, dur__pg_handler_of(&next->message));
    } else {
        dur__pg_null(&args);
        dur__pg_null(&args);
        dur__pg_null(&args);
        dur__pg_null(&args);
    }
    dur__pg_i64(&args, (int64_t)turn->events[0].event_id);
    dur__pg_json(&args, dur__pg_row_json(&row));
    dur__pg_text(&args, dur__pg_row_written(&row));
    dur__pg_batch_add(batch, row_sql, &args);
    dur__buf_free(&row.json);
}

int dur__pg_send_one_step(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, const dur_turn_commit *turn) {
    dur__pg_args args;
    const dur_worker_claim *done = &turn->worker_consumed[0];
    const dur_turn_work *next = &turn->worker_items[0];
    int64_t gone = dur__pg_step_gone(lane, turn);
    bool made = dur__pg_step_made(lane, turn);
    send_row(store, batch, lane, turn, gone, made);
    if (gone == 0) {
        begin(store, &args, turn);
        dur__pg_i64(&args, (int64_t)done->ref.row_id);
        dur__pg_text(&args, done->lock_token);
        dur__pg_batch_add(batch, taken_sql, &args);
    }
    if (made) return -1;
    dur__pg_args_begin(store, &args);
    dur__pg_text(&args, next->message.instance);
    dur__pg_i64(&args, (int64_t)next->message.execution_id);
    dur__pg_i64(&args, (int64_t)next->message.activity_id);
    dur__pg_text(&args, next->message.tag);
    dur__pg_text(&args, next->lock_token);
    dur__pg_json(&args, next->message.json);
    dur__pg_text(&args, lane->owner);
    dur__pg_text(&args, dur__pg_handler_of(&next->message));
    return dur__pg_batch_add(batch, work_sql, &args);
}
