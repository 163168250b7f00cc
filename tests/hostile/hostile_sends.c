/*
 * hostile_sends.c: eight producers on a machine that is too small for them, some of them stopped in the middle, beside
 * starts, evictions and nodes that come and go: at rest every message that was accepted has been delivered, once.
 *
 * 240 to 400 messages per test; 10,000 with DURITE_TEST_SCALE at 100 or more (PostgreSQL: 2000, of which
 * tools/run-tests makes 100).
 */
#include "hostile.h"

#include <pthread.h>

enum { PRODUCERS = 8, MESSAGES = 4 };

static size_t sends_each(void) {
    const char *percent = getenv("DURITE_TEST_SCALE");
    bool whole = percent != NULL && strtoul(percent, NULL, 10) >= 100;
    return (whole ? 10000 : scaled(400, 240)) / PRODUCERS;
}

/* So many that each gets a few messages only: one that is passed over would be found with the next. */
static size_t receiver_count(void) {
    return sends_each() * PRODUCERS / MESSAGES;
}

/* ---- handlers ---- */

static dur_outcome one_message(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_message(ctx, "q")));
}

/* The sum of so many messages of a queue, or events. */
static dur_outcome receive(dur_ctx *ctx, const char *input) {
    char sum_text[32];
    unsigned long left = strtoul(input + 1, NULL, 10), sum = 0;
    for (; left > 0; left--)
        sum += strtoul(dur_await(input[0] == 'q' ? dur_message(ctx, "q") : dur_pulse(ctx, "q")), NULL, 10);
    snprintf(sum_text, sizeof(sum_text), "%lu", sum);
    return dur_complete(ctx, sum_text);
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("One", "1.0.0", one_message),
    DUR_ORCHESTRATION("Receive", "1.0.0", receive),
    DUR_HANDLERS_END,
};

/* ---- producers: processes, or threads where the store is one process's alone ---- */

typedef int producer_main(dur_client *client, long number);

static void name_of(char out[32], const char *what, long producer, size_t number) {
    snprintf(out, 32, "%s-%ld-%zu", what, producer, number);
}

/* A store may be too busy for a call.  The same message id is accepted once. */
static int send_once(dur_client *client, const char *instance, bool queue, const char *text, const char *message_id) {
    dur_error err = DUR_ERROR_INIT;
    int code;
    for (;;) {
        dur_message_args args = {
            .size = sizeof(args), .instance = instance, .name = "q", .data = text, .message_id = message_id
        };
        code = queue ? dur_client_send_ex(client, &args, &err) : dur_client_pulse_ex(client, &args, &err);
        if (code == DUR_OK || code == DUR_ENOTFOUND || (!err.retryable && code != DUR_EUNKNOWN)) return code;
        pause_ms(1);
    }
}

typedef struct start_race {
    dur_client *client;
    pthread_barrier_t line;
    long number;
    atomic_bool failed;
} start_race;

static void *start_all(void *data) {
    start_race *r = data;
    for (size_t i = 0; i < sends_each(); i++) {
        char id[32];
        dur_error err = DUR_ERROR_INIT;
        name_of(id, "race", r->number, i);
        (void)pthread_barrier_wait(&r->line);
        int code;
        while ((code = dur_client_start(r->client, &err, "One", "", .instance = id,
                                        .exists = DUR_START_RETURN_EXISTING)) != DUR_OK &&
               (err.retryable || code == DUR_EUNKNOWN))
            pause_ms(1);
        if (code != DUR_OK) atomic_store(&r->failed, true);
    }
    return NULL;
}

/* Starts an instance and sends to it at the same time. */
static int racer(dur_client *client, long number) {
    start_race r = { .client = client, .number = number };
    pthread_t thread;
    (void)pthread_barrier_init(&r.line, NULL, 2);
    if (pthread_create(&thread, NULL, start_all, &r) != 0) return 1;
    for (size_t i = 0; i < sends_each(); i++) {
        char id[32];
        int code = DUR_ENOTFOUND;
        name_of(id, "race", number, i);
        (void)pthread_barrier_wait(&r.line);
        while (code == DUR_ENOTFOUND && !atomic_load(&r.failed))
            code = send_once(client, id, true, "sent", id);
        if (code != DUR_OK) atomic_store(&r.failed, true);
    }
    (void)pthread_join(thread, NULL);
    (void)pthread_barrier_destroy(&r.line);
    return atomic_load(&r.failed);
}

