/*
 * hostile_ends.c: what an end leaves behind, whoever makes it: queue messages that were accepted and that nobody took,
 * and children whose start still waits.
 */
#include "hostile.h"

#include <durite/sys/store.h>
#include <pthread.h>

/* ---- what was accepted ---- */

/* Number `number` to the instance; false: it was refused, because the instance has ended or does not exist. */
static bool send(world *w, const char *instance, unsigned number, uint64_t delay_ms) {
    char text[96];
    dur_error err = DUR_ERROR_INIT;
    snprintf(text, sizeof(text), "letter %u to %s", number, instance);
    int code = dur_client_send(w->client, &err, instance, "letters", text, .delay_ms = delay_ms);
    if (code == DUR_ESTATE || code == DUR_ENOTFOUND) return false;
    if (code != DUR_OK) fail_msg("enqueue: %s: %s", dur_code_name(code), err.message);
    return true;
}

static void send_many(world *w, const char *instance, unsigned count) {
    for (unsigned i = 0; i < count; i++)
        assert_true(send(w, instance, i, 0));
}

/* How many dead letters are this one; each has a reason. */
static size_t dead_letters(world *w, const char *instance, unsigned number) {
    char text[96];
    size_t found = 0;
    uint64_t after = 0;
    snprintf(text, sizeof(text), "\"letter %u to %s\"", number, instance);
    for (bool more = true; more;) {
        dur_dead_letter_list *letters = NULL;
        OK(w, dur_client_dead_letters(&letters, w->client, after, 200, &w->err));
        for (size_t i = 0; i < letters->count; i++) {
            after = letters->items[i]->id;
            if (strstr(letters->items[i]->message, text) == NULL) continue;
            assert_true(letters->items[i]->reason != NULL && letters->items[i]->reason[0] != '\0');
            assert_string_equal(letters->items[i]->instance, instance);
            found++;
        }
        more = letters->count == 200;
        dur_dead_letter_list_free(letters);
    }
    return found;
}

/* Some execution has recorded it. */
static bool recorded(world *w, const char *instance, unsigned number) {
    char text[96];
    bool found = false, more = true;
    snprintf(text, sizeof(text), "\"letter %u to %s\"", number, instance);
    for (uint64_t execution = 1; more && !found; execution++) {
        char *history = NULL;
        more = dur_client_history(&history, w->client, instance, execution, NULL) == DUR_OK;
        found = more && strstr(history, text) != NULL;
        dur_free(history);
    }
    return found;
}

/* Each was recorded or is a dead letter, and never both, nor two of them. */
static void expect_accounted(world *w, const char *instance, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        size_t times = 0;
        for (uint64_t until = now_ms() + patience_ms(); times == 0; pause_ms(1)) {
            times = (recorded(w, instance, i) ? 1 : 0) + dead_letters(w, instance, i);
            if (times == 0 && now_ms() > until) fail_msg("letter %u to %s is lost", i, instance);
        }
        assert_int_equal(times, 1);
    }
}

/* ---- handlers ---- */

