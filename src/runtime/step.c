/*
 * step.c: a runtime without threads: its host calls what threads would.
 *
 * One step is a piece of what each thread does, in this order: the keeper's, if something is due; every activity that
 * waits to be started; one pass of the loop.  Before the host sleeps the lane rests, so that its waker and descriptors
 * are armed, and the next step rises first.
 */
#include "runtime/runtime_internal.h"

#include "base/pollset.h"
#include "coro/crash_report.h"
#include <unistd.h>

/* A store that says again and again that there is something, and rounds that find nothing: after so many the node
   sleeps all the same. */
#define IN_VAIN_MAX 3
#define IN_VAIN_US 5000
#define NEXT_MS_MAX 3600000u

static bool is_home(const dur_runtime *runtime) {
    return dur__thread_is_self(&runtime->stepped.home);
}

static dur__loop *loop_of(dur_runtime *runtime) {
    return &runtime->loops[0];
}

/* When the next activity may begin: not at once, where there was no memory for it; UINT64_MAX: none waits. */
static uint64_t work_due_us(dur_runtime *runtime) {
    dur__work *work = &runtime->work;
    dur__mutex_lock(&work->mutex);
    bool waits = work->queued > 0 && !work->closed;
    dur__mutex_unlock(&work->mutex);
    return waits && !dur__keeper_fenced(runtime) ? runtime->stepped.work_us : UINT64_MAX;
}

/* ---- resting ---- */

/* A lane may name other descriptors at each rest (a new connection); those that are watched already do no harm. */
static void watch_descriptors(const dur__stepped *self) {
    for (size_t i = 0; self->pollset > 0 && self->resting && i < self->rest.fd_count; i++)
        dur__pollset_add(self->pollset, self->rest.fds[i].fd);
}

static void begin_rest(dur_runtime *runtime) {
    dur__stepped *self = &runtime->stepped;
    uint64_t now_us = dur__monotonic_us();
    if (loop_of(runtime)->empty_looks == 0) self->idle_in_vain = 0; /* the last round did something */
    self->resting = dur__loop_rest(loop_of(runtime), &self->rest);
    if (self->resting) {
        uint64_t begun_us = loop_of(runtime)->rest_at_us; /* by which the loop knows that it is over */
        self->due_us = self->rest.us < UINT64_MAX - begun_us ? begun_us + self->rest.us : UINT64_MAX;
        self->idle_in_vain = 0;
    } else {
        self->due_us = ++self->idle_in_vain > IN_VAIN_MAX ? now_us + IN_VAIN_US : 0;
    }
    watch_descriptors(self);
}

/* False: it rests on, because nothing has come. */
static bool end_rest(dur_runtime *runtime) {
    dur__stepped *self = &runtime->stepped;
    if (!self->resting) return dur__monotonic_us() >= self->due_us;
    (void)dur__poll(self->rest.fds, self->rest.fd_count, 0);
    self->resting = false;
    self->due_us = 0;
    if (dur__loop_rise(loop_of(runtime), &self->rest)) return true;
    begin_rest(runtime);
    return !self->resting && self->due_us == 0;
}

/* ---- one step ---- */

static void look_after(dur_runtime *runtime) {
    dur__stepped *self = &runtime->stepped;
    bool kicked = false;
    dur__mutex_lock(&runtime->mutex);
    kicked = runtime->keeper_kicked;
    dur__mutex_unlock(&runtime->mutex);
    if (!kicked && dur__monotonic_us() < self->keeper_us) return;
    self->keeper_us = dur__keeper_pass(runtime);
}

/* False: there is nothing to do. */
static bool pass(dur_runtime *runtime) {
    dur__stepped *self = &runtime->stepped;
    dur__loop *loop = loop_of(runtime);
    self->in_pass = true;
    dur__pass pass = dur__loop_pass(loop);
    self->in_pass = false;
    switch (pass) {
    case DUR__PASS_MORE:
        return true;
    case DUR__PASS_ENDED:
        loop->ended = true;
        return false;
    case DUR__PASS_IDLE:
        begin_rest(runtime);
        return !self->resting && self->due_us == 0;
    case DUR__PASS_FENCED:
    case DUR__PASS_NO_OWNER:
    case DUR__PASS_NO_MEMORY:
        self->due_us = dur__monotonic_us() + loop->pause_us;
        return false;
    }
    return false;
}

