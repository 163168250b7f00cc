/*
 * keeper.c: the thread that shows life, notices what happens to running activities, and cleans up.
 *
 * Each second: a beat under our owner id (stores with owners; sooner when the store wants to look at a peer that seems
 * dead, or a beat failed), a look at the rows of activities that run long, and activities that ignore their
 * cancellation.  On a store without owners it renews timed locks instead; a renewal that fails for a passing reason
 * cancels nothing.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>

#define KEEPER_BYTES (128u << 10)
#define TICK_MS 1000
#define SHRINK_MS 5000 /* a worker that was idle for so long may go */
#define REFUSAL_APART_MS 10000u
#define BEAT_AGAIN_MS 100    /* after one that failed; then twice as long, up to the usual time */
#define GATE_AGAIN_US 50000u /* the store could not be told that a suspect's time is over */
#define CAREFUL_US 60000000u /* after the end of an owner that did not say goodbye */
#define LONG_RUNNING_US 500000u
#define FULL_FOR_US 1000000u              /* slots that are full for a moment are nothing to be told */
#define FULL_APART_US UINT64_C(600000000) /* … and what is full again and again is told so often */

/* ---- owner ---- */

static void new_owner_id(dur_runtime *runtime, char out[64]) {
    uint64_t random[2];
    runtime->world->random(runtime->world->data, random, sizeof(random));
    snprintf(out, 64, "%.24s-%016llx%08llx", runtime->options.name, (unsigned long long)random[0],
             (unsigned long long)(random[1] & 0xffffffff));
}

int dur__keeper_register(dur_runtime *runtime, dur_error *err) {
    char id[64];
    new_owner_id(runtime, id);
    dur_owner_options options = { .owner = id,
                                  .timeout_ms = runtime->options.owner_timeout_ms,
                                  .handlers = &runtime->handlers,
                                  .activities = &runtime->activities };
    uint64_t begin_ms = runtime->world->boot_ms(runtime->world->data);
    int code = dur_store_owner_register(runtime->store, &options, err);
    if (code != DUR_OK) return code;
    dur__mutex_lock(&runtime->mutex);
    runtime->owner_ids = dur__xrealloc(runtime->owner_ids, (runtime->owner_id_count + 1) * sizeof(char *));
    char *kept = dur__xstrdup(id);
    runtime->owner_ids[runtime->owner_id_count++] = kept;
    dur__mutex_unlock(&runtime->mutex);
    atomic_store(&runtime->owner, kept);
    atomic_store(&runtime->beat_boot_ms, begin_ms);
    atomic_fetch_add(&runtime->epoch, 1);
    return DUR_OK;
}

/* O4: late by half the timeout.  Each reader decides by itself, so that a keeper stuck in a call fences too. */
bool dur__keeper_fenced(dur_runtime *runtime) {
    if (!runtime->has_owners) return false;
    uint64_t now_ms = runtime->world->boot_ms(runtime->world->data);
    uint64_t beat_ms = atomic_load_explicit(&runtime->beat_boot_ms, memory_order_relaxed);
    return now_ms > beat_ms && now_ms - beat_ms > runtime->options.owner_timeout_ms / 2;
}

void dur__keeper_kick(dur_runtime *runtime) {
    dur__mutex_lock(&runtime->mutex);
    runtime->keeper_kicked = true;
    dur__cond_broadcast(&runtime->changed);
    dur__mutex_unlock(&runtime->mutex);
}

void dur__keeper_look(dur_runtime *runtime) {
    dur__mutex_lock(&runtime->mutex);
    dur__cond_broadcast(&runtime->changed);
    dur__mutex_unlock(&runtime->mutex);
}

static void pause_ms(dur_runtime *runtime, uint64_t ms) {
    dur__mutex_lock(&runtime->mutex);
    (void)dur__cond_wait_ms(&runtime->changed, &runtime->mutex, ms);
    dur__mutex_unlock(&runtime->mutex);
}