/* Takes so many letters, then waits for something else. */
static dur_outcome takes_some(dur_ctx *ctx, const char *input) {
    for (unsigned long left = strtoul(input, NULL, 10); left > 0; left--)
        dur_await(dur_message(ctx, "letters"));
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

/* The same in executions of one letter each. */
static dur_outcome takes_and_continues(dur_ctx *ctx, const char *input) {
    unsigned long left = strtoul(input, NULL, 10);
    if (left > 0) {
        dur_await(dur_message(ctx, "letters"));
        return dur_continue_as_new(ctx, dur_format(ctx, "%lu", left - 1));
    }
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

/* Ends when it has taken so many, whatever waits. */
static dur_outcome takes_and_ends(dur_ctx *ctx, const char *input) {
    for (unsigned long left = strtoul(input, NULL, 10); left > 0; left--)
        dur_await(dur_message(ctx, "letters"));
    return dur_complete(ctx, "enough");
}

/* Waits on, whoever cancels it. */
static dur_outcome deaf(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_message(ctx, "letters"));
    for (int hours = 0; hours < 1000; hours++)
        (void)dur_try(dur_timer(ctx, DUR_SECONDS(3600)), NULL);
    return dur_complete(ctx, "");
}

static bool changed_code;

static dur_outcome changes(dur_ctx *ctx, const char *input) {
    (void)input;
    if (changed_code) return dur_complete(ctx, dur_await(dur_timer(ctx, 1)));
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static const dur_handler takers[] = {
    DUR_ORCHESTRATION("TakesSome", "1.0.0", takes_some),
    DUR_ORCHESTRATION("TakesAndContinues", "1.0.0", takes_and_continues),
    DUR_ORCHESTRATION("TakesAndEnds", "1.0.0", takes_and_ends),
    DUR_ORCHESTRATION("Deaf", "1.0.0", deaf),
    DUR_ORCHESTRATION("Changes", "1.0.0", changes),
    DUR_HANDLERS_END,
};

static dur_outcome other(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}
static const dur_handler others[] = { DUR_ORCHESTRATION("Other", "1.0.0", other), DUR_HANDLERS_END };

/* Begun, one letter taken, and three that nobody has taken. */
static void begin_with_letters(world *w, const char *name, const char *instance) {
    start(w, name, "1", instance);
    assert_true(send(w, instance, 0, 0));
    until_history(w, instance, "\"ExternalEventPersistent\"", 1);
    for (unsigned i = 1; i < 4; i++)
        assert_true(send(w, instance, i, i == 3 ? 100 : 0));
}

/* ---- H68: queue messages ---- */

static void fault_h68_terminate_keeps_letters(void **state) {
    world *w = *state;
    static const char *const ids[] = { "parked", "away", "unborn", "later" };
    RUN(w, takers);
    begin_with_letters(w, "TakesSome", "parked");
    begin_with_letters(w, "TakesSome", "away");
    OK(w, dur_client_suspend(w->client, "away", "so that nobody holds it", &w->err));
    start(w, "Nobody", "", "unborn");
    send_many(w, "unborn", 4);
    OK(w, dur_client_start(w->client, &w->err, "TakesSome", "1", .instance = "later", .delay_ms = DUR_SECONDS(3600)));
    send_many(w, "later", 4);
    for (size_t i = 0; i < 4; i++)
        OK(w, dur_client_terminate(w->client, ids[i], "enough", &w->err));
    for (size_t i = 0; i < 4; i++) {
        expect_failure(w, ids[i], DUR_ECANCELLED, "enough");
        expect_accounted(w, ids[i], 4);
        assert_false(send(w, ids[i], 4, 0));
    }
}

/* Nobody is there when it is ended: whoever comes next finds the letters. */
static void fault_h68_terminate_keeps_letters_until_a_node_comes(void **state) {
    world *w = *state;
    RUN(w, takers);
    begin_with_letters(w, "TakesSome", "begun");
    world_stop(w);
    start(w, "TakesSome", "1", "unborn");
    send_many(w, "unborn", 4);
    OK(w, dur_client_terminate(w->client, "begun", "enough", &w->err));
    OK(w, dur_client_terminate(w->client, "unborn", "enough", &w->err));
    RUN(w, others);
    expect_accounted(w, "begun", 4);
    expect_accounted(w, "unborn", 4);
}

static void fault_h68_a_cancel_without_a_handler_keeps_letters(void **state) {
    world *w = *state;
    RUN(w, takers);
    begin_with_letters(w, "TakesSome", "begun");
    world_stop(w);
    RUN(w, others, .unregistered_backoff_ms = 20, .cancel_grace_ms = 1);
    start(w, "TakesSome", "1", "unborn");
    send_many(w, "unborn", 4);
    OK(w, dur_client_cancel(w->client, "begun", "enough", &w->err));
    OK(w, dur_client_cancel(w->client, "unborn", "not wanted", &w->err));
    expect_failure(w, "begun", DUR_ECANCELLED, "enough");
    expect_failure(w, "unborn", DUR_ECANCELLED, "not wanted");
    expect_accounted(w, "begun", 4);
    expect_accounted(w, "unborn", 4);
}

static void fault_h68_an_end_for_want_of_a_handler_keeps_letters(void **state) {
    world *w = *state;
    RUN(w, takers);
    begin_with_letters(w, "TakesSome", "begun");
    world_stop(w);
    start(w, "TakesSome", "1", "unborn");
    send_many(w, "unborn", 4);
    RUN(w, others, .unregistered_backoff_ms = 20, .unregistered_attempts_max = 2);
    expect_failure(w, "unborn", DUR_EFAILED, "not registered");
    OK(w, dur_client_pulse(w->client, &w->err, "begun", "Wakes", "")); /* a reason to fetch it */
    expect_failure(w, "begun", DUR_EFAILED, "not registered");
    expect_accounted(w, "begun", 4);
    expect_accounted(w, "unborn", 4);
}

static void append_unreadable(world *w, const char *instance) {
    dur_arena *arena = dur_arena_new();
    dur_event_row *rows = NULL, broken = { .kind = DUR_EVENT_EXTERNAL_EVENT, .json = { "{", 1 } };
    size_t count = 0;
    OK(w, dur_store_read(w->store, arena, instance, 1, &rows, &count, &w->err));
    broken.event_id = rows[count - 1].event_id + 1;
    OK(w, dur_store_append(w->store, instance, 1, &broken, 1, &w->err));
    dur_arena_free(arena);
}

/* The grace of a cancel is over; the code has changed; the history cannot be read. */
static void fault_h68_an_end_by_the_engine_keeps_letters(void **state) {
    world *w = *state;
    RUN(w, takers, .cancel_grace_ms = 20);
    begin_with_letters(w, "Deaf", "deaf");
    OK(w, dur_client_cancel(w->client, "deaf", "enough", &w->err));
    expect_failure(w, "deaf", DUR_ECANCELLED, "enough");
    start(w, "Changes", "", "changes");
    until_history(w, "changes", "\"ExternalSubscribed\"", 1);
    send_many(w, "changes", 4);
    begin_with_letters(w, "TakesSome", "unreadable");
    world_stop(w);
    append_unreadable(w, "unreadable");
    changed_code = true;
    RUN(w, takers, .nondeterminism = DUR_NONDETERMINISM_FAIL, .max_attempts = 1);
    OK(w, dur_client_pulse(w->client, &w->err, "changes", "Go", ""));
    OK(w, dur_client_pulse(w->client, &w->err, "unreadable", "Go", ""));
    expect_failure(w, "changes", DUR_EFAILED, "nondeterministic");
    expect_failure(w, "unreadable", DUR_EFAILED, "poison");
    changed_code = false;
    expect_accounted(w, "deaf", 4);
    expect_accounted(w, "changes", 4);
    expect_accounted(w, "unreadable", 4);
}

/* What is taken away before anybody has looked at what it left, and what is taken away while it runs. */
static void fault_h68_a_deleted_instance_leaves_its_letters(void **state) {
    world *w = *state;
    static const char *const ids[] = { "deleted", "bulk", "replaced", "forced" };
    for (size_t i = 0; i < 4; i++) {
        start(w, "TakesSome", "1", ids[i]);
        send_many(w, ids[i], 3);
        if (i < 3) OK(w, dur_client_terminate(w->client, ids[i], "enough", &w->err));
    }
    dur_deleted deleted = { .size = sizeof(deleted) };
    OK(w, dur_client_delete(&deleted, w->client, "deleted", false, &w->err));
    assert_int_equal(deleted.queue_messages, 3);
    OK(w, dur_client_delete_bulk(NULL, w->client, DUR_BULK(.instances = &ids[1], .instance_count = 1), &w->err));
    OK(w, dur_client_start(w->client, &w->err, "TakesSome", "0", .instance = "replaced",
                           .exists = DUR_START_REPLACE_FINISHED));
    OK(w, dur_client_delete(NULL, w->client, "forced", true, &w->err));
    for (size_t i = 0; i < 4; i++)
        expect_accounted(w, ids[i], 3);
    RUN(w, takers);
    OK(w, dur_client_pulse(w->client, &w->err, "replaced", "Go", ""));
    for (size_t i = 0; i < 4; i++)
        for (unsigned k = 0; k < 3; k++)
            assert_int_equal(dead_letters(w, ids[i], k), 1);
    OK(w, dur_client_terminate(w->client, "replaced", "enough", &w->err));
}

/* ---- parents and children ---- */

/* No node ends what nobody has the handler of. */
#define NO_LOOKS .unregistered_backoff_ms = DUR_SECONDS(3600), .unregistered_backoff_max_ms = DUR_SECONDS(3600)

static dur_outcome kid(dur_ctx *ctx, const char *input) {
    const char *letter = NULL;
    while (dur_try_message(ctx, "letters", &letter) == DUR_OK)
        dur_kv_set(ctx, "got", letter);
    return dur_completef(ctx, "kid of %s", input);
}

static const char *outcome(dur_ctx *ctx, dur_future *call) {
    const char *value = "";
    dur_code code = dur_try(call, &value);
    return code == DUR_OK ? value : dur_format(ctx, "%s: %s", dur_code_name(code), dur_reason(call));
}

static dur_outcome calls_kid(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, outcome(ctx, dur_orchestration(ctx, "Kid", input, .instance = "kid")));
}

/* The call is given up by its end. */
static dur_outcome calls_and_ends(dur_ctx *ctx, const char *input) {
    dur_orchestration(ctx, "Kid", input, .instance = "kid");
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome calls_detached(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_start(ctx, "Kid", input, .instance = "kid"));
}

#define CALLERS                                                                                                        \
    DUR_ORCHESTRATION("CallsKid", "1.0.0", calls_kid), DUR_ORCHESTRATION("CallsAndEnds", "1.0.0", calls_and_ends),     \
        DUR_ORCHESTRATION("CallsDetached", "1.0.0", calls_detached)
static const dur_handler callers[] = { CALLERS, DUR_HANDLERS_END };
static const dur_handler family[] = { CALLERS, DUR_ORCHESTRATION("Kid", "1.0.0", kid), DUR_HANDLERS_END };

static bool exists(world *w, const char *instance) {
    dur_instance_info *info = NULL;
    int code = dur_client_info(&info, w->client, instance, &w->err);
    dur_instance_info_free(info);
    if (code != DUR_OK && code != DUR_ENOTFOUND) fail_msg("info: %s", w->err.message);
    return code == DUR_OK;
}

static void until_called(world *w, const char *parent) {
    until_history(w, parent, "\"SubOrchestrationScheduled\"", 1);
    for (uint64_t until = now_ms() + patience_ms(); !exists(w, "kid"); pause_ms(1))
        assert_true(now_ms() < until);
}

/* A parent whose call waits, because no node has the child's handler. */
static void start_caller(world *w, const char *name) {
    start(w, name, "parent", "parent");
    until_called(w, "parent");
}

static void expect_called_again(world *w) {
    start(w, "CallsKid", "the second", "parent");
    until_history(w, "parent", "\"SubOrchestrationScheduled\"", 1);
    world_stop(w);
    RUN(w, family);
    expect(w, "parent", "kid of the second");
}

/* What is sent to a child that is never started is no other child's. */
static void fault_h68_a_child_that_is_never_started_leaves_its_letters(void **state) {
    world *w = *state;
    RUN(w, callers);
    start_caller(w, "CallsKid");
    send_many(w, "kid", 3);
    world_stop(w);
    OK(w, dur_client_terminate(w->client, "parent", "enough", &w->err));
    const char *parent = "parent";
    OK(w, dur_client_delete_bulk(NULL, w->client, DUR_BULK(.instances = &parent, .instance_count = 1), &w->err));
    RUN(w, callers, NO_LOOKS);
    expect_called_again(w);
    expect_accounted(w, "kid", 3);
    char *got = NULL;
    OK(w, dur_client_kv_get(&got, w->client, "kid", "got", &w->err));
    assert_null(got);
}

/* ---- H69: children whose start waits ---- */

static void fault_h69_a_terminated_parent_is_deleted_with_a_child_that_waits(void **state) {
    world *w = *state;
    RUN(w, callers);
    start_caller(w, "CallsKid");
    world_stop(w);
    OK(w, dur_client_terminate(w->client, "parent", "enough", &w->err));
    OK(w, dur_client_delete(NULL, w->client, "parent", true, &w->err));
    assert_false(exists(w, "kid"));
    RUN(w, callers);
    expect_called_again(w);
}

static void fault_h69_a_cancelled_parent_is_deleted_with_a_child_that_waits(void **state) {
    world *w = *state;
    RUN(w, callers, NO_LOOKS);
    start_caller(w, "CallsKid");
    OK(w, dur_client_cancel(w->client, "parent", "enough", &w->err));
    expect_failure(w, "parent", DUR_ECANCELLED, "enough");
    OK(w, dur_client_delete(NULL, w->client, "parent", false, &w->err));
    assert_false(exists(w, "kid"));
    expect_called_again(w);
}

static void fault_h69_a_completed_parent_is_deleted_with_a_child_that_waits(void **state) {
    world *w = *state;
    RUN(w, callers, NO_LOOKS);
    start_caller(w, "CallsAndEnds");
    OK(w, dur_client_pulse(w->client, &w->err, "parent", "Go", "done"));
    expect(w, "parent", "done");
    OK(w, dur_client_delete(NULL, w->client, "parent", false, &w->err));
    assert_false(exists(w, "kid"));
    expect_called_again(w);
}

/* What has been cancelled and has not begun is ended at a look of any node: when this returns, there was one. */
static void until_looked(world *w) {
    static unsigned serial;
    char id[32];
    for (int i = 0; i < 2; i++) {
        snprintf(id, sizeof(id), "fence-%u", serial++);
        start(w, "NobodyHasThis", "", id);
        OK(w, dur_client_cancel(w->client, id, "looked", &w->err));
        expect_failure(w, id, DUR_ECANCELLED, "looked");
    }
}

static void take_away(world *w, bool bulk) {
    const char *parent = "parent";
    if (bulk)
        OK(w, dur_client_delete_bulk(NULL, w->client, DUR_BULK(.instances = &parent, .instance_count = 1), &w->err));
    else
        OK(w, dur_client_start(w->client, &w->err, "CallsKid", "the second", .instance = "parent",
                               .exists = DUR_START_REPLACE_FINISHED));
}

/* The parent is gone by other ways, its cancel of the old call still waits, and the new parent's call behind it. */
static void next_parent_calls(world *w, bool bulk) {
    RUN(w, callers);
    start_caller(w, "CallsKid");
    world_stop(w);
    OK(w, dur_client_terminate(w->client, "parent", "enough", &w->err));
    take_away(w, bulk);
    RUN(w, callers, .unregistered_backoff_ms = 20);
    if (bulk) start(w, "CallsKid", "the second", "parent");
    until_history(w, "parent", "\"SubOrchestrationScheduled\"", 1);
    until_looked(w);
    world_stop(w);
    RUN(w, family);
    expect(w, "parent", "kid of the second");
}

static void fault_h69_a_call_of_a_parent_that_was_pruned_is_in_nobodys_way(void **state) {
    next_parent_calls(*state, true);
}

static void fault_h69_a_call_of_a_parent_that_was_replaced_is_in_nobodys_way(void **state) {
    next_parent_calls(*state, false);
}

typedef struct waiter {
    dur_provider *store;
    dur_client *client;
    int code;
} waiter;

static void *wait_for_kid(void *arg) {
    waiter *self = arg;
    char *result = NULL;
    self->code = dur_client_result(&result, self->client, "kid", patience_ms(), NULL);
    dur_free(result);
    return NULL;
}

/* Through another handle, which learns of it by the store alone. */
static void fault_h69_who_waits_for_a_child_that_is_never_started_is_told(void **state) {
    world *w = *state;
    pthread_t thread;
    waiter other = { .code = DUR_OK };
    RUN(w, callers, NO_LOOKS);
    start_caller(w, "CallsAndEnds");
    OK(w, dur_client_pulse(w->client, &w->err, "parent", "Go", "done"));
    expect(w, "parent", "done");
    OK(w, dur_open(&other.store, w->url, &w->err));
    OK(w, dur_client_new(&other.client, other.store, &w->err));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_kid, &other), 0);
    pause_ms(200); /* most probably it waits by now; if not, it finds nothing */
    OK(w, dur_client_delete(NULL, w->client, "parent", false, &w->err));
    pthread_join(thread, NULL);
    assert_int_equal(other.code, DUR_ENOTFOUND);
    dur_client_free(other.client);
    dur_provider_close(other.store);
}

