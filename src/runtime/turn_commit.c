/*
 * turn_commit.c: from what a handler did to what the store is asked to write, and what follows when it has.
 *
 * A commit lives in an arena of its own until it is answered for good, because a turn that failed for a passing reason
 * is submitted again unchanged (L4).  Its events and items are borrowed from the handler, which is not touched
 * meanwhile.
 */
#include "runtime/runtime_internal.h"

#include "provider/live.h"
#include "provider/tags.h"

#include "core/semver.h"
#include <durite/version.h>
#include <stdio.h>

/* ---- beginning and end ---- */

dur_turn_commit *dur__commit_begin(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    DUR_ASSERT(inst->commit == NULL);
    inst->commit_arena = dur__pool_arena(loop);
    inst->commit =
        dur_arena_zalloc(inst->commit_arena, sizeof(*inst->commit)); /* in what the arena has from the start */
    inst->eager = NULL;
    inst->eager_count = 0;
    inst->tries = 0;
    inst->retry_at_us = 0;
    inst->unknown = inst->doubted = inst->contested = false;
    inst->leaves = true;
    *inst->commit = (dur_turn_commit){ .lock_token = inst->token,
                                       .instance = inst->id,
                                       .store_key = inst->store_key,
                                       .execution_id = inst->execution_id,
                                       .expected_last = DUR_NOT_COMPARED,
                                       .consume_listed = true,
                                       .writes_start = inst->unborn != 0,
                                       .owner = loop->owner,
                                       .session_owner = dur__runtime_session_owner(loop->runtime, loop->owner),
                                       .session_lock_ms = loop->runtime->options.session_lock_timeout_ms };
    return inst->commit;
}

/* Tasks that were made for locks and not handed out go back. */
void dur__commit_end(dur__inst *inst) {
    if (inst->commit_arena == NULL) return;
    size_t unused = 0;
    for (size_t i = 0; i < inst->eager_count; i++) {
        if (inst->eager[i] == NULL) continue;
        dur__pool_task_back(inst->loop, inst->eager[i]);
        unused++;
    }
    dur__work_unreserve(inst->loop->runtime, unused);
    inst->eager = NULL;
    inst->eager_count = 0;
    inst->converting = NULL;
    inst->converting_count = 0;
    inst->sharing = false;
    inst->commit = NULL;
    dur__pool_arena_back(inst->loop, inst->commit_arena);
    inst->commit_arena = NULL;
}

static void encode(dur_message_row *out, dur_arena *arena, const dur_work_item *item, uint64_t due_ms) {
    dur_error err = DUR_ERROR_INIT;
    int code = dur_message_row_from_work(out, arena, item, &err);
    DUR_ASSERT(code == DUR_OK); /* everything in it was checked where it entered */
    if (due_ms != 0) out->due_ms = due_ms;
}

/* ---- work that is locked for this node in the same commit (L9) ---- */

static bool admitted(dur_runtime *runtime, const dur_work_item *item, const dur__handler **handler) {
    *handler = NULL;
    if (!dur__tag_admitted(&runtime->tag_filter, item->tag)) return false;
    if (dur__syscall_known(item->name)) return true;
    *handler = dur__runtime_find(runtime, DUR_HANDLER_ACTIVITY, item->name, NULL);
    if (*handler == NULL) return false;
    if (item->session_id == NULL) return true;
    dur__mutex_lock(&runtime->work.mutex);
    bool fits =
        !dur__session_closed(runtime) && (dur__session_busy(runtime, item->session_id) || !dur__session_full(runtime));
    dur__mutex_unlock(&runtime->work.mutex);
    return fits;
}

static const char *new_token(dur__loop *loop, dur_arena *arena) {
    return dur_arena_format(arena, "%016llx-%llx", (unsigned long long)loop->token_prefix,
                            (unsigned long long)++loop->token_serial);
}

static bool eager_wanted(const dur__loop *loop) {
    return dur__runtime_phase(loop->runtime) == DUR__PHASE_RUN && !loop->fallback && !loop->work_waiting_long;
}

/* Which attempt of which call it is no history says, and a session is active by its rows. */
static bool may_be_local(const dur_turn_commit *commit, const dur_work_item *item) {
    return commit->keep_lease && item->session_id == NULL && item->attempt <= 1 && item->first_id == 0;
}

