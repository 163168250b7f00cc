/*
 * test_live.c: ends that are told inside the process: who is told what, who is sent to the store, and that nobody reads
 * for what is known here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/thread.h"
#include "provider/live.h"
#include "support/faulty.h"
#include <durite/durite.h>
#include <durite/sys/store.h>
#include <stdlib.h>
#include <string.h>

#define OK(call)                                                                                                       \
    do {                                                                                                               \
        int code_ = (call);                                                                                            \
        if (code_ != DUR_OK) fail_msg("%s: %s: %s", #call, dur_code_name(code_), err.message);                         \
    } while (0)

static dur_error err;
static dur_provider *store;
static int a_loop, another; /* owners */

static int open_store(void **state) {
    static unsigned serial;
    char url[64];
    dur_provider *inner = NULL;
    (void)state;
    snprintf(url, sizeof(url), "memory:live-%u", ++serial);
    OK(dur_open(&inner, url, &err));
    OK(dur__faulty_wrap(&store, inner, 1, &err));
    dur__live_loop(store, true);
    return 0;
}
static int close_store(void **state) {
    (void)state;
    dur__live_loop(store, false);
    dur_provider_close(store);
    return 0;
}

/* ---- one who waits ---- */

typedef struct one {
    const char *instance;
    char *output;
    bool back;
    dur__thread thread;
} one;

static void wait_for_end(void *arg) {
    one *self = arg;
    self->output = dur__live_await(store, self->instance, UINT64_MAX);
    __atomic_store_n(&self->back, true, __ATOMIC_RELEASE);
}
static void go(one *self, const char *instance) {
    *self = (one){ .instance = instance };
    assert_int_equal(dur__thread_start(&self->thread, "waits", wait_for_end, self), 0);
}
static void assert_told(one *self, const char *output) {
    dur__thread_join(&self->thread);
    if (output != NULL)
        assert_string_equal(self->output, output);
    else
        assert_null(self->output);
    free(self->output);
}

/* Who waits for what runs here waits for all of his time; for anything else not at all. */
static void assert_lives(const char *instance) {
    uint64_t until_us = dur__monotonic_us() + 3000;
    assert_null(dur__live_await(store, instance, until_us));
    assert_true(dur__monotonic_us() >= until_us);
}

static void what_does_not_run_here_is_for_the_store(void **state) {
    (void)state;
    assert_null(dur__live_await(store, "a", UINT64_MAX));
}

static void many_are_told_the_output(void **state) {
    enum { MANY = 20 };
    one all[MANY];
    (void)state;
    dur__live_add(store, "a", &a_loop);
    dur__live_add(store, "b", &a_loop);
    for (size_t i = 0; i < MANY; i++)
        go(&all[i], i % 2 ? "a" : "b");
    dur__live_completed(store, "a", &a_loop, 0, "of a"); /* some wait by now, some will not find it any more */
    dur__live_completed(store, "b", &a_loop, 0, NULL);
    dur__live_tell(store);
    for (size_t i = 0; i < MANY; i++) {
        dur__thread_join(&all[i].thread);
        if (all[i].output != NULL) assert_string_equal(all[i].output, i % 2 ? "of a" : "");
        free(all[i].output);
    }
    assert_null(dur__live_await(store, "a", UINT64_MAX));
}

/* It is there when the first of the two is back, so the other waits or will: neither is forgotten. */
static void until_its_time_has_come(void **state) {
    one other;
    (void)state;
    dur__live_add(store, "a", &a_loop);
    go(&other, "a");
    assert_null(dur__live_await(store, "a", dur__monotonic_us() + 1000));
    assert_null(dur__live_await(store, "a", 0));
    assert_false(__atomic_load_n(&other.back, __ATOMIC_ACQUIRE));
    dur__live_remove(store, "a", &another); /* who has lost it long ago says nothing about it */
    assert_lives("a");
    dur__live_completed(store, "a", &another, 0, "wrong");
    assert_lives("a");
    assert_false(__atomic_load_n(&other.back, __ATOMIC_ACQUIRE));
    dur__live_remove(store, "a", &a_loop);
    dur__live_tell(store);
    assert_told(&other, NULL);
}

static void taken_over_inside_the_process(void **state) {
    one other;
    (void)state;
    dur__live_add(store, "a", &a_loop);
    dur__live_add(store, "a", &another);
    go(&other, "a");
    dur__live_remove(store, "a", &a_loop);
    assert_lives("a");
    assert_false(__atomic_load_n(&other.back, __ATOMIC_ACQUIRE));
    dur__live_completed(store, "a", &another, 0, "x");
    dur__live_tell(store);
    dur__thread_join(&other.thread);
    if (other.output != NULL) assert_string_equal(other.output, "x");
    free(other.output);
}

