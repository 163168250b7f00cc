/*
 * e2e_step.c: a runtime without threads: what a step does, what the host may sleep on, what it may take.
 */
#include "harness.h"

#include <pthread.h>
#include <sys/wait.h>

static atomic_int runs;

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static void second_node_begins(dur_act *act);

static dur_outcome slow(dur_act *act, const char *input) { /* longer than its node may be silent */
    if (atomic_fetch_add(&runs, 1) == 0) second_node_begins(act);
    for (int i = 0; i < 30; i++) {
        nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
        if (dur_act_beat(act)) return dur_act_fail(act, "cancelled");
    }
    return dur_act_complete(act, input);
}

static dur_outcome asks(dur_act *act, const char *input) { /* waits for what only this thread can do */
    char *result = NULL;
    dur_error err = DUR_ERROR_INIT;
    dur_client *client = dur_act_client(act);
    if (dur_client_start(client, &err, "Twice", input, .instance = "asked") != DUR_OK ||
        dur_client_result(&result, client, "asked", patience_ms(), &err) != DUR_OK)
        return dur_act_fail(act, err.message);
    dur_outcome outcome = dur_act_complete(act, result);
    dur_free(result);
    return outcome;
}

static dur_outcome twice(dur_ctx *ctx, const char *input) {
    const char *first = dur_await(dur_activity(ctx, "Echo", input));
    const char *second = dur_await(dur_activity(ctx, "Echo", input));
    return dur_completef(ctx, "%s %s", first, second);
}

static dur_outcome calls(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, input, "x")));
}

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome sleeps(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_timer(ctx, DUR_HOURS(1)));
    return dur_complete(ctx, "");
}

static dur_runtime *the_runtime;

static dur_outcome steps_inside(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_code_name(dur_runtime_step(the_runtime, 0, NULL)));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ACTIVITY("Slow", slow),
    DUR_ACTIVITY("Asks", asks),
    DUR_ACTIVITY_TAKEN("Host"),
    DUR_ORCHESTRATION("Twice", "1.0.0", twice),
    DUR_ORCHESTRATION("Calls", "1.0.0", calls),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("Sleeps", "1.0.0", sleeps),
    DUR_ORCHESTRATION("StepsInside", "1.0.0", steps_inside),
    DUR_HANDLERS_END,
};

static const dur_handler plain_handlers[] = { DUR_ACTIVITY("Slow", slow), DUR_ORCHESTRATION("Calls", "1.0.0", calls),
                                              DUR_HANDLERS_END };
static dur_runtime *second_node;
static world *second_world;

/* With threads, and ready to take over whatever a dead node leaves. */
static void second_node_begins(dur_act *act) {
    (void)act;
    OK(second_world, dur_runtime_start(&second_node,
                                       DUR_RUNTIME(.store = second_world->store, .handlers = plain_handlers,
                                                   .name = "second", .owner_timeout_ms = 1000),
                                       &second_world->err));
}

#define STEPPED(w, ...)                                                                                                \
    do {                                                                                                               \
        RUN((w), handlers, .threads = DUR_THREADS_NONE, __VA_ARGS__);                                                  \
        stepped_runtime = (w)->runtime;                                                                                \
    } while (0)

static bool has_ended(world *w, const char *instance) {
    dur_instance_info *info = NULL;
    if (dur_client_info(&info, w->client, instance, NULL) != DUR_OK) return false;
    bool ended = info->status != DUR_INSTANCE_RUNNING;
    dur_instance_info_free(info);
    return ended;
}

static void until_ended(world *w, const char *instance) {
    while (!has_ended(w, instance))
        OK(w, dur_runtime_step(w->runtime, 5, &w->err));
}

/* ---- stepping ---- */

static void nothing_happens_but_in_a_step(void **state) {
    world *w = *state;
    STEPPED(w, .name = "quiet");
    start(w, "Twice", "a", "t");
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    assert_false(has_ended(w, "t"));
    OK(w, dur_runtime_run_until_idle(w->runtime, patience_ms(), &w->err));
    assert_true(has_ended(w, "t"));
    expect(w, "t", "a a");
}

