/*
 * pg_turn_write.c: what a turn writes: work, key-value state, and the end of its lease.
 */
#include "provider/postgres/pg_doubts.h"
#include "provider/postgres/pg_pieces.h"
#include "provider/postgres/pg_turn.h"
#include "provider/postgres/pg_works.h"

#include <stdlib.h>

/* ---- what it writes ---------------------------------------------------------------------------------------------- */

static const char claim_sessions_sql[] =
    "WITH n AS MATERIALIZED (SELECT #now AS now), want AS MATERIALIZED (SELECT DISTINCT ON (t.session COLLATE \"C\")"
    " t.session COLLATE \"C\" AS session, t.node, t.owner, t.lock_ms, 0::bigint AS until_ms FROM unnest($2::text[],"
    " $3::text[], $4::text[], $5::bigint[]) AS t(session, node, owner, lock_ms) WHERE EXISTS (SELECT 1 FROM @owners o"
    " WHERE o.owner = t.owner AND o.dead = 0) ORDER BY t.session COLLATE \"C\"), " DUR__PG_CLAIM_SESSIONS(
        "$6::bigint") " SELECT count(*) FROM claimed";

void dur__pg_send_sessions(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_args args;
    dur__pg_table rows = dur__pg_table_of("ttti");
    for (size_t i = 0; i < parts->count; i++) {
        const dur_turn_commit *turn = parts->all[i].turn;
        for (size_t k = 0; k < turn->worker_item_count; k++) {
            const dur_turn_work *item = &turn->worker_items[k];
            if (dur__turn_eager(turn, item) == NULL || item->message.session_id == NULL || turn->session_owner == NULL)
                continue;
            dur__pg_put_text(&rows, item->message.session_id);
            dur__pg_put_text(&rows, turn->session_owner);
            dur__pg_put_text(&rows, turn->owner);
            dur__pg_put_i64(&rows, dur__pg_ms(turn->session_lock_ms));
        }
    }
    if (rows.rows == 0) return;
    dur__pg_args_begin(batch->conn->store, &args);
    dur__pg_table_args(&args, &rows);
    dur__pg_i64(&args, batch->conn->store->schema_key);
    dur__pg_batch_add(batch, claim_sessions_sql, &args);
}

/* What a worker row says of its activity. */
#define WORK_TYPES "tiitttt"
static void put_work(dur__pg_table *rows, const dur_message_row *message) {
    dur__pg_put_text(rows, message->instance);
    dur__pg_put_id(rows, message->execution_id);
    dur__pg_put_id(rows, message->activity_id);
    dur__pg_put_text(rows, message->tag);
    dur__pg_put_text(rows, message->session_id);
    dur__pg_put_json(rows, message->json);
    dur__pg_put_text(rows, dur__pg_handler_of(message));
}

static const char work_sql[] =
    "INSERT INTO @worker (instance_id, execution_id, activity_id, tag, session_id, attempts, token, owner, since_ms,"
    " json, handler) SELECT x.instance, x.execution, x.activity, x.tag, x.session, CASE WHEN x.locks THEN 1 ELSE 0 END,"
    " CASE WHEN x.locks THEN x.token END, CASE WHEN x.locks THEN x.owner END, x.now, x.json, x.handler FROM (SELECT"
    " t.*, n.now, t.token IS NOT NULL AND EXISTS (SELECT 1 FROM @owners o WHERE o.owner = t.owner AND o.dead = 0) AND"
    " (t.session IS NULL OR EXISTS (SELECT 1 FROM @sessions s WHERE s.session_id = t.session AND s.holder = t.node AND"
    " s.owner = t.owner)) AS locks FROM (SELECT #now AS now) n, unnest($2::text[], $3::bigint[], $4::bigint[],"
    " $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[]) WITH ORDINALITY AS"
    " t(instance, execution, activity, tag, session, json, handler, token, owner, node, at)) x ORDER BY x.at RETURNING"
    " id, token IS NOT NULL";

int dur__pg_send_work(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_table rows = dur__pg_table_of(WORK_TYPES "ttt");
    for (size_t i = 0; i < parts->count; i++) {
        const dur_turn_commit *turn = parts->all[i].turn;
        for (size_t k = 0; k < turn->worker_item_count; k++) {
            const dur_turn_work *item = &turn->worker_items[k];
            if (item->recovered || dur__pg_item_is_local(parts->lane, turn, item)) continue;
            put_work(&rows, &item->message);
            dur__pg_put_text(&rows, dur__turn_eager(turn, item));
            dur__pg_put_text(&rows, turn->owner);
            dur__pg_put_text(&rows, turn->session_owner);
        }
    }
    return dur__pg_batch_add_rows(batch, work_sql, &rows);
}

/*
 * What was local under a lease that has ended.  Where its owner died (look 2) it was company in that crash: it is among
 * those of which the crash is in doubt, instead of the mark that stood for it (pg_doubt.c).
 */
