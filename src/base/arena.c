/*
 * arena.c: a bump allocator over chunks that double from 1 KiB to 64 KiB.
 *
 * The arena and its first chunk are one malloc, so that a small execution costs one.  Texts are packed without
 * alignment; objects are aligned for anything.  What is larger than a quarter of the largest chunk gets a chunk of its
 * own, behind the current one, so that the rest of the current one is not lost.
 */
#include "base/arena_internal.h"
#include "base/assert.h"
#include "base/memory.h"

#include <stdalign.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    ARENA_ALIGN = alignof(max_align_t),
    ARENA_CHUNK_FIRST = 1024, /* the arena's own fields included */
    ARENA_CHUNK_MAX = 64 * 1024,
    ARENA_LARGE = ARENA_CHUNK_MAX / 4
};

typedef struct arena_chunk {
    struct arena_chunk *next; /* older */
    size_t size;              /* as malloc'ed */
    alignas(max_align_t) char data[];
} arena_chunk;

struct dur_arena {
    char *at; /* free bytes of the current chunk */
    char *end;
    size_t bytes;
    size_t held;
    size_t limit; /* SIZE_MAX: none */
    void (*over)(void *data);
    void *over_data;
#ifdef DURITE_DEBUG_ARENA
    void **objects;
    size_t object_count;
    size_t object_room;
#else
    arena_chunk *chunks; /* newest regular one first: at and end are in it */
    arena_chunk *large;
    size_t chunk_next; /* size of the next regular chunk */
    alignas(max_align_t) char first[];
#endif
};

/* More than its limit, or than there can be: its owner's affair, or as any other memory that is not to be had. */
static _Noreturn void arena_over(dur_arena *arena) {
    if (arena->over != NULL)
        arena->over(arena->over_data);
    else
        (void)dur_memory_must(NULL, SIZE_MAX);
    dur__assert_failed(__FILE__, __LINE__, "arena: what cannot be had was given");
}

/* Covered, unless its owner has set what to do. */
static void *arena_memory(dur_arena *arena, void *moved, size_t size) {
    if (arena->over == NULL) return dur_memory_must(moved, size);
    void *memory = dur__resize(moved, size);
    if (memory == NULL) arena_over(arena);
    return memory;
}

void dur__arena_set_limit(dur_arena *arena, size_t bytes, void (*over)(void *data), void *data) {
    arena->limit = bytes > 0 ? bytes : SIZE_MAX;
    arena->over = over;
    arena->over_data = data;
}

size_t dur__arena_held(const dur_arena *arena) {
    return arena->held;
}

size_t dur_arena_bytes(const dur_arena *arena) {
    return arena->bytes;
}

#ifdef DURITE_DEBUG_ARENA

enum { ARENA_FIRST_BYTES = sizeof(dur_arena) };

static dur_arena *arena_make(void *memory) {
    dur_arena *arena = memory;
    *arena = (dur_arena){ .limit = SIZE_MAX, .held = sizeof(*arena) };
    return arena;
}

void dur_arena_reset(dur_arena *arena) {
    for (size_t i = 0; i < arena->object_count; i++)
        dur__free(arena->objects[i]);
    arena->object_count = 0;
    arena->bytes = 0;
    arena->held = sizeof(*arena);
}

void dur_arena_free(dur_arena *arena) {
    if (arena == NULL) return;
    dur_arena_reset(arena);
    dur__free(arena->objects);
    dur__free(arena);
}

static void *arena_take(dur_arena *arena, size_t size, size_t align) {
    (void)align;
    if (size > arena->limit || arena->bytes > arena->limit - size) arena_over(arena);
    if (arena->object_count == arena->object_room) {
        size_t room = arena->object_room > 0 ? arena->object_room * 2 : 16;
        void **moved = arena_memory(arena, arena->objects, room * sizeof(*moved));
        arena->objects = moved;
        arena->object_room = room;
    }
    void *object = arena_memory(arena, NULL, size);
    arena->objects[arena->object_count++] = object;
    arena->bytes += size;
    arena->held += size;
    return object;
}

#else

static void arena_first(dur_arena *arena) {
    arena->at = arena->first;
    arena->end = (char *)arena + ARENA_CHUNK_FIRST;
}

enum { ARENA_FIRST_BYTES = ARENA_CHUNK_FIRST };

static dur_arena *arena_make(void *memory) {
    _Static_assert(sizeof(dur_arena) <= ARENA_CHUNK_FIRST / 2, "the first chunk is for users");
    dur_arena *arena = memory;
    *arena = (dur_arena){ .limit = SIZE_MAX, .held = ARENA_CHUNK_FIRST, .chunk_next = ARENA_CHUNK_FIRST * 2 };
    arena_first(arena);
    return arena;
}

