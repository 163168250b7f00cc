/*
 * fault_endings.c: faults of the original around endings, duplicates, determinism and things that cannot be read.
 */
#include "e2e/harness.h"
#include <durite/sys/store.h>

static atomic_int activity_runs;

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}
static dur_outcome counted(dur_act *act, const char *input) {
    atomic_fetch_add(&activity_runs, 1);
    dur_act_sleep(act, 30);
    return dur_act_complete(act, input);
}
static dur_outcome fails(dur_act *act, const char *input) {
    return dur_act_fail(act, input);
}

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome over_the_limit(dur_ctx *ctx, const char *input) {
    (void)input;
    (void)dur_orchestration(ctx, "Waits", "", .instance = "open-child");
    dur_await(dur_timer(ctx, 1));
    for (int i = 0; i < 1000; i++)
        dur_kv_set(ctx, dur_format(ctx, "%d", i), "");
    return dur_complete(ctx, "odd");
}

static dur_outcome asks(dur_ctx *ctx, const char *input) {
    dur_future *kid = dur_orchestration(ctx, input, "", .instance = "kid");
    return dur_try(kid, NULL) == DUR_OK ? dur_complete(ctx, "odd") : dur_fail(ctx, dur_reason(kid));
}

static dur_outcome prunes(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "1") == 0) {
        for (int i = 0; i < 20; i++)
            dur_kv_set(ctx, dur_format(ctx, "key %d", i * 7 % 20), "v");
        dur_await(dur_timer(ctx, 5));
        return dur_continue_as_new(ctx, "2");
    }
    size_t pruned = dur_kv_prune(ctx, dur_now_ms(ctx));
    dur_await(dur_activity(ctx, "Echo", ""));
    dur_await(dur_activity(ctx, "Echo", ""));
    return dur_completef(ctx, "%zu", pruned);
}

static dur_outcome ends_with_work_open(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < 5; i++)
        (void)dur_activity(ctx, "Counted", input);
    (void)dur_pulse(ctx, "Never");
    (void)dur_message(ctx, "never");
    dur_await(dur_activity(ctx, "Echo", ""));
    return dur_complete(ctx, "done");
}

static dur_outcome tolerates(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *bad = dur_activity(ctx, "Fails", "once");
    (void)dur_try(bad, NULL);
    const char *go = dur_await(dur_pulse(ctx, "Go"));
    return dur_completef(ctx, "%s %s", dur_reason(bad), go);
}

static dur_outcome guids(dur_ctx *ctx, const char *input) {
    size_t count = strtoul(input, NULL, 10);
    const char **all = dur_alloc(ctx, count * sizeof(*all));
    for (size_t i = 0; i < count; i++) {
        all[i] = dur_guid(ctx);
        if (strlen(all[i]) != 36 || all[i][14] != '4' || strchr("89ab", all[i][19]) == NULL)
            return dur_fail(ctx, all[i]);
        for (size_t k = 0; k < i; k++)
            if (strcmp(all[i], all[k]) == 0) return dur_fail(ctx, "twice the same");
    }
    return dur_complete(ctx, "all different");
}

static dur_outcome talks(dur_ctx *ctx, const char *input) {
    (void)input;
    for (int i = 0; i < 5; i++) {
        dur_await(dur_activity(ctx, "Echo", ""));
        dur_trace(ctx, DUR_LOG_INFO, "line %d", i);
    }
    return dur_complete(ctx, "");
}

static dur_outcome hello(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ACTIVITY("Counted", counted),
    DUR_ACTIVITY("Fails", fails),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("OverTheLimit", "1.0.0", over_the_limit),
    DUR_ORCHESTRATION("Asks", "1.0.0", asks),
    DUR_ORCHESTRATION("Prunes", "1.0.0", prunes),
    DUR_ORCHESTRATION("EndsWithWorkOpen", "1.0.0", ends_with_work_open),
    DUR_ORCHESTRATION("Tolerates", "1.0.0", tolerates),
    DUR_ORCHESTRATION("Guids", "1.0.0", guids),
    DUR_ORCHESTRATION("Talks", "1.0.0", talks),
    DUR_ORCHESTRATION("Hello", "1.0.0", hello),
    DUR_HANDLERS_END,
};

static void put_raw(world *w, const dur_work_item *item) {
    dur_arena *arena = dur_arena_new();
    dur_message_row message;
    OK(w, dur_message_row_from_work(&message, arena, item, &w->err));
    OK(w, dur_store_enqueue_for_orchestrator(w->store, &message, 0, &w->err));
    dur_arena_free(arena);
}

