/*
 * test_faulty.c: the decorator that makes stores fail: before, after, by chance; what it counts and hides.
 */
#include "store_help.h"

#include "support/faulty.h"

static bench *wrapped(void) {
    bench *b = bench_open("memory:");
    dur_provider *inner = b->store;
    ASSERT_OK(b, dur__faulty_wrap(&b->store, inner, 3, &b->err));
    return b;
}

static size_t events_of(bench *b, const char *instance) {
    dur_event_row *rows;
    size_t count;
    ASSERT_OK(b, dur_store_read(b->store, b->arena, instance, 0, &rows, &count, &b->err));
    return count;
}

static void passes_everything_on(void **state) {
    (void)state;
    bench *b = wrapped();
    make_running(b, "a");
    assert_int_equal(events_of(b, "a"), 1);
    assert_string_equal(dur_provider_name(b->store), "memory");
    assert_int_equal(dur__faulty_calls(b->store, "ack_orchestration_item"), 1);
    assert_int_equal(dur__faulty_calls(b->store, "turn"), 1);
    assert_int_equal(dur__faulty_calls(b->store, "read"), 1);
    assert_int_equal(dur__faulty_calls(b->store, NULL), 4);
    assert_int_equal(dur__faulty_faults(b->store), 0);
    assert_false(dur_store_has(b->store, "backup")); /* memory has none */
    assert_true(dur_store_has(b->store, "lane_open"));
    bench_close(b);
}

static void fails_the_nth_call(void **state) {
    (void)state;
    bench *b = wrapped();
    dur_message_row m = message_of(DUR_WORK_START_ORCHESTRATION, "a");
    dur__faulty_add(b->store, &(dur__fault_plan){ .method = "enqueue_for_orchestrator", .first = 2, .count = 2 });
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err));
    assert_int_equal(dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err), DUR_EUNAVAILABLE);
    assert_true(b->err.retryable);
    assert_int_equal(dur_store_enqueue_for_orchestrator(b->store, &m, 0, NULL), DUR_EUNAVAILABLE);
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err));
    dur_queue_depths depths;
    ASSERT_OK(b, dur_store_get_queue_depths(b->store, &depths, &b->err));
    assert_int_equal(depths.orchestrator_queue, 2);
    assert_int_equal(dur__faulty_faults(b->store), 2);
    bench_close(b);
}

static void fails_after_the_effect(void **state) {
    (void)state;
    bench *b = wrapped();
    dur_message_row start = start_of(b, "a");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    dur_orchestration_item item = fetch(b, 5000);
    dur_event_row event = event_of(1);
    dur_turn_commit turn = {
        .lock_token = item.lock_token, .execution_id = 1, .events = &event, .event_count = 1, .metadata = named()
    };
    dur__faulty_add(b->store, &(dur__fault_plan){ .method = "ack_orchestration_item", .after = true });
    assert_int_equal(dur_store_ack_orchestration_item(b->store, &turn, &b->err), DUR_EUNKNOWN);
    assert_int_equal(turn.fault, DUR_TURN_STORE);
    assert_int_equal(turn.error.code, DUR_EUNKNOWN);
    assert_int_equal(events_of(b, "a"), 1); /* it happened */
    bench_close(b);
}

