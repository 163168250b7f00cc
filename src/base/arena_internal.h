/*
 * arena_internal.h: a bound for an arena, and what its owner does when there is no more.
 */
#ifndef DURITE_BASE_ARENA_INTERNAL_H
#define DURITE_BASE_ARENA_INTERNAL_H

#include <durite/sys/arena.h>

/*
 * When an allocation would take the arena beyond `bytes` (0: no bound), or there is no memory, over(data) is called and
 * must not return: it jumps or switches away, and the arena is still whole.  over NULL: its memory is a covered
 * allocation, and too much is the assert hook. To tell the two reasons apart, over may look at dur_arena_bytes: an
 * allocation that failed is not counted.
 */
void dur__arena_set_limit(dur_arena *arena, size_t bytes, void (*over)(void *data), void *data);

/* A new arena where there must be one: a covered allocation (base/memory.h). */
dur_arena *dur__arena_xnew(void);

/* Bytes that the arena holds from malloc: what a parked execution costs. */
size_t dur__arena_held(const dur_arena *arena);

#endif
