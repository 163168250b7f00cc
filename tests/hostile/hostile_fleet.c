/*
 * hostile_fleet.c: nodes that differ share a store (H9): what one has no handler for is not its business.
 */
#include "hostile.h"

#include <durite/sys/store.h>

static dur_outcome nod(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome red(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "RedStep", input)));
}

static dur_outcome red_waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome blue(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "BlueStep", input)));
}

static const dur_handler red_handlers[] = { DUR_ACTIVITY("RedStep", nod), DUR_ORCHESTRATION("Red", "1.0.0", red),
                                            DUR_ORCHESTRATION("RedWaits", "1.0.0", red_waits), DUR_HANDLERS_END };
static const dur_handler blue_handlers[] = { DUR_ACTIVITY("BlueStep", nod), DUR_ORCHESTRATION("Blue", "1.0.0", blue),
                                             DUR_HANDLERS_END };

/* The other service, until the pipe is closed.  0: it acquired what it ran, and nothing else. */
static int blue_node(const char *url, long until) {
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    dur_metrics m = { .size = sizeof(m) };
    char byte;
    if (dur_open(&store, url, NULL) != DUR_OK) return 10;
    if (dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = blue_handlers), NULL) != DUR_OK) return 11;
    while (read((int)until, &byte, 1) > 0)
        continue;
    if (dur_runtime_metrics(&m, runtime, NULL) != DUR_OK) return 12;
    if (dur_runtime_stop(runtime, patience_ms(), NULL) != DUR_OK) return 13;
    dur_provider_close(store);
    return m.orchestration_items_fetched == m.orchestration_starts ? 0 : 1;
}

static void start_many(world *w, const char *name, const char *kind, size_t count) {
    char id[32];
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "%s-%zu", kind, i);
        start(w, name, "x", id);
    }
}

static void expect_many(world *w, const char *kind, size_t count) {
    char id[32];
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "%s-%zu", kind, i);
        expect(w, id, "x");
    }
}

/* Whoever has the handler could take it now, and nobody has taken it before. */
static void expect_untouched(world *w, const char *instance) {
    static const char *const red_only[] = { "Red@" };
    dur_handler_filter handlers = { red_only, 1 };
    dur_arena *arena = dur_arena_new();
    dur_orchestration_item item;
    OK(w, dur_store_fetch_orchestration_item(w->store, arena, &(dur_fetch){ .lock_ms = 60000, .handlers = &handlers },
                                             &item, &w->err));
    assert_non_null(item.instance);
    assert_string_equal(item.instance, instance);
    assert_int_equal(item.attempt_count, 1);
    assert_true(item.acquisitions <= 1);
    OK(w, dur_store_abandon_orchestration_item(w->store, item.lock_token, 0, true, &w->err));
    dur_arena_free(arena);
}

