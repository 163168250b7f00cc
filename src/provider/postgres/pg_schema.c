/*
 * pg_schema.c: tables and their migrations.
 *
 * A migration is a list of texts that run in one transaction; the first makes the tables.  The table dur_meta holds
 * the schema's version, and the version that a library must know to use it (min_known): a migration that leaves nodes
 * of the version before working does not raise that one.  An advisory lock keyed by database and schema makes nodes
 * that start together wait for the one that migrates.
 */
#include "provider/postgres/pg_doubts.h"
#include "provider/postgres/pg_internal.h"
#include "provider/postgres/pg_pieces.h"

#include <stdlib.h>

/*
 * Why the tables look like this:
 * - dur_instances is the one row per instance, and the fence of its lease: commits lock it and compare the token in it,
 *   claims take it with SKIP LOCKED, senders mark in it that a message has come (ready_at).  What history says (the
 *   position, the time of the last turn, what is open) is not repeated here.
 * - ready_at: when the instance is worth a look, by the owner of its lease or, if there is none, by anybody; NULL: no
 *   reason.  ready_due = 0: whatever the clock says.
 * - look: a lease has ended otherwise than by its holder while activities were open (dur_history.open), which may have
 *   been local to its runtime: somebody is to look which of them have no row.  2: its owner has died.
 * - known: the instance exists in the sense of provider_methods.h.
 * - handler: what a node must have to take the instance, first column of the indexes by which it is claimed.  next:
 *   that of a start or continue-as-new that waits, until its execution begins.  Of a worker row it is the activity's
 *   name.  '': the row is for every node.  dur_served: which handlers the owners have; '': all.
 * - status, output, started_at, completed_at: of the current execution; those before it are in dur_executions.
 * - dur_history: the events of a turn are one row, a block (core/block.h); open: how many activities are open behind
 *   the row.  The view dur_events shows every event in full.
 * - dur_queue: handler and parent are those of a start: what the instance will be, and whose call it is.
 * - delivered: 0, or in which round of the lane that holds the instance the message was handed out (1: outside of
 * rounds).
 * - dur_owners.dead: 1 it has died, 2 it has left; whoever sees that frees what it held, and the row goes last.
 * dur_lanes: whoever takes something under a lane's name locks the lane's row, so that its owner is not dead meanwhile.
 * - fillfactor leaves room in the page for updates that touch no index (HOT): most commits.  A page of dur_instances
 *   has room for a second version of each of its rows: those of a round are updated together, and before it has ended
 *   no old version can go.
 * - Every table has a primary key: without one the server refuses changes while the table is published (replication).
 * - The queues live by inserting and deleting: vacuum them early and cheaply, and never let a threshold grow with size.
 */
