/* Every noun and verb of orchestration.h that has no test of its own theme, live and replayed. */
#include "replay_driver.h"

/* Start, let `play` offer arrivals, evict after each step of it, expect this end. */
typedef void play_fn(driver *d);
static void expect(dur_orchestration_fn *fn, play_fn *play, dur__end end, const char *output) {
    driver d;
    driver_init(&d, fn);
    assert_int_equal(driver_start(&d, "in"), DUR_OK);
    if (play != NULL) play(&d);
    assert_int_equal(d.code, DUR_OK);
    assert_int_equal(d.end, end);
    assert_string_equal(d.output, output);
    assert_int_equal(driver_replay(&d), DUR_OK);
    assert_true(dur__exec_finished(d.exec));
    assert_int_equal(dur__exec_turn(d.exec)->event_count, 0);
    driver_free(&d);
}

/* ---- try, any, select ---- */

static dur_outcome tries(dur_ctx *ctx, const char *input) {
    const char *value = "unset";
    dur_future *one = dur_activity(ctx, "One", input);
    dur_future *two = dur_activity(ctx, "Two", input);
    dur_code first = dur_try(one, &value), again = dur_try(one, NULL);
    dur_code second = dur_try(two, NULL);
    return dur_completef(ctx, "%s %s %s %s|%s|%s", dur_code_name((int)first), dur_code_name((int)again), value,
                         dur_code_name((int)second), dur_reason(two), dur_reason(one));
}
static void play_tries(driver *d) {
    driver_fail(d, 3, "no", true);
    driver_replay(d);
    driver_done(d, 2, "yes");
}
static void test_try(void **state) {
    (void)state;
    expect(tries, play_tries, DUR__END_COMPLETED, "DUR_OK DUR_OK yes DUR_EFAILED|no|");
}

/* Both have settled when it looks: the lower settlement number wins, not the earlier argument. */
static dur_outcome select_order(dur_ctx *ctx, const char *input) {
    dur_future *a = dur_activity(ctx, "A", input), *b = NULL;
    b = dur_activity(ctx, "B", input);
    dur_await(dur_pulse(ctx, "go"));
    dur_future *winner = dur_any(a, b);
    return dur_completef(ctx, "%s %d", winner == b ? "b" : "a", dur_select(a, b) == winner);
}
static void play_order(driver *d) {
    driver_done(d, 3, "b");
    driver_done(d, 2, "a");
    driver_replay(d);
    driver_raise(d, "go", "");
}
static void test_select_takes_the_lowest_settlement(void **state) {
    (void)state;
    expect(select_order, play_order, DUR__END_COMPLETED, "b 1");
}

static dur_outcome select_drops(dur_ctx *ctx, const char *input) {
    dur_future *a = dur_activity(ctx, "A", input), *e = NULL, *q = NULL, *c = NULL, *t = NULL;
    e = dur_pulse(ctx, "e");
    q = dur_message(ctx, "q");
    c = dur_orchestration(ctx, "C", input);
    t = dur_timer(ctx, 10);
    dur_select(a, e, q, c, t);
    dur_await(dur_timer(ctx, 1));
    const char *value;
    return dur_completef(ctx, "%s %s %s", dur_code_name((int)dur_try(a, &value)), dur_code_name((int)dur_code_of(e)),
                         dur_reason(q));
}
static void test_select_drops_losers(void **state) {
    (void)state;
    driver d;
    driver_init(&d, select_drops);
    driver_start(&d, "");
    driver_fire(&d, 6);
    assert_string_equal(driver_kinds(&d),
                        "OrchestrationStarted ActivityScheduled ExternalSubscribed ExternalSubscribedPersistent "
                        "SubOrchestrationScheduled TimerCreated TimerFired(6) ActivityCancelRequested(2) "
                        "ExternalSubscribedCancelled(3) ExternalSubscribedPersistentCancelled(4) "
                        "SubOrchestrationCancelRequested(5) TimerCreated");
    assert_string_equal(driver_event(&d, 8).reason, "dropped_future");
    assert_true(driver_sent(&d, "c 2", ""));
    assert_true(driver_sent(&d, "o@0 {\"CancelInstance\"", "inst::sub::5"));
    assert_true(driver_sent(&d, "o@0 {\"CancelInstance\"", "parent dropped sub-orchestration future"));
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_done(&d, 2, "too late"); /* consumed, not recorded */
    driver_fire(&d, 12);
    assert_string_equal(d.output, "DUR_ECANCELLED DUR_ECANCELLED dropped");
    assert_null(strstr(driver_kinds(&d), "ActivityCompleted"));
    driver_free(&d);
}

