/*
 * e2e_observe.c: what the host sees of a running engine: log lines with level, target and correlation, and counters.
 */
#include "harness.h"
#include <pthread.h>

/* ---- a sink that keeps every record as one line: "level target message key=value …" ---- */

static struct {
    pthread_mutex_t lock;
    char text[1 << 18];
    size_t used;
} heard = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void hear(void *data, const dur_log_record *record) {
    (void)data;
    char line[2048];
    int used =
        snprintf(line, sizeof(line), "%s %s %s", dur_log_level_name(record->level), record->target, record->message);
    for (size_t i = 0; i < record->field_count && used > 0 && (size_t)used < sizeof(line); i++) {
        const dur_log_field *field = &record->fields[i];
        if (field->text != NULL)
            used += snprintf(line + used, sizeof(line) - (size_t)used, " %s=%s", field->key, field->text);
        else
            used +=
                snprintf(line + used, sizeof(line) - (size_t)used, " %s=%lld", field->key, (long long)field->number);
    }
    pthread_mutex_lock(&heard.lock);
    int added = snprintf(heard.text + heard.used, sizeof(heard.text) - heard.used, "%s\n", line);
    if (added > 0 && heard.used + (size_t)added < sizeof(heard.text)) heard.used += (size_t)added;
    pthread_mutex_unlock(&heard.lock);
}

static void listen(dur_log_level level) {
    heard.used = 0;
    heard.text[0] = '\0';
    assert_int_equal(dur_log_set_sink(hear, NULL, level), DUR_OK);
}

/* How many lines begin with this and hold that; call when nobody writes any more. */
static size_t lines(const char *begin, const char *holds) {
    size_t found = 0;
    char *copy = strdup(heard.text);
    for (char *line = strtok(copy, "\n"); line != NULL; line = strtok(NULL, "\n"))
        found += strncmp(line, begin, strlen(begin)) == 0 && strstr(line, holds) != NULL;
    free(copy);
    return found;
}

static void expect_lines(const char *begin, const char *holds, size_t count) {
    size_t found = lines(begin, holds);
    if (found != count) fail_msg("%zu lines \"%s … %s\", wanted %zu, of:\n%s", found, begin, holds, count, heard.text);
}

/* ---- handlers ---- */

static dur_outcome talks(dur_act *act, const char *input) {
    dur_act_trace(act, DUR_LOG_ERROR, "act error");
    dur_act_trace(act, DUR_LOG_WARN, "act warn");
    dur_act_trace(act, DUR_LOG_INFO, "act info");
    dur_act_trace(act, DUR_LOG_DEBUG, "act debug");
    dur_act_trace(act, DUR_LOG_TRACE, "act trace");
    return dur_act_complete(act, input);
}
static dur_outcome refuses(dur_act *act, const char *input) {
    return dur_act_failf(act, "secret %s", input);
}
static dur_outcome endless(dur_act *act, const char *input) {
    while (!dur_act_sleep(act, 60000))
        continue;
    return dur_act_complete(act, input);
}

static dur_outcome speaker(dur_ctx *ctx, const char *input) {
    dur_trace(ctx, DUR_LOG_ERROR, "orch %s", "error");
    dur_trace(ctx, DUR_LOG_WARN, "orch warn");
    dur_trace(ctx, DUR_LOG_INFO, "orch info");
    dur_trace(ctx, DUR_LOG_DEBUG, "orch debug");
    dur_trace(ctx, DUR_LOG_TRACE, "orch trace");
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Talks", input)));
}
static dur_outcome twice(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "again") == 0) return dur_complete(ctx, "");
    return dur_continue_as_new(ctx, "again");
}
static dur_outcome fails(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Refuses", input)));
}
static dur_outcome waits(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Endless", input)));
}
static dur_outcome parent(dur_ctx *ctx, const char *input) {
    dur_await(dur_timer(ctx, 1));
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Twice", input)));
}
static dur_outcome long_history(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < 10; i++)
        dur_status_setf(ctx, "%d", i);
    return dur_complete(ctx, input);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Talks", talks),
    DUR_ACTIVITY("Refuses", refuses),
    DUR_ACTIVITY("Endless", endless),
    DUR_ORCHESTRATION("Speaker", "2.1.0", speaker),
    DUR_ORCHESTRATION("Twice", "1.0.0", twice),
    DUR_ORCHESTRATION("Fails", "1.0.0", fails),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("Parent", "1.0.0", parent),
    DUR_ORCHESTRATION("LongHistory", "1.0.0", long_history),
    DUR_HANDLERS_END,
};

