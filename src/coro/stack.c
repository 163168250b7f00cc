/*
 * stack.c: where coroutines' stacks come from and go to.
 *
 * The usual stack is a mapping of its own with a guard below it: two of the 65,530 mappings that the kernel allows a
 * process.  When the process has STACKS_GUARDED_MAX of those, further stacks come from slabs: many stacks in one
 * mapping with one guard.  In a slab each stack has unused space below it instead of a guard: who runs over the end
 * damages nobody at first, and is found out at the next switch (dur__stack_canary_whole).
 *
 * Stacks are pooled by size, last in, first out.  The first idle ones stay as they are; beyond STACKS_WARM only their
 * first two pages are kept, and beyond STACKS_TEPID nothing, so that an idle pool is cheap.
 */
#include "base/assert.h"
#include "base/buf.h"
#include "base/pages.h"
#include "coro/coro_internal.h"

#include <stdatomic.h>
#include <stdlib.h>

#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif
#ifndef VALGRIND_STACK_REGISTER
#define VALGRIND_STACK_REGISTER(low, high) 0
#define VALGRIND_STACK_DEREGISTER(id) ((void)(id))
#endif

enum {
    STACKS_GUARDED_MAX = 10000,
    STACKS_WARM = 64,
    LOOK_EVERY = 64, /* runs of a stack */
    STACKS_TEPID = 1024,
    STACK_BYTES_MIN = 16 * 1024,
    SLAB_STACKS_MAX = 64,
    SLAB_STACKS_MIN = 4
};
#if SIZE_MAX > UINT32_MAX
#define STACK_BYTES_MAX ((size_t)1 << 32)
#else
#define STACK_BYTES_MAX ((size_t)1 << 28) /* the smallest slab must be a number of 32 bits */
#endif
#define SLAB_BYTES ((size_t)32 << 20) /* about */

struct dur__slab {
    dur__link link; /* in its class */
    char *map;
    size_t map_size;
    size_t count;
    size_t idle;
    dur__coro *stacks[];
};

typedef struct stack_class {
    size_t size;
    dur__link idle_guarded; /* newest last */
    dur__link idle_slab;
    dur__link slabs;
    size_t idle;
} stack_class;

struct dur__stacks {
    stack_class **classes; /* few: one for each size in use */
    size_t class_count;
    size_t in_use;
    size_t guarded_max;
};

static _Atomic size_t guarded_now; /* of the whole process: the kernel's limit is, too */

/* ---- mappings ---- */

/* All but the uppermost `keep` bytes. */
static void stack_forget(dur__coro *coro, size_t keep) {
    if (keep >= coro->size) return;
    dur__pages_forget(coro->low, coro->size - keep);
    coro->runs = coro->looked = 0;
    coro->touched = 0;
}

static dur__coro *coro_make(dur__stacks *stacks, char *low, size_t size) {
    dur__coro *coro = dur__zget(sizeof(*coro));
    if (coro == NULL) return NULL;
    coro->stacks = stacks;
    coro->low = low;
    coro->size = size;
    coro->valgrind_id = (unsigned)VALGRIND_STACK_REGISTER(low, low + size);
    return coro;
}

static void coro_unmake(dur__coro *coro) {
    if (coro == NULL) return;
    VALGRIND_STACK_DEREGISTER(coro->valgrind_id);
    dur__free(coro);
}

static dur__coro *guarded_new(dur__stacks *stacks, size_t size) {
    if (atomic_fetch_add(&guarded_now, 1) >= stacks->guarded_max) {
        atomic_fetch_sub(&guarded_now, 1);
        return NULL;
    }
    char *map = dur__pages_reserve(DUR__STACK_GUARD + size, DUR__STACK_GUARD);
    dur__coro *coro = map != NULL ? coro_make(stacks, map + DUR__STACK_GUARD, size) : NULL;
    if (coro != NULL) {
        coro->guard = map;
        return coro;
    }
    if (map != NULL) dur__pages_free(map, DUR__STACK_GUARD + size);
    atomic_fetch_sub(&guarded_now, 1);
    return NULL;
}

