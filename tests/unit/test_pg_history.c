/*
 * test_pg_history.c: the events of a turn are one row; readers, the view, appends and deletes see events.
 */
#include "pg_rig.h"

#include <inttypes.h>

enum { EVENTS_MAX = 40 };

/* As the codec writes it, with this behind the version. */
static dur_event_row event_saying(bench *b, const char *instance, uint64_t id, uint64_t source, const char *rest) {
    dur_event_row event = event_of(id);
    char *from = source == 0 ? "" : dur_arena_format(b->arena, ",\"source_event_id\":%" PRIu64, source);
    char *text = dur_arena_format(b->arena,
                                  "{\"event_id\":%" PRIu64 "%s,\"instance_id\":\"%s\",\"execution_id\":1,"
                                  "\"timestamp_ms\":%" PRIu64 ",\"duroxide_version\":\"0.1.0\",\"type\":%s}",
                                  id, from, instance, UINT64_C(1700000000000) + id * id, rest);
    event.json = (dur_text){ text, strlen(text) };
    return event;
}

/* size: at least so many bytes. */
static dur_event_row event_with(bench *b, uint64_t id, int size) {
    return event_saying(b, "x", id, id % 2, dur_arena_format(b->arena, "\"K\",\"x\":\"%*s\"", size, ""));
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
        char *head = dur_arena_format(b->arena, "{\"event_id\":%zu,", i + 1);
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
    assert_int_equal(count(&r, "history", "first_id = 2 AND count = 3"), 1);
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
    assert_true(count(&r, "history", "count > 3") > 5);
    assert_int_equal(count(&r, "history", "octet_length(block) > 1900"), 0);
    expect_history(&r, &item, 1 + EVENTS_MAX);
    add(&r, &item, 1 + EVENTS_MAX, 2, 5000);
    assert_int_equal(count(&r, "history", "octet_length(block) > 5000 AND count = 1"), 2);
    expect_history(&r, &item, 3 + EVENTS_MAX);
    rig_close(&r);
}

/* Blanks in a text, holes between ids, and an order that is not that of the ids. */
static void what_cannot_be_put_together(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x");
    dur_event_row events[] = { event_with(b, 2, 1), event_with(b, 3, 1), event_with(b, 4, 1), event_with(b, 9, 1),
                               event_with(b, 7, 1) };
    events[1].json = (dur_text){ "{\"id\":3,\n\"x\":1}", 14 };
    dur_turn_commit turn = turn_of(&item, events, 1);
    turn.event_count = 5;
    (void)run(&r, &turn, 1, NULL);
    assert_int_equal(count(&r, "history", "count = 1"), 6);
    dur_event_row *got;
    size_t got_count;
    static const uint64_t ids[] = { 1, 2, 3, 4, 7, 9 };
    ASSERT_OK(b, dur_store_read(b->store, b->arena, "x", 1, &got, &got_count, &b->err));
    assert_int_equal(got_count, 6);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(got[i].event_id, ids[i]);
    assert_int_equal(got[2].json.size, 14);
    rig_close(&r);
}

static void same_texts(const dur_event_row *got, const dur_event_row *expected, size_t count_of) {
    for (size_t i = 0; i < count_of; i++) {
        assert_int_equal(got[i].event_id, expected[i].event_id);
        if (got[i].json.size != expected[i].json.size ||
            memcmp(got[i].json.data, expected[i].json.data, got[i].json.size) != 0)
            fail_msg("\n%s\ncame back as\n%.*s", expected[i].json.data, (int)got[i].json.size, got[i].json.data);
    }
}

/* What people read is what the store gives back. */
static void view_equals_read(const rig *r, const char *instance, const dur_event_row *events, size_t count_of) {
    char *id = PQescapeLiteral(r->p->db, instance, strlen(instance));
    PGresult *rows = PQexec(r->p->db, dur_arena_format(r->p->b.arena,
                                                       "SELECT json, event_id FROM %s.dur_events WHERE instance_id ="
                                                       " %s AND execution_id = 1 ORDER BY event_id",
                                                       r->p->schema, id));
    PQfreemem(id);
    if (PQresultStatus(rows) != PGRES_TUPLES_OK) fail_msg("%s", PQresultErrorMessage(rows));
    assert_int_equal(PQntuples(rows), count_of);
    for (size_t i = 0; i < count_of; i++) {
        dur_event_row shown = { .event_id = strtoull(PQgetvalue(rows, (int)i, 1), NULL, 10),
                                .json = { PQgetvalue(rows, (int)i, 0), (size_t)PQgetlength(rows, (int)i, 0) } };
        same_texts(&shown, &events[i], 1);
    }
    PQclear(rows);
}

