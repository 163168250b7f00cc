/*
 * saga.c: what to do if a later step fails; written with the public verbs, but for the key of what is undone again.
 */
#include "replay/engine.h"

typedef struct undo {
    struct undo *next;
    dur_activity_args args;
    dur_retry retry;
} undo;

struct dur_saga {
    dur__exec *exec;
    dur_scope *scope;
    undo *last;
};

dur_saga *dur_saga_begin(dur_ctx *ctx) {
    dur__exec *exec = dur__enter(ctx, "dur_saga_begin");
    if (exec == NULL) return NULL;
    dur_saga *saga = dur__scope_alloc(exec->running->scope, sizeof(*saga));
    saga->exec = exec;
    saga->scope = exec->running->scope;
    return saga;
}

static const char *saga_text(dur_saga *saga, const char *text) {
    return text == NULL ? NULL : dur__scope_text(saga->scope, text);
}

void dur_saga_undo_ex(dur_saga *saga, const dur_activity_args *args) {
    dur__exec *exec = dur__current();
    if (exec == NULL) return;
    if (saga == NULL) dur__branch_failf(exec, "dur_saga_undo: saga is NULL");
    if (saga->exec != exec) dur__branch_failf(exec, "dur_saga_undo: a saga of another handler");
    undo *step = dur__scope_alloc(saga->scope, sizeof(*step));
    dur__activity_args(exec, "dur_saga_undo", args, &step->args);
    step->args.size = sizeof(step->args);
    step->args.name = saga_text(saga, step->args.name);
    step->args.input = saga_text(saga, step->args.input);
    step->args.tag = saga_text(saga, step->args.tag);
    step->args.session = saga_text(saga, step->args.session);
    if (step->args.retry != NULL) { /* the policy is often a temporary of the caller */
        dur__need_size(exec, "dur_saga_undo", step->args.retry->size, offsetof(dur_retry, delay_ms));
        size_t size = step->args.retry->size < sizeof(step->retry) ? step->args.retry->size : sizeof(step->retry);
        memcpy(&step->retry, step->args.retry, size);
        step->retry.size = size;
        step->args.retry = &step->retry;
    }
    step->next = saga->last;
    saga->last = step;
}

/* A cancel that comes while something is undone gives that up like all that is open.  What is scheduled afterwards
   works, and there is only one such moment in an execution: so it is undone once more, under the same key
   (dur_act_key): what was given up may have happened. */
static bool undo_step(dur__exec *exec, const undo *step) {
    bool cancelled = dur_cancel_reason(&exec->ctx) != NULL;
    dur_future *undone = dur__activity(exec, &step->args, 0);
    uint64_t first_id = dur__activity_first_id(undone);
    int code = dur_try(undone, NULL);
    if (code == DUR_ECANCELLED && !cancelled && dur_cancel_reason(&exec->ctx) != NULL)
        code = dur_try(dur__activity(exec, &step->args, first_id), NULL);
    return code == DUR_OK;
}

size_t dur_saga_compensate(dur_saga *saga) {
    dur__exec *exec = dur__current();
    if (exec == NULL) {
        dur__unwind_on();
        return 0;
    }
    if (saga == NULL) dur__branch_failf(exec, "dur_saga_compensate: saga is NULL");
    if (saga->exec != exec) dur__branch_failf(exec, "dur_saga_compensate: a saga of another handler");
    size_t failed = 0;
    while (saga->last != NULL) {
        undo *step = saga->last;
        saga->last = step->next;
        failed += !undo_step(exec, step);
    }
    return failed;
}
