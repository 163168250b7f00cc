/*
 * stuck.c: handlers that do not come back.
 *
 * A loop runs user code on its own thread: turns, replays, what dur_on_drop was given.  C cannot take a thread out of
 * a function, so a handler that loops or blocks has its loop for good.  The loop says when it goes in and comes out;
 * the keeper tells of a visit that lasts while it lasts, and a stop whose time is over leaves the thread behind with a
 * reference to the runtime.  While a thread is inside it touches nothing of its loop but the execution that it runs;
 * whoever holds `inside.mutex` and finds it there may touch the rest.
 */
#include "runtime/runtime_internal.h"

#include "coro/crash_report.h"

#define SLOW_US 1000000u

void dur__user_enter(dur__inst *inst) {
    dur__inside *inside = &inst->loop->inside;
    uint64_t now_us = dur__monotonic_us();
    dur__mutex_lock(&inside->mutex);
    DUR_ASSERT(inside->inst == NULL);
    inside->inst = inst;
    inside->since_us = now_us;
    inside->warn_at_us = now_us + SLOW_US;
    dur__mutex_unlock(&inside->mutex);
    dur__crash_report_inside(NULL, inst->id);
    inside->guest = (dur__guest){ .instance = inst->id };
    dur__guest_enter(&inside->guest);
}

void dur__user_leave(dur__inst *inst) {
    dur__inside *inside = &inst->loop->inside;
    dur__guest_leave(&inside->guest);
    dur__crash_report_inside(NULL, NULL);
    dur__mutex_lock(&inside->mutex);
    DUR_ASSERT(inside->inst == inst);
    inside->inst = NULL;
    dur__mutex_unlock(&inside->mutex);
}

/* ---- who it is ---- */

typedef struct visit {
    char name[128], instance[256], site[256];
    uint64_t ms;
} visit;

/* With the mutex, and a thread inside. */
static void describe(const dur__inside *inside, visit *out) {
    const dur__inst *inst = inside->inst;
    const char *where = inst->exec != NULL ? dur__exec_where(inst->exec) : "";
    snprintf(out->name, sizeof(out->name), "%s", inst->handler != NULL ? inst->handler->name : "");
    snprintf(out->instance, sizeof(out->instance), "%s", inst->id);
    snprintf(out->site, sizeof(out->site), "%s", where[0] != '\0' ? where : "its beginning");
    out->ms = (dur__monotonic_us() - inside->since_us) / 1000;
}

static void log_visit(dur_log_level level, const visit *who, const char *what) {
    dur__log(level, DUR__LOG_ORCHESTRATION,
             DUR__FIELDS(DUR__TEXT("instance_id", who->instance), DUR__TEXT("orchestration_name", who->name),
                         DUR__TEXT("site", who->site), DUR__NUMBER("took_ms", who->ms)),
             "a turn of \"%s\" has not returned for %llu ms%s (last call at %s)", who->name,
             (unsigned long long)who->ms, what, who->site);
}

/* ---- while it lasts ---- */

static void look_at(dur__loop *loop) {
    dur__inside *inside = &loop->inside;
    visit who;
    dur__mutex_lock(&inside->mutex);
    uint64_t now_us = dur__monotonic_us();
    bool slow = inside->inst != NULL && !inside->left_behind && now_us >= inside->warn_at_us;
    if (slow) {
        describe(inside, &who);
        inside->warn_at_us = now_us + (now_us - inside->since_us); /* again when it has lasted twice as long */
        /* Its client waits no longer: the start goes into the store, this turn is not committed, and it runs again from
         * there. */
        if (inside->inst->unborn != 0 && now_us - inside->since_us >= 2 * SLOW_US)
            dur__taker_back(&loop->taker, inside->inst->unborn, NULL);
    }
    dur__mutex_unlock(&inside->mutex);
    if (slow) log_visit(DUR_LOG_WARN, &who, ": handlers must not block");
}

void dur__stuck_warn(dur_runtime *runtime) {
    for (size_t i = 0; i < runtime->loop_count; i++)
        look_at(&runtime->loops[i]);
}

/* ---- a stop that cannot wait any longer ---- */

bool dur__stuck_leave_behind(dur__loop *loop, dur__buf *names) {
    dur__inside *inside = &loop->inside;
    visit who;
    dur__mutex_lock(&inside->mutex);
    bool stuck = inside->inst != NULL;
    if (stuck) {
        describe(inside, &who);
        inside->left_behind = true;
        atomic_fetch_add(&loop->runtime->references, 1);
        dur__thread_detach(&loop->thread);
        dur__loop_disown(loop);
    }
    dur__mutex_unlock(&inside->mutex);
    if (!stuck) return false;
    log_visit(DUR_LOG_ERROR, &who, " and the runtime stops without it: its thread is left behind");
    dur__buf_format(names, "%s%s (%s, last call at %s)", names->size > 0 ? ", " : "", who.name, who.instance, who.site);
    return true;
}
