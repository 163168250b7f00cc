/*
 * pg_turn.c: the commit of turns: many in one pipeline of array statements.
 *
 * The comparisons (token, position, worker rows) are part of the statements: a statement that does not touch as many
 * rows as it must divides by zero, which undoes the whole batch.  That is rare; then the halves are tried, and a single
 * turn that is refused is asked why.  So the usual batch is one round trip without any answer in between.
 */
#include "provider/postgres/pg_turn.h"
#include "base/assert.h"
#include "provider/dead_reason.h"
#include "provider/postgres/pg_works.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    WRITES = 1,
    HAS_EVENTS = 2,
    GIVES_ROW = 4,
    SETS_STATUS = 8,
    KEEPS = 16,
    GIVES_BACK = 32,
    TAKES_OVER = 64,
    IF_UNLEASED = 512,
    ENDS = 1024, /* for good */
    SUSPENDS = 128,
    FAILED = 256
};

/* ---- what a turn means ------------------------------------------------------------------------------------------- */

bool dur__pg_turn_writes(const dur_turn_commit *turn) {
    return dur__turn_facts_of(turn).writes;
}

bool dur__pg_turn_keeps(const dur_turn_commit *turn) {
    return dur__turn_facts_of(turn).keeps;
}

bool dur__pg_turn_gives_row(const dur_turn_commit *turn) {
    return dur__turn_facts_of(turn).names;
}

int64_t dur__pg_turn_flags(const dur_turn_commit *turn) {
    dur__turn_facts facts = dur__turn_facts_of(turn);
    return (facts.writes ? WRITES : 0) | (turn->event_count > 0 ? HAS_EVENTS : 0) | (facts.names ? GIVES_ROW : 0) |
           (dur__turn_custom_status(turn) != NULL ? SETS_STATUS : 0) | (facts.keeps ? KEEPS : 0) |
           (facts.uncounts ? GIVES_BACK : 0) | (facts.take_over ? TAKES_OVER : 0) |
           (turn->if_unleased ? IF_UNLEASED : 0) | (facts.ends_instance ? ENDS : 0) |
           (facts.suspends || facts.resumes ? SUSPENDS : 0) | (!facts.uncounts && !facts.clears_counts ? FAILED : 0);
}

bool dur__pg_turn_found(const dur__pg_lane *lane, dur_turn_commit *turn) {
    DUR_ASSERT(dur__turn_invalid(turn) == NULL && turn->fault == DUR_TURN_FINE);
    if (turn->instance != NULL) return !turn->writes_start || dur__pg_start_valid(lane, turn);
    turn->fault = dur__turn_fault_of(DUR__TURN_TOKEN);
    dur_error_set(&turn->error, dur__turn_code_of(DUR__TURN_TOKEN), false, "postgres.commit", "Invalid lock token");
    return false;
}

/* ---- the instances' rows ----------------------------------------------------------------------------------------- */

static const char lost_sql[] = DUR__PG_TELL_LOST;

