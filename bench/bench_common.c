/*
 * bench_common.c: stores, clocks, counters and percentiles of the benchmark.
 */
#include "bench.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

double bench_now(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

void bench_sleep(double seconds) {
    struct timespec ts = { .tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - floor(seconds)) * 1e9) };
    nanosleep(&ts, NULL);
}

void bench_progress(const char *format, ...) {
    va_list args;
    if (!isatty(STDERR_FILENO)) return;
    fputs("\r\033[K", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fflush(stderr);
}

void bench_check(int code, const dur_error *err, const char *what) {
    if (code == DUR_OK) return;
    fprintf(stderr, "durite-bench: %s: %s: %s: %s\n", what, dur_code_name(code), err->op, err->message);
    exit(EXIT_FAILURE);
}

static void remove_files(const bench *b) {
    char command[600];
    snprintf(command, sizeof(command), "rm -f '%s'/bench.db*", b->dir);
    if (system(command) != 0) fprintf(stderr, "durite-bench: cannot remove files in %s\n", b->dir);
}

void bench_reopen_runtime(bench *b, const dur_runtime_options *options) {
    dur_error err = DUR_ERROR_INIT;
    dur_runtime_options mine = *options;
    mine.store = b->store;
    if (mine.handlers == NULL) mine.handlers = bench_handlers;
    bench_check(dur_runtime_start(&b->runtime, &mine, &err), &err, "start");
}

void bench_url(bench *b) {
    static unsigned serial;
    if (strncmp(b->url, "sqlite:", 7) == 0) {
        remove_files(b);
        snprintf(b->store_url, sizeof(b->store_url), "sqlite:%s/bench.db", b->dir);
    } else if (strncmp(b->url, "memory:", 7) == 0) {
        snprintf(b->store_url, sizeof(b->store_url), "memory:bench-%u", ++serial);
    } else {
        snprintf(b->store_url, sizeof(b->store_url), "%s%cschema=bench_%d_%u", b->url,
                 strchr(b->url, '?') != NULL ? '&' : '?', (int)getpid(), ++serial);
    }
}

void bench_reopen(bench *b, const dur_runtime_options *options) {
    dur_error err = DUR_ERROR_INIT;
    bench_check(dur_open(&b->store, b->known_url != NULL ? b->known_url : b->store_url, &err), &err, "open");
    bench_check(dur_client_new(&b->client, b->store, &err), &err, "client");
    if (options != NULL) bench_reopen_runtime(b, options);
}

void bench_open(bench *b, const dur_runtime_options *options) {
    bench_url(b);
    bench_reopen(b, options);
}

void bench_close(bench *b) {
    dur_client_free(b->client);
    dur_runtime_stop(b->runtime, DUR_SECONDS(10), NULL);
    bench_settings_read(b);
    bench_pg_settings_read(b);
    dur_provider_close(b->store);
    b->client = NULL;
    b->runtime = NULL;
    b->store = NULL;
    bench_remove(b);
}

void bench_remove(bench *b) {
    if (strncmp(b->url, "sqlite:", 7) == 0) remove_files(b);
    if (b->known_url == NULL) bench_pg_drop(b);
}

bench_result *bench_result_add(bench *b, const char *workload, const char *params) {
    for (size_t i = 0; i < b->result_count; i++)
        if (strcmp(b->results[i].workload, workload) == 0 && strcmp(b->results[i].params, params) == 0)
            return &b->results[i];
    if (b->result_count == BENCH_RESULTS_MAX) {
        fprintf(stderr, "durite-bench: more than %d results\n", BENCH_RESULTS_MAX);
        exit(EXIT_FAILURE);
    }
    bench_result *result = &b->results[b->result_count++];
    snprintf(result->workload, sizeof(result->workload), "%s", workload);
    snprintf(result->store, sizeof(result->store), "%.*s", (int)strcspn(b->url, ":"), b->url);
    snprintf(result->params, sizeof(result->params), "%s", params);
    return result;
}

void bench_metric(bench_result *result, const char *name, double value) {
    size_t at = 0;
    while (at < result->metric_count && strcmp(result->metrics[at].name, name) != 0)
        at++;
    if (at == BENCH_METRICS_MAX) return;
    if (at == result->metric_count) snprintf(result->metrics[result->metric_count++].name, 32, "%s", name);
    if (result->metrics[at].count < BENCH_REPEAT_MAX) result->metrics[at].samples[result->metrics[at].count++] = value;
}

static uint64_t mixed(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

void bench_id(const bench *b, char out[64], const char *prefix, uint64_t number) {
    if (!b->random_ids) {
        snprintf(out, 64, "%s-%llu", prefix, (unsigned long long)number);
        return;
    }
    uint64_t hi = mixed(number * 2 + 1), lo = mixed(number * 2 + 2);
    snprintf(out, 64, "%08x-%04x-4%03x-8%03x-%012llx", (unsigned)(hi >> 32), (unsigned)(hi >> 16 & 0xffff),
             (unsigned)(hi & 0xfff), (unsigned)(lo >> 48 & 0xfff), (unsigned long long)(lo & 0xffffffffffff));
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double bench_percentile(double *values, size_t count, double p) {
    if (count == 0) return 0;
    qsort(values, count, sizeof(*values), compare);
    size_t at = (size_t)(p / 100.0 * (double)(count - 1) + 0.5);
    return values[at < count ? at : count - 1];
}

uint64_t bench_rss_bytes(void) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*u %lu", &pages) != 1) pages = 0;
    if (file != NULL) fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

double bench_cpu_ms(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000.0 +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000.0;
}

uint64_t bench_switches(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_nvcsw + (uint64_t)usage.ru_nivcsw;
}
