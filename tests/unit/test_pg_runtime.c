/*
 * test_pg_runtime.c: runtimes on PostgreSQL while the server refuses statements, the schema is made again or migrated,
 * behind a pooler, with clocks that differ, and with processes that stand still for a while.
 */
#include "e2e/pooler.h"
#include "pg_flow.h"

#include "support/faulty.h"
#include "provider/postgres/pg_internal.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* ---- statements that fail ---------------------------------------------------------------------------------------- */

/* One statement in so many fails, with a state of the list. */
static void fail_at_random(pg_bench *p, int one_in) {
    char sql[2048];
    snprintf(
        sql, sizeof(sql),
        "CREATE OR REPLACE FUNCTION %s.trouble() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE s text; BEGIN"
        " IF %d = 0 OR random() * %d >= 1 THEN RETURN NULL; END IF;"
        " s := (ARRAY['53100', '40001', '40P01', '57014', '55P03', '53200', '53300', '58030'])[1 + floor(random() *"
        " 8)]; RAISE EXCEPTION 'trouble' USING ERRCODE = s; END $$",
        p->schema, one_in, one_in);
    pg_do(p->db, sql);
}

/* Disk full, serialization failure, deadlock, timeout, lock not available, no memory, too many connections, I/O. */
static void whatever_fails_is_tried_again(void **state) {
    pg_bench *p = *state;
    dur_client *client;
    static const char *const tables[] = { "dur_instances", "dur_history", "dur_queue", "dur_worker", "dur_executions" };
    fail_at_random(p, 25);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        char sql[300];
        snprintf(sql, sizeof(sql),
                 "CREATE TRIGGER trouble AFTER INSERT OR UPDATE OR DELETE ON %s.%s FOR EACH STATEMENT EXECUTE FUNCTION"
                 " %s.trouble()",
                 p->schema, tables[i], p->schema);
        pg_do(p->db, sql);
    }
    ASSERT_OK(&p->b, dur_client_new(&client, p->b.store, &p->b.err));
    flow_node node = flow_node_start(p->url, NULL);
    flow_start(client, 0, 12);
    flow_expect(client, p->b.store, 0, 12);
    dur_metrics metrics = { .size = sizeof(metrics) };
    ASSERT_OK(&p->b, dur_runtime_metrics(&metrics, node.runtime, &p->b.err));
    assert_true(metrics.provider_errors > 0);
    fail_at_random(p, 1); /* nothing gets through, as with a full disk, and then everything */
    pg_pause_ms(500);
    fail_at_random(p, 0);
    flow_start(client, 12, 16);
    flow_expect(client, p->b.store, 12, 16);
    dur_client_free(client);
    flow_node_stop(&node);
}

/* ---- the schema -------------------------------------------------------------------------------------------------- */

/* It locks table by table, in another order than statements that run meanwhile: the server may end either of them. */
static void drop_below(pg_bench *p) {
    char sql[200];
    snprintf(sql, sizeof(sql), "SET client_min_messages = error; DROP SCHEMA %s CASCADE", p->schema);
    for (bool done = false; !done;) {
        PGresult *result = PQexec(p->db, sql);
        const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
        done = PQresultStatus(result) == PGRES_COMMAND_OK;
        if (!done && (state == NULL || strcmp(state, "40P01") != 0)) fail_msg("%s", PQresultErrorMessage(result));
        PQclear(result);
    }
}

static void schema_made_again_below_a_runtime(void **state) {
    pg_bench *p = *state;
    dur_client *client;
    ASSERT_OK(&p->b, dur_client_new(&client, p->b.store, &p->b.err));
    flow_node node = flow_node_start(p->url, NULL);
    flow_start(client, 0, 5);
    flow_expect(client, p->b.store, 0, 5);
    flow_start(client, 5, 10); /* these are lost with the schema, and harm nobody */
    drop_below(p);
    dur_provider *again = NULL;
    FLOW_PERSIST(&p->b.err, dur_open(&again, p->url, &p->b.err));
    flow_start(client, 0, 10);
    flow_expect(client, p->b.store, 0, 10);
    dur_client_free(client);
    assert_int_equal(dur_runtime_stop(node.runtime, DUR_SECONDS(20), &p->b.err), DUR_OK);
    dur_provider_close(node.store);
    dur_provider_close(again);
}

