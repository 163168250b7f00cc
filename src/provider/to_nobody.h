/*
 * to_nobody.h: messages of a turn that are dropped when their receiver does not exist: the answer to a call, and the
 * cancel of a call.  The receiver had begun when the sender learned of it, so it was deleted since: the next instance
 * under its id is another, and until there is one nobody would look at the message.
 */
#ifndef DURITE_PROVIDER_TO_NOBODY_H
#define DURITE_PROVIDER_TO_NOBODY_H

#include <durite/sys/work.h>

/* Statements of the stores name these kinds by their numbers. */
_Static_assert(DUR_WORK_SUB_ORCH_COMPLETED == 8 && DUR_WORK_SUB_ORCH_FAILED == 9 && DUR_WORK_CANCEL_INSTANCE == 10 &&
                   DUR_WORK_ACTIVITY_COMPLETED == 3 && DUR_WORK_ACTIVITY_FAILED == 4 && DUR_WORK_TIMER_FIRED == 5,
               "(8, 9, 10) in pg_message.c, (3, 4, 5, 8, 9, 10) in the checks");

static inline bool dur__needs_receiver(dur_work_kind kind) {
    return kind == DUR_WORK_SUB_ORCH_COMPLETED || kind == DUR_WORK_SUB_ORCH_FAILED || kind == DUR_WORK_CANCEL_INSTANCE;
}

/* Kinds that nobody will ever look at where there is no instance: they make none, they are not kept for an instance
   that is still to come (ExternalRaised), and they become no dead letters (QueueMessage). */
static inline bool dur__lost_without(dur_work_kind kind) {
    return dur__needs_receiver(kind) || kind == DUR_WORK_TIMER_FIRED || kind == DUR_WORK_ACTIVITY_COMPLETED ||
           kind == DUR_WORK_ACTIVITY_FAILED;
}

#endif
