/*
 * test_pg_store.c: opening PostgreSQL stores: names, parameters, migrations, roles; the caller's own transactions.
 */
#include "pg_help.h"

#include "provider/postgres/pg_internal.h"

#include <pthread.h>

static void full_cycle(pg_bench *p, dur_provider *store, const char *instance) {
    bench *b = &p->b;
    dur_message_row start = start_of(b, instance);
    dur_orchestration_item item;
    dur_fetch how = { .lock_ms = 5000 };
    dur_event_row event = event_of(1);
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(store, &start, 0, &b->err));
    ASSERT_OK(b, dur_store_fetch_orchestration_item(store, b->arena, &how, &item, &b->err));
    assert_string_equal(item.instance, instance);
    dur_turn_commit turn = {
        .lock_token = item.lock_token, .execution_id = 1, .events = &event, .event_count = 1, .metadata = named()
    };
    ASSERT_OK(b, dur_store_ack_orchestration_item(store, &turn, &b->err));
}

static void names_of_schemas(void **state) {
    pg_bench *p = *state;
    static const char *const good[] = {
        "with space",  "semi;drop table x", "quote\"inside",
        "apos'trophe", "\xc3\xbc",          "123456789012345678901234567890123456789012345678901234567890123",
        "SELECT"
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        dur_provider *store = NULL;
        ASSERT_OK(&p->b,
                  dur_postgres_open(&store, DUR_POSTGRES(.conninfo = pg_server(), .schema = good[i]), &p->b.err));
        full_cycle(p, store, "a");
        dur_provider_close(store);
        char *name = PQescapeIdentifier(p->db, good[i], strlen(good[i]));
        char sql[256];
        snprintf(sql, sizeof(sql), "SET client_min_messages = error; DROP SCHEMA %s CASCADE", name);
        pg_do(p->db, sql);
        PQfreemem(name);
    }
    dur_provider *store = NULL;
    static const char *const bad[] = { "", "pg_mine", "\xff",
                                       "x12345678901234567890123456789012345678901234567890123456789012345" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int code = dur_postgres_open(&store, DUR_POSTGRES(.conninfo = pg_server(), .schema = bad[i]), &p->b.err);
        assert_true(code == DUR_EINVAL || code == DUR_ELIMIT);
        assert_null(store);
    }
}

static void parameters_and_secrets(void **state) {
    pg_bench *p = *state;
    dur_provider *store = NULL;
    static const char *const bad[] = { "&pool=0",    "&pool=x",     "&pooler=maybe", "&poll=1",    "&clock=mine",
                                       "&migrate=2", "&nonsense=1", "&schema=%",     "&schema=%00" };
    char url[1024];
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(url, sizeof(url), "%s%s", pg_server(), bad[i]);
        assert_int_equal(dur_open(&store, url, &p->b.err), DUR_EINVAL);
    }
    assert_int_equal(dur_open(&store, "postgres://u:top?secret@127.0.0.1/db?nonsense=1", &p->b.err), DUR_EINVAL);
    assert_null(strstr(p->b.err.message, "secret"));
    assert_int_equal(dur_open(&store, "postgres://u:topsecret@127.0.0.1:1/db?connect_timeout=2", &p->b.err),
                     DUR_EUNAVAILABLE);
    assert_true(p->b.err.retryable);
    assert_null(strstr(p->b.err.message, "topsecret"));
    assert_int_equal(dur_open(&store, "postgres://u:topsecret@h:port/db?nonsense=topsecret", &p->b.err), DUR_EINVAL);
    assert_null(strstr(p->b.err.message, "topsecret"));
    snprintf(url, sizeof(url), "%s&schema=nowhere_%d&migrate=0", pg_server(), (int)getpid());
    assert_int_equal(dur_open(&store, url, &p->b.err), DUR_ESCHEMA);
    assert_int_equal(dur_postgres_open(&store, NULL, &p->b.err), DUR_EINVAL);
    assert_int_equal(dur_postgres_open(NULL, NULL, &p->b.err), DUR_EINVAL);
}