static void fault_h69_what_does_not_answer_outlives_its_starter(void **state) {
    world *w = *state;
    RUN(w, callers);
    start(w, "CallsDetached", "nobody", "parent");
    expect(w, "parent", "kid");
    OK(w, dur_client_delete(NULL, w->client, "parent", true, &w->err));
    assert_true(exists(w, "kid"));
    world_stop(w);
    RUN(w, family);
    expect(w, "kid", "kid of nobody");
}

/* ---- a cancel that no handler hears ---- */

static void fault_h09_a_cancel_counts_before_the_want_of_a_handler(void **state) {
    world *w = *state;
    RUN(w, takers);
    start(w, "TakesSome", "0", "begun");
    until_history(w, "begun", "\"ExternalSubscribed\"", 1);
    world_stop(w);
    OK(w, dur_client_cancel(w->client, "begun", "enough", &w->err));
    start(w, "TakesSome", "0", "unborn");
    OK(w, dur_client_cancel(w->client, "unborn", "not wanted", &w->err));
    RUN(w, others, .unregistered_backoff_ms = 20, .unregistered_attempts_max = 2);
    expect_failure(w, "begun", DUR_ECANCELLED, "enough");
    expect_failure(w, "unborn", DUR_ECANCELLED, "not wanted");
}

