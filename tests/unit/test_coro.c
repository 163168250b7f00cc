/*
 * test_coro.c: switching to and fro, what is kept, dropping what waits, and the crash report.
 */
#include "base/thread.h"
#include "coro/coro_internal.h"
#include "coro/crash_report.h"

#include <durite/runtime.h>
#include <errno.h>
#include <fenv.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef DUR__CORO_ASAN
#include <sanitizer/asan_interface.h>
#endif
#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif
#ifndef RUNNING_ON_VALGRIND
#define RUNNING_ON_VALGRIND 0
#endif

enum { STACK = 256 * 1024 };

typedef struct player {
    dur__coro *coro;
    int count;
    int limit;
    int result;
} player;

static dur__stacks *stacks;

static int setup(void **state) {
    (void)state;
    stacks = dur__stacks_new();
    return 0;
}

static int teardown(void **state) {
    (void)state;
    if (dur__stacks_in_use(stacks) != 0) return 1;
    dur__stacks_free(stacks);
    return 0;
}

static void play(void *arg) {
    player *self = arg;
    for (self->count = 0; self->count < self->limit; self->count++)
        dur__coro_yield(self->coro);
}

static player *player_new(player *self, int limit) {
    *self = (player){ .limit = limit };
    self->coro = dur__coro_new(stacks, STACK, "player", play, self);
    assert_non_null(self->coro);
    return self;
}

static void ping_pong(void **state) {
    (void)state;
    player self;
    player_new(&self, 1000);
    assert_int_equal(self.count, 0);
    assert_null(dur__coro_current());
    for (int i = 0; i < 1000; i++) {
        assert_true(dur__coro_resume(self.coro));
        assert_int_equal(self.count, i);
        assert_false(dur__coro_done(self.coro));
    }
    assert_false(dur__coro_resume(self.coro));
    assert_true(dur__coro_done(self.coro));
    assert_int_equal(dur__stacks_in_use(stacks), 1);
    dur__coro_discard(self.coro);
    dur__coro_discard(NULL);
    assert_int_equal(dur__stacks_in_use(stacks), 0);
}

__attribute__((noinline)) static void deep_then_yield(dur__coro *coro, int depth) {
    volatile char local[200];
    memset((char *)(uintptr_t)local, depth, sizeof(local));
    if (depth > 0)
        deep_then_yield(coro, depth - 1);
    else
        dur__coro_yield(coro);
    for (size_t i = 0; i < sizeof(local); i++)
        if (local[i] != (char)depth) abort();
}

static void go_deep(void *arg) {
    player *self = arg;
    deep_then_yield(self->coro, self->limit);
    deep_then_yield(self->coro, self->limit / 2);
    self->result = 1;
}

static void yielding_from_deep_inside(void **state) {
    (void)state;
    player self = { .limit = 100 };
    self.coro = dur__coro_new(stacks, STACK, "deep", go_deep, &self);
    assert_true(dur__coro_resume(self.coro));
#ifndef DUR__CORO_ASAN /* whose locals may live elsewhere */
    assert_true(dur__coro_high_water(self.coro) >= 100 * 200);
#endif
    assert_true(dur__coro_high_water(self.coro) <= STACK);
    assert_int_equal(dur__coro_stack_bytes(self.coro), STACK);
    assert_true(dur__coro_resume(self.coro));
    assert_false(dur__coro_resume(self.coro));
    assert_int_equal(self.result, 1);
    dur__coro_discard(self.coro);
}

