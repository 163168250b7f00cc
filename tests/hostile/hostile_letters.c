/*
 * hostile_letters.c: queue messages that history holds and that no call has reported to the handler: each is reported
 * to somebody or is a dead letter, however the instance ends.
 */
#include "hostile.h"

#include <durite/sys/store.h>
#include <pthread.h>

/* ---- what was sent ---- */

static bool send(world *w, const char *instance, unsigned number) {
    char text[96];
    dur_error err = DUR_ERROR_INIT;
    snprintf(text, sizeof(text), "letter %u to %s", number, instance);
    int code = dur_client_send(w->client, &err, instance, "letters", text);
    if (code == DUR_ESTATE || code == DUR_ENOTFOUND) return false;
    if (code != DUR_OK) fail_msg("enqueue: %s: %s", dur_code_name(code), err.message);
    return true;
}

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
            found += strstr(letters->items[i]->message, text) != NULL;
        }
        more = letters->count == 200;
        dur_dead_letter_list_free(letters);
    }
    return found;
}

/* The handler has said so, with a key of its own for each, in the group in which a call returned it. */
static bool reported(world *w, const char *instance, unsigned number) {
    char key[96];
    char *value = NULL;
    snprintf(key, sizeof(key), "letter %u to %s", number, instance);
    int code = dur_client_kv_get(&value, w->client, instance, key, &w->err);
    if (code != DUR_OK && code != DUR_ENOTFOUND) fail_msg("kv: %s", w->err.message);
    bool found = value != NULL;
    dur_free(value);
    return found;
}

static void until_dead(world *w, const char *instance, unsigned number) {
    for (uint64_t until = now_ms() + patience_ms(); dead_letters(w, instance, number) == 0; pause_ms(1))
        if (now_ms() > until) fail_msg("letter %u to %s is lost", number, instance);
    assert_int_equal(dead_letters(w, instance, number), 1);
}

/* Reported or dead, and never both, nor twice. */
static void expect_accounted(world *w, const char *instance, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        if (!reported(w, instance, i))
            until_dead(w, instance, i);
        else if (dead_letters(w, instance, i) != 0)
            fail_msg("letter %u to %s was reported, and is a dead letter", i, instance);
    }
}

/* ---- handlers ---- */

static void take(dur_ctx *ctx, const char *letter) {
    dur_kv_set(ctx, letter, "reported");
}

/*
 * Three dequeues are open and a call waits for the second alone: the first and the third get letters that nobody has
 * seen.  What the handler does at the "Go" that follows is its input.
 */
static dur_outcome holds(dur_ctx *ctx, const char *input) {
    dur_future *first = dur_message(ctx, "letters"), *second = dur_message(ctx, "letters");
    dur_future *third = dur_message(ctx, "letters");
    take(ctx, dur_await(second));
    const char *then = input;
    if (strcmp(input, "at once") == 0) {
        if (dur_try(dur_pulse(ctx, "Go"), &then) != DUR_OK) return dur_complete(ctx, "cancelled");
    } else {
        dur_await(dur_pulse(ctx, "Go"));
    }
    if (strcmp(input, "fail") == 0) return dur_fail(ctx, "on purpose");
    if (strcmp(input, "continue") == 0) return dur_continue_as_new(ctx, "waits");
    if (strcmp(input, "nobody") == 0) return dur_continue_as_new(ctx, "waits", .version = "7.0.0");
    if (strcmp(input, "late") == 0) { /* reported in a later group than that of the arrival */
        take(ctx, dur_await(first));
        take(ctx, dur_await(third));
        dur_await(dur_pulse(ctx, "Stop"));
    }
    return dur_complete(ctx, input);
}

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "waits") != 0) return holds(ctx, input);
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Stop")));
}

/* Ends with the branch that has made it. */
static dur_outcome lets_go(dur_ctx *ctx, void *unused) {
    (void)unused;
    dur_detach(dur_message(ctx, "letters"));
    return dur_complete(ctx, "");
}

static dur_outcome swallows(dur_ctx *ctx, const char *input) {
    dur_await(dur_spawn(ctx, lets_go, NULL));
    return dur_complete(ctx, strcmp(input, "wait") == 0 ? dur_await(dur_pulse(ctx, "Go")) : input);
}

