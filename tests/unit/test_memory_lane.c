/*
 * test_memory_lane.c: rounds, kept leases, held messages, eager locks and waking, on the memory store.
 */
#include "store_help.h"

#include "base/thread.h"
#include "provider/memory/memory_internal.h"

typedef struct laned {
    bench *b;
    dur_waker *waker;
    dur_lane *lane;
} laned;

static laned lane_up(const char *owner) {
    laned l = { .b = bench_open("memory:") };
    dur_owner_options options = { .owner = owner, .timeout_ms = 10000 };
    ASSERT_OK(l.b, dur_store_owner_register(l.b->store, &options, &l.b->err));
    l.waker = dur_waker_new();
    dur_lane_options lane = { .owner = owner, .waker = l.waker };
    ASSERT_OK(l.b, dur_store_lane_open(l.b->store, &lane, &l.lane, &l.b->err));
    return l;
}

static void lane_down(laned *l) {
    dur_store_lane_close(l->lane);
    dur_waker_free(l->waker);
    bench_close(l->b);
}

static dur_orchestration_item take(laned *l, const char *instance) {
    dur_message_row start = start_of(l->b, instance);
    ASSERT_OK(l->b, dur_store_enqueue_start(l->b->store, &start, DUR_EXISTS_FAIL, 0, NULL, &l->b->err));
    dur_fetch how = { .owner = "me", .max = 1, .queue_messages_max = 2 };
    dur_round round = { .fetch = &how };
    ASSERT_OK(l->b, dur_store_lane_round(l->lane, l->b->arena, &round, &l->b->err));
    assert_int_equal(round.item_count, 1);
    assert_string_equal(round.items[0].instance, instance);
    assert_string_equal(round.items[0].orchestration_name, "Flow");
    assert_int_equal(round.items[0].acquisitions, 1);
    return round.items[0];
}

/* The first turn, lease kept, the start consumed. */
static void first_turn(laned *l, const dur_orchestration_item *item, dur_turn_work *work, size_t work_count) {
    dur_event_row event = event_of(1);
    uint64_t consumed = item->messages[0].id;
    dur_turn_commit turn = { .lock_token = item->lock_token,
                             .instance = item->instance,
                             .execution_id = 1,
                             .events = &event,
                             .event_count = 1,
                             .metadata = named(),
                             .expected_last = 0,
                             .consume_listed = true,
                             .consumed = &consumed,
                             .consumed_count = 1,
                             .owner = "me",
                             .worker_items = work,
                             .worker_item_count = work_count,
                             .session_owner = "node",
                             .session_lock_ms = 1000,
                             .keep_lease = true };
    dur_round round = { .turns = &turn, .turn_count = 1 };
    ASSERT_OK(l->b, dur_store_lane_round(l->lane, l->b->arena, &round, &l->b->err));
    assert_int_equal(turn.error.code, DUR_OK);
    assert_true(turn.lease_kept);
}

static void keeps_leases_and_hands_messages_out_once(void **state) {
    (void)state;
    laned l = lane_up("me");
    dur_orchestration_item item = take(&l, "a");
    first_turn(&l, &item, NULL, 0);
    dur_fake_world_advance(l.b->fake, 3600000); /* a kept lease has no end of its own */
    dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, "a");
    ASSERT_OK(l.b, dur_store_enqueue_existing(l.b->store, &event, 0, &l.b->err));
    assert_null(fetch(l.b, 1000).instance);
    dur_round round = { .turns = NULL };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    assert_int_equal(round.held_count, 1);
    assert_string_equal(round.held[0].instance, "a");
    assert_string_equal(round.held[0].lock_token, item.lock_token);
    assert_int_equal(round.held[0].message.due_ms, START_MS + 3600000);
    dur_round again = { .turns = NULL };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &again, &l.b->err));
    assert_int_equal(again.held_count, 0);
    assert_int_equal(again.seen_id, round.held[0].message.id);
    lane_down(&l);
}

static dur_turn_commit release_of(const dur_orchestration_item *item, uint64_t seen_id, uint64_t seen_now_ms) {
    return (dur_turn_commit){ .lock_token = item->lock_token,
                              .instance = item->instance,
                              .execution_id = 1,
                              .expected_last = DUR_NOT_COMPARED,
                              .consume_listed = true,
                              .owner = "me",
                              .seen_id = seen_id,
                              .seen_now_ms = seen_now_ms };
}

