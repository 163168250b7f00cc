/*
 * sqlite_admin.c: lists and counts, on reader connections.
 */
#include "provider/sqlite/sqlite_internal.h"
#include <stdlib.h>

enum { ID, NAME, VERSION, EXECUTION, STATUS, PARENT, CREATED, UPDATED, SUSPENDED, CUSTOM_STATUS };
enum { CUSTOM_STATUS_VERSION = 10, OWNER, BIRTH, OUTPUT, LAST_AT, HISTORY, START_AT, START, START_ID };
enum { HANDLER = 19, UNSERVED, STUCK };

/* A step of a parked instance does not touch its row: its last event knows when it was.  False: it is known by messages
   only. */
static bool row_fill(dur_arena *arena, sqlite3_stmt *row, dur_instance_row *out) {
    uint64_t execution = dur__sq_u64(row, EXECUTION), status = dur__sq_u64(row, STATUS);
    bool begun = !dur__sq_is_null(row, NAME) || dur__sq_u64(row, HISTORY) != 0;
    bool starts = !dur__sq_is_null(row, START);
    *out = (dur_instance_row){ .instance_id = dur__sq_dup(arena, row, ID),
                               .orchestration_name = dur__sq_dup(arena, row, NAME),
                               .orchestration_version = dur__sq_dup(arena, row, VERSION),
                               .current_execution_id = execution > 0 ? execution : 1,
                               .status = status == DUR_STATUS_NONE ? DUR_STATUS_RUNNING : (dur_status)status,
                               .output = dur__sq_dup(arena, row, OUTPUT),
                               .parent_instance_id = dur__sq_dup(arena, row, PARENT),
                               .created_at_ms = dur__sq_u64(row, CREATED),
                               .updated_at_ms = dur__sq_u64(row, UPDATED),
                               .suspended = dur__sq_dup(arena, row, SUSPENDED),
                               .custom_status = dur__sq_dup(arena, row, CUSTOM_STATUS),
                               .custom_status_version = dur__sq_u64(row, CUSTOM_STATUS_VERSION),
                               .owner = dur__sq_dup(arena, row, OWNER),
                               .birth = dur__sq_u64(row, BIRTH),
                               .start_pending = starts && !begun };
    if (dur__sq_u64(row, LAST_AT) > out->updated_at_ms) out->updated_at_ms = dur__sq_u64(row, LAST_AT);
    if (out->start_pending) out->created_at_ms = out->updated_at_ms = dur__sq_u64(row, START_AT);
    return begun || starts;
}

static void start_fill(dur_arena *arena, sqlite3_stmt *row, dur_instance_row *out) {
    if (dur__sq_is_null(row, START)) return;
    out->pending_start = dur__sq_json(arena, row, START);
    out->pending_start_id = dur__sq_u64(row, START_ID);
}

static void handler_fill(dur_arena *arena, sqlite3_stmt *row, dur_instance_row *out) {
    const char *handler = dur__sq_text(row, HANDLER);
    out->handler = handler[0] != '\0' ? dur_arena_strdup(arena, handler) : NULL;
    out->unserved = out->handler != NULL && dur__sq_u64(row, UNSERVED) != 0;
    out->stuck_session = dur__sq_dup(arena, row, STUCK);
}

int dur__sq_get_instance(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out,
                         dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    DUR__SQ_READ(read, file, err);
    dur__sq_conn *conn = NULL;
    sqlite3_stmt *row = NULL;
    bool exists = false;
    int code = dur__sq_read_open(&read, &conn, err);
    if (code == DUR_OK) code = dur__sq_first(conn, DUR__SQ_INSTANCE_WHOLE, &row, err, "t", instance);
    if (code == DUR_OK && row != NULL) {
        exists = row_fill(arena, row, out);
        start_fill(arena, row, out);
        handler_fill(arena, row, out);
    }
    dur__sq_end(&row);
    dur__sq_read_done(&read);
    if (code == DUR_OK && !exists)
        code = dur_error_set(err, DUR_ENOTFOUND, false, "sqlite.get_instance", "instance \"%s\" not found", instance);
    return code;
}

