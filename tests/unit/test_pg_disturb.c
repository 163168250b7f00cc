/*
 * test_pg_disturb.c: lanes of the PostgreSQL store that are told when somebody else writes a row that they hold, and do
 * not look at their rows otherwise: who tells them, what they do then, and that nothing is written behind a gap.
 */
#include "pg_ahead.h"

static dur__pg_lane *lane_in(const rig *r) {
    return (dur__pg_lane *)(void *)r->lane;
}

/* How often its lane was disturbed; -1: it is not entered. */
static long disturbed(const rig *r) {
    return pg_number(r->p->db, SQL(r, "SELECT coalesce(max(disturbed), -1) FROM %s.dur_lanes WHERE holder = %lld",
                                   r->p->schema, (long long)lane_in(r)->holder));
}

static void disturb(const rig *r) {
    pg_do(r->p->db, SQL(r, "UPDATE %s.dur_lanes SET disturbed = disturbed + 1", r->p->schema));
}

static long ahead_of(const rig *r, const flow *f) {
    return count_of(r, f, "history", "at_ms IS NOT NULL");
}

/* Another lane of the same owner. */
static rig second_lane(pg_bench *p) {
    rig r = { .p = p, .waker = dur_waker_new() };
    dur_lane_options options = { .owner = "o", .waker = r.waker };
    ASSERT_OK(&p->b, dur_store_lane_open(p->b.store, &options, &r.lane, &p->b.err));
    return r;
}

/* Both by their rows, in one round: neither ahead of them, nor the long way, which would move the steps. */
static void go_by_rows(rig *r, flow *x, flow *y) {
    long of_x = ahead_of(r, x), of_y = ahead_of(r, y);
    go_both(r, x, y, BEGINS);
    assert_int_equal(row_last(r, x), x->last);
    assert_int_equal(row_last(r, y), y->last);
    assert_int_equal(ahead_of(r, x), of_x);
    assert_int_equal(ahead_of(r, y), of_y);
    assert_int_equal(count(r, "worker", "true"), 0);
}

static void go_both_ahead(rig *r, flow *x, flow *y) {
    const char *row_x = row_of(r, x), *row_y = row_of(r, y);
    go_both(r, x, y, BEGINS);
    assert_string_equal(row_of(r, x), row_x);
    assert_string_equal(row_of(r, y), row_y);
    assert_history_row(r, x, BEGINS);
    assert_history_row(r, y, BEGINS);
}

/* One round of both: what becomes of x; of y it is fine. */
static dur_turn_fault fault_beside(rig *r, flow *x, flow *y, deed does) {
    dur_turn_commit turns[] = { next_turn(r, x, does), next_turn(r, y, does) };
    try_turns(r, turns, 2);
    assert_int_equal(turns[1].fault, DUR_TURN_FINE);
    went(y);
    assert_sound(r, y);
    return turns[0].fault;
}

/* ---- the lane's row ---------------------------------------------------------------------------------------------- */

static void a_lane_is_entered_once(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    assert_int_equal(count(&r, "lanes", "true"), 0);
    flow x, y;
    go_ahead(&r, &x, &y);
    go_both_ahead(&r, &x, &y);
    assert_int_equal(disturbed(&r), 0);
    assert_int_equal(count(&r, "lanes", "owner = 'o'"), 1);
    assert_int_equal(lane_in(&r)->calms, 1);
    disturb(&r);
    go_by_rows(&r, &x, &y);
    go_both_ahead(&r, &x, &y);
    assert_int_equal(disturbed(&r), 1);
    assert_int_equal(count(&r, "lanes", "true"), 1);
    assert_sound(&r, &x);
    ASSERT_OK(b, dur_store_owner_release(b->store, "o", &b->err));
    assert_int_equal(count(&r, "lanes", "true"), 0);
    rig_close(&r);
}

/* Its owner is registered again: its lane finds that it was disturbed, though the count of a new row is the old one. */
static void not_after_its_owner_has_left(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    ASSERT_OK(b, dur_store_owner_release(b->store, "o", &b->err));
    assert_int_equal(fault_of(&r, next_turn(&r, &x, NOTHING_TO_STEPS)), DUR_TURN_LEASE_LOST);
    assert_int_equal(disturbed(&r), -1);
    assert_false(lane_in(&r)->calm);
    ASSERT_OK(b, dur_store_owner_register(b->store, &(dur_owner_options){ .owner = "o" }, &b->err));
    flow z = begun_flow(&r, "z");
    assert_int_equal(disturbed(&r), 0);
    assert_true(lane_in(&r)->calm);
    assert_int_equal(fault_beside(&r, &y, &z, NOTHING_TO_STEPS), DUR_TURN_LEASE_LOST);
    assert_settled(&r, &x);
    assert_settled(&r, &y);
    rig_close(&r);
}

