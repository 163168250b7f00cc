/*
 * store_client.c: dur_store_ functions for clients: starts, messages, status, KV, watching, statistics.
 */
#include "base/buf.h"
#include "base/drive.h"
#include "base/thread.h"
#include "provider/provider_internal.h"
#include "provider/starts.h"

int dur_store_enqueue_for_orchestrator(dur_provider *store, const dur_message_row *item, uint64_t delay_ms,
                                       dur_error *err) {
    int code = dur__store_enter(store, "enqueue_for_orchestrator", err);
    if (code == DUR_OK) code = dur__store_check_message(err, "enqueue_for_orchestrator", item);
    return code == DUR_OK ? store->methods->enqueue_for_orchestrator(store, item, delay_ms, err) : code;
}

static int enqueue_start(dur_provider *store, dur_start_request *start, dur_error *err) {
    if (DUR_HAS_METHOD(store->methods, enqueue_start))
        return store->methods->enqueue_start(store, start->item, start->policy, start->delay_ms, &start->existed, err);
    return dur__fallback_enqueue_start(store, start->item, start->policy, start->delay_ms, &start->existed, err);
}

int dur_store_enqueue_start(dur_provider *store, const dur_message_row *item, dur_exists_policy policy,
                            uint64_t delay_ms, bool *existed, dur_error *err) {
    dur_start_request start = { .item = item, .policy = policy, .delay_ms = delay_ms };
    bool done;
    int code = dur__store_enter(store, "enqueue_start", err);
    if (code == DUR_OK) code = dur__store_check_message(err, "enqueue_start", item);
    if (code != DUR_OK) return code;
    if ((unsigned)policy > DUR_EXISTS_REPLACE_FINISHED)
        return dur_error_set(err, DUR_EINVAL, false, "enqueue_start", "unknown policy %d", (int)policy);
    if (dur__starts_hand_in(store, &start, 1, &done) == 0)
        code = enqueue_start(store, &start, err);
    else if ((code = (int)start.error.code) != DUR_OK && err != NULL)
        *err = start.error;
    if (existed != NULL) *existed = start.existed;
    return code;
}

static int check_starts(dur_start_request *starts, size_t count, dur_error *err) {
    const char *op = "enqueue_starts";
    if (starts == NULL && count > 0) return dur__store_null(err, op, "starts");
    if (count > DUR_STARTS_MAX)
        return dur_error_set(err, DUR_ELIMIT, false, op, "%zu starts, %u are allowed", count, DUR_STARTS_MAX);
    for (size_t i = 0; i < count; i++) {
        int code = dur__store_check_message(err, op, starts[i].item);
        if (code != DUR_OK) return code;
        if ((unsigned)starts[i].policy > DUR_EXISTS_REPLACE_FINISHED)
            return dur_error_set(err, DUR_EINVAL, false, op, "unknown policy %d", (int)starts[i].policy);
        starts[i].existed = false;
        dur_error_clear(&starts[i].error);
    }
    return DUR_OK;
}

static int enqueue_starts(dur_provider *store, dur_start_request *starts, size_t count, dur_error *err) {
    if (DUR_HAS_METHOD(store->methods, enqueue_starts))
        return store->methods->enqueue_starts(store, starts, count, err);
    for (size_t i = 0; i < count; i++)
        (void)enqueue_start(store, &starts[i], &starts[i].error);
    return DUR_OK;
}

/* Those that no loop has begun. */
static void enqueue_rest(dur_provider *store, dur_start_request *starts, size_t count, const bool *done,
                         dur_start_request *rest) {
    dur_error err = DUR_ERROR_INIT;
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (!done[i]) rest[left++] = starts[i];
    int code = enqueue_starts(store, rest, left, &err);
    for (size_t i = 0, at = 0; i < count; i++) {
        if (done[i]) continue;
        starts[i] = rest[at++];
        if (code != DUR_OK) starts[i].error = err;
    }
}

int dur_store_enqueue_starts(dur_provider *store, dur_start_request *starts, size_t count, dur_error *err) {
    int code = dur__store_enter(store, "enqueue_starts", err);
    if (code == DUR_OK) code = check_starts(starts, count, err);
    if (code != DUR_OK || count == 0) return code;
    dur_start_request *rest = dur__zget(count * (sizeof(*rest) + sizeof(bool)));
    bool *done = (bool *)(void *)(rest + count);
    size_t begun = rest != NULL ? dur__starts_hand_in(store, starts, count, done) : 0;
    if (begun == 0)
        code = enqueue_starts(store, starts, count, err);
    else if (begun < count)
        enqueue_rest(store, starts, count, done, rest);
    dur__free(rest);
    return code;
}

