/*
 * check_ours_remains.c: our own: starts that wait behind an instance, what a deletion leaves and takes, and the answers
 * of administrators, field by field (tests/mutants/strangers3.txt).
 */
#include "kit_internal.h"

static size_t listed(kit *t, dur_instance_query query, dur_instance_row **rows) {
    dur_instance_row *ignored = NULL;
    size_t count = 0;
    MUST(dur_store_list_instances(t->p, t->arena, &query, rows != NULL ? rows : &ignored, &count, ERR));
    return count;
}
#define LISTED(...) listed(t, (dur_instance_query){ __VA_ARGS__ }, NULL)

static void delete_by_force(kit *t, const char *instance, dur_delete_result *out) {
    MUST(dur_store_delete_instances(t->p, &instance, 1, true, out, ERR));
}

/* ---- starts that wait ----------------------------------------------------------------------------------------------
 */

static void ours_start_behind_an_instance_is_shown(kit *t) {
    NEEDS("get_instance");
    kit_create(t, "a");
    SAME(kit_instance(t, "a").pending_start.size, 0);
    dur_message_row next = kit_start_as(t, "a", "Next", "1.0.0");
    MUST(kit_put(t, next));
    MUST(kit_put(t, kit_start_as(t, "a", "Last", "1.0.0")));
    dur_instance_row row = kit_instance(t, "a");
    THAT(!row.start_pending && row.pending_start_id != 0);
    THAT(kit_equal_text(row.pending_start, next.json));
}

static void ours_start_behind_an_instance_is_not_counted(kit *t) {
    NEEDS("get_system_metrics");
    dur_system_metrics metrics;
    kit_create(t, "a");
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(kit_put(t, kit_start(t, "b")));
    MUST(dur_store_get_system_metrics(t->p, &metrics, ERR));
    SAME(metrics.total_instances, 1);
    SAME(metrics.starts_waiting, 1);
}

static void ours_suspended_start_is_listed(kit *t) {
    NEEDS("list_instances", "set_suspended");
    MUST(kit_put(t, kit_start(t, "a")));
    SAME(LISTED(.suspended_only = true), 0);
    MUST(dur_store_set_suspended(t->p, "a", "why", ERR));
    dur_instance_row *rows = NULL;
    SAME(listed(t, (dur_instance_query){ .suspended_only = true }, &rows), 1);
    TEXT(rows[0].suspended, "why");
    SAME(LISTED(.suspended_only = true, .status = DUR_STATUS_RUNNING), 1);
    SAME(LISTED(.suspended_only = true, .status = DUR_STATUS_COMPLETED), 0);
}

/* Of several calls the first makes the child: it is one child, of the first's parent. */
static void ours_child_of_several_calls_is_listed_once(kit *t) {
    NEEDS("list_instances");
    kit_create(t, "one");
    kit_create(t, "two");
    MUST(kit_put(t, kit_child(t, "c", "one", 2)));
    MUST(kit_put(t, kit_child(t, "c", "one", 3)));
    MUST(kit_put(t, kit_child(t, "c", "two", 2)));
    SAME(LISTED(.parent = "one"), 1);
    SAME(LISTED(.parent = "two"), 0);
    SAME(LISTED(.id_prefix = "c"), 1);
    SAME(LISTED(.roots_only = true), 2);
}

/* ---- deletion ------------------------------------------------------------------------------------------------------
 */

/* They stay as they came: whose call it is, when it is due, what it says. */
static void ours_starts_that_a_deletion_leaves_are_whole(kit *t) {
    NEEDS("delete_instances", "list_instances", "get_instance");
    dur_delete_result gone;
    kit_create(t, "parent");
    kit_create(t, "a");
    dur_message_row call = kit_child(t, "a", "parent", 2);
    MUST(dur_store_enqueue_for_orchestrator(t->p, &call, t->lock_ms, ERR));
    delete_by_force(t, "a", &gone);
    SAME(gone.queue_messages, 0);
    dur_instance_row *rows = NULL;
    SAME(listed(t, (dur_instance_query){ .parent = "parent" }, &rows), 1);
    TEXT(rows[0].instance_id, "a");
    THAT(rows[0].start_pending && kit_equal_text(rows[0].pending_start, call.json));
    TEXT(kit_instance(t, "a").handler,
         dur_store_has(t->p, "list_unserved") ? call.handler : kit_instance(t, "a").handler);
    NOTHING(); /* it is not due */
    kit_advance(t, t->lock_ms + 10);
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 1);
    SAME(item.attempt_count, 1);
}

