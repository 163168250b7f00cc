/*
 * runtime.c: starting and stopping the threads, and what hosts may ask.
 *
 * A runtime is: one or several loops (loop.c), worker threads (worker.c) and the keeper (keeper.c); on a store without
 * wake-ups two lookouts beside each loop (lookout.c).  Stopping drains:
 *   DRAIN    nothing new is taken, waiting work goes back, running activities may end and their completions are
 *            committed
 *   RELEASE  leases are given back, the loops end and then the owner says goodbye
 * Activities that do not end, and loops whose handler does not return (stuck.c), are left behind with a reference to
 * the runtime.
 */
#include "runtime/runtime_internal.h"

#include "base/arena_internal.h"

#include <stdlib.h>

#define START_BYTES (128u << 10)
#define STOP_BYTES (64u << 10)
#define OP "runtime.start"
#define LOOK_US 20000u   /* a stop looks so often whether the loops have ended */
#define CANCELLED_MS 200 /* what an activity gets after its flag was raised at the end of the grace */

_Thread_local dur_runtime *dur__runtime_inside;

/* A name that outlives the process only if the host gave one; else sessions end with the owner that claimed them. */
const char *dur__runtime_session_owner(dur_runtime *runtime, const char *owner) {
    if (runtime->options.worker_node_id != NULL) return runtime->options.worker_node_id;
    return owner != NULL ? owner : runtime->session_owner_own;
}

const dur__handler *dur__runtime_find(dur_runtime *runtime, dur_handler_kind kind, const char *name,
                                      const char *version) {
    for (size_t i = 0; i < runtime->registry_count; i++) {
        const dur__handler *handler = dur__registry_find(runtime->registries[i], kind, name, version);
        if (handler != NULL) return handler;
    }
    return NULL;
}

/* ---- memory ---- */

static void runtime_free(dur_runtime *runtime) {
    for (size_t i = 0; i < runtime->registry_count; i++)
        dur_registry_free(runtime->registries[i]);
    for (size_t i = 0; i < runtime->owner_id_count; i++)
        dur__free(runtime->owner_ids[i]);
    dur__free(runtime->owner_ids);
    dur__session_free(runtime);
    dur__backoff_free(runtime);
    dur__fleet_free(runtime);
    dur__going_free(runtime);
    dur__map_free(&runtime->directory);
    dur__map_free(&runtime->renewals);
    dur__work_destroy(&runtime->work);
    dur_arena_free(runtime->keeper_arena);
    dur__reserve_free(&runtime->keeper_reserve);
    dur__reserve_free(&runtime->stop_reserve);
    dur__reserve_free(&runtime->stepped.worker.reserve);
    dur__census_destroy(&runtime->census);
    dur__cond_destroy(&runtime->changed);
    dur__mutex_destroy(&runtime->mutex);
    dur__options_free(runtime);
    if (runtime->store != NULL) dur_provider_close(runtime->store);
    for (size_t i = 0; i < runtime->loop_count; i++)
        if (runtime->loops[i].runtime != NULL) dur__mutex_destroy(&runtime->loops[i].inside.mutex);
    dur__free(runtime->loops);
    dur__free(runtime);
}

void dur__runtime_release(dur_runtime *runtime) {
    if (atomic_fetch_sub(&runtime->references, 1) == 1) runtime_free(runtime);
}

/* ---- starting ---- */

static int take_registries(dur_runtime *runtime, dur_error *err) {
    const dur_runtime_options *o = &runtime->options;
    if (o->registry != NULL) {
        dur__registry_freeze(o->registry);
        runtime->registries[runtime->registry_count++] = dur__registry_retain(o->registry);
    }
    if (o->handlers == NULL) return DUR_OK;
    dur_registry *table = NULL;
    int code = dur_registry_new(&table, err);
    if (code != DUR_OK) return code;
    runtime->registries[runtime->registry_count++] = table;
    if ((code = dur_registry_add(table, o->handlers, err)) != DUR_OK) return code;
    dur__registry_freeze(table);
    for (size_t i = 0; o->registry != NULL && i < dur_registry_count(table); i++) {
        dur_handler_kind kind;
        const char *name = dur_registry_name(table, i, &kind);
        if (dur_registry_has(o->registry, kind, name, NULL))
            return dur_error_set(err, DUR_EEXISTS, false, OP, "\"%s\" is in the table and in the registry", name);
    }
    return DUR_OK;
}

