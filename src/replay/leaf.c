/*
 * leaf.c: what history knows as schedules and subscriptions, from their command to their answer or drop.
 *
 * A leaf is open from its record on (R2): it is found by its event id in the open table, an event wait or a dequeue
 * also in the list of its topic.  A dequeue that was given a message stays in the table until a waiting call has
 * reported the message, so that a drop can give it back (R3).  Leaves are recycled: the table holds what is open, not
 * what was.
 */
#include "replay/engine.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the open table ---- */

/* Index of the first entry whose id is >= id. */
static size_t open_search(const dur__open *open, uint64_t id) {
    size_t low = open->first, high = open->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (open->entries[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void open_push(dur__open *open, dur__leaf *leaf) {
    if (open->count == open->room && open->live < open->room / 2) { /* more holes than leaves: close up */
        size_t kept = 0;
        for (size_t i = open->first; i < open->count; i++)
            if (open->entries[i].leaf != NULL) open->entries[kept++] = open->entries[i];
        open->first = 0;
        open->count = kept;
    }
    DUR__GROW(open->entries, open->count, open->room);
    DUR_ASSERT(open->count == open->first || open->entries[open->count - 1].id < leaf->id);
    open->entries[open->count].id = leaf->id;
    open->entries[open->count++].leaf = leaf;
    open->live++;
    open->activities += leaf->kind == DUR__LEAF_ACTIVITY;
}

static void open_remove(dur__open *open, uint64_t id) {
    size_t at = open_search(open, id);
    if (at == open->count || open->entries[at].id != id || open->entries[at].leaf == NULL) return;
    open->activities -= open->entries[at].leaf->kind == DUR__LEAF_ACTIVITY;
    open->entries[at].leaf = NULL;
    open->live--;
    while (open->first < open->count && open->entries[open->first].leaf == NULL)
        open->first++;
    if (open->first == open->count) open->first = open->count = 0;
}

dur__leaf *dur__open_find(const dur__exec *exec, uint64_t id) {
    size_t at = open_search(&exec->open, id);
    return at < exec->open.count && exec->open.entries[at].id == id ? exec->open.entries[at].leaf : NULL;
}

dur__leaf *dur__open_after(const dur__exec *exec, uint64_t id) {
    for (size_t at = open_search(&exec->open, id + 1); at < exec->open.count; at++)
        if (exec->open.entries[at].leaf != NULL) return exec->open.entries[at].leaf;
    return NULL;
}

/* ---- life ---- */

dur__leaf *dur__leaf_new(dur__exec *exec, dur__leaf_kind kind, const char *site) {
    dur__link *link = dur__list_pop(&exec->free_leaves);
    dur__leaf *leaf = link != NULL ? DUR__CONTAINER(link, dur__leaf, wait) : dur__xmalloc(sizeof(*leaf));
    *leaf = (dur__leaf){ .kind = kind, .site = site };
    dur__list_push(&exec->unbound, &leaf->wait);
    return leaf;
}

void dur__leaf_free(dur__exec *exec, dur__leaf *leaf) {
    if (leaf->topic != NULL) dur__topic_release(exec, leaf->topic);
    dur__free(leaf->instance);
    dur__free(leaf->held);
    dur__list_unlink(&leaf->wait);
    *leaf = (dur__leaf){ 0 };
    dur__list_push(&exec->free_leaves, &leaf->wait);
}

const char *dur__intern(dur__exec *exec, const char *name) {
    char *known = dur__map_get(&exec->names, name);
    if (known != NULL) return known;
    dur__map_xreserve(&exec->names, 1);
    known = dur__xstrdup(name);
    dur__map_put(&exec->names, known, known);
    return known;
}

bool dur__leaf_schedule(dur__exec *exec, dur__leaf *leaf, dur_event *event) {
    if (exec->original) return dur__original_command(exec, event, leaf, NULL, NULL, leaf->site);
    if (!dur__command(exec, event, leaf->site)) { /* broken: nobody will look at it again */
        if (leaf->future != NULL) leaf->future->of.leaf = NULL;
        dur__leaf_free(exec, leaf);
        return false;
    }
    dur__leaf_bind(exec, leaf, event);
    return true;
}

/* Give a message to a waiting dequeue. */
static void leaf_satisfy(dur__exec *exec, dur__leaf *leaf, dur__held *held) {
    leaf->held = held; /* at once: what follows may need memory */
    dur__list_unlink(&leaf->wait);
    dur__list_unlink(&leaf->trying);
    dur__topic_changed(exec, leaf->topic);
    dur_future *future = leaf->future;
    leaf->future = NULL;
    if (!exec->original) dur__list_push(&exec->unmarked, &leaf->trying);
    if (future == NULL) return; /* nobody will ever report it: its drop, at the end if not before, gives it back */
    dur__future_hold(future, leaf);
    dur__settle(future, DUR_OK, held->data);
}

void dur__leaf_bind(dur__exec *exec, dur__leaf *leaf, const dur_event *event) {
    leaf->id = event->event_id;
    if (leaf->role == DUR__ROLE_ATTEMPT && leaf->retry != NULL) dur__retry_bound(leaf->retry, leaf->id);
    if (leaf->kind == DUR__LEAF_CHILD) leaf->instance = dur__xstrdup(event->instance);
    open_push(&exec->open, leaf);
    dur__list_unlink(&leaf->wait); /* of those that are unbound */
    if (!exec->replaying) dur__effect_scheduled(exec, leaf, event);
    if (leaf->kind != DUR__LEAF_PULSE && leaf->kind != DUR__LEAF_MESSAGE) return;
    dur__list_push(&leaf->topic->waits, &leaf->wait);
    dur__topic_changed(exec, leaf->topic);
    if (leaf->kind == DUR__LEAF_PULSE) return;
    dur__link *link = dur__list_pop(&leaf->topic->memory);
    if (link != NULL) {
        leaf_satisfy(exec, leaf, DUR__CONTAINER(link, dur__held, link));
    } else if (leaf->is_try) {
        leaf->limit_ms = exec->group_ms;
        leaf->limit_id = exec->group_id;
        dur__list_push(&exec->tries, &leaf->trying);
    }
}

void dur__leaf_close(dur__exec *exec, dur__leaf *leaf) {
    if (leaf->id != 0) open_remove(&exec->open, leaf->id);
    dur__list_unlink(&leaf->trying);
    if (dur__link_linked(&leaf->wait)) {
        dur__list_unlink(&leaf->wait);
        if (leaf->topic != NULL) dur__topic_changed(exec, leaf->topic);
    }
    dur__leaf_free(exec, leaf);
}

void dur__leaf_answer(dur__exec *exec, dur__leaf *leaf, dur_code code, const char *text, bool is_final) {
    dur_future *future = leaf->future;
    dur__retrying *retry = leaf->retry;
    dur__leaf_role role = leaf->role;
    if (leaf->dropped) { /* its drop is still to be recorded; an event is lost on it, as in the original */
        dur__list_unlink(&leaf->wait);
        return;
    }
    dur__leaf_close(exec, leaf);
    if (role != DUR__ROLE_FUTURE) {
        if (retry != NULL) dur__retry_hear(exec, retry, role, code, text, is_final);
    } else if (future != NULL) {
        future->of.leaf = NULL;
        future->is_final = is_final;
        dur__settle(future, code, text);
    }
}

/* ---- drops ---- */

bool dur__leaf_drop_event(const dur__leaf *leaf, const char *reason, dur_event *out) {
    static const dur_event_kind kinds[] = {
        [DUR__LEAF_ACTIVITY] = DUR_EVENT_ACTIVITY_CANCEL_REQUESTED,
        [DUR__LEAF_PULSE] = DUR_EVENT_EXTERNAL_SUBSCRIBED_CANCELLED,
        [DUR__LEAF_MESSAGE] = DUR_EVENT_QUEUE_SUBSCRIPTION_CANCELLED,
        [DUR__LEAF_CHILD] = DUR_EVENT_SUB_ORCHESTRATION_CANCEL_REQUESTED,
    };
    if (leaf->kind == DUR__LEAF_TIMER) return false;
    *out = (dur_event){
        .kind = kinds[leaf->kind], .has_source_event_id = true, .source_event_id = leaf->id, .reason = reason
    };
    return true;
}

void dur__leaf_dropped(dur__exec *exec, dur__leaf *leaf) {
    if (!exec->replaying) dur__effect_dropped(exec, leaf);
    dur__topic *topic = leaf->topic;
    dur__held *held = leaf->held;
    leaf->held = NULL;
    dur__leaf_close(exec, leaf);
    if (held != NULL) dur__topic_deliver(exec, topic, held);
}

void dur__leaf_drop(dur__exec *exec, dur__leaf *leaf, const char *reason) {
    if (exec->original) {
        dur__original_drop(exec, leaf, reason);
        return;
    }
    dur_event event;
    if (dur__leaf_drop_event(leaf, reason, &event) && !dur__command(exec, &event, leaf->site)) return;
    dur__leaf_dropped(exec, leaf);
}

/* ---- messages ---- */

dur__held *dur__held_new(dur__exec *exec, const char *queue, const char *data) {
    size_t size = strlen(data) + 1;
    dur__held *held = dur__xmalloc(sizeof(*held) + size);
    *held = (dur__held){ .seq = ++exec->held_seq, .queue = queue };
    memcpy(held->data, data, size);
    return held;
}

void dur__topic_deliver(dur__exec *exec, dur__topic *topic, dur__held *held) {
    dur__link *oldest = dur__list_first(&topic->waits);
    if (oldest != NULL) {
        leaf_satisfy(exec, DUR__CONTAINER(oldest, dur__leaf, wait), held);
        return;
    }
    dur__link *before = topic->memory.prev; /* its place by arrival; nearly always the end */
    while (before != &topic->memory && DUR__CONTAINER(before, dur__held, link)->seq > held->seq)
        before = before->prev;
    dur__list_push(before->next, &held->link);
}

/* ---- for people ---- */

const char *dur__leaf_text(const dur__leaf *leaf, char *out, size_t out_size) {
    static const char *const kinds[] = {
        [DUR__LEAF_ACTIVITY] = "activity",
        [DUR__LEAF_TIMER] = "timer",
        [DUR__LEAF_PULSE] = "pulse",
        [DUR__LEAF_MESSAGE] = "message",
        [DUR__LEAF_CHILD] = "sub-orchestration",
    };
    const char *name = leaf->topic != NULL ? leaf->topic->name : leaf->name;
    snprintf(out, out_size, "%s%s%s #%" PRIu64 "%s%s%s", kinds[leaf->kind], name != NULL ? " " : "",
             name != NULL ? name : "", leaf->id, leaf->site != NULL ? " (" : "", leaf->site != NULL ? leaf->site : "",
             leaf->site != NULL ? ")" : "");
    return out;
}

bool dur__exec_waiting(const dur__exec *exec, size_t i, char *out, size_t out_size) {
    for (dur__leaf *leaf = dur__open_after(exec, 0); leaf != NULL; leaf = dur__open_after(exec, leaf->id)) {
        if (leaf->held != NULL || i-- > 0) continue;
        dur__leaf_text(leaf, out, out_size);
        return true;
    }
    return false;
}
