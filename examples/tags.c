/*
 * tags.c: two runtimes on one store.  One serves plain work and orchestrations, the other only what is tagged "gpu".
 */
#include "host.h"

static dur_outcome resize(dur_act *act, const char *image) {
    return dur_act_completef(act, "%s resized", image);
}

static dur_outcome render(dur_act *act, const char *image) {
    return dur_act_completef(act, "%s rendered on %s", image, dur_act_tag(act));
}

static dur_outcome picture(dur_ctx *ctx, const char *image) {
    const char *small = dur_await(dur_activity(ctx, "Resize", image));
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Render", small, .tag = "gpu")));
}

static const dur_handler plain[] = {
    DUR_ACTIVITY("Resize", resize),
    DUR_ORCHESTRATION("Picture", "1.0.0", picture),
    DUR_HANDLERS_END,
};

static const dur_handler gpu[] = {
    DUR_ACTIVITY("Render", render),
    DUR_ORCHESTRATION("Picture", "1.0.0", picture),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    static const char *const tags[] = { "gpu", NULL };
    example e;
    example_begin(&e, argc, argv, plain);
    dur_runtime *gpu_runtime = NULL;
    if (dur_runtime_start(&gpu_runtime,
                          DUR_RUNTIME(.store = dur_host_store(e.host), .handlers = gpu, .name = "gpu",
                                      .tags = DUR_TAG_ONLY, .worker_tags = tags, .double_run = true),
                          &e.err) != DUR_OK)
        example_fail(&e, "gpu");
    example_start(&e, "Picture", "cat.png", "picture-1");
    example_expect(&e, "picture-1", "cat.png resized rendered on gpu");
    dur_runtime_stop(gpu_runtime, DUR_SECONDS(5), NULL);
    return example_end(&e);
}
