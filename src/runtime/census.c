/*
 * census.c: what the store has locked under this runtime's name, against what the runtime knows.
 *
 * A lease or an activity's row that a living runtime does not know of waits for ever: nobody takes it over.  The store
 * is asked first, then each loop, on its own thread and between two passes, says what it has.  A round is one call on
 * the loop's thread, so whatever it had locked when the store was asked has been answered when the loop speaks.
 *
 * What is being given back, or goes from a worker or loop to another, may be in the store's answer and in nobody's.  So
 * a finding is a token that is unknown in every look for PATIENCE_MS.  Tokens are never used twice, and what is on its
 * way arrives with the next passes; only a store that refuses a give-back for longer would look like a fault, and the
 * lists of what is to be given back again are looked at too.
 *
 * The other way round: a parked handler whose lease the store does not have is woken by nobody, and may run somewhere
 * else at the same time.  A lane is told of a lease that others have ended, so that is a finding only after
 * TOLD_MS of looks that all say the same.
 */
#include "runtime/runtime_internal.h"

#include "base/arena_internal.h"

#define PATIENCE_MS 1000
#define TOLD_MS 5000
#define PAUSE_MS 20
#define LOOKS_MIN 5
#define ANSWER_MS 10000 /* a loop that is inside user code for so long answers nobody */

static void know(dur__census *census, const char *token) {
    if (token == NULL || token[0] == '\0') return;
    char *kept = dur_arena_strdup(census->arena, token); /* the loop goes on, and may free its own */
    dur__map_put(&census->known, kept, kept);
}

static void know_list(dur__census *census, dur__link *tasks) {
    DUR__LIST_EACH(tasks, at)
    know(census, DUR__CONTAINER(at, dur__task, link)->token);
}

static void know_lookouts(dur__census *census, dur__loop *loop) {
    for (size_t i = 0; i < DUR__LOOKOUTS; i++) {
        dur__lookout *lookout = &loop->lookouts[i];
        if (!lookout->started) continue;
        dur__mutex_lock(&lookout->mutex);
        if (lookout->state == DUR__LOOKOUT_FOUND) {
            if (lookout->item.instance != NULL) know(census, lookout->item.lock_token);
            if (lookout->work.json.data != NULL) know(census, lookout->work.lock_token);
        }
        dur__mutex_unlock(&lookout->mutex);
    }
}

/* The loop's thread. */
static void know_loop(dur__census *census, dur__loop *loop) {
    dur__map_entry *entry, *task;
    for (size_t i = 0; (entry = dur__map_next(&loop->instances, &i)) != NULL;) {
        dur__inst *inst = entry->value;
        know(census, inst->token);
        if (inst->state == DUR__INST_PARKED && inst->unborn == 0 && inst->token != NULL)
            dur__map_put(&census->parked, dur_arena_strdup(census->arena, inst->token),
                         dur_arena_strdup(census->arena, inst->id));
        for (size_t k = 0; (task = dur__map_next(&inst->tasks, &k)) != NULL;)
            know(census, ((const dur__task *)task->value)->token);
        for (size_t k = 0; k < inst->eager_count; k++)
            if (inst->eager[k] != NULL) know(census, inst->eager[k]->token);
    }
    know_lookouts(census, loop);
    know_list(census, &loop->acks);
    know_list(census, &loop->backs);
    know_list(census, &loop->hand_out);
    for (const dur__task *done = atomic_load(&loop->done); done != NULL; done = done->next_done)
        know(census, done->token);
    dur__work *work = &loop->runtime->work;
    dur__mutex_lock(&work->mutex);
    know_list(census, &work->queue);
    know_list(census, &work->blocked);
    know_list(census, &work->running);
    dur__mutex_unlock(&work->mutex);
}

