/*
 * e2e_starts.c: starts of a process that also runs what it starts.  Whoever writes a start, and whenever its first turn
 * runs: one start of an id counts, nothing that was acknowledged is lost, and the first turn has no privilege.
 */
#include "harness.h"
#include <pthread.h>

enum { THREADS = 6 };

/* ---- handlers ---- */

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome at_once(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}

static atomic_int counted_runs;
static dur_outcome counts_runs(dur_ctx *ctx, const char *input) {
    atomic_fetch_add(&counted_runs, 1);
    return dur_complete(ctx, input);
}

static dur_outcome fails_at_once(dur_ctx *ctx, const char *input) {
    return dur_fail(ctx, input);
}

static dur_outcome one_step(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome asks_first(dur_ctx *ctx, const char *input) {
    const char *message = NULL;
    (void)input;
    if (dur_try_message(ctx, "q", &message) == DUR_OK && message != NULL) return dur_fail(ctx, message);
    return dur_complete(ctx, "empty");
}

/* Continues in its first turn, until the third execution has a child. */
static dur_outcome generations(dur_ctx *ctx, const char *input) {
    if (dur_execution_id(ctx) < 3) return dur_continue_as_new(ctx, dur_format(ctx, "%s+", input));
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "OneStep", input)));
}

static dur_outcome everything_first(dur_ctx *ctx, const char *input) {
    dur_status_set(ctx, "begun");
    dur_kv_set(ctx, "k", input);
    dur_future *timer = dur_timer(ctx, 5), *child = dur_orchestration(ctx, "AtOnce", input);
    dur_future *step = dur_activity(ctx, "Echo", input);
    dur_join(timer, child, step);
    const char *from_child = dur_await(child);
    return dur_completef(ctx, "%s %s", from_child, dur_kv_get(ctx, "k"));
}

static dur_outcome takes_too_much(dur_ctx *ctx, const char *input) {
    for (size_t i = 0; i < 64; i++)
        memset(dur_alloc(ctx, 1 << 20), 1, 1 << 20);
    return dur_complete(ctx, input);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("AtOnce", "1.0.0", at_once),
    DUR_ORCHESTRATION("CountsRuns", "1.0.0", counts_runs),
    DUR_ORCHESTRATION("FailsAtOnce", "1.0.0", fails_at_once),
    DUR_ORCHESTRATION("OneStep", "1.0.0", one_step),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("AsksFirst", "1.0.0", asks_first),
    DUR_ORCHESTRATION("Generations", "1.0.0", generations),
    DUR_ORCHESTRATION("EverythingFirst", "1.0.0", everything_first),
    DUR_ORCHESTRATION("TakesTooMuch", "1.0.0", takes_too_much),
    DUR_HANDLERS_END,
};

/* ---- threads that start ---- */

typedef struct starter {
    world *w;
    size_t number;
    const char *name;
    size_t count;
    unsigned char *codes; /* of each start */
    atomic_bool *stop;
    atomic_size_t *done; /* by all of them */
    pthread_t thread;
} starter;

static void together(world *w, starter *all, void *(*what)(void *)) {
    for (size_t i = 0; i < THREADS; i++) {
        all[i].w = w;
        all[i].number = i;
        all[i].codes = calloc(all[i].count, 1);
        assert_int_equal(pthread_create(&all[i].thread, NULL, what, &all[i]), 0);
    }
}

static void wait_for(starter *all) {
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(all[i].thread, NULL);
}

static void starters_free(starter *all) {
    for (size_t i = 0; i < THREADS; i++)
        free(all[i].codes);
}

static void *start_the_same(void *arg) {
    starter *s = arg;
    for (size_t i = 0; i < s->count; i++) {
        char id[32];
        snprintf(id, sizeof(id), "same-%zu", i);
        dur_error err = DUR_ERROR_INIT;
        s->codes[i] = (unsigned char)dur_client_start(s->w->client, &err, "OneStep", id, .instance = id);
    }
    return NULL;
}

