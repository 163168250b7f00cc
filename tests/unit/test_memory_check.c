/*
 * test_memory_check.c: what nobody would ever come back to is found by dur_provider_check, in a memory store that was
 * broken from inside (tests/hostile/hostile_checks.c does the same with the tables of the others).
 */
#include "store_help.h"

#include "provider/memory/memory_internal.h"

static dur__mem_instance *instance_of(bench *b, const char *id) {
    dur__mem_instance *found = dur__mem_find(dur__mem_of(b->store), id);
    assert_non_null(found);
    return found;
}

/* Instance a with an event that is this text, unlocked, its queue empty. */
static void begin(bench *b, const char *json) {
    dur_message_row start = start_of(b, "a");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    dur_orchestration_item item = fetch(b, 5000);
    dur_event_row event = event_of(1);
    event.json = (dur_text){ json, strlen(json) };
    dur_turn_commit commit = {
        .lock_token = item.lock_token, .execution_id = 1, .events = &event, .event_count = 1, .metadata = named()
    };
    ASSERT_OK(b, dur_store_ack_orchestration_item(b->store, &commit, &b->err));
    ASSERT_OK(b, dur_store_check(b->store, &b->err));
}

static void found(bench *b, const char *what) {
    assert_int_equal(dur_store_check(b->store, &b->err), DUR_ECORRUPT);
    if (strstr(b->err.message, "a: ") == NULL || strstr(b->err.message, what) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", b->err.message, what);
}

static const char subscribed[] =
    "{\"event_id\":1,\"instance_id\":\"a\",\"execution_id\":1,\"timestamp_ms\":1,\"duroxide_version\":\"0.1.0\","
    "\"type\":\"ExternalSubscribedPersistent\",\"name\":\"q\"}";

static void a_queue_that_nobody_would_look_at(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    begin(b, subscribed);
    dur_message_row m = message_of(DUR_WORK_QUEUE_MESSAGE, "a");
    m.queue = "q";
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err));
    ASSERT_OK(b, dur_store_check(b->store, &b->err));
    dur_orchestration_item item = fetch(b, 5000);
    dur_turn_commit release = { .lock_token = item.lock_token,
                                .instance = "a",
                                .consume_listed = true,
                                .expected_last = DUR_NOT_COMPARED,
                                .seen_id = item.messages[0].id,
                                .seen_now_ms = dur_store_now_ms(b->store) };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &release, 1, &b->err)); /* "seen", although it waits for it */
    assert_int_equal(release.error.code, DUR_OK);
    found(b, "waits for a queue");
    bench_close(b);
}

static void a_lease_of_nobody(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    begin(b, subscribed);
    dur__mem_instance *a = instance_of(b, "a");
    dur__mem_owner nobody = { .id = (char *)(uintptr_t) "nobody" };
    a->owner = &nobody;
    found(b, "not registered");
    a->owner = NULL;
    a->parent = (char *)(uintptr_t) "gone";
    found(b, "parent does not exist");
    a->parent = NULL;
    a->executions[0]->events[0].event_id = 2;
    found(b, "is missing");
    a->executions[0]->events[0].event_id = 1;
    ASSERT_OK(b, dur_store_check(b->store, &b->err));
    bench_close(b);
}

static void one_that_has_ended_and_cannot_be_fetched(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    begin(b, subscribed);
    dur_message_row m = message_of(DUR_WORK_QUEUE_MESSAGE, "a");
    m.queue = "other";
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err));
    dur_orchestration_item item = fetch(b, 5000);
    dur_turn_commit seen = { .lock_token = item.lock_token,
                             .instance = "a",
                             .consume_listed = true,
                             .expected_last = DUR_NOT_COMPARED,
                             .seen_id = item.messages[0].id,
                             .seen_now_ms = dur_store_now_ms(b->store) };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &seen, 1, &b->err));
    ASSERT_OK(b, dur_store_check(b->store, &b->err));
    dur__mem_instance *a = instance_of(b, "a");
    a->executions[0]->status = DUR_STATUS_COMPLETED;
    found(b, "has ended, and nobody would look");
    a->suspended = (char *)(uintptr_t) "too late";
    found(b, "has ended and is suspended");
    a->suspended = NULL;
    bench_close(b);
}

static void a_message_that_was_passed_over(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    begin(b, subscribed);
    dur_message_row m = message_of(DUR_WORK_QUEUE_MESSAGE, "a");
    m.queue = "q";
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err));
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err));
    assert_int_equal(fetch(b, 5000).message_count, 2);
    dur__mem_instance *a = instance_of(b, "a");
    dur__mem_channel *q = dur__mem_channel_find(a, "q");
    dur__mem_node *first = dur__mem_tree_first(&q->given);
    uint64_t hi = first->hi, lo = first->lo;
    dur__mem_tree_remove(first);
    dur__mem_tree_add(&q->now, first, hi, lo);
    ASSERT_OK(b, dur_store_check(b->store, &b->err)); /* by a fetch all come, by a lane what it was not given */
    char nobody;
    a->lane = (dur__mem_lane *)(void *)&nobody;
    found(b, "passed over");
    a->lane = NULL;
    dur__mem_tree_remove(first);
    dur__mem_tree_add(&q->given, first, hi, lo);
    bench_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_queue_that_nobody_would_look_at),
        cmocka_unit_test(a_lease_of_nobody),
        cmocka_unit_test(a_message_that_was_passed_over),
        cmocka_unit_test(one_that_has_ended_and_cannot_be_fetched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
