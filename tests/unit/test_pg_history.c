/*
 * test_pg_history.c: several events in a row of history: what is put together, and that nobody sees it.
 */
#include "pg_rig.h"

enum { EVENTS_MAX = 40 };

/* An event whose text tells its id; size: at least so many bytes. */
static dur_event_row event_with(bench *b, uint64_t id, int size) {
    dur_event_row event = event_of(id);
    char *text = dur_arena_format(b->arena, "{\"id\":%llu,\"x\":\"%*s\"}", (unsigned long long)id, size, "");
    event.json = (dur_text){ text, strlen(text) };
    return event;
}

/* A usual turn behind event `last` with so many events. */
static void add(rig *r, const dur_orchestration_item *item, uint64_t last, size_t count_of, int size) {
    dur_event_row events[EVENTS_MAX];
    for (size_t i = 0; i < count_of; i++)
        events[i] = event_with(&r->p->b, last + 1 + i, size);
    dur_turn_commit turn = turn_of(item, events, last);
    turn.event_count = count_of;
    (void)run(r, &turn, 1, NULL);
}

static void expect_events(bench *b, const dur_event_row *events, size_t got, size_t expected) {
    assert_int_equal(got, expected);
    for (size_t i = 0; i < got; i++) {
        assert_int_equal(events[i].event_id, i + 1);
        if (i == 0) continue; /* that of the helpers */
        char *head = dur_arena_format(b->arena, "{\"id\":%zu,", i + 1);
        assert_true(events[i].json.size > strlen(head));
        assert_memory_equal(events[i].json.data, head, strlen(head));
        assert_int_equal(events[i].json.data[events[i].json.size - 1], '}');
    }
}

/* The same history, whoever asks. */
static void expect_history(rig *r, const dur_orchestration_item *item, size_t expected) {
    bench *b = &r->p->b;
    dur_event_row *events;
    dur_orchestration_item held;
    dur_execution_row *executions;
    dur_instance_stats stats;
    size_t got, executions_count, bytes = 0;
    bool found;
    ASSERT_OK(b, dur_store_read(b->store, b->arena, item->instance, 1, &events, &got, &b->err));
    expect_events(b, events, got, expected);
    for (size_t i = 0; i < got; i++)
        bytes += events[i].json.size;
    ASSERT_OK(b, dur_store_lane_history(r->lane, b->arena, item->instance, item->lock_token, 1, &held, &b->err));
    expect_events(b, held.history, held.history_count, expected);
    assert_int_equal(held.last_event_id, expected);
    ASSERT_OK(b,
              dur_store_list_executions(b->store, b->arena, item->instance, &executions, &executions_count, &b->err));
    assert_int_equal(executions_count, 1);
    assert_int_equal(executions[0].event_count, expected);
    ASSERT_OK(b, dur_store_get_instance_stats(b->store, b->arena, item->instance, &found, &stats, &b->err));
    assert_int_equal(stats.history_event_count, expected);
    assert_int_equal(stats.history_size_bytes, bytes);
    ASSERT_OK(b, dur_store_check(b->store, &b->err));
}

static void a_turn_is_a_row(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x");
    add(&r, &item, 1, 3, 10);
    assert_int_equal(count(&r, "history", "event_id = 2 AND events = 3"), 1);
    assert_int_equal(count(&r, "history", "true"), 2);
    expect_history(&r, &item, 4);
    add(&r, &item, 4, 1, 10);
    expect_history(&r, &item, 5);
    rig_close(&r);
}

/* A row stays small. */
static void many_are_several_rows(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x");
    add(&r, &item, 1, EVENTS_MAX, 300);
    assert_true(count(&r, "history", "events > 3") > 5);
    assert_int_equal(count(&r, "history", "octet_length(json) > 1900"), 0);
    expect_history(&r, &item, 1 + EVENTS_MAX);
    add(&r, &item, 1 + EVENTS_MAX, 2, 5000);
    assert_int_equal(count(&r, "history", "octet_length(json) > 5000 AND events = 1"), 2);
    expect_history(&r, &item, 3 + EVENTS_MAX);
    rig_close(&r);
}

