/*
 * host.h: what the examples share, so that each can show its own idea: start, expect, compare.
 *
 * Every example takes a store URL (default: memory:) and exits with 0 when it saw what it promised.  Double-run mode is
 * on: each turn is also replayed from its history on a fresh stack, so a nondeterministic handler is found at once.
 */
#ifndef EXAMPLE_HOST_H
#define EXAMPLE_HOST_H

#include <durite/durite.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct example {
    dur_host *host;
    dur_client *client;
    dur_runtime *deployed; /* NULL: the host's own */
    dur_error err;
} example;

static inline void example_fail(const example *e, const char *what) {
    fprintf(stderr, "%s: %s: %s\n", what, e->err.op, e->err.message);
    exit(EXIT_FAILURE);
}

static inline void example_begin(example *e, int argc, char **argv, const dur_handler *handlers) {
    *e = (example){ .err = DUR_ERROR_INIT };
    if (dur_host_start_ex(&e->host, argc > 1 ? argv[1] : "memory:",
                          DUR_RUNTIME(.handlers = handlers, .double_run = true), &e->err) != DUR_OK)
        example_fail(e, "start");
    e->client = dur_host_client(e->host);
}

/* A deploy: what ran stops, and other handlers go on with the same store. */
static inline void example_deploy(example *e, const dur_handler *handlers) {
    if (dur_host_stop(e->host, DUR_SECONDS(5), &e->err) != DUR_OK) example_fail(e, "stop");
    if (dur_runtime_start(&e->deployed,
                          DUR_RUNTIME(.store = dur_host_store(e->host), .handlers = handlers, .double_run = true),
                          &e->err) != DUR_OK)
        example_fail(e, "deploy");
}

static inline void example_start(example *e, const char *name, const char *input, const char *instance) {
    if (dur_client_start(e->client, &e->err, name, input, .instance = instance, .exists = DUR_START_REPLACE_FINISHED) !=
        DUR_OK)
        example_fail(e, instance);
}

static inline void example_send(example *e, const char *instance, const char *name, const char *data) {
    if (dur_client_send(e->client, &e->err, instance, name, data) != DUR_OK) example_fail(e, name);
}

/* Wait for the result, print it, and insist on what it should be (NULL: anything). */
static inline void example_expect(example *e, const char *instance, const char *expected) {
    char *result = NULL;
    if (dur_client_result(&result, e->client, instance, DUR_SECONDS(30), &e->err) != DUR_OK) example_fail(e, instance);
    printf("%s: %s\n", instance, result);
    if (expected != NULL && strcmp(result, expected) != 0) {
        fprintf(stderr, "%s: expected \"%s\"\n", instance, expected);
        exit(EXIT_FAILURE);
    }
    dur_free(result);
}

/* The same for an orchestration that is meant to fail with this reason. */
static inline void example_expect_failure(example *e, const char *instance, const char *reason) {
    char *result = NULL;
    int code = dur_client_result(&result, e->client, instance, DUR_SECONDS(30), &e->err);
    if ((code != DUR_EFAILED && code != DUR_ECANCELLED) || strstr(e->err.message, reason) == NULL)
        example_fail(e, instance);
    printf("%s failed as it should: %s\n", instance, e->err.message);
}

/* Wait until the instance has set its custom status: it has come that far. */
static inline void example_await_status(example *e, const char *instance) {
    dur_instance_info *info = NULL;
    if (dur_client_wait_status(&info, e->client, instance, 0, DUR_SECONDS(30), &e->err) != DUR_OK)
        example_fail(e, instance);
    printf("%s: %s\n", instance, info->custom_status);
    dur_instance_info_free(info);
}

static inline int example_end(example *e) {
    dur_runtime_stop(e->deployed, DUR_SECONDS(5), NULL);
    dur_host_free(e->host);
    return EXIT_SUCCESS;
}

#endif
