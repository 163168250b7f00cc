/*
 * check_ours_corners.c: our own: what two rules of the contract say together, where each alone was judged: a delay and
 * a lease, a pause and a continue-as-new, a queue's limit and a message that was late, several handlers and suspects
 * (tests/mutants/strangers3.txt).
 */
#include "kit_internal.h"

static size_t turns(kit *t, dur_fetch how, dur_orchestration_item got[4]) {
    size_t count = 0;
    how.lock_ms = t->lock_ms;
    how.max = 4;
    MUST(dur_store_fetch_turns(t->p, t->arena, &how, got, &count, ERR));
    return count;
}
#define TURNS(got, ...) turns(t, (dur_fetch){ __VA_ARGS__ }, (got))

static size_t works(kit *t, dur_work_fetch how, dur_leased_work got[4]) {
    size_t count = 0;
    how.lock_ms = t->lock_ms;
    how.max = 4;
    MUST(dur_store_fetch_works(t->p, t->arena, &how, got, &count, ERR));
    return count;
}
#define WORKS(got, ...) works(t, (dur_work_fetch){ __VA_ARGS__ }, (got))

static dur_owner_report beat(kit *t, const char *owner) {
    dur_owner_report report = { .still_ours = false };
    MUST(dur_store_owner_beat(t->p, owner, &report, ERR));
    return report;
}

/* "alive" lives until every other owner is dead (kit_owner); what its beats have told, added up. */
static dur_owner_report outlive(kit *t) {
    dur_owner_report all = { .still_ours = true };
    for (int i = 0; i < 8; i++) {
        kit_advance(t, t->lock_ms / 2);
        dur_owner_report one = beat(t, "alive");
        THAT(one.still_ours);
        all.taken_over += one.taken_over;
        all.freed += one.freed;
    }
    return all;
}

/* An owner takes what there is of this kind, one instance, and dies with it. */
static dur_orchestration_item dies_with(kit *t, const char *owner, dur_fetch_kind kind) {
    dur_orchestration_item got[4];
    kit_owner(t, owner);
    SAME(TURNS(got, .owner = owner, .kind = kind), 1);
    outlive(t);
    if (got[0].acquisitions == 0) kit_skip(t, "the store does not count acquisitions");
    return got[0];
}
#define NEEDS_OWNERS()                                                                                                 \
    NEEDS("owner_register", "owner_beat", "owner_release", "fetch_turns", "fetch_works", "commit_turns")

/* ---- fetches ----------------------------------------------------------------------------------------------------- */

static void ours_first_range_of_versions_counts(kit *t) {
    const dur_version_range ranges[] = { { { 1, 0, 0 }, { 1, 9, 9 } }, { { 3, 0, 0 }, { 3, 9, 9 } } };
    const dur_version_range back[] = { { { 3, 0, 0 }, { 3, 9, 9 } }, { { 1, 0, 0 }, { 1, 9, 9 } } };
    const dur_capability_filter first = { ranges, 2 }, second = { back, 2 };
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), PINNED(1, 5, 0)));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    THAT(kit_fetch_for(t, &second).instance == NULL);
    TEXT(kit_fetch_for(t, &first).instance, "a");
}

/* Also what has ended and may be cleared up by anybody. */
static void ours_who_has_no_handler_is_given_nothing(kit *t) {
    NEEDS("list_unserved", "fetch_turns", "fetch_works");
    const dur_handler_filter none = { NULL, 0 };
    dur_orchestration_item items[4];
    dur_leased_work got[4];
    kit_create_ended(t, "ended", NULL, DUR_STATUS_COMPLETED, "");
    MUST(kit_put(t, kit_raised(t, "ended", "late", "")));
    MUST(kit_put(t, kit_start(t, "new")));
    dur_message_row nameless = kit_activity(t, "ended", 9);
    nameless.handler = NULL;
    MUST(kit_put_work(t, nameless));
    SAME(TURNS(items, .handlers = &none), 0);
    SAME(WORKS(got, .handlers = &none), 0);
    TAKE("ended");
    TAKE_WORK(9);
}

static void ours_unknown_owner_is_told_so(kit *t) {
    NEEDS_OWNERS();
    dur_orchestration_item item;
    dur_leased_work work;
    size_t count = 0;
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(kit_put_work(t, kit_activity(t, "b", 1)));
    kit_owner(t, "left");
    MUST(dur_store_owner_release(t->p, "left", ERR));
    for (int i = 0; i < 2; i++) {
        const char *owner = i == 0 ? "left" : "never";
        dur_fetch how = { .owner = owner, .max = 1 };
        dur_work_fetch how_work = { .owner = owner, .max = 1 };
        REFUSED(DUR_ELEASE, NULL, dur_store_fetch_turns(t->p, t->arena, &how, &item, &count, ERR));
        REFUSED(DUR_ELEASE, NULL, dur_store_fetch_works(t->p, t->arena, &how_work, &work, &count, ERR));
    }
    SAME(TAKE("a").attempt_count, 1);
    SAME(TAKE_WORK(1).attempt_count, 1);
}

