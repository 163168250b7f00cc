/*
 * check_cancellation.c: worker rows do not depend on the state of their orchestration; cancelling deletes them.
 */
#include "kit_internal.h"

/* An instance whose first turn scheduled activity 2, and which then ended so. */
static void with_activity(kit *t, dur_status end) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1), ev_scheduled(2)), WORK(kit_activity(t, "a", 2)), NAMED));
    if (end == DUR_STATUS_COMPLETED) STEP_END("a", 1, COMPLETED, "out", ev_done(3, "out"));
    if (end == DUR_STATUS_FAILED) STEP_END("a", 1, FAILED, "why", ev_failed(3, "why"));
    if (end == DUR_STATUS_CONTINUED_AS_NEW) STEP_END("a", 1, CONTINUED_AS_NEW, "next", ev_continued(3, "next"));
}

/* Work that comes with the very turn that ends its execution is there like any other. */
static void with_last_turn(kit *t, kit_turn turn) {
    MUST(kit_put(t, kit_start(t, "b")));
    dur_orchestration_item item = TAKE("b");
    turn.item = &item;
    turn.work = (const dur_message_row[]){ kit_activity(t, "b", 7) };
    turn.work_count = 1;
    MUST(kit_ack(t, &turn));
    TAKE_WORK(7);
    NO_WORK();
}
#define LAST_TURN(...) with_last_turn(t, (kit_turn){ __VA_ARGS__ })

static void fetch_returns_running_state_for_active_orchestration(kit *t) {
    with_activity(t, DUR_STATUS_RUNNING);
    dur_leased_work work = TAKE_WORK(2);
    TEXT(work.ref.instance, "a");
    SAME(work.ref.execution_id, 1);
    THAT(kit_says(work.json, "ActivityExecute"));
}

static void fetch_returns_terminal_state_when_orchestration_completed(kit *t) {
    with_activity(t, DUR_STATUS_COMPLETED);
    TAKE_WORK(2);
    LAST_TURN(EVENTS(ev_started(1), ev_done(2, "out")), ENDS(COMPLETED, "out"));
}

static void fetch_returns_terminal_state_when_orchestration_failed(kit *t) {
    with_activity(t, DUR_STATUS_FAILED);
    TAKE_WORK(2);
    LAST_TURN(EVENTS(ev_started(1), ev_failed(2, "why")), ENDS(FAILED, "why"));
}

static void fetch_returns_terminal_state_when_orchestration_continued_as_new(kit *t) {
    with_activity(t, DUR_STATUS_CONTINUED_AS_NEW);
    TAKE_WORK(2);
    LAST_TURN(EVENTS(ev_started(1), ev_continued(2, "next")), ENDS(CONTINUED_AS_NEW, "next"));
}

static void fetch_returns_missing_state_when_instance_deleted(kit *t) {
    MUST(kit_put_work(t, kit_activity(t, "nobody", 2)));
    dur_leased_work work = TAKE_WORK(2);
    TEXT(work.ref.instance, "nobody");
}

static void renew_returns_running_when_orchestration_active(kit *t) {
    with_activity(t, DUR_STATUS_RUNNING);
    dur_leased_work work = TAKE_WORK(2);
    MUST(dur_store_renew_work_item_lock(t->p, work.lock_token, t->lock_ms, ERR));
}

static void renew_returns_terminal_when_orchestration_completed(kit *t) {
    with_activity(t, DUR_STATUS_RUNNING);
    dur_leased_work work = TAKE_WORK(2);
    STEP_END("a", 1, COMPLETED, "out", ev_done(3, "out"));
    MUST(dur_store_renew_work_item_lock(t->p, work.lock_token, t->lock_ms, ERR));
}

static void renew_returns_missing_when_instance_deleted(kit *t) {
    MUST(kit_put_work(t, kit_activity(t, "nobody", 2)));
    dur_leased_work work = TAKE_WORK(2);
    MUST(dur_store_renew_work_item_lock(t->p, work.lock_token, t->lock_ms, ERR));
}

static void ack_work_item_none_deletes_without_enqueue(kit *t) {
    with_activity(t, DUR_STATUS_RUNNING);
    dur_leased_work work = TAKE_WORK(2);
    MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
    NOTHING();
    NO_WORK();
    kit_expire(t);
    NO_WORK();
}

