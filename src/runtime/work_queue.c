/*
 * work_queue.c: activities that this node has locked and not yet started, and how many more it may lock.
 *
 * At most worker_concurrency + prefetch tasks are here, waiting or running (plus those that a commit has asked for).
 * What waits here is kept from the other nodes, so the prefetch is for a queue that moves: when work has waited for
 * DUR__WAITS_LONG_US, no slot is free and there is a peer, nothing waits here any more, and the node takes what it has
 * free slots for.  Each activity that ends lets one more wait.
 * Workers are lazy: a batch wakes one worker, which usually drains it before another core has woken up; only when the
 * queue is still not empty a little later is the next one woken (hotpath 1.4).
 */
#include "runtime/runtime_internal.h"

#define LAZY_US 25

void dur__work_init(dur__work *work) {
    work->finished_at_us = dur__monotonic_us();
    dur__mutex_init(&work->mutex);
    dur__cond_init(&work->changed);
    dur__cond_init(&work->idle_changed);
    dur__list_init(&work->queue);
    dur__list_init(&work->taken);
    dur__list_init(&work->blocked);
    dur__list_init(&work->running);
    dur__list_init(&work->workers);
    dur__list_init(&work->leaving);
}

void dur__work_destroy(dur__work *work) {
    dur__cond_destroy(&work->idle_changed);
    dur__cond_destroy(&work->changed);
    dur__mutex_destroy(&work->mutex);
}

/* A suspect that was put in front has come later than those behind it. */
static bool waits_long(const dur__link *queue, uint64_t now_us) {
    DUR__LIST_EACH(queue, at) {
        const dur__task *task = DUR__CONTAINER(at, dur__task, link);
        if (task->alone == 0) return now_us - task->queued_at_us >= DUR__WAITS_LONG_US;
    }
    return false;
}

static size_t used_locked(const dur__work *work) {
    /* Those that wait for their session stand in nobody's way; how many of them are taken has its own limit. */
    return work->queued + work->taken_count + work->running_count + work->reserved;
}

static bool slots_full(const dur_runtime *runtime) {
    return runtime->work.running_count >= runtime->options.worker_concurrency;
}

/* Before what has waited goes back: who looks behind that sees nothing wait. */
static void note_waiting_locked(dur_runtime *runtime) {
    dur__work *work = &runtime->work;
    if (atomic_load(&runtime->peers) == 0) {
        work->withheld = 0;
    } else if (slots_full(runtime) && work->queued + work->taken_count > 0) {
        uint64_t now_us = dur__monotonic_us();
        if (waits_long(&work->queue, now_us) || waits_long(&work->taken, now_us))
            work->withheld = runtime->options.prefetch;
    }
    DUR_ASSERT(work->withheld <= runtime->options.prefetch);
}

static size_t room_locked(dur_runtime *runtime) {
    const dur__work *work = &runtime->work;
    note_waiting_locked(runtime);
    size_t limit = dur__work_room_all(runtime) - work->withheld;
    size_t used = used_locked(work);
    return used < limit ? limit - used : 0;
}

size_t dur__work_room(dur_runtime *runtime) {
    dur__mutex_lock(&runtime->work.mutex);
    size_t room = room_locked(runtime);
    dur__mutex_unlock(&runtime->work.mutex);
    return room;
}

bool dur__work_any(dur_runtime *runtime) {
    dur__mutex_lock(&runtime->work.mutex);
    bool any = used_locked(&runtime->work) > 0;
    dur__mutex_unlock(&runtime->work.mutex);
    return any;
}

/* An activity that does not end although it was cancelled is the one to name. */
static dur__full full_locked(const dur_runtime *runtime, uint64_t now_us, const dur__task **out) {
    const dur__work *work = &runtime->work;
    uint64_t grace_us = runtime->options.activity_cancel_grace_ms * 1000;
    size_t overdue = 0;
    *out = NULL;
    DUR__LIST_EACH(&work->running, at) {
        const dur__task *task = DUR__CONTAINER(at, dur__task, link);
        bool late = atomic_load(&task->cancelled) && now_us - task->cancelled_at_us >= grace_us;
        if (*out == NULL || (late && overdue == 0)) *out = task;
        overdue += late;
    }
    if (overdue == work->running_count) return DUR__FULL_OVERDUE;
    bool shares = atomic_load(&runtime->peers) > 0 && work->withheld == runtime->options.prefetch;
    return shares ? DUR__FULL_LONG : DUR__FULL_NOT;
}

