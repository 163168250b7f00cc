/*
 * memory_kv.c: key-value state of the memory store, in two tables.
 *
 * `kv` is the state at the end of the last finished execution and the only source of what a fetch returns; `kv_delta`
 * holds the writes of the running execution, for clients.  With one table the snapshot of a later turn would already
 * contain values that replay has not reached.
 */
#include "provider/memory/memory_internal.h"

#include <stdlib.h>

static void value_free(dur__mem_value *value) {
    dur__free(value->key);
    dur__free(value->value);
    dur__free(value);
}

void dur__mem_kv_free(dur__map *map) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(map, &i)) != NULL;)
        value_free(entry->value);
    dur__map_free(map);
}

static void value_put(dur__map *map, const char *key, const char *text, uint64_t stamp_ms) {
    dur__mem_value *value = dur__map_get(map, key);
    if (value == NULL) {
        value = dur__xcalloc(1, sizeof(*value));
        value->key = dur__xstrdup(key);
        dur__map_put(map, value->key, value);
    }
    dur__mem_set_text(&value->value, text);
    value->stamp_ms = stamp_ms;
}

static void value_remove(dur__map *map, const char *key) {
    dur__mem_value *value = dur__map_remove(map, key);
    if (value != NULL) value_free(value);
}

void dur__mem_kv_apply(dur__mem_instance *instance, const dur_event_row *event) {
    dur__map_entry *entry;
    switch (event->kind) {
    case DUR_EVENT_KEY_VALUE_SET:
        if (event->key != NULL)
            value_put(&instance->kv_delta, event->key, event->value != NULL ? event->value : "", event->stamp_ms);
        break;
    case DUR_EVENT_KEY_VALUE_CLEARED:
        if (event->key != NULL) value_put(&instance->kv_delta, event->key, NULL, event->stamp_ms);
        break;
    case DUR_EVENT_KEY_VALUES_CLEARED:
        for (size_t i = 0; (entry = dur__map_next(&instance->kv_delta, &i)) != NULL;)
            dur__mem_set_text(&((dur__mem_value *)entry->value)->value, NULL);
        for (size_t i = 0; (entry = dur__map_next(&instance->kv, &i)) != NULL;)
            value_put(&instance->kv_delta, ((dur__mem_value *)entry->value)->key, NULL, event->stamp_ms);
        break;
    default:
        break;
    }
}

void dur__mem_kv_merge(dur__mem_instance *instance) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&instance->kv_delta, &i)) != NULL;) {
        const dur__mem_value *value = entry->value;
        if (value->value != NULL)
            value_put(&instance->kv, value->key, value->value, value->stamp_ms);
        else
            value_remove(&instance->kv, value->key);
    }
    dur__mem_kv_free(&instance->kv_delta);
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(((const dur_key_value *)a)->key, ((const dur_key_value *)b)->key);
}

static void value_copy(dur_key_value *out, dur_arena *arena, const dur__mem_value *value) {
    out->key = dur_arena_strdup(arena, value->key);
    out->value = dur_arena_strdup(arena, value->value);
    out->last_updated_at_ms = value->stamp_ms;
}

/* What `store` holds and, in front of it, `delta` (NULL: none); by key. */
static dur_key_value *kv_copy(const dur__map *store, const dur__map *delta, dur_arena *arena, size_t *count) {
    size_t room = store->count + (delta != NULL ? delta->count : 0);
    *count = 0;
    if (room == 0) return NULL;
    dur_key_value *out = dur_arena_zalloc(arena, room * sizeof(*out));
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(store, &i)) != NULL;) {
        const dur__mem_value *value = entry->value;
        if (delta == NULL || dur__map_get(delta, value->key) == NULL) value_copy(&out[(*count)++], arena, value);
    }
    for (size_t i = 0; delta != NULL && (entry = dur__map_next(delta, &i)) != NULL;) {
        const dur__mem_value *value = entry->value;
        if (value->value != NULL) value_copy(&out[(*count)++], arena, value);
    }
    qsort(out, *count, sizeof(*out), compare_keys);
    return out;
}

dur_key_value *dur__mem_kv_snapshot(const dur__mem_instance *instance, dur_arena *arena, size_t *count) {
    return kv_copy(&instance->kv, NULL, arena, count);
}

dur_key_value *dur__mem_kv_merged(const dur__mem_instance *instance, dur_arena *arena, size_t *count) {
    return kv_copy(&instance->kv, &instance->kv_delta, arena, count);
}

int dur__mem_get_kv_value(dur_provider *self, dur_arena *arena, const char *instance, const char *key,
                          const char **value, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    *value = NULL;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__way_out way_out; /* nothing is changed here */
    if (DUR__OUT_OF_MEMORY(&way_out)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory");
    }
    const dur__mem_instance *row = dur__mem_find(mem, instance);
    if (row != NULL) {
        const dur__mem_value *found = dur__map_get(&row->kv_delta, key);
        if (found == NULL) found = dur__map_get(&row->kv, key);
        if (found != NULL) *value = dur_arena_strdup(arena, found->value);
    }
    dur__way_out_end(&way_out);
    dur__mem_leave(mem);
    return DUR_OK;
}

int dur__mem_get_kv_all_values(dur_provider *self, dur_arena *arena, const char *instance, dur_key_value **out,
                               size_t *count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    *out = NULL;
    *count = 0;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__way_out way_out; /* nothing is changed here */
    if (DUR__OUT_OF_MEMORY(&way_out)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory");
    }
    const dur__mem_instance *row = dur__mem_find(mem, instance);
    if (row != NULL) *out = dur__mem_kv_merged(row, arena, count);
    dur__way_out_end(&way_out);
    dur__mem_leave(mem);
    return DUR_OK;
}
