/*
 * live.c: instances that run in this process, and who waits for them.
 *
 * Waiters of one commit are woken one by one: the loop wakes the first when it has done all else (dur__live_tell), and
 * each wakes the next.  Waking a thread costs the waker more than all else it does for it, and the loop has commits to
 * make.  A set is woken once for all its members that were told since.
 *
 * An id may be deleted and started again while the loop that committed the end of the one before has not come to say
 * so: whoever waits since a start was on its way is not told by the loop that had the id then, but asks the store.
 */
#include "provider/live.h"

#include "base/assert.h"
#include "base/buf.h"
#include "base/drive.h"
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
    uint64_t until;    /* of those who wait behind this number, the owner's end is none of their business */
    uint64_t since_us;
    dur__link expected; /* in dur__live.expected, while it is */
    dur__link waiters;
    dur__link members; /* of sets: they keep it, also where nothing is expected */
    char instance[];
} entry;

typedef struct waiter {
    dur__link link; /* in its entry, then in dur__live.told */
    dur__cond woken;
    uint64_t number;
    bool told;
    char *output; /* NULL: ask the store */
} waiter;

struct dur__live {
    dur__mutex mutex;
    dur__map entries;
    dur__link expected; /* oldest first */
    size_t expected_count;
    size_t loops;
    uint64_t waits;     /* how many have waited: everybody who does has a number */
    dur__link told;     /* waiters that may go, not all of them awake */
    dur__link sets;     /* whose members were told */
    atomic_bool asleep; /* somebody was told, and perhaps nobody is awake */
};

struct dur__live_set {
    dur_provider *store;
    dur__live *live;
    dur__link link;   /* in dur__live.sets */
    dur__link coming; /* members that were told by the round under way … */
    dur__link told;   /* … and by those before */
    size_t elsewhere;
    dur__cond woken;
    dur_watch *watch; /* in which its thread sleeps instead; NULL: not */
};

dur__live *dur__live_new(void) {
    dur__live *live = dur__zget(sizeof(*live));
    if (live == NULL) return NULL;
    dur__mutex_init(&live->mutex);
    dur__list_init(&live->expected);
    dur__list_init(&live->told);
    dur__list_init(&live->sets);
    return live;
}

void dur__live_free(dur__live *live) {
    dur__map_entry *at;
    if (live == NULL) return;
    for (size_t i = 0; (at = dur__map_next(&live->entries, &i)) != NULL;)
        dur__free(at->value);
    dur__map_free(&live->entries);
    dur__mutex_destroy(&live->mutex);
    dur__free(live);
}

/* ---- entries; all with the mutex held ---- */

