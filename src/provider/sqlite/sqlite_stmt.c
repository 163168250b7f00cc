/*
 * sqlite_stmt.c: prepared statements, binding by format, and SQLite's errors as ours.
 */
#include "provider/sqlite/sqlite_internal.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>

#define SQL_TEXT_(name, text) text,
static const char *const statement_texts[] = { DUR__SQ_STATEMENTS(SQL_TEXT_) };
#define SQL_NAME_(name, text) #name,
static const char *const statement_names[] = { DUR__SQ_STATEMENTS(SQL_NAME_) };

void dur__sq_conn_close(dur__sq_conn *conn) {
    for (int i = 0; i < DUR__SQ_COUNT; i++) {
        sqlite3_finalize(conn->stmts[i]);
        conn->stmts[i] = NULL;
    }
    if (conn->db != NULL) sqlite3_close_v2(conn->db);
    conn->db = NULL;
}

static bool is_kept(const dur__sq_conn *conn, const sqlite3_stmt *stmt) {
    for (int i = 0; i < DUR__SQ_COUNT; i++)
        if (conn->stmts[i] == stmt) return true;
    return false;
}

void dur__sq_conn_reset(dur__sq_conn *conn) {
    sqlite3_stmt *next = NULL;
    for (sqlite3_stmt *stmt = sqlite3_next_stmt(conn->db, NULL); stmt != NULL; stmt = next) {
        next = sqlite3_next_stmt(conn->db, stmt);
        if (is_kept(conn, stmt))
            sqlite3_reset(stmt);
        else
            sqlite3_finalize(stmt);
    }
}

/* Extended codes, by the names where people would look them up. */
/* clang-format off */
#define CODES(CODE)                                                                                                    \
    CODE(IOERR_READ) CODE(IOERR_SHORT_READ) CODE(IOERR_WRITE) CODE(IOERR_FSYNC) CODE(IOERR_DIR_FSYNC)                  \
    CODE(IOERR_TRUNCATE) CODE(IOERR_FSTAT) CODE(IOERR_UNLOCK) CODE(IOERR_RDLOCK) CODE(IOERR_DELETE)                    \
    CODE(IOERR_NOMEM) CODE(IOERR_ACCESS) CODE(IOERR_LOCK) CODE(IOERR_CLOSE) CODE(IOERR_SHMOPEN) CODE(IOERR_SHMSIZE)    \
    CODE(IOERR_SHMLOCK) CODE(IOERR_SHMMAP) CODE(IOERR_SEEK) CODE(IOERR_DELETE_NOENT) CODE(IOERR_MMAP)                  \
    CODE(IOERR_VNODE) CODE(IOERR_CORRUPTFS) CODE(IOERR_DATA) CODE(CORRUPT_VTAB) CODE(CORRUPT_SEQUENCE)                 \
    CODE(CORRUPT_INDEX) CODE(READONLY_RECOVERY) CODE(READONLY_CANTLOCK) CODE(READONLY_ROLLBACK)                        \
    CODE(READONLY_DBMOVED) CODE(READONLY_CANTINIT) CODE(READONLY_DIRECTORY) CODE(CANTOPEN_ISDIR)                       \
    CODE(CANTOPEN_FULLPATH) CODE(CANTOPEN_SYMLINK) CODE(IOERR) CODE(CORRUPT) CODE(READONLY) CODE(CANTOPEN)             \
    CODE(PERM) CODE(AUTH) CODE(INTERRUPT) CODE(PROTOCOL) CODE(SCHEMA) CODE(MISUSE) CODE(ERROR) CODE(INTERNAL)
/* clang-format on */

static const char *extended_name(int code) {
#define CODE_(name) { SQLITE_##name, "SQLITE_" #name },
    static const struct {
        int code;
        const char *name;
    } names[] = { CODES(CODE_) };
#undef CODE_
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i].code == code) return names[i].name;
    return "an extended code of SQLite";
}

