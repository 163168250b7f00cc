/*
 * memory_admin.c: looking at the memory store from outside: lists, counts, dead letters, suspending.
 */
#include "provider/memory/memory_internal.h"

#include <stdlib.h>

/* It is no more than a start that waits. */
static bool start_pending(const dur__mem_instance *instance) {
    return !instance->has_row && instance->event_count == 0 && instance->start_count > 0;
}

static void row_start(const dur__mem_instance *instance, dur_arena *arena, dur_instance_row *out) {
    const dur__mem_message *start = dur__mem_first_start(instance);
    if (start == NULL) return;
    out->pending_start = (dur_text){ dur_arena_memdup(arena, start->json, start->json_size), start->json_size };
    out->pending_start_id = start->id;
}

static void row_fill(const dur__mem_instance *instance, dur_arena *arena, dur_instance_row *out) {
    const dur__mem_execution *execution = dur__mem_execution_find(instance, instance->current_execution);
    memset(out, 0, sizeof(*out));
    out->instance_id = dur_arena_strdup(arena, instance->id);
    out->orchestration_name = dur_arena_strdup(arena, instance->name);
    out->orchestration_version = dur_arena_strdup(arena, instance->version);
    out->current_execution_id = instance->current_execution > 0 ? instance->current_execution : 1;
    out->status = dur__mem_status(instance);
    out->output = execution != NULL ? dur_arena_strdup(arena, execution->output) : NULL;
    out->created_at_ms = instance->created_at_ms;
    out->updated_at_ms = instance->updated_at_ms;
    out->parent_instance_id = dur_arena_strdup(arena, instance->parent);
    out->birth = instance->birth;
    out->suspended = dur_arena_strdup(arena, instance->suspended);
    out->custom_status = dur_arena_strdup(arena, instance->custom_status);
    out->custom_status_version = instance->custom_status_version;
    out->owner = instance->owner != NULL ? dur_arena_strdup(arena, instance->owner->id) : NULL;
    out->start_pending = start_pending(instance);
    if (!out->start_pending) return;
    out->created_at_ms = out->updated_at_ms = instance->start_at_ms;
    row_start(instance, arena, out);
}

static bool status_matches(const dur__mem_instance *instance, dur_status asked) {
    dur_status status = dur__mem_status(instance);
    if (asked == DUR_STATUS_RUNNING && status == DUR_STATUS_CONTINUED_AS_NEW) return true;
    return asked == DUR_STATUS_NONE || status == asked;
}

/* "Name@1.2.3" is of that name? */
static bool handler_has_name(const char *handler, const char *name) {
    const char *version = handler != NULL ? strrchr(handler, '@') : NULL;
    return version != NULL && strlen(name) == (size_t)(version - handler) && strncmp(handler, name, strlen(name)) == 0;
}

/* What a start that waits will make of the instance, and its row else. */
static bool origin_matches(const dur__mem_instance *instance, const dur_instance_query *query) {
    const dur__mem_message *start = start_pending(instance) ? dur__mem_first_start(instance) : NULL;
    const char *parent = start != NULL ? start->parent : instance->parent;
    uint64_t created_at_ms = start != NULL ? instance->start_at_ms : instance->created_at_ms;
    if (query->name != NULL && start != NULL && !handler_has_name(start->handler, query->name)) return false;
    if (query->name != NULL && start == NULL && !dur__str_eq(query->name, instance->name)) return false;
    if (query->parent != NULL && !dur__str_eq(query->parent, parent)) return false;
    if (query->roots_only && parent != NULL) return false;
    if (query->created_after_ms != 0 && created_at_ms <= query->created_after_ms) return false;
    return query->created_before_ms == 0 || created_at_ms < query->created_before_ms;
}

static bool row_matches(const dur__mem_instance *instance, const dur_instance_query *query) {
    if (!instance->has_row && !start_pending(instance)) return false;
    if (!status_matches(instance, query->status)) return false;
    if (query->suspended_only && instance->suspended == NULL) return false;
    if (query->id_prefix != NULL && strncmp(instance->id, query->id_prefix, strlen(query->id_prefix)) != 0)
        return false;
    return (query->after == NULL || strcmp(instance->id, query->after) > 0) && origin_matches(instance, query);
}

static int compare_instances(const void *a, const void *b) {
    return strcmp((*(dur__mem_instance *const *)a)->id, (*(dur__mem_instance *const *)b)->id);
}

