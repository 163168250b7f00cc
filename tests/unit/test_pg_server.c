/*
 * test_pg_server.c: what happens to a whole server: it is stopped politely or at once, it wants TLS and passwords.
 *  It is a private one, so that neighbours are not disturbed.
 */
#include "pg_flow.h"
#include "pg_private.h"

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

static void keep_log(void *data, const dur_log_record *record) {
    (void)data;
    size_t size = strlen(logged);
    snprintf(logged + size, sizeof(logged) - size, "%s\n", record->message);
    for (size_t i = 0; i < record->field_count; i++) {
        size = strlen(logged);
        if (record->fields[i].text != NULL)
            snprintf(logged + size, sizeof(logged) - size, "%s\n", record->fields[i].text);
    }
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
        PG_TEST(its_clock_jumps),
        PG_TEST(by_tls_with_a_password),
    };
    (void)argc;
    pg_private_server(argv);
    PG_MAIN(tests);
}
