/*
 * fault_queues.c: faults of the original around messages that were lost, reordered or blocked others.
 */
#include "e2e/harness.h"
#include <durite/sys/store.h>

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome hello(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

static dur_outcome take(dur_ctx *ctx, const char *input) { /* so many messages, in order, in one execution */
    size_t count = strtoul(input, NULL, 10);
    for (size_t i = 0; i < count; i++) {
        const char *message = dur_await(dur_message(ctx, "q"));
        if (strtoul(message, NULL, 10) != i) return dur_failf(ctx, "got %s, not %zu", message, i);
    }
    return dur_completef(ctx, "%zu in order", count);
}

static dur_outcome carry(dur_ctx *ctx, const char *input) { /* generation 1 is given 30 messages and looks at none */
    if (strcmp(input, "2") == 0) return take(ctx, "30");
    for (int i = 0; i < 30; i++)
        (void)dur_message(ctx, "q");
    dur_await(dur_pulse(ctx, "Go"));
    return dur_continue_as_new(ctx, "2");
}

static dur_outcome to_version_two(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_continue_as_new(ctx, "3", .version = "2.0.0");
}

static dur_outcome timer_or_message(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "2") == 0) return dur_complete(ctx, dur_await(dur_message(ctx, "q")));
    dur_future *message = dur_message(ctx, "q");
    dur_future *timer = dur_timer(ctx, 30);
    if (dur_select(timer, message) == message) return dur_complete(ctx, "message won");
    if (strcmp(input, "can") == 0) return dur_continue_as_new(ctx, "2");
    const char *again = dur_await(dur_message(ctx, "q"));
    dur_await(dur_activity(ctx, "Echo", ""));
    return dur_complete(ctx, again);
}

static dur_outcome timer_or_event(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *event = dur_pulse(ctx, "E");
    dur_future *timer = dur_timer(ctx, 30);
    if (dur_select(timer, event) == event) return dur_complete(ctx, "event won");
    const char *again = dur_await(dur_pulse(ctx, "E"));
    dur_await(dur_activity(ctx, "Echo", ""));
    return dur_complete(ctx, again);
}

static dur_outcome two_timers(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *later = dur_timer(ctx, 60);
    dur_future *sooner = dur_timer(ctx, 20);
    dur_future *first = dur_any(later, sooner);
    dur_join(later, sooner);
    return dur_complete(ctx, first == sooner ? "sooner" : "later");
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("Hello", "1.0.0", hello),
    DUR_ORCHESTRATION("Take", "1.0.0", take),
    DUR_ORCHESTRATION("Carry", "1.0.0", carry),
    DUR_ORCHESTRATION("Upgrade", "1.0.0", to_version_two),
    DUR_ORCHESTRATION("TimerOrMessage", "1.0.0", timer_or_message),
    DUR_ORCHESTRATION("TimerOrEvent", "1.0.0", timer_or_event),
    DUR_ORCHESTRATION("TwoTimers", "1.0.0", two_timers),
    DUR_HANDLERS_END,
};
static const dur_handler with_version_two[] = {
    DUR_ORCHESTRATION("Upgrade", "1.0.0", to_version_two),
    DUR_ORCHESTRATION("Upgrade", "2.0.0", take),
    DUR_HANDLERS_END,
};
static const dur_handler only_hello[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("Hello", "1.0.0", hello),
    DUR_HANDLERS_END,
};

static void send(world *w, const char *instance, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char number[24];
        snprintf(number, sizeof(number), "%zu", i);
        OK(w, dur_client_send(w->client, &w->err, instance, "q", number));
    }
}

static void put_raw(world *w, const dur_work_item *item) {
    dur_arena *arena = dur_arena_new();
    dur_message_row message;
    OK(w, dur_message_row_from_work(&message, arena, item, &w->err));
    OK(w, dur_store_enqueue_for_orchestrator(w->store, &message, 0, &w->err));
    dur_arena_free(arena);
}

static void fault_c06_unknown_instance_never_blocks_the_queue(void **state) {
    world *w = *state;
    put_raw(w, &(dur_work_item){ .kind = DUR_WORK_EXTERNAL_RAISED, .instance = "nobody", .name = "E", .data = "" });
    put_raw(w, &(dur_work_item){ .kind = DUR_WORK_CANCEL_INSTANCE, .instance = "nobody", .reason = "" });
    put_raw(w,
            &(dur_work_item){
                .kind = DUR_WORK_ACTIVITY_COMPLETED, .instance = "no one", .execution_id = 1, .id = 2, .result = "" });
    put_raw(w, &(dur_work_item){ .kind = DUR_WORK_QUEUE_MESSAGE, .instance = "noone", .name = "q", .data = "" });
    RUN(w, handlers);
    start(w, "Hello", "through", "h");
    expect(w, "h", "through");
    /* Until somebody has these ids a check says that nobody looks at them. */
    char *result = NULL;
    start(w, "Hello", "", "nobody");
    start(w, "Hello", "", "no one");
    assert_int_equal(result_of(w, "nobody", &result), DUR_ECANCELLED);
    expect(w, "no one", "");
}