/* If it never succeeds the id is silent and dies by its timeout: what it had is counted as in a crash. */
void dur__keeper_release(dur_runtime *runtime, const char *owner) {
    dur_error err = DUR_ERROR_INIT;
    for (uint32_t tries = 0; dur_store_owner_release(runtime->store, owner, &err) != DUR_OK; tries++) {
        DUR__COUNT(runtime, provider_errors);
        if (tries >= 8 || !(err.retryable || err.code == DUR_EUNKNOWN)) {
            dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER, DUR__FIELDS(DUR__TEXT("owner", owner)),
                     "the store does not take the goodbye of an owner: others wait for its timeout: %s", err.message);
            return;
        }
        pause_ms(runtime, dur__backoff_ms(10, tries, 1000));
    }
}

static void wake_loops(dur_runtime *runtime) {
    for (size_t i = 0; i < runtime->loop_count; i++)
        dur_waker_wake(runtime->loops[i].waker);
}

/* Every row that was locked under the old id is (or will be) somebody else's.  False: the store has no id for us yet.
 */
static bool begin_again(dur_runtime *runtime) {
    dur_error err = DUR_ERROR_INIT;
    char times[DUR__TIMES_BYTES];
    if (dur__keeper_register(runtime, &err) != DUR_OK) {
        if (dur__trouble_say(runtime, &runtime->said_owner, err.code, times))
            dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER, NULL, 0, "no new owner id: %s%s", err.message, times);
        return false;
    }
    dur__mutex_lock(&runtime->work.mutex);
    DUR__LIST_EACH(&runtime->work.running, at) dur__cancel_locked(DUR__CONTAINER(at, dur__task, link));
    dur__mutex_unlock(&runtime->work.mutex);
    wake_loops(runtime);
    return true;
}

static void taken_over(dur_runtime *runtime) {
    dur__log(
        DUR_LOG_ERROR, DUR__LOG_RUNTIME, DUR__FIELDS(DUR__TEXT("owner", dur_runtime_owner(runtime))),
        "this runtime was taken for dead and its leases for free: handlers are dropped, activities cancelled, a new "
        "owner id is taken");
    DUR__COUNT(runtime, fenced);
    (void)begin_again(runtime);
}

void dur__keeper_renew_owner(dur_runtime *runtime) {
    if (!runtime->has_owners) return; /* timed locks run out by themselves */
    atomic_store(&runtime->owner_stale, true);
    dur__keeper_kick(runtime);
}

/* A round that may have acquired something was not answered and its lane does not settle it, or the store went back:
   what is locked under our id is ours and nobody's.  False: not yet. */
static bool let_go(dur_runtime *runtime) {
    const char *old = dur_runtime_owner(runtime);
    atomic_store(&runtime->owner_stale, false); /* first: a loop that has the new id may ask for the next one at once */
    if (!begin_again(runtime)) {
        atomic_store(&runtime->owner_stale, true);
        return false;
    }
    dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME, DUR__FIELDS(DUR__TEXT("owner", old)),
             "what the store holds under this id is not known here: all leases are given up and taken again under a "
             "new owner id");
    dur__keeper_release(runtime, old);
    wake_loops(runtime);
    return true;
}

/* Each second; with a short timeout so often that half of it, the fence, is never reached between two beats. */
static uint64_t beat_period_ms(const dur_runtime *runtime) {
    uint64_t quarter_ms = runtime->options.owner_timeout_ms / 4;
    return quarter_ms < TICK_MS ? quarter_ms : TICK_MS;
}

/* Its instances wait until it succeeds.  Not at each try. */
static void say_refused(dur_runtime *runtime, const dur_owner_report *report) {
    uint64_t now_ms = runtime->world->boot_ms(runtime->world->data);
    if (runtime->refusal_told_ms != 0 && now_ms - runtime->refusal_told_ms < REFUSAL_APART_MS) return;
    runtime->refusal_told_ms = now_ms;
    dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME, DUR__FIELDS(DUR__TEXT("owner", report->last_refused)),
             "%u dead owner(s) cannot be taken over yet: %s", report->refused, report->refused_why);
}

