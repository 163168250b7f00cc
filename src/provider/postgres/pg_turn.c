/*
 * pg_turn.c: the commit of turns: many in one pipeline of array statements.
 *
 * The comparisons (token, position, worker rows) are part of the statements: a statement that does not touch as many
 * rows as it must divides by zero, which undoes the whole batch.  That is rare; then the halves are tried, and a single
 * turn that is refused is asked why.  So the usual batch is one round trip without any answer in between.
 */
#include "base/assert.h"
#include "provider/postgres/pg_internal.h"

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
    SUSPENDS = 128,
    FAILED = 256
};

/* ---- what a turn means ------------------------------------------------------------------------------------------- */

/* A turn that only gives a lease back, or moves flags, must not bring an execution into being. */
static bool writes_execution(const dur_turn_commit *turn) {
    const dur_execution_metadata *metadata = &turn->metadata;
    if (turn->execution_id == 0 || turn->give_back) return false;
    return turn->event_count > 0 || metadata->status != DUR_STATUS_NONE || metadata->has_pinned_version ||
           metadata->orchestration_name != NULL || turn->expected_last == DUR_NOT_COMPARED;
}

static bool keeps(const dur_turn_commit *turn) {
    return turn->keep_lease && !turn->take_over && turn->suspended == NULL;
}

static bool gives_row(const dur_turn_commit *turn) {
    return turn->metadata.orchestration_name != NULL && turn->metadata.orchestration_version != NULL;
}

static const dur_event_row *status_event(const dur_turn_commit *turn) {
    const dur_event_row *found = NULL;
    for (size_t i = 0; i < turn->event_count; i++)
        if (turn->events[i].kind == DUR_EVENT_CUSTOM_STATUS_UPDATED) found = &turn->events[i];
    return found;
}

/* A release that says nothing: the handler may have crashed, so its counts stay. */
static bool is_failed_release(const dur_turn_commit *turn) {
    return turn->execution_id == 0 && !turn->set_suspended && !turn->take_over && !turn->give_back &&
           turn->seen_id == 0 && turn->seen_now_ms == 0;
}

static int64_t flags_of(const dur_turn_commit *turn) {
    bool writes = writes_execution(turn);
    return (writes ? WRITES : 0) | (writes && turn->event_count > 0 ? HAS_EVENTS : 0) |
           (gives_row(turn) ? GIVES_ROW : 0) | (writes && status_event(turn) != NULL ? SETS_STATUS : 0) |
           (keeps(turn) ? KEEPS : 0) | (turn->give_back ? GIVES_BACK : 0) | (turn->take_over ? TAKES_OVER : 0) |
           (turn->set_suspended ? SUSPENDS : 0) | (is_failed_release(turn) ? FAILED : 0);
}

void dur__pg_turns_reset(dur_turn_commit *turns, size_t count) {
    for (size_t i = 0; i < count; i++) {
        turns[i].fault = DUR_TURN_FINE;
        dur_error_clear(&turns[i].error);
        turns[i].lease_kept = false;
        turns[i].lost_work = NULL;
        turns[i].lost_work_count = 0;
        for (size_t k = 0; k < turns[i].worker_item_count; k++) {
            turns[i].worker_items[k].locked = false;
            turns[i].worker_items[k].row_id = 0;
        }
    }
}

static bool refuse(dur_turn_commit *turn, dur_turn_fault fault) {
    turn->fault = fault;
    return false;
}

bool dur__pg_turn_valid(dur_turn_commit *turn) {
    if (turn->instance == NULL) {
        dur_error_set(&turn->error, DUR_ELEASE, false, "postgres.commit", "Invalid lock token");
        return refuse(turn, DUR_TURN_LEASE_LOST);
    }
    if (turn->event_count > 0 && turn->execution_id == 0) {
        dur_error_set(&turn->error, DUR_EINVAL, false, "postgres.commit", "events need an execution id");
        return refuse(turn, DUR_TURN_STORE);
    }
    for (size_t i = 0; i < turn->event_count; i++) {
        if (turn->events[i].event_id != 0) continue;
        dur_error_set(&turn->error, DUR_EINVAL, false, "postgres.commit", "event %zu has id 0", i);
        return refuse(turn, DUR_TURN_STORE);
    }
    return true;
}

/* ---- the instances' rows ----------------------------------------------------------------------------------------- */

static const char lost_sql[] =
    "INSERT INTO @lost (holder, instance_id, at_ms) SELECT holder, instance_id, #now FROM @instances"
    " WHERE instance_id = ANY ($2::text[]) AND token IS NOT NULL AND holder IS NOT NULL";

