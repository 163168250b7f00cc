/*
 * hello.c: the smallest whole program.  Run it twice: the second time the answer comes from the store, nothing runs.
 */
#include <durite/durite.h>
#include <stdio.h>

static dur_outcome greet(dur_act *act, const char *name) { /* an activity: ordinary C on a worker thread */
    puts("greeting");
    return dur_act_completef(act, "Hello, %s!", name);
}

static dur_outcome hello(dur_ctx *ctx, const char *name) { /* an orchestration: survives everything */
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Greet", name)));
}

static const dur_handler handlers[] = { DUR_ACTIVITY("Greet", greet), DUR_ORCHESTRATION("Hello", "1.0.0", hello),
                                        DUR_HANDLERS_END };

int main(int argc, char **argv) {
    dur_host *host = NULL;
    char *out = NULL;
    dur_error err = DUR_ERROR_INIT;
    int code = dur_host_start(&host, argc > 1 ? argv[1] : "sqlite:hello.db", handlers, &err);
    if (code == DUR_OK) code = dur_client_run(&out, dur_host_client(host), &err, "Hello", "world", .instance = "hello");
    puts(code == DUR_OK ? out : err.message);
    dur_free(out);
    dur_host_free(host);
    return code;
}
