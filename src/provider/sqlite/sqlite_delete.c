/*
 * sqlite_delete.c: deleting instances with everything of theirs, and pruning old executions.
 *
 * What can refuse a deletion is read before the first row goes.  The lease goes with the row, so that a turn in
 * progress cannot bring the instance back.
 */
#include "provider/dead_reason.h"
#include "provider/sqlite/sqlite_internal.h"
#include <stdlib.h>

enum { BULK_LIMIT = 1000 };

int dur__sq_tree_lives(dur__sq_txn *txn, uint64_t key, bool *lives, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    return dur__sq_has(txn->conn, DUR__SQ_TREE_LIVES, lives, err, "i", key);
}

void dur__sq_deleted_forget(dur__sq_file *file, const dur__sq_keys *keys) {
    DUR_ASSERT(dur__sq_leads(file));
    for (size_t i = 0; i < keys->count; i++)
        dur__sq_lease_drop(file, keys->list[i], true);
}

static int delete_rows(dur__sq_txn *txn, dur__sq_sql sql, uint64_t key, uint64_t *count, dur_error *err) {
    int code = dur__sq_run(txn->conn, sql, err, "i", key);
    if (code == DUR_OK && count != NULL) *count += (uint64_t)sqlite3_changes64(txn->conn->db);
    return code;
}

/* Starts that wait behind an instance are calls of others. */
static int calls_read(dur__sq_txn *txn, uint64_t key, dur__sq_rows *out, dur_error *err) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_QUEUE_CALLS, &row, err, "i", key);
    for (; code == DUR_OK && row != NULL; code = dur__sq_next(&row, err)) {
        dur_message_row *call = dur__sq_rows_add(out, 1, sizeof(*call));
        *call = (dur_message_row){ .kind = DUR_WORK_START_ORCHESTRATION,
                                   .instance = dur__sq_dup(out->arena, row, 0),
                                   .due_ms = dur__sq_u64(row, 1),
                                   .json = dur__sq_json(out->arena, row, 2),
                                   .handler = dur__sq_dup(out->arena, row, 3),
                                   .parent = dur__sq_dup(out->arena, row, 4) };
    }
    return code;
}

static int delete_one(dur__sq_txn *txn, uint64_t key, dur__sq_keys *deleted, dur_delete_result *out, dur_error *err) {
    const struct {
        dur__sq_sql sql;
        uint64_t *count;
    } steps[] = {
        { DUR__SQ_EXECUTIONS_DELETE, &out->executions },
        { DUR__SQ_QUEUE_DELETE_KEY, &out->queue_messages },
        { DUR__SQ_WORK_DELETE_KEY, &out->queue_messages },
        { DUR__SQ_KV_DELETE, NULL },
        { DUR__SQ_KV_DELTA_EMPTY, NULL },
        { DUR__SQ_MESSAGE_IDS_DELETE, NULL },
        { DUR__SQ_CRASH_BY_KEY, NULL },
    };
    sqlite3_stmt *row = NULL;
    dur__sq_lease_recheck(txn->file, key);
    dur__sq_keys_add(txn, deleted, key);
    txn->file->times.stale = true;
    int code =
        dur__sq_run(txn->conn, DUR__SQ_DEAD_QUEUES, err, "itii", key, DUR__DELETED, txn->now_ms, (uint64_t)INT64_MAX);
    if (code == DUR_OK) code = dur__sq_history_delete(txn, key, 0, INT64_MAX, &out->events, err);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && code == DUR_OK; i++)
        code = delete_rows(txn, steps[i].sql, key, steps[i].count, err);
    if (code == DUR_OK) code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_DELETE, &row, err, "i", key);
    if (row != NULL) {
        out->instances++;
        out->executions += dur__sq_u64(row, 0); /* the current one */
    }
    dur__sq_end(&row);
    return code;
}