/* ---- try_for ---- */

static dur_outcome within(dur_ctx *ctx, const char *input) {
    dur_future *slow = dur_activity(ctx, "Slow", input);
    dur_code code = dur_try_for(slow, 50, NULL);
    dur_future *quick = dur_activity(ctx, "Quick", input);
    const char *value = "";
    dur_code second = dur_try_for(quick, 50, &value);
    dur_code third = dur_try_for(quick, 50, &value); /* settled: no timer */
    return dur_completef(ctx, "%s %s %s %s", dur_code_name((int)code), dur_code_name((int)second),
                         dur_code_name((int)third), value);
}
static void play_within(driver *d) {
    driver_fire(d, 3);
    driver_replay(d);
    driver_done(d, 6, "q");
    assert_true(driver_sent(d, "c 2", ""));
    assert_true(driver_sent(d, "t 7", ""));
}
static void test_try_for(void **state) {
    (void)state;
    expect(within, play_within, DUR__END_COMPLETED, "DUR_ETIMEOUT DUR_OK DUR_OK q");
}

/* ---- branches ---- */

typedef struct pair {
    dur_future *first, *second;
} pair;

static dur_outcome leg(dur_ctx *ctx, void *arg) {
    const char *value = dur_await(dur_activity(ctx, "Leg", arg));
    return dur_completef(ctx, "<%s>", value);
}
static dur_outcome two_legs(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *a = dur_spawn(ctx, leg, "1"), *b = NULL;
    b = dur_spawn(ctx, leg, "2");
    const char *value = "";
    dur_code code = dur_try(b, &value);
    return dur_completef(ctx, "%s %s %s", dur_await(a), dur_code_name((int)code), dur_reason(b));
}
static void play_legs(driver *d) {
    assert_string_equal(driver_event(d, 2).input, "1"); /* the lower number runs first */
    driver_fail(d, 3, "lost", true);
    driver_replay(d);
    driver_done(d, 2, "ok");
}
static void test_spawn(void **state) {
    (void)state;
    expect(two_legs, play_legs, DUR__END_COMPLETED, "<ok> DUR_EFAILED lost");
}

static int drops_seen;
static void count_drop(void *arg) {
    drops_seen = drops_seen * 10 + (int)(intptr_t)arg;
}

static dur_outcome sleeper(dur_ctx *ctx, void *arg) {
    dur_on_drop(ctx, count_drop, (void *)1);
    dur_on_drop(ctx, count_drop, (void *)2);
    dur_future *other = dur_activity(ctx, "Other", arg);
    (void)other;
    dur_await(dur_pulse(ctx, "never"));
    return dur_complete(ctx, "");
}
static dur_outcome drop_branch(dur_ctx *ctx, const char *input) {
    dur_future *branch = dur_spawn(ctx, sleeper, (void *)(uintptr_t)input);
    dur_await(dur_timer(ctx, 5));
    dur_drop(branch);
    dur_drop(NULL);
    const char *value;
    dur_code code = dur_try(branch, &value);
    dur_await(dur_timer(ctx, 5));
    return dur_completef(ctx, "%s", dur_code_name((int)code));
}
static void test_dropped_branch(void **state) {
    (void)state;
    driver d;
    driver_init(&d, drop_branch);
    driver_start(&d, "x");
    drops_seen = 0;
    driver_fire(&d, 2);
    assert_int_equal(drops_seen, 21); /* last registered first */
    assert_string_equal(driver_kinds(&d),
                        "OrchestrationStarted TimerCreated ActivityScheduled ExternalSubscribed TimerFired(2) "
                        "ActivityCancelRequested(3) ExternalSubscribedCancelled(4) TimerCreated");
    drops_seen = 0;
    assert_int_equal(driver_replay(&d), DUR_OK);
    assert_int_equal(drops_seen, 21); /* again, on replay */
    driver_fire(&d, 8);
    assert_string_equal(d.output, "DUR_ECANCELLED");
    driver_free(&d);
}

