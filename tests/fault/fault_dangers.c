/*
 * fault_dangers.c: dangers of the protocol that one process can bring about: arrivals that cross, a crowd beside one,
 * an instance made again under its parked handler, messages between run and commit, clocks that jump.
 */
#include "e2e/harness.h"
#include "support/faulty.h"
#include <durite/sys/clock.h>
#include <durite/sys/store.h>

static atomic_int crowd_done, slow_runs, gated_runs, gate;

static dur_outcome quick(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}
static dur_outcome slow(dur_act *act, const char *input) {
    atomic_fetch_add(&slow_runs, 1);
    pause_ms(60);
    return dur_act_complete(act, input);
}
static dur_outcome gated(dur_act *act, const char *input) {
    atomic_fetch_add(&gated_runs, 1);
    while (atomic_load(&gate) == 0 && !dur_act_sleep(act, 2)) {
    }
    return dur_act_complete(act, input);
}
static dur_outcome crowded(dur_act *act, const char *input) {
    pause_ms(1);
    atomic_fetch_add(&crowd_done, 1);
    return dur_act_complete(act, input);
}

enum { RACES = 4 };
static dur_outcome races(dur_ctx *ctx, const char *input) {
    char won[RACES + 1] = "";
    for (int i = 0; i < RACES; i++) {
        dur_future *activity = dur_activity(ctx, "Quick", input);
        dur_future *event = dur_pulse(ctx, "E");
        won[i] = dur_select(activity, event) == activity ? 'a' : 'e';
    }
    return dur_complete(ctx, won);
}

/* Always a hundred on their way, each turn brings new ones: a node could run them alone for ever. */
static dur_outcome crowd(dur_ctx *ctx, const char *input) {
    enum { AT_ONCE = 100 };
    size_t count = strtoul(input, NULL, 10);
    dur_future *on_their_way[AT_ONCE] = { NULL };
    for (size_t i = 0; i < count; i++) {
        if (on_their_way[i % AT_ONCE] != NULL) dur_await(on_their_way[i % AT_ONCE]);
        on_their_way[i % AT_ONCE] = dur_activity(ctx, "Crowded", "");
    }
    dur_join_n(on_their_way, AT_ONCE);
    return dur_complete(ctx, "crowd");
}

static dur_outcome five_steps(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < 5; i++)
        dur_await(dur_activity(ctx, "Quick", input));
    return dur_complete(ctx, input);
}

static dur_outcome answers(dur_ctx *ctx, const char *input) {
    return dur_completef(ctx, "%s %s", input, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome gated_then_answers(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "Gated", input));
    return answers(ctx, input);
}

static dur_outcome take(dur_ctx *ctx, const char *input) {
    size_t count = strtoul(input, NULL, 10);
    for (size_t i = 0; i < count; i++) {
        const char *got = dur_await(dur_message(ctx, "q"));
        if (strtoul(got, NULL, 10) != i) return dur_failf(ctx, "%s, not %zu", got, i);
    }
    return dur_completef(ctx, "%zu", count);
}

static dur_outcome slow_then_event(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "Slow", input));
    dur_future *later = dur_timer(ctx, DUR_HOURS(10));
    dur_future *event = dur_pulse(ctx, "Go");
    return dur_complete(ctx, dur_select(later, event) == event ? dur_await(event) : "ten hours");
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Quick", quick),
    DUR_ACTIVITY("Slow", slow),
    DUR_ACTIVITY("Gated", gated),
    DUR_ACTIVITY("Crowded", crowded),
    DUR_ORCHESTRATION("Races", "1.0.0", races),
    DUR_ORCHESTRATION("Crowd", "1.0.0", crowd),
    DUR_ORCHESTRATION("GatedThenAnswers", "1.0.0", gated_then_answers),
    DUR_ORCHESTRATION("FiveSteps", "1.0.0", five_steps),
    DUR_ORCHESTRATION("Answers", "1.0.0", answers),
    DUR_ORCHESTRATION("Take", "1.0.0", take),
    DUR_ORCHESTRATION("SlowThenEvent", "1.0.0", slow_then_event),
    DUR_HANDLERS_END,
};

/* ---- arrivals that cross ---- */

/* Completions, events and a cancel on their way at once, the handlers kept, and thrown away at each turn. */
static void cross(world *w, bool evict, unsigned seed) {
    size_t count = scaled(100, 20), cancelled = 0;
    char id[32];
    RUN(w, handlers, .evict_every_turn = evict, .double_run = true);
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "x%zu", i);
        start(w, "Races", id, id);
        if (rand_r(&seed) % 2 == 0) pause_ms(1);
        for (int e = rand_r(&seed) % (RACES + 1); e > 0; e--)
            OK(w, dur_client_pulse(w->client, &w->err, id, "E", ""));
        if (rand_r(&seed) % 3 == 0) OK(w, dur_client_cancel(w->client, id, "enough", &w->err));
    }
    for (size_t i = 0; i < count; i++) {
        char *result = NULL;
        snprintf(id, sizeof(id), "x%zu", i);
        int code = dur_client_result(&result, w->client, id, patience_ms(), &w->err);
        if (code == DUR_OK)
            assert_int_equal(strlen(result), RACES);
        else if (code != DUR_ECANCELLED)
            fail_msg("%s: %s: %s", id, dur_code_name(code), w->err.message);
        dur_free(result);
        cancelled += code == DUR_ECANCELLED;
        size_t schedules = history_count(w, id, 0, "\"ActivityScheduled\"");
        size_t ends =
            history_count(w, id, 0, "\"ActivityCompleted\"") + history_count(w, id, 0, "\"ActivityCancelRequested\"");
        assert_int_equal(schedules, ends); /* each one is settled or dropped, once */
    }
    print_message("%zu of %zu cancelled\n", cancelled, count);
}