void dur__census_answer(dur__loop *loop) {
    dur__census *census = &loop->runtime->census;
    if (!atomic_load(&loop->asked)) return;
    if (!dur__loop_room(64 * loop->instances.count)) return; /* at a later pass */
    dur__mutex_lock(&census->mutex);
    if (atomic_exchange(&loop->asked, false)) { /* else the asker has given up */
        know_loop(census, loop);
        census->waiting--;
        dur__cond_broadcast(&census->answered);
    }
    dur__mutex_unlock(&census->mutex);
}

void dur__census_init(dur__census *census) {
    census->arena = dur__arena_xnew();
    dur__mutex_init(&census->one);
    dur__mutex_init(&census->mutex);
    dur__cond_init(&census->answered);
}

void dur__census_destroy(dur__census *census) {
    dur__map_free(&census->known);
    dur__map_free(&census->parked);
    dur_arena_free(census->arena);
    dur__cond_destroy(&census->answered);
    dur__mutex_destroy(&census->mutex);
    dur__mutex_destroy(&census->one);
}

/* True: every loop has said what it knows. */
static bool ask(dur_runtime *runtime) {
    dur__census *census = &runtime->census;
    uint64_t until_us = dur__monotonic_us() + ANSWER_MS * 1000u;
    dur__mutex_lock(&census->mutex);
    dur__map_free(&census->known);
    dur__map_free(&census->parked);
    dur_arena_reset(census->arena);
    census->waiting = runtime->loop_count;
    for (size_t i = 0; i < runtime->loop_count; i++) {
        atomic_store(&runtime->loops[i].asked, true);
        dur_waker_wake(runtime->loops[i].waker);
    }
    if (runtime->stepped.on && dur__thread_is_self(&runtime->stepped.home)) {
        dur__mutex_unlock(&census->mutex);
        dur__census_answer(&runtime->loops[0]); /* nobody else will */
        dur__mutex_lock(&census->mutex);
    }
    while (census->waiting > 0 && dur__monotonic_us() < until_us)
        dur__cond_wait_ms(&census->answered, &census->mutex, 100);
    bool all = census->waiting == 0;
    for (size_t i = 0; i < runtime->loop_count; i++)
        atomic_store(&runtime->loops[i].asked, false);
    dur__mutex_unlock(&census->mutex);
    return all;
}

/* What one side has and the other does not, by token. */
typedef struct difference {
    dur__map unknown; /* dur_holding: the store has it */
    dur__map missing; /* instance: the runtime has it */
} difference;

static void difference_free(difference *self) {
    dur__map_free(&self->unknown);
    dur__map_free(&self->missing);
}

static int finding(const difference *found, const char *owner, dur_error *err) {
    size_t at = 0;
    dur__map_entry *entry = dur__map_next(&found->unknown, &at);
    if (entry == NULL) {
        entry = dur__map_next(&found->missing, &at);
        return dur_error_set(err, DUR_ECORRUPT, false, "runtime.check",
                             "%s has parked instance %s, and its lease is not in the store", owner,
                             (const char *)entry->value);
    }
    const dur_holding *row = entry->value;
    if (row->kind == DUR_HOLDS_INSTANCE)
        return dur_error_set(err, DUR_ECORRUPT, false, "runtime.check",
                             "instance %s is leased by %s, who does not know of it", row->instance, owner);
    return dur_error_set(err, DUR_ECORRUPT, false, "runtime.check",
                         "activity %llu of execution %llu of %s is locked by %s, who does not know of it",
                         (unsigned long long)row->activity_id, (unsigned long long)row->execution_id, row->instance,
                         owner);
}

/* Of what the runtime has parked, what was missing before (NULL: nothing was looked at) and still is. */
static void look_for_parked(dur_runtime *runtime, dur_arena *arena, const dur_holding *rows, size_t count,
                            const difference *before, difference *out) {
    dur__map held = { 0 };
    dur__map_entry *entry;
    for (size_t i = 0; i < count; i++)
        if (rows[i].kind == DUR_HOLDS_INSTANCE) dur__map_put(&held, rows[i].token, (void *)(uintptr_t)rows[i].token);
    for (size_t i = 0; (entry = dur__map_next(&runtime->census.parked, &i)) != NULL;) {
        if (dur__map_get(&held, entry->key) != NULL) continue;
        if (before != NULL && dur__map_get(&before->missing, entry->key) == NULL) continue;
        dur__map_put(&out->missing, dur_arena_strdup(arena, entry->key), dur_arena_strdup(arena, entry->value));
    }
    dur__map_free(&held);
}

