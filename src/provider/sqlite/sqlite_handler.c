/*
 * sqlite_handler.c: which handlers have something that waits, and which nobody has.
 *
 * Ready instances and free worker rows are indexed by their handler first.  A fetch jumps from one handler that has
 * something to the next one that the caller has: rows of other services are not looked at, however many there are.
 */
#include "provider/sqlite/sqlite_internal.h"

enum { UNSERVED_MAX = 256 };

/* The first key of the filter that is not below `handler`; NULL: none. */
static const char *key_from(const dur_handler_filter *filter, const char *handler) {
    size_t low = 0, high = filter->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(filter->keys[middle], handler) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < filter->count ? filter->keys[low] : NULL;
}

int dur__sq_handler_next(dur__sq_conn *conn, dur__sq_sql sql, const dur_handler_filter *filter, dur_arena *arena,
                         const char *from, const char **out, dur_error *err) {
    *out = NULL;
    for (const char *at = from; at != NULL;) {
        sqlite3_stmt *row = NULL;
        int code = dur__sq_first(conn, sql, &row, err, "t", at);
        if (code != DUR_OK || row == NULL) return code;
        const char *found = dur__sq_dup(arena, row, 0);
        dur__sq_end(&row);
        if (dur_handler_passes(filter, found)) {
            *out = found;
            return DUR_OK;
        }
        at = filter != NULL ? key_from(filter, found) : NULL;
    }
    return DUR_OK;
}

/* No text that is greater is less than this: a byte is never 0. */
const char *dur__sq_handler_after(const dur_handler_filter *filter, dur_arena *arena, const char *handler) {
    const char *next = dur_arena_format(arena, "%s\x01", handler);
    return filter == NULL ? next : key_from(filter, next);
}

/* ---- what nobody has ---- */

typedef struct unserved_list {
    dur__sq_conn *conn;
    dur_arena *arena;
    dur_unserved *rows;
    size_t count;
} unserved_list;

/* All that the statement has, which comes as its first row. */
static int unserved_add(unserved_list *list, dur_unserved_kind kind, sqlite3_stmt *row, dur_error *err) {
    enum { HANDLER_OF, INSTANCE, SINCE, JSON, SESSION, OWNER };
    int code = DUR_OK;
    while (code == DUR_OK && row != NULL && list->count < UNSERVED_MAX) {
        bool cancel = kind == DUR_UNSERVED_CANCEL;
        list->rows[list->count++] = (dur_unserved){ .kind = kind,
                                                    .handler = dur__sq_dup(list->arena, row, HANDLER_OF),
                                                    .instance = dur__sq_dup(list->arena, row, INSTANCE),
                                                    .since_ms = dur__sq_u64(row, SINCE),
                                                    .session = dur__sq_dup(list->arena, row, SESSION),
                                                    .owner = dur__sq_dup(list->arena, row, OWNER) };
        if (cancel) list->rows[list->count - 1].json = dur__sq_json(list->arena, row, JSON);
        code = dur__sq_next(&row, err);
    }
    dur__sq_end(&row);
    return code;
}

static int unserved_rows(unserved_list *list, bool activity, const char *handler, size_t each, dur_error *err) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(list->conn, activity ? DUR__SQ_WORK_OF_HANDLER : DUR__SQ_INSTANCE_OF_HANDLER, &row, err,
                             "ti", handler, (uint64_t)each);
    return code == DUR_OK ? unserved_add(list, activity ? DUR_UNSERVED_ACTIVITY : DUR_UNSERVED_INSTANCE, row, err)
                          : code;
}

static int unserved_kind(unserved_list *list, bool activity, size_t each, dur_error *err) {
    dur__sq_sql sql = activity ? DUR__SQ_WORK_HANDLERS : DUR__SQ_INSTANCE_HANDLERS;
    const char *from = "\x01", *handler = NULL; /* what needs no handler is everybody's */
    int code;
    while ((code = dur__sq_handler_next(list->conn, sql, NULL, list->arena, from, &handler, err)) == DUR_OK &&
           handler != NULL) {
        bool is_served = false;
        code = dur__sq_has(list->conn, DUR__SQ_SERVED, &is_served, err, "it", (uint64_t)activity, handler);
        if (code == DUR_OK && !is_served) code = unserved_rows(list, activity, handler, each, err);
        if (code != DUR_OK) break;
        from = dur__sq_handler_after(NULL, list->arena, handler);
    }
    return code;
}

/* Those of the instances that are listed, then the first of all. */
static int unserved_cancels(unserved_list *list, uint64_t now_ms, dur_error *err) {
    sqlite3_stmt *row = NULL;
    int code = DUR_OK;
    for (size_t i = 0, count = list->count; i < count && code == DUR_OK; i++) {
        if (list->rows[i].kind != DUR_UNSERVED_INSTANCE) continue;
        code = dur__sq_first(list->conn, DUR__SQ_CANCELS_OF, &row, err, "ti", list->rows[i].instance, now_ms);
        if (code == DUR_OK) code = unserved_add(list, DUR_UNSERVED_CANCEL, row, err);
    }
    if (code == DUR_OK) code = dur__sq_first(list->conn, DUR__SQ_UNSERVED_CANCELS, &row, err, "i", now_ms);
    return code == DUR_OK ? unserved_add(list, DUR_UNSERVED_CANCEL, row, err) : code;
}

static int unserved_sessions(unserved_list *list, dur_error *err) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(list->conn, DUR__SQ_UNSERVED_SESSIONS, &row, err, "");
    return code == DUR_OK ? unserved_add(list, DUR_UNSERVED_SESSION, row, err) : code;
}

int dur__sq_list_unserved(dur_provider *self, dur_arena *arena, size_t each, dur_unserved **out, size_t *count,
                          dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    DUR__SQ_READ(read, file, err);
    unserved_list list = { .arena = arena, .rows = dur_arena_zalloc(arena, UNSERVED_MAX * sizeof(dur_unserved)) };
    int code = dur__sq_read_open(&read, &list.conn, err);
    if (code == DUR_OK) code = unserved_kind(&list, false, each, err);
    if (code == DUR_OK) code = unserved_cancels(&list, file->world->wall_ms(file->world->data), err);
    if (code == DUR_OK) code = unserved_kind(&list, true, each, err);
    if (code == DUR_OK) code = unserved_sessions(&list, err);
    dur__sq_read_done(&read);
    *out = list.rows;
    *count = code == DUR_OK ? list.count : 0;
    return code;
}