static void danger_an_event_and_a_completion_at_once(void **state) {
    cross(*state, false, 11);
}
static void danger_an_event_and_a_completion_at_once_evicted(void **state) {
    cross(*state, true, 12);
}

/* ---- one beside ten thousand ---- */

static void danger_a_crowd_does_not_starve_its_neighbour(void **state) {
    world *w = *state;
    char number[24];
    size_t count = scaled(10000, 4000);
    snprintf(number, sizeof(number), "%zu", count);
    atomic_store(&crowd_done, 0);
    RUN(w, handlers);
    start(w, "Crowd", number, "crowd");
    while (atomic_load(&crowd_done) < 20)
        pause_ms(1);
    start(w, "FiveSteps", "through", "one");
    expect(w, "one", "through");
    int done = atomic_load(&crowd_done);
    print_message("five steps while %d of %zu were done\n", done, count);
    assert_true((size_t)done < count / 2);
    OK(w, dur_client_cancel(w->client, "crowd", "enough", &w->err));
    expect_failure(w, "crowd", DUR_ECANCELLED, "enough");
}

/* Its history grows all the time, and a terminate wants to write behind the last event. */
static void danger_the_busiest_can_be_terminated(void **state) {
    world *w = *state;
    RUN(w, handlers);
    for (int i = 0; i < 5; i++) {
        char id[16];
        snprintf(id, sizeof(id), "busy%d", i);
        atomic_store(&crowd_done, 0);
        start(w, "Crowd", "10000", id);
        while (atomic_load(&crowd_done) < 20)
            pause_ms(1);
        OK(w, dur_client_terminate(w->client, id, "enough", &w->err));
        expect_failure(w, id, DUR_ECANCELLED, "enough");
    }
}

/* ---- made again under a parked handler ---- */

static void danger_deleted_and_made_again_under_a_parked_handler(void **state) {
    world *w = *state;
    RUN(w, handlers);
    for (int i = 0; i < 20; i++) {
        char text[24], wanted[32];
        start(w, "Answers", "old", "a");
        until_history(w, "a", "\"ExternalSubscribed\"", 1);
        OK(w, dur_client_delete(NULL, w->client, "a", true, &w->err));
        snprintf(text, sizeof(text), "new%d", i);
        snprintf(wanted, sizeof(wanted), "new%d go", i);
        start(w, "Answers", text, "a");
        until_history(w, "a", "\"ExternalSubscribed\"", 1);
        OK(w, dur_client_pulse(w->client, &w->err, "a", "Go", "go"));
        expect(w, "a", wanted);
        OK(w, dur_client_delete(NULL, w->client, "a", false, &w->err));
    }
}

/* ---- between run and commit ---- */

static void danger_messages_between_run_and_commit(void **state) {
    world *w = *state;
    dur_provider *late = NULL, *inner = NULL;
    dur_runtime *runtime = NULL;
    OK(w, dur_open(&inner, w->url, &w->err));
    OK(w, dur__faulty_wrap(&late, inner, 3, &w->err));
    /* Each round takes its time, and meanwhile more messages come than it knows of. */
    dur__faulty_add(
        late, &(dur__fault_plan){ .method = "lane_round", .count = UINT64_MAX, .delay_us = 3000, .only_delay = true });
    OK(w, dur_runtime_start(&runtime, DUR_RUNTIME(.store = late, .handlers = handlers), &w->err));
    size_t count = scaled(300, 50);
    char number[24];
    snprintf(number, sizeof(number), "%zu", count);
    start(w, "Take", number, "t");
    for (size_t i = 0; i < count; i++) {
        char text[24];
        snprintf(text, sizeof(text), "%zu", i);
        OK(w, dur_client_send(w->client, &w->err, "t", "q", text));
    }
    expect(w, "t", number);
    OK(w, dur_runtime_stop(runtime, patience_ms(), &w->err));
    dur_provider_close(late);
}

/* ---- clocks ---- */

