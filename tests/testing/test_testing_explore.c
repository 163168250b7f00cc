/*
 * test_testing_explore.c: bugs that people write, found within a second each; the mended forms hold.
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

/* Runs in which nothing is found; a sanitizer makes each of them slow. */
#ifdef SANITIZED
#define HOLD_RUNS 40
#else
#define HOLD_RUNS 300
#endif

static dur_error err;

/* What the world outside looks like after a run. */
typedef struct shop {
    int charged, refunded, shipped;
    char paid_keys[16][64]; /* under which keys the bank was asked */
    int keys;
} shop;

static shop now; /* one thread, one run at a time */

/* ---- activities ---- */

static dur_outcome charge(dur_act *act, const char *input) {
    now.charged++;
    return dur_act_complete(act, input);
}

/* A bank that knows a payment again by its key. */
static dur_outcome charge_once(dur_act *act, const char *input) {
    for (int i = 0; i < now.keys; i++)
        if (strcmp(now.paid_keys[i], dur_act_key(act)) == 0) return dur_act_complete(act, input);
    assert_true(now.keys < 16);
    snprintf(now.paid_keys[now.keys++], sizeof(now.paid_keys[0]), "%s", dur_act_key(act));
    now.charged++;
    return dur_act_complete(act, input);
}

static dur_outcome refund(dur_act *act, const char *input) {
    now.refunded = now.charged;
    return dur_act_complete(act, input);
}

static dur_outcome ship(dur_act *act, const char *input) {
    now.shipped = 1;
    return dur_act_complete(act, input);
}

static dur_outcome stock(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

/* ---- orchestrations ---- */

static dur_outcome pay(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Charge", input)));
}

/* The event may come while the stock is asked: nobody waits for it then, and it is lost. */
static dur_outcome waits_too_late(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "Stock", input));
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Paid")));
}

static dur_outcome waits_first(dur_ctx *ctx, const char *input) {
    dur_future *paid = dur_message(ctx, "paid"); /* a queue keeps what comes early */
    dur_await(dur_activity(ctx, "Stock", input));
    return dur_complete(ctx, dur_await(paid));
}

/* Cancelled behind the charge: the await ends the handler, and nobody refunds. */
static dur_outcome sells_and_forgets(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "Charge", input));
    dur_await(dur_timer(ctx, DUR_HOURS(1)));
    dur_await(dur_activity(ctx, "Ship", input));
    return dur_complete(ctx, "sold");
}

static dur_outcome sell(dur_ctx *ctx, void *arg) {
    (void)sells_and_forgets(ctx, arg);
    return dur_complete(ctx, "sold");
}

static dur_outcome sells_with_care(dur_ctx *ctx, const char *input) {
    const char *result;
    dur_future *sold = dur_spawn(ctx, sell, dur_strdup(ctx, input));
    if (dur_try(sold, &result) == DUR_OK) return dur_complete(ctx, result);
    dur_await(dur_activity(ctx, "Refund", input));
    return dur_fail(ctx, dur_reason(sold));
}

static dur_outcome counts_letters(dur_ctx *ctx, const char *input) {
    (void)input;
    int count = 0;
    const char *letter;
    while (dur_try_for(dur_message(ctx, "letters"), DUR_HOURS(24), &letter) == DUR_OK)
        count++;
    return dur_completef(ctx, "%d", count);
}

static int whim;
static dur_outcome whimsical(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "Stock", dur_format(ctx, "%s%d", input, whim)));
    dur_await(dur_timer(ctx, 10));
    return dur_complete(ctx, "");
}

/* Which of two equal activities ends first decides. */
static dur_outcome first_wins(dur_ctx *ctx, const char *input) {
    dur_future *a = dur_activity(ctx, "Stock", "a"), *b = dur_activity(ctx, "Ship", input);
    return dur_complete(ctx, dur_any(a, b) == a ? "a" : "b");
}

