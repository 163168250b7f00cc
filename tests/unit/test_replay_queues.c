/* Events and queues (R3): who gets a message, what comes back, what is carried over, what a try-dequeue sees. */
#include "replay_driver.h"

/* ---- positional events ---- */

static dur_outcome two_waits(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_activity(ctx, "First", ""));
    dur_future *a = dur_pulse(ctx, "e"), *b = NULL;
    b = dur_pulse(ctx, "e");
    dur_join(a, b);
    const char *one = dur_await(a);
    return dur_completef(ctx, "%s%s", one, dur_await(b));
}
static void test_events(void **state) {
    (void)state;
    driver d;
    driver_init(&d, two_waits);
    driver_start(&d, "");
    driver_raise(&d, "e", "early"); /* kept for audit, given to nobody */
    driver_done(&d, 2, "");
    driver_raise(&d, "e", "1");
    driver_raise(&d, "other", "x");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_raise(&d, "e", "2");
    assert_string_equal(d.output, "12");
    assert_string_equal(driver_event(&d, 3).data, "early");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

/* C31: an event after its wait lost a race goes to the next wait. */
static dur_outcome raced_wait(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *a = dur_pulse(ctx, "e"), *t = NULL;
    t = dur_timer(ctx, 1);
    dur_select(a, t);
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "e")));
}
static void test_event_after_a_lost_race(void **state) {
    (void)state;
    driver d;
    driver_init(&d, raced_wait);
    driver_start(&d, "");
    driver_offer(&d, &(dur_work_item){ .kind = DUR_WORK_TIMER_FIRED, .execution_id = 1, .id = 3 });
    driver_offer(&d, &(dur_work_item){ .kind = DUR_WORK_EXTERNAL_RAISED, .name = "e", .data = "for the second" });
    driver_run(&d);
    assert_string_equal(d.output, "for the second");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

/* ---- queues ---- */

static dur_outcome drain_many(dur_ctx *ctx, const char *input) {
    unsigned long count = strtoul(input, NULL, 10), sum = 0;
    for (unsigned long i = 0; i < count; i++) {
        dur_scope *scope = dur_scope_begin(ctx);
        sum = sum * 3 % 1000003 + strtoul(dur_await(dur_message(ctx, "q")), NULL, 10);
        dur_scope_end(scope);
    }
    return dur_completef(ctx, "%lu", sum);
}
/* C13, C14: no limit on how many messages one turn takes; first in, first out, whatever the order of offering. */
static void test_many_messages_in_order(void **state) {
    (void)state;
    driver d;
    driver_init(&d, drain_many);
    driver_start(&d, "1000");
    unsigned long expected = 0;
    for (unsigned long i = 0; i < 1000; i++) {
        expected = expected * 3 % 1000003 + i;
        unsigned long at = i ^ 1; /* offered pairwise the wrong way round */
        driver_offer_at(&d,
                        &(dur_work_item){
                            .kind = DUR_WORK_QUEUE_MESSAGE, .name = "q", .data = dur_arena_format(d.arena, "%lu", at) },
                        5, at);
    }
    driver_run(&d);
    char text[32];
    snprintf(text, sizeof(text), "%lu", expected);
    assert_string_equal(d.output, text);
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

static dur_outcome one_message(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_activity(ctx, "First", ""));
    const char *message = dur_await(dur_message(ctx, "q"));
    dur_await(dur_activity(ctx, "Then", message));
    return dur_continue_as_new(ctx, "");
}
/* A message is no arrival before a dequeue waits; the rest of the backlog never enters this history. */
static void test_messages_stay_in_the_store(void **state) {
    (void)state;
    driver d;
    driver_init(&d, one_message);
    driver_start(&d, "");
    for (int i = 0; i < 3; i++)
        driver_enqueue(&d, "q", dur_arena_format(d.arena, "%d", i));
    assert_string_equal(driver_kinds(&d), "OrchestrationStarted ActivityScheduled");
    assert_null(dur__exec_hungry(d.exec, 0, NULL, NULL));
    driver_done(&d, 2, "");
    assert_string_equal(driver_event(&d, 6).input, "0");
    assert_null(dur__exec_hungry(d.exec, 0, NULL, NULL)); /* nobody waits now */
    driver_done(&d, 6, "");
    assert_int_equal(d.end, DUR__END_CONTINUED);
    assert_false(driver_sent(&d, "o@0 {\"ContinueAsNew\"", "[\"q\""));
    dur__left verdict;
    for (int i = 1; i < 3; i++) { /* the others are the next execution's arrivals */
        dur__arrival *left = dur__exec_drain(d.exec, &verdict);
        assert_int_equal(verdict, DUR__LEFT_KEEP);
        assert_int_equal(left->item.data[0], '0' + i);
        free(left);
    }
    assert_null(dur__exec_drain(d.exec, &verdict));
    driver_free(&d);
}

static void test_hungry(void **state) {
    (void)state;
    driver d;
    driver_init(&d, drain_many);
    driver_start(&d, "2");
    uint64_t ms = 9, id = 9;
    assert_string_equal(dur__exec_hungry(d.exec, 0, &ms, &id), "q");
    assert_int_equal(ms, 0);
    assert_null(dur__exec_hungry(d.exec, 1, NULL, NULL));
    driver_offer_at(&d, &(dur_work_item){ .kind = DUR_WORK_QUEUE_MESSAGE, .name = "q", .data = "1" }, 7, 3);
    assert_null(dur__exec_hungry(d.exec, 0, NULL, NULL));
    driver_run(&d);
    assert_string_equal(dur__exec_hungry(d.exec, 0, &ms, &id), "q");
    assert_int_equal(ms, 7);
    assert_int_equal(id, 3);
    driver_free(&d);
}

/* ---- a message that was given and not reported goes back to its place ---- */

static dur_outcome gives_back(dur_ctx *ctx, const char *input) {
    dur_future *unseen = dur_message(ctx, "q"), *second = NULL;
    second = dur_message(ctx, "q");
    const char *later = dur_await(second);
    if (*input == 's')
        dur_select(dur_pulse(ctx, "never"), unseen); /* reported: it wins */
    else
        dur_drop(unseen);
    const char *code = dur_code_name((int)dur_code_of(unseen));
    dur_future *next = dur_message(ctx, "q");
    if (*input == 'c') { /* given to it, not reported either: carried over */
        dur_drop(next);
        return dur_continue_as_new(ctx, "x");
    }
    return dur_completef(ctx, "%s %s %s", later, code, dur_await(next));
}
static void test_unreported_message_returns(void **state) {
    (void)state;
    driver d;
    driver_init(&d, gives_back);
    driver_start(&d, "d");
    driver_enqueue(&d, "q", "1");
    driver_replay(&d);
    driver_enqueue(&d, "q", "2");
    assert_string_equal(
        driver_kinds(&d),
        "OrchestrationStarted ExternalSubscribedPersistent ExternalSubscribedPersistent ExternalEventPersistent "
        "ActivityScheduled ActivityCompleted(5) " /* the marker: nobody has seen it at the end of its group */
        "ExternalEventPersistent ExternalSubscribedPersistentCancelled(2) ExternalSubscribedPersistent "
        "OrchestrationCompleted");
    assert_string_equal(d.output, "2 DUR_ECANCELLED 1");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}
static void test_reported_message_is_gone(void **state) {
    (void)state;
    driver d;
    driver_init(&d, gives_back);
    driver_start(&d, "s");
    driver_enqueue(&d, "q", "1");
    driver_enqueue(&d, "q", "2");
    driver_replay(&d);
    driver_enqueue(&d, "q", "3");
    assert_string_equal(d.output, "2 DUR_OK 3");
    driver_free(&d);
}

static dur_outcome takes_carried(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *first = dur_await(dur_message(ctx, "q"));
    return dur_completef(ctx, "%s %s", first, dur_await(dur_message(ctx, "q")));
}
/* C29: what a dropped dequeue was given is not lost at continue-as-new. */
static void test_carry_over(void **state) {
    (void)state;
    driver d;
    driver_init(&d, gives_back);
    driver_start(&d, "c");
    driver_enqueue(&d, "q", "1");
    driver_enqueue(&d, "q", "2");
    assert_int_equal(d.end, DUR__END_CONTINUED);
    assert_true(driver_sent(&d, "o@0 {\"ContinueAsNew\"", "\"carry_forward_events\":[[\"q\",\"1\"]]"));
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);

    driver_init(&d, takes_carried);
    const dur_carried carried[] = { { "q", "old" } };
    driver_start_ex(&d, &(dur__exec_begin){ .input = "", .carried = carried, .carried_count = 1 });
    driver_replay(&d);
    driver_enqueue(&d, "q", "new");
    assert_string_equal(d.output, "old new");
    assert_string_equal(driver_kinds(&d),
                        "OrchestrationStarted ExternalSubscribedPersistent ExternalSubscribedPersistent "
                        "ExternalEventPersistent OrchestrationCompleted");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

/* The first-of future has the message as its value: it and the dequeue share it. */
static dur_outcome first_of_queue(dur_ctx *ctx, const char *input) {
    dur_scope *scope = dur_scope_begin(ctx);
    dur_future *inner = dur_message(ctx, "q"), *never = NULL;
    never = dur_pulse(ctx, "never");
    dur_future *first = dur_first_of(ctx, (dur_future *const[]){ inner, never }, 2);
    dur_await(dur_timer(ctx, 1));
    const char *seen = *input == 'a' ? dur_strdup(ctx, dur_await(first)) : "";
    if (*input == 'i') seen = dur_await(inner);
    char kept[8];
    snprintf(kept, sizeof(kept), "%s", seen);
    dur_scope_end(scope);
    return dur_completef(ctx, "%s %s", kept, dur_await(dur_message(ctx, "q")));
}
static void test_first_of_and_reports(void **state) {
    (void)state;
    static const char *const inputs[] = { "a", "i", "n" }, *const outputs[] = { "1 2", "1 2", " 1" };
    for (int i = 0; i < 3; i++) {
        driver d;
        driver_init(&d, first_of_queue);
        driver_start(&d, inputs[i]);
        driver_enqueue(&d, "q", "1");
        driver_replay(&d);
        driver_fire(&d, 4);
        driver_replay(&d);
        driver_enqueue(&d, "q", "2");
        assert_string_equal(d.output, outputs[i]);
        assert_int_equal(driver_replay(&d), DUR_OK);
        driver_free(&d);
    }
}

/* ---- try-dequeue ---- */

static dur_outcome looks(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_activity(ctx, "First", ""));
    dur__buf out = { 0 };
    const char *value = "";
    while (dur_try_message(ctx, "q", &value) == DUR_OK)
        dur__buf_text(&out, value);
    dur_outcome outcome = dur_completef(ctx, "%s.", dur__buf_str(&out));
    dur__buf_free(&out); /* no wait between: nothing can be dropped here */
    return outcome;
}
static void test_try_dequeue(void **state) {
    (void)state;
    driver d;
    driver_init(&d, looks);
    driver_start(&d, "");
    driver_enqueue(&d, "q", "a");
    driver_enqueue(&d, "q", "b");
    driver_offer(&d, &(dur_work_item){ .kind = DUR_WORK_ACTIVITY_COMPLETED, .execution_id = 1, .id = 2, .result = "" });
    driver_offer(&d, &(dur_work_item){ .kind = DUR_WORK_QUEUE_MESSAGE, .name = "q", .data = "younger" });
    driver_run(&d);
    assert_string_equal(d.output, "ab.");
    assert_string_equal(driver_kinds(&d),
                        "OrchestrationStarted ActivityScheduled ActivityCompleted(2) "
                        "ExternalSubscribedPersistent ExternalEventPersistent ExternalSubscribedPersistent "
                        "ExternalEventPersistent ExternalSubscribedPersistent "
                        "ExternalSubscribedPersistentCancelled(8) OrchestrationCompleted");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

static dur_outcome looks_at_once(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *value = "nothing";
    dur_code code = dur_try_message(ctx, "q", &value);
    return dur_completef(ctx, "%s %s", dur_code_name((int)code), value);
}
static void test_try_dequeue_in_the_first_group(void **state) {
    (void)state;
    static const struct {
        uint64_t order;
        const char *output;
    } cases[] = { { 0, "DUR_OK m" }, { 9, "DUR_OK m" }, { 3, "DUR_ENOTFOUND nothing" } };
    for (int i = 0; i < 3; i++) {
        driver d;
        driver_init(&d, looks_at_once);
        d.exec = dur__exec_new(&d.options);
        driver_offer_at(&d, &(dur_work_item){ .kind = DUR_WORK_QUEUE_MESSAGE, .name = "q", .data = "m" }, 5, 1);
        dur__exec_begin begin = { .input = "", .order_ms = cases[i].order };
        assert_int_equal(dur__exec_start(d.exec, &begin, 1, &d.err), DUR_OK);
        driver_collect(&d);
        assert_string_equal(d.output, cases[i].output);
        dur__left verdict;
        dur__arrival *left = dur__exec_drain(d.exec, &verdict);
        assert_int_equal(left != NULL, i == 2);
        if (left != NULL) assert_int_equal(verdict, DUR__LEFT_DEAD); /* the instance has ended for good */
        free(left);
        assert_int_equal(driver_replay(&d), DUR_OK);
        driver_free(&d);
    }
}

/* ---- a store that cannot leave messages in the queue ---- */

static void test_eager(void **state) {
    (void)state;
    driver d;
    driver_init(&d, one_message);
    d.options.queue_eager = true;
    driver_start(&d, "");
    driver_enqueue(&d, "q", "0");
    driver_enqueue(&d, "q", "1");
    assert_string_equal(driver_kinds(&d),
                        "OrchestrationStarted ActivityScheduled ExternalEventPersistent ExternalEventPersistent");
    driver_replay(&d);
    driver_done(&d, 2, "");
    assert_string_equal(driver_event(&d, 7).input, "0");
    driver_done(&d, 7, "");
    assert_true(driver_sent(&d, "o@0 {\"ContinueAsNew\"", "[[\"q\",\"1\"]]"));
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

/* Ten thousand queues and messages: taking the oldest stays cheap (a quadratic mailbox would take minutes here). */
static dur_outcome many_queues(dur_ctx *ctx, const char *input) {
    size_t count = strtoul(input, NULL, 10);
    dur_future **all = dur_alloc(ctx, count * sizeof(*all));
    for (size_t i = 0; i < count; i++)
        all[i] = dur_message(ctx, dur_format(ctx, "q%zu", i));
    dur_join_n(all, count);
    return dur_complete(ctx, dur_await(all[count - 1]));
}
static void test_many_queues(void **state) {
    (void)state;
    driver d;
    driver_init(&d, many_queues);
    d.exec = dur__exec_new(&d.options);
    assert_int_equal(dur__exec_start(d.exec, &(dur__exec_begin){ .input = "10000" }, 1, &d.err), DUR_OK);
    for (size_t i = 10000; i-- > 0;)
        driver_offer_at(&d,
                        &(dur_work_item){
                            .kind = DUR_WORK_QUEUE_MESSAGE, .name = dur_arena_format(d.arena, "q%zu", i), .data = "x" },
                        i, i);
    bool took = true;
    while (took)
        assert_int_equal(dur__exec_step(d.exec, 2, &took, &d.err), DUR_OK);
    const dur__turn *turn = dur__exec_turn(d.exec);
    assert_int_equal(turn->end, DUR__END_COMPLETED);
    for (dur__link *link; (link = dur__list_pop(turn->consumed)) != NULL;)
        free(DUR__CONTAINER(link, dur__arrival, link));
    dur__exec_turn_done(d.exec);
    driver_free(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_event_after_a_lost_race),
        cmocka_unit_test(test_many_messages_in_order),
        cmocka_unit_test(test_messages_stay_in_the_store),
        cmocka_unit_test(test_hungry),
        cmocka_unit_test(test_unreported_message_returns),
        cmocka_unit_test(test_reported_message_is_gone),
        cmocka_unit_test(test_carry_over),
        cmocka_unit_test(test_first_of_and_reports),
        cmocka_unit_test(test_try_dequeue),
        cmocka_unit_test(test_try_dequeue_in_the_first_group),
        cmocka_unit_test(test_eager),
        cmocka_unit_test(test_many_queues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
