/*
 * mailbox.c: arrivals that were offered and not taken yet.
 *
 * Everything but queue messages can be taken at any time and lies in one heap.  A queue message can be taken only while
 * a dequeue of its queue waits, so each queue has a heap of its own, and the queues of which a message could be taken
 * lie in a heap by their oldest message: the next arrival is the older of two tops, however many messages wait.
 * The heaps of arrivals are pairing heaps woven through the arrival's link: next is the sibling, prev the first child.
 */
#include "replay/engine.h"
#include <stdlib.h>

static dur__arrival *arrival_of(dur__link *link) {
    return DUR__CONTAINER(link, dur__arrival, link);
}

static bool older(uint64_t a_ms, uint64_t a_id, uint64_t b_ms, uint64_t b_id) {
    return a_ms != b_ms ? a_ms < b_ms : a_id < b_id;
}

static dur__link *pairing_meld(dur__link *a, dur__link *b) {
    if (a == NULL) return b;
    if (b == NULL) return a;
    dur__arrival *x = arrival_of(a), *y = arrival_of(b);
    if (older(y->order_ms, y->order_id, x->order_ms, x->order_id)) {
        dur__link *swap = a;
        a = b;
        b = swap;
    }
    b->next = a->prev;
    a->prev = b;
    return a;
}

static void pairing_push(dur__link **root, dur__link *link) {
    link->next = link->prev = NULL;
    *root = pairing_meld(*root, link);
}

static dur__link *pairing_pop(dur__link **root) {
    dur__link *top = *root;
    dur__link *pairs = NULL;
    for (dur__link *at = top->prev; at != NULL;) { /* meld the children two by two, */
        dur__link *a = at, *b = at->next;
        at = b != NULL ? b->next : NULL;
        a->next = NULL;
        if (b != NULL) b->next = NULL;
        dur__link *pair = pairing_meld(a, b);
        pair->next = pairs;
        pairs = pair;
    }
    dur__link *made = NULL;
    while (pairs != NULL) { /* then all of them, the last first */
        dur__link *after = pairs->next;
        pairs->next = NULL;
        made = pairing_meld(made, pairs);
        pairs = after;
    }
    *root = made;
    top->next = top->prev = NULL;
    return top;
}

void dur__mailbox_init(dur__mailbox *mailbox) {
    dur__list_init(&mailbox->hungry);
}

static void topics_free(dur__map *topics) {
    dur__map_entry *entry;
    for (size_t at = 0; (entry = dur__map_next(topics, &at)) != NULL;) {
        dur__topic *topic = entry->value;
        for (dur__link *link; (link = dur__list_pop(&topic->memory)) != NULL;)
            dur__free(DUR__CONTAINER(link, dur__held, link));
        dur__free(topic);
    }
    dur__map_free(topics);
}

void dur__mailbox_free(dur__mailbox *mailbox) {
    topics_free(&mailbox->events);
    topics_free(&mailbox->queues);
    dur__heap_free(&mailbox->ready);
}

/* Its place in the map and, for a queue, in the heap of those that are ready come first: from here on a message that
   changes hands needs no memory. */
dur__topic *dur__topic_get(dur__mailbox *mailbox, const char *name, bool is_queue) {
    dur__map *topics = is_queue ? &mailbox->queues : &mailbox->events;
    dur__topic *topic = dur__map_get(topics, name);
    if (topic != NULL) return topic;
    dur__map_xreserve(topics, 1);
    if (is_queue) dur__heap_reserve(&mailbox->ready, topics->count + 1);
    size_t size = strlen(name) + 1;
    topic = dur__xcalloc(1, sizeof(*topic) + size);
    memcpy(topic->name, name, size);
    topic->is_queue = is_queue;
    dur__list_init(&topic->waits);
    dur__list_init(&topic->memory);
    dur__map_put(topics, topic->name, topic);
    return topic;
}

void dur__topic_changed(dur__exec *exec, dur__topic *topic) {
    if (!topic->is_queue) return;
    dur__mailbox *mailbox = &exec->mailbox;
    mailbox->hungry_at = NULL;
    bool waited = !dur__list_empty(&topic->waits);
    if (topic->messages != NULL && (waited || exec->options.queue_eager)) {
        dur__arrival *top = arrival_of(topic->messages);
        topic->ready.hi = top->order_ms;
        topic->ready.lo = top->order_id;
        dur__heap_push(&mailbox->ready, &topic->ready);
    } else {
        dur__heap_remove(&mailbox->ready, &topic->ready);
    }
    if (waited && topic->messages == NULL) {
        if (!dur__link_linked(&topic->hungry)) dur__list_push(&mailbox->hungry, &topic->hungry);
    } else {
        dur__list_unlink(&topic->hungry);
    }
}

