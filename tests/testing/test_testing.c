/*
 * test_testing.c: the testing library as its users see it: time, mocks, waits, crashes, fixtures.
 */
#include <durite/durite.h>
#include <durite/testing.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define DAY DUR_HOURS(24)

static dur_error err;
#define assert_ok(code_) assert_int_equal_(code_, #code_)
static void assert_int_equal_(int code, const char *what) {
    if (code != DUR_OK) print_error("%s: %s: %s\n", what, dur_code_name(code), err.message);
    assert_int_equal(code, DUR_OK);
}

/* ---- handlers ---- */

static dur_outcome greet(dur_act *act, const char *name) {
    return dur_act_completef(act, "hello %s", name);
}

static dur_outcome doze(dur_act *act, const char *days) {
    dur_act_sleep(act, strtoul(days, NULL, 10) * DAY);
    return dur_act_complete(act, "woke");
}

/* Waits for another instance, which needs activities itself. */
static dur_outcome delegate(dur_act *act, const char *name) {
    char *output = NULL;
    dur_client *client = dur_act_client(act);
    if (dur_client_start(client, NULL, "Hello", name, .instance = "delegated") != DUR_OK ||
        dur_client_result(&output, client, "delegated", DUR_SECONDS(5), NULL) != DUR_OK)
        return dur_act_fail(act, "nobody answers");
    dur_outcome outcome = dur_act_completef(act, "told: %s", output);
    dur_free(output);
    return outcome;
}

static dur_outcome boss(dur_ctx *ctx, const char *name) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Delegate", name)));
}

static dur_outcome hello(dur_ctx *ctx, const char *name) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Greet", name)));
}

static dur_outcome sleeper(dur_ctx *ctx, const char *days) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Doze", days)));
}

static dur_outcome stubborn(dur_ctx *ctx, const char *input) {
    dur_future *call = dur_activity(ctx, "Flaky", input, .timeout_ms = DUR_SECONDS(60),
                                    .retry = DUR_RETRY(.attempts_max = 4, .delay_ms = 1000));
    const char *result;
    if (dur_try(call, &result) == DUR_OK) return dur_complete(ctx, result);
    return dur_failf(ctx, "%s: %s", dur_code_name((int)dur_code_of(call)), dur_reason(call));
}

/* A timer every hour for so many days; says how long it took. */
static dur_outcome hourly(dur_ctx *ctx, const char *days) {
    uint64_t begin_ms = dur_now_ms(ctx);
    for (unsigned long i = 0; i < strtoul(days, NULL, 10) * 24; i++)
        dur_await(dur_timer(ctx, DUR_HOURS(1)));
    uint64_t end_ms = dur_now_ms(ctx);
    return dur_completef(ctx, "%llu", (unsigned long long)(end_ms - begin_ms));
}

static dur_outcome both(dur_ctx *ctx, const char *input) {
    dur_future *a = dur_activity(ctx, "Slow", input), *b = dur_activity(ctx, "Slower", input);
    dur_join(a, b);
    return dur_complete(ctx, "both");
}

static dur_outcome patient(dur_ctx *ctx, const char *input) {
    dur_future *paid = dur_pulse(ctx, "Paid"), *note = dur_message(ctx, "notes");
    dur_future *call = dur_activity(ctx, "Slow", input);
    dur_future *child = dur_orchestration(ctx, "Hourly", "2", .instance = "child");
    dur_future *late = dur_timer(ctx, DAY);
    dur_join(paid, note, call, child, late);
    return dur_complete(ctx, "all");
}

static dur_outcome rounds(dur_ctx *ctx, const char *round_text) {
    unsigned long round = strtoul(round_text, NULL, 10);
    dur_await(dur_timer(ctx, DAY));
    if (round == 3) return dur_complete(ctx, "three rounds");
    return dur_continue_as_new(ctx, dur_format(ctx, "%lu", round + 1));
}

static dur_outcome later(dur_ctx *ctx, const char *days) {
    dur_await(dur_timer(ctx, strtoul(days, NULL, 10) * DAY));
    return dur_complete(ctx, "later");
}

/* As docs/guide/orchestrations.md has it: only DUR_OK has a decision. */
static dur_outcome reminds(dur_ctx *ctx, const char *who) {
    const char *decision = "none";
    int code;
    while ((code = dur_try_for(dur_message(ctx, "decisions"), DAY, &decision)) == DUR_ETIMEOUT)
        dur_await(dur_activity(ctx, "Greet", who));
    if (code != DUR_OK) return dur_fail(ctx, "nobody has decided");
    return dur_completef(ctx, "decided: %s", decision);
}

static int entered; /* handlers must not do this: here it counts replays */
static dur_outcome replayed(dur_ctx *ctx, const char *input) {
    entered++;
    dur_await(dur_timer(ctx, DAY));
    const char *greeting = dur_await(dur_activity(ctx, "Greet", input));
    dur_await(dur_pulse(ctx, "Go"));
    return dur_complete(ctx, greeting);
}

static int whims;
static dur_outcome whimsical(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "Greet", dur_format(ctx, "%s %d", input, whims++)));
    return dur_complete(ctx, "");
}

static dur_outcome endless(dur_ctx *ctx, const char *input) {
    return dur_continue_as_new(ctx, input);
}

