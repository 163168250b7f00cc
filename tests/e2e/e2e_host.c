/*
 * e2e_host.c: the first ten minutes: a host, run and run again, names that are misspelt, signals, lines on standard
 * error.
 */
#include "harness.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

static atomic_int greetings, holding;
static atomic_bool let_go;

static dur_outcome greet(dur_act *act, const char *name) {
    atomic_fetch_add(&greetings, 1);
    return dur_act_completef(act, "Hello, %s!", name);
}

static dur_outcome hold(dur_act *act, const char *input) {
    atomic_fetch_add(&holding, 1);
    while (!atomic_load(&let_go) && !dur_act_cancelled(act))
        (void)dur_act_sleep(act, 1);
    return dur_act_complete(act, input);
}

static dur_outcome hello(dur_ctx *ctx, const char *name) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Greet", name)));
}

static dur_outcome held(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Hold", input)));
}

static dur_outcome failing(dur_ctx *ctx, const char *input) {
    return dur_fail(ctx, input);
}

static dur_outcome mistaken(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Gret", input)));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Greet", greet),
    DUR_ACTIVITY("Hold", hold),
    DUR_ORCHESTRATION("Hello", "1.0.0", hello),
    DUR_ORCHESTRATION("Held", "1.0.0", held),
    DUR_ORCHESTRATION("Failing", "1.0.0", failing),
    DUR_ORCHESTRATION("Mistaken", "1.0.0", mistaken),
    DUR_HANDLERS_END,
};

/* Beside the world's store, which keeps what a memory store has. */
static dur_host *host_start(world *w) {
    dur_host *host = NULL;
    OK(w, dur_host_start(&host, w->url, handlers, &w->err));
    assert_non_null(dur_host_store(host));
    assert_non_null(dur_host_runtime(host));
    assert_non_null(dur_host_client(host));
    return host;
}

static void run_is(world *w, dur_host *host, const char *instance, const char *expected) {
    char *text = NULL;
    OK(w, dur_client_run(&text, dur_host_client(host), &w->err, "Hello", "world", .instance = instance));
    assert_string_equal(text, expected);
    dur_free(text);
}

/* ---- run ---- */

static void a_program_that_runs_again_gets_the_recorded_answer(void **state) {
    world *w = *state;
    atomic_store(&greetings, 0);
    for (int program = 0; program < 3; program++) {
        dur_host *host = host_start(w);
        run_is(w, host, "hello-1", "Hello, world!");
        run_is(w, host, "hello-1", "Hello, world!");
        dur_host_free(host);
    }
    assert_int_equal(atomic_load(&greetings), 1);
}

static void run_without_an_id_runs_each_time(void **state) {
    world *w = *state;
    atomic_store(&greetings, 0);
    dur_host *host = host_start(w);
    run_is(w, host, NULL, "Hello, world!");
    run_is(w, host, NULL, "Hello, world!");
    dur_host_free(host);
    assert_int_equal(atomic_load(&greetings), 2);
}

static void run_tells_failures_and_mistakes(void **state) {
    world *w = *state;
    char *text = NULL;
    dur_host *host = host_start(w);
    dur_client *client = dur_host_client(host);
    assert_int_equal(dur_client_run(&text, client, &w->err, "Failing", "no", .instance = "f"), DUR_EFAILED);
    assert_string_equal(w->err.message, "no");
    assert_int_equal(dur_client_run(&text, client, &w->err, "Hello", "", .instance = "f"), DUR_EEXISTS);
    assert_string_equal(w->err.message, "instance \"f\" is a run of \"Failing\", not of \"Hello\"");
    assert_int_equal(dur_client_run(&text, client, &w->err, ""), DUR_EINVAL);
    assert_int_equal(dur_client_run(NULL, client, &w->err, "Hello"), DUR_EINVAL);
    assert_int_equal(dur_client_run(&text, NULL, &w->err, "Hello"), DUR_EINVAL);
    assert_int_equal(dur_client_run_ex(&text, client, NULL, &w->err), DUR_EINVAL);
    assert_null(text);
    dur_host_free(host);
}

