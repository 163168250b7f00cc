/*
 * hostile_ids.c: whatever a handler begins can be named, stopped and deleted from outside (H183, H184).
 */
#include "hostile.h"

#include <durite/sys/provider_methods.h>
#include <durite/sys/store.h>

enum { LONGEST = 1024, ROOM = 50, DEEPEST = 256 };

/* "child", "start": under an id that the library makes; "given": under one of the handler's own. */
static dur_outcome begins(dur_ctx *ctx, const char *input) {
    if (strcmp(input, "kid") == 0) return dur_complete(ctx, dur_instance_id(ctx));
    if (strcmp(input, "start") == 0) return dur_complete(ctx, dur_start(ctx, "Begins", "kid"));
    if (strcmp(input, "given") == 0)
        return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Begins", "kid", .instance = "given")));
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Begins", "kid")));
}

/* The refusal is the branch's: the handler may go on, and what comes behind it is replayed. */
static dur_outcome asks(dur_ctx *ctx, void *arg) {
    (void)arg;
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Begins", "kid")));
}
static dur_outcome goes_on(dur_ctx *ctx, const char *input) {
    const char *value = "";
    dur_code code = dur_try(dur_spawn(ctx, asks, NULL), &value);
    (void)dur_await(dur_orchestration(ctx, "Begins", "kid", .instance = input));
    return dur_completef(ctx, "%s, then %s", dur_code_name(code), dur_await(dur_message(ctx, "go")));
}

static char *id_of(char letter, size_t size) {
    static char id[LONGEST + 1];
    memset(id, letter, size);
    id[size] = '\0';
    return id;
}

static void fault_h183_what_begins_has_an_id_that_calls_can_name(void **state) {
    world *w = *state;
    static const dur_handler only[] = { DUR_ORCHESTRATION("Begins", "1.0.0", begins),
                                        DUR_ORCHESTRATION("GoesOn", "1.0.0", goes_on), DUR_HANDLERS_END };
    static const char *const made[] = { "child", "start" };
    RUN(w, only);
    for (size_t i = 0; i < 2; i++) {
        char *id = id_of(*made[i], LONGEST - ROOM + 1), *began = NULL;
        start(w, "Begins", made[i], id);
        expect_failure(w, id, DUR_EFAILED, "974 leave room for the rest: give .instance");
        id = id_of(*made[i], LONGEST - ROOM);
        start(w, "Begins", made[i], id);
        OK(w, result_of(w, id, &began));
        dur_instance_info *info = NULL;
        OK(w, dur_client_info(&info, w->client, began, &w->err));
        dur_instance_info_free(info);
        dur_free(began);
    }
    start(w, "Begins", "given", id_of('g', LONGEST));
    expect(w, id_of('g', LONGEST), "given");
}

static void fault_h183_a_refused_child_is_refused_in_replay(void **state) {
    world *w = *state;
    static const dur_handler only[] = { DUR_ORCHESTRATION("Begins", "1.0.0", begins),
                                        DUR_ORCHESTRATION("GoesOn", "1.0.0", goes_on), DUR_HANDLERS_END };
    char *id = id_of('r', LONGEST);
    RUN(w, only);
    start(w, "GoesOn", "other", id);
    until_history(w, id, "ExternalSubscribedPersistent", 1);
    OK(w, dur_runtime_stop(w->runtime, patience_ms(), &w->err));
    w->runtime = NULL;
    RUN(w, only);
    OK(w, dur_client_send(w->client, &w->err, id, "go", "on"));
    expect(w, id, "DUR_EFAILED, then on");
}

/* Calls itself, under ids that do not grow. */
static dur_outcome endless(dur_ctx *ctx, const char *input) {
    const char *next = dur_format(ctx, "%ld", strtol(input, NULL, 10) + 1);
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Endless", next, .instance = next)));
}

