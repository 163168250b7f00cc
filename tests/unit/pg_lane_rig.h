/*
 * pg_lane_rig.h: a lane of the PostgreSQL store under the owner "o" that is given starts, callers who wait for theirs,
 * and turns that write them.
 */
#ifndef DURITE_TESTS_PG_LANE_RIG_H
#define DURITE_TESTS_PG_LANE_RIG_H

#include "pg_help.h"
#include "provider/postgres/pg_internal.h"

#include <pthread.h>
#include <stdatomic.h>

typedef struct rig {
    pg_bench *p;
    dur_provider *store;
    dur_lane *lane;
    dur_waker *waker;
} rig;

static const dur_fetch fresh = { .owner = "o", .max = 8, .kind = DUR_FETCH_FRESH };

static inline dur_round run(rig *r, dur_turn_commit *turns, size_t count, const dur_fetch *how) {
    bench *b = &r->p->b;
    dur_round round = { .turns = turns, .turn_count = count, .fetch = how };
    ASSERT_OK(b, dur_store_lane_round(r->lane, b->arena, &round, &b->err));
    return round;
}

static inline size_t starts(rig *r, dur_orchestration_item *items, size_t max) {
    size_t count = 77;
    ASSERT_OK(&r->p->b, dur_store_lane_starts(r->lane, r->p->b.arena, max, items, &count, &r->p->b.err));
    return count;
}

static inline bool takes_starts(const rig *r) {
    return atomic_load(&((dur__pg_lane *)(void *)r->lane)->takes_starts);
}

static inline rig rig_on(pg_bench *p, dur_provider *store) {
    rig r = { .p = p, .store = store, .waker = dur_waker_new() };
    ASSERT_OK(&p->b, dur_store_owner_register(store, &(dur_owner_options){ .owner = "o" }, &p->b.err));
    dur_lane_options options = { .owner = "o", .waker = r.waker };
    ASSERT_OK(&p->b, dur_store_lane_open(store, &options, &r.lane, &p->b.err));
    assert_int_equal(run(&r, NULL, 0, &fresh).item_count, 0);
    return r;
}

static inline rig rig_open(pg_bench *p) {
    return rig_on(p, p->b.store);
}

static inline void rig_close(rig *r) {
    if (r->lane != NULL) dur_store_lane_close(r->lane);
    dur_waker_free(r->waker);
}

static inline long count(const rig *r, const char *table, const char *condition) {
    char sql[512];
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s.dur_%s WHERE %s", r->p->schema, table, condition);
    return pg_number(r->p->db, sql);
}

typedef struct caller {
    rig *r;
    dur_message_row start;
    dur_exists_policy policy;
    int code;
    bool existed;
    dur_error err;
    pthread_t thread;
} caller;

static inline void *call(void *arg) {
    caller *c = arg;
    c->code = dur_store_enqueue_start(c->r->store, &c->start, c->policy, 0, &c->existed, &c->err);
    return NULL;
}

static inline void begin(rig *r, caller *c, const char *instance) {
    c->r = r;
    c->start = start_of(&r->p->b, instance);
    pthread_create(&c->thread, NULL, call, c);
}

/* A caller does not lose patience with a lane in the middle of a round. */
static inline dur_orchestration_item take(rig *r, caller *c, const char *instance) {
    dur_orchestration_item item;
    dur__pg_lane *lane = (dur__pg_lane *)(void *)r->lane;
    assert_int_equal(starts(r, &item, 1), 0); /* who has asked is given starts from then on */
    atomic_store(&lane->in_round, true);
    begin(r, c, instance);
    while (starts(r, &item, 1) == 0)
        pg_pause_ms(1);
    atomic_store(&lane->in_round, false);
    assert_string_equal(item.instance, instance);
    assert_int_equal(item.message_count, 1);
    assert_int_equal(item.messages[0].id, 0);
    assert_int_equal(item.messages[0].attempt_count, 1);
    assert_int_equal(item.acquisitions, 1);
    return item;
}

static inline int answer_of(caller *c) {
    pthread_join(c->thread, NULL);
    return c->code;
}

static const dur_event_row one_event[] = { { .event_id = 1, .json = { "{\"x\":\"event-one\"}", 17 } } };

static inline dur_turn_commit first_turn(const dur_orchestration_item *item) {
    return (dur_turn_commit){ .lock_token = item->lock_token,
                              .instance = item->instance,
                              .execution_id = 1,
                              .events = one_event,
                              .event_count = 1,
                              .metadata = named(),
                              .consume_listed = true,
                              .consumed = &item->messages[0].id,
                              .consumed_count = 1,
                              .owner = "o",
                              .keep_lease = true };
}

static inline dur_turn_commit born_turn(const dur_orchestration_item *item) {
    dur_turn_commit turn = first_turn(item);
    turn.writes_start = true;
    return turn;
}

static inline dur_turn_commit next_turn(const char *instance, const char *token, const dur_event_row *event) {
    return (dur_turn_commit){ .lock_token = token,
                              .instance = instance,
                              .execution_id = 1,
                              .events = event,
                              .event_count = 1,
                              .expected_last = event->event_id - 1,
                              .consume_listed = true,
                              .owner = "o",
                              .keep_lease = true };
}

static inline void goes_on_from(rig *r, const dur_turn_commit *born) {
    dur_event_row event = event_of(2);
    dur_turn_commit turn = next_turn(born->instance, born->lock_token, &event);
    (void)run(r, &turn, 1, NULL);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_true(turn.lease_kept);
}

/* An instance that the lane holds, with one event. */
static inline dur_turn_commit parked(rig *r, const char *instance) {
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(r, &c, instance);
    dur_turn_commit turn = born_turn(&item);
    (void)run(r, &turn, 1, NULL);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_int_equal(answer_of(&c), DUR_OK);
    return turn;
}

static inline void sends(bench *b, dur_turn_commit *turn, dur_message_row message) {
    dur_message_row *one = dur_arena_zalloc(b->arena, sizeof(*one));
    *one = message;
    turn->orchestrator_items = one;
    turn->orchestrator_item_count = 1;
}

#endif
