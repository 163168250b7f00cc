/*
 * pg_batch.c: pipelines: many statements, one round trip, one transaction.
 *
 * Statements between two Syncs are one implicit transaction; the server commits at the Sync.  So when the connection is
 * lost after the Sync was sent and before its answer came, nobody can tell what happened: DUR_EUNKNOWN.  Unless the
 * server has said that it ends the session: it answers in order, so whatever it had not answered by then it has not
 * done, and a batch of which a statement is not answered was not committed.
 */
#include "base/assert.h"
#include "provider/postgres/pg_internal.h"

#include <stdio.h>
#include <stdlib.h>

/*
 * Plans are made while the tables are empty, where every way through them looks the same, and are kept.  So they are
 * made again when there may be more to go by: after 16 batches, 64, 256 …
 */
static void plan_again(dur__pg_conn *conn) {
    if (conn->store->pooler || conn->foreign || ++conn->batches < conn->plan_again_at) return;
    if (conn->plan_again_at > 0 && PQtransactionStatus(conn->pg) == PQTRANS_IDLE)
        (void)dur__pg_simple(conn, "DISCARD PLANS", NULL);
    conn->plan_again_at = conn->batches < 4 ? 16 : conn->batches * 4;
}

/*
 * Behind a pooler the session's defaults are not ours to set: each transaction says what it needs.  Claims need a
 * snapshot per statement.  Not by SET TRANSACTION, nor SET LOCAL: outside of a block, as the first statement of a
 * pipeline is, each is a warning in the server's log.  These two are of the transaction, however they are set; a
 * parameter, or a SELECT, would need a snapshot, and then it were too late.
 */
static const char isolation_sql[] = "SET transaction_isolation = 'read committed'";
static const char writes_sql[] = "SET transaction_read_only = off";
#define WAITS(lock_wait)                                                                                               \
    "SELECT pg_catalog.set_config('lock_timeout', '" lock_wait "', true),"                                             \
    " pg_catalog.set_config('statement_timeout', '0', true)"
static const char waits_sql[] = WAITS(DUR__PG_LOCK_WAIT);
static const char waits_hurried_sql[] = WAITS(DUR__PG_LOCK_WAIT_HURRIED);

enum { SETTINGS = 3 };

static void say_settings(dur__pg_batch *batch) {
    const dur__pg_conn *conn = batch->conn;
    const char *const sqls[SETTINGS] = { isolation_sql, writes_sql, conn->hurries ? waits_hurried_sql : waits_sql };
    for (int i = 0; conn->store->pooler && i < SETTINGS; i++) {
        dur__pg_args none = { .count = 0 };
        dur__pg_batch_add(batch, sqls[i], &none);
    }
}

void dur__pg_batch_begin(dur__pg_batch *batch, dur__pg_conn *conn, bool writes) {
    memset(batch, 0, sizeof(*batch));
    plan_again(conn);
    batch->conn = conn;
    batch->targets = dur__pg_array_text();
    batch->inside = PQtransactionStatus(conn->pg) != PQTRANS_IDLE;
    conn->may_wait = (writes || batch->inside) && !conn->hurries;
    batch->writes = writes && !batch->inside; /* else its COMMIT decides */
    batch->failed_at = -1;
    if (PQenterPipelineMode(conn->pg) != 1)
        batch->code = dur__pg_error(&batch->error, "postgres.send", "08006", PQerrorMessage(conn->pg));
    if (!batch->inside) say_settings(batch);
}

int dur__pg_batch_open(dur__pg_batch *batch, dur__pg *store, bool writes, dur_error *err) {
    dur__pg_conn *conn;
    int code = dur__pg_borrow(store, &conn, err);
    if (code != DUR_OK) return code;
    dur__pg_batch_begin(batch, conn, writes);
    batch->pooled = true;
    return DUR_OK;
}

static void send_failed(dur__pg_batch *batch) {
    if (batch->code != DUR_OK) return;
    batch->code = dur__pg_error(&batch->error, "postgres.send", "08006", PQerrorMessage(batch->conn->pg));
}