static void fault_h09_the_want_of_a_handler_is_called_one(void **state) {
    world *w = *state;
    dur_instance_info *info = NULL;
    RUN(w, others, .unregistered_backoff_ms = 20, .unregistered_attempts_max = 2);
    start(w, "TakesSome", "0", "unborn");
    expect_failure(w, "unborn", DUR_EFAILED, "\"TakesSome\" is not registered");
    assert_null(strstr(w->err.message, "nondeterministic"));
    OK(w, dur_client_info(&info, w->client, "unborn", &w->err));
    assert_int_equal(info->failure_category, DUR_FAILURE_CONFIGURATION);
    assert_false(info->cancelled);
    dur_instance_info_free(info);
}

/* A parent gives up its call under an id that is somebody else's: no cancel of that one. */
static void fault_h09_a_cancel_of_another_call_ends_nobody(void **state) {
    world *w = *state;
    RUN(w, callers, .unregistered_backoff_ms = 20, .cancel_grace_ms = 1);
    start(w, "Kid", "nobody", "kid");
    start(w, "CallsKid", "x", "parent");
    until_history(w, "parent", "\"SubOrchestrationScheduled\"", 1);
    OK(w, dur_client_terminate(w->client, "parent", "enough", &w->err));
    until_looked(w);
    world_stop(w);
    RUN(w, family);
    expect(w, "kid", "kid of nobody");
}

