/*
 * test_pg_timers.c: timers that a lane keeps for its instances, and what becomes of them when the lease ends.
 */
#include "pg_rig.h"
#include "provider/postgres/pg_turn.h"

#define LATER_MS 60000u

static uint64_t later(const rig *r) {
    return dur_store_now_ms(r->p->b.store) + LATER_MS;
}

static dur_message_row timer_of(const char *instance, uint64_t activity, uint64_t due_ms) {
    dur_message_row timer = message_of(DUR_WORK_TIMER_FIRED, instance);
    timer.execution_id = 1;
    timer.activity_id = activity;
    timer.due_ms = due_ms;
    timer.json = (dur_text){ "{\"timer\":1}", 11 };
    return timer;
}

/* The turn behind event `last`, which sets these timers. */
static dur_round sets(rig *r, const dur_orchestration_item *item, uint64_t last, const dur_message_row *timers,
                      size_t n) {
    dur_event_row event = event_of(last + 1);
    dur_turn_commit turn = turn_of(item, &event, last);
    turn.orchestrator_items = timers;
    turn.orchestrator_item_count = n;
    return run(r, &turn, 1, NULL);
}

static dur_turn_commit end_of(const dur_orchestration_item *item, const dur_event_row *event, uint64_t last) {
    dur_turn_commit turn = turn_of(item, event, last);
    turn.metadata.status = DUR_STATUS_COMPLETED;
    turn.metadata.output = "done";
    turn.keep_lease = false;
    return turn;
}

static size_t kept(const rig *r) {
    return ((const dur__pg_lane *)(const void *)r->lane)->timers_by_id.count;
}

static bool is_bare(const rig *r, const char *instance) {
    const dur__pg_lease *lease = dur__map_get(&((const dur__pg_lane *)(const void *)r->lane)->leases, instance);
    return lease != NULL && lease->bare;
}

#define KEPT "delivered > 1 AND kind = 5 AND attempts = 0"
#define WAITS "delivered = 0 AND kind = 5"

/* ---- in the lane ------------------------------------------------------------------------------------------------- */

static void fires(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x");
    dur_message_row due = timer_of("x", 2, 1), other = timer_of("x", 3, later(&r));
    dur_round round = sets(&r, &item, 1, (dur_message_row[]){ due, other }, 2);
    assert_int_equal(round.held_count, 1); /* at once: its time has come */
    assert_string_equal(round.held[0].instance, "x");
    assert_string_equal(round.held[0].lock_token, item.lock_token);
    assert_int_equal(round.held[0].message.due_ms, 1);
    assert_int_equal(round.held[0].message.attempt_count, 1);
    assert_null(round.held[0].message.queue);
    assert_int_equal(round.held[0].message.json.size, 11);
    assert_memory_equal(round.held[0].message.json.data, "{\"timer\":1}", 11);
    assert_int_equal(round.next_due_ms, other.due_ms);
    assert_int_equal(count(&r, "queue", KEPT), 2);
    assert_int_equal(count(&r, "instances", "ready_at IS NULL AND ready_due = 0"), 1);
    assert_int_equal(count(&r, "queue", dur_arena_format(r.p->b.arena, "id = %d", (int)round.held[0].message.id)), 1);
    assert_int_equal(run(&r, NULL, 0, &fresh).held_count, 0); /* once */
    rig_close(&r);
}

static void in_order(void **state) {
    rig r = rig_open(*state);
    enum { MANY = 40 };
    dur_message_row timers[MANY];
    dur_orchestration_item item = begun(&r, "x");
    for (uint64_t i = 0; i < MANY; i++)
        timers[i] = timer_of("x", i + 2, 1 + i * 7 % MANY);
    dur_round round = sets(&r, &item, 1, timers, MANY);
    assert_int_equal(round.held_count, MANY);
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(round.held[i].message.due_ms, i + 1);
    rig_close(&r);
}