static void a_budget_of_nothing_is_one_thing(void **state) {
    world *w = *state;
    STEPPED(w, .prefetch = 1);
    for (int i = 0; i < 20; i++) {
        char id[16];
        snprintf(id, sizeof(id), "t%d", i);
        start(w, "Twice", "a", id);
    }
    size_t steps = 0;
    for (; !has_ended(w, "t19"); steps++)
        OK(w, dur_runtime_step(w->runtime, 0, &w->err));
    assert_true(steps >= 3);
    start(w, "Twice", "b", "late");
    int code = dur_runtime_run_until_idle(w->runtime, 0, &w->err);
    assert_true(code == DUR_ETIMEOUT || code == DUR_OK);
    OK(w, dur_runtime_run_until_idle(w->runtime, patience_ms(), &w->err));
    expect(w, "late", "b b");
}

static void the_next_time_is_the_next_timer_or_sign_of_life(void **state) {
    world *w = *state;
    STEPPED(w, .owner_timeout_ms = 60000);
    start(w, "Sleeps", "", "s");
    OK(w, dur_runtime_run_until_idle(w->runtime, patience_ms(), &w->err));
    assert_true(dur_runtime_next_ms(w->runtime) <= DUR_HOURS(1));
    start(w, "Twice", "a", "t");
    struct pollfd fd = { .fd = dur_runtime_fd(w->runtime), .events = POLLIN };
    assert_true(fd.fd >= 0);
    until_ended(w, "t");
    OK(w, dur_client_terminate(w->client, "s", "enough", &w->err));
}

/* ---- what wakes the host ---- */

static void *raises(void *data) {
    world *w = data;
    dur_error err = DUR_ERROR_INIT;
    pause_ms(0);
    (void)dur_client_pulse(w->client, &err, "e", "Go", "went");
    return NULL;
}

static void another_thread_is_seen_on_the_descriptor(void **state) {
    world *w = *state;
    pthread_t thread;
    STEPPED(w, .owner_timeout_ms = 600000);
    start(w, "Waits", "", "e");
    until_history(w, "e", "\"ExternalSubscribed\"", 1);
    OK(w, dur_runtime_run_until_idle(w->runtime, patience_ms(), &w->err));
    dur_runtime *runtime = stepped_runtime;
    stepped_runtime = NULL; /* not that thread's to step */
    assert_int_equal(pthread_create(&thread, NULL, raises, w), 0);
    while (!has_ended(w, "e")) {
        struct pollfd fd = { .fd = dur_runtime_fd(runtime), .events = POLLIN };
        uint64_t next = dur_runtime_next_ms(runtime);
        (void)poll(&fd, 1, (int)next);
        OK(w, dur_runtime_step(runtime, 5, &w->err));
    }
    pthread_join(thread, NULL);
    expect(w, "e", "went");
}

/* ---- clients on the same thread ---- */

static void a_client_that_waits_does_the_steps(void **state) {
    world *w = *state;
    STEPPED(w, .worker_concurrency = 4);
    start(w, "Twice", "a", "t");
    expect(w, "t", "a a");
    dur_instance_info *info = NULL;
    start(w, "Twice", "b", "u");
    OK(w, dur_client_wait(&info, w->client, "u", patience_ms(), &w->err));
    assert_string_equal(info->output, "b b");
    dur_instance_info_free(info);
    start(w, "Calls", "Asks", "nested");
    expect(w, "nested", "x x");
}

/* ---- activities that the host takes ---- */

static void *ends_it(void *act) {
    dur_act_end(act, dur_act_completef(act, "%s done", dur_act_input(act)));
    return NULL;
}

static dur_act *take(world *w, const char *name) {
    for (dur_act *act = NULL;;) {
        OK(w, dur_runtime_step(w->runtime, 5, &w->err));
        OK(w, dur_runtime_take(&act, w->runtime, name, &w->err));
        if (act != NULL) return act;
    }
}

