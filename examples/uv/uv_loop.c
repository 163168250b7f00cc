/*
 * uv_loop.c: a runtime without threads inside a libuv loop: one poll handle, one timer, and a step where either fires.
 */
#include <durite/durite.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

typedef struct engine {
    dur_provider *store;
    dur_runtime *runtime;
    dur_client *client;
    uv_poll_t news;
    uv_timer_t due;
    bool good;
} engine;

static dur_outcome greet(dur_act *act, const char *name) {
    return dur_act_completef(act, "Hello, %s!", name);
}

static dur_outcome hello(dur_ctx *ctx, const char *name) {
    dur_await(dur_timer(ctx, 50));
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Greet", name)));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Greet", greet),
    DUR_ORCHESTRATION("Hello", "1.0.0", hello),
    DUR_HANDLERS_END,
};

static void fail(const dur_error *err) {
    fprintf(stderr, "%s: %s\n", err->op, err->message);
    exit(EXIT_FAILURE);
}

static void stop_if_greeted(engine *e) {
    dur_error err = DUR_ERROR_INIT;
    char *greeting = NULL;
    if (dur_client_result(&greeting, e->client, "hello-1", 0, &err) != DUR_OK) return; /* 0: only a look */
    puts(greeting);
    e->good = strcmp(greeting, "Hello, loop!") == 0;
    dur_free(greeting);
    uv_close((uv_handle_t *)&e->news, NULL);
    uv_close((uv_handle_t *)&e->due, NULL);
}

static void due(uv_timer_t *timer);

static void step(engine *e) {
    dur_error err = DUR_ERROR_INIT;
    if (dur_runtime_step(e->runtime, 5, &err) != DUR_OK) fail(&err);
    uv_timer_start(&e->due, due, dur_runtime_next_ms(e->runtime), 0);
    stop_if_greeted(e);
}

static void due(uv_timer_t *timer) {
    step(timer->data);
}

static void news(uv_poll_t *poll, int status, int events) {
    (void)status, (void)events;
    step(poll->data);
}

int main(int argc, char **argv) {
    dur_error err = DUR_ERROR_INIT;
    engine e = { .good = false };
    uv_loop_t *loop = uv_default_loop();
    if (dur_open(&e.store, argc > 1 ? argv[1] : "memory:", &err) != DUR_OK ||
        dur_runtime_start(&e.runtime, DUR_RUNTIME(.store = e.store, .handlers = handlers, .threads = DUR_THREADS_NONE),
                          &err) != DUR_OK ||
        dur_client_new(&e.client, e.store, &err) != DUR_OK ||
        dur_client_start(e.client, &err, "Hello", "loop", .instance = "hello-1",
                         .exists = DUR_START_REPLACE_FINISHED) != DUR_OK)
        fail(&err);

    uv_poll_init(loop, &e.news, dur_runtime_fd(e.runtime));
    uv_timer_init(loop, &e.due);
    e.news.data = e.due.data = &e;
    uv_poll_start(&e.news, UV_READABLE, news);
    uv_timer_start(&e.due, due, 0, 0);
    uv_run(loop, UV_RUN_DEFAULT);

    uv_loop_close(loop);
    dur_client_free(e.client);
    dur_runtime_stop(e.runtime, DUR_SECONDS(1), NULL);
    dur_provider_close(e.store);
    return e.good ? EXIT_SUCCESS : EXIT_FAILURE;
}