/* What matches, by id. */
static void instances_matching(dur__mem *mem, const dur_instance_query *query, dur__mem_instance **found,
                               size_t *count) {
    /* Of a family each instance is a child or a call that waits; of two calls under one id the first counts. */
    dur__mem_family *family = dur__mem_family_of(mem, query->parent);
    dur__map_entry *entry;
    *count = 0;
    if (family != NULL) {
        DUR__LIST_EACH(&family->children, at) {
            dur__mem_instance *child = DUR__CONTAINER(at, dur__mem_instance, sibling);
            if (row_matches(child, query)) found[(*count)++] = child;
        }
        DUR__LIST_EACH(&family->calls, at) {
            dur__mem_message *call = DUR__CONTAINER(at, dur__mem_message, call);
            if (start_pending(call->instance) && dur__mem_first_start(call->instance) == call &&
                row_matches(call->instance, query))
                found[(*count)++] = call->instance;
        }
    } else if (query->parent == NULL) {
        for (size_t i = 0; (entry = dur__map_next(&mem->instances, &i)) != NULL;)
            if (row_matches(entry->value, query)) found[(*count)++] = entry->value;
    }
    qsort(found, *count, sizeof(*found), compare_instances);
}

int dur__mem_list_instances(dur_provider *self, dur_arena *arena, const dur_instance_query *query,
                            dur_instance_row **out, size_t *count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_instance **found = dur__get((mem->instances.count + 1) * sizeof(dur__mem_instance *));
    dur__way_out way_out; /* nothing is changed here */
    if (found == NULL || DUR__OUT_OF_MEMORY(&way_out)) {
        dur__mem_leave(mem);
        dur__free(found);
        return DUR__NO_MEMORY(err, "memory.list");
    }
    instances_matching(mem, query, found, count);
    if (query->limit != 0 && *count > query->limit) *count = query->limit;
    *out = dur_arena_alloc(arena, (*count + 1) * sizeof(**out));
    for (size_t i = 0; i < *count; i++)
        row_fill(found[i], arena, &(*out)[i]);
    dur__way_out_end(&way_out);
    dur__mem_leave(mem);
    dur__free(found);
    return DUR_OK;
}

static int not_found(dur_error *err, const char *op, const char *instance) {
    return dur_error_set(err, DUR_ENOTFOUND, false, op, "instance %s not found", instance);
}

static const char *stuck_session(const dur__mem_instance *instance, dur_arena *arena) {
    for (dur__mem_node *node = dur__mem_tree_first(&instance->works); node != NULL; node = dur__mem_tree_next(node)) {
        const dur__mem_work *work = DUR__CONTAINER(node, dur__mem_work, by_ref);
        if (dur__mem_session_stuck(work))
            return dur_arena_format(arena, "%s in session %s of %s", work->handler, work->session->name,
                                    work->session->owner->id);
    }
    return NULL;
}

int dur__mem_get_instance(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out,
                          dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__way_out way_out; /* nothing is changed here */
    if (DUR__OUT_OF_MEMORY(&way_out)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory");
    }
    dur__mem_instance *row = dur__mem_find(mem, instance);
    bool exists = dur__mem_exists(row);
    if (exists) {
        row_fill(row, arena, out);
        out->handler = dur_arena_strdup(arena, row->handler);
        out->unserved = dur__mem_unserved(mem, row);
        out->stuck_session = stuck_session(row, arena);
        row_start(row, arena, out);
    }
    dur__way_out_end(&way_out);
    dur__mem_leave(mem);
    return exists ? DUR_OK : not_found(err, "memory.get_instance", instance);
}

int dur__mem_list_executions(dur_provider *self, dur_arena *arena, const char *instance, dur_execution_row **out,
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
    if (row != NULL && row->execution_count > 0) {
        *count = row->execution_count;
        *out = dur_arena_zalloc(arena, *count * sizeof(**out));
        for (size_t i = 0; i < *count; i++) {
            const dur__mem_execution *execution = row->executions[i];
            (*out)[i].execution_id = execution->execution_id;
            (*out)[i].status = execution->status;
            (*out)[i].output = dur_arena_strdup(arena, execution->output);
            (*out)[i].started_at_ms = execution->started_at_ms;
            (*out)[i].completed_at_ms = execution->completed_at_ms;
            (*out)[i].event_count = execution->event_count;
        }
    }
    dur__way_out_end(&way_out);
    dur__mem_leave(mem);
    return DUR_OK;
}

int dur__mem_get_system_metrics(dur_provider *self, dur_system_metrics *out, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    dur__map_entry *entry;
    (void)err;
    memset(out, 0, sizeof(*out));
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    for (size_t i = 0; (entry = dur__map_next(&mem->instances, &i)) != NULL;) {
        const dur__mem_instance *row = entry->value;
        out->total_executions += row->execution_count;
        out->total_events += row->event_count;
        out->starts_waiting += start_pending(row);
        out->suspended += start_pending(row) && row->suspended != NULL;
        if (!row->has_row) continue;
        dur_status status = dur__mem_status(row);
        out->total_instances++;
        out->completed += status == DUR_STATUS_COMPLETED;
        out->failed += status == DUR_STATUS_FAILED;
        out->running += status == DUR_STATUS_RUNNING || status == DUR_STATUS_CONTINUED_AS_NEW;
        out->suspended += row->suspended != NULL;
    }
    dur__mem_leave(mem);
    return DUR_OK;
}

