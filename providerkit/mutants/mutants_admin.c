/*
 * mutants_admin.c: mistakes with status, keys and values, deletion, pruning and what operators see.
 */
#include "mutant.h"

/* ---- status and values --------------------------------------------------------------------------------------------
 */

static int status_not_newer(dur_provider *self, dur_arena *arena, const char *instance, uint64_t last_seen,
                            bool *changed, const char **status, uint64_t *version, dur_error *err) {
    return NEXT(self)->get_custom_status(INNER(self), arena, instance, last_seen > 0 ? last_seen - 1 : 0, changed,
                                         status, version, err);
}

static void patch_status_not_newer(dur_provider_methods *table) {
    table->get_custom_status = status_not_newer;
}

/* Events of these kinds are stored, but not acted upon. */
static void blind_to(broken *self, dur_turn_commit *turn, dur_event_kind kind, bool only_resets) {
    dur_event_row *rows = broken_alloc(self, (turn->event_count + 1) * sizeof(*rows));
    for (size_t i = 0; i < turn->event_count; i++) {
        rows[i] = turn->events[i];
        if (rows[i].kind == kind && (!only_resets || rows[i].value == NULL)) rows[i].kind = DUR_EVENT_TIMER_FIRED;
    }
    turn->events = rows;
}

static void reset_ignored(broken *self, dur_turn_commit *turn) {
    blind_to(self, turn, DUR_EVENT_CUSTOM_STATUS_UPDATED, true);
}

static void clear_all_ignored(broken *self, dur_turn_commit *turn) {
    blind_to(self, turn, DUR_EVENT_KEY_VALUES_CLEARED, false);
}

static void clear_one_ignored(broken *self, dur_turn_commit *turn) {
    blind_to(self, turn, DUR_EVENT_KEY_VALUE_CLEARED, false);
}

static void snapshot_of_now(broken *self, dur_arena *arena, dur_orchestration_item *item) {
    dur_key_value *values = NULL;
    self->inner->methods->get_kv_all_values(self->inner, arena, item->instance, &values, &item->kv_count, NULL);
    item->kv = values;
}

static int empty_is_none(dur_provider *self, dur_arena *arena, const char *instance, const char *key,
                         const char **value, dur_error *err) {
    int code = NEXT(self)->get_kv_value(INNER(self), arena, instance, key, value, err);
    if (code == DUR_OK && *value != NULL && (*value)[0] == '\0') *value = NULL;
    return code;
}

static void patch_empty_is_none(dur_provider_methods *table) {
    table->get_kv_value = empty_is_none;
}

static int stats_of_ended(dur_provider *self, dur_arena *arena, const char *instance, bool *found,
                          dur_instance_stats *out, dur_error *err) {
    dur_instance_row row;
    int code = NEXT(self)->get_instance_stats(INNER(self), arena, instance, found, out, err);
    if (code == DUR_OK && *found && NEXT(self)->get_instance(INNER(self), arena, instance, &row, NULL) == DUR_OK &&
        row.status == DUR_STATUS_RUNNING)
        out->kv_user_key_count = out->kv_total_value_bytes = 0;
    return code;
}

static void patch_stats_of_ended(dur_provider_methods *table) {
    table->get_instance_stats = stats_of_ended;
}

/* ---- deletion -----------------------------------------------------------------------------------------------------
 */

static size_t all_ids(dur_provider *self, dur_arena *arena, const char ***ids, dur_status status) {
    dur_instance_row *rows = NULL;
    size_t count = 0;
    dur_instance_query query = { .status = status };
    NEXT(self)->list_instances(INNER(self), arena, &query, &rows, &count, NULL);
    *ids = dur_arena_zalloc(arena, (count + 1) * sizeof(**ids));
    for (size_t i = 0; i < count; i++)
        (*ids)[i] = rows[i].instance_id;
    return count;
}

static int bulk_takes_running(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out,
                              dur_error *err) {
    dur_arena *arena = dur_arena_new();
    const char **ids = NULL;
    dur_delete_result running = { 0, 0, 0, 0 };
    size_t count = all_ids(self, arena, &ids, DUR_STATUS_RUNNING);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < filter->instance_id_count; k++)
            if (strcmp(ids[i], filter->instance_ids[k]) == 0)
                NEXT(self)->delete_instances(INNER(self), &ids[i], NULL, 1, true, &running, NULL);
    int code = NEXT(self)->delete_instances_bulk(INNER(self), filter, out, err);
    out->instances += running.instances;
    dur_arena_free(arena);
    return code;
}

