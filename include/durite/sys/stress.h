/*
 * stress.h: load for a store and a runtime, and what came of it (library libdurite-stress).
 *
 * For authors of stores: durite-kit says whether a store is right, this whether it stays right and fast when many
 * orchestrations are in flight.  The program durite-stress is made of it.  Linux, because memory is read from /proc.
 */
#ifndef DURITE_SYS_STRESS_H
#define DURITE_SYS_STRESS_H

#include <durite/error.h>
#include <durite/export.h>

DUR_BEGIN_DECLS

typedef struct dur_stress_config {
    size_t size;             /* sizeof(dur_stress_config) */
    const char *name;        /* for reports */
    const char *scenario;    /* "parallel": a fan-out of activities; "large": payloads of 10 to 100 KB and children */
    uint32_t max_concurrent; /* instances in flight, each started when the one before it has answered */
    uint32_t duration_s;     /* then none is started any more, and those in flight are waited for */
    uint32_t tasks;          /* parallel: activities of each instance, at most 1000 */
    uint32_t delay_ms;       /* parallel: how long each of them sleeps */
    uint32_t loops, workers; /* of the runtime; 0: its defaults */
} dur_stress_config;

typedef struct dur_stress_result {
    size_t size; /* sizeof(dur_stress_result) */
    uint64_t launched, completed, failed;
    uint64_t failed_infrastructure, failed_configuration, failed_application;
    uint64_t activities;
    double seconds;
    double p50_ms, p95_ms, p99_ms, max_ms; /* from start to the answer, each one measured */
    double sleep_ms; /* what a bare sleep of delay_ms took on this machine, measured beside the run; 0: no delay */
    uint64_t rss_kib, rss_peak_kib;
    char first_failure[256]; /* "": none */
} dur_stress_result;

/* The configurations that durite-stress knows by name; NULL behind the last.  Static. */
DUR_API const dur_stress_config *dur_stress_known(size_t index);

/*
 * Open the store, run, close it.  progress (NULL: none) is called about once a second, from the calling thread.  An
 * instance that failed is counted, and is no error.  Codes: DUR_EINVAL (which member, and why), DUR_ENOMEM, those of
 * dur_open and dur_runtime_start.  Since 0.1.
 */
typedef void dur_stress_progress_fn(void *data, const dur_stress_config *config, const dur_stress_result *so_far);
DUR_API int dur_stress_run(dur_stress_result *out, const char *url, const dur_stress_config *config,
                           dur_stress_progress_fn *progress, void *data, dur_error *err);

DUR_END_DECLS

#endif