/* ---- what the log says of it ---- */

static atomic_int warnings;
static char warned_of[256];

static void hear(void *unused, const dur_log_record *record) {
    (void)unused;
    if (record->level <= DUR_LOG_WARN && atomic_fetch_add(&warnings, 1) == 0)
        snprintf(warned_of, sizeof(warned_of), "%s", record->message);
}

static atomic_int working;

static dur_outcome works_on(dur_act *act, const char *input) {
    atomic_fetch_add(&working, 1);
    while (!dur_act_cancelled(act))
        pause_ms(1);
    atomic_fetch_sub(&working, 1);
    return dur_act_complete(act, input);
}

static dur_outcome waits_and_works(dur_ctx *ctx, const char *input) {
    dur_future *work = dur_activity(ctx, "WorksOn", input);
    dur_await(dur_pulse(ctx, "Go"));
    return dur_complete(ctx, dur_await(work));
}

static const dur_handler workers[] = { DUR_ACTIVITY("WorksOn", works_on),
                                       DUR_ORCHESTRATION("WaitsAndWorks", "1.0.0", waits_and_works), DUR_HANDLERS_END };

static void until_working(int count) {
    for (uint64_t until = now_ms() + patience_ms(); atomic_load(&working) != count; pause_ms(1))
        assert_true(now_ms() < until);
}

