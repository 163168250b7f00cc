/*
 * awaits.c: which messages a history waits for.
 */
#include "core/awaits.h"

#include "core/unreported.h"

bool dur__awaits_queue(dur_arena *arena, const dur_text *events, size_t count, const char *queue) {
    dur__unreported known = { .arena = arena };
    bool runs = true;
    for (size_t i = 0; i < count && runs; i++) {
        dur_event *event = dur_arena_alloc(arena, sizeof(*event));
        runs = dur_event_from_json(event, arena, events[i], NULL) == DUR_OK &&
               dur_event_kind_role(event->kind) != DUR_EVENT_ROLE_TERMINAL;
        if (runs) dur__unreported_note(&known, event);
    }
    bool awaits = runs && dur__unreported_awaits(&known, queue);
    dur__unreported_free(&known);
    return awaits;
}
