/*
 * sqlite_read.c: reading on snapshots, beside the writer, and the reads that fetches share.
 *
 * Reader connections come from a small pool.  A reader never holds a snapshot longer than one call, or checkpoints
 * could not finish.  A database in memory has one connection: its readers take the lead for the time of the call.
 */
#include "provider/sqlite/sqlite_internal.h"
#include <stdlib.h>

enum { READERS_KEPT = 16 };

int dur__sq_reader(dur__sq_file *file, dur__sq_conn **out, dur_error *err) {
    *out = NULL;
    if (file->path == NULL) {
        int code = dur__sq_lead(file, err);
        if (code == DUR_OK) *out = &file->writer;
        return code;
    }
    int code = DUR_OK;
    dur__mutex_lock(&file->pool.lock);
    dur__link *link = dur__list_pop(&file->pool.readers);
    if (link != NULL) file->pool.count--;
    dur__mutex_unlock(&file->pool.lock);
    dur__sq_conn *conn = link != NULL ? DUR__CONTAINER(link, dur__sq_conn, link) : dur__zget(sizeof(*conn));
    if (conn == NULL) return DUR__NO_MEMORY(err, "sqlite.read");
    if (link == NULL) code = dur__sq_connect(&conn->db, file, false, err);
    if (link == NULL && code == DUR_OK) code = dur__sq_exec(conn->db, "PRAGMA query_only=1", err);
    if (code == DUR_OK) code = dur__sq_intact(file, conn, err);
    if (code != DUR_OK) {
        dur__sq_conn_close(conn);
        dur__free(conn);
        return code;
    }
    *out = conn;
    return DUR_OK;
}

void dur__sq_reader_done(dur__sq_file *file, dur__sq_conn *conn) {
    if (conn == NULL) return;
    if (sqlite3_get_autocommit(conn->db) == 0) dur__sq_run(conn, DUR__SQ_READ_END, NULL, "");
    if (conn == &file->writer) {
        dur__sq_unlead(file);
        return;
    }
    dur__mutex_lock(&file->pool.lock);
    bool keep = file->pool.count < READERS_KEPT && sqlite3_get_autocommit(conn->db) != 0;
    if (keep) {
        dur__list_push(&file->pool.readers, &conn->link);
        file->pool.count++;
    }
    dur__mutex_unlock(&file->pool.lock);
    if (keep) return;
    dur__sq_conn_close(conn);
    dur__free(conn);
}

int dur__sq_read_open(dur__sq_reading *read, dur__sq_conn **out, dur_error *err) {
    dur__cover *cover = dur__cover_swap(NULL); /* a connection that nobody has yet is not to be left behind */
    int code = dur__sq_reader(read->file, &read->conn, err);
    dur__cover_swap(cover);
    *out = read->conn;
    return code;
}

int dur__sq_read_snapshot(dur__sq_reading *read, dur__sq_conn **out, dur_error *err) {
    int code = dur__sq_read_open(read, out, err);
    if (code == DUR_OK) code = dur__sq_prepare(*out, DUR__SQ_READ_END, err);
    return code == DUR_OK ? dur__sq_run(*out, DUR__SQ_READ_BEGIN, err, "") : code;
}

void dur__sq_read_done(dur__sq_reading *read) {
    dur__way_out_end(&read->out);
    dur__sq_reader_done(read->file, read->conn);
}

int dur__sq_read_lost(dur__sq_reading *read, dur_error *err) {
    if (read->conn != NULL) dur__sq_conn_reset(read->conn);
    dur__sq_reader_done(read->file, read->conn);
    return DUR__NO_MEMORY(err, "sqlite.read");
}

/* ---- vectors in an arena ---- */

void *dur__sq_rows_add(dur__sq_rows *list, size_t more, size_t size) {
    if (list->room - list->count < more) {
        size_t room = list->room == 0 ? more + 3 : 2 * (list->count + more);
        char *data = dur_arena_alloc(list->arena, room * size);
        if (list->count > 0) memcpy(data, list->data, list->count * size);
        list->data = data;
        list->room = room;
    }
    void *first = list->data + size * list->count;
    list->count += more;
    return first;
}

void *dur__sq_rows_take(dur__sq_rows *list, size_t *count) {
    *count = list->count;
    return list->data != NULL ? list->data : dur_arena_alloc(list->arena, 1);
}

/* ---- messages ---- */

enum { KIND = 5, DUE = 6 }; /* columns behind DUR__SQ_MESSAGE_COLUMNS' first */

static bool starts_kind(uint64_t kind) {
    return kind == DUR_WORK_START_ORCHESTRATION || kind == DUR_WORK_CONTINUE_AS_NEW;
}

static void message_add(dur__sq_rows *list, sqlite3_stmt *row) {
    dur_fetched_message *message = dur__sq_rows_add(list, 1, sizeof(*message));
    message->id = dur__sq_u64(row, 0);
    message->due_ms = dur__sq_u64(row, 1); /* by which it is ordered: an undelayed one by when it came */
    message->attempt_count = (uint32_t)dur__sq_u64(row, 2) + 1;
    message->queue = dur__sq_dup(list->arena, row, 3);
    message->json = dur__sq_json(list->arena, row, 4);
}

