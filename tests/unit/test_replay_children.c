/* Sub-orchestrations and detached starts: ids, versions, parents, answers. */
#include "replay_driver.h"

static dur_outcome parent(dur_ctx *ctx, const char *input) {
    dur_future *automatic = dur_orchestration(ctx, "Auto", input), *named = NULL;
    named = dur_orchestration(ctx, "Named", "two", .version = "2.0.0", .instance = "own-id");
    const char *started = dur_start(ctx, "Free", "three", .version = "3.1.0");
    const char *given = dur_start(ctx, "Free", "four", .instance = "free-id");
    const char *one = dur_await(automatic);
    const char *value = "";
    dur_code code = dur_try(named, &value);
    return dur_completef(ctx, "%s %s %s %s %s", one, dur_code_name((int)code), dur_reason(named), started, given);
}

static void run_parent(uint64_t execution, const char *child, const char *start) {
    driver d;
    driver_init(&d, parent);
    d.options.execution_id = execution;
    driver_start(&d, "one");
    char part[128];
    snprintf(part, sizeof(part), "\"instance\":\"%s\"", child);
    assert_true(driver_sent(&d, "o@0 {\"StartOrchestration\"", part));
    snprintf(part, sizeof(part), "\"parent_instance\":\"inst\",\"parent_id\":2");
    assert_true(driver_sent(&d, "o@0 {\"StartOrchestration\"", part));
    snprintf(part, sizeof(part), "\"parent_execution_id\":%llu", (unsigned long long)execution);
    assert_true(driver_sent(&d, "o@0 {\"StartOrchestration\"", part));
    assert_true(driver_sent(&d, "o@0 {\"StartOrchestration\"", "\"instance\":\"own-id\""));
    assert_string_equal(driver_event(&d, 2).instance, child); /* history holds the whole id, and the version */
    assert_null(driver_event(&d, 2).version);
    assert_string_equal(driver_event(&d, 3).version, "2.0.0");
    assert_string_equal(driver_event(&d, 4).version, "3.1.0");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_child_done(&d, 2, "ok");
    dur_failure failure = { .category = DUR_FAILURE_APPLICATION,
                            .kind = DUR_FAILURE_ORCHESTRATION_FAILED,
                            .message = "child broke" };
    driver_offer(&d, &(dur_work_item){
                         .kind = DUR_WORK_SUB_ORCH_FAILED, .execution_id = execution, .id = 3, .details = &failure });
    driver_run(&d);
    char expected[256];
    snprintf(expected, sizeof(expected), "ok DUR_EFAILED child broke %s free-id", start);
    assert_string_equal(d.output, expected);
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

static void test_children(void **state) {
    (void)state;
    run_parent(1, "inst::sub::2", "inst::start::1.4");
    run_parent(7, "inst::sub::7.2", "inst::start::7.4"); /* C2: unique over generations */
}

static dur_outcome is_child(dur_ctx *ctx, const char *input) {
    const char *dad = dur_parent_instance(ctx);
    if (*input == 'c') return dur_continue_as_new(ctx, "d");
    return *input == 'f' ? dur_fail(ctx, dad) : dur_complete(ctx, dad);
}
static void answer_of(const char *input, bool has_execution, const char *begin, const char *part) {
    driver d;
    driver_init(&d, is_child);
    driver_start_ex(
        &d,
        &(dur__exec_begin){
            .input = input,
            .parent = {
                .instance = "dad", .has_id = true, .id = 5, .has_execution_id = has_execution, .execution_id = 4 } });
    if (!driver_sent(&d, begin, part)) fail_msg("sent: %s", d.item_count > 0 ? d.items[0] : "nothing");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}
static void test_answers(void **state) {
    (void)state;
    answer_of("", true, "o@0 {\"SubOrchCompleted\"",
              "\"parent_instance\":\"dad\",\"parent_execution_id\":4,\"parent_id\":5,\"result\":\"dad\"");
    answer_of("", false, "o@0 {\"SubOrchCompleted\"", "\"parent_execution_id\":1");
    answer_of("f", true, "o@0 {\"SubOrchFailed\"", "\"parent_execution_id\":4");
    answer_of("c", true, "o@0 {\"ContinueAsNew\"", "\"parent_instance\":\"dad\""); /* C4: keeps its parent */
    answer_of("c", true, "o@0 {\"ContinueAsNew\"", "\"parent_id\":5");
    answer_of("c", true, "o@0 {\"ContinueAsNew\"", "\"parent_execution_id\":4");
}

static dur_outcome waits_for_child(dur_ctx *ctx, const char *input) {
    dur_future *child = dur_orchestration(ctx, "C", input);
    dur_code code = dur_try(child, NULL);
    return dur_completef(ctx, "%s %s", dur_code_name((int)code), dur_reason(child));
}
static void test_cancelled_child(void **state) {
    (void)state;
    driver d;
    driver_init(&d, waits_for_child);
    driver_start(&d, "");
    dur_failure failure = {
        .category = DUR_FAILURE_APPLICATION, .kind = DUR_FAILURE_CANCELLED, .reason = "by hand", .message = ""
    };
    driver_offer(&d,
                 &(dur_work_item){ .kind = DUR_WORK_SUB_ORCH_FAILED, .execution_id = 1, .id = 2, .details = &failure });
    driver_run(&d);
    assert_string_equal(d.output, "DUR_ECANCELLED cancelled: by hand");
    driver_free(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_children),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_cancelled_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
