/*
 * hostile_poolers.c: stores behind a pooler that other applications use, too.
 */
#include "neighbour.h"

#ifdef HAVE_LIBPQ

#include <durite/sys/store.h>
#include <pthread.h>

/* ---- settings of the role ---------------------------------------------------------------------------------------- */

/* A message to an instance whose row somebody holds: sending waits. */
typedef struct sender {
    world *w;
    int code;
    atomic_bool done;
} sender;

static void *send_to_held(void *arg) {
    sender *s = arg;
    s->code = dur_client_send(s->w->client, &s->w->err, "held", "box", "done");
    atomic_store(&s->done, true);
    return NULL;
}

enum { ROLE_TIMEOUT_MS = 1000 };

/* Behind a pooler each transaction says its timeouts: a statement takes longer than the role would allow. */
static void fault_h23_timeouts_of_the_role_are_not_ours_behind_a_pooler(void **state) {
    world *w = *state;
    char role[40], url[900], schema[80];
    bouncer b;
    pthread_t thread;
    snprintf(role, sizeof(role), "pooled_%d", (int)getpid());
    if (!on_provider("postgres")) skip();
    if (!bouncer_start(&b, role, "pool_mode = transaction\ndefault_pool_size = 3")) skip();
    schema_of(w, schema);
    PGconn *db = pg_beside();
    pg_do(db,
          "CREATE ROLE %s SUPERUSER LOGIN; ALTER ROLE %s SET statement_timeout = %d; ALTER ROLE %s SET lock_timeout"
          " = %d",
          role, role, ROLE_TIMEOUT_MS, role, ROLE_TIMEOUT_MS);
    PQfinish(bouncer_connect(&b));
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&pooler=transaction", b.dir);
    world other = elsewhere(w, url);
    start(&other, "Everything", "held", "held");
    pg_do(db, "BEGIN; SELECT 1 FROM %s.dur_instances WHERE instance_id = 'held' FOR UPDATE", schema);
    sender s = { .w = &other };
    assert_int_equal(pthread_create(&thread, NULL, send_to_held, &s), 0);
    while (!atomic_load(&s.done) &&
           pg_number(db,
                     "SELECT count(*) FROM pg_stat_activity WHERE usename = '%s' AND wait_event_type = 'Lock' AND"
                     " clock_timestamp() - query_start > interval '%d ms'",
                     role, ROLE_TIMEOUT_MS * 3 / 2) == 0)
        pause_ms(10);
    pg_do(db, "COMMIT");
    pthread_join(thread, NULL);
    OK(&other, s.code);
    leave(&other);
    bouncer_stop(&b);
    drop_role(db, role);
    PQfinish(db);
}

/* ---- a pool of ours that is too small ---------------------------------------------------------------------------- */

static atomic_uint waits_told;

static void hear_waits(void *data, const dur_log_record *record) {
    (void)data;
    if (strstr(record->message, "pool=1") != NULL) atomic_fetch_add(&waits_told, 1);
}

static void *look_at_held(void *arg) {
    sender *s = arg;
    dur_instance_info *info = NULL;
    dur_error err = DUR_ERROR_INIT;
    s->code = dur_client_info(&info, s->w->client, "held", &err);
    dur_instance_info_free(info);
    return NULL;
}

/* Its one connection waits for a row that somebody holds, and another call for the connection. */
static void fault_h118_who_waits_for_a_connection_says_so(void **state) {
    world *w = *state;
    char url[900], schema[80];
    pthread_t threads[2];
    if (!on_provider("postgres")) skip();
    schema_of(w, schema);
    PGconn *db = pg_beside();
    snprintf(url, sizeof(url), "%s&pool=1&application_name=small_%d", getenv("DURITE_TEST_URL"), (int)getpid());
    world other = elsewhere(w, url);
    start(&other, "Everything", "held", "held");
    pg_do(db, "BEGIN; SELECT 1 FROM %s.dur_instances WHERE instance_id = 'held' FOR UPDATE", schema);
    sender first = { .w = &other }, second = { .w = &other };
    atomic_store(&waits_told, 0);
    dur_log_set_sink(hear_waits, NULL, DUR_LOG_WARN);
    assert_int_equal(pthread_create(&threads[0], NULL, send_to_held, &first), 0);
    while (!atomic_load(&first.done) &&
           pg_number(db,
                     "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'small_%d' AND wait_event_type ="
                     " 'Lock'",
                     (int)getpid()) == 0)
        pause_ms(5);
    assert_int_equal(pthread_create(&threads[1], NULL, look_at_held, &second), 0);
    while (atomic_load(&waits_told) == 0 && !atomic_load(&first.done))
        pause_ms(5);
    pg_do(db, "COMMIT");
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
    if (atomic_load(&waits_told) == 0) fail_msg("nothing in the log");
    OK(&other, second.code);
    leave(&other);
    PQfinish(db);
}