static void of_many_starts_of_one_id_one_counts(void **state) {
    world *w = *state;
    starter all[THREADS];
    size_t ids = scaled(60, 10);
    RUN(w, handlers, .orchestration_concurrency = 3);
    for (size_t i = 0; i < THREADS; i++)
        all[i] = (starter){ .count = ids };
    together(w, all, start_the_same);
    wait_for(all);
    for (size_t i = 0; i < ids; i++) {
        char id[32];
        size_t won = 0, refused = 0;
        for (size_t k = 0; k < THREADS; k++) {
            won += all[k].codes[i] == DUR_OK;
            refused += all[k].codes[i] == DUR_EEXISTS;
        }
        assert_int_equal(won, 1);
        assert_int_equal(refused, THREADS - 1);
        snprintf(id, sizeof(id), "same-%zu", i);
        expect(w, id, id);
        assert_int_equal(history_count(w, id, 1, "\"OrchestrationStarted\""), 1);
        assert_int_equal(history_count(w, id, 1, "\"ActivityCompleted\""), 1);
    }
    starters_free(all);
}

static void *start_until_told(void *arg) {
    starter *s = arg;
    for (size_t i = 0; i < s->count && !atomic_load(s->stop); i++) {
        char id[32];
        snprintf(id, sizeof(id), "s%zu-%zu", s->number, i);
        dur_error err = DUR_ERROR_INIT;
        int code = dur_client_start(s->w->client, &err, "OneStep", id, .instance = id);
        s->codes[i] = (unsigned char)(code == DUR_OK ? 1 : 2);
        atomic_fetch_add(s->done, 1);
    }
    return NULL;
}

static void no_start_is_lost_when_the_runtime_stops(void **state) {
    world *w = *state;
    starter all[THREADS];
    atomic_bool stop = false;
    atomic_size_t done = 0;
    size_t most = 400;
    RUN(w, handlers, .orchestration_concurrency = 2);
    for (size_t i = 0; i < THREADS; i++)
        all[i] = (starter){ .count = most, .stop = &stop, .done = &done };
    together(w, all, start_until_told);
    for (size_t i = 0; i < 3; i++) { /* stops with some under way, and begins again beside the others */
        size_t from = atomic_load(&done), until = from + scaled(60, 12);
        while (atomic_load(&done) < until && atomic_load(&done) < THREADS * most)
            pause_ms(1);
        world_stop(w);
        if (i < 2) RUN(w, handlers, .orchestration_concurrency = 2);
    }
    atomic_store(&stop, true);
    wait_for(all);
    RUN(w, handlers);
    for (size_t i = 0; i < THREADS; i++) {
        for (size_t k = 0; k < most && all[i].codes[k] != 0; k++) {
            char id[32], *result = NULL;
            snprintf(id, sizeof(id), "s%zu-%zu", i, k);
            int code = result_of(w, id, &result);
            if (code != DUR_ENOTFOUND || all[i].codes[k] == 1) {
                OK(w, code);
                assert_string_equal(result, id);
                assert_int_equal(history_count(w, id, 1, "\"ActivityCompleted\""), 1);
            }
            dur_free(result);
        }
    }
    starters_free(all);
}

static void *start_and_raise(void *arg) {
    starter *s = arg;
    for (size_t i = 0; i < s->count; i++) {
        char id[32];
        snprintf(id, sizeof(id), "r%zu-%zu", s->number, i);
        dur_error err = DUR_ERROR_INIT;
        int code = dur_client_start(s->w->client, &err, "Waits", "", .instance = id);
        if (code == DUR_OK) code = dur_client_pulse(s->w->client, &err, id, "Go", id);
        s->codes[i] = (unsigned char)code;
    }
    return NULL;
}

static void an_event_raised_right_after_the_start_arrives(void **state) {
    world *w = *state;
    starter all[THREADS];
    size_t each = scaled(40, 5);
    RUN(w, handlers, .orchestration_concurrency = 2);
    for (size_t i = 0; i < THREADS; i++)
        all[i] = (starter){ .count = each };
    together(w, all, start_and_raise);
    wait_for(all);
    for (size_t i = 0; i < THREADS; i++) {
        for (size_t k = 0; k < each; k++) {
            char id[32];
            assert_int_equal(all[i].codes[k], DUR_OK);
            snprintf(id, sizeof(id), "r%zu-%zu", i, k);
            expect(w, id, id);
        }
    }
    starters_free(all);
}

/* ---- first turns ---- */

