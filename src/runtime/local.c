/*
 * local.c: activities that the store has not stored, because this runtime alone has them (dur_turn_work).
 *
 * A local activity belongs to the lease under which it was handed out, which is its dur__inst: it stays in inst->tasks
 * until its end is recorded or the lease is gone, also while the handler is dropped and replayed.  Whoever gives the
 * lease up writes its row in that commit, locked with the token that the task has had from the beginning, as if it had
 * been locked eagerly; from the answer on it is an activity with a row as any other.  An end that comes meanwhile
 * waits in inst->ends.  When the lease is lost, the activity is told, and its end is nobody's: the next holder writes
 * the row again (dur__local_recover).
 */
#include "core/open_work.h"
#include "runtime/runtime_internal.h"

#include <stdlib.h>

bool dur__local_any(const dur__inst *inst) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&inst->tasks, &i)) != NULL;)
        if (atomic_load(&((dur__task *)entry->value)->local)) return true;
    return false;
}

/* ---- rows ---- */

/* What the turn at hand records or drops needs no row any more.  Consumed are tasks whose letters are in its lists. */
static void mark_settled(dur__inst *inst, bool settled) {
    const dur__turn *turn = inst->exec != NULL ? dur__exec_turn(inst->exec) : NULL;
    dur__link *lists[2] = { turn != NULL ? turn->consumed : NULL, &inst->drained };
    for (int i = 0; i < 2; i++) {
        if (lists[i] == NULL) continue;
        DUR__LIST_EACH(lists[i], at) {
            dur__task *task = DUR__CONTAINER(at, dur__letter, arrival.link)->task;
            if (task != NULL) task->dropping = settled;
        }
    }
    for (size_t i = 0; turn != NULL && i < turn->cancelled_activity_count; i++) {
        dur__task *task = dur__map_get_u64(&inst->tasks, turn->cancelled_activities[i]);
        if (task != NULL) task->dropping = settled;
    }
}

static size_t collect(dur__inst *inst) {
    dur__map_entry *entry;
    size_t count = 0;
    inst->converting = dur_arena_alloc(inst->commit_arena, (inst->tasks.count + 1) * sizeof(dur__task *));
    mark_settled(inst, true);
    for (size_t i = 0; (entry = dur__map_next(&inst->tasks, &i)) != NULL;) {
        dur__task *task = entry->value;
        if (atomic_load(&task->local) && !task->dropping && !task->row_gone) inst->converting[count++] = task;
    }
    mark_settled(inst, false);
    return count;
}

/* The last hand on every commit: the rows that it must write beside those of its turn. */
void dur__local_rows(dur__inst *inst) {
    dur_turn_commit *commit = inst->commit;
    if (inst->exec == NULL && commit->metadata.status != DUR_STATUS_NONE) return; /* it ends, and all that is open */
    size_t count = !commit->keep_lease || inst->sharing ? collect(inst) : 0, own = commit->worker_item_count;
    if (count + inst->recover_count == 0) return;
    dur_turn_work *items = dur_arena_zalloc(inst->commit_arena, (own + inst->recover_count + count) * sizeof(*items));
    if (own > 0) memcpy(items, commit->worker_items, own * sizeof(*items));
    if (inst->recover_count > 0) memcpy(items + own, inst->recover, inst->recover_count * sizeof(*items));
    for (size_t i = 0; i < count; i++) {
        dur_turn_work *item = &items[own + inst->recover_count + i];
        int code = dur_message_row_from_work(&item->message, inst->commit_arena, &inst->converting[i]->item, NULL);
        DUR_ASSERT(code == DUR_OK); /* as it was when the turn asked for it */
        item->lock_token = inst->converting[i]->token;
    }
    commit->worker_items = items;
    commit->worker_item_count = own + inst->recover_count + count;
    inst->converting_count = count;
}

static void recovered(dur__inst *inst) {
    if (inst->recover_arena == NULL) return;
    dur__pool_arena_back(inst->loop, inst->recover_arena);
    inst->recover_arena = NULL;
    inst->recover = NULL;
    inst->recover_count = 0;
}

static void has_row(dur__inst *inst, dur__task *task, bool locked, uint64_t row_id) {
    task->ref.row_id = row_id;
    if (!locked) { /* the row is anybody's: two would run it */
        task->row_gone = true;
        dur__cancel_task(inst->loop->runtime, task);
    }
    atomic_store(&task->local, false);
}

/* The commit at hand has happened. */
void dur__local_written(dur__inst *inst) {
    const dur_turn_commit *commit = inst->commit;
    for (size_t i = 0; i < inst->converting_count; i++) {
        const dur_turn_work *item = &commit->worker_items[commit->worker_item_count - inst->converting_count + i];
        has_row(inst, inst->converting[i], item->locked, item->row_id);
    }
    inst->converting_count = 0;
    inst->sharing = false;
    if (inst->recover_count > 0) inst->loop->look_work = true;
    recovered(inst);
}

/* The lease is gone, perhaps by a commit of ours whose answer did not come: then the rows are there, with our tokens.
   Nobody else takes a row of ours while we live, so that only a row that is known not to be there is let go: the end of
   one that is not tells. */
