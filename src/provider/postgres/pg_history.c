/*
 * pg_history.c: writing history: the events of a turn, several in a row.
 *
 * A row costs more than the few hundred bytes that it holds, so what a turn adds is put together: texts with a line
 * break between them, which is in none of them, under the id of the first; the ids of the others follow it.  A row
 * stays below the size at which the server would compress it and move it out of the table.  What the columns say as
 * well is left out of the texts (pg_short.c).
 */
#include "provider/postgres/pg_turn.h"

#define ROW_BYTES_MAX 1900u

static const char rows_sql[] =
    "INSERT INTO @history (instance_id, execution_id, event_id, events, json, written)"
    " SELECT * FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[], $7::text[])";
static const char events_sql[] =
    "INSERT INTO @history (instance_id, execution_id, event_id, json) SELECT e.instance, e.execution,"
    " " DUR__PG_NEW_EVENT_ID ", e.json FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[]) AS e(instance,"
    " execution, id, json)";

bool dur__pg_events_are_new(const dur_turn_commit *turn) {
    if (turn->expected_last == DUR_NOT_COMPARED) return false;
    uint64_t last = turn->expected_last;
    for (size_t i = 0; i < turn->event_count; last = turn->events[i++].event_id)
        if (turn->events[i].event_id <= last) return false;
    return true;
}

static bool fits(const dur_event_row *event) {
    return event->json.size > 0 && event->json.size <= ROW_BYTES_MAX &&
           memchr(event->json.data, '\n', event->json.size) == NULL;
}

bool dur__pg_in_first_row(const dur_turn_commit *turn, size_t at) {
    size_t size = at;
    for (size_t i = 0; i <= at; i++) {
        if (!fits(&turn->events[i]) || turn->events[i].event_id != turn->events[0].event_id + i) return false;
        size += turn->events[i].json.size;
    }
    return size <= ROW_BYTES_MAX;
}

static size_t together(const dur_turn_commit *turn, size_t from) {
    const dur_event_row *events = turn->events;
    size_t count = 1, size = events[from].json.size;
    if (!fits(&events[from])) return 1;
    for (size_t i = from + 1; i < turn->event_count && events[i].event_id == events[i - 1].event_id + 1; i++, count++) {
        size += 1 + events[i].json.size;
        if (!fits(&events[i]) || size > ROW_BYTES_MAX) break;
    }
    return count;
}

static bool written_alike(const dur__pg_event_text *a, const dur__pg_event_text *b) {
    return a->written_ms == b->written_ms && a->version.size == b->version.size &&
           memcmp(a->version.data, b->version.data, a->version.size) == 0;
}

static void add_line(dur__buf *json, const dur__pg_event_text *text) {
    if (text->source != 0) {
        dur__buf_u64(json, text->source);
        dur__buf_char(json, ':');
    }
    dur__buf_add(json, text->rest.data, text->rest.size);
}

static bool in_short(const dur_turn_commit *turn, const dur_event_row *events, size_t count, dur__pg_row_text *row) {
    dur__pg_event_text first, next;
    if (!fits(&events[0]) || !dur__pg_event_short(turn, &events[0], &first)) return false;
    add_line(&row->json, &first);
    for (size_t i = 1; i < count; i++) {
        if (!fits(&events[i]) || !dur__pg_event_short(turn, &events[i], &next) || !written_alike(&first, &next))
            return false;
        dur__buf_char(&row->json, '\n');
        add_line(&row->json, &next);
    }
    size_t size = dur__u64_text(row->written, first.written_ms);
    row->written[size++] = ' ';
    memcpy(row->written + size, first.version.data, first.version.size);
    row->written[size + first.version.size] = '\0';
    return true;
}

size_t dur__pg_row_of_events(const dur_turn_commit *turn, size_t from, dur__pg_row_text *row) {
    const dur_event_row *events = &turn->events[from];
    size_t count = together(turn, from);
    dur__buf_clear(&row->json);
    if (in_short(turn, events, count, row)) return count;
    dur__buf_clear(&row->json);
    row->written[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        if (i > 0) dur__buf_char(&row->json, '\n');
        dur__buf_add(&row->json, events[i].json.data, events[i].json.size);
    }
    return count;
}

dur_text dur__pg_row_json(const dur__pg_row_text *row) {
    return (dur_text){ row->json.data, row->json.size };
}