static const char rows_sql[] =
    "WITH n AS MATERIALIZED (SELECT #now AS now), u AS (UPDATE @instances i SET"
    " has_row = i.has_row OR t.flags & 4 <> 0,"
    " has_history = i.has_history OR t.flags & 2 <> 0,"
    " known = i.known OR t.flags & 6 <> 0,"
    " name = CASE WHEN t.flags & 4 <> 0 THEN t.name ELSE i.name END,"
    " version = CASE WHEN t.flags & 4 <> 0 THEN t.version ELSE i.version END,"
    " parent = CASE WHEN t.flags & 4 <> 0 AND NOT i.has_row THEN t.parent ELSE i.parent END,"
    " birth = CASE WHEN t.flags & 4 <> 0 AND NOT i.has_row THEN nullif(t.birth, 0) ELSE i.birth END,"
    " created_at = CASE WHEN t.flags & 4 <> 0 AND NOT i.has_row THEN n.now ELSE i.created_at END,"
    " updated_at = n.now,"
    " current_execution = CASE WHEN t.flags & 1 <> 0 THEN greatest(i.current_execution, t.execution)"
    " ELSE i.current_execution END,"
    " last_event = CASE WHEN t.flags & 1 = 0 OR t.execution < i.current_execution THEN i.last_event"
    " WHEN t.execution > i.current_execution THEN coalesce(t.last, 0) ELSE greatest(i.last_event, coalesce(t.last, 0))"
    " END,"
    " pin = CASE WHEN t.flags & 1 = 0 OR t.execution < i.current_execution THEN i.pin"
    " WHEN t.execution > i.current_execution THEN t.pin::bigint[] ELSE coalesce(t.pin::bigint[], i.pin) END,"
    " next = CASE WHEN t.flags & 1024 <> 0 THEN '' ELSE i.next END,"
    " next_execution = CASE WHEN t.flags & 1024 <> 0 THEN " DUR__PG_NEVER_BEGINS " ELSE i.next_execution END,"
    " custom_status = CASE WHEN t.flags & 8 <> 0 THEN t.custom ELSE i.custom_status END,"
    " custom_status_version = i.custom_status_version + CASE WHEN t.flags & 8 <> 0 THEN 1 ELSE 0 END,"
    " acquisitions = CASE WHEN t.flags & 256 <> 0 THEN i.acquisitions WHEN t.flags & 32 <> 0 THEN"
    " greatest(i.acquisitions - 1, 0) ELSE 0 END,"
    " suspended = CASE WHEN t.flags & 128 <> 0 THEN t.suspended WHEN t.flags & 1024 = 0 THEN i.suspended END,"
    " token = CASE WHEN t.flags & 16 <> 0 THEN i.token END,"
    " owner = CASE WHEN t.flags & 16 = 0 THEN NULL WHEN i.owner = t.owner OR t.owner IS NULL THEN i.owner"
    " ELSE coalesce((SELECT o.owner FROM @owners o WHERE o.owner = t.owner), i.owner) END,"
    " expires_at = CASE WHEN t.flags & 16 <> 0 THEN i.expires_at END,"
    " holder = CASE WHEN t.flags & 16 <> 0 THEN coalesce($16::bigint, i.holder) END,"
    " ready_at = CASE WHEN t.flags & 16 <> 0 AND $16::bigint IS NOT NULL AND i.holder IS DISTINCT FROM $16::bigint"
    " THEN 0 ELSE i.ready_at END,"
    " ready_due = CASE WHEN t.flags & 16 <> 0 AND $16::bigint IS NOT NULL AND i.holder IS DISTINCT FROM $16::bigint"
    " THEN 0 ELSE i.ready_due END"
    " FROM n, unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[],"
    " $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::bigint[]) AS t(id, token,"
    " execution, expected, last, flags, name, version, parent, pin, custom, owner, suspended, birth)"
    " WHERE i.instance_id = t.id AND CASE WHEN t.flags & 64 <> 0 THEN i.known AND (t.flags & 512 = 0 OR"
    " i.token IS NULL OR (i.owner IS NULL AND i.expires_at <= n.now)) ELSE i.token = t.token AND"
    " (i.owner IS NOT NULL OR i.expires_at > n.now) END"
    " AND (t.expected IS NULL OR t.expected = CASE WHEN t.execution = i.current_execution THEN i.last_event"
    " WHEN t.execution > i.current_execution THEN 0 ELSE coalesce(" DUR__PG_LAST(
        "h.instance_id = i.instance_id AND h.execution_id = t.execution") ", 0) END) RETURNING 1)"
                                                                          " SELECT 1 / (CASE WHEN count(*) = "
                                                                          "$17::bigint THEN 1 ELSE 0 END) FROM u";

void dur__pg_add_pin(dur__pg_array *array, const dur_execution_metadata *metadata) {
    char text[64];
    if (!metadata->has_pinned_version) {
        dur__pg_add_null(array);
        return;
    }
    dur_semver pin = metadata->pinned_version;
    snprintf(text, sizeof(text), "{%u,%u,%u}", pin.major, pin.minor, pin.patch);
    dur__pg_add_text(array, text);
}

uint64_t dur__pg_turn_last_event(const dur_turn_commit *turn) {
    uint64_t last = 0;
    for (size_t i = 0; i < turn->event_count; i++)
        if (turn->events[i].event_id > last) last = turn->events[i].event_id;
    return last;
}

