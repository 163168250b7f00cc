/*
 * pg_refused.c: why a commit was refused: one look at all of its turns, by plain statements.
 *
 * A look that locks would be wrong: a statement that waits for a row sees the row as it is then, and everything else as
 * it was before.
 */
#include "provider/postgres/pg_pieces.h"
#include "provider/postgres/pg_turn.h"
#include "provider/postgres/pg_works.h"

/* ---- the look ---------------------------------------------------------------------------------------------------- */

/* A start that nobody has written yet begins where its lane is there, and no instance. */
/* clang-format off */
static const char turns_sql[] =
    "SELECT CASE WHEN t.token IS NULL THEN coalesce(i.known, false) WHEN t.asks & 4 <> 0 THEN i.instance_id IS NULL AND"
    " EXISTS (SELECT 1 FROM @lanes l WHERE l.holder = $14::bigint) ELSE coalesce(i.token = t.token AND (i.owner IS NOT"
    " NULL OR i.expires_at > #now), false) END, coalesce("
    DUR__PG_LAST("h.instance_id = t.id AND h.execution_id = t.execution") ", 0),"
    " t.parent IS NULL OR EXISTS (SELECT 1 FROM @instances p WHERE p.instance_id = t.parent AND "
    DUR__PG_IS_MEANT("p", "t.parent_birth") "),"
    " coalesce(i.birth = nullif(t.birth, 0), true) AND i.suspended IS NOT DISTINCT FROM coalesce(t.suspended,"
    " i.suspended) AND NOT EXISTS (SELECT 1 FROM unnest($10::bigint[], $11::bigint[]) AS c(turn, id) WHERE c.turn ="
    " t.at AND NOT EXISTS (SELECT 1 FROM @queue q WHERE q.instance_id = t.id AND q.id = c.id)),"
    " t.asks & 1 <> 0 AND i.token IS NOT NULL AND (i.owner IS NOT NULL OR i.expires_at > #now),"
    " t.asks & 2 <> 0 AND EXISTS (SELECT 1 FROM @queue q WHERE q.instance_id = t.id AND q.kind = " DUR__PG_CANCEL "),"
    " EXISTS (SELECT 1 FROM unnest($12::bigint[], $13::bigint[]) AS e(turn, id) JOIN @history h ON h.instance_id = t.id"
    " AND h.execution_id = t.execution AND h.first_id <= e.id AND h.first_id > e.id - h.count WHERE e.turn = t.at),"
    " " DUR__PG_SERVER_START
    " FROM unnest($2::text[], $3::text[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::text[],"
    " $9::bigint[]) WITH ORDINALITY AS t(id, token, execution, parent, parent_birth, birth, suspended, asks, at) LEFT"
    " JOIN @instances i ON i.instance_id = t.id ORDER BY t.at";
/* clang-format on */
static const char works_sql[] = "WITH n AS MATERIALIZED (SELECT #now AS now) " DUR__PG_ARE_CLAIMED;

static int send_turns(dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns, size_t count) {
    dur__pg_args args;
    dur__pg_table rows = dur__pg_table_of("ttitiiti");
    dur__pg_table taken = dur__pg_table_of("ii"), events = dur__pg_table_of("ii"); /* of which turn, from 1 on */
    for (size_t i = 0; i < count; i++) {
        const dur_turn_commit *turn = turns[i];
        dur__turn_facts facts = dur__turn_facts_of(turn);
        dur__pg_put_text(&rows, turn->instance);
        dur__pg_put_text(&rows, turn->take_over ? NULL : turn->lock_token);
        dur__pg_put_id(&rows, turn->execution_id);
        dur__pg_put_text(&rows, facts.compares_parent ? turn->metadata.parent_instance_id : NULL);
        dur__pg_put_id(&rows, turn->metadata.parent_birth);
        dur__pg_put_id(&rows, turn->take_over ? turn->metadata.birth : 0);
        dur__pg_put_text(&rows, turn->if_suspended);
        dur__pg_put_i64(&rows, (turn->if_unleased ? 1 : 0) | (turn->if_uncancelled ? 2 : 0) | (facts.born ? 4 : 0));
        for (size_t k = 0; turn->take_over && turn->consume_listed && k < turn->consumed_count; k++) {
            dur__pg_put_id(&taken, i + 1);
            dur__pg_put_id(&taken, turn->consumed[k]);
        }
        for (size_t k = 0; facts.writes && k < turn->event_count; k++) {
            dur__pg_put_id(&events, i + 1);
            dur__pg_put_id(&events, turn->events[k].event_id);
        }
    }
    dur__pg_args_begin(batch->conn->store, &args);
    dur__pg_table_args(&args, &rows);
    dur__pg_table_args(&args, &taken);
    dur__pg_table_args(&args, &events);
    dur__pg_i64(&args, lane != NULL ? lane->holder : 0);
    return dur__pg_batch_add(batch, turns_sql, &args);
}