static void ours_delayed_start_that_is_due_is_no_later_one(kit *t) {
    NEEDS("fetch_turns");
    dur_orchestration_item got[4];
    dur_message_row late = kit_start(t, "a");
    MUST(dur_store_enqueue_for_orchestrator(t->p, &late, t->lock_ms, ERR));
    MUST(kit_put(t, kit_start(t, "a")));
    SAME(TURNS(got, .owner = NULL), 1);
    if (!got[0].start_later) kit_skip(t, "the store does not tell of starts that are not due");
    MUST(dur_store_abandon_orchestration_item(t->p, got[0].lock_token, 0, true, ERR));
    kit_advance(t, t->lock_ms + 10);
    SAME(TURNS(got, .owner = NULL), 1);
    SAME(got[0].message_count, 2);
    THAT(!got[0].start_later);
}

static void ours_fetch_tells_the_rows_that_run(kit *t) {
    NEEDS("fetch_turns");
    dur_orchestration_item got[4];
    kit_create(t, "a");
    MUST(kit_put_work(t, kit_activity(t, "a", 7)));
    MUST(kit_put_work(t, kit_activity(t, "a", 8)));
    dur_leased_work runs = TAKE_WORK(7);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    SAME(TURNS(got, .owner = NULL), 1);
    if (!got[0].works_known) kit_skip(t, "the store stores all work");
    SAME(got[0].work_count, 2);
    SAME(got[0].works[0], 7);
    SAME(got[0].works[1], 8);
    MUST(dur_store_ack_work_item(t->p, runs.lock_token, NULL, ERR));
}

/* Rows that come back stand where they stood, also among rows of other tags and handlers. */
static void ours_row_that_comes_back_has_its_place_among_all_tags(kit *t) {
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, NULL, "red")));
    dur_leased_work first = TAKE_WORK_AS(1, .tags = { .mode = DUR_TAGS_ANY });
    kit_advance(t, 50);
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2, NULL, "blue")));
    kit_advance(t, 50);
    MUST(dur_store_abandon_work_item(t->p, first.lock_token, 100, false, ERR));
    kit_advance(t, 150);
    TAKE_WORK_AS(1, .tags = { .mode = DUR_TAGS_ANY });
    TAKE_WORK_AS(2, .tags = { .mode = DUR_TAGS_ANY });
}

/* ---- long times -------------------------------------------------------------------------------------------------- */

/* Locks, renewals and delays that are longer than 32 bits of milliseconds, and as long as a number can say. */
static void ours_times_are_as_long_as_numbers(kit *t) {
    static const uint64_t long_ms[] = { (UINT64_C(1) << 32) + 10, INT64_MAX, UINT64_MAX };
    for (size_t i = 0; i < COUNT(long_ms); i++) {
        const char *locked = kit_format(t, "locked-%zu", i), *renewed = kit_format(t, "renewed-%zu", i);
        const char *back = kit_format(t, "back-%zu", i), *late = kit_format(t, "late-%zu", i);
        dur_fetch how = { .lock_ms = long_ms[i] };
        dur_orchestration_item item = { .instance = NULL };
        MUST(kit_put(t, kit_start(t, locked)));
        MUST(dur_store_fetch_orchestration_item(t->p, t->arena, &how, &item, ERR));
        TEXT(item.instance, locked);
        MUST(kit_put(t, kit_start(t, renewed)));
        item = TAKE(renewed);
        MUST(dur_store_renew_orchestration_item_lock(t->p, item.lock_token, long_ms[i], ERR));
        MUST(kit_put(t, kit_start(t, back)));
        MUST(dur_store_abandon_orchestration_item(t->p, TAKE(back).lock_token, long_ms[i], false, ERR));
        dur_message_row delayed = kit_start(t, late);
        MUST(dur_store_enqueue_for_orchestrator(t->p, &delayed, long_ms[i], ERR));
        for (uint64_t id = 10 * i + 1; id <= 10 * i + 3; id++)
            MUST(kit_put_work(t, kit_activity(t, "w", id)));
        TAKE_WORK_AS(10 * i + 1, .lock_ms = long_ms[i]);
        MUST(dur_store_renew_work_item_lock(t->p, TAKE_WORK(10 * i + 2).lock_token, long_ms[i], ERR));
        MUST(dur_store_abandon_work_item(t->p, TAKE_WORK(10 * i + 3).lock_token, long_ms[i], false, ERR));
    }
    kit_expire(t);
    NOTHING();
    NO_WORK();
}

