/*
 * check_ours_rules.c: our own: rules of the contract that nothing else looks at, one by one.
 */
#include "kit_internal.h"

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void ours_duplicate_is_told_before_the_end(kit *t) {
    NEEDS("enqueue_existing");
    kit_create(t, "a");
    dur_message_row message = kit_queued(t, "a", "q", "x");
    message.message_id = "payment-7";
    MUST(dur_store_enqueue_existing(t->p, &message, 0, ERR));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_done(2, "out")), ENDS(COMPLETED, "out")));
    REFUSED(DUR_EDUPLICATE, NULL, dur_store_enqueue_existing(t->p, &message, 0, ERR)); /* it was accepted, once */
    message.message_id = "payment-8";
    REFUSED(DUR_ESTATE, NULL, dur_store_enqueue_existing(t->p, &message, 0, ERR));
    REFUSED(DUR_ESTATE, NULL, dur_store_enqueue_existing(t->p, &message, 0, ERR)); /* what is refused has no id */
}

static void ours_refused_message_has_no_id(kit *t) {
    NEEDS("enqueue_existing");
    dur_message_row message = kit_raised(t, "a", "go", "");
    message.message_id = "payment-7";
    REFUSED(DUR_ENOTFOUND, NULL, dur_store_enqueue_existing(t->p, &message, 0, ERR));
    kit_create(t, "a");
    MUST(dur_store_enqueue_existing(t->p, &message, 0, ERR));
    SAME(TAKE("a").message_count, 1);
}

/* A due time that has passed is a place in the order: before what came since. */
static void ours_overdue_is_before_what_came_later(kit *t) {
    kit_create(t, "a");
    kit_advance(t, 500);
    uint64_t now = dur_store_now_ms(t->p);
    MUST(kit_put(t, kit_raised(t, "a", "first", "")));
    MUST(kit_put(t, kit_timer(t, "a", 1, 8, now - 200)));
    MUST(kit_put(t, kit_timer(t, "a", 1, 9, now - 300)));
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 3);
    THAT(kit_says(item.messages[0].json, "\"id\":9"));
    THAT(kit_says(item.messages[1].json, "\"id\":8"));
    THAT(kit_says(item.messages[2].json, "first"));
}

static void ours_messages_of_a_turn_are_in_its_order(kit *t) {
    kit_create(t, "a");
    kit_advance(t, 500);
    uint64_t now = dur_store_now_ms(t->p);
    MUST(kit_put(t, kit_start(t, "sender")));
    dur_orchestration_item item = TAKE("sender");
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED,
             MESSAGES(kit_raised(t, "a", "m0", ""), kit_queued(t, "a", "q", "m1"), kit_timer(t, "a", 1, 2, now - 300),
                      kit_raised(t, "a", "m3", ""), kit_cancel(t, "a", "m4"))));
    item = TAKE("a");
    SAME(item.message_count, 5);
    THAT(kit_says(item.messages[0].json, "m0") && kit_says(item.messages[1].json, "m1"));
    THAT(kit_says(item.messages[2].json, "TimerFired")); /* overdue behind an undelayed one: where the turn put it */
    THAT(kit_says(item.messages[3].json, "m3") && kit_says(item.messages[4].json, "m4"));
}

static void ours_dropped_timers_may_be_due_or_handed_out(kit *t) {
    NEEDS("commit_turns", "get_queue_depths");
    uint64_t due = dur_store_now_ms(t->p) + 400;
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED,
             MESSAGES(kit_timer(t, "a", 1, 4, due), kit_timer(t, "a", 1, 5, due), kit_timer(t, "a", 1, 6, due + 100000),
                      kit_raised(t, "a", "go", ""))));
    item = TAKE("a");
    SAME(item.message_count, 1);
    dur_activity_ref dropped[] = { REF("a", 1, 4), REF("a", 1, 6) };
    kit_advance(t, 450); /* 4 is due, and nobody was given it */
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(2, "go")));
    commit.timers_dropped = dropped;
    commit.timers_dropped_count = 2;
    MUST(kit_commit(t, &commit));
    SAME(kit_depths(t).timer_queue, 0);
    item = TAKE("a");
    SAME(item.message_count, 1);
    THAT(kit_says(item.messages[0].json, "\"id\":5"));
    dropped[0] = REF("a", 1, 5); /* handed out */
    commit = COMMIT_OF(&item, EVENTS(ev_external(3, "go")));
    commit.consume_listed = true;
    commit.timers_dropped = dropped;
    commit.timers_dropped_count = 1;
    MUST(kit_commit(t, &commit));
    NOTHING();
    SAME(kit_depths(t).orchestrator_queue, 0);
}

