/*
 * check_ours_rounds.c: our own: lanes, and the rounds of a loop: each message of a held lease exactly once, leases
 * lost, and a round that sees what it wrote.
 */
#include "kit_internal.h"

typedef struct desk { /* a lane and how it fetches */
    dur_lane *lane;
    dur_fetch fetch;
    dur_work_fetch work;
} desk;

static desk open_desk(kit *t, const char *owner) {
    bool owners = dur_store_has(t->p, "owner_register");
    if (owners) kit_owner(t, owner);
    desk out = { .lane = kit_lane(t, owners ? owner : NULL) };
    out.fetch = (dur_fetch){ .lock_ms = t->lock_ms * 100, .owner = owners ? owner : NULL, .max = 16 };
    out.work = (dur_work_fetch){ .lock_ms = t->lock_ms * 100, .owner = owners ? owner : NULL, .max = 16 };
    return out;
}
#define NEEDS_LANES() NEEDS("lane_open", "lane_round")

#define ROUND(desk_, ...) round_of(t, (desk_), (dur_round){ __VA_ARGS__ })
static dur_round round_of(kit *t, desk *at, dur_round round) {
    kit_round(t, at->lane, &round);
    return round;
}

/* Start an instance, acquire it in this lane and commit its first turn, keeping the lease. */
static dur_orchestration_item parked(kit *t, desk *at, const char *instance) {
    MUST(kit_put(t, kit_start(t, instance)));
    dur_round round = ROUND(at, .fetch = &at->fetch);
    SAME(round.item_count, 1);
    dur_orchestration_item item = round.items[0];
    TEXT(item.instance, instance);
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_started(1)), NAMED);
    commit.owner = at->fetch.owner;
    commit.keep_lease = true;
    commit.expected_last = 0;
    commit.consume_listed = true;
    commit.consumed = &item.messages[0].id;
    commit.consumed_count = item.message_count;
    round = ROUND(at, .turns = &commit, .turn_count = 1);
    SAME(commit.error.code, DUR_OK);
    if (!commit.lease_kept) kit_skip(t, "the store keeps no leases");
    return item;
}

static dur_turn_commit next_turn(kit *t, desk *at, const dur_orchestration_item *item, const kit_turn *turn,
                                 uint64_t expected_last) {
    kit_turn full = *turn;
    full.item = item;
    dur_turn_commit commit = kit_make_commit(t, &full);
    commit.owner = at->fetch.owner;
    commit.keep_lease = true;
    commit.expected_last = expected_last;
    commit.consume_listed = true;
    return commit;
}
#define NEXT(desk_, item_, last, ...) next_turn(t, (desk_), (item_), &(kit_turn){ __VA_ARGS__ }, (last))

static void ours_round_acquires(kit *t) {
    NEEDS_LANES();
    desk me = open_desk(t, "me");
    dur_round round = ROUND(&me, .fetch = &me.fetch, .work = &me.work);
    SAME(round.item_count + round.work_count + round.held_count + round.lost_count, 0);
    for (int i = 0; i < 3; i++)
        MUST(kit_put(t, kit_start(t, kit_format(t, "i-%d", i))));
    MUST(kit_put_work(t, kit_activity(t, "x", 1)));
    round = ROUND(&me, .fetch = &me.fetch, .work = &me.work);
    SAME(round.item_count, 3);
    SAME(round.work_count, 1);
    THAT(round.now_ms + 1000 >= dur_store_now_ms(t->p));
    NOTHING();
    NO_WORK();
    round = ROUND(&me, .fetch = NULL);
    SAME(round.item_count, 0);
}

