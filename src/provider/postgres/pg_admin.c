/*
 * pg_admin.c: looking at the store from outside: lists, counts, dead letters, suspending.
 */
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define STATUS DUR__PG_STATUS
#define ROW                                                                                                            \
    "i.instance_id, i.name, i.version, greatest(i.current_execution, 1), " STATUS                                      \
    ", i.output, i.created_at, greatest(i.started_at, i.completed_at, CASE WHEN i.completed_at = 0 THEN"               \
    " " DUR__PG_LAST_OF(                                                                                               \
        "i", "at_ms") " END), i.parent, i.suspended, i.custom_status, i.custom_status_version, i.owner, " PENDING      \
                      ", i.birth, s.json, s.id"
#define PENDING "NOT (i.has_row OR i.has_history)"
#define WAITS "i.known AND NOT i.has_row AND NOT i.has_history" /* the same, as the index has it */
/* The first start that waits. */
#define ITS_START(when)                                                                                                \
    " LEFT JOIN LATERAL (SELECT q.json, q.id, q.parent, q.handler FROM @queue q WHERE " when                           \
    " AND q.instance_id = i.instance_id AND q.kind IN " DUR__PG_STARTS " ORDER BY q.id LIMIT 1) s ON true"
#define WHOLE "@instances i" ITS_START(PENDING)
/* OFFSET 0: the row of each that is listed, and never a walk over all. */
#define WHOLE_OF(list)                                                                                                 \
    list " CROSS JOIN LATERAL (SELECT i.* FROM @instances i WHERE i.instance_id = " list                               \
         ".instance_id OFFSET 0) i" ITS_START(PENDING)

static void read_instance(const PGresult *rows, int row, dur_arena *arena, void *into) {
    dur_instance_row *out = into;
    out->instance_id = dur__pg_get_text(rows, row, 0, arena);
    out->orchestration_name = dur__pg_get_text(rows, row, 1, arena);
    out->orchestration_version = dur__pg_get_text(rows, row, 2, arena);
    out->current_execution_id = dur__pg_get_u64(rows, row, 3);
    out->status = (dur_status)dur__pg_get_i64(rows, row, 4);
    out->output = dur__pg_get_text(rows, row, 5, arena);
    out->created_at_ms = dur__pg_get_u64(rows, row, 6);
    out->updated_at_ms = dur__pg_get_u64(rows, row, 7);
    out->parent_instance_id = dur__pg_get_text(rows, row, 8, arena);
    out->suspended = dur__pg_get_text(rows, row, 9, arena);
    out->custom_status = dur__pg_get_text(rows, row, 10, arena);
    out->custom_status_version = dur__pg_get_u64(rows, row, 11);
    out->owner = dur__pg_get_text(rows, row, 12, arena);
    out->start_pending = dur__pg_get_bool(rows, row, 13);
    if (out->start_pending) out->updated_at_ms = out->created_at_ms;
    out->birth = dur__pg_get_u64(rows, row, 14);
    if (dur__pg_get(rows, row, 15) != NULL) out->pending_start = dur__pg_get_json(rows, row, 15, arena);
    out->pending_start_id = dur__pg_get_u64(rows, row, 16);
}

/* Of what has a row; of what is known only by a start, that says the name ("Name@1.2.3") and the parent. */
#define OF_ROW                                                                                                         \
    "($4 IS NULL OR i.name = $4) AND (NOT $7 OR i.parent IS NULL) AND ($6 IS NULL OR"                                  \
    " i.parent = $6)"
#define OF_START                                                                                                       \
    "($4 IS NULL OR (starts_with(s.handler, $4 || chr(64)) AND strpos(substr(s.handler, length($4)"                    \
    " + 2), chr(64)) = 0)) AND (NOT $7 OR s.parent IS NULL) AND ($6 IS NULL OR s.parent = $6)"
#define FILTERS                                                                                                        \
    "($5 IS NULL OR (i.instance_id >= $5 AND starts_with(i.instance_id, $5)))"                                         \
    " AND ($8 = 0 OR i.created_at > $8) AND ($9 = 0 OR i.created_at < $9)"                                             \
    " AND i.instance_id > coalesce($10, '') AND (NOT $3 OR i.suspended IS NOT NULL)"
#define PAGE " ORDER BY i.instance_id LIMIT nullif($11, 0)"
#define OF_STATUS "($2 = 0 OR $2 = " STATUS " OR ($2 = 1 AND " STATUS " = 4))"
#define IS_WANTED                                                                                                      \
    FILTERS " AND CASE WHEN i.has_row THEN " OF_ROW " ELSE i.known AND NOT i.has_history AND " OF_START " END"

