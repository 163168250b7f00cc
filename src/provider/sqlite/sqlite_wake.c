/*
 * sqlite_wake.c: who is told when something was committed, here or by another process.
 *
 * Inside the process: lanes and waiters are woken by the leader after COMMIT.  From other processes: inotify on the WAL
 * (somebody committed) and on the folder (an owner's lock file came, went or was closed).  Lanes poll inotify while
 * they sleep; where there is none, one of the waiters does and tells the others.
 */
#include "provider/sqlite/sqlite_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * The WAL is written before the commit is visible: frames, fsync, then the index in shared memory, which no watch sees.
 * So whoever is woken by a write looks at once, and, while another process has the file open, again after 1, 2, 4 …
 * 512 ms.  A commit that takes longer than most of that is announced by its writer, once it is visible.
 */
enum { ECHO_FIRST_US = 1000, ECHO_LAST_US = 512000, SLOW_COMMIT_US = 250000 };

static void wal_written(dur__sq_file *file) {
    atomic_store(&file->peers.wal_moved, true);
    if (!dur__sq_gate_others(file)) return; /* it was ourselves: visible since before we came here */
    atomic_store(&file->peers.echo_step_us, ECHO_FIRST_US);
    atomic_store(&file->peers.echo_at_us, dur__monotonic_us() + ECHO_FIRST_US);
}

/* How long the sleep may last; past the time it counts as another write. */
static uint64_t echo_left_ms(dur__sq_file *file, uint64_t most_ms) {
    uint64_t at = atomic_load(&file->peers.echo_at_us), now = dur__monotonic_us();
    if (at == 0) return most_ms;
    uint64_t left_ms = at > now ? (at - now + 999) / 1000 : 0;
    return left_ms < most_ms ? left_ms : most_ms;
}

static void echo_pass(dur__sq_file *file) {
    uint64_t at = atomic_load(&file->peers.echo_at_us), now = dur__monotonic_us();
    if (at == 0 || at > now) return;
    uint64_t step = atomic_load(&file->peers.echo_step_us) * 2;
    atomic_store(&file->peers.echo_step_us, step);
    atomic_store(&file->peers.echo_at_us, step > ECHO_LAST_US ? 0 : now + step);
    atomic_store(&file->peers.wal_moved, true);
}

/* After a commit: other processes may have stopped looking for one that took so long. */
void dur__sq_wake_others(dur__sq_file *file, uint64_t commit_us) {
    if (file->path == NULL || commit_us < SLOW_COMMIT_US) return;
    (void)utimensat(AT_FDCWD, file->intact.wal.path, NULL, 0); /* without opening it: its closing would drop locks */
}

static void wal_watch(dur__sq_file *file) {
    file->peers.wal_watch = inotify_add_watch(file->peers.inotify, file->intact.wal.path, IN_MODIFY | IN_ATTRIB);
}

int dur__sq_wake_open(dur__sq_file *file, dur_error *err) {
    file->peers.inotify = file->peers.wal_watch = file->peers.dir_watch = -1;
    if (file->path == NULL) return DUR_OK;
    file->peers.inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (file->peers.inotify < 0)
        return dur_error_set(err, DUR_ELIMIT, false, "sqlite.open", "no inotify instance: %s", strerror(errno));
    wal_watch(file);
    file->peers.dir_watch = inotify_add_watch(file->peers.inotify, file->intact.folder.path,
                                              IN_CREATE | IN_DELETE | IN_CLOSE_WRITE | IN_MOVED_TO);
    atomic_store(&file->peers.wal_moved, true);
    atomic_store(&file->peers.owners_moved, true);
    return DUR_OK;
}

void dur__sq_wake_close(dur__sq_file *file) {
    if (file->peers.inotify >= 0) close(file->peers.inotify);
    file->peers.inotify = -1;
}

