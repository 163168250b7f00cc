/*
 * store_turn.c: dur_store_ functions for instances: fetch, commit, give back, history, lanes.
 */
#include "base/buf.h"
#include "base/thread.h"
#include "provider/provider_internal.h"
#include "provider/turn.h"

/* ---- reading what a store returns -------------------------------------------------------------------------------- */

static void name_from_event(dur_arena *arena, dur_orchestration_item *item) {
    for (size_t i = 0; i < item->history_count; i++) {
        dur_event event;
        if (dur_event_from_json(&event, arena, item->history[i].json, NULL) != DUR_OK) continue;
        if (event.kind != DUR_EVENT_ORCHESTRATION_STARTED) continue;
        item->orchestration_name = event.name;
        if (item->version == NULL) item->version = event.version;
        return;
    }
}

static void name_from_message(dur_arena *arena, dur_orchestration_item *item) {
    for (size_t i = 0; i < item->message_count; i++) {
        dur_work_item work;
        if (item->messages[i].queue != NULL) continue;
        if (dur_work_from_json(&work, arena, item->messages[i].json, NULL) != DUR_OK) continue;
        if (work.kind != DUR_WORK_START_ORCHESTRATION && work.kind != DUR_WORK_CONTINUE_AS_NEW) continue;
        item->orchestration_name = work.orchestration;
        if (item->version == NULL) item->version = work.version;
        return;
    }
}

void dur__store_name_item(dur_arena *arena, dur_orchestration_item *item) {
    if (item->instance == NULL || item->orchestration_name != NULL) return;
    name_from_event(arena, item);
    if (item->orchestration_name == NULL) name_from_message(arena, item);
}

/* Decode every row; the first that cannot be read empties the history and says why. */
static void find_history_error(dur_arena *arena, dur_orchestration_item *item) {
    for (size_t i = 0; i < item->history_count; i++) {
        dur_event event;
        dur_error why = DUR_ERROR_INIT;
        if (dur_event_from_json(&event, arena, item->history[i].json, &why) == DUR_OK) continue;
        item->history_error = dur_arena_format(arena, "deserialization failed: event %llu of execution %llu: %s",
                                               (unsigned long long)item->history[i].event_id,
                                               (unsigned long long)item->execution_id, why.message);
        item->history = NULL;
        item->history_count = 0;
        return;
    }
}

uint64_t dur_store_now_ms(dur_provider *store) {
    if (dur__store_enter(store, "now_ms", NULL) != DUR_OK) return 0;
    return store->methods->now_ms(store);
}

/* ---- the seeds' methods ------------------------------------------------------------------------------------------ */

static int check_fetch(const dur_arena *arena, const dur_fetch *how, const void *out, const char *op, dur_error *err) {
    if (arena == NULL || how == NULL || out == NULL) return dur__store_null(err, op, "arena, how and out");
    if (how->filter != NULL && how->filter->count > 0 && how->filter->ranges == NULL)
        return dur__store_null(err, op, "filter->ranges");
    if (how->handlers != NULL && how->handlers->count > 0 && how->handlers->keys == NULL)
        return dur__store_null(err, op, "handlers->keys");
    return DUR_OK;
}

int dur_store_fetch_orchestration_item(dur_provider *store, dur_arena *arena, const dur_fetch *how,
                                       dur_orchestration_item *out, dur_error *err) {
    int code = dur__store_enter(store, "fetch_orchestration_item", err);
    if (code == DUR_OK) code = check_fetch(arena, how, out, "fetch_orchestration_item", err);
    if (code != DUR_OK) return code;
    *out = (dur_orchestration_item){ .instance = NULL };
    code = store->methods->fetch_orchestration_item(store, arena, how, out, err);
    if (code != DUR_OK || out->instance == NULL) return code;
    dur__store_name_item(arena, out);
    find_history_error(arena, out);
    return code;
}

int dur_store_ack_orchestration_item(dur_provider *store, dur_turn_commit *turn, dur_error *err) {
    int code = dur__store_enter(store, "ack_orchestration_item", err);
    if (code != DUR_OK) return code;
    if (turn == NULL) return dur__store_null(err, "ack_orchestration_item", "turn");
    dur_turn_commit plain = dur__turn_plain(turn);
    code = dur__store_check_turn(&plain);
    if (code == DUR_OK)
        code = store->methods->ack_orchestration_item(store, &plain, err);
    else if (err != NULL)
        *err = plain.error;
    turn->fault = plain.fault;
    turn->error = plain.error;
    turn->lease_kept = false;
    turn->lost_work = NULL;
    turn->lost_work_count = 0;
    return code;
}

