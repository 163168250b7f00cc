/*
 * fallback_array.c: arrays one by one, for a store that has only the required methods.
 */
#include "base/buf.h"
#include "provider/provider_internal.h"
#include "provider/turn.h"

#define CHECK_EXTEND_MS 30000u
/* What was seen and left is no reason to fetch again; without a way to say so: not before this. */
#define SEEN_MS 1000u

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* Nothing but the lease is given up: messages that were fetched must not be deleted. */
bool dur__fallback_only_releases(const dur_turn_commit *turn) {
    dur__turn_facts facts = dur__turn_facts_of(turn);
    if ((turn->consume_listed && turn->consumed_count > 0) || turn->worker_item_count > 0) return false;
    if (facts.uncounts || facts.is_release) return true;
    return !facts.writes && !facts.takes_given && turn->orchestrator_item_count == 0 && turn->cancelled_count == 0;
}

static void refuse(dur_turn_commit *turn, int code) {
    turn->fault = code == DUR_ELEASE ? DUR_TURN_LEASE_LOST : code == DUR_ECONFLICT ? DUR_TURN_POSITION : DUR_TURN_STORE;
}

static int commit_plain(dur_provider *store, dur_turn_commit *turn) {
    /* A handler that has run and waits says what it has seen: that attempt is over, and did not fail. */
    bool seen = turn->seen_id != 0 || turn->seen_now_ms != 0;
    uint64_t delay_ms = turn->delay_ms == 0 && seen ? SEEN_MS : turn->delay_ms;
    if (dur__fallback_only_releases(turn))
        return store->methods->abandon_orchestration_item(store, turn->lock_token, delay_ms, turn->give_back || seen,
                                                          &turn->error);
    dur_turn_commit plain = dur__turn_plain(turn);
    int code = store->methods->ack_orchestration_item(store, &plain, &turn->error);
    if (code != DUR_OK) {
        turn->fault = plain.fault;
        if (plain.error.code != DUR_OK) turn->error = plain.error;
    }
    return code;
}

/* Where nobody deletes, nobody is an orphan. */
static bool has_parent(dur_provider *store, dur_turn_commit *turn) {
    bool exists = true;
    const char *parent = turn->metadata.parent_instance_id;
    if (!dur__turn_facts_of(turn).compares_parent || !DUR_HAS_METHOD(store->methods, delete_instances)) return true;
    int code = dur__fallback_is_meant(store, parent, turn->metadata.parent_birth, &exists, &turn->error);
    if (code != DUR_OK)
        refuse(turn, code);
    else if (!exists) {
        dur_error_set(&turn->error, DUR_ENOTFOUND, false, "commit", "the parent %s not found", parent);
        turn->fault = DUR_TURN_ORPHAN;
    }
    return turn->fault == DUR_TURN_FINE;
}

/* The parent was deleted between the look and the ack, which that deletion did not see: the child follows it.  Deleted
   later it is seen. */
static void follow_parent(dur_provider *store, dur_turn_commit *turn) {
    if (turn->instance == NULL || has_parent(store, turn) || turn->fault != DUR_TURN_ORPHAN) {
        turn->fault = DUR_TURN_FINE; /* it is committed */
        dur_error_clear(&turn->error);
        return;
    }
    (void)store->methods->delete_instances(store, &turn->instance, NULL, 1, true, &(dur_delete_result){ 0 }, NULL);
}

