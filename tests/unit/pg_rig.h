/*
 * pg_rig.h: a lane of the PostgreSQL store under the owner "o", and turns for it.
 */
#ifndef DURITE_TESTS_PG_RIG_H
#define DURITE_TESTS_PG_RIG_H

#include "pg_help.h"
#include "provider/postgres/pg_internal.h"

typedef struct rig {
    pg_bench *p;
    dur_lane *lane;
    dur_waker *waker;
} rig;

static const dur_fetch fresh = { .owner = "o", .max = 8, .kind = DUR_FETCH_FRESH };

static inline dur_round run(rig *r, dur_turn_commit *turns, size_t count, const dur_fetch *fetch) {
    bench *b = &r->p->b;
    dur_round round = { .turns = turns, .turn_count = count, .fetch = fetch };
    ASSERT_OK(b, dur_store_lane_round(r->lane, b->arena, &round, &b->err));
    for (size_t i = 0; i < count; i++)
        assert_int_equal(turns[i].fault, DUR_TURN_FINE);
    return round;
}

static inline rig rig_open(pg_bench *p) {
    rig r = { .p = p, .waker = dur_waker_new() };
    dur_lane_options options = { .owner = "o", .waker = r.waker };
    ASSERT_OK(&p->b, dur_store_owner_register(p->b.store, &(dur_owner_options){ .owner = "o" }, &p->b.err));
    ASSERT_OK(&p->b, dur_store_lane_open(p->b.store, &options, &r.lane, &p->b.err));
    (void)run(&r, NULL, 0, &fresh);
    return r;
}

static inline void rig_close(rig *r) {
    dur_store_lane_close(r->lane);
    dur_waker_free(r->waker);
}

static inline long count(const rig *r, const char *table, const char *condition) {
    char sql[512];
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s.dur_%s WHERE %s", r->p->schema, table, condition);
    return pg_number(r->p->db, sql);
}

static inline dur_turn_commit turn_of(const dur_orchestration_item *item, const dur_event_row *event,
                                      uint64_t expected) {
    return (dur_turn_commit){ .lock_token = item->lock_token,
                              .instance = item->instance,
                              .execution_id = 1,
                              .events = event,
                              .event_count = 1,
                              .expected_last = expected,
                              .consume_listed = true,
                              .owner = "o",
                              .keep_lease = true };
}

static inline void begin(rig *r, const dur_orchestration_item *item) {
    dur_event_row event = event_of(1);
    dur_turn_commit turn = turn_of(item, &event, 0);
    turn.metadata = named();
    turn.consumed = &item->messages[0].id;
    turn.consumed_count = 1;
    (void)run(r, &turn, 1, NULL);
}

/* An instance of the lane, with one event. */
static inline dur_orchestration_item begun(rig *r, const char *instance) {
    bench *b = &r->p->b;
    dur_message_row start = start_of(b, instance);
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    dur_round round = run(r, NULL, 0, &fresh);
    assert_int_equal(round.item_count, 1);
    begin(r, &round.items[0]);
    return round.items[0];
}

#endif