static void fault_h09_a_node_without_the_handler_delays_nobody(void **state) {
    world *w = *state;
    size_t count = scaled(20, 5);
    int ends[2], status = -1;
    if (on_provider("memory:")) skip(); /* one process */
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t other = node_spawn("blue", w->url, ends[0], ends[0]);
    start(w, "Blue", "x", "first");
    expect(w, "first", "x"); /* it runs */
    start_many(w, "Red", "red", count);
    start_many(w, "Blue", "blue", count);
    expect_many(w, "blue", count); /* it has looked, with all of the red ones in front */
    expect_untouched(w, "red-0");
    dur_instance_info *info = NULL;
    OK(w, dur_client_info(&info, w->client, "red-0", &w->err));
    assert_non_null(info->no_handler);
    assert_string_equal(info->no_handler, "Red@");
    dur_instance_info_free(info);
    RUN(w, red_handlers);
    expect_many(w, "red", count);
    start_many(w, "Red", "more", count);
    expect_many(w, "more", count);
    close(ends[0]);
    close(ends[1]);
    status = node_wait(other);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* A cancel reaches what no node has the handler of: at once before it has begun, after its grace later. */
static void fault_h09_what_nobody_serves_can_be_cancelled(void **state) {
    world *w = *state;
    RUN(w, red_handlers);
    start(w, "RedWaits", "x", "begun");
    until_history(w, "begun", "\"ExternalSubscribed\"", 1);
    world_stop(w);
    RUN(w, blue_handlers, .unregistered_backoff_ms = 20, .cancel_grace_ms = 50);
    OK(w, dur_client_cancel(w->client, "begun", "enough", &w->err));
    start(w, "Red", "x", "unborn");
    OK(w, dur_client_cancel(w->client, "unborn", "not wanted", &w->err));
    expect_failure(w, "unborn", DUR_ECANCELLED, "not wanted");
    expect_failure(w, "begun", DUR_ECANCELLED, "enough");
    dur_metrics m = { .size = sizeof(m) };
    OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    assert_int_equal(m.orchestration_items_fetched, 0);
}

/* ---- names that are not plain words: stores keep them as they are, and never take one for another ---- */

static const char *const odd_names[] = {
    "say \"hi\"",
    "back\\slash\\",
    "\\\"",
    "\\u0042lueStep",
    "\xe5\x90\x8d\xe5\x89\x8d \xf0\x9f\xa6\x8a",
    "next\xc2\x85line",
    "\xe2\x80\xa8",
    "x\",\"name\":\"BlueStep",
    "BlueStep\"",
    "'; --",
    "%",
    "{\"BlueStep\"}",
};
enum { ODD_NAMES = sizeof(odd_names) / sizeof(odd_names[0]) };
static bool odd_hangs;

static dur_outcome odd_step(dur_act *act, const char *input) {
    while (odd_hangs && strcmp(input, "last") == 0)
        pause();
    return dur_act_complete(act, input);
}

/* A step that ends, then one that hangs, or two. */
static dur_outcome odd(dur_ctx *ctx, const char *input) {
    const char *name = odd_names[strtoul(input, NULL, 10)];
    dur_await(dur_activity(ctx, name, "first"));
    dur_future *one = dur_activity(ctx, name, "last");
    if (strchr(input, '+') != NULL) dur_await(dur_activity(ctx, name, "last"));
    return dur_complete(ctx, dur_await(one));
}

static void odd_handlers(dur_handler out[ODD_NAMES + 2]) {
    for (size_t i = 0; i < ODD_NAMES; i++)
        out[i] = (dur_handler)DUR_ACTIVITY(odd_names[i], odd_step);
    out[ODD_NAMES] = (dur_handler)DUR_ORCHESTRATION("Odd", "1.0.0", odd);
    out[ODD_NAMES + 1] = (dur_handler)DUR_HANDLERS_END;
}

static int odd_node(const char *url, long hangs) {
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    dur_handler handlers[ODD_NAMES + 2];
    odd_hangs = hangs != 0;
    odd_handlers(handlers);
    if (dur_open(&store, url, NULL) != DUR_OK) return 10;
    if (dur_runtime_start(&runtime,
                          DUR_RUNTIME(.store = store, .handlers = handlers, .worker_concurrency = 3 * ODD_NAMES),
                          NULL) != DUR_OK)
        return 11;
    for (;;)
        pause();
}

static void odd_each(world *w, void (*what)(world *, const char *instance, const char *input)) {
    char id[32], input[16];
    for (size_t i = 0; i < 2 * ODD_NAMES; i++) {
        snprintf(id, sizeof(id), "odd-%zu", i);
        snprintf(input, sizeof(input), "%zu%s", i % ODD_NAMES, i < ODD_NAMES ? "" : "+");
        what(w, id, input);
    }
}

static void odd_start(world *w, const char *instance, const char *input) {
    start(w, "Odd", input, instance);
}

static void odd_hung(world *w, const char *instance, const char *input) {
    until_history(w, instance, "\"ActivityScheduled\"", strchr(input, '+') != NULL ? 3 : 2);
}

static void odd_ends(world *w, const char *instance, const char *input) {
    (void)input;
    expect(w, instance, "last");
}

/* Work of that name waits, and no node has it. */
static bool waits_for_nobody(world *w, const char *name) {
    dur_arena *arena = dur_arena_new();
    dur_unserved *rows = NULL;
    size_t count = 0;
    bool found = false;
    OK(w, dur_store_list_unserved(w->store, arena, 1, &rows, &count, &w->err));
    for (size_t i = 0; i < count; i++)
        found |= rows[i].kind == DUR_UNSERVED_ACTIVITY && strcmp(rows[i].handler, name) == 0;
    dur_arena_free(arena);
    return found;
}

/* One that has this handler and no other can take it. */
static bool can_take(world *w, const char *name) {
    dur_handler_filter handlers = { &name, 1 };
    dur_arena *arena = dur_arena_new();
    dur_leased_work work = { .lock_token = NULL };
    OK(w, dur_store_fetch_work_item(w->store, arena, &(dur_work_fetch){ .lock_ms = 60000, .handlers = &handlers },
                                    &work, &w->err));
    bool some = work.lock_token != NULL;
    if (some) OK(w, dur_store_abandon_work_item(w->store, work.lock_token, 0, true, &w->err));
    dur_arena_free(arena);
    return some;
}

static uint64_t rounds_of(world *w) {
    dur_metrics m = { .size = sizeof(m) };
    OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    return m.rounds;
}

static void fault_h09_an_odd_name_is_taken_only_by_a_node_that_has_it(void **state) {
    world *w = *state;
    dur_handler handlers[ODD_NAMES + 2];
    if (on_provider("memory:")) skip(); /* one process */
    RUN(w, blue_handlers);
    pid_t other = node_spawn("odd", w->url, 1, -1);
    odd_each(w, odd_start);
    odd_each(w, odd_hung);
    node_kill(other);
    for (size_t i = 0; i < ODD_NAMES; i++)
        for (uint64_t until = now_ms() + patience_ms(); !waits_for_nobody(w, odd_names[i]); pause_ms(10))
            assert_true(now_ms() < until);
    uint64_t rounds = rounds_of(w);
    start_many(w, "Blue", "blue", 5);
    expect_many(w, "blue", 5); /* it has looked, with all of the odd ones in front */
    rounds = rounds_of(w) - rounds;
    printf("# %llu rounds for five steps, an owner having died\n", (unsigned long long)rounds);
    assert_true(rounds < 3000); /* it does not turn without rest */
    assert_false(can_take(w, "BlueStep"));
    for (size_t i = 0; i < ODD_NAMES; i++)
        assert_true(can_take(w, odd_names[i]));
    world_stop(w);
    odd_handlers(handlers);
    RUN(w, handlers);
    odd_each(w, odd_ends);
}

static const hostile_role roles[] = { { "blue", blue_node }, { "odd", odd_node } };

/* ---- versions over a continue-as-new ---- */

static dur_outcome loops_once(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "again") == 0) return dur_continue_as_new(ctx, "waits");
    return dur_complete(ctx, dur_await(dur_message(ctx, "q")));
}

