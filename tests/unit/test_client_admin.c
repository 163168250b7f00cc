/*
 * test_client_admin.c: ending instances by force, and looking at many: lists, histories, pruning, dead letters.
 */
#include "client_help.h"

/* ---- terminate ---- */

static void ended_by_force(fixture *f, const char *instance, const char *reason) {
    char *out = NULL;
    char expected[64];
    snprintf(expected, sizeof(expected), "cancelled: %s", reason);
    assert_int_equal(dur_client_result(&out, f->client, instance, 0, &f->err), DUR_ECANCELLED);
    assert_string_equal(f->err.message, expected);
    dur_instance_info *info = info_of(f, instance);
    assert_true(info->cancelled && info->status == DUR_INSTANCE_FAILED && !info->suspended);
    dur_instance_info_free(info);
}

static void terminate_a_running_one(void **state) {
    fixture *f = *state;
    size_t count;
    run(f, "o");
    turn held = wake(f, "o"); /* somebody holds the lease, and has events to write */
    turn_add(f, &held, (dur_event){ .kind = DUR_EVENT_TIMER_CREATED, .fire_at_ms = 1 });
    OK(f, dur_client_send(f->client, &f->err, "o", "q", "left"));
    OK(f, dur_client_terminate(f->client, "o", "enough", &f->err));
    ended_by_force(f, "o", "enough");
    dur_event *events = events_of(f, "o", 0, &count);
    assert_int_equal(count, 2);
    assert_true(events[1].kind == DUR_EVENT_ORCHESTRATION_FAILED && events[1].event_id == 2);
    dur_turn_commit late = { .lock_token = held.item.lock_token,
                             .execution_id = 1,
                             .events = held.rows,
                             .event_count = 1,
                             .expected_last = DUR_NOT_COMPARED };
    assert_int_equal(dur_store_ack_orchestration_item(f->bench->store, &late, &f->err), DUR_ELEASE);
    dur_store_counts counts = { .size = sizeof(counts) };
    OK(f, dur_client_counts(&counts, f->client, &f->err));
    assert_true(counts.failed == 1 && counts.worker_queue == 0);
    assert_int_equal(counts.orchestrator_queue, 1); /* it was accepted: a node makes a dead letter of it */
    OK(f, dur_client_terminate(f->client, "o", "twice", &f->err));
    events_of(f, "o", 0, &count);
    assert_int_equal(count, 2);
}

static void terminate_a_suspended_one(void **state) {
    fixture *f = *state;
    run(f, "o");
    OK(f, dur_client_suspend(f->client, "o", "stuck", &f->err));
    OK(f, dur_client_terminate(f->client, "o", "enough", &f->err));
    ended_by_force(f, "o", "enough");
    dur_store_counts counts = { .size = sizeof(counts) };
    OK(f, dur_client_counts(&counts, f->client, &f->err));
    assert_int_equal(counts.suspended, 0);
}

static void terminate_before_the_first_turn(void **state) {
    fixture *f = *state;
    size_t count;
    OK(f, dur_client_start(f->client, &f->err, "Order", "input", .instance = "o", .version = "2.0.0",
                           .delay_ms = 3600000));
    OK(f, dur_client_pulse(f->client, &f->err, "o", "early"));
    OK(f, dur_client_terminate(f->client, "o", NULL, &f->err));
    ended_by_force(f, "o", "terminated by a client");
    dur_event *events = events_of(f, "o", 1, &count);
    assert_int_equal(count, 2);
    assert_true(events[0].kind == DUR_EVENT_ORCHESTRATION_STARTED && events[0].trace == 1);
    assert_string_equal(events[0].name, "Order");
    assert_string_equal(events[0].version, "2.0.0");
    assert_string_equal(events[0].input, "input");
    dur_fetch how = { .lock_ms = 1000 };
    dur_orchestration_item item;
    dur_fake_world_advance(f->bench->fake, 7200000);
    OK(f, dur_store_fetch_orchestration_item(f->bench->store, f->bench->arena, &how, &item, &f->err));
    assert_null(item.instance); /* the start is gone */
}

