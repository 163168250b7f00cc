/*
 * check_ours_starts.c: our own: starts that their first turn writes.
 *
 * A thread starts an instance and waits; the check drives the lane meanwhile.  Nothing may end the check before that
 * thread has its answer: what was seen is noted and judged afterwards.  A store need not hand a start out (it may have
 * written it already): then it must be there to be fetched, and another is tried.
 */
#include "kit_internal.h"

#include <sched.h>
#include <stdatomic.h>

enum { TRIES_MAX = 20 };

typedef struct starting { /* a start that a thread waits for */
    dur_provider *p;
    dur_message_row message;
    pthread_t thread;
    atomic_bool over;
    int code;
    bool existed;
    dur_error err;
} starting;

static void *start_thread(void *arg) {
    starting *s = arg;
    s->code = dur_store_enqueue_start(s->p, &s->message, DUR_EXISTS_FAIL, 0, &s->existed, &s->err);
    atomic_store(&s->over, true);
    return NULL;
}

typedef struct desk {
    dur_lane *lane;
    dur_fetch fetch;
} desk;

static desk open_desk(kit *t) {
    NEEDS("lane_starts", "lane_start_back", "enqueue_start", "owner_register");
    kit_owner(t, "me");
    return (desk){ .lane = kit_lane(t, "me"), .fetch = { .owner = "me", .max = 16 } };
}

static dur_round look(kit *t, desk *me) {
    dur_round round = { .fetch = &me->fetch };
    kit_round(t, me->lane, &round);
    return round;
}

/* The lane has the start, and its thread waits; false: the thread has its answer already. */
static bool handed_out(kit *t, desk *me, starting *s, const char *instance, dur_orchestration_item *item) {
    size_t count = 0;
    *s = (starting){ .p = t->p, .message = kit_start(t, instance) };
    while (look(t, me).item_count > 0) /* whoever waits goes first */
        continue;
    MUST(dur_store_lane_starts(me->lane, t->arena, 1, item, &count, ERR));
    SAME(count, 0);
    THAT(pthread_create(&s->thread, NULL, start_thread, s) == 0);
    while (count == 0 && !atomic_load(&s->over)) {
        if (dur_store_lane_starts(me->lane, t->arena, 1, item, &count, NULL) != DUR_OK) count = 0;
        sched_yield();
    }
    if (count == 0) pthread_join(s->thread, NULL);
    return count == 1;
}

/* Some start that is handed out; what is not must have been written.  False: none is. */
static bool any_handed_out(kit *t, desk *me, starting *s, dur_orchestration_item *item) {
    for (int i = 0; i < TRIES_MAX; i++) {
        const char *id = kit_format(t, "a-%d", i);
        if (handed_out(t, me, s, id, item)) return true;
        SAME(s->code, DUR_OK);
        dur_round round = look(t, me);
        SAME(round.item_count, 1);
        TEXT(round.items[0].instance, id);
        SAME(round.items[0].message_count, 1);
    }
    return false;
}

static dur_turn_commit first_turn(kit *t, const dur_orchestration_item *item) {
    dur_turn_commit commit = COMMIT_OF(item, EVENTS(ev_started(1)), NAMED);
    commit.owner = "me";
    commit.keep_lease = true;
    commit.expected_last = 0;
    commit.consume_listed = true;
    commit.consumed = &item->messages[0].id;
    commit.consumed_count = item->message_count;
    commit.writes_start = true;
    return commit;
}

/* Its turn; one that is not written gives the start back, so that the thread ends in any case. */
static int round_first(kit *t, desk *me, starting *s, dur_round *round) {
    const char *token = round->turns[0].lock_token;
    int code = dur_store_lane_round(me->lane, t->arena, round, ERR);
    if (code != DUR_OK || round->turns[0].fault != DUR_TURN_FINE) dur_store_lane_start_back(me->lane, token);
    pthread_join(s->thread, NULL);
    return code;
}

static int commit_first(kit *t, desk *me, starting *s, dur_turn_commit *turns, size_t count) {
    return round_first(t, me, s, &(dur_round){ .turns = turns, .turn_count = count });
}