static void ours_round_hands_out_each_message_once(kit *t) {
    NEEDS_LANES();
    desk me = open_desk(t, "me");
    dur_orchestration_item item = parked(t, &me, "a");
    for (int i = 0; i < 3; i++)
        MUST(kit_put(t, kit_raised(t, "a", kit_format(t, "m%d", i), "")));
    dur_round round = ROUND(&me, .fetch = &me.fetch);
    SAME(round.item_count, 0);
    SAME(round.held_count, 3);
    uint64_t ids[3];
    for (size_t i = 0; i < 3; i++) {
        TEXT(round.held[i].instance, "a");
        TEXT(round.held[i].lock_token, item.lock_token);
        THAT(kit_says(round.held[i].message.json, kit_format(t, "m%zu", i)));
        ids[i] = round.held[i].message.id;
        THAT(round.seen_id >= ids[i]);
    }
    SAME(ROUND(&me, .fetch = &me.fetch).held_count, 0);
    /* taking two of them leaves the third where it is, and does not hand it out again */
    dur_turn_commit commit = NEXT(&me, &item, 1, EVENTS(ev_external(2, "m0"), ev_external(3, "m1")));
    commit.consumed = ids;
    commit.consumed_count = 2;
    SAME(ROUND(&me, .turns = &commit, .turn_count = 1).held_count, 0);
    SAME(commit.error.code, DUR_OK);
    /* given up, it is the next holder's */
    commit = NEXT(&me, &item, 3, EVENTS(ev_external(4, "x")));
    commit.keep_lease = false;
    round = ROUND(&me, .turns = &commit, .turn_count = 1);
    SAME(commit.error.code, DUR_OK);
    item = TAKE("a");
    SAME(item.message_count, 1);
    SAME(item.messages[0].id, ids[2]);
}

static void ours_round_messages_count_no_attempt(kit *t) {
    NEEDS_LANES();
    desk me = open_desk(t, "me");
    dur_orchestration_item item = parked(t, &me, "a");
    MUST(kit_put(t, kit_raised(t, "a", "m", "")));
    dur_round round = ROUND(&me, .fetch = NULL);
    SAME(round.held_count, 1);
    SAME(round.held[0].message.attempt_count, 1);
    dur_turn_commit commit = NEXT(&me, &item, 1, EVENTS(ev_external(2, "x"))); /* leaves it */
    commit.keep_lease = false;
    round = ROUND(&me, .turns = &commit, .turn_count = 1);
    SAME(commit.error.code, DUR_OK);
    item = TAKE("a");
    SAME(item.messages[0].attempt_count, 1);
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, false, ERR));
    round = ROUND(&me, .fetch = &me.fetch); /* a lane's fetch is a fetch */
    SAME(round.item_count, 1);
    SAME(round.items[0].messages[0].attempt_count, 2);
}

static void ours_first_commit_clears_attempts_of_what_it_leaves(kit *t) {
    NEEDS_LANES();
    desk me = open_desk(t, "me");
    MUST(kit_put(t, kit_start(t, "a")));
    dur_round round = ROUND(&me, .fetch = &me.fetch);
    SAME(round.item_count, 1);
    dur_orchestration_item item = round.items[0];
    MUST(kit_put(t, kit_queued(t, "a", "q", "waits")));
    for (uint32_t i = 0; i < 3; i++) { /* each time a commit that does not consume it, and then an owner that crashed */
        dur_turn_commit commit = NEXT(&me, &item, i, EVENTS(ev_external(i + 1, "x")));
        ROUND(&me, .turns = &commit, .turn_count = 1);
        SAME(commit.error.code, DUR_OK);
        dur_turn_commit release = { .lock_token = item.lock_token,
                                    .instance = item.instance,
                                    .consume_listed = true,
                                    .expected_last = DUR_NOT_COMPARED,
                                    .owner = me.fetch.owner };
        ROUND(&me, .turns = &release, .turn_count = 1);
        SAME(release.error.code, DUR_OK);
        round = ROUND(&me, .fetch = &me.fetch);
        SAME(round.item_count, 1);
        item = round.items[0];
        SAME(item.attempt_count, 1);
        SAME(item.acquisitions, 1);
    }
}

static void ours_commit_clears_attempts_only_of_what_it_was_given(kit *t) {
    NEEDS_LANES();
    desk me = open_desk(t, "me");
    kit_create(t, "a");
    MUST(kit_put(t, kit_queued(t, "a", "q", "first")));
    MUST(kit_put(t, kit_queued(t, "a", "q", "second")));
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 2);
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, false, ERR));
    dur_fetch some = me.fetch;
    some.queue_messages_max = 1;
    dur_round round = ROUND(&me, .fetch = &some);
    SAME(round.item_count, 1);
    SAME(round.items[0].message_count, 1);
    SAME(round.items[0].attempt_count, 2);
    dur_turn_commit commit = NEXT(&me, &round.items[0], 1, EVENTS(ev_external(2, "x")));
    commit.keep_lease = false;
    ROUND(&me, .turns = &commit, .turn_count = 1);
    SAME(commit.error.code, DUR_OK);
    item = TAKE("a");
    SAME(item.message_count, 2);
    SAME(item.messages[0].attempt_count, 1);
    SAME(item.messages[1].attempt_count, 2);
}

