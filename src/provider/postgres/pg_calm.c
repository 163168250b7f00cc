/*
 * pg_calm.c: rounds in which nothing is compared but the lane's own row.
 *
 * The lane has written all rows of the round before, under the leases that it has, or makes them now, and nobody else
 * has written any since (pg_disturb.c).  So nothing needs to be looked at, and there are three plain statements at
 * most: an update of those that are over, an insert of those that begin, and the history of all.  Those that go on have
 * only that: history goes ahead of their rows.
 */
#include "provider/postgres/pg_turn.h"

/* Of those that are over the lease goes.  Behind an end there can only be messages that nobody was given: they wait for
   anybody. */
static const char ends_sql[] =
    "UPDATE @instances i SET last_event = t.last, updated_at = #now, acquisitions = 0, step_id = NULL, step_token ="
    " NULL, step_json = NULL, step_handler = NULL, token = NULL, owner = NULL, holder = NULL, ready_at = CASE WHEN "
    "i.ready_due = 0 AND"
    " i.ready_at IS NOT NULL THEN #now ELSE i.ready_at END, status = t.status, output = t.output FROM (SELECT"
    " unnest($2::text[]) AS id, unnest($3::bigint[]) AS last, unnest($4::bigint[]) AS status, unnest($5::text[]) AS"
    " output) t WHERE i.instance_id = t.id";

/* Their start was never written.  Somebody has made the instance: refused, by its key. */
static const char births_sql[] =
    "INSERT INTO @instances (instance_id, has_row, has_history, known, created_at, updated_at, owner, holder, status,"
    " token, current_execution, last_event, name, version, pin, custom_status, custom_status_version, step_id,"
    " step_token, step_json, step_handler, birth) SELECT id, true, true, true, #now, #now, $3::text, $4::bigint, 1, "
    "token, execution,"
    " last, name, version, pin::bigint[], custom, custom_version, step, step_token, step_json, step_handler, "
    "nullif(birth, 0) FROM"
    " (SELECT unnest($2::text[])"
    " AS id, unnest($5::text[]) AS token, unnest($6::bigint[]) AS execution, unnest($7::bigint[]) AS last,"
    " unnest($8::text[]) AS name, unnest($9::text[]) AS version, unnest($10::text[]) AS pin, unnest($11::text[]) AS"
    " custom, unnest($12::bigint[]) AS custom_version, unnest($13::bigint[]) AS birth, unnest($14::bigint[]) AS"
    " step, unnest($15::text[]) AS step_token, unnest($16::text[]) AS step_json, unnest($17::text[]) AS step_handler) "
    "t";

/*
 * The lane's row is locked, so that nobody takes a lease away meanwhile, nor the owner for dead, with whom it would go.
 * Whoever does so later, or writes a row in another way, has it say first what history says (DUR__PG_NO_STEP): beside
 * the events of one that goes on stands what else would change there, when it was, and the step, if it ends one or
 * begins one.  Where the lane's row is not as it was, or somebody has it, or the server is another one, which may have
 * less of history, a row of history without an instance is refused, with all else.  Last of the three, and waits for
 * nobody: who holds a row of an instance may want the lane's.
 */
static const char history_sql[] =
    "INSERT INTO @history (instance_id, execution_id, event_id, events, json, written, at_ms, step_id, step_token,"
    " step_json, step_handler) SELECT CASE WHEN (SELECT 1 FROM @lanes WHERE holder = $5::bigint AND disturbed = "
    "$6::bigint AND"
    " $15::bigint = " DUR__PG_SERVER_START " AND pg_try_advisory_xact_lock_shared($7::bigint) FOR NO KEY UPDATE SKIP"
    " LOCKED) = 1 THEN id END, execution, event,"
    " events, json, written, #now, step, step_token, step_json, step_handler FROM (SELECT unnest($2::text[]) AS id,"
    " unnest($3::bigint[]) AS execution, unnest($4::bigint[]) AS event, unnest($8::bigint[]) AS step,"
    " unnest($9::text[]) AS step_token, unnest($10::text[]) AS step_json, unnest($11::text[]) AS step_handler, "
    "unnest($12::bigint[]) AS events,"
    " unnest($13::text[]) AS json, unnest($14::text[]) AS written) t";

bool dur__pg_lane_is_calm(const dur__pg_lane *lane) {
    return lane->calm;
}

