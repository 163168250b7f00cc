/*
 * test_runtime_options.c: every option that can be wrong is named, and nothing is left behind.
 */
#include "e2e/harness.h"

#include "runtime/runtime_internal.h"

static dur_outcome hello(dur_ctx *ctx, const char *input) {
    return dur_completef(ctx, "hello %s", input);
}
static const dur_handler handlers[] = { DUR_ORCHESTRATION("Hello", "1.0.0", hello), DUR_HANDLERS_END };

static void refuse(world *w, const char *option, dur_runtime_options *options) {
    dur_runtime *runtime = (dur_runtime *)w;
    int code = dur_runtime_start(&runtime, options, &w->err);
    if (code != DUR_EINVAL || strstr(w->err.message, option) == NULL)
        fail_msg("%s: %s: %s", option, dur_code_name(code), w->err.message);
    assert_null(runtime);
}
#define REFUSE(option, ...) refuse(w, option, DUR_RUNTIME(.store = w->store, .handlers = handlers, __VA_ARGS__))

static void bad_options_are_named(void **state) {
    world *w = *state;
    static const char *const no_tags[] = { NULL };
    static const char *const six[] = { "a", "b", "c", "d", "e", "f", NULL };
    static const char *const one[] = { "a", NULL };
    refuse(w, "store", DUR_RUNTIME(.handlers = handlers));
    refuse(w, "handlers", DUR_RUNTIME(.store = w->store));
    refuse(w, "options", NULL);
    refuse(w, "size", &(dur_runtime_options){ .store = w->store, .handlers = handlers });
    REFUSE("name", .name = "");
    REFUSE("name", .name = "\xff");
    REFUSE("worker_node_id", .worker_node_id = "");
    REFUSE("orchestration_concurrency", .orchestration_concurrency = 1000);
    REFUSE("worker_concurrency", .worker_concurrency = 1000000);
    REFUSE("owner_timeout_ms", .owner_timeout_ms = 10);
    REFUSE("dispatcher_long_poll_timeout_ms", .dispatcher_long_poll_timeout_ms = 3600001);
    REFUSE("unregistered_backoff_max_ms", .unregistered_backoff_ms = 10, .unregistered_backoff_max_ms = 5);
    REFUSE("stack_bytes", .stack_bytes = 100);
    REFUSE("nondeterminism", .nondeterminism = (dur_nondeterminism_policy)7);
    REFUSE("session_idle_timeout_ms", .session_idle_timeout_ms = 1000);
    REFUSE("replay_version_min", .replay_version_min = "one");
    REFUSE("replay_version_max", .replay_version_max = "1");
    REFUSE("replay_version_min", .replay_version_min = "2.0.0", .replay_version_max = "1.0.0");
    REFUSE("worker_tags", .tags = DUR_TAG_ONLY);
    REFUSE("worker_tags", .tags = DUR_TAG_ONLY, .worker_tags = no_tags);
    REFUSE("worker_tags", .tags = DUR_TAG_ONLY, .worker_tags = six);
    REFUSE("worker_tags", .worker_tags = one);
    REFUSE("tags", .tags = (dur_tag_choice)9);
    assert_int_equal(dur_runtime_start(NULL, DUR_RUNTIME(.store = w->store, .handlers = handlers), &w->err),
                     DUR_EINVAL);
}

static void a_table_beside_a_registry(void **state) {
    world *w = *state;
    dur_registry *registry = NULL;
    static const dur_handler more[] = { DUR_ORCHESTRATION("More", "1.0.0", hello), DUR_HANDLERS_END };
    OK(w, dur_registry_new(&registry, &w->err));
    OK(w, dur_registry_add(registry, handlers, &w->err));
    assert_int_equal(dur_runtime_start(&w->runtime,
                                       DUR_RUNTIME(.store = w->store, .handlers = handlers, .registry = registry),
                                       &w->err),
                     DUR_EEXISTS);
    OK(w,
       dur_runtime_start(&w->runtime, DUR_RUNTIME(.store = w->store, .handlers = more, .registry = registry), &w->err));
    assert_int_equal(dur_registry_add(registry, more, &w->err), DUR_ESTATE);
    dur_registry_free(registry); /* the runtime has its own reference */
    start(w, "Hello", "a", "a");
    start(w, "More", "b", "b");
    expect(w, "a", "hello a");
    expect(w, "b", "hello b");
}