typedef struct opener {
    const char *url;
    dur_provider *store;
    int code;
    dur_error err;
} opener;

static void *open_store(void *arg) {
    opener *o = arg;
    o->code = dur_open(&o->store, o->url, &o->err);
    return NULL;
}

static void ten_nodes_start_together(void **state) {
    pg_bench *p = *state;
    opener openers[10];
    pthread_t threads[10];
    char url[1024], sql[128];
    snprintf(url, sizeof(url), "%s&schema=%s_ten", pg_server(), p->schema);
    for (size_t i = 0; i < 10; i++) {
        openers[i] = (opener){ .url = url };
        assert_int_equal(pthread_create(&threads[i], NULL, open_store, &openers[i]), 0);
    }
    for (size_t i = 0; i < 10; i++) {
        pthread_join(threads[i], NULL);
        if (openers[i].code != DUR_OK) fail_msg("%s", openers[i].err.message);
    }
    full_cycle(p, openers[7].store, "a");
    for (size_t i = 0; i < 10; i++)
        dur_provider_close(openers[i].store);
    snprintf(sql, sizeof(sql), "SET client_min_messages = error; DROP SCHEMA %s_ten CASCADE", p->schema);
    pg_do(p->db, sql);
}

static void newer_schema_is_refused(void **state) {
    pg_bench *p = *state;
    dur_provider *store = NULL;
    char sql[128];
    snprintf(sql, sizeof(sql), "UPDATE %s.dur_meta SET schema_version = 99", p->schema);
    pg_do(p->db, sql); /* newer, but still for us */
    ASSERT_OK(&p->b, dur_open(&store, p->url, &p->b.err));
    full_cycle(p, store, "a");
    dur_provider_close(store);
    snprintf(sql, sizeof(sql), "UPDATE %s.dur_meta SET min_known = 99", p->schema);
    pg_do(p->db, sql);
    assert_int_equal(dur_open(&store, p->url, &p->b.err), DUR_ESCHEMA);
    assert_non_null(strstr(p->b.err.message, "has version 99, this library knows up to 1: use a newer library"));
}

static void schema_dropped_and_made_again(void **state) {
    pg_bench *p = *state;
    dur_provider *other = NULL;
    dur_message_row start = start_of(&p->b, "b");
    char sql[128];
    full_cycle(p, p->b.store, "a");
    snprintf(sql, sizeof(sql), "SET client_min_messages = error; DROP SCHEMA %s CASCADE", p->schema);
    pg_do(p->db, sql);
    int code = dur_store_enqueue_for_orchestrator(p->b.store, &start, 0, &p->b.err);
    assert_int_equal(code, DUR_EUNAVAILABLE);
    assert_true(p->b.err.retryable);
    ASSERT_OK(&p->b, dur_open(&other, p->url, &p->b.err));
    full_cycle(p, p->b.store, "c"); /* the first store goes on */
    dur_provider_close(other);
}

/* One role owns the tables and migrates; another may only read and write rows. */
static long schemas(pg_bench *p, const char *end) {
    char sql[200];
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM pg_namespace WHERE nspname = '%s%s'", p->schema, end);
    return pg_number(p->db, sql);
}

