/*
 * open_work.h: which activities a history has scheduled and neither answered nor dropped.
 *
 * A function of the events alone: no handler is needed, so that whoever acquires an instance can tell what was not
 * stored because its runtime had it alone (dur_turn_work), whether or not the handler is registered here.
 */
#ifndef DURITE_CORE_OPEN_WORK_H
#define DURITE_CORE_OPEN_WORK_H

#include "base/map.h"
#include <durite/sys/event.h>
#include <durite/sys/work.h>

/* Zeroed: empty.  Free `at`. */
typedef struct dur__open_work {
    dur__map at; /* schedule's event id → 1 + its place in the history */
} dur__open_work;

/* The next event, and its place in the history. */
void dur__open_work_see(dur__open_work *self, size_t place, const dur_event *event);
/* Somebody has it: a worker row, a completion that waits, a worker of this node. */
void dur__open_work_known(dur__open_work *self, uint64_t activity_id);
/* The work item that the schedule has asked for, by the execution's first event; texts are theirs. */
dur_work_item dur__open_work_item(const dur_event *started, const dur_event *schedule);

#endif
