/*
 * check_sessions.c: work that must go to one worker: claims, affinity, renewal, clean-up, and two locks that end apart.
 */
#include "kit_internal.h"

static void put(kit *t, uint64_t id, const char *session) {
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, id, session, NULL)));
}

static uint64_t renew(kit *t, const char *owner, uint64_t extend_ms, uint64_t idle_ms) {
    const char *owners[] = { owner };
    uint64_t renewed = 99;
    MUST(dur_store_renew_session_lock(t->p, owners, 1, extend_ms, idle_ms, &renewed, ERR));
    return renewed;
}

static uint64_t cleanup(kit *t) {
    uint64_t removed = 99;
    MUST(dur_store_cleanup_orphaned_sessions(t->p, t->lock_ms, &removed, ERR));
    return removed;
}

static void ack_work(kit *t, dur_leased_work work) {
    MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
}

#define LONG_IDLE (t->lock_ms * 100)

/* ---- routing ----------------------------------------------------------------------------------------------------- */

static void non_session_items_fetchable_by_any_worker(kit *t) {
    put(t, 1, NULL);
    put(t, 2, NULL);
    TAKE_WORK_AS(1, SESSION("A"));
    TAKE_WORK_AS(2, SESSION("B"));
}

static void session_item_claimable_when_no_session(kit *t) {
    put(t, 1, "s");
    dur_leased_work work = TAKE_WORK_AS(1, SESSION("A"));
    THAT(kit_says(work.json, "\"s\""));
    SAME(renew(t, "A", t->lock_ms, LONG_IDLE), 1); /* the claim is there */
}

static void session_affinity_same_worker(kit *t) {
    put(t, 1, "s");
    put(t, 2, "s");
    ack_work(t, TAKE_WORK_AS(1, SESSION("A")));
    TAKE_WORK_AS(2, SESSION("A"));
}

static void session_affinity_blocks_other_worker(kit *t) {
    put(t, 1, "s");
    put(t, 2, "s");
    TAKE_WORK_AS(1, SESSION("A"));
    NO_WORK_AS(SESSION("B"));
}

static void different_sessions_different_workers(kit *t) {
    put(t, 1, "s1");
    put(t, 2, "s2");
    put(t, 3, "s1");
    put(t, 4, "s2");
    TAKE_WORK_AS(1, SESSION("A"));
    TAKE_WORK_AS(2, SESSION("B"));
    TAKE_WORK_AS(4, SESSION("B"));
    TAKE_WORK_AS(3, SESSION("A"));
}

static void mixed_session_and_non_session_items(kit *t) {
    put(t, 1, "s");
    put(t, 2, NULL);
    put(t, 3, "s");
    TAKE_WORK_AS(1, SESSION("A"));
    TAKE_WORK_AS(2, SESSION("B")); /* the session is skipped, not waited for */
    NO_WORK_AS(SESSION("B"));
    TAKE_WORK_AS(3, SESSION("A"));
}

static void session_claimable_after_lock_expiry(kit *t) {
    put(t, 1, "s");
    put(t, 2, "s");
    ack_work(t, TAKE_WORK_AS(1, SESSION("A")));
    NO_WORK_AS(SESSION("B"));
    kit_expire(t);
    TAKE_WORK_AS(2, SESSION("B"));
}

static void none_session_skips_session_items(kit *t) {
    put(t, 1, "s");
    put(t, 2, NULL);
    TAKE_WORK(2);
    NO_WORK();
    TAKE_WORK_AS(1, SESSION("A"));
}

static void some_session_returns_all_items(kit *t) {
    put(t, 1, "s");
    put(t, 2, NULL);
    put(t, 3, "r");
    TAKE_WORK_AS(1, SESSION("A"));
    TAKE_WORK_AS(2, SESSION("A"));
    TAKE_WORK_AS(3, SESSION("A"));
    NO_WORK_AS(SESSION("A"));
}

static void session_items_processed_in_order(kit *t) {
    for (uint64_t id = 1; id <= 5; id++)
        put(t, id, "s");
    for (uint64_t id = 1; id <= 5; id++)
        ack_work(t, TAKE_WORK_AS(id, SESSION("A")));
}

static void non_session_items_returned_with_session_config(kit *t) {
    put(t, 1, "s");
    ack_work(t, TAKE_WORK_AS(1, SESSION("A")));
    put(t, 2, NULL);
    TAKE_WORK_AS(2, SESSION("A"));
}