static void send_rows(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                      size_t count) {
    dur__pg_args args;
    /* clang-format off */
    enum {
        ID, TOKEN, EXECUTION, EXPECTED, LAST, FLAGS, NAME, VERSION, PARENT, PIN, CUSTOM, OWNER, SUSPENDED, BIRTH, COLUMNS
    };
    /* clang-format on */
    dur__pg_array columns[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = (i >= EXECUTION && i <= FLAGS) || i == BIRTH ? dur__pg_array_i64() : dur__pg_array_text();
    for (size_t i = 0; i < count; i++) {
        const dur_turn_commit *turn = turns[i];
        const dur_event_row *custom = dur__turn_custom_status(turn);
        dur__pg_add_text(&columns[ID], turn->instance);
        dur__pg_add_text(&columns[TOKEN], turn->lock_token);
        dur__pg_add_i64(&columns[EXECUTION], (int64_t)turn->execution_id);
        if (turn->expected_last == DUR_NOT_COMPARED)
            dur__pg_add_null(&columns[EXPECTED]);
        else
            dur__pg_add_i64(&columns[EXPECTED], (int64_t)turn->expected_last);
        dur__pg_add_i64(&columns[LAST], (int64_t)dur__pg_turn_last_event(turn));
        dur__pg_add_i64(&columns[FLAGS], dur__pg_turn_flags(turn));
        dur__pg_add_text(&columns[NAME], turn->metadata.orchestration_name);
        dur__pg_add_text(&columns[VERSION], turn->metadata.orchestration_version);
        dur__pg_add_text(&columns[PARENT], turn->metadata.parent_instance_id);
        dur__pg_add_pin(&columns[PIN], &turn->metadata);
        dur__pg_add_text(&columns[CUSTOM], custom != NULL ? custom->value : NULL);
        dur__pg_add_text(&columns[OWNER], turn->owner);
        dur__pg_add_text(&columns[SUSPENDED], turn->suspended);
        dur__pg_add_i64(&columns[BIRTH], (int64_t)turn->metadata.birth);
    }
    dur__pg_args_begin(store, &args);
    dur__pg_array_args(&args, columns, COLUMNS);
    if (lane != NULL)
        dur__pg_i64(&args, lane->holder);
    else
        dur__pg_null(&args);
    dur__pg_i64(&args, (int64_t)count);
    dur__pg_batch_add(batch, rows_sql, &args);
}

/* Statements that take nothing but a list of instances. */

void dur__pg_send_ids(dur__pg *store, dur__pg_batch *batch, const char *sql, dur_turn_commit **turns, size_t count,
                      dur__pg_turn_test *test) {
    dur__pg_args args;
    dur__pg_array ids = dur__pg_array_text();
    for (size_t i = 0; i < count; i++)
        if (test(turns[i])) dur__pg_add_text(&ids, turns[i]->instance);
    if (ids.count == 0) {
        dur__buf_free(&ids.data);
        return;
    }
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &ids);
    dur__pg_batch_add(batch, sql, &args);
}

static bool takes_over(const dur_turn_commit *turn) {
    return turn->take_over;
}
static bool never_was(const dur_turn_commit *turn) {
    return dur__turn_facts_of(turn).never_was;
}
static bool removes_work(const dur_turn_commit *turn) {
    return dur__turn_facts_of(turn).removes_work;
}
static bool takes_given(const dur_turn_commit *turn) {
    return dur__turn_facts_of(turn).takes_given;
}
bool dur__pg_turn_ends(const dur_turn_commit *turn) {
    return dur__turn_facts_of(turn).ends_execution;
}

/* ---- messages and worker rows that it takes ---------------------------------------------------------------------- */

/* Not calls of others, nor what clients have put into queues. */
static const char remove_work_sql[] =
    "WITH d AS (" DUR__PG_DELETE_WORKS
    "), c AS (UPDATE @crashed SET for_good = true WHERE instance_id = ANY ($2::text[])) DELETE FROM @queue WHERE "
    "instance_id = ANY ($2::text[]) AND kind <> 0 AND queue IS NULL";
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
    " q.instance_id = x.instance_id AND q.queue IS NOT NULL AND NOT q.given)"
/* Not the timers that a lane keeps and has not handed out. */
static const char take_given_sql[] =
    "WITH d AS (DELETE FROM @queue WHERE instance_id = ANY ($2::text[]) AND given AND NOT (kind = " DUR__PG_KIND_TIMER
    " AND due_ms > #now) RETURNING instance_id, queue)" LOOK_BEHIND_D;
