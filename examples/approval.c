/*
 * approval.c: a person decides, or time does.  Whatever comes first wins; the other is given up.
 */
#include "host.h"

static dur_outcome notify(dur_act *act, const char *request) {
    return dur_act_completef(act, "asked about %s", request);
}

static dur_outcome approval(dur_ctx *ctx, const char *request) {
    dur_await(dur_activity(ctx, "Notify", request));
    dur_future *decision = dur_event(ctx, "Decision");
    dur_status_set(ctx, "waiting for a decision");
    dur_future *deadline = dur_timer(ctx, strcmp(request, "urgent") == 0 ? 50 : DUR_HOURS(24));
    if (dur_select(decision, deadline) == deadline) return dur_fail(ctx, "nobody decided in time");
    return dur_completef(ctx, "decided: %s", dur_await(decision));
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
    /* An event counts only for a wait that exists: the custom status says that it does. */
    dur_instance_info *info = NULL;
    if (dur_client_wait_status(&info, e.client, "chairs", 0, DUR_SECONDS(30), &e.err) != DUR_OK)
        example_fail(&e, "chairs");
    printf("chairs: %s\n", info->custom_status);
    dur_instance_info_free(info);
    if (dur_client_raise(e.client, &e.err, "chairs", "Decision", "yes") != DUR_OK) example_fail(&e, "raise");
    example_expect(&e, "chairs", "decided: yes");

    example_start(&e, "Approval", "urgent", "urgent");
    example_expect_failure(&e, "urgent", "nobody decided in time");
    return example_end(&e);
}
