/*
 * sqlite_turn.c: the commit of a turn.
 *
 * All comparisons (lease, position, parent) come before the first write, so that a turn that fails one leaves nothing
 * to undo; consumed worker rows are compared by deleting them, first of all writes.  For a lease of this process
 * everything that a step needs is remembered, and one sequential step costs one insert, of its events: its activity is
 * local (dur_turn_work).
 */
#include "base/assert.h"
#include "provider/dead_reason.h"
#include "provider/sqlite/sqlite_internal.h"
#include "provider/to_nobody.h"
#include <stdlib.h>

int dur__sq_refuse(dur__sq_turn_op *self, dur__turn_check check, const char *text) {
    self->fault = dur__turn_fault_of(check);
    return dur_error_set(&self->op.err, dur__turn_code_of(check), false, "sqlite.commit", "%s", text);
}

/* ---- comparisons ---- */

static int key_find(dur__sq_turn_op *self, dur__sq_txn *txn) {
    dur_turn_commit *turn = self->turn;
    if (turn->store_key != 0)
        self->key = turn->store_key;
    else if (self->facts.take_over) {
        dur__sq_state state;
        int code = dur__sq_state_of(txn, turn->instance, &state, &self->op.err);
        self->key = state.key;
        return code != DUR_OK || state.exists ? code : dur__sq_refuse(self, DUR__TURN_EXISTS, "instance not found");
    } else
        self->key = dur__sq_token_key(turn->lock_token, 'k');
    return DUR_OK;
}

/* The row as it is in the store: for turns of nobody's lane, and after somebody else has written. */
static int lease_read(dur__sq_turn_op *self, dur__sq_txn *txn, bool compare) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_LEASE, &row, &self->op.err, "i", self->key);
    if (code != DUR_OK) return code;
    if (row == NULL) {
        return compare ? dur__sq_refuse(self, DUR__TURN_TOKEN, "Invalid lock token: no such instance") : DUR_OK;
    }
    const char *token = dur__sq_text(row, DUR__SQ_LEASE_TOKEN);
    bool ours = token != NULL && self->turn->lock_token != NULL && strcmp(token, self->turn->lock_token) == 0;
    bool expired = !dur__sq_is_null(row, DUR__SQ_LEASE_UNTIL) && dur__sq_u64(row, DUR__SQ_LEASE_UNTIL) <= txn->boot_ms;
    bool other =
        self->turn->instance != NULL && !dur__str_eq(self->turn->instance, dur__sq_text(row, DUR__SQ_LEASE_ID));
    self->was_leased = token != NULL;
    self->current = dur__sq_u64(row, DUR__SQ_LEASE_EXECUTION);
    self->counted = dur__sq_u64(row, DUR__SQ_LEASE_ACQUISITIONS) > 0;
    self->instance = dur__sq_dup(txn->file->scratch, row, DUR__SQ_LEASE_ID);
    dur__sq_end(&row);
    if (compare && (!ours || other)) return dur__sq_refuse(self, DUR__TURN_TOKEN, "Invalid lock token");
    if (compare && expired) return dur__sq_refuse(self, DUR__TURN_TOKEN, "Invalid lock token: the lock has expired");
    return DUR_OK;
}

static int uncancelled_compare(dur__sq_turn_op *self, dur__sq_txn *txn) {
    bool cancelled = false;
    if (!self->turn->if_uncancelled) return DUR_OK;
    int code = dur__sq_has(txn->conn, DUR__SQ_QUEUE_CANCEL, &cancelled, &self->op.err, "i", self->key);
    if (code != DUR_OK || !cancelled) return code;
    return dur__sq_refuse(self, DUR__TURN_UNCANCELLED, "somebody has asked the instance to end");
}

static int lease_compare(dur__sq_turn_op *self, dur__sq_txn *txn) {
    dur__sq_file *file = txn->file;
    dur_turn_commit *turn = self->turn;
    bool take_over = self->facts.take_over;
    if (self->key == 0) return dur__sq_refuse(self, DUR__TURN_TOKEN, "Invalid lock token");
    dur__sq_lease *lease = dur__map_get_u64(&file->leases, self->key);
    if (lease == NULL || take_over || lease->epoch != file->epoch) {
        int code = lease_read(self, txn, !take_over);
        if (code == DUR_OK && take_over && turn->if_unleased && self->was_leased)
            code = dur__sq_refuse(self, DUR__TURN_UNLEASED, "the instance is leased");
        if (code == DUR_OK && take_over) code = uncancelled_compare(self, txn);
        if (code != DUR_OK || take_over) return code;
        if (lease == NULL || !dur__str_eq(lease->token, turn->lock_token)) return DUR_OK;
        lease->epoch = file->epoch; /* still ours: the store says so */
        lease->queued = DUR__SQ_NOT_COUNTED;
        lease->has_execution = lease->has_execution && lease->execution == self->current;
        lease->execution = self->current;
        self->lease = lease;
        return dur__sq_get(txn->conn, DUR__SQ_HISTORY_LAST, &lease->last_event, 1, &self->op.err, "ii", lease->key,
                           lease->execution);
    }
    if (!dur__str_eq(lease->token, turn->lock_token))
        return dur__sq_refuse(self, DUR__TURN_TOKEN, "Invalid lock token");
    self->lease = lease;
    self->current = lease->execution;
    self->counted = lease->counted;
    return DUR_OK;
}

