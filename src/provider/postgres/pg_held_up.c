/*
 * pg_held_up.c: rows that somebody else holds, and the turns that would wait for them.
 *
 * A row is locked for as long as a commit takes.  But a client that stands still in the middle of its transaction, or
 * somebody with a console, may hold one for hours, and a round that waited for it would keep every instance of its lane
 * waiting.  So a lane's statements wait for a lock only so long (pg_conn.c); then the lane asks which rows are held,
 * refuses their turns, which the runtime tries again later, and commits the others.  It remembers those rows, and asks
 * before it waits for one of them again.
 */
#include "provider/postgres/pg_internal.h"

#include <stdlib.h>

bool dur__pg_waited_too_long(const dur__pg_batch *batch) {
    return strcmp(batch->sqlstate, "55P03") == 0;
}

/* ---- the rows that a turn locks ---------------------------------------------------------------------------------- */

typedef bool row_visitor(void *data, const char *instance);

/* True: one of them was what the visitor wants. */
static bool visit_rows(const dur_turn_commit *turn, row_visitor *visit, void *data) {
    const char *parent = turn->needs_parent ? turn->metadata.parent_instance_id : NULL;
    if (visit(data, turn->instance) || (parent != NULL && visit(data, parent))) return true;
    for (size_t i = 0; i < turn->orchestrator_item_count; i++)
        if (visit(data, turn->orchestrator_items[i].instance)) return true;
    return false;
}

static bool is_in(void *map, const char *instance) {
    return dur__map_get(map, instance) != NULL;
}

static bool add_to_array(void *array, const char *instance) {
    dur__pg_add_text(array, instance);
    return false;
}

static bool forget(void *map, const char *instance) {
    free(dur__map_remove(map, instance));
    return false;
}

void dur__pg_held_up_forget(dur__pg_lane *lane) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&lane->held_up, &i)) != NULL;)
        free(entry->value);
    dur__map_free(&lane->held_up);
    memset(&lane->held_up, 0, sizeof(lane->held_up));
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static const char there_sql[] = "SELECT instance_id FROM @instances WHERE instance_id = ANY ($2::text[])";
static const char free_sql[] =
    "SELECT instance_id FROM @instances WHERE instance_id = ANY ($2::text[]) FOR NO KEY UPDATE SKIP LOCKED";

static int send_ids(dur__pg *store, dur__pg_batch *batch, const char *sql, dur_turn_commit **turns, size_t count) {
    dur__pg_args args;
    dur__pg_array ids = dur__pg_array_text();
    for (size_t i = 0; i < count; i++)
        (void)visit_rows(turns[i], add_to_array, &ids);
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &ids);
    return dur__pg_batch_add(batch, sql, &args);
}

/* From now on the rows of these turns that are held are remembered, and no others of theirs. */
static int ask(dur__pg_lane *lane, dur_turn_commit **turns, size_t count, dur_error *err) {
    dur__pg_batch batch;
    int code = dur__pg_lane_connect(lane, err);
    if (code != DUR_OK) return code;
    dur__pg_batch_begin(&batch, lane->conn, false);
    int there = send_ids(lane->store, &batch, there_sql, turns, count);
    int free_ones = send_ids(lane->store, &batch, free_sql, turns, count);
    code = dur__pg_batch_run(&batch, "postgres.round", err);
    for (size_t i = 0; code == DUR_OK && i < count; i++)
        (void)visit_rows(turns[i], forget, &lane->held_up);
    for (int row = 0; code == DUR_OK && row < PQntuples(batch.results[there]); row++) {
        char *id = dur__xstrdup(dur__pg_get(batch.results[there], row, 0));
        dur__map_put(&lane->held_up, id, id);
    }
    for (int row = 0; code == DUR_OK && row < PQntuples(batch.results[free_ones]); row++)
        (void)forget(&lane->held_up, dur__pg_get(batch.results[free_ones], row, 0));
    dur__pg_batch_end(&batch);
    return code;
}

/* Those that lock one of these rows come last; how many come before them. */
static size_t move_back(dur_turn_commit **turns, size_t count, dur__map *rows) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        if (visit_rows(turns[i], is_in, rows)) continue;
        dur_turn_commit *turn = turns[i];
        turns[i] = turns[kept];
        turns[kept++] = turn;
    }
    return kept;
}

size_t dur__pg_leave_held_up(dur__pg_lane *lane, dur_turn_commit **turns, size_t count, bool waited) {
    dur_error err = DUR_ERROR_INIT;
    size_t first = waited ? 0 : move_back(turns, count, &lane->held_up);
    if (first == count) return count;
    bool asked = ask(lane, turns + first, count - first, &err) == DUR_OK;
    size_t kept = asked ? first + move_back(turns + first, count - first, &lane->held_up) : first;
    if (asked)
        dur_error_set(&err, DUR_EBUSY, true, "postgres.round",
                      "another session has locked its row, or that of an instance that it writes to");
    for (size_t i = kept; i < count; i++)
        dur__pg_turn_failed(turns[i], &err);
    return kept;
}
