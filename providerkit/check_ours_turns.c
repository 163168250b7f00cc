/*
 * check_ours_turns.c: our own: every optional field of a turn.
 */
#include "kit_internal.h"

/* A running instance with events 1..3, activities 2 and 3 in the worker queue, and a message waiting. */
static void living(kit *t, const char *instance) {
    MUST(kit_put(t, kit_start(t, instance)));
    dur_orchestration_item item = TAKE(instance);
    MUST(ACK(&item, EVENTS(ev_started(1), ev_scheduled(2), ev_scheduled(3)),
             WORK(kit_activity(t, instance, 2), kit_activity(t, instance, 3)),
             MESSAGES(kit_raised(t, instance, "go", "")), NAMED));
}

#define FAULT(fault_, commit)                                                                                          \
    do {                                                                                                               \
        THAT(kit_commit(t, (commit)) != DUR_OK);                                                                       \
        SAME((commit)->fault, DUR_TURN_##fault_);                                                                      \
        THAT((commit)->error.code != DUR_OK && !(commit)->error.retryable);                                            \
    } while (0)

#define CLAIM(work)                                                                                                    \
    (dur_worker_claim) {                                                                                               \
        .ref = (work).ref, .lock_token = (work).lock_token                                                             \
    }

static void ours_turn_without_options_is_an_ack(kit *t) {
    NEEDS("commit_turns");
    living(t, "a");
    dur_orchestration_item item = TAKE("a");
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(4, "go")));
    MUST(kit_commit(t, &commit));
    SAME(commit.fault, DUR_TURN_FINE);
    NOTHING(); /* the message was consumed, the lock removed */
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    TAKE("a");
}

static void ours_turn_lease_compared(kit *t) {
    NEEDS("commit_turns");
    living(t, "a");
    dur_orchestration_item item = TAKE("a");
    dur_turn_commit commit = COMMIT_OF(&item, .token = "no-such-token", EVENTS(ev_external(4, "go")));
    FAULT(LEASE_LOST, &commit);
    SAME(commit.error.code, DUR_ELEASE);
    kit_expire(t);
    commit = COMMIT_OF(&item, EVENTS(ev_external(4, "go")));
    FAULT(LEASE_LOST, &commit);
    SAME(kit_history(t, "a", 1, NULL), 3);
}

static void ours_turn_token_of_another_instance(kit *t) {
    NEEDS("commit_turns");
    living(t, "a");
    dur_orchestration_item a = TAKE("a");
    living(t, "b");
    dur_orchestration_item b = TAKE("b");
    dur_turn_commit commit = COMMIT_OF(&a, .token = b.lock_token, EVENTS(ev_external(4, "go")));
    FAULT(LEASE_LOST, &commit);
    SAME(kit_history(t, "a", 1, NULL), 3);
    SAME(kit_history(t, "b", 1, NULL), 3);
}

static void ours_turn_position_compared(kit *t) {
    NEEDS("commit_turns");
    living(t, "a");
    dur_orchestration_item item = TAKE("a");
    static const uint64_t wrong[] = { 0, 2, 4, 99 };
    for (size_t i = 0; i < COUNT(wrong); i++) {
        dur_turn_commit bad = COMMIT_OF(&item, EVENTS(ev_external(50, "go")), WORK(kit_activity(t, "a", 50)));
        bad.expected_last = wrong[i];
        FAULT(POSITION, &bad);
        SAME(bad.error.code, DUR_ECONFLICT);
    }
    SAME(kit_history(t, "a", 1, NULL), 3);
    dur_turn_commit good = COMMIT_OF(&item, EVENTS(ev_external(4, "go"))); /* the token still holds */
    good.expected_last = 3;
    MUST(kit_commit(t, &good));
}

static void ours_turn_position_of_a_new_execution(kit *t) {
    NEEDS("commit_turns");
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_started(1), ev_continued(2, "n")),
                                       MESSAGES(kit_next(t, "a", "n")), ENDS(CONTINUED_AS_NEW, "n"));
    commit.expected_last = 0;
    MUST(kit_commit(t, &commit));
    item = TAKE("a");
    commit = COMMIT_OF(&item, .execution = 2, EVENTS(ev_started(1)), NAMED);
    commit.expected_last = 2; /* of execution 1 */
    FAULT(POSITION, &commit);
    SAME(kit_history(t, "a", 2, NULL), 0);
    commit.expected_last = 0; /* of execution 2 */
    MUST(kit_commit(t, &commit));
}

static void ours_turn_consumes_listed_messages_only(kit *t) {
    NEEDS("commit_turns");
    kit_create(t, "a");
    for (int i = 0; i < 3; i++)
        MUST(kit_put(t, kit_raised(t, "a", kit_format(t, "m%d", i), "")));
    dur_orchestration_item item = TAKE("a");
    MUST(kit_put(t, kit_raised(t, "a", "m3", ""))); /* between run and commit */
    uint64_t ids[] = { 987654322, item.messages[0].id, item.messages[2].id, 987654321 };
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(2, "m0")));
    commit.consume_listed = true;
    commit.consumed = ids;
    commit.consumed_count = 4;
    MUST(kit_commit(t, &commit));
    item = TAKE("a");
    SAME(item.message_count, 2);
    THAT(kit_says(item.messages[0].json, "m1") && kit_says(item.messages[1].json, "m3"));
}

