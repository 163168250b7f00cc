/*
 * check_ours_details.c: our own: single fields of the contract that broken stores had wrong and nothing else looked at
 * (tests/mutants/strangers.txt).
 */
#include "kit_internal.h"

/* ---- items ------------------------------------------------------------------------------------------------------- */

static void ours_handler_is_that_of_the_next_execution(kit *t) {
    NEEDS("get_instance", "list_unserved");
    kit_create(t, "a");
    TEXT(kit_instance(t, "a").handler, KIT_NAME "@" KIT_VERSION);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    dur_message_row next = kit_message(t, &(dur_work_item){ .kind = DUR_WORK_CONTINUE_AS_NEW,
                                                            .instance = "a",
                                                            .orchestration = "Next",
                                                            .version = "2.0.0",
                                                            .input = "n" });
    MUST(ACK(&item, EVENTS(ev_continued(2, "n")), MESSAGES(next),
             .meta = { .status = DUR_STATUS_CONTINUED_AS_NEW, .output = "n" }));
    TEXT(kit_instance(t, "a").handler, "Next@2.0.0");
    item = TAKE("a");
    MUST(ACK(&item, .execution = 2, EVENTS(ev_started(1), ev_done(2, "")), ENDS(COMPLETED, "")));
    TEXT(kit_instance(t, "a").handler, NULL); /* anybody may clear up behind it */
}

static void ours_handler_goes_with_its_start(kit *t) {
    NEEDS("get_instance", "list_unserved", "commit_turns");
    MUST(kit_put(t, kit_start_as(t, "a", "Red", "1.0.0")));
    MUST(kit_put(t, kit_start_as(t, "a", "Blue", "1.0.0")));
    TEXT(kit_instance(t, "a").handler, "Red@1.0.0");
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 2);
    dur_turn_commit release = { .lock_token = item.lock_token,
                                .instance = "a",
                                .store_key = item.store_key,
                                .expected_last = DUR_NOT_COMPARED,
                                .consume_listed = true,
                                .consumed = &item.messages[0].id,
                                .consumed_count = 1 };
    MUST(kit_commit(t, &release));
    TEXT(kit_instance(t, "a").handler, "Blue@1.0.0");
}

/* The largest, wherever in the order it stands. */
static void ours_attempt_of_an_item_is_its_largest(kit *t) {
    kit_create(t, "a");
    kit_advance(t, 500);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    for (int i = 0; i < 2; i++)
        MUST(dur_store_abandon_orchestration_item(t->p, TAKE("a").lock_token, 0, false, ERR));
    MUST(kit_put(t, kit_timer(t, "a", 1, 2, dur_store_now_ms(t->p) - 300)));
    MUST(kit_put(t, kit_raised(t, "a", "last", "")));
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 3);
    SAME(item.messages[0].attempt_count, 1);
    SAME(item.messages[1].attempt_count, 3);
    SAME(item.attempt_count, 3);
}

static void ours_version_is_pinned_for_an_execution(kit *t) {
    const dur_version_range ones = { { 1, 0, 0 }, { 1, 9, 9 } };
    const dur_capability_filter first = { &ones, 1 };
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), PINNED(9, 9, 9)));
    kit_continue(t, "a", 1); /* whose turns pin nothing */
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    TEXT(kit_fetch_for(t, &first).instance, "a");
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

static dur_orchestration_item held(kit *t, const char *instance) {
    kit_create(t, instance);
    MUST(kit_put(t, kit_raised(t, instance, "go", "")));
    return ACQUIRE("me", instance);
}

static void ours_eager_lock_is_an_attempt(kit *t) {
    NEEDS("commit_turns", "fetch_turns", "owner_register");
    kit_owner(t, "me");
    dur_orchestration_item item = held(t, "a");
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_scheduled(2)), WORK(kit_activity(t, "a", 2)));
    commit.owner = "me";
    commit.consume_listed = commit.keep_lease = true;
    commit.worker_items[0].lock_token = "eager-token";
    MUST(kit_commit(t, &commit));
    if (!commit.worker_items[0].locked) kit_skip(t, "the store does not lock eagerly");
    MUST(dur_store_abandon_work_item(t->p, "eager-token", 0, false, ERR));
    SAME(TAKE_WORK(2).attempt_count, 2);
}

