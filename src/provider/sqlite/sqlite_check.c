/*
 * sqlite_check.c: rows against rows: is there something that nobody would ever come back to?
 *
 * Beside SQLite's own look at its pages: each finding names the table, the instance and what is wrong.  All of it is
 * one snapshot, so that it may be asked of a store in use.
 */
#include "core/awaits.h"
#include "provider/sqlite/sqlite_internal.h"
#include <durite/sys/store.h>

/* Of nobody, not suspended: whoever finds a reason may take it.  ?1 is the time. */
#define UNHELD "i.token IS NULL AND i.suspended IS NULL AND i.name IS NOT NULL"
#define VISIBLE "q.due <= ?1"
/* Before it has begun messages wait for its start: until that is due they are no reason to look. */
#define STARTS "i.token IS NULL AND i.suspended IS NULL AND i.name IS NULL AND q.kind IN (0, 1)"
#define ENDED "i.status IN (2, 3)"
#define LOST_WITHOUT "(3, 4, 5, 8, 9, 10)" /* dur__lost_without */
#define NO_INSTANCE(table, what)                                                                                       \
    {                                                                                                                  \
        "SELECT 'key ' || t.key FROM " table " t WHERE NOT EXISTS (SELECT 1 FROM dur_instance i WHERE i.key=t.key)",   \
            table, what " belongs to no instance"                                                                      \
    }
#define NO_OWNER(table, id)                                                                                            \
    {                                                                                                                  \
        "SELECT " id " || ', owner ' || t.owner FROM " table                                                           \
        " t LEFT JOIN dur_instance i USING(key) WHERE t.owner IS "                                                     \
        "NOT NULL AND NOT EXISTS (SELECT 1 FROM dur_owner o WHERE o.id=t.owner)",                                      \
            table, "locked by an owner that is not registered"                                                         \
    }

static const struct {
    const char *sql, *table, *what;
} invariants[] = {
    NO_INSTANCE("dur_history", "an event"),
    NO_INSTANCE("dur_queue", "a message"),
    NO_INSTANCE("dur_worker", "a worker row"),
    NO_INSTANCE("dur_kv_delta", "a value"),
    { "SELECT 'key ' || x.key FROM dur_past_execution x WHERE NOT EXISTS (SELECT 1 FROM dur_instance i WHERE "
      "i.key=x.key AND i.execution > x.execution)",
      "dur_past_execution", "an execution is not in the past of an instance" },
    { "SELECT i.id || ', execution ' || e.execution || ', event ' || e.first_id FROM (SELECT key, execution, first_id, "
      "coalesce(lag(first_id + count) OVER (PARTITION BY key, execution ORDER BY first_id), 1) AS next FROM "
      "dur_history) e JOIN dur_instance i USING(key) WHERE e.first_id <> e.next AND e.first_id <> 99999",
      "dur_history", "what is before an event is missing, or there twice" },
    { "SELECT i.id || ', execution ' || h.execution || ', event ' || h.first_id FROM dur_history h JOIN dur_instance i "
      "USING(key) WHERE h.count <> CASE WHEN substr(h.block, 1, 1) = '=' THEN 1 WHEN json_valid(h.block) THEN "
      "json_array_length(h.block) - 2 ELSE 0 END",
      "dur_history", "a block that does not hold the events it should" },
    { "SELECT i.id || ', activity ' || w.activity FROM dur_worker w JOIN dur_instance i USING(key) WHERE i.name IS NOT "
      "NULL AND w.execution > i.execution",
      "dur_worker", "a worker row of an execution that has not begun" },
    { "SELECT i.id || ', parent ' || i.parent FROM dur_instance i WHERE i.parent IS NOT NULL AND NOT EXISTS (SELECT 1 "
      "FROM dur_instance p WHERE p.id=i.parent)",
      "dur_instance", "its parent does not exist" },
    { "SELECT 'owner ' || c.crash FROM dur_crash c WHERE NOT EXISTS (SELECT 1 FROM dur_crash a WHERE a.crash=c.crash "
      "AND a.alone)",
      "dur_crash", "a crash in which nothing ran alone" },
    { "SELECT i.id FROM dur_instance i WHERE i.acquisitions > 0 AND i.crashes > 0 AND "
      "i.crashes_alone < " DUR__SQ_DOUBTS("i.key", "0", "0", "0"),
      "dur_crash", "an instance is in doubt of more crashes than it ran alone in" },
    { "SELECT i.id || ', activity ' || w.activity FROM dur_worker w JOIN dur_instance i USING(key) WHERE w.crashes > 0 "
      "AND w.crashes_alone < " DUR__SQ_DOUBTS("w.key", "w.execution", "w.activity", "w.seq"),
      "dur_crash", "a worker row is in doubt of more crashes than it ran alone in" },
    { "SELECT id FROM dur_instance WHERE token IS NOT NULL AND ready_at IS NOT NULL", "dur_instance",
      "an instance is leased and ready at once" },
    { "SELECT id FROM dur_instance WHERE token IS NULL AND (owner IS NOT NULL OR locked_until IS NOT NULL)",
      "dur_instance", "an instance has an owner or a lock without a token" },
    { "SELECT i.id || ', activity ' || w.activity FROM dur_worker w JOIN dur_instance i USING(key) WHERE w.token IS "
      "NULL AND (w.owner IS NOT NULL OR w.locked_until IS NOT NULL)",
      "dur_worker", "a worker row has an owner or a lock without a token" },
    NO_OWNER("dur_instance", "i.id"),
    NO_OWNER("dur_worker", "i.id || ', activity ' || t.activity"),
    { "SELECT s.session || ', owner ' || s.owner FROM dur_session s WHERE s.owner IS NOT NULL AND NOT EXISTS (SELECT 1 "
      "FROM dur_owner o WHERE o.id=s.owner)",
      "dur_session", "held by an owner that is not registered" },
    { "SELECT i.id FROM dur_instance i WHERE " UNHELD " AND i.ready_at IS NULL AND EXISTS (SELECT 1 FROM dur_queue q "
      "WHERE q.key=i.key AND q.qname IS NULL)",
      "dur_queue", "an instance has messages that nothing will wake it for" },
    { "SELECT i.id FROM dur_instance i WHERE " UNHELD " AND i.ready_at IS NULL AND i.look <> 0", "dur_instance",
      "work was open when a lease ended, and nothing will wake its instance" },
    { "SELECT id FROM dur_instance i WHERE " ENDED " AND i.suspended IS NOT NULL", "dur_instance",
      "an instance has ended and is suspended" },
    { "SELECT i.id FROM dur_instance i WHERE " UNHELD " AND " ENDED " AND i.ready_at IS NULL AND EXISTS (SELECT 1 FROM "
      "dur_queue q WHERE q.key=i.key)",
      "dur_queue", "an instance has ended, and nobody would look at its messages" },
    { "SELECT i.id FROM dur_instance i WHERE " UNHELD
      " AND i.ready_at > ?1 AND i.not_before <= ?1 AND EXISTS (SELECT 1 "
      "FROM dur_queue q WHERE q.key=i.key AND q.qname IS NULL AND " VISIBLE ")",
      "dur_queue", "an instance has a visible message and is looked at later" },
    { "SELECT i.id FROM dur_instance i JOIN dur_queue q USING(key) WHERE i.name IS NULL AND q.kind IN " LOST_WITHOUT
      " AND NOT EXISTS (SELECT 1 FROM dur_history e WHERE e.key=i.key) AND NOT EXISTS (SELECT 1 FROM dur_queue s WHERE "
      "s.key=i.key AND s.qname IS NULL AND s.kind IN (0, 1))",
      "dur_queue", "an instance does not exist, and nobody will ever look at its messages" },
    { "SELECT i.id FROM dur_instance i JOIN dur_queue q USING(key) WHERE " STARTS
      " AND (i.ready_at IS NULL OR (" VISIBLE " AND i.ready_at > ?1 AND i.not_before <= ?1))",
      "dur_queue", "a start is visible or will be, and nothing wakes its instance then" },
};

