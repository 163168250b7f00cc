/*
 * memory_instance.c: instances of the memory store, their executions and events, and when they are worth fetching.
 */
#include "base/arena_internal.h"
#include "base/assert.h"
#include "provider/memory/memory_internal.h"

#include <stdlib.h>

void dur__mem_set_text(char **at, const char *text) {
    char *copy = dur__xstrdup(text);
    dur__free(*at);
    *at = copy;
}

/* ---- instances ------------------------------------------------------------------------------------------------- */

dur__mem_instance *dur__mem_find(dur__mem *mem, const char *id) {
    return id != NULL ? dur__map_get(&mem->instances, id) : NULL;
}

dur__mem_instance *dur__mem_make(dur__mem *mem, const char *id) {
    dur__mem_instance *instance = dur__mem_find(mem, id);
    if (instance != NULL) return instance;
    instance = dur__xcalloc(1, sizeof(*instance));
    instance->id = dur__xstrdup(id);
    dur__list_init(&instance->accepted);
    dur__map_put(&mem->instances, instance->id, instance);
    return instance;
}

bool dur__mem_exists(const dur__mem_instance *instance) {
    return instance != NULL && (instance->has_row || instance->event_count > 0 || instance->start_count > 0);
}

dur_status dur__mem_status(const dur__mem_instance *instance) {
    const dur__mem_execution *execution = dur__mem_execution_find(instance, instance->current_execution);
    return execution == NULL || execution->status == DUR_STATUS_NONE ? DUR_STATUS_RUNNING : execution->status;
}

bool dur__mem_ended(const dur__mem_instance *instance) {
    dur_status status = dur__mem_status(instance);
    return status == DUR_STATUS_COMPLETED || status == DUR_STATUS_FAILED;
}

bool dur__mem_finished(const dur__mem_instance *instance) {
    return dur__mem_ended(instance) && instance->start_count == 0;
}

dur__mem_family *dur__mem_family_of(dur__mem *mem, const char *parent) {
    return parent != NULL ? dur__map_get(&mem->families, parent) : NULL;
}

dur__mem_family *dur__mem_family_make(dur__mem *mem, const char *parent) {
    dur__mem_family *family = dur__mem_family_of(mem, parent);
    if (family != NULL) return family;
    family = dur__xcalloc(1, sizeof(*family));
    family->parent = dur__xstrdup(parent);
    dur__list_init(&family->children);
    dur__list_init(&family->calls);
    dur__map_put(&mem->families, family->parent, family);
    return family;
}

static void family_join(dur__mem *mem, dur__mem_instance *instance) {
    if (instance->parent == NULL) return;
    dur__list_push(&dur__mem_family_make(mem, instance->parent)->children, &instance->sibling);
}

void dur__mem_family_leave(dur__mem *mem, const char *parent, dur__link *member) {
    dur__mem_family *family = dur__mem_family_of(mem, parent);
    dur__list_unlink(member);
    if (family == NULL || !dur__list_empty(&family->children) || !dur__list_empty(&family->calls)) return;
    dur__map_remove(&mem->families, family->parent);
    dur__free(family->parent);
    dur__free(family);
}

void dur__mem_row(dur__mem *mem, dur__mem_instance *instance, const dur_execution_metadata *metadata) {
    if (metadata->orchestration_name == NULL || metadata->orchestration_version == NULL) return;
    if (!instance->has_row) {
        instance->has_row = true;
        instance->created_at_ms = mem->now_ms;
        dur__mem_set_text(&instance->parent, metadata->parent_instance_id); /* immutable from here on */
        instance->birth = metadata->birth;
        family_join(mem, instance);
    }
    dur__mem_set_text(&instance->name, metadata->orchestration_name);
    dur__mem_set_text(&instance->version, metadata->orchestration_version);
}

void dur__mem_handler(dur__mem_instance *instance, const dur_execution_metadata *metadata) {
    if (metadata->status == DUR_STATUS_COMPLETED || metadata->status == DUR_STATUS_FAILED) {
        dur__mem_set_text(&instance->handler, NULL);
    } else if (metadata->orchestration_name != NULL && metadata->orchestration_version != NULL) {
        dur_arena *arena = dur__arena_xnew();
        dur__mem_set_text(&instance->handler,
                          dur_handler_key(arena, metadata->orchestration_name, metadata->orchestration_version));
        dur_arena_free(arena);
    }
}

