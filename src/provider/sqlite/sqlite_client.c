/*
 * sqlite_client.c: what clients write: starts, messages, raw history, dead letters, suspension.
 */
#include "provider/sqlite/sqlite_internal.h"
#include <stdlib.h>

/* A start. */
typedef struct start_op {
    dur__sq_op op;
    const dur_message_row *item;
    dur_exists_policy policy;
    uint64_t delay_ms;
    bool existed;
    dur__sq_keys deleted; /* their leases end after COMMIT */
} start_op;

typedef struct client_op {
    dur__sq_op op;
    const dur_message_row *item;
    const char *instance;
    uint64_t delay_ms;
    bool existed;
    bool asks; /* a lane has it, which is to give it up */
    uint64_t key;
    uint64_t execution;
    const dur_event_row *events;
    const uint64_t *ids;
    size_t count;
    const char *reason;
} client_op;

static int not_found(dur_error *err, const char *instance) {
    return dur_error_set(err, DUR_ENOTFOUND, false, "sqlite", "instance \"%s\" not found", instance);
}

/* ---- enqueue ---- */

static int enqueue_run(dur__sq_op *op, dur__sq_txn *txn) {
    client_op *self = (client_op *)(void *)op;
    return dur__sq_enqueue(txn, self->item, self->delay_ms, 0, &op->err);
}