static void ours_turn_consumes_no_foreign_messages(kit *t) {
    NEEDS("commit_turns");
    kit_create(t, "b");
    MUST(kit_put(t, kit_raised(t, "b", "of b", "")));
    dur_orchestration_item b = TAKE("b");
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "of a", "")));
    dur_orchestration_item a = TAKE("a");
    dur_turn_commit commit = COMMIT_OF(&a, EVENTS(ev_external(2, "x")));
    commit.consume_listed = true;
    commit.consumed = &b.messages[0].id;
    commit.consumed_count = 1;
    MUST(kit_commit(t, &commit));
    SAME(TAKE("a").message_count, 1); /* nothing of a was listed */
    MUST(dur_store_abandon_orchestration_item(t->p, b.lock_token, 0, false, ERR));
    SAME(TAKE("b").message_count, 1);
}

static void ours_turn_finishes_worker_rows(kit *t) {
    NEEDS("commit_turns");
    living(t, "a");
    dur_leased_work two = TAKE_WORK(2), three = TAKE_WORK(3);
    dur_orchestration_item item = TAKE("a");
    dur_worker_claim claims[] = { CLAIM(two), CLAIM(three) };
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_activity_done(4, 2), ev_activity_done(5, 3)));
    commit.worker_consumed = claims;
    commit.worker_consumed_count = 2;
    MUST(kit_commit(t, &commit));
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, two.lock_token, NULL, ERR));
    kit_expire(t);
    NO_WORK();
}

static void ours_turn_with_lost_work_fails_whole(kit *t) {
    NEEDS("commit_turns");
    living(t, "a");
    dur_leased_work two = kit_fetch_work(t, HOW(.lock_ms = t->lock_ms / 4)), three = TAKE_WORK(3);
    dur_orchestration_item item = TAKE("a");
    dur_worker_claim claims[] = { CLAIM(three), CLAIM(two) };
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_activity_done(4, 3), ev_activity_done(5, 2)));
    commit.worker_consumed = claims;
    commit.worker_consumed_count = 2;
    kit_advance(t, t->lock_ms / 2);
    FAULT(WORK_LOST, &commit); /* expired, though nobody took it */
    SAME(commit.lost_work_count, 1);
    THAT(commit.lost_work == NULL || commit.lost_work[0] == &claims[1]); /* there is no arena for the list */
    dur_leased_work stolen = TAKE_WORK(2);                               /* now somebody has */
    FAULT(WORK_LOST, &commit);
    SAME(commit.lost_work_count, 1);
    SAME(kit_history(t, "a", 1, NULL), 3);
    MUST(dur_store_ack_work_item(t->p, stolen.lock_token, NULL, ERR));
    FAULT(WORK_LOST, &commit); /* gone */
    commit = COMMIT_OF(&item, EVENTS(ev_activity_done(4, 3)));
    commit.worker_consumed = claims;
    commit.worker_consumed_count = 1;
    MUST(kit_commit(t, &commit)); /* lease and the other row were left as they were */
}

static void ours_turn_drops_timers(kit *t) {
    NEEDS("commit_turns", "get_queue_depths");
    uint64_t due = dur_store_now_ms(t->p) + 60000;
    living(t, "a");
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_timer(4, due), ev_timer(5, due)),
             MESSAGES(kit_timer(t, "a", 1, 4, due), kit_timer(t, "a", 1, 5, due), kit_timer(t, "b", 1, 4, due),
                      kit_timer(t, "a", 2, 4, due), kit_raised(t, "a", "go", ""))));
    item = TAKE("a");
    dur_activity_ref dropped[] = { REF("a", 1, 3), REF("a", 1, 4), REF("a", 1, 77) };
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(6, "go")));
    commit.timers_dropped = dropped;
    commit.timers_dropped_count = 3;
    MUST(kit_commit(t, &commit));
    SAME(kit_depths(t).timer_queue, 3); /* 5, and those of another instance and another execution */
    kit_advance(t, 61000);
    item = TAKE("a");
    SAME(item.message_count, 2);
    THAT(kit_says(item.messages[0].json, "\"id\":5"));
}

static void ours_turn_keeps_the_lease(kit *t) {
    NEEDS("commit_turns", "fetch_turns", "owner_register");
    kit_owner(t, "me");
    living(t, "a");
    dur_orchestration_item item = ACQUIRE("me", "a");
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(4, "go")));
    commit.keep_lease = true;
    commit.owner = "me";
    commit.expected_last = 3;
    commit.consume_listed = true;
    commit.consumed = &item.messages[0].id;
    commit.consumed_count = 1;
    MUST(kit_commit(t, &commit));
    THAT(commit.lease_kept);
    MUST(kit_put(t, kit_raised(t, "a", "more", "")));
    NOTHING(); /* others do not get it */
    dur_turn_commit second = COMMIT_OF(&item, EVENTS(ev_external(5, "more"), ev_set(6, "k", "v")));
    second.expected_last = 4;
    second.keep_lease = true;
    second.owner = "me";
    second.consume_listed = true;
    MUST(kit_commit(t, &second)); /* the same token */
    dur_turn_commit last = COMMIT_OF(&item, EVENTS(ev_external(7, "x")));
    last.expected_last = 6;
    last.owner = "me";
    last.consume_listed = true;
    MUST(kit_commit(t, &last));
    THAT(!last.lease_kept);
    SAME(TAKE("a").message_count, 1); /* "more" was never consumed */
    commit.expected_last = 7;
    FAULT(LEASE_LOST, &commit);
}