static void terminate_between_generations(void **state) {
    fixture *f = *state;
    size_t count;
    run(f, "o");
    turn t = wake(f, "o");
    turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW, .input = "next" });
    turn_send(f, &t,
              (dur_work_item){ .kind = DUR_WORK_CONTINUE_AS_NEW,
                               .instance = "o",
                               .orchestration = "Order",
                               .input = "next",
                               .version = "3.0.0" });
    turn_end(f, &t, (dur_execution_metadata){ .status = DUR_STATUS_CONTINUED_AS_NEW, .output = "next" });
    dur_instance_info *info = info_of(f, "o");
    assert_true(info->status == DUR_INSTANCE_RUNNING && info->output == NULL);
    dur_instance_info_free(info);
    dur_instance_list *list = NULL;
    OK(f, dur_client_list(&list, f->client, DUR_LIST(.status = DUR_INSTANCE_RUNNING), &f->err));
    assert_int_equal(list->count, 1);
    dur_instance_list_free(list);
    OK(f, dur_client_terminate(f->client, "o", "enough", &f->err));
    ended_by_force(f, "o", "enough");
    dur_event *events = events_of(f, "o", 2, &count);
    assert_int_equal(count, 2);
    assert_string_equal(events[0].input, "next");
    assert_string_equal(events[0].version, "3.0.0");
    assert_true(events[1].kind == DUR_EVENT_ORCHESTRATION_FAILED && events[1].execution_id == 2);
    dur_execution_list *executions = NULL;
    OK(f, dur_client_executions(&executions, f->client, "o", &f->err));
    assert_int_equal(executions->count, 2);
    assert_int_equal(executions->items[0]->status, DUR_EXECUTION_CONTINUED_AS_NEW);
    assert_int_equal(executions->items[1]->status, DUR_EXECUTION_FAILED);
    assert_true(executions->items[1]->event_count == 2 && executions->items[1]->completed_at_ms == START_MS);
    dur_execution_list_free(executions);
}

/* A parent with three children: one answered, one open, one with an id of its own. */
static void terminate_tells_parent_and_children(void **state) {
    fixture *f = *state;
    OK(f, dur_client_start(f->client, &f->err, "Order", "in", .instance = "root"));
    turn t = turn_begin(f);
    turn_add(f, &t, started);
    turn_end(f, &t, (dur_execution_metadata){ ROW });
    dur_work_item start = { .kind = DUR_WORK_START_ORCHESTRATION,
                            .instance = "mid",
                            .orchestration = "Order",
                            .input = "",
                            .execution_id = 1,
                            .parent_instance = "root",
                            .has_parent_id = true,
                            .parent_id = 4,
                            .has_parent_execution_id = true,
                            .parent_execution_id = 9 };
    dur_message_row message;
    bool existed;
    OK(f, dur_message_row_from_work(&message, f->bench->arena, &start, &f->err));
    OK(f, dur_store_enqueue_start(f->bench->store, &message, DUR_EXISTS_FAIL, 0, &existed, &f->err));
    t = turn_begin(f);
    dur_event mid = started;
    mid.parent_instance = "root";
    mid.has_parent_id = mid.has_parent_execution_id = true;
    mid.parent_id = 4;
    mid.parent_execution_id = 9;
    turn_add(f, &t, mid);
    static const char *const ids[] = { "answered", "sub::3", "own-id" };
    for (size_t i = 0; i < 3; i++)
        turn_add(
            f, &t,
            (dur_event){ .kind = DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED, .name = "C", .instance = ids[i], .input = "" });
    turn_add(f, &t,
             (dur_event){ .kind = DUR_EVENT_SUB_ORCHESTRATION_COMPLETED,
                          .has_source_event_id = true,
                          .source_event_id = 2,
                          .result = "" });
    turn_end(f, &t, (dur_execution_metadata){ ROW, .parent_instance_id = "root" });
    OK(f, dur_client_start(f->client, &f->err, "C", "", .instance = "mid::sub::3"));
    OK(f, dur_client_start(f->client, &f->err, "C", "", .instance = "own-id"));
    OK(f, dur_client_start(f->client, &f->err, "C", "", .instance = "answered"));

    REFUSED(f, DUR_ECHILD, "sub-orchestration", dur_client_delete(NULL, f->client, "mid", true, &f->err));
    OK(f, dur_client_terminate(f->client, "mid", "enough", &f->err));
    ended_by_force(f, "mid", "enough");
    bool told_root = false, told_short = false, told_own = false;
    dur_fetch how = { .lock_ms = 1000 };
    for (;;) {
        dur_orchestration_item item;
        OK(f, dur_store_fetch_orchestration_item(f->bench->store, f->bench->arena, &how, &item, &f->err));
        if (item.instance == NULL) break;
        dur_work_item got; /* the last of its messages; children have their start in front */
        OK(f, dur_work_from_json(&got, f->bench->arena, item.messages[item.message_count - 1].json, &f->err));
        if (strcmp(item.instance, "root") == 0) {
            told_root = got.kind == DUR_WORK_SUB_ORCH_FAILED && got.id == 4 && got.execution_id == 9 &&
                        got.details->kind == DUR_FAILURE_CANCELLED;
        } else if (strcmp(item.instance, "answered") == 0) {
            assert_int_equal(got.kind, DUR_WORK_START_ORCHESTRATION);
        } else {
            assert_int_equal(got.kind, DUR_WORK_CANCEL_INSTANCE);
            assert_string_equal(got.reason, "parent terminated: enough");
            told_short |= strcmp(item.instance, "mid::sub::3") == 0;
            told_own |= strcmp(item.instance, "own-id") == 0;
        }
    }
    assert_true(told_root && told_short && told_own);

    dur_id_list *tree = NULL;
    OK(f, dur_client_tree(&tree, f->client, "root", &f->err));
    assert_int_equal(tree->count, 2);
    assert_string_equal(tree->ids[0], "root");
    assert_string_equal(tree->ids[1], "mid");
    dur_id_list_free(tree);
    dur_deleted deleted = { .size = sizeof(deleted) };
    REFUSED(f, DUR_ERUNNING, "running", dur_client_delete(&deleted, f->client, "root", false, &f->err));
    OK(f, dur_client_delete(&deleted, f->client, "root", true, &f->err));
    assert_int_equal(deleted.instances, 2);
}

