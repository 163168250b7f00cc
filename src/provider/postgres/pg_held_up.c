/*
 * pg_held_up.c: rows that somebody else holds, and the turns that would wait for them.
 *
 * A row is locked for as long as a commit takes.  But a client that stands still in the middle of its transaction, or
 * somebody with a console, may hold one for hours, and a round that waited for it would keep every instance of its lane
 * waiting.  So a lane's statements wait for a lock only so long (pg_conn.c); then the lane asks which rows are held,
 * refuses their turns, which the runtime tries again later, and commits the others.  It remembers those rows, and asks
 * before it waits for one of them again.
 */
#include "provider/postgres/pg_turn.h"

#include <stdlib.h>

bool dur__pg_waited_too_long(const dur__pg_batch *batch) {
    return strcmp(batch->sqlstate, "55P03") == 0;
}

/* How somebody holds a row: in the way of those who write it, or of everybody. */
static char for_writers, for_all;

/* ---- the rows that a turn locks ---------------------------------------------------------------------------------- */

typedef bool row_visitor(void *data, const char *instance, bool writes);

/* True: one of them was what the visitor wants. */
static bool visit_rows(const dur__pg_part *part, row_visitor *visit, void *data) {
    const dur_turn_commit *turn = part->turn;
    if (visit(data, turn->instance, part->updates || part->locks || part->facts.born)) return true;
    if (part->facts.compares_parent && visit(data, turn->metadata.parent_instance_id, true)) return true;
    for (size_t i = 0; !part->keeps_timers && i < turn->orchestrator_item_count; i++)
        if (visit(data, turn->orchestrator_items[i].instance, true)) return true;
    return false;
}

/* Rows that are held, by id. */
typedef struct held_row {
    const char *how;
    char id[];
} held_row;

static bool is_held(void *map, const char *instance, bool writes) {
    const held_row *row = dur__map_get(map, instance);
    return row != NULL && (writes || row->how == &for_all);
}

static bool add_to_array(void *array, const char *instance, bool writes) {
    (void)writes;
    dur__pg_add_text(array, instance);
    return false;
}

static bool forget(void *map, const char *instance, bool writes) {
    (void)writes;
    dur__free(dur__map_remove(map, instance));
    return false;
}

static void remember(dur__pg_lane *lane, const char *id) {
    size_t size = strlen(id) + 1;
    held_row *row = dur__xmalloc(sizeof(*row) + size);
    row->how = &for_all;
    memcpy(row->id, id, size);
    (void)forget(&lane->held_up, id, true);
    dur__map_put(&lane->held_up, row->id, row);
}

void dur__pg_held_up_forget(dur__pg_lane *lane) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&lane->held_up, &i)) != NULL;)
        dur__free(entry->value);
    dur__map_free(&lane->held_up);
    memset(&lane->held_up, 0, sizeof(lane->held_up));
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

#define THERE "SELECT instance_id FROM @instances WHERE instance_id = ANY ($2::text[])"
#define FREE(strength) THERE " FOR " strength " SKIP LOCKED"
static const char there_sql[] = THERE;
static const char readable_sql[] = FREE("KEY SHARE");
static const char writable_sql[] = FREE("NO KEY UPDATE");

static int send_ids(dur__pg_batch *batch, const char *sql, const dur__pg_parts *parts) {
    dur__pg_args args;
    dur__pg_array ids = dur__pg_array_text();
    for (size_t i = 0; i < parts->count; i++)
        (void)visit_rows(&parts->all[i], add_to_array, &ids);
    dur__pg_args_begin(batch->conn->store, &args);
    dur__pg_array_arg(&args, &ids);
    return dur__pg_batch_add(batch, sql, &args);
}

/* From now on the rows of these turns that are held are remembered, and no others of theirs. */
static int ask(dur__pg_lane *lane, const dur__pg_parts *parts, dur_error *err) {
    dur__pg_batch batch;
    int code = dur__pg_lane_connect(lane, err);
    if (code != DUR_OK) return code;
    dur__pg_batch_begin(&batch, lane->conn, false);
    int there = send_ids(&batch, there_sql, parts);
    int readable = send_ids(&batch, readable_sql, parts);
    int writable = send_ids(&batch, writable_sql, parts);
    code = dur__pg_batch_run(&batch, "postgres.round", err);
    for (size_t i = 0; code == DUR_OK && i < parts->count; i++)
        (void)visit_rows(&parts->all[i], forget, &lane->held_up);
    for (int row = 0; code == DUR_OK && row < PQntuples(batch.results[there]); row++)
        remember(lane, dur__pg_get(batch.results[there], row, 0));
    for (int row = 0; code == DUR_OK && row < PQntuples(batch.results[readable]); row++) {
        held_row *held = dur__map_get(&lane->held_up, dur__pg_get(batch.results[readable], row, 0));
        if (held != NULL) held->how = &for_writers;
    }
    for (int row = 0; code == DUR_OK && row < PQntuples(batch.results[writable]); row++)
        (void)forget(&lane->held_up, dur__pg_get(batch.results[writable], row, 0), true);
    dur__pg_batch_end(&batch);
    return code;
}

/* Those that wait for one of these rows come last; how many come before them. */
static size_t move_back(const dur__pg_parts *parts, dur_turn_commit **turns, dur__map *rows) {
    size_t kept = 0;
    for (size_t i = 0; i < parts->count; i++)
        if (!visit_rows(&parts->all[i], is_held, rows)) turns[kept++] = parts->all[i].turn;
    for (size_t i = 0, last = kept; i < parts->count; i++)
        if (visit_rows(&parts->all[i], is_held, rows)) turns[last++] = parts->all[i].turn;
    return kept;
}

size_t dur__pg_leave_held_up(dur__pg_lane *lane, dur_turn_commit **turns, size_t count, bool waited) {
    dur_error err = DUR_ERROR_INIT;
    dur__pg_parts all, some;
    dur__pg_parts_begin(&all, lane, turns, count);
    size_t first = waited ? 0 : move_back(&all, turns, &lane->held_up);
    dur__pg_parts_end(&all);
    if (first == count) return count;
    dur__pg_parts_begin(&some, lane, turns + first, count - first);
    bool asked = ask(lane, &some, &err) == DUR_OK;
    size_t kept = asked ? first + move_back(&some, turns + first, &lane->held_up) : first;
    dur__pg_parts_end(&some);
    if (asked)
        dur_error_set(&err, DUR_EBUSY, true, "postgres.round",
                      "another session has locked its row, or that of an instance that it writes to");
    dur__pg_turns_failed(turns + kept, count - kept, &err);
    return kept;
}
