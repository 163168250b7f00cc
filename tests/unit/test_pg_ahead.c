/*
 * test_pg_ahead.c: history that is ahead of its instance's row: which turns leave the row as it is, what is read then,
 * and that the row says what history says before anybody else writes it or ends the lease.
 */
#include "pg_ahead.h"

/* ---- ahead ------------------------------------------------------------------------------------------------------- */

static void two_of_a_round_go_ahead(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x = begun_flow(&r, "x"), y = begun_flow(&r, "y");
    go(&r, &x, BEGINS);
    dur_turn_work older = x.step;
    const char *row_x = row_of(&r, &x), *row_y = row_of(&r, &y);
    pg_pause_ms(3);
    go_both(&r, &x, &y, BEGINS);
    assert_history_row(&r, &x, BEGINS);
    assert_history_row(&r, &y, BEGINS);
    pg_pause_ms(3);
    go_both(&r, &x, &y, NOTHING_TO_STEPS);
    assert_history_row(&r, &x, NOTHING_TO_STEPS);
    assert_string_equal(row_of(&r, &x), row_x);
    assert_string_equal(row_of(&r, &y), row_y);
    assert_int_equal(count(&r, "worker", "true"), 0);
    assert_true(is_lost(&r, &x, &older));
    assert_false(is_lost(&r, &x, &x.step));
    assert_false(is_lost(&r, &y, &y.step));
    dur_instance_row seen;
    ASSERT_OK(b, dur_store_get_instance(b->store, b->arena, "x", &seen, &b->err));
    assert_int_equal(seen.updated_at_ms, pg_number(r.p->db, SQL(&r,
                                                                "SELECT max(at_ms) FROM %s.dur_history WHERE"
                                                                " instance_id = 'x' AND event_id = 4",
                                                                r.p->schema)));
    assert_int_equal(count_of(&r, &x, "instances", SQL(&r, "updated_at < %ld", (long)seen.updated_at_ms)), 1);
    go_both(&r, &x, &y, ENDS);
    assert_history_row(&r, &y, ENDS);
    assert_true(is_lost(&r, &y, &(dur_turn_work){ .message = older.message, .lock_token = "y-2" }));
    assert_string_equal(row_of(&r, &x), row_x);
    assert_sound(&r, &x);
    assert_sound(&r, &y);
    rig_close(&r);
}

static void one_alone_goes_ahead_where_it_is_behind(void **state) {
    rig r = rig_open(*state);
    flow x, y, z = begun_flow(&r, "z");
    go(&r, &z, BEGINS);
    assert_int_equal(row_last(&r, &z), 2);
    assert_int_equal(count_of(&r, &z, "instances", "step_token = 'z-2'"), 1);
    assert_int_equal(count_of(&r, &z, "history", "at_ms IS NOT NULL"), 0);
    go_ahead(&r, &x, &y);
    const char *row = row_of(&r, &x);
    go(&r, &x, BEGINS);
    assert_history_row(&r, &x, BEGINS);
    go(&r, &x, NOTHING_TO_STEPS);
    assert_string_equal(row_of(&r, &x), row);
    assert_sound(&r, &x);
    rig_close(&r);
}

/* It has an acquisition to clear; what a lane knew of the row was under another lease. */
static void the_first_turn_after_an_acquisition_writes_the_row(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x = begun_flow(&r, "x"), y = begun_flow(&r, "y");
    ASSERT_OK(b, dur_store_abandon_orchestration_item(b->store, x.item.lock_token, 0, false, &b->err));
    has_noticed(&r);
    send_event(&r, &x);
    dur_round round = run(&r, NULL, 0, &fresh);
    assert_int_equal(round.item_count, 1);
    x.item = round.items[0];
    assert_int_equal(count_of(&r, &x, "instances", "acquisitions = 1"), 1);
    go_both(&r, &x, &y, NOTHING_TO_STEPS);
    assert_int_equal(count_of(&r, &x, "instances", "acquisitions = 0 AND last_event = 2"), 1);
    const char *row = row_of(&r, &x);
    go_both(&r, &x, &y, BEGINS);
    assert_string_equal(row_of(&r, &x), row);
    assert_history_row(&r, &x, BEGINS);
    assert_sound(&r, &x);
    rig_close(&r);
}