/* ---- suspension -------------------------------------------------------------------------------------------------- */

static void ours_resumed_looks_at_what_it_had_seen(kit *t) {
    NEEDS("commit_turns", "fetch_turns", "set_suspended");
    kit_create(t, "a");
    MUST(kit_put(t, kit_queued(t, "a", "q", "left")));
    dur_orchestration_item item = ACQUIRE(NULL, "a");
    dur_turn_commit release = COMMIT_OF(&item, EVENTS(ev_external(2, "x")));
    release.consume_listed = true;
    release.seen_id = item.messages[0].id;
    release.seen_now_ms = dur_store_now_ms(t->p);
    MUST(kit_commit(t, &release));
    NOTHING();
    MUST(dur_store_set_suspended(t->p, "a", "on purpose", ERR));
    MUST(dur_store_set_suspended(t->p, "a", NULL, ERR));
    SAME(TAKE("a").message_count, 1);
}

static void ours_suspended_start_waits(kit *t) {
    NEEDS("set_suspended", "get_instance");
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(dur_store_set_suspended(t->p, "a", "on purpose", ERR));
    NOTHING();
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    NOTHING();
    TEXT(kit_instance(t, "a").suspended, "on purpose");
    MUST(dur_store_set_suspended(t->p, "a", "for another reason", ERR));
    TEXT(kit_instance(t, "a").suspended, "for another reason");
    MUST(dur_store_set_suspended(t->p, "a", NULL, ERR));
    TEXT(kit_instance(t, "a").suspended, NULL);
    SAME(TAKE("a").message_count, 2);
}

static void ours_suspension_outlives_an_execution(kit *t) {
    NEEDS("set_suspended", "get_instance");
    kit_create(t, "a");
    kit_continue(t, "a", 1);
    MUST(dur_store_set_suspended(t->p, "a", "on purpose", ERR));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    kit_expire(t);
    NOTHING();
    TEXT(kit_instance(t, "a").suspended, "on purpose");
}

/* ---- what a turn says of its instance ---------------------------------------------------------------------------- */

static void ours_parent_is_written_once(kit *t) {
    NEEDS("get_instance", "list_instances");
    dur_instance_row *rows = NULL;
    kit_create(t, "root");
    kit_create(t, "other");
    kit_create_child(t, "a", "root");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_external(2, "go")), NAMED_CHILD_OF("other")));
    TEXT(kit_instance(t, "a").parent_instance_id, "root");
    SAME(kit_children(t, "other", &rows), 0);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_external(3, "go")),
             .meta = { .orchestration_name = "Renamed", .orchestration_version = "2.0.0" }));
    dur_instance_row row = kit_instance(t, "a");
    TEXT(row.parent_instance_id, "root");
    TEXT(row.orchestration_name, "Renamed");
    TEXT(row.orchestration_version, "2.0.0");
}

static void ours_current_execution_does_not_go_back(kit *t) {
    NEEDS("get_instance");
    kit_create(t, "a");
    kit_continue(t, "a", 1);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, .execution = 1, EVENTS(ev_external(9, "late"))));
    SAME(kit_instance(t, "a").current_execution_id, 2);
    SAME(kit_history(t, "a", 0, NULL), 1);
    SAME(kit_history(t, "a", 1, NULL), 3);
}

