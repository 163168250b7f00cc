/*
 * memory.h: memory for stores that live in libraries of their own.
 *
 * Counted, bounded and hooked as durite/memory.h says.  What a store hands to callers who free it with dur_free must
 * come from here.  Thread class: any thread.
 */
#ifndef DURITE_SYS_MEMORY_H
#define DURITE_SYS_MEMORY_H

#include <durite/export.h>
#include <durite/memory.h>
#include <stddef.h>

DUR_BEGIN_DECLS

/* size bytes (0 counts as 1), aligned for any object; zeroed; or moved (memory NULL: new).  NULL: there is none, and
   nothing has changed.  Free with dur_free. */
DUR_API void *dur_memory_alloc(size_t size);
DUR_API void *dur_memory_zalloc(size_t size);
DUR_API void *dur_memory_resize(void *memory, size_t size);

/*
 * The same for callers that cannot go on without (moved NULL: a new block).  When there is none, it is taken from what
 * was set aside for this thread's case; or the thread leaves for its way out, and this does not return; where it has
 * neither, that is a broken invariant of ours (dur_assert_failed).
 */
DUR_API void *dur_memory_must(void *moved, size_t size);

DUR_END_DECLS

#endif
