/*
 * sqlite_birth.c: turns that write their start: the instance as it is after its first turn, without a message in the
 * queue.
 */
#include "provider/sqlite/sqlite_internal.h"
#include "provider/sqlite/sqlite_own.h"
#include <stdlib.h>

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
    if (self->lane == NULL) return dur__sq_refuse(self, DUR__TURN_TOKEN, "Invalid lock token: not a lane's");
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

const char *dur__sq_births(dur_provider *self) {
    dur__sq_file *file = dur__sq_file_of(self);
    return dur__sq_in_own_txn(file) ? NULL : file->identity;
}