/* Who would take them? */
static int check_taken(const dur_runtime *runtime, dur_error *err) {
    for (size_t r = 0; r < runtime->registry_count && !runtime->stepped.on; r++) {
        const dur_registry *registry = runtime->registries[r];
        for (size_t i = 0; i < dur_registry_count(registry); i++) {
            dur_handler_kind kind;
            const char *name = dur_registry_name(registry, i, &kind);
            if (kind != DUR_HANDLER_ACTIVITY) continue;
            const dur__handler *handler = dur__registry_find(runtime->registries[r], kind, name, NULL);
            if (handler != NULL && handler->taken)
                return dur_error_set(err, DUR_EINVAL, false, OP,
                                     "activity \"%s\" is taken by the host: that needs DUR_THREADS_NONE", name);
        }
    }
    return DUR_OK;
}

static int take_store(dur_runtime *runtime, dur_error *err) {
    runtime->store = dur_store_retain(runtime->options.store);
    if (runtime->store == NULL) return DUR__NO_MEMORY(err, OP);
    runtime->world = runtime->options.world != NULL ? runtime->options.world : dur_world_real();
    runtime->fake_time = runtime->world != dur_world_real() && !dur__world_is_home(runtime->world);
    runtime->has_owners = dur_store_has(runtime->store, "owner_register");
    uint64_t random;
    runtime->world->random(runtime->world->data, &random, sizeof(random));
    snprintf(runtime->session_owner_own, sizeof(runtime->session_owner_own), "%.32s-%016llx", runtime->options.name,
             (unsigned long long)random);
    if (!runtime->has_owners) return DUR_OK;
    int code = dur__keeper_register(runtime, err);
    if (code == DUR_OK) dur__keeper_begin(runtime);
    return code;
}

static int open_loops(dur_runtime *runtime, dur_error *err) {
    /* One writer: one loop.  A server, or a store that we know nothing about, serves several at once. */
    bool several =
        (runtime->store->methods->own_clock || !dur_store_has(runtime->store, "lane_open")) && !runtime->stepped.on;
    size_t count = several ? runtime->options.orchestration_concurrency : 1;
    runtime->loops = dur__zget(count * sizeof(dur__loop));
    if (runtime->loops == NULL) return DUR__NO_MEMORY(err, OP);
    runtime->loop_count = count;
    for (size_t i = 0; i < count; i++) {
        int code = dur__loop_open(&runtime->loops[i], runtime, (unsigned)i, err);
        if (code != DUR_OK) return code;
    }
    return DUR_OK;
}

static int thread_error(dur_error *err, const char *what, int failed) {
    return dur_error_set(err, DUR_ENOMEM, false, OP, "%s cannot be started: %s", what, strerror(failed));
}

static int start_threads(dur_runtime *runtime, dur_error *err) {
    char name[16];
    if (runtime->stepped.on) {
        dur__step_open(runtime);
        return DUR_OK;
    }
    int code = dur__workers_start(runtime, err);
    if (code != DUR_OK) return code;
    dur__keeper_open(runtime);
    snprintf(name, sizeof(name), "%.9s-keep", runtime->options.name);
    int failed = dur__thread_start(&runtime->keeper, name, dur__keeper_main, runtime);
    if (failed != 0) return thread_error(err, "the keeper thread", failed);
    runtime->keeper_started = true;
    for (size_t i = 0; i < runtime->loop_count; i++) {
        dur__loop *loop = &runtime->loops[i];
        if ((failed = dur__lookouts_start(loop)) != 0) return thread_error(err, "a lookout's thread", failed);
        snprintf(name, sizeof(name), "%.8s-loop%zu", runtime->options.name, i % 100);
        failed = dur__thread_start(&loop->thread, name, dur__loop_main, loop);
        if (failed != 0) return thread_error(err, "a loop's thread", failed);
        loop->started = true;
    }
    return DUR_OK;
}

/* ---- ending ---- */