static dur_outcome pays_later(dur_ctx *ctx, const char *days) {
    dur_await(dur_timer(ctx, DUR_DAYS(strtoul(days, NULL, 10))));
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Charge", days)));
}

static dur_outcome ticks(dur_ctx *ctx, const char *input) {
    dur_await(dur_timer(ctx, 1000));
    return dur_continue_as_new(ctx, input);
}

static dur_outcome decides(dur_ctx *ctx, const char *deadline_ms) {
    const char *decision = "";
    uint64_t ms = strtoull(deadline_ms, NULL, 10);
    if (ms == 0) return dur_complete(ctx, dur_await(dur_message(ctx, "decisions")));
    if (dur_try_for(dur_message(ctx, "decisions"), ms, &decision) == DUR_OK) return dur_complete(ctx, decision);
    return dur_complete(ctx, "too late");
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("Decides", "1.0.0", decides),
    DUR_ORCHESTRATION("Ticks", "1.0.0", ticks),
    DUR_ORCHESTRATION("PaysLater", "1.0.0", pays_later),
    DUR_ACTIVITY("Charge", charge),
    DUR_ACTIVITY("Refund", refund),
    DUR_ACTIVITY("Ship", ship),
    DUR_ACTIVITY("Stock", stock),
    DUR_ORCHESTRATION("Pay", "1.0.0", pay),
    DUR_ORCHESTRATION("WaitsTooLate", "1.0.0", waits_too_late),
    DUR_ORCHESTRATION("WaitsFirst", "1.0.0", waits_first),
    DUR_ORCHESTRATION("SellsAndForgets", "1.0.0", sells_and_forgets),
    DUR_ORCHESTRATION("SellsWithCare", "1.0.0", sells_with_care),
    DUR_ORCHESTRATION("CountsLetters", "1.0.0", counts_letters),
    DUR_ORCHESTRATION("Whimsical", "1.0.0", whimsical),
    DUR_ORCHESTRATION("FirstWins", "1.0.0", first_wins),
    DUR_HANDLERS_END,
};

static const dur_handler careful[] = {
    DUR_ACTIVITY("Charge", charge_once),
    DUR_ORCHESTRATION("Pay", "1.0.0", pay),
    DUR_HANDLERS_END,
};

/* ---- running ---- */

static int64_t cpu_us(void) {
    struct timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at); /* what others do on this machine does not count */
    return (int64_t)at.tv_sec * 1000000 + at.tv_nsec / 1000;
}

/* The story; the run must fail, within a second, and again by its seed. */
static char *must_find(const dur_explore_options *given, const char *part) {
    dur_explore_options options = *given;
    dur_explore_report report = { .size = sizeof(report) }, again = { .size = sizeof(again) };
    options.quiet = true;
    int64_t begin_us = cpu_us();
    assert_int_equal(dur_test_explore(&report, &options, &err), DUR_EFAILED);
    int64_t us = cpu_us() - begin_us;
    fprintf(stderr, "# found in run %llu after %lld us\n%s", (unsigned long long)report.runs, (long long)us,
            report.story);
#ifndef SANITIZED
    assert_true(us < 1000000);
#endif
    assert_non_null(strstr(err.message, part));
    assert_non_null(strstr(report.story, part));
    options.only = report.failed_seed;
    assert_int_equal(dur_test_explore(&again, &options, &err), DUR_EFAILED);
    assert_string_equal(again.story, report.story);
    assert_int_equal(again.runs, 1);
    assert_true(report.story_faults <= 2);
    dur_free(again.story);
    return report.story;
}

static void must_hold(const dur_explore_options *options) {
    dur_explore_report report = { .size = sizeof(report) };
    int code = dur_test_explore(&report, options, &err);
    assert_int_equal(code, DUR_OK);
    assert_null(report.story);
    assert_true(report.faults > 0);
}

/* ---- a charge that is not idempotent ---- */

