/*
 * pg_inbox.c: starts that clients of this process hand to a lane, and that their first turn writes.
 *
 * The loop takes such a start and runs the handler; the turn that comes of it makes the instance, in one commit that it
 * shares with every turn of that round.  Nobody depends on the lane: a start that it does not take soon is withdrawn by
 * its caller, and one that it gives back is left to him; he writes it on a connection of the pool.
 */
#include "provider/postgres/pg_internal.h"
#include "provider/start_item.h"

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
    char token[DUR__PG_TOKEN_SIZE + 24]; /* TAKEN */
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
    atomic_fetch_add(&lane->starts_wait, 1);
    /* A wake that nobody needs would end its next sleep, for nothing but a look around. */
    if (atomic_load(&lane->asleep)) dur_waker_wake(lane->waker);
    do { /* a lane in the middle of a round comes back; one that runs a handler may not for a long time */
        dur__cond_wait_us(&request.cond, &store->mutex, WITHDRAW_US);
    } while (request.state == WAITING && atomic_load(&lane->in_round));
    if (request.state == WAITING) {
        dur__list_unlink(&request.link);
        atomic_fetch_sub(&lane->starts_wait, 1);
        atomic_store(&lane->takes_starts, false); /* until it comes back: others need not wait for it too */
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

/* ---- the lane's side --------------------------------------------------------------------------------------------- */

int dur__pg_lane_starts(dur_lane *base, dur_arena *arena, size_t max, dur_orchestration_item *out, size_t *count,
                        dur_error *err) {
    dur__pg_lane *lane = (dur__pg_lane *)(void *)base;
    dur__pg *store = lane->store;
    (void)err;
    *count = 0;
    bool takes = lane->owner != NULL && !lane->unknown;
    if (atomic_load(&lane->takes_starts) != takes) atomic_store(&lane->takes_starts, takes);
    if (!takes || atomic_load(&lane->starts_wait) == 0) return DUR_OK;
    if (lane->start_serial == 0) dur__pg_token(store, lane->start_prefix);
    uint64_t now_ms = dur__pg_now_ms(base->store);
    dur__mutex_lock(&store->mutex);
    for (dur__link *link; *count < max && (link = dur__list_pop(&lane->inbox)) != NULL;) {
        dur__pg_request *request = DUR__CONTAINER(link, dur__pg_request, link);
        atomic_fetch_sub(&lane->starts_wait, 1);
        request->state = TAKEN;
        snprintf(request->token, sizeof(request->token), "%s-%llx", lane->start_prefix,
                 (unsigned long long)++lane->start_serial);
        dur__list_push(&lane->starts, link);
        out[(*count)++] = dur__start_item(arena, request->item, request->token, now_ms);
    }
    dur__mutex_unlock(&store->mutex);
    return DUR_OK;
}

/* The caller may be gone when this returns. */
static void answer(dur__pg *store, dur__pg_request *request, bool done, int code, const dur_error *err) {
    dur__mutex_lock(&store->mutex);
    dur__list_unlink(&request->link);
    request->done = done;
    request->code = code;
    if (err != NULL) request->error = *err;
    request->state = ANSWERED;
    dur__cond_signal(&request->cond);
    dur__mutex_unlock(&store->mutex);
}

static dur__pg_request *taken(const dur__pg_lane *lane, const char *token) {
    DUR__LIST_EACH(&lane->starts, at) {
        dur__pg_request *request = DUR__CONTAINER(at, dur__pg_request, link);
        if (strcmp(request->token, token) == 0) return request;
    }
    return NULL;
}

/* The first turn of a start that this lane has. */
bool dur__pg_start_valid(const dur__pg_lane *lane, dur_turn_commit *turn) {
    const dur__pg_request *request = lane != NULL && turn->lock_token != NULL ? taken(lane, turn->lock_token) : NULL;
    if (request != NULL && strcmp(request->item->instance, turn->instance) == 0 && turn->execution_id != 0 &&
        turn->metadata.orchestration_name != NULL && turn->metadata.orchestration_version != NULL)
        return true;
    dur_error_set(&turn->error, DUR_ELEASE, false, "postgres.commit", "Invalid lock token: no lane has such a start");
    turn->fault = DUR_TURN_LEASE_LOST;
    return false;
}

void dur__pg_lane_start_back(dur_lane *base, const char *lock_token) {
    dur__pg_lane *lane = (dur__pg_lane *)(void *)base;
    dur__pg_request *request = taken(lane, lock_token);
    if (request != NULL) answer(lane->store, request, false, DUR_OK, NULL);
}

void dur__pg_inbox_answer(dur__pg_lane *lane, dur_turn_commit **turns, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const dur_turn_commit *turn = turns[i];
        dur__pg_request *request = turn->writes_start ? taken(lane, turn->lock_token) : NULL;
        if (request == NULL) continue;
        if (turn->fault == DUR_TURN_FINE)
            answer(lane->store, request, true, DUR_OK, NULL);
        else if (turn->error.code == DUR_EUNKNOWN) /* written or not: to do it again would be wrong */
            answer(lane->store, request, true, DUR_EUNKNOWN, &turn->error);
    }
}

void dur__pg_inbox_close(dur__pg_lane *lane) {
    dur__mutex_lock(&lane->store->mutex);
    for (dur__link *link; (link = dur__list_pop(&lane->inbox)) != NULL;) {
        DUR__CONTAINER(link, dur__pg_request, link)->state =
            TAKEN; /* or its caller would withdraw it while we answer */
        dur__list_push(&lane->starts, link);
    }
    dur__mutex_unlock(&lane->store->mutex);
    for (dur__link *link; (link = dur__list_first(&lane->starts)) != NULL;)
        answer(lane->store, DUR__CONTAINER(link, dur__pg_request, link), false, DUR_OK, NULL);
}
