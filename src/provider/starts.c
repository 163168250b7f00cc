/*
 * starts.c: the desk between those who start instances and the loops that begin them.
 *
 * Those that one commit has written are woken one by one: the loop wakes the first when it has done all else, and each
 * wakes the next.
 */
#include "provider/starts.h"

#include "base/assert.h"
#include "base/map.h"
#include "base/memory.h"
#include "provider/provider_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FULL_ROUND 24u             /* turns; beyond it another turn saves little */
#define PATIENCE_US 100000u        /* a loop that has not come back by then is busy with something else … */
#define ROUND_PATIENCE_US 1000000u /* … and one in a round waits for a store that does not answer */

struct dur__starts {
    dur__mutex mutex;
    dur__link takers;   /* in the order in which they came */
    dur__link answered; /* calls that are done, whose threads have not gone */
    dur__map taken;     /* requests by number */
    uint64_t last_number;
    size_t handles; /* with the registry's mutex */
    char name[];
};

/* What one thread has handed in and waits for. */
typedef struct call {
    dur__cond cond;
    size_t left;    /* not answered */
    dur__link link; /* in dur__starts.answered */
} call;

typedef struct request {
    dur_start_request *start;
    call *call;
    dur__taker *taker; /* NULL: nobody has it, or it was answered */
    uint64_t number;   /* 0: it waits in the inbox */
    bool done;
    dur__link link; /* in the inbox, or among the taken */
} request;

/* ---- one for each store ------------------------------------------------------------------------------------------ */

static dur__mutex registry_mutex = DUR__MUTEX_INIT;
static dur__map registry;

/* Those of the parent are not a forked child's. */
dur__starts *dur__starts_share(const dur_provider_methods *methods, const char *identity) {
    size_t size = strlen(methods->name) + strlen(identity) + 24;
    dur__starts *self = dur__zget(sizeof(*self) + size);
    if (self == NULL) return NULL;
    snprintf(self->name, size, "%llu %s %s", (unsigned long long)dur__process_serial(), methods->name, identity);
    dur__mutex_lock(&registry_mutex);
    dur__starts *known = dur__map_get(&registry, self->name);
    bool is_new = known == NULL && dur__map_reserve(&registry, 1);
    if (is_new) {
        dur__mutex_init(&self->mutex);
        dur__list_init(&self->takers);
        dur__list_init(&self->answered);
        dur__map_put(&registry, self->name, self);
        known = self;
    }
    if (known != NULL) known->handles++;
    dur__mutex_unlock(&registry_mutex);
    if (!is_new) dur__free(self);
    return known;
}

void dur__starts_drop(dur__starts *self) {
    if (self == NULL) return;
    dur__mutex_lock(&registry_mutex);
    bool last = --self->handles == 0;
    if (last) dur__map_remove(&registry, self->name);
    if (last && registry.count == 0) dur__map_free(&registry);
    dur__mutex_unlock(&registry_mutex);
    if (!last) return;
    dur__map_free(&self->taken);
    dur__mutex_destroy(&self->mutex);
    dur__free(self);
}

/* ---- answers; all with the mutex --------------------------------------------------------------------------------- */

static void wake_first(dur__starts *self) {
    dur__link *first = dur__list_first(&self->answered);
    if (first != NULL) dur__cond_signal(&DUR__CONTAINER(first, call, link)->cond);
}

static void answer(dur__starts *self, request *r, bool done, const dur_error *err) {
    dur__list_unlink(&r->link);
    if (r->number == 0)
        atomic_fetch_sub(&r->taker->waiting, 1);
    else
        dur__map_remove_u64(&self->taken, r->number);
    r->taker = NULL;
    r->done = done;
    if (err != NULL) r->start->error = *err;
    if (--r->call->left == 0) dur__list_push(&self->answered, &r->call->link);
}

static void give_back(dur__starts *self, dur__link *list) {
    for (dur__link *at; (at = dur__list_first(list)) != NULL;)
        answer(self, DUR__CONTAINER(at, request, link), false, NULL);
    wake_first(self);
}

/* ---- clients ----------------------------------------------------------------------------------------------------- */

/* Beside a server a start that is refused costs all that is committed with it a second round trip: where an instance
   that exists is no error, many will be. */
static bool may_be_handed(const dur_provider *store, const dur_start_request *start) {
    bool fits = start->policy == DUR_EXISTS_FAIL || (start->policy == DUR_EXISTS_RETURN && !store->methods->own_clock);
    return fits && start->delay_ms == 0 && start->item->due_ms == 0 && start->item->message_id == NULL &&
           start->item->kind == DUR_WORK_START_ORCHESTRATION;
}