/* NULL: no memory.  Who is not here is asked for at the store. */
static entry *entry_new(dur__live *live, const char *instance) {
    size_t size = strlen(instance) + 1;
    entry *made = dur__map_reserve(&live->entries, 1) ? dur__zget(sizeof(*made) + size) : NULL;
    if (made == NULL) return NULL;
    memcpy(made->instance, instance, size);
    dur__list_init(&made->waiters);
    dur__list_init(&made->members);
    made->until = UINT64_MAX;
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

/* All that this round has to say is said at once: who knows a part of it would act upon a part. */
static void member_told(dur__live *live, dur__live_member *m, const char *output) {
    dur__live_set *set = m->set;
    if (!atomic_load(&m->here)) set->elsewhere--;
    m->entry = NULL;
    m->output = output != NULL ? dur__strdup(output) : NULL; /* without memory: ask the store */
    dur__list_push(&set->coming, &m->link);
    if (!dur__link_linked(&set->link)) dur__list_push(&live->sets, &set->link);
}

/* Everybody who waits for it may go, and is to be woken. */
static size_t entry_end(dur__live *live, entry *e, uint64_t birth, const char *output) {
    size_t told = 0;
    if (!dur__list_empty(&e->waiters) || !dur__list_empty(&e->members)) atomic_store(&live->asleep, true);
    for (dur__link *at; (at = dur__list_pop(&e->waiters)) != NULL;) {
        waiter *w = DUR__CONTAINER(at, waiter, link);
        w->told = true;
        w->output = output != NULL && w->number <= e->until ? dur__strdup(output) : NULL;
        dur__list_push(&live->told, at);
        told++;
    }
    for (dur__link *at; (at = dur__list_pop(&e->members)) != NULL; told++) {
        dur__live_member *m = DUR__CONTAINER(at, dur__live_member, link);
        bool meant = m->number <= e->until && (m->birth == 0 || m->birth == birth);
        member_told(live, m, meant ? output : NULL);
    }
    no_longer_expected(live, e);
    dur__map_remove(&live->entries, e->instance);
    dur__free(e);
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
    if (e == NULL) {
        dur__mutex_unlock(&live->mutex);
        return;
    }
    no_longer_expected(live, e);
    DUR__LIST_EACH(&e->members, at) {
        dur__live_member *m = DUR__CONTAINER(at, dur__live_member, link);
        if (!atomic_exchange(&m->here, true)) m->set->elsewhere--;
    }
    e->owner = owner; /* another runtime of this process may have lost it, without knowing yet */
    e->until = UINT64_MAX;
    dur__mutex_unlock(&live->mutex);
}

static size_t leave(dur_provider *store, const char *instance, const void *owner, uint64_t birth, const char *output) {
    dur__live *live = dur__store_live(store);
    size_t told = 0;
    dur__mutex_lock(&live->mutex);
    entry *e = dur__map_get(&live->entries, instance);
    if (e != NULL && e->owner == owner) told = entry_end(live, e, birth, output);
    dur__mutex_unlock(&live->mutex);
    return told;
}

static void wake_set(dur__live_set *set) {
    for (dur__link *at; (at = dur__list_pop(&set->coming)) != NULL;)
        dur__list_push(&set->told, at);
    if (set->watch != NULL)
        (void)dur_store_watch_wake(set->watch);
    else
        dur__cond_signal(&set->woken);
}

void dur__live_tell(dur_provider *store) {
    dur__live *live = dur__store_live(store);
    if (!atomic_load(&live->asleep)) return;
    dur__mutex_lock(&live->mutex);
    atomic_store(&live->asleep, false);
    wake_told(live);
    for (dur__link *at; (at = dur__list_pop(&live->sets)) != NULL;)
        wake_set(DUR__CONTAINER(at, dur__live_set, link));
    dur__mutex_unlock(&live->mutex);
}

void dur__live_remove(dur_provider *store, const char *instance, const void *owner) {
    (void)leave(store, instance, owner, 0, NULL);
}

size_t dur__live_completed(dur_provider *store, const char *instance, const void *owner, uint64_t birth,
                           const char *output) {
    return leave(store, instance, owner, birth, output != NULL ? output : "");
}

/* ---- clients ---- */

void dur__live_starting(dur_provider *store, const char *instance) {
    dur__live *live = dur__store_live(store);
    dur__mutex_lock(&live->mutex);
    entry *e = dur__map_get(&live->entries, instance);
    if (e != NULL && e->owner != NULL && e->until == UINT64_MAX) e->until = live->waits;
    dur__mutex_unlock(&live->mutex);
}

void dur__live_expect(dur_provider *store, const char *instance) {
    dur__live *live = dur__store_live(store);
    dur__mutex_lock(&live->mutex);
    bool unknown = live->loops > 0 && dur__map_get(&live->entries, instance) == NULL;
    entry *e = unknown ? entry_new(live, instance) : NULL;
    if (e != NULL) {
        e->since_us = dur__monotonic_us();
        dur__list_push(&live->expected, &e->expected);
        if (++live->expected_count > EXPECTED_MAX)
            (void)entry_end(live, DUR__CONTAINER(dur__list_first(&live->expected), entry, expected), 0, NULL);
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
    (void)leave(store, instance, NULL, 0, NULL);
    dur__live_tell(store);
}

/* Until when to wait for an entry: the caller's time, or that of a start that nobody here has acquired. */
static uint64_t patience(const entry *e, uint64_t until_us) {
    uint64_t acquired_us = e->since_us + EXPECTED_US;
    return e->owner == NULL && acquired_us < until_us ? acquired_us : until_us;
}

/* With the mutex, until woken or end_us; a thread that drives the very loop that it waits for does that instead. False:
   an activity has come back in a child that it has forked, which nobody tells anything, or nothing will come. */
static bool wait_until(dur__live *live, dur__cond *woken, uint64_t now_us, uint64_t end_us) {
    uint64_t process = dur__process_serial();
    if (dur__drives()) {
        dur__mutex_unlock(&live->mutex);
        (void)dur__drive(end_us - now_us);
        dur__mutex_lock(&live->mutex);
    } else if (end_us == UINT64_MAX) {
        dur__cond_wait(woken, &live->mutex);
    } else {
        (void)dur__cond_wait_us(woken, &live->mutex, end_us - now_us);
    }
    return dur__process_serial() == process && !dur__drive_stalls();
}

char *dur__live_await(dur_provider *store, const char *instance, uint64_t until_us) {
    dur__live *live = dur__store_live(store);
    waiter self = { .told = false };
    dur__mutex_lock(&live->mutex);
    entry *e = dur__map_get(&live->entries, instance);
    if (e != NULL) {
        dur__cond_init(&self.woken);
        self.number = ++live->waits;
        dur__list_push(&e->waiters, &self.link);
        while (!self.told) { /* the entry stays as long as its waiters have not been told */
            uint64_t now_us = dur__monotonic_us(), end_us = patience(e, until_us);
            if (now_us >= end_us) break;
            if (!wait_until(live, &self.woken, now_us, end_us)) break;
        }
        dur__list_unlink(&self.link);
        if (self.told) wake_told(live);
        dur__cond_destroy(&self.woken);
    }
    dur__mutex_unlock(&live->mutex);
    return self.output;
}

/* ---- sets ---- */

dur__live_set *dur__live_set_new(dur_provider *store) {
    dur__live_set *set = dur__zget(sizeof(*set));
    if (set == NULL) return NULL;
    set->store = store;
    set->live = dur__store_live(store);
    dur__list_init(&set->coming);
    dur__list_init(&set->told);
    dur__cond_init(&set->woken);
    return set;
}

void dur__live_set_free(dur__live_set *set) {
    if (set == NULL) return;
    dur__mutex_lock(&set->live->mutex);
    DUR_ASSERT(dur__list_empty(&set->coming) && dur__list_empty(&set->told) && set->elsewhere == 0);
    dur__list_unlink(&set->link);
    dur__mutex_unlock(&set->live->mutex);
    dur__cond_destroy(&set->woken);
    dur__free(set);
}

bool dur__live_join(dur__live_set *set, dur__live_member *member, const char *instance, uint64_t birth) {
    dur__live *live = set->live;
    DUR_ASSERT(member->set == NULL);
    dur__mutex_lock(&live->mutex);
    entry *e = dur__map_get(&live->entries, instance);
    if (e == NULL) e = entry_new(live, instance);
    if (e == NULL) {
        dur__mutex_unlock(&live->mutex);
        return false;
    }
    *member = (dur__live_member){ .set = set, .entry = e, .number = ++live->waits, .birth = birth };
    atomic_store(&member->here, e->owner != NULL);
    set->elsewhere += e->owner == NULL;
    dur__list_push(&e->members, &member->link);
    dur__mutex_unlock(&live->mutex);
    return true;
}

/* Nobody is interested in it. */
static bool forgotten(const entry *e) {
    return e->owner == NULL && !dur__link_linked(&e->expected) && dur__list_empty(&e->waiters) &&
           dur__list_empty(&e->members);
}

void dur__live_quit(dur__live_member *member) {
    dur__live_set *set = member->set;
    if (set == NULL) return;
    dur__mutex_lock(&set->live->mutex);
    dur__list_unlink(&member->link);
    entry *e = member->entry;
    if (e != NULL) {
        if (!atomic_load(&member->here)) set->elsewhere--;
        if (forgotten(e)) (void)entry_end(set->live, e, 0, NULL);
    }
    dur__mutex_unlock(&set->live->mutex);
    dur__free(member->output);
    *member = (dur__live_member){ .set = NULL };
}

dur__live_member *dur__live_told(dur__live_set *set) {
    dur__mutex_lock(&set->live->mutex);
    dur__link *first = dur__list_pop(&set->told);
    dur__mutex_unlock(&set->live->mutex);
    if (first == NULL) return NULL;
    dur__live_member *member = DUR__CONTAINER(first, dur__live_member, link);
    member->set = NULL;
    return member;
}

size_t dur__live_elsewhere(dur__live_set *set) {
    dur__mutex_lock(&set->live->mutex);
    size_t count = set->elsewhere;
    dur__mutex_unlock(&set->live->mutex);
    return count;
}

void dur__live_set_wait(dur__live_set *set, uint64_t until_us) {
    dur__live *live = set->live;
    dur__mutex_lock(&live->mutex);
    while (dur__list_empty(&set->told)) {
        uint64_t now_us = dur__monotonic_us();
        if (now_us >= until_us) break;
        if (!wait_until(live, &set->woken, now_us, until_us)) break;
    }
    dur__mutex_unlock(&live->mutex);
}

int dur__live_set_watch(dur__live_set *set, dur_watch *watch, uint64_t until_us, dur_error *err) {
    dur__live *live = set->live;
    dur__mutex_lock(&live->mutex);
    bool told = !dur__list_empty(&set->told);
    if (!told) set->watch = watch;
    dur__mutex_unlock(&live->mutex);
    if (told) return DUR_OK;
    uint64_t now_us = dur__monotonic_us();
    int code = dur_store_watch_wait(watch, until_us > now_us ? (until_us - now_us) / 1000 + 1 : 0, err);
    dur__mutex_lock(&live->mutex);
    set->watch = NULL;
    dur__mutex_unlock(&live->mutex);
    return code;
}
