/*
 * effects.c: what leaves with the turn: work for the two queues, and what of earlier turns is taken back.
 *
 * Only new groups have effects; those of stored groups left with their turns.  What is scheduled and dropped within one
 * turn is not sent at all.
 */
#include "core/limits.h"
#include "core/unreported.h"
#include "replay/engine.h"
#include <stdlib.h>

static const char *own_text(dur__exec *exec, const char *text) {
    return dur_arena_strdup(exec->turn_arena, text);
}

static dur_work_item *effect_push(dur__exec *exec, bool worker, dur_work_kind kind, uint64_t due_ms) {
    struct dur__effect *effect;
    if (worker) {
        DUR__GROW(exec->worker, exec->worker_count, exec->worker_room);
        effect = &exec->worker[exec->worker_count++];
    } else {
        DUR__GROW(exec->orchestrator, exec->orchestrator_count, exec->orchestrator_room);
        effect = &exec->orchestrator[exec->orchestrator_count++];
    }
    *effect = (struct dur__effect){ .out = { .item = { .kind = kind }, .due_ms = due_ms } };
    return &effect->out.item;
}

static void push_activity(dur__exec *exec, const dur__leaf *leaf, const dur_event *event) {
    dur_work_item *item = effect_push(exec, true, DUR_WORK_ACTIVITY_EXECUTE, 0);
    item->instance = exec->options.instance;
    item->execution_id = exec->options.execution_id;
    item->id = event->event_id;
    item->name = own_text(exec, event->name);
    item->input = own_text(exec, event->input);
    item->session_id = own_text(exec, event->session_id);
    item->tag = own_text(exec, event->tag);
    item->orchestration_name = exec->options.name;
    item->orchestration_version = exec->options.version;
    item->attempt = leaf->attempt;
    item->first_id = leaf->first_id;
    item->birth = exec->birth;
}

/* Which call of ours an item belongs to. */
static void name_call(const dur__exec *exec, dur_work_item *item, uint64_t id) {
    dur__parent call = DUR__CALL(exec->options.instance, exec->birth, exec->options.execution_id, id);
    DUR__PARENT_SET(item, &call);
}

static void push_start(dur__exec *exec, const dur_event *event, bool child) {
    dur_work_item *item = effect_push(exec, false, DUR_WORK_START_ORCHESTRATION, 0);
    item->instance = own_text(exec, event->instance);
    item->orchestration = own_text(exec, event->name);
    item->input = own_text(exec, event->input);
    item->version = own_text(exec, event->version);
    item->execution_id = 1;
    if (!child) return;
    name_call(exec, item, event->event_id);
    item->depth = exec->parent.depth + 1;
}

/* A history of the original gave it an id that no call can name: it fails, and what it would have been does not begin.
 */
static void push_unnameable(dur__exec *exec, const dur_event *event) {
    dur_failure *failure = dur_arena_zalloc(exec->turn_arena, sizeof(*failure));
    failure->category = DUR_FAILURE_APPLICATION;
    failure->kind = DUR_FAILURE_ORCHESTRATION_FAILED;
    failure->message = dur__unnameable_text(exec);
    dur_work_item *item = effect_push(exec, false, DUR_WORK_SUB_ORCH_FAILED, 0);
    item->instance = exec->options.instance;
    item->execution_id = exec->options.execution_id;
    item->id = event->event_id;
    item->parent_birth = exec->birth;
    item->details = failure;
}

static bool is_nameable(const dur_event *event) {
    return strlen(event->instance) <= DUR__INSTANCE_BYTES_MAX;
}

void dur__effect_scheduled(dur__exec *exec, dur__leaf *leaf, const dur_event *event) {
    leaf->turn = exec->turn;
    if (leaf->is_system) return;
    switch (leaf->kind) {
    case DUR__LEAF_ACTIVITY:
        push_activity(exec, leaf, event);
        leaf->item = exec->worker_count;
        return;
    case DUR__LEAF_TIMER: {
        dur_work_item *item = effect_push(exec, false, DUR_WORK_TIMER_FIRED, event->fire_at_ms);
        item->instance = exec->options.instance;
        item->execution_id = exec->options.execution_id;
        item->id = event->event_id;
        item->fire_at_ms = event->fire_at_ms;
        break;
    }
    case DUR__LEAF_CHILD:
        if (is_nameable(event))
            push_start(exec, event, true);
        else
            push_unnameable(exec, event);
        break;
    case DUR__LEAF_PULSE:
    case DUR__LEAF_MESSAGE:
        return;
    }
    leaf->item = exec->orchestrator_count;
}

