/*
 * hostile_races.c: what somebody else does between a look and the deed that goes by it.
 *
 * Whoever comes in between is played by the test: it has the store do something first when a method is called, and
 * then what was asked.
 */
#include "neighbour.h"

#include <durite/sys/store.h>
#include <pthread.h>
#include <stdatomic.h>

/* ---- the store, with somebody in between ------------------------------------------------------------------------- */

static struct {
    const dur_provider_methods *real;
    dur_provider_methods mine; /* the store's table, but for what a test puts there */
    world *w;
    unsigned times; /* that somebody came in between */

    /* where a runtime is at work meanwhile: the table stays as it is, and only the test's own calls are met */
    atomic_bool here;
    pthread_t home;
    int (*on_suspend)(dur_provider *, const char *, const char *, dur_error *);
    int (*on_commit)(dur_provider *, dur_turn_commit *, size_t, dur_error *);
} between;

static void come_between(world *w) {
    memset(&between, 0, sizeof(between));
    between.real = w->store->methods;
    memcpy(&between.mine, between.real, sizeof(between.mine)); /* a store of ours: its table is as long */
    between.w = w;
}

static void go_away(world *w) {
    w->store->methods = between.real;
}

static bool is_met(void) {
    return atomic_load(&between.here) && pthread_equal(pthread_self(), between.home);
}

static int meet_suspend(dur_provider *self, const char *instance, const char *reason, dur_error *err) {
    return (is_met() && between.on_suspend != NULL ? between.on_suspend : between.real->set_suspended)(self, instance,
                                                                                                       reason, err);
}

static int meet_commit(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    return (is_met() && between.on_commit != NULL ? between.on_commit : between.real->commit_turns)(self, turns, count,
                                                                                                    err);
}

/* Before anything runs. */
static void stand_by(world *w) {
    come_between(w);
    between.home = pthread_self();
    between.mine.set_suspended = meet_suspend;
    between.mine.commit_turns = meet_commit;
    w->store->methods = &between.mine;
}

enum { ATTEMPTS = 3 };

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "go")));
}

static dur_outcome calls(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Waits", "", .instance = input)));
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("Calls", "1.0.0", calls),
    DUR_HANDLERS_END,
};
static const dur_handler callers[] = { DUR_ORCHESTRATION("Calls", "1.0.0", calls), DUR_HANDLERS_END };

/* ---- H77: suspending what ends ----------------------------------------------------------------------------------- */

static int end_it_and_suspend(dur_provider *self, const char *instance, const char *reason, dur_error *err) {
    world *w = between.w;
    if (between.times++ == 0) {
        OK(w, dur_client_pulse(w->client, &w->err, instance, "go", "done"));
        expect(w, instance, "done");
    }
    return between.real->set_suspended(self, instance, reason, err);
}

static size_t dead_letters(world *w) {
    dur_queue_depths depths;
    OK(w, dur_store_get_queue_depths(w->store, &depths, &w->err));
    return (size_t)depths.dead_letters;
}

/* The client looks, it ends, the client suspends. */
static void fault_h77_what_has_ended_meanwhile_is_not_suspended(void **state) {
    world *w = *state;
    dur_instance_info *info;
    stand_by(w);
    between.on_suspend = end_it_and_suspend;
    RUN(w, handlers);
    start(w, "Waits", "", "i");
    until_history(w, "i", "ExternalSubscribed", 1);
    OK(w, dur_client_send(w->client, &w->err, "i", "box", "nobody takes it"));
    atomic_store(&between.here, true);
    int code = dur_client_suspend(w->client, "i", "too late", &w->err);
    atomic_store(&between.here, false);
    assert_int_equal(between.times, 1);
    if (code != DUR_ESTATE) fail_msg("%s instead of DUR_ESTATE", dur_code_name(code));
    OK(w, dur_client_info(&info, w->client, "i", &w->err));
    assert_false(info->suspended);
    dur_instance_info_free(info);
    for (uint64_t end_ms = now_ms() + patience_ms(); dead_letters(w) < 1; pause_ms(1))
        if (now_ms() > end_ms) fail_msg("what nobody took is no dead letter");
    assert_int_equal(dur_client_suspend(w->client, "i", "too late", &w->err), DUR_ESTATE);
    OK(w, dur_client_resume(w->client, "i", &w->err)); /* does nothing */
    dur_error_clear(&w->err);
}