static void ours_turn_release_after_seeing_everything(kit *t) {
    NEEDS("commit_turns", "fetch_turns");
    kit_create(t, "a");
    MUST(kit_put(t, kit_queued(t, "a", "q", "left")));
    dur_orchestration_item item = ACQUIRE(NULL, "a");
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(2, "x")));
    commit.consume_listed = true;
    commit.seen_id = item.messages[0].id;
    commit.seen_now_ms = dur_store_now_ms(t->p);
    MUST(kit_commit(t, &commit));
    NOTHING(); /* seen, and no reason to come again */
    MUST(kit_put(t, kit_raised(t, "a", "new", "")));
    item = ACQUIRE(NULL, "a");
    SAME(item.message_count, 2); /* but there, when there is one */
    commit = COMMIT_OF(&item, EVENTS(ev_external(3, "x")));
    commit.consume_listed = true;
    commit.consumed = &item.messages[1].id;
    commit.consumed_count = 1;
    MUST(kit_commit(t, &commit)); /* nothing said of what was seen: all count */
    SAME(TAKE("a").message_count, 1);
}

static void ours_turn_release_and_messages_not_seen(kit *t) {
    NEEDS("commit_turns", "fetch_turns");
    kit_create(t, "a");
    uint64_t now = dur_store_now_ms(t->p);
    MUST(kit_put(t, kit_timer(t, "a", 1, 9, now + 400))); /* its id is small, its time is not come */
    MUST(kit_put(t, kit_queued(t, "a", "q", "left")));
    dur_orchestration_item item = ACQUIRE(NULL, "a");
    SAME(item.message_count, 1);
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(2, "x")));
    commit.consume_listed = true;
    commit.seen_id = item.messages[0].id;
    commit.seen_now_ms = now;
    MUST(kit_put(t, kit_raised(t, "a", "unseen", ""))); /* between the read and the commit */
    MUST(kit_commit(t, &commit));
    item = ACQUIRE(NULL, "a");
    SAME(item.message_count, 2);
    commit = COMMIT_OF(&item, EVENTS(ev_external(3, "x")));
    commit.consume_listed = true;
    commit.seen_id = item.messages[1].id;
    commit.seen_now_ms = dur_store_now_ms(t->p);
    MUST(kit_commit(t, &commit));
    NOTHING();
    kit_advance(t, 450);
    SAME(TAKE("a").message_count, 3); /* the timer's time has come */
}

static void ours_turn_release_with_delay(kit *t) {
    NEEDS("commit_turns");
    living(t, "a");
    dur_orchestration_item item = TAKE("a");
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(4, "go")));
    commit.consume_listed = true;
    commit.delay_ms = 400;
    MUST(kit_commit(t, &commit));
    MUST(kit_put(t, kit_raised(t, "a", "more", "")));
    NOTHING();
    kit_advance(t, 450);
    SAME(TAKE("a").message_count, 2);
}

static void ours_acquisitions_counted_and_cleared(kit *t) {
    NEEDS("commit_turns", "fetch_turns");
    living(t, "a");
    dur_orchestration_item item = ACQUIRE(NULL, "a");
    if (item.acquisitions == 0) kit_skip(t, "the store does not count acquisitions");
    SAME(item.acquisitions, 1);
    kit_expire(t);
    item = ACQUIRE(NULL, "a");
    SAME(item.acquisitions, 2);
    dur_turn_commit back = COMMIT_OF(&item, .event_count = 0);
    back.execution_id = 0; /* a release */
    back.consume_listed = true;
    back.give_back = true;
    MUST(kit_commit(t, &back)); /* not used: not counted */
    item = ACQUIRE(NULL, "a");
    SAME(item.acquisitions, 2);
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(4, "go")));
    commit.consume_listed = true;
    MUST(kit_commit(t, &commit));
    SAME(ACQUIRE(NULL, "a").acquisitions, 1);
}

/* A turn without an execution writes nothing and gives the lease back; what it says decides what is counted. */
static void ours_release_and_counts(kit *t) {
    NEEDS("commit_turns", "fetch_turns");
    living(t, "a");
    dur_orchestration_item item = ACQUIRE(NULL, "a");
    if (item.acquisitions == 0) kit_skip(t, "the store does not count acquisitions");
    dur_turn_commit release = { .lock_token = item.lock_token,
                                .instance = "a",
                                .store_key = item.store_key,
                                .consume_listed = true,
                                .expected_last = DUR_NOT_COMPARED };
    MUST(kit_commit(t, &release)); /* it says nothing: the handler may have crashed */
    item = ACQUIRE(NULL, "a");
    SAME(item.acquisitions, 2);
    SAME(item.attempt_count, 2);
    release.lock_token = item.lock_token;
    release.give_back = true;
    MUST(kit_commit(t, &release)); /* it was not used */
    item = ACQUIRE(NULL, "a");
    SAME(item.acquisitions, 2);
    SAME(item.attempt_count, 2);
    release.lock_token = item.lock_token;
    release.give_back = false;
    release.seen_id = item.messages[0].id;
    release.seen_now_ms = dur_store_now_ms(t->p);
    MUST(kit_commit(t, &release)); /* the handler ran and waits */
    NOTHING();
    MUST(kit_put(t, kit_raised(t, "a", "more", "")));
    item = ACQUIRE(NULL, "a");
    SAME(item.acquisitions, 1);
    SAME(item.attempt_count, 1);
    SAME(kit_history(t, "a", 0, NULL), 3);
}

static void ours_turn_creates_and_drops_a_timer(kit *t) {
    NEEDS("commit_turns", "get_queue_depths");
    uint64_t due = dur_store_now_ms(t->p) + 400;
    living(t, "a");
    dur_orchestration_item item = TAKE("a");
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_timer(4, due)), MESSAGES(kit_timer(t, "a", 1, 4, due)));
    dur_activity_ref dropped = REF("a", 1, 4);
    commit.timers_dropped = &dropped;
    commit.timers_dropped_count = 1;
    MUST(kit_commit(t, &commit));
    SAME(kit_depths(t).timer_queue, 0); /* inserted first, dropped second, as with activities */
    kit_advance(t, 450);
    NOTHING();
}