static dur__sq_sql list_of(const dur_instance_query *query) {
    if (query->parent != NULL) return DUR__SQ_LIST_CHILDREN;
    if (query->suspended_only) return DUR__SQ_LIST_SUSPENDED;
    if (query->status == DUR_STATUS_RUNNING) return DUR__SQ_LIST_RUNNING;
    return query->status != DUR_STATUS_NONE ? DUR__SQ_LIST_STATUS : DUR__SQ_LIST;
}

int dur__sq_list_instances(dur_provider *self, dur_arena *arena, const dur_instance_query *query,
                           dur_instance_row **out, size_t *count, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    DUR__SQ_READ(read, file, err);
    dur__sq_conn *conn = NULL;
    sqlite3_stmt *row = NULL;
    dur__sq_rows list = { .arena = arena };
    int code = dur__sq_read_snapshot(&read, &conn, err);
    if (code == DUR_OK)
        code = dur__sq_first(conn, list_of(query), &row, err, "tiittiiiti", query->after != NULL ? query->after : "",
                             (uint64_t)query->status, (uint64_t)query->suspended_only, query->name, query->id_prefix,
                             (uint64_t)query->roots_only, query->created_after_ms, query->created_before_ms,
                             query->parent, query->limit > 0 ? (uint64_t)query->limit : (uint64_t)INT64_MAX);
    while (code == DUR_OK && row != NULL) {
        dur_instance_row *one = dur__sq_rows_add(&list, 1, sizeof(*one));
        (void)row_fill(arena, row, one);
        if (one->start_pending) start_fill(arena, row, one);
        code = dur__sq_next(&row, err);
    }
    dur__sq_end(&row);
    *out = dur__sq_rows_take(&list, count);
    dur__sq_read_done(&read);
    return code;
}

int dur__sq_list_executions(dur_provider *self, dur_arena *arena, const char *instance, dur_execution_row **out,
                            size_t *count, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    DUR__SQ_READ(read, file, err);
    dur__sq_conn *conn = NULL;
    sqlite3_stmt *row = NULL;
    dur__sq_rows list = { .arena = arena };
    uint64_t key = 0;
    int code = dur__sq_read_snapshot(&read, &conn, err);
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_KEY_OF, &key, 1, err, "t", instance);
    if (code == DUR_OK) code = dur__sq_first(conn, DUR__SQ_EXECUTION_LIST, &row, err, "i", key);
    for (; code == DUR_OK && row != NULL; code = dur__sq_next(&row, err)) {
        *(dur_execution_row *)dur__sq_rows_add(&list, 1, sizeof(dur_execution_row)) =
            (dur_execution_row){ .execution_id = dur__sq_u64(row, 0),
                                 .status = (dur_status)dur__sq_u64(row, 1),
                                 .output = dur__sq_dup(arena, row, 2),
                                 .started_at_ms = dur__sq_u64(row, 3),
                                 .completed_at_ms = dur__sq_u64(row, 4),
                                 .event_count = dur__sq_u64(row, 5) };
    }
    *out = dur__sq_rows_take(&list, count);
    dur__sq_read_done(&read);
    return code;
}

int dur__sq_get_system_metrics(dur_provider *self, dur_system_metrics *out, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    DUR__SQ_READ(read, file, err);
    dur__sq_conn *conn = NULL;
    uint64_t n[5] = { 0 }, executions = 0, events = 0, starts[2] = { 0 };
    memset(out, 0, sizeof *out);
    int code = dur__sq_read_snapshot(&read, &conn, err);
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_COUNT_INSTANCES, n, 5, err, "");
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_COUNT_STARTS, starts, 2, err, "");
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_COUNT_EXECUTIONS, &executions, 1, err, "");
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_COUNT_EVENTS, &events, 1, err, "");
    dur__sq_read_done(&read);
    *out = (dur_system_metrics){ .total_instances = n[0],
                                 .running = n[1],
                                 .completed = n[2],
                                 .failed = n[3],
                                 .suspended = n[4] + starts[1],
                                 .starts_waiting = starts[0],
                                 .total_executions = executions,
                                 .total_events = events };
    return code;
}

