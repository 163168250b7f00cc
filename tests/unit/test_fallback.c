/*
 * test_fallback.c: a store with the required methods alone does, through dur_store_, what sys/provider_methods.h says.
 */
#include "store_help.h"

#include "provider/provider_internal.h"
#include "support/faulty.h"

static bench *minimal(void) {
    bench *b = bench_open("memory:");
    dur_provider *inner = b->store;
    ASSERT_OK(b, dur__minimal_wrap(&b->store, inner, &b->err));
    assert_false(dur_store_has(b->store, "lane_open"));
    assert_false(dur_store_has(b->store, "check"));
    assert_true(dur_store_has(b->store, "get_kv_all_values"));
    return b;
}

static void a_lane_of_required_methods(void **state) {
    (void)state;
    bench *b = minimal();
    dur_lane_options options = { .waker = dur_waker_new() };
    dur_lane *lane;
    ASSERT_OK(b, dur_store_lane_open(b->store, &options, &lane, &b->err));
    assert_true(dur__lane_is_fallback(lane));
    dur__lane_set_poll(lane, 1);
    for (int i = 0; i < 3; i++) {
        const char *ids[3] = { "a", "b", "c" };
        dur_message_row start = start_of(b, ids[i]);
        ASSERT_OK(b, dur_store_enqueue_start(b->store, &start, DUR_EXISTS_FAIL, 0, NULL, &b->err));
    }
    dur_fetch how = { .lock_ms = 5000, .owner = "ignored", .max = 2 };
    dur_work_fetch work = { .lock_ms = 5000, .max = 4, .tags = { .mode = DUR_TAGS_DEFAULT_ONLY } };
    dur_round round = { .fetch = &how, .work = &work };
    ASSERT_OK(b, dur_store_lane_round(lane, b->arena, &round, &b->err));
    assert_int_equal(round.item_count, 2);
    assert_true(round.more);
    assert_string_equal(round.items[0].orchestration_name, "Flow");

    /* The lease is not kept, work is not locked eagerly, and the next round finds the work. */
    dur_event_row event = event_of(1);
    dur_turn_work item = { .message = activity_of(b, "a", 2, NULL, NULL), .lock_token = "t" };
    dur_turn_commit turn = { .lock_token = round.items[0].lock_token,
                             .instance = "a",
                             .execution_id = 1,
                             .events = &event,
                             .event_count = 1,
                             .metadata = named(),
                             .expected_last = 0,
                             .consume_listed = true,
                             .consumed = &round.items[0].messages[0].id,
                             .consumed_count = 1,
                             .worker_items = &item,
                             .worker_item_count = 1,
                             .keep_lease = true,
                             .owner = "me" };
    dur_round next = { .turns = &turn, .turn_count = 1, .work = &work };
    ASSERT_OK(b, dur_store_lane_round(lane, b->arena, &next, &b->err));
    assert_int_equal(turn.error.code, DUR_OK);
    assert_false(turn.lease_kept);
    assert_false(item.locked);
    assert_int_equal(next.work_count, 1);
    assert_int_equal(next.now_ms, START_MS);

    dur_message_row done = message_of(DUR_WORK_ACTIVITY_COMPLETED, "a");
    dur_work_ack acks[2] = { { .lock_token = next.works[0].lock_token, .completion = &done },
                             { .lock_token = "wrong", .completion = &done } };
    how.max = 8;
    dur_round last = { .acks = acks, .ack_count = 2, .fetch = &how };
    ASSERT_OK(b, dur_store_lane_round(lane, b->arena, &last, &b->err));
    assert_int_equal(acks[0].error.code, DUR_OK);
    assert_int_equal(acks[1].error.code, DUR_ELEASE);
    assert_int_equal(last.item_count, 2); /* a with its completion, and c */
    assert_false(last.more);
    ASSERT_OK(b, dur_store_lane_wait(lane, 60000, &b->err));
    ASSERT_OK(b, dur_store_lane_wait(lane, 60000, &b->err)); /* polls: returns after its 1 ms */
    dur_fetched_message *more;
    size_t count;
    ASSERT_OK(b, dur_store_lane_messages(lane, b->arena, "a", "t", NULL, 0, 0, 1, &more, &count, &b->err));
    assert_int_equal(count, 0);
    dur_store_lane_close(lane);
    dur_waker_free(options.waker);
    bench_close(b);
}

