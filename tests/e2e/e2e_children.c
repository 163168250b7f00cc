/*
 * e2e_children.c: sub-orchestrations, detached starts, continue-as-new, versions.
 */
#include "harness.h"

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome child(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "fail") == 0) return dur_fail(ctx, "child cannot");
    return dur_completef(ctx, "<%s>", dur_await(dur_activity(ctx, "Echo", input)));
}

static dur_outcome parent(dur_ctx *ctx, const char *input) {
    dur_future *one = dur_orchestration(ctx, "Child", input);
    dur_future *two =
        dur_orchestration(ctx, "Child", "two", .instance = dur_format(ctx, "%s-kid", dur_instance_id(ctx)));
    const char *first = dur_await(one);
    const char *second = dur_await(two);
    return dur_completef(ctx, "%s%s", first, second);
}

static dur_outcome fan_children(dur_ctx *ctx, const char *input) {
    size_t count = strtoul(input, NULL, 10);
    dur_future **kids = dur_alloc(ctx, count * sizeof(*kids));
    for (size_t i = 0; i < count; i++)
        kids[i] = dur_orchestration(ctx, "Child", "x");
    dur_join_n(kids, count);
    size_t good = 0;
    for (size_t i = 0; i < count; i++)
        good += strcmp(dur_await(kids[i]), "<x>") == 0;
    return dur_completef(ctx, "%zu", good);
}

static dur_outcome deep(dur_ctx *ctx, const char *input) {
    unsigned long left = strtoul(input, NULL, 10);
    if (left == 0) return dur_complete(ctx, "bottom");
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Deep", dur_format(ctx, "%lu", left - 1))));
}

static dur_outcome detach(dur_ctx *ctx, const char *input) {
    const char *named = dur_start(ctx, "Child", input, .instance = "detached");
    const char *unnamed = dur_start(ctx, "Child", input);
    return dur_completef(ctx, "%s %s", named, unnamed);
}

static dur_outcome generations(dur_ctx *ctx, const char *input) {
    unsigned long n = strtoul(input, NULL, 10);
    const char *kid = dur_await(dur_orchestration(ctx, "Child", input));
    if (n == 5) return dur_completef(ctx, "%s in execution %llu", kid, (unsigned long long)dur_execution_id(ctx));
    return dur_continue_as_new(ctx, dur_format(ctx, "%lu", n + 1));
}

static dur_outcome versioned(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "up") == 0) return dur_continue_as_new(ctx, "stay", .version = "2.0.0");
    return dur_complete(ctx, dur_orchestration_version(ctx));
}

static dur_outcome ask_versions(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *latest = dur_await(dur_orchestration(ctx, "Versioned", "stay"));
    const char *exact = dur_await(dur_orchestration(ctx, "Versioned", "stay", .version = "1.0.0"));
    return dur_completef(ctx, "%s %s", latest, exact);
}

static dur_outcome waits_for_ever(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_pulse(ctx, "Never"));
    return dur_complete(ctx, "");
}

static dur_outcome gives_up_child(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *kid = dur_orchestration(ctx, "Waits", "", .instance = "given-up");
    dur_future *late = dur_timer(ctx, 30);
    return dur_complete(ctx, dur_select(kid, late) == late ? "gave up" : "odd");
}

static dur_outcome patched_now(dur_ctx *ctx, const char *input) {
    bool is_new = dur_patched(ctx, "p");
    dur_await(dur_pulse(ctx, "Go"));
    return dur_completef(ctx, "%s %s", input, is_new ? "new" : "old");
}
static dur_outcome patched_before(dur_ctx *ctx, const char *input) {
    dur_await(dur_pulse(ctx, "Go"));
    return dur_completef(ctx, "%s before", input);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("Child", "1.0.0", child),
    DUR_ORCHESTRATION("Parent", "1.0.0", parent),
    DUR_ORCHESTRATION("FanChildren", "1.0.0", fan_children),
    DUR_ORCHESTRATION("Deep", "1.0.0", deep),
    DUR_ORCHESTRATION("Detach", "1.0.0", detach),
    DUR_ORCHESTRATION("Generations", "1.0.0", generations),
    DUR_ORCHESTRATION("Versioned", "1.0.0", versioned),
    DUR_ORCHESTRATION("Versioned", "2.0.0", versioned),
    DUR_ORCHESTRATION("Versioned", "10.0.0", versioned),
    DUR_ORCHESTRATION("AskVersions", "1.0.0", ask_versions),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits_for_ever),
    DUR_ORCHESTRATION("GivesUpChild", "1.0.0", gives_up_child),
    DUR_HANDLERS_END,
};

static void children_answer_their_parent(void **state) {
    world *w = *state;
    RUN(w, handlers, .double_run = true);
    start(w, "Parent", "one", "p");
    expect(w, "p", "<one><two>");
    dur_id_list *tree = NULL;
    OK(w, dur_client_tree(&tree, w->client, "p", &w->err));
    assert_int_equal(tree->count, 3);
    assert_string_equal(tree->ids[0], "p");
    dur_id_list_free(tree);
}

static void a_failed_child_fails_the_await(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Parent", "fail", "p");
    expect_failure(w, "p", DUR_EFAILED, "child cannot");
}

