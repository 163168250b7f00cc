/*
 * coro.h: a second stack to run on, and switching to and fro.  Five functions, no scheduler.
 *
 * A coroutine runs on the thread that resumes it; once started it must always be resumed by the same thread.
 * Discarding a suspended coroutine drops its frames without unwinding and gives the stack back to the pool; that is
 * the everyday case here.  errno and the floating-point control words are kept over a switch; the signal mask is not
 * touched.
 */
#ifndef DURITE_CORO_H
#define DURITE_CORO_H

#include <stdbool.h>
#include <stddef.h>

typedef struct dur__coro dur__coro;
typedef struct dur__stacks dur__stacks;

/* A pool of guarded stacks, used by one thread at a time. */
dur__stacks *dur__stacks_new(void);
void dur__stacks_free(dur__stacks *stacks); /* all coroutines on it must be gone */
size_t dur__stacks_in_use(const dur__stacks *stacks);
/* Give idle stacks' memory back to the system, keeping at most `keep` of them. */
void dur__stacks_trim(dur__stacks *stacks, size_t keep);

/* A coroutine that will run fn(arg) when first resumed.  stack_bytes is rounded up to pages, at least 16 KiB.  name
   appears in the crash report and must outlive it.  NULL: no stack is to be had (memory, the kernel's map limit). */
dur__coro *dur__coro_new(dur__stacks *stacks, size_t stack_bytes, const char *name, void (*fn)(void *), void *arg);
/* Run it until it yields or fn returns; false when fn has returned (then only discard is allowed). */
bool dur__coro_resume(dur__coro *coro);
/* From inside: back to whoever resumed. */
void dur__coro_yield(dur__coro *coro);
bool dur__coro_done(const dur__coro *coro);
/* End it, suspended or done. */
void dur__coro_discard(dur__coro *coro);

/* Bytes of the stack that were ever touched (rounded to pages; stacks are pooled, so pages that an earlier user went
   down to may count), and the stack's size.  high_water is a system call: for reports.  touched is what it said not
   long ago: for every turn. */
size_t dur__coro_high_water(const dur__coro *coro);
size_t dur__coro_touched(dur__coro *coro);
size_t dur__coro_stack_bytes(const dur__coro *coro);
/* The coroutine that the calling thread is inside, or NULL. */
dur__coro *dur__coro_current(void);
/* For the crash report: the coroutine whose guard contains this address, its name and stack size. */
bool dur__coro_guard_owner(const void *address, const char **name, size_t *stack_bytes);

#endif
