/*
 * test_runtime_basic.c: what the runtime itself promises: parking, eviction, draining, fences, limits of its own.
 *
 * What handlers and clients see is tested end to end (tests/e2e); here are the parts that need the inside of the
 * library.
 */
#include "workload.h"

#include "base/thread.h"
#include "support/faulty.h"
#include <durite/sys/store.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/wait.h>

/* ---- handlers ---- */

static atomic_int started, finished, cancelled;
static int gate_pipe[2];
static dur_runtime *stop_me;
static atomic_int stop_code;

static dur_outcome wait_event(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome calls(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, input, "x")));
}

static dur_outcome slow(dur_act *act, const char *input) {
    atomic_fetch_add(&started, 1);
    pause_ms(100);
    atomic_fetch_add(&finished, 1);
    return dur_act_complete(act, input);
}

static dur_outcome stubborn(dur_act *act, const char *input) { /* ignores its cancellation until the pipe is closed */
    char byte;
    atomic_fetch_add(&started, 1);
    while (read(gate_pipe[0], &byte, 1) < 0 && errno == EINTR) {
    }
    atomic_fetch_add(&finished, 1);
    return dur_act_complete(act, input);
}

static dur_outcome patient(dur_act *act, const char *input) {
    atomic_fetch_add(&started, 1);
    if (dur_act_sleep(act, 50000)) atomic_fetch_add(&cancelled, 1);
    return dur_act_complete(act, input);
}

static dur_outcome stops(dur_act *act, const char *input) {
    atomic_store(&stop_code, dur_runtime_stop(stop_me, 0, NULL));
    return dur_act_complete(act, input);
}

static dur_outcome stops_inside(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_completef(ctx, "%d", dur_runtime_stop(stop_me, 0, NULL));
}

static dur_outcome gives_up(dur_ctx *ctx, const char *input) {
    const char *value;
    dur_code code = dur_try_for(dur_activity(ctx, input, "x"), 50, &value);
    return dur_complete(ctx, dur_code_name(code));
}

static dur_outcome fickle(dur_ctx *ctx, const char *input) { /* does something else each time it runs */
    static atomic_int runs;
    char name[16];
    (void)input;
    snprintf(name, sizeof(name), "Run%d", atomic_fetch_add(&runs, 1));
    return dur_complete(ctx, dur_await(dur_pulse(ctx, name)));
}

static dur_outcome drain_queue(dur_ctx *ctx, const char *input) {
    unsigned long n = strtoul(input, NULL, 10);
    for (unsigned long i = 0; i < n; i++) {
        const char *got = dur_await(dur_message(ctx, "q"));
        if (strtoul(got, NULL, 10) != i) return dur_failf(ctx, "%s at %lu", got, i);
    }
    return dur_completef(ctx, "%lu in order", n);
}

static dur_outcome fan(dur_ctx *ctx, const char *input) {
    size_t n = strtoul(input, NULL, 10);
    dur_future **all = dur_alloc(ctx, n * sizeof(*all));
    for (size_t i = 0; i < n; i++)
        all[i] = dur_activity(ctx, "Busy", "x", .session = i % 2 == 0 ? dur_format(ctx, "s%zu", i) : NULL);
    dur_join_n(all, n);
    return dur_completef(ctx, "%zu", n);
}

static atomic_int busy_now, busy_most;
static dur_outcome busy(dur_act *act, const char *input) {
    int now = atomic_fetch_add(&busy_now, dur_act_session(act) != NULL) + (dur_act_session(act) != NULL);
    int most = atomic_load(&busy_most);
    while (now > most && !atomic_compare_exchange_weak(&busy_most, &most, now)) {
    }
    pause_ms(1);
    atomic_fetch_sub(&busy_now, dur_act_session(act) != NULL);
    return dur_act_complete(act, input);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Slow", slow),
    DUR_ACTIVITY("Stubborn", stubborn),
    DUR_ACTIVITY("Patient", patient),
    DUR_ACTIVITY("Stops", stops),
    DUR_ACTIVITY("Busy", busy),
    DUR_ORCHESTRATION("Wait", "1.0.0", wait_event),
    DUR_ORCHESTRATION("Calls", "1.0.0", calls),
    DUR_ORCHESTRATION("StopsInside", "1.0.0", stops_inside),
    DUR_ORCHESTRATION("GivesUp", "1.0.0", gives_up),
    DUR_ORCHESTRATION("Fickle", "1.0.0", fickle),
    DUR_ORCHESTRATION("Drain", "1.0.0", drain_queue),
    DUR_ORCHESTRATION("Fan", "1.0.0", fan),
    DUR_HANDLERS_END,
};

