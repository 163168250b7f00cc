/*
 * pg_commit.c: the one way to commit turns.
 *
 * A commit is one batch: one round trip, one transaction, without any answer in between (pg_turn.h has its order).  It
 * is all or nothing.  Where it is refused, one look says whose turns are the reason (pg_refused.c), which are answered,
 * and the same commit is sent again without them.
 */
#include "base/assert.h"
#include "provider/postgres/pg_pieces.h"
#include "provider/postgres/pg_turn.h"

#include <stdlib.h>

#define TRIES_MAX 4 /* of a batch that is refused although nobody of it is: who did it has gone meanwhile */

bool dur__pg_turn_found(const dur__pg_lane *lane, dur_turn_commit *turn) {
    DUR_ASSERT(dur__turn_invalid(turn) == NULL && turn->fault == DUR_TURN_FINE);
    if (turn->instance != NULL && (lane != NULL || !turn->writes_start)) return true;
    turn->fault = dur__turn_fault_of(DUR__TURN_TOKEN);
    dur_error_set(&turn->error, dur__turn_code_of(DUR__TURN_TOKEN), false, "postgres.commit", "Invalid lock token");
    return false;
}

void dur__pg_turns_failed(dur_turn_commit **turns, size_t count, const dur_error *err) {
    for (size_t i = 0; i < count; i++) {
        turns[i]->fault = DUR_TURN_STORE;
        turns[i]->error = *err;
    }
}

bool dur__pg_refused(const dur__pg_batch *batch, int code) {
    return code != DUR_OK && code != DUR_EUNKNOWN && batch->sqlstate[0] != '\0' && !batch->error.retryable;
}

/* ---- what a commit means to others ------------------------------------------------------------------------------- */

/* A timer, say: a message to the instance that goes on under the same lease. */
static bool own_business(const dur__pg_part *part, const dur_message_row *item) {
    return part->facts.keeps && strcmp(item->instance, part->turn->instance) == 0;
}

/* Do others have something to do afterwards? */
static bool concerns_lanes(const dur__pg_part *part) {
    const dur_turn_commit *turn = part->turn;
    if (turn->take_over || turn->set_suspended) return true;
    for (size_t i = 0; i < turn->orchestrator_item_count; i++)
        if (!own_business(part, &turn->orchestrator_items[i])) return true;
    if (!part->facts.keeps && !part->facts.ends_instance) return true;
    for (size_t i = 0; i < turn->worker_item_count; i++)
        if (dur__turn_eager(turn, &turn->worker_items[i]) == NULL || turn->worker_items[i].message.session_id != NULL)
            return true;
    return false;
}

bool dur__pg_turn_seen(const dur_turn_commit *turn) {
    return turn->metadata.status > DUR_STATUS_RUNNING || turn->take_over || turn->set_suspended ||
           dur__turn_custom_status(turn) != NULL || dur__pg_touches_values(turn);
}

/* It locks something in the name of the owner: an instance that begins, work, a session. */
static bool takes(const dur__pg_part *part, const dur__pg_lane *lane) {
    const dur_turn_commit *turn = part->turn;
    if (part->facts.born) return true;
    for (size_t i = 0; i < turn->worker_item_count; i++)
        if (dur__turn_eager(turn, &turn->worker_items[i]) != NULL &&
            !dur__pg_item_is_local(lane, turn, &turn->worker_items[i]))
            return true;
    return false;
}

/* Timers that the lane keeps go by themselves (pg_timer.c). */
static void add_messages(const dur__pg_part *part, dur__pg_outbox *box, dur__pg_turn_plan *plan) {
    bool undelayed = false; /* then what is overdue behind it is, too: it stays behind */
    for (size_t k = 0; !part->keeps_timers && k < part->turn->orchestrator_item_count; k++) {
        const dur_message_row *item = &part->turn->orchestrator_items[k];
        if (undelayed)
            dur__pg_outbox_add_behind(box, item);
        else
            dur__pg_outbox_add(box, item, 0);
        undelayed |= item->due_ms == 0;
        if (item->due_ms == 0 || !own_business(part, item))
            plan->sends = true;
        else if (item->due_ms < plan->due_ms)
            plan->due_ms = item->due_ms;
    }
}

