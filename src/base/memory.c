/*
 * memory.c: the library's allocator: malloc or the host's functions, counted and bounded.
 *
 * malloc tells the size of its blocks; before those of a host we keep it ourselves.
 */
#include "base/memory.h"
#include "base/assert.h"

#include <malloc.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { UNUSED, MALLOC, HOOKED };

#define HEAD alignof(max_align_t) /* before a host's block: its size */
_Static_assert(HEAD >= sizeof(size_t), "the size fits before the block");

static _Atomic int source;
static _Atomic size_t used_now;
static _Atomic size_t used_max = SIZE_MAX;
static struct {
    dur_memory_alloc_fn *alloc;
    dur_memory_resize_fn *resize;
    dur_memory_release_fn *release;
    void *data;
} hooks; /* written before source is HOOKED */

int dur_memory_hooks(dur_memory_alloc_fn *alloc, dur_memory_resize_fn *resize, dur_memory_release_fn *release,
                     void *data) {
    if (alloc == NULL || resize == NULL || release == NULL) return DUR_EINVAL;
    if (atomic_load(&source) != UNUSED) return DUR_ESTATE;
    hooks.alloc = alloc;
    hooks.resize = resize;
    hooks.release = release;
    hooks.data = data;
    atomic_store(&source, HOOKED);
    return DUR_OK;
}

void dur_memory_limit(size_t bytes) {
    atomic_store(&used_max, bytes > 0 ? bytes : SIZE_MAX);
}

size_t dur_memory_used(void) {
    return atomic_load(&used_now);
}

bool dur__memory_tight(void) {
    size_t max = atomic_load_explicit(&used_max, memory_order_relaxed);
    return max != SIZE_MAX && atomic_load_explicit(&used_now, memory_order_relaxed) >= max - max / 8;
}

static bool hooked(void) {
    int now = atomic_load_explicit(&source, memory_order_acquire);
    if (now != UNUSED) return now == HOOKED;
    atomic_compare_exchange_strong(&source, &now, MALLOC);
    return atomic_load(&source) == HOOKED;
}

/* Two threads may pass the cap together, by one block each. */
static bool fits(size_t size) {
    size_t max = atomic_load_explicit(&used_max, memory_order_relaxed);
    if (max == SIZE_MAX) return size <= SIZE_MAX / 2;
    size_t used = atomic_load_explicit(&used_now, memory_order_relaxed);
    return size <= max && used <= max - size;
}

static void count(size_t size) {
    atomic_fetch_add_explicit(&used_now, size, memory_order_relaxed);
}

static void uncount(size_t size) {
    atomic_fetch_sub_explicit(&used_now, size, memory_order_relaxed);
}

static size_t head_size(const void *memory) {
    size_t size;
    memcpy(&size, (const char *)memory - HEAD, sizeof(size));
    return size;
}

size_t dur__memory_size(void *memory) {
    size_t size;
    if (dur__kept_size(memory, &size)) return size;
    return hooked() ? head_size(memory) : malloc_usable_size(memory);
}

static void *hooked_alloc(size_t size) {
    char *block = hooks.alloc(size + HEAD, hooks.data);
    if (block == NULL) return NULL;
    memcpy(block, &size, sizeof(size));
    count(size + HEAD);
    return block + HEAD;
}

void *dur_memory_alloc(size_t size) {
    if (size == 0) size = 1;
    if (!fits(size)) return NULL;
    if (hooked()) return hooked_alloc(size);
    void *memory = malloc(size);
    if (memory != NULL) count(malloc_usable_size(memory));
    return memory;
}

void *dur_memory_zalloc(size_t size) {
    if (size == 0) size = 1;
    if (!fits(size)) return NULL;
    if (hooked()) {
        void *memory = hooked_alloc(size);
        return memory != NULL ? memset(memory, 0, size) : NULL;
    }
    void *memory = calloc(1, size);
    if (memory != NULL) count(malloc_usable_size(memory));
    return memory;
}

/* Out of a reserve, into the allocator's. */
static void *move_kept(void *memory, size_t old, size_t size) {
    void *moved = dur_memory_alloc(size);
    if (moved == NULL) return NULL;
    memcpy(moved, memory, old < size ? old : size);
    dur_free(memory);
    return moved;
}

static void *hooked_resize(void *memory, size_t size) {
    size_t old = head_size(memory);
    char *block = hooks.resize((char *)memory - HEAD, size + HEAD, hooks.data);
    if (block == NULL) return NULL;
    memcpy(block, &size, sizeof(size));
    count(size);
    uncount(old);
    return block + HEAD;
}

void *dur_memory_resize(void *memory, size_t size) {
    size_t old;
    if (memory == NULL) return dur_memory_alloc(size);
    if (size == 0) size = 1;
    if (!fits(size)) return NULL; /* both exist for a moment */
    if (dur__kept_size(memory, &old)) return move_kept(memory, old, size);
    if (hooked()) return hooked_resize(memory, size);
    old = malloc_usable_size(memory);
    void *moved = realloc(memory, size);
    if (moved == NULL) return NULL;
    count(malloc_usable_size(moved));
    uncount(old);
    return moved;
}

void dur_free(void *memory) {
    if (memory == NULL || dur__kept_free(memory)) return;
    if (hooked()) {
        uncount(head_size(memory) + HEAD);
        hooks.release((char *)memory - HEAD, hooks.data);
        return;
    }
    uncount(malloc_usable_size(memory));
    free(memory);
}
