/*
 * loop.c: the thread that resumes handlers, commits, and hands out work.
 *
 * One pass: take what workers have finished, run every instance that can go on, wait a moment for completions that are
 * about to come (the gather rule), and exchange everything with the store in one round; when nothing is left to do,
 * sleep in the store until something may have come.
 */
#include "runtime/runtime_internal.h"

#include "coro/crash_report.h"
#include "provider/live.h"
#include "provider/provider_internal.h"
#include <stdlib.h>

#define GATHER_US 100 /* a commit waits at most so long for completions … */
#define QUIET_US 40   /* … and so long without another one */
#define LAZY_US 25    /* a second worker is woken when the first has not drained the batch by then */
#define SPIN_US 30    /* between two completions */
#define PROMPT_US 150 /* completions that come back within this are worth spinning for … */
#define SPIN_MAX_US 100
#define GATHERS_IN_VAIN 3 /* in a row */
#define STARTS_US 200     /* and starts come within this */
#define WAIT_MAX_MS 3600000u
#define STOPPING_US 5000u /* a loop that stops, or may not go on, looks so often whether it may */
#define FENCED_US 20000u
#define SUSPECTS_MS 500 /* who waits to run a suspect alone asks so often whether it may */

/* ---- birth and death ---- */

static void taker_join(dur__loop *loop) {
    loop->others_wait = true; /* until a round has looked */
    loop->taker.prefix = loop->token_prefix;
    loop->taker.waker = loop->waker;
    loop->taker.asleep = &loop->rests;
    loop->taker.handlers = &loop->runtime->handlers;
    dur__taker_join(&loop->taker, loop->runtime->store);
}

/* Starts that wait for it, or that it had taken, go back. */
static void lane_close(dur__loop *loop) {
    dur__taker_leave(&loop->taker);
    if (loop->lane != NULL) dur_store_lane_close(loop->lane); /* a loop that lost its owner may have none */
    loop->lane = NULL;
}

static int lane_open(dur__loop *loop, dur_error *err) {
    dur_runtime *runtime = loop->runtime;
    loop->epoch = atomic_load(&runtime->epoch);
    loop->owner = runtime->has_owners ? atomic_load(&runtime->owner) : NULL;
    dur_lane_options options = {
        .owner = loop->owner, .waker = loop->waker, .handlers = &runtime->handlers, .stepped = runtime->stepped.on
    };
    int code = dur_store_lane_open(runtime->store, &options, &loop->lane, err);
    if (code == DUR_OK) {
        loop->fallback = dur__lane_is_fallback(loop->lane);
        dur__lane_set_poll(loop->lane, runtime->stepped.on ? runtime->options.dispatcher_min_poll_interval_ms
                                                           : WAIT_MAX_MS); /* its lookouts poll */
        /* Locks by time are renewed, under the token that they have now; and a host steps when it likes. */
        if (!loop->fallback && loop->owner != NULL && !runtime->stepped.on) taker_join(loop);
    }
    return code;
}

int dur__loop_open(dur__loop *loop, dur_runtime *runtime, unsigned index, dur_error *err) {
    loop->runtime = runtime;
    loop->index = index;
    dur__mutex_init(&loop->inside.mutex);
    dur__live_loop(runtime->store, true);
    dur__list_init(&loop->ready);
    dur__list_init(&loop->commits);
    dur__list_init(&loop->parked);
    dur__list_init(&loop->starving);
    dur__list_init(&loop->restarts);
    dur__list_init(&loop->acks);
    dur__list_init(&loop->backs);
    dur__list_init(&loop->hand_out);
    dur__list_init(&loop->free_tasks);
    dur__list_init(&loop->free_letters);
    loop->look_instances = loop->look_work = true;
    loop->suspect_last = true; /* the others first */
    loop->next_due_ms = DUR_NEVER;
    loop->now_ms = dur_store_now_ms(runtime->store);
    runtime->world->random(runtime->world->data, &loop->token_prefix, sizeof(loop->token_prefix));
    loop->arena = dur_arena_new();
    loop->waker = dur_waker_new();
    loop->stacks = dur__stacks_new();
    bool reserve = dur__loop_has_memory(loop);
    if (loop->arena == NULL || loop->waker == NULL || loop->stacks == NULL || !reserve)
        return dur_error_set(err, DUR_ENOMEM, false, "runtime.start", "no memory or descriptor for a loop");
    return lane_open(loop, err);
}