static void make_plan(const dur__pg_parts *parts, const dur_work_ack *acks, size_t ack_count, dur__pg_outbox *box,
                      dur__pg_turn_plan *plan) {
    *plan = (dur__pg_turn_plan){ .work_at = -1, .timers_at = -1, .due_ms = DUR_NEVER };
    for (size_t i = 0; i < ack_count; i++)
        if (acks[i].completion != NULL) dur__pg_outbox_add(box, acks[i].completion, 0);
    plan->sends = plan->for_lanes = box->messages.rows > 0;
    for (size_t i = 0; i < parts->count; i++) {
        const dur__pg_part *part = &parts->all[i];
        plan->for_lanes |= concerns_lanes(part);
        plan->for_watches |= dur__pg_turn_seen(part->turn);
        plan->takes |= takes(part, parts->lane);
        add_messages(part, box, plan);
    }
}

/* ---- its statements ---------------------------------------------------------------------------------------------- */

/* Sessions of the work that it finishes, before anything else is waited for (pg_work.c). */
static void lock_sessions(dur__pg_batch *batch, const dur__pg_parts *parts, const dur_work_ack *acks,
                          size_t ack_count) {
    dur__pg_table tokens = dur__pg_table_of("t");
    for (size_t i = 0; i < ack_count; i++)
        dur__pg_put_text(&tokens, acks[i].lock_token);
    for (size_t i = 0; i < parts->count; i++)
        for (size_t k = 0; k < parts->all[i].turn->worker_consumed_count; k++)
            dur__pg_put_text(&tokens, parts->all[i].turn->worker_consumed[k].lock_token);
    dur__pg_batch_add_rows(batch, dur__pg_lock_sessions_sql, &tokens);
}

/* 3: outside of lanes each turn has an owner of its own. */
static void send_taker_fence(dur__pg_batch *batch, const dur__pg_parts *parts) {
    const dur__pg_lane *lane = parts->lane;
    bool births = false;
    const char *owner = NULL;
    for (size_t i = 0; i < parts->count; i++) {
        const dur__pg_part *part = &parts->all[i];
        births |= part->facts.born;
        if (lane != NULL || !takes(part, lane) || dur__str_eq(part->turn->owner, owner)) continue;
        owner = part->turn->owner;
        dur__pg_owner_fence_add(batch, owner);
    }
    if (lane != NULL && lane->owner != NULL) dur__pg_lane_fence_add(batch, lane, births);
}

/* Its start may be gone, and nothing has made it an instance: who holds it holds nothing. */
static const char known_sql[] = "UPDATE @instances i SET known = false WHERE i.instance_id = ANY ($2::text[]) AND"
                                " i.known AND NOT (i.has_row OR i.has_history) AND NOT EXISTS (SELECT 1 FROM @queue s"
                                " WHERE s.instance_id = i.instance_id AND s.kind IN " DUR__PG_STARTS ")";

static bool keeps_perhaps_nothing(const dur__pg_part *part) {
    return part->updates && part->facts.keeps && part->turn->event_count == 0 && !part->facts.names &&
           (part->facts.takes_given || part->turn->consumed_count > 0);
}

/* What was claimed never came into being. */
static bool may_leave_nothing(const dur__pg_part *part) {
    return !part->facts.keeps && !part->facts.writes;
}

void dur__pg_turns_add(dur__pg_batch *batch, dur__pg_lane *lane, dur_turn_commit **turns, size_t count,
                       dur_work_ack *acks, size_t ack_count, dur__pg_turn_plan *plan) {
    dur__pg_outbox box;
    dur__pg_parts parts;
    dur__pg_outbox_begin(&box);
    dur__pg_parts_begin(&parts, lane, turns, count);
    make_plan(&parts, acks, ack_count, &box, plan);
    lock_sessions(batch, &parts, acks, ack_count);
    dur__pg_send_row_locks(batch, &parts, &box);
    dur__pg_send_recovered(batch, &parts);
    dur__pg_send_meant(batch, &parts);
    dur__pg_send_past_executions(batch, &parts);
    dur__pg_send_rows(batch, &parts);
    dur__pg_send_fence(batch, &parts);
    if (plan->takes) send_taker_fence(batch, &parts);
    dur__pg_send_positions(batch, &parts);
    dur__pg_send_work_taken(batch, &parts, acks, ack_count); /* compared before all other rows are removed */
    dur__pg_send_taken(batch, &parts);
    dur__pg_send_ids(batch, known_sql, &parts, keeps_perhaps_nothing);
    dur__pg_send_history(batch, &parts);
    dur__pg_send_kv(batch, &parts);
    dur__pg_send_sessions(batch, &parts);
    plan->work_at = dur__pg_send_work(batch, &parts);
    dur__pg_send_cancelled(batch, &parts);
    dur__pg_outbox_send(&box, batch);
    plan->timers_at = dur__pg_send_timers(batch, &parts);
    dur__pg_send_timers_dropped(batch, &parts);
    dur__pg_send_release(batch, &parts);
    dur__pg_send_ids(batch, dur__pg_sweep_sql, &parts, may_leave_nothing);
    dur__pg_parts_end(&parts);
    dur__pg_outbox_end(&box);
}

