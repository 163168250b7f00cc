/*
 * hostile_full.c: a node whose worker slots are full keeps no work from the others.
 */
#include "hostile.h"

#define SLOTS_MAX 64 /* worker_concurrency, unless it is given */

static atomic_uint begun;
static atomic_bool released; /* what holds a slot may end */

/* Holds its slot until the test lets it go, whatever it is told. */
static dur_outcome holds(dur_act *act, const char *input) {
    atomic_fetch_add(&begun, 1);
    while (!atomic_load(&released))
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    return dur_act_complete(act, input);
}

static dur_outcome nod(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome fills(dur_ctx *ctx, const char *count) {
    dur_future *slots[SLOTS_MAX];
    size_t n = (size_t)strtoul(count, NULL, 10);
    for (size_t i = 0; i < n; i++)
        slots[i] = dur_activity(ctx, "Holds", "x");
    for (size_t i = 0; i < n; i++)
        (void)dur_await(slots[i]);
    return dur_complete(ctx, "x");
}

static dur_outcome brief(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Nod", input)));
}

static dur_outcome brief_here(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "NodHere", input)));
}

static const dur_handler here[] = {
    DUR_ACTIVITY("Holds", holds),
    DUR_ACTIVITY("Nod", nod),
    DUR_ACTIVITY("NodHere", nod),
    DUR_ORCHESTRATION("Fills", "1.0.0", fills),
    DUR_ORCHESTRATION("Brief", "1.0.0", brief),
    DUR_ORCHESTRATION("BriefHere", "1.0.0", brief_here),
    DUR_HANDLERS_END,
};
static const dur_handler there[] = {
    DUR_ACTIVITY("Nod", nod),
    DUR_ORCHESTRATION("Brief", "1.0.0", brief),
    DUR_HANDLERS_END,
};

/* ---- the node that has nothing to do, until the pipe is closed ---- */

static int idle_node(const char *url, long until) {
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    char byte;
    if (dur_open(&store, url, NULL) != DUR_OK) return 10;
    if (dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = there), NULL) != DUR_OK) return 11;
    while (read((int)until, &byte, 1) > 0)
        continue;
    if (dur_runtime_stop(runtime, patience_ms(), NULL) != DUR_OK) return 12;
    dur_provider_close(store);
    return 0;
}

static const hostile_role roles[] = { { "idle", idle_node } };

typedef struct peer {
    pid_t pid;
    int ends[2];
} peer;

static void peer_begin(peer *p, world *w) {
    assert_int_equal(pipe2(p->ends, O_CLOEXEC), 0);
    p->pid = node_spawn("idle", w->url, p->ends[0], p->ends[0]);
}

static void peer_end(peer *p) {
    close(p->ends[0]);
    close(p->ends[1]);
    int status = node_wait(p->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- helpers ---- */

static void start_many(world *w, const char *name, const char *kind, const char *input, size_t count) {
    char id[32];
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "%s-%zu", kind, i);
        start(w, name, input, id);
    }
}

static void expect_many(world *w, const char *kind, const char *result, size_t count) {
    char id[32];
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "%s-%zu", kind, i);
        expect(w, id, result);
    }
}

static void until(const atomic_uint *counter, unsigned value) {
    for (uint64_t end_ms = now_ms() + patience_ms(); atomic_load(counter) < value; pause_ms(1))
        if (now_ms() > end_ms) fail_msg("%u of %u", atomic_load(counter), value);
}

static dur_metrics metrics_of(world *w) {
    dur_metrics metrics = { .size = sizeof(metrics) };
    OK(w, dur_runtime_metrics(&metrics, w->runtime, &w->err));
    return metrics;
}

/* ---- what the log says ---- */

static atomic_uint said_long, said_overdue, named_overdue;

static void listen(void *data, const dur_log_record *record) {
    (void)data;
    if (strstr(record->message, "takes no more work") != NULL && strstr(record->message, "Holds (") != NULL)
        atomic_fetch_add(&said_long, 1);
    if (strstr(record->message, "no activity begins here") != NULL && strstr(record->message, "Holds (") != NULL)
        atomic_fetch_add(&said_overdue, 1);
    if (record->level == DUR_LOG_ERROR && strstr(record->message, "keep their worker slots") != NULL)
        atomic_fetch_add(&named_overdue, (unsigned)occurrences(record->message, "Holds ("));
}

static void begin(void) {
    atomic_store(&begun, 0);
    atomic_store(&released, false);
    atomic_store(&said_long, 0);
    atomic_store(&said_overdue, 0);
    atomic_store(&named_overdue, 0);
    dur_log_set_sink(listen, NULL, DUR_LOG_INFO);
}

static void end(world *w) {
    atomic_store(&released, true);
    world_stop(w);
    dur_log_set_sink(NULL, NULL, DUR_LOG_WARN);
}

/* ---- H154 ---- */

