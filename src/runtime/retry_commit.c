/*
 * retry_commit.c: what the store's answer to a commit means.
 *
 * A passing failure keeps the turn and submits it again unchanged, after a capped and jittered delay, without end (L4).
 * A failed comparison drops the handler, which is ahead of the store and cannot go back.  When the outcome was not
 * learned, the first event of the turn is read back (L7).
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>

#define RETRY_BASE_MS 10
#define RETRY_MAX_MS 3000
#define RESTARTS_MAX 3 /* in a row; then the instance waits a second */
/* Who takes an instance that was given back looks at it afresh.  A store that refuses what is decided then, too (a
   damaged one), would keep its nodes busy with nothing else. */
#define CONFLICT_PAUSE_MS 100

static void log_conflict(const dur__inst *inst, const char *what, const char *message) {
    dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME,
             DUR__FIELDS(DUR__TEXT("instance_id", inst->id), DUR__NUMBER("execution_id", inst->execution_id)),
             "%s: the handler is dropped%s%s", what, message[0] != '\0' ? ": " : "", message);
}

/* Mostly the act of a client, who knows what it did; of a take-over the keeper warns, once for all leases. */
void dur__inst_lost(dur__inst *inst, const char *why) {
    DUR__COUNT(inst->loop->runtime, turn_conflicts);
    dur__local_learn(inst);
    dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME,
             DUR__FIELDS(DUR__TEXT("instance_id", inst->id), DUR__NUMBER("execution_id", inst->execution_id)),
             "\"%s\" was deleted, terminated or suspended by a client, or taken over by another node: its handler is "
             "dropped (%s)",
             inst->id, why);
    dur__inst_free(inst);
}

/* The lease is still ours and the handler is wrong: it is kept, and the history replayed, when this round's messages
   have been handed out (they are in the store's answer, and come again with the history). */
static void start_over(dur__inst *inst, const char *what, const char *message) {
    dur__loop *loop = inst->loop;
    DUR__COUNT(loop->runtime, turn_conflicts);
    log_conflict(inst, what, message);
    if (inst->exec == NULL && inst->commit != NULL && inst->commit->event_count == 0) {
        dur__inst_free(inst);
    } else if (inst->exec == NULL || loop->fallback || ++inst->restarts > RESTARTS_MAX) {
        dur__release(inst, inst->restarts > RESTARTS_MAX ? 1000 : CONFLICT_PAUSE_MS, true, false);
    } else {
        dur__inst_drop_exec(inst);
        dur__commit_end(inst);
        dur__list_unlink(&inst->link);
        inst->retry_at_us = 0;
        dur__list_push(&loop->restarts, &inst->link);
    }
}

static void mark_lost_work(dur__inst *inst, const dur_turn_commit *answer) {
    const dur__turn *turn = inst->exec != NULL ? dur__exec_turn(inst->exec) : NULL;
    dur__link *lists[2] = { turn != NULL ? turn->consumed : NULL, &inst->drained };
    for (int i = 0; i < 2; i++) {
        if (lists[i] == NULL) continue;
        DUR__LIST_EACH(lists[i], at) {
            dur__task *task = DUR__CONTAINER(at, dur__letter, arrival.link)->task;
            for (size_t l = 0; task != NULL && l < answer->lost_work_count; l++) {
                if (strcmp(answer->lost_work[l]->lock_token, task->token) == 0) task->row_gone = true;
            }
        }
    }
}

void dur__commit_retry(dur__inst *inst, const dur_error *why, bool unknown) {
    dur_runtime *runtime = inst->loop->runtime;
    uint64_t delay_ms = dur__backoff_ms(RETRY_BASE_MS, inst->tries++, RETRY_MAX_MS);
    inst->retry_at_us = dur__monotonic_us() + dur__backoff_jitter_us(runtime->world, delay_ms);
    inst->unknown |= unknown;
    inst->doubted |= unknown;
    DUR__COUNT(runtime, turn_retries);
    char times[DUR__TIMES_BYTES];
    if (dur__trouble_say(runtime, &runtime->said_turn, why->code, times))
        dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER,
                 DUR__FIELDS(DUR__TEXT("instance_id", inst->id), DUR__NUMBER("tries", inst->tries),
                             DUR__TEXT("operation", why->op)),
                 "a turn could not be committed and is kept: %s%s", why->message, times);
}