static void shared_worker_id_any_caller_can_fetch_owned_session(kit *t) {
    char copy[] = "A"; /* the same id, another caller */
    put(t, 1, "s");
    put(t, 2, "s");
    TAKE_WORK_AS(1, SESSION("A"));
    TAKE_WORK_AS(2, SESSION(copy));
    put(t, 3, "s");
    NO_WORK_AS(SESSION("B"));
}

/* ---- renewal and clean-up ---------------------------------------------------------------------------------------- */

static void renew_session_lock_active(kit *t) {
    put(t, 1, "s");
    TAKE_WORK_AS(1, SESSION("A"));
    SAME(renew(t, "A", t->lock_ms, LONG_IDLE), 1);
    SAME(renew(t, "B", t->lock_ms, LONG_IDLE), 0);
    put(t, 2, "r");
    TAKE_WORK_AS(2, SESSION("B"));
    const char *both[] = { "A", "B", "C" };
    uint64_t renewed = 0;
    MUST(dur_store_renew_session_lock(t->p, both, 3, t->lock_ms, LONG_IDLE, &renewed, ERR));
    SAME(renewed, 2); /* one call for many owners */
    put(t, 3, "q");
    TAKE_WORK_AS(3, SESSION("A"));
    SAME(renew(t, "A", t->lock_ms, LONG_IDLE), 2); /* both of one owner */
}

static void renew_session_lock_skips_idle(kit *t) {
    put(t, 1, "s");
    TAKE_WORK_AS(1, SESSION("A"));
    kit_advance(t, t->lock_ms / 2);
    SAME(renew(t, "A", t->lock_ms, t->lock_ms / 5), 0);
    SAME(renew(t, "A", t->lock_ms, LONG_IDLE), 1);
    put(t, 2, "s");
    TAKE_WORK_AS(2, SESSION("A"));
    SAME(renew(t, "A", t->lock_ms, 0), 0); /* active this very millisecond: less than 0 ms ago is never */
}

static void renew_session_lock_no_sessions(kit *t) {
    SAME(renew(t, "A", t->lock_ms, LONG_IDLE), 0);
    uint64_t renewed = 7;
    MUST(dur_store_renew_session_lock(t->p, NULL, 0, t->lock_ms, LONG_IDLE, &renewed, ERR));
    SAME(renewed, 0);
}

static void renew_session_lock_after_expiry_returns_zero(kit *t) {
    put(t, 1, "s");
    TAKE_WORK_AS(1, SESSION("A"));
    kit_expire(t);
    SAME(renew(t, "A", t->lock_ms, LONG_IDLE), 0);
}

static void session_lock_renewal_extends_past_original_timeout(kit *t) {
    put(t, 1, "s");
    put(t, 2, "s");
    TAKE_WORK_AS(1, SESSION("A"));
    kit_advance(t, t->lock_ms * 6 / 10);
    SAME(renew(t, "A", t->lock_ms, LONG_IDLE), 1);
    kit_advance(t, t->lock_ms * 6 / 10);
    NO_WORK_AS(SESSION("B"));
    TAKE_WORK_AS(1, SESSION("A")); /* the item's own lock has ended, the session's has not */
}

static void cleanup_removes_expired_no_items(kit *t) {
    put(t, 1, "s");
    ack_work(t, TAKE_WORK_AS(1, SESSION("A")));
    kit_expire(t);
    SAME(cleanup(t), 1);
    SAME(cleanup(t), 0);
}

static void cleanup_keeps_sessions_with_pending_items(kit *t) {
    put(t, 1, "s");
    put(t, 2, "s");
    ack_work(t, TAKE_WORK_AS(1, SESSION("A")));
    kit_expire(t);
    SAME(cleanup(t), 0);
}

static void cleanup_keeps_active_sessions(kit *t) {
    put(t, 1, "s");
    ack_work(t, TAKE_WORK_AS(1, SESSION("A")));
    SAME(cleanup(t), 0);
    put(t, 2, "s");
    NO_WORK_AS(SESSION("B")); /* it is still A's */
}

static void cleanup_then_new_item_recreates_session(kit *t) {
    put(t, 1, "s");
    ack_work(t, TAKE_WORK_AS(1, SESSION("A")));
    kit_expire(t);
    SAME(cleanup(t), 1);
    put(t, 2, "s");
    put(t, 3, "s");
    TAKE_WORK_AS(2, SESSION("B"));
    NO_WORK_AS(SESSION("A"));
}

