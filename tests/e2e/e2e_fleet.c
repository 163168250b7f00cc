/*
 * e2e_fleet.c: nodes that differ, one test per layout: services that share a store, workers without orchestrations,
 * old and new versions, runtimes in one process, and names that nobody has yet.
 */
#include "harness.h"

static dur_outcome nod(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome red(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "RedStep", input)));
}
static dur_outcome blue(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "BlueStep", input)));
}
static dur_outcome calls_blue(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Blue", input)));
}
static dur_outcome calls_tag(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Render", input, .tag = "gpu")));
}
static dur_outcome one(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, "1.0.0");
}
static dur_outcome two(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, "2.0.0");
}
static dur_outcome upgrades(dur_ctx *ctx, const char *input) {
    return dur_continue_as_new(ctx, input, .version = "2.0.0");
}

static const dur_handler red_handlers[] = { DUR_ACTIVITY("RedStep", nod), DUR_ORCHESTRATION("Red", "1.0.0", red),
                                            DUR_ORCHESTRATION("CallsBlue", "1.0.0", calls_blue),
                                            DUR_ORCHESTRATION("CallsTag", "1.0.0", calls_tag), DUR_HANDLERS_END };
static const dur_handler blue_handlers[] = { DUR_ACTIVITY("BlueStep", nod), DUR_ORCHESTRATION("Blue", "1.0.0", blue),
                                             DUR_HANDLERS_END };
static const dur_handler gpu_handlers[] = { DUR_ACTIVITY("Render", nod), DUR_HANDLERS_END };
static const dur_handler old_handlers[] = { DUR_ORCHESTRATION("Job", "1.0.0", one),
                                            DUR_ORCHESTRATION("Moves", "1.0.0", upgrades), DUR_HANDLERS_END };
static const dur_handler new_handlers[] = { DUR_ORCHESTRATION("Job", "2.0.0", two),
                                            DUR_ORCHESTRATION("Moves", "2.0.0", two), DUR_HANDLERS_END };

/* ---- help ---- */

static dur_runtime *also(world *w, const dur_handler *handlers, const dur_runtime_options *more) {
    dur_runtime_options options = *more;
    dur_runtime *runtime = NULL;
    options.size = sizeof(options);
    options.store = w->store;
    options.handlers = handlers;
    OK(w, dur_runtime_start(&runtime, &options, &w->err));
    return runtime;
}
#define ALSO(w, handlers, ...) also((w), (handlers), &(dur_runtime_options){ .size = 0, __VA_ARGS__ })

static void stop(world *w, dur_runtime *runtime) {
    OK(w, dur_runtime_stop(runtime, patience_ms(), &w->err));
}

static uint64_t acquired(world *w, dur_runtime *runtime) {
    dur_metrics m = { .size = sizeof(m) };
    OK(w, dur_runtime_metrics(&m, runtime, &w->err));
    return m.orchestration_items_fetched;
}

static void drive(world *w, const char *name, const char *kind, size_t count) {
    char id[32];
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "%s-%zu", kind, i);
        start(w, name, "x", id);
    }
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "%s-%zu", kind, i);
        expect(w, id, "x");
    }
}

/* ---- layouts ---- */

/* Two runtimes of one process are two nodes, also for starts that are handed over inside it. */
static void two_services_in_one_process(void **state) {
    world *w = *state;
    RUN(w, red_handlers);
    dur_runtime *other = ALSO(w, blue_handlers, .name = "blue");
    drive(w, "Red", "red", scaled(40, 10));
    assert_int_equal(acquired(w, other), 0);
    drive(w, "Blue", "blue", scaled(40, 10));
    start(w, "CallsBlue", "x", "parent");
    expect(w, "parent", "x");
    stop(w, other);
}

static void two_services_by_two_handles(void **state) {
    world *w = *state;
    dur_provider *handle = NULL;
    dur_runtime *other = NULL;
    OK(w, dur_open(&handle, w->url, &w->err));
    OK(w, dur_runtime_start(&other, DUR_RUNTIME(.store = handle, .handlers = blue_handlers), &w->err));
    RUN(w, red_handlers);
    drive(w, "Blue", "blue", scaled(20, 5));
    drive(w, "Red", "red", scaled(20, 5));
    stop(w, other);
    dur_provider_close(handle);
}