/* By a turn and by an append, for the store, its lane and people. */
static void texts_of_all_kinds_come_back(void **state) {
    static const char *const ids[] = { "a",           "with \"quotes\"", "\xc3\xa9\xf0\x9f\x98\x80",
                                       "back\\slash", "12:34",           "'; SELECT $1 @history #now" };
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        dur_orchestration_item item = begun(&r, ids[i]), held;
        dur_event_row all[] = {
            event_of(1), /* of the helpers */
            event_saying(b, ids[i], 2, 0, "\"K\",\"n\":18446744073709551615,\"m\":-1.5e+300,\"t\":[true,{\"\":[]}]"),
            event_saying(b, ids[i], 3, 2, "\"K\",\"text\":\"\\/\\u00e9\\ud83d\\ude00\\n\xc3\xa9\x7f\""),
            event_saying(b, ids[i], 4, 0, "\"K\", \"pretty\": [1, 2]"),
            event_saying(b, ids[i], 5, 0, "\"K\",\n\"line\":1"),
            event_saying(b, "somebody else", 6, 0, "\"K\",\"a\":1"),
            { .event_id = 7, .json = text_of("{\"type\":\"K\",\"event_id\":7}") },
            { .event_id = 8, .json = text_of("[1,\"v\",[\"K\",{}]]") },
            { .event_id = 9, .json = text_of("=") },
            { .event_id = 10, .json = text_of("no JSON") },
            { .event_id = 11, .json = text_of("") },
            event_saying(b, ids[i], 12, 0, "\"K\""),
            event_saying(b, ids[i], 13, 12, "\"K\",\"a\":{}"),
        };
        enum { ALL = sizeof(all) / sizeof(all[0]), BY_TURN = 9 };
        dur_turn_commit turn = turn_of(&item, &all[1], 1);
        turn.event_count = BY_TURN;
        (void)run(&r, &turn, 1, NULL);
        ASSERT_OK(b, dur_store_append(b->store, ids[i], 1, &all[1 + BY_TURN], ALL - 1 - BY_TURN, &b->err));
        dur_event_row *read;
        size_t read_count;
        ASSERT_OK(b, dur_store_read(b->store, b->arena, ids[i], 1, &read, &read_count, &b->err));
        assert_int_equal(read_count, ALL);
        same_texts(read, all, ALL);
        ASSERT_OK(b, dur__pg_methods.lane_history(r.lane, b->arena, ids[i], item.lock_token, 1, &held, &b->err));
        assert_int_equal(held.history_count, ALL);
        same_texts(held.history, all, ALL);
        view_equals_read(&r, ids[i], all, ALL);
    }
    rig_close(&r);
}

/* As damaged: whoever decodes the history finds it. */
static void damaged_blocks_are_read_as_damaged(void **state) {
    static const char *const damages[] = {
        "block = substr(block, 1, length(block) - 2)",
        "block = '['",
        "block = ''",
        "count = 2",
        "count = 4",
        "count = 0",
        "count = -1",
        "count = 2147483647",
        "block = '=' || block",
        "block = replace(block, '[\"K\",', '[\"K\",1,')",
    };
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x");
    add(&r, &item, 1, 3, 10);
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        dur_event_row *events;
        dur_event event;
        size_t got, readable = 0;
        pg_do(r.p->db, dur_arena_format(b->arena,
                                        "CREATE TABLE %s.kept AS SELECT * FROM %s.dur_history; UPDATE %s.dur_history"
                                        " SET %s WHERE first_id = 2",
                                        r.p->schema, r.p->schema, r.p->schema, damages[i]));
        ASSERT_OK(b, dur__pg_methods.read(b->store, b->arena, "x", 1, &events, &got, &b->err));
        for (size_t k = 1; k < got; k++)
            readable += dur_event_from_json(&event, b->arena, events[k].json, NULL) != DUR_ECORRUPT;
        if (got < 2 || readable == got - 1) fail_msg("nothing wrong where %s", damages[i]);
        pg_do(r.p->db, dur_arena_format(b->arena,
                                        "DELETE FROM %s.dur_history; INSERT INTO %s.dur_history SELECT * FROM %s.kept;"
                                        " DROP TABLE %s.kept",
                                        r.p->schema, r.p->schema, r.p->schema, r.p->schema));
    }
    expect_history(&r, &item, 4);
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
        PG_TEST(texts_of_all_kinds_come_back),
        PG_TEST(damaged_blocks_are_read_as_damaged),
        PG_TEST(taken_by_another),
        PG_TEST(duplicates),
        PG_TEST(counted_when_deleted),
    };
    PG_MAIN(tests);
}
