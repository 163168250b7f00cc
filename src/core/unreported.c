/*
 * unreported.c: which messages of a history no call has reported.  What src/replay does with queues, without a handler.
 */
#include "core/unreported.h"

#include "base/buf.h"
#include "base/list.h"
#include <stdlib.h>
#include <string.h>

typedef struct letter {
    dur__link link; /* in its queue's memory, by number */
    uint64_t number;
    dur_carried what;
} letter;

typedef struct queue {
    dur__link waits;  /* dequeues without a message */
    dur__link memory; /* messages without a dequeue */
} queue;

typedef struct dequeue {
    dur__link link; /* in its queue's waits */
    queue *from;
    letter *given;
    bool held; /* a group has ended, and no call has reported it */
} dequeue;

static queue *queue_get(dur__unreported *self, const char *name) {
    queue *found = dur__map_get(&self->queues, name);
    if (found != NULL) return found;
    found = dur_arena_zalloc(self->arena, sizeof(*found));
    dur__list_init(&found->waits);
    dur__list_init(&found->memory);
    dur__map_put(&self->queues, name, found);
    return found;
}

static void deliver(queue *to, letter *given) {
    dur__link *oldest = dur__list_pop(&to->waits);
    if (oldest != NULL) {
        DUR__CONTAINER(oldest, dequeue, link)->given = given;
        return;
    }
    dur__link *before = to->memory.prev; /* its place by arrival */
    while (before != &to->memory && DUR__CONTAINER(before, letter, link)->number > given->number)
        before = before->prev;
    dur__list_push(before->next, &given->link);
}

static void arrive(dur__unreported *self, const char *name, const char *data) {
    letter *made = dur_arena_zalloc(self->arena, sizeof(*made));
    made->number = ++self->arrivals;
    made->what = (dur_carried){ .name = name, .data = data != NULL ? data : "" };
    deliver(queue_get(self, name), made);
}

static void subscribe(dur__unreported *self, const dur_event *event) {
    dequeue *made = dur_arena_zalloc(self->arena, sizeof(*made));
    made->from = queue_get(self, event->name);
    dur__map_put_u64(&self->dequeues, event->event_id, made);
    dur__link *oldest = dur__list_pop(&made->from->memory);
    if (oldest != NULL)
        made->given = DUR__CONTAINER(oldest, letter, link);
    else
        dur__list_push(&made->from->waits, &made->link);
}

static void drop(dur__unreported *self, uint64_t id) {
    dequeue *dropped = dur__map_remove_u64(&self->dequeues, id);
    if (dropped == NULL) return;
    dur__list_unlink(&dropped->link);
    if (dropped->given != NULL) deliver(dropped->from, dropped->given);
}

/* True: the marker begins with this; the rest is the id of a dequeue. */
static bool marks(const char *marker, const char *prefix, uint64_t *id) {
    size_t size = strlen(prefix);
    return strncmp(marker, prefix, size) == 0 && dur__u64_parse(marker + size, strlen(marker + size), id);
}

static void mark(dur__unreported *self, const char *marker) {
    uint64_t id = 0;
    if (marks(marker, DUR__MARK_REPORTED, &id)) {
        (void)dur__map_remove_u64(&self->dequeues, id);
    } else if (marks(marker, DUR__MARK_HELD, &id)) {
        dequeue *meant = dur__map_get_u64(&self->dequeues, id);
        if (meant != NULL) meant->held = true;
    }
}

void dur__unreported_note(dur__unreported *self, const dur_event *event) {
    switch (event->kind) {
    case DUR_EVENT_ORCHESTRATION_STARTED:
        if (event->trace == 0) break; /* there what was carried over is a copy, for audit */
        for (size_t i = 0; i < event->carry_forward_count; i++)
            arrive(self, event->carry_forward_events[i].name, event->carry_forward_events[i].data);
        break;
    case DUR_EVENT_QUEUE_SUBSCRIBED:
        subscribe(self, event);
        break;
    case DUR_EVENT_QUEUE_EVENT_DELIVERED:
        arrive(self, event->name, event->data);
        break;
    case DUR_EVENT_QUEUE_SUBSCRIPTION_CANCELLED:
        drop(self, event->source_event_id);
        break;
    case DUR_EVENT_ACTIVITY_SCHEDULED:
        if (event->input != NULL && dur__str_eq(event->name, DUR__MARKER)) mark(self, event->input);
        break;
    default:
        break;
    }
}

bool dur__unreported_awaits(const dur__unreported *self, const char *name) {
    const queue *found = dur__map_get(&self->queues, name);
    return found != NULL && !dur__list_empty(&found->waits);
}

static int by_number(const void *a, const void *b) {
    uint64_t x = (*(letter *const *)a)->number, y = (*(letter *const *)b)->number;
    return x < y ? -1 : x > y;
}

const dur_carried *dur__unreported_list(const dur__unreported *self, size_t *count) {
    letter **left = dur_arena_alloc(self->arena, ((size_t)self->arrivals + 1) * sizeof(letter *));
    dur__map_entry *entry;
    *count = 0;
    for (size_t i = 0; (entry = dur__map_next(&self->queues, &i)) != NULL;) {
        queue *at = entry->value;
        DUR__LIST_EACH(&at->memory, link) left[(*count)++] = DUR__CONTAINER(link, letter, link);
    }
    for (size_t i = 0; (entry = dur__map_next(&self->dequeues, &i)) != NULL;) {
        dequeue *at = entry->value;
        if (at->given != NULL && at->held) left[(*count)++] = at->given;
    }
    if (*count > 1) qsort(left, *count, sizeof(letter *), by_number);
    dur_carried *out = dur_arena_alloc(self->arena, (*count + 1) * sizeof(*out));
    for (size_t i = 0; i < *count; i++)
        out[i] = left[i]->what;
    return out;
}

dur_work_item dur__unreported_back(const char *instance, const dur_carried *what) {
    return (
        dur_work_item){ .kind = DUR_WORK_QUEUE_MESSAGE, .instance = instance, .name = what->name, .data = what->data };
}

void dur__unreported_free(dur__unreported *self) {
    dur__map_free(&self->queues);
    dur__map_free(&self->dequeues);
}
