/*
 * e2e_messages.c: positional events and first-in-first-out queues.
 */
#include "harness.h"

#include <pthread.h>

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome two_events(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *first = dur_await(dur_pulse(ctx, "E"));
    const char *second = dur_await(dur_pulse(ctx, "E"));
    return dur_completef(ctx, "%s %s", first, second);
}

static dur_outcome late_wait(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_pulse(ctx, "Go"));
    const char *value = NULL;
    dur_code code = dur_try_for(dur_pulse(ctx, "E"), 50, &value);
    return dur_complete(ctx, code == DUR_OK ? value : "nothing");
}

static dur_outcome drain(dur_ctx *ctx, const char *input) {
    size_t count = strtoul(input, NULL, 10);
    size_t wrong = 0;
    for (size_t i = 0; i < count; i++) {
        dur_scope *scope = dur_scope_begin(ctx);
        wrong += strtoul(dur_await(dur_message(ctx, "q")), NULL, 10) != i;
        dur_scope_end(scope);
    }
    return dur_completef(ctx, "%zu wrong", wrong);
}

enum { SENDERS = 16 };

/* Its input is how many messages of each sender have come; each sender's are numbered. */
static dur_outcome one_per_generation(dur_ctx *ctx, const char *input) {
    unsigned long next[SENDERS], total = 0;
    char *text = dur_alloc(ctx, SENDERS * 8), *end = text;
    const char *message = dur_await(dur_message(ctx, "q"));
    for (size_t i = 0; i < SENDERS; i++) {
        next[i] = strtoul(input, (char **)(uintptr_t)&input, 10);
        total += next[i];
    }
    if (strcmp(message, "end") == 0) return dur_completef(ctx, "%lu in order", total);
    unsigned long sender = strtoul(message, NULL, 10), number = strtoul(strchr(message, ' '), NULL, 10);
    if (sender >= SENDERS || number != next[sender])
        return dur_failf(ctx, "got %s, not %lu", message, sender < SENDERS ? next[sender] : 0);
    next[sender]++;
    for (size_t i = 0; i < SENDERS; i++)
        end += snprintf(end, 8, "%lu ", next[i]);
    return dur_continue_as_new(ctx, text);
}

static dur_outcome poll_queue(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_pulse(ctx, "Go"));
    const char *value;
    size_t taken = 0;
    while (dur_try_message(ctx, "q", &value) == DUR_OK)
        taken++;
    return dur_completef(ctx, "%zu", taken);
}

static dur_outcome poll_at_once(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *value;
    size_t taken = 0;
    for (; dur_try_message(ctx, "q", &value) == DUR_OK; taken++)
        if (strtoul(value, NULL, 10) != taken) return dur_failf(ctx, "got %s, not %zu", value, taken);
    dur_await(dur_pulse(ctx, "Go"));
    for (; dur_try_message(ctx, "q", &value) == DUR_OK; taken++)
        if (strtoul(value, NULL, 10) != taken) return dur_failf(ctx, "got %s, not %zu", value, taken);
    return dur_completef(ctx, "%zu", taken);
}

static dur_outcome dropped_wait(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *message = dur_message(ctx, "q");
    dur_future *go = dur_pulse(ctx, "Go");
    dur_future *first = dur_select(message, go);
    const char *again = dur_await(dur_message(ctx, "q"));
    return dur_completef(ctx, "%s %s", first == go ? "go" : "message", again);
}

static dur_outcome two_queues(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *b = dur_await(dur_message(ctx, "b"));
    const char *a = dur_await(dur_message(ctx, "a"));
    return dur_completef(ctx, "%s%s", a, b);
}

