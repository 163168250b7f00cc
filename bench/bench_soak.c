/*
 * bench_soak.c: load for minutes, with everything deleted soon after it has ended: does memory grow, does the database?
 */
#include "bench.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { SAMPLES = 20, IN_FLIGHT = 20, ETERNALS = 4, KEPT_MS = 1000, AT_ONCE = 1000 };

/* ---- pruning, as an operator would have it: a thread that deletes what has ended ---- */

typedef struct pruner {
    bench *b;
    double every;
    atomic_bool stop;
    pthread_t thread;
} pruner;

static uint64_t wall_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void prune_once(bench *b) {
    dur_error err = DUR_ERROR_INIT;
    dur_deleted gone = { .size = sizeof(gone) };
    do {
        bench_check(dur_client_delete_bulk(
                        &gone, b->client, DUR_BULK(.completed_before_ms = wall_ms() - KEPT_MS, .limit = AT_ONCE), &err),
                    &err, "delete");
    } while (gone.instances >= AT_ONCE);
    bench_check(dur_client_prune_bulk(NULL, b->client, DUR_BULK(.limit = AT_ONCE), DUR_PRUNE(.keep_last = 2), &err),
                &err, "prune");
}

static void *prune(void *arg) {
    pruner *p = arg;
    while (!atomic_load(&p->stop)) {
        prune_once(p->b);
        bench_sleep(p->every);
    }
    return NULL;
}

/* ---- sizes ---- */

static double file_bytes(const char *path, const char *end) {
    char name[1100];
    struct stat status;
    snprintf(name, sizeof(name), "%s%s", path, end);
    return stat(name, &status) == 0 ? (double)status.st_size : 0;
}

static double store_bytes(const bench *b) {
    if (strncmp(b->store_url, "sqlite:", 7) == 0)
        return file_bytes(b->store_url + 7, "") + file_bytes(b->store_url + 7, "-wal");
    return bench_pg_bytes(b);
}

/* ---- the workload ---- */

static void eternals(bench *b, bool start) {
    for (int i = 0; i < ETERNALS; i++) {
        dur_error err = DUR_ERROR_INIT;
        char id[32];
        snprintf(id, sizeof(id), "eternal-%d", i);
        if (start)
            bench_start(b, "Eternal", "", id);
        else
            bench_check(dur_client_terminate(b->client, id, "the end", &err), &err, id);
    }
}

void bench_soak(bench *b) {
    double seconds = b->seconds, total = b->quick ? 1 : 60 * seconds, begin = bench_now(), steps = 0, rss[2], size[2];
    pruner p = { .b = b, .every = b->quick ? 0.05 : 1 };
    bench_open(b, &bench_defaults);
    eternals(b, true);
    pthread_create(&p.thread, NULL, prune, &p);
    b->seconds = total / SAMPLES;
    for (unsigned i = 0; i < SAMPLES; i++) {
        char params[48];
        double done = bench_drive(b, IN_FLIGHT, (uint64_t)(i + 1) << 40);
        unsigned late = i > 0; /* the first sample comes after warming up, the last stays */
        rss[late] = (double)bench_rss_bytes();
        size[late] = store_bytes(b);
        steps += done;
        bench_progress("soak: %.0f of %.0f s, %.0f steps/s, %.1f MiB resident, %.1f MiB stored", bench_now() - begin,
                       total, done / b->seconds, rss[late] / 1048576, size[late] / 1048576);
        snprintf(params, sizeof(params), "{\"second\":%g}", (i + 1) * b->seconds);
        bench_result *sample = bench_result_add(b, "soak", params);
        bench_metric(sample, "steps_per_s", done / b->seconds);
        bench_metric(sample, "rss_bytes", rss[late]);
        bench_metric(sample, "store_bytes", size[late]);
    }
    b->seconds = seconds;
    atomic_store(&p.stop, true);
    pthread_join(p.thread, NULL);
    eternals(b, false);
    bench_result *r = bench_result_add(b, "soak", "{}");
    bench_metric(r, "seconds", bench_now() - begin);
    bench_metric(r, "steps_per_s", steps / (bench_now() - begin));
    bench_metric(r, "rss_last_to_first", rss[1] / rss[0]);
    bench_metric(r, "store_last_to_first", size[0] > 0 ? size[1] / size[0] : 1);
    bench_close(b);
}
