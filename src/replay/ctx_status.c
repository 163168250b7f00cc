/* ctx_status.c: the text that clients see while the orchestration runs. */
#include "replay/engine.h"
#include <stdlib.h>

static void status_update(dur__exec *exec, const char *text) {
    uint64_t max = exec->options.limits.custom_status_bytes_max;
    size_t size = text != NULL ? strlen(text) : 0, bad = 0;
    if (max != 0 && size > max)
        dur__branch_failf(exec, "dur_status_set: the status has %zu bytes, the limit is %llu", size,
                          (unsigned long long)max);
    if (text != NULL && !dur__utf8_valid(text, size, &bad))
        dur__branch_failf(exec, "dur_status_set: the status is not UTF-8 at byte %zu", bad);
    dur_event event = { .kind = DUR_EVENT_CUSTOM_STATUS_UPDATED, .status = text };
    if (!dur__command(exec, &event, NULL)) dur__branch_leave(exec);
    char *copy = dur__xstrdup(text); /* text may be the old one */
    dur__free(exec->status);
    exec->status = copy;
}

void dur_status_set(dur_ctx *ctx, const char *text) {
    dur__exec *exec = dur__enter(ctx, "dur_status_set");
    if (exec != NULL) status_update(exec, text != NULL ? text : "");
}

void dur_status_setf(dur_ctx *ctx, const char *format, ...) {
    dur__exec *exec = dur__enter(ctx, "dur_status_setf");
    if (exec == NULL) return;
    if (format == NULL) dur__branch_failf(exec, "dur_status_setf: format is NULL");
    va_list args;
    va_start(args, format);
    char *text = dur__scope_vformat(exec->running->scope, format, args);
    va_end(args);
    status_update(exec, text);
}

void dur_status_clear(dur_ctx *ctx) {
    dur__exec *exec = dur__enter(ctx, "dur_status_clear");
    if (exec != NULL) status_update(exec, NULL);
}

const char *dur_status_get(dur_ctx *ctx) {
    dur__exec *exec = dur__enter(ctx, "dur_status_get");
    if (exec == NULL || exec->status == NULL) return NULL;
    return dur__scope_text(exec->running->scope, exec->status);
}