/* The everyday case: dropped while it waits, the frames never unwound, the stack used again by others. */
static void dropping_what_waits(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        player a = { .limit = 1 + round % 60 };
        player b = { .limit = 50 };
        a.coro = dur__coro_new(stacks, STACK, "a", go_deep, &a);
        b.coro = dur__coro_new(stacks, STACK, "b", go_deep, &b);
        assert_true(dur__coro_resume(a.coro));
        assert_true(dur__coro_resume(b.coro));
        dur__coro_discard(a.coro);
#ifdef DUR__CORO_ASAN
        assert_null(__asan_region_is_poisoned(a.coro->low, STACK)); /* no red zones of frames that are no more */
#endif
        player c = { .limit = 90 };
        c.coro = dur__coro_new(stacks, STACK, "c", go_deep, &c); /* a's stack */
        assert_ptr_equal(c.coro, a.coro);
        assert_true(dur__coro_resume(c.coro));
        assert_true(dur__coro_resume(b.coro));
        if (round % 2) {
            dur__coro_discard(b.coro);
            dur__coro_discard(c.coro);
        } else {
            assert_true(dur__coro_resume(c.coro));
            assert_false(dur__coro_resume(c.coro));
            dur__coro_discard(c.coro);
            dur__coro_discard(b.coro);
        }
    }
    player never;
    player_new(&never, 1);
    dur__coro_discard(never.coro); /* not even begun */
}

static void inner(void *arg) {
    player *self = arg;
    assert_ptr_equal(dur__coro_current(), self->coro);
    dur__coro_yield(self->coro);
    self->result = 7;
}

static void outer(void *arg) {
    player *self = arg;
    player in = { .limit = 0 };
    in.coro = dur__coro_new(stacks, STACK, "inner", inner, &in);
    dur__coro_resume(in.coro);
    assert_ptr_equal(dur__coro_current(), self->coro);
    dur__coro_yield(self->coro); /* both wait now */
    dur__coro_resume(in.coro);
    self->result = in.result;
    dur__coro_discard(in.coro);
}

static void one_inside_another(void **state) {
    (void)state;
    player self = { .limit = 0 };
    self.coro = dur__coro_new(stacks, STACK, "outer", outer, &self);
    assert_true(dur__coro_resume(self.coro));
    assert_null(dur__coro_current());
    assert_int_equal(dur__stacks_in_use(stacks), 2);
    assert_false(dur__coro_resume(self.coro));
    assert_int_equal(self.result, 7);
    dur__coro_discard(self.coro);
}

static void other_modes(void *arg) {
    player *self = arg;
    self->result = errno == ERANGE && fegetround() == FE_UPWARD; /* begun as whoever resumes it */
    errno = EAGAIN;
    fesetround(FE_DOWNWARD);
    dur__coro_yield(self->coro);
    self->result = self->result && errno == EAGAIN && fegetround() == FE_DOWNWARD;
    volatile double tenth = 1.0;
    tenth /= 10.0;
    /* The nearest is above; valgrind computes with its own idea of rounding. */
    self->result = self->result && (tenth < 0.1 || RUNNING_ON_VALGRIND);
    errno = ENOENT;
    fesetround(FE_TOWARDZERO);
}