static bool comes_for(const dur__taker *taker, const char *handler) {
    return atomic_load(&taker->open) && !dur__thread_is_self(&taker->thread) &&
           dur_handler_passes(taker->handlers, handler);
}

/*
 * The first loop whose rounds are not full yet: the cost of a round is shared by its turns, so few instances in flight
 * belong together.  When all are full, the one that has least to do.  What one caller hands in at once goes to one
 * loop, as far as it fills a round; then those before count.
 */
static dur__taker *choose(dur__starts *self, const char *handler, bool several) {
    dur__taker *best = NULL;
    unsigned least = UINT_MAX;
    DUR__LIST_EACH(&self->takers, at) {
        dur__taker *taker = DUR__CONTAINER(at, dur__taker, link);
        if (!comes_for(taker, handler)) continue;
        unsigned load = atomic_load(&taker->load) + (several ? atomic_load(&taker->waiting) : 0);
        if (load < FULL_ROUND) return taker;
        if (load >= least) continue;
        least = load;
        best = taker;
    }
    return best;
}

static void hand_in(request *r, dur__taker *taker) {
    r->taker = taker;
    r->call->left++;
    dur__list_push(&taker->inbox, &r->link);
    atomic_fetch_add(&taker->waiting, 1);
    /* A wake that nobody needs would end its next sleep, for nothing but a look around. */
    if (atomic_load(taker->asleep)) dur_waker_wake(taker->waker);
}

/* A loop that runs a handler may not come back for a long time: until it does, others need not wait for it either. */
static void withdraw(dur__starts *self, request *requests, size_t count, uint64_t waited_us) {
    for (size_t i = 0; i < count; i++) {
        dur__taker *taker = requests[i].taker;
        if (taker == NULL || requests[i].number != 0) continue;
        if (atomic_load(&taker->in_round) && waited_us < ROUND_PATIENCE_US) continue;
        atomic_store(&taker->open, false);
        answer(self, &requests[i], false, NULL);
    }
}

static void wait_for(dur__starts *self, request *requests, size_t count) {
    call *mine = requests[0].call;
    uint64_t begin_us = dur__monotonic_us();
    while (mine->left > 0)
        if (!dur__cond_wait_us(&mine->cond, &self->mutex, PATIENCE_US))
            withdraw(self, requests, count, dur__monotonic_us() - begin_us);
    dur__list_unlink(&mine->link);
    wake_first(self);
}

static dur__starts *desk_for(dur_provider *store) {
    const char *identity = DUR_HAS_METHOD(store->methods, births) ? store->methods->births(store) : NULL;
    return identity != NULL ? dur__store_starts(store, identity) : NULL;
}

size_t dur__starts_hand_in(dur_provider *store, dur_start_request *starts, size_t count, bool *done) {
    dur__starts *self = desk_for(store);
    request one = { .start = NULL };
    request *requests = self != NULL && count > 1 ? dur__zget(count * sizeof(*requests)) : &one;
    dur__taker *taker = NULL;
    call mine = { .left = 0 };
    size_t total = 0;
    memset(done, 0, count * sizeof(*done));
    if (self == NULL || requests == NULL) return 0;
    dur__cond_init(&mine.cond);
    dur__mutex_lock(&self->mutex);
    for (size_t i = 0; i < count; i++) {
        const char *handler = starts[i].item->handler;
        requests[i] = (request){ .start = &starts[i], .call = &mine };
        if (!may_be_handed(store, &starts[i])) continue;
        if (taker == NULL || mine.left % FULL_ROUND == 0 || !comes_for(taker, handler))
            taker = choose(self, handler, count > 1);
        if (taker != NULL) hand_in(&requests[i], taker);
    }
    if (mine.left > 0) wait_for(self, requests, count);
    dur__mutex_unlock(&self->mutex);
    dur__cond_destroy(&mine.cond);
    for (size_t i = 0; i < count; i++)
        total += done[i] = requests[i].done;
    if (requests != &one) dur__free(requests);
    return total;
}

/* ---- loops ------------------------------------------------------------------------------------------------------- */

void dur__taker_join(dur__taker *self, dur_provider *store) {
    DUR_ASSERT(self->desk == NULL);
    dur__list_init(&self->inbox);
    dur__list_init(&self->taken);
    self->desk = desk_for(store);
    if (self->desk == NULL) return;
    dur__mutex_lock(&self->desk->mutex);
    dur__list_push(&self->desk->takers, &self->link);
    dur__mutex_unlock(&self->desk->mutex);
}

