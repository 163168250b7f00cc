/*
 * hostile_local.c: activities that are stored nowhere, because the node that has their instance runs them itself: they
 * are found when that node dies, and run once when it does not.
 */
#include "hostile.h"
#include <durite/sys/store.h>
#include <stdatomic.h>

static atomic_size_t begun;
static atomic_bool let_go;
static const char *ledger; /* in another process: the folder in which it notes what has begun */

static dur_outcome stands(dur_act *act, const char *input) {
    atomic_fetch_add(&begun, 1);
    if (ledger != NULL) file_touch(ledger, input);
    while (!atomic_load(&let_go) && !dur_act_cancelled(act))
        pause_ms(1);
    return dur_act_complete(act, input);
}

static dur_outcome nods(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Stands", input)));
}

static dur_outcome waits_for_two(dur_ctx *ctx, const char *input) {
    dur_future *both[] = { dur_activity(ctx, "Stands", input), dur_activity(ctx, "Stands", input) };
    dur_join_n(both, 2);
    return dur_complete(ctx, input);
}

static dur_outcome waits_for_an_event(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "go")));
}

/* It ends while what it has let go still runs. */
static dur_outcome lets_go_on(dur_ctx *ctx, const char *input) {
    dur_detach(dur_activity(ctx, "Stands", input));
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Nods", input)));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Stands", stands),
    DUR_ACTIVITY("Nods", nods),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("WaitsForTwo", "1.0.0", waits_for_two),
    DUR_ORCHESTRATION("WaitsForAnEvent", "1.0.0", waits_for_an_event),
    DUR_ORCHESTRATION("LetsGoOn", "1.0.0", lets_go_on),
    DUR_HANDLERS_END,
};

static const dur_handler activities[] = { DUR_ACTIVITY("Stands", stands), DUR_ACTIVITY("Nods", nods),
                                          DUR_HANDLERS_END };

static int local_setup(void **state) {
    atomic_store(&begun, 0);
    atomic_store(&let_go, false);
    return world_setup(state);
}
#define LOCAL_TEST(name) cmocka_unit_test_setup_teardown(name, local_setup, world_teardown)

static void until_begun(size_t count) {
    for (uint64_t waited_ms = 0; atomic_load(&begun) < count; waited_ms++) {
        if (waited_ms > patience_ms()) fail_msg("%zu of %zu have begun", atomic_load(&begun), count);
        pause_ms(1);
    }
}

/* ---- another process, which is killed ---- */

static int holds(const char *url, long number) {
    char folder[128];
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    folder_of(folder, url);
    ledger = folder;
    if (dur_open(&store, url, NULL) != DUR_OK) return 1;
    dur_runtime_options options = {
        .size = sizeof(options), .handlers = handlers, .store = store, .worker_concurrency = (uint32_t)number
    };
    if (dur_runtime_start(&runtime, &options, NULL) != DUR_OK) return 2;
    for (;;)
        pause_ms(1000);
}

static pid_t held_by(world *w, long workers, const char *until) {
    pid_t node = node_spawn("holds", w->url, workers, -1);
    for (uint64_t waited_ms = 0; !file_exists(w->dir, until); waited_ms++) {
        if (waited_ms > patience_ms()) fail_msg("\"%s\" does not begin", until);
        pause_ms(1);
    }
    return node;
}

static pid_t held(world *w, const char *until) {
    return held_by(w, 0, until);
}

static void what_a_killed_node_had_alone_runs_again(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    start(w, "Waits", "one", "i");
    start(w, "WaitsForTwo", "two", "k");
    pid_t node = held(w, "one");
    until_history(w, "k", "ActivityScheduled", 2);
    node_kill(node);
    atomic_store(&let_go, true);
    RUN(w, handlers); /* nobody sends anything */
    expect(w, "i", "one");
    expect(w, "k", "two");
    assert_int_equal(atomic_load(&begun), 3);
}

/* What is to be written needs no handler. */
static void what_was_local_runs_where_nobody_has_the_orchestration(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    start(w, "Waits", "one", "i");
    node_kill(held(w, "one"));
    RUN(w, activities);
    until_begun(1);
    atomic_store(&let_go, true);
    world_stop(w);
    RUN(w, handlers);
    expect(w, "i", "one");
    assert_int_equal(atomic_load(&begun), 1);
}

