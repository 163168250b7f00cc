/*
 * fallback_client.c: what clients ask, of a store that has only the required methods: look, then act.
 *
 * Not atomic, and of the starts that no turn has consumed only those are known that went through this handle: a store
 * meant for production has the methods.
 */
#include "base/buf.h"
#include "obs/log_internal.h"
#include "provider/provider_internal.h"

#include <stdlib.h>

#define WATCH_MS_MIN 5u
#define WATCH_MS_MAX 100u

/* ---- does it exist? ---------------------------------------------------------------------------------------------- */

typedef struct sight {
    bool exists;
    bool ended;
} sight;

static int look_at_history(dur_provider *store, dur_arena *arena, const char *instance, sight *out, dur_error *err) {
    dur_event_row *rows = NULL;
    dur_event last;
    size_t count = 0;
    int code = store->methods->read(store, arena, instance, 0, &rows, &count, err);
    if (code != DUR_OK || count == 0) return code;
    out->exists = true;
    out->ended = dur_event_from_json(&last, arena, rows[count - 1].json, NULL) == DUR_OK &&
                 dur_event_kind_role(last.kind) == DUR_EVENT_ROLE_TERMINAL &&
                 last.kind != DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW;
    return DUR_OK;
}

static int look(dur_provider *store, const char *instance, sight *out, dur_error *err) {
    dur_instance_row row;
    dur_arena *arena = dur_arena_new();
    *out = (sight){ false, false };
    if (arena == NULL) return dur_error_set(err, DUR_ENOMEM, false, "look", "no memory");
    int code = DUR_ENOTFOUND;
    if (DUR_HAS_METHOD(store->methods, get_instance)) {
        code = store->methods->get_instance(store, arena, instance, &row, err);
        if (code == DUR_OK) {
            out->exists = true;
            out->ended = row.status == DUR_STATUS_COMPLETED || row.status == DUR_STATUS_FAILED;
        }
    }
    if (code == DUR_ENOTFOUND) code = look_at_history(store, arena, instance, out, err);
    dur_arena_free(arena);
    if (code != DUR_OK) return code;
    dur_error_clear(err);
    if (out->exists)
        dur__store_forget_start(store, instance); /* a turn has consumed it; deleted later, it is gone */
    else
        out->exists = dur__store_remembers_start(store, instance);
    return DUR_OK;
}

int dur__fallback_exists(dur_provider *store, const char *instance, bool *exists, dur_error *err) {
    sight seen;
    int code = look(store, instance, &seen, err);
    *exists = seen.exists;
    return code;
}

/* The birth stands in the first event, which the store does not look into and we may. */
static int birth_of(dur_provider *store, const char *instance, uint64_t *birth, bool *has_history, dur_error *err) {
    dur_event_row *rows = NULL;
    dur_event first;
    size_t count = 0;
    dur_arena *arena = dur_arena_new();
    if (arena == NULL) return dur_error_set(err, DUR_ENOMEM, false, "look", "no memory");
    int code = store->methods->read(store, arena, instance, 0, &rows, &count, err);
    *has_history = code == DUR_OK && count > 0;
    *birth = *has_history && dur_event_from_json(&first, arena, rows[0].json, NULL) == DUR_OK ? first.birth : 0;
    dur_arena_free(arena);
    return code;
}

int dur__fallback_is_meant(dur_provider *store, const char *parent, uint64_t birth, bool *yes, dur_error *err) {
    uint64_t stored = 0;
    bool has_history = false;
    int code = dur__fallback_exists(store, parent, yes, err);
    if (code != DUR_OK || !*yes || birth == 0) return code;
    code = birth_of(store, parent, &stored, &has_history, err);
    *yes = has_history && (stored == 0 || stored == birth);
    return code;
}

int dur__fallback_enqueue_start(dur_provider *store, const dur_message_row *item, dur_exists_policy policy,
                                uint64_t delay_ms, bool *existed, dur_error *err) {
    sight seen;
    int code = look(store, item->instance, &seen, err);
    if (code != DUR_OK) return code;
    *existed = seen.exists;
    if (seen.exists && policy == DUR_EXISTS_RETURN) return DUR_OK;
    if (seen.exists && (policy == DUR_EXISTS_FAIL || !seen.ended))
        return dur_error_set(err, DUR_EEXISTS, false, "enqueue_start", "instance %s already exists", item->instance);
    if (seen.exists) {
        code = dur_store_delete_instances(store, &item->instance, 1, false, NULL, err);
        if (code != DUR_OK) return code;
    }
    code = store->methods->enqueue_for_orchestrator(store, item, delay_ms, err);
    if (code == DUR_OK) dur__store_remember_start(store, item->instance);
    return code;
}

