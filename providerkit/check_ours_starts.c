/*
 * check_ours_starts.c: our own: turns that write their start.
 */
#include "kit_internal.h"

typedef struct desk {
    dur_lane *lane;
    dur_fetch fetch;
    unsigned serial;
} desk;

static desk open_desk(kit *t) {
    NEEDS("births", "lane_open", "enqueue_start", "owner_register");
    kit_owner(t, "me");
    return (desk){ .lane = kit_lane(t, "me"), .fetch = { .owner = "me", .max = 16 } };
}

static dur_round look(kit *t, desk *me) {
    dur_round round = { .fetch = &me->fetch };
    kit_round(t, me->lane, &round);
    return round;
}

/* A start that nobody has written, as an item that was acquired. */
static dur_orchestration_item unwritten(kit *t, desk *me, const char *instance) {
    dur_message_row start = kit_start(t, instance);
    dur_fetched_message *message = dur_arena_zalloc(t->arena, sizeof(*message));
    *message = (dur_fetched_message){ .attempt_count = 1, .json = start.json };
    return (dur_orchestration_item){ .instance = instance,
                                     .lock_token = kit_format(t, "birth-%u", ++me->serial),
                                     .execution_id = 1,
                                     .messages = message,
                                     .message_count = 1 };
}

static dur_turn_commit first_turn(kit *t, const dur_orchestration_item *item) {
    dur_turn_commit commit = COMMIT_OF(item, EVENTS(ev_started(1)), NAMED);
    commit.owner = "me";
    commit.keep_lease = true;
    commit.expected_last = 0;
    commit.consume_listed = true;
    commit.writes_start = true;
    return commit;
}

static void ours_start_is_written_by_its_first_turn(kit *t) {
    desk me = open_desk(t);
    dur_orchestration_item item = unwritten(t, &me, "a");
    dur_turn_commit commit = first_turn(t, &item);
    dur_round round = { .turns = &commit, .turn_count = 1 };
    kit_round(t, me.lane, &round);
    SAME(commit.fault, DUR_TURN_FINE);
    SAME(commit.error.code, DUR_OK);
    THAT(commit.lease_kept);
    /* it is there, with its turn and nothing else, and it is ours */
    SAME(kit_history(t, item.instance, 1, NULL), 1);
    SAME(look(t, &me).item_count, 0);
    NOTHING();
    MUST(kit_put(t, kit_raised(t, item.instance, "go", "")));
    round = look(t, &me);
    SAME(round.item_count, 0);
    SAME(round.held_count, 1);
    TEXT(round.held[0].instance, item.instance);
    TEXT(round.held[0].lock_token, commit.lock_token);
    dur_turn_commit next = COMMIT_OF(&item, .token = commit.lock_token, EVENTS(ev_external(2, "go")));
    next.store_key = commit.store_key;
    next.owner = "me";
    next.keep_lease = true;
    next.expected_last = 1;
    next.consume_listed = true;
    next.consumed = &round.held[0].message.id;
    next.consumed_count = 1;
    round = (dur_round){ .turns = &next, .turn_count = 1 };
    kit_round(t, me.lane, &round);
    SAME(next.error.code, DUR_OK);
    THAT(next.lease_kept);
    dur_message_row start = kit_start(t, item.instance);
    bool existed;
    REFUSED(DUR_EEXISTS, NULL, dur_store_enqueue_start(t->p, &start, DUR_EXISTS_FAIL, 0, &existed, ERR));
}

/* A timer that is due before its first turn is committed: the round tells it, or has not seen it. */
static void ours_first_turn_hides_no_timer(kit *t) {
    desk me = open_desk(t);
    dur_orchestration_item item = unwritten(t, &me, "a");
    dur_turn_commit commit = first_turn(t, &item);
    dur_message_row timer = kit_timer(t, item.instance, 1, 2, 1);
    commit.orchestrator_items = &timer;
    commit.orchestrator_item_count = 1;
    dur_round first = { .turns = &commit, .turn_count = 1 };
    kit_round(t, me.lane, &first);
    SAME(commit.fault, DUR_TURN_FINE);
    THAT(commit.lease_kept);
    bool told = first.held_count > 0;
    dur_turn_commit leaves = { .lock_token = commit.lock_token,
                               .instance = item.instance,
                               .expected_last = DUR_NOT_COMPARED,
                               .consume_listed = true,
                               .seen_id = told ? 0 : first.seen_id,
                               .seen_now_ms = told ? 0 : first.now_ms,
                               .owner = "me" };
    dur_round round = { .turns = &leaves, .turn_count = 1 };
    kit_round(t, me.lane, &round);
    SAME(leaves.error.code, DUR_OK);
    round = look(t, &me);
    SAME(round.item_count, 1);
    SAME(round.items[0].message_count, 1);
}

/* What was asked of enqueue_start meanwhile, and has not begun, is an instance, too. */
static void ours_start_of_a_known_id_is_refused(kit *t) {
    desk me = open_desk(t);
    dur_message_row waits = kit_start(t, "waits");
    bool existed;
    kit_create(t, "a");
    MUST(dur_store_enqueue_start(t->p, &waits, DUR_EXISTS_FAIL, 0, &existed, ERR));
    dur_orchestration_item items[3] = { unwritten(t, &me, "a"), unwritten(t, &me, "waits"), unwritten(t, &me, "b") };
    dur_turn_commit turns[3] = { first_turn(t, &items[0]), first_turn(t, &items[1]), first_turn(t, &items[2]) };
    turns[0].events = (dur_event_row[]){ kit_row(t, "a", 1, ev_external(7, "x")) };
    dur_round round = { .turns = turns, .turn_count = 3 };
    kit_round(t, me.lane, &round);
    for (int i = 0; i < 2; i++) {
        SAME(turns[i].fault, DUR_TURN_LEASE_LOST);
        SAME(turns[i].error.code, DUR_ELEASE);
        THAT(!turns[i].lease_kept);
    }
    SAME(turns[2].fault, DUR_TURN_FINE);
    SAME(kit_history(t, "a", 1, NULL), 1); /* nothing of the turns was written */
    SAME(kit_history(t, "waits", 1, NULL), 0);
    SAME(look(t, &me).item_count, 1); /* and nobody but the start waits */
}

static void ours_start_needs_an_owner_that_lives(kit *t) {
    desk me = open_desk(t);
    dur_orchestration_item item = unwritten(t, &me, "a");
    dur_turn_commit commit = first_turn(t, &item);
    MUST(dur_store_owner_release(t->p, "me", ERR));
    dur_round round = { .turns = &commit, .turn_count = 1 };
    int code = dur_store_lane_round(me.lane, t->arena, &round, ERR);
    THAT(code != DUR_OK || commit.fault != DUR_TURN_FINE);
    SAME(kit_history(t, "a", 1, NULL), 0);
    NOTHING();
}

const kit_check kit_ours_starts[] = {
    CHECK(ours_start_is_written_by_its_first_turn),
    CHECK(ours_first_turn_hides_no_timer),
    CHECK(ours_start_of_a_known_id_is_refused),
    CHECK(ours_start_needs_an_owner_that_lives),
    CHECKS_END,
};
