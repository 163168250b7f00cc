/*
 * test_sqlite_unborn.c: starts that their first turn writes.  Whoever looks at the rows cannot tell such an instance
 * from one that was written, fetched and then had its first turn; and a start whose turn is not written is not lost.
 *
 * Starts are called by threads of their own while the test has the lead, so that nobody writes them before the lane has
 * taken them.
 */
#include "sqlite_desk.h"

/* ---- the rows ---- */

static void goes_on(fixture *f, dur_turn_commit *turn) {
    (void)f;
    (void)turn;
}

static void sends(fixture *f, dur_turn_commit *turn, dur_message_row message) {
    dur_message_row *one = dur_arena_zalloc(f->arena, sizeof(*one));
    *one = message;
    turn->orchestrator_items = one;
    turn->orchestrator_item_count = 1;
}

static void sends_itself_a_timer(fixture *f, dur_turn_commit *turn) {
    sends(f, turn, own_message(f, DUR_WORK_TIMER_FIRED, 2000000));
}

static void sends_itself_a_timer_and_goes(fixture *f, dur_turn_commit *turn) {
    sends_itself_a_timer(f, turn);
    turn->keep_lease = false;
}

static void continues_as_new(fixture *f, dur_turn_commit *turn) {
    sends(f, turn, own_message(f, DUR_WORK_CONTINUE_AS_NEW, 0));
    turn->metadata.status = DUR_STATUS_CONTINUED_AS_NEW;
    turn->metadata.output = "next";
}

static void continues_as_new_elsewhere(fixture *f, dur_turn_commit *turn) {
    continues_as_new(f, turn);
    turn->keep_lease = false;
}

static void waits_for_anybody(fixture *f, dur_turn_commit *turn) {
    (void)f;
    turn->keep_lease = false;
}

static void waits_a_while(fixture *f, dur_turn_commit *turn) {
    sends_itself_a_timer(f, turn);
    turn->keep_lease = false;
    turn->delay_ms = 5000;
}

static void is_suspended(fixture *f, dur_turn_commit *turn) {
    (void)f;
    turn->set_suspended = true;
    turn->suspended = "why not";
}

static void starts_another(fixture *f, dur_turn_commit *turn) {
    sends(f, turn, start_of(f, "b"));
}

typedef void change(fixture *f, dur_turn_commit *turn);
static change *const changes[] = {
    goes_on,
    has_everything,
    ends_at_once,
    sends_itself_a_timer,
    sends_itself_a_timer_and_goes,
    continues_as_new,
    continues_as_new_elsewhere,
    waits_for_anybody,
    waits_a_while,
    is_suspended,
    starts_another,
};

/* Time stands still: the same turn at the same time writes the same. */
static void stop_time(fixture *f, dur_fake_world *world) {
    dur_provider_close(f->store);
    OK(f, dur_open_ex(&f->store, f->url, DUR_OPEN_OPTIONS(.world = dur_fake_world_get(world)), &f->err));
}

static char *by_the_usual_way(change *how, dur_fake_world *world, bool *kept) {
    fixture *f;
    bool existed;
    fixture_open((void **)&f);
    stop_time(f, world);
    desk d = desk_open(f);
    dur_message_row start = start_of(f, "a");
    OK(f, dur_store_enqueue_start(f->store, &start, DUR_EXISTS_FAIL, 0, &existed, &f->err));
    dur_round round = look(&d);
    assert_int_equal(round.item_count, 1);
    dur_turn_commit turn = first_turn(&round.items[0]);
    how(f, &turn);
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    *kept = turn.lease_kept;
    char *out = rows(f);
    desk_close(&d);
    fixture_close((void **)&f);
    return out;
}

static void rows_are_those_of_a_start_a_fetch_and_a_turn(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        dur_fake_world *world = dur_fake_world_new(1000000, 1);
        fixture *f;
        caller c = { .policy = DUR_EXISTS_FAIL };
        bool kept = false;
        char *usual = by_the_usual_way(changes[i], world, &kept);
        fixture_open((void **)&f);
        stop_time(f, world);
        desk d = desk_open(f);
        dur_orchestration_item item = take(&d, &c, "a");
        assert_int_equal(item.message_count, 1);
        assert_int_equal(item.messages[0].id, 0);
        assert_int_equal(item.messages[0].attempt_count, 1);
        assert_int_equal(item.acquisitions, 1);
        assert_string_equal(item.orchestration_name, "Test");
        assert_string_equal(item.version, "1.0.0");
        dur_turn_commit turn = born_turn(&item);
        changes[i](f, &turn);
        (void)commit(&d, &turn, 1);
        assert_int_equal(turn.fault, DUR_TURN_FINE);
        assert_int_equal(turn.lease_kept, kept);
        assert_true(turn.store_key != 0);
        assert_int_equal(answer_of(&c), DUR_OK);
        assert_false(c.existed);
        assert_rows(f, usual);
        OK(f, dur_provider_check(f->store, &f->err));
        free(usual);
        desk_close(&d);
        fixture_close((void **)&f);
        dur_fake_world_free(world);
    }
}

