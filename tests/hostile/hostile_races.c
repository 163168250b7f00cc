/*
 * hostile_races.c: what somebody else does between a look and the deed that goes by it.
 *
 * Whoever comes in between is played by the test: it has the store do something first when a method is called, and
 * then what was asked.
 */
#include "neighbour.h"

#include <durite/sys/store.h>

/* ---- the store, with somebody in between ------------------------------------------------------------------------- */

static struct {
    const dur_provider_methods *real;
    dur_provider_methods mine; /* the store's table, but for what a test puts there */
    world *w;
    unsigned times; /* that somebody came in between */
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

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_event(ctx, "go")));
}

static const dur_handler handlers[] = { DUR_ORCHESTRATION("Waits", "1.0.0", waits), DUR_HANDLERS_END };

/* ---- H77: suspending what ends ----------------------------------------------------------------------------------- */

static int end_it_and_suspend(dur_provider *self, const char *instance, const char *reason, dur_error *err) {
    world *w = between.w;
    if (between.times++ == 0) {
        OK(w, dur_client_raise(w->client, &w->err, instance, "go", "done"));
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
    RUN(w, handlers);
    start(w, "Waits", "", "i");
    until_history(w, "i", "ExternalSubscribed", 1);
    OK(w, dur_client_enqueue(w->client, &w->err, "i", "box", "nobody takes it"));
    come_between(w);
    between.mine.set_suspended = end_it_and_suspend;
    w->store->methods = &between.mine;
    int code = dur_client_suspend(w->client, "i", "too late", &w->err);
    go_away(w);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(fault_h77_what_has_ended_meanwhile_is_not_suspended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
