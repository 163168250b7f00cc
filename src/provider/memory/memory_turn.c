/*
 * memory_turn.c: the commit of a turn.
 *
 * Everything that can refuse a turn is checked before anything is changed, so that a refused turn leaves no trace.
 */
#include "base/assert.h"
#include "provider/dead_reason.h"
#include "provider/memory/memory_internal.h"
#include "provider/to_nobody.h"
#include "provider/turn.h"

#include <stdlib.h>

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* The turn that is being decided.  Checks come in the order of dur__turn_check. */
typedef struct deciding {
    dur__mem *mem;
    dur_arena *arena; /* for lost_work; NULL: not told */
    dur_turn_commit *turn;
    dur__turn_facts facts;
    dur__mem_instance *instance;
    const dur__mem_execution *execution; /* NULL: not there */
    dur__turn_check next;                /* all before it hold */
} deciding;

/* True: it holds.  Otherwise the turn is refused, and nothing behind this check is looked at. */
static bool check(deciding *d, dur__turn_check check, bool holds) {
    DUR_ASSERT(check >= d->next && d->turn->fault == DUR_TURN_FINE);
    d->next = check;
    if (!holds) d->turn->fault = dur__turn_fault_of(check);
    return holds;
}

#define REFUSE(d, check, ...)                                                                                          \
    dur_error_set(&(d)->turn->error, dur__turn_code_of(check), false, "memory.commit", __VA_ARGS__)

static void note_cancel(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)mem;
    *(bool *)arg |= message->kind == DUR_WORK_CANCEL_INSTANCE;
}

static bool check_taken(deciding *d) {
    const dur_turn_commit *turn = d->turn;
    bool cancelled = false;
    d->instance = dur__mem_find(d->mem, turn->instance);
    if (!check(d, DUR__TURN_EXISTS, dur__mem_exists(d->instance))) {
        REFUSE(d, DUR__TURN_EXISTS, "instance not found");
        return false;
    }
    if (!check(d, DUR__TURN_UNLEASED, !turn->if_unleased || !dur__mem_leased(d->instance))) {
        REFUSE(d, DUR__TURN_UNLEASED, "instance is leased");
        return false;
    }
    if (turn->if_uncancelled) dur__mem_each_message(d->mem, d->instance, note_cancel, &cancelled);
    if (check(d, DUR__TURN_UNCANCELLED, !cancelled)) return true;
    REFUSE(d, DUR__TURN_UNCANCELLED, "somebody has asked the instance to end");
    return false;
}

static bool check_lease(deciding *d) {
    const dur_turn_commit *turn = d->turn;
    if (d->facts.take_over) return check_taken(d);
    d->instance = dur__mem_lease_find(d->mem, turn->lock_token);
    bool ours = d->instance != NULL && (turn->instance == NULL || strcmp(turn->instance, d->instance->id) == 0);
    if (check(d, DUR__TURN_TOKEN, ours)) return true;
    REFUSE(d, DUR__TURN_TOKEN, "Invalid lock token");
    return false;
}

static bool check_position(deciding *d) {
    uint64_t last = dur__mem_last_event(d->execution);
    bool same = !d->facts.compares_position || d->turn->expected_last == last;
    if (check(d, DUR__TURN_LAST_EVENT, same)) return true;
    REFUSE(d, DUR__TURN_LAST_EVENT, "the last event of execution %llu is %llu, not %llu",
           (unsigned long long)d->turn->execution_id, (unsigned long long)last,
           (unsigned long long)d->turn->expected_last);
    return false;
}

/* Whoever takes an instance over has looked at it before. */
static bool check_meant(deciding *d) {
    const dur_turn_commit *turn = d->turn;
    const dur__mem_instance *instance = d->instance;
    bool same = turn->if_suspended == NULL || dur__str_eq(instance->suspended, turn->if_suspended);
    if (!d->facts.take_over) return true;
    if (same && turn->metadata.birth != 0 && instance->birth != 0) same = turn->metadata.birth == instance->birth;
    for (size_t i = 0; same && turn->consume_listed && i < turn->consumed_count; i++) {
        const dur__mem_message *message = dur__map_get_u64(&d->mem->messages, turn->consumed[i]);
        same = message != NULL && message->instance == instance;
    }
    if (check(d, DUR__TURN_MEANT, same)) return true;
    REFUSE(d, DUR__TURN_MEANT, "the instance is another one, or has begun");
    return false;
}

