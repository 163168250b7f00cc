/*
 * sqlite_desk.h: a lane, and first turns that make their instance.
 */
#ifndef TESTS_UNIT_SQLITE_DESK_H
#define TESTS_UNIT_SQLITE_DESK_H

#include "sqlite_test.h"

#include <durite/durite.h>

typedef struct desk {
    fixture *f;
    dur_waker *waker;
    dur_lane *lane;
} desk;

static const dur_fetch fetch = { .owner = "o1", .max = 8, .kind = DUR_FETCH_FRESH, .queue_messages_max = 8 };

static inline dur_round look(desk *d) {
    dur_round round = { .fetch = &fetch, .queue_messages_max = 8 };
    OK(d->f, dur_store_lane_round(d->lane, d->f->arena, &round, &d->f->err));
    return round;
}

/* A lane that has looked and found nothing. */
static inline desk desk_open(fixture *f) {
    desk d = { .f = f, .waker = dur_waker_new() };
    d.lane = lane_make(f, "o1", d.waker);
    assert_int_equal(look(&d).item_count, 0);
    return d;
}

static inline void desk_close(desk *d) {
    if (d->lane != NULL) dur_store_lane_close(d->lane);
    dur_waker_free(d->waker);
}

static inline void lead(fixture *f) {
    OK(f, dur__sq_lead(file_of(f), &f->err));
}

/* A start that nobody has written. */
static inline dur_orchestration_item take(desk *d, const char *instance) {
    static unsigned serial;
    dur_message_row start = start_of(d->f, instance);
    dur_fetched_message *message = dur_arena_zalloc(d->f->arena, sizeof(*message));
    *message = (dur_fetched_message){ .attempt_count = 1, .json = start.json };
    return (dur_orchestration_item){ .instance = dur_arena_strdup(d->f->arena, instance),
                                     .lock_token = dur_arena_format(d->f->arena, "birth-%u", ++serial),
                                     .execution_id = 1,
                                     .messages = message,
                                     .message_count = 1 };
}

static const dur_event_row two_events[] = { { .event_id = 1, .json = { "{\"event_id\":1}", 14 } },
                                            { .event_id = 2, .json = { "{\"event_id\":2}", 14 } } };

static inline dur_turn_commit first_turn(const dur_orchestration_item *item) {
    return (dur_turn_commit){ .lock_token = item->lock_token,
                              .instance = item->instance,
                              .store_key = item->store_key,
                              .execution_id = 1,
                              .events = two_events,
                              .event_count = 2,
                              .metadata = { .orchestration_name = "Test", .orchestration_version = "1.0.0" },
                              .consume_listed = true,
                              .consumed = &item->messages[0].id,
                              .consumed_count = 1,
                              .owner = "o1",
                              .keep_lease = true };
}

static inline dur_turn_commit born_turn(const dur_orchestration_item *item) {
    dur_turn_commit turn = first_turn(item);
    turn.writes_start = true;
    return turn;
}

static inline dur_round commit(desk *d, dur_turn_commit *turns, size_t count) {
    dur_round round = { .turns = turns, .turn_count = count, .queue_messages_max = 8 };
    OK(d->f, dur_store_lane_round(d->lane, d->f->arena, &round, &d->f->err));
    return round;
}