void dur__mem_changed(dur__mem *mem, const dur__mem_instance *instance) {
    dur__mem_point *point = mem->points.count > 0 ? dur__map_get(&mem->points, instance->id) : NULL;
    if (point == NULL) return;
    point->changes++;
    dur__cond_broadcast(&point->changed);
}

static void instance_free(dur__mem *mem, dur__mem_instance *instance) {
    DUR_ASSERT(instance->message_count == 0 && instance->works.count == 0 && !dur__mem_leased(instance));
    dur__mem_tree_remove(&instance->place);
    dur__mem_family_leave(mem, instance->parent, &instance->sibling);
    for (size_t i = 0; i < instance->execution_count; i++)
        dur__mem_execution_free(instance->executions[i]);
    dur__free(instance->executions);
    dur__mem_kv_free(&instance->kv);
    dur__mem_kv_free(&instance->kv_delta);
    dur__mem_accepted_free(instance);
    dur__map_free(&instance->queues);
    dur__map_remove(&mem->instances, instance->id);
    dur__free(instance->name);
    dur__free(instance->version);
    dur__free(instance->parent);
    dur__free(instance->handler);
    dur__free(instance->suspended);
    dur__free(instance->custom_status);
    dur__free(instance->id);
    dur__free(instance);
}

static void message_erase(dur__mem *mem, dur__mem_message *message, void *arg) {
    uint64_t *count = arg;
    (*count)++;
    dur__mem_message_free(mem, message);
}

void dur__mem_erase(dur__mem *mem, dur__mem_instance *instance, dur_delete_result *count) {
    uint64_t messages = 0;
    if (dur__mem_leased(instance)) dur__mem_lease_lost(mem, instance);
    dur__mem_each_message(mem, instance, message_erase, &messages);
    dur__mem_node *node;
    while ((node = dur__mem_tree_first(&instance->works)) != NULL) {
        dur__mem_work_drop(mem, DUR__CONTAINER(node, dur__mem_work, by_ref));
        messages++;
    }
    dur__mem_doubt_for_good(mem, instance->id, 0);
    dur__mem_doubt_for_good(mem, instance->id, DUR__MEM_LOCAL);
    count->instances++;
    count->executions += instance->execution_count;
    count->events += instance->event_count;
    count->queue_messages += messages;
    dur__mem_changed(mem, instance);
    instance_free(mem, instance);
}

/* ---- when to fetch --------------------------------------------------------------------------------------------- */

static dur__mem_bucket *bucket_of(dur__mem *mem, const dur__mem_instance *instance) {
    const dur__mem_execution *execution = dur__mem_execution_find(instance, instance->current_execution);
    bool look = instance->look != DUR__MEM_LOOK_NONE; /* what is written then needs no handler: any node may */
    bool has_pin = execution != NULL && execution->has_pin && !look;
    dur_semver pin = has_pin ? execution->pin : (dur_semver){ 0, 0, 0 };
    /* One that does not exist has messages that a fetch buries, whoever fetches. */
    const char *handler = instance->handler != NULL && !look && dur__mem_exists(instance) ? instance->handler : "";
    dur__mem_bucket *bucket = mem->buckets;
    for (; bucket != NULL; bucket = bucket->next)
        if (bucket->lost == look && bucket->has_pin == has_pin && bucket->pin.major == pin.major &&
            bucket->pin.minor == pin.minor && bucket->pin.patch == pin.patch && strcmp(bucket->handler, handler) == 0)
            return bucket;
    bucket = dur__xcalloc(1, sizeof(*bucket));
    bucket->handler = dur__xstrdup(handler);
    bucket->lost = look;
    bucket->has_pin = has_pin;
    bucket->pin = pin;
    bucket->next = mem->buckets;
    mem->buckets = bucket;
    return bucket;
}

