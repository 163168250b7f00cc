/*
 * example_test.h: what the tests of the examples share.  Each includes one example, whose main is another function
 * here, and tests its handlers.
 */
#ifndef EXAMPLE_TEST_H
#define EXAMPLE_TEST_H

#include <durite/durite.h>
#include <durite/testing.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static dur_error failure;

static inline void ok(int code, const char *what) {
    if (code != DUR_OK) print_error("%s: %s: %s\n", what, dur_code_name(code), failure.message);
    assert_int_equal(code, DUR_OK);
}
#define OK(call_) ok((call_), #call_)

#endif