static void cancelled_activities_deleted_from_worker_queue(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1), ev_scheduled(2), ev_scheduled(3), ev_scheduled(4)),
             WORK(kit_activity(t, "a", 2), kit_activity(t, "a", 3), kit_activity(t, "a", 4)), NAMED));
    /* the same activity id in another execution and in another instance is another activity */
    MUST(kit_put_work(t, kit_activity_in(t, "a", 2, 2, NULL, NULL)));
    MUST(kit_put_work(t, kit_activity(t, "b", 3)));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_external(5, "go")), CANCELLED(REF("a", 1, 2), REF("a", 1, 3))));
    SAME(TAKE_WORK(4).ref.execution_id, 1);
    SAME(TAKE_WORK(2).ref.execution_id, 2);
    TEXT(TAKE_WORK(3).ref.instance, "b");
    NO_WORK();
}

/* A locked worker row, cancelled by a turn. */
static dur_leased_work cancelled_under_lock(kit *t) {
    with_activity(t, DUR_STATUS_RUNNING);
    dur_leased_work work = TAKE_WORK(2);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_external(3, "go")), CANCELLED(REF("a", 1, 2))));
    return work;
}

static void ack_work_item_fails_when_entry_deleted(kit *t) {
    dur_leased_work work = cancelled_under_lock(t);
    dur_message_row done = kit_finished(t, "a", 1, 2, "late");
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, work.lock_token, &done, ERR));
    NOTHING(); /* the completion did not get through */
}

static void renew_fails_when_entry_deleted(kit *t) {
    dur_leased_work work = cancelled_under_lock(t);
    REFUSED(DUR_ELEASE, NULL, dur_store_renew_work_item_lock(t->p, work.lock_token, t->lock_ms, ERR));
    MUST(kit_put_work(t, kit_activity(t, "a", 3)));
    work = TAKE_WORK(3);
    MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR)); /* deleted by its own ack */
    REFUSED(DUR_ELEASE, NULL, dur_store_renew_work_item_lock(t->p, work.lock_token, t->lock_ms, ERR));
}

static void cancelling_nonexistent_activities_is_idempotent(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1), ev_scheduled(2)), WORK(kit_activity(t, "a", 2)), NAMED,
             CANCELLED(REF("a", 1, 99), REF("nobody", 7, 1))));
    SAME(kit_history(t, "a", 1, NULL), 2);
    TAKE_WORK(2);
}

static void batch_cancellation_deletes_multiple_activities(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)),
             WORK(kit_activity(t, "a", 2), kit_activity(t, "a", 3), kit_activity(t, "a", 4), kit_activity(t, "a", 5),
                  kit_activity(t, "a", 6)),
             NAMED));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_external(7, "go")),
             CANCELLED(REF("a", 1, 2), REF("a", 1, 3), REF("a", 1, 4), REF("a", 1, 5), REF("a", 1, 6))));
    NO_WORK();
    kit_expire(t);
    NO_WORK();
}

static void same_activity_in_worker_items_and_cancelled_is_noop(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1), ev_scheduled(2), ev_scheduled(3)),
             WORK(kit_activity(t, "a", 2), kit_activity(t, "a", 3)), CANCELLED(REF("a", 1, 2)), NAMED));
    TAKE_WORK(3);
    NO_WORK();
}

static void orphan_activity_after_instance_force_deletion(kit *t) {
    NEEDS("delete_instances", "get_instance", "list_instances");
    with_activity(t, DUR_STATUS_RUNNING);
    MUST(kit_delete(t, "a", true, NULL));
    dur_leased_work work = kit_fetch_work(t, HOW(.max = 1)); /* may or may not be there */
    if (work.json.data != NULL) {
        dur_message_row done = kit_finished(t, "a", 1, 2, "late");
        MUST(dur_store_ack_work_item(t->p, work.lock_token, &done, ERR));
    }
    THAT(!kit_exists(t, "a"));
    NO_WORK();
}

const kit_check kit_cancellation[] = {
    CHECK(fetch_returns_running_state_for_active_orchestration),
    CHECK(fetch_returns_terminal_state_when_orchestration_completed),
    CHECK(fetch_returns_terminal_state_when_orchestration_failed),
    CHECK(fetch_returns_terminal_state_when_orchestration_continued_as_new),
    CHECK(fetch_returns_missing_state_when_instance_deleted),
    CHECK(renew_returns_running_when_orchestration_active),
    CHECK(renew_returns_terminal_when_orchestration_completed),
    CHECK(renew_returns_missing_when_instance_deleted),
    CHECK(ack_work_item_none_deletes_without_enqueue),
    CHECK(cancelled_activities_deleted_from_worker_queue),
    CHECK(ack_work_item_fails_when_entry_deleted),
    CHECK(renew_fails_when_entry_deleted),
    CHECK(cancelling_nonexistent_activities_is_idempotent),
    CHECK(batch_cancellation_deletes_multiple_activities),
    CHECK(same_activity_in_worker_items_and_cancelled_is_noop),
    CHECK(orphan_activity_after_instance_force_deletion),
    CHECKS_END,
};
