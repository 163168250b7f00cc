/*
 * pg_fetch.c: taking instances and handing out their messages; giving instances back.
 *
 * A claim locks rows of dur_instances only, and skips those that somebody else has locked: it never waits for another
 * node and never takes an instance in halves.  The claim and the reading of messages and history are two statements on
 * purpose: the second has a snapshot that is younger than the row locks, so nothing committed before them is missed.
 * Between them ready_at marks the rows that were claimed: -1.  No mark survives the batch.
 */
#include "base/assert.h"
#include "provider/dead_reason.h"
#include "provider/postgres/pg_doubts.h"
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"
#include "provider/postgres/pg_works.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#define UNDO_TRIES 50
#define UNDO_PAUSE_MS 20

/* ---- statements -------------------------------------------------------------------------------------------------- */

/* Crashes are those of the acquisitions that count: with 0 of them they are old. */
#define KIND                                                                                                           \
    "CASE $3::bigint WHEN 1 THEN acquisitions = 0 OR crashes < 2 OR look > 0 WHEN 2 THEN acquisitions > 0 AND crashes" \
    " >= 2 AND look = 0 ELSE true END"
#define FREE DUR__PG_FREE
/* $2 how many at most, $3 kind, $4 and $5 the range of versions: who would be claimed. */
#define CLAIMABLE                                                                                                      \
    FREE /* undelayed messages are visible whatever the clock says, also after it went back */                         \
        " AND ready_at <= (SELECT greatest((SELECT now FROM n), (SELECT max(ready_at) FROM @instances WHERE " FREE     \
        " AND ready_due = 0))) AND (ready_due = 0 OR ready_at <= (SELECT now FROM n))"                                 \
        " AND (token IS NULL OR (expires_at <= (SELECT now FROM n) AND EXISTS (SELECT 1 FROM @queue q WHERE "          \
        "q.instance_id = @instances.instance_id AND q.due_ms <= (SELECT now FROM n))))"                                \
        " AND " KIND " AND ($4::text IS NULL OR pin IS NULL OR look > 0 OR (pin >= $4::text::bigint[] AND pin <= "     \
        "$5::text::bigint[]))"

/* Queue messages of instances that do not exist, where they stand before what is claimed. */
/* clang-format off */
static const char bury_sql[] =
    "WITH RECURSIVE " DUR__PG_HANDLERS("ha", "@instances", FREE, "$6::text[]") ","
    " n AS MATERIALIZED (SELECT #now AS now),"
    " o AS (SELECT instance_id FROM @instances WHERE NOT known AND ready_at IS NOT NULL AND ready_at <= (SELECT now"
    " FROM n) AND suspended IS NULL AND (token IS NULL OR (owner IS NULL AND expires_at <= (SELECT now FROM n))) AND "
    KIND " AND ready_at + 0 <= coalesce((SELECT y.ready_at FROM ha CROSS JOIN LATERAL (SELECT ready_at FROM @instances"
    " WHERE handler = ha.h AND " CLAIMABLE " ORDER BY ready_at LIMIT $2::bigint) y ORDER BY y.ready_at OFFSET"
    " $2::bigint - 1 LIMIT 1), 9223372036854775807) ORDER BY ready_at LIMIT 100 FOR UPDATE SKIP LOCKED),"
    " d AS (DELETE FROM @queue q USING o, n WHERE q.instance_id = o.instance_id AND q.queue IS NOT NULL AND q.due_ms <="
    " n.now RETURNING q.instance_id, q.order_ms, q.id, q.json),"
    " b AS (INSERT INTO @dead_letters (instance_id, reason, at_ms, json) SELECT d.instance_id, '" DUR__NO_INSTANCE
    "', n.now, d.json FROM d, n ORDER BY d.order_ms, d.id),"
    " m AS (SELECT o.instance_id, min(q.order_ms) FILTER (WHERE q.queue IS NOT NULL) AS at, count(q.id) + (SELECT"
    " count(*) FROM @worker w WHERE w.instance_id = o.instance_id) AS rest FROM o CROSS JOIN n LEFT JOIN @queue q ON"
    " q.instance_id = o.instance_id AND NOT (q.queue IS NOT NULL AND q.due_ms <= n.now) GROUP BY o.instance_id),"
    " x AS (DELETE FROM @instances i USING m WHERE i.instance_id = m.instance_id AND m.rest = 0)"
    " UPDATE @instances i SET ready_at = m.at, ready_due = coalesce(m.at, 0) FROM m WHERE i.instance_id = m.instance_id"
    " AND m.rest > 0";