static void add_work(dur__inst *inst, const dur__turn *turn) {
    dur__loop *loop = inst->loop;
    dur_turn_commit *commit = inst->commit;
    dur_arena *arena = inst->commit_arena;
    size_t count = turn->worker_item_count;
    if (count == 0) return;
    commit->worker_items = dur_arena_zalloc(arena, count * sizeof(*commit->worker_items));
    commit->worker_item_count = count;
    inst->eager = dur_arena_zalloc(arena, count * sizeof(dur__task *));
    inst->eager_count = count;
    dur__map_xreserve(&inst->tasks, count); /* what is handed out behind the commit needs no memory */
    inst->granted = eager_wanted(loop) ? dur__work_reserve(loop->runtime, count, false) : 0;
    for (size_t i = 0; i < count; i++) {
        const dur__turn_item *item = &turn->worker_items[i];
        const dur__handler *handler;
        encode(&commit->worker_items[i].message, arena, &item->item, item->due_ms);
        if (inst->granted == 0 || !admitted(loop->runtime, &item->item, &handler)) continue;
        dur__task *task = dur__pool_task(loop);
        inst->eager[i] = task; /* at once: whoever gives the commit up gives it back, and its room */
        inst->granted--;
        dur__task_fill(task, &item->item);
        task->handler = handler;
        task->delivery = 1;
        task->token = new_token(loop, task->arena);
        commit->worker_items[i].lock_token = task->token;
        commit->worker_items[i].may_be_local = may_be_local(commit, &item->item);
    }
    dur__work_unreserve(loop->runtime, inst->granted);
    inst->granted = 0;
}

/* ---- what is deleted ---- */

static dur_activity_ref *refs(dur__inst *inst, const uint64_t *ids, size_t count, bool activities) {
    if (count == 0) return NULL;
    dur_activity_ref *out = dur_arena_zalloc(inst->commit_arena, count * sizeof(*out));
    for (size_t i = 0; i < count; i++) {
        dur__task *task = activities ? dur__map_get_u64(&inst->tasks, ids[i]) : NULL;
        out[i] = (dur_activity_ref){ .instance = inst->id,
                                     .execution_id = inst->execution_id,
                                     .activity_id = ids[i],
                                     .row_id = task != NULL ? task->ref.row_id : 0 };
        if (task != NULL) task->dropping = true;
    }
    return out;
}

typedef struct consumption {
    uint64_t *ids;
    size_t id_count;
    dur_worker_claim *claims;
    size_t claim_count;
    dur_activity_ref *unused;
    size_t unused_count;
} consumption;

static size_t list_length(const dur__link *list) {
    size_t count = 0;
    if (list != NULL) DUR__LIST_EACH(list, at) count++;
    return count;
}

/* An end that is recorded stands or falls with its row.  Of an end that nobody waits for the row goes, if it is there:
   who dropped the activity has deleted the row, perhaps under another lease. */
static void consume(consumption *to, const dur__link *list, bool unused) {
    if (list == NULL) return;
    DUR__LIST_EACH(list, at) {
        const dur__letter *letter = DUR__CONTAINER(at, dur__letter, arrival.link);
        const dur__task *task = letter->task;
        if (task == NULL)
            to->ids[to->id_count++] = letter->message_id;
        else if (task->dropping || task->row_gone || atomic_load(&task->local))
            continue;
        else if (unused || letter->arrival.unused)
            to->unused[to->unused_count++] = task->ref;
        else
            to->claims[to->claim_count++] = (dur_worker_claim){ .ref = task->ref, .lock_token = task->token };
    }
}

static void add_consumed(dur__inst *inst, const dur__link *taken) {
    dur_turn_commit *commit = inst->commit;
    size_t count = list_length(taken) + list_length(&inst->drained), dropped = commit->cancelled_count;
    if (count == 0) return;
    consumption to = { .ids = dur_arena_alloc(inst->commit_arena, count * sizeof(uint64_t)),
                       .claims = dur_arena_alloc(inst->commit_arena, count * sizeof(dur_worker_claim)),
                       .unused = dur_arena_alloc(inst->commit_arena, (dropped + count) * sizeof(dur_activity_ref)),
                       .unused_count = dropped };
    if (dropped > 0) memcpy(to.unused, commit->cancelled, dropped * sizeof(*to.unused));
    consume(&to, taken, false);
    consume(&to, &inst->drained, true);
    commit->cancelled = to.unused;
    commit->cancelled_count = to.unused_count;
    commit->consumed = to.ids;
    commit->consumed_count = to.id_count;
    commit->worker_consumed = to.claims;
    commit->worker_consumed_count = to.claim_count;
}

/* ---- messages ---- */

bool dur__start_refused(const dur__inst *inst, const dur_work_item *start) {
    dur__parent caller = DUR__PARENT_OF(start);
    return start->kind == DUR_WORK_START_ORCHESTRATION && caller.instance != NULL &&
           !dur__same_parent(&caller, &inst->parent);
}