/* ---- the lease ---- */

static int writes;
static int count_write(unsigned what, void *data, void *statement, void *text) {
    (void)what;
    (void)data;
    (void)text;
    writes += !sqlite3_stmt_readonly(statement) && strstr(sqlite3_sql(statement), "dur_") != NULL;
    return 0;
}

static void a_born_turn_costs_one_commit_and_no_message(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a");
    dur_turn_commit turn = born_turn(&item);
    uint64_t before = file_of(f)->commits;
    sqlite3_trace_v2(file_of(f)->writer.db, SQLITE_TRACE_STMT, count_write, NULL);
    writes = 0;
    (void)commit(&d, &turn, 1);
    sqlite3_trace_v2(file_of(f)->writer.db, 0, NULL, NULL);
    assert_int_equal(writes, 3); /* the instance, two events */
    assert_int_equal(file_of(f)->commits, before + 1);
    assert_int_equal(answer_of(&c), DUR_OK);
    goes_on_from(&d, &turn, 2);
    desk_close(&d);
}

static void several_are_born_together_and_beside_others(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c[4] = { { .policy = DUR_EXISTS_FAIL }, { .policy = DUR_EXISTS_FAIL }, { .policy = DUR_EXISTS_FAIL } };
    static const char *const ids[] = { "a", "b", "c", "d" };
    dur_orchestration_item items[4];
    dur_turn_commit turns[4];
    lead(f);
    for (int i = 0; i < 3; i++)
        begin(f, &c[i], ids[i]);
    assert_int_equal(starts(&d, items, 2), 2); /* no more than asked for */
    assert_int_equal(starts(&d, items + 2, 2), 1);
    dur__sq_unlead(file_of(f));
    for (int i = 0; i < 3; i++) {
        assert_string_equal(items[i].instance, ids[i]); /* who came first goes first */
        turns[i] = born_turn(&items[i]);
    }
    starts_another(f, &turns[0]); /* "b": it is not born yet, and then it need not be */
    (void)commit(&d, turns, 3);
    assert_int_equal(turns[0].fault, DUR_TURN_FINE);
    assert_int_equal(turns[1].fault, DUR_TURN_LEASE_LOST);
    assert_int_equal(turns[2].fault, DUR_TURN_FINE);
    dur_store_lane_start_back(d.lane, items[1].lock_token);
    assert_int_equal(answer_of(&c[0]), DUR_OK);
    assert_int_equal(answer_of(&c[1]), DUR_EEXISTS);
    assert_int_equal(answer_of(&c[2]), DUR_OK);
    assert_int_equal(look(&d).item_count, 1); /* the "b" that was sent */
    (void)look(&d);
    items[3] = take(&d, &c[3], "d");
    turns[3] = born_turn(&items[3]);
    (void)commit(&d, &turns[3], 1);
    assert_int_equal(answer_of(&c[3]), DUR_OK);
    assert_true(turns[0].store_key != turns[2].store_key && turns[2].store_key != turns[3].store_key);
    goes_on_from(&d, &turns[0], 2);
    goes_on_from(&d, &turns[2], 2);
    goes_on_from(&d, &turns[3], 2);
    desk_close(&d);
}

static void a_message_in_the_same_transaction_reaches_the_lease(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    parked p = park(f, d.lane, "o1", "sender");
    (void)look(&d);
    dur_orchestration_item item = take(&d, &c, "a");
    dur_event_row event = { .event_id = 3, .json = text_of("{}") };
    dur__sq_lane *lane = (dur__sq_lane *)(void *)d.lane;
    atomic_store(&lane->signalled, false);
    dur_turn_commit turns[2] = { born_turn(&item), turn_of("sender", &p, &event, 1) };
    sends(f, &turns[1], raised_of(f, "a", "hello"));
    dur_round round = commit(&d, turns, 2);
    assert_int_equal(turns[0].fault, DUR_TURN_FINE);
    assert_int_equal(turns[1].fault, DUR_TURN_FINE);
    assert_int_equal(round.held_count, 0);
    assert_int_equal(answer_of(&c), DUR_OK);
    assert_true(atomic_load(&lane->signalled)); /* there is something to do */
    round = commit(&d, NULL, 0);
    assert_int_equal(round.held_count, 1);
    assert_string_equal(round.held[0].instance, "a");
    assert_string_equal(round.held[0].lock_token, turns[0].lock_token);
    /* left in the queue at the end of the lease it is a reason to fetch the instance */
    parked born = { .key = turns[0].store_key, .last = 2 };
    snprintf(born.token, sizeof born.token, "%s", turns[0].lock_token);
    dur_turn_commit last = turn_of("a", &born, &event, 1);
    last.keep_lease = false;
    (void)commit(&d, &last, 1);
    assert_int_equal(last.fault, DUR_TURN_FINE);
    round = look(&d);
    assert_int_equal(round.item_count, 1);
    assert_int_equal(round.items[0].message_count, 1);
    desk_close(&d);
}

