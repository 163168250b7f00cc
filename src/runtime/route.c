/*
 * route.c: where completions and taken work go.
 *
 * A completion goes one way (L5): into the handler, when this loop holds the instance's lease and the execution is the
 * one that asked; otherwise through the store's queue.  Only the loop's thread decides, so there is no race to lose.
 */
#include "runtime/runtime_internal.h"

/* ---- completions ---- */

static void ack(dur__loop *loop, dur__task *task, bool bare) {
    task->ack_bare = bare;
    task->ack_tries = 0;
    task->ack_retry_at_us = 0;
    dur__list_push(&loop->acks, &task->link);
}

static void give_up(dur__loop *loop, dur__task *task, uint64_t delay_ms, bool ignore_attempt, const char *reason);

/* Deleted and started again under its id, an instance asks for the same activities: each gets the ends of its own.
   Where an item does not say whose it is (an older one, or another program's) the store decides, by the row. */
static bool asked_for(const dur__inst *inst, const dur__task *task) {
    return inst->execution_id == task->ref.execution_id && inst->birth == task->item.birth;
}

/* It was told to return because this runtime stops: what it said then is no answer.  One with a row is given back at
   once; one without stays with its instance, whose lease goes soon, and gets its row then (local.c). */
static void not_answered(dur__loop *loop, dur__task *task) {
    dur__gate_release(&task->alone);
    if (atomic_load(&task->local)) {
        dur__task_leave(task);
        return;
    }
    dur__inst_detach(task);
    give_up(loop, task, 0, true, NULL);
}

void dur__route_completion(dur__loop *loop, dur__task *task) {
    dur__inst *inst = dur__map_get(&loop->instances, task->item.instance);
    if (task->epoch > loop->epoch) { /* another loop has the new owner id already: not before we have it, too */
        dur__loop_done(loop, task);
        return;
    }
    if (loop->expected > 0) loop->expected--;
    loop->gathered = true;
    if (loop->sessions_skipped) {
        loop->sessions_skipped = false;
        loop->look_work = true;
    }
    if (task->row_gone || task->epoch != loop->epoch) {
        dur__pool_task_back(loop, task);
        return;
    }
    if (task->unanswered) {
        not_answered(loop, task);
        return;
    }
    if (atomic_load(&task->local)) {
        dur__local_end(loop, task);
        return;
    }
    bool live = inst != NULL && inst->exec != NULL && !loop->fallback;
    if (live && asked_for(inst, task)) {
        dur__arrival *arrival = &task->letter.arrival;
        arrival->order_ms = loop->now_ms;
        arrival->order_id = (UINT64_MAX >> 1) + ++loop->arrival_serial; /* behind what the store had by then */
        dur__inst_receive(inst, &task->letter);
        return;
    }
    dur__inst_detach(task);
    dur__loop *other = inst == NULL && !task->routed ? dur__directory_get(loop->runtime, task->item.instance) : NULL;
    if (other != NULL && other != loop) {
        task->routed = true;
        task->loop = other;
        dur__loop_done(other, task);
        return;
    }
    /* An earlier execution's activity that was let go on: nobody waits, only the row is in the way. */
    ack(loop, task, live && inst->execution_id != task->ref.execution_id);
}

void dur__route_acked(dur__loop *loop, dur__task *task, const dur_error *answer) {
    if (answer->code == DUR_OK || !(answer->retryable || answer->code == DUR_EUNKNOWN)) {
        if (answer->code != DUR_OK && answer->code != DUR_ELEASE)
            dur__log(
                DUR_LOG_ERROR, DUR__LOG_ACTIVITY,
                DUR__FIELDS(DUR__TEXT("instance_id", task->item.instance), DUR__TEXT("activity_name", task->item.name)),
                "the store refuses the end of an activity: %s", answer->message);
        dur__pool_task_back(loop, task);
        return;
    }
    DUR__COUNT(loop->runtime, provider_errors);
    uint64_t delay_ms = dur__backoff_ms(10, task->ack_tries++, 3000);
    task->ack_retry_at_us = dur__monotonic_us() + dur__backoff_jitter_us(loop->runtime->world, delay_ms);
    dur__list_push(&loop->acks, &task->link);
}

/* ---- work ---- */

/* crashed: so often as it may it ran alone, and the process died; else it was handed out too often for other reasons.
 */
static void poison_activity(dur__loop *loop, dur__task *task, bool crashed) {
    uint32_t count = crashed ? loop->runtime->options.max_attempts : task->delivery - 1;
    const char *why = dur_arena_format(
        task->arena, crashed ? "ran %u times and the process died each time" : "was taken %u times and never ended",
        (unsigned)count);
    dur_failure failure = { .category = DUR_FAILURE_POISON,
                            .poison = DUR_POISON_ACTIVITY,
                            .attempt_count = count,
                            .max_attempts = loop->runtime->options.max_attempts,
                            .instance = task->item.instance,
                            .execution_id = task->item.execution_id,
                            .activity_name = task->item.name,
                            .activity_id = task->item.id,
                            .message = why };
    dur__task_fail(task, &failure);
    dur__gate_release(&task->alone);
    DUR__COUNT(loop->runtime, activity_poison);
    dur__log(DUR_LOG_ERROR, DUR__LOG_ACTIVITY,
             DUR__FIELDS(DUR__TEXT("instance_id", task->item.instance), DUR__TEXT("activity_name", task->item.name),
                         DUR__NUMBER("attempt", count)),
             "activity \"%s\" %s: it is failed as poison", task->item.name, why);
}

