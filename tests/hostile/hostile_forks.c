/*
 * hostile_forks.c: activities that fork, and children that go on with what is their parent's.
 */
#include "hostile.h"

#include <sys/mman.h>

enum { SLEEPS, RETURNS };

/* Shared by parent and children: how often the activity "Work" has begun, in whatever process. */
static _Atomic int *begun;
static pid_t parent;

static void begin_counting(void) {
    if (begun == NULL) begun = mmap(NULL, sizeof(*begun), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(begun, MAP_FAILED);
    atomic_store(begun, 0);
    parent = getpid();
}

static dur_outcome work(dur_act *act, const char *input) {
    atomic_fetch_add(begun, 1);
    return dur_act_complete(act, input);
}

static dur_outcome forks(dur_act *act, const char *input) {
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) return dur_act_fail_final(act, "no child");
    if (child == 0 && atoi(input) == RETURNS) return dur_act_complete(act, "from the child");
    if (child == 0) {
        (void)dur_act_sleep(act, 300);
        (void)dur_act_beat(act);
        _exit(0);
    }
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0)
        return dur_act_fail_final(act, "the child has not ended well");
    return dur_act_complete(act, "from the parent");
}

static dur_outcome both(dur_ctx *ctx, const char *input) {
    dur_future *first = dur_activity(ctx, "Forks", input), *second = dur_activity(ctx, "Work", "");
    dur_join(first, second);
    return dur_complete(ctx, dur_await(first));
}

static dur_outcome charges(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Charge", input)));
}

static const dur_handler handlers[] = { DUR_ORCHESTRATION("Both", NULL, both),
                                        DUR_ORCHESTRATION("Charges", NULL, charges), DUR_ACTIVITY("Forks", forks),
                                        DUR_ACTIVITY("Work", work), DUR_HANDLERS_END };
static const dur_handler taken[] = { DUR_ORCHESTRATION("Charges", NULL, charges), DUR_ACTIVITY_TAKEN("Charge"),
                                     DUR_HANDLERS_END };

/* The parent's steps until the instance has ended; a child that comes back from one ends here. */
static void step_to_end(world *w, const char *instance) {
    dur_instance_info *info = NULL;
    for (bool ended = false; !ended;) {
        int code = dur_runtime_step(w->runtime, 10, &w->err);
        if (getpid() != parent) _exit(code == DUR_EFORKED ? 0 : 1);
        assert_int_equal(code, DUR_OK);
        OK(w, dur_client_info(&info, w->client, instance, &w->err));
        ended = info->status != DUR_INSTANCE_RUNNING;
        dur_instance_info_free(info);
    }
}

static void fault_h172_a_child_that_ends_an_activity_does_not_disturb_its_parent(void **state) {
    world *w = *state;
    OK(w, dur_runtime_start(&w->runtime, DUR_RUNTIME(.store = w->store, .handlers = taken, .threads = DUR_THREADS_NONE),
                            &w->err));
    begin_counting();
    for (int i = 0; i < 5; i++) {
        char id[32];
        dur_act *act = NULL;
        snprintf(id, sizeof(id), "i-%d", i);
        start(w, "Charges", "", id);
        while (act == NULL) {
            OK(w, dur_runtime_step(w->runtime, 10, &w->err));
            OK(w, dur_runtime_take(&act, w->runtime, NULL, &w->err));
        }
        OK(w, dur_runtime_run_until_idle(w->runtime, DUR_MINUTES(1), &w->err)); /* the node rests, as a bell is rung */
        pid_t child = fork();
        if (child == 0) {
            dur_act_end(act, dur_act_complete(act, "from the child"));
            _exit(0);
        }
        assert_int_equal(node_wait(child), 0);
        struct pollfd fd = { .fd = dur_runtime_fd(w->runtime), .events = POLLIN };
        (void)poll(&fd, 1, 20);
        OK(w, dur_runtime_step(w->runtime, 0, &w->err));
        dur_act_end(act, dur_act_complete(act, "from the parent"));
        step_to_end(w, id);
        expect(w, id, "from the parent");
    }
    world_stop(w);
}

static void nothing_runs_in_the_child(world *w, int what, dur_threads threads) {
    char input[8];
    begin_counting();
    snprintf(input, sizeof(input), "%d", what);
    OK(w,
       dur_runtime_start(
           &w->runtime,
           DUR_RUNTIME(.store = w->store, .handlers = handlers, .threads = threads, .worker_concurrency = 1), &w->err));
    start(w, "Both", input, "i");
    if (threads == DUR_THREADS_NONE) step_to_end(w, "i");
    expect(w, "i", "from the parent");
    assert_int_equal(atomic_load(begun), 1);
    world_stop(w);
}

static void fault_h173_a_child_that_sleeps_runs_nothing_of_its_parents(void **state) {
    nothing_runs_in_the_child(*state, SLEEPS, DUR_THREADS_NONE);
}

static void fault_h173_a_child_that_comes_back_to_a_step_does_nothing(void **state) {
    nothing_runs_in_the_child(*state, RETURNS, DUR_THREADS_NONE);
}

static void fault_h173_a_child_that_comes_back_to_a_worker_does_nothing(void **state) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* they look at a process that ends with its threads gone */
#endif
    nothing_runs_in_the_child(*state, RETURNS, DUR_THREADS_OWN);
}

/* The child learns at once that the call is not its own; the parent waits on. */
static void fault_h173_a_child_that_comes_back_to_a_clients_call_is_told(void **state) {
    world *w = *state;
    char *output = NULL;
    begin_counting();
    OK(w, dur_runtime_start(
              &w->runtime, DUR_RUNTIME(.store = w->store, .handlers = handlers, .threads = DUR_THREADS_NONE), &w->err));
    char input[8];
    snprintf(input, sizeof(input), "%d", RETURNS);
    int code =
        dur_client_run(&output, w->client, &w->err, "Both", input, .instance = "i", .timeout_ms = DUR_MINUTES(9));
    if (getpid() != parent) _exit(code == DUR_EFORKED ? 0 : 1);
    assert_int_equal(code, DUR_OK);
    assert_string_equal(output, "from the parent");
    dur_free(output);
    world_stop(w);
}

static const struct CMUnitTest tests[] = {
    TEST(fault_h172_a_child_that_ends_an_activity_does_not_disturb_its_parent),
    TEST(fault_h173_a_child_that_sleeps_runs_nothing_of_its_parents),
    TEST(fault_h173_a_child_that_comes_back_to_a_step_does_nothing),
    TEST(fault_h173_a_child_that_comes_back_to_a_worker_does_nothing),
    TEST(fault_h173_a_child_that_comes_back_to_a_clients_call_is_told),
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
