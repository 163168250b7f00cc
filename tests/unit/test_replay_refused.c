/* Nondeterminism: every report names the event, both sides and the place; what is only worth a warning; what is no
 * history. */
#include "replay_driver.h"

/* One handler in two shapes: `shape` says what today's code does. */
static const char *shape;
static bool is(const char *name) {
    return strcmp(shape, name) == 0;
}

static dur_outcome changing(dur_ctx *ctx, const char *input) {
    (void)input;
    if (is("extra first")) dur_timer(ctx, 1);
    if (is("marker")) dur_patched(ctx, "new-step");
    if (is("name"))
        dur_activity(ctx, "Pack", "in");
    else if (is("input"))
        dur_activity(ctx, "Ship", "im");
    else if (is("tag"))
        dur_activity(ctx, "Ship", "in", .tag = "gpu");
    else if (is("session"))
        dur_activity(ctx, "Ship", "in", .session = "s");
    else if (is("kind"))
        dur_pulse(ctx, "Ship");
    else if (!is("missing") && !is("swapped"))
        dur_activity(ctx, "Ship", "in");
    dur_timer(ctx, is("duration") ? 60 : 50);
    if (is("swapped")) dur_activity(ctx, "Ship", "in");
    dur_pulse(ctx, is("event") ? "f" : "e");
    dur_message(ctx, is("queue") ? "r" : "q");
    dur_orchestration(ctx, "C", "", .version = is("version") ? "2.0.0" : NULL,
                      .instance = is("child") ? "another" : "mine");
    dur_start(ctx, "S", "", .instance = is("chained") ? "another" : "its");
    dur_status_set(ctx, is("status") ? "b" : "a");
    dur_kv_set(ctx, "k", is("value") ? "2" : "1");
    if (!is("clear")) dur_kv_clear(ctx, "k");
    dur_kv_clear_all(ctx);
    if (!is("guid"))
        dur_now_ms(ctx);
    else
        dur_guid(ctx);
    dur_future *timer = dur_timer(ctx, 5), *dropped = NULL;
    dropped = dur_activity(ctx, "D", "");
    if (is("returns early")) return dur_complete(ctx, "");
    dur_await(timer);
    if (!is("no drop")) dur_drop(dropped);
    if (is("extra last")) dur_activity(ctx, "More", "");
    dur_await(dur_pulse(ctx, "end"));
    return is("fails") ? dur_fail(ctx, "") : dur_complete(ctx, "");
}

/* Record with the plain shape, replay with another. */
static void expect_report(const char *changed, bool finished, const char *report) {
    driver d;
    driver_init(&d, changing);
    shape = "";
    assert_int_equal(driver_start(&d, ""), DUR_OK);
    driver_fire(&d, 14);
    if (finished) driver_raise(&d, "end", "");
    shape = changed;
    int code = driver_replay(&d);
    if (report == NULL) {
        if (code != DUR_OK) fail_msg("%s: %s", changed, d.err.message);
    } else {
        assert_int_equal(code, DUR_ENONDETERMINISM);
        if (strstr(d.err.message, report) == NULL) fail_msg("%s:\n  %s\nnot in\n  %s", changed, report, d.err.message);
        bool took;
        assert_int_equal(dur__exec_step(d.exec, 1, &took, &d.err), DUR_ENONDETERMINISM); /* stays broken */
    }
    driver_free(&d);
}

static void test_reports(void **state) {
    (void)state;
    expect_report("", true, NULL);
    expect_report("extra first", false,
                  "event 2: history holds activity \"Ship\", the code asked for timer at " __FILE__);
    expect_report("name", false, "event 2: history holds activity \"Ship\", the code asked for activity \"Pack\" at ");
    expect_report(
        "input", false,
        "activity \"Ship\" with another input (2 bytes recorded, 2 asked for, first difference at byte 1) at ");
    expect_report("tag", false, "the code asked for activity \"Ship\" tag gpu with another tag at ");
    expect_report("session", false, "the code asked for activity \"Ship\" session s with another session at ");
    expect_report("kind", false,
                  "event 2: history holds activity \"Ship\", the code asked for wait for pulse \"Ship\" at ");
    expect_report("missing", false, "event 2: history holds activity \"Ship\", the code asked for timer at ");
    expect_report("swapped", false, "; that stands at event 3");
    expect_report("event", false,
                  "event 4: history holds wait for pulse \"e\", the code asked for wait for pulse \"f\" at ");
    expect_report("queue", false,
                  "event 5: history holds wait for message \"q\", the code asked for wait for message \"r\" at ");
    expect_report("version", false, "sub-orchestration \"C\" version 2.0.0 as mine with another version at ");
    expect_report("child", false,
                  "event 6: history holds sub-orchestration \"C\" as mine, the code asked for sub-orchestration \"C\" "
                  "as another with another instance at ");
    expect_report("chained", false,
                  "event 7: history holds detached orchestration \"S\" as its, the code asked for detached "
                  "orchestration \"S\" as another");
    expect_report("value", false,
                  "event 9: history holds set of key \"k\", the code asked for set of key \"k\" with another value");
    expect_report("clear", false, "event 10: history holds clear of key \"k\", the code asked for clear of all keys");
    expect_report("guid", false,
                  "event 12: history holds system call utc_now_ms, the code asked for system call new_guid at ");
    expect_report("returns early", false,
                  "after event 15: history holds no further command before the next arrival, the code asked for drop "
                  "of activity #2");
    expect_report("no drop", false,
                  "event 17: history holds drop of activity #15, the code asked for wait for pulse \"end\" at ");
    expect_report("extra last", false,
                  "event 18: history holds wait for pulse \"end\", the code asked for activity \"More\" at ");
    expect_report("fails", true, "history holds completion, the code asked for failure");
}

