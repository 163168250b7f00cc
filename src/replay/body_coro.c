/* body_coro.c: a branch's code as a coroutine. */
#include "base/buf.h"
#include "replay/body.h"
#include <stdlib.h>

typedef struct coro_body {
    dur__body body;
    dur__coro *coro;
} coro_body;

static bool coro_resume(dur__body *body) {
    return dur__coro_resume(((coro_body *)body)->coro);
}
static void coro_suspend(dur__body *body) {
    dur__coro_yield(((coro_body *)body)->coro);
}
static size_t coro_touched(dur__body *body) {
    return dur__coro_touched(((coro_body *)body)->coro);
}

static void coro_drop(dur__body *body) {
    dur__coro_discard(((coro_body *)body)->coro);
    dur__free(body);
}

static const dur__body_methods methods = { coro_resume, coro_suspend, coro_drop, coro_touched };

dur__body *dur__body_coro_new(dur__stacks *stacks, size_t stack_bytes, const char *name, void (*entry)(void *),
                              void *arg) {
    coro_body *made = dur__zget(sizeof(*made));
    if (made == NULL) return NULL;
    made->body.methods = &methods;
    made->coro = dur__coro_new(stacks, stack_bytes, name, entry, arg);
    if (made->coro != NULL) return &made->body;
    dur__free(made);
    return NULL;
}
