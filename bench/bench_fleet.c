/*
 * bench_fleet.c: two nodes on one store: what it costs that they have different handlers.
 *
 * One orchestration of one step at a time, of one service and the other in turn, started by a client of a third handle:
 * once where either node has both services, once where each has its own.  Both ways alternate on the same store, so
 * that a machine that becomes busy slows down both.
 */
#include "bench.h"
#include <stdlib.h>

enum { PASSES = 4, PER_PASS_MAX = 1000, PER_PASS_LEAST = 20 };

static dur_outcome nod(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome red(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "RedStep", input)));
}

static dur_outcome blue(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "BlueStep", input)));
}

#define RED DUR_ACTIVITY("RedStep", nod), DUR_ORCHESTRATION("Red", "1.0.0", red)
#define BLUE DUR_ACTIVITY("BlueStep", nod), DUR_ORCHESTRATION("Blue", "1.0.0", blue)
static const dur_handler red_handlers[] = { RED, DUR_HANDLERS_END };
static const dur_handler blue_handlers[] = { BLUE, DUR_HANDLERS_END };
static const dur_handler all_handlers[] = { RED, BLUE, DUR_HANDLERS_END };

typedef struct node {
    dur_provider *store;
    dur_runtime *runtime;
} node;

static void node_start(bench *b, node *self, const dur_handler *handlers) {
    dur_error err = DUR_ERROR_INIT;
    dur_runtime_options options = bench_defaults;
    bench_check(dur_open(&self->store, b->store_url, &err), &err, "open");
    options.store = self->store;
    options.handlers = handlers;
    bench_check(dur_runtime_start(&self->runtime, &options, &err), &err, "start");
}

static void node_stop(node *self) {
    dur_runtime_stop(self->runtime, DUR_SECONDS(10), NULL);
    dur_provider_close(self->store);
}

typedef struct latencies {
    double us[PASSES * PER_PASS_MAX];
    size_t count;
} latencies;

static void pass(bench *b, bool services, latencies *out) {
    static uint64_t serial;
    node nodes[2];
    char id[64];
    size_t most = out->count + PER_PASS_MAX, least = out->count + PER_PASS_LEAST;
    node_start(b, &nodes[0], services ? red_handlers : all_handlers);
    node_start(b, &nodes[1], services ? blue_handlers : all_handlers);
    for (int i = -PER_PASS_LEAST; i < 0; i++) { /* not measured: they have just begun */
        bench_id(b, id, "w", serial++);
        bench_start(b, i % 2 == 0 ? "Red" : "Blue", "x", id);
        bench_finish(b, id);
    }
    double until = bench_now() + b->seconds / (2 * PASSES);
    while (out->count < (b->quick ? least : most) && (out->count < least || bench_now() < until)) {
        bench_id(b, id, "f", serial++);
        double begin = bench_now();
        bench_start(b, out->count % 2 == 0 ? "Red" : "Blue", "x", id);
        bench_finish(b, id);
        out->us[out->count++] = (bench_now() - begin) * 1e6;
    }
    node_stop(&nodes[0]);
    node_stop(&nodes[1]);
}

void bench_fleet(bench *b) {
    static latencies equal, services;
    equal.count = services.count = 0;
    bench_open(b, NULL);
    for (int i = 0; i < (b->quick ? 1 : PASSES); i++) {
        pass(b, i % 2 != 0, i % 2 != 0 ? &services : &equal); /* neither is always the first */
        pass(b, i % 2 == 0, i % 2 == 0 ? &services : &equal);
    }
    double equal_p50 = bench_percentile(equal.us, equal.count, 50);
    double equal_p99 = bench_percentile(equal.us, equal.count, 99);
    double p50 = bench_percentile(services.us, services.count, 50);
    double p99 = bench_percentile(services.us, services.count, 99);
    bench_result *r = bench_result_add(b, "fleet", "{\"nodes\":2}");
    bench_metric(r, "equal_p50_us", equal_p50);
    bench_metric(r, "equal_p99_us", equal_p99);
    bench_metric(r, "services_p50_us", p50);
    bench_metric(r, "services_p99_us", p99);
    bench_metric(r, "ratio_p50", p50 / equal_p50);
    bench_metric(r, "ratio_p99", p99 / equal_p99);
    bench_close(b);
}
