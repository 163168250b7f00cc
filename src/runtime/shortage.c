/*
 * shortage.c: a loop without memory.
 *
 * Every pass begins with a whole reserve (base/memory.h), which the pass draws on when there is nothing else: so what
 * it has begun, and above all what follows a commit, comes to its end.  What depends on users' payloads is either done
 * under a way out, or asks for room first; an instance for which there is none keeps its lease, loses its handler and
 * is replayed later, with growing pauses.  Without a whole reserve a loop does nothing but give up parked handlers.
 */
#include "runtime/runtime_internal.h"

#define PASS_BYTES (512u << 10) /* FETCH_MAX instances that nothing can be done for, and as many rows */
#define ITEM_BYTES (64u << 10)
#define PAUSE_MS_MAX 1000

static bool fill(dur__loop *loop) {
    if (dur__reserve_left(&loop->reserve) > 4 * (size_t)PASS_BYTES)
        dur__reserve_free(&loop->reserve); /* it was grown */
    return dur__reserve_fill(&loop->reserve, PASS_BYTES);
}

/* The least recently used of those that need no rows written for it. */
static bool evict(dur__loop *loop) {
    DUR__LIST_EACH(&loop->parked, at) {
        dur__inst *inst = DUR__CONTAINER(at, dur__inst, link);
        if (dur__local_any(inst)) continue;
        DUR__COUNT(loop->runtime, evictions);
        dur__release(inst, 0, false, true);
        return true;
    }
    return false;
}

static uint64_t pause_us(dur__loop *loop) {
    uint64_t ms = dur__backoff_ms(10, loop->shortages, PAUSE_MS_MAX);
    if (loop->shortages++ == 0)
        dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME, NULL, 0,
                 "out of memory: nothing is lost, and everything goes on when there is some");
    return ms * 1000;
}

bool dur__loop_has_memory(dur__loop *loop) {
    while (dur__memory_tight() && evict(loop)) {
    }
    while (!fill(loop)) {
        if (dur__reserve_left(&loop->reserve) >= ITEM_BYTES && evict(loop)) continue;
        loop->pause_us = pause_us(loop);
        return false;
    }
    return true;
}

void dur__loop_covered(dur__loop *loop) {
    loop->cover = (dur__cover){ .reserve = &loop->reserve };
    dur__cover_begin(&loop->cover);
}

bool dur__loop_room(size_t payload) {
    return payload < SIZE_MAX / 16 && dur__cover_need(ITEM_BYTES + 8 * payload);
}

bool dur__loop_room_fetch(dur__loop *loop, size_t count) {
    bool room = dur__map_reserve(&loop->instances, count);
    dur__mutex_lock(&loop->runtime->mutex);
    if (loop->runtime->loop_count > 1) room = room && dur__map_reserve(&loop->runtime->directory, count);
    if (!loop->runtime->has_owners) room = room && dur__map_reserve(&loop->runtime->renewals, count);
    dur__mutex_unlock(&loop->runtime->mutex);
    if (!room) loop->pause_us = pause_us(loop);
    return room;
}

void dur__inst_later(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    uint64_t after_us = pause_us(loop);
    if (inst->unborn != 0) {
        dur__inst_free(inst);
        return;
    }
    if (loop->fallback) { /* nothing can be read under a lease there: somebody acquires it */
        dur__release(inst, after_us / 1000, true, false);
        return;
    }
    if (inst->state == DUR__INST_READY || inst->state == DUR__INST_PARKED) dur__inst_move(inst, DUR__INST_COMMITTING);
    dur__inst_drop_exec(inst);
    dur__commit_end(inst);
    dur__list_unlink(&inst->link);
    inst->retry_at_us = dur__monotonic_us() + after_us;
    dur__list_push(&loop->restarts, &inst->link);
}
