/*
 * upgrade.c: an eternal orchestration moves to new code when it continues as new: the registry's policy chooses the
 * highest version for each new execution, while running executions finish with the version they began with.
 */
#include "host.h"

static dur_outcome loop_v1(dur_ctx *ctx, const char *input) {
    dur_status_set(ctx, "waiting");
    dur_await(dur_message(ctx, "Next"));
    return dur_continue_as_new(ctx, dur_format(ctx, "%s v1", input));
}

static dur_outcome loop_v2(dur_ctx *ctx, const char *input) {
    return dur_completef(ctx, "%s v%s", input, dur_orchestration_version(ctx));
}

static const dur_handler yesterday[] = { DUR_ORCHESTRATION("Loop", "1.0.0", loop_v1), DUR_HANDLERS_END };
static const dur_handler today[] = {
    DUR_ORCHESTRATION("Loop", "1.0.0", loop_v1),
    DUR_ORCHESTRATION("Loop", "2.0.0", loop_v2),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    example e;
    example_begin(&e, argc, argv, yesterday);
    example_start(&e, "Loop", "ran", "loop-1");
    example_await_status(&e, "loop-1");

    example_deploy(&e, today);
    example_send(&e, "loop-1", "Next", "");
    example_expect(&e, "loop-1", "ran v1 v2.0.0");
    return example_end(&e);
}
