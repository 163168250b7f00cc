/*
 * hostile_crowd.c: a hundred thousand starts and activities of other services stand in front (H9): a node acquires none
 * of them, moves none of their times, reads none of them, and its own run as ever.
 *
 * 2,000 of each; 100,000 with DURITE_TEST_SCALE at 100 or more (on PostgreSQL tools/run-tests takes 101 for that).  The
 * times with and without the crowd are printed, and judged only with DURITE_TEST_TIMES.
 */
#include "neighbour.h"

#include <durite/sys/store.h>
#include <durite/sys/work.h>

enum { SERVICES = 5, AT_ONCE = 500, MINE = 100 };

/* Before and behind ours, in every order. */
static const char *const services[SERVICES] = { "A first", "Mind", "Mine, too", "Minf", "Zebra" };

static size_t crowd_size(void) {
    const char *percent = getenv("DURITE_TEST_SCALE");
    return percent != NULL && strtoul(percent, NULL, 10) >= 100 ? 100000 : 2000;
}

/* ---- our own ---- */

static dur_outcome step(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome mine(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Mine", input)));
}

static const dur_handler my_handlers[] = { DUR_ACTIVITY("Mine", step), DUR_ORCHESTRATION("Mine", "1.0.0", mine),
                                           DUR_HANDLERS_END };

static int by_size(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint64_t now_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

/* Start to result, one behind the other; the median in microseconds. */
static uint64_t run_mine(world *w, const char *kind) {
    uint64_t took[MINE];
    char id[32];
    for (size_t i = 0; i < MINE; i++) {
        snprintf(id, sizeof(id), "%s-%zu", kind, i);
        uint64_t begin = now_us();
        start(w, "Mine", "x", id);
        expect(w, id, "x");
        took[i] = now_us() - begin;
    }
    qsort(took, MINE, sizeof(took[0]), by_size);
    return took[MINE / 2];
}

/* ---- the others ---- */

/* As many activities as it is told, of a service that nobody here has. */
static dur_outcome fans(dur_ctx *ctx, const char *input) {
    dur_future *all[AT_ONCE];
    char name[64];
    for (size_t i = 0; i < AT_ONCE; i++) {
        snprintf(name, sizeof(name), "%s", services[i % SERVICES]);
        all[i] = dur_activity(ctx, name, input);
    }
    dur_join_n(all, AT_ONCE);
    return dur_complete(ctx, "never");
}

static const dur_handler fan_handlers[] = { DUR_ORCHESTRATION("Fans", "1.0.0", fans), DUR_HANDLERS_END };

static void crowd_of_work(world *w, size_t count) {
    char id[32];
    RUN(w, fan_handlers);
    for (size_t i = 0; i < count / AT_ONCE; i++) {
        snprintf(id, sizeof(id), "fans-%zu", i);
        start(w, "Fans", "x", id);
    }
    for (size_t i = 0; i < count / AT_ONCE; i++) {
        snprintf(id, sizeof(id), "fans-%zu", i);
        until_history(w, id, "\"ActivityScheduled\"", AT_ONCE);
    }
    world_stop(w);
}

static void crowd_of_starts(world *w, size_t count) {
    for (size_t from = 0; from < count; from += AT_ONCE) {
        dur_arena *arena = dur_arena_new();
        dur_message_row *messages = calloc(AT_ONCE, sizeof(*messages));
        dur_start_request *starts = calloc(AT_ONCE, sizeof(*starts));
        for (size_t i = 0; i < AT_ONCE; i++) {
            char id[32];
            snprintf(id, sizeof(id), "other-%06zu", from + i);
            dur_work_item item = { .kind = DUR_WORK_START_ORCHESTRATION,
                                   .instance = id,
                                   .orchestration = services[i % SERVICES],
                                   .input = "x",
                                   .version = i % 2 == 0 ? "1.0.0" : NULL,
                                   .execution_id = 1 };
            OK(w, dur_message_row_from_work(&messages[i], arena, &item, &w->err));
            starts[i] = (dur_start_request){ .item = &messages[i], .policy = DUR_EXISTS_FAIL, .error = DUR_ERROR_INIT };
        }
        OK(w, dur_store_enqueue_starts(w->store, starts, AT_ONCE, &w->err));
        for (size_t i = 0; i < AT_ONCE; i++)
            assert_int_equal(starts[i].error.code, DUR_OK);
        free(starts);
        free(messages);
        dur_arena_free(arena);
    }
}

/* Of each service the first to come, or one that came with it, is still the first, and nobody has had it. */
static void expect_untouched(world *w) {
    for (size_t i = 0; i < SERVICES; i++) {
        dur_arena *arena = dur_arena_new();
        dur_orchestration_item item;
        dur_leased_work work = { .lock_token = NULL };
        const char *keys[2] = { dur_handler_key(arena, services[i], NULL),
                                dur_handler_key(arena, services[i], "1.0.0") };
        dur_handler_filter instances = { keys, 2 }, activities = { &services[i], 1 };
        OK(w, dur_store_fetch_orchestration_item(
                  w->store, arena, &(dur_fetch){ .lock_ms = 60000, .handlers = &instances }, &item, &w->err));
        assert_non_null(item.instance);
        assert_true(strtoul(item.instance + strlen("other-"), NULL, 10) < AT_ONCE);
        assert_int_equal(item.attempt_count, 1);
        assert_true(item.acquisitions <= 1);
        OK(w, dur_store_abandon_orchestration_item(w->store, item.lock_token, 0, true, &w->err));
        OK(w, dur_store_fetch_work_item(w->store, arena, &(dur_work_fetch){ .lock_ms = 60000, .handlers = &activities },
                                        &work, &w->err));
        assert_non_null(work.lock_token);
        assert_int_equal(work.attempt_count, 1);
        OK(w, dur_store_abandon_work_item(w->store, work.lock_token, 0, true, &w->err));
        dur_arena_free(arena);
    }
}

static void fault_h09_a_crowd_of_others_in_front_costs_nothing(void **state) {
    world *w = *state;
    size_t count = crowd_size();
    RUN(w, my_handlers);
    run_mine(w, "warm");
    uint64_t without_us = run_mine(w, "without");
    world_stop(w);
    crowd_of_work(w, count);
    crowd_of_starts(w, count);
    RUN(w, my_handlers);
    run_mine(w, "again");
    uint64_t with_us = run_mine(w, "with");
    dur_metrics m = { .size = sizeof(m) };
    OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    assert_true(m.orchestration_items_fetched <= m.orchestration_starts); /* nothing but its own */
    assert_int_equal(m.orchestration_starts, 2 * MINE);
    assert_true(m.work_items_fetched <= 2 * MINE);
    world_stop(w);
    print_message("%zu starts and %zu activities of others in front: p50 %u us, %u us without them\n", count, count,
                  (unsigned)with_us, (unsigned)without_us);
    if (times_are_judged()) assert_true(with_us < 3 * without_us + 1000);
    expect_untouched(w);
}

#ifdef HAVE_LIBPQ
/* What it reads is its own: an index leads there. */
static void fault_h09_a_crowd_of_others_is_not_read(void **state) {
    world *w = *state;
    size_t count = crowd_size();
    char schema[80], url[900];
    if (!on_provider("postgres")) skip();
    crowd_of_starts(w, count);
    PGconn *db = pg_beside();
    schema_of(w, schema);
    pg_do(db, "ANALYZE %s.dur_instances", schema); /* as autovacuum does */
    snprintf(url, sizeof(url), "%s&application_name=crowd_%d", getenv("DURITE_TEST_URL"), (int)getpid());
    long before = rows_visited(db, schema);
    world node = elsewhere(w, url);
    RUN(&node, my_handlers);
    run_mine(&node, "mine");
    leave(&node);
    until_gone(db, strrchr(url, '=') + 1);
    long visited = rows_visited(db, schema) - before;
    PQfinish(db);
    print_message("%ld rows read for %d orchestrations beside %zu of others\n", visited, MINE, count);
    assert_true(visited < 400L * MINE); /* not all of them, each time */
}
#endif

static const struct CMUnitTest tests[] = {
    TEST(fault_h09_a_crowd_of_others_in_front_costs_nothing),
#ifdef HAVE_LIBPQ
    TEST(fault_h09_a_crowd_of_others_is_not_read),
#endif
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
