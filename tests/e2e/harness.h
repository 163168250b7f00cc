/*
 * harness.h: a fresh store, a runtime and a client for every test, on the provider that DURITE_TEST_URL names.
 *
 * DURITE_TEST_URL: "memory:" (default), "sqlite:" (a file in a temporary folder), or a postgres:// URL (a schema of its
 * own per test).  Tests written with this file run unchanged on every provider.
 */
#ifndef TESTS_E2E_HARNESS_H
#define TESTS_E2E_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <durite/durite.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct world {
    char dir[100];
    char url[1024];
    dur_provider *store;
    dur_runtime *runtime;
    dur_client *client;
    dur_error err;
    bool broken; /* the test has broken its store, or left it as no user could: it is not checked at the end */
} world;

/* DURITE_TEST_THREADS=none: the world's runtime has no threads, and runs on the test's: in clients' waits, and in
   pauses.  A test whose activities wait for the test itself cannot run so, and says it (NEEDS_THREADS). */
static inline bool without_threads(void) {
    const char *threads = getenv("DURITE_TEST_THREADS");
    return threads != NULL && strcmp(threads, "none") == 0;
}
#define NEEDS_THREADS(why)                                                                                             \
    if (without_threads()) skip()

static _Thread_local dur_runtime *stepped_runtime; /* of the world that runs; the test's thread steps it */