/* A later version of this library migrates while nodes of this one run: they go on. */
static void migrated_below_a_runtime(void **state) {
    pg_bench *p = *state;
    static const char *const second[] = { "ALTER TABLE @instances ADD COLUMN later text;"
                                          "CREATE INDEX dur_instances_later ON @instances (later)",
                                          "ALTER TABLE @history ADD COLUMN later bigint NOT NULL DEFAULT 7", NULL };
    static const char *const third[] = { "CREATE TABLE @later (x int)", NULL };
    const dur__pg_migration more[] = { { second, DUR__PG_SCHEMA_VERSION }, { third, DUR__PG_SCHEMA_VERSION + 2 } };
    dur_client *client;
    dur_provider *store = NULL;
    ASSERT_OK(&p->b, dur_client_new(&client, p->b.store, &p->b.err));
    flow_node node = flow_node_start(p->url, NULL);
    flow_start(client, 0, 10);
    ASSERT_OK(&p->b, dur__pg_migrate_further(dur__pg_of(p->b.store), more, 1, &p->b.err));
    flow_start(client, 10, 20);
    flow_expect(client, p->b.store, 0, 20);
    ASSERT_OK(&p->b, dur_open(&store, p->url, &p->b.err)); /* newer, and still for us */
    dur_provider_close(store);
    ASSERT_OK(&p->b, dur__pg_migrate_further(dur__pg_of(p->b.store), more, 2, &p->b.err));
    char sql[128];
    snprintf(sql, sizeof(sql), "SELECT schema_version * 100 + min_known FROM %s.dur_meta", p->schema);
    assert_int_equal(pg_number(p->db, sql), (DUR__PG_SCHEMA_VERSION + 2) * 101);
    assert_int_equal(dur_open(&store, p->url, &p->b.err), DUR_ESCHEMA); /* that one was the last for us */
    flow_start(client, 20, 25);
    flow_expect(client, p->b.store, 20, 25); /* who runs already is not thrown out */
    dur_client_free(client);
    flow_node_stop(&node);
}

/* ---- clocks ------------------------------------------------------------------------------------------------------ */

typedef struct shifted {
    dur_world world;
    int64_t by_ms;
} shifted;

static uint64_t shifted_wall(void *data) {
    const dur_world *real = dur_world_real();
    return (uint64_t)((int64_t)real->wall_ms(real->data) + ((shifted *)data)->by_ms);
}
static uint64_t real_boot(void *data) {
    const dur_world *real = dur_world_real();
    (void)data;
    return real->boot_ms(real->data);
}
static void real_random(void *data, void *out, size_t size) {
    const dur_world *real = dur_world_real();
    (void)data;
    real->random(real->data, out, size);
}

static void clocks_an_hour_apart(void **state) {
    pg_bench *p = *state;
    dur_client *client;
    shifted ahead = { .by_ms = 3600000 }, behind = { .by_ms = -3600000 };
    ahead.world = *dur_world_real();
    ahead.world.data = &ahead;
    ahead.world.wall_ms = shifted_wall;
    ahead.world.boot_ms = real_boot;
    ahead.world.random = real_random;
    behind.world = ahead.world;
    behind.world.data = &behind;
    ASSERT_OK(&p->b, dur_client_new(&client, p->b.store, &p->b.err));
    flow_node first = flow_node_start(p->url, &ahead.world), second = flow_node_start(p->url, &behind.world);
    flow_start(client, 0, 20); /* timers of 60 ms: an hour too late is seen, and so is one too early: */
    flow_expect(client, p->b.store, 0, 20);
    char sql[300];
    snprintf(sql, sizeof(sql),
             "SELECT max(abs(created_at - extract(epoch FROM clock_timestamp()) * 1000))::bigint FROM %s.dur_instances",
             p->schema);
    assert_in_range(pg_number(p->db, sql), 0, 1800000); /* times are the server's, whoever wrote them */
    dur_client_free(client);
    flow_node_stop(&first);
    flow_node_stop(&second);
}

/* ---- a process that stands still --------------------------------------------------------------------------------- */

/* Until something comes on its standard input; then it says whether it fenced itself or was fenced. */
static int node_main(const char *url) {
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    dur_metrics metrics = { .size = sizeof(metrics) };
    dur_error err = DUR_ERROR_INIT;
    char go;
    if (dur_open(&store, url, &err) != DUR_OK) return 10;
    dur_runtime_options *options = DUR_RUNTIME(.store = store, .handlers = flow_handlers, .owner_timeout_ms = 2000);
    if (dur_runtime_start(&runtime, options, &err) != DUR_OK) return 11;
    if (read(STDIN_FILENO, &go, 1) != 1) return 12;
    for (int i = 0; i < 3000 && metrics.fenced == 0; i++) {
        (void)dur_runtime_metrics(&metrics, runtime, &err);
        pg_pause_ms(10);
    }
    (void)dur_runtime_stop(runtime, DUR_SECONDS(20), NULL);
    dur_provider_close(store);
    return metrics.fenced > 0 ? 0 : 13;
}