static void many_children(void **state) {
    world *w = *state;
    char count[32];
    snprintf(count, sizeof(count), "%zu", scaled(500, 40));
    RUN(w, handlers);
    start(w, "FanChildren", count, "f");
    expect(w, "f", count);
}

static void children_a_hundred_deep(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Deep", "100", "d");
    expect(w, "d", "bottom");
}

static void a_detached_start_answers_nobody(void **state) {
    world *w = *state;
    dur_instance_info *info = NULL;
    RUN(w, handlers);
    start(w, "Detach", "x", "d");
    OK(w, dur_client_wait(&info, w->client, "d", patience_ms(), &w->err));
    expect(w, "detached", "<x>");
    const char *unnamed = strchr(info->output, ' ') + 1;
    expect(w, unnamed, "<x>");
    expect(w, "detached", "<x>");
    dur_instance_info_free(info);
    OK(w, dur_client_info(&info, w->client, "detached", &w->err));
    assert_null(info->parent);
    dur_instance_info_free(info);
}

static void children_of_every_generation(void **state) {
    world *w = *state;
    dur_execution_list *list = NULL;
    RUN(w, handlers, .double_run = true);
    start(w, "Generations", "1", "g");
    expect(w, "g", "<5> in execution 5");
    OK(w, dur_client_executions(&list, w->client, "g", &w->err));
    assert_int_equal(list->count, 5);
    assert_int_equal(list->items[0]->status, DUR_EXECUTION_CONTINUED_AS_NEW);
    assert_int_equal(list->items[4]->status, DUR_EXECUTION_COMPLETED);
    dur_execution_list_free(list);
}

static void versions_by_policy_and_by_name(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "AskVersions", "", "a");
    expect(w, "a", "10.0.0 1.0.0");
    OK(w, dur_client_start(w->client, &w->err, "Versioned", "up", .instance = "v", .version = "1.0.0"));
    expect(w, "v", "2.0.0");
}

static void a_dropped_child_is_cancelled(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "GivesUpChild", "", "g");
    expect(w, "g", "gave up");
    expect_failure(w, "given-up", DUR_ECANCELLED, "parent");
}

static void patch_markers_split_old_from_new(void **state) {
    world *w = *state;
    const dur_handler before[] = { DUR_ORCHESTRATION("P", "1.0.0", patched_before), DUR_HANDLERS_END };
    const dur_handler now[] = { DUR_ORCHESTRATION("P", "1.0.0", patched_now), DUR_HANDLERS_END };
    RUN(w, before);
    start(w, "P", "a", "a");
    until_history(w, "a", "\"ExternalSubscribed\"", 1);
    world_stop(w);
    RUN(w, now, .double_run = true);
    start(w, "P", "b", "b");
    until_history(w, "b", "\"ExternalSubscribed\"", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "a", "Go", ""));
    OK(w, dur_client_pulse(w->client, &w->err, "b", "Go", ""));
    expect(w, "a", "a old");
    expect(w, "b", "b new");
}

/* Handlers without the children: their starts are written and nobody takes them. */
static const dur_handler childless[] = {
    DUR_ORCHESTRATION("Parent", "1.0.0", parent),
    DUR_HANDLERS_END,
};

static void a_child_that_has_not_begun_goes_with_its_parent(void **state) {
    world *w = *state;
    dur_id_list *tree = NULL;
    dur_instance_info *info = NULL;
    RUN(w, childless);
    start(w, "Parent", "x", "p");
    until_history(w, "p", "\"SubOrchestrationScheduled\"", 2);
    start(w, "Child", "", "q-kid"); /* somebody else's, although the history of q will name it */
    start(w, "Parent", "x", "q");
    until_history(w, "q", "\"SubOrchestrationScheduled\"", 2);
    OK(w, dur_client_tree(&tree, w->client, "p", &w->err));
    assert_int_equal(tree->count, 3);
    dur_id_list_free(tree);
    assert_int_equal(dur_client_delete(NULL, w->client, "p", false, &w->err), DUR_ERUNNING);
    OK(w, dur_client_delete(NULL, w->client, "p", true, &w->err));
    assert_int_equal(dur_client_info(&info, w->client, "p-kid", &w->err), DUR_ENOTFOUND);
    OK(w, dur_client_delete(NULL, w->client, "q", true, &w->err));
    world_stop(w);
    RUN(w, handlers);
    expect(w, "q-kid", "<>");
    dur_store_counts counts = { .size = sizeof(counts) };
    OK(w, dur_client_counts(&counts, w->client, &w->err));
    assert_int_equal(counts.total_instances, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(children_answer_their_parent),   TEST(a_child_that_has_not_begun_goes_with_its_parent),
        TEST(a_failed_child_fails_the_await), TEST(many_children),
        TEST(children_a_hundred_deep),        TEST(a_detached_start_answers_nobody),
        TEST(children_of_every_generation),   TEST(versions_by_policy_and_by_name),
        TEST(a_dropped_child_is_cancelled),   TEST(patch_markers_split_old_from_new),
    };
    return cmocka_run_group_tests_name("e2e_children", tests, NULL, NULL);
}
