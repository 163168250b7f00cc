/*
 * store_work.c: dur_store_ functions for activities, sessions and owners.
 */
#include "base/buf.h"
#include "provider/provider_internal.h"

int dur_store_enqueue_for_worker(dur_provider *store, const dur_message_row *item, dur_error *err) {
    int code = dur__store_enter(store, "enqueue_for_worker", err);
    if (code == DUR_OK) code = dur__store_check_message(err, "enqueue_for_worker", item);
    return code == DUR_OK ? store->methods->enqueue_for_worker(store, item, err) : code;
}

static int check_fetch(const dur_arena *arena, const dur_work_fetch *how, const void *out, const char *op,
                       dur_error *err) {
    if (arena == NULL || how == NULL || out == NULL) return dur__store_null(err, op, "arena, how and out");
    if (how->tags.tag_count > 0 && how->tags.tags == NULL) return dur__store_null(err, op, "tags");
    if (how->handlers != NULL && how->handlers->count > 0 && how->handlers->keys == NULL)
        return dur__store_null(err, op, "handlers->keys");
    return DUR_OK;
}

int dur_store_fetch_work_item(dur_provider *store, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                              dur_error *err) {
    int code = dur__store_enter(store, "fetch_work_item", err);
    if (code == DUR_OK) code = check_fetch(arena, how, out, "fetch_work_item", err);
    if (code != DUR_OK) return code;
    *out = (dur_leased_work){ .lock_token = NULL };
    if (how->tags.mode == DUR_TAGS_NONE) return DUR_OK;
    return store->methods->fetch_work_item(store, arena, how, out, err);
}

int dur_store_ack_work_item(dur_provider *store, const char *lock_token, const dur_message_row *completion,
                            dur_error *err) {
    int code = dur__store_enter(store, "ack_work_item", err);
    if (code != DUR_OK) return code;
    if (lock_token == NULL) return dur__store_null(err, "ack_work_item", "lock_token");
    if (completion != NULL) code = dur__store_check_message(err, "ack_work_item", completion);
    return code == DUR_OK ? store->methods->ack_work_item(store, lock_token, completion, err) : code;
}

int dur_store_renew_work_item_lock(dur_provider *store, const char *lock_token, uint64_t extend_ms, dur_error *err) {
    int code = dur__store_enter(store, "renew_work_item_lock", err);
    if (code != DUR_OK) return code;
    if (lock_token == NULL) return dur__store_null(err, "renew_work_item_lock", "lock_token");
    return store->methods->renew_work_item_lock(store, lock_token, extend_ms, err);
}

int dur_store_abandon_work_item(dur_provider *store, const char *lock_token, uint64_t delay_ms, bool ignore_attempt,
                                dur_error *err) {
    int code = dur__store_enter(store, "abandon_work_item", err);
    if (code != DUR_OK) return code;
    if (lock_token == NULL) return dur__store_null(err, "abandon_work_item", "lock_token");
    return store->methods->abandon_work_item(store, lock_token, delay_ms, ignore_attempt, err);
}

int dur_store_fetch_works(dur_provider *store, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                          size_t *count, dur_error *err) {
    int code = dur__store_enter(store, "fetch_works", err);
    if (code == DUR_OK) code = check_fetch(arena, how, out, "fetch_works", err);
    if (code != DUR_OK) return code;
    if (count == NULL) return dur__store_null(err, "fetch_works", "count");
    *count = 0;
    if (how->tags.mode == DUR_TAGS_NONE) return DUR_OK;
    if (DUR_HAS_METHOD(store->methods, fetch_works))
        return store->methods->fetch_works(store, arena, how, out, count, err);
    return dur__fallback_fetch_works(store, arena, how, out, count, err);
}

int dur_store_ack_works(dur_provider *store, dur_work_ack *acks, size_t count, dur_error *err) {
    int code = dur__store_enter(store, "ack_works", err);
    if (code != DUR_OK) return code;
    if (acks == NULL && count > 0) return dur__store_null(err, "ack_works", "acks");
    for (size_t i = 0; i < count; i++) {
        if (acks[i].lock_token == NULL) return dur__store_null(err, "ack_works", "lock_token");
        if (acks[i].completion == NULL) continue;
        code = dur__store_check_message(err, "ack_works", acks[i].completion);
        if (code != DUR_OK) return code;
    }
    if (DUR_HAS_METHOD(store->methods, ack_works)) return store->methods->ack_works(store, acks, count, err);
    for (size_t i = 0; i < count; i++)
        dur__fallback_ack(store, &acks[i]);
    return DUR_OK;
}

int dur_store_check_works(dur_provider *store, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                          bool *lost, dur_error *err) {
    int code = dur__store_enter(store, "check_works", err);
    if (code != DUR_OK) return code;
    if (count > 0 && (claims == NULL || lost == NULL)) return dur__store_null(err, "check_works", "claims and lost");
    if (DUR_HAS_METHOD(store->methods, check_works))
        return store->methods->check_works(store, claims, count, extend_ms, lost, err);
    return dur__fallback_check_works(store, claims, count, extend_ms, lost, err);
}

