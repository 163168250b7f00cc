/*
 * test_pg_calm.c: rounds of a lane that nobody has disturbed, on PostgreSQL: what ends and begins in them is as it is
 * when everything is compared, and nothing of them is written where somebody has.
 */
#include "pg_ahead.h"

typedef struct cast {
    flow goes, ends, born; /* as their names say, in the next round */
    caller birth;
} cast;

/* The lane has made both of the old ones; the one that ends has a step, which that turn ends. */
static void prepare(rig *r, cast *c) {
    c->goes = born_flow(r, "goes");
    c->ends = born_flow(r, "ends");
    go_both(r, &c->goes, &c->ends, BEGINS);
    c->born = take_start(r, &c->birth, "new");
}

enum { GOES, OVER, BORN, PARTS };

static void turns_of(const rig *r, cast *c, dur_turn_commit turns[PARTS]) {
    turns[GOES] = next_turn(r, &c->goes, BEGINS);
    turns[OVER] = ending(next_turn(r, &c->ends, ENDS));
    turns[BORN] = birth(r, &c->born);
}

static dur__pg_turn_kind kind_of_both(rig *r, dur_turn_commit *a, dur_turn_commit *b) {
    dur_turn_commit *turns[] = { a, b };
    return dur__pg_kind_of_all(turns, 2, (dur__pg_lane *)(void *)r->lane);
}

static long disturbed(const rig *r) {
    return pg_number(r->p->db, SQL(r, "SELECT disturbed FROM %s.dur_lanes", r->p->schema));
}

/* ---- what it writes ---------------------------------------------------------------------------------------------- */

static void all_kinds_together(void **state) {
    rig r = rig_open(*state);
    cast c;
    prepare(&r, &c);
    dur_turn_commit turns[PARTS];
    const char *row = row_of(&r, &c.goes);
    turns_of(&r, &c, turns);
    assert_int_equal(kind_of(&r, &turns[OVER]), DUR__PG_IS_CALM);
    assert_int_equal(kind_of(&r, &turns[BORN]), DUR__PG_IS_CALM);
    (void)run(&r, turns, PARTS, NULL);
    went(&c.goes);
    went(&c.ends);
    was_born(&c.born, &c.birth);
    assert_string_equal(row_of(&r, &c.goes), row);
    assert_history_row(&r, &c.goes, BEGINS);
    assert_settled(&r, &c.ends);
    assert_int_equal(count_of(&r, &c.ends, "instances",
                              FREED " AND holder IS NULL AND expires_at IS NULL AND status = 2 AND output = 'done' AND"
                                    " ready_at IS NULL AND acquisitions = 0 AND has_row AND known"),
                     1);
    assert_int_equal(
        count_of(&r, &c.born, "instances",
                 "owner = 'o' AND holder IS NOT NULL AND status = 1 AND output IS NULL AND has_row AND"
                 " has_history AND known AND name IS NOT NULL AND version IS NOT NULL AND current_execution"
                 " = 1 AND last_event = 1 AND created_at > 0 AND updated_at = created_at AND pin IS NULL"
                 " AND custom_status_version = 0 AND acquisitions = 0"),
        1);
    assert_int_equal(count(&r, "executions", "true") + count(&r, "worker", "true") + count(&r, "queue", "true"), 0);
    for (const flow *f = &c.goes; f <= &c.born; f++)
        assert_sound(&r, f);
    rig_close(&r);
}

/* What it was given when it began: a version, a status, a step. */
static void a_birth_with_all_that_it_can_have(void **state) {
    rig r = rig_open(*state);
    flow other = born_flow(&r, "other");
    caller c;
    flow f = take_start(&r, &c, "x");
    dur_event_row events[] = { event_of(1), event_of(2) };
    dur_turn_work step = step_at(&r, "x", 2);
    dur_turn_commit turn = birth(&r, &f);
    events[1].kind = DUR_EVENT_CUSTOM_STATUS_UPDATED;
    events[1].value = "half";
    turn.events = events;
    turn.event_count = 2;
    turn.worker_items = &step;
    turn.worker_item_count = 1;
    turn.metadata.has_pinned_version = true;
    turn.metadata.pinned_version = (dur_semver){ 1, 2, 3 };
    assert_int_equal(kind_of(&r, &turn), DUR__PG_IS_CALM);
    (void)run(&r, &turn, 1, NULL);
    was_born(&f, &c);
    assert_int_equal(count_of(&r, &f, "instances",
                              "pin = '{1,2,3}' AND custom_status = 'half' AND custom_status_version = 1 AND last_event"
                              " = 2 AND step_token = 'x-2' AND step_id < 0 AND step_json IS NOT NULL"),
                     1);
    assert_int_equal(count_of(&r, &f, "history", "events = 2 AND step_id IS NULL"), 1);
    f.step = step;
    assert_false(is_lost(&r, &f, &step));
    ASSERT_OK(&r.p->b, dur_provider_check(r.p->b.store, &r.p->b.err));
    assert_sound(&r, &other);
    rig_close(&r);
}

