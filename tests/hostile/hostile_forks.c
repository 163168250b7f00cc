/*
 * hostile_forks.c: activities that fork, and children that go on with what is their parent's.
 */
#include "sqlite_file.h"

#include <pthread.h>
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

/* ---- a SQLite file that was open at the fork ---- */

/* In a child: what it found is its exit code. */
static void in_child(int (*look)(world *w), world *w) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(look(w));
    }
    int status = node_wait(child);
    if (status != 0) fail_msg("the child has ended with %x", (unsigned)status);
}

static bool refused(const char *url) {
    dur_provider *store = NULL;
    dur_error err = DUR_ERROR_INIT;
    int code = dur_open(&store, url, &err);
    bool says = strstr(err.message, "at the fork") != NULL && strstr(err.message, "exec") != NULL;
    dur_provider_close(store);
    return code == DUR_EFORKED && says;
}

static bool works(const char *url, const char *id) {
    dur_provider *store = NULL;
    dur_client *client = NULL;
    bool fine = dur_open(&store, url, NULL) == DUR_OK && dur_client_new(&client, store, NULL) == DUR_OK &&
                dur_client_start(client, NULL, "Charges", "", .instance = id) == DUR_OK;
    dur_client_free(client);
    dur_provider_close(store);
    return fine;
}

static char beside[1200]; /* another file … */
static char linked[1200]; /* … and another name of the first */

static int look_while_open(world *w) {
    char copy[1200];
    dur_error err = DUR_ERROR_INIT;
    if (!refused(w->url) || !refused(linked)) return 1;
    int code = dur_client_start(w->client, &err, "Charges", "", .instance = "x");
    if (code != DUR_EFORKED || strstr(err.message, "before the fork") == NULL) return 2;
    dur_client_free(w->client);
    dur_provider_close(w->store); /* of the child's copy: SQLite does not forget for that */
    if (!refused(w->url) || !refused(linked)) return 3;
    if (!works(beside, "child")) return 4;
    dur_provider *other = NULL;
    snprintf(copy, sizeof(copy), "%s/copy.db", w->dir);
    if (dur_open(&other, beside, NULL) != DUR_OK || dur_provider_backup(other, copy, NULL) != DUR_OK) return 5;
    pid_t child = fork();
    if (child == 0) _exit(refused(w->url) && refused(beside) ? 0 : 1); /* the grandchild of one, the child of other */
    dur_provider_close(other);
    return node_wait(child) == 0 ? 0 : 6;
}

static void fault_h180_a_child_opens_no_file_that_its_parent_had_open(void **state) {
    world *w = *state;
    char path[200];
    if (!on_provider("sqlite")) skip();
    snprintf(beside, sizeof(beside), "sqlite:%s/beside.db", w->dir);
    snprintf(path, sizeof(path), "%s/linked.db", w->dir);
    snprintf(linked, sizeof(linked), "sqlite:%s", path);
    assert_int_equal(link(path_of(w), path), 0);
    in_child(look_while_open, w);
    start(w, "Charges", "", "parent"); /* the parent is not disturbed */
    assert_int_equal(unlink(path), 0);
}

static int look_when_closed(world *w) {
    return works(w->url, "child") ? 0 : 1;
}

static void fault_h180_what_was_closed_before_the_fork_a_child_opens(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    reopen(w, NULL);
    in_child(look_when_closed, w);
    OK(w, dur_open(&w->store, w->url, &w->err));
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    assert_true(is_known(w, "child"));
}

/* Threads that open and close files of their own, whatever moment the fork finds them in. */
static _Atomic bool over;

static void *opens_and_closes(void *data) {
    while (!atomic_load(&over)) {
        dur_provider *store = NULL;
        (void)dur_open(&store, data, NULL);
        dur_provider_close(store);
    }
    return NULL;
}

static int look_for_an_answer(world *w) {
    return refused(w->url) ? 0 : 1;
}

static void fault_h180_a_child_is_answered_whatever_its_parent_was_about(void **state) {
    world *w = *state;
    pthread_t threads[2];
    char urls[2][1200];
    if (!on_provider("sqlite")) skip();
    atomic_store(&over, false);
    for (int i = 0; i < 2; i++) {
        snprintf(urls[i], sizeof(urls[i]), "sqlite:%s/busy-%d.db", w->dir, i);
        assert_int_equal(pthread_create(&threads[i], NULL, opens_and_closes, urls[i]), 0);
    }
    for (size_t i = 0; i < scaled(100, 10); i++)
        in_child(look_for_an_answer, w);
    atomic_store(&over, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

/* An activity's child has no connection, neither a new one nor its parent's. */
static dur_outcome asks_in_a_child(dur_act *act, const char *input) {
    if (strcmp(input, "had") == 0 && dur_act_sqlite(act, NULL) == NULL) return dur_act_fail_final(act, "none here");
    pid_t child = fork();
    if (child == 0) {
        dur_error err = DUR_ERROR_INIT;
        _exit(dur_act_sqlite(act, &err) == NULL && err.code == DUR_EFORKED ? 0 : 1);
    }
    return node_wait(child) == 0 ? dur_act_complete(act, "refused") : dur_act_fail_final(act, "the child got one");
}

static dur_outcome asks(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "AsksInAChild", input)));
}

static const dur_handler asking[] = { DUR_ORCHESTRATION("Asks", NULL, asks),
                                      DUR_ACTIVITY("AsksInAChild", asks_in_a_child), DUR_HANDLERS_END };

static void fault_h180_a_child_has_no_connection_of_its_parents_activity(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    RUN(w, asking);
    start(w, "Asks", "none", "a");
    start(w, "Asks", "had", "b");
    expect(w, "a", "refused");
    expect(w, "b", "refused");
    world_stop(w);
}

static const struct CMUnitTest tests[] = {
    TEST(fault_h180_a_child_opens_no_file_that_its_parent_had_open),
    TEST(fault_h180_what_was_closed_before_the_fork_a_child_opens),
    TEST(fault_h180_a_child_is_answered_whatever_its_parent_was_about),
    TEST(fault_h180_a_child_has_no_connection_of_its_parents_activity),
    TEST(fault_h172_a_child_that_ends_an_activity_does_not_disturb_its_parent),
    TEST(fault_h173_a_child_that_sleeps_runs_nothing_of_its_parents),
    TEST(fault_h173_a_child_that_comes_back_to_a_step_does_nothing),
    TEST(fault_h173_a_child_that_comes_back_to_a_worker_does_nothing),
    TEST(fault_h173_a_child_that_comes_back_to_a_clients_call_is_told),
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