dur__full dur__work_full(dur_runtime *runtime, uint64_t for_us, dur__buf *name) {
    const dur__work *work = &runtime->work;
    const dur__task *task = NULL;
    dur__full full = DUR__FULL_NOT;
    uint64_t now_us = dur__monotonic_us();
    dur__mutex_lock(&runtime->work.mutex);
    if (slots_full(runtime) && now_us - work->finished_at_us >= for_us) full = full_locked(runtime, now_us, &task);
    DUR_ASSERT(full == DUR__FULL_NOT || task != NULL);
    if (full != DUR__FULL_NOT) dur__buf_format(name, "%s (%s)", task->item.name, task->item.instance);
    dur__mutex_unlock(&runtime->work.mutex);
    return full;
}

/* Whoever is put in front begins soon: a worker has nothing to do, or has ended something within that time. */
bool dur__work_flows(dur_runtime *runtime, uint64_t within_us) {
    const dur__work *work = &runtime->work;
    dur__mutex_lock(&runtime->work.mutex);
    bool flows = work->running_count < runtime->options.worker_concurrency ||
                 dur__monotonic_us() - work->finished_at_us < within_us;
    dur__mutex_unlock(&runtime->work.mutex);
    return flows;
}

size_t dur__work_reserve(dur_runtime *runtime, size_t want, bool alone) {
    dur__mutex_lock(&runtime->work.mutex);
    size_t room = alone ? want : room_locked(runtime); /* there is one at a time, and others are always more */
    size_t granted = want < room ? want : room;
    runtime->work.reserved += granted;
    dur__mutex_unlock(&runtime->work.mutex);
    return granted;
}

void dur__work_unreserve(dur_runtime *runtime, size_t count) {
    if (count == 0) return;
    dur__mutex_lock(&runtime->work.mutex);
    DUR_ASSERT(runtime->work.reserved >= count);
    runtime->work.reserved -= count;
    dur__mutex_unlock(&runtime->work.mutex);
}

/* How many idle workers to signal, at most want.  The signals come behind the unlock: a worker that is woken under the
   lock goes to sleep again at once, for the lock. */
static size_t claim_idle_locked(dur__work *work, size_t want) {
    size_t idle = work->idle > work->waking ? work->idle - work->waking : 0;
    size_t claimed = want < idle ? want : idle;
    work->waking += claimed;
    return claimed;
}

static void signal_workers(dur__work *work, size_t count) {
    while (count-- > 0)
        dur__cond_signal(&work->changed);
}

static bool for_host(const dur__task *task) {
    return task->handler != NULL && task->handler->taken;
}

/* Ready to begin: a worker's, or the host's.  Who runs alone keeps other suspects waiting: before all others. */
static void queue_locked(dur__work *work, dur__task *task) {
    dur__link *queue = for_host(task) ? &work->taken : &work->queue;
    if (task->alone != 0)
        dur__list_push_front(queue, &task->link);
    else
        dur__list_push(queue, &task->link);
    if (for_host(task))
        work->taken_count++;
    else
        work->queued++;
}

/* The tasks were reserved; now they wait for a worker.  A session beyond the limit waits for one to end. */
void dur__work_push(dur_runtime *runtime, dur__link *tasks, size_t count) {
    if (count == 0) return;
    dur__work *work = &runtime->work;
    uint64_t now_us = dur__monotonic_us();
    dur__mutex_lock(&work->mutex);
    for (dur__link *link; (link = dur__list_pop(tasks)) != NULL;) {
        dur__task *task = DUR__CONTAINER(link, dur__task, link);
        DUR_ASSERT(work->reserved > 0);
        work->reserved--;
        task->queued_at_us = now_us;
        atomic_store(&task->state, DUR__TASK_QUEUED);
        bool session = task->item.session_id != NULL && !task->has_session;
        if (session && !dur__session_admit(runtime, task->item.session_id)) {
            dur__list_push(&work->blocked, link);
            work->blocked_count++;
            continue;
        }
        task->has_session = task->item.session_id != NULL;
        queue_locked(work, task);
    }
    work->batch_at_us = now_us;
    size_t woken = work->queued > 0 ? claim_idle_locked(work, 1) : 0;
    dur__mutex_unlock(&work->mutex);
    signal_workers(work, woken);
}

