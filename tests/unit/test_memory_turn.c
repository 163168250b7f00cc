/*
 * test_memory_turn.c: fetch, order, locks, commits, attempts and acquisitions of the memory store.
 */
#include "store_help.h"

static void enqueue(bench *b, dur_message_row m, uint64_t delay_ms) {
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &m, delay_ms, &b->err));
}

static dur_turn_commit ack_of(const dur_orchestration_item *item) {
    return (dur_turn_commit){ .lock_token = item->lock_token, .execution_id = item->execution_id };
}

/* ---- order and visibility ---------------------------------------------------------------------------------------- */

static void orders_by_due_time_then_id(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    make_running(b, "a");
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 200); /* due at +200 */
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 100); /* due at +100 */
    dur_fake_world_advance(b->fake, 150);
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 0); /* enqueued at +150 */
    dur_fake_world_advance(b->fake, 150);
    dur_orchestration_item item = fetch(b, 1000);
    assert_int_equal(item.message_count, 3);
    assert_int_equal(item.messages[0].due_ms, START_MS + 100);
    assert_int_equal(item.messages[1].due_ms, START_MS + 150);
    assert_int_equal(item.messages[2].due_ms, START_MS + 200);
    ASSERT_OK(b, dur_store_abandon_orchestration_item(b->store, item.lock_token, 0, false, &b->err));
    dur_orchestration_item again = fetch(b, 1000); /* abandoning does not change the order */
    for (int i = 0; i < 3; i++)
        assert_int_equal(again.messages[i].id, item.messages[i].id);
    bench_close(b);
}

static void fetches_the_oldest_instance_first(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    make_running(b, "a");
    make_running(b, "c");
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 100);
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "c"), 50);
    dur_fake_world_advance(b->fake, 100);
    assert_string_equal(fetch(b, 1000).instance, "c");
    assert_string_equal(fetch(b, 1000).instance, "a");
    bench_close(b);
}

static void undelayed_messages_ignore_the_clock(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    make_running(b, "a");
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 0);
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 10);
    dur_fake_world_jump(b->fake, -500000);
    dur_orchestration_item item = fetch(b, 1000);
    assert_int_equal(item.message_count, 1); /* the delayed one is not due for a long time */
    bench_close(b);
}

static void a_clock_that_goes_back_hides_timers_again(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    make_running(b, "a");
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 100);
    dur_fake_world_advance(b->fake, 150);
    dur_queue_depths depths;
    ASSERT_OK(b, dur_store_get_queue_depths(b->store, &depths, &b->err));
    assert_int_equal(depths.orchestrator_queue, 1);
    dur_fake_world_jump(b->fake, -100);
    assert_null(fetch(b, 1000).instance);
    ASSERT_OK(b, dur_store_get_queue_depths(b->store, &depths, &b->err));
    assert_int_equal(depths.timer_queue, 1);
    dur_fake_world_advance(b->fake, 60);
    assert_string_equal(fetch(b, 1000).instance, "a");
    bench_close(b);
}

static void lock_times_do_not_jump(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    enqueue(b, start_of(b, "a"), 0);
    dur_orchestration_item item = fetch(b, 1000);
    dur_fake_world_jump(b->fake, 3600000);
    assert_null(fetch(b, 1000).instance);
    ASSERT_OK(b, dur_store_renew_orchestration_item_lock(b->store, item.lock_token, 2000, &b->err));
    dur_fake_world_advance(b->fake, 1999);
    assert_null(fetch(b, 1000).instance);
    dur_fake_world_advance(b->fake, 1);
    dur_turn_commit late = ack_of(&item);
    assert_int_equal(dur_store_ack_orchestration_item(b->store, &late, &b->err), DUR_ELEASE);
    assert_non_null(strstr(b->err.message, "Invalid lock token"));
    assert_int_equal(dur_store_renew_orchestration_item_lock(b->store, item.lock_token, 1, &b->err), DUR_ELEASE);
    dur_orchestration_item next = fetch(b, 1000);
    assert_string_not_equal(next.lock_token, item.lock_token);
    assert_int_equal(next.attempt_count, 2);
    bench_close(b);
}

static void abandon_with_delay_makes_the_instance_wait(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    enqueue(b, start_of(b, "a"), 0);
    dur_orchestration_item item = fetch(b, 1000);
    ASSERT_OK(b, dur_store_abandon_orchestration_item(b->store, item.lock_token, 500, true, &b->err));
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 0); /* later messages wait behind it */
    assert_null(fetch(b, 1000).instance);
    dur_fake_world_advance(b->fake, 500);
    dur_orchestration_item next = fetch(b, 1000);
    assert_int_equal(next.message_count, 2);
    assert_int_equal(next.attempt_count, 1); /* the abandoned one was not counted */
    assert_int_equal(next.acquisitions, 1);
    assert_int_equal(dur_store_abandon_orchestration_item(b->store, "wrong", 0, false, &b->err), DUR_ELEASE);
    bench_close(b);
}