static bool changed_code;

static dur_outcome changes(dur_ctx *ctx, const char *input) {
    if (changed_code) return dur_complete(ctx, dur_await(dur_timer(ctx, 1)));
    return holds(ctx, input);
}

static const dur_handler holders[] = {
    DUR_ORCHESTRATION("Holds", "1.0.0", waits),
    DUR_ORCHESTRATION("Swallows", "1.0.0", swallows),
    DUR_ORCHESTRATION("Changes", "1.0.0", changes),
    DUR_HANDLERS_END,
};

static dur_outcome other(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}
static const dur_handler others[] = { DUR_ORCHESTRATION("Other", "1.0.0", other), DUR_HANDLERS_END };

/* Letters 0 and 2 arrived for dequeues and nobody has seen them, 1 was reported, 3 waits in the queue. */
static void begin_holding(world *w, const char *name, const char *input, const char *instance) {
    start(w, name, input, instance);
    for (unsigned i = 0; i < 4; i++)
        assert_true(send(w, instance, i));
    until_history(w, instance, "\"ExternalEventPersistent\"", 3);
    until_history(w, instance, "\"ExternalSubscribed\"", 1);
}

static void expect_returned(world *w, const char *instance) {
    assert_true(reported(w, instance, 1));
    until_dead(w, instance, 0);
    until_dead(w, instance, 2);
    until_dead(w, instance, 3);
    assert_int_equal(dead_letters(w, instance, 1), 0);
    dur_instance_info *info = NULL;
    OK(w, dur_client_info(&info, w->client, instance, &w->err));
    dur_instance_info_free(info);
}

/* ---- H76 ---- */

static void fault_h76_an_end_by_the_handler_leaves_what_no_call_reported(void **state) {
    world *w = *state;
    RUN(w, holders, .cancel_grace_ms = 20);
    begin_holding(w, "Holds", "return", "returns");
    begin_holding(w, "Holds", "fail", "fails");
    begin_holding(w, "Holds", "at once", "cancelled");
    OK(w, dur_client_pulse(w->client, &w->err, "returns", "Go", ""));
    OK(w, dur_client_pulse(w->client, &w->err, "fails", "Go", ""));
    OK(w, dur_client_cancel(w->client, "cancelled", "enough", &w->err));
    expect(w, "returns", "return");
    expect_failure(w, "fails", DUR_EFAILED, "on purpose");
    expect_failure(w, "cancelled", DUR_ECANCELLED, "enough");
    expect_returned(w, "returns");
    expect_returned(w, "fails");
    expect_returned(w, "cancelled");
}

