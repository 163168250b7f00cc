/*
 * pg_delete.c: deleting instances with their trees, and pruning executions.
 */
#include "provider/dead_reason.h"
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"
#include "provider/postgres/pg_works.h"

#include <stdlib.h>

#define BULK_LIMIT 1000u

/* ---- erasing ----------------------------------------------------------------------------------------------------- */

static const char lost_sql[] = DUR__PG_TELL_LOST;
static const char erase_history_sql[] =
    "WITH d AS (DELETE FROM @history WHERE instance_id = ANY ($2::text[]) RETURNING count)"
    " SELECT coalesce(sum(count), 0) FROM d";
/* Starts that wait behind an instance are calls of others.  Without history the first one is the instance itself.  What
   clients have put into its queues is kept as dead letters. */
static const char erase_queue_sql[] =
    "WITH d AS (DELETE FROM @queue q USING @instances i WHERE i.instance_id = ANY ($2::text[]) AND q.instance_id ="
    " i.instance_id AND (q.kind <> 0 OR NOT i.has_history AND q.id = (SELECT f.id FROM @queue f WHERE f.instance_id ="
    " i.instance_id AND f.kind = 0 ORDER BY f.id LIMIT 1)) RETURNING q.instance_id, q.queue, q.order_ms, q.id, q.json),"
    " b AS (INSERT INTO @dead_letters (instance_id, reason, at_ms, json) SELECT d.instance_id, '" DUR__DELETED
    "', #now, d.json FROM d WHERE d.queue IS NOT NULL ORDER BY d.order_ms, d.id)"
    " SELECT count(*) FROM d";
/* The calls that are left make instances of their own. */
static const char instances_of_starts_sql[] =
    "INSERT INTO @instances (instance_id, known, ready_at, ready_due, next, next_execution, created_at)"
    " SELECT instance_id, true, min(order_ms), min(due_ms), (array_agg(handler ORDER BY id))[1], 1, #now"
    " FROM @queue WHERE instance_id = ANY ($2::text[]) GROUP BY instance_id";

static const char erase_instances_sql[] =
    "WITH d AS (DELETE FROM @instances WHERE instance_id = ANY ($2::text[]) RETURNING status)"
    " SELECT count(*), count(status) FROM d";
static const char *const erase_sql[] = {
    lost_sql,
    "DELETE FROM @executions WHERE instance_id = ANY ($2::text[])",
    erase_history_sql,
    erase_queue_sql,
    DUR__PG_DELETE_WORKS,
    "DELETE FROM @kv WHERE instance_id = ANY ($2::text[])",
    "DELETE FROM @kv_delta WHERE instance_id = ANY ($2::text[])",
    "DELETE FROM @accepted WHERE instance_id = ANY ($2::text[])",
    erase_instances_sql,
    "UPDATE @queue SET delivered = 0, attempts = 0 WHERE instance_id = ANY ($2::text[])",
    instances_of_starts_sql,
    "UPDATE @crashed SET for_good = true WHERE instance_id = ANY ($2::text[])", /* nobody has seen it end */
};
enum { EXECUTIONS = 1, HISTORY, QUEUE, WORKER, INSTANCES = 8, STATEMENTS = 12 };

static uint64_t touched(const PGresult *result) {
    return strtoull(PQcmdTuples((PGresult *)(uintptr_t)result), NULL, 10);
}

static int erase(dur__pg_conn *conn, const dur__pg_array *ids, dur_delete_result *out, dur_error *err) {
    dur__pg_batch batch;
    int at[STATEMENTS];
    dur__pg_batch_begin(&batch, conn, true);
    for (size_t i = 0; i < STATEMENTS; i++)
        at[i] = dur__pg_batch_add_ids(&batch, erase_sql[i], ids);
    dur__pg_batch_notify(&batch);
    int code = dur__pg_batch_run(&batch, "postgres.delete", err);
    memset(out, 0, sizeof(*out));
    if (code == DUR_OK) {
        out->executions = touched(batch.results[at[EXECUTIONS]]) + dur__pg_get_u64(batch.results[at[INSTANCES]], 0, 1);
        out->events = dur__pg_get_u64(batch.results[at[HISTORY]], 0, 0);
        out->queue_messages = dur__pg_get_u64(batch.results[at[QUEUE]], 0, 0) + touched(batch.results[at[WORKER]]);
        out->instances = dur__pg_get_u64(batch.results[at[INSTANCES]], 0, 0);
    }
    dur__pg_batch_end(&batch);
    return code;
}

/* ---- delete by id ------------------------------------------------------------------------------------------------ */