static void turns_one_by_one(void **state) {
    (void)state;
    bench *b = minimal();
    make_running(b, "a");
    dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, "a");
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &event, 0, &b->err));
    dur_fetch how = { .lock_ms = 5000, .max = 4 };
    dur_orchestration_item items[4];
    size_t count;
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &how, items, &count, &b->err));
    assert_int_equal(count, 1);
    /* Given back unused: the message is still there, and its attempt is not counted. */
    dur_turn_commit turn = { .lock_token = items[0].lock_token,
                             .execution_id = 1,
                             .expected_last = DUR_NOT_COMPARED,
                             .consume_listed = true,
                             .give_back = true };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    assert_int_equal(turn.error.code, DUR_OK);
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &how, items, &count, &b->err));
    assert_int_equal(count, 1);
    assert_int_equal(items[0].attempt_count, 1);
    how.kind = DUR_FETCH_SUSPECT;
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &how, items + 1, &count, &b->err));
    assert_int_equal(count, 0);

    dur_event_row twice = event_of(1);
    turn =
        (dur_turn_commit){ .lock_token = items[0].lock_token, .execution_id = 1, .events = &twice, .event_count = 1 };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    assert_int_equal(turn.fault, DUR_TURN_POSITION);
    turn.lock_token = "wrong";
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    turn = (dur_turn_commit){ .instance = "a", .take_over = true, .remove_work = true };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    assert_int_equal(turn.error.code, DUR_EUNSUPPORTED);
    assert_non_null(strstr(turn.error.message, "commit_turns"));
    turn = (dur_turn_commit){ .lock_token = items[0].lock_token, .set_suspended = true, .suspended = "why" };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    assert_int_equal(turn.error.code, DUR_EUNSUPPORTED);
    bench_close(b);
}

static void work_one_by_one(void **state) {
    (void)state;
    bench *b = minimal();
    for (uint64_t i = 1; i <= 3; i++) {
        dur_message_row m = activity_of(b, "a", i, NULL, NULL);
        ASSERT_OK(b, dur_store_enqueue_for_worker(b->store, &m, &b->err));
    }
    dur_work_fetch how = { .lock_ms = 5000, .max = 8, .tags = { .mode = DUR_TAGS_ANY } };
    dur_leased_work works[8];
    size_t count;
    ASSERT_OK(b, dur_store_fetch_works(b->store, b->arena, &how, works, &count, &b->err));
    assert_int_equal(count, 3);
    dur_worker_claim claims[3];
    for (int i = 0; i < 3; i++)
        claims[i] = (dur_worker_claim){ works[i].ref, works[i].lock_token };
    ASSERT_OK(b, dur_store_ack_work_item(b->store, claims[1].lock_token, NULL, &b->err));
    bool lost[3];
    ASSERT_OK(b, dur_store_check_works(b->store, claims, 3, 0, lost, &b->err));
    assert_false(lost[0]);
    assert_true(lost[1]);
    assert_false(lost[2]);
    /* A store that cannot be reached has not said that a row is gone. */
    dur__faulty_add(b->store, &(dur__fault_plan){ .method = "renew_work_item_lock" });
    assert_int_equal(dur_store_check_works(b->store, claims, 1, 0, lost, &b->err), DUR_EUNAVAILABLE);
    assert_false(lost[0]);
    ASSERT_OK(b, dur_store_return_works(b->store, claims, 3, &b->err));
    ASSERT_OK(b, dur_store_fetch_works(b->store, b->arena, &how, works, &count, &b->err));
    assert_int_equal(count, 2);
    assert_int_equal(works[0].attempt_count, 1);
    ASSERT_OK(b, dur_store_dead_letter_work(b->store, works[0].lock_token, "unreadable", &b->err));
    assert_int_equal(dur_store_renew_work_item_lock(b->store, works[0].lock_token, 1, &b->err), DUR_ELEASE);
    bench_close(b);
}