/* Before its end is recorded: from then on nobody knows it.  Others who ran beside it are cleared. */
static bool blame(dur__loop *loop, const dur__task *task) {
    dur_error err = DUR_ERROR_INIT;
    if (dur_store_blame(loop->runtime->store, task->token, &err) == DUR_OK) return true;
    DUR__COUNT(loop->runtime, provider_errors);
    dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER, NULL, 0, "an activity could not be given up yet: %s", err.message);
    return false;
}

/* ---- what this node cannot keep ---- */

/* A row that stays locked under a living owner is nobody's: it is given back until the store has taken it. */
static void try_back(dur__loop *loop, dur__task *task) {
    dur_provider *store = loop->runtime->store;
    dur_error err = DUR_ERROR_INIT;
    int code = DUR_OK;
    if (task->epoch == loop->epoch) /* else it has gone with the old owner id */
        code = task->back.reason != NULL ? dur_store_dead_letter_work(store, task->token, task->back.reason, &err)
                                         : dur_store_abandon_work_item(store, task->token, task->back.delay_ms,
                                                                       task->back.ignore_attempt, &err);
    if (code == DUR_OK || code == DUR_ELEASE) {
        dur__pool_task_back(loop, task);
        return;
    }
    DUR__COUNT(loop->runtime, provider_errors);
    if (task->ack_tries == 0)
        dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER, NULL, 0,
                 "a worker item could not be given back; it is tried until it succeeds: %s", err.message);
    uint64_t delay_ms = dur__backoff_ms(10, task->ack_tries++, 3000);
    task->ack_retry_at_us = dur__monotonic_us() + dur__backoff_jitter_us(loop->runtime->world, delay_ms);
    dur__list_push(&loop->backs, &task->link);
}

static void give_up(dur__loop *loop, dur__task *task, uint64_t delay_ms, bool ignore_attempt, const char *reason) {
    dur__gate_release(&task->alone); /* it does not run here */
    task->back.delay_ms = delay_ms;
    task->back.ignore_attempt = ignore_attempt;
    task->back.reason = dur_arena_strdup(task->arena, reason);
    task->ack_tries = 0;
    try_back(loop, task);
}

uint64_t dur__route_backs(dur__loop *loop, uint64_t now_us) {
    uint64_t next_us = UINT64_MAX;
    dur__link due;
    dur__list_init(&due);
    DUR__LIST_EACH_SAFE(&loop->backs, at, after) {
        if (DUR__CONTAINER(at, dur__task, link)->ack_retry_at_us > now_us) continue;
        dur__list_unlink(at);
        dur__list_push(&due, at);
    }
    for (dur__link *link; (link = dur__list_pop(&due)) != NULL;)
        try_back(loop, DUR__CONTAINER(link, dur__task, link));
    DUR__LIST_EACH(&loop->backs, left) {
        uint64_t at_us = DUR__CONTAINER(left, dur__task, link)->ack_retry_at_us;
        if (at_us < next_us) next_us = at_us;
    }
    return next_us;
}

static void unregistered_activity(dur__loop *loop, dur__task *task) {
    dur_runtime *runtime = loop->runtime;
    uint32_t max = runtime->options.unregistered_attempts_max;
    uint64_t delay = dur__backoff_unregistered(runtime, "activity", task->item.name, NULL);
    if (max != 0 && task->delivery >= max) {
        dur_failure failure = { .category = DUR_FAILURE_CONFIGURATION,
                                .resource = task->item.name,
                                .missing = "handler",
                                .message = dur_arena_format(task->arena, "activity \"%s\" is not registered",
                                                            task->item.name) };
        dur__task_fail(task, &failure);
        dur__route_completion(loop, task);
        return;
    }
    give_up(loop, task, delay, max == 0, NULL);
}

/* False: it is out of the way. */
static bool decode(dur__loop *loop, const dur_leased_work *work, dur_work_item *item, dur__task *task) {
    dur_error err = DUR_ERROR_INIT;
    int code = dur_work_from_json(item, task->arena, work->json, &err);
    if (code == DUR_OK && item->kind == DUR_WORK_ACTIVITY_EXECUTE) return true;
    if (code == DUR_EUNSUPPORTED) {
        dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME, NULL, 0,
                 "a worker item is of a kind that this version does not know; it is left for a newer node: %s",
                 err.message);
        give_up(loop, task, 60000, true, NULL);
        return false;
    }
    char reason[512];
    if (code == DUR_OK)
        snprintf(reason, sizeof(reason), "%s is not an activity", dur_work_kind_name(item->kind));
    else
        snprintf(reason, sizeof(reason), "%.500s", err.message);
    dur__log(DUR_LOG_ERROR, DUR__LOG_RUNTIME, NULL, 0, "a worker item is a dead letter: %s", reason);
    give_up(loop, task, 0, false, reason);
    return false;
}

