/*
 * hostile_checks.c: a store in which somebody waits for ever is found by dur_provider_check, and what a runtime does
 * not know of is found by dur_runtime_check.  The rows are planted: this file, and no other here, knows the tables.
 */
#include "hostile.h"

#include <sqlite3.h>
#ifdef HAVE_LIBPQ
#include <libpq-fe.h>
#endif

/* ---- planting ---------------------------------------------------------------------------------------------------- */

#ifdef HAVE_LIBPQ
/* Tables of PostgreSQL are in the schema that the URL names. */
static void plant_postgres(world *w, const char *sql) {
    char url[sizeof(w->url)], path[128], *schema;
    snprintf(url, sizeof(url), "%s", w->url);
    schema = strstr(url, "schema=");
    assert_non_null(schema);
    snprintf(path, sizeof(path), "SET search_path TO %s", schema + strlen("schema="));
    schema[-1] = '\0';
    PGconn *db = PQconnectdb(url);
    if (PQstatus(db) != CONNECTION_OK) fail_msg("%s", PQerrorMessage(db));
    PQclear(PQexec(db, path));
    PGresult *result = PQexec(db, sql);
    if (PQresultStatus(result) != PGRES_COMMAND_OK) fail_msg("%s: %s", sql, PQerrorMessage(db));
    if (atoi(PQcmdTuples(result)) == 0) fail_msg("%s: no row", sql);
    PQclear(result);
    PQfinish(db);
}
#endif

static void plant_sqlite(world *w, const char *sql) {
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(w->url + strlen("sqlite:"), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 60000);
    char *why = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK) fail_msg("%s: %s", sql, why);
    if (sqlite3_changes(db) == 0) fail_msg("%s: no row", sql);
    sqlite3_close(db);
}

static void plant(world *w, const char *sqlite, const char *postgres) {
    w->broken = true;
    if (on_provider("sqlite:")) plant_sqlite(w, sqlite);
#ifdef HAVE_LIBPQ
    if (on_provider("postgres")) plant_postgres(w, postgres);
#endif
}

/* Memory has no tables: tests/unit/test_memory_check.c breaks it from inside. */
static void needs_tables(void) {
    if (!on_provider("sqlite:") && !on_provider("postgres")) skip();
}

static void fine(world *w) {
    OK(w, dur_provider_check(w->store, &w->err));
}

/* The check names the table, who, and what. */
static void found(world *w, const char *who, const char *what) {
    assert_int_equal(dur_provider_check(w->store, &w->err), DUR_ECORRUPT);
    if (strstr(w->err.message, "dur_") == NULL || strstr(w->err.message, who) == NULL ||
        strstr(w->err.message, what) == NULL)
        fail_msg("\"%s\" lacks a table, \"%s\" or \"%s\"", w->err.message, who, what);
}

static void found_in_history(world *w, const char *who) {
    assert_int_equal(dur_provider_check(w->store, &w->err), DUR_ECORRUPT);
    if (strstr(w->err.message, who) == NULL || strstr(w->err.message, "its parent") == NULL)
        fail_msg("\"%s\" lacks \"%s\" or its parent", w->err.message, who);
}

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static dur_outcome patient(dur_act *act, const char *input) {
    while (!dur_act_sleep(act, 1000)) {
    }
    return dur_act_complete(act, input);
}

static dur_outcome wait_event(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "Echo", input));
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "E")));
}

static dur_outcome wait_queue(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "Echo", input));
    return dur_complete(ctx, dur_await(dur_message(ctx, "q")));
}

static dur_outcome wait_work(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Patient", input)));
}

static dur_outcome wait_session(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Patient", input, .session = "s")));
}

static dur_outcome calls_a_child(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Event", "", .instance = input)));
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("Calls", "1.0.0", calls_a_child),
    DUR_ACTIVITY("Echo", echo),
    DUR_ACTIVITY("Patient", patient),
    DUR_ORCHESTRATION("Event", "1.0.0", wait_event),
    DUR_ORCHESTRATION("Queue", "1.0.0", wait_queue),
    DUR_ORCHESTRATION("Work", "1.0.0", wait_work),
    DUR_ORCHESTRATION("Session", "1.0.0", wait_session),
    DUR_HANDLERS_END,
};

