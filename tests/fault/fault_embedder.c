/*
 * fault_embedder.c: what a program that embeds the library may rely on: forked children, signals and names of threads,
 * errno, sinks, memory limits, any order of closing.
 */
#include "e2e/harness.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

static dur_runtime *stop_me;
static atomic_int stop_code = -1;

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome keeps_errno(dur_ctx *ctx, const char *input) {
    errno = ENOTTY;
    dur_await(dur_activity(ctx, "Echo", input));
    int first = errno;
    errno = EXDEV;
    dur_await(dur_timer(ctx, 1));
    return dur_complete(ctx, first == ENOTTY && errno == EXDEV ? "kept" : "lost");
}

static dur_outcome wants_memory(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < 64; i++)
        memset(dur_alloc(ctx, 1 << 20), 1, 1 << 20);
    return dur_complete(ctx, input);
}

static dur_outcome blocks(dur_ctx *ctx, const char *input) {
    dur_future *echo_of_it = dur_activity(ctx, "Echo", input);
    pause_ms(1100);
    return dur_complete(ctx, dur_await(echo_of_it));
}

static dur_outcome talks(dur_ctx *ctx, const char *input) {
    dur_trace(ctx, DUR_LOG_INFO, "stop now");
    return dur_complete(ctx, input);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("KeepsErrno", "1.0.0", keeps_errno),
    DUR_ORCHESTRATION("WantsMemory", "1.0.0", wants_memory),
    DUR_ORCHESTRATION("Talks", "1.0.0", talks),
    DUR_ORCHESTRATION("Blocks", "1.0.0", blocks),
    DUR_HANDLERS_END,
};

/* ---- fork ---- */

#define REFUSED(call)                                                                                                  \
    if ((call) != DUR_EFORKED) _exit(__LINE__ % 251 + 1)

static void child_of(world *w) {
    dur_instance_info *info = NULL;
    dur_instance_list *list = NULL;
    dur_store_counts counts = { .size = sizeof(counts) };
    dur_metrics metrics = { .size = sizeof(metrics) };
    dur_runtime *runtime = NULL;
    dur_client *client = NULL;
    char *text = NULL;
    REFUSED(dur_client_start(w->client, NULL, "KeepsErrno", "", .instance = "f"));
    REFUSED(dur_client_pulse(w->client, NULL, "f", "E", ""));
    REFUSED(dur_client_send(w->client, NULL, "f", "q", ""));
    REFUSED(dur_client_cancel(w->client, "f", NULL, NULL));
    REFUSED(dur_client_terminate(w->client, "f", NULL, NULL));
    REFUSED(dur_client_suspend(w->client, "f", NULL, NULL));
    REFUSED(dur_client_info(&info, w->client, "f", NULL));
    REFUSED(dur_client_wait(&info, w->client, "f", 0, NULL));
    REFUSED(dur_client_result(&text, w->client, "f", 0, NULL));
    REFUSED(dur_client_history(&text, w->client, "f", 0, NULL));
    REFUSED(dur_client_list(&list, w->client, NULL, NULL));
    REFUSED(dur_client_counts(&counts, w->client, NULL));
    REFUSED(dur_client_delete(NULL, w->client, "f", true, NULL));
    REFUSED(dur_runtime_start(&runtime, DUR_RUNTIME(.store = w->store, .handlers = handlers), NULL));
    REFUSED(dur_runtime_metrics(&metrics, w->runtime, NULL));
    REFUSED(dur_runtime_check(w->runtime, NULL));
    REFUSED(dur_client_new(&client, w->store, NULL));
    REFUSED(dur_runtime_stop(w->runtime, 0, NULL));
    REFUSED(dur_runtime_stop(w->runtime, 0, NULL)); /* there is nothing left to free twice */
    REFUSED(dur_runtime_metrics(&metrics, w->runtime, NULL));
    dur_client_free(w->client); /* frees, and says no goodbye */
    dur_provider_close(w->store);
    _exit(0);
}

static void in_a_forked_child_every_call_is_refused(void **state) {
    world *w = *state;
    RUN(w, handlers);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        child_of(w);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) fail_msg("child: status %x", (unsigned)status);
    start(w, "KeepsErrno", "", "after"); /* the parent goes on */
    expect(w, "after", "kept");
}

/* ---- threads ---- */

/* Threads of ours by name; *open_signals: some of them can be hit by a signal that is not a fault of its own. */
static int our_threads(bool *open_signals) {
    int count = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        char path[320], line[256] = "";
        unsigned long long blocked = 0;
        bool ours = false;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "r");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
            if (strncmp(line, "Name:\tembed", 11) == 0) ours = true;
            if (strncmp(line, "SigBlk:", 7) == 0) blocked = strtoull(line + 7, NULL, 16);
        }
        if (file != NULL) fclose(file);
        if (!ours) continue;
        count++;
        for (int s = 1; s < 32; s++) {
            bool fault = s == SIGSEGV || s == SIGBUS || s == SIGFPE || s == SIGILL;
            if (s == SIGKILL || s == SIGSTOP || (blocked >> (s - 1) & 1) != fault) continue;
            *open_signals = true;
        }
    }
    closedir(dir);
    return count;
}

