/*
 * test_pg_outcomes.c: calls outside lanes whose commit is cut off, statements that are refused for passing reasons,
 * deadlocks and isolation levels: the answer says what happened, and asking again is right.
 */
#include "pg_proxy.h"
#include "provider/postgres/pg_internal.h"

/* ---- the answer to a commit is lost ------------------------------------------------------------------------------ */

typedef struct cut {
    pg_bench *p;
    dur_provider *through; /* by the proxy */
    dur_arena *arena;
    const char *token; /* of what prepare took */
    dur_error err;
} cut;

static long count_of(cut *c, const char *what) {
    char sql[400];
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s.%s", c->p->schema, what);
    return pg_number(c->p->db, sql);
}

static void running(cut *c) {
    make_running(&c->p->b, "mark");
}
static void finished(cut *c) {
    bench *b = &c->p->b;
    dur_event_row event = event_of(2);
    dur_message_row wake = message_of(DUR_WORK_EXTERNAL_RAISED, "mark");
    running(c);
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &wake, 0, &b->err));
    dur_orchestration_item item = fetch(b, 60000);
    dur_turn_commit turn = {
        .lock_token = item.lock_token, .execution_id = 1, .events = &event, .event_count = 1, .metadata = named()
    };
    turn.metadata.status = DUR_STATUS_COMPLETED;
    ASSERT_OK(b, dur_store_ack_orchestration_item(b->store, &turn, &b->err));
}
static void with_work(cut *c) {
    bench *b = &c->p->b;
    running(c);
    dur_message_row work = activity_of(b, "mark", 3, NULL, NULL);
    ASSERT_OK(b, dur_store_enqueue_for_worker(b->store, &work, &b->err));
}
static void with_taken_work(cut *c) {
    bench *b = &c->p->b;
    dur_leased_work got;
    dur_work_fetch how = { .lock_ms = 60000 };
    with_work(c);
    ASSERT_OK(b, dur_store_fetch_work_item(b->store, c->arena, &how, &got, &b->err));
    c->token = got.lock_token;
}
static void with_message(cut *c) {
    bench *b = &c->p->b;
    dur_message_row raised = message_of(DUR_WORK_EXTERNAL_RAISED, "mark");
    running(c);
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &raised, 0, &b->err));
}
static void with_taken_message(cut *c) {
    with_message(c);
    c->token = dur_arena_strdup(c->arena, fetch(&c->p->b, 60000).lock_token);
}
static void nothing(cut *c) {
    (void)c;
}

static int do_enqueue(cut *c) {
    dur_message_row raised = message_of(DUR_WORK_EXTERNAL_RAISED, "mark");
    return dur_store_enqueue_for_orchestrator(c->through, &raised, 0, &c->err);
}
static int start_with(cut *c, dur_exists_policy policy) {
    bool existed;
    dur_message_row start = start_of(&c->p->b, "mark");
    return dur_store_enqueue_start(c->through, &start, policy, 0, &existed, &c->err);
}
static int do_start(cut *c) {
    return start_with(c, DUR_EXISTS_RETURN);
}
static int do_replace(cut *c) {
    int code = start_with(c, DUR_EXISTS_REPLACE_FINISHED);
    return code == DUR_EEXISTS ? DUR_OK : code; /* the new one */
}
static int do_send_once(cut *c) {
    dur_message_row raised = message_of(DUR_WORK_EXTERNAL_RAISED, "mark");
    raised.message_id = "id";
    int code = dur_store_enqueue_existing(c->through, &raised, 0, &c->err);
    return code == DUR_EDUPLICATE ? DUR_OK : code; /* it had happened */
}
static int do_ack_work(cut *c) {
    dur_message_row done = message_of(DUR_WORK_ACTIVITY_COMPLETED, "mark");
    int code = dur_store_ack_work_item(c->through, c->token, &done, &c->err);
    return code == DUR_ELEASE ? DUR_OK : code;
}
static int do_abandon(cut *c) {
    int code = dur_store_abandon_orchestration_item(c->through, c->token, 0, false, &c->err);
    return code == DUR_ELEASE ? DUR_OK : code;
}
static int do_suspend(cut *c) {
    return dur_store_set_suspended(c->through, "mark", "why", &c->err);
}
static int do_delete(cut *c) {
    const char *const ids[] = { "mark" };
    dur_delete_result result;
    int code = dur_store_delete_instances(c->through, ids, 1, true, &result, &c->err);
    return code == DUR_ENOTFOUND ? DUR_OK : code;
}
static int do_put_work(cut *c) {
    dur_message_row work = activity_of(&c->p->b, "mark", 3, NULL, NULL);
    return dur_store_enqueue_for_worker(c->through, &work, &c->err);
}
static int do_append(cut *c) {
    dur_event_row event = event_of(2);
    int code = dur_store_append(c->through, "mark", 1, &event, 1, &c->err);
    return code == DUR_ECONFLICT ? DUR_OK : code;
}
static int do_fetch(cut *c) {
    dur_orchestration_item item;
    dur_fetch how = { .lock_ms = 60000 };
    int code = dur_store_fetch_orchestration_item(c->through, c->arena, &how, &item, &c->err);
    if (code == DUR_OK) assert_non_null(item.instance); /* nothing stays taken by nobody */
    return code;
}
static int do_fetch_work(cut *c) {
    dur_leased_work got;
    dur_work_fetch how = { .lock_ms = 60000 };
    int code = dur_store_fetch_work_item(c->through, c->arena, &how, &got, &c->err);
    if (code == DUR_OK) {
        assert_non_null(got.json.data);
        assert_int_equal(got.attempt_count, 1);
    }
    return code;
}

