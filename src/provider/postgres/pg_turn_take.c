/*
 * pg_turn_take.c: what a turn takes: messages, worker rows, timers; and who is meant by it.
 *
 * All of it comes behind the locks of the instances' rows.
 */
#include "provider/dead_reason.h"
#include "provider/postgres/pg_pieces.h"
#include "provider/postgres/pg_turn.h"
#include "provider/postgres/pg_works.h"

/* ---- who is meant ------------------------------------------------------------------------------------------------ */

/* Their rows are locked: whoever deletes one waits, and then finds the child. */
/* clang-format off */
static const char parents_sql[] = "SELECT 1 / (CASE WHEN bool_and(EXISTS (SELECT 1 FROM @instances i WHERE"
                                  " i.instance_id = p.id AND " DUR__PG_IS_MEANT("i", "p.birth") ")) THEN 1 ELSE 0 END)"
                                  " FROM unnest($2::text[], $3::bigint[]) AS p(id, birth)";
/* clang-format on */

/* Whoever takes an instance over has looked at it before: one row for each, and for each message that it takes. */
static const char meant_sql[] =
    "SELECT 1 / (CASE WHEN count(*) = 0 THEN 1 ELSE 0 END) FROM unnest($2::text[], $3::bigint[], $4::bigint[],"
    " $5::bigint[], $6::text[]) AS m(id, birth, message, uncancelled, suspended) JOIN @instances i ON i.instance_id ="
    " m.id WHERE i.birth <> nullif(m.birth, 0) OR i.suspended IS DISTINCT FROM coalesce(m.suspended, i.suspended) OR"
    " (m.message <> 0 AND NOT EXISTS (SELECT 1 FROM @queue q WHERE q.instance_id = m.id AND q.id = m.message)) OR"
    " (m.uncancelled <> 0 AND EXISTS (SELECT 1 FROM @queue q WHERE q.instance_id = m.id AND q.kind = " DUR__PG_CANCEL
    "))";

static void send_taken_over(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_table rows = dur__pg_table_of("tiiit");
    for (size_t i = 0; i < parts->count; i++) {
        const dur_turn_commit *turn = parts->all[i].turn;
        if (!turn->take_over) continue;
        size_t messages = turn->consume_listed ? turn->consumed_count : 0;
        for (size_t k = 0; k == 0 || k < messages; k++) {
            dur__pg_put_text(&rows, turn->instance);
            dur__pg_put_id(&rows, turn->metadata.birth);
            dur__pg_put_id(&rows, messages > 0 ? turn->consumed[k] : 0);
            dur__pg_put_i64(&rows, turn->if_uncancelled);
            dur__pg_put_text(&rows, turn->if_suspended);
        }
    }
    dur__pg_batch_add_rows(batch, meant_sql, &rows);
}

static void send_parents(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_table rows = dur__pg_table_of("ti");
    for (size_t i = 0; i < parts->count; i++) {
        if (!parts->all[i].facts.compares_parent) continue;
        dur__pg_put_text(&rows, parts->all[i].turn->metadata.parent_instance_id);
        dur__pg_put_id(&rows, parts->all[i].turn->metadata.parent_birth);
    }
    dur__pg_batch_add_rows(batch, parents_sql, &rows);
}

static bool takes_over(const dur__pg_part *part) {
    return part->facts.take_over;
}

static const char lost_sql[] = DUR__PG_TELL_LOST;

