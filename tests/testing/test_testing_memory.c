/*
 * test_testing_memory.c: the testing library where the library's memory is somebody else's, and where it runs out.
 */
#include <durite/durite.h>
#include <durite/step.h>
#include <durite/sys/clock.h>
#include <durite/testing.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static dur_error err;

/* ---- an allocator that knows its own blocks ---- */

#define OURS UINT64_C(0x0d1a2b3c4d5e6f70)

static struct {
    uint64_t count, fail_from, fail_count; /* so many allocations fail, from that one on */
    int64_t blocks;
    uint64_t foreign;
} heap;

static bool refused(void) {
    uint64_t number = heap.count++;
    return number >= heap.fail_from && number - heap.fail_from < heap.fail_count;
}

static void *marked(void *block) {
    if (block == NULL) return NULL;
    *(uint64_t *)block = OURS;
    return (char *)block + alignof(max_align_t);
}

static uint64_t *block_of(void *memory) {
    return (uint64_t *)(void *)((char *)memory - alignof(max_align_t));
}

static void *heap_alloc(size_t size, void *data) {
    (void)data;
    if (refused()) return NULL;
    heap.blocks++;
    return marked(malloc(size + alignof(max_align_t)));
}

static void *heap_resize(void *memory, size_t size, void *data) {
    (void)data;
    return refused() ? NULL : marked(realloc(block_of(memory), size + alignof(max_align_t)));
}

static void heap_release(void *memory, void *data) {
    (void)data;
    if (*block_of(memory) != OURS) {
        heap.foreign++;
        return;
    }
    heap.blocks--;
    *block_of(memory) = 0;
    free(block_of(memory));
}

#ifdef SANITIZED /* each point takes ten times as long, and there are more of them */
#define EVERY 13
#else
#define EVERY 1
#endif

static void refuse(uint64_t from, uint64_t count) {
    heap.count = 0;
    heap.fail_from = from;
    heap.fail_count = count;
}

static int memory_is_there(void **state) {
    (void)state;
    refuse(0, 0);
    return 0;
}

/* ---- handlers ---- */

static dur_outcome echo(dur_act *act, const char *text) {
    char *said = dur_act_format(act, "<%s>", text);
    return said != NULL ? dur_act_complete(act, said) : dur_act_fail(act, "no memory");
}

static dur_outcome kid(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}

static dur_outcome everything(dur_ctx *ctx, const char *input) {
    const char *message = dur_await(dur_message(ctx, "M"));
    const char *said =
        dur_await(dur_activity(ctx, "Echo", input, .retry = DUR_RETRY(.attempts_max = 5, .delay_ms = 1)));
    dur_await(dur_timer(ctx, DUR_HOURS(1)));
    dur_kv_set(ctx, "k", said);
    return dur_completef(ctx, "%s%s%s", message, said, dur_await(dur_orchestration(ctx, "Kid", "K")));
}

static dur_outcome hello(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input, .retry = DUR_RETRY(.attempts_max = 5))));
}

static dur_outcome sleeper(dur_ctx *ctx, const char *input) {
    dur_await(dur_timer(ctx, 10));
    return dur_complete(ctx, input);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("Everything", "1.0.0", everything),
    DUR_ORCHESTRATION("Hello", "1.0.0", hello),
    DUR_ORCHESTRATION("Kid", "1.0.0", kid),
    DUR_ORCHESTRATION("Sleeper", "1.0.0", sleeper),
    DUR_HANDLERS_END,
};

/* ---- whose memory ---- */

static int start_sleeper(dur_test *t, void *data, dur_error *why) {
    (void)data;
    return dur_test_start(t, why, "Sleeper", "", .instance = "s");
}

static int never_right(dur_test *t, void *data, dur_error *why) {
    (void)t;
    (void)data;
    return dur_error_set(why, DUR_EFAILED, false, "test", "never right");
}