static const char rows_sql[] =
    "WITH n AS MATERIALIZED (SELECT #now AS now), u AS (UPDATE @instances i SET"
    " has_row = i.has_row OR t.flags & 4 <> 0,"
    " has_history = i.has_history OR t.flags & 2 <> 0,"
    " known = i.known OR t.flags & 6 <> 0,"
    " name = CASE WHEN t.flags & 4 <> 0 THEN t.name ELSE i.name END,"
    " version = CASE WHEN t.flags & 4 <> 0 THEN t.version ELSE i.version END,"
    " parent = CASE WHEN t.flags & 4 <> 0 AND NOT i.has_row THEN t.parent ELSE i.parent END,"
    " created_at = CASE WHEN t.flags & 4 <> 0 AND NOT i.has_row THEN n.now ELSE i.created_at END,"
    " updated_at = n.now,"
    " current_execution = CASE WHEN t.flags & 1 <> 0 THEN greatest(i.current_execution, t.execution)"
    " ELSE i.current_execution END,"
    " last_event = CASE WHEN t.flags & 1 = 0 OR t.execution < i.current_execution THEN i.last_event"
    " WHEN t.execution > i.current_execution THEN coalesce(t.last, 0) ELSE greatest(i.last_event, coalesce(t.last, 0))"
    " END,"
    " pin = CASE WHEN t.flags & 1 = 0 OR t.execution < i.current_execution THEN i.pin"
    " WHEN t.execution > i.current_execution THEN t.pin::bigint[] ELSE coalesce(t.pin::bigint[], i.pin) END,"
    " custom_status = CASE WHEN t.flags & 8 <> 0 THEN t.custom ELSE i.custom_status END,"
    " custom_status_version = i.custom_status_version + CASE WHEN t.flags & 8 <> 0 THEN 1 ELSE 0 END,"
    " acquisitions = CASE WHEN t.flags & 256 <> 0 THEN i.acquisitions WHEN t.flags & 32 <> 0 THEN"
    " greatest(i.acquisitions - 1, 0) ELSE 0 END,"
    " suspended = CASE WHEN t.flags & 128 <> 0 THEN t.suspended ELSE i.suspended END,"
    " token = CASE WHEN t.flags & 16 <> 0 THEN i.token END,"
    " owner = CASE WHEN t.flags & 16 = 0 THEN NULL WHEN i.owner = t.owner OR t.owner IS NULL THEN i.owner"
    " ELSE coalesce((SELECT o.owner FROM @owners o WHERE o.owner = t.owner), i.owner) END,"
    " expires_at = CASE WHEN t.flags & 16 <> 0 THEN i.expires_at END,"
    " holder = CASE WHEN t.flags & 16 <> 0 THEN coalesce($15::bigint, i.holder) END,"
    " ready_at = CASE WHEN t.flags & 16 <> 0 AND $15::bigint IS NOT NULL AND i.holder IS DISTINCT FROM $15::bigint"
    " THEN 0 ELSE i.ready_at END,"
    " ready_due = CASE WHEN t.flags & 16 <> 0 AND $15::bigint IS NOT NULL AND i.holder IS DISTINCT FROM $15::bigint"
    " THEN 0 ELSE i.ready_due END"
    " FROM n, unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[],"
    " $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[]) AS t(id, token, execution, expected,"
    " last, flags, name, version, parent, pin, custom, owner, suspended)"
    " WHERE i.instance_id = t.id AND CASE WHEN t.flags & 64 <> 0 THEN i.known ELSE i.token = t.token AND"
    " (i.owner IS NOT NULL OR i.expires_at > n.now) END"
    " AND (t.expected IS NULL OR t.expected = CASE WHEN t.execution = i.current_execution THEN i.last_event"
    " WHEN t.execution > i.current_execution THEN 0 ELSE coalesce((SELECT max(h.event_id) FROM @history h WHERE"
    " h.instance_id = i.instance_id AND h.execution_id = t.execution), 0) END) RETURNING 1)"
    " SELECT 1 / (CASE WHEN count(*) = $16::bigint THEN 1 ELSE 0 END), (SELECT now FROM n) FROM u";

static void add_pin(dur__pg_array *array, const dur_execution_metadata *metadata) {
    char text[64];
    if (!metadata->has_pinned_version) {
        dur__pg_add_null(array);
        return;
    }
    dur_semver pin = metadata->pinned_version;
    snprintf(text, sizeof(text), "{%u,%u,%u}", pin.major, pin.minor, pin.patch);
    dur__pg_add_text(array, text);
}

static uint64_t last_event(const dur_turn_commit *turn) {
    uint64_t last = 0;
    for (size_t i = 0; i < turn->event_count; i++)
        if (turn->events[i].event_id > last) last = turn->events[i].event_id;
    return last;
}