static void ours_start_is_written_by_its_first_turn(kit *t) {
    desk me = open_desk(t);
    starting s;
    dur_orchestration_item item;
    if (!any_handed_out(t, &me, &s, &item)) return;
    dur_turn_commit commit = first_turn(t, &item);
    int code = commit_first(t, &me, &s, &commit, 1);
    MUST(code);
    SAME(commit.fault, DUR_TURN_FINE);
    SAME(commit.error.code, DUR_OK);
    THAT(commit.lease_kept);
    SAME(s.code, DUR_OK);
    THAT(!s.existed);
    TEXT(item.instance, s.message.instance);
    SAME(item.acquisitions, 1);
    SAME(item.history_count, 0);
    SAME(item.message_count, 1);
    SAME(item.messages[0].id, 0);
    SAME(item.messages[0].attempt_count, 1);
    THAT(kit_equal_text(item.messages[0].json, s.message.json));
    /* it is there, with its turn and nothing else, and it is ours */
    SAME(kit_history(t, item.instance, 1, NULL), 1);
    SAME(look(t, &me).item_count, 0);
    NOTHING();
    MUST(kit_put(t, kit_raised(t, item.instance, "go", "")));
    dur_round round = look(t, &me);
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
    bool existed;
    REFUSED(DUR_EEXISTS, NULL, dur_store_enqueue_start(t->p, &s.message, DUR_EXISTS_FAIL, 0, &existed, ERR));
}

/* A timer that is due before its first turn is committed: the round tells it, or has not seen it. */
static void ours_first_turn_hides_no_timer(kit *t) {
    desk me = open_desk(t);
    starting s;
    dur_orchestration_item item;
    if (!any_handed_out(t, &me, &s, &item)) return;
    dur_turn_commit commit = first_turn(t, &item);
    dur_message_row timer = kit_timer(t, item.instance, 1, 2, 1);
    commit.orchestrator_items = &timer;
    commit.orchestrator_item_count = 1;
    dur_round first = { .turns = &commit, .turn_count = 1 };
    MUST(round_first(t, &me, &s, &first));
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

static void ours_start_given_back_is_written(kit *t) {
    desk me = open_desk(t);
    starting s;
    dur_orchestration_item item;
    if (!any_handed_out(t, &me, &s, &item)) return;
    dur_store_lane_start_back(me.lane, item.lock_token);
    pthread_join(s.thread, NULL);
    SAME(s.code, DUR_OK);
    THAT(!s.existed);
    dur_store_lane_start_back(me.lane, item.lock_token); /* no harm */
    dur_turn_commit late = first_turn(t, &item);
    dur_round round = { .turns = &late, .turn_count = 1 };
    kit_round(t, me.lane, &round);
    SAME(late.fault, DUR_TURN_LEASE_LOST);
    round = look(t, &me);
    SAME(round.item_count, 1);
    TEXT(round.items[0].instance, s.message.instance);
    SAME(round.items[0].history_count, 0);
    SAME(round.items[0].message_count, 1);
    THAT(round.items[0].messages[0].id != 0);
    SAME(round.items[0].messages[0].attempt_count, 1);
}

static void ours_start_of_a_known_id_is_refused(kit *t) {
    desk me = open_desk(t);
    starting s;
    dur_orchestration_item item;
    dur_message_row beside = kit_start(t, "beside");
    kit_create(t, "a");
    for (int i = 0; i < TRIES_MAX; i++) {
        if (!handed_out(t, &me, &s, "a", &item)) {
            SAME(s.code, DUR_EEXISTS);
            continue;
        }
        dur_turn_commit commit = first_turn(t, &item);
        commit.events = (dur_event_row[]){ kit_row(t, "a", 1, ev_external(7, "x")) };
        int code = commit_first(t, &me, &s, &commit, 1);
        MUST(code);
        SAME(commit.fault, DUR_TURN_LEASE_LOST);
        SAME(commit.error.code, DUR_ELEASE);
        THAT(!commit.lease_kept);
        SAME(s.code, DUR_EEXISTS);
        SAME(kit_history(t, "a", 1, NULL), 1); /* nothing of the turn was written */
        break;
    }
    bool existed;
    MUST(dur_store_enqueue_start(t->p, &beside, DUR_EXISTS_FAIL, 0, &existed, ERR));
    SAME(look(t, &me).item_count, 1); /* and nobody but that one waits */
}

static void ours_lane_close_gives_starts_back(kit *t) {
    desk me = open_desk(t);
    starting s;
    dur_orchestration_item item;
    if (!any_handed_out(t, &me, &s, &item)) return;
    dur_store_lane_close(t->lanes[--t->lane_count]);
    pthread_join(s.thread, NULL);
    SAME(s.code, DUR_OK);
    me.lane = kit_lane(t, "me");
    dur_round round = look(t, &me);
    SAME(round.item_count, 1);
    TEXT(round.items[0].instance, s.message.instance);
    SAME(round.items[0].message_count, 1);
}

const kit_check kit_ours_starts[] = {
    CHECK(ours_start_is_written_by_its_first_turn), CHECK(ours_first_turn_hides_no_timer),
    CHECK(ours_start_given_back_is_written),        CHECK(ours_start_of_a_known_id_is_refused),
    CHECK(ours_lane_close_gives_starts_back),       CHECKS_END,
};
