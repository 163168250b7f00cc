/*
 * sessions.c: activities of one session go to one worker process, which may keep something warm for them (a loaded
 * model, an open connection).
 */
#include "host.h"

static dur_outcome run_on(dur_act *act, const char *step) {
    return dur_act_completef(act, "%s@%s", step, dur_act_session(act));
}

static dur_outcome train(dur_ctx *ctx, const char *model) {
    const char *load = dur_await(dur_activity(ctx, "Run", "load", .session = model));
    const char *fit = dur_await(dur_activity(ctx, "Run", "fit", .session = model));
    return dur_completef(ctx, "%s %s", load, fit);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Run", run_on),
    DUR_ORCHESTRATION("Train", "1.0.0", train),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    example e;
    example_begin(&e, argc, argv, handlers);
    example_start(&e, "Train", "resnet", "train-1");
    example_start(&e, "Train", "bert", "train-2");
    example_expect(&e, "train-1", "load@resnet fit@resnet");
    example_expect(&e, "train-2", "load@bert fit@bert");
    return example_end(&e);
}