static void send_rows(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                      size_t count) {
    dur__pg_args args;
    enum { ID, TOKEN, EXECUTION, EXPECTED, LAST, FLAGS, NAME, VERSION, PARENT, PIN, CUSTOM, OWNER, SUSPENDED, COLUMNS };
    dur__pg_array columns[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = i >= EXECUTION && i <= FLAGS ? dur__pg_array_i64() : dur__pg_array_text();
    for (size_t i = 0; i < count; i++) {
        const dur_turn_commit *turn = turns[i];
        const dur_event_row *custom = status_event(turn);
        dur__pg_add_text(&columns[ID], turn->instance);
        dur__pg_add_text(&columns[TOKEN], turn->lock_token);
        dur__pg_add_i64(&columns[EXECUTION], (int64_t)turn->execution_id);
        if (turn->expected_last == DUR_NOT_COMPARED)
            dur__pg_add_null(&columns[EXPECTED]);
        else
            dur__pg_add_i64(&columns[EXPECTED], (int64_t)turn->expected_last);
        dur__pg_add_i64(&columns[LAST], (int64_t)last_event(turn));
        dur__pg_add_i64(&columns[FLAGS], flags_of(turn));
        dur__pg_add_text(&columns[NAME], turn->metadata.orchestration_name);
        dur__pg_add_text(&columns[VERSION], turn->metadata.orchestration_version);
        dur__pg_add_text(&columns[PARENT], turn->metadata.parent_instance_id);
        add_pin(&columns[PIN], &turn->metadata);
        dur__pg_add_text(&columns[CUSTOM], custom != NULL ? custom->value : NULL);
        dur__pg_add_text(&columns[OWNER], turn->owner);
        dur__pg_add_text(&columns[SUSPENDED], turn->suspended);
    }
    dur__pg_args_begin(store, &args);
    for (int i = 0; i < COLUMNS; i++)
        dur__pg_array_arg(&args, &columns[i]);
    if (lane != NULL)
        dur__pg_i64(&args, lane->holder);
    else
        dur__pg_null(&args);
    dur__pg_i64(&args, (int64_t)count);
    dur__pg_batch_add(batch, rows_sql, &args);
}

/* Statements that take nothing but a list of instances. */
typedef bool turn_test(const dur_turn_commit *turn);

static void send_ids(dur__pg *store, dur__pg_batch *batch, const char *sql, dur_turn_commit **turns, size_t count,
                     turn_test *test) {
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
static bool removes_work(const dur_turn_commit *turn) {
    return turn->remove_work;
}
static bool takes_given(const dur_turn_commit *turn) {
    return !turn->consume_listed && !turn->take_over;
}
static bool keeps_all(const dur_turn_commit *turn) {
    return keeps(turn) && !is_failed_release(turn);
}
/* In a lane the first commit after a claim has consumed what it was claimed for: most others need not ask. */
static bool keeps_some(const dur_turn_commit *turn) {
    return keeps_all(turn) && turn->consumed_count > 0;
}
static bool ends(const dur_turn_commit *turn) {
    return writes_execution(turn) && turn->metadata.status > DUR_STATUS_RUNNING;
}
static bool clears_kv(const dur_turn_commit *turn) {
    for (size_t i = 0; writes_execution(turn) && i < turn->event_count; i++)
        if (turn->events[i].kind == DUR_EVENT_KEY_VALUES_CLEARED) return true;
    return false;
}

/* ---- messages and worker rows that it takes ---------------------------------------------------------------------- */

static const char remove_work_sql[] = "WITH w AS (DELETE FROM @worker WHERE instance_id = ANY ($2::text[]))"
                                      " DELETE FROM @queue WHERE instance_id = ANY ($2::text[])";
static const char take_given_sql[] = "DELETE FROM @queue WHERE instance_id = ANY ($2::text[]) AND given";
/* A place among the first few of a queue is free again: the holder is to look. */
static const char take_listed_sql[] =
    "WITH d AS (DELETE FROM @queue q USING unnest($2::text[], $3::bigint[]) AS c(instance, id)"
    " WHERE q.instance_id = c.instance AND q.id = c.id RETURNING q.instance_id, q.queue)"
    " UPDATE @instances i SET ready_at = 0, ready_due = 0 FROM (SELECT DISTINCT instance_id FROM d WHERE queue IS NOT"
    " NULL) x WHERE i.instance_id = x.instance_id AND i.holder IS NOT NULL AND EXISTS (SELECT 1 FROM @queue q WHERE"
    " q.instance_id = x.instance_id AND q.queue IS NOT NULL AND NOT q.given)";
static const char clear_attempts_sql[] =
    "UPDATE @queue q SET attempts = 0 FROM @instances i WHERE i.instance_id = ANY ($2::text[]) AND i.acquisitions > 0"
    " AND q.instance_id = i.instance_id AND q.given AND q.attempts > 0";

static void send_consumed(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    dur__pg_args args;
    dur__pg_array instance = dur__pg_array_text(), id = dur__pg_array_i64();
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; turns[i]->consume_listed && k < turns[i]->consumed_count; k++) {
            dur__pg_add_text(&instance, turns[i]->instance);
            dur__pg_add_i64(&id, (int64_t)turns[i]->consumed[k]);
        }
    }
    dur__pg_args_begin(store, &args);
    bool any = id.count > 0;
    dur__pg_array_arg(&args, &instance);
    dur__pg_array_arg(&args, &id);
    if (any)
        dur__pg_batch_add(batch, take_listed_sql, &args);
    else
        dur__pg_args_free(&args);
}

