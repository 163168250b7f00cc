/*
 * stress_run.c: libdurite-stress: one run: a runtime, and as many clients as instances may be in flight, each starting
 * the next when its last has answered.
 */
#include "stress.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS 120000u

typedef struct run {
    const dur_stress_config *config;
    dur_provider *store;
    char prefix[64];
    uint64_t end_us;
    atomic_uint_least64_t next;
    atomic_uint running;
    pthread_mutex_t mutex; /* guards the rest */
    dur_stress_result *result;
    uint32_t *latencies_us;
    size_t latency_count, latency_room;
} run;

static uint64_t now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static void read_memory(dur_stress_result *out) {
    char line[128];
    FILE *status = fopen("/proc/self/status", "r");
    if (status == NULL) return;
    while (fgets(line, sizeof(line), status) != NULL) {
        unsigned long long kib = 0;
        if (sscanf(line, "VmRSS: %llu", &kib) == 1) out->rss_kib = kib;
        if (sscanf(line, "VmHWM: %llu", &kib) == 1) out->rss_peak_kib = kib;
    }
    fclose(status);
}

/* ---- one client ---------------------------------------------------------------------------------------------------
 */

static void note_failure(run *all, dur_client *client, const char *instance, const dur_error *err) {
    dur_instance_info *info = NULL;
    dur_failure_category category = DUR_FAILURE_INFRASTRUCTURE;
    if (dur_client_info(&info, client, instance, NULL) == DUR_OK && info->status == DUR_INSTANCE_FAILED)
        category = info->failure_category;
    dur_stress_result *result = all->result;
    pthread_mutex_lock(&all->mutex);
    result->failed++;
    if (category == DUR_FAILURE_CONFIGURATION)
        result->failed_configuration++;
    else if (category == DUR_FAILURE_APPLICATION)
        result->failed_application++;
    else
        result->failed_infrastructure++;
    if (result->first_failure[0] == '\0')
        snprintf(result->first_failure, sizeof(result->first_failure), "%.40s: %.200s", instance, err->message);
    pthread_mutex_unlock(&all->mutex);
    dur_instance_info_free(info);
}

static void note_success(run *all, uint64_t took_us) {
    pthread_mutex_lock(&all->mutex);
    all->result->completed++;
    all->result->activities += stress_activities(all->config);
    if (all->latency_count == all->latency_room) {
        size_t room = all->latency_room * 2 + 1024;
        uint32_t *more = realloc(all->latencies_us, room * sizeof(*more));
        if (more == NULL) abort();
        all->latencies_us = more;
        all->latency_room = room;
    }
    all->latencies_us[all->latency_count++] = took_us < UINT32_MAX ? (uint32_t)took_us : UINT32_MAX;
    pthread_mutex_unlock(&all->mutex);
}

static void one_instance(run *all, dur_client *client) {
    char instance[128], input[64];
    dur_error err = DUR_ERROR_INIT;
    char *answer = NULL;
    const char *name = stress_is_large(all->config) ? "StressLarge" : "StressParallel";
    stress_input(all->config, input, sizeof(input));
    snprintf(instance, sizeof(instance), "%s-%llu", all->prefix, (unsigned long long)atomic_fetch_add(&all->next, 1));
    pthread_mutex_lock(&all->mutex);
    all->result->launched++;
    pthread_mutex_unlock(&all->mutex);
    uint64_t from = now_us();
    int code = dur_client_start(client, &err, name, input, .instance = instance);
    if (code == DUR_OK) code = dur_client_result(&answer, client, instance, ANSWER_MS, &err);
    if (code == DUR_OK)
        note_success(all, now_us() - from);
    else
        note_failure(all, client, instance, &err);
    dur_free(answer);
}

static void *client_thread(void *arg) {
    run *all = arg;
    dur_client *client = NULL;
    if (dur_client_new(&client, all->store, NULL) == DUR_OK)
        while (now_us() < all->end_us)
            one_instance(all, client);
    dur_client_free(client);
    atomic_fetch_sub(&all->running, 1);
    return NULL;
}

/* ---- the probe ----------------------------------------------------------------------------------------------------
 */

/* A thread that does nothing but sleep as the activities do: what the machine makes of their delay. */
static void *probe_thread(void *arg) {
    run *all = arg;
    uint64_t from = now_us(), count = 0;
    while (atomic_load(&all->running) > 0) {
        (void)poll(NULL, 0, (int)all->config->delay_ms);
        count++;
    }
    if (count > 0) all->result->sleep_ms = (double)(now_us() - from) / 1000.0 / (double)count;
    return NULL;
}

/* ---- the run ------------------------------------------------------------------------------------------------------
 */

