/*
 * instance.c: one leased instance, from its acquisition until its lease is gone.
 *
 * An instance is in one state and in the list that belongs to it; dur__inst_move knows the legal moves.  While a turn
 * is on its way to the store the handler is not touched: what arrives waits in the inbox and is offered after the
 * answer.
 */
#include "runtime/runtime_internal.h"

#include "provider/live.h"

#include <stdlib.h>

#define FEED_MAX 64          /* queue messages read at a time */
#define TURN_EVENTS_MAX 4096 /* a longer turn is committed first and then goes on */
#define SLOW_TURN_US 1000000u

#define BIT(state) (1u << DUR__INST_##state)
static const unsigned moves[DUR__INST_STATES] = {
    [DUR__INST_ACQUIRED] = BIT(READY) | BIT(LEAVING) | BIT(GONE),
    [DUR__INST_READY] = BIT(READY) | BIT(COMMITTING) | BIT(PARKED) | BIT(LEAVING) | BIT(GONE),
    [DUR__INST_COMMITTING] = BIT(READY) | BIT(PARKED) | BIT(LEAVING) | BIT(GONE),
    [DUR__INST_PARKED] = BIT(READY) | BIT(COMMITTING) | BIT(LEAVING) | BIT(GONE),
    [DUR__INST_LEAVING] = BIT(LEAVING) | BIT(GONE),
    [DUR__INST_GONE] = 0,
};

/* Leaves the list of the old state; the caller puts it into the new one. */
void dur__inst_move(dur__inst *inst, dur__inst_state to) {
    DUR_ASSERT((moves[inst->state] & (1u << to)) != 0);
    if (inst->state == DUR__INST_PARKED) dur__unpark(inst);
    dur__list_unlink(&inst->link);
    inst->starving = false;
    inst->state = to;
}

dur__inst *dur__inst_new(dur__loop *loop, const dur_orchestration_item *item) {
    dur__inst *inst = dur__xcalloc(1, sizeof(*inst));
    inst->loop = loop;
    inst->state = DUR__INST_ACQUIRED;
    inst->id = dur__xstrdup(item->instance);
    inst->token = dur__xstrdup(item->lock_token);
    inst->store_key = item->store_key;
    inst->execution_id = item->execution_id;
    inst->queue_gap = item->more_messages;
    dur__list_init(&inst->inbox);
    dur__list_init(&inst->strays);
    dur__list_init(&inst->drained);
    dur__list_init(&inst->ends);
    dur__map_put(&loop->instances, inst->id, inst);
    dur__directory_put(loop->runtime, inst->id, loop);
    dur__live_add(loop->runtime->store, inst->id, inst);
    dur__keeper_renew_add(inst);
    return inst;
}

/* Read on in one queue and offer what is there.  *offered: something was. */
static int read_queue(dur__inst *inst, dur__exec *exec, const char *queue, uint64_t after_ms, uint64_t after_id,
                      bool *offered, dur_error *err) {
    dur__loop *loop = inst->loop;
    dur_fetched_message *messages = NULL;
    size_t count = 0;
    *offered = false;
    dur_arena *arena = dur__pool_arena(loop);
    int code = dur_store_lane_messages(loop->lane, arena, inst->id, inst->token, queue, after_ms, after_id, FEED_MAX,
                                       &messages, &count, err);
    if (code != DUR_OK) DUR__COUNT(loop->runtime, provider_errors);
    if (code == DUR_OK && !dur__loop_room(dur_arena_bytes(arena))) code = DUR__NO_MEMORY(err, "runtime.queue");
    for (size_t i = 0; code == DUR_OK && i < count; i++) {
        dur__letter *letter = dur__letter_from_message(inst, &messages[i]);
        if (letter == NULL) continue;
        dur__exec_offer(exec, &letter->arrival);
        *offered = true;
    }
    dur__pool_arena_back(loop, arena);
    return code;
}

static int more(void *data, const char *queue, uint64_t after_ms, uint64_t after_id, dur_error *err) {
    dur__inst *inst = data;
    bool offered;
    if (inst->unborn != 0) return DUR_OK; /* whom nobody knows nobody has sent anything */
    dur__user_leave(inst);
    int code = inst->loop->inside.left_behind
                   ? dur_error_set(err, DUR_EUNAVAILABLE, true, "runtime.turn", "the runtime has stopped")
                   : read_queue(inst, inst->exec, queue, after_ms, after_id, &offered, err);
    dur__user_enter(inst);
    /* Busy, full, cut off: whatever passes is the store's trouble, and no attempt of the instance (dur__inst_broken).
     */
    return code != DUR_OK && code != DUR_ENOMEM && err->retryable ? DUR_EUNAVAILABLE : code;
}

