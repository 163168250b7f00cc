/*
 * memory_lease.c: locks on instances: taking, keeping, losing and giving them back.
 */
#include "base/assert.h"
#include "provider/memory/memory_internal.h"

#include <stdlib.h>

bool dur__mem_leased(const dur__mem_instance *instance) {
    return instance->token[0] != '\0';
}

dur__mem_instance *dur__mem_lease_find(dur__mem *mem, const char *token) {
    return token != NULL && token[0] != '\0' ? dur__map_get(&mem->leases, token) : NULL;
}

void dur__mem_lease_hold(dur__mem *mem, dur__mem_instance *instance, dur__mem_owner *owner, dur__mem_lane *lane) {
    (void)mem;
    if (owner != NULL && instance->owner != owner) {
        dur__list_unlink(&instance->by_owner);
        dur__list_push(&owner->leases, &instance->by_owner);
        instance->owner = owner;
    }
    if (lane != NULL && instance->lane != lane) {
        dur__list_unlink(&instance->by_lane);
        dur__list_unlink(&instance->told);
        dur__list_push(&lane->leases, &instance->by_lane);
        instance->lane = lane;
        dur__mem_lane_tell(lane, instance); /* it may have come from a lane that did not hand everything out */
    }
}

static void look_for_local(const dur__mem *mem, dur__mem_instance *instance) {
    if (instance->open == 0 || dur__mem_ended(instance) || instance->look != DUR__MEM_LOOK_NONE) return;
    instance->look = DUR__MEM_LOOK;
    instance->look_ms = mem->came_ms;
}

/* Its holder's commit takes the reason to look away again. */
void dur__mem_lease_end(dur__mem *mem, dur__mem_instance *instance, uint64_t seen_id, uint64_t seen_now_ms) {
    DUR_ASSERT(dur__mem_leased(instance));
    look_for_local(mem, instance);
    dur__map_remove(&mem->leases, instance->token);
    instance->token[0] = '\0';
    instance->owner = NULL;
    instance->lane = NULL;
    dur__list_unlink(&instance->by_owner);
    dur__list_unlink(&instance->by_lane);
    dur__list_unlink(&instance->told);
    dur__mem_take_back(mem, instance, seen_id, seen_now_ms);
}

static void message_uncount(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)mem;
    (void)arg;
    dur__mem_uncount(message);
}

void dur__mem_lease_uncount(dur__mem *mem, dur__mem_instance *instance) {
    if (instance->acquisitions == 0) return; /* a commit has said it all */
    instance->acquisitions--;
    dur__mem_each_given(mem, instance, message_uncount, NULL);
}

void dur__mem_lease_lost(dur__mem *mem, dur__mem_instance *instance) {
    if (instance->lane != NULL) dur__mem_lane_lost(instance->lane, instance->id);
    dur__mem_lease_end(mem, instance, 0, 0);
}

/* ---- fetch ------------------------------------------------------------------------------------------------------ */

static int version_compare(dur_semver a, dur_semver b) {
    if (a.major != b.major) return a.major < b.major ? -1 : 1;
    if (a.minor != b.minor) return a.minor < b.minor ? -1 : 1;
    return a.patch < b.patch ? -1 : a.patch > b.patch;
}

static bool bucket_passes(const dur__mem_bucket *bucket, const dur_fetch *how) {
    const dur_capability_filter *filter = how->filter;
    if (bucket->lost) return true;
    if (!dur_handler_passes(how->handlers, bucket->handler)) return false;
    if (filter == NULL) return true;
    if (filter->count == 0) return false;
    if (!bucket->has_pin) return true;
    return version_compare(bucket->pin, filter->ranges[0].min) >= 0 &&
           version_compare(bucket->pin, filter->ranges[0].max) <= 0;
}

/* Suspects are few: the first of those that have crashed alone least often. */
static dur__mem_node *suspect_first(const dur__mem_tree *suspects) {
    dur__mem_node *first = NULL;
    for (dur__mem_node *node = dur__mem_tree_first(suspects); node != NULL; node = dur__mem_tree_next(node)) {
        if (first == NULL || DUR__CONTAINER(node, dur__mem_instance, place)->crashes_alone <
                                 DUR__CONTAINER(first, dur__mem_instance, place)->crashes_alone)
            first = node;
    }
    return first;
}