/* A message came that it was not given: behind its end it waits for anybody, at once. */
static void an_end_with_a_message_behind_it(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x = born_flow(&r, "x");
    send_event(&r, &x);
    dur_turn_commit turn = ending(next_turn(&r, &x, NOTHING_TO_STEPS));
    assert_int_equal(kind_of(&r, &turn), DUR__PG_IS_CALM);
    try_turns(&r, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    went(&x);
    assert_int_equal(count_of(&r, &x, "instances", FREED " AND status = 2 AND ready_at > 0 AND ready_due = 0"), 1);
    dur_fetch how = { .lock_ms = 60000, .max = 1 };
    dur_orchestration_item item;
    size_t n = 0;
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &how, &item, &n, &b->err));
    assert_int_equal(n, 1);
    assert_int_equal(item.message_count, 1);
    assert_int_equal(item.history_count, x.last);
    rig_close(&r);
}

/* One that failed, and its text. */
static void an_end_that_is_a_failure(void **state) {
    rig r = rig_open(*state);
    flow x = born_flow(&r, "x");
    dur_turn_commit turn = ending(next_turn(&r, &x, NOTHING_TO_STEPS));
    turn.metadata.status = DUR_STATUS_FAILED;
    turn.metadata.output = NULL;
    assert_int_equal(kind_of(&r, &turn), DUR__PG_IS_CALM);
    (void)run(&r, &turn, 1, NULL);
    assert_int_equal(count_of(&r, &x, "instances", FREED " AND status = 3 AND output IS NULL"), 1);
    rig_close(&r);
}

/* ---- what is not calm -------------------------------------------------------------------------------------------- */

/* Its execution has a row of its own; it was acquired, or somebody has moved it there. */
static void an_end_whose_execution_is_apart(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow acquired = begun_flow(&r, "x"), moved = born_flow(&r, "y");
    dur_turn_work none = step_at(&r, "y", 7);
    dur_worker_claim claim = claim_of("y", &none);
    ASSERT_OK(b, dur_store_return_works(b->store, &claim, 1, &b->err));
    assert_int_equal(count_of(&r, &moved, "instances", "status IS NULL"), 1);
    has_noticed(&r);
    go(&r, &moved, NOTHING_TO_STEPS); /* both are compared, and the lane is calm again */
    go(&r, &acquired, NOTHING_TO_STEPS);
    go_both(&r, &acquired, &moved, NOTHING_TO_STEPS);
    assert_int_equal(count(&r, "history", "at_ms IS NOT NULL AND event_id = 3"), 2);
    for (int i = 0; i < 2; i++) {
        flow *f = i == 0 ? &acquired : &moved;
        dur_turn_commit turn = ending(next_turn(&r, f, NOTHING_TO_STEPS));
        assert_int_not_equal(kind_of(&r, &turn), DUR__PG_IS_CALM);
        (void)run(&r, &turn, 1, NULL);
        went(f);
        assert_int_equal(count_of(&r, f, "instances", FREED " AND status IS NULL"), 1);
        assert_int_equal(count_of(&r, f, "executions", "status = 2 AND output = 'done' AND completed_at > 0"), 1);
        assert_sound(&r, f);
    }
    rig_close(&r);
}

