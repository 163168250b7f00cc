/*
 * stress_main.c: the program durite-stress: options, configurations and reports.
 */
#include <durite/provider.h>
#include <durite/sys/kit.h>
#include <durite/sys/stress.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: durite-stress URL [CONFIGURATION]... [options]\n"
    "\n"
    "Keeps a store and a runtime busy and says how it went.  URL: memory:, sqlite:PATH, postgres://...\n"
    "\n"
    "configurations (default: quick)\n"
    "  quick        parallel: 10 in flight, 3 tasks of 50 ms, 1 loop and 1 worker, 30 s\n"
    "  baseline     parallel: 20 in flight, 5 tasks of 10 ms, 1 loop and 1 worker, 10 s\n"
    "  concurrency  the same with 1/1, 2/2 and 4/4 loops and workers, and how the throughput grows\n"
    "  large        payloads of 10, 50 and 100 KB: 20 activities, 5 children, 10 more; 5 in flight, 10 s\n"
    "  all          every one of them\n"
    "\n"
    "options\n"
    "  --duration S       seconds of each run\n"
    "  --in-flight N      instances at a time       --tasks N   activities of each (parallel)\n"
    "  --delay MS         of each activity          --loops N   --workers N\n"
    "  --load FILE.so     a store of yours, whose scheme the URL has (docs/provider-guide.md)\n"
    "  --json             the report as JSON on standard output\n"
    "  --help             this text\n"
    "\n"
    "elapsed/completed is the seeds' \"average latency\" (total time by completed instances); the percentiles are "
    "measured\n"
    "from each start to its answer.  The ceiling is what the sleeping activities allow: workers / (tasks x delay).\n"
    "  Exit code: 0 all completed, 1 some failed, 2 it could not run.\n";

typedef struct arguments {
    const char *url, *module;
    const char *names[8];
    size_t name_count;
    uint32_t duration_s, in_flight, tasks, delay_ms, loops, workers;
    bool has_delay;
    bool json;
} arguments;

static int wrong(const char *format, const char *what) {
    fprintf(stderr, "durite-stress: ");
    fprintf(stderr, format, what);
    fprintf(stderr, "\nTry durite-stress --help.\n");
    return 2;
}

static bool number(const char *text, uint32_t *out) {
    char *end = NULL;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    *out = (uint32_t)value;
    return errno == 0 && text[0] >= '0' && text[0] <= '9' && *end == '\0' && value <= 100000;
}

static int parse(arguments *out, int argc, char **argv) {
    struct {
        const char *name;
        uint32_t *value;
    } numbers[] = { { "--duration", &out->duration_s }, { "--in-flight", &out->in_flight },
                    { "--tasks", &out->tasks },         { "--delay", &out->delay_ms },
                    { "--loops", &out->loops },         { "--workers", &out->workers } };
    for (int i = 1; i < argc; i++) {
        size_t which = 0;
        if (strcmp(argv[i], "--json") == 0) {
            out->json = true;
            continue;
        }
        if (strcmp(argv[i], "--load") == 0) {
            if (i + 1 >= argc) return wrong("%s needs a value", argv[i]);
            out->module = argv[++i];
            continue;
        }
        if (argv[i][0] != '-') {
            if (out->url == NULL)
                out->url = argv[i];
            else if (out->name_count < sizeof(out->names) / sizeof(out->names[0]))
                out->names[out->name_count++] = argv[i];
            else
                return wrong("too many configurations: %s", argv[i]);
            continue;
        }
        while (which < sizeof(numbers) / sizeof(numbers[0]) && strcmp(argv[i], numbers[which].name) != 0)
            which++;
        if (which == sizeof(numbers) / sizeof(numbers[0])) return wrong("unknown option %s", argv[i]);
        if (i + 1 >= argc) return wrong("%s needs a value", argv[i]);
        if (!number(argv[++i], numbers[which].value)) return wrong("not a number to use: %s", argv[i]);
        if (numbers[which].value == &out->delay_ms)
            out->has_delay = true;
        else if (*numbers[which].value == 0)
            return wrong("%s cannot be 0", argv[i - 1]);
    }
    if (out->url == NULL) return wrong("%s", "a URL is needed, for example memory:");
    if (out->name_count == 0) out->names[out->name_count++] = "quick";
    for (size_t i = 0; i < out->name_count; i++) {
        bool found = strcmp(out->names[i], "all") == 0;
        for (size_t k = 0; dur_stress_known(k) != NULL; k++)
            found |= strcmp(out->names[i], dur_stress_known(k)->name) == 0;
        if (!found) return wrong("no configuration is called %s", out->names[i]);
    }
    return 0;
}