static bool node_before(const dur__mem_node *a, const dur__mem_node *b, dur_fetch_kind kind) {
    uint32_t a_alone = DUR__CONTAINER(a, const dur__mem_instance, place)->crashes_alone;
    uint32_t b_alone = DUR__CONTAINER(b, const dur__mem_instance, place)->crashes_alone;
    if (kind == DUR_FETCH_SUSPECT && a_alone != b_alone) return a_alone < b_alone;
    return dur__mem_before(a->hi, a->lo, b->hi, b->lo);
}

static bool kind_wants(dur_fetch_kind kind, int suspects) {
    return kind == DUR_FETCH_ANY || (kind == DUR_FETCH_SUSPECT) == (suspects != 0);
}

/* The oldest instance that the caller may take; one that time has made uninteresting is put where it belongs. */
static dur__mem_instance *ready_first(dur__mem *mem, const dur_fetch *how) {
    dur__mem_node *first = NULL;
    for (dur__mem_bucket *bucket = mem->buckets; bucket != NULL; bucket = bucket->next) {
        if (!bucket_passes(bucket, how)) continue;
        for (int suspects = 0; suspects <= 1; suspects++) {
            if (!kind_wants(how->kind, suspects)) continue;
            dur__mem_node *node = how->kind == DUR_FETCH_SUSPECT ? suspect_first(&bucket->ready[1])
                                                                 : dur__mem_tree_first(&bucket->ready[suspects]);
            if (node != NULL && (first == NULL || node_before(node, first, how->kind))) first = node;
        }
    }
    return first != NULL ? DUR__CONTAINER(first, dur__mem_instance, place) : NULL;
}

static dur__mem_instance *candidate(dur__mem *mem, const dur_fetch *how) {
    dur__mem_instance *instance;
    while ((instance = ready_first(mem, how)) != NULL) {
        if (!dur__mem_exists(instance)) {
            dur__mem_need need = { .bytes = 0 };
            dur__mem_need_letters(mem, &need, instance);
            if (!dur__mem_room(mem, &need)) return NULL;
            dur__mem_bury_orphans(mem, instance);
            dur__mem_settle(mem, instance);
        } else if (instance->look == DUR__MEM_LOOK_NONE &&
                   dur__mem_first_reason(mem, instance) == NULL) { /* the wall clock went back */
            dur__mem_place(mem, instance);
        } else {
            return instance;
        }
    }
    return NULL;
}

/* A look changes nothing: what turns out to be nobody's is put away by the fetch that follows. */
bool dur__mem_fetchable(dur__mem *mem, const dur_fetch *how) {
    return ready_first(mem, how) != NULL;
}

/* 1 more than the crashes alone of the suspect that a fetch would find; 0: none. */
uint32_t dur__mem_suspect_first(dur__mem *mem, const dur_fetch *how) {
    const dur__mem_instance *first = ready_first(mem, how);
    return first != NULL ? first->crashes_alone + 1 : 0;
}

static void item_fill(dur__mem *mem, dur__mem_instance *instance, const dur_fetch *how, const dur__mem_batch *batch,
                      dur_arena *arena, dur_orchestration_item *out) {
    const dur__mem_execution *execution = dur__mem_execution_find(instance, instance->current_execution);
    out->instance = dur_arena_strdup(arena, instance->id);
    out->lock_token = dur_arena_strdup(arena, instance->token);
    out->orchestration_name = dur_arena_strdup(arena, instance->name);
    out->version = dur_arena_strdup(arena, instance->version);
    out->execution_id = instance->current_execution > 0 ? instance->current_execution : 1;
    out->last_event_id = dur__mem_last_event(execution);
    out->acquisitions = instance->acquisitions;
    out->crashes = instance->crashes;
    out->crashes_alone = instance->crashes_alone - dur__mem_doubts(mem, instance->id, 0);
    if (!how->without_history) {
        out->history = dur__mem_events_copy(execution, arena, &out->history_count);
        out->kv = dur__mem_kv_snapshot(instance, arena, &out->kv_count);
    }
    dur_fetched_message *messages = dur_arena_zalloc(arena, (batch->count + 1) * sizeof(*messages));
    for (size_t i = 0; i < batch->count; i++) {
        messages[i] = dur__mem_message_copy(batch->items[i], arena);
        if (messages[i].attempt_count > out->attempt_count) out->attempt_count = messages[i].attempt_count;
    }
    out->messages = messages;
    out->message_count = batch->count;
    uint64_t *works = dur_arena_alloc(arena, (instance->works.count + 1) * sizeof(*works));
    for (dur__mem_node *node = dur__mem_tree_first(&instance->works); node != NULL; node = dur__mem_tree_next(node))
        if (DUR__CONTAINER(node, dur__mem_work, by_ref)->execution_id == out->execution_id)
            works[out->work_count++] = node->hi;
    out->works = works;
    out->works_known = true;
    out->work_lost = instance->look != DUR__MEM_LOOK_NONE;
    const dur__mem_message *start =
        instance->has_row || instance->event_count > 0 ? NULL : dur__mem_first_start(instance);
    out->start_later = start != NULL && start->place.tree != &start->channel->given;
}