/* A node gives the row that it wrote for it to a peer, and dies before it has read what the peer says. */
static void what_a_peer_ended_for_a_dead_node_counts_once(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    start(w, "WaitsForTwo", "two", "i");
    pid_t node = held_by(w, 1, "two");
    RUN(w, activities, .worker_concurrency = 1);
    until_begun(1);
    node_kill(node);
    atomic_store(&let_go, true);
    world_stop(w);
    RUN(w, handlers);
    expect(w, "i", "two");
    assert_int_equal(atomic_load(&begun), 2); /* and the one that ran in the node that died */
    assert_int_equal(history_count(w, "i", 0, "\"ActivityCompleted\""), 2);
}

/* Of all that the dead node held only those that had something open are looked at. */
static void who_waits_for_an_event_is_left_alone_after_a_death(void **state) {
    world *w = *state;
    size_t others = scaled(100, 20);
    char id[32];
    dur_metrics metrics = { .size = sizeof(metrics) };
    if (!on_provider("sqlite")) skip();
    for (size_t i = 0; i < others; i++) {
        snprintf(id, sizeof(id), "w-%zu", i);
        start(w, "WaitsForAnEvent", "", id);
    }
    start(w, "Waits", "one", "i");
    pid_t node = held(w, "one");
    for (size_t i = 0; i < others; i++) {
        snprintf(id, sizeof(id), "w-%zu", i);
        until_history(w, id, "ExternalSubscribed", 1);
    }
    node_kill(node);
    atomic_store(&let_go, true);
    RUN(w, handlers);
    expect(w, "i", "one");
    OK(w, dur_runtime_metrics(&metrics, w->runtime, &w->err));
    if (metrics.orchestration_items_fetched > 4)
        fail_msg("%llu instances were acquired", (unsigned long long)metrics.orchestration_items_fetched);
}

static void what_was_let_go_on_runs_after_a_kill(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    start(w, "LetsGoOn", "one", "i");
    pid_t node = held(w, "one");
    expect(w, "i", "one"); /* it has ended there */
    node_kill(node);
    atomic_store(&let_go, true);
    RUN(w, handlers);
    until_begun(1);
}

/* ---- a node that lives ---- */

static void evicted_instances_run_their_activities_once(void **state) {
    enum { COUNT = 4 };
    world *w = *state;
    char id[32];
    if (without_threads()) skip();
    RUN(w, handlers, .parked_max = 1, .worker_concurrency = COUNT);
    for (int i = 0; i < COUNT; i++) {
        snprintf(id, sizeof(id), "i-%d", i);
        start(w, "Waits", id, id);
    }
    until_begun(COUNT);
    atomic_store(&let_go, true);
    for (int i = 0; i < COUNT; i++) {
        snprintf(id, sizeof(id), "i-%d", i);
        expect(w, id, id);
    }
    assert_int_equal(atomic_load(&begun), COUNT);
}

static void what_waits_for_a_worker_goes_to_a_peer(void **state) {
    world *w = *state;
    dur_runtime *peer = NULL;
    if (without_threads()) skip();
    RUN(w, handlers, .worker_concurrency = 1);
    start(w, "WaitsForTwo", "two", "i");
    until_begun(1); /* the other one waits behind it */
    dur_runtime_options options = {
        .size = sizeof(options), .handlers = activities, .store = w->store, .worker_concurrency = 1
    };
    OK(w, dur_runtime_start(&peer, &options, &w->err));
    until_begun(2);
    atomic_store(&let_go, true);
    expect(w, "i", "two");
    assert_int_equal(atomic_load(&begun), 2);
    OK(w, dur_runtime_stop(peer, patience_ms(), &w->err));
}

static void stopping_gives_up_what_waits_and_lets_the_rest_end(void **state) {
    world *w = *state;
    if (without_threads()) skip();
    RUN(w, handlers, .worker_concurrency = 1);
    start(w, "WaitsForTwo", "two", "i");
    until_begun(1);
    atomic_store(&let_go, true);
    world_stop(w);
    RUN(w, handlers);
    expect(w, "i", "two");
    assert_int_equal(atomic_load(&begun), 2);
}

/* ---- a store that asks for a lease, and a client that cannot wait ---- */

static struct {
    const dur_provider_methods *inner;
    dur_provider_methods table;
    world *w;
} slow;

static uint64_t turns_answered(world *w) {
    dur_metrics metrics = { .size = sizeof(metrics) };
    OK(w, dur_runtime_metrics(&metrics, w->runtime, &w->err));
    return metrics.turns + metrics.turn_conflicts;
}