static void run_attaches_to_what_runs(void **state) {
    world *w = *state;
    NEEDS_THREADS("an activity waits for the test");
    char *text = NULL;
    atomic_store(&let_go, false);
    dur_host *host = host_start(w);
    start(w, "Held", "slow", "h");
    assert_int_equal(
        dur_client_run(&text, dur_host_client(host), &w->err, "Held", "other", .instance = "h", .timeout_ms = 20),
        DUR_ETIMEOUT);
    atomic_store(&let_go, true);
    OK(w, dur_client_run(&text, dur_host_client(host), &w->err, "Held", "other", .instance = "h"));
    assert_string_equal(text, "slow"); /* the input that it was started with */
    dur_free(text);
    dur_host_free(host);
}

/* ---- names ---- */

static void says(world *w, const char *instance, const char *what) {
    char *text = NULL;
    dur_instance_info *info = NULL;
    assert_int_equal(dur_client_result(&text, w->client, instance, 300, &w->err), DUR_ETIMEOUT);
    if (strstr(w->err.message, what) == NULL) fail_msg("\"%s\" is not in: %s", what, w->err.message);
    assert_int_equal(dur_client_wait(&info, w->client, instance, 300, &w->err), DUR_ETIMEOUT);
    if (strstr(w->err.message, what) == NULL) fail_msg("\"%s\" is not in: %s", what, w->err.message);
}

static void a_name_that_nobody_has_is_said_to_whoever_waits(void **state) {
    world *w = *state;
    start(w, "Hello", "", "early");
    says(w, "early", "no running node has the handler \"Hello\"");
    RUN(w, handlers);
    expect(w, "early", "Hello, !");
    start(w, "Hallo", "", "misspelt");
    says(w, "misspelt", "no running node has the handler \"Hallo\"; did you mean \"Hello\"?");
    OK(w, dur_client_start(w->client, &w->err, "Hello", "", .instance = "newer", .version = "7.0.0"));
    says(w, "newer", "no running node has the handler \"Hello\" version 7.0.0");
    start(w, "Zebra", "", "strange");
    says(w, "strange", "no running node has the handler \"Zebra\"");
    assert_null(strstr(w->err.message, "did you mean"));
    start(w, "Mistaken", "", "activity");
    says(w, "activity", "no running node has the handler \"Gret\"; did you mean \"Greet\"?");
}

/* ---- signals ---- */

static atomic_int heard;

static void own_handler(int number) {
    (void)number;
    atomic_fetch_add(&heard, 1);
}

typedef struct runner {
    dur_host *host;
    dur_error err;
    int code;
    atomic_bool returned;
} runner;

static void *run_host(void *data) {
    runner *r = data;
    r->code = dur_host_run(r->host, &r->err);
    atomic_store(&r->returned, true);
    return NULL;
}

static bool is_installed(int number, void (*handler)(int)) {
    struct sigaction now;
    assert_int_equal(sigaction(number, NULL, &now), 0);
    return now.sa_handler == handler;
}

static void a_signal_drains_and_the_handlers_are_given_back(void **state) {
    world *w = *state;
    NEEDS_THREADS("an activity waits for the test");
    struct sigaction own = { .sa_handler = own_handler }, ignored = { .sa_handler = SIG_IGN }, before[2];
    sigaction(SIGTERM, &own, &before[0]);
    sigaction(SIGINT, &ignored, &before[1]);
    atomic_store(&let_go, false);
    atomic_store(&holding, 0);
    atomic_store(&heard, 0);
    runner r = { .host = host_start(w), .err = DUR_ERROR_INIT };
    start(w, "Held", "kept", "h");
    while (atomic_load(&holding) == 0)
        pause_ms(1);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_host, &r), 0);
    while (is_installed(SIGTERM, own_handler))
        pause_ms(1);
    assert_true(is_installed(SIGINT, SIG_IGN)); /* as it was */
    assert_int_equal(dur_host_run(r.host, &w->err), DUR_EBUSY);
    kill(getpid(), SIGTERM);
    while (!is_installed(SIGTERM, own_handler)) /* given back before it drains … */
        pause_ms(1);
    assert_false(atomic_load(&r.returned)); /* … and the activity is waited for */
    atomic_store(&let_go, true);
    pthread_join(thread, NULL);
    assert_int_equal(r.code, DUR_OK);
    assert_int_equal(atomic_load(&heard), 0);
    assert_null(dur_host_runtime(r.host));
    assert_int_equal(dur_host_run(r.host, &w->err), DUR_ESTATE);
    OK(w, dur_host_stop(r.host, 0, &w->err)); /* again: nothing */
    dur_host_free(r.host);
    sigaction(SIGTERM, &before[0], NULL);
    sigaction(SIGINT, &before[1], NULL);
    RUN(w, handlers); /* what had ended was recorded */
    expect(w, "h", "kept");
    assert_int_equal(atomic_load(&holding), 1);
}

