/*
 * pg_notify.c: who is woken by what: lanes of this process directly, others by NOTIFY; watches.
 *
 * Watches share one listening connection.  There is no thread of ours: one of the waiting threads reads the socket for
 * all, and when it leaves another takes its place.
 */
#include "provider/postgres/pg_internal.h"

#include <poll.h>
#include <stdlib.h>

#define NOTIFY_APART_US 2000u
#define NOTIFY_LAZY_US 10000u /* where nobody has anything to do, but somebody may be watching */
#define LISTENER_MS 1000u /* as an owner's timeout: who waits for the listener to connect looks meanwhile, but one */
#define LOOK_MS 500u      /* a watch looks at least so often: notifications may be lost */

/* ---- sessions of this process: what they say has been heard directly --------------------------------------------- */

void dur__pg_session_known(dur__pg *store, int backend, bool ours) {
    dur__mutex_lock(&store->mutex);
    if (ours)
        dur__map_put_u64(&store->backends, (uint64_t)backend, store);
    else
        dur__map_remove_u64(&store->backends, (uint64_t)backend);
    dur__mutex_unlock(&store->mutex);
}

static bool is_ours(dur__pg *store, int backend) {
    dur__mutex_lock(&store->mutex);
    bool ours = dur__map_get_u64(&store->backends, (uint64_t)backend) != NULL;
    dur__mutex_unlock(&store->mutex);
    return ours;
}

bool dur__pg_drain_notifications(dur__pg_conn *conn, const char *owner) {
    bool news = false;
    PGnotify *note;
    while ((note = PQnotifies(conn->pg)) != NULL) {
        bool ours = is_ours(conn->store, note->be_pid);
        /* an empty payload is for everybody; else it names the owner whose lease got a message */
        if (!ours && (note->extra[0] == '\0' || owner == NULL || strcmp(note->extra, owner) == 0)) news = true;
        PQfreemem(note);
    }
    return news;
}

/* ---- waking ------------------------------------------------------------------------------------------------------ */

void dur__pg_wake_lanes(dur__pg *store, const dur__pg_lane *but) {
    dur__mutex_lock(&store->mutex);
    DUR__LIST_EACH(&store->lanes, at) {
        dur__pg_lane *lane = DUR__CONTAINER(at, dur__pg_lane, link);
        if (lane == but) continue;
        atomic_store(&lane->news, true);
        if (lane->waker != NULL) dur_waker_wake(lane->waker);
    }
    dur__cond_broadcast(&store->changed);
    dur__mutex_unlock(&store->mutex);
}

/* With the mutex. */
static void tell_watch(dur__pg_watch *watch) {
    watch->changed = true;
    if (watch == watch->store->reader)
        dur_waker_wake(watch->store->reader_waker);
    else
        dur__cond_signal(&watch->cond);
}

static void tell_watches(dur__pg *store) {
    DUR__LIST_EACH(&store->watches, at) tell_watch(DUR__CONTAINER(at, dur__pg_watch, link));
}

void dur__pg_wake_watches(dur__pg *store, const char *instance) {
    dur__mutex_lock(&store->mutex);
    if (instance == NULL) tell_watches(store);
    for (dur__pg_watch *at = instance != NULL ? dur__map_get(&store->watched, instance) : NULL; at != NULL;
         at = at->same)
        tell_watch(at);
    dur__mutex_unlock(&store->mutex);
}

void dur__pg_wake(dur__pg *store, const dur__pg_lane *but, const char *instance) {
    dur__pg_wake_lanes(store, but);
    dur__pg_wake_watches(store, instance);
}

/* True at most once in 2 ms: then one is to be sent.  Each wakes a backend for every session that listens. */
bool dur__pg_may_notify(dur__pg *store, bool urgent) {
    uint64_t now = dur__monotonic_us(), last = atomic_load(&store->notified_us);
    return now - last >= (urgent ? NOTIFY_APART_US : NOTIFY_LAZY_US) &&
           atomic_compare_exchange_strong(&store->notified_us, &last, now);
}

/* ---- watches ----------------------------------------------------------------------------------------------------- */

int dur__pg_watch_open(dur_provider *self, const char *instance, dur_watch **out, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_watch *watch = dur__xcalloc(1, sizeof(*watch));
    (void)err;
    watch->base.store = self;
    watch->store = store;
    watch->instance = dur__xstrdup(instance);
    watch->look_us = dur__pg_deadline(LOOK_MS);
    dur__cond_init(&watch->cond);
    dur__mutex_lock(&store->mutex);
    if (store->listener == NULL && !store->pooler) {
        store->listener = dur__pg_conn_new(store);
        store->listener->want_listen = true;
        dur__pg_set_patience(store->listener, LISTENER_MS);
    }
    watch->same = dur__map_remove(&store->watched, instance);
    dur__map_put(&store->watched, watch->instance, watch);
    dur__list_push(&store->watches, &watch->link);
    bool connect = store->listener != NULL && store->listener->pg == NULL && !store->listener_busy;
    if (connect) store->listener_busy = true;
    dur__mutex_unlock(&store->mutex);
    if (connect) { /* listening from here on, so that no change after this call is missed; if it fails there is polling
                    */
        (void)dur__pg_connect(store->listener, NULL);
        dur__mutex_lock(&store->mutex);
        store->listener_busy = false;
        dur__mutex_unlock(&store->mutex);
    }
    *out = &watch->base;
    return DUR_OK;
}

