/*
 * pg_turn.c: the rows of the instances that a commit is about: made, locked, compared, written.
 *
 * The instance's row is the fence of its lease: whoever ends a lease locks it FOR UPDATE, and a commit locks it and
 * compares the token.  An instance that only goes on is locked FOR KEY SHARE, which holds up nobody who sends to it;
 * its row is not written.  So of what a turn writes nothing is repeated there that history says.
 */
#include "provider/postgres/pg_turn.h"
#include "base/assert.h"
#include "provider/postgres/pg_pieces.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    WRITES = 1,
    HAS_EVENTS = 2,
    NAMES = 4,
    SETS_STATUS = 8,
    KEEPS = 16,
    UNCOUNTS = 32,
    TAKES_OVER = 64,
    SUSPENDS = 128,
    LEAVES_COUNTS = 256,
    IF_UNLEASED = 512,
    ENDS = 1024, /* for good */
    BARE_END = 2048
};

static int64_t flags_of(const dur__pg_part *part) {
    const dur__turn_facts *facts = &part->facts;
    return (facts->writes ? WRITES : 0) | (part->turn->event_count > 0 ? HAS_EVENTS : 0) | (facts->names ? NAMES : 0) |
           (dur__turn_custom_status(part->turn) != NULL ? SETS_STATUS : 0) | (facts->keeps ? KEEPS : 0) |
           (facts->uncounts ? UNCOUNTS : 0) | (facts->take_over ? TAKES_OVER : 0) |
           (part->turn->if_unleased ? IF_UNLEASED : 0) | (facts->ends_instance ? ENDS : 0) |
           (facts->suspends || facts->resumes ? SUSPENDS : 0) | (part->bare_end ? BARE_END : 0) |
           (!facts->uncounts && !facts->clears_counts ? LEAVES_COUNTS : 0);
}

/* ---- what becomes of an instance's row --------------------------------------------------------------------------- */

bool dur__pg_touches_values(const dur_turn_commit *turn) {
    for (size_t i = 0; i < turn->event_count; i++) {
        dur_event_kind kind = turn->events[i].kind;
        if (kind == DUR_EVENT_KEY_VALUE_SET || kind == DUR_EVENT_KEY_VALUE_CLEARED ||
            kind == DUR_EVENT_KEY_VALUES_CLEARED)
            return true;
    }
    return false;
}

static bool has_recovered(const dur_turn_commit *turn) {
    for (size_t i = 0; i < turn->worker_item_count; i++)
        if (turn->worker_items[i].recovered) return true;
    return false;
}

/* It changes nothing of the row: the lane has had its lease before, and has said there what was to be said. */
static bool only_goes_on(const dur__pg_part *part) {
    const dur_turn_commit *turn = part->turn;
    const dur__pg_lease *lease = part->lease;
    return lease != NULL && lease->committed && part->facts.keeps && !part->facts.names &&
           !turn->metadata.has_pinned_version && turn->metadata.status == DUR_STATUS_NONE && !part->facts.resumes &&
           !part->facts.takes_given && dur__turn_custom_status(turn) == NULL && lease->last != 0 &&
           (!part->facts.writes || lease->execution == turn->execution_id);
}

/* An end of which the lane knows that the row alone is to be written. */
static bool is_bare_end(const dur__pg_part *part, const dur__pg_lane *lane) {
    const dur_turn_commit *turn = part->turn;
    bool over = part->facts.ends_instance && !part->facts.take_over && !turn->remove_work && turn->consume_listed &&
                turn->orchestrator_item_count == 0 && !dur__pg_touches_values(turn) && !turn->set_suspended &&
                turn->delay_ms == 0;
    if (!over || part->facts.born) return over;
    return part->lease != NULL && part->lease->bare && part->lease->execution == turn->execution_id &&
           (dur__pg_takes_only_timers(lane, turn) || turn->expected_last == 0) &&
           dur__pg_leaves_no_timer(lane, part->lease, turn);
}

static bool is_in_place(const dur__pg_part *part) {
    const dur_turn_commit *turn = part->turn;
    uint64_t last = part->facts.born ? 0 : part->lease != NULL ? part->lease->last : DUR_NOT_COMPARED;
    bool same = part->facts.born || (part->lease != NULL && part->lease->execution == turn->execution_id);
    return same && last != DUR_NOT_COMPARED && turn->expected_last == last && turn->event_count > 0 &&
           turn->events[0].event_id == last + 1 && dur__pg_events_are_new(turn);
}