static int found(dur_error *err, const char *table, const char *who, const char *what) {
    return dur_error_set(err, DUR_ECORRUPT, false, "sqlite.check", "%s: %s: %s", table, who, what);
}

static int prepare(sqlite3 *db, const char *sql, uint64_t now_ms, sqlite3_stmt **out, dur_error *err) {
    if (sqlite3_prepare_v2(db, sql, -1, out, NULL) != SQLITE_OK) return dur__sq_fail(err, db, "sqlite.check");
    if (sqlite3_bind_parameter_count(*out) > 0) sqlite3_bind_int64(*out, 1, (sqlite3_int64)now_ms);
    return DUR_OK;
}

static int check_rows(sqlite3 *db, uint64_t now_ms, dur_error *err) {
    int code = DUR_OK;
    for (size_t i = 0; i < sizeof(invariants) / sizeof(invariants[0]) && code == DUR_OK; i++) {
        sqlite3_stmt *stmt = NULL;
        code = prepare(db, invariants[i].sql, now_ms, &stmt, err);
        int row = code == DUR_OK ? sqlite3_step(stmt) : SQLITE_DONE;
        if (row == SQLITE_ROW)
            code = found(err, invariants[i].table, dur__sq_text(stmt, 0), invariants[i].what);
        else if (row != SQLITE_DONE)
            code = dur__sq_fail(err, db, "sqlite.check");
        sqlite3_finalize(stmt);
    }
    return code;
}

static int check_pages(sqlite3 *db, dur_error *err) {
    sqlite3_stmt *stmt = NULL;
    int code = prepare(db, "PRAGMA integrity_check(1)", 0, &stmt, err);
    if (code == DUR_OK && sqlite3_step(stmt) != SQLITE_ROW)
        code = dur__sq_fail(err, db, "sqlite.check");
    else if (code == DUR_OK && strcmp(dur__sq_text(stmt, 0), "ok") != 0)
        code = dur_error_set(err, DUR_ECORRUPT, false, "sqlite.check", "%s", dur__sq_text(stmt, 0));
    sqlite3_finalize(stmt);
    return code;
}

