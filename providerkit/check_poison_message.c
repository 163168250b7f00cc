/*
 * check_poison_message.c: attempts are counted per message, durably, by the fetch.
 */
#include "kit_internal.h"

static dur_orchestration_item attempt(kit *t, uint32_t count) {
    dur_orchestration_item item = TAKE("a");
    SAME(item.attempt_count, count);
    SAME(kit_attempts(t, &item), count);
    return item;
}

static void orchestration_attempt_count_starts_at_one(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    SAME(attempt(t, 1).messages[0].attempt_count, 1);
}

static void orchestration_attempt_count_increments_on_refetch(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    for (uint32_t i = 1; i <= 3; i++)
        MUST(dur_store_abandon_orchestration_item(t->p, attempt(t, i).lock_token, 0, false, ERR));
    dur_orchestration_item item = attempt(t, 4);
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    attempt(t, 1); /* a new message counts anew */
}

static void worker_attempt_count_starts_at_one(kit *t) {
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    SAME(TAKE_WORK(1).attempt_count, 1);
}

static void worker_attempt_count_increments_on_lock_expiry(kit *t) {
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    for (uint32_t i = 1; i <= 3; i++) {
        SAME(TAKE_WORK(1).attempt_count, i);
        kit_expire(t);
    }
}

static void attempt_count_is_per_message(kit *t) {
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    SAME(TAKE_WORK(1).attempt_count, 1);
    kit_expire(t);
    MUST(kit_put_work(t, kit_activity(t, "a", 2)));
    SAME(TAKE_WORK(1).attempt_count, 2);
    SAME(TAKE_WORK(2).attempt_count, 1);
}

static void abandon_work_item_ignore_attempt_decrements(kit *t) {
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dur_leased_work work = TAKE_WORK(1);
    MUST(dur_store_abandon_work_item(t->p, work.lock_token, 0, false, ERR));
    work = TAKE_WORK(1);
    SAME(work.attempt_count, 2);
    MUST(dur_store_abandon_work_item(t->p, work.lock_token, 0, true, ERR));
    SAME(TAKE_WORK(1).attempt_count, 2);
}

static void abandon_orchestration_item_ignore_attempt_decrements(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(dur_store_abandon_orchestration_item(t->p, attempt(t, 1).lock_token, 0, false, ERR));
    MUST(dur_store_abandon_orchestration_item(t->p, attempt(t, 2).lock_token, 0, true, ERR));
    attempt(t, 2);
}

static void ignore_attempt_never_goes_negative(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    for (int i = 0; i < 3; i++) {
        MUST(dur_store_abandon_orchestration_item(t->p, attempt(t, 1).lock_token, 0, true, ERR));
        dur_leased_work work = TAKE_WORK(1);
        SAME(work.attempt_count, 1);
        MUST(dur_store_abandon_work_item(t->p, work.lock_token, 0, true, ERR));
    }
}

static void max_attempt_count_across_message_batch(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(dur_store_abandon_orchestration_item(t->p, attempt(t, 1).lock_token, 0, false, ERR));
    MUST(dur_store_abandon_orchestration_item(t->p, attempt(t, 2).lock_token, 0, false, ERR));
    MUST(kit_put(t, kit_raised(t, "a", "young", "")));
    dur_orchestration_item item = attempt(t, 3);
    SAME(item.message_count, 2);
    SAME(item.messages[0].attempt_count, 3);
    SAME(item.messages[1].attempt_count, 1);
}

const kit_check kit_poison_message[] = {
    CHECK(orchestration_attempt_count_starts_at_one),
    CHECK(orchestration_attempt_count_increments_on_refetch),
    CHECK(worker_attempt_count_starts_at_one),
    CHECK(worker_attempt_count_increments_on_lock_expiry),
    CHECK(attempt_count_is_per_message),
    CHECK(abandon_work_item_ignore_attempt_decrements),
    CHECK(abandon_orchestration_item_ignore_attempt_decrements),
    CHECK(ignore_attempt_never_goes_negative),
    CHECK(max_attempt_count_across_message_batch),
    CHECKS_END,
};
