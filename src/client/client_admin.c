/*
 * client_admin.c: looking at many instances: lists, executions, histories, trees, counts, dead letters.
 */
#include "client/client_internal.h"

#include "base/arena_internal.h"
#include "base/buf.h"
#include "base/map.h"
#include "core/check.h"
#include "core/limits.h"

#include <inttypes.h>

bool dur_client_has_admin(const dur_client *client) {
    static const char *const methods[] = { "list_instances",        "get_instance",     "list_executions",
                                           "get_system_metrics",    "get_queue_depths", "delete_instances",
                                           "delete_instances_bulk", "prune_executions", "prune_executions_bulk" };
    if (client == NULL) return false;
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (!dur_store_has(client->store, methods[i])) return false;
    }
    return true;
}

static int check_limit(size_t *limit, const char *op, dur_error *err) {
    if (*limit == 0) *limit = DUR__LIST_LIMIT_DEFAULT;
    if (*limit <= DUR__LIST_LIMIT_MAX) return DUR_OK;
    return dur_error_set(err, DUR_ELIMIT, false, op, "limit is %zu, %d are allowed", *limit, DUR__LIST_LIMIT_MAX);
}

/* ---- instances ---- */

static int check_list(dur_list_options *options, const char *op, dur_error *err) {
    const size_t id_max = DUR__INSTANCE_BYTES_MAX;
    int code = dur__check_text(err, op, "name", options->name, DUR__NAME_BYTES_MAX, DUR__OPTIONAL);
    if (code == DUR_OK) code = dur__check_text(err, op, "id_prefix", options->id_prefix, id_max, DUR__OPTIONAL);
    if (code == DUR_OK) code = dur__check_text(err, op, "parent", options->parent, id_max, DUR__OPTIONAL);
    if (code == DUR_OK) code = dur__check_text(err, op, "after", options->after, id_max, DUR__OPTIONAL);
    if (code == DUR_OK && (unsigned)options->status > DUR_INSTANCE_FAILED)
        code = dur_error_set(err, DUR_EINVAL, false, op, "status is %d, which is none", (int)options->status);
    if (code == DUR_OK) code = check_limit(&options->limit, op, err);
    return code;
}

static int list_fill(dur_instance_list *list, dur_client *client, dur_arena *arena, const dur_list_options *options,
                     dur_error *err) {
    static const dur_status stored[] = { DUR_STATUS_NONE, DUR_STATUS_RUNNING, DUR_STATUS_COMPLETED, DUR_STATUS_FAILED };
    dur_instance_row *rows = NULL;
    size_t count = 0;
    dur_instance_query query = {
        .status = stored[options->status],
        .suspended_only = options->suspended_only,
        .name = options->name,
        .id_prefix = options->id_prefix,
        .parent = options->parent,
        .roots_only = options->roots_only,
        .created_after_ms = options->created_after_ms,
        .created_before_ms = options->created_before_ms,
        .limit = options->limit + 1, /* one more tells whether there is a next page */
        .after = options->after,
    };
    int code = dur_store_list_instances(client->store, arena, &query, &rows, &count, err);
    if (code == DUR_OK) code = dur__client_room(arena, "client.list", err);
    if (code != DUR_OK) return code;
    list->count = count < options->limit ? count : options->limit;
    const dur_instance_info **items = dur_arena_zalloc(arena, (list->count + 1) * sizeof(*items));
    for (size_t i = 0; i < list->count && code == DUR_OK; i++) {
        dur_instance_info *info = dur_arena_zalloc(arena, sizeof(*info));
        dur__client_row_complete(&rows[i], arena);
        dur__client_info_fill(info, &rows[i]);
        code = dur__client_info_failure(client, arena, info, err);
        items[i] = info;
    }
    list->items = items;
    if (code == DUR_OK && count > list->count) list->next = items[list->count - 1]->instance;
    return code;
}

int dur_client_list(dur_instance_list **out, dur_client *client, const dur_list_options *given, dur_error *err) {
    DUR__LIMITED(client);
    const char *op = "client.list";
    DUR__SET_ASIDE(op, err);
    dur_list_options options;
    dur_arena *arena;
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = dur__client_enter(client, op, err);
    if (code == DUR_OK) code = dur__client_options(&options, sizeof(options), given, op, err);
    if (code == DUR_OK) code = check_list(&options, op, err);
    if (code != DUR_OK) return code;
    dur_instance_list *list = dur__client_box(sizeof(*list), &arena);
    code = list_fill(list, client, arena, &options, err);
    if (code == DUR_OK)
        *out = list;
    else
        dur__client_box_free(list);
    return code;
}