static void a_taken_activity_ends_on_any_thread(void **state) {
    world *w = *state;
    pthread_t thread;
    dur_act *act = NULL;
    STEPPED(w, .worker_concurrency = 2);
    OK(w, dur_runtime_take(&act, w->runtime, NULL, &w->err));
    assert_null(act);
    start(w, "Calls", "Host", "h");
    act = take(w, "Host");
    assert_string_equal(dur_act_instance_id(act), "h");
    assert_string_equal(dur_act_name(act), "Host");
    dur_act *other = NULL;
    OK(w, dur_runtime_take(&other, w->runtime, NULL, &w->err));
    assert_null(other);
    assert_int_equal(pthread_create(&thread, NULL, ends_it, act), 0);
    expect(w, "h", "x done");
    pthread_join(thread, NULL);
    start(w, "Calls", "Host", "f");
    act = take(w, NULL);
    dur_act_end(act, dur_act_fail(act, "no such luck"));
    expect_failure(w, "f", DUR_EFAILED, "no such luck");
    dur_act_end(NULL, dur_act_complete(NULL, ""));
}

/* One thing at a time: it takes one, or ends what it has. */
typedef struct own_host {
    world *w;
    dur_act *act;
} own_host;

static uint64_t host_goes_on(void *data) {
    own_host *host = data;
    if (host->act != NULL) {
        ends_it(host->act);
        host->act = NULL;
        return 0;
    }
    OK(host->w, dur_runtime_take(&host->act, host->w->runtime, NULL, &host->w->err));
    return host->act != NULL ? 0 : UINT64_MAX;
}

static void a_host_that_waits_ends_what_it_has_taken(void **state) {
    world *w = *state;
    own_host host = { w, NULL };
    STEPPED(w, .worker_concurrency = 2);
    OK(w, dur_runtime_host(w->runtime, host_goes_on, &host, &w->err));
    start(w, "Calls", "Host", "h");
    expect(w, "h", "x done");
    OK(w, dur_runtime_host(w->runtime, NULL, NULL, &w->err)); /* its data goes with this function */
    assert_int_equal(dur_runtime_host(NULL, host_goes_on, &host, &w->err), DUR_EINVAL);
}

static void a_cancelled_taken_activity_is_told(void **state) {
    world *w = *state;
    STEPPED(w, .worker_concurrency = 2);
    start(w, "Calls", "Host", "c");
    dur_act *act = take(w, "Host");
    assert_false(dur_act_cancelled(act));
    OK(w, dur_client_cancel(w->client, "c", "enough", &w->err));
    expect_failure(w, "c", DUR_ECANCELLED, "enough");
    while (!dur_act_cancelled(act))
        OK(w, dur_runtime_step(w->runtime, 5, &w->err));
    dur_act_end(act, dur_act_fail(act, "too late"));
}

static void what_was_not_taken_runs_elsewhere_after_a_stop(void **state) {
    world *w = *state;
    STEPPED(w, .worker_concurrency = 2);
    start(w, "Calls", "Host", "a");
    until_history(w, "a", "ActivityScheduled", 1);
    world_stop(w);
    STEPPED(w, .worker_concurrency = 2);
    dur_act *act = take(w, NULL);
    assert_int_equal(dur_act_delivery(act), 1); /* it had not begun */
    dur_act_end(act, dur_act_complete(act, "later"));
    expect(w, "a", "later");
}

static void a_taken_activity_that_does_not_end_is_named_by_stop(void **state) {
    world *w = *state;
    STEPPED(w, .worker_concurrency = 2);
    start(w, "Calls", "Host", "a");
    dur_act *act = take(w, NULL);
    stepped_runtime = NULL;
    assert_int_equal(dur_runtime_stop(w->runtime, 10, &w->err), DUR_EBUSY);
    w->runtime = NULL;
    assert_non_null(strstr(w->err.message, "Host (a)"));
    dur_act_end(act, dur_act_complete(act, "to nobody"));
    STEPPED(w, .worker_concurrency = 2);
    act = take(w, NULL);
    dur_act_end(act, dur_act_complete(act, "again"));
    expect(w, "a", "again");
}

/* ---- long ones ---- */

