/*
 * test_clock.c: the real world moves, the fake one only when told.
 */
#include "base/thread.h"

#include <durite/sys/clock.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void the_real_world(void **state) {
    (void)state;
    const dur_world *real = dur_world_real();
    assert_true(real->wall_ms(real->data) > 1700000000000u);
    uint64_t boot = real->boot_ms(real->data);
    assert_true(real->boot_ms(real->data) >= boot);
    unsigned char a[1000] = { 0 }, b[1000] = { 0 };
    real->random(real->data, a, sizeof(a));
    real->random(real->data, b, sizeof(b));
    assert_memory_not_equal(a, b, sizeof(a));
    assert_memory_not_equal(a + 900, b + 900, 100);
    real->random(real->data, a, 0);
}

static void fake_time_stands_still(void **state) {
    (void)state;
    dur_fake_world *fake = dur_fake_world_new(5000, 1);
    const dur_world *world = dur_fake_world_get(fake);
    assert_int_equal(world->wall_ms(world->data), 5000);
    uint64_t boot = world->boot_ms(world->data);
    dur_fake_world_advance(fake, 250);
    assert_int_equal(world->wall_ms(world->data), 5250);
    assert_int_equal(world->boot_ms(world->data), boot + 250);
    dur_fake_world_jump(fake, -3600000);
    assert_int_equal(world->wall_ms(world->data), 0); /* there is nothing before 1970 */
    dur_fake_world_jump(fake, 3600000);
    dur_fake_world_jump(fake, -1);
    assert_int_equal(world->wall_ms(world->data), 3599999);
    assert_int_equal(world->boot_ms(world->data), boot + 250);
    dur_fake_world_free(fake);
    dur_fake_world_free(NULL);
}

static void a_seed_decides(void **state) {
    (void)state;
    unsigned char out[3][100];
    for (size_t i = 0; i < 3; i++) {
        dur_fake_world *fake = dur_fake_world_new(0, i < 2 ? 7 : 8);
        const dur_world *world = dur_fake_world_get(fake);
        world->random(world->data, out[i], 50);
        world->random(world->data, out[i] + 50, 50);
        dur_fake_world_free(fake);
    }
    assert_memory_equal(out[0], out[1], 100);
    assert_memory_not_equal(out[0], out[2], 100);
    assert_memory_not_equal(out[0], out[0] + 50, 50);
}

static void use_the_world(void *arg) {
    dur_fake_world *fake = arg;
    const dur_world *world = dur_fake_world_get(fake);
    for (int i = 0; i < 1000; i++) {
        uint64_t word;
        world->random(world->data, &word, sizeof(word));
        dur_fake_world_advance(fake, 1);
    }
}

static void any_thread_may_use_it(void **state) {
    (void)state;
    dur_fake_world *fake = dur_fake_world_new(0, 3);
    dur__thread threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(dur__thread_start(&threads[i], "world", use_the_world, fake), 0);
    for (int i = 0; i < 4; i++)
        dur__thread_join(&threads[i]);
    const dur_world *world = dur_fake_world_get(fake);
    assert_int_equal(world->wall_ms(world->data), 4000);
    dur_fake_world_free(fake);
}

static void a_thread_that_lives_in_a_fake_world_does_not_sleep(void **state) {
    (void)state;
    dur_fake_world *fake = dur_fake_world_new(5000, 1);
    const dur_world *world = dur_fake_world_get(fake);
    uint64_t real_us = dur__monotonic_us();
    assert_null(dur_fake_world_enter(fake));
    assert_true(dur__world_is_home(world));
    uint64_t begin_us = dur__monotonic_us();
    assert_true(dur__monotonic_us() > begin_us); /* whoever spins comes to an end */
    assert_int_equal(world->wall_ms(world->data), 5000);

    dur__sleep_us(UINT64_C(86400) * 1000 * 1000);
    assert_int_equal(world->wall_ms(world->data), 5000 + 86400000);
    assert_true(dur__monotonic_us() - begin_us >= UINT64_C(86400) * 1000 * 1000);
    for (int i = 0; i < 4; i++) /* less than a millisecond adds up */
        dur__sleep_us(250);
    assert_int_equal(world->boot_ms(world->data), 5000 + 86400000 + 1);

    dur__mutex mutex;
    dur__cond cond;
    dur__mutex_init(&mutex);
    dur__cond_init(&cond);
    dur__mutex_lock(&mutex);
    assert_false(dur__cond_wait_ms(&cond, &mutex, 1000));
    dur__mutex_unlock(&mutex);
    assert_int_equal(world->wall_ms(world->data), 5000 + 86400000 + 1001);
    dur__cond_destroy(&cond);
    dur__mutex_destroy(&mutex);

    uint64_t before_us = dur__monotonic_us();
    dur_fake_world_jump(fake, -3600000); /* the wall clock alone */
    assert_true(dur__monotonic_us() - before_us < 1000);
    assert_ptr_equal(dur_fake_world_enter(NULL), fake);
    assert_false(dur__world_is_home(world));
    assert_true(dur__monotonic_us() >= real_us && dur__monotonic_us() - real_us < UINT64_C(3600) * 1000 * 1000);
    dur_fake_world_enter(fake);
    dur_fake_world_free(fake);
    assert_false(dur__world_entered());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_real_world),
        cmocka_unit_test(fake_time_stands_still),
        cmocka_unit_test(a_seed_decides),
        cmocka_unit_test(any_thread_may_use_it),
        cmocka_unit_test(a_thread_that_lives_in_a_fake_world_does_not_sleep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