static int position_compare(dur__sq_turn_op *self, dur__sq_txn *txn) {
    dur_turn_commit *turn = self->turn;
    if (!self->facts.compares_position) return DUR_OK;
    uint64_t last = 0;
    if (self->lease != NULL && self->lease->execution == turn->execution_id)
        last = self->lease->last_event;
    else if (self->lease == NULL || self->lease->execution != 0) {
        int code =
            dur__sq_get(txn->conn, DUR__SQ_HISTORY_LAST, &last, 1, &self->op.err, "ii", self->key, turn->execution_id);
        if (code != DUR_OK) return code;
    }
    if (last == turn->expected_last) return DUR_OK;
    self->fault = dur__turn_fault_of(DUR__TURN_LAST_EVENT);
    return dur_error_set(&self->op.err, dur__turn_code_of(DUR__TURN_LAST_EVENT), false, "sqlite.commit",
                         "the history ends with event %llu, the turn expects %llu", (unsigned long long)last,
                         (unsigned long long)turn->expected_last);
}

/* Whoever takes an instance over has looked at it before. */
static int meant_compare(dur__sq_turn_op *self, dur__sq_txn *txn) {
    const dur_turn_commit *turn = self->turn;
    sqlite3_stmt *row = NULL;
    if (!self->facts.take_over) return DUR_OK;
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_BIRTH, &row, &self->op.err, "i", self->key);
    uint64_t birth = row != NULL ? dur__sq_u64(row, 0) : 0;
    bool same = birth == 0 || turn->metadata.birth == 0 || birth == turn->metadata.birth;
    if (turn->if_suspended != NULL)
        same &= row != NULL && !dur__sq_is_null(row, 1) && dur__str_eq(dur__sq_text(row, 1), turn->if_suspended);
    dur__sq_end(&row);
    for (size_t i = 0; code == DUR_OK && same && turn->consume_listed && i < turn->consumed_count; i++)
        code = dur__sq_has(txn->conn, DUR__SQ_QUEUE_GET, &same, &self->op.err, "ii", turn->consumed[i], self->key);
    if (code != DUR_OK || same) return code;
    return dur__sq_refuse(self, DUR__TURN_MEANT, "the instance is another one, or has begun");
}

int dur__sq_is_meant(dur__sq_txn *txn, uint64_t key, uint64_t birth, bool *yes, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    uint64_t stored = 0;
    int code = dur__sq_get(txn->conn, DUR__SQ_INSTANCE_BIRTH, &stored, 1, err, "i", key);
    *yes = stored == birth;
    if (code != DUR_OK || stored != 0) return code;
    return dur__sq_has(txn->conn, DUR__SQ_HISTORY_ANY, yes, err, "i", key);
}

/* A child is born only while its parent is there: deleting that finds the child's row, or the child finds nobody. */
static int parent_compare(dur__sq_turn_op *self, dur__sq_txn *txn) {
    const char *parent = self->turn->metadata.parent_instance_id;
    dur__sq_state state;
    if (!self->facts.compares_parent) return DUR_OK;
    int code = dur__sq_state_of(txn, parent, &state, &self->op.err);
    if (code == DUR_OK && state.exists && self->turn->metadata.parent_birth != 0)
        code = dur__sq_is_meant(txn, state.key, self->turn->metadata.parent_birth, &state.exists, &self->op.err);
    if (code != DUR_OK || state.exists) return code;
    self->fault = dur__turn_fault_of(DUR__TURN_PARENT);
    return dur_error_set(&self->op.err, dur__turn_code_of(DUR__TURN_PARENT), false, "sqlite.commit",
                         "the parent \"%s\" not found", parent);
}

/* ---- what a turn takes away ---- */

static const char *own_instance(const dur__sq_turn_op *self) {
    const char *own = self->lease != NULL ? self->lease->instance : self->turn->instance;
    return own != NULL ? own : self->instance;
}

static int ref_key(dur__sq_turn_op *self, dur__sq_txn *txn, const char *instance, bool make, uint64_t *key) {
    *key = self->key;
    if (instance == NULL || instance == self->turn->instance || dur__str_eq(instance, own_instance(self)))
        return DUR_OK;
    return dur__sq_key(txn, instance, make, key, &self->op.err);
}

static int work_consume(dur__sq_turn_op *self, dur__sq_txn *txn, const dur_worker_claim *claim, bool *gone) {
    uint64_t key = 0;
    int code = ref_key(self, txn, claim->ref.instance, false, &key);
    if (code != DUR_OK) return code;
    code = dur__sq_touch_session(txn, key, claim->ref.execution_id, claim->ref.activity_id, claim->ref.row_id,
                                 claim->lock_token, &self->op.err);
    if (code != DUR_OK) return code;
    code = dur__sq_run(txn->conn, DUR__SQ_WORK_CONSUME, &self->op.err, "iiiiti", key, claim->ref.execution_id,
                       claim->ref.activity_id, claim->ref.row_id, claim->lock_token, txn->boot_ms);
    *gone = code == DUR_OK && sqlite3_changes64(txn->conn->db) == 0;
    return code;
}