/* clang-format on */

/* $11: the handlers.  Of each the first, and of those the first: no other row is looked at.  $12: whoever asks runs
   nothing, and can only write the rows of what was local. */
/* clang-format off */
#define CLAIM(which, order)                                                                                            \
    "WITH RECURSIVE " DUR__PG_HANDLERS("ha", "@instances", FREE, "$11::text[]") ","                                    \
    " n AS MATERIALIZED (SELECT #now AS now),"                                                                         \
    " f AS MATERIALIZED (SELECT x.* FROM ha CROSS JOIN LATERAL (SELECT instance_id, token, acquisitions, ready_at,"    \
    " crashes_alone FROM @instances WHERE handler = ha.h AND " CLAIMABLE which " AND ready_at >= $10::bigint AND"      \
    " (NOT $12::boolean OR look > 0) AND ($6::text IS NULL OR EXISTS (SELECT 1 FROM @owners o WHERE o.owner ="         \
    " $6::text AND o.dead = 0)) ORDER BY " order " LIMIT $2::bigint FOR UPDATE SKIP LOCKED) x),"                       \
    " c AS (SELECT instance_id, token, acquisitions FROM f ORDER BY " order " LIMIT $2::bigint),"                      \
    " k AS (SELECT instance_id, row_number() OVER () AS at FROM c),"                                                   \
    " i0 AS (SELECT instance_id, acquisitions, 0 AS less FROM c WHERE token IS NOT NULL)," /* its lock has ended */    \
    " " DUR__PG_TAKE_BACK ","                                                                                          \
    " u AS (UPDATE @instances i SET token = $9::text || '-' || k.at, owner = $6::text, holder = $7::bigint,"           \
    " expires_at = CASE WHEN $6::text IS NULL THEN n.now + $8::bigint END, acquisitions = i.acquisitions + 1,"         \
    " crashes = CASE WHEN i.acquisitions > 0 THEN i.crashes ELSE 0 END,"                                               \
    " crashes_alone = CASE WHEN i.acquisitions > 0 THEN i.crashes_alone ELSE 0 END, runs_alone = $3::bigint = 2,"      \
    " not_before = 0, ready_at = -1, ready_due = 0 FROM k, n WHERE i.instance_id = k.instance_id RETURNING k.at,"      \
    " i.instance_id, i.token, i.name, i.version, i.current_execution, i.look, i.acquisitions, i.crashes, "             \
    DUR__PG_CRASHES_ALONE("i", "0") " AS crashes_alone) SELECT * FROM u ORDER BY at"
/* clang-format on */

static const char claim_sql[] = CLAIM("", "ready_at");
static const char claim_suspects_sql[] = CLAIM(" AND crashes >= 2", "crashes_alone, ready_at"); /* by their index */

static const char history_sql[] =
    "SELECT h.instance_id, " DUR__PG_BLOCK " FROM @instances i JOIN @history h ON h.instance_id = i.instance_id AND"
    " h.execution_id = i.current_execution WHERE i.holder = $2::bigint AND i.ready_at = -1 ORDER BY h.instance_id,"
    " h.first_id";
/* Before the messages: whoever ends an activity between the two would leave neither its row nor its end to be seen. */
/* clang-format off */
static const char works_sql[] =
    "SELECT i.instance_id, coalesce("
    DUR__PG_LAST("h.instance_id = i.instance_id AND h.execution_id = i.current_execution") ", 0), (SELECT"
    " string_agg(w.activity_id::text, ' ' ORDER BY w.activity_id) FROM @worker w WHERE w.instance_id = i.instance_id AND"
    " w.execution_id = greatest(i.current_execution, 1)) FROM @instances i WHERE i.holder = $2::bigint AND i.ready_at ="
    " -1 ORDER BY i.instance_id";
/* clang-format on */
static const char kv_sql[] =
    "SELECT k.instance_id, k.key, k.value, k.stamp_ms FROM @instances i JOIN @kv k ON k.instance_id = i.instance_id"
    " WHERE i.holder = $2::bigint AND i.ready_at = -1 ORDER BY k.instance_id, k.key";

