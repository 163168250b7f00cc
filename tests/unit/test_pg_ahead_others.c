/*
 * test_pg_ahead_others.c: instances whose history is ahead of their rows, on PostgreSQL, and others who touch them:
 * one after the other, and at the same time.
 */
#include "pg_ahead.h"

/* ---- others ------------------------------------------------------------------------------------------------------ */

/* The step was ended by its token; a turn that does not want it goes on, one that does is told. */
static void its_step_is_ended_by_another(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    for (int i = 0; i < 2; i++) {
        flow *f = i == 0 ? &x : &y;
        dur_message completion = message_of(DUR_WORK_ACTIVITY_COMPLETED, f->item.instance);
        ASSERT_OK(b, dur_store_ack_work_item(b->store, f->step.lock_token, &completion, &b->err));
        assert_settled(&r, f);
        assert_int_equal(count_of(&r, f, "queue", "true"), 1);
    }
    assert_int_equal(fault_of(&r, next_turn(&r, &x, BEGINS)), DUR_TURN_WORK_LOST);
    assert_settled(&r, &x);
    go(&r, &y, NOTHING_TO_STEPS);
    assert_settled(&r, &y);
    assert_int_equal(count(&r, "worker", "true"), 0);
    rig_close(&r);
}

/* By its id, with nothing to say: then no message has its row locked. */
static void its_step_is_ended_by_its_id(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    dur_worker_claim claim = claim_of("x", &x.step);
    dur_work_ack ack = { .ref = claim.ref, .lock_token = claim.lock_token };
    ASSERT_OK(b, dur_store_ack_works(b->store, &ack, 1, &b->err));
    assert_int_equal(ack.error.code, DUR_OK);
    assert_settled(&r, &x);
    x.step = (dur_turn_work){ .row_id = 0 };
    go(&r, &x, BEGINS);
    assert_int_equal(row_last(&r, &x), x.last);
    assert_int_equal(count_of(&r, &x, "worker", SQL(&r, "token <> '%s'", x.step.lock_token)), 0);
    assert_false(is_lost(&r, &x, &x.step));
    assert_sound(&r, &x);
    rig_close(&r);
}

static void its_step_is_given_back_by_another(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    dur_worker_claim claims[2] = { claim_of("x", &x.step), claim_of("y", &y.step) };
    ASSERT_OK(b, dur_store_return_works(b->store, claims, 2, &b->err));
    assert_settled(&r, &x);
    assert_work(&r, &x, FREED " AND attempts = 0");
    dur_turn_commit turns[] = { next_turn(&r, &x, BEGINS), next_turn(&r, &y, NOTHING_TO_STEPS) };
    try_turns(&r, turns, 2);
    assert_int_equal(turns[0].fault, DUR_TURN_WORK_LOST);
    assert_int_equal(turns[1].fault, DUR_TURN_FINE);
    went(&y);
    assert_settled(&r, &x);
    assert_settled(&r, &y);
    assert_work(&r, &x, FREED " AND attempts = 0");
    assert_work(&r, &y, FREED " AND attempts = 0");
    rig_close(&r);
}

/* Before anything was ahead: the position tells nothing then, the step in the row does. */
static void its_step_was_given_back_before_it_went_ahead(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x = begun_flow(&r, "x"), y = begun_flow(&r, "y");
    go(&r, &x, BEGINS);
    dur_worker_claim claim = claim_of("x", &x.step);
    ASSERT_OK(b, dur_store_return_works(b->store, &claim, 1, &b->err));
    dur_turn_commit turns[] = { next_turn(&r, &x, BEGINS), next_turn(&r, &y, NOTHING_TO_STEPS) };
    try_turns(&r, turns, 2);
    assert_int_equal(turns[0].fault, DUR_TURN_WORK_LOST);
    assert_int_equal(turns[1].fault, DUR_TURN_FINE);
    assert_settled(&r, &x);
    assert_work(&r, &x, FREED " AND attempts = 0");
    rig_close(&r);
}