static void looks_before_it_enqueues(void **state) {
    (void)state;
    bench *b = minimal();
    bool existed = true;
    dur_message_row start = start_of(b, "a");
    dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, "nobody");
    assert_int_equal(dur_store_enqueue_existing(b->store, &event, 0, &b->err), DUR_ENOTFOUND);
    ASSERT_OK(b, dur_store_enqueue_start(b->store, &start, DUR_EXISTS_FAIL, 0, &existed, &b->err));
    assert_false(existed);
    event.instance = "a"; /* no turn yet, but this handle has asked for it */
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &event, 0, &b->err));
    assert_int_equal(dur_store_enqueue_start(b->store, &start, DUR_EXISTS_FAIL, 0, &existed, &b->err), DUR_EEXISTS);
    dur_orchestration_item item = fetch(b, 5000);
    assert_int_equal(item.message_count, 2);
    dur_event last = { .kind = DUR_EVENT_ORCHESTRATION_COMPLETED,
                       .event_id = 1,
                       .instance_id = "a",
                       .execution_id = 1,
                       .duroxide_version = "0.1.0",
                       .output = "done" };
    dur_event_row row;
    ASSERT_OK(b, dur_event_row_from(&row, b->arena, &last, &b->err));
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .execution_id = 1,
                             .events = &row,
                             .event_count = 1,
                             .metadata = { .status = DUR_STATUS_COMPLETED } };
    ASSERT_OK(b, dur_store_ack_orchestration_item(b->store, &turn, &b->err));
    assert_int_equal(dur_store_enqueue_start(b->store, &start, DUR_EXISTS_FAIL, 0, &existed, &b->err), DUR_EEXISTS);
    assert_true(existed);
    ASSERT_OK(b, dur_store_enqueue_start(b->store, &start, DUR_EXISTS_RETURN, 0, &existed, &b->err));
    assert_true(existed);
    assert_int_equal(dur_store_enqueue_start(b->store, &start, DUR_EXISTS_REPLACE_FINISHED, 0, &existed, &b->err),
                     DUR_EUNSUPPORTED);
    dur_message_row queued = queue_of("a", "q", NULL);
    assert_int_equal(dur_store_enqueue_existing(b->store, &queued, 0, &b->err), DUR_ESTATE);
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &event, 0, &b->err));
    dur_instance_stats stats;
    bool found;
    ASSERT_OK(b, dur_store_get_instance_stats(b->store, b->arena, "a", &found, &stats, &b->err));
    assert_true(found);
    assert_int_equal(stats.history_event_count, 1);
    assert_int_equal(stats.history_size_bytes, row.json.size);
    ASSERT_OK(b, dur_store_get_instance_stats(b->store, b->arena, "nobody", &found, &stats, &b->err));
    assert_false(found);
    bench_close(b);
}

static void the_rest_names_its_method(void **state) {
    (void)state;
    bench *b = minimal();
    dur_owner_options owner = { .owner = "me" };
    dur_owner_report report;
    dur_instance_row row;
    dur_instance_row *rows;
    size_t count;
    assert_int_equal(dur_store_owner_register(b->store, &owner, &b->err), DUR_EUNSUPPORTED);
    assert_int_equal(dur_store_owner_beat(b->store, "me", &report, &b->err), DUR_EUNSUPPORTED);
    assert_int_equal(dur_store_set_suspended(b->store, "a", "x", &b->err), DUR_EUNSUPPORTED);
    assert_int_equal(dur_store_get_instance(b->store, b->arena, "a", &row, &b->err), DUR_EUNSUPPORTED);
    assert_int_equal(dur_store_list_instances(b->store, b->arena, NULL, &rows, &count, &b->err), DUR_EUNSUPPORTED);
    assert_non_null(strstr(b->err.message, "list_instances"));
    assert_int_equal(dur_store_check(b->store, &b->err), DUR_EUNSUPPORTED);
    uint64_t id = 1;
    ASSERT_OK(b, dur_store_dead_letter_messages(b->store, "a", &id, 1, "unreadable", &b->err));
    dur_watch *watch;
    ASSERT_OK(b, dur_store_watch_open(b->store, "a", &watch, &b->err));
    assert_int_equal(dur_store_watch_wait(watch, 1, &b->err), DUR_ETIMEOUT);
    ASSERT_OK(b, dur_store_watch_wait(watch, 60000, &b->err)); /* polls: a spurious return */
    dur_store_watch_close(watch);
    bench_close(b);
}

