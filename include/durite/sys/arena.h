/*
 * arena.h: memory with one lifetime.
 *
 * What is allocated in an arena lives until the arena ends; nothing is freed alone.  Store methods put what they
 * return into the arena that they are given.  Allocation does not return NULL for lack of memory: an arena has an
 * out-of-memory jump set by its owner, or aborts through the assert hook where it has none.
 *
 * With DURITE_DEBUG_ARENA every object is a malloc of its own, so that sanitizers see each use after the end.
 * Thread class of dur_arena: one at a time.
 */
#ifndef DURITE_SYS_ARENA_H
#define DURITE_SYS_ARENA_H

#include <durite/export.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

DUR_BEGIN_DECLS

typedef struct dur_arena dur_arena;

/* A new empty arena; NULL only when there is no memory at all.  Free with dur_arena_free. */
DUR_API dur_arena *dur_arena_new(void);
/* Forget all contents but keep some memory for reuse. */
DUR_API void dur_arena_reset(dur_arena *arena);
/* End the arena and everything in it.  NULL allowed. */
DUR_API void dur_arena_free(dur_arena *arena);
/* Bytes handed out since the last reset. */
DUR_API size_t dur_arena_bytes(const dur_arena *arena);

/* size bytes, aligned for any object, not initialised / all zero. */
DUR_API void *dur_arena_alloc(dur_arena *arena, size_t size);
DUR_API void *dur_arena_zalloc(dur_arena *arena, size_t size);
/* A copy of text (NULL gives NULL), of size bytes with a NUL behind them, or a formatted text. */
DUR_API char *dur_arena_strdup(dur_arena *arena, const char *text);
DUR_API char *dur_arena_memdup(dur_arena *arena, const void *data, size_t size);
DUR_API char *dur_arena_format(dur_arena *arena, const char *format, ...) DUR_PRINTF(2, 3);
DUR_API char *dur_arena_vformat(dur_arena *arena, const char *format, va_list args) DUR_PRINTF(2, 0);

/* A bounded piece of text, not necessarily ended by NUL. */
typedef struct dur_text {
    const char *data;
    size_t size;
} dur_text;

DUR_END_DECLS

#endif