static int works_consume(dur__sq_turn_op *self, dur__sq_txn *txn) {
    dur_turn_commit *turn = self->turn;
    self->lost_count = 0;
    for (size_t i = 0; i < turn->worker_consumed_count; i++) {
        bool gone = false;
        int code = work_consume(self, txn, &turn->worker_consumed[i], &gone);
        if (code != DUR_OK) return code;
        if (!gone) continue;
        if (self->arena != NULL && self->lost == NULL)
            self->lost = dur_arena_alloc(self->arena, turn->worker_consumed_count * sizeof(*self->lost));
        if (self->lost != NULL) self->lost[self->lost_count] = &turn->worker_consumed[i];
        self->lost_count++;
    }
    if (self->lost_count == 0) return DUR_OK;
    return dur__sq_refuse(self, DUR__TURN_WORK, "a consumed activity is gone or locked by somebody else");
}

/* Of the messages that the acquisition counted, those that the turn leaves; forget the others.  Both come in nearly
   the same order: the search goes on where the last one was found. */
static size_t tagged_left(dur__sq_lease *lease, const dur_turn_commit *turn, bool forget) {
    size_t left = 0, next = 0, count = turn->consumed_count;
    for (size_t i = 0; i < lease->tagged_count; i++) {
        size_t tried = 0;
        while (tried < count && turn->consumed[(next + tried) % count] != lease->tagged[i])
            tried++;
        if (tried < count) {
            next = (next + tried + 1) % count;
            continue;
        }
        if (forget) lease->tagged[left] = lease->tagged[i];
        left++;
    }
    if (forget) lease->tagged_count = left;
    return left;
}

/* All that the holder was given: with the fetch, and by the rounds of its lane. */
static int given_consume(dur__sq_turn_op *self, dur__sq_txn *txn) {
    dur__sq_lease *lease = self->lease;
    dur__map_entry *entry;
    int code =
        dur__sq_run(txn->conn, DUR__SQ_QUEUE_DELETE_TOKEN, &self->op.err, "it", self->key, self->turn->lock_token);
    if (code != DUR_OK || lease == NULL) return code;
    lease->queued = DUR__SQ_NOT_COUNTED;
    if (self->facts.keeps && lease->gap) dur__sq_lease_dirty(txn->file, lease->key);
    code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_DELETE_SEEN, &self->op.err, "iii", self->key, lease->seen_id,
                       lease->seen_now);
    for (size_t at = 0; code == DUR_OK && (entry = dur__map_next(&lease->given, &at)) != NULL;)
        code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_DELETE, &self->op.err, "ii", entry->number, self->key);
    return code;
}

/* What it leaves in the queue was not what a crash would be blamed on. */
static int messages_clear(dur__sq_turn_op *self, dur__sq_txn *txn) {
    const dur_turn_commit *turn = self->turn;
    uint64_t less = self->facts.uncounts ? 1 : UINT32_MAX, keep = self->facts.keeps;
    int code = DUR_OK;
    if (self->lease == NULL)
        return dur__sq_run(txn->conn, DUR__SQ_QUEUE_CLEAR, &self->op.err, "itii", self->key, turn->lock_token, less,
                           keep);
    for (size_t i = 0; i < self->lease->tagged_count && code == DUR_OK; i++)
        code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_CLEAR_ONE, &self->op.err, "itiii", self->key, turn->lock_token,
                           less, keep, self->lease->tagged[i]);
    return code;
}

static int messages_consume(dur__sq_turn_op *self, dur__sq_txn *txn) {
    dur_turn_commit *turn = self->turn;
    int code = DUR_OK;
    if (turn->consumed_count + turn->timers_dropped_count + turn->cancelled_count > 0) txn->file->times.stale = true;
    const dur__turn_facts *facts = &self->facts;
    if (facts->takes_given) {
        code = given_consume(self, txn);
    } else if (turn->consume_listed) {
        for (size_t i = 0; i < turn->consumed_count && code == DUR_OK; i++) {
            code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_DELETE, &self->op.err, "ii", turn->consumed[i], self->key);
            bool gone = code == DUR_OK && sqlite3_changes64(txn->conn->db) > 0;
            self->messages_gone += gone;
            if (gone && self->lease != NULL && facts->keeps) dur__sq_lease_take(txn, self->lease, turn->consumed[i]);
        }
        if (code == DUR_OK && facts->takes_start)
            code = dur__sq_run(txn->conn, DUR__SQ_INSTANCE_NO_HANDLER, &self->op.err, "i", self->key);
    }
    if (code == DUR_OK && !facts->takes_given && !facts->take_over && (self->counted || !facts->keeps) &&
        (facts->clears_counts || facts->uncounts) && (self->lease == NULL || tagged_left(self->lease, turn, false) > 0))
        code = messages_clear(self, txn);
    if (code == DUR_OK && self->was_leased && facts->take_over)
        code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_CLEAR, &self->op.err, "itii", self->key, (const char *)NULL,
                           (uint64_t)UINT32_MAX, (uint64_t)0); /* what it leaves begins anew */
    if (code == DUR_OK && facts->never_was) {
        code = dur__sq_run(txn->conn, DUR__SQ_DEAD_FRONT, &self->op.err, "iti", self->key, DUR__NEVER_STARTED,
                           txn->now_ms);
        if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_DELETE_FRONT, &self->op.err, "i", self->key);
    } else if (code == DUR_OK && facts->removes_work) {
        code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_DELETE_OWN, &self->op.err, "i", self->key);
        if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_WORK_DELETE_KEY, &self->op.err, "i", self->key);
        if (code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_CRASH_BY_KEY, &self->op.err, "i", self->key);
    }
    return code;
}