static void a_timer_of_the_first_turn_fires(void **state) {
    fixture *f = *state;
    dur_fake_world *world = dur_fake_world_new(1000000, 1);
    stop_time(f, world);
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a");
    dur_turn_commit turn = born_turn(&item);
    sends_itself_a_timer(f, &turn);
    assert_int_equal(commit(&d, &turn, 1).held_count, 0);
    assert_int_equal(answer_of(&c), DUR_OK);
    assert_int_equal(look(&d).held_count, 0);
    dur_fake_world_advance(world, 1000000);
    dur_round round = look(&d);
    assert_int_equal(round.held_count, 1);
    assert_string_equal(round.held[0].lock_token, turn.lock_token);
    desk_close(&d);
    dur_provider_close(f->store);
    f->store = NULL;
    dur_fake_world_free(world);
}

static void an_owner_that_ends_leaves_the_newborn_to_others(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a");
    dur_turn_commit turn = born_turn(&item);
    (void)commit(&d, &turn, 1);
    assert_int_equal(answer_of(&c), DUR_OK);
    dur_message_row event = raised_of(f, "a", "x");
    OK(f, dur_store_enqueue_existing(f->store, &event, 0, &f->err));
    dur_store_lane_close(d.lane);
    OK(f, dur_store_owner_release(f->store, "o1", &f->err));
    d.lane = lane_make(f, "o1", d.waker);
    dur_round round = look(&d);
    assert_int_equal(round.item_count, 1);
    assert_int_equal(round.items[0].message_count, 1);
    assert_int_equal(round.items[0].history_count, 2);
    desk_close(&d);
}

/* ---- several of one call ---- */

typedef struct crowd {
    fixture *f;
    dur_message_row items[3];
    dur_start_request starts[3];
    atomic_bool back;
    int code;
    pthread_t thread;
} crowd;

static void *call_crowd(void *data) {
    crowd *c = data;
    c->code = dur_store_enqueue_starts(c->f->store, c->starts, 3, NULL);
    atomic_store(&c->back, true);
    return NULL;
}

/* Two are the lane's, the third is in the inbox. */
static void take_two(desk *d, crowd *c, const char *const ids[3], dur_orchestration_item taken[2]) {
    c->f = d->f;
    for (size_t i = 0; i < 3; i++) {
        c->items[i] = start_of(d->f, ids[i]);
        c->starts[i] = (dur_start_request){ .item = &c->items[i], .policy = DUR_EXISTS_FAIL };
    }
    lead(d->f);
    assert_int_equal(pthread_create(&c->thread, NULL, call_crowd, c), 0);
    while (waiting(d->f) < 3)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    assert_int_equal(starts(d, taken, 2), 2);
    dur__sq_unlead(file_of(d->f));
}

/* One is born, one is given back, one has the id of the first: the caller goes on when the last is answered. */
static void each_of_a_call_has_its_own_answer(void **state) {
    static const char *const ids[3] = { "a", "b", "a" };
    desk d = desk_open(*state);
    crowd c = { .code = -1 };
    dur_orchestration_item items[2];
    take_two(&d, &c, ids, items);
    dur_store_lane_start_back(d.lane, items[1].lock_token);
    assert_false(atomic_load(&c.back));
    dur_turn_commit turn = born_turn(&items[0]);
    (void)commit(&d, &turn, 1);
    /* The caller may have lost patience and written the third before the turn of the first: one of them has the id. */
    bool first = turn.fault == DUR_TURN_FINE;
    if (!first) dur_store_lane_start_back(d.lane, items[0].lock_token);
    pthread_join(c.thread, NULL);
    assert_int_equal(c.code, DUR_OK);
    assert_int_equal(c.starts[0].error.code, first ? DUR_OK : DUR_EEXISTS);
    assert_int_equal(c.starts[1].error.code, DUR_OK);
    assert_int_equal(c.starts[2].error.code, first ? DUR_EEXISTS : DUR_OK);
    desk_close(&d);
}

static void a_lane_that_closes_gives_all_of_a_call_back(void **state) {
    static const char *const ids[3] = { "a", "b", "c" };
    desk d = desk_open(*state);
    crowd c = { .code = -1 };
    dur_orchestration_item items[2];
    take_two(&d, &c, ids, items);
    dur_store_lane_close(d.lane);
    pthread_join(c.thread, NULL);
    assert_int_equal(c.code, DUR_OK);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(c.starts[i].error.code, DUR_OK);
    OK(d.f, dur_store_owner_release(d.f->store, "o1", &d.f->err));
    d.lane = lane_make(d.f, "o1", d.waker);
    assert_int_equal(look(&d).item_count, 3);
    desk_close(&d);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_a_start_a_fetch_and_a_turn),
        TEST(a_born_turn_costs_one_commit_and_no_message),
        TEST(several_are_born_together_and_beside_others),
        TEST(a_message_in_the_same_transaction_reaches_the_lease),
        TEST(a_timer_of_the_first_turn_fires),
        TEST(an_owner_that_ends_leaves_the_newborn_to_others),
        TEST(each_of_a_call_has_its_own_answer),
        TEST(a_lane_that_closes_gives_all_of_a_call_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
