/*
 * check_instance_creation.c: a row appears when a turn commits, never when something is enqueued.
 */
#include "kit_internal.h"

static void instance_creation_via_metadata(kit *t) {
    NEEDS("get_instance");
    MUST(kit_put(t, kit_start_as(t, "a", "FromMessage", "9.9.9")));
    THAT(!kit_exists(t, "a"));
    dur_orchestration_item item = TAKE("a");
    TEXT(item.orchestration_name, "FromMessage");
    TEXT(item.version, "9.9.9");
    SAME(item.execution_id, 1);
    SAME(item.last_event_id, 0);
    THAT(!kit_exists(t, "a"));
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
    dur_instance_row row = kit_instance(t, "a");
    TEXT(row.orchestration_name, KIT_NAME);
    TEXT(row.orchestration_version, KIT_VERSION);
    SAME(row.status, DUR_STATUS_RUNNING);
    SAME(row.current_execution_id, 1);
    THAT(!row.start_pending);
    MUST(kit_put(t, kit_start_as(t, "a", KIT_NAME, "9.9.9")));
    item = TAKE("a"); /* the row says what it is, not the message */
    TEXT(item.version, KIT_VERSION);
    SAME(item.execution_id, 1);
    SAME(item.history_count, 1);
}

static void no_instance_creation_on_enqueue(kit *t) {
    NEEDS("get_instance", "list_instances", "get_system_metrics");
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(kit_put(t, kit_raised(t, "b", "go", "")));
    MUST(kit_put_work(t, kit_activity(t, "c", 1)));
    dur_instance_row *rows = NULL;
    size_t count = 0;
    dur_instance_query query = { .limit = 0 };
    MUST(dur_store_list_instances(t->p, t->arena, &query, &rows, &count, ERR));
    for (size_t i = 0; i < count; i++)
        THAT(rows[i].start_pending);
    THAT(!kit_exists(t, "a") && !kit_exists(t, "b") && !kit_exists(t, "c"));
    SAME(kit_history(t, "a", 0, NULL), 0);
    dur_system_metrics metrics;
    MUST(dur_store_get_system_metrics(t->p, &metrics, ERR));
    SAME(metrics.total_instances, 0);
    SAME(metrics.total_executions, 0);
}

static void null_version_handling(kit *t) {
    MUST(kit_put(t, kit_start_as(t, "a", KIT_NAME, NULL)));
    dur_orchestration_item item = TAKE("a");
    TEXT(item.version, NULL);
    TEXT(item.orchestration_name, KIT_NAME);
    MUST(ACK(&item, EVENTS(ev_started(1)),
             .meta = { .orchestration_name = KIT_NAME, .orchestration_version = "2.5.0" }));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    TEXT(TAKE("a").version, "2.5.0");
}

static void sub_orchestration_instance_creation(kit *t) {
    NEEDS("get_instance");
    kit_create(t, "parent");
    MUST(kit_put(t, kit_raised(t, "parent", "go", "")));
    dur_orchestration_item item = TAKE("parent");
    MUST(ACK(&item, EVENTS(ev_external(2, "go")), MESSAGES(kit_child(t, "child", "parent", 3))));
    THAT(!kit_exists(t, "child"));
    item = TAKE("child");
    TEXT(item.orchestration_name, KIT_NAME);
    SAME(item.history_count, 0);
    THAT(!kit_exists(t, "child"));
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED_CHILD_OF("parent")));
    TEXT(kit_instance(t, "child").parent_instance_id, "parent");
    MUST(kit_put(t, kit_start_as(t, "child", KIT_NAME, NULL)));
    TEXT(TAKE("child").version, KIT_VERSION);
}

const kit_check kit_instance_creation[] = {
    CHECK(instance_creation_via_metadata),
    CHECK(no_instance_creation_on_enqueue),
    CHECK(null_version_handling),
    CHECK(sub_orchestration_instance_creation),
    CHECKS_END,
};
