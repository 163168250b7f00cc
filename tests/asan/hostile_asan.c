/*
 * hostile_asan.c: a program that is built with AddressSanitizer, and a library that is not.
 *
 * ASan marks the frames of a function while it runs.  A handler whose stack is thrown away at a failed dur_await never
 * returns from its frames, and the next handler runs on the same stack.
 */
#include <durite/durite.h>

#include <stdio.h>
#include <string.h>

static dur_outcome fails(dur_act *act, const char *input) {
    (void)input;
    return dur_act_fail(act, "no");
}

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

/* Frames of several sizes and depths, so that what they leave behind lies where the next ones have their locals. */
static const char *deep(dur_ctx *ctx, const char *name, int depth) {
    char text[96];
    snprintf(text, sizeof(text), "%s%d", name, depth);
    if (depth > 0) return deep(ctx, name, depth - 1);
    return dur_await(dur_activity(ctx, name, text));
}

static dur_outcome gives_up(dur_ctx *ctx, const char *input) {
    char before[200];
    snprintf(before, sizeof(before), "%s", input);
    return dur_complete(ctx, deep(ctx, "Fails", (int)strlen(before) % 7));
}

static dur_outcome goes_on(dur_ctx *ctx, const char *input) {
    char large[1500];
    memset(large, 'x', sizeof(large));
    snprintf(large, sizeof(large), "%s", input);
    (void)deep(ctx, "Echo", 5);
    return dur_complete(ctx, large);
}

static const dur_handler handlers[] = { DUR_ACTIVITY("Fails", fails), DUR_ACTIVITY("Echo", echo),
                                        DUR_ORCHESTRATION("GivesUp", "1.0.0", gives_up),
                                        DUR_ORCHESTRATION("GoesOn", "1.0.0", goes_on), DUR_HANDLERS_END };

static int all_run(dur_client *client, dur_error *err) {
    for (int i = 0; i < 40; i++) {
        char input[64], *out = NULL;
        snprintf(input, sizeof(input), "%.*s", i % 20, "abcdefghijklmnopqrstuvwxyz");
        if (dur_client_run(&out, client, err, "GivesUp", input) != DUR_EFAILED) return -1;
        if (dur_client_run(&out, client, err, "GoesOn", input) != DUR_OK || strcmp(out, input) != 0) return -1;
        dur_free(out);
    }
    return 0;
}

int main(void) {
    dur_host *host = NULL;
    dur_error err = DUR_ERROR_INIT;
    int failed = dur_host_start_ex(&host, "memory:", DUR_RUNTIME(.handlers = handlers, .evict_every_turn = true), &err);
    if (failed == DUR_OK) failed = all_run(dur_host_client(host), &err);
    dur_host_free(host);
    printf("1..1\n%s 1 - fault_h168_a_program_with_asan_runs_on_stacks_of_ours\n", failed == 0 ? "ok" : "not ok");
    if (failed != 0) fprintf(stderr, "%s\n", err.message);
    return failed != 0;
}
