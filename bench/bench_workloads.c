/*
 * bench_workloads.c: the workloads.  Activities do nothing unless said.
 */
#include "bench.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- handlers ---- */

static dur_outcome noop(dur_act *act, const char *input) {
    (void)input;
    return dur_act_complete(act, "");
}

static dur_outcome steps(dur_ctx *ctx, const char *count_text) {
    unsigned long count = strtoul(count_text, NULL, 10);
    for (unsigned long i = 0; i < count; i++) {
        dur_scope *scope = dur_scope_begin(ctx);
        dur_await(dur_activity(ctx, "Noop", ""));
        dur_scope_end(scope);
    }
    return dur_complete(ctx, "");
}

enum { STAMPS_MAX = 200000 };
static double stamps[STAMPS_MAX];
static atomic_size_t stamp_count;

static dur_outcome stamp(dur_act *act, const char *input) {
    (void)input;
    size_t at = atomic_fetch_add(&stamp_count, 1);
    if (at < STAMPS_MAX) stamps[at] = bench_now();
    return dur_act_complete(act, "");
}

static dur_outcome stamped_steps(dur_ctx *ctx, const char *count_text) {
    unsigned long count = strtoul(count_text, NULL, 10);
    for (unsigned long i = 0; i < count; i++) {
        dur_scope *scope = dur_scope_begin(ctx);
        dur_await(dur_activity(ctx, "Stamp", ""));
        dur_scope_end(scope);
    }
    return dur_complete(ctx, "");
}

static dur_outcome fan(dur_ctx *ctx, const char *count_text) {
    size_t count = strtoul(count_text, NULL, 10);
    dur_future **futures = dur_alloc(ctx, count * sizeof(*futures));
    for (size_t i = 0; i < count; i++)
        futures[i] = dur_activity(ctx, "Noop", "");
    dur_join_n(futures, count);
    return dur_complete(ctx, "");
}

static dur_outcome children(dur_ctx *ctx, const char *count_text) {
    size_t count = strtoul(count_text, NULL, 10);
    dur_future **futures = dur_alloc(ctx, count * sizeof(*futures));
    for (size_t i = 0; i < count; i++)
        futures[i] = dur_orchestration(ctx, "Steps", "1");
    dur_join_n(futures, count);
    return dur_complete(ctx, "");
}

static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static dur_outcome queue(dur_ctx *ctx, const char *left_text) {
    unsigned long left = strtoul(left_text, NULL, 10);
    dur_await(dur_message(ctx, "q"));
    if (left == 1) return dur_complete(ctx, "");
    return dur_continue_as_new(ctx, dur_format(ctx, "%lu", left - 1));
}

static dur_outcome kv(dur_ctx *ctx, const char *count_text) {
    unsigned long count = strtoul(count_text, NULL, 10);
    for (unsigned long i = 0; i < count; i++) {
        dur_scope *scope = dur_scope_begin(ctx);
        dur_kv_set(ctx, dur_format(ctx, "k%lu", i % 10), dur_format(ctx, "%lu", i));
        dur_await(dur_activity(ctx, "Noop", ""));
        dur_scope_end(scope);
    }
    return dur_complete(ctx, "");
}

static dur_outcome eternal(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "Noop", ""));
    dur_await(dur_timer(ctx, 10));
    return dur_continue_as_new(ctx, input);
}

static dur_outcome held(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Hold", "")));
}

static atomic_size_t late_count;
static double lateness[STAMPS_MAX];
static double wall_ms(void) {
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (double)ts.tv_sec * 1000.0 + (double)ts.tv_nsec / 1e6;
}

/* input: when the timer is due, wall milliseconds.  The measurement is outside of the deterministic world, on purpose:
   it is about the engine. */
static dur_outcome timer(dur_ctx *ctx, const char *due_text) {
    uint64_t due = strtoull(due_text, NULL, 10);
    uint64_t now = dur_now_ms(ctx);
    dur_await(dur_timer(ctx, due > now ? due - now : 0));
    if (!dur_is_replaying(ctx)) {
        size_t at = atomic_fetch_add(&late_count, 1);
        if (at < STAMPS_MAX) lateness[at] = wall_ms() - (double)due;
    }
    return dur_complete(ctx, "");
}