static dur_outcome patient(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *wanted = dur_await(dur_message(ctx, "q"));
    dur_await(dur_message(ctx, "Go"));
    return dur_complete(ctx, wanted);
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("Patient", "1.0.0", patient),
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("TwoEvents", "1.0.0", two_events),
    DUR_ORCHESTRATION("LateWait", "1.0.0", late_wait),
    DUR_ORCHESTRATION("Drain", "1.0.0", drain),
    DUR_ORCHESTRATION("OnePerGeneration", "1.0.0", one_per_generation),
    DUR_ORCHESTRATION("PollQueue", "1.0.0", poll_queue),
    DUR_ORCHESTRATION("PollAtOnce", "1.0.0", poll_at_once),
    DUR_ORCHESTRATION("DroppedWait", "1.0.0", dropped_wait),
    DUR_ORCHESTRATION("TwoQueues", "1.0.0", two_queues),
    DUR_HANDLERS_END,
};

static void send(world *w, const char *instance, const char *queue, const char *data) {
    OK(w, dur_client_send(w->client, &w->err, instance, queue, data));
}

static uint64_t dead_letters(world *w) {
    dur_store_counts counts = { .size = sizeof(counts) };
    OK(w, dur_client_counts(&counts, w->client, &w->err));
    return counts.dead_letters;
}

static void send_numbers(world *w, const char *instance, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char number[32];
        snprintf(number, sizeof(number), "%zu", i);
        send(w, instance, "q", number);
    }
}

static void events_go_to_the_oldest_wait(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "TwoEvents", "", "e");
    until_history(w, "e", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "e", "E", "1"));
    until_history(w, "e", "\"ExternalSubscribed\"", 2);
    OK(w, dur_client_pulse(w->client, &w->err, "e", "E", "2"));
    expect(w, "e", "1 2");
}

static void an_event_that_nobody_waits_for_has_no_effect(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "LateWait", "", "e");
    until_history(w, "e", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "e", "E", "early"));
    OK(w, dur_client_pulse(w->client, &w->err, "e", "Go", ""));
    expect(w, "e", "nothing");
    OK(w, dur_client_pulse(w->client, &w->err, "e", "E", "after the end"));
}

static void messages_wait_for_their_dequeue_in_order(void **state) {
    world *w = *state;
    char count[32];
    size_t n = scaled(2000, 50);
    snprintf(count, sizeof(count), "%zu", n);
    start(w, "Drain", count, "d"); /* before any runtime: the first message is there before the first turn */
    send_numbers(w, "d", n);
    RUN(w, handlers);
    expect(w, "d", "0 wrong");
}

typedef struct sender {
    pthread_t thread;
    dur_client *client;
    size_t index, count;
    dur_error err;
} sender;

static void *send_all(void *data) {
    sender *self = data;
    int code = DUR_OK;
    for (size_t i = 0; i < self->count && code == DUR_OK; i++) {
        char text[48];
        snprintf(text, sizeof(text), "%zu %zu", self->index, i);
        code = dur_client_send(self->client, &self->err, "g", "q", text);
    }
    return NULL;
}

/* Several at once, so that they share their commits; each one's messages stay in their order. */
static void ten_thousand_messages_one_per_generation(void **state) {
    world *w = *state;
    char expected[32];
    sender senders[SENDERS];
    size_t each = scaled(10000, 64) / SENDERS;
    snprintf(expected, sizeof(expected), "%zu in order", each * SENDERS);
    start(w, "OnePerGeneration", "", "g");
    for (size_t i = 0; i < SENDERS; i++) {
        senders[i] = (sender){ .client = w->client, .index = i, .count = each, .err = DUR_ERROR_INIT };
        assert_int_equal(pthread_create(&senders[i].thread, NULL, send_all, &senders[i]), 0);
    }
    for (size_t i = 0; i < SENDERS; i++) {
        assert_int_equal(pthread_join(senders[i].thread, NULL), 0);
        if (senders[i].err.code != DUR_OK) fail_msg("sender %zu: %s", i, senders[i].err.message);
    }
    send(w, "g", "q", "end");
    RUN(w, handlers);
    expect(w, "g", expected);
}

static void try_dequeue_takes_what_is_there_and_no_more(void **state) {
    world *w = *state;
    RUN(w, handlers, .double_run = true);
    start(w, "PollQueue", "", "p");
    until_history(w, "p", "\"ExternalSubscribed\"", 1);
    send_numbers(w, "p", 25);
    OK(w, dur_client_pulse(w->client, &w->err, "p", "Go", ""));
    expect(w, "p", "25");
}

