/*
 * hostile_parity.c: what the original promises: pruning without a rule, lists that are empty, nothing lost between two
 * executions; and texts that nobody could read back.  Stores are filled through sys/store.h, as another engine would.
 */
#include "hostile.h"

#include <durite/replay.h>
#include <durite/sys/store.h>
#include <pthread.h>

/* ---- a store as another engine leaves it ------------------------------------------------------------------------- */

static dur_message_row message_of(world *w, dur_arena *arena, dur_work_item item) {
    dur_message_row message;
    OK(w, dur_message_row_from_work(&message, arena, &item, &w->err));
    return message;
}

static dur_message_row start_of(world *w, dur_arena *arena, const char *instance, const char *name) {
    return message_of(w, arena,
                      (dur_work_item){ .kind = DUR_WORK_START_ORCHESTRATION,
                                       .instance = instance,
                                       .orchestration = name,
                                       .input = "old",
                                       .execution_id = 1 });
}

static dur_orchestration_item fetched(world *w, dur_arena *arena) {
    dur_orchestration_item item;
    dur_fetch how = { .lock_ms = DUR_SECONDS(600) };
    OK(w, dur_store_fetch_orchestration_item(w->store, arena, &how, &item, &w->err));
    assert_non_null(item.instance);
    return item;
}

/* A turn of `name` with these events (ids from 1) and messages. */
static void seed(world *w, dur_arena *arena, const char *instance, const char *name, const dur_event *events,
                 size_t event_count, const dur_message_row *messages, size_t message_count, dur_status status) {
    dur_message_row begin = start_of(w, arena, instance, name);
    OK(w, dur_store_enqueue_for_orchestrator(w->store, &begin, 0, &w->err));
    dur_orchestration_item item = fetched(w, arena);
    dur_event_row *rows = calloc(event_count, sizeof(*rows));
    for (size_t i = 0; i < event_count; i++) {
        dur_event event = events[i];
        event.event_id = i + 1;
        event.instance_id = instance;
        event.execution_id = 1;
        event.timestamp_ms = 1700000000000;
        event.duroxide_version = "0.1.30";
        OK(w, dur_event_row_from(&rows[i], arena, &event, &w->err));
    }
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .instance = instance,
                             .execution_id = 1,
                             .expected_last = DUR_NOT_COMPARED,
                             .events = rows,
                             .event_count = event_count,
                             .orchestrator_items = messages,
                             .orchestrator_item_count = message_count,
                             .metadata = {
                                 .orchestration_name = name, .orchestration_version = "1.0.0", .status = status } };
    OK(w, dur_store_ack_orchestration_item(w->store, &turn, &w->err));
    free(rows);
}

static dur_event started(const char *name) {
    return (dur_event){ .kind = DUR_EVENT_ORCHESTRATION_STARTED, .name = name, .version = "1.0.0", .input = "old" };
}

static dur_message_row continued(world *w, dur_arena *arena, const char *instance) {
    static const dur_carried carried = { "q", "carried" };
    return message_of(w, arena,
                      (dur_work_item){ .kind = DUR_WORK_CONTINUE_AS_NEW,
                                       .instance = instance,
                                       .orchestration = "Transition",
                                       .version = "1.0.0",
                                       .input = "next",
                                       .carry_forward_events = &carried,
                                       .carry_forward_count = 1 });
}

static dur_message_row late_of(world *w, dur_arena *arena, const char *instance) {
    return message_of(
        w, arena, (dur_work_item){ .kind = DUR_WORK_QUEUE_MESSAGE, .instance = instance, .name = "q", .data = "late" });
}

/* ---- pruning ----------------------------------------------------------------------------------------------------- */

static dur_outcome count_down(dur_ctx *ctx, const char *input) {
    int left = atoi(input);
    if (left == 0) return dur_complete(ctx, "done");
    char *next = dur_alloc(ctx, 16);
    snprintf(next, 16, "%d", left - 1);
    return dur_continue_as_new(ctx, next);
}

static size_t executions_of(world *w, const char *instance) {
    dur_execution_list *list = NULL;
    OK(w, dur_client_executions(&list, w->client, instance, &w->err));
    size_t count = list->count;
    dur_execution_list_free(list);
    return count;
}