static void a_temporary_store_leaves_nothing(void **state) {
    pg_bench *p = *state;
    dur_provider *store = NULL;
    char url[1200], sql[200];
    snprintf(url, sizeof(url), "%s&schema=%s_tmp&temporary=1", p->url, p->schema); /* the last schema counts */
    snprintf(sql, sizeof(sql), "CREATE SCHEMA %s_tmp CREATE TABLE old (x integer)", p->schema);
    pg_do(p->db, sql);
    ASSERT_OK(&p->b, dur_open(&store, url, &p->b.err));
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM pg_tables WHERE schemaname = '%s_tmp' AND tablename = 'old'",
             p->schema);
    assert_int_equal(pg_number(p->db, sql), 0);
    full_cycle(p, store, "a");
    assert_int_equal(schemas(p, "_tmp"), 1);
    dur_provider_close(store);
    assert_int_equal(schemas(p, "_tmp"), 0);
    assert_int_equal(schemas(p, ""), 1);
    snprintf(url, sizeof(url), "%s&schema=public&temporary=1", p->url);
    assert_int_equal(dur_open(&store, url, &p->b.err), DUR_EINVAL);
    assert_non_null(strstr(p->b.err.message, "schema of its own"));
    snprintf(url, sizeof(url), "%s&temporary=yes", p->url);
    assert_int_equal(dur_open(&store, url, &p->b.err), DUR_EINVAL);
}

static void running_needs_few_rights(void **state) {
    pg_bench *p = *state;
    dur_provider *store = NULL;
    char sql[1024], url[1200], server[900];
    snprintf(sql, sizeof(sql),
             "CREATE ROLE run_%s LOGIN; GRANT USAGE ON SCHEMA %s TO run_%s; GRANT SELECT, INSERT, UPDATE, DELETE ON"
             " ALL "
             "TABLES IN SCHEMA %s TO run_%s; GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA %s TO run_%s",
             p->schema, p->schema, p->schema, p->schema, p->schema, p->schema, p->schema);
    pg_do(p->db, sql);
    snprintf(server, sizeof(server), "%s", pg_server());
    char *user = strstr(server, "&user=");
    if (user != NULL) *user = '\0';
    snprintf(url, sizeof(url), "%s&user=run_%s&schema=%s", server, p->schema, p->schema);
    ASSERT_OK(&p->b, dur_open(&store, url, &p->b.err));
    full_cycle(p, store, "a");
    dur_owner_options owner = { .owner = "o" };
    dur_owner_report report;
    ASSERT_OK(&p->b, dur_store_owner_register(store, &owner, &p->b.err));
    ASSERT_OK(&p->b, dur_store_owner_beat(store, "o", &report, &p->b.err));
    assert_true(report.still_ours);
    dur_lane_options lane_options = { .owner = "o", .waker = dur_waker_new() };
    dur_lane *lane;
    dur_round round = { 0 };
    ASSERT_OK(&p->b, dur_store_lane_open(store, &lane_options, &lane, &p->b.err));
    ASSERT_OK(&p->b, dur_store_lane_round(lane, p->b.arena, &round, &p->b.err));
    dur_store_lane_close(lane);
    dur_waker_free(lane_options.waker);
    ASSERT_OK(&p->b, dur_store_owner_release(store, "o", &p->b.err));
    dur_provider_close(store);
    snprintf(url, sizeof(url), "%s&user=run_%s&schema=%s_new", server, p->schema, p->schema);
    assert_int_equal(dur_open(&store, url, &p->b.err), DUR_EPERM);
    snprintf(sql, sizeof(sql), "DROP OWNED BY run_%s; DROP ROLE run_%s", p->schema, p->schema);
    pg_do(p->db, sql);
}