static dur_outcome ticks(dur_ctx *ctx, const char *ms) {
    for (;;)
        dur_await(dur_timer(ctx, strtoul(ms, NULL, 10)));
    return dur_complete(ctx, "");
}

static dur_outcome guids(dur_ctx *ctx, const char *input) {
    dur_future *a = dur_activity(ctx, "Greet", input), *b = dur_activity(ctx, "Greet", dur_guid(ctx));
    dur_join(a, b);
    dur_await(dur_timer(ctx, DUR_SECONDS(1) + dur_random(ctx) % 1000));
    return dur_complete(ctx, dur_guid(ctx));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Greet", greet),
    DUR_ACTIVITY("Doze", doze),
    DUR_ACTIVITY("Delegate", delegate),
    DUR_ORCHESTRATION("Boss", "1.0.0", boss),
    DUR_ORCHESTRATION("Hello", "1.0.0", hello),
    DUR_ORCHESTRATION("Later", "1.0.0", later),
    DUR_ORCHESTRATION("Reminds", "1.0.0", reminds),
    DUR_ORCHESTRATION("Sleeper", "1.0.0", sleeper),
    DUR_ORCHESTRATION("Stubborn", "1.0.0", stubborn),
    DUR_ORCHESTRATION("Hourly", "1.0.0", hourly),
    DUR_ORCHESTRATION("Both", "1.0.0", both),
    DUR_ORCHESTRATION("Patient", "1.0.0", patient),
    DUR_ORCHESTRATION("Rounds", "1.0.0", rounds),
    DUR_ORCHESTRATION("Replayed", "1.0.0", replayed),
    DUR_ORCHESTRATION("Whimsical", "1.0.0", whimsical),
    DUR_ORCHESTRATION("Endless", "1.0.0", endless),
    DUR_ORCHESTRATION("Ticks", "1.0.0", ticks),
    DUR_ORCHESTRATION("Guids", "1.0.0", guids),
    DUR_HANDLERS_END,
};

static dur_test *begin_ex(const dur_test_options *options) {
    dur_test *t = NULL;
    assert_ok(dur_test_new(&t, options, &err));
    return t;
}

static dur_test *begin(void) {
    return begin_ex(DUR_TEST(.handlers = handlers));
}

/* ---- time ---- */

static void thirty_days_of_timers_take_no_time(void **state) {
    (void)state;
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from); /* what others do on this machine does not count */
    dur_test *t = begin_ex(DUR_TEST(.handlers = handlers, .no_double_run = true));
    uint64_t begin_ms = dur_test_now_ms(t);
    assert_ok(dur_test_start(t, &err, "Hourly", "30", .instance = "h"));
    assert_ok(dur_test_run_to_end(t, "h", &err));
    assert_string_equal(dur_test_output(t, "h"), "2592000000");
    assert_int_equal(dur_test_now_ms(t) - begin_ms, 30 * DAY);
    assert_int_equal(dur_test_events(t, "h", "TimerFired"), 720);
    dur_test_free(t);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    int64_t us = (to.tv_sec - from.tv_sec) * 1000000 + (to.tv_nsec - from.tv_nsec) / 1000;
    print_message("720 timers of an hour: %lld us\n", (long long)us);
#ifndef SANITIZED
    assert_true(us < 100000);
#endif
}

static void forty_years_are_one_wait(void **state) {
    (void)state;
    dur_test *t = NULL;
    assert_ok(dur_test_new(&t, DUR_TEST(.handlers = handlers), &err));
    uint64_t begin_ms = dur_test_now_ms(t);
    assert_ok(dur_test_start(t, &err, "Later", "14600", .instance = "l"));
    assert_ok(dur_test_start(t, &err, "Later", "14600", .instance = "m", .delay_ms = 14600 * DAY));
    assert_ok(dur_test_advance(t, 14600 * DAY - 1, &err));
    assert_null(dur_test_output(t, "l"));
    assert_ok(dur_test_advance(t, 1, &err));
    assert_string_equal(dur_test_output(t, "l"), "later");
    assert_ok(dur_test_run_to_end(t, "m", &err));
    assert_int_equal(dur_test_now_ms(t) - begin_ms, 2 * 14600 * DAY);
    dur_test_free(t);
}

static void time_never_goes_back(void **state) {
    (void)state;
    dur_test *t = NULL;
    assert_int_equal(dur_test_new(&t, DUR_TEST(.handlers = handlers, .start_ms = UINT64_MAX - 5), &err), DUR_EINVAL);
    assert_ok(dur_test_new(&t, DUR_TEST(.handlers = handlers), &err));
    assert_ok(dur_test_mock(t, &err, "Greet", .delay_ms = UINT64_MAX));
    assert_ok(dur_test_start(t, &err, "Hello", "you", .instance = "h"));
    assert_ok(dur_test_start(t, &err, "Later", "1", .instance = "l"));
    assert_int_equal(dur_test_run_to_end(t, "h", &err), DUR_ETIMEOUT);
    assert_true(dur_test_waits(t, "h", DUR_WAIT_ACTIVITY, "Greet"));
    assert_string_equal(dur_test_output(t, "l"), "later");
    uint64_t before_ms = dur_test_now_ms(t);
    for (int i = 0; i < 3; i++) {
        assert_ok(dur_test_advance(t, UINT64_MAX, &err));
        assert_true(dur_test_now_ms(t) >= before_ms);
        before_ms = dur_test_now_ms(t);
    }
    assert_true(dur_test_waits(t, "h", DUR_WAIT_ACTIVITY, "Greet"));
    dur_test_free(t);
}