int dur__mem_get_queue_depths(dur_provider *self, dur_queue_depths *out, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    dur__map_entry *entry;
    (void)err;
    memset(out, 0, sizeof(*out));
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    for (size_t i = 0; (entry = dur__map_next(&mem->messages, &i)) != NULL;) {
        const dur__mem_message *message = entry->value;
        if (!dur__mem_visible(mem, message))
            out->timer_queue++;
        else if (message->place.tree != &message->channel->given)
            out->orchestrator_queue++;
    }
    out->worker_queue = mem->works.count - mem->claims.count;
    out->dead_letters = mem->letters.count;
    dur__mem_leave(mem);
    return DUR_OK;
}

/* ---- dead letters ------------------------------------------------------------------------------------------------ */

int dur__mem_dead_letter_messages(dur_provider *self, const char *instance, const uint64_t *ids, size_t count,
                                  const char *reason, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_instance *row = dur__mem_find(mem, instance);
    dur__mem_need need = { .bytes = count * (strlen(reason) + 64) };
    if (row != NULL) dur__mem_need_letters(mem, &need, row);
    if (!dur__mem_room(mem, &need)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory.dead_letter");
    }
    for (size_t i = 0; row != NULL && i < count; i++) {
        dur__mem_message *message = dur__map_get_u64(&mem->messages, ids[i]);
        if (message == NULL || message->instance != row) continue;
        dur__mem_bury(mem, instance, reason, message->json, message->json_size);
        dur__mem_message_free(mem, message);
    }
    if (row != NULL) dur__mem_settle(mem, row);
    dur__mem_leave(mem);
    return DUR_OK;
}

int dur__mem_list_dead_letters(dur_provider *self, dur_arena *arena, uint64_t after_id, size_t limit,
                               dur_dead_letter **out, size_t *count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    dur__map_entry *entry;
    (void)err;
    *count = 0;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__way_out way_out; /* nothing is changed here */
    if (DUR__OUT_OF_MEMORY(&way_out)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory");
    }
    size_t room = limit != 0 && limit < mem->letters.count ? limit : mem->letters.count;
    *out = dur_arena_zalloc(arena, (room + 1) * sizeof(**out));
    for (size_t i = 0; *count < room && (entry = dur__map_next(&mem->letters, &i)) != NULL;) { /* in order of ids */
        const dur__mem_letter *letter = entry->value;
        if (letter->id <= after_id) continue;
        dur_dead_letter *row = &(*out)[(*count)++];
        row->id = letter->id;
        row->instance = dur_arena_strdup(arena, letter->instance);
        row->reason = dur_arena_strdup(arena, letter->reason);
        row->at_ms = letter->at_ms;
        row->json = (dur_text){ dur_arena_memdup(arena, letter->json, letter->json_size), letter->json_size };
    }
    dur__way_out_end(&way_out);
    dur__mem_leave(mem);
    return DUR_OK;
}

int dur__mem_delete_dead_letters(dur_provider *self, const uint64_t *ids, size_t count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    for (size_t i = 0; i < count; i++) {
        dur__mem_letter *letter = dur__map_remove_u64(&mem->letters, ids[i]);
        if (letter != NULL) dur__mem_letter_free(letter);
    }
    dur__mem_leave(mem);
    return DUR_OK;
}

/* ---- suspending -------------------------------------------------------------------------------------------------- */

static bool suspend_room(dur__mem *mem, const dur__mem_instance *row, const char *reason) {
    size_t bytes = 1024 + (reason != NULL ? strlen(reason) : 0) + (row->handler != NULL ? 2 * strlen(row->handler) : 0);
    if (row->lane != NULL)
        bytes += dur__mem_need_name(&row->lane->asked, row->id) + dur__mem_need_name(&row->lane->lost, row->id);
    return dur__mem_room_bytes(mem, bytes);
}

int dur__mem_set_suspended(dur_provider *self, const char *instance, const char *reason, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_instance *row = dur__mem_find(mem, instance);
    bool exists = dur__mem_exists(row), ended = exists && reason != NULL && dur__mem_ended(row);
    if (exists && !ended && !suspend_room(mem, row, reason)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory.suspend");
    }
    if (exists && !ended) {
        dur__mem_set_text(&row->suspended, reason);
        if (reason != NULL && dur__mem_leased(row) && row->lane != NULL) {
            dur__mem_lane_ask(row->lane, row->id);
        } else if (reason != NULL && dur__mem_leased(row)) {
            dur__mem_lease_uncount(mem, row);
            dur__mem_lease_lost(mem, row);
        }
        if (reason == NULL && !dur__mem_leased(row)) dur__mem_all_count(row); /* what it saw before is a reason again */
        dur__mem_changed(mem, row);
        dur__mem_settle(mem, row);
    }
    dur__mem_leave(mem);
    if (ended) return dur_error_set(err, DUR_ESTATE, false, "memory.suspend", "instance %s has ended", instance);
    return exists ? DUR_OK : not_found(err, "memory.suspend", instance);
}