/* Milliseconds until the next one.  failed: how many in a row were not answered. */
static uint64_t beat(dur_runtime *runtime, uint32_t *failed) {
    uint64_t period_ms = beat_period_ms(runtime);
    dur_owner_report report = { 0 };
    dur_error err = DUR_ERROR_INIT;
    bool was_fenced = dur__keeper_fenced(runtime);
    uint64_t begin_ms = runtime->world->boot_ms(runtime->world->data);
    if (dur_store_owner_beat(runtime->store, dur_runtime_owner(runtime), &report, &err) != DUR_OK) {
        DUR__COUNT(runtime, provider_errors);
        char times[DUR__TIMES_BYTES];
        if (was_fenced && dur__trouble_say(runtime, &runtime->said_beat, err.code, times))
            dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME, NULL, 0,
                     "no beat gets through: nothing new is started until one does: %s%s", err.message, times);
        return dur__backoff_ms(BEAT_AGAIN_MS, (*failed)++, period_ms);
    }
    *failed = 0;
    if (!report.still_ours) {
        taken_over(runtime);
        return period_ms;
    }
    atomic_store(&runtime->beat_boot_ms, begin_ms);
    if (report.went_back) {
        dur__log(DUR_LOG_ERROR, DUR__LOG_PROVIDER, DUR__FIELDS(DUR__TEXT("owner", dur_runtime_owner(runtime))),
                 "the store may be in an earlier state than one that it has told: it was restored, or a standby was "
                 "promoted.  What is lost is done again");
        dur__keeper_renew_owner(runtime);
    }
    bool first_peer = atomic_exchange(&runtime->peers, report.peers) == 0 && report.peers > 0;
    if (first_peer)
        wake_loops(runtime); /* work that waits here may be somebody else's now: they sleep by what was so */
    if (was_fenced) {
        DUR__COUNT(runtime, fenced);
        dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME, DUR__FIELDS(DUR__TEXT("owner", dur_runtime_owner(runtime))),
                 "this runtime was silent for too long and had fenced itself; its leases still hold, it goes on");
        wake_loops(runtime);
    }
    /* A first turn that is written with its start leaves no trace when it crashes: not while something may do so. */
    uint64_t since_ms = report.now_ms > report.crashed_at_ms ? report.now_ms - report.crashed_at_ms : 0;
    if (report.taken_over > 0 || report.look_again_ms > 0 ||
        (report.crashed_at_ms != 0 && since_ms < CAREFUL_US / 1000)) /* a peer may have found it */
        atomic_store(&runtime->careful_until_us, dur__monotonic_us() + CAREFUL_US);
    if (report.taken_over > 0) {
        DUR__COUNT_N(runtime, take_overs, report.taken_over);
        dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME,
                 DUR__FIELDS(DUR__TEXT("owner", report.last_dead), DUR__NUMBER("freed", report.freed)),
                 "%u dead owner(s), %u leases and rows set free", report.taken_over, report.freed);
        atomic_store(&runtime->crash_hint, true);
        wake_loops(runtime);
    }
    if (report.refused > 0) say_refused(runtime, &report);
    return report.look_again_ms > 0 && report.look_again_ms < period_ms ? report.look_again_ms : period_ms;
}

/* Before anything runs: has somebody died? */
void dur__keeper_begin(dur_runtime *runtime) {
    uint32_t failed = 0;
    runtime->first_beat_us = dur__monotonic_us() + beat(runtime, &failed) * 1000;
}

/* ---- rows of running activities ---- */

typedef struct watched {
    dur_worker_claim claim;
    uint64_t serial;
} watched;