static void ours_plain_ack_takes_what_rounds_handed_out(kit *t) {
    NEEDS_LANES();
    desk me = open_desk(t, "me");
    dur_orchestration_item item = parked(t, &me, "a");
    MUST(kit_put(t, kit_raised(t, "a", "first", "")));
    MUST(kit_put(t, kit_queued(t, "a", "q", "handed out")));
    MUST(kit_put(t, kit_queued(t, "a", "q", "left")));
    dur_round round = ROUND(&me, .fetch = NULL, .queue_messages_max = 1);
    SAME(round.held_count, 2);
    MUST(kit_put(t, kit_raised(t, "a", "later", "")));
    MUST(ACK(&item, EVENTS(ev_external(2, "first"))));
    REFUSED(DUR_ELEASE, "Invalid lock token", ACK(&item, EVENTS(ev_external(3, "again"))));
    item = TAKE("a");
    SAME(item.message_count, 2);
    THAT(kit_says(item.messages[0].json, "left"));
    THAT(kit_says(item.messages[1].json, "later"));
    SAME(ROUND(&me, .fetch = NULL).held_count, 0); /* the lane has nothing to do with it any more */
}

static void ours_round_tells_when_time_brings_something(kit *t) {
    NEEDS_LANES();
    desk me = open_desk(t, "me");
    MUST(kit_put(t, kit_start(t, "a")));
    TAKE("a"); /* its lock ends */
    dur_round round = ROUND(&me, .fetch = &me.fetch, .work = &me.work);
    THAT(round.next_due_ms <= round.now_ms + t->lock_ms + 1);
    MUST(kit_put_work(t, kit_activity(t, "b", 1)));
    TAKE_WORK_AS(1, .lock_ms = t->lock_ms / 2); /* so does this one, earlier */
    round = ROUND(&me, .fetch = &me.fetch, .work = &me.work);
    THAT(round.next_due_ms <= round.now_ms + t->lock_ms / 2 + 1);
    dur_message_row later = kit_start(t, "c");
    MUST(dur_store_enqueue_for_orchestrator(t->p, &later, t->lock_ms / 4, ERR));
    round = ROUND(&me, .fetch = &me.fetch, .work = &me.work);
    THAT(round.next_due_ms <= round.now_ms + t->lock_ms / 4 + 1);
    SAME(round.item_count + round.work_count, 0);
    kit_advance(t, t->lock_ms / 4 + 100);
    round = ROUND(&me, .fetch = &me.fetch, .work = &me.work);
    SAME(round.item_count, 1);
    kit_advance(t, t->lock_ms / 4 + 100);
    round = ROUND(&me, .fetch = &me.fetch, .work = &me.work);
    SAME(round.work_count, 1);
    kit_advance(t, t->lock_ms / 2);
    round = ROUND(&me, .fetch = &me.fetch, .work = &me.work);
    SAME(round.item_count, 1);
}

static void ours_round_hands_out_timers_when_due(kit *t) {
    NEEDS_LANES();
    desk me = open_desk(t, "me");
    dur_orchestration_item item = parked(t, &me, "a");
    uint64_t due = dur_store_now_ms(t->p) + 400;
    dur_turn_commit commit = NEXT(&me, &item, 1, EVENTS(ev_timer(2, due)), MESSAGES(kit_timer(t, "a", 1, 2, due)));
    dur_round round = ROUND(&me, .turns = &commit, .turn_count = 1);
    SAME(commit.error.code, DUR_OK);
    SAME(round.held_count, 0);
    SAME(ROUND(&me, .fetch = &me.fetch).next_due_ms, due);
    kit_advance(t, 450);
    round = ROUND(&me, .fetch = &me.fetch);
    SAME(round.held_count, 1);
    SAME(round.held[0].message.due_ms, due);
    SAME(ROUND(&me, .fetch = &me.fetch).held_count, 0);
    SAME(ROUND(&me, .fetch = &me.fetch).next_due_ms, DUR_NEVER);
}

