/* Memory of an execution: scopes free, limits break, on-drop runs, long executions do not grow. */
#include "replay/engine.h"
#include "replay_driver.h"
#include <sys/wait.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif

static dur_outcome long_loop(dur_ctx *ctx, const char *input) {
    unsigned long rounds = strtoul(input, NULL, 10);
    for (unsigned long i = 0; i < rounds; i++) {
        dur_scope *scope = dur_scope_begin(ctx);
        dur_future *step = dur_activity(ctx, "Step", dur_format(ctx, "%lu", i), .retry = DUR_RETRY(.attempts_max = 2));
        dur_future *timer = dur_timer(ctx, 5);
        dur_select(step, timer);
        dur_try_message(ctx, "q", NULL);
        dur_drop(dur_pulse(ctx, dur_format(ctx, "made-up-%lu", i)));
        dur_scope_end(scope);
    }
    dur_await(dur_pulse(ctx, "e"));
    return dur_complete(ctx, "");
}

/* What an execution costs does not depend on how long its history is. */
static void test_no_growth(void **state) {
    (void)state;
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        driver d;
        driver_init(&d, long_loop);
        driver_start(&d, i == 0 ? "5" : "500");
        uint64_t id = 2;
        for (int round = 0; round < (i == 0 ? 5 : 500); round++) {
            driver_done(&d, id, "some result");
            id = d.row_count - 1; /* the next activity; its timer is the last */
        }
        assert_int_equal(driver_replay(&d), DUR_OK);
        bytes[i] = dur__exec_bytes(d.exec);
        assert_int_equal(d.exec->mailbox.events.count, 1); /* the name that is waited for */
        assert_string_equal(dur__exec_hungry(d.exec, 0, NULL, NULL) == NULL ? "" : "hungry", "");
        driver_free(&d);
    }
    assert_true(bytes[1] < bytes[0] + 1000);
}

static dur_outcome greedy(dur_ctx *ctx, const char *input) {
    (void)input;
    for (int i = 0; i < 100; i++) {
        dur_scope *scope = dur_scope_begin(ctx);
        dur_alloc(ctx, 5000); /* given back each time */
        dur_scope_end(scope);
    }
    dur_await(dur_pulse(ctx, "e"));
    dur_alloc(ctx, 9000);
    dur_alloc(ctx, 9000);
    return dur_complete(ctx, "over the limit");
}
static void test_arena_limit(void **state) {
    (void)state;
    driver d;
    driver_init(&d, greedy);
    d.options.limits.arena_bytes_max = 16000;
    assert_int_equal(driver_start(&d, ""), DUR_OK);
    driver_offer(&d, &(dur_work_item){ .kind = DUR_WORK_EXTERNAL_RAISED, .name = "e", .data = "" });
    assert_int_equal(driver_run(&d), DUR_ELIMIT);
    assert_non_null(strstr(d.err.message, "arena limit of 16000 bytes"));
    const dur__turn *turn = dur__exec_turn(d.exec);
    for (dur__link *link; (link = dur__list_pop(turn->consumed)) != NULL;)
        free(DUR__CONTAINER(link, dur__arrival, link));
    assert_int_equal(driver_replay(&d), DUR_OK); /* nothing of the broken step was stored */
    driver_offer(
        &d, &(dur_work_item){ .kind = DUR_WORK_EXTERNAL_RAISED, .name = "e", .data = dur_arena_strdup(d.arena, "") });
    char *large = dur_arena_zalloc(d.arena, 20000);
    memset(large, 'x', 19999);
    driver_replay(&d);
    driver_offer(&d, &(dur_work_item){ .kind = DUR_WORK_EXTERNAL_RAISED, .name = "e", .data = large });
    assert_int_equal(driver_run(&d), DUR_ELIMIT); /* what arrives counts, too */
    turn = dur__exec_turn(d.exec);
    for (dur__link *link; (link = dur__list_pop(turn->consumed)) != NULL;)
        free(DUR__CONTAINER(link, dur__arrival, link));
    driver_free(&d);
}