static void a_worker_for_a_tag_has_no_orchestrations(void **state) {
    world *w = *state;
    static const char *const tags[] = { "gpu", NULL };
    RUN(w, red_handlers);
    dur_runtime *worker = ALSO(w, gpu_handlers, .tags = DUR_TAG_ONLY, .worker_tags = tags);
    drive(w, "CallsTag", "tagged", scaled(20, 5));
    assert_int_equal(acquired(w, worker), 0);
    stop(w, worker);
}

/* The same tables everywhere, and this node takes activities only; another none. */
static void a_runtime_may_leave_orchestrations_to_others(void **state) {
    world *w = *state;
    RUN(w, red_handlers, .tags = DUR_TAG_NONE);
    dur_runtime *worker = ALSO(w, red_handlers, .activities_only = true);
    drive(w, "Red", "red", scaled(20, 5));
    assert_int_equal(acquired(w, worker), 0);
    dur_metrics m = { .size = sizeof(m) };
    OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    assert_int_equal(m.work_items_fetched, 0);
    stop(w, worker);
}

static void a_client_needs_no_runtime(void **state) {
    world *w = *state;
    start(w, "Red", "x", "r");
    dur_instance_info *info = NULL;
    OK(w, dur_client_info(&info, w->client, "r", &w->err));
    assert_string_equal(info->no_handler, "Red@");
    dur_instance_info_free(info);
    RUN(w, red_handlers);
    expect(w, "r", "x");
}

static void old_and_new_versions_run_side_by_side(void **state) {
    world *w = *state;
    char id[32], *result = NULL;
    RUN(w, old_handlers);
    dur_runtime *newer = ALSO(w, new_handlers, .name = "newer");
    for (int i = 0; i < 10; i++) {
        snprintf(id, sizeof(id), "v1-%d", i);
        OK(w, dur_client_start(w->client, &w->err, "Job", "", .instance = id, .version = "1.0.0"));
        snprintf(id, sizeof(id), "v2-%d", i);
        OK(w, dur_client_start(w->client, &w->err, "Job", "", .instance = id, .version = "2.0.0"));
        snprintf(id, sizeof(id), "any-%d", i);
        start(w, "Job", "", id);
    }
    OK(w, dur_client_start(w->client, &w->err, "Moves", "", .instance = "moves", .version = "1.0.0"));
    for (int i = 0; i < 10; i++) {
        snprintf(id, sizeof(id), "v1-%d", i);
        expect(w, id, "1.0.0");
        snprintf(id, sizeof(id), "v2-%d", i);
        expect(w, id, "2.0.0");
        snprintf(id, sizeof(id), "any-%d", i);
        OK(w, result_of(w, id, &result)); /* of whichever node took it */
        assert_true(strcmp(result, "1.0.0") == 0 || strcmp(result, "2.0.0") == 0);
        dur_free(result);
    }
    expect(w, "moves", "2.0.0");
    stop(w, newer);
}

static void a_name_that_nobody_has_waits_for_a_node_that_has_it(void **state) {
    world *w = *state;
    RUN(w, red_handlers, .unregistered_backoff_ms = 10);
    start(w, "Blue", "x", "b");
    drive(w, "Red", "red", 5);
    dur_instance_info *info = NULL;
    OK(w, dur_client_info(&info, w->client, "b", &w->err));
    assert_string_equal(info->no_handler, "Blue@");
    assert_int_equal(info->status, DUR_INSTANCE_RUNNING);
    dur_instance_info_free(info);
    dur_runtime *other = ALSO(w, blue_handlers, .name = "blue");
    expect(w, "b", "x");
    OK(w, dur_client_info(&info, w->client, "b", &w->err));
    assert_null(info->no_handler);
    dur_instance_info_free(info);
    stop(w, other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(two_services_in_one_process),
        TEST(two_services_by_two_handles),
        TEST(a_worker_for_a_tag_has_no_orchestrations),
        TEST(a_runtime_may_leave_orchestrations_to_others),
        TEST(a_client_needs_no_runtime),
        TEST(old_and_new_versions_run_side_by_side),
        TEST(a_name_that_nobody_has_waits_for_a_node_that_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
