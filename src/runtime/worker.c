/*
 * worker.c: the threads that run activities, one activity each at a time.
 *
 * A worker takes a task from the local queue, runs it without any lock, and hands the result to the task's loop.  What
 * happens to the result is the loop's decision (L5).  C cannot stop a thread: an activity that ignores its cancellation
 * is abandoned by the keeper, which changes the task's state under work.mutex; whoever changes it first wins.
 *
 * Threads come as work waits, up to worker_concurrency, and go when they are idle.  Two are always there: one that
 * works off what is small, and one to wake when it does not.  A loop that has nothing else to do starts more, twice as
 * many each time, when work has waited for a moment although no worker is idle, and waits for activities and not for a
 * core: where activities are over at once, more threads would only be in each other's way.
 */
#include "runtime/runtime_internal.h"

#include "coro/crash_report.h"
#include <errno.h>
#include <stdlib.h>

#define LAZY_US 25
#define THREADS_LEAST 2
#define GROW_US UINT64_C(1000)           /* work that has waited so long gets a thread */
#define GROW_FAILED_US UINT64_C(1000000) /* the system has none to give: not asked again for so long */
#define WORKER_BYTES (16u << 10)
#define NO_MEMORY_US 20000u

/* Everything of the work item that outlives the message or turn it came from. */
void dur__task_fill(dur__task *task, const dur_work_item *item) {
    dur_arena *arena = task->arena;
    dur_work_item *to = &task->item;
    *to = (dur_work_item){ .kind = DUR_WORK_ACTIVITY_EXECUTE };
    to->instance = dur_arena_strdup(arena, item->instance);
    to->execution_id = item->execution_id;
    to->id = item->id;
    to->name = dur_arena_strdup(arena, item->name);
    to->input = dur_arena_strdup(arena, item->input != NULL ? item->input : "");
    to->session_id = dur_arena_strdup(arena, item->session_id);
    to->tag = dur_arena_strdup(arena, item->tag);
    to->orchestration_name = dur_arena_strdup(arena, item->orchestration_name);
    to->orchestration_version = dur_arena_strdup(arena, item->orchestration_version);
    to->attempt = item->attempt;
    to->first_id = item->first_id;
    to->birth = item->birth;
    task->ref = (dur_activity_ref){ .instance = to->instance, .execution_id = to->execution_id, .activity_id = to->id };
}

static dur_work_item *completion_begin(dur__task *task, dur_work_kind kind) {
    dur_work_item *item = &task->letter.arrival.item;
    *item = (dur_work_item){
        .kind = kind, .instance = task->item.instance, .execution_id = task->item.execution_id, .id = task->item.id
    };
    return item;
}

void dur__task_complete(dur__task *task, const char *result) {
    completion_begin(task, DUR_WORK_ACTIVITY_COMPLETED)->result = result;
}

void dur__task_fail(dur__task *task, const dur_failure *failure) {
    dur_failure *kept = dur_arena_alloc(task->arena, sizeof(*kept));
    *kept = *failure;
    kept->message = dur_arena_strdup(task->arena, failure->message);
    completion_begin(task, DUR_WORK_ACTIVITY_FAILED)->details = kept;
}

/* Under the mutex: it runs from now on. */
void dur__worker_begin(dur__worker *worker, dur__task *task) {
    dur__work *work = &worker->runtime->work;
    dur__list_unlink(&task->link);
    dur__list_push(&work->running, &task->link);
    work->running_count++;
    worker->task = task;
    atomic_fetch_add(&work->in_hand, 1);
    task->started_at_us = dur__monotonic_us();
    atomic_store(&task->state, DUR__TASK_RUNNING);
}

/* Under the mutex: the next task, if it may begin; NULL: none. */
static dur__task *take_locked(dur__worker *worker) {
    dur__work *work = &worker->runtime->work;
    dur__link *link = dur__keeper_fenced(worker->runtime) || work->closed ? NULL : dur__list_first(&work->queue);
    if (link == NULL) return NULL;
    if (!dur__reserve_fill(&worker->reserve, WORKER_BYTES)) { /* an activity that begins can be ended */
        worker->runtime->stepped.work_us = dur__monotonic_us() + NO_MEMORY_US;
        return NULL;
    }
    dur__task *task = DUR__CONTAINER(link, dur__task, link);
    work->queued--;
    dur__worker_begin(worker, task);
    return task;
}

