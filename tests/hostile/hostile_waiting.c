/*
 * hostile_waiting.c: a message that was accepted is looked at: whatever its sender raced with, however late it was
 * committed, and whichever server has taken the place of the one that the node knew.
 */
#include "hostile.h"

#include <pthread.h>
#ifdef HAVE_LIBPQ
#include <durite/postgres.h>
#include <libpq-fe.h>
#endif

/* ---- handlers ---- */

static dur_outcome one_message(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_dequeue(ctx, "q")));
}

static dur_outcome one_event(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_event(ctx, "q")));
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("Message", "1.0.0", one_message),
    DUR_ORCHESTRATION("Event", "1.0.0", one_event),
    DUR_HANDLERS_END,
};

/* ---- H1: a start and a send at the same time, away from the node that runs the handler ---- */

typedef struct race {
    dur_client *client;
    long number;
    pthread_barrier_t line;
    size_t count;
    atomic_bool failed;
} race;

static void name_of(char out[64], long racer_number, size_t number) {
    snprintf(out, 64, "race-%ld-%zu", racer_number, number);
}

static void *starter(void *data) {
    race *r = data;
    dur_error err = DUR_ERROR_INIT;
    for (size_t i = 0; i < r->count; i++) {
        char id[64];
        name_of(id, r->number, i);
        (void)pthread_barrier_wait(&r->line);
        if (dur_client_start(r->client, &err, i % 2 == 0 ? "Message" : "Event", "", .instance = id) != DUR_OK)
            atomic_store(&r->failed, true);
    }
    return NULL;
}

/* Sends until it is accepted: from then on the message is the store's. */
static void *sender(void *data) {
    race *r = data;
    dur_error err = DUR_ERROR_INIT;
    for (size_t i = 0; i < r->count; i++) {
        char id[64];
        int code = DUR_ENOTFOUND;
        name_of(id, r->number, i);
        (void)pthread_barrier_wait(&r->line);
        while (code == DUR_ENOTFOUND && !atomic_load(&r->failed))
            code = i % 2 == 0 ? dur_client_enqueue(r->client, &err, id, "q", "sent")
                              : dur_client_raise(r->client, &err, id, "q", "sent");
        if (code != DUR_OK) atomic_store(&r->failed, true);
    }
    return NULL;
}

static size_t race_count(void) {
    return scaled(1000, 300);
}

static int race_on(dur_client *client, long number) {
    race r = { .client = client, .number = number, .count = race_count() };
    pthread_t thread;
    (void)pthread_barrier_init(&r.line, NULL, 2);
    if (pthread_create(&thread, NULL, sender, &r) != 0) abort();
    (void)starter(&r);
    (void)pthread_join(thread, NULL);
    (void)pthread_barrier_destroy(&r.line);
    return atomic_load(&r.failed);
}

static int racer(const char *url, long number) {
    dur_provider *store = NULL;
    dur_client *client = NULL;
    if (dur_open(&store, url, NULL) != DUR_OK || dur_client_new(&client, store, NULL) != DUR_OK) return 1;
    int code = race_on(client, number);
    dur_client_free(client);
    dur_provider_close(store);
    return code;
}

static void fault_h01_a_send_that_races_with_a_start_is_delivered(void **state) {
    enum { RACERS = 3 };
    world *w = *state;
    pid_t racers[RACERS];
    RUN(w, handlers);
    for (long i = 0; i < RACERS; i++) {
        if (on_provider("memory:")) /* a store of this process alone */
            assert_int_equal(race_on(w->client, i), 0);
        else
            racers[i] = node_spawn("racer", w->url, i, -1);
    }
    for (long i = 0; i < RACERS && !on_provider("memory:"); i++)
        assert_int_equal(node_wait(racers[i]), 0);
    for (size_t i = 0; i < RACERS * race_count(); i++) {
        char id[64];
        name_of(id, (long)(i % RACERS), i / RACERS);
        expect(w, id, "sent");
    }
}

