/*
 * pg_steps.h: work that turns of a rig hand out, and claims of it.
 */
#ifndef DURITE_TESTS_PG_STEPS_H
#define DURITE_TESTS_PG_STEPS_H

#include "pg_rig.h"

static inline dur_turn_work work_of(const char *instance, uint64_t activity, const char *token) {
    dur_turn_work work = { .message = message_of(DUR_WORK_ACTIVITY_EXECUTE, instance), .lock_token = token };
    work.message.execution_id = 1;
    work.message.activity_id = activity;
    work.message.json = (dur_text){ "{\"work\":1}", 10 };
    return work;
}

static inline dur_worker_claim claim_of(const char *instance, const dur_turn_work *work) {
    return (dur_worker_claim){ .ref = { .instance = instance,
                                        .execution_id = 1,
                                        .activity_id = work->message.activity_id,
                                        .row_id = work->row_id },
                               .lock_token = work->lock_token };
}

#endif
