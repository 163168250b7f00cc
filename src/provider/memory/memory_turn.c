/*
 * memory_turn.c: the commit of a turn.
 *
 * Everything that can refuse a turn is checked before anything is changed, so that a refused turn leaves no trace.
 */
#include "base/assert.h"
#include "provider/dead_reason.h"
#include "provider/memory/memory_internal.h"
#include "provider/plain_turn.h"
#include "provider/to_nobody.h"

#include <stdlib.h>

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static bool refuse(dur_turn_commit *turn, dur_turn_fault fault) {
    turn->fault = fault;
    return false;
}

static dur__mem_instance *turn_instance(dur__mem *mem, dur_turn_commit *turn) {
    if (turn->take_over) {
        dur__mem_instance *instance = dur__mem_find(mem, turn->instance);
        bool exists = dur__mem_exists(instance);
        if (exists && !(turn->if_unleased && dur__mem_leased(instance))) return instance;
        dur_error_set(&turn->error, exists ? DUR_ELEASE : DUR_ENOTFOUND, false, "memory.commit", "instance %s",
                      exists ? "is leased" : "not found");
        refuse(turn, DUR_TURN_LEASE_LOST);
        return NULL;
    }
    dur__mem_instance *instance = dur__mem_lease_find(mem, turn->lock_token);
    if (instance != NULL && (turn->instance == NULL || strcmp(turn->instance, instance->id) == 0)) return instance;
    dur_error_set(&turn->error, DUR_ELEASE, false, "memory.commit", "Invalid lock token");
    refuse(turn, DUR_TURN_LEASE_LOST);
    return NULL;
}

static bool check_position(const dur__mem_execution *execution, dur_turn_commit *turn) {
    uint64_t last = dur__mem_last_event(execution);
    if (turn->expected_last == DUR_NOT_COMPARED || turn->expected_last == last) return true;
    dur_error_set(&turn->error, DUR_ECONFLICT, false, "memory.commit",
                  "the last event of execution %llu is %llu, not %llu", (unsigned long long)turn->execution_id,
                  (unsigned long long)last, (unsigned long long)turn->expected_last);
    return refuse(turn, DUR_TURN_POSITION);
}

static bool check_work(dur__mem *mem, const dur__mem_instance *instance, dur_arena *arena, dur_turn_commit *turn) {
    const dur_worker_claim **lost = NULL;
    for (size_t i = 0; i < turn->worker_consumed_count; i++) {
        const dur_worker_claim *claim = &turn->worker_consumed[i];
        if (dur__mem_work_claimed(mem, claim, instance->id) != NULL) continue;
        if (lost == NULL && arena != NULL)
            lost = dur_arena_alloc(arena, turn->worker_consumed_count * sizeof(dur_worker_claim *));
        if (lost != NULL) lost[turn->lost_work_count] = claim;
        turn->lost_work_count++;
    }
    if (turn->lost_work_count == 0) return true;
    turn->lost_work = lost;
    dur_error_set(&turn->error, DUR_ELEASE, false, "memory.commit", "%zu worker rows are gone or locked by another",
                  turn->lost_work_count);
    return refuse(turn, DUR_TURN_WORK_LOST);
}

static bool check_events(const dur__mem_execution *execution, dur_turn_commit *turn) {
    if (dur__mem_events_check(execution, turn->events, turn->event_count, &turn->error) == DUR_OK) return true;
    return refuse(turn, turn->error.code == DUR_EINVAL ? DUR_TURN_STORE : DUR_TURN_POSITION);
}

static bool is_meant(const dur__mem_instance *parent, uint64_t birth) {
    if (!dur__mem_exists(parent)) return false;
    return birth == 0 || parent->birth == birth || (parent->birth == 0 && parent->event_count > 0);
}

static void note_cancel(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)mem;
    *(bool *)arg |= message->kind == DUR_WORK_CANCEL_INSTANCE;
}

/* Whoever takes an instance over has looked at it before. */
static bool check_meant(dur__mem *mem, dur__mem_instance *instance, dur_turn_commit *turn) {
    bool cancelled = false, same = true;
    if (!turn->take_over) return true;
    if (turn->if_uncancelled) dur__mem_each_message(mem, instance, note_cancel, &cancelled);
    if (cancelled) {
        dur_error_set(&turn->error, DUR_ELEASE, false, "memory.commit", "somebody has asked the instance to end");
        return refuse(turn, DUR_TURN_LEASE_LOST);
    }
    if (turn->if_suspended != NULL && !dur__str_eq(instance->suspended, turn->if_suspended)) same = false;
    if (same && turn->metadata.birth != 0 && instance->birth != 0) same = turn->metadata.birth == instance->birth;
    for (size_t i = 0; same && turn->consume_listed && i < turn->consumed_count; i++) {
        const dur__mem_message *message = dur__map_get_u64(&mem->messages, turn->consumed[i]);
        same = message != NULL && message->instance == instance;
    }
    if (same) return true;
    dur_error_set(&turn->error, DUR_ECONFLICT, false, "memory.commit", "the instance is another one, or has begun");
    return refuse(turn, DUR_TURN_POSITION);
}