/* first: the answer to the cut call.  happened: what is seen in the database when it was cut after; twice: after the
   call was made again, and it had happened before. */
typedef struct cut_case {
    const char *name;
    void (*prepare)(cut *c);
    int (*call)(cut *c);
    const char *trigger; /* something that only this call sends */
    const char *look;
    int first;
    long before, happened, twice;
} cut_case;

static const cut_case cut_cases[] = {
    { "enqueue", running, do_enqueue, "mark", "dur_queue", DUR_EUNKNOWN, 0, 1, 2 },
    { "start", nothing, do_start, "mark", "dur_queue", DUR_EUNKNOWN, 0, 1, 1 },
    { "replace", finished, do_replace, "COMMIT", "dur_queue", DUR_EUNKNOWN, 0, 1, 1 },
    { "send once", running, do_send_once, "mark", "dur_queue", DUR_EUNKNOWN, 0, 1, 1 },
    { "ack work", with_taken_work, do_ack_work, "mark", "dur_queue", DUR_EUNKNOWN, 0, 1, 1 },
    { "abandon", with_taken_message, do_abandon, NULL, "dur_instances WHERE token IS NULL", DUR_EUNKNOWN, 0, 1, 1 },
    { "suspend", running, do_suspend, "mark", "dur_instances WHERE suspended IS NOT NULL", DUR_EUNKNOWN, 0, 1, 1 },
    { "delete", running, do_delete, "COMMIT", "dur_history", DUR_EUNKNOWN, 1, 0, 0 },
    { "put work", running, do_put_work, "mark", "dur_worker", DUR_EUNKNOWN, 0, 1, 2 },
    { "append", running, do_append, "mark", "dur_history", DUR_EUNKNOWN, 1, 2, 2 },
    /* what a lost fetch took is given back at once, so its outcome is known: nothing */
    { "fetch", with_message, do_fetch, "FOR UPDATE SKIP", "dur_instances WHERE token IS NOT NULL", DUR_EUNAVAILABLE, 0,
      0, 1 },
    { "fetch work", with_work, do_fetch_work, "FOR UPDATE OF w", "dur_worker WHERE token IS NOT NULL", DUR_EUNAVAILABLE,
      0, 0, 1 },
};