/* One terminal event, the last one, with the envelope of its instance. */
static void check_terminal(world *w, const char *instance) {
    dur_arena *arena = dur_arena_new();
    dur_event *events = NULL;
    size_t count = 0, terminal = 0;
    OK(w, dur_store_read_events(w->store, arena, instance, 0, &events, &count, &w->err));
    assert_true(count > 0);
    for (size_t i = 0; i < count; i++) {
        terminal += dur_event_kind_role(events[i].kind) == DUR_EVENT_ROLE_TERMINAL;
        assert_int_equal(events[i].event_id, i + 1);
        assert_string_equal(events[i].instance_id, instance);
        assert_true(events[i].execution_id > 0);
    }
    assert_int_equal(terminal, 1);
    assert_int_equal(dur_event_kind_role(events[count - 1].kind), DUR_EVENT_ROLE_TERMINAL);
    dur_arena_free(arena);
}

static void fault_c10_a_limit_tells_the_parent_and_ends_once(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Asks", "OverTheLimit", "p");
    expect_failure(w, "p", DUR_EFAILED, "keys");
    check_terminal(w, "kid");
    expect_failure(w, "open-child", DUR_ECANCELLED, "parent");
}

static void fault_c11_a_corrupted_history_tells_the_parent(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Asks", "Waits", "p");
    until_history(w, "kid", "\"ExternalSubscribed\"", 1);
    world_stop(w);
    static const char alien[] = "{\"event_id\":3,\"type\":\"FromTheFuture\"}";
    dur_event_row row = { .event_id = 3, .kind = DUR_EVENT_UNKNOWN, .json = { alien, sizeof(alien) - 1 } };
    OK(w, dur_store_append(w->store, "kid", 1, &row, 1, &w->err));
    OK(w, dur_client_pulse(w->client, &w->err, "kid", "Go", ""));
    RUN(w, handlers, .max_attempts = 1);
    expect_failure(w, "p", DUR_EFAILED, "");
}

static void fault_c12_pruning_keys_is_deterministic(void **state) {
    world *w = *state;
    RUN(w, handlers, .double_run = true, .evict_every_turn = true);
    start(w, "Prunes", "1", "p");
    expect(w, "p", "20");
}

static void start_again(world *w, const char *instance) {
    put_raw(w, &(dur_work_item){ .kind = DUR_WORK_START_ORCHESTRATION,
                                 .instance = instance,
                                 .orchestration = "Hello",
                                 .input = "other",
                                 .version = "1.0.0",
                                 .execution_id = 1 });
}

static void fault_c15_a_second_start_does_no_harm_to_a_running_instance(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Waits", "", "parked");
    start(w, "Waits", "", "released");
    until_history(w, "parked", "\"ExternalSubscribed\"", 1);
    until_history(w, "released", "\"ExternalSubscribed\"", 1);
    start_again(w, "parked");
    OK(w, dur_client_pulse(w->client, &w->err, "parked", "Go", "unharmed"));
    expect(w, "parked", "unharmed");
    world_stop(w);
    start_again(w, "released"); /* the first that the next runtime sees of it, before its history */
    OK(w, dur_client_pulse(w->client, &w->err, "released", "Go", "unharmed"));
    RUN(w, handlers);
    expect(w, "released", "unharmed");
}

static void fault_c16_nothing_runs_after_stop(void **state) {
    world *w = *state;
    atomic_store(&activity_runs, 0);
    RUN(w, handlers);
    for (int i = 0; i < 20; i++) {
        char id[16];
        snprintf(id, sizeof(id), "e-%d", i);
        start(w, "EndsWithWorkOpen", "", id);
    }
    world_stop(w);
    int after = atomic_load(&activity_runs);
    pause_ms(100);
    assert_int_equal(atomic_load(&activity_runs), after);
}

static void fault_c18_the_terminal_event_is_the_last(void **state) {
    world *w = *state;
    RUN(w, handlers, .double_run = true);
    start(w, "EndsWithWorkOpen", "", "e");
    expect(w, "e", "done");
    check_terminal(w, "e");
    assert_int_equal(
        history_count(w, "e", 0, "\"ActivityCancelRequested\"") + history_count(w, "e", 0, "\"ActivityCompleted\""), 6);
}

static void fault_c19_a_duplicate_failure_is_ignored(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Tolerates", "", "t");
    until_history(w, "t", "\"ExternalSubscribed\"", 1);
    dur_failure again = { .category = DUR_FAILURE_APPLICATION,
                          .kind = DUR_FAILURE_ACTIVITY_FAILED,
                          .message = "twice" };
    for (int i = 0; i < 2; i++)
        put_raw(w,
                &(dur_work_item){
                    .kind = DUR_WORK_ACTIVITY_FAILED, .instance = "t", .execution_id = 1, .id = 2, .details = &again });
    put_raw(w, &(dur_work_item){
                   .kind = DUR_WORK_ACTIVITY_COMPLETED, .instance = "t", .execution_id = 1, .id = 77, .result = "" });
    put_raw(w, &(dur_work_item){
                   .kind = DUR_WORK_TIMER_FIRED, .instance = "t", .execution_id = 1, .id = 2, .fire_at_ms = 1 });
    put_raw(w, &(dur_work_item){
                   .kind = DUR_WORK_ACTIVITY_COMPLETED, .instance = "t", .execution_id = 9, .id = 2, .result = "" });
    OK(w, dur_client_pulse(w->client, &w->err, "t", "Go", "on"));
    expect(w, "t", "once on");
    assert_int_equal(history_count(w, "t", 0, "\"ActivityFailed\"") >= 1, 1);
}