static void fault_h45_prune_without_a_rule_keeps_the_current_execution(void **state) {
    world *w = *state;
    static const dur_handler handlers[] = { DUR_ORCHESTRATION("CountDown", "1.0.0", count_down), DUR_HANDLERS_END };
    RUN(w, handlers);
    start(w, "CountDown", "3", "a");
    start(w, "CountDown", "3", "b");
    expect(w, "a", "done");
    expect(w, "b", "done");
    /* a client must say what it means */
    assert_int_equal(dur_client_prune(NULL, w->client, "a", NULL, &w->err), DUR_EINVAL);
    assert_int_equal(dur_client_prune(NULL, w->client, "a", DUR_PRUNE(), &w->err), DUR_EINVAL);
    assert_int_equal(dur_client_prune_bulk(NULL, w->client, DUR_BULK(), DUR_PRUNE(), &w->err), DUR_EINVAL);
    assert_int_equal(executions_of(w, "a"), 4);
    OK(w, dur_client_prune(NULL, w->client, "b", DUR_PRUNE(.keep_last = 1), &w->err));
    assert_int_equal(executions_of(w, "b"), 1);
    /* to a store, no rule is all but the current one */
    dur_prune_options none = { .has_keep_last = false };
    dur_prune_result result;
    OK(w, dur_store_prune_executions(w->store, "a", &none, &result, &w->err));
    assert_int_equal(result.executions_deleted, 3);
    assert_int_equal(executions_of(w, "a"), 1);
    expect(w, "a", "done");
}

/* ---- between two executions (race_replay of the original, with our engine) ----------------------------------------
 */

static dur_outcome transition(dur_ctx *ctx, const char *input) {
    (void)input;
    if (dur_execution_id(ctx) == 1) return dur_continue_as_new(ctx, "next");
    const char *first = dur_await(dur_message(ctx, "q"));
    return dur_completef(ctx, "%s,%s", first, dur_await(dur_message(ctx, "q")));
}

static dur_outcome wrong(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, "wrong");
}

static dur_outcome original_two(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_activity(ctx, "tick", "v2")));
}

static dur_outcome original_one(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "tick", "v1"));
    return dur_completef(ctx, "v1:%s", input);
}

static const dur_handler known[] = {
    DUR_ORCHESTRATION("Transition", "1.0.0", transition),
    DUR_ORCHESTRATION("WrongHandler", "1.0.0", wrong),
    DUR_ORCHESTRATION("Original", "1.0.0", original_one),
    DUR_ORCHESTRATION("Original", "2.0.0", original_two),
    DUR_HANDLERS_END,
};

static const dur_event ended[] = {
    { .kind = DUR_EVENT_ORCHESTRATION_STARTED, .name = "Transition", .version = "1.0.0", .input = "old" },
    { .kind = DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW, .input = "next" },
};

static void fault_h57_a_duplicate_start_keeps_the_pinned_handler(void **state) {
    world *w = *state;
    static const char *const names[] = { "Original", "WrongHandler" };
    const dur_event events[] = { started("Original"),
                                 { .kind = DUR_EVENT_ACTIVITY_SCHEDULED, .name = "tick", .input = "v1" } };
    for (size_t i = 0; i < 2; i++) {
        dur_arena *arena = dur_arena_new();
        const dur_message_row messages[] = { start_of(w, arena, names[i], names[i]),
                                             message_of(w, arena,
                                                        (dur_work_item){ .kind = DUR_WORK_ACTIVITY_COMPLETED,
                                                                         .instance = names[i],
                                                                         .execution_id = 1,
                                                                         .id = 2,
                                                                         .result = "ok" }) };
        seed(w, arena, names[i], "Original", events, 2, messages, 2, DUR_STATUS_RUNNING);
        RUN(w, known);
        expect(w, names[i], "v1:old");
        world_stop(w);
        dur_arena_free(arena);
    }
}