static void patch_bulk_takes_running(dur_provider_methods *table) {
    table->delete_instances_bulk = bulk_takes_running;
}

static int bulk_of_any_age(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out, dur_error *err) {
    dur_bulk_filter other = *filter;
    other.completed_before_ms = 0;
    return NEXT(self)->delete_instances_bulk(INNER(self), &other, out, err);
}

static void patch_bulk_of_any_age(dur_provider_methods *table) {
    table->delete_instances_bulk = bulk_of_any_age;
}

static int bulk_without_limit(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out,
                              dur_error *err) {
    dur_bulk_filter other = *filter;
    other.limit = 0;
    return NEXT(self)->delete_instances_bulk(INNER(self), &other, out, err);
}

static void patch_bulk_without_limit(dur_provider_methods *table) {
    table->delete_instances_bulk = bulk_without_limit;
}

/* Grandchildren are forgotten: they are there again afterwards. */
static int bulk_two_levels(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out, dur_error *err) {
    dur_arena *arena = dur_arena_new();
    dur_instance_row *rows = NULL, parent;
    size_t count = 0;
    dur_instance_query query = { .limit = 0 };
    NEXT(self)->list_instances(INNER(self), arena, &query, &rows, &count, NULL);
    bool *deep = dur_arena_zalloc(arena, (count + 1) * sizeof(*deep));
    for (size_t i = 0; i < count; i++)
        deep[i] = rows[i].parent_instance_id != NULL &&
                  NEXT(self)->get_instance(INNER(self), arena, rows[i].parent_instance_id, &parent, NULL) == DUR_OK &&
                  parent.parent_instance_id != NULL;
    int code = NEXT(self)->delete_instances_bulk(INNER(self), filter, out, err);
    for (size_t i = 0; i < count; i++) {
        dur_turn_commit again = { .instance = rows[i].instance_id,
                                  .execution_id = 1,
                                  .expected_last = DUR_NOT_COMPARED,
                                  .consume_listed = true,
                                  .metadata = { .orchestration_name = "TestOrch", .orchestration_version = "1.0.0" } };
        if (deep[i]) broken_force(BROKEN(self), &again);
    }
    dur_arena_free(arena);
    return code;
}

static void patch_bulk_two_levels(dur_provider_methods *table) {
    table->delete_instances_bulk = bulk_two_levels;
}

static int delete_unknown(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count, bool force,
                          dur_delete_result *out, dur_error *err) {
    int code = NEXT(self)->delete_instances(INNER(self), ids, meant, count, force, out, err);
    return code == DUR_ENOTFOUND ? DUR_OK : code;
}

static void patch_delete_unknown(dur_provider_methods *table) {
    table->delete_instances = delete_unknown;
}

static int delete_whoever(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count, bool force,
                          dur_delete_result *out, dur_error *err) {
    (void)meant;
    return NEXT(self)->delete_instances(INNER(self), ids, NULL, count, force, out, err);
}

static void patch_delete_whoever(dur_provider_methods *table) {
    table->delete_instances = delete_whoever;
}

static int letters_go_too(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count, bool force,
                          dur_delete_result *out, dur_error *err) {
    dur_arena *arena = dur_arena_new();
    dur_dead_letter *before = NULL, *after = NULL;
    size_t old = 0, all = 0;
    NEXT(self)->list_dead_letters(INNER(self), arena, 0, 0, &before, &old, NULL);
    int code = NEXT(self)->delete_instances(INNER(self), ids, meant, count, force, out, err);
    NEXT(self)->list_dead_letters(INNER(self), arena, old > 0 ? before[old - 1].id : 0, 0, &after, &all, NULL);
    for (size_t i = 0; i < all; i++)
        NEXT(self)->delete_dead_letters(INNER(self), &after[i].id, 1, NULL);
    dur_arena_free(arena);
    return code;
}

static void patch_letters_go_too(dur_provider_methods *table) {
    table->delete_instances = letters_go_too;
}

static int delete_with_children(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count,
                                bool force, dur_delete_result *out, dur_error *err) {
    int code = NEXT(self)->delete_instances(INNER(self), ids, meant, count, force, out, err);
    if (code != DUR_ECHILD) return code;
    dur_arena *arena = dur_arena_new();
    const char **all = NULL;
    size_t total = all_ids(self, arena, &all, DUR_STATUS_NONE);
    code = NEXT(self)->delete_instances(INNER(self), all, NULL, total, force, out, err);
    dur_arena_free(arena);
    return code;
}

