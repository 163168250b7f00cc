/*
 * future.c: futures settle once, tell who waits, and belong to the scope in which they were made.
 *
 * Telling goes through a queue, not by recursion: a chain of combined futures may be as long as the handler likes, and
 * a drop may be given on a handler's own small stack.
 */
#include "core/json.h"
#include "core/unreported.h"
#include "replay/engine.h"
#include <stdlib.h>

dur_future *dur__future_new(dur__exec *exec, dur__future_kind kind) {
    dur_scope *scope = exec->running->scope;
    dur_future *future = dur__scope_alloc(scope, sizeof(*future));
    future->exec = exec;
    future->scope = scope;
    future->kind = kind;
    future->code = DUR_ERUNNING;
    future->text = "";
    dur__list_init(&future->dependents);
    dur__list_push(&scope->futures, &future->owned);
    return future;
}

static void tell(dur_future *future) {
    for (dur__link *link; (link = dur__list_pop(&future->dependents)) != NULL;) {
        dur__node *node = DUR__CONTAINER(link, dur__node, link);
        if (node->combined != NULL) {
            dur__combined_hear(node->combined, future);
            continue;
        }
        dur__branch *branch = node->branch;
        if (branch->wait.missing > 0 && --branch->wait.missing == 0) dur__branch_wake(branch);
    }
}

static void tell_all(dur__exec *exec) {
    if (exec->telling) return;
    exec->telling = true;
    while (exec->settled_first != NULL) {
        dur_future *future = exec->settled_first;
        exec->settled_first = future->next;
        if (exec->settled_first == NULL) exec->settled_last = NULL;
        tell(future);
    }
    exec->telling = false;
}

/* The value of a remote KV read: a JSON text, or null. */
static void decode_optional(dur_future *future, const char *json) {
    dur__json reader;
    dur_arena *arena = dur__passing(future->exec);
    const char *value = "";
    dur_text text = { json, strlen(json) };
    dur__json_begin(&reader, arena, text, "value", NULL);
    future->is_none = dur__json_null(&reader);
    if (!future->is_none && !dur__json_string(&reader, &value, NULL)) value = NULL;
    if (value == NULL || dur__json_end(&reader, text) != DUR_OK) {
        future->code = DUR_EFAILED;
        future->text = "the answer of the remote KV read is not an optional text";
    } else {
        future->text = dur__scope_text(future->scope, value);
    }
}

void dur__settle(dur_future *future, dur_code code, const char *text) {
    if (future->settled != 0) return;
    dur__exec *exec = future->exec;
    future->settled = ++exec->settlements;
    future->code = code;
    if (future->decode && code == DUR_OK)
        decode_optional(future, text != NULL ? text : "null");
    else
        future->text = text != NULL && *text != '\0' ? dur__scope_text(future->scope, text) : "";
    future->of.leaf = NULL;
    if (future->holds == NULL) dur__list_unlink(&future->owned); /* else a message can still be given back */
    future->next = NULL;
    if (exec->settled_last != NULL)
        exec->settled_last->next = future;
    else
        exec->settled_first = future;
    exec->settled_last = future;
    tell_all(exec);
}

/* ---- messages that came and were not reported ---- */

void dur__future_hold(dur_future *future, dur__leaf *leaf) {
    future->holds = leaf;
    future->fellow = leaf->holders;
    leaf->holders = future;
}

void dur__future_reported(dur_future *future) {
    dur__leaf *leaf = future->holds;
    if (leaf == NULL) return;
    for (dur_future *holder = leaf->holders; holder != NULL; holder = holder->fellow) {
        holder->holds = NULL;
        dur__list_unlink(&holder->owned);
    }
    if (leaf->marked) (void)dur__mark(future->exec, DUR__MARK_REPORTED, leaf);
    dur__leaf_close(future->exec, leaf);
}

/* The last one that lets go gives the message back to its queue. */
static void future_let_go(dur_future *future, const char *reason) {
    dur__leaf *leaf = future->holds;
    dur_future **at = &leaf->holders;
    while (*at != future)
        at = &(*at)->fellow;
    *at = future->fellow;
    future->holds = NULL;
    future->code = DUR_ECANCELLED;
    future->text = "dropped";
    dur__list_unlink(&future->owned);
    if (leaf->holders == NULL) dur__leaf_drop(future->exec, leaf, reason);
}

/* ---- giving up ---- */

