/*
 * sqlite_unborn.c: starts that their first turn writes.
 *
 * A lane takes a start out of the inbox before anybody has written it; the thread that asked goes on waiting.  The turn
 * that comes back writes the instance as it is after the turn, without a message in the queue, and its commit answers
 * the start.  A start whose turn does not come, or is refused, goes back into the inbox and is written there as any
 * other.
 */
#include "provider/provider_internal.h"
#include "provider/sqlite/sqlite_internal.h"
#include "provider/start_item.h"
#include <stdlib.h>

/* ---- taking and giving back ---- */

static bool takeable(const dur__sq_lane *lane, const dur__sq_op *op) {
    const dur__sq_start_op *start = (const dur__sq_start_op *)(const void *)op;
    return op->starts && !start->was_taken && start->delay_ms == 0 && start->item->due_ms == 0 &&
           dur_handler_passes(lane->handlers, start->item->handler);
}

static void name(dur__sq_file *file, dur__sq_start_op *start) {
    snprintf(start->token, sizeof(start->token), "u%llu", (unsigned long long)++file->desk.next_unborn);
}

static void take(dur__sq_lane *lane, dur__sq_start_op *start) {
    start->was_taken = true;
    start->op.call->taken++;
    dur__list_unlink(&start->op.link);
    atomic_fetch_sub(&lane->file->desk.starts_wait, 1);
    dur__list_push(&lane->unborn, &start->taken);
}

int dur__sq_lane_starts(dur_lane *base, dur_arena *arena, size_t max, dur_orchestration_item *out, size_t *count,
                        dur_error *err) {
    dur__sq_lane *lane = (dur__sq_lane *)(void *)base;
    dur__sq_file *file = lane->file;
    dur__way_out out_of_memory; /* what was not taken is written by whoever waits for it */
    *count = 0;
    lane->takes_starts = lane->owner != NULL && !lane->others_wait;
    if (!lane->takes_starts || atomic_load(&file->desk.starts_wait) == 0) return DUR_OK;
    uint64_t now_ms = file->world->wall_ms(file->world->data);
    dur__mutex_lock(&file->desk.lock);
    if (DUR__OUT_OF_MEMORY(&out_of_memory)) {
        dur__mutex_unlock(&file->desk.lock);
        return *count > 0 ? DUR_OK : DUR__NO_MEMORY(err, "sqlite.lane_starts");
    }
    DUR__LIST_EACH_SAFE(&file->desk.inbox, at, after) {
        dur__sq_op *op = DUR__CONTAINER(at, dur__sq_op, link);
        if (*count == max || !takeable(lane, op)) continue;
        dur__sq_start_op *start = (dur__sq_start_op *)(void *)op;
        name(file, start);
        out[*count] = dur__start_item(arena, start->item, start->token, now_ms);
        dur__store_name_item(arena, &out[*count]);
        take(lane, start);
        ++*count;
    }
    dur__way_out_end(&out_of_memory);
    dur__mutex_unlock(&file->desk.lock);
    return DUR_OK;
}

bool dur__sq_unborn_leave(const dur__sq_lane *lane, dur__sq_op *op) {
    dur__sq_start_op *start = (dur__sq_start_op *)(void *)op;
    if (lane == NULL || !lane->takes_starts || !takeable(lane, op) || start->was_left) return false;
    start->was_left = true;
    return true;
}

/* With the lock held. */
static dur__sq_op *find(dur__sq_lane *lane, const char *token) {
    DUR__LIST_EACH(&lane->unborn, at) {
        dur__sq_start_op *start = DUR__CONTAINER(at, dur__sq_start_op, taken);
        if (dur__str_eq(start->token, token)) return &start->op;
    }
    return NULL;
}

/* The start that a turn writes, for the time of its transaction; NULL: it was given back, or its thread has gone. */
static dur__sq_op *bind(dur__sq_lane *lane, const char *token) {
    dur__mutex_lock(&lane->file->desk.lock);
    dur__sq_op *op = find(lane, token);
    if (op != NULL) ((dur__sq_start_op *)(void *)op)->bound = true;
    dur__mutex_unlock(&lane->file->desk.lock);
    return op;
}

void dur__sq_unborn_unbind(dur__sq_op *op) {
    ((dur__sq_start_op *)(void *)op)->bound = false;
}

bool dur__sq_unborn_withdraw(dur__sq_op *op) {
    dur__sq_start_op *start = (dur__sq_start_op *)(void *)op;
    if (start->bound || !dur__link_linked(&start->taken)) return false;
    dur__sq_unborn_answered(op);
    return true;
}

void dur__sq_unborn_answered(dur__sq_op *op) {
    dur__list_unlink(&((dur__sq_start_op *)(void *)op)->taken);
    op->call->taken--;
}

/* With the lock held. */
static void back(dur__sq_file *file, dur__sq_op *op) {
    dur__sq_unborn_answered(op);
    dur__list_push(&file->desk.inbox, &op->link);
    atomic_fetch_add(&file->desk.starts_wait, 1);
    dur__cond_signal(&op->call->answered); /* its thread may have to lead */
}