static void seen_messages_are_no_reason(void **state) {
    (void)state;
    laned l = lane_up("me");
    dur_orchestration_item item = take(&l, "a");
    first_turn(&l, &item, NULL, 0);
    dur_message_row old = queue_of("a", "q", NULL);
    dur_message_row later = queue_of("a", "q", NULL);
    ASSERT_OK(l.b, dur_store_enqueue_existing(l.b->store, &old, 0, &l.b->err));
    ASSERT_OK(l.b, dur_store_enqueue_existing(l.b->store, &later, 5000, &l.b->err));
    dur_round round = { .turns = NULL };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    assert_int_equal(round.held_count, 1);
    assert_int_equal(round.next_due_ms, START_MS + 5000);
    dur_turn_commit turn = release_of(&item, round.seen_id, round.now_ms);
    ASSERT_OK(l.b, dur_store_commit_turns(l.b->store, &turn, 1, &l.b->err));
    assert_int_equal(turn.error.code, DUR_OK);
    assert_null(fetch(l.b, 1000).instance); /* what was seen is no reason */
    dur_fake_world_advance(l.b->fake, 5000);
    dur_orchestration_item next = fetch(l.b, 1000); /* what has become due since is, and everything comes along */
    assert_string_equal(next.instance, "a");
    assert_int_equal(next.message_count, 2);
    assert_int_equal(next.attempt_count, 1); /* a committed turn saw the first */
    ASSERT_OK(l.b, dur_store_abandon_orchestration_item(l.b->store, next.lock_token, 0, false, &l.b->err));
    assert_int_equal(fetch(l.b, 1000).message_count, 2); /* given back without "seen": all count */
    lane_down(&l);
}

static void newer_messages_are_a_reason(void **state) {
    (void)state;
    laned l = lane_up("me");
    dur_orchestration_item item = take(&l, "a");
    first_turn(&l, &item, NULL, 0);
    dur_round round = { .turns = NULL };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, "a"); /* between run and commit */
    ASSERT_OK(l.b, dur_store_enqueue_existing(l.b->store, &event, 0, &l.b->err));
    dur_turn_commit turn = release_of(&item, round.seen_id, round.now_ms);
    dur_round release = { .turns = &turn, .turn_count = 1 };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &release, &l.b->err));
    assert_int_equal(turn.error.code, DUR_OK);
    assert_true(release.more);
    assert_int_equal(fetch(l.b, 1000).message_count, 1);
    lane_down(&l);
}

static void first_few_of_a_queue(void **state) {
    (void)state;
    laned l = lane_up("me");
    dur_orchestration_item item = take(&l, "a");
    first_turn(&l, &item, NULL, 0);
    for (int i = 0; i < 5; i++) {
        dur_message_row m = queue_of("a", "q", NULL);
        ASSERT_OK(l.b, dur_store_enqueue_existing(l.b->store, &m, 0, &l.b->err));
    }
    dur_round round = { .queue_messages_max = 2 };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    assert_int_equal(round.held_count, 2);
    dur_fetched_message *more;
    size_t count;
    const dur_fetched_message *last = &round.held[1].message;
    ASSERT_OK(l.b, dur_store_lane_messages(l.lane, l.b->arena, "a", item.lock_token, "q", last->due_ms, last->id, 1,
                                           &more, &count, &l.b->err));
    assert_int_equal(count, 1);
    assert_int_equal(more[0].id, last->id + 1);
    /* The first is consumed; three were handed out and two are left: nothing new before there is room. */
    uint64_t consumed[3] = { round.held[0].message.id, last->id, more[0].id };
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .execution_id = 1,
                             .expected_last = 1,
                             .consume_listed = true,
                             .consumed = consumed,
                             .consumed_count = 3,
                             .owner = "me",
                             .keep_lease = true };
    dur_round next = { .turns = &turn, .turn_count = 1, .queue_messages_max = 2 };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &next, &l.b->err));
    assert_int_equal(turn.error.code, DUR_OK);
    assert_int_equal(next.held_count, 2);
    assert_int_equal(next.held[0].message.id, more[0].id + 1);
    assert_int_equal(dur_store_lane_messages(l.lane, l.b->arena, "a", "wrong", "q", 0, 0, 1, &more, &count, &l.b->err),
                     DUR_ELEASE);
    lane_down(&l);
}

