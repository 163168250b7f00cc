/*
 * coro_ucontext.c: the portable way to switch, where we have no assembler (or with DURITE_CORO_UCONTEXT).
 *
 * The context of a suspended stack lies on that stack.  swapcontext also exchanges the signal mask, at the price of a
 * system call; nobody here changes it, so that nobody can tell.
 */
#include "coro/coro_internal.h"
#include "coro/coro_switch.h"

#ifdef DUR__SWITCH_UCONTEXT

#include "base/assert.h"

#include <fenv.h>
#include <string.h>
#include <ucontext.h>

typedef struct start {
    void (*entry)(void *);
    void *arg;
} start;

/* makecontext passes ints only: a pointer comes as two halves. */
static void begin(unsigned high, unsigned low) {
    const start *self = (const start *)(uintptr_t)((uint64_t)high << 32 | low);
    self->entry(self->arg);
    dur__assert_failed(__FILE__, __LINE__, "coroutine: entry returned");
}

void *dur__coro_prepare(void *low, void *top, void (*entry)(void *arg), void *arg) {
    size_t align = 64;
    char *at = (char *)top - (sizeof(start) + align - 1) / align * align;
    start *self = (start *)(void *)at;
    *self = (start){ entry, arg };
    at -= (sizeof(ucontext_t) + align - 1) / align * align;
    ucontext_t *context = (ucontext_t *)(void *)at;
    DUR_ASSERT(getcontext(context) == 0);
    context->uc_link = NULL;
    context->uc_stack.ss_sp = low;
    context->uc_stack.ss_size = (size_t)(at - (char *)low);
    uint64_t address = (uint64_t)(uintptr_t)self;
    makecontext(context, (void (*)(void))begin, 2, (unsigned)(address >> 32), (unsigned)address);
    return context;
}

void dur__coro_switch(void **save, void *load) {
    ucontext_t here;
    fenv_t modes; /* not every system's context has them */
    fegetenv(&modes);
    /* cppcheck-suppress autoVariables ; it is used while this frame is suspended, and only then */
    *save = &here;
    DUR_ASSERT(swapcontext(&here, load) == 0);
    fesetenv(&modes);
}

#else

typedef int dur__coro_ucontext_unused; /* an empty file is no C */

#endif
