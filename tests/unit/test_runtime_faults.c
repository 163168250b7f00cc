/*
 * test_runtime_faults.c: a store that fails changes nothing but the time it takes (L4, L7).
 *
 * The same workload runs undisturbed and then with the Nth call failing, for every N and each kind of failure: the
 * histories must be equal, times apart.
 */
#include "workload.h"

#include "support/faulty.h"

typedef struct trouble {
    const char *method;
    bool after;     /* it happened, and the answer was lost */
    uint64_t count; /* how many in a row */
} trouble;

static char *run_with(world *w, const trouble *t, uint64_t nth, uint64_t *calls, bool evict) {
    char url[64];
    static unsigned serial;
    dur_provider *inner = NULL, *faulty = NULL;
    dur_client *client = NULL;
    dur_runtime *runtime = NULL;
    snprintf(url, sizeof(url), "memory:faults-%u", ++serial);
    OK(w, dur_open(&inner, url, &w->err));
    OK(w, dur_client_new(&client, inner, &w->err));
    OK(w, dur__faulty_wrap(&faulty, inner, 1, &w->err));
    if (t != NULL)
        dur__faulty_add(faulty,
                        &(dur__fault_plan){ .method = t->method, .first = nth, .count = t->count, .after = t->after });
    for (int i = 0; i < 20 && runtime == NULL; i++)
        (void)dur_runtime_start(
            &runtime,
            DUR_RUNTIME(.store = faulty, .handlers = work_handlers, .worker_concurrency = 1, .evict_every_turn = evict),
            &w->err);
    assert_non_null(runtime);
    char *histories = work_run(w, client);
    if (calls != NULL) *calls = dur__faulty_calls(faulty, t != NULL ? t->method : NULL);
    OK(w, dur_runtime_stop(runtime, patience_ms(), &w->err));
    dur_client_free(client);
    dur_provider_close(faulty);
    return histories;
}

static void every_nth(world *w, const trouble *t, bool evict) {
    char *wanted = run_with(w, NULL, 0, NULL, evict);
    uint64_t calls = 1;
    uint64_t step = scaled(100, 1) >= 100 ? 1 : 7; /* fewer under sanitizers */
    for (uint64_t nth = 1; nth <= calls && nth <= 60; nth += step) {
        char *got = run_with(w, t, nth, &calls, evict);
        if (strcmp(wanted, got) != 0) {
            fprintf(stderr, "wanted:\n%s\ngot:\n%s\n", wanted, got);
            fail_msg("failing call %u of %s changed the history", (unsigned)nth, t->method != NULL ? t->method : "all");
        }
        free(got);
    }
    free(wanted);
}

static void a_turn_that_failed_is_submitted_again(void **state) {
    every_nth(*state, &(trouble){ .method = "turn", .count = 2 }, false);
}

static void a_round_that_failed_is_asked_again(void **state) {
    every_nth(*state, &(trouble){ .method = "lane_round", .count = 2 }, false);
}

static void an_unknown_outcome_is_learned(void **state) {
    every_nth(*state, &(trouble){ .method = "lane_round", .count = 1, .after = true }, false);
}

static void an_unknown_turn_is_learned(void **state) {
    every_nth(*state, &(trouble){ .method = "turn", .count = 1, .after = true }, false);
}

static void ends_of_activities_are_submitted_again(void **state) {
    every_nth(*state, &(trouble){ .method = "ack", .count = 2 }, true);
}

static void evicted_handlers_survive_failed_turns(void **state) {
    every_nth(*state, &(trouble){ .method = "turn", .count = 1 }, true);
}

/* The release writes the rows of activities that end meanwhile. */
static void an_unknown_release_is_learned(void **state) {
    every_nth(*state, &(trouble){ .method = "lane_round", .count = 1, .after = true }, true);
    every_nth(*state, &(trouble){ .method = "turn", .count = 1, .after = true }, true);
}

static void any_call_may_fail(void **state) {
    every_nth(*state, &(trouble){ .count = 3 }, false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_turn_that_failed_is_submitted_again),
        TEST(a_round_that_failed_is_asked_again),
        TEST(an_unknown_outcome_is_learned),
        TEST(an_unknown_turn_is_learned),
        TEST(ends_of_activities_are_submitted_again),
        TEST(evicted_handlers_survive_failed_turns),
        TEST(an_unknown_release_is_learned),
        TEST(any_call_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