static void ours_terminate(kit *t) {
    NEEDS("commit_turns", "get_instance", "get_queue_depths");
    kit_create(t, "parent");
    living(t, "a");
    dur_leased_work work = TAKE_WORK(2);
    dur_orchestration_item held = TAKE("a");
    MUST(kit_put(t, kit_timer(t, "a", 1, 9, dur_store_now_ms(t->p) + 60000)));
    MUST(kit_put(t, kit_next(t, "a", "")));
    dur_orchestration_item nobody = { .instance = "a", .execution_id = 1 };
    dur_turn_commit end =
        COMMIT_OF(&nobody, EVENTS(ev_failed(4, "terminated")), MESSAGES(kit_raised(t, "parent", "told", "")),
                  .meta = { .status = DUR_STATUS_FAILED, .output = "terminated" });
    end.take_over = true;
    end.remove_work = true;
    end.expected_last = 2;
    FAULT(POSITION, &end); /* the place is compared here too */
    end.expected_last = 3;
    MUST(kit_commit(t, &end));
    SAME(kit_instance(t, "a").status, DUR_STATUS_FAILED);
    dur_turn_commit late = COMMIT_OF(&held, EVENTS(ev_external(4, "go")));
    FAULT(LEASE_LOST, &late);
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
    TAKE("parent");
    dur_queue_depths depths = kit_depths(t);
    SAME(depths.timer_queue + depths.worker_queue, 0);
    kit_advance(t, 61000 + t->lock_ms);
    NO_WORK();
    TAKE("parent"); /* its lock has ended; of a there is nothing */
    NOTHING();
}

static void ours_terminate_leaves_calls(kit *t) {
    NEEDS("commit_turns", "get_instance");
    MUST(kit_put(t, kit_child(t, "a", "one", 2)));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    MUST(kit_put(t, kit_child(t, "a", "two", 3)));
    dur_instance_row row = kit_instance(t, "a");
    THAT(row.pending_start_id != 0 && strstr(row.pending_start.data, "one") != NULL);
    dur_orchestration_item nobody = { .instance = "a", .execution_id = 1 };
    dur_turn_commit end = COMMIT_OF(&nobody, EVENTS(ev_started(1), ev_failed(2, "terminated")), ENDS(FAILED, "x"));
    end.take_over = end.remove_work = end.consume_listed = true;
    end.expected_last = 0;
    end.consumed = &row.pending_start_id;
    end.consumed_count = 1;
    MUST(kit_commit(t, &end));
    dur_orchestration_item item = TAKE("a"); /* to be answered */
    SAME(item.message_count, 1);
    THAT(strstr(item.messages[0].json.data, "two") != NULL);
}

/* What has not begun is taken away without a trace, and the next start makes an instance of its own. */
static void ours_take_over_takes_a_start_away(kit *t) {
    NEEDS("commit_turns", "get_instance", "get_queue_depths");
    MUST(kit_put(t, kit_child(t, "a", "one", 2)));
    MUST(kit_put(t, kit_raised(t, "a", "to the first", "")));
    MUST(kit_put(t, kit_queued(t, "a", "q", "to the first")));
    MUST(kit_put(t, kit_child(t, "a", "two", 3)));
    MUST(kit_put(t, kit_raised(t, "a", "to the second", "")));
    dur_message_row late = kit_queued(t, "a", "q", "to the second, and not due");
    MUST(dur_store_enqueue_for_orchestrator(t->p, &late, 1000 * t->lock_ms, ERR));
    for (int i = 0; i < 2; i++) {
        dur_instance_row row = kit_instance(t, "a");
        THAT(row.start_pending && strstr(row.pending_start.data, i == 0 ? "one" : "two") != NULL);
        dur_turn_commit taken = { .lock_token = "nobody",
                                  .instance = "a",
                                  .expected_last = DUR_NOT_COMPARED,
                                  .consume_listed = true,
                                  .consumed = &row.pending_start_id,
                                  .consumed_count = 1,
                                  .take_over = true,
                                  .remove_work = true,
                                  .if_unleased = true };
        if (i == 1) {
            dur_orchestration_item held = TAKE("a");
            SAME(held.message_count, 2);
            THAT(strstr(held.messages[1].json.data, "to the second") != NULL);
            FAULT(LEASE_LOST, &taken);
            MUST(dur_store_abandon_orchestration_item(t->p, held.lock_token, 0, true, ERR));
        }
        MUST(kit_commit(t, &taken));
    }
    dur_instance_row none;
    REFUSED(DUR_ENOTFOUND, NULL, dur_store_get_instance(t->p, t->arena, "a", &none, ERR));
    NOTHING();
    SAME(kit_depths(t).orchestrator_queue, 0);
    SAME(kit_depths(t).timer_queue, 0);
    if (dur_store_has(t->p, "list_dead_letters")) SAME(kit_depths(t).dead_letters, 2);
}