/* What is born beside it has its row, and goes ahead of that from then on. */
static void beside_a_birth(void **state) {
    rig r = rig_open(*state);
    caller c;
    flow x = begun_flow(&r, "x"), y = take_start(&r, &c, "y");
    dur_turn_commit turns[] = { birth(&r, &y), next_turn(&r, &x, BEGINS) };
    (void)run(&r, turns, 2, NULL);
    went(&x);
    was_born(&y, &c);
    assert_int_equal(row_last(&r, &x), 1);
    assert_int_equal(row_last(&r, &y), 1);
    assert_history_row(&r, &x, BEGINS);
    go_both(&r, &x, &y, BEGINS);
    assert_int_equal(row_last(&r, &y), 1);
    assert_int_equal(count_of(&r, &y, "instances", "status = 1"), 1);
    assert_sound(&r, &x);
    assert_sound(&r, &y);
    rig_close(&r);
}

/* Only the first of several rows of a turn has the time and the step; the last one has the position. */
static void a_turn_of_several_rows(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    char *large = dur_arena_zalloc(b->arena, 2002);
    memset(large, ' ', 2001);
    large[0] = '{', large[2000] = '}';
    dur_event_row events[3] = { event_of(4), event_of(5), event_of(6) };
    for (size_t i = 0; i < 3; i++)
        events[i].json = text_of(large);
    dur_turn_commit turn = next_turn(&r, &x, BEGINS);
    turn.events = events;
    turn.event_count = 3;
    (void)run(&r, &turn, 1, NULL);
    x.step = x.next;
    x.last = 6;
    assert_int_equal(row_last(&r, &x), 2);
    assert_int_equal(count_of(&r, &x, "history", "event_id > 3 AND events = 1"), 3);
    assert_int_equal(count_of(&r, &x, "history", "event_id > 4 AND at_ms IS NULL AND step_id IS NULL"), 2);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "wait", &b->err));
    assert_int_equal(row_last(&r, &x), 6);
    assert_moved(&r, &x);
    assert_int_equal(
        count_of(&r, &x, "instances", SQL(&r, "updated_at = (SELECT max(at_ms) FROM %s.dur_history)", r.p->schema)), 1);
    rig_close(&r);
}

/* Of several events in one row the position is that of the last. */
static void a_turn_of_several_events(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    dur_event_row events[3];
    for (size_t i = 0; i < 3; i++) {
        events[i] = event_of(x.last + 1 + i);
        events[i].json = text_of(event_json(&r, x.last + 1 + i));
    }
    dur_turn_commit turn = next_turn(&r, &x, BEGINS);
    turn.events = events;
    turn.event_count = 3;
    (void)run(&r, &turn, 1, NULL);
    x.step = x.next;
    x.last += 3;
    assert_int_equal(count_of(&r, &x, "history", "events = 3 AND at_ms > 0 AND step_id < 0"), 1);
    go(&r, &x, NOTHING_TO_STEPS);
    assert_int_equal(row_last(&r, &x), 2);
    go_both(&r, &x, &y, BEGINS);
    turn = next_turn(&r, &y, ENDS);
    for (size_t i = 0; i < 3; i++)
        events[i].event_id = y.last + 1 + i;
    turn.events = events;
    turn.event_count = 3;
    (void)run(&r, &turn, 1, NULL);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "wait", &b->err));
    ASSERT_OK(b, dur_store_set_suspended(b->store, "y", "wait", &b->err));
    assert_settled(&r, &x);
    assert_moved(&r, &x);
    assert_int_equal(row_last(&r, &y), y.last + 3);
    assert_int_equal(count_of(&r, &y, "worker", "true"), 0);
    rig_close(&r);
}

/* The turn has locked the row, and so has the look of its round: what came is handed out once. */
static void messages_come_beside_it(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    send_event(&r, &x);
    size_t held = 0;
    for (int i = 0; i < 3; i++) {
        dur_turn_commit turns[] = { next_turn(&r, &x, BEGINS), next_turn(&r, &y, BEGINS) };
        held += run(&r, turns, 2, &fresh).held_count;
        went(&x);
        went(&y);
    }
    assert_int_equal(held, 1);
    assert_int_equal(row_last(&r, &x), 2);
    assert_int_equal(count_of(&r, &x, "queue", "given"), 1);
    assert_int_equal(count_of(&r, &x, "instances", "ready_at IS NULL"), 1);
    assert_sound(&r, &x);
    rig_close(&r);
}

/* ---- the end of the lease ---------------------------------------------------------------------------------------- */

static void suspended(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "wait", &b->err));
    assert_settled(&r, &x);
    assert_updated_then(&r, &x);
    assert_moved(&r, &x);
    assert_int_equal(row_last(&r, &y), 2); /* the other is left alone */
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", NULL, &b->err));
    assert_fetched_again(&r, &x);
    rig_close(&r);
}