/* One look: of what did not fit before (NULL: nothing was looked at), what still does not.  A session outlives its last
   activity, and is nobody's to know. */
static int look(dur_runtime *runtime, dur_arena *arena, const difference *before, difference *out, dur_error *err) {
    dur_holding *rows = NULL;
    size_t count = 0;
    const char *owner = atomic_load(&runtime->owner);
    int code = dur_store_owner_holdings(runtime->store, arena, owner, &rows, &count, err);
    if (code != DUR_OK) return code;
    if (!ask(runtime)) return dur_error_set(err, DUR_EBUSY, true, "runtime.check", "a loop does not answer");
    for (size_t i = 0; i < count; i++) {
        if (rows[i].kind == DUR_HOLDS_SESSION || dur__map_get(&runtime->census.known, rows[i].token) != NULL) continue;
        if (before != NULL && dur__map_get(&before->unknown, rows[i].token) == NULL) continue;
        dur__map_put(&out->unknown, rows[i].token, &rows[i]);
    }
    /* Under another id it begins again, and one that is fenced gives all up. */
    if (owner == atomic_load(&runtime->owner) && !dur__keeper_fenced(runtime))
        look_for_parked(runtime, arena, rows, count, before, out);
    return DUR_OK;
}

/* Look until all fits, or has not for too long; in *out what still does not. */
static int look_patiently(dur_runtime *runtime, dur_arena *arena, difference *out, dur_error *err) {
    uint64_t begin_us = dur__monotonic_us();
    int code = look(runtime, arena, NULL, out, err);
    for (size_t looks = 1; code == DUR_OK && out->unknown.count + out->missing.count > 0; looks++) {
        uint64_t patience_ms = out->unknown.count > 0 ? PATIENCE_MS : TOLD_MS;
        if (looks >= LOOKS_MIN && dur__monotonic_us() - begin_us >= patience_ms * 1000u) break;
        difference before = *out;
        *out = (difference){ { 0 }, { 0 } };
        if (!dur__drive(PAUSE_MS * 1000)) dur__sleep_us(PAUSE_MS * 1000);
        code = look(runtime, arena, &before, out, err);
        difference_free(&before);
    }
    return code;
}

int dur_runtime_check(dur_runtime *runtime, dur_error *err) {
    if (runtime == NULL) return dur_error_set(err, DUR_EINVAL, false, "runtime.check", "runtime is required");
    if (dur__runtime_forked(runtime))
        return dur_error_set(err, DUR_EFORKED, false, "runtime.check", "the runtime belongs to the parent process");
    if (dur__runtime_inside == runtime)
        return dur_error_set(err, DUR_EDEADLK, false, "runtime.check", "called from a thread of the runtime");
    if (!runtime->has_owners)
        return dur_error_set(err, DUR_EUNSUPPORTED, false, "runtime.check", "the store has no owners");
    DUR__SET_ASIDE("runtime.check", err);
    dur_arena *arena = dur__arena_xnew();
    difference found = { { 0 }, { 0 } };
    dur__mutex_lock(&runtime->census.one);
    int code = look_patiently(runtime, arena, &found, err);
    if (code == DUR_OK && found.unknown.count + found.missing.count > 0)
        code = finding(&found, atomic_load(&runtime->owner), err);
    dur__mutex_unlock(&runtime->census.one);
    difference_free(&found);
    dur_arena_free(arena);
    if (code == DUR_OK) dur_error_clear(err);
    return code;
}
