/*
 * check_deletion.c: instances are deleted with all that belongs to them, or not at all.
 */
#include "kit_internal.h"

#define DELETE(force, ...)                                                                                             \
    dur_store_delete_instances(t->p, (const char *const[]){ __VA_ARGS__ },                                             \
                               sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *), (force), &result, ERR)
#define NEEDS_DELETION() NEEDS("delete_instances", "get_instance", "list_instances")

static void delete_terminal_instances(kit *t) {
    NEEDS_DELETION();
    dur_delete_result result;
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"), ev_status(3, "s"));
    STEP_END("a", 1, COMPLETED, "out", ev_done(4, "out"));
    kit_create_ended(t, "b", NULL, DUR_STATUS_FAILED, "why");
    MUST(kit_delete(t, "a", false, &result));
    SAME(result.instances, 1);
    SAME(result.executions, 1);
    SAME(result.events, 4);
    SAME(result.queue_messages, 0);
    THAT(!kit_exists(t, "a"));
    SAME(kit_history(t, "a", 0, NULL), 0);
    SAME(kit_history(t, "a", 1, NULL), 0);
    TEXT(kit_value(t, "a", "k"), NULL);
    bool changed = true;
    const char *status = NULL;
    uint64_t version = 0;
    MUST(dur_store_get_custom_status(t->p, t->arena, "a", 0, &changed, &status, &version, ERR));
    THAT(!changed);
    THAT(kit_exists(t, "b"));
    MUST(kit_delete(t, "b", false, &result));
    SAME(result.instances, 1);
    THAT(!kit_exists(t, "b"));
}

static void delete_running_rejected_force_succeeds(kit *t) {
    NEEDS_DELETION();
    kit_create(t, "a");
    REFUSED(DUR_ERUNNING, "running", kit_delete(t, "a", false, NULL));
    THAT(kit_exists(t, "a"));
    SAME(kit_history(t, "a", 1, NULL), 1);
    MUST(kit_delete(t, "a", true, NULL));
    THAT(!kit_exists(t, "a"));
}

static void delete_nonexistent_instance(kit *t) {
    NEEDS_DELETION();
    dur_delete_result result;
    REFUSED(DUR_ENOTFOUND, "not found", DELETE(false, "nobody"));
    REFUSED(DUR_ENOTFOUND, "not found", DELETE(true, "nobody"));
    REFUSED(DUR_ENOTFOUND, NULL, kit_delete(t, "nobody", true, &result));
}

static void delete_cleans_queues_and_locks(kit *t) {
    NEEDS_DELETION();
    dur_delete_result result;
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_external(2, "go"), ev_scheduled(3)), WORK(kit_activity(t, "a", 3)),
             MESSAGES(kit_raised(t, "a", "again", ""), kit_timer(t, "a", 1, 4, dur_store_now_ms(t->p) + 60000))));
    item = TAKE("a"); /* locked now */
    MUST(kit_delete(t, "a", true, &result));
    SAME(result.queue_messages, 3);
    NOTHING();
    NO_WORK();
    REFUSED(DUR_ELEASE, NULL, dur_store_renew_orchestration_item_lock(t->p, item.lock_token, t->lock_ms, ERR));
    MUST(kit_put(t, kit_start_as(t, "a", "Reused", "2.0.0"))); /* the id is free, and nothing old comes with it */
    item = TAKE("a");
    TEXT(item.orchestration_name, "Reused");
    SAME(item.message_count, 1);
    SAME(item.history_count, 0);
    SAME(item.execution_id, 1);
    MUST(ACK(&item, EVENTS(ev_started(1)),
             .meta = { .orchestration_name = "Reused", .orchestration_version = "2.0.0" }));
    TEXT(kit_instance(t, "a").orchestration_name, "Reused");
    kit_advance(t, 61000);
    NOTHING();
}

static void cascade_delete_hierarchy(kit *t) {
    NEEDS_DELETION();
    dur_delete_result result;
    kit_create_ended(t, "root", NULL, DUR_STATUS_COMPLETED, "out");
    kit_create_ended(t, "child", "root", DUR_STATUS_COMPLETED, "out");
    kit_create_ended(t, "grandchild", "child", DUR_STATUS_COMPLETED, "out");
    kit_create_ended(t, "great", "grandchild", DUR_STATUS_COMPLETED, "out");
    REFUSED(DUR_ECHILD, "sub-orchestration", kit_delete(t, "child", false, NULL));
    REFUSED(DUR_ECHILD, "sub-orchestration", kit_delete(t, "grandchild", true, NULL));
    THAT(kit_exists(t, "child"));
    MUST(kit_delete(t, "root", false, &result));
    SAME(result.instances, 4);
    SAME(result.executions, 4);
    SAME(result.events, 8);
    THAT(!kit_exists(t, "root") && !kit_exists(t, "child") && !kit_exists(t, "grandchild") && !kit_exists(t, "great"));
}

static void force_delete_prevents_ack_recreation(kit *t) {
    NEEDS_DELETION();
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(kit_delete(t, "a", true, NULL));
    REFUSED(DUR_ELEASE, "Invalid lock token",
            ACK(&item, EVENTS(ev_external(2, "go")), WORK(kit_activity(t, "a", 3)), NAMED));
    THAT(!kit_exists(t, "a"));
    SAME(kit_history(t, "a", 0, NULL), 0);
    NO_WORK();
}

