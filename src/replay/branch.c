/*
 * branch.c: branches of a handler.  The runnable branch with the lowest number runs next, always (R4).
 *
 * The first branch is the handler itself; dur_spawn makes more.  A branch that ends, however it ends, drops the
 * futures that it owns in order of creation and runs its on-drop calls.  Dropping a branch drops the branches it owns:
 * through a queue, so that depth costs no stack.
 *
 * The stack of a dropped branch is thrown away; or, if its handler asked for that, unwound first: it is resumed once
 * more, where it waits it throws, and while it runs no call of ours knows it (current is NULL), as in on-drop calls.
 * Stacks go newest first, because a branch may use what lies on the stack of the one that has started it.
 */
#include "replay/engine.h"
#include <stdio.h>
#include <stdlib.h>

enum { THROWS_MAX = 1000 };

static _Thread_local dur__exec *current;
static _Thread_local dur__branch *unwinding;

dur__exec *dur__current(void) {
    return current;
}
void dur__current_set(dur__exec *exec) {
    current = exec;
}

static void branch_main(void *arg) {
    dur__branch *branch = arg;
    dur__exec *exec = branch->exec;
    dur_outcome outcome =
        branch->fn != NULL ? branch->fn(&exec->ctx, branch->arg) : exec->options.fn(&exec->ctx, exec->input);
    if (!branch->ended) { /* dropped by itself meanwhile, through one that owns it */
        branch->outcome = outcome;
        branch->code = outcome.kind_ == DUR__OUTCOME_COMPLETE ? DUR_OK : DUR_EFAILED;
        if (outcome.kind_ == DUR__OUTCOME_FAIL && outcome.flags_ != 0) branch->code = (dur_code)outcome.flags_;
    }
    branch->ended = branch->returned = true;
}

dur__branch *dur__branch_new(dur__exec *exec, dur_branch_fn *fn, void *arg, dur_scope *parent) {
    dur__branch *branch = dur__zget(sizeof(*branch));
    if (branch != NULL)
        branch->body = dur__body_coro_new(exec->options.stacks, exec->options.stack_bytes, exec->options.name,
                                          branch_main, branch);
    if (branch == NULL || branch->body == NULL) {
        dur__free(branch);
        dur__break(exec, DUR_ENOMEM, "no stack for a branch: memory or the kernel's limit of mappings is exhausted");
        return NULL;
    }
    branch->exec = exec;
    branch->order.hi = exec->branch_count++;
    branch->fn = fn;
    branch->arg = arg;
    branch->base.exec = exec;
    branch->base.branch = branch;
    branch->base.region = parent != NULL ? parent->region : exec->region;
    branch->base.region->refs++;
    dur__list_init(&branch->base.futures);
    branch->scope = &branch->base;
    dur__list_push(&exec->branches, &branch->link);
    dur__branch_wake(branch);
    return branch;
}

void dur__branch_wake(dur__branch *branch) {
    dur__heap_push(&branch->exec->runnable, &branch->order);
}

void dur__branch_unwait(dur__branch *branch) {
    for (size_t i = 0; i < branch->wait.count; i++)
        dur__list_unlink(&branch->wait.nodes[i].link);
    branch->wait.count = 0;
    branch->wait.missing = 0;
}

/* ---- unwinding ---- */

/* What it throws passes frames of ours that would never have been gone on with anyway. */
static _Noreturn void branch_throw(dur__branch *branch) {
    if (++branch->throws <= THROWS_MAX) branch->exec->options.unwind();
    branch->body->methods->suspend(branch->body); /* it swallows everything: thrown away after all */
    dur__assert_failed(__FILE__, __LINE__, "a branch that was thrown away was resumed");
}

void dur__unwind_on(void) {
    if (unwinding != NULL) branch_throw(unwinding);
}

/* With what it asks for unknown to everybody. */
static void branch_unwind(dur__branch *branch) {
    if (branch->exec->options.unwind == NULL || !branch->began || branch->returned) return;
    DUR_ASSERT(branch != branch->exec->running);
    dur__exec *inside = current;
    dur__branch *outer = unwinding; /* of another execution, which replays this one in a destructor */
    current = NULL;
    unwinding = branch;
    branch->ended = true;
    (void)branch->body->methods->resume(branch->body);
    unwinding = outer;
    current = inside;
}