/* Behind the read the turn that was running is committed, or refused. */
static int read_slowly(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution,
                       dur_event_row **out, size_t *count, dur_error *err) {
    int code = slow.inner->read(self, arena, instance, execution, out, count, err);
    if (atomic_load(&let_go)) return code;
    uint64_t before = turns_answered(slow.w);
    atomic_store(&let_go, true);
    for (uint64_t waited_ms = 0; turns_answered(slow.w) == before; waited_ms++) {
        if (waited_ms > patience_ms()) fail_msg("the turn is not answered");
        pause_ms(1);
    }
    return code;
}

static dur_outcome stands_beside_a_message(dur_ctx *ctx, const char *input) {
    (void)dur_message(ctx, "q"); /* nobody waits for it: history has the message, and no call has reported it */
    dur_await(dur_pulse(ctx, "go"));
    atomic_fetch_add(&begun, 1);
    while (!atomic_load(&let_go))
        pause_ms(1);
    dur_await(dur_pulse(ctx, "never"));
    return dur_complete(ctx, input);
}

static const dur_handler message_handlers[] = { DUR_ORCHESTRATION("Beside", "1.0.0", stands_beside_a_message),
                                                DUR_HANDLERS_END };

static void a_forced_delete_keeps_the_messages_of_a_turn_that_runs(void **state) {
    world *w = *state;
    dur_dead_letter *letters = NULL;
    size_t count = 0;
    if (without_threads() || on_provider("postgres")) skip(); /* there a suspension ends the lease */
    start(w, "Beside", "", "i");
    RUN(w, message_handlers);
    until_history(w, "i", "ExternalSubscribed", 2);
    world_stop(w);
    OK(w, dur_client_send(w->client, &w->err, "i", "q", "accepted"));
    OK(w, dur_client_pulse(w->client, &w->err, "i", "go", ""));
    RUN(w, message_handlers);
    until_begun(1);      /* both are in the turn that runs */
    world other = { 0 }; /* a handle that the runtime does not use */
    memcpy(other.url, w->url, sizeof(other.url));
    world_open_store(&other);
    OK(&other, dur_client_new(&other.client, other.store, &other.err));
    slow.inner = other.store->methods;
    slow.w = w;
    memset(&slow.table, 0, sizeof(slow.table));
    memcpy(&slow.table, slow.inner, slow.inner->size);
    slow.table.read = read_slowly;
    other.store->methods = &slow.table;
    OK(&other, dur_client_delete(NULL, other.client, "i", true, &other.err));
    other.store->methods = slow.inner;
    dur_client_free(other.client);
    dur_provider_close(other.store);
    dur_arena *arena = dur_arena_new();
    OK(w, dur_store_list_dead_letters(w->store, arena, 0, 10, &letters, &count, &w->err));
    assert_int_equal(count, 1);
    dur_arena_free(arena);
}

/* ---- histories that nobody has written rows for ---- */

static void append(world *w, const dur_event *event) {
    dur_arena *arena = dur_arena_new();
    dur_event_row row = { .event_id = event->event_id, .kind = event->kind };
    OK(w, dur_event_to_json(&row.json, arena, event, &w->err));
    OK(w, dur_store_append(w->store, event->instance_id, event->execution_id, &row, 1, &w->err));
    dur_arena_free(arena);
}

static void an_imported_history_gets_the_rows_that_it_needs(void **state) {
    world *w = *state;
    if (on_provider("postgres")) skip();
    append(w, &(dur_event){ .kind = DUR_EVENT_ORCHESTRATION_STARTED,
                            .event_id = 1,
                            .instance_id = "i",
                            .execution_id = 1,
                            .timestamp_ms = 1,
                            .duroxide_version = "0.1.0",
                            .name = "Waits",
                            .version = "1.0.0",
                            .input = "one",
                            .trace = 1 });
    append(w, &(dur_event){ .kind = DUR_EVENT_ACTIVITY_SCHEDULED,
                            .event_id = 2,
                            .instance_id = "i",
                            .execution_id = 1,
                            .timestamp_ms = 1,
                            .duroxide_version = "0.1.0",
                            .name = "Stands",
                            .input = "one" });
    atomic_store(&let_go, true);
    RUN(w, handlers);
    OK(w, dur_client_pulse(w->client, &w->err, "i", "nobody waits for it", ""));
    expect(w, "i", "one");
}