static void read_work(const PGresult *rows, int *row, const dur__pg_lane *lane, const dur_turn_commit *turn) {
    for (size_t k = 0; k < turn->worker_item_count; k++) {
        dur_turn_work *item = &turn->worker_items[k];
        item->local = dur__pg_item_is_local(lane, turn, item);
        if (item->local || item->recovered) continue;
        item->row_id = dur__pg_get_u64(rows, *row, 0);
        item->locked = dur__pg_get_bool(rows, (*row)++, 1);
    }
}

void dur__pg_turns_read(const dur__pg_batch *batch, const dur__pg_turn_plan *plan, dur__pg_lane *lane,
                        dur_turn_commit **turns, size_t count) {
    int row = 0, timer = 0;
    const PGresult *timers = plan->timers_at >= 0 ? batch->results[plan->timers_at] : NULL;
    const PGresult *works = plan->work_at >= 0 ? batch->results[plan->work_at] : NULL;
    dur__pg_parts parts;
    dur__pg_parts_begin(&parts, lane, turns, count); /* as it was when it was sent */
    for (size_t i = 0; i < count; i++) {
        turns[i]->fault = DUR_TURN_FINE;
        dur_error_clear(&turns[i]->error);
        turns[i]->lease_kept = parts.all[i].facts.keeps;
        read_work(works, &row, lane, turns[i]);
        if (lane == NULL) continue;
        dur__pg_lease *lease = dur__pg_lease_commit(lane, turns[i]);
        if (lease != NULL)
            dur__pg_timers_note(lane, lease, turns[i], parts.all[i].keeps_timers ? timers : NULL, &timer);
        for (size_t k = 0; !parts.all[i].keeps_timers && k < turns[i]->orchestrator_item_count; k++)
            dur__pg_lease_told(lane, turns[i]->orchestrator_items[k].instance);
    }
    dur__pg_parts_end(&parts);
}

/* ---- committing -------------------------------------------------------------------------------------------------- */

/* A comparison or a key, of which a look tells whose it is; anything else that is refused is one of the texts. */
static bool is_comparison(const dur__pg_batch *batch) {
    return strcmp(batch->sqlstate, "22012") == 0 || strcmp(batch->sqlstate, "23505") == 0;
}

typedef enum outcome { COMMITTED, FAILED, REFUSED, HELD, UNREADABLE } outcome;

static outcome commit_once(dur__pg_conn *conn, dur__pg_lane *lane, dur_turn_commit **turns, size_t count,
                           dur_error *err) {
    dur__pg_batch batch;
    dur__pg_turn_plan plan;
    int code = dur__pg_connect(conn, err);
    if (code == DUR_OK && lane != NULL && lane->unknown) /* first the lane learns what it holds (pg_lease.c) */
        code = dur_error_set(err, DUR_EUNAVAILABLE, true, "postgres.commit", "the commit before was not answered");
    if (code != DUR_OK) return FAILED;
    int backend = conn->backend;
    if (lane != NULL) lane->rounds++; /* of timers that it may not hear of, and of no others */
    dur__pg_batch_begin(&batch, conn, true);
    dur__pg_turns_add(&batch, lane, turns, count, NULL, 0, &plan);
    if (plan.for_lanes || plan.for_watches) dur__pg_batch_notify(&batch);
    code = dur__pg_batch_run(&batch, "postgres.commit", err);
    outcome what = code == DUR_OK                    ? COMMITTED
                   : dur__pg_waited_too_long(&batch) ? HELD
                   : !dur__pg_refused(&batch, code)  ? FAILED
                   : is_comparison(&batch)           ? REFUSED
                                                     : UNREADABLE;
    if (code == DUR_EUNKNOWN && lane != NULL) dur__pg_lane_lost(lane, backend, turns, count);
    if (what == COMMITTED) dur__pg_turns_read(&batch, &plan, lane, turns, count);
    dur__pg_batch_end(&batch);
    return what;
}