/* Its execution stands in its row; else there is another row to write. */
bool dur__pg_ends_calmly(const dur__pg_lane *lane, const dur_turn_commit *turn) {
    return dur__pg_lane_is_calm(lane) && dur__pg_turn_ends(turn) && dur__turn_custom_status(turn) == NULL &&
           dur__pg_row_known(lane, turn) && dur__pg_execution_in_row(lane, turn);
}

static void send_ends(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    enum { ID, LAST, STATUS, OUTPUT, COLUMNS };
    dur__pg_args args;
    dur__pg_array columns[COLUMNS] = { dur__pg_array_text(), dur__pg_array_i64(), dur__pg_array_i64(),
                                       dur__pg_array_text() };
    for (size_t i = 0; i < count; i++) {
        if (!dur__pg_turn_ends(turns[i])) continue;
        dur__pg_add_text(&columns[ID], turns[i]->instance);
        dur__pg_add_i64(&columns[LAST], (int64_t)dur__pg_turn_last_event(turns[i]));
        dur__pg_add_i64(&columns[STATUS], (int64_t)turns[i]->metadata.status);
        dur__pg_add_text(&columns[OUTPUT], turns[i]->metadata.output);
    }
    bool any = columns[ID].count > 0;
    dur__pg_args_begin(store, &args);
    dur__pg_array_args(&args, columns, COLUMNS);
    if (any)
        dur__pg_batch_add(batch, ends_sql, &args);
    else
        dur__pg_args_free(&args);
}

static void send_births(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                        size_t count) {
    enum { TOKEN, EXECUTION, LAST, NAME, VERSION, PIN, CUSTOM, CUSTOM_VERSION, BIRTH, COLUMNS };
    dur__pg_args args;
    dur__pg_array id = dur__pg_array_text(), columns[COLUMNS];
    if (count == 0) return;
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = i == EXECUTION || i == LAST || i >= CUSTOM_VERSION ? dur__pg_array_i64() : dur__pg_array_text();
    for (size_t i = 0; i < count; i++) {
        const dur_turn_commit *turn = turns[i];
        const dur_event_row *custom = dur__turn_custom_status(turn);
        dur__pg_add_text(&id, turn->instance);
        dur__pg_add_text(&columns[TOKEN], turn->lock_token);
        dur__pg_add_i64(&columns[EXECUTION], (int64_t)turn->execution_id);
        dur__pg_add_i64(&columns[LAST], (int64_t)dur__pg_turn_last_event(turn));
        dur__pg_add_text(&columns[NAME], turn->metadata.orchestration_name);
        dur__pg_add_text(&columns[VERSION], turn->metadata.orchestration_version);
        dur__pg_add_pin(&columns[PIN], &turn->metadata);
        dur__pg_add_text(&columns[CUSTOM], custom != NULL ? custom->value : NULL);
        dur__pg_add_i64(&columns[CUSTOM_VERSION], custom != NULL);
        dur__pg_add_i64(&columns[BIRTH], (int64_t)turn->metadata.birth);
    }
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &id);
    dur__pg_text(&args, lane->owner);
    dur__pg_i64(&args, lane->holder);
    dur__pg_array_args(&args, columns, COLUMNS);
    dur__pg_step_columns(&args, lane, turns, count, DUR__PG_STEP_IN_NEW_ROW);
    dur__pg_batch_add(batch, births_sql, &args);
}

static void send_history(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                         size_t count) {
    dur__pg_args args;
    dur__pg_array id = dur__pg_array_text(), execution = dur__pg_array_i64(), event = dur__pg_array_i64();
    for (size_t i = 0; i < count; i++) {
        dur__pg_add_text(&id, turns[i]->instance);
        dur__pg_add_i64(&execution, (int64_t)turns[i]->execution_id);
        dur__pg_add_i64(&event, (int64_t)turns[i]->expected_last + 1);
    }
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &id);
    dur__pg_array_arg(&args, &execution);
    dur__pg_array_arg(&args, &event);
    dur__pg_i64(&args, lane->holder);
    dur__pg_i64(&args, lane->disturbed);
    dur__pg_i64(&args, dur__pg_fence_key(store, lane->owner));
    dur__pg_step_columns(&args, lane, turns, count, DUR__PG_STEP_BESIDE_EVENTS);
    dur__pg_history_columns(&args, turns, count);
    dur__pg_i64(&args, lane->server_start);
    dur__pg_batch_add(batch, history_sql, &args);
}

void dur__pg_send_calm(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                       size_t old, size_t count) {
    send_ends(store, batch, turns, old);
    send_births(store, batch, lane, turns + old, count - old);
    send_history(store, batch, lane, turns, count);
}