static size_t collect(dur_runtime *runtime, dur_arena *arena, watched **out) {
    dur__work *work = &runtime->work;
    uint64_t now_us = dur__monotonic_us();
    size_t count = 0;
    dur__mutex_lock(&work->mutex);
    dur__link *lists[3] = { &work->running, &work->queue, &work->blocked };
    *out = dur_arena_zalloc(arena, (work->running_count + work->queued + work->blocked_count + 1) * sizeof(watched));
    for (int i = 0; i < (runtime->has_owners ? 1 : 3); i++) { /* timed locks of waiting ones run out too */
        DUR__LIST_EACH(lists[i], at) {
            const dur__task *task = DUR__CONTAINER(at, dur__task, link);
            if (atomic_load(&task->cancelled) || atomic_load(&task->local)) continue;
            if (runtime->has_owners && now_us - task->started_at_us < LONG_RUNNING_US) continue;
            (*out)[count++] = (watched){ .claim = { .ref = { .instance = dur_arena_strdup(arena, task->ref.instance),
                                                             .execution_id = task->ref.execution_id,
                                                             .activity_id = task->ref.activity_id,
                                                             .row_id = task->ref.row_id },
                                                    .lock_token = dur_arena_strdup(arena, task->token) },
                                         .serial = task->serial };
        }
    }
    dur__mutex_unlock(&work->mutex);
    return count;
}

static void cancel_serial(dur_runtime *runtime, uint64_t serial) {
    dur__mutex_lock(&runtime->work.mutex);
    DUR__LIST_EACH(&runtime->work.running, at) {
        dur__task *task = DUR__CONTAINER(at, dur__task, link);
        if (task->serial == serial) dur__cancel_locked(task);
    }
    dur__mutex_unlock(&runtime->work.mutex);
}

static void check_rows(dur_runtime *runtime, dur_arena *arena) {
    watched *tasks;
    size_t count = collect(runtime, arena, &tasks);
    if (count == 0) return;
    dur_worker_claim *claims = dur_arena_alloc(arena, count * sizeof(*claims));
    bool *lost = dur_arena_zalloc(arena, count * sizeof(bool));
    for (size_t i = 0; i < count; i++)
        claims[i] = tasks[i].claim;
    dur_error err = DUR_ERROR_INIT;
    uint64_t extend_ms = runtime->has_owners ? 0 : runtime->options.worker_lock_timeout_ms;
    if (dur_store_check_works(runtime->store, claims, count, extend_ms, lost, &err) != DUR_OK) {
        DUR__COUNT(runtime, provider_errors); /* not known is not lost */
        return;
    }
    for (size_t i = 0; i < count; i++) {
        if (lost[i]) cancel_serial(runtime, tasks[i].serial);
    }
}

/* ---- activities that do not come back ---- */

/* Beyond abandoned_max: nobody comes in its place. */
static void log_overdue(size_t count, const dur__buf *names) {
    if (count == 0) return;
    dur__log(DUR_LOG_ERROR, DUR__LOG_ACTIVITY,
             DUR__FIELDS(DUR__NUMBER("activities", count), DUR__TEXT("names", dur__buf_str(names))),
             "activities do not end although they were cancelled, and keep their worker slots, because abandoned_max "
             "others were replaced: %s",
             dur__buf_str(names));
}

static void log_abandoned(size_t count, const dur__buf *names) {
    if (count == 0) return;
    dur__log(DUR_LOG_ERROR, DUR__LOG_ACTIVITY,
             DUR__FIELDS(DUR__NUMBER("activities", count), DUR__TEXT("names", dur__buf_str(names))),
             "activities do not end although they were cancelled and are abandoned: %s", dur__buf_str(names));
}

static void add_name(dur__buf *names, const dur__task *task) {
    dur__buf_format(names, "%s%s (%s)", names->size > 0 ? ", " : "", task->item.name, task->item.instance);
}

/* Under work.mutex.  Its thread ends when it returns; the runtime stays alive so long. */
static void abandon_locked(dur_runtime *runtime, dur__worker *worker) {
    dur__task *task = worker->task;
    atomic_store(&task->state, DUR__TASK_ABANDONED);
    dur__work_finished(runtime, task);
    atomic_fetch_sub(&runtime->work.in_hand, 1);
    runtime->work.abandoned++;
    worker->left_behind = true;
    dur__list_unlink(&worker->link);
    atomic_fetch_add(&runtime->references, 1);
    if (!worker->hosts) {
        dur__thread_detach(&worker->thread);
        runtime->work.threads--;
    }
    dur__gate_release(&task->alone);
    if (!task->overdue) DUR__COUNT(runtime, activity_abandoned);
}

