/*
 * ground.h: what the system below offers.  Files of base choose by it; nobody else needs to.
 *
 * With DURITE_PLAIN the ways of other systems are taken on Linux, too, so that they can be tested (docs/porting.md).
 */
#ifndef DURITE_BASE_GROUND_H
#define DURITE_BASE_GROUND_H

#if defined(__linux__) && !defined(DURITE_PLAIN)
#define DUR__LINUX 1 /* eventfd, epoll, getrandom, CLOCK_BOOTTIME, /proc */
#endif

/* Not with pointers of 32 bits: with _FORTIFY_SOURCE and _TIME_BITS=64 the ppoll of glibc 2.36 reads a timespec of 32
   bits, and no sleep lasts longer than nothing. */
#if defined(DUR__LINUX) && defined(__LP64__)
#define DUR__PPOLL 1
#endif

#endif
