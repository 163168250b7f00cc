/*
 * crash_nodes.c: four runtimes, each a process of its own, on one PostgreSQL database.
 *
 * One of them is killed with SIGKILL again and again and started anew, server sessions are terminated at random, and
 * once the server is stopped as if by a crash.  Every start that was accepted must end with the right result, every
 * execution's history must be without gap, no step may have two completions, nothing may be left over, and nobody who
 * lives may be taken for dead.  How long the work of a killed node waited is measured and printed; the long form (`make
 * crash`) insists on 2 seconds.  The seed is printed; DURITE_TEST_SEED repeats the choices.
 */
#include "crash/node_end.h"
#include "unit/pg_private.h"
#include <durite/postgres.h>
#include <durite/sys/store.h>
#include <fcntl.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { NODES = 4, STEPS = 3, KILLS_MAX = 1000, RECOVERY_MS_MAX = 2000 };

static dur_outcome step(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome child(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Step", input)));
}

static dur_outcome work(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < STEPS; i++) {
        char *expected = dur_format(ctx, "%s/%d", input, i);
        const char *got = dur_await(dur_activity(ctx, "Step", expected));
        if (strcmp(got, expected) != 0) return dur_failf(ctx, "step %d: %s", i, got);
        dur_await(dur_timer(ctx, 300)); /* long enough to be held by somebody who is killed */
    }
    if (strcmp(dur_await(dur_orchestration(ctx, "Child", input)), input) != 0) return dur_fail(ctx, "child");
    return dur_complete(ctx, dur_await(dur_message(ctx, "q")));
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Step", step),
    DUR_ORCHESTRATION("Child", "1.0.0", child),
    DUR_ORCHESTRATION("Work", "1.0.0", work),
    DUR_HANDLERS_END,
};

/* ---- a node ------------------------------------------------------------------------------------------------------ */

static int node_main(const char *url, const char *name) {
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    dur_error err = DUR_ERROR_INIT;
    int code = DUR_OK;
    node_listen();
    for (int i = 0; i < 1000; i++) { /* its first sessions may be among those that are terminated */
        code = store == NULL ? dur_open(&store, url, &err) : DUR_OK;
        if (code == DUR_OK)
            code = dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = handlers, .name = name), &err);
        if (code == DUR_OK || !err.retryable) break;
        node_end_if_told(NULL);
        pause_ms(20);
    }
    if (code != DUR_OK) {
        fprintf(stderr, "node: %s: %s\n", err.op, err.message);
        return 1;
    }
    for (char known[128] = "";; pause_ms(10)) { /* says under which ids it lives, and since when */
        struct timespec now;
        const char *owner = dur_runtime_owner(runtime);
        node_end_if_told(runtime);
        if (strcmp(owner, known) == 0) continue;
        snprintf(known, sizeof(known), "%s", owner);
        clock_gettime(CLOCK_REALTIME, &now);
        printf("%s %lld.%03ld\n", owner, (long long)now.tv_sec, now.tv_nsec / 1000000);
        fflush(stdout);
    }
}

typedef struct all {
    dur_provider *store;
    dur_client *client;
    const char *server;
    char schema[64];
    char url[1024];
    pid_t nodes[NODES];
    unsigned generations[NODES];
    size_t count;
    unsigned seed;
    bool full;
    atomic_bool done;
    atomic_size_t started;
    size_t kills, terminated;
    atomic_bool restarted;
    long waits_ms[KILLS_MAX]; /* of the work of those that were killed */
    long worst_ms;
    char slowest[24]; /* of them the one that waited longest */
} all;

static void node_name(const all *a, size_t node, char out[24]) {
    snprintf(out, 24, "n%zug%u", node, a->generations[node]);
}