/* ---- H78: a child whose parent is deleted before the child begins ------------------------------------------------ */

/* Somebody has listed what is below p before p called its child, and deletes p then: the child's start waits. */
static void leave_an_orphan(world *w) {
    static const char *const p[] = { "p" };
    RUN(w, callers);
    start(w, "Calls", "c", "p");
    until_history(w, "p", "SubOrchestrationScheduled", 1);
    world_stop(w);
    OK(w, dur_store_delete_instances(w->store, p, 1, true, NULL, &w->err));
}

/* Whoever has the parent's id now has not called the child. */
static void the_orphan_is_not_started(world *w) {
    dur_instance_info *info = NULL;
    RUN(w, handlers);
    start(w, "Waits", "", "last"); /* the orphan came first */
    until_history(w, "last", "ExternalSubscribed", 1);
    for (uint64_t end_ms = now_ms() + patience_ms();; pause_ms(1)) {
        int code = dur_client_info(&info, w->client, "c", &w->err);
        if (code == DUR_ENOTFOUND) break;
        OK(w, code);
        bool begun = info->execution_id > 0 && !info->start_pending;
        dur_instance_info_free(info);
        if (begun || now_ms() > end_ms) fail_msg("the child of a parent that is gone %s", begun ? "runs" : "stays");
    }
    dur_error_clear(&w->err);
}

static void fault_h78_one_terminated_before_it_began_is_nobodys_parent(void **state) {
    world *w = *state;
    leave_an_orphan(w);
    start(w, "Calls", "c", "p");
    OK(w, dur_client_terminate(w->client, "p", "before it began", &w->err));
    the_orphan_is_not_started(w);
}

static dur_orchestration_item take(world *w, dur_arena *arena, const char *instance) {
    dur_orchestration_item item = { .instance = "" };
    OK(w, dur_store_fetch_orchestration_item(w->store, arena, &(dur_fetch){ .lock_ms = 60000 }, &item, &w->err));
    assert_string_equal(item.instance, instance);
    return item;
}

static void fault_h78_one_given_up_before_it_began_is_nobodys_parent(void **state) {
    world *w = *state;
    dur_arena *arena = dur_arena_new();
    leave_an_orphan(w);
    start(w, "Calls", "c", "p");
    dur_orchestration_item child = take(w, arena, "c"); /* out of the way */
    for (size_t i = 0; i < ATTEMPTS; i++)               /* it was begun so often, and never came to a commit */
        OK(w, dur_store_abandon_orchestration_item(w->store, take(w, arena, "p").lock_token, 0, false, &w->err));
    OK(w, dur_store_abandon_orchestration_item(w->store, child.lock_token, 0, true, &w->err));
    dur_arena_free(arena);
    RUN(w, callers, .max_attempts = ATTEMPTS);
    expect_failure(w, "p", DUR_EFAILED, "poison");
    world_stop(w);
    the_orphan_is_not_started(w);
}

/* ---- H75: ending one, while another takes its id ----------------------------------------------------------------- */

/* Before the end is written it is deleted, and started again. */
static int start_again_and_commit(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    world *w = between.w;
    if (between.times++ == 0) {
        OK(w, dur_client_delete(NULL, w->client, "i", true, &w->err));
        start(w, "Waits", "", "i");
        if (w->runtime != NULL) until_history(w, "i", "ExternalSubscribed", 1);
    }
    return between.real->commit_turns(self, turns, count, err);
}

static void end_the_first(world *w) {
    between.on_commit = start_again_and_commit;
    atomic_store(&between.here, true);
    int code = dur_client_terminate(w->client, "i", "the first", &w->err);
    atomic_store(&between.here, false);
    assert_true(between.times >= 1); /* to delete by force what is held may be a commit, too */
    if (code != DUR_ENOTFOUND) fail_msg("%s instead of DUR_ENOTFOUND", dur_code_name(code));
    dur_error_clear(&w->err);
}

static void the_second_runs(world *w) {
    until_history(w, "i", "ExternalSubscribed", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "i", "go", "the second"));
    expect(w, "i", "the second");
}

static void fault_h75_a_terminate_of_what_has_not_begun_ends_no_other(void **state) {
    world *w = *state;
    stand_by(w);
    start(w, "Calls", "c", "i"); /* there is nobody to run it */
    end_the_first(w);
    RUN(w, handlers);
    the_second_runs(w);
}

