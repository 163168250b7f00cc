/*
 * hostile_runtime.c: handlers that do not return, histories and messages that cannot be read, locks that are short.
 */
#include "hostile.h"

#include <dirent.h>
#include <durite/sys/arena.h>
#include <durite/sys/event.h>
#include <durite/sys/store.h>
#include <durite/sys/work.h>

/* ---- H17: a handler that loops or blocks ---- */

static atomic_bool block, go_on, warned, inside, gave_up;
static char warned_of[64];

static void wait_for(atomic_bool *what) {
    for (uint64_t waited = 0; !atomic_load(what) && waited < patience_ms(); waited++)
        pause_ms(1);
}

/* Only the first time: whoever takes the instance over is let through. */
static void block_once(void) {
    if (!atomic_exchange(&block, false)) return;
    atomic_store(&inside, true);
    wait_for(&go_on);
    if (!atomic_load(&go_on)) atomic_store(&gave_up, true);
}

static dur_outcome blocks(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *got = dur_await(dur_activity(ctx, "Echo", "a"));
    block_once();
    return dur_completef(ctx, "%s done", got);
}

static dur_outcome blocks_first(dur_ctx *ctx, const char *input) {
    block_once();
    return dur_complete(ctx, input);
}

static void drop_blocks(void *unused) {
    (void)unused;
    block_once();
}