/* Line breaks inside a text, holes between ids, and an order that is not that of the ids. */
static void what_cannot_be_put_together(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x");
    dur_event_row events[] = { event_with(b, 2, 1), event_with(b, 3, 1), event_with(b, 4, 1), event_with(b, 9, 1),
                               event_with(b, 7, 1) };
    events[1].json = (dur_text){ "{\"id\":3,\n\"x\":1}", 15 };
    dur_turn_commit turn = turn_of(&item, events, 1);
    turn.event_count = 5;
    (void)run(&r, &turn, 1, NULL);
    assert_int_equal(count(&r, "history", "events = 1"), 6);
    dur_event_row *got;
    size_t got_count;
    static const uint64_t ids[] = { 1, 2, 3, 4, 7, 9 };
    ASSERT_OK(b, dur_store_read(b->store, b->arena, "x", 1, &got, &got_count, &b->err));
    assert_int_equal(got_count, 6);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(got[i].event_id, ids[i]);
    assert_int_equal(got[2].json.size, 15);
    rig_close(&r);
}

/* Whoever takes the instance after this lane gets all of it, and one that has nothing but a lock token goes on. */
static void taken_by_another(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x"), next;
    add(&r, &item, 1, 4, 10);
    dur_store_lane_close(r.lane);
    r.lane = NULL;
    ASSERT_OK(b, dur_store_owner_release(b->store, "o", &b->err));
    dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, "x");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &event, 0, &b->err));
    /* the method itself: these texts are no events */
    ASSERT_OK(b, dur__pg_methods.fetch_orchestration_item(b->store, b->arena, &(dur_fetch){ .lock_ms = 60000 }, &next,
                                                          &b->err));
    assert_string_equal(next.instance, "x");
    expect_events(b, next.history, next.history_count, 5);
    assert_int_equal(next.last_event_id, 5);
    dur_event_row more = event_with(b, 6, 1);
    dur_turn_commit turn = { .lock_token = next.lock_token,
                             .instance = "x",
                             .execution_id = 1,
                             .events = &more,
                             .event_count = 1,
                             .expected_last = 4 };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    assert_int_equal(turn.fault, DUR_TURN_POSITION);
    turn.expected_last = 5;
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    dur_waker_free(r.waker);
}

/* An event that a row has inside is a duplicate, too. */
static void duplicates(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x");
    add(&r, &item, 1, 3, 10);
    for (uint64_t id = 1; id <= 5; id++) {
        dur_event_row event = event_with(b, id, 1);
        assert_int_equal(dur_store_append(b->store, "x", 1, &event, 1, &b->err), id <= 4 ? DUR_ECONFLICT : DUR_OK);
        dur_turn_commit turn = turn_of(&item, &event, DUR_NOT_COMPARED);
        dur_round round = { .turns = &turn, .turn_count = 1 };
        ASSERT_OK(b, dur_store_lane_round(r.lane, b->arena, &round, &b->err));
        assert_int_equal(turn.fault, DUR_TURN_POSITION);
        turn = turn_of(&item, &event, id <= 4 ? 4 : 5); /* where it says where it stands, and that is not there */
        ASSERT_OK(b, dur_store_lane_round(r.lane, b->arena, &round, &b->err));
        assert_int_equal(turn.fault, DUR_TURN_POSITION);
    }
    dur_event_row twice[] = { event_with(b, 6, 1), event_with(b, 7, 1), event_with(b, 7, 1) };
    dur_turn_commit turn = turn_of(&item, twice, 5);
    turn.event_count = 3;
    dur_round round = { .turns = &turn, .turn_count = 1 };
    ASSERT_OK(b, dur_store_lane_round(r.lane, b->arena, &round, &b->err));
    assert_int_equal(turn.fault, DUR_TURN_POSITION);
    assert_int_equal(count(&r, "history", "true"), 3);
    rig_close(&r);
}

static void counted_when_deleted(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    const char *id = "x";
    dur_delete_result gone;
    dur_system_metrics metrics;
    dur_orchestration_item item = begun(&r, id);
    add(&r, &item, 1, 5, 10);
    ASSERT_OK(b, dur_store_get_system_metrics(b->store, &metrics, &b->err));
    assert_int_equal(metrics.total_events, 6);
    ASSERT_OK(b, dur_store_delete_instances(b->store, &id, 1, true, &gone, &b->err));
    assert_int_equal(gone.events, 6);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(a_turn_is_a_row),
        PG_TEST(many_are_several_rows),
        PG_TEST(what_cannot_be_put_together),
        PG_TEST(taken_by_another),
        PG_TEST(duplicates),
        PG_TEST(counted_when_deleted),
    };
    PG_MAIN(tests);
}