static void ack_updates_session_last_activity(kit *t) {
    put(t, 1, "s");
    dur_leased_work work = TAKE_WORK_AS(1, SESSION("A"));
    kit_advance(t, t->lock_ms * 3 / 10);
    ack_work(t, work);
    kit_advance(t, t->lock_ms * 3 / 10);
    SAME(renew(t, "A", t->lock_ms, t->lock_ms * 45 / 100), 1); /* idle since the ack, not since the fetch */
}

static void renew_work_item_updates_session_last_activity(kit *t) {
    put(t, 1, "s");
    dur_leased_work work = TAKE_WORK_AS(1, SESSION("A"));
    kit_advance(t, t->lock_ms * 3 / 10);
    MUST(dur_store_renew_work_item_lock(t->p, work.lock_token, t->lock_ms, ERR));
    kit_advance(t, t->lock_ms * 3 / 10);
    SAME(renew(t, "A", t->lock_ms, t->lock_ms * 45 / 100), 1);
}

/* ---- races and retries ------------------------------------------------------------------------------------------- */

static void claim(kit_thread *self) {
    dur_leased_work work = { .json = { NULL, 0 } };
    dur_work_fetch how = { .lock_ms = self->t->lock_ms,
                           .session_owner = self->index == 0 ? "A" : "B",
                           .session_lock_ms = self->t->lock_ms };
    self->code = dur_store_fetch_work_item(self->t->p, self->arena, &how, &work, &self->err);
    if (self->code == DUR_OK && work.json.data != NULL) self->text[self->count++] = work.lock_token;
}

static void concurrent_session_claim_only_one_wins(kit *t) {
    put(t, 1, "s");
    put(t, 2, "s");
    kit_thread *two = kit_threads(t, 2, claim, NULL);
    SAME(two[0].code, DUR_OK);
    SAME(two[1].code, DUR_OK);
    THAT(two[0].count + two[1].count <= 1);
    if (two[0].count > 0) NO_WORK_AS(SESSION("B"));
    if (two[1].count > 0) NO_WORK_AS(SESSION("A"));
    if (two[0].count + two[1].count == 0) { /* losing a race may look like nothing, to both of them */
        TAKE_WORK_AS(1, SESSION("A"));
        NO_WORK_AS(SESSION("B"));
    }
}

static void session_takeover_after_lock_expiry(kit *t) {
    put(t, 1, "s");
    put(t, 2, "s");
    put(t, 3, "s");
    ack_work(t, TAKE_WORK_AS(1, SESSION("A")));
    kit_expire(t);
    TAKE_WORK_AS(2, SESSION("B"));
    NO_WORK_AS(SESSION("A")); /* it is B's now */
    TAKE_WORK_AS(3, SESSION("B"));
}

static void abandoned_session_item_retryable(kit *t) {
    put(t, 1, "s");
    dur_leased_work work = TAKE_WORK_AS(1, SESSION("A"));
    MUST(dur_store_abandon_work_item(t->p, work.lock_token, 0, false, ERR));
    NO_WORK_AS(SESSION("B"));
    work = TAKE_WORK_AS(1, SESSION("A"));
    SAME(work.attempt_count, 2);
    ack_work(t, work);
    NO_WORK_AS(SESSION("A"));
}

static void abandoned_session_item_ignore_attempt(kit *t) {
    put(t, 1, "s");
    dur_leased_work work = TAKE_WORK_AS(1, SESSION("A"));
    MUST(dur_store_abandon_work_item(t->p, work.lock_token, 0, true, ERR));
    SAME(TAKE_WORK_AS(1, SESSION("A")).attempt_count, 1);
}

static void original_worker_reclaims_expired_session(kit *t) {
    put(t, 1, "s");
    put(t, 2, "s");
    put(t, 3, "s");
    ack_work(t, TAKE_WORK_AS(1, SESSION("A")));
    kit_expire(t);
    TAKE_WORK_AS(2, SESSION("A"));
    NO_WORK_AS(SESSION("B"));
    SAME(renew(t, "A", t->lock_ms, LONG_IDLE), 1);
}

#define SHORT_WORK .lock_ms = t->lock_ms / 4
#define SHORT_SESSION(owner_) .session_owner = (owner_), .session_lock_ms = t->lock_ms / 4