/* ---- a pooler that stands still ---------------------------------------------------------------------------------- */

typedef struct still {
    pid_t pid;
    atomic_bool over;
    bool went_on; /* because nobody came back */
} still;

enum { STILL_MS = 9000 }; /* shorter than any limit of libpq's, several times as long as ours */

static void *let_it_go_on(void *arg) {
    still *s = arg;
    for (uint64_t end_ms = now_ms() + STILL_MS; !atomic_load(&s->over) && now_ms() < end_ms;)
        pause_ms(5);
    s->went_on = !atomic_load(&s->over);
    kill(s->pid, SIGCONT);
    return NULL;
}

static void fault_h118_a_timeout_holds_while_a_pooler_stands_still(void **state) {
    world *w = *state;
    char url[900];
    bouncer b;
    if (!on_provider("postgres")) skip();
    if (!bouncer_start(&b, "durite", "pool_mode = transaction\ndefault_pool_size = 3")) skip();
    PQfinish(bouncer_connect(&b));
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&pooler=transaction", b.dir);
    world other = elsewhere(w, url);
    start(&other, "Everything", "waits", "waits");
    for (int round = 0; round < 2; round++) { /* in a session that is there; in one that is to be had */
        still s = { .pid = b.pid };
        pthread_t thread;
        dur_instance_info *info = NULL;
        dur_error err = DUR_ERROR_INIT;
        kill(b.pid, SIGSTOP);
        assert_int_equal(pthread_create(&thread, NULL, let_it_go_on, &s), 0);
        int code = dur_client_wait(&info, other.client, "waits", 200, &err);
        atomic_store(&s.over, true);
        pthread_join(thread, NULL);
        dur_instance_info_free(info);
        if (s.went_on)
            fail_msg("round %d: the wait did not end, and then: %s %s", round, dur_code_name(code), err.message);
        assert_int_equal(code, DUR_EUNAVAILABLE);
    }
    leave(&other);
    bouncer_stop(&b);
}

static void reads_with_a_limit(dur_client *client, dur_error *err) {
    for (int i = 0; i < 4; i++) {
        dur_instance_info *info = NULL;
        dur_instance_list *list = NULL;
        char *text = NULL;
        assert_int_equal(dur_client_info(&info, client, "waits", err), DUR_EUNAVAILABLE);
        assert_int_equal(dur_client_list(&list, client, NULL, err), DUR_EUNAVAILABLE);
        assert_int_equal(dur_client_history(&text, client, "waits", 0, err), DUR_EUNAVAILABLE);
        assert_int_equal(dur_client_kv_get(&text, client, "waits", "k", err), DUR_EUNAVAILABLE);
    }
}

static void waits_with_a_limit(dur_client *client, dur_error *err) {
    dur_instance_info *info = NULL;
    char *text = NULL;
    assert_int_equal(dur_client_result(&text, client, "waits", 100, err), DUR_EUNAVAILABLE);
    assert_int_equal(dur_client_wait(&info, client, "waits", 100, err), DUR_EUNAVAILABLE);
    assert_int_equal(dur_client_kv_wait(&text, client, "waits", "k", 100, err), DUR_EUNAVAILABLE);
}

static void runs_with_a_limit(dur_client *client, dur_error *err) {
    dur_runs *runs = NULL;
    const dur_run *ended = NULL;
    char *text = NULL;
    assert_int_equal(dur_runs_new(&runs, client, err), DUR_OK);
    assert_int_equal(dur_runs_watch(runs, "waits", NULL, err), DUR_OK);
    assert_int_equal(dur_runs_next(&ended, runs, 100, err), DUR_ETIMEOUT);
    dur_runs_free(runs);
    assert_int_equal(dur_client_run(&text, client, err, "Everything", "", .instance = "waits", .timeout_ms = 100),
                     DUR_EUNAVAILABLE);
}