static void drop_all(dur__loop *loop) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&loop->instances, &i)) != NULL;)
        dur__inst_free(entry->value);
}

static void drop_acks(dur__loop *loop) {
    dur__link *lists[2] = { &loop->acks, &loop->backs };
    for (int i = 0; i < 2; i++)
        for (dur__link *link; (link = dur__list_pop(lists[i])) != NULL;)
            dur__pool_task_back(loop, DUR__CONTAINER(link, dur__task, link));
}

/* Their rows go with the owner.  To take one may let another in that waits for its session. */
static void drop_waiting(dur__loop *loop) {
    dur__link tasks;
    dur__list_init(&tasks);
    while (dur__work_take_waiting(loop->runtime, loop, &tasks, 0, true) > 0) {
        for (dur__link *link; (link = dur__list_pop(&tasks)) != NULL;)
            dur__pool_task_back(loop, DUR__CONTAINER(link, dur__task, link));
    }
}

static void drop_done(dur__loop *loop) {
    dur__task *task = atomic_exchange(&loop->done, NULL);
    for (dur__task *next; task != NULL; task = next) {
        next = task->next_done;
        dur__pool_task_back(loop, task);
    }
}

/* What could not be released: a handler's stack is left on the thread that ran it. */
void dur__loop_drop(dur__loop *loop) {
    drop_all(loop);
}

void dur__loop_close(dur__loop *loop) {
    if (loop->runtime == NULL) return;
    if (!loop->inside.left_behind) dur__live_loop(loop->runtime->store, false);
    lane_close(loop);
    drop_all(loop);
    dur__live_tell(loop->runtime->store);
    drop_acks(loop);
    drop_waiting(loop);
    drop_done(loop);
    dur__map_free(&loop->instances);
    dur__free(loop->unborn);
    dur__pool_free(loop);
    dur__reserve_free(&loop->reserve);
    if (loop->stacks != NULL) dur__stacks_free(loop->stacks);
    dur_arena_free(loop->arena);
    dur_waker_free(loop->waker);
}

/* Whoever waits for an instance of this loop asks the store from now on, which gives it to others with the owner. */
void dur__loop_disown(dur__loop *loop) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&loop->instances, &i)) != NULL;) {
        dur__inst *inst = entry->value;
        dur__inst_committed_once(inst);
        dur__live_remove(loop->runtime->store, inst->id, inst);
    }
    drop_waiting(loop);
    lane_close(loop);
    dur__live_loop(loop->runtime->store, false);
    dur__live_tell(loop->runtime->store);
}

/* ---- lists ---- */

void dur__loop_make_ready(dur__loop *loop, dur__inst *inst) {
    dur__inst_move(inst, DUR__INST_READY);
    dur__list_push(&loop->ready, &inst->link);
}

void dur__loop_queue_commit(dur__inst *inst) {
    dur__local_rows(inst);
    dur__inst_move(inst, inst->exec != NULL ? DUR__INST_COMMITTING : DUR__INST_LEAVING);
    dur__list_push(&inst->loop->commits, &inst->link);
}

/* ---- completions ---- */

void dur__loop_done(dur__loop *loop, dur__task *task) {
    dur__task *head = atomic_load_explicit(&loop->done, memory_order_relaxed);
    do {
        task->next_done = head;
    } while (!atomic_compare_exchange_weak(&loop->done, &head, task));
    /* One wake per batch, and none for a loop that is awake: a wake that nobody needed would end its next sleep. */
    if (head == NULL && atomic_load(&loop->asleep)) dur_waker_wake(loop->waker);
}

/* The first one back of what the last round has handed out: how long it took, averaged. */
static void note_return(dur__loop *loop) {
    if (loop->handed_at_us == 0) return;
    uint64_t took_us = dur__monotonic_us() - loop->handed_at_us;
    if (took_us > 4 * PROMPT_US) took_us = 4 * PROMPT_US; /* one slow one among many quick ones */
    loop->return_us = (3 * loop->return_us + took_us) / 4;
    loop->handed_at_us = 0;
}