static void ours_executions_have_their_own_times_and_ends(kit *t) {
    NEEDS("list_executions", "get_instance");
    kit_create(t, "a");
    kit_advance(t, 50);
    kit_continue(t, "a", 1);
    dur_execution_row one = kit_execution(t, "a", 1), two = kit_execution(t, "a", 2);
    SAME(one.status, DUR_STATUS_CONTINUED_AS_NEW);
    TEXT(one.output, "next");
    SAME(one.event_count, 2);
    THAT(one.started_at_ms > 0 && one.completed_at_ms >= one.started_at_ms + 40);
    THAT(one.completed_at_ms <= dur_store_now_ms(t->p));
    SAME(two.status, DUR_STATUS_RUNNING);
    TEXT(two.output, NULL);
    SAME(two.completed_at_ms, 0);
    THAT(two.started_at_ms >= one.completed_at_ms);
    kit_advance(t, 50);
    STEP_END("a", 2, FAILED, "why", ev_failed(2, "why"));
    two = kit_execution(t, "a", 2);
    SAME(two.status, DUR_STATUS_FAILED);
    TEXT(two.output, "why");
    THAT(two.completed_at_ms >= two.started_at_ms + 40);
    SAME(kit_execution(t, "a", 1).completed_at_ms, one.completed_at_ms);
    dur_instance_row row = kit_instance(t, "a");
    SAME(row.status, DUR_STATUS_FAILED);
    TEXT(row.output, "why");
    SAME(row.updated_at_ms, two.completed_at_ms);
}

static void ours_last_status_of_a_turn_counts(kit *t) {
    bool changed = false;
    const char *status = NULL;
    uint64_t version = 0;
    kit_create(t, "a");
    STEP("a", 1, ev_status(2, "one"), ev_status(3, NULL), ev_status(4, "three"));
    MUST(dur_store_get_custom_status(t->p, t->arena, "a", 0, &changed, &status, &version, ERR));
    TEXT(status, "three");
    SAME(version, 1); /* one turn is one change */
    STEP("a", 1, ev_status(5, "four"), ev_status(6, NULL));
    MUST(dur_store_get_custom_status(t->p, t->arena, "a", 1, &changed, &status, &version, ERR));
    THAT(changed);
    TEXT(status, NULL);
    SAME(version, 2);
}

static void ours_last_value_of_a_turn_counts(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "1"), ev_set(3, "k", "2"), ev_set(4, "x", "1"), ev_clear(5, "x"), ev_clear(6, "y"),
         ev_set(7, "y", "3"));
    TEXT(kit_value(t, "a", "k"), "2");
    TEXT(kit_value(t, "a", "x"), NULL);
    TEXT(kit_value(t, "a", "y"), "3");
    STEP("a", 1, ev_clear_all(8), ev_set(9, "z", "4"));
    dur_key_value *all = NULL;
    size_t count = 0;
    MUST(dur_store_get_kv_all_values(t->p, t->arena, "a", &all, &count, ERR));
    SAME(count, 1);
    TEXT(all[0].key, "z");
    SAME(all[0].last_updated_at_ms, 1700000000009u);
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

static void ours_completion_goes_to_whom_it_names(kit *t) {
    kit_create(t, "a");
    kit_create(t, "b");
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dur_leased_work work = TAKE_WORK(1);
    dur_message_row done = kit_finished(t, "b", 1, 1, "r");
    MUST(dur_store_ack_work_item(t->p, work.lock_token, &done, ERR));
    dur_orchestration_item item = TAKE("b");
    SAME(item.message_count, 1);
    THAT(kit_equal_text(item.messages[0].json, done.json));
    NOTHING();
}

static void ours_abandoned_work_keeps_its_place(kit *t) {
    for (uint64_t id = 1; id <= 3; id++)
        MUST(kit_put_work(t, kit_activity(t, "a", id)));
    dur_leased_work one = TAKE_WORK(1);
    TAKE_WORK(2);
    MUST(dur_store_abandon_work_item(t->p, one.lock_token, 0, false, ERR));
    one = TAKE_WORK(1); /* before 3, which came later */
    SAME(one.attempt_count, 2);
    MUST(dur_store_abandon_work_item(t->p, one.lock_token, 300, true, ERR));
    TAKE_WORK(3);
    kit_advance(t, 350);
    SAME(TAKE_WORK(1).attempt_count, 2);
}

static void ours_activities_are_known_by_execution(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED,
             WORK(kit_activity_in(t, "a", 1, 5, NULL, NULL), kit_activity_in(t, "a", 2, 5, NULL, NULL)),
             CANCELLED(REF("a", 1, 5))));
    dur_leased_work left = TAKE_WORK(5);
    SAME(left.ref.execution_id, 2);
    NO_WORK();
}

