/*
 * hostile_waiting.c: a message that was accepted is looked at: whatever its sender raced with, however late it was
 * committed, and whichever server has taken the place of the one that the node knew.
 */
#include "neighbour.h"

#include <durite/sys/store.h>
#include <pthread.h>
#ifdef HAVE_LIBPQ
#include <durite/postgres.h>
#endif

/* ---- handlers ---- */

static dur_outcome one_message(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_message(ctx, "q")));
}

static dur_outcome one_event(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "q")));
}

static dur_outcome two_messages(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_message(ctx, "q"));
    return dur_complete(ctx, dur_await(dur_message(ctx, "q")));
}

static atomic_uint gates_reached;
static atomic_bool gate_open;

static dur_outcome gate(dur_act *act, const char *input) {
    atomic_fetch_add(&gates_reached, 1);
    while (!atomic_load(&gate_open) && !dur_act_cancelled(act))
        pause_ms(1);
    return dur_act_complete(act, input);
}

static dur_outcome through_gate(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Gate", input)));
}

/* Which messages it got, once it was let go. */
static dur_outcome all_messages(dur_ctx *ctx, const char *input) {
    const char *all = input, *message;
    dur_await(dur_pulse(ctx, "Go"));
    do {
        message = dur_await(dur_message(ctx, "q"));
        all = dur_format(ctx, "%s%s ", all, message);
    } while (strcmp(message, "end") != 0);
    return dur_complete(ctx, all);
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("All", "1.0.0", all_messages),
    DUR_ORCHESTRATION("Message", "1.0.0", one_message),
    DUR_ORCHESTRATION("Event", "1.0.0", one_event),
    DUR_ORCHESTRATION("Two", "1.0.0", two_messages),
    DUR_ORCHESTRATION("Through", "1.0.0", through_gate),
    DUR_ACTIVITY("Gate", gate),
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
            code = i % 2 == 0 ? dur_client_send(r->client, &err, id, "q", "sent")
                              : dur_client_pulse(r->client, &err, id, "q", "sent");
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
    OK(w, dur_client_send(w->client, &w->err, id, "q", "passed"));
    expect(w, id, "passed");
}

/* So many others wait that the node gives up the one that has waited longest. */
static void crowd(world *w, int round) {
    for (int i = 0; i < 2; i++) {
        char id[32];
        snprintf(id, sizeof(id), "crowd-%d-%d", round, i);
        start(w, "Message", "", id);
        until_history(w, id, "Subscribed", 1);
    }
}