static void what_is_expected_may_not_come(void **state) {
    (void)state;
    dur__live_expect(store, "a");
    assert_null(dur__live_await(store, "a", UINT64_MAX)); /* a moment */
    dur__live_unexpect(store, "a");
    dur__live_expect(store, "b");
    dur__live_add(store, "b", &a_loop);
    dur__live_unexpect(store, "b"); /* came before the answer that nothing was started: it runs all the same */
    assert_null(dur__live_await(store, "b", dur__monotonic_us() + 1000));
    dur__live_remove(store, "b", &a_loop);
    for (int i = 0; i < 1000; i++) { /* nobody asks for them ever */
        char id[16];
        snprintf(id, sizeof(id), "%d", i);
        dur__live_expect(store, id);
    }
    dur__live_expect(store, "d");
    uint64_t began_us = dur__monotonic_us();
    while (dur__monotonic_us() - began_us < 5000) /* the start takes its time … */
        ;
    began_us = dur__monotonic_us();
    dur__live_started(store, "d"); /* … and the moment begins behind it */
    assert_null(dur__live_await(store, "d", UINT64_MAX));
    assert_true(dur__monotonic_us() - began_us >= 2000);
    dur__live_loop(store, false);
    dur__live_expect(store, "c"); /* by whom? */
    assert_null(dur__live_await(store, "c", UINT64_MAX));
    dur__live_loop(store, true);
}

/* ---- in a runtime ---- */

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    dur_status_set(ctx, "up");
    const char *got = dur_await(dur_pulse(ctx, "Go"));
    if (strcmp(input, "again") == 0) return dur_continue_as_new(ctx, "once");
    if (strcmp(input, "fail") == 0) return dur_fail(ctx, "as told");
    return dur_complete(ctx, got);
}
static const dur_handler handlers[] = { DUR_ORCHESTRATION("Waits", "1.0.0", waits), DUR_HANDLERS_END };

static dur_runtime *runtime;
static dur_client *client;

static int open_runtime(void **state) {
    (void)open_store(state);
    OK(dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = handlers), &err));
    OK(dur_client_new(&client, store, &err));
    return 0;
}
static int close_runtime(void **state) {
    dur_client_free(client);
    OK(dur_runtime_stop(runtime, 5000, &err));
    return close_store(state);
}

static void start_up(const char *instance, const char *input) {
    dur_instance_info *info = NULL;
    OK(dur_client_start(client, &err, "Waits", input, .instance = instance));
    OK(dur_client_wait_status(&info, client, instance, 0, 60000, &err));
    dur_instance_info_free(info);
}

static void raise_it(void *instance) {
    dur_error why = DUR_ERROR_INIT;
    (void)dur_client_pulse(client, &why, instance, "Go", "gone");
}

/* Waits while another thread raises what the instance waits for; the code of the end. */
static int result_of_raised(char **output, char *instance) {
    dur__thread thread;
    assert_int_equal(dur__thread_start(&thread, "raises", raise_it, instance), 0);
    int code = dur_client_result(output, client, instance, 60000, &err);
    dur__thread_join(&thread);
    return code;
}

static void a_result_costs_no_read(void **state) {
    char *output = NULL;
    (void)state;
    start_up("a", "");
    uint64_t reads = dur__faulty_calls(store, "get_instance"), watches = dur__faulty_calls(store, "watch_open");
    assert_int_equal(dur_client_result(&output, client, "a", 1, &err), DUR_ETIMEOUT);
    uint64_t timed_out = dur__faulty_calls(store, "get_instance");
    assert_true(timed_out > reads); /* the store has the last word */
    watches = dur__faulty_calls(store, "watch_open");
    OK(result_of_raised(&output, "a"));
    assert_string_equal(output, "gone");
    dur_free(output);
    /* Unless the end came before the wait, and then it is one look. */
    if (dur__faulty_calls(store, "watch_open") == watches)
        assert_int_equal(dur__faulty_calls(store, "get_instance"), timed_out);
    OK(dur_client_result(&output, client, "a", 60000, &err)); /* long ended: from the store */
    assert_string_equal(output, "gone");
    dur_free(output);
}

static void other_ends_are_read(void **state) {
    char *output = NULL;
    (void)state;
    start_up("fails", "fail");
    assert_int_equal(result_of_raised(&output, "fails"), DUR_EFAILED);
    assert_non_null(strstr(err.message, "as told"));
    start_up("again", "again"); /* goes on as new, waits once more */
    OK(dur_client_pulse(client, &err, "again", "Go", "one"));
    assert_int_equal(dur_client_result(&output, client, "again", 50, &err), DUR_ETIMEOUT);
    OK(dur_client_pulse(client, &err, "again", "Go", "two"));
    OK(dur_client_result(&output, client, "again", 60000, &err));
    assert_string_equal(output, "two");
    dur_free(output);
    start_up("held", "");
    OK(dur_client_suspend(client, "held", "by hand", &err));
    assert_int_equal(dur_client_result(&output, client, "held", 60000, &err), DUR_ESUSPENDED);
    start_up("killed", "");
    OK(dur_client_terminate(client, "killed", "enough", &err));
    assert_int_equal(dur_client_result(&output, client, "killed", 60000, &err), DUR_ECANCELLED);
}