/* The same by whoever holds it: also what came meanwhile, and was not handed out, goes with the start. */
static void ours_release_takes_a_start_away(kit *t) {
    NEEDS("commit_turns", "get_instance", "get_queue_depths");
    MUST(kit_put(t, kit_child(t, "a", "one", 2)));
    MUST(kit_put(t, kit_queued(t, "a", "q", "to the first")));
    dur_orchestration_item held = TAKE("a");
    SAME(held.message_count, 2);
    MUST(kit_put(t, kit_cancel(t, "a", "its parent ends")));
    MUST(kit_put(t, kit_queued(t, "a", "q", "to the first, too")));
    MUST(kit_put(t, kit_child(t, "a", "two", 3)));
    MUST(kit_put(t, kit_raised(t, "a", "to the second", "")));
    dur_turn_commit taken = COMMIT_OF(&held, .event_count = 0);
    taken.execution_id = 0;
    taken.consume_listed = taken.remove_work = taken.give_back = true;
    taken.consumed = &held.messages[0].id;
    taken.consumed_count = 1;
    MUST(kit_commit(t, &taken));
    if (dur_store_has(t->p, "list_dead_letters")) SAME(kit_depths(t).dead_letters, 2);
    dur_orchestration_item next = TAKE("a");
    SAME(next.message_count, 2);
    THAT(strstr(next.messages[0].json.data, "two") != NULL);
    THAT(strstr(next.messages[1].json.data, "to the second") != NULL);
    taken = COMMIT_OF(&next, .event_count = 0);
    taken.execution_id = 0;
    taken.consume_listed = taken.remove_work = taken.give_back = true;
    taken.consumed = &next.messages[0].id;
    taken.consumed_count = 1;
    MUST(kit_commit(t, &taken));
    dur_instance_row none;
    REFUSED(DUR_ENOTFOUND, NULL, dur_store_get_instance(t->p, t->arena, "a", &none, ERR));
    NOTHING();
    SAME(kit_depths(t).orchestrator_queue, 0);
}

/* Queue messages that were accepted are for whoever clears up, seen before or not, handed out or not. */
static void ours_terminate_leaves_queue_messages(kit *t) {
    NEEDS("commit_turns", "get_instance", "get_queue_depths");
    living(t, "a");
    MUST(kit_put(t, kit_queued(t, "a", "q", "held")));
    TAKE("a");
    MUST(kit_put(t, kit_queued(t, "a", "q", "late")));
    dur_message_row later = kit_queued(t, "a", "q", "later");
    MUST(dur_store_enqueue_for_orchestrator(t->p, &later, 500, ERR));
    dur_orchestration_item nobody = { .instance = "a", .execution_id = 1 };
    dur_turn_commit end = COMMIT_OF(&nobody, EVENTS(ev_failed(4, "terminated")), ENDS(FAILED, "terminated"));
    end.take_over = end.remove_work = end.consume_listed = true;
    MUST(kit_commit(t, &end));
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 2);
    THAT(strstr(item.messages[0].json.data, "held") != NULL && strstr(item.messages[1].json.data, "late") != NULL);
    uint64_t ids[] = { item.messages[0].id, item.messages[1].id };
    dur_turn_commit taken = COMMIT_OF(&item, .event_count = 0);
    taken.execution_id = 0;
    taken.consume_listed = true;
    taken.consumed = ids;
    taken.consumed_count = 2;
    MUST(kit_commit(t, &taken));
    NOTHING();
    kit_advance(t, 600);
    SAME(TAKE("a").message_count, 1);
}

static void ours_turn_suspends(kit *t) {
    NEEDS("commit_turns", "get_instance", "set_suspended");
    living(t, "a");
    dur_orchestration_item item = TAKE("a");
    dur_turn_commit commit = COMMIT_OF(&item, .event_count = 0);
    commit.consume_listed = true;
    commit.set_suspended = true;
    commit.suspended = "does not fit its history";
    MUST(kit_commit(t, &commit));
    TEXT(kit_instance(t, "a").suspended, "does not fit its history");
    SAME(kit_instance(t, "a").status, DUR_STATUS_RUNNING);
    NOTHING();
    MUST(kit_put(t, kit_raised(t, "a", "more", "")));
    NOTHING(); /* messages wait */
    MUST(dur_store_set_suspended(t->p, "a", NULL, ERR));
    TEXT(kit_instance(t, "a").suspended, NULL);
    SAME(TAKE("a").message_count, 2);
}

static void ours_turns_answered_one_by_one(kit *t) {
    NEEDS("commit_turns");
    living(t, "a");
    dur_orchestration_item a = TAKE("a");
    living(t, "b");
    dur_orchestration_item b = TAKE("b");
    living(t, "c");
    dur_orchestration_item c = TAKE("c");
    dur_turn_commit turns[3] = { COMMIT_OF(&a, EVENTS(ev_external(4, "go"))),
                                 COMMIT_OF(&b, EVENTS(ev_external(4, "go")), WORK(kit_activity(t, "b", 4))),
                                 COMMIT_OF(&c, EVENTS(ev_external(4, "go")), WORK(kit_activity(t, "c", 4))) };
    turns[1].expected_last = 7;
    turns[2].expected_last = 3;
    MUST(dur_store_commit_turns(t->p, turns, 3, ERR));
    SAME(turns[0].fault, DUR_TURN_FINE);
    SAME(turns[1].fault, DUR_TURN_POSITION);
    SAME(turns[2].fault, DUR_TURN_FINE);
    SAME(kit_history(t, "a", 1, NULL), 4);
    SAME(kit_history(t, "b", 1, NULL), 3);
    SAME(kit_history(t, "c", 1, NULL), 4);
    for (int i = 0; i < 7; i++) { /* 2 and 3 of each, 4 of c only */
        dur_leased_work work = kit_fetch_work(t, HOW(.max = 1));
        THAT(work.json.data != NULL);
        if (work.ref.activity_id == 4) TEXT(work.ref.instance, "c");
    }
    NO_WORK();
}

