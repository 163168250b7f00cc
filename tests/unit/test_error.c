/*
 * test_error.c: the error object, the names of the codes, the version.
 */
#include "base/buf.h"

#include <durite/error.h>
#include <durite/version.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ONE_MORE_(name, value, text) +1
enum { CODES = 0 DUR_CODES(ONE_MORE_) };

static void filling(void **state) {
    (void)state;
    dur_error err = DUR_ERROR_INIT;
    errno = ENOSPC;
    assert_int_equal(dur_error_set(&err, DUR_EFULL, true, "sqlite.commit", "no room: %d", 7), DUR_EFULL);
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(err.code, DUR_EFULL);
    assert_true(err.retryable);
    assert_string_equal(err.op, "sqlite.commit");
    assert_string_equal(err.message, "no room: 7");
    assert_int_equal(dur_error_set(&err, DUR_EIO, false, err.op, "while closing: %s", err.message), DUR_EIO);
    assert_string_equal(err.op, "sqlite.commit");
    assert_string_equal(err.message, "while closing: no room: 7");
    dur_error_clear(&err);
    assert_int_equal(err.code, DUR_OK);
    assert_false(err.retryable);
    assert_string_equal(err.message, "");
    assert_string_equal(err.op, "");
    assert_int_equal(dur_error_set(NULL, DUR_EINVAL, false, "x", "y"), DUR_EINVAL);
    dur_error_clear(NULL);
    dur_error_set(&err, DUR_EIO, false, NULL, "%s", "two\nlines\r\n \n");
    assert_string_equal(err.op, "");
    assert_string_equal(err.message, "two lines");
    errno = ENOSPC;
    dur_error_set(&err, DUR_EIO, false, "x", "%ls", L"\x20ac"); /* cannot be converted in the C locale */
    assert_string_equal(err.message, "");
    assert_int_equal(errno, ENOSPC);
}

static void too_long(void **state) {
    (void)state;
    dur_error err = DUR_ERROR_INIT;
    char text[1000];
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'x', shift);
        for (size_t i = shift; i + 4 < sizeof(text); i += 4)
            memcpy(text + i, "\xf0\x9f\x98\x80", 5);
        dur_error_set(&err, DUR_EIO, false, text, "%s", text);
        assert_true(dur__utf8_valid(err.op, strlen(err.op), NULL));
        assert_true(dur__utf8_valid(err.message, strlen(err.message), NULL));
        assert_true(strlen(err.op) > sizeof(err.op) - 5);
        assert_true(strlen(err.message) > sizeof(err.message) - 5);
    }
}

static void keeps_its_end_and_is_text(void **state) {
    (void)state;
    dur_error err = DUR_ERROR_INIT;
    static char text[100000];
    memset(text, 'x', sizeof(text) - 1);
    dur_error_set(&err, DUR_EIO, false, "op", "begins %s ends", text);
    assert_memory_equal(err.message, "begins ", 7);
    assert_string_equal(err.message + strlen(err.message) - 6, "x ends");
    dur_error_set(&err, DUR_EIO, false, "op", "a\xff\xc3(\xe2\x82 b\xe2\x82\xac");
    assert_string_equal(err.message, "a?\?(?\? b\xe2\x82\xac");
}

static void names(void **state) {
    (void)state;
    assert_string_equal(dur_code_name(DUR_OK), "DUR_OK");
    assert_string_equal(dur_code_name(DUR_EINVAL), "DUR_EINVAL");
    assert_string_equal(dur_code_text(DUR_EINVAL), "invalid argument");
    const int none[] = { -1, CODES, 1000 };
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(dur_code_name(none[i]), "DUR_E?");
        assert_string_equal(dur_code_text(none[i]), "unknown code");
    }
    for (int code = 0; code < CODES; code++) {
        assert_string_not_equal(dur_code_name(code), "DUR_E?");
        for (int other = 0; other < code; other++)
            assert_string_not_equal(dur_code_text(code), dur_code_text(other));
    }
}

static void the_version(void **state) {
    (void)state;
    char text[32];
    snprintf(text, sizeof(text), "%d.%d.%d", DUR_VERSION_MAJOR, DUR_VERSION_MINOR, DUR_VERSION_PATCH);
    assert_string_equal(dur_version(), text);
    assert_string_equal(dur_version(), DUR_VERSION);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filling), cmocka_unit_test(too_long),    cmocka_unit_test(keeps_its_end_and_is_text),
        cmocka_unit_test(names),   cmocka_unit_test(the_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
