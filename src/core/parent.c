/*
 * parent.c: is it the same call?  The one place that says so.
 */
#include "core/parent.h"

#include "base/buf.h"

bool dur__same_parent(const dur__parent *a, const dur__parent *b) {
    bool known = a->has_execution_id && b->has_execution_id;
    return dur__str_eq(a->instance, b->instance) && a->has_id == b->has_id && a->id == b->id &&
           (!known || a->execution_id == b->execution_id);
}

void dur__answer_to(dur_work_item *answer, const dur__parent *parent) {
    answer->instance = parent->instance;
    answer->execution_id = parent->has_execution_id ? parent->execution_id : 1;
    answer->id = parent->id;
}
