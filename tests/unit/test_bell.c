/*
 * test_bell.c: a bell is readable while it was rung more often than heard, and counts.
 */
#include "base/bell.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

static bool readable(const dur__bell *bell) {
    struct pollfd fd = { .fd = bell->fd, .events = POLLIN };
    return poll(&fd, 1, 0) == 1;
}

static void every_ring_is_heard_once(void **state) {
    (void)state;
    dur__bell bell;
    assert_true(dur__bell_open(&bell));
    assert_false(readable(&bell));
    assert_int_equal(dur__bell_hear(&bell), 0);
    const uint64_t rounds[] = { 1, 3, 20, 300 };
    for (size_t i = 0; i < sizeof(rounds) / sizeof(rounds[0]); i++) {
        for (uint64_t n = 0; n < rounds[i]; n++)
            dur__bell_ring(&bell);
        uint64_t heard = 0;
        while (readable(&bell))
            heard += dur__bell_hear(&bell);
        assert_int_equal(heard, rounds[i]);
        assert_int_equal(dur__bell_hear(&bell), 0);
    }
    dur__bell_close(&bell);
    assert_int_equal(bell.fd, -1);
    dur__bell_close(&bell); /* once more does nothing */
}

static void its_descriptors_are_not_inherited_by_another_program(void **state) {
    (void)state;
    dur__bell bell;
    assert_true(dur__bell_open(&bell));
    assert_true((fcntl(bell.fd, F_GETFD) & FD_CLOEXEC) != 0);
    assert_true((fcntl(bell.rope, F_GETFD) & FD_CLOEXEC) != 0);
    dur__bell_close(&bell);
}

static void without_descriptors_there_is_none(void **state) {
    (void)state;
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    dur__bell bell;
    bool opened = dur__bell_open(&bell);
    int why = errno;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_false(opened);
    assert_int_equal(why, EMFILE);
    assert_int_equal(bell.fd, -1);
    dur__bell_close(&bell);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_ring_is_heard_once),
        cmocka_unit_test(its_descriptors_are_not_inherited_by_another_program),
        cmocka_unit_test(without_descriptors_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