/* ---- what is refused ---- */

static void a_host_that_cannot_start_leaves_nothing(void **state) {
    world *w = *state;
    dur_host *host = NULL;
    assert_int_equal(dur_host_start(&host, "nonsense:", handlers, &w->err), DUR_EINVAL);
    assert_null(host);
    assert_int_equal(dur_host_start(&host, w->url, NULL, &w->err), DUR_EINVAL);
    assert_null(host);
    assert_int_equal(dur_host_start(NULL, w->url, handlers, &w->err), DUR_EINVAL);
    assert_int_equal(dur_host_start_ex(&host, w->url, DUR_RUNTIME(.store = w->store, .handlers = handlers), &w->err),
                     DUR_EINVAL);
    assert_int_equal(dur_host_start_ex(&host, w->url, NULL, &w->err), DUR_EINVAL);
    assert_null(host);
    assert_int_equal(dur_host_run(NULL, &w->err), DUR_EINVAL);
    OK(w, dur_host_stop(NULL, 0, &w->err));
    assert_null(dur_host_store(NULL));
    assert_null(dur_host_runtime(NULL));
    assert_null(dur_host_client(NULL));
    dur_host_free(NULL);
}

/* ---- the environment ---- */

static size_t lines_in(const char *path, const char *what) {
    char line[8192];
    size_t count = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL)
        count += strstr(line, what) != NULL;
    fclose(file);
    return count;
}

/* The first test: what the environment says is taken once in a process, and not after the host's own choice. */
static void the_environment_turns_lines_on(void **state) {
    world *w = *state;
    char path[200];
    temporary_path(path, sizeof(path), "stderr");
    int file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600), kept = dup(STDERR_FILENO);
    assert_true(file >= 0 && kept >= 0 && dup2(file, STDERR_FILENO) == STDERR_FILENO);
    close(file);
    setenv("DURITE_LOG", "info", 1);
    RUN(w, handlers);
    start(w, "Failing", "because", "f");
    dur_instance_info *info = NULL;
    OK(w, dur_client_wait(&info, w->client, "f", patience_ms(), &w->err));
    dur_instance_info_free(info);
    world_stop(w);
    assert_int_equal(dur_log_set_sink(NULL, NULL, DUR_LOG_INFO), DUR_OK); /* the host's choice: silence */
    size_t before = lines_in(path, "");
    RUN(w, handlers);
    world_stop(w);
    dup2(kept, STDERR_FILENO);
    close(kept);
    unsetenv("DURITE_LOG");
    assert_true(before > 0);
    assert_true(lines_in(path, "instance_id=f") > 0);
    assert_int_equal(lines_in(path, ""), before);
    assert_int_equal(lines_in(path, " debug "), 0);
}

/* Nobody would step it: waiting for a signal is no service. */
static void a_host_without_threads_is_not_run(void **state) {
    world *w = *state;
    dur_host *host = NULL;
    dur_error err = DUR_ERROR_INIT;
    OK(w, dur_host_start_ex(&host, "memory:unstepped", DUR_RUNTIME(.handlers = handlers, .threads = DUR_THREADS_NONE),
                            &err));
    assert_int_equal(dur_host_run(host, &err), DUR_EINVAL);
    assert_non_null(strstr(err.message, "dur_runtime_step"));
    dur_host_free(host);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_environment_turns_lines_on),
        TEST(a_program_that_runs_again_gets_the_recorded_answer),
        TEST(run_without_an_id_runs_each_time),
        TEST(run_tells_failures_and_mistakes),
        TEST(run_attaches_to_what_runs),
        TEST(a_name_that_nobody_has_is_said_to_whoever_waits),
        TEST(a_signal_drains_and_the_handlers_are_given_back),
        TEST(a_host_that_cannot_start_leaves_nothing),
        TEST(a_host_without_threads_is_not_run),
    };
    return cmocka_run_group_tests_name("e2e_host", tests, NULL, NULL);
}