dur__exec *dur__inst_exec_new(dur__inst *inst, const dur_key_value *kv, size_t kv_count) {
    const dur_runtime *runtime = inst->loop->runtime;
    const dur_runtime_options *o = &runtime->options;
    size_t stack = inst->handler->stack_bytes != 0 ? inst->handler->stack_bytes : o->stack_bytes;
    return dur__exec_new(&(dur__exec_options){ .instance = inst->id,
                                               .execution_id = inst->execution_id,
                                               .name = inst->handler->name,
                                               .version = inst->handler->version,
                                               .fn = inst->handler->orchestration,
                                               .data = inst->handler->data,
                                               .unwind = inst->handler->unwind,
                                               .stack_bytes = stack,
                                               .stacks = inst->loop->stacks,
                                               .kv = kv,
                                               .kv_count = kv_count,
                                               .random = runtime->world->random,
                                               .random_data = runtime->world->data,
                                               .limits = { .payload_bytes_max = o->payload_bytes_max,
                                                           .custom_status_bytes_max = o->custom_status_bytes_max,
                                                           .kv_keys_max = o->kv_keys_max,
                                                           .kv_value_bytes_max = o->kv_value_bytes_max,
                                                           .tag_bytes_max = 256,
                                                           .arena_bytes_max = o->arena_bytes_max },
                                               .cancel_grace_ms = o->cancel_grace_ms,
                                               .queue_eager = inst->loop->fallback,
                                               .more = inst->loop->fallback ? NULL : more,
                                               .more_data = inst });
}

/* ---- arrivals ---- */

void dur__inst_receive(dur__inst *inst, dur__letter *letter) {
    dur__loop *loop = inst->loop;
    dur_work_kind kind = letter->arrival.item.kind;
    bool stray = kind == DUR_WORK_START_ORCHESTRATION || kind == DUR_WORK_CONTINUE_AS_NEW;
    bool live = inst->state == DUR__INST_READY || inst->state == DUR__INST_PARKED;
    if (stray)
        dur__list_push(&inst->strays, &letter->arrival.link);
    else if (live)
        dur__exec_offer(inst->exec, &letter->arrival);
    else
        dur__list_push(&inst->inbox, &letter->arrival.link);
    if (live) dur__loop_make_ready(loop, inst);
}

void dur__inst_attach(dur__inst *inst, dur__task *task) {
    if (task->inst != NULL || inst->exec == NULL) return;
    dur__task *older = dur__map_get_u64(&inst->tasks, task->ref.activity_id);
    if (older != NULL) dur__inst_detach(older); /* its row was lost, and has come back to us */
    task->inst = inst;
    atomic_fetch_add(&task->holders, 1);
    dur__map_put_u64(&inst->tasks, task->ref.activity_id, task);
}

void dur__inst_detach(dur__task *task) {
    if (task->inst == NULL) return;
    (void)dur__map_remove_u64(&task->inst->tasks, task->ref.activity_id);
    task->inst = NULL;
    dur__task_leave(task);
}

/* Messages are still in the store; a completion that nobody recorded goes there too (L5). */
void dur__inst_return_letter(dur__loop *loop, dur__letter *letter) {
    dur__task *task = letter->task;
    if (task != NULL && atomic_load(&task->local)) {
        dur__local_return(loop, task);
        return;
    }
    if (task == NULL || task->row_gone || task->epoch != loop->epoch) {
        dur__pool_letter_back(loop, letter);
        return;
    }
    dur__inst_detach(task);
    dur__list_push(&loop->acks, &task->link);
}

static void return_list(dur__loop *loop, dur__link *list) {
    for (dur__link *link; (link = dur__list_pop(list)) != NULL;)
        dur__inst_return_letter(loop, DUR__CONTAINER(link, dur__letter, arrival.link));
}

