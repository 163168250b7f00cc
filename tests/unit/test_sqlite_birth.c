/*
 * test_sqlite_birth.c: turns that write their start.  Whoever looks at the rows cannot tell such an instance from one
 * that was written, fetched and then had its first turn; and a turn that is refused leaves nothing.
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
        bool kept = false;
        char *usual = by_the_usual_way(changes[i], world, &kept);
        fixture_open((void **)&f);
        stop_time(f, world);
        desk d = desk_open(f);
        dur_orchestration_item item = take(&d, "a");
        dur_turn_commit turn = born_turn(&item);
        changes[i](f, &turn);
        (void)commit(&d, &turn, 1);
        assert_int_equal(turn.fault, DUR_TURN_FINE);
        assert_int_equal(turn.lease_kept, kept);
        assert_true(turn.store_key != 0);
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
    dur_orchestration_item item = take(&d, "a");
    dur_turn_commit turn = born_turn(&item);
    uint64_t before = file_of(f)->commits;
    sqlite3_trace_v2(file_of(f)->writer.db, SQLITE_TRACE_STMT, count_write, NULL);
    writes = 0;
    (void)commit(&d, &turn, 1);
    sqlite3_trace_v2(file_of(f)->writer.db, 0, NULL, NULL);
    assert_int_equal(writes, 3); /* the instance, two events */
    assert_int_equal(file_of(f)->commits, before + 1);
    goes_on_from(&d, &turn, 2);
    desk_close(&d);
}

static void several_are_born_together_and_beside_others(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    static const char *const ids[] = { "a", "b", "c", "d" };
    dur_orchestration_item items[4];
    dur_turn_commit turns[4];
    for (int i = 0; i < 3; i++) {
        items[i] = take(&d, ids[i]);
        turns[i] = born_turn(&items[i]);
    }
    starts_another(f, &turns[0]); /* "b": it is not born yet, and then it need not be */
    (void)commit(&d, turns, 3);
    assert_int_equal(turns[0].fault, DUR_TURN_FINE);
    assert_int_equal(turns[1].fault, DUR_TURN_LEASE_LOST);
    assert_int_equal(turns[2].fault, DUR_TURN_FINE);
    assert_int_equal(look(&d).item_count, 1); /* the "b" that was sent */
    (void)look(&d);
    items[3] = take(&d, "d");
    turns[3] = born_turn(&items[3]);
    (void)commit(&d, &turns[3], 1);
    assert_true(turns[0].store_key != turns[2].store_key && turns[2].store_key != turns[3].store_key);
    goes_on_from(&d, &turns[0], 2);
    goes_on_from(&d, &turns[2], 2);
    goes_on_from(&d, &turns[3], 2);
    desk_close(&d);
}

