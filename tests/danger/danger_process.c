/*
 * danger_process.c: what other processes and their ends may do to us: killed at every step of the writer, stopped
 * and continued, dead with a living child, leaving by exit(), crashing in a handler, sending and dying.
 *
 * Nodes are this program again (danger_node.h).  They need a store that several processes share: SQLite.
 */
#include "danger/danger_node.h"
#include "danger/knife_vfs.h"
#include "unit/workload.h"

static char ledger[160]; /* what activities did, one line each */

/* ---- handlers ---- */

static dur_outcome note(dur_act *act, const char *input) {
    char line[256];
    int size = snprintf(line, sizeof(line), "%s\n", dur_act_attempt_key(act));
    int fd = open(ledger, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    bool written = fd >= 0 && write(fd, line, (size_t)size) == size;
    if (fd >= 0) close(fd);
    return written ? dur_act_complete(act, input) : dur_act_fail(act, "ledger");
}

static dur_outcome leave(dur_act *act, const char *input) {
    if (getenv("DANGER_LEAVE") != NULL) exit(0);
    return dur_act_complete(act, input);
}

static dur_outcome crash_here(void) {
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
    abort();
}
static dur_outcome crash_activity(dur_act *act, const char *input) {
    (void)act;
    (void)input;
    return crash_here();
}
static dur_outcome crash(dur_ctx *ctx, const char *input) {
    (void)ctx;
    (void)input;
    return crash_here();
}

static dur_outcome steps(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "Note", input));
    dur_await(dur_activity(ctx, "Note", "a"));
    dur_await(dur_activity(ctx, "Note", "b"));
    dur_await(dur_timer(ctx, 1));
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Note", "last")));
}

static dur_outcome wait_event(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome nothing(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}
static dur_outcome busy(dur_ctx *ctx, const char *input) { /* commits without end */
    while (dur_history_events(ctx) < 2000)
        dur_await(dur_activity(ctx, "Nothing", input));
    return dur_continue_as_new(ctx, input);
}

static dur_outcome calls(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, input, "called")));
}

static dur_outcome echo_status(dur_ctx *ctx, const char *input) { /* answers each message in its status */
    (void)input;
    for (;;) {
        const char *message = dur_await(dur_message(ctx, "q"));
        if (strcmp(message, "end") == 0) return dur_complete(ctx, "ended");
        dur_status_set(ctx, message);
    }
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Note", note),
    DUR_ACTIVITY("Leave", leave),
    DUR_ACTIVITY("Nothing", nothing),
    DUR_ORCHESTRATION("Busy", "1.0.0", busy),
    DUR_ACTIVITY("CrashActivity", crash_activity),
    DUR_ORCHESTRATION("Crash", "1.0.0", crash),
    DUR_ORCHESTRATION("Steps", "1.0.0", steps),
    DUR_ORCHESTRATION("Wait", "1.0.0", wait_event),
    DUR_ORCHESTRATION("Calls", "1.0.0", calls),
    DUR_ORCHESTRATION("EchoStatus", "1.0.0", echo_status),
    DUR_HANDLERS_END,
};

/* ---- nodes ---- */

enum { OWNER_TIMEOUT_MS = 3000, ATTEMPTS = 3 };

static int sender_main(dur_provider *store) {
    dur_client *client = NULL;
    dur_error err = DUR_ERROR_INIT;
    if (dur_client_new(&client, store, &err) != DUR_OK) return 1;
    if (dur_client_send(client, &err, "r", "q", "from the dead") != DUR_OK) return 1;
    kill(getpid(), SIGKILL);
    return 1;
}

static void report_fence(dur_runtime *runtime, const char *dir) {
    dur_metrics metrics = { .size = sizeof(metrics) };
    while (dur_runtime_metrics(&metrics, runtime, NULL) == DUR_OK && metrics.fenced == 0)
        pause_ms(5);
    file_touch(dir, "fenced");
}

/* A child that lives on when the node is killed, until the test closes its end of the pipe. */
static void leave_child(int pipe_fd, const char *dir) {
    if (fork() == 0) {
        char byte;
        file_touch(dir, "child");
        while (read(pipe_fd, &byte, 1) > 0) {
        }
        _exit(0);
    }
}