static void fault_c20_what_cannot_be_read_becomes_a_dead_letter(void **state) {
    world *w = *state;
    static const char junk[] = "{\"ExternalRaised\":{\"instance\":";
    dur_dead_letter_list *letters = NULL;
    RUN(w, handlers);
    start(w, "Waits", "", "s");
    until_history(w, "s", "\"ExternalSubscribed\"", 1);
    dur_message_row bad = { .kind = DUR_WORK_EXTERNAL_RAISED, .instance = "s", .json = { junk, sizeof(junk) - 1 } };
    OK(w, dur_store_enqueue_for_orchestrator(w->store, &bad, 0, &w->err));
    dur_message_row bad_work = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                                 .instance = "s",
                                 .execution_id = 1,
                                 .activity_id = 99,
                                 .json = { junk, sizeof(junk) - 1 } };
    OK(w, dur_store_enqueue_for_worker(w->store, &bad_work, &w->err));
    start(w, "Hello", "not blocked", "h");
    expect(w, "h", "not blocked");
    OK(w, dur_client_pulse(w->client, &w->err, "s", "Go", "read"));
    expect(w, "s", "read");
    uint64_t waited_ms = 0;
    for (size_t found = 0; found < 2; waited_ms++) {
        assert_true(waited_ms < patience_ms());
        OK(w, dur_client_dead_letters(&letters, w->client, 0, 10, &w->err));
        found = letters->count;
        for (size_t i = 0; i < found; i++)
            assert_string_equal(letters->items[i]->message, junk);
        dur_dead_letter_list_free(letters);
        pause_ms(1);
    }
}

static void fault_c25_guids_are_random_and_valid(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Guids", "500", "g");
    expect(w, "g", "all different");
}

static atomic_int lines;
static void count_lines(void *data, const dur_log_record *record) {
    (void)data;
    if (strncmp(record->message, "line ", 5) == 0) atomic_fetch_add(&lines, 1);
}

static void fault_c32_log_lines_appear_once(void **state) {
    world *w = *state;
    atomic_store(&lines, 0);
    dur_log_set_sink(count_lines, NULL, DUR_LOG_INFO);
    RUN(w, handlers, .evict_every_turn = true);
    start(w, "Talks", "", "t");
    expect(w, "t", "");
    world_stop(w);
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
    assert_int_equal(atomic_load(&lines), 5);
}

static void fault_c37_a_foreign_work_item_kills_no_worker(void **state) {
    world *w = *state;
    static const char alien[] = "{\"FromTheFuture\":{\"instance\":\"x\"}}";
    static const char wrong[] = "{\"CancelInstance\":{\"instance\":\"x\",\"reason\":\"\"}}";
    RUN(w, handlers, .worker_concurrency = 1);
    w->broken = true; /* work of no instance: only another engine puts it there */
    for (uint64_t i = 0; i < 5; i++) {
        dur_message_row a = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                              .instance = "x",
                              .execution_id = 1,
                              .activity_id = i,
                              .json = { alien, sizeof(alien) - 1 } };
        dur_message_row b = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                              .instance = "x",
                              .execution_id = 1,
                              .activity_id = 100 + i,
                              .json = { wrong, sizeof(wrong) - 1 } };
        OK(w, dur_store_enqueue_for_worker(w->store, &a, &w->err));
        OK(w, dur_store_enqueue_for_worker(w->store, &b, &w->err));
    }
    start(w, "Hello", "alive", "h");
    expect(w, "h", "alive");
}

int main(void) {
    if (getenv("DURITE_TEST_LOG") != NULL) dur_log_set_sink(dur_log_text, stderr, DUR_LOG_DEBUG);
    const struct CMUnitTest tests[] = {
        TEST(fault_c10_a_limit_tells_the_parent_and_ends_once),
        TEST(fault_c11_a_corrupted_history_tells_the_parent),
        TEST(fault_c12_pruning_keys_is_deterministic),
        TEST(fault_c15_a_second_start_does_no_harm_to_a_running_instance),
        TEST(fault_c16_nothing_runs_after_stop),
        TEST(fault_c18_the_terminal_event_is_the_last),
        TEST(fault_c19_a_duplicate_failure_is_ignored),
        TEST(fault_c20_what_cannot_be_read_becomes_a_dead_letter),
        TEST(fault_c25_guids_are_random_and_valid),
        TEST(fault_c32_log_lines_appear_once),
        TEST(fault_c37_a_foreign_work_item_kills_no_worker),
    };
    return cmocka_run_group_tests_name("fault_endings", tests, NULL, NULL);
}