static void part_begin(dur__pg_part *part, dur__pg_lane *lane, dur_turn_commit *turn) {
    *part = (dur__pg_part){ .turn = turn, .facts = dur__turn_facts_of(turn) };
    bool owned = lane != NULL && lane->owner != NULL;
    if (owned && !turn->take_over && (turn->owner == NULL || strcmp(turn->owner, lane->owner) == 0))
        part->lease = dur__pg_lease_of(lane, turn);
    part->updates = !part->facts.born && !only_goes_on(part);
    part->keeps_timers = owned && (part->lease != NULL || part->facts.born) && dur__pg_sends_only_timers(turn);
    part->bare_end = owned && is_bare_end(part, lane);
    part->in_place = is_in_place(part) && (part->facts.born || (lane != NULL && lane->server_start != 0));
    bool queued = turn->consumed_count > 0 && !part->facts.born && (part->lease == NULL || !part->lease->bare) &&
                  !(owned && dur__pg_takes_only_timers(lane, turn));
    /* What is taken out of a queue, or written before the row is, needs the lock that a sender takes. */
    part->locks = (part->updates && part->lease == NULL) || part->facts.take_over || has_recovered(turn) || queued ||
                  (part->facts.writes && part->lease != NULL && part->lease->execution != turn->execution_id);
}

void dur__pg_parts_begin(dur__pg_parts *parts, dur__pg_lane *lane, dur_turn_commit **turns, size_t count) {
    *parts = (dur__pg_parts){ lane, dur__xmalloc((count + 1) * sizeof(dur__pg_part)), count };
    for (size_t i = 0; i < count; i++)
        part_begin(&parts->all[i], lane, turns[i]);
}

void dur__pg_parts_end(dur__pg_parts *parts) {
    dur__free(parts->all);
}

bool dur__pg_item_is_local(const dur__pg_lane *lane, const dur_turn_commit *turn, const dur_turn_work *item) {
    return lane != NULL && lane->owner != NULL && dur__turn_asks_local(turn, item) &&
           strcmp(turn->owner, lane->owner) == 0;
}

void dur__pg_send_ids(dur__pg_batch *batch, const char *sql, const dur__pg_parts *parts, dur__pg_part_test *test) {
    dur__pg_table ids = dur__pg_table_of("t");
    for (size_t i = 0; i < parts->count; i++)
        if (test(&parts->all[i])) dur__pg_put_text(&ids, parts->all[i].turn->instance);
    dur__pg_batch_add_rows(batch, sql, &ids);
}

/* The parts that pass, in order of their instances' ids: so rows are locked in order. */
static int by_instance(const void *a, const void *b) {
    const dur__pg_part *const *x = a, *const *y = b;
    return strcmp((*x)->turn->instance, (*y)->turn->instance);
}

static size_t in_order(const dur__pg_parts *parts, dur__pg_part_test *test, const dur__pg_part ***out) {
    size_t count = 0;
    *out = dur__xmalloc((parts->count + 1) * sizeof(const dur__pg_part *));
    for (size_t i = 0; i < parts->count; i++)
        if (test(&parts->all[i])) (*out)[count++] = &parts->all[i];
    qsort(*out, count, sizeof(**out), by_instance);
    return count;
}

static bool is_updated(const dur__pg_part *part) {
    return part->updates;
}

static bool only_compares(const dur__pg_part *part) {
    return !part->updates && !part->facts.born;
}

/* What a commit says of a row that it makes or writes. */
#define ROWS                                                                                                           \
    "SELECT unnest($2::text[]) AS id, unnest($3::text[]) AS token, unnest($4::bigint[]) AS execution,"                 \
    " unnest($5::bigint[]) AS flags, unnest($6::text[]) AS name, unnest($7::text[]) AS version, unnest($8::text[]) AS" \
    " parent, unnest($9::text[]) AS pin, unnest($10::text[]) AS custom, unnest($11::bigint[]) AS birth,"               \
    " unnest($12::bigint[]) AS status, unnest($13::text[]) AS output, unnest($14::text[]) AS suspended,"               \
    " unnest($15::text[]) AS owner"
#define ROW_TYPES                                                                                                      \
    "ttiittttt"                                                                                                        \
    "iittt"