static void ours_round_sees_its_own_writes(kit *t) {
    NEEDS_LANES();
    desk me = open_desk(t, "me");
    dur_orchestration_item item = parked(t, &me, "a");
    dur_turn_commit commit = NEXT(&me, &item, 1, EVENTS(ev_scheduled(2)), WORK(kit_activity(t, "a", 2)),
                                  MESSAGES(kit_child(t, "child", "a", 3), kit_raised(t, "a", "to myself", "")));
    dur_round round = ROUND(&me, .turns = &commit, .turn_count = 1, .fetch = &me.fetch, .work = &me.work);
    SAME(commit.error.code, DUR_OK);
    SAME(round.item_count, 1);
    TEXT(round.items[0].instance, "child");
    SAME(round.work_count, 1);
    SAME(round.works[0].ref.activity_id, 2);
    SAME(round.held_count, 1);
    /* the completion of the work comes back in the round that acks it */
    dur_message_row done = kit_finished(t, "a", 1, 2, "r");
    dur_work_ack acks[] = { { .lock_token = "no-such-token" },
                            { .lock_token = round.works[0].lock_token, .ref = round.works[0].ref, .completion = &done },
                            { .lock_token = "no-such-token" } };
    round = ROUND(&me, .acks = acks, .ack_count = 3, .fetch = &me.fetch);
    SAME(acks[0].error.code, DUR_ELEASE);
    SAME(acks[1].error.code, DUR_OK);
    SAME(acks[2].error.code, DUR_ELEASE);
    SAME(round.held_count, 1);
    THAT(kit_says(round.held[0].message.json, "ActivityCompleted"));
}

static void ours_round_answers_each_turn(kit *t) {
    NEEDS_LANES();
    desk me = open_desk(t, "me");
    dur_orchestration_item a = parked(t, &me, "a"), b = parked(t, &me, "b");
    dur_turn_commit turns[] = { NEXT(&me, &a, 5, EVENTS(ev_external(6, "x"))),
                                NEXT(&me, &b, 1, EVENTS(ev_external(2, "x"))) };
    ROUND(&me, .turns = turns, .turn_count = 2);
    SAME(turns[0].fault, DUR_TURN_POSITION);
    SAME(turns[1].fault, DUR_TURN_FINE);
    turns[0] = NEXT(&me, &a, 1, EVENTS(ev_external(2, "x"))); /* the lease is still there */
    ROUND(&me, .turns = turns, .turn_count = 1);
    SAME(turns[0].fault, DUR_TURN_FINE);
}

static void ours_round_tells_of_lost_leases(kit *t) {
    NEEDS_LANES();
    NEEDS("delete_instances", "commit_turns", "set_suspended");
    desk me = open_desk(t, "me");
    parked(t, &me, "kept");
    dur_orchestration_item deleted = parked(t, &me, "deleted");
    parked(t, &me, "terminated");
    parked(t, &me, "suspended");
    const char *ids[] = { "deleted" };
    dur_delete_result result;
    MUST(dur_store_delete_instances(t->p, ids, 1, true, &result, ERR));
    dur_orchestration_item nobody = { .instance = "terminated", .execution_id = 1 };
    dur_turn_commit end = COMMIT_OF(&nobody, EVENTS(ev_failed(2, "x")), ENDS(FAILED, "x"));
    end.take_over = true;
    end.remove_work = true;
    MUST(kit_commit(t, &end));
    MUST(dur_store_set_suspended(t->p, "suspended", "why", ERR));
    dur_round round = ROUND(&me, .fetch = NULL);
    SAME(round.lost_count + round.asked_count, 3); /* of what is suspended it is told one way or the other */
    for (size_t i = 0; i < round.lost_count; i++)
        THAT(strcmp(round.lost[i], "kept") != 0);
    for (size_t i = 0; i < round.asked_count; i++)
        THAT(strcmp(round.asked[i], "suspended") == 0);
    dur_round once = ROUND(&me, .fetch = NULL);
    SAME(once.lost_count + once.asked_count, 0);
    dur_turn_commit late = NEXT(&me, &deleted, 1, EVENTS(ev_external(2, "x")));
    ROUND(&me, .turns = &late, .turn_count = 1);
    SAME(late.fault, DUR_TURN_LEASE_LOST);
    kit_create(t, "deleted"); /* re-created under a parked handler: its messages are not for the old holder */
    MUST(kit_put(t, kit_raised(t, "deleted", "go", "")));
    SAME(ROUND(&me, .fetch = NULL).held_count, 0);
    TAKE("deleted");
}