static void a_message_in_the_same_transaction_reaches_the_lease(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    parked p = park(f, d.lane, "o1", "sender");
    (void)look(&d);
    dur_orchestration_item item = take(&d, "a");
    dur_event_row event = { .event_id = 3, .json = text_of("{}") };
    dur__sq_lane *lane = (dur__sq_lane *)(void *)d.lane;
    atomic_store(&lane->signalled, false);
    dur_turn_commit turns[2] = { born_turn(&item), turn_of("sender", &p, &event, 1) };
    sends(f, &turns[1], raised_of(f, "a", "hello"));
    dur_round round = commit(&d, turns, 2);
    assert_int_equal(turns[0].fault, DUR_TURN_FINE);
    assert_int_equal(turns[1].fault, DUR_TURN_FINE);
    assert_int_equal(round.held_count, 0);
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
    dur_orchestration_item item = take(&d, "a");
    dur_turn_commit turn = born_turn(&item);
    sends_itself_a_timer(f, &turn);
    assert_int_equal(commit(&d, &turn, 1).held_count, 0);
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
    dur_orchestration_item item = take(&d, "a");
    dur_turn_commit turn = born_turn(&item);
    (void)commit(&d, &turn, 1);
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

/* ---- refused ---- */

static void an_id_that_exists_is_refused(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    (void)park(f, d.lane, "o1", "a");
    (void)look(&d);
    char *before = rows(f);
    dur_orchestration_item item = take(&d, "a");
    dur_turn_commit turn = born_turn(&item);
    has_everything(f, &turn);
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    assert_int_equal(turn.error.code, DUR_ELEASE);
    assert_false(turn.lease_kept);
    assert_false(turn.worker_items[0].locked);
    assert_rows(f, before);
    free(before);
    desk_close(&d);
}

static void one_that_has_ended_is_refused_too(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    dur_orchestration_item item = take(&d, "a");
    dur_turn_commit turn = born_turn(&item);
    ends_at_once(f, &turn);
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_false(turn.lease_kept);
    assert_int_equal(status_of(f, "a"), DUR_STATUS_COMPLETED);
    assert_int_equal(look(&d).item_count, 0);
    item = take(&d, "a");
    turn = born_turn(&item);
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    assert_int_equal(look(&d).item_count, 0);
    desk_close(&d);
}

static void only_a_lane_makes_one(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    dur_orchestration_item item = take(&d, "a");
    dur_turn_commit turn = born_turn(&item);
    OK(f, dur_store_commit_turns(f->store, &turn, 1, &f->err));
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    dur_event_row zero = { .event_id = 0, .json = text_of("{}") };
    turn = born_turn(&item);
    turn.events = &zero;
    turn.event_count = 1;
    dur_round round = { .turns = &turn, .turn_count = 1 };
    assert_int_equal(dur_store_lane_round(d.lane, f->arena, &round, &f->err), DUR_EINVAL);
    assert_int_equal(turn.error.code, DUR_EINVAL);
    assert_rows(f, "");
    turn = born_turn(&item);
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    desk_close(&d);
}

/* Whoever owns the lane, when the turn does not say. */
static void a_lease_has_an_owner(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    dur_orchestration_item item = take(&d, "a");
    dur_turn_commit turn = born_turn(&item);
    turn.owner = NULL;
    (void)commit(&d, &turn, 1);
    char *now = rows(f);
    assert_non_null(strstr(now, " owner=o1 "));
    free(now);
    desk_close(&d);
}

/* ---- transactions that fail ---- */

static const dur_event_row twice[] = { { .event_id = 3, .json = { "{}", 2 } }, { .event_id = 3, .json = { "{}", 2 } } };

static void a_born_turn_survives_a_spoilt_transaction(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    parked p = park(f, d.lane, "o1", "bad");
    (void)look(&d);
    dur_orchestration_item a = take(&d, "a"), b = take(&d, "b");
    dur_turn_commit turns[3] = { born_turn(&a), turn_of("bad", &p, twice, 2), born_turn(&b) };
    (void)commit(&d, turns, 3);
    assert_int_equal(turns[0].fault, DUR_TURN_FINE);
    assert_int_equal(turns[1].error.code, DUR_ECONFLICT);
    assert_int_equal(turns[2].fault, DUR_TURN_FINE);
    goes_on_from(&d, &turns[0], 2);
    goes_on_from(&d, &turns[2], 2);
    OK(f, dur_provider_check(f->store, &f->err));
    desk_close(&d);
}

static void a_born_turn_that_spoils_leaves_nothing(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    dur_orchestration_item a = take(&d, "a"), b = take(&d, "b");
    dur_turn_commit turns[2] = { born_turn(&a), born_turn(&b) };
    turns[0].events = twice;
    (void)commit(&d, turns, 2);
    assert_int_equal(turns[0].fault, DUR_TURN_POSITION);
    assert_int_equal(turns[1].fault, DUR_TURN_FINE);
    goes_on_from(&d, &turns[1], 2);
    dur_instance_row row;
    assert_int_equal(dur_store_get_instance(f->store, f->arena, "a", &row, &f->err), DUR_ENOTFOUND);
    desk_close(&d);
}

static int refuse_commit(void *data) {
    (void)data;
    return 1;
}

static void a_failed_commit_leaves_nothing(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    dur_orchestration_item item = take(&d, "a");
    dur_turn_commit turn = born_turn(&item);
    dur_round round = { .turns = &turn, .turn_count = 1 };
    sqlite3_commit_hook(file_of(f)->writer.db, refuse_commit, NULL);
    assert_int_not_equal(dur_store_lane_round(d.lane, f->arena, &round, &f->err), DUR_OK);
    sqlite3_commit_hook(file_of(f)->writer.db, NULL, NULL);
    assert_int_equal(turn.fault, DUR_TURN_STORE);
    assert_true(turn.error.retryable);
    assert_rows(f, "");
    assert_int_equal(look(&d).item_count, 0);
    desk_close(&d);
}

/* ---- a runtime on a file that cannot be written ---- */

static dur_outcome at_once(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}

static void set_hook(fixture *f, int (*hook)(void *)) {
    lead(f);
    sqlite3_commit_hook(file_of(f)->writer.db, hook, NULL);
    dur__sq_unlead(file_of(f));
}

/* Whoever starts is told; nobody waits until the file can be written again. */
static void a_start_hears_of_a_store_that_fails(void **state) {
    fixture *f = *state;
    const dur_handler handlers[] = { DUR_ORCHESTRATION("AtOnce", "1.0.0", at_once), DUR_HANDLERS_END };
    dur_runtime *runtime = NULL;
    dur_client *client = NULL;
    char *result = NULL;
    OK(f, dur_client_new(&client, f->store, &f->err));
    OK(f, dur_runtime_start(&runtime, DUR_RUNTIME(.store = f->store, .handlers = handlers), &f->err));
    OK(f, dur_client_start(client, &f->err, "AtOnce", "1", .instance = "before"));
    OK(f, dur_client_result(&result, client, "before", DUR_SECONDS(60), &f->err));
    dur_free(result);
    set_hook(f, refuse_commit);
    for (int i = 0; i < 5; i++) {
        assert_int_not_equal(dur_client_start(client, &f->err, "AtOnce", "2", .instance = "meanwhile"), DUR_OK);
        assert_true(f->err.retryable);
    }
    set_hook(f, NULL);
    OK(f, dur_client_start(client, &f->err, "AtOnce", "3", .instance = "meanwhile"));
    OK(f, dur_client_result(&result, client, "meanwhile", DUR_SECONDS(60), &f->err));
    assert_string_equal(result, "3");
    dur_free(result);
    OK(f, dur_runtime_stop(runtime, DUR_SECONDS(60), &f->err));
    dur_client_free(client);
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
        TEST(an_id_that_exists_is_refused),
        TEST(one_that_has_ended_is_refused_too),
        TEST(only_a_lane_makes_one),
        TEST(a_lease_has_an_owner),
        TEST(a_born_turn_survives_a_spoilt_transaction),
        TEST(a_born_turn_that_spoils_leaves_nothing),
        TEST(a_failed_commit_leaves_nothing),
        TEST(a_start_hears_of_a_store_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