static void locks_eagerly(void **state) {
    (void)state;
    laned l = lane_up("me");
    dur_message_row taken = activity_of(l.b, "other", 9, "s2", NULL); /* s2 belongs to another node */
    ASSERT_OK(l.b, dur_store_enqueue_for_worker(l.b->store, &taken, &l.b->err));
    dur_work_fetch theirs = {
        .lock_ms = 60000, .session_owner = "them", .session_lock_ms = 60000, .tags = { .mode = DUR_TAGS_ANY }
    };
    dur_leased_work work;
    ASSERT_OK(l.b, dur_store_fetch_work_item(l.b->store, l.b->arena, &theirs, &work, &l.b->err));
    assert_non_null(work.json.data);

    dur_orchestration_item item = take(&l, "a");
    dur_turn_work items[3] = {
        { .message = activity_of(l.b, "a", 2, NULL, NULL), .lock_token = "t2" },
        { .message = activity_of(l.b, "a", 3, "s1", NULL), .lock_token = "t3" },
        { .message = activity_of(l.b, "a", 4, "s2", NULL), .lock_token = "t4" },
    };
    first_turn(&l, &item, items, 3);
    assert_true(items[0].locked);
    assert_true(items[1].locked);
    assert_false(items[2].locked);
    dur_work_fetch how = {
        .lock_ms = 1000, .session_owner = "third", .session_lock_ms = 1000, .tags = { .mode = DUR_TAGS_ANY }
    };
    ASSERT_OK(l.b, dur_store_fetch_work_item(l.b->store, l.b->arena, &how, &work, &l.b->err));
    assert_null(work.json.data);
    bool lost[2];
    dur_worker_claim claims[2] = { { .ref = { .row_id = items[0].row_id }, .lock_token = "t2" },
                                   { .ref = { .row_id = items[1].row_id }, .lock_token = "nonsense" } };
    ASSERT_OK(l.b, dur_store_check_works(l.b->store, claims, 2, 0, lost, &l.b->err));
    assert_false(lost[0]);
    assert_true(lost[1]);

    /* A turn that consumes a row it does not hold fails as a whole and says which. */
    dur_event_row event = event_of(2);
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .execution_id = 1,
                             .expected_last = 1,
                             .events = &event,
                             .event_count = 1,
                             .consume_listed = true,
                             .worker_consumed = claims,
                             .worker_consumed_count = 2,
                             .owner = "me",
                             .keep_lease = true };
    dur_round round = { .turns = &turn, .turn_count = 1 };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    assert_int_equal(turn.fault, DUR_TURN_WORK_LOST);
    assert_int_equal(turn.lost_work_count, 1);
    assert_ptr_equal(turn.lost_work[0], &claims[1]);
    claims[1].lock_token = "t3";
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    dur_queue_depths depths;
    ASSERT_OK(l.b, dur_store_get_queue_depths(l.b->store, &depths, &l.b->err));
    assert_int_equal(depths.worker_queue, 1);
    lane_down(&l);
}

static void compares_positions(void **state) {
    (void)state;
    laned l = lane_up("me");
    dur_orchestration_item item = take(&l, "a");
    first_turn(&l, &item, NULL, 0);
    dur_event_row event = event_of(2);
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .execution_id = 1,
                             .expected_last = 0,
                             .events = &event,
                             .event_count = 1,
                             .consume_listed = true,
                             .owner = "me",
                             .keep_lease = true };
    dur_round round = { .turns = &turn, .turn_count = 1 };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    assert_int_equal(turn.fault, DUR_TURN_POSITION);
    assert_int_equal(turn.error.code, DUR_ECONFLICT);
    turn.lock_token = "wrong";
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    turn.lock_token = item.lock_token;
    turn.expected_last = 1;
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    dur_orchestration_item history;
    ASSERT_OK(l.b, dur_store_lane_history(l.lane, l.b->arena, "a", item.lock_token, 0, &history, &l.b->err));
    assert_int_equal(history.history_count, 2);
    assert_int_equal(history.last_event_id, 2);
    lane_down(&l);
}

static void sees_its_own_writes(void **state) {
    (void)state;
    laned l = lane_up("me");
    dur_orchestration_item item = take(&l, "a");
    dur_message_row child = start_of(l.b, "a::sub::2");
    dur_event_row event = event_of(1);
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .execution_id = 1,
                             .events = &event,
                             .event_count = 1,
                             .metadata = named(),
                             .consume_listed = true,
                             .consumed = &item.messages[0].id,
                             .consumed_count = 1,
                             .owner = "me",
                             .keep_lease = true,
                             .orchestrator_items = &child,
                             .orchestrator_item_count = 1 };
    dur_fetch how = { .owner = "me", .max = 8, .kind = DUR_FETCH_FRESH };
    dur_round round = { .turns = &turn, .turn_count = 1, .fetch = &how };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    assert_int_equal(turn.error.code, DUR_OK);
    assert_int_equal(round.item_count, 1);
    assert_string_equal(round.items[0].instance, "a::sub::2");
    assert_int_equal(round.items[0].acquisitions, 1);
    assert_false(round.more);
    lane_down(&l);
}

