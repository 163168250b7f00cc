/*
 * testing.c: how an orchestration of one's own is tested.  An order reserves an item, waits a day for its payment,
 * reminds once and gives up after a month; the tests take no time, break the warehouse, kill the node, and look for
 * what nobody thought of.
 */
#include <durite/durite.h>
#include <durite/testing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is tested ---------------------------------------------------------------------------------------------- */

static dur_outcome reserve(dur_act *act, const char *item) {
    return dur_act_completef(act, "reserved %s", item);
}

static dur_outcome release(dur_act *act, const char *item) {
    return dur_act_completef(act, "released %s", item);
}

static dur_outcome remind(dur_act *act, const char *item) {
    return dur_act_completef(act, "mail about %s", item);
}

static dur_outcome sell(dur_ctx *ctx, void *arg) {
    const char *item = arg;
    dur_await(dur_activity(ctx, "Reserve", item, .retry = DUR_RETRY(.attempts_max = 5, .delay_ms = DUR_SECONDS(30))));
    dur_future *paid = dur_message(ctx, "Paid");
    if (dur_any(paid, dur_timer(ctx, DUR_HOURS(24))) != paid) dur_await(dur_activity(ctx, "Remind", item));
    const char *payment;
    if (dur_try_for(paid, DUR_HOURS(24 * 30), &payment) != DUR_OK) return dur_fail(ctx, "never paid");
    return dur_completef(ctx, "paid: %s", payment);
}

/* However selling goes wrong, by a cancel in the middle of the reservation too: what may be reserved is released. */
static dur_outcome order(dur_ctx *ctx, const char *item) {
    const char *result;
    dur_saga *saga = dur_saga_begin(ctx);
    dur_saga_undo(saga, "Release", item, .retry = DUR_RETRY(.attempts_max = 100));
    dur_future *sold = dur_spawn(ctx, sell, dur_strdup(ctx, item));
    if (dur_try(sold, &result) == DUR_OK) return dur_complete(ctx, result);
    dur_saga_compensate(saga);
    return dur_fail(ctx, dur_reason(sold));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Reserve", reserve),
    DUR_ACTIVITY("Release", release),
    DUR_ACTIVITY("Remind", remind),
    DUR_ORCHESTRATION("Order", "1.0.0", order),
    DUR_HANDLERS_END,
};

/* ---- tests: any framework will do -------------------------------------------------------------------------------- */

static dur_error err;

static void must(bool holds, const char *what, dur_test *t) {
    if (holds) return;
    fprintf(stderr, "not so: %s (%s); the order waits for: %s\n", what, err.message, dur_test_waits_text(t, "o"));
    exit(EXIT_FAILURE);
}
#define MUST(holds) must((holds), #holds, t)

static dur_test *begin(void) {
    dur_test *t = NULL;
    MUST(dur_test_new(&t, DUR_TEST(.handlers = handlers), &err) == DUR_OK);
    MUST(dur_test_start(t, &err, "Order", "chair", .instance = "o") == DUR_OK);
    return t;
}

static void a_customer_who_never_pays_is_reminded_once(void) {
    dur_test *t = begin();
    uint64_t begin_ms = dur_test_now_ms(t);
    MUST(dur_test_run_until_blocked(t, &err) == DUR_OK);
    MUST(dur_test_waits(t, "o", DUR_WAIT_MESSAGE, "Paid"));
    MUST(dur_test_calls(t, "Remind") == 0);
    MUST(dur_test_advance(t, DUR_HOURS(24), &err) == DUR_OK);
    MUST(dur_test_calls(t, "Remind") == 1);
    MUST(dur_test_run_to_end(t, "o", &err) == DUR_OK);
    MUST(strcmp(dur_test_output(t, "o"), "never paid") == 0);
    MUST(dur_test_now_ms(t) - begin_ms == DUR_HOURS(24 * 31));
    MUST(strcmp(dur_test_call_input(t, "Release", 0), "chair") == 0);
    dur_test_free(t);
}