static void abandon_overdue(dur_runtime *runtime) {
    dur__work *work = &runtime->work;
    uint64_t grace_us = runtime->options.activity_cancel_grace_ms * 1000;
    size_t count = 0, kept = 0, replace = 0;
    dur__buf names = { 0 }, kept_names = { 0 };
    dur__mutex_lock(&work->mutex);
    uint64_t now_us = dur__monotonic_us();
    DUR__LIST_EACH_SAFE(&work->workers, at, after) {
        dur__worker *worker = DUR__CONTAINER(at, dur__worker, link);
        dur__task *task = worker->task;
        if (task == NULL || !atomic_load(&task->cancelled) || now_us - task->cancelled_at_us < grace_us) continue;
        if (work->abandoned >= runtime->options.abandoned_max) { /* its slot stays taken */
            if (task->overdue) continue;
            task->overdue = true;
            DUR__COUNT(runtime, activity_abandoned);
            add_name(&kept_names, task);
            kept++;
            continue;
        }
        add_name(&names, task);
        count++;
        replace += !worker->hosts;
        abandon_locked(runtime, worker);
    }
    dur__mutex_unlock(&work->mutex);
    log_abandoned(count, &names);
    log_overdue(kept, &kept_names);
    dur__buf_free(&names);
    dur__buf_free(&kept_names);
    for (; replace > 0; replace--)
        (void)dur__worker_add(runtime);
}

/* ---- slots that do not get free ---- */

static void log_full(dur_runtime *runtime, dur__full full, const dur__buf *name) {
    uint64_t slots = runtime->options.worker_concurrency;
    bool overdue = full == DUR__FULL_OVERDUE;
    dur__log(overdue ? DUR_LOG_WARN : DUR_LOG_INFO, DUR__LOG_RUNTIME,
             DUR__FIELDS(DUR__NUMBER("worker_slots", slots), DUR__TEXT("names", dur__buf_str(name))),
             overdue ? "all %llu worker slots have activities that do not end although they were cancelled, %s among "
                       "them: no activity begins here until one of them ends"
                     : "all %llu worker slots have activities that run long, %s among them: other nodes get what "
                       "waits, and this one takes no more work until one of them ends",
             (unsigned long long)slots, dur__buf_str(name));
}

/* Once, and again when it has got worse, or something has ended since and that was long ago. */
static void say_full(dur_runtime *runtime) {
    dur__work *work = &runtime->work;
    dur__buf name = { 0 };
    uint64_t now_us = dur__monotonic_us();
    dur__full full = dur__work_full(runtime, FULL_FOR_US, &name);
    bool again = work->full_said != DUR__FULL_NOT && now_us - work->full_said_us >= FULL_APART_US;
    if (full == DUR__FULL_NOT && again) work->full_said = DUR__FULL_NOT;
    if (full > work->full_said) {
        work->full_said = full;
        work->full_said_us = now_us;
        log_full(runtime, full, &name);
    }
    dur__buf_free(&name);
}

size_t dur__keeper_abandon_all(dur_runtime *runtime, dur__buf *names) {
    dur__work *work = &runtime->work;
    size_t count = 0;
    dur__mutex_lock(&work->mutex);
    DUR__LIST_EACH_SAFE(&work->workers, at, after) {
        dur__worker *worker = DUR__CONTAINER(at, dur__worker, link);
        if (worker->task == NULL) continue;
        add_name(names, worker->task);
        abandon_locked(runtime, worker);
        count++;
    }
    dur__mutex_unlock(&work->mutex);
    log_abandoned(count, names);
    return count;
}

/* ---- stores without owners ---- */

void dur__keeper_renew_add(dur__inst *inst) {
    dur_runtime *runtime = inst->loop->runtime;
    if (runtime->has_owners) return;
    dur__mutex_lock(&runtime->mutex);
    dur__map_put(&runtime->renewals, inst->token, inst->token);
    inst->renewed = true;
    dur__mutex_unlock(&runtime->mutex);
}

void dur__keeper_renew_remove(dur__inst *inst) {
    dur_runtime *runtime = inst->loop->runtime;
    if (!inst->renewed) return;
    dur__mutex_lock(&runtime->mutex);
    (void)dur__map_remove(&runtime->renewals, inst->token);
    dur__mutex_unlock(&runtime->mutex);
    inst->renewed = false;
}