static const char *const migration_1[] = {
    "CREATE TABLE @instances ("
    " instance_id text COLLATE \"C\" PRIMARY KEY,"
    " has_row boolean NOT NULL DEFAULT false,"
    " has_history boolean NOT NULL DEFAULT false,"
    " known boolean NOT NULL DEFAULT false,"
    " name text, version text, parent text COLLATE \"C\", birth bigint, suspended text,"
    " custom_status text, custom_status_version bigint NOT NULL DEFAULT 0,"
    " current_execution bigint NOT NULL DEFAULT 0,"
    " pin bigint[],"
    " created_at bigint NOT NULL DEFAULT 0, started_at bigint NOT NULL DEFAULT 0,"
    " completed_at bigint NOT NULL DEFAULT 0,"
    " token text COLLATE \"C\", owner text COLLATE \"C\", holder bigint, expires_at bigint,"
    " acquisitions integer NOT NULL DEFAULT 0,"
    " crashes integer NOT NULL DEFAULT 0, crashes_alone integer NOT NULL DEFAULT 0,"
    " runs_alone boolean NOT NULL DEFAULT false,"
    " not_before bigint NOT NULL DEFAULT 0,"
    " ready_at bigint, ready_due bigint NOT NULL DEFAULT 0,"
    " look smallint NOT NULL DEFAULT 0,"
    " status smallint, output text, next text COLLATE \"C\", next_execution bigint NOT NULL DEFAULT 0,"
    " handler text COLLATE \"C\" GENERATED ALWAYS AS (CASE WHEN look > 0 THEN '' ELSE " DUR__PG_NEEDS "END) STORED"
    ") WITH (fillfactor = 45, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 2000);"
    "CREATE INDEX dur_instances_free ON @instances (handler, ready_at)"
    " WHERE owner IS NULL AND suspended IS NULL AND known AND ready_at IS NOT NULL;"
    "CREATE INDEX dur_instances_undelayed ON @instances (ready_at)"
    " WHERE owner IS NULL AND suspended IS NULL AND known AND ready_at IS NOT NULL AND ready_due = 0;"
    "CREATE INDEX dur_instances_suspects ON @instances (handler, crashes_alone, ready_at)"
    " WHERE owner IS NULL AND suspended IS NULL AND known AND ready_at IS NOT NULL AND crashes >= 2;"
    "CREATE INDEX dur_instances_orphans ON @instances (ready_at) WHERE NOT known AND ready_at IS NOT NULL;"
    "CREATE INDEX dur_instances_held ON @instances (holder, ready_at)"
    " WHERE holder IS NOT NULL AND ready_at IS NOT NULL;"
    "CREATE INDEX dur_instances_owner ON @instances (owner) WHERE owner IS NOT NULL;"
    "CREATE INDEX dur_instances_token ON @instances (token) WHERE token IS NOT NULL;"
    "CREATE INDEX dur_instances_status ON @instances (status, instance_id) WHERE status IS NOT NULL;"
    "CREATE INDEX dur_instances_ended ON @instances (completed_at, instance_id)"
    " WHERE has_row AND parent IS NULL AND status IN (2, 3);"
    "CREATE INDEX dur_instances_starts ON @instances (instance_id) WHERE known AND NOT has_row AND NOT has_history;"
    "CREATE INDEX dur_instances_suspended ON @instances (instance_id) WHERE suspended IS NOT NULL;"
    "CREATE INDEX dur_instances_expires ON @instances (expires_at) WHERE owner IS NULL AND token IS NOT NULL;"
    "CREATE INDEX dur_instances_parent ON @instances (parent) WHERE parent IS NOT NULL;",
    "CREATE TABLE @executions ("
    " instance_id text COLLATE \"C\" NOT NULL, execution_id bigint NOT NULL,"
    " status smallint NOT NULL DEFAULT 1, output text,"
    " started_at bigint NOT NULL DEFAULT 0, completed_at bigint NOT NULL DEFAULT 0,"
    " PRIMARY KEY (instance_id, execution_id)"
    ") WITH (fillfactor = 80);",
    "CREATE TABLE @history ("
    " instance_id text COLLATE \"C\" NOT NULL, execution_id bigint NOT NULL, first_id bigint NOT NULL,"
    " count integer NOT NULL DEFAULT 1, at_ms bigint NOT NULL, open integer NOT NULL DEFAULT 0, block text NOT NULL,"
    " PRIMARY KEY (instance_id, execution_id, first_id)"
    ") WITH (autovacuum_vacuum_insert_scale_factor = 0.05);"
    /* clang-format off */
    "CREATE VIEW @events AS SELECT h.instance_id, h.execution_id, x.event_id, x.json FROM @history h, LATERAL"
    " (SELECT h.first_id AS event_id, substr(h.block, 2) AS json WHERE h.block LIKE '=%' UNION ALL SELECT e.id,"
    " '{\"event_id\":' || e.id || CASE WHEN e.source <> '0' THEN ',\"source_event_id\":' || e.source ELSE '' END ||"
    " ',\"instance_id\":\"' || h.instance_id || '\",\"execution_id\":' || h.execution_id || ',\"timestamp_ms\":' ||"
    " e.stamp || ',\"duroxide_version\":\"' || e.version || '\",\"type\":\"' || e.kind || '\"' || CASE e.fields WHEN"
    " '{}' THEN '}' ELSE ',' || substr(e.fields, 2) END FROM (SELECT " DUR__PG_PLUS("h.first_id", "v.at - 3") " AS id,"
    " coalesce(v.event ->> 2, '0') AS source, (b.block ->> 0)::bigint + coalesce(v.event ->> 3, '0')::bigint AS stamp,"
    " b.block ->> 1 AS version, v.event ->> 0 AS kind, (v.event -> 1)::text AS fields FROM (SELECT CASE WHEN h.block"
    " NOT LIKE '=%' THEN h.block END::json AS block) b, json_array_elements(b.block) WITH ORDINALITY AS v(event, at)"
    " WHERE v.at > 2) e) x;",
    /* clang-format on */
    "CREATE TABLE @queue ("
    " instance_id text COLLATE \"C\" NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),"
    " due_ms bigint NOT NULL, order_ms bigint NOT NULL,"
    " delivered bigint NOT NULL DEFAULT 0, attempts integer NOT NULL DEFAULT 0,"
    " kind smallint NOT NULL, execution_id bigint NOT NULL DEFAULT 0, activity_id bigint NOT NULL DEFAULT 0,"
    " queue text COLLATE \"C\", handler text COLLATE \"C\", parent text COLLATE \"C\", json text NOT NULL,"
    " PRIMARY KEY (instance_id, id)"
    ") WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,"
    " autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000);"
    "CREATE INDEX dur_queue_named ON @queue (instance_id, queue, order_ms, id) WHERE queue IS NOT NULL;"
    "CREATE INDEX dur_queue_plain ON @queue (instance_id, due_ms, id) WHERE queue IS NULL;"
    "CREATE INDEX dur_queue_continued ON @queue (instance_id) WHERE kind = " DUR__PG_CONTINUE_AS_NEW ";"
    "CREATE INDEX dur_queue_parent ON @queue (parent) WHERE parent IS NOT NULL;"
    "CREATE INDEX dur_queue_cancels ON @queue (instance_id) WHERE kind = " DUR__PG_CANCEL ";"
    "CREATE INDEX dur_queue_timers ON @queue (instance_id, activity_id) WHERE kind = 5;",
    "CREATE TABLE @worker ("
    " instance_id text COLLATE \"C\" NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),"
    " execution_id bigint NOT NULL, activity_id bigint NOT NULL,"
    " tag text COLLATE \"C\", session_id text COLLATE \"C\","
    " attempts integer NOT NULL DEFAULT 0, crashes integer NOT NULL DEFAULT 0,"
    " crashes_alone integer NOT NULL DEFAULT 0, runs_alone boolean NOT NULL DEFAULT false,"
    " token text COLLATE \"C\", owner text COLLATE \"C\","
    " until_ms bigint NOT NULL DEFAULT 0, since_ms bigint NOT NULL DEFAULT 0,"
    " json text NOT NULL,"
    " handler text COLLATE \"C\" NOT NULL DEFAULT '',"
    " PRIMARY KEY (instance_id, id)"
    ") WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,"
    " autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000);"
    "CREATE INDEX dur_worker_free ON @worker (handler, id) WHERE owner IS NULL;"
    "CREATE INDEX dur_worker_delayed ON @worker (until_ms) WHERE owner IS NULL AND until_ms > 0;"
    "CREATE INDEX dur_worker_suspects ON @worker (handler, crashes_alone, id) WHERE owner IS NULL AND crashes >= 2;"
    "CREATE INDEX dur_worker_token ON @worker (token) WHERE token IS NOT NULL;"
    "CREATE INDEX dur_worker_owner ON @worker (owner) WHERE owner IS NOT NULL;"
    "CREATE INDEX dur_worker_session_free ON @worker (id) WHERE owner IS NULL AND session_id IS NOT NULL;"
    "CREATE INDEX dur_worker_session_key ON @worker (instance_id) WHERE owner IS NULL AND session_id IS NOT NULL;"
    "CREATE INDEX dur_worker_session ON @worker (session_id) WHERE session_id IS NOT NULL;",
    "CREATE TABLE @sessions ("
    " session_id text COLLATE \"C\" PRIMARY KEY, holder text COLLATE \"C\" NOT NULL, owner text COLLATE \"C\","
    " lock_ms bigint NOT NULL DEFAULT 0, until_ms bigint NOT NULL DEFAULT 0, active_ms bigint NOT NULL DEFAULT 0);"
    "CREATE INDEX dur_sessions_owner ON @sessions (owner) WHERE owner IS NOT NULL;"
    "CREATE INDEX dur_sessions_until ON @sessions (until_ms) WHERE owner IS NULL;",
    "CREATE TABLE @kv ("
    " instance_id text COLLATE \"C\" NOT NULL, key text COLLATE \"C\" NOT NULL, value text NOT NULL,"
    " stamp_ms bigint NOT NULL, PRIMARY KEY (instance_id, key));",
    "CREATE TABLE @kv_delta ("
    " instance_id text COLLATE \"C\" NOT NULL, key text COLLATE \"C\" NOT NULL, value text,"
    " stamp_ms bigint NOT NULL, PRIMARY KEY (instance_id, key));",
    "CREATE TABLE @accepted ("
    " instance_id text COLLATE \"C\" NOT NULL, message_id text COLLATE \"C\" NOT NULL,"
    " execution_id bigint NOT NULL, at_ms bigint NOT NULL, PRIMARY KEY (instance_id, message_id));",
    "CREATE TABLE @dead_letters ("
    " id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, instance_id text COLLATE \"C\" NOT NULL,"
    " reason text NOT NULL, at_ms bigint NOT NULL, json text NOT NULL);",
    "CREATE TABLE @owners ("
    " owner text COLLATE \"C\" PRIMARY KEY, timeout_ms bigint NOT NULL, beat_ms bigint NOT NULL,"
    " lock_key bigint NOT NULL, server_start bigint NOT NULL, session_lock boolean NOT NULL,"
    " dead smallint NOT NULL DEFAULT 0"
    ") WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);",
    "CREATE TABLE @served (activity boolean NOT NULL, handler text COLLATE \"C\" NOT NULL, owner text COLLATE \"C\""
    " NOT NULL REFERENCES @owners ON DELETE CASCADE, PRIMARY KEY (activity, handler, owner));"
    "CREATE INDEX dur_served_owner ON @served (owner);",
    "CREATE TABLE @lanes (holder bigint PRIMARY KEY, owner text COLLATE \"C\" NOT NULL REFERENCES @owners ON DELETE"
    " CASCADE, session bigint NOT NULL) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0,"
    " autovacuum_vacuum_threshold = 500);"
    "CREATE INDEX dur_lanes_owner ON @lanes (owner);",
    "CREATE TABLE @crashed (crash text COLLATE \"C\" NOT NULL, instance_id text COLLATE \"C\" NOT NULL, work_id bigint"
    " NOT NULL, alone boolean NOT NULL, for_good boolean NOT NULL DEFAULT false, PRIMARY KEY (crash, instance_id,"
    " work_id));"
    "CREATE INDEX dur_crashed_row ON @crashed (instance_id, work_id);"
    "CREATE VIEW @doubts AS SELECT a.instance_id, a.work_id, a.crash FROM @crashed a WHERE a.alone AND EXISTS (SELECT 1"
    " FROM @crashed o WHERE o.crash = a.crash AND (o.instance_id, o.work_id) <> (a.instance_id, a.work_id) AND"
    " (o.for_good OR " DUR__PG_UNPROVEN("o") "));",
    "CREATE TABLE @lost (holder bigint NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY,"
    " instance_id text COLLATE \"C\" NOT NULL, asked boolean NOT NULL DEFAULT false, at_ms bigint NOT NULL, PRIMARY"
    " KEY (holder, id));",
    NULL,
};

