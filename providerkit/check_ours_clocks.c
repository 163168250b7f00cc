/*
 * check_ours_clocks.c: our own: what time does, and what a clock that jumps does not.
 */
#include "kit_internal.h"

static void needs_jumps(kit *t) {
    if (t->factory->jump == NULL) kit_skip(t, "the factory cannot make the clock jump");
}
static void jump(kit *t, int64_t ms) {
    t->factory->jump(t->factory->data, &t->store, ms);
}
#define HOUR 3600000

/* Whatever it comes by, a message without a delay is there. */
static void ours_jumping_clock_hides_no_message(kit *t) {
    needs_jumps(t);
    kit_create(t, "a");
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dur_leased_work work = kit_fetch_work(t, HOW(.lock_ms = 100 * t->lock_ms));
    dur_message_row done = kit_finished(t, "a", 1, 1, "r"), start = kit_start(t, "b"),
                    go = kit_raised(t, "a", "go", "");
    jump(t, HOUR);
    MUST(dur_store_ack_work_item(t->p, work.lock_token, &done, ERR)); /* a completion */
    if (dur_store_has(t->p, "enqueue_existing")) MUST(dur_store_enqueue_existing(t->p, &go, 0, ERR));
    jump(t, -2 * HOUR);
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, dur_store_has(t->p, "enqueue_existing") ? 2 : 1);
    jump(t, HOUR);
    MUST(ACK(&item, EVENTS(ev_external(2, "go")), WORK(kit_activity(t, "a", 3)), MESSAGES(go, kit_start(t, "c"))));
    bool existed = false;
    if (dur_store_has(t->p, "enqueue_start"))
        MUST(dur_store_enqueue_start(t->p, &start, DUR_EXISTS_FAIL, 0, &existed, ERR));
    else
        MUST(kit_put(t, start));
    jump(t, -2 * HOUR);
    for (int i = 0; i < 3; i++) /* a, b and c: messages of a turn, and starts */
        THAT(kit_fetch(t).instance != NULL);
    TAKE_WORK(3);
}

static void ours_jumping_clock_keeps_the_order_of_work(kit *t) {
    needs_jumps(t);
    static const int64_t jumps[] = { -HOUR, 2 * HOUR, -1, -2 * HOUR, HOUR + 1 };
    for (uint64_t i = 1; i <= 10; i++) {
        MUST(kit_put_work(t, kit_activity(t, "a", i)));
        jump(t, jumps[i % 5]);
    }
    for (uint64_t i = 1; i <= 10; i++) {
        dur_leased_work work = kit_fetch_work(t, HOW(.lock_ms = 100 * t->lock_ms));
        SAME(work.ref.activity_id, i);
    }
}

static void ours_jumping_clock_ends_no_session(kit *t) {
    needs_jumps(t);
    static const char *const nodes[] = { "A" };
    uint64_t count = 9;
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2, "s", NULL)));
    dur_leased_work work =
        kit_fetch_work(t, HOW(.lock_ms = 100 * t->lock_ms, .session_owner = "A", .session_lock_ms = 100 * t->lock_ms));
    SAME(work.ref.activity_id, 1);
    jump(t, HOUR);
    NO_WORK_AS(SESSION("B"));
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, 100 * t->lock_ms, 100 * t->lock_ms, &count, ERR));
    SAME(count, 1); /* neither has it been idle for an hour */
    jump(t, -2 * HOUR);
    NO_WORK_AS(SESSION("B"));
    MUST(dur_store_cleanup_orphaned_sessions(t->p, t->lock_ms, &count, ERR));
    SAME(count, 0);
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, 100 * t->lock_ms, 100 * t->lock_ms, &count, ERR));
    SAME(count, 1);
    TAKE_WORK_AS(2, SESSION("A"));
}

static void ours_jumping_clock_ends_no_owner(kit *t) {
    needs_jumps(t);
    NEEDS("owner_register", "owner_beat", "fetch_turns");
    dur_owner_report report;
    kit_owner(t, "me");
    kit_owner(t, "peer");
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = ACQUIRE("me", "a");
    for (int i = 0; i < 2; i++) {
        jump(t, i == 0 ? HOUR : -2 * HOUR);
        MUST(dur_store_owner_beat(t->p, "peer", &report, ERR));
        SAME(report.taken_over, 0);
        SAME(report.peers, 1);
        MUST(dur_store_owner_beat(t->p, "me", &report, ERR));
        THAT(report.still_ours);
    }
    NOTHING();
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
}

/* A timed lock that was taken before the clock was set back ends all the same. */
static void ours_jumping_clock_makes_no_lock_longer(kit *t) {
    needs_jumps(t);
    MUST(kit_put(t, kit_start(t, "a")));
    TAKE("a");
    MUST(kit_put_work(t, kit_activity(t, "b", 1)));
    TAKE_WORK(1);
    jump(t, -HOUR);
    kit_expire(t);
    TAKE("a");
    TAKE_WORK(1);
}

