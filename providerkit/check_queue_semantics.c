/*
 * check_queue_semantics.c: the two queues: order, peek-lock, delays, and messages for nobody.
 */
#include "kit_internal.h"

static void worker_queue_fifo_ordering(kit *t) {
    for (uint64_t id = 1; id <= 6; id++)
        MUST(kit_put_work(t, kit_activity(t, id % 2 ? "a" : "b", 10 - id)));
    for (uint64_t id = 1; id <= 6; id++)
        TAKE_WORK(10 - id);
    NO_WORK();
}

static void worker_peek_lock_semantics(kit *t) {
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dur_leased_work work = TAKE_WORK(1);
    NO_WORK(); /* hidden */
    kit_expire(t);
    work = TAKE_WORK(1); /* not removed */
    MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
    kit_expire(t);
    NO_WORK();
}

static void worker_ack_atomicity(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1), ev_scheduled(2)), WORK(kit_activity(t, "a", 2)), NAMED));
    dur_leased_work work = TAKE_WORK(2);
    dur_message_row done = kit_finished(t, "a", 1, 2, "the result");
    MUST(dur_store_ack_work_item(t->p, work.lock_token, &done, ERR));
    item = TAKE("a");
    SAME(item.message_count, 1);
    THAT(kit_equal_text(item.messages[0].json, done.json)); /* verbatim */
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, work.lock_token, &done, ERR));
    MUST(ACK(&item, EVENTS(ev_activity_done(3, 2))));
    NOTHING(); /* the second ack put nothing in */
    kit_expire(t);
    NO_WORK();
}

static void timer_delayed_visibility(kit *t) {
    kit_create(t, "a");
    uint64_t due = dur_store_now_ms(t->p) + 400;
    MUST(kit_put(t, kit_timer(t, "a", 1, 2, due)));
    NOTHING();
    kit_advance(t, 200);
    NOTHING();
    kit_advance(t, 250);
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 1);
    SAME(item.messages[0].due_ms, due);
    THAT(kit_says(item.messages[0].json, "TimerFired"));
    /* the same through an ack */
    MUST(ACK(&item, EVENTS(ev_external(2, "x")), MESSAGES(kit_timer(t, "a", 1, 3, dur_store_now_ms(t->p) + 400))));
    NOTHING();
    kit_advance(t, 450);
    item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_external(3, "x"))));
    /* and by a delay, whatever the timer's own time is */
    dur_message_row late = kit_timer(t, "a", 1, 4, 0);
    MUST(dur_store_enqueue_for_orchestrator(t->p, &late, 400, ERR));
    NOTHING();
    kit_advance(t, 450);
    SAME(TAKE("a").message_count, 1);
}

static void lost_lock_token_handling(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    TAKE("a"); /* and both tokens are forgotten */
    TAKE_WORK(1);
    NOTHING();
    NO_WORK();
    kit_expire(t);
    SAME(TAKE("a").message_count, 1);
    TAKE_WORK(1);
}

static void worker_item_immediate_visibility(kit *t) {
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    TAKE_WORK(1);
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), WORK(kit_activity(t, "a", 2)), NAMED));
    TAKE_WORK(2);
}

static void worker_delayed_visibility_skips_future_items(kit *t) {
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    MUST(kit_put_work(t, kit_activity(t, "a", 2)));
    dur_leased_work first = TAKE_WORK(1);
    MUST(dur_store_abandon_work_item(t->p, first.lock_token, 400, false, ERR));
    TAKE_WORK(2);
    NO_WORK();
    kit_advance(t, 450);
    TAKE_WORK(1);
}

static void orphan_queue_messages_dropped(kit *t) {
    MUST(kit_put(t, kit_queued(t, "nobody", "q", "lost")));
    NOTHING();
    MUST(kit_put(t, kit_start(t, "nobody")));
    dur_orchestration_item item = TAKE("nobody");
    SAME(item.message_count, 1); /* only the start */
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
    MUST(kit_put(t, kit_queued(t, "nobody", "q", "kept"))); /* now it exists */
    item = TAKE("nobody");
    SAME(item.message_count, 1);
    THAT(kit_says(item.messages[0].json, "kept"));
    TEXT(item.messages[0].queue, "q");
}

const kit_check kit_queue_semantics[] = {
    CHECK(worker_queue_fifo_ordering),
    CHECK(worker_peek_lock_semantics),
    CHECK(worker_ack_atomicity),
    CHECK(timer_delayed_visibility),
    CHECK(lost_lock_token_handling),
    CHECK(worker_item_immediate_visibility),
    CHECK(worker_delayed_visibility_skips_future_items),
    CHECK(orphan_queue_messages_dropped),
    CHECKS_END,
};