static void fault_c13_draining_hundreds_in_one_turn(void **state) {
    world *w = *state;
    start(w, "Take", "500", "t");
    send(w, "t", 500);
    RUN(w, handlers);
    expect(w, "t", "500 in order");
}

static void fault_c14_more_than_twenty_messages_over_continue_as_new(void **state) {
    world *w = *state;
    RUN(w, handlers, .double_run = true);
    start(w, "Carry", "1", "c");
    until_history(w, "c", "\"ExternalSubscribed\"", 1);
    send(w, "c", 30);
    until_history(w, "c", "\"ExternalEventPersistent\"", 30);
    OK(w, dur_client_pulse(w->client, &w->err, "c", "Go", ""));
    expect(w, "c", "30 in order");
}

static void fault_c27_messages_wait_while_continue_as_new_is_delayed(void **state) {
    world *w = *state;
    RUN(w, handlers, .unregistered_backoff_ms = 10);
    start(w, "Upgrade", "", "u");
    until_history(w, "u", "OrchestrationContinuedAsNew", 1);
    send(w, "u", 3);
    pause_ms(100);
    world_stop(w);
    RUN(w, with_version_two);
    expect(w, "u", "3 in order");
}

static void fault_c28_messages_wait_while_the_start_is_delayed(void **state) {
    world *w = *state;
    RUN(w, only_hello, .unregistered_backoff_ms = 10);
    start(w, "Take", "3", "t");
    send(w, "t", 3);
    pause_ms(100);
    world_stop(w);
    RUN(w, handlers);
    expect(w, "t", "3 in order");
}

/* The timer is due and the message is there before anybody looks: both come in one batch. */
static void one_batch(world *w, const char *input, const char *expected) {
    RUN(w, handlers, .double_run = true);
    start(w, "TimerOrMessage", input, "t");
    until_history(w, "t", "\"TimerCreated\"", 1);
    world_stop(w);
    pause_ms(60);
    OK(w, dur_client_send(w->client, &w->err, "t", "q", "kept"));
    RUN(w, handlers, .double_run = true, .evict_every_turn = true);
    expect(w, "t", expected);
}

static void fault_c29_a_message_in_the_turn_that_continues_as_new(void **state) {
    one_batch(*state, "can", "kept");
}

static void fault_c30_a_dequeue_that_lost_to_a_timer_in_the_same_batch(void **state) {
    one_batch(*state, "again", "kept");
}

static void fault_c31_an_event_wait_that_lost_to_a_timer_in_the_same_batch(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "TimerOrEvent", "", "t");
    until_history(w, "t", "\"TimerCreated\"", 1);
    world_stop(w);
    pause_ms(60);
    OK(w, dur_client_pulse(w->client, &w->err, "t", "E", "kept"));
    RUN(w, handlers, .double_run = true, .evict_every_turn = true);
    expect(w, "t", "kept");
}

static void fault_c33_waiting_keeps_the_order_of_messages(void **state) {
    world *w = *state;
    RUN(w, only_hello, .unregistered_backoff_ms = 5);
    start(w, "Take", "20", "t");
    for (size_t i = 0; i < 20; i++) {
        char number[24];
        snprintf(number, sizeof(number), "%zu", i);
        OK(w, dur_client_send(w->client, &w->err, "t", "q", number));
        pause_ms(3);
    }
    world_stop(w);
    RUN(w, handlers);
    expect(w, "t", "20 in order");
}

static void fault_c36_timers_fire_by_due_time_not_by_row(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "TwoTimers", "", "t");
    until_history(w, "t", "\"TimerCreated\"", 2);
    world_stop(w);
    pause_ms(90);
    RUN(w, handlers);
    expect(w, "t", "sooner");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(fault_c06_unknown_instance_never_blocks_the_queue),
        TEST(fault_c13_draining_hundreds_in_one_turn),
        TEST(fault_c14_more_than_twenty_messages_over_continue_as_new),
        TEST(fault_c27_messages_wait_while_continue_as_new_is_delayed),
        TEST(fault_c28_messages_wait_while_the_start_is_delayed),
        TEST(fault_c29_a_message_in_the_turn_that_continues_as_new),
        TEST(fault_c30_a_dequeue_that_lost_to_a_timer_in_the_same_batch),
        TEST(fault_c31_an_event_wait_that_lost_to_a_timer_in_the_same_batch),
        TEST(fault_c33_waiting_keeps_the_order_of_messages),
        TEST(fault_c36_timers_fire_by_due_time_not_by_row),
    };
    return cmocka_run_group_tests_name("fault_queues", tests, NULL, NULL);
}
