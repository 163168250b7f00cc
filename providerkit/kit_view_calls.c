/*
 * kit_view_calls.c: the plain calls of a view: a name in, an answer out.
 */
#include "kit_view.h"

#include <stdlib.h>

/* Whoever asks for the time goes by it: the check is run again with the clock, which nobody else moves then. */
uint64_t kit_view_now(dur_provider *self) {
    kit_view *view = view_of(self);
    if (!view->has_time && view->commons->moves) view->wants_time = true;
    return INNER->methods->now_ms(INNER);
}

int kit_view_read(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution_id,
                  dur_event_row **out, size_t *count, dur_error *err) {
    TOGETHER(INNER->methods->read(INNER, arena, kit_in(self, instance), execution_id, out, count, err));
}

int kit_view_append(dur_provider *self, const char *instance, uint64_t execution_id, const dur_event_row *events,
                    size_t count, dur_error *err) {
    TOGETHER(INNER->methods->append(INNER, kit_in(self, instance), execution_id, events, count, err));
}

int kit_view_enqueue(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    dur_message_row message = kit_message_in(self, item);
    int code = kit_later(self, delay_ms > 0 || kit_is_later(self, item->due_ms), err);
    if (code != DUR_OK) return code;
    TOGETHER(INNER->methods->enqueue_for_orchestrator(INNER, &message, delay_ms, err));
}

static int starts_together(dur_provider *self, dur_start_request *starts, size_t count, dur_error *err) {
    TOGETHER(INNER->methods->enqueue_starts(INNER, starts, count, err));
}

int kit_view_enqueue_start(dur_provider *self, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms,
                           bool *existed, dur_error *err) {
    dur_message_row message = kit_message_in(self, item);
    int code = kit_later(self, delay_ms > 0 || kit_is_later(self, item->due_ms), err);
    if (code != DUR_OK) return code;
    TOGETHER(INNER->methods->enqueue_start(INNER, &message, policy, delay_ms, existed, err));
}

int kit_view_enqueue_starts(dur_provider *self, dur_start_request *starts, size_t count, dur_error *err) {
    dur_message_row *messages = kit_list(count, sizeof(*messages));
    dur_start_request *inner = kit_list(count, sizeof(*inner));
    int code = DUR_OK;
    for (size_t i = 0; i < count && code == DUR_OK; i++) {
        messages[i] = kit_message_in(self, starts[i].item);
        inner[i] = starts[i];
        inner[i].item = &messages[i];
        code = kit_later(self, starts[i].delay_ms > 0 || kit_is_later(self, starts[i].item->due_ms), err);
    }
    if (code == DUR_OK) code = starts_together(self, inner, count, err);
    for (size_t i = 0; i < count && code == DUR_OK; i++) {
        starts[i].existed = inner[i].existed;
        starts[i].error = inner[i].error;
    }
    free(inner);
    free(messages);
    return code;
}

int kit_view_enqueue_existing(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    dur_message_row message = kit_message_in(self, item);
    int code = kit_later(self, delay_ms > 0 || kit_is_later(self, item->due_ms), err);
    if (code != DUR_OK) return code;
    TOGETHER(INNER->methods->enqueue_existing(INNER, &message, delay_ms, err));
}

int kit_view_custom_status(dur_provider *self, dur_arena *arena, const char *instance, uint64_t last_seen,
                           bool *changed, const char **status, uint64_t *version, dur_error *err) {
    TOGETHER(INNER->methods->get_custom_status(INNER, arena, kit_in(self, instance), last_seen, changed, status,
                                               version, err));
}

int kit_view_kv_value(dur_provider *self, dur_arena *arena, const char *instance, const char *key, const char **value,
                      dur_error *err) {
    TOGETHER(INNER->methods->get_kv_value(INNER, arena, kit_in(self, instance), key, value, err));
}

int kit_view_kv_all(dur_provider *self, dur_arena *arena, const char *instance, dur_key_value **out, size_t *count,
                    dur_error *err) {
    TOGETHER(INNER->methods->get_kv_all_values(INNER, arena, kit_in(self, instance), out, count, err));
}

int kit_view_owner_register(dur_provider *self, const dur_owner_options *options, dur_error *err) {
    kit_view *view = view_of(self);
    dur_owner_options to = *options;
    to.owner = kit_in(self, options->owner);
    to.timeout_ms = kit_held_ms(self, options->timeout_ms);
    if (view->owner_count == KIT_OWNERS_MAX) return kit_alone(self, "it has too many owners", err);
    view->owners[view->owner_count++] = to.owner;
    TOGETHER(INNER->methods->owner_register(INNER, &to, err));
}

