/*
 * Goldens: histories of tests/replay, ours and the original's, against handlers of today.  Never edited, only added: a
 * change of the engine that rejects one would reject what is running somewhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "replay/golden_handlers.h"
#include <durite/replay.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dur_outcome changed(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_activity(ctx, "SomethingElse", ""));
    return dur_complete(ctx, "");
}

static const dur_handler changed_handlers[] = {
    DUR_ORCHESTRATION("Order", NULL, changed),      DUR_ORCHESTRATION("Inbox", "1.0.0", changed),
    DUR_ORCHESTRATION("TwoLegs", "1.0.0", changed), DUR_ORCHESTRATION("Race", "1.0.0", changed),
    DUR_ORCHESTRATION("Mailer", "1.0.0", changed),  DUR_HANDLERS_END,
};

static const struct {
    const char *name;
    uint64_t events;
    bool finished;
} goldens[] = {
    { "order-completed", 13, true }, { "order-waiting", 5, false },     { "order-cancelled", 10, true },
    { "inbox-continued", 12, true }, { "original-batch", 10, true },    { "original-select", 13, true },
    { "original-queue", 13, true },  { "original-cancelled", 9, true },
};

static char *read_golden(const char *name) {
    char path[512];
    snprintf(path, sizeof(path), "%s/tests/replay/%s.json", DURITE_SOURCE_DIR, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("%s: not there", path);
    char *text = calloc(1, 1 << 16);
    assert_true(fread(text, 1, (1 << 16) - 1, file) > 0);
    fclose(file);
    return text;
}

static void test_goldens(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(goldens) / sizeof(goldens[0]); i++) {
        char *history = read_golden(goldens[i].name);
        dur_replay_report report = { .size = sizeof(report) };
        dur_error err = DUR_ERROR_INIT;
        int code = dur_replay_history(&report, golden_handlers, history, &err);
        if (code != DUR_OK) fail_msg("%s: %s", goldens[i].name, err.message);
        assert_int_equal(report.events, goldens[i].events);
        assert_int_equal(report.finished, goldens[i].finished);
        assert_int_equal(dur_replay_history(NULL, changed_handlers, history, &err), DUR_ENONDETERMINISM);
        free(history);
    }
}

/* Two executions; the second asks for what the first left in its keys. */
static dur_outcome counter(dur_ctx *ctx, const char *input) {
    const char *before = dur_kv_get(ctx, "count");
    dur_await(dur_activity(ctx, "Count", before != NULL ? before : "none"));
    dur_kv_set(ctx, "count", input);
    if (dur_execution_id(ctx) == 1) return dur_continue_as_new(ctx, "two");
    return dur_complete(ctx, "");
}

/* One execution of it: what it was given, what it asked for, and its last event. */
static void counter_history(char out[2048], int execution, const char *input, const char *asked, const char *last) {
    const char *format = "%s{\"event_id\":%d,\"instance_id\":\"c\",\"execution_id\":%d,\"timestamp_ms\":7,"
                         "\"duroxide_version\":\"0.1.0\",\"type\":\"%s\",%s}";
    char start[256], activity[256], key[256];
    snprintf(start, sizeof(start), "\"name\":\"Counter\",\"version\":\"1.0.0\",\"input\":\"%s\",\"trace\":1", input);
    snprintf(activity, sizeof(activity), "\"name\":\"Count\",\"input\":\"%s\"", asked);
    snprintf(key, sizeof(key), "\"key\":\"count\",\"value\":\"%s\",\"last_updated_at_ms\":7", input);
    const char *const types[] = { "OrchestrationStarted", "ActivityScheduled", "ActivityCompleted", "KeyValueSet",
                                  execution == 1 ? "OrchestrationContinuedAsNew" : "OrchestrationCompleted" };
    const char *const fields[] = { start, activity, "\"source_event_id\":2,\"result\":\"\"", key, last };
    size_t used = 0;
    for (int i = 0; i < 5; i++)
        used += (size_t)snprintf(out + used, 2048 - used, format, i == 0 ? "[" : ",", i + 1, execution, types[i],
                                 fields[i]);
    snprintf(out + used, 2048 - used, "]");
}

static void test_keys_of_the_execution_before(void **state) {
    (void)state;
    static const dur_handler counters[] = { DUR_ORCHESTRATION("Counter", "1.0.0", counter), DUR_HANDLERS_END };
    char one[2048], two[2048];
    counter_history(one, 1, "one", "none", "\"input\":\"two\"");
    counter_history(two, 2, "two", "one", "\"output\":\"\"");
    const char *const both[] = { one, two };
    dur_replay_report report = { .size = sizeof(report) };
    dur_error err = DUR_ERROR_INIT;
    if (dur_replay_histories(&report, counters, both, 2, &err) != DUR_OK) fail_msg("%s", err.message);
    assert_int_equal(report.events, 10);
    assert_true(report.finished);
    /* alone, the second has no keys to find */
    assert_int_equal(dur_replay_history(NULL, counters, both[1], &err), DUR_ENONDETERMINISM);
    const char *const twice[] = { both[0], both[0] }, *const hole[] = { both[0], NULL };
    assert_int_equal(dur_replay_histories(NULL, counters, twice, 2, &err), DUR_EINVAL);
    assert_string_equal(err.message, "execution 1 of c does not follow execution 1 of c");
    assert_int_equal(dur_replay_histories(NULL, counters, hole, 2, &err), DUR_EINVAL);
    assert_int_equal(dur_replay_histories(NULL, counters, both, 0, &err), DUR_EINVAL);
    assert_int_equal(dur_replay_histories(NULL, counters, NULL, 1, &err), DUR_EINVAL);
}

static void test_refused(void **state) {
    (void)state;
    dur_error err = DUR_ERROR_INIT;
    static const dur_handler none[] = { DUR_HANDLERS_END };
    char *history = read_golden("order-waiting");
    assert_int_equal(dur_replay_history(NULL, none, history, &err), DUR_ENOTFOUND);
    assert_non_null(strstr(err.message, "Order version 1.0.0"));
    assert_int_equal(dur_replay_history(NULL, NULL, history, &err), DUR_EINVAL);
    assert_int_equal(dur_replay_history(NULL, golden_handlers, NULL, &err), DUR_EINVAL);
    assert_int_equal(dur_replay_history(NULL, golden_handlers, "[]", &err), DUR_ECORRUPT);
    assert_int_equal(dur_replay_history(NULL, golden_handlers, "not JSON", &err), DUR_ECORRUPT);
    assert_int_equal(dur_replay_history(NULL, golden_handlers, "[{\"type\":", NULL), DUR_ECORRUPT);
    free(history);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_goldens),
                                        cmocka_unit_test(test_keys_of_the_execution_before),
                                        cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