/*
 * Rows of the holder that somebody has sent something to are locked before what was sent is read: whoever comes later
 * waits, and sets ready_at again.  Who could not be locked is for the next look.
 */
static const char look_sql[] =
    "SELECT count(*) FROM (SELECT 1 FROM @instances WHERE holder = $2::bigint AND ready_at >= 0"
    " AND ready_at <= #now FOR UPDATE SKIP LOCKED) t";
#define LOCKED_BY_US "xmax = pg_current_xact_id_if_assigned()::xid"

/*
 * What is handed out to the rows that were claimed or locked: every visible plain message that the holder was not given
 * (fresh: all of them) and the first $3 (fresh: $4) of each queue, those that it has already included.  Everything is
 * found by an index from its beginning, so a long backlog costs nothing: w steps from one queue's name to the next.
 * ready_at becomes the time of the first message that is not visible yet.  Under a timed lock it stays what it would be
 * without the lock: when that ends, the place in the line is kept.
 *
 * An acquisition counts an attempt; what is handed to a lease that is held is told like one, and not kept
 * (DUR__PG_TAKE_BACK).
 */
static const char give_sql[] =
    "WITH RECURSIVE n AS MATERIALIZED (SELECT #now AS now),"
    " d AS MATERIALIZED (SELECT instance_id, token, owner, ready_at = -1 AS fresh, CASE WHEN ready_at = -1 THEN"
    " $4::bigint ELSE $3::bigint END AS most FROM @instances WHERE holder = $2::bigint AND ready_at <= (SELECT now FROM"
    " n) AND (ready_at = -1 OR " LOCKED_BY_US ")),"
    " w AS (SELECT d.instance_id, d.token, d.fresh, d.most, (SELECT min(q.queue) FROM @queue q WHERE q.instance_id ="
    " d.instance_id AND q.queue IS NOT NULL) AS queue FROM d UNION ALL SELECT w.instance_id, w.token, w.fresh, w.most,"
    " (SELECT min(q.queue) FROM @queue q WHERE q.instance_id = w.instance_id AND q.queue > w.queue) FROM w WHERE"
    " w.queue IS NOT NULL),"
    " c0 AS (SELECT d.instance_id, d.token, d.fresh, d.most, x.id, x.given, 0::bigint AS at FROM d, LATERAL (SELECT"
    " q.id, q.delivered <> 0 AS given FROM @queue q WHERE q.instance_id = d.instance_id AND q.queue IS NULL AND"
    " q.due_ms <= (SELECT now FROM n) OFFSET 0) x WHERE d.fresh OR NOT x.given UNION ALL SELECT w.instance_id, w.token,"
    " w.fresh, w.most, x.id, x.given AND NOT w.fresh, row_number() OVER (PARTITION BY w.instance_id, w.queue ORDER BY"
    " x.order_ms, x.id) FROM w, LATERAL (SELECT q.id, q.delivered <> 0 AS given, q.order_ms FROM @queue q WHERE"
    " q.instance_id = w.instance_id AND q.queue = w.queue AND q.due_ms <= (SELECT now FROM n) ORDER BY q.order_ms, q.id"
    " LIMIT nullif(w.most, 0) + 1) x WHERE w.queue IS NOT NULL),"
    " c AS (SELECT c0.*, bool_or(c0.most > 0 AND c0.at > c0.most AND NOT c0.given) OVER (PARTITION BY c0.instance_id)"
    " AS more FROM c0),"
    " u AS (UPDATE @queue q SET delivered = $5::bigint, attempts = CASE WHEN c.fresh THEN q.attempts + 1 ELSE"
    " -q.attempts END FROM c WHERE (c.fresh OR NOT c.given) AND (c.most = 0 OR c.at <= c.most) AND q.instance_id ="
    " c.instance_id AND q.id = c.id RETURNING q.instance_id, c.token, c.fresh, q.id, q.order_ms, CASE WHEN c.fresh THEN"
    " q.attempts ELSE 1 - q.attempts END, q.queue, q.json, c.more, q.kind),"
    " m AS (SELECT y.instance_id, min(y.at) AS at, min(y.due) AS due, bool_or(y.timed) AS timed FROM (SELECT"
    " d.instance_id, CASE WHEN d.owner IS NULL THEN (SELECT min(q.order_ms) FROM @queue q WHERE q.instance_id ="
    " d.instance_id) ELSE (SELECT min(q.due_ms) FROM @queue q WHERE q.instance_id = d.instance_id AND q.queue IS NULL"
    " AND q.due_ms > (SELECT now FROM n)) END AS at, CASE WHEN d.owner IS NULL THEN (SELECT min(q.due_ms) FROM @queue q"
    " WHERE q.instance_id = d.instance_id) END AS due, d.owner IS NULL AS timed FROM d UNION ALL SELECT w.instance_id,"
    " (SELECT min(q.order_ms) FROM @queue q WHERE q.instance_id = w.instance_id AND q.queue = w.queue AND q.order_ms >"
    " (SELECT now FROM n) AND q.due_ms > 0), NULL, false FROM w WHERE w.queue IS NOT NULL) y GROUP BY y.instance_id),"
    " r AS (UPDATE @instances i SET ready_at = m.at, ready_due = coalesce(CASE WHEN m.timed THEN m.due ELSE m.at END,"
    " 0) FROM m WHERE i.instance_id = m.instance_id)"
    " SELECT u.*, CASE WHEN u.fresh AND u.kind = 0 THEN coalesce((SELECT s.due_ms > (SELECT now FROM n) FROM @queue s"
    " JOIN @instances i ON i.instance_id = s.instance_id AND NOT (i.has_row OR i.has_history) WHERE s.instance_id ="
    " u.instance_id AND s.queue IS NULL AND s.kind IN " DUR__PG_STARTS " ORDER BY s.id LIMIT 1), false) ELSE false END"
    " FROM u ORDER BY u.order_ms, u.id";

