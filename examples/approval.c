/*
 * approval.c: a person decides, or time does.  Whatever comes first wins; the other is given up.  The decision comes
 * as a message, which is kept until it is received: it may come at any time, also while somebody is reminded.
 */
#include "host.h"

static dur_outcome notify(dur_act *act, const char *request) {
    return dur_act_completef(act, "asked about %s", request);
}

static dur_outcome approval(dur_ctx *ctx, const char *request) {
    uint64_t patience_ms = strcmp(request, "urgent") == 0 ? 25 : DUR_HOURS(12);
    const char *decision;
    for (int asked = 0; asked < 2; asked++) {
        dur_await(dur_activity(ctx, "Notify", request));
        int code = dur_try_for(dur_message(ctx, "Decision"), patience_ms, &decision);
        if (code == DUR_OK) return dur_completef(ctx, "decided: %s", decision);
        if (code != DUR_ETIMEOUT) return dur_fail(ctx, "withdrawn"); /* cancelled: nobody is asked again */
    }
    return dur_fail(ctx, "nobody decided in time");
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Notify", notify),
    DUR_ORCHESTRATION("Approval", "1.0.0", approval),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    example e;
    example_begin(&e, argc, argv, handlers);

    example_start(&e, "Approval", "new chairs", "chairs");
    example_send(&e, "chairs", "Decision", "yes");
    example_expect(&e, "chairs", "decided: yes");

    example_start(&e, "Approval", "urgent", "urgent");
    example_expect_failure(&e, "urgent", "nobody decided in time");
    return example_end(&e);
}
