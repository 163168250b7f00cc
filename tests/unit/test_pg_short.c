/*
 * test_pg_short.c: events that are stored without what the columns of their row say: which are, and that every text
 * comes back byte by byte, whatever it looks like and whoever reads it.
 *
 * dur_history.written tells which rows are in short.  Each case says what is expected there, so that a text that is no
 * longer shortened is noticed as well as one that must not be.
 */
#include "pg_rig.h"

#define SQL(r, ...) dur_arena_format((r)->p->b.arena, __VA_ARGS__)

#define ONE_MORE_(upper, name, role) +1
enum { EVENT_KINDS = 0 DUR_EVENT_KINDS(ONE_MORE_) };

#define WRITTEN_MS "1700000000123"
#define VERSION "0.1.0"
#define EVENT(more, type) "{\"event_id\":2" more type
#define TAIL ",\"execution_id\":1,\"timestamp_ms\":" WRITTEN_MS ",\"duroxide_version\":\"" VERSION "\",\"type\":\""
#define TEXT_MAX 8000
#define AS_MANY_AS(array) (sizeof(array) / sizeof((array)[0]))

/* The parts of a text as JSON has them; NULL: what stands in every good one. */
typedef struct parts {
    const char *id, *source, *instance, *execution, *at, *version, *type;
} parts;

static const char *or_else(const char *text, const char *otherwise) {
    return text != NULL ? text : otherwise;
}

static dur_event_row event_from(const bench *b, const char *instance, uint64_t id, parts p) {
    dur_event_row event = event_of(id);
    const char *number = dur_arena_format(b->arena, "%llu", (unsigned long long)id);
    const char *source = p.source != NULL ? dur_arena_format(b->arena, ",\"source_event_id\":%s", p.source) : "";
    event.json = text_of(dur_arena_format(
        b->arena,
        "{\"event_id\":%s%s,\"instance_id\":\"%s\",\"execution_id\":%s,\"timestamp_ms\":%s,\"duroxide_version\":\"%s\","
        "\"type\":\"%s",
        or_else(p.id, number), source, or_else(p.instance, instance), or_else(p.execution, "1"),
        or_else(p.at, WRITTEN_MS), or_else(p.version, VERSION),
        or_else(p.type, "ActivityCompleted\",\"result\":\"7\"}")));
    return event;
}

static dur_event_row good_event(const bench *b, const char *instance, uint64_t id) {
    return event_from(b, instance, id, (parts){ .source = id % 2 == 0 ? "1" : NULL });
}

/* ---- what is read ------------------------------------------------------------------------------------------------ */

/* An instance and what was committed to it, behind an event of its beginning that nobody shortens. */
typedef struct story {
    dur_orchestration_item item;
    dur_event_row *events;
    size_t event_count;
} story;

static void same_text(const char *who, dur_text got, dur_text expected) {
    if (got.size != expected.size || memcmp(got.data, expected.data, got.size) != 0)
        fail_msg("%s:\n%.*s\ncame back as\n%.*s", who, (int)expected.size, expected.data, (int)got.size, got.data);
}

static void same_events(const char *who, const dur_event_row *got, size_t got_count, const story *s) {
    assert_int_equal(got_count, s->event_count + 1);
    assert_int_equal(got[0].event_id, 1);
    for (size_t i = 0; i < s->event_count; i++) {
        assert_int_equal(got[i + 1].event_id, s->events[i].event_id);
        same_text(who, got[i + 1].json, s->events[i].json);
    }
}

static void read_by_people(const rig *r, const story *s) {
    char *id = PQescapeLiteral(r->p->db, s->item.instance, strlen(s->item.instance));
    PGresult *rows = PQexec(r->p->db, SQL(r,
                                          "SELECT json FROM %s.dur_events WHERE instance_id = %s AND execution_id = 1"
                                          " AND event_id > 1 ORDER BY event_id",
                                          r->p->schema, id));
    PQfreemem(id);
    assert_int_equal(PQntuples(rows), s->event_count);
    for (int i = 0; i < PQntuples(rows); i++)
        same_text("view", (dur_text){ PQgetvalue(rows, i, 0), (size_t)PQgetlength(rows, i, 0) }, s->events[i].json);
    PQclear(rows);
}

