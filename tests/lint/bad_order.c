/*
 * bad_order.c: handlers that depend on the order in which a compiler evaluates; tools/lint-order must report each line
 * marked with "bad:" and nothing else.
 */
#include <durite/durite.h>

static const char *pair(const char *a, const char *b) {
    return a != b ? a : b;
}
static const char *ask(dur_ctx *ctx, const char *name) {
    return dur_await(dur_activity(ctx, name, ""));
}
static dur_future *both(dur_future *a, dur_future *b) {
    return a != b ? a : b;
}

dur_outcome siblings(dur_ctx *ctx, const char *input);
dur_outcome siblings(dur_ctx *ctx, const char *input) {
    dur_await(both(dur_activity(ctx, "A", input), dur_activity(ctx, "B", input))); /* bad: two schedule */
    dur_future *a = dur_activity(ctx, "A", input);
    dur_future *b = dur_activity(ctx, "B", input);
    const char *first = pair(dur_await(a), dur_await(b));                  /* bad: two wait */
    const char *mixed = pair(dur_guid(ctx), dur_await(dur_timer(ctx, 1))); /* bad: one records, one waits */
    if (dur_select(dur_pulse(ctx, "E"), dur_timer(ctx, 5)) == NULL) {      /* bad: the order of initialisers */
        return dur_fail(ctx, first);
    }
    uint64_t span = dur_now_ms(ctx) - dur_now_ms(ctx); /* bad: operands */
    return dur_completef(ctx, "%s %s %d", ask(ctx, "X"), ask(ctx, "Y"), (int)span + (mixed != NULL)); /* bad: helpers */
}