static void undecodable_history_is_reported(void **state) {
    (void)state;
    bench *b = minimal();
    make_running(b, "a"); /* its event is no event of ours */
    dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, "a");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &event, 0, &b->err));
    dur_orchestration_item item = fetch(b, 5000);
    assert_non_null(item.history_error);
    assert_non_null(strstr(item.history_error, "deserialization failed"));
    assert_int_equal(item.history_count, 0);
    assert_int_equal(item.last_event_id, 1);
    dur_event *events;
    size_t count;
    assert_int_equal(dur_store_read_events(b->store, b->arena, "a", 0, &events, &count, &b->err), DUR_ECORRUPT);
    assert_non_null(strstr(b->err.message, "deserialization failed"));
    bench_close(b);
}

/* ---- a store that deletes and knows no turns ---- */

static const dur_provider_methods *sound;

static int ack_after_a_deletion(dur_provider *self, dur_turn_commit *turn, dur_error *err) {
    const char *parent = turn->metadata.parent_instance_id;
    dur_delete_result gone;
    if (parent != NULL && sound->delete_instances(self, &parent, NULL, 1, true, &gone, err) != DUR_OK) return err->code;
    return sound->ack_orchestration_item(self, turn, err);
}

/* Commit the first turn of a child of "parent"; what became of it. */
static dur_turn_commit first_turn(bench *b, const char *child) {
    dur_message_row start = start_of(b, child);
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    dur_event_row *event = dur_arena_zalloc(b->arena, sizeof(*event));
    *event = event_of(1);
    dur_turn_commit turn = { .lock_token = fetch(b, 5000).lock_token,
                             .instance = child,
                             .execution_id = 1,
                             .events = event,
                             .event_count = 1,
                             .metadata = named(),
                             .expected_last = 0,
                             .needs_parent = true };
    turn.metadata.parent_instance_id = "parent";
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    return turn;
}

static bool is_there(bench *b, const char *instance) {
    dur_instance_row row;
    return dur_store_get_instance(b->store, b->arena, instance, &row, &b->err) == DUR_OK;
}

static void an_orphan_is_refused_or_follows(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    dur_provider_methods spiteful;
    const char *const family[] = { "parent", "born" };
    ASSERT_OK(b, dur__faulty_wrap(&b->store, b->store, 1, &b->err));
    assert_int_equal(dur__faulty_hide(b->store, "commit_turns"), DUR_OK);
    make_running(b, "parent");
    assert_int_equal(first_turn(b, "born").fault, DUR_TURN_FINE);
    ASSERT_OK(b, dur_store_delete_instances(b->store, family, 2, true, NULL, &b->err));
    /* deleted before the look */
    assert_int_equal(first_turn(b, "late").fault, DUR_TURN_ORPHAN);
    dur_event_row *rows;
    size_t count;
    ASSERT_OK(b, dur_store_read(b->store, b->arena, "late", 0, &rows, &count, &b->err));
    assert_int_equal(count, 0);
    /* deleted between the look and the ack */
    make_running(b, "parent");
    sound = b->store->methods;
    spiteful = *sound;
    spiteful.ack_orchestration_item = ack_after_a_deletion;
    b->store->methods = &spiteful;
    assert_int_equal(first_turn(b, "later").fault, DUR_TURN_ORPHAN);
    b->store->methods = sound;
    assert_false(is_there(b, "parent"));
    assert_false(is_there(b, "later"));
    bench_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_of_required_methods),
        cmocka_unit_test(turns_one_by_one),
        cmocka_unit_test(work_one_by_one),
        cmocka_unit_test(looks_before_it_enqueues),
        cmocka_unit_test(the_rest_names_its_method),
        cmocka_unit_test(undecodable_history_is_reported),
        cmocka_unit_test(an_orphan_is_refused_or_follows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