static void ours_cancelled_work_that_runs_is_lost(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED, WORK(kit_activity(t, "a", 2)),
             MESSAGES(kit_raised(t, "a", "go", ""))));
    dur_leased_work work = TAKE_WORK(2);
    item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_external(2, "go")), CANCELLED(REF("a", 1, 2))));
    dur_message_row done = kit_finished(t, "a", 1, 2, "late");
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, work.lock_token, &done, ERR));
    REFUSED(DUR_ELEASE, NULL, dur_store_abandon_work_item(t->p, work.lock_token, 0, false, ERR));
    kit_expire(t);
    NO_WORK();
    NOTHING();
}

static void ours_session_is_busy_while_its_work_is(kit *t) {
    static const char *const nodes[] = { "A" };
    uint64_t count = 9, third = t->lock_ms / 3;
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2, "s", NULL)));
    dur_leased_work work = TAKE_WORK_AS(1, SESSION("A"));
    kit_advance(t, third);
    MUST(dur_store_renew_work_item_lock(t->p, work.lock_token, t->lock_ms, ERR)); /* active */
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, t->lock_ms, third / 2, &count, ERR));
    SAME(count, 1);
    kit_advance(t, third);
    MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR)); /* active */
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, t->lock_ms, third / 2, &count, ERR));
    SAME(count, 1);
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, t->lock_ms, 0, &count, ERR)); /* idle_ms 0: none */
    SAME(count, 0);
    kit_expire(t);
    MUST(dur_store_cleanup_orphaned_sessions(t->p, 0, &count, ERR));
    SAME(count, 0); /* a row of it waits */
    work = TAKE_WORK_AS(2, SESSION("B"));
    MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
    MUST(dur_store_cleanup_orphaned_sessions(t->p, 0, &count, ERR));
    SAME(count, 0); /* B has it */
    kit_expire(t);
    MUST(dur_store_cleanup_orphaned_sessions(t->p, 0, &count, ERR));
    SAME(count, 1);
}

/* ---- deleting and pruning ---------------------------------------------------------------------------------------- */

/* Whoever comes next under the id finds nothing. */
static void ours_nothing_is_left_of_the_deleted(kit *t) {
    NEEDS("delete_instances", "get_instance", "list_executions", "get_queue_depths", "set_suspended");
    static const char *const ids[] = { "a" };
    dur_delete_result gone;
    uint64_t due = dur_store_now_ms(t->p) + 400, version = 9;
    const char *status = NULL;
    bool changed = true;
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1), ev_set(2, "k", "v"), ev_status(3, "s")), PINNED(9, 9, 9),
             WORK(kit_activity(t, "a", 4), kit_activity(t, "a", 5)), MESSAGES(kit_timer(t, "a", 1, 6, due))));
    kit_continue(t, "a", 1);
    STEP("a", 2, ev_set(2, "k2", "v"));
    TAKE_WORK(4);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    item = TAKE("a");
    MUST(dur_store_set_suspended(t->p, "a", "on purpose", ERR));
    MUST(dur_store_delete_instances(t->p, ids, 1, true, &gone, ERR));
    SAME(gone.instances, 1);
    SAME(gone.executions, 2);
    SAME(gone.events, 6);
    dur_queue_depths depths = kit_depths(t);
    SAME(depths.orchestrator_queue + depths.timer_queue + depths.worker_queue, 0);
    SAME(kit_history(t, "a", 1, NULL) + kit_history(t, "a", 2, NULL) + kit_history(t, "a", 0, NULL), 0);
    kit_create(t, "a");
    TEXT(kit_value(t, "a", "k"), NULL);
    TEXT(kit_value(t, "a", "k2"), NULL);
    MUST(dur_store_get_custom_status(t->p, t->arena, "a", 0, &changed, &status, &version, ERR));
    THAT(!changed);
    dur_instance_row row = kit_instance(t, "a");
    SAME(row.current_execution_id, 1);
    TEXT(row.suspended, NULL);
    SAME(row.birth, 0);
    kit_advance(t, 450 + t->lock_ms);
    NOTHING();
    NO_WORK();
    const dur_version_range ones = { { 1, 0, 0 }, { 1, 9, 9 } };
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    TEXT(kit_fetch_for(t, &(dur_capability_filter){ &ones, 1 }).instance, "a");
}