static int messages_add(dur__sq_rows *list, sqlite3_stmt *row, dur_error *err) {
    int code = DUR_OK;
    for (; code == DUR_OK && row != NULL; code = dur__sq_next(&row, err))
        message_add(list, row);
    return code;
}

static void note_start(const dur__sq_seen *seen, sqlite3_stmt *row) {
    if (seen->start == NULL || !starts_kind(dur__sq_u64(row, KIND))) return;
    uint64_t id = dur__sq_u64(row, 0);
    if (seen->start->id != 0 && seen->start->id < id) return;
    *seen->start = (dur__sq_first_start){ id, dur__sq_u64(row, DUE) > seen->now_ms };
}

static int message_order(const void *a, const void *b) {
    const dur_fetched_message *x = a, *y = b;
    if (x->due_ms != y->due_ms) return x->due_ms < y->due_ms ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Of one queue the first queue_max may be out at a time: those of them that were not handed out yet. */
static int messages_of_queue(dur__sq_conn *conn, dur__sq_rows *list, const dur__sq_seen *seen, const char *name,
                             uint32_t queue_max, bool *more, dur_error *err) {
    size_t room = queue_max == 0 ? SIZE_MAX : queue_max;
    uint64_t limit = queue_max == 0 ? INT64_MAX : (uint64_t)queue_max + 1;
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(conn, DUR__SQ_QUEUE_READ_NAMED, &row, err, "iiti", seen->key, seen->now_ms, name, limit);
    for (; code == DUR_OK && row != NULL; code = dur__sq_next(&row, err)) {
        if (room-- == 0) {
            *more = true;
            break;
        }
        bool is_out = seen->lease != NULL && dur__map_get_u64(&seen->lease->given, dur__sq_u64(row, 0)) != NULL;
        if (!is_out) message_add(list, row);
    }
    dur__sq_end(&row);
    return code;
}

static int messages_by_queue(dur__sq_conn *conn, dur__sq_rows *list, const dur__sq_seen *seen, uint32_t queue_max,
                             bool *more, dur_error *err) {
    const char *from = "";
    for (;;) {
        sqlite3_stmt *row = NULL;
        int code = dur__sq_first(conn, DUR__SQ_QUEUE_NAME, &row, err, "it", seen->key, from);
        const char *name = row != NULL ? dur__sq_dup(list->arena, row, 0) : NULL;
        dur__sq_end(&row);
        if (code != DUR_OK || name == NULL) return code;
        code = messages_of_queue(conn, list, seen, name, queue_max, more, err);
        if (code != DUR_OK) return code;
        from = dur_arena_format(list->arena, "%s\x01", name); /* see dur__sq_handler_after */
    }
}

enum { FEW = 8 };

/*
 * Nearly always an instance has a handful of rows in the queue: then one look at all of them answers everything, also
 * how many are not due yet.  *done is false when there are more, or more of one queue than may be handed out.
 */
static int messages_few(dur__sq_conn *conn, dur__sq_rows *list, const dur__sq_seen *seen, uint32_t queue_max,
                        bool *done, dur_error *err) {
    sqlite3_stmt *row = NULL;
    size_t count = 0, named = 0;
    int code = dur__sq_first(conn, DUR__SQ_QUEUE_READ_FEW, &row, err, "ii", seen->key, (uint64_t)FEW + 1);
    for (; code == DUR_OK && row != NULL; code = dur__sq_next(&row, err)) {
        count++;
        note_start(seen, row);
        if (dur__sq_u64(row, DUE) > seen->now_ms) continue;
        message_add(list, row);
        const dur_fetched_message *message = (dur_fetched_message *)(void *)list->data + list->count - 1;
        named += message->queue != NULL;
    }
    *done = code == DUR_OK && count <= FEW && (queue_max == 0 || named <= queue_max);
    if (*done && seen->queued != NULL) *seen->queued = count;
    if (code != DUR_OK || *done) return code;
    list->count = 0;
    if (seen->start != NULL) *seen->start = (dur__sq_first_start){ .id = 0 };
    return DUR_OK;
}

int dur__sq_read_messages(dur__sq_conn *conn, dur_arena *arena, const dur__sq_seen *seen, uint32_t queue_max,
                          dur_fetched_message **out, size_t *count, bool *more, dur_error *err) {
    dur__sq_rows list = { .arena = arena };
    sqlite3_stmt *row = NULL;
    bool done = false;
    int code = DUR_OK;
    if (seen->lease == NULL) code = messages_few(conn, &list, seen, queue_max, &done, err);
    if (code == DUR_OK && !done)
        code = dur__sq_first(conn, DUR__SQ_QUEUE_READ_PLAIN, &row, err, "iiii", seen->key, seen->now_ms, seen->id,
                             seen->seen_now);
    if (code == DUR_OK && !done) code = messages_add(&list, row, err);
    if (code == DUR_OK && !done) code = messages_by_queue(conn, &list, seen, queue_max, more, err);
    if (list.count > 1) qsort(list.data, list.count, sizeof(dur_fetched_message), message_order);
    *out = dur__sq_rows_take(&list, count);
    return code;
}

int dur__sq_read_behind(dur__sq_conn *conn, dur_arena *arena, const dur__sq_behind *which, dur_fetched_message **out,
                        size_t *count, dur_error *err) {
    dur__sq_rows list = { .arena = arena };
    sqlite3_stmt *row = NULL;
    bool named = which->queue != NULL;
    int code =
        dur__sq_first(conn, named ? DUR__SQ_QUEUE_BEHIND_NAMED : DUR__SQ_QUEUE_BEHIND, &row, err,
                      named ? "iiiiit" : "iiiii", which->key, which->now_ms, which->after_due_ms, which->after_id,
                      which->max > 0 ? (uint64_t)which->max : (uint64_t)INT64_MAX, which->queue);
    if (code == DUR_OK) code = messages_add(&list, row, err);
    *out = dur__sq_rows_take(&list, count);
    return code;
}

/* ---- keys and values ---- */

int dur__sq_read_kv(dur__sq_conn *conn, dur_arena *arena, uint64_t key, bool merged, dur_key_value **out, size_t *count,
                    dur_error *err) {
    dur__sq_rows list = { .arena = arena };
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(conn, merged ? DUR__SQ_KV_ALL : DUR__SQ_KV_SNAPSHOT, &row, err, "i", key);
    while (code == DUR_OK && row != NULL) {
        dur_key_value *value = dur__sq_rows_add(&list, 1, sizeof(*value));
        value->key = dur__sq_dup(arena, row, 0);
        value->value = dur__sq_dup(arena, row, 1);
        value->last_updated_at_ms = dur__sq_u64(row, 2);
        code = dur__sq_next(&row, err);
    }
    *out = dur__sq_rows_take(&list, count);
    return code;
}

int dur__sq_read(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution_id, dur_event_row **out,
                 size_t *count, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    dur__sq_conn *conn = NULL;
    uint64_t of[2] = { 0 }; /* key and current execution */
    *out = NULL;
    *count = 0;
    DUR__SQ_READ(read, file, err);
    int code = dur__sq_read_snapshot(&read, &conn, err);
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_INSTANCE_READ, of, 2, err, "t", instance);
    if (code == DUR_OK && of[0] != 0)
        code = dur__sq_read_history(conn, arena, instance, of[0], execution_id != 0 ? execution_id : of[1], out, count,
                                    err);
    dur__sq_read_done(&read);
    return code;
}