static void texts_that_no_server_takes(void **state) {
    pg_bench *p = *state;
    dur_message_row bad = { .kind = DUR_WORK_EXTERNAL_RAISED, .instance = "a", .json = { "{\"a\":\"\xff\"}", 9 } };
    dur_message_row nul = { .kind = DUR_WORK_EXTERNAL_RAISED, .instance = "a", .json = { "{\0}", 3 } };
    /* nobody could read it back: no text of C holds a zero */
    dur_message_row zero = { .kind = DUR_WORK_EXTERNAL_RAISED,
                             .instance = "a",
                             .json = text_of("{\"a\":\"\\u0000\"}") };
    dur_message_row fine = { .kind = DUR_WORK_EXTERNAL_RAISED,
                             .instance = "a",
                             .json = text_of("{\"a\":\"\\\\u0000 \xf0\x9f\x98\x80\"}") };
    full_cycle(p, p->b.store, "a");
    assert_int_equal(dur_store_enqueue_for_orchestrator(p->b.store, &bad, 0, &p->b.err), DUR_EINVAL);
    assert_int_equal(dur_store_enqueue_for_orchestrator(p->b.store, &nul, 0, &p->b.err), DUR_EINVAL);
    assert_int_equal(dur_store_enqueue_for_orchestrator(p->b.store, &zero, 0, &p->b.err), DUR_EINVAL);
    ASSERT_OK(&p->b, dur_store_enqueue_for_orchestrator(p->b.store, &fine, 0, &p->b.err));
    dur_orchestration_item item = fetch(&p->b, 1000);
    assert_int_equal(item.message_count, 1); /* what only looks like one comes back as it was */
    assert_int_equal(item.messages[0].json.size, fine.json.size);
    assert_memory_equal(item.messages[0].json.data, fine.json.data, fine.json.size);
}

static void the_servers_clock_counts(void **state) {
    pg_bench *p = *state;
    dur_provider *ahead = NULL;
    char url[1200];
    dur_message_row timer = {
        .kind = DUR_WORK_TIMER_FIRED, .instance = "a", .execution_id = 1, .activity_id = 2, .json = text_of("{}")
    };
    full_cycle(p, p->b.store, "a");
    snprintf(url, sizeof(url), "%s&options=-c%%20durite.clock_offset_ms%%3D3600000", p->url);
    ASSERT_OK(&p->b, dur_open(&ahead, url, &p->b.err));
    uint64_t now = dur_store_now_ms(p->b.store), later = dur_store_now_ms(ahead);
    assert_in_range(later - now, 3590000, 3610000);
    timer.due_ms = now + 1800000;
    ASSERT_OK(&p->b, dur_store_enqueue_for_orchestrator(p->b.store, &timer, 0, &p->b.err));
    assert_null(fetch(&p->b, 1000).instance);
    dur_provider *mine = p->b.store;
    p->b.store = ahead;
    dur_orchestration_item item = fetch(&p->b, 1000);
    p->b.store = mine;
    assert_string_equal(item.instance, "a");
    dur_provider_close(ahead);
}

static void in_the_callers_transaction(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_start_args start = { .size = sizeof(start), .name = "Flow", .instance = "a", .input = "1" };
    dur_message_args message = {
        .size = sizeof(message), .instance = "a", .name = "q", .data = "x", .message_id = "m"
    };
    dur_instance_row row;
    assert_int_equal(dur_postgres_start(b->store, p->db, &start, &b->err), DUR_ESTATE); /* no transaction */
    pg_do(p->db, "CREATE TEMPORARY TABLE mine (n int)");
    pg_do(p->db, "BEGIN");
    ASSERT_OK(b, dur_postgres_start(b->store, p->db, &start, &b->err));
    ASSERT_OK(b, dur_postgres_send(b->store, p->db, &message, &b->err));
    pg_do(p->db, "INSERT INTO mine VALUES (1)");
    pg_do(p->db, "ROLLBACK");
    assert_int_equal(dur_store_get_instance(b->store, b->arena, "a", &row, &b->err), DUR_ENOTFOUND);
    pg_do(p->db, "BEGIN");
    assert_int_equal(dur_postgres_pulse(b->store, p->db, &message, &b->err), DUR_ENOTFOUND);
    ASSERT_OK(b, dur_postgres_start(b->store, p->db, &start, &b->err)); /* and the transaction goes on */
    assert_int_equal(dur_postgres_start(b->store, p->db, &start, &b->err), DUR_EEXISTS);
    ASSERT_OK(b, dur_postgres_pulse(b->store, p->db, &message, &b->err));
    ASSERT_OK(b, dur_postgres_pulse(b->store, p->db, &message, &b->err)); /* the same id: once */
    pg_do(p->db, "INSERT INTO mine VALUES (2)");
    pg_do(p->db, "COMMIT");
    assert_int_equal(pg_number(p->db, "SELECT count(*) FROM mine"), 1);
    dur_orchestration_item item = fetch(b, 1000);
    assert_string_equal(item.instance, "a");
    assert_int_equal(item.message_count, 2);
    start.name = NULL;
    pg_do(p->db, "BEGIN");
    assert_int_equal(dur_postgres_start(b->store, p->db, &start, &b->err), DUR_EINVAL);
    assert_int_equal(dur_postgres_start(b->store, p->db, NULL, &b->err), DUR_EINVAL);
    assert_int_equal(dur_postgres_start(NULL, p->db, &start, &b->err), DUR_EINVAL);
    assert_int_equal(dur_postgres_start(b->store, NULL, &start, &b->err), DUR_EINVAL);
    pg_do(p->db, "ROLLBACK");
}