static void fault_h76_an_end_by_a_client_leaves_what_no_call_reported(void **state) {
    world *w = *state;
    RUN(w, holders);
    begin_holding(w, "Holds", "return", "parked");
    begin_holding(w, "Holds", "return", "away");
    begin_holding(w, "Holds", "return", "deleted");
    begin_holding(w, "Holds", "return", "replaced");
    begin_holding(w, "Holds", "late", "late");
    OK(w, dur_client_pulse(w->client, &w->err, "late", "Go", ""));
    until_history(w, "late", "\"ExternalSubscribed\"", 2);
    OK(w, dur_client_suspend(w->client, "away", "so that nobody holds it", &w->err));
    OK(w, dur_client_delete(NULL, w->client, "deleted", true, &w->err));
    OK(w, dur_client_terminate(w->client, "parked", "enough", &w->err));
    OK(w, dur_client_terminate(w->client, "away", "enough", &w->err));
    OK(w, dur_client_terminate(w->client, "late", "enough", &w->err));
    world_stop(w);
    OK(w, dur_client_terminate(w->client, "replaced", "enough", &w->err));
    OK(w, dur_client_start(w->client, &w->err, "Nobody", "", .instance = "replaced",
                           .exists = DUR_START_REPLACE_FINISHED));
    static const unsigned left[] = { 0, 2, 3 };
    for (size_t i = 0; i < 3; i++) {
        until_dead(w, "deleted", left[i]);
        until_dead(w, "replaced", left[i]);
    }
    assert_int_equal(dead_letters(w, "deleted", 1) + dead_letters(w, "replaced", 1), 0);
    RUN(w, others);
    expect_returned(w, "parked");
    expect_returned(w, "away");
    expect_accounted(w, "late", 4);
    until_dead(w, "late", 3);
    for (unsigned i = 0; i < 3; i++)
        assert_true(reported(w, "late", i));
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

static void fault_h76_an_end_without_a_handler_leaves_what_no_call_reported(void **state) {
    world *w = *state;
    RUN(w, holders);
    begin_holding(w, "Holds", "return", "missing");
    begin_holding(w, "Holds", "return", "cancelled");
    begin_holding(w, "Changes", "return", "changes");
    begin_holding(w, "Holds", "return", "unreadable");
    world_stop(w);
    append_unreadable(w, "unreadable");
    changed_code = true;
    RUN(w, holders, .nondeterminism = DUR_NONDETERMINISM_FAIL, .max_attempts = 1);
    OK(w, dur_client_pulse(w->client, &w->err, "changes", "Go", ""));
    OK(w, dur_client_pulse(w->client, &w->err, "unreadable", "Go", ""));
    expect_failure(w, "changes", DUR_EFAILED, "nondeterministic");
    expect_failure(w, "unreadable", DUR_EFAILED, "poison");
    changed_code = false;
    world_stop(w);
    OK(w, dur_client_cancel(w->client, "cancelled", "enough", &w->err));
    OK(w, dur_client_pulse(w->client, &w->err, "missing", "Go", "")); /* a reason to fetch it */
    RUN(w, others, .unregistered_backoff_ms = 20, .unregistered_attempts_max = 2);
    expect_failure(w, "missing", DUR_EFAILED, "not registered");
    expect_failure(w, "cancelled", DUR_ECANCELLED, "enough");
    expect_returned(w, "missing");
    expect_returned(w, "cancelled");
    expect_returned(w, "changes");
    expect_returned(w, "unreadable");
}

/* They are the next execution's: one that runs, and one that nobody has begun. */
static void fault_h76_what_was_carried_over_is_left_as_well(void **state) {
    world *w = *state;
    RUN(w, holders, .unregistered_backoff_ms = DUR_SECONDS(3600), .unregistered_backoff_max_ms = DUR_SECONDS(3600));
    begin_holding(w, "Holds", "continue", "next");
    begin_holding(w, "Holds", "nobody", "unbegun");
    begin_holding(w, "Holds", "nobody", "unbegun too");
    OK(w, dur_client_pulse(w->client, &w->err, "next", "Go", ""));
    OK(w, dur_client_pulse(w->client, &w->err, "unbegun", "Go", ""));
    OK(w, dur_client_pulse(w->client, &w->err, "unbegun too", "Go", ""));
    until_history(w, "next", "\"execution_id\":2", 2);
    until_history(w, "unbegun", "\"OrchestrationContinuedAsNew\"", 1);
    until_history(w, "unbegun too", "\"OrchestrationContinuedAsNew\"", 1);
    OK(w, dur_client_terminate(w->client, "unbegun", "enough", &w->err));
    OK(w, dur_client_pulse(w->client, &w->err, "next", "Stop", "stopped"));
    expect(w, "next", "stopped");
    expect_returned(w, "next");
    expect_returned(w, "unbegun");
    world_stop(w);
    RUN(w, others, .unregistered_backoff_ms = 20, .unregistered_attempts_max = 2);
    expect_failure(w, "unbegun too", DUR_EFAILED, "not registered");
    expect_returned(w, "unbegun too");
}

/* A dequeue that is nobody's any more reports to nobody. */
static void fault_h76_a_detached_dequeue_keeps_nothing(void **state) {
    world *w = *state;
    RUN(w, holders);
    static const char *const ids[] = { "returns", "terminated" };
    for (size_t i = 0; i < 2; i++) {
        start(w, "Swallows", "wait", ids[i]);
        until_history(w, ids[i], "\"ExternalSubscribed\"", 1);
        assert_true(send(w, ids[i], 0));
        until_history(w, ids[i], "\"ExternalEventPersistent\"", 1);
    }
    OK(w, dur_client_terminate(w->client, "terminated", "enough", &w->err));
    OK(w, dur_client_pulse(w->client, &w->err, "returns", "Go", "done"));
    expect(w, "returns", "done");
    until_dead(w, "returns", 0);
    until_dead(w, "terminated", 0);
}

/* ---- any handler, any end ---- */

static unsigned draw(uint64_t *random, unsigned below) {
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*random >> 33) % below;
}

