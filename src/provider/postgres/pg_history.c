/*
 * pg_history.c: history: the events of a turn are one row, a block that core packs and unpacks (core/block.h).
 *
 * A row stays below the size at which the server would compress it and move it out of the table.
 */
#include "core/block.h"
#include "provider/postgres/pg_pieces.h"
#include "provider/postgres/pg_turn.h"

#define BLOCK_BYTES_MAX 1900u

static const char blocks_sql[] =
    "INSERT INTO @history (instance_id, execution_id, first_id, count, open, at_ms, block) SELECT unnest($2::text[]),"
    " unnest($3::bigint[]), unnest($4::bigint[]), unnest($5::bigint[]), unnest($6::bigint[]), #now, unnest($7::text[])";
/* Where a row has the event already, the insert is of that row's key, and refused.  Nobody says what is open: as much
   as before. */
static const char events_sql[] =
    "INSERT INTO @history (instance_id, execution_id, first_id, count, open, at_ms, block) SELECT e.instance,"
    " e.execution, " DUR__PG_NEW_EVENT_ID ", e.count, CASE WHEN e.open >= 0 THEN e.open ELSE coalesce((SELECT h.open"
    " FROM @history h WHERE h.instance_id = e.instance AND h.execution_id = e.execution ORDER BY h.first_id DESC LIMIT"
    " 1), 0) END, #now, e.block FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],"
    " $7::text[]) AS e(instance, execution, id, count, open, block)";

bool dur__pg_events_are_new(const dur_turn_commit *turn) {
    if (turn->expected_last == DUR_NOT_COMPARED) return false;
    uint64_t last = turn->expected_last;
    for (size_t i = 0; i < turn->event_count; last = turn->events[i++].event_id)
        if (turn->events[i].event_id <= last) return false;
    return true;
}

#define BLOCK_TYPES "tiiiit"

/* As many of these events as go into one row; a reader learns from the last row what is open. */
static size_t put_block(dur__pg_table *rows, const char *instance, uint64_t execution_id, const dur_event_row *events,
                        size_t count, int64_t open, dur__buf *room) {
    dur__buf_clear(room);
    size_t some = dur__block_pack(room, instance, execution_id, events, count, BLOCK_BYTES_MAX);
    dur__pg_put_text(rows, instance);
    dur__pg_put_id(rows, execution_id);
    dur__pg_put_id(rows, events[0].event_id);
    dur__pg_put_id(rows, some);
    dur__pg_put_i64(rows, some == count ? open : 0);
    dur__pg_put_json(rows, (dur_text){ room->data, room->size });
    return some;
}

/* New: behind a comparison that says that they are; the others come one by one, so that each meets its own row. */
static void send_blocks(dur__pg_batch *batch, const dur__pg_parts *parts, bool new) {
    dur__pg_table rows = dur__pg_table_of(BLOCK_TYPES);
    dur__buf room = { 0 };
    for (size_t i = 0; i < parts->count; i++) {
        const dur_turn_commit *turn = parts->all[i].turn;
        if (!parts->all[i].facts.writes || dur__pg_events_are_new(turn) != new) continue;
        for (size_t k = 0; k < turn->event_count;)
            k += put_block(&rows, turn->instance, turn->execution_id, &turn->events[k], new ? turn->event_count - k : 1,
                           (int64_t)turn->open, &room);
    }
    dur__buf_free(&room);
    dur__pg_batch_add_rows(batch, new ? blocks_sql : events_sql, &rows);
}

void dur__pg_send_events(dur__pg_batch *batch, const char *instance, uint64_t execution_id, const dur_event_row *events,
                         size_t count) {
    dur__pg_table rows = dur__pg_table_of(BLOCK_TYPES);
    dur__buf room = { 0 };
    for (size_t i = 0; i < count; i++)
        (void)put_block(&rows, instance, execution_id, &events[i], 1, -1, &room);
    dur__buf_free(&room);
    dur__pg_batch_add_rows(batch, events_sql, &rows);
}

void dur__pg_send_history(dur__pg_batch *batch, const dur__pg_parts *parts) {
    send_blocks(batch, parts, true);
    send_blocks(batch, parts, false);
}

dur_event_row *dur__pg_read_blocks(const PGresult *rows, int from, int count, int column, const char *instance,
                                   dur_arena *arena, size_t *events) {
    dur__block *blocks = dur_arena_alloc(arena, ((size_t)count + 1) * sizeof(*blocks));
    size_t at = 0;
    *events = 0;
    for (int i = 0; i < count; i++) {
        blocks[i] = (dur__block){ .instance = instance,
                                  .execution_id = dur__pg_get_u64(rows, from + i, column),
                                  .first_id = dur__pg_get_u64(rows, from + i, column + 1),
                                  .count = dur__pg_get_u64(rows, from + i, column + 2),
                                  .bytes = { PQgetvalue(rows, from + i, column + 3),
                                             (size_t)PQgetlength(rows, from + i, column + 3) } };
        *events += dur__block_events(&blocks[i]);
    }
    dur_event_row *out = count > 0 ? dur_arena_alloc(arena, *events * sizeof(*out)) : NULL;
    for (int i = 0; i < count; at += dur__block_events(&blocks[i++]))
        dur__block_unpack(out + at, arena, &blocks[i]); /* damaged: whoever decodes it says so */
    return out;
}
