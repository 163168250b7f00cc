/*
 * combine.c: one future for many.  It owns nothing: dropping it leaves its members alone.
 */
#include "replay/engine.h"

struct dur__combined {
    bool first; /* of them; otherwise all */
    bool decided;
    size_t missing;
    size_t count;
    dur_future **members; /* first: to drop the others */
    dur__node *nodes;
};

static void combined_unlink(dur__combined *combined) {
    for (size_t i = 0; i < combined->count; i++)
        dur__list_unlink(&combined->nodes[i].link);
}

/* What it will settle as, kept here at once: a member may go with its scope. */
static void combined_decide(dur_future *future, dur__combined *combined, dur_future *member) {
    combined->decided = true;
    future->is_final = member->is_final;
    future->is_none = member->is_none;
    future->code = member->code;
    future->text = dur__scope_text(future->scope, member->text);
    if (combined->first && member->holds != NULL) dur__future_hold(future, member->holds);
}

static void combined_settle(dur_future *future, dur__combined *combined) {
    combined_unlink(combined);
    future->of.combined = NULL;
    dur__settle(future, combined->decided ? future->code : DUR_OK, combined->decided ? future->text : "");
}

/* The first one has settled: the others go, then it settles as that one. */
static void combined_first(dur_future *future, dur__combined *combined, dur_future *winner) {
    combined_unlink(combined);
    combined_decide(future, combined, winner);
    for (size_t i = 0; i < combined->count && future->exec->broken == DUR_OK; i++)
        if (combined->members[i] != winner) dur__future_drop(combined->members[i], "dropped_future");
    if (future->exec->broken == DUR_OK) combined_settle(future, combined);
}

void dur__combined_hear(dur_future *future, dur_future *member) {
    dur__combined *combined = future->of.combined;
    if (combined == NULL || (combined->first && combined->decided)) return;
    if (combined->first) {
        combined_first(future, combined, member);
        return;
    }
    combined->missing--;
    if (!combined->decided && member->code != DUR_OK) combined_decide(future, combined, member);
    if (combined->missing == 0) combined_settle(future, combined);
}

void dur__combined_drop(dur_future *future) {
    if (future->of.combined != NULL) combined_unlink(future->of.combined);
}

static dur_future *combine(dur_ctx *ctx, dur_future *const *futures, size_t count, bool first, const char *call) {
    dur__exec *exec = dur__enter(ctx, call);
    if (exec == NULL) return NULL;
    if (futures == NULL && count > 0) dur__branch_failf(exec, "%s: futures is NULL", call);
    if (first && count == 0) dur__branch_failf(exec, "%s: nothing to wait for", call);
    for (size_t i = 0; i < count; i++) {
        if (futures[i] == NULL) dur__branch_failf(exec, "%s: future is NULL", call);
        if (futures[i]->exec != exec) dur__branch_failf(exec, "%s: a future of another handler", call);
    }
    dur_scope *scope = exec->running->scope;
    dur__combined *combined = dur__scope_alloc(scope, sizeof(*combined));
    combined->first = first;
    combined->count = count;
    combined->members = dur__scope_alloc(scope, (count + 1) * sizeof(*combined->members));
    combined->nodes = dur__scope_alloc(scope, (count + 1) * sizeof(*combined->nodes));
    dur_future *future = dur__future_new(exec, DUR__FUTURE_COMBINED);
    future->of.combined = combined;
    dur_future *settled = NULL; /* the first by order of settling that decides */
    for (size_t i = 0; i < count; i++) {
        combined->members[i] = futures[i];
        if (futures[i]->settled == 0) {
            combined->nodes[i].combined = future;
            dur__list_push(&futures[i]->dependents, &combined->nodes[i].link);
            combined->missing++;
        } else if ((first || futures[i]->code != DUR_OK) &&
                   (settled == NULL || futures[i]->settled < settled->settled)) {
            settled = futures[i];
        }
    }
    if (first && settled != NULL) {
        combined_first(future, combined, settled);
    } else {
        if (settled != NULL) combined_decide(future, combined, settled);
        if (combined->missing == 0) combined_settle(future, combined);
    }
    if (exec->broken != DUR_OK || exec->running->ended) dur__branch_leave(exec);
    return future;
}

dur_future *dur_all_of(dur_ctx *ctx, dur_future *const *futures, size_t count) {
    return combine(ctx, futures, count, false, "dur_all_of");
}

dur_future *dur_first_of(dur_ctx *ctx, dur_future *const *futures, size_t count) {
    return combine(ctx, futures, count, true, "dur_first_of");
}
