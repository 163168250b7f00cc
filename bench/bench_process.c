/*
 * bench_process.c: workloads about processes that die and start.
 */
#include "bench.h"
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static atomic_bool holding; /* activities never return: in the process that will be killed */
static atomic_size_t held;
static _Atomic double first_at;

dur_outcome bench_hold(dur_act *act, const char *input) {
    (void)input;
    while (atomic_load(&holding))
        pause();
    if (atomic_fetch_add(&held, 1) == 0) atomic_store(&first_at, bench_now());
    return dur_act_complete(act, "");
}

/* ---- recover: a process with so many in flight is killed, and the next one goes on ---- */

/* The process that dies: every orchestration has committed its first turn and waits for an activity. */
static void doomed(bench *b, size_t count, int tell) {
    dur_metrics m = { .size = sizeof(m) };
    atomic_store(&holding, true);
    bench_reopen(b, &bench_defaults);
    for (size_t i = 0; i < count; i++) {
        char id[64];
        bench_id(b, id, "r", i);
        bench_start(b, "Held", "", id);
    }
    do {
        bench_sleep(0.002);
        dur_runtime_metrics(&m, b->runtime, NULL);
    } while (m.parked < count);
    if (write(tell, "x", 1) != 1) _exit(EXIT_FAILURE);
    for (;;)
        pause();
}

static pid_t start_doomed(bench *b, size_t count) {
    int tell[2];
    char byte;
    if (pipe2(tell, O_CLOEXEC) != 0) exit(EXIT_FAILURE);
    fflush(NULL);
    pid_t child = fork(); /* no thread and no store is open here: bench_close was called */
    if (child == 0) {
        close(tell[0]);
        doomed(b, count, tell[1]);
    }
    close(tell[1]);
    if (child < 0 || read(tell[0], &byte, 1) != 1) {
        fputs("durite-bench: recover: the first process has ended too early\n", stderr);
        exit(EXIT_FAILURE);
    }
    close(tell[0]);
    return child;
}

void bench_recover(bench *b) {
    size_t count = b->quick ? 20 : 1000;
    char params[48];
    dur_error err = DUR_ERROR_INIT;
    if (strncmp(b->url, "memory:", 7) == 0) return; /* it dies with its process */
    bench_url(b);
    pid_t child = start_doomed(b, count);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    atomic_store(&held, 0);
    double begin = bench_now();
    bench_reopen(b, &bench_defaults);
    for (size_t i = 0; i < count; i++) {
        char id[64], *result = NULL;
        bench_id(b, id, "r", i);
        bench_check(dur_client_result(&result, b->client, id, DUR_SECONDS(120), &err), &err, id);
        dur_free(result);
    }
    double all = bench_now();
    snprintf(params, sizeof(params), "{\"in_flight\":%zu}", count);
    bench_result *r = bench_result_add(b, "recover", params);
    bench_metric(r, "first_ms", (atomic_load(&first_at) - begin) * 1e3);
    bench_metric(r, "recover_ms", (all - begin) * 1e3); /* all have gone on, to their ends */
    bench_close(b);
}

/* ---- nodes: several processes on one store, each with its own clients ---- */

int bench_node_child(const char *url, const char *seconds) {
    static bench b;
    b.url = b.known_url = url;
    b.seconds = strtod(seconds, NULL);
    bench_reopen(&b, &bench_defaults);
    double steps = bench_drive(&b, 20, (uint64_t)getpid() << 32);
    dur_client_free(b.client);
    dur_runtime_stop(b.runtime, DUR_SECONDS(10), NULL);
    dur_provider_close(b.store);
    printf("%.0f\n", steps);
    return EXIT_SUCCESS;
}

static pid_t spawn_node(const char *url, double seconds, int *from) {
    int tell[2];
    char text[32], *argv[] = { "durite-bench", "--node-child", (char *)(uintptr_t)url, text, NULL };
    posix_spawn_file_actions_t actions;
    pid_t child;
    snprintf(text, sizeof(text), "%g", seconds);
    if (pipe2(tell, O_CLOEXEC) != 0) exit(EXIT_FAILURE);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, tell[1], STDOUT_FILENO);
    if (posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ) != 0) exit(EXIT_FAILURE);
    posix_spawn_file_actions_destroy(&actions);
    close(tell[1]);
    *from = tell[0];
    return child;
}

