/*
 * cancel.c: telling a running activity that its result will be ignored.
 *
 * The flag is atomic and read without a lock; the descriptor is made on first use and guarded by work.mutex, so that a
 * cancel that comes at the same moment is never missed.
 */
#include "runtime/runtime_internal.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void descriptor_raise(int fd) {
    uint64_t one = 1;
    while (fd >= 0 && write(fd, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
}

void dur__cancel_locked(dur__task *task) {
    if (atomic_exchange(&task->cancelled, true)) return;
    task->cancelled_at_us = dur__monotonic_us();
    descriptor_raise(task->cancel_fd);
}

void dur__cancel_task(dur_runtime *runtime, dur__task *task) {
    dur__mutex_lock(&runtime->work.mutex);
    dur__cancel_locked(task);
    dur__mutex_unlock(&runtime->work.mutex);
}

int dur__cancel_fd(dur__task *task) {
    dur__work *work = &task->runtime->work;
    dur__mutex_lock(&work->mutex);
    if (task->cancel_fd < 0) {
        task->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (atomic_load(&task->cancelled)) descriptor_raise(task->cancel_fd);
    }
    int fd = task->cancel_fd;
    dur__mutex_unlock(&work->mutex);
    return fd;
}
