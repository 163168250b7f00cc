/*
 * fallback_lane.c: a lane for a store that has none: rounds made of the methods that every store has.
 *
 * Leases are not kept, so a handler is replayed at each turn; nothing wakes a sleeper, so it looks again and again, or
 * others wait in the store for it.
 *
 * The plain ack deletes every message that was fetched, a turn consumes those that it lists.  The lane remembers what
 * it fetched, and what a turn leaves is sent again in the same ack, at its old place in the order.
 */
#include "base/buf.h"
#include "base/list.h"
#include "provider/dead_reason.h"
#include "provider/provider_internal.h"

#include <stdlib.h>

#define POLL_MS 100u
#define UNKNOWN_MS 1000u /* a message of an unknown kind is left for a newer node, and not fetched at once by us */

typedef struct fallback_lane {
    dur_lane base;
    dur_waker *waker;
    uint64_t poll_ms;
    bool worked; /* the last round did something: do not sleep long before the next */
    dur__link fetched;
    dur_orchestration_item *offered_item; /* dur__lane_offer */
    dur_leased_work *offered_work;
} fallback_lane;

/* The messages of an instance that was fetched and not yet committed. */
typedef struct fetched {
    dur__link link;
    dur_arena *arena;
    const char *token;
    dur_message_row *messages;
    uint64_t *ids;
    size_t count;
} fetched;

static fallback_lane *lane_of(dur_lane *lane) {
    return (fallback_lane *)(void *)lane;
}

int dur__fallback_lane_open(dur_provider *store, const dur_lane_options *options, dur_lane **out, dur_error *err) {
    fallback_lane *lane = dur__xcalloc(1, sizeof(*lane));
    (void)err;
    lane->base.store = dur_store_retain(store);
    lane->waker = options->waker;
    lane->poll_ms = POLL_MS;
    dur__list_init(&lane->fetched);
    *out = &lane->base;
    return DUR_OK;
}

static void fetched_free(fetched *item) {
    dur__list_unlink(&item->link);
    dur_arena_free(item->arena);
    dur__free(item);
}

void dur__fallback_lane_close(dur_lane *base) {
    fallback_lane *lane = lane_of(base);
    for (dur__link *at; (at = dur__list_first(&lane->fetched)) != NULL;)
        fetched_free(DUR__CONTAINER(at, fetched, link));
    dur__free(lane);
}

void dur__lane_set_poll(dur_lane *lane, uint64_t poll_ms) {
    if (lane != NULL && dur__lane_is_fallback(lane)) lane_of(lane)->poll_ms = poll_ms;
}

void dur__lane_offer(dur_lane *lane, dur_orchestration_item *item, dur_leased_work *work) {
    lane_of(lane)->offered_item = item;
    lane_of(lane)->offered_work = work;
}

/* ---- what a turn leaves ------------------------------------------------------------------------------------------ */

/* The message as it was.  One millisecond earlier than it came: before whatever came meanwhile, behind its elders. */
static dur_message_row message_again(fallback_lane *lane, dur_arena *arena, const char *instance,
                                     const dur_fetched_message *from) {
    dur_provider *store = lane->base.store;
    dur_work_item item;
    dur_text json = { dur_arena_memdup(arena, from->json.data, from->json.size), from->json.size };
    dur_message_row again = { .kind = from->queue != NULL ? DUR_WORK_QUEUE_MESSAGE : DUR_WORK_EXTERNAL_RAISED };
    int code = dur_work_from_json(&item, arena, json, NULL);
    if (code == DUR_OK) (void)dur_message_row_from_work(&again, arena, &item, NULL);
    again.instance = instance;
    again.queue = dur_arena_strdup(arena, from->queue);
    again.message_id = NULL; /* it was accepted already */
    again.due_ms = from->due_ms > 1 ? from->due_ms - 1 : 1;
    if (code == DUR_EUNSUPPORTED) again.due_ms = store->methods->now_ms(store) + UNKNOWN_MS;
    again.json = json;
    return again;
}

