/*
 * pg_commit.c: committing turns: whole batches, the halves of one that was refused, and why a single turn is refused.
 */
#include "provider/postgres/pg_internal.h"

static void refuse(dur_turn_commit *turn, dur_turn_fault fault) {
    turn->fault = fault;
}

void dur__pg_turn_failed(dur_turn_commit *turn, const dur_error *err) {
    turn->fault = DUR_TURN_STORE;
    turn->error = *err;
}

bool dur__pg_refused(const dur__pg_batch *batch, int code) {
    return code != DUR_OK && code != DUR_EUNKNOWN && batch->sqlstate[0] != '\0' && !batch->error.retryable;
}

/* ---- why a turn was refused -------------------------------------------------------------------------------------- */

/* clang-format off */
static const char why_sql[] =
    "SELECT CASE WHEN $3::text IS NULL THEN i.known ELSE coalesce(i.token = $3::text AND (i.owner IS NOT NULL OR"
    " i.expires_at > #now), false) END,"
    " coalesce(" DUR__PG_LAST("h.instance_id = i.instance_id AND h.execution_id = $4::bigint") ", 0),"
    " $5::text IS NULL OR EXISTS (SELECT 1 FROM @instances p WHERE p.instance_id = $5::text"
    " AND " DUR__PG_IS_MEANT("p", "$6::bigint") "), coalesce(i.birth = nullif($7::bigint, 0), true) AND"
    " i.suspended IS NOT DISTINCT FROM coalesce($9::text, i.suspended) AND NOT EXISTS (SELECT 1"
    " FROM unnest($8::bigint[]) AS c(id) WHERE NOT EXISTS (SELECT 1 FROM @queue q WHERE q.instance_id ="
    " i.instance_id AND q.id = c.id)), ($10::bigint & 1) <> 0 AND i.token IS NOT NULL AND (i.owner IS NOT NULL OR"
    " i.expires_at > #now), ($10::bigint & 2) <> 0 AND EXISTS (SELECT 1 FROM @queue q WHERE q.instance_id ="
    " i.instance_id AND q.kind = " DUR__PG_CANCEL ") FROM @instances i WHERE i.instance_id = $2::text";
/* clang-format on */
static const char why_work_sql[] =
    "SELECT EXISTS (SELECT 1 FROM @worker w WHERE w.token = c.token AND w.instance_id = $2::text AND (c.id = 0 OR"
    " w.id = c.id) AND (w.owner IS NOT NULL OR w.until_ms > #now)) OR EXISTS (SELECT 1 FROM @instances i CROSS JOIN"
    " " DUR__PG_STEP
    " s WHERE i.instance_id = $2::text AND s.token = c.token AND c.id IN (0, s.id)) FROM unnest($3::bigint[],"
    " $4::text[]) WITH ORDINALITY AS c(id, token, at) ORDER BY c.at";

static void read_lost_work(const PGresult *rows, dur_arena *arena, dur_turn_commit *turn) {
    const dur_worker_claim **lost = NULL;
    for (size_t i = 0; i < turn->worker_consumed_count; i++) {
        if (dur__pg_get_bool(rows, (int)i, 0)) continue;
        if (lost == NULL && arena != NULL)
            lost = dur_arena_alloc(arena, turn->worker_consumed_count * sizeof(dur_worker_claim *));
        if (lost != NULL) lost[turn->lost_work_count] = &turn->worker_consumed[i];
        turn->lost_work_count++;
    }
    turn->lost_work = lost;
}

/* The first check that does not hold; DUR__TURN_CHECKS: all do. */
static dur__turn_check first_refusal(const dur_turn_commit *turn, const PGresult *row, const char *sqlstate) {
    const bool fails[DUR__TURN_CHECKS] = {
        [DUR__TURN_TOKEN] = !turn->take_over && (PQntuples(row) == 0 || !dur__pg_get_bool(row, 0, 0)),
        [DUR__TURN_EXISTS] = turn->take_over && (PQntuples(row) == 0 || !dur__pg_get_bool(row, 0, 0)),
        [DUR__TURN_UNLEASED] = PQntuples(row) > 0 && dur__pg_get_bool(row, 0, 4),
        [DUR__TURN_UNCANCELLED] = PQntuples(row) > 0 && dur__pg_get_bool(row, 0, 5),
        [DUR__TURN_LAST_EVENT] = PQntuples(row) > 0 && turn->expected_last != DUR_NOT_COMPARED &&
                                 turn->expected_last != dur__pg_get_u64(row, 0, 1),
        [DUR__TURN_MEANT] = PQntuples(row) > 0 && !dur__pg_get_bool(row, 0, 3),
        [DUR__TURN_PARENT] = PQntuples(row) > 0 && !dur__pg_get_bool(row, 0, 2),
        [DUR__TURN_WORK] = turn->lost_work_count > 0,
        [DUR__TURN_NEW_EVENTS] = strcmp(sqlstate, "23505") == 0,
    };
    int check = 0;
    while (check < DUR__TURN_CHECKS && !fails[check])
        check++;
    return (dur__turn_check)check;
}

