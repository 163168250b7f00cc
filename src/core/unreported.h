/*
 * unreported.h: queue messages that a history holds and that no call has reported to its handler.
 *
 * Whoever ends an execution without its handler has only the history to ask.  That a message was given to a dequeue
 * stands there, and that the dequeue was dropped; that a call has returned the message to the handler does not, where
 * the call did so in the group in which the message was given, which is nearly always.  The other case is recorded by
 * two markers (the system call of dur_patched, which replay passes over where the code does not ask for it): one at the
 * end of the group in which a dequeue got a message that no call has reported, one where a call reports it later.  In
 * histories without trace there are none, and a message that was given to a dequeue counts as reported.
 */
#ifndef DURITE_CORE_UNREPORTED_H
#define DURITE_CORE_UNREPORTED_H

#include "base/map.h"
#include <durite/sys/arena.h>
#include <durite/sys/event.h>
#include <durite/sys/work.h>

#define DUR__MARKER "__duroxide_syscall:patched"
#define DUR__MARK_HELD "__durite:held:"         /* and the id of the dequeue */
#define DUR__MARK_REPORTED "__durite:reported:" /* the same */

/* When a message that goes back to its queue is due: before all that has not been taken from it. */
#define DUR__DUE_FIRST 1

typedef struct dur__unreported {
    dur_arena *arena;
    dur__map queues, dequeues;
    uint64_t arrivals;
} dur__unreported; /* an arena, else zeroed: the beginning of a history */

/* The next event of the history; it lives as long as the arena. */
void dur__unreported_note(dur__unreported *self, const dur_event *event);
/* Is a dequeue of this queue without a message? */
bool dur__unreported_awaits(const dur__unreported *self, const char *name);
/* What no call has reported, in order of arrival, in the arena. */
const dur_carried *dur__unreported_list(const dur__unreported *self, size_t *count);
/* The message that puts one back into its queue; with DUR__DUE_FIRST.  Without an id: its sender's was accepted. */
dur_work_item dur__unreported_back(const char *instance, const dur_carried *what);
void dur__unreported_free(dur__unreported *self);

#endif