static int somebody_pays(dur_test *t, void *data, dur_error *e) {
    (void)data;
    now = (shop){ 0 };
    return dur_test_start(t, e, "Pay", "42", .instance = "p");
}

static int charged_once(dur_test *t, void *data, dur_error *e) {
    (void)data;
    if (dur_test_status(t, "p") == DUR_INSTANCE_COMPLETED && now.charged == 1) return DUR_OK;
    return dur_error_set(e, DUR_EFAILED, false, "shop", "charged %d times", now.charged);
}

static void a_charge_that_is_not_idempotent(void **state) {
    (void)state;
    char *story = must_find(DUR_EXPLORE(.handlers = handlers, .scenario = somebody_pays, .invariant = charged_once,
                                        .crashes = true, .reorder = true, .duplicates = true, .clock_jumps = true),
                            "charged 2 times");
    /* The shortest run: what it did is done, the node dies, and it is done again.  Nothing else goes wrong. */
    const char *runs = strstr(story, "activity Charge(\"42\") of p runs");
    const char *dies = strstr(story, "** the node dies");
    assert_non_null(runs);
    assert_non_null(dies);
    assert_true(runs < dies);
    assert_non_null(strstr(dies, "activity Charge(\"42\") of p runs"));
    assert_null(strstr(dies + 2, "**"));
    dur_free(story);
    must_hold(DUR_EXPLORE(.handlers = careful, .scenario = somebody_pays, .invariant = charged_once, .runs = HOLD_RUNS,
                          .crashes = true, .reorder = true, .duplicates = true, .clock_jumps = true));
}

/* ---- waits of months and years ---- */

static int somebody_pays_later(dur_test *t, void *data, dur_error *e) {
    now = (shop){ 0 };
    return dur_test_start(t, e, "PaysLater", data, .instance = "p");
}

/* However long the wait is, as many things go wrong behind the wait as before. */
static void what_comes_after_a_long_wait_is_explored_too(void **state) {
    (void)state;
    static const char *const days[] = { "0", "1", "30", "365", "14600" };
    uint64_t moves[5];
    for (size_t i = 0; i < 5; i++) {
        void *data = (void *)(uintptr_t)days[i];
        dur_explore_report report = { .size = sizeof(report) };
        assert_int_equal(dur_test_explore(&report,
                                          DUR_EXPLORE(.handlers = handlers, .scenario = somebody_pays_later,
                                                      .data = data, .runs = 2, .moves_max = 100),
                                          &err),
                         DUR_OK);
        moves[i] = report.moves;
        dur_free(must_find(DUR_EXPLORE(.handlers = handlers, .scenario = somebody_pays_later, .data = data,
                                       .invariant = charged_once, .crashes = true),
                           "charged 2 times"));
    }
    assert_int_equal(moves[1], moves[4]); /* a wait is a wait */
}

static int somebody_ticks(dur_test *t, void *data, dur_error *e) {
    (void)data;
    return dur_test_start(t, e, "Ticks", "", .instance = "tick");
}

static int nothing_holds(dur_test *t, void *data, dur_error *e) {
    (void)t, (void)data;
    return dur_error_set(e, DUR_EFAILED, false, "shop", "nothing holds");
}

static int all_holds(dur_test *t, void *data, dur_error *e) {
    (void)t, (void)data, (void)e;
    return DUR_OK;
}