int dur_store_enqueue_existing(dur_provider *store, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    int code = dur__store_enter(store, "enqueue_existing", err);
    if (code == DUR_OK) code = dur__store_check_message(err, "enqueue_existing", item);
    if (code != DUR_OK) return code;
    if (DUR_HAS_METHOD(store->methods, enqueue_existing))
        return store->methods->enqueue_existing(store, item, delay_ms, err);
    return dur__fallback_enqueue_existing(store, item, delay_ms, err);
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

int dur_store_get_custom_status(dur_provider *store, dur_arena *arena, const char *instance, uint64_t last_seen,
                                bool *changed, const char **status, uint64_t *version, dur_error *err) {
    int code = dur__store_enter(store, "get_custom_status", err);
    if (code != DUR_OK) return code;
    if (arena == NULL || instance == NULL || changed == NULL || status == NULL || version == NULL)
        return dur__store_null(err, "get_custom_status", "arena, instance, changed, status and version");
    *changed = false;
    *status = NULL;
    *version = 0;
    return store->methods->get_custom_status(store, arena, instance, last_seen, changed, status, version, err);
}

int dur_store_get_kv_value(dur_provider *store, dur_arena *arena, const char *instance, const char *key,
                           const char **value, dur_error *err) {
    int code = dur__store_enter(store, "get_kv_value", err);
    if (code != DUR_OK) return code;
    if (arena == NULL || instance == NULL || key == NULL || value == NULL)
        return dur__store_null(err, "get_kv_value", "arena, instance, key and value");
    *value = NULL;
    return store->methods->get_kv_value(store, arena, instance, key, value, err);
}

int dur_store_get_kv_all_values(dur_provider *store, dur_arena *arena, const char *instance, dur_key_value **out,
                                size_t *count, dur_error *err) {
    int code = dur__store_enter(store, "get_kv_all_values", err);
    if (code != DUR_OK) return code;
    if (arena == NULL || instance == NULL || out == NULL || count == NULL)
        return dur__store_null(err, "get_kv_all_values", "arena, instance, out and count");
    *out = NULL;
    *count = 0;
    return store->methods->get_kv_all_values(store, arena, instance, out, count, err);
}

/* Messages that continue-as-new carried over stand in the text of the first event, which a store does not read. */
static int add_carried(dur_provider *store, dur_arena *arena, const char *instance, dur_instance_stats *out,
                       dur_error *err) {
    dur_event_row *rows;
    dur_event first;
    size_t count;
    int code = dur_store_read(store, arena, instance, 0, &rows, &count, err);
    if (code != DUR_OK || count == 0) return code;
    if (dur_event_from_json(&first, arena, rows[0].json, NULL) == DUR_OK &&
        first.kind == DUR_EVENT_ORCHESTRATION_STARTED)
        out->queue_pending_count += first.carry_forward_count;
    return DUR_OK;
}

int dur_store_get_instance_stats(dur_provider *store, dur_arena *arena, const char *instance, bool *found,
                                 dur_instance_stats *out, dur_error *err) {
    int code = dur__store_enter(store, "get_instance_stats", err);
    if (code != DUR_OK) return code;
    if (arena == NULL || instance == NULL || found == NULL || out == NULL)
        return dur__store_null(err, "get_instance_stats", "arena, instance, found and out");
    *found = false;
    *out = (dur_instance_stats){ 0, 0, 0, 0, 0 };
    if (!DUR_HAS_METHOD(store->methods, get_instance_stats))
        code = dur__fallback_get_instance_stats(store, arena, instance, found, out, err);
    else
        code = store->methods->get_instance_stats(store, arena, instance, found, out, err);
    if (code == DUR_OK && *found) code = add_carried(store, arena, instance, out, err);
    return code;
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

static bool watch_is_native(const dur_provider *store) {
    return DUR_HAS_METHOD(store->methods, watch_open);
}

int dur_store_watch_open(dur_provider *store, const char *instance, dur_watch **out, dur_error *err) {
    int code = dur__store_enter(store, "watch_open", err);
    if (code != DUR_OK) return code;
    if (out == NULL) return dur__store_null(err, "watch_open", "out");
    *out = NULL;
    code = dur__store_check_instance(err, "watch_open", instance);
    if (code == DUR_OK && !dur__provider_adopt(store)) code = DUR__NO_MEMORY(err, "watch_open");
    if (code != DUR_OK) return code;
    if (watch_is_native(store))
        code = store->methods->watch_open(store, instance, out, err);
    else
        code = dur__fallback_watch_open(store, out);
    if (code == DUR_OK) dur_store_retain(store);
    return code;
}

static int watch_wait(dur_watch *watch, uint64_t timeout_ms, dur_error *err) {
    if (watch_is_native(watch->store)) return watch->store->methods->watch_wait(watch, timeout_ms, err);
    return dur__fallback_watch_wait(watch, timeout_ms, err);
}

/* What it waits for may need this very thread: it looks, and drives in between. */
static int watch_driving(dur_watch *watch, uint64_t timeout_ms, dur_error *err) {
    uint64_t now_us = dur__monotonic_us();
    uint64_t end_us = timeout_ms > (UINT64_MAX - now_us) / 1000 ? UINT64_MAX : now_us + timeout_ms * 1000;
    for (;; now_us = dur__monotonic_us()) {
        int code = watch_wait(watch, 0, err);
        if (code != DUR_ETIMEOUT || now_us >= end_us) return code;
        (void)dur__drive(end_us - now_us);
        code = dur__store_enter(watch->store, "watch_wait", err); /* an activity may have come back in a child */
        if (code != DUR_OK) return code;
    }
}

int dur_store_watch_wait(dur_watch *watch, uint64_t timeout_ms, dur_error *err) {
    if (watch == NULL) return dur__store_null(err, "watch_wait", "watch");
    int code = dur__store_enter(watch->store, "watch_wait", err);
    if (code != DUR_OK) return code;
    return dur__drives() ? watch_driving(watch, timeout_ms, err) : watch_wait(watch, timeout_ms, err);
}

bool dur_store_watch_wake(dur_watch *watch) {
    if (watch == NULL || dur__store_enter(watch->store, "watch_wake", NULL) != DUR_OK) return false;
    if (!watch_is_native(watch->store)) {
        dur__fallback_watch_wake(watch);
        return true;
    }
    if (!DUR_HAS_METHOD(watch->store->methods, watch_wake)) return false;
    watch->store->methods->watch_wake(watch);
    return true;
}

void dur_store_watch_close(dur_watch *watch) {
    if (watch == NULL) return;
    dur_provider *store = watch->store;
    if (!watch_is_native(store))
        dur__fallback_watch_close(watch);
    else if (dur__store_enter(store, "watch_close", NULL) == DUR_OK)
        store->methods->watch_close(watch);
    dur_provider_close(store);
}
