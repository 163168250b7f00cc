/*
 * assert.c: what happens when an invariant of ours is broken: the host's hook, or a line on standard error; then abort.
 */
#include "base/assert.h"

#include <durite/runtime.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef void assert_hook(const char *file, int line, const char *what);

static _Atomic(assert_hook *) hook_now;

void dur_assert_hook(void (*hook)(const char *file, int line, const char *what)) {
    atomic_store(&hook_now, hook);
}

void dur_assert_failed(const char *file, int line, const char *what) {
    assert_hook *hook = atomic_load(&hook_now);
    if (file == NULL) file = "?";
    if (what == NULL) what = "?";
    if (hook != NULL) {
        hook(file, line, what);
    } else {
        /* No stdio stream: its lock may be held by whoever broke. */
        char text[512];
        int size = snprintf(text, sizeof(text), "durite: %s:%d: broken invariant: %s\n", file, line, what);
        size_t count = size < 0 ? 0 : (size_t)size < sizeof(text) ? (size_t)size : sizeof(text) - 1;
        ssize_t written = write(STDERR_FILENO, text, count);
        (void)written; /* nobody left to tell */
    }
    abort();
}