static void read_by_anybody(const rig *r, const story *s) {
    bench *b = &r->p->b;
    dur_event_row *events;
    dur_instance_stats stats;
    size_t count_of_all, bytes = event_of(1).json.size;
    bool found;
    ASSERT_OK(b, dur_store_read(b->store, b->arena, s->item.instance, 1, &events, &count_of_all, &b->err));
    same_events("read", events, count_of_all, s);
    for (size_t i = 0; i < s->event_count; i++)
        bytes += s->events[i].json.size;
    /* the method itself: the call would add what the first event carries, and these texts are no events */
    ASSERT_OK(b, dur__pg_methods.get_instance_stats(b->store, b->arena, s->item.instance, &found, &stats, &b->err));
    assert_true(found);
    assert_int_equal(stats.history_event_count, s->event_count + 1);
    assert_int_equal(stats.history_size_bytes, bytes);
    read_by_people(r, s);
}

static void read_by_its_lane(const rig *r, const story *s) {
    bench *b = &r->p->b;
    dur_orchestration_item held;
    ASSERT_OK(b, dur_store_lane_history(r->lane, b->arena, s->item.instance, s->item.lock_token, 1, &held, &b->err));
    same_events("lane", held.history, held.history_count, s);
}

/* The owner goes; somebody else takes every instance. */
static void read_by_who_comes_next(rig *r, const story *stories, size_t total) {
    bench *b = &r->p->b;
    rig_close(r);
    ASSERT_OK(b, dur_store_owner_release(b->store, "o", &b->err));
    for (size_t i = 0; i < total; i++) {
        dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, stories[i].item.instance);
        ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &event, 0, &b->err));
    }
    for (size_t i = 0; i < total; i++) {
        dur_orchestration_item next;
        const story *of = NULL;
        ASSERT_OK(b, dur__pg_methods.fetch_orchestration_item(b->store, b->arena, &(dur_fetch){ .lock_ms = 60000 },
                                                              &next, &b->err));
        for (size_t k = 0; k < total; k++)
            if (strcmp(stories[k].item.instance, next.instance) == 0) of = &stories[k];
        assert_non_null(of);
        same_events("fetch", next.history, next.history_count, of);
    }
}

/* Of the rows behind the beginning those that are in short, or in full. */
static long rows(const rig *r, const char *instance, const char *condition) {
    bench *b = &r->p->b;
    char *id = PQescapeLiteral(r->p->db, instance, strlen(instance));
    const char *all = dur_arena_format(b->arena, "instance_id = %s AND event_id > 1 AND %s", id, condition);
    PQfreemem(id);
    return count(r, "history", all);
}

static void expect_rows(const rig *r, const char *instance, long in_short, long in_full) {
    assert_int_equal(rows(r, instance, "written IS NOT NULL"), in_short);
    assert_int_equal(rows(r, instance, "written IS NULL"), in_full);
}

static story commit(rig *r, const dur_orchestration_item *item, dur_event_row *events, size_t event_count) {
    dur_turn_commit turn = turn_of(item, events, 1);
    turn.event_count = event_count;
    (void)run(r, &turn, 1, NULL);
    return (story){ *item, events, event_count };
}

/* ---- one event --------------------------------------------------------------------------------------------------- */

typedef struct event_case {
    const char *instance; /* NULL: "x" and its number */
    const char *text;     /* NULL: of the parts */
    parts parts;
    bool in_short;
} event_case;

#define FORTY "1234567890123456789012345678901234567890"

