/*
 * test_pg_server.c: what happens to a whole server: it is stopped politely or at once, it wants TLS and passwords.
 *  It is a private one, so that neighbours are not disturbed.
 */
#include "pg_flow.h"
#include "pg_private.h"
#include "pg_proxy.h"

#include <stdatomic.h>

/* ---- restarts ---------------------------------------------------------------------------------------------------- */

static atomic_uint taken_for_dead;

static void count_taken_for_dead(void *data, const dur_log_record *record) {
    (void)data;
    if (strstr(record->message, "was taken for dead") != NULL) atomic_fetch_add(&taken_for_dead, 1);
}

static void restart_below(pg_bench *p, const char *how) {
    dur_client *client;
    atomic_store(&taken_for_dead, 0);
    assert_int_equal(dur_log_set_sink(count_taken_for_dead, NULL, DUR_LOG_ERROR), DUR_OK);
    ASSERT_OK(&p->b, dur_client_new(&client, p->b.store, &p->b.err));
    flow_node first = flow_node_start(p->url, NULL), second = flow_node_start(p->url, NULL);
    flow_start(client, 0, 20);
    assert_int_equal(pg_ctl(how), 0);
    pg_pause_ms(300); /* they try, and fail */
    assert_int_equal(pg_ctl("start"), 0);
    flow_start(client, 20, 30);
    flow_expect(client, p->b.store, 0, 30);
    dur_client_free(client);
    /* How long the server is away is the machine's affair: they may have fenced themselves meanwhile, and go on. */
    flow_node_end(&first);
    flow_node_end(&second);
    assert_int_equal(dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR), DUR_OK);
    assert_int_equal(atomic_load(&taken_for_dead), 0);
}

static void stopped_politely(void **state) {
    restart_below(*state, "-m fast stop");
}
static void stopped_at_once(void **state) {
    restart_below(*state, "-m immediate stop");
}

/* ---- answers that are lost --------------------------------------------------------------------------------------- */

/*
 * Long activities run, and beside them turns are committed all the time; the answers of some are lost.  A lane finds
 * out what became of those: nothing else is given up, and no activity runs twice.
 */
enum { LONG_ONES = 3, LOOPS = 6, LOSSES = 6 };

static atomic_uint long_begun, steps, given_up, fed;
static atomic_bool long_ends, loops_end;

static dur_outcome long_activity(dur_act *act, const char *input) {
    atomic_fetch_add(&long_begun, 1);
    while (!atomic_load(&long_ends) && !dur_act_cancelled(act))
        pg_pause_ms(2);
    return dur_act_complete(act, input);
}

static dur_outcome loop_step(dur_act *act, const char *input) {
    (void)input;
    atomic_fetch_add(&steps, 1);
    return dur_act_complete(act, atomic_load(&loops_end) ? "ends" : "goes-on");
}

static dur_outcome long_one(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Long", input)));
}

static dur_outcome loop(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < 8; i++) {
        if (strcmp(dur_await(dur_activity(ctx, "LoopStep", input)), "ends") == 0) return dur_complete(ctx, input);
        dur_await(dur_timer(ctx, 3));
    }
    return dur_continue_as_new(ctx, input);
}

/* Its first turn makes a row of work, and locks it. */
static dur_outcome short_one(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Step", input, .session = "s")));
}

static const dur_handler lossy_handlers[] = {
    DUR_ACTIVITY("Long", long_activity),
    DUR_ACTIVITY("LoopStep", loop_step),
    DUR_ACTIVITY("Step", flow_step),
    DUR_ORCHESTRATION("LongOne", "1.0.0", long_one),
    DUR_ORCHESTRATION("Loop", "1.0.0", loop),
    DUR_ORCHESTRATION("Short", "1.0.0", short_one),
    DUR_HANDLERS_END,
};

static void count_given_up(void *data, const dur_log_record *record) {
    (void)data;
    if (strstr(record->message, "leases are given up") != NULL) atomic_fetch_add(&given_up, 1);
}

static void begin_one(dur_client *client, const char *what, unsigned number) {
    dur_error err = DUR_ERROR_INIT;
    char id[32];
    snprintf(id, sizeof(id), "%s%u", what, number);
    FLOW_PERSIST(&err, dur_client_start(client, &err, what, id, .instance = id, .exists = DUR_START_RETURN_EXISTING));
}

static void end_one(dur_client *client, const char *what, unsigned number) {
    dur_error err = DUR_ERROR_INIT;
    char id[32], *result = NULL;
    snprintf(id, sizeof(id), "%s%u", what, number);
    FLOW_PERSIST(&err, dur_client_result(&result, client, id, DUR_SECONDS(60), &err));
    assert_string_equal(result, id);
    dur_free(result);
}