/* The calls that waited behind it make an instance of their own. */
static int delete_key(dur__sq_txn *txn, uint64_t key, dur__sq_keys *deleted, dur_delete_result *out, dur_error *err) {
    dur__sq_rows kept = { .arena = txn->file->scratch }; /* dur_message_row */
    int code = calls_read(txn, key, &kept, err);
    if (code == DUR_OK) code = delete_one(txn, key, deleted, out, err);
    for (size_t i = 0; i < kept.count && code == DUR_OK; i++)
        code = dur__sq_enqueue(txn, (dur_message_row *)(void *)kept.data + i, 0, 0, err);
    if (code == DUR_OK) out->queue_messages -= kept.count;
    return code;
}

int dur__sq_delete_tree(dur__sq_txn *txn, uint64_t key, dur__sq_keys *deleted, dur_delete_result *out, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__sq_keys tree = { NULL, 0, 0 };
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_TREE, &row, err, "i", key);
    if (code == DUR_OK) code = dur__sq_keys_read(txn, &tree, row, err);
    for (size_t i = 0; i < tree.count && code == DUR_OK; i++)
        code = delete_key(txn, tree.list[i], deleted, out, err);
    return code == DUR_OK ? dur__sq_count_lost(txn, err) : code;
}

/* ---- delete ---- */

typedef struct delete_op {
    dur__sq_op op;
    const char *const *ids;
    const dur_meant *meant; /* NULL: whoever has the ids */
    size_t count;
    bool force;
    const dur_bulk_filter *filter;
    dur_delete_result result;
    dur__sq_keys deleted;
    dur__map known; /* those that are listed */
} delete_op;

static void delete_done(dur__sq_op *op, dur__sq_file *file) {
    delete_op *self = (delete_op *)(void *)op;
    dur__sq_deleted_forget(file, &self->deleted);
    if (self->deleted.count > 0) file->news.all = true; /* it may be already: somebody else wrote, too */
}

static int is_meant(dur__sq_txn *txn, uint64_t key, const dur_meant *meant, bool *yes, dur_error *err) {
    uint64_t start_id = 0;
    bool begun = false;
    *yes = true;
    if (meant->start_id == 0 && meant->birth == 0) return DUR_OK;
    if (meant->start_id == 0) return dur__sq_is_meant(txn, key, meant->birth, yes, err);
    int code = dur__sq_has(txn->conn, DUR__SQ_HISTORY_ANY, &begun, err, "i", key);
    if (code == DUR_OK) code = dur__sq_get(txn->conn, DUR__SQ_QUEUE_START, &start_id, 1, err, "i", key);
    *yes = !begun && start_id == meant->start_id;
    return code;
}

/* Whoever asks for the deletion has looked at them before. */
static int meant_compare(const delete_op *self, dur__sq_txn *txn, dur_error *err) {
    for (size_t i = 0; self->meant != NULL && i < self->count; i++) {
        uint64_t key = 0;
        bool yes = true;
        int code = dur__sq_key(txn, self->ids[i], false, &key, err);
        if (code == DUR_OK && key != 0) code = is_meant(txn, key, &self->meant[i], &yes, err);
        if (code == DUR_OK && !yes)
            code = dur_error_set(err, DUR_ECONFLICT, false, "sqlite.delete",
                                 "instance \"%s\" is another one, or has begun", self->ids[i]);
        if (code != DUR_OK) return code;
    }
    return DUR_OK;
}

/* Those that may be deleted: each once, also by number.  Reads only. */
static int delete_list(delete_op *self, dur__sq_txn *txn, dur__sq_keys *listed) {
    dur_error *err = &self->op.err;
    for (size_t i = 0; i < self->count; i++) {
        dur__sq_state state;
        int code = dur__sq_state_of(txn, self->ids[i], &state, err);
        if (code == DUR_OK && !state.exists)
            code = dur_error_set(err, DUR_ENOTFOUND, false, "sqlite.delete", "instance \"%s\" not found", self->ids[i]);
        if (code == DUR_OK && state.running && !self->force)
            code = dur_error_set(err, DUR_ERUNNING, false, "sqlite.delete", "instance \"%s\" is running", self->ids[i]);
        if (code != DUR_OK) return code;
        if (dur__map_get_u64(&self->known, state.key) != NULL) continue;
        dur__map_put_u64(&self->known, state.key, self);
        dur__sq_keys_add(txn, listed, state.key);
    }
    return DUR_OK;
}

