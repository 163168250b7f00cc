/*
 * original.c: histories without trace: 1, as the original engine writes them (last part of R8).
 *
 * There a turn is the arrivals of a batch, then the commands, then the drops.  So a command may be given before its
 * record: it waits in a queue (pending) and is bound when the record comes; the answer of a system call may come later,
 * like an activity's; drops are compared as a set; a cancel request and what follows the terminal event are not run.
 *
 * After the end of such a history the execution goes on by the same rules: commands are given, then recorded one by one
 * and bound as replay will bind them.  So it does not matter where replay ends and life begins.
 */
#include "base/arena_internal.h"
#include "replay/engine.h"
#include <inttypes.h>

struct dur__pending {
    dur__pending *next;
    dur_event event;    /* texts in exec->pending_arena */
    dur__leaf *leaf;    /* a schedule's, or (is_drop) what is given up */
    dur_future *answer; /* detached start: a branch waits for its id */
    const char *made;   /* system call: its result, if it is new */
    const char *site;
    bool is_drop;
};

static dur__pending *pending_push(dur__exec *exec, const dur_event *event, const char *site) {
    if (exec->pending_arena == NULL) exec->pending_arena = dur__arena_xnew();
    dur__pending *pending = dur_arena_zalloc(exec->pending_arena, sizeof(*pending));
    dur__event_copy(exec->pending_arena, event, &pending->event);
    pending->site = site;
    if (exec->pending_last != NULL)
        exec->pending_last->next = pending;
    else
        exec->pending_first = pending;
    exec->pending_last = pending;
    return pending;
}

static void pending_remove(dur__exec *exec, dur__pending *pending) {
    dur__pending **at = &exec->pending_first, *before = NULL;
    while (*at != pending) {
        before = *at;
        at = &(*at)->next;
    }
    *at = pending->next;
    if (exec->pending_last == pending) exec->pending_last = before;
}

static dur__pending *pending_command(dur__exec *exec) {
    dur__pending *at = exec->pending_first;
    while (at != NULL && at->is_drop)
        at = at->next;
    return at;
}

void dur__original_free(dur__exec *exec) {
    for (dur__pending *at = exec->pending_first; at != NULL; at = at->next)
        if (at->leaf != NULL && at->leaf->id == 0 && !at->is_drop) dur__leaf_free(exec, at->leaf);
    exec->pending_first = exec->pending_last = NULL;
    dur__map_free(&exec->expected_drops);
    dur_arena_free(exec->pending_arena);
}

/* ---- commands as they are given ---- */

bool dur__original_command(dur__exec *exec, dur_event *event, dur__leaf *leaf, dur_future *answer, const char *made,
                           const char *site) {
    if (exec->broken != DUR_OK) return false;
    dur__exec_at(exec, site);
    dur__pending *pending = pending_push(exec, event, site);
    pending->leaf = leaf;
    pending->answer = answer;
    pending->made = made != NULL ? dur_arena_strdup(exec->pending_arena, made) : NULL;
    return true;
}

void dur__original_forget(dur__exec *exec, const dur_future *answer) {
    for (dur__pending *at = exec->pending_first; at != NULL; at = at->next)
        if (at->answer == answer) at->answer = NULL;
}

void dur__original_drop(dur__exec *exec, dur__leaf *leaf, const char *reason) {
    leaf->dropped = true;
    if (leaf->kind == DUR__LEAF_TIMER) { /* has no record; one that is still pending goes when it is bound */
        if (leaf->id != 0) dur__leaf_dropped(exec, leaf);
        return;
    }
    if (leaf->id != 0 && dur__map_remove_u64(&exec->expected_drops, leaf->id) != NULL) {
        dur__leaf_dropped(exec, leaf);
        return;
    }
    dur_event event;
    dur__leaf_drop_event(leaf, reason, &event);
    dur__pending *pending = pending_push(exec, &event, leaf->site);
    pending->leaf = leaf;
    pending->is_drop = true;
}

const char *dur__original_system(dur__exec *exec, const char *name, const char *input, const char *made,
                                 const char *site) {
    dur_event event = { .kind = DUR_EVENT_ACTIVITY_SCHEDULED, .name = name, .input = input };
    dur_future *answer = dur__future_new(exec, DUR__FUTURE_LEAF);
    dur__leaf *leaf = dur__leaf_new(exec, DUR__LEAF_ACTIVITY, site);
    leaf->name = name;
    leaf->is_system = true;
    leaf->future = answer;
    answer->of.leaf = leaf;
    dur__original_command(exec, &event, leaf, NULL, made, site);
    return dur_await(answer);
}