/* By the turn itself, by its id or as what it is. */
static void its_step_is_cancelled(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    for (int by_id = 0; by_id < 2; by_id++) {
        flow *f = by_id ? &x : &y;
        dur_turn_work gone = f->step;
        dur_activity_ref ref = claim_of(f->item.instance, &gone).ref;
        if (!by_id) ref.row_id = 0;
        dur_turn_commit turn = next_turn(&r, f, NOTHING_TO_STEPS);
        turn.cancelled = &ref;
        turn.cancelled_count = 1;
        (void)run(&r, &turn, 1, NULL);
        went(f);
        f->step = (dur_turn_work){ .row_id = 0 };
        assert_int_equal(row_last(&r, f), 2);
        assert_history_row(&r, f, ENDS);
        assert_true(is_lost(&r, f, &gone));
    }
    for (int i = 0; i < 2; i++) {
        flow *f = i == 0 ? &x : &y;
        ASSERT_OK(b, dur_store_set_suspended(b->store, f->item.instance, "wait", &b->err));
        assert_settled(&r, f);
    }
    assert_int_equal(count(&r, "worker", "true"), 0);
    rig_close(&r);
}

/* A turn is refused for one of its claims: the one of the step is not the one. */
static void only_what_is_lost_is_told(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    dur_turn_commit turn = next_turn(&r, &x, ENDS);
    dur_turn_work other = step_at(&r, "x", 77);
    dur_worker_claim claims[2] = { claim_of("x", &x.step), claim_of("x", &other) };
    claims[1].ref.row_id = 123456;
    turn.worker_consumed = claims;
    turn.worker_consumed_count = 2;
    try_turns(&r, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_WORK_LOST);
    assert_int_equal(turn.lost_work_count, 1);
    assert_ptr_equal(turn.lost_work[0], &claims[1]);
    assert_false(is_lost(&r, &x, &x.step));
    assert_int_equal(row_last(&r, &x), 2);
    go(&r, &x, BEGINS);
    assert_sound(&r, &x);
    rig_close(&r);
}

static void something_is_appended_by_another(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    dur_event_row event = event_of(x.last + 1);
    event.json = text_of(event_json(&r, x.last + 1));
    ASSERT_OK(b, dur_store_append(b->store, "x", 1, &event, 1, &b->err));
    assert_int_equal(fault_of(&r, next_turn(&r, &x, NOTHING_TO_STEPS)), DUR_TURN_POSITION);
    x.last++;
    assert_settled(&r, &x);
    assert_moved(&r, &x);
    go(&r, &x, ENDS);
    assert_int_equal(row_last(&r, &x), x.last);
    assert_int_equal(count_of(&r, &x, "worker", "true"), 0);
    assert_sound(&r, &x);
    rig_close(&r);
}

/* An event that is there, in a row that is ahead, is there. */
static void what_is_ahead_is_not_appended_again(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    dur_event_row event = event_of(x.last);
    assert_int_equal(dur_store_append(b->store, "x", 1, &event, 1, &b->err), DUR_ECONFLICT);
    go(&r, &x, BEGINS);
    assert_int_equal(row_last(&r, &x), 2);
    assert_sound(&r, &x);
    rig_close(&r);
}

static dur_turn_fault fault_at(rig *r, const flow *f, uint64_t position) {
    flow elsewhere = *f;
    elsewhere.last = position;
    return fault_of(r, next_turn(r, &elsewhere, NOTHING_TO_STEPS));
}

static void positions_are_compared(void **state) {
    rig r = rig_open(*state);
    enum { WRONG = 5 };
    for (int i = 0; i < WRONG; i++) {
        flow x = begun_flow(&r, SQL(&r, "x%d", i)), y = begun_flow(&r, SQL(&r, "y%d", i));
        go(&r, &x, BEGINS);
        go_both(&r, &x, &y, BEGINS);
        go_both(&r, &x, &y, NOTHING_TO_STEPS);
        assert_int_equal(row_last(&r, &x), 2);
        const uint64_t wrong[WRONG] = { 9, 5, 3, 2, 1 }; /* 2: what the row says */
        assert_int_equal(fault_at(&r, &x, wrong[i]), DUR_TURN_POSITION);
        assert_sound(&r, &x);
        go(&r, &x, BEGINS);
        assert_false(is_lost(&r, &x, &x.step));
        assert_sound(&r, &x);
    }
    rig_close(&r);
}

static void assert_deleted(rig *r, const flow *f) {
    bench *b = &r->p->b;
    dur_delete_result gone;
    ASSERT_OK(b, dur_store_delete_instances(b->store, &f->item.instance, 1, true, &gone, &b->err));
    assert_int_equal(gone.instances, 1);
    assert_int_equal(gone.executions, 1);
    assert_int_equal(gone.events, f->last);
    assert_int_equal(gone.queue_messages, f->step.lock_token != NULL);
    static const char *const tables[] = { "instances", "executions", "history", "worker", "queue" };
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
        assert_int_equal(count_of(r, f, tables[i], "true"), 0);
    ASSERT_OK(b, dur_provider_check(b->store, &b->err));
}

