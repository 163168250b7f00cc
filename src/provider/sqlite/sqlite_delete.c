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

/* Each once. */
typedef struct id_list {
    char **ids;
    size_t count, room;
    dur__map listed;
} id_list;

static bool ids_have(const id_list *list, const char *id) {
    return dur__map_get(&list->listed, id) != NULL;
}

static void ids_add(id_list *list, const char *id) {
    if (ids_have(list, id)) return;
    if (list->count == list->room) {
        list->room = list->room == 0 ? 16 : list->room * 2;
        list->ids = dur__xrealloc(list->ids, list->room * sizeof(*list->ids));
    }
    list->ids[list->count] = dur__xstrdup(id);
    dur__map_put(&list->listed, list->ids[list->count], list->ids[list->count]);
    list->count++;
}

static void ids_free(id_list *list) {
    for (size_t i = 0; i < list->count; i++)
        dur__free(list->ids[i]);
    dur__free(list->ids);
    dur__map_free(&list->listed);
    *list = (id_list){ 0 };
}

static int ids_query(dur__sq_txn *txn, dur__sq_sql sql, id_list *list, dur_error *err, const char *parent) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, sql, &row, err, "t", parent);
    while (code == DUR_OK && row != NULL) {
        ids_add(list, dur__sq_text(row, 0));
        code = dur__sq_next(&row, err);
    }
    return code;
}

/* The instance and all below it. */
static int tree_of(dur__sq_txn *txn, const char *root, id_list *list, dur_error *err) {
    int code = DUR_OK;
    size_t at = list->count;
    ids_add(list, root);
    for (; at < list->count && code == DUR_OK; at++)
        code = ids_query(txn, DUR__SQ_CHILDREN, list, err, list->ids[at]);
    return code;
}

/* Still to run: a continued one counts while its next execution waits. */
static int is_running(dur__sq_txn *txn, uint64_t key, bool *running, dur_error *err) {
    sqlite3_stmt *row = NULL;
    *running = false;
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_BY_KEY, &row, err, "i", key);
    if (code != DUR_OK || row == NULL) return code;
    uint64_t status = dur__sq_u64(row, 5);
    dur__sq_end(&row);
    *running = status == DUR_STATUS_NONE || status == DUR_STATUS_RUNNING;
    if (*running) return DUR_OK;
    code = dur__sq_first(txn->conn, DUR__SQ_QUEUE_START, &row, err, "i", key);
    *running = row != NULL;
    dur__sq_end(&row);
    return code;
}

int dur__sq_tree_finished(dur__sq_txn *txn, const char *instance, bool *finished, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    id_list list = { 0 };
    *finished = true;
    int code = tree_of(txn, instance, &list, err);
    for (size_t i = 0; i < list.count && code == DUR_OK && *finished; i++) {
        uint64_t key = 0, execution = 0;
        bool exists = false, ended = false, running = false;
        code = dur__sq_key(txn, list.ids[i], false, &key, err);
        if (code == DUR_OK) code = dur__sq_exists(txn, key, &exists, &ended, &execution, err);
        if (code == DUR_OK) code = is_running(txn, key, &running, err);
        *finished = ended && !running;
    }
    ids_free(&list);
    return code;
}

static void deleted_add(dur__sq_delete_list *list, uint64_t key) {
    if (list->count == list->room) {
        list->room = list->room == 0 ? 16 : list->room * 2;
        list->keys = dur__xrealloc(list->keys, list->room * sizeof(*list->keys));
    }
    list->keys[list->count++] = key;
}

void dur__sq_deleted_forget(dur__sq_file *file, const dur__sq_delete_list *list) {
    DUR_ASSERT(dur__sq_leads(file));
    for (size_t i = 0; i < list->count; i++)
        dur__sq_lease_drop(file, list->keys[i], true);
}

static int delete_rows(dur__sq_txn *txn, dur__sq_sql sql, uint64_t key, uint64_t *count, dur_error *err) {
    int code = dur__sq_run(txn->conn, sql, err, "i", key);
    if (code == DUR_OK && count != NULL) *count += (uint64_t)sqlite3_changes64(txn->conn->db);
    return code;
}

/* Starts that wait behind an instance are calls of others. */
typedef struct calls {
    dur_arena *arena;
    dur_message_row *items;
    size_t count, room;
} calls;