/* What is converted on its way would be stored as another text, or under another id. */
static void fault_h187_another_client_encoding_is_refused(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *store = NULL;
    dur_start_args start = {
        .size = sizeof(start), .name = "Flow", .instance = "gr\xc3\xbc\xc3\x9f", .input = "\"\xc3\xa4\""
    };
    dur_message_args message = {
        .size = sizeof(message), .instance = start.instance, .name = "q", .data = start.input
    };
    char url[1200];
    pg_do(p->db, "SET client_encoding = 'LATIN1'");
    pg_do(p->db, "BEGIN");
    assert_int_equal(dur_postgres_start(b->store, p->db, &start, &b->err), DUR_EINVAL);
    assert_non_null(strstr(b->err.message, "client_encoding"));
    assert_int_equal(dur_postgres_send(b->store, p->db, &message, &b->err), DUR_EINVAL);
    assert_int_equal(dur_postgres_pulse(b->store, p->db, &message, &b->err), DUR_EINVAL);
    pg_do(p->db, "SET LOCAL client_encoding = 'UTF8'"); /* and the transaction goes on */
    ASSERT_OK(b, dur_postgres_start(b->store, p->db, &start, &b->err));
    ASSERT_OK(b, dur_postgres_send(b->store, p->db, &message, &b->err));
    pg_do(p->db, "COMMIT");
    pg_do(p->db, "RESET client_encoding");
    dur_orchestration_item item = fetch(b, 1000);
    assert_string_equal(item.instance, start.instance);
    assert_int_equal(item.message_count, 2);
    snprintf(url, sizeof(url), "%s&client_encoding=LATIN1", p->url);
    assert_int_equal(dur_open(&store, url, &b->err), DUR_EINVAL);
    assert_non_null(strstr(b->err.message, "client_encoding"));
}

static void in_a_read_only_transaction(void **state) {
    pg_bench *p = *state;
    dur_start_args start = { .size = sizeof(start), .name = "Flow", .instance = "a" };
    pg_do(p->db, "BEGIN READ ONLY");
    assert_int_equal(dur_postgres_start(p->b.store, p->db, &start, &p->b.err), DUR_ESTATE);
    assert_false(p->b.err.retryable);
    pg_do(p->db, "ROLLBACK");
}

/* A database of its own; the code of opening a store there. */
static int open_encoded(pg_bench *p, const char *encoding, dur_provider **store) {
    char sql[300], url[1200];
    const char *query = strchr(pg_server(), '?');
    snprintf(sql, sizeof(sql), "CREATE DATABASE %s TEMPLATE template0 ENCODING '%s' LC_COLLATE 'C' LC_CTYPE 'C'",
             p->schema, encoding);
    pg_do(p->db, sql);
    snprintf(url, sizeof(url), "postgres:///%s%s", p->schema, query);
    return dur_open(store, url, &p->b.err);
}

static void drop_encoded(pg_bench *p) {
    char sql[200];
    snprintf(sql, sizeof(sql), "DROP DATABASE %s", p->schema);
    pg_do(p->db, sql);
}