static void fault_h184_an_endless_recursion_ends(void **state) {
    world *w = *state;
    static const dur_handler only[] = { DUR_ORCHESTRATION("Endless", "1.0.0", endless), DUR_HANDLERS_END };
    RUN(w, only);
    start(w, "Endless", "0", "0");
    expect_failure(w, "0", DUR_EFAILED, "256 parents are above this instance");
    dur_instance_info *info = NULL;
    OK(w, dur_client_info(&info, w->client, "256", &w->err));
    dur_instance_info_free(info);
    assert_int_equal(dur_client_info(&info, w->client, "257", &w->err), DUR_ENOTFOUND);
    dur_deleted deleted = { .size = sizeof(deleted) };
    OK(w, dur_client_delete(&deleted, w->client, "0", false, &w->err));
    assert_int_equal(deleted.instances, DEEPEST + 1);
}

static void until_none_runs(world *w) {
    dur_store_counts counts = { .size = sizeof(counts), .running = 1 };
    for (uint64_t end_ms = now_ms() + patience_ms(); counts.running > 0; pause_ms(5)) {
        OK(w, dur_client_counts(&counts, w->client, &w->err));
        if (now_ms() > end_ms) fail_msg("%llu still run", (unsigned long long)counts.running);
    }
}

static void fault_h184_what_is_deep_can_be_stopped_while_it_grows(void **state) {
    world *w = *state;
    static const dur_handler only[] = { DUR_ORCHESTRATION("Endless", "1.0.0", endless), DUR_HANDLERS_END };
    RUN(w, only);
    start(w, "Endless", "0", "0");
    until_history(w, "0", "SubOrchestrationScheduled", 1);
    OK(w, dur_client_terminate(w->client, "0", "enough", &w->err));
    until_none_runs(w);
    OK(w, dur_client_delete(NULL, w->client, "0", true, &w->err));
    start(w, "Endless", "0", "0");
    until_history(w, "0", "SubOrchestrationScheduled", 1);
    int code;
    do { /* a child that is born between the look and the deletion makes it look again, and give up at last */
        code = dur_client_delete(NULL, w->client, "0", true, &w->err);
    } while (code == DUR_ECHILD || code == DUR_EBUSY || code == DUR_ECONFLICT);
    OK(w, code);
    until_none_runs(w);
}

static dur_provider_methods growing;
static const dur_provider_methods *real_methods;

/* Below each instance there is one more, which has just begun: what no limit of ours holds up. */
static int one_more(dur_provider *self, dur_arena *arena, const dur_instance_query *query, dur_instance_row **out,
                    size_t *count, dur_error *err) {
    if (query->parent == NULL) return real_methods->list_instances(self, arena, query, out, count, err);
    *count = query->after == NULL;
    *out = dur_arena_zalloc(arena, sizeof(**out));
    (*out)->instance_id = dur_arena_format(arena, "%ld", strtol(query->parent, NULL, 10) + 1);
    (*out)->parent_instance_id = query->parent;
    (*out)->birth = 1;
    (*out)->created_at_ms = dur_store_now_ms(self) + 1000;
    return DUR_OK;
}

static void fault_h184_a_tree_that_grows_while_it_is_read_is_given_up(void **state) {
    world *w = *state;
    dur_id_list *ids = NULL;
    start(w, "Begins", "kid", "0"); /* nobody runs it */
    real_methods = w->store->methods;
    memcpy(&growing, real_methods, real_methods->size < sizeof(growing) ? real_methods->size : sizeof(growing));
    growing.list_instances = one_more;
    w->store->methods = &growing;
    int deleted = dur_client_delete(NULL, w->client, "0", true, &w->err);
    w->store->methods = real_methods;
    assert_int_equal(deleted, DUR_EBUSY);
    assert_non_null(strstr(w->err.message, "as fast as they are looked for"));
    assert_true(w->err.retryable);
    OK(w, dur_client_tree(&ids, w->client, "0", &w->err));
    assert_int_equal(ids->count, 1);
    dur_id_list_free(ids);
}

static const struct CMUnitTest tests[] = { TEST(fault_h183_what_begins_has_an_id_that_calls_can_name),
                                           TEST(fault_h183_a_refused_child_is_refused_in_replay),
                                           TEST(fault_h184_an_endless_recursion_ends),
                                           TEST(fault_h184_what_is_deep_can_be_stopped_while_it_grows),
                                           TEST(fault_h184_a_tree_that_grows_while_it_is_read_is_given_up) };

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