/* Names of events may be made up for one wait each; a queue is remembered for what was offered of it. */
void dur__topic_release(dur__exec *exec, dur__topic *topic) {
    if (topic->is_queue || --topic->users > 0) return;
    dur__map_remove(&exec->mailbox.events, topic->name);
    dur__free(topic);
}

void dur__exec_offer(dur__exec *exec, dur__arrival *arrival) {
    if (arrival->item.kind != DUR_WORK_QUEUE_MESSAGE || arrival->item.name == NULL) {
        pairing_push(&exec->mailbox.others, &arrival->link);
        return;
    }
    dur__topic *topic = dur__topic_get(&exec->mailbox, arrival->item.name, true);
    pairing_push(&topic->messages, &arrival->link);
    if (older(topic->last_ms, topic->last_id, arrival->order_ms, arrival->order_id)) {
        topic->last_ms = arrival->order_ms;
        topic->last_id = arrival->order_id;
    }
    dur__topic_changed(exec, topic);
}

static dur__arrival *topic_pop(dur__exec *exec, dur__topic *topic) {
    dur__arrival *arrival = arrival_of(pairing_pop(&topic->messages));
    dur__topic_changed(exec, topic);
    return arrival;
}

dur__arrival *dur__mailbox_take(dur__exec *exec) {
    dur__mailbox *mailbox = &exec->mailbox;
    dur__heap_item *ready = dur__heap_top(&mailbox->ready);
    dur__arrival *other = mailbox->others != NULL ? arrival_of(mailbox->others) : NULL;
    if (ready != NULL && (other == NULL || older(ready->hi, ready->lo, other->order_ms, other->order_id)))
        return topic_pop(exec, DUR__CONTAINER(ready, dur__topic, ready));
    if (other == NULL) return NULL;
    return arrival_of(pairing_pop(&mailbox->others));
}

dur__arrival *dur__mailbox_take_older(dur__exec *exec, dur__topic *topic, uint64_t limit_ms, uint64_t limit_id) {
    if (topic->messages == NULL) return NULL;
    dur__arrival *top = arrival_of(topic->messages);
    if (!older(top->order_ms, top->order_id, limit_ms, limit_id)) return NULL;
    return topic_pop(exec, topic);
}

const char *dur__exec_hungry(dur__exec *exec, size_t i, uint64_t *order_ms, uint64_t *order_id) {
    dur__mailbox *mailbox = &exec->mailbox;
    if (exec->finished || exec->broken != DUR_OK) return NULL;
    if (mailbox->hungry_at == NULL || i < mailbox->hungry_index) { /* remembered, so that a loop over i is linear */
        mailbox->hungry_at = mailbox->hungry.next;
        mailbox->hungry_index = 0;
    }
    for (; mailbox->hungry_at != &mailbox->hungry && mailbox->hungry_index < i; mailbox->hungry_index++)
        mailbox->hungry_at = mailbox->hungry_at->next;
    if (mailbox->hungry_at == &mailbox->hungry) return NULL;
    dur__topic *topic = DUR__CONTAINER(mailbox->hungry_at, dur__topic, hungry);
    if (order_ms != NULL) *order_ms = topic->last_ms;
    if (order_id != NULL) *order_id = topic->last_id;
    return topic->name;
}

/* What becomes of a message that the execution did not take (R6). */
static dur__left left_verdict(const dur__exec *exec, dur_work_kind kind) {
    if (!exec->finished) return DUR__LEFT_KEEP;
    bool to_instance = kind == DUR_WORK_EXTERNAL_RAISED || kind == DUR_WORK_QUEUE_MESSAGE ||
                       kind == DUR_WORK_CANCEL_INSTANCE || kind == DUR_WORK_CONTINUE_AS_NEW;
    if (exec->end == DUR__END_CONTINUED) return to_instance ? DUR__LEFT_KEEP : DUR__LEFT_CONSUME;
    return kind == DUR_WORK_QUEUE_MESSAGE ? DUR__LEFT_DEAD : DUR__LEFT_CONSUME;
}

dur__arrival *dur__exec_drain(dur__exec *exec, dur__left *verdict) {
    dur__mailbox *mailbox = &exec->mailbox;
    dur__arrival *arrival = NULL;
    if (mailbox->others != NULL) {
        arrival = arrival_of(pairing_pop(&mailbox->others));
    } else {
        dur__map_entry *entry;
        for (size_t at = 0; arrival == NULL && (entry = dur__map_next(&mailbox->queues, &at)) != NULL;) {
            dur__topic *topic = entry->value;
            if (topic->messages != NULL) arrival = topic_pop(exec, topic);
        }
    }
    if (arrival != NULL && verdict != NULL) *verdict = left_verdict(exec, arrival->item.kind);
    return arrival;
}
