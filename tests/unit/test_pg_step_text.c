/*
 * test_pg_step_text.c: a step that goes ahead is stored without what its event says, and comes back byte by byte.
 *
 * Each case is committed in a round of two, suspended, and read from dur_worker, where whoever ends a lease moves it.
 */
#include "pg_ahead.h"

/* How it is expected to be stored. */
typedef enum form {
    WHOLE,
    BEHIND_ITS_EVENT, /* from a comma on */
    A_COMMA           /* alone: the instance's row says the rest */
} form;

typedef struct step_case {
    const char *name, *input, *orchestration;
    const char *version;                  /* NULL: "1.0.0" */
    const char *row_name, *row_version;   /* of the instance; NULL: "Flow", "1.0.0" */
    const char *event_version, *other_at; /* NULL: as this code writes them; of the event, and of the one before it */
    const char *more;                     /* in its text, before the names; NULL: nothing */
    const char *text;                     /* instead of one that says all this */
    bool alone_in_its_row;                /* the event before it fills a row */
    bool beside_good;                     /* the event before it is one that can be stored in short */
    bool with_source;
    bool other_id; /* the event is not the one that has scheduled it */
    form stored;
} step_case;

static char long_text[1901];

#define KOELN "K\xc3\xb6ln"
#define NAMES_OF_FLOW ",\"orchestration_name\":\"Flow\",\"orchestration_version\":\"1.0.0\"}}"
#define STEP(of, ...) .name = "Noop", .input = "7", .orchestration = (of), __VA_ARGS__