/* Opens, drops, looks at and waits for dequeues as its input says, over some executions, and says what it got. */
static dur_outcome juggles(dur_ctx *ctx, const char *input) {
    uint64_t random = strtoull(input, NULL, 10);
    dur_future *open[4] = { NULL };
    for (int step = 0; step < 12; step++) {
        dur_future **at = &open[draw(&random, 4)];
        const char *letter = NULL;
        unsigned what = draw(&random, 5);
        if (*at == NULL) {
            if (what < 4) *at = dur_message(ctx, "letters");
        } else if (what == 0) {
            dur_drop(*at);
            *at = NULL;
        } else if (what == 1 || (what == 2 && dur_is_settled(*at))) {
            if (dur_try_for(*at, 2, &letter) == DUR_OK) take(ctx, letter);
            *at = NULL;
        } else if (dur_try(dur_timer(ctx, draw(&random, 3)), NULL) != DUR_OK) {
            return dur_complete(ctx, "cancelled");
        }
    }
    switch (draw(&random, 8)) {
    case 0:
        return dur_complete(ctx, "");
    case 1:
        return dur_fail(ctx, "on purpose");
    case 2:
        (void)dur_try(dur_pulse(ctx, "Never"), NULL);
        return dur_complete(ctx, "");
    default:
        return dur_continue_as_new(ctx, dur_format(ctx, "%llu", (unsigned long long)random));
    }
}

static const dur_handler jugglers[] = { DUR_ORCHESTRATION("Juggles", "1.0.0", juggles), DUR_HANDLERS_END };

static void juggler_id(char out[32], size_t number) {
    snprintf(out, 32, "juggler-%zu", number);
}

static void fault_h76_every_letter_is_reported_or_dead(void **state) {
    world *w = *state;
    enum { MOST = 24 };
    unsigned sent[MOST] = { 0 };
    size_t count = scaled(MOST, 6);
    char id[32], input[32];
    const char *given = getenv("DURITE_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : now_ms(), random = seed;
    print_message("DURITE_TEST_SEED=%llu\n", (unsigned long long)seed);
    RUN(w, jugglers, .evict_every_turn = draw(&random, 2) == 0);
    for (size_t i = 0; i < count; i++) {
        juggler_id(id, i);
        snprintf(input, sizeof(input), "%u", draw(&random, 1u << 30));
        start(w, "Juggles", input, id);
    }
    for (size_t step = 0; step < count * 12; step++) {
        size_t number = draw(&random, (unsigned)count);
        juggler_id(id, number);
        sent[number] += send(w, id, sent[number]);
        if (draw(&random, 40) == 0) OK(w, dur_client_cancel(w->client, id, "enough", &w->err));
        if (draw(&random, 40) == 0) OK(w, dur_client_terminate(w->client, id, "enough", &w->err));
        if (draw(&random, 80) != 0) continue;
        world_stop(w);
        RUN(w, jugglers, .evict_every_turn = draw(&random, 2) == 0);
    }
    for (size_t i = 0; i < count; i++) {
        juggler_id(id, i);
        OK(w, dur_client_terminate(w->client, id, "the end", &w->err));
        expect_accounted(w, id, sent[i]);
    }
}

/* ---- H82: ids of messages ---- */

static dur_outcome takes_of_two(dur_ctx *ctx, const char *input) {
    const char *more = "none";
    (void)input;
    const char *first = dur_await(dur_message(ctx, "first")), *second = dur_await(dur_message(ctx, "second"));
    dur_await(dur_pulse(ctx, "Go"));
    (void)dur_try_message(ctx, "first", &more);
    return dur_completef(ctx, "%s %s %s", first, second, more);
}

static const dur_handler two_queues[] = { DUR_ORCHESTRATION("TakesOfTwo", "1.0.0", takes_of_two), DUR_HANDLERS_END };

static void fault_h82_an_id_belongs_to_a_queue(void **state) {
    world *w = *state;
    start(w, "TakesOfTwo", "", "two");
    OK(w, dur_client_send(w->client, &w->err, "two", "first", "a", .message_id = "once"));
    OK(w, dur_client_send(w->client, &w->err, "two", "first", "again", .message_id = "once"));
    OK(w, dur_client_send(w->client, &w->err, "two", "second", "b", .message_id = "once"));
    OK(w, dur_client_pulse(w->client, &w->err, "two", "Early", "", .message_id = "once"));
    RUN(w, two_queues);
    until_history(w, "two", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "two", "Go", "", .message_id = "go"));
    expect(w, "two", "a b none");
}