/* It lacks letters: what has one would be refused at each try. */
static void fault_h188_a_database_that_lacks_letters_is_not_opened(void **state) {
    pg_bench *p = *state;
    dur_provider *store = NULL;
    if (strchr(pg_server(), '?') == NULL || strncmp(pg_server(), "postgres:///", 12) != 0) skip();
    int code = open_encoded(p, "LATIN1", &store);
    dur_provider_close(store);
    drop_encoded(p);
    assert_int_equal(code, DUR_EINVAL);
    assert_non_null(strstr(p->b.err.message, "LATIN1"));
    assert_non_null(strstr(p->b.err.message, "ENCODING 'UTF8'"));
    ASSERT_OK(&p->b, open_encoded(p, "SQL_ASCII", &store)); /* bytes: it lacks nothing */
    full_cycle(p, store, "5 \xe2\x82\xac");
    dur_provider_close(store);
    drop_encoded(p);
}

static void replacing_in_the_callers_transaction(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_start_args start = {
        .size = sizeof(start), .name = "Flow", .instance = "a", .exists = DUR_START_REPLACE_FINISHED
    };
    dur_message_row first = start_of(b, "a");
    dur_event_row event = event_of(1);
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &first, 0, &b->err));
    pg_do(p->db, "BEGIN");
    assert_int_equal(dur_postgres_start(b->store, p->db, &start, &b->err), DUR_EEXISTS); /* it runs */
    pg_do(p->db, "ROLLBACK");
    dur_orchestration_item item = fetch(b, 5000);
    dur_turn_commit turn = {
        .lock_token = item.lock_token, .execution_id = 1, .events = &event, .event_count = 1, .metadata = named()
    };
    turn.metadata.status = DUR_STATUS_COMPLETED;
    ASSERT_OK(b, dur_store_ack_orchestration_item(b->store, &turn, &b->err));
    pg_do(p->db, "BEGIN");
    ASSERT_OK(b, dur_postgres_start(b->store, p->db, &start, &b->err));
    pg_do(p->db, "COMMIT");
    dur_event_row *rows;
    size_t count;
    ASSERT_OK(b, dur_store_read(b->store, b->arena, "a", 1, &rows, &count, &b->err));
    assert_int_equal(count, 0);
    assert_string_equal(fetch(b, 1000).instance, "a");
}

/* Rows of instances that never came to be stand for messages, and go with them. */
static void nothing_remains_of_nobody(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    char sql[128];
    dur_message_row queued = {
        .kind = DUR_WORK_QUEUE_MESSAGE, .instance = "nobody", .queue = "q", .json = text_of("{}")
    };
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s.dur_instances", p->schema);
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &queued, 0, &b->err));
    assert_int_equal(pg_number(p->db, sql), 1);
    assert_null(fetch(b, 1000).instance); /* buries it */
    assert_int_equal(pg_number(p->db, sql), 0);
    dur_message_row start = start_of(b, "refused");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    dur_orchestration_item item = fetch(b, 60000);
    dur_turn_commit nothing = { .lock_token = item.lock_token,
                                .instance = "refused",
                                .consume_listed = true,
                                .consumed = &item.messages[0].id,
                                .consumed_count = 1,
                                .expected_last = DUR_NOT_COMPARED };
    ASSERT_OK(b, dur_store_commit_turns(b->store, &nothing, 1, &b->err));
    assert_int_equal(nothing.error.code, DUR_OK);
    assert_int_equal(pg_number(p->db, sql), 0);
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    item = fetch(b, 60000);
    ASSERT_OK(b, dur_store_dead_letter_messages(b->store, "refused", &item.messages[0].id, 1, "why", &b->err));
    ASSERT_OK(b, dur_store_abandon_orchestration_item(b->store, item.lock_token, 0, false, &b->err));
    assert_int_equal(pg_number(p->db, sql), 0);
}

