/*
 * check_kv_store.c: keys and values of an instance: what clients read (everything written), and what the snapshot for
 * replay holds (the state at the end of the previous execution, nothing of the running one).
 */
#include "kit_internal.h"

/* The snapshot that the next turn would get; its lock is given back. */
static dur_orchestration_item snapshot(kit *t, const char *instance) {
    MUST(kit_put(t, kit_raised(t, instance, "look", "")));
    dur_orchestration_item item = TAKE(instance);
    MUST(ACK(&item, .execution = item.execution_id));
    return item;
}

static size_t all_values(kit *t, const char *instance, dur_key_value **out) {
    size_t count = 0;
    MUST(dur_store_get_kv_all_values(t->p, t->arena, instance, out, &count, ERR));
    return count;
}

static void prune_to(kit *t, const char *instance, uint64_t keep_last, uint64_t executions_deleted) {
    dur_prune_options options = { .has_keep_last = true, .keep_last = keep_last };
    dur_prune_result result;
    MUST(dur_store_prune_executions(t->p, instance, &options, &result, ERR));
    SAME(result.executions_deleted, executions_deleted);
}

/* ---- basic ------------------------------------------------------------------------------------------------------- */

static void kv_set_and_get(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"));
    TEXT(kit_value(t, "a", "k"), "v");
    dur_key_value *all;
    SAME(all_values(t, "a", &all), 1);
    TEXT(all[0].key, "k");
    TEXT(all[0].value, "v");
    SAME(all[0].last_updated_at_ms, 1700000000002u); /* as the event says */
}

static void kv_overwrite(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "one"), ev_set(3, "k", "two"));
    TEXT(kit_value(t, "a", "k"), "two");
    STEP("a", 1, ev_set(4, "k", "three"));
    TEXT(kit_value(t, "a", "k"), "three");
}

static void kv_clear_single(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"), ev_set(3, "other", "w"));
    STEP("a", 1, ev_clear(4, "k"));
    TEXT(kit_value(t, "a", "k"), NULL);
    TEXT(kit_value(t, "a", "other"), "w");
}

static void kv_clear_all(kit *t) {
    dur_key_value *all;
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"), ev_set(3, "l", "w"));
    STEP("a", 1, ev_clear_all(4));
    SAME(all_values(t, "a", &all), 0);
    TEXT(kit_value(t, "a", "k"), NULL);
}

static void kv_get_nonexistent(kit *t) {
    kit_create(t, "a");
    TEXT(kit_value(t, "a", "k"), NULL);
}

static void kv_get_unknown_instance(kit *t) {
    dur_key_value *all;
    TEXT(kit_value(t, "nobody", "k"), NULL);
    SAME(all_values(t, "nobody", &all), 0);
}

static void kv_clear_nonexistent_key(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_clear(2, "never"), ev_clear_all(3));
    TEXT(kit_value(t, "a", "never"), NULL);
}

static void kv_set_after_clear(kit *t) {
    dur_key_value *all;
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"), ev_set(3, "l", "w"));
    STEP("a", 1, ev_clear_all(4), ev_set(5, "new", "n"));
    SAME(all_values(t, "a", &all), 1);
    TEXT(kit_value(t, "a", "new"), "n");
    TEXT(kit_value(t, "a", "k"), NULL);
}

static void kv_empty_value(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", ""));
    TEXT(kit_value(t, "a", "k"), "");
}

static void kv_large_value(kit *t) {
    char *large = dur_arena_alloc(t->arena, 16385);
    memset(large, 'x', 16384);
    large[16384] = '\0';
    large[8000] = 'y';
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", large));
    const char *value = kit_value(t, "a", "k");
    THAT(value != NULL && strcmp(value, large) == 0);
}

static void kv_special_chars_in_key(kit *t) {
    static const char *const keys[] = { "with space", "dotted.key/with/slash", "\xC3\xBC\xE6\x97\xA5\xF0\x9F\x8D\x89",
                                        "quote'\"\\;--", "%_*?" };
    kit_create(t, "a");
    for (uint64_t i = 0; i < COUNT(keys); i++)
        STEP("a", 1, ev_set(2 + i, keys[i], keys[i]));
    for (size_t i = 0; i < COUNT(keys); i++)
        TEXT(kit_value(t, "a", keys[i]), keys[i]);
}