/* Both have come to the same event. */
static void fault_h75_a_terminate_of_what_runs_ends_no_other(void **state) {
    world *w = *state;
    stand_by(w);
    RUN(w, handlers);
    start(w, "Waits", "", "i");
    until_history(w, "i", "ExternalSubscribed", 1);
    end_the_first(w);
    the_second_runs(w);
}

/* The row is the first one's, and the history that of the second, which has none yet. */
static int start_again_and_read(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution_id,
                                dur_event_row **out, size_t *count, dur_error *err) {
    world *w = between.w;
    if (between.times++ == 0) {
        OK(w, dur_client_delete(NULL, w->client, "i", true, &w->err));
        start(w, "Waits", "", "i");
    }
    return between.real->read(self, arena, instance, execution_id, out, count, err);
}

static void fault_h75_a_row_and_another_ones_history_end_nobody(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Waits", "", "i");
    until_history(w, "i", "ExternalSubscribed", 1);
    world_stop(w);
    come_between(w);
    between.mine.read = start_again_and_read;
    w->store->methods = &between.mine;
    int code = dur_client_terminate(w->client, "i", "the first", &w->err);
    go_away(w);
    if (code != DUR_ENOTFOUND) fail_msg("%s instead of DUR_ENOTFOUND", dur_code_name(code));
    dur_error_clear(&w->err);
    RUN(w, handlers);
    the_second_runs(w);
}

/* It begins between the look and the end: it is the same one, and is ended. */
static int begin_and_commit(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    if (between.times++ == 0) {
        RUN(between.w, handlers);
        until_history(between.w, "i", "ExternalSubscribed", 1);
    }
    return between.real->commit_turns(self, turns, count, err);
}

static void fault_h75_what_begins_meanwhile_is_terminated(void **state) {
    world *w = *state;
    stand_by(w);
    start(w, "Waits", "", "i");
    between.on_commit = begin_and_commit;
    atomic_store(&between.here, true);
    OK(w, dur_client_terminate(w->client, "i", "whoever it is", &w->err));
    atomic_store(&between.here, false);
    expect_failure(w, "i", DUR_ECANCELLED, "whoever it is");
}

/* A client asks it to end when a node that found no handler is about to write that. */
static int cancel_and_commit(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    if (between.times++ == 0 && dur_client_cancel(between.w->client, turns[0].instance, "in time", NULL) != DUR_OK)
        between.times = 1000;
    return between.real->commit_turns(self, turns, count, err);
}

static void fault_h75_a_cancel_counts_before_the_end_for_want_of_a_handler(void **state) {
    world *w = *state;
    start(w, "Nobody", "", "i");
    come_between(w);
    between.mine.commit_turns = cancel_and_commit;
    w->store->methods = &between.mine;
    RUN(w, handlers, .unregistered_attempts_max = 1, .unregistered_backoff_ms = 1);
    int code = result_of(w, "i", &(char *){ NULL });
    world_stop(w); /* behind this nobody calls what was put in between */
    go_away(w);
    assert_true(between.times > 0 && between.times < 1000);
    if (code != DUR_ECANCELLED) fail_msg("%s: %s", dur_code_name(code), w->err.message);
}

/* ---- H81: a cancel before a start that is not due ---------------------------------------------------------------- */

static void fault_h81_a_delayed_start_is_cancelled_at_once(void **state) {
    world *w = *state;
    dur_instance_info *info = NULL;
    RUN(w, handlers);
    OK(w, dur_client_start(w->client, &w->err, "Waits", "", .instance = "i", .delay_ms = DUR_HOURS(1)));
    OK(w, dur_client_send(w->client, &w->err, "i", "box", "nobody takes it"));
    OK(w, dur_client_cancel(w->client, "i", "not wanted any more", &w->err));
    expect_failure(w, "i", DUR_ECANCELLED, "not wanted any more");
    OK(w, dur_client_info(&info, w->client, "i", &w->err));
    assert_true(info->cancelled && !info->start_pending);
    assert_int_equal(info->status, DUR_INSTANCE_FAILED);
    dur_instance_info_free(info);
    for (uint64_t end_ms = now_ms() + patience_ms(); dead_letters(w) < 1; pause_ms(1))
        if (now_ms() > end_ms) fail_msg("what nobody took is no dead letter");
}

