/*
 * memory.h: where the library's memory comes from, how much it may be, and how much it is.
 *
 * Running out of memory ends no program: public calls answer DUR_ENOMEM and leave things as they were; a turn of a
 * handler that runs out is abandoned and replayed later; a runtime that runs out goes on when there is memory again.
 * docs/embedding.md says what is kept for that, and what is left: small allocations of the PostgreSQL store.
 *
 * Counted and bounded is what the library takes from its allocator.  Handlers' stacks are mappings of their own,
 * bounded by parked_max and by the kernel; SQLite and libpq have allocators of their own. Thread class: any thread,
 * unless said otherwise.
 */
#ifndef DURITE_MEMORY_H
#define DURITE_MEMORY_H

#include <durite/error.h>
#include <durite/export.h>
#include <stddef.h>

DUR_BEGIN_DECLS

/*
 * Take memory from these functions instead of malloc, realloc and free.  As those: memory is aligned for any object,
 * NULL says that there is none, and a failed resize leaves the old block.  release never gets NULL.  They are called
 * from all threads of the library and of its callers, and must not call the library.
 * Once, before anything else of the library is called (dur_memory_limit excepted): DUR_ESTATE otherwise.  DUR_EINVAL:
 * one of them is NULL.  Since 0.1.
 */
typedef void *dur_memory_alloc_fn(size_t size, void *data);
typedef void *dur_memory_resize_fn(void *memory, size_t size, void *data);
typedef void dur_memory_release_fn(void *memory, void *data);
DUR_API int dur_memory_hooks(dur_memory_alloc_fn *alloc, dur_memory_resize_fn *resize, dur_memory_release_fn *release,
                             void *data);

/*
 * A hard cap: beyond so many bytes the library's memory has run out (0: no cap, the default).  From seven eighths of it
 * on, runtimes give up parked handlers, least recently used first, before anything fails: those are replayed when
 * something comes for them.  May be changed at any time; what is in use already stays.  Since 0.1.
 */
DUR_API void dur_memory_limit(size_t bytes);

/* Bytes in use, what the allocator adds to each block included where it tells.  Since 0.1. */
DUR_API size_t dur_memory_used(void);

/* Free what a function of this library gave you with "free with dur_free".  NULL is allowed. */
DUR_API void dur_free(void *memory);

DUR_END_DECLS

#endif