static void remember(fallback_lane *lane, const dur_orchestration_item *item) {
    fetched *all = dur__xcalloc(1, sizeof(*all));
    all->arena = dur_arena_new();
    all->token = dur_arena_strdup(all->arena, item->lock_token);
    all->messages = dur_arena_zalloc(all->arena, (item->message_count + 1) * sizeof(*all->messages));
    all->ids = dur_arena_zalloc(all->arena, (item->message_count + 1) * sizeof(*all->ids));
    const char *instance = dur_arena_strdup(all->arena, item->instance);
    for (size_t i = 0; i < item->message_count; i++) {
        all->messages[i] = message_again(lane, all->arena, instance, &item->messages[i]);
        all->ids[i] = item->messages[i].id;
    }
    all->count = item->message_count;
    dur__list_push(&lane->fetched, &all->link);
}

static fetched *fetched_find(fallback_lane *lane, const char *token) {
    DUR__LIST_EACH(&lane->fetched, at) {
        fetched *all = DUR__CONTAINER(at, fetched, link);
        if (dur__str_eq(all->token, token)) return all;
    }
    return NULL;
}

static bool consumes(const dur_turn_commit *turn, uint64_t id) {
    for (size_t i = 0; i < turn->consumed_count; i++)
        if (turn->consumed[i] == id) return true;
    return false;
}

/* What of the messages the turn leaves, at their old places: their number.  Of one that never was (remove_work) what
   stands in front of the next start goes with it. */
static size_t messages_left(fallback_lane *lane, dur_arena *arena, dur_turn_commit *turn, const fetched *all,
                            dur_message_row *items) {
    uint64_t *dead = dur_arena_alloc(arena, (all->count + 1) * sizeof(*dead));
    size_t left = 0, dead_count = 0;
    bool goes = turn->remove_work;
    for (size_t i = 0; i < all->count; i++) {
        if (consumes(turn, all->ids[i])) continue;
        goes = goes && all->messages[i].kind != DUR_WORK_START_ORCHESTRATION;
        if (!goes)
            items[left++] = all->messages[i];
        else if (all->messages[i].kind == DUR_WORK_QUEUE_MESSAGE)
            dead[dead_count++] = all->ids[i];
    }
    if (dead_count > 0)
        (void)dur_store_dead_letter_messages(lane->base.store, all->messages[0].instance, dead, dead_count,
                                             DUR__NEVER_STARTED, &turn->error);
    return left;
}

static void commit(fallback_lane *lane, dur_arena *arena, dur_turn_commit *turn) {
    fetched *all = fetched_find(lane, turn->lock_token);
    const dur_message_row *own = turn->orchestrator_items;
    size_t own_count = turn->orchestrator_item_count;
    if (all != NULL && turn->consume_listed && !dur__fallback_only_releases(turn)) {
        dur_message_row *items = dur_arena_alloc(arena, (all->count + own_count + 1) * sizeof(*items));
        dur_error_clear(&turn->error);
        size_t left = messages_left(lane, arena, turn, all, items);
        if (turn->error.code != DUR_OK) { /* they are still there, and so is the lease */
            turn->fault = DUR_TURN_STORE;
            return;
        }
        if (own_count > 0) memcpy(items + left, own, own_count * sizeof(*items));
        turn->orchestrator_items = items;
        turn->orchestrator_item_count = left + own_count;
    }
    dur__fallback_commit(lane->base.store, turn);
    turn->orchestrator_items = own;
    turn->orchestrator_item_count = own_count;
    if (turn->fault == DUR_TURN_ORPHAN) return; /* another turn follows, which takes its start away */
    if (all != NULL && (turn->error.code == DUR_OK || !turn->error.retryable)) fetched_free(all);
}

