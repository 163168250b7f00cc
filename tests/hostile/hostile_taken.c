/*
 * hostile_taken.c: leases that are taken away from a living node, again and again: no evidence against anybody.
 *
 * Handlers and activities stand still until the test lets them go, so that each lease is taken in the middle of a turn.
 */
#include "hostile.h"
#include <stdatomic.h>

enum { ATTEMPTS = 2, TIMES = 5 };

static atomic_size_t begun, let_go; /* runs of user code that have begun, and how many of them may end */

static void stand_still(void) {
    size_t mine = atomic_fetch_add(&begun, 1);
    while (atomic_load(&let_go) <= mine)
        pause_ms(1);
}

static void until_begun(size_t count) {
    for (uint64_t waited_ms = 0; atomic_load(&begun) < count; waited_ms++) {
        if (waited_ms > patience_ms()) fail_msg("began %zu times, wanted %zu", atomic_load(&begun), count);
        pause_ms(1);
    }
}

static int taken_setup(void **state) {
    atomic_store(&begun, 0);
    atomic_store(&let_go, 0);
    return world_setup(state);
}

#define TAKEN_TEST(name) cmocka_unit_test_setup_teardown(name, taken_setup, world_teardown)

static dur_outcome stands_at_first(dur_ctx *ctx, const char *input) {
    stand_still();
    return dur_complete(ctx, input);
}

static dur_outcome stands_behind_an_event(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *said = dur_await(dur_pulse(ctx, "go"));
    stand_still();
    return dur_complete(ctx, said);
}

static dur_outcome stands_behind_an_activity(dur_ctx *ctx, const char *input) {
    const char *said = dur_await(dur_activity(ctx, "Nods", input));
    stand_still();
    return dur_complete(ctx, said);
}

static dur_outcome waits_for_an_activity(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Stands", input)));
}

static dur_outcome nods(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome stands(dur_act *act, const char *input) {
    stand_still();
    return dur_act_complete(act, input);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Nods", nods),
    DUR_ACTIVITY("Stands", stands),
    DUR_ORCHESTRATION("AtFirst", "1.0.0", stands_at_first),
    DUR_ORCHESTRATION("BehindAnEvent", "1.0.0", stands_behind_an_event),
    DUR_ORCHESTRATION("BehindAnActivity", "1.0.0", stands_behind_an_activity),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits_for_an_activity),
    DUR_HANDLERS_END,
};

static void suspend_and_resume(world *w, const char *instance) {
    OK(w, dur_client_suspend(w->client, instance, "by the test", &w->err));
    OK(w, dur_client_resume(w->client, instance, &w->err));
}

/* False: it has ended. */
static bool begins_again(world *w, const char *instance, size_t count) {
    for (uint64_t waited_ms = 0; atomic_load(&begun) < count; waited_ms++) {
        char *result = NULL;
        int code = dur_client_result(&result, w->client, instance, 1, NULL);
        dur_free(result);
        if (code == DUR_OK) return false;
        if (waited_ms > patience_ms()) fail_msg("began %zu times, wanted %zu", atomic_load(&begun), count);
    }
    return true;
}

/* Each of its turns loses its lease while it runs, then one may end; where the store asks for the lease instead, the
   turn that runs is the last before it is given up, and here the last of all. */
static void take_away_and_let_end(world *w, const char *instance, const char *result) {
    for (size_t i = 1; i <= TIMES && begins_again(w, instance, i); i++) {
        suspend_and_resume(w, instance);
        atomic_store(&let_go, i);
    }
    if (atomic_load(&begun) == TIMES) (void)begins_again(w, instance, TIMES + 1);
    atomic_store(&let_go, SIZE_MAX);
    expect(w, instance, result);
}

static void fault_h73_a_first_turn_that_is_suspended_often_is_no_poison(void **state) {
    world *w = *state;
    start(w, "AtFirst", "done", "i"); /* there is nobody yet who would run it before it is written */
    RUN(w, handlers, .max_attempts = ATTEMPTS);
    take_away_and_let_end(w, "i", "done");
}

static void fault_h73_a_turn_that_an_event_began_is_suspended_often_and_no_poison(void **state) {
    world *w = *state;
    start(w, "BehindAnEvent", "", "i");
    RUN(w, handlers, .max_attempts = ATTEMPTS);
    until_history(w, "i", "ExternalSubscribed", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "i", "go", "done"));
    take_away_and_let_end(w, "i", "done");
}

static void fault_h73_a_turn_that_a_result_began_is_suspended_often_and_no_poison(void **state) {
    world *w = *state;
    start(w, "BehindAnActivity", "done", "i");
    RUN(w, handlers, .max_attempts = ATTEMPTS);
    take_away_and_let_end(w, "i", "done");
}

/* The lease goes, the activity's row stays: it runs once. */
static void fault_h73_an_activity_whose_instance_is_suspended_often_runs_once(void **state) {
    world *w = *state;
    start(w, "Waits", "done", "i");
    RUN(w, handlers, .max_attempts = ATTEMPTS);
    until_begun(1);
    for (size_t i = 0; i < TIMES; i++) {
        suspend_and_resume(w, "i");
        pause_ms(5); /* also while the instance is held again, and while it is not */
    }
    atomic_store(&let_go, SIZE_MAX);
    expect(w, "i", "done");
    assert_int_equal(atomic_load(&begun), 1);
}

static const struct CMUnitTest tests[] = {
    TAKEN_TEST(fault_h73_a_first_turn_that_is_suspended_often_is_no_poison),
    TAKEN_TEST(fault_h73_a_turn_that_an_event_began_is_suspended_often_and_no_poison),
    TAKEN_TEST(fault_h73_a_turn_that_a_result_began_is_suspended_often_and_no_poison),
    TAKEN_TEST(fault_h73_an_activity_whose_instance_is_suspended_often_runs_once),
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