int kit_view_owner_beat(dur_provider *self, const char *owner, dur_owner_report *report, dur_error *err) {
    (void)owner;
    memset(report, 0, sizeof(*report));
    return kit_alone(self, "owner_beat tells of everybody's owners", err);
}

int kit_view_owner_release(dur_provider *self, const char *owner, dur_error *err) {
    TOGETHER(INNER->methods->owner_release(INNER, kit_in(self, owner), err));
}

int kit_view_owner_holdings(dur_provider *self, dur_arena *arena, const char *owner, dur_holding **out, size_t *count,
                            dur_error *err) {
    int code = INNER->methods->owner_holdings(INNER, arena, kit_in(self, owner), out, count, err);
    for (size_t i = 0; code == DUR_OK && i < *count; i++) {
        (*out)[i].instance = kit_out(self, (*out)[i].instance);
        (*out)[i].token = kit_out(self, (*out)[i].token);
    }
    return code;
}

typedef struct view_watch {
    dur_watch base;
    dur_watch *inner;
} view_watch;

int kit_view_watch_open(dur_provider *self, const char *instance, dur_watch **out, dur_error *err) {
    kit_view *view = view_of(self);
    view_watch *watch = kit_list(1, sizeof(*watch));
    watch->base.store = self;
    pthread_rwlock_rdlock(&view->commons->look);
    int code = INNER->methods->watch_open(INNER, kit_in(self, instance), &watch->inner, err);
    pthread_rwlock_unlock(&view->commons->look);
    if (code == DUR_OK)
        *out = &watch->base;
    else
        free(watch);
    return code;
}

int kit_view_watch_wait(dur_watch *watch, uint64_t timeout_ms, dur_error *err) {
    dur_watch *inner = ((view_watch *)(void *)watch)->inner;
    return inner->store->methods->watch_wait(inner, timeout_ms, err);
}

int kit_view_list_unserved(dur_provider *self, dur_arena *arena, size_t each, dur_unserved **out, size_t *count,
                           dur_error *err) {
    (void)arena;
    (void)each;
    *out = NULL;
    *count = 0;
    return kit_alone(self, "list_unserved goes by everybody's owners", err);
}

void kit_view_watch_wake(dur_watch *watch) {
    dur_watch *inner = ((view_watch *)(void *)watch)->inner;
    inner->store->methods->watch_wake(inner);
}

void kit_view_watch_close(dur_watch *watch) {
    dur_watch *inner = ((view_watch *)(void *)watch)->inner;
    inner->store->methods->watch_close(inner);
    free(watch);
}

int kit_view_stats(dur_provider *self, dur_arena *arena, const char *instance, bool *found, dur_instance_stats *out,
                   dur_error *err) {
    TOGETHER(INNER->methods->get_instance_stats(INNER, arena, kit_in(self, instance), found, out, err));
}

static void row_out(dur_provider *self, dur_instance_row *row) {
    row->instance_id = kit_out(self, row->instance_id);
    row->parent_instance_id = kit_out(self, row->parent_instance_id);
    row->owner = kit_out(self, row->owner);
}

int kit_view_list(dur_provider *self, dur_arena *arena, const dur_instance_query *query, dur_instance_row **out,
                  size_t *count, dur_error *err) {
    kit_view *view = view_of(self);
    dur_instance_query to = *query;
    to.id_prefix = kit_in(self, query->id_prefix != NULL ? query->id_prefix : "");
    to.parent = kit_in(self, query->parent);
    to.after = kit_in(self, query->after);
    pthread_rwlock_rdlock(&view->commons->look);
    int code = INNER->methods->list_instances(INNER, arena, &to, out, count, err);
    pthread_rwlock_unlock(&view->commons->look);
    for (size_t i = 0; code == DUR_OK && i < *count; i++)
        row_out(self, &(*out)[i]);
    return code;
}

int kit_view_get(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out, dur_error *err) {
    kit_view *view = view_of(self);
    pthread_rwlock_rdlock(&view->commons->look);
    int code = INNER->methods->get_instance(INNER, arena, kit_in(self, instance), out, err);
    pthread_rwlock_unlock(&view->commons->look);
    if (code == DUR_OK) row_out(self, out);
    return code;
}

int kit_view_executions(dur_provider *self, dur_arena *arena, const char *instance, dur_execution_row **out,
                        size_t *count, dur_error *err) {
    TOGETHER(INNER->methods->list_executions(INNER, arena, kit_in(self, instance), out, count, err));
}

int kit_view_metrics(dur_provider *self, dur_system_metrics *out, dur_error *err) {
    memset(out, 0, sizeof(*out));
    return kit_alone(self, "get_system_metrics counts everybody's", err);
}