static const char recovered_sql[] =
    "WITH w AS (INSERT INTO @worker (instance_id, execution_id, activity_id, tag, session_id, attempts, crashes,"
    " since_ms, json, handler) SELECT t.instance, t.execution, t.activity, t.tag, t.session, 1, CASE WHEN i.look = 2"
    " THEN 1 ELSE 0 END, #now, t.json, t.handler FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[],"
    " $6::text[], $7::text[], $8::text[]) WITH ORDINALITY AS t(instance, execution, activity, tag, session, json,"
    " handler, at) JOIN @instances i ON i.instance_id = t.instance ORDER BY t.at RETURNING instance_id, id, crashes)"
    " INSERT INTO @crashed (crash, instance_id, work_id, alone)"
    " SELECT c.crash, w.instance_id, w.id, false FROM w JOIN @crashed c ON c.instance_id = w.instance_id AND c.work_id"
    " = " DUR__PG_LOCAL_WORK " AND NOT c.for_good WHERE w.crashes > 0";
static const char looked_sql[] =
    "DELETE FROM @crashed WHERE instance_id = ANY ($2::text[]) AND work_id = " DUR__PG_LOCAL_WORK " AND NOT for_good";

/* It holds a lease that was acquired with `look`, or perhaps. */
static bool has_looked(const dur__pg_part *part) {
    return part->updates && !(part->facts.take_over && !part->facts.ends_instance) &&
           (part->lease == NULL || (part->lease->lost_work && !part->lease->committed));
}

void dur__pg_send_recovered(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_table rows = dur__pg_table_of(WORK_TYPES);
    for (size_t i = 0; i < parts->count; i++) {
        const dur_turn_commit *turn = parts->all[i].turn;
        for (size_t k = 0; k < turn->worker_item_count; k++)
            if (turn->worker_items[k].recovered) put_work(&rows, &turn->worker_items[k].message);
    }
    dur__pg_batch_add_rows(batch, recovered_sql, &rows);
    dur__pg_send_ids(batch, looked_sql, parts, has_looked);
}

/* ---- key-value state --------------------------------------------------------------------------------------------- */

static bool clears_kv(const dur__pg_part *part) {
    for (size_t i = 0; part->facts.writes && i < part->turn->event_count; i++)
        if (part->turn->events[i].kind == DUR_EVENT_KEY_VALUES_CLEARED) return true;
    return false;
}

static const char kv_clear_sql[] =
    "WITH c AS (UPDATE @kv_delta SET value = NULL WHERE instance_id = ANY ($2::text[]))"
    " INSERT INTO @kv_delta (instance_id, key, value, stamp_ms)"
    " SELECT k.instance_id, k.key, NULL, 0 FROM @kv k WHERE k.instance_id = ANY ($2::text[]) AND NOT EXISTS (SELECT 1"
    " FROM @kv_delta d WHERE d.instance_id = k.instance_id AND d.key = k.key)";
static const char kv_set_sql[] =
    "INSERT INTO @kv_delta (instance_id, key, value, stamp_ms) SELECT * FROM unnest($2::text[], $3::text[], $4::text[],"
    " $5::bigint[]) ON CONFLICT (instance_id, key) DO UPDATE SET value = excluded.value, stamp_ms = excluded.stamp_ms";
/* The execution is over: its writes become the state that the next one begins with. */
static const char kv_merge_sql[] =
    "WITH d AS (DELETE FROM @kv_delta WHERE instance_id = ANY ($2::text[]) RETURNING *),"
    " gone AS (DELETE FROM @kv k USING d WHERE k.instance_id = d.instance_id AND k.key = d.key AND d.value IS NULL)"
    " INSERT INTO @kv (instance_id, key, value, stamp_ms)"
    " SELECT instance_id, key, value, stamp_ms FROM d WHERE value IS NOT NULL ON CONFLICT (instance_id, key) DO UPDATE"
    " SET value = excluded.value, stamp_ms = excluded.stamp_ms";
/* Message ids accepted two executions ago or earlier, and a day ago.  After the last one they go with the instance. */
static const char forget_sql[] =
    "DELETE FROM @accepted a USING @instances i WHERE i.instance_id = ANY ($2::text[]) AND a.instance_id ="
    " i.instance_id AND a.execution_id + 2 <= i.current_execution AND a.at_ms <= #now - 86400000";

static bool continues(const dur__pg_part *part) {
    return part->facts.writes && part->turn->metadata.status == DUR_STATUS_CONTINUED_AS_NEW;
}

static bool merges(const dur__pg_part *part) {
    return part->facts.ends_execution && !part->bare_end;
}

/* What a key is at the end of the turn; what stands before the last "clear all" is cleared by that. */
static void put_kv(dur__pg_table *rows, const dur_turn_commit *turn) {
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
        dur__pg_put_text(rows, turn->instance);
        dur__pg_put_text(rows, event->key);
        dur__pg_put_text(rows, !set ? NULL : event->value != NULL ? event->value : "");
        dur__pg_put_i64(rows, dur__pg_ms(event->stamp_ms));
    }
    dur__map_free(&keys);
}