static const char take_work_sql[] =
    "WITH n AS MATERIALIZED (SELECT #now AS now), d AS (DELETE FROM @worker w USING n,"
    " unnest($2::text[], $3::bigint[], $4::text[]) AS c(instance, id, token) WHERE w.token = c.token AND"
    " w.instance_id = c.instance AND (c.id = 0 OR w.id = c.id) AND (w.owner IS NOT NULL OR w.until_ms > n.now)"
    " RETURNING w.session_id), s AS (UPDATE @sessions SET active_ms = (SELECT now FROM n) WHERE session_id IN"
    " (SELECT session_id FROM d WHERE session_id IS NOT NULL))"
    " SELECT 1 / (CASE WHEN count(*) = $5::bigint THEN 1 ELSE 0 END) FROM d";

static const char *claim_instance(const dur_turn_commit *turn, const dur_activity_ref *ref) {
    return ref->instance != NULL ? ref->instance : turn->instance;
}

static void send_work_taken(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    dur__pg_args args;
    dur__pg_array instance = dur__pg_array_text(), id = dur__pg_array_i64(), token = dur__pg_array_text();
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < turns[i]->worker_consumed_count; k++) {
            const dur_worker_claim *claim = &turns[i]->worker_consumed[k];
            dur__pg_add_text(&instance, turns[i]->instance);
            dur__pg_add_i64(&id, (int64_t)claim->ref.row_id);
            dur__pg_add_text(&token, claim->lock_token);
        }
    }
    int64_t rows = id.count;
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &instance);
    dur__pg_array_arg(&args, &id);
    dur__pg_array_arg(&args, &token);
    dur__pg_i64(&args, rows);
    if (rows > 0)
        dur__pg_batch_add(batch, take_work_sql, &args);
    else
        dur__pg_args_free(&args);
}

/* Lists of activities: cancelled rows, dropped timers. */
static const char cancel_sql[] =
    "DELETE FROM @worker w USING unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[]) AS c(instance, execution,"
    " activity, id) WHERE w.instance_id = c.instance AND CASE WHEN c.id <> 0 THEN w.id = c.id ELSE w.execution_id ="
    " c.execution AND w.activity_id = c.activity END";
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

/* ---- what it writes ---------------------------------------------------------------------------------------------- */

static const char history_sql[] = "INSERT INTO @history (instance_id, execution_id, event_id, json)"
                                  " SELECT * FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[])";

static void send_history(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    dur__pg_args args;
    dur__pg_array instance = dur__pg_array_text(), execution = dur__pg_array_i64(), id = dur__pg_array_i64();
    dur__pg_array json = dur__pg_array_text();
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; writes_execution(turns[i]) && k < turns[i]->event_count; k++) {
            dur__pg_add_text(&instance, turns[i]->instance);
            dur__pg_add_i64(&execution, (int64_t)turns[i]->execution_id);
            dur__pg_add_i64(&id, (int64_t)turns[i]->events[k].event_id);
            dur__pg_add_json(&json, turns[i]->events[k].json);
        }
    }
    bool any = id.count > 0;
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &instance);
    dur__pg_array_arg(&args, &execution);
    dur__pg_array_arg(&args, &id);
    dur__pg_array_arg(&args, &json);
    if (any)
        dur__pg_batch_add(batch, history_sql, &args);
    else
        dur__pg_args_free(&args);
}

