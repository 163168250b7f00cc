/*
 * drive.c: the drivers of this thread: each steps, and when none has anything to do the thread sleeps for all of them.
 */
#include "base/drive.h"

#include "base/assert.h"
#include "base/thread.h"

#define TOGETHER_MAX 8                     /* of more runtimes on one thread the others are looked at by time */
#define SLICE_US 10000                     /* what the caller waits for may come without any of them */
#define FAKE_SLICE_US UINT64_C(3600000000) /* in a fake world nobody else is there, and it costs nothing */

static _Thread_local dur__link drivers;
static _Thread_local bool stalls;

static dur__link *list(void) {
    if (drivers.next == NULL) dur__list_init(&drivers);
    return &drivers;
}

void dur__driver_add(dur__driver *driver) {
    dur__list_push(list(), &driver->link);
}

void dur__driver_remove(dur__driver *driver) {
    if (driver->link.next != NULL) dur__list_unlink(&driver->link);
}

bool dur__drives(void) {
    return !dur__list_empty(list());
}

bool dur__drive_stalls(void) {
    return stalls && dur__drives();
}

static void sleep_for_all(uint64_t most_us) {
    struct pollfd fds[TOGETHER_MAX * DUR__DRIVE_FDS];
    size_t count = 0;
    uint64_t due_us = UINT64_MAX;
    uint64_t slice_us = dur__world_entered() ? FAKE_SLICE_US : SLICE_US;
    if (most_us > slice_us) most_us = slice_us;
    DUR__LIST_EACH(list(), at) {
        dur__driver *driver = DUR__CONTAINER(at, dur__driver, link);
        if (count + DUR__DRIVE_FDS > TOGETHER_MAX * DUR__DRIVE_FDS) break;
        uint64_t us = UINT64_MAX;
        count += driver->rest(driver->data, fds + count, &us);
        if (us < due_us) due_us = us;
    }
    stalls = due_us == UINT64_MAX && dur__world_alone();
    if (due_us < most_us) most_us = due_us;
    if (most_us > 0) (void)dur__poll(fds, count, most_us);
}

/* Each in turn.  A step may end drivers, its own among them: after one that did something nothing here is looked at. */
bool dur__drive(uint64_t most_us) {
    size_t count = 0;
    DUR__LIST_EACH(list(), at) count++;
    if (count == 0) return false;
    stalls = false;
    for (; count > 0 && dur__drives(); count--) {
        dur__link *first = dur__list_pop(list());
        dur__list_push(list(), first);
        dur__driver *driver = DUR__CONTAINER(first, dur__driver, link);
        uint64_t deadline_us = dur_deadline_set(DUR_NO_DEADLINE); /* the caller's, and a step commits */
        bool did = driver->step(driver->data);
        (void)dur_deadline_set(deadline_us);
        if (did) return true;
    }
    sleep_for_all(most_us);
    return true;
}