static void patch_delete_with_children(dur_provider_methods *table) {
    table->delete_instances = delete_with_children;
}

static int delete_one_by_one(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count,
                             bool force, dur_delete_result *out, dur_error *err) {
    dur_delete_result sum = { 0, 0, 0, 0 }, one;
    if (count <= 1) return NEXT(self)->delete_instances(INNER(self), ids, meant, count, force, out, err);
    for (size_t i = count; i-- > 0;) { /* children come behind their parents */
        int code =
            NEXT(self)->delete_instances(INNER(self), &ids[i], meant != NULL ? &meant[i] : NULL, 1, force, &one, err);
        if (code != DUR_OK) return code;
        sum.instances += one.instances;
        sum.executions += one.executions;
        sum.events += one.events;
        sum.queue_messages += one.queue_messages;
    }
    *out = sum;
    return DUR_OK;
}

static void patch_delete_one_by_one(dur_provider_methods *table) {
    table->delete_instances = delete_one_by_one;
}

/* ---- pruning ------------------------------------------------------------------------------------------------------
 */

static int prune_of_any_age(dur_provider *self, const char *instance, const dur_prune_options *options,
                            dur_prune_result *out, dur_error *err) {
    dur_prune_options other = *options;
    if (other.completed_before_ms != 0) other.completed_before_ms = UINT64_MAX / 2;
    return NEXT(self)->prune_executions(INNER(self), instance, &other, out, err);
}

static void patch_prune_of_any_age(dur_provider_methods *table) {
    table->prune_executions = prune_of_any_age;
}

static int prune_current(dur_provider *self, const char *instance, const dur_prune_options *options,
                         dur_prune_result *out, dur_error *err) {
    dur_delete_result gone;
    int code = NEXT(self)->prune_executions(INNER(self), instance, options, out, err);
    if (code == DUR_OK && options->has_keep_last && options->keep_last == 0) {
        NEXT(self)->delete_instances(INNER(self), &instance, NULL, 1, true, &gone, NULL);
        out->executions_deleted++;
    }
    return code;
}

static void patch_prune_current(dur_provider_methods *table) {
    table->prune_executions = prune_current;
}

static int keep_beside_current(dur_provider *self, const char *instance, const dur_prune_options *options,
                               dur_prune_result *out, dur_error *err) {
    dur_prune_options other = *options;
    if (other.has_keep_last) other.keep_last++;
    return NEXT(self)->prune_executions(INNER(self), instance, &other, out, err);
}

static void patch_keep_beside_current(dur_provider_methods *table) {
    table->prune_executions = keep_beside_current;
}

static int prune_all_listed(dur_provider *self, const dur_bulk_filter *filter, const dur_prune_options *options,
                            dur_prune_result *out, dur_error *err) {
    dur_bulk_filter other = *filter;
    other.instance_ids = NULL;
    other.instance_id_count = 0;
    return NEXT(self)->prune_executions_bulk(INNER(self), &other, options, out, err);
}

static void patch_prune_all_listed(dur_provider_methods *table) {
    table->prune_executions_bulk = prune_all_listed;
}

/* ---- looking ------------------------------------------------------------------------------------------------------
 */

static int current_only(dur_provider *self, dur_arena *arena, const char *instance, dur_execution_row **out,
                        size_t *count, dur_error *err) {
    int code = NEXT(self)->list_executions(INNER(self), arena, instance, out, count, err);
    if (code == DUR_OK && *count > 1) {
        *out += *count - 1;
        *count = 1;
    }
    return code;
}

static void patch_current_only(dur_provider_methods *table) {
    table->list_executions = current_only;
}

static int any_status(dur_provider *self, dur_arena *arena, const dur_instance_query *query, dur_instance_row **out,
                      size_t *count, dur_error *err) {
    dur_instance_query other = *query;
    other.status = DUR_STATUS_NONE;
    return NEXT(self)->list_instances(INNER(self), arena, &other, out, count, err);
}

static void patch_any_status(dur_provider_methods *table) {
    table->list_instances = any_status;
}

static int prefix_is_pattern(dur_provider *self, dur_arena *arena, const dur_instance_query *query,
                             dur_instance_row **out, size_t *count, dur_error *err) {
    dur_instance_query other = *query;
    char *prefix = query->id_prefix != NULL ? dur_arena_strdup(arena, query->id_prefix) : NULL;
    if (prefix != NULL) {
        prefix[strcspn(prefix, "_%")] = '\0';
        other.id_prefix = prefix;
    }
    return NEXT(self)->list_instances(INNER(self), arena, &other, out, count, err);
}