/* ---- records ---- */

/* The command's record stands in history: event has its id and what else only the record knows. */
static void pending_bind(dur__exec *exec, dur__pending *pending, dur_event *event) {
    pending_remove(exec, pending);
    dur__leaf *leaf = pending->leaf;
    if (event->kind == DUR_EVENT_KEY_VALUE_SET) dur__kv_stamp(exec, event->key, event->last_updated_at_ms);
    if (event->kind == DUR_EVENT_ORCHESTRATION_CHAINED && !exec->replaying) dur__effect_started(exec, event);
    if (leaf != NULL) {
        dur__leaf_bind(exec, leaf, event);
        if (leaf->dropped && leaf->kind == DUR__LEAF_TIMER) dur__leaf_dropped(exec, leaf);
    }
    if (pending->answer != NULL) dur__settle(pending->answer, DUR_OK, event->instance);
}

/* A marker is asked for and the next record is another command: the code that wrote it did not know the marker. */
static void marker_refuse(dur__exec *exec, dur__pending *pending) {
    pending_remove(exec, pending);
    dur__leaf_answer(exec, pending->leaf, DUR_OK, "false", false);
    dur__quiesce(exec);
}

static void replay_command(dur__exec *exec, const dur_event *record) {
    for (;;) {
        dur__pending *pending = pending_command(exec);
        bool asked = pending != NULL && dur__is_marker(&pending->event);
        if (asked && !(dur__is_marker(record) && dur__str_eq(record->input, pending->event.input))) {
            marker_refuse(exec, pending);
            if (exec->broken != DUR_OK) return;
            continue;
        }
        if (dur__is_marker(record) && !asked) return; /* no longer asked for */
        if (pending == NULL) {
            char holds[160];
            dur__event_describe(record, holds, sizeof(holds));
            dur__break(exec, DUR_ENONDETERMINISM,
                       "event %" PRIu64 ": history holds %s, the code did not ask for it (last call at %s)",
                       record->event_id, holds, exec->where != NULL ? exec->where : "?");
            return;
        }
        dur_event event = pending->event;
        if (!dur__match_compare(exec, record, &event, pending->site)) return;
        event.event_id = record->event_id;
        event.timestamp_ms = record->timestamp_ms;
        event.fire_at_ms = record->fire_at_ms;
        event.last_updated_at_ms = record->last_updated_at_ms;
        char *full = NULL;
        if (record->instance != NULL && event.instance == NULL && strncmp(record->instance, "sub::", 5) == 0)
            event.instance = full =
                dur_arena_format(exec->pending_arena, "%s::%s", exec->options.instance, record->instance);
        else if (record->instance != NULL)
            event.instance = record->instance;
        pending_bind(exec, pending, &event);
        return;
    }
}

static void replay_drop(dur__exec *exec, const dur_event *record) {
    if (!dur__str_eq(record->reason, "dropped_future")) return; /* part of the end */
    for (dur__pending *at = exec->pending_first; at != NULL; at = at->next) {
        if (!at->is_drop || at->leaf->id != record->source_event_id) continue;
        pending_remove(exec, at);
        dur__leaf_dropped(exec, at->leaf);
        return;
    }
    dur__leaf *leaf = dur__open_find(exec, record->source_event_id);
    if (leaf == NULL) return;
    if (leaf->is_try) {
        dur_future *future = leaf->future;
        leaf->future = NULL;
        dur__leaf_dropped(exec, leaf);
        if (future != NULL) dur__settle(future, DUR_ENOTFOUND, "the queue is empty");
        return;
    }
    dur__map_put_u64(&exec->expected_drops, leaf->id, leaf);
}

static void replay_terminal(dur__exec *exec, const dur_event *record) {
    static const dur_event_kind kinds[] = {
        [DUR__OUTCOME_NONE] = DUR_EVENT_ORCHESTRATION_FAILED,
        [DUR__OUTCOME_COMPLETE] = DUR_EVENT_ORCHESTRATION_COMPLETED,
        [DUR__OUTCOME_FAIL] = DUR_EVENT_ORCHESTRATION_FAILED,
        [DUR__OUTCOME_CONTINUE] = DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW,
    };
    bool outside =
        record->kind == DUR_EVENT_ORCHESTRATION_FAILED && record->details != NULL &&
        (record->details->category != DUR_FAILURE_APPLICATION || record->details->kind == DUR_FAILURE_CANCELLED);
    if (!exec->forced && !outside && (!exec->returned || kinds[exec->root->outcome.kind_] != record->kind)) {
        char holds[64], asked[64] = "is still waiting";
        dur__event_describe(record, holds, sizeof(holds));
        if (exec->returned)
            dur__event_describe(&(dur_event){ .kind = kinds[exec->root->outcome.kind_] }, asked, sizeof(asked));
        dur__break(exec, DUR_ENONDETERMINISM,
                   "event %" PRIu64 ": history holds %s, the code ended with: %s (last call at %s)", record->event_id,
                   holds, asked, exec->where != NULL ? exec->where : "?");
        return;
    }
    dur__finish_forced(exec, record);
}