static void ours_continue_as_new_goes_with_its_instance(kit *t) {
    NEEDS("delete_instances", "get_instance");
    dur_delete_result gone;
    dur_instance_row row;
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_continued(2, "n")), MESSAGES(kit_next(t, "a", "n")),
             .meta = { .status = DUR_STATUS_CONTINUED_AS_NEW, .output = "n" }));
    delete_by_force(t, "a", &gone);
    SAME(gone.instances, 1);
    SAME(gone.queue_messages, 1);
    REFUSED(DUR_ENOTFOUND, NULL, dur_store_get_instance(t->p, t->arena, "a", &row, ERR));
    NOTHING();
}

/* Whoever sent it was told that it is accepted, whenever it is due. */
static void ours_delayed_queue_messages_of_the_deleted_are_letters(kit *t) {
    NEEDS("delete_instances", "list_dead_letters");
    dur_delete_result gone;
    dur_dead_letter *letters = NULL;
    size_t count = 0;
    kit_create(t, "a");
    dur_message_row late = kit_queued(t, "a", "q", "late");
    MUST(dur_store_enqueue_for_orchestrator(t->p, &late, 1000 * t->lock_ms, ERR));
    MUST(kit_put(t, kit_queued(t, "a", "q", "now")));
    delete_by_force(t, "a", &gone);
    SAME(gone.queue_messages, 2);
    MUST(dur_store_list_dead_letters(t->p, t->arena, 0, 0, &letters, &count, ERR));
    SAME(count, 2);
    THAT(kit_says(letters[0].json, "late") || kit_says(letters[1].json, "late"));
}

/* By when it ended, not by when it began. */
static void ours_bulk_deletion_goes_by_the_end(kit *t) {
    NEEDS("delete_instances_bulk");
    dur_delete_result gone;
    kit_create(t, "a");
    kit_advance(t, 100);
    uint64_t between = dur_store_now_ms(t->p);
    kit_advance(t, 100);
    STEP_END("a", 1, COMPLETED, "out", ev_done(2, "out"));
    dur_bulk_filter filter = { .completed_before_ms = between };
    MUST(dur_store_delete_instances_bulk(t->p, &filter, &gone, ERR));
    SAME(gone.instances, 0);
    kit_advance(t, 100);
    filter.completed_before_ms = dur_store_now_ms(t->p);
    kit_advance(t, 100);
    MUST(kit_put(t, kit_raised(t, "a", "late", ""))); /* what is cleared up behind it does not make it younger */
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, .execution = 1));
    MUST(dur_store_delete_instances_bulk(t->p, &filter, &gone, ERR));
    SAME(gone.instances, 1);
}

static void ours_bulk_deletion_begins_with_what_ended_first(kit *t) {
    NEEDS("delete_instances_bulk", "get_instance");
    dur_delete_result gone;
    dur_instance_row row;
    dur_bulk_filter filter = { .limit = 1 };
    static const char *const ends[] = { "b", "c", "a" };
    kit_create(t, "a");
    kit_create(t, "b");
    kit_create(t, "c");
    for (int i = 0; i < 3; i++) {
        kit_advance(t, 100);
        STEP_END(ends[i], 1, COMPLETED, "out", ev_done(2, "out"));
    }
    for (int i = 0; i < 3; i++) {
        filter.completed_before_ms = i == 1 ? dur_store_now_ms(t->p) : 0;
        MUST(dur_store_delete_instances_bulk(t->p, &filter, &gone, ERR));
        SAME(gone.instances, 1);
        REFUSED(DUR_ENOTFOUND, NULL, dur_store_get_instance(t->p, t->arena, ends[i], &row, ERR));
    }
}

/* ---- letters and ids -----------------------------------------------------------------------------------------------
 */

static void ours_every_letter_that_is_named_is_deleted(kit *t) {
    NEEDS("dead_letter_messages", "list_dead_letters", "delete_dead_letters");
    dur_dead_letter *letters = NULL;
    size_t count = 0;
    uint64_t ids[5];
    kit_create(t, "a");
    for (int i = 0; i < 4; i++)
        MUST(kit_put(t, kit_raised(t, "a", kit_format(t, "m%d", i), "")));
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 4);
    for (size_t i = 0; i < 4; i++)
        ids[i] = item.messages[i].id;
    MUST(dur_store_dead_letter_messages(t->p, "a", ids, 4, "why", ERR));
    MUST(dur_store_list_dead_letters(t->p, t->arena, 0, 0, &letters, &count, ERR));
    SAME(count, 4);
    ids[0] = UINT32_MAX; /* there is none with this id, which does no harm */
    for (size_t i = 1; i <= 3; i++)
        ids[i] = letters[i].id;
    MUST(dur_store_delete_dead_letters(t->p, ids, 4, ERR));
    uint64_t left = letters[0].id;
    MUST(dur_store_list_dead_letters(t->p, t->arena, 0, 0, &letters, &count, ERR));
    SAME(count, 1);
    SAME(letters[0].id, left);
}