static void folder_event(dur__sq_file *file, const char *name) {
    const char *base = strrchr(file->path, '/') + 1;
    size_t size = strlen(base);
    if (strncmp(name, base, size) != 0) return;
    if (strncmp(name + size, ".owner-", 7) == 0) atomic_store(&file->peers.owners_moved, true);
    if (strcmp(name + size, "-wal") != 0) return;
    wal_written(file);
    if (file->peers.wal_watch < 0) wal_watch(file);
}

void dur__sq_wake_drain(dur__sq_file *file) {
    if (file->peers.inotify < 0) return;
    _Alignas(struct inotify_event) char room[4096];
    dur__mutex_lock(&file->peers.wake_lock);
    for (;;) {
        ssize_t size = read(file->peers.inotify, room, sizeof room);
        if (size <= 0) break;
        for (char *at = room; at < room + size;) {
            const struct inotify_event *event = (const struct inotify_event *)(const void *)at;
            if ((event->mask & IN_Q_OVERFLOW) != 0) {
                wal_written(file);
                atomic_store(&file->peers.owners_moved, true);
            } else if (event->wd == file->peers.wal_watch) {
                if ((event->mask & IN_IGNORED) != 0) file->peers.wal_watch = -1;
                wal_written(file);
            } else if (event->len > 0)
                folder_event(file, event->name);
            at += sizeof(*event) + event->len;
        }
        if ((size_t)size < sizeof room / 2) break;
    }
    dur__mutex_unlock(&file->peers.wake_lock);
}

/* ---- waking ---- */

static bool waiter_meant(const dur__sq_file *file, const dur__sq_waiter *waiter) {
    if (waiter->instance == NULL) return file->news.ready || file->news.work || file->news.due;
    if (file->news.all) return true;
    for (size_t i = 0; i < file->news.changed_count; i++)
        if (strcmp(file->news.changed[i], waiter->instance) == 0) return true;
    return false;
}

/* A lane that takes no instances is not told of them. */
static bool wakes_ready(const dur__sq_file *file, const dur__sq_lane *lane) {
    return file->news.ready && (lane->handlers == NULL || lane->handlers->count > 0);
}

/* To the lane that leads it is no news what its own round has looked for: the rest is, whoever wrote it. */
static bool round_missed(const dur__sq_file *file, const dur__sq_lane *self) {
    return (wakes_ready(file, self) && !self->asks_instances) || (file->news.work && !self->asks_work);
}

void dur__sq_wake_flush(dur__sq_file *file, dur__sq_lane *self) {
    DUR_ASSERT(dur__sq_leads(file));
    bool all = file->news.ready || file->news.work || file->news.due;
    dur__mutex_lock(&file->desk.lock);
    DUR__LIST_EACH(&file->desk.lanes, at) {
        dur__sq_lane *lane = DUR__CONTAINER(at, dur__sq_lane, link);
        bool mine = !dur__list_empty(&lane->dirty) || !dur__list_empty(&lane->lost) || !dur__list_empty(&lane->asked);
        bool news = wakes_ready(file, lane) || file->news.work || file->news.due;
        if (!mine && !(lane == self ? round_missed(file, self) : news)) continue;
        atomic_store(&lane->signalled, true);
        if (lane != self) dur_waker_wake(lane->waker);
    }
    if (atomic_load(&file->desk.waiter_count) > 0 && (all || file->news.changed_count > 0 || file->news.all))
        DUR__LIST_EACH(&file->desk.waiters, at) {
            dur__sq_waiter *waiter = DUR__CONTAINER(at, dur__sq_waiter, link);
            if (waiter_meant(file, waiter)) dur_waker_wake(waiter->waker);
        }
    dur__mutex_unlock(&file->desk.lock);
    file->news.ready = file->news.work = file->news.due = file->news.all = false;
    for (size_t i = 0; i < file->news.changed_count; i++)
        dur__free(file->news.changed[i]);
    file->news.changed_count = 0;
}

