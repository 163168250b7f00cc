/*
 * metrics.h: numbers about a running runtime or a measured store.
 */
#ifndef DURITE_METRICS_H
#define DURITE_METRICS_H

#include <durite/error.h>
#include <durite/export.h>
#include <durite/provider.h>

DUR_BEGIN_DECLS

/* METRIC(name): counters of a runtime since its start.  The order is part of the ABI: new ones come last. */
/* clang-format off */
#define DUR_METRICS(METRIC) \
    METRIC(orchestration_starts) \
    METRIC(orchestration_completions) \
    METRIC(orchestration_failures) \
    METRIC(orchestration_application_errors) \
    METRIC(orchestration_infrastructure_errors) \
    METRIC(orchestration_configuration_errors) \
    METRIC(orchestration_poison) \
    METRIC(orchestration_continue_as_new) \
    METRIC(orchestration_suspended) \
    METRIC(turns) \
    METRIC(turn_retries) \
    METRIC(turn_conflicts) \
    METRIC(replays) \
    METRIC(replayed_events) \
    METRIC(evictions) \
    METRIC(parked) \
    METRIC(parked_bytes) \
    METRIC(activity_success) \
    METRIC(activity_app_errors) \
    METRIC(activity_cancelled) \
    METRIC(activity_infra_errors) \
    METRIC(activity_poison) \
    METRIC(activity_abandoned) \
    METRIC(activities_running) \
    METRIC(suborchestration_calls) \
    METRIC(timers_fired) \
    METRIC(orchestration_items_fetched) \
    METRIC(work_items_fetched) \
    METRIC(provider_errors) \
    METRIC(rounds) \
    METRIC(take_overs) \
    METRIC(fenced) \
    METRIC(stack_high_water_bytes)
/* clang-format on */

typedef struct dur_metrics {
    size_t size;
#define DUR_METRIC_FIELD_(name) uint64_t name;
    DUR_METRICS(DUR_METRIC_FIELD_)
#undef DUR_METRIC_FIELD_
} dur_metrics;

/* ---- measuring a store: a decorator over any provider ------------------------------------------------------------ */

#define DUR_HISTOGRAM_BUCKETS 24
typedef struct dur_histogram {
    uint64_t count;
    uint64_t sum_us;
    uint64_t max_us;
    /* bucket i: below 2^i microseconds, not counted before; the last one: all longer ones, too */
    uint64_t buckets[DUR_HISTOGRAM_BUCKETS];
} dur_histogram;

/* One kind of call: how long each took, and of those that failed for the store's reasons why. */
typedef struct dur_op_metrics {
    dur_histogram durations;
    uint64_t transactions_failed;
    uint64_t lock_timeouts;
    uint64_t serialization_errors;
    uint64_t unknown_errors;
    uint64_t reserved[4];
} dur_op_metrics;

typedef struct dur_store_metrics {
    size_t size;
    uint64_t calls;
    uint64_t ack_orchestration_retries;
    dur_op_metrics fetch;             /* of instances */
    dur_op_metrics ack_orchestration; /* turns */
    dur_op_metrics ack_work;          /* ends of activities */
    dur_op_metrics enqueue;
    dur_op_metrics fetch_work;
} dur_store_metrics;

/* Wrap a store so that every call is counted, timed and logged (DEBUG on success, ERROR on failure, with the instance
   id where there is one).  *out is a store like any other and keeps its own reference to inner. */
DUR_API int dur_observe(dur_provider **out, dur_provider *inner, dur_error *err);
/* What it has measured so far; DUR_EINVAL when the store is not one of dur_observe. */
DUR_API int dur_observe_snapshot(dur_store_metrics *out, dur_provider *observed, dur_error *err);

DUR_END_DECLS

#endif