void dur_instance_list_free(dur_instance_list *list) {
    dur__client_box_free(list);
}

/* ---- executions and histories ---- */

static dur_execution_status execution_status(dur_status stored) {
    switch (stored) {
    case DUR_STATUS_COMPLETED:
        return DUR_EXECUTION_COMPLETED;
    case DUR_STATUS_FAILED:
        return DUR_EXECUTION_FAILED;
    case DUR_STATUS_CONTINUED_AS_NEW:
        return DUR_EXECUTION_CONTINUED_AS_NEW;
    case DUR_STATUS_NONE:
    case DUR_STATUS_RUNNING:
        break;
    }
    return DUR_EXECUTION_RUNNING;
}

const char *dur_execution_status_name(dur_execution_status status) {
    static const dur_status stored[] = { DUR_STATUS_RUNNING, DUR_STATUS_COMPLETED, DUR_STATUS_FAILED,
                                         DUR_STATUS_CONTINUED_AS_NEW };
    return (unsigned)status < sizeof(stored) / sizeof(stored[0]) ? dur_status_name(stored[status]) : "?";
}

static int executions_fill(dur_execution_list *list, dur_client *client, dur_arena *arena, const char *instance,
                           dur_error *err) {
    dur_execution_row *rows = NULL;
    dur_instance_row row;
    int code = dur_store_list_executions(client->store, arena, instance, &rows, &list->count, err);
    if (code == DUR_OK && list->count == 0) /* is there one? */
        code = dur__client_row(client, arena, instance, &row, err);
    if (code == DUR_OK) code = dur__client_room(arena, "client.executions", err);
    if (code != DUR_OK) return code;
    const dur_execution_info **items = dur_arena_zalloc(arena, (list->count + 1) * sizeof(*items));
    for (size_t i = 0; i < list->count; i++) {
        dur_execution_info *info = dur_arena_zalloc(arena, sizeof(*info));
        *info = (dur_execution_info){
            .size = sizeof(*info),
            .execution_id = rows[i].execution_id,
            .status = execution_status(rows[i].status),
            .output = rows[i].output,
            .started_at_ms = rows[i].started_at_ms,
            .completed_at_ms = rows[i].completed_at_ms,
            .event_count = rows[i].event_count,
        };
        items[i] = info;
    }
    list->items = items;
    return DUR_OK;
}

int dur_client_executions(dur_execution_list **out, dur_client *client, const char *instance, dur_error *err) {
    DUR__LIMITED(client);
    const char *op = "client.executions";
    DUR__SET_ASIDE(op, err);
    dur_arena *arena;
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code != DUR_OK) return code;
    dur_execution_list *list = dur__client_box(sizeof(*list), &arena);
    code = executions_fill(list, client, arena, instance, err);
    if (code == DUR_OK)
        *out = list;
    else
        dur__client_box_free(list);
    return code;
}

void dur_execution_list_free(dur_execution_list *list) {
    dur__client_box_free(list);
}

/* Nothing was read: is the instance there at all, and was the newest execution asked for? */
static int history_missing(dur_client *client, dur_arena *arena, const char *instance, uint64_t execution_id,
                           const char *op, dur_error *err) {
    dur_instance_row row;
    int code = dur__client_row(client, arena, instance, &row, err);
    if (code != DUR_OK || execution_id == 0) return code;
    return dur_error_set(err, DUR_ENOTFOUND, false, op, "instance \"%.200s\" has no execution %" PRIu64, instance,
                         execution_id);
}

int dur_client_history(char **out, dur_client *client, const char *instance, uint64_t execution_id, dur_error *err) {
    DUR__LIMITED(client);
    const char *op = "client.history";
    DUR__SET_ASIDE(op, err);
    dur_event_row *rows = NULL;
    size_t count = 0;
    dur__buf text = { 0 };
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code != DUR_OK) return code;
    dur_arena *arena = dur__arena_xnew();
    code = dur_store_read(client->store, arena, instance, execution_id, &rows, &count, err);
    if (code == DUR_OK && count == 0) code = history_missing(client, arena, instance, execution_id, op, err);
    if (code == DUR_OK) code = dur__client_room(arena, op, err);
    if (code == DUR_OK) {
        size_t size = 3;
        for (size_t i = 0; i < count; i++)
            size += rows[i].json.size + 1;
        dur__buf_grow(&text, size);
        dur__buf_char(&text, '[');
        for (size_t i = 0; i < count; i++) { /* as stored, so that a broken event can be looked at */
            if (i > 0) dur__buf_char(&text, ',');
            dur__buf_add(&text, rows[i].json.data, rows[i].json.size);
        }
        dur__buf_char(&text, ']');
        *out = dur__buf_take(&text);
    }
    dur_arena_free(arena);
    return code;
}

