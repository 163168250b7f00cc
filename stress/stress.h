/*
 * stress.h: one run of the stress program: how much of what, and what came of it.
 */
#ifndef DURITE_STRESS_H
#define DURITE_STRESS_H

#include <durite/durite.h>

typedef struct stress_config {
    const char *name;     /* "baseline" */
    const char *scenario; /* "parallel" or "large" */
    uint32_t max_concurrent;
    uint32_t duration_s;
    uint32_t tasks;    /* activities of each instance (parallel) */
    uint32_t delay_ms; /* of each activity (parallel) */
    uint32_t loops, workers;
} stress_config;

typedef struct stress_result {
    uint64_t launched, completed, failed;
    uint64_t failed_infrastructure, failed_configuration, failed_application;
    uint64_t activities;
    double seconds;
    double p50_ms, p95_ms, p99_ms, max_ms; /* from start to the answer, each one measured */
    double sleep_ms; /* what a bare sleep of delay_ms took on this machine, measured beside the run; 0: no delay */
    uint64_t rss_kib, rss_peak_kib;
    char first_failure[256];
} stress_result;

/* Handlers of both scenarios. */
extern const dur_handler stress_handlers[];
/* Activities of one instance of the scenario. */
uint32_t stress_activities(const stress_config *config);
/* The input of one instance, for dur_client_start; size is at least 64. */
void stress_input(const stress_config *config, char *out, size_t size);

/* Run it.  progress is called about once a second, from the calling thread. */
int stress_run(const char *url, const stress_config *config, stress_result *out,
               void (*progress)(const stress_config *config, const stress_result *so_far), dur_error *err);

#endif