static dur_outcome drops_its_owner(dur_ctx *ctx, void *arg) {
    pair *p = arg;
    dur_await(dur_timer(ctx, 1));
    dur_drop(p->first); /* the branch that owns this one */
    dur_activity(ctx, "Unreachable", "");
    return dur_complete(ctx, "");
}
static dur_outcome owner(dur_ctx *ctx, void *arg) {
    dur_await(dur_spawn(ctx, drops_its_owner, arg));
    return dur_complete(ctx, "");
}
static dur_outcome dropped_from_inside(dur_ctx *ctx, const char *input) {
    (void)input;
    pair *p = dur_alloc(ctx, sizeof(*p));
    p->first = dur_spawn(ctx, owner, p);
    const char *value;
    return dur_completef(ctx, "%s", dur_code_name((int)dur_try(p->first, &value)));
}
static void play_one_timer(driver *d) {
    driver_fire(d, 2);
}
static void test_branch_dropped_by_its_own_child(void **state) {
    (void)state;
    expect(dropped_from_inside, play_one_timer, DUR__END_COMPLETED, "DUR_ECANCELLED");
}

static dur_outcome endless(dur_ctx *ctx, void *arg) {
    (void)arg;
    return dur_continue_as_new(ctx, "");
}
static dur_outcome nothing_branch(dur_ctx *ctx, void *arg) {
    (void)ctx;
    (void)arg;
    return (dur_outcome){ 0 };
}
static dur_outcome odd_branches(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *a = dur_spawn(ctx, endless, NULL), *b = NULL;
    b = dur_spawn(ctx, nothing_branch, NULL);
    dur_join(a, b);
    return dur_completef(ctx, "%s|%s", dur_reason(a), dur_reason(b));
}
static void test_branch_outcomes(void **state) {
    (void)state;
    expect(odd_branches, NULL, DUR__END_COMPLETED,
           "only the handler itself can continue as new, not a branch|branch returned no outcome");
}

/* ---- detach ---- */

static dur_outcome detached(dur_ctx *ctx, const char *input) {
    dur_detach(dur_activity(ctx, "Log", input));
    dur_detach(dur_orchestration(ctx, "Audit", input));
    dur_detach(dur_pulse(ctx, "pointless"));
    dur_activity(ctx, "Dropped", input);
    dur_await(dur_timer(ctx, 1));
    return dur_complete(ctx, "done");
}
static void play_detached(driver *d) {
    driver_fire(d, 6);
    assert_string_equal(driver_kinds(d),
                        "OrchestrationStarted ActivityScheduled SubOrchestrationScheduled ExternalSubscribed "
                        "ActivityScheduled TimerCreated TimerFired(6) ExternalSubscribedCancelled(4) "
                        "ActivityCancelRequested(5) OrchestrationCompleted");
    assert_false(driver_sent(d, "c 2", ""));
    assert_true(driver_sent(d, "c 5", ""));
    assert_string_equal(driver_event(d, 8).reason, "orchestration_terminal");
    assert_string_equal(driver_event(d, 9).reason, "orchestration_terminal_completed");
}
static void test_detach(void **state) {
    (void)state;
    expect(detached, play_detached, DUR__END_COMPLETED, "done");
}