/* Status 0: only the row must be there. */
static const char executions_sql[] =
    "INSERT INTO @executions (instance_id, execution_id, status, output, started_at, completed_at)"
    " SELECT t.id, t.execution, greatest(t.status, 1)::smallint, t.output, n.now,"
    " CASE WHEN t.status > 1 THEN n.now ELSE 0 END FROM (SELECT #now AS now) n, unnest($2::text[], $3::bigint[],"
    " $4::bigint[], $5::text[]) AS t(id, execution, status, output) ON CONFLICT (instance_id, execution_id) DO UPDATE"
    " SET status = excluded.status, output = excluded.output, completed_at = excluded.completed_at";
static const char new_executions_sql[] =
    "INSERT INTO @executions (instance_id, execution_id, status, output, started_at)"
    " SELECT t.id, t.execution, 1, NULL, #now FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[])"
    " AS t(id, execution, status, output) ON CONFLICT (instance_id, execution_id) DO NOTHING";

static void send_executions(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count, bool with) {
    dur__pg_args args;
    dur__pg_array instance = dur__pg_array_text(), execution = dur__pg_array_i64(), status = dur__pg_array_i64();
    dur__pg_array output = dur__pg_array_text();
    for (size_t i = 0; i < count; i++) {
        const dur_turn_commit *turn = turns[i];
        bool has_status = turn->metadata.status != DUR_STATUS_NONE;
        /* Behind an event that was there before, the row is there too. */
        bool may_be_new = turn->expected_last == DUR_NOT_COMPARED || turn->expected_last == 0;
        if (!writes_execution(turn) || has_status != with || (!has_status && !may_be_new)) continue;
        dur__pg_add_text(&instance, turn->instance);
        dur__pg_add_i64(&execution, (int64_t)turn->execution_id);
        dur__pg_add_i64(&status, (int64_t)turn->metadata.status);
        dur__pg_add_text(&output, turn->metadata.output);
    }
    bool any = status.count > 0;
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &instance);
    dur__pg_array_arg(&args, &execution);
    dur__pg_array_arg(&args, &status);
    dur__pg_array_arg(&args, &output);
    if (any)
        dur__pg_batch_add(batch, with ? executions_sql : new_executions_sql, &args);
    else
        dur__pg_args_free(&args);
}

static const char claim_sessions_sql[] =
    "INSERT INTO @sessions AS s (session_id, holder, owner, lock_ms, until_ms, active_ms) SELECT DISTINCT ON"
    " (t.session COLLATE \"C\") t.session COLLATE \"C\", t.node, t.owner, t.lock_ms, 0, n.now FROM (SELECT #now AS"
    " now) n,"
    " unnest($2::text[], $3::text[], $4::text[], $5::bigint[]) AS t(session, node, owner, lock_ms)"
    " WHERE EXISTS (SELECT 1 FROM @owners o WHERE o.owner = t.owner) ORDER BY t.session COLLATE \"C\""
    " ON CONFLICT (session_id) DO UPDATE SET holder = excluded.holder, owner = excluded.owner, lock_ms ="
    " excluded.lock_ms, until_ms = 0, active_ms = excluded.active_ms WHERE s.holder = excluded.holder OR"
    " (s.owner IS NULL AND s.until_ms <= excluded.active_ms)";

static void send_sessions(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    dur__pg_args args;
    dur__pg_array session = dur__pg_array_text(), node = dur__pg_array_text(), owner = dur__pg_array_text();
    dur__pg_array lock_ms = dur__pg_array_i64();
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < turns[i]->worker_item_count; k++) {
            const dur_turn_work *item = &turns[i]->worker_items[k];
            if (item->lock_token == NULL || item->message.session_id == NULL || turns[i]->session_owner == NULL ||
                turns[i]->owner == NULL)
                continue;
            dur__pg_add_text(&session, item->message.session_id);
            dur__pg_add_text(&node, turns[i]->session_owner);
            dur__pg_add_text(&owner, turns[i]->owner);
            dur__pg_add_i64(&lock_ms, dur__pg_ms(turns[i]->session_lock_ms));
        }
    }
    bool any = lock_ms.count > 0;
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &session);
    dur__pg_array_arg(&args, &node);
    dur__pg_array_arg(&args, &owner);
    dur__pg_array_arg(&args, &lock_ms);
    if (any)
        dur__pg_batch_add(batch, claim_sessions_sql, &args);
    else
        dur__pg_args_free(&args);
}