static void test_warnings(void **state) {
    (void)state;
    static const char *const changes[] = { "duration", "status" };
    static const char *const texts[] = { "asks for a timer with another duration",
                                         "asks for a status with another text" };
    for (int i = 0; i < 2; i++) {
        driver d;
        driver_init(&d, changing);
        shape = "";
        driver_start(&d, "");
        shape = changes[i];
        assert_int_equal(driver_replay(&d), DUR_OK);
        const dur__turn *turn = dur__exec_turn(d.exec);
        assert_int_equal(turn->log_count, 1);
        assert_int_equal(turn->logs[0].level, DUR_LOG_WARN);
        assert_non_null(strstr(turn->logs[0].message, texts[i]));
        driver_free(&d);
    }
}

/* The code gives something where history ends, or nothing where it goes on. */
static dur_outcome at_the_end(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_timer(ctx, 1));
    if (!is("less")) dur_activity(ctx, "Last", "");
    if (is("more")) dur_activity(ctx, "Beyond", "");
    dur_await(dur_pulse(ctx, "e"));
    return dur_complete(ctx, "");
}
static void test_end_of_history(void **state) {
    (void)state;
    static const char *const shapes[] = { "more", "less" };
    static const char *const reports[] = {
        "event 5: history holds wait for pulse \"e\", the code asked for activity \"Beyond\"",
        "event 4: history holds activity \"Last\", the code asked for wait for pulse \"e\"",
    };
    for (int i = 0; i < 2; i++) {
        driver d;
        driver_init(&d, at_the_end);
        shape = "";
        driver_start(&d, "");
        driver_fire(&d, 2);
        shape = shapes[i];
        assert_int_equal(driver_replay(&d), DUR_ENONDETERMINISM);
        assert_non_null(strstr(d.err.message, reports[i]));
        free(d.rows[--d.row_count]); /* cut between two commands: no whole group, refused too */
        shape = "";
        assert_int_equal(driver_replay(&d), DUR_ENONDETERMINISM);
        assert_non_null(strstr(d.err.message, "after event 4: history holds no further command"));
        driver_free(&d);
    }
}

static dur_outcome waits_only(dur_ctx *ctx, const char *input) {
    (void)input;
    if (!is("silent")) dur_activity(ctx, "A", "");
    dur_await(dur_pulse(ctx, "e"));
    return dur_complete(ctx, "");
}
static void test_left_over_record(void **state) {
    (void)state;
    driver d;
    driver_init(&d, waits_only);
    shape = "";
    driver_start(&d, "");
    dur_event swapped =
        driver_event(&d, 3); /* the wait first, then the activity: the code stops asking after the wait */
    assert_int_equal(swapped.kind, DUR_EVENT_EXTERNAL_SUBSCRIBED);
    shape = "silent";
    char *second = d.rows[1];
    d.rows[1] = dur__xstrdup("{\"event_id\":2,\"instance_id\":\"inst\",\"execution_id\":1,\"timestamp_ms\":1000,"
                             "\"duroxide_version\":\"0.1.0\",\"type\":\"ExternalSubscribed\",\"name\":\"e\"}");
    free(second);
    assert_int_equal(driver_replay(&d), DUR_ENONDETERMINISM);
    assert_non_null(strstr(d.err.message,
                           "event 3: history holds wait for pulse \"e\", the code did not ask for it (last call at "));
    assert_non_null(strstr(d.err.message, "it waits for pulse e #2 ("));
    driver_free(&d);
}

/* ---- markers (R9) ---- */

static dur_outcome marked(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_activity(ctx, "A", ""));
    bool is_new = !is("before") && !is("removed") && dur_patched(ctx, "b");
    if (is_new || is("removed"))
        dur_activity(ctx, "New", "");
    else
        dur_activity(ctx, "Old", "");
    dur_await(dur_pulse(ctx, "e"));
    bool again = is("asks") && dur_patched(ctx, "b");
    return dur_completef(ctx, "%d%d", is_new, again);
}
static void test_markers(void **state) {
    (void)state;
    driver d;
    driver_init(&d, marked); /* written before the marker was in the code: false, and it stays so */
    shape = "before";
    driver_start(&d, "");
    driver_done(&d, 2, "");
    shape = "asks";
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_raise(&d, "e", "");
    assert_string_equal(d.output, "00");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);

    driver_init(&d, marked); /* in the stored part before it: asked for in a new group, it is true */
    shape = "before";
    driver_start(&d, "");
    shape = "asks";
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_done(&d, 2, "");
    assert_string_equal(driver_event(&d, 4).name, "__duroxide_syscall:patched");
    assert_string_equal(driver_event(&d, 4).input, "b");
    assert_int_equal(driver_replay(&d), DUR_OK);
    shape = "removed"; /* the call can be taken out later */
    assert_int_equal(driver_replay(&d), DUR_OK);
    shape = "asks";
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_raise(&d, "e", "");
    assert_string_equal(d.output, "11");
    driver_free(&d);
}