/* ---- who exists -------------------------------------------------------------------------------------------------- */

static void orphans_hide_nobody(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    enqueue(b, queue_of("ghost", "q", NULL), 0);
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "ghost"), 0);
    enqueue(b, queue_of("later", "q", NULL), 0);
    enqueue(b, start_of(b, "later"), 5000); /* its start waits: it exists, and keeps its message */
    enqueue(b, start_of(b, "a"), 0);
    assert_string_equal(fetch(b, 1000).instance, "later");
    assert_string_equal(fetch(b, 1000).instance, "a");
    dur_dead_letter *letters;
    size_t count;
    ASSERT_OK(b, dur_store_list_dead_letters(b->store, b->arena, 0, 0, &letters, &count, &b->err));
    assert_int_equal(count, 1);
    assert_string_equal(letters[0].instance, "ghost");
    enqueue(b, start_of(b, "ghost"), 0); /* the other message waited */
    dur_orchestration_item item = fetch(b, 1000);
    assert_string_equal(item.instance, "ghost");
    assert_int_equal(item.message_count, 2);
    ASSERT_OK(b, dur_store_delete_dead_letters(b->store, &letters[0].id, 1, &b->err));
    ASSERT_OK(b, dur_store_list_dead_letters(b->store, b->arena, 0, 0, &letters, &count, &b->err));
    assert_int_equal(count, 0);
    bench_close(b);
}

static void incompatible_instances_are_not_locked(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    const char *ids[2] = { "old", "new" };
    for (uint32_t i = 0; i < 2; i++) {
        enqueue(b, start_of(b, ids[i]), 0);
        dur_orchestration_item item = fetch(b, 1000);
        dur_turn_commit turn = ack_of(&item);
        turn.metadata = named();
        turn.metadata.has_pinned_version = true;
        turn.metadata.pinned_version = (dur_semver){ 1 + i, 0, 0 };
        ASSERT_OK(b, dur_store_ack_orchestration_item(b->store, &turn, &b->err));
    }
    for (int i = 0; i < 2; i++)
        enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, ids[i]), 0);
    dur_version_range ranges[2] = { { { 2, 0, 0 }, { 2, 9, 99 } }, { { 1, 0, 0 }, { 1, 9, 99 } } };
    dur_capability_filter filter = { ranges, 2 }; /* only the first range counts */
    dur_fetch how = { .lock_ms = 1000, .filter = &filter };
    dur_orchestration_item item;
    ASSERT_OK(b, dur_store_fetch_orchestration_item(b->store, b->arena, &how, &item, &b->err));
    assert_string_equal(item.instance, "new");
    ASSERT_OK(b, dur_store_fetch_orchestration_item(b->store, b->arena, &how, &item, &b->err));
    assert_null(item.instance);
    filter.count = 0;
    ASSERT_OK(b, dur_store_fetch_orchestration_item(b->store, b->arena, &how, &item, &b->err));
    assert_null(item.instance);
    assert_string_equal(fetch(b, 1000).instance, "old");
    bench_close(b);
}

static void suspended_instances_are_skipped(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    assert_int_equal(dur_store_set_suspended(b->store, "a", "why", &b->err), DUR_ENOTFOUND);
    make_running(b, "a");
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 0);
    dur_orchestration_item item = fetch(b, 60000);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "a", "bad deploy", &b->err)); /* its lease ends */
    dur_turn_commit turn = ack_of(&item);
    assert_int_equal(dur_store_ack_orchestration_item(b->store, &turn, &b->err), DUR_ELEASE);
    assert_null(fetch(b, 1000).instance);
    dur_instance_row row;
    ASSERT_OK(b, dur_store_get_instance(b->store, b->arena, "a", &row, &b->err));
    assert_string_equal(row.suspended, "bad deploy");
    assert_int_equal(row.status, DUR_STATUS_RUNNING);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "a", NULL, &b->err));
    assert_string_equal(fetch(b, 1000).instance, "a");
    bench_close(b);
}

/* ---- commits ----------------------------------------------------------------------------------------------------- */

