/*
 * pg_ahead.h: instances whose history goes ahead of their rows, on PostgreSQL: how they are led there, and what to see.
 */
#ifndef DURITE_TESTS_PG_AHEAD_H
#define DURITE_TESTS_PG_AHEAD_H

#include "pg_steps.h"
#include "provider/postgres/pg_turn.h"
#include <pthread.h>
#define PATIENCE_MS 20000u

/* ---- instances that a lane leads step by step -------------------------------------------------------------------- */

typedef enum deed {
    NOTHING_TO_STEPS,
    BEGINS,
    ENDS
} deed; /* of a turn; what begins a step ends the one that there is */

typedef struct flow {
    dur_orchestration_item item;
    uint64_t last;            /* where the lane is */
    dur_turn_work step, next; /* without a token: none */
    dur_event_row event;
    dur_worker_claim claim;
} flow;

static inline const char *event_json(const rig *r, uint64_t id) {
    return dur_arena_format(r->p->b.arena, "{\"event\":%d}", (int)id);
}

static inline dur_turn_work step_at(const rig *r, const char *instance, uint64_t activity) {
    const char *token = dur_arena_format(r->p->b.arena, "%s-%d", instance, (int)activity);
    dur_turn_work work = work_of(instance, activity, token);
    work.message.json = text_of(dur_arena_format(r->p->b.arena, "{\"step\":\"%s\"}", token));
    return work;
}

static inline flow flow_of(dur_orchestration_item item) {
    return (flow){ .item = item, .last = 1 };
}

static inline flow begun_flow(rig *r, const char *instance) {
    return flow_of(begun(r, instance));
}

static inline dur_turn_commit next_turn(const rig *r, flow *f, deed does) {
    f->event = event_of(f->last + 1);
    f->event.json = text_of(event_json(r, f->last + 1));
    f->next = f->step;
    dur_turn_commit turn = turn_of(&f->item, &f->event, f->last);
    if (does == NOTHING_TO_STEPS) return turn;
    if (f->step.lock_token != NULL) {
        f->claim = claim_of(f->item.instance, &f->step);
        turn.worker_consumed = &f->claim;
        turn.worker_consumed_count = 1;
    }
    f->next = (dur_turn_work){ .row_id = 0 };
    if (does == ENDS) return turn;
    f->next = step_at(r, f->item.instance, f->last + 1);
    turn.worker_items = &f->next;
    turn.worker_item_count = 1;
    return turn;
}

static inline dur_turn_commit ending(dur_turn_commit turn) {
    turn.keep_lease = false;
    turn.metadata.status = DUR_STATUS_COMPLETED;
    turn.metadata.output = "done";
    return turn;
}

static inline void went(flow *f) {
    f->step = f->next;
    f->last++;
}

static inline void go(rig *r, flow *f, deed does) {
    dur_turn_commit turn = next_turn(r, f, does);
    (void)run(r, &turn, 1, NULL);
    went(f);
}

static inline void go_both(rig *r, flow *a, flow *b, deed does) {
    dur_turn_commit turns[] = { next_turn(r, b, does), next_turn(r, a, does) };
    (void)run(r, turns, 2, NULL);
    went(a);
    went(b);
}

static inline void try_turns(rig *r, dur_turn_commit *turns, size_t n) {
    bench *b = &r->p->b;
    dur_round round = { .turns = turns, .turn_count = n };
    ASSERT_OK(b, dur_store_lane_round(r->lane, b->arena, &round, &b->err));
}

static inline dur_turn_fault fault_of(rig *r, dur_turn_commit turn) {
    try_turns(r, &turn, 1);
    return turn.fault;
}

static inline dur__pg_turn_kind kind_of(rig *r, dur_turn_commit *turn) {
    return dur__pg_kind_of_all(&turn, 1, (dur__pg_lane *)(void *)r->lane);
}

/* Two instances; a step of each stands in its row, the one that it has now in history. */
static inline void go_ahead(rig *r, flow *x, flow *y) {
    *x = begun_flow(r, "x");
    *y = begun_flow(r, "y");
    go(r, x, BEGINS);
    go(r, y, BEGINS);
    go_both(r, x, y, BEGINS);
}