static void a_run_that_is_cut_off_says_so(void **state) {
    (void)state;
    static const char cut[] = "cut off after 50 moves (moves_max), with more to do: ";
    char *story = must_find(DUR_EXPLORE(.handlers = handlers, .scenario = somebody_ticks, .moves_max = 50), cut);
    assert_non_null(strstr(story, "explore: the run is cut off after 50 moves"));
    assert_non_null(strstr(story, "with more to do: tick has not ended"));
    dur_free(story);
    story = must_find(
        DUR_EXPLORE(.handlers = handlers, .scenario = somebody_ticks, .invariant = nothing_holds, .moves_max = 50),
        cut);
    assert_non_null(strstr(story, "with more to do: nothing holds"));
    dur_free(story);
    assert_int_equal(dur_test_explore(NULL,
                                      DUR_EXPLORE(.handlers = handlers, .scenario = somebody_ticks, .runs = 2,
                                                  .invariant = all_holds, .moves_max = 50),
                                      &err),
                     DUR_OK);
    story = must_find(DUR_EXPLORE(.handlers = handlers, .scenario = somebody_pays, .invariant = nothing_holds),
                      "nothing holds");
    assert_null(strstr(story, "cut off"));
    dur_free(story);
}

/* ---- an event that comes before its wait ---- */

static int order_by_name(dur_test *t, void *data, dur_error *e) {
    now = (shop){ 0 };
    int code = dur_test_start(t, e, data, "42", .instance = "o");
    if (code == DUR_OK) code = dur_test_run_until_blocked(t, e);
    if (code == DUR_OK) code = dur_test_pulse(t, e, "o", "Paid", "100");
    if (code == DUR_OK) code = dur_test_send(t, e, "o", "paid", "100");
    return code;
}

static void an_event_that_comes_before_its_wait(void **state) {
    (void)state;
    /* As people test it, it works: the event is raised when the order waits for it. */
    dur_test *t = NULL;
    assert_int_equal(dur_test_new(&t, DUR_TEST(.handlers = handlers), &err), DUR_OK);
    assert_int_equal(order_by_name(t, "WaitsTooLate", &err), DUR_OK);
    assert_int_equal(dur_test_run_to_end(t, "o", &err), DUR_OK);
    dur_test_free(t);
    char *story = must_find(DUR_EXPLORE(.handlers = handlers, .scenario = order_by_name, .data = "WaitsTooLate",
                                        .reorder = true, .late_messages = true),
                            "o has not ended and waits for: pulse Paid");
    dur_free(story);
    must_hold(DUR_EXPLORE(.handlers = handlers, .scenario = order_by_name, .data = "WaitsFirst", .runs = HOLD_RUNS,
                          .crashes = true, .reorder = true, .late_messages = true, .duplicates = true));
}

/* ---- a compensation that is missing ---- */

static int sale_by_name(dur_test *t, void *data, dur_error *e) {
    now = (shop){ 0 };
    return dur_test_start(t, e, data, "42", .instance = "s");
}

static int shipped_or_refunded(dur_test *t, void *data, dur_error *e) {
    (void)data;
    if (dur_test_output(t, "s") == NULL) return dur_error_set(e, DUR_EFAILED, false, "shop", "it does not end");
    if (now.charged == 0 || now.shipped || now.refunded) return DUR_OK;
    return dur_error_set(e, DUR_EFAILED, false, "shop", "charged, neither shipped nor refunded");
}

static void a_compensation_that_is_missing(void **state) {
    (void)state;
    char *story =
        must_find(DUR_EXPLORE(.handlers = handlers, .scenario = sale_by_name, .data = "SellsAndForgets",
                              .invariant = shipped_or_refunded, .cancels = true, .reorder = true, .crashes = true),
                  "neither shipped nor refunded");
    assert_non_null(strstr(story, "** somebody cancels s"));
    assert_null(strstr(story, "** the node dies"));
    dur_free(story);
    must_hold(DUR_EXPLORE(.handlers = handlers, .scenario = sale_by_name, .data = "SellsWithCare", .runs = HOLD_RUNS,
                          .invariant = shipped_or_refunded, .cancels = true, .reorder = true, .crashes = true));
}

/* ---- a scenario that runs to the end ---- */

