/*
 * pg_message.c: messages to instances: how they are put into the queue and how the instance's row learns of them.
 *
 * Every sender first locks the rows of all instances that its transaction touches, in order of their ids: so two
 * batches that cross (parents and children of two nodes) wait for each other and never deadlock.  A row that is missing
 * cannot be locked: it is made, or the message refused.  What stands in a row, and in the queue behind it, is read by
 * later statements only, and of rows that were locked only: whoever goes by a snapshot that is older than the lock
 * takes a reason to look for one that is still there, when its holder has looked.
 */
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"
#include "provider/to_nobody.h"

#include <stdlib.h>

#define TARGETS_MAX 1000u /* whose owners a notification names; others look by themselves */

/* ---- the outbox -------------------------------------------------------------------------------------------------- */

void dur__pg_outbox_begin(dur__pg_outbox *box) {
    *box = (dur__pg_outbox){ .messages = dur__pg_table_of("tiiitiittt"),
                             .locks = dur__pg_array_text(),
                             .receivers = dur__pg_array_text() };
}

void dur__pg_outbox_end(dur__pg_outbox *box) {
    dur__pg_table_free(&box->messages);
    dur__buf_free(&box->locks.data);
    dur__buf_free(&box->receivers.data);
}

#define IF_OVERDUE -1 /* as a delay: none, and no due time either if it has passed */

static void add(dur__pg_outbox *box, const dur_message_row *item, int64_t delay_ms) {
    dur__pg_table *rows = &box->messages;
    dur__pg_put_text(rows, item->instance);
    dur__pg_put_i64(rows, (int64_t)item->kind);
    dur__pg_put_id(rows, item->execution_id);
    dur__pg_put_id(rows, item->activity_id);
    dur__pg_put_text(rows, item->kind == DUR_WORK_QUEUE_MESSAGE ? item->queue : NULL);
    dur__pg_put_i64(rows, dur__pg_ms(item->due_ms));
    dur__pg_put_i64(rows, delay_ms);
    dur__pg_put_json(rows, item->json);
    dur__pg_put_text(rows, item->handler);
    dur__pg_put_text(rows, item->parent);
    if (dur__needs_receiver(item->kind)) dur__pg_add_text(&box->receivers, item->instance);
}

void dur__pg_outbox_add(dur__pg_outbox *box, const dur_message_row *item, uint64_t delay_ms) {
    add(box, item, dur__pg_ms(delay_ms));
}

void dur__pg_outbox_add_behind(dur__pg_outbox *box, const dur_message_row *item) {
    add(box, item, IF_OVERDUE);
}

void dur__pg_outbox_lock(dur__pg_outbox *box, const char *instance) {
    dur__pg_add_text(&box->locks, instance);
}

/*
 * Make the rows that are missing and lock all of them, in one pass in order of ids.  The condition that is never true
 * changes nothing but locks the row, and waits for somebody who is just deleting it.  Who only sends, or writes rows of
 * his own leases, locks them as an update does that leaves the key alone (FOR NO KEY UPDATE); who ends the leases of
 * others as a deletion does (FOR UPDATE): the column that is named decides.
 */
#define OR_LOCK(column) " ON CONFLICT (instance_id) DO UPDATE SET " column " = excluded." column " WHERE false"
#define MAKE(column)                                                                                                   \
    "INSERT INTO @instances (instance_id) SELECT DISTINCT x.id COLLATE \"C\" FROM unnest($2::text[]) AS x(id) ORDER"   \
    " BY 1" OR_LOCK(column)
static const char make_sql[] = MAKE("known");
const char dur__pg_lock_to_end_sql[] = MAKE("instance_id");
static const char lock_sql[] = "SELECT count(*) FROM (SELECT 1 FROM @instances WHERE instance_id = ANY ($2::text[])"
                               " ORDER BY instance_id FOR NO KEY UPDATE) t";

void dur__pg_outbox_send_locks(dur__pg_outbox *box, dur__pg_batch *batch) {
    dur__pg_array all = dur__pg_array_text();
    dur__pg_add_all(&all, &box->messages.columns[0]);
    dur__pg_add_all(&all, &box->locks);
    if (box->ends_leases) /* a row that is missing is made: one that comes meanwhile would be written unlocked */
        dur__pg_batch_add_ids(batch, dur__pg_lock_to_end_sql, &all);
    else if (box->messages.rows > 0)
        dur__pg_batch_add_ids(batch, make_sql, &all);
    else if (box->locks.count > 0)
        dur__pg_batch_add_ids(batch, lock_sql, &all);
    dur__buf_free(&all.data);
}

