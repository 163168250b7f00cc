/*
 * coro_internal.h: what coro.c, stack.c and the two ways to switch share.
 *
 * A dur__coro is a stack and, while in use, what runs on it.  It goes back to the pool as a whole.
 */
#ifndef DURITE_CORO_INTERNAL_H
#define DURITE_CORO_INTERNAL_H

#include "base/list.h"
#include "coro/coro.h"
#include "coro/cxx.h"

#include <stdint.h>

#if defined(__SANITIZE_ADDRESS__)
#define DUR__CORO_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#define DUR__CORO_TSAN 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DUR__CORO_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define DUR__CORO_TSAN 1
#endif
#endif
/* Also in a library that is not instrumented: the program that has linked it may be. */
#ifndef DUR__CORO_TSAN
#define DUR__CORO_TELLS_ASAN 1
#endif

enum {
    DUR__STACK_GUARD = 64 * 1024, /* a large frame jumps over one page */
    DUR__STACK_CANARY_WORDS = 8
};

typedef struct dur__slab dur__slab;

typedef enum dur__coro_state {
    DUR__CORO_IDLE,
    DUR__CORO_NEW,
    DUR__CORO_RUNS,
    DUR__CORO_WAITS,
    DUR__CORO_DONE
} dur__coro_state;

struct dur__coro {
    void *sp;          /* suspended: where to go on */
    void *caller_sp;   /* running: where whoever resumed goes on */
    dur__coro *caller; /* the coroutine that resumed this one, or NULL */
    dur__coro_state state;
    unsigned valgrind_id;
    void (*fn)(void *);
    void *arg;
    const char *name;
    char *low; /* the stack is [low, low + size) */
    size_t size;
    const char *guard; /* DUR__STACK_GUARD bytes that nobody can touch, directly below what may be used; NULL: none */
    dur__slab *slab;   /* NULL: a mapping of its own */
    dur__stacks *stacks;
    unsigned runs, looked; /* how often anything ran on the stack, and had run when the kernel was last asked */
    size_t touched;        /* what it said; both outlive the user: so do the pages */
    dur__link link;        /* idle: in the pool's list */
    dur__cxx cxx;          /* its exceptions while it waits; those of its caller while it runs */
    const void *thread;    /* who resumed it first, for the check that nobody else does */
#ifdef DUR__CORO_TELLS_ASAN
    void *fake_stack;
    const void *caller_low;
    size_t caller_size;
    bool dying;
#endif
#ifdef DUR__CORO_TSAN
    void *fiber;
    void *caller_fiber;
#endif
};

/* stack.c */
dur__coro *dur__stack_take(dur__stacks *stacks, size_t bytes); /* NULL: none to be had */
void dur__stack_give(dur__coro *coro);
/* How many stacks of the process may have a guard of their own before slabs are used; for tests. */
void dur__stacks_guarded_max(dur__stacks *stacks, size_t count);

/* A stack in a slab has no guard but space below it which must stay as the kernel gave it: zero.  Reading it costs no
   memory (the kernel maps its page of zeros), where a written mark would cost a page for each stack. */
static inline bool dur__stack_canary_whole(const dur__coro *coro) {
    if (coro->slab == NULL) return true;
    const uint64_t *words = (const uint64_t *)(const void *)coro->low - DUR__STACK_CANARY_WORDS;
    uint64_t any = 0;
    for (int i = 0; i < DUR__STACK_CANARY_WORDS; i++)
        any |= words[i];
    return any == 0;
}

/* One of coro_switch_*.S, coro_ucontext.c.  prepare: the sp of a stack on which entry(arg) will run and not return;
   low and top are aligned to pages.  switch: leave here, remember where in *save, go on at load. */
void *dur__coro_prepare(void *low, void *top, void (*entry)(void *arg), void *arg);
void dur__coro_switch(void **save, void *load);

#endif
