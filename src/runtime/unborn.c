/*
 * unborn.c: instances whose start is not in the store yet.
 *
 * A client of this process that starts an instance waits for one commit anyway.  The loop takes the start before it is
 * written and runs the handler; start, acquisition and first turn become that commit, and the answer to it answers the
 * client.  Until then the store knows nothing: whatever else than a first turn happens to an unborn instance, it is
 * forgotten (dur__inst_free), and its start goes into the store as any other does.
 *
 * A first turn that kills the process leaves no trace then, and a program that begins with the same start each time
 * would crash for ever.  So for a minute after any node has found an owner that did not stop cleanly, starts are
 * written first and run as any other: their crashes are counted, and they end as poison (poison.c).  So they are while
 * a suspect runs alone: a crash that leaves no trace would be taken for the suspect's.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>

#define TAKE_MAX 512 /* at a time: the rest is written as any other */

/* An id that is in use here: the store says what becomes of the second start. */
static bool known(dur__loop *loop, const char *instance) {
    return dur__map_get(&loop->instances, instance) != NULL || dur__directory_get(loop->runtime, instance) != NULL;
}

static bool is_careful(const dur__loop *loop) {
    return dur__monotonic_us() < atomic_load_explicit(&loop->runtime->careful_until_us, memory_order_relaxed) ||
           dur__gate_held();
}

/*
 * Not from a store that fails: whoever waits must hear of it.  Nor while others wait to be fetched: who came first goes
 * first.  What is not taken now is not left waiting, but given back.
 */
static bool takes(dur__loop *loop) {
    if (loop->taker.desk == NULL || loop->failures > 0 || loop->others_wait || is_careful(loop) ||
        !dur__fleet_runs(loop->runtime))
        return false;
    if (loop->unborn == NULL) loop->unborn = dur__zget(TAKE_MAX * sizeof(*loop->unborn));
    return loop->unborn != NULL;
}

size_t dur__unborn_take(dur__loop *loop) {
    bool wait = atomic_load(&loop->taker.waiting) > 0;
    if (!takes(loop) || (wait && !dur__loop_room_fetch(loop, TAKE_MAX))) {
        dur__taker_close(&loop->taker);
        return 0;
    }
    dur__taker_open(&loop->taker);
    if (!wait) return 0;
    dur__start_taken *starts = loop->unborn;
    dur_arena *arena = dur__pool_arena(loop);
    loop->now_ms = dur_store_now_ms(loop->runtime->store);
    size_t count = dur__taker_take(&loop->taker, arena, loop->now_ms, TAKE_MAX, starts);
    for (size_t i = 0; i < count && !loop->inside.left_behind; i++) {
        if (!known(loop, starts[i].item.instance))
            dur__triage_unborn(loop, &starts[i]);
        else
            dur__taker_back(&loop->taker, starts[i].number, NULL);
    }
    dur__pool_arena_back(loop, arena);
    return count;
}

void dur__unborn_drop(dur__loop *loop) {
    dur__map_entry *entry;
    dur__taker_close(&loop->taker);
    for (size_t i = 0; (entry = dur__map_next(&loop->instances, &i)) != NULL;) {
        dur__inst *inst = entry->value;
        if (inst->unborn != 0) dur__inst_free(inst);
    }
}

/* From now on it is an instance as any other. */
void dur__unborn_born(dur__inst *inst, const dur_turn_commit *answer) {
    dur__taker_written(&inst->loop->taker, inst->unborn);
    inst->unborn = 0;
    if (answer->lock_token != inst->token) {
        dur__free(inst->token);
        inst->token = dur__xstrdup(answer->lock_token);
        inst->commit->lock_token = inst->token;
    }
    inst->store_key = answer->store_key;
}

/* Somebody else has its id, or the store failed.  Perhaps it was written after all, and leased to us, who forget it:
   where the lane does not give it back, all that we hold is.  Then its caller hears of that: to write it might
   be to do it twice. */
void dur__unborn_failed(dur__inst *inst, const dur_error *err) {
    dur__loop *loop = inst->loop;
    if (err->code == DUR_EUNKNOWN && !loop->settles && loop->runtime->has_owners) {
        loop->stale = true;
        dur__keeper_renew_owner(loop->runtime);
    }
    if (err->code == DUR_EUNKNOWN) dur__taker_back(&loop->taker, inst->unborn, err);
    dur__inst_free(inst);
}