static const event_case event_cases[] = {
    { .in_short = true },
    { .parts = { .source = "1" }, .in_short = true },
    { .parts = { .source = "123456789012345678" }, .in_short = true },
    /* a source that the row would not say like this */
    { .parts = { .source = "0" } },
    { .parts = { .source = "01" } },
    { .parts = { .source = "1234567890123456789" } },
    { .parts = { .source = "-1" } },
    { .parts = { .source = "" } },
    { .parts = { .source = "1.0" } },
    { .parts = { .source = " 1" } },
    { .parts = { .source = "null" } },
    /* another event, instance or execution than that of its row */
    { .parts = { .id = "3" } },
    { .parts = { .id = "02" } },
    { .parts = { .id = "20" } },
    { .parts = { .id = "" } },
    { .parts = { .id = "2 " } },
    { .parts = { .id = "18446744073709551618" } }, /* 2, where it runs over */
    { .parts = { .instance = "another" } },
    { .parts = { .instance = "" } },
    { .instance = "longer", .parts = { .instance = "long" } },
    { .instance = "short", .parts = { .instance = "shorter" } },
    { .parts = { .execution = "2" } },
    { .parts = { .execution = "0" } },
    { .parts = { .execution = "10" } },
    { .parts = { .execution = "01" } },
    { .parts = { .execution = "1.0" } },
    /* ids as they are */
    { .instance = "K\xc3\xb6ln/\xf0\x9f\x9a\x80", .parts = { .source = "1" }, .in_short = true },
    { .instance = "12:34", .in_short = true },
    { .instance = "7", .parts = { .source = "1" }, .in_short = true },
    { .instance = "with a space ", .in_short = true },
    { .instance = "'; SELECT $1 @history #now", .in_short = true },
    { .instance = "%s%%", .in_short = true },
    /* … and as JSON writes them */
    { .instance = "with \"quotes\"", .parts = { .instance = "with \\\"quotes\\\"" } },
    { .instance = "back\\slash", .parts = { .instance = "back\\\\slash" } },
    { .instance = "tab\tand\nline", .parts = { .instance = "tab\\tand\\nline" } },
    { .instance = "\xc3\xbc", .parts = { .instance = "\\u00fc" } },
    { .instance = "a\\\"b", .parts = { .instance = "a\\\"b" } }, /* the same bytes, by chance */
    /* when */
    { .parts = { .at = "0" }, .in_short = true },
    { .parts = { .at = "1" }, .in_short = true },
    { .parts = { .at = "999999999999999999" }, .in_short = true },
    { .parts = { .at = "1000000000000000000" } },
    { .parts = { .at = "18446744073709551615" } },
    { .parts = { .at = "00" } },
    { .parts = { .at = "01700000000123" } },
    { .parts = { .at = "-1" } },
    { .parts = { .at = "+1" } },
    { .parts = { .at = "1e3" } },
    { .parts = { .at = "" } },
    { .parts = { .at = "1 " } },
    /* by which version */
    { .parts = { .version = "1.0.0-beta+K\xc3\xb6ln:7" }, .in_short = true },
    { .parts = { .version = "x" }, .in_short = true },
    { .parts = { .version = FORTY, .at = "999999999999999999" }, .in_short = true },
    { .parts = { .version = FORTY "x" } },
    { .parts = { .version = "" } },
    { .parts = { .version = "0.1.0 beta" } },
    { .parts = { .version = " " } },
    { .parts = { .version = "0.1\\n" } },
    { .parts = { .version = "0.1\\\"0" } },
    { .parts = { .version = "0.1\n" } },
    { .parts = { .version = "0.1\t" }, .in_short = true },
    /* what comes behind it */
    { .parts = { .type = "Z" }, .in_short = true },
    { .parts = { .type = "z" }, .in_short = true },
    { .parts = { .type = "A" }, .in_short = true },
    { .parts = { .type = "a:b\"}", .source = "5" }, .in_short = true },
    { .parts = { .type = "a:1:2\"}" }, .in_short = true },
    { .parts = { .type = "a\",\"x\":\"K\xc3\xb6ln \\n \xf0\x9f\x9a\x80\"}", .source = "5" }, .in_short = true },
    { .parts = { .type = "a\"} and {\"event_id\":2" }, .in_short = true },
    { .parts = { .type = "" } },
    { .parts = { .type = "\"}" } },
    { .parts = { .type = "7Type\"}" } },
    { .parts = { .type = "7:Type\"}" } },
    { .parts = { .type = "7:Type\"}", .source = "5" } },
    { .parts = { .type = ":Type\"}" } },
    { .parts = { .type = "_Type\"}" } },
    { .parts = { .type = "[\"}" } },
    { .parts = { .type = "@\"}" } },
    { .parts = { .type = "`\"}" } },
    { .parts = { .type = "{\"}" } },
    { .parts = { .type = "/\"}" } },
    { .parts = { .type = "\xc3\xa4\"}" } },
    { .parts = { .type = " Type\"}" } },
    { .parts = { .type = "Type\",\"x\":\n1}" } },
    { .parts = { .type = "Type\"}\n" } },
    /* other texts */
    { .text = "" },
    { .text = "7" },
    { .text = "7:ActivityCompleted\",\"result\":\"7\"}" },
    { .text = ":" },
    { .text = "ActivityCompleted\",\"result\":\"7\"}" },
    { .text = "no JSON at all" },
    { .text = "\n" },
    { .text = "{" },
    { .text = "{}" },
    { .text = "{\"event_id\":" },
    { .text = "{\"event_id\":2" },
    { .instance = "x", .text = EVENT(",\"instance_id\":\"x\"" TAIL, "Type\"}"), .in_short = true },
    { .instance = "x1", .text = EVENT(",\"instance_id\":\"x1\"" TAIL, "") },
    { .instance = "x2", .text = " " EVENT(",\"instance_id\":\"x2\"" TAIL, "Type\"}") },
    { .instance = "x3", .text = "{ \"event_id\":2,\"instance_id\":\"x3\"" TAIL "Type\"}" },
    { .instance = "x4", .text = "{\"event_id\": 2,\"instance_id\":\"x4\"" TAIL "Type\"}" },
    { .instance = "x5", .text = "{\"event_id\":2, \"instance_id\":\"x5\"" TAIL "Type\"}" },
    { .instance = "x6", .text = "{\"instance_id\":\"x6\",\"event_id\":2" TAIL "Type\"}" },
    { .instance = "x7", .text = "{\"event_id\":2,\"instance_id\":\"x7\",\"source_event_id\":1" TAIL "Type\"}" },
    { .instance = "x8",
      .text = "{\"event_id\":2,\"source_event_id\":1,\"source_event_id\":1,\"instance_id\":\"x8\"" TAIL "Type\"}" },
    { .instance = "x9",
      .text = "{\"event_id\":2,\"instance_id\":\"x9\",\"execution_id\":1,\"duroxide_version\":\"" VERSION
              "\",\"timestamp_ms\":" WRITTEN_MS ",\"type\":\"Type\"}" },
    { .instance = "x10",
      .text = "{\"event_id\":2,\"instance_id\":\"x10\",\"execution_id\":1,\"timestamp_ms\":" WRITTEN_MS
              ",\"type\":\"Type\",\"duroxide_version\":\"" VERSION "\"}" },
    { .instance = "x11",
      .text = "{\"event_id\":2,\"instance_id\":\"x11\",\"execution_id\":1,\"timestamp_ms\":" WRITTEN_MS
              ",\"duroxide_version\":\"" VERSION "\",\"more\":1,\"type\":\"Type\"}" },
    { .instance = "x12",
      .text = "{\"event_id\":2,\"instance_id\":\"x12\",\"execution_id\":1,\"timestamp_ms\":" WRITTEN_MS
              ",\"duroxide_version\":\"" VERSION },
};

