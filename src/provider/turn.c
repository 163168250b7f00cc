/*
 * turn.c: what a turn means (turn.h).
 */
#include "provider/turn.h"

#include "base/assert.h"

#include <string.h>

/* ---- is it valid? ------------------------------------------------------------------------------------------------ */

static const char *missing(const dur_turn_commit *turn) {
    if (turn->take_over && turn->instance == NULL) return "instance is required";
    if (!turn->take_over && turn->lock_token == NULL) return "lock_token is required";
    if (turn->events == NULL && turn->event_count > 0) return "events is required";
    if (turn->worker_items == NULL && turn->worker_item_count > 0) return "worker_items is required";
    if (turn->orchestrator_items == NULL && turn->orchestrator_item_count > 0) return "orchestrator_items is required";
    if (turn->cancelled == NULL && turn->cancelled_count > 0) return "cancelled is required";
    if (turn->consumed == NULL && turn->consumed_count > 0) return "consumed is required";
    if (turn->worker_consumed == NULL && turn->worker_consumed_count > 0) return "worker_consumed is required";
    if (turn->timers_dropped == NULL && turn->timers_dropped_count > 0) return "timers_dropped is required";
    for (size_t i = 0; i < turn->event_count; i++) {
        if (turn->events[i].event_id == 0) return "an event has id 0";
        if (turn->events[i].event_id >= INT64_MAX) return "an event has an id behind which there is none";
        if (turn->events[i].json.data == NULL) return "json of an event is required";
    }
    for (size_t i = 0; i < turn->worker_item_count; i++)
        if (turn->worker_items[i].message.instance == NULL || turn->worker_items[i].message.json.data == NULL)
            return "instance and json of a worker item is required";
    for (size_t i = 0; i < turn->orchestrator_item_count; i++)
        if (turn->orchestrator_items[i].instance == NULL || turn->orchestrator_items[i].json.data == NULL)
            return "instance and json of an orchestrator item is required";
    return NULL;
}

static bool names(const dur_turn_commit *turn) {
    return turn->metadata.orchestration_name != NULL && turn->metadata.orchestration_version != NULL;
}

static bool ends_instance(const dur_turn_commit *turn) {
    return turn->metadata.status == DUR_STATUS_COMPLETED || turn->metadata.status == DUR_STATUS_FAILED;
}

/* Something of an execution is to be written down. */
static bool records(const dur_turn_commit *turn) {
    return turn->event_count > 0 || turn->metadata.status != DUR_STATUS_NONE || turn->metadata.has_pinned_version ||
           names(turn);
}

const char *dur__turn_invalid(const dur_turn_commit *turn) {
    const char *what = missing(turn);
    if (what != NULL) return what;
    /* Whoever asks for a comparison must get it: a condition that is not looked at would be none. */
    if (!turn->take_over && (turn->if_unleased || turn->if_suspended != NULL))
        return "if_unleased and if_suspended are for take_over";
    if (turn->if_uncancelled && !turn->if_unleased) return "if_uncancelled is for if_unleased";
    if (turn->execution_id == 0 && turn->event_count > 0) return "events need an execution id";
    if (turn->execution_id == 0 && records(turn)) return "status, name and version need an execution id";
    if (turn->give_back && records(turn)) return "an acquisition that was not used has written nothing: give_back";
    if (turn->execution_id == 0 && turn->keep_lease && !turn->take_over) return "a release does not keep the lease";
    if (turn->give_back && (turn->take_over || turn->keep_lease)) return "who gives a lease back has had and ends it";
    if (turn->set_suspended && turn->suspended != NULL && ends_instance(turn)) return "what has ended is not suspended";
    if (turn->writes_start && (turn->take_over || turn->instance == NULL || turn->execution_id == 0 || !names(turn)))
        return "the first turn of a start has an instance, an execution, a name and a version";
    return NULL;
}

/* ---- what follows from it ---------------------------------------------------------------------------------------- */