static void ours_round_limits_queue_messages(kit *t) {
    NEEDS_LANES();
    NEEDS("lane_messages");
    desk me = open_desk(t, "me");
    dur_orchestration_item item = parked(t, &me, "a");
    for (int i = 0; i < 5; i++)
        MUST(kit_put(t, kit_queued(t, "a", "q", kit_format(t, "q%d", i))));
    MUST(kit_put(t, kit_raised(t, "a", "event", "")));
    dur_round round = ROUND(&me, .queue_messages_max = 2);
    SAME(round.held_count, 3);
    THAT(kit_says(round.held[0].message.json, "q0") && kit_says(round.held[1].message.json, "q1"));
    THAT(kit_says(round.held[2].message.json, "event"));
    TEXT(round.held[0].message.queue, "q");
    /* the others by asking */
    dur_fetched_message *more = NULL;
    size_t count = 0;
    MUST(dur_store_lane_messages(me.lane, t->arena, "a", item.lock_token, "q", round.held[1].message.due_ms,
                                 round.held[1].message.id, 2, &more, &count, ERR));
    SAME(count, 2);
    THAT(kit_says(more[0].json, "q2") && kit_says(more[1].json, "q3"));
    MUST(dur_store_lane_messages(me.lane, t->arena, "a", item.lock_token, "q", more[1].due_ms, more[1].id, 9, &more,
                                 &count, ERR));
    SAME(count, 1);
    MUST(dur_store_lane_messages(me.lane, t->arena, "a", item.lock_token, NULL, 0, 0, 99, &more, &count, ERR));
    SAME(count, 6);
    REFUSED(DUR_ELEASE, NULL,
            dur_store_lane_messages(me.lane, t->arena, "a", "no-such-token", NULL, 0, 0, 9, &more, &count, ERR));
}

/* Commit, and expect these texts of the round that does it and of the next: the contract leaves open which of them
   hands them out. */
static void then_come(kit *t, desk *at, dur_turn_commit *commit, const char *first, const char *second) {
    const char *const wanted[] = { first, second };
    size_t count = 0;
    for (int i = 0; i < 3; i++) {
        dur_round round = { .turns = commit, .turn_count = i == 0, .queue_messages_max = 2 };
        kit_round(t, at->lane, &round);
        for (size_t k = 0; k < round.held_count; k++, count++)
            THAT(i < 2 && count < 2 && wanted[count] != NULL && kit_says(round.held[k].message.json, wanted[count]));
        SAME(commit->error.code, DUR_OK);
        THAT(commit->lease_kept);
    }
    SAME(count, (size_t)(first != NULL) + (second != NULL));
}

static void ours_consumed_queue_messages_make_room(kit *t) {
    NEEDS_LANES();
    desk me = open_desk(t, "me");
    dur_orchestration_item item = parked(t, &me, "a");
    for (int i = 0; i < 6; i++)
        MUST(kit_put(t, kit_queued(t, "a", "q", kit_format(t, "q%d", i))));
    dur_round round = ROUND(&me, .queue_messages_max = 2);
    SAME(round.held_count, 2);
    SAME(ROUND(&me, .queue_messages_max = 2).held_count, 0);
    /* one of them, by its id; what comes beside the queue comes once all the same */
    uint64_t taken = round.held[0].message.id;
    dur_turn_commit commit = NEXT(&me, &item, 1, EVENTS(ev_external(2, "one")));
    commit.consumed = &taken;
    commit.consumed_count = 1;
    MUST(kit_put(t, kit_raised(t, "a", "beside", "")));
    then_come(t, &me, &commit, "q2", "beside");
    /* all that were handed out */
    commit = NEXT(&me, &item, 2, EVENTS(ev_external(3, "all")));
    commit.consume_listed = false;
    then_come(t, &me, &commit, "q3", "q4");
    commit = NEXT(&me, &item, 3, EVENTS(ev_external(4, "all")));
    commit.consume_listed = false;
    then_come(t, &me, &commit, "q5", NULL);
    commit = NEXT(&me, &item, 4, EVENTS(ev_external(5, "the last")));
    commit.consume_listed = false;
    then_come(t, &me, &commit, NULL, NULL);
    for (int i = 6; i < 9; i++)
        MUST(kit_put(t, kit_queued(t, "a", "q", kit_format(t, "q%d", i))));
    SAME(ROUND(&me, .queue_messages_max = 2).held_count, 2);
}