/* It holds everything and is stopped; another takes over and ends it; when it goes on it writes nothing any more. */
static void stopped_and_continued(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_client *client;
    int to[2], status = 0;
    char sql[200];
    assert_int_equal(pipe(to), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(to[0], STDIN_FILENO);
        execl("/proc/self/exe", "test_pg_runtime", "--node", p->url, (char *)NULL);
        _exit(127);
    }
    ASSERT_OK(b, dur_client_new(&client, b->store, &b->err));
    for (size_t i = 0; i < 30; i++) { /* they wait for the message that they end with */
        char id[32];
        snprintf(id, sizeof(id), "f%zu", i);
        ASSERT_OK(b, dur_client_start(client, &b->err, "Flow", id, .instance = id));
    }
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s.dur_instances WHERE owner IS NOT NULL AND has_row", p->schema);
    while (pg_number(p->db, sql) < 30) {
        if (waitpid(pid, &status, WNOHANG) != 0) fail_msg("the node ended: %d", status);
        pg_pause_ms(10);
    }
    assert_int_equal(kill(pid, SIGSTOP), 0);
    flow_node other = { NULL, NULL };
    ASSERT_OK(b, dur_open(&other.store, p->url, &b->err));
    ASSERT_OK(b,
              dur_runtime_start(&other.runtime, DUR_RUNTIME(.store = other.store, .handlers = flow_handlers), &b->err));
    flow_start(client, 0, 30);
    flow_expect(client, b->store, 0, 30);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(write(to[1], "g", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    flow_expect(client, b->store, 0, 30); /* no event twice, no gap */
    dur_client_free(client);
    assert_int_equal(dur_runtime_stop(other.runtime, DUR_SECONDS(20), &b->err), DUR_OK);
    dur_provider_close(other.store);
    close(to[0]);
    close(to[1]);
}

/* ---- a row that somebody holds ------------------------------------------------------------------------------------
 */

/* All its instances wait for the same round. */
static flow_node one_loop(pg_bench *p) {
    flow_node node = { NULL, NULL };
    bench *b = &p->b;
    ASSERT_OK(b, dur_open(&node.store, p->url, &b->err));
    dur_runtime_options *options =
        DUR_RUNTIME(.store = node.store, .handlers = flow_handlers, .orchestration_concurrency = 1);
    ASSERT_OK(b, dur_runtime_start(&node.runtime, options, &b->err));
    return node;
}

static PGconn *hold_f0(pg_bench *p) {
    char sql[200];
    PGconn *holder = PQconnectdb(pg_server());
    snprintf(sql, sizeof(sql),
             "BEGIN; SELECT 1 / count(*) FROM (SELECT 1 FROM %s.dur_instances WHERE instance_id = 'f0' FOR UPDATE) t",
             p->schema);
    pg_do(holder, sql);
    return holder;
}

/* Now it ends as the others have. */
static void let_f0_go(pg_bench *p, dur_client *client, PGconn *holder) {
    pg_do(holder, "COMMIT");
    PQfinish(holder);
    flow_start(client, 0, 1);
    flow_expect(client, p->b.store, 0, 1);
}

/* A client that stands still in the middle of its transaction, say: its instance waits, and the others do not. */
static void a_locked_row_stops_nobody_else(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_client *client;
    ASSERT_OK(b, dur_client_new(&client, b->store, &b->err));
    flow_node node = one_loop(p);
    ASSERT_OK(b, dur_client_start(client, &b->err, "Flow", "f0", .instance = "f0"));
    PGconn *holder = hold_f0(p);
    flow_start(client, 1, 10);
    flow_expect(client, b->store, 1, 10);
    let_f0_go(p, client, holder);
    dur_client_free(client);
    flow_node_stop(&node);
}

/* The node that has it goes, and the next one gets the others at once, and this one when it is free. */
static void a_locked_row_stops_no_take_over(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_client *client;
    char sql[200], id[32];
    ASSERT_OK(b, dur_client_new(&client, b->store, &b->err));
    flow_node node = one_loop(p);
    for (int i = 0; i < 10; i++) {
        snprintf(id, sizeof(id), "f%d", i);
        ASSERT_OK(b, dur_client_start(client, &b->err, "Flow", id, .instance = id));
    }
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s.dur_instances WHERE owner IS NOT NULL AND has_row", p->schema);
    while (pg_number(p->db, sql) < 10)
        pg_pause_ms(10);
    PGconn *holder = hold_f0(p);
    clock_t began = clock();
    assert_int_equal(dur_runtime_stop(node.runtime, DUR_SECONDS(5), &b->err), DUR_OK);
    assert_true(clock() - began < 2 * CLOCKS_PER_SEC); /* it waits for that row until then, asleep */
    dur_provider_close(node.store);
    flow_node next = one_loop(p);
    flow_start(client, 1, 10);
    flow_expect(client, b->store, 1, 10);
    let_f0_go(p, client, holder);
    dur_client_free(client);
    assert_int_equal(dur_runtime_stop(next.runtime, DUR_SECONDS(20), &b->err), DUR_OK);
    dur_provider_close(next.store);
}

/* ---- a pooler in transaction mode -------------------------------------------------------------------------------- */

static pid_t bouncer_start(const char *dir, const char *target, const char *user) {
    char path[256];
    snprintf(path, sizeof(path), "%s/pgbouncer.ini", dir);
    FILE *file = fopen(path, "w");
    fprintf(file,
            "[databases]\npostgres = host=%s user=%s\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = %s\n"
            "listen_port = 5432\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 3\n"
            "max_client_conn = 100\nlogfile = %s/log\npidfile = %s/pid\nignore_startup_parameters = options\n",
            target, user, dir, dir, dir);
    fclose(file);
    chmod(dir, 0777);
    chmod(path, 0666);
    pid_t pid = fork();
    if (pid != 0) return pid;
    pooler_become(path);
}

/* One node by the pooler, one directly; sessions of the pooler's user are serializable unless we say otherwise. */
/* The first lane, or a later one, cannot be had: the loops behind it were never opened. */
static void a_start_without_its_lanes_is_refused(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    ASSERT_OK(b, dur__faulty_wrap(&store, dur_store_retain(b->store), 1, &b->err));
    for (uint64_t first = 1; first <= 4; first++) {
        dur__faulty_add(store, &(dur__fault_plan){ .method = "lane_open", .first = first });
        int code = dur_runtime_start(
            &runtime, DUR_RUNTIME(.store = store, .handlers = flow_handlers, .orchestration_concurrency = 4), &b->err);
        assert_int_equal(code, DUR_EUNAVAILABLE);
        assert_null(runtime);
        dur__faulty_clear(store);
    }
    ASSERT_OK(b, dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = flow_handlers), &b->err));
    ASSERT_OK(b, dur_runtime_stop(runtime, 0, &b->err));
    dur_provider_close(store);
}