static const char take_listed_sql[] =
    "WITH d AS (DELETE FROM @queue q USING unnest($2::text[], $3::bigint[]) AS c(instance, id)"
    " WHERE q.instance_id = c.instance AND q.id = c.id RETURNING q.instance_id, q.queue)" LOOK_BEHIND_D;

static const char take_alone_sql[] = "DELETE FROM @queue q USING unnest($2::text[], $3::bigint[]) AS c(instance, id)"
                                     " WHERE q.instance_id = c.instance AND q.id = c.id";

void dur__pg_send_consumed(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count, bool alone) {
    dur__pg_args args;
    dur__pg_array instance = dur__pg_array_text(), id = dur__pg_array_i64();
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; turns[i]->consume_listed && !turns[i]->writes_start && k < turns[i]->consumed_count; k++) {
            dur__pg_add_text(&instance, turns[i]->instance);
            dur__pg_add_i64(&id, (int64_t)turns[i]->consumed[k]);
        }
    }
    dur__pg_args_begin(store, &args);
    bool any = id.count > 0;
    dur__pg_array_arg(&args, &instance);
    dur__pg_array_arg(&args, &id);
    if (any)
        dur__pg_batch_add(batch, alone ? take_alone_sql : take_listed_sql, &args);
    else
        dur__pg_args_free(&args);
}

/* clang-format off */
static const char take_work_sql[] =
    "WITH d AS (DELETE FROM @worker w USING (SELECT #now AS now) n,"
    " unnest($2::text[], $3::bigint[], $4::text[]) AS c(instance, id, token) WHERE w.token = c.token AND"
    " w.instance_id = c.instance AND (c.id = 0 OR w.id = c.id) AND (w.owner IS NOT NULL OR w.until_ms > n.now)"
    " RETURNING w.session_id), s AS (" DUR__PG_TOUCH_SESSIONS("#now", "d") ")"
    " SELECT 1 / (CASE WHEN count(*) = $5::bigint THEN 1 ELSE 0 END) FROM d";
/* clang-format on */

/* The same by the primary key, where every row's id is known. */
/* clang-format off */
static const char take_rows_sql[] =
    "WITH d AS (DELETE FROM @worker w USING (SELECT #now AS now) n,"
    " unnest($2::text[], $3::bigint[], $4::text[]) AS c(instance, id, token) WHERE w.instance_id = c.instance AND"
    " w.id = c.id AND w.token = c.token AND (w.owner IS NOT NULL OR w.until_ms > n.now)"
    " RETURNING w.session_id), s AS (" DUR__PG_TOUCH_SESSIONS("#now", "d") ")"
    " SELECT 1 / (CASE WHEN count(*) = $5::bigint THEN 1 ELSE 0 END) FROM d";
/* clang-format on */

/*
 * The usual work: locked for an owner, of no session.  That of a session is refused; from then on, or from the first
 * one that a turn makes, the lane takes the statement above.  It is found by the token alone, which nobody else has:
 * that is the shortest way.  That the rows are those that were meant, their numbers say.
 */
static const char take_plain_sql[] =
    "WITH d AS (DELETE FROM @worker w WHERE w.token = ANY ($2::text[]) AND w.owner IS NOT NULL AND w.session_id IS NULL"
    " RETURNING w.id) SELECT 1 / (CASE WHEN count(*) = $3::bigint AND sum(id) = $4::bigint THEN 1 ELSE 0 END) FROM d";

static const char *claim_instance(const dur_turn_commit *turn, const dur_activity_ref *ref) {
    return ref->instance != NULL ? ref->instance : turn->instance;
}