static void a_first_turn_may_be_the_last(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "AtOnce", "all", "a");
    expect(w, "a", "all");
    start(w, "FailsAtOnce", "no", "f");
    expect_failure(w, "f", DUR_EFAILED, "no");
    assert_int_equal(dur_client_start(w->client, &w->err, "AtOnce", "", .instance = "a"), DUR_EEXISTS);
    OK(w, dur_client_start(w->client, &w->err, "AtOnce", "", .instance = "a", .exists = DUR_START_RETURN_EXISTING));
    expect(w, "a", "all");
    OK(w, dur_client_start(w->client, &w->err, "AtOnce", "new", .instance = "a", .exists = DUR_START_REPLACE_FINISHED));
    expect(w, "a", "new");
    assert_int_equal(history_count(w, "a", 1, "\"OrchestrationCompleted\""), 1);
}

/* A store that takes no first turn of an unwritten start gets it a second time: twice the work. */
static void a_first_turn_runs_once(void **state) {
    world *w = *state;
    atomic_store(&counted_runs, 0);
    RUN(w, handlers);
    for (int i = 0; i < 20; i++) {
        char id[32];
        snprintf(id, sizeof(id), "c%d", i);
        start(w, "CountsRuns", id, id);
        expect(w, id, id);
    }
    if (getenv("DURITE_DOUBLE_RUN") == NULL) assert_in_range(atomic_load(&counted_runs), 20, 22);
}

static void a_first_turn_may_do_everything(void **state) {
    world *w = *state;
    char *value = NULL;
    RUN(w, handlers);
    start(w, "EverythingFirst", "in", "e");
    start(w, "Generations", "g", "g");
    expect(w, "e", "in in");
    expect(w, "g", "g++");
    OK(w, dur_client_kv_get(&value, w->client, "e", "k", &w->err));
    assert_string_equal(value, "in");
    dur_free(value);
}

/* Nobody has sent anything to whom nobody knows: the store need not be asked, and is not. */
static void a_first_turn_finds_its_queues_empty(void **state) {
    world *w = *state;
    RUN(w, handlers);
    for (int i = 0; i < 20; i++) {
        char id[32];
        snprintf(id, sizeof(id), "q%d", i);
        start(w, "AsksFirst", "", id);
        expect(w, id, "empty");
    }
    dur_metrics m = { .size = sizeof(m) };
    OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    assert_int_equal(m.provider_errors, 0);
}

static void a_first_turn_over_the_limit_is_suspended(void **state) {
    world *w = *state;
    dur_instance_info *info = NULL;
    RUN(w, handlers, .arena_bytes_max = 8 << 20);
    start(w, "TakesTooMuch", "enough", "t");
    OK(w, dur_client_wait(&info, w->client, "t", patience_ms(), &w->err));
    assert_non_null(info->suspend_reason);
    dur_instance_info_free(info);
    world_stop(w);
    OK(w, dur_client_resume(w->client, "t", &w->err));
    RUN(w, handlers);
    expect(w, "t", "enough");
}

static void a_name_that_nobody_knows_waits_for_somebody(void **state) {
    world *w = *state;
    const dur_handler poor[] = { DUR_ORCHESTRATION("AtOnce", "1.0.0", at_once), DUR_HANDLERS_END };
    dur_runtime *other = NULL;
    RUN(w, poor, .unregistered_backoff_ms = 10);
    start(w, "OneStep", "late", "unknown");
    start(w, "AtOnce", "here", "known");
    expect(w, "known", "here");
    assert_int_equal(dur_client_start(w->client, &w->err, "OneStep", "", .instance = "unknown"), DUR_EEXISTS);
    OK(w, dur_runtime_start(&other, DUR_RUNTIME(.store = w->store, .handlers = handlers), &w->err));
    expect(w, "unknown", "late");
    assert_int_equal(history_count(w, "unknown", 1, "\"OrchestrationStarted\""), 1);
    OK(w, dur_runtime_stop(other, patience_ms(), &w->err));
    world_stop(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(of_many_starts_of_one_id_one_counts),
        TEST(no_start_is_lost_when_the_runtime_stops),
        TEST(an_event_raised_right_after_the_start_arrives),
        TEST(a_first_turn_may_be_the_last),
        TEST(a_first_turn_runs_once),
        TEST(a_first_turn_may_do_everything),
        TEST(a_first_turn_finds_its_queues_empty),
        TEST(a_first_turn_over_the_limit_is_suspended),
        TEST(a_name_that_nobody_knows_waits_for_somebody),
    };
    return cmocka_run_group_tests_name("e2e_starts", tests, NULL, NULL);
}