static void run_cut(pg_bench *p, const cut_case *one, int mode) {
    proxy x;
    cut c = { .p = p, .arena = dur_arena_new() };
    char sql[600];
    snprintf(
        sql, sizeof(sql),
        "TRUNCATE %s.dur_instances, %s.dur_executions, %s.dur_history, %s.dur_queue, %s.dur_worker, %s.dur_accepted",
        p->schema, p->schema, p->schema, p->schema, p->schema, p->schema);
    pg_do(p->db, sql);
    one->prepare(&c);
    if (!proxy_open(&x, one->trigger != NULL ? one->trigger : c.token)) skip();
    c.through = proxy_store(&x, p);
    assert_int_equal(count_of(&c, one->look), one->before);
    atomic_store(&x.mode, mode);
    int code = one->call(&c);
    if (atomic_load(&x.cuts) != 1) fail_msg("%s was not cut", one->name);
    bool known_not = mode == PROXY_CUT_BEFORE && one->first == DUR_EUNKNOWN && code == DUR_EUNAVAILABLE;
    if (code != one->first && !known_not) fail_msg("%s: %s: %s", one->name, dur_code_name(code), c.err.message);
    assert_int_equal(c.err.code, code);
    assert_true(c.err.retryable);
    long seen = count_of(&c, one->look), wanted = mode != PROXY_CUT_BEFORE ? one->happened : one->before;
    if (seen != wanted) fail_msg("%s, mode %d: %ld rows, not %ld", one->name, mode, seen, wanted);
    code = one->call(&c);
    if (code != DUR_OK) fail_msg("%s again: %s", one->name, c.err.message);
    seen = count_of(&c, one->look);
    wanted = mode != PROXY_CUT_BEFORE || one->first == DUR_EUNAVAILABLE ? one->twice : one->happened;
    if (seen != wanted) fail_msg("%s again, mode %d: %ld rows, not %ld", one->name, mode, seen, wanted);
    dur_provider_close(c.through);
    proxy_close(&x);
    dur_arena_free(c.arena);
}

static void cut_after_it_happened(void **state) {
    for (size_t i = 0; i < sizeof(cut_cases) / sizeof(cut_cases[0]); i++)
        run_cut(*state, &cut_cases[i], PROXY_CUT_AFTER);
}
static void cut_before_it_was_sent(void **state) {
    for (size_t i = 0; i < sizeof(cut_cases) / sizeof(cut_cases[0]); i++)
        run_cut(*state, &cut_cases[i], PROXY_CUT_BEFORE);
}

/* What a pooler says last is about its session with the server, and nothing about the transaction. */
static void given_up_by_a_pooler_after_it_happened(void **state) {
    for (size_t i = 0; i < sizeof(cut_cases) / sizeof(cut_cases[0]); i++)
        run_cut(*state, &cut_cases[i], PROXY_GIVE_UP_AFTER);
}

/* ---- refused for a passing reason -------------------------------------------------------------------------------- */

static void hold_row(PGconn *db, const char *schema, const char *id) {
    char sql[200];
    snprintf(sql, sizeof(sql), "SELECT 1 FROM %s.dur_instances WHERE instance_id = '%s' FOR UPDATE", schema, id);
    pg_do(db, sql);
}

static int raise_to(dur_provider *store, const char *id, dur_error *err) {
    dur_message_row raised = message_of(DUR_WORK_EXTERNAL_RAISED, id);
    return dur_store_enqueue_for_orchestrator(store, &raised, 0, err);
}

static long messages(pg_bench *p) {
    char sql[128];
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s.dur_queue", p->schema);
    return pg_number(p->db, sql);
}

/* An administrator cancels what waits for a lock; our own sessions have no other limit than that of locks. */
static void *cancel_who_waits(void *arg) {
    const pg_bench *p = arg;
    char sql[300];
    PGconn *db = PQconnectdb(pg_server());
    snprintf(sql, sizeof(sql),
             "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE application_name = 'durite_%s' AND"
             " wait_event_type = 'Lock'",
             p->schema);
    while (pg_number(db, sql) == 0)
        pg_pause_ms(10);
    PQfinish(db);
    return NULL;
}

/*
 * The server says that it ends the session, before it has answered what the batch asks for: in the notification of an
 * earlier round, which stands in front of it, or in the batch.  Nothing was committed, and that is known (H106).
 */