static void ours_sessions_are_held_as_long_as_numbers(kit *t) {
    static const uint64_t long_ms[] = { (UINT64_C(1) << 32) + 10, INT64_MAX, UINT64_MAX };
    for (size_t i = 0; i < COUNT(long_ms); i++) {
        const char *session = kit_format(t, "s-%zu", i), *node = kit_format(t, "node-%zu", i);
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2 * i + 1, session, NULL)));
        TAKE_WORK_AS(2 * i + 1, .lock_ms = UINT64_MAX, .session_owner = node, .session_lock_ms = long_ms[i]);
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2 * i + 2, session, NULL)));
    }
    kit_expire(t);
    NO_WORK_AS(SESSION("other"));
}

/* Ids are 64 bits wide: what differs in the upper half is another. */
static void ours_ids_are_64_bits_wide(kit *t) {
    NEEDS("commit_turns");
    const uint64_t high = UINT64_C(1) << 32;
    kit_create(t, "a");
    MUST(kit_put(t, kit_timer(t, "a", 1, 5, dur_store_now_ms(t->p) + 100)));
    MUST(kit_put(t, kit_timer(t, "a", 1, high + 5, dur_store_now_ms(t->p) + 100)));
    MUST(kit_put(t, kit_timer(t, "a", high + 1, 5, dur_store_now_ms(t->p) + 100)));
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 6, NULL, NULL)));
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, high + 6, NULL, NULL)));
    MUST(kit_put_work(t, kit_activity_in(t, "a", high + 1, 6, NULL, NULL)));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    dur_activity_ref timer = REF("a", 1, high + 5), work = REF("a", 1, high + 6);
    dur_turn_commit turn = COMMIT_OF(&item, EVENTS(ev_external(2, "go")));
    turn.timers_dropped = &timer;
    turn.timers_dropped_count = 1;
    turn.cancelled = &work;
    turn.cancelled_count = 1;
    MUST(kit_commit(t, &turn));
    dur_leased_work got = TAKE_WORK(6);
    SAME(got.ref.execution_id, 1);
    got = TAKE_WORK(6);
    SAME(got.ref.execution_id, high + 1);
    NO_WORK();
    kit_advance(t, 150);
    item = TAKE("a");
    SAME(item.message_count, 2);
    THAT(!kit_says(item.messages[0].json, "4294967301") && !kit_says(item.messages[1].json, "4294967301"));
}

