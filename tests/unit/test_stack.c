/*
 * test_stack.c: the pool: sizes, slabs, what idle and parked stacks cost, and running over the end of one.
 */
#include "base/thread.h"
#include "coro/coro_internal.h"

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

#if defined(__has_include)
#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#endif
#endif
#ifndef RUNNING_ON_VALGRIND
#define RUNNING_ON_VALGRIND 0
#endif

enum { STACK = 256 * 1024 };
#define MIB ((size_t)1 << 20)

typedef struct parked {
    dur__coro *coro;
    size_t use; /* bytes of stack */
} parked;

/* Whoever checks memory has more of it. */
static bool memory_is_plain(void) {
#if defined(DUR__CORO_ASAN) || defined(DUR__CORO_TSAN)
    return false;
#else
    const char *under = getenv("DURITE_TEST_UNDER"); /* an emulator's memory is in the process's */
    return RUNNING_ON_VALGRIND == 0 && (under == NULL || under[0] == '\0');
#endif
}

static size_t resident_bytes(void) {
    unsigned long total = 0;
    unsigned long resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &total, &resident), 2);
    fclose(file);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t map_count(void) {
    FILE *file = fopen("/proc/self/maps", "r");
    assert_non_null(file);
    size_t count = 0;
    for (int c; (c = getc(file)) != EOF;)
        count += c == '\n';
    fclose(file);
    return count;
}

__attribute__((noinline, no_sanitize_address)) static void use_and_wait(dur__coro *coro, size_t use) {
    char local[1024];
    memset(local, (int)(use & 0x7f), sizeof(local));
    __asm__ volatile("" : : "r"(local) : "memory"); /* a compiler would leave most of it out */
    if (use > sizeof(local))
        use_and_wait(coro, use - sizeof(local));
    else
        dur__coro_yield(coro);
    if (local[64] != (char)(use & 0x7f)) abort();
}

static void park(void *arg) {
    const parked *self = arg;
    use_and_wait(self->coro, self->use);
}

static void parked_new(parked *self, dur__stacks *stacks, size_t stack_bytes, size_t use) {
    self->use = use;
    self->coro = dur__coro_new(stacks, stack_bytes, "parked", park, self);
    assert_non_null(self->coro);
    assert_true(dur__coro_resume(self->coro));
}

static void sizes(void **state) {
    (void)state;
    dur__stacks *stacks = dur__stacks_new();
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t asked[] = { 0, 1, 16 * 1024, 100001, STACK, STACK + 1, 8 * MIB };
    for (size_t i = 0; i < sizeof(asked) / sizeof(*asked); i++) {
        parked one;
        parked_new(&one, stacks, asked[i], 100);
        size_t bytes = dur__coro_stack_bytes(one.coro);
        assert_true(bytes >= asked[i] && bytes >= 16 * 1024 && bytes % page == 0);
        assert_true(asked[i] < 16 * 1024 || bytes < asked[i] + page);
        dur__coro_discard(one.coro);
    }
    parked one;
    assert_null(dur__coro_new(stacks, SIZE_MAX, "x", park, &one));
    assert_null(dur__coro_new(stacks, SIZE_MAX / 2, "x", park, &one));
    dur__stacks_free(stacks);
    dur__stacks_free(NULL);
}

static void the_last_one_back_is_the_next_one_out(void **state) {
    (void)state;
    dur__stacks *stacks = dur__stacks_new();
    parked a, b, c;
    parked_new(&a, stacks, STACK, 100);
    parked_new(&b, stacks, STACK, 100);
    parked_new(&c, stacks, 2 * STACK, 100);
    dur__coro *first = a.coro;
    dur__coro *second = b.coro;
    dur__coro_discard(first);
    dur__coro_discard(second);
    dur__coro_discard(c.coro);
    parked_new(&a, stacks, STACK, 100);
    assert_ptr_equal(a.coro, second);
    parked_new(&b, stacks, STACK, 100);
    assert_ptr_equal(b.coro, first);
    dur__coro_discard(a.coro);
    dur__coro_discard(b.coro);
    dur__stacks_free(stacks);
}

static void slabs_come_and_go(void **state) {
    (void)state;
    enum { COUNT = 300 };
    static parked all[COUNT];
    size_t maps = map_count();
    dur__stacks *stacks = dur__stacks_new();
    dur__stacks_guarded_max(stacks, 0);
    for (size_t i = 0; i < COUNT; i++) {
        parked_new(&all[i], stacks, STACK, 1024 * (i % 100 + 1));
        assert_non_null(all[i].coro->slab);
        assert_true(dur__coro_high_water(all[i].coro) >= 1024 * (i % 100 + 1));
    }
    for (size_t i = 1; i < COUNT; i++) /* each has space below it that is nobody's */
        for (size_t k = 0; k < i; k++) {
            const char *a = all[i].coro->low;
            const char *b = all[k].coro->low;
            assert_true((size_t)(a < b ? b - a : a - b) >= STACK + DUR__STACK_GUARD);
        }
    if (memory_is_plain()) assert_true(map_count() < maps + COUNT / 10);
    for (size_t i = 0; i < COUNT; i++)
        if (i != 150) dur__coro_discard(all[i].coro);
    dur__stacks_trim(stacks, 0); /* one slab must stay */
    assert_false(dur__coro_resume(all[150].coro));
    dur__coro_discard(all[150].coro);
    dur__stacks_trim(stacks, 10);
    parked_new(&all[0], stacks, STACK, 1024);
    dur__coro_discard(all[0].coro);
    dur__stacks_free(stacks);
    if (memory_is_plain()) assert_true(map_count() <= maps + 4);
}