/* An instance that waits; the node has stopped. */
static void left_waiting(world *w, const char *name, const char *instance, const char *event) {
    RUN(w, handlers);
    start(w, name, "", instance);
    until_history(w, instance, event, 1);
    fine(w);
    world_stop(w);
    fine(w);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void set_and_found(world *w, const char *table, const char *set, const char *back, const char *what) {
    char sql[256], undo[256];
    bool postgres = on_provider("postgres");
    snprintf(sql, sizeof(sql), "UPDATE %s SET %s", table, set);
    snprintf(undo, sizeof(undo), "UPDATE %s SET %s", table, back);
    plant(w, sql, sql);
    found(w, postgres ? "" : table, what);
    plant(w, undo, undo);
    w->broken = false;
    fine(w);
}

static void fault_h185_a_value_that_cannot_be_is_found(void **state) {
    world *w = *state;
    needs_tables();
    left_waiting(w, "Event", "a", "\"ExternalSubscribed\"");
    if (on_provider("postgres")) {
        set_and_found(w, "dur_instances", "status = 99", "status = 1", "status is 99");
        set_and_found(w, "dur_instances", "created_at = -5", "created_at = 5", "below 0");
        return;
    }
    static const char *const sets[][3] = {
        { "status=99", "status=1", "status is 99" },
        { "status='Completd'", "status=1", "status is 'Completd'" },
        { "look=3", "look=0", "look is 3" },
        { "ready_at='soon'", "ready_at=NULL", "ready_at is 'soon'" },
        { "execution=-5", "execution=1", "execution is -5" },
        { "created=1.5", "created=5", "created is 1.5" },
        { "id=x'ff00'", "id='a'", "id is X'FF00'" },
        { "output=x'fffe'", "output=NULL", "output is X'FFFE'" },
        { "crashes=CAST('x' AS BLOB)", "crashes=0", "crashes is X'78'" },
    };
    for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
        set_and_found(w, "dur_instance", sets[i][0], sets[i][1], sets[i][2]);
    set_and_found(w, "dur_history", "at='now'", "at=5", "'a': at is 'now'");
    plant(w, "INSERT INTO dur_kv VALUES((SELECT key FROM dur_instance), 'k', x'00', 1)", NULL);
    found(w, "dur_kv", "'a': value is X'00'");
}

static void fault_h185_a_file_that_does_not_say_its_version_is_none(void **state) {
    world *w = *state;
    dur_provider *again = NULL;
    if (!on_provider("sqlite:")) skip();
    plant(w, "DELETE FROM dur_meta WHERE name='schema'", NULL);
    found(w, "schema", "missing");
    dur_client_free(w->client);
    dur_provider_close(w->store);
    w->client = NULL;
    w->store = NULL;
    assert_int_equal(dur_open(&again, w->url, &w->err), DUR_ECORRUPT);
    plant(w, "INSERT INTO dur_meta VALUES('schema', 'one')", NULL);
    assert_int_equal(dur_open(&again, w->url, &w->err), DUR_ECORRUPT);
    plant(w, "UPDATE dur_meta SET value=1 WHERE name='schema'", NULL);
    w->broken = false;
    world_open_store(w);
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    fine(w);
}

/* ---- rows against rows ------------------------------------------------------------------------------------------- */

static void fault_h02_a_message_that_nobody_would_look_at_is_found(void **state) {
    world *w = *state;
    needs_tables();
    left_waiting(w, "Event", "a", "\"ExternalSubscribed\"");
    OK(w, dur_client_pulse(w->client, &w->err, "a", "E", "x"));
    fine(w);
    plant(w, "UPDATE dur_instance SET ready_at=NULL WHERE id='a'",
          "UPDATE dur_instances SET ready_at = NULL WHERE instance_id = 'a'");
    found(w, "a", "message");
}

static void fault_h02_a_queue_that_nobody_would_look_at_is_found(void **state) {
    world *w = *state;
    needs_tables();
    left_waiting(w, "Queue", "a", "\"ExternalSubscribedPersistent\"");
    OK(w, dur_client_send(w->client, &w->err, "a", "other", "x")); /* it does not wait for this one */
    OK(w, dur_client_send(w->client, &w->err, "a", "q", "x"));
    fine(w);
    plant(w, "UPDATE dur_instance SET ready_at=NULL WHERE id='a'",
          "UPDATE dur_instances SET ready_at = NULL WHERE instance_id = 'a'");
    found(w, "a", "waits for");
}

static void fault_h02_a_message_that_is_looked_at_much_later_is_found(void **state) {
    world *w = *state;
    needs_tables();
    left_waiting(w, "Event", "a", "\"ExternalSubscribed\"");
    OK(w, dur_client_pulse(w->client, &w->err, "a", "E", "x"));
    plant(w, "UPDATE dur_instance SET ready_at=99999999999999 WHERE id='a'",
          "UPDATE dur_instances SET ready_at = 99999999999999, ready_due = 99999999999999 WHERE instance_id = 'a'");
    found(w, "a", "visible");
}

static void fault_h48_rows_of_owners_that_are_gone_are_found(void **state) {
    world *w = *state;
    needs_tables();
    left_waiting(w, "Event", "a", "\"ExternalSubscribed\"");
    plant(w, "UPDATE dur_instance SET token='t', owner='nobody', ready_at=NULL WHERE id='a'",
          "UPDATE dur_instances SET token = 't', owner = 'nobody', ready_at = NULL WHERE instance_id = 'a'");
    found(w, "a", "not registered");
    plant(w, "UPDATE dur_instance SET token=NULL, owner=NULL WHERE id='a'",
          "UPDATE dur_instances SET token = NULL, owner = NULL WHERE instance_id = 'a'");
    fine(w);
    plant(w,
          "INSERT INTO dur_worker(key, execution, activity, seq, token, owner, json) SELECT key, 1, 2, 1, 't', "
          "'nobody', '{}' FROM dur_instance WHERE id='a'",
          "INSERT INTO dur_worker(instance_id, execution_id, activity_id, token, owner, json) VALUES ('a', 1, 2, 't',"
          " 'nobody', '{}')");
    found(w, "a", "not registered");
    plant(w, "DELETE FROM dur_worker", "DELETE FROM dur_worker");
    fine(w);
    plant(w, "INSERT INTO dur_session VALUES('ses', 'n', 'nobody', 0, 0, 0)",
          "INSERT INTO dur_sessions(session_id, holder, owner) VALUES ('ses', 'n', 'nobody')");
    found(w, "ses", "not registered");
}

static void fault_h48_rows_that_belong_to_nothing_are_found(void **state) {
    world *w = *state;
    needs_tables();
    left_waiting(w, "Event", "a", "\"ExternalSubscribed\"");
    plant(w,
          "INSERT INTO dur_worker(key, execution, activity, seq, json) SELECT key, 7, 2, 1, '{}' FROM dur_instance "
          "WHERE id='a'",
          "INSERT INTO dur_worker(instance_id, execution_id, activity_id, json) VALUES ('a', 7, 2, '{}')");
    found(w, "a", "has not begun");
    plant(w, "DELETE FROM dur_worker", "DELETE FROM dur_worker");
    plant(w, "UPDATE dur_instance SET parent='nobody' WHERE id='a'",
          "UPDATE dur_instances SET parent = 'nobody' WHERE instance_id = 'a'");
    found(w, "a", "does not exist");
    plant(w, "UPDATE dur_instance SET parent=NULL WHERE id='a'",
          "UPDATE dur_instances SET parent = NULL WHERE instance_id = 'a'");
    fine(w);
    plant(w, "UPDATE dur_history SET first_id=2 WHERE first_id=1",
          "DELETE FROM dur_history WHERE first_id = (SELECT min(first_id) FROM dur_history)");
    found(w, "a", "before");
}

/* A message that came before a start which is not due waits for that: a node has seen it, and nothing is wrong. */
static void fault_h79_what_waits_for_a_delayed_start_is_in_its_place(void **state) {
    world *w = *state;
    OK(w, dur_client_start(w->client, &w->err, "Event", "", .instance = "a", .delay_ms = DUR_HOURS(1)));
    OK(w, dur_client_pulse(w->client, &w->err, "a", "E", "x"));
    OK(w, dur_client_send(w->client, &w->err, "a", "q", "x"));
    fine(w);
    RUN(w, handlers);
    start(w, "Event", "", "b"); /* behind it in the order of fetching */
    until_history(w, "b", "\"ExternalSubscribed\"", 1);
    fine(w);
    world_stop(w);
    fine(w);
    if (!on_provider("sqlite:") && !on_provider("postgres")) return;
    plant(w, "UPDATE dur_queue SET due=0 WHERE handler IS NOT NULL",
          "UPDATE dur_queue SET due_ms = 0 WHERE handler IS NOT NULL");
    found(w, "a", "visible"); /* the start itself is no such message */
}

/* Nobody would fetch it, nor make dead letters of what it left. */
static void fault_h77_one_that_has_ended_and_cannot_be_fetched_is_found(void **state) {
    world *w = *state;
    needs_tables();
    left_waiting(w, "Event", "a", "\"ExternalSubscribed\"");
    OK(w, dur_client_send(w->client, &w->err, "a", "other", "x"));
    OK(w, dur_client_terminate(w->client, "a", NULL, &w->err)); /* no node is there that would fetch it */
    fine(w);
    plant(w, "UPDATE dur_instance SET suspended='too late' WHERE id='a'",
          "UPDATE dur_instances SET suspended = 'too late' WHERE instance_id = 'a'");
    found(w, "a", "has ended and is suspended");
    OK(w, dur_client_resume(w->client, "a", &w->err)); /* this is what helps */
    fine(w);
    plant(w, "UPDATE dur_instance SET ready_at=NULL WHERE id='a'",
          "UPDATE dur_instances SET ready_at = NULL WHERE instance_id = 'a'");
    found(w, "a", "has ended, and nobody would look");
}

/* A child that says of its parent what the parent's history does not say: each field, and the parent's call. */
static void fault_h06_a_child_of_another_call_is_found(void **state) {
    static const char *const wrong[][2] = { { "\"parent_id\":2", "\"parent_id\":1" },
                                            { "\"parent_instance\":\"parent\"", "\"parent_instance\":\"other\"" } };
    world *w = *state;
    char sqlite[300], postgres[300];
    needs_tables();
    RUN(w, handlers);
    start(w, "Calls", "a", "parent");
    start(w, "Calls", "b", "other");
    until_history(w, "a", "\"ExternalSubscribed\"", 1);
    until_history(w, "b", "\"ExternalSubscribed\"", 1);
    world_stop(w);
    fine(w);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        for (int back = 0; back <= 1; back++) {
            snprintf(sqlite, sizeof(sqlite),
                     "UPDATE dur_history SET block = replace(block, '%s', '%s') WHERE first_id = 1 AND key = "
                     "(SELECT key FROM dur_instance WHERE id='a')",
                     wrong[i][back], wrong[i][!back]);
            snprintf(
                postgres, sizeof(postgres),
                "UPDATE dur_history SET block = replace(block, '%s', '%s') WHERE first_id = 1 AND instance_id = 'a'",
                wrong[i][back], wrong[i][!back]);
            plant(w, sqlite, postgres);
            if (back == 0)
                found_in_history(w, "a");
            else
                fine(w);
        }
    }
    plant(w, "UPDATE dur_instance SET birth = 7 WHERE id='parent'",
          "UPDATE dur_instances SET birth = 7 WHERE instance_id = 'parent'");
    found_in_history(w, "a");
}