void dur__work_nudge(dur_runtime *runtime, uint64_t after_us) {
    dur__work *work = &runtime->work;
    size_t woken = 0;
    dur__mutex_lock(&work->mutex);
    if (work->queued > work->waking && dur__monotonic_us() - work->batch_at_us >= after_us)
        woken = claim_idle_locked(work, after_us == 0 ? work->queued - work->waking : 1);
    dur__mutex_unlock(&work->mutex);
    signal_workers(work, woken);
}

static void leave_session_locked(dur_runtime *runtime, dur__task *task) {
    dur__work *work = &runtime->work;
    if (!task->has_session) return;
    dur__session_leave(runtime, task->item.session_id);
    task->has_session = false;
    DUR__LIST_EACH_SAFE(&work->blocked, at, after) {
        dur__task *waiting = DUR__CONTAINER(at, dur__task, link);
        if (!dur__session_admit(runtime, waiting->item.session_id)) continue;
        waiting->has_session = true;
        dur__list_unlink(at);
        work->blocked_count--;
        queue_locked(work, waiting);
        signal_workers(work, claim_idle_locked(work, 1)); /* rare: the lock is the caller's */
    }
}

static void unlink_waiting_locked(dur_runtime *runtime, dur__task *task) {
    dur__work *work = &runtime->work;
    bool blocked = task->item.session_id != NULL && !task->has_session;
    dur__list_unlink(&task->link);
    if (blocked)
        work->blocked_count--;
    else if (for_host(task))
        work->taken_count--;
    else
        work->queued--;
    leave_session_locked(runtime, task);
    atomic_store(&task->state, DUR__TASK_IDLE);
}

bool dur__work_withdraw(dur_runtime *runtime, dur__task *task) {
    dur__mutex_lock(&runtime->work.mutex);
    bool waiting = atomic_load(&task->state) == DUR__TASK_QUEUED;
    if (waiting) unlink_waiting_locked(runtime, task);
    dur__mutex_unlock(&runtime->work.mutex);
    return waiting;
}

/* Tasks of this loop that have waited so long without being started, oldest first; local: those without a row, too. */
size_t dur__work_take_waiting(dur_runtime *runtime, dur__loop *loop, dur__link *out, uint64_t waited_us, bool local) {
    dur__work *work = &runtime->work;
    size_t count = 0;
    uint64_t now_us = dur__monotonic_us();
    dur__mutex_lock(&work->mutex);
    note_waiting_locked(runtime);
    dur__link *lists[3] = { &work->queue, &work->blocked, &work->taken };
    for (int i = 0; i < 3; i++) {
        DUR__LIST_EACH_SAFE(lists[i], at, after) {
            dur__task *task = DUR__CONTAINER(at, dur__task, link);
            if (task->loop != loop || now_us - task->queued_at_us < waited_us) continue;
            if (!local && atomic_load(&task->local)) continue;
            bool ours = lists[i] == &work->blocked && dur__session_busy(runtime, task->item.session_id);
            if (ours && waited_us > 0) continue; /* no other node may run it */
            unlink_waiting_locked(runtime, task);
            dur__list_push(out, &task->link);
            count++;
        }
    }
    dur__mutex_unlock(&work->mutex);
    return count;
}

void dur__work_finished(dur_runtime *runtime, dur__task *task) {
    dur__work *work = &runtime->work;
    dur__list_unlink(&task->link);
    DUR_ASSERT(work->running_count > 0);
    work->running_count--;
    work->finished_at_us = dur__monotonic_us();
    if (work->withheld > 0) work->withheld--;
    uint64_t ran_us = work->finished_at_us - task->started_at_us;
    work->run_us += ran_us / 8 - work->run_us / 8;
    leave_session_locked(runtime, task);
    dur__cond_broadcast(&work->idle_changed);
}