static void the_store_may_be_closed_first(void **state) {
    world *w = *state;
    dur_provider *other = NULL;
    dur_runtime *runtime = NULL;
    OK(w, dur_open(&other, w->url, &w->err));
    OK(w, dur_runtime_start(&runtime, DUR_RUNTIME(.store = other, .handlers = handlers), &w->err));
    dur_provider_close(other);
    start(w, "Hello", "x", "x");
    expect(w, "x", "hello x");
    assert_true(strlen(dur_runtime_owner(runtime)) > 0);
    dur_metrics metrics = { .size = sizeof(metrics) };
    while (metrics.orchestration_completions < 1) /* counted a moment after the client can see it */
        OK(w, dur_runtime_metrics(&metrics, runtime, &w->err));
    assert_int_equal(metrics.orchestration_completions, 1);
    assert_int_equal(dur_runtime_metrics(NULL, runtime, &w->err), DUR_EINVAL);
    OK(w, dur_runtime_stop(runtime, 1000, &w->err));
    OK(w, dur_runtime_stop(NULL, 1000, &w->err));
}

static void waiting_times_grow_and_never_wrap(void **state) {
    (void)state;
    assert_int_equal(dur__backoff_ms(1000, 0, 60000), 1000);
    assert_int_equal(dur__backoff_ms(1000, 5, 60000), 32000);
    assert_int_equal(dur__backoff_ms(1000, 6, 60000), 60000);
    assert_int_equal(dur__backoff_ms(100, 64, 3000), 3000); /* C26: 100·2^64 wraps to 0 */
    assert_int_equal(dur__backoff_ms(100, UINT32_MAX, 3000), 3000);
    assert_int_equal(dur__backoff_ms(UINT64_MAX / 2 + 1, 3, UINT64_MAX), UINT64_MAX);
    for (int i = 0; i < 100; i++) {
        uint64_t us = dur__backoff_jitter_us(dur_world_real(), 100);
        assert_true(us >= 80000 && us <= 120000);
    }
}

static void one_suspect_at_a_time_in_the_whole_process(void **state) {
    (void)state;
    dur_runtime one = { .options = { .suspect_alone_ms = 1000 }, .phase = DUR__PHASE_DRAIN };
    dur_runtime two = { .options = { .suspect_alone_ms = 1000 }, .phase = DUR__PHASE_DRAIN };
    dur__mutex_init(&one.mutex);
    dur__cond_init(&one.changed);
    assert_true(dur__gate_open());
    uint64_t first = dur__gate_claim(&one), nobodys = 0;
    assert_int_not_equal(first, 0);
    assert_int_equal(dur__gate_claim(&two), 0);
    assert_false(dur__gate_open());
    assert_int_equal(dur__gate_due_us(&one), UINT64_MAX); /* it is being fetched */
    uint64_t begin_us = dur__monotonic_us();
    dur__gate_enter(first, "token", 4, "activity \"A\" of \"a\"");
    assert_in_range(dur__gate_due_us(&one) - begin_us, 4000000, 4000000 + 500000000); /* doubled twice */
    assert_int_equal(dur__gate_due_us(&two), UINT64_MAX);
    dur__gate_release(&nobodys);
    assert_false(dur__gate_open());
    uint64_t copy = first;
    dur__gate_release(&first);
    assert_true(dur__gate_open());
    uint64_t second = dur__gate_claim(&two);
    assert_int_not_equal(second, 0);
    dur__gate_release(&copy); /* who had it before opens it for nobody */
    assert_false(dur__gate_open());
    assert_int_equal(dur__gate_claim(&one), 0);
    dur__gate_release(&second);
    assert_true(dur__gate_open());
    dur__cond_destroy(&one.changed);
    dur__mutex_destroy(&one.mutex);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(bad_options_are_named),
        TEST(a_table_beside_a_registry),
        TEST(the_store_may_be_closed_first),
        cmocka_unit_test(waiting_times_grow_and_never_wrap),
        cmocka_unit_test(one_suspect_at_a_time_in_the_whole_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
