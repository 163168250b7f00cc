/*
 * sqlite_schema.c: the tables, and how an older file becomes a newer one.
 *
 * Migrations are an ordered list, of which the first makes the tables; those that a file lacks are applied in one
 * transaction.  A file that a newer library has written is refused.  The version is kept in dur_meta, because
 * user_version may belong to the application whose file it is.
 * What each column means: docs/format/schema.md.
 */
#include "provider/sqlite/sqlite_internal.h"

#define APPLICATION_ID 0x44555249 /* "DURI" */

static const char tables_1[] =
    "CREATE TABLE dur_meta(name TEXT PRIMARY KEY, value) WITHOUT ROWID;"
    "CREATE TABLE dur_instance("
    " key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT, version TEXT, parent TEXT, birth INTEGER,"
    " execution INTEGER NOT NULL DEFAULT 0, status INTEGER NOT NULL DEFAULT 0, pinned INTEGER,"
    " created INTEGER NOT NULL DEFAULT 0, updated INTEGER NOT NULL DEFAULT 0,"
    " token TEXT, owner TEXT, locked_until INTEGER, acquisitions INTEGER NOT NULL DEFAULT 0,"
    " crashes INTEGER NOT NULL DEFAULT 0, crashes_alone INTEGER NOT NULL DEFAULT 0,"
    " runs_alone INTEGER NOT NULL DEFAULT 0,"
    " ready_at INTEGER, ready_seq INTEGER, not_before INTEGER NOT NULL DEFAULT 0, suspended TEXT,"
    " look INTEGER NOT NULL DEFAULT 0,"
    " custom_status TEXT, custom_status_version INTEGER NOT NULL DEFAULT 0,"
    " started INTEGER, completed INTEGER NOT NULL DEFAULT 0, output TEXT, handler TEXT NOT NULL DEFAULT '');"
    "CREATE INDEX dur_instance_ready ON dur_instance(handler, ready_seq) WHERE ready_at = 0 AND suspended IS NULL;"
    "CREATE INDEX dur_instance_suspect ON dur_instance(crashes_alone, ready_seq)"
    " WHERE ready_at = 0 AND suspended IS NULL AND crashes >= 2;"
    "CREATE INDEX dur_instance_look ON dur_instance(ready_seq) WHERE ready_at = 0 AND suspended IS NULL AND look > 0;"
    "CREATE INDEX dur_instance_later ON dur_instance(ready_at) WHERE ready_at > 0;"
    "CREATE INDEX dur_instance_owner ON dur_instance(owner) WHERE owner IS NOT NULL;"
    "CREATE INDEX dur_instance_lock ON dur_instance(locked_until) WHERE locked_until IS NOT NULL;"
    "CREATE INDEX dur_instance_status ON dur_instance(status, id);"
    "CREATE INDEX dur_instance_ended ON dur_instance(completed) WHERE parent IS NULL AND status IN (2, 3);"
    "CREATE INDEX dur_instance_suspended ON dur_instance(id) WHERE suspended IS NOT NULL;"
    "CREATE INDEX dur_instance_parent ON dur_instance(parent) WHERE parent IS NOT NULL;"
    "CREATE TABLE dur_past_execution("
    " key INTEGER NOT NULL, execution INTEGER NOT NULL, status INTEGER NOT NULL, output TEXT,"
    " started INTEGER NOT NULL, completed INTEGER NOT NULL DEFAULT 0, pinned INTEGER,"
    " PRIMARY KEY(key, execution)) WITHOUT ROWID;"
    "CREATE TABLE dur_history(" /* a turn's events: core/block.h */
    " key INTEGER NOT NULL, execution INTEGER NOT NULL, first_id INTEGER NOT NULL, count INTEGER NOT NULL,"
    " at INTEGER NOT NULL, open INTEGER NOT NULL DEFAULT 0, block TEXT NOT NULL);"
    "CREATE UNIQUE INDEX dur_history_id ON dur_history(key, execution, first_id);"
    "CREATE TABLE dur_queue("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, key INTEGER NOT NULL, due INTEGER NOT NULL, ord INTEGER NOT NULL, at "
    "INTEGER NOT NULL,"
    " kind INTEGER NOT NULL, qname TEXT, attempts INTEGER NOT NULL DEFAULT 0, token TEXT,"
    " execution INTEGER NOT NULL DEFAULT 0, activity INTEGER NOT NULL DEFAULT 0, handler TEXT, parent TEXT,"
    " json TEXT NOT NULL);"
    "CREATE INDEX dur_queue_parent ON dur_queue(parent) WHERE parent IS NOT NULL;"
    "CREATE INDEX dur_queue_key ON dur_queue(key, qname, ord);"
    "CREATE INDEX dur_queue_due ON dur_queue(due) WHERE due > 0;"
    "CREATE INDEX dur_queue_cancel ON dur_queue(key) WHERE kind = 10;"
    "CREATE INDEX dur_queue_timer ON dur_queue(key, execution, activity) WHERE activity > 0;";