static int node_main(const char *what, const char *url, long number) {
    char dir[128];
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    dur_error err = DUR_ERROR_INIT;
    folder_of(dir, url);
    snprintf(ledger, sizeof(ledger), "%s/ledger", dir);
    if (getenv("DURITE_TEST_LOG") != NULL) dur_log_set_sink(dur_log_text, stderr, DUR_LOG_INFO);
    if (strcmp(what, "killed") == 0) {
        knife_install();
        atomic_store(&knife.kill_at, number);
    }
    if (dur_open(&store, url, &err) != DUR_OK) return 1;
    if (strcmp(what, "sends") == 0) return sender_main(store);
    /* Silence tells of one that was stopped; of one that left a child only its lock may tell. */
    uint64_t timeout_ms = strcmp(what, "stopped") == 0 ? OWNER_TIMEOUT_MS : DUR_HOURS(1);
    if (dur_runtime_start(
            &runtime,
            DUR_RUNTIME(.store = store, .handlers = handlers, .max_attempts = ATTEMPTS, .owner_timeout_ms = timeout_ms),
            &err) != DUR_OK)
        return 1;
    if (strcmp(what, "forks") == 0) leave_child((int)number, dir);
    if (strcmp(what, "stopped") == 0) report_fence(runtime, dir);
    for (;;)
        pause();
}

static void park(world *w, const char *prefix, size_t count) {
    char id[32];
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "%s%zu", prefix, i);
        start(w, "Wait", "", id);
    }
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "%s%zu", prefix, i);
        until_history(w, id, "\"ExternalSubscribed\"", 1);
    }
}

static void finish(world *w, const char *prefix, size_t count) {
    char id[32];
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "%s%zu", prefix, i);
        OK(w, dur_client_pulse(w->client, &w->err, id, "Go", id));
    }
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "%s%zu", prefix, i);
        expect(w, id, id);
        assert_int_equal(history_count(w, id, 0, "\"ExternalEvent\""), 1);
        assert_int_equal(history_count(w, id, 0, "\"OrchestrationCompleted\""), 1);
    }
}

/* ---- killed between run and commit, at each change of the file ---- */

static char *history_of(world *w, const char *instance) {
    char *history = NULL;
    OK(w, dur_client_history(&history, w->client, instance, 0, &w->err));
    forget_times(history);
    return history;
}

/* Every step of the history is in the ledger, and nothing else: no work left before its commit. */
static void check_ledger(long n) {
    enum { STEPS = 4 };
    static const char *const keys[STEPS] = { "k/1/2", "k/1/4", "k/1/6", "k/1/10" };
    char line[256];
    unsigned seen = 0;
    FILE *file = fopen(ledger, "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        unsigned i = 0;
        line[strcspn(line, "\n")] = '\0';
        while (i < STEPS && strcmp(line, keys[i]) != 0)
            i++;
        if (i == STEPS) fail_msg("killed at %ld: \"%s\" in the ledger", n, line);
        seen |= 1u << i;
    }
    fclose(file);
    if (seen != (1u << STEPS) - 1) fail_msg("killed at %ld: steps missing from the ledger: %x", n, seen);
}

static void danger_killed_at_every_step_of_the_writer(void **state) {
    world *w = *state;
    snprintf(ledger, sizeof(ledger), "%s/ledger", w->dir);
    RUN(w, handlers, .worker_concurrency = 1);
    start(w, "Steps", "in", "k");
    expect(w, "k", "last");
    world_stop(w);
    char *wanted = history_of(w, "k");
    long killed = 0;
    /* About 40 changes of files: a commit is one write and one sync.  More than all of them there is not. */
    size_t kills = scaled(40, 10);
    long stride = kills < 40 ? (long)(40 / kills) : 1;
    for (long n = 1;; n += stride) {
        OK(w, dur_client_delete(NULL, w->client, "k", true, &w->err));
        unlink(ledger);
        start(w, "Steps", "in", "k");
        pid_t node = node_spawn("killed", w->url, n, -1);
        int status = 0;
        bool done = false, gone = false;
        while (!done && !(gone = node_gone(node, &status))) {
            dur_instance_info *info = NULL;
            OK(w, dur_client_info(&info, w->client, "k", &w->err));
            done = info->status == DUR_INSTANCE_COMPLETED;
            dur_instance_info_free(info);
            pause_ms(2);
        }
        if (gone && !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) fail_msg("node %ld: status %x", n, status);
        if (!gone) node_kill(node);
        RUN(w, handlers, .worker_concurrency = 1);
        expect(w, "k", "last");
        world_stop(w);
        check_ledger(n);
        char *got = history_of(w, "k");
        if (strcmp(got, wanted) != 0) fail_msg("killed at %ld:\nwanted %s\ngot %s", n, wanted, got);
        dur_free(got);
        killed += gone;
        if (done) break; /* it finished before that many changes */
    }
    dur_free(wanted);
    print_message("%ld kills\n", killed);
    assert_true(killed >= 5);
    OK(w, dur_provider_check(w->store, &w->err));
}

/* ---- stopped for longer than its owner lives ---- */

/* Not in the midst of a write, which it may still be at behind what could be seen: who holds SQLite's write lock then
   keeps it, and nobody can write until the process goes on. */