static void until(atomic_int *what, int value) {
    while (atomic_load(what) < value)
        pause_ms(1);
}

static dur_metrics metrics_of(world *w) {
    dur_metrics metrics = { .size = sizeof(metrics) };
    OK(w, dur_runtime_metrics(&metrics, w->runtime, &w->err));
    return metrics;
}

static int setup(void **state) {
    atomic_store(&started, 0);
    atomic_store(&finished, 0);
    atomic_store(&cancelled, 0);
    atomic_store(&busy_most, 0);
    return world_setup(state);
}
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, world_teardown)

/* ---- parking ---- */

static char *histories_with(world *w, const char *name, dur_runtime_options *options) {
    char url[64];
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_runtime *runtime = NULL;
    snprintf(url, sizeof(url), "memory:same-%s", name);
    OK(w, dur_open(&store, url, &w->err));
    OK(w, dur_client_new(&client, store, &w->err));
    if (strcmp(name, "minimal") == 0) OK(w, dur__minimal_wrap(&store, store, &w->err));
    options->size = sizeof(*options);
    options->store = store;
    options->handlers = work_handlers;
    options->worker_concurrency = 1;
    options->dispatcher_min_poll_interval_ms = 2;
    OK(w, dur_runtime_start(&runtime, options, &w->err));
    char *histories = work_run(w, client);
    OK(w, dur_runtime_stop(runtime, patience_ms(), &w->err));
    dur_client_free(client);
    dur_provider_close(store);
    return histories;
}

static void evicted_equals_parked(void **state) {
    world *w = *state;
    char *parked = histories_with(w, "parked", &(dur_runtime_options){ .size = 0 });
    char *evicted = histories_with(w, "evicted", &(dur_runtime_options){ .evict_every_turn = true });
    char *twice = histories_with(w, "twice", &(dur_runtime_options){ .double_run = true });
    assert_string_equal(parked, evicted);
    assert_string_equal(parked, twice);
    free(parked);
    free(evicted);
    free(twice);
}

static void a_store_of_required_methods_alone_runs_everything(void **state) {
    world *w = *state;
    char *minimal = histories_with(w, "minimal", &(dur_runtime_options){ .orchestration_concurrency = 3 });
    assert_non_null(strstr(minimal, "OrchestrationCompleted"));
    free(minimal);
}

static void only_so_many_are_parked(void **state) {
    world *w = *state;
    RUN(w, handlers, .parked_max = 3);
    char id[16];
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof(id), "p%d", i);
        start(w, "Wait", "", id);
    }
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof(id), "p%d", i);
        until_history(w, id, "\"ExternalSubscribed\"", 1);
        OK(w, dur_client_pulse(w->client, &w->err, id, "Go", id));
    }
    for (int i = 0; i < 40; i++) {
        snprintf(id, sizeof(id), "p%d", i);
        expect(w, id, id);
    }
    dur_metrics metrics = metrics_of(w);
    assert_true(metrics.evictions >= 30);
    assert_true(metrics.replays > 0);
    assert_true(metrics.parked <= 3);
}

static void a_parked_handler_is_not_replayed(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Drain", "300", "d");
    for (int i = 0; i < 300; i++) {
        char number[16];
        snprintf(number, sizeof(number), "%d", i);
        OK(w, dur_client_send(w->client, &w->err, "d", "q", number));
    }
    expect(w, "d", "300 in order");
    assert_int_equal(metrics_of(w).replays, 0);
}

static void a_backlog_is_read_piece_by_piece_and_in_order(void **state) {
    world *w = *state;
    start(w, "Drain", "1000", "d");
    for (int i = 0; i < 900; i++) {
        char number[16];
        snprintf(number, sizeof(number), "%d", i);
        OK(w, dur_client_send(w->client, &w->err, "d", "q", number));
    }
    RUN(w, handlers);
    for (int i = 900; i < 1000; i++) { /* these come while older ones are still in the store only */
        char number[16];
        snprintf(number, sizeof(number), "%d", i);
        OK(w, dur_client_send(w->client, &w->err, "d", "q", number));
    }
    expect(w, "d", "1000 in order");
}

/* ---- attempts, handlers that are not there ---- */

