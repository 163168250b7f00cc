/*
 * fallback_lane.c: a lane for a store that has none: rounds made of the methods that every store has.
 *
 * Leases are not kept, so a handler is replayed at each turn; nothing wakes a sleeper, so it looks again and again.
 */
#include "base/buf.h"
#include "provider/provider_internal.h"

#include <stdlib.h>

#define POLL_MS 100u

typedef struct fallback_lane {
    dur_lane base;
    dur_waker *waker;
    uint64_t poll_ms;
    bool worked; /* the last round did something: do not sleep long before the next */
} fallback_lane;

static fallback_lane *lane_of(dur_lane *lane) {
    return (fallback_lane *)(void *)lane;
}

int dur__fallback_lane_open(dur_provider *store, const dur_lane_options *options, dur_lane **out, dur_error *err) {
    fallback_lane *lane = dur__xcalloc(1, sizeof(*lane));
    (void)err;
    lane->base.store = dur_store_retain(store);
    lane->waker = options->waker;
    lane->poll_ms = POLL_MS;
    *out = &lane->base;
    return DUR_OK;
}

void dur__fallback_lane_close(dur_lane *lane) {
    free(lane);
}

void dur__lane_set_poll(dur_lane *lane, uint64_t poll_ms) {
    if (lane != NULL && dur__lane_is_fallback(lane)) lane_of(lane)->poll_ms = poll_ms;
}

static int round_fetch(dur_provider *store, dur_arena *arena, dur_round *round, dur_error *err) {
    if (round->fetch == NULL) return DUR_OK;
    dur_fetch how = *round->fetch;
    how.poll_ms = 0; /* a loop sleeps in lane_wait */
    how.owner = NULL;
    if (how.max == 0) how.max = 1;
    round->items = dur_arena_zalloc(arena, how.max * sizeof(*round->items));
    int code = dur_store_fetch_turns(store, arena, &how, round->items, &round->item_count, err);
    if (round->item_count == how.max) round->more = true;
    return code;
}

static int round_work(dur_provider *store, dur_arena *arena, dur_round *round, dur_error *err) {
    if (round->work == NULL) return DUR_OK;
    dur_work_fetch how = *round->work;
    how.poll_ms = 0;
    how.owner = NULL;
    if (how.max == 0) how.max = 1;
    round->works = dur_arena_zalloc(arena, how.max * sizeof(*round->works));
    int code = dur_store_fetch_works(store, arena, &how, round->works, &round->work_count, err);
    if (round->work_count == how.max) round->more = true;
    return code;
}

int dur__fallback_lane_round(dur_lane *base, dur_arena *arena, dur_round *round, dur_error *err) {
    fallback_lane *lane = lane_of(base);
    dur_provider *store = base->store;
    for (size_t i = 0; i < round->turn_count; i++)
        dur__fallback_commit(store, &round->turns[i]);
    int code = dur_store_ack_works(store, round->acks, round->ack_count, err);
    if (code == DUR_OK) code = round_fetch(store, arena, round, err);
    if (code == DUR_OK) code = round_work(store, arena, round, err);
    round->now_ms = store->methods->now_ms(store);
    size_t done = round->turn_count + round->ack_count + round->item_count + round->work_count;
    lane->worked = done > 0;
    /* Something was done: that has its own answers, and the failed part is asked again by the next round. */
    return done > 0 ? DUR_OK : code;
}

int dur__fallback_lane_wait(dur_lane *base, uint64_t timeout_ms, dur_error *err) {
    fallback_lane *lane = lane_of(base);
    uint64_t ms = timeout_ms < lane->poll_ms ? timeout_ms : lane->poll_ms;
    (void)err;
    /* What this round wrote may be fetched by the next: a chain of turns does not wait for the poll at each link. */
    if (lane->worked) {
        lane->worked = false;
        return DUR_OK;
    }
    dur_waker_sleep(lane->waker, ms * 1000u);
    return DUR_OK;
}
