/*
 * sqlite_values.c: is each value one that its column can have?
 *
 * SQLite keeps whatever it is given, in any column: a text where a number belongs, bytes where a text does.  What a
 * column may hold follows from its declaration, which is asked of the file; the numbers that mean something are listed.
 */
#include "base/buf.h"
#include "provider/sqlite/sqlite_internal.h"

#include <inttypes.h>

static const char *const tables[] = { "dur_meta",     "dur_instance",   "dur_past_execution", "dur_history",
                                      "dur_queue",    "dur_worker",     "dur_session",        "dur_kv",
                                      "dur_kv_delta", "dur_message_id", "dur_dead_letter",    "dur_owner",
                                      "dur_crash",    "dur_served" };

/* Of other columns: no number below 0. */
static const struct {
    const char *table, *column;
    int64_t low, high;
} ranges[] = {
    { "dur_instance", "status", 0, 4 },    { "dur_past_execution", "status", 1, 4 },
    { "dur_instance", "look", 0, 2 },      { "dur_instance", "runs_alone", 0, 1 },
    { "dur_worker", "runs_alone", 0, 1 },  { "dur_queue", "kind", 0, 255 }, /* a newer node may know more kinds */
    { "dur_crash", "alone", 0, 1 },        { "dur_crash", "for_good", 0, 1 },
    { "dur_crash", "seq", -1, INT64_MAX }, { "dur_served", "activity", 0, 1 },
};

#define OR " OR "

/* OR the condition under which the column's value is wrong; nothing: it may hold anything. */
static void put_wrong(dur__buf *out, const char *table, const char *column, const char *type, bool required) {
    int64_t low = 0, high = INT64_MAX;
    bool number = strcmp(type, "INTEGER") == 0;
    if (!number && strcmp(type, "TEXT") != 0) return;
    dur__buf_format(out, OR "(typeof(t.\"%s\") NOT IN ('%s'%s)", column, number ? "integer" : "text",
                    required ? "" : ", 'null'");
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (strcmp(ranges[i].table, table) == 0 && strcmp(ranges[i].column, column) == 0) {
            low = ranges[i].low;
            high = ranges[i].high;
        }
    if (number) dur__buf_format(out, " OR t.\"%s\" NOT BETWEEN %" PRId64 " AND %" PRId64, column, low, high);
    dur__buf_char(out, ')');
}

/* SELECT who, what FROM table WHERE a value is wrong.  Empty: there is no such table. */
static int make_look(sqlite3 *db, const char *table, dur__buf *out, dur_error *err) {
    sqlite3_stmt *columns = NULL;
    dur__buf what = { .arena = out->arena }, wrong = { .arena = out->arena }, who = { .arena = out->arena };
    int row = sqlite3_prepare_v2(db, "SELECT name, type, \"notnull\" FROM pragma_table_info(?1)", -1, &columns, NULL);
    if (row == SQLITE_OK) row = sqlite3_bind_text(columns, 1, table, -1, SQLITE_STATIC);
    while ((row == SQLITE_OK || row == SQLITE_ROW) && (row = sqlite3_step(columns)) == SQLITE_ROW) {
        const char *name = dur__sq_text(columns, 0);
        if (who.size == 0 && strcmp(name, "key") != 0) dur__buf_format(&who, "quote(t.\"%s\")", name);
        if (who.size == 0)
            dur__buf_text(&who,
                          "coalesce((SELECT quote(i.id) FROM dur_instance i WHERE i.key=t.key), 'key ' || t.key)");
        size_t from = wrong.size;
        put_wrong(&wrong, table, name, dur__sq_text(columns, 1), dur__sq_u64(columns, 2) != 0);
        if (wrong.size == from) continue;
        dur__buf_format(&what, " WHEN %s THEN '%s is ' || substr(quote(t.\"%s\"), 1, 60)",
                        wrong.data + from + strlen(OR), name, name);
    }
    if (row == SQLITE_DONE && wrong.size > 0)
        dur__buf_format(out, "SELECT %s, CASE%s END FROM %s t WHERE %s", dur__buf_str(&who), dur__buf_str(&what), table,
                        dur__buf_str(&wrong) + strlen(OR));
    int code = row == SQLITE_DONE ? DUR_OK : dur__sq_fail(err, db, "sqlite.check");
    sqlite3_finalize(columns);
    return code;
}

static int check_table(sqlite3 *db, const char *table, dur_arena *arena, dur_error *err) {
    dur__buf look = { .arena = arena };
    sqlite3_stmt *stmt = NULL;
    int code = make_look(db, table, &look, err);
    if (code == DUR_OK && look.size == 0)
        return dur_error_set(err, DUR_ECORRUPT, false, "sqlite.check", "%s: the table is missing", table);
    if (code == DUR_OK && sqlite3_prepare_v2(db, dur__buf_str(&look), -1, &stmt, NULL) != SQLITE_OK)
        code = dur__sq_fail(err, db, "sqlite.check");
    int row = code == DUR_OK ? sqlite3_step(stmt) : SQLITE_DONE;
    if (row == SQLITE_ROW)
        code = dur_error_set(err, DUR_ECORRUPT, false, "sqlite.check", "%s: %.200s: %.100s, which cannot be", table,
                             dur__sq_text(stmt, 0), dur__sq_text(stmt, 1));
    else if (row != SQLITE_DONE)
        code = dur__sq_fail(err, db, "sqlite.check");
    sqlite3_finalize(stmt);
    return code;
}

int dur__sq_check_values(sqlite3 *db, dur_error *err) {
    uint64_t version = 0;
    dur_arena *arena = dur_arena_new();
    int code = arena == NULL ? DUR__NO_MEMORY(err, "sqlite.check") : dur__sq_schema_version(db, &version, err);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && code == DUR_OK; i++)
        code = check_table(db, tables[i], arena, err);
    dur_arena_free(arena);
    return code;
}