void dur__pg_send_meant(dur__pg_batch *batch, const dur__pg_parts *parts) {
    send_parents(batch, parts);
    send_taken_over(batch, parts);
    dur__pg_send_ids(batch, lost_sql, parts, takes_over); /* while the row says by whom it was held */
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static bool never_was(const dur__pg_part *part) {
    return part->facts.never_was;
}
static bool removes_work(const dur__pg_part *part) {
    return part->facts.removes_work;
}
static bool takes_given(const dur__pg_part *part) {
    return part->facts.takes_given;
}

/* Not calls of others, nor what clients have put into queues. */
static const char remove_work_sql[] =
    "WITH d AS (" DUR__PG_DELETE_WORKS "),"
    " c AS (UPDATE @crashed SET for_good = true WHERE instance_id = ANY ($2::text[]))"
    " DELETE FROM @queue WHERE instance_id = ANY ($2::text[]) AND kind <> 0 AND queue IS NULL";
/* What stands in front of the next start was for an instance that never was. */
static const char never_was_sql[] =
    "WITH d AS (DELETE FROM @queue q USING @instances i WHERE i.instance_id = ANY ($2::text[]) AND NOT (i.has_row OR"
    " i.has_history) AND q.instance_id = i.instance_id AND q.kind <> 0 AND NOT EXISTS (SELECT 1 FROM @queue s WHERE"
    " s.instance_id = q.instance_id AND s.kind = 0 AND (s.order_ms, s.id) < (q.order_ms, q.id)) RETURNING"
    " q.instance_id, q.queue, q.order_ms, q.id, q.json) INSERT INTO @dead_letters (instance_id, reason, at_ms, json)"
    " SELECT d.instance_id, '" DUR__NEVER_STARTED "', #now, d.json FROM d WHERE d.queue IS NOT NULL ORDER BY"
    " d.order_ms, d.id";
/* A place among the first few of a queue is free again: the holder is to look. */
#define LOOK_BEHIND_D                                                                                                  \
    " UPDATE @instances i SET ready_at = 0, ready_due = 0 FROM (SELECT DISTINCT instance_id FROM d WHERE queue IS NOT" \
    " NULL) x WHERE i.instance_id = x.instance_id AND i.holder IS NOT NULL AND EXISTS (SELECT 1 FROM @queue q WHERE"   \
    " q.instance_id = x.instance_id AND q.queue IS NOT NULL AND q.delivered = 0)"
/* Not the timers that a lane keeps and has not handed out. */
static const char take_given_sql[] =
    "WITH d AS (DELETE FROM @queue WHERE instance_id = ANY ($2::text[]) AND delivered <> 0 AND NOT (kind "
    "= " DUR__PG_KIND_TIMER " AND due_ms > #now) RETURNING instance_id, queue)" LOOK_BEHIND_D;
static const char take_listed_sql[] =
    "WITH d AS (DELETE FROM @queue q USING unnest($2::text[], $3::bigint[]) AS c(instance, id) WHERE q.instance_id ="
    " c.instance AND q.id = c.id RETURNING q.instance_id, q.queue)" LOOK_BEHIND_D;

static void send_consumed(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_table rows = dur__pg_table_of("ti");
    for (size_t i = 0; i < parts->count; i++) {
        const dur__pg_part *part = &parts->all[i];
        const dur_turn_commit *turn = part->turn;
        if (!turn->consume_listed || part->facts.born || turn->consumed_count == 0) continue;
        for (size_t k = 0; k < turn->consumed_count; k++) {
            dur__pg_put_text(&rows, turn->instance);
            dur__pg_put_id(&rows, turn->consumed[k]);
        }
    }
    dur__pg_batch_add_rows(batch, take_listed_sql, &rows);
}

void dur__pg_send_taken(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_send_ids(batch, remove_work_sql, parts, removes_work);
    dur__pg_send_ids(batch, take_given_sql, parts, takes_given);
    send_consumed(batch, parts);
    dur__pg_send_ids(batch, never_was_sql, parts, never_was);
}

/* ---- worker rows ------------------------------------------------------------------------------------------------- */

/* clang-format off */
static const char take_work_sql[] =
    "WITH n AS MATERIALIZED (SELECT #now AS now), d AS (DELETE FROM @worker w USING n, " DUR__PG_CLAIMS " WHERE "
    DUR__PG_IS_CLAIMED " RETURNING w.session_id), s AS (" DUR__PG_TOUCH_SESSIONS("(SELECT now FROM n)", "d") ")"
    " SELECT 1 / (CASE WHEN count(*) = $5::bigint THEN 1 ELSE 0 END) FROM d";
/* clang-format on */

void dur__pg_send_work_taken(dur__pg_batch *batch, const dur__pg_parts *parts, const dur_work_ack *acks,
                             size_t ack_count) {
    dur__pg_args args;
    dur__pg_table rows = dur__pg_table_of(DUR__PG_CLAIM_TYPES);
    for (size_t i = 0; i < ack_count; i++)
        dur__pg_put_claim(&rows, acks[i].ref.instance, &acks[i].ref, acks[i].lock_token);
    for (size_t i = 0; i < parts->count; i++)
        dur__pg_put_taken(&rows, parts->all[i].turn);
    int64_t count = rows.rows;
    if (count == 0) return;
    dur__pg_args_begin(batch->conn->store, &args);
    dur__pg_table_args(&args, &rows);
    dur__pg_i64(&args, count);
    dur__pg_batch_add(batch, take_work_sql, &args);
}

/* Lists of activities: cancelled rows, dropped timers. */
static const char cancel_sql[] = /* nobody has seen them end (pg_doubt.c) */
    "WITH d AS (DELETE FROM @worker w USING " DUR__PG_LOCK_WORKS_AS(
        "", ", unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) AS c(instance, execution, activity, id)",
        "w.instance_id = c.instance AND CASE WHEN c.id <> 0 THEN w.id = c.id ELSE w.execution_id = c.execution AND"
        " w.activity_id = c.activity END") " WHERE " DUR__PG_IS_L
                                           " RETURNING w.instance_id, w.id) UPDATE @crashed c SET for_good = true FROM "
                                           "d WHERE c.instance_id = d.instance_id"
                                           " AND c.work_id = d.id";
static const char drop_timers_sql[] =
    "DELETE FROM @queue q USING unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) AS c(instance, execution,"
    " activity, id) WHERE q.instance_id = c.instance AND q.kind = 5 AND q.activity_id = c.activity AND q.execution_id ="
    " c.execution";

static void send_refs(dur__pg_batch *batch, const char *sql, const dur__pg_parts *parts, bool timers) {
    dur__pg_table rows = dur__pg_table_of("tiii");
    for (size_t i = 0; i < parts->count; i++) {
        const dur_turn_commit *turn = parts->all[i].turn;
        const dur_activity_ref *refs = timers ? turn->timers_dropped : turn->cancelled;
        size_t refs_count = timers ? turn->timers_dropped_count : turn->cancelled_count;
        for (size_t k = 0; k < refs_count; k++) {
            dur__pg_put_text(&rows, timers || refs[k].instance == NULL ? turn->instance : refs[k].instance);
            dur__pg_put_id(&rows, refs[k].execution_id);
            dur__pg_put_id(&rows, refs[k].activity_id);
            dur__pg_put_id(&rows, refs[k].row_id);
        }
    }
    dur__pg_batch_add_rows(batch, sql, &rows);
}

void dur__pg_send_cancelled(dur__pg_batch *batch, const dur__pg_parts *parts) {
    send_refs(batch, cancel_sql, parts, false);
}

void dur__pg_send_timers_dropped(dur__pg_batch *batch, const dur__pg_parts *parts) {
    send_refs(batch, drop_timers_sql, parts, true);
}
