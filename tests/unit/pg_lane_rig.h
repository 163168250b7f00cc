/*
 * pg_lane_rig.h: a lane of the PostgreSQL store under the owner "o", and turns that write their start.
 */
#ifndef DURITE_TESTS_PG_LANE_RIG_H
#define DURITE_TESTS_PG_LANE_RIG_H

#include "pg_help.h"
#include "provider/postgres/pg_internal.h"

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

/* A start that nobody has written. */
static inline dur_orchestration_item take(rig *r, const char *instance) {
    static unsigned serial;
    dur_message_row start = start_of(&r->p->b, instance);
    dur_fetched_message *message = dur_arena_zalloc(r->p->b.arena, sizeof(*message));
    *message = (dur_fetched_message){ .attempt_count = 1, .json = start.json };
    return (dur_orchestration_item){ .instance = dur_arena_strdup(r->p->b.arena, instance),
                                     .lock_token = dur_arena_format(r->p->b.arena, "birth-%u", ++serial),
                                     .execution_id = 1,
                                     .messages = message,
                                     .message_count = 1 };
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
    dur_orchestration_item item = take(r, instance);
    dur_turn_commit turn = born_turn(&item);
    (void)run(r, &turn, 1, NULL);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    return turn;
}

static inline void sends(bench *b, dur_turn_commit *turn, dur_message_row message) {
    dur_message_row *one = dur_arena_zalloc(b->arena, sizeof(*one));
    *one = message;
    turn->orchestrator_items = one;
    turn->orchestrator_item_count = 1;
}

#endif