void dur__pg_send_work_taken(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                             size_t count) {
    dur__pg_args args;
    dur__pg_array instance = dur__pg_array_text(), id = dur__pg_array_i64(), token = dur__pg_array_text();
    uint64_t sum = 0;
    bool by_id = true, plain = lane != NULL && !lane->sessions;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < turns[i]->worker_consumed_count; k++) {
            const dur_worker_claim *claim = &turns[i]->worker_consumed[k];
            if (lane != NULL && dur__pg_claim_is_step(lane, turns[i], claim)) continue;
            by_id = by_id && claim->ref.row_id != 0;
            sum += claim->ref.row_id;
            dur__pg_add_text(&instance, turns[i]->instance);
            dur__pg_add_i64(&id, (int64_t)claim->ref.row_id);
            dur__pg_add_text(&token, claim->lock_token);
        }
    }
    int64_t rows = id.count;
    plain = plain && by_id;
    dur__pg_args_begin(store, &args);
    if (plain) {
        dur__buf_free(&instance.data);
        dur__buf_free(&id.data);
        dur__pg_array_arg(&args, &token);
        dur__pg_i64(&args, rows);
        dur__pg_i64(&args, (int64_t)sum);
    } else {
        dur__pg_array_arg(&args, &instance);
        dur__pg_array_arg(&args, &id);
        dur__pg_array_arg(&args, &token);
        dur__pg_i64(&args, rows);
    }
    if (rows > 0)
        dur__pg_batch_add(batch, plain ? take_plain_sql : by_id ? take_rows_sql : take_work_sql, &args);
    else
        dur__pg_args_free(&args);
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
    " activity, id) WHERE q.instance_id = c.instance AND q.kind = 5 AND q.activity_id = c.activity AND"
    " q.execution_id = c.execution";

static void send_refs(dur__pg *store, dur__pg_batch *batch, const char *sql, dur_turn_commit **turns, size_t count,
                      bool timers) {
    dur__pg_args args;
    dur__pg_array instance = dur__pg_array_text(), execution = dur__pg_array_i64(), activity = dur__pg_array_i64();
    dur__pg_array id = dur__pg_array_i64();
    for (size_t i = 0; i < count; i++) {
        const dur_activity_ref *refs = timers ? turns[i]->timers_dropped : turns[i]->cancelled;
        size_t refs_count = timers ? turns[i]->timers_dropped_count : turns[i]->cancelled_count;
        for (size_t k = 0; k < refs_count; k++) {
            dur__pg_add_text(&instance, timers ? turns[i]->instance : claim_instance(turns[i], &refs[k]));
            dur__pg_add_i64(&execution, (int64_t)refs[k].execution_id);
            dur__pg_add_i64(&activity, (int64_t)refs[k].activity_id);
            dur__pg_add_i64(&id, (int64_t)refs[k].row_id);
        }
    }
    bool any = id.count > 0;
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &instance);
    dur__pg_array_arg(&args, &execution);
    dur__pg_array_arg(&args, &activity);
    dur__pg_array_arg(&args, &id);
    if (any)
        dur__pg_batch_add(batch, sql, &args);
    else
        dur__pg_args_free(&args);
}

void dur__pg_send_cancelled(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    send_refs(store, batch, cancel_sql, turns, count, false);
}
void dur__pg_send_timers_dropped(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    send_refs(store, batch, drop_timers_sql, turns, count, true);
}

/* ---- a batch of turns -------------------------------------------------------------------------------------------- */

/* A timer, say: a message to the instance that goes on under the same lease. */
static bool own_business(const dur_turn_commit *turn, const dur_message *item) {
    return dur__pg_turn_keeps(turn) && strcmp(item->instance, turn->instance) == 0;
}

/* Do others have something to do afterwards? */
static bool concerns_lanes(const dur_turn_commit *turn) {
    if (turn->take_over || turn->set_suspended) return true;
    for (size_t i = 0; i < turn->orchestrator_item_count; i++)
        if (!own_business(turn, &turn->orchestrator_items[i])) return true;
    if (!dur__pg_turn_keeps(turn) && !dur__pg_turn_ends(turn)) return true;
    for (size_t i = 0; i < turn->worker_item_count; i++)
        if (turn->worker_items[i].lock_token == NULL || turn->worker_items[i].message.session_id != NULL) return true;
    return false;
}

bool dur__pg_turn_seen(const dur_turn_commit *turn) {
    if (turn->metadata.status > DUR_STATUS_RUNNING || turn->take_over || turn->set_suspended) return true;
    for (size_t i = 0; i < turn->event_count; i++) {
        dur_event_kind kind = turn->events[i].kind;
        if (kind == DUR_EVENT_CUSTOM_STATUS_UPDATED || kind == DUR_EVENT_KEY_VALUE_SET ||
            kind == DUR_EVENT_KEY_VALUE_CLEARED || kind == DUR_EVENT_KEY_VALUES_CLEARED)
            return true;
    }
    return false;
}

