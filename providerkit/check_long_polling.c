/*
 * check_long_polling.c: what an empty fetch with a poll time does.  Measured on the real clock; the best of three
 * counts, so that a busy machine is not taken for a slow store.
 */
#include "kit_internal.h"

#define READING 1u /* two readings of a clock that shows whole milliseconds */

static uint64_t empty_fetch(kit *t, uint64_t poll_ms) {
    dur_orchestration_item item = { .instance = NULL };
    dur_fetch how = { .lock_ms = t->lock_ms, .poll_ms = poll_ms };
    uint64_t from = kit_real_ms();
    MUST(dur_store_fetch_orchestration_item(t->p, t->arena, &how, &item, ERR));
    THAT(item.instance == NULL);
    return kit_real_ms() - from;
}

static uint64_t empty_work(kit *t, uint64_t poll_ms) {
    uint64_t from = kit_real_ms();
    dur_leased_work work = kit_fetch_work(t, HOW(.poll_ms = poll_ms));
    THAT(work.json.data == NULL);
    return kit_real_ms() - from;
}

static uint64_t quickest(kit *t, uint64_t (*fetch)(kit *t, uint64_t poll_ms), uint64_t poll_ms, uint64_t enough) {
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 3 && best >= enough; i++) {
        uint64_t took = fetch(t, poll_ms);
        if (took < best) best = took;
    }
    return best;
}

static void short_poll_returns_immediately(kit *t) {
    THAT(quickest(t, empty_fetch, 500, t->quick_ms) < t->quick_ms);
}

static void long_poll_waits_for_timeout(kit *t) {
    THAT(empty_fetch(t, 500) >= 500 - READING);
}

static void fetch_respects_timeout_upper_bound(kit *t) {
    uint64_t most = 300 + (t->quick_ms > 100 ? 2 * t->quick_ms : 200);
    THAT(quickest(t, empty_fetch, 300, most) < most);
    THAT(quickest(t, empty_work, 300, most) < most);
    THAT(quickest(t, empty_fetch, 0, t->quick_ms) < t->quick_ms);
}

static void short_poll_work_item_returns_immediately(kit *t) {
    THAT(quickest(t, empty_work, 500, t->quick_ms) < t->quick_ms);
}

static void long_poll_work_item_waits_for_timeout(kit *t) {
    THAT(empty_work(t, 500) >= 500 - READING);
}

const kit_check kit_long_polling[] = {
    { "short_poll_returns_immediately", short_poll_returns_immediately, DUR_KIT_POLL_SHORT },
    { "long_poll_waits_for_timeout", long_poll_waits_for_timeout, DUR_KIT_POLL_LONG },
    CHECK(fetch_respects_timeout_upper_bound),
    { "short_poll_work_item_returns_immediately", short_poll_work_item_returns_immediately, DUR_KIT_POLL_SHORT },
    { "long_poll_work_item_waits_for_timeout", long_poll_work_item_waits_for_timeout, DUR_KIT_POLL_LONG },
    CHECKS_END,
};