/* Under the mutex: the next task, or NULL at the end. */
static dur__task *wait_locked(dur__worker *worker) {
    dur_runtime *runtime = worker->runtime;
    dur__work *work = &runtime->work;
    for (;;) {
        dur__task *task = take_locked(worker);
        if (task != NULL) {
            if (work->queued > work->waking && work->idle > work->waking &&
                task->started_at_us - work->batch_at_us >= LAZY_US) {
                work->waking++;
                dur__cond_signal(&work->changed);
            }
            return task;
        }
        if (work->exit) return NULL;
        if (work->leave > 0) {
            work->leave--;
            return NULL;
        }
        work->idle++;
        if (dur__keeper_fenced(runtime) || !dur__list_empty(&work->queue))
            (void)dur__cond_wait_ms(&work->changed, &work->mutex, 50);
        else
            dur__cond_wait(&work->changed, &work->mutex);
        work->idle--;
        if (work->idle < work->idle_least) work->idle_least = work->idle;
        if (work->waking > 0) work->waking--;
    }
}

static void count_result(dur_runtime *runtime, const dur__task *task) {
    const dur_work_item *item = &task->letter.arrival.item;
    if (item->kind == DUR_WORK_ACTIVITY_COMPLETED)
        DUR__COUNT(runtime, activity_success);
    else if (item->details != NULL && item->details->category == DUR_FAILURE_APPLICATION)
        DUR__COUNT(runtime, activity_app_errors);
    else
        DUR__COUNT(runtime, activity_infra_errors);
}

/* False: the task was abandoned meanwhile, this thread's slot has a successor and the runtime may be gone soon. */
bool dur__worker_finish(dur__worker *worker, dur__task *task) {
    dur_runtime *runtime = worker->runtime;
    dur__work *work = &runtime->work;
    dur__loop *loop = task->loop;
    dur__mutex_lock(&work->mutex);
    bool abandoned = atomic_load(&task->state) == DUR__TASK_ABANDONED;
    if (!abandoned) {
        atomic_store(&task->state, DUR__TASK_DONE);
        task->unanswered = task->stopped && atomic_load(&task->told);
        dur__work_finished(runtime, task);
        worker->task = NULL;
    }
    dur__mutex_unlock(&work->mutex);
    if (abandoned) return false;
    bool cancelled = atomic_load(&task->cancelled);
    if (cancelled)
        DUR__COUNT(runtime, activity_cancelled);
    else
        count_result(runtime, task);
    dur__narrate_activity_end(task, cancelled);
    dur__loop_done(loop, task);
    atomic_fetch_sub(&work->in_hand, 1);
    return true;
}

void dur__worker_free(dur__worker *worker) {
    dur__reserve_free(&worker->reserve);
    dur__free(worker);
}

void dur__worker_left_behind(dur__worker *worker, dur__task *task) {
    dur_runtime *runtime = worker->runtime;
    dur__log(DUR_LOG_WARN, DUR__LOG_ACTIVITY,
             DUR__FIELDS(DUR__TEXT("activity_name", task->item.name), DUR__TEXT("instance_id", task->item.instance)),
             "abandoned activity \"%s\" has returned after all; its result is ignored", task->item.name);
    dur__activity_cleanup(task);
    dur__task_leave(task);
    dur__worker_free(worker);
    dur__runtime_release(runtime);
}

void dur__worker_covered(dur__worker *worker, dur__cover *cover) {
    *cover = (dur__cover){ .reserve = &worker->reserve };
    dur__cover_begin(cover);
}

static void run(dur__worker *worker, dur__task *task) {
    task->worker_id = worker->id;
    dur__gate_started(task->alone);
    dur__narrate_activity_start(task);
    dur__crash_report_inside(task->item.name, task->item.instance);
    dur__activity_run(task);
    dur__crash_report_inside(NULL, NULL);
}