/* Their rows are locked: whoever deletes one waits, and then finds the child. */
/* clang-format off */
static const char parents_sql[] = "SELECT 1 / (CASE WHEN bool_and(EXISTS (SELECT 1 FROM @instances i WHERE"
                                  " i.instance_id = p.id AND " DUR__PG_IS_MEANT("i", "p.birth") ")) THEN 1 ELSE 0 END)"
                                  " FROM unnest($2::text[], $3::bigint[]) AS p(id, birth)";
/* clang-format on */

/* Whoever takes an instance over has looked at it before: one row for each, and for each message that it takes. */
static const char meant_sql[] =
    "SELECT 1 / (CASE WHEN count(*) = 0 THEN 1 ELSE 0 END) FROM unnest($2::text[], $3::bigint[], $4::bigint[],"
    " $5::bigint[], $6::text[]) AS m(id, birth, message, uncancelled, suspended) JOIN @instances i ON i.instance_id = "
    "m.id WHERE i.birth <>"
    " nullif(m.birth, 0) OR i.suspended IS DISTINCT FROM coalesce(m.suspended, i.suspended) OR (m.message <> 0 AND NOT "
    "EXISTS (SELECT 1 FROM @queue q WHERE q.instance_id = m.id AND q.id "
    "="
    " m.message)) OR (m.uncancelled <> 0 AND EXISTS (SELECT 1 FROM @queue q WHERE q.instance_id = m.id AND q.kind ="
    " " DUR__PG_CANCEL "))";

static void send_meant(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    enum { ID, BIRTH, MESSAGE, UNCANCELLED, SUSPENDED, COLUMNS };
    dur__pg_args args;
    dur__pg_array columns[COLUMNS] = { dur__pg_array_text(), dur__pg_array_i64(), dur__pg_array_i64(),
                                       dur__pg_array_i64(), dur__pg_array_text() };
    for (size_t i = 0; i < count; i++) {
        const dur_turn_commit *turn = turns[i];
        if (!turn->take_over) continue;
        size_t messages = turn->consume_listed ? turn->consumed_count : 0;
        for (size_t k = 0; k == 0 || k < messages; k++) {
            dur__pg_add_text(&columns[ID], turn->instance);
            dur__pg_add_i64(&columns[BIRTH], (int64_t)turn->metadata.birth);
            dur__pg_add_i64(&columns[MESSAGE], messages > 0 ? (int64_t)turn->consumed[k] : 0);
            dur__pg_add_i64(&columns[UNCANCELLED], turn->if_uncancelled);
            dur__pg_add_text(&columns[SUSPENDED], turn->if_suspended);
        }
    }
    bool any = columns[ID].count > 0;
    dur__pg_args_begin(store, &args);
    dur__pg_array_args(&args, columns, COLUMNS);
    if (any)
        dur__pg_batch_add(batch, meant_sql, &args);
    else
        dur__pg_args_free(&args);
}

static bool needs_parent(const dur_turn_commit *turn) {
    return dur__turn_facts_of(turn).compares_parent;
}

static void send_parents(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    dur__pg_args args;
    dur__pg_array parents = dur__pg_array_text(), births = dur__pg_array_i64();
    for (size_t i = 0; i < count; i++) {
        if (!needs_parent(turns[i])) continue;
        dur__pg_add_text(&parents, turns[i]->metadata.parent_instance_id);
        dur__pg_add_i64(&births, (int64_t)turns[i]->metadata.parent_birth);
    }
    bool any = parents.count > 0;
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &parents);
    dur__pg_array_arg(&args, &births);
    if (any)
        dur__pg_batch_add(batch, parents_sql, &args);
    else
        dur__pg_args_free(&args);
}

/* Its start may be gone, and nothing has made it an instance: who holds it holds nothing. */
static const char known_sql[] = "UPDATE @instances i SET known = false WHERE i.instance_id = ANY ($2::text[]) AND"
                                " i.known AND NOT (i.has_row OR i.has_history) AND NOT EXISTS (SELECT 1 FROM @queue s"
                                " WHERE s.instance_id = i.instance_id AND s.kind IN " DUR__PG_STARTS ")";

