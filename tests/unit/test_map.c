/*
 * test_map.c: against a plain array, with removals, in order of insertion.
 */
#include "base/list.h"
#include "base/map.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int things[5000];

static void an_empty_map(void **state) {
    (void)state;
    dur__map map = { 0 };
    size_t at = 0;
    assert_null(dur__map_get(&map, "x"));
    assert_null(dur__map_get_u64(&map, 0));
    assert_null(dur__map_remove(&map, ""));
    assert_null(dur__map_next(&map, &at));
    dur__map_free(&map);
}

static void texts_and_numbers_do_not_mix(void **state) {
    (void)state;
    dur__map map = { 0 };
    dur__map_put(&map, "", &things[0]);
    dur__map_put(&map, "1", &things[1]);
    dur__map_put_u64(&map, 1, &things[2]);
    dur__map_put_u64(&map, 0, &things[3]);
    assert_ptr_equal(dur__map_get(&map, ""), &things[0]);
    assert_ptr_equal(dur__map_get(&map, "1"), &things[1]);
    assert_ptr_equal(dur__map_get_u64(&map, 1), &things[2]);
    assert_ptr_equal(dur__map_get_u64(&map, 0), &things[3]);
    char again[] = "1";
    dur__map_put(&map, again, &things[4]);
    assert_int_equal(map.count, 4);
    assert_ptr_equal(dur__map_get(&map, "1"), &things[4]);
    size_t at = 0;
    dur__map_next(&map, &at);
    assert_ptr_equal(dur__map_next(&map, &at)->key, again); /* the new key is borrowed from now on */
    assert_ptr_equal(dur__map_remove(&map, "1"), &things[4]);
    assert_null(dur__map_remove(&map, "1"));
    assert_null(dur__map_get(&map, "1"));
    assert_int_equal(map.count, 3);
    dur__map_free(&map);
}

static uint64_t next_random(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void random_against_an_array(void **state) {
    (void)state;
    uint64_t seed = 20261115;
    print_message("seed %llu\n", (unsigned long long)seed);
    enum { KEYS = 700 };
    static char keys[KEYS][32];
    static int *model[KEYS];
    static uint64_t born[KEYS]; /* order of insertion */
    for (size_t i = 0; i < KEYS; i++)
        snprintf(keys[i], sizeof(keys[i]), "%.*s-%zu", (int)(i % 20), "instance-instance-instance", i);
    dur__map map = { 0 };
    size_t count = 0;
    for (uint64_t step = 1; step < 60000; step++) {
        size_t k = (size_t)(next_random(&seed) % KEYS);
        bool number = k % 2 == 0;
        uint64_t id = (uint64_t)k << 32;
        int *value = &things[next_random(&seed) % 5000];
        uint64_t what = next_random(&seed) % (step / 10000 % 2 ? 5 : 3); /* sometimes mostly removing */
        if (what == 0) {
            if (number)
                dur__map_put_u64(&map, id, value);
            else
                dur__map_put(&map, keys[k], value);
            if (model[k] == NULL) {
                count++;
                born[k] = step;
            }
            model[k] = value;
        } else if (what == 1) {
            assert_ptr_equal(number ? dur__map_get_u64(&map, id) : dur__map_get(&map, keys[k]), model[k]);
        } else {
            assert_ptr_equal(number ? dur__map_remove_u64(&map, id) : dur__map_remove(&map, keys[k]), model[k]);
            if (model[k] != NULL) count--;
            model[k] = NULL;
        }
        assert_int_equal(map.count, count);
        if (step % 1000 != 0) continue;
        uint64_t last = 0;
        size_t seen = 0;
        dur__map_entry *entry;
        for (size_t at = 0; (entry = dur__map_next(&map, &at)) != NULL; seen++) {
            size_t found = entry->key != NULL ? (size_t)(entry->key - keys[0]) / 32 : (size_t)(entry->number >> 32);
            assert_ptr_equal(entry->value, model[found]);
            assert_true(born[found] > last);
            last = born[found];
        }
        assert_int_equal(seen, count);
    }
    dur__map_free(&map);
}

static void removing_while_walking(void **state) {
    (void)state;
    dur__map map = { 0 };
    for (uint64_t i = 0; i < 1000; i++)
        dur__map_put_u64(&map, i, &things[i]);
    dur__map_entry *entry;
    for (size_t at = 0; (entry = dur__map_next(&map, &at)) != NULL;)
        if (entry->number % 3 != 0) dur__map_remove_u64(&map, entry->number);
    assert_int_equal(map.count, 334);
    uint64_t expected = 0;
    for (size_t at = 0; (entry = dur__map_next(&map, &at)) != NULL; expected += 3)
        assert_int_equal(entry->number, expected);
    dur__map_free(&map);
}

static void coming_and_going_does_not_grow_it(void **state) {
    (void)state;
    dur__map map = { 0 };
    for (uint64_t i = 0; i < 100000; i++) {
        dur__map_put_u64(&map, i, &things[0]);
        if (i >= 10) assert_non_null(dur__map_remove_u64(&map, i - 10));
    }
    assert_int_equal(map.count, 10);
    assert_true(map.entry_room <= 64);
    dur__map_free(&map);
}

static void a_list(void **state) {
    (void)state;
    struct node {
        int value;
        dur__link link;
    } nodes[3] = { { .value = 0 }, { .value = 1 }, { .value = 2 } };
    dur__link head;
    dur__list_init(&head);
    assert_true(dur__list_empty(&head));
    assert_null(dur__list_pop(&head));
    for (int i = 0; i < 3; i++)
        dur__list_push(&head, &nodes[i].link);
    dur__list_unlink(&nodes[1].link);
    dur__list_unlink(&nodes[1].link);
    assert_false(dur__link_linked(&nodes[1].link));
    assert_true(dur__link_linked(&nodes[0].link));
    int sum = 0;
    DUR__LIST_EACH(&head, at) sum += DUR__CONTAINER(at, struct node, link)->value + 1;
    assert_int_equal(sum, 4);
    DUR__LIST_EACH_SAFE(&head, at, after) dur__list_unlink(at);
    assert_true(dur__list_empty(&head));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map),
        cmocka_unit_test(texts_and_numbers_do_not_mix),
        cmocka_unit_test(random_against_an_array),
        cmocka_unit_test(removing_while_walking),
        cmocka_unit_test(coming_and_going_does_not_grow_it),
        cmocka_unit_test(a_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
