/*
 * coro.c: resume, yield and discard, and what sanitizers must be told about them.
 */
#include "coro/coro.h"
#include "base/assert.h"
#include "base/thread.h"
#include "coro/coro_internal.h"

#include <errno.h>
#include <stdio.h>

#ifdef DUR__CORO_TELLS_ASAN
/* They are there where the program is built with AddressSanitizer. */
extern void __sanitizer_start_switch_fiber(void **fake, const void *low, size_t size) __attribute__((weak));
extern void __sanitizer_finish_switch_fiber(void *fake, const void **low, size_t *size) __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *at, size_t size) __attribute__((weak));

static inline bool asan(void) {
    return __sanitizer_start_switch_fiber != NULL && __sanitizer_finish_switch_fiber != NULL &&
           __asan_unpoison_memory_region != NULL;
}
#endif
#ifdef DUR__CORO_TSAN
#include <sanitizer/tsan_interface.h>
#endif

static _Thread_local dur__coro *current;

/*
 * The annotations, one pair for each direction.  ASan: `start` on the stack that is left, `finish` on the one arrived
 * at; a stack that is left for good passes no place for its fake stack, which is freed then.  TSan: a fiber for each
 * coroutine, switched to right before we do; always inlined, because TSan counts calls and returns per fiber, and a
 * function that is entered on one and left on the other would upset it.
 */
#define ANNOTATION static inline __attribute__((always_inline)) void

#if defined(DUR__CORO_TELLS_ASAN)

ANNOTATION left_for_coro(dur__coro *coro, void **fake) {
    if (asan()) __sanitizer_start_switch_fiber(fake, coro->low, coro->size);
}
ANNOTATION back_from_coro(void *fake) {
    if (asan()) __sanitizer_finish_switch_fiber(fake, NULL, NULL);
}
ANNOTATION arrived_in_coro(dur__coro *coro) {
    if (asan()) __sanitizer_finish_switch_fiber(coro->fake_stack, &coro->caller_low, &coro->caller_size);
}
ANNOTATION leave_coro(dur__coro *coro, bool for_good) {
    if (asan())
        __sanitizer_start_switch_fiber(for_good ? NULL : &coro->fake_stack, coro->caller_low, coro->caller_size);
}

#elif defined(DUR__CORO_TSAN)

ANNOTATION left_for_coro(dur__coro *coro, void **fake) {
    (void)fake;
    coro->caller_fiber = __tsan_get_current_fiber();
    if (coro->fiber == NULL) coro->fiber = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(coro->fiber, 0);
}
ANNOTATION back_from_coro(void *fake) {
    (void)fake;
}
ANNOTATION arrived_in_coro(dur__coro *coro) {
    (void)coro;
}
ANNOTATION leave_coro(dur__coro *coro, bool for_good) {
    (void)for_good;
    __tsan_switch_to_fiber(coro->caller_fiber, 0);
}

#endif

static void coro_entry(void *arg) {
    dur__coro *coro = arg;
    arrived_in_coro(coro);
    coro->fn(coro->arg);
    coro->state = DUR__CORO_DONE;
    leave_coro(coro, true);
    dur__coro_switch(&coro->sp, coro->caller_sp);
    dur__assert_failed(__FILE__, __LINE__, "coroutine: resumed after its end");
}

dur__coro *dur__coro_new(dur__stacks *stacks, size_t stack_bytes, const char *name, void (*fn)(void *), void *arg) {
    dur__coro *coro = dur__stack_take(stacks, stack_bytes);
    if (coro == NULL) return NULL;
    coro->name = name;
    coro->fn = fn;
    coro->arg = arg;
    coro->caller = NULL;
    coro->thread = NULL;
    coro->cxx = (dur__cxx){ .caught = NULL };
    coro->state = DUR__CORO_NEW;
    coro->sp = dur__coro_prepare(coro->low, coro->low + coro->size, coro_entry, coro);
#ifdef DUR__CORO_TELLS_ASAN
    coro->fake_stack = NULL;
    coro->dying = false;
#endif
    return coro;
}