static void ours_lane_history(kit *t) {
    NEEDS_LANES();
    NEEDS("lane_history");
    desk me = open_desk(t, "me");
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"));
    kit_continue(t, "a", 1);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_fetch bare = me.fetch;
    bare.without_history = true;
    dur_round round = ROUND(&me, .fetch = &bare);
    SAME(round.item_count, 1);
    SAME(round.items[0].history_count, 0);
    dur_orchestration_item full;
    MUST(dur_store_lane_history(me.lane, t->arena, "a", round.items[0].lock_token, 2, &full, ERR));
    SAME(full.history_count, 1);
    SAME(full.last_event_id, 1);
    SAME(full.kv_count, 1);
    TEXT(kit_snapshot(&full, "k"), "v");
    REFUSED(DUR_ELEASE, NULL, dur_store_lane_history(me.lane, t->arena, "a", "no-such-token", 2, &full, ERR));
}

static void put_soon(kit_thread *self) {
    if (self->index == 0) {
        const dur_message_row *message = self->data;
        kit_sleep(30);
        self->code = dur_store_enqueue_for_orchestrator(self->t->p, message, 0, &self->err);
        return;
    }
    uint64_t from = kit_real_ms();
    self->code = dur_store_lane_wait(self->t->lanes[0], 5000, &self->err);
    self->count = kit_real_ms() - from < 4000 ? 1 : 0;
}

static void ours_lane_wakes_up(kit *t) {
    NEEDS_LANES();
    NEEDS("lane_rest");
    desk me = open_desk(t, "me");
    parked(t, &me, "a");
    ROUND(&me, .fetch = &me.fetch);
    dur_message_row message = kit_raised(t, "a", "go", "");
    kit_thread *two = kit_threads(t, 2, put_soon, &message); /* to an instance held here */
    SAME(two[0].code, DUR_OK);
    SAME(two[1].count, 1);
    SAME(ROUND(&me, .fetch = &me.fetch).held_count, 1);
    message = kit_start(t, "b"); /* and to one that nobody holds */
    two = kit_threads(t, 2, put_soon, &message);
    SAME(two[1].count, 1);
    SAME(ROUND(&me, .fetch = &me.fetch).item_count, 1);
    dur_waker_wake(t->waker);
    uint64_t from = kit_real_ms();
    MUST(dur_store_lane_wait(me.lane, 5000, ERR));
    THAT(kit_real_ms() - from < 4000);
}

static void ours_lanes_are_apart(kit *t) {
    NEEDS_LANES();
    NEEDS("owner_register");
    desk one = open_desk(t, "one"), two = open_desk(t, "two");
    parked(t, &one, "a");
    parked(t, &two, "b");
    MUST(kit_put(t, kit_raised(t, "a", "for a", "")));
    MUST(kit_put(t, kit_raised(t, "b", "for b", "")));
    dur_round first = ROUND(&one, .fetch = &one.fetch), second = ROUND(&two, .fetch = &two.fetch);
    SAME(first.held_count, 1);
    SAME(second.held_count, 1);
    TEXT(first.held[0].instance, "a");
    TEXT(second.held[0].instance, "b");
    SAME(first.item_count + second.item_count, 0);
}

