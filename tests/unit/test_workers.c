/*
 * test_workers.c: worker threads come as work waits and go when they are idle.
 */
#include "e2e/harness.h"
#include "runtime/runtime_internal.h"

enum { AT_ONCE = 24 };

static atomic_int inside;

/* Returns when so many are here at the same time: only so many threads can do that. */
static dur_outcome meet(dur_act *act, const char *input) {
    int wanted = (int)strtol(input, NULL, 10);
    atomic_fetch_add(&inside, 1);
    while (atomic_load(&inside) < wanted)
        if (dur_act_sleep(act, 1)) return dur_act_fail(act, "cancelled");
    return dur_act_complete(act, input);
}

static dur_outcome quick(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome party(dur_ctx *ctx, const char *input) {
    dur_future *guests[AT_ONCE];
    for (int i = 0; i < AT_ONCE; i++)
        guests[i] = dur_activity(ctx, "Meet", input);
    dur_join_n(guests, AT_ONCE);
    return dur_complete(ctx, dur_await(guests[0]));
}

static dur_outcome row(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < 200; i++) {
        dur_scope *scope = dur_scope_begin(ctx);
        dur_await(dur_activity(ctx, "Quick", input));
        dur_scope_end(scope);
    }
    return dur_complete(ctx, input);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Meet", meet),
    DUR_ACTIVITY("Quick", quick),
    DUR_ORCHESTRATION("Party", "1.0.0", party),
    DUR_ORCHESTRATION("Row", "1.0.0", row),
    DUR_HANDLERS_END,
};

static void threads_come_as_work_waits_and_go_when_idle(void **state) {
    world *w = *state;
    atomic_store(&inside, 0);
    RUN(w, handlers);
    assert_int_equal(dur__workers_count(w->runtime), 2);
    start(w, "Party", "24", "p");
    expect(w, "p", "24");
    size_t grown = dur__workers_count(w->runtime);
    assert_in_range(grown, AT_ONCE, 64);
    /* The keeper does this every five seconds: who was idle from one look to the next goes. */
    while (dur__workers_count(w->runtime) > 2) {
        dur__workers_shrink(w->runtime);
        pause_ms(1);
    }
    start(w, "Row", "x", "r");
    expect(w, "r", "x");
    atomic_store(&inside, 0);
    start(w, "Party", "24", "again");
    expect(w, "again", "24");
}

static void there_are_no_more_than_the_host_allows(void **state) {
    world *w = *state;
    atomic_store(&inside, 0);
    RUN(w, handlers, .worker_concurrency = 3);
    start(w, "Party", "3", "p");
    expect(w, "p", "3");
    assert_in_range(dur__workers_count(w->runtime), 2, 3);
    world_stop(w);
    RUN(w, handlers, .worker_concurrency = 1);
    start(w, "Row", "x", "r");
    expect(w, "r", "x");
    assert_int_equal(dur__workers_count(w->runtime), 1);
}

/* What is over at once needs no more threads, however much of it there is: they would only be in each other's way. */
static void quick_work_starts_no_threads(void **state) {
    world *w = *state;
    char id[16];
    RUN(w, handlers);
    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof(id), "r-%d", i);
        start(w, "Row", "x", id);
    }
    for (int i = 0; i < 50; i++) {
        snprintf(id, sizeof(id), "r-%d", i);
        expect(w, id, "x");
    }
    print_message("%zu threads for 10,000 quick activities\n", dur__workers_count(w->runtime));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(threads_come_as_work_waits_and_go_when_idle),
        TEST(there_are_no_more_than_the_host_allows),
        TEST(quick_work_starts_no_threads),
    };
    return cmocka_run_group_tests_name("test_workers", tests, NULL, NULL);
}