/* Of whom no owner is known: its leases are not his, but whatever it would write, it does not go ahead. */
static void not_without_an_owner(void **state) {
    rig r = rig_open(*state);
    flow x = begun_flow(&r, "x"), y = begun_flow(&r, "y");
    pg_do(r.p->db, SQL(&r, "DELETE FROM %s.dur_owners", r.p->schema));
    assert_int_equal(count(&r, "lanes", "true"), 0);
    for (int i = 0; i < 3; i++) {
        go_by_rows(&r, &x, &y);
        assert_int_equal(disturbed(&r), -1);
    }
    assert_history(&r, &x);
    assert_int_equal(dur_provider_check(r.p->b.store, &r.p->b.err), DUR_ECORRUPT); /* nobody would free the leases */
    assert_non_null(strstr(r.p->b.err.message, "who is not registered"));
    rig_close(&r);
}

/* ---- who tells it ------------------------------------------------------------------------------------------------ */

#define STORE(r) ((r)->p->b.store)
#define ERROR(r) (&(r)->p->b.err)
#define ASSERT_DONE(r, call) ASSERT_OK(&(r)->p->b, call)

typedef int act(rig *r, flow *x); /* its code; x is then where the instance is */

/*
 * x was disturbed.  The next turn of y is not written without a look at its row; that of x is refused, although the
 * lane has learned the count meanwhile.
 */
static void disturbed_by(void **state, act *does, dur_turn_fault fault) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    flow before = x;
    ASSERT_DONE(&r, does(&r, &x));
    if (x.last > 0) assert_settled(&r, &x);
    assert_true(disturbed(&r) > 0);
    long ahead = ahead_of(&r, &y);
    go(&r, &y, BEGINS);
    assert_int_equal(row_last(&r, &y), y.last);
    assert_int_equal(ahead_of(&r, &y), ahead);
    assert_int_equal(lane_in(&r)->calms, 2);
    assert_int_equal(fault_beside(&r, &before, &y, BEGINS), fault);
    if (fault == DUR_TURN_FINE) x.last++;
    assert_history(&r, &x);
    rig_close(&r);
}

static int suspends(rig *r, flow *x) {
    return dur_store_set_suspended(STORE(r), x->item.instance, "wait", ERROR(r));
}

static int gives_up(rig *r, flow *x) {
    return dur_store_abandon_orchestration_item(STORE(r), x->item.lock_token, 0, false, ERROR(r));
}

static dur_event_row event_behind(const rig *r, flow *f) {
    dur_event_row event = event_of(++f->last);
    event.json = text_of(event_json(r, f->last));
    return event;
}

static int appends(rig *r, flow *x) {
    dur_event_row event = event_behind(r, x);
    return dur_store_append(STORE(r), x->item.instance, 1, &event, 1, ERROR(r));
}

static int deletes(rig *r, flow *x) {
    dur_delete_result gone;
    x->last = 0;
    return dur_store_delete_instances(STORE(r), &x->item.instance, 1, true, &gone, ERROR(r));
}

static int returns_step(rig *r, flow *x) {
    dur_worker_claim claim = claim_of(x->item.instance, &x->step);
    return dur_store_return_works(STORE(r), &claim, 1, ERROR(r));
}

static int ends_step(rig *r, const flow *x, const dur_message *completion) {
    dur_work_ack ack = { .lock_token = x->step.lock_token,
                         .ref = claim_of(x->item.instance, &x->step).ref,
                         .completion = completion };
    int code = dur_store_ack_works(STORE(r), &ack, 1, ERROR(r));
    return code == DUR_OK ? (int)ack.error.code : code;
}

static int ends_step_by_its_id(rig *r, flow *x) {
    return ends_step(r, x, NULL);
}

static int ends_step_with_a_message(rig *r, flow *x) {
    dur_message completion = message_of(DUR_WORK_ACTIVITY_COMPLETED, x->item.instance);
    return ends_step(r, x, &completion);
}

static int ends_step_by_its_token(rig *r, flow *x) {
    dur_message completion = message_of(DUR_WORK_ACTIVITY_COMPLETED, x->item.instance);
    return dur_store_ack_work_item(STORE(r), x->step.lock_token, &completion, ERROR(r));
}

/* It is moved, and who runs it is heard. */
static int renews_step(rig *r, flow *x) {
    return dur_store_renew_work_item_lock(STORE(r), x->step.lock_token, 1000, ERROR(r));
}

static int commits_outside(rig *r, flow *x) {
    dur_event_row event = event_behind(r, x);
    dur_turn_commit turn = turn_of(&x->item, &event, DUR_NOT_COMPARED);
    turn.owner = NULL;
    turn.keep_lease = turn.consume_listed = false;
    return dur_store_ack_orchestration_item(STORE(r), &turn, ERROR(r));
}

static int commits_outside_under_the_lease(rig *r, flow *x) {
    dur_event_row event = event_behind(r, x);
    dur_turn_commit turn = turn_of(&x->item, &event, x->last - 1);
    int code = dur_store_commit_turns(STORE(r), &turn, 1, ERROR(r));
    return code == DUR_OK ? (int)turn.fault : code;
}