/* By the buffer, and so often that two renewals may fail or come late before the lock is gone. */
static uint64_t renewal_period_ms(uint64_t timeout_ms, uint64_t buffer_ms) {
    uint64_t third_ms = timeout_ms / 3, by_buffer_ms = timeout_ms > buffer_ms ? timeout_ms - buffer_ms : third_ms;
    return by_buffer_ms < third_ms ? by_buffer_ms : third_ms;
}

static void renew_instances(dur_runtime *runtime, dur_arena *arena) {
    dur__mutex_lock(&runtime->mutex);
    char **tokens = dur_arena_alloc(arena, (runtime->renewals.count + 1) * sizeof(char *));
    size_t count = 0;
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&runtime->renewals, &i)) != NULL;)
        tokens[count++] = dur_arena_strdup(arena, entry->value);
    dur__mutex_unlock(&runtime->mutex);
    for (size_t i = 0; i < count; i++)
        (void)dur_store_renew_orchestration_item_lock(runtime->store, tokens[i],
                                                      runtime->options.orchestrator_lock_timeout_ms, NULL);
}

static void renew_sessions(dur_runtime *runtime) {
    const char *owner = dur__runtime_session_owner(runtime, NULL);
    uint64_t renewed = 0;
    (void)dur_store_renew_session_lock(runtime->store, &owner, 1, runtime->options.session_lock_timeout_ms,
                                       runtime->options.session_idle_timeout_ms, &renewed, NULL);
}

static bool sessions_used(dur_runtime *runtime) {
    dur__mutex_lock(&runtime->work.mutex);
    bool used = runtime->work.session_count > 0;
    dur__mutex_unlock(&runtime->work.mutex);
    return used;
}

/* ---- the thread ---- */

static bool due(uint64_t *next_us, uint64_t now_us, uint64_t period_ms) {
    if (now_us < *next_us) return false;
    *next_us = now_us + period_ms * 1000;
    return true;
}

static void tick(dur_runtime *runtime, dur__keeper_times *next, dur_arena *arena, bool kicked) {
    const dur_runtime_options *o = &runtime->options;
    uint64_t now_us = dur__monotonic_us();
    dur_arena_reset(arena);
    if (atomic_load(&runtime->owner_stale) && now_us >= next->let_go) {
        if (let_go(runtime))
            next->let_goes_failed = 0;
        else
            next->let_go =
                dur__monotonic_us() + dur__backoff_ms(BEAT_AGAIN_MS, next->let_goes_failed++, TICK_MS) * 1000;
    }
    /* Loops kick as long as they may not go on: a store that does not answer is asked no sooner for that. */
    if (runtime->has_owners && (now_us >= next->beat || (kicked && next->beats_failed == 0))) {
        uint64_t ms = beat(runtime, &next->beats_failed);
        next->beat = (ms < beat_period_ms(runtime) ? dur__monotonic_us() : now_us) + ms * 1000; /* early: from now */
    }
    if (!dur__cover_need(KEEPER_BYTES)) return; /* the signs of life need none; the rest waits for the next tick */
    uint64_t rows_ms =
        runtime->has_owners ? TICK_MS : renewal_period_ms(o->worker_lock_timeout_ms, o->worker_lock_renewal_buffer_ms);
    if (due(&next->rows, now_us, rows_ms)) check_rows(runtime, arena);
    if (runtime->has_owners && due(&next->unserved, now_us, o->unregistered_backoff_ms)) {
        dur_arena_reset(arena);
        next->sessions_seen |= dur__fleet_look(runtime, arena); /* one of them is to end when it is idle */
    }
    if (due(&next->going, now_us, o->owner_timeout_ms / 2)) {
        dur_arena_reset(arena);
        dur__going_look(runtime, arena);
    }
    abandon_overdue(runtime);
    say_full(runtime);
    if (due(&next->shrink, now_us, SHRINK_MS)) dur__workers_shrink(runtime);
    dur__stuck_warn(runtime);
    dur__gate_expire(runtime, arena, now_us);
    bool sessions = sessions_used(runtime);
    next->sessions_seen |= sessions;
    if (!runtime->has_owners) {
        if (due(&next->instances, now_us,
                renewal_period_ms(o->orchestrator_lock_timeout_ms, o->orchestrator_lock_renewal_buffer_ms)))
            renew_instances(runtime, arena);
        if (next->sessions_seen &&
            due(&next->sessions, now_us,
                renewal_period_ms(o->session_lock_timeout_ms, o->session_lock_renewal_buffer_ms)))
            renew_sessions(runtime);
    }
    if (next->sessions_seen && due(&next->cleanup, now_us, o->session_cleanup_interval_ms)) {
        uint64_t removed = 0;
        (void)dur_store_cleanup_orphaned_sessions(runtime->store, o->session_idle_timeout_ms, &removed, NULL);
        next->sessions_seen = sessions; /* an idle node asks nothing */
    }
}