static void acquired_too_often_is_poison(void **state) {
    world *w = *state;
    start(w, "Wait", "", "p");
    for (int i = 0; i < 3; i++) { /* three nodes that die with it */
        dur_arena *arena = dur_arena_new();
        dur_orchestration_item item = { .instance = NULL };
        dur_fetch how = { .lock_ms = 60000 };
        OK(w, dur_store_fetch_orchestration_item(w->store, arena, &how, &item, &w->err));
        assert_string_equal(item.instance, "p");
        OK(w, dur_store_abandon_orchestration_item(w->store, item.lock_token, 0, false, &w->err));
        dur_arena_free(arena);
    }
    RUN(w, handlers, .max_attempts = 3);
    expect_failure(w, "p", DUR_EFAILED, "poison");
    while (metrics_of(w).orchestration_poison < 1)
        pause_ms(1); /* counted a moment after the client can see it */
    assert_int_equal(history_count(w, "p", 1, "\"type\":\"OrchestrationStarted\""), 1);
}

static void an_unregistered_handler_waits_and_counts_nothing(void **state) {
    world *w = *state;
    RUN(w, work_handlers, .max_attempts = 1, .unregistered_backoff_ms = 1, .unregistered_backoff_max_ms = 4);
    start(w, "Wait", "", "u");
    OK(w, dur_client_pulse(w->client, &w->err, "u", "Nobody", "listens"));
    pause_ms(60);
    world_stop(w);
    dur_instance_info *info = NULL;
    OK(w, dur_client_info(&info, w->client, "u", &w->err));
    assert_int_equal(info->status, DUR_INSTANCE_RUNNING);
    dur_instance_info_free(info);
    RUN(w, handlers, .max_attempts = 1);
    until_history(w, "u", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "u", "Go", "found"));
    expect(w, "u", "found");
}

static void unregistered_may_be_limited(void **state) {
    world *w = *state;
    RUN(w, work_handlers, .unregistered_backoff_ms = 1, .unregistered_backoff_max_ms = 2,
        .unregistered_attempts_max = 3);
    start(w, "Wait", "", "u");
    expect_failure(w, "u", DUR_EFAILED, "not registered");
}

static void a_handler_that_changes_its_mind_is_suspended(void **state) {
    world *w = *state;
    RUN(w, handlers, .double_run = true);
    start(w, "Fickle", "", "f");
    char *result = NULL;
    assert_int_equal(dur_client_result(&result, w->client, "f", patience_ms(), &w->err), DUR_ESUSPENDED);
    assert_non_null(strstr(w->err.message, "second run"));
    dur_instance_info *info = NULL;
    OK(w, dur_client_info(&info, w->client, "f", &w->err));
    assert_int_equal(info->status, DUR_INSTANCE_RUNNING);
    dur_instance_info_free(info);
    assert_int_equal(metrics_of(w).orchestration_suspended, 1);
    assert_int_equal(dur_client_history(&result, w->client, "f", 1, NULL), DUR_ENOTFOUND); /* nothing was written */
}

static void nondeterminism_may_fail_instead(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Fickle", "", "f");
    until_history(w, "f", "\"ExternalSubscribed\"", 1);
    world_stop(w);
    RUN(w, handlers, .nondeterminism = DUR_NONDETERMINISM_FAIL);
    OK(w, dur_client_pulse(w->client, &w->err, "f", "Any", ""));
    expect_failure(w, "f", DUR_EFAILED, "nondeterministic");
}

/* ---- owner ---- */

static void taken_for_dead_it_begins_again(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Wait", "", "o");
    start(w, "Calls", "Patient", "a");
    until_history(w, "o", "\"ExternalSubscribed\"", 1);
    until(&started, 1);
    char before[64];
    snprintf(before, sizeof(before), "%s", dur_runtime_owner(w->runtime));
    OK(w, dur_store_owner_release(w->store, before, &w->err)); /* as a peer would do that took it for dead */
    until(&cancelled, 1);                                      /* the activity whose row is lost learns of it */
    until(&started, 2);                                        /* and it is taken again */
    assert_string_not_equal(before, dur_runtime_owner(w->runtime));
    OK(w, dur_client_pulse(w->client, &w->err, "o", "Go", "alive"));
    expect(w, "o", "alive");
    assert_true(metrics_of(w).fenced >= 1);
    OK(w, dur_client_terminate(w->client, "a", "enough", &w->err));
}