static const char *case_text(const bench *b, const char *instance, const event_case *c) {
    return c->text != NULL ? c->text : event_from(b, instance, 2, c->parts).json.data;
}

static void each_alone(void **state) {
    enum { CASES = AS_MANY_AS(event_cases) };
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    story stories[CASES];
    for (size_t i = 0; i < CASES; i++) {
        const event_case *c = &event_cases[i];
        const char *instance = c->instance != NULL ? c->instance : dur_arena_format(b->arena, "x-%zu", i);
        dur_orchestration_item item = begun(&r, instance);
        dur_event_row *event = dur_arena_zalloc(b->arena, sizeof(*event));
        *event = event_of(2);
        event->json = text_of(case_text(b, instance, c));
        stories[i] = commit(&r, &item, event, 1);
        if (rows(&r, instance, "written IS NOT NULL") != c->in_short)
            fail_msg("case %zu is%s in short: %s", i, c->in_short ? " not" : "", event->json.data);
        read_by_anybody(&r, &stories[i]);
        read_by_its_lane(&r, &stories[i]);
    }
    ASSERT_OK(b, dur_store_check(b->store, &b->err));
    read_by_who_comes_next(&r, stories, CASES);
}

/* Texts end where they say, whatever comes behind them in memory: a good one, cut at each of its bytes. */
static void cut_anywhere(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x");
    size_t whole = good_event(b, "x", 1000).json.size, total = whole + 1,
           letters = strlen("ActivityCompleted\",\"result\":\"7\"}");
    dur_event_row *events = dur_arena_zalloc(b->arena, total * sizeof(*events));
    for (size_t i = 0; i < total; i++) {
        events[i] = good_event(b, "x", i == 0 ? 2 : 1000 + 2 * i);
        events[i].json.size = i; /* the first one is empty, and its id no matter */
    }
    story s = commit(&r, &item, events, total);
    expect_rows(&r, "x", (long)letters, (long)(total - letters));
    read_by_anybody(&r, &s);
    read_by_its_lane(&r, &s);
    read_by_who_comes_next(&r, &s, 1);
}