/* The larger of old and given, also where the smaller one is new. */
static void ours_current_execution_never_goes_back(kit *t) {
    dur_event_row third = kit_row(t, "a", 3, ev_started(1)), second = kit_row(t, "a", 2, ev_external(1, "old"));
    MUST(dur_store_append(t->p, "a", 3, &third, 1, ERR));
    MUST(dur_store_append(t->p, "a", 2, &second, 1, ERR));
    dur_event_row *rows = NULL;
    SAME(kit_history(t, "a", 0, &rows), 1);
    THAT(kit_says(rows[0].json, "OrchestrationStarted"));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    SAME(TAKE("a").execution_id, 3);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static dur_turn_commit take_over(kit *t, const char *instance, const kit_turn *turn) {
    kit_turn full = *turn;
    dur_orchestration_item nobody = { .instance = instance, .execution_id = 1 };
    full.item = &nobody;
    dur_turn_commit out = kit_make_commit(t, &full);
    out.lock_token = NULL;
    out.take_over = true;
    return out;
}

static void ours_cancel_that_is_not_due_waits_too(kit *t) {
    NEEDS("commit_turns");
    kit_create(t, "a");
    dur_message_row cancel = kit_cancel(t, "a", "why");
    MUST(dur_store_enqueue_for_orchestrator(t->p, &cancel, t->lock_ms, ERR));
    dur_turn_commit turn = take_over(t, "a", &(kit_turn){ EVENTS(ev_external(2, "x")) });
    turn.if_unleased = turn.if_uncancelled = true;
    THAT(kit_commit(t, &turn) != DUR_OK);
    SAME(turn.fault, DUR_TURN_LEASE_LOST);
}

static void ours_take_over_means_messages_of_the_instance(kit *t) {
    NEEDS("commit_turns");
    kit_create(t, "a");
    kit_create(t, "b");
    MUST(kit_put(t, kit_raised(t, "b", "go", "")));
    dur_orchestration_item other = TAKE("b");
    uint64_t theirs = other.messages[0].id;
    MUST(dur_store_abandon_orchestration_item(t->p, other.lock_token, 0, true, ERR));
    dur_turn_commit turn = take_over(t, "a", &(kit_turn){ EVENTS(ev_external(2, "x")) });
    turn.consume_listed = true;
    turn.consumed = &theirs;
    turn.consumed_count = 1;
    THAT(kit_commit(t, &turn) != DUR_OK);
    SAME(turn.fault, DUR_TURN_POSITION);
    SAME(kit_history(t, "a", 1, NULL), 1);
    SAME(TAKE("b").message_count, 1);
}

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

typedef struct post { /* a lane, and an instance that it holds */
    dur_lane *lane;
    dur_orchestration_item item;
} post;

static dur_round rounds(kit *t, const post *at, dur_round round) {
    kit_round(t, at->lane, &round);
    return round;
}
#define ROUND(at, ...) rounds(t, (at), (dur_round){ __VA_ARGS__ })

static dur_turn_commit next_turn(kit *t, const post *at, const kit_turn *turn) {
    kit_turn full = *turn;
    full.item = &at->item;
    dur_turn_commit out = kit_make_commit(t, &full);
    out.owner = "me";
    out.keep_lease = out.consume_listed = true;
    return out;
}
#define NEXT(at, ...) next_turn(t, (at), &(kit_turn){ __VA_ARGS__ })

static post hold(kit *t, const char *instance) {
    NEEDS("lane_open", "lane_round", "owner_register");
    kit_owner(t, "me");
    post at = { .lane = kit_lane(t, "me") };
    dur_fetch fetch = { .owner = "me", .max = 4 };
    MUST(kit_put(t, kit_start(t, instance)));
    dur_round round = ROUND(&at, .fetch = &fetch);
    SAME(round.item_count, 1);
    at.item = round.items[0];
    dur_turn_commit first = NEXT(&at, EVENTS(ev_started(1)), NAMED);
    first.consumed = &at.item.messages[0].id;
    first.consumed_count = 1;
    (void)ROUND(&at, .turns = &first, .turn_count = 1);
    SAME(first.error.code, DUR_OK);
    if (!first.lease_kept) kit_skip(t, "the store keeps no leases");
    return at;
}

static void ours_overdue_message_comes_to_the_lease(kit *t) {
    post at = hold(t, "a");
    kit_advance(t, 100);
    (void)ROUND(&at, .turns = NULL);
    dur_message_row late = kit_raised(t, "a", "late", "");
    late.due_ms = dur_store_now_ms(t->p) - 50;
    MUST(kit_put(t, late));
    dur_round round = ROUND(&at, .turns = NULL);
    SAME(round.held_count, 1);
    THAT(kit_says(round.held[0].message.json, "late"));
}

/* The place that a consumed message leaves is for the next, also for one that was delayed. */
static void ours_room_in_a_queue_is_for_delayed_messages_too(kit *t) {
    post at = hold(t, "a");
    for (int i = 0; i < 2; i++) {
        dur_message_row one = kit_queued(t, "a", "q", i == 0 ? "first" : "second");
        MUST(dur_store_enqueue_for_orchestrator(t->p, &one, (uint64_t)(50 + i), ERR));
    }
    kit_advance(t, 100);
    dur_round round = ROUND(&at, .queue_messages_max = 1);
    SAME(round.held_count, 1);
    uint64_t first = round.held[0].message.id;
    dur_turn_commit turn = NEXT(&at, EVENTS(ev_external(2, "x")));
    turn.consumed = &first;
    turn.consumed_count = 1;
    round = ROUND(&at, .turns = &turn, .turn_count = 1, .queue_messages_max = 1);
    SAME(turn.error.code, DUR_OK);
    size_t held = round.held_count;
    held += ROUND(&at, .queue_messages_max = 1).held_count; /* at the latest with the next */
    SAME(held, 1);
}

/* Nobody waits for the rest of a queue whose first message was seen and left. */
static void ours_rest_of_a_seen_queue_is_no_reason(kit *t) {
    post at = hold(t, "a");
    for (int i = 0; i < 3; i++)
        MUST(kit_put(t, kit_queued(t, "a", "q", "x")));
    dur_round round = ROUND(&at, .queue_messages_max = 1);
    SAME(round.held_count, 1);
    dur_turn_commit turn = NEXT(&at, EVENTS(ev_external(2, "x")));
    turn.keep_lease = false;
    turn.seen_id = round.seen_id;
    turn.seen_now_ms = round.now_ms;
    (void)ROUND(&at, .turns = &turn, .turn_count = 1, .queue_messages_max = 1);
    SAME(turn.error.code, DUR_OK);
    NOTHING();
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    SAME(TAKE("a").message_count, 4);
}

/* What comes behind the round that a turn was made from is a reason, whatever that round said it has seen. */
static void ours_next_message_was_not_seen(kit *t) {
    post at = hold(t, "a");
    dur_round round = ROUND(&at, .turns = NULL);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_turn_commit turn = NEXT(&at, EVENTS(ev_external(2, "x")));
    turn.keep_lease = false;
    turn.seen_id = round.seen_id;
    turn.seen_now_ms = round.now_ms;
    (void)ROUND(&at, .turns = &turn, .turn_count = 1);
    SAME(turn.error.code, DUR_OK);
    SAME(TAKE("a").message_count, 1);
}

/* A pause outlasts the execution in which it was asked for. */
/* It was due before the last round, and came after it. */
static void ours_late_message_was_not_seen(kit *t) {
    post at = hold(t, "a");
    kit_advance(t, 100);
    dur_round round = ROUND(&at, .turns = NULL);
    dur_message_row late = kit_raised(t, "a", "late", "");
    late.due_ms = round.now_ms - 50;
    MUST(kit_put(t, late));
    dur_turn_commit turn = NEXT(&at, EVENTS(ev_external(2, "x")));
    turn.keep_lease = false;
    turn.seen_id = round.seen_id;
    turn.seen_now_ms = round.now_ms;
    (void)ROUND(&at, .turns = &turn, .turn_count = 1);
    SAME(turn.error.code, DUR_OK);
    SAME(TAKE("a").message_count, 1);
}

static void ours_pause_outlasts_a_continue_as_new(kit *t) {
    NEEDS("set_suspended", "get_instance");
    post at = hold(t, "a");
    MUST(dur_store_set_suspended(t->p, "a", "why", ERR));
    if (ROUND(&at, .turns = NULL).asked_count == 0) kit_skip(t, "the store does not ask for leases");
    dur_turn_commit turn = NEXT(&at, EVENTS(ev_continued(2, "n")), MESSAGES(kit_next(t, "a", "n")),
                                .meta = { .status = DUR_STATUS_CONTINUED_AS_NEW, .output = "n" });
    turn.keep_lease = false;
    (void)ROUND(&at, .turns = &turn, .turn_count = 1);
    SAME(turn.error.code, DUR_OK);
    TEXT(kit_instance(t, "a").suspended, "why");
    NOTHING();
    MUST(dur_store_set_suspended(t->p, "a", NULL, ERR));
    TAKE("a");
}

/* Work of the lane's own turn, which the round did not ask for, is something that has come. */
static void ours_lane_does_not_sleep_over_work_of_its_turn(kit *t) {
    NEEDS("lane_rest", "lane_rise");
    post at = hold(t, "a");
    dur_fetch fetch = { .owner = "me", .max = 4 };
    dur_work_fetch work = { .owner = "me", .max = 4, .lock_ms = t->lock_ms };
    (void)ROUND(&at, .fetch = &fetch, .work = &work);
    MUST(dur_store_lane_wait(at.lane, 1, ERR)); /* what came before is told */
    (void)ROUND(&at, .fetch = &fetch, .work = &work);
    dur_turn_commit turn = NEXT(&at, EVENTS(ev_scheduled(2)), WORK(kit_activity(t, "a", 2)));
    (void)ROUND(&at, .turns = &turn, .turn_count = 1, .fetch = &fetch);
    SAME(turn.error.code, DUR_OK);
    uint64_t began = kit_real_ms();
    MUST(dur_store_lane_wait(at.lane, 20000, ERR));
    THAT(kit_real_ms() - began < 15000);
    SAME(ROUND(&at, .work = &work).work_count, 1);
}

/* ---- owners, suspects and sessions ------------------------------------------------------------------------------- */

static void ours_every_dead_owner_is_counted(kit *t) {
    NEEDS_OWNERS();
    dur_leased_work got[4];
    kit_owner(t, "alive");
    for (uint64_t i = 1; i <= 3; i++) {
        const char *owner = kit_format(t, "dead-%llu", (unsigned long long)i);
        kit_owner(t, owner);
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, i, kit_format(t, "s%d", (int)i), NULL)));
        SAME(WORKS(got, .owner = owner, SESSION(owner)), 1);
    }
    dur_owner_report report = outlive(t);
    SAME(report.taken_over, 3);
    SAME(report.freed, 3); /* rows, not sessions */
}