void dur__loop_take_done(dur__loop *loop) {
    dur__task *newest = atomic_exchange(&loop->done, NULL), *oldest = NULL;
    if (newest != NULL) note_return(loop);
    while (newest != NULL) {
        dur__task *next = newest->next_done;
        newest->next_done = oldest;
        oldest = newest;
        newest = next;
    }
    while (oldest != NULL) {
        dur__task *next = oldest->next_done;
        dur__route_completion(loop, oldest);
        oldest = next;
    }
}

/* ---- running ---- */

void dur__loop_run_ready(dur__loop *loop) {
    if (dur__list_empty(&loop->ready)) return;
    loop->now_ms = dur_store_now_ms(loop->runtime->store);
    for (dur__link *link; (link = dur__list_first(&loop->ready)) != NULL;) {
        if (dur__runtime_phase(loop->runtime) == DUR__PHASE_RELEASE) break;
        if (!dur__loop_room(0)) break; /* the next pass begins with more */
        dur__inst_step(DUR__CONTAINER(link, dur__inst, link));
        if (dur__runtime_forked(loop->runtime)) break; /* the child of a handler */
    }
}

static void feed_starving(dur__loop *loop, uint64_t now_us) {
    if (dur__list_empty(&loop->starving) || now_us < loop->starving_until_us) return;
    for (dur__link *link; (link = dur__list_first(&loop->starving)) != NULL;)
        dur__loop_make_ready(loop, DUR__CONTAINER(link, dur__inst, link));
}

static bool done_waiting(dur__loop *loop) {
    return atomic_load_explicit(&loop->done, memory_order_relaxed) != NULL;
}

/* Before sleeping; whoever finishes a task after this wakes us.  False: one has finished already. */
static bool fall_asleep(dur__loop *loop) {
    atomic_store(&loop->asleep, true);
    if (atomic_load(&loop->done) == NULL) return true;
    atomic_store(&loop->asleep, false);
    return false;
}

static void doze(dur__loop *loop, uint64_t us) {
    if (!fall_asleep(loop)) return;
    (void)dur_waker_sleep(loop->waker, us);
    atomic_store(&loop->asleep, false);
}

/* A server's backend wants the core that we would spin on. */
static uint64_t spin_us(const dur__loop *loop) {
    return loop->runtime->store->methods->own_clock ? 0 : SPIN_US;
}

/*
 * Instances that were committed together come back together only if the next commit waits for them; otherwise they
 * split into cohorts that alternate for ever, with twice the fsyncs.  What is ready at once, because it was acquired by
 * the last round, waits for them too.  Never by time alone: with one completion expected there is nothing to wait for;
 * and where activities have turned out to be slow nobody waits for the first.
 */
static void gather(dur__loop *loop) {
    if (loop->expected == 0 || dur__list_empty(&loop->commits)) return;
    if (loop->runtime->stepped.on) return; /* who waits for itself waits in vain */
    if (!loop->gathered && loop->gathers_in_vain >= GATHERS_IN_VAIN) return;
    uint64_t begin_us = dur__monotonic_us(), quiet_us = begin_us, now_us = begin_us;
    bool nudged = false;
    while (loop->expected > 0 && now_us - begin_us < GATHER_US && (!loop->gathered || now_us - quiet_us < QUIET_US)) {
        if (done_waiting(loop)) {
            dur__loop_take_done(loop);
            dur__loop_run_ready(loop);
            quiet_us = dur__monotonic_us();
        } else if (!nudged && now_us - begin_us >= LAZY_US) {
            dur__work_nudge(loop->runtime, LAZY_US);
            nudged = true;
        } else if (now_us - quiet_us < spin_us(loop)) {
            dur__relax();
        } else {
            doze(loop, loop->gathered ? QUIET_US - (now_us - quiet_us) : GATHER_US - (now_us - begin_us));
        }
        now_us = dur__monotonic_us();
    }
    loop->gathers_in_vain = loop->gathered ? 0 : loop->gathers_in_vain + 1;
    loop->expected = 0;
}