/* Activities first: their ends are committed together.  False: there was nothing to do. */
static bool step(dur_runtime *runtime, uint64_t until_us) {
    bool ran = false;
    look_after(runtime);
    while (dur__worker_run_one(&runtime->stepped.worker)) {
        ran = true;
        if (dur__monotonic_us() >= until_us) return true;
        look_after(runtime);
    }
    if (dur__runtime_forked(runtime)) return false; /* an activity has come back in a child */
    if (!end_rest(runtime)) return ran;
    return pass(runtime) || ran;
}

/* Everything inside it is ours, whoever calls. */
static bool step_inside(dur_runtime *runtime, uint64_t until_us) {
    dur_runtime *outside = dur__runtime_inside;
    dur__cover cover = { .reserve = &loop_of(runtime)->reserve }; /* one thread, one reserve; a step may be in a step */
    dur__runtime_inside = runtime;
    dur__cover_begin(&cover);
    bool did = step(runtime, until_us);
    dur__cover_end(&cover);
    dur__runtime_inside = outside;
    return did;
}

/* ---- for the host ---- */

static int refuse_forked(const char *op, dur_error *err) {
    return dur_error_set(err, DUR_EFORKED, false, op, "the runtime belongs to the parent process");
}

static int enter(const dur_runtime *runtime, const char *op, dur_error *err) {
    if (runtime == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "runtime is required");
    if (dur__runtime_forked(runtime)) return refuse_forked(op, err);
    if (!runtime->stepped.on)
        return dur_error_set(err, DUR_EINVAL, false, op,
                             "the runtime has threads of its own: start it with DUR_THREADS_NONE");
    if (!is_home(runtime))
        return dur_error_set(err, DUR_ESTATE, false, op, "called by another thread than the one that has started it");
    if (runtime->stepped.in_pass)
        return dur_error_set(err, DUR_EDEADLK, false, op, "called by a handler of this runtime");
    dur_error_clear(err);
    return DUR_OK;
}

static uint64_t end_of(uint64_t budget_ms) {
    uint64_t now_us = dur__monotonic_us();
    return budget_ms < (UINT64_MAX - now_us) / 1000 ? now_us + budget_ms * 1000 : UINT64_MAX;
}

int dur_runtime_step(dur_runtime *runtime, uint64_t budget_ms, dur_error *err) {
    int code = enter(runtime, "runtime.step", err);
    if (code != DUR_OK) return code;
    uint64_t until_us = end_of(budget_ms);
    while (step_inside(runtime, until_us) && dur__monotonic_us() < until_us) {
    }
    return dur__runtime_forked(runtime) ? refuse_forked("runtime.step", err) : DUR_OK;
}

int dur_runtime_run_until_idle(dur_runtime *runtime, uint64_t budget_ms, dur_error *err) {
    int code = enter(runtime, "runtime.run_until_idle", err);
    if (code != DUR_OK) return code;
    uint64_t until_us = end_of(budget_ms);
    while (step_inside(runtime, until_us))
        if (dur__monotonic_us() >= until_us)
            return dur_error_set(err, DUR_ETIMEOUT, true, "runtime.run_until_idle",
                                 "there was more to do than %llu ms allow", (unsigned long long)budget_ms);
    return dur__runtime_forked(runtime) ? refuse_forked("runtime.run_until_idle", err) : DUR_OK;
}

static uint64_t next_us(dur_runtime *runtime) {
    const dur__stepped *self = &runtime->stepped;
    uint64_t now_us = dur__monotonic_us(), work_us = work_due_us(runtime);
    uint64_t at_us = self->due_us < self->keeper_us ? self->due_us : self->keeper_us;
    if (dur__world_entered()) at_us = self->due_us; /* who sleeps for a year in no time shows life when it is over */
    if (work_us < at_us) at_us = work_us;
    return at_us > now_us ? at_us - now_us : 0;
}

uint64_t dur_runtime_next_ms(dur_runtime *runtime) {
    if (enter(runtime, "runtime.next_ms", NULL) != DUR_OK) return NEXT_MS_MAX;
    uint64_t us = next_us(runtime);
    uint64_t ms = us / 1000 + (us % 1000 != 0);
    return ms < NEXT_MS_MAX ? ms : NEXT_MS_MAX;
}

/* The loop rests, and knows of nothing that will come. */
static bool is_endless(dur_runtime *runtime, uint64_t now_us) {
    const dur__stepped *self = &runtime->stepped;
    return self->due_us > now_us && self->resting && loop_of(runtime)->rest_endless;
}