/* Whoever takes it next without asking for suspects does not run it alone. */
static void ours_ordinary_fetch_takes_the_mark_away(kit *t) {
    NEEDS_OWNERS();
    dur_orchestration_item got[4];
    kit_owner(t, "alive");
    MUST(kit_put(t, kit_start(t, "a")));
    dies_with(t, "d1", DUR_FETCH_FRESH);
    dies_with(t, "d2", DUR_FETCH_FRESH);
    kit_owner(t, "leaves");
    SAME(TURNS(got, .owner = "leaves", .kind = DUR_FETCH_SUSPECT), 1);
    MUST(dur_store_owner_release(t->p, "leaves", ERR));
    dies_with(t, "d3", DUR_FETCH_ANY);
    SAME(TURNS(got, .owner = "alive", .kind = DUR_FETCH_SUSPECT), 1);
    SAME(got[0].crashes, 3);
    SAME(got[0].crashes_alone, 0);
}

/* The fewest crashes alone go first, whatever handlers and pinned versions they have. */
static void work_dies_with(kit *t, const char *owner, dur_fetch_kind kind) {
    dur_leased_work got[4];
    kit_owner(t, owner);
    SAME(WORKS(got, .owner = owner, .kind = kind), 1);
    outlive(t);
}

static void ours_ordinary_fetch_takes_the_mark_from_work(kit *t) {
    NEEDS_OWNERS();
    dur_leased_work got[4];
    kit_owner(t, "alive");
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    work_dies_with(t, "d1", DUR_FETCH_FRESH);
    work_dies_with(t, "d2", DUR_FETCH_FRESH);
    kit_owner(t, "leaves");
    SAME(WORKS(got, .owner = "leaves", .kind = DUR_FETCH_SUSPECT), 1);
    if (got[0].crashes == 0) kit_skip(t, "the store counts no crashes");
    MUST(dur_store_owner_release(t->p, "leaves", ERR));
    work_dies_with(t, "d3", DUR_FETCH_ANY);
    SAME(WORKS(got, .owner = "alive", .kind = DUR_FETCH_SUSPECT), 1);
    SAME(got[0].crashes, 3);
    SAME(got[0].crashes_alone, 0);
}

