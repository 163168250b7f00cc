/*
 * replay_driver.h: drives one execution in a test: offers arrivals, steps, keeps the history that a store would keep.
 *
 * A handler is evicted by freeing the execution and replaying the collected JSON.  Included by one test program each.
 */
#ifndef DURITE_TEST_REPLAY_DRIVER_H
#define DURITE_TEST_REPLAY_DRIVER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "coro/coro.h"
#include "replay/replay.h"
#include <durite/sys/event.h>
#include <durite/sys/work.h>
#include <stdio.h>
#include <stdlib.h>

enum { DRIVER_ROWS_MAX = 4096, DRIVER_ITEMS_MAX = 8192 };

typedef struct driver {
    dur__exec_options options;
    dur__stacks *stacks;
    dur__exec *exec;
    dur_arena *arena;
    char *rows[DRIVER_ROWS_MAX];
    size_t row_count;
    /* what left, as text: "w ActivityExecute…" worker, "o …" orchestrator, "c 5" cancelled activity, "t 5" timer */
    char *items[DRIVER_ITEMS_MAX];
    size_t item_count;
    char *logs[64];
    size_t log_count;
    dur__end end;
    char *output;
    uint64_t now;
    uint64_t next_order;
    uint64_t random;
    dur_error err;
    int code;
} driver;

static void driver_random(void *data, void *out, size_t size) {
    driver *d = data;
    unsigned char *bytes = out;
    for (size_t i = 0; i < size; i++) {
        d->random = d->random * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (unsigned char)(d->random >> 56);
    }
}

static inline void driver_init(driver *d, dur_orchestration_fn *fn) {
    *d = (driver){ .now = 1000, .random = 7 };
    d->stacks = dur__stacks_new();
    d->arena = dur_arena_new();
    d->options = (dur__exec_options){ .instance = "inst",
                                      .execution_id = 1,
                                      .name = "Test",
                                      .version = "1.0.0",
                                      .fn = fn,
                                      .stack_bytes = 64 << 10,
                                      .stacks = d->stacks,
                                      .random = driver_random,
                                      .random_data = d,
                                      .cancel_grace_ms = 5000 };
}

static inline void driver_collect(driver *d) {
    const dur__turn *turn = dur__exec_turn(d->exec);
    if (turn->event_count > 0) assert_int_equal(turn->first_event_id, turn->events[0].event_id);
    for (size_t i = 0; i < turn->event_count; i++) {
        assert_true(d->row_count < DRIVER_ROWS_MAX);
        assert_int_equal(strlen(turn->events[i].json.data), turn->events[i].json.size);
        d->rows[d->row_count++] = dur__xstrdup(turn->events[i].json.data);
    }
    dur_text json;
    for (size_t i = 0; i < turn->worker_item_count; i++) {
        assert_int_equal(dur_work_to_json(&json, d->arena, &turn->worker_items[i].item, &d->err), DUR_OK);
        d->items[d->item_count++] = dur_arena_format(d->arena, "w %s", json.data);
    }
    for (size_t i = 0; i < turn->orchestrator_item_count; i++) {
        assert_int_equal(dur_work_to_json(&json, d->arena, &turn->orchestrator_items[i].item, &d->err), DUR_OK);
        d->items[d->item_count++] =
            dur_arena_format(d->arena, "o@%llu %s", (unsigned long long)turn->orchestrator_items[i].due_ms, json.data);
    }
    for (size_t i = 0; i < turn->cancelled_activity_count; i++)
        d->items[d->item_count++] =
            dur_arena_format(d->arena, "c %llu", (unsigned long long)turn->cancelled_activities[i]);
    for (size_t i = 0; i < turn->dropped_timer_count; i++)
        d->items[d->item_count++] = dur_arena_format(d->arena, "t %llu", (unsigned long long)turn->dropped_timers[i]);
    for (size_t i = 0; i < turn->log_count && d->log_count < 64; i++)
        d->logs[d->log_count++] = dur_arena_format(d->arena, "%d %s", (int)turn->logs[i].level, turn->logs[i].message);
    if (turn->end != DUR__END_NOT) {
        d->end = turn->end;
        free(d->output);
        d->output = dur__xstrdup(turn->output);
    }
    for (dur__link *link; (link = dur__list_pop(turn->consumed)) != NULL;)
        free(DUR__CONTAINER(link, dur__arrival, link));
    dur__exec_turn_done(d->exec);
}

static inline int driver_start_ex(driver *d, const dur__exec_begin *begin) {
    d->exec = dur__exec_new(&d->options);
    d->code = dur__exec_start(d->exec, begin, d->now, &d->err);
    if (d->code == DUR_OK) driver_collect(d);
    return d->code;
}
static inline int driver_start(driver *d, const char *input) {
    return driver_start_ex(d, &(dur__exec_begin){ .input = input });
}

static inline void driver_drop(driver *d) {
    if (d->exec != NULL)
        for (dur__arrival *left; (left = dur__exec_drain(d->exec, NULL)) != NULL;)
            free(left);
    dur__exec_free(d->exec);
    d->exec = NULL;
}