/* The call that waits for c is put off for an hour. */
static void delay_the_call(world *w) {
    dur_arena *arena = dur_arena_new();
    dur_orchestration_item item = take(w, arena, "c");
    dur_work_item call;
    dur_message_row later;
    OK(w, dur_work_from_json(&call, arena, item.messages[0].json, &w->err));
    OK(w, dur_message_row_from_work(&later, arena, &call, &w->err));
    dur_turn_commit gone = { .lock_token = item.lock_token,
                             .instance = "c",
                             .expected_last = DUR_NOT_COMPARED,
                             .consume_listed = true,
                             .consumed = &item.messages[0].id,
                             .consumed_count = 1 };
    OK(w, dur_store_commit_turns(w->store, &gone, 1, &w->err));
    OK(w, (int)gone.error.code);
    OK(w, dur_store_enqueue_for_orchestrator(w->store, &later, DUR_HOURS(1), &w->err));
    dur_arena_free(arena);
}

static void fault_h81_the_parent_of_a_delayed_start_is_told(void **state) {
    world *w = *state;
    RUN(w, callers);
    start(w, "Calls", "c", "p");
    until_history(w, "p", "SubOrchestrationScheduled", 1);
    world_stop(w);
    delay_the_call(w);
    RUN(w, handlers);
    OK(w, dur_client_cancel(w->client, "c", "not wanted any more", &w->err));
    expect_failure(w, "p", DUR_EFAILED, "not wanted any more");
    expect_failure(w, "c", DUR_ECANCELLED, "not wanted any more");
}

/* Its parent is gone: there is nobody to tell, and nothing stays. */
static void fault_h81_an_orphan_with_a_delayed_start_leaves_nothing(void **state) {
    world *w = *state;
    dur_instance_info *info = NULL;
    leave_an_orphan(w);
    delay_the_call(w);
    OK(w, dur_client_cancel(w->client, "c", "not wanted any more", &w->err));
    RUN(w, handlers);
    for (uint64_t end_ms = now_ms() + patience_ms(); dur_client_info(&info, w->client, "c", NULL) == DUR_OK;
         pause_ms(1)) {
        bool begun = !info->start_pending;
        dur_instance_info_free(info);
        if (begun || now_ms() > end_ms) fail_msg("the start of an orphan %s", begun ? "was ended" : "stays");
    }
}

/* A request that means the instance of another call leaves the start where it is. */
static void fault_h81_a_cancel_of_another_call_leaves_it(void **state) {
    world *w = *state;
    dur_arena *arena = dur_arena_new();
    dur_instance_info *info = NULL;
    dur_work_item cancel = { .kind = DUR_WORK_CANCEL_INSTANCE,
                             .instance = "i",
                             .reason = "of another",
                             .parent_instance = "p",
                             .has_parent_id = true,
                             .parent_id = 2 };
    dur_message_row message;
    OK(w, dur_message_row_from_work(&message, arena, &cancel, &w->err));
    OK(w, dur_client_start(w->client, &w->err, "Waits", "", .instance = "i", .delay_ms = DUR_HOURS(1)));
    OK(w, dur_store_enqueue_for_orchestrator(w->store, &message, 0, &w->err));
    dur_arena_free(arena);
    RUN(w, handlers);
    start(w, "Waits", "", "last"); /* behind it in the order of fetching */
    until_history(w, "last", "ExternalSubscribed", 1);
    world_stop(w);
    OK(w, dur_client_info(&info, w->client, "i", &w->err));
    assert_true(info->start_pending);
    dur_instance_info_free(info);
}

/* ---- H90: a call of an id whose start is not due ----------------------------------------------------------------- */

static void starts_later(world *w, uint64_t delay_ms) {
    OK(w, dur_client_start(w->client, &w->err, "Waits", "", .instance = "c", .delay_ms = delay_ms));
}

static void call_without_a_node_for_it(world *w, const char *parent) {
    RUN(w, callers);
    start(w, "Calls", "c", parent);
    until_history(w, parent, "SubOrchestrationScheduled", 1);
    world_stop(w);
}