static void fault_h158_a_story_is_the_librarys_memory(void **state) {
    (void)state;
    for (int i = 0; i < 3; i++) {
        dur_explore_report report = { .size = sizeof(report) };
        assert_int_equal(dur_test_explore(i < 2 ? &report : NULL,
                                          DUR_EXPLORE(.handlers = handlers, .scenario = start_sleeper,
                                                      .invariant = never_right, .quiet = true),
                                          &err),
                         DUR_EFAILED);
        if (i == 2) break;
        size_t before = dur_memory_used();
        assert_non_null(strstr(report.story, "never right"));
        dur_free(report.story);
        assert_true(dur_memory_used() < before);
    }
    assert_int_equal(heap.foreign, 0);
}

/* ---- memory that runs out ---- */

/* So many allocations fail in a row, from each on. */
static void new_without(uint64_t count) {
    for (uint64_t n = 0;; n++) {
        int64_t before = heap.blocks;
        dur_test *t = NULL;
        refuse(n, count);
        int code = dur_test_new(&t, DUR_TEST(.handlers = handlers), &err);
        bool all = heap.count <= n;
        refuse(0, 0);
        if (code != DUR_OK && code != DUR_ENOMEM)
            fail_msg("allocation %llu fails: %s: %s", (unsigned long long)n, dur_code_name(code), err.message);
        assert_int_equal(code == DUR_OK, t != NULL);
        dur_test_free(t);
        if (n > 0) assert_int_equal(heap.blocks, before); /* there are things that a process makes once */
        if (!all) continue;
        assert_int_equal(code, DUR_OK);
        return;
    }
}

static void fault_h159_a_test_begins_or_answers_that_memory_is_short(void **state) {
    (void)state;
    new_without(1);
    new_without(3);
    new_without(UINT64_MAX);
}

/* A call that may say that memory is short, and is made again. */
#define AGAIN(n, call)                                                                                                 \
    do {                                                                                                               \
        int code_ = DUR_ENOMEM;                                                                                        \
        for (int i_ = 0; i_ < 8 && code_ == DUR_ENOMEM; i_++)                                                          \
            code_ = (call);                                                                                            \
        if (code_ != DUR_OK)                                                                                           \
            fail_msg("allocation %llu fails: %s: %s", (unsigned long long)(n), dur_code_name(code_), err.message);     \
    } while (0)

/* False: there are not so many allocations. */
static bool run_without(uint64_t from, uint64_t count) {
    dur_test *t = NULL;
    refuse(0, 0);
    assert_int_equal(dur_test_new(&t, DUR_TEST(.handlers = handlers), &err), DUR_OK);
    refuse(from, count);
    AGAIN(from, dur_test_start(t, &err, "Everything", "x", .instance = "i", .exists = DUR_START_RETURN_EXISTING));
    AGAIN(from, dur_test_run_until_blocked(t, &err));
    AGAIN(from, dur_test_send(t, &err, "i", "M", "m", .message_id = "1"));
    AGAIN(from, dur_test_run_to_end(t, "i", &err));
    bool more = heap.count > from;
    refuse(0, 0);
    assert_string_equal(dur_test_output(t, "i"), "m<x>K");
    dur_test_free(t);
    return more;
}

/* Whatever the node tries again later comes by itself. */
static void fault_h160_what_is_tried_again_comes_by_itself(void **state) {
    (void)state;
    for (uint64_t count = 1; count <= 7; count += 2)
        for (uint64_t from = 0; run_without(from, count);)
            from += EVERY;
}

