/*
 * sqlite_history.c: history: the events of a turn are one row, a block that core packs and unpacks (core/block.h).
 *
 * Blocks of an execution do not overlap, so the one that could hold an event is the one with the highest first id up
 * to it.  A lane's turn begins behind what its lease knows to be the last event, and nobody has to look.
 */
#include "core/block.h"
#include "provider/sqlite/sqlite_internal.h"
#include <stdlib.h>

/* A row stays far below what SQLite can hold, and a turn of thousands of events is still only a few rows. */
#define BLOCK_BYTES_MAX (64u * 1024)

/* Is one of `count` ids from `first` on in a row already? */
static int is_free(dur__sq_txn *txn, const dur__sq_history *to, uint64_t first, size_t count, dur_error *err) {
    uint64_t block[2]; /* its first and its last event; 0: none is there */
    int code =
        dur__sq_get(txn->conn, DUR__SQ_HISTORY_UP_TO, block, 2, err, "iii", to->key, to->execution, first + count - 1);
    if (code != DUR_OK || block[1] < first) return code;
    return dur_error_set(err, DUR_ECONFLICT, false, to->op, "event %llu exists already (duplicate)",
                         (unsigned long long)(block[0] > first ? block[0] : first));
}

int dur__sq_history_add(dur__sq_txn *txn, const dur__sq_history *to, const dur_event_row *events, size_t count,
                        dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__buf *block = &txn->file->block;
    uint64_t last = to->last;
    int code = DUR_OK;
    for (size_t at = 0, some = 0; at < count && code == DUR_OK; at += some) {
        uint64_t first = events[at].event_id;
        dur__buf_clear(block);
        some = dur__block_pack(block, to->instance, to->execution, &events[at], count - at, BLOCK_BYTES_MAX);
        if (last == DUR__SQ_LAST_UNKNOWN || first <= last) code = is_free(txn, to, first, some, err);
        if (code != DUR_OK) return code;
        if (last != DUR__SQ_LAST_UNKNOWN && first + some - 1 > last) last = first + some - 1;
        code = dur__sq_run(txn->conn, DUR__SQ_HISTORY_ADD, err, "iiiiiij", to->key, to->execution, first,
                           (uint64_t)some, txn->now_ms, to->open, &(dur_text){ block->data, block->size });
    }
    return code;
}

int dur__sq_history_delete(dur__sq_txn *txn, uint64_t key, uint64_t from, uint64_t to, uint64_t *events,
                           dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    uint64_t count = 0;
    int code = dur__sq_get(txn->conn, DUR__SQ_HISTORY_COUNT, &count, 1, err, "iii", key, from, to);
    *events += count;
    return code == DUR_OK ? dur__sq_run(txn->conn, DUR__SQ_HISTORY_DELETE, err, "iii", key, from, to) : code;
}

int dur__sq_read_history(dur__sq_conn *conn, dur_arena *arena, const char *instance, uint64_t key, uint64_t execution,
                         dur_event_row **out, size_t *count, dur_error *err) {
    dur__sq_rows list = { .arena = arena };
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(conn, DUR__SQ_HISTORY_READ, &row, err, "ii", key, execution);
    while (code == DUR_OK && row != NULL) {
        const char *bytes = dur__sq_text(row, 2);
        dur__block block = { .instance = instance,
                             .execution_id = execution,
                             .first_id = dur__sq_u64(row, 0),
                             .count = dur__sq_u64(row, 1),
                             .bytes = { bytes, bytes != NULL ? (size_t)sqlite3_column_bytes(row, 2) : 0 } };
        dur_event_row *rows = dur__sq_rows_add(&list, dur__block_events(&block), sizeof(*rows));
        dur__block_unpack(rows, arena, &block); /* damaged: whoever decodes it says so */
        code = dur__sq_next(&row, err);
    }
    *out = dur__sq_rows_take(&list, count);
    return code;
}
