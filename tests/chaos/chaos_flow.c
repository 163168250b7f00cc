/*
 * chaos_flow.c: what runs: orders, their children, and tickers that show whether anything goes on.
 *
 * An activity writes a token into the ledger and returns it: a result in a history names the very run that made it.
 */
#include "chaos_flow.h"

#include "chaos.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static dur_outcome effect(dur_act *act, const char *input) {
    uint64_t random = 0;
    char token[32];
    (void)input;
    if (getrandom(&random, sizeof(random), 0) != sizeof(random)) abort();
    snprintf(token, sizeof(token), "%016llx", (unsigned long long)random);
    ledger("effect", dur_act_attempt_key(act), token, dur_act_instance_id(act));
    return dur_act_complete(act, token);
}

static dur_outcome flaky(dur_act *act, const char *input) {
    return dur_act_attempt(act) == 1 ? dur_act_fail(act, "the first attempt") : effect(act, input);
}

static dur_outcome child(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Effect", input)));
}

/* Something of everything that a store has to keep. */
static void open_order(dur_ctx *ctx, unsigned long seed) {
    const char *session = dur_format(ctx, "s%lu", seed % 5), *heard = NULL;
    dur_status_set(ctx, "open");
    dur_kv_set(ctx, "seed", dur_format(ctx, "%lu", seed));
    dur_future *three[] = {
        dur_activity(ctx, "Effect", "a"),
        dur_activity(ctx, "Effect", "b", .session = session),
        dur_activity(ctx, "Flaky", "c", .retry = DUR_RETRY(.delay_ms = 20)),
    };
    dur_join_n(three, 3);
    for (size_t i = 0; i < 3; i++)
        dur_await(three[i]);
    if (seed % 3 == 0) dur_await(dur_orchestration(ctx, "Child", "x"));
    if (seed % 4 == 0) dur_start(ctx, "Child", "x", .instance = dur_format(ctx, "%s-detached", dur_instance_id(ctx)));
    dur_await(dur_timer(ctx, 20 + seed % 150));
    dur_try_for(dur_pulse(ctx, "Go"), 300, &heard);
}

/* "SEED|what was received": messages until one that begins with "end", three for each execution. */
static dur_outcome order(dur_ctx *ctx, const char *input) {
    char *rest;
    unsigned long seed = strtoul(input, &rest, 10);
    const char *received = rest + 1;
    if (dur_execution_id(ctx) == 1) open_order(ctx, seed);
    for (int i = 0; i < 3; i++) {
        const char *message = dur_await(dur_message(ctx, "box"));
        received = dur_format(ctx, "%s%s\"%s\"", received, *received != '\0' ? "," : "", message);
        dur_kv_set(ctx, "last", message);
        dur_await(dur_activity(ctx, "Effect", message));
        if (strncmp(message, "end", 3) == 0) return dur_completef(ctx, "[%s]", received);
    }
    return dur_continue_as_new(ctx, dur_format(ctx, "%lu|%s", seed, received));
}

/* It goes on by itself, so that the time from a fault to the next tick is the fault's. */
static dur_outcome ticker(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < 50; i++) {
        dur_await(dur_activity(ctx, "Effect", input));
        dur_future *stop = dur_message(ctx, "box");
        if (dur_select(dur_timer(ctx, 100), stop) != stop) continue;
        return dur_completef(ctx, "[\"%s\"]", dur_await(stop));
    }
    return dur_continue_as_new(ctx, input);
}

const dur_handler chaos_handlers[] = {
    DUR_ACTIVITY("Effect", effect),
    DUR_ACTIVITY("Flaky", flaky),
    DUR_ORCHESTRATION("Child", "1.0.0", child),
    DUR_ORCHESTRATION("Order", "1.0.0", order),
    DUR_ORCHESTRATION("Ticker", "1.0.0", ticker),
    DUR_HANDLERS_END,
};
