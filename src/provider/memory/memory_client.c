/*
 * memory_client.c: what clients ask of the memory store: starts, messages with ids, status, watching.
 */
#include "base/assert.h"
#include "provider/memory/memory_internal.h"

#include <stdlib.h>

/* ---- message ids ------------------------------------------------------------------------------------------------- */

static void accepted_drop(dur__mem_instance *instance, dur__mem_accepted *accepted) {
    dur__map_remove(&instance->accepted_ids, accepted->text);
    dur__list_unlink(&accepted->link);
    dur__free(accepted);
}

void dur__mem_accepted_free(dur__mem_instance *instance) {
    dur__link *link;
    while ((link = dur__list_first(&instance->accepted)) != NULL)
        accepted_drop(instance, DUR__CONTAINER(link, dur__mem_accepted, link));
    dur__map_free(&instance->accepted_ids);
}

/* Execution `ended` is over: ids accepted two executions before it, or earlier, and a day ago are forgotten. */
void dur__mem_accepted_forget(dur__mem *mem, dur__mem_instance *instance, uint64_t ended) {
    dur__link *link;
    while ((link = dur__list_first(&instance->accepted)) != NULL) {
        dur__mem_accepted *accepted = DUR__CONTAINER(link, dur__mem_accepted, link);
        if (accepted->execution_id + 2 > ended || mem->boot_ms - accepted->boot_ms < DUR__MEM_MESSAGE_ID_MS) return;
        accepted_drop(instance, accepted);
    }
}

static void accepted_add(dur__mem *mem, dur__mem_instance *instance, const char *message_id) {
    size_t size = strlen(message_id) + 1;
    dur__mem_accepted *accepted = dur__xcalloc(1, sizeof(*accepted) + size);
    memcpy(accepted->text, message_id, size);
    accepted->execution_id = instance->current_execution > 0 ? instance->current_execution : 1;
    accepted->boot_ms = mem->boot_ms;
    dur__map_put(&instance->accepted_ids, accepted->text, accepted);
    dur__list_push(&instance->accepted, &accepted->link);
}

/* ---- enqueueing -------------------------------------------------------------------------------------------------- */

static int message_room(dur__mem *mem, const dur_message_row *item, dur_error *err) {
    dur__mem_need need = { .bytes = 0 };
    dur__mem_need_message(mem, &need, item);
    return dur__mem_room(mem, &need) ? DUR_OK : DUR__NO_MEMORY(err, "memory.enqueue");
}

int dur__mem_enqueue_for_orchestrator(dur_provider *self, const dur_message_row *item, uint64_t delay_ms,
                                      dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    int code = message_room(mem, item, err);
    if (code == DUR_OK) dur__mem_enqueue(mem, item, delay_ms);
    dur__mem_leave(mem);
    return code;
}

/* Make room for a start, or say why there is none. */
static int start_existing(dur__mem *mem, dur__mem_instance *instance, const dur_message_row *item, dur_exists_policy policy,
                          bool *done, dur_error *err) {
    dur_delete_result ignored = { 0, 0, 0, 0 };
    const char *running = NULL;
    int code = DUR_OK;
    *done = policy == DUR_EXISTS_RETURN;
    if (*done) return DUR_OK;
    if (policy != DUR_EXISTS_REPLACE_FINISHED)
        return dur_error_set(err, DUR_EEXISTS, false, "memory.start", "instance %s already exists", instance->id);
    if (!dur__mem_room_bytes(mem, 4 * (mem->instances.count + 8) * sizeof(void *)))
        return DUR__NO_MEMORY(err, "memory.start");
    if (!dur__mem_tree_finished(mem, instance, &running))
        return dur_error_set(err, DUR_EEXISTS, false, "memory.start", "instance %s is running", running);
    code = dur__mem_erase_tree(mem, instance, item, &ignored, err);
    return code;
}

static int start(dur__mem *mem, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms, bool *existed,
                 dur_error *err) {
    bool done = false;
    int code = DUR_OK;
    dur__mem_instance *instance = dur__mem_find(mem, item->instance);
    *existed = dur__mem_exists(instance);
    if (*existed)
        code = start_existing(mem, instance, item, policy, &done, err);
    else
        code = message_room(mem, item, err);
    if (code == DUR_OK && !done) {
        dur__mem_enqueue(mem, item, delay_ms);
        instance = dur__mem_find(mem, item->instance);
        dur__mem_changed(mem, instance);
    }
    return code;
}

int dur__mem_enqueue_start(dur_provider *self, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms,
                           bool *existed, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    int code = start(mem, item, policy, delay_ms, existed, err);
    dur__mem_leave(mem);
    return code;
}

int dur__mem_enqueue_starts(dur_provider *self, dur_start_request *starts, size_t count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    for (size_t i = 0; i < count; i++)
        (void)start(mem, starts[i].item, starts[i].policy, starts[i].delay_ms, &starts[i].existed, &starts[i].error);
    dur__mem_leave(mem);
    return DUR_OK;
}

static int existing_check(const dur__mem_instance *instance, const dur_message_row *item, dur_error *err) {
    if (!dur__mem_exists(instance))
        return dur_error_set(err, DUR_ENOTFOUND, false, "memory.enqueue", "instance %s not found", item->instance);
    if (item->message_id != NULL && dur__map_get(&instance->accepted_ids, item->message_id) != NULL)
        return dur_error_set(err, DUR_EDUPLICATE, false, "memory.enqueue", "message %s was accepted before",
                             item->message_id);
    if (item->kind == DUR_WORK_QUEUE_MESSAGE && dur__mem_finished(instance))
        return dur_error_set(err, DUR_ESTATE, false, "memory.enqueue", "instance %s has ended", item->instance);
    return DUR_OK;
}