static const char rows_sql[] =
    "SELECT i.instance_id, i.known, " DUR__PG_STATUS " = 1 OR " DUR__PG_STARTS_WAIT ", i.birth, i.has_history, (SELECT"
    " q.id FROM @queue q WHERE q.instance_id = i.instance_id AND q.kind = 0 ORDER BY q.id LIMIT 1)"
    " FROM @instances i WHERE i.instance_id = ANY ($2::text[]) ORDER BY i.instance_id";
/* Compared with the list here: the server would look for each child among all ids, one by one. */
static const char children_sql[] = "SELECT c.parent, c.instance_id FROM @instances c WHERE c.parent = ANY ($2::text[])";

typedef struct listed {
    const char *const *ids;
    const dur_meant *meant; /* NULL: whoever has the id */
    size_t count;
    bool force;       /* also those that run */
    bool may_be_gone; /* what is not there any more need not be deleted */
} listed;

/* Rows are in order of ids, compared as bytes. */
static int row_of(const PGresult *rows, const char *id) {
    int from = 0, to = PQntuples(rows);
    while (from < to) {
        int middle = from + (to - from) / 2, order = strcmp(PQgetvalue(rows, middle, 0), id);
        if (order == 0) return middle;
        if (order < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return -1;
}

static bool is_meant(const PGresult *rows, int row, const dur_meant *meant) {
    uint64_t birth = dur__pg_get_u64(rows, row, 3), start_id = dur__pg_get_u64(rows, row, 5);
    bool has_history = dur__pg_get_bool(rows, row, 4);
    if (meant->start_id != 0) return !has_history && start_id == meant->start_id;
    return meant->birth == 0 || birth == meant->birth || (birth == 0 && has_history);
}

static int check_rows(const PGresult *rows, const PGresult *children, const listed *what, dur_error *err) {
    for (size_t i = 0; i < what->count; i++) {
        const char *id = what->ids[i];
        int row = row_of(rows, id);
        bool known = row >= 0 && dur__pg_get_bool(rows, row, 1);
        if (!known && what->may_be_gone) continue;
        if (!known) return dur_error_set(err, DUR_ENOTFOUND, false, "postgres.delete", "instance %s not found", id);
        if (what->meant != NULL && !is_meant(rows, row, &what->meant[i]))
            return dur_error_set(err, DUR_ECONFLICT, false, "postgres.delete",
                                 "instance %s is another one, or has begun", id);
        if (!what->force && dur__pg_get_bool(rows, row, 2))
            return dur_error_set(err, DUR_ERUNNING, false, "postgres.delete", "instance %s is running", id);
    }
    for (int child = 0; child < PQntuples(children); child++)
        if (row_of(rows, PQgetvalue(children, child, 1)) < 0)
            return dur_error_set(err, DUR_ECHILD, false, "postgres.delete",
                                 "instance %s has a child that is not listed: %s", PQgetvalue(children, child, 0),
                                 PQgetvalue(children, child, 1));
    return DUR_OK;
}

/* Inside a transaction.  They are locked first, and looked at by later statements: what came meanwhile counts. */
static int delete_listed(dur__pg_conn *conn, const listed *what, dur_delete_result *out, dur_error *err) {
    dur__pg_batch batch;
    dur__pg_array array = dur__pg_array_text();
    for (size_t i = 0; i < what->count; i++)
        dur__pg_add_text(&array, what->ids[i]);
    dur__pg_batch_begin(&batch, conn, false);
    dur__pg_batch_add_ids(&batch, dur__pg_lock_to_end_sql, &array);
    int rows = dur__pg_batch_add_ids(&batch, rows_sql, &array);
    int children = dur__pg_batch_add_ids(&batch, children_sql, &array);
    int code = dur__pg_batch_run(&batch, "postgres.delete", err);
    if (code == DUR_OK) code = check_rows(batch.results[rows], batch.results[children], what, err);
    dur__pg_batch_end(&batch);
    if (code == DUR_OK) code = erase(conn, &array, out, err);
    dur__buf_free(&array.data);
    return code;
}

int dur__pg_delete_instances(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count,
                             bool force, dur_delete_result *out, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_conn *conn;
    const listed what = { .ids = ids, .meant = meant, .count = count, .force = force };
    memset(out, 0, sizeof(*out));
    int code = dur__pg_borrow(store, &conn, err);
    if (code != DUR_OK) return code;
    dur__pg_set_patience(conn, 0);
    code = dur__pg_begin(conn, err);
    if (code == DUR_OK) code = dur__pg_end(conn, "postgres.delete", delete_listed(conn, &what, out, err), err);
    if (code != DUR_OK) memset(out, 0, sizeof(*out));
    dur__pg_return(conn);
    dur__pg_wake(store, NULL, NULL);
    return code;
}

/* ---- what a statement finds -------------------------------------------------------------------------------------- */

/* In a transaction: the ids of these rows; it locks them and looks again. */
static int delete_found(dur__pg_conn *conn, const PGresult *rows, bool may_be_gone, dur_delete_result *out,
                        dur_error *err) {
    size_t count = (size_t)PQntuples(rows);
    const char **ids = dur__xcalloc(count + 1, sizeof(*ids));
    for (size_t i = 0; i < count; i++)
        ids[i] = PQgetvalue(rows, (int)i, 0);
    const listed what = { .ids = ids, .count = count, .may_be_gone = may_be_gone };
    int code = count > 0 ? delete_listed(conn, &what, out, err) : DUR_OK;
    dur__free(ids);
    return code;
}

static const char tree_sql[] =
    "WITH RECURSIVE t(id) AS (SELECT $2::text COLLATE \"C\" UNION SELECT c.instance_id FROM @instances c JOIN t ON"
    " c.parent = t.id) SELECT t.id, i.token IS NOT NULL FROM t LEFT JOIN @instances i ON i.instance_id = t.id";

int dur__pg_delete_tree(dur__pg_conn *conn, const char *instance, dur_error *err) {
    dur__pg_batch batch;
    dur_delete_result ignored;
    dur__pg_batch_begin(&batch, conn, false);
    int at = dur__pg_batch_add_id(&batch, tree_sql, instance);
    int code = dur__pg_batch_run(&batch, "postgres.delete", err);
    for (int row = 0; code == DUR_OK && conn->foreign && row < PQntuples(batch.results[at]); row++)
        if (dur__pg_get_bool(batch.results[at], row, 1)) /* its holder would wait for the caller */
            code = dur_error_set(err, DUR_EBUSY, true, "postgres.delete", "instance %s is held by a node just now",
                                 PQgetvalue(batch.results[at], row, 0));
    if (code == DUR_OK) code = delete_found(conn, batch.results[at], true, &ignored, err);
    dur__pg_batch_end(&batch);
    return code;
}

/* ---- bulk -------------------------------------------------------------------------------------------------------- */

#define ENDED_BEFORE "($3::bigint = 0 OR (i.completed_at <> 0 AND i.completed_at < $3::bigint))"

/*
 * Finished roots that match, with all below them, where all of those have finished too.  By index, those that ended
 * first at the front, and no further than the limit: a call costs what it deletes.
 */
#define TREE_FINISHED                                                                                                  \
    "NOT EXISTS (WITH RECURSIVE b(id) AS (SELECT i.instance_id UNION SELECT c.instance_id FROM b JOIN @instances c"    \
    " ON c.parent = b.id) SELECT 1 FROM b JOIN @instances i ON i.instance_id = b.id WHERE NOT " DUR__PG_FINISHED ")"
#define TREES(roots)                                                                                                   \
    "WITH RECURSIVE d(id) AS ((SELECT i.instance_id FROM @instances i WHERE i.has_row AND i.parent IS NULL AND"        \
    " i.status IN (2, 3) AND ($3::bigint = 0 OR i.completed_at <> 0) AND i.completed_at < CASE $3::bigint WHEN 0 THEN" \
    " 9223372036854775807 ELSE $3::bigint END AND " roots TREE_FINISHED                                                \
    " ORDER BY i.completed_at, i.instance_id LIMIT $4::bigint) UNION SELECT c.instance_id FROM d JOIN @instances c"    \
    " ON c.parent = d.id) SELECT id FROM d ORDER BY 1"

static const char trees_sql[] = TREES("$2::text[] IS NULL AND ");
static const char listed_trees_sql[] = TREES("i.instance_id = ANY ($2::text[]) AND ");

static void filter_args(dur__pg *store, dur__pg_args *args, const dur_bulk_filter *filter) {
    dur__pg_args_begin(store, args);
    if (filter->instance_ids == NULL) {
        dur__pg_null_texts(args);
    } else {
        dur__pg_array ids = dur__pg_array_text();
        for (size_t i = 0; i < filter->instance_id_count; i++)
            dur__pg_add_text(&ids, filter->instance_ids[i]);
        dur__pg_array_arg(args, &ids);
    }
    dur__pg_u64(args, filter->completed_before_ms);
    dur__pg_u64(args, filter->limit > 0 ? filter->limit : BULK_LIMIT);
}

static int delete_roots(dur__pg_conn *conn, const dur_bulk_filter *filter, dur_delete_result *out, dur_error *err) {
    dur__pg_args args;
    dur__pg_batch batch;
    dur__pg_batch_begin(&batch, conn, false);
    filter_args(conn->store, &args, filter);
    int at = dur__pg_batch_add(&batch, filter->instance_ids == NULL ? trees_sql : listed_trees_sql, &args);
    int code = dur__pg_batch_run(&batch, "postgres.delete_bulk", err);
    if (code == DUR_OK) code = delete_found(conn, batch.results[at], false, out, err);
    dur__pg_batch_end(&batch);
    return code;
}

int dur__pg_delete_instances_bulk(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out,
                                  dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_conn *conn;
    memset(out, 0, sizeof(*out));
    int code = dur__pg_borrow(store, &conn, err);
    if (code != DUR_OK) return code;
    dur__pg_set_patience(conn, 0);
    code = dur__pg_begin(conn, err);
    if (code == DUR_OK) code = dur__pg_end(conn, "postgres.delete", delete_roots(conn, filter, out, err), err);
    if (code == DUR_ERUNNING || code == DUR_ECHILD || code == DUR_ENOTFOUND) /* one came to life meanwhile */
        code = dur_error_set(err, DUR_EBUSY, true, "postgres.delete_bulk", "an instance changed meanwhile; try again");
    if (code != DUR_OK) memset(out, 0, sizeof(*out));
    dur__pg_return(conn);
    return code;
}

/* ---- prune ------------------------------------------------------------------------------------------------------- */

/* $5 keep_last given, $6 how many, $7 completed before.  $4 counts instances of which something goes: those with
   nothing to prune must not use the limit up. */
static const char prune_sql[] =
    "WITH t AS MATERIALIZED (SELECT i.instance_id, i.current_execution, row_number() OVER (ORDER BY i.created_at,"
    " i.instance_id) AS n FROM @instances i WHERE CASE WHEN $8::boolean THEN i.has_row AND ($2::text[] IS NULL OR"
    " i.instance_id = ANY ($2::text[])) AND " ENDED_BEFORE " ELSE i.instance_id = ANY ($2::text[]) AND (i.has_row OR"
    " i.has_history) END),"
    " p AS MATERIALIZED (SELECT r.instance_id, r.execution_id, r.n FROM (SELECT e.*, t.current_execution, t.n, 1 +"
    " row_number() OVER (PARTITION BY e.instance_id ORDER BY e.execution_id DESC) AS at FROM t JOIN @executions e ON"
    " e.instance_id = t.instance_id) r WHERE r.status <> 1 AND (NOT $5::boolean OR r.at > greatest($6::bigint, 1)) AND"
    " ($7::bigint = 0 OR (r.completed_at <> 0 AND r.completed_at < $7::bigint))),"
    " k AS MATERIALIZED (SELECT (SELECT DISTINCT p.n FROM p ORDER BY p.n LIMIT 1 OFFSET $4::bigint - 1) AS last),"
    " x AS MATERIALIZED (SELECT p.instance_id, p.execution_id FROM p, k WHERE k.last IS NULL OR p.n <= k.last),"
    " h AS (DELETE FROM @history h USING x WHERE h.instance_id = x.instance_id AND h.execution_id = x.execution_id"
    " RETURNING h.count),"
    " e AS (DELETE FROM @executions e USING x WHERE e.instance_id = x.instance_id AND e.execution_id = x.execution_id"
    " RETURNING 1)"
    " SELECT (SELECT count(*) FROM t, k WHERE k.last IS NULL OR t.n <= k.last), (SELECT count(*) FROM e), (SELECT"
    " coalesce(sum(count), 0) FROM h)";

static int prune(dur__pg *store, const dur_bulk_filter *filter, const dur_prune_options *options, bool bulk,
                 dur_prune_result *out, dur_error *err) {
    dur__pg_args args;
    PGresult *result;
    memset(out, 0, sizeof(*out));
    filter_args(store, &args, filter);
    dur__pg_bool(&args, options->has_keep_last);
    dur__pg_u64(&args, options->keep_last);
    dur__pg_u64(&args, options->completed_before_ms);
    dur__pg_bool(&args, bulk);
    args.walks = true;
    int code = dur__pg_one(store, "postgres.prune", prune_sql, &args, true, &result, err);
    if (code == DUR_OK) {
        out->instances_processed = dur__pg_get_u64(result, 0, 0);
        out->executions_deleted = dur__pg_get_u64(result, 0, 1);
        out->events_deleted = dur__pg_get_u64(result, 0, 2);
    }
    PQclear(result);
    return code;
}

int dur__pg_prune_executions(dur_provider *self, const char *instance, const dur_prune_options *options,
                             dur_prune_result *out, dur_error *err) {
    dur_bulk_filter filter = { .instance_ids = &instance, .instance_id_count = 1, .limit = 1 };
    int code = prune(dur__pg_of(self), &filter, options, false, out, err);
    if (code == DUR_OK && out->instances_processed == 0)
        code = dur_error_set(err, DUR_ENOTFOUND, false, "postgres.prune", "instance %s not found", instance);
    return code;
}

int dur__pg_prune_executions_bulk(dur_provider *self, const dur_bulk_filter *filter, const dur_prune_options *options,
                                  dur_prune_result *out, dur_error *err) {
    return prune(dur__pg_of(self), filter, options, true, out, err);
}