uint64_t dur_runtime_due_ms(dur_runtime *runtime) {
    if (enter(runtime, "runtime.due_ms", NULL) != DUR_OK) return UINT64_MAX;
    const dur__stepped *self = &runtime->stepped;
    uint64_t now_us = dur__monotonic_us(), work_us = work_due_us(runtime);
    uint64_t at_us = is_endless(runtime, now_us) ? UINT64_MAX : self->due_us;
    if (work_us < at_us) at_us = work_us;
    if (at_us <= now_us) return 0;
    return at_us < UINT64_MAX ? (at_us - now_us + 999) / 1000 : UINT64_MAX;
}

int dur_runtime_fd(dur_runtime *runtime) {
    if (enter(runtime, "runtime.fd", NULL) != DUR_OK) return -1;
    dur__stepped *self = &runtime->stepped;
    if (self->pollset == 0) {
        self->pollset = dur__pollset_open();
        watch_descriptors(self);
    }
    return self->pollset;
}

/* ---- for clients that wait on this thread ---- */

/* True: the host has done something. */
static bool drive_host(dur__stepped *self) {
    if (self->host == NULL) return false;
    uint64_t ms = self->host(self->host_data);
    uint64_t now_us = dur__monotonic_us();
    self->host_us = ms < (UINT64_MAX - now_us) / 1000 ? now_us + ms * 1000 : UINT64_MAX;
    return ms == 0;
}

static bool drive_step(void *data) {
    dur_runtime *runtime = data;
    if (runtime->stepped.in_pass || dur__runtime_forked(runtime)) return false;
    return step_inside(runtime, end_of(1)) || drive_host(&runtime->stepped);
}

int dur_runtime_host(dur_runtime *runtime, dur_host_fn *fn, void *data, dur_error *err) {
    int code = enter(runtime, "runtime.host", err);
    if (code != DUR_OK) return code;
    runtime->stepped.host = fn;
    runtime->stepped.host_data = data;
    runtime->stepped.host_us = UINT64_MAX;
    return DUR_OK;
}

static size_t drive_rest(void *data, struct pollfd *fds, uint64_t *us) {
    dur_runtime *runtime = data;
    const dur__stepped *self = &runtime->stepped;
    *us = UINT64_MAX;
    if (dur__runtime_forked(runtime)) return 0;
    bool endless = dur__world_alone() && is_endless(runtime, dur__monotonic_us()) && work_due_us(runtime) == UINT64_MAX;
    if (!self->in_pass && !endless) *us = next_us(runtime);
    if (self->host != NULL && !self->in_pass && self->host_us != UINT64_MAX) {
        uint64_t now_us = dur__monotonic_us(), left_us = self->host_us > now_us ? self->host_us - now_us : 0;
        if (left_us < *us) *us = left_us;
    }
    if (!self->resting || self->in_pass) return 0;
    memcpy(fds, self->rest.fds, self->rest.fd_count * sizeof(*fds));
    return self->rest.fd_count;
}

void dur__step_beat(dur_runtime *runtime) {
    if (runtime->stepped.on && is_home(runtime) && !dur__runtime_forked(runtime)) look_after(runtime);
}

/* ---- birth and death ---- */

_Static_assert(sizeof(((dur_rest *)NULL)->fds) <= DUR__DRIVE_FDS * sizeof(struct pollfd),
               "a driver sleeps on what a lane rests on");

void dur__step_open(dur_runtime *runtime) {
    dur__stepped *self = &runtime->stepped;
    self->home = dur__thread_self();
    self->driver = (dur__driver){ .step = drive_step, .rest = drive_rest, .data = runtime };
    self->keeper_us = runtime->first_beat_us;
    self->worker.hosts = true;
    dur__worker_name(&self->worker, runtime);
    dur__keeper_open(runtime);
    dur__crash_report_thread_begin();
    dur__driver_add(&self->driver);
    self->driving = true;
}

bool dur__step_wait(dur_runtime *runtime, uint64_t until_us) {
    dur__stepped *self = &runtime->stepped;
    uint64_t now_us = dur__monotonic_us();
    if (now_us >= until_us) return false;
    if (step_inside(runtime, until_us)) return true;
    uint64_t us = next_us(runtime);
    if (us > until_us - now_us) us = until_us - now_us;
    (void)dur__poll(self->rest.fds, self->resting ? self->rest.fd_count : 0, us);
    return true;
}

void dur__step_close(dur_runtime *runtime) {
    dur__stepped *self = &runtime->stepped;
    if (!self->driving) return;
    if (self->resting) (void)dur__loop_rise(loop_of(runtime), &self->rest);
    dur__driver_remove(&self->driver);
    dur__crash_report_thread_end();
    if (self->pollset > 0) close(self->pollset);
}
