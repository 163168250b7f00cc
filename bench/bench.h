/*
 * bench.h: what the workloads share: a store, a clock, results.
 */
#ifndef BENCH_H
#define BENCH_H

#include <durite/durite.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { BENCH_METRICS_MAX = 24, BENCH_RESULTS_MAX = 64, BENCH_REPEAT_MAX = 32 };

/* One workload with one set of parameters; every run adds a sample to each metric. */
typedef struct bench_result {
    char workload[32];
    char store[16];
    char params[128]; /* JSON object */
    size_t metric_count;
    struct {
        char name[32];
        size_t count;
        double samples[BENCH_REPEAT_MAX];
    } metrics[BENCH_METRICS_MAX];
} bench_result;

typedef struct bench {
    const char *url;       /* as given; a file per workload for sqlite: */
    const char *known_url; /* use exactly this one */
    char store_url[1024];  /* of the workload that runs */
    char dir[512];         /* temporary folder for files */
    double seconds;        /* length of timed workloads */
    unsigned repeat;
    unsigned in_flight; /* sequential: only with so many; 0: with all that it knows */
    bool quick;         /* correctness only: tiny sizes */
    bool random_ids;
    double limit; /* steps per second of the ruler, 0: not measured */
    double own_limit;
    double commit_us;   /* one step's rows in one commit */
    char disk[16];      /* file system of the folder */
    char settings[512]; /* members of a JSON object: read back from the connection that wrote */
    dur_provider *store;
    dur_runtime *runtime;
    dur_client *client;
    unsigned width; /* fanout of this width only; 0: all */
    bool no_probes;
    size_t result_count;
    bench_result results[BENCH_RESULTS_MAX];
} bench;

/* Open a fresh store and start a runtime on it / stop and remove.  Exits with a message on failure. */
void bench_open(bench *b, const dur_runtime_options *options);
/* The same without removing what is there (known_url, or the store of the last workload). */
void bench_reopen(bench *b, const dur_runtime_options *options);
/* Chooses store_url, and removes what is there. */
void bench_url(bench *b);
void bench_reopen_runtime(bench *b, const dur_runtime_options *options);
void bench_close(bench *b);
void bench_remove(bench *b); /* the store of the last workload, when nobody uses it */
void bench_check(int code, const dur_error *err, const char *what);

bench_result *bench_result_add(bench *b, const char *workload, const char *params);
void bench_metric(bench_result *result, const char *name, double value);

double bench_now(void); /* seconds, monotonic */
void bench_sleep(double seconds);
void bench_progress(const char *format, ...) DUR_PRINTF(1, 2);
/* An instance id: sequential, or UUID-like when b->random_ids. */
void bench_id(const bench *b, char out[64], const char *prefix, uint64_t number);

/* Sorts values; the p-th percentile. */
double bench_percentile(double *values, size_t count, double p);

/* Counters of the process and the file, for idle and parked. */
uint64_t bench_rss_bytes(void);
double bench_cpu_ms(void);
uint64_t bench_switches(void);

/* Asked of SQLite by this process so far (bench_count.c). */
typedef struct bench_counts {
    uint64_t statements, commits;
} bench_counts;
void bench_count_install(void);
bench_counts bench_count(void);
/* Done by a PostgreSQL server so far (bench_pg.c); sessions report when they end. */
typedef struct bench_server {
    bool known;
    double transactions, statements, wal_bytes, round_trips;
} bench_server;
bench_server bench_server_count(const bench *b);
void bench_server_metrics(const bench *b, bench_result *r, const bench_server *before, double steps);
void bench_pg_settings_read(bench *b);
void bench_pg_probes(bench *b);
void bench_pg_drop(bench *b);          /* the schema of store_url */
double bench_pg_bytes(const bench *b); /* of its tables and indexes; 0: not PostgreSQL */
/* When the runtime has stopped and the store is still open. */
void bench_settings_read(bench *b);

extern const dur_handler bench_handlers[];
extern dur_runtime_options bench_defaults;
void bench_start(bench *b, const char *name, const char *input, const char *instance);
void bench_finish(bench *b, const char *instance);

/* Workloads with processes of their own (bench_process.c). */
void bench_recover(bench *b);
void bench_first(bench *b);
int bench_first_child(const char *url);
void bench_nodes(bench *b);
void bench_soak(bench *b);  /* bench_soak.c */
void bench_fleet(bench *b); /* bench_fleet.c */
int bench_node_child(const char *url, const char *seconds);
/* Clients with so many orchestrations of five steps in flight, for b->seconds; how many steps they completed. */
double bench_drive(bench *b, unsigned in_flight, uint64_t first_id);
dur_outcome bench_hold(dur_act *act, const char *input);

/* Probes: bare SQL, same disk, same durability. */
void bench_probes(bench *b);
double bench_limit_steps(const char *path, double seconds, unsigned steps_per_commit, bool random_ids);
double bench_own_limit_steps(const char *path, double seconds, unsigned steps_per_commit);
double bench_commit_us(const char *path, double seconds);

typedef struct bench_workload {
    const char *name;
    const char *what;
    void (*run)(bench *b);
    bool compared; /* the probes run right before it, because the machine may be busier than a minute ago */
    bool by_name;  /* too long to be among "all" */
} bench_workload;
extern const bench_workload bench_workloads[]; /* ended by NULL */

#endif