static void place_leased(dur__mem *mem, dur__mem_instance *instance) {
    uint64_t due = instance->lane != NULL ? dur__mem_next_reason(mem, instance) : DUR_NEVER;
    if (instance->owner != NULL) {
        if (due != DUR_NEVER) dur__mem_tree_add(&mem->wall, &instance->place, due, ++mem->last_place);
        return;
    }
    /* One node for two clocks: look again when the message would be due if the wall clock did not jump. */
    uint64_t when = instance->expires_boot_ms;
    if (due != DUR_NEVER && due - mem->now_ms < when - mem->boot_ms) when = mem->boot_ms + (due - mem->now_ms);
    dur__mem_tree_add(&mem->boot, &instance->place, when, ++mem->last_place);
}

void dur__mem_place(dur__mem *mem, dur__mem_instance *instance) {
    const dur__mem_tree *was = instance->place.tree;
    dur__mem_tree_remove(&instance->place);
    if (dur__mem_leased(instance)) {
        place_leased(mem, instance);
        return;
    }
    if (instance->suspended != NULL || (instance->message_count == 0 && instance->look == DUR__MEM_LOOK_NONE)) return;
    if (instance->not_before_ms > mem->now_ms) {
        dur__mem_tree_add(&mem->wall, &instance->place, instance->not_before_ms, ++mem->last_place);
        return;
    }
    instance->not_before_ms = 0; /* over, also if the clock goes back */
    const dur__mem_message *first =
        dur__mem_exists(instance) ? dur__mem_first_reason(mem, instance) : dur__mem_first_orphan(mem, instance);
    if (first != NULL || instance->look != DUR__MEM_LOOK_NONE) {
        bool suspect = dur__mem_suspect(instance) && instance->look == DUR__MEM_LOOK_NONE;
        dur__mem_tree *ready = &bucket_of(mem, instance)->ready[suspect];
        bool earlier = first != NULL && (instance->look == DUR__MEM_LOOK_NONE || first->order_ms <= instance->look_ms);
        dur__mem_tree_add(ready, &instance->place, earlier ? first->order_ms : instance->look_ms,
                          earlier ? first->id : ++mem->last_place);
        if (was != ready) mem->stamp++;
        return;
    }
    uint64_t due = dur__mem_next_reason(mem, instance);
    if (due != DUR_NEVER) dur__mem_tree_add(&mem->wall, &instance->place, due, ++mem->last_place);
}

void dur__mem_settle(dur__mem *mem, dur__mem_instance *instance) {
    if (!instance->has_row && instance->execution_count == 0 && instance->message_count == 0 &&
        instance->works.count == 0 && instance->suspended == NULL && !dur__mem_leased(instance))
        instance_free(mem, instance);
    else
        dur__mem_place(mem, instance);
}

/* ---- executions and events --------------------------------------------------------------------------------------- */