int dur__mem_enqueue_existing(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_instance *instance = dur__mem_find(mem, item->instance);
    int code = existing_check(instance, item, err);
    if (code == DUR_OK) code = message_room(mem, item, err);
    if (code == DUR_OK && item->message_id != NULL && !dur__map_reserve(&instance->accepted_ids, 1))
        code = DUR__NO_MEMORY(err, "memory.enqueue");
    if (code == DUR_OK) {
        if (item->message_id != NULL) accepted_add(mem, instance, item->message_id);
        dur__mem_enqueue(mem, item, delay_ms);
    }
    dur__mem_leave(mem);
    return code;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

int dur__mem_get_custom_status(dur_provider *self, dur_arena *arena, const char *instance, uint64_t last_seen,
                               bool *changed, const char **status, uint64_t *version, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    *changed = false;
    *status = NULL;
    *version = 0;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__way_out way_out; /* nothing is changed here */
    if (DUR__OUT_OF_MEMORY(&way_out)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory");
    }
    const dur__mem_instance *row = dur__mem_find(mem, instance);
    if (row != NULL && row->custom_status_version > last_seen) {
        *changed = true;
        *status = dur_arena_strdup(arena, row->custom_status);
        *version = row->custom_status_version;
    }
    dur__way_out_end(&way_out);
    dur__mem_leave(mem);
    return DUR_OK;
}

int dur__mem_get_instance_stats(dur_provider *self, dur_arena *arena, const char *instance, bool *found,
                                dur_instance_stats *out, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    memset(out, 0, sizeof(*out));
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__way_out way_out; /* nothing is changed here */
    if (DUR__OUT_OF_MEMORY(&way_out)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory");
    }
    const dur__mem_instance *row = dur__mem_find(mem, instance);
    *found = dur__mem_exists(row);
    if (*found) {
        const dur__mem_execution *execution = dur__mem_execution_find(row, row->current_execution);
        size_t keys = 0;
        const dur_key_value *values = dur__mem_kv_merged(row, arena, &keys);
        out->history_event_count = execution != NULL ? execution->event_count : 0;
        out->history_size_bytes = execution != NULL ? execution->event_bytes : 0;
        out->queue_pending_count = row->queue_message_count;
        out->kv_user_key_count = keys;
        for (size_t i = 0; i < keys; i++)
            out->kv_total_value_bytes += strlen(values[i].value);
    }
    dur__way_out_end(&way_out);
    dur__mem_leave(mem);
    return DUR_OK;
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

typedef struct memory_watch {
    dur_watch base;
    dur__mem *mem;
    dur__mem_point *point;
    uint64_t seen;
    bool woken;
} memory_watch;

int dur__mem_watch_open(dur_provider *self, const char *instance, dur_watch **out, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    if (!dur__mem_room_bytes(mem, strlen(instance)) || !dur__map_reserve(&mem->points, 1)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory.watch");
    }
    memory_watch *watch = dur__xcalloc(1, sizeof(*watch));
    dur__mem_point *point = dur__map_get(&mem->points, instance);
    if (point == NULL) {
        point = dur__xcalloc(1, sizeof(*point));
        point->instance = dur__xstrdup(instance);
        dur__cond_init(&point->changed);
        dur__map_put(&mem->points, point->instance, point);
    }
    point->watchers++;
    watch->base.store = self;
    watch->mem = mem;
    watch->point = point;
    watch->seen = point->changes;
    dur__mem_leave(mem);
    *out = &watch->base;
    return DUR_OK;
}

int dur__mem_watch_wait(dur_watch *base, uint64_t timeout_ms, dur_error *err) {
    memory_watch *watch = (memory_watch *)(void *)base;
    uint64_t deadline = dur__mem_deadline(timeout_ms);
    if (!dur__mem_enter(watch->mem)) return DUR__NO_MEMORY(err, "memory");
    while (watch->seen == watch->point->changes && !watch->woken)
        if (!dur__mem_sleep(watch->mem, &watch->point->changed, deadline)) break;
    bool changed = watch->seen != watch->point->changes || watch->woken;
    watch->seen = watch->point->changes;
    watch->woken = false;
    dur__mem_leave(watch->mem);
    return changed ? DUR_OK : dur_error_set(err, DUR_ETIMEOUT, false, "memory.watch", "nothing changed");
}

void dur__mem_watch_wake(dur_watch *base) {
    memory_watch *watch = (memory_watch *)(void *)base;
    dur__mem_enter_anyway(watch->mem);
    watch->woken = true;
    dur__cond_broadcast(&watch->point->changed);
    dur__mem_leave(watch->mem);
}

void dur__mem_watch_close(dur_watch *base) {
    memory_watch *watch = (memory_watch *)(void *)base;
    dur__mem_point *point = watch->point;
    dur__mem_enter_anyway(watch->mem);
    bool last = --point->watchers == 0;
    if (last) dur__map_remove(&watch->mem->points, point->instance);
    dur__mem_leave(watch->mem);
    if (last) {
        dur__cond_destroy(&point->changed);
        dur__free(point->instance);
        dur__free(point);
    }
    dur__free(watch);
}