#define LIVE_TEST(name) cmocka_unit_test_setup_teardown(name, open_store, close_store)
#define RUNTIME_TEST(name) cmocka_unit_test_setup_teardown(name, open_runtime, close_runtime)
/* ---- one who waits for many ---- */

static void a_set_is_told_all_of_a_round_at_once(void **state) {
    dur__live_member a = { .set = NULL }, b = { .set = NULL }, c = { .set = NULL };
    dur__live_set *set = dur__live_set_new(store);
    (void)state;
    dur__live_add(store, "a", &a_loop);
    dur__live_join(set, &a, "a", 0);
    dur__live_join(set, &b, "b", 0); /* does not run yet */
    dur__live_join(set, &c, "c", 0);
    assert_int_equal(dur__live_elsewhere(set), 2);
    dur__live_add(store, "b", &a_loop);
    assert_int_equal(dur__live_elsewhere(set), 1);
    assert_int_equal(dur__live_completed(store, "a", &a_loop, 0, "of a"), 1);
    assert_null(dur__live_told(set)); /* not before all is said */
    dur__live_remove(store, "b", &a_loop);
    dur__live_tell(store);
    dur__live_set_wait(set, UINT64_MAX);
    assert_ptr_equal(dur__live_told(set), &a);
    assert_string_equal(a.output, "of a");
    assert_ptr_equal(dur__live_told(set), &b);
    assert_null(b.output);
    assert_null(dur__live_told(set));
    assert_int_equal(dur__live_elsewhere(set), 1);
    dur__live_unexpect(store, "c"); /* a client has ended it */
    assert_ptr_equal(dur__live_told(set), &c);
    assert_int_equal(dur__live_elsewhere(set), 0);
    free(a.output);
    dur__live_set_free(set);
}

static void who_quits_is_told_nothing(void **state) {
    dur__live_member a = { .set = NULL }, b = { .set = NULL }, other = { .set = NULL };
    dur__live_set *set = dur__live_set_new(store), *second = dur__live_set_new(store);
    (void)state;
    dur__live_add(store, "a", &a_loop);
    dur__live_join(set, &a, "a", 0);
    dur__live_join(set, &b, "b", 0);
    dur__live_join(second, &other, "a", 0);
    dur__live_quit(&b);
    dur__live_quit(&b);
    dur__live_completed(store, "a", &a_loop, 0, "of a");
    dur__live_quit(&a); /* said, and not told */
    dur__live_tell(store);
    assert_null(dur__live_told(set));
    assert_ptr_equal(dur__live_told(second), &other);
    assert_string_equal(other.output, "of a");
    free(other.output);
    assert_int_equal(dur__live_elsewhere(set), 0);
    dur__live_set_free(set);
    dur__live_set_free(second);
}

static void tell_later(void *arg) {
    (void)arg;
    dur__live_completed(store, "a", &a_loop, 0, "of a");
    dur__live_tell(store);
}

/* Whether it sleeps already or not. */
static void a_set_is_woken_where_it_sleeps(void **state) {
    dur__live_set *set = dur__live_set_new(store);
    (void)state;
    for (int i = 0; i < 20; i++) {
        dur__live_member a = { .set = NULL };
        dur__thread thread;
        dur_watch *watch = NULL;
        dur__live_add(store, "a", &a_loop);
        dur__live_join(set, &a, "a", 0);
        OK(dur_store_watch_open(store, "b", &watch, &err));
        assert_int_equal(dur__thread_start(&thread, "tells", tell_later, NULL), 0);
        dur__live_member *told = NULL;
        while (told == NULL) {
            if (i % 2)
                dur__live_set_wait(set, UINT64_MAX);
            else
                OK(dur__live_set_watch(set, watch, UINT64_MAX, &err));
            told = dur__live_told(set);
        }
        assert_ptr_equal(told, &a);
        free(a.output);
        dur__thread_join(&thread);
        dur_store_watch_close(watch);
    }
    dur__live_set_free(set);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        LIVE_TEST(what_does_not_run_here_is_for_the_store),
        LIVE_TEST(many_are_told_the_output),
        LIVE_TEST(until_its_time_has_come),
        LIVE_TEST(taken_over_inside_the_process),
        LIVE_TEST(what_is_expected_may_not_come),
        LIVE_TEST(a_set_is_told_all_of_a_round_at_once),
        LIVE_TEST(who_quits_is_told_nothing),
        LIVE_TEST(a_set_is_woken_where_it_sleeps),
        RUNTIME_TEST(a_result_costs_no_read),
        RUNTIME_TEST(other_ends_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