static void ours_blamed_instance_does_not_run_alone(kit *t) {
    NEEDS_OWNERS();
    NEEDS("blame");
    dur_orchestration_item got[4];
    kit_owner(t, "alive");
    MUST(kit_put(t, kit_start(t, "a")));
    dies_with(t, "d1", DUR_FETCH_FRESH);
    dies_with(t, "d2", DUR_FETCH_FRESH);
    kit_owner(t, "d3");
    SAME(TURNS(got, .owner = "d3", .kind = DUR_FETCH_SUSPECT), 1);
    MUST(dur_store_blame(t->p, got[0].lock_token, ERR));
    outlive(t);
    SAME(TURNS(got, .owner = "alive", .kind = DUR_FETCH_SUSPECT), 1);
    SAME(got[0].crashes, 3);
    SAME(got[0].crashes_alone, 0);
}

static void ours_owner_without_a_timeout_has_ten_seconds(kit *t) {
    NEEDS_OWNERS();
    if (t->factory->advance == NULL) kit_skip(t, "time is not the kit's");
    MUST(dur_store_owner_register(t->p, &(dur_owner_options){ .owner = "alive", .timeout_ms = 60000 }, ERR));
    MUST(dur_store_owner_register(t->p, &(dur_owner_options){ .owner = "silent" }, ERR));
    kit_advance(t, 9000);
    SAME(beat(t, "alive").taken_over, 0);
    uint32_t taken = 0;
    for (int i = 0; i < 4; i++) {
        kit_advance(t, 1000);
        taken += beat(t, "alive").taken_over;
    }
    SAME(taken, 1);
}

static void ours_suspects_of_all_handlers_have_one_order(kit *t) {
    NEEDS_OWNERS();
    dur_orchestration_item got[4];
    kit_owner(t, "alive");
    MUST(kit_put(t, kit_start_as(t, "old", "Red", "1.0.0")));
    dies_with(t, "d1", DUR_FETCH_FRESH);
    dies_with(t, "d2", DUR_FETCH_FRESH);
    dies_with(t, "d3", DUR_FETCH_SUSPECT);
    MUST(kit_put(t, kit_start_as(t, "young", "Blue", "1.0.0")));
    dies_with(t, "d4", DUR_FETCH_FRESH);
    dies_with(t, "d5", DUR_FETCH_FRESH);
    SAME(TURNS(got, .owner = "alive", .kind = DUR_FETCH_SUSPECT), 2);
    TEXT(got[0].instance, "young");
    SAME(got[1].crashes_alone, 1);
}