/*
 * $12, under which condition: 0 none; 1 only for an instance that does not exist; 2 only for one that does and whose
 * row is locked (lock_existing_sql), whose message id ($13) was not accepted before, and which, for a queue message,
 * has not ended; 3 of a turn: some kinds need somebody whom they are for (dur__needs_receiver).
 */
enum { ALWAYS, IF_NEW, IF_THERE, OF_TURN };
#define IS_KNOWN "EXISTS (SELECT 1 FROM @instances i WHERE i.instance_id = x.instance AND i.known"
#define MAY_SEND                                                                                                       \
    "CASE $12::bigint WHEN 0 THEN true WHEN 1 THEN NOT " IS_KNOWN ") WHEN 2 THEN " DUR__PG_IS_LOCKED " AND " IS_KNOWN  \
    " AND NOT (x.kind = " DUR__PG_KIND_QUEUE " AND " DUR__PG_FINISHED ") AND NOT EXISTS (SELECT 1 FROM @accepted a"    \
    " WHERE a.instance_id = i.instance_id AND a.message_id = $13)) ELSE x.kind NOT IN (8, 9, " DUR__PG_CANCEL ") OR"   \
    " " IS_KNOWN ") END"

/* When an undelayed message came, for its place in the order: by the clock, and never before one that still waits. */
#define CAME_PLAIN                                                                                                     \
    "greatest(now, (SELECT q.order_ms FROM @queue q WHERE q.instance_id = m.instance AND q.queue IS NULL AND "         \
    "q.due_ms = 0 ORDER BY q.id DESC LIMIT 1))"
#define CAME_NAMED                                                                                                     \
    "greatest(now, (SELECT q.order_ms FROM @queue q WHERE q.instance_id = m.instance AND q.queue = m.queue AND "       \
    "q.due_ms = 0 ORDER BY q.order_ms DESC LIMIT 1))"

/*
 * The message is inserted and the instance's row says when to look, in one statement.  What begins anew (a start for
 * what does not exist, or the first trace of an instance of which nothing is left) has no counts and delays of what was
 * there before; a lock that still holds is not over.
 */