static void ours_local_work_needs_a_lane(kit *t) {
    NEEDS("commit_turns", "fetch_turns", "owner_register");
    kit_owner(t, "me");
    dur_orchestration_item item = held(t, "a");
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_scheduled(2)), WORK(kit_activity(t, "a", 2)));
    commit.owner = "me";
    commit.consume_listed = commit.keep_lease = true;
    commit.open = 1;
    commit.worker_items[0].lock_token = "eager-token";
    commit.worker_items[0].may_be_local = true;
    MUST(kit_commit(t, &commit));
    THAT(!commit.worker_items[0].local); /* there is nobody who would have it alone */
    if (!commit.worker_items[0].locked) TAKE_WORK(2);
}

static void ours_taking_work_is_activity_of_its_session(kit *t) {
    static const char *const nodes[] = { "A" };
    uint64_t renewed = 9, third = t->lock_ms / 3;
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2, "s", NULL)));
    TAKE_WORK_AS(1, SESSION("A"));
    kit_advance(t, third);
    TAKE_WORK_AS(2, SESSION("A"));
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, t->lock_ms, third / 2, &renewed, ERR));
    SAME(renewed, 1);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static uint64_t stamp_of(kit *t, const dur_key_value *values, size_t count, const char *key) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(values[i].key, key) == 0) return values[i].last_updated_at_ms;
    kit_fail(t, __FILE__, __LINE__, "no value of %s", key);
}

static void ours_value_has_the_stamp_of_its_last_write(kit *t) {
    dur_key_value *values = NULL;
    size_t count = 0;
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "1"), ev_set(3, "l", "1"));
    STEP("a", 1, ev_set(4, "k", "2"));
    MUST(dur_store_get_kv_all_values(t->p, t->arena, "a", &values, &count, ERR));
    SAME(stamp_of(t, values, count, "k"), 1700000000004u);
    SAME(stamp_of(t, values, count, "l"), 1700000000003u);
    kit_continue(t, "a", 1);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, .execution = 2, EVENTS(ev_set(9, "l", "2"))));
    SAME(stamp_of(t, item.kv, item.kv_count, "k"), 1700000000004u);
    MUST(dur_store_get_kv_all_values(t->p, t->arena, "a", &values, &count, ERR));
    SAME(stamp_of(t, values, count, "k"), 1700000000004u);
    SAME(stamp_of(t, values, count, "l"), 1700000000009u);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* A queue message of "a" waits and was seen: it is no reason to fetch. */
static void leave_seen(kit *t) {
    kit_create(t, "a");
    MUST(kit_put(t, kit_queued(t, "a", "q", "left")));
    dur_orchestration_item item = ACQUIRE(NULL, "a");
    dur_turn_commit release = COMMIT_OF(&item, EVENTS(ev_external(2, "x")));
    release.consume_listed = true;
    release.seen_id = item.messages[0].id;
    release.seen_now_ms = dur_store_now_ms(t->p);
    MUST(kit_commit(t, &release));
    NOTHING();
}

static void ours_terminated_looks_at_what_it_had_seen(kit *t) {
    NEEDS("commit_turns", "fetch_turns");
    leave_seen(t);
    dur_orchestration_item nobody = { .instance = "a", .execution_id = 1 };
    dur_turn_commit end = COMMIT_OF(&nobody, EVENTS(ev_failed(3, "x")), ENDS(FAILED, "x"));
    end.take_over = end.remove_work = end.consume_listed = true;
    MUST(kit_commit(t, &end));
    SAME(TAKE("a").message_count, 1); /* somebody has to make a dead letter of it */
}

static void ours_turn_that_resumes_looks_at_what_was_seen(kit *t) {
    NEEDS("commit_turns", "fetch_turns", "set_suspended");
    leave_seen(t);
    MUST(dur_store_set_suspended(t->p, "a", "on purpose", ERR));
    dur_turn_commit resume = { .instance = "a",
                               .take_over = true,
                               .if_suspended = "on purpose",
                               .set_suspended = true,
                               .consume_listed = true,
                               .expected_last = DUR_NOT_COMPARED };
    MUST(kit_commit(t, &resume));
    SAME(TAKE("a").message_count, 1);
}

