/*
 * test_check.c: texts from outside are refused with what, why and where.
 */
#include "core/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

typedef int check_fn(dur_error *err, const char *op, const char *what, const char *text, size_t max, dur__need need);

static void expect(check_fn *check, const char *text, size_t max, dur__need need, int code, const char *message) {
    dur_error err = DUR_ERROR_INIT;
    assert_int_equal(check(&err, "test", "thing", text, max, need), code);
    assert_string_equal(err.message, message);
    assert_int_equal(err.code, code);
    assert_int_equal(check(NULL, "test", "thing", text, max, need), code);
}

static void texts(void **state) {
    (void)state;
    check_fn *check = dur__check_text;
    expect(check, "abc", 3, DUR__NOT_EMPTY, DUR_OK, "");
    expect(check, "abcd", 3, DUR__NOT_EMPTY, DUR_ELIMIT, "thing has 4 bytes, 3 are allowed");
    expect(check, NULL, 3, DUR__OPTIONAL, DUR_OK, "");
    expect(check, NULL, 3, DUR__REQUIRED, DUR_EINVAL, "thing is required, got NULL");
    expect(check, NULL, 3, DUR__NOT_EMPTY, DUR_EINVAL, "thing is required, got NULL");
    expect(check, "", 3, DUR__REQUIRED, DUR_OK, "");
    expect(check, "", 3, DUR__NOT_EMPTY, DUR_EINVAL, "thing must not be empty");
    expect(check, "ab\xff", 9, DUR__REQUIRED, DUR_EINVAL, "thing is not UTF-8 at byte 2");
    expect(check, "a\nb", 9, DUR__REQUIRED, DUR_OK, "");
}

static void names(void **state) {
    (void)state;
    check_fn *check = dur__check_name;
    expect(check, "a\nb", 9, DUR__REQUIRED, DUR_EINVAL, "thing has control character 0x0a at byte 1");
    expect(check, "ab\x7f", 9, DUR__REQUIRED, DUR_EINVAL, "thing has control character 0x7f at byte 2");
    expect(check, "a b\xc3\xa9::sub::2", 99, DUR__REQUIRED, DUR_OK, "");
    expect(check, NULL, 9, DUR__OPTIONAL, DUR_OK, "");
    expect(check, NULL, 9, DUR__REQUIRED, DUR_EINVAL, "thing is required, got NULL");
}

static void versions(void **state) {
    (void)state;
    dur_error err = DUR_ERROR_INIT;
    assert_int_equal(dur__check_version(&err, "test", NULL), DUR_OK);
    assert_int_equal(dur__check_version(&err, "test", "1.2.3-rc.1"), DUR_OK);
    assert_int_equal(dur__check_version(&err, "test", "1.2"), DUR_EINVAL);
    assert_string_equal(err.message, "version \"1.2\" is not MAJOR.MINOR.PATCH");
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(texts), cmocka_unit_test(names), cmocka_unit_test(versions) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