void dur__sq_signal_all(dur__sq_file *file) {
    dur__mutex_lock(&file->desk.lock);
    DUR__LIST_EACH(&file->desk.lanes, at) {
        dur__sq_lane *lane = DUR__CONTAINER(at, dur__sq_lane, link);
        atomic_store(&lane->signalled, true);
        dur_waker_wake(lane->waker);
    }
    DUR__LIST_EACH(&file->desk.waiters, at) dur_waker_wake(DUR__CONTAINER(at, dur__sq_waiter, link)->waker);
    dur__mutex_unlock(&file->desk.lock);
}

/* ---- sleeping ---- */

/* With the lock held: is it on this waiter to watch for other processes?  Lanes always do. */
static bool watches(dur__sq_file *file) {
    if (file->peers.inotify < 0 || file->desk.watching || !dur__list_empty(&file->desk.lanes)) return false;
    file->desk.watching = true;
    return true;
}

/* A waiter that watched goes, or the last lane: the next one takes over.  With the lock held. */
void dur__sq_watch_pass_on(dur__sq_file *file, const dur_waker *self) {
    if (file->desk.watching || !dur__list_empty(&file->desk.lanes)) return;
    DUR__LIST_EACH(&file->desk.waiters, at) {
        dur__sq_waiter *waiter = DUR__CONTAINER(at, dur__sq_waiter, link);
        if (waiter->waker == self) continue;
        dur_waker_wake(waiter->waker);
        return;
    }
}

static bool rest_on(dur__sq_file *file, dur_waker *waker, bool watch, uint64_t ms, dur_rest *out) {
    if (!dur_waker_sleep_begin(waker)) return false;
    out->fds[out->fd_count++] = (struct pollfd){ .fd = dur_waker_fd(waker), .events = POLLIN };
    if (watch) {
        out->fds[out->fd_count++] = (struct pollfd){ .fd = file->peers.inotify, .events = POLLIN };
        ms = echo_left_ms(file, ms);
    }
    out->us = ms < UINT64_MAX / 1000 ? ms * 1000 : UINT64_MAX;
    if (out->us == 0) out->us = 1; /* an echo: it is taken behind the sleep */
    return true;
}

bool dur__sq_rest(dur__sq_file *file, dur_waker *waker, uint64_t ms, dur_rest *out) {
    return rest_on(file, waker, file->peers.inotify >= 0, ms, out);
}

bool dur__sq_rise(dur__sq_file *file, dur_waker *waker) {
    bool woken = dur_waker_sleep_end(waker);
    if (file->peers.inotify >= 0) echo_pass(file);
    return woken;
}

uint64_t dur__sq_time_left(dur__sq_file *file, uint64_t most) {
    uint64_t due = atomic_load(&file->times.due_ms), expiry = atomic_load(&file->times.expiry_ms);
    uint64_t now = file->world->wall_ms(file->world->data), boot = file->world->boot_ms(file->world->data);
    if (due != DUR_NEVER) most = due <= now ? 0 : (due - now < most ? due - now : most);
    if (expiry != DUR_NEVER) most = expiry <= boot ? 0 : (expiry - boot < most ? expiry - boot : most);
    return most;
}

/* Sleep on the waker, and on inotify when it is on this sleeper to watch.  True: the waker was woken. */
static bool sleep_on(dur__sq_file *file, dur_waker *waker, uint64_t timeout_ms) {
    dur__mutex_lock(&file->desk.lock);
    bool watch = watches(file);
    dur__mutex_unlock(&file->desk.lock);
    dur_rest rest = { .us = 0 };
    bool woken = !rest_on(file, waker, watch, timeout_ms, &rest);
    if (!woken) {
        dur__poll(rest.fds, rest.fd_count, rest.us);
        woken = dur_waker_sleep_end(waker);
    }
    if (!watch) return woken;
    echo_pass(file);
    dur__sq_wake_drain(file);
    if (atomic_exchange(&file->peers.wal_moved, false)) dur__sq_signal_all(file);
    dur__mutex_lock(&file->desk.lock);
    file->desk.watching = false;
    dur__sq_watch_pass_on(file, waker);
    dur__mutex_unlock(&file->desk.lock);
    return woken;
}

