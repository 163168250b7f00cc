/*
 * patch.c: changing a handler in place.  Instances that were under way keep the old path, new ones take the new path;
 * the marker in history says which.
 */
#include "host.h"

static dur_outcome note(dur_act *act, const char *text) {
    return dur_act_complete(act, text);
}

static dur_outcome order_before(dur_ctx *ctx, const char *id) {
    dur_status_set(ctx, "waiting");
    const char *paid = dur_await(dur_message(ctx, "Paid"));
    return dur_completef(ctx, "%s paid %s", id, paid);
}

static dur_outcome order_after(dur_ctx *ctx, const char *id) {
    if (dur_patched(ctx, "greet-first")) dur_await(dur_activity(ctx, "Note", "welcome"));
    dur_status_set(ctx, "waiting");
    const char *paid = dur_await(dur_message(ctx, "Paid"));
    return dur_completef(ctx, "%s paid %s%s", id, paid, dur_patched(ctx, "greet-first") ? ", greeted" : "");
}

static const dur_handler before[] = {
    DUR_ACTIVITY("Note", note),
    DUR_ORCHESTRATION("Order", "1.0.0", order_before),
    DUR_HANDLERS_END,
};
static const dur_handler after[] = {
    DUR_ACTIVITY("Note", note),
    DUR_ORCHESTRATION("Order", "1.0.0", order_after),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    example e;
    example_begin(&e, argc, argv, before);
    example_start(&e, "Order", "old", "order-old");
    example_await_status(&e, "order-old");

    example_deploy(&e, after);
    example_start(&e, "Order", "new", "order-new");
    example_await_status(&e, "order-new");

    example_send(&e, "order-old", "Paid", "1");
    example_send(&e, "order-new", "Paid", "2");
    example_expect(&e, "order-old", "old paid 1");
    example_expect(&e, "order-new", "new paid 2, greeted");
    return example_end(&e);
}