static void ours_delete_takes_all_or_nothing(kit *t) {
    NEEDS("delete_instances", "get_instance");
    static const char *const with_running[] = { "x", "y", "runs" }, *const with_parent[] = { "x", "y", "root" },
                             *const with_nobody[] = { "x", "y", "nobody" }, *const twice[] = { "x", "y", "x" };
    dur_delete_result gone;
    kit_create_ended(t, "x", NULL, DUR_STATUS_COMPLETED, "out");
    kit_create_ended(t, "y", NULL, DUR_STATUS_FAILED, "out");
    kit_create(t, "runs");
    kit_create_ended(t, "root", NULL, DUR_STATUS_COMPLETED, "out");
    kit_create_ended(t, "kid", "root", DUR_STATUS_COMPLETED, "out");
    REFUSED(DUR_ERUNNING, "running", dur_store_delete_instances(t->p, with_running, 3, false, &gone, ERR));
    REFUSED(DUR_ECHILD, "child", dur_store_delete_instances(t->p, with_parent, 3, true, &gone, ERR));
    REFUSED(DUR_ENOTFOUND, "not found", dur_store_delete_instances(t->p, with_nobody, 3, true, &gone, ERR));
    THAT(kit_exists(t, "x") && kit_exists(t, "y") && kit_exists(t, "runs") && kit_exists(t, "root"));
    MUST(dur_store_delete_instances(t->p, twice, 3, false, &gone, ERR));
    SAME(gone.instances, 2);
}

/* Instances from which nothing is taken do not use the limit up. */
static void ours_bulk_prune_counts_what_it_prunes(kit *t) {
    NEEDS("prune_executions_bulk", "list_executions");
    dur_prune_result result;
    dur_execution_row *rows = NULL;
    size_t count = 0, left = 0;
    for (int i = 0; i < 6; i++) {
        const char *id = kit_format(t, "i-%d", i);
        kit_create(t, id);
        if (i >= 3) kit_continue(t, id, 1);
    }
    dur_bulk_filter two = { .limit = 2 };
    dur_prune_options keep = { .has_keep_last = true, .keep_last = 1 };
    MUST(dur_store_prune_executions_bulk(t->p, &two, &keep, &result, ERR));
    SAME(result.executions_deleted, 2);
    MUST(dur_store_prune_executions_bulk(t->p, &two, &keep, &result, ERR));
    SAME(result.executions_deleted, 1);
    for (int i = 0; i < 6; i++) {
        MUST(dur_store_list_executions(t->p, t->arena, kit_format(t, "i-%d", i), &rows, &count, ERR));
        left += count;
    }
    SAME(left, 6);
}

static void ours_dead_letters_of_one_instance_only(kit *t) {
    NEEDS("dead_letter_messages", "list_dead_letters", "delete_dead_letters");
    dur_dead_letter *rows = NULL;
    size_t count = 0;
    kit_create(t, "a");
    kit_create(t, "b");
    MUST(kit_put(t, kit_raised(t, "a", "of a", "")));
    dur_orchestration_item a = TAKE("a");
    MUST(kit_put(t, kit_raised(t, "b", "of b", "")));
    dur_orchestration_item b = TAKE("b");
    uint64_t ids[] = { a.messages[0].id, b.messages[0].id, 987654321 };
    uint64_t before = dur_store_now_ms(t->p);
    MUST(dur_store_dead_letter_messages(t->p, "a", ids, 3, "why", ERR));
    MUST(dur_store_list_dead_letters(t->p, t->arena, 0, 0, &rows, &count, ERR)); /* limit 0: all */
    SAME(count, 1);
    TEXT(rows[0].instance, "a");
    THAT(rows[0].at_ms >= before && rows[0].at_ms <= dur_store_now_ms(t->p));
    uint64_t both[] = { rows[0].id, 987654321 };
    MUST(dur_store_delete_dead_letters(t->p, both, 2, ERR));
    MUST(dur_store_delete_dead_letters(t->p, both, 2, ERR)); /* missing ones do no harm */
    MUST(ACK(&b, EVENTS(ev_external(2, "go"))));
    MUST(ACK(&a, EVENTS(ev_external(2, "go")))); /* the lease has nothing to do with it */
    NOTHING();
}

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