static const char work_sql[] =
    "INSERT INTO @worker (instance_id, execution_id, activity_id, tag, session_id, attempts, token, owner, since_ms,"
    " json) SELECT x.instance, x.execution, x.activity, x.tag, x.session, CASE WHEN x.locks THEN 1 ELSE 0 END,"
    " CASE WHEN x.locks THEN x.token END, CASE WHEN x.locks THEN x.owner END, x.now, x.json FROM (SELECT t.*, n.now,"
    " t.token IS NOT NULL AND EXISTS (SELECT 1 FROM @owners o WHERE o.owner = t.owner) AND (t.session IS NULL OR EXISTS"
    " (SELECT 1 FROM @sessions s WHERE s.session_id = t.session AND s.holder = t.node AND s.owner = t.owner)) AS locks"
    " FROM (SELECT #now AS now) n, unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[],"
    " $8::text[], $9::text[], $10::text[]) WITH ORDINALITY AS t(instance, execution, activity, tag, session, token,"
    " owner, node, json, at)) x ORDER BY x.at RETURNING id, token IS NOT NULL";

static int send_work(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    dur__pg_args args;
    enum { INSTANCE, EXECUTION, ACTIVITY, TAG, SESSION, TOKEN, OWNER, NODE, JSON, COLUMNS };
    dur__pg_array columns[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = i == EXECUTION || i == ACTIVITY ? dur__pg_array_i64() : dur__pg_array_text();
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < turns[i]->worker_item_count; k++) {
            const dur_turn_work *item = &turns[i]->worker_items[k];
            bool locks = item->lock_token != NULL && item->lock_token[0] != '\0' && turns[i]->owner != NULL;
            dur__pg_add_text(&columns[INSTANCE], item->message.instance);
            dur__pg_add_i64(&columns[EXECUTION], (int64_t)item->message.execution_id);
            dur__pg_add_i64(&columns[ACTIVITY], (int64_t)item->message.activity_id);
            dur__pg_add_text(&columns[TAG], item->message.tag);
            dur__pg_add_text(&columns[SESSION], item->message.session_id);
            dur__pg_add_text(&columns[TOKEN], locks ? item->lock_token : NULL);
            dur__pg_add_text(&columns[OWNER], turns[i]->owner);
            dur__pg_add_text(&columns[NODE], turns[i]->session_owner);
            dur__pg_add_json(&columns[JSON], item->message.json);
        }
    }
    bool any = columns[INSTANCE].count > 0;
    dur__pg_args_begin(store, &args);
    for (int i = 0; i < COLUMNS; i++)
        dur__pg_array_arg(&args, &columns[i]);
    if (any) return dur__pg_batch_add(batch, work_sql, &args);
    dur__pg_args_free(&args);
    return -1;
}

/* ---- key-value state --------------------------------------------------------------------------------------------- */

static const char kv_clear_sql[] =
    "WITH c AS (UPDATE @kv_delta SET value = NULL WHERE instance_id = ANY ($2::text[]))"
    " INSERT INTO @kv_delta (instance_id, key, value, stamp_ms) SELECT k.instance_id, k.key, NULL, 0 FROM @kv k WHERE"
    " k.instance_id = ANY ($2::text[]) AND NOT EXISTS (SELECT 1 FROM @kv_delta d WHERE d.instance_id = k.instance_id"
    " AND"
    " d.key = k.key)";
static const char kv_set_sql[] =
    "INSERT INTO @kv_delta (instance_id, key, value, stamp_ms) SELECT * FROM unnest($2::text[], $3::text[], $4::text[],"
    " $5::bigint[]) ON CONFLICT (instance_id, key) DO UPDATE SET value = excluded.value, stamp_ms = excluded.stamp_ms";
/* The execution is over: its writes become the state that the next one begins with. */
static const char kv_merge_sql[] =
    "WITH d AS (DELETE FROM @kv_delta WHERE instance_id = ANY ($2::text[]) RETURNING *), gone AS (DELETE FROM @kv k"
    " USING d WHERE k.instance_id = d.instance_id AND k.key = d.key AND d.value IS NULL)"
    " INSERT INTO @kv (instance_id, key, value, stamp_ms) SELECT instance_id, key, value, stamp_ms FROM d WHERE"
    " value IS"
    " NOT NULL ON CONFLICT (instance_id, key) DO UPDATE SET value = excluded.value, stamp_ms = excluded.stamp_ms";
/* Message ids accepted two executions ago or earlier, and a day ago. */
static const char forget_sql[] =
    "DELETE FROM @accepted a USING @instances i WHERE i.instance_id = ANY ($2::text[]) AND a.instance_id ="
    " i.instance_id"
    " AND a.execution_id + 2 <= i.current_execution AND a.at_ms <= #now - 86400000";

typedef struct kv_columns {
    dur__pg_array instance, key, value, stamp;
} kv_columns;