/* That ends nothing. */
static void resumed_while_it_is_held(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", NULL, &b->err));
    assert_int_equal(row_last(&r, &x), 2);
    go(&r, &x, BEGINS);
    assert_int_equal(row_last(&r, &x), 2);
    assert_false(is_lost(&r, &x, &x.step));
    assert_sound(&r, &x);
    rig_close(&r);
}

static void given_up_by_its_lease_token(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    ASSERT_OK(b, dur_store_abandon_orchestration_item(b->store, x.item.lock_token, 0, false, &b->err));
    assert_settled(&r, &x);
    assert_updated_then(&r, &x);
    assert_moved(&r, &x);
    assert_fetched_again(&r, &x);
    rig_close(&r);
}

static void released_by_its_lane(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    dur_turn_commit release = { .lock_token = x.item.lock_token,
                                .instance = "x",
                                .consume_listed = true,
                                .expected_last = DUR_NOT_COMPARED,
                                .owner = "o" };
    (void)run(&r, &release, 1, NULL);
    assert_settled(&r, &x);
    assert_moved(&r, &x);
    assert_fetched_again(&r, &x);
    rig_close(&r);
}

static void of_an_owner_that_leaves(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    rig_close(&r);
    ASSERT_OK(b, dur_store_owner_release(b->store, "o", &b->err));
    for (int i = 0; i < 2; i++) {
        const flow *f = i == 0 ? &x : &y;
        assert_settled(&r, f);
        assert_updated_then(&r, f);
        assert_work(&r, f, FREED " AND attempts = 0 AND crashes = 0");
    }
    assert_fetched_again(&r, &x);
}

static void of_an_owner_that_dies(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *ours = b->store, *dying = NULL;
    dur_owner_report report = { 0 };
    flow x, y;
    ASSERT_OK(b, dur_open(&dying, p->url, &b->err));
    b->store = dying;
    rig r = rig_open(p);
    go_ahead(&r, &x, &y);
    rig_close(&r);
    dur_provider_close(dying);
    b->store = ours;
    ASSERT_OK(b, dur_store_owner_register(ours, &(dur_owner_options){ .owner = "peer" }, &b->err));
    for (uint64_t end_ms = pg_monotonic_ms() + PATIENCE_MS; report.taken_over == 0 && pg_monotonic_ms() < end_ms;) {
        ASSERT_OK(b, dur_store_owner_beat(ours, "peer", &report, &b->err));
        pg_pause_ms(50);
    }
    assert_int_equal(report.taken_over, 1);
    for (int i = 0; i < 2; i++) {
        const flow *f = i == 0 ? &x : &y;
        assert_settled(&r, f);
        assert_updated_then(&r, f);
        assert_work(&r, f, FREED " AND attempts = 1 AND crashes = 1");
    }
    assert_fetched_again(&r, &x);
}

/* The lane gives up what it has, and knows nothing of the rows any more. */
static void after_an_unknown_outcome(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    ((dur__pg_lane *)(void *)r.lane)->unknown = true;
    dur_round round = run(&r, NULL, 0, NULL);
    assert_int_equal(round.lost_count, 2);
    assert_settled(&r, &x);
    assert_settled(&r, &y);
    assert_updated_then(&r, &x);
    assert_moved(&r, &x);
    send_event(&r, &x);
    round = run(&r, NULL, 0, &fresh);
    assert_int_equal(round.item_count, 1);
    assert_int_equal(round.items[0].last_event_id, x.last);
    assert_int_equal(round.items[0].history_count, x.last);
    x.item = round.items[0];
    go(&r, &x, ENDS);
    assert_settled(&r, &x);
    assert_int_equal(count_of(&r, &x, "worker", "true"), 0);
    rig_close(&r);
}

static void a_step_that_has_ended_is_not_moved(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    go_both(&r, &x, &y, ENDS);
    assert_int_equal(count_of(&r, &x, "instances", "step_id IS NOT NULL"), 1); /* the older one */
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "wait", &b->err));
    ASSERT_OK(b, dur_store_abandon_orchestration_item(b->store, y.item.lock_token, 0, false, &b->err));
    assert_settled(&r, &x);
    assert_settled(&r, &y);
    assert_int_equal(count(&r, "worker", "true"), 0);
    rig_close(&r);
}