static void stop_between_writes(world *w, pid_t node) {
    for (int tries = 0;; tries++) {
        char id[24];
        snprintf(id, sizeof(id), "probe%d", tries);
        kill(node, SIGSTOP);
        int code = dur_client_start(w->client, &w->err, "Wait", "", .instance = id, .delay_ms = DUR_DAYS(1));
        if (code == DUR_OK) return;
        assert_int_equal(code, DUR_EBUSY);
        kill(node, SIGCONT);
        pause_ms(20);
    }
}

static void danger_stopped_and_continued_fences_itself(void **state) {
    world *w = *state;
    size_t count = scaled(100, 20);
    pid_t node = node_spawn("stopped", w->url, 0, -1);
    park(w, "p", count);
    park(w, "later", 5);
    stop_between_writes(w, node);
    RUN(w, handlers, .owner_timeout_ms = OWNER_TIMEOUT_MS);
    finish(w, "p", count);
    /* Counted by the thread that beats, which others may have overtaken: what it freed has ended already. */
    for (dur_metrics metrics = { .size = sizeof(metrics) }; metrics.take_overs == 0; pause_ms(1))
        OK(w, dur_runtime_metrics(&metrics, w->runtime, &w->err));
    kill(node, SIGCONT);
    while (!file_exists(w->dir, "fenced"))
        pause_ms(5);
    world_stop(w); /* the fenced one goes on under a new id */
    finish(w, "later", 5);
    for (size_t i = 0; i < count; i++) {
        char id[32];
        snprintf(id, sizeof(id), "p%zu", i);
        assert_int_equal(history_count(w, id, 0, "\"ExternalEvent\""), 1);
        assert_int_equal(history_count(w, id, 0, "\"OrchestrationCompleted\""), 1);
    }
    node_kill(node);
    OK(w, dur_provider_check(w->store, &w->err));
}

/* ---- messages from another process ---- */

static uint64_t now_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

static uint64_t answered(world *w, uint64_t version, const char *text) {
    dur_instance_info *info = NULL;
    OK(w, dur_client_wait_status(&info, w->client, "r", version, patience_ms(), &w->err));
    assert_string_equal(info->custom_status, text);
    version = info->custom_status_version;
    dur_instance_info_free(info);
    return version;
}

static int compare_times(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void danger_a_message_from_another_process_is_seen_at_once(void **state) {
    world *w = *state;
    enum { MOST = 2000 };
    size_t count = scaled(200, 20);
    if (count > MOST) count = MOST;
    static uint64_t took[MOST];
    uint64_t version = 0;
    pid_t node = node_spawn("run", w->url, 0, -1);
    start(w, "EchoStatus", "", "r");
    until_history(w, "r", "ExternalSubscribedPersistent", 1);
    for (size_t i = 0; i < count; i++) {
        char text[24];
        snprintf(text, sizeof(text), "m%zu", i);
        uint64_t begin = now_ms();
        OK(w, dur_client_send(w->client, &w->err, "r", "q", text));
        version = answered(w, version, text);
        took[i] = now_ms() - begin;
    }
    for (int i = 0; i < 5; i++) { /* and from a sender that is dead when it is seen */
        uint64_t begin = now_ms();
        int status = node_wait(node_spawn("sends", w->url, 0, -1));
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        version = answered(w, version, "from the dead");
        print_message("sender dead, answered %llu ms after its start\n", (unsigned long long)(now_ms() - begin));
    }
    qsort(took, count, sizeof(took[0]), compare_times);
    print_message("there and back: median %llu ms, worst %llu ms\n", (unsigned long long)took[count / 2],
                  (unsigned long long)took[count - 1]);
    if (times_are_judged()) assert_true(took[count / 2] < 50);
    OK(w, dur_client_send(w->client, &w->err, "r", "q", "end"));
    expect(w, "r", "ended");
    node_kill(node);
}

/* ---- the write lock beside a busy process ---- */

static void danger_a_quiet_process_gets_its_turn_beside_a_busy_one(void **state) {
    world *w = *state;
    enum { MOST = 2000 };
    size_t count = scaled(200, 20);
    if (count > MOST) count = MOST;
    static uint64_t took[MOST];
    char id[32];
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof(id), "busy%d", i);
        start(w, "Busy", "", id);
    }
    pid_t node = node_spawn("run", w->url, 0, -1);
    until_history(w, "busy19", "ActivityCompleted", 1);
    for (size_t i = 0; i < count; i++) { /* a write transaction each; its instance is far from due */
        snprintf(id, sizeof(id), "quiet%zu", i);
        uint64_t begin = now_us();
        OK(w, dur_client_start(w->client, &w->err, "Wait", "", .instance = id, .delay_ms = DUR_DAYS(1)));
        took[i] = now_us() - begin;
        pause_ms(2);
    }
    node_kill(node);
    qsort(took, count, sizeof(took[0]), compare_times);
    uint64_t p99 = took[count * 99 / 100];
    print_message("quiet beside busy: %zu writes, p50 %llu us, p99 %llu us, worst %llu us\n", count,
                  (unsigned long long)took[count / 2], (unsigned long long)p99, (unsigned long long)took[count - 1]);
    if (times_are_judged()) assert_true(p99 < 50000);
}