/* ---- what it writes ---- */

static bool ends(dur_status status) {
    return status >= DUR_STATUS_COMPLETED;
}

/* What the instance's row, which has the current execution, does not say already. */
static int execution_write(dur__sq_turn_op *self, dur__sq_txn *txn) {
    const dur_turn_commit *turn = self->turn;
    const dur_execution_metadata *meta = &turn->metadata;
    dur_error *err = &self->op.err;
    uint64_t execution = turn->execution_id, pinned = dur__sq_packed(meta->pinned_version);
    bool known = self->lease != NULL && self->lease->has_execution && self->lease->execution == execution;
    if (known || (execution >= self->current && self->row_written)) return DUR_OK; /* as in nearly every turn */
    if (execution >= self->current)
        return dur__sq_run(txn->conn, DUR__SQ_EXECUTION_BEGIN, err, "ii", self->key, txn->now_ms);
    int code = dur__sq_run(txn->conn, DUR__SQ_EXECUTION_MAKE, err, "iiio", self->key, execution, txn->now_ms,
                           meta->has_pinned_version ? &pinned : NULL);
    if (code == DUR_OK && meta->status != DUR_STATUS_NONE)
        code = dur__sq_run(txn->conn, DUR__SQ_EXECUTION_STATUS, err, "iiiti", self->key, execution,
                           (uint64_t)meta->status, meta->output, ends(meta->status) ? txn->now_ms : (uint64_t)0);
    return code;
}

static bool talks_to_itself(const dur__sq_turn_op *self) {
    for (size_t i = 0; i < self->turn->orchestrator_item_count; i++)
        if (dur__str_eq(self->turn->orchestrator_items[i].instance, self->lease->instance)) return true;
    return false;
}

const char *dur__sq_turn_handler(dur__sq_txn *txn, const dur_execution_metadata *meta, bool named, bool status) {
    if (status && (meta->status == DUR_STATUS_COMPLETED || meta->status == DUR_STATUS_FAILED)) return "";
    if (!named) return NULL;
    return dur_arena_format(txn->file->scratch, "%s@%s", meta->orchestration_name,
                            strcmp(meta->orchestration_version, "0.0.0") == 0 ? "" : meta->orchestration_version);
}

/* What the holder has seen: a round says it of all leases of its lane, and this one may not have been told so much yet.
 */
static uint64_t seen_id(const dur__sq_turn_op *self) {
    const dur__sq_lease *lease = self->lease;
    return lease != NULL && lease->seen_id < self->facts.seen_id ? lease->seen_id : self->facts.seen_id;
}

static uint64_t seen_now(const dur__sq_turn_op *self) {
    const dur__sq_lease *lease = self->lease;
    return lease != NULL && lease->seen_now < self->facts.seen_now_ms ? lease->seen_now : self->facts.seen_now_ms;
}

static int instance_write(dur__sq_turn_op *self, dur__sq_txn *txn) {
    const dur_turn_commit *turn = self->turn;
    const dur_execution_metadata *meta = &turn->metadata;
    const dur__turn_facts *facts = &self->facts;
    bool named = facts->names;
    bool newer = facts->writes && turn->execution_id > self->current;
    bool current = facts->writes && turn->execution_id >= self->current;
    bool uncounted = !facts->clears_counts;
    bool counts = self->counted && !uncounted;
    bool says = named; /* which handler it needs: a continue-as-new may have asked for none in particular */
    self->row_written = false;
    if (named && self->lease != NULL && dur__str_eq(self->lease->name, meta->orchestration_name) &&
        dur__str_eq(self->lease->version, meta->orchestration_version))
        named = false;
    if (!named && !newer && !counts && meta->status == DUR_STATUS_NONE && !meta->has_pinned_version &&
        (self->lease != NULL || uncounted))
        return DUR_OK; /* an ordinary step */
    self->row_written = true;
    bool status = current && meta->status != DUR_STATUS_NONE, pin = current && meta->has_pinned_version;
    uint64_t execution = newer ? turn->execution_id : self->current;
    uint64_t status_now = (uint64_t)meta->status, pinned = dur__sq_packed(meta->pinned_version);
    /* The last turn of a lease to which nothing is left: one update does both. */
    bool any = true;
    uint64_t due = 0;
    self->released = false;
    if (self->lease != NULL && !facts->keeps && !turn->set_suspended && facts->delay_ms == 0 && !uncounted &&
        !talks_to_itself(self)) {
        int code = DUR_OK;
        if (self->lease->queued == self->messages_gone)
            any = false; /* nothing has come since it was acquired, and all that was there is gone */
        else
            code = dur__sq_reason(txn, self->key, seen_id(self), seen_now(self), &any, &due, &self->op.err);
        if (code != DUR_OK) return code;
        self->released = !any;
        if (!any) dur__sq_lease_recheck(txn->file, self->key);
    }
    bool known = self->lease != NULL && self->lease->has_execution && self->lease->untimed;
    if (self->released && known && status && ends(meta->status) && !newer && !named && !pin && !self->counted)
        return dur__sq_run(txn->conn, DUR__SQ_INSTANCE_END, &self->op.err, "iiti", self->key, status_now, meta->output,
                           txn->now_ms);
    if (newer && self->current != 0) {
        int code = dur__sq_run(txn->conn, DUR__SQ_EXECUTION_KEEP, &self->op.err, "i", self->key);
        if (code != DUR_OK) return code;
    }
    dur__sq_sql sql = self->released ? DUR__SQ_INSTANCE_TURN_END : DUR__SQ_INSTANCE_TURN;
    const char *handler = dur__sq_turn_handler(txn, meta, says, status);
    int code = dur__sq_run(txn->conn, sql, &self->op.err, "itttiooiitiitoi", self->key,
                           named ? meta->orchestration_name : NULL, named ? meta->orchestration_version : NULL,
                           named ? meta->parent_instance_id : NULL, execution, status ? &status_now : NULL,
                           pin ? &pinned : NULL, (uint64_t)newer, txn->now_ms, meta->output,
                           ends(meta->status) ? txn->now_ms : (uint64_t)0, (uint64_t)current, handler,
                           named && meta->birth != 0 ? &meta->birth : NULL, (uint64_t)facts->take_over);
    return code;
}

