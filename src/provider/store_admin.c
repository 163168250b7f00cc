/*
 * store_admin.c: dur_store_ functions for operators: lists, deletion, pruning, dead letters, suspending, maintenance.
 */
#include "base/buf.h"
#include "provider/provider_internal.h"

/* Enter, check that the pointers are there, and that the store has the method. */
#define ENTER(method, required, what)                                                                                  \
    do {                                                                                                               \
        int entered_ = dur__store_enter(store, #method, err);                                                          \
        if (entered_ != DUR_OK) return entered_;                                                                       \
        if (!(required)) return dur__store_null(err, #method, what);                                                   \
        if (!DUR_HAS_METHOD(store->methods, method)) return dur__store_missing(err, store, #method);                   \
    } while (0)

int dur_store_list_instances(dur_provider *store, dur_arena *arena, const dur_instance_query *query,
                             dur_instance_row **out, size_t *count, dur_error *err) {
    static const dur_instance_query everything = { .status = DUR_STATUS_NONE };
    ENTER(list_instances, arena != NULL && out != NULL && count != NULL, "arena, out and count");
    *out = NULL;
    *count = 0;
    return store->methods->list_instances(store, arena, query != NULL ? query : &everything, out, count, err);
}

int dur_store_get_instance(dur_provider *store, dur_arena *arena, const char *instance, dur_instance_row *out,
                           dur_error *err) {
    ENTER(get_instance, arena != NULL && instance != NULL && out != NULL, "arena, instance and out");
    *out = (dur_instance_row){ .instance_id = NULL };
    return store->methods->get_instance(store, arena, instance, out, err);
}

int dur_store_list_executions(dur_provider *store, dur_arena *arena, const char *instance, dur_execution_row **out,
                              size_t *count, dur_error *err) {
    ENTER(list_executions, arena != NULL && instance != NULL && out != NULL && count != NULL,
          "arena, instance, out and count");
    *out = NULL;
    *count = 0;
    return store->methods->list_executions(store, arena, instance, out, count, err);
}

int dur_store_get_system_metrics(dur_provider *store, dur_system_metrics *out, dur_error *err) {
    ENTER(get_system_metrics, out != NULL, "out");
    return store->methods->get_system_metrics(store, out, err);
}

int dur_store_get_queue_depths(dur_provider *store, dur_queue_depths *out, dur_error *err) {
    ENTER(get_queue_depths, out != NULL, "out");
    return store->methods->get_queue_depths(store, out, err);
}

int dur_store_delete_meant(dur_provider *store, const char *const *ids, const dur_meant *meant, size_t count,
                           bool force, dur_delete_result *out, dur_error *err) {
    dur_delete_result ignored;
    ENTER(delete_instances, ids != NULL || count == 0, "ids");
    for (size_t i = 0; i < count; i++)
        if (ids[i] == NULL) return dur__store_null(err, "delete_instances", "every id");
    if (out == NULL) out = &ignored;
    *out = (dur_delete_result){ 0, 0, 0, 0 };
    return store->methods->delete_instances(store, ids, meant, count, force, out, err);
}

int dur_store_delete_instances(dur_provider *store, const char *const *ids, size_t count, bool force,
                               dur_delete_result *out, dur_error *err) {
    return dur_store_delete_meant(store, ids, NULL, count, force, out, err);
}

static int check_filter(const dur_bulk_filter *filter, const char *op, dur_error *err) {
    if (filter->instance_ids == NULL && filter->instance_id_count > 0) return dur__store_null(err, op, "instance_ids");
    for (size_t i = 0; i < filter->instance_id_count; i++)
        if (filter->instance_ids[i] == NULL) return dur__store_null(err, op, "every id");
    return DUR_OK;
}

int dur_store_delete_instances_bulk(dur_provider *store, const dur_bulk_filter *filter, dur_delete_result *out,
                                    dur_error *err) {
    dur_delete_result ignored;
    ENTER(delete_instances_bulk, filter != NULL, "filter");
    int code = check_filter(filter, "delete_instances_bulk", err);
    if (code != DUR_OK) return code;
    if (out == NULL) out = &ignored;
    *out = (dur_delete_result){ 0, 0, 0, 0 };
    return store->methods->delete_instances_bulk(store, filter, out, err);
}

int dur_store_prune_executions(dur_provider *store, const char *instance, const dur_prune_options *options,
                               dur_prune_result *out, dur_error *err) {
    dur_prune_result ignored;
    ENTER(prune_executions, instance != NULL && options != NULL, "instance and options");
    if (out == NULL) out = &ignored;
    *out = (dur_prune_result){ 0, 0, 0 };
    return store->methods->prune_executions(store, instance, options, out, err);
}

int dur_store_prune_executions_bulk(dur_provider *store, const dur_bulk_filter *filter,
                                    const dur_prune_options *options, dur_prune_result *out, dur_error *err) {
    dur_prune_result ignored;
    ENTER(prune_executions_bulk, filter != NULL && options != NULL, "filter and options");
    int code = check_filter(filter, "prune_executions_bulk", err);
    if (code != DUR_OK) return code;
    if (out == NULL) out = &ignored;
    *out = (dur_prune_result){ 0, 0, 0 };
    return store->methods->prune_executions_bulk(store, filter, options, out, err);
}

/* ---- dead letters ------------------------------------------------------------------------------------------------ */

int dur_store_dead_letter_messages(dur_provider *store, const char *instance, const uint64_t *ids, size_t count,
                                   const char *reason, dur_error *err) {
    int code = dur__store_enter(store, "dead_letter_messages", err);
    if (code != DUR_OK) return code;
    if (instance == NULL || reason == NULL || (ids == NULL && count > 0))
        return dur__store_null(err, "dead_letter_messages", "instance, ids and reason");
    if (!DUR_HAS_METHOD(store->methods, dead_letter_messages))
        return dur__fallback_dead_letter_messages(instance, count, reason);
    return store->methods->dead_letter_messages(store, instance, ids, count, reason, err);
}

int dur_store_dead_letter_work(dur_provider *store, const char *lock_token, const char *reason, dur_error *err) {
    int code = dur__store_enter(store, "dead_letter_work", err);
    if (code != DUR_OK) return code;
    if (lock_token == NULL || reason == NULL) return dur__store_null(err, "dead_letter_work", "lock_token and reason");
    if (!DUR_HAS_METHOD(store->methods, dead_letter_work))
        return dur__fallback_dead_letter_work(store, lock_token, reason, err);
    return store->methods->dead_letter_work(store, lock_token, reason, err);
}

int dur_store_list_dead_letters(dur_provider *store, dur_arena *arena, uint64_t after_id, size_t limit,
                                dur_dead_letter **out, size_t *count, dur_error *err) {
    ENTER(list_dead_letters, arena != NULL && out != NULL && count != NULL, "arena, out and count");
    *out = NULL;
    *count = 0;
    return store->methods->list_dead_letters(store, arena, after_id, limit, out, count, err);
}

int dur_store_delete_dead_letters(dur_provider *store, const uint64_t *ids, size_t count, dur_error *err) {
    ENTER(delete_dead_letters, ids != NULL || count == 0, "ids");
    return store->methods->delete_dead_letters(store, ids, count, err);
}

/* ---- suspending and maintenance ---------------------------------------------------------------------------------- */

int dur_store_set_suspended(dur_provider *store, const char *instance, const char *reason, dur_error *err) {
    ENTER(set_suspended, instance != NULL, "instance");
    int code = dur__check_text(err, "set_suspended", "reason", reason, DUR__REASON_BYTES_MAX, DUR__OPTIONAL);
    if (code != DUR_OK) return code;
    return store->methods->set_suspended(store, instance, reason, err);
}

int dur_store_backup(dur_provider *store, const char *target, dur_error *err) {
    ENTER(backup, target != NULL, "target");
    return store->methods->backup(store, target, err);
}

int dur_store_check(dur_provider *store, dur_error *err) {
    ENTER(check, true, "");
    return store->methods->check(store, err);
}

int dur_store_vacuum(dur_provider *store, uint64_t pages_max, uint64_t *pages_left, dur_error *err) {
    uint64_t ignored;
    ENTER(vacuum, true, "");
    if (pages_left == NULL) pages_left = &ignored;
    *pages_left = 0;
    return store->methods->vacuum(store, pages_max, pages_left, err);
}