static int calls_read(dur__sq_txn *txn, uint64_t key, calls *out, dur_error *err) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_QUEUE_CALLS, &row, err, "i", key);
    for (; code == DUR_OK && row != NULL; code = dur__sq_next(&row, err)) {
        if (out->count == out->room) {
            out->room = out->room == 0 ? 4 : out->room * 2;
            out->items = dur__xrealloc(out->items, out->room * sizeof(*out->items));
        }
        out->items[out->count++] = (dur_message_row){ .kind = DUR_WORK_START_ORCHESTRATION,
                                                      .instance = dur__sq_dup(out->arena, row, 0),
                                                      .due_ms = dur__sq_u64(row, 1),
                                                      .json = dur__sq_json(out->arena, row, 2),
                                                      .handler = dur__sq_dup(out->arena, row, 3),
                                                      .parent = dur__sq_dup(out->arena, row, 4) };
    }
    return code;
}

static int delete_one(dur__sq_txn *txn, uint64_t key, dur__sq_delete_list *deleted, dur_delete_result *out,
                      dur_error *err) {
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
    deleted_add(deleted, key);
    txn->file->times.stale = true;
    int code = dur__sq_run(txn->conn, DUR__SQ_DEAD_DELETED, err, "iti", key, DUR__DELETED, txn->now_ms);
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
static int delete_key(dur__sq_txn *txn, uint64_t key, dur__sq_delete_list *deleted, dur_delete_result *out,
                      dur_error *err) {
    calls kept = { .arena = dur_arena_new() };
    int code = calls_read(txn, key, &kept, err);
    if (code == DUR_OK) code = delete_one(txn, key, deleted, out, err);
    for (size_t i = 0; i < kept.count && code == DUR_OK; i++)
        code = dur__sq_enqueue(txn, &kept.items[i], 0, 0, err);
    if (code == DUR_OK) out->queue_messages -= kept.count;
    dur__free(kept.items);
    dur_arena_free(kept.arena);
    return code;
}

int dur__sq_delete_tree(dur__sq_txn *txn, const char *instance, dur__sq_delete_list *deleted, dur_delete_result *out,
                        dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    id_list list = { 0 };
    int code = tree_of(txn, instance, &list, err);
    for (size_t i = 0; i < list.count && code == DUR_OK; i++) {
        uint64_t key = 0;
        code = dur__sq_key(txn, list.ids[i], false, &key, err);
        if (code == DUR_OK && key != 0) code = delete_key(txn, key, deleted, out, err);
    }
    ids_free(&list);
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
    dur__sq_delete_list deleted;
} delete_op;

static void delete_done(dur__sq_op *op, dur__sq_file *file) {
    delete_op *self = (delete_op *)(void *)op;
    dur__sq_deleted_forget(file, &self->deleted);
    if (self->deleted.count > 0) file->news.all = true; /* it may be already: somebody else wrote, too */
}

static int is_meant(dur__sq_txn *txn, uint64_t key, const dur_meant *meant, bool *yes, dur_error *err) {
    sqlite3_stmt *row = NULL;
    *yes = true;
    if (meant->start_id == 0 && meant->birth == 0) return DUR_OK;
    if (meant->start_id == 0) return dur__sq_is_meant(txn, key, meant->birth, yes, err);
    int code = dur__sq_first(txn->conn, DUR__SQ_HISTORY_ANY, &row, err, "i", key);
    *yes = row == NULL;
    dur__sq_end(&row);
    if (code != DUR_OK || !*yes) return code;
    code = dur__sq_first(txn->conn, DUR__SQ_QUEUE_START, &row, err, "i", key);
    *yes = code == DUR_OK && row != NULL && dur__sq_u64(row, 3) == meant->start_id;
    dur__sq_end(&row);
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

/* May it be deleted?  Reads only. */
static int delete_check(delete_op *self, dur__sq_txn *txn, const id_list *listed, uint64_t *keys) {
    dur_error *err = &self->op.err;
    for (size_t i = 0; i < listed->count; i++) {
        bool exists = false, ended = false, running = false;
        uint64_t execution = 0;
        int code = dur__sq_key(txn, listed->ids[i], false, &keys[i], err);
        if (code == DUR_OK && keys[i] != 0) code = dur__sq_exists(txn, keys[i], &exists, &ended, &execution, err);
        if (code == DUR_OK && !exists)
            code =
                dur_error_set(err, DUR_ENOTFOUND, false, "sqlite.delete", "instance \"%s\" not found", listed->ids[i]);
        if (code == DUR_OK && !self->force) code = is_running(txn, keys[i], &running, err);
        if (code == DUR_OK && running)
            code =
                dur_error_set(err, DUR_ERUNNING, false, "sqlite.delete", "instance \"%s\" is running", listed->ids[i]);
        if (code != DUR_OK) return code;
    }
    for (size_t i = 0; i < listed->count; i++) {
        id_list children = { 0 };
        int code = ids_query(txn, DUR__SQ_CHILDREN, &children, err, listed->ids[i]);
        for (size_t k = 0; k < children.count && code == DUR_OK; k++)
            if (!ids_have(listed, children.ids[k]))
                code = dur_error_set(err, DUR_ECHILD, false, "sqlite.delete",
                                     "instance \"%s\" has a child that is not listed: \"%s\"", listed->ids[i],
                                     children.ids[k]);
        ids_free(&children);
        if (code != DUR_OK) return code;
    }
    return DUR_OK;
}

static int delete_run(dur__sq_op *op, dur__sq_txn *txn) {
    delete_op *self = (delete_op *)(void *)op;
    id_list listed = { 0 };
    self->result = (dur_delete_result){ 0 };
    self->deleted.count = 0;
    for (size_t i = 0; i < self->count; i++)
        ids_add(&listed, self->ids[i]);
    uint64_t *keys = dur__xcalloc(listed.count + 1, sizeof(*keys));
    int code = delete_check(self, txn, &listed, keys);
    if (code == DUR_OK) code = meant_compare(self, txn, &op->err);
    for (size_t i = 0; i < listed.count && code == DUR_OK; i++)
        code = delete_key(txn, keys[i], &self->deleted, &self->result, &op->err);
    if (code == DUR_OK && listed.count > 0) code = dur__sq_count_lost(txn, &op->err);
    dur__free(keys);
    ids_free(&listed);
    return code;
}

int dur__sq_delete_instances(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count,
                             bool force, dur_delete_result *out, dur_error *err) {
    delete_op op = {
        .op = { .run = delete_run, .done = delete_done }, .ids = ids, .meant = meant, .count = count, .force = force
    };
    int code = dur__sq_submit(dur__sq_file_of(self), &op.op, err);
    *out = code == DUR_OK ? op.result : (dur_delete_result){ 0 };
    dur__free(op.deleted.keys);
    return code;
}

/* ---- bulk ---- */

/* Key of an instance with a row that ended before the time (0: any); 0 otherwise. */
static int ended_before(dur__sq_txn *txn, const char *id, uint64_t before_ms, bool *root, uint64_t *key,
                        dur_error *err) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_key(txn, id, false, key, err);
    if (code != DUR_OK || *key == 0) return code;
    code = dur__sq_first(txn->conn, DUR__SQ_ENDED, &row, err, "i", *key);
    bool match = code == DUR_OK && row != NULL;
    if (match && before_ms != 0) match = dur__sq_u64(row, 1) != 0 && dur__sq_u64(row, 1) < before_ms;
    *root = row != NULL && dur__sq_is_null(row, 0);
    dur__sq_end(&row);
    if (!match) *key = 0;
    return code;
}

/* Its tree, if it is a root that matches, and all of it has finished. */
static int delete_finished(delete_op *self, dur__sq_txn *txn, const char *id, size_t *done) {
    uint64_t key = 0;
    bool root = false, finished = false;
    int code = ended_before(txn, id, self->filter->completed_before_ms, &root, &key, &self->op.err);
    if (code != DUR_OK || key == 0 || !root) return code;
    code = dur__sq_tree_finished(txn, id, &finished, &self->op.err);
    if (code != DUR_OK || !finished) return code;
    ++*done;
    return dur__sq_delete_tree(txn, id, &self->deleted, &self->result, &self->op.err);
}

/* Roots by the index of ends, behind the one that was read last: a call costs what it deletes. */
typedef struct roots_page {
    id_list list;
    uint64_t ended, key;
} roots_page;

static int next_roots(dur__sq_txn *txn, uint64_t before_ms, size_t count, roots_page *page, dur_error *err) {
    sqlite3_stmt *row = NULL;
    ids_free(&page->list);
    int code = dur__sq_first(txn->conn, DUR__SQ_BULK_ROOTS, &row, err, "iiii", page->ended, page->key,
                             before_ms > 0 ? before_ms : (uint64_t)INT64_MAX, (uint64_t)count);
    while (code == DUR_OK && row != NULL) {
        ids_add(&page->list, dur__sq_text(row, 0));
        page->ended = dur__sq_u64(row, 1);
        page->key = dur__sq_u64(row, 2);
        code = dur__sq_next(&row, err);
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
        for (size_t i = 0; i < page.list.count && code == DUR_OK && done < limit; i++)
            code = delete_finished(self, txn, page.list.ids[i], &done);
    } while (code == DUR_OK && done < limit && page.list.count > 0);
    ids_free(&page.list);
    return code;
}

static int delete_bulk_run(dur__sq_op *op, dur__sq_txn *txn) {
    delete_op *self = (delete_op *)(void *)op;
    const dur_bulk_filter *filter = self->filter;
    size_t limit = filter->limit > 0 ? filter->limit : BULK_LIMIT, done = 0;
    self->result = (dur_delete_result){ 0 };
    self->deleted.count = 0;
    if (filter->instance_ids == NULL) return delete_oldest(self, txn, limit);
    int code = DUR_OK;
    for (size_t i = 0; i < filter->instance_id_count && code == DUR_OK && done < limit; i++)
        code = delete_finished(self, txn, filter->instance_ids[i], &done);
    return code;
}

int dur__sq_delete_instances_bulk(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out,
                                  dur_error *err) {
    delete_op op = { .op = { .run = delete_bulk_run, .done = delete_done }, .filter = filter };
    int code = dur__sq_submit(dur__sq_file_of(self), &op.op, err);
    *out = code == DUR_OK ? op.result : (dur_delete_result){ 0 };
    dur__free(op.deleted.keys);
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
    size_t count = 0, room = 0;
    uint64_t *old = NULL;
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
        if (count == room) {
            room = room == 0 ? 16 : room * 2;
            old = dur__xrealloc(old, room * sizeof(*old));
        }
        old[count++] = execution;
    }
    for (size_t i = 0; i < count && code == DUR_OK; i++)
        code = execution_delete(self, txn, key, old[i]);
    dur__free(old);
    return code;
}