/* When it has to look again, at the latest. */
static uint64_t next_look_us(const dur_runtime *runtime, const dur__keeper_times *next, uint64_t now_us) {
    uint64_t at_us = now_us + (runtime->options.activity_cancel_grace_ms < TICK_MS ? 50 : TICK_MS) * 1000u;
    if (runtime->has_owners) {
        uint64_t soon_us = next->beat < next->unserved ? next->beat : next->unserved;
        uint64_t alone_us = dur__gate_due_us(runtime);
        if (alone_us <= now_us) alone_us = now_us + GATE_AGAIN_US;
        if (alone_us < soon_us) soon_us = alone_us;
        return soon_us < at_us ? soon_us : at_us;
    }
    if (next->rows < at_us) at_us = next->rows;
    if (next->instances < at_us) at_us = next->instances;
    if (next->sessions_seen && next->sessions < at_us) at_us = next->sessions;
    return at_us;
}

void dur__keeper_open(dur_runtime *runtime) {
    uint64_t now_us = dur__monotonic_us();
    runtime->keeper_next =
        (dur__keeper_times){ .beat = runtime->first_beat_us,
                             .rows = now_us,
                             .instances = now_us,
                             .sessions = now_us,
                             .unserved = now_us + runtime->options.unregistered_backoff_ms * 1000,
                             .going = now_us + runtime->options.owner_timeout_ms * 500,
                             .cleanup = now_us + runtime->options.session_cleanup_interval_ms * 1000 };
}

/* With the mutex, which is not held meanwhile. */
static void pass_locked(dur_runtime *runtime) {
    bool kicked = runtime->keeper_kicked;
    runtime->keeper_kicked = false;
    dur__mutex_unlock(&runtime->mutex);
    tick(runtime, &runtime->keeper_next, runtime->keeper_arena, kicked);
    dur__mutex_lock(&runtime->mutex);
}

uint64_t dur__keeper_pass(dur_runtime *runtime) {
    dur__mutex_lock(&runtime->mutex);
    pass_locked(runtime);
    uint64_t now_us = dur__monotonic_us();
    uint64_t next_us = runtime->keeper_kicked ? now_us : next_look_us(runtime, &runtime->keeper_next, now_us);
    dur__mutex_unlock(&runtime->mutex);
    return next_us;
}

void dur__keeper_main(void *data) {
    dur_runtime *runtime = data;
    dur__cover cover = { .reserve = &runtime->keeper_reserve };
    dur__runtime_inside = runtime;
    dur__cover_begin(&cover);
    dur__mutex_lock(&runtime->mutex);
    while (!runtime->keeper_exit) {
        pass_locked(runtime);
        uint64_t now_us = dur__monotonic_us();
        uint64_t until_us = next_look_us(runtime, &runtime->keeper_next, now_us);
        if (!runtime->keeper_exit && !runtime->keeper_kicked && until_us > now_us)
            (void)dur__cond_wait_us(&runtime->changed, &runtime->mutex, until_us - now_us);
    }
    dur__mutex_unlock(&runtime->mutex);
    dur__cover_end(&cover);
    dur__runtime_inside = NULL;
}