static void a_silent_owner_starts_nothing(void **state) {
    world *w = *state;
    dur_provider *faulty = NULL;
    OK(w, dur__faulty_wrap(&faulty, dur_store_retain(w->store), 1, &w->err));
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "owner_beat", .count = UINT64_MAX });
    OK(w, dur_runtime_start(&w->runtime, DUR_RUNTIME(.store = faulty, .handlers = handlers, .owner_timeout_ms = 2000),
                            &w->err));
    pause_ms(1200); /* half the timeout without a beat */
    start(w, "Calls", "Slow", "s");
    pause_ms(200);
    assert_int_equal(atomic_load(&started), 0);
    dur__faulty_clear(faulty);
    expect(w, "s", "x");
    world_stop(w);
    dur_provider_close(faulty);
}

/* The store's faulty twin, with a runtime on it. */
static dur_provider *run_faulty(world *w, const dur__fault_plan *plan, uint64_t owner_timeout_ms) {
    dur_provider *faulty = NULL;
    OK(w, dur__faulty_wrap(&faulty, dur_store_retain(w->store), 1, &w->err));
    if (plan != NULL) dur__faulty_add(faulty, plan);
    OK(w, dur_runtime_start(&w->runtime,
                            DUR_RUNTIME(.store = faulty, .handlers = handlers, .owner_timeout_ms = owner_timeout_ms),
                            &w->err));
    return faulty;
}

static void await_beats(dur_provider *faulty, uint64_t count) {
    while (dur__faulty_calls(faulty, "owner_beat") < count)
        pause_ms(5);
}

/* Three beats fail.  The next is not a second later each time; a slow machine has three tries to show it. */
static void a_beat_that_failed_is_soon_tried_again(void **state) {
    world *w = *state;
    uint64_t took_ms = UINT64_MAX;
    for (int i = 0; i < 3 && took_ms >= 3000; i++) {
        uint64_t began_us = dur__monotonic_us();
        dur_provider *faulty = run_faulty(w, &(dur__fault_plan){ .method = "owner_beat", .count = 3 }, 0);
        await_beats(faulty, 4);
        took_ms = (dur__monotonic_us() - began_us) / 1000;
        world_stop(w);
        dur_provider_close(faulty);
    }
    assert_true(took_ms < 3000); /* 0.7 s */
    /* All of them fail: after the first few it is one a second again. */
    uint64_t began_us = dur__monotonic_us();
    dur_provider *faulty = run_faulty(w, &(dur__fault_plan){ .method = "owner_beat", .count = UINT64_MAX }, 0);
    await_beats(faulty, 6);
    uint64_t calls = dur__faulty_calls(faulty, "owner_beat");
    assert_true(calls <= 5 + (dur__monotonic_us() - began_us) / 1000000);
    world_stop(w);
    dur_provider_close(faulty);
}

/* Half of it is less than the usual second between two beats: who lives must not fence itself each time. */
static void a_short_timeout_makes_more_beats(void **state) {
    world *w = *state;
    uint64_t fenced = 1;
    dur_provider *faulty = run_faulty(w, NULL, 1000);
    for (int i = 0; i < 5 && fenced > 0; i++) { /* a slow machine has some tries */
        fenced = metrics_of(w).fenced;
        await_beats(faulty, dur__faulty_calls(faulty, "owner_beat") + 6);
        fenced = metrics_of(w).fenced - fenced;
    }
    assert_int_equal(fenced, 0);
    world_stop(w);
    dur_provider_close(faulty);
}

/* ---- stopping ---- */

static void running_activities_end_and_are_recorded(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Calls", "Slow", "s");
    until(&started, 1);
    OK(w, dur_runtime_stop(w->runtime, DUR_HOURS(1), &w->err)); /* it does not sleep its grace */
    w->runtime = NULL;
    assert_int_equal(atomic_load(&finished), 1);
    expect(w, "s", "x"); /* nobody runs: it was recorded before the end */
}

static void what_does_not_end_is_named_and_left_behind(void **state) {
    world *w = *state;
    assert_int_equal(pipe(gate_pipe), 0);
    RUN(w, handlers);
    start(w, "Calls", "Stubborn", "never");
    until(&started, 1);
    assert_int_equal(dur_runtime_stop(w->runtime, 20, &w->err), DUR_EBUSY);
    w->runtime = NULL;
    assert_non_null(strstr(w->err.message, "Stubborn"));
    assert_non_null(strstr(w->err.message, "never"));
    close(gate_pipe[1]);
    until(&finished, 1);
    pause_ms(50); /* its thread goes on to its end, with the runtime gone */
    close(gate_pipe[0]);
}