static void sessions_that_end_are_opened_again(void **state) {
    pg_bench *p = *state;
    char end_all[256];
    snprintf(end_all, sizeof(end_all),
             "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE application_name = 'durite_%s'",
             p->schema); /* and wait until they are gone */
    full_cycle(p, p->b.store, "a");
    for (int i = 0; i < 5; i++) {
        pg_do(p->db, end_all);
        char id[16];
        snprintf(id, sizeof(id), "k%d", i);
        full_cycle(p, p->b.store, id); /* an idle session that was ended costs nobody an error */
    }
}

/* What time makes visible in a round that asks for nothing is news for the lane's next wait. */
static void a_round_that_only_commits_keeps_the_news(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_lane_options options = { .owner = "o", .waker = dur_waker_new() };
    dur_lane *lane;
    ASSERT_OK(b, dur_store_owner_register(b->store, &(dur_owner_options){ .owner = "o" }, &b->err));
    ASSERT_OK(b, dur_store_lane_open(b->store, &options, &lane, &b->err));
    const bool *news = &((const dur__pg_lane *)(const void *)lane)->unseen;
    dur_message_row item = message_of(DUR_WORK_ACTIVITY_EXECUTE, "a");
    ASSERT_OK(b, dur_store_enqueue_for_worker(b->store, &item, &b->err));
    dur_leased_work work;
    ASSERT_OK(b, dur_store_fetch_work_item(b->store, b->arena, &(dur_work_fetch){ .lock_ms = 60000 }, &work, &b->err));
    dur_fetch fetch = { .owner = "o", .max = 1 };
    dur_work_fetch how = { .owner = "o", .max = 1 };
    dur_round look, commit = { 0 };
    const char *token = work.lock_token;
    for (uint64_t delay_ms = 300; token != NULL; delay_ms *= 2) { /* until the look comes before the time is over */
        ASSERT_OK(b, dur_store_abandon_work_item(b->store, token, delay_ms, true, &b->err));
        look = (dur_round){ .fetch = &fetch, .work = &how };
        ASSERT_OK(b, dur_store_lane_round(lane, b->arena, &look, &b->err));
        token = look.work_count > 0 ? look.works[0].lock_token : NULL;
    }
    uint64_t due_ms = look.next_due_ms, now_ms = look.now_ms;
    assert_int_equal(look.work_count, 0);
    assert_false(*news);
    assert_true(due_ms != DUR_NEVER);
    for (int rounds = 0; now_ms < due_ms || rounds < 2; rounds += now_ms >= due_ms) { /* told until it is looked at */
        assert_int_equal(*news, rounds > 0);
        pg_pause_ms(10);
        ASSERT_OK(b, dur_store_lane_round(lane, b->arena, &commit, &b->err));
        now_ms = commit.now_ms;
    }
    assert_true(*news);
    ASSERT_OK(b, dur_store_lane_round(lane, b->arena, &look, &b->err));
    assert_int_equal(look.work_count, 1);
    assert_false(*news);
    dur_store_lane_close(lane);
    dur_waker_free(options.waker);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(names_of_schemas),
        PG_TEST(parameters_and_secrets),
        PG_TEST(ten_nodes_start_together),
        PG_TEST(newer_schema_is_refused),
        PG_TEST(schema_dropped_and_made_again),
        PG_TEST(a_temporary_store_leaves_nothing),
        PG_TEST(running_needs_few_rights),
        PG_TEST(texts_that_no_server_takes),
        PG_TEST(the_servers_clock_counts),
        PG_TEST(in_the_callers_transaction),
        PG_TEST(fault_h187_another_client_encoding_is_refused),
        PG_TEST(in_a_read_only_transaction),
        PG_TEST(fault_h188_a_database_that_lacks_letters_is_not_opened),
        PG_TEST(replacing_in_the_callers_transaction),
        PG_TEST(nothing_remains_of_nobody),
        PG_TEST(sessions_that_end_are_opened_again),
        PG_TEST(a_round_that_only_commits_keeps_the_news),
    };
    PG_MAIN(tests);
}