static dur_outcome detacher(dur_ctx *ctx, void *arg) {
    dur_scope *scope = dur_scope_begin(ctx);
    dur_detach(dur_activity(ctx, "Later", arg, .retry = DUR_RETRY(.attempts_max = 2, .backoff = DUR_BACKOFF_NONE)));
    dur_detach(dur_spawn(ctx, leg, "from a scope"));
    dur_scope_end(scope);
    return dur_complete(ctx, "");
}
static dur_outcome detach_in_branch(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_spawn(ctx, detacher, "x"));
    dur_await(dur_pulse(ctx, "go"));
    return dur_complete(ctx, "");
}
static void play_detach_in_branch(driver *d) {
    driver_replay(d);
    driver_fail(d, 2, "once more", true);
    driver_replay(d);
    assert_non_null(strstr(driver_kinds(d), "ActivityFailed(2) ActivityScheduled")); /* it is tried again */
    driver_done(d, 6, "ok");
    driver_raise(d, "go", "");
}
static void test_detached_from_a_branch_goes_on(void **state) {
    (void)state;
    expect(detach_in_branch, play_detach_in_branch, DUR__END_COMPLETED, "");
}

/* ---- all_of, first_of ---- */

static dur_outcome combined(dur_ctx *ctx, const char *input) {
    dur_future *a = dur_activity(ctx, "A", input), *b = NULL, *c = NULL;
    b = dur_activity(ctx, "B", input);
    c = dur_activity(ctx, "C", input);
    dur_future *all = dur_all_of(ctx, (dur_future *const[]){ a, b }, 2);
    dur_future *first = dur_first_of(ctx, (dur_future *const[]){ all, c }, 2);
    dur_future *none = dur_all_of(ctx, NULL, 0);
    const char *value = "";
    dur_code code = dur_try(first, &value);
    return dur_completef(ctx, "%s %s %s %s", dur_code_name((int)code), code == DUR_OK ? value : dur_reason(first),
                         dur_code_name((int)dur_code_of(all)), dur_code_name((int)dur_code_of(none)));
}
static void play_all_fail(driver *d) {
    driver_fail(d, 3, "b broke", true);
    driver_replay(d);
    driver_done(d, 2, "a");
    assert_true(driver_sent(d, "c 4", ""));
}
static void play_first_wins(driver *d) {
    driver_done(d, 4, "c came");
}
static void test_combined(void **state) {
    (void)state;
    expect(combined, play_all_fail, DUR__END_COMPLETED, "DUR_EFAILED b broke DUR_EFAILED DUR_OK");
    expect(combined, play_first_wins, DUR__END_COMPLETED, "DUR_OK c came DUR_ECANCELLED DUR_OK");
}

/* ---- the world ---- */