dur__turn_facts dur__turn_facts_of(const dur_turn_commit *turn) {
    dur__turn_facts facts = { .names = names(turn), .take_over = turn->take_over, .born = turn->writes_start };
    /* Who only gives a lease back, or moves flags, must not bring an execution into being; the seeds' ack does. */
    facts.takes_given = !turn->consume_listed && !turn->take_over;
    facts.writes = turn->execution_id != 0 && !turn->give_back && (records(turn) || facts.takes_given);
    facts.ends_execution = turn->metadata.status > DUR_STATUS_RUNNING;
    facts.ends_instance = ends_instance(turn);
    facts.takes_start = turn->execution_id == 0 && turn->consume_listed && turn->consumed_count > 0;
    facts.never_was = turn->remove_work && turn->execution_id == 0;
    facts.removes_work = turn->remove_work && !facts.never_was;

    facts.suspends = turn->set_suspended && turn->suspended != NULL;
    facts.resumes = turn->set_suspended && turn->suspended == NULL;
    facts.keeps = turn->keep_lease && !turn->take_over && !facts.suspends;
    facts.is_release = turn->execution_id == 0 && !turn->set_suspended && !turn->take_over;
    facts.uncounts = turn->give_back;
    facts.clears_counts = !turn->give_back && !(facts.is_release && turn->seen_id == 0 && turn->seen_now_ms == 0);
    if (!facts.keeps && !turn->take_over && !turn->set_suspended && !turn->remove_work) {
        facts.seen_id = turn->seen_id;
        facts.seen_now_ms = turn->seen_now_ms;
    }
    if (!facts.keeps && !turn->take_over) facts.delay_ms = turn->delay_ms;

    facts.compares_position = turn->expected_last != DUR_NOT_COMPARED;
    facts.compares_parent = turn->needs_parent && turn->metadata.parent_instance_id != NULL;
    return facts;
}

const char *dur__turn_eager(const dur_turn_commit *turn, const dur_turn_work *item) {
    return turn->owner != NULL && item->lock_token != NULL && item->lock_token[0] != '\0' ? item->lock_token : NULL;
}

bool dur__turn_asks_local(const dur_turn_commit *turn, const dur_turn_work *item) {
    return item->may_be_local && dur__turn_eager(turn, item) != NULL && item->message.session_id == NULL &&
           dur__turn_facts_of(turn).keeps;
}

const dur_event_row *dur__turn_custom_status(const dur_turn_commit *turn) {
    for (size_t i = turn->event_count; i > 0; i--)
        if (turn->events[i - 1].kind == DUR_EVENT_CUSTOM_STATUS_UPDATED) return &turn->events[i - 1];
    return NULL;
}

/* ---- what refuses it --------------------------------------------------------------------------------------------- */

static const struct {
    dur_turn_fault fault;
    dur_code code;
} answers[DUR__TURN_CHECKS] = {
    [DUR__TURN_TOKEN] = { DUR_TURN_LEASE_LOST, DUR_ELEASE },
    [DUR__TURN_EXISTS] = { DUR_TURN_LEASE_LOST, DUR_ENOTFOUND },
    [DUR__TURN_UNLEASED] = { DUR_TURN_LEASE_LOST, DUR_ELEASE },
    [DUR__TURN_UNCANCELLED] = { DUR_TURN_LEASE_LOST, DUR_ELEASE },
    [DUR__TURN_LAST_EVENT] = { DUR_TURN_POSITION, DUR_ECONFLICT },
    [DUR__TURN_MEANT] = { DUR_TURN_POSITION, DUR_ECONFLICT },
    [DUR__TURN_PARENT] = { DUR_TURN_ORPHAN, DUR_ENOTFOUND },
    [DUR__TURN_WORK] = { DUR_TURN_WORK_LOST, DUR_ELEASE },
    [DUR__TURN_NEW_EVENTS] = { DUR_TURN_POSITION, DUR_ECONFLICT },
};

dur_turn_fault dur__turn_fault_of(dur__turn_check check) {
    DUR_ASSERT(check < DUR__TURN_CHECKS);
    return answers[check].fault;
}

dur_code dur__turn_code_of(dur__turn_check check) {
    DUR_ASSERT(check < DUR__TURN_CHECKS);
    return answers[check].code;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

void dur__turn_unanswered(dur_turn_commit *turn) {
    turn->fault = DUR_TURN_FINE;
    dur_error_clear(&turn->error);
    turn->lease_kept = false;
    turn->lost_work = NULL;
    turn->lost_work_count = 0;
    for (size_t i = 0; turn->worker_items != NULL && i < turn->worker_item_count; i++) {
        turn->worker_items[i].locked = turn->worker_items[i].local = false;
        turn->worker_items[i].row_id = 0;
    }
}

dur_turn_commit dur__turn_plain(const dur_turn_commit *turn) {
    return (dur_turn_commit){ .lock_token = turn->lock_token,
                              .instance = turn->instance,
                              .store_key = turn->store_key,
                              .execution_id = turn->execution_id,
                              .events = turn->events,
                              .event_count = turn->event_count,
                              .worker_items = turn->worker_items,
                              .worker_item_count = turn->worker_item_count,
                              .orchestrator_items = turn->orchestrator_items,
                              .orchestrator_item_count = turn->orchestrator_item_count,
                              .metadata = turn->metadata,
                              .cancelled = turn->cancelled,
                              .cancelled_count = turn->cancelled_count,
                              .expected_last = DUR_NOT_COMPARED };
}