static void errno_and_rounding_are_kept(void **state) {
    (void)state;
    player self = { .limit = 0 };
    fesetround(FE_UPWARD);
    self.coro = dur__coro_new(stacks, STACK, "modes", other_modes, &self);
    errno = ERANGE;
    assert_true(dur__coro_resume(self.coro));
    assert_int_equal(errno, ERANGE);
    assert_int_equal(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    errno = EINTR;
    assert_false(dur__coro_resume(self.coro));
    assert_int_equal(errno, EINTR);
    assert_int_equal(fegetround(), FE_TONEAREST);
    assert_int_equal(self.result, 1);
    dur__coro_discard(self.coro);
}

/* More values than there are registers to keep, on both sides of each switch. */
#define STIR(step)                                                                                                     \
    uint64_t a = seed, b = seed * 3, c = seed * 5, d = seed * 7, e = seed * 11, f = seed * 13, g = seed * 17;          \
    double k = (double)seed, l = k * 2, m = k * 3, n = k * 4, o = k * 5, p = k * 6, q = k * 7, r = k * 8;              \
    for (int i = 0; i < 100; i++) {                                                                                    \
        a = a * 3 + 1, b ^= a, c += b, d ^= c, e += d, f ^= e, g += f;                                                 \
        k += 1, l += k, m += 2, n += m, o += 3, p += o, q += 4, r += q;                                                \
        step;                                                                                                          \
    }                                                                                                                  \
    return a ^ b ^ c ^ d ^ e ^ f ^ g ^ (uint64_t)(k + l + m + n + o + p + q + r);

__attribute__((noinline)) static uint64_t stir_alone(uint64_t seed) {
    STIR((void)0)
}
__attribute__((noinline)) static uint64_t stir_inside(uint64_t seed, dur__coro *coro) {
    STIR(dur__coro_yield(coro))
}
__attribute__((noinline)) static uint64_t stir_outside(uint64_t seed, dur__coro *coro) {
    STIR(dur__coro_resume(coro))
}

static void stirring(void *arg) {
    player *self = arg;
    self->result = stir_inside(1, self->coro) == stir_alone(1);
}

static void registers_are_kept(void **state) {
    (void)state;
    player self = { .limit = 0 };
    self.coro = dur__coro_new(stacks, STACK, "stirring", stirring, &self);
    assert_true(stir_outside(99, self.coro) == stir_alone(99));
    assert_false(dur__coro_resume(self.coro));
    assert_int_equal(self.result, 1);
    dur__coro_discard(self.coro);
}

#if !defined(DUR__CORO_ASAN) && !defined(DUR__CORO_TSAN) /* nobody tells them of these */
static void *here_sp;
static void *there_sp;
static bool there_good;

__attribute__((noinline)) static uint64_t stir_bare(uint64_t seed, void **from, void *const *to) {
    STIR(dur__coro_switch(from, *to))
}

static void stirring_bare(void *arg) {
    (void)arg;
    there_good = stir_bare(5, &there_sp, &here_sp) == stir_alone(5);
    dur__coro_switch(&there_sp, here_sp);
}

/* Without resume and yield, which have saved some of the registers themselves. */
static void registers_are_kept_by_the_switch_alone(void **state) {
    (void)state;
    dur__coro *coro = dur__coro_new(stacks, STACK, "bare", play, NULL); /* for its stack */
    there_sp = dur__coro_prepare(coro->low, coro->low + coro->size, stirring_bare, NULL);
    assert_true(stir_bare(77, &here_sp, &there_sp) == stir_alone(77));
    dur__coro_switch(&here_sp, there_sp);
    assert_true(there_good);
    dur__coro_discard(coro);
}
#endif

static void jump_inside(void *arg) {
    player *self = arg;
    static jmp_buf to;
    if (setjmp(to) == 0) {
        dur__coro_yield(self->coro);
        longjmp(to, 1);
    }
    self->result = 1;
    dur__coro_yield(self->coro);
}

static void longjmp_within_the_stack(void **state) {
    (void)state;
    player self = { .limit = 0 };
    self.coro = dur__coro_new(stacks, STACK, "jumper", jump_inside, &self);
    assert_true(dur__coro_resume(self.coro));
    assert_true(dur__coro_resume(self.coro));
    assert_int_equal(self.result, 1);
    dur__coro_discard(self.coro);
}

static void aligned_entry(void *arg) {
    player *self = arg;
    _Alignas(16) volatile char probe[64];
    char text[64];
    probe[0] = 1;
    snprintf(text, sizeof(text), "%.3Lf %g", 1.5L + probe[0], 2.25); /* vector registers, long double */
    self->result = ((uintptr_t)probe & 15) == 0 && strcmp(text, "2.500 2.25") == 0;
}

static void the_stack_is_aligned(void **state) {
    (void)state;
    player self = { .limit = 0 };
    self.coro = dur__coro_new(stacks, 1, "aligned", aligned_entry, &self); /* the smallest stack there is */
    assert_false(dur__coro_resume(self.coro));
    assert_int_equal(self.result, 1);
    assert_true(dur__coro_stack_bytes(self.coro) >= 16 * 1024);
    dur__coro_discard(self.coro);
}

static int scaled(int full) {
    const char *text = getenv("DURITE_TEST_SCALE");
    long percent = text != NULL ? strtol(text, NULL, 10) : 100;
#if defined(DUR__CORO_TSAN)
    if (percent > 5) percent = 5; /* it knows 8,128 threads and fibers, and makes them slowly */
#endif
    long count = full * percent / 100;
    return count < 10 ? 10 : (int)count;
}

static void ten_thousand_live(void **state) {
    (void)state;
    int count = scaled(10000);
    player *all = calloc((size_t)count, sizeof(*all));
    for (int i = 0; i < count; i++)
        assert_true(dur__coro_resume(player_new(&all[i], i % 7 + 1)->coro));
    assert_int_equal(dur__stacks_in_use(stacks), count);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < count; i++)
            if (!dur__coro_done(all[i].coro)) dur__coro_resume(all[i].coro);
    for (int i = 0; i < count; i++) {
        assert_int_equal(all[i].count, i % 7 + 1 < 3 ? i % 7 + 1 : 3);
        dur__coro_discard(all[i].coro);
    }
    free(all);
}

