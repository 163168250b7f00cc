/* body_coro.c: a branch's code as a coroutine. */
#include "base/buf.h"
#include "replay/body.h"
#include <stdlib.h>

enum { LOOK_EVERY = 64 };

typedef struct coro_body {
    dur__body body;
    dur__coro *coro;
    unsigned resumes, looked; /* how often it ran, and had run when the kernel was last asked */
    size_t touched;
} coro_body;

static bool coro_resume(dur__body *body) {
    ((coro_body *)body)->resumes++;
    return dur__coro_resume(((coro_body *)body)->coro);
}
static void coro_suspend(dur__body *body) {
    dur__coro_yield(((coro_body *)body)->coro);
}
/* A system call, and it is asked after every turn: a stack that has not grown in its first runs seldom does, so the
   answer is kept for as many runs as it took to get there, and for LOOK_EVERY at most. */
static size_t coro_touched(dur__body *body, bool exactly) {
    coro_body *self = (coro_body *)body;
    unsigned since = self->resumes - self->looked;
    if (!exactly && self->touched > 0 && since < LOOK_EVERY && since < self->looked + 1) return self->touched;
    self->looked = self->resumes;
    self->touched = dur__coro_high_water(self->coro);
    return self->touched;
}

static void coro_drop(dur__body *body) {
    dur__coro_discard(((coro_body *)body)->coro);
    free(body);
}

static const dur__body_methods methods = { coro_resume, coro_suspend, coro_drop, coro_touched };

dur__body *dur__body_coro_new(dur__stacks *stacks, size_t stack_bytes, const char *name, void (*entry)(void *),
                              void *arg) {
    dur__coro *coro = dur__coro_new(stacks, stack_bytes, name, entry, arg);
    if (coro == NULL) return NULL;
    coro_body *made = dur__xcalloc(1, sizeof(*made));
    made->body.methods = &methods;
    made->coro = coro;
    return &made->body;
}