static bool keeps_perhaps_nothing(const dur_turn_commit *turn) {
    dur__turn_facts facts = dur__turn_facts_of(turn);
    return facts.keeps && turn->event_count == 0 && !facts.names && (facts.takes_given || turn->consumed_count > 0);
}

/* What was claimed never came into being. */
static const char sweep_sql[] = DUR__PG_SWEEP;

static bool may_leave_nothing(const dur_turn_commit *turn) {
    return !dur__pg_turn_keeps(turn) && !dur__pg_turn_writes(turn);
}

static void send_all(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                     size_t count, dur__pg_outbox *box, dur__pg_turn_plan *plan) {
    send_parents(store, batch, turns, count);
    send_meant(store, batch, turns, count);
    dur__pg_send_ids(store, batch, lost_sql, turns, count, takes_over);
    dur__pg_send_work_taken(store, batch, NULL, turns, count); /* compared before all other rows are removed */
    dur__pg_send_ids(store, batch, remove_work_sql, turns, count, removes_work);
    dur__pg_send_ids(store, batch, take_given_sql, turns, count, takes_given);
    dur__pg_send_consumed(store, batch, turns, count, false);
    dur__pg_send_ids(store, batch, never_was_sql, turns, count, never_was);
    send_rows(store, batch, lane, turns, count);
    dur__pg_send_ids(store, batch, known_sql, turns, count, keeps_perhaps_nothing);
    dur__pg_send_history(store, batch, turns, count);
    dur__pg_send_executions(store, batch, turns, count);
    dur__pg_send_kv(store, batch, turns, count, true);
    (void)dur__pg_send_sessions(store, batch, turns, count);
    plan->work_at = dur__pg_send_work(store, batch, NULL, turns, count);
    dur__pg_send_cancelled(store, batch, turns, count);
    dur__pg_outbox_send(box, batch);
    dur__pg_send_timers_dropped(store, batch, turns, count);
    dur__pg_send_release(store, batch, turns, count);
    dur__pg_send_ids(store, batch, sweep_sql, turns, count, may_leave_nothing);
}

static void remember(dur__pg_lane *lane, dur_turn_commit **turns, size_t count, bool usual) {
    for (size_t i = 0; i < count; i++) {
        if (dur__pg_turn_leaves_more(turns[i], usual) || !dur__pg_turn_keeps(turns[i]))
            dur__pg_fresh_forget(lane, turns[i]->instance);
        for (size_t k = 0; !usual && k < turns[i]->orchestrator_item_count; k++)
            dur__pg_fresh_forget(lane, turns[i]->orchestrator_items[k].instance);
    }
}

/* Sessions of the work that it finishes, before anything else is waited for (pg_work.c).  A lane whose work had none so
   far finishes it by a statement that knows of none. */
static void lock_sessions(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                          size_t count, const dur_work_ack *acks, size_t ack_count, bool usual) {
    dur__pg_array tokens = dur__pg_array_text();
    for (size_t i = 0; i < ack_count; i++)
        dur__pg_add_text(&tokens, acks[i].lock_token);
    bool own = usual && lane != NULL;
    for (size_t i = 0; i < count && (!own || lane->sessions); i++)
        for (size_t k = 0; k < turns[i]->worker_consumed_count; k++)
            dur__pg_add_text(&tokens, turns[i]->worker_consumed[k].lock_token);
    if (tokens.count == 0) {
        dur__buf_free(&tokens.data);
        return;
    }
    if (own) dur__pg_fence_add(store, batch, lane->owner); /* who takes it over has that first, too */
    dur__pg_sessions_lock_add(store, batch, &tokens);
}