/* Away from RUN. */
static void set_phase(dur_runtime *runtime, dur__phase phase) {
    atomic_store(&runtime->phase, phase);
    for (size_t i = 0; i < runtime->loop_count; i++) {
        dur__lookouts_stop(&runtime->loops[i]);
        if (runtime->loops[i].waker != NULL) dur_waker_wake(runtime->loops[i].waker);
    }
}

/*
 * Called when no worker has anything in hand, so that every end has been handed over.  A loop that sleeps still says
 * quiet when one was; it stops saying so before it takes them, so looking at them first misses nothing.
 */
static bool loops_quiet(dur_runtime *runtime) {
    for (size_t i = 0; i < runtime->loop_count; i++) {
        dur__loop *loop = &runtime->loops[i];
        if (!loop->started && !runtime->stepped.on) continue;
        if (atomic_load(&loop->done) != NULL || !atomic_load(&loop->quiet)) return false;
    }
    return true;
}

/* Until nothing runs and nothing is left to commit; false: the time is over. */
static bool wait_drained(dur_runtime *runtime, uint64_t until_us, bool activities_only) {
    dur__work *work = &runtime->work;
    bool drained = false;
    dur__mutex_lock(&work->mutex);
    for (;;) {
        bool idle = atomic_load(&work->in_hand) == 0;
        drained = idle && (activities_only ||
                           (work->queued + work->taken_count + work->blocked_count == 0 && loops_quiet(runtime)));
        uint64_t now_us = dur__monotonic_us();
        if (drained || now_us >= until_us) break;
        if (runtime->stepped.driving) {
            dur__mutex_unlock(&work->mutex);
            (void)dur__step_wait(runtime, until_us);
            dur__mutex_lock(&work->mutex);
            continue;
        }
        uint64_t left_us = until_us - now_us;
        (void)dur__cond_wait_us(&work->idle_changed, &work->mutex, left_us < 2000 ? left_us : 2000);
    }
    dur__mutex_unlock(&work->mutex);
    return drained;
}

/* The grace is over: who runs is told, and nothing else is begun, or the last look at who runs would not be the last.
 */
static void cancel_running(dur_runtime *runtime) {
    dur__mutex_lock(&runtime->work.mutex);
    runtime->work.closed = true;
    DUR__LIST_EACH(&runtime->work.running, at) {
        dur__task *task = DUR__CONTAINER(at, dur__task, link);
        task->stopped = !atomic_load(&task->cancelled);
        dur__cancel_locked(task);
    }
    dur__mutex_unlock(&runtime->work.mutex);
}

/* False: when the time was over it was inside a handler, and is left behind. */
static bool stop_loop(dur__loop *loop, uint64_t until_us, dur__buf *handlers) {
    if (loop->runtime == NULL) return true; /* a start that failed did not come to it */
    dur__work *work = &loop->runtime->work;
    dur__mutex_lock(&work->mutex);
    while (loop->started && !loop->ended) {
        (void)dur__cond_wait_us(&work->idle_changed, &work->mutex, LOOK_US);
        if (loop->ended || dur__monotonic_us() < until_us) continue;
        dur__mutex_unlock(&work->mutex);
        if (dur__stuck_leave_behind(loop, handlers)) return false;
        dur__mutex_lock(&work->mutex);
    }
    dur__mutex_unlock(&work->mutex);
    if (loop->started) dur__thread_join(&loop->thread);
    dur__lookouts_close(loop);
    return true;
}

/* Returns how many were left behind. */
static size_t stop_loops(dur_runtime *runtime, uint64_t until_us, dur__buf *handlers) {
    size_t left = 0;
    atomic_store(&runtime->release_until_us, until_us);
    set_phase(runtime, DUR__PHASE_RELEASE);
    for (size_t i = 0; i < runtime->loop_count; i++)
        left += !stop_loop(&runtime->loops[i], until_us, handlers);
    if (runtime->stepped.driving) {
        while (!runtime->loops[0].ended && dur__step_wait(runtime, until_us)) {
        }
        dur__loop_drop(&runtime->loops[0]);
    }
    return left;
}