static inline void pause_ms(long ms) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (stepped_runtime != NULL) {
        (void)dur_runtime_step(stepped_runtime, 1, NULL); /* called inside an activity, it does nothing */
        clock_gettime(CLOCK_MONOTONIC, &now);
        long passed = (long)(now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000;
        if (passed >= ms) return;
        uint64_t next = dur_runtime_next_ms(stepped_runtime), left = (uint64_t)(ms - passed);
        struct pollfd fd = { .fd = dur_runtime_fd(stepped_runtime), .events = POLLIN };
        (void)poll(&fd, 1, (int)(next < left ? next : left));
    }
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* Size of a loop: full, scaled down under sanitizers by DURITE_TEST_SCALE (percent), never below least. */
static inline size_t scaled(size_t full, size_t least) {
    const char *percent = getenv("DURITE_TEST_SCALE");
    size_t n = percent == NULL ? full : full * (size_t)strtoul(percent, NULL, 10) / 100;
    return n < least ? least : n;
}

/* How long anything may take, generously: a machine that is busy with something else is no fault.  Where a test is
   expected to fail DURITE_TEST_PATIENCE (seconds) says how long to wait for that. */
static inline uint64_t patience_ms(void) {
    const char *slower = getenv("DURITE_TEST_SLOWER"), *seconds = getenv("DURITE_TEST_PATIENCE");
    if (seconds != NULL) return DUR_SECONDS(strtoul(seconds, NULL, 10));
    unsigned long times = slower == NULL ? 1 : strtoul(slower, NULL, 10);
    return DUR_SECONDS(500) * (times > 0 ? times : 1);
}

/* Times are judged only where the machine is ours alone (make soak); elsewhere they are printed. */
static inline bool times_are_judged(void) {
    return getenv("DURITE_TEST_TIMES") != NULL;
}

/* End a forked child by exec: what only the parent's threads knew is no leak of the child's, whatever valgrind says. */
static inline void end_forked(bool good) {
    execl("/bin/sh", "sh", "-c", good ? "exit 0" : "exit 1", (char *)NULL);
    _exit(1);
}

#define OK(w, call)                                                                                                    \
    do {                                                                                                               \
        int ok_code_ = (call);                                                                                         \
        if (ok_code_ != DUR_OK)                                                                                        \
            fail_msg("%s: %s: %s: %s", #call, dur_code_name(ok_code_), (w)->err.op, (w)->err.message);                 \
    } while (0)

/* A path for what the test leaves behind, should it be killed: tools/run-tests removes the folder. */
static inline void temporary_path(char *out, size_t room, const char *name) {
    const char *folder = getenv("TMPDIR");
    snprintf(out, room, "%s/%s", folder != NULL ? folder : "/tmp", name);
}

static inline bool on_provider(const char *scheme) {
    const char *url = getenv("DURITE_TEST_URL");
    return strncmp(url == NULL ? "memory:" : url, scheme, strlen(scheme)) == 0;
}

static inline void world_open_store(world *w) {
    OK(w, dur_open(&w->store, w->url, &w->err));
}

/* For a test with thousands of commits that is not about the loss of power: without a sync for each. */
static inline void world_relax(world *w) {
    if (!on_provider("sqlite:")) return;
    dur_client_free(w->client);
    dur_provider_close(w->store);
    strncat(w->url, "?durability=relaxed", sizeof(w->url) - strlen(w->url) - 1);
    world_open_store(w);
    OK(w, dur_client_new(&w->client, w->store, &w->err));
}

static inline int world_setup(void **state) {
    static unsigned serial;
    const char *url = getenv("DURITE_TEST_URL");
    world *w = calloc(1, sizeof(*w));
    serial++;
    if (url == NULL || strncmp(url, "memory:", 7) == 0) {
        snprintf(w->url, sizeof(w->url), "memory:test-%d-%u", (int)getpid(), serial);
    } else if (strncmp(url, "sqlite:", 7) == 0) {
        temporary_path(w->dir, sizeof(w->dir), "durite-e2e-XXXXXX");
        if (mkdtemp(w->dir) == NULL) return -1;
        snprintf(w->url, sizeof(w->url), "sqlite:%s/test.db", w->dir);
    } else {
        const char *schema = getenv("DURITE_TEST_SCHEMA");
        snprintf(w->url, sizeof(w->url), "%s%cschema=%st_%d_%u", url, strchr(url, '?') != NULL ? '&' : '?',
                 schema != NULL ? schema : "", (int)getpid(), serial);
    }
    world_open_store(w);
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    *state = w;
    return 0;
}

static inline void world_run_with(world *w, dur_runtime_options *options) {
    options->store = w->store;
    if (without_threads()) options->threads = DUR_THREADS_NONE;
    OK(w, dur_runtime_start(&w->runtime, options, &w->err));
    if (without_threads()) stepped_runtime = w->runtime;
}
/* RUN(w, handlers, .worker_concurrency = 4) */
#define RUN(w, ...)                                                                                                    \
    world_run_with((w), &(dur_runtime_options){ .size = sizeof(dur_runtime_options), .handlers = __VA_ARGS__ })

/* Whatever a test was about: nothing is left that nobody would come back to. */
static inline int world_check(world *w, const char *when) {
    if (w->broken || w->store == NULL) return 0;
    int code = dur_provider_check(w->store, &w->err);
    if (code != DUR_ECORRUPT) return 0; /* a file that is gone, a server that is away: the test's own matter */
    print_error("%s: %s: %s\n", when, dur_code_name(code), w->err.message);
    return -1;
}

/* … and the runtime knows of all that is locked under its name. */
static inline int runtime_checked(world *w) {
    if (w->broken || w->runtime == NULL) return 0;
    int code = dur_runtime_check(w->runtime, &w->err);
    if (code != DUR_ECORRUPT) return 0; /* a handler that is stuck, a store that is away: the test's own matter */
    print_error("the runtime before its end: %s: %s\n", dur_code_name(code), w->err.message);
    return -1;
}

static inline void world_stop(world *w) {
    if (w->runtime == NULL) return;
    assert_int_equal(runtime_checked(w), 0);
    stepped_runtime = NULL;
    OK(w, dur_runtime_stop(w->runtime, patience_ms(), &w->err));
    w->runtime = NULL;
}

static inline int world_teardown(void **state) {
    world *w = *state;
    int wrong = world_check(w, "before the end");
    if (wrong == 0) wrong = runtime_checked(w);
    stepped_runtime = NULL;
    if (w->runtime != NULL) dur_runtime_stop(w->runtime, patience_ms(), NULL);
    if (wrong == 0) wrong = world_check(w, "at the end");
    dur_client_free(w->client);
    dur_provider_close(w->store);
    if (w->dir[0] != '\0') {
        char command[128];
        snprintf(command, sizeof(command), "rm -rf '%s'", w->dir);
        if (system(command) != 0) return -1;
    }
    free(w);
    return wrong;
}

static inline void start(world *w, const char *name, const char *input, const char *instance) {
    OK(w, dur_client_start(w->client, &w->err, name, input, .instance = instance));
}

/* Something that changes with every step of the instance; 0: it cannot be looked at. */
static inline uint64_t progress_of(world *w, const char *instance) {
    dur_instance_info *info = NULL;
    if (dur_client_info(&info, w->client, instance, NULL) != DUR_OK) return 0;
    uint64_t seen = info->updated_at_ms + info->execution_id;
    dur_instance_info_free(info);
    return seen;
}

/* Long work on a slow disk may take its time, as long as it goes on. */
static inline int result_of(world *w, const char *instance, char **result) {
    for (uint64_t before, after = progress_of(w, instance);;) {
        before = after;
        int code = dur_client_result(result, w->client, instance, patience_ms(), &w->err);
        if (code != DUR_ETIMEOUT) return code;
        after = progress_of(w, instance);
        if (after == before) return code;
    }
}

/* The result must be this. */
static inline void expect(world *w, const char *instance, const char *expected) {
    char *result = NULL;
    OK(w, result_of(w, instance, &result));
    assert_string_equal(result, expected);
    dur_free(result);
}

/* It must fail with this code and a reason that contains the text. */
static inline void expect_failure(world *w, const char *instance, int code, const char *text) {
    char *result = NULL;
    int got = result_of(w, instance, &result);
    dur_free(result);
    if (got != code) fail_msg("%s: %s: %s", instance, dur_code_name(got), w->err.message);
    if (strstr(w->err.message, text) == NULL) fail_msg("%s: \"%s\" lacks \"%s\"", instance, w->err.message, text);
}

static inline size_t occurrences(const char *where, const char *text) {
    size_t found = 0;
    for (const char *at = where; at != NULL && (at = strstr(at, text)) != NULL; at += strlen(text))
        found++;
    return found;
}

/* Wait until the newest execution's history holds the text `times` times. */
static inline void until_history(world *w, const char *instance, const char *text, size_t times) {
    uint64_t waited_ms = 0;
    for (size_t found = 0; found < times; waited_ms++) {
        if (waited_ms > patience_ms()) fail_msg("%s: no %zu times %s", instance, times, text);
        char *history = NULL;
        if (dur_client_history(&history, w->client, instance, 0, NULL) == DUR_OK) found = occurrences(history, text);
        dur_free(history);
        if (found < times) pause_ms(1);
    }
}

static inline size_t history_count(world *w, const char *instance, uint64_t execution, const char *text) {
    char *history = NULL;
    OK(w, dur_client_history(&history, w->client, instance, execution, &w->err));
    size_t found = occurrences(history, text);
    dur_free(history);
    return found;
}

/* DURITE_TEST_ONLY: a pattern; the other tests of the program do not run. */
__attribute__((constructor)) static void choose_tests(void) {
    const char *only = getenv("DURITE_TEST_ONLY");
    if (only != NULL) cmocka_set_test_filter(only);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

#endif