static dur_stress_config adjusted(const arguments *args, dur_stress_config config) {
    if (args->duration_s != 0) config.duration_s = args->duration_s;
    if (args->in_flight != 0) config.max_concurrent = args->in_flight;
    if (args->tasks != 0) config.tasks = args->tasks;
    if (args->has_delay) config.delay_ms = args->delay_ms;
    if (args->loops != 0) config.loops = args->loops;
    if (args->workers != 0) config.workers = args->workers;
    return config;
}

/* ---- reports ------------------------------------------------------------------------------------------------------
 */

static void print_progress(void *data, const dur_stress_config *config, const dur_stress_result *so_far) {
    (void)data;
    fprintf(stderr, "\r%s %u/%u: %3.0f s, %llu completed, %llu failed, %.0f/s \033[K", config->name, config->loops,
            config->workers, so_far->seconds, (unsigned long long)so_far->completed, (unsigned long long)so_far->failed,
            (double)so_far->completed / so_far->seconds);
    fflush(stderr);
}

static double rate(uint64_t count, double seconds) {
    return seconds > 0 ? (double)count / seconds : 0;
}

static double success(const dur_stress_result *result) {
    uint64_t ended = result->completed + result->failed;
    return ended > 0 ? 100.0 * (double)result->completed / (double)ended : 0;
}

static double elapsed_per_completed(const dur_stress_result *result) {
    return result->completed > 0 ? result->seconds * 1000.0 / (double)result->completed : 0;
}

/* What sleeping activities allow at most: the slots of the workers by what one orchestration sleeps; 0: nothing sleeps.
 */
static double ceiling(const dur_stress_config *config) {
    double slept_s = (double)config->tasks * config->delay_ms / 1000;
    return slept_s > 0 ? config->workers / slept_s : 0;
}

static double of_ceiling(const dur_stress_config *config, const dur_stress_result *result) {
    return ceiling(config) > 0 ? rate(result->completed, result->seconds) / ceiling(config) : 0;
}

/* The same with the delay that the machine makes of it: on a busy one a sleep of 10 ms takes 13. */
static double of_measured(const dur_stress_config *config, const dur_stress_result *result) {
    return of_ceiling(config, result) * (config->delay_ms > 0 ? result->sleep_ms / config->delay_ms : 0);
}

static void print_text(const char *url, const dur_stress_config *config, const dur_stress_result *r) {
    printf("%s %s, %u in flight, %u/%u loops/workers, %.1f s on %.60s\n", config->name, config->scenario,
           config->max_concurrent, config->loops, config->workers, r->seconds, url);
    printf("  launched %llu, completed %llu, failed %llu (infrastructure %llu, configuration %llu, application %llu), "
           "success %.2f %%\n",
           (unsigned long long)r->launched, (unsigned long long)r->completed, (unsigned long long)r->failed,
           (unsigned long long)r->failed_infrastructure, (unsigned long long)r->failed_configuration,
           (unsigned long long)r->failed_application, success(r));
    printf("  %.1f orchestrations/s, %.1f activities/s, elapsed/completed %.3f ms\n", rate(r->completed, r->seconds),
           rate(r->activities, r->seconds), elapsed_per_completed(r));
    if (ceiling(config) > 0)
        printf("  ceiling %.1f orchestrations/s (%u workers by %u tasks of %u ms), reached %.1f %%; a bare sleep took "
               "%.2f ms: %.1f %% of what that allows\n",
               ceiling(config), config->workers, config->tasks, config->delay_ms, 100 * of_ceiling(config, r),
               r->sleep_ms, 100 * of_measured(config, r));
    printf("  start to finish: p50 %.2f ms, p95 %.2f ms, p99 %.2f ms, max %.2f ms\n", r->p50_ms, r->p95_ms, r->p99_ms,
           r->max_ms);
    printf("  memory: %.1f MiB, peak %.1f MiB\n", (double)r->rss_kib / 1024, (double)r->rss_peak_kib / 1024);
    if (r->first_failure[0] != '\0') printf("  first failure: %s\n", r->first_failure);
    fflush(stdout);
}

