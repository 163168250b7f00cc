/*
 * poison.c: who may be acquired together (L6).
 *
 * A handler that crashes takes the process with it, and everything that the process has acquired and not committed is
 * counted one more attempt.  So instances that were acquired before without a commit are acquired alone: nothing else
 * acquired and uncommitted in the whole process, over all runtimes.  Activities of an owner that did not stop cleanly
 * are run one at a time, until they have returned or run five seconds.
 */
#include "runtime/runtime_internal.h"

#define ACTIVITY_ALONE_US 5000000u

static struct {
    dur__mutex mutex;
    size_t fresh;            /* acquired (or being acquired) and uncommitted */
    bool suspect;            /* an instance is out alone */
    bool wanted;             /* a loop waits to acquire one: nothing new is acquired until it could */
    uint64_t activity_until; /* a suspect activity is out: until then (monotonic), 0: none */
} gate = { .mutex = DUR__MUTEX_INIT };

size_t dur__gate_reserve_fresh(size_t want) {
    dur__mutex_lock(&gate.mutex);
    size_t granted = gate.suspect || gate.wanted ? 0 : want;
    gate.fresh += granted;
    dur__mutex_unlock(&gate.mutex);
    return granted;
}

void dur__gate_unreserve_fresh(size_t count) {
    dur__mutex_lock(&gate.mutex);
    DUR_ASSERT(gate.fresh >= count);
    gate.fresh -= count;
    dur__mutex_unlock(&gate.mutex);
}

bool dur__gate_claim_suspect(void) {
    dur__mutex_lock(&gate.mutex);
    bool claimed = !gate.suspect && gate.fresh == 0;
    if (claimed) gate.suspect = true;
    gate.wanted = !claimed && !gate.suspect;
    dur__mutex_unlock(&gate.mutex);
    return claimed;
}

void dur__gate_forget_claim(void) {
    dur__mutex_lock(&gate.mutex);
    gate.wanted = false;
    dur__mutex_unlock(&gate.mutex);
}

void dur__gate_release_suspect(void) {
    dur__mutex_lock(&gate.mutex);
    DUR_ASSERT(gate.suspect);
    gate.suspect = false;
    dur__mutex_unlock(&gate.mutex);
}

bool dur__gate_claim_activity(uint64_t now_us) {
    dur__mutex_lock(&gate.mutex);
    bool claimed = gate.activity_until <= now_us;
    if (claimed) gate.activity_until = UINT64_MAX; /* until it starts, then five seconds */
    dur__mutex_unlock(&gate.mutex);
    return claimed;
}

void dur__gate_activity_started(uint64_t now_us) {
    dur__mutex_lock(&gate.mutex);
    gate.activity_until = now_us + ACTIVITY_ALONE_US;
    dur__mutex_unlock(&gate.mutex);
}

void dur__gate_release_activity(void) {
    dur__mutex_lock(&gate.mutex);
    gate.activity_until = 0;
    dur__mutex_unlock(&gate.mutex);
}