void dur__effect_dropped(dur__exec *exec, dur__leaf *leaf) {
    bool unsent = leaf->turn == exec->turn && leaf->item != 0;
    switch (leaf->kind) {
    case DUR__LEAF_ACTIVITY:
        if (unsent) {
            exec->worker[leaf->item - 1].undone = true;
        } else {
            DUR__GROW(exec->cancelled, exec->cancelled_count, exec->cancelled_room);
            exec->cancelled[exec->cancelled_count++] = leaf->id;
        }
        break;
    case DUR__LEAF_TIMER:
        if (unsent) {
            exec->orchestrator[leaf->item - 1].undone = true;
        } else {
            DUR__GROW(exec->timers, exec->timer_count, exec->timer_room);
            exec->timers[exec->timer_count++] = leaf->id;
        }
        break;
    case DUR__LEAF_CHILD:
        if (unsent) {
            exec->orchestrator[leaf->item - 1].undone = true;
        } else {
            dur_work_item *item = effect_push(exec, false, DUR_WORK_CANCEL_INSTANCE, 0);
            item->instance = own_text(exec, leaf->instance);
            name_call(exec, item, leaf->id);
            item->reason = exec->cancel_reason != NULL ? "parent cancelled" : "parent dropped sub-orchestration future";
        }
        break;
    case DUR__LEAF_PULSE:
    case DUR__LEAF_MESSAGE:
        break;
    }
}

void dur__effect_started(dur__exec *exec, const dur_event *chained) {
    if (is_nameable(chained))
        push_start(exec, chained, false);
    else
        dur__log_held(exec, DUR_LOG_WARN, "dur_start: not started: %s", dur__unnameable_text(exec));
}

void dur__effect_grace(dur__exec *exec, uint64_t request_id) {
    dur_work_item *item =
        effect_push(exec, false, DUR_WORK_CANCEL_INSTANCE, dur__after(exec->now_ms, exec->options.cancel_grace_ms));
    item->instance = exec->options.instance;
    item->reason = exec->cancel_reason;
    item->cancel_seq = request_id;
}

/* ---- the end ---- */

static int held_order(const void *a, const void *b) {
    uint64_t x = (*(dur__held *const *)a)->seq, y = (*(dur__held *const *)b)->seq;
    return x < y ? -1 : x > y;
}

/* Messages that this execution took and nobody saw, in order of arrival. */
static dur__held **unreported(dur__exec *exec, size_t *out_count) {
    size_t count = 0;
    dur__map_entry *entry;
    for (size_t at = 0; (entry = dur__map_next(&exec->mailbox.queues, &at)) != NULL;) {
        const dur__topic *topic = entry->value;
        DUR__LIST_EACH(&topic->memory, link) count++;
    }
    dur__held **all = dur_arena_alloc(exec->turn_arena, (count + 1) * sizeof(*all));
    count = 0;
    for (size_t at = 0; (entry = dur__map_next(&exec->mailbox.queues, &at)) != NULL;) {
        const dur__topic *topic = entry->value;
        DUR__LIST_EACH(&topic->memory, link) all[count++] = DUR__CONTAINER(link, dur__held, link);
    }
    if (count > 0) qsort(all, count, sizeof(*all), held_order);
    *out_count = count;
    return all;
}

/* They are the next execution's. */
static void carry_over(dur__exec *exec, dur_work_item *item) {
    size_t count;
    dur__held **all = unreported(exec, &count);
    if (count > 0) {
        dur_carried *carried = dur_arena_alloc(exec->turn_arena, count * sizeof(*carried));
        for (size_t i = 0; i < count; i++)
            carried[i] = (dur_carried){ own_text(exec, all[i]->queue), own_text(exec, all[i]->data) };
        item->carry_forward_events = carried;
        item->carry_forward_count = count;
    }
}

/* There is no next one: they stand in front of what waits in the instance's queues, and become dead letters with it. */
static void give_back(dur__exec *exec) {
    size_t count;
    dur__held **all = unreported(exec, &count);
    for (size_t i = 0; i < count; i++) {
        dur_carried letter = { own_text(exec, all[i]->queue), own_text(exec, all[i]->data) };
        *effect_push(exec, false, DUR_WORK_QUEUE_MESSAGE, DUR__DUE_FIRST) =
            dur__unreported_back(exec->options.instance, &letter);
    }
}

