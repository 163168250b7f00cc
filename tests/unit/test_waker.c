/*
 * test_waker.c: no wake is lost, and none costs more than it must.
 */
#include "base/thread.h"
#include "base/waker_internal.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool readable(const dur_waker *waker) {
    struct pollfd fd = { .fd = dur_waker_fd(waker), .events = POLLIN };
    return poll(&fd, 1, 0) == 1;
}

static void waking_an_awake_thread_writes_nothing(void **state) {
    (void)state;
    dur_waker *waker = dur_waker_new();
    assert_non_null(waker);
    for (int i = 0; i < 3; i++)
        dur_waker_wake(waker);
    assert_false(readable(waker));
    assert_false(dur_waker_sleep_begin(waker)); /* one wake, however often */
    assert_true(dur_waker_sleep_begin(waker));
    assert_false(readable(waker));
    dur_waker_wake(waker);
    dur_waker_wake(waker);
    assert_true(readable(waker));
    assert_true(dur_waker_sleep_end(waker));
    assert_false(readable(waker));
    assert_false(dur_waker_sleep_end(waker));
    assert_true(dur_waker_sleep_begin(waker));
    assert_false(dur_waker_sleep_end(waker)); /* slept in vain */
    dur_waker_wake(waker);
    assert_true(dur_waker_sleep_end(waker)); /* taken without having slept: nothing was written */
    dur_waker_wake(waker);
    dur_waker_free(waker);
    dur_waker_free(NULL);
}

static void sleeping(void **state) {
    (void)state;
    dur_waker *waker = dur_waker_new();
    uint64_t began = dur__monotonic_us();
    assert_false(dur_waker_sleep(waker, 3000));
    assert_true(dur__monotonic_us() - began >= 3000);
    assert_false(dur_waker_sleep(waker, 0));
    dur_waker_wake(waker);
    assert_true(dur_waker_sleep(waker, UINT64_MAX));
    dur_waker_wake(waker);
    assert_true(dur_waker_sleep(waker, 0));
    assert_false(dur_waker_sleep(waker, 0));
    dur_waker_free(waker);
}

typedef struct duty {
    dur_waker *waker;
    _Atomic uint64_t sent;
    uint64_t count;
} duty;

static void send_many(void *arg) {
    duty *self = arg;
    for (uint64_t i = 0; i < self->count; i++) {
        atomic_fetch_add_explicit(&self->sent, 1, memory_order_relaxed);
        dur_waker_wake(self->waker);
    }
}

/* The receiver sleeps without end whenever it has seen nothing new: a lost wake would hang the test. */
static void no_wake_is_lost(void **state) {
    (void)state;
    enum { SENDERS = 3 };
    duty self = { .waker = dur_waker_new(), .count = 20000 };
    dur__thread threads[SENDERS];
    for (int i = 0; i < SENDERS; i++)
        assert_int_equal(dur__thread_start(&threads[i], "sender", send_many, &self), 0);
    uint64_t seen = 0;
    while (seen < SENDERS * self.count) {
        uint64_t now = atomic_load_explicit(&self.sent, memory_order_relaxed);
        if (now == seen) assert_true(dur_waker_sleep(self.waker, UINT64_MAX));
        seen = now;
    }
    for (int i = 0; i < SENDERS; i++)
        dur__thread_join(&threads[i]);
    dur_waker_free(self.waker);
}

static void send_one(void *arg) {
    duty *self = arg;
    dur_waker_wake(self->waker);
}

static void spinning(void **state) {
    (void)state;
    dur_waker *waker = dur_waker_new();
    duty self = { .waker = waker };
    dur__thread thread;
    uint64_t began_us = dur__monotonic_us();
    assert_false(dur__waker_spin(waker, 500));
    assert_true(dur__monotonic_us() - began_us >= 500);
    assert_int_equal(dur__thread_start(&thread, "sender", send_one, &self), 0);
    assert_true(dur__waker_spin(waker, 60000000));
    assert_false(readable(waker)); /* nobody had to write */
    assert_true(dur__waker_spin(waker, 0));
    dur__thread_join(&thread);
    assert_true(dur_waker_sleep(waker, UINT64_MAX)); /* it is not used up, and the sleep does not happen */
    assert_false(dur__waker_spin(waker, 0));
    dur_waker_free(waker);
}

/* Who is woken may free the waker at once, while the other thread still returns from its wake. */
static void freed_by_whom_it_woke(void **state) {
    (void)state;
    for (int i = 0; i < 300; i++) {
        duty self = { .waker = dur_waker_new() };
        dur__thread thread;
        assert_int_equal(dur__thread_start(&thread, "sender", send_one, &self), 0);
        assert_true(dur_waker_sleep(self.waker, UINT64_MAX));
        dur_waker_free(self.waker);
        dur__thread_join(&thread);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waking_an_awake_thread_writes_nothing),
        cmocka_unit_test(sleeping),
        cmocka_unit_test(no_wake_is_lost),
        cmocka_unit_test(spinning),
        cmocka_unit_test(freed_by_whom_it_woke),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
