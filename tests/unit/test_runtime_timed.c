/*
 * test_runtime_timed.c: a store without owners and wake-ups: locks by time that are renewed as the options say, and
 * polling.
 */
#include "e2e/harness.h"
#include "provider/faulty.h"
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

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(locks_by_time_are_renewed),
        TEST(it_polls_as_often_as_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