static const step_case cases[] = {
    { .name = "Noop", .input = "", .orchestration = "Flow", .stored = A_COMMA },
    { .name = "Ship",
      .input = "{\"to\":\"K\xc3\xb6ln\",\"n\":[1,2]}\nline\ttab\\",
      .orchestration = "Fl\"ow",
      .stored = BEHIND_ITS_EVENT },
    { .name = "\"type\":\"ActivityScheduled\",",
      .input = "\"type\":\"ActivityScheduled\",",
      .orchestration = "F",
      .stored = BEHIND_ITS_EVENT },
    { .name = ",", .input = "}", .orchestration = "}", .stored = BEHIND_ITS_EVENT },
    { .name = "Noop", .input = "a", .orchestration = "Flow", .alone_in_its_row = true },
    { .name = "Noop", .input = "b", .orchestration = "Flow", .other_id = true },
    /* names: those of the row, or nearly */
    { STEP("Flo", .stored = BEHIND_ITS_EVENT) },
    { STEP("Flow2", .stored = BEHIND_ITS_EVENT) },
    { STEP("Flox", .stored = BEHIND_ITS_EVENT) },
    { STEP("", .stored = BEHIND_ITS_EVENT) },
    { STEP("Flow", .version = "1.0.1", .stored = BEHIND_ITS_EVENT) },
    { STEP("Flow", .version = "1.0.00", .stored = BEHIND_ITS_EVENT) },
    { STEP("Flow", .version = "", .stored = BEHIND_ITS_EVENT) },
    { STEP("Flow", .row_version = "2.0.0", .stored = BEHIND_ITS_EVENT) },
    { STEP("Flow", .version = "2.0.0", .row_version = "2.0.0", .stored = A_COMMA) },
    { STEP(KOELN "/%s\x7f", .row_name = KOELN "/%s\x7f", .stored = A_COMMA) },
    { STEP("'@history #now $1", .row_name = "'@history #now $1", .stored = A_COMMA) },
    { STEP(",", .row_name = ",", .version = ",", .row_version = ",", .stored = A_COMMA) },
    { STEP("\"", .row_name = "\"", .stored = BEHIND_ITS_EVENT) },
    { STEP("a\\b", .row_name = "a\\b", .stored = BEHIND_ITS_EVENT) },
    { STEP("a\nb", .row_name = "a\nb", .stored = BEHIND_ITS_EVENT) },
    { STEP("a", .row_name = "a\",\"orchestration_version\":\"b", .stored = BEHIND_ITS_EVENT) },
    { STEP("Flow", .version = "1\\", .row_version = "1\\", .stored = BEHIND_ITS_EVENT) },
    /* its row of history: in short, or in full; and an event that would not be stored in short itself */
    { STEP("Flow", .beside_good = true, .stored = A_COMMA) },
    { STEP("Flow", .beside_good = true, .other_at = "2", .stored = A_COMMA) },
    { STEP("Flow", .beside_good = true, .event_version = "0.1 beta", .stored = A_COMMA) },
    { STEP("Flow", .event_version = "0.1 beta", .stored = A_COMMA) },
    { STEP("Else", .event_version = "0.1 beta", .stored = BEHIND_ITS_EVENT) },
    { STEP("Else", .beside_good = true, .stored = BEHIND_ITS_EVENT) },
    { .name = "\"type\":\"ActivityScheduled\",",
      .input = "\"type\":\"ActivityScheduled\",",
      .orchestration = "Flow",
      .beside_good = true,
      .stored = A_COMMA },
    { .name = "\"type\":\"ActivityScheduled\",",
      .input = "\"type\":\"ActivityScheduled\",",
      .orchestration = "Flow",
      .event_version = "\"type\":\"ActivityScheduled\",",
      .stored = A_COMMA },
    { .name = KOELN, .input = KOELN, .orchestration = "Flow", .beside_good = true, .stored = A_COMMA },
    { .name = "n", .input = "7:", .orchestration = "Flow", .beside_good = true, .with_source = true },
    { STEP("Flow", .with_source = true, .event_version = "0.1 beta", .stored = A_COMMA) }, /* found by its type */
    /* texts that this code does not write */
    { STEP("Flow", .beside_good = true, .more = ",\"more\":1", .stored = BEHIND_ITS_EVENT) },
    { STEP("Flow", .beside_good = true, .more = ",\"orchestration_name\":\"Flow\"", .stored = BEHIND_ITS_EVENT) },
    { STEP("Flow", .beside_good = true, .more = ",", .stored = BEHIND_ITS_EVENT) },
    { STEP("Flow", .beside_good = true, .more = " ") },
    { STEP("Flow", .beside_good = true, .more = "\n") },
    { STEP("Flow", .beside_good = true,
           .text = "{\"ActivityExecute\":{\"instance\":\"x\",\"execution_id\":1,\"id\":%d" NAMES_OF_FLOW) },
    { STEP("Flow", .beside_good = true,
           .text = "{\"ActivityExecute\":{\"instance\":\"x\",\"execution_id\":1,\"id\":%d,"
                   "\"name\":\"Noop\",\"input\":\"8\"" NAMES_OF_FLOW) },
    { STEP("Flow", .beside_good = true,
           .text = "{\"ActivityExecute\":{\"instance\":\"x\",\"execution_id\":1,\"id\":0%d,"
                   "\"name\":\"Noop\",\"input\":\"7\"" NAMES_OF_FLOW) },
    { STEP("Flow", .beside_good = true,
           .text = "{\"ActivityExecute\":{\"instance\":\"x\",\"execution_id\":1,\"id\":1%d,"
                   "\"name\":\"Noop\",\"input\":\"7\"" NAMES_OF_FLOW) },
    { STEP("Flow", .beside_good = true,
           .text = "{\"ActivityExecute\":{\"instance\":\"x\",\"execution_id\":2,\"id\":%d,"
                   "\"name\":\"Noop\",\"input\":\"7\"" NAMES_OF_FLOW) },
    { STEP("Flow", .beside_good = true,
           .text = "{\"ActivityExecute\":{\"instance\":\"y\",\"execution_id\":1,\"id\":%d,"
                   "\"name\":\"Noop\",\"input\":\"7\"" NAMES_OF_FLOW) },
    { STEP("Flow", .beside_good = true,
           .text = "{\"ActivityExecute\":{\"instance\":\"x\",\"execution_id\":1,\"id\":%d " NAMES_OF_FLOW) },
    { STEP("Flow", .beside_good = true,
           .text = "{\"ActivityExecute\":{\"instance\":\"x\",\"execution_id\":1,\"id\":%d,"
                   "\"name\":\"Noop\",\"input\":\"7\"}}") },
    { STEP("Flow", .beside_good = true,
           .text = "{\"ActivityExecute\":{\"instance\":\"x\",\"execution_id\":1,\"id\":%d,"
                   "\"name\":\"Noop\",\"input\":\"7\"") },
    { STEP("Flow", .beside_good = true,
           .text = "{\"ActivityExecute\":{\"instance\":\"x\",\"execution_id\":1,\"id\":%d") },
    { STEP("Flow", .beside_good = true, .text = "%d") },
    { STEP("Flow", .beside_good = true, .text = "{}") },
};