static const char list_sql[] = "SELECT " ROW " FROM " WHOLE " WHERE " OF_STATUS " AND " IS_WANTED PAGE;
static const char list_suspended_sql[] =
    "SELECT " ROW " FROM " WHOLE " WHERE i.suspended IS NOT NULL AND " OF_STATUS " AND " IS_WANTED PAGE;
static const char list_children_sql[] =
    "SELECT " ROW " FROM (SELECT c.instance_id FROM @instances c WHERE c.parent = $6 UNION SELECT q.instance_id"
    " FROM @queue q WHERE q.parent = $6) " WHOLE_OF("l") " WHERE " OF_STATUS " AND " IS_WANTED PAGE;

/*
 * By the index of statuses: a page.  Running is also what is between two executions, and what is no more than a start,
 * which has its own index.
 */
#define ROWS_OF_STATUS(status)                                                                                         \
    "(SELECT i.instance_id FROM @instances i WHERE i.status = " status " AND i.has_row AND " OF_ROW                    \
    " AND " FILTERS PAGE ")"
#define STARTS                                                                                                         \
    "(SELECT i.instance_id FROM @instances i" ITS_START("true") " WHERE " WAITS " AND " OF_START " AND " FILTERS PAGE  \
                                                                ")"

/* The status is in the text: a plan for any would walk all instances where one status has nearly all of them. */
#define LIST_OF_STATUS(status) "SELECT " ROW " FROM " ROWS_OF_STATUS(status) " " WHOLE_OF("l") PAGE

static const char list_completed_sql[] = LIST_OF_STATUS("2");
static const char list_failed_sql[] = LIST_OF_STATUS("3");
static const char list_continued_sql[] = LIST_OF_STATUS("4");
static const char list_running_sql[] =
    "SELECT " ROW " FROM (" ROWS_OF_STATUS("1") " UNION ALL " ROWS_OF_STATUS("4") " UNION ALL " STARTS
                                                                                  ") " WHOLE_OF("l") PAGE;

static const char *list_of(const dur_instance_query *query) {
    if (query->parent != NULL) return list_children_sql;
    if (query->suspended_only) return list_suspended_sql;
    switch (query->status) {
    case DUR_STATUS_NONE:
        return list_sql;
    case DUR_STATUS_RUNNING:
        return list_running_sql;
    case DUR_STATUS_COMPLETED:
        return list_completed_sql;
    case DUR_STATUS_FAILED:
        return list_failed_sql;
    case DUR_STATUS_CONTINUED_AS_NEW:
        break;
    }
    return list_continued_sql;
}

int dur__pg_list_instances(dur_provider *self, dur_arena *arena, const dur_instance_query *query,
                           dur_instance_row **out, size_t *count, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_rows rows = { .arena = arena, .size = sizeof(**out), .read = read_instance };
    dur__pg_args_begin(store, &args);
    dur__pg_i64(&args, (int64_t)query->status);
    dur__pg_bool(&args, query->suspended_only);
    dur__pg_text(&args, query->name);
    dur__pg_text(&args, query->id_prefix);
    dur__pg_text(&args, query->parent);
    dur__pg_bool(&args, query->roots_only);
    dur__pg_u64(&args, query->created_after_ms);
    dur__pg_u64(&args, query->created_before_ms);
    dur__pg_text(&args, query->after);
    dur__pg_u64(&args, query->limit);
    args.walks = !query->suspended_only;
    int code = dur__pg_list(store, "postgres.list", list_of(query), &args, &rows, err);
    *out = rows.rows;
    *count = rows.count;
    return code;
}

static int not_found(dur_error *err, const char *op, const char *instance) {
    return dur_error_set(err, DUR_ENOTFOUND, false, op, "instance %s not found", instance);
}

static const char get_sql[] =
    "SELECT " ROW ", nullif(" DUR__PG_NEEDS ", ''), i.token IS NULL AND i.handler <> '' AND NOT EXISTS (SELECT 1 FROM"
    " @served s WHERE NOT s.activity AND s.handler IN (i.handler, '')) AND " STATUS
    " NOT IN (2, 3), (SELECT w.handler || ' in session ' || w.session_id || ' of ' || s.owner FROM @worker w JOIN"
    " @sessions s USING (session_id) WHERE w.instance_id = i.instance_id AND w.owner IS NULL AND w.session_id IS NOT"
    " NULL AND " DUR__PG_HOLDER_HAS_NOT
    " LIMIT 1) FROM @instances i" ITS_START("true") " WHERE i.instance_id = $2::text AND i.known";

