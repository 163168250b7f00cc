/*
 * test_thread.c: threads' names and signals, timed waits, and what a forked child learns.
 */
#include "base/assert.h"
#include "base/thread.h"

#include <durite/runtime.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct facts {
    char name[32];
    sigset_t mask;
    bool self;
    dur__thread thread;
    dur__mutex mutex;
    dur__cond cond;
    bool ready;
} facts;

static void learn_facts(void *arg) {
    facts *self = arg;
    pthread_getname_np(pthread_self(), self->name, sizeof(self->name));
    pthread_sigmask(SIG_SETMASK, NULL, &self->mask);
    dur__mutex_lock(&self->mutex);
    while (!self->ready)
        dur__cond_wait(&self->cond, &self->mutex);
    self->self = dur__thread_is_self(&self->thread);
    dur__mutex_unlock(&self->mutex);
}

static void a_thread_has_a_name_and_no_signals(void **state) {
    (void)state;
    facts self = { .self = false };
    dur__mutex_init(&self.mutex);
    dur__cond_init(&self.cond);
    sigset_t before;
    sigset_t after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(dur__thread_start(&self.thread, "durite-loop-number-7", learn_facts, &self), 0);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    dur__mutex_lock(&self.mutex);
    self.ready = true;
    dur__cond_broadcast(&self.cond);
    dur__mutex_unlock(&self.mutex);
    assert_false(dur__thread_is_self(&self.thread));
    dur__thread_join(&self.thread);
    assert_true(self.self);
    assert_string_equal(self.name, "durite-loop-num");
    for (int sig = 1; sig < 32; sig++) {
        bool open =
            sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL || sig == SIGKILL || sig == SIGSTOP;
        assert_int_equal(sigismember(&self.mask, sig) == 0, open);
        assert_int_equal(sigismember(&before, sig), sigismember(&after, sig)); /* ours is as it was */
    }
    dur__cond_destroy(&self.cond);
    dur__mutex_destroy(&self.mutex);
}

static void a_timed_wait_ends(void **state) {
    (void)state;
    dur__mutex mutex;
    dur__cond cond;
    dur__mutex_init(&mutex);
    dur__cond_init(&cond);
    dur__mutex_lock(&mutex);
    uint64_t began = dur__monotonic_us();
    while (dur__cond_wait_ms(&cond, &mutex, 20))
        continue;
    assert_true(dur__monotonic_us() - began >= 20000);
    began = dur__monotonic_us();
    while (dur__cond_wait_us(&cond, &mutex, 1500))
        continue;
    assert_true(dur__monotonic_us() - began >= 1500);
    while (dur__cond_wait_us(&cond, &mutex, 0))
        continue;
    dur__mutex_unlock(&mutex);
    dur__cond_destroy(&cond);
    dur__mutex_destroy(&mutex);
}

static void signal_later(void *arg) {
    facts *self = arg;
    dur__mutex_lock(&self->mutex);
    self->ready = true;
    dur__cond_signal(&self->cond);
    dur__mutex_unlock(&self->mutex);
}

static void an_endless_timed_wait_is_woken(void **state) {
    (void)state;
    facts self = { .self = false };
    dur__mutex_init(&self.mutex);
    dur__cond_init(&self.cond);
    dur__mutex_lock(&self.mutex);
    assert_int_equal(dur__thread_start(&self.thread, "t", signal_later, &self), 0);
    while (!self.ready)
        assert_true(dur__cond_wait_ms(&self.cond, &self.mutex, UINT64_MAX));
    dur__mutex_unlock(&self.mutex);
    dur__thread_join(&self.thread);
    dur__cond_destroy(&self.cond);
    dur__mutex_destroy(&self.mutex);
}

static int child_status(pid_t child) {
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void count_up(void *arg) {
    ++*(int *)arg;
}
static void remove_self(void *arg) {
    count_up(arg);
    dur__at_fork_remove(remove_self, arg);
}

static void a_forked_child_knows(void **state) {
    (void)state;
    uint64_t ours = dur__process_serial();
    assert_int_equal(dur__process_serial(), ours);
    int called = 0;
    int once = 0;
    int removed = 0;
    dur__at_fork_child(remove_self, &once);
    dur__at_fork_child(count_up, &called);
    dur__at_fork_child(count_up, &removed);
    dur__at_fork_remove(count_up, &removed);
    dur__at_fork_remove(count_up, &removed); /* harmless */
    pid_t child = fork();
    if (child == 0) {
        uint64_t theirs = dur__process_serial();
        pid_t grandchild = fork();
        if (grandchild == 0) {
            bool good = dur__process_serial() != theirs && dur__process_serial() != ours;
            _exit(good && called == 2 && once == 1 && removed == 0 ? 0 : 1);
        }
        int status = 1;
        waitpid(grandchild, &status, 0);
        _exit(status == 0 && theirs != ours && called == 1 && once == 1 ? 0 : 1);
    }
    assert_int_equal(child_status(child), 0);
    assert_int_equal(dur__process_serial(), ours);
    assert_int_equal(called, 0);
    dur__at_fork_remove(count_up, &called);
    dur__at_fork_remove(remove_self, &once);
}

static void hook_exits(const char *file, int line, const char *what) {
    _exit(strstr(file, "test_thread.c") != NULL && line > 0 && strcmp(what, "1 == 2") == 0 ? 17 : 1);
}

static void an_assert_calls_the_hook(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        dur_assert_hook(hook_exits);
        DUR_ASSERT(1 == 2);
    }
    int status = child_status(child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 17);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        DUR_ASSERT(1 == 2);
    }
    close(ends[1]);
    char text[256] = "";
    ssize_t got = read(ends[0], text, sizeof(text) - 1);
    assert_true(got > 0);
    assert_non_null(strstr(text, "broken invariant: 1 == 2"));
    close(ends[0]);
    status = child_status(child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_has_a_name_and_no_signals), cmocka_unit_test(a_timed_wait_ends),
        cmocka_unit_test(an_endless_timed_wait_is_woken),     cmocka_unit_test(a_forked_child_knows),
        cmocka_unit_test(an_assert_calls_the_hook),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