static void guarded_free(dur__coro *coro) {
    dur__pages_free(coro->low - DUR__STACK_GUARD, DUR__STACK_GUARD + coro->size);
    atomic_fetch_sub(&guarded_now, 1);
    coro_unmake(coro);
}

static void slab_free(dur__slab *slab) {
    dur__list_unlink(&slab->link);
    dur__pages_free(slab->map, slab->map_size);
    for (size_t i = 0; i < slab->count; i++)
        coro_unmake(slab->stacks[i]);
    dur__free(slab);
}

/* All its stacks are idle at first. */
static bool slab_new(dur__stacks *stacks, stack_class *class) {
    size_t slot = DUR__STACK_GUARD + class->size;
    size_t count = SLAB_BYTES / slot;
    if (count > SLAB_STACKS_MAX) count = SLAB_STACKS_MAX;
    if (count < SLAB_STACKS_MIN) count = SLAB_STACKS_MIN;
    DUR_ASSERT(slot <= (SIZE_MAX - DUR__STACK_GUARD) / count);
    dur__slab *slab = dur__zget(sizeof(*slab) + count * sizeof(*slab->stacks));
    if (slab == NULL) return false;
    slab->map_size = DUR__STACK_GUARD + count * slot;
    slab->map = dur__pages_reserve(slab->map_size, DUR__STACK_GUARD);
    if (slab->map == NULL) {
        dur__free(slab);
        return false;
    }
    dur__list_push(&class->slabs, &slab->link);
    for (; slab->count < count; slab->count++) {
        char *low = slab->map + DUR__STACK_GUARD + slab->count * slot + DUR__STACK_GUARD;
        dur__coro *coro = coro_make(stacks, low, class->size);
        if (coro == NULL) {
            slab_free(slab);
            return false;
        }
        slab->stacks[slab->count] = coro;
        coro->slab = slab;
        if (slab->count == 0) coro->guard = slab->map;
    }
    slab->idle = count;
    class->idle += count;
    for (size_t i = count; i > 0; i--) /* the first is taken first */
        dur__list_push(&class->idle_slab, &slab->stacks[i - 1]->link);
    return true;
}

/* ---- the pool ---- */

static stack_class *class_get(dur__stacks *stacks, size_t bytes) {
    size_t page = dur__page_size();
    if (bytes < STACK_BYTES_MIN) bytes = STACK_BYTES_MIN;
    if (bytes > STACK_BYTES_MAX) return NULL;
    bytes = (bytes + page - 1) / page * page;
    for (size_t i = 0; i < stacks->class_count; i++)
        if (stacks->classes[i]->size == bytes) return stacks->classes[i];
    stack_class **moved = dur__resize(stacks->classes, (stacks->class_count + 1) * sizeof(*moved));
    if (moved == NULL) return NULL;
    stacks->classes = moved;
    stack_class *class = dur__zget(sizeof(*class));
    if (class == NULL) return NULL;
    class->size = bytes;
    dur__list_init(&class->idle_guarded);
    dur__list_init(&class->idle_slab);
    dur__list_init(&class->slabs);
    stacks->classes[stacks->class_count++] = class;
    return class;
}

static dur__coro *idle_take(stack_class *class, dur__link *idle) {
    if (dur__list_empty(idle)) return NULL;
    dur__coro *coro = DUR__CONTAINER(idle->prev, dur__coro, link);
    dur__list_unlink(&coro->link);
    class->idle--;
    if (coro->slab != NULL) coro->slab->idle--;
    return coro;
}

dur__coro *dur__stack_take(dur__stacks *stacks, size_t bytes) {
    stack_class *class = class_get(stacks, bytes);
    if (class == NULL) return NULL;
    dur__coro *coro = idle_take(class, &class->idle_guarded);
    if (coro == NULL) coro = idle_take(class, &class->idle_slab); /* before making a new one of either kind */
    if (coro == NULL) coro = guarded_new(stacks, class->size);
    if (coro == NULL && slab_new(stacks, class)) coro = idle_take(class, &class->idle_slab);
    if (coro != NULL) stacks->in_use++;
    return coro;
}