static void ours_timers_follow_the_stores_time(kit *t) {
    needs_jumps(t);
    if (t->p->methods->own_clock) kit_skip(t, "the factory cannot make its clock jump");
    kit_create(t, "a");
    MUST(kit_put(t, kit_timer(t, "a", 1, 2, dur_store_now_ms(t->p) + HOUR)));
    NOTHING();
    jump(t, HOUR + 1);
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 1);
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, false, ERR));
    jump(t, -2 * HOUR);
    NOTHING(); /* it is not due any more */
}

/* A round says when it was, in the time that everything else goes by. */
static void ours_round_tells_the_stores_time(kit *t) {
    NEEDS("lane_open", "lane_round");
    bool owners = dur_store_has(t->p, "owner_register");
    if (owners) kit_owner(t, "me");
    dur_lane *lane = kit_lane(t, owners ? "me" : NULL);
    for (int i = 0; i < 2; i++) {
        dur_round round = { .turn_count = 0 };
        uint64_t before = dur_store_now_ms(t->p);
        kit_round(t, lane, &round);
        THAT(round.now_ms + 1000 >= before && round.now_ms <= dur_store_now_ms(t->p) + 1000);
        if (t->factory->jump != NULL) jump(t, 3 * HOUR);
    }
}

/* ---- renewals ---------------------------------------------------------------------------------------------------- */

static void ours_renewal_of_a_lock_counts_from_now(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(dur_store_renew_orchestration_item_lock(t->p, item.lock_token, t->lock_ms, ERR)); /* of a whole one */
    kit_advance(t, t->lock_ms / 2);
    NOTHING();
    kit_advance(t, t->lock_ms / 2 + 100);
    item = TAKE("a");
    MUST(dur_store_renew_orchestration_item_lock(t->p, item.lock_token, t->lock_ms / 2, ERR)); /* and a shorter one */
    kit_advance(t, t->lock_ms / 2 + 100);
    TAKE("a");
}

static void ours_renewal_of_work_counts_from_now(kit *t) {
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dur_leased_work work = TAKE_WORK(1);
    MUST(dur_store_renew_work_item_lock(t->p, work.lock_token, t->lock_ms, ERR));
    kit_advance(t, t->lock_ms / 2);
    NO_WORK();
    kit_advance(t, t->lock_ms / 2 + 100);
    work = TAKE_WORK(1);
    MUST(dur_store_renew_work_item_lock(t->p, work.lock_token, t->lock_ms / 2, ERR));
    kit_advance(t, t->lock_ms / 2 + 100);
    work = TAKE_WORK(1);
    if (!dur_store_has(t->p, "check_works")) return;
    dur_worker_claim claim = { .ref = work.ref, .lock_token = work.lock_token };
    bool lost = true;
    MUST(dur_store_check_works(t->p, &claim, 1, t->lock_ms, &lost, ERR));
    kit_expire(t);
    TAKE_WORK(1);
}

static void ours_renewal_of_a_session_counts_from_now(kit *t) {
    static const char *const nodes[] = { "A" };
    uint64_t renewed = 0;
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2, "s", NULL)));
    TAKE_WORK_AS(1, .lock_ms = 100 * t->lock_ms, SESSION("A"));
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, t->lock_ms, 100 * t->lock_ms, &renewed, ERR));
    SAME(renewed, 1);
    kit_advance(t, t->lock_ms / 2);
    NO_WORK_AS(SESSION("B"));
    kit_advance(t, t->lock_ms / 2 + 100);
    TAKE_WORK_AS(2, SESSION("B"));
}

/* A lock ends with its time to the millisecond where time is ours: not with a tick of its own. */
static void ours_locks_and_delays_end_on_time(kit *t) {
    if (t->factory->advance == NULL) kit_skip(t, "time is not the kit's");
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    MUST(kit_put_work(t, kit_activity(t, "b", 1)));
    dur_orchestration_item item = TAKE("a");
    dur_leased_work work = TAKE_WORK(1);
    kit_advance(t, t->lock_ms - 1);
    NOTHING();
    NO_WORK();
    kit_advance(t, 1);
    item = TAKE("a");
    work = TAKE_WORK(1);
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 700, false, ERR));
    MUST(dur_store_abandon_work_item(t->p, work.lock_token, 700, false, ERR));
    kit_advance(t, 699);
    NOTHING();
    NO_WORK();
    kit_advance(t, 1);
    TAKE("a");
    TAKE_WORK(1);
}

const kit_check kit_ours_clocks[] = {
    CHECK(ours_jumping_clock_hides_no_message),     CHECK(ours_jumping_clock_keeps_the_order_of_work),
    CHECK(ours_jumping_clock_ends_no_session),      CHECK(ours_jumping_clock_ends_no_owner),
    CHECK(ours_jumping_clock_makes_no_lock_longer), CHECK(ours_timers_follow_the_stores_time),
    CHECK(ours_round_tells_the_stores_time),        CHECK(ours_renewal_of_a_lock_counts_from_now),
    CHECK(ours_renewal_of_work_counts_from_now),    CHECK(ours_renewal_of_a_session_counts_from_now),
    CHECK(ours_locks_and_delays_end_on_time),       CHECKS_END,
};