/* Behind a look that was just now the lane need not ask. */
static void without_the_store(void **state) {
    rig r = rig_open(*state);
    const dur__pg_lane *lane = (const dur__pg_lane *)(const void *)r.lane;
    dur_orchestration_item item = begun(&r, "x");
    dur_round round = { .held_count = 0 };
    uint64_t asked_us = 0, end_us = dur__monotonic_us() + 400000000; /* a busy machine is late most of the time */
    for (uint64_t last = 1; round.held_count == 0 || lane->answered_us != asked_us; last++) {
        if (dur__monotonic_us() > end_us) fail_msg("the store was asked %d times", (int)last - 1);
        dur_message_row timer = timer_of("x", last + 1, dur_store_now_ms(r.p->b.store) + 4);
        (void)sets(&r, &item, last, &timer, 1);
        (void)run(&r, NULL, 0, &fresh);
        asked_us = lane->answered_us;
        pg_pause_ms(6);
        round = run(&r, NULL, 0, &fresh);
    }
    assert_int_equal(round.held_count, 1);
    assert_int_equal(round.item_count, 0);
    rig_close(&r);
}

static void many_instances(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item x = begun(&r, "x"), y = begun(&r, "y");
    dur_event_row event = event_of(2);
    dur_message_row of_x = timer_of("x", 2, 1), of_y[] = { timer_of("y", 3, 2), timer_of("y", 4, later(&r)) };
    dur_turn_commit turns[] = { turn_of(&y, &event, 1), turn_of(&x, &event, 1) };
    turns[0].orchestrator_items = of_y;
    turns[0].orchestrator_item_count = 2;
    turns[1].orchestrator_items = &of_x;
    turns[1].orchestrator_item_count = 1;
    dur_round round = run(&r, turns, 2, NULL);
    assert_int_equal(round.held_count, 2);
    for (size_t i = 0; i < 2; i++) { /* each with the id of its own row */
        const char *row =
            dur_arena_format(r.p->b.arena, "instance_id = '%s' AND id = %d AND due_ms = %d", round.held[i].instance,
                             (int)round.held[i].message.id, (int)round.held[i].message.due_ms);
        assert_int_equal(count(&r, "queue", row), 1);
        assert_string_equal(round.held[i].instance, i == 0 ? "x" : "y");
    }
    rig_close(&r);
}

static void taken(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x");
    dur_message_row timer = timer_of("x", 2, 1);
    dur_round round = sets(&r, &item, 1, &timer, 1);
    dur_event_row event = event_of(3);
    dur_turn_commit turn = turn_of(&item, &event, 2);
    turn.consumed = &round.held[0].message.id;
    turn.consumed_count = 1;
    (void)run(&r, &turn, 1, NULL);
    assert_int_equal(count(&r, "queue", "true"), 0);
    assert_int_equal(kept(&r), 0);
    assert_true(is_bare(&r, "x"));
    rig_close(&r);
}

static void dropped(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x");
    uint64_t at_ms = later(&r);
    (void)sets(&r, &item, 1, (dur_message_row[]){ timer_of("x", 2, at_ms), timer_of("x", 3, at_ms + 1) }, 2);
    dur_event_row event = event_of(3);
    dur_turn_commit turn = turn_of(&item, &event, 2);
    dur_activity_ref first = { .execution_id = 1, .activity_id = 2 };
    turn.timers_dropped = &first;
    turn.timers_dropped_count = 1;
    dur_round round = run(&r, &turn, 1, NULL);
    assert_int_equal(round.next_due_ms, at_ms + 1);
    assert_int_equal(count(&r, "queue", "activity_id = 3"), 1);
    assert_int_equal(count(&r, "queue", "true"), 1);
    assert_int_equal(kept(&r), 1);
    rig_close(&r);
}

static void set_and_dropped_at_once(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x");
    dur_message_row timer = timer_of("x", 2, 1);
    dur_event_row event = event_of(2);
    dur_turn_commit turn = turn_of(&item, &event, 1);
    dur_activity_ref same = { .execution_id = 1, .activity_id = 2 };
    turn.orchestrator_items = &timer;
    turn.orchestrator_item_count = 1;
    turn.timers_dropped = &same;
    turn.timers_dropped_count = 1;
    assert_int_equal(run(&r, &turn, 1, NULL).held_count, 0);
    assert_int_equal(count(&r, "queue", "true"), 0);
    assert_int_equal(kept(&r), 0);
    rig_close(&r);
}

