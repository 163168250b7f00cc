/*
 * ctx.c: how public calls enter, how a handler ends, and what it can ask about itself.
 */
#include "core/limits.h"
#include "replay/engine.h"

dur__exec *dur__enter(const dur_ctx *ctx, const char *call) {
    dur__exec *exec = dur__current();
    if (exec == NULL) return NULL;
    if (ctx == NULL) dur__branch_failf(exec, "%s: ctx is NULL", call);
    if (ctx != &exec->ctx) dur__branch_failf(exec, "%s: the ctx of another handler", call);
    return exec;
}

/* ---- outcomes ---- */

static dur_outcome outcome_of(dur_ctx *ctx, int kind, const char *call, const char *text) {
    dur__exec *exec = dur__enter(ctx, call);
    if (exec == NULL) return (dur_outcome){ 0 };
    text = dur__need_payload(exec, call, "text", text);
    return (dur_outcome){ .kind_ = kind, .text_ = dur__scope_text(&exec->running->base, text) };
}

static dur_outcome outcome_format(dur_ctx *ctx, int kind, const char *call, const char *format, va_list args) {
    dur__exec *exec = dur__enter(ctx, call);
    if (exec == NULL) return (dur_outcome){ 0 };
    if (format == NULL) dur__branch_failf(exec, "%s: format is NULL", call);
    const char *text = dur__need_payload(exec, call, "text", dur__scope_vformat(&exec->running->base, format, args));
    return (dur_outcome){ .kind_ = kind, .text_ = text };
}

dur_outcome dur_complete(dur_ctx *ctx, const char *output) {
    return outcome_of(ctx, DUR__OUTCOME_COMPLETE, "dur_complete", output);
}

dur_outcome dur_completef(dur_ctx *ctx, const char *format, ...) {
    va_list args;
    va_start(args, format);
    dur_outcome outcome = outcome_format(ctx, DUR__OUTCOME_COMPLETE, "dur_completef", format, args);
    va_end(args);
    return outcome;
}

dur_outcome dur_fail(dur_ctx *ctx, const char *reason) {
    return outcome_of(ctx, DUR__OUTCOME_FAIL, "dur_fail", reason);
}

dur_outcome dur_failf(dur_ctx *ctx, const char *format, ...) {
    va_list args;
    va_start(args, format);
    dur_outcome outcome = outcome_format(ctx, DUR__OUTCOME_FAIL, "dur_failf", format, args);
    va_end(args);
    return outcome;
}

dur_outcome dur_fail_as(dur_ctx *ctx, dur_code code, const char *reason) {
    dur__exec *exec = dur__enter(ctx, "dur_fail_as");
    if (exec == NULL) return (dur_outcome){ 0 };
    if (code != DUR_EFAILED && code != DUR_ECANCELLED && code != DUR_ETIMEOUT && code != DUR_EPOISON)
        dur__branch_failf(exec, "dur_fail_as: %s is not how something that is waited for fails", dur_code_name(code));
    dur_outcome outcome = outcome_of(ctx, DUR__OUTCOME_FAIL, "dur_fail_as", reason);
    outcome.flags_ = code;
    return outcome;
}

dur_outcome dur_continue_as_new_ex(dur_ctx *ctx, const dur_continue_args *args) {
    dur__exec *exec = dur__enter(ctx, "dur_continue_as_new");
    if (exec == NULL) return (dur_outcome){ 0 };
    if (args == NULL) dur__branch_failf(exec, "dur_continue_as_new: args is NULL");
    dur__need_size(exec, "dur_continue_as_new", args->size, offsetof(dur_continue_args, version));
    dur_continue_args own = { 0 };
    memcpy(&own, args, args->size < sizeof(own) ? args->size : sizeof(own));
    dur_outcome outcome = outcome_of(ctx, DUR__OUTCOME_CONTINUE, "dur_continue_as_new", own.input);
    if (own.version != NULL) {
        dur__need_version(exec, "dur_continue_as_new", own.version);
        outcome.version_ = dur__scope_text(&exec->running->base, own.version);
    }
    return outcome;
}

/* ---- about itself; these record nothing and work with any ctx ---- */

const char *dur_instance_id(const dur_ctx *ctx) {
    return ctx == NULL ? NULL : ctx->exec->options.instance;
}
uint64_t dur_execution_id(const dur_ctx *ctx) {
    return ctx == NULL ? 0 : ctx->exec->options.execution_id;
}
const char *dur_orchestration_name(const dur_ctx *ctx) {
    return ctx == NULL ? NULL : ctx->exec->options.name;
}
const char *dur_orchestration_version(const dur_ctx *ctx) {
    return ctx == NULL ? NULL : ctx->exec->options.version;
}
const char *dur_parent_instance(const dur_ctx *ctx) {
    return ctx == NULL ? NULL : ctx->exec->parent.instance;
}
void *dur_handler_data(const dur_ctx *ctx) {
    return ctx == NULL ? NULL : ctx->exec->options.data;
}
bool dur_is_replaying(const dur_ctx *ctx) {
    return ctx != NULL && ctx->exec->replaying;
}
uint64_t dur_history_events(const dur_ctx *ctx) {
    return ctx == NULL ? 0 : ctx->exec->last_id;
}
const char *dur_cancel_reason(const dur_ctx *ctx) {
    return ctx == NULL ? NULL : ctx->exec->cancel_reason;
}

void dur_trace(dur_ctx *ctx, dur_log_level level, const char *format, ...) {
    dur__exec *exec = dur__enter(ctx, "dur_trace");
    if (exec == NULL || exec->replaying || format == NULL) return;
    va_list args;
    va_start(args, format);
    dur__log_vheld(exec, level, format, args);
    va_end(args);
}