static void a_refused_commit_leaves_no_trace(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    make_running(b, "a");
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 0);
    dur_orchestration_item item = fetch(b, 5000);
    dur_event_row events[2] = { event_of(2), event_of(1) };
    dur_turn_work work = { .message = activity_of(b, "a", 2, NULL, NULL) };
    dur_message_row child = start_of(b, "child");
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .execution_id = 1,
                             .events = events,
                             .event_count = 2,
                             .worker_items = &work,
                             .worker_item_count = 1,
                             .orchestrator_items = &child,
                             .orchestrator_item_count = 1,
                             .metadata = { .status = DUR_STATUS_COMPLETED, .output = "x" } };
    assert_int_equal(dur_store_ack_orchestration_item(b->store, &turn, &b->err), DUR_ECONFLICT);
    assert_int_equal(turn.fault, DUR_TURN_POSITION);
    events[1] = events[0]; /* twice in one delta */
    assert_int_equal(dur_store_ack_orchestration_item(b->store, &turn, &b->err), DUR_ECONFLICT);
    events[1].event_id = 0;
    assert_int_equal(dur_store_ack_orchestration_item(b->store, &turn, &b->err), DUR_EINVAL);
    dur_queue_depths depths;
    ASSERT_OK(b, dur_store_get_queue_depths(b->store, &depths, &b->err));
    assert_int_equal(depths.worker_queue, 0);
    assert_int_equal(depths.orchestrator_queue, 0);
    dur_instance_row row;
    ASSERT_OK(b, dur_store_get_instance(b->store, b->arena, "a", &row, &b->err));
    assert_int_equal(row.status, DUR_STATUS_RUNNING);
    turn.event_count = 1; /* the lease is still there */
    ASSERT_OK(b, dur_store_ack_orchestration_item(b->store, &turn, &b->err));
    assert_int_equal(dur_store_ack_orchestration_item(b->store, &turn, &b->err), DUR_ELEASE);
    bench_close(b);
}

static void consumes_by_id(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    make_running(b, "a");
    make_running(b, "c");
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 0);
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 0);
    dur_orchestration_item item = fetch(b, 5000);
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "c"), 0);
    dur_orchestration_item other = fetch(b, 5000);
    /* One of its own, one of another instance, one that does not exist. */
    uint64_t ids[3] = { item.messages[0].id, other.messages[0].id, 999999 };
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .instance = "a",
                             .execution_id = 1,
                             .expected_last = 1,
                             .consume_listed = true,
                             .consumed = ids,
                             .consumed_count = 3 };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    assert_int_equal(turn.error.code, DUR_OK);
    dur_orchestration_item next = fetch(b, 5000);
    assert_string_equal(next.instance, "a");
    assert_int_equal(next.message_count, 1);
    assert_int_equal(next.messages[0].id, item.messages[1].id);
    ASSERT_OK(b, dur_store_abandon_orchestration_item(b->store, other.lock_token, 0, false, &b->err));
    assert_int_equal(fetch(b, 5000).messages[0].id, other.messages[0].id);
    turn.instance = "c"; /* a token is good for its own instance only */
    turn.lock_token = next.lock_token;
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    bench_close(b);
}

static void acquisitions_are_counted_until_a_commit(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    enqueue(b, start_of(b, "a"), 0);
    dur_orchestration_item item;
    size_t count;
    dur_fetch fresh = { .lock_ms = 100, .max = 4, .kind = DUR_FETCH_FRESH };
    dur_fetch suspect = { .lock_ms = 100, .max = 1, .kind = DUR_FETCH_SUSPECT };
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &suspect, &item, &count, &b->err));
    assert_int_equal(count, 0);
    dur_orchestration_item items[4];
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &fresh, items, &count, &b->err));
    assert_int_equal(count, 1);
    for (uint32_t i = 2; i <= 4; i++) { /* its lock runs out again and again, which is no crash */
        dur_fake_world_advance(b->fake, 100);
        ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &suspect, &item, &count, &b->err));
        assert_int_equal(count, 0);
        ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &fresh, items, &count, &b->err));
        assert_int_equal(count, 1);
        assert_int_equal(items[0].acquisitions, i);
    }
    dur_turn_commit back = { .lock_token = items[0].lock_token,
                             .execution_id = 1,
                             .expected_last = DUR_NOT_COMPARED,
                             .consume_listed = true,
                             .give_back = true };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &back, 1, &b->err));
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &fresh, items, &count, &b->err));
    assert_int_equal(items[0].acquisitions, 4); /* the one given back did not count */
    dur_execution_row *executions;
    ASSERT_OK(b, dur_store_list_executions(b->store, b->arena, "a", &executions, &count, &b->err));
    assert_int_equal(count, 0); /* and brought no execution into being */
    dur_event_row event = event_of(1);
    dur_turn_commit turn = { .lock_token = items[0].lock_token,
                             .execution_id = 1,
                             .expected_last = 0,
                             .events = &event,
                             .event_count = 1,
                             .consume_listed = true };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    assert_int_equal(turn.error.code, DUR_OK);
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &fresh, items, &count, &b->err));
    assert_int_equal(count, 1);
    assert_int_equal(items[0].acquisitions, 1);
    assert_int_equal(items[0].attempt_count, 1); /* a committed turn saw its message and left it */
    bench_close(b);
}

