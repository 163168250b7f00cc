/*
 * await.c: the verbs.  A branch waits for one, any or all of some futures; what it then returns counts as reported.
 */
#include "replay/engine.h"

static dur__exec *await_enter(dur_future *const *futures, size_t count, const char *call) {
    dur__exec *exec = dur__current();
    if (exec == NULL) {
        dur__unwind_on();
        return NULL;
    }
    if (futures == NULL && count > 0) dur__branch_failf(exec, "%s: futures is NULL", call);
    for (size_t i = 0; i < count; i++) {
        if (futures[i] == NULL) dur__branch_failf(exec, "%s: future is NULL", call);
        if (futures[i]->exec != exec) dur__branch_failf(exec, "%s: a future of another handler", call);
        if (futures[i]->kind == DUR__FUTURE_BRANCH && futures[i]->of.branch == exec->running)
            dur__branch_failf(exec, "%s: a branch cannot wait for itself", call);
    }
    return exec;
}

/* Suspend until `missing` of the open ones have settled. */
static void wait_for(dur__exec *exec, dur_future *const *futures, size_t count, size_t missing) {
    dur__branch *branch = exec->running;
    if (branch->wait.room < count) {
        branch->wait.nodes = dur__xrealloc(branch->wait.nodes, count * sizeof(*branch->wait.nodes));
        branch->wait.room = count;
    }
    branch->wait.count = 0;
    for (size_t i = 0; i < count; i++) {
        if (futures[i]->settled != 0) continue;
        dur__node *node = &branch->wait.nodes[branch->wait.count++];
        *node = (dur__node){ .branch = branch };
        dur__list_push(&futures[i]->dependents, &node->link);
    }
    branch->wait.missing = missing;
    dur__branch_suspend(exec);
    dur__branch_unwait(branch);
}

static void wait_one(dur__exec *exec, dur_future *future) {
    if (future->settled == 0) wait_for(exec, &future, 1, 1);
    dur__future_reported(future);
}

/* A drop may have broken the execution, or ended the branch that gave it. */
static void drop_checked(dur__exec *exec, dur_future *future) {
    dur__future_drop(future, "dropped_future");
    if (exec->broken != DUR_OK || exec->running->ended) dur__branch_leave(exec);
}

const char *dur_await(dur_future *future) {
    dur__exec *exec = await_enter(&future, 1, "dur_await");
    if (exec == NULL) return NULL;
    wait_one(exec, future);
    if (future->code != DUR_OK) dur__branch_fail(exec, future->code, future->text);
    return future->text;
}

int dur_try(dur_future *future, const char **out) {
    dur__exec *exec = await_enter(&future, 1, "dur_try");
    if (exec == NULL) return DUR_EINVAL;
    wait_one(exec, future);
    if (out != NULL && future->code == DUR_OK) *out = future->text;
    return future->code;
}

int dur_try_for_ex(dur_future *future, uint64_t timeout_ms, const char **out, const char *site) {
    dur__exec *exec = await_enter(&future, 1, "dur_try_for");
    if (exec == NULL) return DUR_EINVAL;
    if (future->settled == 0) {
        dur_future *timer = dur_timer_ex(&exec->ctx, timeout_ms, site);
        dur_future *both[2] = { future, timer };
        wait_for(exec, both, 2, 1);
        bool late = future->settled == 0 || (timer->settled != 0 && timer->settled < future->settled);
        if (late && timer->code == DUR_OK) {
            drop_checked(exec, future);
            return DUR_ETIMEOUT;
        }
        /* A cancel request settles both, whichever was made first: the future's answer is the one that counts. */
        drop_checked(exec, timer);
        if (future->settled == 0) wait_for(exec, &future, 1, 1);
    }
    dur__future_reported(future);
    if (out != NULL && future->code == DUR_OK) *out = future->text;
    return future->code;
}

dur_future *dur_any_n(dur_future *const *futures, size_t count) {
    dur__exec *exec = await_enter(futures, count, "dur_any");
    if (exec == NULL) return NULL;
    if (count == 0) dur__branch_failf(exec, "dur_any: nothing to wait for");
    bool waited = false;
    for (;;) {
        dur_future *winner = NULL;
        for (size_t i = 0; i < count; i++)
            if (futures[i]->settled != 0 && (winner == NULL || futures[i]->settled < winner->settled))
                winner = futures[i];
        if (winner != NULL) {
            dur__future_reported(winner);
            return winner;
        }
        DUR_ASSERT(!waited);
        wait_for(exec, futures, count, 1);
        waited = true;
    }
}

dur_future *dur_select_n(dur_future *const *futures, size_t count) {
    dur_future *winner = dur_any_n(futures, count);
    dur__exec *exec = dur__current();
    for (size_t i = 0; exec != NULL && i < count; i++)
        if (futures[i] != winner) drop_checked(exec, futures[i]);
    return winner;
}

void dur_join_n(dur_future *const *futures, size_t count) {
    dur__exec *exec = await_enter(futures, count, "dur_join");
    if (exec == NULL) return;
    size_t missing = 0;
    for (size_t i = 0; i < count; i++)
        missing += futures[i]->settled == 0;
    if (missing > 0) wait_for(exec, futures, count, missing);
    for (size_t i = 0; i < count; i++)
        dur__future_reported(futures[i]);
}

int dur_try_message_ex(dur_ctx *ctx, const char *name, const char **out, const char *site) {
    dur__exec *exec = dur__enter(ctx, "dur_try_message");
    if (exec == NULL) {
        dur__unwind_on();
        return DUR_EINVAL;
    }
    dur_future *future = dur__message_wait(exec, name, true, site);
    wait_one(exec, future);
    if (out != NULL && future->code == DUR_OK) *out = future->text;
    return future->code;
}
