/*
 * live.c: instances that run in this process, and who waits for them.
 *
 * Waiters of one commit are woken one by one: the loop wakes the first when it has done all else (dur__live_tell), and
 * each wakes the next.  Waking a thread costs the waker more than all else it does for it, and the loop has commits to
 * make.
 */
#include "provider/live.h"

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "base/thread.h"
#include "provider/provider_internal.h"

#include <stdlib.h>

/* An instance that was started here is acquired by the same commit as a rule, and its loop says so right after the
   answer to the start; after this somebody else has it. */
#define EXPECTED_US 2000u
/* Of those that nobody has acquired and nobody waits for, the oldest is forgotten. */
#define EXPECTED_MAX 256u

typedef struct entry {
    const void *owner; /* NULL: expected only */
    uint64_t since_us;
    dur__link expected; /* in dur__live.expected, while it is */
    dur__link waiters;
    char instance[];
} entry;

typedef struct waiter {
    dur__link link; /* in its entry, then in dur__live.told */
    dur__cond woken;
    bool told;
    char *output; /* NULL: ask the store */
} waiter;

struct dur__live {
    dur__mutex mutex;
    dur__map entries;
    dur__link expected; /* oldest first */
    size_t expected_count;
    size_t loops;
    dur__link told;     /* waiters that may go, not all of them awake */
    atomic_bool asleep; /* … and perhaps none */
};

dur__live *dur__live_new(void) {
    dur__live *live = dur__xcalloc(1, sizeof(*live));
    dur__mutex_init(&live->mutex);
    dur__list_init(&live->expected);
    dur__list_init(&live->told);
    return live;
}

void dur__live_free(dur__live *live) {
    dur__map_entry *at;
    if (live == NULL) return;
    for (size_t i = 0; (at = dur__map_next(&live->entries, &i)) != NULL;)
        free(at->value);
    dur__map_free(&live->entries);
    dur__mutex_destroy(&live->mutex);
    free(live);
}

/* ---- entries; all with the mutex held ---- */

static entry *entry_new(dur__live *live, const char *instance) {
    size_t size = strlen(instance) + 1;
    entry *made = dur__xcalloc(1, sizeof(*made) + size);
    memcpy(made->instance, instance, size);
    dur__list_init(&made->waiters);
    dur__map_put(&live->entries, made->instance, made);
    return made;
}

static void no_longer_expected(dur__live *live, entry *e) {
    if (!dur__link_linked(&e->expected)) return;
    dur__list_unlink(&e->expected);
    live->expected_count--;
}

/* The first of those who may go; it wakes the next. */
static void wake_told(dur__live *live) {
    dur__link *first = dur__list_first(&live->told);
    if (first != NULL) dur__cond_signal(&DUR__CONTAINER(first, waiter, link)->woken);
}

/* Everybody who waits for it may go, and is to be woken. */
static size_t entry_end(dur__live *live, entry *e, const char *output) {
    size_t told = 0;
    if (!dur__list_empty(&e->waiters)) atomic_store(&live->asleep, true);
    for (dur__link *at; (at = dur__list_pop(&e->waiters)) != NULL;) {
        waiter *w = DUR__CONTAINER(at, waiter, link);
        w->told = true;
        w->output = output != NULL ? dur__xstrdup(output) : NULL;
        dur__list_push(&live->told, at);
        told++;
    }
    no_longer_expected(live, e);
    dur__map_remove(&live->entries, e->instance);
    free(e);
    return told;
}

/* ---- loops ---- */

void dur__live_loop(dur_provider *store, bool comes) {
    dur__live *live = dur__store_live(store);
    dur__mutex_lock(&live->mutex);
    live->loops += comes ? 1 : (size_t)-1;
    dur__mutex_unlock(&live->mutex);
}

