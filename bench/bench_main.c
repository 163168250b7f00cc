/*
 * bench_main.c: durite-bench, options and output.
 *
 * Ratios are what counts: machines differ, and the probes of bench_limit.c run on the same disk in the same run.
 */
#include "bench.h"
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { TMPFS = 0x01021994 };

static int usage(FILE *out) {
    fputs("usage: durite-bench [options] [URL] [WORKLOAD...]\n"
          "  --url URL       store: sqlite: (default; a file in --dir), memory:, postgres://... (a schema per\n"
          "                  workload, whatever the URL names)\n"
          "  --dir DIR       folder for files (default: a new one below the current folder)\n"
          "  --seconds S     length of timed workloads (default 10)\n"
          "  --repeat N      runs of each workload; median and spread are printed (default 1)\n"
          "  --in-flight N   sequential: with N orchestrations only\n"
          "  --random-ids    instance ids like UUIDs instead of a sequence\n"
          "  --loops N       orchestration_concurrency of the runtimes\n"
          "  --workers N     worker_concurrency of the runtimes\n"
          "  --no-threads    runtimes without threads, stepped by the thread that waits\n"
          "  --quick         tiny sizes, for correctness only\n"
          "  --allow-tmpfs   run although the folder is not on a disk\n"
          "  --json FILE     write the results there\n"
          "  --width N       fanout of this width only\n"
          "  --no-probes     no limit probes beside the workloads, so no ratios\n"
          "  --list          names of the workloads, among them fleet (nodes that differ)\n"
          "Without WORKLOAD: all but soak.\n",
          out);
    return out == stdout ? EXIT_SUCCESS : 2;
}

static double median(const double *samples, size_t count) {
    double copy[BENCH_REPEAT_MAX];
    memcpy(copy, samples, count * sizeof(*copy));
    return bench_percentile(copy, count, 50);
}

static double end(const double *samples, size_t count, double p) {
    double copy[BENCH_REPEAT_MAX];
    memcpy(copy, samples, count * sizeof(*copy));
    return bench_percentile(copy, count, p);
}

static void cpu_model(char out[128]) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];
    snprintf(out, 128, "unknown");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "model name", 10) != 0 || strchr(line, ':') == NULL) continue;
        snprintf(out, 128, "%.*s", (int)strcspn(strchr(line, ':') + 2, "\"\\\n"), strchr(line, ':') + 2);
        break;
    }
    if (file != NULL) fclose(file);
}

static void write_number(FILE *out, double value) {
    if (isnan(value))
        fputs("null", out);
    else
        fprintf(out, "%.6g", value);
}

static void write_result(FILE *out, const bench_result *r) {
    fprintf(out, "\n  {\"workload\":\"%s\",\"store\":\"%s\",\"params\":%s,\"metrics\":{", r->workload, r->store,
            r->params);
    for (size_t k = 0; k < r->metric_count; k++) {
        fprintf(out, "%s\"%s\":", k > 0 ? "," : "", r->metrics[k].name);
        write_number(out, median(r->metrics[k].samples, r->metrics[k].count));
    }
    fputs("},\"spread\":{", out);
    for (size_t k = 0; k < r->metric_count; k++) {
        fprintf(out, "%s\"%s\":[", k > 0 ? "," : "", r->metrics[k].name);
        write_number(out, end(r->metrics[k].samples, r->metrics[k].count, 0));
        fputc(',', out);
        write_number(out, end(r->metrics[k].samples, r->metrics[k].count, 100));
        fputc(']', out);
    }
    fputs("}}", out);
}

/*
 * {"machine":{cores, model, kernel, architecture},
 *  "settings":{version, seconds, repeat, disk, and what the writing connection says of itself},
 *  "results":[{workload, store, params, metrics: medians, spread: [least, most] of the runs}]}
 */
static void write_json(const bench *b, const char *path) {
    FILE *out = fopen(path, "w");
    struct utsname name;
    char model[128];
    if (out == NULL) {
        fprintf(stderr, "durite-bench: cannot write %s\n", path);
        exit(EXIT_FAILURE);
    }
    uname(&name);
    cpu_model(model);
    fprintf(out, "{\"machine\":{\"cores\":%ld,\"model\":\"%s\",\"kernel\":\"%s\",\"architecture\":\"%s\"},\n",
            sysconf(_SC_NPROCESSORS_ONLN), model, name.release, name.machine);
    fprintf(out, " \"settings\":{\"version\":\"%s\",\"seconds\":%g,\"repeat\":%u,\"disk\":\"%s\"%s%s},\n \"results\":[",
            dur_version(), b->seconds, b->repeat, b->disk, b->settings[0] != '\0' ? "," : "", b->settings);
    for (size_t i = 0; i < b->result_count; i++) {
        if (i > 0) fputc(',', out);
        write_result(out, &b->results[i]);
    }
    fputs("]}\n", out);
    fclose(out);
}

/* The last run of each, or the medians and how far the runs were apart. */
static void print_results(const bench *b, bool medians) {
    bench_progress("%s", "");
    for (size_t i = 0; i < b->result_count; i++) {
        const bench_result *r = &b->results[i];
        printf("%-10s %-8s %-26s", r->workload, r->store, r->params);
        for (size_t k = 0; k < r->metric_count; k++) {
            const double *samples = r->metrics[k].samples;
            size_t count = r->metrics[k].count;
            double value = medians ? median(samples, count) : samples[count - 1];
            if (isnan(value)) {
                printf(" %s=\"not counted\"", r->metrics[k].name);
                continue;
            }
            printf(" %s=%.4g", r->metrics[k].name, value);
            if (medians) printf("[%.4g..%.4g]", end(samples, count, 0), end(samples, count, 100));
        }
        putchar('\n');
    }
    fflush(stdout);
}

