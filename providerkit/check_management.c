/*
 * check_management.c: what operators see.
 */
#include "kit_internal.h"

static size_t listed(kit *t, const dur_instance_query *query, dur_instance_row **rows) {
    size_t count = 0;
    MUST(dur_store_list_instances(t->p, t->arena, query, rows, &count, ERR));
    return count;
}

static void list_instances(kit *t) {
    NEEDS("list_instances");
    dur_instance_row *rows;
    SAME(listed(t, &(dur_instance_query){ .limit = 0 }, &rows), 0);
    kit_create(t, "b");
    kit_create(t, "a");
    kit_create_ended(t, "c", NULL, DUR_STATUS_COMPLETED, "out");
    SAME(listed(t, &(dur_instance_query){ .limit = 0 }, &rows), 3);
    TEXT(rows[0].instance_id, "a"); /* by instance id */
    TEXT(rows[1].instance_id, "b");
    TEXT(rows[2].instance_id, "c");
}

static void list_instances_by_status(kit *t) {
    NEEDS("list_instances");
    dur_instance_row *rows;
    kit_create(t, "running");
    kit_create_ended(t, "completed", NULL, DUR_STATUS_COMPLETED, "out");
    kit_create_ended(t, "failed", NULL, DUR_STATUS_FAILED, "why");
    kit_create(t, "continued");
    kit_continue(t, "continued", 1); /* its current execution runs */
    SAME(listed(t, &(dur_instance_query){ .status = DUR_STATUS_RUNNING }, &rows), 2);
    TEXT(rows[0].instance_id, "continued");
    TEXT(rows[1].instance_id, "running");
    SAME(listed(t, &(dur_instance_query){ .status = DUR_STATUS_COMPLETED }, &rows), 1);
    TEXT(rows[0].instance_id, "completed");
    SAME(listed(t, &(dur_instance_query){ .status = DUR_STATUS_FAILED }, &rows), 1);
    TEXT(rows[0].instance_id, "failed");
    SAME(listed(t, &(dur_instance_query){ .status = DUR_STATUS_CONTINUED_AS_NEW }, &rows), 0);
}

static void list_executions(kit *t) {
    NEEDS("list_executions");
    dur_execution_row *rows = NULL;
    size_t count = 0;
    kit_create(t, "a");
    kit_continue(t, "a", 1);
    kit_continue(t, "a", 2);
    MUST(dur_store_list_executions(t->p, t->arena, "a", &rows, &count, ERR));
    SAME(count, 3);
    for (uint64_t i = 0; i < 3; i++)
        SAME(rows[i].execution_id, i + 1);
    SAME(rows[0].status, DUR_STATUS_CONTINUED_AS_NEW);
    SAME(rows[2].status, DUR_STATUS_RUNNING);
    MUST(kit_put(t, kit_start(t, "nameless"))); /* a turn that names nothing: no row of the instance, an execution */
    dur_orchestration_item item = TAKE("nameless");
    MUST(ACK(&item, EVENTS(ev_started(1))));
    MUST(dur_store_list_executions(t->p, t->arena, "nameless", &rows, &count, ERR));
    SAME(count, 1);
    SAME(rows[0].execution_id, 1);
}

static void get_instance_info(kit *t) {
    NEEDS("get_instance");
    kit_create(t, "a");
    kit_continue(t, "a", 1);
    dur_instance_row row = kit_instance(t, "a");
    TEXT(row.instance_id, "a");
    TEXT(row.orchestration_name, KIT_NAME);
    TEXT(row.orchestration_version, KIT_VERSION);
    SAME(row.current_execution_id, 2);
    SAME(row.status, DUR_STATUS_RUNNING);
    TEXT(row.output, NULL);
    TEXT(row.parent_instance_id, NULL);
    STEP_END("a", 2, COMPLETED, "the end", ev_done(2, "the end"));
    row = kit_instance(t, "a");
    SAME(row.status, DUR_STATUS_COMPLETED);
    TEXT(row.output, "the end");
    THAT(row.updated_at_ms >= row.created_at_ms);
}

static void get_execution_info(kit *t) {
    NEEDS("list_executions");
    uint64_t from = dur_store_now_ms(t->p);
    kit_create(t, "a");
    dur_execution_row row = kit_execution(t, "a", 1);
    SAME(row.status, DUR_STATUS_RUNNING);
    TEXT(row.output, NULL);
    SAME(row.event_count, 1);
    SAME(row.completed_at_ms, 0);
    THAT(row.started_at_ms >= from && row.started_at_ms <= dur_store_now_ms(t->p));
    kit_advance(t, 20);
    STEP_END("a", 1, COMPLETED, "out", ev_scheduled(2), ev_done(3, "out"));
    row = kit_execution(t, "a", 1);
    SAME(row.status, DUR_STATUS_COMPLETED);
    TEXT(row.output, "out");
    SAME(row.event_count, 3);
    THAT(row.completed_at_ms > row.started_at_ms);
    MUST(kit_put(t, kit_start(t, "nameless")));
    dur_orchestration_item item = TAKE("nameless");
    MUST(ACK(&item, EVENTS(ev_started(1)), .meta = { .status = DUR_STATUS_COMPLETED, .output = "result" }));
    row = kit_execution(t, "nameless", 1);
    SAME(row.status, DUR_STATUS_COMPLETED);
    TEXT(row.output, "result");
}

static void get_system_metrics(kit *t) {
    NEEDS("get_system_metrics");
    dur_system_metrics before, after;
    MUST(dur_store_get_system_metrics(t->p, &before, ERR));
    kit_create(t, "a");
    kit_continue(t, "a", 1);
    kit_create_ended(t, "b", NULL, DUR_STATUS_COMPLETED, "out");
    kit_create_ended(t, "c", NULL, DUR_STATUS_FAILED, "why");
    MUST(dur_store_get_system_metrics(t->p, &after, ERR));
    SAME(after.total_instances, before.total_instances + 3);
    SAME(after.total_executions, before.total_executions + 4);
    SAME(after.running, before.running + 1);
    SAME(after.completed, before.completed + 1);
    SAME(after.failed, before.failed + 1);
    SAME(after.total_events, before.total_events + 7);
}

static void get_queue_depths(kit *t) {
    NEEDS("get_queue_depths");
    dur_queue_depths empty = kit_depths(t);
    SAME(empty.orchestrator_queue + empty.worker_queue + empty.timer_queue, 0);
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(kit_put(t, kit_timer(t, "a", 1, 2, dur_store_now_ms(t->p) + 60000)));
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    MUST(kit_put_work(t, kit_activity(t, "a", 2)));
    TAKE_WORK(1);
    dur_queue_depths depths = kit_depths(t);
    SAME(depths.orchestrator_queue, 1);
    SAME(depths.timer_queue, 1);
    SAME(depths.worker_queue, 1); /* the other is locked */
}

const kit_check kit_management[] = {
    CHECK(list_instances),     CHECK(list_instances_by_status), CHECK(list_executions),  CHECK(get_instance_info),
    CHECK(get_execution_info), CHECK(get_system_metrics),       CHECK(get_queue_depths), CHECKS_END,
};