/* What a key is at the end of the turn; what stands before the last "clear all" is cleared by that. */
static void kv_of_turn(const dur_turn_commit *turn, kv_columns *out) {
    dur__map keys;
    dur__map_entry *entry;
    memset(&keys, 0, sizeof(keys));
    for (size_t i = 0; i < turn->event_count; i++) {
        const dur_event_row *event = &turn->events[i];
        if (event->kind == DUR_EVENT_KEY_VALUES_CLEARED) {
            dur__map_free(&keys);
            memset(&keys, 0, sizeof(keys));
        } else if ((event->kind == DUR_EVENT_KEY_VALUE_SET || event->kind == DUR_EVENT_KEY_VALUE_CLEARED) &&
                   event->key != NULL) {
            dur__map_put(&keys, event->key, (void *)(uintptr_t)event);
        }
    }
    for (size_t i = 0; (entry = dur__map_next(&keys, &i)) != NULL;) {
        const dur_event_row *event = entry->value;
        bool set = event->kind == DUR_EVENT_KEY_VALUE_SET;
        dur__pg_add_text(&out->instance, turn->instance);
        dur__pg_add_text(&out->key, event->key);
        dur__pg_add_text(&out->value, !set ? NULL : event->value != NULL ? event->value : "");
        dur__pg_add_i64(&out->stamp, dur__pg_ms(event->stamp_ms));
    }
    dur__map_free(&keys);
}

static void send_kv(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    dur__pg_args args;
    kv_columns out = { dur__pg_array_text(), dur__pg_array_text(), dur__pg_array_text(), dur__pg_array_i64() };
    send_ids(store, batch, kv_clear_sql, turns, count, clears_kv);
    for (size_t i = 0; i < count; i++)
        if (writes_execution(turns[i])) kv_of_turn(turns[i], &out);
    bool any = out.key.count > 0;
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &out.instance);
    dur__pg_array_arg(&args, &out.key);
    dur__pg_array_arg(&args, &out.value);
    dur__pg_array_arg(&args, &out.stamp);
    if (any)
        dur__pg_batch_add(batch, kv_set_sql, &args);
    else
        dur__pg_args_free(&args);
    send_ids(store, batch, kv_merge_sql, turns, count, ends);
    send_ids(store, batch, forget_sql, turns, count, ends);
}

/* ---- the end of leases ------------------------------------------------------------------------------------------- */

/*
 * When to look at an instance that is given back.  What the holder has seen is no reason, except plain messages that it
 * was never given: the highest id that a round has seen says nothing about messages that were committed after it.
 */
static const char release_sql[] =
    "WITH n AS MATERIALIZED (SELECT #now AS now), t AS (SELECT * FROM unnest($2::text[], $3::bigint[], $4::bigint[],"
    " $5::bigint[], $6::bigint[]) AS t(id, seen_id, seen_now, delay, back)),"
    " r AS (SELECT t.id, k.known, CASE WHEN t.delay > 0 THEN n.now + t.delay ELSE 0 END AS not_before, n.now, m.at,"
    " m.due"
    " FROM n, t JOIN @instances i ON i.instance_id = t.id,"
    " LATERAL (SELECT i.has_row OR i.has_history OR EXISTS (SELECT 1 FROM @queue s WHERE s.instance_id = i.instance_id"
    " AND s.kind IN " DUR__PG_STARTS ") AS known) k,"
    " LATERAL (SELECT min(q.order_ms) AS at, min(q.due_ms) AS due FROM @queue q WHERE q.instance_id = t.id AND"
    " (k.known OR q.queue IS NOT NULL) AND NOT (q.id <= t.seen_id AND (q.due_ms = 0 OR q.due_ms <= t.seen_now) AND"
    " (q.given OR q.queue IS NOT NULL))) m),"
    " g AS (UPDATE @queue q SET given = false, attempts = CASE t.back WHEN 1 THEN greatest(q.attempts - 1, 0) WHEN 2"
    " THEN"
    " q.attempts ELSE 0 END FROM t WHERE q.instance_id = t.id AND q.given)"
    " UPDATE @instances i SET known = r.known, not_before = r.not_before,"
    " ready_at = CASE WHEN r.not_before > r.now THEN r.at + greatest(r.not_before - r.at, 0) ELSE r.at END,"
    " ready_due = CASE WHEN r.not_before > r.now THEN greatest(coalesce(r.due, 0), r.not_before) ELSE"
    " coalesce(r.due, 0)"
    " END FROM r WHERE i.instance_id = r.id";

