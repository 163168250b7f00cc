/*
 * check_multi_execution.c: the executions of one instance, one after another.
 */
#include "kit_internal.h"

static void execution_isolation(kit *t) {
    dur_event_row *one, *two, *latest;
    kit_create(t, "a");
    STEP("a", 1, ev_scheduled(2), ev_scheduled(3));
    kit_continue(t, "a", 1);
    STEP("a", 2, ev_timer(2, 77));
    SAME(kit_history(t, "a", 1, &one), 4);
    SAME(kit_history(t, "a", 2, &two), 2);
    SAME(kit_history(t, "a", 0, &latest), 2);
    THAT(kit_says(one[3].json, "ContinuedAsNew"));
    THAT(kit_says(two[1].json, "TimerCreated"));
    THAT(kit_equal_text(latest[1].json, two[1].json));
}

static void latest_execution_detection(kit *t) {
    dur_event_row *rows;
    dur_event_row first = kit_row(t, "a", 1, ev_started(1));
    dur_event_row second = kit_row(t, "a", 2, ev_scheduled(1));
    MUST(dur_store_append(t->p, "a", 1, &first, 1, ERR));
    MUST(dur_store_append(t->p, "a", 2, &second, 1, ERR));
    SAME(kit_history(t, "a", 0, &rows), 1); /* found without an instance row */
    THAT(kit_equal_text(rows[0].json, second.json));
    for (uint64_t execution = 1; execution <= 2; execution++) { /* the same by turns that name nothing */
        MUST(kit_put(t, kit_start(t, "b")));
        dur_orchestration_item item = TAKE("b");
        MUST(ACK(&item, .execution = execution, EVENTS(execution == 1 ? ev_started(1) : ev_scheduled(1))));
    }
    SAME(kit_history(t, "b", 0, &rows), 1);
    THAT(kit_says(rows[0].json, "ActivityScheduled"));
    SAME(kit_history(t, "b", 1, &rows), 1);
    THAT(kit_says(rows[0].json, "OrchestrationStarted"));
}

static void execution_id_sequencing(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    SAME(item.execution_id, 1);
    MUST(ACK(&item, EVENTS(ev_started(1), ev_continued(2, "next")), MESSAGES(kit_next(t, "a", "next")),
             ENDS(CONTINUED_AS_NEW, "next")));
    item = TAKE("a");
    MUST(ACK(&item, .execution = 2, EVENTS(ev_started(1)), NAMED));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    item = TAKE("a");
    SAME(item.execution_id, 2);
    SAME(item.history_count, 1);
    SAME(item.last_event_id, 1);
    /* by starts, as a store sees it: the turn says which execution it was */
    kit_create(t, "b");
    MUST(kit_put(t, kit_start(t, "b")));
    item = TAKE("b");
    MUST(ACK(&item, .execution = 2, EVENTS(ev_started(1)), NAMED));
    MUST(kit_put(t, kit_start(t, "b")));
    SAME(TAKE("b").execution_id, 2);
}

static void continue_as_new_creates_new_execution(kit *t) {
    kit_create(t, "a");
    MUST(kit_put(t, kit_next(t, "a", "next")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, .execution = 2, EVENTS(ev_started(1), ev_scheduled(2)), NAMED));
    SAME(kit_history(t, "a", 0, NULL), 2);
    SAME(kit_history(t, "a", 1, NULL), 1);
    if (dur_store_has(t->p, "get_instance")) SAME(kit_instance(t, "a").current_execution_id, 2);
    /* an ack of an older execution does not make it current again */
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    item = TAKE("a");
    SAME(item.execution_id, 2);
    MUST(ACK(&item, .execution = 1, EVENTS(ev_scheduled(2))));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    SAME(TAKE("a").execution_id, 2);
}

static void execution_history_persistence(kit *t) {
    kit_create(t, "a");
    kit_continue(t, "a", 1);
    kit_continue(t, "a", 2);
    STEP_END("a", 3, COMPLETED, "out", ev_scheduled(2), ev_done(3, "out"));
    SAME(kit_history(t, "a", 1, NULL), 2);
    SAME(kit_history(t, "a", 2, NULL), 2);
    SAME(kit_history(t, "a", 3, NULL), 3);
    SAME(kit_history(t, "a", 4, NULL), 0);
    SAME(kit_history(t, "a", 0, NULL), 3);
}

const kit_check kit_multi_execution[] = {
    CHECK(execution_isolation),           CHECK(latest_execution_detection),
    CHECK(execution_id_sequencing),       CHECK(continue_as_new_creates_new_execution),
    CHECK(execution_history_persistence), CHECKS_END,
};