static void time_passes_as_far_as_it_is_told(void **state) {
    (void)state;
    dur_test *t = begin_ex(DUR_TEST(.handlers = handlers, .start_ms = 1000000));
    assert_int_equal(dur_test_now_ms(t), 1000000);
    assert_ok(dur_test_start(t, &err, "Hourly", "1", .instance = "h"));
    assert_ok(dur_test_run_until_blocked(t, &err));
    assert_int_equal(dur_test_now_ms(t), 1000000);
    assert_ok(dur_test_advance(t, DUR_HOURS(1) - 1, &err));
    assert_int_equal(dur_test_events(t, "h", "TimerFired"), 0);
    assert_ok(dur_test_advance(t, 1, &err));
    assert_int_equal(dur_test_events(t, "h", "TimerFired"), 1);
    assert_ok(dur_test_advance(t, DUR_HOURS(10), &err));
    assert_int_equal(dur_test_events(t, "h", "TimerFired"), 11);
    assert_null(dur_test_output(t, "h"));
    assert_ok(dur_test_advance(t, DUR_HOURS(100), &err));
    assert_string_equal(dur_test_output(t, "h"), "86400000"); /* each timer fired at its time */
    assert_int_equal(dur_test_now_ms(t), 1000000 + DUR_HOURS(111));
    dur_test_free(t);
}

static void a_client_and_an_activity_that_wait_do_not_sleep(void **state) {
    (void)state;
    dur_test *t = begin();
    char *output = NULL;
    assert_ok(dur_test_start(t, &err, "Hourly", "2", .instance = "h"));
    assert_ok(dur_client_result(&output, dur_test_client(t), "h", 30 * DAY, &err));
    assert_string_equal(output, "172800000");
    dur_free(output);
    assert_int_equal(dur_client_result(&output, dur_test_client(t), "nobody", DAY, &err), DUR_ENOTFOUND);
    dur_test_mock(t, &err, "Slow", .delay_ms = DUR_SECONDS(20)); /* and activities go on */
    dur_test_mock(t, &err, "Slower", .delay_ms = DUR_SECONDS(30));
    uint64_t both_ms = dur_test_now_ms(t);
    assert_ok(dur_test_start(t, &err, "Both", "x", .instance = "b"));
    assert_ok(dur_client_result(&output, dur_test_client(t), "b", DAY, &err));
    assert_string_equal(output, "both");
    dur_free(output);
    assert_true(dur_test_now_ms(t) - both_ms >= DUR_SECONDS(30) && dur_test_now_ms(t) - both_ms < DUR_SECONDS(31));
    uint64_t begin_ms = dur_test_now_ms(t);
    assert_ok(dur_test_start(t, &err, "Sleeper", "3", .instance = "s"));
    assert_ok(dur_test_run_to_end(t, "s", &err));
    assert_true(dur_test_now_ms(t) - begin_ms >= 3 * DAY && dur_test_now_ms(t) - begin_ms < 3 * DAY + 1000);
    dur_test_free(t);
}

static void a_wait_with_a_limit_ends_where_nothing_comes(void **state) {
    (void)state;
    dur_test *t = begin();
    char *output = NULL;
    uint64_t begin_ms = dur_test_now_ms(t);
    assert_ok(dur_test_mock(t, &err, "Greet", .result = "hi"));
    assert_ok(dur_test_start(t, &err, "Replayed", "x", .instance = "w"));
    assert_int_equal(dur_client_result(&output, dur_test_client(t), "w", 2 * DAY, &err), DUR_ETIMEOUT);
    assert_null(output);
    assert_true(dur_test_now_ms(t) - begin_ms >= 2 * DAY);
    assert_true(dur_test_waits(t, "w", DUR_WAIT_PULSE, "Go"));
    dur_test_free(t);
}

static void answers_that_nothing_comes(int code, const char *instance) {
    assert_int_equal(code, DUR_ETIMEOUT);
    assert_non_null(strstr(err.message, "waits for: pulse Go"));
    assert_non_null(strstr(err.message, instance));
}

