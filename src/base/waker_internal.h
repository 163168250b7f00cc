/*
 * waker_internal.h: waiting for a wake without sleeping, where one comes within microseconds.
 */
#ifndef DURITE_BASE_WAKER_INTERNAL_H
#define DURITE_BASE_WAKER_INTERNAL_H

#include <durite/sys/waker.h>

/* Spin until a wake came, at most so long.  True: the next sleep returns at once.  Whoever wakes pays no system call.
 */
bool dur__waker_spin(const dur_waker *waker, uint64_t us);

#endif