void dur__original_replay(dur__exec *exec, const dur_event *event) {
    if (exec->finished) return; /* the original writes some drops behind the terminal event */
    exec->now_ms = event->timestamp_ms;
    exec->last_id = event->event_id;
    dur_event_role role = dur_event_kind_role(event->kind);
    if (role == DUR_EVENT_ROLE_TERMINAL) {
        replay_terminal(exec, event);
        return;
    }
    if (exec->forced) return;
    switch (role) {
    case DUR_EVENT_ROLE_START:
        dur__apply_started(exec, event);
        exec->root = dur__branch_new(exec, NULL, NULL, NULL);
        break;
    case DUR_EVENT_ROLE_ARRIVAL:
        if (event->kind == DUR_EVENT_ORCHESTRATION_CANCEL_REQUESTED)
            exec->forced = true;
        else if (!exec->returned)
            dur__apply_arrival(exec, event);
        break;
    case DUR_EVENT_ROLE_COMMAND:
        replay_command(exec, event);
        break;
    case DUR_EVENT_ROLE_DROP:
        replay_drop(exec, event);
        break;
    case DUR_EVENT_ROLE_TERMINAL:
        break;
    }
    if (exec->broken == DUR_OK) dur__quiesce(exec);
    if (exec->pending_first == NULL && exec->pending_arena != NULL) dur_arena_reset(exec->pending_arena);
    dur__graveyard_clear(exec);
}

void dur__original_end(dur__exec *exec) {
    if (exec->finished) return;
    for (dur__pending *at;
         (at = pending_command(exec)) != NULL && dur__is_marker(&at->event) && exec->broken == DUR_OK;)
        marker_refuse(exec, at);
    if (exec->broken != DUR_OK) return;
    dur__pending *pending = pending_command(exec);
    char text[160];
    if (exec->forced) {
        dur__break(exec, DUR_ECORRUPT, "after event %" PRIu64 ": the history of a cancelled execution has no end",
                   exec->last_id);
    } else if (pending != NULL) {
        dur__event_describe(&pending->event, text, sizeof(text));
        dur__break(exec, DUR_ENONDETERMINISM, "after event %" PRIu64 ": history ends, the code asked for %s at %s",
                   exec->last_id, text, pending->site != NULL ? pending->site : "?");
    } else if (exec->returned) {
        dur__break(exec, DUR_ENONDETERMINISM, "after event %" PRIu64 ": history goes on, the code has ended",
                   exec->last_id);
    } else if (exec->expected_drops.count > 0) {
        size_t at = 0;
        dur__leaf *leaf = dur__map_next(&exec->expected_drops, &at)->value;
        dur__break(exec, DUR_ENONDETERMINISM,
                   "after event %" PRIu64 ": history holds the drop of the %s, the code did not drop it", exec->last_id,
                   dur__leaf_text(leaf, text, sizeof(text)));
    }
}

/* ---- life after it ---- */

static void record_pending(dur__exec *exec, dur__pending *pending) {
    dur_event event = pending->event;
    if (pending->is_drop) {
        event.source_event_id = pending->leaf->id;
        dur__emit(exec, &event);
        pending_remove(exec, pending);
        dur__leaf_dropped(exec, pending->leaf);
        return;
    }
    dur__emit(exec, &event);
    bool system = pending->made != NULL;
    pending_bind(exec, pending, &event);
    if (!system) return;
    dur_event answer = { .kind = DUR_EVENT_ACTIVITY_COMPLETED,
                         .has_source_event_id = true,
                         .source_event_id = event.event_id,
                         .result = pending->made };
    dur__emit(exec, &answer);
    dur__apply_arrival(exec, &answer);
}

void dur__original_settle(dur__exec *exec) {
    while (exec->pending_first != NULL && exec->broken == DUR_OK && !exec->finished) {
        record_pending(exec, exec->pending_first);
        dur__branches_run(exec);
    }
    if (exec->pending_first == NULL && exec->pending_arena != NULL) dur_arena_reset(exec->pending_arena);
    if (exec->returned && exec->broken == DUR_OK) {
        exec->returned = false;
        dur__finish_returned_now(exec);
    }
}