/* ---- scopes ---- */

static dur_outcome scopes(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_scope *outer = dur_scope_begin(ctx);
    dur_activity(ctx, "Outer", "");
    dur_scope *inner = dur_scope_begin(ctx);
    dur_activity(ctx, "Inner", "");
    (void)inner; /* ends with the outer one */
    dur_await(dur_timer(ctx, 1));
    dur_scope_end(outer);
    dur_await(dur_timer(ctx, 1));
    return dur_complete(ctx, "");
}
static void test_scopes(void **state) {
    (void)state;
    driver d;
    driver_init(&d, scopes);
    driver_start(&d, "");
    driver_replay(&d);
    driver_fire(&d, 4);
    assert_string_equal(driver_kinds(&d),
                        "OrchestrationStarted ActivityScheduled ActivityScheduled TimerCreated TimerFired(4) "
                        "ActivityCancelRequested(3) ActivityCancelRequested(2) TimerCreated");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

/* Another branch waits for a future whose scope ends: it is told, and may still look at it then. */
typedef struct shared {
    dur_future *future;
} shared;
static dur_outcome watcher(dur_ctx *ctx, void *arg) {
    shared *s = arg;
    dur_code code = dur_try(s->future, NULL);
    return dur_completef(ctx, "%s", dur_code_name((int)code));
}
static dur_outcome watched(dur_ctx *ctx, const char *input) {
    (void)input;
    shared *s = dur_alloc(ctx, sizeof(*s));
    dur_future *other = dur_spawn(ctx, watcher, s);
    dur_scope *scope = dur_scope_begin(ctx);
    s->future = dur_pulse(ctx, "e");
    dur_await(dur_timer(ctx, 1));
    dur_scope_end(scope);
    return dur_complete(ctx, dur_await(other));
}
static void test_scope_ends_under_a_waiter(void **state) {
    (void)state;
    driver d;
    driver_init(&d, watched);
    driver_start(&d, "");
    driver_fire(&d, 3);
    assert_string_equal(d.output, "DUR_ECANCELLED");
    driver_free(&d);
}

static int dropped;
static void on_drop(void *arg) {
    (void)arg;
    dropped++;
    assert_null(dur_timer(NULL, 1)); /* it can ask for nothing */
}
static dur_outcome holds(dur_ctx *ctx, const char *input) {
    dur_on_drop(ctx, on_drop, NULL);
    if (*input == 'w') dur_await(dur_pulse(ctx, "e"));
    return *input == 'f' ? dur_fail(ctx, "") : dur_complete(ctx, "");
}
static void test_on_drop(void **state) {
    (void)state;
    static const char *const inputs[] = { "w", "f", "" };
    for (int i = 0; i < 3; i++) {
        driver d;
        driver_init(&d, holds);
        dropped = 0;
        driver_start(&d, inputs[i]);
        assert_int_equal(dropped, i > 0);
        driver_drop(&d); /* eviction */
        assert_int_equal(dropped, 1);
        driver_free(&d);
    }
}

#ifdef WITH_ASAN
static dur_outcome keeps_too_long(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_scope *scope = dur_scope_begin(ctx);
    char *text = dur_format(ctx, "%s", "freed with the scope");
    dur_scope_end(scope);
    return dur_complete(ctx, text);
}
static void test_use_after_scope_is_caught(void **state) {
    (void)state;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stderr) == NULL) _exit(0);
        driver d;
        driver_init(&d, keeps_too_long);
        driver_start(&d, "");
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_growth),
        cmocka_unit_test(test_arena_limit),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_scope_ends_under_a_waiter),
        cmocka_unit_test(test_on_drop),
#ifdef WITH_ASAN
        cmocka_unit_test(test_use_after_scope_is_caught),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