bool dur__mem_fetch_one(dur__mem *mem, dur__mem_lane *lane, const dur_fetch *how, dur_arena *arena,
                        dur_orchestration_item *out) {
    dur__mem_batch batch = { NULL, 0, 0 };
    memset(out, 0, sizeof(*out));
    dur__mem_owner *owner = dur__mem_owner_find(mem, how->owner);
    if (how->owner != NULL && owner == NULL) return false; /* taken for dead: it learns that from its next beat */
    dur__mem_instance *instance = candidate(mem, how);
    if (instance == NULL || !dur__mem_room_fetch(mem, instance, how)) return false;
    dur__mem_token(mem, instance->token);
    dur__map_put(&mem->leases, instance->token, instance);
    instance->expires_boot_ms = dur__mem_boot_after(mem, how->lock_ms);
    if (instance->acquisitions++ == 0) instance->crashes = instance->crashes_alone = 0;
    instance->runs_alone = how->kind == DUR_FETCH_SUSPECT;
    instance->not_before_ms = 0;
    dur__mem_lease_hold(mem, instance, owner, lane);
    out->more_messages = dur__mem_give(mem, instance, true, how->queue_messages_max, &batch);
    dur__list_unlink(&instance->told);
    dur__mem_batch_sort(&batch);
    item_fill(mem, instance, how, &batch, arena, out);
    dur__mem_place(mem, instance);
    dur__free(batch.items);
    return true;
}

int dur__mem_fetch_orchestration_item(dur_provider *self, dur_arena *arena, const dur_fetch *how,
                                      dur_orchestration_item *out, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    dur_fetch seeds = {
        .lock_ms = how->lock_ms, .poll_ms = how->poll_ms, .filter = how->filter, .handlers = how->handlers
    };
    uint64_t deadline = dur__mem_deadline(dur__mem_poll_ms(self, how->poll_ms));
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    while (!dur__mem_fetch_one(mem, NULL, &seeds, arena, out))
        if (!dur__mem_sleep(mem, &mem->changed, deadline)) break;
    dur__mem_leave(mem);
    return DUR_OK;
}

int dur__mem_fetch_turns(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                         size_t *count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    size_t max = how->max > 0 ? how->max : 1;
    uint64_t deadline = dur__mem_deadline(dur__mem_poll_ms(self, how->poll_ms));
    int code = DUR_OK;
    *count = 0;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    if (how->owner != NULL && dur__mem_owner_find(mem, how->owner) == NULL) {
        code = dur_error_set(err, DUR_ELEASE, false, "memory.fetch", "owner %s is not registered", how->owner);
    } else {
        do {
            while (*count < max && dur__mem_fetch_one(mem, NULL, how, arena, &out[*count]))
                (*count)++;
        } while (*count == 0 && dur__mem_sleep(mem, &mem->changed, deadline));
    }
    dur__mem_leave(mem);
    return code;
}

/* ---- give back and renew ----------------------------------------------------------------------------------------- */

int dur__mem_abandon_orchestration_item(dur_provider *self, const char *lock_token, uint64_t delay_ms,
                                        bool ignore_attempt, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    int code = DUR_OK;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_instance *instance = dur__mem_lease_find(mem, lock_token);
    if (instance == NULL) {
        code = dur_error_set(err, DUR_ELEASE, false, "memory.abandon", "Invalid lock token");
    } else {
        if (ignore_attempt) dur__mem_lease_uncount(mem, instance);
        dur__mem_lease_end(mem, instance, 0, 0);
        instance->not_before_ms = dur__mem_wall_after(mem, delay_ms);
        dur__mem_settle(mem, instance);
    }
    dur__mem_leave(mem);
    return code;
}

int dur__mem_renew_orchestration_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms,
                                           dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    int code = DUR_OK;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_instance *instance = dur__mem_lease_find(mem, lock_token);
    if (instance == NULL) {
        code = dur_error_set(err, DUR_ELEASE, false, "memory.renew", "Invalid lock token");
    } else if (instance->owner == NULL) {
        instance->expires_boot_ms = dur__mem_boot_after(mem, extend_ms);
        dur__mem_place(mem, instance);
    }
    dur__mem_leave(mem);
    return code;
}