static void fault_h57_a_start_does_not_stand_before_the_next_execution(void **state) {
    world *w = *state;
    dur_arena *arena = dur_arena_new();
    const dur_message_row messages[] = { start_of(w, arena, "a", "WrongHandler"), continued(w, arena, "a"),
                                         late_of(w, arena, "a") };
    seed(w, arena, "a", "Transition", ended, 2, messages, 3, DUR_STATUS_CONTINUED_AS_NEW);
    RUN(w, known);
    expect(w, "a", "carried,late");
    assert_int_equal(history_count(w, "a", 1, "event_id"), 2); /* the old execution is as it was */
    dur_arena_free(arena);
}

static void fault_h57_what_comes_between_two_executions_waits_for_the_second(void **state) {
    world *w = *state;
    dur_arena *arena = dur_arena_new();
    const dur_message_row messages[] = {
        late_of(w, arena, "a"),
        message_of(
            w, arena,
            (dur_work_item){
                .kind = DUR_WORK_ACTIVITY_COMPLETED, .instance = "a", .execution_id = 1, .id = 99, .result = "stale" })
    };
    seed(w, arena, "a", "Transition", ended, 2, messages, 2, DUR_STATUS_CONTINUED_AS_NEW);
    dur_message_row next = continued(w, arena, "a");
    OK(w, dur_store_enqueue_for_orchestrator(w->store, &next, 300, &w->err)); /* the start is not due yet */
    RUN(w, known);
    expect(w, "a", "carried,late");
    assert_int_equal(history_count(w, "a", 1, "event_id"), 2);
    assert_int_equal(history_count(w, "a", 2, "stale"), 0);
    dur_arena_free(arena);
}

static void fault_h57_a_start_without_a_handler_waits_for_a_node_that_has_it(void **state) {
    world *w = *state;
    static const dur_handler other[] = { DUR_ORCHESTRATION("WrongHandler", "1.0.0", wrong), DUR_HANDLERS_END };
    dur_arena *arena = dur_arena_new();
    dur_message_row next = continued(w, arena, "a");
    seed(w, arena, "a", "Transition", ended, 2, &next, 1, DUR_STATUS_CONTINUED_AS_NEW);
    RUN(w, other);
    start(w, "WrongHandler", "", "b"); /* it has looked */
    expect(w, "b", "wrong");
    world_stop(w);
    assert_int_equal(history_count(w, "a", 1, "event_id"), 2);
    OK(w, dur_client_send(w->client, &w->err, "a", "q", "late"));
    RUN(w, known);
    expect(w, "a", "carried,late");
    dur_arena_free(arena);
}

static dur_outcome with_child(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Child", input)));
}

/* The original names children of later executions "sub::EXECUTION_EVENT" since 0.1.30. */
static void fault_h59_children_of_later_executions_are_known_by_the_originals_names(void **state) {
    world *w = *state;
    static const dur_handler handlers[] = { DUR_ORCHESTRATION("Parent", "1.0.0", with_child), DUR_HANDLERS_END };
    static const char before[] =
        "{\"instance_id\":\"p\",\"execution_id\":2,\"timestamp_ms\":1,\"duroxide_version\":\"0.1.32\",";
    static const char *const names[] = { "sub::2_2", "p::sub::2_2", "p::sub::2.2" };
    char history[1024];
    for (size_t i = 0; i < 3; i++) {
        snprintf(history, sizeof(history),
                 "[%s\"event_id\":1,\"type\":\"OrchestrationStarted\",\"name\":\"Parent\",\"version\":\"1.0.0\","
                 "\"input\":\"x\"},%s\"event_id\":2,\"type\":\"SubOrchestrationScheduled\",\"name\":\"Child\","
                 "\"instance\":\"%s\",\"input\":\"x\"}]",
                 before, before, names[i]);
        OK(w, dur_replay_history(NULL, handlers, history, &w->err));
    }
    *strstr(history, "2.2") = '7';
    assert_int_equal(dur_replay_history(NULL, handlers, history, &w->err), DUR_ENONDETERMINISM);
}

/* ---- the codec --------------------------------------------------------------------------------------------------- */

static dur_text text_of(const char *json) {
    return (dur_text){ json, strlen(json) };
}

