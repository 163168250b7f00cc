/*
 * test_runtime_timed.c: a store without owners and wake-ups: locks by time that are renewed as the options say, and
 * polling, short or long.
 */
#include "e2e/harness.h"
#include "runtime/runtime_internal.h"
#include "support/faulty.h"
#include <durite/sys/store.h>

static dur_provider *counted; /* the store of the test; it counts the calls of each method */
static atomic_int runs, handled;

static void until_called(const char *method, uint64_t times) {
    while (dur__faulty_calls(counted, method) < times)
        pause_ms(1);
}

static dur_outcome long_work(dur_act *act, const char *input) {
    atomic_fetch_add(&runs, 1);
    until_called("renew_work_item_lock", 2);
    until_called("renew_session_lock", 2);
    until_called("cleanup_orphaned_sessions", 2);
    return dur_act_complete(act, input);
}

static dur_outcome long_turn(dur_ctx *ctx, const char *input) {
    if (!dur_is_replaying(ctx)) {
        atomic_fetch_add(&handled, 1);
        until_called("renew_orchestration_item_lock", 2);
    }
    return dur_complete(ctx, dur_await(dur_activity(ctx, "LongWork", input, .session = "s")));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("LongWork", long_work),
    DUR_ORCHESTRATION("LongTurn", "1.0.0", long_turn),
    DUR_HANDLERS_END,
};

static void locks_by_time_are_renewed(void **state) {
    world *w = *state;
    OK(w, dur__minimal_wrap(&counted, w->store, &w->err));
    w->store = counted;
    dur_client_free(w->client);
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    /* Renewed a minute less the buffer after the last time: each second, though the locks are far from their end. */
    RUN(w, handlers, .orchestration_concurrency = 1, .dispatcher_min_poll_interval_ms = 1,
        .orchestrator_lock_timeout_ms = 60000, .orchestrator_lock_renewal_buffer_ms = 59000,
        .worker_lock_timeout_ms = 60000, .worker_lock_renewal_buffer_ms = 59000, .session_lock_timeout_ms = 60000,
        .session_lock_renewal_buffer_ms = 59000, .session_cleanup_interval_ms = 100);
    start(w, "LongTurn", "through", "t");
    expect(w, "t", "through");
    assert_int_equal(atomic_load(&handled), 1);
    assert_int_equal(atomic_load(&runs), 1);
}

/* How often an idle runtime asks is what the option says: many times within the interval that is the default. */
static void it_polls_as_often_as_asked(void **state) {
    world *w = *state;
    OK(w, dur__minimal_wrap(&counted, w->store, &w->err));
    w->store = counted;
    RUN(w, handlers, .orchestration_concurrency = 1, .dispatcher_min_poll_interval_ms = 3600 * 1000);
    until_called("fetch_orchestration_item", 1);
    pause_ms(300);
    uint64_t seldom = dur__faulty_calls(counted, "fetch_orchestration_item");
    assert_true(seldom <= 3);
    world_stop(w);
    RUN(w, handlers, .orchestration_concurrency = 1, .dispatcher_min_poll_interval_ms = 1);
    until_called("fetch_orchestration_item", seldom + 50);
}

/* ---- long polls ---- */

#define LONG_MS 3000000u /* no test waits for that: `leave` ends it */

static const dur_provider_methods *plain; /* what polling_store has changed */
static dur_provider_methods polling;
static atomic_int inside_turns, inside_works, begun; /* long polls that wait now, that began ever */
static atomic_bool leave, blind, shut;               /* end them; they find nothing; a short poll finds nothing */
static atomic_ullong asked_turns, asked_works;       /* poll times that the store has seen last */

/* Waits as a store with a blocking read does.  False: the time is over. */
static bool goes_on(uint64_t begin_ms, uint64_t poll_ms) {
    if (atomic_load(&leave) || dur_world_real()->boot_ms(NULL) - begin_ms >= poll_ms) return false;
    pause_ms(1);
    return true;
}

static int polled_turn(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                       dur_error *err) {
    if (how->poll_ms == 0)
        return atomic_load(&shut) ? DUR_OK : plain->fetch_orchestration_item(self, arena, how, out, err);
    uint64_t begin_ms = dur_world_real()->boot_ms(NULL);
    int code = DUR_OK;
    atomic_store(&asked_turns, how->poll_ms);
    atomic_fetch_add(&begun, 1);
    atomic_fetch_add(&inside_turns, 1);
    do {
        if (!atomic_load(&blind)) code = plain->fetch_orchestration_item(self, arena, how, out, err);
    } while (code == DUR_OK && out->instance == NULL && goes_on(begin_ms, how->poll_ms));
    atomic_fetch_sub(&inside_turns, 1);
    return code;
}

static int polled_work(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                       dur_error *err) {
    if (how->poll_ms == 0) return atomic_load(&shut) ? DUR_OK : plain->fetch_work_item(self, arena, how, out, err);
    uint64_t begin_ms = dur_world_real()->boot_ms(NULL);
    int code = DUR_OK;
    atomic_store(&asked_works, how->poll_ms);
    atomic_fetch_add(&begun, 1);
    atomic_fetch_add(&inside_works, 1);
    do {
        if (!atomic_load(&blind)) code = plain->fetch_work_item(self, arena, how, out, err);
    } while (code == DUR_OK && out->json.data == NULL && goes_on(begin_ms, how->poll_ms));
    atomic_fetch_sub(&inside_works, 1);
    return code;
}

static void until_they_wait(void) {
    while (atomic_load(&inside_turns) == 0 || atomic_load(&inside_works) == 0)
        pause_ms(1);
}

