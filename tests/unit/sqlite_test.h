/*
 * sqlite_test.h: what the tests of the SQLite store share: a folder of their own, stores in it, small messages.
 */
#ifndef DURITE_SQLITE_TEST_H
#define DURITE_SQLITE_TEST_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "provider/sqlite/sqlite_internal.h"
#include <dirent.h>
#include <durite/sqlite.h>
#include <durite/sys/store.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct fixture {
    char folder[300];
    char path[340];
    char url[360];
    dur_provider *store;
    dur_arena *arena;
    dur_error err;
} fixture;

#define OK(f, call)                                                                                                    \
    do {                                                                                                               \
        dur_error_clear(&(f)->err);                                                                                    \
        int code_ = (call);                                                                                            \
        if (code_ != DUR_OK) print_error("%s: %s\n", dur_code_name(code_), (f)->err.message);                          \
        assert_int_equal(code_, DUR_OK);                                                                               \
    } while (0)

static inline int fixture_open(void **state) {
    fixture *f = calloc(1, sizeof *f);
    const char *base = getenv("TMPDIR");
    snprintf(f->folder, sizeof f->folder, "%.250s/dur-sqlite-XXXXXX", base != NULL ? base : "/tmp");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/store.db", f->folder);
    snprintf(f->url, sizeof f->url, "sqlite:%s", f->path);
    f->arena = dur_arena_new();
    OK(f, dur_open(&f->store, f->url, &f->err));
    *state = f;
    return 0;
}

static inline int fixture_close(void **state) {
    fixture *f = *state;
    dur_provider_close(f->store);
    dur_arena_free(f->arena);
    DIR *dir = opendir(f->folder);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", f->folder, entry->d_name);
        unlink(path);
    }
    if (dir != NULL) closedir(dir);
    rmdir(f->folder);
    free(f);
    return 0;
}

static inline dur__sq_file *file_of(fixture *f) {
    return dur__sq_file_of(f->store);
}

static inline dur_text text_of(const char *text) {
    return (dur_text){ text, strlen(text) };
}

static inline dur_message_row start_of(fixture *f, const char *instance) {
    dur_message_row message;
    dur_work_item item = { .kind = DUR_WORK_START_ORCHESTRATION,
                           .instance = instance,
                           .orchestration = "Test",
                           .input = "",
                           .version = "1.0.0",
                           .execution_id = 1 };
    OK(f, dur_message_row_from_work(&message, f->arena, &item, &f->err));
    return message;
}

static inline dur_message_row raised_of(fixture *f, const char *instance, const char *data) {
    dur_message_row message;
    dur_work_item item = { .kind = DUR_WORK_EXTERNAL_RAISED, .instance = instance, .name = "event", .data = data };
    OK(f, dur_message_row_from_work(&message, f->arena, &item, &f->err));
    return message;
}

/* An event as core writes it, of the first execution; source 0: none. */
static inline dur_event_row event_of(fixture *f, const char *instance, uint64_t id, uint64_t source, const char *rest) {
    char source_text[40] = "";
    if (source > 0) snprintf(source_text, sizeof source_text, ",\"source_event_id\":%" PRIu64, source);
    const char *text = dur_arena_format(f->arena,
                                        "{\"event_id\":%" PRIu64 "%s,\"instance_id\":\"%s\",\"execution_id\":1,"
                                        "\"timestamp_ms\":%" PRIu64 ",\"duroxide_version\":\"0.1.0\",\"type\":%s}",
                                        id, source_text, instance, 1700000000000 + id / 2, rest);
    return (dur_event_row){ .event_id = id, .kind = DUR_EVENT_UNKNOWN, .json = text_of(text) };
}

/* Start an instance, acquire it in a lane and commit its first turn: two events, lease kept. */
typedef struct parked {
    char token[80];
    uint64_t key;
    uint64_t last;
} parked;

static inline dur_turn_commit turn_of(const char *instance, const parked *p, const dur_event_row *events,
                                      size_t count) {
    return (dur_turn_commit){ .lock_token = p->token,
                              .instance = instance,
                              .store_key = p->key,
                              .execution_id = 1,
                              .events = events,
                              .event_count = count,
                              .expected_last = p->last,
                              .consume_listed = true,
                              .keep_lease = true };
}

static inline dur_lane *lane_make(fixture *f, const char *owner, dur_waker *waker) {
    dur_lane *lane = NULL;
    OK(f, dur_store_owner_register(f->store, &(dur_owner_options){ .owner = owner }, &f->err));
    OK(f, dur_store_lane_open(f->store, &(dur_lane_options){ .owner = owner, .waker = waker }, &lane, &f->err));
    return lane;
}

static inline parked park(fixture *f, dur_lane *lane, const char *owner, const char *instance) {
    parked p = { .last = 0 };
    dur_message_row start = start_of(f, instance);
    dur_fetch fetch = { .owner = owner, .max = 1 };
    dur_round round = { .fetch = &fetch };
    OK(f, dur_store_enqueue_for_orchestrator(f->store, &start, 0, &f->err));
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(round.item_count, 1);
    assert_string_equal(round.items[0].instance, instance);
    snprintf(p.token, sizeof p.token, "%s", round.items[0].lock_token);
    p.key = round.items[0].store_key;
    uint64_t consumed = round.items[0].messages[0].id;
    dur_event_row events[] = { { .event_id = 1, .json = text_of("{\"event_id\":1}") },
                               { .event_id = 2, .json = text_of("{\"event_id\":2}") } };
    dur_turn_commit turn = turn_of(instance, &p, events, 2);
    turn.owner = owner;
    turn.consumed = &consumed;
    turn.consumed_count = 1;
    turn.metadata.orchestration_name = "Test";
    turn.metadata.orchestration_version = "1.0.0";
    dur_round commit = { .turns = &turn, .turn_count = 1 };
    OK(f, dur_store_lane_round(lane, f->arena, &commit, &f->err));
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_true(turn.lease_kept);
    p.last = 2;
    return p;
}

#endif