static void an_activity_longer_than_the_timeout_runs_once(void **state) {
    world *w = *state;
    atomic_store(&runs, 0);
    second_world = w;
    STEPPED(w, .owner_timeout_ms = 1000);
    start(w, "Calls", "Slow", "long");
    expect(w, "long", "x");
    assert_int_equal(atomic_load(&runs), 1);
    OK(w, dur_runtime_stop(second_node, patience_ms(), &w->err));
}

/* ---- mistakes ---- */

static void *steps(void *data) {
    world *w = data;
    assert_int_equal(dur_runtime_step(w->runtime, 0, &w->err), DUR_ESTATE);
    assert_int_equal(dur_runtime_stop(w->runtime, 0, &w->err), DUR_ESTATE);
    assert_int_equal(dur_runtime_fd(w->runtime), -1);
    return NULL;
}

static void mistakes_are_told(void **state) {
    world *w = *state;
    pthread_t thread;
    dur_act *act;
    static const dur_handler both[] = {
        { .size = sizeof(dur_handler), .kind = DUR_HANDLER_ACTIVITY, .name = "A", .activity = echo, .taken = true },
        DUR_HANDLERS_END
    };
    assert_int_equal(dur_runtime_step(NULL, 0, &w->err), DUR_EINVAL);
    assert_int_equal(dur_runtime_run_until_idle(NULL, 0, &w->err), DUR_EINVAL);
    assert_int_equal(dur_runtime_fd(NULL), -1);
    assert_int_equal(dur_runtime_next_ms(NULL), DUR_HOURS(1));
    assert_true(dur_runtime_due_ms(NULL) == UINT64_MAX);
    assert_int_equal(dur_runtime_host(NULL, NULL, NULL, &w->err), DUR_EINVAL);
    assert_null(dur_act_input(NULL));
    assert_false(dur_act_beat(NULL));
    assert_int_equal(dur_runtime_take(&act, NULL, NULL, &w->err), DUR_EINVAL);
    assert_int_equal(dur_runtime_start(&w->runtime, DUR_RUNTIME(.store = w->store, .handlers = both), &w->err),
                     DUR_EINVAL);
    assert_int_equal(dur_runtime_start(&w->runtime, DUR_RUNTIME(.store = w->store, .handlers = handlers), &w->err),
                     DUR_EINVAL); /* one that the host takes, and threads */
    assert_non_null(strstr(w->err.message, "\"Host\""));
    assert_int_equal(dur_runtime_start(&w->runtime,
                                       DUR_RUNTIME(.store = w->store, .handlers = handlers, .threads = (dur_threads)7),
                                       &w->err),
                     DUR_EINVAL);
    STEPPED(w, .worker_concurrency = 2);
    the_runtime = w->runtime;
    assert_int_equal(pthread_create(&thread, NULL, steps, w), 0);
    pthread_join(thread, NULL);
    start(w, "StepsInside", "", "i");
    expect(w, "i", "DUR_EDEADLK");
    pid_t child = fork();
    if (child == 0) end_forked(dur_runtime_step(w->runtime, 0, NULL) == DUR_EFORKED);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(dur_runtime_check(w->runtime, &w->err), DUR_OK);
}

static const struct CMUnitTest tests[] = {
    TEST(nothing_happens_but_in_a_step),
    TEST(a_budget_of_nothing_is_one_thing),
    TEST(the_next_time_is_the_next_timer_or_sign_of_life),
    TEST(another_thread_is_seen_on_the_descriptor),
    TEST(a_client_that_waits_does_the_steps),
    TEST(a_taken_activity_ends_on_any_thread),
    TEST(a_host_that_waits_ends_what_it_has_taken),
    TEST(a_cancelled_taken_activity_is_told),
    TEST(what_was_not_taken_runs_elsewhere_after_a_stop),
    TEST(a_taken_activity_that_does_not_end_is_named_by_stop),
    TEST(an_activity_longer_than_the_timeout_runs_once),
    TEST(mistakes_are_told),
};

int main(void) {
    return cmocka_run_group_tests_name("e2e_step", tests, NULL, NULL);
}