static void terminate_over_a_broken_history(void **state) {
    fixture *f = *state;
    run(f, "o");
    dur_event_row broken = { .event_id = 2, .kind = DUR_EVENT_TIMER_CREATED, .json = text_of("{\"event_id\":2,") };
    OK(f, dur_store_append(f->bench->store, "o", 1, &broken, 1, &f->err));
    OK(f, dur_client_terminate(f->client, "o", "broken", &f->err));
    dur_event_row *rows;
    size_t count;
    OK(f, dur_store_read(f->bench->store, f->bench->arena, "o", 1, &rows, &count, &f->err));
    assert_int_equal(count, 3);
    assert_int_equal(rows[2].event_id, 99999);
    ended_by_force(f, "o", "broken");
}

/* What gets in the way of the first commit: a turn of somebody else, or an answer that is lost. */
static const dur_provider_methods *real_methods;
static enum { NOTHING, OTHER_TURN, LOST_ANSWER, ALWAYS_OTHER_TURN } hindrance;
static uint64_t others;

static int hindered_commit(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    if (hindrance == OTHER_TURN || hindrance == ALWAYS_OTHER_TURN) {
        dur_arena *arena = dur_arena_new();
        dur_event timer = { .kind = DUR_EVENT_TIMER_CREATED,
                            .event_id = ++others,
                            .instance_id = "o",
                            .execution_id = 1,
                            .duroxide_version = "0.1.0",
                            .fire_at_ms = 1 };
        dur_event_row row;
        assert_int_equal(dur_event_row_from(&row, arena, &timer, err), DUR_OK);
        assert_int_equal(real_methods->append(self, "o", 1, &row, 1, err), DUR_OK);
        dur_arena_free(arena);
    }
    int code = real_methods->commit_turns(self, turns, count, err);
    bool lost = hindrance == LOST_ANSWER;
    if (hindrance != ALWAYS_OTHER_TURN) hindrance = NOTHING;
    return lost ? dur_error_set(err, DUR_EUNKNOWN, true, "test", "connection lost") : code;
}

static void terminate_looks_again(void **state) {
    fixture *f = *state;
    static dur_provider_methods methods;
    size_t count;
    real_methods = f->bench->store->methods;
    methods = *real_methods;
    methods.commit_turns = hindered_commit;
    f->bench->store->methods = &methods;
    run(f, "o");
    hindrance = OTHER_TURN;
    others = 1;
    OK(f, dur_client_terminate(f->client, "o", "enough", &f->err));
    assert_int_equal(f->err.code, DUR_OK);
    dur_event *events = events_of(f, "o", 0, &count);
    assert_int_equal(count, 3);
    assert_true(events[1].kind == DUR_EVENT_TIMER_CREATED && events[2].kind == DUR_EVENT_ORCHESTRATION_FAILED);
    OK(f, dur_client_start(f->client, &f->err, "Order", "", .instance = "p"));
    hindrance = LOST_ANSWER;
    OK(f, dur_client_terminate(f->client, "p", "enough", &f->err));
    events_of(f, "p", 0, &count);
    assert_int_equal(count, 2);
    OK(f, dur_client_delete(NULL, f->client, "o", true, &f->err));
    run(f, "o");
    hindrance = ALWAYS_OTHER_TURN;
    others = 1;
    REFUSED(f, DUR_EBUSY, "too busy", dur_client_terminate(f->client, "o", "enough", &f->err));
    assert_true(f->err.retryable);
    hindrance = NOTHING;
    f->bench->store->methods = real_methods;
}