static void print_json(const dur_stress_config *config, const dur_stress_result *r, bool first) {
    printf("%s{\"configuration\":\"%s\",\"scenario\":\"%s\",\"max_concurrent\":%u,\"tasks\":%u,\"delay_ms\":%u,"
           "\"loops\":%u,\"workers\":%u,\"seconds\":%.3f,\"launched\":%llu,\"completed\":%llu,\"failed\":%llu,"
           "\"failed_infrastructure\":%llu,\"failed_configuration\":%llu,\"failed_application\":%llu,"
           "\"success_percent\":%.3f,\"orchestrations_per_s\":%.2f,\"activities_per_s\":%.2f,"
           "\"ceiling_per_s\":%.2f,\"of_ceiling\":%.4f,\"sleep_ms\":%.3f,\"of_measured_ceiling\":%.4f,"
           "\"elapsed_per_completed_ms\":%.4f,\"p50_ms\":%.3f,\"p95_ms\":%.3f,\"p99_ms\":%.3f,\"max_ms\":%.3f,"
           "\"rss_kib\":%llu,\"rss_peak_kib\":%llu}",
           first ? "[" : ",\n ", config->name, config->scenario, config->max_concurrent, config->tasks,
           config->delay_ms, config->loops, config->workers, r->seconds, (unsigned long long)r->launched,
           (unsigned long long)r->completed, (unsigned long long)r->failed,
           (unsigned long long)r->failed_infrastructure, (unsigned long long)r->failed_configuration,
           (unsigned long long)r->failed_application, success(r), rate(r->completed, r->seconds),
           rate(r->activities, r->seconds), ceiling(config), of_ceiling(config, r), r->sleep_ms, of_measured(config, r),
           elapsed_per_completed(r), r->p50_ms, r->p95_ms, r->p99_ms, r->max_ms, (unsigned long long)r->rss_kib,
           (unsigned long long)r->rss_peak_kib);
}

static bool chosen(const arguments *args, const dur_stress_config *config) {
    for (size_t i = 0; i < args->name_count; i++) {
        if (strcmp(args->names[i], config->name) == 0) return true;
        if (strcmp(args->names[i], "all") == 0) return true;
    }
    return false;
}

/* How much more the same load gets done with more loops and workers; the first run of its name is the measure. */
static void print_growth(const dur_stress_config *config, const dur_stress_result *result, double *single) {
    double now = rate(result->completed, result->seconds);
    if (strcmp(config->name, "concurrency") != 0) return;
    if (*single > 0)
        printf("  scalability: %.2f times the throughput of the first\n", now / *single);
    else
        *single = now;
}

int main(int argc, char **argv) {
    arguments args = { .url = NULL };
    bool first = true, sound = true;
    double single = 0;
    dur_error err = DUR_ERROR_INIT;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return fputs(help, stdout) < 0;
    int code = parse(&args, argc, argv);
    if (code != 0) return code;
    if (args.module != NULL && dur_kit_load(args.module, &err) != DUR_OK) {
        fprintf(stderr, "durite-stress: %s\n", err.message);
        return 2;
    }
    for (size_t i = 0; dur_stress_known(i) != NULL; i++) {
        dur_stress_config config = adjusted(&args, *dur_stress_known(i));
        dur_stress_result result = { .size = sizeof(result) };
        if (!chosen(&args, &config)) continue;
        code = dur_stress_run(&result, args.url, &config, isatty(STDERR_FILENO) ? print_progress : NULL, NULL, &err);
        if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
        if (code != DUR_OK) {
            fprintf(stderr, "durite-stress: %s: %s\n", args.url, err.message);
            return 2;
        }
        if (args.json)
            print_json(&config, &result, first);
        else
            print_text(args.url, &config, &result), print_growth(&config, &result, &single);
        first = false;
        sound &= result.failed == 0 && result.completed > 0;
    }
    if (args.json) printf("]\n");
    return sound ? 0 : 1;
}