static int takes_over_from_another_lane(rig *r, flow *x) {
    rig other = second_lane(r->p);
    dur_event_row event = event_behind(r, x);
    dur_turn_commit turn = turn_of(&x->item, &event, x->last - 1);
    dur_round round = { .turns = &turn, .turn_count = 1 };
    turn.lock_token = NULL;
    turn.keep_lease = false;
    turn.take_over = true;
    int code = dur_store_lane_round(other.lane, r->p->b.arena, &round, ERROR(r));
    rig_close(&other);
    return code == DUR_OK ? (int)turn.fault : code;
}

/* As after a fetch whose answer was lost. */
static int undoes_claims(rig *r, flow *x) {
    dur__pg_conn *conn;
    const char *token = x->item.lock_token;
    int code = dur__pg_borrow(dur__pg_of(STORE(r)), &conn, ERROR(r));
    if (code != DUR_OK) return code;
    code = dur__pg_undo_claims(conn, SQL(r, "%.*s", (int)(strrchr(token, '-') - token), token), ERROR(r));
    dur__pg_return(conn);
    return code;
}

#define DISTURBED_BY(does, fault)                                                                                      \
    static void disturbed_by_who_##does(void **state) {                                                                \
        disturbed_by(state, does, fault);                                                                              \
    }
DISTURBED_BY(suspends, DUR_TURN_LEASE_LOST)
DISTURBED_BY(gives_up, DUR_TURN_LEASE_LOST)
DISTURBED_BY(appends, DUR_TURN_POSITION)
DISTURBED_BY(deletes, DUR_TURN_LEASE_LOST)
DISTURBED_BY(returns_step, DUR_TURN_WORK_LOST)
DISTURBED_BY(ends_step_by_its_id, DUR_TURN_WORK_LOST)
DISTURBED_BY(ends_step_with_a_message, DUR_TURN_WORK_LOST)
DISTURBED_BY(ends_step_by_its_token, DUR_TURN_WORK_LOST)
DISTURBED_BY(renews_step, DUR_TURN_FINE)
DISTURBED_BY(commits_outside, DUR_TURN_LEASE_LOST)
DISTURBED_BY(commits_outside_under_the_lease, DUR_TURN_POSITION)
DISTURBED_BY(takes_over_from_another_lane, DUR_TURN_LEASE_LOST)
DISTURBED_BY(undoes_claims, DUR_TURN_LEASE_LOST)

/* What it does itself it remembers. */
static void not_by_its_own_turns(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    dur_message child = start_of(&r.p->b, "child");
    dur_turn_commit turn = next_turn(&r, &x, ENDS);
    turn.orchestrator_items = &child;
    turn.orchestrator_item_count = 1;
    (void)run(&r, &turn, 1, NULL);
    went(&x);
    assert_settled(&r, &x);
    assert_int_equal(disturbed(&r), 0);
    go(&r, &y, BEGINS);
    assert_int_equal(row_last(&r, &y), 2);
    go(&r, &x, BEGINS);
    go_both_ahead(&r, &x, &y);
    assert_int_equal(lane_in(&r)->calms, 1);
    assert_sound(&r, &x);
    rig_close(&r);
}

/* Work that ends beside turns it does not connect with a row. */
static void by_its_own_acks(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    dur_work_ack ack = { .ref = claim_of("x", &x.step).ref, .lock_token = x.step.lock_token };
    dur_round round = { .acks = &ack, .ack_count = 1 };
    ASSERT_DONE(&r, dur_store_lane_round(r.lane, r.p->b.arena, &round, ERROR(&r)));
    assert_int_equal(ack.error.code, DUR_OK);
    assert_int_equal(disturbed(&r), 1);
    assert_int_equal(fault_beside(&r, &x, &y, BEGINS), DUR_TURN_WORK_LOST);
    assert_settled(&r, &x);
    rig_close(&r);
}

/* ---- more than one lane ------------------------------------------------------------------------------------------ */

static void another_lane_stays_calm(void **state) {
    rig r = rig_open(*state), other = second_lane(*state);
    bench *b = &r.p->b;
    flow x, y, v = begun_flow(&other, "v"), w = begun_flow(&other, "w");
    go_ahead(&r, &x, &y);
    go_both(&other, &v, &w, BEGINS);
    assert_int_equal(count(&r, "lanes", "owner = 'o'"), 2);
    ASSERT_DONE(&r, suspends(&r, &x));
    assert_int_equal(disturbed(&r), 1);
    assert_int_equal(disturbed(&other), 0); /* as the first one was */
    assert_int_equal(fault_of(&r, next_turn(&r, &x, NOTHING_TO_STEPS)), DUR_TURN_LEASE_LOST);
    go_both_ahead(&other, &v, &w);
    const char *const both[] = { "y", "v" };
    dur_delete_result gone;
    ASSERT_OK(b, dur_store_delete_instances(b->store, both, 2, true, &gone, &b->err));
    assert_int_equal(disturbed(&r), 2);
    assert_int_equal(disturbed(&other), 1);
    assert_int_equal(fault_of(&r, next_turn(&r, &y, NOTHING_TO_STEPS)), DUR_TURN_LEASE_LOST);
    assert_int_equal(fault_of(&other, next_turn(&other, &v, NOTHING_TO_STEPS)), DUR_TURN_LEASE_LOST);
    assert_int_equal(count(&r, "history", "instance_id IN ('y', 'v')"), 0);
    go(&other, &w, BEGINS);
    assert_int_equal(row_last(&other, &w), w.last);
    assert_sound(&other, &w);
    rig_close(&other);
    rig_close(&r);
}