static int sold_to_the_end(dur_test *t, void *data, dur_error *e) {
    now = (shop){ 0 };
    int code = dur_test_start(t, e, data, "42", .instance = "s");
    if (code == DUR_OK) code = dur_test_run_to_end(t, "s", e);
    if (code != DUR_OK || dur_test_output(t, "s") != NULL) return code;
    return dur_error_set(e, DUR_EFAILED, false, "shop", "it has not ended");
}

static void a_scenario_can_run_to_the_end(void **state) {
    (void)state;
    for (int i = 0; i < 6; i++)
        assert_int_equal(
            dur_test_explore(NULL,
                             DUR_EXPLORE(.handlers = handlers, .scenario = sold_to_the_end, .data = "SellsWithCare",
                                         .runs = HOLD_RUNS / 3, .crashes = i == 0 || i == 5,
                                         .reorder = i == 1 || i == 5, .late_messages = i == 2 || i == 5,
                                         .cancels = i == 3, .clock_jumps = i == 4, .duplicates = i == 5),
                             &err),
            DUR_OK);
}

/* ---- a message that comes behind a deadline ---- */

static int a_decision(dur_test *t, void *data, dur_error *e) {
    int code = dur_test_start(t, e, "Decides", data, .instance = "d");
    if (code == DUR_OK) code = dur_test_run_until_blocked(t, e);
    if (code == DUR_OK) code = dur_test_send(t, e, "d", "decisions", "yes", .message_id = "1");
    return code;
}

static int a_decision_beside_others(dur_test *t, void *data, dur_error *e) {
    int code = dur_test_start(t, e, "Ticks", "", .instance = "tick");
    return code == DUR_OK ? a_decision(t, data, e) : code;
}

static int decided(dur_test *t, void *data, dur_error *e) {
    (void)data;
    const char *what = dur_test_output(t, "d");
    if (what != NULL && strcmp(what, "yes") == 0) return DUR_OK;
    return dur_error_set(e, DUR_EFAILED, false, "decision", "%s", what != NULL ? what : "none");
}

static void a_late_message_comes_behind_a_deadline(void **state) {
    (void)state;
    static const char *const deadlines_ms[] = { "1", "1000", "86400000", "31536000000" };
    for (size_t i = 0; i < 4; i++) {
        void *data = (void *)(uintptr_t)deadlines_ms[i];
        char *story = must_find(DUR_EXPLORE(.handlers = handlers, .scenario = a_decision, .data = data,
                                            .invariant = decided, .late_messages = true),
                                "too late");
        const char *fired = strstr(story, "TimerFired");
        assert_non_null(fired);
        assert_null(strstr(story, "**"));
        dur_free(story);
    }
    /* Also where others have timers of their own before the deadline. */
    dur_free(must_find(DUR_EXPLORE(.handlers = handlers, .scenario = a_decision_beside_others, .data = "30500",
                                   .invariant = decided, .late_messages = true, .moves_max = 500),
                       "too late"));
    /* Who waits as long as it takes gets it in every run. */
    must_hold(DUR_EXPLORE(.handlers = handlers, .scenario = a_decision, .data = "0", .invariant = decided,
                          .runs = HOLD_RUNS, .late_messages = true, .duplicates = true, .crashes = true,
                          .reorder = true));
}

/* ---- what clients send twice ---- */

static int three_letters(dur_test *t, void *data, dur_error *e) {
    bool ids = data != NULL;
    int code = dur_test_start(t, e, "CountsLetters", "", .instance = "c");
    if (code == DUR_OK) code = dur_test_send(t, e, "c", "letters", "1", .message_id = ids ? "1" : NULL);
    if (code == DUR_OK) code = dur_test_send(t, e, "c", "letters", "2", .message_id = ids ? "2" : NULL);
    if (code == DUR_OK) code = dur_test_send(t, e, "c", "letters", "3", .message_id = ids ? "3" : NULL);
    return code;
}

static int three_are_counted(dur_test *t, void *data, dur_error *e) {
    (void)data;
    const char *count = dur_test_output(t, "c");
    if (count != NULL && strcmp(count, "3") == 0) return DUR_OK;
    return dur_error_set(e, DUR_EFAILED, false, "letters", "%s letters", count != NULL ? count : "no");
}