static void deleted(void **state) {
    rig r = rig_open(*state);
    flow x = born_flow(&r, "x"), y = begun_flow(&r, "y"), z = begun_flow(&r, "z");
    go(&r, &z, BEGINS);
    go_both(&r, &x, &y, BEGINS);
    go_both(&r, &x, &z, BEGINS);
    go(&r, &z, ENDS);
    assert_deleted(&r, &x);
    assert_deleted(&r, &y);
    assert_deleted(&r, &z);
    assert_int_equal(fault_of(&r, next_turn(&r, &x, NOTHING_TO_STEPS)), DUR_TURN_LEASE_LOST);
    rig_close(&r);
}

/* ---- at the same time -------------------------------------------------------------------------------------------- */

typedef struct actor actor;
typedef int act(actor *a, dur_provider *store, dur_error *err);

/* Somebody who comes while a turn of x is being written. */
struct actor {
    rig *r;
    flow *f;
    act *does;
    dur_turn_work new_step; /* of that turn */
    int code;
    atomic_bool done;
};

static int suspends(actor *a, dur_provider *store, dur_error *err) {
    return dur_store_set_suspended(store, a->f->item.instance, "wait", err);
}

static int gives_up(actor *a, dur_provider *store, dur_error *err) {
    return dur_store_abandon_orchestration_item(store, a->f->item.lock_token, 0, false, err);
}

static int returns_step(actor *a, dur_provider *store, dur_error *err) {
    dur_worker_claim claim = claim_of(a->f->item.instance, &a->new_step);
    return dur_store_return_works(store, &claim, 1, err);
}

static int ends_step(actor *a, dur_provider *store, dur_error *err) {
    dur_worker_claim claim = claim_of(a->f->item.instance, &a->new_step);
    dur_work_ack ack = { .ref = claim.ref, .lock_token = claim.lock_token };
    int code = dur_store_ack_works(store, &ack, 1, err);
    return code == DUR_OK ? (int)ack.error.code : code;
}

static int speaks_of_the_older_step(actor *a, dur_provider *store, dur_error *err) {
    return dur_store_renew_work_item_lock(store, a->f->step.lock_token, 1000, err);
}

static int releases_owner(actor *a, dur_provider *store, dur_error *err) {
    (void)a;
    return dur_store_owner_release(store, "o", err);
}

static int appends(actor *a, dur_provider *store, dur_error *err) {
    dur_event_row event = event_of(a->f->last + 2);
    event.json = text_of("{\"event\":5}");
    return dur_store_append(store, a->f->item.instance, 1, &event, 1, err);
}

static int deletes(actor *a, dur_provider *store, dur_error *err) {
    dur_delete_result gone = { 0 };
    int code = dur_store_delete_instances(store, &a->f->item.instance, 1, true, &gone, err);
    return code == DUR_OK && (gone.events != a->f->last + 1 || gone.queue_messages != 1) ? -1 : code;
}

static int commits_outside_of_the_lane(actor *a, dur_provider *store, dur_error *err) {
    dur_event_row event = event_of(a->f->last + 2);
    event.json = text_of("{\"event\":5}");
    dur_turn_commit turn = { .lock_token = a->f->item.lock_token,
                             .instance = a->f->item.instance,
                             .execution_id = 1,
                             .events = &event,
                             .event_count = 1 };
    return dur_store_ack_orchestration_item(store, &turn, err);
}

/* As after a round that was not answered.  A lane waits for a moment only, but comes again. */
static int gives_up_all(actor *a, dur_provider *store, dur_error *err) {
    dur__pg_lane *lane = (dur__pg_lane *)(void *)a->r->lane;
    dur_arena *arena = dur_arena_new();
    int code = DUR_EBUSY;
    (void)store;
    lane->unknown = true;
    while (code == DUR_EBUSY) {
        dur_round round = { .turn_count = 0 };
        code = dur_store_lane_round(a->r->lane, arena, &round, err);
    }
    dur_arena_free(arena);
    return code;
}

static void *act_once(void *arg) {
    actor *a = arg;
    dur_error err = DUR_ERROR_INIT;
    a->code = a->does(a, a->r->p->b.store, &err);
    atomic_store(&a->done, true);
    return NULL;
}

