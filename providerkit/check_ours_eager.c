/*
 * check_ours_eager.c: our own: worker items that a turn inserts and locks in one step.
 */
#include "kit_internal.h"

/* A first turn that inserts these items; the commit is filled but not yet made. */
static dur_turn_commit first_turn(kit *t, const char *instance, const dur_message_row *work, size_t count) {
    MUST(kit_put(t, kit_start(t, instance)));
    dur_orchestration_item *item = dur_arena_zalloc(t->arena, sizeof(*item));
    *item = TAKE(instance);
    dur_turn_commit commit = COMMIT_OF(item, EVENTS(ev_started(1)), .work = work, .work_count = count, NAMED);
    commit.session_owner = "node";
    commit.session_lock_ms = t->lock_ms;
    return commit;
}

#define FIRST_TURN(instance, ...)                                                                                      \
    first_turn(t, (instance), (const dur_message_row[]){ __VA_ARGS__ },                                                \
               sizeof((const dur_message_row[]){ __VA_ARGS__ }) / sizeof(dur_message_row))

static dur_worker_claim claim_of(const dur_turn_work *work, const char *instance) {
    return (dur_worker_claim){ .ref = { .instance = instance,
                                        .execution_id = 1,
                                        .activity_id = work->message.activity_id,
                                        .row_id = work->row_id },
                               .lock_token = work->lock_token };
}

static void committed(kit *t, dur_turn_commit *commit) {
    MUST(kit_commit(t, commit));
    if (commit->worker_item_count > 0 && !commit->worker_items[0].locked)
        kit_skip(t, "the store does not lock eagerly");
}

static void owned(kit *t, dur_turn_commit *commit) {
    kit_owner(t, "me");
    commit->owner = "me";
}

static void ours_eager_lock_is_a_lock(kit *t) {
    NEEDS("commit_turns", "owner_register");
    dur_turn_commit commit = FIRST_TURN("a", kit_activity(t, "a", 2), kit_activity(t, "a", 3));
    owned(t, &commit);
    commit.worker_items[0].lock_token = "eager-1";
    committed(t, &commit);
    THAT(!commit.worker_items[1].locked); /* not asked for */
    TAKE_WORK(3);
    NO_WORK();
    dur_message_row done = kit_finished(t, "a", 1, 2, "r");
    MUST(dur_store_ack_work_item(t->p, "eager-1", &done, ERR));
    SAME(TAKE("a").message_count, 1);
}

static void ours_eager_lock_without_an_owner_ends(kit *t) {
    NEEDS("commit_turns", "check_works");
    dur_turn_commit commit = FIRST_TURN("a", kit_activity(t, "a", 2));
    commit.worker_items[0].lock_token = "eager-1";
    MUST(kit_commit(t, &commit));
    if (!commit.worker_items[0].locked) { /* no owner, no time given: it may refuse, but then it is anybody's */
        TAKE_WORK(2);
        return;
    }
    NO_WORK();
}

static void ours_eager_row_finished_by_a_turn(kit *t) {
    NEEDS("commit_turns", "owner_register");
    dur_turn_commit commit = FIRST_TURN("a", kit_activity(t, "a", 2));
    owned(t, &commit);
    commit.worker_items[0].lock_token = "eager-1";
    commit.keep_lease = true;
    committed(t, &commit);
    dur_orchestration_item item = { .instance = "a", .execution_id = 1, .lock_token = commit.lock_token };
    dur_worker_claim claim = claim_of(&commit.worker_items[0], "a");
    dur_turn_commit next = COMMIT_OF(&item, EVENTS(ev_activity_done(2, 2)));
    next.owner = "me";
    next.expected_last = 1;
    next.consume_listed = true;
    next.worker_consumed = &claim;
    next.worker_consumed_count = 1;
    MUST(kit_commit(t, &next));
    NO_WORK();
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, "eager-1", NULL, ERR));
}