int dur__sq_get_custom_status(dur_provider *self, dur_arena *arena, const char *instance, uint64_t last_seen,
                              bool *changed, const char **status, uint64_t *version, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    dur__sq_conn *conn = NULL;
    sqlite3_stmt *row = NULL;
    *changed = false;
    DUR__SQ_READ(read, file, err);
    int code = dur__sq_read_open(&read, &conn, err);
    if (code == DUR_OK) code = dur__sq_first(conn, DUR__SQ_INSTANCE_READ, &row, err, "t", instance);
    if (code == DUR_OK && row != NULL && dur__sq_u64(row, 2) > last_seen) {
        *changed = true;
        *status = dur__sq_dup(arena, row, 3);
        *version = dur__sq_u64(row, 2);
    }
    dur__sq_end(&row);
    dur__sq_read_done(&read);
    return code;
}

int dur__sq_get_kv_value(dur_provider *self, dur_arena *arena, const char *instance, const char *name,
                         const char **value, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    dur__sq_conn *conn = NULL;
    sqlite3_stmt *row = NULL;
    *value = NULL;
    DUR__SQ_READ(read, file, err);
    int code = dur__sq_read_open(&read, &conn, err);
    if (code == DUR_OK) code = dur__sq_first(conn, DUR__SQ_KV_GET, &row, err, "tt", instance, name);
    if (code == DUR_OK && row != NULL) *value = dur__sq_dup(arena, row, 0);
    dur__sq_end(&row);
    dur__sq_read_done(&read);
    return code;
}

int dur__sq_get_kv_all_values(dur_provider *self, dur_arena *arena, const char *instance, dur_key_value **out,
                              size_t *count, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    dur__sq_conn *conn = NULL;
    uint64_t key = 0;
    *out = NULL;
    *count = 0;
    DUR__SQ_READ(read, file, err);
    int code = dur__sq_read_snapshot(&read, &conn, err);
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_KEY_OF, &key, 1, err, "t", instance);
    if (code == DUR_OK && key != 0) code = dur__sq_read_kv(conn, arena, key, true, out, count, err);
    dur__sq_read_done(&read);
    return code;
}