static void node_spawn(all *a, size_t node) {
    char url[1200], name[24];
    a->generations[node]++;
    node_name(a, node, name);
    snprintf(url, sizeof(url), "%s&schema=%s&application_name=node_%s", a->server, a->schema, name);
    a->nodes[node] = fork();
    if (a->nodes[node] != 0) return;
    int used = open("owners.txt", O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (used < 0 || dup2(used, STDOUT_FILENO) < 0) _exit(127);
    execl("/proc/self/exe", "crash_nodes", "--node", url, name, (char *)NULL);
    _exit(127);
}

/* ---- the one who breaks things ----------------------------------------------------------------------------------- */

static PGconn *connect_somehow(const all *a) {
    char sql[128];
    for (;;) {
        PGconn *db = PQconnectdb(a->server);
        snprintf(sql, sizeof(sql), "SET search_path = %s", a->schema);
        PGresult *result = PQexec(db, sql);
        bool good = PQresultStatus(result) == PGRES_COMMAND_OK;
        PQclear(result);
        if (good) return db;
        PQfinish(db);
        pause_ms(50);
    }
}

static long number(PGconn *db, const char *sql) {
    PGresult *result = PQexec(db, sql);
    if (PQresultStatus(result) != PGRES_TUPLES_OK && PQresultStatus(result) != PGRES_COMMAND_OK) {
        fprintf(stderr, "%s: %s", sql, PQresultErrorMessage(result));
        abort();
    }
    long value = PQntuples(result) > 0 ? strtol(PQgetvalue(result, 0, 0), NULL, 10) : 0;
    PQclear(result);
    return value;
}

static uint64_t monotonic_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* Sessions of nodes and of the client. */
static void terminate_some(all *a, PGconn *db) {
    a->terminated += (size_t)number(db, "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity"
                                        " WHERE application_name LIKE 'node\\_%' ORDER BY random() LIMIT 2) t");
}

/* Until nothing is under the dead one's name, and what has something to do was claimed by others. */
static long await_recovery(all *a, PGconn *db, const char *name) {
    char sql[700];
    uint64_t began = monotonic_ms(), terminated = began;
    snprintf(sql, sizeof(sql),
             "CREATE TEMPORARY TABLE had AS SELECT instance_id FROM dur_instances WHERE owner LIKE '%s-%%'", name);
    number(db, sql);
    snprintf(sql, sizeof(sql),
             "SELECT (SELECT count(*) FROM dur_instances WHERE owner LIKE '%s-%%') + (SELECT count(*) FROM dur_worker"
             " WHERE owner LIKE '%s-%%') + (SELECT count(*) FROM dur_instances i JOIN had USING (instance_id) WHERE"
             " i.owner IS NULL AND i.ready_at <= extract(epoch FROM clock_timestamp()) * 1000 - 100)",
             name, name);
    while (number(db, sql) > 0 && monotonic_ms() - began < 60000) {
        pause_ms(10);
        if (monotonic_ms() - terminated < 300) continue;
        terminate_some(a, db);
        terminated = monotonic_ms();
    }
    number(db, "DROP TABLE had");
    return (long)(monotonic_ms() - began);
}

static void kill_one(all *a, PGconn *db) {
    size_t victim = (size_t)rand_r(&a->seed) % NODES;
    char name[24], sql[200];
    node_name(a, victim, name);
    snprintf(sql, sizeof(sql), "INSERT INTO test_killed VALUES ('%s', clock_timestamp())", name);
    number(db, sql);
    kill(a->nodes[victim], SIGKILL);
    waitpid(a->nodes[victim], NULL, 0);
    long waited_ms = await_recovery(a, db, name);
    if (a->kills < KILLS_MAX) a->waits_ms[a->kills++] = waited_ms;
    if (waited_ms > a->worst_ms) {
        a->worst_ms = waited_ms;
        memcpy(a->slowest, name, sizeof(a->slowest));
    }
    node_spawn(a, victim);
}

/* After a restart the session locks are gone: nobody is killed before everybody has shown life again. */
static void restart_server(all *a, PGconn **db) {
    PQfinish(*db);
    if (pg_ctl("-m immediate stop") != 0 || pg_ctl("start") != 0) abort();
    *db = connect_somehow(a);
    uint64_t began = monotonic_ms();
    while (monotonic_ms() - began < 60000 &&
           number(*db, "SELECT count(*) FROM dur_owners WHERE server_start <> (extract(epoch FROM"
                       " pg_postmaster_start_time()) * 1000)::bigint") > 0)
        pause_ms(20);
    atomic_store(&a->restarted, true);
}

static void *breaker_main(void *data) {
    all *a = data;
    PGconn *db = connect_somehow(a);
    uint64_t next_kill = monotonic_ms() + 500;
    while (!atomic_load(&a->done)) {
        pause_ms(300);
        terminate_some(a, db);
        if (!atomic_load(&a->restarted) && atomic_load(&a->started) >= a->count / 2) restart_server(a, &db);
        if (monotonic_ms() < next_kill) continue;
        kill_one(a, db);
        next_kill = monotonic_ms() + (a->full ? 1500 : 500);
    }
    PQfinish(db);
    return NULL;
}

/* ---- what is asked of them --------------------------------------------------------------------------------------- */

/* The client's own sessions are among those that are terminated: what is not known to have happened is asked again. */
static bool again(int code, const dur_error *err) {
    if (code == DUR_OK) return false;
    if (!err->retryable && code != DUR_EUNKNOWN) fail_msg("%s: %s", err->op, err->message);
    pause_ms(5);
    return true;
}

static void start_all(all *a) {
    dur_error err = DUR_ERROR_INIT;
    char id[32];
    int code;
    for (size_t i = 0; i < a->count; i++) {
        snprintf(id, sizeof(id), "w%zu", i);
        do
            code = dur_client_start(a->client, &err, "Work", id, .instance = id, .exists = DUR_START_RETURN_EXISTING);
        while (again(code, &err));
        do
            code = dur_client_send(a->client, &err, id, "q", id, .message_id = "only");
        while (again(code, &err));
        atomic_store(&a->started, i + 1);
        pause_ms(10); /* spread over a few kills */
    }
}

static size_t finished(all *a) {
    dur_system_metrics metrics = { 0 };
    dur_error err = DUR_ERROR_INIT;
    int code;
    do
        code = dur_store_get_system_metrics(a->store, &metrics, &err);
    while (again(code, &err));
    assert_int_equal(metrics.failed, 0);
    return metrics.completed;
}

static void check_history(all *a, const char *id) {
    dur_arena *arena = dur_arena_new();
    dur_event_row *rows;
    size_t count;
    dur_error err = DUR_ERROR_INIT;
    int code;
    do
        code = dur_store_read(a->store, arena, id, 0, &rows, &count, &err);
    while (again(code, &err));
    assert_true(count > 0);
    size_t completions = 0;
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(rows[i].event_id, i + 1);
        if (strstr(rows[i].json.data, "ActivityCompleted") != NULL) completions++;
    }
    assert_int_equal(completions, STEPS);
    dur_arena_free(arena);
}

