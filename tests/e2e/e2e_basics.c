/*
 * e2e_basics.c: activities, control flow, composition, time, payloads.
 */
#include "harness.h"

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome upper(dur_act *act, const char *input) {
    char *text = dur_act_format(act, "%s", input);
    for (char *p = text; *p != '\0'; p++)
        if (*p >= 'a' && *p <= 'z') *p = (char)(*p - 'a' + 'A');
    return dur_act_complete(act, text);
}

static dur_outcome broken(dur_act *act, const char *input) {
    return dur_act_failf(act, "cannot do %s", input);
}

static dur_outcome slow(dur_act *act, const char *input) {
    dur_act_sleep(act, strtoul(input, NULL, 10));
    return dur_act_complete(act, dur_act_cancelled(act) ? "cancelled" : "slept");
}

static dur_outcome flaky(dur_act *act, const char *input) {
    if (dur_act_attempt(act) == 1 && strtoul(input, NULL, 10) % 2 == 0) return dur_act_fail(act, "once");
    return dur_act_complete(act, input);
}

static dur_outcome identity(dur_act *act, const char *input) {
    (void)input;
    return dur_act_completef(act, "%s %llu %s %s %s %llu %s %s %u", dur_act_instance_id(act),
                             (unsigned long long)dur_act_execution_id(act), dur_act_orchestration_name(act),
                             dur_act_orchestration_version(act), dur_act_name(act), (unsigned long long)dur_act_id(act),
                             dur_act_session(act), dur_act_attempt_key(act), dur_act_attempt(act));
}

static dur_outcome huge(dur_act *act, const char *input) {
    size_t size = strtoul(input, NULL, 10);
    char *text = dur_act_alloc(act, size + 1);
    memset(text, 'x', size);
    return dur_act_complete(act, text);
}

static dur_outcome hello(dur_ctx *ctx, const char *name) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Upper", name)));
}

static dur_outcome sequence(dur_ctx *ctx, const char *count_text) {
    unsigned long count = strtoul(count_text, NULL, 10);
    unsigned long sum = 0;
    for (unsigned long i = 0; i < count; i++) {
        dur_scope *scope = dur_scope_begin(ctx);
        sum += strtoul(dur_await(dur_activity(ctx, "Echo", dur_format(ctx, "%lu", i))), NULL, 10);
        dur_scope_end(scope);
    }
    return dur_completef(ctx, "%lu", sum);
}

static dur_outcome sum_all(dur_ctx *ctx, dur_future *const *futures, size_t count) {
    size_t sum = 0;
    dur_join_n(futures, count);
    for (size_t i = 0; i < count; i++)
        sum += strtoul(dur_await(futures[i]), NULL, 10);
    return dur_completef(ctx, "%zu", sum);
}

static dur_outcome fan(dur_ctx *ctx, const char *count_text) {
    size_t count = strtoul(count_text, NULL, 10);
    dur_future **futures = dur_alloc(ctx, count * sizeof(*futures));
    for (size_t i = 0; i < count; i++)
        futures[i] = dur_activity(ctx, "Echo", dur_format(ctx, "%zu", i));
    return sum_all(ctx, futures, count);
}

static dur_outcome fan_retried(dur_ctx *ctx, const char *count_text) {
    size_t count = strtoul(count_text, NULL, 10);
    dur_future **futures = dur_alloc(ctx, count * sizeof(*futures));
    for (size_t i = 0; i < count; i++)
        futures[i] = dur_activity(ctx, "Flaky", dur_format(ctx, "%zu", i),
                                  .retry = DUR_RETRY(.attempts_max = 3, .backoff = DUR_BACKOFF_NONE));
    return sum_all(ctx, futures, count);
}

static dur_outcome failing(dur_ctx *ctx, const char *input) {
    const char *value;
    dur_future *f = dur_activity(ctx, "Broken", input);
    if (dur_try(f, &value) == DUR_EFAILED && strcmp(input, "catch") == 0) return dur_complete(ctx, dur_reason(f));
    dur_await(f);
    return dur_complete(ctx, "not reached");
}

static dur_outcome race(dur_ctx *ctx, const char *input) {
    dur_future *work = dur_activity(ctx, "Slow", input);
    dur_future *late = dur_timer(ctx, strcmp(input, "0") == 0 ? DUR_HOURS(1) : 100); /* as below */
    if (dur_select(work, late) == late) return dur_complete(ctx, "late");
    return dur_complete(ctx, dur_await(work));
}

static dur_outcome within(dur_ctx *ctx, const char *input) {
    const char *value = NULL;
    uint64_t within_ms = strcmp(input, "0") == 0 ? DUR_HOURS(1) : 100; /* a busy machine is late with anything */
    dur_code code = dur_try_for(dur_activity(ctx, "Slow", input), within_ms, &value);
    return dur_completef(ctx, "%s", code == DUR_OK ? value : dur_code_name(code));
}

