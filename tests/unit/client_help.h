/*
 * client_help.h: what the tests of the client share: a store with a client, and turns committed by hand.
 */
#ifndef DURITE_TESTS_CLIENT_HELP_H
#define DURITE_TESTS_CLIENT_HELP_H

#include "store_help.h"

#include "core/limits.h"
#include <durite/client.h>

#include <stdlib.h>

typedef struct fixture {
    bench *bench;
    dur_client *client;
    dur_error err;
} fixture;

static const char *client_url; /* which store the tests run on */

static inline int setup(void **state) {
    static fixture f;
    memset(&f, 0, sizeof(f));
    f.bench = bench_open(client_url);
    assert_int_equal(dur_client_new(&f.client, f.bench->store, &f.err), DUR_OK);
    *state = &f;
    return 0;
}

static inline int teardown(void **state) {
    fixture *f = *state;
    dur_client_free(f->client);
    bench_close(f->bench);
    return 0;
}

#define OK(f, ...)                                                                                                     \
    do {                                                                                                               \
        int code_ = (__VA_ARGS__);                                                                                     \
        if (code_ != DUR_OK) fail_msg("%s: %s: %s", #__VA_ARGS__, dur_code_name(code_), (f)->err.message);             \
    } while (0)

static inline void refused(const fixture *f, int wanted, const char *text, int got, const char *call) {
    if (got != wanted || (int)f->err.code != got || strstr(f->err.message, text) == NULL)
        fail_msg("%s: %s (%s): %s", call, dur_code_name(got), dur_code_name((int)f->err.code), f->err.message);
}
#define REFUSED(f, wanted, text, ...)                                                                                  \
    do {                                                                                                               \
        dur_error_clear(&(f)->err);                                                                                    \
        refused(f, wanted, text, (__VA_ARGS__), #__VA_ARGS__);                                                         \
    } while (0)

/* ---- turns by hand ---- */

typedef struct turn {
    dur_orchestration_item item;
    dur_event_row rows[16];
    dur_message_row messages[4];
    size_t count, message_count;
    uint64_t execution_id, next_id;
} turn;

/* Take the next instance that has messages. */
static inline turn turn_begin(fixture *f) {
    turn t = { 0 };
    dur_fetch how = { .lock_ms = 60000 };
    OK(f, dur_store_fetch_orchestration_item(f->bench->store, f->bench->arena, &how, &t.item, &f->err));
    assert_non_null(t.item.instance);
    t.execution_id = t.item.execution_id;
    t.next_id = t.item.last_event_id + 1;
    return t;
}

static inline void turn_add(fixture *f, turn *t, dur_event event) {
    event.event_id = t->next_id++;
    event.instance_id = t->item.instance;
    event.execution_id = t->execution_id;
    event.timestamp_ms = START_MS;
    event.duroxide_version = "0.1.0";
    OK(f, dur_event_row_from(&t->rows[t->count++], f->bench->arena, &event, &f->err));
}

static inline void turn_send(fixture *f, turn *t, dur_work_item item) {
    OK(f, dur_message_row_from_work(&t->messages[t->message_count++], f->bench->arena, &item, &f->err));
}

static inline void turn_end(fixture *f, const turn *t, dur_execution_metadata metadata) {
    dur_turn_commit commit = {
        .lock_token = t->item.lock_token,
        .execution_id = t->execution_id,
        .events = t->rows,
        .event_count = t->count,
        .orchestrator_items = t->messages,
        .orchestrator_item_count = t->message_count,
        .metadata = metadata,
        .expected_last = DUR_NOT_COMPARED,
    };
    OK(f, dur_store_ack_orchestration_item(f->bench->store, &commit, &f->err));
}

static const dur_event started = {
    .kind = DUR_EVENT_ORCHESTRATION_STARTED, .name = "Order", .version = "1.0.0", .input = "in", .trace = 1
};
#define ROW .orchestration_name = "Order", .orchestration_version = "1.0.0"

/* Start an instance and commit its first turn. */
static inline void run(fixture *f, const char *instance) {
    OK(f, dur_client_start(f->client, &f->err, "Order", "in", .instance = instance));
    turn t = turn_begin(f);
    assert_string_equal(t.item.instance, instance);
    turn_add(f, &t, started);
    turn_end(f, &t, (dur_execution_metadata){ ROW, .status = DUR_STATUS_RUNNING });
}

/* One more turn, which an event wakes. */
static inline turn wake(fixture *f, const char *instance) {
    OK(f, dur_client_pulse(f->client, &f->err, instance, "wake"));
    turn t = turn_begin(f);
    assert_string_equal(t.item.instance, instance);
    return t;
}

static inline void complete(fixture *f, const char *instance, const char *output) {
    turn t = wake(f, instance);
    turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_ORCHESTRATION_COMPLETED, .output = output });
    turn_end(f, &t, (dur_execution_metadata){ .status = DUR_STATUS_COMPLETED, .output = output });
}

static inline void fail_with(fixture *f, const char *instance, const dur_failure *failure) {
    turn t = wake(f, instance);
    turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_ORCHESTRATION_FAILED, .details = failure });
    turn_end(f, &t,
             (dur_execution_metadata){ .status = DUR_STATUS_FAILED,
                                       .output = dur_failure_display(f->bench->arena, failure) });
}

static inline dur_instance_info *info_of(fixture *f, const char *instance) {
    dur_instance_info *info = NULL;
    OK(f, dur_client_info(&info, f->client, instance, &f->err));
    return info;
}

static inline dur_event *events_of(fixture *f, const char *instance, uint64_t execution_id, size_t *count) {
    char *text = NULL;
    dur_event *events;
    OK(f, dur_client_history(&text, f->client, instance, execution_id, &f->err));
    dur_text json = { text, strlen(text) };
    OK(f, dur_history_from_json(&events, count, f->bench->arena, json, &f->err));
    dur_free(text);
    return events;
}

/* ---- running ---- */

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* On each of the library's stores. */
#define RUN_ON_ALL(tests)                                                                                              \
    static const char *const urls_[] = { "memory:", "sqlite::memory:" };                                               \
    int failed_ = 0;                                                                                                   \
    for (size_t i_ = 0; i_ < sizeof(urls_) / sizeof(urls_[0]); i_++) {                                                 \
        client_url = urls_[i_];                                                                                        \
        failed_ += cmocka_run_group_tests_name(client_url, tests, NULL, NULL);                                         \
    }                                                                                                                  \
    return failed_

#endif