const dur_handler bench_handlers[] = {
    DUR_ACTIVITY("Noop", noop),
    DUR_ACTIVITY("Stamp", stamp),
    DUR_ACTIVITY("Hold", bench_hold),
    DUR_ORCHESTRATION("Eternal", "1.0.0", eternal),
    DUR_ORCHESTRATION("Held", "1.0.0", held),
    DUR_ORCHESTRATION("Steps", "1.0.0", steps),
    DUR_ORCHESTRATION("StampedSteps", "1.0.0", stamped_steps),
    DUR_ORCHESTRATION("Fan", "1.0.0", fan),
    DUR_ORCHESTRATION("Children", "1.0.0", children),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("Queue", "1.0.0", queue),
    DUR_ORCHESTRATION("Kv", "1.0.0", kv),
    DUR_ORCHESTRATION("Timer", "1.0.0", timer),
    DUR_HANDLERS_END,
};

dur_runtime_options bench_defaults = { .size = sizeof(dur_runtime_options) };

void bench_start(bench *b, const char *name, const char *input, const char *instance) {
    dur_error err = DUR_ERROR_INIT;
    bench_check(dur_client_start(b->client, &err, name, input, .instance = instance), &err, instance);
}

void bench_finish(bench *b, const char *instance) {
    dur_error err = DUR_ERROR_INIT;
    char *result = NULL;
    bench_check(dur_client_result(&result, b->client, instance, DUR_SECONDS(600), &err), &err, instance);
    dur_free(result);
}

static void counts(bench_result *r, const bench_counts *before, const bench_counts *after, double steps_done) {
    if (after->commits == before->commits) return; /* not SQLite */
    bench_metric(r, "commits_per_step", (double)(after->commits - before->commits) / steps_done);
    bench_metric(r, "statements_per_step", (double)(after->statements - before->statements) / steps_done);
}

static void bench_raise(bench *b, const char *instance) {
    dur_error err = DUR_ERROR_INIT;
    bench_check(dur_client_pulse(b->client, &err, instance, "Go", ""), &err, instance);
}

/* ---- many starts: by several threads, so that they share their commits ---- */

enum { STARTERS = 50 };

typedef struct starter {
    bench *b;
    pthread_t thread;
    const char *name, *prefix; /* name NULL: an event to each instead */
    size_t first, count;
    double due_ms, spacing_ms; /* 0: no input */
} starter;

static void *start_some(void *arg) {
    const starter *s = arg;
    for (size_t i = s->first; i < s->count; i += STARTERS) {
        char id[64], text[32] = "";
        bench_id(s->b, id, s->prefix, i);
        if (s->due_ms > 0) snprintf(text, sizeof(text), "%.0f", s->due_ms + (double)i * s->spacing_ms);
        if (s->name != NULL)
            bench_start(s->b, s->name, text, id);
        else
            bench_raise(s->b, id);
    }
    return NULL;
}

static void start_many(bench *b, const char *name, const char *prefix, size_t count, double due_ms, double spacing_ms) {
    starter all[STARTERS];
    for (size_t i = 0; i < STARTERS; i++) {
        all[i] = (starter){ .b = b,
                            .name = name,
                            .prefix = prefix,
                            .first = i,
                            .count = count,
                            .due_ms = due_ms,
                            .spacing_ms = spacing_ms };
        pthread_create(&all[i].thread, NULL, start_some, &all[i]);
    }
    for (size_t i = 0; i < STARTERS; i++)
        pthread_join(all[i].thread, NULL);
}

/* ---- sequential: a closed loop with so many orchestrations in flight, driven by one thread ---- */

enum { SAMPLES_MAX = 2000000, STEPS = 5 };

typedef struct driver {
    bench *b;
    dur_runs *runs;
    uint64_t next_id;
    double *begun; /* of each place in flight; a run's data points there */
    uint64_t completed;
    double *latencies_us;
    size_t latency_count, latency_room;
} driver;

