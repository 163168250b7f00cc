/*
 * metrics.c: counting and reading; see metrics_internal.h.
 */
#include "obs/metrics_internal.h"

#include <string.h>

void dur__count_max(dur__counter *counter, uint64_t value) {
    uint64_t seen = dur__counted(counter);
    while (seen < value &&
           !atomic_compare_exchange_weak_explicit(counter, &seen, value, memory_order_relaxed, memory_order_relaxed))
        continue;
}

void dur__metrics_read(dur_metrics *out, const dur__metrics *metrics) {
    dur_metrics all = { .size = out->size };
#define METRIC_READ(name) all.name = dur__counted(&metrics->name);
    DUR_METRICS(METRIC_READ)
#undef METRIC_READ
    size_t size = out->size < sizeof(all) ? out->size : sizeof(all); /* a host built against an older header */
    memcpy(out, &all, size);
}

/* Bucket i holds what is below 2^i µs and was not below 2^(i-1); the last one everything longer, too. */
static size_t bucket_of(uint64_t duration_us) {
    size_t bucket = 0;
    while (bucket < DUR_HISTOGRAM_BUCKETS - 1 && duration_us >> bucket != 0)
        bucket++;
    return bucket;
}

void dur__histogram_add(dur__histogram *histogram, uint64_t duration_us) {
    dur__count(&histogram->count, 1);
    dur__count(&histogram->sum_us, duration_us);
    dur__count_max(&histogram->max_us, duration_us);
    dur__count(&histogram->buckets[bucket_of(duration_us)], 1);
}

void dur__histogram_read(dur_histogram *out, const dur__histogram *histogram) {
    out->count = dur__counted(&histogram->count);
    out->sum_us = dur__counted(&histogram->sum_us);
    out->max_us = dur__counted(&histogram->max_us);
    for (size_t i = 0; i < DUR_HISTOGRAM_BUCKETS; i++)
        out->buckets[i] = dur__counted(&histogram->buckets[i]);
}