int dur__pg_get_instance(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out,
                         dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    PGresult *result;
    dur__pg_args_of(store, &args, instance);
    int code = dur__pg_one(store, "postgres.get_instance", get_sql, &args, false, &result, err);
    if (code == DUR_OK && PQntuples(result) == 0) code = not_found(err, "postgres.get_instance", instance);
    if (code == DUR_OK) {
        memset(out, 0, sizeof(*out));
        read_instance(result, 0, arena, out);
        out->handler = dur__pg_get_text(result, 0, 17, arena);
        out->unserved = dur__pg_get_bool(result, 0, 18);
        out->stuck_session = dur__pg_get_text(result, 0, 19, arena);
    }
    PQclear(result);
    return code;
}

static const char executions_sql[] =
    "SELECT e.execution_id, e.status, e.output, e.started_at, e.completed_at, (SELECT coalesce(sum(h.count), 0) FROM"
    " @history h WHERE h.instance_id = e.instance_id AND h.execution_id = e.execution_id) FROM " DUR__PG_EXECUTIONS
    " e WHERE e.instance_id = $2::text ORDER BY e.execution_id";

static void read_execution(const PGresult *rows, int row, dur_arena *arena, void *into) {
    dur_execution_row *out = into;
    out->execution_id = dur__pg_get_u64(rows, row, 0);
    out->status = (dur_status)dur__pg_get_i64(rows, row, 1);
    out->output = dur__pg_get_text(rows, row, 2, arena);
    out->started_at_ms = dur__pg_get_u64(rows, row, 3);
    out->completed_at_ms = dur__pg_get_u64(rows, row, 4);
    out->event_count = dur__pg_get_u64(rows, row, 5);
}

int dur__pg_list_executions(dur_provider *self, dur_arena *arena, const char *instance, dur_execution_row **out,
                            size_t *count, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_rows rows = { .arena = arena, .size = sizeof(**out), .read = read_execution };
    dur__pg_args_of(store, &args, instance);
    int code = dur__pg_list(store, "postgres.list_executions", executions_sql, &args, &rows, err);
    *out = rows.rows;
    *count = rows.count;
    return code;
}

static const char metrics_sql[] =
    "SELECT count(*), (SELECT count(*) FROM " DUR__PG_EXECUTIONS " e), count(*) FILTER (WHERE " STATUS " IN (1, 4)),"
    " count(*) FILTER (WHERE " STATUS " = 2), count(*) FILTER (WHERE " STATUS " = 3), (SELECT coalesce(sum(count), 0)"
    " FROM @history),"
    " count(*) FILTER (WHERE i.suspended IS NOT NULL) + (SELECT count(*) FROM @instances i WHERE " WAITS
    " AND i.suspended IS NOT NULL), (SELECT count(*) FROM @instances i WHERE " WAITS ") FROM @instances i WHERE"
    " i.has_row";

int dur__pg_get_system_metrics(dur_provider *self, dur_system_metrics *out, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    bool found;
    uint64_t *const numbers[] = {
        &out->total_instances, &out->total_executions, &out->running,   &out->completed,
        &out->failed,          &out->total_events,     &out->suspended, &out->starts_waiting
    };
    memset(out, 0, sizeof(*out));
    dur__pg_args_begin(store, &args);
    args.walks = true;
    return dur__pg_numbers(store, "postgres.metrics", metrics_sql, &args, numbers, COUNT(numbers), &found, err);
}

static const char depths_sql[] =
    "SELECT (SELECT count(*) FROM @queue q JOIN @instances i ON i.instance_id = q.instance_id WHERE q.due_ms <="
    " n.now AND"
    " NOT (q.delivered <> 0 AND i.token IS NOT NULL AND (i.owner IS NOT NULL OR i.expires_at > n.now))),"
    " (SELECT count(*) FROM @worker WHERE owner IS NULL AND (token IS NULL OR until_ms <= n.now)),"
    " (SELECT count(*) FROM @queue WHERE due_ms > n.now), (SELECT count(*) FROM @dead_letters) FROM (SELECT #now AS"
    " now) n";

int dur__pg_get_queue_depths(dur_provider *self, dur_queue_depths *out, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    bool found;
    uint64_t *const numbers[] = { &out->orchestrator_queue, &out->worker_queue, &out->timer_queue, &out->dead_letters };
    memset(out, 0, sizeof(*out));
    dur__pg_args_begin(store, &args);
    args.walks = true;
    return dur__pg_numbers(store, "postgres.depths", depths_sql, &args, numbers, COUNT(numbers), &found, err);
}

