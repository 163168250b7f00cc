/*
 * store_help.h: what the tests of stores share: a store with a clock that stands still, and short ways to make items.
 */
#ifndef DURITE_TESTS_STORE_HELP_H
#define DURITE_TESTS_STORE_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <durite/provider.h>
#include <durite/sys/store.h>

#define START_MS 1000000u

typedef struct bench {
    dur_fake_world *fake;
    dur_provider *store;
    dur_arena *arena;
    dur_error err;
} bench;

static inline bench *bench_open(const char *url) {
    static bench b;
    memset(&b, 0, sizeof(b));
    b.fake = dur_fake_world_new(START_MS, 7);
    b.arena = dur_arena_new();
    int code = dur_open_ex(&b.store, url, DUR_OPEN_OPTIONS(.world = dur_fake_world_get(b.fake)), &b.err);
    if (code != DUR_OK) fprintf(stderr, "%s\n", b.err.message);
    assert_int_equal(code, DUR_OK);
    return &b;
}

static inline void bench_close(bench *b) {
    dur_provider_close(b->store);
    dur_arena_free(b->arena);
    dur_fake_world_free(b->fake);
}

#define ASSERT_OK(b, call)                                                                                             \
    do {                                                                                                               \
        int code_ = (call);                                                                                            \
        if (code_ != DUR_OK) fail_msg("%s: %s (%d)", #call, (b)->err.message, code_);                                  \
    } while (0)

static inline dur_text text_of(const char *text) {
    return (dur_text){ text, strlen(text) };
}

/* A message with a made-up text; stores do not look into it. */
static inline dur_message_row message_of(dur_work_kind kind, const char *instance) {
    return (dur_message_row){ .kind = kind, .instance = instance, .json = text_of("{}") };
}

static inline dur_message_row start_of(bench *b, const char *instance) {
    dur_message_row out;
    dur_work_item item = { .kind = DUR_WORK_START_ORCHESTRATION,
                           .instance = instance,
                           .orchestration = "Flow",
                           .input = "",
                           .version = "1.0.0",
                           .execution_id = 1 };
    assert_int_equal(dur_message_row_from_work(&out, b->arena, &item, NULL), DUR_OK);
    return out;
}

static inline dur_message_row activity_of(bench *b, const char *instance, uint64_t id, const char *session,
                                          const char *tag) {
    dur_message_row out;
    dur_work_item item = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                           .instance = instance,
                           .execution_id = 1,
                           .id = id,
                           .name = "Act",
                           .input = "",
                           .session_id = session,
                           .tag = tag };
    assert_int_equal(dur_message_row_from_work(&out, b->arena, &item, NULL), DUR_OK);
    return out;
}

static inline dur_message_row queue_of(const char *instance, const char *queue, const char *message_id) {
    return (dur_message_row){ .kind = DUR_WORK_QUEUE_MESSAGE,
                              .instance = instance,
                              .queue = queue,
                              .message_id = message_id,
                              .json = text_of("{}") };
}

static inline dur_event_row event_of(uint64_t id) {
    return (dur_event_row){ .event_id = id, .kind = DUR_EVENT_ACTIVITY_SCHEDULED, .json = text_of("{\"x\":1}") };
}

static inline dur_execution_metadata named(void) {
    return (dur_execution_metadata){ .orchestration_name = "Flow", .orchestration_version = "1.0.0" };
}

static inline dur_orchestration_item fetch(bench *b, uint64_t lock_ms) {
    dur_orchestration_item item;
    dur_fetch how = { .lock_ms = lock_ms };
    ASSERT_OK(b, dur_store_fetch_orchestration_item(b->store, b->arena, &how, &item, &b->err));
    return item;
}

/* Start an instance and commit its first turn, with event 1; it is left without messages and without a lock. */
static inline void make_running(bench *b, const char *instance) {
    dur_message_row start = start_of(b, instance);
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    dur_orchestration_item item = fetch(b, 5000);
    assert_string_equal(item.instance, instance);
    dur_event_row event = event_of(1);
    dur_turn_commit turn = {
        .lock_token = item.lock_token, .execution_id = 1, .events = &event, .event_count = 1, .metadata = named()
    };
    ASSERT_OK(b, dur_store_ack_orchestration_item(b->store, &turn, &b->err));
}

#endif