static void ours_duplicate_event_in_an_array_of_turns(kit *t) {
    NEEDS("commit_turns");
    living(t, "a");
    dur_orchestration_item a = TAKE("a");
    living(t, "b");
    dur_orchestration_item b = TAKE("b");
    dur_turn_commit turns[2] = { COMMIT_OF(&a, EVENTS(ev_external(4, "go"), ev_external(2, "twice")), NAMED),
                                 COMMIT_OF(&b, EVENTS(ev_external(4, "go"))) };
    MUST(dur_store_commit_turns(t->p, turns, 2, ERR));
    SAME(turns[0].error.code, DUR_ECONFLICT);
    SAME(turns[1].error.code, DUR_OK);
    SAME(kit_history(t, "a", 1, NULL), 3);
    SAME(kit_history(t, "b", 1, NULL), 4);
}

static void ours_turn_of_an_orphan_refused(kit *t) {
    NEEDS("commit_turns", "delete_instances", "get_instance");
    const char *const parent = "parent";
    dur_delete_result gone;
    kit_create(t, parent);
    MUST(kit_put(t, kit_child(t, "born", parent, 2)));
    dur_orchestration_item born = TAKE("born"); /* one at a time: which of two comes first is not promised */
    MUST(kit_put(t, kit_child(t, "late", parent, 3)));
    dur_orchestration_item late = TAKE("late");
    dur_turn_commit commit = COMMIT_OF(&born, EVENTS(ev_started(1)), NAMED_CHILD_OF(parent));
    commit.needs_parent = true;
    MUST(kit_commit(t, &commit));
    /* the deletion sees one, and the other sees the deletion */
    const char *const both[] = { parent, "born" };
    REFUSED(DUR_ECHILD, "child", dur_store_delete_instances(t->p, &parent, 1, true, &gone, ERR));
    MUST(dur_store_delete_instances(t->p, both, 2, true, &gone, ERR));
    commit = COMMIT_OF(&late, EVENTS(ev_started(1)), WORK(kit_activity(t, "late", 2)), NAMED_CHILD_OF(parent));
    commit.needs_parent = true;
    FAULT(ORPHAN, &commit);
    SAME(commit.error.code, DUR_ENOTFOUND);
    SAME(kit_history(t, "late", 1, NULL), 0);
    NO_WORK();
    /* nothing was changed: the lease holds, and who does not ask is not compared */
    commit.needs_parent = false;
    MUST(kit_commit(t, &commit));
    TEXT(kit_instance(t, "late").parent_instance_id, parent);
}

/* An instance with that birth, after its first turn. */
static void with_birth(kit *t, const char *instance, uint64_t birth) {
    MUST(kit_put(t, kit_start(t, instance)));
    dur_orchestration_item item = TAKE(instance);
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_started(1)), NAMED);
    commit.metadata.birth = birth;
    MUST(kit_commit(t, &commit));
}

/* The first turn of a child whose parent has that birth: what becomes of it. */
static dur_turn_fault child_of(kit *t, const char *instance, const char *parent, uint64_t birth) {
    MUST(kit_put(t, kit_child(t, instance, parent, 2)));
    dur_orchestration_item item = TAKE(instance);
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_started(1)), NAMED_CHILD_OF(parent));
    commit.needs_parent = true;
    commit.metadata.parent_birth = birth;
    (void)kit_commit(t, &commit);
    return commit.fault;
}

static void ours_turn_parent_known_by_birth(kit *t) {
    NEEDS("commit_turns", "delete_instances", "get_instance");
    const uint64_t old = 1, new = (UINT64_C(1) << 53) - 1;
    const char *const parent = "parent";
    dur_delete_result gone;
    with_birth(t, parent, old);
    SAME(kit_instance(t, parent).birth, old);
    SAME(child_of(t, "any", parent, 0), DUR_TURN_FINE);
    SAME(child_of(t, "own", parent, old), DUR_TURN_FINE);
    SAME(child_of(t, "foreign", parent, new), DUR_TURN_ORPHAN);
    const char *const tree[] = { parent, "any", "own" };
    MUST(dur_store_delete_instances(t->p, tree, 3, true, &gone, ERR));
    /* a start that waits has not begun, and is nobody's parent yet */
    MUST(kit_put(t, kit_start(t, parent)));
    dur_orchestration_item item = TAKE(parent);
    SAME(child_of(t, "early", parent, old), DUR_TURN_ORPHAN);
    dur_turn_commit begins = COMMIT_OF(&item, EVENTS(ev_started(1)), NAMED);
    begins.metadata.birth = new;
    MUST(kit_commit(t, &begins));
    SAME(child_of(t, "late", parent, old), DUR_TURN_ORPHAN);
    SAME(child_of(t, "new", parent, new), DUR_TURN_FINE);
}

/* Whoever takes an instance over has looked at it before: meanwhile another may have its id. */
static void ours_take_over_knows_who_is_meant(kit *t) {
    NEEDS("commit_turns", "get_instance");
    dur_orchestration_item begun = { .instance = "begun", .execution_id = 1 }, waits = { .instance = "waits" };
    with_birth(t, "begun", 7);
    dur_turn_commit end = COMMIT_OF(&begun, EVENTS(ev_failed(2, "ended")), ENDS(FAILED, "ended"));
    end.take_over = end.remove_work = end.consume_listed = true;
    end.expected_last = 1;
    end.metadata.birth = 8;
    FAULT(POSITION, &end);
    end.metadata.birth = 7;
    MUST(kit_commit(t, &end));
    MUST(kit_put(t, kit_start(t, "waits")));
    uint64_t start = kit_instance(t, "waits").pending_start_id, other = start + 1000;
    waits.execution_id = 1;
    end = COMMIT_OF(&waits, EVENTS(ev_started(1), ev_failed(2, "ended")), ENDS(FAILED, "ended"));
    end.take_over = end.remove_work = end.consume_listed = true;
    end.expected_last = 0;
    end.metadata.birth = 9;
    end.consumed = &other;
    end.consumed_count = 1;
    FAULT(POSITION, &end);
    end.consumed = &start;
    MUST(kit_put(t, kit_cancel(t, "waits", "why")));
    end.if_unleased = end.if_uncancelled = true;
    FAULT(LEASE_LOST, &end);
    end.if_uncancelled = false;
    MUST(kit_commit(t, &end));
    SAME(kit_instance(t, "waits").birth, 9);
}