static void loop_thread(void *arg) {
    player *self = arg;
    dur__crash_report_thread_begin();
    dur__stacks *mine = dur__stacks_new();
    player one = { .limit = 1000 };
    one.coro = dur__coro_new(mine, STACK, "one", play, &one);
    while (dur__coro_resume(one.coro))
        self->count++;
    dur__coro_discard(one.coro);
    dur__stacks_free(mine);
    dur__crash_report_thread_end();
}

static void threads_do_not_meet(void **state) {
    (void)state;
    player results[3] = { { .count = 0 } };
    dur__thread threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(dur__thread_start(&threads[i], "loop", loop_thread, &results[i]), 0);
    for (int i = 0; i < 3; i++) {
        dur__thread_join(&threads[i]);
        assert_int_equal(results[i].count, 1000);
    }
}

/* ---- crashes: in a child, whose last words are read ---- */

static int volatile one = 1;

__attribute__((noinline, no_sanitize_address)) static int endless(int depth) {
    volatile char frame[512];
    frame[0] = (char)depth;
    return one ? endless(depth + 1) + frame[0] : 0;
}

static void overflow(void *arg) {
    player *self = arg;
    self->result = endless(0);
}

static void wild(void *arg) {
    (void)arg;
    *(volatile int *)(uintptr_t)0x1000 = 1;
}

static void crash_in_thread(void *arg) {
    dur__crash_report_thread_begin();
    dur__coro_resume(arg);
}

static void quiet_chain(int sig) {
    (void)sig;
    static const char text[] = "chained\n";
    ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);
    _exit(written > 0 ? 42 : 1);
}

static int child_run(void (*fn)(void *), size_t stack_bytes, bool chain, bool in_thread, char *text, size_t room) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        /* cmocka has handlers of its own, which would turn the crash into a failed test */
        signal(SIGSEGV, chain ? quiet_chain : SIG_DFL);
        signal(SIGBUS, chain ? quiet_chain : SIG_DFL);
        dur_error err = DUR_ERROR_INIT;
        if (dur_crash_report_install(&err) != DUR_OK || dur_crash_report_install(NULL) != DUR_OK) _exit(3);
        player self = { .limit = 0 };
        self.coro = dur__coro_new(stacks, stack_bytes, "Ship\nOrder", fn, &self);
        dur__thread thread;
        if (in_thread && dur__thread_start(&thread, "loop", crash_in_thread, self.coro) == 0)
            dur__thread_join(&thread);
        else
            dur__coro_resume(self.coro);
        _exit(4);
    }
    close(ends[1]);
    size_t size = 0;
    ssize_t got;
    while ((got = read(ends[0], text + size, room - 1 - size)) > 0)
        size += (size_t)got;
    text[size] = '\0';
    close(ends[0]);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void the_last_words_of_an_overflow(void **state) {
    (void)state;
    char text[4096];
    /* A checker may say something of its own before and after. */
    for (int in_thread = 0; in_thread < 2; in_thread++) {
        int status = child_run(overflow, STACK, false, in_thread != 0, text, sizeof(text));
        assert_non_null(strstr(text, "durite: stack overflow in handler \"Ship?Order\" (stack 262144 bytes)\n"));
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV); /* and then the default */
    }
    int status = child_run(overflow, STACK / 2, true, false, text, sizeof(text));
    assert_non_null(strstr(text, "durite: stack overflow in handler \"Ship?Order\" (stack 131072 bytes)\nchained\n"));
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
}

