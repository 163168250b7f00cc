/*
 * client_delete.c: deleting instances with their trees, and pruning old executions.
 *
 * A store deletes exactly the ids that it is given, all or nothing, and refuses to leave a child behind.  So the tree
 * is listed first; a child that is born in between makes the store refuse, and the tree is listed again.  One that is
 * not born yet finds no parent when it commits its first turn (needs_parent), and is not started; nor can it be ended
 * any more, but is taken away (client_terminate.c).
 *
 * An id is an address: who stands still between the look and the deletion may find another instance there.  So the
 * store compares whom the look has shown, and at each try the root is the one of the first.
 *
 * The history of what is deleted by force may hold queue messages that no call has reported, and a store does not look
 * into histories.  So it is suspended first, that no more arrive between the look and the deletion; one that holds
 * such messages is ended, which puts them back into its queue, where the deletion makes dead letters of them as of all
 * that waits there.  Whoever dies in between leaves an instance that is suspended, or was terminated; what is suspended
 * a node ends, and that puts the messages back, too: so whoever was only slow loses nothing when he goes on to delete.
 */
#include "client/client_internal.h"

#include "base/arena_internal.h"

#include "core/check.h"
#include "core/limits.h"
#include "provider/live.h"

enum { TRIES_MAX = 20 };

static void answer_deleted(dur_deleted *out, const dur_delete_result *result) {
    dur_deleted deleted = {
        .instances = result->instances,
        .executions = result->executions,
        .events = result->events,
        .queue_messages = result->queue_messages,
    };
    if (out != NULL) dur__client_answer(out, sizeof(deleted), &deleted);
}

static void answer_pruned(dur_pruned *out, const dur_prune_result *result) {
    dur_pruned pruned = {
        .instances = result->instances_processed,
        .executions = result->executions_deleted,
        .events = result->events_deleted,
    };
    if (out != NULL) dur__client_answer(out, sizeof(pruned), &pruned);
}

/*
 * Without force nothing that runs is deleted.  Children that have not begun do not run, but to a store they do: they
 * are left out, and are orphans once their parents are gone.  Then each start is taken away; one that stays because we
 * die here is taken away by whoever finds it.
 */
static int delete_begun(dur_client *client, dur_arena *arena, const dur__tree *tree, dur_delete_result *result,
                        dur_error *err) {
    const char **begun = dur_arena_alloc(arena, (tree->count + 1) * sizeof(*begun));
    dur_meant *meant = dur_arena_alloc(arena, (tree->count + 1) * sizeof(*meant));
    size_t count = 0;
    for (size_t i = 0; i < tree->count; i++) {
        if (i > 0 && tree->meant[i].start_id != 0) continue;
        begun[count] = tree->ids[i];
        meant[count++] = tree->meant[i];
    }
    int code = dur_store_delete_meant(client->store, begun, meant, count, false, result, err);
    for (size_t i = 1; code == DUR_OK && i < tree->count; i++) {
        uint64_t start_id = tree->meant[i].start_id;
        if (start_id != 0 && dur__client_take_start(client, tree->ids[i], start_id, true, NULL) == DUR_OK)
            result->queue_messages++;
    }
    return code;
}

/* It stands still (*held: by our doing), and what no call has reported is in its queue again. */
static int settle_letters(dur_client *client, dur_arena *arena, const char *instance, const dur_meant *meant,
                          bool *held, dur_error *err) {
    static const dur_failure deleted = {
        .category = DUR_FAILURE_APPLICATION, .kind = DUR_FAILURE_CANCELLED, .message = "deleted", .reason = "deleted"
    };
    dur_instance_row row;
    bool holds = false;
    int code = dur__client_row(client, arena, instance, &row, err);
    if (code == DUR_OK && (row.start_pending || row.birth != meant->birth))
        code = dur_error_set(err, DUR_ECONFLICT, false, "client.delete", "instance \"%.200s\" is another one now",
                             instance);
    if (code != DUR_OK || row.status == DUR_STATUS_COMPLETED || row.status == DUR_STATUS_FAILED) return code;
    if (row.suspended == NULL) {
        code = dur__client_stand_still(client, arena, instance, err);
        if (code == DUR_ESTATE) return DUR_OK; /* it has ended meanwhile, and so have its messages been seen to */
        *held = code == DUR_OK;
    }
    if (code == DUR_OK) code = dur__client_holds_letters(client, arena, instance, &holds, err);
    return code == DUR_OK && holds ? dur__client_end(client, instance, &row, &deleted, DUR__END_ALWAYS, err) : code;
}