/* Nobody loses his parent. */
static int children_check(delete_op *self, dur__sq_txn *txn) {
    int code = DUR_OK;
    for (size_t i = 0; i < self->count && code == DUR_OK; i++) {
        sqlite3_stmt *row = NULL;
        code = dur__sq_first(txn->conn, DUR__SQ_CHILDREN, &row, &self->op.err, "t", self->ids[i]);
        while (code == DUR_OK && row != NULL && dur__map_get_u64(&self->known, dur__sq_u64(row, 0)) != NULL)
            code = dur__sq_next(&row, &self->op.err);
        if (code == DUR_OK && row != NULL)
            code = dur_error_set(&self->op.err, DUR_ECHILD, false, "sqlite.delete",
                                 "instance \"%s\" has a child that is not listed: \"%s\"", self->ids[i],
                                 dur__sq_text(row, 1));
        dur__sq_end(&row);
    }
    return code;
}

static int delete_run(dur__sq_op *op, dur__sq_txn *txn) {
    delete_op *self = (delete_op *)(void *)op;
    dur__sq_keys listed = { NULL, 0, 0 };
    dur__map_free(&self->known);
    self->known = (dur__map){ 0 };
    self->result = (dur_delete_result){ 0 };
    self->deleted = (dur__sq_keys){ 0 };
    int code = delete_list(self, txn, &listed);
    if (code == DUR_OK) code = children_check(self, txn);
    if (code == DUR_OK) code = meant_compare(self, txn, &op->err);
    for (size_t i = 0; i < listed.count && code == DUR_OK; i++)
        code = delete_key(txn, listed.list[i], &self->deleted, &self->result, &op->err);
    if (code == DUR_OK && listed.count > 0) code = dur__sq_count_lost(txn, &op->err);
    return code;
}

int dur__sq_delete_instances(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count,
                             bool force, dur_delete_result *out, dur_error *err) {
    delete_op op = {
        .op = { .run = delete_run, .done = delete_done }, .ids = ids, .meant = meant, .count = count, .force = force
    };
    int code = dur__sq_submit(dur__sq_file_of(self), &op.op, err);
    *out = code == DUR_OK ? op.result : (dur_delete_result){ 0 };
    dur__map_free(&op.known);
    return code;
}

/* ---- bulk ---- */

/* Its tree, if it is a root that matches, and all of it has ended. */
static int delete_ended(delete_op *self, dur__sq_txn *txn, uint64_t key, size_t *done) {
    bool match = false, lives = false;
    int code = dur__sq_has(txn->conn, DUR__SQ_ENDED_BEFORE, &match, &self->op.err, "iii", key,
                           self->filter->completed_before_ms, (uint64_t)1);
    if (code == DUR_OK && match) code = dur__sq_tree_lives(txn, key, &lives, &self->op.err);
    if (code != DUR_OK || !match || lives) return code;
    ++*done;
    return dur__sq_delete_tree(txn, key, &self->deleted, &self->result, &self->op.err);
}

/* Roots by the index of ends, behind the one that was read last: a call costs what it deletes. */
typedef struct roots_page {
    dur__sq_keys keys;
    uint64_t ended, key;
} roots_page;