static void stop_keeper(dur_runtime *runtime) {
    if (!runtime->keeper_started) return;
    dur__mutex_lock(&runtime->mutex);
    runtime->keeper_exit = true;
    dur__cond_broadcast(&runtime->changed);
    dur__mutex_unlock(&runtime->mutex);
    dur__thread_join(&runtime->keeper);
}

/* What did not return in time, and its names. */
typedef struct left_behind {
    size_t activities, handlers;
    dur__buf activity_names, handler_names;
} left_behind;

static void left_behind_free(left_behind *left) {
    dur__buf_free(&left->activity_names);
    dur__buf_free(&left->handler_names);
}

static void shut_down(dur_runtime *runtime, uint64_t grace_ms, left_behind *left) {
    dur__names_remove(&runtime->names);
    uint64_t until_us = dur__monotonic_us() + (grace_ms > UINT64_MAX / 4000 ? UINT64_MAX / 4 : grace_ms * 1000);
    set_phase(runtime, DUR__PHASE_DRAIN);
    if (!wait_drained(runtime, until_us, false)) {
        cancel_running(runtime);
        if (!wait_drained(runtime, dur__monotonic_us() + CANCELLED_MS * 1000, true))
            left->activities = dur__keeper_abandon_all(runtime, &left->activity_names);
    }
    uint64_t release_ms = grace_ms < 1000 ? 1000 : grace_ms > 10000 ? 10000 : grace_ms;
    left->handlers = stop_loops(runtime, dur__monotonic_us() + release_ms * 1000, &left->handler_names);
    dur__step_close(runtime);
    stop_keeper(runtime); /* first: it may be about to replace a worker that it has abandoned */
    dur__workers_stop(runtime);
    for (size_t i = 0; i < runtime->loop_count; i++)
        if (!runtime->loops[i].inside.left_behind) dur__loop_close(&runtime->loops[i]);
    if (runtime->has_owners && runtime->owner_id_count > 0) dur__keeper_release(runtime, dur_runtime_owner(runtime));
    dur__mutex_lock(&runtime->mutex);
    runtime->stopped = true;
    dur__cond_broadcast(&runtime->changed);
    dur__mutex_unlock(&runtime->mutex);
}

/* What is made of the handlers' names. */
static bool room_for_names(const dur_runtime *runtime) {
    size_t bytes = START_BYTES;
    for (size_t r = 0; r < runtime->registry_count; r++) {
        const dur_registry *registry = runtime->registries[r];
        for (size_t i = 0; i < dur_registry_count(registry); i++) {
            dur_handler_kind kind;
            const char *name = dur_registry_name(registry, i, &kind),
                       *versions = dur_registry_versions(registry, kind, name);
            bytes += 1024 + (versions != NULL ? strlen(versions) / 4 + 1 : 1) * (256 + 4 * strlen(name));
        }
    }
    return dur__cover_need(bytes);
}

int dur_runtime_start(dur_runtime **out, const dur_runtime_options *options, dur_error *err) {
    dur__log_from_environment();
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, OP, "out is required");
    *out = NULL;
    DUR__SET_ASIDE(OP, err);
    if (!dur__cover_need(START_BYTES)) return DUR__NO_MEMORY(err, OP);
    dur_runtime *runtime = dur__zget(sizeof(*runtime));
    if (runtime == NULL) return DUR__NO_MEMORY(err, OP);
    atomic_init(&runtime->references, 1);
    atomic_init(&runtime->owner, "");
    runtime->process = dur__process_serial();
    dur__mutex_init(&runtime->mutex);
    dur__cond_init(&runtime->changed);
    dur__work_init(&runtime->work);
    dur__census_init(&runtime->census);
    runtime->keeper_arena = dur__arena_xnew();
    int code = dur__reserve_fill(&runtime->stop_reserve, STOP_BYTES) ? DUR_OK : DUR__NO_MEMORY(err, OP);
    if (code == DUR_OK) code = dur__options_take(runtime, options, err);
    if (code == DUR_OK) code = take_registries(runtime, err);
    if (code == DUR_OK) code = check_taken(runtime, err);
    if (code == DUR_OK && !room_for_names(runtime)) code = DUR__NO_MEMORY(err, OP);
    if (code == DUR_OK) dur__fleet_take(runtime);
    if (code == DUR_OK) code = take_store(runtime, err);
    if (code == DUR_OK) code = open_loops(runtime, err);
    if (code == DUR_OK) code = start_threads(runtime, err);
    if (code != DUR_OK) {
        left_behind left = { 0 };
        if (runtime->store != NULL) shut_down(runtime, 0, &left);
        left_behind_free(&left);
        dur__runtime_release(runtime);
        return code;
    }
    runtime->names = (dur__names){ .handlers = &runtime->handlers, .activities = &runtime->activities };
    dur__names_add(&runtime->names);
    dur__narrate_start(runtime);
    dur_error_clear(err);
    *out = runtime;
    return DUR_OK;
}