/* A parent before its children, so that none is told of the end of one and goes on. */
static int delete_forced(dur_client *client, dur_arena *arena, const dur__tree *tree, dur_delete_result *result,
                         dur_error *err) {
    bool *held = dur_arena_zalloc(arena, (tree->count + 1) * sizeof(*held));
    int code = DUR_OK;
    for (size_t i = 0; i < tree->count && code == DUR_OK; i++)
        if (tree->meant[i].start_id == 0)
            code = settle_letters(client, arena, tree->ids[i], &tree->meant[i], &held[i], err);
    if (code == DUR_OK || code == DUR_EUNSUPPORTED) /* a store that can do neither deletes all the same */
        code = dur_store_delete_meant(client->store, tree->ids, tree->meant, tree->count, true, result, err);
    for (size_t i = 0; i < tree->count && code != DUR_OK; i++)
        if (held[i]) dur__client_resume(client, tree->ids[i]);
    return code;
}

/* At each try it is the same one.  One that had not begun at first may have begun since. */
static bool is_first(dur_meant *first, const dur_instance_row *row) {
    dur_meant now = dur__client_meant(row);
    if (now.start_id != 0) return now.start_id == first->start_id;
    if (first->start_id == 0 && first->birth != now.birth) return false;
    *first = now;
    return true;
}

/* *again: it is another tree than the one that was listed. */
static int delete_tree(dur_client *client, dur_arena *arena, const char *instance, dur_meant *first, bool force,
                       dur_delete_result *result, bool *again, const char *op, dur_error *err) {
    dur_instance_row root;
    dur__tree tree;
    int code = dur__client_row(client, arena, instance, &root, err);
    if (code != DUR_OK) return code;
    if (!*again) *first = dur__client_meant(&root);
    *again = false;
    if (!is_first(first, &root))
        return dur_error_set(err, DUR_ENOTFOUND, false, op, "instance \"%.200s\" is another one now", instance);
    dur_instance_row parent;
    /* One that outlived its parent (deleted by a version that did not compare) is a root. */
    if (root.parent_instance_id != NULL &&
        dur__client_row(client, arena, root.parent_instance_id, &parent, NULL) != DUR_ENOTFOUND)
        return dur_error_set(err, DUR_ECHILD, false, op,
                             "instance \"%.150s\" is a sub-orchestration; delete its root, above \"%.150s\"", instance,
                             root.parent_instance_id);
    code = dur__client_tree(client, arena, &root, &tree, err);
    if (code != DUR_OK) return code;
    code = force ? delete_forced(client, arena, &tree, result, err) : delete_begun(client, arena, &tree, result, err);
    *again = code == DUR_ECHILD || code == DUR_ECONFLICT; /* a child that was not in our list; another, or begun */
    for (size_t i = 0; code == DUR_OK && i < tree.count; i++)
        dur__live_unexpect(client->store, tree.ids[i]); /* whoever waits for it looks */
    return code;
}

int dur_client_delete(dur_deleted *out, dur_client *client, const char *instance, bool force, dur_error *err) {
    const char *op = "client.delete";
    DUR__SET_ASIDE(op, err);
    dur_delete_result result = { 0 };
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code == DUR_OK) code = dur__client_answer_check(out, sizeof(*out), op, err);
    if (code != DUR_OK) return code;
    dur_arena *arena = dur__arena_xnew();
    dur_meant first = { 0, 0 };
    bool again = false;
    int tries = 0;
    do {
        dur_arena_reset(arena);
        code = delete_tree(client, arena, instance, &first, force, &result, &again, op, err);
    } while (again && ++tries < TRIES_MAX);
    dur_arena_free(arena);
    if (code != DUR_OK) return code;
    dur_error_clear(err);
    answer_deleted(out, &result);
    return DUR_OK;
}

