/*
 * e2e_runs.c: one thread starts many instances and takes their ends.  Wherever they run, and whatever becomes of them:
 * each end is told once, with the right code and the right data, and no start is lost.
 */
#include "harness.h"
#include <sys/wait.h>

/* ---- handlers ---- */

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}
static dur_outcome at_once(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}
static dur_outcome steps(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < 3; i++)
        dur_await(dur_activity(ctx, "Echo", input));
    return dur_complete(ctx, input);
}
static dur_outcome fails(dur_ctx *ctx, const char *input) {
    return dur_fail(ctx, input);
}
static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}
static dur_outcome twice(dur_ctx *ctx, const char *input) {
    if (dur_execution_id(ctx) == 1) return dur_continue_as_new(ctx, dur_format(ctx, "%s%s", input, input));
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("AtOnce", "1.0.0", at_once),
    DUR_ORCHESTRATION("Steps", "1.0.0", steps),
    DUR_ORCHESTRATION("Fails", "1.0.0", fails),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("Twice", "1.0.0", twice),
    DUR_HANDLERS_END,
};

/* ---- help ---- */

static dur_runs *runs_of(world *w) {
    dur_runs *runs = NULL;
    OK(w, dur_runs_new(&runs, w->client, &w->err));
    return runs;
}

static const dur_run *next(world *w, dur_runs *runs) {
    const dur_run *run = NULL;
    OK(w, dur_runs_next(&run, runs, patience_ms(), &w->err));
    return run;
}

/* The only one that is left. */
static void expect_last(world *w, dur_runs *runs, int code, const char *text) {
    const dur_run *run = next(w, runs);
    if (run->code != code) fail_msg("%s: %s, %s", run->instance, dur_code_name(run->code), run->error);
    assert_string_equal(code == DUR_OK ? run->output : run->error, text);
    assert_null(code == DUR_OK ? run->error : run->output);
    assert_int_equal(dur_runs_count(runs), 0);
}

static void begin(world *w, dur_runs *runs, const char *name, const char *input, const char *instance) {
    OK(w, dur_runs_start(runs, &w->err, name, input, .instance = instance));
}

/* So many, started as others end, never more than `width` at a time: each with its own answer. */
static void drive(world *w, dur_runs *runs, const char *name, size_t count, size_t width) {
    size_t *ends = calloc(count, sizeof(*ends)), started = 0, ended = 0;
    char id[32], text[32];
    while (ended < count) {
        while (started < count && dur_runs_count(runs) < width) {
            snprintf(id, sizeof(id), "%s-%zu", name, started);
            snprintf(text, sizeof(text), "%zu", started);
            OK(w, dur_runs_start(runs, &w->err, name, text, .instance = id, .data = &ends[started++]));
        }
        const dur_run *run = next(w, runs);
        size_t at = (size_t)((size_t *)run->data - ends);
        if (run->code != DUR_OK) fail_msg("%s: %s, %s", run->instance, dur_code_name(run->code), run->error);
        snprintf(id, sizeof(id), "%s-%zu", name, at);
        snprintf(text, sizeof(text), "%zu", at);
        assert_string_equal(run->instance, id);
        assert_string_equal(run->output, text);
        assert_int_equal(ends[at]++, 0);
        ended++;
    }
    assert_int_equal(dur_runs_count(runs), 0);
    free(ends);
}

/* ---- tests ---- */

static void each_end_is_told_once(void **state) {
    world *w = *state;
    dur_runs *runs = runs_of(w);
    RUN(w, handlers);
    drive(w, runs, "Steps", scaled(300, 30), 20);
    drive(w, runs, "AtOnce", scaled(300, 30), 20);
    dur_runs_free(runs);
}

static void more_than_fit_into_one_send(void **state) {
    world *w = *state;
    dur_runs *runs = runs_of(w);
    RUN(w, handlers);
    drive(w, runs, "Steps", scaled(1300, 600), 2000);
    dur_runs_free(runs);
}

