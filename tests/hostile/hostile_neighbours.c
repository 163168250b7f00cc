/*
 * hostile_neighbours.c: what administrators and other applications do with the server that a store is on.
 */
#include "neighbour.h"

#ifdef HAVE_LIBPQ

#include <durite/sys/store.h>
#include <pthread.h>

/* ---- replication ------------------------------------------------------------------------------------------------- */

static long tables_without_key(PGconn *db, const char *schema) {
    return pg_number(db,
                     "SELECT count(*) FROM pg_class c WHERE c.relnamespace = '%s'::regnamespace AND c.relkind = 'r' AND"
                     " NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)",
                     schema);
}

static void fault_h26_every_table_has_a_primary_key(void **state) {
    char schema[80];
    if (!on_provider("postgres")) skip();
    schema_of(*state, schema);
    PGconn *db = pg_beside();
    assert_true(pg_number(db, "SELECT count(*) FROM pg_tables WHERE schemaname = '%s'", schema) > 0);
    assert_int_equal(tables_without_key(db, schema), 0);
    PQfinish(db);
}

/* Who replicates rows needs to know them again: then the server refuses changes of a table without a key. */
static void fault_h26_nodes_work_while_all_tables_are_published(void **state) {
    world other = { 0 }, *w = &other;
    char name[40], url[900];
    (void)state;
    snprintf(name, sizeof(name), "published_%d", (int)getpid());
    if (!on_provider("postgres") || !url_of_database(url, sizeof(url), name)) skip();
    PGconn *db = pg_beside();
    pg_do(db, "CREATE DATABASE %s", name); /* all tables: not those of other tests */
    PGconn *there = pg_connect(url);
    pg_do(there, "SET client_min_messages = error; CREATE PUBLICATION everything FOR ALL TABLES");
    snprintf(w->url, sizeof(w->url), "%s&schema=mine", url);
    world_open_store(w);
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    RUN(w, everything_handlers);
    do_everything(w, "before");
    start(w, "Everything", "taken", "taken"); /* its lease is taken away, of which the node is told */
    until_history(w, "taken", "ExternalSubscribedPersistent", 1);
    OK(w, dur_client_suspend(w->client, "taken", "for a while", &w->err));
    OK(w, dur_client_resume(w->client, "taken", &w->err));
    OK(w, dur_client_send(w->client, &w->err, "taken", "box", "done"));
    expect(w, "taken", "done");
    OK(w, dur_client_delete(NULL, w->client, "before", false, &w->err));
    world_stop(w);
    RUN(w, everything_handlers);
    do_everything(w, "after");
    world_stop(w);
    dur_client_free(w->client);
    dur_provider_close(w->store);
    PQfinish(there);
    pg_do(db, "DROP DATABASE %s WITH (FORCE)", name);
    PQfinish(db);
}

/* All rows of a table as one number. */
static char *content_of(PGconn *db, const char *table) {
    char sql[300];
    snprintf(sql, sizeof(sql),
             "SELECT count(*) || ' ' || coalesce(md5(string_agg(t::text, '|' ORDER BY t::text)), '')"
             " FROM replicated.%s t",
             table);
    return pg_text(db, sql);
}

static bool same_content(PGconn *here, PGconn *there, const char *table) {
    char *a = content_of(here, table), *b = content_of(there, table);
    bool same = strcmp(a, b) == 0;
    if (!same) fprintf(stderr, "%s: %s here, %s there\n", table, a, b);
    free(a);
    free(b);
    return same;
}

static bool same_tables(PGconn *here, PGconn *there) {
    bool same = true;
    PGresult *tables = PQexec(here, "SELECT tablename FROM pg_tables WHERE schemaname = 'replicated'");
    if (PQntuples(tables) == 0) fail_msg("no tables");
    for (int i = 0; i < PQntuples(tables); i++)
        same = same && same_content(here, there, PQgetvalue(tables, i, 0));
    PQclear(tables);
    return same;
}