static void drive_start(driver *d, double *begun) {
    char id[64];
    dur_error err = DUR_ERROR_INIT;
    bench_id(d->b, id, "o", d->next_id++);
    *begun = bench_now();
    bench_check(dur_runs_start(d->runs, &err, "Steps", "5", .instance = id, .data = begun), &err, id);
}

static void drive(driver *d, unsigned in_flight, double until) {
    const dur_run *run;
    dur_error err = DUR_ERROR_INIT;
    d->begun = calloc(in_flight, sizeof(*d->begun));
    if (d->begun == NULL) exit(EXIT_FAILURE);
    bench_check(dur_runs_new(&d->runs, d->b->client, &err), &err, "runs");
    for (unsigned i = 0; i < in_flight; i++)
        drive_start(d, &d->begun[i]);
    while (dur_runs_count(d->runs) > 0) {
        bench_check(dur_runs_next(&run, d->runs, DUR_SECONDS(600), &err), &err, "runs");
        if (run->code != DUR_OK) bench_check(run->code, &err, run->error);
        double *begun = run->data, now = bench_now();
        if (d->latency_count < d->latency_room) d->latencies_us[d->latency_count++] = (now - *begun) * 1e6;
        d->completed++;
        if (now < until) drive_start(d, begun);
    }
    dur_runs_free(d->runs);
    free(d->begun);
}

double bench_drive(bench *b, unsigned in_flight, uint64_t first_id) {
    driver d = { .b = b, .next_id = first_id };
    drive(&d, in_flight, bench_now() + b->seconds);
    return (double)d.completed * STEPS;
}

static void sequential_with(bench *b, unsigned in_flight) {
    driver d = { .b = b, .next_id = (uint64_t)1 << 32, .latency_room = SAMPLES_MAX };
    char params[96];
    d.latencies_us = malloc(SAMPLES_MAX * sizeof(double));
    if (d.latencies_us == NULL) exit(EXIT_FAILURE);
    bench_server server = bench_server_count(b);
    bench_open(b, &bench_defaults);
    bench_counts before = bench_count();
    double begin = bench_now(), cpu_ms = bench_cpu_ms();
    drive(&d, in_flight, begin + b->seconds);
    double elapsed = bench_now() - begin;
    cpu_ms = bench_cpu_ms() - cpu_ms;
    bench_counts after = bench_count();
    snprintf(params, sizeof(params), "{\"in_flight\":%u,\"ids\":\"%s\"}", in_flight,
             b->random_ids ? "random" : "sequential");
    bench_result *r = bench_result_add(b, "sequential", params);
    double steps_done = (double)d.completed * STEPS, rate = steps_done / elapsed;
    bench_metric(r, "orchestrations_per_s", (double)d.completed / elapsed);
    bench_metric(r, "steps_per_s", rate);
    bench_metric(r, "p50_us", bench_percentile(d.latencies_us, d.latency_count, 50));
    bench_metric(r, "p99_us", bench_percentile(d.latencies_us, d.latency_count, 99));
    bench_metric(r, "cpu_us_per_step", cpu_ms * 1e3 / steps_done);
    counts(r, &before, &after, steps_done);
    if (b->limit > 0) bench_metric(r, "ratio_to_limit", rate / b->limit);
    if (b->own_limit > 0) bench_metric(r, "ratio_to_own_limit", rate / b->own_limit);
    free(d.latencies_us);
    bench_close(b);
    bench_server_metrics(b, r, &server, steps_done);
}

static void sequential(bench *b) {
    if (b->in_flight > 0) {
        sequential_with(b, b->in_flight);
        return;
    }
    sequential_with(b, 20);
    bool before = b->random_ids;
    b->random_ids = true;
    sequential_with(b, 20);
    b->random_ids = before;
    sequential_with(b, 1);
    if (b->quick) return;
    sequential_with(b, 200);
    sequential_with(b, 2000);
}