/* ---- ends of processes ---- */

static void danger_dead_owner_with_a_living_forked_child(void **state) {
    world *w = *state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t node = node_spawn("forks", w->url, ends[0], ends[0]);
    park(w, "p", 10);
    while (!file_exists(w->dir, "child"))
        pause_ms(2);
    RUN(w, handlers);
    node_kill(node);
    finish(w, "p", 10); /* by the lock: its silence would be noticed in an hour */
    close(ends[1]);
    close(ends[0]);
}

static void danger_exit_is_like_a_kill(void **state) {
    world *w = *state;
    setenv("DANGER_LEAVE", "1", 1);
    pid_t node = node_spawn("run", w->url, 0, -1);
    unsetenv("DANGER_LEAVE");
    park(w, "p", 10);
    start(w, "Calls", "Leave", "e");
    int status = node_wait(node); /* its activity called exit(0) */
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    RUN(w, handlers);
    expect(w, "e", "called");
    finish(w, "p", 10);
    OK(w, dur_provider_check(w->store, &w->err));
}

/* Restart it as a supervisor would, until it survives; how often it crashed. */
static int crashes_until(world *w, const char *instance) {
    int crashed = 0;
    for (;;) {
        pid_t node = node_spawn("run", w->url, 0, -1);
        int status = 0;
        for (;;) {
            dur_instance_info *info = NULL;
            OK(w, dur_client_info(&info, w->client, instance, &w->err));
            bool failed = info->status == DUR_INSTANCE_FAILED;
            dur_instance_info_free(info);
            if (failed) {
                node_kill(node);
                return crashed;
            }
            if (node_gone(node, &status)) break;
            pause_ms(2);
        }
        assert_true(WIFSIGNALED(status));
        if (++crashed > 20) fail_msg("%s crashes for ever", instance);
    }
}

static void danger_a_crashing_handler_is_poison_and_its_neighbours_are_not(void **state) {
    world *w = *state;
    pid_t node = node_spawn("run", w->url, 0, -1);
    park(w, "p", 20);
    start(w, "Crash", "", "c");
    assert_true(WIFSIGNALED(node_wait(node)));
    int crashed = crashes_until(w, "c") + 1;
    assert_int_equal(crashed, 2 + ATTEMPTS); /* twice in company, then alone */
    expect_failure(w, "c", DUR_EFAILED, "poison");
    RUN(w, handlers, .max_attempts = ATTEMPTS);
    finish(w, "p", 20);
}

static void danger_a_crashing_activity_is_poison_and_its_neighbours_are_not(void **state) {
    world *w = *state;
    snprintf(ledger, sizeof(ledger), "%s/ledger", w->dir);
    pid_t node = node_spawn("run", w->url, 0, -1);
    park(w, "p", 20);
    start(w, "Calls", "CrashActivity", "c");
    for (int i = 0; i < 5; i++) {
        char id[16];
        snprintf(id, sizeof(id), "s%d", i);
        start(w, "Steps", "", id);
    }
    assert_true(WIFSIGNALED(node_wait(node)));
    int crashed = crashes_until(w, "c") + 1;
    assert_true(crashed >= 2 + ATTEMPTS); /* a crash beside steps that had not ended counts when they have */
    expect_failure(w, "c", DUR_EFAILED, "poison");
    RUN(w, handlers, .max_attempts = ATTEMPTS);
    finish(w, "p", 20);
    for (int i = 0; i < 5; i++) {
        char id[16];
        snprintf(id, sizeof(id), "s%d", i);
        expect(w, id, "last");
    }
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "--node") == 0) return node_main(argv[2], argv[3], strtol(argv[4], NULL, 10));
    setenv("DURITE_TEST_URL", "sqlite:", 1);
    if (getenv("DURITE_TEST_FILTER") != NULL) cmocka_set_test_filter(getenv("DURITE_TEST_FILTER"));
    const struct CMUnitTest tests[] = {
        TEST(danger_killed_at_every_step_of_the_writer),
        TEST(danger_stopped_and_continued_fences_itself),
        TEST(danger_a_message_from_another_process_is_seen_at_once),
        TEST(danger_a_quiet_process_gets_its_turn_beside_a_busy_one),
        TEST(danger_dead_owner_with_a_living_forked_child),
        TEST(danger_exit_is_like_a_kill),
        TEST(danger_a_crashing_handler_is_poison_and_its_neighbours_are_not),
        TEST(danger_a_crashing_activity_is_poison_and_its_neighbours_are_not),
    };
    return cmocka_run_group_tests_name("danger_process", tests, NULL, NULL);
}