/* Every row of every table, but for what is drawn or counted: tokens, ids and places of messages, and the owners. */
static inline char *rows(fixture *f) {
    sqlite3 *db = file_of(f)->writer.db;
    sqlite3_stmt *tables = NULL, *row = NULL;
    size_t size = 65536, at = 0;
    char *out = calloc(1, size);
    assert_int_equal(
        sqlite3_prepare_v2(db,
                           "SELECT name FROM sqlite_schema WHERE type='table' AND name LIKE 'dur\\_%' "
                           "ESCAPE '\\' AND name NOT IN ('dur_meta', 'dur_owner', 'dur_served') ORDER BY name",
                           -1, &tables, NULL),
        SQLITE_OK);
    while (sqlite3_step(tables) == SQLITE_ROW) {
        char sql[100];
        const char *table = (const char *)sqlite3_column_text(tables, 0);
        snprintf(sql, sizeof sql, "SELECT * FROM %s ORDER BY 1, 2", table);
        assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &row, NULL), SQLITE_OK);
        while (sqlite3_step(row) == SQLITE_ROW) {
            at += (size_t)snprintf(out + at, size - at, "%s:", table);
            for (int i = 0; i < sqlite3_column_count(row); i++) {
                const char *name = sqlite3_column_name(row, i), *text = (const char *)sqlite3_column_text(row, i);
                bool drawn = strcmp(name, "token") == 0 || (strcmp(name, "id") == 0 && strcmp(table, "dur_queue") == 0);
                if (strcmp(name, "ready_seq") == 0 || strcmp(name, "seq") == 0) continue; /* places in queues */
                at += (size_t)snprintf(out + at, size - at, " %s=%s", name, text == NULL ? "-" : drawn ? "*" : text);
                assert_true(at < size);
            }
            at += (size_t)snprintf(out + at, size - at, "\n");
        }
        sqlite3_finalize(row);
    }
    sqlite3_finalize(tables);
    return out;
}

static inline void assert_rows(fixture *f, const char *expected) {
    char *now = rows(f);
    if (strcmp(now, expected) != 0) fail_msg("there is\n%sinstead of\n%s", now, expected);
    free(now);
}

static inline uint64_t status_of(fixture *f, const char *instance) {
    dur_instance_row row;
    OK(f, dur_store_get_instance(f->store, f->arena, instance, &row, &f->err));
    return (uint64_t)row.status;
}

/* ---- first turns ---- */

static inline dur_message_row own_message(fixture *f, dur_work_kind kind, uint64_t due_ms) {
    dur_message_row message;
    dur_work_item item = { .kind = kind,
                           .instance = "a",
                           .orchestration = "Test",
                           .input = "next",
                           .version = "1.0.0",
                           .execution_id = 1,
                           .id = 2,
                           .fire_at_ms = due_ms };
    OK(f, dur_message_row_from_work(&message, f->arena, &item, &f->err));
    message.due_ms = due_ms;
    return message;
}

static inline void has_everything(fixture *f, dur_turn_commit *turn) {
    static dur_event_row events[] = {
        { .event_id = 1, .json = { "{}", 2 } },
        { .event_id = 2, .json = { "{}", 2 }, .kind = DUR_EVENT_KEY_VALUE_SET, .key = "k", .value = "v" },
        { .event_id = 3, .json = { "{}", 2 }, .kind = DUR_EVENT_CUSTOM_STATUS_UPDATED, .value = "half" },
    };
    dur_message_row work;
    dur_work_item item = {
        .kind = DUR_WORK_ACTIVITY_EXECUTE, .instance = "a", .execution_id = 1, .id = 1, .name = "A", .input = ""
    };
    OK(f, dur_message_row_from_work(&work, f->arena, &item, &f->err));
    dur_turn_work *works = dur_arena_zalloc(f->arena, 2 * sizeof(*works));
    works[0] = (dur_turn_work){ .message = work, .lock_token = "w1" };
    works[1] = (dur_turn_work){ .message = work };
    works[1].message.activity_id = 2;
    turn->worker_items = works;
    turn->worker_item_count = 2;
    turn->events = events;
    turn->event_count = 3;
    turn->metadata.has_pinned_version = true;
    turn->metadata.pinned_version = (dur_semver){ 1, 2, 3 };
}

static inline void ends_at_once(fixture *f, dur_turn_commit *turn) {
    has_everything(f, turn);
    turn->worker_item_count = 0;
    turn->keep_lease = false;
    turn->metadata.status = DUR_STATUS_COMPLETED;
    turn->metadata.output = "done";
}

/* The next turn under the lease that a born turn has told. */
static inline void goes_on_from(desk *d, const dur_turn_commit *born, uint64_t last) {
    dur_event_row event = { .event_id = last + 1, .json = text_of("{}") };
    parked p = { .key = born->store_key, .last = last };
    snprintf(p.token, sizeof p.token, "%s", born->lock_token);
    dur_turn_commit turn = turn_of(born->instance, &p, &event, 1);
    (void)commit(d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_true(turn.lease_kept);
}

#endif