/* The row of one event as it is there, so that what is left out is known, too. */
static void what_is_stored(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x");
    dur_event_row events[] = { event_from(b, "x", 2, (parts){ 0 }), event_from(b, "x", 3, (parts){ .source = "2" }) };
    (void)commit(&r, &item, events, 2);
    expect_rows(&r, "x", 1, 0);
    assert_int_equal(rows(&r, "x",
                          "events = 2 AND written = '" WRITTEN_MS " " VERSION "' AND json ="
                          " E'ActivityCompleted\",\"result\":\"7\"}\\n2:ActivityCompleted\",\"result\":\"7\"}'"),
                     1);
    rig_close(&r);
}

/* Whatever this code writes is in short, where its id needs no escapes. */
static void every_kind(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_failure failure = { .category = DUR_FAILURE_APPLICATION, .message = "no" };
    static dur_event_row events[2 * EVENT_KINDS];
    size_t total = 0;
    dur_orchestration_item item = begun(&r, "x");
    for (int i = 0; i < 2 * EVENT_KINDS; i++) {
        dur_event event = { .kind = (dur_event_kind)(i / 2),
                            .has_source_event_id = i % 2 == 1,
                            .event_id = 2 + total,
                            .source_event_id = 1,
                            .instance_id = "x",
                            .execution_id = 1,
                            .timestamp_ms = 1700000000123,
                            .duroxide_version = VERSION,
                            .name = "K\xc3\xb6ln",
                            .version = "1.0.0",
                            .instance = "y",
                            .input = "7:\n\"",
                            .output = "",
                            .result = "{}",
                            .data = "d",
                            .reason = "r",
                            .key = "k",
                            .value = "v",
                            .status = "s",
                            .details = &failure };
        if (dur_event_row_from(&events[total], b->arena, &event, NULL) == DUR_OK) total++;
    }
    assert_true(total >= EVENT_KINDS);
    story s = commit(&r, &item, events, total);
    assert_true(rows(&r, "x", "written IS NOT NULL") > 1);
    assert_int_equal(rows(&r, "x", "written IS NULL"), 0);
    read_by_anybody(&r, &s);
    read_by_its_lane(&r, &s);
    read_by_who_comes_next(&r, &s, 1);
}

/* ---- several ----------------------------------------------------------------------------------------------------- */

enum { TURN_MAX = 12 };

typedef struct turn_case {
    parts parts[TURN_MAX]; /* up to the first without a type */
    size_t at_least;       /* bytes of the text of event 2 … */
    size_t together;       /* … and of it, the next, and the line break between them */
    long in_short, in_full;
} turn_case;

#define T "Type\"}"