static dur_outcome blocks_dropped(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_on_drop(ctx, drop_blocks, NULL);
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome plain(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static const dur_handler stuck_handlers[] = { DUR_ORCHESTRATION("Blocks", NULL, blocks),
                                              DUR_ORCHESTRATION("BlocksFirst", NULL, blocks_first),
                                              DUR_ORCHESTRATION("BlocksDropped", NULL, blocks_dropped),
                                              DUR_ORCHESTRATION("Plain", NULL, plain),
                                              DUR_ACTIVITY("Echo", echo),
                                              DUR_HANDLERS_END };

static size_t threads(void) {
    size_t count = 0;
    DIR *dir = opendir("/proc/self/task");
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

/* After a runtime was there: a sanitizer has a thread of its own from the first one on. */
static size_t threads_at_rest(world *w) {
    RUN(w, stuck_handlers);
    world_stop(w);
    return threads();
}

static void until_threads(size_t count) {
    for (uint64_t waited = 0; threads() > count; waited++) {
        if (waited > patience_ms()) fail_msg("%zu threads, there were %zu", threads(), count);
        pause_ms(1);
    }
}

static void stuck_begin(void) {
    atomic_store(&go_on, false);
    atomic_store(&warned, false);
    atomic_store(&gave_up, false);
    atomic_store(&inside, false);
    atomic_store(&block, true);
}

/* The stop names the handler, its instance and its last line; the store and everything else go on. */
static void stop_is_busy(world *w, const char *name, const char *instance) {
    assert_int_equal(dur_runtime_stop(w->runtime, 50, &w->err), DUR_EBUSY);
    w->runtime = NULL;
    const char *named[] = { name, instance, "hostile_runtime.c:" };
    for (size_t i = 0; i < sizeof(named) / sizeof(named[0]); i++)
        if (strstr(w->err.message, named[i]) == NULL) fail_msg("no \"%s\" in: %s", named[i], w->err.message);
    start(w, "Plain", "still here", "after");
    RUN(w, stuck_handlers);
    expect(w, "after", "still here");
}

static void fault_h17_a_stop_returns_while_a_handler_blocks(void **state) {
    world *w = *state;
    size_t before = threads_at_rest(w);
    stuck_begin();
    RUN(w, stuck_handlers);
    start(w, "Blocks", "", "stuck");
    wait_for(&inside);
    stop_is_busy(w, "Blocks", "stuck");
    expect(w, "stuck", "a done"); /* by the second runtime, while the first handler still blocks */
    world_stop(w);
    atomic_store(&go_on, true);
    until_threads(before);
    expect(w, "stuck", "a done");
}

static void fault_h17_a_stop_returns_while_a_drop_blocks(void **state) {
    world *w = *state;
    size_t before = threads_at_rest(w);
    stuck_begin();
    RUN(w, stuck_handlers);
    start(w, "BlocksDropped", "", "dropped");
    until_history(w, "dropped", "\"ExternalSubscribed\"", 1);
    stop_is_busy(w, "BlocksDropped", "dropped");
    OK(w, dur_client_pulse(w->client, &w->err, "dropped", "Go", "now"));
    expect(w, "dropped", "now");
    world_stop(w);
    atomic_store(&go_on, true);
    until_threads(before);
}

/* Whoever starts it need not wait for its first turn for ever. */
static void fault_h17_a_start_is_answered_while_its_first_turn_blocks(void **state) {
    world *w = *state;
    RUN(w, stuck_handlers);
    start(w, "Plain", "1", "before"); /* from now on the loop is there to take starts */
    expect(w, "before", "1");
    stuck_begin();
    start(w, "BlocksFirst", "x", "first");
    atomic_store(&go_on, true);
    expect(w, "first", "x");
    assert_false(atomic_load(&gave_up));
}

static void hear(void *unused, const dur_log_record *record) {
    (void)unused;
    if (record->level > DUR_LOG_WARN || strstr(record->message, "\"Blocks\"") == NULL) return;
    if (atomic_exchange(&warned, true)) return;
    snprintf(warned_of, sizeof(warned_of), "%s",
             strstr(record->message, "hostile_runtime.c:") != NULL ? "with its line" : record->message);
    atomic_store(&go_on, true);
}

static void fault_h17_a_slow_turn_is_said_while_it_lasts(void **state) {
    world *w = *state;
    stuck_begin();
    assert_int_equal(dur_log_set_sink(hear, NULL, DUR_LOG_WARN), DUR_OK);
    RUN(w, stuck_handlers);
    start(w, "Blocks", "", "slow");
    wait_for(&inside);
    wait_for(&go_on); /* the warning lets the handler go */
    expect(w, "slow", "a done");
    dur_log_set_sink(NULL, NULL, DUR_LOG_WARN);
    assert_true(atomic_load(&warned) && !atomic_load(&gave_up));
    assert_string_equal(warned_of, "with its line");
}

/* ---- H14: an event that cannot be read, wherever it stands ---- */

enum { STEPS_EVENTS_MAX = 32 };

static dur_outcome steps(dur_ctx *ctx, const char *input) {
    (void)input;
    (void)dur_await(dur_activity(ctx, "Echo", "one"));
    dur_status_set(ctx, "half way");
    (void)dur_await(dur_activity(ctx, "Echo", "two"));
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome asks(dur_ctx *ctx, const char *kid) {
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Steps", "", .instance = kid)));
}

static const dur_handler callers[] = { DUR_ORCHESTRATION("Asks", NULL, asks), DUR_HANDLERS_END };
static const dur_handler family[] = { DUR_ORCHESTRATION("Asks", NULL, asks), DUR_ORCHESTRATION("Steps", NULL, steps),
                                      DUR_ACTIVITY("Echo", echo), DUR_HANDLERS_END };

/* A kid whose start waits: commit in its name the history of the template, with one event that nobody can read. */
static void commit_unreadable(world *w, dur_arena *arena, const dur_orchestration_item *item,
                              const dur_event_row *template, size_t count, size_t bad) {
    static const char alien[] = "{\"event_id\":1,\"type\":\"FromTheFuture\"}", broken[] = "{\"event_id\":";
    dur_event_row *rows = dur_arena_zalloc(arena, count * sizeof(*rows));
    dur_work_item begin;
    OK(w, dur_work_from_json(&begin, arena, item->messages[0].json, &w->err));
    for (size_t i = 0; i < count; i++) {
        dur_event event;
        OK(w, dur_event_from_json(&event, arena, template[i].json, &w->err));
        event.instance_id = item->instance;
        if (i == 0) {
            event.parent_instance = begin.parent_instance;
            event.parent_id = begin.parent_id;
            event.has_parent_id = begin.has_parent_id;
            event.parent_execution_id = begin.parent_execution_id;
            event.has_parent_execution_id = begin.has_parent_execution_id;
        }
        OK(w, dur_event_row_from(&rows[i], arena, &event, &w->err));
    }
    rows[bad].json = bad % 2 == 0 ? (dur_text){ alien, sizeof(alien) - 1 } : (dur_text){ broken, sizeof(broken) - 1 };
    dur_turn_commit turn = { .lock_token = item->lock_token,
                             .instance = item->instance,
                             .store_key = item->store_key,
                             .execution_id = 1,
                             .events = rows,
                             .event_count = count,
                             .expected_last = DUR_NOT_COMPARED,
                             .metadata = { .orchestration_name = "Steps",
                                           .orchestration_version = "1.0.0",
                                           .parent_instance_id = begin.parent_instance } };
    OK(w, dur_store_ack_orchestration_item(w->store, &turn, &w->err));
}

static atomic_size_t errors_of_kids;

static void count_errors(void *unused, const dur_log_record *record) {
    (void)unused;
    if (record->level == DUR_LOG_ERROR && strstr(record->message, "kid-") != NULL) atomic_fetch_add(&errors_of_kids, 1);
}

static size_t template_history(world *w, dur_arena *arena, dur_event_row **rows) {
    size_t count = 0;
    RUN(w, family);
    start(w, "Steps", "", "template");
    until_history(w, "template", "\"ExternalSubscribed\"", 1);
    world_stop(w);
    OK(w, dur_store_read(w->store, arena, "template", 1, rows, &count, &w->err));
    assert_in_range(count, 5, STEPS_EVENTS_MAX);
    return count;
}

static void fault_h14_an_unreadable_event_ends_its_instance_wherever_it_stands(void **state) {
    world *w = *state;
    dur_arena *arena = dur_arena_new();
    dur_event_row *rows = NULL;
    size_t count = template_history(w, arena, &rows), done = 0;
    char parent[32], kid[32];
    RUN(w, callers);
    for (size_t i = 0; i < count; i++) {
        snprintf(parent, sizeof(parent), "p-%zu", i);
        snprintf(kid, sizeof(kid), "kid-%zu", i);
        start(w, "Asks", kid, parent);
        until_history(w, parent, "\"SubOrchestrationScheduled\"", 1);
    }
    world_stop(w);
    for (uint64_t waited = 0; done < count; waited++) {
        dur_orchestration_item item = { .instance = NULL };
        if (waited > patience_ms()) fail_msg("%zu of %zu kids", done, count);
        OK(w, dur_store_fetch_orchestration_item(w->store, arena, &(dur_fetch){ .lock_ms = 60000 }, &item, &w->err));
        if (item.instance == NULL) {
            pause_ms(1); /* the runtime had put it off: nobody has it */
        } else {
            commit_unreadable(w, arena, &item, rows, count, (size_t)strtoul(item.instance + 4, NULL, 10));
            done++;
        }
    }
    for (size_t i = 0; i < count; i++) {
        snprintf(kid, sizeof(kid), "kid-%zu", i);
        OK(w, dur_client_pulse(w->client, &w->err, kid, "Go", ""));
    }
    atomic_store(&errors_of_kids, 0);
    dur_log_set_sink(count_errors, NULL, DUR_LOG_ERROR);
    RUN(w, family, .max_attempts = 1);
    for (size_t i = 0; i < count; i++) {
        snprintf(parent, sizeof(parent), "p-%zu", i);
        snprintf(kid, sizeof(kid), "kid-%zu", i);
        expect_failure(w, parent, DUR_EFAILED, "kid-");
        expect_failure(w, kid, DUR_EFAILED, "");
    }
    world_stop(w);
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
    assert_in_range(atomic_load(&errors_of_kids), count, SIZE_MAX);
    dur_arena_free(arena);
}

/* ---- H130: a history in which an event is missing ---- */

static dur_outcome pair(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *one = dur_activity(ctx, "Echo", "one"), *two = dur_activity(ctx, "Echo", "two");
    dur_join(one, two);
    return dur_complete(ctx, "both");
}

static const dur_handler pairs[] = { DUR_ORCHESTRATION("Pair", NULL, pair), DUR_ACTIVITY("Echo", echo),
                                     DUR_HANDLERS_END };

/* Commit what is left of the template's history in the name of an instance that was fetched. */
static int commit_item(world *w, const dur_orchestration_item *item, dur_event_row *rows, size_t count) {
    dur_turn_commit turn = { .lock_token = item->lock_token,
                             .instance = item->instance,
                             .store_key = item->store_key,
                             .execution_id = 1,
                             .events = rows,
                             .event_count = count,
                             .expected_last = DUR_NOT_COMPARED,
                             .metadata = { .orchestration_name = "Pair", .orchestration_version = "1.0.0" } };
    return dur_store_ack_orchestration_item(w->store, &turn, &w->err);
}

/* The events of a pair that has ended, its end apart, for an instance that is started here. */
static void pair_history(world *w, dur_arena *arena, const char *instance, dur_event events[5]) {
    dur_event_row *rows = NULL;
    size_t count = 0;
    RUN(w, pairs);
    start(w, "Pair", "", "template");
    expect(w, "template", "both");
    world_stop(w);
    OK(w, dur_store_read(w->store, arena, "template", 1, &rows, &count, &w->err));
    assert_int_equal(count, 6);
    for (size_t i = 0; i < 5; i++) {
        OK(w, dur_event_from_json(&events[i], arena, rows[i].json, &w->err));
        events[i].instance_id = instance;
    }
    start(w, "Pair", "", instance);
}

/* The first answer, which nothing follows from, is gone: all that is left fits the handler. */
static void fault_h130_a_history_with_a_hole_is_none(void **state) {
    world *w = *state;
    dur_arena *arena = dur_arena_new();
    dur_event_row left[4];
    dur_event events[5];
    dur_text history;
    pair_history(w, arena, "hole", events);
    events[3] = events[4];
    for (size_t i = 0; i < 4; i++)
        OK(w, dur_event_row_from(&left[i], arena, &events[i], &w->err));
    OK(w, dur_history_to_json(&history, arena, events, 4, &w->err));
    assert_int_equal(dur_replay_history(NULL, pairs, history.data, &w->err), DUR_ECORRUPT);
    dur_orchestration_item item = { .instance = NULL };
    OK(w, dur_store_fetch_orchestration_item(w->store, arena, &(dur_fetch){ .lock_ms = 60000 }, &item, &w->err));
    OK(w, commit_item(w, &item, left, 4));
    OK(w, dur_client_pulse(w->client, &w->err, "hole", "Look", ""));
    RUN(w, pairs, .max_attempts = 1);
    expect_failure(w, "hole", DUR_EFAILED, "");
    OK(w, dur_client_delete(NULL, w->client, "hole", true, &w->err)); /* or the check at the end of a test finds it */
    dur_arena_free(arena);
}

/* ---- H132: an event behind which there is no room ---- */

static void fault_h132_an_event_behind_which_no_other_fits_is_refused(void **state) {
    world *w = *state;
    dur_arena *arena = dur_arena_new();
    dur_event_row rows[5];
    dur_event events[5];
    pair_history(w, arena, "full", events);
    for (size_t i = 0; i < 5; i++)
        OK(w, dur_event_row_from(&rows[i], arena, &events[i], &w->err));
    dur_orchestration_item item = { .instance = NULL };
    OK(w, dur_store_fetch_orchestration_item(w->store, arena, &(dur_fetch){ .lock_ms = 60000 }, &item, &w->err));
    static const uint64_t ids[] = { 0, INT64_MAX, UINT64_MAX, 5 };
    for (size_t i = 0; i < 4; i++) {
        rows[4].event_id = ids[i];
        int code = commit_item(w, &item, rows, 5), expected = ids[i] == 5 ? DUR_OK : DUR_EINVAL;
        if (code != expected) fail_msg("%llu: %s", (unsigned long long)ids[i], dur_code_name(code));
        code = ids[i] == 5 ? DUR_EINVAL : dur_store_append(w->store, "full", 1, &rows[4], 1, &w->err);
        assert_int_equal(code, DUR_EINVAL);
    }
    OK(w, dur_client_delete(NULL, w->client, "full", true, &w->err)); /* nobody goes on with a half of the template */
    dur_arena_free(arena);
}

/* ---- H131: a marker that the code no longer asks for, as the last that was recorded ---- */

static dur_outcome marked(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *go = dur_pulse(ctx, "Go");
    if (!dur_patched(ctx, "way")) return dur_fail(ctx, "the old way");
    return dur_complete(ctx, dur_await(go));
}

static dur_outcome unmarked(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *go = dur_pulse(ctx, "Go");
    return dur_complete(ctx, dur_await(go));
}

static const dur_handler with_marker[] = { DUR_ORCHESTRATION("Patched", NULL, marked), DUR_HANDLERS_END };
static const dur_handler without_marker[] = { DUR_ORCHESTRATION("Patched", NULL, unmarked), DUR_HANDLERS_END };

static void fault_h131_a_marker_that_is_taken_away_leaves_the_instance_going(void **state) {
    world *w = *state;
    RUN(w, with_marker);
    start(w, "Patched", "", "p");
    until_history(w, "p", "patched", 1);
    world_stop(w);
    RUN(w, without_marker);
    OK(w, dur_client_pulse(w->client, &w->err, "p", "Go", "gone"));
    expect(w, "p", "gone");
}

/* ---- H15: stores with the required methods only ---- */

int minimal_register(dur_error *err); /* examples/providers/minimal.c */

static const dur_provider_methods *minimal_methods;
static atomic_size_t fetches, work_renewals, turn_renewals, session_renewals;

/* In a row: a lock that was lost in between does not count. */
static int count_renewal(atomic_size_t *count, bool renewed, int code) {
    if (renewed)
        atomic_fetch_add(count, 1);
    else
        atomic_store(count, 0);
    return code;
}

static int counted_renew_work(dur_provider *self, const char *token, uint64_t extend_ms, dur_error *err) {
    int code = minimal_methods->renew_work_item_lock(self, token, extend_ms, err);
    return count_renewal(&work_renewals, code == DUR_OK, code);
}

static int counted_renew_turn(dur_provider *self, const char *token, uint64_t extend_ms, dur_error *err) {
    int code = minimal_methods->renew_orchestration_item_lock(self, token, extend_ms, err);
    return count_renewal(&turn_renewals, code == DUR_OK, code);
}

static int counted_renew_session(dur_provider *self, const char *const *owners, size_t owner_count, uint64_t extend_ms,
                                 uint64_t idle_ms, uint64_t *renewed, dur_error *err) {
    int code = minimal_methods->renew_session_lock(self, owners, owner_count, extend_ms, idle_ms, renewed, err);
    return count_renewal(&session_renewals, code == DUR_OK && *renewed > 0, code);
}

static int counted_fetch(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                         dur_error *err) {
    atomic_fetch_add(&fetches, 1);
    return minimal_methods->fetch_orchestration_item(self, arena, how, out, err);
}

/* The world's store becomes one that has nothing optional and counts how often it is asked for instances. */
static void use_minimal(world *w) {
    static dur_provider_methods counted;
    static bool registered;
    if (!registered) OK(w, minimal_register(&w->err));
    registered = true;
    dur_client_free(w->client);
    dur_provider_close(w->store);
    OK(w, dur_open(&w->store, "minimal:", &w->err));
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    if (minimal_methods == NULL) {
        minimal_methods = w->store->methods;
        size_t size = minimal_methods->size < sizeof(counted) ? minimal_methods->size : sizeof(counted);
        memcpy(&counted, minimal_methods, size);
        counted.fetch_orchestration_item = counted_fetch;
        counted.renew_work_item_lock = counted_renew_work;
        counted.renew_orchestration_item_lock = counted_renew_turn;
        counted.renew_session_lock = counted_renew_session;
    }
    w->store->methods = &counted;
}

static void put_text(world *w, const char *instance, dur_work_kind kind, const char *queue, const char *json) {
    dur_message_row message = { .kind = kind, .instance = instance, .queue = queue, .json = { json, strlen(json) } };
    OK(w, dur_store_enqueue_for_orchestrator(w->store, &message, 0, &w->err));
}

static dur_outcome sleeps(dur_ctx *ctx, const char *input) {
    (void)dur_await(dur_timer(ctx, 1000));
    return dur_complete(ctx, input);
}

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static const dur_handler waiters[] = { DUR_ORCHESTRATION("Sleeps", NULL, sleeps),
                                       DUR_ORCHESTRATION("Waits", NULL, waits), DUR_ORCHESTRATION("Plain", NULL, plain),
                                       DUR_ACTIVITY("Echo", echo), DUR_HANDLERS_END };

static atomic_size_t warnings;

static void count_warnings(void *unused, const dur_log_record *record) {
    (void)unused;
    (void)record;
    atomic_fetch_add(&warnings, 1);
}

/* How often the store is asked while somebody sleeps for a second. */
static size_t fetches_meanwhile(world *w, const char *id) {
    size_t before = atomic_load(&fetches);
    start(w, "Sleeps", "slept", id);
    expect(w, id, "slept");
    return atomic_load(&fetches) - before;
}

static void expect_calm(world *w, const char *id) {
    size_t asked = fetches_meanwhile(w, id), said = atomic_load(&warnings);
    if (asked > 5000 || said > 50) fail_msg("%s: %zu fetches, %zu warnings in a second", id, asked, said);
}

/* True: some message of the instance is in the queue. */
static bool queue_has(world *w, const char *instance, uint64_t for_ms) {
    dur_arena *arena = dur_arena_new();
    bool found = false;
    for (uint64_t waited = 0; !found && waited <= for_ms; waited += 10) {
        dur_orchestration_item item = { .instance = NULL };
        OK(w, dur_store_fetch_orchestration_item(w->store, arena, &(dur_fetch){ .lock_ms = 60000 }, &item, &w->err));
        found = item.instance != NULL && strcmp(item.instance, instance) == 0;
        if (!found) pause_ms(10);
    }
    dur_arena_free(arena);
    return found;
}

static void h15_begin(world *w) {
    if (!on_provider("memory:")) skip();
    use_minimal(w);
    atomic_store(&warnings, 0);
    dur_log_set_sink(count_warnings, NULL, DUR_LOG_WARN);
    RUN(w, waiters);
}

static void h15_end(world *w) {
    world_stop(w);
    dur_log_set_sink(NULL, NULL, DUR_LOG_WARN);
}

static void fault_h15_an_unreadable_message_is_consumed(void **state) {
    world *w = *state;
    h15_begin(w);
    start(w, "Waits", "", "live");
    until_history(w, "live", "\"ExternalSubscribed\"", 1);
    put_text(w, "live", DUR_WORK_EXTERNAL_RAISED, NULL, "{\"ExternalRaised\":");
    expect_calm(w, "meanwhile");
    OK(w, dur_client_pulse(w->client, &w->err, "live", "Go", "on"));
    expect(w, "live", "on");
    put_text(w, "live", DUR_WORK_EXTERNAL_RAISED, NULL, "{\"ExternalRaised\":"); /* now it has ended */
    expect_calm(w, "afterwards");
    h15_end(w);
    assert_false(queue_has(w, "live", 0));
}

static void fault_h15_a_message_of_an_unknown_kind_is_put_off(void **state) {
    world *w = *state;
    h15_begin(w);
    start(w, "Waits", "", "live");
    until_history(w, "live", "\"ExternalSubscribed\"", 1);
    put_text(w, "live", DUR_WORK_EXTERNAL_RAISED, NULL, "{\"FromTheFuture\":{\"instance\":\"live\"}}");
    expect_calm(w, "meanwhile");
    OK(w, dur_client_pulse(w->client, &w->err, "live", "Go", "on"));
    expect(w, "live", "on");
    expect_calm(w, "afterwards");
    h15_end(w);
    assert_true(queue_has(w, "live", patience_ms())); /* a newer node may know it */
}

static void fault_h15_a_queue_message_for_an_ended_instance_is_consumed(void **state) {
    world *w = *state;
    h15_begin(w);
    start(w, "Plain", "x", "ended");
    expect(w, "ended", "x");
    dur_work_item item = { .kind = DUR_WORK_QUEUE_MESSAGE, .instance = "ended", .name = "q", .data = "late" };
    dur_arena *arena = dur_arena_new();
    dur_message_row message;
    OK(w, dur_message_row_from_work(&message, arena, &item, &w->err));
    OK(w, dur_store_enqueue_for_orchestrator(w->store, &message, 0, &w->err));
    dur_arena_free(arena);
    expect_calm(w, "meanwhile");
    h15_end(w);
    assert_false(queue_has(w, "ended", 0));
}

static void fault_h15_an_early_event_waits_calmly_for_its_start(void **state) {
    world *w = *state;
    h15_begin(w);
    OK(w, dur_client_start(w->client, &w->err, "Waits", "", .instance = "later", .delay_ms = 2500));
    OK(w, dur_client_pulse(w->client, &w->err, "later", "Other", "early"));
    expect_calm(w, "meanwhile");
    until_history(w, "later", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "later", "Go", "on"));
    expect(w, "later", "on");
    h15_end(w);
}

/* ---- H16: short locks ---- */

/* It has to keep its lock for many times the lock's time: five renewals without a loss. */
static bool five(atomic_size_t *renewals) {
    for (uint64_t waited = 0; atomic_load(renewals) < 5 && waited < patience_ms(); waited++)
        pause_ms(1);
    return atomic_load(renewals) >= 5;
}

static dur_outcome holds_work(dur_act *act, const char *input) {
    return five(&work_renewals) ? dur_act_complete(act, input) : dur_act_fail(act, "never renewed");
}

static dur_outcome holds_session(dur_act *act, const char *input) {
    return five(&session_renewals) ? dur_act_complete(act, input) : dur_act_fail(act, "never renewed");
}

static dur_outcome holds_turn(dur_ctx *ctx, const char *input) {
    return five(&turn_renewals) ? dur_complete(ctx, input) : dur_fail(ctx, "never renewed");
}

static dur_outcome holds(dur_ctx *ctx, const char *input) {
    const char *one = dur_await(dur_activity(ctx, "HoldsWork", input));
    return dur_complete(ctx, dur_await(dur_activity(ctx, "HoldsSession", one, .session = "s")));
}

static const dur_handler holders[] = { DUR_ORCHESTRATION("Holds", NULL, holds),
                                       DUR_ORCHESTRATION("HoldsTurn", NULL, holds_turn),
                                       DUR_ACTIVITY("HoldsWork", holds_work),
                                       DUR_ACTIVITY("HoldsSession", holds_session), DUR_HANDLERS_END };

static void fault_h16_short_locks_are_renewed_in_time(void **state) {
    world *w = *state;
    if (!on_provider("memory:")) skip();
    use_minimal(w);
    atomic_store(&work_renewals, 0);
    atomic_store(&session_renewals, 0);
    atomic_store(&turn_renewals, 0);
    RUN(w, holders, .worker_lock_timeout_ms = 600, .orchestrator_lock_timeout_ms = 600, .session_lock_timeout_ms = 600);
    start(w, "Holds", "held", "work");
    expect(w, "work", "held");
    start(w, "HoldsTurn", "held", "turn");
    expect(w, "turn", "held");
}

static void fault_h16_locks_that_cannot_be_kept_are_refused(void **state) {
    world *w = *state;
    dur_runtime_options each[] = { { .worker_lock_timeout_ms = 99 },
                                   { .orchestrator_lock_timeout_ms = 99 },
                                   { .session_lock_timeout_ms = 99 } };
    for (size_t i = 0; i < sizeof(each) / sizeof(each[0]); i++) {
        each[i].size = sizeof(each[i]);
        each[i].store = w->store;
        each[i].handlers = holders;
        assert_int_equal(dur_runtime_start(&w->runtime, &each[i], &w->err), DUR_EINVAL);
        assert_non_null(strstr(w->err.message, "lock_timeout_ms"));
    }
}

/* ---- H56: what a handler says after it was cancelled ---- */

static dur_outcome cleans_up(dur_ctx *ctx, const char *input) {
    const char *got;
    if (dur_try(dur_pulse(ctx, "Never"), &got) == DUR_OK) return dur_complete(ctx, got);
    if (strcmp(input, "silent") == 0) return dur_complete(ctx, "");
    (void)dur_await(dur_activity(ctx, "Echo", "refund"));
    if (strcmp(input, "fails") == 0) return dur_fail(ctx, "cleaned up: 1 of 2");
    return dur_complete(ctx, "cleaned up: 2 of 2");
}

static dur_outcome fails_fast(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Never")));
}

static dur_outcome hears(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *got = NULL;
    dur_future *kid = dur_orchestration(ctx, "CleansUp", "", .instance = "heard");
    return dur_try(kid, &got) == DUR_OK ? dur_complete(ctx, got) : dur_completef(ctx, "kid: %s", dur_reason(kid));
}

static const dur_handler cleaners[] = { DUR_ORCHESTRATION("CleansUp", NULL, cleans_up),
                                        DUR_ORCHESTRATION("FailsFast", NULL, fails_fast),
                                        DUR_ORCHESTRATION("Hears", NULL, hears), DUR_ACTIVITY("Echo", echo),
                                        DUR_HANDLERS_END };

static void expect_said(world *w, const char *instance, const char *error, const char *said) {
    dur_instance_info *info = NULL;
    until_history(w, instance, "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_cancel(w->client, instance, "bored", &w->err));
    expect_failure(w, instance, DUR_ECANCELLED, "");
    assert_string_equal(w->err.message, error);
    OK(w, dur_client_info(&info, w->client, instance, &w->err));
    assert_true(info->cancelled);
    if (said == NULL)
        assert_null(info->said);
    else
        assert_string_equal(info->said, said);
    dur_instance_info_free(info);
}

static void fault_h56_what_a_cancelled_handler_says_is_kept(void **state) {
    world *w = *state;
    RUN(w, cleaners, .double_run = true);
    start(w, "CleansUp", "", "completes");
    start(w, "CleansUp", "fails", "fails");
    start(w, "CleansUp", "silent", "silent");
    start(w, "FailsFast", "", "fast");
    start(w, "Hears", "", "parent");
    expect_said(w, "completes", "cancelled: bored; cleaned up: 2 of 2", "cleaned up: 2 of 2");
    expect_said(w, "fails", "cancelled: bored; cleaned up: 1 of 2", "cleaned up: 1 of 2");
    expect_said(w, "silent", "cancelled: bored", NULL);
    expect_said(w, "fast", "cancelled: bored", NULL);
    expect_said(w, "heard", "cancelled: bored; cleaned up: 2 of 2", "cleaned up: 2 of 2");
    expect(w, "parent", "kid: cancelled: bored; cleaned up: 2 of 2");
}

static const hostile_role roles[] = { { "none", NULL } };

static const struct CMUnitTest tests[] = {
    TEST(fault_h17_a_stop_returns_while_a_handler_blocks),
    TEST(fault_h17_a_stop_returns_while_a_drop_blocks),
    TEST(fault_h17_a_start_is_answered_while_its_first_turn_blocks),
    TEST(fault_h17_a_slow_turn_is_said_while_it_lasts),
    TEST(fault_h14_an_unreadable_event_ends_its_instance_wherever_it_stands),
    TEST(fault_h130_a_history_with_a_hole_is_none),
    TEST(fault_h132_an_event_behind_which_no_other_fits_is_refused),
    TEST(fault_h131_a_marker_that_is_taken_away_leaves_the_instance_going),
    TEST(fault_h15_an_unreadable_message_is_consumed),
    TEST(fault_h15_a_message_of_an_unknown_kind_is_put_off),
    TEST(fault_h15_a_queue_message_for_an_ended_instance_is_consumed),
    TEST(fault_h15_an_early_event_waits_calmly_for_its_start),
    TEST(fault_h16_short_locks_are_renewed_in_time),
    TEST(fault_h16_locks_that_cannot_be_kept_are_refused),
    TEST(fault_h56_what_a_cancelled_handler_says_is_kept),
};

HOSTILE_MAIN(roles, tests)