/* Its tasks stay: while the lease holds, whoever is replayed under it has them still. */
void dur__inst_drop_exec(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    if (inst->exec != NULL) {
        return_list(loop, dur__exec_consumed(inst->exec));
        dur__left verdict;
        for (dur__arrival *left; (left = dur__exec_drain(inst->exec, &verdict)) != NULL;)
            dur__inst_return_letter(loop, left->cookie);
        dur__count_max(&loop->runtime->counters.stack_high_water_bytes, dur__exec_stack_high_water(inst->exec));
        dur__user_enter(inst); /* what dur_on_drop was given */
        dur__exec_free(inst->exec);
        dur__user_leave(inst);
        inst->exec = NULL;
    }
    return_list(loop, &inst->drained);
    return_list(loop, &inst->inbox);
    return_list(loop, &inst->strays);
    dur__rerun_free(inst->rerun);
    inst->rerun = NULL;
}

void dur__inst_committed_once(dur__inst *inst) {
    if (!inst->uncommitted) return;
    inst->uncommitted = false;
    dur__gate_release(&inst->alone);
}

void dur__inst_forget_parent(dur__inst *inst) {
    dur__free((void *)(uintptr_t)inst->parent.instance);
    inst->parent = (dur__parent){ .instance = NULL };
}

void dur__inst_free(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    dur__inst_move(inst, DUR__INST_GONE);
    dur__inst_drop_exec(inst);
    dur__commit_end(inst);
    dur__local_forget(inst);
    dur__inst_committed_once(inst);
    dur__keeper_renew_remove(inst);
    dur__directory_remove(loop->runtime, inst->id, loop);
    dur__live_remove(loop->runtime->store, inst->id, inst);
    if (inst->unborn != 0) dur__taker_back(&loop->taker, inst->unborn, NULL);
    if (dur__map_get(&loop->instances, inst->id) == inst) dur__map_remove(&loop->instances, inst->id);
    dur__inst_forget_parent(inst);
    dur__free(inst->token);
    dur__free(inst->id);
    dur__free(inst);
}

/* ---- running ---- */

/* The store holds queue messages that we were not given: read on where a dequeue waits.  True: something was offered.
 */
static bool feed(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    if (!inst->queue_gap || loop->fallback || loop->inside.left_behind || dur__exec_finished(inst->exec)) return false;
    bool offered = false;
    uint64_t after_ms, after_id;
    size_t i = 0;
    for (const char *queue; (queue = dur__exec_hungry(inst->exec, i, &after_ms, &after_id)) != NULL;) {
        dur_error err = DUR_ERROR_INIT;
        bool some;
        if (read_queue(inst, inst->exec, queue, after_ms, after_id, &some, &err) != DUR_OK) {
            inst->starving = true;
            break;
        }
        offered |= some;
        if (!some) i++; /* this one stays hungry */
    }
    return offered;
}

void dur__inst_ran(const dur__inst *inst, uint64_t begin_us) {
    uint64_t took_us = dur__monotonic_us() - begin_us;
    if (took_us <= SLOW_TURN_US) return;
    const char *where = dur__exec_where(inst->exec);
    if (where == NULL || where[0] == '\0') where = "its beginning";
    dur__log(DUR_LOG_WARN, DUR__LOG_ORCHESTRATION,
             DUR__FIELDS(DUR__TEXT("instance_id", inst->id), DUR__TEXT("orchestration_name", inst->handler->name),
                         DUR__TEXT("site", where), DUR__NUMBER("took_ms", took_us / 1000)),
             "a turn of \"%s\" took %llu ms: handlers must not block (last call at %s)", inst->handler->name,
             (unsigned long long)(took_us / 1000), where);
}

static int run(dur__inst *inst, dur_error *err) {
    dur__loop *loop = inst->loop;
    int code = DUR_OK;
    inst->again = false;
    for (bool took = true; took;) {
        dur__user_enter(inst);
        code = dur__exec_step(inst->exec, loop->now_ms, &took, err);
        dur__user_leave(inst);
        if (code != DUR_OK) break;
        if (!took)
            took = feed(inst);
        else if (!loop->fallback && dur__exec_turn(inst->exec)->event_count > TURN_EVENTS_MAX) {
            inst->again = true;
            break;
        }
    }
    return code;
}

/* Payloads are as large as they are, and nothing has left yet.  False: no memory, and the commit is begun at most. */
static bool build(dur__inst *inst, bool *built) {
    dur__way_out out;
    if (DUR__OUT_OF_MEMORY(&out)) {
        dur__turn_unbuild(inst);
        return false;
    }
    *built = dur__turn_build(inst);
    dur__way_out_end(&out);
    return true;
}