static int by_size(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

static double percentile(const run *all, double share) {
    if (all->latency_count == 0) return 0;
    size_t at = (size_t)((double)(all->latency_count - 1) * share + 0.5);
    return all->latencies_us[at] / 1000.0;
}

static void finish(run *all, uint64_t from_us) {
    dur_stress_result *out = all->result;
    out->seconds = (double)(now_us() - from_us) / 1e6;
    qsort(all->latencies_us, all->latency_count, sizeof(*all->latencies_us), by_size);
    out->p50_ms = percentile(all, 0.50);
    out->p95_ms = percentile(all, 0.95);
    out->p99_ms = percentile(all, 0.99);
    out->max_ms = percentile(all, 1.0);
    read_memory(out);
}

static void watch(run *all, uint64_t from_us, dur_stress_progress_fn *progress, void *data) {
    struct timespec pause = { 0, 50000000L };
    uint64_t told_us = from_us;
    while (atomic_load(&all->running) > 0) {
        nanosleep(&pause, NULL);
        if (progress == NULL || now_us() - told_us < 1000000u) continue;
        told_us = now_us();
        pthread_mutex_lock(&all->mutex);
        dur_stress_result so_far = *all->result;
        pthread_mutex_unlock(&all->mutex);
        so_far.seconds = (double)(told_us - from_us) / 1e6;
        progress(data, all->config, &so_far);
    }
}

static const dur_stress_config known[] = {
#define KNOWN(name, scenario, ...)                                                                                     \
    { sizeof(dur_stress_config), name, scenario, __VA_ARGS__ }
    KNOWN("quick", "parallel", 10, 30, 3, 50, 1, 1),       KNOWN("baseline", "parallel", 20, 10, 5, 10, 1, 1),
    KNOWN("concurrency", "parallel", 20, 10, 5, 10, 1, 1), KNOWN("concurrency", "parallel", 20, 10, 5, 10, 2, 2),
    KNOWN("concurrency", "parallel", 20, 10, 5, 10, 4, 4), KNOWN("large", "large", 5, 10, 0, 0, 2, 2),
#undef KNOWN
};

const dur_stress_config *dur_stress_known(size_t index) {
    return index < sizeof(known) / sizeof(known[0]) ? &known[index] : NULL;
}

static int bad(dur_error *err, const char *what) {
    return dur_error_set(err, DUR_EINVAL, false, "stress", "%s", what);
}

static int check(const dur_stress_config *config, const dur_stress_result *out, const char *url, dur_error *err) {
    if (config == NULL || out == NULL || url == NULL) return bad(err, "out, url and config are required");
    if (config->size != sizeof(*config) || out->size != sizeof(*out)) return bad(err, "size is not that of the struct");
    if (config->scenario == NULL || (!stress_is_large(config) && strcmp(config->scenario, "parallel") != 0))
        return bad(err, "scenario is parallel or large");
    if (config->max_concurrent == 0) return bad(err, "max_concurrent cannot be 0");
    if (!stress_is_large(config) && (config->tasks == 0 || config->tasks > STRESS_TASKS_MAX))
        return bad(err, "tasks is 1 to 1000");
    return DUR_OK;
}

int dur_stress_run(dur_stress_result *out, const char *url, const dur_stress_config *config,
                   dur_stress_progress_fn *progress, void *data, dur_error *err) {
    if (check(config, out, url, err) != DUR_OK) return DUR_EINVAL;
    run all = { .config = config, .result = out, .mutex = PTHREAD_MUTEX_INITIALIZER };
    dur_runtime *runtime = NULL;
    pthread_t *threads = calloc(config->max_concurrent, sizeof(*threads));
    uint32_t started = 0;
    pthread_t probe;
    *out = (dur_stress_result){ .size = sizeof(*out) };
    if (threads == NULL) return dur_error_set(err, DUR_ENOMEM, false, "stress", "no memory for threads");
    snprintf(all.prefix, sizeof(all.prefix), "stress-%ld-%llu", (long)getpid(), (unsigned long long)now_us());
    int code = dur_open(&all.store, url, err);
    if (code == DUR_OK)
        code = dur_runtime_start(&runtime,
                                 DUR_RUNTIME(.store = all.store, .handlers = stress_handlers,
                                             .orchestration_concurrency = config->loops,
                                             .worker_concurrency = config->workers),
                                 err);
    uint64_t from_us = now_us();
    all.end_us = from_us + (uint64_t)config->duration_s * 1000000u;
    while (code == DUR_OK && started < config->max_concurrent) {
        atomic_fetch_add(&all.running, 1);
        if (pthread_create(&threads[started], NULL, client_thread, &all) != 0) {
            atomic_fetch_sub(&all.running, 1);
            break;
        }
        started++;
    }
    bool probed = code == DUR_OK && config->delay_ms > 0 && pthread_create(&probe, NULL, probe_thread, &all) == 0;
    if (code == DUR_OK) watch(&all, from_us, progress, data);
    if (probed) pthread_join(probe, NULL);
    for (uint32_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (code == DUR_OK) finish(&all, from_us);
    int stopped = dur_runtime_stop(runtime, 10000, code == DUR_OK ? err : NULL);
    dur_provider_close(all.store);
    pthread_mutex_destroy(&all.mutex);
    free(all.latencies_us);
    free(threads);
    return code != DUR_OK ? code : stopped;
}
