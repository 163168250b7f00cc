/*
 * test_sqlite_history.c: the events of a turn are one row; readers, views, appends, checks and deletes see events.
 */
#include "sqlite_test.h"

static uint64_t number_of(fixture *f, const char *sql) {
    sqlite3 *db = NULL;
    uint64_t number = 0;
    assert_int_equal(sqlite3_open_v2(f->path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    int code = dur__sq_pragma_u64(db, sql, &number, &f->err);
    if (code != DUR_OK) fail_msg("%s: %s", sql, f->err.message);
    sqlite3_close(db);
    return number;
}

static void exec(fixture *f, const char *sql) {
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open_v2(f->path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_close(db);
}

/* What the readable view shows of an instance is what the store gives back. */
static void views_equal_reads(fixture *f, const char *instance) {
    dur_event_row *rows = NULL;
    size_t count = 0, at = 0;
    sqlite3 *db = NULL;
    sqlite3_stmt *view = NULL;
    OK(f, dur_store_read(f->store, f->arena, instance, 1, &rows, &count, &f->err));
    assert_int_equal(sqlite3_open_v2(f->path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT event_id, event_data, event_type FROM durite_history WHERE "
                                        "instance_id=?1 ORDER BY event_id",
                                        -1, &view, NULL),
                     SQLITE_OK);
    sqlite3_bind_text(view, 1, instance, -1, SQLITE_STATIC);
    for (; sqlite3_step(view) == SQLITE_ROW; at++) {
        assert_true(at < count);
        assert_int_equal(sqlite3_column_int64(view, 0), rows[at].event_id);
        assert_int_equal(sqlite3_column_bytes(view, 1), rows[at].json.size);
        assert_memory_equal(sqlite3_column_text(view, 1), rows[at].json.data, rows[at].json.size);
    }
    assert_int_equal(at, count);
    sqlite3_finalize(view);
    sqlite3_close(db);
}

static void expect_read(fixture *f, const char *instance, const dur_event_row *events, size_t count) {
    dur_event_row *rows = NULL;
    size_t read = 0;
    OK(f, dur_store_read(f->store, f->arena, instance, 1, &rows, &read, &f->err));
    assert_int_equal(read, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(rows[i].event_id, events[i].event_id);
        assert_int_equal(rows[i].json.size, events[i].json.size);
        assert_memory_equal(rows[i].json.data, events[i].json.data, events[i].json.size);
    }
    views_equal_reads(f, instance);
}

/* ---- rows, reads, views ---- */

static void a_turn_is_one_row(void **state) {
    fixture *f = *state;
    const char *scheduled = "\"ActivityScheduled\",\"name\":\"A\",\"input\":\"\\\"\\u00e9\\\\ }],[{\"";
    dur_event_row events[] = {
        event_of(f, "a", 1, 0, "\"OrchestrationStarted\",\"name\":\"Test\",\"version\":\"1.0.0\",\"input\":\"\""),
        event_of(f, "a", 2, 0, scheduled),
        event_of(f, "a", 3, 2, "\"ActivityCompleted\",\"result\":\"1\""),
        event_of(f, "a", 4, 0, "\"KeyValuesCleared\""),
    };
    OK(f, dur_store_append(f->store, "a", 1, events, 4, &f->err));
    assert_int_equal(number_of(f, "SELECT count(*) FROM dur_history"), 1);
    assert_int_equal(number_of(f, "SELECT count FROM dur_history"), 4);
    expect_read(f, "a", events, 4);
    assert_int_equal(number_of(f, "SELECT count(*) FROM durite_history WHERE event_type='ActivityCompleted'"), 1);
    OK(f, dur_provider_check(f->store, &f->err));
}

static void texts_of_all_kinds_come_back_from_the_file(void **state) {
    fixture *f = *state;
    static const char *const ids[] = { "a", "with \"quotes\"", "\xc3\xa9\xf0\x9f\x98\x80", "back\\slash" };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        dur_event_row events[] = {
            event_of(f, ids[i], 1, 0, "\"K\",\"n\":18446744073709551615,\"m\":-1.5e+300,\"t\":[true,null,{\"\":[]}]"),
            event_of(f, ids[i], 2, 1, "\"K\",\"text\":\"\\/\\u00e9\\n\xc3\xa9\x7f\""),
            event_of(f, ids[i], 3, 0, "\"K\", \"pretty\": [1, 2]"),
            event_of(f, ids[i], 4, 0, "\"K\",\n\"line\":1"),
            event_of(f, "somebody else", 5, 0, "\"K\",\"a\":1"),
            { .event_id = 6, .json = text_of("{\"type\":\"K\",\"event_id\":6}") },
            { .event_id = 7, .json = text_of("[1,\"v\",[\"K\",{}]]") },
            { .event_id = 8, .json = text_of("=") },
            { .event_id = 9, .json = text_of("no JSON \xff") },
            { .event_id = 10, .json = text_of("") },
            event_of(f, ids[i], 11, 0, "\"K\",\"a\":{}"),
        };
        OK(f, dur_store_append(f->store, ids[i], 1, events, sizeof events / sizeof events[0], &f->err));
        expect_read(f, ids[i], events, sizeof events / sizeof events[0]);
    }
}

static void a_turn_of_thousands_of_events_is_a_few_rows(void **state) {
    fixture *f = *state;
    enum { MANY = 5000 };
    dur_event_row *events = dur_arena_alloc(f->arena, MANY * sizeof(*events));
    for (uint64_t i = 0; i < MANY; i++)
        events[i] = event_of(f, "a", i + 1, 0, "\"ActivityScheduled\",\"name\":\"A\",\"input\":\"x\"");
    OK(f, dur_store_append(f->store, "a", 1, events, MANY, &f->err));
    assert_true(number_of(f, "SELECT count(*) FROM dur_history") < 10);
    expect_read(f, "a", events, MANY);
    dur_instance_stats stats;
    bool found = false;
    OK(f, dur_store_get_instance_stats(f->store, f->arena, "a", &found, &stats, &f->err));
    size_t bytes = 0;
    for (size_t i = 0; i < MANY; i++)
        bytes += events[i].json.size;
    assert_int_equal(stats.history_event_count, MANY);
    assert_int_equal(stats.history_size_bytes, bytes);
}

/* ---- who may add to it ---- */

static void an_event_that_a_block_holds_exists(void **state) {
    fixture *f = *state;
    dur_event_row events[] = { event_of(f, "a", 5, 0, "\"K\""), event_of(f, "a", 6, 0, "\"K\""),
                               event_of(f, "a", 7, 0, "\"K\"") };
    OK(f, dur_store_append(f->store, "a", 1, events, 3, &f->err));
    assert_int_equal(number_of(f, "SELECT count(*) FROM dur_history"), 1);
    for (uint64_t id = 5; id <= 7; id++) {
        dur_event_row again = event_of(f, "a", id, 0, "\"Again\"");
        assert_int_equal(dur_store_append(f->store, "a", 1, &again, 1, &f->err), DUR_ECONFLICT);
        char what[60];
        snprintf(what, sizeof what, "event %" PRIu64 " exists already", id);
        assert_non_null(strstr(f->err.message, what));
    }
    dur_event_row over[] = { event_of(f, "a", 3, 0, "\"Over\""), event_of(f, "a", 4, 0, "\"Over\""),
                             event_of(f, "a", 5, 0, "\"Over\"") };
    assert_int_equal(dur_store_append(f->store, "a", 1, over, 3, &f->err), DUR_ECONFLICT);
    assert_non_null(strstr(f->err.message, "event 5 exists already"));
    dur_event_row twice[] = { event_of(f, "a", 9, 0, "\"K\""), event_of(f, "a", 9, 0, "\"K\"") };
    assert_int_equal(dur_store_append(f->store, "a", 1, twice, 2, &f->err), DUR_ECONFLICT);
    expect_read(f, "a", events, 3);
    /* before, behind, and with gaps it goes as before */
    OK(f, dur_store_append(f->store, "a", 1, over, 2, &f->err));
    dur_event_row behind = event_of(f, "a", 900, 0, "\"K\"");
    OK(f, dur_store_append(f->store, "a", 1, &behind, 1, &f->err));
    OK(f, dur_store_append(f->store, "a", 2, &events[1], 1, &f->err)); /* of another execution */
}

/* Somebody appends behind a lane's back, in the middle of what its turns wrote and behind it. */
static void a_turn_and_an_append_never_write_the_same_event(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    parked p = park(f, lane, "o1", "a");
    dur_event_row step[] = { event_of(f, "a", 3, 0, "\"K\""), event_of(f, "a", 4, 0, "\"K\"") };
    dur_turn_commit turn = turn_of("a", &p, step, 2);
    dur_round round = { .turns = &turn, .turn_count = 1 };
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_int_equal(number_of(f, "SELECT count FROM dur_history WHERE first_id=3"), 2);
    dur_event_row inside = event_of(f, "a", 4, 0, "\"Inside\"");
    assert_int_equal(dur_store_append(f->store, "a", 1, &inside, 1, &f->err), DUR_ECONFLICT);
    dur_event_row behind = event_of(f, "a", 5, 0, "\"Behind\"");
    OK(f, dur_store_append(f->store, "a", 1, &behind, 1, &f->err));
    dur_event_row next[] = { event_of(f, "a", 5, 0, "\"K\""), event_of(f, "a", 6, 0, "\"K\"") };
    p.last = 4;
    turn = turn_of("a", &p, next, 2);
    round = (dur_round){ .turns = &turn, .turn_count = 1 };
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(turn.fault, DUR_TURN_POSITION);
    /* and one that does not compare the position meets the event itself */
    turn = turn_of("a", &p, next, 2);
    turn.expected_last = DUR_NOT_COMPARED;
    round = (dur_round){ .turns = &turn, .turn_count = 1 };
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(turn.fault, DUR_TURN_POSITION);
    assert_int_equal(number_of(f, "SELECT sum(count) FROM dur_history"), 5);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* ---- deleting and damage ---- */

static void what_is_deleted_is_counted_in_events(void **state) {
    fixture *f = *state;
    dur_event_row events[] = { event_of(f, "a", 1, 0, "\"K\""), event_of(f, "a", 2, 0, "\"K\""),
                               event_of(f, "a", 3, 0, "\"K\"") };
    dur_delete_result result;
    OK(f, dur_store_append(f->store, "a", 1, events, 3, &f->err));
    OK(f, dur_store_delete_instances(f->store, (const char *const[]){ "a" }, 1, true, &result, &f->err));
    assert_int_equal(result.events, 3);
    assert_int_equal(number_of(f, "SELECT count(*) FROM dur_history"), 0);
}

static void damaged_blocks_are_found_and_read_as_damaged(void **state) {
    fixture *f = *state;
    static const char *const damages[] = {
        "UPDATE dur_history SET block=substr(block, 1, length(block) - 2)",
        "UPDATE dur_history SET block='['",
        "UPDATE dur_history SET block=''",
        "UPDATE dur_history SET block=x'00ff'",
        "UPDATE dur_history SET count=2",
        "UPDATE dur_history SET count=4",
        "UPDATE dur_history SET count=0",
        "UPDATE dur_history SET count=-1",
        "UPDATE dur_history SET count=9223372036854775807",
        "UPDATE dur_history SET block='=' || block",
        "UPDATE dur_history SET block=replace(block, '[\"K\",', '[\"K\",1,')",
    };
    dur_event_row events[] = { event_of(f, "a", 1, 0, "\"K\""), event_of(f, "a", 2, 0, "\"K\""),
                               event_of(f, "a", 3, 0, "\"K\"") };
    OK(f, dur_store_append(f->store, "a", 1, events, 3, &f->err));
    exec(f, "UPDATE dur_instance SET name='Test', status=1; CREATE TABLE kept AS SELECT * FROM dur_history");
    OK(f, dur_provider_check(f->store, &f->err));
    for (size_t i = 0; i < sizeof damages / sizeof damages[0]; i++) {
        dur_event_row *rows = NULL;
        dur_event event;
        size_t count = 0, readable = 0;
        exec(f, damages[i]);
        OK(f, dur_store_read(f->store, f->arena, "a", 1, &rows, &count, &f->err));
        for (size_t k = 0; k < count; k++)
            readable += dur_event_from_json(&event, f->arena, rows[k].json, NULL) != DUR_ECORRUPT;
        if (readable == count || count == 0) fail_msg("nothing wrong after %s", damages[i]);
        if (dur_provider_check(f->store, &f->err) == DUR_OK && i + 1 < sizeof damages / sizeof damages[0])
            fail_msg("not found: %s", damages[i]);
        number_of(f, "SELECT count(*) FROM durite_history"); /* no error */
        exec(f, "DELETE FROM dur_history; INSERT INTO dur_history SELECT * FROM kept");
    }
    exec(f, "DROP TABLE kept");
    OK(f, dur_provider_check(f->store, &f->err));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_turn_is_one_row),
        TEST(texts_of_all_kinds_come_back_from_the_file),
        TEST(a_turn_of_thousands_of_events_is_a_few_rows),
        TEST(an_event_that_a_block_holds_exists),
        TEST(a_turn_and_an_append_never_write_the_same_event),
        TEST(what_is_deleted_is_counted_in_events),
        TEST(damaged_blocks_are_found_and_read_as_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