static void ours_deleted_letters_are_not_counted(kit *t) {
    NEEDS("list_dead_letters", "delete_dead_letters", "get_queue_depths");
    dur_dead_letter *letters = NULL;
    size_t count = 0;
    for (int i = 0; i < 3; i++)
        MUST(kit_put(t, kit_queued(t, "nobody", "q", "x")));
    NOTHING();
    SAME(kit_depths(t).dead_letters, 3);
    MUST(dur_store_list_dead_letters(t->p, t->arena, 0, 0, &letters, &count, ERR));
    SAME(count, 3);
    MUST(dur_store_delete_dead_letters(t->p, &letters[1].id, 1, ERR));
    SAME(kit_depths(t).dead_letters, 2);
}

static void ours_depths_go_by_what_is_due(kit *t) {
    NEEDS("get_queue_depths");
    kit_create(t, "a");
    dur_message_row late = kit_raised(t, "a", "late", "");
    MUST(dur_store_enqueue_for_orchestrator(t->p, &late, t->lock_ms, ERR));
    SAME(kit_depths(t).orchestrator_queue, 0);
    SAME(kit_depths(t).timer_queue, 1); /* whatever kind it is of */
    kit_advance(t, t->lock_ms + 10);
    SAME(kit_depths(t).orchestrator_queue, 1);
    SAME(kit_depths(t).timer_queue, 0);
}

static void ours_message_that_is_gone_does_not_keep_others(kit *t) {
    NEEDS("dead_letter_messages", "list_dead_letters");
    dur_dead_letter *letters = NULL;
    size_t count = 0;
    kit_create(t, "a");
    kit_create(t, "b");
    MUST(kit_put(t, kit_raised(t, "b", "of another", "")));
    MUST(kit_put(t, kit_raised(t, "a", "bad", "")));
    uint64_t other = TAKE("b").messages[0].id, bad = TAKE("a").messages[0].id;
    const uint64_t ids[] = { INT64_MAX - 1, other, bad };
    MUST(dur_store_dead_letter_messages(t->p, "a", ids, 3, "why", ERR));
    MUST(dur_store_list_dead_letters(t->p, t->arena, 0, 0, &letters, &count, ERR));
    SAME(count, 1);
    THAT(kit_says(letters[0].json, "bad"));
}

static void ours_activity_that_is_gone_does_not_keep_others(kit *t) {
    kit_create(t, "a");
    MUST(kit_put_work(t, kit_activity(t, "a", 7)));
    MUST(kit_put_work(t, kit_activity(t, "a", 8)));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_external(2, "go")),
             CANCELLED(REF("a", 1, 6), REF("gone", 1, 7), REF("a", 1, 7), REF("a", 9, 8), REF("a", 1, 8))));
    NO_WORK();
}

/* An array without elements names nothing; none at all names everything. */
static void ours_no_ids_are_no_instances(kit *t) {
    NEEDS("delete_instances_bulk", "prune_executions_bulk");
    static const char *const ids[] = { "a" };
    const dur_bulk_filter nobody = { .instance_ids = ids, .instance_id_count = 0 };
    dur_prune_options alone = { .has_keep_last = true, .keep_last = 1 };
    dur_delete_result gone;
    dur_prune_result pruned;
    kit_create(t, "a");
    kit_continue(t, "a", 1);
    STEP_END("a", 2, COMPLETED, "out", ev_done(2, "out"));
    MUST(dur_store_prune_executions_bulk(t->p, &nobody, &alone, &pruned, ERR));
    SAME(pruned.executions_deleted, 0);
    MUST(dur_store_delete_instances_bulk(t->p, &nobody, &gone, ERR));
    SAME(gone.instances, 0);
    SAME(kit_history(t, "a", 2, NULL), 2);
}

/* However often it has continued as new since. */
static void ours_message_ids_outlive_executions(kit *t) {
    NEEDS("enqueue_existing");
    kit_create(t, "a");
    dur_message_row once = kit_queued(t, "a", "q", "x");
    once.message_id = "payment";
    MUST(dur_store_enqueue_existing(t->p, &once, 0, ERR));
    for (uint64_t execution = 1; execution <= 4; execution++) {
        kit_continue(t, "a", execution);
        REFUSED(DUR_EDUPLICATE, NULL, dur_store_enqueue_existing(t->p, &once, 0, ERR));
    }
}

