/*
 * memory_delete.c: deleting instances with their trees, and pruning executions.
 */
#include "base/arena_internal.h"
#include "provider/dead_reason.h"
#include "provider/memory/memory_internal.h"

#include <stdlib.h>

#define BULK_LIMIT 1000u

typedef struct instance_list {
    dur__mem_instance **items;
    size_t count, room;
} instance_list;

static void list_add(instance_list *list, dur__mem_instance *instance) {
    if (list->count == list->room) {
        size_t room = list->room > 0 ? 2 * list->room : 8;
        list->items = dur__xrealloc(list->items, room * sizeof(dur__mem_instance *));
        list->room = room;
    }
    list->items[list->count++] = instance;
}

/* Still to run: a continued one counts while its next execution waits. */
static bool is_running(const dur__mem_instance *instance) {
    dur_status status = dur__mem_status(instance);
    return status == DUR_STATUS_RUNNING || instance->start_count > 0;
}

/* The instance and all below it; a parent that is its own descendant ends the walk too. */
static void collect_tree(dur__mem *mem, dur__mem_instance *root, instance_list *list) {
    size_t at = list->count;
    if (root->marked) return;
    root->marked = true;
    list_add(list, root);
    for (; at < list->count; at++) {
        dur__mem_family *family = dur__mem_family_of(mem, list->items[at]->id);
        if (family == NULL) continue;
        DUR__LIST_EACH(&family->children, link) {
            dur__mem_instance *child = DUR__CONTAINER(link, dur__mem_instance, sibling);
            if (child->marked) continue;
            child->marked = true;
            list_add(list, child);
        }
    }
}

static void unmark(instance_list *list) {
    for (size_t i = 0; i < list->count; i++)
        list->items[i]->marked = false;
}

static void start_found(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)mem;
    if (message->kind == DUR_WORK_START_ORCHESTRATION) dur__mem_batch_add(arg, message);
}

static void letter_found(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)mem;
    if (message->kind == DUR_WORK_QUEUE_MESSAGE) dur__mem_batch_add(arg, message);
}

/* What clients have put into its queues. */
static void bury_letters(dur__mem *mem, dur__mem_instance *instance) {
    dur__mem_batch found = { NULL, 0, 0 };
    dur__mem_each_message(mem, instance, letter_found, &found);
    dur__mem_batch_sort(&found);
    for (size_t i = 0; i < found.count; i++)
        dur__mem_bury(mem, instance->id, DUR__DELETED, found.items[i]->json, found.items[i]->json_size);
    dur__free(found.items);
}

static int in_order_of_coming(const void *a, const void *b) {
    const dur__mem_message *x = *(dur__mem_message *const *)a, *y = *(dur__mem_message *const *)b;
    return x->id < y->id ? -1 : x->id > y->id;
}

/*
 * Starts that wait behind it are calls of others, and make an instance of their own.  Without history the first one is
 * the instance itself.
 */
static void erase(dur__mem *mem, dur__mem_instance *instance, dur_delete_result *out) {
    dur_arena *arena = dur__arena_xnew();
    dur__mem_batch found = { NULL, 0, 0 };
    dur__mem_each_message(mem, instance, start_found, &found);
    if (found.count > 1) qsort(found.items, found.count, sizeof(dur__mem_message *), in_order_of_coming);
    size_t own = found.count > 0 && instance->event_count == 0, count = found.count - own;
    dur_message_row *kept = dur_arena_zalloc(arena, (count + 1) * sizeof(*kept));
    for (size_t i = 0; i < count; i++) {
        const dur__mem_message *message = found.items[own + i];
        kept[i] = (dur_message_row){ .kind = message->kind,
                                     .instance = dur_arena_strdup(arena, instance->id),
                                     .handler = dur_arena_strdup(arena, message->handler),
                                     .parent = dur_arena_strdup(arena, message->parent),
                                     .due_ms = message->due_ms,
                                     .json = { dur_arena_memdup(arena, message->json, message->json_size),
                                               message->json_size } };
    }
    dur__free(found.items);
    bury_letters(mem, instance);
    dur__mem_erase(mem, instance, out);
    out->queue_messages -= count;
    for (size_t i = 0; i < count; i++)
        dur__mem_enqueue(mem, &kept[i], 0);
    dur_arena_free(arena);
}

/* All of them, or (no memory) none. */
static int erase_all(dur__mem *mem, instance_list *list, const dur_message_row *next, dur_delete_result *out,
                     dur_error *err) {
    dur__mem_need need = { .bytes = 0 };
    if (next != NULL) dur__mem_need_message(mem, &need, next);
    for (size_t i = 0; i < list->count; i++)
        dur__mem_need_erase(mem, &need, list->items[i]);
    if (!dur__mem_room(mem, &need)) return DUR__NO_MEMORY(err, "memory.delete");
    for (size_t i = 0; i < list->count; i++)
        erase(mem, list->items[i], out);
    return DUR_OK;
}