/* ---- the end of a branch ---- */

static void branch_release(dur__branch *branch) {
    dur__exec *exec = branch->exec;
    size_t touched = branch->body->methods->touched(branch->body);
    if (touched > exec->stack_high_water) exec->stack_high_water = touched;
    branch_unwind(branch);
    branch->body->methods->drop(branch->body);
    dur__exec *inside = current;
    current = NULL; /* such a call is nobody's: it can ask for nothing */
    while (branch->droppers != NULL) {
        dur__dropper *dropper = branch->droppers;
        branch->droppers = dropper->next;
        dropper->fn(dropper->arg);
    }
    current = inside;
    dur__heap_remove(&exec->runnable, &branch->order);
    dur__list_unlink(&branch->link);
    dur__free(branch->wait.nodes);
    while (branch->scope != &branch->base) {
        dur_scope *inner = branch->scope;
        branch->scope = inner->outer;
        dur__region_unref(exec, inner->region);
        dur__free(inner);
    }
    dur__region_unref(exec, branch->base.region);
    if (branch == exec->root) exec->root = NULL;
    dur__free(branch);
}

/* Outer scopes hold the older futures. */
static void branch_drop_futures(dur__branch *branch) {
    dur_scope *chain = NULL; /* turned round, through a walk that nests no deeper than scopes are written */
    for (dur_scope *last = NULL; last != branch->scope; last = chain) {
        chain = branch->scope;
        while (chain->outer != last)
            chain = chain->outer;
        dur__futures_drop(chain, "dropped_future");
    }
}

static void branch_bury(dur__branch *branch) {
    dur__exec *exec = branch->exec;
    dur__branch_unwait(branch);
    branch_drop_futures(branch);
    dur_scope *at = branch->scope;
    for (; at != &branch->base; at = at->outer) { /* others may have waited for what it owned: see scope.c */
        at->region->refs++;
        DUR__GROW(exec->graves, exec->grave_count, exec->grave_room);
        exec->graves[exec->grave_count++] = at->region;
    }
}

static void branches_release(dur__branch *buried) {
    while (buried != NULL) {
        dur__branch *next = buried;
        buried = next->next_dying;
        branch_release(next);
    }
}

void dur__branch_drop(dur__branch *branch) {
    dur__exec *exec = branch->exec;
    if (branch->ended && branch != exec->running) return; /* is being buried */
    bool first = !branch->ended;
    branch->ended = true;
    branch->future = NULL;
    branch->code = DUR_ECANCELLED;
    if (branch == exec->running || !first) return; /* it leaves as soon as it is back in a call of ours */
    if (exec->dying_last != NULL)
        exec->dying_last->next_dying = branch;
    else
        exec->dying_first = branch;
    exec->dying_last = branch;
    if (exec->burying) return;
    exec->burying = true;
    /* The last one first: those that it owns come behind a branch.  A branch that is dropped with its owners while it
       runs goes before them: it leaves with the call that it is in. */
    bool itself = exec->running != NULL && exec->running->ended;
    dur__branch *buried = itself ? exec->owners : NULL;
    while (exec->dying_first != NULL) {
        dur__branch *next = exec->dying_first;
        exec->dying_first = next->next_dying;
        if (exec->dying_first == NULL) exec->dying_last = NULL;
        branch_bury(next);
        next->next_dying = buried;
        buried = next;
    }
    exec->burying = false;
    if (exec->running != NULL && exec->running->ended)
        exec->owners = buried;
    else
        branches_release(buried);
}