static int send_works(dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    dur__pg_table rows = dur__pg_table_of(DUR__PG_CLAIM_TYPES);
    for (size_t i = 0; i < count; i++)
        dur__pg_put_taken(&rows, turns[i]);
    return dur__pg_batch_add_rows(batch, works_sql, &rows);
}

/* ---- the answers ------------------------------------------------------------------------------------------------- */

static void read_lost_work(const PGresult *rows, int *row, dur_arena *arena, dur_turn_commit *turn) {
    const dur_worker_claim **lost = NULL;
    turn->lost_work_count = 0;
    for (size_t i = 0; i < turn->worker_consumed_count; i++) {
        if (dur__pg_get_bool(rows, (*row)++, 0)) continue;
        if (lost == NULL && arena != NULL)
            lost = dur_arena_alloc(arena, turn->worker_consumed_count * sizeof(dur_worker_claim *));
        if (lost != NULL) lost[turn->lost_work_count] = &turn->worker_consumed[i];
        turn->lost_work_count++;
    }
    turn->lost_work = lost;
}

static bool repeats_an_event(const dur_turn_commit *turn) {
    for (size_t i = 1; !dur__pg_events_are_new(turn) && i < turn->event_count; i++)
        for (size_t k = 0; k < i; k++)
            if (turn->events[i].event_id == turn->events[k].event_id) return true;
    return false;
}

/* The first check that does not hold; DUR__TURN_CHECKS: all do. */
static dur__turn_check first_refusal(const dur_turn_commit *turn, const PGresult *rows, int row) {
    bool there = dur__pg_get_bool(rows, row, 0);
    const bool fails[DUR__TURN_CHECKS] = {
        [DUR__TURN_TOKEN] = !turn->take_over && !there,
        [DUR__TURN_EXISTS] = turn->take_over && !there,
        [DUR__TURN_UNLEASED] = dur__pg_get_bool(rows, row, 4),
        [DUR__TURN_UNCANCELLED] = dur__pg_get_bool(rows, row, 5),
        [DUR__TURN_LAST_EVENT] =
            turn->expected_last != DUR_NOT_COMPARED && turn->expected_last != dur__pg_get_u64(rows, row, 1),
        [DUR__TURN_MEANT] = turn->take_over && !dur__pg_get_bool(rows, row, 3),
        [DUR__TURN_PARENT] = !dur__pg_get_bool(rows, row, 2),
        [DUR__TURN_WORK] = turn->lost_work_count > 0,
        [DUR__TURN_NEW_EVENTS] = dur__pg_get_bool(rows, row, 6) || repeats_an_event(turn),
    };
    int check = 0;
    while (check < DUR__TURN_CHECKS && !fails[check])
        check++;
    return (dur__turn_check)check;
}

/* False: nothing speaks against it. */
static bool say_why(dur_turn_commit *turn, dur__turn_check check) {
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
    if (check != DUR__TURN_WORK) turn->lost_work = NULL, turn->lost_work_count = 0;
    if (check == DUR__TURN_CHECKS) return false;
    dur_error_set(&turn->error, dur__turn_code_of(check), false, "postgres.commit", "%s", words[check]);
    turn->fault = dur__turn_fault_of(check);
    return true;
}

int dur__pg_leave_refused(dur__pg_conn *conn, dur__pg_lane *lane, dur_arena *arena, dur_turn_commit **turns,
                          size_t *count, dur_error *err) {
    dur__pg_batch batch;
    dur__pg_batch_begin(&batch, conn, false);
    int at = send_turns(&batch, lane, turns, *count), works_at = send_works(&batch, turns, *count);
    int code = dur__pg_batch_run(&batch, "postgres.commit", err);
    size_t all = *count, kept = 0;
    int work = 0;
    for (size_t i = 0; code == DUR_OK && i < all; i++) {
        dur_turn_commit *turn = turns[i];
        read_lost_work(works_at >= 0 ? batch.results[works_at] : NULL, &work, arena, turn);
        if (say_why(turn, first_refusal(turn, batch.results[at], (int)i))) continue;
        turns[i] = turns[kept];
        turns[kept++] = turn;
    }
    if (code == DUR_OK) *count = kept;
    if (code == DUR_OK && lane != NULL && lane->server_start != 0 &&
        lane->server_start != dur__pg_get_i64(batch.results[at], 0, 7))
        atomic_store(&lane->doubts, true); /* before anything else is committed both sides are compared */
    dur__pg_batch_end(&batch);
    return code;
}