static void fault_h154_a_full_node_gives_what_waits_to_one_that_comes(void **state) {
    world *w = *state;
    peer p;
    if (on_provider("memory:")) skip(); /* one process */
    begin();
    RUN(w, here);
    start(w, "Fills", "64", "long");
    until(&begun, 64);
    start_many(w, "Brief", "brief", "x", 60);
    peer_begin(&p, w);
    expect_many(w, "brief", "x", 60);
    assert_int_equal(atomic_load(&begun), 64);
    atomic_store(&released, true);
    expect(w, "long", "x");
    end(w);
    peer_end(&p);
}

static void fault_h154_a_full_node_leaves_work_to_one_that_is_there(void **state) {
    world *w = *state;
    peer p;
    if (on_provider("memory:")) skip();
    begin();
    peer_begin(&p, w);
    start(w, "Brief", "x", "first");
    expect(w, "first", "x"); /* it runs */
    RUN(w, here, .worker_concurrency = 2);
    start(w, "Fills", "2", "long");
    until(&begun, 2);
    for (size_t i = 0; i < 3; i++) {
        char kind[16];
        snprintf(kind, sizeof(kind), "brief%zu", i);
        start_many(w, "Brief", kind, "x", 40);
        expect_many(w, kind, "x", 40);
    }
    atomic_store(&released, true);
    expect(w, "long", "x");
    end(w);
    peer_end(&p);
}

/* What only the full node can run waits for it, and is not taken and given back all the time. */
static void fault_h154_what_only_the_full_node_has_waits_for_it(void **state) {
    world *w = *state;
    peer p;
    if (on_provider("memory:")) skip();
    begin();
    peer_begin(&p, w);
    start(w, "Brief", "x", "first");
    expect(w, "first", "x");
    RUN(w, here, .worker_concurrency = 2);
    start(w, "Fills", "2", "long");
    until(&begun, 2);
    start_many(w, "BriefHere", "here", "x", 40);
    until(&said_long, 1); /* a second of it, at least */
    assert_true(metrics_of(w).work_items_fetched <= 40);
    atomic_store(&released, true);
    expect(w, "long", "x");
    expect_many(w, "here", "x", 40);
    assert_int_equal(atomic_load(&said_long), 1);
    end(w);
    peer_end(&p);
}

/* ---- H155 ---- */

/* It was cancelled and does not end: it is abandoned, or keeps its slot. */
static void hang(world *w, const char *instance) {
    unsigned before = atomic_load(&begun);
    uint64_t late = metrics_of(w).activity_abandoned;
    start(w, "Fills", "1", instance);
    until(&begun, before + 1);
    OK(w, dur_client_cancel(w->client, instance, "enough", &w->err));
    expect_failure(w, instance, DUR_ECANCELLED, "enough");
    for (uint64_t end_ms = now_ms() + patience_ms(); metrics_of(w).activity_abandoned == late; pause_ms(1))
        if (now_ms() > end_ms) fail_msg("%s is not counted", instance);
}

static void fill_for_good(world *w) {
    hang(w, "replaced");
    hang(w, "first-slot");
    hang(w, "second-slot");
    assert_int_equal(atomic_load(&begun), 3);
}

static void fault_h155_a_node_without_slots_leaves_work_to_others(void **state) {
    world *w = *state;
    peer p;
    if (on_provider("memory:")) skip();
    begin();
    peer_begin(&p, w);
    start(w, "Brief", "x", "first");
    expect(w, "first", "x");
    RUN(w, here, .worker_concurrency = 2, .abandoned_max = 1, .activity_cancel_grace_ms = 20);
    fill_for_good(w);
    start_many(w, "Brief", "brief", "x", 60);
    expect_many(w, "brief", "x", 60);
    end(w);
    peer_end(&p);
}

/* Also alone: who looks at the log learns why nothing goes on. */
static void fault_h155_each_that_does_not_end_is_named(void **state) {
    world *w = *state;
    NEEDS_THREADS("an activity that does not end is the test's own");
    begin();
    RUN(w, here, .worker_concurrency = 2, .abandoned_max = 1, .activity_cancel_grace_ms = 20);
    fill_for_good(w);
    until(&named_overdue, 2);
    until(&said_overdue, 1);
    assert_int_equal(metrics_of(w).activity_abandoned, 3);
    end(w);
    assert_int_equal(atomic_load(&named_overdue), 2);
    assert_int_equal(atomic_load(&said_overdue), 1);
}

static const struct CMUnitTest tests[] = {
    TEST(fault_h154_a_full_node_gives_what_waits_to_one_that_comes),
    TEST(fault_h154_a_full_node_leaves_work_to_one_that_is_there),
    TEST(fault_h154_what_only_the_full_node_has_waits_for_it),
    TEST(fault_h155_a_node_without_slots_leaves_work_to_others),
    TEST(fault_h155_each_that_does_not_end_is_named),
};

HOSTILE_MAIN(roles, tests)
