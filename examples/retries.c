/*
 * retries.c: a flaky activity is tried again with growing pauses; a hopeless one is not.  A retried activity is a
 * future like any other.
 */
#include "host.h"

static dur_outcome flaky(dur_act *act, const char *input) {
    if (dur_act_attempt(act) < 3) return dur_act_failf(act, "attempt %u failed", dur_act_attempt(act));
    return dur_act_completef(act, "%s on attempt %u", input, dur_act_attempt(act));
}

static dur_outcome hopeless(dur_act *act, const char *input) {
    (void)input;
    return dur_act_fail_final(act, "this will never work");
}

static dur_outcome resilient(dur_ctx *ctx, const char *input) {
    const dur_retry *patient = DUR_RETRY(.attempts_max = 5, .delay_ms = 5, .jitter = 0.2);
    dur_future *good = dur_activity(ctx, "Flaky", input, .retry = patient);
    dur_future *bad = dur_activity(ctx, "Hopeless", input, .retry = patient);

    const char *image;
    if (dur_try(bad, &image) != DUR_OK) {
        dur_trace(ctx, DUR_LOG_WARN, "going on without: %s", dur_reason(bad));
        image = "placeholder";
    }
    return dur_completef(ctx, "%s, %s", dur_await(good), image);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Flaky", flaky),
    DUR_ACTIVITY("Hopeless", hopeless),
    DUR_ORCHESTRATION("Resilient", "1.0.0", resilient),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    example e;
    dur_log_set_sink(dur_log_text, stderr, DUR_LOG_WARN);
    example_begin(&e, argc, argv, handlers);
    example_start(&e, "Resilient", "done", "resilient-1");
    example_expect(&e, "resilient-1", "done on attempt 3, placeholder");
    return example_end(&e);
}
