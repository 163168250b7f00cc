/*
 * test_memory_work.c: worker rows, tags, sessions and owners of the memory store.
 */
#include "store_help.h"

static void add_work(bench *b, const char *instance, uint64_t id, const char *session, const char *tag) {
    dur_message_row m = activity_of(b, instance, id, session, tag);
    ASSERT_OK(b, dur_store_enqueue_for_worker(b->store, &m, &b->err));
}

static dur_leased_work take(bench *b, dur_work_fetch how) {
    dur_leased_work work;
    ASSERT_OK(b, dur_store_fetch_work_item(b->store, b->arena, &how, &work, &b->err));
    return work;
}

static size_t take_many(bench *b, const char *owner, dur_fetch_kind kind, const char *node, dur_leased_work out[8]) {
    dur_work_fetch how = { .owner = owner,
                           .max = 8,
                           .kind = kind,
                           .session_owner = node,
                           .session_lock_ms = 1000,
                           .tags = { .mode = DUR_TAGS_ANY } };
    size_t count;
    ASSERT_OK(b, dur_store_fetch_works(b->store, b->arena, &how, out, &count, &b->err));
    return count;
}

static void owner(bench *b, const char *id) {
    dur_owner_options options = { .owner = id, .timeout_ms = 10000 };
    ASSERT_OK(b, dur_store_owner_register(b->store, &options, &b->err));
}

static dur_owner_report beat(bench *b, const char *id) {
    dur_owner_report report;
    ASSERT_OK(b, dur_store_owner_beat(b->store, id, &report, &b->err));
    return report;
}

#define ANY                                                                                                            \
    { .mode = DUR_TAGS_ANY }

static void tags_select(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    const char *tags[] = { "gpu", "arm" };
    add_work(b, "a", 1, NULL, "gpu");
    add_work(b, "a", 2, NULL, NULL);
    add_work(b, "a", 3, NULL, "arm");
    add_work(b, "a", 4, NULL, "big");
    dur_work_fetch how = { .lock_ms = 1000, .tags = { .mode = DUR_TAGS_NONE } };
    assert_null(take(b, how).json.data);
    how.tags = (dur_tag_filter){ DUR_TAGS_DEFAULT_ONLY, NULL, 0 };
    assert_int_equal(take(b, how).ref.activity_id, 2);
    assert_null(take(b, how).json.data);
    how.tags = (dur_tag_filter){ DUR_TAGS_ONLY, tags, 2 };
    assert_int_equal(take(b, how).ref.activity_id, 1);
    how.tags = (dur_tag_filter){ DUR_TAGS_AND_DEFAULT, tags, 2 };
    assert_int_equal(take(b, how).ref.activity_id, 3);
    assert_null(take(b, how).json.data);
    how.tags = (dur_tag_filter){ DUR_TAGS_ANY, NULL, 0 };
    assert_int_equal(take(b, how).ref.activity_id, 4);
    bench_close(b);
}

static void locks_end_and_tokens_with_them(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    add_work(b, "a", 1, NULL, NULL);
    dur_work_fetch how = { .lock_ms = 1000, .tags = ANY };
    dur_leased_work first = take(b, how);
    dur_fake_world_jump(b->fake, 5000000); /* the wall clock ends no lock */
    assert_null(take(b, how).json.data);
    dur_fake_world_advance(b->fake, 1000);
    assert_int_equal(dur_store_ack_work_item(b->store, first.lock_token, NULL, &b->err), DUR_ELEASE);
    assert_int_equal(dur_store_renew_work_item_lock(b->store, first.lock_token, 1, &b->err), DUR_ELEASE);
    dur_leased_work second = take(b, how);
    assert_int_equal(second.attempt_count, 2);
    ASSERT_OK(b, dur_store_abandon_work_item(b->store, second.lock_token, 500, true, &b->err));
    assert_null(take(b, how).json.data);
    dur_fake_world_advance(b->fake, 500);
    assert_int_equal(take(b, how).attempt_count, 2);
    bench_close(b);
}

static void a_completion_goes_with_the_row(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    make_running(b, "a");
    add_work(b, "a", 2, NULL, NULL);
    dur_work_fetch how = { .lock_ms = 1000, .tags = ANY };
    dur_leased_work work = take(b, how);
    dur_message_row done = message_of(DUR_WORK_ACTIVITY_COMPLETED, "a");
    ASSERT_OK(b, dur_store_ack_work_item(b->store, work.lock_token, &done, &b->err));
    assert_int_equal(dur_store_ack_work_item(b->store, work.lock_token, &done, &b->err), DUR_ELEASE);
    dur_orchestration_item item = fetch(b, 1000);
    assert_int_equal(item.message_count, 1);
    /* Cancelled by a turn: the worker learns it from its lock. */
    add_work(b, "a", 3, NULL, NULL);
    work = take(b, how);
    dur_activity_ref cancelled[2] = { { .instance = "a", .execution_id = 1, .activity_id = 3 },
                                      { .instance = "a", .execution_id = 1, .activity_id = 77 } };
    dur_turn_commit turn = {
        .lock_token = item.lock_token, .execution_id = 1, .cancelled = cancelled, .cancelled_count = 2
    };
    ASSERT_OK(b, dur_store_ack_orchestration_item(b->store, &turn, &b->err));
    assert_int_equal(dur_store_renew_work_item_lock(b->store, work.lock_token, 1, &b->err), DUR_ELEASE);
    bench_close(b);
}

