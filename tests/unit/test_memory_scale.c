/*
 * test_memory_scale.c: the ordered set of the memory store, and sizes that a scan would not survive.
 */
#include "store_help.h"

#include "provider/memory/memory_tree.h"

#include <stdlib.h>
#include <time.h>

static void the_set_is_ordered(void **state) {
    (void)state;
    enum { COUNT = 3000 };
    static dur__mem_node nodes[COUNT];
    static uint64_t keys[COUNT];
    dur__mem_tree tree = { NULL, 0 };
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < 20000; round++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        size_t at = (size_t)(random % COUNT);
        if (nodes[at].tree != NULL) {
            dur__mem_tree_remove(&nodes[at]);
        } else {
            keys[at] = random >> 40;
            dur__mem_tree_add(&tree, &nodes[at], keys[at], at);
        }
    }
    size_t count = 0;
    for (size_t i = 0; i < COUNT; i++)
        count += nodes[i].tree != NULL;
    assert_int_equal(tree.count, count);
    const dur__mem_node *before = NULL;
    size_t seen = 0;
    for (dur__mem_node *node = dur__mem_tree_first(&tree); node != NULL; node = dur__mem_tree_next(node)) {
        if (before != NULL) assert_true(dur__mem_before(before->hi, before->lo, node->hi, node->lo));
        assert_ptr_equal(dur__mem_tree_from(&tree, node->hi, node->lo), node);
        before = node;
        seen++;
    }
    assert_int_equal(seen, count);
    for (size_t i = 0; i < COUNT; i++)
        dur__mem_tree_remove(&nodes[i]); /* also those that are in no tree */
    assert_null(tree.root);
    assert_null(dur__mem_tree_from(&tree, 0, 0));
}

static size_t scaled(size_t count) {
    return getenv("DURITE_TEST_SMALL") != NULL ? count / 50 : count;
}

static void many_instances(void **state) {
    (void)state;
    size_t total = scaled(100000), fetched = 0;
    bench *b = bench_open("memory:");
    dur_message_row start = start_of(b, "x");
    char id[24];
    for (size_t i = 0; i < total; i++) {
        snprintf(id, sizeof(id), "instance-%zu", i);
        start.instance = id;
        ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    }
    static dur_orchestration_item items[64];
    static dur_turn_commit turns[64];
    dur_event_row event = event_of(1);
    dur_fetch how = { .lock_ms = 60000, .max = 64 };
    for (;;) {
        size_t count;
        ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &how, items, &count, &b->err));
        if (count == 0) break;
        for (size_t i = 0; i < count; i++)
            turns[i] = (dur_turn_commit){ .lock_token = items[i].lock_token,
                                          .instance = items[i].instance,
                                          .execution_id = 1,
                                          .expected_last = 0,
                                          .events = &event,
                                          .event_count = 1,
                                          .metadata = named(),
                                          .consume_listed = true,
                                          .consumed = &items[i].messages[0].id,
                                          .consumed_count = 1 };
        ASSERT_OK(b, dur_store_commit_turns(b->store, turns, count, &b->err));
        for (size_t i = 0; i < count; i++)
            assert_int_equal(turns[i].error.code, DUR_OK);
        fetched += count;
        dur_arena_reset(b->arena);
    }
    assert_int_equal(fetched, total);
    ASSERT_OK(b, dur_store_check(b->store, &b->err));
    bench_close(b);
}

/* A backlog in one queue, taken two at a time under a kept lease, and once over an eviction after each. */
static void a_long_queue(void **state) {
    (void)state;
    size_t total = scaled(40000);
    bench *b = bench_open("memory:");
    dur_owner_options owner = { .owner = "me" };
    ASSERT_OK(b, dur_store_owner_register(b->store, &owner, &b->err));
    dur_waker *waker = dur_waker_new();
    dur_lane_options options = { .owner = "me", .waker = waker };
    dur_lane *lane;
    ASSERT_OK(b, dur_store_lane_open(b->store, &options, &lane, &b->err));
    make_running(b, "a");
    dur_message_row m = queue_of("a", "q", NULL);
    for (size_t i = 0; i < total; i++)
        ASSERT_OK(b, dur_store_enqueue_existing(b->store, &m, 0, &b->err));
    dur_fetch how = { .owner = "me", .max = 1, .queue_messages_max = 2 };
    dur_round round = { .fetch = &how, .queue_messages_max = 2 };
    ASSERT_OK(b, dur_store_lane_round(lane, b->arena, &round, &b->err));
    assert_int_equal(round.items[0].message_count, 2);
    assert_true(round.items[0].more_messages);
    char token[40];
    snprintf(token, sizeof(token), "%s", round.items[0].lock_token);
    uint64_t ids[2] = { round.items[0].messages[0].id, round.items[0].messages[1].id };
    size_t taken = 0;
    while (taken < total) {
        bool evict = taken % 16 == 0;
        dur_turn_commit turn = { .lock_token = token,
                                 .instance = "a",
                                 .execution_id = 1,
                                 .expected_last = 1,
                                 .consume_listed = true,
                                 .consumed = ids,
                                 .consumed_count = 2,
                                 .owner = "me",
                                 .keep_lease = !evict };
        round = (dur_round){ .turns = &turn, .turn_count = 1, .fetch = &how, .queue_messages_max = 2 };
        dur_arena_reset(b->arena);
        ASSERT_OK(b, dur_store_lane_round(lane, b->arena, &round, &b->err));
        assert_int_equal(turn.error.code, DUR_OK);
        taken += 2;
        if (taken == total) break;
        if (evict) {
            assert_int_equal(round.item_count, 1);
            snprintf(token, sizeof(token), "%s", round.items[0].lock_token);
            for (int i = 0; i < 2; i++)
                ids[i] = round.items[0].messages[i].id;
        } else {
            assert_int_equal(round.held_count, 2);
            assert_int_equal(round.held[0].message.id, ids[1] + 1);
            for (int i = 0; i < 2; i++)
                ids[i] = round.held[i].message.id;
        }
    }
    dur_store_lane_close(lane);
    dur_waker_free(waker);
    bench_close(b);
}

/* Processor time of a thousand looks at an instance whose start waits, as whoever waits for its result takes them. */
static clock_t look(bench *b) {
    clock_t began = clock();
    for (int i = 0; i < 1000; i++) {
        dur_instance_row row;
        ASSERT_OK(b, dur_store_get_instance(b->store, b->arena, "a", &row, &b->err));
        assert_true(row.pending_start.size > 0);
        dur_arena_reset(b->arena);
    }
    return clock() - began;
}

static void a_start_beside_a_long_queue(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    dur_message_row start = start_of(b, "a"), m = queue_of("a", "q", NULL);
    ASSERT_OK(b, dur_store_enqueue_start(b->store, &start, DUR_EXISTS_FAIL, 0, NULL, &b->err));
    clock_t alone = look(b);
    for (size_t i = scaled(40000); i > 0; i--)
        ASSERT_OK(b, dur_store_enqueue_existing(b->store, &m, 0, &b->err));
    assert_true(look(b) < 20 * alone + CLOCKS_PER_SEC / 50); /* a scan takes hundreds of times as long */
    bench_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_set_is_ordered),
        cmocka_unit_test(many_instances),
        cmocka_unit_test(a_long_queue),
        cmocka_unit_test(a_start_beside_a_long_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