static void send_statement(dur__pg_batch *batch, int at, const char *sql, const dur__pg_args *args) {
    dur__pg_conn *conn = batch->conn;
    const char *text = dur__pg_sql(conn->store, sql);
    if (conn->store->pooler || conn->foreign) { /* named statements belong to a server session that is not ours */
        if (PQsendQueryParams(conn->pg, text, args->count, args->types, args->values, args->lengths, args->formats,
                              0) != 1)
            send_failed(batch);
        return;
    }
    uint64_t key = (uint64_t)(uintptr_t)sql;
    uintptr_t number = (uintptr_t)dur__map_get_u64(&conn->prepared, key);
    char name[32];
    if (number == 0) {
        number = ++conn->next_name;
        snprintf(name, sizeof(name), "durite_%u", (unsigned)number);
        if (PQsendPrepare(conn->pg, name, text, args->count, args->types) != 1) {
            send_failed(batch);
            return;
        }
        batch->preparing[at] = true;
        dur__map_put_u64(&conn->prepared, key, (void *)number);
    }
    snprintf(name, sizeof(name), "durite_%u", (unsigned)number);
    if (PQsendQueryPrepared(conn->pg, name, args->count, args->values, args->lengths, args->formats, 0) != 1)
        send_failed(batch);
}

int dur__pg_batch_add(dur__pg_batch *batch, const char *sql, dur__pg_args *args) {
    DUR_ASSERT(batch->count < DUR__PG_BATCH);
    int at = batch->count++;
    batch->sqls[at] = sql;
    if (args->walks) dur__pg_set_patience(batch->conn, 0); /* one of the pool */
    if (batch->code == DUR_OK) send_statement(batch, at, sql, args);
    dur__pg_args_free(args);
    return at;
}

int dur__pg_batch_add_rows(dur__pg_batch *batch, const char *sql, dur__pg_table *table) {
    dur__pg_args args;
    if (table->rows == 0) return -1;
    dur__pg_args_begin(batch->conn->store, &args);
    dur__pg_table_args(&args, table);
    return dur__pg_batch_add(batch, sql, &args);
}

int dur__pg_batch_add_id(dur__pg_batch *batch, const char *sql, const char *id) {
    dur__pg_args args;
    dur__pg_args_of(batch->conn->store, &args, id);
    return dur__pg_batch_add(batch, sql, &args);
}

int dur__pg_batch_add_ids(dur__pg_batch *batch, const char *sql, const dur__pg_array *ids) {
    dur__pg_args args;
    dur__pg_args_begin(batch->conn->store, &args);
    dur__pg_array_copy_arg(&args, ids);
    return dur__pg_batch_add(batch, sql, &args);
}

/*
 * In a transaction of several batches, the caller's own perhaps, it waits for the COMMIT.  It must not say how durable
 * that is, and its failure is one of the transaction: a COMMIT would undo it and be answered as if all were well.
 */
static const char notify_inside_sql[] = "SELECT pg_notify($2, '')";

void dur__pg_batch_notify(dur__pg_batch *batch) {
    batch->notify = !batch->inside;
    if (batch->inside) dur__pg_batch_add_id(batch, notify_inside_sql, batch->conn->store->channel);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void note_failure(dur__pg_batch *batch, int at, const PGresult *result) {
    batch->ended = dur__pg_note_farewell(batch->conn, result) || batch->ended;
    if (batch->code != DUR_OK) return;
    const char *state = result != NULL ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : NULL;
    const char *text = result != NULL ? PQresultErrorMessage(result) : NULL;
    if (text == NULL || text[0] == '\0') text = PQerrorMessage(batch->conn->pg);
    if (state != NULL) snprintf(batch->sqlstate, sizeof(batch->sqlstate), "%s", state);
    batch->failed_at = at;
    batch->code = dur__pg_error_of(batch->conn, &batch->error, "postgres", state, text);
}

/* The next result of the statement being read; statements are separated by NULL. */
static PGresult *next_result(dur__pg_batch *batch) {
    batch->late = batch->late || !dur__pg_answers(batch->conn);
    if (!batch->late) return PQgetResult(batch->conn->pg);
    if (batch->code == DUR_OK) batch->code = dur__pg_late(&batch->error, "postgres");
    return NULL;
}

static void read_statement(dur__pg_batch *batch, int at) {
    PGresult *result = next_result(batch);
    if (result == NULL) { /* the connection is gone */
        note_failure(batch, at, NULL);
        return;
    }
    ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK) {
        batch->results[at] = result;
    } else {
        if (status != PGRES_PIPELINE_ABORTED || batch->code == DUR_OK) note_failure(batch, at, result);
        PQclear(result);
    }
    PGresult *end;
    while ((end = next_result(batch)) != NULL)
        PQclear(end);
}