static void a_step_that_later_turns_leave_alone_is_moved(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x, y;
    go_ahead(&r, &x, &y);
    go_both(&r, &x, &y, NOTHING_TO_STEPS);
    go(&r, &x, NOTHING_TO_STEPS);
    assert_history_row(&r, &x, NOTHING_TO_STEPS);
    assert_int_equal(row_last(&r, &x), 2);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "wait", &b->err));
    assert_settled(&r, &x);
    assert_updated_then(&r, &x);
    assert_moved(&r, &x);
    rig_close(&r);
}

/* Also that of the row, where none of the turns that are ahead has touched it. */
static void a_step_of_the_row_is_moved_from_behind(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x = begun_flow(&r, "x"), y = begun_flow(&r, "y");
    go(&r, &x, BEGINS);
    go_both(&r, &x, &y, NOTHING_TO_STEPS);
    assert_int_equal(row_last(&r, &x), 2);
    assert_false(is_lost(&r, &x, &x.step));
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "wait", &b->err));
    assert_settled(&r, &x);
    assert_updated_then(&r, &x);
    assert_work(&r, &x, "token = 'x-2' AND owner = 'o' AND attempts = 1");
    rig_close(&r);
}

/* ---- ends and other turns ---------------------------------------------------------------------------------------- */

static void end_it(rig *r, flow *f, deed does) {
    dur_turn_commit turn = ending(next_turn(r, f, does));
    assert_int_not_equal(kind_of(r, &turn), DUR__PG_UNUSUAL);
    (void)run(r, &turn, 1, NULL);
    went(f);
    assert_settled(r, f);
    assert_int_equal(count_of(r, f, "instances", FREED " AND holder IS NULL"), 1);
    assert_int_equal(count_of(r, f, "worker", "true"), 0);
}

/* An older step stands in the row; one statement ends the instance, and leaves none. */
static void an_end_leaves_no_step(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    flow x = born_flow(&r, "x"), y = born_flow(&r, "y");
    go(&r, &x, BEGINS);
    go(&r, &y, BEGINS);
    go_both(&r, &x, &y, BEGINS);
    go(&r, &x, ENDS);
    assert_int_equal(count(&r, "instances", "step_id IS NOT NULL AND last_event = 2"), 2);
    end_it(&r, &x, NOTHING_TO_STEPS);
    end_it(&r, &y, ENDS); /* the one in history */
    assert_int_equal(count(&r, "instances", "status = 2 AND output = 'done'"), 2);
    assert_int_equal(count(&r, "executions", "true"), 0);
    dur_instance_row seen;
    ASSERT_OK(b, dur_store_get_instance(b->store, b->arena, "x", &seen, &b->err));
    assert_int_equal(seen.status, DUR_STATUS_COMPLETED);
    assert_int_equal(count_of(&r, &x, "instances", SQL(&r, "updated_at = %ld", (long)seen.updated_at_ms)), 1);
    rig_close(&r);
}

/* It leaves its step running: it is moved, and who runs it is heard. */
static void an_end_that_leaves_its_step_running(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    dur_turn_commit turn = ending(next_turn(&r, &x, NOTHING_TO_STEPS));
    (void)run(&r, &turn, 1, NULL);
    went(&x);
    assert_settled(&r, &x);
    assert_moved(&r, &x);
    rig_close(&r);
}

/* One that says how far it is writes the row. */
static void a_status_is_told_from_behind(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    for (int i = 0; i < 2; i++) { /* the step stays; a new one comes */
        flow *f = i == 0 ? &x : &y;
        dur_turn_commit turn = next_turn(&r, f, i == 0 ? NOTHING_TO_STEPS : BEGINS);
        f->event.kind = DUR_EVENT_CUSTOM_STATUS_UPDATED;
        f->event.value = "half";
        (void)run(&r, &turn, 1, NULL);
        went(f);
        assert_int_equal(row_last(&r, f), f->last);
        assert_int_equal(count_of(&r, f, "instances", "custom_status = 'half' AND custom_status_version = 1"), 1);
        assert_false(is_lost(&r, f, &f->step));
        assert_sound(&r, f);
    }
    assert_moved(&r, &x);
    assert_int_equal(count_of(&r, &y, "instances", SQL(&r, "step_token = '%s'", y.step.lock_token)), 1);
    rig_close(&r);
}

