/*
 * monitor.c: an orchestration that never ends keeps its history short: each round is a new execution.
 */
#include "host.h"

static dur_outcome probe(dur_act *act, const char *round) {
    return dur_act_completef(act, "%s", strcmp(round, "4") == 0 ? "down" : "up");
}

static dur_outcome monitor(dur_ctx *ctx, const char *round_text) {
    unsigned long round = strtoul(round_text, NULL, 10);
    const char *state = dur_await(dur_activity(ctx, "Probe", round_text));
    dur_status_setf(ctx, "round %lu: %s", round, state);
    if (strcmp(state, "down") == 0) return dur_completef(ctx, "down in round %lu", round);
    dur_await(dur_timer(ctx, 10));
    return dur_continue_as_new(ctx, dur_format(ctx, "%lu", round + 1));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Probe", probe),
    DUR_ORCHESTRATION("Monitor", "1.0.0", monitor),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    example e;
    example_begin(&e, argc, argv, handlers);
    example_start(&e, "Monitor", "1", "disk-monitor");
    example_expect(&e, "disk-monitor", "down in round 4");

    /* Old rounds can go; the newest stays. */
    dur_pruned pruned = { .size = sizeof(pruned) };
    if (dur_client_prune(&pruned, e.client, "disk-monitor", DUR_PRUNE(.keep_last = 1), &e.err) != DUR_OK)
        example_fail(&e, "prune");
    printf("pruned %llu executions\n", (unsigned long long)pruned.executions);
    return example_end(&e);
}