static bool check_parent(dur__mem *mem, dur_turn_commit *turn) {
    const char *parent = turn->metadata.parent_instance_id;
    if (!turn->needs_parent || parent == NULL) return true;
    if (is_meant(dur__mem_find(mem, parent), turn->metadata.parent_birth)) return true;
    dur_error_set(&turn->error, DUR_ENOTFOUND, false, "memory.commit", "the parent %s not found", parent);
    return refuse(turn, DUR_TURN_ORPHAN);
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

static void message_drop(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)arg;
    dur__mem_message_free(mem, message);
}

/* Calls of others, and what clients have put into queues, are not the instance's to take along. */
static void message_drop_own(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)arg;
    if (message->kind != DUR_WORK_START_ORCHESTRATION && message->kind != DUR_WORK_QUEUE_MESSAGE)
        dur__mem_message_free(mem, message);
}

static void remove_work(dur__mem *mem, dur__mem_instance *instance) {
    dur__mem_node *node;
    dur__mem_each_message(mem, instance, message_drop_own, NULL);
    dur__mem_all_count(instance); /* whoever fetches it clears them up */
    dur__mem_doubt_for_good(mem, instance->id, 0);
    while ((node = dur__mem_tree_first(&instance->works)) != NULL)
        dur__mem_work_drop(mem, DUR__CONTAINER(node, dur__mem_work, by_ref));
}

static void message_found(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)mem;
    dur__mem_batch_add(arg, message);
}

/* It never was: what stands in front of the next start was for it alone. */
static void never_started(dur__mem *mem, dur__mem_instance *instance) {
    dur__mem_batch found = { NULL, 0, 0 };
    dur__mem_each_message(mem, instance, message_found, &found);
    dur__mem_batch_sort(&found);
    for (size_t i = 0; i < found.count && found.items[i]->kind != DUR_WORK_START_ORCHESTRATION; i++) {
        dur__mem_message *message = found.items[i];
        if (message->kind == DUR_WORK_QUEUE_MESSAGE)
            dur__mem_bury(mem, instance->id, DUR__NEVER_STARTED, message->json, message->json_size);
        dur__mem_message_free(mem, message);
    }
    free(found.items);
    dur__mem_all_count(instance);
}

static void consume(dur__mem *mem, dur__mem_instance *instance, const dur_turn_commit *turn) {
    if (!turn->consume_listed) {
        if (dur__mem_leased(instance) && !turn->take_over) dur__mem_each_given(mem, instance, message_drop, NULL);
    } else {
        for (size_t i = 0; i < turn->consumed_count; i++) {
            dur__mem_message *message = dur__map_get_u64(&mem->messages, turn->consumed[i]);
            if (message != NULL && message->instance == instance) dur__mem_message_free(mem, message);
        }
    }
    for (size_t i = 0; i < turn->worker_consumed_count; i++) {
        dur__mem_work *work = dur__mem_work_claimed(mem, &turn->worker_consumed[i], instance->id);
        if (work == NULL) continue; /* listed twice */
        dur__mem_work_touch(mem, work);
        dur__mem_work_remove(mem, work);
    }
}

/* A start is gone, and the one that is first now may need another handler. */
static void next_start_says(dur__mem_instance *instance) {
    const dur__mem_message *first = dur__mem_first_start(instance);
    dur__mem_set_text(&instance->handler, first != NULL ? first->handler : NULL);
}

static void drop_timers(dur__mem *mem, dur__mem_instance *instance, const dur_turn_commit *turn) {
    for (size_t i = 0; i < turn->timers_dropped_count; i++) {
        const dur_activity_ref *ref = &turn->timers_dropped[i];
        dur__mem_node *node = dur__mem_tree_from(&instance->timers, ref->activity_id, 0);
        while (node != NULL && node->hi == ref->activity_id) {
            dur__mem_message *message = DUR__CONTAINER(node, dur__mem_message, timer);
            node = dur__mem_tree_next(node);
            if (message->execution_id == ref->execution_id) dur__mem_message_free(mem, message);
        }
    }
}