static void nothing_to_wait_for_is_said(void **state) {
    world *w = *state;
    dur_runs *runs = runs_of(w);
    const dur_run *run;
    assert_int_equal(dur_runs_next(&run, runs, patience_ms(), &w->err), DUR_ESTATE);
    assert_null(run);
    OK(w, dur_runs_flush(runs, &w->err));
    dur_runs_free(runs);
}

static void every_end_has_its_code(void **state) {
    world *w = *state;
    dur_runs *runs = runs_of(w);
    RUN(w, handlers);
    begin(w, runs, "Fails", "on purpose", "a");
    expect_last(w, runs, DUR_EFAILED, "on purpose");
    begin(w, runs, "Twice", "x", "b");
    expect_last(w, runs, DUR_OK, "xx");
    begin(w, runs, "Waits", "", "c");
    OK(w, dur_runs_flush(runs, &w->err));
    OK(w, dur_client_cancel(w->client, "c", "enough", &w->err));
    const dur_run *run = next(w, runs);
    assert_int_equal(run->code, DUR_ECANCELLED);
    assert_non_null(strstr(run->error, "enough"));
    begin(w, runs, "Waits", "", "d");
    OK(w, dur_runs_flush(runs, &w->err));
    OK(w, dur_client_suspend(w->client, "d", "for a while", &w->err));
    expect_last(w, runs, DUR_ESUSPENDED, "for a while");
    OK(w, dur_client_resume(w->client, "d", &w->err));
    OK(w, dur_runs_watch(runs, "d", NULL, &w->err));
    OK(w, dur_client_pulse(w->client, &w->err, "d", "Go", "went"));
    expect_last(w, runs, DUR_OK, "went");
    dur_runs_free(runs);
}

static void a_refused_start_is_that_runs_end(void **state) {
    world *w = *state;
    dur_runs *runs = runs_of(w);
    int here, there;
    RUN(w, handlers);
    begin(w, runs, "AtOnce", "1", "a");
    expect_last(w, runs, DUR_OK, "1");
    OK(w, dur_runs_start(runs, &w->err, "AtOnce", "2", .instance = "a", .data = &here));
    OK(w, dur_runs_start(runs, &w->err, "AtOnce", "3", .instance = "b", .data = &there));
    OK(w, dur_runs_flush(runs, &w->err));
    assert_int_equal(dur_runs_count(runs), 2);
    for (int i = 0; i < 2; i++) {
        const dur_run *run = next(w, runs);
        assert_int_equal(run->code, run->data == &here ? DUR_EEXISTS : DUR_OK);
    }
    OK(w, dur_runs_start(runs, &w->err, "AtOnce", "4", .instance = "a", .exists = DUR_START_RETURN_EXISTING));
    expect_last(w, runs, DUR_OK, "1");
    OK(w, dur_runs_start(runs, &w->err, "AtOnce", "5", .instance = "a", .exists = DUR_START_REPLACE_FINISHED));
    expect_last(w, runs, DUR_OK, "5");
    dur_runs_free(runs);
}

/* Of two of one id one is made, and both hear of it. */
static void one_id_twice(void **state) {
    world *w = *state;
    dur_runs *runs = runs_of(w);
    RUN(w, handlers);
    for (size_t i = 0; i < scaled(20, 4); i++) {
        char id[32];
        snprintf(id, sizeof(id), "twin-%zu", i);
        begin(w, runs, "AtOnce", "1", id);
        begin(w, runs, "AtOnce", "1", id);
        int first = next(w, runs)->code, second = next(w, runs)->code;
        assert_true((first == DUR_OK && second == DUR_EEXISTS) || (first == DUR_EEXISTS && second == DUR_OK));
    }
    dur_runs_free(runs);
}