static dur_event_row scheduled(bench *b, const char *instance, uint64_t id, const char *name, const step_case *c) {
    dur_event event = { .kind = DUR_EVENT_ACTIVITY_SCHEDULED,
                        .has_source_event_id = c->with_source,
                        .source_event_id = 1,
                        .event_id = id,
                        .instance_id = instance,
                        .execution_id = 1,
                        .timestamp_ms = 1,
                        .duroxide_version = c->event_version != NULL ? c->event_version : "0.1.0",
                        .name = name,
                        .input = c->input };
    dur_event_row row;
    ASSERT_OK(b, dur_event_row_from(&row, b->arena, &event, &b->err));
    return row;
}

static dur_event_row before_it(bench *b, const char *instance, uint64_t id, const step_case *c) {
    dur_event_row event = event_of(id);
    if (c->alone_in_its_row) {
        memset(long_text, 'x', sizeof(long_text) - 1);
        event.json = (dur_text){ long_text, sizeof(long_text) - 1 };
    } else if (c->beside_good) {
        event.json =
            text_of(dur_arena_format(b->arena,
                                     "{\"event_id\":%llu,\"instance_id\":\"%s\",\"execution_id\":1,"
                                     "\"timestamp_ms\":%s,\"duroxide_version\":\"0.1.0\",\"type\":\"Else\"}",
                                     (unsigned long long)id, instance, c->other_at != NULL ? c->other_at : "1"));
    }
    return event;
}

static dur_turn_work work(bench *b, const char *instance, uint64_t id, const step_case *c) {
    dur_work_item item = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                           .instance = instance,
                           .execution_id = 1,
                           .id = id,
                           .name = c->name,
                           .input = c->input,
                           .orchestration_name = c->orchestration,
                           .orchestration_version = c->version != NULL ? c->version : "1.0.0" };
    dur_turn_work out = { .lock_token = "w" };
    ASSERT_OK(b, dur_message_from_work(&out.message, b->arena, &item, &b->err));
    if (c->more != NULL) {
        const char *text = out.message.json.data, *end = strstr(text, ",\"orchestration_name\":");
        out.message.json = text_of(dur_arena_format(b->arena, "%.*s%s%s", (int)(end - text), text, c->more, end));
    }
    if (c->text != NULL) out.message.json = text_of(dur_arena_format(b->arena, c->text, (int)id));
    return out;
}

static dur_execution_metadata names_of(const step_case *c) {
    dur_execution_metadata names = named();
    if (c->row_name != NULL) names.orchestration_name = c->row_name;
    if (c->row_version != NULL) names.orchestration_version = c->row_version;
    return names;
}

/* Acquired new, or fetched with what came for it. */
static dur_orchestration_item taken(rig *r, const char *instance, dur_message message) {
    bench *b = &r->p->b;
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &message, 0, &b->err));
    dur_round round = run(r, NULL, 0, &fresh);
    assert_int_equal(round.item_count, 1);
    assert_string_equal(round.items[0].instance, instance);
    return round.items[0];
}

static dur_orchestration_item begun_as(rig *r, const char *instance, dur_execution_metadata names) {
    dur_orchestration_item item = taken(r, instance, start_of(&r->p->b, instance));
    dur_event_row event = event_of(1);
    dur_turn_commit turn = turn_of(&item, &event, 0);
    turn.metadata = names;
    turn.consumed = &item.messages[0].id;
    turn.consumed_count = 1;
    (void)run(r, &turn, 1, NULL);
    return item;
}