static void a_farewell_before_the_answer_is_an_answer(void **state) {
    static const char leave_sql[] = "SELECT pg_terminate_backend(pg_backend_pid()), $1::bigint IS NULL";
    static const char write_sql[] = "INSERT INTO @served (activity, handler, owner) SELECT true, 'x', owner FROM"
                                    " @owners WHERE $1::bigint IS NULL";
    pg_bench *p = *state;
    dur__pg *store = dur__pg_of(p->b.store);
    for (int in_front = 0; in_front < 2; in_front++) {
        dur__pg_args args;
        dur__pg_batch batch;
        dur_error err = DUR_ERROR_INIT;
        dur__pg_conn *conn = dur__pg_conn_new(store);
        ASSERT_OK(&p->b, dur__pg_connect(conn, &p->b.err));
        dur__pg_batch_begin(&batch, conn, true);
        dur__pg_args_begin(store, &args);
        dur__pg_batch_add(&batch, leave_sql, &args);
        if (in_front) {
            assert_int_equal(PQpipelineSync(conn->pg), 1);
            batch.notified = true;
        }
        dur__pg_args_begin(store, &args);
        dur__pg_batch_add(&batch, write_sql, &args);
        int code = dur__pg_batch_run(&batch, "test", &err);
        dur__pg_batch_end(&batch);
        print_message("%s: %s\n", dur_code_name((dur_code)code), err.message);
        assert_int_equal(code, DUR_EUNAVAILABLE);
        assert_true(err.retryable);
        dur__pg_conn_free(conn);
    }
}

static void a_statement_is_cancelled(void **state) {
    pg_bench *p = *state;
    dur_provider *store = NULL;
    pthread_t administrator;
    make_running(&p->b, "a");
    ASSERT_OK(&p->b, dur_open(&store, p->url, &p->b.err));
    pg_do(p->db, "BEGIN");
    hold_row(p->db, p->schema, "a");
    assert_int_equal(pthread_create(&administrator, NULL, cancel_who_waits, p), 0);
    assert_int_equal(raise_to(store, "a", &p->b.err), DUR_EBUSY);
    pthread_join(administrator, NULL);
    assert_true(p->b.err.retryable);
    assert_non_null(strstr(p->b.err.message, "57014"));
    pg_do(p->db, "ROLLBACK");
    assert_int_equal(messages(p), 0);
    ASSERT_OK(&p->b, raise_to(store, "a", &p->b.err));
    assert_int_equal(messages(p), 1);
    dur_provider_close(store);
}

typedef struct crossing {
    dur_provider *store;
    dur_turn_commit turn;
    dur_error err;
} crossing;

static void *commit_crossing(void *arg) {
    crossing *c = arg;
    (void)dur_store_commit_turns(c->store, &c->turn, 1, &c->err);
    return NULL;
}

/* Somebody who does not lock in our order: one of the two is the victim, and here it is we who look first: once, some
   seconds after we began to wait, and by then the circle is closed. */
static void the_victim_of_a_deadlock(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *store = NULL;
    char url[1200];
    dur_event_row event = event_of(2);
    dur_message_row to_b = message_of(DUR_WORK_EXTERNAL_RAISED, "b");
    pthread_t thread;
    char sql[200];
    make_running(b, "a");
    make_running(b, "b");
    ASSERT_OK(b, raise_to(b->store, "a", &b->err));
    dur_orchestration_item item = fetch(b, 60000);
    snprintf(url, sizeof(url), "%s&options=-c%%20deadlock_timeout%%3D3s", p->url);
    ASSERT_OK(b, dur_open(&store, url, &b->err));
    crossing c = { .store = store,
                   .turn = { .lock_token = item.lock_token,
                             .instance = "a",
                             .execution_id = 1,
                             .events = &event,
                             .event_count = 1,
                             .expected_last = 1,
                             .metadata = named(),
                             .orchestrator_items = &to_b,
                             .orchestrator_item_count = 1 } };
    PGconn *rude = PQconnectdb(pg_server());
    pg_do(rude, "SET deadlock_timeout = '60s'");
    pg_do(rude, "BEGIN");
    hold_row(rude, p->schema, "b");
    assert_int_equal(pthread_create(&thread, NULL, commit_crossing, &c), 0);
    snprintf(sql, sizeof(sql),
             "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'durite_%s' AND wait_event_type = 'Lock'",
             p->schema);
    while (pg_number(p->db, sql) == 0) /* it has a, and waits for b */
        pg_pause_ms(5);
    hold_row(rude, p->schema, "a"); /* closes the circle; goes on when the other was undone */
    pthread_join(thread, NULL);
    pg_do(rude, "ROLLBACK");
    assert_int_equal(c.turn.fault, DUR_TURN_STORE);
    assert_int_equal(c.turn.error.code, DUR_EBUSY);
    assert_true(c.turn.error.retryable);
    assert_non_null(strstr(c.turn.error.message, "40P01"));
    ASSERT_OK(b, dur_store_commit_turns(b->store, &c.turn, 1, &b->err)); /* the same again */
    assert_int_equal(c.turn.error.code, DUR_OK);
    dur_event_row *rows;
    size_t count;
    ASSERT_OK(b, dur_store_read(b->store, b->arena, "a", 1, &rows, &count, &b->err));
    assert_int_equal(count, 2);
    PQfinish(rude);
    dur_provider_close(store);
}