/* ---- trees ---- */

/* A handler that goes on calling itself may add to a tree as fast as it is read: found in it and born since we began.
 */
enum { TREE_GROWS_MAX = 10000 };

typedef struct tree {
    dur_arena *arena;
    dur__tree found; /* in order of finding: a parent before its children */
    size_t room;
    dur__map seen;
    uint64_t begun_ms;
    size_t born_since;
} tree;

static void tree_grow(tree *self) {
    dur__tree *found = &self->found;
    size_t room = self->room * 2 + 16;
    const char **ids = dur_arena_alloc(self->arena, room * sizeof(*ids));
    dur_meant *meant = dur_arena_alloc(self->arena, room * sizeof(*meant));
    if (found->count > 0) {
        memcpy(ids, found->ids, found->count * sizeof(*ids));
        memcpy(meant, found->meant, found->count * sizeof(*meant));
    }
    found->ids = ids;
    found->meant = meant;
    self->room = room;
}

dur_meant dur__client_meant(const dur_instance_row *row) {
    dur_meant meant = { .birth = row->start_pending ? 0 : row->birth };
    if (row->start_pending) meant.start_id = row->pending_start_id;
    return meant;
}

static void tree_add(tree *self, const dur_instance_row *row) {
    dur__tree *found = &self->found;
    if (dur__map_get(&self->seen, row->instance_id) != NULL) return; /* a store that tells nonsense must not keep us */
    if (found->count == self->room) tree_grow(self);
    found->ids[found->count] = row->instance_id;
    found->meant[found->count++] = dur__client_meant(row);
    self->born_since += row->created_at_ms > self->begun_ms;
    dur__map_put(&self->seen, row->instance_id, self);
}

static int tree_add_children(tree *self, dur_client *client, const char *parent, dur_error *err) {
    const char *after = NULL;
    for (;;) {
        dur_instance_row *rows = NULL;
        size_t count = 0;
        dur_instance_query query = { .parent = parent, .limit = DUR__LIST_LIMIT_DEFAULT, .after = after };
        int code = dur_store_list_instances(client->store, self->arena, &query, &rows, &count, err);
        if (code == DUR_OK) code = dur__client_room(self->arena, "client.tree", err);
        if (code != DUR_OK) return code;
        for (size_t i = 0; i < count; i++)
            tree_add(self, &rows[i]);
        if (self->born_since > TREE_GROWS_MAX)
            return dur_error_set(err, DUR_EBUSY, true, "client.tree",
                                 "below instance \"%.150s\" instances begin as fast as they are looked for (%d did): "
                                 "terminate it, then try again",
                                 self->found.ids[0], TREE_GROWS_MAX);
        if (count < query.limit) return DUR_OK;
        after = rows[count - 1].instance_id;
    }
}

int dur__client_tree(dur_client *client, dur_arena *arena, const dur_instance_row *root, dur__tree *out,
                     dur_error *err) {
    tree self = { .arena = arena, .begun_ms = dur_store_now_ms(client->store) };
    int code = DUR_OK;
    tree_add(&self, root);
    for (size_t i = 0; i < self.found.count && code == DUR_OK; i++) {
        if (i == 0 || self.found.meant[i].start_id == 0)
            code = tree_add_children(&self, client, self.found.ids[i], err);
    }
    dur__map_free(&self.seen);
    *out = self.found;
    return code;
}

int dur_client_tree(dur_id_list **out, dur_client *client, const char *instance, dur_error *err) {
    DUR__LIMITED(client);
    const char *op = "client.tree";
    DUR__SET_ASIDE(op, err);
    dur_arena *arena;
    dur_instance_row root;
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code != DUR_OK) return code;
    dur_id_list *list = dur__client_box(sizeof(*list), &arena);
    code = dur__client_row(client, arena, instance, &root, err);
    dur__tree found = { NULL, NULL, 0 };
    if (code == DUR_OK) code = dur__client_tree(client, arena, &root, &found, err);
    *list = (dur_id_list){ .size = sizeof(*list), .count = found.count, .ids = found.ids };
    if (code == DUR_OK)
        *out = list;
    else
        dur__client_box_free(list);
    return code;
}

void dur_id_list_free(dur_id_list *list) {
    dur__client_box_free(list);
}

/* ---- counts ---- */

