/*
 * store_check.c: the checks that every call of a store passes, and dur_store_has.
 */
#include "base/buf.h"
#include "provider/provider_internal.h"
#include "provider/turn.h"

int dur__store_missing(dur_error *err, const dur_provider *store, const char *method) {
    return dur_error_set(err, DUR_EUNSUPPORTED, false, method, "the %s store has no method %s",
                         dur_provider_name(store), method);
}

int dur__store_null(dur_error *err, const char *op, const char *what) {
    return dur_error_set(err, DUR_EINVAL, false, op, "%s is required", what);
}

int dur__store_check_instance(dur_error *err, const char *op, const char *instance) {
    return dur__check_text(err, op, "instance", instance, DUR__INSTANCE_BYTES_MAX, DUR__NOT_EMPTY);
}

/* The escape of U+0000, or the byte itself; NULL: none. */
static const char *find_zero(dur_text json) {
    const char *end = json.data + json.size, *at = memchr(json.data, '\0', json.size);
    if (at != NULL) return at;
    for (at = json.data; at < end && (at = memchr(at, '\\', (size_t)(end - at))) != NULL;
         at += 2) /* an escape is two */
        if (end - at >= 6 && memcmp(at + 1, "u0000", 5) == 0) return at;
    return NULL;
}

int dur__store_check_json(dur_error *err, const char *op, dur_text json) {
    const char *zero = find_zero(json);
    if (zero == NULL) return DUR_OK;
    return dur_error_set(err, DUR_EINVAL, false, op, "U+0000 in a text at byte %zu: nobody could read it back",
                         (size_t)(zero - json.data));
}

int dur__store_check_message(dur_error *err, const char *op, const dur_message_row *item) {
    if (item == NULL) return dur__store_null(err, op, "item");
    int code = dur__store_check_instance(err, op, item->instance);
    if (code != DUR_OK) return code;
    if (item->json.data == NULL) return dur__store_null(err, op, "json");
    if (item->kind == DUR_WORK_QUEUE_MESSAGE && item->queue == NULL) return dur__store_null(err, op, "queue");
    code = dur__store_check_json(err, op, item->json);
    if (code == DUR_OK && item->message_id != NULL)
        code = dur__check_text(err, op, "message_id", item->message_id, DUR__MESSAGE_KEY_BYTES_MAX, DUR__OPTIONAL);
    return code;
}

static int check_texts(const dur_turn_commit *turn, dur_error *err) {
    int code = DUR_OK;
    for (size_t i = 0; i < turn->event_count && code == DUR_OK; i++)
        code = dur__store_check_json(err, "commit", turn->events[i].json);
    for (size_t i = 0; i < turn->worker_item_count && code == DUR_OK; i++)
        code = dur__store_check_json(err, "commit", turn->worker_items[i].message.json);
    for (size_t i = 0; i < turn->orchestrator_item_count && code == DUR_OK; i++)
        code = dur__store_check_json(err, "commit", turn->orchestrator_items[i].json);
    return code;
}

int dur__store_check_turn(dur_turn_commit *turn) {
    dur__turn_unanswered(turn);
    const char *invalid = dur__turn_invalid(turn);
    int code = invalid != NULL ? dur_error_set(&turn->error, DUR_EINVAL, false, "commit", "%s", invalid)
                               : check_texts(turn, &turn->error);
    if (code != DUR_OK) turn->fault = DUR_TURN_STORE;
    return code;
}

bool dur_store_has(const dur_provider *store, const char *method) {
    if (store == NULL || store->methods == NULL || method == NULL) return false;
    const dur_provider_methods *table = store->methods;
#define HAS(name)                                                                                                      \
    if (strcmp(method, #name) == 0) return DUR_HAS_METHOD(table, name);
    HAS(close)
    HAS(now_ms)
    HAS(fetch_orchestration_item)
    HAS(ack_orchestration_item)
    HAS(abandon_orchestration_item)
    HAS(renew_orchestration_item_lock)
    HAS(read)
    HAS(append)
    HAS(enqueue_for_worker)
    HAS(fetch_work_item)
    HAS(ack_work_item)
    HAS(renew_work_item_lock)
    HAS(abandon_work_item)
    HAS(renew_session_lock)
    HAS(cleanup_orphaned_sessions)
    HAS(enqueue_for_orchestrator)
    HAS(get_custom_status)
    HAS(get_kv_value)
    HAS(get_kv_all_values)
    HAS(lane_open)
    HAS(lane_round)
    HAS(lane_rest)
    HAS(lane_rise)
    HAS(lane_close)
    HAS(lane_messages)
    HAS(lane_history)
    HAS(births)
    HAS(fetch_turns)
    HAS(commit_turns)
    HAS(fetch_works)
    HAS(ack_works)
    HAS(check_works)
    HAS(return_works)
    HAS(alone_ended)
    HAS(blame)
    HAS(owner_register)
    HAS(owner_beat)
    HAS(owner_release)
    HAS(owner_holdings)
    HAS(enqueue_start)
    HAS(enqueue_existing)
    HAS(watch_open)
    HAS(watch_wait)
    HAS(watch_close)
    HAS(get_instance_stats)
    HAS(list_instances)
    HAS(get_instance)
    HAS(list_executions)
    HAS(get_system_metrics)
    HAS(get_queue_depths)
    HAS(delete_instances)
    HAS(delete_instances_bulk)
    HAS(prune_executions)
    HAS(prune_executions_bulk)
    HAS(dead_letter_messages)
    HAS(dead_letter_work)
    HAS(list_dead_letters)
    HAS(delete_dead_letters)
    HAS(set_suspended)
    HAS(backup)
    HAS(check)
    HAS(vacuum)
    HAS(enqueue_starts)
    HAS(watch_wake)
    HAS(list_unserved)
#undef HAS
    return false;
}
