/*
 * thread.h: threads, mutexes and conditions, wrapped once.
 */
#ifndef DURITE_BASE_THREAD_H
#define DURITE_BASE_THREAD_H

#include <durite/sys/process.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct dur__mutex {
    pthread_mutex_t mutex;
} dur__mutex;
#define DUR__MUTEX_INIT                                                                                                \
    { PTHREAD_MUTEX_INITIALIZER }

void dur__mutex_init(dur__mutex *mutex);
void dur__mutex_destroy(dur__mutex *mutex);
void dur__mutex_lock(dur__mutex *mutex);
void dur__mutex_unlock(dur__mutex *mutex);

typedef struct dur__cond {
    pthread_cond_t cond; /* on CLOCK_MONOTONIC */
} dur__cond;
#define DUR__COND_INIT /* only for waits without a time */                                                             \
    { PTHREAD_COND_INITIALIZER }

void dur__cond_init(dur__cond *cond);
void dur__cond_destroy(dur__cond *cond);
void dur__cond_signal(dur__cond *cond);
void dur__cond_broadcast(dur__cond *cond);
void dur__cond_wait(dur__cond *cond, dur__mutex *mutex);
bool dur__cond_wait_ms(dur__cond *cond, dur__mutex *mutex, uint64_t timeout_ms); /* false: timed out */
bool dur__cond_wait_us(dur__cond *cond, dur__mutex *mutex, uint64_t timeout_us);

typedef struct dur__thread {
    pthread_t thread;
} dur__thread;

/* A thread with a name (15 bytes shown) and all signals blocked except SEGV, BUS, FPE, ILL.  0, or an errno. */
int dur__thread_start(dur__thread *out, const char *name, void (*fn)(void *), void *arg);
void dur__thread_join(dur__thread *thread);
void dur__thread_detach(dur__thread *thread);
bool dur__thread_is_self(const dur__thread *thread);
dur__thread dur__thread_self(void);

/* This thread runs on the stack of a handler (coro/): not 0.  What waits there holds up all that the thread serves. */
extern _Thread_local unsigned dur__on_handlers_stack;

/* Between two looks of a thread that spins. */
static inline void dur__relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__) || (defined(__arm__) && __ARM_ARCH >= 7)
    __asm__ volatile("yield");
#endif
}

/* For durations: statistics, spinning, how long to sleep.  Of the world that this thread lives in. */
uint64_t dur__monotonic_us(void);

/* Which boot of the machine this is; "unknown" where the system does not say. */
void dur__boot_id(char *out, size_t size);

/* A thread that lives in a fake world (dur_fake_world_enter).  False: it does not, and nothing has happened. */
struct dur_world;
bool dur__world_is_home(const struct dur_world *world);
bool dur__world_entered(void);
/* … and nobody else is there (dur_fake_world_alone); then: what the instance waits for, in words. */
bool dur__world_alone(void);
const char *dur__world_waits(const char *instance);
bool dur__home_monotonic_us(uint64_t *out);
bool dur__home_sleep_us(uint64_t us);

/* poll(), in microseconds (UINT64_MAX: without end): every sleep of the library that is not a condition. */
struct pollfd;
int dur__poll(struct pollfd *fds, size_t count, uint64_t timeout_us);
void dur__sleep_us(uint64_t us);

/* Of the process, not of the library that this is linked into: sys/process.h. */
#define dur__process_serial dur_process_serial
#define dur__at_fork_child dur_at_fork_child
#define dur__at_fork_remove dur_at_fork_remove

#endif
