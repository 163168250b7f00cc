/*
 * stress_handlers.c: the orchestrations and activities that a run of libdurite-stress starts.
 */
#include "stress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGE_FIRST = 20, LARGE_CHILDREN = 5, LARGE_SECOND = 10 };

/* ---- parallel: a fan-out of activities that take a while ----------------------------------------------------------
 */

static dur_outcome task(dur_act *act, const char *input) {
    unsigned long delay_ms = strtoul(input, NULL, 10);
    if (delay_ms > 0 && dur_act_sleep(act, delay_ms)) return dur_act_fail(act, "cancelled");
    return dur_act_complete(act, "done");
}

static dur_outcome fan_out(dur_ctx *ctx, const char *input) {
    dur_future *futures[STRESS_TASKS_MAX];
    unsigned tasks = 0, delay_ms = 0;
    if (sscanf(input, "%u %u", &tasks, &delay_ms) != 2 || tasks > STRESS_TASKS_MAX) return dur_fail(ctx, "bad input");
    const char *delay = dur_format(ctx, "%u", delay_ms);
    for (unsigned i = 0; i < tasks; i++)
        futures[i] = dur_activity(ctx, "StressTask", delay);
    for (unsigned i = 0; i < tasks; i++)
        dur_await(futures[i]);
    return dur_completef(ctx, "%u", tasks);
}

/* ---- large: payloads of 10, 50 and 100 KB, children, and a history of about ninety events --------------------------
 */

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static const char *payload(dur_ctx *ctx, unsigned n) {
    static const size_t sizes[] = { 10 * 1024, 50 * 1024, 100 * 1024 };
    size_t size = sizes[n % 3];
    char *text = dur_alloc(ctx, size + 1);
    memset(text, 'a' + (int)(n % 26), size);
    text[size] = '\0';
    return text;
}

static bool same_text(const char *a, const char *b) {
    return strcmp(a, b) == 0;
}

static dur_outcome large_child(dur_ctx *ctx, const char *input) {
    const char *answer = dur_await(dur_activity(ctx, "StressEcho", input));
    return same_text(answer, input) ? dur_complete(ctx, answer) : dur_fail(ctx, "a payload was changed");
}

static dur_outcome large(dur_ctx *ctx, const char *input) {
    dur_future *futures[LARGE_FIRST];
    (void)input;
    for (unsigned i = 0; i < LARGE_FIRST; i++)
        futures[i] = dur_activity(ctx, "StressEcho", payload(ctx, i));
    for (unsigned i = 0; i < LARGE_FIRST; i++)
        if (!same_text(dur_await(futures[i]), payload(ctx, i))) return dur_fail(ctx, "a payload was changed");
    for (unsigned i = 0; i < LARGE_CHILDREN; i++)
        futures[i] = dur_orchestration(ctx, "StressLargeChild", payload(ctx, i));
    for (unsigned i = 0; i < LARGE_CHILDREN; i++)
        dur_await(futures[i]);
    for (unsigned i = 0; i < LARGE_SECOND; i++) {
        dur_status_setf(ctx, "step %u", i);
        if (!same_text(dur_await(dur_activity(ctx, "StressEcho", payload(ctx, i))), payload(ctx, i)))
            return dur_fail(ctx, "a payload was changed");
    }
    return dur_complete(ctx, "done");
}

const dur_handler stress_handlers[] = {
    DUR_ACTIVITY("StressTask", task),
    DUR_ACTIVITY("StressEcho", echo),
    DUR_ORCHESTRATION("StressParallel", "1.0.0", fan_out),
    DUR_ORCHESTRATION("StressLarge", "1.0.0", large),
    DUR_ORCHESTRATION("StressLargeChild", "1.0.0", large_child),
    DUR_HANDLERS_END,
};

bool stress_is_large(const dur_stress_config *config) {
    return strcmp(config->scenario, "large") == 0;
}

uint32_t stress_activities(const dur_stress_config *config) {
    return stress_is_large(config) ? LARGE_FIRST + LARGE_CHILDREN + LARGE_SECOND : config->tasks;
}

void stress_input(const dur_stress_config *config, char *out, size_t size) {
    snprintf(out, size, "%u %u", config->tasks, config->delay_ms);
}