static bool is_meant(const dur__mem_instance *parent, uint64_t birth) {
    if (!dur__mem_exists(parent)) return false;
    return birth == 0 || parent->birth == birth || (parent->birth == 0 && parent->event_count > 0);
}

static bool check_parent(deciding *d) {
    const dur_execution_metadata *metadata = &d->turn->metadata;
    bool there = !d->facts.compares_parent ||
                 is_meant(dur__mem_find(d->mem, metadata->parent_instance_id), metadata->parent_birth);
    if (check(d, DUR__TURN_PARENT, there)) return true;
    REFUSE(d, DUR__TURN_PARENT, "the parent %s not found", metadata->parent_instance_id);
    return false;
}

static void no_room(dur_turn_commit *turn) {
    turn->fault = DUR_TURN_STORE;
    DUR__NO_MEMORY(&turn->error, "memory.commit");
}

static bool check_work(deciding *d) {
    dur_turn_commit *turn = d->turn;
    const dur_worker_claim **lost = NULL;
    if (!dur__mem_room_bytes(d->mem,
                             (turn->worker_consumed_count + turn->event_count) * 2 * sizeof(void *) + (64u << 10))) {
        no_room(turn);
        return false;
    }
    for (size_t i = 0; i < turn->worker_consumed_count; i++) {
        const dur_worker_claim *claim = &turn->worker_consumed[i];
        if (dur__mem_work_claimed(d->mem, claim, d->instance->id) != NULL) continue;
        if (lost == NULL && d->arena != NULL)
            lost = dur_arena_alloc(d->arena, turn->worker_consumed_count * sizeof(dur_worker_claim *));
        if (lost != NULL) lost[turn->lost_work_count] = claim;
        turn->lost_work_count++;
    }
    if (check(d, DUR__TURN_WORK, turn->lost_work_count == 0)) return true;
    turn->lost_work = lost;
    REFUSE(d, DUR__TURN_WORK, "%zu worker rows are gone or locked by another", turn->lost_work_count);
    return false;
}

static bool check_events(deciding *d) {
    const dur_turn_commit *turn = d->turn;
    return check(d, DUR__TURN_NEW_EVENTS,
                 dur__mem_events_check(d->execution, turn->events, turn->event_count, &d->turn->error) == DUR_OK);
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
    dur__mem_doubt_for_good(mem, instance->id, DUR__MEM_LOCAL);
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
    dur__free(found.items);
    dur__mem_all_count(instance);
}

