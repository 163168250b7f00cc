/* Wrong arguments and limits: the branch fails at the call, the reason says what, the parent is told (C10). */
#include "replay_driver.h"

static const char *which;
static bool is(const char *name) {
    return strcmp(which, name) == 0;
}
static dur_outcome branch(dur_ctx *ctx, void *arg) {
    dur_await(*(dur_future **)arg);
    return dur_complete(ctx, "");
}
static dur_ctx *foreign;

static dur_outcome wrong(dur_ctx *ctx, const char *input) {
    (void)input;
    char *long_text = dur_alloc(ctx, 2000);
    memset(long_text, 'x', 1999);
    dur_future *fine = dur_timer(ctx, 1);
    if (is("NULL ctx")) dur_timer(NULL, 1);
    if (is("foreign ctx")) dur_timer(foreign, 1);
    if (is("NULL name")) dur_activity(ctx, NULL, "");
    if (is("empty name")) dur_activity(ctx, "", "");
    if (is("long name")) dur_activity(ctx, long_text, "");
    if (is("bad UTF-8")) dur_activity(ctx, "A", "ab\xff");
    if (is("reserved")) dur_activity(ctx, "__duroxide_syscall:x", "");
    if (is("long input")) dur_activity(ctx, "A", long_text);
    if (is("long tag")) dur_activity(ctx, "A", "", .tag = "0123456789a");
    if (is("no size")) dur_activity_ex(ctx, &(dur_activity_args){ .name = "A" });
    if (is("NULL args")) dur_orchestration_ex(ctx, NULL);
    if (is("sub::")) dur_orchestration(ctx, "C", "", .instance = "sub::1");
    if (is("jitter")) dur_activity(ctx, "A", "", .retry = DUR_RETRY(.jitter = 2));
    if (is("backoff")) dur_activity(ctx, "A", "", .retry = DUR_RETRY(.backoff = (dur_backoff)9));
    if (is("NULL future")) dur_await(NULL);
    if (is("NULL member")) dur_select(fine, NULL);
    if (is("NULL array")) dur_join_n(NULL, 2);
    if (is("nothing")) dur_any_n(NULL, 0);
    if (is("first of nothing")) dur_first_of(ctx, NULL, 0);
    if (is("NULL detach")) dur_detach(NULL);
    if (is("NULL event")) dur_pulse(ctx, NULL);
    if (is("NULL queue")) dur_message(ctx, NULL);
    if (is("NULL try queue")) dur_try_message(ctx, NULL, NULL);
    if (is("NULL branch")) dur_spawn(ctx, NULL, NULL);
    if (is("NULL marker")) dur_patched(ctx, NULL);
    if (is("long status")) dur_status_set(ctx, long_text);
    if (is("bad status")) dur_status_set(ctx, "\xc3");
    if (is("NULL key")) dur_kv_set(ctx, NULL, "");
    if (is("long value")) dur_kv_set(ctx, "k", "0123456789a");
    if (is("many keys")) {
        dur_kv_set(ctx, "a", "");
        dur_kv_set(ctx, "b", "");
        dur_kv_set(ctx, "b", "again is fine");
        dur_kv_set(ctx, "c", "");
    }
    if (is("NULL scope")) dur_scope_end(NULL);
    if (is("NULL on_drop")) dur_on_drop(ctx, NULL, NULL);
    if (is("NULL saga")) dur_saga_compensate(NULL);
    if (is("long output")) return dur_complete(ctx, long_text);
    if (is("self")) {
        dur_future **self = dur_alloc(ctx, sizeof(*self));
        *self = dur_spawn(ctx, branch, self);
        dur_await(*self);
    }
    return dur_complete(ctx, "not noticed");
}

static void expect_reason(const char *what, const char *reason) {
    driver d;
    driver_init(&d, wrong);
    which = what;
    d.options.limits = (dur__exec_limits){ .payload_bytes_max = 1000,
                                           .custom_status_bytes_max = 100,
                                           .kv_keys_max = 2,
                                           .kv_value_bytes_max = is("long value") ? 10 : 100,
                                           .tag_bytes_max = 10 };
    driver_start_ex(&d, &(dur__exec_begin){ .parent = { .instance = "dad", .has_id = true, .id = 2 } });
    if (d.end != DUR__END_FAILED || strcmp(d.output, reason) != 0)
        fail_msg("%s: \"%s\", expected \"%s\"", what, d.output != NULL ? d.output : "", reason);
    assert_true(driver_sent(&d, "o@0 {\"SubOrchFailed\"", "dad"));
    assert_int_equal(driver_replay(&d), DUR_OK);
    driver_free(&d);
}

