/*
 * retry.c: an activity that is tried again: a state machine over leaves, without a stack.
 *
 * An attempt is an activity; a failed one is followed by a delay (a timer, if there is one) and the next attempt.  The
 * random part of a delay is decided when the timer is made and stands in its record.  A timeout, of the attempt or of
 * the whole call, is a timer made after the first attempt.  When any of its leaves is cancelled, it is: no further
 * attempt, no timeout reported (R5).  The machine outlives the future when that was detached.
 */
#include "replay/engine.h"
#include <math.h>
#include <stdlib.h>

#define TIMED_OUT "timeout: activity timed out"

struct dur__retrying {
    dur__link link;     /* in exec->retries */
    dur_future *future; /* NULL: nobody's any more */
    dur__leaf *leaves[DUR__ROLE_TOTAL_TIMEOUT + 1];
    dur_retry policy;
    uint32_t attempt;
    uint64_t first_id; /* of the first attempt, from its record on; 0: not recorded */
    bool detached;
    const char *site;
    char *name, *input, *session, *tag;
    uint64_t total_timeout_ms;
};

static void retry_free(dur__retrying *retry) {
    dur__list_unlink(&retry->link);
    dur__free(retry->name);
    dur__free(retry->input);
    dur__free(retry->session);
    dur__free(retry->tag);
    dur__free(retry);
}

void dur__retries_free(dur__exec *exec) {
    for (dur__link *link; (link = dur__list_first(&exec->retries)) != NULL;)
        retry_free(DUR__CONTAINER(link, dur__retrying, link));
}

static dur__leaf *retry_leaf(dur__exec *exec, dur__retrying *retry, dur__leaf_kind kind, dur__leaf_role role) {
    dur__leaf *leaf = dur__leaf_new(exec, kind, retry->site);
    leaf->role = role;
    leaf->retry = retry;
    leaf->detached = retry->detached;
    retry->leaves[role] = leaf;
    return leaf;
}

static void retry_timer(dur__exec *exec, dur__retrying *retry, dur__leaf_role role, uint64_t fire_at_ms, bool random) {
    dur__leaf *leaf = retry_leaf(exec, retry, DUR__LEAF_TIMER, role);
    dur_event event = { .kind = DUR_EVENT_TIMER_CREATED, .fire_at_ms = random && exec->replaying ? 0 : fire_at_ms };
    dur__leaf_schedule(exec, leaf, &event);
}

static void retry_attempt(dur__exec *exec, dur__retrying *retry) {
    dur__leaf *leaf = retry_leaf(exec, retry, DUR__LEAF_ACTIVITY, DUR__ROLE_ATTEMPT);
    leaf->name = dur__intern(exec, retry->name);
    leaf->attempt = retry->attempt;
    leaf->first_id = retry->first_id;
    dur_event event = { .kind = DUR_EVENT_ACTIVITY_SCHEDULED,
                        .name = retry->name,
                        .input = retry->input,
                        .session_id = retry->session,
                        .tag = retry->tag };
    if (!dur__leaf_schedule(exec, leaf, &event)) return;
    if (retry->attempt == 1 && retry->total_timeout_ms != 0)
        retry_timer(exec, retry, DUR__ROLE_TOTAL_TIMEOUT, dur__after(exec->now_ms, retry->total_timeout_ms), false);
    if (exec->broken == DUR_OK && retry->policy.attempt_timeout_ms != 0)
        retry_timer(exec, retry, DUR__ROLE_ATTEMPT_TIMEOUT, dur__after(exec->now_ms, retry->policy.attempt_timeout_ms),
                    false);
}

static void retry_drop_leaf(dur__exec *exec, dur__retrying *retry, dur__leaf_role role, const char *reason) {
    dur__leaf *leaf = retry->leaves[role];
    retry->leaves[role] = NULL;
    if (leaf == NULL || exec->broken != DUR_OK) return;
    leaf->retry = NULL;
    dur__leaf_drop(exec, leaf, reason);
}

void dur__retry_drop(dur__exec *exec, dur__retrying *retry, const char *reason) {
    for (int role = DUR__ROLE_ATTEMPT; role <= DUR__ROLE_TOTAL_TIMEOUT; role++)
        retry_drop_leaf(exec, retry, (dur__leaf_role)role, reason);
    if (exec->broken == DUR_OK) retry_free(retry);
}

static void retry_finish(dur__exec *exec, dur__retrying *retry, dur_code code, const char *text, bool is_final) {
    dur_future *future = retry->future;
    const char *kept = dur_arena_strdup(dur__passing(exec), text != NULL ? text : "");
    dur__retry_drop(exec, retry, "dropped_future");
    if (exec->broken == DUR_OK && future != NULL) {
        future->of.retry = NULL;
        future->is_final = is_final;
        dur__settle(future, code, kept);
    }
}

/* ---- after a failed attempt ---- */

static uint64_t retry_delay(const dur_retry *policy, uint32_t attempt) {
    double delay = (double)policy->delay_ms;
    switch (policy->backoff) {
    case DUR_BACKOFF_NONE:
        return 0;
    case DUR_BACKOFF_FIXED:
        break;
    case DUR_BACKOFF_LINEAR:
        delay *= attempt;
        break;
    case DUR_BACKOFF_EXPONENTIAL:
        for (uint32_t i = 1; i < attempt && delay < (double)policy->delay_ms_max; i++)
            delay *= policy->delay_factor;
        break;
    }
    return delay >= (double)policy->delay_ms_max ? policy->delay_ms_max : (uint64_t)delay;
}