/* Whether the row is there with the token that the commit at hand gave to it. */
static int is_there(const dur__inst *inst, const dur_turn_work *work, bool *out, dur_error *err) {
    bool lost = true;
    dur_worker_claim claim = { .ref = { .instance = inst->id,
                                        .execution_id = work->message.execution_id,
                                        .activity_id = work->message.activity_id },
                               .lock_token = work->lock_token };
    int code = dur_store_check_works(inst->loop->runtime->store, &claim, 1, 0, &lost, err);
    *out = code == DUR_OK && !lost;
    return code;
}

/* A commit whose outcome is known now to be "done", without the store's answers.  What may be local and has no row
   under its token is, on a store that has local work: nobody else takes a row of ours while we live. */
static void assume_done(dur__inst *inst) {
    dur_turn_commit *commit = inst->commit;
    dur_error err = DUR_ERROR_INIT;
    commit->lease_kept = commit->keep_lease;
    for (size_t i = 0; i < commit->worker_item_count; i++) {
        dur_turn_work *work = &commit->worker_items[i];
        work->row_id = 0;
        work->locked = false;
        if (work->lock_token != NULL && is_there(inst, work, &work->locked, &err) != DUR_OK) {
            dur__commit_retry(inst, &err, true);
            return;
        }
        work->local = work->may_be_local && !work->locked && inst->loop->runtime->store->methods->local_work;
    }
    dur__commit_effects(inst);
    dur__commit_put_away(inst);
}

void dur__commit_learn(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    dur_turn_commit *commit = inst->commit;
    if (commit->event_count == 0) {
        const dur_turn_work *last = inst->sharing ? &commit->worker_items[commit->worker_item_count - 1] : NULL;
        dur_error err = DUR_ERROR_INIT;
        bool there = false;
        if (last != NULL && is_there(inst, last, &there, &err) != DUR_OK)
            dur__commit_retry(inst, &err, true);
        else if (there)
            assume_done(inst);
        else
            inst->unknown = false; /* consuming by id is idempotent, and so is giving up: simply once more */
        return;
    }
    dur_arena *arena = dur__pool_arena(loop);
    dur_event_row *rows = NULL;
    size_t count = 0;
    dur_error err = DUR_ERROR_INIT;
    int code = dur_store_read(loop->runtime->store, arena, inst->id, inst->execution_id, &rows, &count, &err);
    const dur_event_row *ours = &commit->events[0], *theirs = NULL;
    for (size_t i = 0; code == DUR_OK && i < count; i++) {
        if (rows[i].event_id == ours->event_id) theirs = &rows[i];
    }
    bool same = theirs != NULL && theirs->json.size == ours->json.size &&
                memcmp(theirs->json.data, ours->json.data, ours->json.size) == 0;
    dur__pool_arena_back(loop, arena);
    if (code != DUR_OK)
        dur__commit_retry(inst, &err, true);
    else if (same)
        assume_done(inst);
    else if (theirs == NULL && !inst->contested)
        inst->unknown = false; /* it may still be on its way: refused for its position it is looked for once more */
    else
        start_over(inst, "the history has changed", "another turn stands in its place");
}

void dur__commit_abandon(dur__inst *inst) {
    dur_error err = DUR_ERROR_INIT;
    int code = dur_store_abandon_orchestration_item(inst->loop->runtime->store, inst->token, inst->commit->delay_ms,
                                                    false, &err);
    if (code != DUR_OK && err.retryable)
        dur__commit_retry(inst, &err, false);
    else
        dur__inst_free(inst);
}

/* ---- a child without a parent ---- */