static void expect_form(const rig *r, form stored) {
    assert_int_equal(count(r, "history", "step_id < 0"), 1); /* it went ahead */
    assert_int_equal(count(r, "history", "step_id < 0 AND step_json LIKE ',%'"), stored != WHOLE);
    assert_int_equal(count(r, "history", "step_id < 0 AND step_json = ','"), stored == A_COMMA);
}

static void expect_worker(const rig *r, const dur_turn_work *next) {
    PGresult *rows = PQexec(r->p->db, SQL(r, "SELECT json FROM %s.dur_worker", r->p->schema));
    assert_int_equal(PQntuples(rows), 1);
    assert_string_equal(PQgetvalue(rows, 0, 0), next->message.json.data);
    assert_int_equal(PQgetlength(rows, 0, 0), next->message.json.size);
    PQclear(rows);
}

/* Two events behind `last`, the second one schedules the step; beside another turn, so that they go ahead. */
static dur_turn_work go_beside(rig *r, const dur_orchestration_item *item, const dur_orchestration_item *other,
                               uint64_t last, const step_case *c) {
    bench *b = &r->p->b;
    dur_event_row events[2] = { before_it(b, item->instance, last + 1, c),
                                scheduled(b, item->instance, last + 2, c->other_id ? "Else" : c->name, c) };
    dur_event_row event = event_of(last + 1);
    dur_turn_work next = work(b, item->instance, last + 2, c);
    dur_turn_commit turns[2] = { turn_of(item, events, last), turn_of(other, &event, last) };
    turns[0].event_count = 2;
    turns[0].worker_items = &next;
    turns[0].worker_item_count = 1;
    (void)run(r, turns, 2, NULL);
    assert_true(next.locked);
    return next;
}

static void one(rig *r, const char *instance, const step_case *c) {
    bench *b = &r->p->b;
    dur_orchestration_item item = begun_as(r, instance, names_of(c)), other = begun(r, "beside");
    dur_turn_work next = go_beside(r, &item, &other, 1, c);
    expect_form(r, c->stored);
    ASSERT_OK(b, dur_store_set_suspended(b->store, instance, "to see it", &b->err));
    expect_worker(r, &next);
    const char *both[] = { instance, "beside" };
    dur_delete_result gone;
    ASSERT_OK(b, dur_store_delete_instances(b->store, both, 2, true, &gone, &b->err));
    (void)run(r, NULL, 0, NULL);
}

/* The id is the same for all of them, so that names of the one before would be noticed. */
static void comes_back_as_it_was(void **state) {
    static const char *const ids[] = { "x", "with \"quotes\" and \\", "K\xc3\xb6ln/\xf0\x9f\x9a\x80", "@history #now" };
    rig r = rig_open(*state);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        one(&r, "x", &cases[i]);
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        step_case c = cases[0];
        if (i == 1) c.stored = WHOLE; /* its id is written otherwise in JSON */
        one(&r, ids[i], &c);
    }
    rig_close(&r);
}

/* From a comma on, without the names, where the row says what is before it and behind it. */
static const char *in_its_row(const rig *r, const char *text, const dur_execution_metadata *names) {
    const char *before = "{\"ActivityExecute\":{\"instance\":\"x\",\"execution_id\":1,\"id\":2";
    const char *behind = SQL(r, ",\"orchestration_name\":\"%s\",\"orchestration_version\":\"%s\"}}",
                             names->orchestration_name, names->orchestration_version);
    size_t from = strlen(before), less = strlen(behind), size = strlen(text);
    if (size <= from + less || strncmp(text, before, from) != 0 || text[from] != ',' ||
        strcmp(text + size - less, behind) != 0)
        return text;
    return SQL(r, "%.*s", (int)(size - less - from), text + from);
}