/* Starts that the node's lanes write with their first turns. */
static void *feed(void *client) {
    while (!atomic_load(&loops_end)) {
        begin_one(client, "Short", atomic_load(&fed));
        end_one(client, "Short", atomic_load(&fed));
        atomic_fetch_add(&fed, 1);
    }
    return NULL;
}

static void until_steps(unsigned more) {
    unsigned from = atomic_load(&steps);
    for (int i = 0; atomic_load(&steps) - from < more; i++) {
        if (i > 12000) fail_msg("nothing goes on");
        pg_pause_ms(5);
    }
}

typedef void lose_fn(void *data, int number);

static void lose_so_often(pg_bench *p, dur_provider *store, lose_fn *lose, void *data, int times, uint64_t timeout_ms) {
    dur_client *client;
    dur_runtime *node;
    pthread_t feeder;
    atomic_store(&long_begun, 0);
    atomic_store(&given_up, 0);
    atomic_store(&fed, 0);
    atomic_store(&long_ends, false);
    atomic_store(&loops_end, false);
    assert_int_equal(dur_log_set_sink(count_given_up, NULL, DUR_LOG_WARN), DUR_OK);
    ASSERT_OK(&p->b, dur_client_new(&client, store, &p->b.err));
    ASSERT_OK(&p->b, dur_runtime_start(
                         &node, DUR_RUNTIME(.store = store, .handlers = lossy_handlers, .owner_timeout_ms = timeout_ms),
                         &p->b.err));
    for (unsigned i = 0; i < LONG_ONES; i++)
        begin_one(client, "LongOne", i);
    for (unsigned i = 0; i < LOOPS; i++)
        begin_one(client, "Loop", i);
    while (atomic_load(&long_begun) < LONG_ONES)
        pg_pause_ms(2);
    assert_int_equal(pthread_create(&feeder, NULL, feed, client), 0);
    for (int i = 0; i < times; i++) {
        until_steps(40);
        lose(data, i);
    }
    until_steps(40);
    atomic_store(&loops_end, true);
    pthread_join(feeder, NULL);
    for (unsigned i = 0; i < LOOPS; i++)
        end_one(client, "Loop", i);
    atomic_store(&long_ends, true);
    for (unsigned i = 0; i < LONG_ONES; i++)
        end_one(client, "LongOne", i);
    assert_int_equal(atomic_load(&given_up), 0);
    assert_int_equal(atomic_load(&long_begun), LONG_ONES);
    ASSERT_OK(&p->b, dur_runtime_check(node, &p->b.err));
    ASSERT_OK(&p->b, dur_runtime_stop(node, DUR_SECONDS(20), &p->b.err));
    ASSERT_OK(&p->b, dur_provider_check(store, &p->b.err));
    dur_client_free(client);
    assert_int_equal(dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR), DUR_OK);
}

static void lose_answers(pg_bench *p, dur_provider *store, lose_fn *lose, void *data) {
    lose_so_often(p, store, lose, data, LOSSES, 0);
}

static void by_a_restart(void *data, int number) {
    (void)data;
    (void)number;
    assert_int_equal(pg_ctl("-m immediate stop"), 0);
    assert_int_equal(pg_ctl("start"), 0);
}

static void fault_h156_a_restart_under_load_keeps_leases(void **state) {
    pg_bench *p = *state;
    lose_answers(p, p->b.store, by_a_restart, NULL);
}

static void at_a_commit(proxy *x, int mode, int number) {
    atomic_store(&x->mode, mode);
    for (int i = 0; atomic_load(&x->cuts) <= number; i++) {
        if (i > 12000) fail_msg("nothing was cut");
        pg_pause_ms(5);
    }
}

static void by_a_cut(void *data, int number) {
    at_a_commit(data, number % 2 == 0 ? PROXY_CUT_AFTER : PROXY_CUT_BEFORE, number);
}

static void by_silence(void *data, int number) {
    at_a_commit(data, number % 2 == 0 ? PROXY_SILENT_AFTER : PROXY_SILENT_BEFORE, number);
}

static void by_a_cut_behind(void *data, int number) {
    by_a_cut(data, number);
    atomic_store(&((proxy *)data)->mode, PROXY_CUT_AFTER);
    for (int i = 0; atomic_load(&((proxy *)data)->cuts) <= 2 * number + 1 && i < 400; i++)
        pg_pause_ms(5);
}

static void fault_h156_a_lost_answer_keeps_leases(void **state) {
    pg_bench *p = *state;
    proxy x;
    if (!proxy_open(&x, "goes-on")) skip(); /* in what commits write */
    dur_provider *store = proxy_store(&x, p);
    lose_answers(p, store, by_a_cut, &x);
    dur_provider_close(store);
    proxy_close(&x);
}

