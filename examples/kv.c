/*
 * kv.c: request and response without a reply address.  The client sends a request, the orchestration leaves the
 * answer under the request's key, and the client waits for that key; another orchestration reads it too.
 */
#include "host.h"

static dur_outcome squares(dur_ctx *ctx, const char *served_text) {
    unsigned long served = strtoul(served_text, NULL, 10);
    const char *request = dur_await(dur_message(ctx, "Request"));
    if (strcmp(request, "stop") == 0) return dur_completef(ctx, "%zu answers kept", dur_kv_count(ctx));
    unsigned long n = strtoul(request, NULL, 10);
    dur_kv_set(ctx, request, dur_format(ctx, "%lu", n * n));
    return dur_continue_as_new(ctx, dur_format(ctx, "%lu", served + 1));
}

static dur_outcome reader(dur_ctx *ctx, const char *key) {
    dur_future *answer = dur_kv_remote(ctx, "squares", key);
    const char *value = dur_await(answer);
    return dur_completef(ctx, "%s squared is %s", key, dur_is_none(answer) ? "unknown" : value);
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("Squares", "1.0.0", squares),
    DUR_ORCHESTRATION("Reader", "1.0.0", reader),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    example e;
    example_begin(&e, argc, argv, handlers);
    example_start(&e, "Squares", "0", "squares");
    if (dur_client_send(e.client, &e.err, "squares", "Request", "12", .message_id = "request-12") != DUR_OK)
        example_fail(&e, "send");
    char *answer = NULL;
    if (dur_client_kv_wait(&answer, e.client, "squares", "12", DUR_SECONDS(30), &e.err) != DUR_OK)
        example_fail(&e, "kv");
    printf("12 -> %s\n", answer);
    dur_free(answer);

    example_start(&e, "Reader", "12", "reader-1");
    example_expect(&e, "reader-1", "12 squared is 144");
    example_send(&e, "squares", "Request", "stop");
    example_expect(&e, "squares", "1 answers kept");
    return example_end(&e);
}