void dur__pg_send_kv(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_table rows = dur__pg_table_of("ttti");
    for (size_t i = 0; i < parts->count; i++)
        if (parts->all[i].facts.writes) put_kv(&rows, parts->all[i].turn);
    dur__pg_send_ids(batch, kv_clear_sql, parts, clears_kv);
    dur__pg_batch_add_rows(batch, kv_set_sql, &rows);
    dur__pg_send_ids(batch, kv_merge_sql, parts, merges);
    dur__pg_send_ids(batch, forget_sql, parts, continues);
}

/* ---- the end of leases ------------------------------------------------------------------------------------------- */

/*
 * When to look at an instance that is given back; most have nothing left, and nothing is to be done.  What the holder
 * was given and has left is no reason, and what stands in the same queue is none either: a handler that leaves the
 * first of a queue does not wait for the others.  Whatever else is there is a reason: ids are not in order of commit,
 * so a message with a lower one than the highest that was seen may have come after the last look.  The row was locked
 * by a statement before this one, so all that was committed before is seen here, and who comes later sets ready_at.
 * Where the instance has not begun, its handler is that of the start that is first now: the one before may be gone.
 */
static const char release_sql[] =
    "WITH n AS MATERIALIZED (SELECT #now AS now), t AS MATERIALIZED (SELECT t.* FROM unnest($2::text[], $3::bigint[],"
    " $4::bigint[], $5::bigint[], $6::bigint[]) AS t(id, seen_id, seen_now, delay, back) JOIN @instances i ON"
    " i.instance_id = t.id WHERE t.delay > 0 OR i.ready_at IS NOT NULL OR i.ready_due <> 0 OR i.not_before <> 0 OR NOT"
    " i.known OR i.look > 0 OR NOT (i.has_row OR i.has_history) OR EXISTS (SELECT 1 FROM @queue q WHERE q.instance_id "
    "= t.id)),"
    " r AS (SELECT t.id, k.known, CASE WHEN i.has_row OR i.has_history THEN i.next ELSE (SELECT s.handler FROM @queue s"
    " WHERE s.instance_id = t.id AND s.kind IN " DUR__PG_STARTS " ORDER BY s.id LIMIT 1) END AS next,"
    " CASE WHEN t.delay > 0 THEN n.now + t.delay ELSE 0 END AS not_before, n.now, m.at, m.due"
    " FROM n, t JOIN @instances i ON i.instance_id = t.id,"
    " LATERAL (SELECT i.has_row OR i.has_history OR EXISTS (SELECT 1 FROM @queue s WHERE s.instance_id = i.instance_id"
    " AND s.kind IN " DUR__PG_STARTS ") AS known) k,"
    " LATERAL (SELECT array_agg(DISTINCT g.queue) AS queues FROM @queue g WHERE g.instance_id = t.id AND g.delivered "
    "<> 0 AND"
    " g.queue IS NOT NULL) l,"
    " LATERAL (SELECT min(q.order_ms) AS at, min(q.due_ms) AS due FROM @queue q WHERE q.instance_id = t.id AND"
    " (k.known OR q.queue IS NOT NULL) AND NOT coalesce(q.id <= t.seen_id AND (q.due_ms = 0 OR q.due_ms <= t.seen_now)"
    " AND (q.delivered <> 0 OR q.queue = ANY (l.queues)), false)) m),"
    " i0 AS (SELECT i.instance_id, i.acquisitions + t.back AS acquisitions," /* as they were */
    " t.back AS less FROM t JOIN @instances i ON i.instance_id = t.id),"
    " " DUR__PG_TAKE_BACK " UPDATE @instances i SET known = r.known, next = r.next, not_before = r.not_before,"
    " ready_at = CASE WHEN i.look > 0 THEN least(r.at, r.now) WHEN r.not_before > r.now THEN r.at +"
    " greatest(r.not_before - r.at, 0) ELSE r.at END,"
    " ready_due = CASE WHEN i.look > 0 THEN 0 WHEN r.not_before > r.now THEN greatest(coalesce(r.due, 0), r.not_before)"
    " ELSE coalesce(r.due, 0) END FROM r WHERE i.instance_id = r.id AND (i.known <> r.known OR i.look > 0 OR "
    "i.not_before <> r.not_before OR"
    " i.ready_at IS NOT NULL OR i.ready_due <> 0 OR r.at IS NOT NULL OR r.due <> 0 OR i.next IS DISTINCT FROM r.next)";

void dur__pg_send_release(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_table rows = dur__pg_table_of("tiiii");
    for (size_t i = 0; i < parts->count; i++) {
        const dur__turn_facts *facts = &parts->all[i].facts;
        if (facts->keeps || parts->all[i].bare_end) continue;
        dur__pg_put_text(&rows, parts->all[i].turn->instance);
        dur__pg_put_id(&rows, facts->seen_id);
        dur__pg_put_i64(&rows, dur__pg_ms(facts->seen_now_ms));
        dur__pg_put_i64(&rows, dur__pg_ms(facts->delay_ms));
        dur__pg_put_i64(&rows, facts->uncounts ? 1 : 0);
    }
    dur__pg_batch_add_rows(batch, release_sql, &rows);
}