static dur_outcome world(dur_ctx *ctx, const char *input) {
    uint64_t now = dur_now_ms(ctx);
    const char *guid = dur_guid(ctx);
    uint64_t random = dur_random(ctx);
    bool patched = dur_patched(ctx, "p");
    bool again = dur_patched(ctx, "p");
    dur_trace(ctx, DUR_LOG_INFO, "line of %s", input);
    dur_await(dur_pulse(ctx, "go"));
    return dur_completef(
        ctx, "%llu %s %llu %d%d %s %llu %s %s %d %llu", (unsigned long long)now, guid, (unsigned long long)random,
        patched, again, dur_instance_id(ctx), (unsigned long long)dur_execution_id(ctx), dur_orchestration_name(ctx),
        dur_orchestration_version(ctx), dur_parent_instance(ctx) == NULL, (unsigned long long)dur_history_events(ctx));
}
static void test_world(void **state) {
    (void)state;
    driver d;
    driver_init(&d, world);
    driver_start(&d, "in");
    assert_int_equal(d.log_count, 1);
    assert_string_equal(d.logs[0], "2 line of in");
    assert_int_equal(d.item_count, 0); /* no worker is asked */
    d.random = 99;
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_raise(&d, "go", "");
    assert_int_equal(d.log_count, 1);
    assert_string_equal(driver_event(&d, 2).name, "__duroxide_syscall:utc_now_ms");
    assert_string_equal(driver_event(&d, 3).result, "1000");
    const char *guid = driver_event(&d, 5).result;
    assert_int_equal(strlen(guid), 36);
    assert_int_equal(guid[14], '4');
    assert_non_null(strchr("89ab", guid[19]));
    char expected[256];
    snprintf(expected, sizeof(expected), "1000 %s %s 11 inst 1 Test 1.0.0 1 11", guid, driver_event(&d, 7).result);
    assert_string_equal(d.output, expected);
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

static bool replaying_at_end;
static dur_outcome replaying(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_timer(ctx, 1));
    dur_trace(ctx, DUR_LOG_INFO, "first");
    dur_await(dur_pulse(ctx, "go")); /* the record of this stands in the group of the timer */
    dur_await(dur_pulse(ctx, "go"));
    replaying_at_end = dur_is_replaying(ctx);
    dur_trace(ctx, DUR_LOG_INFO, "second");
    return dur_complete(ctx, "");
}
/* C32: a last stored event whose continuation schedules nothing must not make log lines appear twice. */
static void test_is_replaying(void **state) {
    (void)state;
    driver d;
    driver_init(&d, replaying);
    driver_start(&d, "");
    driver_fire(&d, 2);
    driver_replay(&d);
    driver_raise(&d, "go", "1");
    driver_replay(&d);
    driver_raise(&d, "go", "2");
    assert_false(replaying_at_end);
    assert_int_equal(d.log_count, 2);
    driver_replay(&d);
    assert_true(replaying_at_end);
    assert_int_equal(dur__exec_turn(d.exec)->log_count, 0);
    driver_free(&d);
}

/* ---- KV and status ---- */

static dur_outcome key_values(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_kv_set(ctx, "b", "2");
    dur_kv_set(ctx, "a", "1");
    dur_await(dur_timer(ctx, 1));
    dur_kv_set(ctx, "c", "3");
    size_t before = dur_kv_count(ctx);
    const char *first = dur_strdup(ctx, dur_kv_key(ctx, 0));
    size_t pruned = dur_kv_prune(ctx, 1005); /* a and b, in order of keys, and old is older */
    dur_kv_clear(ctx, "nothing");
    const char *c = dur_kv_get(ctx, "c");
    dur_kv_clear_all(ctx);
    dur_status_setf(ctx, "%d", 1);
    dur_status_set(ctx, NULL);
    const char *empty = dur_status_get(ctx);
    dur_status_clear(ctx);
    return dur_completef(ctx, "%zu %s %zu %s %d %zu '%s' %d", before, first, pruned, c, dur_kv_get(ctx, "a") == NULL,
                         dur_kv_count(ctx), empty, dur_status_get(ctx) == NULL);
}
static void test_key_values(void **state) {
    (void)state;
    driver d;
    driver_init(&d, key_values);
    const dur_key_value kv = { "old", "0", 5 };
    d.options.kv = &kv;
    d.options.kv_count = 1;
    driver_start(&d, "");
    driver_replay(&d);
    driver_fire(&d, 4);
    assert_string_equal(d.output, "4 a 3 3 1 0 '' 1");
    assert_string_equal(driver_event(&d, 7).key, "a");
    assert_string_equal(driver_event(&d, 8).key, "b");
    assert_string_equal(driver_event(&d, 9).key, "old");
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

static dur_outcome remote(dur_ctx *ctx, const char *input) {
    dur_future *a = dur_kv_remote(ctx, "other \"one\"", "key"), *b = NULL;
    b = dur_kv_remote(ctx, input, "key");
    dur_future *c = dur_kv_remote(ctx, input, "key");
    dur_join(a, b, c);
    const char *value = dur_await(a);
    return dur_completef(ctx, "%s %d %d '%s' %s", value, dur_is_none(a), dur_is_none(b), dur_await(b), dur_reason(c));
}
static void play_remote(driver *d) {
    assert_string_equal(driver_event(d, 2).input, "{\"instance_id\":\"other \\\"one\\\"\",\"key\":\"key\"}");
    assert_true(driver_sent(d, "w ", "__duroxide_syscall:get_kv_value"));
    driver_done(d, 2, "\"va\\nlue\"");
    driver_replay(d);
    driver_done(d, 3, "null");
    driver_done(d, 4, "{}");
}
static void test_remote(void **state) {
    (void)state;
    expect(remote, play_remote, DUR__END_COMPLETED,
           "va\nlue 0 1 '' the answer of the remote KV read is not an optional text");
}

/* ---- ends ---- */

static dur_outcome zero(dur_ctx *ctx, const char *input) {
    (void)ctx;
    (void)input;
    return (dur_outcome){ 0 };
}
static dur_outcome completes(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, *input == 'x' ? input : NULL);
}
static dur_outcome continues(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_status_set(ctx, "kept");
    return dur_continue_as_new(ctx, "next", .version = "2.0.0");
}
static void play_continues(driver *d) {
    assert_true(driver_sent(d, "o@0 {\"ContinueAsNew\"", "\"version\":\"2.0.0\""));
    assert_true(driver_sent(d, "o@0 {\"ContinueAsNew\"", "\"initial_custom_status\":\"kept\""));
    assert_true(driver_sent(d, "o@0 {\"ContinueAsNew\"", "\"input\":\"next\""));
}
static void test_ends(void **state) {
    (void)state;
    expect(zero, NULL, DUR__END_FAILED, "orchestration panicked: handler returned no outcome");
    expect(completes, NULL, DUR__END_COMPLETED, "");
    expect(continues, play_continues, DUR__END_CONTINUED, "next");
}

