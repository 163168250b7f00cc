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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_real_world),
        cmocka_unit_test(fake_time_stands_still),
        cmocka_unit_test(a_seed_decides),
        cmocka_unit_test(any_thread_may_use_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