static const turn_case turn_cases[] = {
    { .parts = { { .type = T }, { .type = T }, { .type = T, .source = "2" } }, .in_short = 1 },
    /* all of them or none */
    { .parts = { { .type = T }, { .type = T, .at = "1700000000124" } }, .in_full = 1 },
    { .parts = { { .type = T }, { .type = T, .version = "0.1.1" } }, .in_full = 1 },
    { .parts = { { .type = T }, { .type = T, .version = "0.1.00" } }, .in_full = 1 },
    { .parts = { { .type = T }, { .type = T, .version = "0.1." } }, .in_full = 1 },
    { .parts = { { .type = T }, { .type = T }, { .type = T, .at = "1" } }, .in_full = 1 },
    { .parts = { { .type = T, .at = "1" }, { .type = T }, { .type = T } }, .in_full = 1 },
    { .parts = { { .type = T }, { .type = T, .instance = "another" } }, .in_full = 1 },
    { .parts = { { .type = T, .instance = "another" }, { .type = T } }, .in_full = 1 },
    { .parts = { { .type = T }, { .type = T, .id = "2" } }, .in_full = 1 },
    { .parts = { { .type = T }, { .type = T, .source = "0" }, { .type = T } }, .in_full = 1 },
    { .parts = { { .type = T }, { .type = "7" T }, { .type = T } }, .in_full = 1 },
    /* a line break parts the rows; the others are in short */
    { .parts = { { .type = T }, { .type = T }, { .type = T "\n" }, { .type = T } }, .in_short = 2, .in_full = 1 },
    { .parts = { { .type = T "\n" }, { .type = T }, { .type = T } }, .in_short = 1, .in_full = 1 },
    /* so does a text that fills a row, which is one that fits into it, or is too large */
    { .parts = { { .type = T }, { .type = T } }, .at_least = 1700, .in_short = 1 },
    { .parts = { { .type = T }, { .type = T } }, .together = 1900, .in_short = 1 },
    { .parts = { { .type = T }, { .type = T } }, .together = 1901, .in_short = 2 },
    { .parts = { { .type = T }, { .type = T, .at = "1" } }, .together = 1900, .in_full = 1 },
    { .parts = { { .type = T }, { .type = T } }, .at_least = 1899, .in_short = 2 },
    { .parts = { { .type = T }, { .type = T } }, .at_least = 1900, .in_short = 2 },
    { .parts = { { .type = T }, { .type = T } }, .at_least = 1901, .in_short = 1, .in_full = 1 },
    { .parts = { { .type = T }, { .type = T } }, .at_least = 6000, .in_short = 1, .in_full = 1 },
    /* rows of different turns' nodes, parted by one that fills a row */
    { .parts = { { .type = T }, { .type = T, .at = "1" }, { .type = T, .at = "1" } }, .at_least = 1900, .in_short = 2 },
    { .parts = { { .type = T }, { .type = T, .at = "1" }, { .type = T, .at = "2" } },
      .at_least = 1900,
      .in_short = 1,
      .in_full = 1 },
};

static dur_event_row filled(const bench *b, dur_event_row event, size_t at_least) {
    static char text[TEXT_MAX + 1];
    size_t size = event.json.size, more = at_least > size ? at_least - size : 0;
    assert_true(size + more < sizeof(text));
    memcpy(text, event.json.data, size - 1);
    memset(text + size - 1, 'x', more);
    memcpy(text + size - 1 + more, "}", 2);
    event.json = text_of(dur_arena_strdup(b->arena, text));
    return event;
}

