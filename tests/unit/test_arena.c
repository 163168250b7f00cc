/*
 * test_arena.c: lifetimes, alignment, packing, the bound and its jump.
 */
#include "base/arena_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void objects_are_aligned_and_apart(void **state) {
    (void)state;
    dur_arena *arena = dur_arena_new();
    assert_non_null(arena);
    unsigned char *objects[2000];
    for (size_t i = 0; i < 2000; i++) {
        size_t size = i % 97;
        objects[i] = dur_arena_alloc(arena, size);
        assert_int_equal((uintptr_t)objects[i] % _Alignof(max_align_t), 0);
        memset(objects[i], (int)(i & 0xff), size);
        if (i % 3 == 0) dur_arena_strdup(arena, "x"); /* leaves the arena unaligned */
    }
    for (size_t i = 0; i < 2000; i++)
        for (size_t k = 0; k < i % 97; k++)
            assert_int_equal(objects[i][k], i & 0xff);
    assert_ptr_not_equal(dur_arena_alloc(arena, 0), dur_arena_alloc(arena, 0));
    dur_arena_free(arena);
    dur_arena_free(NULL);
}

static void texts(void **state) {
    (void)state;
    dur_arena *arena = dur_arena_new();
    assert_null(dur_arena_strdup(arena, NULL));
    assert_string_equal(dur_arena_strdup(arena, ""), "");
    assert_string_equal(dur_arena_strdup(arena, "hello"), "hello");
    char *piece = dur_arena_memdup(arena, "a\0b", 3);
    assert_memory_equal(piece, "a\0b", 4);
    assert_string_equal(dur_arena_memdup(arena, NULL, 0), "");
    assert_string_equal(dur_arena_format(arena, "%d-%s", 7, "x"), "7-x");
    for (int width = 250; width < 262; width++) { /* around the local buffer */
        char *text = dur_arena_format(arena, "%*d", width, 5);
        assert_int_equal(strlen(text), width);
        assert_int_equal(text[width - 1], '5');
    }
    char *large = dur_arena_format(arena, "%*d", 300000, 5);
    assert_int_equal(strlen(large), 300000);
    const unsigned char *zeros = dur_arena_zalloc(arena, 5000);
    for (size_t i = 0; i < 5000; i++)
        assert_int_equal(zeros[i], 0);
    dur_arena_free(arena);
}

static void reset_forgets_but_keeps_little(void **state) {
    (void)state;
    dur_arena *arena = dur_arena_new();
    size_t fresh = dur__arena_held(arena);
    dur_arena_reset(arena);
    assert_int_equal(dur__arena_held(arena), fresh);
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < 1000; i++)
            memset(dur_arena_alloc(arena, 1000), round, 1000);
        memset(dur_arena_alloc(arena, 1 << 20), round, 1 << 20);
        assert_true(dur_arena_bytes(arena) == 1000 * 1000 + (1 << 20));
        assert_true(dur__arena_held(arena) >= dur_arena_bytes(arena));
        dur_arena_reset(arena);
        assert_int_equal(dur_arena_bytes(arena), 0);
        assert_true(dur__arena_held(arena) <= 70 * 1024);
    }
    dur_arena_free(arena);
}

static void a_large_object_does_not_waste_the_chunk(void **state) {
    (void)state;
#ifndef DURITE_DEBUG_ARENA
    dur_arena *arena = dur_arena_new();
    char *before = dur_arena_memdup(arena, "a", 1);
    dur_arena_alloc(arena, 100000);
    char *after = dur_arena_memdup(arena, "b", 1);
    assert_ptr_equal(after, before + 2); /* texts are packed, in the same chunk */
    assert_true(dur__arena_held(arena) < 1024 + 100000 + 100);
    dur_arena_free(arena);
#endif
}

typedef struct jump {
    jmp_buf to;
    int count;
} jump;

static void jump_away(void *data) {
    jump *self = data;
    self->count++;
    longjmp(self->to, 1);
}

static void the_bound_is_exact_and_leaves_the_arena_whole(void **state) {
    (void)state;
    dur_arena *arena = dur_arena_new();
    jump over = { .count = 0 };
    dur__arena_set_limit(arena, 4096, jump_away, &over);
    if (setjmp(over.to) == 0) {
        dur_arena_alloc(arena, 4096);
        assert_int_equal(over.count, 0);
        dur_arena_alloc(arena, 1);
        fail_msg("over returned");
    }
    assert_int_equal(over.count, 1);
    assert_int_equal(dur_arena_bytes(arena), 4096);
    if (setjmp(over.to) == 0) dur_arena_format(arena, "%s", "no room");
    assert_int_equal(over.count, 2);
    dur_arena_reset(arena);
    assert_string_equal(dur_arena_strdup(arena, "again"), "again");
    dur_arena_free(arena);
}

static void absurd_sizes_end_in_the_jump(void **state) {
    (void)state;
    dur_arena *arena = dur_arena_new();
    jump over = { .count = 0 };
    dur__arena_set_limit(arena, SIZE_MAX - 1, jump_away, &over);
    if (setjmp(over.to) == 0) dur_arena_alloc(arena, SIZE_MAX);
    assert_int_equal(over.count, 1);
    if (setjmp(over.to) == 0) dur_arena_memdup(arena, "", SIZE_MAX);
    assert_int_equal(over.count, 2);
    if (setjmp(over.to) == 0) dur_arena_memdup(arena, "", SIZE_MAX - 1);
    assert_int_equal(over.count, 3);
    assert_int_equal(dur_arena_bytes(arena), 0);
    dur_arena_free(arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_aligned_and_apart),
        cmocka_unit_test(texts),
        cmocka_unit_test(reset_forgets_but_keeps_little),
        cmocka_unit_test(a_large_object_does_not_waste_the_chunk),
        cmocka_unit_test(the_bound_is_exact_and_leaves_the_arena_whole),
        cmocka_unit_test(absurd_sizes_end_in_the_jump),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
