/*
 * parent.h: whose call an instance answers to.
 *
 * Events and work items hold these fields side by side with their others.  Ids alone do not say which call is meant:
 * the next execution of a parent may make one under the same id at the same place of its history, and so may another
 * instance that was started under the parent's id after the parent was deleted.  Hence the execution, and the birth: a
 * random number that an instance is given with its first turn and keeps over its executions.
 */
#ifndef DURITE_CORE_PARENT_H
#define DURITE_CORE_PARENT_H

#include <durite/sys/clock.h>
#include <durite/sys/work.h>

typedef struct dur__parent {
    const char *instance;  /* NULL: none */
    uint64_t id;           /* the schedule event's */
    uint64_t execution_id; /* that scheduled it */
    uint64_t birth;        /* of the instance that scheduled it; 0: not known */
    uint64_t depth;        /* how many parents are above the instance that answers to the call; 0: not known */
    bool has_id;
    bool has_execution_id; /* false: written by the original, which does not know it */
} dur__parent;

/* The call that this execution has scheduled by that event. */
#define DUR__CALL(caller, caller_birth, execution, event)                                                              \
    {                                                                                                                  \
        .instance = (caller), .birth = (caller_birth), .execution_id = (execution), .id = (event), .has_id = true,     \
        .has_execution_id = true                                                                                       \
    }

/* Of a dur_event or dur_work_item, and back into one. */
#define DUR__PARENT_OF(from)                                                                                           \
    ((dur__parent){ .instance = (from)->parent_instance,                                                               \
                    .id = (from)->parent_id,                                                                           \
                    .execution_id = (from)->parent_execution_id,                                                       \
                    .birth = (from)->parent_birth,                                                                     \
                    .depth = (from)->depth,                                                                            \
                    .has_id = (from)->has_parent_id,                                                                   \
                    .has_execution_id = (from)->has_parent_execution_id })
#define DUR__PARENT_SET(to, parent)                                                                                    \
    ((to)->parent_instance = (parent)->instance, (to)->parent_id = (parent)->id,                                       \
     (to)->parent_execution_id = (parent)->execution_id, (to)->parent_birth = (parent)->birth,                         \
     (to)->depth = (parent)->depth, (to)->has_parent_id = (parent)->has_id,                                            \
     (to)->has_parent_execution_id = (parent)->has_execution_id)

/* The same call?  What one side does not know is not compared. */
bool dur__same_parent(const dur__parent *a, const dur__parent *b);

/* Is the cancel request for the instance that answers to this call?  A parent that gives a call up means that call's
   instance, not whoever has its id; everybody else means the id. */
static inline bool dur__cancel_is_for(const dur_work_item *cancel, const dur__parent *call) {
    dur__parent from = DUR__PARENT_OF(cancel);
    return from.instance == NULL || dur__same_parent(&from, call);
}

/* The same instance, as far as both are known? */
static inline bool dur__same_birth(uint64_t a, uint64_t b) {
    return a == 0 || b == 0 || a == b;
}

/* A new one: 53 random bits, so that every tool that reads JSON keeps it exact. */
uint64_t dur__birth_new(const dur_world *world);

/* Address a SubOrch* item to the call that it answers. */
void dur__answer_to(dur_work_item *answer, const dur__parent *parent);

#endif
