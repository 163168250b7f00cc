/*
 * bell.h: a descriptor that is readable once it was rung: for threads that sleep in poll.
 */
#ifndef DURITE_BASE_BELL_H
#define DURITE_BASE_BELL_H

#include <stdbool.h>
#include <stdint.h>

typedef struct dur__bell {
    int fd;           /* to be polled for reading; -1: there is none */
    int rope;         /* what ringing writes to: the same descriptor, or the other end of a pipe */
    uint64_t process; /* dur__process_serial() of the process that has opened it */
} dur__bell;
/* No bell. */
#define DUR__BELL_NONE ((dur__bell){ .fd = -1, .rope = -1 })

/* False: no descriptor is to be had, errno says why, and the bell is DUR__BELL_NONE.  Closed over exec. */
bool dur__bell_open(dur__bell *bell);
void dur__bell_close(dur__bell *bell); /* DUR__BELL_NONE: nothing happens */
/* Any thread; nothing in a forked child.  What is not heard for 65,536 rings breaks an assert. */
void dur__bell_ring(const dur__bell *bell);
/* How often it was rung since the last time; 0: not at all, or in a forked child.  Does not wait. */
uint64_t dur__bell_hear(const dur__bell *bell);

#endif