static const char more_tables_1[] = /* C promises no longer strings */
    "CREATE TABLE dur_worker("
    " key INTEGER NOT NULL, execution INTEGER NOT NULL, activity INTEGER NOT NULL, seq INTEGER NOT NULL,"
    " token TEXT, owner TEXT, locked_until INTEGER, attempts INTEGER NOT NULL DEFAULT 0,"
    " crashes INTEGER NOT NULL DEFAULT 0, crashes_alone INTEGER NOT NULL DEFAULT 0,"
    " runs_alone INTEGER NOT NULL DEFAULT 0,"
    " session TEXT, tag TEXT, visible_at INTEGER NOT NULL DEFAULT 0,"
    " handler TEXT NOT NULL DEFAULT '', json TEXT NOT NULL,"
    " PRIMARY KEY(key, execution, activity, seq)) WITHOUT ROWID;"
    "CREATE INDEX dur_worker_free ON dur_worker(handler, seq, session, tag, crashes)"
    " WHERE token IS NULL AND visible_at = 0;"
    "CREATE INDEX dur_worker_suspect ON dur_worker(crashes_alone, seq) WHERE token IS NULL AND crashes >= 2;"
    "CREATE INDEX dur_worker_later ON dur_worker(visible_at) WHERE visible_at > 0;"
    "CREATE INDEX dur_worker_lock ON dur_worker(locked_until) WHERE locked_until IS NOT NULL;"
    "CREATE INDEX dur_worker_session_free ON dur_worker(seq) WHERE token IS NULL AND session IS NOT NULL;"
    "CREATE INDEX dur_worker_session_key ON dur_worker(key) WHERE token IS NULL AND session IS NOT NULL;"
    "CREATE INDEX dur_worker_session ON dur_worker(session) WHERE session IS NOT NULL;"
    "CREATE TABLE dur_session("
    " session TEXT PRIMARY KEY, node TEXT NOT NULL, owner TEXT, locked_until INTEGER NOT NULL,"
    " lock_ms INTEGER NOT NULL, active INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE dur_kv("
    " key INTEGER NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, at INTEGER NOT NULL,"
    " PRIMARY KEY(key, name)) WITHOUT ROWID;"
    "CREATE TABLE dur_kv_delta("
    " key INTEGER NOT NULL, name TEXT NOT NULL, value TEXT, at INTEGER NOT NULL,"
    " PRIMARY KEY(key, name)) WITHOUT ROWID;"
    "CREATE TABLE dur_message_id("
    " key INTEGER NOT NULL, message_id TEXT NOT NULL, execution INTEGER NOT NULL, at INTEGER NOT NULL,"
    " PRIMARY KEY(key, message_id)) WITHOUT ROWID;"
    "CREATE TABLE dur_dead_letter("
    " id INTEGER PRIMARY KEY AUTOINCREMENT, instance TEXT, reason TEXT NOT NULL, at INTEGER NOT NULL, json TEXT NOT "
    "NULL);"
    "CREATE TABLE dur_owner("
    " id TEXT PRIMARY KEY, boot TEXT NOT NULL, timeout_ms INTEGER NOT NULL, at INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE dur_crash("
    " crash TEXT NOT NULL, key INTEGER NOT NULL, execution INTEGER NOT NULL, activity INTEGER NOT NULL,"
    " seq INTEGER NOT NULL, alone INTEGER NOT NULL, for_good INTEGER NOT NULL DEFAULT 0,"
    " PRIMARY KEY(crash, key, execution, activity, seq)) WITHOUT ROWID;"
    "CREATE TABLE dur_served(" /* activity: 0 orchestrations, 1 activities; handler '': all */
    " activity INTEGER NOT NULL, handler TEXT NOT NULL, owner TEXT NOT NULL,"
    " PRIMARY KEY(activity, handler, owner)) WITHOUT ROWID;";

