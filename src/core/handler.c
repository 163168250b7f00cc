/*
 * handler.c: which handler an instance needs, and which a node has.
 */
#include "base/buf.h"

#include <durite/sys/provider_methods.h>

const char *dur_handler_key(dur_arena *arena, const char *orchestration, const char *version) {
    bool any = version == NULL || version[0] == '\0' || strcmp(version, "0.0.0") == 0;
    return dur_arena_format(arena, "%s@%s", orchestration != NULL ? orchestration : "", any ? "" : version);
}

bool dur_handler_passes(const dur_handler_filter *filter, const char *handler) {
    if (filter == NULL) return true;
    if (filter->count == 0) return false;
    if (handler == NULL || handler[0] == '\0') return true;
    size_t low = 0, high = filter->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(filter->keys[middle], handler);
        if (order == 0) return true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}