static int next_roots(dur__sq_txn *txn, uint64_t before_ms, size_t count, roots_page *page, dur_error *err) {
    sqlite3_stmt *row = NULL;
    page->keys.count = 0;
    int code = dur__sq_first(txn->conn, DUR__SQ_BULK_ROOTS, &row, err, "iiii", page->ended, page->key,
                             before_ms > 0 ? before_ms : (uint64_t)INT64_MAX, (uint64_t)count);
    for (; code == DUR_OK && row != NULL; code = dur__sq_next(&row, err)) {
        page->key = dur__sq_u64(row, 0);
        page->ended = dur__sq_u64(row, 1);
        dur__sq_keys_add(txn, &page->keys, page->key);
    }
    return code;
}

static int delete_oldest(delete_op *self, dur__sq_txn *txn, size_t limit) {
    enum { PAGE = 256 };
    uint64_t before_ms = self->filter->completed_before_ms;
    roots_page page = { .key = before_ms > 0 ? (uint64_t)INT64_MAX : 0 }; /* ended at 0: nobody knows when */
    size_t done = 0;
    int code = DUR_OK;
    do {
        code = next_roots(txn, before_ms, PAGE, &page, &self->op.err);
        for (size_t i = 0; i < page.keys.count && code == DUR_OK && done < limit; i++)
            code = delete_ended(self, txn, page.keys.list[i], &done);
    } while (code == DUR_OK && done < limit && page.keys.count > 0);
    return code;
}

static int delete_bulk_run(dur__sq_op *op, dur__sq_txn *txn) {
    delete_op *self = (delete_op *)(void *)op;
    const dur_bulk_filter *filter = self->filter;
    size_t limit = filter->limit > 0 ? filter->limit : BULK_LIMIT, done = 0;
    self->result = (dur_delete_result){ 0 };
    self->deleted = (dur__sq_keys){ 0 };
    if (filter->instance_ids == NULL) return delete_oldest(self, txn, limit);
    int code = DUR_OK;
    for (size_t i = 0; i < filter->instance_id_count && code == DUR_OK && done < limit; i++) {
        uint64_t key = 0;
        code = dur__sq_key(txn, filter->instance_ids[i], false, &key, &op->err);
        if (code == DUR_OK) code = delete_ended(self, txn, key, &done);
    }
    return code;
}

int dur__sq_delete_instances_bulk(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out,
                                  dur_error *err) {
    delete_op op = { .op = { .run = delete_bulk_run, .done = delete_done }, .filter = filter };
    int code = dur__sq_submit(dur__sq_file_of(self), &op.op, err);
    *out = code == DUR_OK ? op.result : (dur_delete_result){ 0 };
    return code;
}

/* ---- prune ---- */

typedef struct prune_op {
    dur__sq_op op;
    const char *instance;
    const dur_bulk_filter *filter;
    const dur_prune_options *options;
    dur_prune_result result;
} prune_op;

static int execution_delete(prune_op *self, dur__sq_txn *txn, uint64_t key, uint64_t execution) {
    int code = dur__sq_history_delete(txn, key, execution, execution, &self->result.events_deleted, &self->op.err);
    if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_EXECUTION_DELETE, &self->op.err, "ii", key, execution);
    self->result.executions_deleted++;
    return code;
}

static int prune_key(prune_op *self, dur__sq_txn *txn, uint64_t key) {
    const dur_prune_options *options = self->options;
    dur_error *err = &self->op.err;
    sqlite3_stmt *row = NULL;
    uint64_t current = 0, rank = 0, keep = options->keep_last > 1 ? options->keep_last : 1;
    dur__sq_keys old = { NULL, 0, 0 }; /* numbers of executions */
    self->result.instances_processed++;
    int code = dur__sq_get(txn->conn, DUR__SQ_EXECUTION, &current, 1, err, "i", key);
    if (code == DUR_OK) code = dur__sq_first(txn->conn, DUR__SQ_EXECUTION_OLD, &row, err, "i", key);
    for (; code == DUR_OK && row != NULL; code = dur__sq_next(&row, err)) { /* newest first */
        uint64_t execution = dur__sq_u64(row, 0), status = dur__sq_u64(row, 1), completed = dur__sq_u64(row, 2);
        rank++;
        if (execution == current || status == DUR_STATUS_RUNNING) continue;
        if (options->has_keep_last && rank <= keep) continue;
        if (options->completed_before_ms != 0 && (completed == 0 || completed >= options->completed_before_ms))
            continue;
        dur__sq_keys_add(txn, &old, execution);
    }
    for (size_t i = 0; i < old.count && code == DUR_OK; i++)
        code = execution_delete(self, txn, key, old.list[i]);
    return code;
}