/* It sends something to another, and goes the long way. */
static void an_unusual_turn_finds_the_row_settled(void **state) {
    rig r = rig_open(*state);
    flow x = born_flow(&r, "x"), y = begun_flow(&r, "y");
    go(&r, &x, BEGINS);
    go_both(&r, &x, &y, BEGINS);
    dur_message child = start_of(&r.p->b, "child");
    dur_turn_commit turn = next_turn(&r, &x, NOTHING_TO_STEPS);
    turn.orchestrator_items = &child;
    turn.orchestrator_item_count = 1;
    (void)run(&r, &turn, 1, NULL);
    went(&x);
    assert_settled(&r, &x);
    assert_moved(&r, &x);
    assert_int_equal(count_of(&r, &x, "instances", "status IS NULL"), 1);
    assert_int_equal(count_of(&r, &x, "executions", "status = 1"), 1);
    go(&r, &x, NOTHING_TO_STEPS);
    assert_int_equal(row_last(&r, &x), x.last);
    const char *row = row_of(&r, &x);
    go_both(&r, &x, &y, ENDS); /* the one in dur_worker */
    assert_string_equal(row_of(&r, &x), row);
    assert_int_equal(count_of(&r, &x, "worker", "true"), 0);
    assert_sound(&r, &x);
    assert_sound(&r, &y);
    rig_close(&r);
}

/* The statement for all of them would not know the step of the one that is behind. */
static void an_end_beside_a_step_that_stays(void **state) {
    rig r = rig_open(*state);
    flow x, y;
    go_ahead(&r, &x, &y);
    dur_turn_commit turns[] = { next_turn(&r, &x, NOTHING_TO_STEPS), ending(next_turn(&r, &y, ENDS)) };
    (void)run(&r, turns, 2, NULL);
    went(&x);
    went(&y);
    assert_settled(&r, &x);
    assert_moved(&r, &x);
    assert_settled(&r, &y);
    assert_int_equal(count_of(&r, &y, "executions", "status = 2 AND output = 'done'"), 1);
    assert_int_equal(count_of(&r, &y, "worker", "true"), 0);
    go(&r, &x, ENDS);
    assert_int_equal(count(&r, "worker", "true"), 0);
    assert_sound(&r, &x);
    rig_close(&r);
}

/* A new step, or none: then it does. */
static void rows_that_are_behind_are_written_beside_an_end(void **state) {
    rig r = rig_open(*state);
    flow x, y, z = begun_flow(&r, "z");
    go_ahead(&r, &x, &y);
    dur_turn_commit turns[] = { next_turn(&r, &x, BEGINS), next_turn(&r, &y, ENDS),
                                ending(next_turn(&r, &z, NOTHING_TO_STEPS)) };
    (void)run(&r, turns, 3, NULL);
    went(&x);
    went(&y);
    went(&z);
    assert_int_equal(row_last(&r, &x), x.last);
    assert_int_equal(count_of(&r, &x, "instances", SQL(&r, "step_token = '%s'", x.step.lock_token)), 1);
    assert_settled(&r, &y);
    assert_int_equal(count(&r, "worker", "true"), 0);
    const char *row = row_of(&r, &x);
    go_both(&r, &x, &y, BEGINS); /* the lane knows what the rows have */
    assert_string_equal(row_of(&r, &x), row);
    assert_sound(&r, &x);
    assert_sound(&r, &y);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(two_of_a_round_go_ahead),
        PG_TEST(one_alone_goes_ahead_where_it_is_behind),
        PG_TEST(the_first_turn_after_an_acquisition_writes_the_row),
        PG_TEST(beside_a_birth),
        PG_TEST(a_turn_of_several_rows),
        PG_TEST(a_turn_of_several_events),
        PG_TEST(messages_come_beside_it),
        PG_TEST(suspended),
        PG_TEST(resumed_while_it_is_held),
        PG_TEST(given_up_by_its_lease_token),
        PG_TEST(released_by_its_lane),
        PG_TEST(of_an_owner_that_leaves),
        PG_TEST(of_an_owner_that_dies),
        PG_TEST(after_an_unknown_outcome),
        PG_TEST(a_step_that_has_ended_is_not_moved),
        PG_TEST(a_step_that_later_turns_leave_alone_is_moved),
        PG_TEST(a_step_of_the_row_is_moved_from_behind),
        PG_TEST(an_end_leaves_no_step),
        PG_TEST(an_end_that_leaves_its_step_running),
        PG_TEST(a_status_is_told_from_behind),
        PG_TEST(an_unusual_turn_finds_the_row_settled),
        PG_TEST(an_end_beside_a_step_that_stays),
        PG_TEST(rows_that_are_behind_are_written_beside_an_end),
    };
    PG_MAIN(tests);
}