/* ---- what a runtime does not know of ----------------------------------------------------------------------------- */

static void unknown(world *w, const char *who) {
    assert_int_equal(dur_runtime_check(w->runtime, &w->err), DUR_ECORRUPT);
    if (strstr(w->err.message, who) == NULL || strstr(w->err.message, "does not know") == NULL)
        fail_msg("\"%s\" lacks \"%s\"", w->err.message, who);
}

static void fault_h04_a_lease_that_its_owner_does_not_know_is_found(void **state) {
    world *w = *state;
    needs_tables();
    left_waiting(w, "Event", "lost", "\"ExternalSubscribed\"");
    RUN(w, handlers, .worker_concurrency = 4); /* two of them wait for ever */
    start(w, "Event", "", "parked");
    start(w, "Work", "", "works");
    start(w, "Session", "", "session");
    until_history(w, "parked", "\"ExternalSubscribed\"", 1);
    until_history(w, "works", "\"ActivityScheduled\"", 1);
    until_history(w, "session", "\"ActivityScheduled\"", 1);
    OK(w, dur_runtime_check(w->runtime, &w->err)); /* what it has it knows */
    plant(w, "UPDATE dur_instance SET token='t', owner=(SELECT id FROM dur_owner), ready_at=NULL WHERE id='lost'",
          "UPDATE dur_instances SET token = 't', owner = (SELECT owner FROM dur_owners), ready_at = NULL WHERE"
          " instance_id = 'lost'");
    fine(w); /* rows alone do not show it */
    unknown(w, "lost");
    plant(w, "UPDATE dur_instance SET token=NULL, owner=NULL WHERE id='lost'",
          "UPDATE dur_instances SET token = NULL, owner = NULL WHERE instance_id = 'lost'");
    OK(w, dur_runtime_check(w->runtime, &w->err));
    plant(w,
          "INSERT INTO dur_worker(key, execution, activity, seq, token, owner, json) SELECT key, 1, 2, 1, 't', "
          "(SELECT id FROM dur_owner), '{}' FROM dur_instance WHERE id='lost'",
          "INSERT INTO dur_worker(instance_id, execution_id, activity_id, token, owner, json) SELECT 'lost', 1, 2,"
          " 't', owner, '{}' FROM dur_owners");
    unknown(w, "lost");
    plant(w, "DELETE FROM dur_worker WHERE token='t'", "DELETE FROM dur_worker WHERE token = 't'");
    dur_runtime_stop(w->runtime, 1, NULL); /* the patient ones end when they are told to */
    w->runtime = NULL;
}