/* clang-format off */
static const char send_sql[] = /* which were sent, from 1 on; nobody asks that of turns */
    "WITH m AS MATERIALIZED (SELECT x.*, CASE WHEN x.delay > 0 THEN greatest(x.due, n.now + x.delay) WHEN x.delay < 0"
    " AND x.due <= n.now THEN 0 ELSE x.due END AS due_ms, n.now FROM (SELECT #now AS now) n,"
    " unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::bigint[], $8::bigint[],"
    " $9::text[], $10::text[], $11::text[]) WITH ORDINALITY AS x(instance, kind, execution, activity, queue, due,"
    " delay, json, handler, parent, at) WHERE " MAY_SEND "),"
    " sent AS (INSERT INTO @queue (instance_id, due_ms, order_ms, kind, execution_id, activity_id, queue, json,"
    " handler, parent)"
    " SELECT instance, due_ms, CASE WHEN due_ms <> 0 THEN due_ms WHEN queue IS NULL THEN " CAME_PLAIN
    " ELSE " CAME_NAMED " END, kind::smallint, execution, activity, queue, json, handler, parent FROM m ORDER BY at),"
    " taken AS (INSERT INTO @accepted (instance_id, message_id, execution_id, at_ms) SELECT m.instance, $13,"
    " greatest(i.current_execution, 1), m.now FROM m JOIN @instances i ON i.instance_id = m.instance"
    " WHERE $13 IS NOT NULL LIMIT 1),"
    " g AS (SELECT instance, max(now) AS now, bool_or(kind IN " DUR__PG_STARTS ") AS starts,"
    " max(handler) AS handler, bool_or(kind = " DUR__PG_CONTINUE_AS_NEW ") AS continues,"
    " min(coalesce(nullif(due_ms, 0), now)) AS at, min(due_ms) AS due,"
    " min(coalesce(nullif(due_ms, 0), now)) FILTER (WHERE kind = " DUR__PG_KIND_QUEUE ") AS q_at,"
    " min(due_ms) FILTER (WHERE kind = " DUR__PG_KIND_QUEUE ") AS q_due FROM m GROUP BY instance),"
    " r AS (SELECT i.instance_id, i.known OR g.starts AS known, g.now, CASE WHEN i.not_before > g.now THEN "
    "i.not_before ELSE 0 END AS until,"
    " CASE WHEN i.known THEN least(i.ready_at, CASE WHEN g.due = 0 AND i.owner IS NOT NULL THEN 0 ELSE g.at END)"
    " WHEN g.starts THEN least(g.at, (SELECT min(q.order_ms) FROM"
    " @queue q WHERE q.instance_id = i.instance_id)) ELSE least(i.ready_at, g.q_at) END AS at,"
    " CASE WHEN i.known THEN least(o.due, g.due)"
    " WHEN g.starts THEN least(g.due, (SELECT min(q.due_ms) FROM @queue q WHERE q.instance_id = i.instance_id))"
    " ELSE coalesce(least(o.due, g.q_due), 0) END AS due,"
    " NOT i.known AND i.owner IS NULL AND coalesce(i.expires_at, 0) <= g.now AND (g.starts OR (" DUR__PG_EMPTY ")) AS"
    " anew, CASE WHEN g.continues OR NOT i.known THEN g.handler END AS next FROM g JOIN @instances i ON i.instance_id ="
    " g.instance, LATERAL (SELECT CASE WHEN i.ready_at IS NOT NULL THEN i.ready_due END AS due) o),"
    " u AS (UPDATE @instances i SET known = r.known,"
    " acquisitions = CASE WHEN r.anew THEN 0 ELSE i.acquisitions END,"
    " not_before = CASE WHEN r.anew THEN 0 ELSE i.not_before END,"
    " created_at = CASE WHEN i.known THEN i.created_at ELSE r.now END,"
    " next = coalesce(r.next, i.next), next_execution = CASE WHEN r.next IS NULL THEN i.next_execution ELSE"
    " i.current_execution + 1 END,"
    " ready_at = CASE WHEN r.anew THEN r.at ELSE r.at + greatest(r.until - r.at, 0) END,"
    " ready_due = CASE WHEN r.anew THEN r.due ELSE greatest(r.due, r.until) END"
    " FROM r WHERE i.instance_id = r.instance_id AND (i.known <> r.known OR i.ready_at IS DISTINCT FROM r.at OR"
    " i.ready_due <> r.due OR r.next IS NOT NULL OR (r.anew AND i.acquisitions + i.not_before > 0)))"
    " SELECT at FROM m WHERE $12 <> 3";
/* clang-format on */

/* Its place; -1: there is nothing to send. */
static int send_if(dur__pg_outbox *box, dur__pg_batch *batch, int64_t condition, const char *message_id) {
    dur__pg_args args;
    if (box->messages.rows == 0) return -1;
    if (batch->targets.count < TARGETS_MAX) dur__pg_add_all(&batch->targets, &box->messages.columns[0]);
    dur__pg_args_begin(batch->conn->store, &args);
    dur__pg_table_args(&args, &box->messages);
    dur__pg_i64(&args, condition);
    dur__pg_text(&args, message_id);
    return dur__pg_batch_add(batch, send_sql, &args);
}

/* A row that was made to be locked for a message that went nowhere stands for nothing. */
const char dur__pg_sweep_sql[] =
    "DELETE FROM @instances i WHERE i.instance_id = ANY ($2::text[]) AND i.token IS NULL AND " DUR__PG_EMPTY;

void dur__pg_outbox_send(dur__pg_outbox *box, dur__pg_batch *batch) {
    send_if(box, batch, OF_TURN, NULL);
    if (box->receivers.count > 0) dur__pg_batch_add_ids(batch, dur__pg_sweep_sql, &box->receivers);
}

/* ---- methods ----------------------------------------------------------------------------------------------------- */

int dur__pg_enqueue_for_orchestrator(dur_provider *self, const dur_message_row *item, uint64_t delay_ms,
                                     dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_batch batch;
    dur__pg_outbox box;
    int code = dur__pg_batch_open(&batch, store, true, err);
    if (code != DUR_OK) return code;
    dur__pg_outbox_begin(&box);
    dur__pg_outbox_add(&box, item, delay_ms);
    dur__pg_outbox_send_locks(&box, &batch);
    send_if(&box, &batch, ALWAYS, NULL);
    dur__pg_batch_notify(&batch);
    code = dur__pg_batch_run(&batch, "postgres.enqueue", err);
    dur__pg_batch_end(&batch);
    dur__pg_outbox_end(&box);
    if (code == DUR_OK) dur__pg_wake(store, NULL, item->instance);
    return code;
}