/* Whichever of them go, the others come in their order. */
static void dropped_from_the_middle(void **state) {
    rig r = rig_open(*state);
    enum { MANY = 300 };
    dur_message_row timers[MANY];
    dur_activity_ref gone[MANY];
    size_t gone_count = 0;
    uint64_t at_ms = later(&r), seed = 1;
    dur_orchestration_item item = begun(&r, "x");
    for (uint64_t i = 0; i < MANY; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        timers[i] = timer_of("x", i + 2, at_ms + (seed >> 33) % 100000);
        if (seed >> 63) gone[gone_count++] = (dur_activity_ref){ .execution_id = 1, .activity_id = i + 2 };
    }
    (void)sets(&r, &item, 1, timers, MANY);
    dur_event_row event = event_of(3);
    dur_turn_commit turn = turn_of(&item, &event, 2);
    turn.timers_dropped = gone;
    turn.timers_dropped_count = gone_count;
    (void)run(&r, &turn, 1, NULL);
    dur_round round = { .held_count = 0 };
    dur__pg_timers_hand_out((dur__pg_lane *)(void *)r.lane, at_ms + 100000, r.p->b.arena, &round);
    assert_int_equal(round.held_count, MANY - gone_count);
    for (size_t i = 1; i < round.held_count; i++)
        assert_true(round.held[i - 1].message.due_ms <= round.held[i].message.due_ms);
    rig_close(&r);
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static void over_with_its_timers(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x");
    dur_round round = sets(&r, &item, 1, (dur_message_row[]){ timer_of("x", 2, 1), timer_of("x", 3, later(&r)) }, 2);
    dur_event_row event = event_of(3);
    dur_turn_commit turn = end_of(&item, &event, 2);
    dur_activity_ref other = { .execution_id = 1, .activity_id = 3 };
    turn.consumed = &round.held[0].message.id;
    turn.consumed_count = 1;
    turn.timers_dropped = &other;
    turn.timers_dropped_count = 1;
    (void)run(&r, &turn, 1, NULL);
    assert_int_equal(count(&r, "queue", "true"), 0);
    assert_int_equal(count(&r, "instances", "token IS NULL AND owner IS NULL AND ready_at IS NULL"), 1);
    assert_int_equal(count(&r, "instances", "status = 2 AND output = 'done' AND completed_at > 0"), 1);
    assert_int_equal(kept(&r), 0);
    rig_close(&r);
}

/* What it leaves waits for anybody, as ever. */
static void over_before_its_timer(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x");
    dur_message_row timer = timer_of("x", 2, later(&r));
    (void)sets(&r, &item, 1, &timer, 1);
    dur_event_row event = event_of(3);
    dur_turn_commit turn = end_of(&item, &event, 2);
    (void)run(&r, &turn, 1, NULL);
    assert_int_equal(count(&r, "queue", WAITS), 1);
    assert_int_equal(
        count(&r, "instances", dur_arena_format(r.p->b.arena, "ready_at = %llu", (unsigned long long)timer.due_ms)), 1);
    assert_int_equal(kept(&r), 0);
    rig_close(&r);
}

/* A turn that sends something else leaves the timer with the lane: it fires. */
static void beside_a_turn_that_sends(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x");
    dur_message_row timer = timer_of("x", 2, dur_store_now_ms(r.p->b.store) + 300), child = start_of(&r.p->b, "child");
    (void)sets(&r, &item, 1, &timer, 1);
    (void)sets(&r, &item, 2, &child, 1);
    assert_int_equal(count(&r, "queue", KEPT), 1);
    assert_int_equal(kept(&r), 1);
    size_t fired = 0;
    for (int i = 0; fired == 0 && i < 400; i++) {
        fired = run(&r, NULL, 0, NULL).held_count;
        pg_pause_ms(5);
    }
    assert_int_equal(fired, 1);
    rig_close(&r);
}

/* Set by a turn that sends something else, too, it is read from the store. */
static void set_by_a_turn_that_sends(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x");
    dur_message_row both[] = { timer_of("x", 2, 1), start_of(&r.p->b, "child") };
    (void)sets(&r, &item, 1, both, 2);
    assert_int_equal(kept(&r), 0);
    assert_false(is_bare(&r, "x"));
    rig_close(&r);
}

/* ---- leases that end --------------------------------------------------------------------------------------------- */

static void assert_waits(const rig *r, uint64_t due_ms) {
    assert_int_equal(count(r, "queue", WAITS), 1);
    assert_int_equal(count(r, "instances",
                           dur_arena_format(r->p->b.arena, "token IS NULL AND ready_at = %llu AND ready_due = %llu",
                                            (unsigned long long)due_ms, (unsigned long long)due_ms)),
                     1);
}

static void released(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x");
    dur_message_row timer = timer_of("x", 2, later(&r));
    dur_round seen = sets(&r, &item, 1, &timer, 1);
    dur_turn_commit release = { .lock_token = item.lock_token,
                                .instance = "x",
                                .consume_listed = true,
                                .expected_last = DUR_NOT_COMPARED,
                                .owner = "o",
                                .seen_id = UINT32_MAX,
                                .seen_now_ms = seen.now_ms };
    (void)run(&r, &release, 1, NULL);
    assert_waits(&r, timer.due_ms);
    assert_int_equal(kept(&r), 0);
    rig_close(&r);
}

static void of_an_owner_that_leaves(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x");
    dur_message_row timer = timer_of("x", 2, later(&r));
    (void)sets(&r, &item, 1, &timer, 1);
    ASSERT_OK(&r.p->b, dur_store_owner_release(r.p->b.store, "o", &r.p->b.err));
    assert_waits(&r, timer.due_ms);
    rig_close(&r);
}

/* Whoever acquires it next is handed the timer by the store; the lane forgets its own with what it has lost. */
static void lost(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x");
    dur_message_row timer = timer_of("x", 2, later(&r));
    (void)sets(&r, &item, 1, &timer, 1);
    dur_turn_commit take = { .instance = "x", .take_over = true, .expected_last = DUR_NOT_COMPARED };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &take, 1, &b->err));
    assert_int_equal(take.fault, DUR_TURN_FINE);
    assert_waits(&r, timer.due_ms);
    pg_do(r.p->db, dur_arena_format(b->arena,
                                    "UPDATE %s.dur_queue SET due_ms = 1, order_ms = 1; UPDATE %s.dur_instances SET"
                                    " ready_at = 1, ready_due = 1",
                                    r.p->schema, r.p->schema));
    dur_round round = run(&r, NULL, 0, &fresh);
    assert_int_equal(round.lost_count, 1);
    assert_int_equal(kept(&r), 0);
    if (round.item_count == 0) round = run(&r, NULL, 0, &fresh);
    assert_int_equal(round.item_count, 1);
    assert_int_equal(round.items[0].message_count, 1);
    assert_int_equal(round.items[0].messages[0].attempt_count, 1);
    assert_int_equal(round.held_count, 0);
    rig_close(&r);
}

