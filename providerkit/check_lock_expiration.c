/*
 * check_lock_expiration.c: timed locks end by themselves, can be given back, and can be made longer while they hold.
 */
#include "kit_internal.h"

static void lock_expires_after_timeout(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item first = TAKE("a");
    kit_advance(t, t->lock_ms / 2);
    NOTHING();
    kit_expire(t);
    dur_orchestration_item second = TAKE("a");
    THAT(strcmp(first.lock_token, second.lock_token) != 0);
    SAME(second.message_count, 1);
    SAME(second.attempt_count, 2);
    REFUSED(DUR_ELEASE, "Invalid lock token", ACK(&first, EVENTS(ev_started(1)), NAMED));
    MUST(ACK(&second, EVENTS(ev_started(1)), NAMED));
}

static void abandon_releases_lock_immediately(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    NOTHING();
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, false, ERR));
    dur_orchestration_item again = TAKE("a");
    SAME(again.message_count, 1);
    REFUSED(DUR_ELEASE, "Invalid lock token", ACK(&item, EVENTS(ev_started(1)), NAMED));
}

static void lock_renewal_on_ack(kit *t) {
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    kit_advance(t, t->lock_ms / 2);
    MUST(dur_store_renew_orchestration_item_lock(t->p, item.lock_token, t->lock_ms, ERR));
    kit_advance(t, t->lock_ms * 3 / 4); /* beyond the first end */
    NOTHING();
    MUST(ACK(&item, EVENTS(ev_external(2, "go")), MESSAGES(kit_raised(t, "a", "go", ""))));
    item = TAKE("a");                    /* at once */
    MUST(kit_put(t, kit_start(t, "a"))); /* what comes while it is locked waits for the ack */
    NOTHING();
    MUST(ACK(&item, EVENTS(ev_external(3, "go"))));
    TAKE("a");
}

/* Only a win that was seen before until_ms counts. */
typedef struct race {
    uint64_t lock_ms, until_ms;
} race;

static void fetch_one(kit_thread *self) {
    const race *all = self->data;
    dur_orchestration_item item = { .instance = NULL };
    dur_fetch how = { .lock_ms = all->lock_ms };
    for (int i = 0; i < 20 && item.instance == NULL; i++) { /* losing a race may look like nothing */
        self->code = dur_store_fetch_orchestration_item(self->t->p, self->arena, &how, &item, &self->err);
        if (self->code != DUR_OK) return;
    }
    if (item.instance != NULL && dur_store_now_ms(self->t->p) < all->until_ms)
        self->text[self->count++] = item.lock_token;
}

static size_t winners(kit *t, size_t n, uint64_t lock_ms, uint64_t until_ms) {
    race all = { lock_ms, until_ms };
    kit_thread *threads = kit_threads(t, n, fetch_one, &all);
    size_t won = 0;
    for (size_t i = 0; i < n; i++) {
        SAME(threads[i].code, DUR_OK);
        won += threads[i].count;
    }
    return won;
}

/* Where time is real, a slow machine may be at work for longer than the lock holds: then somebody wins rightly. */
static void concurrent_lock_attempts_respect_expiration(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    uint64_t until_ms = dur_store_now_ms(t->p) + t->lock_ms;
    TAKE("a");
    SAME(winners(t, 3, t->lock_ms, until_ms), 0);
    kit_advance(t, t->lock_ms / 2);
    SAME(winners(t, 3, t->lock_ms, until_ms), 0);
    kit_expire(t);
    SAME(winners(t, 5, 100 * t->lock_ms, DUR_NEVER), 1);
}

/* ---- worker ------------------------------------------------------------------------------------------------------ */

static dur_leased_work one_work(kit *t) {
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    return TAKE_WORK(1);
}

static void worker_lock_renewal_success(kit *t) {
    dur_leased_work work = one_work(t);
    MUST(dur_store_renew_work_item_lock(t->p, work.lock_token, t->lock_ms, ERR));
    NO_WORK();
}

