/*
 * to_nobody.h: messages of a turn that go nowhere when whom they are for does not exist: the answer to a call, and that
 * a call is given up.  Who is meant had begun when the other side was told of him, so he was deleted since: whoever has
 * the id next is another, and nobody would look at the message before that.
 */
#ifndef DURITE_PROVIDER_TO_NOBODY_H
#define DURITE_PROVIDER_TO_NOBODY_H

#include <durite/sys/work.h>

static inline bool dur__needs_receiver(dur_work_kind kind) {
    return kind == DUR_WORK_SUB_ORCH_COMPLETED || kind == DUR_WORK_SUB_ORCH_FAILED || kind == DUR_WORK_CANCEL_INSTANCE;
}

/* Kinds that nobody will ever look at where there is no instance: neither do they make one, nor are they accepted for
   one that is still to come (ExternalRaised) or made dead letters (QueueMessage). */
static inline bool dur__lost_without(dur_work_kind kind) {
    return dur__needs_receiver(kind) || kind == DUR_WORK_TIMER_FIRED || kind == DUR_WORK_ACTIVITY_COMPLETED ||
           kind == DUR_WORK_ACTIVITY_FAILED;
}

#endif