/* Looks change nothing: what could not be read is answered another time. */
static void fault_h35_a_look_without_memory_ends_nothing(void **state) {
    (void)state;
    int64_t before = heap.blocks;
    char *large = malloc(100001); /* more than anybody sets aside */
    memset(large, 'x', 100000);
    large[100000] = '\0';
    dur_test *t = NULL;
    assert_int_equal(dur_test_new(&t, DUR_TEST(.handlers = handlers), &err), DUR_OK);
    assert_int_equal(dur_test_start(t, &err, "Everything", large, .instance = "i"), DUR_OK);
    assert_int_equal(dur_test_run_until_blocked(t, &err), DUR_OK);
    for (uint64_t count = 1; count <= UINT32_MAX; count += UINT32_MAX - 1) {
        bool more = true;
        for (uint64_t from = 0; more; from++) {
            refuse(from, count);
            (void)dur_test_waits(t, "i", DUR_WAIT_MESSAGE, "M");
            (void)dur_test_waits_text(t, "i");
            (void)dur_test_events(t, "i", NULL);
            (void)dur_test_status(t, "i");
            more = heap.count > from;
        }
    }
    refuse(0, UINT64_MAX);
    assert_string_equal(dur_test_waits_text(t, "i"), "no such instance");
    refuse(0, 0);
    assert_true(dur_test_waits(t, "i", DUR_WAIT_MESSAGE, "M"));
    assert_string_equal(dur_test_waits_text(t, "i"), "message M");
    dur_test_free(t);
    free(large);
    assert_int_equal(heap.blocks, before);
}

static bool has_ended(dur_client *client) {
    dur_instance_info *info = NULL;
    assert_int_equal(dur_client_info(&info, client, "h", &err), DUR_OK);
    bool ended = info->status == DUR_INSTANCE_COMPLETED;
    dur_instance_info_free(info);
    return ended;
}

/* What a host sees that asks when to step again. */
static bool due_without(dur_fake_world *world, uint64_t from, uint64_t count) {
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_runtime *runtime = NULL;
    const dur_world *time = dur_fake_world_get(world);
    refuse(0, 0);
    assert_int_equal(dur_open_ex(&store, "memory:", DUR_OPEN_OPTIONS(.world = time), &err), DUR_OK);
    assert_int_equal(dur_client_new(&client, store, &err), DUR_OK);
    assert_int_equal(
        dur_runtime_start(&runtime,
                          DUR_RUNTIME(.store = store, .handlers = handlers, .world = time, .threads = DUR_THREADS_NONE),
                          &err),
        DUR_OK);
    assert_int_equal(dur_client_start(client, &err, "Hello", "x", .instance = "h"), DUR_OK);
    refuse(from, count);
    bool more = false;
    for (int i = 0; i < 1000; i++) {
        (void)dur_runtime_run_until_idle(runtime, 1000, &err);
        uint64_t due_ms = dur_runtime_due_ms(runtime), number = heap.count;
        more |= number > from;
        if (due_ms == UINT64_MAX) break;
        dur_fake_world_advance(world, due_ms);
    }
    refuse(0, 0);
    if (!has_ended(client)) fail_msg("allocation %llu fails: nothing is due", (unsigned long long)from);
    assert_int_equal(dur_runtime_stop(runtime, 1000, &err), DUR_OK);
    dur_client_free(client);
    dur_provider_close(store);
    return more;
}

static void fault_h160_what_waits_for_memory_is_due(void **state) {
    (void)state;
    dur_fake_world *world = dur_fake_world_new(UINT64_C(1735689600000), 1);
    (void)dur_fake_world_enter(world);
    for (uint64_t count = 1; count <= 9; count += 2)
        for (uint64_t from = 0; due_without(world, from, count);)
            from += EVERY;
    dur_fake_world_free(world);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(fault_h158_a_story_is_the_librarys_memory, memory_is_there),
        cmocka_unit_test_setup(fault_h159_a_test_begins_or_answers_that_memory_is_short, memory_is_there),
        cmocka_unit_test_setup(fault_h160_what_waits_for_memory_is_due, memory_is_there),
        cmocka_unit_test_setup(fault_h35_a_look_without_memory_ends_nothing, memory_is_there),
        cmocka_unit_test_setup(fault_h160_what_is_tried_again_comes_by_itself, memory_is_there),
    };
    if (dur_memory_hooks(heap_alloc, heap_resize, heap_release, NULL) != DUR_OK) return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