const char *dur__pg_row_written(const dur__pg_row_text *row) {
    return row->written[0] != '\0' ? row->written : NULL;
}

void dur__pg_history_columns(dur__pg_args *args, dur_turn_commit **turns, size_t count) {
    dur__pg_array events = dur__pg_array_i64(), json = dur__pg_array_text(), written = dur__pg_array_text();
    dur__pg_row_text row = DUR__PG_ROW_TEXT_INIT;
    for (size_t i = 0; i < count; i++) {
        dur__pg_add_i64(&events, (int64_t)dur__pg_row_of_events(turns[i], 0, &row));
        dur__pg_add_json(&json, dur__pg_row_json(&row));
        dur__pg_add_text(&written, dur__pg_row_written(&row));
    }
    dur__buf_free(&row.json);
    dur__pg_array_arg(args, &events);
    dur__pg_array_arg(args, &json);
    dur__pg_array_arg(args, &written);
}

/* Behind a comparison that says that they are new; without the first row of each, where that is written already. */
static void send_rows(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count, bool without_first) {
    dur__pg_args args;
    dur__pg_array instance = dur__pg_array_text(), execution = dur__pg_array_i64(), id = dur__pg_array_i64();
    dur__pg_array events = dur__pg_array_i64(), json = dur__pg_array_text(), written = dur__pg_array_text();
    dur__pg_row_text row = DUR__PG_ROW_TEXT_INIT;
    for (size_t i = 0; i < count; i++) {
        const dur_turn_commit *turn = turns[i];
        if (!dur__pg_turn_writes(turn) || !dur__pg_events_are_new(turn)) continue;
        for (size_t k = 0, some; k < turn->event_count; k += some) {
            if (k == 0 && without_first) {
                some = together(turn, 0);
                continue;
            }
            some = dur__pg_row_of_events(turn, k, &row);
            dur__pg_add_text(&instance, turn->instance);
            dur__pg_add_i64(&execution, (int64_t)turn->execution_id);
            dur__pg_add_i64(&id, (int64_t)turn->events[k].event_id);
            dur__pg_add_i64(&events, (int64_t)some);
            dur__pg_add_json(&json, dur__pg_row_json(&row));
            dur__pg_add_text(&written, dur__pg_row_written(&row));
        }
    }
    dur__buf_free(&row.json);
    bool any = id.count > 0;
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &instance);
    dur__pg_array_arg(&args, &execution);
    dur__pg_array_arg(&args, &id);
    dur__pg_array_arg(&args, &events);
    dur__pg_array_arg(&args, &json);
    dur__pg_array_arg(&args, &written);
    if (any)
        dur__pg_batch_add(batch, rows_sql, &args);
    else
        dur__pg_args_free(&args);
}

/* The others, one by one. */
static void send_events(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    dur__pg_args args;
    dur__pg_array instance = dur__pg_array_text(), execution = dur__pg_array_i64(), id = dur__pg_array_i64();
    dur__pg_array json = dur__pg_array_text();
    for (size_t i = 0; i < count; i++) {
        if (!dur__pg_turn_writes(turns[i]) || dur__pg_events_are_new(turns[i])) continue;
        for (size_t k = 0; k < turns[i]->event_count; k++) {
            dur__pg_add_text(&instance, turns[i]->instance);
            dur__pg_add_i64(&execution, (int64_t)turns[i]->execution_id);
            dur__pg_add_i64(&id, (int64_t)turns[i]->events[k].event_id);
            dur__pg_add_json(&json, turns[i]->events[k].json);
        }
    }
    bool any = id.count > 0;
    dur__pg_args_begin(store, &args);
    dur__pg_array_arg(&args, &instance);
    dur__pg_array_arg(&args, &execution);
    dur__pg_array_arg(&args, &id);
    dur__pg_array_arg(&args, &json);
    if (any)
        dur__pg_batch_add(batch, events_sql, &args);
    else
        dur__pg_args_free(&args);
}

void dur__pg_send_history(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    send_rows(store, batch, turns, count, false);
    send_events(store, batch, turns, count);
}

void dur__pg_send_more_history(dur__pg *store, dur__pg_batch *batch, dur_turn_commit **turns, size_t count) {
    send_rows(store, batch, turns, count, true);
}
