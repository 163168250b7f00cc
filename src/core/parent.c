/*
 * parent.c: is it the same call, and the same instance?  The one place that says so.
 */
#include "core/parent.h"

#include "base/buf.h"

bool dur__same_parent(const dur__parent *a, const dur__parent *b) {
    bool known = a->has_execution_id && b->has_execution_id;
    return dur__str_eq(a->instance, b->instance) && a->has_id == b->has_id && a->id == b->id &&
           (!known || a->execution_id == b->execution_id) && dur__same_birth(a->birth, b->birth);
}

uint64_t dur__birth_new(const dur_world *world) {
    uint64_t bits = 0;
    while (bits == 0) {
        world->random(world->data, &bits, sizeof(bits));
        bits >>= 11;
    }
    return bits;
}

void dur__answer_to(dur_work_item *answer, const dur__parent *parent) {
    answer->instance = parent->instance;
    answer->execution_id = parent->has_execution_id ? parent->execution_id : 1;
    answer->id = parent->id;
    answer->parent_birth = parent->birth;
}
