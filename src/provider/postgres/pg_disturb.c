/*
 * pg_disturb.c: how a lane knows that nobody else has written the rows that it holds, without looking at them.
 *
 * Nearly always nobody has.  So a lane has one row in dur_lanes, which counts how often somebody did.  Who ends a
 * lease, or writes what a lane goes by (its position, its step), locks the instance's row, then counts here, and reads
 * history in a statement behind that.  A calm round (pg_calm.c) locks this one row and compares the count.  So either
 * it comes first, and the other one waits for it and reads what it wrote; or it finds that it was disturbed, or
 * somebody about to, and is refused.  It never waits: who stands still with the row holds up nobody, the rows
 * themselves are compared then.
 *
 * What was compared before the count was learned says nothing: each row is compared again, in the usual way, before
 * history goes ahead of it again.  A count that was read in the same transaction as the rows will do, in whatever
 * order: who has disturbed one of them before has committed before its row was locked, and was seen there.
 *
 * Rows of instances first, then those of lanes: nobody waits for a row of an instance while he holds one of these.
 */
#include "provider/postgres/pg_turn.h"

#define PAUSE_DOUBLED_MAX 6u

static const char disturb_sql[] =
    DUR__PG_DISTURB("instance_id = ANY ($2::text[]) AND ($3::bigint IS NULL OR holder <> $3::bigint)");

/* ON CONFLICT would wait for who has the row: the lane itself enters it, and nobody else. */
static const char enter_sql[] =
    "INSERT INTO @lanes (holder, owner) SELECT $2::bigint, $3::text WHERE EXISTS (SELECT 1 FROM @owners WHERE owner ="
    " $3::text) AND NOT EXISTS (SELECT 1 FROM @lanes WHERE holder = $2::bigint) ON CONFLICT DO NOTHING";
static const char count_sql[] = "SELECT disturbed, " DUR__PG_SERVER_START " FROM @lanes WHERE holder = $2::bigint";

void dur__pg_disturb_add(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *by, const dur__pg_array *instances) {
    dur__pg_args args;
    if (instances->count == 0) return;
    dur__pg_args_begin(store, &args);
    dur__pg_array_copy_arg(&args, instances);
    if (by != NULL)
        dur__pg_i64(&args, by->holder);
    else
        dur__pg_null(&args);
    dur__pg_batch_add(batch, disturb_sql, &args);
}

/* ---- the lane's side --------------------------------------------------------------------------------------------- */

int dur__pg_calm_learn(dur__pg_lane *lane, dur__pg_batch *batch) {
    dur__pg_args args;
    if (lane->calm) return -1;
    if (lane->calm_pause > 0) {
        lane->calm_pause--;
        return -1;
    }
    dur__pg_args_begin(lane->store, &args);
    dur__pg_i64(&args, lane->holder);
    dur__pg_text(&args, lane->owner);
    dur__pg_batch_add(batch, enter_sql, &args);
    dur__pg_args_begin(lane->store, &args);
    dur__pg_i64(&args, lane->holder);
    return dur__pg_batch_add(batch, count_sql, &args);
}

void dur__pg_calm_read(dur__pg_lane *lane, const dur__pg_batch *batch, int at) {
    if (at < 0 || PQntuples(batch->results[at]) == 0) return;
    lane->disturbed = dur__pg_get_i64(batch->results[at], 0, 0);
    lane->server_start = dur__pg_get_i64(batch->results[at], 0, 1);
    lane->calm = true;
    lane->calms++;
}

void dur__pg_calm_lost(dur__pg_lane *lane) {
    lane->calm = false;
    lane->calm_pause = (1u << lane->disturbances) - 1;
    if (lane->disturbances < PAUSE_DOUBLED_MAX) lane->disturbances++;
}

int dur__pg_lane_connect(dur__pg_lane *lane, dur_error *err) {
    int code = dur__pg_connect(lane->conn, err);
    if (lane->session != lane->conn->sessions) {
        dur__pg_calm_doubt(lane);
        if (lane->session != 0) atomic_store(&lane->doubts, true);
    }
    lane->session = lane->conn->sessions;
    return code;
}

/* It has lost leases, so the count has changed: to go ahead now would be refused. */
void dur__pg_calm_doubt(dur__pg_lane *lane) {
    lane->calm = false;
}

void dur__pg_calm_held(dur__pg_lane *lane) {
    lane->disturbances = 0;
}