static void danger_the_clock_jumps_an_hour_either_way(void **state) {
    world *w = *state;
    if (on_provider("postgres")) skip(); /* it has its own clock */
    char url[1100];
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_runtime *runtime = NULL;
    dur_fake_world *fake = dur_fake_world_new(1700000000000, 5);
    const int64_t hour = (int64_t)DUR_HOURS(1), jumps[] = { hour, -2 * hour, 3 * hour, -hour };
    if (on_provider("sqlite:"))
        snprintf(url, sizeof(url), "sqlite:%s/clock.db", w->dir);
    else
        snprintf(url, sizeof(url), "memory:clock-%d", (int)getpid());
    OK(w, dur_open_ex(&store, url, DUR_OPEN_OPTIONS(.world = dur_fake_world_get(fake)), &w->err));
    OK(w, dur_client_new(&client, store, &w->err));
    OK(w, dur_runtime_start(
              &runtime, DUR_RUNTIME(.store = store, .handlers = handlers, .world = dur_fake_world_get(fake)), &w->err));
    for (int i = 0; i < 4; i++) {
        char id[16], *result = NULL;
        atomic_store(&slow_runs, 0);
        snprintf(id, sizeof(id), "c%d", i);
        OK(w, dur_client_start(client, &w->err, "SlowThenEvent", "", .instance = id));
        while (atomic_load(&slow_runs) == 0)
            pause_ms(1);
        dur_fake_world_jump(fake, jumps[i]); /* while its activity runs */
        for (bool waits = false; !waits;) {
            char *history = NULL;
            OK(w, dur_client_history(&history, client, id, 0, &w->err));
            waits = strstr(history, "\"ExternalSubscribed\"") != NULL;
            dur_free(history);
            pause_ms(1);
        }
        OK(w, dur_client_pulse(client, &w->err, id, "Go", "came"));
        OK(w, dur_client_result(&result, client, id, patience_ms(), &w->err));
        assert_string_equal(result, "came");
        assert_int_equal(atomic_load(&slow_runs), 1);
        dur_free(result);
    }
    dur_metrics metrics = { .size = sizeof(metrics) };
    OK(w, dur_runtime_metrics(&metrics, runtime, &w->err));
    assert_int_equal(metrics.take_overs + metrics.fenced + metrics.turn_conflicts, 0);
    OK(w, dur_runtime_stop(runtime, patience_ms(), &w->err));
    dur_client_free(client);
    dur_provider_close(store);
    dur_fake_world_free(fake);
}

/* ---- a history that moved on by itself ---- */

/* Somebody writes an event that nobody waits for, as a standby that became the primary could have it. */
static void write_behind_the_handler(world *w, const char *instance) {
    dur_arena *arena = dur_arena_new();
    dur_event *events = NULL;
    size_t count = 0;
    dur_event_row row;
    OK(w, dur_store_read_events(w->store, arena, instance, 0, &events, &count, &w->err));
    dur_event odd = { .kind = DUR_EVENT_EXTERNAL_EVENT,
                      .event_id = events[count - 1].event_id + 1,
                      .instance_id = instance,
                      .execution_id = 1,
                      .timestamp_ms = events[count - 1].timestamp_ms,
                      .duroxide_version = events[0].duroxide_version,
                      .name = "Nobody",
                      .data = "" };
    OK(w, dur_event_row_from(&row, arena, &odd, &w->err));
    OK(w, dur_store_append(w->store, instance, 1, &row, 1, &w->err));
    dur_arena_free(arena);
}

/* The position is wrong and the token is right: the lease is kept, the history replayed, nothing comes twice. */
static void danger_a_history_that_moved_on_under_a_lease(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "GatedThenAnswers", "moved", "m");
    while (atomic_load(&gated_runs) == 0)
        pause_ms(1);
    until_history(w, "m", "\"ActivityScheduled\"", 1);
    write_behind_the_handler(w, "m"); /* the turn with the activity's end fails */
    atomic_store(&gate, 1);
    until_history(w, "m", "\"ExternalSubscribed\"", 1);
    write_behind_the_handler(w, "m"); /* and the one with the message */
    OK(w, dur_client_pulse(w->client, &w->err, "m", "Go", "on"));
    expect(w, "m", "moved on");
    assert_int_equal(history_count(w, "m", 0, "\"Nobody\""), 2);
    assert_int_equal(history_count(w, "m", 0, "\"ActivityCompleted\""), 1);
    assert_int_equal(history_count(w, "m", 0, "\"ExternalEvent\""), 3);
    assert_int_equal(atomic_load(&gated_runs), 1);
    dur_metrics metrics = { .size = sizeof(metrics) };
    OK(w, dur_runtime_metrics(&metrics, w->runtime, &w->err));
    assert_int_equal(metrics.turn_conflicts, 2);
    assert_int_equal(metrics.replays, 2);
    assert_int_equal(metrics.orchestration_items_fetched, 1); /* never given up */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(danger_an_event_and_a_completion_at_once),
        TEST(danger_an_event_and_a_completion_at_once_evicted),
        TEST(danger_a_crowd_does_not_starve_its_neighbour),
        TEST(danger_the_busiest_can_be_terminated),
        TEST(danger_deleted_and_made_again_under_a_parked_handler),
        TEST(danger_messages_between_run_and_commit),
        TEST(danger_the_clock_jumps_an_hour_either_way),
        TEST(danger_a_history_that_moved_on_under_a_lease),
    };
    return cmocka_run_group_tests_name("fault_dangers", tests, NULL, NULL);
}