static dur_outcome patient_work(dur_act *act, const char *input) {
    until_they_wait();
    return dur_act_complete(act, input);
}

static dur_outcome three_works(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < 3; i++)
        input = dur_await(dur_activity(ctx, "PatientWork", input));
    return dur_complete(ctx, input);
}

static dur_outcome on_event(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static const dur_handler poll_handlers[] = {
    DUR_ACTIVITY("PatientWork", patient_work),
    DUR_ORCHESTRATION("ThreeWorks", "1.0.0", three_works),
    DUR_ORCHESTRATION("OnEvent", "1.0.0", on_event),
    DUR_HANDLERS_END,
};

static void polling_store(world *w) {
    OK(w, dur__minimal_wrap(&counted, w->store, &w->err));
    plain = counted->methods;
    polling = *plain;
    polling.fetch_orchestration_item = polled_turn;
    polling.fetch_work_item = polled_work;
    counted->methods = &polling;
    w->store = counted;
    dur_client_free(w->client);
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    atomic_store(&leave, false);
    atomic_store(&blind, false);
    atomic_store(&shut, false);
    atomic_store(&begun, 0);
}

/* The option reaches the store, and what a long poll finds is run though nobody looks otherwise. */
static void a_long_poll_waits_in_the_store(void **state) {
    world *w = *state;
    polling_store(w);
    RUN(w, poll_handlers, .dispatcher_min_poll_interval_ms = 3600 * 1000, .dispatcher_long_poll_timeout_ms = LONG_MS);
    until_they_wait();
    assert_int_equal(atomic_load(&asked_turns), LONG_MS);
    assert_int_equal(atomic_load(&asked_works), LONG_MS);
    start(w, "OnEvent", "", "e");
    while (progress_of(w, "e") == 0)
        pause_ms(1);
    OK(w, dur_client_pulse(w->client, &w->err, "e", "Go", "gone"));
    expect(w, "e", "gone");
    start(w, "ThreeWorks", "done", "a");
    expect(w, "a", "done");
    atomic_store(&leave, true);
    world_stop(w);
}

/* A poll that finds nothing holds up neither completions nor turns. */
static void a_loop_goes_on_while_a_long_poll_waits(void **state) {
    world *w = *state;
    polling_store(w);
    atomic_store(&blind, true);
    start(w, "ThreeWorks", "done", "a");
    RUN(w, poll_handlers, .orchestration_concurrency = 1, .dispatcher_long_poll_timeout_ms = LONG_MS);
    expect(w, "a", "done");
    assert_int_equal(atomic_load(&inside_turns), 1); /* the one of the beginning */
    assert_int_equal(atomic_load(&begun), 2);
    atomic_store(&leave, true);
    world_stop(w);
}

/* Stopping waits for the polls that are out and begins no other. */
static void stopping_waits_for_one_long_poll(void **state) {
    world *w = *state;
    polling_store(w);
    atomic_store(&blind, true);
    RUN(w, poll_handlers, .orchestration_concurrency = 1, .dispatcher_min_poll_interval_ms = 1,
        .dispatcher_long_poll_timeout_ms = 300);
    until_they_wait();
    int before = atomic_load(&begun);
    world_stop(w);
    assert_in_range(atomic_load(&begun) - before, 0, 2); /* each may have begun another while we looked */
    assert_int_equal(atomic_load(&inside_turns) + atomic_load(&inside_works), 0);
}

static void open_eyes_when_it_stops(void *runtime) {
    while (dur__runtime_phase(runtime) == DUR__PHASE_RUN)
        pause_ms(1);
    atomic_store(&blind, false);
}

/* What a poll brings after that goes back, and was no attempt. */
static void what_comes_while_stopping_goes_back(void **state) {
    world *w = *state;
    dur_arena *arena = dur_arena_new();
    dur_orchestration_item item = { .instance = NULL };
    dur__thread other;
    polling_store(w);
    atomic_store(&blind, true);
    RUN(w, poll_handlers, .orchestration_concurrency = 1, .dispatcher_long_poll_timeout_ms = LONG_MS);
    until_they_wait();
    atomic_store(&shut, true);
    start(w, "OnEvent", "", "e");
    OK(w, dur_store_enqueue_for_worker(w->store,
                                       &(dur_message_row){ .kind = DUR_WORK_ACTIVITY_EXECUTE,
                                                           .instance = "e",
                                                           .execution_id = 1,
                                                           .activity_id = 7,
                                                           .json = { "{}", 2 } },
                                       &w->err));
    assert_int_equal(dur__thread_start(&other, "eyes", open_eyes_when_it_stops, w->runtime), 0);
    world_stop(w);
    dur__thread_join(&other);
    atomic_store(&shut, false);
    dur_leased_work work = { .lock_token = NULL };
    OK(w, dur_store_fetch_work_item(w->store, arena, &(dur_work_fetch){ .lock_ms = 1000 }, &work, &w->err));
    assert_int_equal(work.attempt_count, 1);
    OK(w, dur_store_fetch_orchestration_item(w->store, arena, &(dur_fetch){ .lock_ms = 1000 }, &item, &w->err));
    assert_string_equal(item.instance, "e");
    assert_int_equal(item.attempt_count, 1);
    dur_arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(locks_by_time_are_renewed),        TEST(it_polls_as_often_as_asked),
        TEST(a_long_poll_waits_in_the_store),   TEST(a_loop_goes_on_while_a_long_poll_waits),
        TEST(stopping_waits_for_one_long_poll), TEST(what_comes_while_stopping_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