int dur__sq_enqueue_for_orchestrator(dur_provider *self, const dur_message_row *item, uint64_t delay_ms,
                                     dur_error *err) {
    client_op op = { .op = { .run = enqueue_run }, .item = item, .delay_ms = delay_ms };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

/* Put a start into the queue, as the policy says.  Also inside a caller's own transaction. */
int dur__sq_start(dur__sq_txn *txn, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms,
                  bool *existed, dur__sq_keys *deleted, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__sq_state state;
    bool lives = false, made = false;
    *existed = false;
    int code = dur__sq_enqueue_new(txn, item, delay_ms, &made, err);
    if (code != DUR_OK || made) return code;
    code = dur__sq_state_of(txn, item->instance, &state, err);
    if (code != DUR_OK) return code;
    *existed = state.exists;
    if (*existed && policy == DUR_EXISTS_RETURN) return DUR_OK;
    if (*existed && policy == DUR_EXISTS_REPLACE_FINISHED) {
        code = dur__sq_tree_lives(txn, state.key, &lives, err);
        if (code != DUR_OK) return code;
        if (lives)
            return dur_error_set(err, DUR_EEXISTS, false, "sqlite.start", "instance \"%s\" exists and is running",
                                 item->instance);
        dur_delete_result ignored = { 0 };
        code = dur__sq_delete_tree(txn, state.key, deleted, &ignored, err);
        state.key = 0;
    } else if (*existed)
        return dur_error_set(err, DUR_EEXISTS, false, "sqlite.start", "instance \"%s\" already exists", item->instance);
    return code == DUR_OK ? dur__sq_enqueue(txn, item, delay_ms, state.key, err) : code;
}

static int start_run(dur__sq_op *op, dur__sq_txn *txn) {
    start_op *self = (start_op *)(void *)op;
    self->deleted = (dur__sq_keys){ 0 };
    return dur__sq_start(txn, self->item, self->policy, self->delay_ms, &self->existed, &self->deleted, &op->err);
}

static void start_done(dur__sq_op *op, dur__sq_file *file) {
    start_op *self = (start_op *)(void *)op;
    dur__sq_deleted_forget(file, &self->deleted);
    dur__sq_changed(file, self->item->instance);
}

static void start_init(start_op *op, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms) {
    *op = (start_op){
        .op = { .run = start_run, .done = start_done }, .item = item, .policy = policy, .delay_ms = delay_ms
    };
}

int dur__sq_enqueue_start(dur_provider *self, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms,
                          bool *existed, dur_error *err) {
    start_op op;
    start_init(&op, item, policy, delay_ms);
    int code = dur__sq_submit(dur__sq_file_of(self), &op.op, err);
    *existed = op.existed;
    return code;
}

int dur__sq_enqueue_starts(dur_provider *self, dur_start_request *starts, size_t count, dur_error *err) {
    start_op *ops = dur__get(count * sizeof(*ops));
    dur__sq_op **list = dur__get(count * sizeof(dur__sq_op *));
    if (ops == NULL || list == NULL) {
        dur__free(ops);
        dur__free(list);
        return DUR__NO_MEMORY(err, "sqlite.start");
    }
    for (size_t i = 0; i < count; i++) {
        start_init(&ops[i], starts[i].item, starts[i].policy, starts[i].delay_ms);
        list[i] = &ops[i].op;
    }
    int code = dur__sq_submit_all(dur__sq_file_of(self), list, count, err);
    for (size_t i = 0; i < count; i++) {
        starts[i].existed = ops[i].existed;
        starts[i].error = ops[i].op.err;
    }
    dur__free(list);
    dur__free(ops);
    return code;
}

int dur__sq_message(dur__sq_txn *txn, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__sq_state state;
    int code = dur__sq_state_of(txn, item->instance, &state, err);
    if (code != DUR_OK) return code;
    if (!state.exists) return not_found(err, item->instance);
    if (item->message_id != NULL) {
        bool known = false;
        code = dur__sq_has(txn->conn, DUR__SQ_MESSAGE_ID_GET, &known, err, "it", state.key, item->message_id);
        if (code == DUR_OK && known)
            code = dur_error_set(err, DUR_EDUPLICATE, false, "sqlite.enqueue", "message \"%s\" was accepted before",
                                 item->message_id);
        if (code != DUR_OK) return code;
    }
    if (state.ended && item->kind == DUR_WORK_QUEUE_MESSAGE)
        return dur_error_set(err, DUR_ESTATE, false, "sqlite.enqueue", "instance \"%s\" has ended", item->instance);
    if (item->message_id != NULL)
        code = dur__sq_run(txn->conn, DUR__SQ_MESSAGE_ID_ADD, err, "itii", state.key, item->message_id,
                           state.execution > 0 ? state.execution : (uint64_t)1, txn->now_ms);
    return code == DUR_OK ? dur__sq_enqueue(txn, item, delay_ms, state.key, err) : code;
}

static int existing_run(dur__sq_op *op, dur__sq_txn *txn) {
    client_op *self = (client_op *)(void *)op;
    return dur__sq_message(txn, self->item, self->delay_ms, &op->err);
}

int dur__sq_enqueue_existing(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    client_op op = { .op = { .run = existing_run }, .item = item, .delay_ms = delay_ms };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

/* ---- append ---- */

static int append_execution(client_op *self, dur__sq_txn *txn, uint64_t current) {
    dur_error *err = &self->op.err;
    if (self->execution < current)
        return dur__sq_run(txn->conn, DUR__SQ_EXECUTION_MAKE, err, "iiin", self->key, self->execution, txn->now_ms);
    if (self->execution == current)
        return dur__sq_run(txn->conn, DUR__SQ_EXECUTION_BEGIN, err, "ii", self->key, txn->now_ms);
    int code = dur__sq_run(txn->conn, DUR__SQ_EXECUTION_KEEP, err, "i", self->key);
    if (code != DUR_OK) return code;
    return dur__sq_run(txn->conn, DUR__SQ_EXECUTION_NEXT, err, "iii", self->key, self->execution, txn->now_ms);
}

static int append_run(dur__sq_op *op, dur__sq_txn *txn) {
    client_op *self = (client_op *)(void *)op;
    enum { LAST, AT, OPEN, COLUMNS };
    uint64_t current = 0, before[COLUMNS] = { 0 };
    if (self->count == 0) return DUR_OK;
    int code = dur__sq_key(txn, self->instance, true, &self->key, &op->err);
    if (code == DUR_OK) code = dur__sq_get(txn->conn, DUR__SQ_EXECUTION, &current, 1, &op->err, "i", self->key);
    if (code == DUR_OK)
        code =
            dur__sq_get(txn->conn, DUR__SQ_HISTORY_LAST, before, COLUMNS, &op->err, "ii", self->key, self->execution);
    if (code == DUR_OK) code = append_execution(self, txn, current);
    dur__sq_history to = { self->key,
                           self->execution,
                           self->instance,
                           DUR__SQ_LAST_UNKNOWN,
                           before[OPEN] /* nobody has said that less is */,
                           "sqlite.append" };
    if (code == DUR_OK) code = dur__sq_history_add(txn, &to, self->events, self->count, &op->err);
    dur__sq_lease_recheck(txn->file, self->key);
    return code;
}

static void append_done(dur__sq_op *op, dur__sq_file *file) {
    dur__sq_changed(file, ((client_op *)(void *)op)->instance);
}

int dur__sq_append(dur_provider *self, const char *instance, uint64_t execution_id, const dur_event_row *events,
                   size_t count, dur_error *err) {
    client_op op = { .op = { .run = append_run, .done = append_done },
                     .instance = instance,
                     .execution = execution_id,
                     .events = events,
                     .count = count };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

/* ---- dead letters ---- */

static int bury_run(dur__sq_op *op, dur__sq_txn *txn) {
    client_op *self = (client_op *)(void *)op;
    int code = dur__sq_key(txn, self->instance, false, &self->key, &op->err);
    for (size_t i = 0; i < self->count && code == DUR_OK && self->key != 0; i++) {
        code = dur__sq_run(txn->conn, DUR__SQ_DEAD_MESSAGE, &op->err, "iiti", self->ids[i], self->key, self->reason,
                           txn->now_ms);
        if (code == DUR_OK)
            code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_DELETE, &op->err, "ii", self->ids[i], self->key);
    }
    return code;
}

/* They are out no more: of their queues the next may be handed out. */
static void bury_done(dur__sq_op *op, dur__sq_file *file) {
    client_op *self = (client_op *)(void *)op;
    dur__sq_lease *lease = dur__map_get_u64(&file->leases, self->key);
    if (lease == NULL) return;
    for (size_t i = 0; i < self->count; i++)
        dur__sq_lease_taken(lease, self->ids[i]);
    if (lease->gap) dur__sq_lease_dirty(file, self->key);
}

int dur__sq_dead_letter_messages(dur_provider *self, const char *instance, const uint64_t *ids, size_t count,
                                 const char *reason, dur_error *err) {
    client_op op = {
        .op = { .run = bury_run, .done = bury_done }, .instance = instance, .ids = ids, .count = count, .reason = reason
    };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

static int forget_run(dur__sq_op *op, dur__sq_txn *txn) {
    client_op *self = (client_op *)(void *)op;
    int code = DUR_OK;
    for (size_t i = 0; i < self->count && code == DUR_OK; i++)
        code = dur__sq_run(txn->conn, DUR__SQ_DEAD_DELETE, &op->err, "i", self->ids[i]);
    return code;
}

int dur__sq_delete_dead_letters(dur_provider *self, const uint64_t *ids, size_t count, dur_error *err) {
    client_op op = { .op = { .run = forget_run }, .ids = ids, .count = count };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}

/* ---- suspend and resume ---- */

static int suspend_run(dur__sq_op *op, dur__sq_txn *txn) {
    client_op *self = (client_op *)(void *)op;
    dur__sq_state state;
    sqlite3_stmt *row = NULL;
    int code = dur__sq_state_of(txn, self->instance, &state, &op->err);
    self->key = state.key;
    if (code == DUR_OK && !state.exists) return not_found(&op->err, self->instance);
    if (code == DUR_OK) code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_LEASE, &row, &op->err, "i", self->key);
    uint64_t status = row != NULL ? dur__sq_u64(row, DUR__SQ_LEASE_STATUS) : DUR_STATUS_NONE;
    bool leased = row != NULL && !dur__sq_is_null(row, DUR__SQ_LEASE_TOKEN);
    /* A lane of this process, or of another one; a lease without a lane can ask nobody. */
    bool asks = leased && self->reason != NULL && !dur__sq_is_null(row, DUR__SQ_LEASE_OWNER) &&
                (dur__map_get_u64(&txn->file->leases, self->key) != NULL ||
                 !dur__sq_owner_known(txn->file, dur__sq_text(row, DUR__SQ_LEASE_OWNER)));
    dur__sq_end(&row);
    if (self->reason != NULL && (status == DUR_STATUS_COMPLETED || status == DUR_STATUS_FAILED))
        return dur_error_set(&op->err, DUR_ESTATE, false, "sqlite.suspend", "instance %s has ended", self->instance);
    txn->file->ready_maybe = true;
    if (code == DUR_OK)
        code = dur__sq_run(txn->conn, DUR__SQ_INSTANCE_SUSPEND, &op->err, "iti", self->key, self->reason, txn->now_ms);
    self->asks = asks;
    if (code == DUR_OK && asks) {
        dur__sq_ready(txn->file); /* wakes the lane */
        return dur__sq_count_lost(txn, &op->err);
    }
    self->existed = leased && self->reason != NULL;
    if (code != DUR_OK || (leased && self->reason == NULL)) return code;
    if (!leased) return self->reason == NULL ? dur__sq_ready_anew(txn, self->key, &op->err) : DUR_OK;
    code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_CLEAR, &op->err, "inii", self->key, (uint64_t)1, (uint64_t)0);
    if (code == DUR_OK) code = dur__sq_release(txn, self->key, &(dur__sq_release_how){ .uncount = true }, &op->err);
    return code == DUR_OK ? dur__sq_count_lost(txn, &op->err) : code;
}

static void suspend_done(dur__sq_op *op, dur__sq_file *file) {
    client_op *self = (client_op *)(void *)op;
    if (self->asks)
        dur__sq_lease_ask(file, self->key);
    else if (self->existed)
        dur__sq_lease_drop(file, self->key, true);
    dur__sq_changed(file, self->instance);
}

int dur__sq_set_suspended(dur_provider *self, const char *instance, const char *reason, dur_error *err) {
    client_op op = { .op = { .run = suspend_run, .done = suspend_done }, .instance = instance, .reason = reason };
    return dur__sq_submit(dur__sq_file_of(self), &op.op, err);
}
