/*
 * test_utf8.c: every boundary of UTF-8, checked against encoding by hand.
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

static size_t encode(char *out, uint32_t point) {
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    size_t size = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, point >>= 6)
        out[i] = (char)(0x80 | (point & 0x3f));
    out[0] = (char)((0xf00u >> size & 0xf0u) | point);
    return size;
}

static void every_code_point(void **state) {
    (void)state;
    for (uint32_t point = 0; point < 0x120000; point++) {
        char text[4];
        size_t size = encode(text, point);
        bool good = point > 0 && point < 0x110000 && !(point >= 0xd800 && point < 0xe000);
        size_t bad = 99;
        if (dur__utf8_valid(text, size, &bad) != good) fail_msg("U+%04X", (unsigned)point);
        if (!good) assert_int_equal(bad, 0);
        for (size_t cut = 1; good && cut < size; cut++)
            assert_false(dur__utf8_valid(text, cut, NULL));
    }
}

static void what_is_not_well_formed(void **state) {
    (void)state;
    const struct {
        const char *text;
        size_t size, bad;
    } cases[] = {
        { "\x80", 1, 0 },
        { "ab\xbf", 3, 2 },
        { "\xc0\xaf", 2, 0 },
        { "\xc1\xbf", 2, 0 },
        { "\xe0\x9f\xbf", 3, 0 },
        { "\xf0\x8f\xbf\xbf", 4, 0 },
        { "x\xed\xa0\x80", 4, 1 },
        { "\xf4\x90\x80\x80", 4, 0 },
        { "\xf5\x80\x80\x80", 4, 0 },
        { "\xff", 1, 0 },
        { "12345678\0", 9, 8 },
        { "1234567\0"
          "89",
          10, 7 },
        { "\xe2\x82", 2, 0 },
        { "\xe2\x82z", 3, 0 },
        { "\xc3\xc3\xa4", 3, 0 },
        { "12345678"
          "1234\x80"
          "678",
          16, 12 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        size_t bad = 99;
        if (dur__utf8_valid(cases[i].text, cases[i].size, &bad)) fail_msg("case %zu", i);
        if (bad != cases[i].bad) fail_msg("case %zu: %zu", i, bad);
    }
    assert_true(dur__utf8_valid(NULL, 0, NULL));
    assert_true(dur__utf8_valid("12345678 gr\xc3\xbc\xc3\x9f \xf0\x9f\x98\x80", 20, NULL));
}

static void cutting_between_characters(void **state) {
    (void)state;
    const char *text = "a\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80z"; /* 1, 2, 3, 4, 1 bytes */
    const size_t expected[] = { 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11, 11 };
    for (size_t max = 0; max < sizeof(expected) / sizeof(*expected); max++)
        assert_int_equal(dur__utf8_cut(text, max), expected[max]);
    char torn[] = "ab\xe2\x82"; /* cut by others before */
    assert_int_equal(dur__utf8_cut(torn, 100), 2);
    assert_int_equal(dur__utf8_cut("", 5), 0);
    assert_int_equal(dur__utf8_cut("\x80\x80\x80\x80\x80\x80", 5), 5); /* no text anyway */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_point),
        cmocka_unit_test(what_is_not_well_formed),
        cmocka_unit_test(cutting_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