/* Whoever holds the instance is told, and what an operator does on purpose is nothing to warn of. */
static void fault_h38_a_clients_act_is_no_warning(void **state) {
    world *w = *state;
    atomic_store(&warnings, 0);
    atomic_store(&working, 0);
    RUN(w, workers, .worker_concurrency = 3);
    assert_int_equal(dur_log_set_sink(hear, NULL, DUR_LOG_WARN), DUR_OK);
    start(w, "WaitsAndWorks", "", "terminated");
    start(w, "WaitsAndWorks", "", "deleted");
    start(w, "WaitsAndWorks", "", "suspended");
    until_working(3);
    OK(w, dur_client_terminate(w->client, "terminated", "enough", &w->err));
    OK(w, dur_client_delete(NULL, w->client, "deleted", true, &w->err));
    OK(w, dur_client_suspend(w->client, "suspended", "for a while", &w->err));
    until_working(1); /* those of the first two have been told */
    OK(w, dur_client_resume(w->client, "suspended", &w->err));
    OK(w, dur_client_terminate(w->client, "suspended", "enough", &w->err));
    until_working(0);
    world_stop(w);
    dur_log_set_sink(NULL, NULL, DUR_LOG_WARN);
    if (atomic_load(&warnings) > 0) fail_msg("warned: %s", warned_of);
}

