/*
 * hostile_identity.c: an id alone does not say which instance is meant: the same id is called again by a later
 * execution, deleted and started again, or belongs to somebody else.
 */
#include "hostile.h"

static dur_outcome kid(dur_ctx *ctx, const char *input) {
    return dur_completef(ctx, "kid %s", input);
}

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    return dur_completef(ctx, "%s %s", input, dur_await(dur_event(ctx, "Go")));
}

static const char *outcome(dur_ctx *ctx, dur_future *call) {
    const char *value = "";
    dur_code code = dur_try(call, &value);
    return code == DUR_OK ? value : dur_format(ctx, "%s: %s", dur_code_name(code), dur_reason(call));
}

/* ---- H5: the call of an earlier execution is another call ---- */

/* Each of three executions makes the same call, at the same place of its history, to a child that has ended or (when
   the call was given up in time) still runs. */
static dur_outcome eternal(dur_ctx *ctx, const char *input) {
    unsigned long n = strtoul(input, NULL, 10);
    const char *said = outcome(ctx, dur_orchestration(ctx, "Kid", "of all", .instance = "shared-kid"));
    if (n < 3) {
        dur_kv_set(ctx, dur_format(ctx, "said%lu", n), said);
        return dur_continue_as_new(ctx, dur_format(ctx, "%lu", n + 1));
    }
    return dur_completef(ctx, "%s | %s | %s", dur_kv_get(ctx, "said1"), dur_kv_get(ctx, "said2"), said);
}

static dur_outcome eternal_detached(dur_ctx *ctx, const char *input) {
    dur_future *call = dur_orchestration(ctx, "Waits", "running", .instance = "running-kid");
    if (strcmp(input, "1") == 0) {
        dur_detach(call);
        dur_await(dur_event(ctx, "On")); /* the call has left */
        return dur_continue_as_new(ctx, "2");
    }
    return dur_complete(ctx, outcome(ctx, call));
}

static const dur_handler generations[] = {
    DUR_ORCHESTRATION("Kid", "1.0.0", kid),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("Eternal", "1.0.0", eternal),
    DUR_ORCHESTRATION("EternalDetached", "1.0.0", eternal_detached),
    DUR_HANDLERS_END,
};

#define TAKEN "DUR_EFAILED: instance \"shared-kid\" already exists"

static void fault_h05_a_later_execution_is_told_that_its_child_exists(void **state) {
    world *w = *state;
    RUN(w, generations);
    start(w, "Eternal", "1", "eternal");
    expect(w, "eternal", "kid of all | " TAKEN " | " TAKEN);
}

static void fault_h05_also_while_the_child_runs(void **state) {
    world *w = *state;
    RUN(w, generations);
    start(w, "EternalDetached", "1", "eternal");
    until_history(w, "running-kid", "ExternalSubscribed", 1);
    OK(w, dur_client_raise(w->client, &w->err, "eternal", "On"));
    expect(w, "eternal", "DUR_EFAILED: instance \"running-kid\" already exists");
    OK(w, dur_client_raise(w->client, &w->err, "running-kid", "Go", "on"));
    expect(w, "running-kid", "running on");
}

/* ---- H7: giving up a call never touches somebody else's instance ---- */

static dur_outcome tries_for(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_code_name(dur_try_for(dur_orchestration(ctx, "Waits", "", .instance = input), 1, NULL)));
}

static dur_outcome selects(dur_ctx *ctx, const char *input) {
    dur_future *call = dur_orchestration(ctx, "Waits", "", .instance = input), *now = dur_timer(ctx, 1);
    dur_select(now, call);
    return dur_complete(ctx, "");
}

static dur_outcome sleeps_and_ends(dur_ctx *ctx, const char *input) {
    dur_orchestration(ctx, "Waits", "", .instance = input);
    dur_await(dur_timer(ctx, 1));
    return dur_complete(ctx, "");
}

static dur_outcome calls(dur_ctx *ctx, const char *input) {
    dur_future *call = dur_orchestration(ctx, "Waits", "", .instance = input);
    dur_await(dur_event(ctx, "Go"));
    return dur_complete(ctx, outcome(ctx, call));
}