static void releases_with_a_delay(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    enqueue(b, start_of(b, "a"), 0);
    dur_orchestration_item item = fetch(b, 5000);
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .execution_id = 1,
                             .expected_last = 0,
                             .consume_listed = true,
                             .give_back = true,
                             .delay_ms = 300 };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    assert_null(fetch(b, 1000).instance);
    dur_fake_world_advance(b->fake, 300);
    assert_string_equal(fetch(b, 1000).instance, "a");
    bench_close(b);
}

static void terminates_whoever_holds_it(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    make_running(b, "a");
    make_running(b, "parent");
    dur_message_row m = activity_of(b, "a", 2, NULL, NULL);
    ASSERT_OK(b, dur_store_enqueue_for_worker(b->store, &m, &b->err));
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 0);
    enqueue(b, message_of(DUR_WORK_EXTERNAL_RAISED, "a"), 9000);
    dur_orchestration_item item = fetch(b, 60000);
    dur_event_row last = event_of(2);
    dur_message_row told = message_of(DUR_WORK_SUB_ORCH_FAILED, "parent");
    dur_turn_commit end = { .instance = "a",
                            .execution_id = 1,
                            .expected_last = 1,
                            .events = &last,
                            .event_count = 1,
                            .orchestrator_items = &told,
                            .orchestrator_item_count = 1,
                            .take_over = true,
                            .remove_work = true,
                            .metadata = { .status = DUR_STATUS_FAILED, .output = "terminated" } };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &end, 1, &b->err));
    assert_int_equal(end.error.code, DUR_OK);
    dur_turn_commit turn = ack_of(&item);
    assert_int_equal(dur_store_ack_orchestration_item(b->store, &turn, &b->err), DUR_ELEASE);
    dur_queue_depths depths;
    ASSERT_OK(b, dur_store_get_queue_depths(b->store, &depths, &b->err));
    assert_int_equal(depths.worker_queue, 0);
    assert_int_equal(depths.timer_queue, 0);
    assert_int_equal(depths.orchestrator_queue, 1);                   /* the parent's */
    ASSERT_OK(b, dur_store_commit_turns(b->store, &end, 1, &b->err)); /* twice: the position has moved */
    assert_int_equal(end.fault, DUR_TURN_POSITION);
    end.instance = "nobody";
    ASSERT_OK(b, dur_store_commit_turns(b->store, &end, 1, &b->err));
    assert_int_equal(end.error.code, DUR_ENOTFOUND);
    bench_close(b);
}

static void suspends_in_the_commit(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    enqueue(b, start_of(b, "a"), 0);
    dur_orchestration_item item = fetch(b, 5000);
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .execution_id = 1,
                             .expected_last = 0,
                             .consume_listed = true,
                             .set_suspended = true,
                             .suspended = "nondeterminism",
                             .keep_lease = true };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    assert_int_equal(turn.error.code, DUR_OK);
    assert_false(turn.lease_kept);
    assert_null(fetch(b, 1000).instance);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "a", NULL, &b->err));
    assert_int_equal(fetch(b, 1000).message_count, 1);
    bench_close(b);
}

static void long_polls_wait_and_wake(void **state) {
    (void)state;
    bench *b = bench_open("memory:?poll=long");
    dur_fetch how = { .lock_ms = 1000, .poll_ms = 20 };
    dur_orchestration_item item;
    ASSERT_OK(b, dur_store_fetch_orchestration_item(b->store, b->arena, &how, &item, &b->err));
    assert_null(item.instance);
    enqueue(b, start_of(b, "a"), 0);
    how.poll_ms = 60000;
    ASSERT_OK(b, dur_store_fetch_orchestration_item(b->store, b->arena, &how, &item, &b->err));
    assert_string_equal(item.instance, "a");
    bench_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_by_due_time_then_id),
        cmocka_unit_test(fetches_the_oldest_instance_first),
        cmocka_unit_test(undelayed_messages_ignore_the_clock),
        cmocka_unit_test(a_clock_that_goes_back_hides_timers_again),
        cmocka_unit_test(lock_times_do_not_jump),
        cmocka_unit_test(abandon_with_delay_makes_the_instance_wait),
        cmocka_unit_test(orphans_hide_nobody),
        cmocka_unit_test(incompatible_instances_are_not_locked),
        cmocka_unit_test(suspended_instances_are_skipped),
        cmocka_unit_test(a_refused_commit_leaves_no_trace),
        cmocka_unit_test(consumes_by_id),
        cmocka_unit_test(acquisitions_are_counted_until_a_commit),
        cmocka_unit_test(releases_with_a_delay),
        cmocka_unit_test(terminates_whoever_holds_it),
        cmocka_unit_test(suspends_in_the_commit),
        cmocka_unit_test(long_polls_wait_and_wake),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