static int kv_write(dur__sq_txn *txn, uint64_t key, const dur_event_row *event, dur_error *err) {
    switch ((int)event->kind) {
    case DUR_EVENT_KEY_VALUE_SET:
        return dur__sq_run(txn->conn, DUR__SQ_KV_SET, err, "itti", key, event->key, event->value, event->stamp_ms);
    case DUR_EVENT_KEY_VALUE_CLEARED:
        return dur__sq_run(txn->conn, DUR__SQ_KV_SET, err, "itti", key, event->key, (const char *)NULL, txn->now_ms);
    default:
        break;
    }
    int code = dur__sq_run(txn->conn, DUR__SQ_KV_CLEAR_DELTA, err, "ii", key, txn->now_ms);
    return code != DUR_OK ? code : dur__sq_run(txn->conn, DUR__SQ_KV_CLEAR_STORE, err, "ii", key, txn->now_ms);
}

/* The last event that the execution has, where the turn has compared it or the lease remembers it. */
static uint64_t last_known(const dur__sq_turn_op *self) {
    const dur_turn_commit *turn = self->turn;
    if (self->facts.born) return 0;
    if (self->facts.compares_position) return turn->expected_last;
    return self->lease != NULL && self->lease->execution == turn->execution_id ? self->lease->last_event
                                                                               : DUR__SQ_LAST_UNKNOWN;
}

static int events_write(dur__sq_turn_op *self, dur__sq_txn *txn) {
    const dur_turn_commit *turn = self->turn;
    dur_error *err = &self->op.err;
    const dur_event_row *status = dur__turn_custom_status(turn);
    self->last_event = 0;
    dur__sq_history to = { self->key,        turn->execution_id, own_instance(self),
                           last_known(self), turn->open,         "sqlite.commit" };
    int code = dur__sq_history_add(txn, &to, turn->events, turn->event_count, err);
    if (code == DUR_ECONFLICT) self->fault = dur__turn_fault_of(DUR__TURN_NEW_EVENTS);
    for (size_t i = 0; i < turn->event_count && code == DUR_OK; i++) {
        const dur_event_row *event = &turn->events[i];
        if (event->kind >= DUR_EVENT_KEY_VALUE_SET && event->kind <= DUR_EVENT_KEY_VALUES_CLEARED) {
            code = kv_write(txn, self->key, event, err);
            self->visible_change = self->values = true;
        }
        if (event->event_id > self->last_event) self->last_event = event->event_id;
    }
    if (status == NULL || code != DUR_OK) return code;
    self->visible_change = true;
    return dur__sq_run(txn->conn, DUR__SQ_INSTANCE_STATUS_TEXT, err, "iti", self->key, status->value, txn->now_ms);
}

/* An execution has ended: its writes become the snapshot of the next. */
static int execution_end(dur__sq_turn_op *self, dur__sq_txn *txn) {
    dur_error *err = &self->op.err;
    uint64_t execution = self->turn->execution_id;
    bool any = false;
    int code = DUR_OK;
    if (self->lease == NULL || !self->lease->no_values || self->values)
        code = dur__sq_has(txn->conn, DUR__SQ_KV_DELTA_ANY, &any, err, "i", self->key);
    if (any) code = dur__sq_run(txn->conn, DUR__SQ_KV_MERGE, err, "i", self->key);
    if (any && code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_KV_MERGE_DROP, err, "i", self->key);
    if (any && code == DUR_OK) code = dur__sq_run(txn->conn, DUR__SQ_KV_DELTA_EMPTY, err, "i", self->key);
    if (code == DUR_OK && execution > 2 && txn->now_ms > DUR_DAYS(1))
        code = dur__sq_run(txn->conn, DUR__SQ_MESSAGE_IDS_OLD, err, "iii", self->key, execution - 1,
                           txn->now_ms - DUR_DAYS(1));
    return code;
}