static void fault_h162_a_wait_without_a_limit_ends_where_nothing_comes(void **state) {
    (void)state;
    dur_test *t = begin();
    dur_client *client = dur_test_client(t);
    char *output = NULL;
    dur_instance_info *info = NULL;
    dur_runs *runs = NULL;
    const dur_run *end = NULL;
    uint64_t begin_ms = dur_test_now_ms(t);
    assert_ok(dur_test_mock(t, &err, "Greet", .result = "hi", .delay_ms = DUR_HOURS(7)));
    assert_ok(dur_test_start(t, &err, "Replayed", "x", .instance = "w"));
    answers_that_nothing_comes(dur_client_result(&output, client, "w", UINT64_MAX, &err), "\"w\"");
    assert_true(dur_test_now_ms(t) - begin_ms >= DAY + DUR_HOURS(7)); /* what comes by itself has come */
    answers_that_nothing_comes(dur_client_result(&output, client, "w", UINT64_MAX, &err), "\"w\"");
    answers_that_nothing_comes(dur_client_wait(&info, client, "w", UINT64_MAX, &err), "\"w\"");
    answers_that_nothing_comes(dur_client_wait_status(&info, client, "w", 9, UINT64_MAX, &err), "\"w\"");
    answers_that_nothing_comes(dur_client_kv_wait(&output, client, "w", "k", UINT64_MAX, &err), "\"w\"");
    assert_ok(dur_runs_new(&runs, client, &err));
    assert_ok(dur_runs_start(runs, &err, "Replayed", "x", .instance = "r"));
    answers_that_nothing_comes(dur_runs_next(&end, runs, UINT64_MAX, &err), "\"r\"");
    assert_ok(dur_test_pulse(t, &err, "r", "Go"));
    assert_ok(dur_runs_next(&end, runs, UINT64_MAX, &err)); /* and goes on when it has come */
    assert_string_equal(end->instance, "r");
    dur_runs_free(runs);
    assert_ok(dur_test_pulse(t, &err, "w", "Go"));
    assert_ok(dur_client_result(&output, client, "w", UINT64_MAX, &err));
    assert_string_equal(output, "hi");
    dur_free(output);
    dur_test_free(t);
}

static void an_activity_that_waits_for_others_lets_them_go_on(void **state) {
    (void)state;
    dur_test *t = begin();
    uint64_t begin_ms = dur_test_now_ms(t);
    assert_ok(dur_test_start(t, &err, "Boss", "you", .instance = "b"));
    assert_ok(dur_test_run_to_end(t, "b", &err));
    assert_string_equal(dur_test_output(t, "b"), "told: hello you");
    assert_true(dur_test_now_ms(t) - begin_ms < 1000);
    dur_test_free(t);
}

static void a_delayed_start_begins_when_it_is_due(void **state) {
    (void)state;
    dur_test *t = begin();
    uint64_t begin_ms = dur_test_now_ms(t);
    assert_ok(dur_test_start(t, &err, "Hello", "you", .instance = "d", .delay_ms = 5 * DAY));
    assert_ok(dur_test_run_until_blocked(t, &err));
    assert_int_equal(dur_test_calls(t, "Greet"), 0);
    assert_ok(dur_test_run_to_end(t, "d", &err));
    assert_int_equal(dur_test_now_ms(t) - begin_ms, 5 * DAY);
    dur_test_free(t);
}

/* ---- mocks ---- */

static void a_loop_that_reminds_can_be_cancelled(void **state) {
    (void)state;
    dur_test *t = begin();
    assert_ok(dur_test_start(t, &err, "Reminds", "boss", .instance = "yes"));
    assert_ok(dur_test_start(t, &err, "Reminds", "boss", .instance = "no"));
    assert_ok(dur_test_advance(t, 2 * DAY, &err));
    assert_int_equal(dur_test_calls(t, "Greet"), 4);
    assert_ok(dur_test_send(t, &err, "yes", "decisions", "yes"));
    assert_ok(dur_test_cancel(t, "no", "bye", &err));
    assert_ok(dur_test_run_to_end(t, "yes", &err));
    assert_ok(dur_test_run_to_end(t, "no", &err));
    assert_string_equal(dur_test_output(t, "yes"), "decided: yes");
    assert_non_null(strstr(dur_test_output(t, "no"), "nobody has decided"));
    assert_int_equal(dur_test_calls(t, "Greet"), 4);
    dur_test_free(t);
}

static void an_activity_without_a_mock_runs_as_registered(void **state) {
    (void)state;
    dur_test *t = begin();
    assert_ok(dur_test_start(t, &err, "Hello", "you", .instance = "h"));
    assert_ok(dur_test_run_to_end(t, "h", &err));
    assert_string_equal(dur_test_output(t, "h"), "hello you");
    assert_int_equal(dur_test_calls(t, "Greet"), 1);
    assert_string_equal(dur_test_call_input(t, "Greet", 0), "you");
    assert_null(dur_test_call_input(t, "Greet", 1));
    assert_int_equal(dur_test_calls(t, "Nobody"), 0);
    dur_test_free(t);
}

static void a_mock_fails_so_often_and_then_completes(void **state) {
    (void)state;
    dur_test *t = begin();
    assert_ok(dur_test_mock(t, &err, "Flaky", .result = "ok", .fail_times = 3, .reason = "busy"));
    assert_ok(dur_test_start(t, &err, "Stubborn", "x", .instance = "s"));
    assert_ok(dur_test_run_to_end(t, "s", &err));
    assert_string_equal(dur_test_output(t, "s"), "ok");
    assert_int_equal(dur_test_calls(t, "Flaky"), 4);

    assert_ok(dur_test_mock(t, &err, "Flaky", .fail_times = UINT32_MAX, .reason = "gone", .final = true));
    assert_ok(dur_test_start(t, &err, "Stubborn", "x", .instance = "f"));
    assert_ok(dur_test_run_to_end(t, "f", &err));
    assert_int_equal(dur_test_status(t, "f"), DUR_INSTANCE_FAILED);
    assert_string_equal(dur_test_output(t, "f"), "DUR_EFAILED: gone");
    assert_int_equal(dur_test_calls(t, "Flaky"), 5); /* a final failure is not tried again */
    assert_int_equal(dur_test_mock(t, &err, NULL), DUR_EINVAL);
    dur_test_free(t);
}