/* Its next turn as a lane would write it: the lane's row is locked, and history goes ahead. */
static PGconn *write_next_turn(const rig *r, const flow *f, const dur_turn_work *step) {
    PGconn *db = PQconnectdb(pg_server());
    pg_do(db, SQL(r,
                  "BEGIN; SELECT 1 FROM %s.dur_lanes WHERE holder = (SELECT holder FROM %s.dur_instances WHERE"
                  " instance_id = '%s') FOR NO KEY UPDATE",
                  r->p->schema, r->p->schema, f->item.instance));
    pg_do(db,
          SQL(r,
              "INSERT INTO %s.dur_history (instance_id, execution_id, event_id, events, json, at_ms, step_id,"
              " step_token, step_json, step_handler) SELECT '%s', 1, %d, 1, '%s', max(at_ms) + 1000, %ld, '%s', '%s',"
              " '' FROM %s.dur_history",
              r->p->schema, f->item.instance, (int)f->last + 1, event_json(r, f->last + 1), step_id(step),
              step->lock_token, step->message.json.data, r->p->schema));
    return db;
}

/* Somebody waits for that transaction; false: the actor did not. */
static bool is_waited_for(const actor *a, PGconn *db) {
    const char *sql =
        SQL(a->r, "SELECT count(*) FROM pg_stat_activity WHERE %d = ANY (pg_blocking_pids(pid))", PQbackendPID(db));
    for (uint64_t end_ms = pg_monotonic_ms() + PATIENCE_MS; pg_monotonic_ms() < end_ms && !atomic_load(&a->done);)
        if (pg_number(a->r->p->db, sql) > 0) return true;
    return false;
}

/* The lane is open when it returns. */
static int beside_a_turn(rig *r, flow *x, act *does) {
    flow y;
    pthread_t thread;
    go_ahead(r, x, &y);
    actor a = { .r = r, .f = x, .does = does, .new_step = step_at(r, "x", x->last + 1) };
    a.new_step.row_id = (uint64_t)step_id(&a.new_step);
    PGconn *db = write_next_turn(r, x, &a.new_step);
    pthread_create(&thread, NULL, act_once, &a);
    bool waited = is_waited_for(&a, db);
    pg_do(db, "COMMIT");
    PQfinish(db);
    pthread_join(thread, NULL);
    assert_true(waited);
    x->step = a.new_step;
    x->last++;
    return a.code;
}

static void suspended_while_it_goes_ahead(void **state) {
    rig r = rig_open(*state);
    flow x;
    assert_int_equal(beside_a_turn(&r, &x, suspends), DUR_OK);
    assert_settled(&r, &x);
    assert_updated_then(&r, &x);
    assert_moved(&r, &x);
    rig_close(&r);
}

static void given_up_while_it_goes_ahead(void **state) {
    rig r = rig_open(*state);
    flow x;
    assert_int_equal(beside_a_turn(&r, &x, gives_up), DUR_OK);
    assert_settled(&r, &x);
    assert_updated_then(&r, &x);
    assert_moved(&r, &x);
    rig_close(&r);
}

static void its_step_is_given_back_while_it_goes_ahead(void **state) {
    rig r = rig_open(*state);
    flow x;
    assert_int_equal(beside_a_turn(&r, &x, returns_step), DUR_OK);
    assert_settled(&r, &x);
    assert_updated_then(&r, &x);
    assert_work(&r, &x, FREED " AND attempts = 0");
    rig_close(&r);
}

static void its_step_is_ended_while_it_goes_ahead(void **state) {
    rig r = rig_open(*state);
    flow x;
    assert_int_equal(beside_a_turn(&r, &x, ends_step), DUR_OK);
    assert_settled(&r, &x);
    assert_int_equal(count_of(&r, &x, "worker", "true"), 0);
    rig_close(&r);
}

static void its_older_step_is_named_while_it_goes_ahead(void **state) {
    rig r = rig_open(*state);
    flow x;
    assert_int_equal(beside_a_turn(&r, &x, speaks_of_the_older_step), DUR_ELEASE);
    assert_settled(&r, &x);
    assert_moved(&r, &x);
    rig_close(&r);
}

static void its_owner_leaves_while_it_goes_ahead(void **state) {
    rig r = rig_open(*state);
    flow x;
    assert_int_equal(beside_a_turn(&r, &x, releases_owner), DUR_OK);
    assert_settled(&r, &x);
    assert_updated_then(&r, &x);
    assert_work(&r, &x, FREED " AND attempts = 0");
    rig_close(&r);
}

static void something_is_appended_while_it_goes_ahead(void **state) {
    rig r = rig_open(*state);
    flow x;
    assert_int_equal(beside_a_turn(&r, &x, appends), DUR_OK);
    x.last++;
    assert_settled(&r, &x);
    assert_moved(&r, &x);
    rig_close(&r);
}