void dur__live_add(dur_provider *store, const char *instance, const void *owner) {
    dur__live *live = dur__store_live(store);
    dur__mutex_lock(&live->mutex);
    entry *e = dur__map_get(&live->entries, instance);
    if (e == NULL) e = entry_new(live, instance);
    no_longer_expected(live, e);
    e->owner = owner; /* another runtime of this process may have lost it, without knowing yet */
    dur__mutex_unlock(&live->mutex);
}

static size_t leave(dur_provider *store, const char *instance, const void *owner, const char *output) {
    dur__live *live = dur__store_live(store);
    size_t told = 0;
    dur__mutex_lock(&live->mutex);
    entry *e = dur__map_get(&live->entries, instance);
    if (e != NULL && e->owner == owner) told = entry_end(live, e, output);
    dur__mutex_unlock(&live->mutex);
    return told;
}

void dur__live_tell(dur_provider *store) {
    dur__live *live = dur__store_live(store);
    if (!atomic_load(&live->asleep)) return;
    dur__mutex_lock(&live->mutex);
    atomic_store(&live->asleep, false);
    wake_told(live);
    dur__mutex_unlock(&live->mutex);
}

void dur__live_remove(dur_provider *store, const char *instance, const void *owner) {
    (void)leave(store, instance, owner, NULL);
}

size_t dur__live_completed(dur_provider *store, const char *instance, const void *owner, const char *output) {
    return leave(store, instance, owner, output != NULL ? output : "");
}

/* ---- clients ---- */

void dur__live_expect(dur_provider *store, const char *instance) {
    dur__live *live = dur__store_live(store);
    dur__mutex_lock(&live->mutex);
    if (live->loops > 0 && dur__map_get(&live->entries, instance) == NULL) {
        entry *e = entry_new(live, instance);
        e->since_us = dur__monotonic_us();
        dur__list_push(&live->expected, &e->expected);
        if (++live->expected_count > EXPECTED_MAX)
            (void)entry_end(live, DUR__CONTAINER(dur__list_first(&live->expected), entry, expected), NULL);
    }
    dur__mutex_unlock(&live->mutex);
    dur__live_tell(store);
}

/* The time begins with the answer: until then the start may have waited for a long commit. */
void dur__live_started(dur_provider *store, const char *instance) {
    dur__live *live = dur__store_live(store);
    dur__mutex_lock(&live->mutex);
    entry *e = dur__map_get(&live->entries, instance);
    if (e != NULL && e->owner == NULL) e->since_us = dur__monotonic_us();
    dur__mutex_unlock(&live->mutex);
}

void dur__live_unexpect(dur_provider *store, const char *instance) {
    (void)leave(store, instance, NULL, NULL);
    dur__live_tell(store);
}

/* Until when to wait for an entry: the caller's time, or that of a start that nobody here has acquired. */
static uint64_t patience(const entry *e, uint64_t until_us) {
    uint64_t acquired_us = e->since_us + EXPECTED_US;
    return e->owner == NULL && acquired_us < until_us ? acquired_us : until_us;
}

char *dur__live_await(dur_provider *store, const char *instance, uint64_t until_us) {
    dur__live *live = dur__store_live(store);
    waiter self = { .told = false };
    dur__mutex_lock(&live->mutex);
    entry *e = dur__map_get(&live->entries, instance);
    if (e != NULL) {
        dur__cond_init(&self.woken);
        dur__list_push(&e->waiters, &self.link);
        while (!self.told) { /* the entry stays as long as its waiters have not been told */
            uint64_t now_us = dur__monotonic_us(), end_us = patience(e, until_us);
            if (now_us >= end_us) break;
            if (end_us == UINT64_MAX)
                dur__cond_wait(&self.woken, &live->mutex);
            else
                (void)dur__cond_wait_us(&self.woken, &live->mutex, end_us - now_us);
        }
        dur__list_unlink(&self.link);
        if (self.told) wake_told(live);
        dur__cond_destroy(&self.woken);
    }
    dur__mutex_unlock(&live->mutex);
    return self.output;
}