static void the_last_words_of_a_wild_pointer(void **state) {
    (void)state;
    char text[4096];
    int status = child_run(wild, STACK, false, false, text, sizeof(text));
    assert_non_null(strstr(text, "durite: SIGSEGV at address 0x1000 in handler \"Ship?Order\"\n"));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void who_owns_a_guard(void *arg) {
    player *self = arg;
    const char *name = NULL;
    size_t bytes = 0;
    const char *low = self->coro->low;
    self->result = dur__coro_guard_owner(low - 1, &name, &bytes) && strcmp(name, "owner") == 0 && bytes == STACK &&
                   dur__coro_guard_owner(low - DUR__STACK_GUARD, &name, &bytes) &&
                   !dur__coro_guard_owner(low, &name, &bytes) &&
                   !dur__coro_guard_owner(low - DUR__STACK_GUARD - 1, &name, &bytes) &&
                   !dur__coro_guard_owner(NULL, &name, &bytes);
}

static void guards_have_owners(void **state) {
    (void)state;
    player self = { .limit = 0 };
    self.coro = dur__coro_new(stacks, STACK, "owner", who_owns_a_guard, &self);
    assert_false(dur__coro_resume(self.coro));
    assert_int_equal(self.result, 1);
    const char *name;
    size_t bytes;
    assert_false(dur__coro_guard_owner(self.coro->low - 1, &name, &bytes)); /* nobody is on it */
    dur__coro_discard(self.coro);
}

static void report_cost(void **state) {
    (void)state;
    player self;
    player_new(&self, scaled(1000000));
    uint64_t began = dur__monotonic_us();
    while (dur__coro_resume(self.coro))
        continue;
    uint64_t took = dur__monotonic_us() - began;
    print_message("resume and yield: %.1f ns\n", (double)took * 1000 / self.limit);
    dur__coro_discard(self.coro);
    began = dur__monotonic_us();
    int rounds = scaled(100000);
    for (int i = 0; i < rounds; i++) {
        player_new(&self, 1);
        dur__coro_resume(self.coro);
        dur__coro_discard(self.coro);
    }
    took = dur__monotonic_us() - began;
    print_message("new, resume, discard of a pooled stack: %.1f ns\n", (double)took * 1000 / rounds);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(ping_pong),
        TEST(yielding_from_deep_inside),
        TEST(dropping_what_waits),
        TEST(one_inside_another),
        TEST(errno_and_rounding_are_kept),
        TEST(registers_are_kept),
#if !defined(DUR__CORO_ASAN) && !defined(DUR__CORO_TSAN)
        TEST(registers_are_kept_by_the_switch_alone),
#endif
        TEST(longjmp_within_the_stack),
        TEST(the_stack_is_aligned),
        TEST(ten_thousand_live),
        TEST(threads_do_not_meet),
        TEST(the_last_words_of_an_overflow),
        TEST(the_last_words_of_a_wild_pointer),
        TEST(guards_have_owners),
        TEST(report_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
