/*
 * waker.c: one word of state in front of a bell.
 *
 *   AWAKE     the thread runs; nothing came since it last looked
 *   NOTIFIED  a wake came; the next sleep does not happen
 *   ASLEEP    the thread polls (or is about to): who wakes it must ring
 *
 * wake() exchanges in NOTIFIED and writes only when it found ASLEEP, so exactly one writer pays for each sleep.  The
 * write comes a moment after the exchange: the sleeper may be back by then, for another reason, and find nothing to
 * read.  It remembers how much it is owed and reads that at a later sleep; and freeing waits for it, because a late
 * write must not hit a descriptor number that has a new meaning.
 */
#include "base/assert.h"
#include "base/bell.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/waker_internal.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { AWAKE, NOTIFIED, ASLEEP };

struct dur_waker {
    _Atomic uint32_t state;
    dur__bell bell;
    bool asleep;           /* the sleeper's own, as is owed */
    uint64_t owed;         /* writes that will come or have come and were not read */
    uint64_t birth_serial; /* in a forked child nobody is left to write what is owed */
};

dur_waker *dur_waker_new(void) {
    dur_waker *waker = dur__zget(sizeof(*waker));
    if (waker == NULL) return NULL;
    if (!dur__bell_open(&waker->bell)) {
        dur__free(waker);
        return NULL;
    }
    waker->birth_serial = dur__process_serial();
    return waker;
}

static void waker_collect(dur_waker *waker) {
    uint64_t count = dur__bell_hear(&waker->bell);
    DUR_ASSERT(count <= waker->owed);
    waker->owed -= count;
}

void dur_waker_free(dur_waker *waker) {
    if (waker == NULL) return;
    if (waker->birth_serial == dur__process_serial()) {
        dur_waker_sleep_end(waker);
        while (waker->owed > 0) {
            struct pollfd readable = { .fd = waker->bell.fd, .events = POLLIN };
            poll(&readable, 1, -1);
            waker_collect(waker);
        }
    }
    dur__bell_close(&waker->bell);
    dur__free(waker);
}

void dur_waker_wake(dur_waker *waker) {
    if (atomic_exchange_explicit(&waker->state, NOTIFIED, memory_order_acq_rel) != ASLEEP) return;
    dur__bell_ring(&waker->bell);
}

int dur_waker_fd(const dur_waker *waker) {
    return waker->bell.fd;
}

bool dur_waker_sleep_begin(dur_waker *waker) {
    uint32_t expected = AWAKE;
    if (atomic_compare_exchange_strong_explicit(&waker->state, &expected, ASLEEP, memory_order_acq_rel,
                                                memory_order_acquire)) {
        waker->asleep = true;
        return true;
    }
    DUR_ASSERT(expected == NOTIFIED); /* no second begin without an end */
    atomic_exchange_explicit(&waker->state, AWAKE, memory_order_acq_rel);
    return false;
}

bool dur_waker_sleep_end(dur_waker *waker) {
    bool woken = atomic_exchange_explicit(&waker->state, AWAKE, memory_order_acq_rel) == NOTIFIED;
    if (woken && waker->asleep) waker->owed++;
    waker->asleep = false;
    if (waker->owed > 0) waker_collect(waker);
    return woken;
}

bool dur_waker_sleep(dur_waker *waker, uint64_t timeout_us) {
    if (!dur_waker_sleep_begin(waker)) return true;
    uint64_t began_us = dur__monotonic_us();
    for (;;) {
        uint64_t passed_us = dur__monotonic_us() - began_us;
        if (passed_us > timeout_us) passed_us = timeout_us;
        uint64_t left_us = timeout_us - passed_us;
        struct pollfd readable = { .fd = waker->bell.fd, .events = POLLIN };
        /* An old write may make it readable; the state says whether this is a wake.  Signals are no wakes. */
        int ready = dur__poll(&readable, 1, timeout_us == UINT64_MAX ? UINT64_MAX : left_us);
        if (ready >= 0 && atomic_load_explicit(&waker->state, memory_order_acquire) == NOTIFIED) break;
        if (ready > 0)
            waker_collect(waker);
        else if (ready == 0)
            break;
    }
    return dur_waker_sleep_end(waker);
}

bool dur__waker_spin(const dur_waker *waker, uint64_t us) {
    uint64_t end_us = dur__monotonic_us() + us;
    do {
        for (int i = 0; i < 32; i++) {
            if (atomic_load_explicit(&waker->state, memory_order_acquire) == NOTIFIED) return true;
            dur__relax();
        }
    } while (dur__monotonic_us() < end_us);
    return false;
}
