/*
 * plain_turn.h: the ack of an orchestration item as the commit of a turn whose optional fields are not looked at, for
 * stores that have one implementation of both.
 */
#ifndef DURITE_PROVIDER_PLAIN_TURN_H
#define DURITE_PROVIDER_PLAIN_TURN_H

#include <durite/sys/provider_methods.h>

static inline dur_turn_commit dur__plain_turn(const dur_turn_commit *turn) {
    dur_turn_commit plain = *turn;
    plain.instance = NULL;
    plain.expected_last = DUR_NOT_COMPARED;
    plain.consume_listed = plain.keep_lease = plain.give_back = plain.take_over = plain.remove_work = false;
    plain.needs_parent = plain.writes_start = false;
    plain.set_suspended = false;
    plain.suspended = NULL;
    plain.worker_consumed_count = plain.timers_dropped_count = 0;
    plain.owner = plain.session_owner = NULL;
    plain.seen_id = plain.seen_now_ms = plain.delay_ms = 0;
    return plain;
}

/* Its answer is the ack's. */
static inline int dur__plain_turn_answer(dur_turn_commit *turn, const dur_turn_commit *plain, dur_error *err) {
    turn->fault = plain->fault;
    turn->error = plain->error;
    turn->lease_kept = false;
    turn->lost_work = NULL;
    turn->lost_work_count = 0;
    if (err != NULL) *err = plain->error;
    return (int)plain->error.code;
}

#endif