/* ---- log lines ---- */

static void traces_carry_level_target_and_correlation(void **state) {
    world *w = *state;
    static const char *const levels[] = { "error", "warn", "info", "debug", "trace" };
    listen(DUR_LOG_TRACE);
    RUN(w, handlers, .evict_every_turn = true, .tags = DUR_TAG_ANY); /* replayed after the wait: nothing twice */
    start(w, "Speaker", "payload", "s");
    expect(w, "s", "payload");
    world_stop(w);
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
    for (size_t i = 0; i < 5; i++) {
        char begin[64];
        snprintf(begin, sizeof(begin), "%s durite::orchestration orch %s", levels[i], levels[i]);
        expect_lines(begin, "instance_id=s execution_id=1 orchestration_name=Speaker orchestration_version=2.1.0", 1);
        snprintf(begin, sizeof(begin), "%s durite::activity act %s", levels[i], levels[i]);
        expect_lines(begin,
                     "instance_id=s execution_id=1 orchestration_name=Speaker orchestration_version=2.1.0 "
                     "activity_name=Talks activity_id=2 activity_tag=default worker_id=work-",
                     1);
    }
    expect_lines("", "payload", 0);
}

static void a_level_that_nobody_asked_for_is_not_written(void **state) {
    world *w = *state;
    listen(DUR_LOG_WARN);
    RUN(w, handlers);
    start(w, "Speaker", "", "s");
    expect(w, "s", "");
    world_stop(w);
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
    expect_lines("error durite::orchestration orch error", "", 1);
    expect_lines("warn durite::activity act warn", "", 1);
    expect_lines("info", "", 0);
    expect_lines("debug", "", 0);
}

static void lives_are_told(void **state) {
    NEEDS_THREADS("its activity waits for the test");
    world *w = *state;
    listen(DUR_LOG_DEBUG);
    RUN(w, handlers, .name = "teller");
    start(w, "Twice", "", "t");
    start(w, "Fails", "payload", "f");
    start(w, "Waits", "", "c");
    expect(w, "t", "");
    expect_failure(w, "f", DUR_EFAILED, "secret payload");
    until_history(w, "c", "ActivityScheduled", 1);
    dur_metrics m = { .size = sizeof(m) };
    do
        OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    while (m.activities_running < 1);
    OK(w, dur_client_cancel(w->client, "c", "enough", &w->err));
    expect_failure(w, "c", DUR_ECANCELLED, "enough");
    world_stop(w);
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
    expect_lines("info durite::runtime runtime \"teller\" has started", "version=" DUR_VERSION " provider=", 1);
    expect_lines("info durite::runtime runtime \"teller\" has started", "replay_version_min=0.0.0", 1);
    expect_lines("debug durite::orchestration orchestration started", "instance_id=t execution_id=1", 1);
    expect_lines("debug durite::orchestration orchestration continued as new", "instance_id=t execution_id=1", 1);
    expect_lines("debug durite::orchestration orchestration continued as new",
                 "outcome=continuedAsNew duration_ms=", 1);
    expect_lines("debug durite::orchestration orchestration completed", "instance_id=t execution_id=2", 1);
    expect_lines("debug durite::orchestration orchestration completed", "outcome=success", 1);
    expect_lines("debug durite::orchestration orchestration completed", "history_events=2", 1);
    expect_lines("warn durite::orchestration orchestration failed", "instance_id=f", 1);
    expect_lines("warn durite::orchestration orchestration failed", "outcome=failed", 1);
    expect_lines("info durite::orchestration orchestration cancelled", "instance_id=c", 1);
    expect_lines("debug durite::activity activity started", "instance_id=f", 1);
    expect_lines("warn durite::activity activity failed", "activity_name=Refuses activity_id=2", 1);
    expect_lines("info durite::activity activity cancelled", "activity_name=Endless", 1);
    expect_lines("info durite::activity activity cancelled", "outcome=cancelled duration_ms=", 1);
    expect_lines("", "payload", 0); /* nothing that the application said */
}