static int prune_run(dur__sq_op *op, dur__sq_txn *txn) {
    prune_op *self = (prune_op *)(void *)op;
    dur__sq_state state;
    self->result = (dur_prune_result){ 0 };
    int code = dur__sq_state_of(txn, self->instance, &state, &op->err);
    if (code == DUR_OK && (!state.exists || state.execution == 0))
        code =
            dur_error_set(&op->err, DUR_ENOTFOUND, false, "sqlite.prune", "instance \"%s\" not found", self->instance);
    return code == DUR_OK ? prune_key(self, txn, state.key) : code;
}

/* Instances that the filter names, oldest first. */
static int filter_keys(dur__sq_txn *txn, const dur_bulk_filter *filter, dur__sq_keys *keys, dur_error *err) {
    sqlite3_stmt *row = NULL;
    int code = DUR_OK;
    if (filter->instance_ids == NULL) {
        code = dur__sq_first(txn->conn, DUR__SQ_BULK_ALL, &row, err, "");
        return code == DUR_OK ? dur__sq_keys_read(txn, keys, row, err) : code;
    }
    for (size_t i = 0; i < filter->instance_id_count && code == DUR_OK; i++) {
        uint64_t key = 0;
        code = dur__sq_key(txn, filter->instance_ids[i], false, &key, err);
        dur__sq_keys_add(txn, keys, key);
    }
    return code;
}

static int prune_bulk_run(dur__sq_op *op, dur__sq_txn *txn) {
    prune_op *self = (prune_op *)(void *)op;
    dur__sq_keys keys = { NULL, 0, 0 };
    size_t limit = self->filter->limit > 0 ? self->filter->limit : BULK_LIMIT;
    self->result = (dur_prune_result){ 0 };
    int code = filter_keys(txn, self->filter, &keys, &op->err);
    for (size_t i = 0, touched = 0; i < keys.count && code == DUR_OK && touched < limit; i++) {
        uint64_t before = self->result.executions_deleted;
        bool match = false;
        code = dur__sq_has(txn->conn, DUR__SQ_ENDED_BEFORE, &match, &op->err, "iii", keys.list[i],
                           self->filter->completed_before_ms, (uint64_t)0);
        if (code == DUR_OK && match) code = prune_key(self, txn, keys.list[i]);
        touched += self->result.executions_deleted > before; /* what has nothing to prune does not use the limit up */
    }
    return code;
}

int dur__sq_prune_executions(dur_provider *self, const char *instance, const dur_prune_options *options,
                             dur_prune_result *out, dur_error *err) {
    prune_op op = { .op = { .run = prune_run }, .instance = instance, .options = options };
    int code = dur__sq_submit(dur__sq_file_of(self), &op.op, err);
    *out = code == DUR_OK ? op.result : (dur_prune_result){ 0 };
    return code;
}

int dur__sq_prune_executions_bulk(dur_provider *self, const dur_bulk_filter *filter, const dur_prune_options *options,
                                  dur_prune_result *out, dur_error *err) {
    prune_op op = { .op = { .run = prune_bulk_run }, .filter = filter, .options = options };
    int code = dur__sq_submit(dur__sq_file_of(self), &op.op, err);
    *out = code == DUR_OK ? op.result : (dur_prune_result){ 0 };
    return code;
}