static size_t receiver_of(long producer, size_t number) {
    return ((size_t)producer * 37 + number * 7) % receiver_count();
}

static void receiver_name(char out[32], size_t receiver) {
    snprintf(out, 32, "receiver-%zu", receiver);
}

static bool receives_queue(size_t receiver) {
    return receiver % 2 == 0;
}

/* Sends its messages to everybody in turn. */
static int producer(dur_client *client, long number) {
    for (size_t i = 0; i < sends_each(); i++) {
        char to[32], id[32], text[32];
        size_t receiver = receiver_of(number, i);
        receiver_name(to, receiver);
        name_of(id, "message", number, i);
        snprintf(text, sizeof(text), "%zu", (size_t)number * 100000 + i);
        if (send_once(client, to, receives_queue(receiver), text, id) != DUR_OK) return 1;
    }
    return 0;
}

static int in_process(const char *url, long number, producer_main *run) {
    dur_provider *store = NULL;
    dur_client *client = NULL;
    if (dur_open(&store, url, NULL) != DUR_OK || dur_client_new(&client, store, NULL) != DUR_OK) return 1;
    int code = run(client, number);
    dur_client_free(client);
    dur_provider_close(store);
    return code;
}
static int racer_process(const char *url, long number) {
    return in_process(url, number, racer);
}
static int producer_process(const char *url, long number) {
    return in_process(url, number, producer);
}

typedef struct producer_thread {
    pthread_t thread;
    dur_client *client;
    long number;
    producer_main *run;
    int code;
    atomic_bool done;
} producer_thread;

static void *run_thread(void *data) {
    producer_thread *self = data;
    self->code = self->run(self->client, self->number);
    atomic_store(&self->done, true);
    return NULL;
}

typedef struct producers {
    producer_thread threads[PRODUCERS];
    pid_t pids[PRODUCERS];
    bool ended[PRODUCERS];
} producers;

static void producers_start(world *w, producers *all, const char *role, producer_main *run) {
    memset(all, 0, sizeof(*all));
    for (long i = 0; i < PRODUCERS; i++) {
        all->threads[i] = (producer_thread){ .client = w->client, .number = i, .run = run };
        if (!on_provider("memory:"))
            all->pids[i] = node_spawn(role, w->url, i, -1);
        else if (pthread_create(&all->threads[i].thread, NULL, run_thread, &all->threads[i]) != 0)
            fail();
    }
}

static bool producer_ended(producers *all, int number) {
    producer_thread *thread = &all->threads[number];
    int status = 0;
    if (on_provider("memory:")) {
        if (!atomic_load(&thread->done)) return false;
        (void)pthread_join(thread->thread, NULL);
        status = thread->code;
    } else if (!node_gone(all->pids[number], &status)) {
        return false;
    }
    assert_int_equal(status, 0);
    return true;
}

/* True: all have ended, as they should.  Otherwise a moment passes, and one of them stands still in it. */
static bool producers_disturbed(producers *all, unsigned *seed) {
    size_t left = 0, chosen = (size_t)rand_r(seed) % PRODUCERS;
    for (int i = 0; i < PRODUCERS; i++) {
        if (!all->ended[i]) all->ended[i] = producer_ended(all, i);
        left += !all->ended[i];
    }
    bool stops = !all->ended[chosen] && !on_provider("memory:");
    if (stops) kill(all->pids[chosen], SIGSTOP);
    pause_ms(rand_r(seed) % 30);
    if (stops) kill(all->pids[chosen], SIGCONT);
    return left == 0;
}

/* ---- nodes ---- */

static atomic_bool leave;

static void on_term(int number) {
    (void)number;
    atomic_store(&leave, true);
}

/* A node that stops and starts again until it is told to leave. */
static int node_process(const char *url, long number) {
    dur_provider *store = NULL;
    unsigned seed = (unsigned)number;
    signal(SIGTERM, on_term);
    if (dur_open(&store, url, NULL) != DUR_OK) return 1;
    while (!atomic_load(&leave)) {
        dur_runtime *runtime = NULL;
        if (dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = handlers), NULL) != DUR_OK) return 1;
        for (int i = rand_r(&seed) % 30; i > 0 && !atomic_load(&leave); i--)
            pause_ms(10);
        if (dur_runtime_stop(runtime, patience_ms(), NULL) != DUR_OK) return 1;
    }
    dur_provider_close(store);
    return 0;
}

/* ---- tests ---- */

