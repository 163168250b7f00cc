/*
 * arrive.c: what an arrival does to the execution (R2, R3, R5).
 *
 * The same functions apply stored and new arrivals; only the check whether a message becomes an event at all is for new
 * ones.
 */
#include "replay/engine.h"
#include <inttypes.h>

void dur__apply_started(dur__exec *exec, const dur_event *event) {
    exec->began_ms = event->timestamp_ms;
    exec->input = dur_arena_strdup(exec->arena, event->input != NULL ? event->input : "");
    exec->birth = event->birth;
    exec->parent = DUR__PARENT_OF(event);
    exec->parent.instance = dur_arena_strdup(exec->arena, event->parent_instance);
    exec->status = dur__xstrdup(event->initial_custom_status);
    for (size_t i = 0; !exec->original && i < event->carry_forward_count; i++) {
        const dur_carried *carried = &event->carry_forward_events[i]; /* in original histories only a copy for audit */
        dur__topic *topic = dur__topic_get(&exec->mailbox, carried->name, true);
        dur__topic_deliver(exec, topic, dur__held_new(exec, topic->name, carried->data));
    }
}

/* ---- answers ---- */

static bool kind_fits(const dur__leaf *leaf, dur_event_kind kind) {
    switch (kind) {
    case DUR_EVENT_ACTIVITY_COMPLETED:
    case DUR_EVENT_ACTIVITY_FAILED:
        return leaf->kind == DUR__LEAF_ACTIVITY;
    case DUR_EVENT_TIMER_FIRED:
        return leaf->kind == DUR__LEAF_TIMER;
    default:
        return leaf->kind == DUR__LEAF_CHILD;
    }
}

static void answer_displayed(dur__exec *exec, dur__leaf *leaf, dur_code code, const dur_failure *details,
                             bool is_final) {
    dur__leaf_answer(exec, leaf, code, dur_failure_display(dur__passing(exec), details), is_final);
}

static void apply_failure(dur__exec *exec, dur__leaf *leaf, const dur_failure *details) {
    if (details == NULL) {
        dur__leaf_answer(exec, leaf, DUR_EFAILED, "failed without details", false);
        return;
    }
    /* What crashes the process each time is for the handler to judge: it knows what has to be undone.  The original
       ends the orchestration over its head, and so it does when its histories are replayed. */
    if (details->category == DUR_FAILURE_POISON && !exec->original) {
        answer_displayed(exec, leaf, DUR_EPOISON, details, true);
        return;
    }
    if (details->category != DUR_FAILURE_APPLICATION) { /* of the rest handlers see application failures only */
        dur__finish_failed(exec, details);
        return;
    }
    bool cancelled = details->kind == DUR_FAILURE_CANCELLED;
    dur_code code = cancelled && leaf->kind == DUR__LEAF_CHILD ? DUR_ECANCELLED : DUR_EFAILED;
    /* The original marks no failure as retryable and tries again all the same. */
    bool is_final = leaf->kind == DUR__LEAF_ACTIVITY && !details->retryable && !exec->original;
    if (!cancelled && details->kind != DUR_FAILURE_PANICKED) {
        dur__leaf_answer(exec, leaf, code, details->message, is_final);
        return;
    }
    answer_displayed(exec, leaf, code, details, is_final);
}

static void apply_answer(dur__exec *exec, const dur_event *event) {
    dur__leaf *leaf = dur__open_find(exec, event->source_event_id);
    if (leaf == NULL) return; /* settled, dropped or unknown: applied to nothing */
    if (!kind_fits(leaf, event->kind)) {
        char text[160];
        dur__break(exec, DUR_ENONDETERMINISM,
                   "event %" PRIu64 ": history holds %s of event %" PRIu64 ", which is the %s", event->event_id,
                   dur_event_kind_name(event->kind), event->source_event_id, dur__leaf_text(leaf, text, sizeof(text)));
        return;
    }
    switch (event->kind) {
    case DUR_EVENT_ACTIVITY_FAILED:
    case DUR_EVENT_SUB_ORCHESTRATION_FAILED:
        apply_failure(exec, leaf, event->details);
        break;
    case DUR_EVENT_TIMER_FIRED:
        dur__leaf_answer(exec, leaf, DUR_OK, "", false);
        break;
    default:
        dur__leaf_answer(exec, leaf, DUR_OK, event->result, false);
        break;
    }
}

/* ---- cancellation ---- */

