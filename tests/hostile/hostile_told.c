/*
 * hostile_told.c: what a client does on purpose is no error of the node that it is done to (H103, H129); what keeps an
 * instance from its end is told to whoever waits (H163).
 */
#include "hostile.h"

#include <pthread.h>

enum { MESSAGES = 80 }; /* more than come with an acquisition: the node reads on in the queue */

static atomic_bool has_begun, may_go_on;
static atomic_uint loud;

static void listen_for_errors(void *data, const dur_log_record *line) {
    (void)data;
    if (line->level > DUR_LOG_WARN || strstr(line->message, "has not come back") != NULL) return;
    atomic_fetch_add(&loud, 1);
    print_message("%s %s\n", dur_log_level_name(line->level), line->message);
}

/* Stands still in its first turn, until the test has taken its lease away. */
static dur_outcome reads_all(dur_ctx *ctx, const char *input) {
    atomic_store(&has_begun, true);
    for (uint64_t end_ms = now_ms() + patience_ms(); !atomic_load(&may_go_on) && now_ms() < end_ms;)
        pause_ms(1);
    const char *value = NULL;
    unsigned count = 0;
    (void)input;
    while (dur_try_message(ctx, "box", &value) == DUR_OK)
        count++;
    return dur_completef(ctx, "%u", count);
}

static dur_outcome stands_still(dur_act *act, const char *input) {
    (void)input;
    atomic_store(&has_begun, true);
    for (uint64_t end_ms = now_ms() + patience_ms(); !atomic_load(&may_go_on) && now_ms() < end_ms;)
        pause_ms(1);
    return dur_act_complete(act, "late");
}

static dur_outcome drops(dur_ctx *ctx, const char *input) {
    dur_future *activity = dur_activity(ctx, "StandsStill", "");
    (void)input;
    (void)dur_await(dur_message(ctx, "box"));
    dur_drop(activity);
    dur_status_set(ctx, "dropped");
    (void)dur_await(dur_message(ctx, "box"));
    return dur_complete(ctx, "done");
}

/* "A/B/C": A of "B/C", and so on; the last name may be one that nobody has. */
static dur_outcome calls(dur_ctx *ctx, const char *input) {
    char name[64];
    size_t size = strcspn(input, "/");
    snprintf(name, sizeof(name), "%.*s", (int)size, input);
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, name, input[size] != 0 ? input + size + 1 : "")));
}

static dur_outcome mistaken(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "StandStill", input)));
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("ReadsAll", "1.0.0", reads_all), DUR_ORCHESTRATION("Drops", "1.0.0", drops),
    DUR_ORCHESTRATION("Calls", "1.0.0", calls),        DUR_ORCHESTRATION("Mistaken", "1.0.0", mistaken),
    DUR_ACTIVITY("StandsStill", stands_still),         DUR_HANDLERS_END
};

/* It runs, and stands still. */
static void begin(world *w) {
    dur_log_set_sink(listen_for_errors, NULL, DUR_LOG_DEBUG);
    RUN(w, handlers);
    while (!atomic_load(&has_begun))
        pause_ms(1);
}

static void fault_h103_whose_instance_is_suspended_says_no_error(void **state) {
    world *w = *state;
    NEEDS_THREADS("a handler stands still while a client calls");
    atomic_store(&has_begun, false);
    atomic_store(&may_go_on, false);
    atomic_store(&loud, 0);
    start(w, "ReadsAll", "", "a");
    for (int i = 0; i < MESSAGES; i++)
        OK(w, dur_client_send(w->client, &w->err, "a", "box", "x"));
    begin(w);
    OK(w, dur_client_suspend(w->client, "a", "why not", &w->err));
    atomic_store(&may_go_on, true);
    OK(w, dur_client_resume(w->client, "a", &w->err));
    expect(w, "a", "80");
    dur_log_set_sink(NULL, NULL, DUR_LOG_DEBUG);
    assert_int_equal(atomic_load(&loud), 0);
}

static dur_metrics metrics(world *w) {
    dur_metrics out = { .size = sizeof(out) };
    OK(w, dur_runtime_metrics(&out, w->runtime, &w->err));
    return out;
}

static void until_parked(world *w, uint64_t count) {
    while (metrics(w).parked != count)
        pause_ms(1);
}