static _Noreturn void canary_broken(const dur__coro *coro) {
    static char what[256]; /* not on this stack; and we do not come back */
    snprintf(what, sizeof(what), "stack overflow in handler \"%s\" (stack %zu bytes)",
             coro->name != NULL ? coro->name : "", coro->size);
    dur__assert_failed(__FILE__, __LINE__, what);
}

/* To the coroutine, and back when it waits or has ended. */
static void coro_visit(dur__coro *coro) {
    int errno_kept = errno;
    void *fake = NULL;
    coro->caller = current;
    current = coro;
    dur__on_handlers_stack++;
    dur__cxx_swap(&coro->cxx);
    left_for_coro(coro, &fake);
    dur__coro_switch(&coro->caller_sp, coro->sp);
    back_from_coro(fake);
    dur__cxx_swap(&coro->cxx);
    dur__on_handlers_stack--;
    current = coro->caller;
    errno = errno_kept;
}

bool dur__coro_resume(dur__coro *coro) {
    DUR_ASSERT(coro->state == DUR__CORO_NEW || coro->state == DUR__CORO_WAITS);
    if (coro->state == DUR__CORO_NEW) coro->thread = &current;
    DUR_ASSERT(coro->thread == &current); /* the address of a thread's variable names the thread */
    coro->state = DUR__CORO_RUNS;
    coro->runs++;
    coro_visit(coro);
    if (!dur__stack_canary_whole(coro)) canary_broken(coro);
    return coro->state != DUR__CORO_DONE;
}

void dur__coro_yield(dur__coro *coro) {
    DUR_ASSERT(current == coro && coro->state == DUR__CORO_RUNS);
    int errno_kept = errno;
    coro->state = DUR__CORO_WAITS;
    leave_coro(coro, false);
    dur__coro_switch(&coro->sp, coro->caller_sp);
    arrived_in_coro(coro);
#ifdef DUR__CORO_TELLS_ASAN
    if (coro->dying) {
        leave_coro(coro, true);
        dur__coro_switch(&coro->sp, coro->caller_sp);
    }
#endif
    errno = errno_kept;
}

bool dur__coro_done(const dur__coro *coro) {
    return coro->state == DUR__CORO_DONE;
}

#ifdef DUR__CORO_TELLS_ASAN
/* ASan keeps a fake stack for it, which only the coroutine itself can give back, by leaving for good.  And frames that
   never return leave their red zones behind, for the next user of the stack to run into. */
static void asan_forget(dur__coro *coro) {
    if (coro->state == DUR__CORO_WAITS) {
        DUR_ASSERT(coro->thread == &current);
        coro->dying = true;
        coro_visit(coro);
    }
    char *deepest = (char *)coro->sp - 4096; /* the switch's own frames are below the saved sp */
    if (deepest < coro->low) deepest = coro->low;
    __asan_unpoison_memory_region(deepest, (size_t)(coro->low + coro->size - deepest));
}
#endif

void dur__coro_discard(dur__coro *coro) {
    if (coro == NULL) return;
    DUR_ASSERT(coro->state != DUR__CORO_RUNS && coro->state != DUR__CORO_IDLE);
    if (!dur__stack_canary_whole(coro)) canary_broken(coro);
    dur__cxx_drop(&coro->cxx);
#ifdef DUR__CORO_TELLS_ASAN
    if (asan()) asan_forget(coro);
#endif
#ifdef DUR__CORO_TSAN
    if (coro->fiber != NULL) __tsan_destroy_fiber(coro->fiber);
    coro->fiber = NULL;
#endif
    dur__stack_give(coro);
}

dur__coro *dur__coro_current(void) {
    return current;
}

/* Only the stacks that this thread is on can run into their guards. */
bool dur__coro_guard_owner(const void *address, const char **name, size_t *stack_bytes) {
    uintptr_t at = (uintptr_t)address;
    for (const dur__coro *coro = current; coro != NULL; coro = coro->caller) {
        uintptr_t guard = (uintptr_t)coro->guard;
        if (guard == 0 || at < guard || at - guard >= DUR__STACK_GUARD) continue;
        *name = coro->name != NULL ? coro->name : "";
        *stack_bytes = coro->size;
        return true;
    }
    return false;
}