static void bad_arguments_are_no_run(void **state) {
    world *w = *state;
    dur_runs *runs = runs_of(w);
    assert_int_equal(dur_runs_start(runs, &w->err, NULL, "", .instance = "a"), DUR_EINVAL);
    assert_int_equal(dur_runs_start(runs, &w->err, "AtOnce", ""), DUR_EINVAL);
    assert_int_equal(dur_runs_start(runs, &w->err, "AtOnce", "", .instance = "a", .version = "no"), DUR_EINVAL);
    assert_int_equal(dur_runs_watch(runs, "", NULL, &w->err), DUR_EINVAL);
    assert_int_equal(dur_runs_count(runs), 0);
    dur_runs_free(runs);
}

static void a_timeout_loses_nothing(void **state) {
    world *w = *state;
    dur_runs *runs = runs_of(w);
    const dur_run *run;
    RUN(w, handlers);
    begin(w, runs, "Waits", "", "a");
    assert_int_equal(dur_runs_next(&run, runs, 0, &w->err), DUR_ETIMEOUT);
    assert_int_equal(dur_runs_next(&run, runs, 5, &w->err), DUR_ETIMEOUT);
    assert_int_equal(dur_runs_count(runs), 1);
    OK(w, dur_client_pulse(w->client, &w->err, "a", "Go", "now"));
    expect_last(w, runs, DUR_OK, "now");
    dur_runs_free(runs);
}

static void without_a_runtime_it_waits_for_one(void **state) {
    world *w = *state;
    dur_runs *runs = runs_of(w);
    const dur_run *run;
    begin(w, runs, "Steps", "later", "a");
    assert_int_equal(dur_runs_next(&run, runs, 0, &w->err), DUR_ETIMEOUT);
    assert_int_equal(dur_runs_next(&run, runs, 5, &w->err), DUR_ETIMEOUT);
    RUN(w, handlers);
    expect_last(w, runs, DUR_OK, "later");
    begin(w, runs, "Waits", "", "b");
    OK(w, dur_runs_flush(runs, &w->err));
    world_stop(w);
    assert_int_equal(dur_runs_next(&run, runs, 5, &w->err), DUR_ETIMEOUT);
    OK(w, dur_client_terminate(w->client, "b", "no more", &w->err));
    run = next(w, runs);
    assert_int_equal(run->code, DUR_ECANCELLED);
    dur_runs_free(runs);
}

static void what_is_not_there_is_not_found(void **state) {
    world *w = *state;
    dur_runs *runs = runs_of(w);
    const dur_run *run;
    OK(w, dur_runs_watch(runs, "nobody", NULL, &w->err));
    assert_int_equal(next(w, runs)->code, DUR_ENOTFOUND);
    begin(w, runs, "Steps", "", "a"); /* nobody runs it */
    assert_int_equal(dur_runs_next(&run, runs, 5, &w->err), DUR_ETIMEOUT);
    OK(w, dur_client_delete(NULL, w->client, "a", true, &w->err));
    assert_int_equal(next(w, runs)->code, DUR_ENOTFOUND);
    dur_runs_free(runs);
}

static void free_with_runs_in_flight(void **state) {
    world *w = *state;
    dur_runs *runs = runs_of(w);
    char *output = NULL;
    dur_instance_info *info = NULL;
    RUN(w, handlers);
    begin(w, runs, "Waits", "", "a");
    OK(w, dur_runs_flush(runs, &w->err));
    begin(w, runs, "Waits", "", "never");
    dur_runs_free(runs);
    assert_int_equal(dur_client_info(&info, w->client, "never", &w->err), DUR_ENOTFOUND);
    OK(w, dur_client_pulse(w->client, &w->err, "a", "Go", "on"));
    OK(w, dur_client_result(&output, w->client, "a", patience_ms(), &w->err));
    assert_string_equal(output, "on");
    dur_free(output);
}