/* What people look at, in the words of the documentation. */
static const char views_1[] =
    "CREATE VIEW durite_instances AS SELECT id AS instance_id, name AS orchestration_name,"
    " version AS orchestration_version, execution AS current_execution_id,"
    " CASE status WHEN 1 THEN 'Running' WHEN 2 THEN 'Completed' WHEN 3 THEN 'Failed' WHEN 4 THEN 'ContinuedAsNew' END"
    " AS status, created AS created_at, updated AS updated_at, parent AS parent_instance_id, custom_status,"
    " custom_status_version, suspended, owner, token AS lock_token FROM dur_instance WHERE name IS NOT NULL"
    /* and those that are no more than a start that waits: its handler is "Name@1.2.3" */
    " UNION ALL SELECT i.id, rtrim(rtrim(q.handler, replace(q.handler, '@', '')), '@'), NULL, 1, 'Running', q.at, q.at,"
    " q.parent, NULL, 0, i.suspended, i.owner, i.token FROM dur_instance i JOIN dur_queue q ON q.id = (SELECT s.id"
    " FROM dur_queue s WHERE s.key = i.key AND s.qname IS NULL AND s.kind IN (0, 1) ORDER BY +s.id LIMIT 1)"
    " WHERE i.status = 0 AND i.name IS NULL AND NOT EXISTS (SELECT 1 FROM dur_history e WHERE e.key = i.key);"
    "CREATE VIEW durite_executions AS SELECT id AS instance_id, execution AS execution_id,"
    " CASE status WHEN 1 THEN 'Running' WHEN 2 THEN 'Completed' WHEN 3 THEN 'Failed' WHEN 4 THEN 'ContinuedAsNew' END"
    " AS status, output, started AS started_at, nullif(completed, 0) AS completed_at FROM"
    " (SELECT i.id, x.execution, x.status, x.output, x.started, x.completed"
    " FROM dur_past_execution x JOIN dur_instance i USING(key) UNION ALL"
    " SELECT id, execution, max(status, 1), output, started, completed FROM dur_instance WHERE started IS NOT NULL);"
    /* A block of '=' has its one event whole; what is no block is shown as it is. */
    "CREATE VIEW durite_history AS SELECT i.id AS instance_id, h.execution AS execution_id,"
    " h.first_id + e.key - 2 AS event_id, json_extract(e.value, '$[0]') AS event_type,"
    " '{\"event_id\":' || (h.first_id + e.key - 2) ||"
    " coalesce(',\"source_event_id\":' || nullif(json_extract(e.value, '$[2]'), 0), '') ||"
    " ',\"instance_id\":' || json_quote(i.id) || ',\"execution_id\":' || h.execution ||"
    " ',\"timestamp_ms\":' || (json_extract(h.block, '$[0]') + coalesce(json_extract(e.value, '$[3]'), 0)) ||"
    " ',\"duroxide_version\":' || json_quote(json_extract(h.block, '$[1]')) ||"
    " ',\"type\":' || json_quote(json_extract(e.value, '$[0]')) ||"
    " CASE WHEN json_extract(e.value, '$[1]') = '{}' THEN '}'"
    " ELSE ',' || substr(json_extract(e.value, '$[1]'), 2) END AS event_data, h.at AS created_at"
    " FROM dur_history h JOIN dur_instance i USING(key) JOIN"
    " json_each(CASE WHEN substr(h.block, 1, 1) = '[' AND json_valid(h.block) THEN h.block ELSE '[]' END) e"
    " WHERE e.key >= 2 UNION ALL SELECT id, execution, first_id,"
    " CASE WHEN json_valid(text) THEN json_extract(text, '$.type') END, text, at FROM"
    " (SELECT i.id, h.execution, h.first_id, h.at, substr(h.block, 1 + (substr(h.block, 1, 1) = '=')) AS text"
    " FROM dur_history h JOIN dur_instance i USING(key)"
    " WHERE NOT (substr(h.block, 1, 1) = '[' AND json_valid(h.block)));"
    "CREATE VIEW durite_orchestrator_queue AS SELECT q.id, i.id AS instance_id, q.json AS work_item,"
    " q.due AS visible_at, q.token AS lock_token, q.attempts AS attempt_count, q.at AS created_at"
    " FROM dur_queue q JOIN dur_instance i USING(key);"
    "CREATE VIEW durite_worker_queue AS SELECT w.seq AS id, i.id AS instance_id, w.execution AS execution_id,"
    " w.activity AS activity_id, w.json AS work_item, w.visible_at, w.token AS lock_token, w.owner,"
    " w.attempts AS attempt_count, w.session AS session_id, w.tag FROM dur_worker w JOIN dur_instance i USING(key);";