/* ---- dead letters ------------------------------------------------------------------------------------------------ */

static dur__pg_array ids_array(const uint64_t *ids, size_t count) {
    dur__pg_array array = dur__pg_array_i64();
    for (size_t i = 0; i < count; i++)
        dur__pg_add_i64(&array, (int64_t)ids[i]);
    return array;
}

static const char lock_sql[] = DUR__PG_LOCK_ONE("UPDATE");
static const char lock_to_send_sql[] = DUR__PG_LOCK_ONE("NO KEY UPDATE");

static const char bury_sql[] =
    "WITH d AS (DELETE FROM @queue WHERE instance_id = $2::text AND id = ANY ($3::bigint[]) RETURNING instance_id,"
    " id, json)"
    " INSERT INTO @dead_letters (instance_id, reason, at_ms, json) SELECT instance_id, $4::text, #now, json FROM d"
    " ORDER BY id";
/* With its start an instance that has never run ceases to exist; then only queue messages are a reason, to bury them.
 */
static const char unknown_sql[] =
    "UPDATE @instances i SET known = false, ready_at = m.at, ready_due = coalesce(m.due, 0) FROM (SELECT"
    " min(q.order_ms) AS at, min(q.due_ms) AS due FROM @queue q WHERE q.instance_id = $2::text AND q.queue IS NOT NULL)"
    " m WHERE i.instance_id = $2::text AND i.known AND NOT i.has_row AND NOT i.has_history AND NOT EXISTS (SELECT 1"
    " FROM @queue s WHERE s.instance_id = $2::text AND s.kind IN " DUR__PG_STARTS ")";

static const char sweep_sql[] =
    "DELETE FROM @instances i WHERE i.instance_id = $2::text AND (i.token IS NULL OR (i.owner IS NULL AND i.expires_at"
    " <= #now)) AND " DUR__PG_EMPTY;

int dur__pg_dead_letter_messages(dur_provider *self, const char *instance, const uint64_t *ids, size_t count,
                                 const char *reason, dur_error *err) {
    dur__pg_args args;
    dur__pg_batch batch;
    int code = dur__pg_batch_open(&batch, dur__pg_of(self), true, err);
    if (code != DUR_OK) return code;
    dur__pg_batch_add_id(&batch, lock_sql, instance);
    dur__pg_array array = ids_array(ids, count);
    dur__pg_args_of(batch.conn->store, &args, instance);
    dur__pg_array_arg(&args, &array);
    dur__pg_text(&args, reason);
    dur__pg_batch_add(&batch, bury_sql, &args);
    dur__pg_batch_add_id(&batch, unknown_sql, instance);
    dur__pg_batch_add_id(&batch, sweep_sql, instance);
    code = dur__pg_batch_run(&batch, "postgres.dead_letter", err);
    dur__pg_batch_end(&batch);
    return code;
}

static const char letters_sql[] =
    "SELECT id, instance_id, reason, at_ms, json FROM @dead_letters WHERE id > $2::bigint ORDER BY id"
    " LIMIT nullif($3::bigint, 0)";

static void read_letter(const PGresult *rows, int row, dur_arena *arena, void *into) {
    dur_dead_letter *out = into;
    out->id = dur__pg_get_u64(rows, row, 0);
    out->instance = dur__pg_get_text(rows, row, 1, arena);
    out->reason = dur__pg_get_text(rows, row, 2, arena);
    out->at_ms = dur__pg_get_u64(rows, row, 3);
    out->json = dur__pg_get_json(rows, row, 4, arena);
}

int dur__pg_list_dead_letters(dur_provider *self, dur_arena *arena, uint64_t after_id, size_t limit,
                              dur_dead_letter **out, size_t *count, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_rows rows = { .arena = arena, .size = sizeof(**out), .read = read_letter };
    dur__pg_args_begin(store, &args);
    dur__pg_u64(&args, after_id);
    dur__pg_u64(&args, limit);
    int code = dur__pg_list(store, "postgres.list_dead_letters", letters_sql, &args, &rows, err);
    *out = rows.rows;
    *count = rows.count;
    return code;
}

static const char forget_sql[] = "DELETE FROM @dead_letters WHERE id = ANY ($2::bigint[])";

int dur__pg_delete_dead_letters(dur_provider *self, const uint64_t *ids, size_t count, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_args args;
    dur__pg_array array = ids_array(ids, count);
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &array);
    return dur__pg_write(store, "postgres.delete_dead_letters", forget_sql, &args, NULL, err);
}