static void a_mock_that_takes_time_takes_it_beside_others(void **state) {
    (void)state;
    dur_test *t = begin();
    uint64_t begin_ms = dur_test_now_ms(t);
    dur_test_mock(t, &err, "Slow", .delay_ms = DUR_SECONDS(20));
    dur_test_mock(t, &err, "Slower", .delay_ms = DUR_SECONDS(30));
    assert_ok(dur_test_start(t, &err, "Both", "x", .instance = "b"));
    assert_ok(dur_test_run_until_blocked(t, &err));
    assert_true(dur_test_waits(t, "b", DUR_WAIT_ACTIVITY, "Slow"));
    assert_ok(dur_test_advance(t, DUR_SECONDS(25), &err));
    assert_false(dur_test_waits(t, "b", DUR_WAIT_ACTIVITY, "Slow"));
    assert_true(dur_test_waits(t, "b", DUR_WAIT_ACTIVITY, "Slower"));
    assert_ok(dur_test_run_to_end(t, "b", &err));
    assert_int_equal(dur_test_now_ms(t) - begin_ms, DUR_SECONDS(30));

    dur_test_mock(t, &err, "Flaky", .delay_ms = 10 * DAY); /* longer than anybody waits */
    begin_ms = dur_test_now_ms(t);
    assert_ok(dur_test_start(t, &err, "Stubborn", "x", .instance = "s"));
    assert_ok(dur_test_run_to_end(t, "s", &err));
    assert_non_null(strstr(dur_test_output(t, "s"), "DUR_ETIMEOUT"));
    assert_int_equal(dur_test_now_ms(t) - begin_ms, DUR_SECONDS(60));
    assert_ok(dur_test_run_until_blocked(t, &err));
    dur_test_free(t);
}

typedef struct seen {
    char instance[64];
    int calls;
    dur_test *test;
    int code, crash_code;
} seen;

static dur_outcome look(dur_act *act, const char *input, void *data) {
    seen *s = data;
    s->calls++;
    snprintf(s->instance, sizeof(s->instance), "%s", dur_act_instance_id(act));
    if (s->test != NULL) {
        s->code = dur_test_run_until_blocked(s->test, NULL);
        s->crash_code = dur_test_crash(s->test, NULL);
    }
    return dur_act_completef(act, "mock of %s", input);
}

static void a_mock_can_be_a_function(void **state) {
    (void)state;
    dur_test *t = begin();
    seen s = { .test = t };
    dur_test_mock(t, &err, "Greet", .fn = look, .data = &s);
    assert_ok(dur_test_start(t, &err, "Hello", "you", .instance = "h"));
    assert_ok(dur_test_run_to_end(t, "h", &err));
    assert_string_equal(dur_test_output(t, "h"), "mock of you");
    assert_string_equal(s.instance, "h");
    assert_int_equal(s.crash_code, DUR_EDEADLK);
    assert_int_equal(s.code, DUR_EDEADLK); /* an activity does not run the test that runs it */
    dur_test_free(t);
}

/* ---- looking ---- */

static void one_asks_what_an_instance_waits_for(void **state) {
    (void)state;
    dur_test *t = begin();
    dur_test_mock(t, &err, "Slow", .delay_ms = DUR_HOURS(1));
    assert_string_equal(dur_test_waits_text(t, "p"), "no such instance");
    assert_int_equal(dur_test_status(t, "p"), DUR_INSTANCE_NOT_FOUND);
    assert_ok(dur_test_start(t, &err, "Patient", "x", .instance = "p"));
    assert_string_equal(dur_test_waits_text(t, "p"), "its beginning");
    assert_ok(dur_test_run_until_blocked(t, &err));
    assert_true(dur_test_waits(t, "p", DUR_WAIT_PULSE, "Paid"));
    assert_true(dur_test_waits(t, "p", DUR_WAIT_MESSAGE, "notes"));
    assert_true(dur_test_waits(t, "p", DUR_WAIT_ACTIVITY, "Slow"));
    assert_true(dur_test_waits(t, "p", DUR_WAIT_CHILD, "Hourly"));
    assert_true(dur_test_waits(t, "p", DUR_WAIT_TIMER, NULL));
    assert_false(dur_test_waits(t, "p", DUR_WAIT_PULSE, "notes"));
    assert_false(dur_test_waits(t, "nobody", DUR_WAIT_PULSE, NULL));
    assert_string_equal(dur_test_waits_text(t, "p"),
                        "pulse Paid; message notes; activity Slow(\"x\"); child Hourly (child); timer in 86400000 ms");
    assert_ok(dur_test_send(t, &err, "p", "notes", "n"));
    assert_ok(dur_test_run_until_blocked(t, &err));
    assert_false(dur_test_waits(t, "p", DUR_WAIT_MESSAGE, NULL));
    assert_int_equal(dur_test_run_to_end(t, "p", &err), DUR_ETIMEOUT);
    assert_non_null(strstr(err.message, "waits for: pulse Paid"));
    assert_string_equal(dur_test_waits_text(t, "p"), "pulse Paid");
    assert_ok(dur_test_pulse(t, &err, "p", "Paid", "1"));
    assert_ok(dur_test_run_to_end(t, "p", &err));
    assert_string_equal(dur_test_waits_text(t, "p"), "completed: all");
    assert_false(dur_test_waits(t, "p", DUR_WAIT_TIMER, NULL));
    assert_int_equal(dur_test_run_to_end(t, "nobody", &err), DUR_ENOTFOUND);
    dur_test_free(t);
}