static void unknown_names_are_warned_of(void **state) {
    world *w = *state;
    listen(DUR_LOG_WARN);
    RUN(w, handlers, .unregistered_backoff_ms = 10);
    start(w, "Nobody", "", "n");
    for (bool said = false; !said; pause_ms(1)) {
        pthread_mutex_lock(&heard.lock);
        said = strstr(heard.text, "no node has the handler") != NULL;
        pthread_mutex_unlock(&heard.lock);
    }
    world_stop(w);
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
    expect_lines("warn durite::runtime no node has the handler of orchestration \"Nobody\"", "name=Nobody", 1);
}

static void a_long_history_is_warned_of_once(void **state) {
    world *w = *state;
    listen(DUR_LOG_WARN);
    RUN(w, handlers, .history_events_warn = 5);
    start(w, "LongHistory", "", "l");
    expect(w, "l", "");
    world_stop(w);
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
    expect_lines("warn durite::orchestration the history of \"l\" has", "events", 1);
}

/* ---- counters ---- */

static void counters_count_what_happened(void **state) {
    NEEDS_THREADS("its activity waits for the test");
    world *w = *state;
    RUN(w, handlers, .worker_concurrency = 2);
    start(w, "Parent", "", "p");
    start(w, "Fails", "", "f");
    start(w, "Waits", "", "c");
    start(w, "Speaker", "", "s");
    expect(w, "p", "");
    expect_failure(w, "f", DUR_EFAILED, "secret");
    expect(w, "s", "");
    dur_metrics m = { .size = sizeof(m) };
    do
        OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    while (m.activities_running < 1);
    assert_true(m.parked >= 1);
    OK(w, dur_client_cancel(w->client, "c", "enough", &w->err));
    expect_failure(w, "c", DUR_ECANCELLED, "enough");
    do /* counted a moment after the client can see it */
        OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    while (m.orchestration_failures < 2 || m.orchestration_completions < 3 || m.activity_cancelled < 1);
    assert_int_equal(m.orchestration_starts, 6); /* with the child and its second execution */
    assert_int_equal(m.orchestration_completions, 3);
    assert_int_equal(m.orchestration_failures, 2);
    assert_int_equal(m.orchestration_application_errors, 2);
    assert_int_equal(m.orchestration_continue_as_new, 1);
    assert_int_equal(m.orchestration_infrastructure_errors, 0);
    assert_int_equal(m.orchestration_configuration_errors, 0);
    assert_int_equal(m.orchestration_poison, 0);
    assert_int_equal(m.activity_success, 1);
    assert_int_equal(m.activity_app_errors, 1);
    assert_int_equal(m.activity_cancelled, 1);
    assert_int_equal(m.activity_infra_errors, 0);
    assert_int_equal(m.activity_poison, 0);
    assert_int_equal(m.suborchestration_calls, 1);
    assert_int_equal(m.timers_fired, 1);
    assert_true(m.turns >= 10);
    assert_true(m.rounds > 0);
    assert_true(m.orchestration_items_fetched >= 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(traces_carry_level_target_and_correlation),
        TEST(a_level_that_nobody_asked_for_is_not_written),
        TEST(lives_are_told),
        TEST(unknown_names_are_warned_of),
        TEST(a_long_history_is_warned_of_once),
        TEST(counters_count_what_happened),
    };
    return cmocka_run_group_tests_name("e2e_observe", tests, NULL, NULL);
}