/*
 * Who waits for an end and is told of it often starts the next one: that belongs into the same commit, too.  Clients
 * are woken one by one, so the last of them comes later than any completion.
 */
static void gather_starts(dur__loop *loop) {
    size_t came = dur__unborn_take(loop);
    uint64_t now_us = dur__monotonic_us();
    if (came > 0) dur__loop_run_ready(loop);
    if (loop->told_at_us == 0 || dur__list_empty(&loop->commits) || loop->runtime->stepped.on) return;
    if (came > 0) loop->starts_in_vain = 0;
    while (loop->starts_in_vain < GATHERS_IN_VAIN && came < loop->told && now_us - loop->told_at_us < STARTS_US) {
        for (int i = 0; i < 16 && spin_us(loop) > 0; i++)
            dur__relax();
        if (spin_us(loop) == 0) doze(loop, QUIET_US);
        size_t more = dur__unborn_take(loop);
        if (more > 0) dur__loop_run_ready(loop);
        came += more;
        now_us = dur__monotonic_us();
    }
    loop->starts_in_vain = came > 0 ? 0 : loop->starts_in_vain + (loop->starts_in_vain < GATHERS_IN_VAIN);
    loop->told_at_us = 0;
}

/* ---- sleeping ---- */

/* Not while it stops, nor until it may ask a store again that failed: what is there has to wait. */
static bool may_look(const dur__loop *loop, uint64_t now_us) {
    return dur__runtime_phase(loop->runtime) == DUR__PHASE_RUN && loop->retry_at_us <= now_us;
}