static void fault_h90_an_id_is_taken_before_its_start_is_due(void **state) {
    world *w = *state;
    dur_instance_info *info = NULL;
    RUN(w, handlers);
    starts_later(w, DUR_HOURS(1));
    start(w, "Calls", "c", "p");
    expect_failure(w, "p", DUR_EFAILED, "already exists");
    OK(w, dur_client_info(&info, w->client, "c", &w->err));
    assert_true(info->start_pending && info->parent == NULL);
    dur_instance_info_free(info);
    OK(w, dur_provider_check(w->store, &w->err));
}

/* The call stands in front of the start, by their due times, but came behind it. */
static void fault_h90_who_came_first_begins_though_due_later(void **state) {
    enum { DELAY_MS = 250 };
    world *w = *state;
    uint64_t due_ms = now_ms() + DELAY_MS;
    starts_later(w, DELAY_MS);
    call_without_a_node_for_it(w, "p");
    while (now_ms() <= due_ms + 1)
        pause_ms(5);
    RUN(w, handlers);
    expect_failure(w, "p", DUR_EFAILED, "already exists");
    until_history(w, "c", "ExternalSubscribed", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "c", "go", "the first"));
    expect(w, "c", "the first");
}

/* … and is deleted before: then the call has the id. */
static void fault_h90_a_call_behind_a_start_that_is_deleted_is_the_next(void **state) {
    world *w = *state;
    starts_later(w, DUR_HOURS(1));
    call_without_a_node_for_it(w, "p");
    OK(w, dur_client_delete(NULL, w->client, "c", true, &w->err));
    RUN(w, handlers);
    until_history(w, "c", "ExternalSubscribed", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "c", "go", "the call's"));
    expect(w, "p", "the call's");
}

static void fault_h90_calls_of_a_start_that_is_cancelled_are_answered(void **state) {
    world *w = *state;
    starts_later(w, DUR_HOURS(1));
    call_without_a_node_for_it(w, "p");
    OK(w, dur_client_cancel(w->client, "c", "not wanted any more", &w->err));
    RUN(w, handlers);
    expect_failure(w, "c", DUR_ECANCELLED, "not wanted any more");
    expect_failure(w, "p", DUR_EFAILED, "already exists");
}

static void fault_h90_calls_of_what_is_given_up_before_it_began_are_answered(void **state) {
    world *w = *state;
    dur_arena *arena = dur_arena_new();
    call_without_a_node_for_it(w, "p");
    call_without_a_node_for_it(w, "q");
    for (size_t i = 0; i < ATTEMPTS; i++)
        OK(w, dur_store_abandon_orchestration_item(w->store, take(w, arena, "c").lock_token, 0, false, &w->err));
    dur_arena_free(arena);
    RUN(w, handlers, .max_attempts = ATTEMPTS);
    expect_failure(w, "p", DUR_EFAILED, "never committed");
    expect_failure(w, "q", DUR_EFAILED, "already exists");
}

static const struct CMUnitTest tests[] = {
    TEST(fault_h77_what_has_ended_meanwhile_is_not_suspended),
    TEST(fault_h78_one_terminated_before_it_began_is_nobodys_parent),
    TEST(fault_h78_one_given_up_before_it_began_is_nobodys_parent),
    TEST(fault_h75_a_terminate_of_what_has_not_begun_ends_no_other),
    TEST(fault_h75_a_terminate_of_what_runs_ends_no_other),
    TEST(fault_h75_a_row_and_another_ones_history_end_nobody),
    TEST(fault_h75_what_begins_meanwhile_is_terminated),
    TEST(fault_h75_a_cancel_counts_before_the_end_for_want_of_a_handler),
    TEST(fault_h81_a_delayed_start_is_cancelled_at_once),
    TEST(fault_h81_the_parent_of_a_delayed_start_is_told),
    TEST(fault_h81_an_orphan_with_a_delayed_start_leaves_nothing),
    TEST(fault_h81_a_cancel_of_another_call_leaves_it),
    TEST(fault_h90_an_id_is_taken_before_its_start_is_due),
    TEST(fault_h90_who_came_first_begins_though_due_later),
    TEST(fault_h90_a_call_behind_a_start_that_is_deleted_is_the_next),
    TEST(fault_h90_calls_of_a_start_that_is_cancelled_are_answered),
    TEST(fault_h90_calls_of_what_is_given_up_before_it_began_are_answered),
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
