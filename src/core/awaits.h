/*
 * awaits.h: which messages a history waits for.
 */
#ifndef DURITE_CORE_AWAITS_H
#define DURITE_CORE_AWAITS_H

#include <durite/sys/event.h>

/* Does the execution with these events wait for a message of the queue?  False too where an event cannot be read. */
bool dur__awaits_queue(dur_arena *arena, const dur_text *events, size_t count, const char *queue);

#endif