int dur__fallback_enqueue_existing(dur_provider *store, const dur_message_row *item, uint64_t delay_ms,
                                   dur_error *err) {
    sight seen;
    int code = look(store, item->instance, &seen, err);
    if (code != DUR_OK) return code;
    if (!seen.exists)
        return dur_error_set(err, DUR_ENOTFOUND, false, "enqueue_existing", "instance %s not found", item->instance);
    if (seen.ended && item->kind == DUR_WORK_QUEUE_MESSAGE)
        return dur_error_set(err, DUR_ESTATE, false, "enqueue_existing", "instance %s has ended", item->instance);
    return store->methods->enqueue_for_orchestrator(store, item, delay_ms, err);
}

/* ---- watching: a spurious return now and then -------------------------------------------------------------------- */

typedef struct fallback_watch {
    dur_watch base;
    dur_waker *waker; /* woken by dur__fallback_watch_wake alone: a sleep that counts as a sleep */
    uint64_t pause_ms;
} fallback_watch;

int dur__fallback_watch_open(dur_provider *store, dur_watch **out) {
    fallback_watch *watch = dur__xcalloc(1, sizeof(*watch));
    watch->base.store = store;
    watch->waker = dur_waker_new();
    watch->pause_ms = WATCH_MS_MIN;
    *out = &watch->base;
    if (watch->waker != NULL) return DUR_OK;
    dur__free(watch);
    *out = NULL;
    return DUR_ENOMEM;
}

int dur__fallback_watch_wait(dur_watch *base, uint64_t timeout_ms, dur_error *err) {
    fallback_watch *watch = (fallback_watch *)(void *)base;
    bool whole = timeout_ms >= watch->pause_ms;
    if (dur_waker_sleep(watch->waker, (whole ? watch->pause_ms : timeout_ms) * 1000u)) return DUR_OK;
    watch->pause_ms = 2 * watch->pause_ms < WATCH_MS_MAX ? 2 * watch->pause_ms : WATCH_MS_MAX;
    return whole ? DUR_OK : dur_error_set(err, DUR_ETIMEOUT, false, "watch_wait", "nothing was seen to change");
}

void dur__fallback_watch_wake(dur_watch *base) {
    dur_waker_wake(((fallback_watch *)(void *)base)->waker);
}

void dur__fallback_watch_close(dur_watch *base) {
    fallback_watch *watch = (fallback_watch *)(void *)base;
    dur_waker_free(watch->waker);
    dur__free(watch);
}

/* ---- statistics and dead letters --------------------------------------------------------------------------------- */

int dur__fallback_get_instance_stats(dur_provider *store, dur_arena *arena, const char *instance, bool *found,
                                     dur_instance_stats *out, dur_error *err) {
    dur_event_row *rows = NULL;
    dur_key_value *values = NULL;
    size_t count = 0, keys = 0;
    int code = store->methods->read(store, arena, instance, 0, &rows, &count, err);
    if (code == DUR_OK) code = store->methods->get_kv_all_values(store, arena, instance, &values, &keys, err);
    if (code != DUR_OK) return code;
    *found = count > 0;
    if (!*found) return DUR_OK;
    out->history_event_count = count;
    for (size_t i = 0; i < count; i++)
        out->history_size_bytes += rows[i].json.size;
    out->kv_user_key_count = keys;
    for (size_t i = 0; i < keys; i++)
        out->kv_total_value_bytes += strlen(values[i].value);
    return DUR_OK;
}

int dur__fallback_dead_letter_messages(const char *instance, size_t count, const char *reason) {
    /* They go with the ack of the turn that fetched them. */
    dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER,
             DUR__FIELDS(DUR__TEXT("instance_id", instance), DUR__NUMBER("messages", count)),
             "messages thrown away, the store keeps no dead letters: %s", reason);
    return DUR_OK;
}

int dur__fallback_dead_letter_work(dur_provider *store, const char *lock_token, const char *reason, dur_error *err) {
    int code = store->methods->ack_work_item(store, lock_token, NULL, err);
    if (code == DUR_OK)
        dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER, NULL, 0,
                 "worker item thrown away, the store keeps no dead letters: %s", reason);
    return code;
}
