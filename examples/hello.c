/*
 * hello.c: the smallest whole program.  One activity, one orchestration, a store, a runtime, a client.
 */
#include <durite/durite.h>
#include <stdio.h>
#include <stdlib.h>

static dur_outcome greet(dur_act *act, const char *name) {
    return dur_act_completef(act, "Hello, %s!", name);
}

static dur_outcome hello(dur_ctx *ctx, const char *name) {
    const char *greeting = dur_await(dur_activity(ctx, "Greet", name));
    return dur_complete(ctx, greeting);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Greet", greet),
    DUR_ORCHESTRATION("Hello", "1.0.0", hello),
    DUR_HANDLERS_END,
};

int main(int argc, char **argv) {
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    dur_client *client = NULL;
    char *greeting = NULL;
    dur_error err = DUR_ERROR_INIT;

    int code = dur_open(&store, argc > 1 ? argv[1] : "memory:", &err);
    if (code == DUR_OK) code = dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = handlers), &err);
    if (code == DUR_OK) code = dur_client_new(&client, store, &err);
    if (code == DUR_OK)
        code = dur_client_start(client, &err, "Hello", "world", .instance = "hello-1",
                                .exists = DUR_START_RETURN_EXISTING);
    if (code == DUR_OK) code = dur_client_result(&greeting, client, "hello-1", DUR_SECONDS(10), &err);
    if (code == DUR_OK)
        puts(greeting);
    else
        fprintf(stderr, "%s: %s\n", err.op, err.message);

    dur_free(greeting);
    dur_client_free(client);
    dur_runtime_stop(runtime, DUR_SECONDS(1), NULL);
    dur_provider_close(store);
    return code == DUR_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