/*
 * While a batch takes things under an owner's name nobody may take that owner for dead: whoever does deletes the rows
 * of its lanes, and locks its own row for that.  In a lane it is the lane's row that is locked, and a batch of a
 * session that the lane has given up takes nothing any more.  Where the owner is dead the statements behind this find
 * that. A shared lock under the fence's key, for which nobody waits, tells whose batch it is (pg_owner_end.c).
 */
static const char lane_fence_sql[] =
    "SELECT 1 / (CASE WHEN count(*) FILTER (WHERE l.session <> $3::bigint) = 0 AND ($4::bigint = 0 OR count(*) = 1)"
    " THEN 1 ELSE 0 END), pg_advisory_xact_lock_shared($5::bigint) FROM (SELECT session FROM @lanes WHERE holder ="
    " $2::bigint FOR NO KEY UPDATE) l";
static const char owner_fence_sql[] =
    "SELECT 1, pg_advisory_xact_lock_shared($3::bigint) FROM @owners WHERE owner = $2::text FOR KEY SHARE";

int64_t dur__pg_fence_key(const dur__pg *store, const char *owner) {
    return dur__pg_owner_key(store, owner) ^ 1;
}

void dur__pg_lane_fence_add(dur__pg_batch *batch, const dur__pg_lane *lane, bool births) {
    dur__pg_args args;
    dur__pg_args_begin(lane->store, &args);
    dur__pg_i64(&args, lane->holder);
    dur__pg_i64(&args, (int64_t)lane->session);
    dur__pg_i64(&args, births);
    dur__pg_i64(&args, dur__pg_fence_key(lane->store, lane->owner));
    dur__pg_batch_add(batch, lane_fence_sql, &args);
}

void dur__pg_owner_fence_add(dur__pg_batch *batch, const char *owner) {
    dur__pg_args args;
    dur__pg_args_of(batch->conn->store, &args, owner);
    dur__pg_i64(&args, dur__pg_fence_key(batch->conn->store, owner));
    dur__pg_batch_add(batch, owner_fence_sql, &args);
}

void dur__pg_range_args(dur__pg_args *args, const dur_capability_filter *filter, dur__pg_range *texts) {
    bool filtered = filter != NULL && filter->count > 0;
    dur__pg_text(args, filtered ? dur__pg_pin(filter->ranges[0].min, texts->least) : NULL);
    dur__pg_text(args, filtered ? dur__pg_pin(filter->ranges[0].max, texts->most) : NULL);
}