static void read_prepare(dur__pg_batch *batch, int at) {
    PGresult *result = next_result(batch);
    if (result == NULL || PQresultStatus(result) != PGRES_COMMAND_OK) note_failure(batch, at, result);
    PQclear(result);
    PGresult *end;
    while ((end = next_result(batch)) != NULL)
        PQclear(end);
}

static bool read_sync(dur__pg_batch *batch) {
    PGresult *result = next_result(batch);
    bool synced = result != NULL && PQresultStatus(result) == PGRES_PIPELINE_SYNC;
    if (!synced) note_failure(batch, -1, result);
    PQclear(result);
    return synced;
}

/* It need not be durable: the commit that it is about is. */
#define NOT_DURABLE "set_config('synchronous_commit', 'off', true)"
static const char notify_sql[] = "SELECT " NOT_DURABLE ", pg_notify($2, $3)";
static const char notify_owners_sql[] =
    "SELECT " NOT_DURABLE ", pg_notify($2, t.who) FROM (SELECT DISTINCT coalesce(i.owner, '') AS who FROM"
    " unnest($3::text[]) AS x(id) LEFT JOIN @instances i ON i.instance_id = x.id) t";

/* In a transaction of its own: a NOTIFY inside would make commits of the whole database wait for each other. */
static void send_notify(dur__pg_batch *batch) {
    dur__pg_args args;
    say_settings(batch);
    dur__pg_args_of(batch->conn->store, &args, batch->conn->store->channel);
    if (batch->targets.count > 0) {
        dur__pg_array_arg(&args, &batch->targets);
        dur__pg_batch_add(batch, notify_owners_sql, &args);
    } else {
        dur__pg_text(&args, "");
        dur__pg_batch_add(batch, notify_sql, &args);
    }
    if (batch->code == DUR_OK && PQpipelineSync(batch->conn->pg) != 1) send_failed(batch);
}

/* What is on its way is not undone by a notification that cannot be sent. */
static bool send_notify_behind(dur__pg_batch *batch) {
    send_notify(batch);
    bool sent = batch->code == DUR_OK;
    if (!sent) {
        batch->code = DUR_OK;
        dur_error_clear(&batch->error);
    }
    return sent;
}

void dur__pg_batch_notify_first(dur__pg_batch *batch) {
    if (batch->conn->store->pooler) { /* its transaction has begun: behind it, then */
        batch->notify = true;
        return;
    }
    DUR_ASSERT(batch->count == 0);
    send_notify(batch);
    batch->notified = true;
}

/* Whether it arrives does not matter: there is the look each second. */
static bool read_notify(dur__pg_batch *batch, int from, int end) {
    int code = batch->code;
    batch->code = DUR_ETIMEOUT; /* keeps the error as it is */
    for (int at = from; at < end; at++) {
        if (batch->preparing[at]) read_prepare(batch, at);
        read_statement(batch, at);
    }
    bool synced = read_sync(batch);
    batch->code = code;
    return synced;
}