/* ---- any end at any moment ---- */

enum { CROWD_LETTERS = 12 };

typedef struct crowd {
    world *w;
    uint64_t random;
    size_t count;
    unsigned *sent; /* accepted of each instance, by number from 0 */
} crowd;

static unsigned draw(crowd *c, unsigned below) {
    c->random = c->random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(c->random >> 33) % below;
}

static void crowd_id(char out[32], size_t number) {
    snprintf(out, 32, "crowd-%zu", number);
}

static void crowd_start(crowd *c, size_t number) {
    static const char *const names[] = { "TakesSome", "TakesAndContinues", "TakesAndEnds", "Deaf", "NobodyHasThis" };
    char id[32], input[16];
    crowd_id(id, number);
    snprintf(input, sizeof(input), "%u", draw(c, CROWD_LETTERS));
    start(c->w, names[draw(c, 5)], input, id);
}

static void crowd_end(crowd *c, size_t number) {
    char id[32];
    crowd_id(id, number);
    switch (draw(c, 4)) {
    case 0:
        OK(c->w, dur_client_terminate(c->w->client, id, "enough", &c->w->err));
        break;
    case 1:
        OK(c->w, dur_client_cancel(c->w->client, id, "enough", &c->w->err));
        break;
    case 2:
        OK(c->w, dur_client_pulse(c->w->client, &c->w->err, id, "Go", ""));
        break;
    default:
        break;
    }
}