/* Does an instance that nobody has and nobody would look at wait for a queue that has a message? */
static const char waiting_sql[] =
    "SELECT DISTINCT i.id, i.key, i.execution, q.qname FROM dur_instance i JOIN dur_queue q USING(key) WHERE " UNHELD
    " AND i.ready_at IS NULL AND q.qname IS NOT NULL AND " VISIBLE;

static int check_waits(dur__sq_conn *conn, dur_arena *arena, uint64_t now_ms, dur_error *err) {
    sqlite3_stmt *stmt = NULL;
    int code = prepare(conn->db, waiting_sql, now_ms, &stmt, err), row = SQLITE_DONE;
    while (code == DUR_OK && (row = sqlite3_step(stmt)) == SQLITE_ROW) {
        dur_event_row *rows = NULL;
        size_t count = 0;
        code = dur__sq_read_history(conn, arena, dur__sq_text(stmt, 0), dur__sq_u64(stmt, 1), dur__sq_u64(stmt, 2),
                                    &rows, &count, err);
        dur_text *events = dur_arena_alloc(arena, (count + 1) * sizeof(*events));
        for (size_t i = 0; i < count; i++)
            events[i] = rows[i].json;
        if (code == DUR_OK && dur__awaits_queue(arena, events, count, dur__sq_text(stmt, 3)))
            code = found(err, "dur_queue", dur__sq_text(stmt, 0),
                         "it waits for a queue that has a message, and nothing will wake it");
    }
    if (code == DUR_OK && row != SQLITE_DONE) code = dur__sq_fail(err, conn->db, "sqlite.check");
    sqlite3_finalize(stmt);
    return code;
}

static int check_all(dur__sq_file *file, dur_arena *arena, dur_error *err) {
    dur__sq_conn *conn = NULL;
    uint64_t now_ms = file->world->wall_ms(file->world->data);
    DUR__SQ_READ(read, file, err);
    int code = dur__sq_read_open(&read, &conn, err);
    if (code == DUR_OK) code = check_pages(conn->db, err);
    if (code == DUR_OK) code = dur__sq_run(conn, DUR__SQ_READ_BEGIN, err, "");
    if (code == DUR_OK) code = dur__sq_check_values(conn->db, err); /* what relates rows takes them for what they are */
    if (code == DUR_OK) code = check_rows(conn->db, now_ms, err);
    if (code == DUR_OK) code = check_waits(conn, arena, now_ms, err);
    dur__sq_read_done(&read);
    return code;
}

int dur__sq_check(dur_provider *self, dur_error *err) {
    dur_arena *arena = dur_arena_new();
    if (arena == NULL) return DUR__NO_MEMORY(err, "sqlite.check");
    int code = check_all(dur__sq_file_of(self), arena, err);
    dur_arena_free(arena);
    return code;
}

/* ---- what an owner has ---- */

static const char holdings_sql[] = "SELECT 0, id, 0, 0, coalesce(token, '') FROM dur_instance WHERE owner=?1 UNION ALL "
                                   "SELECT 1, coalesce(i.id, ''), w.execution, "
                                   "w.activity, coalesce(w.token, '') FROM dur_worker w LEFT JOIN dur_instance i "
                                   "USING(key) WHERE w.owner=?1 UNION ALL SELECT 2, session, 0, 0, '' "
                                   "FROM dur_session WHERE owner=?1";

int dur__sq_owner_holdings(dur_provider *self, dur_arena *arena, const char *owner, dur_holding **out, size_t *count,
                           dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    dur__sq_conn *conn = NULL;
    sqlite3_stmt *stmt = NULL;
    dur__sq_rows all = { .arena = arena };
    DUR__SQ_READ(read, file, err);
    int code = dur__sq_read_open(&read, &conn, err), row = SQLITE_DONE;
    if (code == DUR_OK && (sqlite3_prepare_v2(conn->db, holdings_sql, -1, &stmt, NULL) != SQLITE_OK ||
                           sqlite3_bind_text(stmt, 1, owner, -1, SQLITE_STATIC) != SQLITE_OK))
        code = dur__sq_fail(err, conn->db, "sqlite.owner_holdings");
    while (code == DUR_OK && (row = sqlite3_step(stmt)) == SQLITE_ROW) {
        dur_holding *one = dur__sq_rows_add(&all, 1, sizeof(*one));
        *one = (dur_holding){ .kind = (dur_holding_kind)dur__sq_u64(stmt, 0),
                              .instance = dur_arena_strdup(arena, dur__sq_text(stmt, 1)),
                              .execution_id = dur__sq_u64(stmt, 2),
                              .activity_id = dur__sq_u64(stmt, 3),
                              .token = dur_arena_strdup(arena, dur__sq_text(stmt, 4)) };
    }
    if (code == DUR_OK && row != SQLITE_DONE) code = dur__sq_fail(err, conn->db, "sqlite.owner_holdings");
    sqlite3_finalize(stmt);
    *out = dur__sq_rows_take(&all, count);
    dur__sq_read_done(&read);
    return code;
}