/* ---- at the same time -------------------------------------------------------------------------------------------- */

/* Somebody who has begun, and stands still. */
static PGconn *half_done(const char *sql) {
    PGconn *db = PQconnectdb(pg_server());
    pg_do(db, "SET idle_in_transaction_session_timeout = '5s'; BEGIN"); /* should the test fail meanwhile */
    pg_do(db, sql);
    return db;
}

/* … who has counted. */
static PGconn *half_disturb(const rig *r, const char *more) {
    return half_done(SQL(r, "UPDATE %s.dur_lanes SET disturbed = disturbed + 1 WHERE holder = %lld; %s", r->p->schema,
                         (long long)lane_in(r)->holder, more));
}

static void finish(PGconn *db, const char *how) {
    pg_do(db, how);
    PQfinish(db);
}

/* Nobody waits for him: the rows are written, however long it takes; afterwards history goes ahead of them again. */
static void it_does_not_wait_for_who_has_counted(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    for (int commits = 0; commits < 2; commits++) {
        PGconn *db = half_disturb(&r, "");
        for (int i = 0; i < 20; i++)
            go_by_rows(&r, &x, &y);
        assert_int_equal(lane_in(&r)->held_up.count, 0);
        finish(db, commits ? "COMMIT" : "ROLLBACK");
        for (int i = 0; i < 100 && ahead_of(&r, &x) == 1 + commits; i++)
            go_both(&r, &x, &y, BEGINS);
        assert_true(row_last(&r, &x) < (long)x.last);
        assert_int_equal(lane_in(&r)->disturbances, 0);
    }
    assert_int_equal(disturbed(&r), 1);
    assert_sound(&r, &x);
    assert_sound(&r, &y);
    rig_close(&r);
}

typedef struct beside {
    rig *r;
    flow *f;
    act *does;
    int code;
    atomic_bool done;
} beside;

static void *act_beside(void *arg) {
    beside *b = arg;
    b->code = b->does(b->r, b->f);
    atomic_store(&b->done, true);
    return NULL;
}

/* Somebody waits for that transaction; false: the act was done without. */
static bool is_waited_for(PGconn *db, const beside *b) {
    while (!atomic_load(&b->done))
        if (pg_number(db, "SELECT count(*) FROM pg_locks WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))") > 0)
            return true;
    return false;
}

/* What a lane writes for the next turn of x, which begins a step: ahead of its row, or not. */
static const char *turn_sql(const rig *r, const flow *x, bool ahead) {
    const char *step = SQL(r, "%ld, '%s', '%s', ''", step_id(&x->step), x->step.lock_token, x->step.message.json.data);
    const char *row =
        SQL(r,
            "UPDATE %s.dur_instances SET (step_id, step_token, step_json, step_handler, last_event, updated_at) ="
            " (SELECT %s, %d, 1) WHERE instance_id = 'x'",
            r->p->schema, step, (int)x->last);
    return SQL(r,
               "%s; INSERT INTO %s.dur_history (instance_id, execution_id, event_id, json, at_ms, step_id, step_token,"
               " step_json, step_handler) VALUES ('x', 1, %d, '%s', %s)",
               ahead ? SQL(r, "SELECT 1 FROM %s.dur_lanes FOR NO KEY UPDATE", r->p->schema) : row, r->p->schema,
               (int)x->last, event_json(r, x->last), ahead ? SQL(r, "1, %s", step) : "NULL, NULL, NULL, NULL, NULL");
}

/* While that is under way, who disturbs x waits for it, and finds what it wrote. */
static void waits_for_a_turn(void **state, act *does, bool ahead) {
    rig r = rig_open(*state);
    flow x, y;
    pthread_t thread;
    go_ahead(&r, &x, &y);
    x.step = step_at(&r, "x", ++x.last);
    x.step.row_id = (uint64_t)step_id(&x.step);
    PGconn *db = half_done(turn_sql(&r, &x, ahead));
    beside b = { .r = &r, .f = &x, .does = does };
    pthread_create(&thread, NULL, act_beside, &b);
    bool waited = is_waited_for(db, &b);
    finish(db, "COMMIT");
    pthread_join(thread, NULL);
    assert_true(waited);
    assert_int_equal(b.code, DUR_OK);
    assert_settled(&r, &x);
    assert_int_equal(count_of(&r, &x, "worker", "activity_id <> 4"), 0);
    assert_true(disturbed(&r) > 0);
    rig_close(&r);
}

/* It was found where it stood, and has ended meanwhile. */
static int speaks_of_the_older_step(rig *r, flow *x) {
    (void)x;
    return dur_store_renew_work_item_lock(STORE(r), "x-3", 1000, ERROR(r)) == DUR_ELEASE ? DUR_OK : -1;
}