/* Its start, perhaps delivered twice.  Starts of others, behind it, make the next instance of that id. */
static size_t own_starts(const dur__inst *inst, const dur__link *list, uint64_t *ids, size_t count) {
    DUR__LIST_EACH(list, at) {
        const dur__letter *letter = DUR__CONTAINER(at, dur__letter, arrival.link);
        dur__parent parent = DUR__PARENT_OF(&letter->arrival.item);
        if (letter->arrival.item.kind != DUR_WORK_START_ORCHESTRATION) continue;
        if (!dur__same_parent(&parent, &inst->parent)) continue;
        if (ids != NULL) ids[count] = letter->message_id;
        count++;
    }
    return count;
}

/* Its parent was deleted before it was born: it goes without a trace. */
static void orphaned(dur__inst *inst) {
    size_t count = own_starts(inst, &inst->strays, NULL, own_starts(inst, &inst->drained, NULL, 0));
    uint64_t *ids = dur__xcalloc(count + 1, sizeof(*ids));
    (void)own_starts(inst, &inst->strays, ids, own_starts(inst, &inst->drained, ids, 0));
    dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME,
             DUR__FIELDS(DUR__TEXT("instance_id", inst->id), DUR__TEXT("parent", inst->parent.instance)),
             "its parent is gone: the child is not started");
    dur__forget(inst, ids, count);
    dur__free(ids);
}

/* A try that was not answered may commit behind the look for it, and stand in the way of the next: nobody else's turn.
 */
static void position_refused(dur__inst *inst, const dur_error *err) {
    if (inst->doubted && !inst->contested && inst->commit->event_count > 0) {
        inst->contested = true;
        dur__commit_retry(inst, err, true);
    } else {
        start_over(inst, "the history has changed", err->message);
    }
}

static void store_failed(dur__inst *inst, const dur_turn_commit *answer) {
    const dur_error *err = &answer->error;
    DUR__COUNT(inst->loop->runtime, provider_errors);
    if (err->code == DUR_EUNKNOWN || err->retryable) {
        dur__commit_retry(inst, err, err->code == DUR_EUNKNOWN);
    } else if (err->code == DUR_ELEASE) {
        dur__inst_lost(inst, err->message);
    } else if (err->code == DUR_ECONFLICT) {
        position_refused(inst, err);
    } else {
        /* A store that refuses this turn for good: count it, so that it ends as poison instead of for ever. */
        dur__log(DUR_LOG_ERROR, DUR__LOG_PROVIDER, DUR__FIELDS(DUR__TEXT("instance_id", inst->id)),
                 "the store refuses a turn: %s", err->message);
        if (inst->exec != NULL) {
            dur__release_counted(inst, 1000);
        } else if (inst->commit->set_suspended) {
            dur__release(inst, 60000, true, false);
        } else {
            dur__inst_committed_once(inst); /* nothing of it runs any more: suspects need not wait for it (L6) */
            dur__commit_retry(inst, err, false);
        }
    }
}

void dur__commit_confirmed(dur__inst *inst, const dur_turn_commit *answer) {
    if (inst->unborn != 0) dur__unborn_born(inst, answer);
    inst->commit->lease_kept = answer->lease_kept;
    dur__commit_effects(inst);
}

void dur__commit_refused(dur__inst *inst, const dur_turn_commit *answer) {
    if (inst->unborn != 0) {
        dur__unborn_failed(inst, &answer->error);
        return;
    }
    switch (answer->fault) {
    case DUR_TURN_FINE:
        break;
    case DUR_TURN_LEASE_LOST:
        dur__inst_lost(inst, answer->error.message);
        break;
    case DUR_TURN_POSITION:
        position_refused(inst, &answer->error);
        break;
    case DUR_TURN_WORK_LOST:
        mark_lost_work(inst, answer);
        start_over(inst, "an activity's row was taken by another node", answer->error.message);
        break;
    case DUR_TURN_STORE:
        store_failed(inst, answer);
        break;
    case DUR_TURN_ORPHAN:
        orphaned(inst);
        break;
    }
}
