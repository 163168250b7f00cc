/*
 * hosted.c: activities that the host takes, runs wherever it likes and ends by itself.
 *
 * A task that was taken has a worker of its own, without a thread: cancellation, the keeper's look at long activities
 * and a stop treat it as any other that runs.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>

static dur__task *find_taken(const dur__work *work, const char *name) {
    DUR__LIST_EACH(&work->taken, at) {
        dur__task *task = DUR__CONTAINER(at, dur__task, link);
        if (name == NULL || strcmp(task->item.name, name) == 0) return task;
    }
    return NULL;
}

int dur_runtime_take(dur_act **out, dur_runtime *runtime, const char *name, dur_error *err) {
    if (out == NULL || runtime == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "runtime.take", "out and runtime are required");
    *out = NULL;
    if (dur__runtime_forked(runtime))
        return dur_error_set(err, DUR_EFORKED, false, "runtime.take", "the runtime belongs to the parent process");
    dur__work *work = &runtime->work;
    dur__worker *worker = dur__zget(sizeof(*worker));
    if (worker == NULL || !dur__reserve_fill(&worker->reserve, DUR__ASIDE_BYTES)) { /* its end needs no memory */
        dur__free(worker);
        return DUR__NO_MEMORY(err, "runtime.take");
    }
    dur__cover cover;
    dur__worker_covered(worker, &cover);
    worker->hosts = true;
    dur__mutex_lock(&work->mutex);
    dur__task *task = dur__keeper_fenced(runtime) || work->closed ? NULL : find_taken(work, name);
    if (task != NULL) {
        work->taken_count--;
        worker->index = (unsigned)work->worker_serial++;
        worker->runtime = runtime;
        dur__worker_begin(worker, task);
        dur__list_push(&work->workers, &worker->link);
    }
    dur__mutex_unlock(&work->mutex);
    dur_error_clear(err);
    if (task == NULL) {
        dur__cover_end(&cover);
        dur__worker_free(worker);
        return DUR_OK;
    }
    dur__worker_name(worker, runtime);
    task->worker_id = worker->id;
    task->host = worker;
    task->act = dur_arena_alloc(task->arena, sizeof(*task->act));
    task->act->task = task;
    DUR__COUNT(runtime, activities_running);
    dur__gate_started(task->alone);
    dur__narrate_activity_start(task);
    *out = task->act;
    dur__cover_end(&cover);
    return DUR_OK;
}

void dur_act_end(dur_act *act, dur_outcome given) {
    if (act == NULL || act->task->host == NULL) return; /* one that runs in a function ends with it */
    if (dur__runtime_forked(act->task->runtime)) return;
    dur__task *task = act->task;
    dur__worker *worker = task->host;
    dur__cover cover;
    dur__worker_covered(worker, &cover);
    dur__uncount(&worker->runtime->counters.activities_running, 1);
    if (atomic_load(&task->state) != DUR__TASK_ABANDONED) dur__activity_ended(task, &given);
    task->host = NULL;
    dur__mutex_lock(&worker->runtime->work.mutex);
    if (!worker->left_behind) dur__list_unlink(&worker->link);
    dur__mutex_unlock(&worker->runtime->work.mutex);
    bool finished = dur__worker_finish(worker, task);
    dur__cover_end(&cover);
    if (finished)
        dur__worker_free(worker);
    else
        dur__worker_left_behind(worker, task);
}