/* As after a round that was not answered.  A lane waits for a moment only, but comes again. */
static int recovers(rig *r, flow *x) {
    int code = DUR_EBUSY;
    (void)x;
    lane_in(r)->unknown = true;
    while (code == DUR_EBUSY) {
        dur_round round = { .turn_count = 0 };
        code = dur_store_lane_round(r->lane, r->p->b.arena, &round, ERROR(r));
    }
    return code;
}

#define WAITS_FOR_A_TURN(does)                                                                                         \
    static void a_turn_ahead_is_waited_for_by_who_##does(void **state) {                                               \
        waits_for_a_turn(state, does, true);                                                                           \
    }                                                                                                                  \
    static void a_turn_by_its_row_is_waited_for_by_who_##does(void **state) {                                          \
        waits_for_a_turn(state, does, false);                                                                          \
    }
WAITS_FOR_A_TURN(suspends)
WAITS_FOR_A_TURN(gives_up)
WAITS_FOR_A_TURN(returns_step)
WAITS_FOR_A_TURN(ends_step_by_its_id)
WAITS_FOR_A_TURN(speaks_of_the_older_step)
WAITS_FOR_A_TURN(commits_outside_under_the_lease)
WAITS_FOR_A_TURN(takes_over_from_another_lane)
WAITS_FOR_A_TURN(undoes_claims)
WAITS_FOR_A_TURN(recovers)

/* ---- the pause --------------------------------------------------------------------------------------------------- */

/* Rounds from the one that is refused to the one that learns the count. */
static int rounds_of_a_pause(rig *r, flow *x, flow *y) {
    int rounds = 0;
    disturb(r);
    go_both(r, x, y, NOTHING_TO_STEPS);
    assert_int_equal(row_last(r, x), x->last);
    for (; !lane_in(r)->calm && rounds < 100; rounds++)
        go_both(r, x, y, NOTHING_TO_STEPS);
    assert_int_equal(row_last(r, x), x->last);
    return rounds;
}

/* Who is disturbed all the time writes rows, and seldom tries anything else. */
static void each_refusal_doubles_the_pause(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    go_both(&r, &x, &y, ENDS);
    static const int expected[] = { 0, 1, 3, 7, 15, 31, 63, 63 };
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        assert_int_equal(rounds_of_a_pause(&r, &x, &y), expected[i]);
    go_both(&r, &x, &y, ENDS); /* one that is not refused ends that */
    assert_int_equal(lane_in(&r)->disturbances, 0);
    assert_int_equal(rounds_of_a_pause(&r, &x, &y), 0);
    assert_int_equal(rounds_of_a_pause(&r, &x, &y), 1);
    assert_sound(&r, &x);
    rig_close(&r);
}

/* What it has lost a look tells: then it learns the count without a refusal before. */
static void a_loss_is_no_refusal(void **state) {
    rig r = rig_open(*state);
    flow x, y, z = begun_flow(&r, "z");
    go_ahead(&r, &x, &y);
    ASSERT_DONE(&r, suspends(&r, &z));
    assert_int_equal(run(&r, NULL, 0, NULL).lost_count, 1);
    assert_false(lane_in(&r)->calm);
    go_by_rows(&r, &x, &y);
    assert_int_equal(lane_in(&r)->disturbances, 0);
    go_both_ahead(&r, &x, &y);
    rig_close(&r);
}

/* ---- what it knows of a row -------------------------------------------------------------------------------------- */

/* Nothing of the row is compared by a turn that goes ahead: what it says must be what the lane has written. */
static void only_what_was_compared_goes_ahead(void **state) {
    rig r = rig_open(*state);
    dur__pg_lane *lane = lane_in(&r);
    flow x, y;
    go_ahead(&r, &x, &y);
    dur_turn_commit fine = next_turn(&r, &x, NOTHING_TO_STEPS), turn = fine;
    assert_true(dur__pg_row_known(lane, &fine));
    turn.lock_token = "another";
    assert_false(dur__pg_row_known(lane, &turn));
    assert_int_equal(fault_of(&r, turn), DUR_TURN_LEASE_LOST);
    turn = fine;
    turn.execution_id = 2;
    assert_false(dur__pg_row_known(lane, &turn));
    assert_int_equal(fault_of(&r, turn), DUR_TURN_POSITION);
    flow elsewhere = x;
    elsewhere.last++;
    turn = next_turn(&r, &elsewhere, NOTHING_TO_STEPS);
    assert_false(dur__pg_row_known(lane, &turn));
    assert_int_equal(fault_of(&r, turn), DUR_TURN_POSITION);
    lane->calm = false;
    assert_false(dur__pg_row_known(lane, &fine));
    lane->calm = true;
    lane->calms++; /* learned since: with this row it has nothing to do */
    assert_false(dur__pg_row_known(lane, &fine));
    assert_sound(&r, &x);
    rig_close(&r);
}