static const dur__sq_migration migrations[] = { { 1, tables_1 }, { 1, more_tables_1 }, { 1, views_1 } };
enum { MIGRATION_COUNT = sizeof(migrations) / sizeof(migrations[0]), SCHEMA_VERSION = 1 };

int dur__sq_schema_version(sqlite3 *db, uint64_t *version, dur_error *err) {
    uint64_t tables = 0;
    *version = 0;
    int code = dur__sq_pragma_u64(db, "SELECT count(*) FROM sqlite_master WHERE type='table' AND name='dur_meta'",
                                  &tables, err);
    if (code != DUR_OK || tables == 0) return code;
    code = dur__sq_pragma_u64(db, "SELECT value FROM dur_meta WHERE name='schema' AND typeof(value)='integer'", version,
                              err);
    if (code == DUR_OK && (*version == 0 || *version > INT64_MAX)) /* the table and its row are made together */
        code = dur_error_set(err, DUR_ECORRUPT, false, "sqlite.open",
                             "dur_meta: its row \"schema\" is missing, or is no version");
    return code;
}

static int too_new(uint64_t version, dur_error *err) {
    return dur_error_set(err, DUR_ESCHEMA, false, "sqlite.open",
                         "the file has schema version %llu, this library knows up to %d: use a newer library",
                         (unsigned long long)version, (int)SCHEMA_VERSION);
}

static int apply_missing(sqlite3 *db, const dur__sq_migration *steps, size_t count, uint64_t version, dur_error *err) {
    int code = DUR_OK;
    for (size_t i = 0; code == DUR_OK && i < count; i++)
        if (steps[i].version > version) code = dur__sq_exec(db, steps[i].sql, err);
    return code;
}

/* What the file had before has no number (sqlite_mark.c). */
static int first_mark(sqlite3 *db, dur_error *err) {
    char mark[DUR__SQ_MARK_BYTES], text[DUR__SQ_MARK_BYTES + 96];
    dur__sq_mark_draw(mark, "-");
    snprintf(text, sizeof text, "INSERT INTO dur_meta(name, value) VALUES('mark', '%s')", mark);
    return dur__sq_exec(db, text, err);
}