static uint64_t retry_jitter(dur__exec *exec, const dur_retry *policy, uint64_t delay) {
    uint64_t bits = 0;
    exec->options.random(exec->options.random_data, &bits, sizeof(bits));
    double share = policy->jitter * (double)(bits >> 11) / 9007199254740992.0; /* 2^53 */
    return delay - (uint64_t)((double)delay * share);
}

static void retry_failed(dur__exec *exec, dur__retrying *retry, dur_code code, const char *reason, bool is_final) {
    const dur_retry *policy = &retry->policy;
    bool again = !is_final && retry->attempt < policy->attempts_max &&
                 !(code == DUR_ETIMEOUT && policy->no_retry_on_timeout) &&
                 (policy->predicate == NULL || policy->predicate(reason, retry->attempt, policy->predicate_data));
    if (!again) {
        retry_finish(exec, retry, code, reason, is_final);
        return;
    }
    dur__log_held(exec, DUR_LOG_WARN, "activity %s failed, attempt %u of %u: %s", retry->name, retry->attempt,
                  policy->attempts_max, reason);
    uint64_t delay = retry_delay(policy, retry->attempt);
    if (delay == 0) {
        retry->attempt++;
        retry_attempt(exec, retry);
        return;
    }
    bool random = policy->jitter > 0;
    if (random && !exec->replaying) delay = retry_jitter(exec, policy, delay);
    retry_timer(exec, retry, DUR__ROLE_DELAY, dur__after(exec->now_ms, delay), random);
}

void dur__retry_hear(dur__exec *exec, dur__retrying *retry, dur__leaf_role role, dur_code code, const char *text,
                     bool is_final) {
    retry->leaves[role] = NULL;
    if (code == DUR_ECANCELLED) {
        retry_finish(exec, retry, code, text, false);
        return;
    }
    switch (role) {
    case DUR__ROLE_ATTEMPT:
        retry_drop_leaf(exec, retry, DUR__ROLE_ATTEMPT_TIMEOUT, "dropped_future");
        if (code == DUR_OK)
            retry_finish(exec, retry, code, text, false);
        else
            retry_failed(exec, retry, code, text, is_final);
        break;
    case DUR__ROLE_DELAY:
        retry->attempt++;
        retry_attempt(exec, retry);
        break;
    case DUR__ROLE_ATTEMPT_TIMEOUT:
        retry_drop_leaf(exec, retry, DUR__ROLE_ATTEMPT, "dropped_future");
        if (exec->broken == DUR_OK) retry_failed(exec, retry, DUR_ETIMEOUT, TIMED_OUT, false);
        break;
    case DUR__ROLE_TOTAL_TIMEOUT:
        retry_finish(exec, retry, DUR_ETIMEOUT, TIMED_OUT, false);
        break;
    case DUR__ROLE_FUTURE:
        break;
    }
}

void dur__retry_detach(dur__retrying *retry) {
    retry->detached = true;
    for (int role = DUR__ROLE_ATTEMPT; role <= DUR__ROLE_TOTAL_TIMEOUT; role++)
        if (retry->leaves[role] != NULL) retry->leaves[role]->detached = true;
}

void dur__retry_orphan(dur__retrying *retry) {
    retry->future = NULL;
}

void dur__retry_bound(dur__retrying *retry, uint64_t id) {
    if (retry->first_id == 0) retry->first_id = id;
}

uint64_t dur__retry_first_id(const dur__retrying *retry) {
    return retry->first_id;
}

/* ---- the beginning ---- */

static void policy_read(dur__exec *exec, const dur_retry *given, dur_retry *own) {
    *own = (dur_retry){ .size = sizeof(*own), .attempts_max = 1 };
    if (given == NULL) return;
    dur__need_size(exec, "dur_retry", given->size, offsetof(dur_retry, delay_ms));
    *own = (dur_retry){ 0 };
    memcpy(own, given, given->size < sizeof(*own) ? given->size : sizeof(*own));
    if (own->attempts_max == 0) own->attempts_max = 3;
    if (own->delay_ms == 0) own->delay_ms = 100;
    if (own->delay_factor == 0) own->delay_factor = 2.0;
    if (own->delay_ms_max == 0) own->delay_ms_max = DUR_SECONDS(30);
    if ((unsigned)own->backoff > DUR_BACKOFF_NONE)
        dur__branch_failf(exec, "dur_retry: no such backoff: %d", (int)own->backoff);
    if (!(own->jitter >= 0 && own->jitter <= 1)) dur__branch_failf(exec, "dur_retry: jitter is not within 0 and 1");
    if (!isfinite(own->delay_factor) || own->delay_factor < 0)
        dur__branch_failf(exec, "dur_retry: delay_factor is not a positive number");
}

dur_future *dur__retry_start(dur__exec *exec, const dur_activity_args *args, const dur_retry *given,
                             uint64_t first_id) {
    dur_retry policy;
    policy_read(exec, given, &policy);
    dur_future *future = dur__future_new(exec, DUR__FUTURE_RETRY);
    dur__retrying *retry = dur__xcalloc(1, sizeof(*retry));
    dur__list_push(&exec->retries, &retry->link);
    retry->future = future;
    future->of.retry = retry;
    retry->policy = policy;
    retry->attempt = 1;
    retry->first_id = first_id;
    retry->site = args->site;
    retry->name = dur__xstrdup(args->name);
    retry->input = dur__xstrdup(args->input);
    retry->session = dur__xstrdup(args->session);
    retry->tag = dur__xstrdup(args->tag);
    retry->total_timeout_ms = policy.total_timeout_ms;
    if (args->timeout_ms != 0 && (retry->total_timeout_ms == 0 || args->timeout_ms < retry->total_timeout_ms))
        retry->total_timeout_ms = args->timeout_ms;
    retry_attempt(exec, retry);
    if (exec->broken != DUR_OK) dur__branch_leave(exec);
    return future;
}