/* However many a fetch brings at a time: "empty" is said only when the store has none. */
static void try_dequeue_sees_all_that_was_there(void **state) {
    world *w = *state;
    enum { MANY = 200 };
    start(w, "PollAtOnce", "", "p");
    send_numbers(w, "p", MANY);
    RUN(w, handlers, .double_run = true);
    until_history(w, "p", "\"ExternalSubscribed\"", 1);
    assert_int_equal(history_count(w, "p", 0, "\"ExternalEventPersistent\""), MANY);
    world_stop(w);
    for (size_t i = MANY; i < 2 * MANY; i++) {
        char number[32];
        snprintf(number, sizeof(number), "%zu", i);
        send(w, "p", "q", number);
    }
    pause_ms(2); /* behind them, by the clock too */
    OK(w, dur_client_pulse(w->client, &w->err, "p", "Go", ""));
    RUN(w, handlers, .double_run = true);
    expect(w, "p", "400");
}

static void a_message_is_not_lost_with_its_dropped_wait(void **state) {
    world *w = *state;
    RUN(w, handlers, .double_run = true);
    start(w, "DroppedWait", "", "d");
    until_history(w, "d", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "d", "Go", ""));
    send(w, "d", "q", "kept");
    expect(w, "d", "go kept");
}

static void queues_are_independent(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "TwoQueues", "", "t");
    send(w, "t", "a", "a");
    send(w, "t", "b", "b");
    expect(w, "t", "ab");
}

static void a_message_id_is_accepted_once(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "TwoQueues", "", "t");
    OK(w, dur_client_send(w->client, &w->err, "t", "a", "first", .message_id = "m1"));
    OK(w, dur_client_send(w->client, &w->err, "t", "a", "second", .message_id = "m1"));
    OK(w, dur_client_send(w->client, &w->err, "t", "b", "B"));
    expect(w, "t", "firstB");
    /* What was accepted stays accepted, also when it was received long ago and the instance has ended; what was not is
       refused. */
    OK(w, dur_client_send(w->client, &w->err, "t", "a", "third", .message_id = "m1"));
    assert_int_equal(dur_client_send(w->client, &w->err, "t", "a", "third", .message_id = "m2"), DUR_ESTATE);
    assert_int_equal(dur_client_send(w->client, &w->err, "nobody", "a", "third", .message_id = "m1"), DUR_ENOTFOUND);
    assert_int_equal(dead_letters(w), 0);
}

static void a_pulse_id_is_accepted_once(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "TwoEvents", "", "e");
    until_history(w, "e", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "e", "E", "one", .message_id = "p1"));
    OK(w, dur_client_pulse(w->client, &w->err, "e", "E", "again", .message_id = "p1"));
    until_history(w, "e", "\"ExternalSubscribed\"", 2);
    OK(w, dur_client_pulse(w->client, &w->err, "e", "E", "two", .message_id = "p2"));
    expect(w, "e", "one two");
    OK(w, dur_client_pulse(w->client, &w->err, "e", "E", "again", .message_id = "p1"));
}

/* Sent before anybody asked, and the instance ended without asking: kept, counted, with the reason. */
static void a_message_that_nobody_asked_for_is_a_dead_letter(void **state) {
    world *w = *state;
    dur_dead_letter_list *list = NULL;
    RUN(w, handlers);
    start(w, "Patient", "", "p");
    send(w, "p", "q", "wanted");
    send(w, "p", "other", "unwanted");
    send(w, "p", "Go", "");
    expect(w, "p", "wanted");
    while (dead_letters(w) == 0)
        pause_ms(1);
    assert_int_equal(dead_letters(w), 1);
    OK(w, dur_client_dead_letters(&list, w->client, 0, 10, &w->err));
    assert_int_equal(list->count, 1);
    assert_string_equal(list->items[0]->instance, "p");
    assert_string_equal(list->items[0]->reason, "the instance has ended");
    assert_non_null(strstr(list->items[0]->message, "unwanted"));
    dur_dead_letter_list_free(list);
    assert_int_equal(dur_client_send(w->client, &w->err, "p", "other", "late"), DUR_ESTATE);
    assert_int_equal(dead_letters(w), 1);
}