/* Alone in its round it stands in its instance's row, and is moved from there. */
static void comes_back_from_its_row(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dur_execution_metadata names = names_of(&cases[i]);
        dur_orchestration_item item = begun_as(&r, "x", names);
        dur_event_row event = scheduled(b, "x", 2, cases[i].name, &cases[i]);
        dur_turn_work next = work(b, "x", 2, &cases[i]);
        dur_turn_commit turn = turn_of(&item, &event, 1);
        turn.worker_items = &next;
        turn.worker_item_count = 1;
        (void)run(&r, &turn, 1, NULL);
        assert_int_equal(count(&r, "history", "step_id IS NOT NULL"), 0);
        assert_int_equal(count(&r, "instances", "step_id < 0"), 1);
        assert_string_equal(ask(&r, SQL(&r, "SELECT step_json FROM %s.dur_instances", r.p->schema)),
                            in_its_row(&r, next.message.json.data, &names));
        ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "to see it", &b->err));
        expect_worker(&r, &next);
        const char *id = "x";
        dur_delete_result gone;
        ASSERT_OK(b, dur_store_delete_instances(b->store, &id, 1, true, &gone, &b->err));
        (void)run(&r, NULL, 0, NULL);
    }
    rig_close(&r);
}

static const step_case usual_step = { STEP("Flow", .beside_good = true, .stored = A_COMMA) };

/* In a row that would be one in short. */
static void begins_with_a_comma(void **state) {
    static const step_case c = { STEP("Flow", .beside_good = true, .text = ",no JSON") };
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x"), other = begun(&r, "y");
    dur_turn_work next = go_beside(&r, &item, &other, 1, &c);
    assert_int_equal(count(&r, "history", "step_id < 0") + count(&r, "instances", "step_id < 0"), 0);
    expect_worker(&r, &next);
    rig_close(&r);
}

/* Written into the texts without a backslash, in a row that is kept in full: there the type is looked for by its text.
 */
static void of_an_instance_called_like_a_type(void **state) {
    static const char id[] = "\"type\":\"ActivityScheduled\",";
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, id), other = begun(&r, "y");
    dur_event_row events[2] = { event_of(2), event_of(3) }, event = event_of(2);
    events[1].json = text_of(SQL(&r,
                                 "{\"event_id\":3,\"instance_id\":\"%s\",\"execution_id\":1,\"timestamp_ms\":1,"
                                 "\"duroxide_version\":\"0.1.0\",\"type\":\"ActivityScheduled\",\"name\":\"Noop\"}",
                                 id));
    dur_turn_work next = work(b, id, 3, &usual_step);
    next.message.json = text_of(SQL(&r,
                                    "{\"ActivityExecute\":{\"instance\":\"%s\",\"execution_id\":1,\"id\":3,"
                                    "\"name\":\"Noop\"" NAMES_OF_FLOW,
                                    id));
    dur_turn_commit turns[2] = { turn_of(&item, events, 1), turn_of(&other, &event, 1) };
    turns[0].event_count = 2;
    turns[0].worker_items = &next;
    turns[0].worker_item_count = 1;
    (void)run(&r, turns, 2, NULL);
    expect_form(&r, WHOLE);
    ASSERT_OK(b, dur_store_set_suspended(b->store, id, "to see it", &b->err));
    expect_worker(&r, &next);
    rig_close(&r);
}

/* ---- what a lane knows of the names ------------------------------------------------------------------------------ */

/* One after the other; the step before it is done by the turn, and is not in the way of the next. */
static void step_after_step(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x"), other = begun(&r, "y");
    dur_turn_work step = go_beside(&r, &item, &other, 1, &usual_step);
    for (uint64_t last = 3; last < 9; last += 2) {
        dur_event_row events[2] = { before_it(b, "x", last + 1, &usual_step),
                                    scheduled(b, "x", last + 2, "Noop", &usual_step) };
        dur_turn_work next = work(b, "x", last + 2, &usual_step);
        next.lock_token = SQL(&r, "w-%d", (int)last);
        dur_worker_claim done = claim_of("x", &step);
        dur_turn_commit turn = turn_of(&item, events, last);
        turn.event_count = 2;
        turn.worker_items = &next;
        turn.worker_item_count = 1;
        turn.worker_consumed = &done;
        turn.worker_consumed_count = 1;
        (void)run(&r, &turn, 1, NULL);
        step = next;
        assert_int_equal(count(&r, "history", SQL(&r, "event_id = %d AND step_json = ','", (int)last + 1)), 1);
        assert_false(is_lost(&r, &(flow){ .item = item }, &step));
    }
    assert_int_equal(count(&r, "worker", "true"), 0);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "to see it", &b->err));
    expect_worker(&r, &step);
    rig_close(&r);
}

