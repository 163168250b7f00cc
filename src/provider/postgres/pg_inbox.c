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

/* What one thread has handed in and waits for.  With the mutex. */
typedef struct call {
    dur__cond cond;
    size_t left; /* not answered */
} call;

struct dur__pg_request {
    dur_start_request *start;
    call *call;
    dur__pg_lane *lane; /* while it is not answered */
    request_state state;
    bool done;                           /* false: the caller does it itself */
    char token[DUR__PG_TOKEN_SIZE + 24]; /* TAKEN */
    dur__link link;                      /* in the lane's inbox, or among those that it has taken */
};

/*
 * The first lane whose rounds are not full yet: the cost of a round is shared by its turns, so few instances in flight
 * belong together.  When all are full, the one that has least to do.  Of several that come at once those before count.
 * With the mutex.
 */
static dur__pg_lane *choose_lane(dur__pg *store, bool several, const char *handler) {
    dur__pg_lane *best = NULL;
    unsigned least = UINT_MAX;
    DUR__LIST_EACH(&store->lanes, at) {
        dur__pg_lane *lane = DUR__CONTAINER(at, dur__pg_lane, link);
        if (lane->waker == NULL || lane->owner == NULL || !atomic_load(&lane->takes_starts)) continue;
        if (!dur_handler_passes(lane->handlers, handler)) continue;
        unsigned load = atomic_load(&lane->load);
        if (several) load += atomic_load(&lane->starts_wait);
        if (load < FULL_ROUND) return lane;
        if (load >= least) continue;
        least = load;
        best = lane;
    }
    return best;
}

/* Where an instance that exists is no error, many will: that would refuse whole rounds. */
static bool may_be_handed(const dur_start_request *start) {
    return start->policy == DUR_EXISTS_FAIL && start->delay_ms == 0 && start->item->due_ms == 0 &&
           start->item->message_id == NULL && start->item->kind == DUR_WORK_START_ORCHESTRATION;
}

/* With the mutex: the thread that waits is woken with the last of its requests. */
static void answer_locked(dur__pg_request *request, bool done, const dur_error *err) {
    dur__list_unlink(&request->link);
    request->done = done;
    request->lane = NULL;
    if (err != NULL) request->start->error = *err;
    request->state = ANSWERED;
    if (--request->call->left == 0) dur__cond_signal(&request->call->cond);
}

static size_t hand_in(dur__pg *store, dur__pg_request *requests, size_t count) {
    size_t handed = 0;
    dur__pg_lane *lane = NULL;
    for (size_t i = 0; i < count; i++) {
        if (requests[i].state != WAITING) continue;
        const char *handler = requests[i].start->item->handler;
        if (lane == NULL || !dur_handler_passes(lane->handlers, handler)) lane = choose_lane(store, count > 1, handler);
        if (lane == NULL) continue; /* its caller writes it */
        requests[i].lane = lane;
        dur__list_push(&lane->inbox, &requests[i].link);
        atomic_fetch_add(&lane->starts_wait, 1);
        /* A wake that nobody needs would end its next sleep, for nothing but a look around. */
        if (atomic_load(&lane->asleep)) dur_waker_wake(lane->waker);
        if (++handed % FULL_ROUND == 0) lane = NULL;
    }
    return handed;
}

/* A lane in the middle of a round comes back; one that runs a handler may not for a long time. */
static void withdraw(dur__pg_request *requests, size_t count) {
    for (size_t i = 0; i < count; i++) {
        dur__pg_lane *lane = requests[i].lane;
        if (lane == NULL || requests[i].state != WAITING || atomic_load(&lane->in_round)) continue;
        atomic_fetch_sub(&lane->starts_wait, 1);
        atomic_store(&lane->takes_starts, false); /* until it comes back: others need not wait for it too */
        answer_locked(&requests[i], false, NULL);
    }
}

void dur__pg_inbox_starts(dur__pg *store, dur_start_request *starts, size_t count, bool *done) {
    dur__pg_request one = { .state = ANSWERED };
    dur__pg_request *requests = count > 1 ? dur__xmalloc(count * sizeof(*requests)) : &one;
    call self = { .left = 0 };
    for (size_t i = 0; i < count; i++)
        requests[i] = (dur__pg_request){ .start = &starts[i],
                                         .call = &self,
                                         .state = may_be_handed(&starts[i]) ? WAITING : ANSWERED };
    dur__cond_init(&self.cond);
    dur__mutex_lock(&store->mutex);
    self.left = hand_in(store, requests, count);
    while (self.left > 0)
        if (!dur__cond_wait_us(&self.cond, &store->mutex, WITHDRAW_US)) withdraw(requests, count);
    dur__mutex_unlock(&store->mutex);
    dur__cond_destroy(&self.cond);
    for (size_t i = 0; i < count; i++)
        done[i] = requests[i].done;
    if (requests != &one) dur__free(requests);
}

/* ---- the lane's side --------------------------------------------------------------------------------------------- */

int dur__pg_lane_starts(dur_lane *base, dur_arena *arena, size_t max, dur_orchestration_item *out, size_t *count,
                        dur_error *err) {
    dur__pg_lane *lane = (dur__pg_lane *)(void *)base;
    dur__pg *store = lane->store;
    (void)err;
    *count = 0;
    bool takes = lane->owner != NULL && !lane->unknown && !lane->stepped;
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
        out[(*count)++] = dur__start_item(arena, request->start->item, request->token, now_ms);
    }
    dur__mutex_unlock(&store->mutex);
    return DUR_OK;
}

/* The caller may be gone when this returns. */
static void answer(dur__pg *store, dur__pg_request *request, bool done, const dur_error *err) {
    dur__mutex_lock(&store->mutex);
    answer_locked(request, done, err);
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
    if (request != NULL && strcmp(request->start->item->instance, turn->instance) == 0) return true;
    dur_error_set(&turn->error, DUR_ELEASE, false, "postgres.commit", "Invalid lock token: no lane has such a start");
    turn->fault = DUR_TURN_LEASE_LOST;
    return false;
}

void dur__pg_lane_start_back(dur_lane *base, const char *lock_token) {
    dur__pg_lane *lane = (dur__pg_lane *)(void *)base;
    dur__pg_request *request = taken(lane, lock_token);
    if (request != NULL) answer(lane->store, request, false, NULL);
}

void dur__pg_inbox_answer(dur__pg_lane *lane, dur_turn_commit **turns, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const dur_turn_commit *turn = turns[i];
        dur__pg_request *request = turn->writes_start ? taken(lane, turn->lock_token) : NULL;
        if (request == NULL) continue;
        if (turn->fault == DUR_TURN_FINE)
            answer(lane->store, request, true, NULL);
        else if (turn->error.code == DUR_EUNKNOWN) /* written or not: to do it again would be wrong */
            answer(lane->store, request, true, &turn->error);
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
        answer(lane->store, DUR__CONTAINER(link, dur__pg_request, link), false, NULL);
}