int dur__sq_migrate(sqlite3 *db, const dur__sq_migration *more, size_t more_count, dur_error *err) {
    uint64_t version = 0, tables = 0, newest = more_count > 0 ? more[more_count - 1].version : SCHEMA_VERSION;
    int code = dur__sq_exec(db, "BEGIN IMMEDIATE", err);
    if (code != DUR_OK) return code;
    code = dur__sq_schema_version(db, &version, err); /* again: another process may have been faster */
    if (code == DUR_OK && version > newest) code = too_new(version, err);
    if (code == DUR_OK && version == 0)
        code = dur__sq_pragma_u64(db, "SELECT count(*) FROM sqlite_master", &tables, err);
    char text[96];
    if (code == DUR_OK && version == 0 && tables == 0) { /* ours alone: say so in the header */
        snprintf(text, sizeof text, "PRAGMA application_id=%d", APPLICATION_ID);
        code = dur__sq_exec(db, text, err);
    }
    if (code == DUR_OK) code = apply_missing(db, migrations, MIGRATION_COUNT, version, err);
    if (code == DUR_OK) code = apply_missing(db, more, more_count, version, err);
    snprintf(text, sizeof text, "INSERT OR REPLACE INTO dur_meta(name, value) VALUES('schema', %llu)",
             (unsigned long long)newest);
    if (code == DUR_OK && version < newest) code = dur__sq_exec(db, text, err);
    if (code == DUR_OK && version == 0) code = first_mark(db, err);
    uint64_t application = 0;
    if (code == DUR_OK) code = dur__sq_pragma_u64(db, "PRAGMA application_id", &application, err);
    snprintf(text, sizeof text, "PRAGMA user_version=%llu", (unsigned long long)newest);
    if (code == DUR_OK && application == APPLICATION_ID) code = dur__sq_exec(db, text, err);
    if (code == DUR_OK) return dur__sq_exec(db, "COMMIT", err);
    dur__sq_vfs_drop(db);
    if (sqlite3_get_autocommit(db) == 0) dur__sq_exec(db, "ROLLBACK", NULL);
    return code;
}

int dur__sq_boot_look(dur__sq_txn *txn, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_META_GET, &row, err, "t", "boot");
    bool same = code == DUR_OK && row != NULL && dur__str_eq(dur__sq_text(row, 0), txn->file->boot);
    dur__sq_end(&row);
    if (code != DUR_OK || same) return code;
    code = dur__sq_exec(txn->conn->db,
                        "UPDATE dur_instance SET locked_until=0 WHERE locked_until IS NOT NULL;"
                        "UPDATE dur_worker SET locked_until=0 WHERE locked_until IS NOT NULL;"
                        "UPDATE dur_session SET locked_until=0, active=0",
                        err);
    return code == DUR_OK ? dur__sq_run(txn->conn, DUR__SQ_META_SET, err, "tt", "boot", txn->file->boot) : code;
}

int dur__sq_schema_open(dur__sq_file *file, dur_error *err) {
    sqlite3 *db = file->writer.db;
    uint64_t version = 0, application = 0, user = 0;
    int code = dur__sq_schema_version(db, &version, err);
    if (code == DUR_OK) code = dur__sq_pragma_u64(db, "PRAGMA application_id", &application, err);
    if (code == DUR_OK) code = dur__sq_pragma_u64(db, "PRAGMA user_version", &user, err);
    if (code == DUR_OK && application == APPLICATION_ID && user > version) version = user;
    if (code == DUR_OK && version > SCHEMA_VERSION) code = too_new(version, err);
    if (code == DUR_OK && version < SCHEMA_VERSION) code = dur__sq_migrate(db, NULL, 0, err);
    return code;
}