int dur_store_abandon_orchestration_item(dur_provider *store, const char *lock_token, uint64_t delay_ms,
                                         bool ignore_attempt, dur_error *err) {
    int code = dur__store_enter(store, "abandon_orchestration_item", err);
    if (code != DUR_OK) return code;
    if (lock_token == NULL) return dur__store_null(err, "abandon_orchestration_item", "lock_token");
    return store->methods->abandon_orchestration_item(store, lock_token, delay_ms, ignore_attempt, err);
}

int dur_store_renew_orchestration_item_lock(dur_provider *store, const char *lock_token, uint64_t extend_ms,
                                            dur_error *err) {
    int code = dur__store_enter(store, "renew_orchestration_item_lock", err);
    if (code != DUR_OK) return code;
    if (lock_token == NULL) return dur__store_null(err, "renew_orchestration_item_lock", "lock_token");
    return store->methods->renew_orchestration_item_lock(store, lock_token, extend_ms, err);
}

int dur_store_read(dur_provider *store, dur_arena *arena, const char *instance, uint64_t execution_id,
                   dur_event_row **out, size_t *count, dur_error *err) {
    int code = dur__store_enter(store, "read", err);
    if (code != DUR_OK) return code;
    if (arena == NULL || instance == NULL || out == NULL || count == NULL)
        return dur__store_null(err, "read", "arena, instance, out and count");
    *out = NULL;
    *count = 0;
    return store->methods->read(store, arena, instance, execution_id, out, count, err);
}

static int read_events(dur_provider *store, dur_arena *arena, const char *instance, uint64_t execution_id,
                       dur_event **out, size_t *count, dur_error *err) {
    dur_event_row *rows;
    size_t total = 0;
    int code = dur_store_read(store, arena, instance, execution_id, &rows, &total, err);
    if (code != DUR_OK || total == 0) return code;
    dur_event *events = dur_arena_zalloc(arena, total * sizeof(*events));
    for (size_t i = 0; i < total; i++) {
        dur_error why = DUR_ERROR_INIT;
        if (dur_event_from_json(&events[i], arena, rows[i].json, &why) != DUR_OK)
            return dur_error_set(err, DUR_ECORRUPT, false, "read_events",
                                 "deserialization failed: event %llu (%zu of %zu): %s",
                                 (unsigned long long)rows[i].event_id, i + 1, total, why.message);
    }
    *out = events;
    *count = total;
    return DUR_OK;
}

int dur_store_read_events(dur_provider *store, dur_arena *arena, const char *instance, uint64_t execution_id,
                          dur_event **out, size_t *count, dur_error *err) {
    if (out == NULL || count == NULL) return dur__store_null(err, "read_events", "out and count");
    *out = NULL;
    *count = 0;
    dur__way_out out_of_memory; /* nothing is changed here */
    if (DUR__OUT_OF_MEMORY(&out_of_memory)) return DUR__NO_MEMORY(err, "read_events");
    int code = read_events(store, arena, instance, execution_id, out, count, err);
    dur__way_out_end(&out_of_memory);
    return code;
}

