/*
 * check_ours_local.c: our own: work that a store leaves to the runtime of the lane that has the lease (dur_turn_work),
 * and that it is found again when the lease ends otherwise.  A store that stores all work is skipped.
 */
#include "kit_internal.h"

typedef struct holder { /* a lane of an owner */
    const char *owner;
    dur_lane *lane;
    dur_fetch fetch;
    dur_work_fetch work;
} holder;

static holder open_holder(kit *t, const char *owner) {
    NEEDS("lane_open", "lane_round", "owner_register", "owner_beat", "fetch_works");
    kit_owner(t, owner);
    return (holder){ .owner = owner,
                     .lane = kit_lane(t, owner),
                     .fetch = { .lock_ms = t->lock_ms, .owner = owner, .max = 16 },
                     .work = { .lock_ms = t->lock_ms, .owner = owner, .max = 16 } };
}

static dur_round look(kit *t, holder *me) {
    dur_round round = { .fetch = &me->fetch, .work = &me->work };
    kit_round(t, me->lane, &round);
    return round;
}

static void commit(kit *t, holder *me, dur_turn_commit *turn) {
    dur_round round = { .turns = turn, .turn_count = 1 };
    turn->owner = me->owner;
    turn->consume_listed = true;
    kit_round(t, me->lane, &round);
    SAME(turn->error.code, DUR_OK);
}

/* Only `owner` shows life until the others are dead. */
static void outlive(kit *t, const char *owner) {
    dur_owner_report report;
    for (int i = 0; i < 5; i++) {
        kit_advance(t, t->lock_ms / 2);
        MUST(dur_store_owner_beat(t->p, owner, &report, ERR));
    }
}

/* A first turn, lease kept, which schedules activity 2 and says that `open` are open. */
static dur_orchestration_item begin(kit *t, holder *me, const char *instance, uint32_t open) {
    MUST(kit_put(t, kit_start(t, instance)));
    dur_round round = look(t, me);
    SAME(round.item_count, 1);
    dur_orchestration_item item = round.items[0];
    dur_turn_commit turn =
        COMMIT_OF(&item, EVENTS(ev_started(1), ev_scheduled(2)), WORK(kit_activity(t, instance, 2)), NAMED);
    turn.keep_lease = true;
    turn.consumed = &item.messages[0].id;
    turn.consumed_count = item.message_count;
    turn.open = open;
    turn.worker_items[0].lock_token = kit_format(t, "local-%s", instance);
    turn.worker_items[0].may_be_local = true;
    commit(t, me, &turn);
    SAME(turn.worker_items[0].local, t->p->methods->local_work); /* whose answer is lost must be able to tell */
    SAME(item.works_known, t->p->methods->local_work);
    if (!turn.worker_items[0].local) {
        THAT(turn.worker_items[0].locked); /* as ever */
        kit_skip(t, "the store stores all work");
    }
    THAT(turn.lease_kept && !turn.worker_items[0].locked);
    return item;
}

static dur_turn_work lost(kit *t, const char *instance) {
    return (dur_turn_work){ .message = kit_activity(t, instance, 2), .recovered = true };
}

/* The lease is given back, and what was found is written. */
static void write_lost(kit *t, holder *me, const dur_orchestration_item *item) {
    dur_turn_work work = lost(t, item->instance);
    dur_turn_commit turn = COMMIT_OF(item, .events = NULL);
    turn.execution_id = 0;
    turn.give_back = true;
    turn.worker_items = &work;
    turn.worker_item_count = 1;
    commit(t, me, &turn);
    THAT(!work.local && !work.locked);
}

static void ours_local_work_is_in_no_queue(kit *t) {
    holder me = open_holder(t, "me");
    dur_orchestration_item item = begin(t, &me, "a", 1);
    NO_WORK();
    SAME(look(t, &me).work_count, 0);
    dur_turn_commit turn = COMMIT_OF(&item, EVENTS(ev_activity_done(3, 2)));
    turn.keep_lease = true;
    turn.expected_last = 2;
    commit(t, &me, &turn); /* no row is consumed */
    SAME(turn.fault, DUR_TURN_FINE);
}

static void ours_local_work_needs_a_lane_that_keeps_the_lease(kit *t) {
    holder me = open_holder(t, "me");
    dur_orchestration_item item = begin(t, &me, "a", 1);
    dur_turn_commit turn = COMMIT_OF(&item, EVENTS(ev_activity_done(3, 2)),
                                     WORK(kit_activity(t, "a", 4), kit_activity_in(t, "a", 1, 5, "s", NULL)));
    turn.keep_lease = true;
    turn.open = 2;
    turn.worker_items[0].may_be_local = turn.worker_items[1].may_be_local = true; /* no token; a session */
    turn.worker_items[1].lock_token = "with-a-session";
    turn.session_owner = "node";
    turn.session_lock_ms = t->lock_ms;
    commit(t, &me, &turn);
    THAT(!turn.worker_items[0].local && !turn.worker_items[1].local);
    TAKE_WORK(4);
    dur_turn_commit end = COMMIT_OF(&item, EVENTS(ev_scheduled(6)), WORK(kit_activity(t, "a", 6)));
    end.worker_items[0].may_be_local = true;
    end.worker_items[0].lock_token = "gives-up";
    commit(t, &me, &end);
    THAT(!end.worker_items[0].local && end.worker_items[0].locked);
}