static int waiter_open(dur__sq_file *file, dur__sq_waiter *waiter, const char *instance, dur_error *err) {
    memset(waiter, 0, sizeof *waiter);
    errno = 0;
    waiter->waker = dur_waker_new();
    if (waiter->waker == NULL && errno != 0)
        return dur_error_set(err, DUR_ELIMIT, true, "sqlite.wait", "no descriptor: %s", strerror(errno));
    if (instance != NULL) waiter->instance = dur__strdup(instance);
    if (waiter->waker == NULL || (instance != NULL && waiter->instance == NULL)) {
        dur_waker_free(waiter->waker);
        dur__free(waiter->instance);
        return DUR__NO_MEMORY(err, "sqlite.wait");
    }
    dur__mutex_lock(&file->desk.lock);
    dur__list_push(&file->desk.waiters, &waiter->link);
    atomic_fetch_add(&file->desk.waiter_count, 1);
    dur__mutex_unlock(&file->desk.lock);
    return DUR_OK;
}

static void waiter_close(dur__sq_file *file, dur__sq_waiter *waiter) {
    dur__mutex_lock(&file->desk.lock);
    dur__list_unlink(&waiter->link);
    atomic_fetch_sub(&file->desk.waiter_count, 1);
    dur__mutex_unlock(&file->desk.lock);
    dur_waker_free(waiter->waker);
    dur__free(waiter->instance);
}

int dur__sq_poll(dur__sq_store *store, dur__sq_op *op, const size_t *count, uint64_t poll_ms, dur_error *err) {
    dur__sq_waiter waiter;
    bool waits = store->long_poll && poll_ms > 0;
    uint64_t until = dur__monotonic_us() / 1000 + poll_ms;
    int code = waits ? waiter_open(store->file, &waiter, NULL, err) : DUR_OK;
    if (code != DUR_OK) return code;
    for (;;) {
        code = dur__sq_submit(store->file, op, err);
        uint64_t now = dur__monotonic_us() / 1000;
        if (code != DUR_OK || *count > 0 || !waits || now >= until) break;
        sleep_on(store->file, waiter.waker, dur__sq_time_left(store->file, until - now));
    }
    if (waits) waiter_close(store->file, &waiter);
    return code;
}

/* ---- watches of clients ---- */

typedef struct sq_watch {
    dur_watch base;
    dur__sq_file *file;
    dur__sq_waiter waiter;
} sq_watch;

int dur__sq_watch_open(dur_provider *self, const char *instance, dur_watch **out, dur_error *err) {
    sq_watch *watch = dur__zget(sizeof(*watch));
    if (watch == NULL) return DUR__NO_MEMORY(err, "sqlite.wait");
    watch->base.store = self;
    watch->file = dur__sq_file_of(self);
    int code = waiter_open(watch->file, &watch->waiter, instance, err);
    if (code != DUR_OK)
        dur__free(watch);
    else
        *out = &watch->base;
    return code;
}

int dur__sq_watch_wait(dur_watch *base, uint64_t timeout_ms, dur_error *err) {
    sq_watch *watch = (sq_watch *)(void *)base;
    uint64_t now = dur__monotonic_us() / 1000;
    uint64_t end = timeout_ms > DUR_NEVER - now ? DUR_NEVER : now + timeout_ms;
    while (now < end || timeout_ms == 0) {
        if (sleep_on(watch->file, watch->waiter.waker, end - now)) return DUR_OK;
        now = dur__monotonic_us() / 1000;
        if (timeout_ms == 0) break;
    }
    return dur_error_set(err, DUR_ETIMEOUT, true, "sqlite.watch", "nothing changed");
}

void dur__sq_watch_wake(dur_watch *base) {
    dur_waker_wake(((sq_watch *)(void *)base)->waiter.waker);
}

void dur__sq_watch_close(dur_watch *base) {
    sq_watch *watch = (sq_watch *)(void *)base;
    waiter_close(watch->file, &watch->waiter);
    dur__free(watch);
}