static const hostile_role roles[] = { { "none", NULL } };

/* ---- H117: ids of dead letters are no order of appearance -------------------------------------------------------- */

enum { DELETERS = 3 };

typedef struct deleter {
    const world *w;
    pthread_t thread;
    unsigned number;
    int code;
} deleter;

static void *delete_each(void *data) {
    deleter *self = data;
    dur_provider *store = NULL;
    dur_client *client = NULL;
    self->code = dur_open(&store, self->w->url, NULL);
    if (self->code == DUR_OK) self->code = dur_client_new(&client, store, NULL);
    for (size_t i = 0; i < scaled(20, 5) && self->code == DUR_OK; i++) {
        char id[32];
        snprintf(id, sizeof(id), "i-%u-%zu", self->number, i);
        self->code = dur_client_start(client, NULL, "NobodyHasThis", "", .instance = id);
        if (self->code == DUR_OK) self->code = dur_client_send(client, NULL, id, "letters", id);
        if (self->code == DUR_OK) self->code = dur_client_delete(NULL, client, id, true, NULL);
    }
    dur_client_free(client);
    dur_provider_close(store);
    return NULL;
}

/* Whoever deletes what is handled and begins each listing at 0 misses none, however many make them at once. */
static void fault_h117_who_lists_from_the_beginning_misses_none(void **state) {
    world *w = *state;
    deleter deleters[DELETERS] = { { .w = w } };
    size_t expected = DELETERS * scaled(20, 5), handled = 0;
    for (unsigned i = 0; i < DELETERS; i++) {
        deleters[i] = (deleter){ .w = w, .number = i };
        assert_int_equal(pthread_create(&deleters[i].thread, NULL, delete_each, &deleters[i]), 0);
    }
    for (uint64_t until = now_ms() + patience_ms(); handled < expected;) {
        dur_dead_letter_list *letters = NULL;
        OK(w, dur_client_dead_letters(&letters, w->client, 0, 7, &w->err));
        for (size_t i = 0; i < letters->count; i++, handled++)
            OK(w, dur_client_dead_letters_delete(w->client, &letters->items[i]->id, 1, &w->err));
        if (letters->count == 0) pause_ms(1);
        dur_dead_letter_list_free(letters);
        if (now_ms() > until) fail_msg("%zu of %zu dead letters", handled, expected);
    }
    for (unsigned i = 0; i < DELETERS; i++) {
        pthread_join(deleters[i].thread, NULL);
        assert_int_equal(deleters[i].code, DUR_OK);
    }
    assert_int_equal(handled, expected);
}

static const struct CMUnitTest tests[] = {
    TEST(fault_h76_an_end_by_the_handler_leaves_what_no_call_reported),
    TEST(fault_h76_an_end_by_a_client_leaves_what_no_call_reported),
    TEST(fault_h76_an_end_without_a_handler_leaves_what_no_call_reported),
    TEST(fault_h76_what_was_carried_over_is_left_as_well),
    TEST(fault_h76_a_detached_dequeue_keeps_nothing),
    TEST(fault_h76_every_letter_is_reported_or_dead),
    TEST(fault_h82_an_id_belongs_to_a_queue),
    TEST(fault_h117_who_lists_from_the_beginning_misses_none),
};

HOSTILE_MAIN(roles, tests)