static void claim_args(const dur__pg_batch *batch, dur__pg_args *args, const dur_fetch *how, dur__pg_range *texts) {
    dur__pg_args_begin(batch->conn->store, args);
    dur__pg_i64(args, how->max > 0 ? (int64_t)how->max : 1);
    dur__pg_i64(args, (int64_t)how->kind);
    dur__pg_range_args(args, how->filter, texts);
}

static int send_claim(dur__pg_batch *batch, const dur_fetch *how, int64_t holder, const char *prefix, uint64_t low_ms,
                      bool runs_nothing) {
    static const char *const no_handler[] = { "" };
    static const dur_handler_filter nothing = { no_handler, 1 };
    dur__pg_args args;
    dur__pg_range texts;
    if (!runs_nothing) {
        claim_args(batch, &args, how, &texts);
        dur__pg_handlers(&args, how->handlers);
        dur__pg_batch_add(batch, bury_sql, &args);
    }
    claim_args(batch, &args, how, &texts);
    dur__pg_text(&args, how->owner);
    dur__pg_i64(&args, holder);
    dur__pg_u64(&args, how->lock_ms);
    dur__pg_text(&args, prefix);
    dur__pg_i64(&args, (int64_t)low_ms);
    dur__pg_handlers(&args, runs_nothing ? &nothing : how->handlers);
    dur__pg_bool(&args, runs_nothing);
    return dur__pg_batch_add(batch, how->kind == DUR_FETCH_SUSPECT ? claim_suspects_sql : claim_sql, &args);
}

static int send_for_holder(dur__pg_batch *batch, const char *sql, int64_t holder) {
    dur__pg_args args;
    dur__pg_args_begin(batch->conn->store, &args);
    dur__pg_i64(&args, holder);
    return dur__pg_batch_add(batch, sql, &args);
}

