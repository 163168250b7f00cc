/*
 * hostile_gone.c: what is left to whom somebody who is gone was dear: answers to a parent that was deleted, a wait for
 * an instance that was, an instance that a client was about to delete when it died.
 */
#include "neighbour.h"

#include <durite/sys/store.h>

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_event(ctx, "go")));
}

static dur_outcome says(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}

static dur_outcome calls(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Waits", "", .instance = input)));
}

static dur_outcome asks(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Says", "", .instance = input)));
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("Says", "1.0.0", says),
    DUR_ORCHESTRATION("Calls", "1.0.0", calls),
    DUR_ORCHESTRATION("Asks", "1.0.0", asks),
    DUR_HANDLERS_END,
};

/* ---- H92: messages to an instance that does not exist ------------------------------------------------------------ */

static void until_nothing_waits(world *w) {
    for (uint64_t end_ms = now_ms() + patience_ms();; pause_ms(1)) {
        dur_queue_depths depths;
        OK(w, dur_store_get_queue_depths(w->store, &depths, &w->err));
        if (depths.orchestrator_queue + depths.timer_queue + depths.worker_queue == 0) return;
        if (now_ms() > end_ms)
            fail_msg("%llu messages wait for ever", (unsigned long long)(depths.orchestrator_queue + depths.timer_queue));
    }
}

/* p calls x, which exists and stands still. */
static void call_somebody_who_stands_still(world *w) {
    RUN(w, handlers);
    start(w, "Waits", "", "x");
    until_history(w, "x", "ExternalSubscribed", 1);
    OK(w, dur_client_suspend(w->client, "x", "stands still", &w->err));
    start(w, "Calls", "x", "p");
    until_history(w, "p", "SubOrchestrationScheduled", 1);
}

/* p is gone when x goes on and says that it is not p's. */
static void fault_h92_an_answer_to_nobody_goes_nowhere(void **state) {
    world *w = *state;
    call_somebody_who_stands_still(w);
    OK(w, dur_client_delete(NULL, w->client, "p", true, &w->err));
    OK(w, dur_client_resume(w->client, "x", &w->err));
    OK(w, dur_client_raise(w->client, &w->err, "x", "go", "gone on"));
    expect(w, "x", "gone on");
    until_nothing_waits(w);
}

/* x is gone when p, which has not heard x's answer, gives its call up. */
static void fault_h92_a_cancel_to_nobody_goes_nowhere(void **state) {
    world *w = *state;
    call_somebody_who_stands_still(w);
    OK(w, dur_client_suspend(w->client, "p", "does not hear", &w->err));
    OK(w, dur_client_resume(w->client, "x", &w->err));
    OK(w, dur_client_raise(w->client, &w->err, "x", "go", "gone on")); /* behind the call */
    expect(w, "x", "gone on");
    OK(w, dur_client_delete(NULL, w->client, "x", true, &w->err));
    OK(w, dur_client_terminate(w->client, "p", "given up", &w->err));
    until_nothing_waits(w);
}

/* Parents are deleted while their children answer: in whichever order, nothing is left, and nobody in the way. */
static void fault_h92_an_answer_beside_a_deletion_leaves_nothing(void **state) {
    world *w = *state;
    RUN(w, handlers);
    for (size_t i = 0; i < scaled(60, 10); i++) {
        start(w, "Asks", "c", "p");
        for (size_t k = 0; k < i % 6; k++)
            pause_ms(1);
        OK(w, dur_client_delete(NULL, w->client, "p", true, &w->err));
    }
    until_nothing_waits(w);
    start(w, "Asks", "c", "p");
    expect(w, "p", "");
}

/* Rows that nobody will ever look at are found, whoever wrote them. */
static void fault_h92_what_nobody_will_look_at_is_found(void **state) {
    world *w = *state;
    dur_arena *arena = dur_arena_new();
    static const dur_failure why = { .category = DUR_FAILURE_APPLICATION, .message = "refused" };
    const dur_work_item items[] = {
        { .kind = DUR_WORK_SUB_ORCH_COMPLETED, .execution_id = 1, .id = 2, .result = "42" },
        { .kind = DUR_WORK_SUB_ORCH_FAILED, .execution_id = 1, .id = 2, .details = &why },
        { .kind = DUR_WORK_CANCEL_INSTANCE, .reason = "given up" },
        { .kind = DUR_WORK_TIMER_FIRED, .execution_id = 1, .id = 2, .fire_at_ms = 1 },
        { .kind = DUR_WORK_ACTIVITY_COMPLETED, .execution_id = 1, .id = 2, .result = "42" },
    };
    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
        dur_message message;
        dur_work_item item = items[i];
        static const char *const nobody[] = { "nobody" };
        item.instance = "nobody";
        OK(w, dur_message_from_work(&message, arena, &item, &w->err));
        OK(w, dur_provider_check(w->store, &w->err));
        OK(w, dur_store_enqueue_for_orchestrator(w->store, &message, 0, &w->err));
        int code = dur_provider_check(w->store, &w->err);
        if (code != DUR_ECORRUPT || strstr(w->err.message, "nobody") == NULL)
            fail_msg("%s to nobody: %s: %s", dur_work_kind_name(item.kind), dur_code_name(code), w->err.message);
        start(w, "Waits", "", "nobody"); /* now there is somebody who looks */
        OK(w, dur_provider_check(w->store, &w->err));
        OK(w, dur_store_delete_instances(w->store, nobody, 1, true, NULL, &w->err));
    }
    dur_arena_free(arena);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(fault_h92_an_answer_to_nobody_goes_nowhere),
        TEST(fault_h92_a_cancel_to_nobody_goes_nowhere),
        TEST(fault_h92_an_answer_beside_a_deletion_leaves_nothing),
        TEST(fault_h92_what_nobody_will_look_at_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