static void kv_instance_isolation(kit *t) {
    kit_create(t, "a");
    kit_create(t, "b");
    STEP("a", 1, ev_set(2, "k", "of a"));
    STEP("b", 1, ev_set(2, "k", "of b"));
    TEXT(kit_value(t, "a", "k"), "of a");
    TEXT(kit_value(t, "b", "k"), "of b");
}

static void kv_clear_isolation(kit *t) {
    kit_create(t, "a");
    kit_create(t, "b");
    STEP("a", 1, ev_set(2, "k", "of a"));
    STEP("b", 1, ev_set(2, "k", "of b"));
    STEP("a", 1, ev_clear_all(3));
    TEXT(kit_value(t, "a", "k"), NULL);
    TEXT(kit_value(t, "b", "k"), "of b");
}

/* ---- snapshot ---------------------------------------------------------------------------------------------------- */

static void kv_snapshot_in_fetch(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"), ev_set(3, "l", "w"));
    kit_continue(t, "a", 1);
    dur_orchestration_item item = snapshot(t, "a");
    SAME(item.kv_count, 2);
    TEXT(kit_snapshot(&item, "k"), "v");
    TEXT(kit_snapshot(&item, "l"), "w");
    SAME(item.kv[0].last_updated_at_ms, 1700000000002u);
}

static void kv_snapshot_after_clear_single(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"), ev_set(3, "l", "w"));
    STEP("a", 1, ev_clear(4, "k"));
    kit_continue(t, "a", 1);
    dur_orchestration_item item = snapshot(t, "a");
    SAME(item.kv_count, 1);
    TEXT(kit_snapshot(&item, "k"), NULL);
    TEXT(kit_snapshot(&item, "l"), "w");
}

static void kv_snapshot_after_clear_all(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"));
    kit_continue(t, "a", 1);
    STEP("a", 2, ev_clear_all(2));
    kit_continue(t, "a", 2);
    SAME(snapshot(t, "a").kv_count, 0);
}

static void kv_snapshot_empty(kit *t) {
    kit_create(t, "a");
    SAME(snapshot(t, "a").kv_count, 0);
    kit_continue(t, "a", 1);
    SAME(snapshot(t, "a").kv_count, 0);
}

static void kv_snapshot_cross_execution(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "one", "1"));
    kit_continue(t, "a", 1);
    STEP("a", 2, ev_set(2, "two", "2"));
    dur_orchestration_item item = snapshot(t, "a");
    SAME(item.kv_count, 1); /* of executions before, not of this one */
    TEXT(kit_snapshot(&item, "one"), "1");
    kit_continue(t, "a", 2);
    item = snapshot(t, "a");
    SAME(item.kv_count, 2);
    TEXT(kit_snapshot(&item, "one"), "1");
    TEXT(kit_snapshot(&item, "two"), "2");
}

/* ---- executions and pruning -------------------------------------------------------------------------------------- */

static void two_executions(kit *t, const char *second) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "one"), ev_set(3, "only-first", "kept"));
    kit_continue(t, "a", 1);
    if (second != NULL) STEP("a", 2, ev_set(2, "k", second));
}

static void kv_execution_id_tracking(kit *t) {
    NEEDS("prune_executions");
    two_executions(t, "two");
    prune_to(t, "a", 1, 1);
    TEXT(kit_value(t, "a", "k"), "two");
}

static void kv_cross_execution_overwrite(kit *t) {
    two_executions(t, "two");
    TEXT(kit_value(t, "a", "k"), "two");
    kit_continue(t, "a", 2);
    dur_orchestration_item item = snapshot(t, "a");
    TEXT(kit_snapshot(&item, "k"), "two");
}

static void kv_cross_execution_remove_readd(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "first"));
    kit_continue(t, "a", 1);
    STEP("a", 2, ev_clear(2, "k"));
    TEXT(kit_value(t, "a", "k"), NULL);
    kit_continue(t, "a", 2);
    TEXT(kit_value(t, "a", "k"), NULL);
    STEP("a", 3, ev_set(2, "k", "third"));
    TEXT(kit_value(t, "a", "k"), "third");
}