static void reports_lost_leases(void **state) {
    (void)state;
    laned l = lane_up("me");
    dur_orchestration_item a = take(&l, "a"), c = take(&l, "c");
    first_turn(&l, &a, NULL, 0);
    first_turn(&l, &c, NULL, 0);
    const char *ids[] = { "a" };
    ASSERT_OK(l.b, dur_store_delete_instances(l.b->store, ids, 1, true, NULL, &l.b->err));
    dur_event_row last = event_of(2);
    dur_turn_commit terminate = { .instance = "c",
                                  .execution_id = 1,
                                  .expected_last = DUR_NOT_COMPARED,
                                  .events = &last,
                                  .event_count = 1,
                                  .take_over = true,
                                  .remove_work = true,
                                  .metadata = { .status = DUR_STATUS_FAILED, .output = "terminated" } };
    ASSERT_OK(l.b, dur_store_commit_turns(l.b->store, &terminate, 1, &l.b->err));
    assert_int_equal(terminate.error.code, DUR_OK);
    dur_event_row event = event_of(2);
    dur_turn_commit late = { .lock_token = c.lock_token,
                             .execution_id = 1,
                             .expected_last = 1,
                             .events = &event,
                             .event_count = 1,
                             .consume_listed = true,
                             .keep_lease = true };
    dur_round round = { .turns = &late, .turn_count = 1 };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    assert_int_equal(late.fault, DUR_TURN_LEASE_LOST);
    assert_int_equal(round.lost_count, 2);
    assert_string_equal(round.lost[0], "a");
    assert_string_equal(round.lost[1], "c");
    dur_instance_row row;
    ASSERT_OK(l.b, dur_store_get_instance(l.b->store, l.b->arena, "c", &row, &l.b->err));
    assert_int_equal(row.status, DUR_STATUS_FAILED);
    lane_down(&l);
}

static void drops_timers(void **state) {
    (void)state;
    laned l = lane_up("me");
    dur_orchestration_item item = take(&l, "a");
    first_turn(&l, &item, NULL, 0);
    dur_message_row timer = message_of(DUR_WORK_TIMER_FIRED, "a");
    timer.execution_id = 1;
    timer.activity_id = 2;
    timer.due_ms = START_MS + 1000;
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .execution_id = 1,
                             .expected_last = 1,
                             .consume_listed = true,
                             .owner = "me",
                             .keep_lease = true,
                             .orchestrator_items = &timer,
                             .orchestrator_item_count = 1 };
    dur_round round = { .turns = &turn, .turn_count = 1 };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    assert_int_equal(round.next_due_ms, START_MS + 1000);
    dur_activity_ref dropped[2] = { { .execution_id = 1, .activity_id = 2 }, { .execution_id = 1, .activity_id = 77 } };
    dur_turn_commit drop = { .lock_token = item.lock_token,
                             .execution_id = 1,
                             .expected_last = 1,
                             .consume_listed = true,
                             .owner = "me",
                             .keep_lease = true,
                             .timers_dropped = dropped,
                             .timers_dropped_count = 2 };
    dur_round next = { .turns = &drop, .turn_count = 1 };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &next, &l.b->err));
    assert_int_equal(next.next_due_ms, DUR_NEVER);
    dur_fake_world_advance(l.b->fake, 2000);
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &next, &l.b->err));
    assert_int_equal(next.held_count, 0);
    lane_down(&l);
}

static void hands_out_what_becomes_due(void **state) {
    (void)state;
    laned l = lane_up("me");
    dur_orchestration_item item = take(&l, "a");
    first_turn(&l, &item, NULL, 0);
    dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, "a");
    ASSERT_OK(l.b, dur_store_enqueue_existing(l.b->store, &event, 700, &l.b->err));
    dur_round round = { .turns = NULL };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    assert_int_equal(round.held_count, 0);
    dur_fake_world_advance(l.b->fake, 700);
    ASSERT_OK(l.b, dur_store_lane_wait(l.lane, 60000, &l.b->err)); /* returns because it is due */
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &round, &l.b->err));
    assert_int_equal(round.held_count, 1);
    lane_down(&l);
}

/* Does the lane's next wait return at once? */
static bool has_news(const laned *l) {
    const dur__mem_lane *lane = (const dur__mem_lane *)(const void *)l->lane;
    return lane->looked != lane->mem->stamp;
}

static void look_everywhere(laned *l, size_t expected_works) {
    dur_fetch fetch = { .owner = "me", .max = 1 };
    dur_work_fetch work = { .owner = "me", .max = 1 };
    dur_round round = { .fetch = &fetch, .work = &work };
    ASSERT_OK(l->b, dur_store_lane_round(l->lane, l->b->arena, &round, &l->b->err));
    assert_int_equal(round.work_count, expected_works);
}