static void ours_local_work_of_a_dead_owner_is_found(kit *t) {
    holder me = open_holder(t, "me"), next = open_holder(t, "next");
    begin(t, &me, "a", 1);
    begin(t, &me, "b", 0); /* nothing is open there, it says */
    SAME(look(t, &next).item_count, 0);
    outlive(t, "next");
    dur_round round = look(t, &next);
    SAME(round.item_count, 1);
    TEXT(round.items[0].instance, "a");
    SAME(round.items[0].message_count, 0);
    THAT(round.items[0].works_known && round.items[0].work_count == 0 && round.items[0].work_lost);
    SAME(round.work_count, 0);
    write_lost(t, &next, &round.items[0]);
    round = look(t, &next);
    SAME(round.item_count, 0);
    SAME(round.work_count, 1);
    SAME(round.works[0].attempt_count, 2);
    SAME(round.works[0].crashes, 1);
    SAME(round.works[0].crashes_alone, 0);
}

static void ours_local_work_is_found_by_who_runs_nothing(kit *t) {
    const dur_handler_filter none = { NULL, 0 };
    holder me = open_holder(t, "me"), next = open_holder(t, "next");
    next.fetch.handlers = &none;
    begin(t, &me, "a", 1);
    MUST(kit_put(t, kit_start(t, "b")));
    SAME(look(t, &next).item_count, 0);
    outlive(t, "next");
    dur_round round = look(t, &next);
    SAME(round.item_count, 1);
    TEXT(round.items[0].instance, "a");
    write_lost(t, &next, &round.items[0]);
    round = look(t, &next);
    SAME(round.item_count, 0);
    SAME(round.work_count, 1);
}

static void ours_local_work_is_looked_for_until_somebody_commits(kit *t) {
    holder me = open_holder(t, "me"), next = open_holder(t, "next");
    begin(t, &me, "a", 1);
    outlive(t, "next");
    dur_round round = look(t, &next);
    SAME(round.item_count, 1);
    MUST(dur_store_abandon_orchestration_item(t->p, round.items[0].lock_token, 0, false, ERR));
    round = look(t, &next);
    SAME(round.item_count, 1);
    MUST(dur_store_owner_release(t->p, "next", ERR));
    holder last = open_holder(t, "last");
    round = look(t, &last);
    SAME(round.item_count, 1);
    write_lost(t, &last, &round.items[0]);
    round = look(t, &last);
    SAME(round.item_count, 0);
    SAME(round.work_count, 1);
    SAME(round.works[0].crashes, 1); /* of the crash in which it may have run, and of no other */
}

static void ours_local_work_of_an_owner_that_leaves_is_found(kit *t) {
    holder me = open_holder(t, "me"), next = open_holder(t, "next");
    begin(t, &me, "a", 1);
    MUST(dur_store_owner_release(t->p, "me", ERR));
    dur_round round = look(t, &next);
    SAME(round.item_count, 1);
    write_lost(t, &next, &round.items[0]);
    round = look(t, &next);
    SAME(round.work_count, 1);
    SAME(round.works[0].attempt_count, 2);
    SAME(round.works[0].crashes, 0);
}

static void ours_local_work_is_written_by_who_gives_up(kit *t) {
    holder me = open_holder(t, "me"), next = open_holder(t, "next");
    dur_orchestration_item item = begin(t, &me, "a", 1);
    dur_turn_work work = { .message = kit_activity(t, "a", 2), .lock_token = "local-a" };
    dur_turn_commit back = COMMIT_OF(&item, .events = NULL);
    back.execution_id = 0;
    back.seen_id = UINT32_MAX;
    back.seen_now_ms = dur_store_now_ms(t->p);
    back.worker_items = &work;
    back.worker_item_count = 1;
    commit(t, &me, &back);
    THAT(work.locked);
    SAME(look(t, &next).item_count, 0); /* there is nothing to look for */
    dur_message_row done = kit_finished(t, "a", 1, 2, "r");
    MUST(dur_store_ack_work_item(t->p, "local-a", &done, ERR));
    dur_round round = look(t, &next);
    SAME(round.item_count, 1);
    SAME(round.items[0].message_count, 1);
    SAME(round.items[0].work_count, 0);
}

static void ours_fetch_tells_the_worker_rows(kit *t) {
    holder me = open_holder(t, "me");
    begin(t, &me, "other", 0);
    kit_create(t, "a");
    MUST(kit_put_work(t, kit_activity(t, "a", 7)));
    MUST(kit_put_work(t, kit_activity_in(t, "a", 2, 9, NULL, NULL))); /* of another execution */
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_round round = { .fetch = &me.fetch };
    kit_round(t, me.lane, &round);
    SAME(round.item_count, 1);
    THAT(round.items[0].works_known);
    SAME(round.items[0].work_count, 1);
    SAME(round.items[0].works[0], 7);
}