/* Lists of instances, as long as there are any. */
static bool room_for_lists(dur__mem *mem) {
    return dur__mem_room_bytes(mem, 8 * (mem->instances.count + 8) * sizeof(void *));
}

bool dur__mem_tree_finished(dur__mem *mem, dur__mem_instance *root, const char **running) {
    instance_list tree = { NULL, 0, 0 };
    *running = NULL;
    collect_tree(mem, root, &tree);
    unmark(&tree);
    for (size_t i = 0; i < tree.count && *running == NULL; i++)
        if (!dur__mem_finished(tree.items[i])) *running = tree.items[i]->id;
    dur__free(tree.items);
    return *running == NULL;
}

int dur__mem_erase_tree(dur__mem *mem, dur__mem_instance *root, const dur_message_row *next, dur_delete_result *out,
                        dur_error *err) {
    instance_list tree = { NULL, 0, 0 };
    if (!room_for_lists(mem)) return DUR__NO_MEMORY(err, "memory.delete");
    collect_tree(mem, root, &tree);
    unmark(&tree);
    int code = erase_all(mem, &tree, next, out, err);
    dur__free(tree.items);
    return code;
}

/* ---- delete by id ------------------------------------------------------------------------------------------------ */

static bool is_meant(const dur__mem_instance *instance, const dur_meant *meant) {
    const dur__mem_message *start = meant->start_id != 0 ? dur__mem_first_start(instance) : NULL;
    if (meant->start_id != 0) return instance->event_count == 0 && start != NULL && start->id == meant->start_id;
    return meant->birth == 0 || instance->birth == meant->birth || (instance->birth == 0 && instance->event_count > 0);
}

static int list_ids(dur__mem *mem, const char *const *ids, const dur_meant *meant, size_t count, bool force,
                    instance_list *list, dur_error *err) {
    for (size_t i = 0; i < count; i++) {
        dur__mem_instance *instance = dur__mem_find(mem, ids[i]);
        if (!dur__mem_exists(instance))
            return dur_error_set(err, DUR_ENOTFOUND, false, "memory.delete", "instance %s not found", ids[i]);
        if (meant != NULL && !is_meant(instance, &meant[i]))
            return dur_error_set(err, DUR_ECONFLICT, false, "memory.delete", "instance %s is another one, or has begun",
                                 ids[i]);
        if (instance->marked) continue;
        if (!force && is_running(instance))
            return dur_error_set(err, DUR_ERUNNING, false, "memory.delete", "instance %s is running", ids[i]);
        instance->marked = true;
        list_add(list, instance);
    }
    return DUR_OK;
}

static int check_children(dur__mem *mem, const instance_list *list, dur_error *err) {
    for (size_t i = 0; i < list->count; i++) {
        dur__mem_family *family = dur__mem_family_of(mem, list->items[i]->id);
        if (family == NULL) continue;
        DUR__LIST_EACH(&family->children, at) {
            const dur__mem_instance *child = DUR__CONTAINER(at, dur__mem_instance, sibling);
            if (!child->marked)
                return dur_error_set(err, DUR_ECHILD, false, "memory.delete",
                                     "instance %s has a child that is not listed: %s", list->items[i]->id, child->id);
        }
    }
    return DUR_OK;
}

int dur__mem_delete_instances(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count,
                              bool force, dur_delete_result *out, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    instance_list list = { NULL, 0, 0 };
    memset(out, 0, sizeof(*out));
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    int code = room_for_lists(mem) ? DUR_OK : DUR__NO_MEMORY(err, "memory.delete");
    if (code == DUR_OK) code = list_ids(mem, ids, meant, count, force, &list, err);
    if (code == DUR_OK) code = check_children(mem, &list, err);
    unmark(&list);
    if (code == DUR_OK) code = erase_all(mem, &list, NULL, out, err);
    dur__mem_leave(mem);
    dur__free(list.items);
    return code;
}

/* ---- bulk -------------------------------------------------------------------------------------------------------- */

/* 0: not yet, or nobody knows when. */
static uint64_t ended_at(const dur__mem_instance *instance) {
    const dur__mem_execution *execution = dur__mem_execution_find(instance, instance->current_execution);
    return execution != NULL ? execution->completed_at_ms : 0;
}

static bool ended_before(const dur__mem_instance *instance, uint64_t before_ms) {
    uint64_t ended = ended_at(instance);
    return before_ms == 0 || (ended != 0 && ended < before_ms);
}

/* Every instance with a row that the filter names, oldest first. */
static void list_matching(dur__mem *mem, const dur_bulk_filter *filter, instance_list *list) {
    dur__map_entry *entry;
    if (filter->instance_ids == NULL) {
        for (size_t i = 0; (entry = dur__map_next(&mem->instances, &i)) != NULL;)
            if (((dur__mem_instance *)entry->value)->has_row) list_add(list, entry->value);
        return;
    }
    for (size_t i = 0; i < filter->instance_id_count; i++) {
        dur__mem_instance *instance = dur__mem_find(mem, filter->instance_ids[i]);
        if (instance == NULL || !instance->has_row || instance->marked) continue;
        instance->marked = true;
        list_add(list, instance);
    }
    unmark(list);
}