static void ours_round_tells_how_suspect_work_is(kit *t) {
    NEEDS_OWNERS();
    NEEDS("lane_open", "lane_round");
    dur_leased_work got[4];
    kit_owner(t, "alive");
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    for (int i = 0; i < 3; i++) {
        const char *owner = kit_format(t, "d%d", i);
        kit_owner(t, owner);
        SAME(WORKS(got, .owner = owner, .kind = i < 2 ? DUR_FETCH_FRESH : DUR_FETCH_SUSPECT), 1);
        outlive(t);
    }
    post at = { .lane = kit_lane(t, "alive") };
    dur_work_fetch work = { .owner = "alive", .max = 4, .kind = DUR_FETCH_FRESH };
    SAME(ROUND(&at, .work = &work).suspect_work, 2);
}

/* As with rows: an instance that is blamed takes the crash upon itself. */
static void ours_crash_in_company_is_never_told_when_an_instance_is_blamed(kit *t) {
    NEEDS_OWNERS();
    NEEDS("blame");
    dur_orchestration_item got[4];
    kit_owner(t, "alive");
    MUST(kit_put(t, kit_start(t, "a")));
    dies_with(t, "d1", DUR_FETCH_FRESH);
    dies_with(t, "d2", DUR_FETCH_FRESH);
    kit_owner(t, "d3");
    SAME(TURNS(got, .owner = "d3", .kind = DUR_FETCH_SUSPECT), 1);
    MUST(kit_put(t, kit_start(t, "b")));
    SAME(TURNS(got, .owner = "d3", .kind = DUR_FETCH_FRESH), 1);
    outlive(t);
    SAME(TURNS(got, .owner = "alive", .kind = DUR_FETCH_FRESH), 1);
    TEXT(got[0].instance, "b");
    MUST(dur_store_blame(t->p, got[0].lock_token, ERR));
    dur_turn_commit commit = COMMIT_OF(&got[0], EVENTS(ev_started(1)), NAMED);
    commit.owner = "alive";
    MUST(kit_commit(t, &commit));
    SAME(TURNS(got, .owner = "alive", .kind = DUR_FETCH_SUSPECT), 1);
    SAME(got[0].crashes, 3);
    SAME(got[0].crashes_alone, 0);
}

/* A row that ends under an owner is activity of its session. */
static void ours_work_of_an_owner_keeps_its_session_active(kit *t) {
    NEEDS_OWNERS();
    dur_leased_work got[4];
    uint64_t removed = 9;
    kit_owner(t, "me");
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    SAME(WORKS(got, .owner = "me", SESSION("node")), 1);
    kit_advance(t, t->lock_ms / 2);
    THAT(beat(t, "me").still_ours);
    MUST(dur_store_ack_work_item(t->p, got[0].lock_token, NULL, ERR));
    MUST(dur_store_cleanup_orphaned_sessions(t->p, t->lock_ms / 4, &removed, ERR));
    SAME(removed, 0);
}

static void ours_renewal_of_a_session_does_not_end_it(kit *t) {
    NEEDS_OWNERS();
    const char *const nodes[] = { "node" };
    dur_leased_work got[4];
    uint64_t renewed = 0;
    kit_owner(t, "me");
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    SAME(WORKS(got, .owner = "me", SESSION("node")), 1);
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, t->lock_ms / 4, 10 * t->lock_ms, &renewed, ERR));
    SAME(renewed, 1);
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2, "s", NULL)));
    for (int i = 0; i < 3; i++) {
        kit_advance(t, t->lock_ms / 2);
        THAT(beat(t, "me").still_ours);
    }
    NO_WORK_AS(SESSION("other"));
}

static void ours_renewal_is_no_activity_of_a_session(kit *t) {
    static const char *const nodes[] = { "A" };
    uint64_t renewed = 9, third = t->lock_ms / 3;
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    TAKE_WORK_AS(1, SESSION("A"));
    kit_advance(t, third);
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, t->lock_ms, 10 * t->lock_ms, &renewed, ERR));
    SAME(renewed, 1);
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, t->lock_ms, third / 2, &renewed, ERR));
    SAME(renewed, 0);
}