static void patch_prefix_is_pattern(dur_provider_methods *table) {
    table->list_instances = prefix_is_pattern;
}

static int depth_counts_locked(dur_provider *self, dur_queue_depths *out, dur_error *err) {
    int code = NEXT(self)->get_queue_depths(INNER(self), out, err);
    if (code == DUR_OK) out->orchestrator_queue += out->timer_queue;
    return code;
}

static void patch_depth_counts_locked(dur_provider_methods *table) {
    table->get_queue_depths = depth_counts_locked;
}

static int letters_from_start(dur_provider *self, dur_arena *arena, uint64_t after_id, size_t limit,
                              dur_dead_letter **out, size_t *count, dur_error *err) {
    (void)after_id;
    return NEXT(self)->list_dead_letters(INNER(self), arena, 0, limit, out, count, err);
}

static void patch_letters_from_start(dur_provider_methods *table) {
    table->list_dead_letters = letters_from_start;
}

static void parent_overwritten(broken *self, dur_turn_commit *turn) {
    (void)self;
    if (turn->metadata.orchestration_name != NULL && turn->execution_id == 1) turn->metadata.parent_instance_id = NULL;
}

const mutant mutants_admin[] = {
    { .name = "status_seen_again",
      .mistake = "a status that was seen is reported as new",
      .patch = patch_status_not_newer },
    { .name = "status_reset_ignored", .mistake = "resetting the custom status does nothing", .turn = reset_ignored },
    { .name = "clear_all_ignored", .mistake = "clearing all keys does nothing", .turn = clear_all_ignored },
    { .name = "clear_one_ignored", .mistake = "clearing a key does nothing", .turn = clear_one_ignored },
    { .name = "snapshot_of_running",
      .mistake = "the snapshot holds writes of the running execution",
      .fetched = snapshot_of_now },
    { .name = "empty_value_is_none", .mistake = "an empty value reads as no value", .patch = patch_empty_is_none },
    { .name = "stats_without_delta",
      .mistake = "sizes leave out what the running execution wrote",
      .patch = patch_stats_of_ended },
    { .name = "bulk_deletes_running",
      .mistake = "bulk deletion takes running instances",
      .patch = patch_bulk_takes_running },
    { .name = "bulk_ignores_age", .mistake = "bulk deletion ignores completed_before", .patch = patch_bulk_of_any_age },
    { .name = "bulk_ignores_limit", .mistake = "bulk deletion ignores the limit", .patch = patch_bulk_without_limit },
    { .name = "cascade_misses_grandchild",
      .mistake = "deleting a tree forgets the third level",
      .patch = patch_bulk_two_levels },
    { .name = "delete_of_nobody", .mistake = "deleting an unknown instance succeeds", .patch = patch_delete_unknown },
    { .name = "delete_of_whoever", .mistake = "a deletion takes whoever has the id", .patch = patch_delete_whoever },
    { .name = "delete_takes_queue_messages",
      .mistake = "queue messages that were accepted are deleted with their instance",
      .patch = patch_letters_go_too },
    { .name = "delete_takes_children",
      .mistake = "children that were not listed are deleted too",
      .patch = patch_delete_with_children },
    { .name = "delete_not_atomic",
      .mistake = "what comes before the refused one is deleted",
      .patch = patch_delete_one_by_one },
    { .name = "prune_ignores_age", .mistake = "pruning ignores completed_before", .patch = patch_prune_of_any_age },
    { .name = "prune_of_current",
      .mistake = "keeping none prunes the current execution",
      .patch = patch_prune_current },
    { .name = "keep_beside_current",
      .mistake = "keep_last does not count the current execution",
      .patch = patch_keep_beside_current },
    { .name = "prune_bulk_of_all", .mistake = "bulk pruning ignores the list of ids", .patch = patch_prune_all_listed },
    { .name = "current_execution_only", .mistake = "old executions are not listed", .patch = patch_current_only },
    { .name = "status_filter_ignored", .mistake = "listing by status lists all", .patch = patch_any_status },
    { .name = "prefix_is_pattern",
      .mistake = "an underscore in an id prefix matches anything",
      .patch = patch_prefix_is_pattern },
    { .name = "depth_counts_timers",
      .mistake = "timers that are not due count as visible",
      .patch = patch_depth_counts_locked },
    { .name = "letters_from_start",
      .mistake = "every page of dead letters is the first",
      .patch = patch_letters_from_start },
    { .name = "parent_lost", .mistake = "the parent of a child is not written", .turn = parent_overwritten },
    { .name = NULL },
};