static void worker_main(void *data) {
    dur__worker *worker = data;
    dur_runtime *runtime = worker->runtime;
    dur__work *work = &runtime->work;
    dur__runtime_inside = runtime;
    dur__cover cover;
    dur__crash_report_thread_begin();
    dur__worker_covered(worker, &cover);
    dur__mutex_lock(&work->mutex);
    for (dur__task *task; (task = wait_locked(worker)) != NULL;) {
        dur__mutex_unlock(&work->mutex);
        run(worker, task);
        if (dur__runtime_forked(runtime)) return; /* a child has come back from its parent's activity: it ends here */
        if (!dur__worker_finish(worker, task)) {
            dur__cover_end(&cover);
            dur__worker_left_behind(worker, task);
            dur__crash_report_thread_end();
            return;
        }
        dur__mutex_lock(&work->mutex);
    }
    dur__crash_report_thread_end();
    dur__cover_end(&cover);
    worker->exited = true;
    if (!work->exit) { /* one too many: whoever looks next joins it */
        dur__list_unlink(&worker->link);
        dur__list_push(&work->leaving, &worker->link);
        work->threads--;
    }
    dur__cond_broadcast(&work->idle_changed);
    dur__mutex_unlock(&work->mutex);
}

/* ---- without a thread ---- */

/* It may be called again from inside the activity, by a client's wait that drives: each call has its own task. */
bool dur__worker_run_one(dur__worker *worker) {
    dur__work *work = &worker->runtime->work;
    dur__mutex_lock(&work->mutex);
    dur__task *outer = worker->task, *task = take_locked(worker);
    dur__mutex_unlock(&work->mutex);
    if (task == NULL) return false;
    dur__cover cover;
    dur__worker_covered(worker, &cover);
    run(worker, task);
    bool forked = dur__runtime_forked(worker->runtime), finished = forked || dur__worker_finish(worker, task);
    DUR_ASSERT(finished); /* nobody is there to abandon it */
    worker->task = outer;
    dur__cover_end(&cover);
    return !forked;
}

void dur__worker_name(dur__worker *worker, dur_runtime *runtime) {
    worker->runtime = runtime;
    const char *node = runtime->options.worker_node_id;
    snprintf(worker->id, sizeof(worker->id), "work-%u-%.64s", worker->index,
             node != NULL ? node : runtime->session_owner_own);
}

/* One more worker thread, unless there are enough: another loop may have been faster.  0, or an errno. */
int dur__worker_add(dur_runtime *runtime) {
    dur__worker *worker = dur__zget(sizeof(*worker));
    if (worker == NULL) return ENOMEM;
    dur__work *work = &runtime->work;
    worker->runtime = runtime;
    dur__mutex_lock(&work->mutex);
    worker->index = (unsigned)work->worker_serial++;
    dur__mutex_unlock(&work->mutex);
    dur__worker_name(worker, runtime);
    char name[16];
    snprintf(name, sizeof(name), "%.9s-w%u", runtime->options.name, worker->index % 1000);
    dur__mutex_lock(&work->mutex);
    if (work->threads >= runtime->options.worker_concurrency) {
        dur__mutex_unlock(&work->mutex);
        dur__free(worker);
        return 0;
    }
    dur__list_push(&work->workers, &worker->link);
    work->threads++;
    int failed = dur__thread_start(&worker->thread, name, worker_main, worker);
    if (failed != 0) {
        dur__list_unlink(&worker->link);
        work->threads--;
    }
    dur__mutex_unlock(&work->mutex);
    if (failed != 0) dur__worker_free(worker);
    return failed;
}

static uint32_t threads_least(const dur_runtime *runtime) {
    uint32_t most = runtime->options.worker_concurrency;
    return most < THREADS_LEAST ? most : THREADS_LEAST;
}

/* ---- more ---- */

/* Under the mutex: so many activities have run for a while already. */
static size_t slow_locked(const dur__work *work, uint64_t now_us) {
    size_t slow = 0;
    DUR__LIST_EACH(&work->running, at)
    slow += now_us - DUR__CONTAINER(at, dur__task, link)->started_at_us >= GROW_US;
    return slow;
}

