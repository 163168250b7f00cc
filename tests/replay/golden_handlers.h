/*
 * golden_handlers.h: the handlers whose histories are in this folder, as they were when those were recorded.
 */
#ifndef TESTS_REPLAY_GOLDEN_HANDLERS_H
#define TESTS_REPLAY_GOLDEN_HANDLERS_H

#include <durite/orchestration.h>
#include <durite/registry.h>
#include <stdlib.h>

static inline dur_outcome order(dur_ctx *ctx, const char *id) {
    const char *slot = dur_await(dur_activity(ctx, "Reserve", id));
    dur_future *paid = dur_pulse(ctx, "Paid");
    dur_future *late = dur_timer(ctx, DUR_DAYS(1));
    bool too_late = dur_select(paid, late) == late;
    if (dur_cancel_reason(ctx) != NULL) dur_await(dur_activity(ctx, "Release", slot));
    if (too_late || dur_code_of(paid) != DUR_OK) return dur_fail(ctx, "never paid");
    return dur_complete(ctx,
                        dur_await(dur_activity(ctx, "Ship", slot, .tag = "eu", .retry = DUR_RETRY(.attempts_max = 3))));
}

static inline dur_outcome inbox(dur_ctx *ctx, const char *count) {
    const char *mail = dur_await(dur_message(ctx, "mail"));
    dur_future *work = dur_activity(ctx, "Read", mail);
    dur_message(ctx, "mail"); /* given a message, never looked at */
    dur_await(work);
    unsigned long read = strtoul(count, NULL, 10) + 1;
    dur_status_setf(ctx, "%lu read", read);
    dur_kv_set(ctx, "last", mail);
    dur_now_ms(ctx);
    return dur_continue_as_new(ctx, dur_format(ctx, "%lu", read));
}

static inline dur_outcome leg(dur_ctx *ctx, void *number) {
    const char *a = dur_await(dur_activity(ctx, "A", number));
    return dur_complete(ctx, dur_await(dur_activity(ctx, "B", a)));
}
static inline dur_outcome two_legs(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *one = dur_spawn(ctx, leg, "1");
    dur_future *two = dur_spawn(ctx, leg, "2");
    dur_join(one, two);
    const char *first = dur_await(one);
    return dur_completef(ctx, "%s+%s", first, dur_await(two));
}

static inline dur_outcome race(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *slow = dur_activity(ctx, "Slow", "x");
    dur_future *stop = dur_pulse(ctx, "stop");
    dur_future *timer = dur_timer(ctx, 50);
    dur_select(slow, stop, timer);
    const char *child = dur_await(dur_orchestration(ctx, "Child", "c"));
    dur_activity(ctx, "Left", "");
    return dur_complete(ctx, child);
}

static inline dur_outcome ask_time(dur_ctx *ctx, void *arg) {
    (void)arg;
    return dur_completef(ctx, "%llu", (unsigned long long)dur_now_ms(ctx));
}
static inline dur_outcome prepare(dur_ctx *ctx, void *arg) {
    (void)arg;
    dur_future *prepared = dur_activity(ctx, "Prepare", "");
    dur_status_set(ctx, "ready");
    dur_kv_set(ctx, "k", "v");
    return dur_complete(ctx, dur_await(prepared));
}
static inline dur_outcome mailer(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *clock = dur_spawn(ctx, ask_time, NULL);
    dur_future *ready = dur_spawn(ctx, prepare, NULL);
    dur_join(clock, ready);
    const char *first = dur_await(dur_message(ctx, "mail"));
    dur_start(ctx, "Log", first, .instance = "log-1");
    const char *second = dur_await(dur_message(ctx, "mail"));
    return dur_completef(ctx, "%s,%s,%s", first, second, dur_await(clock));
}

static const dur_handler golden_handlers[] = {
    DUR_ORCHESTRATION("Order", "1.0.0", order),      DUR_ORCHESTRATION("Inbox", "1.0.0", inbox),
    DUR_ORCHESTRATION("TwoLegs", "1.0.0", two_legs), DUR_ORCHESTRATION("Race", "1.0.0", race),
    DUR_ORCHESTRATION("Mailer", "1.0.0", mailer),    DUR_HANDLERS_END,
};

#endif
