/*
 * lookout.c: the threads that wait in the fetch of a store without wake-ups.
 *
 * Such a store is polled, and its fetch may block for a long poll.  A loop must not: workers hand it their ends and
 * turns wait for their commit.  So each loop has two lookouts, one for instances and one for activities.  While the
 * loop sleeps they ask in its place, and what comes is handed to its next round.  A store whose fetch answers at once
 * is asked again after dispatcher_min_poll_interval_ms.
 *
 * What is found is locked by time: where the loop cannot take it soon, it goes back for others.
 */
#include "runtime/runtime_internal.h"

#include "provider/provider_internal.h"
#include <errno.h>

#define POLL_FAKE_MS 5 /* where time is not real, nobody can say when something falls due */

static const dur_fetch *fetch_how(const dur__lookout *self, dur_fetch *out) {
    const dur_runtime *runtime = self->loop->runtime;
    *out = (dur_fetch){ .lock_ms = runtime->options.orchestrator_lock_timeout_ms,
                        .poll_ms = runtime->options.dispatcher_long_poll_timeout_ms,
                        .filter = &runtime->filter,
                        .handlers = &runtime->handlers,
                        .max = 1 };
    return out;
}

static const dur_work_fetch *work_how(const dur__lookout *self, dur_work_fetch *out) {
    dur_runtime *runtime = self->loop->runtime;
    dur__mutex_lock(&runtime->work.mutex);
    bool closed = dur__session_closed(runtime);
    dur__mutex_unlock(&runtime->work.mutex);
    *out = (dur_work_fetch){ .lock_ms = runtime->options.worker_lock_timeout_ms,
                             .poll_ms = runtime->options.dispatcher_long_poll_timeout_ms,
                             .session_owner = closed ? NULL : dur__runtime_session_owner(runtime, self->loop->owner),
                             .session_lock_ms = runtime->options.session_lock_timeout_ms,
                             .tags = runtime->tag_filter,
                             .handlers = &runtime->activities,
                             .max = 1 };
    return out;
}

static bool has_found(const dur__lookout *self) {
    return self->item.instance != NULL || self->work.json.data != NULL;
}

/* Ask the store, and wait there if it does. */
static int look(dur__lookout *self, dur_error *err) {
    dur_provider *store = self->loop->runtime->store;
    size_t count = 0;
    dur_arena_reset(self->arena);
    self->item = (dur_orchestration_item){ .instance = NULL };
    self->work = (dur_leased_work){ .lock_token = NULL };
    if (self->for_work) {
        dur_work_fetch how;
        return dur_store_fetch_works(store, self->arena, work_how(self, &how), &self->work, &count, err);
    }
    dur_fetch how;
    return dur_store_fetch_turns(store, self->arena, fetch_how(self, &how), &self->item, &count, err);
}

static void give_back(dur__lookout *self) {
    dur_provider *store = self->loop->runtime->store;
    if (self->item.instance != NULL)
        (void)dur_store_abandon_orchestration_item(store, self->item.lock_token, 0, true, NULL);
    if (self->work.json.data != NULL) (void)dur_store_abandon_work_item(store, self->work.lock_token, 0, true, NULL);
    self->item.instance = NULL;
    self->work.json.data = NULL;
}

static uint64_t interval_us(const dur_runtime *runtime) {
    uint64_t ms = runtime->options.dispatcher_min_poll_interval_ms;
    if (runtime->fake_time && ms > POLL_FAKE_MS) ms = POLL_FAKE_MS;
    return ms < UINT64_MAX / 2000 ? ms * 1000 : UINT64_MAX / 2;
}

/* With the mutex: until the loop has taken it, or half of the lock's time has passed. */
static void hand_over(dur__lookout *self) {
    const dur_runtime_options *options = &self->loop->runtime->options;
    uint64_t lock_ms = self->for_work ? options->worker_lock_timeout_ms : options->orchestrator_lock_timeout_ms;
    self->until_us = dur__monotonic_us() + (lock_ms < UINT64_MAX / 2000 ? lock_ms * 500 : UINT64_MAX / 4);
    self->state = DUR__LOOKOUT_FOUND;
    dur_waker_wake(self->loop->waker);
    for (uint64_t now_us; self->state == DUR__LOOKOUT_FOUND || self->state == DUR__LOOKOUT_TAKING;) {
        if (self->state == DUR__LOOKOUT_TAKING)
            dur__cond_wait(&self->changed, &self->mutex);
        else if (self->exit || (now_us = dur__monotonic_us()) >= self->until_us)
            break;
        else
            (void)dur__cond_wait_us(&self->changed, &self->mutex, self->until_us - now_us);
    }
    if (self->state != DUR__LOOKOUT_FOUND) return;
    self->state = DUR__LOOKOUT_IDLE;
    dur__mutex_unlock(&self->mutex);
    give_back(self);
    dur__mutex_lock(&self->mutex);
}

/* With the mutex, which is not held meanwhile.  Returns when it may ask next. */
static uint64_t look_once(dur__lookout *self) {
    dur_runtime *runtime = self->loop->runtime;
    uint64_t begin_us = dur__monotonic_us();
    dur_error err = DUR_ERROR_INIT;
    dur__mutex_unlock(&self->mutex);
    int code = look(self, &err);
    dur__mutex_lock(&self->mutex);
    if (code != DUR_OK) {
        DUR__COUNT(runtime, provider_errors);
        dur_waker_wake(self->loop->waker); /* its round meets the same error, and tells of it */
        uint64_t pause_us = dur__backoff_jitter_us(runtime->world, dur__backoff_ms(10, self->failures++, 3000));
        return dur__monotonic_us() + pause_us;
    }
    self->failures = 0;
    if (!has_found(self)) return begin_us + interval_us(runtime);
    hand_over(self);
    return 0;
}