void dur__stack_give(dur__coro *coro) {
    dur__stacks *stacks = coro->stacks;
    stack_class *class = class_get(stacks, coro->size);
    size_t keep = class->idle < STACKS_WARM ? coro->size : class->idle < STACKS_TEPID ? 2 * dur__page_size() : 0;
    stack_forget(coro, keep);
    DUR_ASSERT(stacks->in_use > 0);
    stacks->in_use--;
    coro->state = DUR__CORO_IDLE;
    dur__list_push(coro->slab != NULL ? &class->idle_slab : &class->idle_guarded, &coro->link);
    class->idle++;
    if (coro->slab != NULL) coro->slab->idle++;
}

dur__stacks *dur__stacks_new(void) {
    dur__stacks *stacks = dur__zget(sizeof(*stacks));
    if (stacks == NULL) return NULL;
    stacks->guarded_max = STACKS_GUARDED_MAX;
    dur__cxx_find(); /* handlers are known by now, and so is what they are written in */
    return stacks;
}

void dur__stacks_guarded_max(dur__stacks *stacks, size_t count) {
    stacks->guarded_max = count;
}

size_t dur__stacks_in_use(const dur__stacks *stacks) {
    return stacks->in_use;
}

/* Oldest first.  A stack of a slab can only go with its slab; until then it gives its memory. */
static void class_trim(stack_class *class, size_t *keep) {
    size_t kept = class->idle < *keep ? class->idle : *keep;
    *keep -= kept;
    size_t excess = class->idle - kept;
    while (excess > 0 && !dur__list_empty(&class->idle_guarded)) {
        dur__coro *coro = DUR__CONTAINER(dur__list_pop(&class->idle_guarded), dur__coro, link);
        class->idle--;
        excess--;
        guarded_free(coro);
    }
    DUR__LIST_EACH(&class->idle_slab, at) {
        if (excess == 0) break;
        dur__coro *coro = DUR__CONTAINER(at, dur__coro, link);
        stack_forget(coro, 0);
        excess--;
    }
    DUR__LIST_EACH_SAFE(&class->slabs, at, after) {
        dur__slab *slab = DUR__CONTAINER(at, dur__slab, link);
        if (slab->idle < slab->count || class->idle - slab->count < kept) continue;
        for (size_t i = 0; i < slab->count; i++)
            dur__list_unlink(&slab->stacks[i]->link);
        class->idle -= slab->count;
        slab_free(slab);
    }
}

void dur__stacks_trim(dur__stacks *stacks, size_t keep) {
    for (size_t i = 0; i < stacks->class_count; i++)
        class_trim(stacks->classes[i], &keep);
}

void dur__stacks_free(dur__stacks *stacks) {
    if (stacks == NULL) return;
    DUR_ASSERT(stacks->in_use == 0);
    dur__stacks_trim(stacks, 0);
    for (size_t i = 0; i < stacks->class_count; i++) {
        DUR_ASSERT(stacks->classes[i]->idle == 0);
        dur__free(stacks->classes[i]);
    }
    dur__free(stacks->classes);
    dur__free(stacks);
}

/* ---- looking ---- */

size_t dur__coro_stack_bytes(const dur__coro *coro) {
    return coro->size;
}

size_t dur__coro_high_water(const dur__coro *coro) {
    return coro->size - dur__pages_untouched(coro->low, coro->size);
}

/* A stack that has not grown in its first runs seldom does, so the answer is kept for as many runs as it took to get
   there, and for LOOK_EVERY at most. */
size_t dur__coro_touched(dur__coro *coro) {
    unsigned since = coro->runs - coro->looked;
    if (coro->touched > 0 && since < LOOK_EVERY && since < coro->looked + 1) return coro->touched;
    coro->looked = coro->runs;
    coro->touched = dur__coro_high_water(coro);
    return coro->touched;
}