static void trimming_gives_guarded_stacks_back(void **state) {
    (void)state;
    enum { COUNT = 100 };
    parked all[COUNT];
    dur__stacks *stacks = dur__stacks_new();
    for (size_t i = 0; i < COUNT; i++)
        parked_new(&all[i], stacks, STACK, 1024);
    size_t maps = map_count();
    dur__coro *newest = all[COUNT - 1].coro;
    for (size_t i = 0; i < COUNT; i++)
        dur__coro_discard(all[i].coro);
    dur__stacks_trim(stacks, COUNT);
    dur__stacks_trim(stacks, 1);
    if (memory_is_plain()) assert_true(map_count() + COUNT < maps);
    parked_new(&all[0], stacks, STACK, 1024);
    assert_ptr_equal(all[0].coro, newest); /* the warmest was kept */
    dur__coro_discard(all[0].coro);
    dur__stacks_free(stacks);
}

static void an_idle_pool_is_cheap(void **state) {
    (void)state;
    enum { COUNT = 400, DEEP = 120 * 1024 }; /* checkers' frames are larger */
    static parked all[COUNT];
    for (int slabs = 0; slabs < 2; slabs++) {
        dur__stacks *stacks = dur__stacks_new();
        if (slabs) dur__stacks_guarded_max(stacks, 0);
        size_t before = resident_bytes();
        for (size_t i = 0; i < COUNT; i++)
            parked_new(&all[i], stacks, STACK, DEEP);
        size_t full = resident_bytes() - before;
        for (size_t i = 0; i < COUNT; i++)
            dur__coro_discard(all[i].coro);
        size_t idle = resident_bytes() - before;
        dur__stacks_trim(stacks, 0);
        size_t trimmed = resident_bytes() - before;
        if (memory_is_plain()) {
            assert_true(full > COUNT * (size_t)DEEP);
            assert_true(idle < 65 * (size_t)(DEEP + 40 * 1024) + COUNT * (size_t)12 * 1024);
            assert_true(trimmed < 2 * MIB);
        }
        dur__stacks_free(stacks);
    }
}

/* ---- over the end of a stack without guard ---- */

typedef struct runner {
    dur__coro *coro;
    int levels;
    bool yields;
} runner;

__attribute__((noinline, no_sanitize_address)) static int deep(int levels) {
    volatile char frame[1024];
    memset((char *)(uintptr_t)frame, 0x5a, sizeof(frame));
    int below = levels > 0 ? deep(levels - 1) : 0;
    return below + frame[levels % 1024];
}

static void run_over(void *arg) {
    runner *self = arg;
    self->levels = deep(self->levels);
    if (self->yields) dur__coro_yield(self->coro);
}

static int overflow_child(int levels, bool yields, char *text, size_t room) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        dur__stacks *stacks = dur__stacks_new();
        dur__stacks_guarded_max(stacks, 0);
        runner self = { .levels = levels, .yields = yields };
        parked neighbour;
        parked_new(&neighbour, stacks, 64 * 1024, 100); /* takes the slot below */
        self.coro = dur__coro_new(stacks, 64 * 1024, "Ship", run_over, &self);
        dur__coro_resume(self.coro);
        _exit(0);
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

static void running_over_the_end_in_a_slab(void **state) {
    (void)state;
    char text[4096];
#if !defined(DUR__CORO_ASAN) && !defined(DUR__CORO_TSAN) /* their frames are larger */
    assert_int_equal(overflow_child(40, true, text, sizeof(text)), 0);
#endif
    for (int yields = 0; yields < 2; yields++) {
        int status = overflow_child(75, yields != 0, text, sizeof(text));
        assert_non_null(strstr(text, "stack overflow in handler \"Ship\" (stack 65536 bytes)"));
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

static int scaled(int full) {
    const char *text = getenv("DURITE_TEST_SCALE");
    long percent = text != NULL ? strtol(text, NULL, 10) : 100;
#if defined(DUR__CORO_TSAN)
    if (percent > 1) percent = 1; /* it knows 8,128 threads and fibers, and makes them slowly */
#elif defined(DUR__CORO_ASAN)
    if (percent > 15) percent = 15;
#endif
    long count = full / 100 * percent;
    return count < 100 ? 100 : (int)count;
}

static void a_hundred_thousand_parked(void **state) {
    (void)state;
    size_t count = (size_t)scaled(100000);
    parked *all = calloc(count, sizeof(*all));
    dur__stacks *stacks = dur__stacks_new();
    size_t before = resident_bytes();
    uint64_t began = dur__monotonic_us();
    for (size_t i = 0; i < count; i++)
        parked_new(&all[i], stacks, STACK, 1024);
    uint64_t made = dur__monotonic_us();
    size_t cost = resident_bytes() - before;
    size_t maps = map_count();
    print_message("%zu parked: %zu MiB, %zu mappings, %.2f us each\n", count, cost / MIB, maps,
                  (double)(made - began) / (double)count);
    if (memory_is_plain()) {
        assert_true(cost / count < 500 * MIB / 100000);
        assert_true(maps < 30000);
    }
    for (size_t i = 0; i < count; i++) {
        assert_false(dur__coro_resume(all[i].coro));
        dur__coro_discard(all[i].coro);
    }
    size_t idle = resident_bytes() - before;
    print_message("all idle: %zu MiB\n", idle / MIB);
    if (memory_is_plain()) assert_true(idle < 16 * MIB + count * 512);
    dur__stacks_free(stacks);
    free(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(the_last_one_back_is_the_next_one_out),
        cmocka_unit_test(slabs_come_and_go),
        cmocka_unit_test(trimming_gives_guarded_stacks_back),
        cmocka_unit_test(an_idle_pool_is_cheap),
        cmocka_unit_test(running_over_the_end_in_a_slab),
        cmocka_unit_test(a_hundred_thousand_parked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
