/*
 * good_order.c: the same things said in an order that C defines; tools/lint-order must stay silent.
 */
#include <durite/durite.h>

static const char *ask(dur_ctx *ctx, const char *name) {
    return dur_await(dur_activity(ctx, name, ""));
}

dur_outcome sequenced(dur_ctx *ctx, const char *input);
dur_outcome sequenced(dur_ctx *ctx, const char *input) {
    const char *nested = dur_await(dur_activity(ctx, "A", dur_await(dur_activity(ctx, "B", input))));
    dur_future *event = dur_pulse(ctx, "E");
    dur_future *late = dur_timer(ctx, DUR_DAYS(1));
    if (dur_select(event, late) == late) return dur_failf(ctx, "%s: %s", dur_instance_id(ctx), dur_reason(event));
    if (dur_try(dur_activity(ctx, "C", dur_format(ctx, "%s/%s", nested, dur_kv_get(ctx, "k"))), NULL) == DUR_OK &&
        dur_patched(ctx, "new") && dur_now_ms(ctx) > 5)
        dur_kv_set(ctx, "k", dur_guid(ctx));
    for (int i = 0; i < 3; i++)
        dur_await(dur_timer(ctx, 10));
    const char *chosen = dur_is_settled(event) ? dur_await(event) : ask(ctx, "D");
    dur_future *many[] = { event, late };
    dur_join_n(many, 2);
    return dur_complete(ctx, ask(ctx, chosen));
}