static int round_fetch(fallback_lane *lane, dur_arena *arena, dur_round *round, dur_error *err) {
    dur_provider *store = lane->base.store;
    if (round->fetch == NULL) return DUR_OK;
    dur_fetch how = *round->fetch;
    how.poll_ms = 0; /* a loop sleeps between its rounds, and others wait in the store for it (dur__lane_offer) */
    how.owner = NULL;
    if (how.max == 0) how.max = 1;
    size_t max = how.max, offered = 0, count = 0;
    round->items = dur_arena_zalloc(arena, max * sizeof(*round->items));
    if (lane->offered_item != NULL && lane->offered_item->instance != NULL && how.kind != DUR_FETCH_SUSPECT) {
        round->items[offered++] = *lane->offered_item;
        lane->offered_item->instance = NULL;
    }
    how.max -= offered;
    int code = how.max > 0 ? dur_store_fetch_turns(store, arena, &how, round->items + offered, &count, err) : DUR_OK;
    round->item_count = offered + count;
    for (size_t i = 0; i < round->item_count; i++)
        remember(lane, &round->items[i]);
    if (round->item_count == max) round->more = true;
    return code;
}

static int round_work(fallback_lane *lane, dur_arena *arena, dur_round *round, dur_error *err) {
    dur_provider *store = lane->base.store;
    if (round->work == NULL) return DUR_OK;
    dur_work_fetch how = *round->work;
    how.poll_ms = 0;
    how.owner = NULL;
    if (how.max == 0) how.max = 1;
    size_t max = how.max, offered = 0, count = 0;
    round->works = dur_arena_zalloc(arena, max * sizeof(*round->works));
    if (lane->offered_work != NULL && lane->offered_work->json.data != NULL && how.kind != DUR_FETCH_SUSPECT) {
        round->works[offered++] = *lane->offered_work;
        lane->offered_work->json.data = NULL;
    }
    how.max -= offered;
    int code = how.max > 0 ? dur_store_fetch_works(store, arena, &how, round->works + offered, &count, err) : DUR_OK;
    round->work_count = offered + count;
    if (round->work_count == max) round->more = true;
    return code;
}

int dur__fallback_lane_round(dur_lane *base, dur_arena *arena, dur_round *round, dur_error *err) {
    fallback_lane *lane = lane_of(base);
    dur_provider *store = base->store;
    for (size_t i = 0; i < round->turn_count; i++)
        commit(lane, arena, &round->turns[i]);
    int code = dur_store_ack_works(store, round->acks, round->ack_count, err);
    if (code == DUR_OK) code = round_fetch(lane, arena, round, err);
    if (code == DUR_OK) code = round_work(lane, arena, round, err);
    dur__lane_offer(base, NULL, NULL);
    round->now_ms = store->methods->now_ms(store);
    size_t done = round->turn_count + round->ack_count + round->item_count + round->work_count;
    lane->worked = done > 0;
    /* Something was done: that has its own answers, and the failed part is asked again by the next round. */
    return done > 0 ? DUR_OK : code;
}

int dur__fallback_lane_rest(dur_lane *base, dur_rest *out, dur_error *err) {
    fallback_lane *lane = lane_of(base);
    (void)err;
    /* What this round wrote may be fetched by the next: a chain of turns does not wait for the poll at each link. */
    if (lane->worked) {
        lane->worked = false;
        return DUR_OK;
    }
    if (!dur_waker_sleep_begin(lane->waker)) return DUR_OK;
    out->fds[out->fd_count++] = (struct pollfd){ .fd = dur_waker_fd(lane->waker), .events = POLLIN };
    out->us = lane->poll_ms < UINT64_MAX / 1000 ? lane->poll_ms * 1000 : UINT64_MAX;
    return DUR_OK;
}

/* Time is news: nobody tells such a store's fetches. */
int dur__fallback_lane_rise(dur_lane *base, const dur_rest *slept, bool *news, dur_error *err) {
    (void)slept, (void)err;
    (void)dur_waker_sleep_end(lane_of(base)->waker);
    *news = true;
    return DUR_OK;
}
