/*
 * hostile_bracket.c: transactions of the caller's own on a SQLite store (dur_sqlite_begin) that nobody ends.
 */
#include "sqlite_file.h"

#include <pthread.h>

/* ---- what the log says ---- */

static _Atomic int said;
static char wanted[2][64]; /* both in one line */

static void listen_to(void *data, const dur_log_record *record) {
    (void)data;
    if (record->level == DUR_LOG_WARN && strstr(record->message, wanted[0]) && strstr(record->message, wanted[1]))
        atomic_fetch_add(&said, 1);
}

static void listen(const char *first, const char *second) {
    (void)dur_log_set_sink(NULL, NULL, DUR_LOG_WARN);
    snprintf(wanted[0], sizeof(wanted[0]), "%s", first);
    snprintf(wanted[1], sizeof(wanted[1]), "%s", second);
    atomic_store(&said, 0);
    (void)dur_log_set_sink(listen_to, NULL, DUR_LOG_WARN);
}

static void until_said(void) {
    for (uint64_t end_ms = now_ms() + patience_ms(); atomic_load(&said) == 0; pause_ms(2))
        if (now_ms() > end_ms) fail_msg("nothing in the log of \"%s\" and \"%s\"", wanted[0], wanted[1]);
    (void)dur_log_set_sink(NULL, NULL, DUR_LOG_WARN);
}

/* ---- somebody else who writes ---- */

typedef struct writer {
    world *w;
    const char *id;
    int code;
    dur_error err;
    _Atomic bool done;
    pthread_t thread;
} writer;

static void *writer_main(void *data) {
    writer *self = data;
    self->code = dur_client_start(self->w->client, &self->err, "Books", "", .instance = self->id);
    atomic_store(&self->done, true);
    return NULL;
}

static writer *writer_begin(world *w, const char *id) {
    writer *self = calloc(1, sizeof(*self));
    *self = (writer){ .w = w, .id = id, .err = DUR_ERROR_INIT };
    assert_int_equal(pthread_create(&self->thread, NULL, writer_main, self), 0);
    return self;
}

/* Its answer. */
static int writer_end(writer *self, dur_error *err) {
    for (uint64_t end_ms = now_ms() + patience_ms(); !atomic_load(&self->done); pause_ms(2))
        if (now_ms() > end_ms) fail_msg("%s is not answered", self->id);
    assert_int_equal(pthread_join(self->thread, NULL), 0);
    int code = self->code;
    *err = self->err;
    free(self);
    return code;
}

static void others_write(world *w, const char *id) {
    OK(w, writer_end(writer_begin(w, id), &w->err));
}

static sqlite3 *connection_to(const world *w) {
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path_of(w), &db), SQLITE_OK);
    return db;
}

static void do_sql(sqlite3 *db, const char *sql) {
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
}

static int ledger_rows(const world *w) {
    int count = 0;
    sqlite3 *db = connection_to(w);
    assert_int_equal(sqlite3_exec(db, "SELECT * FROM ledger", count_row, &count, NULL), SQLITE_OK);
    sqlite3_close(db);
    return count;
}

/* ---- activities that return inside ---- */

static sqlite3 *program_db; /* a connection of the program, which its activities share */

static dur_outcome book(dur_act *act, const char *input) {
    dur_error err = DUR_ERROR_INIT;
    sqlite3 *db = strcmp(input, "program") == 0 ? program_db : dur_act_sqlite(act, &err);
    if (db == NULL || dur_sqlite_begin(dur_act_store(act), db, &err) != DUR_OK) return dur_act_fail(act, err.message);
    if (strcmp(input, "closes") == 0) return dur_act_complete(act, sqlite3_close(db) == SQLITE_OK ? "closed" : "busy");
    dur_start_args also = { .size = sizeof(also), .name = "Books", .instance = "also" };
    if (dur_sqlite_start(dur_act_store(act), db, &also, &err) != DUR_OK) return dur_act_fail(act, err.message);
    if (sqlite3_exec(db, "INSERT INTO ledger VALUES(1)", NULL, NULL, NULL) != SQLITE_OK)
        return dur_act_fail_final(act, "no row");
    if (strcmp(input, "by hand") == 0) (void)sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    if (strcmp(input, "fails") == 0) return dur_act_fail_final(act, "the bank said no");
    return dur_act_complete(act, "left open");
}

