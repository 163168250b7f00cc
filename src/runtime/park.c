/*
 * park.c: handlers that wait on their stacks, the least recently used first; bounded by count and bytes.
 */
#include "runtime/runtime_internal.h"

void dur__park(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    dur__inst_move(inst, DUR__INST_PARKED);
    inst->bytes = dur__exec_bytes(inst->exec);
    loop->parked_bytes += inst->bytes;
    loop->parked_count++;
    DUR__COUNT(loop->runtime, parked);
    DUR__COUNT_N(loop->runtime, parked_bytes, inst->bytes);
    dur__list_push(&loop->parked, &inst->link);
}

/* Only dur__inst_move calls it. */
void dur__unpark(dur__inst *inst) {
    dur__loop *loop = inst->loop;
    DUR_ASSERT(loop->parked_count > 0 && loop->parked_bytes >= inst->bytes);
    loop->parked_count--;
    loop->parked_bytes -= inst->bytes;
    dur__uncount(&loop->runtime->counters.parked, 1);
    dur__uncount(&loop->runtime->counters.parked_bytes, inst->bytes);
}

/* The least recently used.  What has local activities would have to write rows for them, and is fetched again when they
   end: only when there is nobody else. */
static dur__inst *first_to_go(dur__loop *loop) {
    DUR__LIST_EACH(&loop->parked, at) {
        dur__inst *inst = DUR__CONTAINER(at, dur__inst, link);
        if (!dur__local_any(inst)) return inst;
    }
    return DUR__CONTAINER(dur__list_first(&loop->parked), dur__inst, link);
}

/* Release the least recently used until the bounds hold.  One execution over the bytes alone stays. */
void dur__park_trim(dur__loop *loop) {
    const dur_runtime_options *o = &loop->runtime->options;
    size_t count_max = o->parked_max / loop->runtime->loop_count;
    uint64_t bytes_max = o->parked_bytes_max / loop->runtime->loop_count;
    if (count_max == 0) count_max = 1;
    while (loop->parked_count > count_max || (loop->parked_bytes > bytes_max && loop->parked_count > 1)) {
        dur__inst *inst = first_to_go(loop);
        DUR__COUNT(loop->runtime, evictions);
        dur__release(inst, 0, false, true);
    }
}
