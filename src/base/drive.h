/*
 * drive.h: a thread that others depend on does their work instead of sleeping.
 *
 * Where a runtime has no threads of its own, the thread that steps it may also call a client and wait there for what
 * only the next step can do.  Such a thread is a driver: whoever is about to wait on it for something that is not a
 * matter of a moment calls dur__drive instead.
 */
#ifndef DURITE_BASE_DRIVE_H
#define DURITE_BASE_DRIVE_H

#include "base/list.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DUR__DRIVE_FDS 4

typedef struct dur__driver {
    dur__link link;           /* its thread's own */
    bool (*step)(void *data); /* do something; false: there is nothing to do, or this is no moment to do it */
    size_t (*rest)(void *data, struct pollfd fds[DUR__DRIVE_FDS], uint64_t *us); /* what to wait for, and how long */
    void *data;
} dur__driver;

/* Both on the thread that drives. */
void dur__driver_add(dur__driver *driver);
void dur__driver_remove(dur__driver *driver);

/* True: this thread is a driver, and has done something for at most most_us, if only slept.  Hold no lock. */
bool dur__drive(uint64_t most_us);
bool dur__drives(void);
/* This thread has just slept in vain: nothing will happen by itself, and nobody else is there (dur_fake_world_alone).
 */
bool dur__drive_stalls(void);

#endif