/* Under the mutex: how many threads to start now; *again_us: when to ask again, UINT64_MAX: not for this work. */
static size_t wanted_locked(const dur_runtime *runtime, uint64_t now_us, uint64_t *again_us) {
    const dur__work *work = &runtime->work;
    size_t most = runtime->options.worker_concurrency;
    *again_us = UINT64_MAX;
    if (work->queued <= work->idle || work->threads >= most || work->closed || work->exit) return 0;
    if (now_us < work->grow_at_us) return 0;
    const dur__task *oldest = DUR__CONTAINER(work->queue.next, dur__task, link);
    uint64_t waited_us = now_us - oldest->queued_at_us;
    *again_us = waited_us < GROW_US ? GROW_US - waited_us : GROW_US;
    if (work->idle > 0 || waited_us < GROW_US || (work->run_us < GROW_US && slow_locked(work, now_us) < work->threads))
        return 0;
    size_t more = work->threads > 0 ? work->threads : 1;
    if (more > work->queued) more = work->queued;
    return more < most - work->threads ? more : most - work->threads;
}

uint64_t dur__workers_grow(dur_runtime *runtime) {
    dur__work *work = &runtime->work;
    uint64_t again_us, now_us = dur__monotonic_us();
    dur__mutex_lock(&work->mutex);
    size_t more = wanted_locked(runtime, now_us, &again_us);
    if (more > 0) work->leave = 0;
    dur__mutex_unlock(&work->mutex);
    int failed = 0;
    for (; more > 0 && failed == 0; more--)
        failed = dur__worker_add(runtime);
    if (failed == 0) return again_us;
    dur__mutex_lock(&work->mutex);
    work->grow_at_us = now_us + GROW_FAILED_US;
    size_t threads = work->threads;
    dur__mutex_unlock(&work->mutex);
    dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME, DUR__FIELDS(DUR__NUMBER("threads", threads)),
             "no more worker threads can be started: %s", strerror(failed));
    return UINT64_MAX;
}

size_t dur__workers_count(dur_runtime *runtime) {
    dur__mutex_lock(&runtime->work.mutex);
    size_t count = runtime->work.threads;
    dur__mutex_unlock(&runtime->work.mutex);
    return count > 0 ? count : runtime->options.worker_concurrency; /* none: they are the host's */
}

/* ---- less ---- */

static void join_all(dur__work *work, dur__link *workers) {
    for (dur__link *link; (link = dur__list_pop(workers)) != NULL;) {
        dur__worker *worker = DUR__CONTAINER(link, dur__worker, link);
        dur__mutex_unlock(&work->mutex);
        dur__thread_join(&worker->thread);
        dur__worker_free(worker);
        dur__mutex_lock(&work->mutex);
    }
}

void dur__workers_shrink(dur_runtime *runtime) {
    dur__work *work = &runtime->work;
    size_t least = threads_least(runtime);
    dur__mutex_lock(&work->mutex);
    size_t over = work->threads > least ? work->threads - least : 0;
    work->leave = work->idle_least < over ? work->idle_least : over;
    work->idle_least = work->idle;
    if (work->leave > 0) dur__cond_broadcast(&work->changed);
    join_all(work, &work->leaving);
    dur__mutex_unlock(&work->mutex);
}

/* ---- the first, and the last ---- */

int dur__workers_start(dur_runtime *runtime, dur_error *err) {
    for (uint32_t i = 0; i < threads_least(runtime); i++) {
        int failed = dur__worker_add(runtime);
        if (failed != 0)
            return dur_error_set(err, DUR_ENOMEM, false, "runtime.start", "worker thread %u cannot be started: %s", i,
                                 strerror(failed));
    }
    return DUR_OK;
}

/* All that have not been left behind end after their current activity; the caller knows that none is running. */
void dur__workers_stop(dur_runtime *runtime) {
    dur__work *work = &runtime->work;
    dur__mutex_lock(&work->mutex);
    work->exit = true;
    dur__cond_broadcast(&work->changed);
    join_all(work, &work->workers);
    join_all(work, &work->leaving);
    dur__mutex_unlock(&work->mutex);
}