/* Only a turn with events says how much is open. */
static void ours_open_is_said_by_turns_with_events(kit *t) {
    NEEDS("commit_turns", "fetch_turns", "owner_register", "owner_release");
    if (!t->p->methods->local_work) kit_skip(t, "the store stores all work");
    kit_owner(t, "me");
    dur_orchestration_item item = held(t, "a");
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_scheduled(2)));
    commit.owner = "me";
    commit.consume_listed = commit.keep_lease = true;
    commit.consumed = &item.messages[0].id;
    commit.consumed_count = 1;
    commit.open = 1;
    MUST(kit_commit(t, &commit));
    dur_turn_commit bare = COMMIT_OF(&item, NAMED); /* writes, but no events */
    bare.owner = "me";
    bare.consume_listed = bare.keep_lease = true;
    MUST(kit_commit(t, &bare));
    THAT(bare.lease_kept);
    MUST(dur_store_owner_release(t->p, "me", ERR));
    item = TAKE("a");
    THAT(item.work_lost);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

typedef struct desk {
    dur_lane *lane;
    const char *owner;
    dur_fetch fetch;
    dur_work_fetch work;
} desk;

static desk open_desk(kit *t) {
    NEEDS("lane_open", "lane_round");
    bool owners = dur_store_has(t->p, "owner_register");
    if (owners) kit_owner(t, "me");
    desk out = { .lane = kit_lane(t, owners ? "me" : NULL), .owner = owners ? "me" : NULL };
    out.fetch = (dur_fetch){ .lock_ms = 100 * t->lock_ms, .owner = out.owner, .max = 1 };
    out.work = (dur_work_fetch){ .lock_ms = 100 * t->lock_ms, .owner = out.owner, .max = 1 };
    return out;
}

static dur_round round_of(kit *t, const desk *at, dur_round round) {
    kit_round(t, at->lane, &round);
    return round;
}
#define ROUND(...) round_of(t, &me, (dur_round){ __VA_ARGS__ })

static void ours_round_says_that_there_is_more(kit *t) {
    desk me = open_desk(t);
    for (int i = 0; i < 2; i++)
        MUST(kit_put(t, kit_start(t, kit_format(t, "i-%d", i))));
    dur_round round = ROUND(.fetch = &me.fetch);
    SAME(round.item_count, 1);
    THAT(round.more);
    round = ROUND(.fetch = &me.fetch);
    SAME(round.item_count, 1);
    for (uint64_t i = 1; i <= 2; i++)
        MUST(kit_put_work(t, kit_activity(t, "b", i)));
    round = ROUND(.work = &me.work);
    SAME(round.work_count, 1);
    THAT(round.more);
    THAT(!round.work_waiting_long); /* it came a moment ago */
    THAT(round.now_ms + 60000 > dur_store_now_ms(t->p) && round.now_ms < dur_store_now_ms(t->p) + 60000);
}

static void ours_round_tells_when_a_delay_of_work_ends(kit *t) {
    desk me = open_desk(t);
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    MUST(dur_store_abandon_work_item(t->p, TAKE_WORK(1).lock_token, 400, false, ERR));
    dur_round round = ROUND(.fetch = &me.fetch, .work = &me.work);
    SAME(round.work_count, 0);
    THAT(round.next_due_ms <= round.now_ms + 401);
    kit_advance(t, 450);
    SAME(ROUND(.work = &me.work).work_count, 1);
}