static void fault_h59_an_empty_list_is_written_again(void **state) {
    world *w = *state;
    static const char *const given[] = {
        "{\"event_id\":1,\"instance_id\":\"a\",\"execution_id\":1,\"timestamp_ms\":1,\"duroxide_version\":\"0.1.32\","
        "\"type\":\"OrchestrationStarted\",\"name\":\"N\",\"version\":\"1.0.0\",\"input\":\"\","
        "\"carry_forward_events\":[]}",
        "{\"event_id\":1,\"instance_id\":\"a\",\"execution_id\":1,\"timestamp_ms\":1,\"duroxide_version\":\"0.1.32\","
        "\"type\":\"OrchestrationStarted\",\"name\":\"N\",\"version\":\"1.0.0\",\"input\":\"\"}",
    };
    dur_arena *arena = dur_arena_new();
    for (size_t i = 0; i < 2; i++) {
        dur_event event;
        dur_text again;
        OK(w, dur_event_from_json(&event, arena, text_of(given[i]), &w->err));
        assert_int_equal(event.carry_forward_count, 0);
        OK(w, dur_event_to_json(&again, arena, &event, &w->err));
        assert_int_equal(again.size, strlen(given[i]));
        assert_memory_equal(again.data, given[i], again.size);
    }
    dur_arena_free(arena);
}

/* A text with U+0000 in it, as byte and as escape; and one that only looks like it. */
static const char zero_event[] =
    "{\"event_id\":2,\"instance_id\":\"a\",\"execution_id\":1,\"timestamp_ms\":1,\"duroxide_version\":\"0.1.32\","
    "\"type\":\"ExternalEvent\",\"name\":\"E\",\"data\":\"a\\\\\\u0000b\"}";
static const char fine_event[] =
    "{\"event_id\":2,\"instance_id\":\"a\",\"execution_id\":1,\"timestamp_ms\":1,\"duroxide_version\":\"0.1.32\","
    "\"type\":\"ExternalEvent\",\"name\":\"E\",\"data\":\"a\\\\u0000b\"}";
static const char zero_work[] = "{\"QueueMessage\":{\"instance\":\"a\",\"name\":\"q\",\"data\":\"\\u0000\"}}";

#define REFUSED(call)                                                                                                  \
    do {                                                                                                               \
        assert_int_equal((call), DUR_EINVAL);                                                                          \
        assert_non_null(strstr(w->err.message, "U+0000 in a text"));                                                   \
    } while (0)

