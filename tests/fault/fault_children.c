/*
 * fault_children.c: faults of the original around children and generations, one test each, named after it.
 */
#include "e2e/harness.h"
#include <durite/sys/store.h>

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome child(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome join_children(dur_ctx *ctx, const char *input) {
    size_t count = strtoul(input, NULL, 10);
    dur_future **kids = dur_alloc(ctx, count * sizeof(*kids));
    for (size_t i = 0; i < count; i++)
        kids[i] = dur_orchestration(ctx, "Child", "x");
    dur_join_n(kids, count);
    size_t good = 0;
    for (size_t i = 0; i < count; i++)
        good += dur_code_of(kids[i]) == DUR_OK;
    return dur_completef(ctx, "%zu", good);
}

static dur_outcome child_per_generation(dur_ctx *ctx, const char *input) {
    unsigned long n = strtoul(input, NULL, 10);
    const char *answer = dur_await(dur_orchestration(ctx, "Child", input));
    if (n == 4) return dur_completef(ctx, "%s", answer);
    return dur_continue_as_new(ctx, dur_format(ctx, "%lu", n + 1));
}

static dur_outcome second_execution_asks(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "1") == 0) return dur_continue_as_new(ctx, "2");
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Waits", "", .instance = "kid")));
}

static dur_outcome child_that_continues(dur_ctx *ctx, const char *input) {
    unsigned long n = strtoul(input, NULL, 10);
    if (n < 3) return dur_continue_as_new(ctx, dur_format(ctx, "%lu", n + 1));
    return dur_completef(ctx, "generation %lu", n);
}

static dur_outcome parent_of_continuing(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "ChildThatContinues", input)));
}

static dur_outcome takes_existing_id(dur_ctx *ctx, const char *input) {
    dur_future *kid = dur_orchestration(ctx, "Child", "", .instance = input);
    return dur_try(kid, NULL) == DUR_OK ? dur_complete(ctx, "odd") : dur_fail(ctx, dur_reason(kid));
}

static dur_outcome leaves_child_behind(dur_ctx *ctx, const char *input) {
    char *id = dur_format(ctx, "%s-%s-kid", dur_instance_id(ctx), input);
    if (strcmp(input, "done") == 0) return dur_complete(ctx, "");
    dur_future *kid = dur_orchestration(ctx, "Waits", "", .instance = id);
    dur_await(dur_pulse(ctx, "Next"));
    if (strcmp(input, "can") == 0) return dur_continue_as_new(ctx, "done");
    if (strcmp(input, "fail") == 0) return dur_fail(ctx, "failed");
    if (strcmp(input, "await") == 0) (void)dur_await(dur_activity(ctx, "Broken", ""));
    (void)kid;
    return dur_complete(ctx, "");
}

static dur_outcome broken(dur_act *act, const char *input) {
    (void)input;
    return dur_act_fail(act, "broken");
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ACTIVITY("Broken", broken),
    DUR_ORCHESTRATION("Child", "1.0.0", child),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("JoinChildren", "1.0.0", join_children),
    DUR_ORCHESTRATION("ChildPerGeneration", "1.0.0", child_per_generation),
    DUR_ORCHESTRATION("SecondExecutionAsks", "1.0.0", second_execution_asks),
    DUR_ORCHESTRATION("ChildThatContinues", "1.0.0", child_that_continues),
    DUR_ORCHESTRATION("ParentOfContinuing", "1.0.0", parent_of_continuing),
    DUR_ORCHESTRATION("TakesExistingId", "1.0.0", takes_existing_id),
    DUR_ORCHESTRATION("LeavesChildBehind", "1.0.0", leaves_child_behind),
    DUR_HANDLERS_END,
};

static void fault_c01_join_over_thirty_children_ends(void **state) {
    world *w = *state;
    char count[32];
    snprintf(count, sizeof(count), "%zu", scaled(1024, 64));
    RUN(w, handlers);
    start(w, "JoinChildren", count, "j");
    expect(w, "j", count);
}

static void fault_c02_child_ids_are_unique_over_generations(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "ChildPerGeneration", "1", "g");
    expect(w, "g", "4");
}

static void fault_c03_a_child_answers_the_right_execution_after_a_restart(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "SecondExecutionAsks", "1", "p");
    until_history(w, "kid", "\"ExternalSubscribed\"", 1);
    world_stop(w);
    RUN(w, handlers);
    OK(w, dur_client_pulse(w->client, &w->err, "kid", "Go", "answered"));
    expect(w, "p", "answered");
}

