/*
 * waker.h: how a thread that sleeps in one place is woken from many.
 *
 * A loop owns one waker and sleeps on its file descriptor, together with whatever its store wants to watch (a socket,
 * inotify).  Waking a thread that is awake costs one atomic exchange and no system call.
 * Thread class: dur_waker_wake from any thread; the rest only from the thread that sleeps.
 */
#ifndef DURITE_SYS_WAKER_H
#define DURITE_SYS_WAKER_H

#include <durite/export.h>
#include <stdbool.h>
#include <stdint.h>

DUR_BEGIN_DECLS

typedef struct dur_waker dur_waker;

/* NULL when no descriptor is to be had. */
DUR_API dur_waker *dur_waker_new(void);
DUR_API void dur_waker_free(dur_waker *waker);
/* Make the sleeper, or its next sleep, return at once. */
DUR_API void dur_waker_wake(dur_waker *waker);
/* The descriptor to poll for reading; readable only between sleep_begin and sleep_end. */
DUR_API int dur_waker_fd(const dur_waker *waker);
/* Before polling: false when a wake has come already (then it is taken: do not sleep, and there is nothing to end). */
DUR_API bool dur_waker_sleep_begin(dur_waker *waker);
/* After polling: takes the wake, if any, and says whether there was one. */
DUR_API bool dur_waker_sleep_end(dur_waker *waker);
/* Sleep on nothing but the waker; UINT64_MAX: without end.  True when woken. */
DUR_API bool dur_waker_sleep(dur_waker *waker, uint64_t timeout_us);

DUR_END_DECLS

#endif