/* In a round there is an arena for the list. */
static void ours_round_names_the_work_that_is_lost(kit *t) {
    NEEDS("commit_turns");
    desk me = open_desk(t);
    dur_leased_work works[3];
    dur_worker_claim claims[3];
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    for (uint64_t i = 0; i < 3; i++) {
        MUST(kit_put_work(t, kit_activity(t, "a", i)));
        works[i] = TAKE_WORK(i);
        claims[i] = (dur_worker_claim){ .ref = works[i].ref, .lock_token = works[i].lock_token };
    }
    for (size_t i = 1; i < 3; i++)
        MUST(dur_store_ack_work_item(t->p, works[i].lock_token, NULL, ERR));
    dur_round round = ROUND(.fetch = &me.fetch);
    SAME(round.item_count, 1);
    dur_turn_commit turn = COMMIT_OF(&round.items[0], EVENTS(ev_external(2, "go")));
    turn.owner = me.owner;
    turn.worker_consumed = claims;
    turn.worker_consumed_count = 3;
    ROUND(.turns = &turn, .turn_count = 1);
    SAME(turn.fault, DUR_TURN_WORK_LOST);
    SAME(turn.lost_work_count, 2);
    THAT(turn.lost_work != NULL && turn.lost_work[0] == &claims[1] && turn.lost_work[1] == &claims[2]);
}

static void ours_lane_history_is_of_the_execution_that_is_asked_for(kit *t) {
    NEEDS("lane_history");
    desk me = open_desk(t);
    dur_orchestration_item got;
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "old"));
    kit_continue(t, "a", 1);
    STEP("a", 2, ev_set(2, "k", "new"));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_round round = ROUND(.fetch = &me.fetch);
    SAME(round.item_count, 1);
    const char *token = round.items[0].lock_token;
    MUST(dur_store_lane_history(me.lane, t->arena, "a", token, 1, &got, ERR));
    SAME(got.history_count, 3);
    MUST(dur_store_lane_history(me.lane, t->arena, "a", token, 2, &got, ERR));
    SAME(got.history_count, 2);
    TEXT(kit_snapshot(&got, "k"), "old"); /* replay comes to the other by itself */
}

static void ours_lane_messages_are_handed_out(kit *t) {
    NEEDS("lane_messages");
    desk me = open_desk(t);
    dur_fetched_message *got = NULL;
    size_t count = 0;
    kit_create(t, "a");
    MUST(kit_put(t, kit_queued(t, "a", "q", "m0")));
    MUST(kit_put(t, kit_queued(t, "a", "q", "m1")));
    me.fetch.queue_messages_max = 1;
    dur_round round = ROUND(.fetch = &me.fetch);
    SAME(round.item_count, 1);
    SAME(round.items[0].message_count, 1);
    const dur_fetched_message *first = &round.items[0].messages[0];
    MUST(dur_store_lane_messages(me.lane, t->arena, "a", round.items[0].lock_token, "q", first->due_ms, first->id, 9,
                                 &got, &count, ERR));
    SAME(count, 1);
    MUST(kit_put(t, kit_queued(t, "a", "q", "m2")));
    round = ROUND(.queue_messages_max = 0);
    SAME(round.held_count, 1);
    THAT(kit_says(round.held[0].message.json, "m2"));
}

static void ours_lane_needs_its_owner(kit *t) {
    NEEDS("lane_open", "owner_register");
    dur_lane *lane = NULL;
    if (t->waker == NULL) t->waker = dur_waker_new();
    dur_lane_options options = { .owner = "nobody", .waker = t->waker };
    REFUSED(DUR_ESTATE, NULL, dur_store_lane_open(t->p, &options, &lane, ERR));
}

/* ---- counts and ends --------------------------------------------------------------------------------------------- */

