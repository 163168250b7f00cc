/*
 * test_runtime_outage.c: what a runtime does while its store does not answer, or while it stops: it waits, it comes to
 * an end, and touches nothing that is gone.
 */
#include "e2e/harness.h"
#include "runtime/runtime_internal.h"
#include "support/faulty.h"
#include <durite/sys/store.h>

static dur_provider *faulty;
static atomic_int running;

/* Ends half a second after it was told to. */
static dur_outcome late(dur_act *act, const char *input) {
    atomic_fetch_add(&running, 1);
    while (!dur_act_cancelled(act))
        pause_ms(1);
    pause_ms(500);
    return dur_act_complete(act, input);
}

static dur_outcome call_late(dur_ctx *ctx, const char *input) {
    dur_future *work = dur_activity(ctx, "Late", input);
    dur_await(dur_pulse(ctx, "Go"));
    return dur_complete(ctx, dur_await(work));
}

static dur_outcome call_three(dur_ctx *ctx, const char *input) {
    dur_future *work[] = { dur_activity(ctx, "Late", input), dur_activity(ctx, "Late", input),
                           dur_activity(ctx, "Late", input) };
    dur_await(dur_pulse(ctx, "Go"));
    for (size_t i = 0; i < 3; i++)
        dur_await(work[i]);
    return dur_complete(ctx, input);
}

static dur_outcome sleeper(dur_ctx *ctx, const char *input) {
    dur_await(dur_timer(ctx, strtoul(input, NULL, 10)));
    return dur_complete(ctx, "awake");
}

static dur_outcome look_once(dur_ctx *ctx, const char *input) {
    const char *message = NULL;
    (void)input;
    dur_await(dur_pulse(ctx, "Go"));
    return dur_complete(ctx, dur_try_message(ctx, "q", &message) == DUR_OK ? message : "empty");
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Late", late),
    DUR_ORCHESTRATION("CallLate", "1.0.0", call_late),
    DUR_ORCHESTRATION("CallThree", "1.0.0", call_three),
    DUR_ORCHESTRATION("LookOnce", "1.0.0", look_once),
    DUR_ORCHESTRATION("Sleeper", "1.0.0", sleeper),
    DUR_HANDLERS_END,
};

/* The client talks to the store past the faults. */
static void break_store(world *w) {
    OK(w, dur__faulty_wrap(&faulty, w->store, 1, &w->err));
    w->store = faulty;
    atomic_store(&running, 0);
}

/* "q", which waits for its event. */
static void start_looking(world *w) {
    start(w, "LookOnce", "", "q");
    until_history(w, "q", "ExternalSubscribed", 1);
}

static uint64_t cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- waiting costs nothing ---- */

static void a_timer_that_falls_due_in_an_outage_is_waited_for_asleep(void **state) {
    world *w = *state;
    break_store(w);
    RUN(w, handlers);
    start(w, "Sleeper", "300", "t");
    until_history(w, "t", "TimerCreated", 1);
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "lane_round", .count = UINT64_MAX });
    pause_ms(1000); /* due since 700 ms */
    uint64_t begin_ms = cpu_ms();
    pause_ms(1000);
    uint64_t used_ms = cpu_ms() - begin_ms;
    dur__faulty_clear(faulty);
    expect(w, "t", "awake");
    if (used_ms > 300) fail_msg("%u ms of a core in a second of waiting", (unsigned)used_ms);
}

/* ---- what is said ---- */

static char said[160];
static atomic_bool heard;

static void hear(void *unused, const dur_log_record *record) {
    (void)unused;
    if (strstr(record->message, "everything is kept") == NULL || atomic_load(&heard)) return;
    snprintf(said, sizeof(said), "%s", record->message);
    atomic_store(&heard, true);
}

static void expect_said(world *w, dur_code code, const char *text, size_t raised) {
    atomic_store(&heard, false);
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "lane_round", .code = code, .count = UINT64_MAX });
    OK(w, dur_client_pulse(w->client, &w->err, "s", "Wakes", ""));
    while (!atomic_load(&heard))
        pause_ms(1);
    dur__faulty_clear(faulty);
    if (strncmp(said, text, strlen(text)) != 0) fail_msg("%s: \"%s\"", dur_code_name(code), said);
    until_history(w, "s", "\"ExternalEvent\"", raised); /* it goes on: the next failure is a first one */
}