/* Nothing ends, and nothing comes: a session that says nothing for three times the owner's timeout is given up. */
static void fault_h175_a_silent_session_is_given_up(void **state) {
    pg_bench *p = *state;
    proxy x;
    if (!proxy_open(&x, "goes-on")) skip();
    dur_provider *store = proxy_store(&x, p);
    lose_so_often(p, store, by_silence, &x, 2, 1000);
    dur_provider_close(store);
    proxy_close(&x);
}

/*
 * A commit that takes its time, and cannot be ended in it: whoever looks for the turn does not see it, sends it again,
 * and is refused by what has happened meanwhile.  It is no other turn, and what it has asked for is done.
 */
static void fault_h169_a_lost_answer_of_a_commit_under_way(void **state) {
    pg_bench *p = *state;
    proxy x;
    if (!proxy_open(&x, "goes-on")) skip();
    pg_do(p->db, "ALTER SYSTEM SET fsync = on");
    pg_do(p->db, "ALTER SYSTEM SET commit_siblings = 0");
    pg_do(p->db, "ALTER SYSTEM SET commit_delay = 50000");
    pg_do(p->db, "SELECT pg_reload_conf()");
    dur_provider *store = proxy_store(&x, p);
    lose_answers(p, store, by_a_cut_behind, &x);
    dur_provider_close(store);
    proxy_close(&x);
    pg_do(p->db, "ALTER SYSTEM RESET fsync");
    pg_do(p->db, "ALTER SYSTEM RESET commit_siblings");
    pg_do(p->db, "ALTER SYSTEM RESET commit_delay");
    pg_do(p->db, "SELECT pg_reload_conf()");
}

/* A cut, and before anything else goes on another process of the server. */
static void by_both(void *data, int number) {
    by_a_cut(data, number);
    by_a_restart(NULL, number);
}

static void fault_h156_a_lost_answer_before_a_restart_keeps_leases(void **state) {
    pg_bench *p = *state;
    proxy x;
    if (!proxy_open(&x, "goes-on")) skip();
    dur_provider *store = proxy_store(&x, p);
    lose_answers(p, store, by_both, &x);
    dur_provider_close(store);
    proxy_close(&x);
}

/* ---- its clock jumps --------------------------------------------------------------------------------------------- */

/* From the next statement on, in all sessions. */
static void jump_to(pg_bench *p, long offset_ms) {
    char sql[200];
    snprintf(sql, sizeof(sql), "ALTER SYSTEM SET durite.clock_offset_ms = %ld", offset_ms);
    pg_do(p->db, "SET durite.clock_offset_ms = 0"); /* a name that the server has heard of */
    pg_do(p->db, sql);
    pg_do(p->db, "SELECT pg_reload_conf()");
}

/* An hour and more, both ways, below two nodes: nobody is taken for dead, and everything goes on. */
static void its_clock_jumps(void **state) {
    pg_bench *p = *state;
    static const long hours[] = { 1, -2, 3, 0 };
    dur_client *client;
    ASSERT_OK(&p->b, dur_client_new(&client, p->b.store, &p->b.err));
    flow_node first = flow_node_start(p->url, NULL), second = flow_node_start(p->url, NULL);
    for (size_t i = 0; i < sizeof(hours) / sizeof(hours[0]); i++) {
        flow_start(client, 5 * i, 5 * i + 5);
        flow_expect(client, p->b.store, 5 * i, 5 * i + 5); /* a timer in flight would be early or late, rightly */
        jump_to(p, hours[i] * 3600000);
        pg_pause_ms(1100); /* each has looked at the other */
    }
    flow_start(client, 20, 25);
    flow_expect(client, p->b.store, 20, 25);
    dur_client_free(client);
    flow_node_stop(&first); /* looks that neither took the other for dead */
    flow_node_stop(&second);
    pg_do(p->db, "ALTER SYSTEM RESET durite.clock_offset_ms");
    pg_do(p->db, "SELECT pg_reload_conf()");
}

/* ---- TLS and passwords ------------------------------------------------------------------------------------------- */

/* As the server's user, in its data folder. */
static int shell(const char *script) {
    char command[2048];
    const char *as = getenv("DURITE_TEST_POSTGRES_AS");
    snprintf(command, sizeof(command), "cd '%s' && %s sh -c '%s' >/dev/null 2>&1", getenv("DURITE_TEST_POSTGRES_DATA"),
             as != NULL ? as : "", script);
    return system(command);
}

static char logged[65536];
static pthread_mutex_t logging = PTHREAD_MUTEX_INITIALIZER;