static dur_outcome timers(dur_ctx *ctx, const char *input) {
    (void)input;
    uint64_t before = dur_now_ms(ctx);
    dur_future *long_one = dur_timer(ctx, 60);
    dur_future *short_one = dur_timer(ctx, 20);
    dur_future *first = dur_any(long_one, short_one);
    dur_await(dur_timer(ctx, 0));
    dur_join(long_one, short_one);
    uint64_t after = dur_now_ms(ctx);
    return dur_completef(ctx, "%s %s", first == short_one ? "short" : "long",
                         after - before >= 60 ? "waited" : "early");
}

static dur_outcome guid_and_random(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *guid = dur_guid(ctx);
    uint64_t number = dur_random(ctx);
    const char *other = dur_guid(ctx);
    dur_await(dur_activity(ctx, "Echo", guid));
    return dur_completef(ctx, "%zu %d %d %d", strlen(guid), guid[14] == '4', strcmp(guid, other) != 0, number != 0);
}

static dur_outcome who(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *act = dur_await(dur_activity(ctx, "Identity", "", .session = "s"));
    return dur_completef(ctx, "%s %llu %s %s|%s", dur_instance_id(ctx), (unsigned long long)dur_execution_id(ctx),
                         dur_orchestration_name(ctx), dur_orchestration_version(ctx), act);
}

static dur_outcome big(dur_ctx *ctx, const char *size) {
    return dur_completef(ctx, "%zu", strlen(dur_await(dur_activity(ctx, "Huge", size))));
}