static void say_why(dur_turn_commit *turn, const dur__pg_batch *refused, const PGresult *row, const PGresult *works,
                    dur_arena *arena) {
    static const char *const words[DUR__TURN_CHECKS] = {
        [DUR__TURN_TOKEN] = "Invalid lock token",
        [DUR__TURN_EXISTS] = "instance not found",
        [DUR__TURN_UNLEASED] = "the instance is leased",
        [DUR__TURN_UNCANCELLED] = "somebody has asked the instance to end",
        [DUR__TURN_LAST_EVENT] = "the history does not end with the event that the turn expects",
        [DUR__TURN_MEANT] = "the instance is another one, or has begun",
        [DUR__TURN_PARENT] = "the parent was not found",
        [DUR__TURN_WORK] = "worker rows are gone or locked by another",
        [DUR__TURN_NEW_EVENTS] = "duplicate event",
    };
    read_lost_work(works, arena, turn);
    dur__turn_check check = first_refusal(turn, row, refused->sqlstate);
    if (check != DUR__TURN_WORK) turn->lost_work = NULL, turn->lost_work_count = 0;
    if (check < DUR__TURN_CHECKS) {
        dur_error_set(&turn->error, dur__turn_code_of(check), false, "postgres.commit", "%s", words[check]);
        refuse(turn, dur__turn_fault_of(check));
    } else if (strcmp(refused->sqlstate, "22012") == 0) { /* it changed between the two looks */
        dur_error_set(&turn->error, DUR_EBUSY, true, "postgres.commit", "the instance changed while it was committed");
        refuse(turn, DUR_TURN_STORE);
    } else {
        dur__pg_turn_failed(turn, &refused->error);
    }
}

static void find_why(dur__pg *store, dur__pg_conn *conn, dur_arena *arena, dur_turn_commit *turn,
                     const dur__pg_batch *refused) {
    dur__pg_args args;
    dur__pg_batch batch;
    dur_error err = DUR_ERROR_INIT;
    dur__pg_array id = dur__pg_array_i64(), token = dur__pg_array_text(), taken = dur__pg_array_i64();
    for (size_t i = 0; turn->take_over && turn->consume_listed && i < turn->consumed_count; i++)
        dur__pg_add_i64(&taken, (int64_t)turn->consumed[i]);
    for (size_t i = 0; i < turn->worker_consumed_count; i++) {
        dur__pg_add_i64(&id, (int64_t)turn->worker_consumed[i].ref.row_id);
        dur__pg_add_text(&token, turn->worker_consumed[i].lock_token);
    }
    dur__pg_batch_begin(&batch, conn, false);
    dur__pg_args_begin(store, &args);
    dur__pg_text(&args, turn->instance);
    dur__pg_text(&args, turn->take_over ? NULL : turn->lock_token);
    dur__pg_id(&args, turn->execution_id);
    dur__pg_text(&args, turn->needs_parent ? turn->metadata.parent_instance_id : NULL);
    dur__pg_i64(&args, (int64_t)turn->metadata.parent_birth);
    dur__pg_i64(&args, turn->take_over ? (int64_t)turn->metadata.birth : 0);
    dur__pg_array_arg(&args, &taken);
    dur__pg_text(&args, turn->if_suspended);
    dur__pg_i64(&args, (turn->if_unleased ? 1 : 0) | (turn->if_uncancelled ? 2 : 0));
    int row = dur__pg_batch_add(&batch, why_sql, &args);
    dur__pg_args_begin(store, &args);
    dur__pg_text(&args, turn->instance);
    dur__pg_array_arg(&args, &id);
    dur__pg_array_arg(&args, &token);
    int works = dur__pg_batch_add(&batch, why_work_sql, &args);
    if (dur__pg_batch_run(&batch, "postgres.commit", &err) == DUR_OK)
        say_why(turn, refused, batch.results[row], batch.results[works], arena);
    else
        dur__pg_turn_failed(turn, &err);
    dur__pg_batch_end(&batch);
}