static void ours_session_is_renewed_for_the_time_that_is_said(kit *t) {
    static const char *const nodes[] = { "A" };
    uint64_t renewed = 9;
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    dur_leased_work work = TAKE_WORK_AS(1, SESSION("A"));
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, 100 * t->lock_ms, 10 * t->lock_ms, &renewed, ERR));
    SAME(renewed, 1);
    MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2, "s", NULL)));
    kit_expire(t); /* the time of the claim is over */
    NO_WORK_AS(SESSION("B"));
    TAKE_WORK_AS(2, SESSION("A"));
}

static void ours_session_whose_work_runs_is_kept(kit *t) {
    NEEDS_OWNERS();
    dur_leased_work got[4];
    uint64_t removed = 9;
    kit_owner(t, "me");
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    SAME(WORKS(got, .owner = "me", SESSION("node")), 1);
    kit_advance(t, t->lock_ms / 2);
    THAT(beat(t, "me").still_ours);
    MUST(dur_store_cleanup_orphaned_sessions(t->p, t->lock_ms / 4, &removed, ERR)); /* it runs for long */
    SAME(removed, 0);
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2, "s", NULL)));
    NO_WORK_AS(SESSION("other"));
    TAKE_WORK_AS(2, SESSION("node"));
}

static void ours_row_that_is_gone_does_not_keep_others(kit *t) {
    NEEDS("return_works", "check_works");
    for (uint64_t id = 1; id <= 3; id++)
        MUST(kit_put_work(t, kit_activity(t, "a", id)));
    dur_worker_claim claims[3];
    bool lost[3] = { false, false, false };
    for (uint64_t id = 1; id <= 3; id++) {
        dur_leased_work work = TAKE_WORK(id);
        claims[id - 1] = (dur_worker_claim){ .ref = work.ref, .lock_token = work.lock_token };
    }
    MUST(dur_store_ack_work_item(t->p, claims[0].lock_token, NULL, ERR));
    MUST(dur_store_check_works(t->p, claims, 3, t->lock_ms, lost, ERR));
    THAT(lost[0] && !lost[1] && !lost[2]);
    MUST(dur_store_return_works(t->p, claims, 3, ERR));
    SAME(TAKE_WORK(2).attempt_count, 1);
    SAME(TAKE_WORK(3).attempt_count, 1);
}

const kit_check kit_ours_corners[] = {
    CHECK(ours_first_range_of_versions_counts),
    CHECK(ours_who_has_no_handler_is_given_nothing),
    CHECK(ours_unknown_owner_is_told_so),
    CHECK(ours_delayed_start_that_is_due_is_no_later_one),
    CHECK(ours_fetch_tells_the_rows_that_run),
    CHECK(ours_row_that_comes_back_has_its_place_among_all_tags),
    CHECK(ours_times_are_as_long_as_numbers),
    CHECK(ours_sessions_are_held_as_long_as_numbers),
    CHECK(ours_ids_are_64_bits_wide),
    CHECK(ours_current_execution_never_goes_back),
    CHECK(ours_cancel_that_is_not_due_waits_too),
    CHECK(ours_take_over_means_messages_of_the_instance),
    CHECK(ours_overdue_message_comes_to_the_lease),
    CHECK(ours_room_in_a_queue_is_for_delayed_messages_too),
    CHECK(ours_rest_of_a_seen_queue_is_no_reason),
    CHECK(ours_next_message_was_not_seen),
    CHECK(ours_late_message_was_not_seen),
    CHECK(ours_pause_outlasts_a_continue_as_new),
    CHECK(ours_lane_does_not_sleep_over_work_of_its_turn),
    CHECK(ours_every_dead_owner_is_counted),
    CHECK(ours_ordinary_fetch_takes_the_mark_away),
    CHECK(ours_ordinary_fetch_takes_the_mark_from_work),
    CHECK(ours_blamed_instance_does_not_run_alone),
    CHECK(ours_owner_without_a_timeout_has_ten_seconds),
    CHECK(ours_suspects_of_all_handlers_have_one_order),
    CHECK(ours_round_tells_how_suspect_work_is),
    CHECK(ours_crash_in_company_is_never_told_when_an_instance_is_blamed),
    CHECK(ours_work_of_an_owner_keeps_its_session_active),
    CHECK(ours_renewal_of_a_session_does_not_end_it),
    CHECK(ours_renewal_is_no_activity_of_a_session),
    CHECK(ours_session_is_renewed_for_the_time_that_is_said),
    CHECK(ours_session_whose_work_runs_is_kept),
    CHECK(ours_row_that_is_gone_does_not_keep_others),
    CHECKS_END,
};