/* In a forked child there are no threads to end and nobody to say goodbye to.  Descriptors and the store go; what the
   threads had in hand at that moment may be half-way and is left as it is. */
static int stop_forked(dur_runtime *runtime, dur_error *err) {
    for (size_t i = 0; i < runtime->loop_count; i++) {
        dur_waker_free(runtime->loops[i].waker);
        runtime->loops[i].waker = NULL;
    }
    dur_provider_close(runtime->store);
    runtime->store = NULL;
    return dur_error_set(err, DUR_EFORKED, false, "runtime.stop", "the runtime belongs to the parent process");
}

static int busy(const left_behind *left, dur_error *err) {
    dur__buf text = { 0 };
    if (left->handlers > 0)
        dur__buf_format(&text, "%zu handler%s did not return: %s", left->handlers, left->handlers == 1 ? "" : "s",
                        dur__buf_str(&left->handler_names));
    if (left->activities > 0)
        dur__buf_format(&text, "%s%zu activit%s did not end: %s", text.size > 0 ? "; " : "", left->activities,
                        left->activities == 1 ? "y" : "ies", dur__buf_str(&left->activity_names));
    int code = DUR_OK;
    if (text.size > 0) code = dur_error_set(err, DUR_EBUSY, false, "runtime.stop", "%s", dur__buf_str(&text));
    dur__buf_free(&text);
    return code;
}

int dur_runtime_stop(dur_runtime *runtime, uint64_t grace_ms, dur_error *err) {
    dur_error_clear(err);
    if (runtime == NULL) return DUR_OK;
    if (dur__runtime_forked(runtime)) return stop_forked(runtime, err);
    if (dur__runtime_inside == runtime)
        return dur_error_set(err, DUR_EDEADLK, false, "runtime.stop",
                             "called from inside a handler, activity or callback of this runtime");
    if (dur__store_in_own_txn(runtime->store))
        return dur_error_set(err, DUR_EDEADLK, false, "runtime.stop",
                             "called inside a transaction of this thread on the store: dur_sqlite_commit or "
                             "dur_sqlite_rollback comes first");
    if (runtime->stepped.on && !dur__thread_is_self(&runtime->stepped.home))
        return dur_error_set(err, DUR_ESTATE, false, "runtime.stop",
                             "called by another thread than the one that has started it");
    dur__aside aside = { .reserve = runtime->stop_reserve };
    left_behind left = { 0 };
    runtime->stop_reserve = (dur__reserve){ NULL };
    aside.cover.reserve = &aside.reserve;
    dur__cover_begin(&aside.cover);
    shut_down(runtime, grace_ms, &left);
    int code = busy(&left, err);
    left_behind_free(&left);
    dur__runtime_release(runtime);
    dur__aside_end(&aside);
    return code;
}

/* ---- looking ---- */

int dur_runtime_metrics(dur_metrics *out, dur_runtime *runtime, dur_error *err) {
    if (out == NULL || runtime == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "runtime.metrics", "out and runtime are required");
    if (dur__runtime_forked(runtime))
        return dur_error_set(err, DUR_EFORKED, false, "runtime.metrics", "the runtime belongs to the parent process");
    if (out->size < sizeof(size_t) || out->size > sizeof(dur_metrics)) out->size = sizeof(dur_metrics);
    dur__metrics_read(out, &runtime->counters);
    dur_error_clear(err);
    return DUR_OK;
}

const char *dur_runtime_owner(const dur_runtime *runtime) {
    return runtime != NULL ? atomic_load(&((dur_runtime *)(uintptr_t)runtime)->owner) : "";
}
