/*
 * test_json.c: the pull parser and the writer, without any record behind them.
 */
#include "core/json.h"
#include "core/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static dur_arena *arena;

static int setup(void **state) {
    (void)state;
    arena = dur_arena_new();
    return arena == NULL;
}
static int teardown(void **state) {
    (void)state;
    dur_arena_free(arena);
    return 0;
}

static dur_text text_of(const char *text) {
    return (dur_text){ text, strlen(text) };
}

/* Skips the whole text; the code, and the message in err. */
static int skip_all(dur_text text, dur_error *err) {
    dur__json json;
    dur_error_clear(err);
    dur__json_begin(&json, arena, text, "text", err);
    dur__json_skip(&json, NULL);
    return dur__json_end(&json, text);
}

static int read_string(const char *text, const char **out, size_t *size, dur_error *err) {
    dur__json json;
    dur_error_clear(err);
    dur__json_begin(&json, arena, text_of(text), "text", err);
    dur__json_string(&json, out, size);
    return dur__json_end(&json, text_of(text));
}

static int read_u64(const char *text, uint64_t *out, dur_error *err) {
    dur__json json;
    dur_error_clear(err);
    dur__json_begin(&json, arena, text_of(text), "text", err);
    dur__json_u64(&json, out);
    return dur__json_end(&json, text_of(text));
}

static void accepts_what_is_json(void **state) {
    (void)state;
    /* clang-format off */
    static const char *const good[] = { "null", " true ", "false", "0", "-0", "-1.5e+10", "1E5", "0.0", "\"\"", "[]", "{}",
        "[1,2,[3,{\"a\":[]}],\"x\"]", "{\"a\":{\"b\":{}},\"a\":1}", "\t\r\n [ ] \n", "\"\\u00e9\\n\\/\\ud83d\\ude00\"",
        "123456789012345678901234567890", "\"\x7f\"", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"" };
    /* clang-format on */
    dur_error err;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        if (skip_all(text_of(good[i]), &err) != DUR_OK) fail_msg("%s: %s", good[i], err.message);
    }
}

static void refuses_what_is_not(void **state) {
    (void)state;
    /* clang-format off */
    static const char *const bad[] = { "", " ", "nul", "nulll", "tru", "True", "01", "1.", ".5", "+1", "-", "1e", "1e+",
        "--1", "0x10", "NaN", "Infinity", "\"", "\"a", "'a'", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\n\"", "[", "]", "[1",
        "[1,]", "[,1]", "[1 2]", "{", "}", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{,}", "{1:2}", "{\"a\" 1}", "[}", "{]",
        "[1}", "{\"a\":1]", "1 2", "{} {}", "/* */ 1", "\"\\ud800\"", "\"\\udc00\"", "\"\\ud800\\u0041\"",
        "\"\\ud800\\ud800\"", "\"\\u0000\"", "\"\x01\"", "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"",
        "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\"", "\"\xc3", "\"\\", "\"\\u", "\"\\ud83d\\", "\"\\ud83d\\u", "\"\\ud83d\\ude0" };
    /* clang-format on */
    dur_error err;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (skip_all(text_of(bad[i]), &err) != DUR_ECORRUPT) fail_msg("accepted: %s", bad[i]);
        assert_non_null(strstr(err.message, "at byte"));
        assert_false(err.retryable);
    }
}

static void says_where(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        { "[1,x]", "text: expected a value, found 'x' at byte 3" },
        { "[\"ab\\u0000\"]", "text: U+0000 in a text at byte 4" },
        { "[\"ab\\ud800z\"]", "text: lone surrogate \\ud800 at byte 4" },
        { "[\"ab\xffz\"]", "text: byte 0xff is not UTF-8 at byte 4" },
        { "[\"ab\tz\"]", "text: control character 0x09 in a string at byte 4" },
        { "[\"ab", "text: the text ends inside a string at byte 4" },
        { "[1", "text: expected ',' or ']', found the end at byte 2" },
        { "1 1", "text: expected nothing behind the value, found '1' at byte 2" },
    };
    dur_error err;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(skip_all(text_of(cases[i].text), &err), DUR_ECORRUPT);
        assert_string_equal(err.message, cases[i].message);
    }
}

static void control_characters_are_seen_at_every_place(void **state) {
    (void)state;
    dur_error err;
    for (int c = 1; c < 0x20; c++) {
        for (int before = 0; before < 17; before++) {
            char text[64];
            snprintf(text, sizeof(text), "\"%.*s%cABCDEFGHIJKLMNOP\"", before, "abcdefghijklmnopq", c);
            assert_int_equal(skip_all(text_of(text), &err), DUR_ECORRUPT);
            const char *back;
            assert_int_equal(read_string(text, &back, NULL, &err), DUR_ECORRUPT);
        }
    }
}

static void a_nul_byte_is_no_end(void **state) {
    (void)state;
    dur_error err;
    assert_int_equal(skip_all((dur_text){ "1\0", 2 }, &err), DUR_ECORRUPT);
    assert_int_equal(skip_all((dur_text){ "\"a\0b\"", 5 }, &err), DUR_ECORRUPT);
    assert_string_equal(err.message, "text: control character 0x00 in a string at byte 2");
    assert_int_equal(skip_all((dur_text){ NULL, 0 }, &err), DUR_ECORRUPT);
}

