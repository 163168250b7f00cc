/*
 * awaits.c: which messages a history waits for.
 */
#include "core/awaits.h"

#include "base/buf.h"

static void take_out(uint64_t *open, size_t *count, size_t at) {
    memmove(&open[at], &open[at + 1], (*count - at - 1) * sizeof(*open));
    (*count)--;
}

/* A message goes to the oldest dequeue that waits; a drop and the end take dequeues away. */
bool dur__awaits_queue(dur_arena *arena, const dur_text *events, size_t count, const char *queue) {
    uint64_t *open = dur_arena_alloc(arena, (count + 1) * sizeof(*open));
    size_t waiting = 0;
    for (size_t i = 0; i < count; i++) {
        dur_event event;
        if (dur_event_from_json(&event, arena, events[i], NULL) != DUR_OK) return false;
        if (event.kind == DUR_EVENT_QUEUE_SUBSCRIBED && strcmp(event.name, queue) == 0)
            open[waiting++] = event.event_id;
        else if (event.kind == DUR_EVENT_QUEUE_EVENT_DELIVERED && strcmp(event.name, queue) == 0 && waiting > 0)
            take_out(open, &waiting, 0);
        else if (event.kind == DUR_EVENT_QUEUE_SUBSCRIPTION_CANCELLED)
            for (size_t k = 0; k < waiting; k++)
                if (open[k] == event.source_event_id) take_out(open, &waiting, k);
        if (dur_event_kind_role(event.kind) == DUR_EVENT_ROLE_TERMINAL) return false;
    }
    return waiting > 0;
}