static void kv_prune_preserves_overwritten(kit *t) {
    NEEDS("prune_executions");
    two_executions(t, "two");
    kit_continue(t, "a", 2);
    prune_to(t, "a", 2, 1);
    TEXT(kit_value(t, "a", "k"), "two");
    dur_orchestration_item item = snapshot(t, "a");
    TEXT(kit_snapshot(&item, "k"), "two");
}

static void kv_prune_preserves_all_keys(kit *t) {
    NEEDS("prune_executions");
    two_executions(t, NULL);
    STEP("a", 2, ev_set(2, "only-second", "alive"));
    prune_to(t, "a", 1, 1);
    TEXT(kit_value(t, "a", "only-first"), "kept");
    TEXT(kit_value(t, "a", "only-second"), "alive");
    dur_orchestration_item item = snapshot(t, "a");
    TEXT(kit_snapshot(&item, "only-first"), "kept");
}

static void kv_prune_current_execution_protected(kit *t) {
    NEEDS("prune_executions");
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"));
    prune_to(t, "a", 1, 0);
    TEXT(kit_value(t, "a", "k"), "v");
}

static void kv_delete_instance_cascades(kit *t) {
    NEEDS("delete_instances", "get_instance", "list_instances");
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"));
    STEP_END("a", 1, COMPLETED, "out", ev_done(3, "out"));
    TEXT(kit_value(t, "a", "k"), "v");
    MUST(kit_delete(t, "a", false, NULL));
    TEXT(kit_value(t, "a", "k"), NULL);
    kit_create(t, "a"); /* a new life starts without */
    TEXT(kit_value(t, "a", "k"), NULL);
    SAME(snapshot(t, "a").kv_count, 0);
}

static void kv_delete_instance_with_children(kit *t) {
    NEEDS("delete_instances", "get_instance", "list_instances");
    kit_create(t, "a");
    kit_create_child(t, "b", "a");
    STEP_END("b", 1, COMPLETED, "out", ev_set(2, "k", "of child"), ev_done(3, "out"));
    STEP_END("a", 1, COMPLETED, "out", ev_set(2, "k", "of root"), ev_done(3, "out"));
    MUST(kit_delete(t, "a", false, NULL));
    TEXT(kit_value(t, "a", "k"), NULL);
    TEXT(kit_value(t, "b", "k"), NULL);
}

/* ---- the running execution and the finished ones ------------------------------------------------------------------
 */

static void kv_delta_snapshot_excludes_current_execution(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"));
    SAME(snapshot(t, "a").kv_count, 0); /* replay will come to it by itself */
    TEXT(kit_value(t, "a", "k"), "v");
}

static void kv_delta_snapshot_includes_completed_execution(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"));
    kit_continue(t, "a", 1);
    STEP("a", 2, ev_set(2, "k", "changed"), ev_set(3, "new", "n"));
    dur_orchestration_item item = snapshot(t, "a");
    SAME(item.kv_count, 1);
    TEXT(kit_snapshot(&item, "k"), "v");
}

static void kv_delta_client_reads_merged(kit *t) {
    dur_key_value *all;
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "old", "1"), ev_set(3, "both", "1"));
    kit_continue(t, "a", 1);
    STEP("a", 2, ev_set(2, "both", "2"), ev_set(3, "new", "2"));
    TEXT(kit_value(t, "a", "old"), "1");
    TEXT(kit_value(t, "a", "both"), "2");
    TEXT(kit_value(t, "a", "new"), "2");
    SAME(all_values(t, "a", &all), 3);
}

static void kv_delta_tombstone_overrides_store(kit *t) {
    dur_key_value *all;
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"));
    kit_continue(t, "a", 1);
    STEP("a", 2, ev_clear(2, "k"));
    TEXT(kit_value(t, "a", "k"), NULL);
    SAME(all_values(t, "a", &all), 0);
    dur_orchestration_item item = snapshot(t, "a");
    TEXT(kit_snapshot(&item, "k"), "v"); /* still there for replay */
}