static void add_messages(dur__inst *inst, const dur__turn *turn) {
    dur_turn_commit *commit = inst->commit;
    dur_arena *arena = inst->commit_arena;
    size_t own = turn != NULL ? turn->orchestrator_item_count : 0;
    size_t room = own + list_length(&inst->drained);
    if (room == 0) return;
    dur_message_row *messages = dur_arena_zalloc(arena, room * sizeof(*messages));
    for (size_t i = 0; i < own; i++)
        encode(&messages[i], arena, &turn->orchestrator_items[i].item, turn->orchestrator_items[i].due_ms);
    size_t count = own;
    DUR__LIST_EACH(&inst->drained, at) {
        const dur_work_item *start = &DUR__CONTAINER(at, dur__letter, arrival.link)->arrival.item;
        if (!dur__start_refused(inst, start)) continue;
        dur_work_item answer;
        dur__ending_refuse_start(&answer, arena, start);
        encode(&messages[count++], arena, &answer, 0);
    }
    commit->orchestrator_items = messages;
    commit->orchestrator_item_count = count;
}

static void take_strays(dur__inst *inst) {
    for (dur__link *link; (link = dur__list_pop(&inst->strays)) != NULL;) {
        const dur_work_item *start = &DUR__CONTAINER(link, dur__letter, arrival.link)->arrival.item;
        dur__log(DUR_LOG_WARN, DUR__LOG_ORCHESTRATION,
                 DUR__FIELDS(DUR__TEXT("instance_id", inst->id),
                             DUR__TEXT("orchestration_name", start->orchestration != NULL ? start->orchestration : "")),
                 "a start for an instance that exists already is %s",
                 dur__start_refused(inst, start) ? "refused: the parent is told" : "ignored");
        dur__list_push(&inst->drained, link);
    }
}

/* ---- metadata ---- */

static void metadata_first(dur__inst *inst, dur_execution_metadata *metadata) {
    metadata->orchestration_name = inst->handler->name;
    metadata->orchestration_version = inst->handler->version;
    metadata->parent_instance_id = inst->parent.instance;
    metadata->parent_birth = inst->parent.birth;
    metadata->birth = inst->birth;
    metadata->has_pinned_version = dur__semver_parse(DUR_VERSION, &metadata->pinned_version);
    inst->commit->needs_parent = inst->parent.instance != NULL && inst->execution_id == 1;
}

static void metadata_last(const dur__turn *turn, dur_execution_metadata *metadata) {
    static const dur_status statuses[] = { [DUR__END_NOT] = DUR_STATUS_NONE,
                                           [DUR__END_COMPLETED] = DUR_STATUS_COMPLETED,
                                           [DUR__END_FAILED] = DUR_STATUS_FAILED,
                                           [DUR__END_CONTINUED] = DUR_STATUS_CONTINUED_AS_NEW };
    metadata->status = statuses[turn->end];
    metadata->output = turn->end != DUR__END_NOT ? turn->output : NULL;
}

/* ---- the turn ---- */

/* What is left in the mailbox at the end: addressed to this execution, it goes with the last commit; the rest stays in
   the store, where the next execution, or the burial of the instance, finds it. */
static void drain_finished(dur__inst *inst) {
    dur__left verdict;
    for (dur__arrival *left; (left = dur__exec_drain(inst->exec, &verdict)) != NULL;) {
        if (verdict == DUR__LEFT_CONSUME)
            dur__list_push(&inst->drained, &left->link);
        else
            dur__inst_return_letter(inst->loop, left->cookie);
    }
}

static bool turn_empty(const dur__inst *inst, const dur__turn *turn) {
    return turn->event_count == 0 && (turn->consumed == NULL || dur__list_empty(turn->consumed)) &&
           dur__list_empty(&inst->drained) && turn->orchestrator_item_count == 0 && turn->worker_item_count == 0;
}

void dur__turn_unbuild(dur__inst *inst) {
    dur__map_entry *entry;
    dur__work_unreserve(inst->loop->runtime, inst->granted);
    inst->granted = 0;
    for (size_t i = 0; (entry = dur__map_next(&inst->tasks, &i)) != NULL;)
        ((dur__task *)entry->value)->dropping = false;
    dur__commit_end(inst);
}