/* It says how far it is, in the turn that ends it or in one that does not. */
static void a_status_is_compared(void **state) {
    rig r = rig_open(*state);
    flow x = born_flow(&r, "x"), y = born_flow(&r, "y");
    dur_turn_commit turns[] = { next_turn(&r, &x, NOTHING_TO_STEPS), ending(next_turn(&r, &y, NOTHING_TO_STEPS)) };
    x.event.kind = y.event.kind = DUR_EVENT_CUSTOM_STATUS_UPDATED;
    x.event.value = y.event.value = "half";
    assert_int_equal(kind_of_both(&r, &turns[0], &turns[1]), DUR__PG_IS_OVER);
    assert_int_equal(kind_of(&r, &turns[1]), DUR__PG_IS_OVER);
    (void)run(&r, turns, 2, NULL);
    assert_int_equal(count(&r, "instances", "custom_status = 'half' AND custom_status_version = 1 AND last_event = 2"),
                     2);
    assert_int_equal(count_of(&r, &y, "instances", FREED " AND status = 2"), 1);
    rig_close(&r);
}

/* The rows are not looked at, so the lane does: what is elsewhere, or under another lease, is refused. */
static void an_end_that_stands_elsewhere(void **state) {
    rig r = rig_open(*state);
    flow x = born_flow(&r, "x"), y = born_flow(&r, "y");
    go_both(&r, &x, &y, NOTHING_TO_STEPS);
    for (int i = 0; i < 4; i++) {
        flow other = x;
        if (i < 2) other.last += i == 0 ? 1 : -1u;
        if (i == 2) other.item.lock_token = "another";
        dur_turn_commit turn = ending(next_turn(&r, &other, NOTHING_TO_STEPS));
        if (i == 3) turn.execution_id = 2;
        assert_int_not_equal(kind_of(&r, &turn), DUR__PG_IS_CALM);
        assert_int_equal(fault_of(&r, turn), i == 2 ? DUR_TURN_LEASE_LOST : DUR_TURN_POSITION);
        assert_sound(&r, &x);
    }
    assert_int_equal(count(&r, "instances", "status = 2"), 0);
    rig_close(&r);
}