static void several_of_a_turn(void **state) {
    enum { CASES = AS_MANY_AS(turn_cases) };
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    story stories[CASES];
    for (size_t i = 0; i < CASES; i++) {
        const turn_case *c = &turn_cases[i];
        const char *instance = dur_arena_format(b->arena, "turn %zu", i);
        dur_event_row *events = dur_arena_zalloc(b->arena, TURN_MAX * sizeof(*events));
        dur_orchestration_item item = begun(&r, instance);
        size_t total = 0;
        for (; c->parts[total].type != NULL; total++)
            events[total] = event_from(b, instance, 2 + total, c->parts[total]);
        if (c->together > 0) events[0] = filled(b, events[0], c->together - 1 - events[1].json.size);
        if (c->at_least > 0) events[0] = filled(b, events[0], c->at_least);
        stories[i] = commit(&r, &item, events, total);
        if (rows(&r, instance, "written IS NOT NULL") != c->in_short ||
            rows(&r, instance, "written IS NULL") != c->in_full)
            fail_msg("case %zu: %ld rows in short, %ld in full", i, rows(&r, instance, "written IS NOT NULL"),
                     rows(&r, instance, "written IS NULL"));
        read_by_anybody(&r, &stories[i]);
        read_by_its_lane(&r, &stories[i]);
    }
    assert_int_equal(count(&r, "history", "octet_length(json) > 1900 AND (events > 1 OR written IS NOT NULL)"), 0);
    ASSERT_OK(b, dur_store_check(b->store, &b->err));
    read_by_who_comes_next(&r, stories, CASES);
}

/* Holes between the ids: each is a row, and says its own id. */
static void with_holes(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x");
    dur_event_row events[] = { good_event(b, "x", 2), good_event(b, "x", 4), good_event(b, "x", 5),
                               good_event(b, "x", 123456) };
    story s = commit(&r, &item, events, 4);
    expect_rows(&r, "x", 3, 0);
    read_by_anybody(&r, &s);
    read_by_its_lane(&r, &s);
    read_by_who_comes_next(&r, &s, 1);
}

/* An execution says its number; those before it are read as they were. */
static void of_another_execution(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x");
    dur_event_row first = good_event(b, "x", 2);
    (void)commit(&r, &item, &first, 1);
    dur_event_row second[] = { event_from(b, "x", 1, (parts){ .execution = "2" }),
                               event_from(b, "x", 2, (parts){ .execution = "2", .source = "1" }) };
    dur_turn_commit turn = turn_of(&item, second, 0);
    turn.execution_id = 2;
    turn.event_count = 2;
    (void)run(&r, &turn, 1, NULL);
    dur_event_row *events;
    size_t total;
    assert_int_equal(count(&r, "history", "execution_id = 2 AND written IS NOT NULL AND events = 2"), 1);
    ASSERT_OK(b, dur_store_read(b->store, b->arena, "x", 2, &events, &total, &b->err));
    assert_int_equal(total, 2);
    same_text("second", events[0].json, second[0].json);
    same_text("second", events[1].json, second[1].json);
    ASSERT_OK(b, dur_store_read(b->store, b->arena, "x", 1, &events, &total, &b->err));
    assert_int_equal(total, 2);
    same_text("first", events[1].json, first.json);
    rig_close(&r);
}

/* ---- whatever way they are written ------------------------------------------------------------------------------- */

static void read_by_both(const rig *r, const story *s) {
    read_by_anybody(r, s);
    read_by_its_lane(r, s);
}

/* A turn that sends a message is none of the usual ones. */
static void by_the_long_way(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x"), other = begun(&r, "y");
    dur_message_row sent = message_of(DUR_WORK_EXTERNAL_RAISED, other.instance);
    dur_event_row events[] = { good_event(b, "x", 2), good_event(b, "x", 3),
                               event_from(b, "x", 4, (parts){ .at = "5" }), good_event(b, "x", 6),
                               good_event(b, "x", 7) };
    dur_turn_commit turn = turn_of(&item, events, 1);
    turn.event_count = 5;
    turn.orchestrator_items = &sent;
    turn.orchestrator_item_count = 1;
    (void)run(&r, &turn, 1, NULL);
    story stories[] = { { item, events, 5 }, { other, NULL, 0 } };
    expect_rows(&r, "x", 1, 1);
    read_by_both(&r, &stories[0]);
    read_by_who_comes_next(&r, stories, 2);
}