/* ---- what nobody serves --------------------------------------------------------------------------------------------
 */

#define ONLY(name_) (&(dur_handler_filter){ (const char *const[]){ name_ }, 1 })

static void ours_unserved_rows_are_whole(kit *t) {
    NEEDS("list_unserved", "owner_register", "fetch_works", "get_instance");
    dur_unserved *rows = NULL;
    size_t count = 0, sessions = 0;
    dur_leased_work got;
    dur_owner_options one = {
        .owner = "one", .timeout_ms = 2 * t->lock_ms, .handlers = ONLY("Other@"), .activities = ONLY("First")
    };
    dur_owner_options two = {
        .owner = "two", .timeout_ms = 2 * t->lock_ms, .handlers = ONLY("Other@"), .activities = ONLY("Second")
    };
    MUST(dur_store_owner_register(t->p, &one, ERR));
    MUST(dur_store_owner_register(t->p, &two, ERR));
    kit_create(t, "s");
    for (uint64_t i = 1; i <= 2; i++) {
        dur_work_item item = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                               .instance = "s",
                               .execution_id = 1,
                               .id = i,
                               .name = i == 1 ? "First" : "Second",
                               .session_id = "session",
                               .input = "" };
        MUST(kit_put_work(t, kit_message(t, &item)));
    }
    dur_work_fetch how = { .owner = "one", .max = 1, .handlers = ONLY("First"), SESSION("node") };
    MUST(dur_store_fetch_works(t->p, t->arena, &how, &got, &count, ERR));
    SAME(count, 1);
    MUST(kit_put(t, kit_start_as(t, "a", "Wanted", NULL)));
    kit_advance(t, 100);
    uint64_t before = dur_store_now_ms(t->p);
    dur_message_row cancel = kit_cancel(t, "a", "why");
    MUST(kit_put(t, cancel));
    dur_message_row again = kit_cancel(t, "a", "again");
    MUST(kit_put(t, again)); /* it is another request, and somebody waits for it, too */
    uint64_t after = dur_store_now_ms(t->p);
    bool told_first = false, told_second = false;
    kit_advance(t, 100);
    MUST(dur_store_list_unserved(t->p, t->arena, 4, &rows, &count, ERR));
    for (size_t i = 0; i < count; i++) {
        if (rows[i].kind == DUR_UNSERVED_CANCEL && strcmp(rows[i].instance, "a") == 0) {
            TEXT(rows[i].handler, "Wanted@");
            THAT(rows[i].since_ms >= before && rows[i].since_ms <= after);
            bool first = kit_equal_text(rows[i].json, cancel.json);
            THAT(first || kit_equal_text(rows[i].json, again.json));
            told_first |= first;
            told_second |= !first;
        }
        if (rows[i].kind == DUR_UNSERVED_SESSION) {
            sessions++;
            TEXT(rows[i].handler, "Second");
            TEXT(rows[i].instance, "s");
            TEXT(rows[i].session, "session");
            TEXT(rows[i].owner, "one");
        }
    }
    THAT(told_first && told_second);
    SAME(sessions, 1);
    TEXT(kit_instance(t, "s").stuck_session, "Second in session session of one");
}

const kit_check kit_ours_remains[] = {
    CHECK(ours_start_behind_an_instance_is_shown),
    CHECK(ours_start_behind_an_instance_is_not_counted),
    CHECK(ours_suspended_start_is_listed),
    CHECK(ours_child_of_several_calls_is_listed_once),
    CHECK(ours_starts_that_a_deletion_leaves_are_whole),
    CHECK(ours_continue_as_new_goes_with_its_instance),
    CHECK(ours_delayed_queue_messages_of_the_deleted_are_letters),
    CHECK(ours_bulk_deletion_goes_by_the_end),
    CHECK(ours_bulk_deletion_begins_with_what_ended_first),
    CHECK(ours_every_letter_that_is_named_is_deleted),
    CHECK(ours_deleted_letters_are_not_counted),
    CHECK(ours_depths_go_by_what_is_due),
    CHECK(ours_message_that_is_gone_does_not_keep_others),
    CHECK(ours_activity_that_is_gone_does_not_keep_others),
    CHECK(ours_no_ids_are_no_instances),
    CHECK(ours_message_ids_outlive_executions),
    CHECK(ours_unserved_rows_are_whole),
    CHECKS_END,
};