static dur_outcome pass_on(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

static dur_outcome branch_twice(dur_ctx *ctx, void *arg) {
    const char *first = dur_await(dur_activity(ctx, "Echo", arg));
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", first)));
}

static dur_outcome branch_fails(dur_ctx *ctx, void *arg) {
    dur_await(dur_activity(ctx, "Broken", arg));
    return dur_complete(ctx, "");
}

static dur_outcome branches(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *a = dur_spawn(ctx, branch_twice, dur_strdup(ctx, "a"));
    dur_future *b = dur_spawn(ctx, branch_twice, dur_strdup(ctx, "b"));
    dur_future *c = dur_spawn(ctx, branch_fails, dur_strdup(ctx, "c"));
    dur_future *both = dur_all_of(ctx, DUR_FUTURES_(a, b), 2);
    dur_future *never = dur_pulse(ctx, "Never");
    bool both_won = dur_select(both, never) == both;
    dur_join(c);
    return dur_completef(ctx, "%d %s %s", both_won, dur_code_name(dur_code_of(a)), dur_reason(c));
}

static dur_outcome two_steps(dur_ctx *ctx, const char *input) {
    const char *first = dur_await(dur_activity(ctx, "Echo", input));
    const char *second = dur_await(dur_pulse(ctx, "Go"));
    return dur_completef(ctx, "%s %s", first, second);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ACTIVITY("Upper", upper),
    DUR_ACTIVITY("Broken", broken),
    DUR_ACTIVITY("Slow", slow),
    DUR_ACTIVITY("Flaky", flaky),
    DUR_ACTIVITY("Identity", identity),
    DUR_ACTIVITY("Huge", huge),
    DUR_ORCHESTRATION("Hello", "1.0.0", hello),
    DUR_ORCHESTRATION("Sequence", "1.0.0", sequence),
    DUR_ORCHESTRATION("Fan", "1.0.0", fan),
    DUR_ORCHESTRATION("FanRetried", "1.0.0", fan_retried),
    DUR_ORCHESTRATION("Failing", "1.0.0", failing),
    DUR_ORCHESTRATION("Race", "1.0.0", race),
    DUR_ORCHESTRATION("Within", "1.0.0", within),
    DUR_ORCHESTRATION("Timers", "1.0.0", timers),
    DUR_ORCHESTRATION("Guid", "1.0.0", guid_and_random),
    DUR_ORCHESTRATION("Who", "1.2.3", who),
    DUR_ORCHESTRATION("Big", "1.0.0", big),
    DUR_ORCHESTRATION("PassOn", "1.0.0", pass_on),
    DUR_ORCHESTRATION("Branches", "1.0.0", branches),
    DUR_ORCHESTRATION("TwoSteps", "1.0.0", two_steps),
    DUR_HANDLERS_END,
};

static void hello_world(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Hello", "world", "h");
    expect(w, "h", "WORLD");
    assert_int_equal(history_count(w, "h", 0, "\"event_id\""), 4);
}

static void numbers(char count[32], char sum[32], size_t n) {
    snprintf(count, 32, "%zu", n);
    snprintf(sum, 32, "%zu", n * (n - 1) / 2);
}

static void many_sequential_steps(void **state) {
    world *w = *state;
    world_relax(w);
    char count[32], sum[32];
    RUN(w, handlers);
    numbers(count, sum, scaled(10000, 100));
    start(w, "Sequence", count, "seq");
    expect(w, "seq", sum);
}

static void join_of_ten_thousand(void **state) {
    world *w = *state;
    char count[32], sum[32];
    RUN(w, handlers);
    numbers(count, sum, scaled(10000, 100));
    start(w, "Fan", count, "fan");
    expect(w, "fan", sum);
}

static void join_of_ten_thousand_retried(void **state) {
    world *w = *state;
    char count[32], sum[32];
    RUN(w, handlers);
    numbers(count, sum, scaled(10000, 100));
    start(w, "FanRetried", count, "fan");
    expect(w, "fan", sum);
}

static void a_failed_await_ends_the_handler_and_try_catches(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Failing", "catch", "caught");
    start(w, "Failing", "this", "uncaught");
    expect(w, "caught", "cannot do catch");
    expect_failure(w, "uncaught", DUR_EFAILED, "cannot do this");
}

static void select_drops_the_loser(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Race", "60000", "slow");
    expect(w, "slow", "late");
    assert_int_equal(history_count(w, "slow", 0, "ActivityCancelRequested"), 1);
    start(w, "Race", "0", "fast");
    expect(w, "fast", "slept");
    assert_int_equal(history_count(w, "fast", 0, "TimerFired"), 0);
    world_stop(w); /* the dropped activity learned of it: stopping does not wait a minute */
}

static void try_for_gives_up_in_time(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Within", "60000", "slow");
    start(w, "Within", "0", "fast");
    expect(w, "slow", "DUR_ETIMEOUT");
    expect(w, "fast", "slept");
}

static void timers_fire_in_order_of_their_time(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Timers", "", "t");
    expect(w, "t", "short waited");
}

static void guid_now_and_random_cost_no_worker(void **state) {
    world *w = *state;
    dur_metrics m = { .size = sizeof(m) };
    RUN(w, handlers, .evict_every_turn = true);
    start(w, "Guid", "", "g");
    expect(w, "g", "36 1 1 1");
    OK(w, dur_runtime_metrics(&m, w->runtime, &w->err));
    assert_int_equal(m.activity_success, 1);
}

static void identity_is_visible_to_handler_and_activity(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Who", "", "me");
    expect(w, "me", "me 1 Who 1.2.3|me 1 Who 1.2.3 Identity 2 s me/1/2 1");
}

static void payloads_of_a_mebibyte(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Big", "1048576", "big");
    expect(w, "big", "1048576");
    start(w, "Big", "5000000", "too-big");
    expect_failure(w, "too-big", DUR_EFAILED, "payload");
}

static void strange_strings_come_back_as_they_were(void **state) {
    world *w = *state;
    static const char text[] =
        "quote\" back\\slash \x01\x1f\t\n\r\x7f \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 {\"a\":1}";
    static const char id[] = "s \"' \xf0\x9f\x98\x80";
    RUN(w, handlers);
    start(w, "PassOn", text, id);
    expect(w, id, text);
    start(w, "PassOn", "", "empty");
    expect(w, "empty", "");
}

static void branches_compose_like_any_future(void **state) {
    world *w = *state;
    RUN(w, handlers, .double_run = true);
    start(w, "Branches", "", "b");
    expect(w, "b", "1 DUR_OK cannot do c");
}

static void restart_goes_on_where_it_was(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "TwoSteps", "one", "two");
    until_history(w, "two", "\"ExternalSubscribed\"", 1);
    world_stop(w);
    OK(w, dur_client_pulse(w->client, &w->err, "two", "Go", "went"));
    RUN(w, handlers);
    expect(w, "two", "one went");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(hello_world),
        TEST(many_sequential_steps),
        TEST(join_of_ten_thousand),
        TEST(join_of_ten_thousand_retried),
        TEST(a_failed_await_ends_the_handler_and_try_catches),
        TEST(select_drops_the_loser),
        TEST(try_for_gives_up_in_time),
        TEST(timers_fire_in_order_of_their_time),
        TEST(guid_now_and_random_cost_no_worker),
        TEST(identity_is_visible_to_handler_and_activity),
        TEST(payloads_of_a_mebibyte),
        TEST(strange_strings_come_back_as_they_were),
        TEST(branches_compose_like_any_future),
        TEST(restart_goes_on_where_it_was),
    };
    return cmocka_run_group_tests_name("e2e_basics", tests, NULL, NULL);
}