/* On a server of its own, which can be told to write what replication needs: another database gets every row. */
static int replicated(const char *url, long number) {
    world mine = { 0 }, *w = &mine;
    char there_url[900];
    (void)url;
    (void)number;
    setenv("DURITE_TEST_URL", getenv("DURITE_TEST_POSTGRES"), 1);
    if (!url_of_database(there_url, sizeof(there_url), "copy")) return 1;
    PGconn *here = pg_beside();
    pg_do(here, "CREATE DATABASE copy");
    PGconn *there = pg_connect(there_url);
    snprintf(w->url, sizeof(w->url), "%s&schema=replicated", there_url);
    world_open_store(w); /* the tables */
    dur_provider_close(w->store);
    pg_do(there, "TRUNCATE replicated.dur_meta");
    snprintf(w->url, sizeof(w->url), "%s&schema=replicated", getenv("DURITE_TEST_URL"));
    world_open_store(w);
    pg_do(here, "CREATE PUBLICATION everything FOR ALL TABLES");
    pg_do(here, "SELECT pg_create_logical_replication_slot('copying', 'pgoutput')");
    char *folder = pg_text(here, "SHOW unix_socket_directories");
    pg_do(there,
          "CREATE SUBSCRIPTION copying CONNECTION 'host=%s user=durite dbname=postgres' PUBLICATION everything WITH"
          " (create_slot = false, slot_name = copying)",
          folder);
    free(folder);
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    for (int i = 0; i < 2; i++) {
        RUN(w, everything_handlers);
        do_everything(w, i == 0 ? "first" : "second");
        world_stop(w);
    }
    OK(w, dur_client_delete(NULL, w->client, "first", false, &w->err));
    uint64_t end_ms = now_ms() + patience_ms();
    while (!same_tables(here, there)) {
        if (now_ms() > end_ms) return 1;
        pause_ms(50);
    }
    /*
     * A subscription in its publisher's own server must not be dropped before each table's first copy is over: the copy
     * makes a slot, which waits for all transactions of the server, the drop's included, and the drop waits for the
     * slot.
     */
    while (pg_number(there, "SELECT count(*) FROM pg_subscription_rel WHERE srsubstate <> 'r'") > 0) {
        if (now_ms() > end_ms) return 1;
        pause_ms(50);
    }
    pg_do(there, "DROP SUBSCRIPTION copying");
    dur_client_free(w->client);
    dur_provider_close(w->store);
    PQfinish(there);
    PQfinish(here);
    return 0;
}

static void fault_h26_all_rows_are_replicated(void **state) {
    (void)state;
    char self[500], command[1400];
    ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (!on_provider("postgres") || size <= 0 || access(DURITE_SOURCE_DIR "/tools/with-postgres", X_OK) != 0) skip();
    self[size] = '\0';
    snprintf(command, sizeof(command),
             "DURITE_TEST_POSTGRES= DURITE_POSTGRES_SETTINGS='wal_level = logical' '%s/tools/with-postgres' '%s' --node"
             " replicated - 0",
             DURITE_SOURCE_DIR, self);
    assert_int_equal(system(command), 0);
}

/* ---- rows that an administrator has written -----------------------------------------------------------------------
 */