static void until_dropped(world *w) {
    for (bool dropped = false; !dropped; pause_ms(1)) {
        dur_instance_info *info = NULL;
        OK(w, dur_client_info(&info, w->client, "a", &w->err));
        dropped = info->custom_status != NULL && strcmp(info->custom_status, "dropped") == 0;
        dur_instance_info_free(info);
    }
}

/* The activity runs through two leases of its instance, and is dropped under the second. */
static void fault_h129_the_end_of_a_dropped_activity_is_nobodys(void **state) {
    world *w = *state;
    NEEDS_THREADS("an activity stands still while a client calls");
    atomic_store(&has_begun, false);
    atomic_store(&may_go_on, false);
    atomic_store(&loud, 0);
    start(w, "Drops", "", "a");
    begin(w);
    until_parked(w, 1);
    OK(w, dur_client_suspend(w->client, "a", "why not", &w->err));
    until_parked(w, 0);
    OK(w, dur_client_resume(w->client, "a", &w->err));
    OK(w, dur_client_send(w->client, &w->err, "a", "box", "drop"));
    until_dropped(w);
    atomic_store(&may_go_on, true);
    while (metrics(w).activities_running > 0)
        pause_ms(1);
    OK(w, dur_client_send(w->client, &w->err, "a", "box", "end"));
    expect(w, "a", "done");
    dur_log_set_sink(NULL, NULL, DUR_LOG_DEBUG);
    assert_int_equal(atomic_load(&loud), 0);
}

/* Sooner or later: at first the child is not there. */
static void says(world *w, const char *instance, const char *what) {
    uint64_t end_ms = now_ms() + patience_ms();
    char *text = NULL;
    do
        assert_int_not_equal(dur_client_result(&text, w->client, instance, 200, &w->err), DUR_OK);
    while (strstr(w->err.message, what) == NULL && now_ms() < end_ms);
    if (strstr(w->err.message, what) == NULL) fail_msg("\"%s\" is not in: %s", what, w->err.message);
}

typedef struct runner {
    world *w;
    dur_error err;
    int code;
    atomic_bool done;
} runner;

static void *run_without_limit(void *arg) {
    runner *r = arg;
    char *text = NULL;
    r->code = dur_client_run(&text, r->w->client, &r->err, "Calls", "Calls/Mistaken", .instance = "deep");
    dur_free(text);
    atomic_store(&r->done, true);
    return NULL;
}

static void fault_h163_a_name_that_nobody_has_is_said_from_below(void **state) {
    world *w = *state;
    pthread_t thread;
    dur_error err = DUR_ERROR_INIT;
    static runner r; /* outlives a failure */
    NEEDS_THREADS("a client waits without a limit");
    r = (runner){ .w = w, .err = DUR_ERROR_INIT };
    RUN(w, handlers);
    assert_int_equal(pthread_create(&thread, NULL, run_without_limit, &r), 0);
    start(w, "Calls", "Mistakes", "child");
    says(w, "child", "has the handler \"Mistakes\", which its child \"child::");
    assert_non_null(strstr(w->err.message, "did you mean \"Mistaken\"?"));
    start(w, "Calls", "Mistaken", "activity");
    says(w, "activity", "has the handler \"StandStill\", which its child \"activity::");
    for (uint64_t end_ms = now_ms() + patience_ms(); !atomic_load(&r.done) && now_ms() < end_ms;)
        pause_ms(10);
    while (!atomic_load(&r.done)) { /* or it waits for ever */
        (void)dur_client_terminate(w->client, "deep", "nobody said why", &err);
        pause_ms(100);
    }
    pthread_join(thread, NULL);
    assert_int_equal(r.code, DUR_ETIMEOUT);
    if (strstr(r.err.message, "\"StandStill\", which its child \"deep::") == NULL) fail_msg("%s", r.err.message);
}

/* What no client call could name, and no node could serve, is a wrong argument, and not an instance that waits for it.
 */
static dur_outcome names(dur_ctx *ctx, const char *what) {
    if (strcmp(what, "start") == 0)
        (void)dur_start(ctx, "Names", "",
                        .instance = "a\x01"
                                    "b");
    if (strcmp(what, "child") == 0) (void)dur_await(dur_orchestration(ctx, "Names", "", .instance = "a\nb"));
    if (strcmp(what, "message") == 0) (void)dur_await(dur_message(ctx, "M\t"));
    if (strcmp(what, "pulse") == 0) (void)dur_await(dur_pulse(ctx, "P\x7f"));
    if (strcmp(what, "activity") == 0) (void)dur_await(dur_activity(ctx, "A\r", ""));
    if (strcmp(what, "version") == 0) (void)dur_await(dur_orchestration(ctx, "Names", "", .version = "1.0"));
    if (strcmp(what, "next") == 0) return dur_continue_as_new(ctx, "", .version = "v1.0.0");
    return dur_complete(ctx, what);
}