static void put_row(dur__pg_table *rows, const dur__pg_part *part) {
    const dur_turn_commit *turn = part->turn;
    const dur_execution_metadata *metadata = &turn->metadata;
    const dur_event_row *custom = dur__turn_custom_status(turn);
    char pin[DUR__PG_PIN_SIZE];
    dur__pg_put_text(rows, turn->instance);
    dur__pg_put_text(rows, turn->lock_token);
    dur__pg_put_id(rows, turn->execution_id);
    dur__pg_put_i64(rows, flags_of(part));
    dur__pg_put_text(rows, metadata->orchestration_name);
    dur__pg_put_text(rows, metadata->orchestration_version);
    dur__pg_put_text(rows, metadata->parent_instance_id);
    dur__pg_put_text(rows, metadata->has_pinned_version ? dur__pg_pin(metadata->pinned_version, pin) : NULL);
    dur__pg_put_text(rows, custom != NULL ? custom->value : NULL);
    dur__pg_put_id(rows, metadata->birth);
    dur__pg_put_i64(rows, (int64_t)metadata->status);
    dur__pg_put_text(rows, metadata->status != DUR_STATUS_NONE ? metadata->output : NULL);
    dur__pg_put_text(rows, part->facts.suspends ? turn->suspended : NULL);
    dur__pg_put_text(rows, turn->owner);
}

/* ---- 1: made and locked ------------------------------------------------------------------------------------------ */

/*
 * Rows that are missing are made and all of them locked, in one pass in order of ids: those that begin with this commit
 * with all that they are, those of targets as a trace of nothing.  Somebody has made the instance: refused.
 */
#define BIRTHS(column)                                                                                                 \
    "WITH n AS MATERIALIZED (SELECT #now AS now), t AS MATERIALIZED (SELECT DISTINCT ON (x.id COLLATE \"C\") x.* FROM" \
    " (" ROWS " UNION ALL SELECT l.id, NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL, NULL FROM"          \
    " unnest($16::text[]) AS l(id)) x ORDER BY x.id COLLATE \"C\", x.flags DESC),"                                     \
    " m AS (INSERT INTO @instances (instance_id, has_row, has_history, known, name, version, parent, birth,"           \
    " custom_status, custom_status_version, current_execution, pin, created_at, started_at, completed_at, token,"      \
    " owner, holder, status, output, next, next_execution, suspended)"                                                 \
    " SELECT t.id COLLATE \"C\", t.flags <> 0, t.flags & 2 <> 0, t.flags <> 0, t.name, t.version, t.parent,"           \
    " nullif(t.birth, 0), t.custom, t.flags >> 3 & 1, t.execution, t.pin::bigint[],"                                   \
    " CASE WHEN t.flags <> 0 THEN n.now ELSE 0 END, CASE WHEN t.flags <> 0 THEN n.now ELSE 0 END,"                     \
    " CASE WHEN t.status > 1 THEN n.now ELSE 0 END, CASE WHEN t.flags & 16 <> 0 THEN t.token END,"                     \
    " CASE WHEN t.flags & 16 <> 0 THEN $17::text END, CASE WHEN t.flags & 16 <> 0 THEN $18::bigint END,"               \
    " CASE WHEN t.flags <> 0 THEN greatest(t.status, 1) END, t.output, CASE WHEN t.flags & 1024 <> 0 THEN '' END,"     \
    " CASE WHEN t.flags & 1024 <> 0 THEN " DUR__PG_NEVER_BEGINS " ELSE 0 END, t.suspended FROM t, n ORDER BY 1"        \
    " ON CONFLICT (instance_id) DO UPDATE SET " column " = excluded." column " WHERE false RETURNING has_row)"         \
    " SELECT 1 / (CASE WHEN count(*) FILTER (WHERE has_row) = $19::bigint THEN 1 ELSE 0 END) FROM m"
static const char births_sql[] = BIRTHS("known");
static const char births_and_ends_sql[] = BIRTHS("instance_id"); /* locks FOR UPDATE (pg_message.c) */

