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
    "INSERT INTO @history (instance_id, execution_id, event_id, events, open, at_ms, written, json) SELECT"
    " unnest($2::text[]), unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::bigint[]), unnest($6::bigint[]), #now,"
    " unnest($7::text[]), unnest($8::text[])";
static const char events_sql[] =
    "INSERT INTO @history (instance_id, execution_id, event_id, open, at_ms, json) SELECT e.instance, e.execution,"
    " " DUR__PG_NEW_EVENT_ID ", e.open, #now, e.json FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[],"
    " $6::text[]) AS e(instance, execution, id, open, json)";

/* The text of a row of history. */
typedef struct row_text {
    dur__buf json;
    char written[24 + DUR__PG_VERSION_MAX]; /* when, a space, by which version; "": the events are there in full */
} row_text;

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

static bool in_short(const dur_turn_commit *turn, const dur_event_row *events, size_t count, row_text *row) {
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

/* Of a row that begins with this event; how many there are in it. */
static size_t row_of_events(const dur_turn_commit *turn, size_t from, row_text *row) {
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

/* What is open is said beside the last of them: a reader goes by the last row. */
static int64_t open_behind(const dur_turn_commit *turn, size_t end) {
    return end == turn->event_count ? (int64_t)turn->open : 0;
}

/* Behind a comparison that says that they are new. */
static void send_rows(dur__pg_batch *batch, const dur__pg_parts *parts) {
    enum { INSTANCE, EXECUTION, ID, EVENTS, OPEN, WRITTEN, JSON, COLUMNS };
    dur__pg_args args;
    dur__pg_array columns[COLUMNS];
    row_text row = { .json = { NULL, 0, 0 } };
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = i >= EXECUTION && i <= OPEN ? dur__pg_array_i64() : dur__pg_array_text();
    for (size_t i = 0; i < parts->count; i++) {
        const dur_turn_commit *turn = parts->all[i].turn;
        if (!parts->all[i].facts.writes || !dur__pg_events_are_new(turn)) continue;
        for (size_t k = 0, some; k < turn->event_count; k += some) {
            some = row_of_events(turn, k, &row);
            dur__pg_add_text(&columns[INSTANCE], turn->instance);
            dur__pg_add_i64(&columns[EXECUTION], (int64_t)turn->execution_id);
            dur__pg_add_i64(&columns[ID], (int64_t)turn->events[k].event_id);
            dur__pg_add_i64(&columns[EVENTS], (int64_t)some);
            dur__pg_add_i64(&columns[OPEN], open_behind(turn, k + some));
            dur__pg_add_text(&columns[WRITTEN], row.written[0] != '\0' ? row.written : NULL);
            dur__pg_add_json(&columns[JSON], (dur_text){ row.json.data, row.json.size });
        }
    }
    dur__buf_free(&row.json);
    bool any = columns[ID].count > 0;
    dur__pg_args_begin(parts->store, &args);
    dur__pg_array_args(&args, columns, COLUMNS);
    if (any)
        dur__pg_batch_add(batch, rows_sql, &args);
    else
        dur__pg_args_free(&args);
}

/* The others, one by one. */
static void send_events(dur__pg_batch *batch, const dur__pg_parts *parts) {
    enum { INSTANCE, EXECUTION, ID, OPEN, JSON, COLUMNS };
    dur__pg_args args;
    dur__pg_array columns[COLUMNS] = { dur__pg_array_text(), dur__pg_array_i64(), dur__pg_array_i64(),
                                       dur__pg_array_i64(), dur__pg_array_text() };
    for (size_t i = 0; i < parts->count; i++) {
        const dur_turn_commit *turn = parts->all[i].turn;
        if (!parts->all[i].facts.writes || dur__pg_events_are_new(turn)) continue;
        for (size_t k = 0; k < turn->event_count; k++) {
            dur__pg_add_text(&columns[INSTANCE], turn->instance);
            dur__pg_add_i64(&columns[EXECUTION], (int64_t)turn->execution_id);
            dur__pg_add_i64(&columns[ID], (int64_t)turn->events[k].event_id);
            dur__pg_add_i64(&columns[OPEN], (int64_t)turn->open); /* whichever has the highest id */
            dur__pg_add_json(&columns[JSON], turn->events[k].json);
        }
    }
    bool any = columns[ID].count > 0;
    dur__pg_args_begin(parts->store, &args);
    dur__pg_array_args(&args, columns, COLUMNS);
    if (any)
        dur__pg_batch_add(batch, events_sql, &args);
    else
        dur__pg_args_free(&args);
}

void dur__pg_send_history(dur__pg_batch *batch, const dur__pg_parts *parts) {
    send_rows(batch, parts);
    send_events(batch, parts);
}