/* ---- durable ----------------------------------------------------------------------------------------------------- */

/* From here on a commit that its server may forget, and that is more than a notification, fails. */
static void watch_durability(pg_bench *p, const char *table) {
    char sql[800];
    snprintf(sql, sizeof(sql),
             "CREATE FUNCTION %s.durable() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF"
             " current_setting('synchronous_commit') = 'off' THEN RAISE EXCEPTION 'not durable'; END IF; RETURN NULL;"
             " END $$;"
             "CREATE CONSTRAINT TRIGGER durable AFTER INSERT OR DELETE ON %s.%s DEFERRABLE INITIALLY DEFERRED FOR EACH"
             " ROW EXECUTE FUNCTION %s.durable()",
             p->schema, p->schema, table, p->schema);
    pg_do(p->db, sql);
}

/* A notification need not be durable; what it is sent with, in one transaction, must be. */
static void a_transaction_of_several_batches_is_durable(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    char sql[200];
    const char *id = "a";
    bool existed;
    dur_delete_result deleted;
    make_running(b, id);
    snprintf(sql, sizeof(sql), "UPDATE %s.dur_instances SET status = 2", p->schema);
    pg_do(p->db, sql);
    watch_durability(p, "dur_instances");
    dur_message_row start = start_of(b, id);
    ASSERT_OK(b, dur_store_enqueue_start(b->store, &start, DUR_EXISTS_REPLACE_FINISHED, 0, &existed, &b->err));
    assert_int_equal(messages(p), 1);
    ASSERT_OK(b, dur_store_delete_instances(b->store, &id, 1, true, &deleted, &b->err));
    assert_int_equal(deleted.instances, 1);
    assert_int_equal(messages(p), 0);
}

/* Behind a pooler each transaction says how long it waits for a lock: one of several batches, too. */
static void no_transaction_waits_without_end(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *store = NULL;
    char url[1200], sql[800];
    const char *id = "a";
    bool existed;
    dur_delete_result deleted;
    make_running(b, id);
    snprintf(sql, sizeof(sql),
             "UPDATE %s.dur_instances SET status = 2;"
             "CREATE FUNCTION %s.bounded() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF"
             " current_setting('lock_timeout') = '0' THEN RAISE EXCEPTION 'waits without end'; END IF; RETURN OLD;"
             " END $$;"
             "CREATE TRIGGER bounded BEFORE DELETE ON %s.dur_instances FOR EACH ROW EXECUTE FUNCTION %s.bounded()",
             p->schema, p->schema, p->schema, p->schema);
    pg_do(p->db, sql);
    snprintf(url, sizeof(url), "%s&pooler=transaction", p->url);
    ASSERT_OK(b, dur_open(&store, url, &b->err));
    dur_message_row start = start_of(b, id);
    ASSERT_OK(b, dur_store_enqueue_start(store, &start, DUR_EXISTS_REPLACE_FINISHED, 0, &existed, &b->err));
    ASSERT_OK(b, dur_store_delete_instances(store, &id, 1, true, &deleted, &b->err));
    dur_provider_close(store);
}

/* ---- isolation levels -------------------------------------------------------------------------------------------- */

static const char *const levels[] = { "read committed", "repeatable read", "serializable" };