static uint64_t due_in_ms(const dur__loop *loop, uint64_t now_us) {
    if (loop->next_due_ms == DUR_NEVER || !may_look(loop, now_us)) return WAIT_MAX_MS;
    uint64_t now_ms = dur_store_now_ms(loop->runtime->store);
    if (loop->next_due_ms > now_ms) return loop->next_due_ms - now_ms;
    return loop->empty_looks > 2 ? 20 : 0; /* due, but not for us: do not spin on it */
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t wait_ms(dur__loop *loop) {
    dur_runtime *runtime = loop->runtime;
    uint64_t now_us = dur__monotonic_us();
    uint64_t ms = smaller(due_in_ms(loop, now_us), WAIT_MAX_MS);
    uint64_t next_us = dur__round_next_us(loop, now_us);
    if (next_us != UINT64_MAX) ms = smaller(ms, next_us > 0 ? next_us / 1000 + 1 : 0); /* due: not after another rest */
    if (!dur__list_empty(&loop->starving)) ms = smaller(ms, 20);
    DUR__LIST_EACH(&loop->restarts, at) {
        uint64_t due_us = DUR__CONTAINER(at, dur__inst, link)->retry_at_us;
        ms = smaller(ms, due_us > now_us ? (due_us - now_us) / 1000 + 1 : 0);
    }
    if (loop->owed_look) ms = smaller(ms, 20);
    uint64_t back_us = dur__route_backs(loop, now_us);
    if (back_us != UINT64_MAX) ms = smaller(ms, back_us > now_us ? (back_us - now_us) / 1000 + 1 : 0);
    if (loop->suspect_instance != 0 || loop->suspect_work != 0) ms = smaller(ms, SUSPECTS_MS);
    if (atomic_load(&runtime->peers) > 0 && dur__work_any(runtime)) ms = smaller(ms, 50);
    if (runtime->fake_time) ms = smaller(ms, 5);
    if (dur__runtime_phase(runtime) != DUR__PHASE_RUN) ms = smaller(ms, STOPPING_US / 1000);
    if (dur__round_due(loop, now_us)) return 0; /* a pause has ended since the pass has looked */
    return ms;
}

/* To wake a sleeping thread takes as long as a small activity: where they have come back at once so far, the loop stays
   awake for the next.  Beside a server only for a single one: then the server has nothing to do for us meanwhile.
   True: a completion has come meanwhile. */
static bool spin_for_completion(dur__loop *loop) {
    if (loop->expected == 0 || loop->return_us > PROMPT_US) return false;
    if (spin_us(loop) == 0 && loop->expected > 1) return false;
    uint64_t end_us = dur__monotonic_us() + SPIN_MAX_US;
    do {
        for (int i = 0; i < 16; i++) {
            if (done_waiting(loop)) return true;
            dur__relax();
        }
    } while (dur__monotonic_us() < end_us);
    return false;
}

/* Behind a sleep that began then: what to look at. */
static void woke(dur__loop *loop, bool was_owed, uint64_t begin_us) {
    if (done_waiting(loop) && !(was_owed && dur__monotonic_us() - begin_us >= 20000)) {
        loop->owed_look = true;
        return;
    }
    loop->look_instances = loop->look_work = loop->news = true;
    loop->suspect_instances_none = loop->suspect_work_none = false;
}

/* Work may wait for a thread and nothing else: nobody would wake us for that. */
static void grow_workers(dur__loop *loop) {
    uint64_t us;
    while (!done_waiting(loop) && (us = dur__workers_grow(loop->runtime)) != UINT64_MAX)
        doze(loop, us);
}

/* The same, and for who hands in a start: not while it waits for completions, for then it comes by soon. */
static bool begin_rest(dur__loop *loop) {
    if (!fall_asleep(loop)) return false;
    atomic_store(&loop->rests, true);
    if (atomic_load(&loop->taker.waiting) == 0) return true;
    atomic_store(&loop->rests, false);
    atomic_store(&loop->asleep, false);
    return false;
}

static void wait(dur__loop *loop) {
    if (spin_for_completion(loop)) return;
    dur__work_nudge(loop->runtime, 0);
    grow_workers(loop);
    uint64_t ms = wait_ms(loop);
    bool was_owed = loop->owed_look;
    uint64_t begin_us = dur__monotonic_us();
    dur_error err = DUR_ERROR_INIT;
    if (ms > 0) {
        if (!begin_rest(loop)) return;
        dur__lookouts_sleep(loop, loop->empty_looks > 0); /* after a round that did something it looks at once */
        int code = dur_store_lane_wait(loop->lane, ms, &err);
        atomic_store(&loop->rests, false);
        atomic_store(&loop->asleep, false);
        if (code != DUR_OK) {
            DUR__COUNT(loop->runtime, provider_errors);
            doze(loop, 20000);
        } else {
            uint64_t now_us = dur__monotonic_us();
            if (!may_look(loop, now_us) && now_us - begin_us < 1000)
                doze(loop, smaller(ms * 1000, STOPPING_US)); /* there is something to look at, and we do not look */
        }
    }
    woke(loop, was_owed, begin_us);
}

/* ---- the same for one without a thread: the host sleeps ---- */

bool dur__loop_rest(dur__loop *loop, dur_rest *out) {
    uint64_t ms = wait_ms(loop);
    *out = (dur_rest){ .us = 0 };
    loop->rest_endless = false;
    loop->rest_at_us = dur__monotonic_us();
    if (ms == 0 || !fall_asleep(loop)) {
        woke(loop, loop->owed_look, loop->rest_at_us);
        return false;
    }
    if (dur_store_lane_rest(loop->lane, out, NULL) != DUR_OK) {
        DUR__COUNT(loop->runtime, provider_errors);
        out->us = 0;
        loop->pause_us = 20000;
    } else if (out->us > ms * 1000) {
        loop->rest_endless = out->us == UINT64_MAX && ms == WAIT_MAX_MS;
        out->us = ms * 1000;
    }
    if (out->us > 0) return true;
    atomic_store(&loop->asleep, false);
    woke(loop, loop->owed_look, loop->rest_at_us);
    return false;
}

bool dur__loop_rise(dur__loop *loop, const dur_rest *slept) {
    bool news = true;
    uint64_t now_us = dur__monotonic_us();
    atomic_store(&loop->asleep, false);
    if (dur_store_lane_rise(loop->lane, slept, &news, NULL) != DUR_OK) DUR__COUNT(loop->runtime, provider_errors);
    if (!news && !done_waiting(loop) && now_us - loop->rest_at_us < slept->us) return false;
    woke(loop, loop->owed_look, loop->rest_at_us);
    return true;
}

/* ---- owner and phases ---- */

/* It has no owner id that holds, and what it has is lost with the old one: a stop need not wait for any of it. */
static void wait_for_owner(dur__loop *loop, uint64_t us) {
    loop->pause_us = us;
    if (dur__runtime_phase(loop->runtime) != DUR__PHASE_RUN) {
        drop_all(loop);
        drop_acks(loop);
        drop_waiting(loop);
        drop_done(loop);
        atomic_store(&loop->quiet, true);
    }
    dur__live_tell(loop->runtime->store);
}

/* Taken for dead: everything under the old id is lost; begin again under the new one. */
static bool follow_owner(dur__loop *loop) {
    dur_runtime *runtime = loop->runtime;
    if (loop->lane != NULL && loop->epoch == atomic_load(&runtime->epoch)) {
        if (!loop->stale) return true;
        dur__keeper_kick(runtime);
        dur__unborn_drop(loop);
        wait_for_owner(loop, 10000);
        return false;
    }
    dur_error err = DUR_ERROR_INIT;
    loop->stale = false;
    loop->epoch = atomic_load(&runtime->epoch); /* completions of the old id are forgotten from here on */
    lane_close(loop);
    drop_all(loop);
    dur__live_tell(runtime->store); /* before the store is asked for anything: it may not answer for long */
    drop_acks(loop);
    dur__route_give_back(loop, 0);
    if (lane_open(loop, &err) != DUR_OK) {
        DUR__COUNT(runtime, provider_errors);
        loop->lane = NULL;
        wait_for_owner(loop, 100000);
        return false;
    }
    atomic_store(&loop->quiet, false);
    loop->look_instances = loop->look_work = true;
    loop->suspect_work_known = false;
    return true;
}

static void release_idle(dur__loop *loop) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&loop->instances, &i)) != NULL;) {
        dur__inst *inst = entry->value;
        if (inst->state == DUR__INST_PARKED)
            dur__release(inst, 0, false, true);
        else if (inst->state == DUR__INST_READY)
            dur__release(inst, 0, inst->uncommitted, false);
    }
    for (dur__link *link; (link = dur__list_first(&loop->restarts)) != NULL;)
        dur__release(DUR__CONTAINER(link, dur__inst, link), 0, true, false);
}