static void behind_a_pooler(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    const char *host = strstr(pg_server(), "host=/");
    char dir[] = "/tmp/durite-bouncer-XXXXXX", target[200], url[1024], sql[600], user[80];
    dur_client *client;
    dur_provider *store = NULL;
    if (access("/usr/sbin/pgbouncer", X_OK) != 0 || host == NULL) skip();
    snprintf(target, sizeof(target), "%.*s", (int)strcspn(host + 5, "&"), host + 5);
    snprintf(user, sizeof(user), "pool_%s", p->schema);
    snprintf(sql, sizeof(sql),
             "CREATE ROLE %s SUPERUSER LOGIN; ALTER ROLE %s SET default_transaction_isolation = 'serializable'", user,
             user);
    pg_do(p->db, sql);
    pg_watch_levels(p);
    assert_non_null(mkdtemp(dir));
    pid_t pid = bouncer_start(dir, target, user);
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&schema=%s&pooler=transaction", dir, p->schema);
    FLOW_PERSIST(&b->err, dur_open(&store, url, &b->err)); /* it takes a moment to come up */
    flow_node pooled = flow_node_start(url, NULL), direct = flow_node_start(p->url, NULL);
    ASSERT_OK(b, dur_client_new(&client, store, &b->err));
    flow_start(client, 0, 20);
    flow_expect(client, b->store, 0, 20);
    dur_client_free(client);
    flow_node_stop(&direct);
    ASSERT_OK(b, dur_client_new(&client, store, &b->err));
    flow_start(client, 20, 24); /* alone: no notification wakes it */
    flow_expect(client, b->store, 20, 24);
    dur_client_free(client);
    flow_node_stop(&pooled);
    dur_provider_close(store);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    snprintf(sql, sizeof(sql), "rm -rf '%s'", dir);
    assert_int_equal(system(sql), 0);
    snprintf(sql, sizeof(sql), "REASSIGN OWNED BY %s TO CURRENT_USER; DROP OWNED BY %s; DROP ROLE %s", user, user,
             user);
    pg_do(p->db, sql);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--node") == 0) {
        dur_postgres_register(NULL);
        return node_main(argv[2]);
    }
    const struct CMUnitTest tests[] = {
        PG_TEST(whatever_fails_is_tried_again),
        PG_TEST(schema_made_again_below_a_runtime),
        PG_TEST(migrated_below_a_runtime),
        PG_TEST(clocks_an_hour_apart),
        PG_TEST(stopped_and_continued),
        PG_TEST(a_locked_row_stops_nobody_else),
        PG_TEST(a_locked_row_stops_no_take_over),
        PG_TEST(behind_a_pooler),
        PG_TEST(a_start_without_its_lanes_is_refused),
    };
    PG_MAIN(tests);
}