/* What a role or database has as its default changes nothing for us: claims need a snapshot per statement. */
static void whatever_the_default_level_is(void **state) {
    pg_bench *p = *state;
    static const char *const defaults[] = { "read%5C%20committed", "repeatable%5C%20read", "serializable" };
    pg_watch_levels(p);
    for (size_t i = 0; i < 3; i++) {
        dur_provider *store = NULL, *ours = p->b.store;
        char url[1200], id[16];
        snprintf(url, sizeof(url), "%s&options=-c%%20default_transaction_isolation%%3D%s", p->url, defaults[i]);
        ASSERT_OK(&p->b, dur_open(&store, url, &p->b.err));
        snprintf(id, sizeof(id), "i%zu", i);
        p->b.store = store;
        make_running(&p->b, id);
        p->b.store = ours;
        dur_provider_close(store);
    }
}

/* The caller's transaction has the caller's level; beside it others write. */
static void in_transactions_of_every_level(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_message_args message = { .size = sizeof(message), .instance = "a", .name = "q", .data = "x" };
    make_running(b, "a");
    long sent = 0;
    for (size_t i = 0; i < 3; i++) {
        char sql[100];
        for (int disturbed = 0; disturbed < 2; disturbed++) {
            snprintf(sql, sizeof(sql), "BEGIN ISOLATION LEVEL %s", levels[i]);
            pg_do(p->db, sql);
            pg_do(p->db, "SELECT count(*) FROM pg_class"); /* its snapshot is taken */
            if (disturbed) {
                ASSERT_OK(b, raise_to(b->store, "a", &b->err));
                sent++;
            }
            int code = dur_postgres_pulse(b->store, p->db, &message, &b->err);
            if (code == DUR_OK) {
                sent++;
            } else { /* the row was changed since the snapshot */
                assert_int_equal(code, DUR_EBUSY);
                assert_true(b->err.retryable && disturbed && i > 0);
                assert_non_null(strstr(b->err.message, "40001"));
            }
            pg_do(p->db, code == DUR_OK ? "COMMIT" : "ROLLBACK");
        }
    }
    dur_orchestration_item item = fetch(b, 1000);
    assert_int_equal(item.message_count, sent); /* none is missed */
}

/* ---- many connections, random operations ------------------------------------------------------------------------- */

enum { HUNTERS = 6, PREY = 8 };

typedef struct hunter {
    pg_bench *p;
    dur_provider *store;
    unsigned seed;
    size_t rounds;
    long deadlocks, others;
    char text[600];
    pthread_t thread;
} hunter;

static void note(hunter *h, int code, const dur_error *err) {
    if (code == DUR_OK) return;
    bool deadlock = strstr(err->message, "40P01") != NULL;
    bool expected = code == DUR_ELEASE || code == DUR_ENOTFOUND || code == DUR_ERUNNING || code == DUR_ECHILD ||
                    code == DUR_ESTATE || code == DUR_EEXISTS || code == DUR_ECONFLICT || code == DUR_EBUSY;
    h->deadlocks += deadlock;
    h->others += !expected;
    if (deadlock || !expected) snprintf(h->text, sizeof(h->text), "%s: %s", err->op, err->message);
}

static const char *prey(hunter *h) {
    static const char *const ids[PREY] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    return ids[(size_t)rand_r(&h->seed) % PREY];
}