/* It was local when its lease ended. */
static int count_lost(dur__sq_turn_op *self, dur__sq_txn *txn, uint64_t key, const dur_turn_work *work) {
    bool crashed = self->look == DUR__SQ_LOOK_CRASHED;
    const dur_message_row *message = &work->message;
    int code = dur__sq_run(txn->conn, DUR__SQ_WORK_LOST, &self->op.err, "iiiii", key, message->execution_id,
                           message->activity_id, work->row_id, (uint64_t)crashed);
    if (code != DUR_OK || !crashed) return code;
    return dur__sq_run(txn->conn, DUR__SQ_CRASH_LOCAL, &self->op.err, "iiii", key, message->execution_id,
                       message->activity_id, work->row_id);
}

static int work_insert(dur__sq_turn_op *self, dur__sq_txn *txn, dur_turn_work *work) {
    const dur_turn_commit *turn = self->turn;
    uint64_t key = 0;
    work->local = false;
    int code = ref_key(self, txn, work->message.instance, true, &key);
    if (code != DUR_OK) return code;
    const char *token = dur__turn_eager(turn, work);
    if (token != NULL) code = dur__sq_owner_lives(txn, turn->owner, &self->op.err);
    if (code == DUR_ELEASE) { /* for anybody, then */
        dur_error_clear(&self->op.err);
        token = NULL;
        code = DUR_OK;
    }
    if (code != DUR_OK) return code; /* SQLite may have ended the transaction: nothing more is written */
    work->local = token != NULL && self->lane != NULL && dur__turn_asks_local(turn, work);
    work->locked = false;
    work->row_id = 0;
    if (work->local) return DUR_OK;
    if (token != NULL && work->message.session_id != NULL) {
        bool claimed = false;
        if (turn->session_owner != NULL)
            code = dur__sq_claim_session(txn, work->message.session_id, turn->session_owner, turn->owner,
                                         turn->session_lock_ms, &claimed, &self->op.err);
        if (code != DUR_OK) return code;
        if (!claimed) token = NULL;
    }
    work->locked = token != NULL;
    code = dur__sq_insert_work(txn, key, &work->message, token, turn->owner, &work->row_id, &self->op.err);
    return code == DUR_OK && work->recovered ? count_lost(self, txn, key, work) : code;
}

static int message_write(dur__sq_turn_op *self, dur__sq_txn *txn, const dur_message_row *item) {
    const char *own = self->lease != NULL ? self->lease->instance : self->instance;
    uint64_t key = dur__str_eq(item->instance, own) ? self->key : 0;
    if (key == 0 && dur__needs_receiver(item->kind)) {
        dur__sq_state state;
        int code = dur__sq_state_of(txn, item->instance, &state, &self->op.err);
        if (code != DUR_OK || !state.exists) return code;
        key = state.key;
    }
    return dur__sq_enqueue(txn, item, 0, key, &self->op.err);
}

static int work_write(dur__sq_turn_op *self, dur__sq_txn *txn) {
    dur_turn_commit *turn = self->turn;
    dur_error *err = &self->op.err;
    int code = DUR_OK;
    uint64_t key = 0;
    for (size_t i = 0; i < turn->worker_item_count && code == DUR_OK; i++)
        code = work_insert(self, txn, &turn->worker_items[i]);
    for (size_t i = 0; i < turn->cancelled_count && code == DUR_OK; i++) {
        code = ref_key(self, txn, turn->cancelled[i].instance, false, &key);
        if (code == DUR_OK)
            code = dur__sq_run(txn->conn, DUR__SQ_WORK_CANCEL, err, "iii", key, turn->cancelled[i].execution_id,
                               turn->cancelled[i].activity_id);
        if (code == DUR_OK && sqlite3_changes64(txn->conn->db) > 0) /* nobody has seen it end */
            code = dur__sq_run(txn->conn, DUR__SQ_CRASH_BY_ACTIVITY, err, "iii", key, turn->cancelled[i].execution_id,
                               turn->cancelled[i].activity_id);
    }
    bool undelayed = false; /* then what is overdue behind it is, too: it stays behind */
    for (size_t i = 0; i < turn->orchestrator_item_count && code == DUR_OK; i++) {
        dur_message_row item = turn->orchestrator_items[i];
        if (undelayed && item.due_ms <= txn->now_ms) item.due_ms = 0;
        undelayed |= item.due_ms == 0;
        code = message_write(self, txn, &item);
    }
    for (size_t i = 0; i < turn->timers_dropped_count && code == DUR_OK; i++) {
        code = ref_key(self, txn, turn->timers_dropped[i].instance, false, &key);
        if (code == DUR_OK)
            code = dur__sq_run(txn->conn, DUR__SQ_QUEUE_DELETE_TIMER, err, "iii", key,
                               turn->timers_dropped[i].execution_id, turn->timers_dropped[i].activity_id);
    }
    return code;
}