static void a_store_that_refuses_has_answered(void **state) {
    world *w = *state;
    break_store(w);
    RUN(w, handlers);
    start(w, "Sleeper", "3600000", "s");
    until_history(w, "s", "TimerCreated", 1);
    dur_log_set_sink(hear, NULL, DUR_LOG_WARN);
    expect_said(w, DUR_EUNAVAILABLE, "the store does not answer;", 1);
    expect_said(w, DUR_EBUSY, "the store is busy;", 2);
    expect_said(w, DUR_EPERM, "the store refuses;", 3);
    dur_log_set_sink(NULL, NULL, DUR_LOG_WARN);
}

/* How often a failing method is called within a second of outage. */
static uint64_t calls_in_a_second(const char *method) {
    uint64_t before = dur__faulty_calls(faulty, method);
    pause_ms(1000);
    return dur__faulty_calls(faulty, method) - before;
}

static void a_new_owner_id_is_not_asked_for_all_the_time(void **state) {
    world *w = *state;
    break_store(w);
    RUN(w, handlers);
    start_looking(w);
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "owner_register", .count = UINT64_MAX });
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "lane_round", .after = true });
    OK(w, dur_client_pulse(w->client, &w->err, "q", "Go", ""));
    while (dur__faulty_faults(faulty) < 2)
        pause_ms(1);
    uint64_t calls = calls_in_a_second("owner_register");
    dur__faulty_clear(faulty);
    assert_in_range(calls, 0, 20);
    expect(w, "q", "empty");
}

static void a_fenced_runtime_does_not_beat_all_the_time(void **state) {
    world *w = *state;
    break_store(w);
    RUN(w, handlers, .owner_timeout_ms = 1000);
    start_looking(w);
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "owner_beat", .count = UINT64_MAX });
    while (!dur__keeper_fenced(w->runtime))
        pause_ms(1);
    OK(w, dur_client_pulse(w->client, &w->err, "q", "Go", "")); /* the loop is awake, and may not go on */
    uint64_t begin_ms = cpu_ms();
    uint64_t calls = calls_in_a_second("owner_beat");
    uint64_t used_ms = cpu_ms() - begin_ms;
    dur__faulty_clear(faulty);
    assert_in_range(calls, 0, 20);
    assert_in_range(used_ms, 0, 300);
    expect(w, "q", "empty");
}

/* ---- a store that fails is nobody's fault ---- */

static void a_queue_that_cannot_be_read_for_a_while_poisons_nobody(void **state) {
    world *w = *state;
    break_store(w);
    RUN(w, handlers, .max_attempts = 2);
    start_looking(w);
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "lane_messages", .code = DUR_EBUSY, .count = 4 });
    OK(w, dur_client_pulse(w->client, &w->err, "q", "Go", ""));
    expect(w, "q", "empty");
    assert_int_equal(dur__faulty_faults(faulty), 4);
}

/* ---- who waits for an instance that ran here ---- */

static void wait_for_q(void *unused) {
    dur_client *client = NULL;
    char *result = NULL;
    (void)unused;
    assert_int_equal(dur_client_new(&client, faulty, NULL), DUR_OK);
    if (dur_client_result(&result, client, "q", patience_ms(), NULL) == DUR_OK) atomic_store(&running, 1);
    dur_free(result);
    dur_client_free(client);
}