static const dur_handler loop_1[] = { DUR_ORCHESTRATION("Loop", "1.0.0", loops_once), DUR_HANDLERS_END };
static const dur_handler loop_2[] = { DUR_ORCHESTRATION("Loop", "2.0.0", loops_once), DUR_HANDLERS_END };

static void fault_h09_a_continued_instance_waits_for_its_version(void **state) {
    world *w = *state;
    RUN(w, loop_1);
    start(w, "Loop", "again", "loop");
    for (uint64_t execution = 0; execution != 2; pause_ms(1)) {
        dur_instance_info *info = NULL;
        OK(w, dur_client_info(&info, w->client, "loop", &w->err));
        execution = info->execution_id;
        dur_instance_info_free(info);
    }
    world_stop(w);
    RUN(w, loop_2);
    OK(w, dur_client_send(w->client, &w->err, "loop", "q", "done"));
    dur_instance_info *info = NULL;
    OK(w, dur_client_info(&info, w->client, "loop", &w->err));
    assert_non_null(info->no_handler);
    assert_string_equal(info->no_handler, "Loop@1.0.0");
    dur_instance_info_free(info);
    world_stop(w);
    RUN(w, loop_1);
    expect(w, "loop", "done");
}

/* ---- a statement that was prepared for a round without work ---- */

static dur_outcome busy(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < 100000; i++) {
        dur_scope *scope = dur_scope_begin(ctx);
        dur_await(dur_activity(ctx, "RedStep", input));
        dur_scope_end(scope);
    }
    return dur_complete(ctx, "done");
}

static const dur_handler busy_handlers[] = { DUR_ACTIVITY("RedStep", nod), DUR_ORCHESTRATION("Busy", "1.0.0", busy),
                                             DUR_HANDLERS_END };

static void fault_h09_no_round_fails_where_leases_come_and_go(void **state) {
    world *w = *state;
    if (!on_provider("postgres")) skip(); /* the only store with prepared statements of this kind */
    RUN(w, busy_handlers);
    start(w, "Busy", "x", "busy");
    for (size_t i = 0; i < scaled(1000, 40); i++) {
        OK(w, dur_client_suspend(w->client, "busy", "often", &w->err));
        OK(w, dur_client_resume(w->client, "busy", &w->err));
        pause_ms(2);
    }
    dur_metrics metrics = { .size = sizeof(metrics) };
    OK(w, dur_runtime_metrics(&metrics, w->runtime, &w->err));
    assert_int_equal(metrics.provider_errors, 0);
    OK(w, dur_client_terminate(w->client, "busy", "enough", &w->err));
}

static const struct CMUnitTest tests[] = {
    TEST(fault_h09_a_node_without_the_handler_delays_nobody),
    TEST(fault_h09_what_nobody_serves_can_be_cancelled),
    TEST(fault_h09_an_odd_name_is_taken_only_by_a_node_that_has_it),
    TEST(fault_h09_a_continued_instance_waits_for_its_version),
    TEST(fault_h09_no_round_fails_where_leases_come_and_go),
};

HOSTILE_MAIN(roles, tests)