int kit_view_depths(dur_provider *self, dur_queue_depths *out, dur_error *err) {
    memset(out, 0, sizeof(*out));
    return kit_alone(self, "get_queue_depths counts everybody's", err);
}

static const char **names_in(dur_provider *self, const char *const *ids, size_t count) {
    const char **to = kit_list(count, sizeof(*to));
    for (size_t i = 0; i < count; i++)
        to[i] = kit_in(self, ids[i]);
    return to;
}

int kit_view_delete(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count, bool force,
                    dur_delete_result *out, dur_error *err) {
    kit_view *view = view_of(self);
    const char **to = names_in(self, ids, count);
    pthread_rwlock_rdlock(&view->commons->look);
    int code = INNER->methods->delete_instances(INNER, to, meant, count, force, out, err);
    pthread_rwlock_unlock(&view->commons->look);
    free(to);
    return code;
}

int kit_view_delete_bulk(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out, dur_error *err) {
    kit_view *view = view_of(self);
    dur_bulk_filter to = *filter;
    memset(out, 0, sizeof(*out));
    if (filter->instance_ids == NULL) return kit_alone(self, "it deletes whatever has ended", err);
    const char **ids = names_in(self, filter->instance_ids, filter->instance_id_count);
    to.instance_ids = ids;
    pthread_rwlock_rdlock(&view->commons->look);
    int code = INNER->methods->delete_instances_bulk(INNER, &to, out, err);
    pthread_rwlock_unlock(&view->commons->look);
    free(ids);
    return code;
}

int kit_view_prune(dur_provider *self, const char *instance, const dur_prune_options *options, dur_prune_result *out,
                   dur_error *err) {
    TOGETHER(INNER->methods->prune_executions(INNER, kit_in(self, instance), options, out, err));
}

int kit_view_prune_bulk(dur_provider *self, const dur_bulk_filter *filter, const dur_prune_options *options,
                        dur_prune_result *out, dur_error *err) {
    kit_view *view = view_of(self);
    dur_bulk_filter to = *filter;
    memset(out, 0, sizeof(*out));
    if (filter->instance_ids == NULL) return kit_alone(self, "it prunes whatever there is", err);
    const char **ids = names_in(self, filter->instance_ids, filter->instance_id_count);
    to.instance_ids = ids;
    pthread_rwlock_rdlock(&view->commons->look);
    int code = INNER->methods->prune_executions_bulk(INNER, &to, options, out, err);
    pthread_rwlock_unlock(&view->commons->look);
    free(ids);
    return code;
}

int kit_view_dead_letter_messages(dur_provider *self, const char *instance, const uint64_t *ids, size_t count,
                                  const char *reason, dur_error *err) {
    TOGETHER(INNER->methods->dead_letter_messages(INNER, kit_in(self, instance), ids, count, reason, err));
}

/* Everybody's, and of these the view's; page by page, since a limit counts only those. */
int kit_view_letters(dur_provider *self, dur_arena *arena, uint64_t after_id, size_t limit, dur_dead_letter **out,
                     size_t *count, dur_error *err) {
    kit_view *view = view_of(self);
    dur_dead_letter *rows = NULL;
    size_t found = 0, most = limit > 0 && limit < 1000 ? limit : 1000;
    *out = dur_arena_zalloc(arena, (most + 1) * sizeof(**out));
    *count = 0;
    do {
        pthread_rwlock_rdlock(&view->commons->look);
        int code = INNER->methods->list_dead_letters(INNER, arena, after_id, 100, &rows, &found, err);
        pthread_rwlock_unlock(&view->commons->look);
        if (code != DUR_OK) return code;
        for (size_t i = 0; i < found && *count < most; i++) {
            after_id = rows[i].id;
            if (!kit_mine(view, rows[i].instance)) continue;
            (*out)[*count] = rows[i];
            (*out)[*count].instance = kit_out(self, rows[i].instance);
            (*count)++;
        }
    } while (found == 100 && *count < most);
    return DUR_OK;
}

int kit_view_delete_letters(dur_provider *self, const uint64_t *ids, size_t count, dur_error *err) {
    TOGETHER(INNER->methods->delete_dead_letters(INNER, ids, count, err));
}

int kit_view_suspend(dur_provider *self, const char *instance, const char *reason, dur_error *err) {
    TOGETHER(INNER->methods->set_suspended(INNER, kit_in(self, instance), reason, err));
}

int kit_view_check(dur_provider *self, dur_error *err) {
    TOGETHER(INNER->methods->check(INNER, err));
}