/* While it drives, runtimes come and go: nothing is lost, nothing told twice. */
static void runtimes_come_and_go(void **state) {
    world *w = *state;
    dur_runs *runs = runs_of(w);
    const dur_run *run;
    size_t count = scaled(60, 12), ended = 0;
    for (size_t round = 0; round < 3; round++) {
        char id[32];
        for (size_t i = 0; i < count; i++) {
            snprintf(id, sizeof(id), "r%zu-%zu", round, i);
            begin(w, runs, "Steps", "x", id);
        }
        RUN(w, handlers);
        for (size_t i = 0; i < count / 2; i++, ended++)
            assert_int_equal(next(w, runs)->code, DUR_OK);
        world_stop(w);
        while (dur_runs_next(&run, runs, 0, &w->err) == DUR_OK)
            ended++;
    }
    RUN(w, handlers);
    for (; ended < 3 * count; ended++)
        assert_int_equal(next(w, runs)->code, DUR_OK);
    assert_int_equal(dur_runs_count(runs), 0);
    dur_runs_free(runs);
}

/* Another handle of the same store, as another process has: some run there, some here. */
static void some_run_elsewhere(void **state) {
    world *w = *state;
    dur_provider *other = NULL;
    dur_runtime *there = NULL;
    dur_runs *runs = runs_of(w);
    const dur_handler few[] = { DUR_ORCHESTRATION("AtOnce", "1.0.0", at_once), DUR_HANDLERS_END };
    OK(w, dur_open(&other, w->url, &w->err));
    OK(w, dur_runtime_start(&there, DUR_RUNTIME(.store = other, .handlers = handlers), &w->err));
    drive(w, runs, "Steps", scaled(60, 12), 10);
    RUN(w, few, .unregistered_backoff_ms = 1);
    for (size_t i = 0; i < 10; i++) {
        char id[32];
        snprintf(id, sizeof(id), "mixed-%zu", i);
        begin(w, runs, i % 2 ? "AtOnce" : "Steps", "m", id);
    }
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(next(w, runs)->code, DUR_OK);
    dur_runs_free(runs);
    world_stop(w);
    OK(w, dur_runtime_stop(there, patience_ms(), &w->err));
    dur_provider_close(other);
}

/* A runtime in another process, until `until` is closed. */
static void serve(const char *url, int until) {
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    char byte;
    int code = dur_open(&store, url, NULL);
    if (code == DUR_OK) code = dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = handlers), NULL);
    while (code == DUR_OK && read(until, &byte, 1) > 0)
        continue;
    if (code == DUR_OK) code = dur_runtime_stop(runtime, patience_ms(), NULL);
    dur_provider_close(store);
    end_forked(code == DUR_OK);
}

static void all_run_in_another_process(void **state) {
    world *w = *state;
    int ends[2], status = 1;
    if (on_provider("memory:")) skip();
    assert_int_equal(pipe(ends), 0);
    dur_client_free(w->client);
    dur_provider_close(w->store); /* a SQLite file that is open at a fork stays the parent's */
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        serve(w->url, ends[0]);
    }
    close(ends[0]);
    world_open_store(w);
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    dur_runs *runs = runs_of(w);
    drive(w, runs, "Steps", scaled(60, 12), 10);
    drive(w, runs, "AtOnce", scaled(150, 80), 100);
    dur_runs_free(runs);
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(each_end_is_told_once),
        TEST(more_than_fit_into_one_send),
        TEST(nothing_to_wait_for_is_said),
        TEST(every_end_has_its_code),
        TEST(a_refused_start_is_that_runs_end),
        TEST(one_id_twice),
        TEST(bad_arguments_are_no_run),
        TEST(a_timeout_loses_nothing),
        TEST(without_a_runtime_it_waits_for_one),
        TEST(what_is_not_there_is_not_found),
        TEST(free_with_runs_in_flight),
        TEST(runtimes_come_and_go),
        TEST(some_run_elsewhere),
        TEST(all_run_in_another_process),
    };
    return cmocka_run_group_tests_name("e2e_runs", tests, NULL, NULL);
}