static void an_abandoned_activity_gives_its_slot_to_another(void **state) {
    world *w = *state;
    assert_int_equal(pipe(gate_pipe), 0);
    RUN(w, handlers, .worker_concurrency = 1, .activity_cancel_grace_ms = 20);
    start(w, "GivesUp", "Stubborn", "g");
    expect(w, "g", "DUR_ETIMEOUT");
    start(w, "Calls", "Slow", "next"); /* the only worker is inside the other one */
    expect(w, "next", "x");
    while (metrics_of(w).activity_abandoned < 1) /* counted behind the new slot */
        pause_ms(1);
    close(gate_pipe[1]);
    until(&finished, 2);
    pause_ms(20);
    close(gate_pipe[0]);
}

static void a_dropped_activity_learns_of_it(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "GivesUp", "Patient", "g");
    expect(w, "g", "DUR_ETIMEOUT");
    until(&cancelled, 1);
}

static void stop_from_inside_is_refused(void **state) {
    world *w = *state;
    RUN(w, handlers);
    stop_me = w->runtime;
    start(w, "Calls", "Stops", "a");
    expect(w, "a", "x");
    assert_int_equal(atomic_load(&stop_code), DUR_EDEADLK);
    start(w, "StopsInside", "", "h");
    expect(w, "h", "11"); /* DUR_EDEADLK */
}

static void a_forked_child_is_refused(void **state) {
    world *w = *state;
    RUN(w, handlers);
    pid_t child = fork();
    if (child == 0) {
        dur_metrics metrics = { .size = sizeof(metrics) };
        bool refused = dur_runtime_metrics(&metrics, w->runtime, NULL) == DUR_EFORKED;
        refused = dur_runtime_stop(w->runtime, 0, NULL) == DUR_EFORKED && refused;
        end_forked(refused);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    start(w, "Calls", "Slow", "s"); /* the parent goes on */
    expect(w, "s", "x");
}

/* ---- sessions ---- */

static void sessions_are_limited(void **state) {
    world *w = *state;
    RUN(w, handlers, .worker_concurrency = 8, .max_sessions = 2);
    start(w, "Fan", "40", "f");
    expect(w, "f", "40");
    assert_true(atomic_load(&busy_most) <= 2);
    assert_true(atomic_load(&busy_most) >= 1);
}

/* ---- many ---- */

static void several_runtimes_share_a_store(void **state) {
    world *w = *state;
    dur_runtime *second = NULL;
    RUN(w, work_handlers);
    OK(w, dur_runtime_start(&second, DUR_RUNTIME(.store = w->store, .handlers = work_handlers, .name = "second"),
                            &w->err));
    char id[16];
    int n = (int)scaled(100, 20);
    for (int i = 0; i < n; i++) {
        snprintf(id, sizeof(id), "c%d", i);
        start(w, "Child", id, id);
    }
    for (int i = 0; i < n; i++) {
        char wanted[24];
        snprintf(id, sizeof(id), "c%d", i);
        snprintf(wanted, sizeof(wanted), "<%s>", id);
        expect(w, id, wanted);
    }
    OK(w, dur_runtime_stop(second, patience_ms(), &w->err));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(evicted_equals_parked),
        CASE(a_store_of_required_methods_alone_runs_everything),
        CASE(only_so_many_are_parked),
        CASE(a_parked_handler_is_not_replayed),
        CASE(a_backlog_is_read_piece_by_piece_and_in_order),
        CASE(acquired_too_often_is_poison),
        CASE(an_unregistered_handler_waits_and_counts_nothing),
        CASE(unregistered_may_be_limited),
        CASE(a_handler_that_changes_its_mind_is_suspended),
        CASE(nondeterminism_may_fail_instead),
        CASE(taken_for_dead_it_begins_again),
        CASE(a_silent_owner_starts_nothing),
        CASE(a_beat_that_failed_is_soon_tried_again),
        CASE(a_short_timeout_makes_more_beats),
        CASE(running_activities_end_and_are_recorded),
        CASE(what_does_not_end_is_named_and_left_behind),
        CASE(an_abandoned_activity_gives_its_slot_to_another),
        CASE(a_dropped_activity_learns_of_it),
        CASE(stop_from_inside_is_refused),
        CASE(a_forked_child_is_refused),
        CASE(sessions_are_limited),
        CASE(several_runtimes_share_a_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