/* The loop has lost its instances, and cannot begin again: whoever waits for them asks the store. */
static void a_loop_without_a_lane_sends_its_waiters_to_the_store(void **state) {
    world *w = *state;
    dur__thread waiter;
    dur_runtime *other = NULL;
    dur_provider *store = NULL;
    break_store(w);
    RUN(w, handlers);
    start_looking(w);
    assert_int_equal(dur__thread_start(&waiter, "waiter", wait_for_q, NULL), 0);
    pause_ms(100); /* so that it waits for this runtime to tell it */
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "lane_open", .count = UINT64_MAX });
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "lane_round", .after = true });
    OK(w, dur_client_pulse(w->client, &w->err, "q", "Go", ""));
    while (dur__faulty_faults(faulty) < 2)
        pause_ms(1);
    OK(w, dur_open(&store, w->url, &w->err));
    OK(w, dur_runtime_start(&other, DUR_RUNTIME(.store = store, .handlers = handlers), &w->err));
    for (int i = 0; i < 20000 && atomic_load(&running) == 0; i++)
        pause_ms(1);
    int in_time = atomic_load(&running);
    dur__thread_join(&waiter);
    dur__faulty_clear(faulty);
    OK(w, dur_runtime_stop(other, patience_ms(), &w->err));
    dur_provider_close(store);
    assert_int_equal(in_time, 1);
}

/* ---- activities that are left behind ---- */

/* It returns after stop has left it behind, and before its instance, whose turn waits for the store, was dropped. */
static void an_activity_that_returns_late_is_not_looked_at_any_more(void **state) {
    world *w = *state;
    break_store(w);
    RUN(w, handlers, .worker_concurrency = 1);
    start(w, "CallLate", "x", "a");
    until_history(w, "a", "ActivityScheduled", 1);
    while (atomic_load(&running) == 0)
        pause_ms(1);
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "turn", .count = UINT64_MAX });
    OK(w, dur_client_pulse(w->client, &w->err, "a", "Go", "gone"));
    while (dur__faulty_faults(faulty) == 0)
        pause_ms(1);
    assert_int_equal(dur_runtime_stop(w->runtime, 0, &w->err), DUR_EBUSY);
    w->runtime = NULL;
}

/* The loop waits for a new owner id that the store does not give, and gives nothing back. */
static void what_waits_for_a_worker_ends_with_the_runtime(void **state) {
    world *w = *state;
    break_store(w);
    RUN(w, handlers, .worker_concurrency = 1);
    start(w, "CallThree", "x", "a");
    until_history(w, "a", "ActivityScheduled", 3);
    while (atomic_load(&running) == 0)
        pause_ms(1);
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "owner_register", .count = UINT64_MAX });
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "lane_round", .after = true });
    OK(w, dur_client_pulse(w->client, &w->err, "a", "Go", "gone"));
    while (dur__faulty_faults(faulty) < 2)
        pause_ms(1);
    assert_int_equal(dur_runtime_stop(w->runtime, 0, &w->err), DUR_EBUSY);
    w->runtime = NULL;
    assert_int_equal(atomic_load(&running), 1); /* nothing was started any more */
}

static void a_loop_that_has_lost_everything_holds_up_no_stop(void **state) {
    world *w = *state;
    break_store(w);
    RUN(w, handlers, .worker_concurrency = 1);
    start_looking(w);
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "owner_register", .count = UINT64_MAX });
    dur__faulty_add(faulty, &(dur__fault_plan){ .method = "lane_round", .after = true });
    OK(w, dur_client_pulse(w->client, &w->err, "q", "Go", ""));
    while (dur__faulty_faults(faulty) < 2)
        pause_ms(1);
    uint64_t begin_ms = dur_world_real()->boot_ms(NULL);
    OK(w, dur_runtime_stop(w->runtime, 30000, &w->err));
    w->runtime = NULL;
    assert_in_range(dur_world_real()->boot_ms(NULL) - begin_ms, 0, 20000); /* ten of them for its lease */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_timer_that_falls_due_in_an_outage_is_waited_for_asleep),
        TEST(a_store_that_refuses_has_answered),
        TEST(a_new_owner_id_is_not_asked_for_all_the_time),
        TEST(a_fenced_runtime_does_not_beat_all_the_time),
        TEST(a_queue_that_cannot_be_read_for_a_while_poisons_nobody),
        TEST(a_loop_without_a_lane_sends_its_waiters_to_the_store),
        TEST(an_activity_that_returns_late_is_not_looked_at_any_more),
        TEST(what_waits_for_a_worker_ends_with_the_runtime),
        TEST(a_loop_that_has_lost_everything_holds_up_no_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