void dur__pg_fetch_add(dur__pg_batch *batch, const dur_fetch *how, int64_t holder, uint32_t held_queue_max,
                       const char *token_prefix, uint64_t low_ms, int64_t round, dur__pg_fetch_plan *plan) {
    dur__pg_args args;
    *plan = (dur__pg_fetch_plan){ -1, -1, -1, -1, -1 };
    bool none = how != NULL && ((how->filter != NULL && how->filter->count == 0) ||
                                (how->handlers != NULL && how->handlers->count == 0));
    if (how != NULL) {
        plan->claim_at = send_claim(batch, how, holder, token_prefix, low_ms, none);
        plan->works_at = send_for_holder(batch, works_sql, holder);
        if (!how->without_history) {
            plan->history_at = send_for_holder(batch, history_sql, holder);
            plan->kv_at = send_for_holder(batch, kv_sql, holder);
        }
    }
    send_for_holder(batch, look_sql, holder);
    dur__pg_args_begin(batch->conn->store, &args);
    dur__pg_i64(&args, holder);
    dur__pg_i64(&args, held_queue_max);
    dur__pg_i64(&args, how != NULL ? how->queue_messages_max : 0);
    dur__pg_i64(&args, round);
    plan->give_at = dur__pg_batch_add(batch, give_sql, &args);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Rows of one instance lie together: the part of them that is its own. */
static int rows_from(const PGresult *rows, const char *instance, int *count) {
    int low = 0, high = PQntuples(rows);
    *count = 0;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (strcmp(PQgetvalue(rows, middle, 0), instance) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    while (low + *count < PQntuples(rows) && strcmp(PQgetvalue(rows, low + *count, 0), instance) == 0)
        (*count)++;
    return low;
}

static void read_history(const PGresult *rows, dur_arena *arena, dur_orchestration_item *item) {
    int count, from = rows_from(rows, item->instance, &count);
    item->history = dur__pg_read_blocks(rows, from, count, 1, item->instance, arena, &item->history_count);
}

/* Its last event, and the activities of its worker rows, in a text with blanks between them. */
static void read_works(const PGresult *rows, dur_arena *arena, dur_orchestration_item *item) {
    int count, from = rows_from(rows, item->instance, &count);
    if (count == 0) return;
    const char *at = dur__pg_get(rows, from, 2);
    uint64_t *works = dur_arena_alloc(arena, (at != NULL ? strlen(at) / 2 + 1 : 1) * sizeof(*works));
    item->last_event_id = dur__pg_get_u64(rows, from, 1);
    for (char *end; at != NULL && *at != '\0'; at = *end == ' ' ? end + 1 : end)
        works[item->work_count++] = strtoull(at, &end, 10);
    item->works = works;
    item->works_known = true;
}

static void read_kv(const PGresult *rows, dur_arena *arena, dur_orchestration_item *item) {
    int count, from = rows_from(rows, item->instance, &count);
    item->kv = dur__pg_read_values(rows, from, count, 1, arena);
    item->kv_count = (size_t)count;
}

dur_fetched_message dur__pg_read_message(const PGresult *rows, int row, int column, dur_arena *arena) {
    return (dur_fetched_message){
        .id = dur__pg_get_u64(rows, row, column),
        .due_ms = dur__pg_get_u64(rows, row, column + 1),
        .attempt_count = (uint32_t)dur__pg_get_u64(rows, row, column + 2),
        .queue = dur__pg_get_text(rows, row, column + 3, arena),
        .json = dur__pg_get_json(rows, row, column + 4, arena),
    };
}

/* Messages come in their order, whoever they are for; each fresh item gets its own. */
static void read_messages(const PGresult *rows, dur_arena *arena, dur_orchestration_item *items, size_t count) {
    dur__map by_id;
    memset(&by_id, 0, sizeof(by_id));
    for (size_t i = 0; i < count; i++)
        dur__map_put(&by_id, items[i].instance, &items[i]);
    for (int pass = 0; pass < 2; pass++) {
        for (int row = 0; row < PQntuples(rows); row++) {
            dur_orchestration_item *item =
                dur__pg_get_bool(rows, row, 2) ? dur__map_get(&by_id, PQgetvalue(rows, row, 0)) : NULL;
            if (item == NULL) continue;
            if (pass == 1) {
                dur_fetched_message *message = (dur_fetched_message *)(uintptr_t)&item->messages[item->message_count];
                *message = dur__pg_read_message(rows, row, 3, arena);
                if (message->attempt_count > item->attempt_count) item->attempt_count = message->attempt_count;
                if (dur__pg_get_bool(rows, row, 8)) item->more_messages = true;
                if (dur__pg_get_bool(rows, row, 10)) item->start_later = true;
            }
            item->message_count++;
        }
        for (size_t i = 0; pass == 0 && i < count; i++) {
            items[i].messages = dur_arena_zalloc(arena, (items[i].message_count + 1) * sizeof(dur_fetched_message));
            items[i].message_count = 0;
        }
    }
    dur__map_free(&by_id);
}

static void read_held(const PGresult *rows, dur_arena *arena, dur_held_message **held, size_t *held_count) {
    *held_count = 0;
    *held = dur_arena_zalloc(arena, ((size_t)PQntuples(rows) + 1) * sizeof(**held));
    for (int row = 0; row < PQntuples(rows); row++) {
        if (dur__pg_get_bool(rows, row, 2)) continue;
        dur_held_message *message = &(*held)[(*held_count)++];
        message->instance = dur__pg_get_text(rows, row, 0, arena);
        message->lock_token = dur__pg_get_text(rows, row, 1, arena);
        message->message = dur__pg_read_message(rows, row, 3, arena);
    }
}

static void read_item(const dur__pg_batch *batch, const dur__pg_fetch_plan *plan, int row, dur_arena *arena,
                      dur_orchestration_item *item) {
    const PGresult *claims = batch->results[plan->claim_at];
    item->instance = dur__pg_get_text(claims, row, 1, arena);
    item->lock_token = dur__pg_get_text(claims, row, 2, arena);
    item->orchestration_name = dur__pg_get_text(claims, row, 3, arena);
    item->version = dur__pg_get_text(claims, row, 4, arena);
    item->execution_id = dur__pg_get_u64(claims, row, 5);
    if (item->execution_id == 0) item->execution_id = 1;
    item->work_lost = dur__pg_get_i64(claims, row, 6) > 0;
    item->acquisitions = (uint32_t)dur__pg_get_u64(claims, row, 7);
    item->crashes = (uint32_t)dur__pg_get_u64(claims, row, 8);
    item->crashes_alone = (uint32_t)dur__pg_get_u64(claims, row, 9);
    read_works(batch->results[plan->works_at], arena, item);
    if (plan->history_at < 0) return;
    read_history(batch->results[plan->history_at], arena, item);
    read_kv(batch->results[plan->kv_at], arena, item);
}

void dur__pg_fetch_read(const dur__pg_batch *batch, const dur__pg_fetch_plan *plan, dur_arena *arena,
                        dur_orchestration_item **items, size_t *count, dur_held_message **held, size_t *held_count) {
    size_t claimed = plan->claim_at >= 0 ? (size_t)PQntuples(batch->results[plan->claim_at]) : 0;
    *items = dur_arena_zalloc(arena, (claimed + 1) * sizeof(**items));
    *count = claimed;
    for (size_t i = 0; i < claimed; i++)
        read_item(batch, plan, (int)i, arena, &(*items)[i]);
    read_messages(batch->results[plan->give_at], arena, *items, claimed);
    if (held != NULL) read_held(batch->results[plan->give_at], arena, held, held_count);
}

/* ---- fetching outside a lane ------------------------------------------------------------------------------------- */

static int fetch_once(dur__pg *store, dur_arena *arena, const dur_fetch *how, dur_orchestration_item **items,
                      size_t *count, dur_error *err) {
    dur__pg_conn *conn;
    dur__pg_batch batch;
    dur__pg_fetch_plan plan;
    char prefix[DUR__PG_TOKEN_SIZE];
    int code = dur__pg_borrow(store, &conn, err);
    *count = 0;
    if (code != DUR_OK) return code;
    int backend = conn->backend;
    dur__pg_token(store, prefix);
    dur__pg_batch_begin(&batch, conn, true);
    if (how->owner != NULL) dur__pg_owner_fence_add(&batch, how->owner);
    dur__pg_fetch_add(&batch, how, dur__pg_random_holder(store), 0, prefix, 0, DUR__PG_NO_ROUND, &plan);
    code = dur__pg_batch_run(&batch, "postgres.fetch", err);
    if (code == DUR_OK) dur__pg_fetch_read(&batch, &plan, arena, items, count, NULL, NULL);
    dur__pg_batch_end(&batch);
    code = dur__pg_undo_unknown(conn, backend, prefix, code, err);
    dur__pg_return(conn);
    return code;
}

static int fetch_some(dur__pg *store, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                      size_t *count, dur_error *err) {
    dur_orchestration_item *items = NULL;
    uint64_t deadline = dur__pg_deadline(store->long_poll ? how->poll_ms : 0);
    int code;
    do {
        code = fetch_once(store, arena, how, &items, count, err);
    } while (code == DUR_OK && *count == 0 && dur__pg_poll_pause(store, deadline));
    if (code == DUR_OK && *count > 0) memcpy(out, items, *count * sizeof(*out));
    return code;
}

int dur__pg_fetch_orchestration_item(dur_provider *self, dur_arena *arena, const dur_fetch *how,
                                     dur_orchestration_item *out, dur_error *err) {
    dur_fetch seeds = {
        .lock_ms = how->lock_ms, .poll_ms = how->poll_ms, .filter = how->filter, .handlers = how->handlers
    };
    size_t count = 0;
    memset(out, 0, sizeof(*out));
    return fetch_some(dur__pg_of(self), arena, &seeds, out, &count, err);
}

int dur__pg_fetch_turns(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                        size_t *count, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    int code = fetch_some(store, arena, how, out, count, err);
    if (code != DUR_OK || *count > 0 || how->owner == NULL) return code;
    return dur__pg_owner_check(store, "postgres.fetch", how->owner, DUR_ELEASE, err);
}

/* ---- giving back ------------------------------------------------------------------------------------------------- */

#define BY_TOKEN "token = $2::text AND (owner IS NOT NULL OR expires_at > #now)"
static const char lock_token_sql[] = "SELECT 1 FROM @instances WHERE " BY_TOKEN " FOR UPDATE";
/* clang-format off */
static const char abandon_sql[] =
    "WITH i0 AS (SELECT instance_id, acquisitions, $4::boolean::integer AS less, false AS died, CASE WHEN $3::bigint > 0"
    " THEN #now + $3::bigint ELSE 0 END AS until FROM @instances WHERE " BY_TOKEN "), " DUR__PG_END_LEASES
    " RETURNING 1";
/* clang-format on */

static const char sweep_sql[] = "DELETE FROM @instances i WHERE " BY_TOKEN " AND " DUR__PG_EMPTY " RETURNING 1";

int dur__pg_abandon_orchestration_item(dur_provider *self, const char *lock_token, uint64_t delay_ms,
                                       bool ignore_attempt, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_batch batch;
    int code = dur__pg_batch_open(&batch, store, true, err);
    if (code != DUR_OK) return code;
    dur__pg_batch_add_id(&batch, lock_token_sql, lock_token);
    int swept = dur__pg_batch_add_id(&batch, sweep_sql, lock_token);
    dur__pg_args_of(store, &args, lock_token);
    dur__pg_u64(&args, delay_ms);
    dur__pg_bool(&args, ignore_attempt);
    int at = dur__pg_batch_add(&batch, abandon_sql, &args);
    dur__pg_batch_notify(&batch);
    code = dur__pg_batch_run(&batch, "postgres.abandon", err);
    if (code == DUR_OK && PQntuples(batch.results[at]) + PQntuples(batch.results[swept]) == 0)
        code = dur_error_set(err, DUR_ELEASE, false, "postgres.abandon", "Invalid lock token");
    dur__pg_batch_end(&batch);
    dur__pg_wake(store, NULL, NULL);
    return code;
}

static const char renew_sql[] =
    "UPDATE @instances SET expires_at = CASE WHEN owner IS NULL THEN #now + $3::bigint END WHERE " BY_TOKEN
    " RETURNING 1";

int dur__pg_renew_orchestration_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms,
                                          dur_error *err) {
    dur__pg_args args;
    dur__pg_args_of(dur__pg_of(self), &args, lock_token);
    dur__pg_u64(&args, extend_ms);
    return dur__pg_write_locked(dur__pg_of(self), "postgres.renew", renew_sql, &args, err);
}

/* ---- a batch whose outcome was not learned ----------------------------------------------------------------------- */

/* Tokens of one batch share their prefix: '-' < '.' bounds the range. */
#define BY_PREFIX "token > $2::text || '-' AND token < $2::text || '.'"
static const char undo_lock_sql[] = "SELECT 1 FROM @instances WHERE " BY_PREFIX " ORDER BY instance_id FOR UPDATE";
static const char undo_instances_sql[] =
    "WITH i0 AS (SELECT instance_id, acquisitions, 1 AS less, false AS died, 0 AS until FROM @instances WHERE " BY_PREFIX
    "), " DUR__PG_END_LEASES;
static const char undo_works_sql[] = DUR__PG_GIVE_WORKS_BACK(BY_PREFIX);

int dur__pg_undo_claims(dur__pg_conn *conn, const char *token_prefix, dur_error *err) {
    dur__pg_batch batch;
    dur__pg_batch_begin(&batch, conn, true);
    dur__pg_batch_add_id(&batch, undo_lock_sql, token_prefix);
    dur__pg_batch_add_id(&batch, undo_instances_sql, token_prefix);
    dur__pg_batch_add_id(&batch, undo_works_sql, token_prefix);
    int code = dur__pg_batch_run(&batch, "postgres.undo", err);
    dur__pg_batch_end(&batch);
    return code;
}

int dur__pg_undo_unknown(dur__pg_conn *conn, int backend, const char *token_prefix, int code, dur_error *err) {
    int undone = code;
    for (int tries = 0; code == DUR_EUNKNOWN && undone != DUR_OK && tries < UNDO_TRIES; tries++) {
        undone = dur__pg_connect(conn, NULL);
        if (undone == DUR_OK) undone = dur__pg_end_session(conn, backend, NULL);
        if (undone == DUR_OK) undone = dur__pg_undo_claims(conn, token_prefix, NULL);
        if (undone != DUR_OK) (void)poll(NULL, 0, UNDO_PAUSE_MS);
    }
    if (code != DUR_EUNKNOWN || undone != DUR_OK) return code;
    return dur_error_set(err, DUR_EUNAVAILABLE, true, "postgres.fetch",
                         "the connection was lost; whatever was taken has been given back");
}