void dur__pg_turns_add(dur__pg *store, dur__pg_batch *batch, dur__pg_lane *lane, dur_turn_commit **turns, size_t count,
                       dur_work_ack *acks, size_t ack_count, bool usual, dur__pg_turn_plan *plan) {
    dur__pg_outbox box;
    bool owned = lane != NULL && lane->owner != NULL;
    dur__pg_outbox_begin(&box);
    dur__pg_turn_kind kind =
        usual && owned && ack_count == 0 && count > 0 ? dur__pg_kind_of_all(turns, count, lane) : DUR__PG_UNUSUAL;
    *plan = (dur__pg_turn_plan){
        .work_at = -1, .timers_at = -1, .calm_at = -1, .due_ms = DUR_NEVER, .usual = kind != DUR__PG_UNUSUAL
    };
    plan->calm = kind == DUR__PG_IS_CALM;
    for (size_t i = 0; i < ack_count; i++)
        if (acks[i].completion != NULL) dur__pg_outbox_add(&box, acks[i].completion, 0);
    plan->sends = plan->for_lanes = box.count > 0;
    for (size_t i = 0; i < count; i++) {
        plan->for_lanes |= concerns_lanes(turns[i]);
        plan->for_watches |= dur__pg_turn_seen(turns[i]);
        if (plan->usual) continue;
        box.disturbs |= turns[i]->take_over;
        dur__pg_outbox_lock(&box, turns[i]->instance, turns[i]->writes_start ? turns[i]->lock_token : NULL);
        if (needs_parent(turns[i])) dur__pg_outbox_lock(&box, turns[i]->metadata.parent_instance_id, NULL);
        bool undelayed = false; /* then what is overdue behind it is, too: it stays behind */
        for (size_t k = 0; k < turns[i]->orchestrator_item_count; k++) {
            const dur_message *item = &turns[i]->orchestrator_items[k];
            if (undelayed)
                dur__pg_outbox_add_behind(&box, item);
            else
                dur__pg_outbox_add(&box, item, 0);
            undelayed |= item->due_ms == 0;
            if (item->due_ms == 0 || !own_business(turns[i], item))
                plan->sends = true;
            else if (item->due_ms < plan->due_ms)
                plan->due_ms = item->due_ms;
        }
    }
    if (owned && !plan->usual) dur__pg_fence_add(store, batch, lane->owner); /* else its first statement takes it */
    lock_sessions(store, batch, lane, turns, count, acks, ack_count, plan->usual);
    if (plan->usual) {
        dur__pg_send_usual(store, batch, lane, turns, count, kind, plan);
        plan->calm_at = dur__pg_calm_learn(lane, batch);
    } else
        dur__pg_outbox_send_locks(&box, batch, lane);
    if (!plan->usual) dur__pg_steps_move_of(store, batch, lane, turns, count, acks, ack_count);
    if (ack_count > 0) dur__pg_acks_add(store, batch, acks, ack_count);
    if (!plan->usual && count > 0)
        send_all(store, batch, lane, turns, count, &box, plan);
    else
        dur__pg_outbox_send(&box, batch);
    if (lane != NULL) remember(lane, turns, count, plan->usual);
    dur__pg_outbox_end(&box);
}

void dur__pg_turns_read(const dur__pg_batch *batch, const dur__pg_turn_plan *plan, dur__pg_lane *lane,
                        dur_turn_commit **turns, size_t count) {
    int row = 0, timer = 0;
    if (lane != NULL) dur__pg_calm_read(lane, batch, plan->calm_at);
    if (plan->calm) dur__pg_calm_held(lane);
    const PGresult *timers = plan->timers_at >= 0 ? batch->results[plan->timers_at] : NULL;
    for (size_t i = 0; i < count; i++) {
        turns[i]->fault = DUR_TURN_FINE;
        dur_error_clear(&turns[i]->error);
        turns[i]->lease_kept = dur__pg_turn_keeps(turns[i]);
        if (plan->usual && dur__pg_step_made(lane, turns[i])) {
            turns[i]->worker_items[0].row_id = (uint64_t)dur__pg_step_id(&turns[i]->worker_items[0].message);
            turns[i]->worker_items[0].locked = true;
        } else {
            for (size_t k = 0; k < turns[i]->worker_item_count; k++, row++) {
                turns[i]->worker_items[k].row_id = dur__pg_get_u64(batch->results[plan->work_at], row, 0);
                turns[i]->worker_items[k].locked = dur__pg_get_bool(batch->results[plan->work_at], row, 1);
            }
        }
        if (lane == NULL) continue;
        dur__pg_step_note(lane, turns[i], plan->usual, plan->calm && !turns[i]->writes_start);
        dur__pg_timers_note(lane, turns[i], timers, &timer);
        dur__pg_lease_commit(lane, turns[i]);
    }
}
