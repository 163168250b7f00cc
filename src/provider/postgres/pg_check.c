/*
 * pg_check.c: rows against rows: is there something that nobody would ever come back to?
 *
 * A table that agrees with itself may still hold an instance that waits for ever: no lease, no reason to look, and a
 * message; or a lock of an owner that nobody will take over.  Each finding names the table, the instance and what is
 * wrong, and is seen by one statement, hence in one snapshot: a store in use may be asked.
 */
#include "core/awaits.h"
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"

#define LOOK "WITH n AS MATERIALIZED (SELECT #now AS now)"
#define FINDING(text) " UNION ALL SELECT " text

/* Of nobody, not suspended: whoever finds a reason may take it. */
#define UNHELD "i.known AND i.token IS NULL AND i.suspended IS NULL"
#define VISIBLE "q.due_ms <= (SELECT now FROM n)"
/* Before it has begun messages wait for its start: until that is due they are no reason to look. */
#define MAY_RUN                                                                                                        \
    "(i.has_row OR i.has_history OR EXISTS (SELECT 1 FROM @queue s WHERE s.instance_id = i.instance_id AND s.kind IN"  \
    " " DUR__PG_STARTS " AND s.due_ms <= (SELECT now FROM n)))"
#define ENDED DUR__PG_STATUS " IN (2, 3)"
#define LOST_WITHOUT "(3, 4, 5, 8, 9, 10)" /* dur__lost_without */
/* How long an owner may be silent, and another live beside it, before somebody should have finished what it left. */
#define FORGOTTEN "3 * o.timeout_ms + 60000"

/* Each row of an answer is a finding.  Rows that belong together: */
/* clang-format off */
static const char rows_sql[] = LOOK
    " SELECT 'dur_instances: ' || i.instance_id || ': work was open when a lease ended, and nothing will wake it' FROM"
    " @instances i WHERE " UNHELD " AND i.look > 0 AND i.ready_at IS NULL"
    FINDING("'dur_history: ' || h.instance_id || ': execution ' || h.execution_id || ' has not begun' FROM (SELECT"
            " DISTINCT instance_id, execution_id FROM @history) h JOIN @instances i USING (instance_id) WHERE"
            " h.execution_id > i.current_execution")
    FINDING("'dur_history: ' || h.instance_id || ': events without an instance' FROM (SELECT DISTINCT instance_id FROM"
            " @history) h WHERE NOT EXISTS (SELECT 1 FROM @instances i WHERE i.instance_id = h.instance_id)")
    FINDING("'dur_executions: ' || e.instance_id || ': execution ' || e.execution_id || ' is not past' FROM"
            " @instances i JOIN @executions e ON e.instance_id = i.instance_id AND e.execution_id >="
            " i.current_execution")
    FINDING("'dur_queue: ' || q.instance_id || ': messages without an instance' FROM (SELECT DISTINCT instance_id FROM"
            " @queue) q WHERE NOT EXISTS (SELECT 1 FROM @instances i WHERE i.instance_id = q.instance_id)")
    FINDING("'dur_worker: ' || w.instance_id || ': activity ' || w.activity_id || ' without an instance' FROM @worker"
            " w WHERE NOT EXISTS (SELECT 1 FROM @instances i WHERE i.instance_id = w.instance_id)")
    FINDING("'dur_worker: ' || w.instance_id || ': activity ' || w.activity_id || ' of execution ' || w.execution_id"
            " || ', which has not begun' FROM @worker w JOIN @instances i USING (instance_id) WHERE i.has_row AND"
            " w.execution_id > i.current_execution")
    FINDING("'dur_history: ' || h.instance_id || ': execution ' || h.execution_id || ' lacks what is before event ' ||"
            " h.first_id FROM (SELECT instance_id, execution_id, first_id,"
            " coalesce(lag(" DUR__PG_PLUS("first_id", "count") ") OVER"
            " (PARTITION BY instance_id, execution_id ORDER BY first_id), 1) AS next FROM @history) h WHERE h.first_id"
            " <> h.next AND h.first_id <> 99999") /* the end over a history that could not be read */
    FINDING("'dur_instances: ' || i.instance_id || ': its parent ' || i.parent || ' does not exist' FROM @instances i"
            " WHERE i.parent IS NOT NULL AND NOT EXISTS (SELECT 1 FROM @instances p WHERE p.instance_id = i.parent)")
    FINDING("'dur_instances: ' || i.instance_id || ': it has ended and is suspended' FROM @instances i WHERE"
            " i.suspended IS NOT NULL AND " ENDED)
    " LIMIT 1";