/* README's order: whenever the payment comes, it counts: before the reservation, during it, after it. */
static atomic_bool reserved;

static dur_outcome reserve(dur_act *act, const char *input) {
    if (strcmp(input, "slow") == 0)
        while (!atomic_load(&reserved) && !dur_act_cancelled(act))
            (void)dur_act_sleep(act, 1);
    return dur_act_complete(act, "slot");
}

static dur_outcome order(dur_ctx *ctx, const char *input) {
    const char *slot = dur_await(dur_activity(ctx, "Reserve", input));
    dur_future *paid = dur_message(ctx, "Paid");
    dur_future *late = dur_timer(ctx, DUR_DAYS(1));
    if (dur_select(paid, late) == late) return dur_fail(ctx, "never paid");
    return dur_completef(ctx, "%s %s", slot, dur_await(paid));
}

static void a_payment_counts_whenever_it_comes(void **state) {
    world *w = *state;
    NEEDS_THREADS("an activity waits for the test");
    static const dur_handler shop[] = { DUR_ACTIVITY("Reserve", reserve), DUR_ORCHESTRATION("Order", "1.0.0", order),
                                        DUR_HANDLERS_END };
    atomic_store(&reserved, false);
    start(w, "Order", "", "early"); /* nobody runs it yet */
    send(w, "early", "Paid", "1");
    RUN(w, shop);
    start(w, "Order", "slow", "meanwhile");
    until_history(w, "meanwhile", "\"ActivityScheduled\"", 1);
    send(w, "meanwhile", "Paid", "2");
    atomic_store(&reserved, true);
    start(w, "Order", "", "late");
    until_history(w, "late", "\"ExternalSubscribedPersistent\"", 1);
    send(w, "late", "Paid", "3");
    expect(w, "early", "slot 1");
    expect(w, "meanwhile", "slot 2");
    expect(w, "late", "slot 3");
}

static void unknown_and_ended_instances_are_errors(void **state) {
    world *w = *state;
    RUN(w, handlers);
    assert_int_equal(dur_client_pulse(w->client, &w->err, "nobody", "E", ""), DUR_ENOTFOUND);
    assert_int_equal(dur_client_send(w->client, &w->err, "nobody", "q", ""), DUR_ENOTFOUND);
    assert_int_equal(dur_client_cancel(w->client, "nobody", "", &w->err), DUR_ENOTFOUND);
    start(w, "Drain", "0", "ended");
    expect(w, "ended", "0 wrong");
    assert_int_equal(dur_client_send(w->client, &w->err, "ended", "q", ""), DUR_ESTATE);
}

static void a_delayed_message_comes_later(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "TwoEvents", "", "e");
    until_history(w, "e", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "e", "E", "late", .delay_ms = 1000));
    OK(w, dur_client_pulse(w->client, &w->err, "e", "E", "soon"));
    expect(w, "e", "soon late");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(events_go_to_the_oldest_wait),
        TEST(an_event_that_nobody_waits_for_has_no_effect),
        TEST(messages_wait_for_their_dequeue_in_order),
        TEST(ten_thousand_messages_one_per_generation),
        TEST(try_dequeue_takes_what_is_there_and_no_more),
        TEST(try_dequeue_sees_all_that_was_there),
        TEST(a_message_is_not_lost_with_its_dropped_wait),
        TEST(queues_are_independent),
        TEST(a_message_id_is_accepted_once),
        TEST(a_pulse_id_is_accepted_once),
        TEST(a_message_that_nobody_asked_for_is_a_dead_letter),
        TEST(a_payment_counts_whenever_it_comes),
        TEST(unknown_and_ended_instances_are_errors),
        TEST(a_delayed_message_comes_later),
    };
    return cmocka_run_group_tests_name("e2e_messages", tests, NULL, NULL);
}