static dur_outcome wait_go(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

/* A number behind which there is none is that instance's trouble, and nobody else's. */
static void fault_h132_a_row_with_the_largest_id_holds_up_nobody(void **state) {
    static const dur_handler with_go[] = {
        DUR_ACTIVITY("Echo", echo),
        DUR_ORCHESTRATION("Child", "1.0.0", child),
        DUR_ORCHESTRATION("Everything", "1.0.0", everything),
        DUR_ORCHESTRATION("WaitGo", "1.0.0", wait_go),
        DUR_HANDLERS_END,
    };
    world *w = *state;
    char schema[80];
    if (!on_provider("postgres")) skip();
    w->broken = true; /* and the check says so */
    schema_of(w, schema);
    for (int events = 1; events <= 2; events++) {
        char id[16];
        snprintf(id, sizeof(id), "full%d", events);
        RUN(w, with_go);
        start(w, "WaitGo", "", id);
        until_history(w, id, "ExternalSubscribed", 1);
        world_stop(w);
        PGconn *db = pg_beside();
        pg_do(
            db,
            "INSERT INTO %s.dur_history (instance_id, execution_id, first_id, at_ms, block, count) SELECT instance_id,"
            " execution_id, 9223372036854775807, at_ms, '[1,\"0\"' || repeat(',[\"K\",{}]', %d) || ']', %d FROM"
            " %s.dur_history WHERE instance_id = '%s' ORDER BY first_id LIMIT 1",
            schema, events, events, schema, id);
        PQfinish(db);
        RUN(w, with_go);
        (void)dur_client_pulse(w->client, &w->err, id, "Go", "x");
        do_everything(w, events == 1 ? "first" : "second");
        world_stop(w);
        assert_int_equal(dur_provider_check(w->store, &w->err), DUR_ECORRUPT); /* and no other error */
    }
}

/* ---- messages to nobody ------------------------------------------------------------------------------------------ */

static int send_to_nobody(dur_provider *store, const char *instance, dur_error *err) {
    dur_arena *arena = dur_arena_new();
    dur_message_row row;
    dur_work_item item = { .kind = DUR_WORK_QUEUE_MESSAGE, .instance = instance, .name = "box", .data = "x" };
    int code = dur_message_row_from_work(&row, arena, &item, err);
    if (code == DUR_OK) code = dur_store_enqueue_for_orchestrator(store, &row, 0, err);
    dur_arena_free(arena);
    return code;
}

static int bury(dur_provider *store, dur_error *err) {
    dur_arena *arena = dur_arena_new();
    dur_orchestration_item item;
    int code = dur_store_fetch_orchestration_item(store, arena, &(dur_fetch){ .lock_ms = 1000 }, &item, err);
    dur_arena_free(arena);
    return code;
}

typedef struct other_process {
    char url[1200], name[40]; /* of its session on the server */
    const char *to;           /* NULL: it buries */
    int code;
    dur_error err;
    _Atomic bool done;
    pthread_t thread;
} other_process;

static void *be_another(void *arg) {
    other_process *self = arg;
    dur_provider *store = NULL;
    self->code = dur_open(&store, self->url, &self->err);
    if (self->code == DUR_OK)
        self->code = self->to != NULL ? send_to_nobody(store, self->to, &self->err) : bury(store, &self->err);
    dur_provider_close(store);
    atomic_store(&self->done, true);
    return NULL;
}

static void another_begins(const world *w, other_process *self, const char *name) {
    snprintf(self->name, sizeof(self->name), "%s_%d", name, (int)getpid());
    snprintf(self->url, sizeof(self->url), "%s&pool=1&application_name=%s", w->url, self->name);
    assert_int_equal(pthread_create(&self->thread, NULL, be_another, self), 0);
}

/* Until it is done, or waits for a lock. */
static void another_has_come_as_far_as_it_can(PGconn *db, other_process *self) {
    for (uint64_t end_ms = now_ms() + patience_ms();
         !atomic_load(&self->done) &&
         pg_number(db,
                   "SELECT count(*) FROM pg_stat_activity WHERE application_name = '%s' AND wait_event_type = 'Lock'",
                   self->name) == 0;
         pause_ms(5))
        if (now_ms() > end_ms) fail_msg("%s neither ends nor waits", self->name);
}

/* While one message is made a dead letter another one is sent to an instance whose turn comes later. */
static void fault_h120_what_is_sent_beside_a_burial_is_buried_once(void **state) {
    world *w = *state;
    char schema[80];
    dur_dead_letter_list *letters = NULL;
    other_process slow = { .to = NULL }, sender = { .to = "second" };
    if (!on_provider("postgres")) skip();
    schema_of(w, schema);
    PGconn *db = pg_beside(), *holder = pg_beside();
    OK(w, send_to_nobody(w->store, "first", &w->err));
    OK(w, send_to_nobody(w->store, "second", &w->err));
    pg_do(db, "UPDATE %s.dur_instances SET ready_at = ready_at - 1000 WHERE instance_id = 'first'", schema);
    pg_do(db,
          "CREATE FUNCTION %s.stand_still() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF"
          " current_setting('application_name') LIKE 'slow_%%' THEN PERFORM pg_advisory_xact_lock(%d); END IF; RETURN"
          " OLD; END $$",
          schema, (int)getpid());
    pg_do(db, "CREATE TRIGGER stand_still BEFORE DELETE ON %s.dur_queue FOR EACH ROW EXECUTE FUNCTION %s.stand_still()",
          schema, schema);
    pg_do(holder, "SELECT pg_advisory_lock(%d)", (int)getpid());
    another_begins(w, &slow, "slow");
    another_has_come_as_far_as_it_can(db, &slow);
    assert_false(atomic_load(&slow.done));
    another_begins(w, &sender, "sender");
    another_has_come_as_far_as_it_can(db, &sender);
    pg_do(holder, "SELECT pg_advisory_unlock(%d)", (int)getpid());
    pthread_join(slow.thread, NULL);
    pthread_join(sender.thread, NULL);
    PQfinish(holder);
    PQfinish(db);
    if (slow.code != DUR_OK) fail_msg("%s", slow.err.message);
    if (sender.code != DUR_OK) fail_msg("%s", sender.err.message);
    OK(w, dur_provider_check(w->store, &w->err));
    OK(w, bury(w->store, &w->err));
    OK(w, dur_client_dead_letters(&letters, w->client, 0, 10, &w->err));
    assert_int_equal(letters->count, 3);
    dur_dead_letter_list_free(letters);
}

/* ---- settings of the role ---------------------------------------------------------------------------------------- */

/* A role of this test, with what an administrator has thought up for applications. */
static void make_strict_role(PGconn *db, const char *role) {
    static const char *const settings[] = {
        "statement_timeout = 1",
        "lock_timeout = 1",
        "idle_in_transaction_session_timeout = 1",
        "default_transaction_read_only = on",
        "default_transaction_isolation = serializable",
        "enable_indexscan = off",
        "enable_nestloop = off",
    };
    pg_do(db, "CREATE ROLE %s SUPERUSER LOGIN", role);
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        pg_do(db, "ALTER ROLE %s SET %s", role, settings[i]);
    if (PQserverVersion(db) >= 140000) pg_do(db, "ALTER ROLE %s SET idle_session_timeout = 1", role);
    if (PQserverVersion(db) >= 170000) pg_do(db, "ALTER ROLE %s SET transaction_timeout = 1", role);
}

static void fault_h23_timeouts_of_the_role_are_not_ours(void **state) {
    world *w = *state;
    char role[40], url[900];
    if (!on_provider("postgres")) skip();
    snprintf(role, sizeof(role), "strict_%d", (int)getpid());
    PGconn *db = pg_beside();
    make_strict_role(db, role);
    snprintf(url, sizeof(url), "%s&user=%s", getenv("DURITE_TEST_URL"), role); /* the last one counts */
    world other = elsewhere(w, url);
    RUN(&other, everything_handlers);
    do_everything(&other, "x");
    leave(&other);
    drop_role(db, role);
    PQfinish(db);
}

/* Behind a pooler each transaction says what it needs; no pooler is needed to see that. */
static void fault_h119_a_role_that_only_reads_by_default_writes(void **state) {
    world *w = *state;
    char role[40], url[900];
    if (!on_provider("postgres")) skip();
    snprintf(role, sizeof(role), "reads_%d", (int)getpid());
    PGconn *db = pg_beside();
    pg_do(db, "CREATE ROLE %s SUPERUSER LOGIN", role);
    pg_do(db, "ALTER ROLE %s SET default_transaction_read_only = on", role);
    pg_do(db, "ALTER ROLE %s SET default_transaction_isolation = serializable", role);
    pg_do(db, "ALTER ROLE %s SET default_transaction_deferrable = on", role);
    snprintf(url, sizeof(url), "%s&pooler=transaction&user=%s", getenv("DURITE_TEST_URL"), role);
    world other = elsewhere(w, url);
    RUN(&other, everything_handlers);
    do_everything(&other, "x");
    OK(&other, dur_client_delete(NULL, other.client, "x", true, &other.err));
    leave(&other);
    drop_role(db, role);
    PQfinish(db);
}

/* ---- what newcomers get wrong is said, and what to do ------------------------------------------------------------ */

static void expect_told(const char *url, int code, const char *const *words) {
    dur_provider *store = NULL;
    dur_error err = DUR_ERROR_INIT;
    int got = dur_open(&store, url, &err);
    if (got != code) fail_msg("%s instead of %s: %s", dur_code_name(got), dur_code_name(code), err.message);
    for (; *words != NULL; words++)
        if (strstr(err.message, *words) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.message, *words);
    dur_provider_close(store);
}
#define TOLD(url, code, ...) expect_told(url, code, (const char *const[]){ __VA_ARGS__, NULL })

static void errors_say_which_rights_a_role_needs(void **state) {
    world *w = *state;
    char role[40], url[900], schema[80], full[1000];
    if (!on_provider("postgres")) skip();
    schema_of(w, schema);
    snprintf(role, sizeof(role), "new_%d", (int)getpid());
    PGconn *db = pg_beside();
    pg_do(db, "CREATE ROLE %s LOGIN", role);
    snprintf(url, sizeof(url), "%s&user=%s", getenv("DURITE_TEST_URL"), role);
    snprintf(full, sizeof(full), "%s&schema=none_%s", url, role);
    TOLD(full, DUR_EPERM, "does not exist", role, "CREATE SCHEMA", "AUTHORIZATION");
    pg_do(db, "CREATE SCHEMA theirs_%s", role);
    snprintf(full, sizeof(full), "%s&schema=theirs_%s", url, role);
    TOLD(full, DUR_EPERM, role, "USAGE on schema");
    pg_do(db, "GRANT USAGE ON SCHEMA theirs_%s TO %s", role, role);
    TOLD(full, DUR_EPERM, role, "GRANT USAGE, CREATE ON SCHEMA");
    pg_do(db, "DROP SCHEMA theirs_%s", role);
    snprintf(full, sizeof(full), "%s&schema=%s&migrate=0", url, schema);
    TOLD(full, DUR_EPERM, role, "GRANT");
    pg_do(db, "GRANT USAGE ON SCHEMA %s TO %s", schema, role);
    TOLD(full, DUR_EPERM, role, "GRANT", "TABLES");
    pg_do(db, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %s", schema, role);
    pg_do(db, "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA %s TO %s", schema, role);
    snprintf(url, sizeof(url), "%s&migrate=0&user=%s", getenv("DURITE_TEST_URL"), role);
    world other = elsewhere(w, url);
    RUN(&other, everything_handlers);
    do_everything(&other, "x");
    leave(&other);
    drop_role(db, role);
    PQfinish(db);
}

static void errors_say_how_a_url_looks(void **state) {
    (void)state;
    if (!on_provider("postgres")) skip();
    TOLD("postgres:", DUR_EINVAL, "postgres://");
    TOLD("postgres:orders", DUR_EINVAL, "postgres://");
    TOLD("postgresql:", DUR_EINVAL, "postgres://");
}

/* ---- a take-over that is refused --------------------------------------------------------------------------------- */

static atomic_uint refusals_told;

static void hear_refusals(void *data, const dur_log_record *record) {
    (void)data;
    if (strstr(record->message, "cannot be taken over yet") == NULL) return;
    for (size_t i = 0; i < record->field_count; i++)
        if (strcmp(record->fields[i].key, "owner") == 0) atomic_fetch_add(&refusals_told, 1);
}

/* Another process that holds a lease. */
static int holds_a_lease(const char *url, long number) {
    world mine = { 0 }, *w = &mine;
    (void)number;
    snprintf(w->url, sizeof(w->url), "%s", url);
    world_open_store(w);
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    RUN(w, everything_handlers);
    start(w, "Everything", "x", "x");
    pause();
    return 0;
}

static void fault_h23_a_refused_take_over_is_told(void **state) {
    world *w = *state;
    char schema[80];
    if (!on_provider("postgres")) skip();
    schema_of(w, schema);
    pid_t node = node_spawn("holds_a_lease", w->url, 0, -1);
    until_history(w, "x", "ExternalSubscribedPersistent", 1);
    PGconn *db = pg_beside();
    pg_do(db, "BEGIN; SELECT 1 FROM %s.dur_instances WHERE instance_id = 'x' FOR UPDATE", schema);
    atomic_store(&refusals_told, 0);
    OK(w, dur_log_set_sink(hear_refusals, NULL, DUR_LOG_WARN));
    node_kill(node);
    RUN(w, everything_handlers);
    for (uint64_t end_ms = now_ms() + patience_ms(); atomic_load(&refusals_told) == 0; pause_ms(10))
        if (now_ms() > end_ms) fail_msg("nothing was said");
    pg_do(db, "COMMIT");
    OK(w, dur_client_send(w->client, &w->err, "x", "box", "done"));
    expect(w, "x", "done");
    OK(w, dur_log_set_sink(NULL, NULL, DUR_LOG_WARN));
    PQfinish(db);
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static size_t listed(world *w, dur_instance_status status, size_t limit) {
    dur_instance_list *list = NULL;
    OK(w, dur_client_list(&list, w->client, DUR_LIST(.status = status, .limit = limit), &w->err));
    size_t count = list->count;
    dur_instance_list_free(list);
    return count;
}

/* 1 in 50 fails, 1 in 50 waits; one half by way of messages, the other alone. */
static dur_outcome ends_somehow(dur_ctx *ctx, const char *input) {
    long number = strtol(input, NULL, 10);
    if (number % 2 == 0) dur_await(dur_orchestration(ctx, "Child", input));
    if (number % 50 == 1 || number % 50 == 2) return dur_fail(ctx, "as it should");
    if (number % 50 == 3 || number % 50 == 4) dur_await(dur_pulse(ctx, "Never"));
    return dur_complete(ctx, input);
}

static const dur_handler list_handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("Child", "1.0.0", child),
    DUR_ORCHESTRATION("EndsSomehow", "1.0.0", ends_somehow),
    DUR_HANDLERS_END,
};

static void make_instances(world *w, size_t count) {
    dur_runs *runs = NULL;
    const dur_run *run = NULL;
    OK(w, dur_runs_new(&runs, w->client, &w->err));
    for (size_t i = 0; i < count; i++) {
        char id[24];
        snprintf(id, sizeof(id), "%zu", i);
        OK(w, dur_runs_start(runs, &w->err, "EndsSomehow", id, .instance = id));
    }
    for (size_t ended = count / 50 * 48; ended > 0; ended--)
        OK(w, dur_runs_next(&run, runs, patience_ms(), &w->err));
    dur_runs_free(runs);
}

static void fault_h39_a_list_by_status_reads_what_it_lists(void **state) {
    world *w = *state;
    static const dur_instance_status all[] = { DUR_INSTANCE_RUNNING, DUR_INSTANCE_FAILED };
    size_t count = scaled(1000, 200) / 50 * 50;
    char schema[80], url[900];
    if (!on_provider("postgres")) skip();
    PGconn *db = pg_beside();
    schema_of(w, schema);
    snprintf(url, sizeof(url), "%s&application_name=lists_%d", getenv("DURITE_TEST_URL"), (int)getpid());
    world maker = elsewhere(w, url);
    RUN(&maker, list_handlers);
    make_instances(&maker, count);
    leave(&maker);
    pg_do(db, "ANALYZE"); /* as autovacuum does */
    until_gone(db, strrchr(url, '=') + 1);
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        long before = rows_visited(db, schema);
        world looker = elsewhere(w, url);
        assert_int_equal(listed(&looker, all[i], 0), count / 25);
        assert_int_equal(listed(&looker, all[i], 3), 3);
        leave(&looker);
        until_gone(db, strrchr(url, '=') + 1);
        long visited = rows_visited(db, schema) - before;
        printf("# status %d: %ld rows read of %zu instances\n", (int)all[i], visited, count);
        assert_true(visited < (long)(count / 2));
    }
    PQfinish(db);
}

/* ---- URLs -------------------------------------------------------------------------------------------------------- */

static void fault_h38_an_unknown_parameter_is_named(void **state) {
    world *w = *state;
    char url[1100];
    dur_provider *store = NULL;
    if (!on_provider("postgres")) skip();
    snprintf(url, sizeof(url), "%s&nonsense=7", w->url);
    assert_int_equal(dur_open(&store, url, &w->err), DUR_EINVAL);
    assert_non_null(strstr(w->err.message, "nonsense"));
}

/* BUILD/bin/durite-bench; false: it was not built. */
static bool find_bench(char out[600]) {
    char self[500];
    ssize_t size = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (size <= 0) return false;
    self[size] = '\0';
    *strrchr(self, '/') = '\0'; /* BUILD/tests */
    snprintf(out, 600, "%s/../bin/durite-bench", self);
    return access(out, X_OK) == 0;
}

/* What it prints for a URL. */
static void run_bench(const char *bench, const char *url, char *out, size_t room) {
    char command[1800];
    snprintf(command, sizeof(command), "'%s' --quick --no-probes --url '%s' idle 2>&1", bench, url);
    FILE *pipe = popen(command, "r");
    size_t used = 0;
    for (int c; (c = fgetc(pipe)) != EOF && used + 1 < room;)
        out[used++] = (char)c;
    out[used] = '\0';
    if (pclose(pipe) != 0) fail_msg("%s", out);
}

static void fault_h38_the_bench_takes_a_schema_and_says_what_it_does_not_count(void **state) {
    world *w = *state;
    char name[40], url[900], text[4000], schema[80], bench[600];
    snprintf(name, sizeof(name), "uncounted_%d", (int)getpid());
    if (!on_provider("postgres") || !url_of_database(url, sizeof(url), name) || !find_bench(bench)) skip();
    PGconn *db = pg_beside();
    schema_of(w, schema);
    run_bench(bench, w->url, text, sizeof(text));
    assert_non_null(strstr(text, "statements="));
    assert_int_equal(pg_number(db, "SELECT count(*) FROM pg_namespace WHERE nspname = '%s'", schema), 1); /* still */
    pg_do(db, "CREATE DATABASE %s", name);
    PGconn *there = pg_connect(url);
    /* A role that may not make the extension, in a database that has none. */
    pg_do(there, "CREATE ROLE %s LOGIN; GRANT CREATE ON DATABASE %s TO %s", name, name, name);
    char as_role[1000];
    snprintf(as_role, sizeof(as_role), "%s&user=%s", url, name);
    run_bench(bench, as_role, text, sizeof(text));
    assert_non_null(strstr(text, "statements=\"not counted\""));
    PQfinish(there);
    pg_do(db, "DROP DATABASE %s WITH (FORCE)", name);
    pg_do(db, "DROP ROLE %s", name);
    PQfinish(db);
}

#else

static void nothing_without_libpq(void **state) {
    (void)state;
    skip();
}

#endif

static const hostile_role roles[] = {
#ifdef HAVE_LIBPQ
    { "replicated", replicated },
    { "holds_a_lease", holds_a_lease },
#else
    { "none", NULL },
#endif
};

static const struct CMUnitTest tests[] = {
#ifdef HAVE_LIBPQ
    TEST(fault_h26_every_table_has_a_primary_key),
    TEST(fault_h26_nodes_work_while_all_tables_are_published),
    TEST(fault_h26_all_rows_are_replicated),
    TEST(fault_h132_a_row_with_the_largest_id_holds_up_nobody),
    TEST(fault_h120_what_is_sent_beside_a_burial_is_buried_once),
    TEST(fault_h23_timeouts_of_the_role_are_not_ours),
    TEST(errors_say_which_rights_a_role_needs),
    TEST(errors_say_how_a_url_looks),
    TEST(fault_h119_a_role_that_only_reads_by_default_writes),
    TEST(fault_h23_a_refused_take_over_is_told),
    TEST(fault_h39_a_list_by_status_reads_what_it_lists),
    TEST(fault_h38_an_unknown_parameter_is_named),
    TEST(fault_h38_the_bench_takes_a_schema_and_says_what_it_does_not_count),
#else
    TEST(nothing_without_libpq),
#endif
};

HOSTILE_MAIN(roles, tests)