void dur__sq_lane_start_back(dur_lane *base, const char *lock_token) {
    dur__sq_lane *lane = (dur__sq_lane *)(void *)base;
    dur__mutex_lock(&lane->file->desk.lock);
    dur__sq_op *op = find(lane, lock_token);
    if (op != NULL) back(lane->file, op);
    dur__mutex_unlock(&lane->file->desk.lock);
}

void dur__sq_unborn_back_all(dur__sq_lane *lane) {
    dur__mutex_lock(&lane->file->desk.lock);
    for (dur__link *at; (at = dur__list_first(&lane->unborn)) != NULL;)
        back(lane->file, &DUR__CONTAINER(at, dur__sq_start_op, taken)->op);
    dur__mutex_unlock(&lane->file->desk.lock);
}

/* ---- writing ---- */

/* One that no instance has: a token has it in it, so it must be known before the row is. */
static int next_key(dur__sq_txn *txn, uint64_t *out, dur_error *err) {
    int code = DUR_OK;
    if (txn->file->next_key == 0)
        code = dur__sq_get(txn->conn, DUR__SQ_INSTANCE_NEXT_KEY, &txn->file->next_key, 1, err, "");
    *out = txn->file->next_key;
    return code;
}

/* A turn that ends it at once, or lets it go, and sends it nothing: there is no lease to write. */
static bool goes_at_once(const dur_turn_commit *turn, const dur__turn_facts *facts) {
    if (facts->keeps || facts->suspends || facts->resumes || facts->delay_ms != 0) return false;
    for (size_t i = 0; i < turn->orchestrator_item_count; i++)
        if (dur__str_eq(turn->orchestrator_items[i].instance, turn->instance)) return false;
    return true;
}

int dur__sq_born(dur__sq_turn_op *self, dur__sq_txn *txn) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    const dur_turn_commit *turn = self->turn;
    const dur_execution_metadata *meta = &turn->metadata;
    dur_error *err = &self->op.err;
    dur__sq_file *file = txn->file;
    if (self->op.brings == NULL && self->lane != NULL) self->op.brings = bind(self->lane, turn->lock_token);
    const dur__sq_start_op *start = (const dur__sq_start_op *)(const void *)self->op.brings;
    if (start == NULL || !dur__str_eq(start->item->instance, turn->instance))
        return dur__sq_refuse(self, DUR__TURN_TOKEN, "Invalid lock token: no such start");
    const char *owner = turn->owner != NULL ? turn->owner : self->lane->owner; /* a lease of nobody would never end */
    int code = dur__sq_owner_lives(txn, owner, err);
    if (code == DUR_OK) code = next_key(txn, &self->key, err);
    if (code == DUR_OK) code = dur__sq_max_id(txn, &self->born_max_id, err);
    if (code != DUR_OK) return code;
    dur__sq_token(txn, self->token, 'k', self->key);
    self->born_now_ms = txn->now_ms;
    self->current = turn->execution_id;
    self->released = goes_at_once(turn, &self->facts);
    self->visible_change = true;
    self->instance = dur_arena_strdup(file->scratch, turn->instance);
    uint64_t pinned = dur__sq_packed(meta->pinned_version);
    const char *handler = dur__sq_turn_handler(txn, meta, true, true);
    code = dur__sq_run(txn->conn, DUR__SQ_INSTANCE_BORN, err, "itttiiittoitto", self->key, turn->instance,
                       meta->orchestration_name, meta->orchestration_version, turn->execution_id,
                       (uint64_t)(meta->status != DUR_STATUS_NONE ? meta->status : DUR_STATUS_RUNNING), txn->now_ms,
                       self->released ? NULL : self->token, self->released ? NULL : owner,
                       meta->has_pinned_version ? &pinned : NULL,
                       meta->status >= DUR_STATUS_COMPLETED ? txn->now_ms : (uint64_t)0, meta->output, handler,
                       meta->birth != 0 ? &meta->birth : NULL);
    if (code == DUR_OK && sqlite3_changes64(txn->conn->db) == 0)
        return dur__sq_refuse(self, DUR__TURN_TOKEN, "Invalid lock token: the instance exists already");
    if (code != DUR_OK) return code;
    if (file->born_from == 0) file->born_from = self->key;
    file->next_key++;
    return DUR_OK;
}

void dur__sq_born_done(dur__sq_turn_op *self, dur__sq_file *file) {
    DUR_ASSERT(dur__sq_leads(file));
    dur_turn_commit *turn = self->turn;
    turn->store_key = self->key;
    turn->lock_token = self->token;
    if (!self->facts.keeps) return;
    const dur_execution_metadata *meta = &turn->metadata;
    dur__sq_lease *lease = NULL;
    dur__sq_lease_new(&lease, self->lane, self->key, turn->instance, self->token, meta->orchestration_name,
                      meta->orchestration_version);
    lease->queued = 0;
    lease->execution = turn->execution_id;
    lease->last_event = self->last_event;
    lease->has_execution = lease->untimed = true;
    lease->no_values = !self->values;
    lease->epoch = file->epoch;
    lease->seen_id = self->born_max_id;
    lease->seen_now = self->born_now_ms;
    dur__sq_lease_enter(lease);
    if (!file->born_mail) return;
    dur__sq_lease_dirty(file, lease->key);
    atomic_store(&self->lane->signalled, true);
}