/* Each group takes at most half as long as nothing moves, unless a call waits for connections beyond its time. */
static void fault_h164_calls_end_in_their_time_while_a_pooler_stands_still(void **state) {
    static void (*const groups[])(dur_client *, dur_error *) = { reads_with_a_limit, waits_with_a_limit,
                                                                 runs_with_a_limit };
    world *w = *state;
    char url[900];
    bouncer b;
    if (!on_provider("postgres")) skip();
    if (!bouncer_start(&b, "durite", "pool_mode = session\ndefault_pool_size = 40")) skip();
    PQfinish(bouncer_connect(&b));
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&pooler=session", b.dir);
    world other = elsewhere(w, url);
    start(&other, "Everything", "waits", "waits");
    dur_client_limit(other.client, 100);
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        static still s; /* outlives a failure */
        pthread_t thread;
        dur_error err = DUR_ERROR_INIT;
        s.pid = b.pid;
        s.went_on = false;
        atomic_store(&s.over, false);
        kill(b.pid, SIGSTOP);
        assert_int_equal(pthread_create(&thread, NULL, let_it_go_on, &s), 0);
        groups[i](other.client, &err);
        atomic_store(&s.over, true);
        pthread_join(thread, NULL);
        if (s.went_on) fail_msg("group %zu did not end in its time", i);
    }
    leave(&other);
    bouncer_stop(&b);
}

static atomic_uint silences_told;

static void hear_silence(void *data, const dur_log_record *record) {
    (void)data;
    if (strstr(record->message, "has not answered this node") != NULL) atomic_fetch_add(&silences_told, 1);
}

/* Nobody has a deadline: the node's own sessions wait as long as the server lives, and nothing is refused. */
static void fault_h157_a_node_says_that_the_server_stands_still(void **state) {
    world *w = *state;
    char url[900];
    bouncer b;
    if (!on_provider("postgres")) skip();
    if (!bouncer_start(&b, "durite", "pool_mode = transaction\ndefault_pool_size = 6")) skip();
    PQfinish(bouncer_connect(&b));
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&pooler=transaction", b.dir);
    world node = elsewhere(w, url);
    RUN(&node, everything_handlers);
    do_everything(&node, "before");
    atomic_store(&silences_told, 0);
    dur_log_set_sink(hear_silence, NULL, DUR_LOG_WARN);
    kill(b.pid, SIGSTOP);
    for (uint64_t end_ms = now_ms() + STILL_MS; atomic_load(&silences_told) == 0 && now_ms() < end_ms;)
        pause_ms(5);
    kill(b.pid, SIGCONT);
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
    if (atomic_load(&silences_told) == 0) fail_msg("nothing in the log for %d s", STILL_MS / 1000);
    do_everything(&node, "after");
    leave(&node);
    bouncer_stop(&b);
}

/* ---- settings of ours -------------------------------------------------------------------------------------------- */

/* All settings of the session that the pooler lends. */
static char *settings_of(PGconn *db) {
    return pg_text(db, "SELECT string_agg(name || '=' || setting, ',' ORDER BY name) FROM pg_settings");
}

static void leaves_no_setting(world *w, const char *bouncer_settings, const char *parameters, int expected) {
    char url[300], schema[80];
    bouncer b;
    dur_provider *store = NULL;
    if (!bouncer_start(&b, "durite", bouncer_settings)) skip();
    PGconn *application = bouncer_connect(&b);
    char *before = settings_of(application);
    PQfinish(application);
    schema_of(w, schema);
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&schema=%s%s", b.dir, schema, parameters);
    int code = dur_open(&store, url, &w->err);
    assert_int_equal(code, expected);
    if (expected == DUR_OK) {
        dur_client *client;
        OK(w, dur_client_new(&client, store, &w->err));
        OK(w, dur_client_start(client, &w->err, "Everything", "x", .instance = parameters));
        dur_client_free(client);
        dur_provider_close(store);
    } else {
        assert_non_null(strstr(w->err.message, "pooler=transaction"));
    }
    application = bouncer_connect(&b);
    char *after = settings_of(application);
    assert_string_equal(after, before);
    free(before);
    free(after);
    PQfinish(application);
    bouncer_stop(&b);
}

#define ONE_SESSION "\ndefault_pool_size = 1"