/* clang-format on */

/* Messages that nobody would look at: */
/* clang-format off */
static const char messages_sql[] = LOOK
    " SELECT 'dur_queue: ' || q.instance_id || ': message ' || q.id || ' is visible, and nobody has a reason to look'"
    " FROM n, @instances i JOIN @queue q USING (instance_id) WHERE " UNHELD " AND " MAY_RUN " AND q.queue IS NULL AND "
    VISIBLE
    " AND (i.ready_at IS NULL OR (least(i.ready_at, i.ready_due) > n.now AND i.not_before <= n.now))"
    FINDING("'dur_queue: ' || q.instance_id || ': message ' || q.id || ' is visible, and its holder has no reason to"
            " look' FROM @instances i JOIN @queue q USING (instance_id) WHERE i.owner IS NOT NULL AND q.queue IS NULL"
            " AND q.delivered = 0 AND " VISIBLE " AND i.ready_at IS NULL AND i.suspended IS NULL")
    FINDING("'dur_queue: ' || q.instance_id || ': message ' || q.id || ' was handed to somebody who has no lease' FROM"
            " @instances i JOIN @queue q USING (instance_id) WHERE i.token IS NULL AND q.delivered <> 0")
    FINDING("'dur_queue: ' || q.instance_id || ': message ' || q.id || ' of queue ' || q.queue || ' was passed over'"
            " FROM @instances i JOIN @queue q USING (instance_id) WHERE i.owner IS NOT NULL AND q.queue IS NOT NULL AND"
            " q.delivered = 0 AND q.due_ms = 0 AND EXISTS (SELECT 1 FROM @queue g WHERE g.instance_id = q.instance_id AND"
            " g.queue = q.queue AND g.delivered <> 0 AND g.due_ms = 0 AND (g.order_ms, g.id) > (q.order_ms, q.id)) AND"
            " i.ready_at IS NULL")
    FINDING("'dur_queue: ' || q.instance_id || ': it has ended, and nobody would look at message ' || q.id FROM"
            " @instances i JOIN @queue q USING (instance_id) WHERE " UNHELD " AND i.ready_at IS NULL AND " ENDED)
    FINDING("'dur_queue: ' || q.instance_id || ': it does not exist, and nobody will ever look at message ' || q.id"
            " FROM @instances i JOIN @queue q USING (instance_id) WHERE NOT i.known AND q.kind IN " LOST_WITHOUT)
    " LIMIT 1";
/* clang-format on */

/* Locks of nobody: */
/* clang-format off */
static const char locks_sql[] = LOOK
    " SELECT 'dur_instances: ' || i.instance_id || ': leased by ' || i.owner || ', who is not registered' FROM"
    " @instances i WHERE i.owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM @owners o WHERE o.owner = i.owner)"
    FINDING("'dur_instances: ' || i.instance_id || ': an owner or a time without a token' FROM @instances i WHERE"
            " i.token IS NULL AND (i.owner IS NOT NULL OR i.expires_at IS NOT NULL)")
    FINDING("'dur_worker: ' || w.instance_id || ': activity ' || w.activity_id || ' locked by ' || w.owner || ', who is"
            " not registered' FROM @worker w WHERE w.owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM @owners o WHERE"
            " o.owner = w.owner)")
    FINDING("'dur_sessions: ' || s.session_id || ': held by ' || s.owner || ', who is not registered' FROM @sessions s"
            " WHERE s.owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM @owners o WHERE o.owner = s.owner)")
    FINDING("'dur_owners: ' || o.owner || ': silent for ' || n.now - o.beat_ms || ' ms, and nobody has finished what it"
            " left' FROM n, @owners o WHERE o.beat_ms < n.now - (" FORGOTTEN ") AND EXISTS (SELECT 1 FROM @owners l"
            " WHERE l.beat_ms > n.now - l.timeout_ms) AND (EXISTS (SELECT 1 FROM @instances i WHERE i.owner = o.owner)"
            " OR EXISTS (SELECT 1 FROM @worker w WHERE w.owner = o.owner))")
    " LIMIT 1";