/* … and so has whoever deletes it: the next one under its id stays, whether it has begun or not. */
static void ours_delete_knows_who_is_meant(kit *t) {
    NEEDS("delete_instances", "commit_turns", "get_instance");
    const char *const ids[] = { "other", "a" };
    dur_delete_result gone;
    dur_meant meant[] = { { .birth = 9 }, { .birth = 8 } };
    with_birth(t, "other", 9);
    with_birth(t, "a", 7);
    REFUSED(DUR_ECONFLICT, NULL, dur_store_delete_meant(t->p, ids, meant, 2, true, &gone, ERR));
    SAME(kit_instance(t, "other").birth, 9); /* all or nothing */
    meant[1] = (dur_meant){ .birth = 7 };
    MUST(dur_store_delete_meant(t->p, ids, meant, 2, true, &gone, ERR));
    SAME(gone.instances, 2);
    MUST(kit_put(t, kit_start(t, "a")));
    REFUSED(DUR_ECONFLICT, NULL, dur_store_delete_meant(t->p, ids + 1, meant + 1, 1, true, &gone, ERR));
    meant[1] = (dur_meant){ .start_id = kit_instance(t, "a").pending_start_id + 1000 };
    REFUSED(DUR_ECONFLICT, NULL, dur_store_delete_meant(t->p, ids + 1, meant + 1, 1, true, &gone, ERR));
    meant[1].start_id -= 1000;
    dur_orchestration_item item = TAKE("a");
    dur_turn_commit begins = COMMIT_OF(&item, EVENTS(ev_started(1)), NAMED);
    begins.metadata.birth = 11;
    MUST(kit_commit(t, &begins));
    REFUSED(DUR_ECONFLICT, NULL, dur_store_delete_meant(t->p, ids + 1, meant + 1, 1, true, &gone, ERR));
    meant[1] = (dur_meant){ .birth = 11 };
    MUST(dur_store_delete_meant(t->p, ids + 1, meant + 1, 1, true, &gone, ERR));
    MUST(kit_put(t, kit_start(t, "a")));
    meant[1] = (dur_meant){ .start_id = kit_instance(t, "a").pending_start_id };
    MUST(dur_store_delete_meant(t->p, ids + 1, meant + 1, 1, true, &gone, ERR));
    with_birth(t, "a", 0); /* brought here by other means: by any birth */
    meant[1] = (dur_meant){ .birth = 12 };
    MUST(dur_store_delete_meant(t->p, ids + 1, meant + 1, 1, true, &gone, ERR));
}

/* … or somebody has resumed it, or suspends it for a reason of his own. */
static void ours_take_over_knows_why_it_is_suspended(kit *t) {
    NEEDS("commit_turns", "get_instance", "set_suspended");
    dur_orchestration_item begun = { .instance = "begun", .execution_id = 1 };
    with_birth(t, "begun", 7);
    dur_turn_commit end = COMMIT_OF(&begun, EVENTS(ev_failed(2, "ended")), ENDS(FAILED, "ended"));
    end.take_over = end.remove_work = end.consume_listed = end.set_suspended = true;
    end.expected_last = 1;
    end.if_suspended = "this";
    FAULT(POSITION, &end);
    MUST(dur_store_set_suspended(t->p, "begun", "that", ERR));
    FAULT(POSITION, &end);
    MUST(dur_store_set_suspended(t->p, "begun", "this", ERR));
    MUST(kit_commit(t, &end));
    THAT(kit_instance(t, "begun").suspended == NULL);
}

static void ours_birth_is_written_once(kit *t) {
    NEEDS("commit_turns", "get_instance", "list_instances");
    with_birth(t, "a", 7);
    with_birth(t, "none", 0);
    SAME(kit_instance(t, "none").birth, 0);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    dur_turn_commit again = COMMIT_OF(&item, EVENTS(ev_external(2, "go")), NAMED);
    again.metadata.birth = 8;
    MUST(kit_commit(t, &again));
    SAME(kit_instance(t, "a").birth, 7);
    dur_instance_row *rows = NULL;
    size_t count = 0;
    MUST(dur_store_list_instances(t->p, t->arena, &(dur_instance_query){ .id_prefix = "a" }, &rows, &count, ERR));
    SAME(count, 1);
    SAME(rows[0].birth, 7);
    /* what came with its history and without a birth may be any */
    dur_event_row event = kit_row(t, "brought", 1, ev_started(1));
    MUST(dur_store_append(t->p, "brought", 1, &event, 1, ERR));
    SAME(child_of(t, "child", "brought", 9), DUR_TURN_FINE);
}

static void ours_release_takes_its_start_away(kit *t) {
    NEEDS("commit_turns", "get_instance");
    MUST(kit_put(t, kit_child(t, "a", "gone", 2)));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 2);
    MUST(kit_put(t, kit_child(t, "a", "alive", 2))); /* behind what was fetched */
    dur_turn_commit release = COMMIT_OF(&item, .event_count = 0);
    uint64_t ids[2] = { item.messages[0].id, item.messages[1].id };
    release.execution_id = 0;
    release.give_back = release.consume_listed = true;
    release.consumed = ids;
    release.consumed_count = 2;
    MUST(kit_commit(t, &release));
    item = TAKE("a"); /* the other start is a reason to look, and nothing has happened before it */
    SAME(item.message_count, 1);
    SAME(item.last_event_id, 0);
    SAME(item.attempt_count, 1);
    release = COMMIT_OF(&item, .event_count = 0);
    release.execution_id = 0;
    release.give_back = release.consume_listed = true;
    ids[0] = item.messages[0].id;
    release.consumed = ids;
    release.consumed_count = 1;
    MUST(kit_commit(t, &release));
    NOTHING();
    dur_instance_row row;
    REFUSED(DUR_ENOTFOUND, "not found", dur_store_get_instance(t->p, t->arena, "a", &row, ERR));
}