int dur_store_return_works(dur_provider *store, const dur_worker_claim *claims, size_t count, dur_error *err) {
    int code = dur__store_enter(store, "return_works", err);
    if (code != DUR_OK) return code;
    if (count > 0 && claims == NULL) return dur__store_null(err, "return_works", "claims");
    if (DUR_HAS_METHOD(store->methods, return_works)) return store->methods->return_works(store, claims, count, err);
    return dur__fallback_return_works(store, claims, count, err);
}

int dur_store_alone_ended(dur_provider *store, const char *lock_token, dur_error *err) {
    int code = dur__store_enter(store, "alone_ended", err);
    if (code != DUR_OK) return code;
    if (lock_token == NULL) return dur__store_null(err, "alone_ended", "lock_token");
    if (DUR_HAS_METHOD(store->methods, alone_ended)) return store->methods->alone_ended(store, lock_token, err);
    return DUR_OK; /* a store without owners knows of no crash, and has no suspects */
}

int dur_store_blame(dur_provider *store, const char *lock_token, dur_error *err) {
    int code = dur__store_enter(store, "blame", err);
    if (code != DUR_OK) return code;
    if (lock_token == NULL) return dur__store_null(err, "blame", "lock_token");
    if (DUR_HAS_METHOD(store->methods, blame)) return store->methods->blame(store, lock_token, err);
    return DUR_OK; /* nor is anybody in doubt */
}

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

int dur_store_renew_session_lock(dur_provider *store, const char *const *owners, size_t owner_count, uint64_t extend_ms,
                                 uint64_t idle_ms, uint64_t *renewed, dur_error *err) {
    uint64_t ignored;
    int code = dur__store_enter(store, "renew_session_lock", err);
    if (code != DUR_OK) return code;
    if (owners == NULL && owner_count > 0) return dur__store_null(err, "renew_session_lock", "owners");
    if (renewed == NULL) renewed = &ignored;
    *renewed = 0;
    return store->methods->renew_session_lock(store, owners, owner_count, extend_ms, idle_ms, renewed, err);
}

int dur_store_cleanup_orphaned_sessions(dur_provider *store, uint64_t idle_ms, uint64_t *removed, dur_error *err) {
    uint64_t ignored;
    int code = dur__store_enter(store, "cleanup_orphaned_sessions", err);
    if (code != DUR_OK) return code;
    if (removed == NULL) removed = &ignored;
    *removed = 0;
    return store->methods->cleanup_orphaned_sessions(store, idle_ms, removed, err);
}

/* ---- owners ------------------------------------------------------------------------------------------------------ */

int dur_store_owner_register(dur_provider *store, const dur_owner_options *options, dur_error *err) {
    int code = dur__store_enter(store, "owner_register", err);
    if (code != DUR_OK) return code;
    if (options == NULL) return dur__store_null(err, "owner_register", "options");
    code = dur__check_text(err, "owner_register", "owner", options->owner, DUR__NAME_BYTES_MAX, DUR__NOT_EMPTY);
    if (code != DUR_OK) return code;
    if (!DUR_HAS_METHOD(store->methods, owner_register)) return dur__store_missing(err, store, "owner_register");
    return store->methods->owner_register(store, options, err);
}

int dur_store_owner_beat(dur_provider *store, const char *owner, dur_owner_report *out, dur_error *err) {
    int code = dur__store_enter(store, "owner_beat", err);
    if (code != DUR_OK) return code;
    if (owner == NULL || out == NULL) return dur__store_null(err, "owner_beat", "owner and out");
    if (!DUR_HAS_METHOD(store->methods, owner_beat)) return dur__store_missing(err, store, "owner_beat");
    *out = (dur_owner_report){ .still_ours = false };
    return store->methods->owner_beat(store, owner, out, err);
}

int dur_store_owner_release(dur_provider *store, const char *owner, dur_error *err) {
    int code = dur__store_enter(store, "owner_release", err);
    if (code != DUR_OK) return code;
    if (owner == NULL) return dur__store_null(err, "owner_release", "owner");
    if (!DUR_HAS_METHOD(store->methods, owner_release)) return dur__store_missing(err, store, "owner_release");
    return store->methods->owner_release(store, owner, err);
}

int dur_store_owner_holdings(dur_provider *store, dur_arena *arena, const char *owner, dur_holding **out, size_t *count,
                             dur_error *err) {
    int code = dur__store_enter(store, "owner_holdings", err);
    if (code != DUR_OK) return code;
    if (arena == NULL || owner == NULL || out == NULL || count == NULL)
        return dur__store_null(err, "owner_holdings", "arena, owner, out and count");
    *out = NULL;
    *count = 0;
    if (!DUR_HAS_METHOD(store->methods, owner_holdings)) return dur__store_missing(err, store, "owner_holdings");
    return store->methods->owner_holdings(store, arena, owner, out, count, err);
}

int dur_store_list_unserved(dur_provider *store, dur_arena *arena, size_t each, dur_unserved **out, size_t *count,
                            dur_error *err) {
    int code = dur__store_enter(store, "list_unserved", err);
    if (code != DUR_OK) return code;
    if (arena == NULL || out == NULL || count == NULL)
        return dur__store_null(err, "list_unserved", "arena, out and count");
    *out = NULL;
    *count = 0;
    if (!DUR_HAS_METHOD(store->methods, list_unserved)) return DUR_OK;
    return store->methods->list_unserved(store, arena, each, out, count, err);
}