static bool wanted(const char *name, char **names) {
    if (*names == NULL) return true;
    for (; *names != NULL; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

static void make_dir(bench *b, const char *dir, bool allow_tmpfs) {
    struct statfs fs;
    snprintf(b->dir, sizeof(b->dir), "%s/durite-bench-XXXXXX", dir);
    if (mkdtemp(b->dir) == NULL || statfs(b->dir, &fs) != 0) {
        perror("durite-bench: folder");
        exit(EXIT_FAILURE);
    }
    if (fs.f_type == TMPFS && !allow_tmpfs) {
        rmdir(b->dir);
        fputs("durite-bench: the folder is on tmpfs, which makes no commit durable: choose --dir,"
              " or say --allow-tmpfs\n",
              stderr);
        exit(2);
    }
}

static void disk_name(bench *b) {
    static const struct {
        long magic;
        const char *name;
    } known[] = { { 0xEF53, "ext4" }, { 0x58465342, "xfs" },       { (long)0x9123683E, "btrfs" },
                  { TMPFS, "tmpfs" }, { 0x794c7630, "overlayfs" }, { 0x2fc12fc1, "zfs" },
                  { 0x6969, "nfs" } };
    struct statfs fs;
    snprintf(b->disk, sizeof(b->disk), "unknown");
    if (statfs(b->dir, &fs) != 0) return;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if ((long)fs.f_type == known[i].magic) snprintf(b->disk, sizeof(b->disk), "%s", known[i].name);
}

static void run_all(bench *b, char **names) {
    for (unsigned i = 0; i < b->repeat; i++) {
        for (const bench_workload *w = bench_workloads; w->name != NULL; w++) {
            if (!wanted(w->name, names) || (w->by_name && *names == NULL && !b->quick)) continue;
            if (w->compared && !b->no_probes && (!b->quick || b->limit == 0)) bench_probes(b);
            bench_progress("%s (%u of %u)", w->name, i + 1, b->repeat);
            w->run(b);
        }
    }
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        { "url", required_argument, NULL, 'u' },
        { "dir", required_argument, NULL, 'd' },
        { "seconds", required_argument, NULL, 's' },
        { "repeat", required_argument, NULL, 'r' },
        { "random-ids", no_argument, NULL, 'i' },
        { "in-flight", required_argument, NULL, 'n' },
        { "loops", required_argument, NULL, 'o' },
        { "no-threads", no_argument, NULL, 'T' },
        { "workers", required_argument, NULL, 'k' },
        { "quick", no_argument, NULL, 'q' },
        { "allow-tmpfs", no_argument, NULL, 't' },
        { "json", required_argument, NULL, 'j' },
        { "width", required_argument, NULL, 'w' },
        { "no-probes", no_argument, NULL, 'p' },
        { "list", no_argument, NULL, 'l' },
        { "help", no_argument, NULL, 'h' },
        { "first-child", required_argument, NULL, 'f' }, /* what the workload start starts */
        { "node-child", required_argument, NULL, 'N' },  /* what the workload nodes starts */
        { NULL, 0, NULL, 0 },
    };
    static bench b = { .url = "sqlite:", .seconds = 10, .repeat = 1 };
    const char *dir = ".", *json = NULL;
    bool allow_tmpfs = false;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'u':
            b.url = optarg;
            break;
        case 'd':
            dir = optarg;
            break;
        case 's':
            b.seconds = strtod(optarg, NULL);
            break;
        case 'r':
            b.repeat = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'n':
            b.in_flight = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'i':
            b.random_ids = true;
            break;
        case 'o':
            bench_defaults.orchestration_concurrency = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'k':
            bench_defaults.worker_concurrency = (uint32_t)strtoul(optarg, NULL, 10);
            break;
        case 'T':
            bench_defaults.threads = DUR_THREADS_NONE;
            break;
        case 'q':
            b.quick = true;
            b.seconds = 0.3;
            break;
        case 't':
            allow_tmpfs = true;
            break;
        case 'j':
            json = optarg;
            break;
        case 'w':
            b.width = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'p':
            b.no_probes = true;
            break;
        case 'f':
            return bench_first_child(optarg);
        case 'N':
            return bench_node_child(optarg, argv[optind] != NULL ? argv[optind] : "1");
        case 'l':
            for (const bench_workload *w = bench_workloads; w->name != NULL; w++)
                printf("%-12s %s\n", w->name, w->what);
            return EXIT_SUCCESS;
        default:
            return usage(c == 'h' ? stdout : stderr);
        }
    }
    if (argv[optind] != NULL && strchr(argv[optind], ':') != NULL) b.url = argv[optind++];
    for (char **name = argv + optind; *name != NULL; name++) {
        const bench_workload *w = bench_workloads;
        while (w->name != NULL && strcmp(w->name, *name) != 0)
            w++;
        if (w->name == NULL) {
            fprintf(stderr, "durite-bench: no workload \"%s\" (see --list)\n", *name);
            return 2;
        }
    }
    if (b.repeat < 1 || b.repeat > BENCH_REPEAT_MAX || !(b.seconds > 0)) {
        fprintf(stderr, "durite-bench: --repeat takes 1 to %d, --seconds more than 0\n", (int)BENCH_REPEAT_MAX);
        return 2;
    }
    make_dir(&b, dir, allow_tmpfs || b.quick);
    disk_name(&b);
    bench_count_install();
    run_all(&b, argv + optind);
    print_results(&b, b.repeat > 1);
    if (b.settings[0] != '\0') printf("settings   {%s,\"disk\":\"%s\"}\n", b.settings, b.disk);
    if (json != NULL) write_json(&b, json);
    char command[600];
    snprintf(command, sizeof(command), "rm -rf '%s'", b.dir);
    return system(command) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
