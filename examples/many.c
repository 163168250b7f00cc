/*
 * many.c: one thread starts many orchestrations and takes their results as they come, a window of them at a time.
 */
#include "host.h"

enum { ORDERS = 100, WINDOW = 20 };

static dur_outcome price(dur_act *act, const char *order) {
    return dur_act_completef(act, "%lu", strtoul(order, NULL, 10) * 10);
}

static dur_outcome quote(dur_ctx *ctx, const char *order) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Price", order)));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Price", price),
    DUR_ORCHESTRATION("Quote", "1.0.0", quote),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    example e;
    dur_runs *runs = NULL;
    const dur_run *run;
    unsigned long started = 0, total = 0;
    example_begin(&e, argc, argv, handlers);
    if (dur_runs_new(&runs, e.client, &e.err) != DUR_OK) example_fail(&e, "runs");
    do {
        while (started < ORDERS && dur_runs_count(runs) < WINDOW) {
            char id[64], order[32];
            snprintf(order, sizeof(order), "%lu", ++started);
            snprintf(id, sizeof(id), "quote-%s", order);
            if (dur_runs_start(runs, &e.err, "Quote", order, .instance = id, .exists = DUR_START_REPLACE_FINISHED) !=
                DUR_OK)
                example_fail(&e, id);
        }
        if (dur_runs_next(&run, runs, DUR_SECONDS(30), &e.err) != DUR_OK) example_fail(&e, "next");
        if (run->code != DUR_OK) fprintf(stderr, "%s: %s\n", run->instance, run->error);
        total += run->code == DUR_OK ? strtoul(run->output, NULL, 10) : 0;
    } while (dur_runs_count(runs) > 0 || started < ORDERS);
    dur_runs_free(runs);
    printf("%lu orders, %lu in all\n", started, total);
    example_end(&e);
    return total == 10 * ORDERS * (ORDERS + 1) / 2 ? EXIT_SUCCESS : EXIT_FAILURE;
}