/* Letters and ends, in any order, beside nodes that come and go. */
static void fault_h68_every_letter_is_recorded_or_dead(void **state) {
    crowd c = { .w = *state, .count = scaled(20, 8) };
    const char *given = getenv("DURITE_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : now_ms();
    print_message("DURITE_TEST_SEED=%llu\n", (unsigned long long)seed);
    c.random = seed;
    c.sent = calloc(c.count, sizeof(*c.sent));
    RUN(c.w, takers, .unregistered_backoff_ms = 20, .cancel_grace_ms = 50);
    for (size_t i = 0; i < c.count; i++)
        crowd_start(&c, i);
    for (size_t step = 0; step < c.count * CROWD_LETTERS; step++) {
        size_t number = draw(&c, (unsigned)c.count);
        char id[32];
        crowd_id(id, number);
        if (send(c.w, id, c.sent[number], draw(&c, 4) == 0 ? draw(&c, 50) : 0)) c.sent[number]++;
        if (draw(&c, 8) == 0) crowd_end(&c, number);
        if (draw(&c, 60) == 0) {
            bool kept = draw(&c, 2) == 0;
            world_stop(c.w);
            RUN(c.w, kept ? takers : others, .unregistered_backoff_ms = 20, .cancel_grace_ms = 50);
        }
    }
    for (size_t i = 0; i < c.count; i++) {
        char id[32];
        crowd_id(id, i);
        OK(c.w, dur_client_terminate(c.w->client, id, "the end", &c.w->err));
    }
    for (size_t i = 0; i < c.count; i++) {
        char id[32];
        crowd_id(id, i);
        expect_accounted(c.w, id, c.sent[i]);
    }
    free(c.sent);
}

static const hostile_role roles[] = { { "none", NULL } };

static const struct CMUnitTest tests[] = {
    TEST(fault_h68_terminate_keeps_letters),
    TEST(fault_h68_terminate_keeps_letters_until_a_node_comes),
    TEST(fault_h68_a_cancel_without_a_handler_keeps_letters),
    TEST(fault_h68_an_end_for_want_of_a_handler_keeps_letters),
    TEST(fault_h68_an_end_by_the_engine_keeps_letters),
    TEST(fault_h68_a_deleted_instance_leaves_its_letters),
    TEST(fault_h68_a_child_that_is_never_started_leaves_its_letters),
    TEST(fault_h68_every_letter_is_recorded_or_dead),
    TEST(fault_h69_a_terminated_parent_is_deleted_with_a_child_that_waits),
    TEST(fault_h69_a_cancelled_parent_is_deleted_with_a_child_that_waits),
    TEST(fault_h69_a_completed_parent_is_deleted_with_a_child_that_waits),
    TEST(fault_h69_a_call_of_a_parent_that_was_pruned_is_in_nobodys_way),
    TEST(fault_h69_a_call_of_a_parent_that_was_replaced_is_in_nobodys_way),
    TEST(fault_h69_who_waits_for_a_child_that_is_never_started_is_told),
    TEST(fault_h69_what_does_not_answer_outlives_its_starter),
    TEST(fault_h09_a_cancel_counts_before_the_want_of_a_handler),
    TEST(fault_h09_the_want_of_a_handler_is_called_one),
    TEST(fault_h09_a_cancel_of_another_call_ends_nobody),
    TEST(fault_h38_a_clients_act_is_no_warning),
};

HOSTILE_MAIN(roles, tests)