/* A turn that only gives a lease back, or moves flags, must not bring an execution into being; the seeds' ack does. */
static bool writes_execution(const dur_turn_commit *turn) {
    const dur_execution_metadata *metadata = &turn->metadata;
    return turn->event_count > 0 || metadata->status != DUR_STATUS_NONE || metadata->has_pinned_version ||
           metadata->orchestration_name != NULL || !(turn->consume_listed || turn->take_over);
}

static void end_execution(dur__mem *mem, dur__mem_instance *instance, dur__mem_execution *execution,
                          const dur_execution_metadata *metadata) {
    execution->status = metadata->status;
    dur__mem_set_text(&execution->output, metadata->output);
    if (metadata->status == DUR_STATUS_RUNNING) {
        execution->completed_at_ms = 0;
        return;
    }
    execution->completed_at_ms = mem->now_ms;
    dur__mem_kv_merge(instance);
    dur__mem_accepted_forget(mem, instance, execution->execution_id);
}

static void write_events(dur__mem_instance *instance, dur__mem_execution *execution, const dur_turn_commit *turn) {
    const dur_event_row *status = NULL;
    dur__mem_events_add(instance, execution, turn->events, turn->event_count);
    for (size_t i = 0; i < turn->event_count; i++) {
        if (turn->events[i].kind == DUR_EVENT_CUSTOM_STATUS_UPDATED)
            status = &turn->events[i];
        else
            dur__mem_kv_apply(instance, &turn->events[i]);
    }
    if (status == NULL) return;
    dur__mem_set_text(&instance->custom_status, status->value);
    instance->custom_status_version++;
}

static void write_execution(dur__mem *mem, dur__mem_instance *instance, const dur_turn_commit *turn) {
    const dur_execution_metadata *metadata = &turn->metadata;
    dur__mem_row(mem, instance, metadata);
    if (!turn->give_back) dur__mem_handler(instance, metadata);
    if (turn->execution_id == 0 || turn->give_back || !writes_execution(turn)) return;
    dur__mem_execution *execution = dur__mem_execution_make(mem, instance, turn->execution_id);
    execution->has_row = true;
    if (metadata->has_pinned_version) {
        execution->has_pin = true;
        execution->pin = metadata->pinned_version;
    }
    write_events(instance, execution, turn);
    if (metadata->status != DUR_STATUS_NONE) end_execution(mem, instance, execution, metadata);
}

static void write_work(dur__mem *mem, const dur__mem_instance *instance, const dur_turn_commit *turn) {
    for (size_t i = 0; i < turn->worker_item_count; i++) {
        dur_turn_work *item = &turn->worker_items[i];
        dur__mem_work *work = dur__mem_work_add(mem, &item->message);
        item->row_id = work->id;
        item->locked = item->lock_token != NULL && dur__mem_work_lock_eagerly(mem, work, turn, item->lock_token);
        dur__mem_work_place(mem, work);
    }
    for (size_t i = 0; i < turn->cancelled_count; i++) {
        dur_activity_ref all = turn->cancelled[i];
        dur__mem_work *work;
        all.row_id = 0; /* every row of that activity */
        while ((work = dur__mem_work_find(mem, &all, instance->id)) != NULL) {
            dur__mem_instance *target = work->instance;
            dur__mem_work_drop(mem, work);
            if (target != instance) dur__mem_settle(mem, target);
        }
    }
    bool undelayed = false; /* then what is overdue behind it is, too: it stays behind */
    for (size_t i = 0; i < turn->orchestrator_item_count; i++) {
        dur_message item = turn->orchestrator_items[i];
        if (dur__needs_receiver(item.kind) && !dur__mem_exists(dur__mem_find(mem, item.instance))) continue;
        if (undelayed && item.due_ms <= mem->now_ms) item.due_ms = 0;
        undelayed |= item.due_ms == 0;
        dur__mem_enqueue(mem, &item, 0);
    }
}

static void attempt_clear(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)mem;
    const bool *give_back = arg;
    if (*give_back)
        dur__mem_uncount(message);
    else if (message->counted)
        message->attempts = 0; /* a turn that saw it has been committed */
}

static bool is_release(const dur_turn_commit *turn) {
    return turn->execution_id == 0 && !turn->set_suspended && !turn->take_over;
}