/* Nobody held it: what was no reason to fetch it before is none now, unless it is gone. */
static int taken_unleased(dur__sq_turn_op *self, dur__sq_txn *txn) {
    if (!self->turn->remove_work && !self->facts.resumes) return DUR_OK; /* what was seen is a reason again */
    return dur__sq_ready_anew(txn, self->key, &self->op.err);
}

static int lease_end(dur__sq_turn_op *self, dur__sq_txn *txn) {
    const dur_turn_commit *turn = self->turn;
    const dur__turn_facts *facts = &self->facts;
    int code = DUR_OK;
    if (facts->suspends || facts->resumes) {
        self->visible_change = true;
        txn->file->ready_maybe = true;
        code = dur__sq_run(txn->conn, DUR__SQ_INSTANCE_SUSPEND, &self->op.err, "iti", self->key, turn->suspended,
                           txn->now_ms);
    }
    if (code != DUR_OK || facts->keeps || self->released) return code;
    if (facts->take_over && !self->was_leased) return taken_unleased(self, txn);
    dur__sq_release_how how = { .by_holder = !facts->take_over,
                                .seen_id = seen_id(self),
                                .seen_now = seen_now(self),
                                .uncount = facts->uncounts,
                                .not_before = facts->delay_ms != 0 ? dur__sq_after(txn->now_ms, facts->delay_ms) : 0 };
    code = dur__sq_release(txn, self->key, &how, &self->op.err);
    if (code == DUR_OK && facts->take_over) code = dur__sq_count_lost(txn, &self->op.err);
    return code;
}

/* The comparisons, what was consumed, and the instance's row. */
static int lease_write(dur__sq_turn_op *self, dur__sq_txn *txn) {
    int code = key_find(self, txn);
    if (code == DUR_OK) code = lease_compare(self, txn);
    if (code == DUR_OK) code = position_compare(self, txn);
    if (code == DUR_OK) code = meant_compare(self, txn);
    if (code == DUR_OK) code = parent_compare(self, txn);
    if (code == DUR_OK) code = works_consume(self, txn);
    if (code == DUR_OK) code = messages_consume(self, txn);
    return code == DUR_OK ? instance_write(self, txn) : code;
}

/* Before the turn says that somebody has looked. */
static int look_read(dur__sq_turn_op *self, dur__sq_txn *txn) {
    const dur_turn_commit *turn = self->turn;
    bool any = false;
    for (size_t i = 0; i < turn->worker_item_count && !any; i++)
        any = turn->worker_items[i].recovered;
    self->look = DUR__SQ_LOOK_NONE;
    if (!any) return DUR_OK;
    uint64_t key = turn->store_key != 0 ? turn->store_key : dur__sq_token_key(turn->lock_token, 'k');
    return dur__sq_get(txn->conn, DUR__SQ_INSTANCE_LOOK, &self->look, 1, &self->op.err, "i", key);
}

/* What its done will make. */
static void done_needs(const dur__sq_turn_op *self, dur__sq_txn *txn) {
    const dur_execution_metadata *meta = &self->turn->metadata;
    if (!self->facts.keeps || (self->lease != NULL && !self->facts.names)) return; /* as in nearly every turn */
    dur__sq_needs(txn, self->lease == NULL ? 1 : 0, own_instance(self), meta->orchestration_name,
                  meta->orchestration_version);
}

static int turn_run(dur__sq_op *op, dur__sq_txn *txn) {
    dur__sq_turn_op *self = (dur__sq_turn_op *)(void *)op;
    dur_turn_commit *turn = self->turn;
    self->fault = DUR_TURN_STORE;
    self->lease = NULL;
    self->messages_gone = 0;
    self->visible_change = self->released = self->values = false;
    bool born = self->facts.born;
    int code = look_read(self, txn);
    if (code == DUR_OK) code = born ? dur__sq_born(self, txn) : lease_write(self, txn);
    if (code == DUR_OK && !born && self->facts.writes) code = execution_write(self, txn);
    if (code == DUR_OK) code = events_write(self, txn);
    if (code == DUR_OK && self->facts.ends_execution) code = execution_end(self, txn);
    if (code == DUR_OK) code = work_write(self, txn);
    if (code == DUR_OK) code = lease_end(self, txn);
    /* One that lets go with nothing recorded may have taken the start that was all there was of the instance. */
    bool forgets = turn->event_count == 0 && self->messages_gone > 0 && !self->facts.keeps;
    if (turn->metadata.status != DUR_STATUS_NONE || forgets) self->visible_change = true;
    if (code == DUR_OK) done_needs(self, txn);
    return code;
}

/* A lease that was acquired outside of lanes and is kept by a round belongs to that lane from now on. */
static dur__sq_lease *lease_adopt(dur__sq_turn_op *self, dur__sq_file *file) {
    if (self->lane == NULL || self->instance == NULL) return NULL;
    dur__sq_lease *lease = NULL;
    dur__sq_lease_new(&lease, self->lane, self->key, self->instance, self->turn->lock_token, NULL, NULL);
    lease->execution = self->current;
    lease->seen_id = self->turn->seen_id;
    lease->seen_now = self->turn->seen_now_ms;
    dur__sq_lease_enter(lease);
    dur__sq_lease_dirty(file, lease->key); /* nobody was told of what has come so far */
    return lease;                          /* epoch 0: the first turn compares it with the store */
}

