/*
 * pg_notify.c: who is woken by what: lanes of this process directly, others by NOTIFY; watches.
 *
 * Watches share one listening connection.  There is no thread of ours: one of the waiting threads reads the socket for
 * all, and when it leaves another takes its place.
 */
#include "provider/postgres/pg_internal.h"

#include <poll.h>
#include <stdlib.h>

#define LOOK_MS 500u /* a watch looks at least so often: notifications may be lost */

void dur__pg_wake_local(dur__pg *store, const dur__pg_lane *but) {
    dur__mutex_lock(&store->mutex);
    DUR__LIST_EACH(&store->lanes, at) {
        dur__pg_lane *lane = DUR__CONTAINER(at, dur__pg_lane, link);
        if (lane != but && lane->waker != NULL) dur_waker_wake(lane->waker);
    }
    store->changes++;
    dur__cond_broadcast(&store->changed);
    dur__mutex_unlock(&store->mutex);
}

bool dur__pg_drain_notifications(dur__pg_conn *conn, const char *owner) {
    bool ours = false;
    PGnotify *note;
    int self = PQbackendPID(conn->pg);
    while ((note = PQnotifies(conn->pg)) != NULL) {
        /* an empty payload is for everybody; else it names the owner whose lease got a message */
        if (note->be_pid != self && (note->extra[0] == '\0' || owner == NULL || strcmp(note->extra, owner) == 0))
            ours = true;
        PQfreemem(note);
    }
    return ours;
}

int dur__pg_watch_open(dur_provider *self, const char *instance, dur_watch **out, dur_error *err) {
    dur__pg *store = dur__pg_of(self);
    dur__pg_watch *watch = dur__xcalloc(1, sizeof(*watch));
    (void)err;
    watch->base.store = self;
    watch->store = store;
    watch->instance = dur__xstrdup(instance);
    dur__mutex_lock(&store->mutex);
    if (store->listener == NULL && !store->pooler) {
        store->listener = dur__pg_conn_new(store);
        store->listener->want_listen = true;
    }
    watch->seen = store->changes;
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

/* Called without the mutex by the thread that is the reader. */
static bool read_listener(dur__pg *store, int timeout_ms) {
    dur__pg_conn *conn = store->listener;
    if (dur__pg_connect(conn, NULL) != DUR_OK) {
        (void)poll(NULL, 0, timeout_ms < 100 ? timeout_ms : 100);
        return false;
    }
    if (dur__pg_drain_notifications(conn, NULL)) return true;
    struct pollfd watched = { .fd = PQsocket(conn->pg), .events = POLLIN };
    if (poll(&watched, 1, timeout_ms) <= 0) return false;
    if (PQconsumeInput(conn->pg) != 1) return true; /* lost: everybody looks */
    return dur__pg_drain_notifications(conn, NULL);
}

static void wait_once(dur__pg *store, uint64_t us) {
    uint64_t slice = us < LOOK_MS * 1000u ? us : LOOK_MS * 1000u;
    if (store->listener == NULL || store->listener_busy) {
        dur__cond_wait_us(&store->changed, &store->mutex, slice);
        return;
    }
    store->listener_busy = true;
    dur__mutex_unlock(&store->mutex);
    bool news = read_listener(store, (int)(slice / 1000u) + 1);
    dur__mutex_lock(&store->mutex);
    store->listener_busy = false;
    if (news) store->changes++;
    dur__cond_broadcast(&store->changed); /* the next reader, or all of them */
}

int dur__pg_watch_wait(dur_watch *base, uint64_t timeout_ms, dur_error *err) {
    dur__pg_watch *watch = (dur__pg_watch *)(void *)base;
    dur__pg *store = watch->store;
    uint64_t deadline = dur__pg_deadline(timeout_ms);
    uint64_t look = dur__pg_deadline(LOOK_MS);
    bool changed;
    dur__mutex_lock(&store->mutex);
    for (;;) {
        uint64_t now = dur__monotonic_us();
        changed = watch->seen != store->changes || (now >= look && now < deadline); /* a look too many does no harm */
        if (changed || now >= deadline) break;
        wait_once(store, deadline - now);
    }
    watch->seen = store->changes;
    dur__mutex_unlock(&store->mutex);
    return changed ? DUR_OK : dur_error_set(err, DUR_ETIMEOUT, false, "postgres.watch", "nothing changed");
}

void dur__pg_watch_close(dur_watch *base) {
    dur__pg_watch *watch = (dur__pg_watch *)(void *)base;
    dur__mutex_lock(&watch->store->mutex);
    dur__list_unlink(&watch->link);
    dur__cond_broadcast(&watch->store->changed); /* if it was the reader, another one reads */
    dur__mutex_unlock(&watch->store->mutex);
    free(watch->instance);
    free(watch);
}