static void fault_h04_a_parked_instance_without_its_lease_is_found(void **state) {
    world *w = *state;
    needs_tables();
    RUN(w, handlers);
    start(w, "Event", "", "parked");
    until_history(w, "parked", "\"ExternalSubscribed\"", 1);
    OK(w, dur_runtime_check(w->runtime, &w->err));
    plant(w, "UPDATE dur_instance SET token=NULL, owner=NULL WHERE id='parked'",
          "UPDATE dur_instances SET token = NULL, owner = NULL, holder = NULL WHERE instance_id = 'parked'");
    assert_int_equal(dur_runtime_check(w->runtime, &w->err), DUR_ECORRUPT);
    if (strstr(w->err.message, "parked instance parked") == NULL) fail_msg("\"%s\"", w->err.message);
}

static void a_busy_runtime_is_not_taken_for_a_broken_one(void **state) {
    world *w = *state;
    RUN(w, handlers, .worker_concurrency = 4);
    char id[32];
    for (size_t i = 0; i < scaled(200, 40); i++) {
        snprintf(id, sizeof(id), "e-%zu", i);
        start(w, "Event", "", id);
        if (i % 10 == 0) OK(w, dur_runtime_check(w->runtime, &w->err));
    }
    OK(w, dur_runtime_check(w->runtime, &w->err));
}