static void keep_log(void *data, const dur_log_record *record) {
    (void)data;
    pthread_mutex_lock(&logging);
    size_t size = strlen(logged);
    snprintf(logged + size, sizeof(logged) - size, "%s\n", record->message);
    for (size_t i = 0; i < record->field_count; i++) {
        size = strlen(logged);
        if (record->fields[i].text != NULL)
            snprintf(logged + size, sizeof(logged) - size, "%s\n", record->fields[i].text);
    }
    pthread_mutex_unlock(&logging);
}

static void by_tls_with_a_password(void **state) {
    pg_bench *p = *state;
    const char *data = getenv("DURITE_TEST_POSTGRES_DATA");
    dur_provider *store = NULL;
    char url[1024];
    char address[32]; /* of its own, so that the port is free */
    snprintf(address, sizeof(address), "127.%d.%d.%d", 1 + (int)getpid() / 62500 % 250, 1 + (int)getpid() / 250 % 250,
             1 + (int)getpid() % 250);
    if (access("/usr/bin/openssl", X_OK) != 0) skip();
    char script[1024];
    snprintf(
        script, sizeof(script),
        "openssl req -new -x509 -days 2 -nodes -subj /CN=durite -addext subjectAltName=IP:%s -out server.crt -keyout"
        " server.key && chmod 600 server.key && mv pg_hba.conf before && (echo hostssl all secretive all"
        " scram-sha-256; echo hostnossl all secretive all reject; cat before) >pg_hba.conf",
        address);
    assert_int_equal(shell(script), 0);
    pg_do(p->db, "CREATE ROLE secretive LOGIN SUPERUSER PASSWORD 'topsecret'");
    pg_do(p->db, "ALTER SYSTEM SET ssl = on");
    snprintf(script, sizeof(script), "ALTER SYSTEM SET listen_addresses = '%s'", address);
    pg_do(p->db, script);
    assert_int_equal(pg_ctl("-m fast stop"), 0);
    assert_int_equal(pg_ctl("start"), 0);
    PQreset(p->db);
    assert_int_equal(dur_log_set_sink(keep_log, NULL, DUR_LOG_TRACE), DUR_OK);
    snprintf(url, sizeof(url),
             "postgres://secretive:topsecret@%s/postgres?schema=%s&sslmode=verify-full&sslrootcert=%s/server.crt",
             address, p->schema, data);
    int code = dur_open(&store, url, &p->b.err);
    ASSERT_OK(&p->b, code);
    dur_client *client;
    ASSERT_OK(&p->b, dur_client_new(&client, store, &p->b.err));
    flow_node node = flow_node_start(url, NULL);
    flow_start(client, 0, 5);
    flow_expect(client, store, 0, 5);
    assert_true(pg_number(p->db, "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND"
                                 " usename = 'secretive'") > 0);
    pg_do(p->db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'secretive'");
    flow_start(client, 5, 8); /* and again after its sessions were ended */
    flow_expect(client, store, 5, 8);
    dur_client_free(client);
    flow_node_stop(&node);
    dur_provider_close(store);
    store = NULL;
    static const char *const wrong[] = { "secretive:topsecret2@%s/postgres?sslmode=require",
                                         "secretive:topsecret@%s/postgres?sslmode=disable",
                                         "secretive:topsecret@%s/nothere?sslmode=require",
                                         "secretive:topsecret@%s/postgres?sslmode=verify-full&sslrootcert="
                                         "/nonexistent" };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char rest[200];
        snprintf(rest, sizeof(rest), "%s", strchr(wrong[i], '@') + 3);
        snprintf(url, sizeof(url), "postgres://%.*s%s%s", (int)(strchr(wrong[i], '@') + 1 - wrong[i]), wrong[i],
                 address, rest);
        code = dur_open(&store, url, &p->b.err);
        assert_int_not_equal(code, DUR_OK);
        assert_null(strstr(p->b.err.message, "topsecret"));
        if (i == 0) assert_int_equal(code, DUR_EPERM);
    }
    assert_null(strstr(logged, "topsecret"));
    assert_int_equal(dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR), DUR_OK);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        PG_TEST(stopped_politely),
        PG_TEST(stopped_at_once),
        PG_TEST(fault_h156_a_restart_under_load_keeps_leases),
        PG_TEST(fault_h156_a_lost_answer_keeps_leases),
        PG_TEST(fault_h175_a_silent_session_is_given_up),
        PG_TEST(fault_h169_a_lost_answer_of_a_commit_under_way),
        PG_TEST(fault_h156_a_lost_answer_before_a_restart_keeps_leases),
        PG_TEST(its_clock_jumps),
        PG_TEST(by_tls_with_a_password),
    };
    (void)argc;
    signal(SIGPIPE, SIG_IGN); /* of the proxy */
    pg_private_server(argv);
    PG_MAIN(tests);
}