static void a_warehouse_that_is_down_is_asked_again(void) {
    dur_test *t = begin();
    dur_test_mock(t, &err, "Reserve", .result = "ok", .fail_times = 2, .reason = "no connection");
    MUST(dur_test_run_until_blocked(t, &err) == DUR_OK);
    MUST(dur_test_calls(t, "Reserve") == 1 && dur_test_waits(t, "o", DUR_WAIT_TIMER, NULL));
    MUST(dur_test_send(t, &err, "o", "Paid", "100") == DUR_OK);
    MUST(dur_test_run_to_end(t, "o", &err) == DUR_OK);
    MUST(dur_test_calls(t, "Reserve") == 3);
    MUST(strcmp(dur_test_output(t, "o"), "paid: 100") == 0);
    dur_test_free(t);
}

static void a_payment_survives_the_node(void) {
    dur_test *t = begin();
    MUST(dur_test_run_until_blocked(t, &err) == DUR_OK);
    MUST(dur_test_send(t, &err, "o", "Paid", "100") == DUR_OK);
    MUST(dur_test_crash(t, &err) == DUR_OK);
    MUST(dur_test_run_to_end(t, "o", &err) == DUR_OK);
    MUST(strcmp(dur_test_output(t, "o"), "paid: 100") == 0);
    MUST(dur_test_calls(t, "Reserve") == 1); /* recorded: not asked for again */
    dur_test_free(t);
}

/* ---- and what nobody thought of ---------------------------------------------------------------------------------- */

typedef struct warehouse {
    int reserved;
    int released;
} warehouse;

/* The warehouse knows an order again: to reserve twice for one order reserves once. */
static dur_outcome reserve_once(dur_act *act, const char *item, void *data) {
    ((warehouse *)data)->reserved = 1;
    return dur_act_complete(act, item);
}

static dur_outcome release_once(dur_act *act, const char *item, void *data) {
    ((warehouse *)data)->released = 1;
    return dur_act_complete(act, item);
}

static int a_customer_orders_and_pays(dur_test *t, void *data, dur_error *e) {
    *(warehouse *)data = (warehouse){ 0 };
    dur_test_mock(t, e, "Reserve", .fn = reserve_once, .data = data);
    dur_test_mock(t, e, "Release", .fn = release_once, .data = data);
    int code = dur_test_start(t, e, "Order", "chair", .instance = "o");
    if (code == DUR_OK) code = dur_test_send(t, e, "o", "Paid", "100", .message_id = "payment-1");
    return code;
}

static int what_is_not_sold_is_released(dur_test *t, void *data, dur_error *e) {
    const warehouse *house = data;
    bool sold = dur_test_status(t, "o") == DUR_INSTANCE_COMPLETED;
    if (dur_test_output(t, "o") == NULL)
        return dur_error_set(e, DUR_EFAILED, false, "order", "the order waits for ever: %s",
                             dur_test_waits_text(t, "o"));
    if (!sold && house->reserved > house->released)
        return dur_error_set(e, DUR_EFAILED, false, "order", "reserved, not sold, not released: %s",
                             dur_test_output(t, "o"));
    return DUR_OK;
}

static void whatever_happens_nothing_stays_reserved(void) {
    dur_test *t = NULL;
    warehouse house;
    /* By default a cancelled order has five minutes to clean up.  With that a jump of the clock is enough: it is found.
     */
    const dur_runtime_options *patient = DUR_RUNTIME(.cancel_grace_ms = DUR_HOURS(24 * 365));
    MUST(dur_test_explore(NULL,
                          DUR_EXPLORE(.handlers = handlers, .scenario = a_customer_orders_and_pays,
                                      .invariant = what_is_not_sold_is_released, .data = &house, .runs = 500,
                                      .crashes = true, .reorder = true, .duplicates = true, .late_messages = true,
                                      .cancels = true, .clock_jumps = true, .runtime = patient),
                          &err) == DUR_OK);
}

int main(void) {
    a_customer_who_never_pays_is_reminded_once();
    a_warehouse_that_is_down_is_asked_again();
    a_payment_survives_the_node();
    whatever_happens_nothing_stays_reserved();
    printf("ok\n");
    return EXIT_SUCCESS;
}