static void nodes_with(bench *b, unsigned count) {
    pid_t children[4];
    int from[4];
    char params[48];
    double steps = 0;
    bench_open(b, NULL); /* the tables are there before the first comes */
    bench_server server = bench_server_count(b);
    for (unsigned i = 0; i < count; i++)
        children[i] = spawn_node(b->store_url, b->seconds, &from[i]);
    for (unsigned i = 0; i < count; i++) {
        char text[64] = "";
        int status = 0;
        bool told = read(from[i], text, sizeof(text) - 1) > 0;
        close(from[i]);
        waitpid(children[i], &status, 0);
        if (!told || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
            fputs("durite-bench: nodes: a process has not completed its orchestrations\n", stderr);
            exit(EXIT_FAILURE);
        }
        steps += strtod(text, NULL);
    }
    snprintf(params, sizeof(params), "{\"nodes\":%u}", count);
    bench_result *r = bench_result_add(b, "nodes", params);
    bench_metric(r, "steps_per_s", steps / b->seconds);
    bench_close(b);
    bench_server_metrics(b, r, &server, steps);
}

void bench_nodes(bench *b) {
    if (strncmp(b->url, "postgres", 8) != 0) return;
    for (unsigned count = 1; count <= (b->quick ? 2 : 4); count *= 2)
        nodes_with(b, count);
}

/* ---- start: from nothing to the first result ---- */

int bench_first_child(const char *url) {
    static bench b;
    dur_error err = DUR_ERROR_INIT;
    char *result = NULL;
    b.url = b.known_url = url;
    bench_reopen(&b, &bench_defaults);
    bench_check(
        dur_client_start(b.client, &err, "Steps", "1", .exists = DUR_START_REPLACE_FINISHED, .instance = "first"), &err,
        "first");
    bench_check(dur_client_result(&result, b.client, "first", DUR_SECONDS(60), &err), &err, "first");
    dur_free(result);
    if (write(STDOUT_FILENO, "x", 1) != 1) return EXIT_FAILURE;
    dur_client_free(b.client);
    dur_runtime_stop(b.runtime, DUR_SECONDS(10), NULL);
    dur_provider_close(b.store);
    return EXIT_SUCCESS;
}

static double spawn_once(const char *url) {
    int tell[2], status = 0;
    char byte, *argv[] = { "durite-bench", "--first-child", (char *)(uintptr_t)url, NULL };
    posix_spawn_file_actions_t actions;
    pid_t child;
    if (pipe2(tell, O_CLOEXEC) != 0) exit(EXIT_FAILURE);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, tell[1], STDOUT_FILENO);
    double begin = bench_now();
    int failed = posix_spawn(&child, "/proc/self/exe", &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(tell[1]);
    bool told = failed == 0 && read(tell[0], &byte, 1) == 1;
    double ms = (bench_now() - begin) * 1e3;
    close(tell[0]);
    if (failed == 0) waitpid(child, &status, 0);
    if (told && WIFEXITED(status) && WEXITSTATUS(status) == 0) return ms;
    fputs("durite-bench: start: the process has not completed its orchestration\n", stderr);
    exit(EXIT_FAILURE);
}

void bench_first(bench *b) {
    if (strncmp(b->url, "memory:", 7) == 0) return; /* it dies with its process */
    enum { AGAIN = 5 };
    double again[AGAIN];
    bench_url(b);
    bench_result *r = bench_result_add(b, "start", "{}");
    bench_metric(r, "start_ms", spawn_once(b->store_url));
    for (size_t i = 0; i < AGAIN; i++)
        again[i] = spawn_once(b->store_url);
    bench_metric(r, "start_known_store_ms", bench_percentile(again, AGAIN, 50));
    bench_remove(b);
}
