/*
 * test_runtime_orphans.c: children whose parent was deleted, on a store that has neither lanes nor arrays.  What all
 * stores of the library promise is in tests/hostile/hostile_identity.c.
 */
#include "e2e/harness.h"

#include "support/faulty.h"
#include <durite/sys/store.h>

static dur_outcome kid(dur_ctx *ctx, const char *input) {
    return dur_completef(ctx, "kid %s", input);
}

static dur_outcome parent(dur_ctx *ctx, const char *input) {
    dur_future *call = dur_orchestration(ctx, "Kid", input);
    if (strcmp(input, "new") == 0) return dur_complete(ctx, dur_await(call));
    dur_detach(call);
    dur_await(dur_pulse(ctx, "End"));
    return dur_complete(ctx, "left");
}

static const dur_handler only_parents[] = {
    DUR_ORCHESTRATION("Parent", "1.0.0", parent),
    DUR_HANDLERS_END,
};
static const dur_handler family[] = {
    DUR_ORCHESTRATION("Parent", "1.0.0", parent),
    DUR_ORCHESTRATION("Kid", "1.0.0", kid),
    DUR_HANDLERS_END,
};

static void hide(world *w, const char *method) {
    assert_int_equal(dur__faulty_hide(w->store, method), DUR_OK);
}

/* The old child's start and the new one's are fetched together; an ack takes all that was fetched. */
static void a_new_parent_on_required_methods(void **state) {
    world *w = *state;
    dur_client_free(w->client);
    OK(w, dur__faulty_wrap(&w->store, w->store, 1, &w->err));
    hide(w, "lane_open");
    hide(w, "commit_turns");
    hide(w, "fetch_turns");
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    RUN(w, only_parents);
    start(w, "Parent", "leaves", "p");
    until_history(w, "p", "SubOrchestrationScheduled", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "p", "End"));
    expect(w, "p", "left");
    OK(w, dur_client_delete(NULL, w->client, "p", false, &w->err));
    start(w, "Parent", "new", "p");
    until_history(w, "p", "SubOrchestrationScheduled", 1);
    world_stop(w);
    RUN(w, family);
    expect(w, "p", "kid new");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_new_parent_on_required_methods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