/* Only the fetch that is given back is taken off, not what a round handed out beside it. */
static void ours_give_back_uncounts_what_the_fetch_has_counted(kit *t) {
    NEEDS("commit_turns", "lane_messages");
    desk me = open_desk(t);
    kit_create(t, "a");
    MUST(kit_put(t, kit_queued(t, "a", "q", "m0")));
    MUST(kit_put(t, kit_queued(t, "a", "q", "m1")));
    MUST(dur_store_abandon_orchestration_item(t->p, TAKE("a").lock_token, 0, false, ERR));
    me.fetch.queue_messages_max = 1;
    dur_round round = ROUND(.fetch = &me.fetch);
    SAME(round.item_count, 1);
    dur_orchestration_item item = round.items[0];
    SAME(item.message_count, 1);
    SAME(item.attempt_count, 2);
    dur_fetched_message *more = NULL;
    size_t count = 0;
    MUST(dur_store_lane_messages(me.lane, t->arena, "a", item.lock_token, "q", item.messages[0].due_ms,
                                 item.messages[0].id, 9, &more, &count, ERR));
    SAME(count, 1);
    dur_turn_commit back = COMMIT_OF(&item, .event_count = 0);
    back.execution_id = 0;
    back.owner = me.owner;
    back.consume_listed = back.give_back = true;
    ROUND(.turns = &back, .turn_count = 1);
    SAME(back.error.code, DUR_OK);
    item = TAKE("a");
    SAME(item.message_count, 2);
    SAME(item.messages[0].attempt_count, 2);
    SAME(item.messages[1].attempt_count, 2);
}

static void ours_waiting_instance_was_created_with_its_first_start(kit *t) {
    NEEDS("get_instance");
    MUST(kit_put(t, kit_start(t, "a")));
    uint64_t created = kit_instance(t, "a").created_at_ms;
    kit_advance(t, 50);
    MUST(kit_put(t, kit_start(t, "a")));
    SAME(kit_instance(t, "a").created_at_ms, created);
}

static void ours_ended_is_not_suspended(kit *t) {
    NEEDS("commit_turns", "set_suspended", "get_instance");
    kit_create(t, "a");
    MUST(dur_store_set_suspended(t->p, "a", "on purpose", ERR));
    dur_orchestration_item nobody = { .instance = "a", .execution_id = 1 };
    dur_turn_commit end = COMMIT_OF(&nobody, EVENTS(ev_failed(2, "x")), ENDS(FAILED, "x"));
    end.take_over = end.remove_work = end.consume_listed = true;
    MUST(kit_commit(t, &end));
    TEXT(kit_instance(t, "a").suspended, NULL);
    MUST(kit_put(t, kit_raised(t, "a", "late", "")));
    SAME(TAKE("a").message_count, 1); /* nobody would resume it */
}

static void ours_values_of_a_failure_are_kept(kit *t) {
    kit_create(t, "a");
    STEP_END("a", 1, FAILED, "why", ev_set(2, "k", "v"), ev_failed(3, "why"));
    TEXT(kit_value(t, "a", "k"), "v");
    MUST(kit_put(t, kit_raised(t, "a", "late", "")));
    dur_orchestration_item item = TAKE("a");
    TEXT(kit_snapshot(&item, "k"), "v");
}

/* ---- smaller things ---------------------------------------------------------------------------------------------- */

static void ours_every_row_of_an_activity_is_cancelled(kit *t) {
    MUST(kit_put_work(t, kit_activity(t, "a", 2)));
    MUST(kit_put_work(t, kit_activity(t, "a", 2)));
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_external(2, "go")), CANCELLED(REF("a", 1, 2))));
    NO_WORK();
}

static void ours_dead_work_has_its_reason(kit *t) {
    NEEDS("list_dead_letters", "dead_letter_work");
    dur_dead_letter *rows = NULL;
    size_t count = 0;
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    MUST(dur_store_dead_letter_work(t->p, TAKE_WORK(1).lock_token, "cannot be read", ERR));
    MUST(dur_store_list_dead_letters(t->p, t->arena, 0, 9, &rows, &count, ERR));
    SAME(count, 1);
    TEXT(rows[0].reason, "cannot be read");
}

static void ours_max_of_0_is_1(kit *t) {
    NEEDS("fetch_turns", "fetch_works");
    dur_orchestration_item items[2];
    dur_leased_work works[2];
    size_t count = 0;
    for (uint64_t i = 1; i <= 2; i++) {
        MUST(kit_put(t, kit_start(t, kit_format(t, "i-%d", (int)i))));
        MUST(kit_put_work(t, kit_activity(t, "a", i)));
    }
    MUST(dur_store_fetch_turns(t->p, t->arena, &(dur_fetch){ .lock_ms = t->lock_ms }, items, &count, ERR));
    SAME(count, 1);
    MUST(dur_store_fetch_works(t->p, t->arena, &(dur_work_fetch){ .lock_ms = t->lock_ms }, works, &count, ERR));
    SAME(count, 1);
}