static void end_lease(dur__mem *mem, dur__mem_instance *instance, dur__mem_lane *lane, dur_turn_commit *turn) {
    bool first_commit = instance->acquisitions > 0;
    bool keep = turn->keep_lease && !turn->take_over && turn->suspended == NULL;
    bool give_back = turn->give_back;
    bool failed = is_release(turn) && !give_back && turn->seen_id == 0 && turn->seen_now_ms == 0;
    if ((first_commit || !keep) && !failed) dur__mem_each_given(mem, instance, attempt_clear, &give_back);
    if (give_back) {
        if (instance->acquisitions > 0) instance->acquisitions--;
    } else if (!failed) {
        instance->acquisitions = 0;
    }
    if (turn->set_suspended) {
        dur__mem_set_text(&instance->suspended, turn->suspended);
        if (turn->suspended == NULL) dur__mem_all_count(instance);
    }
    turn->lease_kept = keep;
    if (keep) {
        dur__mem_lease_hold(mem, instance, dur__mem_owner_find(mem, turn->owner), lane);
    } else if (turn->take_over) {
        if (dur__mem_leased(instance)) dur__mem_lease_lost(mem, instance);
    } else {
        dur__mem_lease_end(mem, instance, turn->seen_id, turn->seen_now_ms);
        instance->not_before_ms = dur__mem_wall_after(mem, turn->delay_ms);
    }
}

void dur__mem_commit(dur__mem *mem, dur__mem_lane *lane, dur_arena *arena, dur_turn_commit *turn) {
    turn->fault = DUR_TURN_FINE;
    dur_error_clear(&turn->error);
    turn->lease_kept = false;
    turn->lost_work = NULL;
    turn->lost_work_count = 0;
    for (size_t i = 0; i < turn->worker_item_count; i++) {
        turn->worker_items[i].locked = false;
        turn->worker_items[i].row_id = 0;
    }
    dur__mem_instance *instance = turn_instance(mem, turn);
    if (instance == NULL) return;
    const dur__mem_execution *execution = dur__mem_execution_find(instance, turn->execution_id);
    if (!check_position(execution, turn) || !check_meant(mem, instance, turn) || !check_parent(mem, turn) ||
        !check_work(mem, instance, arena, turn) || !check_events(execution, turn))
        return;
    if (turn->event_count > 0 && turn->execution_id == 0) {
        dur_error_set(&turn->error, DUR_EINVAL, false, "memory.commit", "events need an execution id");
        refuse(turn, DUR_TURN_STORE);
        return;
    }

    /* Nothing below can refuse.  The instance outlives the calls: a lease or its own row holds it. */
    bool never = turn->remove_work && turn->execution_id == 0;
    if (turn->remove_work && !never) remove_work(mem, instance);
    consume(mem, instance, turn);
    if (never && !instance->has_row && instance->event_count == 0) never_started(mem, instance);
    if (turn->execution_id == 0 && turn->consumed_count > 0 && !instance->has_row && instance->event_count == 0)
        next_start_says(instance);
    write_execution(mem, instance, turn);
    write_work(mem, instance, turn);
    drop_timers(mem, instance, turn);
    end_lease(mem, instance, lane, turn);
    instance->updated_at_ms = mem->now_ms;
    dur__mem_changed(mem, instance);
    dur__mem_settle(mem, instance);
}

int dur__mem_ack_orchestration_item(dur_provider *self, dur_turn_commit *turn, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    dur_turn_commit plain = dur__plain_turn(turn);
    dur__mem_enter(mem);
    dur__mem_commit(mem, NULL, NULL, &plain);
    dur__mem_leave(mem);
    return dur__plain_turn_answer(turn, &plain, err);
}

int dur__mem_commit_turns(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    dur__mem_enter(mem);
    for (size_t i = 0; i < count; i++)
        dur__mem_commit(mem, NULL, NULL, &turns[i]);
    dur__mem_leave(mem);
    return DUR_OK;
}

/* ---- history ----------------------------------------------------------------------------------------------------- */

int dur__mem_append(dur_provider *self, const char *instance, uint64_t execution_id, const dur_event_row *events,
                    size_t count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    dur__mem_enter(mem);
    dur__mem_instance *row = dur__mem_find(mem, instance);
    const dur__mem_execution *old = row != NULL ? dur__mem_execution_find(row, execution_id) : NULL;
    int code = dur__mem_events_check(old, events, count, err);
    if (code == DUR_OK && count > 0) {
        row = dur__mem_make(mem, instance);
        dur__mem_events_add(row, dur__mem_execution_make(mem, row, execution_id), events, count);
        row->updated_at_ms = mem->now_ms;
        dur__mem_changed(mem, row);
        dur__mem_settle(mem, row);
    }
    dur__mem_leave(mem);
    return code;
}

int dur__mem_read(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution_id,
                  dur_event_row **out, size_t *count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    *out = NULL;
    *count = 0;
    dur__mem_enter(mem);
    const dur__mem_instance *row = dur__mem_find(mem, instance);
    if (row != NULL) {
        uint64_t wanted = execution_id != 0 ? execution_id : row->current_execution;
        *out = dur__mem_events_copy(dur__mem_execution_find(row, wanted), arena, count);
    }
    dur__mem_leave(mem);
    return DUR_OK;
}