bool dur__turn_build(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    take_strays(inst);
    if (dur__exec_finished(inst->exec)) drain_finished(inst);
    const dur__turn *turn = dur__exec_turn(inst->exec);
    bool ended = turn->end != DUR__END_NOT;
    bool leaves =
        ended || loop->fallback || (loop->runtime->options.evict_every_turn && !inst->again && !inst->starving);
    if (turn_empty(inst, turn) && !inst->uncommitted && !leaves) return false;
    dur_turn_commit *commit = dur__commit_begin(inst);
    inst->leaves = leaves;
    commit->events = turn->events;
    commit->event_count = turn->event_count;
    commit->open = ended ? 0 : turn->open_activities;
    commit->keep_lease = !leaves;
    if (turn->event_count > 0) commit->expected_last = turn->first_event_id - 1;
    add_work(inst, turn);
    add_messages(inst, turn);
    commit->cancelled = refs(inst, turn->cancelled_activities, turn->cancelled_activity_count, true);
    commit->cancelled_count = turn->cancelled_activity_count;
    commit->timers_dropped = refs(inst, turn->dropped_timers, turn->dropped_timer_count, false);
    commit->timers_dropped_count = turn->dropped_timer_count;
    add_consumed(inst, turn->consumed);
    for (size_t i = 0; i < turn->cancelled_activity_count; i++) {
        dur__task *task = dur__map_get_u64(&inst->tasks, turn->cancelled_activities[i]);
        if (task != NULL) task->dropping = false;
    }
    if (inst->first_turn) metadata_first(inst, &commit->metadata);
    metadata_last(turn, &commit->metadata);
    if (leaves && !ended) {
        commit->seen_id = loop->seen_id;
        commit->seen_now_ms = loop->seen_now_ms;
    }
    return true;
}

/* ---- commits without a handler ---- */

void dur__release(dur__inst *inst, uint64_t delay_ms, bool give_back, bool seen) {
    if (inst->unborn != 0) {
        dur__inst_free(inst);
        return;
    }
    dur__inst_drop_exec(inst);
    dur__commit_end(inst);
    dur_turn_commit *commit = dur__commit_begin(inst);
    commit->execution_id = 0; /* nothing is written */
    commit->delay_ms = delay_ms;
    commit->give_back = give_back;
    if (seen) {
        commit->seen_id = inst->loop->seen_id;
        commit->seen_now_ms = inst->loop->seen_now_ms;
    }
    dur__loop_queue_commit(inst);
}

void dur__forget(dur__inst *inst, const uint64_t *ids, size_t count) {
    dur__release(inst, 0, true, false);
    dur_turn_commit *commit = inst->commit;
    uint64_t *consumed = dur_arena_alloc(inst->commit_arena, (count + 1) * sizeof(*consumed));
    if (count > 0) memcpy(consumed, ids, count * sizeof(*consumed));
    commit->consumed = consumed;
    commit->consumed_count = count;
    commit->remove_work = true;
}

void dur__release_refusing(dur__inst *inst, dur__link *calls) {
    dur__release(inst, 0, true, true);
    for (dur__link *link; (link = dur__list_pop(calls)) != NULL;)
        dur__list_push(&inst->strays, link);
    take_strays(inst);
    add_messages(inst, NULL);
    add_consumed(inst, NULL);
}

void dur__release_counted(dur__inst *inst, uint64_t delay_ms) {
    bool unborn = inst->unborn != 0;
    dur__release(inst, delay_ms, false, false);
    if (!unborn) inst->abandons = true;
}

void dur__suspend(dur__inst *inst, const char *reason) {
    dur__inst_drop_exec(inst);
    dur__commit_end(inst);
    dur_turn_commit *commit = dur__commit_begin(inst);
    commit->execution_id = 0;
    commit->set_suspended = true;
    commit->suspended = dur_arena_strdup(inst->commit_arena, reason);
    DUR__COUNT(inst->loop->runtime, orchestration_suspended);
    dur__loop_queue_commit(inst);
}

/* ---- after the commit ---- */

static void count_failure(dur_runtime *runtime, const dur_failure *failure) {
    DUR__COUNT(runtime, orchestration_failures);
    if (failure == NULL) return;
    switch (failure->category) {
    case DUR_FAILURE_APPLICATION:
        DUR__COUNT(runtime, orchestration_application_errors);
        break;
    case DUR_FAILURE_INFRASTRUCTURE:
        DUR__COUNT(runtime, orchestration_infrastructure_errors);
        break;
    case DUR_FAILURE_CONFIGURATION:
        DUR__COUNT(runtime, orchestration_configuration_errors);
        break;
    case DUR_FAILURE_POISON:
        DUR__COUNT(runtime, orchestration_poison);
        break;
    }
}