static int by_size(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return x < y ? -1 : x > y;
}

/*
 * Ids that a node used, deleted by another while it did: it was not killed before, and had not taken a new id by itself
 * (who is told that he was taken for dead takes one after that).
 */
static const char alive_sql[] =
    "SELECT count(*) FROM test_gone g WHERE g.owner = $1 AND g.by_whom <> 'node_' || split_part($1, '-', 1) AND NOT"
    " EXISTS (SELECT 1 FROM test_killed k WHERE k.name = split_part($1, '-', 1) AND k.at < g.at) AND NOT EXISTS (SELECT"
    " 1 FROM test_used u JOIN test_used m ON m.owner = $1 AND split_part(u.owner, '-', 1) = split_part($1, '-', 1) AND"
    " u.since > m.since WHERE to_timestamp(u.since) < g.at)";

static long taken_alive(PGconn *db) {
    long taken = 0;
    char line[200], sql[300];
    number(db, "CREATE TEMPORARY TABLE test_used (owner text, since float8)");
    FILE *used = fopen("owners.txt", "r");
    assert_non_null(used);
    while (fgets(line, sizeof(line), used) != NULL) {
        snprintf(sql, sizeof(sql), "INSERT INTO test_used VALUES ('%.*s', %s)", (int)strcspn(line, " "), line,
                 line + strcspn(line, " "));
        number(db, sql);
    }
    rewind(used);
    while (fgets(line, sizeof(line), used) != NULL) {
        line[strcspn(line, " ")] = '\0';
        PGresult *result = PQexecParams(db, alive_sql, 1, NULL, (const char *const[]){ line }, NULL, NULL, 0);
        if (PQresultStatus(result) != PGRES_TUPLES_OK) fail_msg("%s", PQresultErrorMessage(result));
        bool found = PQgetvalue(result, 0, 0)[0] != '0';
        PQclear(result);
        if (found) printf("# %s was taken for dead while it lived\n", line);
        taken += found;
    }
    fclose(used);
    return taken;
}

