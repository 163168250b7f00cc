/*
 * test_pg_step_text.c: a step that goes ahead is stored without what its event says, and comes back byte by byte.
 *
 * Each case is committed in a round of two, suspended, and read from dur_worker, where whoever ends a lease moves it.
 */
#include "pg_rig.h"

typedef struct step_case {
    const char *name, *input, *orchestration;
    bool alone_in_its_row; /* the event before it fills a row */
    bool other_id;         /* the event is not the one that has scheduled it */
    bool in_short;         /* so it is expected to be stored */
} step_case;

static char long_text[1901];

static const step_case cases[] = {
    { .name = "Noop", .input = "", .orchestration = "Flow", .in_short = true },
    { .name = "Ship",
      .input = "{\"to\":\"K\xc3\xb6ln\",\"n\":[1,2]}\nline\ttab\\",
      .orchestration = "Fl\"ow",
      .in_short = true },
    { .name = "\"type\":\"ActivityScheduled\",",
      .input = "\"type\":\"ActivityScheduled\",",
      .orchestration = "F",
      .in_short = true },
    { .name = ",", .input = "}", .orchestration = "}", .in_short = true },
    { .name = "Noop", .input = "a", .orchestration = "Flow", .alone_in_its_row = true },
    { .name = "Noop", .input = "b", .orchestration = "Flow", .other_id = true },
};

static dur_event_row scheduled(bench *b, const char *instance, uint64_t id, const char *name, const char *input) {
    dur_event event = { .kind = DUR_EVENT_ACTIVITY_SCHEDULED,
                        .event_id = id,
                        .instance_id = instance,
                        .execution_id = 1,
                        .timestamp_ms = 1,
                        .duroxide_version = "0.1.0",
                        .name = name,
                        .input = input };
    dur_event_row row;
    ASSERT_OK(b, dur_event_row_from(&row, b->arena, &event, &b->err));
    return row;
}

static dur_turn_work work(bench *b, const char *instance, uint64_t id, const step_case *c) {
    dur_work_item item = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                           .instance = instance,
                           .execution_id = 1,
                           .id = id,
                           .name = c->name,
                           .input = c->input,
                           .orchestration_name = c->orchestration,
                           .orchestration_version = "1.0.0" };
    dur_turn_work out = { .lock_token = "w" };
    ASSERT_OK(b, dur_message_from_work(&out.message, b->arena, &item, &b->err));
    return out;
}

static void one(rig *r, const char *instance, const step_case *c) {
    bench *b = &r->p->b;
    dur_orchestration_item item = begun(r, instance), other = begun(r, "beside");
    dur_event_row events[2] = { event_of(2), scheduled(b, instance, 3, c->name, c->input) }, event = event_of(2);
    if (c->alone_in_its_row) {
        memset(long_text, 'x', sizeof(long_text) - 1);
        events[0].json = (dur_text){ long_text, sizeof(long_text) - 1 };
    }
    if (c->other_id) events[1] = scheduled(b, instance, 3, "Else", c->input);
    dur_turn_work next = work(b, instance, 3, c);
    dur_turn_commit turns[2] = { turn_of(&item, events, 1), turn_of(&other, &event, 1) };
    turns[0].event_count = 2;
    turns[0].worker_items = &next;
    turns[0].worker_item_count = 1;
    (void)run(r, turns, 2, NULL);
    assert_true(next.locked);
    assert_int_equal(count(r, "history", "step_id < 0"), 1); /* it went ahead */
    assert_int_equal(count(r, "history", "step_id < 0 AND step_json LIKE ',%'"), c->in_short);
    ASSERT_OK(b, dur_store_set_suspended(b->store, instance, "to see it", &b->err));
    char sql[200];
    snprintf(sql, sizeof(sql), "SELECT json FROM %s.dur_worker", r->p->schema);
    PGresult *rows = PQexec(r->p->db, sql);
    assert_int_equal(PQntuples(rows), 1);
    assert_int_equal(PQgetlength(rows, 0, 0), next.message.json.size);
    assert_memory_equal(PQgetvalue(rows, 0, 0), next.message.json.data, next.message.json.size);
    PQclear(rows);
    const char *both[] = { instance, "beside" };
    dur_delete_result gone;
    ASSERT_OK(b, dur_store_delete_instances(b->store, both, 2, true, &gone, &b->err));
    (void)run(r, NULL, 0, NULL);
}

static void comes_back_as_it_was(void **state) {
    static const char *const ids[] = { "x", "with \"quotes\" and \\", "K\xc3\xb6ln/\xf0\x9f\x9a\x80", "@history #now" };
    rig r = rig_open(*state);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        one(&r, "x", &cases[i]);
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        step_case c = cases[0];
        c.in_short = i != 1; /* its id is written otherwise in JSON */
        one(&r, ids[i], &c);
    }
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = { PG_TEST(comes_back_as_it_was) };
    PG_MAIN(tests);
}