/* A round that commits and asks for nothing must not pass for a look at what has come. */
static void a_round_that_only_commits_keeps_the_news(void **state) {
    (void)state;
    laned l = lane_up("me");
    look_everywhere(&l, 0);
    assert_false(has_news(&l));
    dur_message_row work = message_of(DUR_WORK_ACTIVITY_EXECUTE, "a");
    ASSERT_OK(l.b, dur_store_enqueue_for_worker(l.b->store, &work, &l.b->err));
    dur_round commit = { .turns = NULL };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, l.b->arena, &commit, &l.b->err));
    assert_true(has_news(&l));
    ASSERT_OK(l.b, dur_store_lane_wait(l.lane, DUR_NEVER, &l.b->err));
    look_everywhere(&l, 1);
    assert_false(has_news(&l));
    lane_down(&l);
}

/* The same for what only time makes visible, in the very round that does not ask. */
static void time_is_news_too(void **state) {
    (void)state;
    laned l = lane_up("me");
    dur_arena *arena = l.b->arena;
    dur_message_row item = message_of(DUR_WORK_ACTIVITY_EXECUTE, "a");
    ASSERT_OK(l.b, dur_store_enqueue_for_worker(l.b->store, &item, &l.b->err));
    dur_work_fetch how = { .lock_ms = 1000 };
    dur_leased_work work;
    ASSERT_OK(l.b, dur_store_fetch_work_item(l.b->store, arena, &how, &work, &l.b->err));
    ASSERT_OK(l.b, dur_store_abandon_work_item(l.b->store, work.lock_token, 500, true, &l.b->err));
    look_everywhere(&l, 0);
    assert_false(has_news(&l));
    dur_fake_world_advance(l.b->fake, 500);
    dur_round commit = { .turns = NULL };
    ASSERT_OK(l.b, dur_store_lane_round(l.lane, arena, &commit, &l.b->err));
    assert_true(has_news(&l));
    look_everywhere(&l, 1);
    lane_down(&l);
}

/* ---- waking, with real threads ----------------------------------------------------------------------------------- */

typedef struct sender {
    dur_provider *store;
    dur_message_row item;
} sender;

static void send_one(void *arg) {
    sender *s = arg;
    dur_store_enqueue_for_orchestrator(s->store, &s->item, 0, NULL);
}

static void wakes_the_sleeper(void **state) {
    (void)state;
    dur_provider *store;
    dur_error err = DUR_ERROR_INIT;
    assert_int_equal(dur_open(&store, "memory:", &err), DUR_OK);
    dur_waker *waker = dur_waker_new();
    dur_lane_options options = { .waker = waker };
    dur_lane *lane;
    assert_int_equal(dur_store_lane_open(store, &options, &lane, &err), DUR_OK);
    dur_arena *arena = dur_arena_new();
    for (int i = 0; i < 200; i++) {
        char id[16];
        snprintf(id, sizeof(id), "i%d", i);
        sender s = { store, message_of(DUR_WORK_START_ORCHESTRATION, id) };
        dur__thread thread;
        assert_int_equal(dur__thread_start(&thread, "sender", send_one, &s), 0);
        dur_fetch how = { .lock_ms = 60000, .max = 1 };
        size_t found = 0;
        while (found == 0) {
            dur_round round = { .fetch = &how };
            assert_int_equal(dur_store_lane_round(lane, arena, &round, &err), DUR_OK);
            found = round.item_count;
            if (found == 0) assert_int_equal(dur_store_lane_wait(lane, 60000, &err), DUR_OK);
        }
        dur__thread_join(&thread);
        dur_arena_reset(arena);
    }
    dur_store_lane_close(lane);
    dur_waker_free(waker);
    dur_arena_free(arena);
    dur_provider_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_leases_and_hands_messages_out_once),
        cmocka_unit_test(seen_messages_are_no_reason),
        cmocka_unit_test(newer_messages_are_a_reason),
        cmocka_unit_test(first_few_of_a_queue),
        cmocka_unit_test(locks_eagerly),
        cmocka_unit_test(compares_positions),
        cmocka_unit_test(sees_its_own_writes),
        cmocka_unit_test(reports_lost_leases),
        cmocka_unit_test(drops_timers),
        cmocka_unit_test(hands_out_what_becomes_due),
        cmocka_unit_test(a_round_that_only_commits_keeps_the_news),
        cmocka_unit_test(time_is_news_too),
        cmocka_unit_test(wakes_the_sleeper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