void dur__taker_leave(dur__taker *self) {
    dur__starts *desk = self->desk;
    if (desk == NULL) return;
    dur__mutex_lock(&desk->mutex);
    dur__list_unlink(&self->link);
    atomic_store(&self->open, false);
    give_back(desk, &self->inbox);
    give_back(desk, &self->taken);
    dur__mutex_unlock(&desk->mutex);
    self->desk = NULL;
}

void dur__taker_open(dur__taker *self) {
    if (self->desk == NULL || atomic_load(&self->open)) return;
    dur__mutex_lock(&self->desk->mutex);
    self->thread = dur__thread_self();
    atomic_store(&self->open, true);
    dur__mutex_unlock(&self->desk->mutex);
}

void dur__taker_close(dur__taker *self) {
    if (self->desk == NULL || (!atomic_load(&self->open) && atomic_load(&self->waiting) == 0)) return;
    dur__mutex_lock(&self->desk->mutex);
    atomic_store(&self->open, false);
    give_back(self->desk, &self->inbox);
    dur__mutex_unlock(&self->desk->mutex);
}

void dur__taker_round(dur__taker *self, bool begins, size_t turns) {
    atomic_store(&self->in_round, begins);
    if (begins && turns > 0) atomic_store(&self->load, (atomic_load(&self->load) + (unsigned)turns + 1) / 2);
}

static void item_of(dur__start_taken *out, const request *r, dur_arena *arena, uint64_t now_ms) {
    const dur_message_row *start = r->start->item;
    dur_fetched_message *message = dur_arena_zalloc(arena, sizeof(*message));
    message->due_ms = now_ms;
    message->attempt_count = 1;
    message->json = (dur_text){ dur_arena_memdup(arena, start->json.data, start->json.size), start->json.size };
    out->number = r->number;
    out->item = (dur_orchestration_item){
        .instance = dur_arena_strdup(arena, start->instance),
        .lock_token = dur_arena_format(arena, "%016llx-s%llx", (unsigned long long)r->taker->prefix,
                                       (unsigned long long)r->number),
        .execution_id = 1,
        .attempt_count = 1,
        .acquisitions = 1,
        .messages = message,
        .message_count = 1,
    };
    dur__store_name_item(arena, &out->item);
}

size_t dur__taker_take(dur__taker *self, dur_arena *arena, uint64_t now_ms, size_t max, dur__start_taken *out) {
    size_t count = 0;
    dur__starts *desk = self->desk;
    if (desk == NULL) return 0;
    dur__mutex_lock(&desk->mutex);
    if (!dur__map_reserve(&desk->taken, max)) max = 0;
    for (dur__link *at; count < max && (at = dur__list_pop(&self->inbox)) != NULL; count++) {
        request *r = DUR__CONTAINER(at, request, link);
        atomic_fetch_sub(&self->waiting, 1);
        r->number = ++desk->last_number;
        dur__map_put_u64(&desk->taken, r->number, r);
        dur__list_push(&self->taken, at);
        item_of(&out[count], r, arena, now_ms);
    }
    dur__mutex_unlock(&desk->mutex);
    return count;
}

bool dur__taker_has(dur__taker *self, uint64_t number) {
    if (self->desk == NULL) return false;
    dur__mutex_lock(&self->desk->mutex);
    bool has = dur__map_get_u64(&self->desk->taken, number) != NULL;
    dur__mutex_unlock(&self->desk->mutex);
    return has;
}

static bool answer_number(dur__starts *desk, uint64_t number, bool done, const dur_error *err) {
    request *r = dur__map_get_u64(&desk->taken, number);
    if (r != NULL) answer(desk, r, done, err);
    return r != NULL;
}

void dur__taker_written(dur__taker *self, uint64_t number) {
    if (self->desk == NULL) return;
    dur__mutex_lock(&self->desk->mutex);
    self->told |= answer_number(self->desk, number, true, NULL);
    dur__mutex_unlock(&self->desk->mutex);
}

void dur__taker_tell(dur__taker *self) {
    if (!self->told || self->desk == NULL) return;
    self->told = false;
    dur__mutex_lock(&self->desk->mutex);
    wake_first(self->desk);
    dur__mutex_unlock(&self->desk->mutex);
}

void dur__taker_back(dur__taker *self, uint64_t number, const dur_error *why) {
    if (self->desk == NULL) return;
    dur__mutex_lock(&self->desk->mutex);
    if (answer_number(self->desk, number, why != NULL, why)) wake_first(self->desk);
    dur__mutex_unlock(&self->desk->mutex);
}
