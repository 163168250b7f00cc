/*
 * fault_starts.c: a store that has trouble while first turns are to be written.  Whoever starts does not notice, or is
 * told that nobody knows whether it was written; and what was started runs exactly once.
 */
#include "e2e/harness.h"
#include "support/faulty.h"
#include <pthread.h>

enum { THREADS = 4 };

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome one(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

static dur_outcome at_once(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("One", "1.0.0", one),
    DUR_ORCHESTRATION("AtOnce", "1.0.0", at_once),
    DUR_HANDLERS_END,
};

static void decorate(world *w) {
    dur_provider *wrapped = NULL;
    OK(w, dur__faulty_wrap(&wrapped, w->store, 7, &w->err));
    w->store = wrapped;
    dur_client_free(w->client);
    OK(w, dur_client_new(&w->client, w->store, &w->err));
}

typedef struct starter {
    world *w;
    size_t batch, number, each;
    bool may_be_lost; /* the answer to a commit */
    int codes[64];
    pthread_t thread;
} starter;

static void id_of(char id[48], const starter *s, size_t at) {
    snprintf(id, 48, "b%zu-%zu-%zu", s->batch, s->number, at);
}

static void *start_some(void *arg) {
    starter *s = arg;
    for (size_t i = 0; i < s->each; i++) {
        char id[48];
        dur_error err = DUR_ERROR_INIT;
        id_of(id, s, i);
        const char *name = i % 2 == 0 ? "One" : "AtOnce";
        s->codes[i] = dur_client_start(s->w->client, &err, name, id, .instance = id);
        while (s->may_be_lost && s->codes[i] == DUR_EUNKNOWN) /* what a program does that is told so */
            s->codes[i] =
                dur_client_start(s->w->client, &err, name, id, .instance = id, .exists = DUR_START_RETURN_EXISTING);
    }
    return NULL;
}

/* Starts from several threads at once, and what became of them. */
static void start_batch(world *w, size_t batch, size_t each, bool may_be_lost) {
    starter all[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        all[i] = (starter){ .w = w, .batch = batch, .number = i, .each = each, .may_be_lost = may_be_lost };
        assert_int_equal(pthread_create(&all[i].thread, NULL, start_some, &all[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(all[i].thread, NULL);
    for (size_t i = 0; i < THREADS; i++) {
        for (size_t k = 0; k < each; k++) {
            char id[48], *result = NULL;
            id_of(id, &all[i], k);
            assert_int_equal(all[i].codes[k], DUR_OK); /* the call itself had no trouble */
            OK(w, result_of(w, id, &result));
            assert_string_equal(result, id);
            dur_free(result);
            assert_int_equal(history_count(w, id, 1, "\"OrchestrationStarted\""), 1);
            assert_int_equal(history_count(w, id, 1, "\"ActivityCompleted\""), k % 2 == 0);
            assert_int_equal(history_count(w, id, 1, "\"OrchestrationCompleted\""), 1);
        }
    }
}

static void at_every_call(void **state, const char *method, bool after) {
    world *w = *state;
    decorate(w);
    RUN(w, handlers, .orchestration_concurrency = 2);
    start_batch(w, 0, 2, false);
    for (size_t n = 1; n <= scaled(12, 4); n++) {
        dur__faulty_clear(w->store);
        dur__faulty_add(w->store, &(dur__fault_plan){ .method = method, .first = n, .after = after });
        start_batch(w, n, 2, after);
    }
    dur__faulty_clear(w->store);
    start_batch(w, 1000, 2, false);
}

static void a_round_that_fails_before_it_did_anything(void **state) {
    at_every_call(state, "lane_round", false);
}

static void a_round_whose_answer_is_lost(void **state) {
    at_every_call(state, "lane_round", true);
}

static void a_turn_that_fails_before_it_was_written(void **state) {
    at_every_call(state, "turn", false);
}

static void a_turn_whose_answer_is_lost(void **state) {
    at_every_call(state, "turn", true);
}

static void trouble_of_every_kind_again_and_again(void **state) {
    world *w = *state;
    decorate(w);
    dur__faulty_add(w->store, &(dur__fault_plan){ .method = "lane_round", .count = UINT64_MAX, .per_mille = 100 });
    dur__faulty_add(w->store, &(dur__fault_plan){ .method = "turn", .count = UINT64_MAX, .per_mille = 100 });
    dur__faulty_add(w->store,
                    &(dur__fault_plan){ .method = "lane_round", .count = UINT64_MAX, .per_mille = 20, .after = true });
    RUN(w, handlers, .orchestration_concurrency = 2);
    start_batch(w, 0, scaled(40, 6), true);
    dur__faulty_clear(w->store);
}

int main(void) {
    if (getenv("DURITE_TEST_LOG") != NULL) dur_log_set_sink(dur_log_text, stderr, DUR_LOG_DEBUG);
    const struct CMUnitTest tests[] = {
        TEST(a_round_that_fails_before_it_did_anything), TEST(a_round_whose_answer_is_lost),
        TEST(a_turn_that_fails_before_it_was_written),   TEST(a_turn_whose_answer_is_lost),
        TEST(trouble_of_every_kind_again_and_again),
    };
    return cmocka_run_group_tests_name("fault_starts", tests, NULL, NULL);
}