int dur_store_append(dur_provider *store, const char *instance, uint64_t execution_id, const dur_event_row *events,
                     size_t count, dur_error *err) {
    int code = dur__store_enter(store, "append", err);
    if (code == DUR_OK) code = dur__store_check_instance(err, "append", instance);
    if (code != DUR_OK) return code;
    if (events == NULL && count > 0) return dur__store_null(err, "append", "events");
    if (execution_id == 0) return dur_error_set(err, DUR_EINVAL, false, "append", "execution ids begin at 1");
    for (size_t i = 0; i < count; i++) {
        if (events[i].event_id == 0 || events[i].event_id >= INT64_MAX)
            return dur_error_set(err, DUR_EINVAL, false, "append", "event %zu has no id that another can follow", i);
        if (events[i].json.data == NULL) return dur__store_null(err, "append", "json of an event");
        code = dur__store_check_json(err, "append", events[i].json);
        if (code != DUR_OK) return code;
    }
    return store->methods->append(store, instance, execution_id, events, count, err);
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

int dur_store_fetch_turns(dur_provider *store, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                          size_t *count, dur_error *err) {
    int code = dur__store_enter(store, "fetch_turns", err);
    if (code == DUR_OK) code = check_fetch(arena, how, out, "fetch_turns", err);
    if (code != DUR_OK) return code;
    if (count == NULL) return dur__store_null(err, "fetch_turns", "count");
    *count = 0;
    if (DUR_HAS_METHOD(store->methods, fetch_turns))
        code = store->methods->fetch_turns(store, arena, how, out, count, err);
    else
        code = dur__fallback_fetch_turns(store, arena, how, out, count, err);
    for (size_t i = 0; code == DUR_OK && i < *count; i++)
        dur__store_name_item(arena, &out[i]);
    return code;
}

int dur_store_commit_turns(dur_provider *store, dur_turn_commit *turns, size_t count, dur_error *err) {
    int code = dur__store_enter(store, "commit_turns", err);
    if (code != DUR_OK) return code;
    if (turns == NULL && count > 0) return dur__store_null(err, "commit_turns", "turns");
    for (size_t i = 0; i < count; i++) {
        code = dur__store_check_turn(&turns[i]);
        if (code == DUR_OK) continue;
        if (err != NULL) *err = turns[i].error; /* malformed: none of the batch is handed on */
        return code;
    }
    if (DUR_HAS_METHOD(store->methods, commit_turns)) return store->methods->commit_turns(store, turns, count, err);
    for (size_t i = 0; i < count; i++)
        dur__fallback_commit(store, &turns[i]);
    return DUR_OK;
}

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

bool dur__lane_is_fallback(const dur_lane *lane) {
    return !DUR_HAS_METHOD(lane->store->methods, lane_open);
}

static int lane_enter(const dur_lane *lane, const char *op, dur_error *err) {
    if (lane == NULL) return dur__store_null(err, op, "lane");
    return dur__store_enter(lane->store, op, err);
}

int dur_store_lane_open(dur_provider *store, const dur_lane_options *options, dur_lane **out, dur_error *err) {
    int code = dur__store_enter(store, "lane_open", err);
    if (code != DUR_OK) return code;
    if (out == NULL) return dur__store_null(err, "lane_open", "out");
    *out = NULL;
    if (options == NULL || options->waker == NULL) return dur__store_null(err, "lane_open", "a waker");
    if (!dur__provider_adopt(store)) return DUR__NO_MEMORY(err, "lane_open");
    if (!DUR_HAS_METHOD(store->methods, lane_open)) return dur__fallback_lane_open(store, options, out, err);
    code = store->methods->lane_open(store, options, out, err);
    if (code == DUR_OK) dur_store_retain(store);
    return code;
}

static void round_reset(dur_round *round) {
    round->items = NULL;
    round->works = NULL;
    round->held = NULL;
    round->lost = round->asked = NULL;
    round->item_count = round->work_count = round->held_count = round->lost_count = round->asked_count = 0;
    round->now_ms = round->seen_id = 0;
    round->next_due_ms = DUR_NEVER;
    round->more = round->work_waiting_long = false;
    round->suspect_instance = round->suspect_work = 0;
}

int dur_store_lane_round(dur_lane *lane, dur_arena *arena, dur_round *round, dur_error *err) {
    int code = lane_enter(lane, "lane_round", err);
    if (code != DUR_OK) return code;
    if (arena == NULL || round == NULL) return dur__store_null(err, "lane_round", "arena and round");
    if ((round->turns == NULL && round->turn_count > 0) || (round->acks == NULL && round->ack_count > 0))
        return dur__store_null(err, "lane_round", "turns and acks");
    for (size_t i = 0; i < round->turn_count; i++) {
        code = dur__store_check_turn(&round->turns[i]);
        if (code == DUR_OK) continue;
        if (err != NULL) *err = round->turns[i].error;
        return code;
    }
    round_reset(round);
    if (dur__lane_is_fallback(lane))
        code = dur__fallback_lane_round(lane, arena, round, err);
    else
        code = lane->store->methods->lane_round(lane, arena, round, err);
    for (size_t i = 0; code == DUR_OK && i < round->item_count; i++)
        dur__store_name_item(arena, &round->items[i]);
    return code;
}

int dur_store_lane_rest(dur_lane *lane, dur_rest *out, dur_error *err) {
    int code = lane_enter(lane, "lane_rest", err);
    if (code != DUR_OK) return code;
    if (out == NULL) return dur__store_null(err, "lane_rest", "out");
    *out = (dur_rest){ .us = 0 };
    if (dur__lane_is_fallback(lane)) return dur__fallback_lane_rest(lane, out, err);
    return lane->store->methods->lane_rest(lane, out, err);
}

int dur_store_lane_rise(dur_lane *lane, const dur_rest *slept, bool *news, dur_error *err) {
    int code = lane_enter(lane, "lane_rise", err);
    if (code != DUR_OK) return code;
    if (slept == NULL || news == NULL) return dur__store_null(err, "lane_rise", "slept and news");
    *news = true;
    if (dur__lane_is_fallback(lane)) return dur__fallback_lane_rise(lane, slept, news, err);
    return lane->store->methods->lane_rise(lane, slept, news, err);
}

int dur_store_lane_wait(dur_lane *lane, uint64_t timeout_ms, dur_error *err) {
    uint64_t now_us = dur__monotonic_us();
    uint64_t end_us = timeout_ms > (UINT64_MAX - now_us) / 1000 ? UINT64_MAX : now_us + timeout_ms * 1000;
    for (bool news = false;;) {
        dur_rest rest;
        int code = dur_store_lane_rest(lane, &rest, err);
        if (code != DUR_OK || rest.us == 0) return code;
        now_us = dur__monotonic_us();
        uint64_t left_us = end_us > now_us ? end_us - now_us : 0;
        dur__poll(rest.fds, rest.fd_count, end_us != UINT64_MAX && left_us < rest.us ? left_us : rest.us);
        code = dur_store_lane_rise(lane, &rest, &news, err);
        if (code != DUR_OK || news || dur__monotonic_us() >= end_us) return code;
    }
}

void dur_store_lane_close(dur_lane *lane) {
    if (lane == NULL) return;
    dur_provider *store = lane->store;
    if (dur__lane_is_fallback(lane))
        dur__fallback_lane_close(lane);
    else if (dur__store_enter(store, "lane_close", NULL) == DUR_OK)
        store->methods->lane_close(lane);
    dur_provider_close(store);
}

int dur_store_lane_messages(dur_lane *lane, dur_arena *arena, const char *instance, const char *lock_token,
                            const char *queue, uint64_t after_due_ms, uint64_t after_id, size_t max,
                            dur_fetched_message **out, size_t *count, dur_error *err) {
    int code = lane_enter(lane, "lane_messages", err);
    if (code != DUR_OK) return code;
    if (arena == NULL || instance == NULL || lock_token == NULL || out == NULL || count == NULL)
        return dur__store_null(err, "lane_messages", "arena, instance, lock_token, out and count");
    *out = NULL;
    *count = 0;
    if (dur__lane_is_fallback(lane)) return DUR_OK; /* a fetch returned all that there was */
    if (!DUR_HAS_METHOD(lane->store->methods, lane_messages))
        return dur__store_missing(err, lane->store, "lane_messages");
    return lane->store->methods->lane_messages(lane, arena, instance, lock_token, queue, after_due_ms, after_id, max,
                                               out, count, err);
}

int dur_store_lane_history(dur_lane *lane, dur_arena *arena, const char *instance, const char *lock_token,
                           uint64_t execution_id, dur_orchestration_item *out, dur_error *err) {
    int code = lane_enter(lane, "lane_history", err);
    if (code != DUR_OK) return code;
    if (arena == NULL || instance == NULL || lock_token == NULL || out == NULL)
        return dur__store_null(err, "lane_history", "arena, instance, lock_token and out");
    *out = (dur_orchestration_item){ .instance = NULL };
    if (!DUR_HAS_METHOD(lane->store->methods, lane_history))
        return dur__store_missing(err, lane->store, "lane_history");
    return lane->store->methods->lane_history(lane, arena, instance, lock_token, execution_id, out, err);
}