static void letters_that_come_twice(void **state) {
    (void)state;
    dur_free(must_find(DUR_EXPLORE(.handlers = handlers, .scenario = three_letters, .invariant = three_are_counted,
                                   .duplicates = true),
                       "4 letters"));
    must_hold(DUR_EXPLORE(.handlers = handlers, .scenario = three_letters, .invariant = three_are_counted, .data = &now,
                          .runs = HOLD_RUNS, .duplicates = true, .crashes = true, .reorder = true));
}

/* ---- orders ---- */

static int race(dur_test *t, void *data, dur_error *e) {
    (void)data;
    return dur_test_start(t, e, "FirstWins", "b", .instance = "f");
}

static int a_wins(dur_test *t, void *data, dur_error *e) {
    (void)data;
    const char *winner = dur_test_output(t, "f");
    if (winner != NULL && strcmp(winner, "a") == 0) return DUR_OK;
    return dur_error_set(e, DUR_EFAILED, false, "race", "%s wins", winner != NULL ? winner : "nobody");
}

static void what_is_independent_comes_in_any_order(void **state) {
    (void)state;
    assert_int_equal(
        dur_test_explore(NULL, DUR_EXPLORE(.handlers = handlers, .scenario = race, .invariant = a_wins, .runs = 20),
                         &err),
        DUR_OK); /* nothing may go wrong: as it is written */
    dur_free(
        must_find(DUR_EXPLORE(.handlers = handlers, .scenario = race, .invariant = a_wins, .reorder = true), "b wins"));
}

static void who_ends_first_does_not_hang_on_the_wall_clock(void **state) {
    (void)state;
    must_hold(DUR_EXPLORE(.handlers = handlers, .scenario = race, .invariant = a_wins, .runs = 3 * HOLD_RUNS,
                          .clock_jumps = true));
}

static int a_whim(dur_test *t, void *data, dur_error *e) {
    (void)data;
    whim = 0;
    int code = dur_test_start(t, e, "Whimsical", "x", .instance = "w");
    if (code == DUR_OK) code = dur_test_run_until_blocked(t, e);
    whim = 1; /* what a deploy, a static variable or getenv() would do */
    return code;
}

static void a_handler_that_does_not_fit_its_history(void **state) {
    (void)state;
    dur_free(must_find(DUR_EXPLORE(.handlers = handlers, .scenario = a_whim, .crashes = true, .no_double_run = true),
                       "w is suspended"));
}

static int gives_up(dur_test *t, void *data, dur_error *e) {
    (void)t, (void)data, (void)e;
    return DUR_EIO;
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    assert_int_equal(dur_test_explore(NULL, NULL, &err), DUR_EINVAL);
    assert_int_equal(dur_test_explore(NULL, DUR_EXPLORE(.handlers = handlers), &err), DUR_EINVAL);
    dur_free(must_find(DUR_EXPLORE(.handlers = handlers, .scenario = gives_up), "the scenario has returned DUR_EIO"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_charge_that_is_not_idempotent),
        cmocka_unit_test(what_comes_after_a_long_wait_is_explored_too),
        cmocka_unit_test(a_run_that_is_cut_off_says_so),
        cmocka_unit_test(an_event_that_comes_before_its_wait),
        cmocka_unit_test(a_compensation_that_is_missing),
        cmocka_unit_test(a_scenario_can_run_to_the_end),
        cmocka_unit_test(a_late_message_comes_behind_a_deadline),
        cmocka_unit_test(letters_that_come_twice),
        cmocka_unit_test(what_is_independent_comes_in_any_order),
        cmocka_unit_test(who_ends_first_does_not_hang_on_the_wall_clock),
        cmocka_unit_test(a_handler_that_does_not_fit_its_history),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
