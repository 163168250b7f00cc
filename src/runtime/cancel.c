/*
 * cancel.c: telling a running activity that its result will be ignored.
 *
 * The flag is atomic and read without a lock; the descriptor is made on first use and guarded by work.mutex, so that a
 * cancel that comes at the same moment is never missed.
 */
#include "runtime/runtime_internal.h"

void dur__cancel_locked(dur__task *task) {
    if (atomic_exchange(&task->cancelled, true)) return;
    task->cancelled_at_us = dur__monotonic_us();
    if (task->cancel_bell.fd >= 0) dur__bell_ring(&task->cancel_bell);
}

void dur__cancel_task(dur_runtime *runtime, dur__task *task) {
    dur__mutex_lock(&runtime->work.mutex);
    dur__cancel_locked(task);
    dur__mutex_unlock(&runtime->work.mutex);
}

int dur__cancel_fd(dur__task *task) {
    dur__work *work = &task->runtime->work;
    if (dur__runtime_forked(task->runtime)) return -1; /* nobody here would ring */
    dur__mutex_lock(&work->mutex);
    if (task->cancel_bell.fd < 0 && dur__bell_open(&task->cancel_bell) && atomic_load(&task->cancelled))
        dur__bell_ring(&task->cancel_bell);
    int fd = task->cancel_bell.fd;
    dur__mutex_unlock(&work->mutex);
    return fd;
}