static void ours_eager_row_given_back(kit *t) {
    NEEDS("commit_turns", "owner_register", "return_works");
    dur_turn_commit commit = FIRST_TURN("a", kit_activity_in(t, "a", 1, 2, NULL, "gpu"), kit_activity(t, "a", 3));
    owned(t, &commit);
    commit.worker_items[0].lock_token = "eager-1";
    committed(t, &commit);
    dur_worker_claim claim = claim_of(&commit.worker_items[0], "a");
    MUST(dur_store_return_works(t->p, &claim, 1, ERR));
    TAKE_WORK(3); /* the tag still keeps it from those who do not take it */
    NO_WORK();
    SAME(TAKE_WORK_AS(2, TAGS(ONLY, "gpu")).attempt_count, 1); /* it was never run */
}

static void ours_eager_row_cancelled(kit *t) {
    NEEDS("commit_turns", "owner_register", "check_works");
    dur_turn_commit commit = FIRST_TURN("a", kit_activity(t, "a", 2), kit_activity(t, "a", 3));
    owned(t, &commit);
    commit.worker_items[0].lock_token = "eager-1";
    commit.worker_items[1].lock_token = "eager-2";
    dur_activity_ref at_once = REF("a", 1, 3);
    commit.cancelled = &at_once;
    commit.cancelled_count = 1;
    commit.keep_lease = true;
    committed(t, &commit);
    dur_worker_claim claims[] = { claim_of(&commit.worker_items[0], "a"), claim_of(&commit.worker_items[1], "a") };
    bool lost[2] = { true, false };
    MUST(dur_store_check_works(t->p, claims, 2, 0, lost, ERR));
    THAT(!lost[0]);
    THAT(lost[1]); /* inserted, locked and cancelled in one turn: it is not there */
    dur_orchestration_item item = { .instance = "a", .execution_id = 1, .lock_token = commit.lock_token };
    dur_turn_commit next = COMMIT_OF(&item, EVENTS(ev_external(2, "x")), CANCELLED(REF("a", 1, 2)));
    next.owner = "me";
    next.consume_listed = true;
    MUST(kit_commit(t, &next));
    MUST(dur_store_check_works(t->p, claims, 2, 0, lost, ERR));
    THAT(lost[0]);
}

static void ours_eager_lock_claims_the_session(kit *t) {
    NEEDS("commit_turns", "owner_register");
    dur_turn_commit commit =
        FIRST_TURN("a", kit_activity_in(t, "a", 1, 2, "s", NULL), kit_activity_in(t, "a", 1, 3, "s", NULL));
    owned(t, &commit);
    commit.worker_items[0].lock_token = "eager-1";
    committed(t, &commit);
    NO_WORK_AS(SESSION("other")); /* item 3 belongs to the same session */
    TAKE_WORK_AS(3, SESSION("node"));
}

static void ours_eager_lock_respects_sessions(kit *t) {
    NEEDS("commit_turns", "owner_register");
    MUST(kit_put_work(t, kit_activity_in(t, "x", 1, 1, "taken", NULL)));
    TAKE_WORK_AS(1, SESSION("other"));
    dur_turn_commit commit = FIRST_TURN("a", kit_activity(t, "a", 5), kit_activity_in(t, "a", 1, 2, "taken", NULL));
    owned(t, &commit);
    commit.worker_items[0].lock_token = "eager-1";
    commit.worker_items[1].lock_token = "eager-2";
    committed(t, &commit);
    THAT(!commit.worker_items[1].locked); /* somebody else's */
    NO_WORK_AS(SESSION("node"));
    SAME(TAKE_WORK_AS(2, SESSION("other")).attempt_count, 1);
}

static void ours_eager_lock_without_session_owner(kit *t) {
    NEEDS("commit_turns", "owner_register");
    dur_turn_commit commit = FIRST_TURN("a", kit_activity(t, "a", 5), kit_activity_in(t, "a", 1, 2, "s", NULL));
    owned(t, &commit);
    commit.session_owner = NULL;
    commit.worker_items[0].lock_token = "eager-1";
    commit.worker_items[1].lock_token = "eager-2";
    committed(t, &commit);
    THAT(!commit.worker_items[1].locked); /* nobody to claim it for */
    TAKE_WORK_AS(2, SESSION("other"));
}