/* It has written the row while it did not know the count. */
static void what_was_written_in_a_pause_does_not_count(void **state) {
    rig r = rig_open(*state);
    flow x, y, z = begun_flow(&r, "z");
    go_ahead(&r, &x, &y);
    disturb(&r);
    lane_in(&r)->disturbances = 1;
    go_by_rows(&r, &x, &y);
    assert_false(lane_in(&r)->calm);
    ASSERT_DONE(&r, returns_step(&r, &x));
    go(&r, &z, NOTHING_TO_STEPS); /* learns */
    assert_true(lane_in(&r)->calm);
    assert_int_equal(fault_beside(&r, &x, &z, BEGINS), DUR_TURN_WORK_LOST);
    assert_settled(&r, &x);
    rig_close(&r);
}

/* The same lane holds it again: what it knew was of the lease before. */
static void another_lease(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    flow before = x;
    ASSERT_DONE(&r, gives_up(&r, &x));
    send_event(&r, &x);
    dur_round round = run(&r, NULL, 0, &fresh);
    assert_int_equal(round.item_count, 1);
    x.item = round.items[0];
    x.step = (dur_turn_work){ .row_id = 0 };
    for (int i = 0; i < 2; i++) { /* not known; then the lane notices that it was disturbed */
        go_both(&r, &x, &y, BEGINS);
        assert_int_equal(row_last(&r, &x), x.last);
    }
    go_both(&r, &x, &y, NOTHING_TO_STEPS);
    assert_true(row_last(&r, &x) < (long)x.last);
    before.last = x.last;
    assert_int_equal(fault_of(&r, next_turn(&r, &before, NOTHING_TO_STEPS)), DUR_TURN_LEASE_LOST);
    assert_sound(&r, &x);
    rig_close(&r);
}

static void another_execution(void **state) {
    rig r = rig_open(*state);
    flow x = begun_flow(&r, "x"), y = begun_flow(&r, "y");
    dur_event_row event = event_of(1);
    ASSERT_DONE(&r, dur_store_append(STORE(&r), "x", 2, &event, 1, ERROR(&r)));
    for (int i = 0; i < 3; i++) { /* by its row; the lane has noticed; ahead */
        dur_turn_commit turns[] = { next_turn(&r, &x, NOTHING_TO_STEPS), next_turn(&r, &y, NOTHING_TO_STEPS) };
        turns[0].execution_id = 2;
        (void)run(&r, turns, 2, NULL);
        went(&x);
        went(&y);
    }
    assert_int_equal(count_of(&r, &x, "history", "execution_id = 2"), 4);
    assert_int_equal(row_last(&r, &x), 3);
    assert_int_equal(fault_of(&r, next_turn(&r, &x, NOTHING_TO_STEPS)), DUR_TURN_POSITION);
    rig_close(&r);
}

/* ---- a new session ----------------------------------------------------------------------------------------------- */

static void lose_session(const rig *r) {
    const char *pid = SQL(r, "FROM pg_stat_activity WHERE pid = %d", lane_in(r)->conn->backend);
    pg_do(r->p->db, SQL(r, "SELECT pg_terminate_backend(pid) %s", pid));
    while (pg_number(r->p->db, SQL(r, "SELECT count(*) %s", pid)) > 0)
        pg_pause_ms(1);
    pg_pause_ms(20); /* and its farewell has come */
}

/* As on a server that was a moment behind the one that has failed. */
static void forget_last_row(const rig *r, const flow *f) {
    pg_do(r->p->db, SQL(r, "DELETE FROM %s.dur_history WHERE instance_id = '%s' AND event_id = %d", r->p->schema,
                        f->item.instance, (int)f->last));
}

/* The long way: that compares with what is there, and moves the steps. */
static void rows_that_are_behind_are_not_gone_by(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    lose_session(&r);
    forget_last_row(&r, &x);
    assert_int_equal(fault_beside(&r, &x, &y, BEGINS), DUR_TURN_POSITION);
    x.last--;
    assert_sound(&r, &x);
    assert_settled(&r, &y);
    assert_int_equal(count_of(&r, &y, "worker", "owner = 'o' AND token = 'y-4'"), 1);
    flow z = begun_flow(&r, "z");
    go_both(&r, &y, &z, BEGINS);
    for (int i = 0; i < 2; i++) /* in the session that it has now */
        go_both_ahead(&r, &y, &z);
    assert_int_equal(disturbed(&r), 0);
    assert_sound(&r, &y);
    rig_close(&r);
}

/* The session ends with the answer that a turn is refused: what is tried next is tried in a new one. */
static void nothing_is_written_behind_a_gap_after_a_refusal(void **state) {
    rig r = rig_open(*state);
    const char *schema = r.p->schema;
    flow x, y;
    go_ahead(&r, &x, &y);
    go_both(&r, &x, &y, NOTHING_TO_STEPS);
    disturb(&r);
    forget_last_row(&r, &x);
    pg_do(r.p->db, SQL(&r,
                       "CREATE FUNCTION %s.same() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;"
                       "CREATE TRIGGER last BEFORE INSERT ON %s.dur_history FOR EACH ROW WHEN (NEW.instance_id IS NULL"
                       " AND NOT pg_terminate_backend(pg_backend_pid())) EXECUTE FUNCTION %s.same()",
                       schema, schema, schema));
    uint64_t sessions = lane_in(&r)->conn->sessions;
    dur_turn_commit turns[] = { next_turn(&r, &x, BEGINS), next_turn(&r, &y, BEGINS) };
    dur_round round = { .turns = turns, .turn_count = 2 };
    (void)dur_store_lane_round(r.lane, r.p->b.arena, &round, &r.p->b.err);
    assert_true(lane_in(&r)->conn->sessions > sessions || lane_in(&r)->conn->pg == NULL);
    assert_int_not_equal(turns[0].fault, DUR_TURN_FINE);
    x.last--;
    assert_history(&r, &x);
    rig_close(&r);
}