/* Was it the logic or the machine?  The looks of the others (each is a beat) around the end of the slowest, from when
   it was killed: a second apart, an early one when it seemed dead, and then it is gone. */
static const char slowest_sql[] =
    "SELECT string_agg(format('%s %s', (extract(epoch FROM e.at - k.at) * 1000)::bigint, e.what), ', ' ORDER BY e.at)"
    " FROM test_killed k, LATERAL (SELECT b.at, split_part(b.owner, '-', 1) AS what FROM test_beats b WHERE b.at"
    " BETWEEN k.at - interval '1.1 s' AND k.at + interval '4 s' UNION ALL SELECT g.at, 'GONE by ' || g.by_whom FROM"
    " test_gone g WHERE split_part(g.owner, '-', 1) = k.name AND g.at > k.at) e WHERE k.name = $1 AND e.at <="
    " coalesce((SELECT max(g.at) FROM test_gone g WHERE split_part(g.owner, '-', 1) = k.name), 'infinity')";

/* How long it took until the killed were found dead; the rest of their time is that of the claim. */
static const char found_sql[] =
    "SELECT format('%s ms (median), %s ms (worst)', percentile_disc(0.5) WITHIN GROUP (ORDER BY t.ms), max(t.ms)) FROM"
    " (SELECT (extract(epoch FROM max(g.at) - k.at) * 1000)::bigint AS ms FROM test_killed k JOIN test_gone g ON"
    " split_part(g.owner, '-', 1) = k.name AND g.at > k.at GROUP BY k.name, k.at) t";

static void print_slowest(all *a, PGconn *db) {
    PGresult *found = PQexec(db, found_sql);
    if (PQresultStatus(found) != PGRES_TUPLES_OK) fail_msg("%s", PQresultErrorMessage(found));
    printf("# of that, until it was found dead: %s\n", PQgetvalue(found, 0, 0));
    PQclear(found);
    PGresult *result = PQexecParams(db, slowest_sql, 1, NULL, (const char *const[]){ a->slowest }, NULL, NULL, 0);
    if (PQresultStatus(result) != PGRES_TUPLES_OK) fail_msg("%s", PQresultErrorMessage(result));
    printf("# the slowest, %s, claimed after %ld ms: looks at %s\n", a->slowest, a->worst_ms, PQgetvalue(result, 0, 0));
    PQclear(result);
}

static void report(all *a) {
    PGconn *db = connect_somehow(a);
    long alive = taken_alive(db);
    qsort(a->waits_ms, a->kills, sizeof(a->waits_ms[0]), by_size);
    printf("# %zu instances on %d nodes: %zu killed, %zu sessions terminated, the server %s\n", a->count, NODES,
           a->kills, a->terminated, a->restarted ? "restarted once" : "not restarted");
    printf("# work of a killed node was taken over after %ld ms (median), %ld ms (worst); %ld dead taken over, %ld"
           " take-overs from live owners\n",
           a->kills > 0 ? a->waits_ms[a->kills / 2] : 0, a->kills > 0 ? a->waits_ms[a->kills - 1] : 0,
           number(db, "SELECT count(*) FROM test_gone"), alive);
    print_slowest(a, db);
    assert_int_equal(alive, 0);
    assert_true(a->kills > 0 && a->terminated > 0 && a->restarted);
    assert_int_equal(number(db, "SELECT count(*) FROM dur_worker"), 0);
    assert_int_equal(number(db, "SELECT count(*) FROM dur_queue"), 0);
    if (a->full) assert_true(a->waits_ms[a->kills - 1] < RECOVERY_MS_MAX);
    PQfinish(db);
}