/* Born with its first turn, which gives the names. */
static void of_one_that_was_born(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x = born_flow(&r, "x"), y = born_flow(&r, "y");
    dur_turn_work step = go_beside(&r, &x.item, &y.item, 1, &usual_step);
    expect_form(&r, A_COMMA);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "to see it", &b->err));
    expect_worker(&r, &step);
    rig_close(&r);
}

/* Both stand in the row: the step that comes with the first turn, and the next, which comes alone in its round. */
static void of_one_that_was_born_with_it(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    caller c;
    flow f = take_start(&r, &c, "x");
    dur_turn_commit turn = birth(&r, &f);
    dur_event_row events[] = { event_of(1), scheduled(b, "x", 2, "Noop", &usual_step), event_of(3),
                               scheduled(b, "x", 4, "Noop", &usual_step) };
    dur_turn_work first = work(b, "x", 2, &usual_step), second = work(b, "x", 4, &usual_step);
    turn.events = events;
    turn.event_count = 2;
    turn.worker_items = &first;
    turn.worker_item_count = 1;
    (void)run(&r, &turn, 1, NULL);
    was_born(&f, &c);
    const char *stored = SQL(&r, "SELECT step_json FROM %s.dur_instances", r.p->schema);
    assert_string_equal(ask(&r, stored), ",\"name\":\"Noop\",\"input\":\"7\"");
    dur_worker_claim done = claim_of("x", &first);
    second.lock_token = "v";
    turn = turn_of(&f.item, &events[2], 2);
    turn.event_count = 2;
    turn.worker_items = &second;
    turn.worker_item_count = 1;
    turn.worker_consumed = &done;
    turn.worker_consumed_count = 1;
    assert_true(dur__pg_is_one_step(&turn));
    (void)run(&r, &turn, 1, NULL);
    assert_string_equal(ask(&r, stored), ",\"name\":\"Noop\",\"input\":\"7\"");
    assert_false(is_lost(&r, &f, &second));
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "to see it", &b->err));
    expect_worker(&r, &second);
    rig_close(&r);
}

/* Work that another event has scheduled than those of the turn: one before it, or one that only memory has behind it.
 */
static void of_an_event_that_is_not_of_the_turn(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    for (uint64_t id = 1; id <= 4; id++) {
        dur_orchestration_item item = begun(&r, "x"), other = begun(&r, "y");
        dur_event_row events[] = { scheduled(b, "x", 2, "Noop", &usual_step), scheduled(b, "x", 3, "Noop", &usual_step),
                                   scheduled(b, "x", 4, "Noop", &usual_step) };
        dur_event_row event = event_of(2);
        dur_turn_work next = work(b, "x", id, &usual_step);
        dur_turn_commit turns[2] = { turn_of(&item, events, 1), turn_of(&other, &event, 1) };
        turns[0].event_count = 2;
        turns[0].worker_items = &next;
        turns[0].worker_item_count = 1;
        (void)run(&r, turns, 2, NULL);
        expect_form(&r, id == 2 || id == 3 ? A_COMMA : WHOLE);
        ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "to see it", &b->err));
        expect_worker(&r, &next);
        const char *both[] = { "x", "y" };
        dur_delete_result gone;
        ASSERT_OK(b, dur_store_delete_instances(b->store, both, 2, true, &gone, &b->err));
        (void)run(&r, NULL, 0, NULL);
    }
    rig_close(&r);
}