static void lookout_main(void *data) {
    dur__lookout *self = data;
    uint64_t next_us = 0, now_us;
    dur__runtime_inside = self->loop->runtime;
    dur__mutex_lock(&self->mutex);
    while (!self->exit) {
        if (self->state != DUR__LOOKOUT_WANTED)
            dur__cond_wait(&self->changed, &self->mutex);
        else if (dur__keeper_fenced(self->loop->runtime))
            (void)dur__cond_wait_ms(&self->changed, &self->mutex, 20);
        else if ((now_us = dur__monotonic_us()) < next_us)
            (void)dur__cond_wait_us(&self->changed, &self->mutex, next_us - now_us);
        else
            next_us = look_once(self);
    }
    dur__mutex_unlock(&self->mutex);
    dur__runtime_inside = NULL;
}

/* ---- for the loop ---- */

static bool wanted(dur__lookout *self) {
    dur_runtime *runtime = self->loop->runtime;
    if (dur__runtime_phase(runtime) != DUR__PHASE_RUN) return false;
    if (!self->for_work) return dur__fleet_runs(runtime);
    return runtime->tag_filter.mode != DUR_TAGS_NONE && dur__work_room(runtime) > 0;
}

/* With the mutex: what the last round was handed is read no more. */
static void settle(dur__lookout *self) {
    if (self->state != DUR__LOOKOUT_TAKING) return;
    self->state = has_found(self) ? DUR__LOOKOUT_FOUND : DUR__LOOKOUT_IDLE;
    dur__cond_signal(&self->changed);
}

void dur__lookouts_sleep(dur__loop *loop, bool look) {
    for (size_t i = 0; i < DUR__LOOKOUTS; i++) {
        dur__lookout *self = &loop->lookouts[i];
        if (!self->started) continue;
        bool want = look && wanted(self);
        dur__mutex_lock(&self->mutex);
        settle(self);
        if (want && self->state == DUR__LOOKOUT_IDLE) {
            self->state = DUR__LOOKOUT_WANTED;
            dur__cond_signal(&self->changed);
        }
        dur__mutex_unlock(&self->mutex);
    }
}

void dur__lookouts_offer(dur__loop *loop) {
    dur_orchestration_item *item = NULL;
    dur_leased_work *work = NULL;
    if (!loop->fallback) return;
    for (size_t i = 0; i < DUR__LOOKOUTS; i++) {
        dur__lookout *self = &loop->lookouts[i];
        dur__mutex_lock(&self->mutex);
        settle(self);
        if (self->state == DUR__LOOKOUT_WANTED) self->state = DUR__LOOKOUT_IDLE; /* the loop looks itself */
        if (self->state == DUR__LOOKOUT_FOUND && dur__monotonic_us() < self->until_us) {
            self->state = DUR__LOOKOUT_TAKING;
            if (self->for_work)
                work = &self->work;
            else
                item = &self->item;
        }
        dur__mutex_unlock(&self->mutex);
    }
    dur__lane_offer(loop->lane, item, work);
}

/* ---- birth and death ---- */

int dur__lookouts_start(dur__loop *loop) {
    static const char *const kind[DUR__LOOKOUTS] = { "look", "fetch" };
    if (!loop->fallback) return 0;
    for (size_t i = 0; i < DUR__LOOKOUTS; i++) {
        dur__lookout *self = &loop->lookouts[i];
        char name[16];
        self->loop = loop;
        self->for_work = i == 1;
        self->arena = dur_arena_new();
        if (self->arena == NULL) return ENOMEM;
        dur__mutex_init(&self->mutex);
        dur__cond_init(&self->changed);
        snprintf(name, sizeof(name), "%.7s-%s%u", loop->runtime->options.name, kind[i], loop->index % 100);
        int failed = dur__thread_start(&self->thread, name, lookout_main, self);
        if (failed != 0) {
            dur__cond_destroy(&self->changed);
            dur__mutex_destroy(&self->mutex);
            return failed;
        }
        self->started = true;
    }
    return 0;
}

void dur__lookouts_stop(dur__loop *loop) {
    for (size_t i = 0; i < DUR__LOOKOUTS; i++) {
        dur__lookout *self = &loop->lookouts[i];
        if (!self->started) continue;
        dur__mutex_lock(&self->mutex);
        self->exit = true;
        dur__cond_signal(&self->changed);
        dur__mutex_unlock(&self->mutex);
    }
}

void dur__lookouts_close(dur__loop *loop) {
    dur__lookouts_sleep(loop, false);
    dur__lookouts_stop(loop);
    for (size_t i = 0; i < DUR__LOOKOUTS; i++) {
        dur__lookout *self = &loop->lookouts[i];
        if (self->started) {
            dur__thread_join(&self->thread);
            dur__cond_destroy(&self->changed);
            dur__mutex_destroy(&self->mutex);
        }
        dur_arena_free(self->arena);
        *self = (dur__lookout){ .loop = NULL };
    }
}
