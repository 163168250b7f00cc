/*
 * check_bulk_deletion.c: finished roots that match a filter, with their trees.
 */
#include "kit_internal.h"

static dur_delete_result bulk(kit *t, const dur_bulk_filter *filter) {
    dur_delete_result result = { 0, 0, 0, 0 };
    MUST(dur_store_delete_instances_bulk(t->p, filter, &result, ERR));
    return result;
}

#define IDS(...)                                                                                                       \
    .instance_ids = (const char *const[]){ __VA_ARGS__ },                                                              \
    .instance_id_count = sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)
#define BULK(...) bulk(t, &(dur_bulk_filter){ __VA_ARGS__ })

/* One that ended at a time of its own; returns a time between this end and the next. */
static uint64_t ended_at(kit *t, const char *instance) {
    kit_create_ended(t, instance, NULL, DUR_STATUS_COMPLETED, "out");
    kit_advance(t, 20);
    uint64_t between = dur_store_now_ms(t->p);
    kit_advance(t, 20);
    return between;
}

static void delete_instance_bulk_filter_combinations(kit *t) {
    NEEDS("delete_instances_bulk", "get_instance");
    ended_at(t, "a");
    uint64_t after_b = ended_at(t, "b");
    ended_at(t, "c");
    kit_create_ended(t, "d", NULL, DUR_STATUS_FAILED, "why");
    SAME(BULK(IDS("nobody", "none")).instances, 0);
    SAME(BULK(IDS("a")).instances, 1);
    THAT(!kit_exists(t, "a") && kit_exists(t, "b"));
    SAME(BULK(IDS("c", "nobody"), .completed_before_ms = after_b).instances, 0); /* both must hold */
    SAME(BULK(IDS("b", "c"), .completed_before_ms = after_b).instances, 1);
    THAT(!kit_exists(t, "b") && kit_exists(t, "c"));
    dur_delete_result rest = BULK(.limit = 0);
    SAME(rest.instances, 2);
    SAME(rest.executions, 2);
    SAME(rest.events, 4);
    THAT(!kit_exists(t, "c") && !kit_exists(t, "d"));
}

static void delete_instance_bulk_safety_and_limits(kit *t) {
    NEEDS("delete_instances_bulk", "get_instance");
    kit_create(t, "running");
    for (int i = 0; i < 5; i++)
        kit_create_ended(t, kit_format(t, "done-%d", i), NULL, DUR_STATUS_COMPLETED, "out");
    SAME(BULK(IDS("running")).instances, 0);
    kit_create_ended(t, "ended", NULL, DUR_STATUS_COMPLETED, "out");
    SAME(BULK(IDS("running", "ended")).instances, 1); /* the one is left, the other goes */
    THAT(kit_exists(t, "running") && !kit_exists(t, "ended"));
    SAME(BULK(.limit = 2).instances, 2);
    SAME(BULK(.limit = 2).instances, 2);
    SAME(BULK(.limit = 2).instances, 1);
    SAME(BULK(.limit = 2).instances, 0);
    THAT(kit_exists(t, "running"));
    SAME(kit_history(t, "running", 1, NULL), 1);
}

static void delete_instance_bulk_completed_before_filter(kit *t) {
    NEEDS("delete_instances_bulk", "get_instance");
    uint64_t before = dur_store_now_ms(t->p);
    kit_advance(t, 20);
    uint64_t after_a = ended_at(t, "a");
    ended_at(t, "b");
    SAME(BULK(.completed_before_ms = before).instances, 0);
    SAME(BULK(IDS("b"), .completed_before_ms = after_a).instances, 0);
    SAME(BULK(.completed_before_ms = after_a).instances, 1);
    THAT(!kit_exists(t, "a") && kit_exists(t, "b"));
    SAME(BULK(IDS("b"), .completed_before_ms = dur_store_now_ms(t->p) + 1).instances, 1);
    THAT(!kit_exists(t, "b"));
}

static void delete_instance_bulk_cascades_to_children(kit *t) {
    NEEDS("delete_instances_bulk", "get_instance");
    static const char *const tree[][2] = { { "one", NULL },      { "one.1", "one" },   { "many", NULL },
                                           { "many.1", "many" }, { "many.2", "many" }, { "many.2.1", "many.2" },
                                           { "alone", NULL } };
    for (size_t i = 0; i < COUNT(tree); i++)
        kit_create_ended(t, tree[i][0], tree[i][1], DUR_STATUS_COMPLETED, "out");
    dur_delete_result result = BULK(IDS("one", "many", "alone"));
    SAME(result.instances, 7);
    SAME(result.executions, 7);
    SAME(result.events, 14);
    for (size_t i = 0; i < COUNT(tree); i++) {
        THAT(!kit_exists(t, tree[i][0]));
        SAME(kit_history(t, tree[i][0], 0, NULL), 0);
    }
}

const kit_check kit_bulk_deletion[] = {
    CHECK(delete_instance_bulk_filter_combinations),
    CHECK(delete_instance_bulk_safety_and_limits),
    CHECK(delete_instance_bulk_completed_before_filter),
    CHECK(delete_instance_bulk_cascades_to_children),
    CHECKS_END,
};