/* Throw the execution away and replay its history; what was offered and not taken must be offered again. */
static inline int driver_replay(driver *d) {
    driver_drop(d);
    d->exec = dur__exec_new(&d->options);
    dur_arena *arena = dur_arena_new();
    d->code = DUR_OK;
    for (size_t i = 0; i < d->row_count && d->code == DUR_OK; i++) {
        dur_event event;
        d->code = dur_event_from_json(&event, arena, (dur_text){ d->rows[i], strlen(d->rows[i]) }, &d->err);
        if (d->code == DUR_OK) d->code = dur__exec_replay_event(d->exec, &event, &d->err);
        dur_arena_reset(arena);
    }
    if (d->code == DUR_OK) d->code = dur__exec_replay_end(d->exec, &d->err);
    dur_arena_free(arena);
    return d->code;
}

static inline void driver_offer_at(driver *d, const dur_work_item *item, uint64_t order_ms, uint64_t order_id) {
    dur__arrival *arrival = dur__xcalloc(1, sizeof(*arrival));
    arrival->item = *item; /* texts are literals or in the driver's arena */
    if (arrival->item.instance == NULL) arrival->item.instance = "inst";
    arrival->order_ms = order_ms;
    arrival->order_id = order_id;
    dur__exec_offer(d->exec, arrival);
}
static inline void driver_offer(driver *d, const dur_work_item *item) {
    d->next_order++;
    driver_offer_at(d, item, d->next_order, d->next_order);
}

/* Step until nothing can be taken; one turn per step. */
static inline int driver_run(driver *d) {
    for (bool took = true; took;) {
        d->now += 10;
        d->code = dur__exec_step(d->exec, d->now, &took, &d->err);
        if (d->code != DUR_OK) return d->code;
        driver_collect(d);
    }
    return DUR_OK;
}

static inline int driver_done(driver *d, uint64_t id, const char *result) {
    driver_offer(d, &(dur_work_item){ .kind = DUR_WORK_ACTIVITY_COMPLETED,
                                      .execution_id = d->options.execution_id,
                                      .id = id,
                                      .result = result });
    return driver_run(d);
}
static inline int driver_fail(driver *d, uint64_t id, const char *reason, bool retryable) {
    dur_failure *details = (dur_failure *)dur_arena_zalloc(d->arena, sizeof(*details));
    details->category = DUR_FAILURE_APPLICATION;
    details->kind = DUR_FAILURE_ACTIVITY_FAILED;
    details->message = reason;
    details->retryable = retryable;
    driver_offer(d, &(dur_work_item){ .kind = DUR_WORK_ACTIVITY_FAILED,
                                      .execution_id = d->options.execution_id,
                                      .id = id,
                                      .details = details });
    return driver_run(d);
}
static inline int driver_fire(driver *d, uint64_t id) {
    driver_offer(
        d, &(dur_work_item){
               .kind = DUR_WORK_TIMER_FIRED, .execution_id = d->options.execution_id, .id = id, .fire_at_ms = d->now });
    return driver_run(d);
}
static inline int driver_raise(driver *d, const char *name, const char *data) {
    driver_offer(d, &(dur_work_item){ .kind = DUR_WORK_EXTERNAL_RAISED, .name = name, .data = data });
    return driver_run(d);
}
static inline int driver_enqueue(driver *d, const char *queue, const char *data) {
    driver_offer(d, &(dur_work_item){ .kind = DUR_WORK_QUEUE_MESSAGE, .name = queue, .data = data });
    return driver_run(d);
}
static inline int driver_cancel(driver *d, const char *reason) {
    driver_offer(d, &(dur_work_item){ .kind = DUR_WORK_CANCEL_INSTANCE, .reason = reason });
    return driver_run(d);
}
static inline int driver_child_done(driver *d, uint64_t id, const char *result) {
    driver_offer(d, &(dur_work_item){ .kind = DUR_WORK_SUB_ORCH_COMPLETED,
                                      .execution_id = d->options.execution_id,
                                      .id = id,
                                      .result = result });
    return driver_run(d);
}

/* The type of each event, in order: "OrchestrationStarted ActivityScheduled …", without the prefix of the longest. */
static inline const char *driver_kinds(driver *d) {
    dur__buf out = { 0 };
    for (size_t i = 0; i < d->row_count; i++) {
        dur_event event;
        assert_int_equal(dur_event_from_json(&event, d->arena, (dur_text){ d->rows[i], strlen(d->rows[i]) }, NULL),
                         DUR_OK);
        if (i > 0) dur__buf_char(&out, ' ');
        dur__buf_text(&out, dur_event_kind_name(event.kind));
        if (event.has_source_event_id) dur__buf_format(&out, "(%llu)", (unsigned long long)event.source_event_id);
    }
    const char *text = dur_arena_strdup(d->arena, dur__buf_str(&out));
    dur__buf_free(&out);
    return text;
}

static inline dur_event driver_event(driver *d, size_t id) {
    dur_event event;
    for (size_t i = 0; i < d->row_count; i++) {
        assert_int_equal(dur_event_from_json(&event, d->arena, (dur_text){ d->rows[i], strlen(d->rows[i]) }, NULL),
                         DUR_OK);
        if (event.event_id == id) return event;
    }
    fail_msg("no event %zu", id);
    return event;
}

/* Is there an item whose text contains both parts? */
static inline bool driver_sent(driver *d, const char *begin, const char *part) {
    for (size_t i = 0; i < d->item_count; i++)
        if (strncmp(d->items[i], begin, strlen(begin)) == 0 && strstr(d->items[i], part) != NULL) return true;
    return false;
}

static inline void driver_free(driver *d) {
    driver_drop(d);
    for (size_t i = 0; i < d->row_count; i++)
        free(d->rows[i]);
    free(d->output);
    dur_arena_free(d->arena);
    dur__stacks_free(d->stacks);
}

#endif