/* ---- starts ------------------------------------------------------------------------------------------------------ */

/* Those whose instance does not exist, in one transaction; of the others `existed` is set.  No id twice. */
static int start_new_ones(dur__pg_conn *conn, dur_start_request *const *starts, size_t count, dur_error *err) {
    dur__pg_batch batch;
    dur__pg_outbox box;
    dur__pg_batch_begin(&batch, conn, true);
    dur__pg_outbox_begin(&box);
    for (size_t i = 0; i < count; i++)
        dur__pg_outbox_add(&box, starts[i]->item, starts[i]->delay_ms);
    dur__pg_outbox_send_locks(&box, &batch);
    int at = send_if(&box, &batch, IF_NEW, NULL);
    dur__pg_batch_notify(&batch);
    int code = dur__pg_batch_run(&batch, "postgres.start", err);
    for (size_t i = 0; code == DUR_OK && i < count; i++)
        starts[i]->existed = true;
    for (int row = 0; code == DUR_OK && row < PQntuples(batch.results[at]); row++)
        starts[dur__pg_get_i64(batch.results[at], row, 0) - 1]->existed = false;
    dur__pg_batch_end(&batch);
    dur__pg_outbox_end(&box);
    return code;
}

/* In a transaction: in the place of one that has ended, which goes with its tree. */
static int replace_finished(dur__pg_conn *conn, dur_start_request *start, dur_error *err) {
    dur_error why = DUR_ERROR_INIT;
    int code = dur__pg_delete_tree(conn, start->item->instance, &why);
    if (code == DUR_ERUNNING || code == DUR_ECHILD)
        code = dur_error_set(&why, DUR_EEXISTS, false, "postgres.start", "instance %s is running, or one of its tree",
                             start->item->instance);
    if (code == DUR_OK) code = start_new_ones(conn, &start, 1, &why);
    if (code == DUR_OK && start->existed) /* somebody else's, since then */
        code =
            dur_error_set(&why, DUR_EEXISTS, false, "postgres.start", "instance %s is running", start->item->instance);
    start->existed = true;
    if (code != DUR_OK && err != NULL) *err = why;
    return code;
}

/* Its instance exists. */
static int go_by_policy(dur__pg_conn *conn, dur_start_request *start, dur_error *err) {
    if (start->policy == DUR_EXISTS_RETURN) return DUR_OK;
    if (start->policy != DUR_EXISTS_REPLACE_FINISHED)
        return dur_error_set(err, DUR_EEXISTS, false, "postgres.start", "instance %s already exists",
                             start->item->instance);
    if (conn->foreign) return replace_finished(conn, start, err);
    int code = dur__pg_begin(conn, err);
    return code == DUR_OK ? dur__pg_end(conn, "postgres.start", replace_finished(conn, start, err), err) : code;
}

int dur__pg_start_on(dur__pg_conn *conn, dur_start_request *start, dur_error *err) {
    int code = start_new_ones(conn, &start, 1, err);
    return code == DUR_OK && start->existed ? go_by_policy(conn, start, err) : code;
}

/* Together as far as they go together; the rest one by one. */
static void start_together(dur__pg_conn *conn, dur_start_request *starts, size_t count) {
    dur__map ids = { 0 };
    dur_start_request **together = dur__xmalloc(count * sizeof(dur_start_request *));
    size_t first = 0;
    dur_error err = DUR_ERROR_INIT;
    for (size_t i = 0; i < count; i++) {
        if (dur__map_get(&ids, starts[i].item->instance) != NULL) continue;
        dur__map_put(&ids, starts[i].item->instance, &starts[i]);
        together[first++] = &starts[i];
    }
    int code = start_new_ones(conn, together, first, &err);
    for (size_t i = 0; i < count; i++) {
        dur_start_request *start = &starts[i];
        bool sent = code == DUR_OK && dur__map_get(&ids, start->item->instance) == start;
        if (code != DUR_OK && (err.retryable || code == DUR_EUNKNOWN))
            start->error = err;
        else if (!sent) /* also after an error of one of them, which is not the others' */
            (void)dur__pg_start_on(conn, start, &start->error);
        else if (start->existed)
            (void)go_by_policy(conn, start, &start->error);
    }
    dur__map_free(&ids);
    dur__free(together);
}