static dur_outcome books(dur_ctx *ctx, const char *input) {
    if (input[0] == '\0') return dur_complete(ctx, "nothing to book");
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Book", input)));
}

static dur_outcome begins(dur_ctx *ctx, const char *input) {
    (void)input;
    if (!dur_is_replaying(ctx)) (void)dur_sqlite_begin(dur_handler_data(ctx), program_db, NULL);
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Book", "fails")));
}

static const dur_handler handlers[] = { DUR_ORCHESTRATION("Books", NULL, books), DUR_ACTIVITY("Book", book),
                                        DUR_HANDLERS_END };

static void after_an_activity_that(world *w, const char *input) {
    sqlite3 *db = connection_to(w);
    do_sql(db, "CREATE TABLE ledger(x)");
    program_db = db;
    RUN(w, handlers);
    listen("activity \"Book\" of instance \"o1\"", strcmp(input, "by hand") == 0 ? "by hand" : "rolled back");
    start(w, "Books", input, "o1");
    if (strcmp(input, "fails") == 0)
        expect_failure(w, "o1", DUR_EFAILED, "the bank said no"); /* it is what the activity has returned */
    else
        expect(w, "o1", "left open");
    until_said();
    others_write(w, "o2");
    expect(w, "o2", "nothing to book");
    assert_int_equal(ledger_rows(w), 0);
    assert_false(is_known(w, "also"));
    world_stop(w);
    sqlite3_close(db);
}

static void fault_h181_an_activity_that_returns_leaves_no_transaction(void **state) {
    if (!on_provider("sqlite")) skip();
    after_an_activity_that(*state, "returns");
}

static void fault_h181_an_activity_that_fails_leaves_no_transaction(void **state) {
    if (!on_provider("sqlite")) skip();
    after_an_activity_that(*state, "fails");
}

static void fault_h181_an_activity_leaves_none_on_the_programs_connection(void **state) {
    if (!on_provider("sqlite")) skip();
    after_an_activity_that(*state, "program");
}

static void fault_h181_an_activity_that_has_rolled_back_by_hand_leaves_none(void **state) {
    if (!on_provider("sqlite")) skip();
    after_an_activity_that(*state, "by hand");
}

static void fault_h181_an_activity_may_have_closed_its_connection(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    RUN(w, handlers);
    start(w, "Books", "closes", "o1");
    expect(w, "o1", "closed");
    others_write(w, "o2");
    world_stop(w);
}

/* A handler has no business with it; but it stops nobody else for ever. */
static void fault_h181_a_handler_that_waits_leaves_no_transaction(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    const dur_handler of_begins[] = { DUR_ORCHESTRATION("Books", NULL, books),
                                      DUR_ACTIVITY("Book", book),
                                      { .size = sizeof(dur_handler),
                                        .kind = DUR_HANDLER_ORCHESTRATION,
                                        .name = "Begins",
                                        .orchestration = begins,
                                        .data = w->store },
                                      DUR_HANDLERS_END };
    program_db = connection_to(w);
    do_sql(program_db, "CREATE TABLE ledger(x)");
    RUN(w, of_begins);
    listen("handler of instance \"o1\"", "rolled back");
    start(w, "Begins", "", "o1");
    expect_failure(w, "o1", DUR_EFAILED, "the bank said no");
    until_said();
    world_stop(w);
    sqlite3_close(program_db);
}

/* ---- threads and connections that go ---- */

typedef struct holder {
    world *w;
    sqlite3 *db;
    const char *then; /* SQL; NULL: none */
    _Atomic bool begun, go_on;
    int code;
    dur_error err;
} holder;

static void *begin_and_end(void *data) {
    holder *h = data;
    h->code = dur_sqlite_begin(h->w->store, h->db, &h->err);
    if (h->code == DUR_OK) do_sql(h->db, "CREATE TABLE ledger(x)");
    return NULL;
}