static void send_births(dur__pg_batch *batch, const dur__pg_parts *parts, const dur__pg_outbox *box) {
    dur__pg_args args;
    dur__pg_table rows = dur__pg_table_of(ROW_TYPES);
    dur__pg_array locks = dur__pg_array_text();
    for (size_t i = 0; i < parts->count; i++)
        if (parts->all[i].facts.born) put_row(&rows, &parts->all[i]);
    int64_t count = rows.rows;
    dur__pg_add_all(&locks, &box->messages.columns[0]);
    dur__pg_add_all(&locks, &box->locks);
    dur__pg_args_begin(batch->conn->store, &args);
    dur__pg_table_args(&args, &rows);
    dur__pg_array_arg(&args, &locks);
    dur__pg_text(&args, parts->lane->owner);
    dur__pg_i64(&args, parts->lane->holder);
    dur__pg_i64(&args, count);
    dur__pg_batch_add(batch, box->ends_leases ? births_and_ends_sql : births_sql, &args);
}

void dur__pg_send_row_locks(dur__pg_batch *batch, const dur__pg_parts *parts, dur__pg_outbox *box) {
    bool any = box->messages.rows > 0, born = false, ends = false;
    for (size_t i = 0; i < parts->count; i++) {
        const dur__pg_part *part = &parts->all[i];
        any |= part->locks || part->facts.compares_parent;
        born |= part->facts.born;
        ends |= part->facts.take_over;
    }
    if (!any && !born) return; /* then the rows that are written are all that is waited for, in order of their ids */
    for (size_t i = 0; i < parts->count; i++) {
        const dur__pg_part *part = &parts->all[i];
        if (part->updates || part->locks) dur__pg_outbox_lock(box, part->turn->instance);
        if (part->facts.compares_parent) dur__pg_outbox_lock(box, part->turn->metadata.parent_instance_id);
    }
    DUR_ASSERT(!born || (parts->lane != NULL && parts->lane->owner != NULL));
    box->ends_leases = ends;
    if (born)
        send_births(batch, parts, box);
    else
        dur__pg_outbox_send_locks(box, batch);
}

/* ---- 1: written -------------------------------------------------------------------------------------------------- */

/*
 * $18: the lane, whose the lease is from now on.  Where the row is not locked by a statement before this one (only rows
 * of leases that the lane knows) nothing else is read: those neither take over nor bring an owner.
 */
#define OF_THIS "t.flags & 1 <> 0 AND t.execution >= i.current_execution"
#define BEGINS "t.execution > i.current_execution"
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
    " current_execution = CASE WHEN " OF_THIS " THEN t.execution ELSE i.current_execution END,"
    " status = CASE WHEN NOT (" OF_THIS ") THEN i.status WHEN t.status > 0 THEN t.status::smallint WHEN " BEGINS
    " OR i.status IS NULL THEN 1 ELSE i.status END,"
    " output = CASE WHEN NOT (" OF_THIS ") THEN i.output WHEN t.status > 0 THEN t.output WHEN " BEGINS " THEN NULL"
    " ELSE i.output END,"
    " started_at = CASE WHEN " OF_THIS " AND (" BEGINS " OR i.status IS NULL) THEN n.now ELSE i.started_at END,"
    " completed_at = CASE WHEN NOT (" OF_THIS
    ") THEN i.completed_at WHEN t.status > 1 THEN n.now WHEN t.status = 1 OR " BEGINS " THEN 0 ELSE i.completed_at END,"
    " pin = CASE WHEN NOT (" OF_THIS ") THEN i.pin WHEN " BEGINS " THEN t.pin::bigint[] ELSE coalesce(t.pin::bigint[],"
    " i.pin) END,"
    " next = CASE WHEN t.flags & 1024 <> 0 THEN '' ELSE i.next END,"
    " next_execution = CASE WHEN t.flags & 1024 <> 0 THEN " DUR__PG_NEVER_BEGINS " ELSE i.next_execution END,"
    " custom_status = CASE WHEN t.flags & 8 <> 0 THEN t.custom ELSE i.custom_status END,"
    " custom_status_version = i.custom_status_version + (t.flags >> 3 & 1),"
    " acquisitions = CASE WHEN t.flags & 256 <> 0 THEN i.acquisitions WHEN t.flags & 32 <> 0 THEN"
    " greatest(i.acquisitions - 1, 0) ELSE 0 END,"
    " look = CASE WHEN t.flags & 64 = 0 OR t.flags & 1024 <> 0 THEN 0 ELSE i.look END,"
    " suspended = CASE WHEN t.flags & 128 <> 0 THEN t.suspended WHEN t.flags & 1024 = 0 THEN i.suspended END,"
    " token = CASE WHEN t.flags & 16 <> 0 THEN i.token END,"
    " owner = CASE WHEN t.flags & 16 = 0 THEN NULL WHEN i.owner = t.owner OR t.owner IS NULL THEN i.owner"
    " ELSE coalesce((SELECT o.owner FROM @owners o WHERE o.owner = t.owner AND o.dead = 0), i.owner) END,"
    " expires_at = CASE WHEN t.flags & 16 <> 0 THEN i.expires_at END,"
    " holder = CASE WHEN t.flags & 16 <> 0 THEN coalesce($18::bigint, i.holder) END,"
    " ready_at = CASE WHEN t.flags & 16 <> 0 AND $18::bigint IS NOT NULL AND i.holder IS DISTINCT FROM $18::bigint"
    " THEN 0 WHEN t.flags & 2048 <> 0 AND i.ready_due = 0 AND i.ready_at IS NOT NULL THEN n.now ELSE i.ready_at END,"
    " ready_due = CASE WHEN t.flags & 16 <> 0 AND $18::bigint IS NOT NULL AND i.holder IS DISTINCT FROM $18::bigint"
    " THEN 0 ELSE i.ready_due END"
    " FROM n, (" ROWS ") t"
    " WHERE i.instance_id = t.id AND CASE WHEN t.flags & 64 <> 0 THEN i.known AND (t.flags & 512 = 0 OR"
    " i.token IS NULL OR (i.owner IS NULL AND i.expires_at <= n.now)) ELSE i.token = t.token AND"
    " (i.owner IS NOT NULL OR i.expires_at > n.now) END RETURNING 1)"
    " SELECT 1 / (CASE WHEN count(*) = $16::bigint AND ($17::bigint IS NULL OR $17::bigint = " DUR__PG_SERVER_START
    ") THEN 1 ELSE 0 END) FROM u";