/* ---- administration ---- */

static void lists_come_in_pages(void **state) {
    fixture *f = *state;
    char id[16];
    for (int i = 0; i < 7; i++) {
        snprintf(id, sizeof(id), "%s-%d", i < 5 ? "a" : "b", i);
        run(f, id);
        if (i % 2 == 0) complete(f, id, "r");
    }
    char after[64] = "";
    size_t seen = 0, pages = 0;
    for (bool more = true; more; pages++) {
        dur_instance_list *list = NULL;
        OK(f, dur_client_list(&list, f->client, DUR_LIST(.limit = 3, .after = pages > 0 ? after : NULL), &f->err));
        for (size_t i = 0; i < list->count; i++)
            assert_int_equal(list->items[i]->instance[2], '0' + (int)seen++);
        more = list->next != NULL;
        if (more) snprintf(after, sizeof(after), "%s", list->next);
        dur_instance_list_free(list);
    }
    assert_true(seen == 7 && pages == 3);
    static const struct {
        dur_list_options options;
        size_t count;
    } cases[] = {
        { { .status = DUR_INSTANCE_COMPLETED }, 4 },
        { { .status = DUR_INSTANCE_RUNNING }, 3 },
        { { .status = DUR_INSTANCE_FAILED }, 0 },
        { { .id_prefix = "b-" }, 2 },
        { { .name = "Order" }, 7 },
        { { .name = "Nobody" }, 0 },
        { { .roots_only = true }, 7 },
        { { .parent = "a-0" }, 0 },
        { { .suspended_only = true }, 0 },
        { { .created_before_ms = START_MS }, 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dur_instance_list *list = NULL;
        dur_list_options options = cases[i].options;
        options.size = sizeof(options);
        OK(f, dur_client_list(&list, f->client, &options, &f->err));
        if (list->count != cases[i].count) fail_msg("case %zu: %zu", i, list->count);
        assert_null(list->next);
        dur_instance_list_free(list);
    }
    dur_store_counts counts = { .size = sizeof(counts) };
    OK(f, dur_client_counts(&counts, f->client, &f->err));
    assert_true(counts.size == sizeof(counts) && counts.total_instances == 7 && counts.completed == 4);
    assert_true(counts.running == 3 && counts.total_executions == 7 && counts.total_events == 11);
    const char *const some[] = { "a-0", "a-1", "a-2" }; /* one of them runs, and stays */
    dur_deleted deleted = { .size = sizeof(deleted) };
    OK(f, dur_client_delete_bulk(&deleted, f->client, DUR_BULK(.instances = some, .instance_count = 3), &f->err));
    assert_int_equal(deleted.instances, 2);
    OK(f, dur_client_delete_bulk(NULL, f->client, NULL, &f->err));
    OK(f, dur_client_counts(&counts, f->client, &f->err));
    assert_int_equal(counts.total_instances, 3);
}

/* A struct of an older, shorter version gets what it knows, and nothing behind it. */
static void shorter_results_are_not_overrun(void **state) {
    fixture *f = *state;
    struct {
        dur_store_counts counts;
        uint64_t guard;
    } out;
    run(f, "o");
    memset(&out, 0x5a, sizeof(out));
    out.counts.size = offsetof(dur_store_counts, running);
    OK(f, dur_client_counts(&out.counts, f->client, &f->err));
    assert_true(out.counts.total_executions == 1);
    assert_true(out.counts.running == UINT64_C(0x5a5a5a5a5a5a5a5a));
}

static void histories_are_given_as_stored(void **state) {
    fixture *f = *state;
    char *text = NULL;
    OK(f, dur_client_start(f->client, &f->err, "Order", "", .instance = "p"));
    OK(f, dur_client_history(&text, f->client, "p", 0, &f->err));
    assert_string_equal(text, "[]");
    dur_free(text);
    dur_execution_list *executions = NULL;
    OK(f, dur_client_executions(&executions, f->client, "p", &f->err));
    assert_int_equal(executions->count, 0);
    dur_execution_list_free(executions);
    REFUSED(f, DUR_ENOTFOUND, "no execution 2", dur_client_history(&text, f->client, "p", 2, &f->err));
    OK(f, dur_client_terminate(f->client, "p", "", &f->err));
    OK(f, dur_client_history(&text, f->client, "p", 1, &f->err));
    assert_true(strncmp(text, "[{\"event_id\":1,", 15) == 0);
    dur_free(text);
}

static void old_generations_are_pruned(void **state) {
    fixture *f = *state;
    run(f, "o");
    for (uint64_t n = 2; n <= 4; n++) {
        turn t = wake(f, "o");
        turn_add(f, &t, (dur_event){ .kind = DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW, .input = "" });
        turn_send(f, &t,
                  (dur_work_item){
                      .kind = DUR_WORK_CONTINUE_AS_NEW, .instance = "o", .orchestration = "Order", .input = "" });
        turn_end(f, &t, (dur_execution_metadata){ .status = DUR_STATUS_CONTINUED_AS_NEW });
        t = turn_begin(f);
        t.execution_id = n;
        t.next_id = 1;
        turn_add(f, &t, started);
        turn_end(f, &t, (dur_execution_metadata){ ROW, .status = DUR_STATUS_RUNNING });
    }
    dur_pruned pruned = { .size = sizeof(pruned) };
    /* no rule would be every old execution: it must be asked for */
    assert_int_equal(dur_client_prune(&pruned, f->client, "o", NULL, &f->err), DUR_EINVAL);
    assert_int_equal(dur_client_prune(&pruned, f->client, "o", DUR_PRUNE(), &f->err), DUR_EINVAL);
    assert_int_equal(dur_client_prune_bulk(&pruned, f->client, DUR_BULK(), DUR_PRUNE(), &f->err), DUR_EINVAL);
    OK(f, dur_client_prune(&pruned, f->client, "o", DUR_PRUNE(.keep_last = 3), &f->err));
    assert_int_equal(pruned.executions, 1);
    OK(f, dur_client_prune_bulk(&pruned, f->client, DUR_BULK(), DUR_PRUNE(.keep_last = 1), &f->err));
    assert_true(pruned.executions == 2 && pruned.instances == 1);
    dur_instance_info *info = info_of(f, "o");
    assert_true(info->execution_id == 4 && info->status == DUR_INSTANCE_RUNNING);
    dur_instance_info_free(info);
}

static void dead_letters_are_shown_and_removed(void **state) {
    fixture *f = *state;
    dur_dead_letter_list *letters = NULL;
    run(f, "o");
    OK(f, dur_client_send(f->client, &f->err, "o", "q", "x"));
    turn t = turn_begin(f);
    OK(f, dur_store_dead_letter_messages(f->bench->store, "o", &t.item.messages[0].id, 1, "unreadable", &f->err));
    OK(f, dur_client_dead_letters(&letters, f->client, 0, 0, &f->err));
    assert_int_equal(letters->count, 1);
    assert_string_equal(letters->items[0]->instance, "o");
    assert_string_equal(letters->items[0]->reason, "unreadable");
    assert_non_null(strstr(letters->items[0]->message, "QueueMessage"));
    uint64_t id = letters->items[0]->id;
    dur_dead_letter_list_free(letters);
    OK(f, dur_client_dead_letters(&letters, f->client, id, 10, &f->err));
    assert_int_equal(letters->count, 0);
    dur_dead_letter_list_free(letters);
    OK(f, dur_client_dead_letters_delete(f->client, &id, 1, &f->err));
    OK(f, dur_client_dead_letters(&letters, f->client, 0, 10, &f->err));
    assert_int_equal(letters->count, 0);
    dur_dead_letter_list_free(letters);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(terminate_a_running_one),
        TEST(terminate_a_suspended_one),
        TEST(terminate_before_the_first_turn),
        TEST(terminate_between_generations),
        TEST(terminate_tells_parent_and_children),
        TEST(terminate_over_a_broken_history),
        TEST(terminate_looks_again),
        TEST(lists_come_in_pages),
        TEST(shorter_results_are_not_overrun),
        TEST(histories_are_given_as_stored),
        TEST(old_generations_are_pruned),
        TEST(dead_letters_are_shown_and_removed),
    };
    RUN_ON_ALL(tests);
}