void dur__inst_step(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    DUR_ASSERT(inst->state == DUR__INST_READY && inst->exec != NULL);
    dur_error err = DUR_ERROR_INIT;
    uint64_t begin_us = dur__monotonic_us();
    inst->starving = false;
    int code = run(inst, &err);
    dur__inst_ran(inst, begin_us);
    if (code == DUR_OK && loop->runtime->options.double_run) code = dur__rerun_check(inst, &err);
    if (code != DUR_OK) {
        dur__inst_broken(inst, code, &err);
        return;
    }
    bool starving = inst->starving, built = false;
    if (!build(inst, &built)) {
        dur__inst_later(inst);
        return;
    }
    if (built) {
        inst->again |= starving;
        dur__loop_queue_commit(inst);
    } else if (starving) {
        dur__list_unlink(&inst->link);
        dur__list_push(&loop->starving, &inst->link);
        loop->starving_until_us = dur__monotonic_us() + 20000;
    } else if (inst->asked) {
        dur__release(inst, 0, true, false);
    } else {
        dur__park(inst);
    }
}

void dur__inst_settle(dur__inst *inst) {
    if (inst->asked) {
        dur__release(inst, 0, true, false);
        return;
    }
    if (inst->reread) {
        inst->reread = false;
        dur__inst_later(inst);
        return;
    }
    bool more = inst->again || !dur__list_empty(&inst->strays);
    inst->again = false;
    for (dur__link *link; (link = dur__list_pop(&inst->inbox)) != NULL;) {
        dur__exec_offer(inst->exec, DUR__CONTAINER(link, dur__arrival, link));
        more = true;
    }
    if (more)
        dur__loop_make_ready(inst->loop, inst);
    else
        dur__park(inst);
}

/* ---- handlers that cannot go on ---- */

static void fail_by_policy(dur__inst *inst, const dur_error *why) {
    dur_error err = DUR_ERROR_INIT;
    dur_failure failure = { .category = DUR_FAILURE_CONFIGURATION,
                            .resource = inst->handler != NULL ? inst->handler->name : "",
                            .message = why->message };
    if (dur__ending_build(inst, &(dur__ending){ .failure = &failure }, &err) == DUR_OK) {
        DUR__COUNT(inst->loop->runtime, orchestration_configuration_errors);
        dur__loop_queue_commit(inst);
    } else {
        dur__log(DUR_LOG_WARN, DUR__LOG_ORCHESTRATION, DUR__FIELDS(DUR__TEXT("instance_id", inst->id)),
                 "an instance that must end could not be ended yet: %s", err.message);
        dur__release(inst, 1000, true, false);
    }
}

void dur__inst_broken(dur__inst *inst, int code, const dur_error *why) {
    dur_runtime *runtime = inst->loop->runtime;
    dur_error reason = *why;
    if (inst->unborn != 0) { /* what becomes of it is recorded, so it must be in the store first */
        dur__inst_free(inst);
        return;
    }
    if (code == DUR_ENOMEM) { /* of the process: nothing of it is the instance's fault */
        dur__inst_later(inst);
        return;
    }
    if (code == DUR_ELEASE) { /* as a commit that is refused for it: mostly the act of a client */
        dur__inst_lost(inst, reason.message);
        return;
    }
    dur__log(DUR_LOG_ERROR, DUR__LOG_ORCHESTRATION,
             DUR__FIELDS(DUR__TEXT("instance_id", inst->id), DUR__NUMBER("execution_id", inst->execution_id),
                         DUR__TEXT("orchestration_name", inst->handler != NULL ? inst->handler->name : ""),
                         DUR__TEXT("code", dur_code_name(code))),
             "%s", reason.message);
    dur__inst_drop_exec(inst);
    if (code == DUR_ENONDETERMINISM && runtime->options.nondeterminism == DUR_NONDETERMINISM_FAIL) {
        fail_by_policy(inst, &reason);
    } else if (code == DUR_ENONDETERMINISM || code == DUR_ELIMIT) {
        dur__suspend(inst, reason.message);
    } else if (code == DUR_EUNAVAILABLE) {
        /* No store.  Nothing of this is the instance's fault. */
        dur__release(inst, 200, true, false);
    } else {
        dur__release_counted(inst, 1000);
    }
}