static void kv_delta_clear_all_tombstones_store(kit *t) {
    dur_key_value *all;
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"), ev_set(3, "l", "w"));
    kit_continue(t, "a", 1);
    STEP("a", 2, ev_set(2, "m", "x"), ev_clear_all(3));
    SAME(all_values(t, "a", &all), 0);
    SAME(snapshot(t, "a").kv_count, 2);
    STEP("a", 2, ev_clear_all(4), ev_set(5, "n", "y"));
    SAME(all_values(t, "a", &all), 1);
    TEXT(kit_value(t, "a", "n"), "y");
}

static void kv_delta_merged_on_completion(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"), ev_set(3, "gone", "x"));
    STEP_END("a", 1, COMPLETED, "out", ev_clear(4, "gone"), ev_set(5, "last", "turn"), ev_done(6, "out"));
    TEXT(kit_value(t, "a", "k"), "v");
    TEXT(kit_value(t, "a", "gone"), NULL);
    TEXT(kit_value(t, "a", "last"), "turn");
    dur_orchestration_item item = snapshot(t, "a");
    SAME(item.kv_count, 2);
    TEXT(kit_snapshot(&item, "last"), "turn");
}

static void kv_delta_merged_on_can(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "old"));
    STEP("a", 1, ev_set(3, "k", "v"));
    kit_continue(t, "a", 1);
    dur_orchestration_item item = snapshot(t, "a");
    SAME(item.execution_id, 2);
    TEXT(kit_snapshot(&item, "k"), "v");
    STEP("a", 2, ev_clear(2, "k"));
    kit_continue(t, "a", 2);
    SAME(snapshot(t, "a").kv_count, 0); /* the tombstone was merged too */
}

static void kv_delta_delete_instance_cascades(kit *t) {
    NEEDS("delete_instances", "get_instance", "list_instances");
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"));
    MUST(kit_delete(t, "a", true, NULL));
    TEXT(kit_value(t, "a", "k"), NULL);
    kit_create(t, "a");
    kit_continue(t, "a", 1); /* nothing old is merged into the new life */
    SAME(snapshot(t, "a").kv_count, 0);
}

static void kv_delta_prune_untouched_key_survives(kit *t) {
    NEEDS("prune_executions");
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"));
    for (uint64_t execution = 1; execution <= 3; execution++)
        kit_continue(t, "a", execution);
    prune_to(t, "a", 1, 3);
    TEXT(kit_value(t, "a", "k"), "v");
    dur_orchestration_item item = snapshot(t, "a");
    TEXT(kit_snapshot(&item, "k"), "v");
}

const kit_check kit_kv_store[] = {
    CHECK(kv_set_and_get),
    CHECK(kv_overwrite),
    CHECK(kv_clear_single),
    CHECK(kv_clear_all),
    CHECK(kv_get_nonexistent),
    CHECK(kv_get_unknown_instance),
    CHECK(kv_clear_nonexistent_key),
    CHECK(kv_set_after_clear),
    CHECK(kv_empty_value),
    CHECK(kv_large_value),
    CHECK(kv_special_chars_in_key),
    CHECK(kv_instance_isolation),
    CHECK(kv_clear_isolation),
    CHECK(kv_snapshot_in_fetch),
    CHECK(kv_snapshot_after_clear_single),
    CHECK(kv_snapshot_after_clear_all),
    CHECK(kv_snapshot_empty),
    CHECK(kv_snapshot_cross_execution),
    CHECK(kv_execution_id_tracking),
    CHECK(kv_cross_execution_overwrite),
    CHECK(kv_cross_execution_remove_readd),
    CHECK(kv_prune_preserves_overwritten),
    CHECK(kv_prune_preserves_all_keys),
    CHECK(kv_prune_current_execution_protected),
    CHECK(kv_delete_instance_cascades),
    CHECK(kv_delete_instance_with_children),
    CHECK(kv_delta_snapshot_excludes_current_execution),
    CHECK(kv_delta_snapshot_includes_completed_execution),
    CHECK(kv_delta_client_reads_merged),
    CHECK(kv_delta_tombstone_overrides_store),
    CHECK(kv_delta_clear_all_tombstones_store),
    CHECK(kv_delta_merged_on_completion),
    CHECK(kv_delta_merged_on_can),
    CHECK(kv_delta_delete_instance_cascades),
    CHECK(kv_delta_prune_untouched_key_survives),
    CHECKS_END,
};