static void fault_c04_a_child_that_continues_as_new_keeps_its_parent(void **state) {
    world *w = *state;
    RUN(w, handlers, .evict_every_turn = true);
    start(w, "ParentOfContinuing", "1", "p");
    expect(w, "p", "generation 3");
}

static void fault_c05_a_child_id_that_exists_fails_the_call(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Waits", "", "taken");
    until_history(w, "taken", "\"ExternalSubscribed\"", 1);
    start(w, "TakesExistingId", "taken", "p1");
    expect_failure(w, "p1", DUR_EFAILED, "exists");
    OK(w, dur_client_pulse(w->client, &w->err, "taken", "Go", "unharmed"));
    expect(w, "taken", "unharmed");
    start(w, "TakesExistingId", "taken", "p2");
    expect_failure(w, "p2", DUR_EFAILED, "exists");
    start(w, "TakesExistingId", "p3", "p3"); /* its own id */
    expect_failure(w, "p3", DUR_EFAILED, "exists");
}

static void fault_c17_every_end_cancels_open_children(void **state) {
    world *w = *state;
    static const char *const ways[] = { "can", "fail", "await", "complete" };
    RUN(w, handlers);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        char id[32], kid[64];
        snprintf(id, sizeof(id), "p-%s", ways[i]);
        snprintf(kid, sizeof(kid), "p-%s-%s-kid", ways[i], ways[i]);
        start(w, "LeavesChildBehind", ways[i], id);
        until_history(w, kid, "\"ExternalSubscribed\"", 1);
        OK(w, dur_client_pulse(w->client, &w->err, id, "Next", ""));
        expect_failure(w, kid, DUR_ECANCELLED, "parent");
    }
}

/* ---- a child that is scheduled while its parent is deleted ---- */

static atomic_int marks;

static dur_outcome mark(dur_act *act, const char *input) {
    atomic_fetch_add(&marks, 1);
    return dur_act_complete(act, input);
}

static dur_outcome late_child(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Mark", input)));
}

static dur_outcome parent_of_late(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "LateChild", input, .instance = input)));
}

static const dur_handler parents_only[] = {
    DUR_ORCHESTRATION("ParentOfLate", "1.0.0", parent_of_late),
    DUR_HANDLERS_END,
};

static const dur_handler children_only[] = {
    DUR_ACTIVITY("Mark", mark),
    DUR_ORCHESTRATION("LateChild", "1.0.0", late_child),
    DUR_HANDLERS_END,
};

static bool ended_or_gone(world *w, const char *instance) {
    dur_instance_info *info = NULL;
    int code = dur_client_info(&info, w->client, instance, &w->err);
    if (code == DUR_ENOTFOUND) return true;
    OK(w, code);
    bool ended = info->status == DUR_INSTANCE_COMPLETED || info->status == DUR_INSTANCE_FAILED;
    dur_instance_info_free(info);
    return ended;
}

/* Whoever deletes a tree lists it first; the store is asked here as if the child had come right after that. */
static void an_orphan_is_not_started(void **state) {
    world *w = *state;
    const char *const parents[] = { "p1", "p2" };
    atomic_store(&marks, 0);
    RUN(w, parents_only);
    start(w, "ParentOfLate", "late-1", "p1");
    start(w, "ParentOfLate", "late-2", "p2");
    for (int i = 0; i < 2; i++)
        while (ended_or_gone(w, i == 0 ? "late-1" : "late-2"))
            pause_ms(1); /* its start waits: nobody knows the handler */
    world_stop(w);
    OK(w, dur_store_delete_instances(w->store, &parents[0], 1, true, NULL, &w->err));
    RUN(w, children_only);
    while (!ended_or_gone(w, "late-1") || !ended_or_gone(w, "late-2"))
        pause_ms(1);
    dur_instance_info *info = NULL;
    assert_int_equal(dur_client_info(&info, w->client, "late-1", &w->err), DUR_ENOTFOUND);
    expect(w, "late-2", "late-2");
    assert_int_equal(atomic_load(&marks), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(fault_c01_join_over_thirty_children_ends),
        TEST(fault_c02_child_ids_are_unique_over_generations),
        TEST(fault_c03_a_child_answers_the_right_execution_after_a_restart),
        TEST(fault_c04_a_child_that_continues_as_new_keeps_its_parent),
        TEST(fault_c05_a_child_id_that_exists_fails_the_call),
        TEST(fault_c17_every_end_cancels_open_children),
        TEST(an_orphan_is_not_started),
    };
    return cmocka_run_group_tests_name("fault_children", tests, NULL, NULL);
}