/* ---- H76: a message that a dequeue gives back ---------------------------------------------------------------------
 */

static dur_outcome gives_back(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *unread = dur_message(ctx, "box");
    dur_await(dur_pulse(ctx, "go"));
    dur_drop(unread);
    (void)dur_message(ctx, "box"); /* has what the other one had */
    dur_await(dur_pulse(ctx, "go"));
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "end")));
}

static const dur_handler giving_back[] = { DUR_ORCHESTRATION("GivesBack", "1.0.0", gives_back), DUR_HANDLERS_END };

/* The second message lies there with nobody to wait for it: the second dequeue has the first message. */
static void fault_h76_the_check_knows_what_was_given_back(void **state) {
    world *w = *state;
    RUN(w, giving_back);
    start(w, "GivesBack", "", "i");
    until_history(w, "i", "\"ExternalSubscribedPersistent\"", 1);
    OK(w, dur_client_send(w->client, &w->err, "i", "box", "first"));
    until_history(w, "i", "\"ExternalEventPersistent\"", 1);
    OK(w, dur_client_pulse(w->client, &w->err, "i", "go", ""));
    until_history(w, "i", "\"ExternalSubscribedPersistent\"", 2);
    OK(w, dur_client_send(w->client, &w->err, "i", "box", "second"));
    OK(w, dur_client_pulse(w->client, &w->err, "i", "go", "")); /* behind it: then the second was seen */
    until_history(w, "i", "\"ExternalEvent\"", 2);
    world_stop(w);
    OK(w, dur_provider_check(w->store, &w->err));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(fault_h185_a_value_that_cannot_be_is_found),
        TEST(fault_h185_a_file_that_does_not_say_its_version_is_none),
        TEST(fault_h02_a_message_that_nobody_would_look_at_is_found),
        TEST(fault_h02_a_queue_that_nobody_would_look_at_is_found),
        TEST(fault_h02_a_message_that_is_looked_at_much_later_is_found),
        TEST(fault_h48_rows_of_owners_that_are_gone_are_found),
        TEST(fault_h48_rows_that_belong_to_nothing_are_found),
        TEST(fault_h76_the_check_knows_what_was_given_back),
        TEST(fault_h79_what_waits_for_a_delayed_start_is_in_its_place),
        TEST(fault_h77_one_that_has_ended_and_cannot_be_fetched_is_found),
        TEST(fault_h06_a_child_of_another_call_is_found),
        TEST(fault_h04_a_lease_that_its_owner_does_not_know_is_found),
        TEST(fault_h04_a_parked_instance_without_its_lease_is_found),
        TEST(a_busy_runtime_is_not_taken_for_a_broken_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
