/*
 * thread.c: pthreads, wrapped once.  Failures that only a bug can cause are asserts.
 */
#include "base/thread.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/ground.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

_Thread_local unsigned dur__on_handlers_stack;

void dur__mutex_init(dur__mutex *mutex) {
    DUR_ASSERT(pthread_mutex_init(&mutex->mutex, NULL) == 0);
}

void dur__mutex_destroy(dur__mutex *mutex) {
    DUR_ASSERT(pthread_mutex_destroy(&mutex->mutex) == 0);
}

void dur__mutex_lock(dur__mutex *mutex) {
    DUR_ASSERT(pthread_mutex_lock(&mutex->mutex) == 0);
}

void dur__mutex_unlock(dur__mutex *mutex) {
    DUR_ASSERT(pthread_mutex_unlock(&mutex->mutex) == 0);
}

void dur__cond_init(dur__cond *cond) {
    pthread_condattr_t attributes;
    DUR_ASSERT(pthread_condattr_init(&attributes) == 0);
    DUR_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    DUR_ASSERT(pthread_cond_init(&cond->cond, &attributes) == 0);
    pthread_condattr_destroy(&attributes);
}

void dur__cond_destroy(dur__cond *cond) {
    DUR_ASSERT(pthread_cond_destroy(&cond->cond) == 0);
}

void dur__cond_signal(dur__cond *cond) {
    DUR_ASSERT(pthread_cond_signal(&cond->cond) == 0);
}

void dur__cond_broadcast(dur__cond *cond) {
    DUR_ASSERT(pthread_cond_broadcast(&cond->cond) == 0);
}

void dur__cond_wait(dur__cond *cond, dur__mutex *mutex) {
    DUR_ASSERT(pthread_cond_wait(&cond->cond, &mutex->mutex) == 0);
}

bool dur__cond_wait_us(dur__cond *cond, dur__mutex *mutex, uint64_t timeout_us) {
    uint64_t now_us = dur__monotonic_us();
    if (timeout_us != UINT64_MAX && dur__home_sleep_us(timeout_us)) return false;
    if (timeout_us > (uint64_t)INT64_MAX - now_us) { /* longer than the machine lives */
        dur__cond_wait(cond, mutex);
        return true;
    }
    uint64_t until_us = now_us + timeout_us;
    struct timespec until = { .tv_sec = (time_t)(until_us / 1000000), .tv_nsec = (long)(until_us % 1000000 * 1000) };
    int code = pthread_cond_timedwait(&cond->cond, &mutex->mutex, &until);
    DUR_ASSERT(code == 0 || code == ETIMEDOUT);
    return code == 0;
}

bool dur__cond_wait_ms(dur__cond *cond, dur__mutex *mutex, uint64_t timeout_ms) {
    return dur__cond_wait_us(cond, mutex, timeout_ms > UINT64_MAX / 1000 ? UINT64_MAX : timeout_ms * 1000);
}

typedef struct thread_start {
    void (*fn)(void *);
    void *arg;
    char name[16];
} thread_start;

static void *thread_main(void *data) {
    thread_start start = *(thread_start *)data;
    dur__free(data);
    pthread_setname_np(pthread_self(), start.name);
    start.fn(start.arg);
    return NULL;
}

int dur__thread_start(dur__thread *out, const char *name, void (*fn)(void *), void *arg) {
    thread_start *start = dur__zget(sizeof(*start));
    if (start == NULL) return ENOMEM;
    start->fn = fn;
    start->arg = arg;
    memcpy(start->name, name, dur__utf8_cut(name, sizeof(start->name) - 1));

    /* The host's signals are for the host's threads.  The new thread inherits the mask, so that there is no moment in
       which it could take one. */
    sigset_t ours;
    sigset_t before;
    sigfillset(&ours);
    sigdelset(&ours, SIGSEGV);
    sigdelset(&ours, SIGBUS);
    sigdelset(&ours, SIGFPE);
    sigdelset(&ours, SIGILL);
    pthread_sigmask(SIG_SETMASK, &ours, &before);
    int code = pthread_create(&out->thread, NULL, thread_main, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code != 0) dur__free(start);
    return code;
}

void dur__thread_join(dur__thread *thread) {
    DUR_ASSERT(pthread_join(thread->thread, NULL) == 0);
}

void dur__thread_detach(dur__thread *thread) {
    DUR_ASSERT(pthread_detach(thread->thread) == 0);
}

dur__thread dur__thread_self(void) {
    return (dur__thread){ pthread_self() };
}

bool dur__thread_is_self(const dur__thread *thread) {
    return pthread_equal(thread->thread, pthread_self()) != 0;
}

uint64_t dur__monotonic_us(void) {
    uint64_t home_us;
    if (dur__home_monotonic_us(&home_us)) return home_us;
    struct timespec now;
    DUR_ASSERT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

#ifdef DUR__PPOLL
static int poll_us(struct pollfd *fds, size_t count, uint64_t timeout_us) {
    struct timespec left = { .tv_sec = (time_t)(timeout_us / 1000000), .tv_nsec = (long)(timeout_us % 1000000 * 1000) };
    return ppoll(fds, (nfds_t)count, timeout_us == UINT64_MAX ? NULL : &left, NULL);
}
#else
/* In whole milliseconds, rather too long than too short: who sleeps until something is due finds it due. */
static int poll_us(struct pollfd *fds, size_t count, uint64_t timeout_us) {
    uint64_t ms = timeout_us / 1000 + (timeout_us % 1000 != 0);
    return poll(fds, (nfds_t)count, timeout_us == UINT64_MAX ? -1 : ms < INT_MAX ? (int)ms : INT_MAX);
}
#endif

/* In a fake world what is there already is seen, and otherwise the time passes. */
int dur__poll(struct pollfd *fds, size_t count, uint64_t timeout_us) {
    if (timeout_us == 0 || timeout_us == UINT64_MAX || !dur__world_entered()) return poll_us(fds, count, timeout_us);
    int ready = count > 0 ? poll_us(fds, count, 0) : 0;
    if (ready == 0) (void)dur__home_sleep_us(timeout_us);
    return ready;
}

void dur__sleep_us(uint64_t us) {
    (void)dur__poll(NULL, 0, us);
}
