/*
 * bench_main.c: durite-bench, options and output.
 *
 * Ratios are what counts: machines differ, and the probes of bench_limit.c run on the same disk in the same run.
 */
#include "bench.h"
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { TMPFS = 0x01021994 };

static int usage(FILE *out) {
    fputs("usage: durite-bench [options] [WORKLOAD...]\n"
          "  --url URL       store: sqlite: (default; a file in --dir), memory:, postgres://...\n"
          "  --dir DIR       folder for files (default: a new one below the current folder)\n"
          "  --seconds S     length of timed workloads (default 10)\n"
          "  --repeat N      runs of each workload; median and spread are printed (default 1)\n"
          "  --random-ids    instance ids like UUIDs instead of a sequence\n"
          "  --quick         tiny sizes, for correctness only\n"
          "  --allow-tmpfs   run although the folder is not on a disk\n"
          "  --json FILE     write the results there\n"
          "  --list          names of the workloads\n",
          out);
    return out == stdout ? EXIT_SUCCESS : 2;
}

static void write_json(const bench *b, const char *path) {
    FILE *out = fopen(path, "w");
    struct utsname name;
    if (out == NULL) {
        fprintf(stderr, "durite-bench: cannot write %s\n", path);
        exit(EXIT_FAILURE);
    }
    uname(&name);
    fprintf(out, "{\"machine\":{\"cores\":%ld,\"kernel\":\"%s\",\"architecture\":\"%s\"},\n", sysconf(_SC_NPROCESSORS_ONLN),
            name.release, name.machine);
    fprintf(out, " \"settings\":{\"version\":\"%s\",\"seconds\":%g,\"limit_steps_per_s\":%.0f,\"own_limit_steps_per_s\":%.0f,"
                 "\"commit_us\":%.1f},\n \"results\":[", dur_version(), b->seconds, b->limit, b->own_limit, b->commit_us);
    for (size_t i = 0; i < b->result_count; i++) {
        const bench_result *r = &b->results[i];
        fprintf(out, "%s\n  {\"workload\":\"%s\",\"store\":\"%s\",\"params\":%s,\"metrics\":{", i > 0 ? "," : "", r->workload,
                r->store, r->params);
        for (size_t k = 0; k < r->metric_count; k++)
            fprintf(out, "%s\"%s\":%.6g", k > 0 ? "," : "", r->metrics[k].name, r->metrics[k].value);
        fputs("}}", out);
    }
    fputs("]}\n", out);
    fclose(out);
}

static void print_from(const bench *b, size_t first) {
    bench_progress("%s", "");
    for (size_t i = first; i < b->result_count; i++) {
        const bench_result *r = &b->results[i];
        printf("%-10s %-8s %-26s", r->workload, r->store, r->params);
        for (size_t k = 0; k < r->metric_count; k++)
            printf(" %s=%.4g", r->metrics[k].name, r->metrics[k].value);
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
        fputs("durite-bench: the folder is on tmpfs, which makes no commit durable; choose --dir or say --allow-tmpfs\n", stderr);
        exit(2);
    }
}

static void run_probes(bench *b) {
    char path[600];
    if (strncmp(b->url, "sqlite:", 7) != 0) return;
    double seconds = b->quick ? 0.1 : b->seconds < 4 ? b->seconds : 4;
    snprintf(path, sizeof(path), "%s/probe.db", b->dir);
    bench_progress("limit probes");
    b->limit = bench_limit_steps(path, seconds, 20, false);
    b->own_limit = bench_own_limit_steps(path, seconds, 20);
    b->commit_us = bench_commit_us(path, seconds);
    bench_progress("%s", "");
    printf("limit      sqlite   steps_per_s=%.0f own_limit=%.0f commit_us=%.1f\n", b->limit, b->own_limit, b->commit_us);
}

int main(int argc, char **argv) {
    static const struct option options[] = {
        { "url", required_argument, NULL, 'u' },     { "dir", required_argument, NULL, 'd' },
        { "seconds", required_argument, NULL, 's' }, { "repeat", required_argument, NULL, 'r' },
        { "random-ids", no_argument, NULL, 'i' },    { "quick", no_argument, NULL, 'q' },
        { "allow-tmpfs", no_argument, NULL, 't' },   { "json", required_argument, NULL, 'j' },
        { "list", no_argument, NULL, 'l' },          { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    static bench b = { .url = "sqlite:", .seconds = 10, .repeat = 1 };
    const char *dir = ".", *json = NULL;
    bool allow_tmpfs = false;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'u': b.url = optarg; break;
        case 'd': dir = optarg; break;
        case 's': b.seconds = strtod(optarg, NULL); break;
        case 'r': b.repeat = (unsigned)strtoul(optarg, NULL, 10); break;
        case 'i': b.random_ids = true; break;
        case 'q': b.quick = true; b.seconds = 0.3; break;
        case 't': allow_tmpfs = true; break;
        case 'j': json = optarg; break;
        case 'l':
            for (const bench_workload *w = bench_workloads; w->name != NULL; w++)
                printf("%-12s %s\n", w->name, w->what);
            return EXIT_SUCCESS;
        default: return usage(c == 'h' ? stdout : stderr);
        }
    }
    for (char **name = argv + optind; *name != NULL; name++) {
        const bench_workload *w = bench_workloads;
        while (w->name != NULL && strcmp(w->name, *name) != 0)
            w++;
        if (w->name == NULL) {
            fprintf(stderr, "durite-bench: no workload \"%s\" (see --list)\n", *name);
            return 2;
        }
    }
    make_dir(&b, dir, allow_tmpfs || b.quick);
    run_probes(&b);
    for (const bench_workload *w = bench_workloads; w->name != NULL; w++) {
        if (!wanted(w->name, argv + optind)) continue;
        for (unsigned i = 0; i < (b.repeat > 0 ? b.repeat : 1); i++) {
            size_t first = b.result_count;
            bench_progress("%s", w->name);
            w->run(&b);
            print_from(&b, first);
        }
    }
    if (json != NULL) write_json(&b, json);
    char command[600];
    snprintf(command, sizeof(command), "rm -rf '%s'", b.dir);
    return system(command) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