/* The branch has returned, or failed at a call. */
static void branch_ended(dur__branch *branch) {
    dur__exec *exec = branch->exec;
    if (branch == exec->root) {
        dur__finish_returned(exec);
        return;
    }
    dur_future *future = branch->future;
    dur_outcome outcome = branch->outcome;
    dur_code code = branch->code;
    const char *text = outcome.text_ != NULL ? outcome.text_ : "";
    if (outcome.kind_ == DUR__OUTCOME_NONE && code != DUR_ECANCELLED) {
        code = DUR_EFAILED;
        text = "branch returned no outcome";
    } else if (outcome.kind_ == DUR__OUTCOME_CONTINUE) {
        code = DUR_EFAILED;
        text = "only the handler itself can continue as new, not a branch";
    }
    dur__branch_unwait(branch);
    branch_drop_futures(branch);
    if (exec->broken != DUR_OK) return;
    if (future != NULL && branch->future == future) {
        future->of.branch = NULL;
        dur__settle(future, code, text);
    } else if (code != DUR_OK && branch->detached) {
        dur__log_held(exec, DUR_LOG_WARN, "a detached branch failed: %s", text);
    }
    branch->future = NULL;
    branch_bury(branch);
    branch_release(branch);
    dur__branch *owners = exec->owners;
    exec->owners = NULL;
    branches_release(owners);
}

void dur__branches_run(dur__exec *exec) {
    while (exec->broken == DUR_OK && !exec->finished && !exec->returned) {
        dur__heap_item *top = dur__heap_top(&exec->runnable);
        if (top == NULL) return;
        dur__heap_remove(&exec->runnable, top);
        dur__branch *branch = DUR__CONTAINER(top, dur__branch, order);
        exec->running = branch;
        current = exec;
        branch->began = true;
        bool suspended = branch->body->methods->resume(branch->body);
        current = NULL;
        exec->running = NULL;
        if (exec->broken != DUR_OK) return;
        DUR_ASSERT(!suspended || branch->ended || branch->wait.missing > 0);
        if (branch->ended) branch_ended(branch);
    }
}

void dur__branches_free(dur__exec *exec) {
    exec->owners = NULL;
    while (!dur__list_empty(&exec->branches))
        branch_release(DUR__CONTAINER(exec->branches.prev, dur__branch, link));
}

/* ---- leaving, from inside ---- */

void dur__branch_suspend(dur__exec *exec) {
    dur__branch *branch = exec->running;
    branch->body->methods->suspend(branch->body);
    if (unwinding == branch) branch_throw(branch);
    if (branch->ended) dur__branch_leave(exec);
}

void dur__branch_leave(dur__exec *exec) {
    dur__branch *branch = exec->running;
    if (branch == NULL) return;
    branch->ended = true;
    branch->body->methods->suspend(branch->body);
    if (unwinding == branch) branch_throw(branch);
    dur__assert_failed(__FILE__, __LINE__, "a branch that has ended is not resumed");
}

void dur__branch_fail(dur__exec *exec, dur_code code, const char *reason) {
    dur__branch *branch = exec->running;
    DUR_ASSERT(branch != NULL);
    branch->outcome = (dur_outcome){ .kind_ = DUR__OUTCOME_FAIL, .text_ = dur__scope_text(&branch->base, reason) };
    branch->code = code;
    dur__branch_leave(exec);
    dur__assert_failed(__FILE__, __LINE__, "a branch that has ended was resumed");
}

void dur__branch_failf(dur__exec *exec, const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *reason = dur__scope_vformat(&exec->running->base, format, args);
    va_end(args);
    dur__branch_fail(exec, DUR_EFAILED, reason);
}

/* ---- public ---- */

dur_future *dur_spawn_ex(dur_ctx *ctx, dur_branch_fn *fn, void *arg, const char *site) {
    dur__exec *exec = dur__enter(ctx, "dur_spawn");
    if (exec == NULL) return NULL;
    if (fn == NULL) dur__branch_failf(exec, "dur_spawn: fn is NULL");
    dur__exec_at(exec, site);
    dur_future *future = dur__future_new(exec, DUR__FUTURE_BRANCH);
    dur__branch *branch = dur__branch_new(exec, fn, arg, exec->running->scope);
    if (branch == NULL) {
        dur__branch_leave(exec);
        return NULL;
    }
    future->of.branch = branch;
    branch->future = future;
    return future;
}