static const dur__pg_migration migrations[DUR__PG_SCHEMA_VERSION] = { { migration_1, 1 } };

static const char meta_sql[] = "SELECT to_regclass($2) IS NOT NULL";
static const char version_sql[] = "SELECT schema_version, min_known FROM @meta";

/* Version of the schema that is there: 0 when there is none. */
static int read_version(dur__pg_conn *conn, int64_t *version, dur_error *err) {
    dur__pg *store = conn->store;
    dur__pg_args args;
    dur__pg_batch batch;
    dur__buf name = { 0 };
    dur__buf_text(&name, dur__buf_str(&store->prefix));
    dur__buf_text(&name, "dur_meta");
    dur__pg_args_of(store, &args, name.data);
    dur__pg_batch_begin(&batch, conn, false);
    int at = dur__pg_batch_add(&batch, meta_sql, &args);
    int code = dur__pg_batch_run(&batch, "postgres.schema", err);
    bool exists = code == DUR_OK && dur__pg_get_bool(batch.results[at], 0, 0);
    dur__pg_batch_end(&batch);
    dur__buf_free(&name);
    *version = 0;
    if (code != DUR_OK || !exists) return code;
    dur__pg_args_begin(store, &args);
    dur__pg_batch_begin(&batch, conn, false);
    at = dur__pg_batch_add(&batch, version_sql, &args);
    code = dur__pg_batch_run(&batch, "postgres.schema", err);
    if (code == DUR_OK && PQntuples(batch.results[at]) == 1) {
        *version = dur__pg_get_i64(batch.results[at], 0, 0);
        int64_t least = dur__pg_get_i64(batch.results[at], 0, 1);
        if (least > DUR__PG_SCHEMA_VERSION)
            code = dur_error_set(err, DUR_ESCHEMA, false, "postgres.open",
                                 "schema %s has version %lld, this library knows up to %d: use a newer library",
                                 store->schema, (long long)*version, DUR__PG_SCHEMA_VERSION);
    }
    dur__pg_batch_end(&batch);
    return code;
}

