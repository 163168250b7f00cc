/*
 * metrics_internal.h: numbers that many threads count and anybody may read.
 *
 * Relaxed atomics: a snapshot is not one moment in time, but no count is ever lost.
 */
#ifndef DURITE_OBS_METRICS_INTERNAL_H
#define DURITE_OBS_METRICS_INTERNAL_H

#include <durite/metrics.h>
#include <stdatomic.h>

typedef _Atomic uint64_t dur__counter;

static inline void dur__count(dur__counter *counter, uint64_t more) {
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}
static inline void dur__uncount(dur__counter *counter, uint64_t less) { /* gauges */
    atomic_fetch_sub_explicit(counter, less, memory_order_relaxed);
}
static inline uint64_t dur__counted(const dur__counter *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}
/* The largest value ever given. */
void dur__count_max(dur__counter *counter, uint64_t value);

/* The counters of a runtime; zeroed: nothing happened yet. */
typedef struct dur__metrics {
#define DUR__METRIC_COUNTER_(name) dur__counter name;
    DUR_METRICS(DUR__METRIC_COUNTER_)
#undef DUR__METRIC_COUNTER_
} dur__metrics;

/* out->size must be set by the reader's caller and is kept; what lies beyond it is not written. */
void dur__metrics_read(dur_metrics *out, const dur__metrics *metrics);

/* Durations; zeroed: none yet. */
typedef struct dur__histogram {
    dur__counter count;
    dur__counter sum_us;
    dur__counter max_us;
    dur__counter buckets[DUR_HISTOGRAM_BUCKETS];
} dur__histogram;

void dur__histogram_add(dur__histogram *histogram, uint64_t duration_us);
void dur__histogram_read(dur_histogram *out, const dur__histogram *histogram);

#endif
