/*
 * hostile_neighbours.c: what administrators, poolers and other applications do with the server that a store is on.
 */
#include "neighbour.h"

#ifdef HAVE_LIBPQ

/* ---- a workflow that uses everything a store has ----------------------------------------------------------------- */

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome child(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input)));
}

/* Twice: the first execution continues as new. */
static dur_outcome everything(dur_ctx *ctx, const char *input) {
    dur_status_set(ctx, "begun");
    dur_kv_set(ctx, "key", input);
    dur_future *both[] = { dur_activity(ctx, "Echo", input), dur_activity(ctx, "Echo", input, .session = input) };
    dur_join_n(both, 2);
    dur_await(dur_activity(ctx, "Echo", input));
    dur_await(dur_orchestration(ctx, "Child", input));
    dur_await(dur_timer(ctx, 1));
    const char *late = NULL;
    dur_try_for(dur_event(ctx, "Never"), 1, &late);
    const char *message = dur_await(dur_dequeue(ctx, "box"));
    if (strcmp(message, "again") == 0) return dur_continue_as_new(ctx, input);
    return dur_complete(ctx, message);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ORCHESTRATION("Child", "1.0.0", child),
    DUR_ORCHESTRATION("Everything", "1.0.0", everything),
    DUR_HANDLERS_END,
};

static void do_everything(world *w, const char *instance) {
    start(w, "Everything", instance, instance);
    OK(w, dur_client_enqueue(w->client, &w->err, instance, "box", "again", .message_id = "1"));
    OK(w, dur_client_enqueue(w->client, &w->err, instance, "box", "done", .message_id = "2"));
    expect(w, instance, "done");
}

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
    RUN(w, handlers);
    do_everything(w, "before");
    start(w, "Everything", "taken", "taken"); /* its lease is taken away, of which the node is told */
    until_history(w, "taken", "ExternalSubscribedPersistent", 1);
    OK(w, dur_client_suspend(w->client, "taken", "for a while", &w->err));
    OK(w, dur_client_resume(w->client, "taken", &w->err));
    OK(w, dur_client_enqueue(w->client, &w->err, "taken", "box", "done"));
    expect(w, "taken", "done");
    OK(w, dur_client_delete(NULL, w->client, "before", false, &w->err));
    world_stop(w);
    RUN(w, handlers);
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
    snprintf(sql, sizeof(sql), "SELECT count(*) || ' ' || coalesce(md5(string_agg(t::text, '|' ORDER BY t::text)), '')"
             " FROM replicated.%s t", table);
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
        RUN(w, handlers);
        do_everything(w, i == 0 ? "first" : "second");
        world_stop(w);
    }
    OK(w, dur_client_delete(NULL, w->client, "first", false, &w->err));
    uint64_t end_ms = now_ms() + patience_ms();
    while (!same_tables(here, there)) {
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

#else

static void nothing_without_libpq(void **state) {
    (void)state;
    skip();
}

#endif

static const hostile_role roles[] = {
#ifdef HAVE_LIBPQ
    { "replicated", replicated },
#else
    { "none", NULL },
#endif
};

static const struct CMUnitTest tests[] = {
#ifdef HAVE_LIBPQ
    TEST(fault_h26_every_table_has_a_primary_key),
    TEST(fault_h26_nodes_work_while_all_tables_are_published),
    TEST(fault_h26_all_rows_are_replicated),
#else
    TEST(nothing_without_libpq),
#endif
};

HOSTILE_MAIN(roles, tests)