static void sessions_belong_to_a_node(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    add_work(b, "a", 1, "s", NULL);
    add_work(b, "a", 2, "s", NULL);
    add_work(b, "a", 3, NULL, NULL);
    dur_work_fetch none = { .lock_ms = 5000, .tags = ANY };
    dur_work_fetch one = { .lock_ms = 5000, .session_owner = "n1", .session_lock_ms = 1000, .tags = ANY };
    dur_work_fetch two = { .lock_ms = 5000, .session_owner = "n2", .session_lock_ms = 1000, .tags = ANY };
    assert_int_equal(take(b, one).ref.activity_id, 1);
    assert_int_equal(take(b, two).ref.activity_id, 3); /* not the session's: the next item */
    assert_null(take(b, none).json.data);
    const char *n1 = "n1";
    uint64_t renewed;
    dur_fake_world_advance(b->fake, 600);
    ASSERT_OK(b, dur_store_renew_session_lock(b->store, &n1, 1, 1000, 5000, &renewed, &b->err));
    assert_int_equal(renewed, 1);
    dur_fake_world_advance(b->fake, 600);
    assert_null(take(b, two).json.data);
    ASSERT_OK(b, dur_store_renew_session_lock(b->store, &n1, 1, 1000, 1000, &renewed, &b->err));
    assert_int_equal(renewed, 0); /* idle */
    dur_fake_world_advance(b->fake, 400);
    assert_int_equal(take(b, two).ref.activity_id, 2); /* expired: anybody's */
    assert_null(take(b, one).json.data);
    bench_close(b);
}

static void dead_owners_leave_crashes(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    dur_leased_work works[8];
    owner(b, "dies");
    owner(b, "lives");
    make_running(b, "a");
    dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, "a");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &event, 0, &b->err));
    dur_fetch how = { .owner = "dies", .max = 1 };
    dur_orchestration_item item;
    size_t count;
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &how, &item, &count, &b->err));
    add_work(b, "a", 1, NULL, NULL);
    add_work(b, "a", 2, "s", NULL);
    assert_int_equal(take_many(b, "dies", DUR_FETCH_ANY, "node", works), 2);
    dur_fake_world_advance(b->fake, 9999);
    dur_owner_report report = beat(b, "lives");
    assert_true(report.still_ours);
    assert_int_equal(report.peers, 1);
    assert_int_equal(report.taken_over, 0);
    dur_fake_world_advance(b->fake, 1);
    report = beat(b, "lives");
    assert_int_equal(report.peers, 0);
    assert_int_equal(report.taken_over, 1);
    assert_int_equal(report.freed, 3);
    assert_string_equal(report.last_dead, "dies");
    assert_false(beat(b, "dies").still_ours);

    assert_int_equal(take_many(b, "lives", DUR_FETCH_SUSPECT, "other", works), 0); /* after one crash nobody is */
    assert_int_equal(take_many(b, "lives", DUR_FETCH_FRESH, "other", works), 1);   /* the session is reserved */
    assert_int_equal(works[0].crashes, 1);
    assert_int_equal(works[0].attempt_count, 2);
    assert_int_equal(take_many(b, "lives", DUR_FETCH_FRESH, "node", works), 1); /* for the same node */
    assert_int_equal(works[0].ref.activity_id, 2);
    how = (dur_fetch){ .owner = "dies", .max = 1 };
    assert_int_equal(dur_store_fetch_turns(b->store, b->arena, &how, &item, &count, &b->err), DUR_ELEASE);
    how = (dur_fetch){ .owner = "lives", .max = 1, .kind = DUR_FETCH_FRESH };
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &how, &item, &count, &b->err));
    assert_int_equal(count, 1);
    assert_int_equal(item.acquisitions, 2);
    assert_int_equal(item.crashes, 1);
    bench_close(b);
}