static int run_text(dur__pg_conn *conn, const char *text, dur_error *err) {
    return dur__pg_simple(conn, dur__pg_sql(conn->store, text), err);
}

static int create_schema(dur__pg_conn *conn, dur_error *err) {
    dur__buf sql = { 0 };
    char *literal = PQescapeLiteral(conn->pg, conn->store->schema, strlen(conn->store->schema));
    dur__buf_format(&sql, "SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s", literal);
    PQfreemem(literal);
    PGresult *found = dur__pg_exec(conn, sql.data);
    bool exists = PQresultStatus(found) == PGRES_TUPLES_OK && PQntuples(found) > 0;
    PQclear(found);
    dur__buf_clear(&sql);
    /* Asked first: CREATE SCHEMA IF NOT EXISTS needs the right to create even when there is nothing to do. */
    char *name = PQescapeIdentifier(conn->pg, conn->store->schema, strlen(conn->store->schema));
    dur__buf_format(&sql, "CREATE SCHEMA %s", name);
    PQfreemem(name);
    int code = exists ? DUR_OK : dur__pg_simple(conn, sql.data, err);
    dur__buf_free(&sql);
    const char *schema = conn->store->schema, *user = PQuser(conn->pg);
    if (code == DUR_EPERM)
        (void)dur_error_set(
            err, DUR_EPERM, false, "postgres.open",
            "schema \"%.60s\" does not exist, and role \"%.60s\" may not create one in database \"%.60s\": "
            "let an administrator say CREATE SCHEMA \"%.60s\" AUTHORIZATION \"%.60s\"",
            schema, user, PQdb(conn->pg), schema, user);
    return code;
}