/* By who has nothing but the token of a timed lock; events from outside are never put in short, and stay between. */
static void by_a_timed_lock(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    make_running(b, "x");
    dur_event_row events[] = { good_event(b, "x", 2), good_event(b, "x", 3), good_event(b, "x", 4) };
    ASSERT_OK(b, dur_store_append(b->store, "x", 1, &events[0], 1, &b->err));
    dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, "x");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &event, 0, &b->err));
    dur_orchestration_item item;
    ASSERT_OK(b, dur__pg_methods.fetch_orchestration_item(b->store, b->arena, &(dur_fetch){ .lock_ms = 60000 }, &item,
                                                          &b->err));
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .instance = "x",
                             .execution_id = 1,
                             .events = &events[1],
                             .event_count = 2,
                             .expected_last = 2 };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &turn, 1, &b->err));
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    expect_rows(&r, "x", 1, 1);
    read_by_anybody(&r, &(story){ item, events, 3 });
    rig_close(&r);
}

/* ---- whatever they look like ------------------------------------------------------------------------------------- */

enum { RANDOM_TURNS = 60, RANDOM_EVENTS = 60, CHANGES_MAX = 3 };

static uint64_t next_random(uint64_t *seed) { /* splitmix64 */
    uint64_t z = (*seed += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t below(uint64_t *seed, size_t end) {
    return (size_t)(next_random(seed) % end);
}

/* What a byte is taken for is what matters in these texts. */
static char random_byte(uint64_t *seed) {
    static const char bytes[] = "0123456789012345\"\"::,,{}\\ \n-aAzZx._";
    return bytes[below(seed, sizeof(bytes) - 1)];
}

static dur_text changed(const bench *b, uint64_t *seed, dur_text text) {
    char *out = dur_arena_zalloc(b->arena, text.size + CHANGES_MAX + 1);
    size_t size = text.size;
    memcpy(out, text.data, size);
    for (size_t n = below(seed, CHANGES_MAX + 1); n > 0 && size > 0; n--) {
        size_t at = below(seed, size);
        switch (below(seed, 4)) {
        case 0:
            memmove(out + at, out + at + 1, --size - at);
            break;
        case 1:
            memmove(out + at + 1, out + at, size++ - at);
            out[at] = random_byte(seed);
            break;
        case 2: /* twice */
            memmove(out + at + 1, out + at, size++ - at);
            break;
        default:
            out[at] = random_byte(seed);
        }
    }
    out[size] = '\0';
    return (dur_text){ out, size };
}

/* The tests print TAP, so the seed is a comment; DURITE_TEST_SEED gives another. */
static void changed_at_random(void **state) {
    const char *given = getenv("DURITE_TEST_SEED");
    uint64_t seed =
        given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) * 1000u + (uint64_t)getpid() % 1000u;
    printf("# seed %llu\n", (unsigned long long)seed);
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "1:x");
    static dur_event_row events[RANDOM_TURNS * RANDOM_EVENTS];
    uint64_t last = 1;
    for (size_t i = 0; i < RANDOM_TURNS; i++) {
        dur_event_row *turns_own = &events[i * RANDOM_EVENTS];
        uint64_t expected = last;
        for (size_t k = 0; k < RANDOM_EVENTS; k++) {
            last += k == 0 || below(&seed, 4) == 0 ? 1 : 2; /* most of them are alone in their rows */
            turns_own[k] = good_event(b, "1:x", last);
            turns_own[k].json = changed(b, &seed, turns_own[k].json);
        }
        dur_turn_commit turn = turn_of(&item, turns_own, expected);
        turn.event_count = RANDOM_EVENTS;
        (void)run(&r, &turn, 1, NULL);
    }
    story s = { item, events, AS_MANY_AS(events) };
    assert_true(rows(&r, "1:x", "written IS NOT NULL") > RANDOM_TURNS * RANDOM_EVENTS / 6);
    assert_true(rows(&r, "1:x", "written IS NULL") > RANDOM_TURNS * RANDOM_EVENTS / 6);
    read_by_both(&r, &s);
    read_by_who_comes_next(&r, &s, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(each_alone),        PG_TEST(cut_anywhere),      PG_TEST(what_is_stored),       PG_TEST(every_kind),
        PG_TEST(several_of_a_turn), PG_TEST(with_holes),        PG_TEST(of_another_execution), PG_TEST(by_the_long_way),
        PG_TEST(by_a_timed_lock),   PG_TEST(changed_at_random),
    };
    PG_MAIN(tests);
}
