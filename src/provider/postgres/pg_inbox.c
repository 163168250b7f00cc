/*
 * pg_inbox.c: starts that clients of this process hand to a lane.
 *
 * A loop that runs here writes such a start in its next round and takes the instance in the same commit: one commit for
 * both, shared with every turn of that round.  Nobody depends on the lane: a start that it does not take soon, or
 * cannot take, is withdrawn by its caller, who writes it on a connection of the pool.
 */
#include "provider/postgres/pg_internal.h"

#include <limits.h>
#include <stdlib.h>

#define FULL_ROUND 24u      /* turns; beyond it another turn saves little */
#define WITHDRAW_US 100000u /* a lane that has not come back by then is busy with something else */

typedef enum request_state { WAITING, TAKEN, ANSWERED } request_state;

struct dur__pg_request {
    const dur_message *item;
    request_state state;
    bool done; /* false: the caller does it itself */
    int code;
    dur_error error;
    dur__cond cond;
    dur__link link; /* in the lane's inbox, or among those that it has taken */
};

/*
 * The first lane whose rounds are not full yet: the cost of a round is shared by its turns, so few instances in flight
 * belong together.  When all are full, the one that has least to do.  With the mutex.
 */
static dur__pg_lane *choose_lane(dur__pg *store) {
    dur__pg_lane *best = NULL;
    unsigned least = UINT_MAX;
    DUR__LIST_EACH(&store->lanes, at) {
        dur__pg_lane *lane = DUR__CONTAINER(at, dur__pg_lane, link);
        if (lane->waker == NULL || lane->owner == NULL || !atomic_load(&lane->takes_starts)) continue;
        unsigned load = atomic_load(&lane->load);
        if (load < FULL_ROUND) return lane;
        if (load >= least) continue;
        least = load;
        best = lane;
    }
    return best;
}

bool dur__pg_inbox_start(dur__pg *store, const dur_message *item, int *code, dur_error *err) {
    dur__pg_request request = { .item = item, .error = DUR_ERROR_INIT };
    dur__mutex_lock(&store->mutex);
    dur__pg_lane *lane = choose_lane(store);
    if (lane == NULL) {
        dur__mutex_unlock(&store->mutex);
        return false;
    }
    dur__cond_init(&request.cond);
    dur__list_push(&lane->inbox, &request.link);
    dur_waker_wake(lane->waker);
    do { /* a lane in the middle of a round comes back; one that runs a handler may not for a long time */
        dur__cond_wait_us(&request.cond, &store->mutex, WITHDRAW_US);
    } while (request.state == WAITING && atomic_load(&lane->in_round));
    if (request.state == WAITING) {
        dur__list_unlink(&request.link);
        atomic_store(&lane->takes_starts, false); /* until its next round: others need not wait for it too */
    }
    while (request.state == TAKEN)
        dur__cond_wait(&request.cond, &store->mutex);
    dur__mutex_unlock(&store->mutex);
    dur__cond_destroy(&request.cond);
    if (request.state != ANSWERED || !request.done) return false;
    *code = request.code;
    if (request.code != DUR_OK && err != NULL) *err = request.error;
    return true;
}

size_t dur__pg_inbox_take(dur__pg_lane *lane, size_t max) {
    dur__pg *store = lane->store;
    size_t count = 0;
    dur__mutex_lock(&store->mutex);
    for (dur__link *link; count < max && (link = dur__list_pop(&lane->inbox)) != NULL; count++) {
        DUR__CONTAINER(link, dur__pg_request, link)->state = TAKEN;
        dur__list_push(&lane->starts, link);
    }
    dur__mutex_unlock(&store->mutex);
    return count;
}

const dur_message *dur__pg_inbox_item(const dur__link *link) {
    return DUR__CONTAINER((dur__link *)(uintptr_t)link, dur__pg_request, link)->item;
}

/* An answer for the oldest that the lane has taken; the caller may be gone when this returns. */
static void answer(dur__pg *store, dur__link *link, bool done, int code, const dur_error *err) {
    dur__pg_request *request = DUR__CONTAINER(link, dur__pg_request, link);
    dur__mutex_lock(&store->mutex);
    dur__list_unlink(link);
    request->done = done;
    request->code = code;
    if (err != NULL) request->error = *err;
    request->state = ANSWERED;
    dur__cond_signal(&request->cond);
    dur__mutex_unlock(&store->mutex);
}

void dur__pg_inbox_written(dur__pg_lane *lane, dur__link *link) {
    answer(lane->store, link, true, DUR_OK, NULL);
}

void dur__pg_inbox_give_back(dur__pg_lane *lane) {
    for (dur__link *link; (link = dur__list_first(&lane->starts)) != NULL;)
        answer(lane->store, link, false, DUR_OK, NULL);
}

void dur__pg_inbox_failed(dur__pg_lane *lane, int code, const dur_error *err) {
    for (dur__link *link; (link = dur__list_first(&lane->starts)) != NULL;)
        answer(lane->store, link, true, code, err);
}

void dur__pg_inbox_close(dur__pg_lane *lane) {
    dur__mutex_lock(&lane->store->mutex);
    for (dur__link *link; (link = dur__list_pop(&lane->inbox)) != NULL;)
        dur__list_push(&lane->starts, link);
    dur__mutex_unlock(&lane->store->mutex);
    dur__pg_inbox_give_back(lane);
}