/* All queues, and beside them what was handed out; in order, behind a place, so many. */
static void ours_lane_messages_of_all_queues(kit *t) {
    NEEDS("lane_open", "lane_round", "lane_messages", "owner_register");
    kit_owner(t, "me");
    dur_lane *lane = kit_lane(t, "me");
    dur_fetch how = { .owner = "me", .max = 1, .queue_messages_max = 1 };
    dur_fetched_message *got = NULL;
    size_t count = 0;
    kit_create(t, "a");
    MUST(kit_put(t, kit_queued(t, "a", "q", "m0")));
    MUST(kit_put(t, kit_raised(t, "a", "m1", "")));
    MUST(kit_put(t, kit_queued(t, "a", "r", "m2")));
    MUST(kit_put(t, kit_queued(t, "a", "q", "m3")));
    MUST(kit_put(t, kit_queued(t, "a", "r", "m4")));
    dur_message_row later = kit_queued(t, "a", "q", "later");
    MUST(dur_store_enqueue_for_orchestrator(t->p, &later, 100000, ERR));
    dur_round round = { .fetch = &how };
    kit_round(t, lane, &round);
    SAME(round.item_count, 1);
    SAME(round.items[0].message_count, 3);
    const char *token = round.items[0].lock_token;
    MUST(dur_store_lane_messages(lane, t->arena, "a", token, NULL, 0, 0, 0, &got, &count, ERR));
    SAME(count, 5);
    for (size_t i = 0; i < 5; i++)
        THAT(kit_says(got[i].json, kit_format(t, "m%zu", i)));
    MUST(dur_store_lane_messages(lane, t->arena, "a", token, NULL, got[1].due_ms, got[1].id, 2, &got, &count, ERR));
    SAME(count, 2);
    THAT(kit_says(got[0].json, "m2") && kit_says(got[1].json, "m3"));
    MUST(dur_store_lane_messages(lane, t->arena, "a", token, "r", 0, 0, 9, &got, &count, ERR));
    SAME(count, 2);
    TEXT(got[0].queue, "r");
    MUST(dur_store_lane_messages(lane, t->arena, "a", token, "nothing", 0, 0, 9, &got, &count, ERR));
    SAME(count, 0);
    round = (dur_round){ .queue_messages_max = 0 };
    kit_round(t, lane, &round);
    SAME(round.held_count, 0); /* what was asked for was handed out */
}

const kit_check kit_ours_rules[] = {
    CHECK(ours_duplicate_is_told_before_the_end),
    CHECK(ours_refused_message_has_no_id),
    CHECK(ours_overdue_is_before_what_came_later),
    CHECK(ours_messages_of_a_turn_are_in_its_order),
    CHECK(ours_dropped_timers_may_be_due_or_handed_out),
    CHECK(ours_resumed_looks_at_what_it_had_seen),
    CHECK(ours_suspended_start_waits),
    CHECK(ours_suspension_outlives_an_execution),
    CHECK(ours_parent_is_written_once),
    CHECK(ours_current_execution_does_not_go_back),
    CHECK(ours_executions_have_their_own_times_and_ends),
    CHECK(ours_last_status_of_a_turn_counts),
    CHECK(ours_last_value_of_a_turn_counts),
    CHECK(ours_completion_goes_to_whom_it_names),
    CHECK(ours_abandoned_work_keeps_its_place),
    CHECK(ours_activities_are_known_by_execution),
    CHECK(ours_cancelled_work_that_runs_is_lost),
    CHECK(ours_session_is_busy_while_its_work_is),
    CHECK(ours_nothing_is_left_of_the_deleted),
    CHECK(ours_delete_takes_all_or_nothing),
    CHECK(ours_bulk_prune_counts_what_it_prunes),
    CHECK(ours_dead_letters_of_one_instance_only),
    CHECK(ours_lane_messages_of_all_queues),
    CHECKS_END,
};