/* Turns of several instances, each with messages to others, in any order; some consume work and make more. */
static void hunt_turns(hunter *h, dur_arena *arena) {
    dur_error err = DUR_ERROR_INIT;
    dur_orchestration_item items[4];
    dur_turn_commit turns[4];
    dur_message_row sent[4][2];
    dur_event_row events[4];
    size_t count = 0;
    dur_fetch how = { .lock_ms = 2000, .max = 1 + (size_t)rand_r(&h->seed) % 4 };
    note(h, dur_store_fetch_turns(h->store, arena, &how, items, &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        sent[i][0] = message_of(DUR_WORK_EXTERNAL_RAISED, prey(h));
        sent[i][1] = message_of(DUR_WORK_EXTERNAL_RAISED, prey(h));
        events[i] = event_of(items[i].last_event_id + 1);
        turns[i] = (dur_turn_commit){ .lock_token = items[i].lock_token,
                                      .instance = items[i].instance,
                                      .execution_id = items[i].execution_id,
                                      .events = &events[i],
                                      .event_count = 1,
                                      .expected_last = items[i].last_event_id,
                                      .metadata = named(),
                                      .orchestrator_items = sent[i],
                                      .orchestrator_item_count = (size_t)rand_r(&h->seed) % 3 };
        if (rand_r(&h->seed) % 8 == 0) turns[i].metadata.status = DUR_STATUS_COMPLETED;
    }
    if (count > 0) note(h, dur_store_commit_turns(h->store, turns, count, &err), &err);
    for (size_t i = 0; i < count; i++)
        note(h, (int)turns[i].error.code, &turns[i].error);
}

static void hunt_once(hunter *h, dur_arena *arena) {
    dur_error err = DUR_ERROR_INIT;
    bench plain = { .store = h->store, .arena = arena };
    const char *const two[] = { prey(h), prey(h) };
    dur_delete_result deleted;
    bool existed;
    int code = DUR_OK;
    switch (rand_r(&h->seed) % 8) {
    case 0: {
        dur_message_row start = start_of(&plain, two[0]);
        code = dur_store_enqueue_start(h->store, &start, (dur_exists_policy)(rand_r(&h->seed) % 3), 0, &existed, &err);
        break;
    }
    case 1:
        code = raise_to(h->store, two[0], &err);
        break;
    case 2:
        code = dur_store_delete_instances(h->store, two, 2, true, &deleted, &err);
        break;
    case 3:
        code = dur_store_set_suspended(h->store, two[0], rand_r(&h->seed) % 2 ? NULL : "why", &err);
        break;
    case 4: {
        dur_bulk_filter filter = { .limit = 3 };
        code = dur_store_delete_instances_bulk(h->store, &filter, &deleted, &err);
        break;
    }
    default:
        hunt_turns(h, arena);
    }
    note(h, code, &err);
}

static void *hunt(void *arg) {
    hunter *h = arg;
    dur_arena *arena = dur_arena_new();
    for (size_t i = 0; i < h->rounds; i++) {
        hunt_once(h, arena);
        dur_arena_reset(arena);
    }
    dur_arena_free(arena);
    return NULL;
}

static void no_deadlocks_among_us(void **state) {
    pg_bench *p = *state;
    hunter all[HUNTERS];
    const char *percent = getenv("DURITE_TEST_SCALE");
    unsigned seed = (unsigned)time(NULL);
    print_message("# seed %u\n", seed);
    for (size_t i = 0; i < HUNTERS; i++) {
        all[i] = (hunter){ .p = p, .seed = seed + (unsigned)i };
        all[i].rounds = 150 * (percent != NULL ? strtoul(percent, NULL, 10) : 100) / 100 + 10;
        ASSERT_OK(&p->b, dur_open(&all[i].store, p->url, &p->b.err));
        assert_int_equal(pthread_create(&all[i].thread, NULL, hunt, &all[i]), 0);
    }
    for (size_t i = 0; i < HUNTERS; i++) {
        pthread_join(all[i].thread, NULL);
        dur_provider_close(all[i].store);
        if (all[i].deadlocks + all[i].others > 0) fail_msg("%s", all[i].text);
    }
    ASSERT_OK(&p->b, dur_provider_check(p->b.store, &p->b.err));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(cut_after_it_happened),
        PG_TEST(cut_before_it_was_sent),
        PG_TEST(given_up_by_a_pooler_after_it_happened),
        PG_TEST(a_farewell_before_the_answer_is_an_answer),
        PG_TEST(a_statement_is_cancelled),
        PG_TEST(the_victim_of_a_deadlock),
        PG_TEST(a_transaction_of_several_batches_is_durable),
        PG_TEST(no_transaction_waits_without_end),
        PG_TEST(whatever_the_default_level_is),
        PG_TEST(in_transactions_of_every_level),
        PG_TEST(no_deadlocks_among_us),
    };
    signal(SIGPIPE, SIG_IGN); /* of the proxy */
    PG_MAIN(tests);
}