static void ours_suspend_asks_who_has_local_work(kit *t) {
    NEEDS("set_suspended");
    holder me = open_holder(t, "me"), next = open_holder(t, "next");
    dur_orchestration_item item = begin(t, &me, "a", 1);
    MUST(dur_store_set_suspended(t->p, "a", "why", ERR));
    dur_round round = look(t, &me);
    SAME(round.lost_count, 0);
    SAME(round.asked_count, 1);
    TEXT(round.asked[0], "a");
    dur_turn_work work = { .message = kit_activity(t, "a", 2), .lock_token = "local-a" };
    dur_turn_commit back = COMMIT_OF(&item, .events = NULL);
    back.execution_id = 0;
    back.give_back = true;
    back.worker_items = &work;
    back.worker_item_count = 1;
    commit(t, &me, &back);
    THAT(work.locked);
    dur_message_row done = kit_finished(t, "a", 1, 2, "r");
    MUST(dur_store_ack_work_item(t->p, "local-a", &done, ERR));
    SAME(look(t, &next).item_count, 0);
    MUST(dur_store_set_suspended(t->p, "a", NULL, ERR));
    SAME(look(t, &next).item_count, 1);
}

/* Whoever takes it over has no lease and has looked for nothing. */
static void ours_take_over_does_not_find_local_work(kit *t) {
    NEEDS("commit_turns");
    holder me = open_holder(t, "me"), next = open_holder(t, "next");
    begin(t, &me, "a", 1);
    outlive(t, "next");
    dur_orchestration_item nobody = { .instance = "a", .execution_id = 1 };
    dur_turn_commit turn = COMMIT_OF(&nobody, EVENTS(ev_external(3, "x")));
    turn.lock_token = NULL;
    turn.take_over = true;
    turn.open = 1;
    MUST(kit_commit(t, &turn));
    dur_round round = look(t, &next);
    SAME(round.item_count, 1);
    THAT(round.items[0].work_lost);
}

/* To write rows needs neither the handler nor the version, whyever the lease has ended. */
static void ours_local_work_is_found_whatever_it_needs(kit *t) {
    const dur_handler_filter other = { (const char *const[]){ "Other@" }, 1 };
    const dur_version_range nines = { { 9, 0, 0 }, { 9, 9, 9 } };
    const dur_capability_filter ninth = { &nines, 1 };
    holder me = open_holder(t, "me"), next = open_holder(t, "next");
    next.fetch.handlers = &other;
    next.fetch.filter = &ninth;
    dur_orchestration_item item = begin(t, &me, "a", 1);
    dur_turn_commit pins = COMMIT_OF(&item, EVENTS(ev_external(3, "x")), PINNED(1, 0, 0));
    pins.keep_lease = true;
    pins.open = 1;
    commit(t, &me, &pins);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    SAME(look(t, &next).item_count, 0);
    MUST(dur_store_owner_release(t->p, "me", ERR));
    dur_round round = look(t, &next);
    SAME(round.item_count, 1);
    THAT(round.items[0].work_lost);
}

/* Also of a suspect, which other fetches do not see. */
static void ours_local_work_of_a_suspect_is_found(kit *t) {
    holder me = open_holder(t, "me"), alive = open_holder(t, "alive");
    begin(t, &me, "a", 1);
    outlive(t, "alive");
    for (int i = 0; i < 3; i++) {
        holder dies = open_holder(t, kit_format(t, "d%d", i));
        dies.fetch.kind = DUR_FETCH_FRESH;
        dur_round round = look(t, &dies);
        SAME(round.item_count, 1);
        SAME(round.items[0].crashes, (uint64_t)i);
        THAT(round.items[0].work_lost);
        outlive(t, "alive");
    }
    SAME(look(t, &alive).item_count, 1);
}

const kit_check kit_ours_local[] = {
    CHECK(ours_local_work_is_in_no_queue),
    CHECK(ours_local_work_needs_a_lane_that_keeps_the_lease),
    CHECK(ours_local_work_of_a_dead_owner_is_found),
    CHECK(ours_local_work_is_found_by_who_runs_nothing),
    CHECK(ours_local_work_is_looked_for_until_somebody_commits),
    CHECK(ours_local_work_of_an_owner_that_leaves_is_found),
    CHECK(ours_local_work_is_written_by_who_gives_up),
    CHECK(ours_fetch_tells_the_worker_rows),
    CHECK(ours_suspend_asks_who_has_local_work),
    CHECK(ours_take_over_does_not_find_local_work),
    CHECK(ours_local_work_is_found_whatever_it_needs),
    CHECK(ours_local_work_of_a_suspect_is_found),
    CHECKS_END,
};
