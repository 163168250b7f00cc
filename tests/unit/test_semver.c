/*
 * test_semver.c: what is a version, and which comes first.
 */
#include "core/semver.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void strict_takes_only_whole_versions(void **state) {
    (void)state;
    static const char *const good[] = { "0.0.0",       "1.2.3",           "10.20.4294967295",
                                        "1.0.0-alpha", "1.0.0-alpha.1",   "1.0.0-0.3.7",
                                        "1.0.0--",     "1.0.0+build.001", "1.0.0-rc.1+exp.sha-5114f85" };
    static const char *const bad[] = { "",
                                       "1",
                                       "1.2",
                                       "1.2.",
                                       ".1.2",
                                       "1.2.3.4",
                                       "01.2.3",
                                       "1.02.3",
                                       "v1.2.3",
                                       "1.2.3-",
                                       "1.2.3-01",
                                       "1.2.3-a..b",
                                       "1.2.3+",
                                       "1.2.3 ",
                                       " 1.2.3",
                                       "1.2.x",
                                       "-1.2.3",
                                       "1.2.4294967296",
                                       "1.2.99999999999999999999",
                                       "1.2.3-\xc3\xa9" };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        if (!dur__semver_parse(good[i], NULL)) fail_msg("refused %s", good[i]);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (dur__semver_parse(bad[i], NULL)) fail_msg("accepted %s", bad[i]);
    }
    assert_false(dur__semver_parse(NULL, NULL));
    dur_semver v;
    assert_true(dur__semver_parse("1.22.333-pre", &v));
    assert_true(v.major == 1 && v.minor == 22 && v.patch == 333);
}

static void lenient_takes_what_stores_hold(void **state) {
    (void)state;
    static const struct {
        const char *text;
        dur_semver version;
    } good[] = { { "1.0", { 1, 0, 0 } },        { "2", { 2, 0, 0 } },    { "v1.2.3", { 1, 2, 3 } },
                 { "1.2.3-rc.1", { 1, 2, 3 } }, { "01.2", { 1, 2, 0 } }, { "0.1.26", { 0, 1, 26 } } };
    dur_semver v;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        if (!dur__semver_parse_lenient(good[i].text, &v)) fail_msg("refused %s", good[i].text);
        assert_int_equal(dur__semver_compare(v, good[i].version), 0);
    }
    assert_false(dur__semver_parse_lenient("", &v));
    assert_false(dur__semver_parse_lenient("abc", &v));
    assert_false(dur__semver_parse_lenient("1.", &v));
    assert_false(dur__semver_parse_lenient("1.2.", &v));
    assert_false(dur__semver_parse_lenient(NULL, &v));
}

/* The order that semver.org gives as its example, and more. */
static void order_is_total(void **state) {
    (void)state;
    static const char *const sorted[] = {
        "",           "latest",       "0.0.1",         "0.1.0",         "1.0.0-0",
        "1.0.0-2",    "1.0.0-11",     "1.0.0-alpha",   "1.0.0-alpha.1", "1.0.0-alpha.beta",
        "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1",    "1.0.0",
        "1.0.1",      "1.2.0",        "1.10.0",        "2.0.0",         "10.0.0"
    };
    size_t count = sizeof(sorted) / sizeof(sorted[0]);
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < count; j++) {
            int got = dur__semver_compare_text(sorted[i], sorted[j]);
            if ((got < 0) != (i < j) || (got > 0) != (i > j)) fail_msg("%s against %s: %d", sorted[i], sorted[j], got);
        }
    }
    assert_int_equal(dur__semver_compare_text("1.0.0+a", "1.0.0+b"), 0);
    assert_int_equal(dur__semver_compare_text("1.0.0-a+x", "1.0.0-a"), 0);
    assert_int_equal(dur__semver_compare_text("1.0.0+a-b", "1.0.0"), 0);
}

static void ranges_include_both_ends(void **state) {
    (void)state;
    dur_version_range range = { { 0, 1, 0 }, { 0, 1, 999 } };
    assert_true(dur__semver_in(&range, (dur_semver){ 0, 1, 0 }));
    assert_true(dur__semver_in(&range, (dur_semver){ 0, 1, 999 }));
    assert_false(dur__semver_in(&range, (dur_semver){ 0, 0, 999 }));
    assert_false(dur__semver_in(&range, (dur_semver){ 0, 1, 1000 }));
    assert_false(dur__semver_in(&range, (dur_semver){ 1, 1, 5 }));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_takes_only_whole_versions),
        cmocka_unit_test(lenient_takes_what_stores_hold),
        cmocka_unit_test(order_is_total),
        cmocka_unit_test(ranges_include_both_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