static void an_activity_that_nobody_has_is_named(void **state) {
    (void)state;
    dur_test *t = begin();
    assert_ok(dur_test_start(t, &err, "Both", "x", .instance = "b"));
    assert_int_equal(dur_test_run_to_end(t, "b", &err), DUR_ETIMEOUT);
    assert_non_null(strstr(err.message, "activity Slow(\"x\"), which is not registered here; activity Slower"));
    dur_test_mock(t, &err, "Slow", .delay_ms = 5); /* from now on there is one: what waited for it is taken */
    dur_test_mock(t, &err, "Slower");
    assert_ok(dur_test_run_until_blocked(t, &err));
    assert_string_equal(dur_test_waits_text(t, "b"), "activity Slow(\"x\")");
    assert_ok(dur_test_run_to_end(t, "b", &err));
    dur_test_free(t);
}

static void executions_are_one_instance(void **state) {
    (void)state;
    dur_test *t = begin();
    uint64_t begin_ms = dur_test_now_ms(t);
    assert_ok(dur_test_start(t, &err, "Rounds", "1", .instance = "r"));
    assert_ok(dur_test_run_to_end(t, "r", &err));
    assert_string_equal(dur_test_output(t, "r"), "three rounds");
    assert_int_equal(dur_test_now_ms(t) - begin_ms, 3 * DAY);
    assert_int_equal(dur_test_events(t, "r", "OrchestrationStarted"), 3);
    assert_int_equal(dur_test_events(t, "r", "TimerFired"), 3);
    dur_test_free(t);
}

static void what_goes_on_and_on_is_stopped(void **state) {
    (void)state;
    dur_test *t = begin_ex(DUR_TEST(.handlers = handlers, .no_double_run = true));
    assert_ok(dur_test_start(t, &err, "Endless", "x", .instance = "e"));
    assert_int_equal(dur_test_run_until_blocked(t, &err), DUR_ELIMIT);
    dur_test_free(t);
}

#ifndef SANITIZED /* some seconds of work, which are minutes there */
static void fault_h161_a_loop_is_stopped_although_each_turn_is_replayed(void **state) {
    (void)state;
    dur_test *t = begin();
    assert_ok(dur_test_start(t, &err, "Ticks", "0", .instance = "t"));
    assert_int_equal(dur_test_run_until_blocked(t, &err), DUR_ELIMIT);
    assert_non_null(strstr(err.message, "no_double_run"));
    assert_true(dur_test_events(t, "t", "TimerFired") > 2000);
    dur_test_free(t);
}
#endif

/* ---- chance and determinism ---- */

static char *history_of(uint64_t seed, bool crash_every_wait) {
    dur_test *t = begin_ex(DUR_TEST(.handlers = handlers, .seed = seed, .crash_every_wait = crash_every_wait));
    char *json = NULL;
    assert_ok(dur_test_start(t, &err, "Guids", "x", .instance = "g"));
    assert_ok(dur_test_run_to_end(t, "g", &err));
    assert_ok(dur_client_history(&json, dur_test_client(t), "g", 0, &err));
    dur_test_free(t);
    return json;
}

static void a_run_is_a_function_of_its_seed(void **state) {
    (void)state;
    for (int crashes = 0; crashes < 2; crashes++) {
        char *a = history_of(7, crashes), *b = history_of(7, crashes), *c = history_of(8, crashes);
        assert_string_equal(a, b);
        assert_string_not_equal(a, c);
        dur_free(a);
        dur_free(b);
        dur_free(c);
    }
}

static void a_handler_that_is_not_deterministic_fails_its_test(void **state) {
    (void)state;
    dur_test *t = begin();
    assert_ok(dur_test_start(t, &err, "Whimsical", "x", .instance = "w"));
    assert_int_equal(dur_test_run_to_end(t, "w", &err), DUR_ESUSPENDED);
    assert_non_null(strstr(err.message, "history holds activity \"Greet\""));
    dur_test_free(t);
}

/* ---- death ---- */

static void what_was_not_recorded_happens_again(void **state) {
    (void)state;
    dur_test *t = begin();
    dur_test_mock(t, &err, "Greet", .result = "hi", .delay_ms = 1000);
    assert_ok(dur_test_start(t, &err, "Hello", "you", .instance = "h"));
    assert_ok(dur_test_run_until_blocked(t, &err));
    assert_int_equal(dur_test_calls(t, "Greet"), 1);
    for (int i = 0; i < 20; i++) { /* more often than anything may fail */
        uint64_t before_ms = dur_test_now_ms(t);
        assert_ok(dur_test_crash(t, &err));
        assert_int_equal(dur_test_now_ms(t), before_ms);
        assert_ok(dur_test_run_until_blocked(t, &err));
        assert_int_equal(dur_test_calls(t, "Greet"), 2 + (size_t)i);
    }
    assert_ok(dur_test_run_to_end(t, "h", &err));
    assert_string_equal(dur_test_output(t, "h"), "hi");
    assert_ok(dur_test_crash(t, &err));
    assert_ok(dur_test_crash(t, &err)); /* nobody is there: no harm */
    assert_ok(dur_test_run_until_blocked(t, &err));
    assert_int_equal(dur_test_calls(t, "Greet"), 21);
    dur_test_free(t);
}