static void push_continue(dur__exec *exec, const char *version) {
    dur_work_item *item = effect_push(exec, false, DUR_WORK_CONTINUE_AS_NEW, 0);
    item->instance = exec->options.instance;
    item->orchestration = exec->options.name;
    item->input = exec->output;
    item->version = own_text(exec, version);
    item->initial_custom_status = own_text(exec, exec->status);
    DUR__PARENT_SET(item, &exec->parent);
    item->birth = exec->birth;
    carry_over(exec, item);
}

void dur__effect_ended(dur__exec *exec, const char *version) {
    if (exec->end == DUR__END_CONTINUED) {
        push_continue(exec, version);
        return;
    }
    give_back(exec);
    if (exec->parent.instance != NULL && exec->parent.has_id) {
        bool completed = exec->end == DUR__END_COMPLETED;
        dur_work_item *item =
            effect_push(exec, false, completed ? DUR_WORK_SUB_ORCH_COMPLETED : DUR_WORK_SUB_ORCH_FAILED, 0);
        dur__answer_to(item, &exec->parent);
        if (completed)
            item->result = exec->output;
        else
            item->details = exec->failure;
    }
}

/* ---- the turn ---- */

static const dur__turn_item *collect(dur__turn_item *out, const struct dur__effect *from, size_t count,
                                     size_t *out_count) {
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!from[i].undone) out[kept++] = from[i].out;
    *out_count = kept;
    return out;
}

void dur__turn_room(dur__exec *exec) {
    size_t items = exec->worker_count + exec->orchestrator_count;
    if (exec->item_out_room < items) {
        exec->item_out = dur__xrealloc(exec->item_out, items * sizeof(*exec->item_out));
        exec->item_out_room = items;
    }
    if (exec->row_out_room < exec->row_count) {
        exec->row_out = dur__xrealloc(exec->row_out, exec->row_count * sizeof(*exec->row_out));
        exec->row_out_room = exec->row_count;
    }
}

const dur__turn *dur__exec_turn(dur__exec *exec) {
    size_t items = exec->worker_count + exec->orchestrator_count;
    DUR_ASSERT(exec->item_out_room >= items && exec->row_out_room >= exec->row_count); /* every step ends with room */
    for (size_t i = 0; i < exec->row_count; i++) {
        exec->row_out[i] = exec->rows[i].row;
        exec->row_out[i].json.data = exec->json.data + exec->rows[i].at;
    }
    dur__turn *turn = &exec->turn_out;
    *turn = (dur__turn){ .first_event_id = exec->last_id + 1 - exec->row_count,
                         .events = exec->row_out,
                         .event_count = exec->row_count,
                         .open_activities = exec->open.activities,
                         .cancelled_activities = exec->cancelled,
                         .cancelled_activity_count = exec->cancelled_count,
                         .dropped_timers = exec->timers,
                         .dropped_timer_count = exec->timer_count,
                         .consumed = &exec->consumed,
                         .logs = exec->logs,
                         .log_count = exec->log_count,
                         .end = exec->end,
                         .output = exec->output,
                         .failure = exec->failure };
    turn->worker_items = collect(exec->item_out, exec->worker, exec->worker_count, &turn->worker_item_count);
    if (items > 0)
        turn->orchestrator_items = collect(exec->item_out + exec->worker_count, exec->orchestrator,
                                           exec->orchestrator_count, &turn->orchestrator_item_count);
    return turn;
}

dur__link *dur__exec_consumed(dur__exec *exec) {
    return &exec->consumed;
}

void dur__exec_turn_done(dur__exec *exec) {
    exec->turn++;
    exec->row_count = exec->worker_count = exec->orchestrator_count = 0;
    exec->cancelled_count = exec->timer_count = exec->log_count = 0;
    if (exec->json.room > 256 << 10) dur__buf_free(&exec->json); /* a parked execution keeps no large turn */
    dur__buf_clear(&exec->json);
    dur_arena_reset(exec->turn_arena);
    dur__list_init(&exec->consumed);
}

void dur__effects_free(dur__exec *exec) {
    dur__free(exec->rows);
    dur__free(exec->row_out);
    dur__free(exec->worker);
    dur__free(exec->orchestrator);
    dur__free(exec->item_out);
    dur__free(exec->cancelled);
    dur__free(exec->timers);
    dur__free(exec->logs);
    dur__buf_free(&exec->json);
}