/* ---- committing -------------------------------------------------------------------------------------------------- */

void dur__pg_turns_commit(dur__pg *store, dur__pg_conn *conn, dur__pg_lane *lane, dur_arena *arena,
                          dur_turn_commit **turns, size_t count) {
    dur__pg_batch batch;
    dur__pg_turn_plan plan;
    dur_error err = DUR_ERROR_INIT;
    if (count == 0) return;
    int code = dur__pg_connect(conn, &err);
    if (code != DUR_OK) {
        for (size_t i = 0; i < count; i++)
            dur__pg_turn_failed(turns[i], &err);
        return;
    }
    dur__pg_batch_begin(&batch, conn, true);
    dur__pg_turns_add(store, &batch, lane, turns, count, NULL, 0, false, &plan);
    if (plan.for_lanes || plan.for_watches) dur__pg_batch_notify(&batch);
    code = dur__pg_batch_run(&batch, "postgres.commit", &err);
    if (code == DUR_OK) {
        dur__pg_turns_read(&batch, &plan, lane, turns, count);
    } else if (!dur__pg_refused(&batch, code) && (count == 1 || !dur__pg_waited_too_long(&batch))) {
        for (size_t i = 0; i < count; i++)
            dur__pg_turn_failed(turns[i], &err);
    } else if (count == 1) {
        find_why(store, conn, arena, turns[0], &batch);
    } else {
        dur__pg_turns_commit(store, conn, lane, arena, turns, count / 2);
        dur__pg_turns_commit(store, conn, lane, arena, turns + count / 2, count - count / 2);
    }
    dur__pg_batch_end(&batch);
}

static const char by_token_sql[] = "SELECT instance_id FROM @instances WHERE token = $2::text";

/* The id of the instance that has this lock; NULL: none.  In arena. */
static int instance_of_token(dur__pg *store, dur_arena *arena, const char *token, const char **out, dur_error *err) {
    dur__pg_args args;
    dur__pg_args_begin(store, &args);
    dur__pg_text(&args, token);
    return dur__pg_first_text(store, "postgres.commit", by_token_sql, &args, arena, out, err);
}

static int commit_some(dur__pg *store, dur_turn_commit *turns, size_t count, dur_error *err) {
    dur__pg_conn *conn;
    dur_arena *arena = dur_arena_new();
    dur_turn_commit **valid = dur_arena_alloc(arena, (count + 1) * sizeof(dur_turn_commit *));
    bool *found = dur_arena_zalloc(arena, count + 1);
    size_t valid_count = 0;
    int code = DUR_OK;
    for (size_t i = 0; code == DUR_OK && i < count; i++) {
        found[i] = turns[i].instance == NULL && turns[i].lock_token != NULL;
        if (found[i]) code = instance_of_token(store, arena, turns[i].lock_token, &turns[i].instance, err);
        if (code == DUR_OK && dur__pg_turn_found(NULL, &turns[i])) valid[valid_count++] = &turns[i];
    }
    if (code == DUR_OK && valid_count > 0) code = dur__pg_borrow(store, &conn, err);
    if (code == DUR_OK && valid_count > 0) {
        dur__pg_turns_commit(store, conn, NULL, NULL, valid, valid_count);
        dur__pg_return(conn);
        dur__pg_wake_local(store, NULL);
    }
    for (size_t i = 0; i < count; i++)
        if (found[i]) turns[i].instance = NULL; /* as it was given */
    dur_arena_free(arena);
    return code;
}

int dur__pg_commit_turns(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    return commit_some(dur__pg_of(self), turns, count, err);
}

int dur__pg_ack_orchestration_item(dur_provider *self, dur_turn_commit *turn, dur_error *err) {
    int code = commit_some(dur__pg_of(self), turn, 1, err);
    if (code == DUR_OK) {
        if (err != NULL) *err = turn->error;
        return (int)turn->error.code;
    }
    turn->fault = DUR_TURN_STORE;
    if (err != NULL) turn->error = *err;
    return code;
}
