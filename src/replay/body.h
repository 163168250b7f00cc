/*
 * body.h: how a branch's code is run: started, resumed, dropped.
 *
 * The engine knows only this interface.  The coroutine (body_coro.c) is one implementation; a binding can drive a
 * generator or an async function of another language with the same engine.
 */
#ifndef DURITE_REPLAY_BODY_H
#define DURITE_REPLAY_BODY_H

#include "coro/coro.h"

typedef struct dur__body dur__body;

typedef struct dur__body_methods {
    bool (*resume)(dur__body *body);    /* start or go on, until it suspends; false: the code has returned */
    void (*suspend)(dur__body *body);   /* called from inside: back to whoever resumed */
    void (*drop)(dur__body *body);      /* end it wherever it stands; its frames are not unwound */
    size_t (*touched)(dur__body *body); /* bytes of stack ever used, as of a recent look */
} dur__body_methods;

struct dur__body {
    const dur__body_methods *methods;
};

/* entry(arg) on a stack of its own.  NULL: no stack is to be had. */
dur__body *dur__body_coro_new(dur__stacks *stacks, size_t stack_bytes, const char *name, void (*entry)(void *),
                              void *arg);

#endif