static unsigned new_seed(void) {
    const char *given = getenv("DURITE_TEST_SEED");
    unsigned seed = given != NULL ? (unsigned)strtoul(given, NULL, 10) : (unsigned)getpid() * 2654435761u;
    print_message("DURITE_TEST_SEED=%u, %zu sends\n", seed, sends_each() * PRODUCERS);
    return seed;
}

static void receivers_start(world *w) {
    size_t *quota = calloc(receiver_count(), sizeof(*quota));
    assert_non_null(quota);
    for (long p = 0; p < PRODUCERS; p++)
        for (size_t i = 0; i < sends_each(); i++)
            quota[receiver_of(p, i)]++;
    for (size_t r = 0; r < receiver_count(); r++) {
        char id[32], input[32];
        receiver_name(id, r);
        snprintf(input, sizeof(input), "%c%zu", receives_queue(r) ? 'q' : 'e', quota[r]);
        start(w, "Receive", input, id);
    }
    for (size_t r = 0; r < receiver_count(); r++) {
        char id[32];
        receiver_name(id, r);
        if (quota[r] > 0) until_history(w, id, "Subscribed", 1);
    }
    free(quota);
}

static void expect_all(world *w) {
    for (size_t r = 0; r < receiver_count(); r++) {
        char id[32], sum_text[32];
        size_t sum = 0;
        receiver_name(id, r);
        for (long p = 0; p < PRODUCERS; p++)
            for (size_t i = 0; i < sends_each(); i++)
                if (receiver_of(p, i) == r) sum += (size_t)p * 100000 + i;
        snprintf(sum_text, sizeof(sum_text), "%zu", sum);
        expect(w, id, sum_text);
    }
}

static void fault_h01_all_sends_that_race_with_starts_are_delivered(void **state) {
    world *w = *state;
    producers all;
    unsigned seed = new_seed();
    RUN(w, handlers);
    producers_start(w, &all, "racer", racer);
    while (!producers_disturbed(&all, &seed)) {
    }
    for (size_t i = 0; i < sends_each() * PRODUCERS; i++) {
        char id[32];
        name_of(id, "race", (long)(i % PRODUCERS), i / PRODUCERS);
        expect(w, id, "sent");
    }
}

static void fault_h02_all_sends_beside_evictions_are_delivered(void **state) {
    world *w = *state;
    producers all;
    unsigned seed = new_seed();
    RUN(w, handlers, .parked_max = (uint32_t)receiver_count() / 20);
    receivers_start(w);
    producers_start(w, &all, "producer", producer);
    while (!producers_disturbed(&all, &seed)) {
    }
    expect_all(w);
}

static void fault_h02_all_sends_beside_nodes_that_stop_are_delivered(void **state) {
    world *w = *state;
    producers all;
    unsigned seed = new_seed();
    RUN(w, handlers);
    receivers_start(w);
    producers_start(w, &all, "producer", producer);
    for (bool done = false; !done;) {
        uint64_t until_ms = now_ms() + (uint64_t)(rand_r(&seed) % 300);
        while (!done && now_ms() < until_ms)
            done = producers_disturbed(&all, &seed);
        world_stop(w);
        RUN(w, handlers);
    }
    expect_all(w);
}

static void fault_h02_all_sends_to_several_nodes_that_stop_are_delivered(void **state) {
    world *w = *state;
    producers all;
    if (on_provider("memory:")) skip();
    unsigned seed = new_seed();
    RUN(w, handlers, .parked_max = (uint32_t)receiver_count() / 4);
    receivers_start(w);
    pid_t nodes[2] = { node_spawn("node", w->url, (long)seed, -1), node_spawn("node", w->url, (long)seed + 1, -1) };
    producers_start(w, &all, "producer", producer);
    while (!producers_disturbed(&all, &seed)) {
    }
    for (int i = 0; i < 2; i++) {
        kill(nodes[i], SIGTERM);
        assert_int_equal(node_wait(nodes[i]), 0);
    }
    expect_all(w);
}

static const hostile_role roles[] = { { "racer", racer_process },
                                      { "producer", producer_process },
                                      { "node", node_process } };
static const struct CMUnitTest tests[] = {
    TEST(fault_h01_all_sends_that_race_with_starts_are_delivered),
    TEST(fault_h02_all_sends_beside_evictions_are_delivered),
    TEST(fault_h02_all_sends_beside_nodes_that_stop_are_delivered),
    TEST(fault_h02_all_sends_to_several_nodes_that_stop_are_delivered),
};

HOSTILE_MAIN(roles, tests)