/* As after a look that tells what it has lost: it learns at once how often it was disturbed. */
static inline void has_noticed(const rig *r) {
    dur__pg_calm_doubt((dur__pg_lane *)(void *)r->lane);
}

/* ---- starts that their first turn writes ------------------------------------------------------------------------- */

typedef struct caller {
    dur_provider *store;
    dur_message start;
    int code;
    pthread_t thread;
} caller;

static inline void *call(void *arg) {
    caller *c = arg;
    dur_error err = DUR_ERROR_INIT;
    bool existed;
    c->code = dur_store_enqueue_start(c->store, &c->start, DUR_EXISTS_FAIL, 0, &existed, &err);
    return NULL;
}

static inline size_t starts(rig *r, dur_orchestration_item *item) {
    size_t got = 0;
    ASSERT_OK(&r->p->b, dur_store_lane_starts(r->lane, r->p->b.arena, 1, item, &got, &r->p->b.err));
    return got;
}

/* A caller does not lose patience with a lane in the middle of a round. */
static inline flow take_start(rig *r, caller *c, const char *instance) {
    dur_orchestration_item item;
    dur__pg_lane *lane = (dur__pg_lane *)(void *)r->lane;
    *c = (caller){ .store = r->p->b.store, .start = start_of(&r->p->b, instance) };
    assert_int_equal(starts(r, &item), 0); /* who has asked is given starts from then on */
    atomic_store(&lane->in_round, true);
    pthread_create(&c->thread, NULL, call, c);
    while (starts(r, &item) == 0)
        pg_pause_ms(1);
    atomic_store(&lane->in_round, false);
    return (flow){ .item = item };
}

static inline dur_turn_commit birth(const rig *r, flow *f) {
    dur_turn_commit turn = next_turn(r, f, NOTHING_TO_STEPS);
    turn.metadata = named();
    turn.writes_start = true;
    turn.consumed = &f->item.messages[0].id;
    turn.consumed_count = 1;
    return turn;
}

static inline void was_born(flow *f, caller *c) {
    pthread_join(c->thread, NULL);
    assert_int_equal(c->code, DUR_OK);
    went(f);
}

static inline flow born_flow(rig *r, const char *instance) {
    caller c;
    flow f = take_start(r, &c, instance);
    dur_turn_commit turn = birth(r, &f);
    (void)run(r, &turn, 1, NULL);
    was_born(&f, &c);
    return f;
}

/* ---- what is there ----------------------------------------------------------------------------------------------- */

#define SQL(r, ...) dur_arena_format((r)->p->b.arena, __VA_ARGS__)

static inline const char *ask(const rig *r, const char *sql) {
    PGresult *result = PQexec(r->p->db, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK) fail_msg("%s: %s", sql, PQresultErrorMessage(result));
    const char *answer = SQL(r, "%s", PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : "none");
    PQclear(result);
    return answer;
}

/* This very version of the row. */
static inline const char *row_of(const rig *r, const flow *f) {
    return ask(r, SQL(r,
                      "SELECT concat_ws(' ', ctid, xmin, last_event, coalesce(step_id, 0), step_token, step_json,"
                      " updated_at, acquisitions) FROM %s.dur_instances WHERE instance_id = '%s'",
                      r->p->schema, f->item.instance));
}

static inline long row_last(const rig *r, const flow *f) {
    return pg_number(r->p->db, SQL(r, "SELECT last_event FROM %s.dur_instances WHERE instance_id = '%s'", r->p->schema,
                                   f->item.instance));
}

static inline long count_of(const rig *r, const flow *f, const char *table, const char *condition) {
    return count(r, table, SQL(r, "instance_id = '%s' AND %s", f->item.instance, condition));
}

static inline long step_id(const dur_turn_work *work) {
    return (long)dur__pg_step_id(&work->message);
}

/* The row of history of its last turn has the step and the time; NULL: it says nothing about the step. */
static inline void assert_history_row(const rig *r, const flow *f, deed did) {
    const char *step = did == NOTHING_TO_STEPS ? "step_id IS NULL AND step_token IS NULL AND step_json IS NULL"
                       : did == ENDS           ? "step_id = 0 AND step_token IS NULL AND step_json IS NULL"
                                               : SQL(r, "step_id = %ld AND step_token = '%s' AND step_json = '%s'",
                                                     step_id(&f->step), f->step.lock_token, f->step.message.json.data);
    const char *row = SQL(r, "event_id = %d AND events = 1 AND at_ms > 0 AND %s", (int)f->last, step);
    assert_int_equal(count_of(r, f, "history", row), 1);
}

