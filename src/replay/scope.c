/*
 * scope.c: memory of an execution: regions, scopes, and what the public calls allocate.
 *
 * Everything that a handler sees lies in a region: the execution's, or that of the scope its branch is in.  The sum of
 * all regions is held against the arena limit; over it the execution breaks with DUR_ELIMIT.
 */
#include "replay/engine.h"
#include <stdio.h>
#include <stdlib.h>

dur__region *dur__region_new(void) {
    dur__region *region = dur__zget(sizeof(*region));
    if (region == NULL) return NULL;
    region->refs = 1;
    region->arena = dur_arena_new();
    if (region->arena != NULL) return region;
    dur__free(region);
    return NULL;
}

dur_arena *dur__passing(dur__exec *exec) {
    return exec->replaying ? exec->group.arena : exec->turn_arena;
}

void dur__region_unref(dur__exec *exec, dur__region *region) {
    DUR_ASSERT(region->refs > 0);
    if (--region->refs > 0) return;
    exec->bytes -= region->bytes;
    dur_arena_free(region->arena);
    dur__free(region);
}

void *dur__scope_alloc(dur_scope *scope, size_t size) {
    dur__exec *exec = scope->exec;
    uint64_t max = exec->options.limits.arena_bytes_max;
    if (max != 0 && (size > max || exec->bytes > max - size)) {
        dur__break(exec, DUR_ELIMIT,
                   "the execution needs more than its arena limit of %llu bytes (%zu in use, %zu asked for)",
                   (unsigned long long)max, exec->bytes, size);
        dur__branch_leave(exec); /* from here on the engine only needs a little to get out */
    }
    scope->region->bytes += size;
    exec->bytes += size;
    return dur_arena_zalloc(scope->region->arena, size);
}

char *dur__scope_text(dur_scope *scope, const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = dur__scope_alloc(scope, size);
    memcpy(copy, text, size);
    return copy;
}

char *dur__scope_vformat(dur_scope *scope, const char *format, va_list args) {
    va_list again;
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (size < 0) size = 0;
    char *text = dur__scope_alloc(scope, (size_t)size + 1);
    vsnprintf(text, (size_t)size + 1, format, args);
    return text;
}

/* Another branch may wait for a future of this scope: it runs before the group ends, and looks at it then. */
static void region_bury(dur__exec *exec, dur__region *region) {
    DUR_ASSERT(exec->grave_count < exec->grave_room);
    exec->graves[exec->grave_count++] = region;
}

void dur__graveyard_clear(dur__exec *exec) {
    while (exec->grave_count > 0)
        dur__region_unref(exec, exec->graves[--exec->grave_count]);
}

void dur__scope_close(dur_scope *scope) {
    dur__exec *exec = scope->exec;
    bool waited = false;
    DUR__LIST_EACH(&scope->futures, at)
    waited = waited || !dur__list_empty(&DUR__CONTAINER(at, dur_future, owned)->dependents);
    dur__futures_drop(scope, "dropped_future");
    if (waited) DUR__GROW(exec->graves, exec->grave_count, exec->grave_room); /* before it is nobody's */
    dur__region *region = scope->region;
    scope->branch->scope = scope->outer;
    dur__free(scope);
    if (waited)
        region_bury(exec, region);
    else
        dur__region_unref(exec, region);
}

/* ---- public ---- */

dur_scope *dur_scope_begin(dur_ctx *ctx) {
    dur__exec *exec = dur__enter(ctx, "dur_scope_begin");
    if (exec == NULL) return NULL;
    dur__branch *branch = exec->running;
    dur_scope *scope = dur__zget(sizeof(*scope));
    dur__region *region = scope != NULL ? dur__region_new() : NULL;
    if (region == NULL) {
        dur__free(scope);
        dur__memory_leave();
    }
    scope->exec = exec;
    scope->branch = branch;
    scope->outer = branch->scope;
    scope->region = region;
    dur__list_init(&scope->futures);
    branch->scope = scope;
    return scope;
}

void dur_scope_end(dur_scope *scope) {
    dur__exec *exec = dur__current();
    if (exec == NULL || scope == NULL) {
        if (exec != NULL) dur__branch_failf(exec, "dur_scope_end: scope is NULL");
        return;
    }
    dur__branch *branch = exec->running;
    dur_scope *at = branch->scope;
    while (at != &branch->base && at != scope)
        at = at->outer;
    if (at != scope || scope == &branch->base)
        dur__branch_failf(exec, "dur_scope_end: not a scope that this branch is in");
    for (bool last = false; !last;) { /* scopes that were left open inside end with it */
        dur_scope *inner = branch->scope;
        last = inner == scope;
        dur__scope_close(inner);
        if (exec->broken != DUR_OK) dur__branch_leave(exec);
    }
}

void *dur_alloc(dur_ctx *ctx, size_t size) {
    dur__exec *exec = dur__enter(ctx, "dur_alloc");
    return exec == NULL ? NULL : dur__scope_alloc(exec->running->scope, size == 0 ? 1 : size);
}

char *dur_strdup(dur_ctx *ctx, const char *text) {
    dur__exec *exec = dur__enter(ctx, "dur_strdup");
    return exec == NULL ? NULL : dur__scope_text(exec->running->scope, text != NULL ? text : "");
}

char *dur_vformat(dur_ctx *ctx, const char *format, va_list args) {
    dur__exec *exec = dur__enter(ctx, "dur_format");
    if (exec == NULL) return NULL;
    if (format == NULL) dur__branch_failf(exec, "dur_format: format is NULL");
    return dur__scope_vformat(exec->running->scope, format, args);
}

char *dur_format(dur_ctx *ctx, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *text = dur_vformat(ctx, format, args);
    va_end(args);
    return text;
}

void dur_on_drop(dur_ctx *ctx, void (*fn)(void *), void *arg) {
    dur__exec *exec = dur__enter(ctx, "dur_on_drop");
    if (exec == NULL) return;
    if (fn == NULL) dur__branch_failf(exec, "dur_on_drop: fn is NULL");
    dur__branch *branch = exec->running;
    dur__dropper *dropper = dur__scope_alloc(&branch->base, sizeof(*dropper));
    dropper->fn = fn;
    dropper->arg = arg;
    dropper->next = branch->droppers;
    branch->droppers = dropper;
}