static void fault_h59_a_zero_in_a_text_is_refused_at_every_door(void **state) {
    world *w = *state;
    dur_arena *arena = dur_arena_new();
    const dur_event one[] = { started("Transition") };
    seed(w, arena, "a", "Transition", one, 1, NULL, 0, DUR_STATUS_RUNNING);
    dur_event event;
    dur_work_item work;
    /* decoders say where */
    assert_int_equal(dur_event_from_json(&event, arena, text_of(zero_event), &w->err), DUR_ECORRUPT);
    assert_non_null(strstr(w->err.message, "U+0000 in a text at byte"));
    assert_int_equal(dur_work_from_json(&work, arena, text_of(zero_work), &w->err), DUR_ECORRUPT);
    assert_non_null(strstr(w->err.message, "U+0000 in a text at byte"));
    /* history */
    dur_event_row row = { .event_id = 2, .json = text_of(zero_event) };
    REFUSED(dur_store_append(w->store, "a", 1, &row, 1, &w->err));
    dur_message_row bad = late_of(w, arena, "a");
    bad.json = text_of(zero_work);
    OK(w, dur_client_send(w->client, &w->err, "a", "q", "wake"));
    dur_orchestration_item item = fetched(w, arena);
    dur_turn_commit turn = {
        .lock_token = item.lock_token, .instance = "a", .execution_id = 1, .expected_last = DUR_NOT_COMPARED
    };
    dur_turn_commit with_event = turn, with_work = turn, with_message = turn;
    dur_turn_work worker = { .message = message_of(w, arena,
                                                   (dur_work_item){ .kind = DUR_WORK_ACTIVITY_EXECUTE,
                                                                    .instance = "a",
                                                                    .execution_id = 1,
                                                                    .id = 2,
                                                                    .name = "A",
                                                                    .input = "" }) };
    worker.message.json = text_of(zero_work);
    with_event.events = &row, with_event.event_count = 1;
    with_work.worker_items = &worker, with_work.worker_item_count = 1;
    with_message.orchestrator_items = &bad, with_message.orchestrator_item_count = 1;
    REFUSED(dur_store_ack_orchestration_item(w->store, &with_event, &w->err));
    REFUSED(dur_store_ack_orchestration_item(w->store, &with_work, &w->err));
    REFUSED(dur_store_ack_orchestration_item(w->store, &with_message, &w->err));
    REFUSED(dur_store_commit_turns(w->store, &with_event, 1, &w->err));
    /* queues */
    REFUSED(dur_store_enqueue_for_orchestrator(w->store, &bad, 0, &w->err));
    REFUSED(dur_store_enqueue_existing(w->store, &bad, 0, &w->err));
    REFUSED(dur_store_enqueue_for_worker(w->store, &worker.message, &w->err));
    REFUSED(dur_store_ack_work_item(w->store, "token", &bad, &w->err));
    dur_message_row begin = start_of(w, arena, "b", "Transition");
    begin.json = (dur_text){ "{\0}", 3 };
    REFUSED(dur_store_enqueue_start(w->store, &begin, DUR_EXISTS_FAIL, 0, NULL, &w->err));
    /* the refused turn has changed nothing, and what is no zero is kept as it is */
    row.json = text_of(fine_event);
    with_event.events = &row;
    OK(w, dur_store_ack_orchestration_item(w->store, &with_event, &w->err));
    dur_event *events = NULL;
    size_t count = 0;
    OK(w, dur_store_read_events(w->store, arena, "a", 1, &events, &count, &w->err));
    assert_int_equal(count, 2);
    assert_string_equal(events[1].data, "a\\u0000b");
    dur_arena_free(arena);
}

/* ---- what the guide teaches -------------------------------------------------------------------------------------- */

static dur_outcome remind(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome reminder(dur_ctx *ctx, const char *input) {
    const char *decision;
    while (dur_try_for(dur_message(ctx, "decisions"), 1, &decision) == DUR_ETIMEOUT)
        dur_await(dur_activity(ctx, "Remind", input));
    return dur_complete(ctx, decision);
}

static void fault_h40_a_reminder_loop_misses_no_decision(void **state) {
    world *w = *state;
    static const dur_handler handlers[] = { DUR_ACTIVITY("Remind", remind),
                                            DUR_ORCHESTRATION("Reminder", "1.0.0", reminder), DUR_HANDLERS_END };
    RUN(w, handlers);
    char id[16];
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof(id), "r-%d", i);
        start(w, "Reminder", "", id);
        if (i % 2 == 0) pause_ms(i % 7); /* at any moment of its loop */
        OK(w, dur_client_send(w->client, &w->err, id, "decisions", id));
    }
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof(id), "r-%d", i);
        expect(w, id, id);
    }
}

/* The bank's book: a key is charged once, whatever is asked under it. */
static struct {
    pthread_mutex_t mutex;
    size_t count;
    char keys[64][160];
} bank = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static bool bank_charge(const char *key) {
    size_t at = 0;
    pthread_mutex_lock(&bank.mutex);
    while (at < bank.count && strcmp(bank.keys[at], key) != 0)
        at++;
    bool charged = at == bank.count && at < 64;
    if (charged) snprintf(bank.keys[bank.count++], sizeof(bank.keys[0]), "%s", key);
    pthread_mutex_unlock(&bank.mutex);
    return charged;
}

static atomic_bool stopping; /* a stop waits for what runs, and no time is over meanwhile */

/* The first attempt hangs until its time is over, the second fails: each after the bank has been asked. */
static dur_outcome pay(dur_act *act, const char *input) {
    (void)bank_charge(dur_act_key(act));
    while (dur_act_attempt(act) == 1 && !atomic_load(&stopping) && !dur_act_sleep(act, 1)) {
    }
    if (dur_act_attempt(act) < 3) return dur_act_fail(act, "the answer of the bank was lost");
    return dur_act_complete(act, input);
}

