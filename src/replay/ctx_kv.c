/*
 * ctx_kv.c: keys and values of the instance, as this execution sees them: the state at the end of the previous one, and
 * its own commands with their recorded stamps (R7).  Sorted by key, so that nothing depends on hash values.
 */
#include "core/limits.h"
#include "replay/engine.h"
#include <stdlib.h>

static size_t kv_search(const dur__kv *kv, const char *key, bool *found) {
    size_t low = 0, high = kv->count;
    *found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(kv->entries[middle].key, key);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void kv_put(dur__kv *kv, const char *key, const char *value, uint64_t stamp_ms) {
    bool found;
    size_t at = kv_search(kv, key, &found);
    if (!found) {
        DUR__GROW(kv->entries, kv->count, kv->room);
        char *own = dur__xstrdup(key);
        memmove(&kv->entries[at + 1], &kv->entries[at], (kv->count - at) * sizeof(*kv->entries));
        kv->count++;
        kv->entries[at].key = own;
        kv->entries[at].value = NULL;
    }
    char *copy = dur__xstrdup(value);
    dur__free(kv->entries[at].value);
    kv->entries[at].value = copy;
    kv->entries[at].stamp_ms = stamp_ms;
}

static void kv_remove(dur__kv *kv, size_t at) {
    dur__free(kv->entries[at].key);
    dur__free(kv->entries[at].value);
    kv->count--;
    memmove(&kv->entries[at], &kv->entries[at + 1], (kv->count - at) * sizeof(*kv->entries));
}

void dur__kv_load(dur__exec *exec, const dur_key_value *kv, size_t count) {
    for (size_t i = 0; i < count; i++)
        kv_put(&exec->kv, kv[i].key, kv[i].value, kv[i].last_updated_at_ms);
}

void dur__kv_free(dur__exec *exec) {
    while (exec->kv.count > 0)
        kv_remove(&exec->kv, exec->kv.count - 1);
    dur__free(exec->kv.entries);
}

void dur__kv_stamp(dur__exec *exec, const char *key, uint64_t stamp_ms) {
    bool found;
    size_t at = kv_search(&exec->kv, key, &found);
    if (found) exec->kv.entries[at].stamp_ms = stamp_ms;
}

/* ---- public ---- */

void dur_kv_set(dur_ctx *ctx, const char *key, const char *value) {
    dur__exec *exec = dur__enter(ctx, "dur_kv_set");
    if (exec == NULL) return;
    const dur__exec_limits *limits = &exec->options.limits;
    dur__need_name(exec, "dur_kv_set", "key", key, DUR__KV_KEY_BYTES_MAX);
    value = dur__need_payload(exec, "dur_kv_set", "value", value);
    if (limits->kv_value_bytes_max != 0 && strlen(value) > limits->kv_value_bytes_max)
        dur__branch_failf(exec, "dur_kv_set: the value has %zu bytes, the limit is %llu", strlen(value),
                          (unsigned long long)limits->kv_value_bytes_max);
    bool found;
    kv_search(&exec->kv, key, &found);
    if (!found && limits->kv_keys_max != 0 && exec->kv.count >= limits->kv_keys_max)
        dur__branch_failf(exec, "dur_kv_set: the instance has %zu keys, the limit is %llu", exec->kv.count,
                          (unsigned long long)limits->kv_keys_max);
    dur_event event = {
        .kind = DUR_EVENT_KEY_VALUE_SET, .key = key, .value = value, .last_updated_at_ms = exec->now_ms
    };
    if (!dur__command(exec, &event, NULL)) dur__branch_leave(exec);
    kv_put(&exec->kv, key, value, event.last_updated_at_ms);
}

const char *dur_kv_get(dur_ctx *ctx, const char *key) {
    dur__exec *exec = dur__enter(ctx, "dur_kv_get");
    if (exec == NULL) return NULL;
    if (key == NULL) dur__branch_failf(exec, "dur_kv_get: key is NULL");
    bool found;
    size_t at = kv_search(&exec->kv, key, &found);
    return found ? dur__scope_text(exec->running->scope, exec->kv.entries[at].value) : NULL;
}

void dur_kv_clear(dur_ctx *ctx, const char *key) {
    dur__exec *exec = dur__enter(ctx, "dur_kv_clear");
    if (exec == NULL) return;
    dur__need_name(exec, "dur_kv_clear", "key", key, DUR__KV_KEY_BYTES_MAX);
    dur_event event = { .kind = DUR_EVENT_KEY_VALUE_CLEARED, .key = key };
    if (!dur__command(exec, &event, NULL)) dur__branch_leave(exec);
    bool found;
    size_t at = kv_search(&exec->kv, key, &found);
    if (found) kv_remove(&exec->kv, at);
}

void dur_kv_clear_all(dur_ctx *ctx) {
    dur__exec *exec = dur__enter(ctx, "dur_kv_clear_all");
    if (exec == NULL) return;
    dur_event event = { .kind = DUR_EVENT_KEY_VALUES_CLEARED };
    if (!dur__command(exec, &event, NULL)) dur__branch_leave(exec);
    while (exec->kv.count > 0)
        kv_remove(&exec->kv, exec->kv.count - 1);
}

size_t dur_kv_count(dur_ctx *ctx) {
    dur__exec *exec = dur__enter(ctx, "dur_kv_count");
    return exec == NULL ? 0 : exec->kv.count;
}

const char *dur_kv_key(dur_ctx *ctx, size_t index) {
    dur__exec *exec = dur__enter(ctx, "dur_kv_key");
    return exec == NULL || index >= exec->kv.count ? NULL : exec->kv.entries[index].key;
}

size_t dur_kv_prune(dur_ctx *ctx, uint64_t before_ms) {
    dur__exec *exec = dur__enter(ctx, "dur_kv_prune");
    if (exec == NULL) return 0;
    size_t pruned = 0;
    for (size_t i = 0; i < exec->kv.count;) {
        if (exec->kv.entries[i].stamp_ms >= before_ms) {
            i++;
            continue;
        }
        dur_event event = { .kind = DUR_EVENT_KEY_VALUE_CLEARED, .key = exec->kv.entries[i].key };
        if (!dur__command(exec, &event, NULL)) dur__branch_leave(exec);
        kv_remove(&exec->kv, i);
        pruned++;
    }
    return pruned;
}
