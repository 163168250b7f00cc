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

/* Release the least recently used until the bounds hold.  One execution over the bytes alone stays. */
void dur__park_trim(dur__loop *loop) {
    const dur_runtime_options *o = &loop->runtime->options;
    size_t count_max = o->parked_max / loop->runtime->loop_count;
    uint64_t bytes_max = o->parked_bytes_max / loop->runtime->loop_count;
    if (count_max == 0) count_max = 1;
    while (loop->parked_count > count_max || (loop->parked_bytes > bytes_max && loop->parked_count > 1)) {
        dur__inst *inst = DUR__CONTAINER(dur__list_first(&loop->parked), dur__inst, link);
        DUR__COUNT(loop->runtime, evictions);
        dur__release(inst, 0, false, true);
    }
}