static dur_outcome purchase(dur_ctx *ctx, const char *input) {
    const dur_retry *retry = DUR_RETRY(.attempts_max = 50, .delay_ms = 1, .attempt_timeout_ms = 30);
    dur_await(dur_activity(ctx, "Pay", input, .retry = retry));
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Pay", "2", .retry = retry)));
}

static const dur_handler shop[] = { DUR_ACTIVITY("Pay", pay), DUR_ORCHESTRATION("Purchase", "1.0.0", purchase),
                                    DUR_HANDLERS_END };

/* Two calls are two charges, however often each is tried, also when their node stops in the middle. */
static void fault_h41_the_taught_key_charges_once_over_retries(void **state) {
    world *w = *state;
    bank.count = 0;
    RUN(w, shop);
    start(w, "Purchase", "1", "order-7");
    pause_ms(10);
    atomic_store(&stopping, true);
    world_stop(w);
    atomic_store(&stopping, false);
    RUN(w, shop);
    expect(w, "order-7", "2");
    assert_int_equal(bank.count, 2);
    assert_null(strstr(bank.keys[0], bank.keys[1]));
}

/* An id is an address: the next instance that has it is another customer. */
static void fault_h41_an_id_that_is_used_again_has_other_keys(void **state) {
    world *w = *state;
    bank.count = 0;
    RUN(w, shop);
    for (int night = 0; night < 3; night++) {
        OK(w, dur_client_start(w->client, &w->err, "Purchase", "1", .instance = "nightly",
                               .exists = DUR_START_REPLACE_FINISHED));
        expect(w, "nightly", "2");
    }
    assert_int_equal(bank.count, 6);
}

/* What a cancel gave up in the middle of a clean-up is done again, under the key that it had. */
static atomic_int refunding;

static dur_outcome refund(dur_act *act, const char *input) {
    (void)bank_charge(dur_act_key(act));
    if (atomic_fetch_add(&refunding, 1) == 0) (void)dur_act_sleep(act, patience_ms());
    return dur_act_complete(act, input);
}

static dur_outcome regret(dur_ctx *ctx, const char *input) {
    dur_saga *saga = dur_saga_begin(ctx);
    dur_saga_undo(saga, "Refund", input);
    size_t failed = dur_saga_compensate(saga);
    return dur_completef(ctx, "%zu", failed);
}

static void fault_h41_what_is_undone_again_keeps_its_key(void **state) {
    world *w = *state;
    NEEDS_THREADS("an activity waits for the test");
    static const dur_handler handlers[] = { DUR_ACTIVITY("Refund", refund),
                                            DUR_ORCHESTRATION("Regret", "1.0.0", regret), DUR_HANDLERS_END };
    bank.count = 0;
    atomic_store(&refunding, 0);
    RUN(w, handlers);
    start(w, "Regret", "", "regret");
    while (atomic_load(&refunding) == 0)
        pause_ms(1);
    OK(w, dur_client_cancel(w->client, "regret", "enough", &w->err));
    char *result = NULL;
    assert_int_equal(dur_client_result(&result, w->client, "regret", patience_ms(), &w->err), DUR_ECANCELLED);
    assert_int_equal(atomic_load(&refunding), 2);
    assert_int_equal(bank.count, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(fault_h40_a_reminder_loop_misses_no_decision),
        TEST(fault_h41_the_taught_key_charges_once_over_retries),
        TEST(fault_h41_an_id_that_is_used_again_has_other_keys),
        TEST(fault_h41_what_is_undone_again_keeps_its_key),
        TEST(fault_h45_prune_without_a_rule_keeps_the_current_execution),
        TEST(fault_h57_a_duplicate_start_keeps_the_pinned_handler),
        TEST(fault_h57_a_start_does_not_stand_before_the_next_execution),
        TEST(fault_h57_what_comes_between_two_executions_waits_for_the_second),
        TEST(fault_h57_a_start_without_a_handler_waits_for_a_node_that_has_it),
        TEST(fault_h59_children_of_later_executions_are_known_by_the_originals_names),
        TEST(fault_h59_an_empty_list_is_written_again),
        TEST(fault_h59_a_zero_in_a_text_is_refused_at_every_door),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