static void before_the_count_is_learned(void **state) {
    rig r = rig_open(*state);
    dur__pg_lane *lane = (dur__pg_lane *)(void *)r.lane;
    assert_false(lane->calm);
    caller c;
    flow x = take_start(&r, &c, "x");
    dur_turn_commit turn = birth(&r, &x);
    assert_int_equal(kind_of(&r, &turn), DUR__PG_GOES_ON);
    (void)run(&r, &turn, 1, NULL);
    was_born(&x, &c);
    assert_true(lane->calm);
    assert_int_equal(count(&r, "lanes", "owner = 'o' AND disturbed = 0"), 1);
    turn = ending(next_turn(&r, &x, NOTHING_TO_STEPS));
    assert_int_equal(kind_of(&r, &turn), DUR__PG_IS_CALM); /* the row was made in the same transaction */
    rig_close(&r);
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

/* By what happens to one of them nothing of the others is lost, and nothing is written twice. */
static void disturbed_about_one(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    cast c;
    prepare(&r, &c);
    dur_turn_commit turns[PARTS];
    ASSERT_OK(b, dur_store_set_suspended(b->store, "ends", "wait", &b->err));
    turns_of(&r, &c, turns);
    try_turns(&r, turns, PARTS);
    const char *names[] = { "goes", "ends", "new" };
    for (int i = 0; i < PARTS; i++) {
        bool lost = strcmp(turns[i].instance, names[OVER]) == 0;
        assert_int_equal(turns[i].fault, lost ? DUR_TURN_LEASE_LOST : DUR_TURN_FINE);
    }
    went(&c.goes);
    was_born(&c.born, &c.birth);
    assert_int_equal(count_of(&r, &c.ends, "instances", "suspended = 'wait' AND last_event = 2"), 1);
    assert_int_equal(count_of(&r, &c.ends, "executions", "status > 1"), 0);
    for (const flow *f = &c.goes; f <= &c.born; f++)
        assert_sound(&r, f);
    rig_close(&r);
}

/* Somebody has the lane's row and stands still: it is no reason to wait, and undone is undone. */
static void somebody_is_about_to_disturb(void **state) {
    rig r = rig_open(*state);
    cast c;
    prepare(&r, &c);
    dur_turn_commit turns[PARTS];
    PGconn *db = PQconnectdb(pg_server());
    pg_do(db, SQL(&r, "BEGIN; UPDATE %s.dur_lanes SET disturbed = disturbed + 1", r.p->schema));
    turns_of(&r, &c, turns);
    (void)run(&r, turns, PARTS, NULL);
    pg_do(db, "ROLLBACK");
    PQfinish(db);
    went(&c.goes);
    went(&c.ends);
    was_born(&c.born, &c.birth);
    assert_int_equal(row_last(&r, &c.goes), c.goes.last);
    assert_settled(&r, &c.ends);
    assert_int_equal(disturbed(&r), 0);
    assert_false(((dur__pg_lane *)(void *)r.lane)->calm); /* the calm round was refused, and did not wait */
    for (const flow *f = &c.goes; f <= &c.born; f++)
        assert_sound(&r, f);
    rig_close(&r);
}

/* An instance of that name is there: that is no disturbance. */
static void a_birth_of_what_is_there(void **state) {
    rig r = rig_open(*state);
    cast c;
    prepare(&r, &c);
    dur_turn_commit turns[PARTS];
    pg_do(r.p->db, SQL(&r, "INSERT INTO %s.dur_instances (instance_id) VALUES ('new')", r.p->schema));
    turns_of(&r, &c, turns);
    try_turns(&r, turns, PARTS);
    for (int i = 0; i < PARTS; i++)
        assert_int_equal(turns[i].fault == DUR_TURN_FINE, strcmp(turns[i].instance, "new") != 0);
    dur_store_lane_start_back(r.lane, c.born.item.lock_token);
    pthread_join(c.birth.thread, NULL);
    went(&c.goes);
    went(&c.ends);
    assert_true(((dur__pg_lane *)(void *)r.lane)->calm);
    assert_settled(&r, &c.goes);
    assert_settled(&r, &c.ends);
    rig_close(&r);
}

/* With the owner its lanes are gone. */
static void the_owner_is_gone(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    cast c;
    prepare(&r, &c);
    dur_turn_commit turns[PARTS];
    ASSERT_OK(b, dur_store_owner_release(b->store, "o", &b->err));
    assert_int_equal(count(&r, "lanes", "true"), 0);
    turns_of(&r, &c, turns);
    try_turns(&r, turns, PARTS);
    for (int i = 0; i < PARTS; i++)
        assert_int_not_equal(turns[i].fault, DUR_TURN_FINE);
    dur_store_lane_start_back(r.lane, c.born.item.lock_token);
    pthread_join(c.birth.thread, NULL);
    assert_int_equal(count(&r, "instances", "owner IS NOT NULL"), 0);
    assert_int_equal(count(&r, "lanes", "true"), 0); /* nor does it enter again */
    assert_settled(&r, &c.goes);
    assert_settled(&r, &c.ends);
    rig_close(&r);
}

/* Somebody is just taking the owner for dead: it is not waited for, and nothing is written under its name. */
static void the_fence_is_held(void **state) {
    rig r = rig_open(*state);
    cast c;
    prepare(&r, &c);
    dur_turn_commit turns[PARTS];
    PGconn *db = PQconnectdb(pg_server());
    pg_do(db, SQL(&r, "BEGIN; SELECT pg_advisory_xact_lock(%lld)",
                  (long long)dur__pg_fence_key((dur__pg *)(void *)r.p->b.store, "o")));
    turns_of(&r, &c, turns);
    try_turns(&r, turns, PARTS);
    pg_do(db, "ROLLBACK");
    PQfinish(db);
    for (int i = 0; i < PARTS; i++)
        assert_int_not_equal(turns[i].fault, DUR_TURN_FINE);
    assert_false(((dur__pg_lane *)(void *)r.lane)->calm); /* the calm round was refused, and did not wait */
    assert_int_equal(count(&r, "instances", "instance_id = 'new' OR status = 2"), 0);
    assert_sound(&r, &c.goes);
    assert_sound(&r, &c.ends);
    turns_of(&r, &c, turns);
    (void)run(&r, turns, PARTS, NULL);
    was_born(&c.born, &c.birth);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(all_kinds_together),
        PG_TEST(a_birth_with_all_that_it_can_have),
        PG_TEST(an_end_with_a_message_behind_it),
        PG_TEST(an_end_that_is_a_failure),
        PG_TEST(an_end_whose_execution_is_apart),
        PG_TEST(a_status_is_compared),
        PG_TEST(an_end_that_stands_elsewhere),
        PG_TEST(before_the_count_is_learned),
        PG_TEST(disturbed_about_one),
        PG_TEST(somebody_is_about_to_disturb),
        PG_TEST(a_birth_of_what_is_there),
        PG_TEST(the_owner_is_gone),
        PG_TEST(the_fence_is_held),
    };
    PG_MAIN(tests);
}