static void activity_lock_expires_session_lock_valid_same_worker_refetches(kit *t) {
    put(t, 1, "s");
    TAKE_WORK_AS(1, SHORT_WORK, SESSION("A"));
    kit_advance(t, t->lock_ms / 2);
    NO_WORK_AS(SESSION("B")); /* redelivered to the owner only */
    SAME(TAKE_WORK_AS(1, SESSION("A")).attempt_count, 2);
}

static void session_lock_expires_new_owner_gets_redelivery(kit *t) {
    put(t, 1, "s");
    put(t, 2, "s");
    TAKE_WORK_AS(1, .lock_ms = t->lock_ms / 2, SHORT_SESSION("A"));
    kit_advance(t, t->lock_ms * 3 / 8);
    TAKE_WORK_AS(2, SESSION("B")); /* the session is B's; item 1 is still locked */
    kit_advance(t, t->lock_ms * 2 / 8);
    NO_WORK_AS(SESSION("A"));
    SAME(TAKE_WORK_AS(1, SESSION("B")).attempt_count, 2);
}

static void session_lock_expires_same_worker_reacquires(kit *t) {
    put(t, 1, "s");
    put(t, 2, "s");
    TAKE_WORK_AS(1, SHORT_SESSION("A"));
    kit_advance(t, t->lock_ms / 2);
    TAKE_WORK_AS(2, SESSION("A"));
    put(t, 3, "s");
    NO_WORK_AS(SESSION("B"));
}

static void both_locks_expire_different_worker_claims(kit *t) {
    put(t, 1, "s");
    TAKE_WORK_AS(1, SHORT_WORK, SHORT_SESSION("A"));
    kit_advance(t, t->lock_ms / 2);
    SAME(TAKE_WORK_AS(1, SESSION("B")).attempt_count, 2);
    NO_WORK_AS(SESSION("A"));
}

static void session_lock_expires_activity_lock_valid_ack_succeeds(kit *t) {
    put(t, 1, "s");
    dur_leased_work work = TAKE_WORK_AS(1, SHORT_SESSION("A"));
    kit_advance(t, t->lock_ms / 2);
    put(t, 2, "s");
    TAKE_WORK_AS(2, SESSION("B"));
    dur_message_row done = kit_finished(t, "a", 1, 1, "r");
    MUST(dur_store_ack_work_item(t->p, work.lock_token, &done, ERR));
}

const kit_check kit_sessions[] = {
    CHECK(non_session_items_fetchable_by_any_worker),
    CHECK(session_item_claimable_when_no_session),
    CHECK(session_affinity_same_worker),
    CHECK(session_affinity_blocks_other_worker),
    CHECK(different_sessions_different_workers),
    CHECK(mixed_session_and_non_session_items),
    CHECK(session_claimable_after_lock_expiry),
    CHECK(none_session_skips_session_items),
    CHECK(some_session_returns_all_items),
    CHECK(session_items_processed_in_order),
    CHECK(non_session_items_returned_with_session_config),
    CHECK(shared_worker_id_any_caller_can_fetch_owned_session),
    CHECK(renew_session_lock_active),
    CHECK(renew_session_lock_skips_idle),
    CHECK(renew_session_lock_no_sessions),
    CHECK(renew_session_lock_after_expiry_returns_zero),
    CHECK(session_lock_renewal_extends_past_original_timeout),
    CHECK(cleanup_removes_expired_no_items),
    CHECK(cleanup_keeps_sessions_with_pending_items),
    CHECK(cleanup_keeps_active_sessions),
    CHECK(cleanup_then_new_item_recreates_session),
    CHECK(ack_updates_session_last_activity),
    CHECK(renew_work_item_updates_session_last_activity),
    CHECK(concurrent_session_claim_only_one_wins),
    CHECK(session_takeover_after_lock_expiry),
    CHECK(abandoned_session_item_retryable),
    CHECK(abandoned_session_item_ignore_attempt),
    CHECK(original_worker_reclaims_expired_session),
    CHECK(activity_lock_expires_session_lock_valid_same_worker_refetches),
    CHECK(session_lock_expires_new_owner_gets_redelivery),
    CHECK(session_lock_expires_same_worker_reacquires),
    CHECK(both_locks_expire_different_worker_claims),
    CHECK(session_lock_expires_activity_lock_valid_ack_succeeds),
    CHECKS_END,
};
