/*
 * check_prune.c: old executions go, the current one never.
 */
#include "kit_internal.h"

/* `executions` executions, the last running; each ended at a time of its own.  Times of the ends in ends[]. */
static void long_life(kit *t, const char *instance, uint64_t executions, uint64_t *ends) {
    kit_create(t, instance);
    for (uint64_t i = 1; i < executions; i++) {
        kit_continue(t, instance, i);
        kit_advance(t, 20);
        if (ends != NULL) ends[i] = dur_store_now_ms(t->p); /* after the end of execution i, before the next */
        kit_advance(t, 20);
    }
}

static dur_prune_result prune(kit *t, const char *instance, const dur_prune_options *options) {
    dur_prune_result result = { 0, 0, 0 };
    MUST(dur_store_prune_executions(t->p, instance, options, &result, ERR));
    return result;
}
#define PRUNE(instance, ...) prune(t, (instance), &(dur_prune_options){ __VA_ARGS__ })
#define KEEP(n) .has_keep_last = true, .keep_last = (n)

static void only_current(kit *t, const char *instance, uint64_t execution) {
    dur_execution_row *rows = NULL;
    size_t count = 0;
    if (!dur_store_has(t->p, "list_executions") || !dur_store_has(t->p, "get_instance")) return;
    MUST(dur_store_list_executions(t->p, t->arena, instance, &rows, &count, ERR));
    SAME(count, 1);
    SAME(rows[0].execution_id, execution);
    SAME(kit_instance(t, instance).current_execution_id, execution);
}

static void prune_options_combinations(kit *t) {
    NEEDS("prune_executions");
    uint64_t ends[8] = { 0 };
    long_life(t, "a", 6, ends); /* 1 to 5 have ended, 6 runs */
    SAME(PRUNE("a", KEEP(10)).executions_deleted, 0);
    dur_prune_result result = PRUNE("a", KEEP(5));
    SAME(result.executions_deleted, 1);
    SAME(result.events_deleted, 2);
    SAME(result.instances_processed, 1);
    SAME(kit_history(t, "a", 1, NULL), 0);
    SAME(kit_history(t, "a", 2, NULL), 2);
    SAME(PRUNE("a", .completed_before_ms = ends[2]).executions_deleted, 1);
    SAME(kit_history(t, "a", 2, NULL), 0);
    SAME(kit_history(t, "a", 3, NULL), 2);
    SAME(PRUNE("a", KEEP(1), .completed_before_ms = ends[3]).executions_deleted, 1); /* both: only 3 */
    SAME(PRUNE("a", KEEP(4), .completed_before_ms = ends[5]).executions_deleted, 0); /* both: keep_last holds */
    SAME(kit_history(t, "a", 4, NULL), 2);
    SAME(kit_history(t, "a", 6, NULL), 1);
    result = PRUNE("a", .has_keep_last = false); /* no rule: the current one stays */
    SAME(result.executions_deleted, 2);
    SAME(result.instances_processed, 1);
    only_current(t, "a", 6);
}

static void prune_safety(kit *t) {
    NEEDS("prune_executions");
    dur_prune_result result;
    dur_prune_options keep_one = { KEEP(1) };
    kit_create(t, "a");
    uint64_t later = dur_store_now_ms(t->p) + 1000000;
    SAME(PRUNE("a", KEEP(1)).executions_deleted, 0);
    SAME(PRUNE("a", KEEP(0)).executions_deleted, 0);
    SAME(PRUNE("a", .completed_before_ms = later).executions_deleted, 0);
    SAME(PRUNE("a", .has_keep_last = false).executions_deleted, 0);
    STEP_END("a", 1, COMPLETED, "out", ev_done(2, "out")); /* ended, but the current one */
    SAME(PRUNE("a", KEEP(0), .completed_before_ms = later).executions_deleted, 0);
    SAME(PRUNE("a", .completed_before_ms = later).executions_deleted, 0);
    SAME(kit_history(t, "a", 1, NULL), 2);
    long_life(t, "b", 3, NULL);
    SAME(PRUNE("b", KEEP(0)).executions_deleted, 2);
    SAME(kit_history(t, "b", 3, NULL), 1);
    static const dur_prune_options rules[] = { { .has_keep_last = false }, { KEEP(0) }, { KEEP(1) } };
    for (size_t i = 0; i < COUNT(rules); i++) { /* none, 0 and 1 are the same */
        const char *ended = kit_format(t, "ended-%zu", i);
        long_life(t, ended, 4, NULL);
        STEP_END(ended, 4, COMPLETED, "out", ev_done(2, "out"));
        SAME(prune(t, ended, &rules[i]).executions_deleted, 3);
        SAME(kit_history(t, ended, 4, NULL), 2);
        only_current(t, ended, 4);
    }
    REFUSED(DUR_ENOTFOUND, "not found", dur_store_prune_executions(t->p, "nobody", &keep_one, &result, ERR));
}

static dur_prune_result prune_bulk_with(kit *t, const dur_bulk_filter *filter, const dur_prune_options *options) {
    dur_prune_result result = { 0, 0, 0 };
    MUST(dur_store_prune_executions_bulk(t->p, filter, options, &result, ERR));
    return result;
}

static void prune_bulk(kit *t) {
    NEEDS("prune_executions_bulk");
    static const char *const ids[] = { "a", "b", "nobody" };
    long_life(t, "a", 3, NULL);
    long_life(t, "b", 2, NULL);
    long_life(t, "c", 3, NULL);
    STEP_END("a", 3, COMPLETED, "out", ev_done(2, "out"));
    STEP_END("b", 2, COMPLETED, "out", ev_done(2, "out"));
    STEP_END("c", 3, COMPLETED, "out", ev_done(2, "out"));
    dur_prune_result result = prune_bulk_with(t, &(dur_bulk_filter){ .instance_ids = ids, .instance_id_count = 3 },
                                              &(dur_prune_options){ KEEP(1) });
    SAME(result.instances_processed, 2);
    SAME(result.executions_deleted, 3);
    SAME(result.events_deleted, 6);
    SAME(kit_history(t, "a", 1, NULL), 0);
    SAME(kit_history(t, "a", 3, NULL), 2);
    SAME(kit_history(t, "c", 1, NULL), 2); /* not listed */
}

static void prune_bulk_includes_running_instances(kit *t) {
    NEEDS("prune_executions_bulk");
    long_life(t, "a", 4, NULL);
    dur_prune_result result = prune_bulk_with(t, &(dur_bulk_filter){ .limit = 0 }, &(dur_prune_options){ KEEP(1) });
    SAME(result.executions_deleted, 3);
    SAME(kit_history(t, "a", 3, NULL), 0);
    SAME(kit_history(t, "a", 4, NULL), 1);
    only_current(t, "a", 4);
    STEP("a", 4, ev_scheduled(2)); /* and it runs on */
    SAME(kit_history(t, "a", 0, NULL), 2);
}

const kit_check kit_prune[] = {
    CHECK(prune_options_combinations),
    CHECK(prune_safety),
    CHECK(prune_bulk),
    CHECK(prune_bulk_includes_running_instances),
    CHECKS_END,
};