/* They are compared, and say what is there. */
static void rows_that_are_not_behind_are_compared(void **state) {
    rig r = rig_open(*state);
    flow x = begun_flow(&r, "x"), y = begun_flow(&r, "y");
    go(&r, &x, BEGINS);
    go(&r, &y, BEGINS);
    lose_session(&r);
    go_by_rows(&r, &x, &y);
    assert_int_equal(lane_in(&r)->disturbances, 0);
    lose_session(&r);
    forget_last_row(&r, &x);
    pg_do(r.p->db,
          SQL(&r, "UPDATE %s.dur_instances SET last_event = last_event - 1 WHERE instance_id = 'x'", r.p->schema));
    assert_int_equal(fault_beside(&r, &x, &y, NOTHING_TO_STEPS), DUR_TURN_POSITION);
    x.last--;
    assert_sound(&r, &x);
    rig_close(&r);
}

/* ---- owners ------------------------------------------------------------------------------------------------------ */

/* A peer beats until the owner "o" seems to be dead, and is taken over, if nobody holds one of its rows. */
static void take_over(pg_bench *p, const char *peer) {
    bench *b = &p->b;
    dur_owner_report report = { 0 };
    ASSERT_OK(b, dur_store_owner_register(b->store, &(dur_owner_options){ .owner = peer }, &b->err));
    pg_do(p->db, dur_arena_format(b->arena, "UPDATE %s.dur_owners SET timeout_ms = 100 WHERE owner = 'o'", p->schema));
    while (report.freed == 0) {
        ASSERT_OK(b, dur_store_owner_beat(b->store, peer, &report, &b->err));
        pg_pause_ms(30);
    }
}

static int leaves(rig *r, flow *x) {
    (void)x;
    return dur_store_owner_release(STORE(r), "o", ERROR(r));
}

/* Its lanes go with it, behind their rows, as everywhere: who has a row may want its lane's, and nobody waits for both.
 */
static void who_leaves_waits_for_rows_first(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    pthread_t thread;
    go_ahead(&r, &x, &y);
    PGconn *db = half_done(SQL(&r, "SELECT 1 FROM %s.dur_instances WHERE instance_id = 'x' FOR UPDATE", r.p->schema));
    beside b = { .r = &r, .f = &x, .does = leaves };
    pthread_create(&thread, NULL, act_beside, &b);
    bool waited = is_waited_for(db, &b);
    PGresult *lane = PQexec(db, SQL(&r, "SELECT 1 FROM %s.dur_lanes FOR NO KEY UPDATE NOWAIT", r.p->schema));
    bool had = PQntuples(lane) == 1;
    PQclear(lane);
    finish(db, "COMMIT");
    pthread_join(thread, NULL);
    assert_true(waited);
    assert_true(had);
    if (b.code == DUR_EBUSY) ASSERT_DONE(&r, leaves(&r, &x)); /* it waits for a moment only */
    assert_settled(&r, &x);
    rig_close(&r);
}

/* What a round takes beside its turns it takes under its owner's name: not while that one is taken over. */
static void not_while_its_owner_is_taken_over(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    PGconn *db = half_done(
        SQL(&r, "SELECT pg_advisory_xact_lock(%lld)", (long long)dur__pg_fence_key(dur__pg_of(STORE(&r)), "o")));
    dur_turn_fault fault = fault_of(&r, next_turn(&r, &x, BEGINS));
    finish(db, "ROLLBACK");
    assert_int_equal(fault, DUR_TURN_STORE);
    assert_sound(&r, &x);
    go_both(&r, &x, &y, BEGINS);
    rig_close(&r);
}

/*
 * Somebody holds y, and has counted for one lane: nothing of that lane is free, for he might undo it; all of the other
 * one is, and it is told.
 */
static void its_owner_is_taken_over_in_part(void **state) {
    rig r = rig_open(*state), other = second_lane(*state);
    flow x, y, v = begun_flow(&other, "v"), w = begun_flow(&other, "w");
    go_ahead(&r, &x, &y);
    go_both(&other, &v, &w, BEGINS);
    PGconn *db =
        half_disturb(&r, SQL(&r, "SELECT 1 FROM %s.dur_instances WHERE instance_id = 'y' FOR UPDATE", r.p->schema));
    take_over(r.p, "peer");
    assert_int_equal(count(&r, "instances", "owner = 'o' AND instance_id IN ('x', 'y')"), 2);
    assert_int_equal(count(&r, "instances", "owner IS NULL AND instance_id IN ('v', 'w')"), 2);
    assert_int_equal(count(&r, "lost", "instance_id IN ('v', 'w')"), 2);
    finish(db, "ROLLBACK");
    assert_int_equal(disturbed(&r), 0);
    assert_int_equal(disturbed(&other), 1);
    go_both_ahead(&r, &x, &y);
    assert_int_equal(fault_of(&other, next_turn(&other, &v, NOTHING_TO_STEPS)), DUR_TURN_LEASE_LOST);
    for (int i = 0; i < 4; i++)
        assert_sound(&r, (const flow *[]){ &x, &y, &v, &w }[i]);
    assert_settled(&r, &v);
    rig_close(&other);
    rig_close(&r);
}