static void turn_done(dur__sq_op *op, dur__sq_file *file) {
    dur__sq_turn_op *self = (dur__sq_turn_op *)(void *)op;
    dur_turn_commit *turn = self->turn;
    dur__sq_lease *lease = self->lease;
    if (self->visible_change)
        dur__sq_changed(file, turn->instance != NULL ? turn->instance
                              : lease != NULL        ? lease->instance
                                                     : self->instance);
    if (self->facts.born) {
        dur__sq_born_done(self, file);
        return;
    }
    if (self->facts.keeps && lease != NULL && !turn->consume_listed) {
        dur__map_free(&lease->given);
        lease->tagged_count = 0;
    } else if (self->facts.keeps && lease != NULL)
        for (size_t i = 0; i < turn->consumed_count; i++)
            dur__sq_lease_taken(lease, turn->consumed[i]);
    if (lease != NULL && lease->queued != DUR__SQ_NOT_COUNTED) lease->queued -= self->messages_gone;
    if (lease != NULL && self->facts.keeps && lease->tagged_count > 0) tagged_left(lease, turn, true);
    if (self->facts.take_over)
        dur__sq_lease_drop(file, self->key, true);
    else if (!self->facts.keeps)
        dur__sq_lease_drop(file, self->key, false);
    else if (lease == NULL)
        lease_adopt(self, file);
    else {
        if (self->facts.writes && turn->execution_id >= lease->execution) {
            if (turn->execution_id > lease->execution) lease->last_event = 0;
            lease->execution = turn->execution_id;
            lease->has_execution = true;
            if (self->last_event > lease->last_event) lease->last_event = self->last_event;
        }
        if (self->values) lease->no_values = false;
        if (self->row_written) {
            lease->counted = false;
            if (self->facts.names && !dur__str_eq(lease->name, turn->metadata.orchestration_name)) {
                dur__free(lease->name);
                lease->name = dur__xstrdup(turn->metadata.orchestration_name);
            }
            if (self->facts.names && !dur__str_eq(lease->version, turn->metadata.orchestration_version)) {
                dur__free(lease->version);
                lease->version = dur__xstrdup(turn->metadata.orchestration_version);
            }
        }
    }
}

void dur__sq_turn_op_init(dur__sq_turn_op *self, dur_turn_commit *turn, dur_arena *arena) {
    DUR_ASSERT(dur__turn_invalid(turn) == NULL && turn->fault == DUR_TURN_FINE);
    memset(self, 0, sizeof *self);
    self->facts = dur__turn_facts_of(turn);
    self->op.run = turn_run;
    self->op.done = turn_done;
    self->turn = turn;
    self->arena = arena;
}

/* Write the answers of a turn that was run. */
int dur__sq_turn_op_answer(dur__sq_turn_op *self) {
    dur_turn_commit *turn = self->turn;
    turn->error = self->op.err;
    turn->fault = self->op.err.code == DUR_OK ? DUR_TURN_FINE : self->op.undone ? DUR_TURN_STORE : self->fault;
    turn->lease_kept = turn->fault == DUR_TURN_FINE && self->facts.keeps;
    if (turn->fault == DUR_TURN_WORK_LOST) turn->lost_work_count = self->lost_count;
    if (turn->fault == DUR_TURN_WORK_LOST) turn->lost_work = self->lost;
    for (size_t i = 0; turn->fault != DUR_TURN_FINE && i < turn->worker_item_count; i++)
        turn->worker_items[i].locked = turn->worker_items[i].local = false, turn->worker_items[i].row_id = 0;
    return turn->error.code;
}

/* ---- methods ---- */

int dur__sq_ack_orchestration_item(dur_provider *self, dur_turn_commit *turn, dur_error *err) {
    dur__sq_turn_op op;
    dur__sq_turn_op_init(&op, turn, NULL);
    dur__sq_submit(dur__sq_file_of(self), &op.op, &op.op.err);
    int code = dur__sq_turn_op_answer(&op);
    if (err != NULL) *err = turn->error;
    return code;
}

int dur__sq_commit_turns(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    dur__sq_turn_op *ops = dur__zget((count + 1) * sizeof(*ops));
    dur__sq_op **list = dur__zget((count + 1) * sizeof(*list));
    if (ops == NULL || list == NULL) {
        dur__free(ops);
        dur__free(list);
        return DUR__NO_MEMORY(err, "sqlite.commit");
    }
    for (size_t i = 0; i < count; i++) {
        dur__sq_turn_op_init(&ops[i], &turns[i], NULL);
        list[i] = &ops[i].op;
    }
    int code = dur__sq_submit_all(dur__sq_file_of(self), list, count, err);
    for (size_t i = 0; i < count; i++) {
        if (code != DUR_OK) dur_error_set(&ops[i].op.err, (dur_code)code, false, "sqlite.commit", "not committed");
        dur__sq_turn_op_answer(&ops[i]);
    }
    dur__free(list);
    dur__free(ops);
    return code;
}