int dur__pg_drop_schema(dur__pg *store, dur_error *err) {
    dur__pg_conn *conn = dur__pg_conn_new(store);
    dur__buf sql = { 0 };
    int code = dur__pg_connect(conn, err);
    if (code == DUR_OK) {
        char *name = PQescapeIdentifier(conn->pg, store->schema, strlen(store->schema));
        dur__buf_format(
            &sql,
            "BEGIN READ WRITE; SET LOCAL client_min_messages = warning; SET LOCAL statement_timeout = 0; SET LOCAL"
            " lock_timeout = 0; DROP SCHEMA IF EXISTS %s CASCADE; COMMIT",
            name);
        PQfreemem(name);
        code = dur__pg_simple(conn, sql.data, err);
    }
    dur__buf_free(&sql);
    dur__pg_conn_free(conn);
    return code;
}

static int apply_one(dur__pg_conn *conn, const dur__pg_migration *migration, int64_t version, dur_error *err) {
    dur__buf sql = { 0 };
    int code = DUR_OK;
    for (const char *const *part = migration->parts; code == DUR_OK && *part != NULL; part++)
        code = run_text(conn, *part, err);
    dur__buf_format(&sql, "UPDATE %sdur_meta SET schema_version = %lld, min_known = %d",
                    dur__buf_str(&conn->store->prefix), (long long)version, migration->min_known);
    if (code == DUR_OK) code = dur__pg_simple(conn, sql.data, err);
    dur__buf_free(&sql);
    return code;
}