/* Before the row says that nobody holds it: somebody else ends the lease, and what its runtime has alone goes on. */
static const char look_sql[] =
    "UPDATE @instances i SET look = " DUR__PG_LOOK_OF("i", "false") " WHERE i.instance_id ="
                                                                    " ANY ($2::text[]) AND i.token IS NOT NULL";

static bool takes_lease_away(const dur__pg_part *part) {
    return part->facts.take_over && !part->facts.ends_instance;
}

/* On which server the positions are what the lane knows. */
static void add_server(dur__pg_args *args, const dur__pg_parts *parts) {
    if (parts->lane != NULL && parts->lane->server_start != 0)
        dur__pg_i64(args, parts->lane->server_start);
    else
        dur__pg_null(args);
}

void dur__pg_send_rows(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_args args;
    const dur__pg_part **some;
    dur__pg_table rows = dur__pg_table_of(ROW_TYPES);
    size_t count = in_order(parts, is_updated, &some);
    dur__pg_send_ids(batch, look_sql, parts, takes_lease_away);
    for (size_t i = 0; i < count; i++)
        put_row(&rows, some[i]);
    dur__free(some);
    if (count == 0) return;
    dur__pg_args_begin(batch->conn->store, &args);
    dur__pg_table_args(&args, &rows);
    dur__pg_i64(&args, (int64_t)count);
    add_server(&args, parts);
    if (parts->lane != NULL)
        dur__pg_i64(&args, parts->lane->holder);
    else
        dur__pg_null(&args);
    dur__pg_batch_add(batch, rows_sql, &args);
}

/* ---- 2: those that only go on ------------------------------------------------------------------------------------ */

/* IS TRUE keeps the planner from going by the index of tokens. */
static const char fence_sql[] =
    "SELECT 1 / (CASE WHEN count(*) = $4::bigint AND ($5::bigint IS NULL OR $5::bigint = " DUR__PG_SERVER_START
    ") THEN 1 ELSE 0 END) FROM (SELECT 1 FROM (SELECT unnest($2::text[]) AS id, unnest($3::text[]) AS token) t JOIN"
    " @instances i ON i.instance_id = t.id WHERE (i.token = t.token) IS TRUE FOR KEY SHARE OF i SKIP LOCKED) l";