/* Deleted behind the back of its lane, which then is given a start of the same id, and another name. */
static void of_another_that_had_its_id(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    caller c;
    const char *id = "x";
    dur_delete_result gone;
    (void)begun(&r, "x"); /* as "Flow" */
    ASSERT_OK(b, dur_store_delete_instances(b->store, &id, 1, true, &gone, &b->err));
    flow f = take_start(&r, &c, "x");
    dur_turn_commit turn = birth(&r, &f);
    dur_event_row event = scheduled(b, "x", 1, "Noop", &usual_step);
    dur_turn_work next = work(b, "x", 1, &usual_step);
    turn.metadata.orchestration_name = "Else";
    turn.events = &event;
    turn.worker_items = &next;
    turn.worker_item_count = 1;
    (void)run(&r, &turn, 1, NULL);
    was_born(&f, &c);
    assert_int_equal(count(&r, "instances", "name = 'Else' AND step_json LIKE '{%Flow%'"), 1);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "to see it", &b->err));
    expect_worker(&r, &next);
    rig_close(&r);
}

/* A turn that sends a message goes the long way, and what was known of the row is forgotten. */
static void not_after_the_long_way(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x"), other = begun(&r, "y");
    dur_message sent = message_of(DUR_WORK_EXTERNAL_RAISED, "y");
    dur_event_row event = event_of(2);
    dur_turn_commit turn = turn_of(&item, &event, 1), beside = turn_of(&other, &event, 1);
    turn.orchestrator_items = &sent;
    turn.orchestrator_item_count = 1;
    (void)run(&r, &turn, 1, NULL);
    (void)run(&r, &beside, 1, NULL);
    event = event_of(3);
    turn = turn_of(&item, &event, 2);
    beside = turn_of(&other, &event, 2);
    (void)run(&r, &turn, 1, NULL); /* writes the row, so it is known again */
    (void)run(&r, &beside, 1, NULL);
    dur_turn_work step = go_beside(&r, &item, &other, 3, &usual_step);
    expect_form(&r, BEHIND_ITS_EVENT);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "to see it", &b->err));
    expect_worker(&r, &step);
    rig_close(&r);
}

/* Given up and acquired again: the row was given its names under another lease. */
static void not_under_another_lease(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x"), other = begun(&r, "y");
    ASSERT_OK(b, dur_store_abandon_orchestration_item(b->store, item.lock_token, 0, false, &b->err));
    has_noticed(&r);
    item = taken(&r, "x", message_of(DUR_WORK_EXTERNAL_RAISED, "x"));
    dur_event_row event = event_of(2);
    dur_turn_commit turns[] = { turn_of(&item, &event, 1), turn_of(&other, &event, 1) };
    (void)run(&r, &turns[0], 1, NULL);
    (void)run(&r, &turns[1], 1, NULL);
    dur_turn_work step = go_beside(&r, &item, &other, 2, &usual_step);
    expect_form(&r, BEHIND_ITS_EVENT);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "to see it", &b->err));
    expect_worker(&r, &step);
    rig_close(&r);
}

/* ---- who takes over ---------------------------------------------------------------------------------------------- */