/* Prepared statements that this batch began to make may not exist; others may be stale. */
static void forget_prepared(dur__pg_batch *batch) {
    dur__pg_conn *conn = batch->conn;
    if (conn->store->pooler || conn->foreign || conn->pg == NULL) return;
    bool stale = strncmp(batch->sqlstate, "0A000", 5) == 0 || strncmp(batch->sqlstate, "26000", 5) == 0 ||
                 strncmp(batch->sqlstate, "42P", 3) == 0 || strncmp(batch->sqlstate, "3F000", 5) == 0;
    for (int i = 0; i < batch->count; i++)
        if (batch->preparing[i] && (batch->failed_at >= 0 && i >= batch->failed_at)) stale = true;
    if (!stale) return;
    dur__map_free(&conn->prepared);
    memset(&conn->prepared, 0, sizeof(conn->prepared));
    if (dur__pg_simple(conn, "DEALLOCATE ALL", NULL) != DUR_OK) dur__pg_disconnect(conn);
}

static int read_answers(dur__pg_batch *batch, int statements, const char *op) {
    bool lost = batch->notified && !read_notify(batch, 0, 1);
    for (int i = batch->notified ? 1 : 0; i < statements && !lost; i++) {
        if (batch->preparing[i]) read_prepare(batch, i);
        read_statement(batch, i);
        lost = batch->late || PQstatus(batch->conn->pg) != CONNECTION_OK;
    }
    bool known = batch->code != DUR_OK && !lost && !batch->ended; /* the server said that it failed */
    if (batch->conn->farewell && statements > 0 && batch->results[statements - 1] == NULL) { /* or that it ends */
        known = true;
        if (batch->code == DUR_OK)
            batch->code = dur__pg_error(&batch->error, op, "57P01", "the server has ended the session");
    }
    bool synced = !lost && read_sync(batch);
    if (!synced && !known && batch->writes)
        batch->code = dur_error_set(&batch->error, DUR_EUNKNOWN, true, op,
                                    "the connection was lost while committing; it may have happened or not");
    return synced ? DUR_OK : DUR_EUNAVAILABLE;
}

int dur__pg_batch_run(dur__pg_batch *batch, const char *op, dur_error *err) {
    PGconn *pg = batch->conn->pg;
    int statements = batch->count;
    bool sent = batch->code == DUR_OK && PQpipelineSync(pg) == 1;
    if (!sent) send_failed(batch);
    bool notify = sent && batch->notify && batch->count + SETTINGS < DUR__PG_BATCH;
    bool whole = !notify || send_notify_behind(batch);
    if (sent) {
        bool good = read_answers(batch, statements, op) == DUR_OK && whole;
        if (good && notify) good = read_notify(batch, statements, batch->count);
        if (!good || PQexitPipelineMode(pg) != 1) dur__pg_disconnect(batch->conn);
    } else {
        dur__pg_disconnect(batch->conn); /* nothing was committed: there was no Sync */
    }
    if (batch->code != DUR_OK) {
        forget_prepared(batch);
        if (batch->error.code == DUR_OK) batch->error.code = (dur_code)batch->code;
        snprintf(batch->error.op, sizeof(batch->error.op), "%s", op);
        if (err != NULL) *err = batch->error;
    }
    return batch->code;
}

void dur__pg_batch_end(dur__pg_batch *batch) {
    for (int i = 0; i < batch->count; i++)
        PQclear(batch->results[i]);
    dur__buf_free(&batch->targets.data);
    batch->count = 0;
    if (batch->pooled) dur__pg_return(batch->conn);
}

int dur__pg_one(dur__pg *store, const char *op, const char *sql, dur__pg_args *args, bool writes, PGresult **out,
                dur_error *err) {
    dur__pg_batch batch;
    *out = NULL;
    int code = dur__pg_batch_open(&batch, store, writes, err);
    if (code != DUR_OK) {
        dur__pg_args_free(args);
        return code;
    }
    int at = dur__pg_batch_add(&batch, sql, args);
    code = dur__pg_batch_run(&batch, op, err);
    *out = batch.results[at];
    batch.results[at] = NULL;
    dur__pg_batch_end(&batch);
    return code;
}
