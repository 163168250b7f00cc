/*
 * danger_disk.c: a disk that fails or is full under a running engine: nothing is lost, nothing runs twice, and it goes
 * on by itself when the disk does.
 */
#include "danger/knife_vfs.h"
#include "unit/workload.h"

#include <sqlite3.h>

static atomic_int *runs; /* of each step, two for an instance */

static size_t instances(void) {
    return scaled(100, 20);
}

static dur_outcome once(dur_act *act, const char *input) {
    atomic_fetch_add(&runs[strtoul(input, NULL, 10)], 1);
    return dur_act_complete(act, input);
}

static dur_outcome two_steps(dur_ctx *ctx, const char *input) {
    unsigned long n = strtoul(input, NULL, 10);
    dur_await(dur_activity(ctx, "Once", dur_format(ctx, "%lu", n)));
    dur_await(dur_timer(ctx, 1));
    dur_await(dur_activity(ctx, "Once", dur_format(ctx, "%lu", n + 1)));
    return dur_complete(ctx, "done");
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Once", once),
    DUR_ORCHESTRATION("TwoSteps", "1.0.0", two_steps),
    DUR_HANDLERS_END,
};

static int disk_setup(void **state) {
    atomic_store(&knife.full, false);
    atomic_store(&knife.fail_at, 0);
    runs = calloc(2 * instances(), sizeof(*runs));
    return runs != NULL ? world_setup(state) : -1;
}

static int disk_teardown(void **state) {
    int code = world_teardown(state);
    free((void *)runs);
    return code;
}
#define DISK_TEST(name) cmocka_unit_test_setup_teardown(name, disk_setup, disk_teardown)

static void danger_disk_full_for_a_while(void **state) {
    world *w = *state;
    int count = (int)instances(), refused = 0;
    char id[16], input[16];
    RUN(w, handlers);
    for (int i = 0; i < count; i++) {
        if (i == count / 2) atomic_store(&knife.full, true); /* with half of them somewhere on their way */
        snprintf(id, sizeof(id), "d%d", i);
        snprintf(input, sizeof(input), "%d", i * 2);
        int code = dur_client_start(w->client, &w->err, "TwoSteps", input, .instance = id);
        if (code == DUR_OK) continue;
        assert_int_equal(code, DUR_EFULL);
        assert_true(w->err.retryable);
        refused++;
        if (refused == 10) break;
    }
    long before = atomic_load(&knife.failed);
    while (atomic_load(&knife.failed) < before + 5) /* the engine tries again and again */
        pause_ms(1);
    int first_refused = count / 2;
    atomic_store(&knife.full, false);
    for (int i = first_refused; i < count; i++) {
        snprintf(id, sizeof(id), "d%d", i);
        snprintf(input, sizeof(input), "%d", i * 2);
        OK(w, dur_client_start(w->client, &w->err, "TwoSteps", input, .instance = id,
                               .exists = DUR_START_RETURN_EXISTING));
    }
    for (int i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "d%d", i);
        expect(w, id, "done");
        assert_int_equal(atomic_load(&runs[i * 2]), 1);
        assert_int_equal(atomic_load(&runs[i * 2 + 1]), 1);
    }
    assert_true(refused > 0);
    OK(w, dur_provider_check(w->store, &w->err));
}

/* The same work with its Nth change of the file failing, for every N: the histories do not tell. */
static char *run_failing(world *w, long at, int code, long *changes) {
    static unsigned serial;
    char url[1200];
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_runtime *runtime = NULL;
    snprintf(url, sizeof(url), "sqlite:%s/n%u.db", w->dir, ++serial);
    OK(w, dur_open(&store, url, &w->err));
    OK(w, dur_client_new(&client, store, &w->err));
    OK(w, dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = work_handlers, .worker_concurrency = 1),
                            &w->err));
    atomic_store(&knife.ops, 0);
    atomic_store(&knife.fail_code, code);
    atomic_store(&knife.fail_count, 1);
    atomic_store(&knife.fail_at, at);
    for (;;) { /* the client is told, and asks again */
        if (dur_client_start(client, &w->err, "All", "in", .instance = "w", .exists = DUR_START_RETURN_EXISTING) ==
            DUR_OK)
            break;
        assert_true(w->err.retryable);
    }
    for (uint64_t execution = 1; execution <= 2; execution++) {
        char id[24];
        snprintf(id, sizeof(id), "m%u", (unsigned)execution);
        work_until(w, client, "ExternalSubscribedPersistent", execution);
        while (dur_client_send(client, &w->err, "w", "q", "hello", .message_id = id) != DUR_OK)
            assert_true(w->err.retryable);
        work_until(w, client, "\"ExternalSubscribed\"", execution);
        snprintf(id, sizeof(id), "e%u", (unsigned)execution);
        while (dur_client_pulse(client, &w->err, "w", "Go", "now", .message_id = id) != DUR_OK)
            assert_true(w->err.retryable);
    }
    char *result = NULL;
    OK(w, dur_client_result(&result, client, "w", patience_ms(), &w->err));
    dur_free(result);
    *changes = atomic_load(&knife.ops);
    atomic_store(&knife.fail_at, 0);
    char *histories = work_histories(w, client);
    OK(w, dur_runtime_check(runtime, &w->err));
    OK(w, dur_runtime_stop(runtime, patience_ms(), &w->err));
    OK(w, dur_provider_check(store, &w->err));
    dur_client_free(client);
    dur_provider_close(store);
    return histories;
}

/* Every one of them takes minutes: at 100 % some are chosen, other ones for each code. */
static void every_change(world *w, int code, long first) {
    long changes = 0;
    char *wanted = run_failing(w, 0, code, &changes);
    long most = changes, step = most / (long)scaled(16, 4) + 1;
    for (long n = first; n <= most; n += step) {
        char *got = run_failing(w, n, code, &changes);
        if (strcmp(wanted, got) != 0) fail_msg("change %ld failed:\nwanted:\n%s\ngot:\n%s", n, wanted, got);
        free(got);
    }
    free(wanted);
}

static void danger_an_io_error_at_every_write(void **state) {
    every_change(*state, SQLITE_IOERR_WRITE, 1);
}

static void danger_a_full_disk_at_every_write(void **state) {
    every_change(*state, SQLITE_FULL, 2);
}

int main(void) {
    setenv("DURITE_TEST_URL", "sqlite:", 1);
    if (getenv("DURITE_TEST_FILTER") != NULL) cmocka_set_test_filter(getenv("DURITE_TEST_FILTER"));
    if (getenv("DURITE_TEST_LOG") != NULL) dur_log_set_sink(dur_log_text, stderr, DUR_LOG_INFO);
    knife_install();
    const struct CMUnitTest tests[] = {
        DISK_TEST(danger_disk_full_for_a_while),
        DISK_TEST(danger_an_io_error_at_every_write),
        DISK_TEST(danger_a_full_disk_at_every_write),
    };
    return cmocka_run_group_tests_name("danger_disk", tests, NULL, NULL);
}
