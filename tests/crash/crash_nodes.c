/*
 * crash_nodes.c: four runtimes, each a process of its own, on one PostgreSQL database.
 *
 * One of them is killed with SIGKILL every second and started again, and server sessions are terminated at random.
 * Every start that was accepted must end with the right result, every execution's history must be without gap, and no
 * step may have two completions.  The seed is printed; DURITE_TEST_SEED repeats the choices.
 */
#include "e2e/harness.h"
#include <durite/postgres.h>
#include <durite/sys/store.h>
#include <libpq-fe.h>
#include <signal.h>
#include <sys/wait.h>

enum { NODES = 4, STEPS = 3 };

static dur_outcome step(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome child(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Step", input)));
}

static dur_outcome work(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < STEPS; i++) {
        char *expected = dur_format(ctx, "%s/%d", input, i);
        const char *got = dur_await(dur_activity(ctx, "Step", expected));
        if (strcmp(got, expected) != 0) return dur_failf(ctx, "step %d: %s", i, got);
    }
    dur_await(dur_timer(ctx, 20));
    if (strcmp(dur_await(dur_orchestration(ctx, "Child", input)), input) != 0) return dur_fail(ctx, "child");
    return dur_complete(ctx, dur_await(dur_dequeue(ctx, "q")));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Step", step),
    DUR_ORCHESTRATION("Child", "1.0.0", child),
    DUR_ORCHESTRATION("Work", "1.0.0", work),
    DUR_HANDLERS_END,
};

static int node_main(const char *url) {
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    dur_error err = DUR_ERROR_INIT;
    int code = DUR_OK;
    for (int i = 0; i < 100; i++) { /* its first sessions may be among those that are terminated */
        code = store == NULL ? dur_open(&store, url, &err) : DUR_OK;
        if (code == DUR_OK) code = dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = handlers), &err);
        if (code == DUR_OK || !err.retryable) break;
        pause_ms(20);
    }
    if (code != DUR_OK) {
        fprintf(stderr, "node: %s: %s\n", err.op, err.message);
        return 1;
    }
    for (;;)
        pause();
}

static pid_t node_spawn(const char *url) {
    pid_t pid = fork();
    if (pid == 0) {
        execl("/proc/self/exe", "crash_nodes", "--node", url, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void terminate_somebody(const char *url) {
    PGconn *db = PQconnectdb(url);
    PGresult *result = PQexec(db, "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity WHERE "
                                  "application_name = 'durite_crash_nodes' ORDER BY random() LIMIT 2) t");
    PQclear(result);
    PQfinish(db);
}

typedef struct all {
    dur_provider *store;
    dur_client *client;
    const char *server;
    char url[1024];
    pid_t nodes[NODES];
    size_t count;
    unsigned seed;
} all;

/* The client's own sessions are among those that are terminated: what is not known to have happened is asked again. */
static bool again(int code, const dur_error *err) {
    if (code == DUR_OK) return false;
    if (!err->retryable && code != DUR_EUNKNOWN) fail_msg("%s: %s", err->op, err->message);
    pause_ms(5);
    return true;
}

static void start_all(all *a) {
    dur_error err = DUR_ERROR_INIT;
    char id[32];
    int code;
    for (size_t i = 0; i < a->count; i++) {
        snprintf(id, sizeof(id), "w%zu", i);
        do
            code = dur_client_start(a->client, &err, "Work", id, .instance = id, .exists = DUR_START_RETURN_EXISTING);
        while (again(code, &err));
        do
            code = dur_client_enqueue(a->client, &err, id, "q", id, .message_id = "only");
        while (again(code, &err));
    }
}

static size_t finished(all *a) {
    dur_system_metrics metrics = { 0 };
    dur_error err = DUR_ERROR_INIT;
    int code;
    do
        code = dur_store_get_system_metrics(a->store, &metrics, &err);
    while (again(code, &err));
    assert_int_equal(metrics.failed, 0);
    return metrics.completed;
}

static void check_history(all *a, const char *id) {
    dur_arena *arena = dur_arena_new();
    dur_event_row *rows;
    size_t count;
    dur_error err = DUR_ERROR_INIT;
    assert_int_equal(dur_store_read(a->store, arena, id, 0, &rows, &count, &err), DUR_OK);
    assert_true(count > 0);
    size_t completions = 0;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(rows[i].event_id, i + 1);
        if (strstr(rows[i].json.data, "ActivityCompleted") != NULL) completions++;
    }
    assert_int_equal(completions, STEPS);
    dur_arena_free(arena);
}

static void nodes_and_sessions_die(void **state) {
    all *a = *state;
    dur_error err = DUR_ERROR_INIT;
    char id[32];
    char *result;
    start_all(a);
    size_t rounds = 0;
    while (finished(a) < 2 * a->count) {
        if (++rounds > scaled(90, 60) * 10) fail_msg("%zu of %zu have ended", finished(a), 2 * a->count);
        pause_ms(100);
        if (rounds % 3 == 0) terminate_somebody(a->server);
        if (rounds % 10 != 0) continue;
        size_t victim = (size_t)rand_r(&a->seed) % NODES;
        kill(a->nodes[victim], SIGKILL);
        waitpid(a->nodes[victim], NULL, 0);
        a->nodes[victim] = node_spawn(a->url);
    }
    for (size_t i = 0; i < a->count; i++) {
        int code;
        snprintf(id, sizeof(id), "w%zu", i);
        do
            code = dur_client_result(&result, a->client, id, DUR_SECONDS(5), &err);
        while (again(code, &err));
        assert_string_equal(result, id);
        dur_free(result);
        check_history(a, id);
    }
    int code = dur_provider_check(a->store, &err);
    if (code != DUR_OK) fail_msg("%s", err.message);
}

int main(int argc, char **argv) {
    static all a;
    dur_postgres_register(NULL);
    if (argc == 3 && strcmp(argv[1], "--node") == 0) return node_main(argv[2]);
    a.server = getenv("DURITE_TEST_POSTGRES");
    if (a.server == NULL) {
        puts("1..1\nok 1 - nodes_and_sessions_die # SKIP no PostgreSQL server: DURITE_TEST_POSTGRES is not set");
        return 0;
    }
    const char *seed = getenv("DURITE_TEST_SEED");
    a.seed = seed != NULL ? (unsigned)strtoul(seed, NULL, 10) : (unsigned)time(NULL);
    fprintf(stderr, "seed %u\n", a.seed);
    a.count = scaled(150, 20);
    snprintf(a.url, sizeof(a.url), "%s&application_name=durite_crash_nodes&schema=crash_%d", a.server, (int)getpid());
    dur_error err = DUR_ERROR_INIT;
    if (dur_open(&a.store, a.url, &err) != DUR_OK || dur_client_new(&a.client, a.store, &err) != DUR_OK) {
        fprintf(stderr, "%s: %s\n", err.op, err.message);
        return 1;
    }
    for (int i = 0; i < NODES; i++)
        a.nodes[i] = node_spawn(a.url);
    const struct CMUnitTest tests[] = { cmocka_unit_test_prestate(nodes_and_sessions_die, &a) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < NODES; i++) {
        kill(a.nodes[i], SIGKILL);
        waitpid(a.nodes[i], NULL, 0);
    }
    dur_client_free(a.client);
    dur_provider_close(a.store);
    return failed;
}