static void nesting_is_limited(void **state) {
    (void)state;
    enum { DEEP = 100000 };
    char *text = malloc(DEEP);
    dur_error err;
    memset(text, '[', DEEP);
    assert_int_equal(skip_all((dur_text){ text, DEEP }, &err), DUR_ECORRUPT);
    assert_non_null(strstr(err.message, "nested deeper than 64"));
    for (size_t depth = DUR__JSON_DEPTH_MAX; depth <= DUR__JSON_DEPTH_MAX + 1; depth++) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        int expected = depth <= DUR__JSON_DEPTH_MAX ? DUR_OK : DUR_ECORRUPT;
        assert_int_equal(skip_all((dur_text){ text, depth * 2 }, &err), expected);
    }
    free(text);
}

static void numbers_are_exact(void **state) {
    (void)state;
    uint64_t value = 0;
    dur_error err;
    assert_int_equal(read_u64("18446744073709551615", &value, &err), DUR_OK);
    assert_true(value == UINT64_MAX);
    assert_int_equal(read_u64("9007199254740993", &value, &err), DUR_OK);
    assert_true(value == UINT64_C(9007199254740993));
    assert_int_equal(read_u64("0", &value, &err), DUR_OK);
    assert_true(value == 0);
    static const char *const bad[] = { "18446744073709551616",
                                       "99999999999999999999",
                                       "184467440737095516150",
                                       "-1",
                                       "1.0",
                                       "1e3",
                                       "00",
                                       "01",
                                       "\"1\"",
                                       "null",
                                       "" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(read_u64(bad[i], &value, &err), DUR_ECORRUPT);
}

static void escapes_are_decoded(void **state) {
    (void)state;
    const char *text;
    size_t size;
    dur_error err;
    assert_int_equal(read_string("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", &text, &size, &err), DUR_OK);
    assert_string_equal(text, "\"\\/\b\f\n\r\t");
    assert_int_equal(read_string("\"x\\u00e9\\u20AC\\uD83D\\uDE00\\u0041\\uffff end\"", &text, &size, &err), DUR_OK);
    assert_string_equal(text, "x\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"
                              "A\xef\xbf\xbf end");
    assert_int_equal(size, strlen(text));
}

/* Every length around the word size, an interesting byte at every place, both directions. */
static void every_byte_at_every_place(void **state) {
    (void)state;
    static const char *const pieces[] = {
        "\"",       "\\",          "\n", "\x01", "\x1f",     "\x7f",         " ",
        "!",        "#",           "[",  "]",    "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80",
        "\xc2\x80", "\xef\xbf\xbf"
    };
    dur__buf out = { 0 };
    dur_error err;
    for (size_t p = 0; p < sizeof(pieces) / sizeof(pieces[0]); p++) {
        for (size_t before = 0; before < 20; before++) {
            for (size_t after = 0; after < 20; after++) {
                char text[64];
                const char *back;
                snprintf(text, sizeof(text), "%.*s%s%.*s", (int)before, "abcdefghijklmnopqrst", pieces[p], (int)after,
                         "ABCDEFGHIJKLMNOPQRST");
                dur__buf_clear(&out);
                dur__json_write_text(&out, text);
                assert_int_equal(out.size, strlen(out.data));
                if (read_string(out.data, &back, NULL, &err) != DUR_OK) fail_msg("%s: %s", out.data, err.message);
                assert_string_equal(back, text);
            }
        }
        dur_arena_reset(arena);
    }
    dur__buf_free(&out);
}

static void writes_as_the_original_does(void **state) {
    (void)state;
    dur__buf out = { 0 };
    dur__json_write_text(&out, "a\"b\\c/\b\f\n\r\t\x01\x1f\x7f\xc3\xa9");
    assert_string_equal(out.data, "\"a\\\"b\\\\c/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\xc3\xa9\"");
    dur__buf_clear(&out);
    dur__json_write_text(&out, "");
    assert_string_equal(out.data, "\"\"");
    dur__buf_free(&out);
}

static void a_megabyte_of_escapes(void **state) {
    (void)state;
    enum { SIZE = 1 << 20 };
    char *text = malloc(SIZE + 1);
    const char *back;
    dur__buf out = { 0 };
    dur_error err;
    for (size_t i = 0; i < SIZE; i++)
        text[i] = (char)(1 + i % 127);
    text[SIZE] = '\0';
    dur__json_write_text(&out, text);
    assert_int_equal(read_string(out.data, &back, NULL, &err), DUR_OK);
    assert_true(strcmp(back, text) == 0);
    dur__buf_free(&out);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(accepts_what_is_json, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_what_is_not, setup, teardown),
        cmocka_unit_test_setup_teardown(says_where, setup, teardown),
        cmocka_unit_test_setup_teardown(control_characters_are_seen_at_every_place, setup, teardown),
        cmocka_unit_test_setup_teardown(a_nul_byte_is_no_end, setup, teardown),
        cmocka_unit_test_setup_teardown(nesting_is_limited, setup, teardown),
        cmocka_unit_test_setup_teardown(numbers_are_exact, setup, teardown),
        cmocka_unit_test_setup_teardown(escapes_are_decoded, setup, teardown),
        cmocka_unit_test_setup_teardown(every_byte_at_every_place, setup, teardown),
        cmocka_unit_test_setup_teardown(writes_as_the_original_does, setup, teardown),
        cmocka_unit_test_setup_teardown(a_megabyte_of_escapes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