static void consume(dur__mem *mem, dur__mem_instance *instance, const dur_turn_commit *turn,
                    const dur__turn_facts *facts) {
    DUR_ASSERT(!facts->takes_given || dur__mem_leased(instance)); /* its token was compared */
    if (facts->takes_given) dur__mem_each_given(mem, instance, message_drop, NULL);
    for (size_t i = 0; turn->consume_listed && i < turn->consumed_count; i++) {
        dur__mem_message *message = dur__map_get_u64(&mem->messages, turn->consumed[i]);
        if (message != NULL && message->instance == instance) dur__mem_message_free(mem, message);
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

static void end_execution(dur__mem *mem, dur__mem_instance *instance, dur__mem_execution *execution,
                          const dur_execution_metadata *metadata) {
    execution->status = metadata->status;
    dur__mem_set_text(&execution->output, metadata->output);
    if (metadata->status == DUR_STATUS_RUNNING) {
        execution->completed_at_ms = 0;
        return;
    }
    execution->completed_at_ms = mem->now_ms;
    /* Suspended while this turn ran: there is nothing left to be held up. */
    if (metadata->status != DUR_STATUS_CONTINUED_AS_NEW) dur__mem_set_text(&instance->suspended, NULL);
    dur__mem_kv_merge(instance);
    dur__mem_accepted_forget(mem, instance, execution->execution_id);
}

static void write_events(dur__mem_instance *instance, dur__mem_execution *execution, const dur_turn_commit *turn) {
    const dur_event_row *status = dur__turn_custom_status(turn);
    dur__mem_events_add(instance, execution, turn->events, turn->event_count);
    if (turn->event_count > 0) instance->open = turn->open;
    for (size_t i = 0; i < turn->event_count; i++)
        dur__mem_kv_apply(instance, &turn->events[i]);
    if (status == NULL) return;
    dur__mem_set_text(&instance->custom_status, status->value);
    instance->custom_status_version++;
}

static void write_execution(dur__mem *mem, dur__mem_instance *instance, const dur_turn_commit *turn,
                            const dur__turn_facts *facts) {
    const dur_execution_metadata *metadata = &turn->metadata;
    /* Nothing of a turn is left out in silence. */
    DUR_ASSERT(facts->writes || (turn->event_count == 0 && !facts->names && !metadata->has_pinned_version &&
                                 metadata->status == DUR_STATUS_NONE));
    if (!facts->writes) return;
    DUR_ASSERT(turn->execution_id != 0 && !facts->uncounts && !facts->never_was);
    if (facts->names) dur__mem_row(mem, instance, metadata);
    dur__mem_handler(instance, metadata);
    dur__mem_execution *execution = dur__mem_execution_make(mem, instance, turn->execution_id);
    execution->has_row = true;
    if (metadata->has_pinned_version) {
        execution->has_pin = true;
        execution->pin = metadata->pinned_version;
    }
    write_events(instance, execution, turn);
    if (metadata->status != DUR_STATUS_NONE) end_execution(mem, instance, execution, metadata);
    /* A turn of what was ended behind its back: nothing runs any more, whatever name it says. */
    if (dur__mem_ended(instance)) dur__mem_set_text(&instance->handler, NULL);
    DUR_ASSERT(!facts->ends_instance || instance->handler == NULL);
    DUR_ASSERT(!facts->ends_execution || execution->completed_at_ms == mem->now_ms);
}

/* Its lane has the lease, and dies with the owner: nobody else needs a row. */
static bool stays_local(dur__mem *mem, const dur__mem_lane *lane, const dur_turn_commit *turn,
                        const dur_turn_work *item) {
    return lane != NULL && dur__turn_asks_local(turn, item) && dur__mem_owner_find(mem, turn->owner) != NULL;
}

/* It was local when its lease ended. */
static void count_lost(dur__mem *mem, const dur__mem_instance *instance, dur__mem_work *work) {
    work->attempts = 1;
    if (instance->look != DUR__MEM_LOOK_CRASH) return;
    work->crashes = 1;
    dur__mem_doubt_row(mem, instance->id, work->id);
}

static void write_work(dur__mem *mem, const dur__mem_instance *instance, const dur__mem_lane *lane,
                       const dur_turn_commit *turn) {
    for (size_t i = 0; i < turn->worker_item_count; i++) {
        dur_turn_work *item = &turn->worker_items[i];
        item->local = stays_local(mem, lane, turn, item);
        if (item->local) continue;
        dur__mem_work *work = dur__mem_work_add(mem, &item->message);
        item->row_id = work->id;
        if (item->recovered) count_lost(mem, instance, work);
        const char *token = dur__turn_eager(turn, item);
        item->locked = token != NULL && dur__mem_work_lock_eagerly(mem, work, turn, token);
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
        dur_message_row item = turn->orchestrator_items[i];
        if (dur__needs_receiver(item.kind) && !dur__mem_exists(dur__mem_find(mem, item.instance))) continue;
        if (undelayed && item.due_ms <= mem->now_ms) item.due_ms = 0;
        undelayed |= item.due_ms == 0;
        dur__mem_enqueue(mem, &item, 0);
    }
}

static void attempt_uncount(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)mem, (void)arg;
    dur__mem_uncount(message);
}

static void attempt_clear(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)mem, (void)arg;
    if (message->counted) message->attempts = 0; /* a turn that saw it has been committed */
}

/* Of the acquisition, and of the messages that it brought and that are left. */
static void count(dur__mem *mem, dur__mem_instance *instance, const dur__turn_facts *facts) {
    DUR_ASSERT(!(facts->uncounts && facts->clears_counts));
    DUR_ASSERT(facts->uncounts || facts->clears_counts || facts->is_release);
    bool first_commit = instance->acquisitions > 0;
    dur__mem_message_fn *change = facts->uncounts ? attempt_uncount : facts->clears_counts ? attempt_clear : NULL;
    if (change != NULL && (first_commit || !facts->keeps)) dur__mem_each_given(mem, instance, change, NULL);
    if (facts->uncounts && instance->acquisitions > 0) instance->acquisitions--;
    if (facts->clears_counts) instance->acquisitions = 0;
}