static bool released(dur__loop *loop) {
    return (loop->instances.count == 0 && dur__list_empty(&loop->acks) && !done_waiting(loop)) ||
           dur__monotonic_us() >= atomic_load(&loop->runtime->release_until_us);
}

static void note_quiet(dur__loop *loop) {
    bool quiet = dur__list_empty(&loop->ready) && dur__list_empty(&loop->commits) && dur__list_empty(&loop->acks) &&
                 !done_waiting(loop);
    atomic_store(&loop->quiet, quiet);
}

static void stay_fenced(dur__loop *loop) {
    dur__keeper_kick(loop->runtime);
    dur__unborn_drop(loop);
    dur__live_tell(loop->runtime->store); /* what was lost is asked of the store */
    loop->pause_us = FENCED_US;
}

/* The lane is asleep, not the inbox: others may wait for this loop to serve them. */
static void wait_fenced(dur__loop *loop) {
    uint64_t begin_us = dur__monotonic_us();
    if (dur_store_lane_wait(loop->lane, FENCED_US / 1000, NULL) != DUR_OK)
        (void)dur_waker_sleep(loop->waker, FENCED_US);
    else if (dur__monotonic_us() - begin_us < 1000)
        doze(loop, STOPPING_US); /* there is something to look at, and we may not */
}

static void give_back_stale(dur__loop *loop, uint64_t now_us) {
    if (atomic_load(&loop->runtime->peers) == 0 || now_us - loop->last_return_us < DUR__WAITS_LONG_US / 2) return;
    loop->last_return_us = now_us;
    dur__local_share(loop, DUR__WAITS_LONG_US);
    dur__route_give_back(loop, DUR__WAITS_LONG_US);
}

/* A stop has left it behind, or this is a forked child. */
static bool is_nobodys(const dur__loop *loop) {
    return loop->inside.left_behind || dur__runtime_forked(loop->runtime);
}