/*
 * He has not counted yet: he is left his row, the others are free, and the lane is told; so is what another one has
 * just acquired, which is not entered yet.  Lanes of others are left alone.
 */
static void its_owner_is_taken_over_but_for_a_row(void **state) {
    rig r = rig_open(*state), other = second_lane(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    dur_message start = start_of(&r.p->b, "z");
    ASSERT_DONE(&r, dur_store_enqueue_for_orchestrator(STORE(&r), &start, 0, ERROR(&r)));
    assert_int_equal(run(&other, NULL, 0, &fresh).item_count, 1);
    pg_foreign_owner(r.p);
    pg_do(r.p->db, SQL(&r, "INSERT INTO %s.dur_lanes (holder, owner) VALUES (1, 'old')", r.p->schema));
    PGconn *db = half_done(SQL(&r, "SELECT 1 FROM %s.dur_instances WHERE instance_id = 'y' FOR UPDATE", r.p->schema));
    take_over(r.p, "peer");
    finish(db, "COMMIT");
    assert_int_equal(count(&r, "owners", "owner = 'o'"), 1);
    assert_int_equal(count(&r, "instances", "owner IS NULL"), 2);
    assert_int_equal(count(&r, "lanes", "owner = 'old' AND disturbed = 0"), 1);
    assert_int_equal(disturbed(&r), 1);
    assert_int_equal(fault_beside(&r, &x, &y, NOTHING_TO_STEPS), DUR_TURN_LEASE_LOST);
    assert_settled(&r, &x);
    take_over(r.p, "peer2");
    assert_int_equal(count(&r, "lanes", "owner = 'o'"), 0);
    assert_int_equal(fault_of(&r, next_turn(&r, &y, NOTHING_TO_STEPS)), DUR_TURN_LEASE_LOST);
    assert_settled(&r, &y);
    rig_close(&other);
    rig_close(&r);
}

#define WAITS_TESTS(does)                                                                                              \
    PG_TEST(a_turn_ahead_is_waited_for_by_who_##does), PG_TEST(a_turn_by_its_row_is_waited_for_by_who_##does)

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(a_lane_is_entered_once),
        PG_TEST(not_after_its_owner_has_left),
        PG_TEST(not_without_an_owner),
        PG_TEST(disturbed_by_who_suspends),
        PG_TEST(disturbed_by_who_gives_up),
        PG_TEST(disturbed_by_who_appends),
        PG_TEST(disturbed_by_who_deletes),
        PG_TEST(disturbed_by_who_returns_step),
        PG_TEST(disturbed_by_who_ends_step_by_its_id),
        PG_TEST(disturbed_by_who_ends_step_with_a_message),
        PG_TEST(disturbed_by_who_ends_step_by_its_token),
        PG_TEST(disturbed_by_who_renews_step),
        PG_TEST(disturbed_by_who_commits_outside),
        PG_TEST(disturbed_by_who_commits_outside_under_the_lease),
        PG_TEST(disturbed_by_who_takes_over_from_another_lane),
        PG_TEST(disturbed_by_who_undoes_claims),
        PG_TEST(not_by_its_own_turns),
        PG_TEST(by_its_own_acks),
        PG_TEST(another_lane_stays_calm),
        PG_TEST(it_does_not_wait_for_who_has_counted),
        WAITS_TESTS(suspends),
        WAITS_TESTS(gives_up),
        WAITS_TESTS(returns_step),
        WAITS_TESTS(ends_step_by_its_id),
        WAITS_TESTS(speaks_of_the_older_step),
        WAITS_TESTS(commits_outside_under_the_lease),
        WAITS_TESTS(takes_over_from_another_lane),
        WAITS_TESTS(undoes_claims),
        WAITS_TESTS(recovers),
        PG_TEST(each_refusal_doubles_the_pause),
        PG_TEST(a_loss_is_no_refusal),
        PG_TEST(only_what_was_compared_goes_ahead),
        PG_TEST(what_was_written_in_a_pause_does_not_count),
        PG_TEST(another_lease),
        PG_TEST(another_execution),
        PG_TEST(rows_that_are_behind_are_not_gone_by),
        PG_TEST(nothing_is_written_behind_a_gap_after_a_refusal),
        PG_TEST(rows_that_are_not_behind_are_compared),
        PG_TEST(who_leaves_waits_for_rows_first),
        PG_TEST(not_while_its_owner_is_taken_over),
        PG_TEST(its_owner_is_taken_over_in_part),
        PG_TEST(its_owner_is_taken_over_but_for_a_row),
    };
    PG_MAIN(tests);
}