static int by_end(const void *a, const void *b) {
    const dur__mem_instance *x = *(dur__mem_instance *const *)a, *y = *(dur__mem_instance *const *)b;
    uint64_t left = ended_at(x), right = ended_at(y);
    return left != right ? (left < right ? -1 : 1) : strcmp(x->id, y->id);
}

int dur__mem_delete_instances_bulk(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out,
                                   dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    instance_list list = { NULL, 0, 0 };
    instance_list roots = { NULL, 0, 0 };
    size_t limit = filter->limit > 0 ? filter->limit : BULK_LIMIT;
    const char *running;
    (void)err;
    memset(out, 0, sizeof(*out));
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    int code = room_for_lists(mem) ? DUR_OK : DUR__NO_MEMORY(err, "memory.delete");
    if (code == DUR_OK) list_matching(mem, filter, &list);
    if (filter->instance_ids == NULL && list.count > 0) qsort(list.items, list.count, sizeof(*list.items), by_end);
    for (size_t i = 0; i < list.count && roots.count < limit && room_for_lists(mem); i++) {
        dur__mem_instance *root = list.items[i];
        if (root->parent == NULL && ended_before(root, filter->completed_before_ms) &&
            dur__mem_tree_finished(mem, root, &running))
            list_add(&roots, root);
    }
    for (size_t i = 0; i < roots.count && code == DUR_OK; i++)
        code = dur__mem_erase_tree(mem, roots.items[i], NULL, out, err);
    dur__mem_leave(mem);
    dur__free(list.items);
    dur__free(roots.items);
    return out->instances > 0 ? DUR_OK : code; /* what has gone has gone: the next call goes on */
}

/* ---- prune ------------------------------------------------------------------------------------------------------- */

static bool prunable(const dur__mem_instance *instance, size_t at, const dur_prune_options *options) {
    const dur__mem_execution *execution = instance->executions[at];
    uint64_t keep = options->keep_last > 1 ? options->keep_last : 1;
    if (execution->execution_id == instance->current_execution || execution->status == DUR_STATUS_RUNNING) return false;
    if (options->has_keep_last && instance->execution_count - at <= keep) return false;
    return options->completed_before_ms == 0 ||
           (execution->completed_at_ms != 0 && execution->completed_at_ms < options->completed_before_ms);
}

static void prune(dur__mem_instance *instance, const dur_prune_options *options, dur_prune_result *out) {
    size_t kept = 0, total = instance->execution_count;
    bool *gone = dur__xcalloc(total + 1, sizeof(*gone));
    for (size_t i = 0; i < total; i++)
        gone[i] = prunable(instance, i, options);
    for (size_t i = 0; i < total; i++) {
        dur__mem_execution *execution = instance->executions[i];
        if (!gone[i]) {
            instance->executions[kept++] = execution;
            continue;
        }
        out->executions_deleted++;
        out->events_deleted += execution->event_count;
        instance->event_count -= execution->event_count;
        dur__mem_execution_free(execution);
    }
    instance->execution_count = kept;
    out->instances_processed++;
    dur__free(gone);
}

int dur__mem_prune_executions(dur_provider *self, const char *instance, const dur_prune_options *options,
                              dur_prune_result *out, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    memset(out, 0, sizeof(*out));
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_instance *row = dur__mem_find(mem, instance);
    bool found = row != NULL && (row->has_row || row->event_count > 0);
    bool room = !found || dur__mem_room_bytes(mem, 2 * row->execution_count);
    if (found && room) prune(row, options, out);
    dur__mem_leave(mem);
    if (!room) return DUR__NO_MEMORY(err, "memory.prune");
    return found ? DUR_OK : dur_error_set(err, DUR_ENOTFOUND, false, "memory.prune", "instance %s not found", instance);
}

int dur__mem_prune_executions_bulk(dur_provider *self, const dur_bulk_filter *filter, const dur_prune_options *options,
                                   dur_prune_result *out, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    instance_list list = { NULL, 0, 0 };
    size_t limit = filter->limit > 0 ? filter->limit : BULK_LIMIT;
    (void)err;
    memset(out, 0, sizeof(*out));
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    int code = room_for_lists(mem) ? DUR_OK : DUR__NO_MEMORY(err, "memory.prune");
    if (code == DUR_OK) list_matching(mem, filter, &list);
    for (size_t i = 0, touched = 0; i < list.count && touched < limit; i++) {
        uint64_t before = out->executions_deleted;
        if (!dur__mem_room_bytes(mem, 2 * list.items[i]->execution_count)) {
            code = DUR__NO_MEMORY(err, "memory.prune");
            break;
        }
        if (ended_before(list.items[i], filter->completed_before_ms)) prune(list.items[i], options, out);
        touched += out->executions_deleted > before; /* those with nothing to prune must not use the limit up */
    }
    dur__mem_leave(mem);
    dur__free(list.items);
    return out->executions_deleted > 0 ? DUR_OK : code;
}