/* A fetch and its acknowledgement outside of the lane take what was handed out there, not what the lane keeps. */
static void acknowledged_outside(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x");
    dur_message_row timer = timer_of("x", 2, later(&r));
    (void)sets(&r, &item, 1, &timer, 1);
    dur_event_row event = event_of(3);
    dur_turn_commit turn = {
        .lock_token = item.lock_token, .instance = "x", .execution_id = 1, .events = &event, .event_count = 1
    };
    ASSERT_OK(b, dur_store_ack_orchestration_item(b->store, &turn, &b->err));
    assert_waits(&r, timer.due_ms);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(fires),
        PG_TEST(in_order),
        PG_TEST(without_the_store),
        PG_TEST(many_instances),
        PG_TEST(taken),
        PG_TEST(dropped),
        PG_TEST(set_and_dropped_at_once),
        PG_TEST(dropped_from_the_middle),
        PG_TEST(over_with_its_timers),
        PG_TEST(over_before_its_timer),
        PG_TEST(beside_a_turn_that_sends),
        PG_TEST(set_by_a_turn_that_sends),
        PG_TEST(released),
        PG_TEST(of_an_owner_that_leaves),
        PG_TEST(lost),
        PG_TEST(acknowledged_outside),
    };
    PG_MAIN(tests);
}
