/*
 * epoll_loop.c: a runtime without threads inside a program that has an epoll loop of its own.
 *
 * Orders come in through a pipe, as they would from a socket.  The same thread reads them, runs the orchestrations and
 * their activities, and hands what takes long to whoever it likes: here a thread that plays the slow printer.
 */
#include <durite/durite.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ORDERS 5

static int printed; /* by orders that have ended; the loop's thread only */

static dur_outcome price(dur_act *act, const char *order) { /* quick: runs inside the step */
    return dur_act_completef(act, "%s costs %zu", order, strlen(order) * 7);
}

static dur_outcome count(dur_act *act, const char *input) {
    printed++;
    return dur_act_complete(act, input);
}

static dur_outcome order(dur_ctx *ctx, const char *what) {
    const char *priced = dur_await(dur_activity(ctx, "Price", what));
    const char *receipt = dur_await(dur_activity(ctx, "Print", priced));
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Count", receipt)));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Price", price),
    DUR_ACTIVITY("Count", count),
    DUR_ACTIVITY_TAKEN("Print"), /* slow: the host takes it */
    DUR_ORCHESTRATION("Order", "1.0.0", order),
    DUR_HANDLERS_END,
};

static void *print(void *act) { /* any thread may end it */
    usleep(2000);
    dur_act_end(act, dur_act_completef(act, "[%s]", dur_act_input(act)));
    return NULL;
}

static void fail(const dur_error *err) {
    fprintf(stderr, "%s: %s\n", err->op, err->message);
    exit(EXIT_FAILURE);
}

static void hand_out(dur_runtime *runtime) {
    dur_error err = DUR_ERROR_INIT;
    for (dur_act *act;;) {
        pthread_t thread;
        if (dur_runtime_take(&act, runtime, "Print", &err) != DUR_OK) fail(&err);
        if (act == NULL) return;
        if (pthread_create(&thread, NULL, print, act) != 0) exit(EXIT_FAILURE);
        pthread_detach(thread);
    }
}

static void order_came(dur_client *client, int fd) {
    dur_error err = DUR_ERROR_INIT;
    char line[16], id[32];
    if (read(fd, line, sizeof(line)) != (ssize_t)sizeof(line)) exit(EXIT_FAILURE);
    snprintf(id, sizeof(id), "order-%s", line);
    if (dur_client_start(client, &err, "Order", line, .instance = id, .exists = DUR_START_REPLACE_FINISHED) != DUR_OK)
        fail(&err);
}

int main(int argc, char **argv) {
    dur_error err = DUR_ERROR_INIT;
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    dur_client *client = NULL;
    int orders[2];
    if (dur_open(&store, argc > 1 ? argv[1] : "memory:", &err) != DUR_OK ||
        dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = handlers, .threads = DUR_THREADS_NONE),
                          &err) != DUR_OK ||
        dur_client_new(&client, store, &err) != DUR_OK)
        fail(&err);
    if (pipe(orders) != 0) return EXIT_FAILURE;
    for (int i = 0; i < ORDERS; i++) { /* somebody else's end of the pipe */
        char line[16] = "";
        snprintf(line, sizeof(line), "tea-%d", i);
        if (write(orders[1], line, sizeof(line)) != (ssize_t)sizeof(line)) return EXIT_FAILURE;
    }

    int loop = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ours = { .events = EPOLLIN, .data.fd = orders[0] };
    struct epoll_event theirs = { .events = EPOLLIN, .data.fd = dur_runtime_fd(runtime) };
    epoll_ctl(loop, EPOLL_CTL_ADD, orders[0], &ours);
    epoll_ctl(loop, EPOLL_CTL_ADD, theirs.data.fd, &theirs);

    while (printed < ORDERS) {
        struct epoll_event events[8];
        int ready = epoll_wait(loop, events, 8, (int)dur_runtime_next_ms(runtime));
        for (int i = 0; i < ready; i++)
            if (events[i].data.fd == orders[0]) order_came(client, orders[0]);
        if (dur_runtime_step(runtime, 5, &err) != DUR_OK) fail(&err);
        hand_out(runtime);
    }

    char *receipt = NULL;
    if (dur_client_result(&receipt, client, "order-tea-4", DUR_SECONDS(60), &err) != DUR_OK) fail(&err);
    puts(receipt);
    bool good = strcmp(receipt, "[tea-4 costs 35]") == 0;
    dur_free(receipt);
    dur_client_free(client);
    dur_runtime_stop(runtime, DUR_SECONDS(1), NULL);
    dur_provider_close(store);
    close(orders[0]);
    close(orders[1]);
    close(loop);
    return good ? EXIT_SUCCESS : EXIT_FAILURE;
}