int dur_client_counts(dur_store_counts *out, dur_client *client, dur_error *err) {
    DUR__LIMITED(client);
    const char *op = "client.counts";
    DUR__SET_ASIDE(op, err);
    dur_system_metrics metrics = { 0 };
    dur_queue_depths depths = { 0 };
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    int code = dur__client_enter(client, op, err);
    if (code == DUR_OK) code = dur__client_answer_check(out, sizeof(*out), op, err);
    if (code == DUR_OK) code = dur_store_get_system_metrics(client->store, &metrics, err);
    if (code == DUR_OK) code = dur_store_get_queue_depths(client->store, &depths, err);
    if (code != DUR_OK) return code;
    dur_store_counts counts = {
        .total_instances = metrics.total_instances + metrics.starts_waiting,
        .total_executions = metrics.total_executions,
        .running = metrics.running + metrics.starts_waiting,
        .completed = metrics.completed,
        .failed = metrics.failed,
        .suspended = metrics.suspended,
        .total_events = metrics.total_events,
        .orchestrator_queue = depths.orchestrator_queue,
        .worker_queue = depths.worker_queue,
        .timer_queue = depths.timer_queue,
        .dead_letters = depths.dead_letters,
    };
    dur__client_answer(out, sizeof(counts), &counts);
    return DUR_OK;
}

int dur_client_stats_get(dur_client_stats *out, dur_client *client, const char *instance, dur_error *err) {
    DUR__LIMITED(client);
    const char *op = "client.stats_get";
    DUR__SET_ASIDE(op, err);
    dur_instance_stats found = { 0 };
    bool exists = false;
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code == DUR_OK) code = dur__client_answer_check(out, sizeof(*out), op, err);
    if (code != DUR_OK) return code;
    dur_arena *arena = dur__arena_xnew();
    code = dur_store_get_instance_stats(client->store, arena, instance, &exists, &found, err);
    dur_arena_free(arena);
    if (code != DUR_OK) return code;
    if (!exists) return dur_error_set(err, DUR_ENOTFOUND, false, op, "instance \"%.200s\" not found", instance);
    dur_client_stats stats = {
        .history_event_count = found.history_event_count,
        .history_size_bytes = found.history_size_bytes,
        .queue_pending_count = found.queue_pending_count,
        .kv_user_key_count = found.kv_user_key_count,
        .kv_total_value_bytes = found.kv_total_value_bytes,
    };
    dur__client_answer(out, sizeof(stats), &stats);
    return DUR_OK;
}

/* ---- dead letters ---- */

int dur_client_dead_letters(dur_dead_letter_list **out, dur_client *client, uint64_t after_id, size_t limit,
                            dur_error *err) {
    DUR__LIMITED(client);
    const char *op = "client.dead_letters";
    DUR__SET_ASIDE(op, err);
    dur_arena *arena;
    dur_dead_letter *letters = NULL;
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = dur__client_enter(client, op, err);
    if (code == DUR_OK) code = check_limit(&limit, op, err);
    if (code != DUR_OK) return code;
    dur_dead_letter_list *list = dur__client_box(sizeof(*list), &arena);
    code = dur_store_list_dead_letters(client->store, arena, after_id, limit, &letters, &list->count, err);
    if (code == DUR_OK) code = dur__client_room(arena, op, err);
    if (code != DUR_OK) {
        dur__client_box_free(list);
        return code;
    }
    const dur_dead_letter_info **items = dur_arena_zalloc(arena, (list->count + 1) * sizeof(*items));
    for (size_t i = 0; i < list->count; i++) {
        dur_dead_letter_info *info = dur_arena_zalloc(arena, sizeof(*info));
        *info = (dur_dead_letter_info){
            .size = sizeof(*info),
            .id = letters[i].id,
            .instance = letters[i].instance,
            .reason = letters[i].reason,
            .at_ms = letters[i].at_ms,
            .message = dur_arena_memdup(arena, letters[i].json.data, letters[i].json.size),
        };
        items[i] = info;
    }
    list->items = items;
    *out = list;
    return DUR_OK;
}

void dur_dead_letter_list_free(dur_dead_letter_list *list) {
    dur__client_box_free(list);
}

int dur_client_dead_letters_delete(dur_client *client, const uint64_t *ids, size_t count, dur_error *err) {
    const char *op = "client.dead_letters_delete";
    DUR__SET_ASIDE(op, err);
    int code = dur__client_enter(client, op, err);
    if (code != DUR_OK) return code;
    if (ids == NULL && count > 0) return dur_error_set(err, DUR_EINVAL, false, op, "ids are required, got NULL");
    if (count == 0) return DUR_OK;
    return dur_store_delete_dead_letters(client->store, ids, count, err);
}