/* Somebody writes into the history of an instance that is held: its handler is replayed, under the same lease. */
static void a_turn_that_is_refused_runs_nothing_twice(void **state) {
    world *w = *state;
    if (without_threads() || on_provider("postgres")) skip();
    RUN(w, handlers, .worker_concurrency = 2);
    start(w, "WaitsForTwo", "two", "i");
    until_begun(2);
    append(w, &(dur_event){ .kind = DUR_EVENT_EXTERNAL_EVENT,
                            .event_id = 4,
                            .instance_id = "i",
                            .execution_id = 1,
                            .timestamp_ms = 1,
                            .duroxide_version = "0.1.0",
                            .name = "nobody waits for it",
                            .data = "" });
    atomic_store(&let_go, true);
    expect(w, "i", "two");
    assert_int_equal(atomic_load(&begun), 2);
    dur_metrics metrics = { .size = sizeof(metrics) };
    OK(w, dur_runtime_metrics(&metrics, w->runtime, &w->err));
    assert_true(metrics.turn_conflicts > 0); /* it was refused */
}

/* ---- an answer that is lost, and a look for it that fails ---- */

static struct {
    const dur_provider_methods *inner;
    dur_provider_methods table;
    atomic_int lost, failed;
} lossy;

/* A lease is given up, and with it rows are written for what runs here. */
static bool writes_rows(const dur_turn_commit *turn) {
    return turn->event_count == 0 && !turn->keep_lease && turn->worker_item_count > 0;
}

static int lossy_round(dur_lane *lane, dur_arena *arena, dur_round *round, dur_error *err) {
    int code = lossy.inner->lane_round(lane, arena, round, err);
    for (size_t i = 0; code == DUR_OK && i < round->turn_count; i++) {
        dur_turn_commit *turn = &round->turns[i];
        if (!writes_rows(turn) || turn->fault != DUR_TURN_FINE || atomic_fetch_add(&lossy.lost, 1) > 0) continue;
        turn->fault = DUR_TURN_STORE;
        dur_error_set(&turn->error, DUR_EUNKNOWN, true, "test", "the answer was lost");
    }
    return code;
}

static int failing_look(dur_provider *self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                        bool *gone, dur_error *err) {
    if (extend_ms == 0 && atomic_load(&lossy.lost) > 0 && atomic_fetch_add(&lossy.failed, 1) == 0)
        return dur_error_set(err, DUR_EUNAVAILABLE, true, "test", "the connection was lost");
    return lossy.inner->check_works(self, claims, count, extend_ms, gone, err);
}

static void fault_h177_what_is_not_known_to_be_gone_runs_on(void **state) {
    world *w = *state;
    if (without_threads()) skip();
    lossy.inner = w->store->methods;
    memset(&lossy.table, 0, sizeof(lossy.table));
    memcpy(&lossy.table, lossy.inner, lossy.inner->size);
    lossy.table.lane_round = lossy_round;
    lossy.table.check_works = failing_look;
    atomic_store(&lossy.lost, 0);
    atomic_store(&lossy.failed, 0);
    w->store->methods = &lossy.table;
    RUN(w, handlers, .orchestration_concurrency = 1, .worker_concurrency = 2, .parked_max = 1);
    start(w, "Waits", "one", "i");
    start(w, "Waits", "two", "k");
    until_begun(2); /* one of them is evicted */
    for (uint64_t waited_ms = 0; atomic_load(&lossy.failed) == 0; waited_ms++) {
        if (waited_ms > patience_ms()) fail_msg("nobody has looked, %d answers were lost", atomic_load(&lossy.lost));
        pause_ms(1);
    }
    atomic_store(&let_go, true);
    expect(w, "i", "one");
    expect(w, "k", "two");
    OK(w, dur_runtime_check(w->runtime, &w->err));
    assert_int_equal(atomic_load(&begun), 2);
    world_stop(w);
}

static const hostile_role roles[] = { { "holds", holds } };

static const struct CMUnitTest tests[] = {
    LOCAL_TEST(what_a_killed_node_had_alone_runs_again),
    LOCAL_TEST(what_was_local_runs_where_nobody_has_the_orchestration),
    LOCAL_TEST(what_a_peer_ended_for_a_dead_node_counts_once),
    LOCAL_TEST(who_waits_for_an_event_is_left_alone_after_a_death),
    LOCAL_TEST(what_was_let_go_on_runs_after_a_kill),
    LOCAL_TEST(evicted_instances_run_their_activities_once),
    LOCAL_TEST(what_waits_for_a_worker_goes_to_a_peer),
    LOCAL_TEST(stopping_gives_up_what_waits_and_lets_the_rest_end),
    LOCAL_TEST(a_forced_delete_keeps_the_messages_of_a_turn_that_runs),
    LOCAL_TEST(a_turn_that_is_refused_runs_nothing_twice),
    LOCAL_TEST(an_imported_history_gets_the_rows_that_it_needs),
    LOCAL_TEST(fault_h177_what_is_not_known_to_be_gone_runs_on),
};

HOSTILE_MAIN(roles, tests)
