/*
 * tiny_testing.c: the smallest test of somebody's own orchestration.
 */
#include <durite/testing.h>
#include <string.h>

static dur_outcome nap(dur_ctx *ctx, const char *input) {
    dur_await(dur_timer(ctx, DUR_HOURS(24 * 30)));
    return dur_complete(ctx, input);
}

static const dur_handler handlers[] = { DUR_ORCHESTRATION("Nap", "1.0.0", nap), DUR_HANDLERS_END };

int main(void) {
    dur_test *t = NULL;
    if (dur_test_new(&t, DUR_TEST(.handlers = handlers), NULL) != DUR_OK) return 1;
    if (dur_test_start(t, NULL, "Nap", "rested", .instance = "n") != DUR_OK) return 1;
    int code = dur_test_run_to_end(t, "n", NULL);
    bool rested = code == DUR_OK && strcmp(dur_test_output(t, "n"), "rested") == 0;
    dur_test_free(t);
    return rested ? 0 : 1;
}