static void a_dead_owners_session_is_free_after_its_time(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    dur_leased_work works[8];
    owner(b, "dies");
    owner(b, "lives");
    add_work(b, "a", 1, "s", NULL);
    assert_int_equal(take_many(b, "dies", DUR_FETCH_ANY, "node", works), 1);
    dur_fake_world_advance(b->fake, 60000);
    beat(b, "lives");
    assert_int_equal(take_many(b, "lives", DUR_FETCH_ANY, "other", works), 0);
    dur_fake_world_advance(b->fake, 1000);
    assert_int_equal(take_many(b, "lives", DUR_FETCH_ANY, "other", works), 1);
    bench_close(b);
}

static void a_clean_release_leaves_no_suspects(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    dur_leased_work works[8];
    owner(b, "first");
    owner(b, "second");
    add_work(b, "a", 1, NULL, NULL);
    add_work(b, "a", 2, "s", NULL);
    dur_message_row start = start_of(b, "a");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    dur_fetch how = { .owner = "first", .max = 1 };
    dur_orchestration_item item;
    size_t count;
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &how, &item, &count, &b->err));
    assert_int_equal(take_many(b, "first", DUR_FETCH_ANY, "first", works), 2);
    ASSERT_OK(b, dur_store_owner_release(b->store, "first", &b->err));
    assert_int_equal(take_many(b, "second", DUR_FETCH_FRESH, "n2", works), 2); /* the session too, at once */
    assert_int_equal(works[0].attempt_count, 1);
    assert_int_equal(works[0].crashes, 0);
    how.owner = "second";
    how.kind = DUR_FETCH_FRESH;
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &how, &item, &count, &b->err));
    assert_int_equal(count, 1);
    assert_int_equal(item.acquisitions, 1);
    assert_int_equal(item.attempt_count, 1);
    ASSERT_OK(b, dur_store_owner_release(b->store, "first", &b->err)); /* again: nothing to do */
    assert_int_equal(dur_store_owner_register(b->store, &(dur_owner_options){ .owner = "second" }, &b->err),
                     DUR_EEXISTS);
    bench_close(b);
}

static void a_named_node_keeps_its_sessions_over_a_clean_release(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    dur_leased_work works[8];
    owner(b, "first");
    owner(b, "second");
    add_work(b, "a", 1, "s", NULL);
    assert_int_equal(take_many(b, "first", DUR_FETCH_ANY, "node", works), 1);
    ASSERT_OK(b, dur_store_owner_release(b->store, "first", &b->err));
    assert_int_equal(take_many(b, "second", DUR_FETCH_ANY, "other", works), 0); /* reserved, for its lock time */
    assert_int_equal(take_many(b, "second", DUR_FETCH_ANY, "node", works), 1);  /* the node came back */
    bench_close(b);
}

static void locks_without_an_owner_are_not_freed_by_deaths(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    owner(b, "dies");
    owner(b, "lives");
    add_work(b, "a", 1, NULL, NULL);
    dur_work_fetch how = { .lock_ms = 60000, .tags = ANY };
    dur_leased_work work = take(b, how);
    dur_fake_world_advance(b->fake, 20000);
    assert_int_equal(beat(b, "lives").taken_over, 1);
    assert_null(take(b, how).json.data);
    ASSERT_OK(b, dur_store_ack_work_item(b->store, work.lock_token, NULL, &b->err));
    bench_close(b);
}

static void returned_rows_are_not_counted(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    dur_leased_work works[8];
    owner(b, "me");
    add_work(b, "a", 1, NULL, NULL);
    assert_int_equal(take_many(b, "me", DUR_FETCH_ANY, NULL, works), 1);
    dur_worker_claim claims[2] = { { works[0].ref, works[0].lock_token }, { works[0].ref, "wrong" } };
    ASSERT_OK(b, dur_store_return_works(b->store, claims, 2, &b->err));
    assert_int_equal(take_many(b, "me", DUR_FETCH_ANY, NULL, works), 1);
    assert_int_equal(works[0].attempt_count, 1);
    ASSERT_OK(b, dur_store_dead_letter_work(b->store, works[0].lock_token, "unreadable", &b->err));
    dur_dead_letter *letters;
    size_t count;
    ASSERT_OK(b, dur_store_list_dead_letters(b->store, b->arena, 0, 10, &letters, &count, &b->err));
    assert_int_equal(count, 1);
    assert_string_equal(letters[0].reason, "unreadable");
    bench_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_select),
        cmocka_unit_test(locks_end_and_tokens_with_them),
        cmocka_unit_test(a_completion_goes_with_the_row),
        cmocka_unit_test(sessions_belong_to_a_node),
        cmocka_unit_test(dead_owners_leave_crashes),
        cmocka_unit_test(a_dead_owners_session_is_free_after_its_time),
        cmocka_unit_test(a_clean_release_leaves_no_suspects),
        cmocka_unit_test(a_named_node_keeps_its_sessions_over_a_clean_release),
        cmocka_unit_test(locks_without_an_owner_are_not_freed_by_deaths),
        cmocka_unit_test(returned_rows_are_not_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