static inline void assert_history(const rig *r, const flow *f) {
    bench *b = &r->p->b;
    dur_event_row *events;
    size_t n = 0;
    ASSERT_OK(b, dur_store_read(b->store, b->arena, f->item.instance, 1, &events, &n, &b->err));
    assert_int_equal(n, f->last);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(events[i].event_id, i + 1);
    for (size_t i = 1; i < n; i++)
        assert_string_equal(events[i].json.data, event_json(r, i + 1));
}

static inline bool is_lost(const rig *r, const flow *f, const dur_turn_work *work) {
    bench *b = &r->p->b;
    dur_worker_claim claim = claim_of(f->item.instance, work);
    bool lost[3] = { false, false, false };
    dur_worker_claim claims[3] = { claim, claim, { .lock_token = claim.lock_token } };
    claims[1].ref.row_id = 0;
    ASSERT_OK(b, dur_store_check_works(b->store, claims, 3, 0, lost, &b->err));
    assert_int_equal(lost[1], lost[0]);
    assert_int_equal(lost[2], lost[0]);
    return lost[0];
}

static inline void assert_sound(const rig *r, const flow *f) {
    assert_history(r, f);
    ASSERT_OK(&r->p->b, dur_provider_check(r->p->b.store, &r->p->b.err));
}

/* The row says what history says, and has no step. */
static inline void assert_settled(const rig *r, const flow *f) {
    assert_int_equal(row_last(r, f), f->last);
    assert_int_equal(count_of(r, f, "instances", "step_id IS NULL AND step_token IS NULL AND step_json IS NULL"), 1);
    assert_sound(r, f);
}

/* And, where nothing but its lease has ended, when its last turn was. */
static inline void assert_updated_then(const rig *r, const flow *f) {
    const char *then = SQL(r,
                           "updated_at = (SELECT h.at_ms FROM %s.dur_history h WHERE h.instance_id = '%s' AND"
                           " h.event_id = %d)",
                           r->p->schema, f->item.instance, (int)f->last);
    assert_int_equal(count_of(r, f, "instances", then), 1);
}

/* Its step is its only row of dur_worker. */
static inline void assert_work(const rig *r, const flow *f, const char *condition) {
    const dur_message *item = &f->step.message;
    const char *row = SQL(r, "id = %ld AND execution_id = 1 AND activity_id = %d AND json = '%s' AND %s",
                          step_id(&f->step), (int)item->activity_id, item->json.data, condition);
    assert_int_equal(count_of(r, f, "worker", "true"), 1);
    assert_int_equal(count_of(r, f, "worker", row), 1);
}

/* … for whom it was before, since it was begun. */
static inline void assert_moved(const rig *r, const flow *f) {
    assert_work(r, f,
                SQL(r,
                    "token = '%s' AND owner = 'o' AND attempts = 1 AND since_ms = (SELECT h.at_ms FROM"
                    " %s.dur_history h WHERE h.instance_id = '%s' AND h.step_id = id)",
                    f->step.lock_token, r->p->schema, f->item.instance));
    assert_false(is_lost(r, f, &f->step));
}

#define FREED "token IS NULL AND owner IS NULL"

static inline void send_event(const rig *r, const flow *f) {
    bench *b = &r->p->b;
    dur_message event = message_of(DUR_WORK_EXTERNAL_RAISED, f->item.instance);
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &event, 0, &b->err));
}

/* By anybody, with all of it. */
static inline void assert_fetched_again(const rig *r, const flow *f) {
    bench *b = &r->p->b;
    dur_orchestration_item again;
    dur_fetch how = { .lock_ms = 60000, .max = 1 };
    size_t n = 0;
    send_event(r, f);
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &how, &again, &n, &b->err));
    assert_int_equal(n, 1);
    assert_string_equal(again.instance, f->item.instance);
    assert_int_equal(again.last_event_id, f->last);
    assert_int_equal(again.history_count, f->last);
    assert_int_equal(again.history[f->last - 1].event_id, f->last);
}

#endif