int dur__sq_fail(dur_error *err, sqlite3 *db, const char *op) {
    int extended = sqlite3_extended_errcode(db);
    const char *text = sqlite3_errmsg(db);
    bool full = extended == SQLITE_IOERR_SHMSIZE && sqlite3_system_errno(db) == ENOSPC; /* the -shm has to grow, too */
    switch (full ? SQLITE_FULL : extended & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return dur_error_set(err, DUR_EBUSY, true, op, "another process writes: %s", text);
    case SQLITE_FULL:
        return dur_error_set(err, DUR_EFULL, true, op, "the disk is full: %s", text);
    case SQLITE_NOMEM:
        return dur_error_set(err, DUR_ENOMEM, true, op, "%s", text);
    case SQLITE_CORRUPT:
        return dur_error_set(err, DUR_ECORRUPT, false, op, "%s (%s, %d)", text, extended_name(extended), extended);
    case SQLITE_NOTADB:
        return dur_error_set(err, DUR_ECORRUPT, false, op, "not a SQLite database: %s", text);
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return dur_error_set(err, DUR_EPERM, false, op, "%s (%s, %d)", text, extended_name(extended), extended);
    case SQLITE_CONSTRAINT:
        if (extended == SQLITE_CONSTRAINT_TRIGGER) /* none is ours: nobody else was faster, and it may go away */
            return dur_error_set(err, DUR_EIO, true, op, "a trigger of somebody else's refuses it: %s", text);
        return dur_error_set(err, DUR_ECONFLICT, false, op, "%s", text);
    case SQLITE_IOERR:
    case SQLITE_INTERRUPT:
    case SQLITE_PROTOCOL:
    case SQLITE_SCHEMA:
        return dur_error_set(err, DUR_EIO, true, op, "%s (%s, %d)", text, extended_name(extended), extended);
    case SQLITE_CANTOPEN: {
        int cause = sqlite3_system_errno(db);
        bool none_left = cause == EMFILE || cause == ENFILE;
        return dur_error_set(err, none_left ? DUR_ELIMIT : DUR_EIO, none_left, op, "%s (%s, %d)%s%s", text,
                             extended_name(extended), extended, cause != 0 ? ": " : "",
                             cause != 0 ? strerror(cause) : "");
    }
    case SQLITE_TOOBIG:
        return dur_error_set(err, DUR_ELIMIT, false, op, "%s", text);
    default:
        return dur_error_set(err, DUR_EIO, false, op, "%s (%s, %d)", text, extended_name(extended), extended);
    }
}

static void bind_all(sqlite3_stmt *stmt, const char *format, va_list args) {
    for (int at = 1; *format != '\0'; format++, at++) {
        switch (*format) {
        case 'i': {
            uint64_t value = va_arg(args, uint64_t);
            sqlite3_bind_int64(stmt, at, value > INT64_MAX ? INT64_MAX : (sqlite3_int64)value);
            break;
        }
        case 'o': {
            const uint64_t *value = va_arg(args, const uint64_t *);
            if (value != NULL)
                sqlite3_bind_int64(stmt, at, (sqlite3_int64)*value);
            else
                sqlite3_bind_null(stmt, at);
            break;
        }
        case 't': {
            const char *text = va_arg(args, const char *);
            sqlite3_bind_text(stmt, at, text, -1, SQLITE_STATIC); /* NULL binds null */
            break;
        }
        case 'j': {
            const dur_text *text = va_arg(args, const dur_text *);
            sqlite3_bind_text64(stmt, at, text->data != NULL ? text->data : "", text->size, SQLITE_STATIC, SQLITE_UTF8);
            break;
        }
        default:
            sqlite3_bind_null(stmt, at);
            break;
        }
    }
}

int dur__sq_prepare(dur__sq_conn *conn, dur__sq_sql sql, dur_error *err) {
    if (conn->stmts[sql] != NULL) return DUR_OK;
    if (sqlite3_prepare_v3(conn->db, statement_texts[sql], -1, SQLITE_PREPARE_PERSISTENT, &conn->stmts[sql], NULL) !=
        SQLITE_OK)
        return dur__sq_fail(err, conn->db, statement_names[sql]);
    return DUR_OK;
}

/* The error must be taken before reset, which may change it. */
static int failed(dur_error *err, sqlite3_stmt *stmt) {
    int at = 0;
    sqlite3 *db = sqlite3_db_handle(stmt);
    const char *text = sqlite3_sql(stmt);
    while (at < DUR__SQ_COUNT && strcmp(statement_texts[at], text) != 0)
        at++;
    char op[32];
    snprintf(op, sizeof op, "sqlite.%s", at < DUR__SQ_COUNT ? statement_names[at] : "step");
    int code = dur__sq_fail(err, db, op);
    sqlite3_reset(stmt);
    return code;
}