static void send_release(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    dur__pg_args args;
    dur__pg_array id = dur__pg_array_text(), seen_id = dur__pg_array_i64(), seen_now = dur__pg_array_i64();
    dur__pg_array delay = dur__pg_array_i64(), back = dur__pg_array_i64();
    for (size_t i = 0; i < count; i++) {
        const dur_turn_commit *turn = turns[i];
        if (keeps(turn)) continue;
        bool all = turn->take_over || (turn->set_suspended && turn->suspended == NULL);
        dur__pg_add_text(&id, turn->instance);
        dur__pg_add_i64(&seen_id, all ? 0 : (int64_t)turn->seen_id);
        dur__pg_add_i64(&seen_now, all ? 0 : dur__pg_ms(turn->seen_now_ms));
        dur__pg_add_i64(&delay, turn->take_over ? 0 : dur__pg_ms(turn->delay_ms));
        dur__pg_add_i64(&back, turn->give_back ? 1 : is_failed_release(turn) ? 2 : 0);
    }
    bool any = delay.count > 0;
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &id);
    dur__pg_array_arg(&args, &seen_id);
    dur__pg_array_arg(&args, &seen_now);
    dur__pg_array_arg(&args, &delay);
    dur__pg_array_arg(&args, &back);
    if (any)
        dur__pg_batch_add(batch, release_sql, &args);
    else
        dur__pg_args_free(&args);
}

/* ---- a batch of turns -------------------------------------------------------------------------------------------- */

/* Does anybody but the committing lane have something to do afterwards? */
static bool concerns_others(const dur_turn_commit *turn) {
    if (turn->orchestrator_item_count > 0 || turn->take_over || turn->set_suspended || !keeps(turn)) return true;
    if (turn->metadata.status > DUR_STATUS_RUNNING || status_event(turn) != NULL) return true;
    for (size_t i = 0; i < turn->worker_item_count; i++)
        if (turn->worker_items[i].lock_token == NULL || turn->worker_items[i].message.session_id != NULL) return true;
    return false;
}

void dur__pg_turns_add(dur__pg *store, dur__pg_batch *batch, const dur__pg_lane *lane, dur_turn_commit **turns,
                       size_t count, dur_work_ack *acks, size_t ack_count, dur__pg_turn_plan *plan) {
    dur__pg_outbox box;
    dur__pg_outbox_begin(&box);
    plan->work_at = -1;
    for (size_t i = 0; i < ack_count; i++)
        if (acks[i].completion != NULL) dur__pg_outbox_add(&box, acks[i].completion, 0);
    if (box.count > 0) dur__pg_batch_notify(batch);
    for (size_t i = 0; i < count; i++) {
        dur__pg_outbox_lock(&box, turns[i]->instance);
        for (size_t k = 0; k < turns[i]->orchestrator_item_count; k++)
            dur__pg_outbox_add(&box, &turns[i]->orchestrator_items[k], 0);
        if (concerns_others(turns[i])) dur__pg_batch_notify(batch);
    }
    dur__pg_outbox_send_locks(&box, batch);
    if (ack_count > 0) dur__pg_acks_add(store, batch, acks, ack_count);
    if (count == 0) {
        dur__pg_outbox_send(&box, batch);
        dur__pg_outbox_end(&box);
        return;
    }
    send_ids(store, batch, lost_sql, turns, count, takes_over);
    send_ids(store, batch, remove_work_sql, turns, count, removes_work);
    send_ids(store, batch, take_given_sql, turns, count, takes_given);
    send_consumed(store, batch, turns, count);
    send_ids(store, batch, clear_attempts_sql, turns, count, lane != NULL ? keeps_some : keeps_all);
    send_rows(store, batch, lane, turns, count);
    send_work_taken(store, batch, turns, count);
    send_history(store, batch, turns, count);
    send_executions(store, batch, turns, count, false);
    send_executions(store, batch, turns, count, true);
    send_kv(store, batch, turns, count);
    send_sessions(store, batch, turns, count);
    plan->work_at = send_work(store, batch, turns, count);
    send_refs(store, batch, cancel_sql, turns, count, false);
    dur__pg_outbox_send(&box, batch);
    send_refs(store, batch, drop_timers_sql, turns, count, true);
    send_release(store, batch, turns, count);
    dur__pg_outbox_end(&box);
}

void dur__pg_turns_read(const dur__pg_batch *batch, const dur__pg_turn_plan *plan, dur_turn_commit **turns,
                        size_t count) {
    int row = 0;
    for (size_t i = 0; i < count; i++) {
        turns[i]->fault = DUR_TURN_FINE;
        dur_error_clear(&turns[i]->error);
        turns[i]->lease_kept = keeps(turns[i]);
        for (size_t k = 0; k < turns[i]->worker_item_count; k++, row++) {
            turns[i]->worker_items[k].row_id = dur__pg_get_u64(batch->results[plan->work_at], row, 0);
            turns[i]->worker_items[k].locked = dur__pg_get_bool(batch->results[plan->work_at], row, 1);
        }
    }
}
