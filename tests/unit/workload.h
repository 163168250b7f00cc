/*
 * workload.h: one orchestration that does a bit of everything in a fixed order, and its histories without the clock.
 */
#ifndef TESTS_UNIT_WORKLOAD_H
#define TESTS_UNIT_WORKLOAD_H

#include "e2e/harness.h"

static inline dur_outcome work_echo(dur_act *act, const char *input) {
    return dur_act_completef(act, "<%s>", input);
}

static inline dur_outcome work_refuse(dur_act *act, const char *input) {
    return dur_act_attempt(act) < 3 ? dur_act_failf(act, "not %s yet", input) : dur_act_complete(act, input);
}

static inline dur_outcome work_child(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "fail") == 0) return dur_fail(ctx, "child cannot");
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

/* Two executions: activities, a retry, a timer, a lost race, events, a queue, children, keys and a status. */
static inline dur_outcome work_all(dur_ctx *ctx, const char *input) {
    const char *one = dur_await(dur_activity(ctx, "Echo", input));
    const char *two = dur_await(dur_activity(ctx, "Refuse", one, .retry = DUR_RETRY(.attempts_max = 5, .delay_ms = 1)));
    dur_await(dur_timer(ctx, 2));
    dur_status_setf(ctx, "after %s", two);
    dur_future *late = dur_timer(ctx, DUR_HOURS(1));
    dur_future *message = dur_message(ctx, "q");
    if (dur_select(late, message) == late) return dur_fail(ctx, "the hour is over");
    dur_kv_set(ctx, "message", dur_await(message));
    const char *child = dur_await(dur_orchestration(ctx, "Child", two));
    const char *reason = "";
    dur_future *failing = dur_orchestration(ctx, "Child", "fail");
    if (dur_try(failing, NULL) != DUR_OK) reason = dur_reason(failing);
    const char *event = dur_await(dur_pulse(ctx, "Go"));
    if (dur_execution_id(ctx) < 2) return dur_continue_as_new(ctx, "again");
    return dur_completef(ctx, "%s %s %s %s", child, dur_kv_get(ctx, "message"), reason, event);
}

static const dur_handler work_handlers[] = {
    DUR_ACTIVITY("Echo", work_echo),
    DUR_ACTIVITY("Refuse", work_refuse),
    DUR_ORCHESTRATION("Child", "1.0.0", work_child),
    DUR_ORCHESTRATION("All", "1.0.0", work_all),
    DUR_HANDLERS_END,
};

/* Numbers behind these keys are times: they become 0. */
static inline void forget_times(char *text) {
    static const char *const keys[] = { "timestamp_ms\":", "fire_at_ms\":", "last_updated_at_ms\":",
                                        "birth\":" /* random */ };
    for (size_t k = 0; k < sizeof(keys) / sizeof(keys[0]); k++) {
        for (char *at = text; (at = strstr(at, keys[k])) != NULL;) {
            char *from = at + strlen(keys[k]), *to = from;
            while (*to >= '0' && *to <= '9')
                to++;
            memmove(from, to, strlen(to) + 1);
            at = from;
        }
    }
}

/* The histories of all executions of the workload and its children, times forgotten; free() it. */
static inline char *work_histories(world *w, dur_client *client) {
    static const struct {
        const char *instance;
        uint64_t execution;
    } which[] = {
        { "w", 1 },
        { "w", 2 },
    };
    char *all = calloc(1, 1 << 20);
    for (size_t i = 0; i < sizeof(which) / sizeof(which[0]); i++) {
        char *history = NULL;
        OK(w, dur_client_history(&history, client, which[i].instance, which[i].execution, &w->err));
        forget_times(history);
        strcat(strcat(all, history), "\n");
        dur_free(history);
    }
    return all;
}

static inline void work_until(world *w, dur_client *client, const char *text, uint64_t execution) {
    for (;;) {
        char *history = NULL;
        bool found =
            dur_client_history(&history, client, "w", execution, NULL) == DUR_OK && strstr(history, text) != NULL;
        dur_free(history);
        if (found) return;
        pause_ms(1);
    }
    (void)w;
}

/* Drive it from outside, each step when the handler waits for it, so that the order of arrivals is always the same.
   `client` is on the undisturbed store. */
static inline char *work_run(world *w, dur_client *client) {
    OK(w, dur_client_start(client, &w->err, "All", "in", .instance = "w"));
    for (uint64_t execution = 1; execution <= 2; execution++) {
        work_until(w, client, "ExternalSubscribedPersistent", execution);
        OK(w, dur_client_send(client, &w->err, "w", "q", "hello"));
        work_until(w, client, "\"ExternalSubscribed\"", execution);
        OK(w, dur_client_pulse(client, &w->err, "w", "Go", "now"));
    }
    char *result = NULL;
    OK(w, dur_client_result(&result, client, "w", patience_ms(), &w->err));
    assert_string_equal(result, "<<again>> hello child cannot now");
    dur_free(result);
    return work_histories(w, client);
}

#endif
