/*
 * fork.c: knowing that this is a forked child, and what must be done there at once.
 *
 * One pthread_atfork for the whole process, registered at first use.  The registry's lock is held over the fork, so
 * that the child never sees half an entry; the calls in the child run without it and may remove themselves.
 */
#include "base/assert.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/thread.h"

#include <stdlib.h>

typedef struct fork_call {
    dur__link link;
    void (*fn)(void *);
    void *arg;
} fork_call;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint64_t serial; /* 0: not yet registered */
static dur__mutex lock = DUR__MUTEX_INIT;
static dur__link calls = { &calls, &calls };

static void fork_prepare(void) {
    dur__mutex_lock(&lock);
}

static void fork_parent(void) {
    dur__mutex_unlock(&lock);
}

static void fork_child(void) {
    dur__mutex_unlock(&lock);
    atomic_fetch_add(&serial, 1);
    DUR__LIST_EACH_SAFE(&calls, at, after) {
        fork_call *call = DUR__CONTAINER(at, fork_call, link);
        call->fn(call->arg);
    }
}

static void fork_register(void) {
    DUR_ASSERT(pthread_atfork(fork_prepare, fork_parent, fork_child) == 0);
    atomic_store(&serial, 1);
}

uint64_t dur_process_serial(void) {
    uint64_t now = atomic_load_explicit(&serial, memory_order_relaxed);
    if (now != 0) return now;
    pthread_once(&once, fork_register);
    return atomic_load(&serial);
}

void dur_at_fork_child(void (*fn)(void *), void *arg) {
    dur__process_serial();
    if (fn == NULL) return;
    fork_call *call = dur__xmalloc(sizeof(*call));
    *call = (fork_call){ .fn = fn, .arg = arg };
    dur__mutex_lock(&lock);
    dur__list_push(&calls, &call->link);
    dur__mutex_unlock(&lock);
}

void dur_at_fork_remove(void (*fn)(void *), void *arg) {
    fork_call *found = NULL;
    dur__mutex_lock(&lock);
    DUR__LIST_EACH(&calls, at) {
        fork_call *call = DUR__CONTAINER(at, fork_call, link);
        if (call->fn != fn || call->arg != arg) continue;
        found = call;
        dur__list_unlink(at);
        break;
    }
    dur__mutex_unlock(&lock);
    dur__free(found);
}