static void fault_h166_a_handler_names_only_what_others_can_name(void **state) {
    world *w = *state;
    static const dur_handler only[] = { DUR_ORCHESTRATION("Names", "1.0.0", names), DUR_HANDLERS_END };
    static const char *const wrong[] = { "start", "child", "message", "pulse", "activity", "version", "next" };
    RUN(w, only);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char *out = NULL;
        start(w, "Names", wrong[i], wrong[i]);
        assert_int_equal(dur_client_result(&out, w->client, wrong[i], patience_ms(), &w->err), DUR_EFAILED);
        bool told = strstr(w->err.message, "control character") != NULL ||
                    strstr(w->err.message, "is not MAJOR.MINOR.PATCH") != NULL;
        if (!told) fail_msg("%s: %s", wrong[i], w->err.message);
    }
    static const dur_handler odd[] = { DUR_ORCHESTRATION("Na\x02mes", "1.0.0", names), DUR_HANDLERS_END };
    static const dur_handler deep[] = { { .size = sizeof(dur_handler),
                                          .kind = DUR_HANDLER_ORCHESTRATION,
                                          .name = "Names",
                                          .version = "1.0.0",
                                          .orchestration = names,
                                          .stack_bytes = (size_t)1 << 40 },
                                        DUR_HANDLERS_END };
    dur_runtime *runtime = NULL;
    assert_int_equal(dur_runtime_start(&runtime, DUR_RUNTIME(.store = w->store, .handlers = odd), &w->err), DUR_EINVAL);
    assert_int_equal(dur_runtime_start(&runtime, DUR_RUNTIME(.store = w->store, .handlers = deep), &w->err),
                     DUR_EINVAL);
}

static dur_client *inside;

/* A client's wait in a handler: without a limit it is refused, before anything begins. */
static dur_outcome waits_inside(dur_ctx *ctx, const char *input) {
    dur_error err = DUR_ERROR_INIT;
    dur_instance_info *info = NULL;
    char *out = NULL;
    const char *self = dur_instance_id(ctx);
    int run = dur_client_run(&out, inside, &err, "Names", input, .instance = "begun-inside");
    int result = dur_client_result(&out, inside, self, UINT64_MAX, &err);
    int wait = dur_client_wait(&info, inside, self, UINT64_MAX, &err);
    int kv = dur_client_kv_wait(&out, inside, self, "k", UINT64_MAX, &err);
    int limited = dur_client_result(&out, inside, self, 1, &err);
    return dur_completef(ctx, "%s %s %s %s %s", dur_code_name(run), dur_code_name(result), dur_code_name(wait),
                         dur_code_name(kv), limited == DUR_EDEADLK ? "refused" : "looked");
}

static void a_wait_without_a_limit_is_refused_in_a_handler(void **state) {
    world *w = *state;
    dur_instance_info *info = NULL;
    static const dur_handler only[] = { DUR_ORCHESTRATION("WaitsInside", "1.0.0", waits_inside),
                                        DUR_ORCHESTRATION("Names", "1.0.0", names), DUR_HANDLERS_END };
    NEEDS_THREADS("a client's wait, in the loop's thread");
    inside = w->client;
    RUN(w, only);
    start(w, "WaitsInside", "", "w");
    expect(w, "w", "DUR_EDEADLK DUR_EDEADLK DUR_EDEADLK DUR_EDEADLK looked");
    assert_int_equal(dur_client_info(&info, w->client, "begun-inside", &w->err), DUR_ENOTFOUND);
}

static const struct CMUnitTest tests[] = { TEST(a_wait_without_a_limit_is_refused_in_a_handler),
                                           TEST(fault_h166_a_handler_names_only_what_others_can_name),
                                           TEST(fault_h163_a_name_that_nobody_has_is_said_from_below),
                                           TEST(fault_h103_whose_instance_is_suspended_says_no_error),
                                           TEST(fault_h129_the_end_of_a_dropped_activity_is_nobodys) };

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