static void end_lease(dur__mem *mem, dur__mem_instance *instance, dur__mem_lane *lane, dur_turn_commit *turn,
                      const dur__turn_facts *facts) {
    count(mem, instance, facts);
    DUR_ASSERT(!(facts->suspends && facts->resumes) && !(facts->suspends && facts->keeps));
    if (facts->suspends || facts->resumes) dur__mem_set_text(&instance->suspended, turn->suspended);
    if (facts->resumes) dur__mem_all_count(instance);
    turn->lease_kept = facts->keeps;
    if (facts->keeps) {
        DUR_ASSERT(facts->seen_id == 0 && facts->seen_now_ms == 0 && facts->delay_ms == 0);
        dur__mem_lease_hold(mem, instance, dur__mem_owner_find(mem, turn->owner), lane);
    } else if (facts->take_over) {
        if (dur__mem_leased(instance)) dur__mem_lease_lost(mem, instance);
    } else {
        dur__mem_lease_end(mem, instance, facts->seen_id, facts->seen_now_ms);
        instance->not_before_ms = dur__mem_wall_after(mem, facts->delay_ms);
    }
    DUR_ASSERT(dur__mem_leased(instance) == facts->keeps);
    if (facts->take_over && !dur__mem_ended(instance)) return;
    instance->look = DUR__MEM_LOOK_NONE; /* it has written what it found */
    dur__mem_doubt_no_more(mem, instance->id);
}

static bool has_begun(const dur__mem_instance *instance) {
    return instance->has_row || instance->event_count > 0;
}

void dur__mem_commit(dur__mem *mem, dur__mem_lane *lane, dur_arena *arena, dur_turn_commit *turn) {
    DUR_ASSERT(dur__turn_invalid(turn) == NULL && turn->fault == DUR_TURN_FINE && turn->lost_work_count == 0);
    dur__turn_facts facts = dur__turn_facts_of(turn);
    deciding d = { .mem = mem, .arena = arena, .turn = turn, .facts = facts };
    if (!check_lease(&d)) return;
    d.execution = dur__mem_execution_find(d.instance, turn->execution_id);
    if (!check_position(&d) || !check_meant(&d) || !check_parent(&d) || !check_work(&d) || !check_events(&d)) return;
    if (!dur__mem_room_turn(mem, d.instance, d.execution, turn, facts.never_was || facts.removes_work)) {
        no_room(turn);
        return;
    }

    /* Nothing below can refuse.  The instance outlives the calls: a lease or its own row holds it. */
    dur__mem_instance *instance = d.instance;
    DUR_ASSERT(facts.take_over || dur__mem_leased(instance));
    if (facts.removes_work) remove_work(mem, instance);
    consume(mem, instance, turn, &facts);
    if (facts.never_was && !has_begun(instance)) never_started(mem, instance);
    if (facts.takes_start && !has_begun(instance)) next_start_says(instance);
    write_execution(mem, instance, turn, &facts);
    write_work(mem, instance, lane, turn);
    drop_timers(mem, instance, turn);
    end_lease(mem, instance, lane, turn, &facts);
    instance->updated_at_ms = mem->now_ms;
    dur__mem_changed(mem, instance);
    dur__mem_settle(mem, instance);
}

int dur__mem_ack_orchestration_item(dur_provider *self, dur_turn_commit *turn, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_commit(mem, NULL, NULL, turn);
    dur__mem_leave(mem);
    if (err != NULL) *err = turn->error;
    return (int)turn->error.code;
}

int dur__mem_commit_turns(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    for (size_t i = 0; i < count; i++)
        dur__mem_commit(mem, NULL, NULL, &turns[i]);
    dur__mem_leave(mem);
    return DUR_OK;
}

/* ---- history ----------------------------------------------------------------------------------------------------- */

int dur__mem_append(dur_provider *self, const char *instance, uint64_t execution_id, const dur_event_row *events,
                    size_t count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_instance *row = dur__mem_find(mem, instance);
    const dur__mem_execution *old = row != NULL ? dur__mem_execution_find(row, execution_id) : NULL;
    int code = dur__mem_room_append(mem, old, instance, events, count) ? DUR_OK : DUR__NO_MEMORY(err, "memory.append");
    if (code == DUR_OK) code = dur__mem_events_check(old, events, count, err);
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
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__way_out way_out; /* nothing is changed here */
    if (DUR__OUT_OF_MEMORY(&way_out)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory");
    }
    const dur__mem_instance *row = dur__mem_find(mem, instance);
    if (row != NULL) {
        uint64_t wanted = execution_id != 0 ? execution_id : row->current_execution;
        *out = dur__mem_events_copy(dur__mem_execution_find(row, wanted), arena, count);
    }
    dur__way_out_end(&way_out);
    dur__mem_leave(mem);
    return DUR_OK;
}