/* clang-format on */

/* Crashes in doubt (pg_doubt.c): */
static const char doubts_sql[] =
    "SELECT 'dur_crashed: ' || c.crash || ': a crash in which nothing ran alone' FROM @crashed c WHERE NOT EXISTS"
    " (SELECT 1 FROM @crashed a WHERE a.crash = c.crash AND a.alone)" FINDING(
        "'dur_crashed: ' || i.instance_id || ': in doubt of more crashes than it ran alone in' FROM @instances i WHERE"
        " i.acquisitions > 0 AND i.crashes > 0 AND i.crashes_alone < (SELECT count(*) FROM @doubts d WHERE"
        " d.instance_id = i.instance_id AND d.work_id = 0 AND d.crash IS DISTINCT FROM i.owner)")
        FINDING("'dur_crashed: ' || w.instance_id || ': activity ' || w.activity_id || ' is in doubt of more crashes"
                " than it ran alone in' FROM @worker w WHERE w.crashes > 0 AND w.crashes_alone < (SELECT count(*) FROM"
                " @doubts d WHERE d.instance_id = w.instance_id AND d.work_id = w.id AND d.crash IS DISTINCT FROM"
                " w.owner)") " LIMIT 1";

/* Types keep the rest out; of these numbers only some mean something (a newer node may know more kinds of messages). */
/* clang-format off */
static const char values_sql[] = LOOK
    " SELECT 'dur_instances: ' || instance_id || ': status is ' || status || ', which cannot be' FROM @instances WHERE"
    " status NOT BETWEEN 0 AND 4"
    FINDING("'dur_instances: ' || instance_id || ': look is ' || look || ', which cannot be' FROM @instances WHERE look"
            " NOT BETWEEN 0 AND 2")
    FINDING("'dur_instances: ' || instance_id || ': a number is below 0' FROM @instances WHERE least(current_execution,"
            " custom_status_version, created_at, started_at, completed_at, acquisitions, crashes, crashes_alone) < 0")
    FINDING("'dur_executions: ' || instance_id || ': status is ' || status || ', which cannot be' FROM @executions WHERE"
            " status NOT BETWEEN 1 AND 4")
    FINDING("'dur_queue: ' || instance_id || ': kind is ' || kind || ', which cannot be' FROM @queue WHERE kind NOT"
            " BETWEEN 0 AND 255")
    " LIMIT 1";
/* clang-format on */

/* Of instances that nobody has and nobody would look at, and that have messages in queues: what they wait for. */
static const char waiting_sql[] =
    "WITH n AS MATERIALIZED (SELECT #now AS now), c AS MATERIALIZED (SELECT DISTINCT i.instance_id,"
    " i.current_execution, q.queue FROM @instances i JOIN @queue q USING (instance_id) WHERE " UNHELD
    " AND i.ready_at IS NULL AND q.queue IS NOT NULL AND " VISIBLE ")"
    " SELECT c.instance_id, c.queue, " DUR__PG_BLOCK " FROM c JOIN @history h ON h.instance_id = c.instance_id AND"
    " h.execution_id = c.current_execution ORDER BY c.instance_id, c.queue, h.first_id";