static void threads_are_named_and_block_signals(void **state) {
    world *w = *state;
    bool open_signals = false;
    assert_int_equal(our_threads(&open_signals), 0);
    RUN(w, handlers, .name = "embed", .worker_concurrency = 3);
    start(w, "KeepsErrno", "", "t");
    expect(w, "t", "kept");
    while (our_threads(&open_signals) < 4) /* two workers, a loop, a keeper: each names itself when it first runs */
        pause_ms(1);
    assert_false(open_signals);
    world_stop(w);
    assert_int_equal(our_threads(&open_signals), 0);
}

/* ---- callbacks, errno, memory ---- */

static void stopping_sink(void *data, const dur_log_record *record) {
    (void)data;
    if (strcmp(record->message, "stop now") == 0) atomic_store(&stop_code, dur_runtime_stop(stop_me, 0, NULL));
}

static void stop_from_a_sink_is_refused(void **state) {
    world *w = *state;
    RUN(w, handlers);
    stop_me = w->runtime;
    dur_log_set_sink(stopping_sink, NULL, DUR_LOG_INFO);
    start(w, "Talks", "said", "s");
    expect(w, "s", "said");
    while (atomic_load(&stop_code) < 0)
        pause_ms(1);
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
    assert_int_equal(atomic_load(&stop_code), DUR_EDEADLK);
}

static atomic_int slow_turns;
static void slow_turn_sink(void *data, const dur_log_record *record) {
    (void)data;
    if (strstr(record->message, "a turn of \"Blocks\" took") == NULL) return;
    bool named = false, placed = false, timed = false;
    for (size_t i = 0; i < record->field_count; i++) {
        const dur_log_field *field = &record->fields[i];
        if (strcmp(field->key, "instance_id") == 0) named = strcmp(field->text, "slow") == 0;
        if (strcmp(field->key, "site") == 0) placed = strstr(field->text, "fault_embedder.c") != NULL;
        if (strcmp(field->key, "took_ms") == 0) timed = field->number >= 1000;
    }
    if (named && placed && timed) atomic_fetch_add(&slow_turns, 1);
}

static void a_turn_over_a_second_is_logged(void **state) {
    world *w = *state;
    RUN(w, handlers);
    dur_log_set_sink(slow_turn_sink, NULL, DUR_LOG_WARN);
    start(w, "KeepsErrno", "", "quick");
    start(w, "Blocks", "came", "slow");
    expect(w, "slow", "came");
    expect(w, "quick", "kept");
    world_stop(w);
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
    assert_int_equal(atomic_load(&slow_turns), 1);
}

static void errno_is_kept_over_waits(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "KeepsErrno", "", "e");
    expect(w, "e", "kept");
}

static void too_much_memory_suspends(void **state) {
    world *w = *state;
    char *result = NULL;
    RUN(w, handlers, .arena_bytes_max = 8 << 20);
    start(w, "WantsMemory", "", "m");
    assert_int_equal(dur_client_result(&result, w->client, "m", patience_ms(), &w->err), DUR_ESUSPENDED);
    print_message("%s\n", w->err.message);
    start(w, "KeepsErrno", "", "neighbour");
    expect(w, "neighbour", "kept");
    world_stop(w);
    RUN(w, handlers); /* with the usual limit */
    OK(w, dur_client_resume(w->client, "m", &w->err));
    expect(w, "m", "");
}

/* ---- closing ---- */

static void any_order_of_closing(void **state) {
    world *w = *state;
    for (int order = 0; order < 4; order++) {
        dur_provider *store = NULL, *other = NULL;
        dur_runtime *one = NULL, *two = NULL;
        dur_client *client = NULL;
        char id[16], *result = NULL;
        OK(w, dur_open(&store, w->url, &w->err));
        OK(w, dur_open(&other, w->url, &w->err));
        OK(w, dur_runtime_start(&one, DUR_RUNTIME(.store = store, .handlers = handlers), &w->err));
        OK(w, dur_runtime_start(&two, DUR_RUNTIME(.store = other, .handlers = handlers), &w->err));
        OK(w, dur_client_new(&client, store, &w->err));
        if (order & 1) dur_provider_close(store);
        if (order & 2) dur_provider_close(other);
        snprintf(id, sizeof(id), "o%d", order);
        OK(w, dur_client_start(client, &w->err, "KeepsErrno", "", .instance = id));
        OK(w, dur_client_result(&result, client, id, patience_ms(), &w->err));
        dur_free(result);
        if (order == 1) dur_client_free(client);
        OK(w, dur_runtime_stop(order & 1 ? one : two, patience_ms(), &w->err));
        if (!(order & 1)) dur_provider_close(store);
        OK(w, dur_runtime_stop(order & 1 ? two : one, patience_ms(), &w->err));
        if (!(order & 2)) dur_provider_close(other);
        if (order != 1) dur_client_free(client);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(in_a_forked_child_every_call_is_refused),
        TEST(threads_are_named_and_block_signals),
        TEST(stop_from_a_sink_is_refused),
        TEST(a_turn_over_a_second_is_logged),
        TEST(errno_is_kept_over_waits),
        TEST(too_much_memory_suspends),
        TEST(any_order_of_closing),
    };
    return cmocka_run_group_tests_name("fault_embedder", tests, NULL, NULL);
}