/* Finds the activity as it was scheduled, does it, and the instance is told. */
static void is_done_by_another(rig *r, const dur_turn_work *step, dur_fetch_kind kind) {
    bench *b = &r->p->b;
    dur_work_fetch how = { .owner = "peer", .max = 1, .kind = kind };
    dur_leased_work got;
    dur_work_item item;
    size_t total = 0;
    ASSERT_OK(b, dur_store_fetch_works(b->store, b->arena, &how, &got, &total, &b->err));
    assert_int_equal(total, 1);
    assert_int_equal(got.json.size, step->message.json.size);
    assert_memory_equal(got.json.data, step->message.json.data, got.json.size);
    ASSERT_OK(b, dur_work_from_json(&item, b->arena, got.json, &b->err));
    assert_string_equal(item.instance, "x");
    assert_string_equal(item.name, "Noop");
    assert_string_equal(item.input, "7");
    assert_int_equal(item.id, 3);
    dur_work_item done = {
        .kind = DUR_WORK_ACTIVITY_COMPLETED, .instance = "x", .execution_id = 1, .id = item.id, .result = "ready"
    };
    dur_message completion;
    ASSERT_OK(b, dur_message_from_work(&completion, b->arena, &done, &b->err));
    dur_work_ack ack = { .lock_token = got.lock_token, .ref = got.ref, .completion = &completion };
    ASSERT_OK(b, dur_store_ack_works(b->store, &ack, 1, &b->err));
    assert_int_equal(ack.error.code, DUR_OK);
    assert_int_equal(count(r, "worker", "true"), 0);
    assert_int_equal(count(r, "queue", SQL(r, "instance_id = 'x' AND json = '%s'", completion.json.data)), 1);
    dur_orchestration_item next;
    /* the method itself: the first of these texts is no event */
    ASSERT_OK(b, dur__pg_methods.fetch_orchestration_item(b->store, b->arena, &(dur_fetch){ .lock_ms = 60000 }, &next,
                                                          &b->err));
    assert_string_equal(next.instance, "x");
    assert_int_equal(next.last_event_id, 3);
    assert_int_equal(next.message_count, 1);
}

static void after_its_owner_has_left(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x"), other = begun(&r, "y");
    dur_turn_work step = go_beside(&r, &item, &other, 1, &usual_step);
    expect_form(&r, A_COMMA);
    rig_close(&r);
    ASSERT_OK(b, dur_store_owner_register(b->store, &(dur_owner_options){ .owner = "peer" }, &b->err));
    ASSERT_OK(b, dur_store_owner_release(b->store, "o", &b->err));
    is_done_by_another(&r, &step, DUR_FETCH_FRESH);
}

static void after_its_owner_has_died(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *ours = b->store, *dying = NULL;
    dur_owner_report report = { 0 };
    ASSERT_OK(b, dur_open(&dying, p->url, &b->err));
    b->store = dying;
    rig r = rig_open(p);
    dur_orchestration_item item = begun(&r, "x"), other = begun(&r, "y");
    dur_turn_work step = go_beside(&r, &item, &other, 1, &usual_step);
    expect_form(&r, A_COMMA);
    rig_close(&r);
    dur_provider_close(dying);
    b->store = ours;
    ASSERT_OK(b, dur_store_owner_register(ours, &(dur_owner_options){ .owner = "peer" }, &b->err));
    for (uint64_t end_ms = pg_monotonic_ms() + PATIENCE_MS; report.taken_over == 0 && pg_monotonic_ms() < end_ms;) {
        ASSERT_OK(b, dur_store_owner_beat(ours, "peer", &report, &b->err));
        pg_pause_ms(50);
    }
    assert_int_equal(report.taken_over, 1);
    is_done_by_another(&r, &step, DUR_FETCH_FRESH);
}

/* By the token alone, without the end of the lease: the step is moved, and its text is there for the next attempt. */
static void is_given_up_by_its_token(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x"), other = begun(&r, "y");
    dur_turn_work step = go_beside(&r, &item, &other, 1, &usual_step);
    expect_form(&r, A_COMMA);
    ASSERT_OK(b, dur_store_abandon_work_item(b->store, "w", 0, true, &b->err));
    expect_worker(&r, &step);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(comes_back_as_it_was),
        PG_TEST(comes_back_from_its_row),
        PG_TEST(begins_with_a_comma),
        PG_TEST(of_an_instance_called_like_a_type),
        PG_TEST(step_after_step),
        PG_TEST(of_one_that_was_born),
        PG_TEST(of_one_that_was_born_with_it),
        PG_TEST(of_an_event_that_is_not_of_the_turn),
        PG_TEST(of_another_that_had_its_id),
        PG_TEST(not_after_the_long_way),
        PG_TEST(not_under_another_lease),
        PG_TEST(after_its_owner_has_left),
        PG_TEST(after_its_owner_has_died),
        PG_TEST(is_given_up_by_its_token),
    };
    PG_MAIN(tests);
}
