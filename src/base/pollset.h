/*
 * pollset.h: one descriptor that is readable when one of many is.
 */
#ifndef DURITE_BASE_POLLSET_H
#define DURITE_BASE_POLLSET_H

/* -1: the system has no such thing, or no descriptor is to be had.  close() ends it. */
int dur__pollset_open(void);
/* Readable with fd from now on, level-triggered, until fd is closed.  What is in it already does no harm. */
void dur__pollset_add(int set, int fd);

#endif