/* Three turns in one round; the second does not reach the store, the third does and is not answered. */
static void single_turns_of_a_batch_fail(void **state) {
    (void)state;
    bench *b = wrapped();
    dur_owner_options owner = { .owner = "me" };
    ASSERT_OK(b, dur_store_owner_register(b->store, &owner, &b->err));
    dur_lane_options options = { .owner = "me", .waker = dur_waker_new() };
    dur_lane *lane;
    ASSERT_OK(b, dur_store_lane_open(b->store, &options, &lane, &b->err));
    const char *ids[3] = { "a", "b", "c" };
    for (int i = 0; i < 3; i++) {
        dur_message_row start = start_of(b, ids[i]);
        ASSERT_OK(b, dur_store_enqueue_start(b->store, &start, DUR_EXISTS_FAIL, 0, NULL, &b->err));
    }
    dur_fetch how = { .owner = "me", .max = 3 };
    dur_round round = { .fetch = &how };
    ASSERT_OK(b, dur_store_lane_round(lane, b->arena, &round, &b->err));
    assert_int_equal(round.item_count, 3);
    dur__faulty_add(b->store, &(dur__fault_plan){ .method = "turn", .first = 2, .code = DUR_EIO, .permanent = true });
    dur__faulty_add(b->store, &(dur__fault_plan){ .method = "turn", .first = 3, .after = true });
    dur_event_row event = event_of(1);
    dur_turn_commit turns[3];
    for (int i = 0; i < 3; i++)
        turns[i] = (dur_turn_commit){ .lock_token = round.items[i].lock_token,
                                      .execution_id = 1,
                                      .events = &event,
                                      .event_count = 1,
                                      .consume_listed = true,
                                      .keep_lease = true,
                                      .owner = "me" };
    dur_round commit = { .turns = turns, .turn_count = 3 };
    ASSERT_OK(b, dur_store_lane_round(lane, b->arena, &commit, &b->err));
    assert_int_equal(commit.turn_count, 3);
    assert_int_equal(turns[0].error.code, DUR_OK);
    assert_true(turns[0].lease_kept);
    assert_int_equal(turns[1].error.code, DUR_EIO);
    assert_false(turns[1].error.retryable);
    assert_int_equal(turns[2].error.code, DUR_EUNKNOWN);
    assert_int_equal(events_of(b, "a"), 1);
    assert_int_equal(events_of(b, "b"), 0);
    assert_int_equal(events_of(b, "c"), 1);
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turns[1], 1, &b->err)); /* unchanged, again */
    assert_int_equal(turns[1].error.code, DUR_OK);
    dur_store_lane_close(lane);
    dur_waker_free(options.waker);
    bench_close(b);
}

static void chance_depends_on_the_seed(void **state) {
    (void)state;
    uint64_t faults[2];
    for (int run = 0; run < 2; run++) {
        bench *b = wrapped();
        dur__faulty_add(b->store, &(dur__fault_plan){ .per_mille = 300, .count = UINT64_MAX });
        dur_message_row m = message_of(DUR_WORK_START_ORCHESTRATION, "a");
        for (int i = 0; i < 1000; i++)
            dur_store_enqueue_for_orchestrator(b->store, &m, 0, NULL);
        faults[run] = dur__faulty_faults(b->store);
        dur__faulty_clear(b->store);
        ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err));
        bench_close(b);
    }
    assert_int_equal(faults[0], faults[1]);
    assert_in_range(faults[0], 200, 400);
}

static void hides_methods(void **state) {
    (void)state;
    bench *b = wrapped();
    assert_int_equal(dur__faulty_hide(b->store, "set_suspended"), DUR_OK);
    assert_int_equal(dur__faulty_hide(b->store, "nonsense"), DUR_EINVAL);
    make_running(b, "a");
    assert_int_equal(dur_store_set_suspended(b->store, "a", "why", &b->err), DUR_EUNSUPPORTED);
    assert_non_null(strstr(b->err.message, "set_suspended"));
    bench_close(b);
}

static void watches_pass_through(void **state) {
    (void)state;
    bench *b = wrapped();
    dur_watch *watch;
    ASSERT_OK(b, dur_store_watch_open(b->store, "a", &watch, &b->err));
    assert_int_equal(dur_store_watch_wait(watch, 1, &b->err), DUR_ETIMEOUT);
    make_running(b, "a");
    ASSERT_OK(b, dur_store_watch_wait(watch, 1000, &b->err));
    dur__faulty_add(b->store, &(dur__fault_plan){ .method = "watch_wait", .code = DUR_EIO });
    assert_int_equal(dur_store_watch_wait(watch, 1000, &b->err), DUR_EIO);
    dur_store_watch_close(watch);
    bench_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_everything_on),       cmocka_unit_test(fails_the_nth_call),
        cmocka_unit_test(fails_after_the_effect),     cmocka_unit_test(single_turns_of_a_batch_fail),
        cmocka_unit_test(chance_depends_on_the_seed), cmocka_unit_test(hides_methods),
        cmocka_unit_test(watches_pass_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