static void single(bench *b) {
    enum { MOST = 3000, LEAST = 50 };
    size_t count = 0;
    double *us = malloc(MOST * sizeof(double));
    bench_open(b, &bench_defaults);
    double until = bench_now() + b->seconds;
    for (; count < (b->quick ? LEAST : MOST) && (count < LEAST || bench_now() < until); count++) {
        char id[64];
        bench_id(b, id, "s", count);
        double begin = bench_now();
        bench_start(b, "Steps", "1", id);
        bench_finish(b, id);
        us[count] = (bench_now() - begin) * 1e6;
    }
    bench_result *r = bench_result_add(b, "single", "{}");
    double p50 = bench_percentile(us, count, 50);
    bench_metric(r, "p50_us", p50);
    bench_metric(r, "p99_us", bench_percentile(us, count, 99));
    if (b->commit_us > 0) bench_metric(r, "ratio_to_commit", p50 / b->commit_us);
    free(us);
    bench_close(b);
}

static void step(bench *b) {
    size_t count = b->quick ? 200 : 10000;
    char text[32];
    atomic_store(&stamp_count, 0);
    bench_server server = bench_server_count(b);
    bench_open(b, &bench_defaults);
    snprintf(text, sizeof(text), "%zu", count);
    dur_metrics before = { .size = sizeof(before) }, after = { .size = sizeof(after) };
    dur_runtime_metrics(&before, b->runtime, NULL);
    bench_counts counted = bench_count();
    bench_start(b, "StampedSteps", text, "step");
    bench_finish(b, "step");
    bench_counts counted_after = bench_count();
    dur_runtime_metrics(&after, b->runtime, NULL);
    size_t tenth = count / 10;
    double *us = malloc(count * sizeof(double)), first = 0, last = 0;
    for (size_t i = 1; i < count; i++)
        us[i - 1] = (stamps[i] - stamps[i - 1]) * 1e6;
    first = (stamps[tenth] - stamps[0]) / (double)tenth;
    last = (stamps[count - 1] - stamps[count - 1 - tenth]) / (double)tenth;
    bench_result *r = bench_result_add(b, "step", "{}");
    double p50 = bench_percentile(us, count - 1, 50);
    bench_metric(r, "p50_us", p50);
    bench_metric(r, "p99_us", bench_percentile(us, count - 1, 99));
    bench_metric(r, "last_to_first", last / first);
    bench_metric(r, "rounds_per_step", (double)(after.rounds - before.rounds) / (double)count);
    counts(r, &counted, &counted_after, (double)count);
    if (b->commit_us > 0) bench_metric(r, "ratio_to_commit", p50 / b->commit_us);
    free(us);
    bench_close(b);
    bench_server_metrics(b, r, &server, (double)count);
}

static void fanout_of(bench *b, size_t width) {
    char text[32], params[48];
    snprintf(text, sizeof(text), "%zu", width);
    snprintf(params, sizeof(params), "{\"width\":%zu}", width);
    bench_open(b, &bench_defaults);
    double begin = bench_now();
    bench_start(b, "Fan", text, "fan");
    bench_finish(b, "fan");
    bench_result *r = bench_result_add(b, "fanout", params);
    bench_metric(r, "seconds", bench_now() - begin);
    bench_close(b);
}

static void fanout(bench *b) {
    static const size_t sizes[] = { 100, 1000, 10000, 100000 };
    if (b->width > 0) {
        fanout_of(b, b->width);
        return;
    }
    for (size_t i = 0; i < (b->quick ? 1u : 4u); i++)
        fanout_of(b, sizes[i]);
}

static void one_big(bench *b, const char *workload, const char *handler, size_t count, const char *unit) {
    char text[32], params[48];
    snprintf(text, sizeof(text), "%zu", count);
    snprintf(params, sizeof(params), "{\"count\":%zu}", count);
    bench_open(b, &bench_defaults);
    double begin = bench_now();
    bench_start(b, handler, text, workload);
    bench_finish(b, workload);
    double elapsed = bench_now() - begin;
    bench_result *r = bench_result_add(b, workload, params);
    bench_metric(r, "seconds", elapsed);
    bench_metric(r, unit, (double)count / elapsed);
    bench_close(b);
}

static void children_workload(bench *b) {
    one_big(b, "children", "Children", b->quick ? 20 : 2000, "orchestrations_per_s");
}
static void kv_workload(bench *b) {
    one_big(b, "kv", "Kv", b->quick ? 50 : 5000, "steps_per_s");
}