static void committed_outside_while_it_goes_ahead(void **state) {
    rig r = rig_open(*state);
    flow x;
    assert_int_equal(beside_a_turn(&r, &x, commits_outside_of_the_lane), DUR_OK);
    x.last++;
    assert_settled(&r, &x);
    assert_moved(&r, &x);
    assert_int_equal(count_of(&r, &x, "instances", FREED), 1);
    rig_close(&r);
}

static void recovered_while_it_goes_ahead(void **state) {
    rig r = rig_open(*state);
    flow x;
    assert_int_equal(beside_a_turn(&r, &x, gives_up_all), DUR_OK);
    assert_settled(&r, &x);
    assert_updated_then(&r, &x);
    assert_moved(&r, &x);
    rig_close(&r);
}

static void deleted_while_it_goes_ahead(void **state) {
    rig r = rig_open(*state);
    flow x;
    assert_int_equal(beside_a_turn(&r, &x, deletes), DUR_OK);
    assert_int_equal(count_of(&r, &x, "history", "true"), 0);
    assert_int_equal(count_of(&r, &x, "worker", "true"), 0);
    rig_close(&r);
}

/* Somebody takes the lease away and has not committed: a turn waits for him, and is not written behind his back. */
static void it_waits_for_who_takes_the_lease(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    PGconn *db = PQconnectdb(pg_server());
    pg_do(db, SQL(&r,
                  "BEGIN; UPDATE %s.dur_instances SET token = 'other' WHERE instance_id = 'x';"
                  "UPDATE %s.dur_lanes SET disturbed = disturbed + 1",
                  r.p->schema, r.p->schema));
    dur_turn_commit turns[] = { next_turn(&r, &x, BEGINS), next_turn(&r, &y, BEGINS) };
    try_turns(&r, turns, 2); /* a lane waits for a moment only */
    dur_turn_commit again = next_turn(&r, &x, BEGINS);
    dur_turn_fault held = turns[0].fault, of_other = turns[1].fault;
    pg_do(db, "COMMIT");
    PQfinish(db);
    assert_int_equal(count_of(&r, &x, "history", "event_id > 3"), 0);
    assert_int_equal(held, DUR_TURN_STORE);
    assert_int_equal(of_other, DUR_TURN_FINE);
    assert_int_equal(fault_of(&r, again), DUR_TURN_LEASE_LOST);
    assert_int_equal(row_last(&r, &x), 2);
    rig_close(&r);
}

/* Somebody writes what no turn goes by, as who sends a message does, and stands still with the row: it goes ahead. */
static void it_does_not_wait_for_who_sends_a_message(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    PGconn *db = PQconnectdb(pg_server());
    pg_do(db,
          SQL(&r, "BEGIN; UPDATE %s.dur_instances SET ready_at = 9000000000000 WHERE instance_id = 'x'", r.p->schema));
    go(&r, &x, BEGINS);
    go_both(&r, &x, &y, BEGINS);
    pg_do(db, "COMMIT");
    PQfinish(db);
    assert_int_equal(count_of(&r, &x, "instances", "last_event = 2 AND ready_at = 9000000000000"), 1);
    assert_history_row(&r, &x, BEGINS);
    assert_sound(&r, &x);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(its_step_is_ended_by_another),
        PG_TEST(its_step_is_ended_by_its_id),
        PG_TEST(its_step_is_given_back_by_another),
        PG_TEST(its_step_was_given_back_before_it_went_ahead),
        PG_TEST(its_step_is_cancelled),
        PG_TEST(only_what_is_lost_is_told),
        PG_TEST(something_is_appended_by_another),
        PG_TEST(what_is_ahead_is_not_appended_again),
        PG_TEST(positions_are_compared),
        PG_TEST(deleted),
        PG_TEST(suspended_while_it_goes_ahead),
        PG_TEST(given_up_while_it_goes_ahead),
        PG_TEST(its_step_is_given_back_while_it_goes_ahead),
        PG_TEST(its_step_is_ended_while_it_goes_ahead),
        PG_TEST(its_older_step_is_named_while_it_goes_ahead),
        PG_TEST(its_owner_leaves_while_it_goes_ahead),
        PG_TEST(something_is_appended_while_it_goes_ahead),
        PG_TEST(committed_outside_while_it_goes_ahead),
        PG_TEST(recovered_while_it_goes_ahead),
        PG_TEST(deleted_while_it_goes_ahead),
        PG_TEST(it_waits_for_who_takes_the_lease),
        PG_TEST(it_does_not_wait_for_who_sends_a_message),
    };
    PG_MAIN(tests);
}