/* Sends to an instance that waits, and commits only when the node is about to give the instance up. */
static void send_late(world *w, PGconn *db, int round, bool evicts) {
    static const long pauses_ms[] = { 0, 60, 500 }; /* the last is longer than a node waits for a row */
    char id[32];
    pthread_t thread;
    late l = { .db = db, .pause_ms = pauses_ms[round / 2 % 3] };
    snprintf(id, sizeof(id), "late-%d", round);
    RUN(w, handlers, .parked_max = evicts ? 2 : 0);
    start(w, round % 2 == 0 ? "Message" : "Event", "", id);
    until_history(w, id, "Subscribed", 1);
    dur_message_args args = { .size = sizeof(args), .instance = id, .name = "q", .data = "late" };
    sql(db, "BEGIN");
    OK(w, round % 2 == 0 ? dur_postgres_send(w->store, db, &args, &w->err)
                         : dur_postgres_pulse(w->store, db, &args, &w->err));
    pass_by(w, round);
    assert_int_equal(pthread_create(&thread, NULL, commit_late, &l), 0);
    if (evicts)
        crowd(w, round);
    else
        world_stop(w); /* gives the instance up, and waits for whoever has its row */
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

/* ---- H4: a server takes the place of another, and knows less ---- */

/* A server of the test's own: two data folders, of which one is served at a time, at the same place. */
typedef struct server {
    char base[128];
} server;
static server own;

static int server_teardown(void **state) {
    (void)state;
    char command[1024];
    const char *as = getenv("DURITE_TEST_POSTGRES_AS"), *bin = getenv("DURITE_TEST_POSTGRES_BIN");
    if (own.base[0] == '\0') return 0;
    snprintf(command, sizeof(command),
             "cd '%s'; for folder in a b; do [ ! -f $folder/postmaster.pid ] || %s '%s/pg_ctl' -D '%s'/$folder -m"
             " immediate -w stop; done >/dev/null 2>&1; rm -rf '%s'",
             own.base, as != NULL ? as : "", bin, own.base, own.base);
    return system(command);
}

__attribute__((format(printf, 1, 2))) static void shell(const char *format, ...) {
    char command[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(command, sizeof(command), format, args);
    va_end(args);
    if (system(command) != 0) fail_msg("%s", command);
}

static void server_do(const server *s, char folder, const char *what) {
    const char *as = getenv("DURITE_TEST_POSTGRES_AS");
    shell("cd '%s' && %s '%s/pg_ctl' -D '%s/%c' -l '%s/log' -w %s >/dev/null 2>&1", s->base, as != NULL ? as : "",
          getenv("DURITE_TEST_POSTGRES_BIN"), s->base, folder, s->base, what);
}

static void server_new(server *s) {
    const char *as = getenv("DURITE_TEST_POSTGRES_AS");
    temporary_path(s->base, sizeof(s->base), "durite-h4.XXXXXX");
    if (mkdtemp(s->base) == NULL) fail_msg("%s", s->base);
    shell("chown --reference=\"$DURITE_TEST_POSTGRES_DATA\" '%s' && chmod 755 '%s' && cd '%s' && %s"
          " \"$DURITE_TEST_POSTGRES_BIN/initdb\" -D '%s/a' -U durite --auth=trust --no-sync -E UTF8 --locale=C "
          ">/dev/null && printf \"listen_addresses = "
          "''\\nunix_socket_directories = '%s'\\nfsync = off\\nshared_buffers = 16MB\\n\" >>'%s/a/postgresql.conf'",
          s->base, s->base, s->base, as != NULL ? as : "", s->base, s->base, s->base);
    server_do(s, 'a', "start");
}

/* While the server is away a call may fail for a passing reason. */
#define IN_THE_END(w, call)                                                                                            \
    do {                                                                                                               \
        int code_;                                                                                                     \
        uint64_t until_ = now_ms() + patience_ms();                                                                    \
        while ((code_ = (call)) != DUR_OK && (w)->err.retryable && now_ms() < until_)                                  \
            pause_ms(5);                                                                                               \
        if (code_ != DUR_OK) fail_msg("%s: %s: %s", #call, dur_code_name(code_), (w)->err.message);                    \
    } while (0)

static void send_to(world *w, const char *id, const char *text) {
    IN_THE_END(w, dur_client_send(w->client, &w->err, id, "q", text));
}

static void expect_in_the_end(world *w, const char *id, const char *expected) {
    char *result = NULL;
    IN_THE_END(w, dur_client_result(&result, w->client, id, patience_ms(), &w->err));
    assert_string_equal(result, expected);
    dur_free(result);
}

static void begin_four(world *w) {
    start(w, "Message", "", "ended");
    start(w, "Two", "", "ahead");
    start(w, "Message", "", "same");
    start(w, "Through", "through", "works");
    until_history(w, "ended", "Subscribed", 1);
    until_history(w, "ahead", "Subscribed", 1);
    until_history(w, "same", "Subscribed", 1);
    while (atomic_load(&gates_reached) == 0)
        pause_ms(1);
}

/* What the other server will know nothing of.  Behind it the node is idle. */
static void go_on(world *w) {
    send_to(w, "ended", "first");
    expect_in_the_end(w, "ended", "first");
    send_to(w, "ahead", "first");
    until_history(w, "ahead", "Subscribed", 2);
    atomic_store(&gate_open, true);
    expect_in_the_end(w, "works", "through");
    IN_THE_END(w, dur_client_start(w->client, &w->err, "Message", "", .instance = "born"));
    until_history(w, "born", "Subscribed", 1);
}

static void as_if_nothing_had_been(world *w) {
    send_to(w, "ended", "again");
    expect_in_the_end(w, "ended", "again");
    send_to(w, "ahead", "again");
    send_to(w, "ahead", "and on");
    expect_in_the_end(w, "ahead", "and on");
    send_to(w, "same", "same");
    expect_in_the_end(w, "same", "same");
    expect_in_the_end(w, "works", "through");
    IN_THE_END(w, dur_client_start(w->client, &w->err, "Message", "", .instance = "born"));
    send_to(w, "born", "anew");
    expect_in_the_end(w, "born", "anew");
}

/* url: what the node knows of the server. */
static void lose_and_go_on(const char *url) {
    world w = { .store = NULL };
    atomic_store(&gates_reached, 0);
    atomic_store(&gate_open, false);
    snprintf(w.url, sizeof(w.url), "%s", url);
    IN_THE_END(&w, dur_open(&w.store, w.url, &w.err));
    OK(&w, dur_client_new(&w.client, w.store, &w.err));
    RUN(&w, handlers, .worker_concurrency = 2);
    begin_four(&w);
    server_do(&own, 'a', "-m fast stop");
    shell("cp -a '%s/a' '%s/b'", own.base, own.base);
    server_do(&own, 'a', "start");
    go_on(&w);
    server_do(&own, 'a', "-m fast stop");
    server_do(&own, 'b', "start");
    as_if_nothing_had_been(&w);
    world_stop(&w);
    dur_client_free(w.client);
    dur_provider_close(w.store);
}

static void fault_h04_what_a_node_had_done_on_a_server_that_is_lost_is_done_again(void **state) {
    char url[256];
    (void)state;
    if (!on_provider("postgres") || getenv("DURITE_TEST_POSTGRES_BIN") == NULL) skip();
    server_new(&own);
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&schema=h4", own.base);
    lose_and_go_on(url);
}

/*
 * The node was handed a message, and has not recorded it, when its server is replaced by one that does not know of it:
 * nothing else was lost.  The sender, who may not know what became of the call, sends it again.
 */
static void fault_h179_a_message_that_a_lost_server_had_is_received_once(void **state) {
    world w = { .store = NULL };
    (void)state;
    if (!on_provider("postgres") || getenv("DURITE_TEST_POSTGRES_BIN") == NULL) skip();
    server_new(&own);
    snprintf(w.url, sizeof(w.url), "postgres:///postgres?host=%s&user=durite&schema=h179", own.base);
    IN_THE_END(&w, dur_open(&w.store, w.url, &w.err));
    OK(&w, dur_client_new(&w.client, w.store, &w.err));
    RUN(&w, handlers, .threads = DUR_THREADS_NONE);
    start(&w, "All", "", "i");
    while (dur_runtime_next_ms(w.runtime) < 900) /* behind a beat */
        OK(&w, dur_runtime_run_until_idle(w.runtime, patience_ms(), &w.err));
    shell("cp -a '%s/a' '%s/b' && rm '%s/b/postmaster.pid'", own.base, own.base, own.base);
    IN_THE_END(&w, dur_client_send(w.client, &w.err, "i", "q", "once", .message_id = "once"));
    OK(&w, dur_runtime_run_until_idle(w.runtime, patience_ms(), &w.err));
    server_do(&own, 'a', "-m immediate stop");
    shell("touch '%s/b/standby.signal' && chown --reference='%s/b' '%s/b/standby.signal'", own.base, own.base,
          own.base);
    server_do(&own, 'b', "start");
    server_do(&own, 'b', "promote");
    IN_THE_END(&w, dur_client_send(w.client, &w.err, "i", "q", "once", .message_id = "once"));
    IN_THE_END(&w, dur_client_pulse(w.client, &w.err, "i", "Go", ""));
    IN_THE_END(&w, dur_client_send(w.client, &w.err, "i", "q", "end"));
    expect_in_the_end(&w, "i", "once end ");
    world_stop(&w);
    dur_client_free(w.client);
    dur_provider_close(w.store);
}

/* There the node's connections outlive the server. */
static void fault_h04_what_was_done_on_a_server_that_is_lost_is_done_again_behind_a_pooler(void **state) {
    static bouncer b;
    char url[256];
    (void)state;
    if (!on_provider("postgres") || getenv("DURITE_TEST_POSTGRES_BIN") == NULL) skip();
    server_new(&own);
    snprintf(url, sizeof(url), "host=%s", own.base);
    if (!bouncer_start_at(&b, url, "durite", "pool_mode = transaction\nserver_login_retry = 1")) skip();
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&schema=h4&pooler=transaction", b.dir);
    lose_and_go_on(url);
    bouncer_stop(&b);
}
#else
static int server_teardown(void **state) {
    (void)state;
    return 0;
}
static void fault_h02_what_is_committed_while_its_node_stops_is_delivered(void **state) {
    (void)state;
    skip();
}
static void fault_h02_what_is_committed_while_its_instance_is_evicted_is_delivered(void **state) {
    (void)state;
    skip();
}
static void fault_h04_what_a_node_had_done_on_a_server_that_is_lost_is_done_again(void **state) {
    (void)state;
    skip();
}
static void fault_h04_what_was_done_on_a_server_that_is_lost_is_done_again_behind_a_pooler(void **state) {
    (void)state;
    skip();
}
static void fault_h179_a_message_that_a_lost_server_had_is_received_once(void **state) {
    (void)state;
    skip();
}
#endif

/* ---- H111: a watch of a thread that must not sleep in it ---- */

static int role_end_it(const char *url, long number) {
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_runtime *runtime = NULL;
    char *result = NULL;
    (void)number;
    if (dur_open(&store, url, NULL) != DUR_OK || dur_client_new(&client, store, NULL) != DUR_OK) return 1;
    if (dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = handlers), NULL) != DUR_OK) return 2;
    if (dur_client_send(client, NULL, "i", "q", "x") != DUR_OK) return 3;
    if (dur_client_result(&result, client, "i", patience_ms(), NULL) != DUR_OK) return 4;
    dur_free(result);
    dur_runtime_stop(runtime, 1000, NULL);
    dur_client_free(client);
    dur_provider_close(store);
    return 0;
}

/* It only asks whether something has happened: so waits who drives a runtime without threads. */
static void fault_h111_a_watch_that_is_only_asked_sees_what_another_process_did(void **state) {
    world *w = *state;
    dur_watch *watch = NULL;
    if (on_provider("memory:")) skip(); /* a store of this process alone */
    start(w, "Message", "", "i");
    OK(w, dur_store_watch_open(w->store, "i", &watch, &w->err));
    assert_int_equal(node_wait(node_spawn("end_it", w->url, 0, -1)), 0);
    for (uint64_t waited = 0; dur_store_watch_wait(watch, 0, &w->err) != DUR_OK; waited++) {
        if (waited > patience_ms()) fail_msg("it has ended, and the watch does not say so");
        pause_ms(1);
    }
    dur_store_watch_close(watch);
}

static const hostile_role roles[] = { { "racer", racer }, { "end_it", role_end_it } };
static const struct CMUnitTest tests[] = {
    TEST(fault_h01_a_send_that_races_with_a_start_is_delivered),
    TEST(fault_h02_what_is_committed_while_its_node_stops_is_delivered),
    TEST(fault_h02_what_is_committed_while_its_instance_is_evicted_is_delivered),
    TEST(fault_h111_a_watch_that_is_only_asked_sees_what_another_process_did),
    cmocka_unit_test_setup_teardown(fault_h04_what_a_node_had_done_on_a_server_that_is_lost_is_done_again, NULL,
                                    server_teardown),
    cmocka_unit_test_setup_teardown(fault_h04_what_was_done_on_a_server_that_is_lost_is_done_again_behind_a_pooler,
                                    NULL, server_teardown),
    cmocka_unit_test_setup_teardown(fault_h179_a_message_that_a_lost_server_had_is_received_once, NULL,
                                    server_teardown),
};

HOSTILE_MAIN(roles, tests)