/* The position of the first execution that is not below execution_id. */
static size_t execution_position(const dur__mem_instance *instance, uint64_t execution_id) {
    size_t low = 0, high = instance->execution_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (instance->executions[middle]->execution_id < execution_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

dur__mem_execution *dur__mem_execution_find(const dur__mem_instance *instance, uint64_t execution_id) {
    size_t at = execution_position(instance, execution_id);
    if (at == instance->execution_count || instance->executions[at]->execution_id != execution_id) return NULL;
    return instance->executions[at];
}

dur__mem_execution *dur__mem_execution_make(dur__mem *mem, dur__mem_instance *instance, uint64_t execution_id) {
    dur__mem_execution *execution = dur__mem_execution_find(instance, execution_id);
    if (execution != NULL) return execution;
    if (instance->execution_count == instance->execution_room) {
        instance->execution_room = instance->execution_room > 0 ? 2 * instance->execution_room : 1;
        instance->executions =
            dur__xrealloc(instance->executions, instance->execution_room * sizeof(*instance->executions));
    }
    execution = dur__xcalloc(1, sizeof(*execution));
    execution->execution_id = execution_id;
    execution->status = DUR_STATUS_RUNNING;
    execution->started_at_ms = mem->now_ms;
    size_t at = execution_position(instance, execution_id);
    memmove(&instance->executions[at + 1], &instance->executions[at],
            (instance->execution_count - at) * sizeof(*instance->executions));
    instance->executions[at] = execution;
    instance->execution_count++;
    if (execution_id > instance->current_execution) instance->current_execution = execution_id;
    return execution;
}

void dur__mem_execution_free(dur__mem_execution *execution) {
    for (size_t i = 0; i < execution->event_count; i++)
        dur__free(execution->events[i].json);
    dur__free(execution->events);
    dur__free(execution->output);
    dur__free(execution);
}

uint64_t dur__mem_last_event(const dur__mem_execution *execution) {
    if (execution == NULL || execution->event_count == 0) return 0;
    return execution->events[execution->event_count - 1].event_id;
}

static size_t event_position(const dur__mem_execution *execution, uint64_t event_id) {
    size_t low = 0, high = execution->event_count;
    if (high > 0 && execution->events[high - 1].event_id < event_id) return high; /* the common case: at the end */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (execution->events[middle].event_id < event_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool event_exists(const dur__mem_execution *execution, uint64_t event_id) {
    if (execution == NULL) return false;
    size_t at = event_position(execution, event_id);
    return at < execution->event_count && execution->events[at].event_id == event_id;
}

static int compare_u64(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The ids of the rows, sorted, without a double: a run that ascends (all that the engine writes) needs no copy. */
static uint64_t event_double(const dur_event_row *events, size_t count) {
    bool ascends = true;
    for (size_t i = 1; i < count && ascends; i++)
        ascends = events[i - 1].event_id < events[i].event_id;
    if (ascends) return 0;
    uint64_t *ids = dur__xmalloc(count * sizeof(*ids));
    uint64_t twice = 0;
    for (size_t i = 0; i < count; i++)
        ids[i] = events[i].event_id;
    qsort(ids, count, sizeof(*ids), compare_u64);
    for (size_t i = 1; i < count && twice == 0; i++)
        if (ids[i - 1] == ids[i]) twice = ids[i];
    dur__free(ids);
    return twice;
}

int dur__mem_events_check(const dur__mem_execution *execution, const dur_event_row *events, size_t count,
                          dur_error *err) {
    uint64_t twice = event_double(events, count);
    for (size_t i = 0; i < count; i++) {
        DUR_ASSERT(events[i].event_id != 0); /* the dur_store_ functions refuse such */
        if (twice == 0 && event_exists(execution, events[i].event_id)) twice = events[i].event_id;
    }
    if (twice != 0)
        return dur_error_set(err, DUR_ECONFLICT, false, "memory.append", "duplicate event %llu",
                             (unsigned long long)twice);
    return DUR_OK;
}

void dur__mem_events_add(dur__mem_instance *instance, dur__mem_execution *execution, const dur_event_row *events,
                         size_t count) {
    if (execution->event_count + count > execution->event_room) {
        size_t room = 2 * execution->event_room;
        if (execution->event_count + count > room) room = execution->event_count + count;
        execution->events = dur__xrealloc(execution->events, room * sizeof(*execution->events));
        execution->event_room = room;
    }
    for (size_t i = 0; i < count; i++) {
        size_t at = event_position(execution, events[i].event_id);
        memmove(&execution->events[at + 1], &execution->events[at],
                (execution->event_count - at) * sizeof(*execution->events));
        dur__mem_event *event = &execution->events[at];
        event->event_id = events[i].event_id;
        event->json_size = events[i].json.size;
        event->json = dur__xmalloc(event->json_size + 1);
        if (event->json_size > 0) memcpy(event->json, events[i].json.data, event->json_size);
        event->json[event->json_size] = '\0';
        execution->event_count++;
        execution->event_bytes += event->json_size;
    }
    instance->event_count += count;
}

dur_event_row *dur__mem_events_copy(const dur__mem_execution *execution, dur_arena *arena, size_t *count) {
    *count = execution != NULL ? execution->event_count : 0;
    if (*count == 0) return NULL;
    dur_event_row *rows = dur_arena_zalloc(arena, *count * sizeof(*rows));
    for (size_t i = 0; i < *count; i++) {
        const dur__mem_event *event = &execution->events[i];
        rows[i].event_id = event->event_id;
        rows[i].json = (dur_text){ dur_arena_memdup(arena, event->json, event->json_size), event->json_size };
    }
    return rows;
}