void dur__pg_send_fence(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_args args;
    const dur__pg_part **some;
    dur__pg_table rows = dur__pg_table_of("tt");
    size_t count = in_order(parts, only_compares, &some);
    for (size_t i = 0; i < count; i++) {
        dur__pg_put_text(&rows, some[i]->turn->instance);
        dur__pg_put_text(&rows, some[i]->turn->lock_token);
    }
    dur__free(some);
    if (count == 0) return;
    dur__pg_args_begin(batch->conn->store, &args);
    dur__pg_table_args(&args, &rows);
    dur__pg_i64(&args, (int64_t)count);
    add_server(&args, parts);
    dur__pg_batch_add(batch, fence_sql, &args);
}

/* ---- behind the locks -------------------------------------------------------------------------------------------- */

static const char positions_sql[] = "SELECT 1 / (CASE WHEN bool_and(t.expected = coalesce(" DUR__PG_LAST(
    "h.instance_id = t.id AND h.execution_id = t.execution") ", 0)) THEN 1 ELSE 0 END) FROM (SELECT"
                                                             " unnest($2::text[]) AS id, unnest($3::bigint[]) AS"
                                                             " execution, unnest($4::bigint[]) AS expected) t";

void dur__pg_send_positions(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_table rows = dur__pg_table_of("tii");
    for (size_t i = 0; i < parts->count; i++) {
        const dur__pg_part *part = &parts->all[i];
        if (!part->facts.compares_position || part->in_place) continue;
        dur__pg_put_text(&rows, part->turn->instance);
        dur__pg_put_id(&rows, part->turn->execution_id);
        dur__pg_put_id(&rows, part->turn->expected_last);
    }
    dur__pg_batch_add_rows(batch, positions_sql, &rows);
}

/* Before the row says that another one has begun; and one that is not the current one stands there from the beginning.
   An explicit "Running" is rare, and replaces what is there. */
static const char past_sql[] =
    "WITH n AS MATERIALIZED (SELECT #now AS now), t AS MATERIALIZED (SELECT unnest($2::text[]) AS id,"
    " unnest($3::bigint[]) AS execution, unnest($4::bigint[]) AS status, unnest($5::text[]) AS output), p AS (INSERT"
    " INTO @executions (instance_id, execution_id, status, output, started_at, completed_at) SELECT i.instance_id,"
    " i.current_execution, i.status, i.output, i.started_at, i.completed_at FROM t JOIN @instances i ON i.instance_id ="
    " t.id WHERE i.current_execution < t.execution AND i.status IS NOT NULL) INSERT INTO @executions (instance_id,"
    " execution_id, status, output, started_at, completed_at) SELECT t.id, t.execution, greatest(t.status, "
    "1)::smallint,"
    " t.output, n.now, CASE WHEN t.status > 1 THEN n.now ELSE 0 END FROM n, t JOIN @instances i ON i.instance_id = t.id"
    " WHERE t.execution < i.current_execution ON CONFLICT (instance_id, execution_id) DO UPDATE SET status ="
    " excluded.status, output = excluded.output, completed_at = excluded.completed_at WHERE EXISTS (SELECT 1 FROM t x"
    " WHERE x.id = excluded.instance_id AND x.execution = excluded.execution_id AND x.status > 0)";

#define PAST_TYPES "tiit"

void dur__pg_send_past_executions(dur__pg_batch *batch, const dur__pg_parts *parts) {
    dur__pg_table rows = dur__pg_table_of(PAST_TYPES);
    for (size_t i = 0; i < parts->count; i++) {
        const dur__pg_part *part = &parts->all[i];
        const dur_turn_commit *turn = part->turn;
        if (!part->facts.writes || part->facts.born ||
            (part->lease != NULL && part->lease->execution == turn->execution_id))
            continue;
        dur__pg_put_text(&rows, turn->instance);
        dur__pg_put_id(&rows, turn->execution_id);
        dur__pg_put_i64(&rows, (int64_t)turn->metadata.status);
        dur__pg_put_text(&rows, turn->metadata.status != DUR_STATUS_NONE ? turn->metadata.output : NULL);
    }
    dur__pg_batch_add_rows(batch, past_sql, &rows);
}

void dur__pg_send_past_execution(dur__pg_batch *batch, const char *instance, uint64_t execution_id) {
    dur__pg_table rows = dur__pg_table_of(PAST_TYPES);
    dur__pg_put_text(&rows, instance);
    dur__pg_put_id(&rows, execution_id);
    dur__pg_put_i64(&rows, DUR_STATUS_NONE);
    dur__pg_put_text(&rows, NULL);
    dur__pg_batch_add_rows(batch, past_sql, &rows);
}