static void events(bench *b) {
    size_t count = b->quick ? 20 : 2000;
    double *us = malloc(count * sizeof(double));
    bench_open(b, &bench_defaults);
    start_many(b, "Waits", "e", count, 0, 0);
    dur_metrics m = { .size = sizeof(m) };
    do {
        bench_sleep(0.002);
        dur_runtime_metrics(&m, b->runtime, NULL);
    } while (m.parked < count);
    for (size_t i = 0; i < count; i++) {
        char id[64];
        bench_id(b, id, "e", i);
        double begin = bench_now();
        bench_raise(b, id);
        bench_finish(b, id);
        us[i] = (bench_now() - begin) * 1e6;
    }
    bench_result *r = bench_result_add(b, "events", "{}");
    bench_metric(r, "p50_us", bench_percentile(us, count, 50));
    bench_metric(r, "p99_us", bench_percentile(us, count, 99));
    free(us);
    bench_close(b);
}

static void queue_workload(bench *b) {
    size_t count = b->quick ? 50 : 5000;
    char text[32], params[48];
    dur_error err = DUR_ERROR_INIT;
    snprintf(text, sizeof(text), "%zu", count);
    snprintf(params, sizeof(params), "{\"messages\":%zu}", count);
    bench_open(b, NULL);
    bench_start(b, "Queue", text, "queue");
    for (size_t i = 0; i < count; i++)
        bench_check(dur_client_send(b->client, &err, "queue", "q", "m"), &err, "send");
    double begin = bench_now();
    bench_reopen_runtime(b, &bench_defaults);
    bench_finish(b, "queue");
    double elapsed = bench_now() - begin;
    bench_result *r = bench_result_add(b, "queue", params);
    bench_metric(r, "seconds", elapsed);
    bench_metric(r, "events_per_s", (double)count / elapsed);
    bench_close(b);
}

static void timers(bench *b) {
    size_t count = b->quick ? 50 : 10000;
    atomic_store(&late_count, 0);
    bench_open(b, &bench_defaults);
    double due = wall_ms() + (b->quick ? 100 : 4000);
    start_many(b, "Timer", "t", count, due, 1000.0 / (double)count);
    if (wall_ms() > due) fputs("durite-bench: timers: they were due before the last was started\n", stderr);
    for (size_t i = 0; i < count; i++) {
        char id[64];
        bench_id(b, id, "t", i);
        bench_finish(b, id);
    }
    size_t measured = atomic_load(&late_count) < STAMPS_MAX ? atomic_load(&late_count) : STAMPS_MAX;
    bench_result *r = bench_result_add(b, "timers", "{}");
    bench_metric(r, "lateness_p50_ms", bench_percentile(lateness, measured, 50));
    bench_metric(r, "lateness_p99_ms", bench_percentile(lateness, measured, 99));
    bench_close(b);
}

static void parked_with(bench *b, size_t count) {
    char params[48];
    dur_metrics m = { .size = sizeof(m) };
    snprintf(params, sizeof(params), "{\"instances\":%zu}", count);
    bench_open(b, &bench_defaults);
    uint64_t rss = bench_rss_bytes();
    start_many(b, "Waits", "p", count, 0, 0);
    do {
        bench_sleep(0.01);
        dur_runtime_metrics(&m, b->runtime, NULL);
    } while (m.orchestration_starts < count);
    uint64_t each = (bench_rss_bytes() - rss) / count;
    double begin = bench_now();
    start_many(b, NULL, "p", count, 0, 0);
    for (size_t i = 0; i < count; i++) {
        char id[64];
        bench_id(b, id, "p", i);
        bench_finish(b, id);
    }
    dur_runtime_metrics(&m, b->runtime, NULL);
    bench_result *r = bench_result_add(b, "parked", params);
    bench_metric(r, "rss_bytes_each", (double)each);
    bench_metric(r, "seconds", bench_now() - begin);
    bench_metric(r, "replays", (double)m.replays);
    bench_close(b);
}

static void parked(bench *b) {
    parked_with(b, b->quick ? 50 : 10000);
    if (!b->quick) parked_with(b, 100000);
}