static int prune_run(dur__sq_op *op, dur__sq_txn *txn) {
    prune_op *self = (prune_op *)(void *)op;
    uint64_t key = 0, execution = 0;
    bool exists = false, ended = false;
    self->result = (dur_prune_result){ 0 };
    int code = dur__sq_key(txn, self->instance, false, &key, &op->err);
    if (code == DUR_OK && key != 0) code = dur__sq_exists(txn, key, &exists, &ended, &execution, &op->err);
    if (code == DUR_OK && (!exists || execution == 0))
        code =
            dur_error_set(&op->err, DUR_ENOTFOUND, false, "sqlite.prune", "instance \"%s\" not found", self->instance);
    return code == DUR_OK ? prune_key(self, txn, key) : code;
}

/* Instances with a row that the filter names, oldest first. */
static int filter_ids(dur__sq_txn *txn, const dur_bulk_filter *filter, id_list *list, dur_error *err) {
    sqlite3_stmt *row = NULL;
    if (filter->instance_ids != NULL) {
        for (size_t i = 0; i < filter->instance_id_count; i++)
            ids_add(list, filter->instance_ids[i]);
        return DUR_OK;
    }
    int code = dur__sq_first(txn->conn, DUR__SQ_BULK_ALL, &row, err, "");
    while (code == DUR_OK && row != NULL) {
        ids_add(list, dur__sq_text(row, 0));
        code = dur__sq_next(&row, err);
    }
    return code;
}

static int prune_bulk_run(dur__sq_op *op, dur__sq_txn *txn) {
    prune_op *self = (prune_op *)(void *)op;
    id_list list = { 0 };
    size_t limit = self->filter->limit > 0 ? self->filter->limit : BULK_LIMIT;
    self->result = (dur_prune_result){ 0 };
    int code = filter_ids(txn, self->filter, &list, &op->err);
    for (size_t i = 0, touched = 0; i < list.count && code == DUR_OK && touched < limit; i++) {
        uint64_t key = 0, before = self->result.executions_deleted;
        bool root;
        code = ended_before(txn, list.ids[i], self->filter->completed_before_ms, &root, &key, &op->err);
        if (code == DUR_OK && key != 0) code = prune_key(self, txn, key);
        touched += self->result.executions_deleted > before; /* what has nothing to prune does not use the limit up */
    }
    ids_free(&list);
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