int dur__sq_get_queue_depths(dur_provider *self, dur_queue_depths *out, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    DUR__SQ_READ(read, file, err);
    dur__sq_conn *conn = NULL;
    uint64_t queue[2] = { 0 }, locked = 0, work = 0, dead = 0;
    uint64_t now = file->world->wall_ms(file->world->data), boot = file->world->boot_ms(file->world->data);
    memset(out, 0, sizeof *out);
    int code = dur__sq_read_snapshot(&read, &conn, err);
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_COUNT_QUEUE, queue, 2, err, "i", now);
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_COUNT_LOCKED_QUEUE, &locked, 1, err, "ii", now, boot);
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_COUNT_WORK, &work, 1, err, "ii", now, boot);
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_COUNT_DEAD, &dead, 1, err, "");
    dur__sq_read_done(&read);
    *out = (dur_queue_depths){ .orchestrator_queue = queue[0] - queue[1] - locked,
                               .timer_queue = queue[1],
                               .worker_queue = work,
                               .dead_letters = dead };
    return code;
}

int dur__sq_get_instance_stats(dur_provider *self, dur_arena *arena, const char *instance, bool *found,
                               dur_instance_stats *out, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    DUR__SQ_READ(read, file, err);
    dur__sq_conn *conn = NULL;
    uint64_t of[2] = { 0 }, event_bytes = 0, kv[2] = { 0 }, queue = 0;
    dur_event_row *events = NULL;
    size_t event_count = 0;
    *found = false;
    memset(out, 0, sizeof *out);
    int code = dur__sq_read_snapshot(&read, &conn, err);
    if (code == DUR_OK) code = dur__sq_get(conn, DUR__SQ_INSTANCE_READ, of, 2, err, "t", instance);
    uint64_t key = of[0], execution = of[1];
    *found = execution != 0;
    if (code == DUR_OK && !*found && key != 0) /* perhaps its start waits */
        code = dur__sq_has(conn, DUR__SQ_QUEUE_START, found, err, "i", key);
    if (code == DUR_OK && *found)
        code = dur__sq_read_history(conn, arena, instance, key, execution, &events, &event_count, err);
    for (size_t i = 0; i < event_count; i++)
        event_bytes += events[i].json.size;
    if (code == DUR_OK && *found) code = dur__sq_get(conn, DUR__SQ_STATS_KV, kv, 2, err, "i", key);
    if (code == DUR_OK && *found) code = dur__sq_get(conn, DUR__SQ_QUEUE_COUNT_NAMED, &queue, 1, err, "i", key);
    dur__sq_read_done(&read);
    *out = (dur_instance_stats){ .history_event_count = event_count,
                                 .history_size_bytes = event_bytes,
                                 .queue_pending_count = queue,
                                 .kv_user_key_count = kv[0],
                                 .kv_total_value_bytes = kv[1] };
    return code;
}

int dur__sq_list_dead_letters(dur_provider *self, dur_arena *arena, uint64_t after_id, size_t limit,
                              dur_dead_letter **out, size_t *count, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    DUR__SQ_READ(read, file, err);
    dur__sq_conn *conn = NULL;
    sqlite3_stmt *row = NULL;
    dur__sq_rows list = { .arena = arena };
    int code = dur__sq_read_open(&read, &conn, err);
    if (code == DUR_OK)
        code = dur__sq_first(conn, DUR__SQ_DEAD_LIST, &row, err, "ii", after_id,
                             limit > 0 ? (uint64_t)limit : (uint64_t)INT64_MAX);
    for (; code == DUR_OK && row != NULL; code = dur__sq_next(&row, err)) {
        *(dur_dead_letter *)dur__sq_rows_add(&list, 1, sizeof(dur_dead_letter)) =
            (dur_dead_letter){ .id = dur__sq_u64(row, 0),
                               .instance = dur__sq_dup(arena, row, 1),
                               .reason = dur__sq_dup(arena, row, 2),
                               .at_ms = dur__sq_u64(row, 3),
                               .json = dur__sq_json(arena, row, 4) };
    }
    *out = dur__sq_rows_take(&list, count);
    dur__sq_read_done(&read);
    return code;
}