static void replay(bench *b) {
    size_t count = b->quick ? 500 : 50000; /* two events each */
    char text[32], *history = NULL;
    dur_error err = DUR_ERROR_INIT;
    dur_replay_report report = { .size = sizeof(report) };
    bench_open(b, &bench_defaults);
    snprintf(text, sizeof(text), "%zu", count);
    bench_start(b, "Fan", text, "replay");
    bench_finish(b, "replay");
    bench_check(dur_client_history(&history, b->client, "replay", 0, &err), &err, "history");
    double begin = bench_now();
    bench_check(dur_replay_history(&report, bench_handlers, history, &err), &err, "replay");
    double elapsed = bench_now() - begin;
    dur_free(history);
    bench_result *r = bench_result_add(b, "replay", "{}");
    bench_metric(r, "events_per_s", (double)report.events / elapsed);
    bench_close(b);
}

static void idle(bench *b) {
    size_t count = b->quick ? 20 : 1000;
    double seconds = b->quick ? 0.2 : 10;
    char params[64];
    snprintf(params, sizeof(params), "{\"parked\":%zu,\"seconds\":%g}", count, seconds);
    dur_metrics m = { .size = sizeof(m) }, after = { .size = sizeof(after) };
    bench_open(b, &bench_defaults);
    start_many(b, "Waits", "i", count, 0, 0);
    do {
        bench_sleep(0.01);
        dur_runtime_metrics(&m, b->runtime, NULL);
    } while (m.parked < count);
    bench_sleep(0.05);
    dur_runtime_metrics(&m, b->runtime, NULL);
    double cpu = bench_cpu_ms();
    uint64_t switches = bench_switches();
    bench_counts counted = bench_count();
    bench_server server = bench_server_count(b);
    bench_sleep(seconds);
    bench_counts counted_after = bench_count();
    bench_server server_after = bench_server_count(b);
    double used = bench_cpu_ms() - cpu;
    uint64_t switched = bench_switches() - switches;
    dur_runtime_metrics(&after, b->runtime, NULL);
    bench_result *r = bench_result_add(b, "idle", params);
    bench_metric(r, "statements",
                 server.known ? server_after.statements - server.statements
                              : (double)(counted_after.statements - counted.statements));
    bench_metric(r, "commits", (double)(counted_after.commits - counted.commits));
    bench_metric(r, "rounds", (double)(after.rounds - m.rounds));
    bench_metric(r, "cpu_ms", used);
    bench_metric(r, "context_switches", (double)switched);
    bench_close(b);
}

const bench_workload bench_workloads[] = {
    { "sequential", "5 sequential activities per orchestration, so many in flight", sequential, true, false },
    { "single", "one orchestration of one activity at a time: start to result", single, true, false },
    { "step", "one orchestration of 10,000 sequential steps", step, true, false },
    { "fanout", "100 to 100,000 activities at once in one orchestration", fanout, false, false },
    { "children", "2,000 children of one orchestration", children_workload, false, false },
    { "events", "pulse to result of a waiting orchestration", events, false, false },
    { "queue", "messages received in a loop, one per generation", queue_workload, false, false },
    { "kv", "a key written in every step", kv_workload, false, false },
    { "timers", "10,000 timers due within a second: lateness", timers, false, false },
    { "parked", "10,000 and 100,000 waiting orchestrations: memory each, then an event to all", parked, false, false },
    { "replay", "cold replay of a history of 100,000 events", replay, false, false },
    { "idle", "what a node with 1,000 waiting orchestrations does in 10 seconds", idle, false, false },
    { "recover", "a process with 1,000 in flight is killed: reopening to all results", bench_recover, false, false },
    { "nodes", "1, 2 and 4 processes on one PostgreSQL, 20 in flight each", bench_nodes, false, false },
    { "fleet", "two nodes with a service each against two equal ones: start to result of one step", bench_fleet, false,
      false },
    { "soak", "load for 60 times --seconds, ended ones deleted: memory and size of the store over time", bench_soak,
      false, true },
    { "start", "start of a process to the result of its first orchestration", bench_first, false, false },
    { NULL, NULL, NULL, false, false },
};