static void worker_lock_renewal_invalid_token(kit *t) {
    one_work(t);
    REFUSED(DUR_ELEASE, NULL, dur_store_renew_work_item_lock(t->p, "no-such-token", t->lock_ms, ERR));
}

static void worker_lock_renewal_after_expiration(kit *t) {
    dur_leased_work work = one_work(t);
    kit_expire(t);
    REFUSED(DUR_ELEASE, NULL, dur_store_renew_work_item_lock(t->p, work.lock_token, t->lock_ms, ERR));
    TAKE_WORK(1);
}

static void worker_lock_renewal_extends_timeout(kit *t) {
    dur_leased_work work = one_work(t);
    kit_advance(t, t->lock_ms * 6 / 10);
    MUST(dur_store_renew_work_item_lock(t->p, work.lock_token, t->lock_ms, ERR));
    kit_advance(t, t->lock_ms * 6 / 10);
    NO_WORK(); /* past the first end */
    kit_expire(t);
    TAKE_WORK(1);
}

static void worker_lock_renewal_after_ack(kit *t) {
    dur_leased_work work = one_work(t);
    dur_message_row done = kit_finished(t, "a", 1, 1, "r");
    MUST(dur_store_ack_work_item(t->p, work.lock_token, &done, ERR));
    REFUSED(DUR_ELEASE, NULL, dur_store_renew_work_item_lock(t->p, work.lock_token, t->lock_ms, ERR));
}

static void abandon_work_item_releases_lock(kit *t) {
    dur_leased_work work = one_work(t);
    NO_WORK();
    MUST(dur_store_abandon_work_item(t->p, work.lock_token, 0, false, ERR));
    dur_leased_work again = TAKE_WORK(1);
    THAT(strcmp(again.lock_token, work.lock_token) != 0);
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
    REFUSED(DUR_ELEASE, NULL, dur_store_abandon_work_item(t->p, "no-such-token", 0, false, ERR));
    MUST(dur_store_ack_work_item(t->p, again.lock_token, NULL, ERR));
}

static void abandon_work_item_with_delay(kit *t) {
    dur_leased_work work = one_work(t);
    MUST(dur_store_abandon_work_item(t->p, work.lock_token, 500, false, ERR));
    NO_WORK();
    kit_advance(t, 200);
    NO_WORK();
    kit_advance(t, 400);
    TAKE_WORK(1);
}

static void worker_ack_fails_after_lock_expiry(kit *t) {
    kit_create(t, "a");
    dur_leased_work work = one_work(t);
    dur_message_row done = kit_finished(t, "a", 1, 1, "late");
    kit_expire(t);
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, work.lock_token, &done, ERR));
    NOTHING();
    TAKE_WORK(1);
}

static void orchestration_lock_renewal_after_expiration(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    kit_expire(t);
    REFUSED(DUR_ELEASE, NULL, dur_store_renew_orchestration_item_lock(t->p, item.lock_token, t->lock_ms, ERR));
    TAKE("a");
}

const kit_check kit_lock_expiration[] = {
    CHECK(lock_expires_after_timeout),
    CHECK(abandon_releases_lock_immediately),
    CHECK(lock_renewal_on_ack),
    CHECK(concurrent_lock_attempts_respect_expiration),
    CHECK(worker_lock_renewal_success),
    CHECK(worker_lock_renewal_invalid_token),
    CHECK(worker_lock_renewal_after_expiration),
    CHECK(worker_lock_renewal_extends_timeout),
    CHECK(worker_lock_renewal_after_ack),
    CHECK(abandon_work_item_releases_lock),
    CHECK(abandon_work_item_with_delay),
    CHECK(worker_ack_fails_after_lock_expiry),
    CHECK(orchestration_lock_renewal_after_expiration),
    CHECKS_END,
};
