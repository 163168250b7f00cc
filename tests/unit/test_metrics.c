/*
 * test_metrics.c: counters and histograms.
 */
#include "obs/metrics_internal.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void a_duration_falls_into_the_bucket_of_its_power_of_two(void **state) {
    (void)state;
    static const struct {
        uint64_t duration_us;
        size_t bucket;
    } cases[] = { { 0, 0 },         { 1, 1 },         { 2, 2 },          { 3, 2 },
                  { 4, 3 },         { 1023, 10 },     { 1024, 11 },      { (1u << 22) - 1, 22 },
                  { 1u << 22, 23 }, { 1u << 23, 23 }, { UINT64_MAX, 23 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        dur__histogram histogram = { 0 };
        dur_histogram out;
        dur__histogram_add(&histogram, cases[i].duration_us);
        dur__histogram_read(&out, &histogram);
        for (size_t bucket = 0; bucket < DUR_HISTOGRAM_BUCKETS; bucket++)
            assert_int_equal(out.buckets[bucket], bucket == cases[i].bucket ? 1 : 0);
    }
}

static void a_histogram_keeps_count_sum_and_maximum(void **state) {
    (void)state;
    dur__histogram histogram = { 0 };
    dur_histogram out;
    dur__histogram_add(&histogram, 7);
    dur__histogram_add(&histogram, 500);
    dur__histogram_add(&histogram, 30);
    dur__histogram_read(&out, &histogram);
    assert_int_equal(out.count, 3);
    assert_int_equal(out.sum_us, 537);
    assert_int_equal(out.max_us, 500);
}

enum { THREADS = 4, ADDS = 20000 };

static void *add_many(void *arg) {
    dur__histogram *histogram = arg;
    for (uint64_t i = 0; i < ADDS; i++)
        dur__histogram_add(histogram, i);
    return NULL;
}

static void no_count_is_lost_between_threads(void **state) {
    (void)state;
    dur__histogram histogram = { 0 };
    dur_histogram out;
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, add_many, &histogram), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    dur__histogram_read(&out, &histogram);
    assert_int_equal(out.count, THREADS * ADDS);
    assert_int_equal(out.sum_us, (uint64_t)THREADS * ADDS * (ADDS - 1) / 2);
    assert_int_equal(out.max_us, ADDS - 1);
    uint64_t in_buckets = 0;
    for (size_t i = 0; i < DUR_HISTOGRAM_BUCKETS; i++)
        in_buckets += out.buckets[i];
    assert_int_equal(in_buckets, out.count);
}

static void every_counter_of_a_runtime_reaches_its_own_field(void **state) {
    (void)state;
    dur__metrics metrics;
    dur_metrics out = { .size = sizeof(out) };
    uint64_t value = 1;
    memset(&metrics, 0, sizeof(metrics));
#define COUNT_UP(name) dur__count(&metrics.name, value++);
    DUR_METRICS(COUNT_UP)
#undef COUNT_UP
    dur__metrics_read(&out, &metrics);
    value = 1;
#define COMPARE(name) assert_int_equal(out.name, value++);
    DUR_METRICS(COMPARE)
#undef COMPARE
}

static void a_reader_with_an_older_header_is_not_overrun(void **state) {
    (void)state;
    dur__metrics metrics;
    dur_metrics out;
    memset(&metrics, 0, sizeof(metrics));
    memset(&out, 0x5a, sizeof(out));
    out.size = offsetof(dur_metrics, orchestration_failures);
    dur__count(&metrics.orchestration_starts, 3);
    dur__count(&metrics.orchestration_failures, 4);
    dur__metrics_read(&out, &metrics);
    assert_int_equal(out.orchestration_starts, 3);
    assert_int_equal(out.orchestration_failures, UINT64_C(0x5a5a5a5a5a5a5a5a));
    assert_int_equal(out.size, offsetof(dur_metrics, orchestration_failures));
}

static void a_gauge_goes_down_again_and_a_maximum_never(void **state) {
    (void)state;
    dur__counter gauge = 0, maximum = 0;
    dur__count(&gauge, 5);
    dur__uncount(&gauge, 2);
    assert_int_equal(dur__counted(&gauge), 3);
    dur__count_max(&maximum, 9);
    dur__count_max(&maximum, 4);
    assert_int_equal(dur__counted(&maximum), 9);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_duration_falls_into_the_bucket_of_its_power_of_two),
        cmocka_unit_test(a_histogram_keeps_count_sum_and_maximum),
        cmocka_unit_test(no_count_is_lost_between_threads),
        cmocka_unit_test(every_counter_of_a_runtime_reaches_its_own_field),
        cmocka_unit_test(a_reader_with_an_older_header_is_not_overrun),
        cmocka_unit_test(a_gauge_goes_down_again_and_a_maximum_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