void dur__local_learn(dur__inst *inst) {
    for (size_t i = 0; i < inst->converting_count; i++) {
        dur__task *task = inst->converting[i];
        bool lost = true;
        dur_worker_claim claim = { .ref = task->ref, .lock_token = task->token };
        int code = dur_store_check_works(inst->loop->runtime->store, &claim, 1, 0, &lost, NULL);
        if (code != DUR_OK || !lost) has_row(inst, task, true, 0);
    }
    inst->converting_count = 0;
}

/* ---- ends ---- */

void dur__local_end(dur__loop *loop, dur__task *task) {
    dur__inst *inst = task->inst;
    dur__arrival *arrival = &task->letter.arrival;
    if (inst == NULL) { /* the lease under which it was handed out is gone */
        dur__pool_task_back(loop, task);
        return;
    }
    arrival->order_ms = loop->now_ms;
    arrival->order_id = (UINT64_MAX >> 1) + ++loop->arrival_serial;
    if (inst->exec != NULL)
        dur__inst_receive(inst, &task->letter);
    else
        dur__list_push(&inst->ends, &arrival->link);
}

/* Nobody has recorded it yet. */
void dur__local_return(dur__loop *loop, dur__task *task) {
    if (task->inst != NULL && !task->row_gone && task->epoch == loop->epoch)
        dur__list_push(&task->inst->ends, &task->letter.arrival.link);
    else
        dur__pool_task_back(loop, task);
}

/* A handler is there (again). */
void dur__local_offer(dur__inst *inst) {
    for (dur__link *link; (link = dur__list_pop(&inst->ends)) != NULL;)
        dur__exec_offer(inst->exec, DUR__CONTAINER(link, dur__arrival, link));
}

static void forget_task(dur__inst *inst, dur__task *task) {
    dur_runtime *runtime = inst->loop->runtime;
    bool local = atomic_load(&task->local), waits = local && dur__work_withdraw(runtime, task);
    if (local && !waits) dur__cancel_task(runtime, task); /* at once: nobody will ask its row */
    task->inst = NULL;
    dur__task_leave(task);
    if (waits) dur__pool_task_back(inst->loop, task);
}

/* The lease is gone, or its execution is over. */
void dur__local_forget(dur__inst *inst) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&inst->tasks, &i)) != NULL;)
        forget_task(inst, entry->value);
    dur__map_free(&inst->tasks);
    for (dur__link *link; (link = dur__list_pop(&inst->ends)) != NULL;)
        dur__inst_return_letter(inst->loop, DUR__CONTAINER(link, dur__letter, arrival.link));
    recovered(inst);
}

/* ---- sharing ---- */

static bool waits_long(const dur__inst *inst, uint64_t waited_us, uint64_t now_us) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&inst->tasks, &i)) != NULL;) {
        dur__task *task = entry->value;
        if (atomic_load(&task->local) && atomic_load(&task->state) == DUR__TASK_QUEUED &&
            now_us - task->queued_at_us >= waited_us)
            return true;
    }
    return false;
}

/* What has waited so long unstarted gets a row; then it is given back as what has had one from the beginning. */
void dur__local_share(dur__loop *loop, uint64_t waited_us) {
    uint64_t now_us = dur__monotonic_us();
    if (loop->fallback || !dur__work_any(loop->runtime)) return;
    DUR__LIST_EACH_SAFE(&loop->parked, at, after) {
        dur__inst *inst = DUR__CONTAINER(at, dur__inst, link);
        if (inst->tasks.count == 0 || !waits_long(inst, waited_us, now_us)) continue;
        dur__commit_begin(inst)->keep_lease = true;
        inst->leaves = false;
        inst->sharing = true;
        dur__loop_queue_commit(inst);
    }
}

/* ---- what was local under a lease that is gone ---- */

void dur__local_recover(dur__inst *inst, dur__open_work *open, const dur_orchestration_item *item,
                        const dur_event *started) {
    dur__map_entry *entry;
    for (size_t i = 0; i < item->work_count; i++)
        dur__open_work_known(open, item->works[i]);
    for (size_t i = 0; (entry = dur__map_next(&inst->tasks, &i)) != NULL;)
        dur__open_work_known(open, entry->number);
    if (open->at.count == 0) return;
    dur__loop *loop = inst->loop;
    recovered(inst);
    inst->recover_arena = dur__pool_arena(loop);
    inst->recover = dur_arena_zalloc(inst->recover_arena, open->at.count * sizeof(*inst->recover));
    for (size_t i = 0; (entry = dur__map_next(&open->at, &i)) != NULL;) {
        dur_event schedule;
        dur_turn_work *work = &inst->recover[inst->recover_count];
        size_t place = (size_t)(uintptr_t)entry->value - 1;
        if (dur_event_from_json(&schedule, inst->recover_arena, item->history[place].json, NULL) != DUR_OK) continue;
        dur_work_item asked = dur__open_work_item(started, &schedule);
        asked.instance = inst->id;
        asked.execution_id = inst->execution_id;
        if (dur_message_row_from_work(&work->message, inst->recover_arena, &asked, NULL) != DUR_OK) continue;
        work->recovered = true;
        inst->recover_count++;
    }
    dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME,
             DUR__FIELDS(DUR__TEXT("instance_id", inst->id), DUR__NUMBER("activities", inst->recover_count)),
             "%zu activities of \"%s\" had begun or waited under a lease that is gone: they go to the queue",
             inst->recover_count, inst->id);
}