static void ours_sessions_under_an_owner_are_renewed(kit *t) {
    NEEDS("owner_register", "fetch_works");
    static const char *const nodes[] = { "node" };
    dur_leased_work work;
    uint64_t renewed = 9;
    size_t count = 0;
    kit_owner(t, "me");
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    dur_work_fetch how = { .owner = "me", .max = 1, SESSION("node") };
    MUST(dur_store_fetch_works(t->p, t->arena, &how, &work, &count, ERR));
    SAME(count, 1);
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, t->lock_ms, 100 * t->lock_ms, &renewed, ERR));
    SAME(renewed, 1);
}

static void ours_owner_that_names_nothing_has_everything(kit *t) {
    NEEDS("owner_register", "list_unserved", "get_instance");
    dur_unserved *rows = NULL;
    size_t count = 9;
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(kit_put_work(t, kit_activity(t, "b", 1)));
    SAME(kit_instance(t, "a").current_execution_id, 1);
    THAT(t->view != NULL || kit_instance(t, "a").unserved); /* there is no owner at all, but where others have theirs */
    kit_owner(t, "me");
    THAT(!kit_instance(t, "a").unserved);
    MUST(dur_store_list_unserved(t->p, t->arena, 9, &rows, &count, ERR));
    SAME(count, 0);
}

static void ours_what_continues_is_not_deleted(kit *t) {
    NEEDS("delete_instances", "get_instance");
    static const char *const ids[] = { "a" };
    dur_delete_result gone;
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_continued(2, "n")), MESSAGES(kit_next(t, "a", "n")),
             .meta = { .status = DUR_STATUS_CONTINUED_AS_NEW, .output = "n" }));
    REFUSED(DUR_ERUNNING, "running", dur_store_delete_instances(t->p, ids, 1, false, &gone, ERR));
    THAT(kit_exists(t, "a"));
}

static void ours_running_execution_is_not_pruned(kit *t) {
    NEEDS("prune_executions");
    dur_prune_options keep = { .has_keep_last = true, .keep_last = 1 };
    dur_prune_result pruned;
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, .execution = 2, EVENTS(ev_started(1)))); /* the first has not ended */
    MUST(dur_store_prune_executions(t->p, "a", &keep, &pruned, ERR));
    SAME(pruned.executions_deleted, 0);
    SAME(kit_history(t, "a", 1, NULL), 1);
}

static void ours_what_waits_is_no_suspect(kit *t) {
    desk me = open_desk(t);
    for (uint64_t i = 1; i <= 2; i++) {
        MUST(kit_put(t, kit_start(t, kit_format(t, "i-%d", (int)i))));
        MUST(kit_put_work(t, kit_activity(t, "a", i)));
    }
    dur_round round = ROUND(.fetch = &me.fetch, .work = &me.work);
    SAME(round.item_count, 1);
    SAME(round.work_count, 1);
    SAME(round.suspect_instance, 0);
    SAME(round.suspect_work, 0);
}

/* ---- owners ------------------------------------------------------------------------------------------------------ */

static void ours_owner_is_dead_by_its_own_timeout(kit *t) {
    NEEDS("owner_register", "owner_beat", "fetch_turns");
    if (t->factory->advance == NULL) kit_skip(t, "time is not the kit's");
    dur_owner_report report;
    dur_owner_options patient = { .owner = "patient", .timeout_ms = 20 * t->lock_ms },
                      hasty = { .owner = "hasty", .timeout_ms = t->lock_ms },
                      judge = { .owner = "judge", .timeout_ms = 4 * t->lock_ms };
    MUST(dur_store_owner_register(t->p, &patient, ERR));
    MUST(dur_store_owner_register(t->p, &hasty, ERR));
    MUST(dur_store_owner_register(t->p, &judge, ERR));
    kit_advance(t, 2 * t->lock_ms);
    MUST(dur_store_owner_beat(t->p, "judge", &report, ERR));
    SAME(report.taken_over, 1);
    TEXT(report.last_dead, "hasty");
    for (int i = 0; i < 4; i++) {
        kit_advance(t, 2 * t->lock_ms);
        MUST(dur_store_owner_beat(t->p, "judge", &report, ERR));
        SAME(report.taken_over, 0);
        SAME(report.peers, 1);
    }
}

