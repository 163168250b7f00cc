/*
 * parent.h: whose call an instance answers to.
 *
 * Events and work items hold these fields side by side with their others.  An id alone does not say which call is meant:
 * the next execution of the same parent may make one under the same id at the same place of its history.
 */
#ifndef DURITE_CORE_PARENT_H
#define DURITE_CORE_PARENT_H

#include <durite/sys/work.h>

typedef struct dur__parent {
    const char *instance;  /* NULL: none */
    uint64_t id;           /* the schedule event's */
    uint64_t execution_id; /* that scheduled it */
    bool has_id;
    bool has_execution_id; /* false: written by the original, which does not know it */
} dur__parent;

/* The call that this execution has scheduled by that event. */
#define DUR__CALL(caller, execution, event)                                                                            \
    { .instance = (caller), .id = (event), .execution_id = (execution), .has_id = true, .has_execution_id = true }

/* Of a dur_event or dur_work_item, and back into one. */
#define DUR__PARENT_OF(from)                                                                                           \
    ((dur__parent){ .instance = (from)->parent_instance,                                                               \
                    .id = (from)->parent_id,                                                                           \
                    .execution_id = (from)->parent_execution_id,                                                       \
                    .has_id = (from)->has_parent_id,                                                                   \
                    .has_execution_id = (from)->has_parent_execution_id })
#define DUR__PARENT_SET(to, parent)                                                                                    \
    ((to)->parent_instance = (parent)->instance, (to)->parent_id = (parent)->id,                                       \
     (to)->parent_execution_id = (parent)->execution_id, (to)->has_parent_id = (parent)->has_id,                       \
     (to)->has_parent_execution_id = (parent)->has_execution_id)

/* The same call?  What one side does not know is not compared. */
bool dur__same_parent(const dur__parent *a, const dur__parent *b);

/* Address a SubOrch* item to the call that it answers. */
void dur__answer_to(dur_work_item *answer, const dur__parent *parent);

#endif
