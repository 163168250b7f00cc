/*
 * xalloc.c: the allocations that are covered, in the forms that our code uses.
 */
#include "base/assert.h"
#include "base/memory.h"

#include <stdint.h>
#include <string.h>

void *dur__xmalloc(size_t size) {
    return dur_memory_must(NULL, size);
}

void *dur__xcalloc(size_t count, size_t size) {
    DUR_ASSERT(size == 0 || count <= SIZE_MAX / 2 / size);
    return memset(dur_memory_must(NULL, count * size), 0, count * size);
}

void *dur__xrealloc(void *memory, size_t size) {
    return dur_memory_must(memory, size);
}

char *dur__strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = dur__get(size);
    return copy != NULL ? memcpy(copy, text, size) : NULL;
}

char *dur__xstrdup(const char *text) {
    if (text == NULL) return NULL;
    size_t size = strlen(text) + 1;
    return memcpy(dur__xmalloc(size), text, size);
}