static void nodes_and_sessions_die(void **state) {
    all *a = *state;
    dur_error err = DUR_ERROR_INIT;
    char id[32];
    char *result;
    pthread_t breaker;
    assert_int_equal(pthread_create(&breaker, NULL, breaker_main, a), 0);
    start_all(a);
    uint64_t began = monotonic_ms();
    while (finished(a) < 2 * a->count || !atomic_load(&a->restarted)) {
        if (monotonic_ms() - began > patience_ms()) fail_msg("%zu of %zu have ended", finished(a), 2 * a->count);
        pause_ms(100);
    }
    atomic_store(&a->done, true);
    pthread_join(breaker, NULL);
    for (size_t i = 0; i < a->count; i++) {
        int code;
        snprintf(id, sizeof(id), "w%zu", i);
        do
            code = dur_client_result(&result, a->client, id, DUR_SECONDS(5), &err);
        while (again(code, &err));
        assert_string_equal(result, id);
        dur_free(result);
        check_history(a, id);
    }
    int code = dur_provider_check(a->store, &err);
    if (code != DUR_OK) fail_msg("%s", err.message);
    report(a); /* while all live: those that end below say no goodbye, and the others take them over */
    for (size_t i = 0; i < NODES; i++) {
        node_end(a->nodes[i]);
        a->nodes[i] = 0;
    }
}

static const char witness_sql[] =
    "CREATE TABLE test_killed (name text, at timestamptz);"
    "CREATE TABLE test_gone (owner text, at timestamptz, by_whom text);"
    "CREATE FUNCTION test_witness() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('INSERT INTO"
    " %I.test_gone VALUES ($1, clock_timestamp(), current_setting(''application_name''))', TG_TABLE_SCHEMA) USING"
    " OLD.owner; RETURN OLD; END $$;"
    "CREATE TRIGGER test_gone AFTER DELETE ON dur_owners FOR EACH ROW EXECUTE FUNCTION test_witness();"
    "CREATE TABLE test_beats (owner text, at timestamptz);"
    "CREATE FUNCTION test_beat() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE format('INSERT INTO"
    " %I.test_beats VALUES ($1, clock_timestamp())', TG_TABLE_SCHEMA) USING NEW.owner; RETURN NEW; END $$;"
    "CREATE TRIGGER test_beats AFTER UPDATE ON dur_owners FOR EACH ROW EXECUTE FUNCTION test_beat()";

int main(int argc, char **argv) {
    static all a;
    dur_postgres_register(NULL);
    if (argc == 4 && strcmp(argv[1], "--node") == 0) return node_main(argv[2], argv[3]);
    pg_private_server(argv);
    a.server = getenv("DURITE_TEST_POSTGRES");
    if (a.server == NULL) {
        puts("1..1\nok 1 - nodes_and_sessions_die # SKIP no PostgreSQL server on this machine");
        return 0;
    }
    const char *seed = getenv("DURITE_TEST_SEED");
    a.seed = seed != NULL ? (unsigned)strtoul(seed, NULL, 10) : (unsigned)time(NULL);
    fprintf(stderr, "seed %u\n", a.seed);
    unlink("owners.txt"); /* the runner gives each program a folder of its own */
    a.count = scaled(200, 40);
    a.full = a.count >= 2000;
    snprintf(a.schema, sizeof(a.schema), "crash");
    snprintf(a.url, sizeof(a.url), "%s&schema=%s&application_name=node_client", a.server, a.schema);
    dur_error err = DUR_ERROR_INIT;
    if (dur_open(&a.store, a.url, &err) != DUR_OK || dur_client_new(&a.client, a.store, &err) != DUR_OK) {
        fprintf(stderr, "%s: %s\n", err.op, err.message);
        return 1;
    }
    PGconn *db = connect_somehow(&a);
    number(db, witness_sql);
    PQfinish(db);
    for (size_t i = 0; i < NODES; i++)
        node_spawn(&a, i);
    const struct CMUnitTest tests[] = { cmocka_unit_test_prestate(nodes_and_sessions_die, &a) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int i = 0; i < NODES; i++) {
        if (a.nodes[i] == 0) continue;
        kill(a.nodes[i], SIGKILL);
        waitpid(a.nodes[i], NULL, 0);
    }
    dur_client_free(a.client);
    dur_provider_close(a.store);
    return failed;
}