static dur_outcome saga_legs(dur_ctx *ctx, void *arg) {
    dur_saga *saga = arg;
    dur_saga_undo(saga, "Release", dur_await(dur_activity(ctx, "Reserve", "flight")));
    dur_saga_undo(saga, "Release", dur_await(dur_activity(ctx, "Reserve", "hotel")),
                  .retry = DUR_RETRY(.attempts_max = 1));
    dur_await(dur_activity(ctx, "Reserve", "car"));
    return dur_complete(ctx, "");
}
static dur_outcome saga(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_saga *trip = dur_saga_begin(ctx);
    dur_future *legs = dur_spawn(ctx, saga_legs, trip);
    if (dur_try(legs, NULL) == DUR_OK) return dur_complete(ctx, "booked");
    size_t failed = dur_saga_compensate(trip);
    return dur_failf(ctx, "%s, %zu not undone", dur_reason(legs), failed);
}
static void play_saga(driver *d) {
    driver_done(d, 2, "f1");
    driver_done(d, 4, "h1");
    driver_replay(d);
    driver_fail(d, 6, "no cars", true);
    assert_string_equal(driver_event(d, 8).input, "h1"); /* last first */
    driver_fail(d, 8, "stuck", true);
    driver_replay(d);
    assert_string_equal(driver_event(d, 10).input, "f1");
    driver_done(d, 10, "");
}
static void test_saga(void **state) {
    (void)state;
    expect(saga, play_saga, DUR__END_FAILED, "no cars, 1 not undone");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_try),
        cmocka_unit_test(test_select_takes_the_lowest_settlement),
        cmocka_unit_test(test_select_drops_losers),
        cmocka_unit_test(test_try_for),
        cmocka_unit_test(test_spawn),
        cmocka_unit_test(test_dropped_branch),
        cmocka_unit_test(test_branch_dropped_by_its_own_child),
        cmocka_unit_test(test_branch_outcomes),
        cmocka_unit_test(test_detach),
        cmocka_unit_test(test_detached_from_a_branch_goes_on),
        cmocka_unit_test(test_combined),
        cmocka_unit_test(test_world),
        cmocka_unit_test(test_is_replaying),
        cmocka_unit_test(test_key_values),
        cmocka_unit_test(test_remote),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_saga),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