static int entries(const dur_test_options *options) {
    dur_test *t = begin_ex(options);
    entered = 0;
    assert_ok(dur_test_start(t, &err, "Replayed", "you", .instance = "r"));
    assert_ok(dur_test_run_until_blocked(t, &err));
    assert_ok(dur_test_advance(t, DAY, &err));
    assert_true(dur_test_waits(t, "r", DUR_WAIT_PULSE, "Go"));
    assert_ok(dur_test_pulse(t, &err, "r", "Go"));
    assert_ok(dur_test_run_to_end(t, "r", &err));
    assert_string_equal(dur_test_output(t, "r"), "hello you");
    dur_test_free(t);
    return entered;
}

static void a_node_dies_or_forgets_at_every_wait(void **state) {
    (void)state;
    assert_int_equal(entries(DUR_TEST(.handlers = handlers, .no_double_run = true)), 1);
    assert_true(entries(DUR_TEST(.handlers = handlers)) > 1);
    /* three waits: the timer, the activity, the event */
    assert_int_equal(entries(DUR_TEST(.handlers = handlers, .no_double_run = true, .crash_every_wait = true)), 4);
    assert_int_equal(entries(DUR_TEST(.handlers = handlers, .no_double_run = true, .evict_every_wait = true)), 4);
}

/* ---- fixtures ---- */

static dur_outcome changed_hello(dur_ctx *ctx, const char *name) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Salute", name)));
}

static void a_history_is_a_fixture(void **state) {
    (void)state;
    static const dur_handler changed[] = { DUR_ORCHESTRATION("Hello", "1.0.0", changed_hello), DUR_HANDLERS_END };
    dur_test *t = begin();
    dur_replay_report report = { .size = sizeof(report) };
    assert_ok(dur_test_start(t, &err, "Hello", "you", .instance = "h"));
    assert_ok(dur_test_run_to_end(t, "h", &err));
    assert_ok(dur_test_save_history(t, "h", "hello.json", &err));
    dur_test_free(t);
    assert_ok(dur_test_replay_file(&report, handlers, "hello.json", &err));
    assert_true(report.finished);
    assert_int_equal(dur_test_replay_file(NULL, changed, "hello.json", &err), DUR_ENONDETERMINISM);
    assert_int_equal(dur_test_replay_file(NULL, handlers, "nothing.json", &err), DUR_ENOTFOUND);
}

static void a_table_is_refused_as_by_a_runtime(void **state) {
    (void)state;
    static const dur_handler tables[][3] = {
        { DUR_ACTIVITY("Greet", greet), DUR_ACTIVITY("Greet", doze), DUR_HANDLERS_END },
        { DUR_ORCHESTRATION("Hello", "1.0.0", hello), DUR_ORCHESTRATION("Hello", "1.0.0", later), DUR_HANDLERS_END },
        { DUR_ACTIVITY(NULL, greet), DUR_HANDLERS_END },
        { DUR_ACTIVITY("", greet), DUR_HANDLERS_END },
        { DUR_ACTIVITY("Greet", NULL), DUR_HANDLERS_END },
        { DUR_ACTIVITY("__duroxide_syscall:x", greet), DUR_HANDLERS_END },
        { DUR_ORCHESTRATION(NULL, "1.0.0", hello), DUR_HANDLERS_END },
        { DUR_ORCHESTRATION("Hello", "1.0.0", NULL), DUR_HANDLERS_END },
        { DUR_ORCHESTRATION("Hello", "one", hello), DUR_HANDLERS_END },
        { DUR_ACTIVITY("Greet", greet), DUR_ORCHESTRATION("Hello", "1.0.0", hello), DUR_HANDLERS_END },
        { DUR_ACTIVITY_TAKEN("Greet"), DUR_HANDLERS_END },
    };
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        dur_provider *store = NULL;
        dur_runtime *runtime = NULL;
        dur_test *t = NULL;
        dur_error why = DUR_ERROR_INIT;
        assert_ok(dur_open(&store, "memory:", &err));
        int code = dur_runtime_start(
            &runtime, DUR_RUNTIME(.store = store, .handlers = tables[i], .threads = DUR_THREADS_NONE), &why);
        if (code == DUR_OK) assert_ok(dur_runtime_stop(runtime, 0, &err));
        dur_provider_close(store);
        dur_error_clear(&err);
        assert_int_equal(dur_test_new(&t, DUR_TEST(.handlers = tables[i]), &err), code);
        assert_string_equal(err.message, why.message);
        assert_int_equal(t != NULL, code == DUR_OK);
        dur_test_free(t);
    }
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    static const dur_handler twice[] = { DUR_ORCHESTRATION("A", "1.0.0", hello), DUR_ORCHESTRATION("A", "1.0.0", hello),
                                         DUR_HANDLERS_END };
    dur_test *t = NULL;
    assert_int_equal(dur_test_new(&t, NULL, &err), DUR_EINVAL);
    assert_int_equal(dur_test_new(&t, DUR_TEST(.seed = 1), &err), DUR_EINVAL);
    assert_int_equal(dur_test_new(&t, DUR_TEST(.handlers = twice), &err), DUR_EEXISTS);
    assert_null(t);
    dur_test_free(NULL);
}

