/*
 * test_buf.c: the growing buffer, numbers as text, and the mallocs.
 */
#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void an_empty_buffer_is_a_text(void **state) {
    (void)state;
    dur__buf buf = { 0 };
    assert_string_equal(dur__buf_str(&buf), "");
    dur__buf_clear(&buf);
    dur__buf_add(&buf, NULL, 0);
    char *taken = dur__buf_take(&buf);
    assert_string_equal(taken, "");
    free(taken);
    dur__buf_free(&buf);
}

static void it_grows_and_stays_a_text(void **state) {
    (void)state;
    dur__buf buf = { 0 };
    for (size_t i = 0; i < 1000; i++) {
        dur__buf_char(&buf, (char)('a' + i % 26));
        assert_int_equal(buf.size, i + 1);
        assert_int_equal(strlen(dur__buf_str(&buf)), i + 1);
        assert_true(buf.room > buf.size);
    }
    dur__buf_clear(&buf);
    assert_string_equal(dur__buf_str(&buf), "");
    dur__buf_text(&buf, "one ");
    dur__buf_u64(&buf, UINT64_MAX);
    dur__buf_format(&buf, " %s%c", "three", '!');
    assert_string_equal(buf.data, "one 18446744073709551615 three!");
    for (int width = 0; width < 200; width++) { /* around every room */
        dur__buf other = { 0 };
        dur__buf_text(&other, "ab");
        dur__buf_format(&other, "%*s", width, "");
        dur__buf_text(&other, "z");
        assert_int_equal(other.size, 3 + width);
        assert_int_equal(other.data[2 + width], 'z');
        dur__buf_free(&other);
    }
    char *taken = dur__buf_take(&buf);
    assert_null(buf.data);
    assert_int_equal(buf.size, 0);
    free(taken);
}

static void numbers_to_text_and_back(void **state) {
    (void)state;
    const uint64_t values[] = { 0, 1, 9, 10, 99, 100, 4294967295u, 4294967296u, UINT64_MAX - 1, UINT64_MAX };
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
        char text[21], expected[32];
        size_t size = dur__u64_text(text, values[i]);
        snprintf(expected, sizeof(expected), "%llu", (unsigned long long)values[i]);
        assert_string_equal(text, expected);
        assert_int_equal(size, strlen(expected));
        uint64_t back = 77;
        assert_true(dur__u64_parse(text, size, &back));
        assert_true(back == values[i]);
    }
}

static void what_is_no_number(void **state) {
    (void)state;
    const char *bad[] = {
        "", "-1", "+1", " 1", "1 ", "1a", "0x1", "18446744073709551616", "99999999999999999999", "184467440737095516150"
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        uint64_t out = 42;
        assert_false(dur__u64_parse(bad[i], strlen(bad[i]), &out));
        assert_int_equal(out, 42);
    }
    uint64_t out = 0;
    assert_true(dur__u64_parse("0000000000000000000000007", 25, &out)); /* long, but not large */
    assert_int_equal(out, 7);
    assert_true(dur__u64_parse("123", 2, &out)); /* only what was given */
    assert_int_equal(out, 12);
}

static void small_helpers(void **state) {
    (void)state;
    assert_true(dur__str_eq(NULL, NULL));
    assert_false(dur__str_eq(NULL, ""));
    assert_true(dur__str_eq("a", "a"));
    assert_false(dur__str_eq("a", "b"));
    assert_null(dur__xstrdup(NULL));
    char *copy = dur__xstrdup("copy");
    assert_string_equal(copy, "copy");
    copy = dur__xrealloc(copy, 100);
    assert_string_equal(copy, "copy");
    free(copy);
    free(dur__xmalloc(0));
    free(dur__xcalloc(0, 8));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_buffer_is_a_text),
        cmocka_unit_test(it_grows_and_stays_a_text),
        cmocka_unit_test(numbers_to_text_and_back),
        cmocka_unit_test(what_is_no_number),
        cmocka_unit_test(small_helpers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