/* The leases are the owner's: another lane of it, or its end, frees them. */
static void ours_closed_lane_leaves_leases_to_their_owner(kit *t) {
    NEEDS_LANES();
    NEEDS("owner_register", "owner_release");
    desk me = open_desk(t, "me");
    parked(t, &me, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_store_lane_close(t->lanes[--t->lane_count]);
    NOTHING();
}

/* It was acquired beside the lane, and something came before the lane had it. */
static void ours_lease_brings_what_it_has_missed(kit *t) {
    NEEDS_LANES();
    NEEDS("owner_register", "fetch_turns");
    desk me = open_desk(t, "me");
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = ACQUIRE("me", "a");
    MUST(kit_put(t, kit_raised(t, "a", "missed", "")));
    dur_turn_commit turn = NEXT(&me, &item, 1, EVENTS(ev_external(2, "go")));
    turn.consumed = &item.messages[0].id;
    turn.consumed_count = 1;
    dur_round round = ROUND(&me, .turns = &turn, .turn_count = 1);
    SAME(turn.error.code, DUR_OK);
    if (!turn.lease_kept) kit_skip(t, "the store keeps no leases");
    if (round.held_count == 0) round = ROUND(&me, .turns = NULL);
    SAME(round.held_count, 1);
    THAT(kit_says(round.held[0].message.json, "missed"));
}

static void ours_closed_lane_gives_its_leases_up(kit *t) {
    NEEDS_LANES();
    NEEDS("owner_register", "owner_release");
    desk me = open_desk(t, "me");
    parked(t, &me, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_store_lane_close(t->lanes[--t->lane_count]);
    MUST(dur_store_owner_release(t->p, "me", ERR));
    SAME(TAKE("a").message_count, 1);
}

static void ours_round_tells_of_suspects_and_old_work(kit *t) {
    NEEDS_LANES();
    NEEDS("owner_register", "owner_beat", "fetch_turns");
    desk me = open_desk(t, "me");
    MUST(kit_put(t, kit_start(t, "a")));
    dur_fetch fresh = me.fetch;
    fresh.kind = DUR_FETCH_FRESH;
    for (int i = 0; i < 16; i++) {
        dur_owner_report report;
        if (i % 8 == 0) {
            kit_owner(t, i == 0 ? "d1" : "d2");
            ACQUIRE(i == 0 ? "d1" : "d2", "a");
            SAME(ROUND(&me, .fetch = &fresh).suspect_instance, 0);
        }
        kit_advance(t, t->lock_ms / 2);
        MUST(dur_store_owner_beat(t->p, "me", &report, ERR));
    }
    MUST(kit_put_work(t, kit_activity(t, "x", 1)));
    kit_advance(t, 200);
    dur_round round;
    round = ROUND(&me, .fetch = &fresh, .work = &me.work);
    SAME(round.item_count, 0);
    SAME(round.suspect_instance, 1);
    SAME(round.suspect_work, 0);
    SAME(round.work_count, 1);
    THAT(round.work_waiting_long);
    fresh.kind = DUR_FETCH_SUSPECT;
    round = ROUND(&me, .fetch = &fresh, .work = &me.work);
    SAME(round.item_count, 1);
    SAME(round.items[0].acquisitions, 3);
    round = ROUND(&me, .fetch = &fresh, .work = &me.work);
    SAME(round.suspect_instance, 0);
    THAT(!round.work_waiting_long);
}

const kit_check kit_ours_rounds[] = {
    CHECK(ours_round_acquires),
    CHECK(ours_round_hands_out_each_message_once),
    CHECK(ours_round_messages_count_no_attempt),
    CHECK(ours_first_commit_clears_attempts_of_what_it_leaves),
    CHECK(ours_commit_clears_attempts_only_of_what_it_was_given),
    CHECK(ours_plain_ack_takes_what_rounds_handed_out),
    CHECK(ours_round_tells_when_time_brings_something),
    CHECK(ours_round_hands_out_timers_when_due),
    CHECK(ours_round_sees_its_own_writes),
    CHECK(ours_round_answers_each_turn),
    CHECK(ours_round_tells_of_lost_leases),
    CHECK(ours_round_limits_queue_messages),
    CHECK(ours_consumed_queue_messages_make_room),
    CHECK(ours_lane_history),
    CHECK(ours_lane_wakes_up),
    CHECK(ours_lanes_are_apart),
    CHECK(ours_closed_lane_leaves_leases_to_their_owner),
    CHECK(ours_lease_brings_what_it_has_missed),
    CHECK(ours_closed_lane_gives_its_leases_up),
    CHECK(ours_round_tells_of_suspects_and_old_work),
    CHECKS_END,
};