/* ---- many at once ---- */

static int bulk_filter(dur_bulk_filter *out, const dur_bulk_options *given, const char *op, dur_error *err) {
    dur_bulk_options options;
    int code = dur__client_options(&options, sizeof(options), given, op, err);
    if (code != DUR_OK) return code;
    if (options.instances == NULL && options.instance_count > 0)
        return dur_error_set(err, DUR_EINVAL, false, op, "instances is NULL, but instance_count is %zu",
                             options.instance_count);
    for (size_t i = 0; i < options.instance_count && code == DUR_OK; i++)
        code = dur__check_name(err, op, "instance", options.instances[i], DUR__INSTANCE_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK && options.limit > DUR__LIST_LIMIT_MAX)
        code = dur_error_set(err, DUR_ELIMIT, false, op, "limit is %zu, %d are allowed", options.limit,
                             DUR__LIST_LIMIT_MAX);
    *out = (dur_bulk_filter){
        .instance_ids = options.instances,
        .instance_id_count = options.instance_count,
        .completed_before_ms = options.completed_before_ms,
        .limit = options.limit > 0 ? options.limit : DUR__LIST_LIMIT_DEFAULT,
    };
    return code;
}

int dur_client_delete_bulk(dur_deleted *out, dur_client *client, const dur_bulk_options *which, dur_error *err) {
    const char *op = "client.delete_bulk";
    DUR__SET_ASIDE(op, err);
    dur_delete_result result = { 0 };
    dur_bulk_filter filter;
    int code = dur__client_enter(client, op, err);
    if (code == DUR_OK) code = dur__client_answer_check(out, sizeof(*out), op, err);
    if (code == DUR_OK) code = bulk_filter(&filter, which, op, err);
    if (code == DUR_OK) code = dur_store_delete_instances_bulk(client->store, &filter, &result, err);
    if (code == DUR_OK) answer_deleted(out, &result);
    return code;
}

static int prune_options(dur_prune_options *out, const dur_prune_rules *given, const char *op, dur_error *err) {
    dur_prune_rules rules;
    int code = dur__client_options(&rules, sizeof(rules), given, op, err);
    if (code != DUR_OK) return code;
    if (rules.keep_last == 0 && rules.completed_before_ms == 0) /* to a store that means: all but the current one */
        return dur_error_set(err, DUR_EINVAL, false, op,
                             "no rule: give keep_last (1 keeps the current execution alone) or completed_before_ms");
    *out = (dur_prune_options){ rules.keep_last > 0, rules.keep_last, rules.completed_before_ms };
    return DUR_OK;
}

int dur_client_prune(dur_pruned *out, dur_client *client, const char *instance, const dur_prune_rules *rules,
                     dur_error *err) {
    const char *op = "client.prune";
    DUR__SET_ASIDE(op, err);
    dur_prune_result result = { 0 };
    dur_prune_options options;
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code == DUR_OK) code = dur__client_answer_check(out, sizeof(*out), op, err);
    if (code == DUR_OK) code = prune_options(&options, rules, op, err);
    if (code == DUR_OK) code = dur_store_prune_executions(client->store, instance, &options, &result, err);
    if (code == DUR_OK) answer_pruned(out, &result);
    return code;
}

int dur_client_prune_bulk(dur_pruned *out, dur_client *client, const dur_bulk_options *which,
                          const dur_prune_rules *rules, dur_error *err) {
    const char *op = "client.prune_bulk";
    DUR__SET_ASIDE(op, err);
    dur_prune_result result = { 0 };
    dur_prune_options options;
    dur_bulk_filter filter;
    int code = dur__client_enter(client, op, err);
    if (code == DUR_OK) code = dur__client_answer_check(out, sizeof(*out), op, err);
    if (code == DUR_OK) code = bulk_filter(&filter, which, op, err);
    if (code == DUR_OK) code = prune_options(&options, rules, op, err);
    if (code == DUR_OK) code = dur_store_prune_executions_bulk(client->store, &filter, &options, &result, err);
    if (code == DUR_OK) answer_pruned(out, &result);
    return code;
}