/* ---- clients and admin ------------------------------------------------------------------------------------------- */

static void ours_nothing_is_replaced_over_a_running_child(kit *t) {
    NEEDS("enqueue_start", "get_instance");
    bool existed = false;
    kit_create(t, "a");
    kit_create_child(t, "child", "a");
    STEP_END("a", 1, COMPLETED, "out", ev_done(2, "out"));
    dur_message_row start = kit_start(t, "a");
    REFUSED(DUR_EEXISTS, NULL, dur_store_enqueue_start(t->p, &start, DUR_EXISTS_REPLACE_FINISHED, 0, &existed, ERR));
    THAT(kit_exists(t, "a") && kit_exists(t, "child"));
}

static void ours_messages_alone_are_no_instance(kit *t) {
    NEEDS("get_instance_stats", "get_instance", "set_suspended");
    dur_instance_stats stats;
    dur_instance_row row;
    bool found = true;
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    MUST(dur_store_get_instance_stats(t->p, t->arena, "a", &found, &stats, ERR));
    THAT(!found);
    REFUSED(DUR_ENOTFOUND, NULL, dur_store_get_instance(t->p, t->arena, "a", &row, ERR));
    REFUSED(DUR_ENOTFOUND, NULL, dur_store_set_suspended(t->p, "a", "why", ERR));
    MUST(kit_put(t, kit_start(t, "a"))); /* with a start they are */
    MUST(dur_store_get_instance_stats(t->p, t->arena, "a", &found, &stats, ERR));
    THAT(found);
}

static void ours_watch_that_is_asked_looks(kit *t) {
    NEEDS("watch_open", "watch_wait");
    dur_watch *watch = NULL;
    int code = DUR_OK, first = DUR_ETIMEOUT;
    kit_create(t, "a");
    MUST(dur_store_watch_open(t->p, "a", &watch, ERR));
    for (int i = 0; i < 50 && code == DUR_OK; i++)
        code = dur_store_watch_wait(watch, 0, ERR);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = kit_fetch(t);
    int acked = ACK(&item, EVENTS(ev_status(2, "s")));
    for (int i = 0; i < 100 && first != DUR_OK; i++) { /* asked again and again: what a server says takes its way */
        first = dur_store_watch_wait(watch, 0, ERR);
        if (first != DUR_OK) kit_sleep(10);
    }
    dur_store_watch_close(watch);
    SAME(acked, DUR_OK);
    SAME(first, DUR_OK);
}

static void ours_bounds_of_times_are_not_included(kit *t) {
    NEEDS("list_instances", "list_executions", "delete_instances_bulk", "prune_executions");
    dur_instance_row *rows = NULL;
    dur_delete_result gone;
    dur_prune_result pruned;
    size_t count = 9;
    kit_create(t, "a");
    uint64_t created = kit_instance(t, "a").created_at_ms;
    dur_instance_query after = { .created_after_ms = created }, before = { .created_before_ms = created };
    MUST(dur_store_list_instances(t->p, t->arena, &after, &rows, &count, ERR));
    SAME(count, 0);
    MUST(dur_store_list_instances(t->p, t->arena, &before, &rows, &count, ERR));
    SAME(count, 0);
    kit_advance(t, 20);
    kit_continue(t, "a", 1);
    uint64_t ended = kit_execution(t, "a", 1).completed_at_ms;
    dur_prune_options options = { .completed_before_ms = ended };
    MUST(dur_store_prune_executions(t->p, "a", &options, &pruned, ERR));
    SAME(pruned.executions_deleted, 0);
    options.completed_before_ms++;
    MUST(dur_store_prune_executions(t->p, "a", &options, &pruned, ERR));
    SAME(pruned.executions_deleted, 1);
    STEP_END("a", 2, COMPLETED, "out", ev_done(2, "out"));
    dur_bulk_filter filter = { .completed_before_ms = kit_execution(t, "a", 2).completed_at_ms };
    MUST(dur_store_delete_instances_bulk(t->p, &filter, &gone, ERR));
    SAME(gone.instances, 0);
    filter.completed_before_ms++;
    MUST(dur_store_delete_instances_bulk(t->p, &filter, &gone, ERR));
    SAME(gone.instances, 1);
}