/* One transaction that takes the lock, looks again and applies what is missing. */
static int apply_once(dur__pg_conn *conn, const dur__pg_migration *more, int more_count, dur_error *err) {
    int64_t version = 0;
    dur__buf sql = { 0 };
    int code = dur__pg_simple(
        conn,
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0",
        err);
    dur__buf_format(&sql, "SELECT pg_advisory_xact_lock(%lld)", (long long)(conn->store->schema_key ^ 0x6d696772));
    if (code == DUR_OK) code = dur__pg_simple(conn, sql.data, err);
    if (code == DUR_OK) code = create_schema(conn, err);
    bool has_schema = code == DUR_OK;
    if (code == DUR_OK)
        code = run_text(conn,
                        "CREATE TABLE IF NOT EXISTS @meta ("
                        " singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),"
                        " schema_version integer NOT NULL, min_known integer NOT NULL, crashed_ms bigint NOT"
                        " NULL DEFAULT 0);"
                        "INSERT INTO @meta (schema_version, min_known) VALUES (0, 1) ON CONFLICT DO NOTHING",
                        err);
    if (code == DUR_OK) {
        PGresult *row = dur__pg_exec(conn, dur__pg_sql(conn->store, "SELECT schema_version FROM @meta FOR UPDATE"));
        if (PQresultStatus(row) == PGRES_TUPLES_OK && PQntuples(row) == 1)
            version = dur__pg_get_i64(row, 0, 0);
        else
            code = dur__pg_error(err, "postgres.schema", PQresultErrorField(row, PG_DIAG_SQLSTATE),
                                 PQresultErrorMessage(row));
        PQclear(row);
    }
    for (; code == DUR_OK && version < DUR__PG_SCHEMA_VERSION + more_count; version++)
        code = apply_one(
            conn, version < DUR__PG_SCHEMA_VERSION ? &migrations[version] : &more[version - DUR__PG_SCHEMA_VERSION],
            version + 1, err);
    if (code == DUR_OK)
        code = dur__pg_simple(conn, "COMMIT", err);
    else
        (void)dur__pg_simple(conn, "ROLLBACK", NULL);
    if (code == DUR_EPERM && has_schema)
        (void)dur_error_set(
            err, DUR_EPERM, false, "postgres.open",
            "role \"%.60s\" may not make or change tables in schema \"%.60s\": GRANT USAGE, CREATE ON SCHEMA "
            "\"%.60s\" TO \"%.60s\" (changes need their owner), or give it one of its own: schema=NAME",
            PQuser(conn->pg), conn->store->schema, conn->store->schema, PQuser(conn->pg));
    dur__buf_free(&sql);
    return code;
}

/* Nodes that run meanwhile lock the same tables in another order: whoever is the victim of a deadlock begins again. */
static int apply(dur__pg_conn *conn, const dur__pg_migration *more, int more_count, dur_error *err) {
    enum { TRIES_MAX = 20 };
    int code = apply_once(conn, more, more_count, err);
    for (int tries = 1; code == DUR_EBUSY && tries < TRIES_MAX; tries++) {
        dur_error_clear(err);
        code = apply_once(conn, more, more_count, err);
    }
    return code;
}

int dur__pg_migrate(dur__pg *store, dur_error *err) {
    dur__pg_conn *conn;
    int64_t version = 0;
    int code = dur__pg_borrow(store, &conn, err);
    if (code != DUR_OK) return code;
    code = read_version(conn, &version, err);
    if (code == DUR_OK && version < DUR__PG_SCHEMA_VERSION) {
        if (store->must_exist)
            code = dur_error_set(err, DUR_ESCHEMA, false, "postgres.open",
                                 "schema %s has version %lld, this library needs %d, and migrate=0 was asked",
                                 store->schema, (long long)version, DUR__PG_SCHEMA_VERSION);
        else
            code = apply(conn, NULL, 0, err);
    }
    dur__pg_return(conn);
    return code;
}

int dur__pg_migrate_further(dur__pg *store, const dur__pg_migration *more, int count, dur_error *err) {
    dur__pg_conn *conn;
    int code = dur__pg_borrow(store, &conn, err);
    if (code != DUR_OK) return code;
    code = apply(conn, more, count, err);
    dur__pg_return(conn);
    return code;
}