static void fault_h181_a_thread_that_ends_leaves_no_transaction(void **state) {
    world *w = *state;
    pthread_t thread;
    if (!on_provider("sqlite")) skip();
    holder h = { .w = w, .db = connection_to(w), .err = DUR_ERROR_INIT };
    listen("its thread ended", "rolled back");
    assert_int_equal(pthread_create(&thread, NULL, begin_and_end, &h), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(h.code, DUR_OK);
    until_said();
    others_write(w, "o1");
    assert_int_equal(dur_sqlite_commit(w->store, h.db, &w->err), DUR_ESTATE); /* not this thread's */
    OK(w, dur_sqlite_begin(w->store, h.db, &w->err));                         /* the connection is as any other */
    do_sql(h.db, "CREATE TABLE ledger(x)");
    OK(w, dur_sqlite_commit(w->store, h.db, &w->err));
    sqlite3_close(h.db);
}

static void fault_h181_a_connection_that_is_closed_leaves_no_transaction(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    for (int i = 0; i < 2; i++) {
        char id[8];
        sqlite3 *db = connection_to(w);
        OK(w, dur_sqlite_begin(w->store, db, &w->err));
        do_sql(db, "CREATE TABLE ledger(x)");
        assert_int_equal(sqlite3_close(db), SQLITE_OK);
        snprintf(id, sizeof(id), "o%d", i);
        if (i == 0) others_write(w, id);
        if (i == 1) start(w, "Books", "", id); /* nothing holds this thread either */
    }
}

static void *begin_and_rest(void *data) {
    holder *h = data;
    h->code = dur_sqlite_begin(h->w->store, h->db, &h->err);
    if (h->code == DUR_OK) do_sql(h->db, h->then);
    atomic_store(&h->begun, true);
    while (!atomic_load(&h->go_on))
        pause_ms(1);
    h->code = dur_sqlite_commit(h->w->store, h->db, &h->err);
    return NULL;
}

/* The thread lives on and does not come back; what it has done by hand is seen all the same. */
static void over_by_hand(world *w, const char *sql, const char *word) {
    pthread_t thread;
    holder h = { .w = w, .db = connection_to(w), .then = sql, .err = DUR_ERROR_INIT };
    assert_int_equal(pthread_create(&thread, NULL, begin_and_rest, &h), 0);
    while (!atomic_load(&h.begun))
        pause_ms(1);
    others_write(w, "o1");
    others_write(w, "o2");
    atomic_store(&h.go_on, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(h.code, DUR_ESTATE);
    if (strstr(h.err.message, word) == NULL) fail_msg("no \"%s\": %s", word, h.err.message);
    sqlite3_close(h.db);
}

static void fault_h181_a_rollback_by_hand_lets_others_go_on(void **state) {
    if (!on_provider("sqlite")) skip();
    over_by_hand(*state, "CREATE TABLE ledger(x); ROLLBACK", "rolled back");
}

static void fault_h181_a_commit_by_hand_lets_others_go_on(void **state) {
    if (!on_provider("sqlite")) skip();
    over_by_hand(*state, "CREATE TABLE ledger(x); COMMIT", "COMMIT");
}

/* ---- one that goes on and on ---- */

/* Who waits is told who it is, in the log and when his time is up; nothing is lost, and reading goes on. */
static void fault_h181_an_open_transaction_is_named_and_others_are_told(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    NEEDS_THREADS("the test's thread is inside of the transaction");
    reopen(w, DUR_SQLITE(.path = path_of(w), .busy_ms = 1500));
    sqlite3 *db = connection_to(w);
    do_sql(db, "CREATE TABLE ledger(x)");
    RUN(w, handlers);
    OK(w, dur_client_start(w->client, &w->err, "Books", "returns", .instance = "due", .delay_ms = 300));
    listen("has been open", "thread");
    OK(w, dur_sqlite_begin(w->store, db, &w->err));
    assert_int_equal(writer_end(writer_begin(w, "o1"), &w->err), DUR_EBUSY);
    assert_true(w->err.retryable);
    assert_non_null(strstr(w->err.message, "dur_sqlite_begin"));
    assert_non_null(strstr(w->err.message, "thread"));
    until_said();
    assert_false(is_known(w, "o1"));
    OK(w, dur_sqlite_commit(w->store, db, &w->err));
    expect(w, "due", "left open"); /* the loop has kept it, and tried again */
    others_write(w, "o1");
    world_stop(w);
    sqlite3_close(db);
}

static void fault_h181_transactions_on_two_stores_end_one_by_one(void **state) {
    world *w = *state;
    char path[200];
    dur_provider *other = NULL;
    sqlite3 *other_db = NULL;
    if (!on_provider("sqlite")) skip();
    snprintf(path, sizeof(path), "%s/other.db", w->dir);
    OK(w, dur_sqlite_open(&other, DUR_SQLITE(.path = path), &w->err));
    assert_int_equal(sqlite3_open(path, &other_db), SQLITE_OK);
    sqlite3 *db = connection_to(w);
    OK(w, dur_sqlite_begin(w->store, db, &w->err));
    OK(w, dur_sqlite_begin(other, other_db, &w->err));
    OK(w, dur_sqlite_commit(other, other_db, &w->err));
    OK(w, dur_sqlite_commit(w->store, db, &w->err));
    others_write(w, "o1");
    sqlite3_close(db);
    sqlite3_close(other_db);
    dur_provider_close(other);
}

/* ---- stopping and closing inside ---- */

static void stop_inside(world *w, dur_threads threads) {
    sqlite3 *db = connection_to(w);
    dur_start_args also = { .size = sizeof(also), .name = "Books", .instance = "also" };
    OK(w, dur_runtime_start(&w->runtime, DUR_RUNTIME(.store = w->store, .handlers = handlers, .threads = threads),
                            &w->err));
    if (threads == DUR_THREADS_NONE) OK(w, dur_runtime_step(w->runtime, 1, &w->err));
    OK(w, dur_sqlite_begin(w->store, db, &w->err));
    assert_int_equal(dur_runtime_stop(w->runtime, 500, &w->err), DUR_EDEADLK);
    OK(w, dur_sqlite_start(w->store, db, &also, &w->err)); /* nothing has happened */
    OK(w, dur_sqlite_commit(w->store, db, &w->err));
    if (threads == DUR_THREADS_NONE) OK(w, dur_runtime_run_until_idle(w->runtime, DUR_MINUTES(1), &w->err));
    expect(w, "also", "nothing to book");
    world_stop(w);
    sqlite3_close(db);
}

static void fault_h182_a_stop_inside_is_refused(void **state) {
    if (!on_provider("sqlite")) skip();
    stop_inside(*state, DUR_THREADS_OWN);
}

static void fault_h182_a_stop_inside_is_refused_without_threads(void **state) {
    if (!on_provider("sqlite")) skip();
    stop_inside(*state, DUR_THREADS_NONE);
}

static void start_inside(world *w, dur_threads threads) {
    sqlite3 *db = connection_to(w);
    OK(w, dur_sqlite_begin(w->store, db, &w->err));
    int code = dur_runtime_start(&w->runtime, DUR_RUNTIME(.store = w->store, .handlers = handlers, .threads = threads),
                                 &w->err);
    assert_int_equal(code, DUR_EDEADLK);
    OK(w, dur_sqlite_commit(w->store, db, &w->err));
    sqlite3_close(db);
    others_write(w, threads == DUR_THREADS_NONE ? "o1" : "o2");
}

static void fault_h182_a_start_inside_is_refused(void **state) {
    if (!on_provider("sqlite")) skip();
    start_inside(*state, DUR_THREADS_OWN);
    start_inside(*state, DUR_THREADS_NONE);
}

/* An activity on the stepping thread is inside of both. */
static dur_runtime *stepping;

static dur_outcome stops(dur_act *act, const char *input) {
    dur_error err = DUR_ERROR_INIT;
    sqlite3 *db = dur_act_sqlite(act, &err);
    (void)input;
    if (db == NULL || dur_sqlite_begin(dur_act_store(act), db, &err) != DUR_OK) return dur_act_fail(act, err.message);
    if (dur_runtime_stop(stepping, 100, &err) != DUR_EDEADLK) return dur_act_fail_final(act, "stopped inside");
    return dur_act_complete(act, "refused"); /* and left open */
}

static dur_outcome steps(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Stops", input)));
}

static const dur_handler of_stops[] = { DUR_ORCHESTRATION("Steps", NULL, steps), DUR_ACTIVITY("Stops", stops),
                                        DUR_HANDLERS_END };

static void fault_h182_an_activity_of_a_step_cannot_stop_inside(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    OK(w, dur_runtime_start(
              &w->runtime, DUR_RUNTIME(.store = w->store, .handlers = of_stops, .threads = DUR_THREADS_NONE), &w->err));
    stepping = w->runtime;
    start(w, "Steps", "", "o1");
    OK(w, dur_runtime_run_until_idle(w->runtime, DUR_MINUTES(1), &w->err));
    expect(w, "o1", "refused");
    world_stop(w);
}

/* They cannot answer: what is open is rolled back, and said. */
static void fault_h182_a_host_that_is_freed_inside_is_gone(void **state) {
    world *w = *state;
    dur_host *host = NULL;
    if (!on_provider("sqlite")) skip();
    sqlite3 *db = connection_to(w);
    dur_start_args also = { .size = sizeof(also), .name = "Books", .instance = "also" };
    OK(w, dur_host_start(&host, w->url, handlers, &w->err));
    OK(w, dur_sqlite_begin(dur_host_store(host), db, &w->err));
    OK(w, dur_sqlite_start(dur_host_store(host), db, &also, &w->err));
    assert_int_equal(dur_host_stop(host, 100, &w->err), DUR_EDEADLK);
    listen("host was freed", "rolled back");
    dur_host_free(host);
    until_said();
    assert_int_not_equal(sqlite3_get_autocommit(db), 0);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    others_write(w, "o1");
    assert_false(is_known(w, "also"));
}

static void fault_h182_a_store_that_is_closed_inside_is_closed(void **state) {
    world *w = *state;
    dur_provider *second = NULL;
    if (!on_provider("sqlite")) skip();
    sqlite3 *db = connection_to(w);
    OK(w, dur_open(&second, w->url, &w->err));
    OK(w, dur_sqlite_begin(second, db, &w->err));
    do_sql(db, "CREATE TABLE ledger(x)");
    listen("store was closed", "rolled back");
    dur_provider_close(second);
    until_said();
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
    others_write(w, "o1");
    OK(w, dur_open(&second, w->url, &w->err)); /* another handle is no matter of the transaction's */
    db = connection_to(w);
    OK(w, dur_sqlite_begin(w->store, db, &w->err));
    dur_provider_close(second);
    do_sql(db, "CREATE TABLE ledger(x)");
    OK(w, dur_sqlite_commit(w->store, db, &w->err));
    sqlite3_close(db);
}

static const struct CMUnitTest tests[] = {
    TEST(fault_h181_an_activity_that_returns_leaves_no_transaction),
    TEST(fault_h181_an_activity_that_fails_leaves_no_transaction),
    TEST(fault_h181_an_activity_leaves_none_on_the_programs_connection),
    TEST(fault_h181_an_activity_that_has_rolled_back_by_hand_leaves_none),
    TEST(fault_h181_an_activity_may_have_closed_its_connection),
    TEST(fault_h181_a_handler_that_waits_leaves_no_transaction),
    TEST(fault_h181_a_thread_that_ends_leaves_no_transaction),
    TEST(fault_h181_a_connection_that_is_closed_leaves_no_transaction),
    TEST(fault_h181_a_rollback_by_hand_lets_others_go_on),
    TEST(fault_h181_a_commit_by_hand_lets_others_go_on),
    TEST(fault_h181_an_open_transaction_is_named_and_others_are_told),
    TEST(fault_h181_transactions_on_two_stores_end_one_by_one),
    TEST(fault_h182_a_stop_inside_is_refused),
    TEST(fault_h182_a_stop_inside_is_refused_without_threads),
    TEST(fault_h182_a_start_inside_is_refused),
    TEST(fault_h182_an_activity_of_a_step_cannot_stop_inside),
    TEST(fault_h182_a_host_that_is_freed_inside_is_gone),
    TEST(fault_h182_a_store_that_is_closed_inside_is_closed),
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