static void apply_cancel(dur__exec *exec, const dur_event *event) {
    if (exec->cancel_reason != NULL) return;
    exec->cancel_reason = dur_arena_strdup(exec->arena, event->reason != NULL ? event->reason : "");
    exec->cancel_id = event->event_id;
    if (exec->original) { /* there a request is the end */
        dur__finish_failed(exec, dur__cancelled_failure(exec, NULL));
        return;
    }
    if (!exec->replaying) dur__effect_grace(exec, event->event_id);
    char *text = dur_arena_format(exec->arena, "cancelled: %s", exec->cancel_reason);
    for (uint64_t id = 0; exec->broken == DUR_OK;) {
        dur__leaf *leaf = dur__open_after(exec, id);
        if (leaf == NULL) break;
        id = leaf->id;
        if (leaf->detached || leaf->held != NULL) continue;
        dur_event drop;
        if (dur__leaf_drop_event(leaf, "cancel_requested", &drop) && !dur__command(exec, &drop, leaf->site)) break;
        if (!exec->replaying) dur__effect_dropped(exec, leaf);
        dur__leaf_answer(exec, leaf, DUR_ECANCELLED, text, false);
    }
}

void dur__apply_arrival(dur__exec *exec, const dur_event *event) {
    switch (event->kind) {
    case DUR_EVENT_EXTERNAL_EVENT: {
        dur__topic *topic = dur__map_get(&exec->mailbox.events, event->name);
        dur__link *oldest = topic != NULL ? dur__list_first(&topic->waits) : NULL;
        if (oldest != NULL) dur__leaf_answer(exec, DUR__CONTAINER(oldest, dur__leaf, wait), DUR_OK, event->data, false);
        break;
    }
    case DUR_EVENT_QUEUE_EVENT_DELIVERED: {
        dur__topic *topic = dur__topic_get(&exec->mailbox, event->name, true);
        dur__topic_deliver(exec, topic, dur__held_new(exec, topic->name, event->data != NULL ? event->data : ""));
        break;
    }
    case DUR_EVENT_ORCHESTRATION_CANCEL_REQUESTED:
        apply_cancel(exec, event);
        break;
    default:
        apply_answer(exec, event);
        break;
    }
}

/* ---- new messages ---- */

static bool answer_event(dur__exec *exec, const dur_work_item *item, dur_event_kind kind, dur_event *out) {
    if (item->execution_id != exec->options.execution_id) return false;
    /* A child's end, meant for the instance that had our id before us? */
    if (!dur__same_birth(item->parent_birth, exec->birth)) return false;
    dur__leaf *leaf = dur__open_find(exec, item->id);
    if (leaf == NULL) return false;
    if (!kind_fits(leaf, kind)) {
        char text[160];
        dur__log_held(exec, DUR_LOG_WARN, "ignored %s for the %s", dur_work_kind_name(item->kind),
                      dur__leaf_text(leaf, text, sizeof(text)));
        return false;
    }
    *out = (dur_event){ .kind = kind,
                        .has_source_event_id = true,
                        .source_event_id = item->id,
                        .result = item->result,
                        .details = item->details,
                        .fire_at_ms = item->fire_at_ms };
    return true;
}

static bool cancel_event(dur__exec *exec, const dur_work_item *item, dur_event *out) {
    if (item->cancel_seq != 0) { /* the grace of a request is over: ours, and still running? */
        if (exec->cancel_id == item->cancel_seq) dur__finish_failed(exec, dur__cancelled_failure(exec, NULL));
        return false;
    }
    if (exec->cancel_reason != NULL || !dur__cancel_is_for(item, &exec->parent)) return false;
    *out = (dur_event){ .kind = DUR_EVENT_ORCHESTRATION_CANCEL_REQUESTED,
                        .reason = item->reason != NULL ? item->reason : "" };
    return true;
}

bool dur__arrival_event(dur__exec *exec, const dur_work_item *item, dur_event *out) {
    switch (item->kind) {
    case DUR_WORK_ACTIVITY_COMPLETED:
        return answer_event(exec, item, DUR_EVENT_ACTIVITY_COMPLETED, out);
    case DUR_WORK_ACTIVITY_FAILED:
        return answer_event(exec, item, DUR_EVENT_ACTIVITY_FAILED, out);
    case DUR_WORK_TIMER_FIRED:
        return answer_event(exec, item, DUR_EVENT_TIMER_FIRED, out);
    case DUR_WORK_SUB_ORCH_COMPLETED:
        return answer_event(exec, item, DUR_EVENT_SUB_ORCHESTRATION_COMPLETED, out);
    case DUR_WORK_SUB_ORCH_FAILED:
        return answer_event(exec, item, DUR_EVENT_SUB_ORCHESTRATION_FAILED, out);
    case DUR_WORK_EXTERNAL_RAISED:
    case DUR_WORK_QUEUE_MESSAGE:
        if (item->name == NULL) return false;
        *out = (dur_event){ .kind = item->kind == DUR_WORK_QUEUE_MESSAGE ? DUR_EVENT_QUEUE_EVENT_DELIVERED
                                                                         : DUR_EVENT_EXTERNAL_EVENT,
                            .name = item->name,
                            .data = item->data != NULL ? item->data : "" };
        return true;
    case DUR_WORK_CANCEL_INSTANCE:
        return cancel_event(exec, item, out);
    default:
        dur__log_held(exec, DUR_LOG_WARN, "ignored %s for a running execution", dur_work_kind_name(item->kind));
        return false;
    }
}
