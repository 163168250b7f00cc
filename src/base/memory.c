/*
 * memory.c: malloc that asserts, for small things of our own, and the free() of what the library hands out.
 */
#include "base/assert.h"
#include "base/buf.h"

#include <durite/provider.h>
#include <stdlib.h>

void *dur__xmalloc(size_t size) {
    void *memory = malloc(size > 0 ? size : 1);
    DUR_ASSERT(memory != NULL);
    return memory;
}

void *dur__xcalloc(size_t count, size_t size) {
    bool none = count == 0 || size == 0;
    void *memory = calloc(none ? 1 : count, none ? 1 : size);
    DUR_ASSERT(memory != NULL);
    return memory;
}

void *dur__xrealloc(void *memory, size_t size) {
    void *moved = realloc(memory, size > 0 ? size : 1);
    DUR_ASSERT(moved != NULL);
    return moved;
}

char *dur__xstrdup(const char *text) {
    if (text == NULL) return NULL;
    size_t size = strlen(text) + 1;
    return memcpy(dur__xmalloc(size), text, size);
}

void dur_free(void *memory) {
    free(memory);
}