/* ---- H2: a message that is on its way while its instance is given up ---- */

#ifdef HAVE_LIBPQ
static PGconn *connection(const world *w) {
    char url[1024];
    snprintf(url, sizeof(url), "%s", w->url);
    *strstr(url, "schema=") = '\0'; /* ours; not libpq's */
    url[strlen(url) - 1] = '\0';
    PGconn *db = PQconnectdb(url);
    if (PQstatus(db) != CONNECTION_OK) fail_msg("%s", PQerrorMessage(db));
    return db;
}

static void sql(PGconn *db, const char *text) {
    PGresult *result = PQexec(db, text);
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) fail_msg("%s: %s", text, PQerrorMessage(db));
    PQclear(result);
}

typedef struct late {
    PGconn *db;
    long pause_ms;
} late;

static void *commit_late(void *data) {
    const late *l = data;
    pause_ms(l->pause_ms);
    sql(l->db, "COMMIT");
    return NULL;
}

/* Until the node has looked behind the message that is not committed yet: another one, sent later, has arrived. */
static void pass_by(world *w, int round) {
    char id[32];
    snprintf(id, sizeof(id), "other-%d", round);
    start(w, "Message", "", id);
    OK(w, dur_client_enqueue(w->client, &w->err, id, "q", "passed"));
    expect(w, id, "passed");
}

/* Sends to an instance that waits, and commits only when the node is about to give the instance up. */
static void send_late(world *w, PGconn *db, int round, bool evicts) {
    static const long pauses_ms[] = { 0, 60, 500 }; /* the last is longer than a node waits for a row */
    char id[32];
    pthread_t thread;
    late l = { .db = db, .pause_ms = pauses_ms[round / 2 % 3] };
    snprintf(id, sizeof(id), "late-%d", round);
    RUN(w, handlers, .parked_max = evicts ? 1 : 0);
    start(w, round % 2 == 0 ? "Message" : "Event", "", id);
    until_history(w, id, "Subscribed", 1);
    dur_message_args args = { .size = sizeof(args), .instance = id, .name = "q", .data = "late" };
    sql(db, "BEGIN");
    OK(w, round % 2 == 0 ? dur_postgres_enqueue(w->store, db, &args, &w->err)
                         : dur_postgres_raise(w->store, db, &args, &w->err));
    pass_by(w, round); /* of two that wait, one is evicted */
    assert_int_equal(pthread_create(&thread, NULL, commit_late, &l), 0);
    if (!evicts) world_stop(w); /* gives the instance up, and waits for whoever has its row */
    (void)pthread_join(thread, NULL);
    if (!evicts) RUN(w, handlers);
    expect(w, id, "late");
    world_stop(w);
}

static void send_all_late(world *w, bool evicts) {
    if (!on_provider("postgres")) skip(); /* no other store lets a message be older than its commit */
    PGconn *db = connection(w);
    for (int round = 0; round < (int)scaled(24, 6); round++)
        send_late(w, db, round, evicts);
    PQfinish(db);
}

static void fault_h02_what_is_committed_while_its_node_stops_is_delivered(void **state) {
    send_all_late(*state, false);
}
static void fault_h02_what_is_committed_while_its_instance_is_evicted_is_delivered(void **state) {
    send_all_late(*state, true);
}
#else
static void fault_h02_what_is_committed_while_its_node_stops_is_delivered(void **state) {
    (void)state;
    skip();
}
static void fault_h02_what_is_committed_while_its_instance_is_evicted_is_delivered(void **state) {
    (void)state;
    skip();
}
#endif

static const hostile_role roles[] = { { "racer", racer } };
static const struct CMUnitTest tests[] = {
    TEST(fault_h01_a_send_that_races_with_a_start_is_delivered),
    TEST(fault_h02_what_is_committed_while_its_node_stops_is_delivered),
    TEST(fault_h02_what_is_committed_while_its_instance_is_evicted_is_delivered),
};

HOSTILE_MAIN(roles, tests)