/* False: nothing is left to do. */
static bool pass(dur__loop *loop, dur__phase phase) {
    uint64_t now_us = dur__monotonic_us();
    if (atomic_exchange(&loop->runtime->crash_hint, false)) {
        loop->look_work = loop->look_instances = true;
        loop->suspect_instances_none = loop->suspect_work_none = false;
    }
    feed_starving(loop, now_us);
    if (phase == DUR__PHASE_RUN) dur__triage_restarts(loop);
    (void)dur__route_backs(loop, now_us);
    if (phase == DUR__PHASE_RUN) {
        give_back_stale(loop, now_us);
    } else {
        dur__taker_close(&loop->taker);
        if (phase == DUR__PHASE_DRAIN) dur__local_share(loop, 0);
        dur__route_give_back(loop, 0);
    }
    if (phase == DUR__PHASE_RELEASE) {
        release_idle(loop);
    } else {
        dur__loop_run_ready(loop);
        if (is_nobodys(loop)) return true;
        gather(loop);
        if (phase == DUR__PHASE_RUN) gather_starts(loop);
        if (is_nobodys(loop)) return true;
    }
    if (dur__round_due(loop, dur__monotonic_us())) {
        dur__round(loop);
        return true;
    }
    if (!dur__list_empty(&loop->ready) || done_waiting(loop)) return true;
    note_quiet(loop);
    dur__live_tell(loop->runtime->store);
    return false;
}

dur__pass dur__loop_pass(dur__loop *loop) {
    dur_runtime *runtime = loop->runtime;
    dur__phase phase = dur__runtime_phase(runtime);
    if (is_nobodys(loop) || (phase == DUR__PHASE_RELEASE && released(loop))) return DUR__PASS_ENDED;
    if (!dur__loop_has_memory(loop)) return DUR__PASS_NO_MEMORY;
    atomic_store(&loop->quiet, false); /* before it takes what has ended: dur_runtime_stop looks at both */
    dur__census_answer(loop);
    if (!follow_owner(loop)) return DUR__PASS_NO_OWNER;
    dur__loop_take_done(loop);
    if (!dur__keeper_fenced(runtime) || phase != DUR__PHASE_RUN)
        return pass(loop, phase) ? DUR__PASS_MORE : DUR__PASS_IDLE;
    stay_fenced(loop);
    return DUR__PASS_FENCED;
}

/* Its handler has returned after all, and the runtime has stopped without it. */
static void end_left_behind(dur__loop *loop) {
    dur_runtime *runtime = loop->runtime;
    dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME, NULL, 0,
             "a handler that was left behind has returned; its turn is forgotten");
    dur__mutex_lock(&runtime->mutex);
    while (!runtime->stopped)
        dur__cond_wait(&runtime->changed, &runtime->mutex);
    dur__mutex_unlock(&runtime->mutex);
    dur__lookouts_close(loop);
    dur__loop_close(loop);
    dur__runtime_release(runtime);
}

static void end(dur__loop *loop) {
    dur__work *work = &loop->runtime->work;
    if (loop->inside.left_behind) {
        end_left_behind(loop);
        return;
    }
    dur__mutex_lock(&work->mutex);
    loop->ended = true;
    dur__cond_broadcast(&work->idle_changed);
    dur__mutex_unlock(&work->mutex);
}

/* A thread that has nothing to do. */
static void sleep_after(dur__loop *loop, dur__pass pass) {
    if (pass == DUR__PASS_IDLE)
        wait(loop);
    else if (pass == DUR__PASS_FENCED)
        wait_fenced(loop);
    else if (pass == DUR__PASS_NO_OWNER || pass == DUR__PASS_NO_MEMORY)
        (void)dur_waker_sleep(loop->waker, loop->pause_us);
}

void dur__loop_main(void *data) {
    dur__loop *loop = data;
    dur__runtime_inside = loop->runtime;
    dur__crash_report_thread_begin();
    dur__loop_covered(loop);
    for (dur__pass pass; (pass = dur__loop_pass(loop)) != DUR__PASS_ENDED;)
        sleep_after(loop, pass);
    if (dur__runtime_forked(loop->runtime)) return;
    dur__loop_drop(loop);
    dur__cover_end(&loop->cover);
    end(loop);
    dur__crash_report_thread_end();
    dur__runtime_inside = NULL;
}