/* ---- histories that are none ---- */

static void corrupt(const dur_event *events, size_t count, const char *report) {
    driver d;
    driver_init(&d, waits_only);
    shape = "";
    d.exec = dur__exec_new(&d.options);
    int code = DUR_OK;
    for (size_t i = 0; i < count && code == DUR_OK; i++)
        code = dur__exec_replay_event(d.exec, &events[i], &d.err);
    if (code == DUR_OK) code = dur__exec_replay_end(d.exec, &d.err);
    assert_int_equal(code, DUR_ECORRUPT);
    if (strstr(d.err.message, report) == NULL) fail_msg("%s not in %s", report, d.err.message);
    driver_free(&d);
}
static void test_corrupt(void **state) {
    (void)state;
    const dur_event started = { .kind = DUR_EVENT_ORCHESTRATION_STARTED,
                                .event_id = 1,
                                .name = "Test",
                                .version = "1.0.0",
                                .input = "",
                                .trace = 1 };
    const dur_event activity = { .kind = DUR_EVENT_ACTIVITY_SCHEDULED, .event_id = 2, .name = "A", .input = "" };
    const dur_event wait = { .kind = DUR_EVENT_EXTERNAL_SUBSCRIBED, .event_id = 3, .name = "e" };
    const dur_event come = { .kind = DUR_EVENT_EXTERNAL_EVENT, .event_id = 4, .name = "e", .data = "" };
    const dur_event drop = { .kind = DUR_EVENT_ACTIVITY_CANCEL_REQUESTED,
                             .event_id = 5,
                             .has_source_event_id = true,
                             .source_event_id = 2,
                             .reason = "" };
    const dur_event done = { .kind = DUR_EVENT_ORCHESTRATION_COMPLETED, .event_id = 6, .output = "" };
    const dur_event late = { .kind = DUR_EVENT_EXTERNAL_EVENT, .event_id = 7, .name = "e", .data = "" };
    dur_event twice = started;
    twice.event_id = 2;
    corrupt(NULL, 0, "the history is empty");
    corrupt(&activity, 1, "must begin with OrchestrationStarted");
    corrupt((dur_event[]){ started, twice }, 2, "a second OrchestrationStarted");
    corrupt((dur_event[]){ started, activity, activity }, 3, "event ids do not ascend");
    corrupt((dur_event[]){ started, activity, come }, 3, "event 4: an event before it is missing");
    dur_event marker = { .kind = DUR_EVENT_ACTIVITY_SCHEDULED, .event_id = 4, .name = "__duroxide_syscall:patched" };
    marker.input = "";
    corrupt((dur_event[]){ started, activity, wait, marker }, 4,
            "event 4: the system call is not followed by its answer");
    corrupt((dur_event[]){ started, activity, wait, come, drop, done, late }, 7,
            "event 7: it stands behind the terminal event");
}

/* C24: an answer of the wrong kind inside history. */
static void test_answer_of_the_wrong_kind(void **state) {
    (void)state;
    driver d;
    driver_init(&d, waits_only);
    shape = "";
    d.exec = dur__exec_new(&d.options);
    const dur_event events[] = {
        { .kind = DUR_EVENT_ORCHESTRATION_STARTED,
          .event_id = 1,
          .name = "Test",
          .version = "1.0.0",
          .input = "",
          .trace = 1 },
        { .kind = DUR_EVENT_ACTIVITY_SCHEDULED, .event_id = 2, .name = "A", .input = "" },
        { .kind = DUR_EVENT_EXTERNAL_SUBSCRIBED, .event_id = 3, .name = "e" },
        { .kind = DUR_EVENT_TIMER_FIRED, .event_id = 4, .has_source_event_id = true, .source_event_id = 2 },
    };
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(dur__exec_replay_event(d.exec, &events[i], &d.err), DUR_OK);
    assert_int_equal(dur__exec_replay_end(d.exec, &d.err), DUR_ENONDETERMINISM);
    assert_non_null(strstr(d.err.message, "event 4: history holds TimerFired of event 2, which is the activity A #2"));
    driver_free(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_warnings),
        cmocka_unit_test(test_end_of_history),
        cmocka_unit_test(test_left_over_record),
        cmocka_unit_test(test_markers),
        cmocka_unit_test(test_corrupt),
        cmocka_unit_test(test_answer_of_the_wrong_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