int dur__pg_enqueue_starts(dur_provider *self, dur_start_request *starts, size_t count, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_conn *conn;
    int code = dur__pg_borrow(store, &conn, err);
    if (code != DUR_OK) return code;
    start_together(conn, starts, count);
    dur__pg_return(conn);
    dur__pg_wake_lanes(store, NULL);
    for (size_t i = 0; i < count; i++)
        if (starts[i].error.code == DUR_OK) dur__pg_wake_watches(store, starts[i].item->instance);
    return DUR_OK;
}

int dur__pg_enqueue_start(dur_provider *self, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms,
                          bool *existed, dur_error *err) {
    dur_start_request start = { .item = item, .policy = policy, .delay_ms = delay_ms, .error = DUR_ERROR_INIT };
    int code = dur__pg_enqueue_starts(self, &start, 1, err);
    *existed = start.existed;
    if (code != DUR_OK || start.error.code == DUR_OK) return code;
    if (err != NULL) *err = start.error;
    return (int)start.error.code;
}

/* ---- messages to what exists ------------------------------------------------------------------------------------- */

/* A row that is there is locked, one that is missing is not made: a refusal leaves nothing behind, and holds up nobody
   who begins the instance in that moment. */
static const char lock_existing_sql[] = DUR__PG_LOCK_ONE("NO KEY UPDATE");
static const char look_sql[] =
    "SELECT i.known, EXISTS (SELECT 1 FROM @accepted a WHERE a.instance_id = i.instance_id AND a.message_id ="
    " $3::text),"
    " " DUR__PG_FINISHED " FROM @instances i WHERE i.instance_id = $2::text";

static int say_why_not(const PGresult *row, const dur_message_row *item, dur_error *err) {
    const char *op = "postgres.enqueue";
    if (PQntuples(row) == 0 || !dur__pg_get_bool(row, 0, 0))
        return dur_error_set(err, DUR_ENOTFOUND, false, op, "instance %s not found", item->instance);
    if (dur__pg_get_bool(row, 0, 1))
        return dur_error_set(err, DUR_EDUPLICATE, false, op, "message %s was accepted before", item->message_id);
    return dur_error_set(err, DUR_ESTATE, false, op, "instance %s has ended", item->instance);
}

/* *came: its row has come between the lock and the look, and nothing was sent. */
static int existing_once(dur__pg_conn *conn, const dur_message_row *item, uint64_t delay_ms, bool *came,
                         dur_error *err) {
    dur__pg_args args;
    dur__pg_batch batch;
    dur__pg_outbox box;
    dur__pg_batch_begin(&batch, conn, true);
    dur__pg_outbox_begin(&box);
    int lock = dur__pg_batch_add_id(&batch, lock_existing_sql, item->instance);
    dur__pg_args_of(conn->store, &args, item->instance);
    dur__pg_text(&args, item->message_id);
    int look = dur__pg_batch_add(&batch, look_sql, &args);
    dur__pg_outbox_add(&box, item, delay_ms);
    int sent = send_if(&box, &batch, IF_THERE, item->message_id);
    dur__pg_batch_notify(&batch);
    int code = dur__pg_batch_run(&batch, "postgres.enqueue", err);
    *came = false;
    if (code == DUR_OK && PQntuples(batch.results[sent]) == 0) {
        *came = dur__pg_get_i64(batch.results[lock], 0, 0) == 0 && PQntuples(batch.results[look]) > 0;
        code = *came ? DUR_OK : say_why_not(batch.results[look], item, err);
    }
    dur__pg_batch_end(&batch);
    dur__pg_outbox_end(&box);
    return code;
}

int dur__pg_existing_on(dur__pg_conn *conn, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    bool came;
    int code;
    do {
        code = existing_once(conn, item, delay_ms, &came, err);
    } while (came);
    return code;
}

int dur__pg_enqueue_existing(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_conn *conn;
    int code = dur__pg_borrow(store, &conn, err);
    if (code != DUR_OK) return code;
    code = dur__pg_existing_on(conn, item, delay_ms, err);
    dur__pg_return(conn);
    if (code == DUR_OK) dur__pg_wake(store, NULL, item->instance);
    return code;
}