static void future_leaf_drop(dur_future *future, const char *reason) {
    dur__leaf *leaf = future->of.leaf;
    if (leaf == NULL) return;
    future->of.leaf = NULL;
    leaf->future = NULL;
    dur__leaf_drop(future->exec, leaf, reason);
}

void dur__future_drop(dur_future *future, const char *reason) {
    if (future->settled != 0) {
        if (future->holds != NULL) future_let_go(future, reason);
        return;
    }
    switch (future->kind) {
    case DUR__FUTURE_LEAF:
        future_leaf_drop(future, reason);
        break;
    case DUR__FUTURE_RETRY:
        if (future->of.retry != NULL) dur__retry_drop(future->exec, future->of.retry, reason);
        break;
    case DUR__FUTURE_BRANCH:
        if (future->of.branch != NULL) dur__branch_drop(future->of.branch);
        break;
    case DUR__FUTURE_COMBINED:
        dur__combined_drop(future);
        break;
    case DUR__FUTURE_PLAIN:
        dur__original_forget(future->exec, future);
        break;
    }
    future->of.leaf = NULL;
    dur__settle(future, DUR_ECANCELLED, "dropped");
}

void dur__future_orphan(dur_future *future) {
    dur__list_unlink(&future->owned);
    switch (future->kind) {
    case DUR__FUTURE_LEAF:
        if (future->of.leaf != NULL) future->of.leaf->future = NULL;
        break;
    case DUR__FUTURE_RETRY:
        if (future->of.retry != NULL) dur__retry_orphan(future->of.retry);
        break;
    case DUR__FUTURE_BRANCH:
        if (future->of.branch != NULL) future->of.branch->future = NULL;
        break;
    case DUR__FUTURE_COMBINED:
        dur__combined_drop(future);
        break;
    case DUR__FUTURE_PLAIN:
        dur__original_forget(future->exec, future);
        break;
    }
    future->of.leaf = NULL;
    dur__settle(future, DUR_ECANCELLED, "detached");
}

void dur__futures_drop(dur_scope *scope, const char *reason) {
    for (dur__link *link; (link = dur__list_first(&scope->futures)) != NULL;) {
        dur_future *future = DUR__CONTAINER(link, dur_future, owned);
        if (future->detached && future->holds == NULL)
            dur__future_orphan(future);
        else
            dur__future_drop(future, reason);
        DUR_ASSERT(dur__list_first(&scope->futures) != link);
    }
}

/* ---- public: looking, dropping, detaching ---- */

bool dur_is_settled(const dur_future *future) {
    return future != NULL && future->settled != 0;
}
int dur_code_of(const dur_future *future) {
    if (future == NULL) return DUR_EINVAL;
    return future->settled == 0 ? DUR_ERUNNING : future->code;
}
bool dur_is_none(const dur_future *future) {
    return future != NULL && future->is_none;
}
bool dur_is_final(const dur_future *future) {
    return future != NULL && future->is_final;
}

const char *dur_reason(const dur_future *future) {
    if (future == NULL || future->settled == 0 || future->code == DUR_OK) return "";
    return future->text;
}

void dur_drop(dur_future *future) {
    dur__exec *exec = dur__current();
    if (future == NULL || exec == NULL) return;
    if (future->exec != exec) dur__branch_failf(exec, "dur_drop: a future of another handler");
    if (future->kind == DUR__FUTURE_BRANCH && future->of.branch == exec->running)
        dur__branch_failf(exec, "dur_drop: a branch cannot drop itself");
    dur__future_drop(future, "dropped_future");
    if (exec->broken != DUR_OK || exec->running->ended) dur__branch_leave(exec);
}

void dur_detach(dur_future *future) {
    dur__exec *exec = dur__current();
    if (exec == NULL) return;
    if (future == NULL) dur__branch_failf(exec, "dur_detach: future is NULL");
    if (future->exec != exec) dur__branch_failf(exec, "dur_detach: a future of another handler");
    if (future->settled != 0) return;
    future->detached = true;
    if (future->kind == DUR__FUTURE_LEAF && future->of.leaf != NULL) future->of.leaf->detached = true;
    if (future->kind == DUR__FUTURE_RETRY && future->of.retry != NULL) dur__retry_detach(future->of.retry);
    if (future->kind == DUR__FUTURE_BRANCH && future->of.branch != NULL) future->of.branch->detached = true;
}
