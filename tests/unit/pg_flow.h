/*
 * pg_flow.h: an orchestration with everything in it, for tests that disturb the server below running runtimes.
 */
#ifndef DURITE_TESTS_PG_FLOW_H
#define DURITE_TESTS_PG_FLOW_H

#include "pg_help.h"

#include <durite/durite.h>

enum { FLOW_STEPS = 3 };

static dur_outcome flow_step(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome flow_child(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Step", input)));
}

static dur_outcome flow(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < FLOW_STEPS; i++) {
        const char *expected = dur_format(ctx, "%s/%d", input, i);
        if (strcmp(dur_await(dur_activity(ctx, "Step", expected)), expected) != 0) return dur_fail(ctx, "step");
        dur_await(dur_timer(ctx, 60));
    }
    if (strcmp(dur_await(dur_orchestration(ctx, "Child", input)), input) != 0) return dur_fail(ctx, "child");
    return dur_complete(ctx, dur_await(dur_message(ctx, "q")));
}

static const dur_handler flow_handlers[] = {
    DUR_ACTIVITY("Step", flow_step),
    DUR_ORCHESTRATION("Child", "1.0.0", flow_child),
    DUR_ORCHESTRATION("Flow", "1.0.0", flow),
    DUR_HANDLERS_END,
};

/* What is not known to have happened is asked again. */
#define FLOW_PERSIST(err, call)                                                                                        \
    do {                                                                                                               \
        int flow_code_;                                                                                                \
        while ((flow_code_ = (call)) != DUR_OK) {                                                                      \
            if (!(err)->retryable) fail_msg("%s: %s: %s", #call, (err)->op, (err)->message);                           \
            pg_pause_ms(5);                                                                                            \
        }                                                                                                              \
    } while (0)

static inline void flow_start(dur_client *client, size_t from, size_t to) {
    dur_error err = DUR_ERROR_INIT;
    char id[32];
    for (size_t i = from; i < to; i++) {
        snprintf(id, sizeof(id), "f%zu", i);
        FLOW_PERSIST(&err,
                     dur_client_start(client, &err, "Flow", id, .instance = id, .exists = DUR_START_RETURN_EXISTING));
        FLOW_PERSIST(&err, dur_client_send(client, &err, id, "q", id, .message_id = "only"));
    }
}

/* All have ended well, each step is recorded once, and nothing is left over. */
static inline void flow_expect(dur_client *client, dur_provider *store, size_t from, size_t to) {
    dur_error err = DUR_ERROR_INIT;
    char id[32];
    for (size_t i = from; i < to; i++) {
        char *result = NULL, *history = NULL;
        size_t completed = 0;
        snprintf(id, sizeof(id), "f%zu", i);
        FLOW_PERSIST(&err, dur_client_result(&result, client, id, DUR_SECONDS(60), &err));
        assert_string_equal(result, id);
        dur_free(result);
        FLOW_PERSIST(&err, dur_client_history(&history, client, id, 0, &err));
        for (const char *at = history; (at = strstr(at, "\"ActivityCompleted\"")) != NULL; at++)
            completed++;
        assert_int_equal(completed, FLOW_STEPS);
        dur_free(history);
    }
    FLOW_PERSIST(&err, dur_provider_check(store, &err));
}

typedef struct flow_node {
    dur_provider *store;
    dur_runtime *runtime;
} flow_node;

static inline flow_node flow_node_start(const char *url, const dur_world *world) {
    flow_node node = { NULL, NULL };
    dur_error err = DUR_ERROR_INIT;
    FLOW_PERSIST(&err, dur_open_ex(&node.store, url, DUR_OPEN_OPTIONS(.world = world), &err));
    FLOW_PERSIST(&err,
                 dur_runtime_start(&node.runtime,
                                   DUR_RUNTIME(.store = node.store, .handlers = flow_handlers, .world = world), &err));
    return node;
}

/* It took nobody for dead. */
static inline void flow_node_end(flow_node *node) {
    dur_metrics metrics = { .size = sizeof(metrics) };
    dur_error err = DUR_ERROR_INIT;
    assert_int_equal(dur_runtime_metrics(&metrics, node->runtime, &err), DUR_OK);
    assert_int_equal(metrics.take_overs, 0);
    assert_int_equal(dur_runtime_stop(node->runtime, DUR_SECONDS(20), &err), DUR_OK);
    dur_provider_close(node->store);
}

/* Nor was it taken for dead, and its beats came in time: for where the server was there throughout. */
static inline void flow_node_stop(flow_node *node) {
    dur_metrics metrics = { .size = sizeof(metrics) };
    dur_error err = DUR_ERROR_INIT;
    assert_int_equal(dur_runtime_metrics(&metrics, node->runtime, &err), DUR_OK);
    assert_int_equal(metrics.fenced, 0);
    flow_node_end(node);
}

#endif
