/*
 * chaos_node.c: a node: a runtime, until it is told to end.
 */
#include "chaos.h"
#include "chaos_flow.h"

#include <stdio.h>
#include <unistd.h>

dur_provider *open_somehow(const char *url) {
    dur_provider *store = NULL;
    dur_error err = DUR_ERROR_INIT;
    while (!is_told) {
        if (dur_open(&store, url, &err) == DUR_OK) return store;
        if (!err.retryable) {
            ledger_fault("opening is refused for good: %s: %s: %s", dur_code_name(err.code), err.op, err.message);
            return NULL;
        }
        pause_ms(50);
    }
    return NULL;
}

static dur_runtime *start_somehow(dur_provider *store, const char *name, uint64_t owner_timeout_ms) {
    dur_runtime *runtime = NULL;
    dur_error err = DUR_ERROR_INIT;
    while (!is_told) {
        if (dur_runtime_start(&runtime,
                              DUR_RUNTIME(.store = store, .handlers = chaos_handlers, .name = name,
                                          .worker_concurrency = 4, .owner_timeout_ms = owner_timeout_ms),
                              &err) == DUR_OK)
            return runtime;
        if (!err.retryable) {
            ledger_fault("a runtime cannot start for good: %s: %s: %s", dur_code_name(err.code), err.op, err.message);
            return NULL;
        }
        pause_ms(50);
    }
    return NULL;
}

/* Told to end: the server is in order then, so whatever is locked here must be known here. */
int node_main(const char *url, const char *name, uint64_t owner_timeout_ms) {
    dur_error err = DUR_ERROR_INIT;
    listen_to_sigterm();
    (void)dur_log_set_sink(dur_log_text, stderr, DUR_LOG_INFO);
    dur_provider *store = open_somehow(url);
    dur_runtime *runtime = store != NULL ? start_somehow(store, name, owner_timeout_ms) : NULL;
    if (runtime == NULL) return is_told ? 0 : 1;
    while (!is_told)
        pause_ms(20);
    int code = dur_runtime_check(runtime, &err);
    if (code == DUR_ECORRUPT) ledger_fault("node %s: %s", name, err.message);
    if (dur_runtime_stop(runtime, DUR_SECONDS(5), &err) != DUR_OK)
        ledger_fault("node %s does not stop: %s", name, err.message);
    dur_provider_close(store);
    return 0;
}