void dur__fallback_commit(dur_provider *store, dur_turn_commit *turn) {
    if (turn->take_over || dur__turn_facts_of(turn).removes_work) {
        refuse(turn, dur__store_missing(&turn->error, store, "commit_turns"));
        return;
    }
    if (turn->set_suspended && !DUR_HAS_METHOD(store->methods, set_suspended)) {
        refuse(turn, dur__store_missing(&turn->error, store, "set_suspended"));
        return;
    }
    if (!has_parent(store, turn)) return;
    /* Marked before the lease is given up, so that nobody fetches it in between. */
    int code = DUR_OK;
    if (turn->set_suspended && turn->suspended == NULL)
        code = store->methods->set_suspended(store, turn->instance, NULL, &turn->error);
    if (code == DUR_OK) code = commit_plain(store, turn);
    if (code == DUR_OK && turn->set_suspended && turn->suspended != NULL && turn->instance != NULL)
        code = store->methods->set_suspended(store, turn->instance, turn->suspended, &turn->error);
    if (code != DUR_OK) {
        if (turn->fault == DUR_TURN_FINE) refuse(turn, code);
        return;
    }
    /* The completions are in history: rows that stay because we crash here run again and are not recorded again. */
    for (size_t i = 0; i < turn->worker_consumed_count; i++)
        store->methods->ack_work_item(store, turn->worker_consumed[i].lock_token, NULL, NULL);
    if (turn->needs_parent) follow_parent(store, turn);
}

int dur__fallback_fetch_turns(dur_provider *store, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                              size_t *count, dur_error *err) {
    dur_fetch one = *how;
    size_t max = how->max > 0 ? how->max : 1;
    if (how->kind == DUR_FETCH_SUSPECT) return DUR_OK; /* acquisitions are not counted: nobody is a suspect */
    while (*count < max) {
        dur_orchestration_item *item = &out[*count];
        *item = (dur_orchestration_item){ .instance = NULL };
        int code = store->methods->fetch_orchestration_item(store, arena, &one, item, err);
        if (code != DUR_OK) return *count > 0 ? DUR_OK : code;
        if (item->instance == NULL) break;
        (*count)++;
        one.poll_ms = 0;
    }
    return DUR_OK;
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

int dur__fallback_fetch_works(dur_provider *store, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                              size_t *count, dur_error *err) {
    dur_work_fetch one = *how;
    size_t max = how->max > 0 ? how->max : 1;
    if (how->kind == DUR_FETCH_SUSPECT) return DUR_OK;
    while (*count < max) {
        dur_leased_work *work = &out[*count];
        *work = (dur_leased_work){ .lock_token = NULL };
        int code = store->methods->fetch_work_item(store, arena, &one, work, err);
        if (code != DUR_OK) return *count > 0 ? DUR_OK : code;
        if (work->json.data == NULL) break;
        (*count)++;
        one.poll_ms = 0;
    }
    return DUR_OK;
}

void dur__fallback_ack(dur_provider *store, dur_work_ack *ack) {
    dur_error_clear(&ack->error);
    int code = store->methods->ack_work_item(store, ack->lock_token, ack->completion, &ack->error);
    if (code != DUR_OK && ack->error.code == DUR_OK)
        dur_error_set(&ack->error, (dur_code)code, false, "ack_work_item", "the store gave no reason");
}

int dur__fallback_check_works(dur_provider *store, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                              bool *lost, dur_error *err) {
    int worst = DUR_OK;
    for (size_t i = 0; i < count; i++) {
        dur_error why = DUR_ERROR_INIT;
        int code = store->methods->renew_work_item_lock(store, claims[i].lock_token,
                                                        extend_ms > 0 ? extend_ms : CHECK_EXTEND_MS, &why);
        /* Only a store that knows says "gone": one that cannot be reached must not cancel an activity. */
        lost[i] = code != DUR_OK && !why.retryable;
        if (code != DUR_OK && why.retryable) {
            worst = code;
            if (err != NULL) *err = why;
        }
    }
    return worst;
}

int dur__fallback_return_works(dur_provider *store, const dur_worker_claim *claims, size_t count, dur_error *err) {
    int worst = DUR_OK;
    for (size_t i = 0; i < count; i++) {
        dur_error why = DUR_ERROR_INIT;
        int code = store->methods->abandon_work_item(store, claims[i].lock_token, 0, true, &why);
        if (code == DUR_OK || code == DUR_ELEASE) continue; /* taken away meanwhile: nothing to return */
        worst = code;
        if (err != NULL) *err = why;
    }
    return worst;
}