/* Starts behind an instance are calls of others: they outlive it, and the first of them is the next instance. */
/* Answers, and that a call is given up, are for whoever began before: if nobody is there, they go nowhere. */
static void ours_answers_to_nobody_go_nowhere(kit *t) {
    NEEDS("commit_turns", "delete_instances", "get_queue_depths");
    const char *const parent = "parent";
    dur_delete_result gone;
    dur_queue_depths depths;
    for (int deleted = 0; deleted <= 1; deleted++) {
        kit_create(t, parent);
        const char *child = deleted ? "b" : "a";
        MUST(kit_put(t, kit_start(t, child)));
        dur_orchestration_item item = TAKE(child);
        if (deleted) MUST(dur_store_delete_instances(t->p, &parent, 1, true, &gone, ERR));
        dur_work_item answer = { .kind = DUR_WORK_SUB_ORCH_COMPLETED, .instance = parent, .execution_id = 1, .id = 2 };
        answer.result = "done";
        dur_turn_commit end = COMMIT_OF(&item, EVENTS(ev_started(1), ev_done(2, "done")), ENDS(COMPLETED, "done"),
                                        MESSAGES(kit_message(t, &answer), kit_cancel(t, parent, "given up")));
        MUST(kit_commit(t, &end));
        MUST(dur_store_get_queue_depths(t->p, &depths, ERR));
        SAME(depths.orchestrator_queue, deleted ? 0 : 2);
        if (!deleted) MUST(dur_store_delete_instances(t->p, &parent, 1, true, &gone, ERR));
    }
    kit_create(t, parent); /* nothing waits for the next of that name */
    NOTHING();
}

static void ours_delete_leaves_the_calls_of_others(kit *t) {
    NEEDS("delete_instances", "get_instance");
    dur_delete_result result;
    kit_create(t, "a");
    MUST(kit_put(t, kit_start_as(t, "a", "First", "1.0.0")));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    MUST(kit_put(t, kit_start_as(t, "a", "Second", "1.0.0")));
    dur_orchestration_item item = TAKE("a"); /* they were handed out, too */
    SAME(item.message_count, 3);
    MUST(kit_delete(t, "a", true, &result));
    SAME(result.instances, 1);
    SAME(result.queue_messages, 1);
    REFUSED(DUR_ELEASE, NULL, dur_store_renew_orchestration_item_lock(t->p, item.lock_token, t->lock_ms, ERR));
    item = TAKE("a");
    SAME(item.history_count, 0);
    SAME(item.execution_id, 1);
    SAME(item.attempt_count, 1);
    SAME(item.message_count, 2);
    TEXT(item.orchestration_name, "First");
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, true, ERR));
    MUST(kit_delete(t, "a", true, &result)); /* now that one is the instance */
    SAME(result.queue_messages, 1);
    item = TAKE("a");
    SAME(item.message_count, 1);
    TEXT(item.orchestration_name, "Second");
    MUST(kit_delete(t, "a", true, &result));
    SAME(result.queue_messages, 1);
    THAT(!kit_exists(t, "a"));
    NOTHING();
}

const kit_check kit_ours_turns[] = {
    CHECK(ours_answers_to_nobody_go_nowhere),
    CHECK(ours_delete_leaves_the_calls_of_others),
    CHECK(ours_turn_without_options_is_an_ack),
    CHECK(ours_turn_lease_compared),
    CHECK(ours_turn_token_of_another_instance),
    CHECK(ours_turn_position_compared),
    CHECK(ours_turn_position_of_a_new_execution),
    CHECK(ours_turn_of_an_orphan_refused),
    CHECK(ours_turn_parent_known_by_birth),
    CHECK(ours_take_over_knows_who_is_meant),
    CHECK(ours_delete_knows_who_is_meant),
    CHECK(ours_take_over_knows_why_it_is_suspended),
    CHECK(ours_birth_is_written_once),
    CHECK(ours_release_takes_its_start_away),
    CHECK(ours_turn_consumes_listed_messages_only),
    CHECK(ours_turn_consumes_no_foreign_messages),
    CHECK(ours_turn_finishes_worker_rows),
    CHECK(ours_turn_with_lost_work_fails_whole),
    CHECK(ours_turn_drops_timers),
    CHECK(ours_turn_keeps_the_lease),
    CHECK(ours_turn_release_after_seeing_everything),
    CHECK(ours_turn_release_and_messages_not_seen),
    CHECK(ours_turn_release_with_delay),
    CHECK(ours_acquisitions_counted_and_cleared),
    CHECK(ours_release_and_counts),
    CHECK(ours_turn_creates_and_drops_a_timer),
    CHECK(ours_terminate),
    CHECK(ours_terminate_leaves_calls),
    CHECK(ours_terminate_leaves_queue_messages),
    CHECK(ours_take_over_takes_a_start_away),
    CHECK(ours_release_takes_a_start_away),
    CHECK(ours_turn_suspends),
    CHECK(ours_turns_answered_one_by_one),
    CHECK(ours_duplicate_event_in_an_array_of_turns),
    CHECKS_END,
};