/* The caller has reserved room for it; what is not handed out gives it back. */
void dur__route_work(dur__loop *loop, const dur_leased_work *work, uint64_t alone) {
    dur_runtime *runtime = loop->runtime;
    dur__task *task = dur__pool_task(loop);
    dur_work_item item;
    task->alone = alone;
    task->token = dur_arena_strdup(task->arena, work->lock_token);
    DUR__COUNT(runtime, work_items_fetched);
    if (!dur__loop_room(work->json.size)) { /* it goes back until the store has taken it */
        dur__work_unreserve(runtime, 1);
        give_up(loop, task, 100, true, NULL);
        return;
    }
    if (!decode(loop, work, &item, task)) {
        dur__work_unreserve(runtime, 1);
        return;
    }
    dur__task_fill(task, &item);
    task->ref.row_id = work->ref.row_id;
    task->delivery = work->attempt_count != 0 ? work->attempt_count : 1;
    if (!dur__syscall_known(item.name)) {
        task->handler = dur__runtime_find(runtime, DUR_HANDLER_ACTIVITY, item.name, NULL);
        if (task->handler == NULL) {
            dur__work_unreserve(runtime, 1);
            unregistered_activity(loop, task);
            return;
        }
    }
    uint32_t max = runtime->options.max_attempts;
    bool crashed = work->crashes_alone >= max;
    if (crashed || task->delivery > (uint64_t)max + work->crashes) {
        dur__work_unreserve(runtime, 1);
        if (crashed && !blame(loop, task)) {
            give_up(loop, task, 1000, true, NULL);
            return;
        }
        poison_activity(loop, task, crashed);
        dur__route_completion(loop, task);
        return;
    }
    if (alone != 0)
        dur__gate_enter(
            alone, task->token, work->crashes,
            dur_arena_format(task->arena, "activity \"%s\" of \"%s\"", task->item.name, task->item.instance));
    dur__inst *inst = dur__map_get(&loop->instances, task->item.instance);
    if (inst != NULL && inst->execution_id == task->ref.execution_id) dur__inst_attach(inst, task);
    dur__list_push(&loop->hand_out, &task->link);
    loop->hand_out_count++;
}

/* What this round has locked so far, with one wake. */
void dur__route_hand_out(dur__loop *loop) {
    if (loop->hand_out_count == 0) return;
    loop->handed_out += loop->hand_out_count;
    loop->expected = loop->handed_out;
    loop->handed_at_us = dur__monotonic_us();
    dur__work_push(loop->runtime, &loop->hand_out, loop->hand_out_count);
    loop->hand_out_count = 0;
}

/* ---- giving back ---- */

static void push_again(dur__loop *loop, dur__link *tasks, size_t count) {
    dur__mutex_lock(&loop->runtime->work.mutex);
    loop->runtime->work.reserved += count; /* they were here before: the bound is not the question */
    dur__mutex_unlock(&loop->runtime->work.mutex);
    dur__work_push(loop->runtime, tasks, count);
}

void dur__route_give_back(dur__loop *loop, uint64_t waited_us) {
    dur__link tasks;
    dur__list_init(&tasks);
    size_t count = dur__work_take_waiting(loop->runtime, loop, &tasks, waited_us, false);
    if (count == 0) return;
    if (!dur__loop_room(count * sizeof(dur_worker_claim)) && dur__runtime_phase(loop->runtime) == DUR__PHASE_RUN) {
        push_again(loop, &tasks, count);
        return;
    }
    dur_arena *arena = dur__pool_arena(loop);
    dur_worker_claim *claims = dur_arena_zalloc(arena, count * sizeof(*claims));
    size_t used = 0;
    DUR__LIST_EACH(&tasks, at) {
        const dur__task *task = DUR__CONTAINER(at, dur__task, link);
        if (task->epoch != loop->epoch) continue;
        claims[used++] = (dur_worker_claim){ .ref = task->ref, .lock_token = task->token };
    }
    dur_error err = DUR_ERROR_INIT;
    int code = used > 0 ? dur_store_return_works(loop->runtime->store, claims, used, &err) : DUR_OK;
    dur__pool_arena_back(loop, arena);
    if (code != DUR_OK && dur__runtime_phase(loop->runtime) == DUR__PHASE_RUN) {
        push_again(loop, &tasks, count);
        return;
    }
    for (dur__link *link; (link = dur__list_pop(&tasks)) != NULL;)
        dur__pool_task_back(loop, DUR__CONTAINER(link, dur__task, link));
}