static void what_is_missing_is_answered(void **state) {
    (void)state;
    dur_test *t = NULL;
    assert_int_equal(dur_test_new(NULL, DUR_TEST(.handlers = handlers), &err), DUR_EINVAL);
    assert_ok(dur_test_new(&t, DUR_TEST(.handlers = handlers), &err));
    assert_ok(dur_test_start(t, &err, "Later", "1", .instance = "l"));
    for (int i = 0; i < 2; i++) { /* without a test, without a name */
        dur_test *of = i == 0 ? NULL : t;
        const char *id = i == 0 ? "l" : NULL;
        assert_int_equal(dur_test_calls(of, id), 0);
        assert_null(dur_test_call_input(of, id, 0));
        assert_int_equal(dur_test_status(of, id), DUR_INSTANCE_NOT_FOUND);
        assert_null(dur_test_output(of, id));
        assert_false(dur_test_waits(of, id, DUR_WAIT_TIMER, NULL));
        assert_string_equal(dur_test_waits_text(of, id), "no such instance");
        assert_int_equal(dur_test_events(of, id, NULL), 0);
        assert_int_equal(dur_test_start_ex(of, NULL, &err), DUR_EINVAL);
        assert_int_equal(dur_test_start(of, &err, id, NULL, .instance = id), DUR_EINVAL);
        assert_int_equal(dur_test_pulse_ex(of, NULL, &err), DUR_EINVAL);
        assert_int_equal(dur_test_pulse(of, &err, id, "x", NULL), DUR_EINVAL);
        assert_int_equal(dur_test_send_ex(of, NULL, &err), DUR_EINVAL);
        assert_int_equal(dur_test_send(of, &err, id, "x", NULL), DUR_EINVAL);
        assert_int_equal(dur_test_cancel(of, id, NULL, &err), DUR_EINVAL);
        assert_int_equal(dur_test_mock_ex(of, NULL, &err), DUR_EINVAL);
        assert_int_equal(dur_test_mock(of, &err, id), DUR_EINVAL);
        assert_int_equal(dur_test_run_to_end(of, id, &err), DUR_EINVAL);
        assert_int_equal(dur_test_save_history(of, id, "history.json", &err), DUR_EINVAL);
        assert_int_equal(dur_test_replay_file(NULL, i == 0 ? NULL : handlers, id, &err), DUR_EINVAL);
    }
    assert_int_equal(dur_test_save_history(t, "l", NULL, &err), DUR_EINVAL);
    assert_int_equal(dur_test_run_until_blocked(NULL, NULL), DUR_EINVAL);
    assert_int_equal(dur_test_advance(NULL, 1, NULL), DUR_EINVAL);
    assert_int_equal(dur_test_crash(NULL, NULL), DUR_EINVAL);
    assert_int_equal(dur_test_now_ms(NULL), 0);
    assert_null(dur_test_client(NULL));
    assert_ok(dur_test_run_to_end(t, "l", NULL)); /* and nobody needs an error */
    dur_test_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thirty_days_of_timers_take_no_time),
        cmocka_unit_test(forty_years_are_one_wait),
        cmocka_unit_test(time_never_goes_back),
        cmocka_unit_test(time_passes_as_far_as_it_is_told),
        cmocka_unit_test(a_client_and_an_activity_that_wait_do_not_sleep),
        cmocka_unit_test(a_wait_with_a_limit_ends_where_nothing_comes),
        cmocka_unit_test(fault_h162_a_wait_without_a_limit_ends_where_nothing_comes),
        cmocka_unit_test(an_activity_that_waits_for_others_lets_them_go_on),
        cmocka_unit_test(a_delayed_start_begins_when_it_is_due),
        cmocka_unit_test(a_loop_that_reminds_can_be_cancelled),
        cmocka_unit_test(an_activity_without_a_mock_runs_as_registered),
        cmocka_unit_test(a_mock_fails_so_often_and_then_completes),
        cmocka_unit_test(a_mock_that_takes_time_takes_it_beside_others),
        cmocka_unit_test(a_mock_can_be_a_function),
        cmocka_unit_test(one_asks_what_an_instance_waits_for),
        cmocka_unit_test(an_activity_that_nobody_has_is_named),
        cmocka_unit_test(executions_are_one_instance),
        cmocka_unit_test(what_goes_on_and_on_is_stopped),
#ifndef SANITIZED
        cmocka_unit_test(fault_h161_a_loop_is_stopped_although_each_turn_is_replayed),
#endif
        cmocka_unit_test(a_run_is_a_function_of_its_seed),
        cmocka_unit_test(a_handler_that_is_not_deterministic_fails_its_test),
        cmocka_unit_test(what_was_not_recorded_happens_again),
        cmocka_unit_test(a_node_dies_or_forgets_at_every_wait),
        cmocka_unit_test(a_history_is_a_fixture),
        cmocka_unit_test(a_table_is_refused_as_by_a_runtime),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(what_is_missing_is_answered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