static const dur_handler strangers[] = {
    DUR_ORCHESTRATION("Kid", "1.0.0", kid),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("TriesFor", "1.0.0", tries_for),
    DUR_ORCHESTRATION("Selects", "1.0.0", selects),
    DUR_ORCHESTRATION("SleepsAndEnds", "1.0.0", sleeps_and_ends),
    DUR_ORCHESTRATION("Calls", "1.0.0", calls),
    DUR_HANDLERS_END,
};

static int ended(world *w, const char *instance) {
    char *result = NULL;
    int code = result_of(w, instance, &result);
    dur_free(result);
    return code;
}

/* The foreign instance has begun and is suspended while others call it and give up, so that calls are still open then;
   resumed it has all their messages before it, and goes on as if nobody had called. */
static void fault_h07_giving_up_a_call_leaves_a_foreign_instance_alone(void **state) {
    static const char *const callers[] = { "TriesFor", "Selects", "SleepsAndEnds" };
    world *w = *state;
    RUN(w, strangers);
    start(w, "Waits", "mine", "foreign");
    until_history(w, "foreign", "ExternalSubscribed", 1);
    OK(w, dur_client_suspend(w->client, "foreign", "so that nobody is answered", &w->err));
    for (size_t i = 0; i < sizeof(callers) / sizeof(callers[0]); i++) {
        start(w, callers[i], "foreign", callers[i]);
        assert_int_equal(ended(w, callers[i]), DUR_OK);
    }
    start(w, "Calls", "foreign", "cancelled");
    until_history(w, "cancelled", "ExternalSubscribed", 1);
    OK(w, dur_client_cancel(w->client, "cancelled", "enough", &w->err));
    assert_int_equal(ended(w, "cancelled"), DUR_ECANCELLED);
    start(w, "Calls", "foreign", "terminated");
    until_history(w, "terminated", "ExternalSubscribed", 1);
    OK(w, dur_client_terminate(w->client, "terminated", "enough", &w->err));
    assert_int_equal(ended(w, "terminated"), DUR_ECANCELLED);
    OK(w, dur_client_resume(w->client, "foreign", &w->err));
    OK(w, dur_client_raise(w->client, &w->err, "foreign", "Go", "and free"));
    expect(w, "foreign", "mine and free");
}

/* Whose own call it is, is still cancelled, however it is given up. */
static void fault_h07_giving_up_a_call_cancels_its_own_child(void **state) {
    static const char *const callers[] = { "TriesFor", "Selects", "SleepsAndEnds" };
    world *w = *state;
    RUN(w, strangers);
    for (size_t i = 0; i < sizeof(callers) / sizeof(callers[0]); i++) {
        char id[64];
        snprintf(id, sizeof(id), "own-%s", callers[i]);
        start(w, callers[i], id, callers[i]);
        assert_int_equal(ended(w, callers[i]), DUR_OK);
        int code = ended(w, id);
        /* A call that was given up before it left was never made. */
        assert_true(code == DUR_ECANCELLED || code == DUR_ENOTFOUND);
    }
    start(w, "Calls", "own-terminated", "terminated");
    until_history(w, "own-terminated", "ExternalSubscribed", 1);
    OK(w, dur_client_terminate(w->client, "terminated", "enough", &w->err));
    assert_int_equal(ended(w, "own-terminated"), DUR_ECANCELLED);
}

static int no_role(const char *url, long number) {
    (void)url;
    (void)number;
    return 127;
}

static const hostile_role roles[] = {
    { "none", no_role },
};

static const struct CMUnitTest tests[] = {
    TEST(fault_h05_a_later_execution_is_told_that_its_child_exists),
    TEST(fault_h05_also_while_the_child_runs),
    TEST(fault_h07_giving_up_a_call_leaves_a_foreign_instance_alone),
    TEST(fault_h07_giving_up_a_call_cancels_its_own_child),
};

HOSTILE_MAIN(roles, tests)