static bool same_wait(const PGresult *rows, int a, int b) {
    return strcmp(PQgetvalue(rows, a, 0), PQgetvalue(rows, b, 0)) == 0 &&
           strcmp(PQgetvalue(rows, a, 1), PQgetvalue(rows, b, 1)) == 0;
}

static int judge_waits(const PGresult *rows, dur_arena *arena, dur_error *err) {
    int code = DUR_OK;
    for (int from = 0, to; from < PQntuples(rows) && code == DUR_OK; from = to) {
        for (to = from + 1; to < PQntuples(rows) && same_wait(rows, from, to); to++) {
        }
        size_t count;
        dur_event_row *events = dur__pg_read_blocks(rows, from, to - from, 2, PQgetvalue(rows, from, 0), arena, &count);
        dur_text *texts = dur_arena_alloc(arena, count * sizeof(*texts));
        for (size_t i = 0; i < count; i++)
            texts[i] = events[i].json;
        if (dur__awaits_queue(arena, texts, count, PQgetvalue(rows, from, 1)))
            code = dur_error_set(err, DUR_ECORRUPT, false, "postgres.check",
                                 "dur_queue: %s: it waits for queue %s, which has a message, and nobody has a reason"
                                 " to look",
                                 PQgetvalue(rows, from, 0), PQgetvalue(rows, from, 1));
    }
    return code;
}

int dur__pg_check(dur_provider *self, dur_error *err) {
    static const char *const looks[] = { values_sql, rows_sql, messages_sql, locks_sql, doubts_sql };
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    PGresult *result;
    int code = DUR_OK;
    for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]) && code == DUR_OK; i++) {
        dur__pg_args_begin(store, &args);
        args.walks = true;
        code = dur__pg_one(store, "postgres.check", looks[i], &args, false, &result, err);
        if (code == DUR_OK && PQntuples(result) > 0)
            code = dur_error_set(err, DUR_ECORRUPT, false, "postgres.check", "%s", PQgetvalue(result, 0, 0));
        PQclear(result);
    }
    if (code != DUR_OK) return code;
    dur__pg_args_begin(store, &args);
    args.walks = true;
    code = dur__pg_one(store, "postgres.check", waiting_sql, &args, false, &result, err);
    dur_arena *arena = dur_arena_new();
    if (code == DUR_OK) code = judge_waits(result, arena, err);
    dur_arena_free(arena);
    PQclear(result);
    return code;
}

/* ---- what an owner has ------------------------------------------------------------------------------------------- */

static const char holdings_sql[] =
    "SELECT 0, instance_id, 0, 0, coalesce(token, '') FROM @instances WHERE owner = $2::text UNION ALL SELECT 1,"
    " instance_id, execution_id, activity_id, coalesce(token, '') FROM @worker WHERE owner = $2::text UNION ALL"
    " SELECT 2, session_id, 0, 0, '' FROM @sessions WHERE owner = $2::text";

int dur__pg_owner_holdings(dur_provider *self, dur_arena *arena, const char *owner, dur_holding **out, size_t *count,
                           dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    PGresult *rows;
    dur__pg_args_of(store, &args, owner);
    int code = dur__pg_one(store, "postgres.owner_holdings", holdings_sql, &args, false, &rows, err);
    if (code == DUR_OK) {
        *count = (size_t)PQntuples(rows);
        *out = dur_arena_zalloc(arena, (*count + 1) * sizeof(**out));
        for (int i = 0; i < PQntuples(rows); i++)
            (*out)[i] = (dur_holding){ .kind = (dur_holding_kind)dur__pg_get_u64(rows, i, 0),
                                       .instance = dur__pg_get_text(rows, i, 1, arena),
                                       .execution_id = dur__pg_get_u64(rows, i, 2),
                                       .activity_id = dur__pg_get_u64(rows, i, 3),
                                       .token = dur__pg_get_text(rows, i, 4, arena) };
    }
    PQclear(rows);
    return code;
}