static void halves(dur__pg_conn *conn, dur__pg_lane *lane, dur_arena *arena, dur_turn_commit **turns, size_t count) {
    dur__pg_turns_commit(conn, lane, arena, turns, count / 2);
    dur__pg_turns_commit(conn, lane, arena, turns + count / 2, count - count / 2);
}

void dur__pg_turns_commit(dur__pg_conn *conn, dur__pg_lane *lane, dur_arena *arena, dur_turn_commit **turns,
                          size_t count) {
    for (int tries = 0; count > 0; tries++) {
        dur_error err = DUR_ERROR_INIT;
        size_t before = count;
        outcome what = commit_once(conn, lane, turns, count, &err);
        if (what == COMMITTED) return;
        if (what == REFUSED && dur__pg_leave_refused(conn, lane, arena, turns, &count, &err) != DUR_OK) what = FAILED;
        if ((what == REFUSED || what == HELD) && count == before && lane != NULL)
            count = dur__pg_leave_held_up(lane, turns, count, true);
        if (count < before) continue;
        if (what == FAILED || count == 1 || tries == TRIES_MAX) {
            if (what == REFUSED)
                dur_error_set(&err, DUR_EBUSY, true, "postgres.commit", "the instance changed while it was committed");
            if (what != REFUSED || tries == TRIES_MAX) {
                dur__pg_turns_failed(turns, count, &err);
                return;
            }
        } else if (what == UNREADABLE || what == HELD || tries > 0) { /* two of one instance, say */
            halves(conn, lane, arena, turns, count);
            return;
        }
    }
}

static const char by_token_sql[] = "SELECT instance_id FROM @instances WHERE token = $2::text";

/* The id of the instance that has this lock; NULL: none.  In arena. */
static int instance_of_token(dur__pg *store, dur_arena *arena, const char *token, const char **out, dur_error *err) {
    dur__pg_args args;
    dur__pg_args_of(store, &args, token);
    return dur__pg_first_text(store, "postgres.commit", by_token_sql, &args, arena, out, err);
}

static int commit_some(dur__pg *store, dur_turn_commit *turns, size_t count, dur_error *err) {
    dur__pg_conn *conn;
    dur_arena *arena = dur_arena_new();
    dur_turn_commit **valid = dur_arena_alloc(arena, (count + 1) * sizeof(dur_turn_commit *));
    bool *found = dur_arena_zalloc(arena, count + 1);
    size_t valid_count = 0;
    int code = DUR_OK;
    for (size_t i = 0; code == DUR_OK && i < count; i++) {
        found[i] = turns[i].instance == NULL && turns[i].lock_token != NULL;
        if (found[i]) code = instance_of_token(store, arena, turns[i].lock_token, &turns[i].instance, err);
        if (code == DUR_OK && dur__pg_turn_found(NULL, &turns[i])) valid[valid_count++] = &turns[i];
    }
    if (code == DUR_OK && valid_count > 0) code = dur__pg_borrow(store, &conn, err);
    if (code == DUR_OK && valid_count > 0) {
        dur__pg_turns_commit(conn, NULL, NULL, valid, valid_count);
        dur__pg_return(conn);
        dur__pg_wake(store, NULL, NULL);
    }
    for (size_t i = 0; i < count; i++)
        if (found[i]) turns[i].instance = NULL; /* as it was given */
    dur_arena_free(arena);
    return code;
}

int dur__pg_commit_turns(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    return commit_some(dur__pg_of(self), turns, count, err);
}

int dur__pg_ack_orchestration_item(dur_provider *self, dur_turn_commit *turn, dur_error *err) {
    int code = commit_some(dur__pg_of(self), turn, 1, err);
    if (code == DUR_OK) {
        if (err != NULL) *err = turn->error;
        return (int)turn->error.code;
    }
    turn->fault = DUR_TURN_STORE;
    if (err != NULL) turn->error = *err;
    return code;
}
