/*
 * check_ours_facts.c: our own: what follows from several fields of a turn together.
 *
 * Each is a difference that stores had (compare_turns.c finds them); the comparison needs two stores, these need one.
 */
#include "kit_internal.h"

/* A running instance with event 1, and a message that waits. */
static dur_orchestration_item running(kit *t, const char *owner) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), MESSAGES(kit_raised(t, "a", "go", "")), NAMED));
    return ACQUIRE(owner, "a");
}

static void ours_turn_that_records_nothing_begins_no_execution(kit *t) {
    NEEDS("commit_turns", "fetch_turns", "list_executions");
    dur_orchestration_item item = running(t, NULL);
    dur_turn_commit commit = COMMIT_OF(&item, .execution = 2);
    commit.consume_listed = true;
    MUST(kit_commit(t, &commit));
    SAME(kit_instance(t, "a").current_execution_id, 1);
    item = ACQUIRE(NULL, "a");
    commit = COMMIT_OF(&item, .execution = 2); /* the ack does */
    MUST(kit_commit(t, &commit));
    SAME(kit_instance(t, "a").current_execution_id, 2);
}

static void ours_turn_lease_is_compared_first(kit *t) {
    NEEDS("commit_turns", "fetch_turns");
    running(t, NULL);
    dur_orchestration_item other = { .instance = "a", .execution_id = 1 };
    dur_turn_commit end = COMMIT_OF(&other, EVENTS(ev_failed(9, "ended")));
    end.take_over = end.if_unleased = end.consume_listed = true;
    end.expected_last = 8; /* wrong, too */
    THAT(kit_commit(t, &end) != DUR_OK);
    SAME(end.fault, DUR_TURN_LEASE_LOST);
    SAME(end.error.code, DUR_ELEASE);
}

static void ours_turn_locks_work_for_an_owner_only(kit *t) {
    NEEDS("commit_turns", "fetch_turns", "owner_register");
    kit_owner(t, "o1");
    dur_orchestration_item item = running(t, "o1");
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_scheduled(2)), WORK(kit_activity(t, "a", 2)));
    commit.worker_items[0].lock_token = "eager";
    commit.keep_lease = commit.consume_listed = true;
    MUST(kit_commit(t, &commit)); /* of a turn without an owner */
    THAT(!commit.worker_items[0].locked);
    commit = COMMIT_OF(&item, EVENTS(ev_scheduled(3)), WORK(kit_activity(t, "a", 3)));
    commit.worker_items[0].lock_token = "";
    commit.owner = "o1";
    MUST(kit_commit(t, &commit));
    THAT(!commit.worker_items[0].locked);
    TAKE_WORK(2);
    TAKE_WORK(3);
}

static void ours_turn_reason_without_suspension_is_none(kit *t) {
    NEEDS("commit_turns", "fetch_turns", "owner_register", "get_instance");
    kit_owner(t, "o1");
    dur_orchestration_item item = running(t, "o1");
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(2, "go")));
    commit.owner = "o1";
    commit.keep_lease = true;
    commit.suspended = "not looked at";
    MUST(kit_commit(t, &commit));
    THAT(commit.lease_kept);
    TEXT(kit_instance(t, "a").suspended, NULL);
}

static void ours_turn_that_contradicts_itself_is_refused(kit *t) {
    NEEDS("commit_turns", "fetch_turns");
    dur_orchestration_item item = running(t, NULL);
    dur_turn_commit back = COMMIT_OF(&item, EVENTS(ev_external(2, "go")));
    back.consume_listed = back.give_back = true;
    REFUSED(DUR_EINVAL, NULL, dur_store_commit_turns(t->p, &back, 1, ERR));
    dur_turn_commit release = COMMIT_OF(&item, EVENTS(ev_external(2, "go")));
    release.execution_id = 0;
    REFUSED(DUR_EINVAL, NULL, dur_store_commit_turns(t->p, &release, 1, ERR));
    SAME(kit_history(t, "a", 1, NULL), 1);
    MUST(ACK(&item, EVENTS(ev_external(2, "go")))); /* nothing has happened to its lease */
}

static void ours_turn_consumes_work_and_removes_the_rest(kit *t) {
    NEEDS("commit_turns", "fetch_turns");
    MUST(kit_put_work(t, kit_activity(t, "a", 8)));
    MUST(kit_put_work(t, kit_activity(t, "a", 9)));
    dur_leased_work mine = TAKE_WORK(8);
    dur_orchestration_item item = running(t, NULL);
    dur_worker_claim claim = { .ref = mine.ref, .lock_token = mine.lock_token };
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(2, "go")));
    commit.worker_consumed = &claim;
    commit.worker_consumed_count = 1;
    commit.consume_listed = commit.remove_work = true;
    MUST(kit_commit(t, &commit));
    NO_WORK();
}

static void ours_take_over_clears_attempts(kit *t) {
    NEEDS("commit_turns", "fetch_turns");
    dur_orchestration_item item = running(t, NULL);
    if (item.acquisitions == 0) kit_skip(t, "the store does not count acquisitions");
    dur_orchestration_item other = { .instance = "a", .execution_id = 1 };
    dur_turn_commit taken = COMMIT_OF(&other, EVENTS(ev_external(2, "go")));
    taken.take_over = taken.consume_listed = true;
    MUST(kit_commit(t, &taken));
    item = ACQUIRE(NULL, "a");
    SAME(item.acquisitions, 1);
    SAME(item.attempt_count, 1);
}

const kit_check kit_ours_facts[] = {
    CHECK(ours_turn_that_records_nothing_begins_no_execution),
    CHECK(ours_turn_lease_is_compared_first),
    CHECK(ours_turn_locks_work_for_an_owner_only),
    CHECK(ours_turn_reason_without_suspension_is_none),
    CHECK(ours_turn_that_contradicts_itself_is_refused),
    CHECK(ours_turn_consumes_work_and_removes_the_rest),
    CHECK(ours_take_over_clears_attempts),
    CHECKS_END,
};