static void ours_bulk_delete_takes_roots_alone(kit *t) {
    NEEDS("delete_instances_bulk", "get_instance");
    static const char *const kid[] = { "kid" };
    dur_delete_result gone;
    kit_create(t, "root");
    kit_create_ended(t, "kid", "root", DUR_STATUS_COMPLETED, "out");
    MUST(dur_store_delete_instances_bulk(t->p, &(dur_bulk_filter){ .limit = 0 }, &gone, ERR));
    SAME(gone.instances, 0);
    dur_bulk_filter named = { .instance_ids = kid, .instance_id_count = 1 };
    MUST(dur_store_delete_instances_bulk(t->p, &named, &gone, ERR));
    SAME(gone.instances, 0);
    THAT(kit_exists(t, "kid"));
}

static void ours_what_continues_is_counted_as_running(kit *t) {
    NEEDS("get_system_metrics");
    dur_system_metrics metrics;
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_continued(2, "n")), MESSAGES(kit_next(t, "a", "n")),
             .meta = { .status = DUR_STATUS_CONTINUED_AS_NEW, .output = "n" }));
    MUST(dur_store_get_system_metrics(t->p, &metrics, ERR));
    SAME(metrics.total_instances, 1);
    SAME(metrics.running, 1);
    SAME(metrics.completed + metrics.failed, 0);
}

const kit_check kit_ours_details[] = {
    CHECK(ours_handler_is_that_of_the_next_execution),
    CHECK(ours_handler_goes_with_its_start),
    CHECK(ours_attempt_of_an_item_is_its_largest),
    CHECK(ours_version_is_pinned_for_an_execution),
    CHECK(ours_eager_lock_is_an_attempt),
    CHECK(ours_local_work_needs_a_lane),
    CHECK(ours_taking_work_is_activity_of_its_session),
    CHECK(ours_value_has_the_stamp_of_its_last_write),
    CHECK(ours_terminated_looks_at_what_it_had_seen),
    CHECK(ours_turn_that_resumes_looks_at_what_was_seen),
    CHECK(ours_open_is_said_by_turns_with_events),
    CHECK(ours_round_says_that_there_is_more),
    CHECK(ours_round_tells_when_a_delay_of_work_ends),
    CHECK(ours_round_names_the_work_that_is_lost),
    CHECK(ours_lane_history_is_of_the_execution_that_is_asked_for),
    CHECK(ours_lane_messages_are_handed_out),
    CHECK(ours_lane_needs_its_owner),
    CHECK(ours_give_back_uncounts_what_the_fetch_has_counted),
    CHECK(ours_waiting_instance_was_created_with_its_first_start),
    CHECK(ours_ended_is_not_suspended),
    CHECK(ours_values_of_a_failure_are_kept),
    CHECK(ours_every_row_of_an_activity_is_cancelled),
    CHECK(ours_dead_work_has_its_reason),
    CHECK(ours_max_of_0_is_1),
    CHECK(ours_sessions_under_an_owner_are_renewed),
    CHECK(ours_owner_that_names_nothing_has_everything),
    CHECK(ours_what_continues_is_not_deleted),
    CHECK(ours_running_execution_is_not_pruned),
    CHECK(ours_what_waits_is_no_suspect),
    CHECK(ours_owner_is_dead_by_its_own_timeout),
    CHECK(ours_nothing_is_replaced_over_a_running_child),
    CHECK(ours_messages_alone_are_no_instance),
    CHECK(ours_watch_that_is_asked_looks),
    CHECK(ours_bounds_of_times_are_not_included),
    CHECK(ours_bulk_delete_takes_roots_alone),
    CHECK(ours_what_continues_is_counted_as_running),
    CHECKS_END,
};