/* At its first row; NULL: there is none. */
static int begin(dur__sq_conn *conn, dur__sq_sql sql, sqlite3_stmt **out, dur_error *err, const char *format,
                 va_list args) {
    *out = NULL;
    int code = dur__sq_prepare(conn, sql, err);
    if (code != DUR_OK) return code;
    bind_all(conn->stmts[sql], format, args);
    *out = conn->stmts[sql];
    return dur__sq_next(out, err);
}

int dur__sq_first(dur__sq_conn *conn, dur__sq_sql sql, sqlite3_stmt **out, dur_error *err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int code = begin(conn, sql, out, err, format, args);
    va_end(args);
    return code;
}

int dur__sq_run(dur__sq_conn *conn, dur__sq_sql sql, dur_error *err, const char *format, ...) {
    sqlite3_stmt *row = NULL;
    va_list args;
    va_start(args, format);
    int code = begin(conn, sql, &row, err, format, args);
    va_end(args);
    dur__sq_end(&row);
    return code;
}

int dur__sq_has(dur__sq_conn *conn, dur__sq_sql sql, bool *out, dur_error *err, const char *format, ...) {
    sqlite3_stmt *row = NULL;
    va_list args;
    va_start(args, format);
    int code = begin(conn, sql, &row, err, format, args);
    va_end(args);
    *out = row != NULL;
    dur__sq_end(&row);
    return code;
}

int dur__sq_get(dur__sq_conn *conn, dur__sq_sql sql, uint64_t *out, int count, dur_error *err, const char *format,
                ...) {
    sqlite3_stmt *row = NULL;
    va_list args;
    va_start(args, format);
    int code = begin(conn, sql, &row, err, format, args);
    va_end(args);
    for (int i = 0; i < count; i++)
        out[i] = row != NULL ? dur__sq_u64(row, i) : 0;
    dur__sq_end(&row);
    return code;
}

int dur__sq_next(sqlite3_stmt **stmt, dur_error *err) {
    int result = sqlite3_step(*stmt);
    if (result == SQLITE_ROW) return DUR_OK;
    sqlite3_stmt *ended = *stmt;
    *stmt = NULL;
    if (result != SQLITE_DONE) return failed(err, ended);
    sqlite3_reset(ended);
    return DUR_OK;
}

void dur__sq_end(sqlite3_stmt **stmt) {
    if (*stmt != NULL) sqlite3_reset(*stmt);
    *stmt = NULL;
}

int dur__sq_exec(sqlite3 *db, const char *sql, dur_error *err) {
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) return dur__sq_fail(err, db, "sqlite.exec");
    return DUR_OK;
}

int dur__sq_pragma_u64(sqlite3 *db, const char *sql, uint64_t *out, dur_error *err) {
    sqlite3_stmt *stmt = NULL;
    *out = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK) return dur__sq_fail(err, db, "sqlite.pragma");
    int result = sqlite3_step(stmt);
    int code = DUR_OK;
    if (result == SQLITE_ROW)
        *out = dur__sq_u64(stmt, 0);
    else if (result != SQLITE_DONE)
        code = dur__sq_fail(err, db, "sqlite.pragma");
    sqlite3_finalize(stmt);
    return code;
}

uint64_t dur__sq_u64(sqlite3_stmt *stmt, int column) {
    return (uint64_t)sqlite3_column_int64(stmt, column);
}

bool dur__sq_is_null(sqlite3_stmt *stmt, int column) {
    return sqlite3_column_type(stmt, column) == SQLITE_NULL;
}

const char *dur__sq_text(sqlite3_stmt *stmt, int column) {
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    if (text == NULL && dur__cover_leaves() && sqlite3_errcode(sqlite3_db_handle(stmt)) == SQLITE_NOMEM)
        dur__memory_leave();
    return text;
}

char *dur__sq_dup(dur_arena *arena, sqlite3_stmt *stmt, int column) {
    const char *text = dur__sq_text(stmt, column);
    if (text == NULL) return NULL;
    return dur_arena_memdup(arena, text, (size_t)sqlite3_column_bytes(stmt, column));
}

dur_text dur__sq_json(dur_arena *arena, sqlite3_stmt *stmt, int column) {
    const char *text = dur__sq_text(stmt, column);
    size_t size = (size_t)sqlite3_column_bytes(stmt, column);
    return (dur_text){ dur_arena_memdup(arena, text != NULL ? text : "", size), size };
}