static void fault_h27_a_pooled_session_keeps_nothing_of_ours(void **state) {
    world *w = *state;
    if (!on_provider("postgres")) skip();
    leaves_no_setting(w, "pool_mode = transaction" ONE_SESSION, "", DUR_EINVAL);
    leaves_no_setting(w, "pool_mode = transaction\nignore_startup_parameters = options" ONE_SESSION, "", DUR_EINVAL);
    leaves_no_setting(w, "pool_mode = transaction" ONE_SESSION, "&pooler=transaction", DUR_OK);
    leaves_no_setting(w, "pool_mode = session\nserver_reset_query =" ONE_SESSION, "&pooler=session&pool=1", DUR_OK);
}

/* A watch of a store that listens says so before it looks by itself only if it was told; what it was told is not lost
   while it is not asked. */
static void fault_h28_who_listens_is_told_by_nodes_behind_a_pooler(void **state) {
    world *w = *state;
    bouncer b;
    char url[200];
    dur_watch *watch;
    if (!on_provider("postgres")) skip();
    if (!bouncer_start(&b, "durite", "pool_mode = transaction\ndefault_pool_size = 3")) skip();
    PQfinish(bouncer_connect(&b));
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&pooler=transaction", b.dir);
    world node = elsewhere(w, url);
    RUN(&node, everything_handlers);
    do_everything(&node, "beats and finds nobody");
    OK(w, dur_store_watch_open(w->store, "x", &watch, &w->err));
    start(&node, "Child", "x", "x");
    expect(&node, "x", "x");
    int told = DUR_ETIMEOUT;
    for (int i = 0; i < 50 && told == DUR_ETIMEOUT; i++)
        told = dur_store_watch_wait(watch, 100, &w->err);
    assert_int_equal(told, DUR_OK);
    dur_store_watch_close(watch);
    leave(&node);
    bouncer_stop(&b);
}

/* Two stores that believe to have sessions of their own, and have one: what the second is told says why. */
static void errors_say_that_a_pooler_is_in_another_mode(void **state) {
    world *w = *state;
    bouncer b;
    char url[300], schema[80];
    dur_provider *stores[2] = { NULL, NULL };
    if (!on_provider("postgres")) skip();
    if (!bouncer_start(&b, "durite", "pool_mode = transaction" ONE_SESSION)) skip();
    PQfinish(bouncer_connect(&b));
    schema_of(w, schema);
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&pooler=session&schema=%s", b.dir, schema);
    OK(w, dur_open(&stores[0], url, &w->err));
    assert_int_equal(dur_open(&stores[1], url, &w->err), DUR_EBUSY);
    if (strstr(w->err.message, "pooler=transaction") == NULL) fail_msg("%s", w->err.message);
    dur_provider_close(stores[0]);
    bouncer_stop(&b);
}

/* In session mode nodes listen and hold their locks as without a pooler. */
static void fault_h27_nodes_work_behind_a_pooler_in_session_mode(void **state) {
    world *w = *state;
    bouncer b;
    char url[200];
    if (!on_provider("postgres")) skip();
    if (!bouncer_start(&b, "durite", "pool_mode = session\ndefault_pool_size = 40")) skip();
    PQfinish(bouncer_connect(&b));
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&pooler=session", b.dir);
    world node = elsewhere(w, url);
    RUN(&node, everything_handlers);
    do_everything(&node, "x");
    leave(&node);
    bouncer_stop(&b);
}

#else

static void nothing_without_libpq(void **state) {
    (void)state;
    skip();
}

#endif

static const hostile_role roles[] = { { "none", NULL } };

static const struct CMUnitTest tests[] = {
#ifdef HAVE_LIBPQ
    TEST(fault_h23_timeouts_of_the_role_are_not_ours_behind_a_pooler),
    TEST(fault_h27_a_pooled_session_keeps_nothing_of_ours),
    TEST(fault_h27_nodes_work_behind_a_pooler_in_session_mode),
    TEST(errors_say_that_a_pooler_is_in_another_mode),
    TEST(fault_h118_who_waits_for_a_connection_says_so),
    TEST(fault_h118_a_timeout_holds_while_a_pooler_stands_still),
    TEST(fault_h164_calls_end_in_their_time_while_a_pooler_stands_still),
    TEST(fault_h157_a_node_says_that_the_server_stands_still),
    TEST(fault_h28_who_listens_is_told_by_nodes_behind_a_pooler),
#else
    TEST(nothing_without_libpq),
#endif
};

HOSTILE_MAIN(roles, tests)
