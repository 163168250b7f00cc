/*
 * check_atomicity.c: an ack happens as a whole or not at all.
 */
#include "kit_internal.h"

static void atomicity_failure_rollback(kit *t) {
    dur_event_row *before, *after;
    kit_create(t, "a");
    THAT(kit_history(t, "a", 1, &before) == 1);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    REFUSED(DUR_ECONFLICT, NULL,
            ACK(&item, EVENTS(ev_scheduled(2), ev_set(3, "k", "v"), ev_status(4, "s"), ev_started(1)),
                WORK(kit_activity(t, "a", 2)), MESSAGES(kit_start(t, "b"), kit_raised(t, "a", "x", "")),
                ENDS(COMPLETED, "out")));
    THAT(kit_history(t, "a", 1, &after) == 1);
    THAT(kit_equal_text(before[0].json, after[0].json));
    NO_WORK();
    NOTHING(); /* a is still locked, and b was never started */
    TEXT(kit_value(t, "a", "k"), NULL);
    bool changed = true;
    const char *status = NULL;
    uint64_t version = 0;
    MUST(dur_store_get_custom_status(t->p, t->arena, "a", 0, &changed, &status, &version, ERR));
    THAT(!changed);
    if (dur_store_has(t->p, "get_instance")) SAME(kit_instance(t, "a").status, DUR_STATUS_RUNNING);
    MUST(ACK(&item, EVENTS(ev_scheduled(2)))); /* the token is as good as before */
    NOTHING();                                 /* and its message was still there to be consumed */
    SAME(kit_history(t, "a", 1, NULL), 2);
}

static void multi_operation_atomic_ack(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(
        ACK(&item, EVENTS(ev_started(1), ev_scheduled(2), ev_scheduled(3), ev_scheduled(4), ev_set(5, "k", "v")),
            WORK(kit_activity(t, "a", 2), kit_activity(t, "a", 3), kit_activity(t, "a", 4)),
            MESSAGES(kit_timer(t, "a", 1, 4, 1234567890), kit_raised(t, "a", "one", ""), kit_raised(t, "a", "two", "")),
            NAMED));
    dur_event_row *rows;
    SAME(kit_history(t, "a", 1, &rows), 5);
    for (uint64_t i = 0; i < 5; i++)
        SAME(rows[i].event_id, i + 1);
    TAKE_WORK(2);
    TAKE_WORK(3);
    TAKE_WORK(4);
    NO_WORK();
    item = TAKE("a");
    SAME(item.message_count, 3);
    SAME(item.history_count, 5);
    SAME(item.last_event_id, 5);
    THAT(kit_says(item.messages[0].json, "TimerFired")); /* due long ago */
    THAT(kit_says(item.messages[1].json, "one") && kit_says(item.messages[2].json, "two"));
    TEXT(kit_value(t, "a", "k"), "v");
}

static void lock_released_only_on_successful_ack(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    NOTHING();
    REFUSED(DUR_ELEASE, "Invalid lock token", ACK(&item, .token = "no-such-token", EVENTS(ev_started(1)), NAMED));
    NOTHING(); /* still locked */
    SAME(kit_history(t, "a", 0, NULL), 0);
    kit_expire(t);
    dur_orchestration_item again = TAKE("a");
    MUST(ACK(&again, EVENTS(ev_started(1)), NAMED));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    TAKE("a"); /* at once: the good ack freed it */
}

static void ack_once(kit_thread *self) {
    const dur_turn_commit *model = self->data;
    dur_turn_commit mine = *model;
    dur_turn_work work = model->worker_items[0]; /* answers stand in it */
    mine.worker_items = &work;
    self->code = dur_store_ack_orchestration_item(self->t->p, &mine, &self->err);
}

static void concurrent_ack_prevention(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_started(1)), WORK(kit_activity(t, "a", 2)), NAMED);
    kit_thread *two = kit_threads(t, 2, ack_once, &commit);
    SAME((two[0].code == DUR_OK) + (two[1].code == DUR_OK), 1);
    SAME(two[0].code == DUR_OK ? two[1].code : two[0].code, DUR_ELEASE);
    SAME(kit_history(t, "a", 1, NULL), 1);
    TAKE_WORK(2);
    NO_WORK();
}

const kit_check kit_atomicity[] = {
    CHECK(atomicity_failure_rollback),
    CHECK(multi_operation_atomic_ack),
    CHECK(lock_released_only_on_successful_ack),
    CHECK(concurrent_ack_prevention),
    CHECKS_END,
};