/* Called without the mutex by the thread that is the reader; it may be woken by a change that was made here. */
static bool read_listener(dur__pg *store, int timeout_ms) {
    dur__pg_conn *conn = store->listener;
    if (dur__pg_connect(conn, NULL) != DUR_OK) {
        (void)dur_waker_sleep(store->reader_waker, (uint64_t)(timeout_ms < 100 ? timeout_ms : 100) * 1000u);
        return false;
    }
    if (dur__pg_drain_notifications(conn, NULL)) return true;
    struct pollfd watched[2] = { { .fd = PQsocket(conn->pg), .events = POLLIN },
                                 { .fd = dur_waker_fd(store->reader_waker), .events = POLLIN } };
    if (!dur_waker_sleep_begin(store->reader_waker)) return false;
    (void)poll(watched, 2, timeout_ms);
    (void)dur_waker_sleep_end(store->reader_waker);
    if (watched[0].revents == 0) return false;
    if (PQconsumeInput(conn->pg) != 1) return true; /* lost: everybody looks */
    return dur__pg_drain_notifications(conn, NULL);
}

static void wait_once(dur__pg_watch *watch, uint64_t us) {
    dur__pg *store = watch->store;
    uint64_t slice = us < LOOK_MS * 1000u ? us : LOOK_MS * 1000u;
    if (store->listener == NULL || store->listener_busy) {
        dur__cond_wait_us(&watch->cond, &store->mutex, slice);
        return;
    }
    store->listener_busy = true;
    store->reader = watch;
    dur__mutex_unlock(&store->mutex);
    bool news = read_listener(store, (int)((slice + 999u) / 1000u));
    dur__mutex_lock(&store->mutex);
    store->listener_busy = false;
    store->reader = NULL;
    if (news) tell_watches(store);
}

/* Somebody must read while anybody waits. */
static void pass_reading_on(dur__pg *store, const dur__pg_watch *but) {
    if (store->listener_busy) return;
    DUR__LIST_EACH(&store->watches, at) {
        dur__pg_watch *watch = DUR__CONTAINER(at, dur__pg_watch, link);
        if (watch == but || !watch->waiting) continue;
        dur__cond_signal(&watch->cond);
        return;
    }
}

/* Also who has no time to wait reads what the socket has: a thread that drives a runtime waits in no other way. */
int dur__pg_watch_wait(dur_watch *base, uint64_t timeout_ms, dur_error *err) {
    dur__pg_watch *watch = (dur__pg_watch *)(void *)base;
    dur__pg *store = watch->store;
    uint64_t now = dur__monotonic_us(), deadline = dur__pg_deadline(timeout_ms);
    dur__mutex_lock(&store->mutex);
    watch->waiting = true;
    do {
        if (!watch->changed) wait_once(watch, deadline > now ? deadline - now : 0);
        now = dur__monotonic_us();
        watch->changed = watch->changed || now >= watch->look_us; /* a look too many does no harm */
    } while (!watch->changed && now < deadline);
    bool changed = watch->changed;
    watch->changed = watch->waiting = false;
    if (changed) watch->look_us = dur__pg_deadline(LOOK_MS);
    pass_reading_on(store, watch);
    dur__mutex_unlock(&store->mutex);
    return changed ? DUR_OK : dur_error_set(err, DUR_ETIMEOUT, false, "postgres.watch", "nothing changed");
}

void dur__pg_watch_wake(dur_watch *base) {
    dur__pg_watch *watch = (dur__pg_watch *)(void *)base;
    dur__mutex_lock(&watch->store->mutex);
    tell_watch(watch);
    dur__mutex_unlock(&watch->store->mutex);
}

static void forget_watch(dur__pg_watch *watch) {
    dur__map *watched = &watch->store->watched;
    dur__pg_watch *first = dur__map_remove(watched, watch->instance);
    if (first == watch) {
        first = watch->same;
    } else {
        dur__pg_watch *at = first;
        while (at->same != watch)
            at = at->same;
        at->same = watch->same;
    }
    if (first != NULL) dur__map_put(watched, first->instance, first);
}

void dur__pg_watch_close(dur_watch *base) {
    dur__pg_watch *watch = (dur__pg_watch *)(void *)base;
    dur__mutex_lock(&watch->store->mutex);
    dur__list_unlink(&watch->link);
    forget_watch(watch);
    dur__mutex_unlock(&watch->store->mutex);
    dur__cond_destroy(&watch->cond);
    dur__free(watch->instance);
    dur__free(watch);
}