static void list_children(kit *t) {
    NEEDS_DELETION();
    dur_instance_row *rows = NULL;
    kit_create(t, "root");
    kit_create_child(t, "one", "root");
    kit_create_child(t, "two", "root");
    kit_create_child(t, "deep", "one");
    SAME(kit_children(t, "root", &rows), 2);
    TEXT(rows[0].instance_id, "one");
    TEXT(rows[1].instance_id, "two");
    TEXT(rows[0].parent_instance_id, "root");
    SAME(kit_children(t, "one", &rows), 1);
    SAME(kit_children(t, "deep", &rows), 0);
    SAME(kit_children(t, "nobody", &rows), 0);
}

static void delete_get_parent_id(kit *t) {
    NEEDS_DELETION();
    dur_instance_row row;
    kit_create(t, "root");
    kit_create_child(t, "child", "root");
    TEXT(kit_instance(t, "root").parent_instance_id, NULL);
    TEXT(kit_instance(t, "child").parent_instance_id, "root");
    STEP("child", 1, ev_external(2, "go")); /* a later turn says nothing of a parent: it stays */
    TEXT(kit_instance(t, "child").parent_instance_id, "root");
    REFUSED(DUR_ENOTFOUND, NULL, dur_store_get_instance(t->p, t->arena, "nobody", &row, ERR));
}

static void delete_get_instance_tree(kit *t) {
    NEEDS_DELETION();
    const char *ids[16];
    kit_create(t, "root");
    kit_create_child(t, "one", "root");
    kit_create_child(t, "two", "root");
    kit_create_child(t, "one.1", "one");
    kit_create(t, "other");
    SAME(kit_tree(t, "one.1", ids, COUNT(ids)), 1);
    SAME(kit_tree(t, "root", ids, COUNT(ids)), 4);
    for (size_t i = 0; i < 4; i++)
        THAT(strcmp(ids[i], "other") != 0);
}

static void delete_instances_atomic(kit *t) {
    NEEDS_DELETION();
    dur_delete_result result;
    kit_create_ended(t, "a", NULL, DUR_STATUS_COMPLETED, "out");
    kit_create_ended(t, "b", NULL, DUR_STATUS_FAILED, "why");
    kit_create_ended(t, "c", NULL, DUR_STATUS_COMPLETED, "out");
    REFUSED(DUR_ENOTFOUND, "not found", DELETE(false, "a", "nobody", "b"));
    THAT(kit_exists(t, "a") && kit_exists(t, "b"));
    MUST(DELETE(false, "a", "b"));
    SAME(result.instances, 2);
    SAME(result.executions, 2);
    SAME(result.events, 4);
    THAT(!kit_exists(t, "a") && !kit_exists(t, "b") && kit_exists(t, "c"));
}

static void delete_instances_atomic_force(kit *t) {
    NEEDS_DELETION();
    dur_delete_result result;
    kit_create_ended(t, "a", NULL, DUR_STATUS_COMPLETED, "out");
    kit_create(t, "b");
    REFUSED(DUR_ERUNNING, "running", DELETE(false, "a", "b"));
    THAT(kit_exists(t, "a") && kit_exists(t, "b"));
    SAME(kit_history(t, "a", 1, NULL), 2);
    MUST(DELETE(true, "a", "b"));
    SAME(result.instances, 2);
    THAT(!kit_exists(t, "a") && !kit_exists(t, "b"));
}

static void delete_instances_atomic_orphan_detection(kit *t) {
    NEEDS_DELETION();
    dur_delete_result result;
    kit_create_ended(t, "root", NULL, DUR_STATUS_COMPLETED, "out");
    kit_create_ended(t, "child", "root", DUR_STATUS_COMPLETED, "out");
    REFUSED(DUR_ECHILD, "child", DELETE(false, "root"));
    REFUSED(DUR_ECHILD, "child", DELETE(true, "root"));
    THAT(kit_exists(t, "root") && kit_exists(t, "child"));
    MUST(DELETE(false, "child", "root"));
    SAME(result.instances, 2);
}

static void stale_activity_after_delete_recreate(kit *t) {
    NEEDS_DELETION();
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1), ev_scheduled(2)), WORK(kit_activity(t, "a", 2)), NAMED));
    dur_leased_work stale = TAKE_WORK(2);
    MUST(kit_delete(t, "a", true, NULL));
    kit_create(t, "a");
    dur_message_row done = kit_finished(t, "a", 1, 2, "stale");
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, stale.lock_token, &done, ERR));
    NOTHING(); /* the new instance sees no stale completion */
}

const kit_check kit_deletion[] = {
    CHECK(delete_terminal_instances),
    CHECK(delete_running_rejected_force_succeeds),
    CHECK(delete_nonexistent_instance),
    CHECK(delete_cleans_queues_and_locks),
    CHECK(cascade_delete_hierarchy),
    CHECK(force_delete_prevents_ack_recreation),
    CHECK(list_children),
    CHECK(delete_get_parent_id),
    CHECK(delete_get_instance_tree),
    CHECK(delete_instances_atomic),
    CHECK(delete_instances_atomic_force),
    CHECK(delete_instances_atomic_orphan_detection),
    CHECK(stale_activity_after_delete_recreate),
    CHECKS_END,
};