/* ---- suspending -------------------------------------------------------------------------------------------------- */

/*
 * A flag, and a reason to look.  A lane that holds the instance is asked to give it up, in good order: its runtime may
 * have work that is stored nowhere.  A lock outside of lanes ends, and the acquisition does not count.  When it is
 * resumed everything that waits is a reason again, also what was seen before; what is held stays as it is.  What has
 * ended stays as it is, and whoever would suspend it is told.
 */
#define HAS_ENDED "coalesce(status, 1) IN (2, 3)"
#define OF_LANE "(token IS NOT NULL AND owner IS NOT NULL AND holder IN (SELECT holder FROM @lanes))"
/* A lock outside of lanes ends only where the row is locked for that ($4). */
#define CHANGES                                                                                                        \
    "known AND " DUR__PG_IS_LOCKED " AND ($3::text IS NULL OR NOT " HAS_ENDED                                          \
    ") AND ($4::boolean OR $3::text IS NULL OR"                                                                        \
    " token IS NULL OR " OF_LANE ")"
static const char asked_sql[] =
    "INSERT INTO @lost (holder, instance_id, asked, at_ms) SELECT holder, instance_id, " OF_LANE
    ", #now FROM @instances"
    " WHERE instance_id = $2::text AND $3::text IS NOT NULL AND " CHANGES " AND token IS NOT NULL AND holder IS NOT"
    " NULL";
static const char flag_sql[] =
    "UPDATE @instances SET suspended = $3::text, ready_at = CASE WHEN token IS NOT NULL AND $3::text IS NOT NULL THEN 0"
    " ELSE ready_at END WHERE instance_id = $2::text AND " CHANGES;
/* clang-format off */
static const char suspend_sql[] =
    "WITH s AS (SELECT instance_id, acquisitions, (token IS NOT NULL)::integer AS less, false AS died, CASE WHEN"
    " not_before > #now THEN not_before ELSE 0 END AS until, " CHANGES " AND CASE WHEN $3::text IS NULL THEN token IS"
    " NULL ELSE NOT " OF_LANE " END AS ends, $3::text IS NOT NULL AND " HAS_ENDED " AS late, NOT (" CHANGES ") AS weak"
    " FROM @instances WHERE instance_id = $2::text AND known AND " DUR__PG_IS_LOCKED "), i0 AS (SELECT * FROM s WHERE"
    " ends), " DUR__PG_ENDS ", u AS (" DUR__PG_END_ROWS("") ") SELECT late, weak FROM s";
/* clang-format on */

/* strong: it may end a lock.  Otherwise it sends, and holds up no turn. */
static int suspend(dur__pg_conn *conn, const char *instance, const char *reason, bool strong, bool *weak,
                   dur_error *err) {
    static const char *const all[] = { asked_sql, flag_sql, suspend_sql };
    dur__pg_args args;
    dur__pg_batch batch;
    int at = 0;
    dur__pg_batch_begin(&batch, conn, true);
    dur__pg_batch_add_id(&batch, strong ? lock_sql : lock_to_send_sql, instance);
    for (size_t i = 0; i < COUNT(all); i++) {
        dur__pg_args_of(conn->store, &args, instance);
        dur__pg_text(&args, reason);
        dur__pg_bool(&args, strong);
        at = dur__pg_batch_add(&batch, all[i], &args);
    }
    dur__pg_batch_notify(&batch);
    int code = dur__pg_batch_run(&batch, "postgres.suspend", err);
    if (code == DUR_OK && PQntuples(batch.results[at]) == 0) code = not_found(err, "postgres.suspend", instance);
    if (code == DUR_OK && dur__pg_get_bool(batch.results[at], 0, 0))
        code = dur_error_set(err, DUR_ESTATE, false, "postgres.suspend", "instance %s has ended", instance);
    *weak = code == DUR_OK && dur__pg_get_bool(batch.results[at], 0, 1);
    dur__pg_batch_end(&batch);
    return code;
}

int dur__pg_set_suspended(dur_provider *self, const char *instance, const char *reason, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_conn *conn;
    bool weak = false;
    int code = dur__pg_borrow(store, &conn, err);
    if (code != DUR_OK) return code;
    code = suspend(conn, instance, reason, false, &weak, err);
    if (code == DUR_OK && weak) code = suspend(conn, instance, reason, true, &weak, err);
    dur__pg_return(conn);
    dur__pg_wake(store, NULL, NULL);
    return code;
}