static void count_turn(dur__inst *inst, const dur__turn *turn) {
    dur_runtime *runtime = inst->loop->runtime;
    DUR__COUNT(runtime, turns);
    for (size_t i = 0; i < turn->event_count; i++) {
        if (turn->events[i].kind == DUR_EVENT_TIMER_FIRED)
            DUR__COUNT(runtime, timers_fired);
        else if (turn->events[i].kind == DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED)
            DUR__COUNT(runtime, suborchestration_calls);
    }
    if (inst->first_turn) DUR__COUNT(runtime, orchestration_starts);
    if (turn->end == DUR__END_COMPLETED) DUR__COUNT(runtime, orchestration_completions);
    if (turn->end == DUR__END_CONTINUED) DUR__COUNT(runtime, orchestration_continue_as_new);
    if (turn->end == DUR__END_FAILED) count_failure(runtime, turn->failure);
}

static void write_logs(const dur__inst *inst, const dur__turn *turn) {
    for (size_t i = 0; i < turn->log_count; i++)
        dur__log(turn->logs[i].level, DUR__LOG_ORCHESTRATION,
                 DUR__FIELDS(DUR__TEXT("instance_id", inst->id), DUR__NUMBER("execution_id", inst->execution_id),
                             DUR__TEXT("orchestration_name", inst->handler->name),
                             DUR__TEXT("orchestration_version", inst->handler->version)),
                 "%s", turn->logs[i].message);
    uint64_t warn = inst->loop->runtime->options.history_events_warn;
    uint64_t last = dur__exec_last_event(inst->exec);
    if (last >= warn && last - turn->event_count < warn)
        dur__log(DUR_LOG_WARN, DUR__LOG_ORCHESTRATION,
                 DUR__FIELDS(DUR__TEXT("instance_id", inst->id), DUR__NUMBER("events", last)),
                 "the history of \"%s\" has %llu events: continue as new from time to time", inst->id,
                 (unsigned long long)last);
}

/* Their rows are gone: what waits here is forgotten, what runs is told. */
static void cancel_dropped(dur__inst *inst, const dur__turn *turn) {
    dur__loop *loop = inst->loop;
    for (size_t i = 0; i < turn->cancelled_activity_count; i++) {
        dur__task *task = dur__map_get_u64(&inst->tasks, turn->cancelled_activities[i]);
        if (task == NULL) continue;
        task->row_gone = true;
        if (dur__work_withdraw(loop->runtime, task)) {
            dur__pool_task_back(loop, task);
        } else {
            dur__cancel_task(loop->runtime, task);
            dur__inst_detach(task);
        }
    }
}

static void hand_out(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    for (size_t i = 0; i < inst->eager_count; i++) {
        dur__task *task = inst->eager[i];
        const dur_turn_work *work = &inst->commit->worker_items[i];
        if (task == NULL || !(work->locked || work->local)) {
            loop->look_work = true; /* for anybody: also for us */
            continue;
        }
        inst->eager[i] = NULL;
        task->ref.row_id = work->row_id;
        atomic_store(&task->local, work->local);
        if (!inst->leaves) dur__inst_attach(inst, task);
        dur__list_push(&loop->hand_out, &task->link);
        loop->hand_out_count++;
    }
}

static void free_letters(dur__loop *loop, dur__link *list) {
    if (list == NULL) return;
    for (dur__link *link; (link = dur__list_pop(list)) != NULL;)
        dur__pool_letter_back(loop, DUR__CONTAINER(link, dur__letter, arrival.link));
}

void dur__commit_effects(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    dur__inst_committed_once(inst);
    dur__local_written(inst);
    inst->restarts = 0;
    loop->shortages = 0;
    if (inst->commit->keep_lease && !inst->commit->lease_kept) inst->leaves = true;
    if (inst->commit->metadata.status == DUR_STATUS_COMPLETED)
        loop->told +=
            dur__live_completed(loop->runtime->store, inst->id, inst, inst->birth, inst->commit->metadata.output);
    if (inst->exec == NULL) return;
    const dur__turn *turn = dur__exec_turn(inst->exec);
    count_turn(inst, turn);
    write_logs(inst, turn);
    dur__narrate_turn(inst, turn);
    cancel_dropped(inst, turn);
    if (loop->runtime->options.double_run) dur__rerun_keep(inst);
    hand_out(inst);
}

void dur__commit_put_away(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    if (inst->exec != NULL) {
        free_letters(loop, dur__exec_turn(inst->exec)->consumed);
        dur__exec_turn_done(inst->exec);
    }
    free_letters(loop, &inst->drained);
    inst->first_turn = false;
    dur__commit_end(inst);
    if (inst->leaves || inst->exec == NULL)
        dur__inst_free(inst);
    else
        dur__inst_settle(inst);
}