static void chunks_free(dur_arena *arena, arena_chunk *chunk) {
    while (chunk != NULL) {
        arena_chunk *older = chunk->next;
        arena->held -= chunk->size;
        dur__free(chunk);
        chunk = older;
    }
}

void dur_arena_reset(dur_arena *arena) {
    chunks_free(arena, arena->large);
    arena->large = NULL;
    arena_chunk *keep = arena->chunks; /* the largest: chunks only grow */
    if (keep != NULL) {
        chunks_free(arena, keep->next);
        keep->next = NULL;
        arena->at = keep->data;
        arena->end = (char *)keep + keep->size;
    } else {
        arena_first(arena);
    }
    arena->bytes = 0;
}

void dur_arena_free(dur_arena *arena) {
    if (arena == NULL) return;
    chunks_free(arena, arena->large);
    chunks_free(arena, arena->chunks);
    dur__free(arena);
}

static arena_chunk *chunk_new(dur_arena *arena, size_t size) {
    arena_chunk *chunk = arena_memory(arena, NULL, size);
    chunk->size = size;
    arena->held += size;
    return chunk;
}

static void *arena_take_slow(dur_arena *arena, size_t size) {
    if (size > SIZE_MAX / 2) arena_over(arena);
    if (size > ARENA_LARGE) {
        arena_chunk *chunk = chunk_new(arena, sizeof(*chunk) + size);
        chunk->next = arena->large;
        arena->large = chunk;
        arena->bytes += size;
        return chunk->data;
    }
    while (arena->chunk_next < size + sizeof(arena_chunk)) /* ends: LARGE is far below CHUNK_MAX */
        arena->chunk_next *= 2;
    arena_chunk *chunk = chunk_new(arena, arena->chunk_next);
    if (arena->chunk_next < ARENA_CHUNK_MAX) arena->chunk_next *= 2;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->at = chunk->data + size;
    arena->end = (char *)chunk + chunk->size;
    arena->bytes += size;
    return chunk->data;
}

static void *arena_take(dur_arena *arena, size_t size, size_t align) {
    if (size > arena->limit || arena->bytes > arena->limit - size) arena_over(arena);
    size_t pad = (size_t)(-(uintptr_t)arena->at) & (align - 1);
    size_t room = (size_t)(arena->end - arena->at);
    if (pad > room || size > room - pad) return arena_take_slow(arena, size);
    char *object = arena->at + pad;
    arena->at = object + size;
    arena->bytes += size;
    return object;
}

#endif

dur_arena *dur_arena_new(void) {
    void *memory = dur__get(ARENA_FIRST_BYTES);
    return memory != NULL ? arena_make(memory) : NULL;
}

dur_arena *dur__arena_xnew(void) {
    return arena_make(dur__xmalloc(ARENA_FIRST_BYTES));
}

void *dur_arena_alloc(dur_arena *arena, size_t size) {
    return arena_take(arena, size > 0 ? size : 1, ARENA_ALIGN); /* each object has an address of its own */
}

void *dur_arena_zalloc(dur_arena *arena, size_t size) {
    return memset(dur_arena_alloc(arena, size), 0, size);
}

char *dur_arena_memdup(dur_arena *arena, const void *data, size_t size) {
    if (size == SIZE_MAX) arena_over(arena);
    char *copy = arena_take(arena, size + 1, 1);
    if (size > 0) memcpy(copy, data, size);
    copy[size] = '\0';
    return copy;
}

char *dur_arena_strdup(dur_arena *arena, const char *text) {
    return text == NULL ? NULL : dur_arena_memdup(arena, text, strlen(text));
}

char *dur_arena_vformat(dur_arena *arena, const char *format, va_list args) {
    char local[256]; /* most texts are short: format once, copy */
    va_list again;
    va_copy(again, args);
    int size = vsnprintf(local, sizeof(local), format, args);
    char *text;
    if (size < 0) { /* a conversion that cannot be done (%ls); no text rather than a broken one */
        text = dur_arena_memdup(arena, "", 0);
    } else if ((size_t)size < sizeof(local)) {
        text = dur_arena_memdup(arena, local, (size_t)size);
    } else {
        text = arena_take(arena, (size_t)size + 1, 1);
        vsnprintf(text, (size_t)size + 1, format, again);
    }
    va_end(again);
    return text;
}

char *dur_arena_format(dur_arena *arena, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = dur_arena_vformat(arena, format, args);
    va_end(args);
    return text;
}