static void test_wrong_arguments(void **state) {
    (void)state;
    driver other;
    driver_init(&other, wrong);
    other.exec = dur__exec_new(&other.options);
    foreign = (dur_ctx *)(void *)other.exec; /* its first member */
    expect_reason("NULL ctx", "dur_timer: ctx is NULL");
    expect_reason("foreign ctx", "dur_timer: the ctx of another handler");
    expect_reason("NULL name", "dur_activity: name is NULL");
    expect_reason("empty name", "dur_activity: name is empty");
    expect_reason("long name", "dur_activity: name has 1999 bytes, the limit is 512");
    expect_reason("bad UTF-8", "dur_activity: input is not UTF-8 at byte 2");
    expect_reason("reserved", "dur_activity: names that begin with __duroxide_syscall: are reserved");
    expect_reason("long input", "dur_activity: input has 1999 bytes, the limit is 1000");
    expect_reason("long tag", "dur_activity: tag has 11 bytes, the limit is 10");
    expect_reason("no size", "dur_activity: the size field is not set (use the macro, or sizeof)");
    expect_reason("NULL args", "dur_orchestration: args is NULL");
    expect_reason("sub::", "dur_orchestration: instance ids that begin with sub:: are reserved");
    expect_reason("jitter", "dur_retry: jitter is not within 0 and 1");
    expect_reason("backoff", "dur_retry: no such backoff: 9");
    expect_reason("NULL future", "dur_await: future is NULL");
    expect_reason("NULL member", "dur_any: future is NULL");
    expect_reason("NULL array", "dur_join: futures is NULL");
    expect_reason("nothing", "dur_any: nothing to wait for");
    expect_reason("first of nothing", "dur_first_of: nothing to wait for");
    expect_reason("NULL detach", "dur_detach: future is NULL");
    expect_reason("NULL event", "dur_pulse: name is NULL");
    expect_reason("NULL queue", "dur_message: name is NULL");
    expect_reason("NULL try queue", "dur_try_message: name is NULL");
    expect_reason("NULL branch", "dur_spawn: fn is NULL");
    expect_reason("NULL marker", "dur_patched: id is NULL");
    expect_reason("long status", "dur_status_set: the status has 1999 bytes, the limit is 100");
    expect_reason("bad status", "dur_status_set: the status is not UTF-8 at byte 0");
    expect_reason("NULL key", "dur_kv_set: key is NULL");
    expect_reason("long value", "dur_kv_set: the value has 11 bytes, the limit is 10");
    expect_reason("many keys", "dur_kv_set: the instance has 2 keys, the limit is 2");
    expect_reason("NULL scope", "dur_scope_end: scope is NULL");
    expect_reason("NULL on_drop", "dur_on_drop: fn is NULL");
    expect_reason("NULL saga", "dur_saga_compensate: saga is NULL");
    expect_reason("long output", "dur_complete: text has 1999 bytes, the limit is 1000");
    expect_reason("self", "dur_await: a branch cannot wait for itself");
    driver_free(&other);
}

/* Outside of a handler every call does nothing and says so by its value. */
static void test_outside(void **state) {
    (void)state;
    assert_null(dur_timer(NULL, 1));
    assert_null(dur_await(NULL));
    assert_int_equal(dur_try(NULL, NULL), DUR_EINVAL);
    assert_int_equal(dur_code_of(NULL), DUR_EINVAL);
    assert_string_equal(dur_reason(NULL), "");
    assert_false(dur_is_settled(NULL));
    assert_null(dur_instance_id(NULL));
    assert_int_equal(dur_now_ms(NULL), 0);
    assert_int_equal(dur_complete(NULL, "").kind_, 0);
    dur_join_n(NULL, 0);
    dur_drop(NULL);
    dur_detach(NULL);
    dur_kv_set(NULL, NULL, NULL);
    dur_scope_end(dur_scope_begin(NULL));
    dur_saga_undo(NULL, "A");
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_wrong_arguments), cmocka_unit_test(test_outside) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