static void ours_eager_lock_of_a_failed_turn(kit *t) {
    NEEDS("commit_turns", "owner_register");
    dur_turn_commit commit = FIRST_TURN("a", kit_activity_in(t, "a", 1, 2, "s", NULL));
    owned(t, &commit);
    commit.worker_items[0].lock_token = "eager-1";
    commit.expected_last = 7;
    THAT(kit_commit(t, &commit) != DUR_OK);
    THAT(!commit.worker_items[0].locked);
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, "eager-1", NULL, ERR));
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 9, "s", NULL)));
    TAKE_WORK_AS(9, SESSION("other")); /* no claim was left behind */
}

static void ours_consumed_row_moves_its_session(kit *t) {
    NEEDS("commit_turns");
    uint64_t renewed = 0;
    const char *owners[] = { "node" };
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), WORK(kit_activity_in(t, "a", 1, 2, "s", NULL)),
             MESSAGES(kit_raised(t, "a", "go", "")), NAMED));
    dur_leased_work work = TAKE_WORK_AS(2, SESSION("node"));
    kit_advance(t, t->lock_ms * 3 / 10);
    item = TAKE("a");
    dur_worker_claim claim = { .ref = work.ref, .lock_token = work.lock_token };
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_activity_done(2, 2)));
    commit.worker_consumed = &claim;
    commit.worker_consumed_count = 1;
    MUST(kit_commit(t, &commit));
    kit_advance(t, t->lock_ms * 3 / 10);
    MUST(dur_store_renew_session_lock(t->p, owners, 1, t->lock_ms, t->lock_ms * 45 / 100, &renewed, ERR));
    SAME(renewed, 1);
}

#define LONG "a-node-whose-name-is-longer-than-what-a-short-column-holds-of-it-"

static void ours_eager_lock_tells_nodes_apart(kit *t) {
    NEEDS("commit_turns", "owner_register");
    MUST(kit_put_work(t, kit_activity_in(t, "b", 1, 9, "s", NULL)));
    TAKE_WORK_AS(9, SESSION(LONG "1"));
    dur_turn_commit commit = FIRST_TURN("a", kit_activity(t, "a", 2), kit_activity_in(t, "a", 1, 3, "s", NULL));
    owned(t, &commit);
    commit.worker_items[0].lock_token = "eager-1";
    commit.worker_items[1].lock_token = "eager-2";
    commit.session_owner = LONG "2";
    committed(t, &commit);
    THAT(!commit.worker_items[1].locked);
    TAKE_WORK_AS(3, SESSION(LONG "1"));
}

/* As by a fetch: the node may come back. */
static void ours_eager_claim_outlives_its_owner(kit *t) {
    NEEDS("commit_turns", "owner_register", "owner_release");
    dur_turn_commit commit = FIRST_TURN("a", kit_activity_in(t, "a", 1, 2, "s", NULL));
    owned(t, &commit);
    commit.worker_items[0].lock_token = "eager-1";
    committed(t, &commit);
    MUST(dur_store_owner_release(t->p, "me", ERR));
    NO_WORK_AS(SESSION("other"));
    TAKE_WORK_AS(2, SESSION("node"));
}

const kit_check kit_ours_eager[] = {
    CHECK(ours_eager_lock_is_a_lock),
    CHECK(ours_eager_lock_without_an_owner_ends),
    CHECK(ours_eager_row_finished_by_a_turn),
    CHECK(ours_eager_row_given_back),
    CHECK(ours_eager_row_cancelled),
    CHECK(ours_eager_lock_claims_the_session),
    CHECK(ours_eager_lock_respects_sessions),
    CHECK(ours_eager_lock_without_session_owner),
    CHECK(ours_eager_lock_of_a_failed_turn),
    CHECK(ours_consumed_row_moves_its_session),
    CHECK(ours_eager_lock_tells_nodes_apart),
    CHECK(ours_eager_claim_outlives_its_owner),
    CHECKS_END,
};
