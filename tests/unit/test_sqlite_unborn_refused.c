/*
 * test_sqlite_unborn_refused.c: starts that a lane does not get, gives back, or cannot write.
 */
#include "sqlite_desk.h"

/* ---- refused ---- */

static void an_id_that_exists_is_refused(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    (void)park(f, d.lane, "o1", "a");
    (void)look(&d);
    static const dur_exists_policy policies[] = { DUR_EXISTS_FAIL, DUR_EXISTS_RETURN, DUR_EXISTS_REPLACE_FINISHED };
    char *before = rows(f);
    for (int i = 0; i < 3; i++) {
        caller c = { .policy = policies[i] };
        dur_orchestration_item item = take(&d, &c, "a");
        dur_turn_commit turn = born_turn(&item);
        has_everything(f, &turn);
        (void)commit(&d, &turn, 1);
        assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
        assert_int_equal(turn.error.code, DUR_ELEASE);
        assert_false(turn.lease_kept);
        assert_false(turn.worker_items[0].locked);
        assert_rows(f, before);
        dur_store_lane_start_back(d.lane, item.lock_token);
        assert_int_equal(answer_of(&c), i == 1 ? DUR_OK : DUR_EEXISTS); /* "a" runs: it is not replaced */
        if (i == 1) assert_true(c.existed);
        assert_rows(f, before);
    }
    free(before);
    desk_close(&d);
}

static void one_that_has_ended_is_replaced(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller first = { .policy = DUR_EXISTS_FAIL }, second = { .policy = DUR_EXISTS_REPLACE_FINISHED };
    dur_orchestration_item item = take(&d, &first, "a");
    dur_turn_commit turn = born_turn(&item);
    ends_at_once(f, &turn);
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_false(turn.lease_kept);
    assert_int_equal(answer_of(&first), DUR_OK);
    assert_int_equal(status_of(f, "a"), DUR_STATUS_COMPLETED);
    assert_int_equal(look(&d).item_count, 0);
    item = take(&d, &second, "a");
    turn = born_turn(&item);
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    dur_store_lane_start_back(d.lane, item.lock_token);
    assert_int_equal(answer_of(&second), DUR_OK);
    dur_round round = look(&d);
    assert_int_equal(round.item_count, 1);
    assert_int_equal(round.items[0].history_count, 0);
    desk_close(&d);
}

static void a_token_of_nobodys_start_is_refused(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a");
    dur_turn_commit turn = born_turn(&item);
    turn.lock_token = "u77";
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    turn = born_turn(&item); /* not through its lane */
    OK(f, dur_store_commit_turns(f->store, &turn, 1, &f->err));
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    turn = born_turn(&item); /* somebody else's start */
    turn.instance = "b";
    (void)commit(&d, &turn, 1);
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
    assert_int_equal(answer_of(&c), DUR_OK);
    dur_store_lane_start_back(d.lane, item.lock_token); /* no harm */
    desk_close(&d);
}

/* ---- given back ---- */

static void what_is_given_back_is_written_and_fetched(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a"), again[1];
    lead(f);
    dur_store_lane_start_back(d.lane, item.lock_token);
    assert_int_equal(waiting(f), 1);
    assert_int_equal(starts(&d, again, 1), 0); /* once is enough */
    dur__sq_unlead(file_of(f));
    dur_turn_commit turn = born_turn(&item); /* too late */
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    assert_int_equal(answer_of(&c), DUR_OK);
    dur_round round = look(&d);
    assert_int_equal(round.item_count, 1);
    assert_string_equal(round.items[0].instance, "a");
    assert_int_equal(round.items[0].attempt_count, 1);
    assert_true(round.items[0].messages[0].id > 0);
    turn = first_turn(&round.items[0]);
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    desk_close(&d);
}

/* Whoever owns the lane, when the turn does not say. */
static void a_lease_has_an_owner(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a");
    dur_turn_commit turn = born_turn(&item);
    turn.owner = NULL;
    (void)commit(&d, &turn, 1);
    assert_int_equal(answer_of(&c), DUR_OK);
    char *now = rows(f);
    assert_non_null(strstr(now, " owner=o1 "));
    free(now);
    desk_close(&d);
}

static void a_lane_that_closes_gives_back(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c[2] = { { .policy = DUR_EXISTS_FAIL }, { .policy = DUR_EXISTS_FAIL } };
    (void)take(&d, &c[0], "a");
    (void)take(&d, &c[1], "b");
    dur_store_lane_close(d.lane);
    assert_int_equal(answer_of(&c[0]), DUR_OK);
    assert_int_equal(answer_of(&c[1]), DUR_OK);
    OK(f, dur_store_lane_open(f->store, &(dur_lane_options){ .owner = "o1", .waker = d.waker }, &d.lane, &f->err));
    assert_int_equal(look(&d).item_count, 2);
    desk_close(&d);
}

/* ---- not handed out ---- */

static void a_delayed_start_is_not_handed_out(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL, .delay_ms = DUR_HOURS(1) };
    dur_orchestration_item items[1];
    lead(f);
    begin(f, &c, "a");
    assert_int_equal(starts(&d, items, 1), 0);
    dur__sq_unlead(file_of(f));
    assert_int_equal(answer_of(&c), DUR_OK);
    assert_int_equal(look(&d).item_count, 0);
    desk_close(&d);
}

static void none_is_handed_out_while_others_wait(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c[2] = { { .policy = DUR_EXISTS_FAIL }, { .policy = DUR_EXISTS_FAIL } };
    dur_orchestration_item items[1];
    dur_message_row start = start_of(f, "first");
    OK(f, dur_store_enqueue_for_orchestrator(f->store, &start, 0, &f->err));
    (void)commit(&d, NULL, 0); /* a round that fetches nothing */
    lead(f);
    begin(f, &c[0], "a");
    assert_int_equal(starts(&d, items, 1), 0);
    dur__sq_unlead(file_of(f));
    assert_int_equal(answer_of(&c[0]), DUR_OK);
    assert_int_equal(look(&d).item_count, 2);
    (void)look(&d); /* nobody is left */
    (void)take(&d, &c[1], "b");
    desk_close(&d);
    assert_int_equal(answer_of(&c[1]), DUR_OK);
}

static void a_lane_of_nobody_is_given_none(void **state) {
    fixture *f = *state;
    desk d = { .f = f, .waker = dur_waker_new() };
    dur_orchestration_item items[1];
    caller c = { .policy = DUR_EXISTS_FAIL };
    OK(f, dur_store_lane_open(f->store, &(dur_lane_options){ .waker = d.waker }, &d.lane, &f->err));
    dur_fetch timed = { .lock_ms = 1000, .max = 8 };
    dur_round round = { .fetch = &timed };
    OK(f, dur_store_lane_round(d.lane, f->arena, &round, &f->err));
    lead(f);
    begin(f, &c, "a");
    assert_int_equal(starts(&d, items, 1), 0);
    dur__sq_unlead(file_of(f));
    assert_int_equal(answer_of(&c), DUR_OK);
    desk_close(&d);
}

/* ---- transactions that fail ---- */

static const dur_event_row twice[] = { { .event_id = 3, .json = { "{}", 2 } }, { .event_id = 3, .json = { "{}", 2 } } };

static void a_born_turn_survives_a_spoilt_transaction(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c[2] = { { .policy = DUR_EXISTS_FAIL }, { .policy = DUR_EXISTS_FAIL } };
    parked p = park(f, d.lane, "o1", "bad");
    (void)look(&d);
    dur_orchestration_item a = take(&d, &c[0], "a"), b = take(&d, &c[1], "b");
    dur_turn_commit turns[3] = { born_turn(&a), turn_of("bad", &p, twice, 2), born_turn(&b) };
    (void)commit(&d, turns, 3);
    assert_int_equal(turns[0].fault, DUR_TURN_FINE);
    assert_int_equal(turns[1].error.code, DUR_ECONFLICT);
    assert_int_equal(turns[2].fault, DUR_TURN_FINE);
    assert_int_equal(answer_of(&c[0]), DUR_OK);
    assert_int_equal(answer_of(&c[1]), DUR_OK);
    goes_on_from(&d, &turns[0], 2);
    goes_on_from(&d, &turns[2], 2);
    OK(f, dur_provider_check(f->store, &f->err));
    desk_close(&d);
}

static void a_born_turn_that_spoils_leaves_nothing(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c[2] = { { .policy = DUR_EXISTS_FAIL }, { .policy = DUR_EXISTS_FAIL } };
    dur_orchestration_item a = take(&d, &c[0], "a"), b = take(&d, &c[1], "b");
    dur_turn_commit turns[2] = { born_turn(&a), born_turn(&b) };
    turns[0].events = twice;
    (void)commit(&d, turns, 2);
    assert_int_equal(turns[0].fault, DUR_TURN_POSITION);
    assert_int_equal(turns[1].fault, DUR_TURN_FINE);
    assert_int_equal(answer_of(&c[1]), DUR_OK);
    goes_on_from(&d, &turns[1], 2);
    dur_instance_row row;
    assert_int_equal(dur_store_get_instance(f->store, f->arena, "a", &row, &f->err), DUR_ENOTFOUND);
    dur_store_lane_start_back(d.lane, a.lock_token);
    assert_int_equal(answer_of(&c[0]), DUR_OK);
    assert_int_equal(look(&d).item_count, 1);
    desk_close(&d);
}

static int refuse_commit(void *data) {
    (void)data;
    return 1;
}

static void a_failed_commit_leaves_nothing(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a");
    dur_turn_commit turn = born_turn(&item);
    dur_round round = { .turns = &turn, .turn_count = 1 };
    sqlite3_commit_hook(file_of(f)->writer.db, refuse_commit, NULL);
    assert_int_not_equal(dur_store_lane_round(d.lane, f->arena, &round, &f->err), DUR_OK);
    sqlite3_commit_hook(file_of(f)->writer.db, NULL, NULL);
    assert_int_equal(turn.fault, DUR_TURN_STORE);
    assert_true(turn.error.retryable);
    assert_rows(f, "");
    dur_store_lane_start_back(d.lane, item.lock_token);
    assert_int_equal(answer_of(&c), DUR_OK);
    assert_int_equal(look(&d).item_count, 1);
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
        TEST(an_id_that_exists_is_refused),
        TEST(one_that_has_ended_is_replaced),
        TEST(a_token_of_nobodys_start_is_refused),
        TEST(what_is_given_back_is_written_and_fetched),
        TEST(a_lease_has_an_owner),
        TEST(a_lane_that_closes_gives_back),
        TEST(a_delayed_start_is_not_handed_out),
        TEST(none_is_handed_out_while_others_wait),
        TEST(a_lane_of_nobody_is_given_none),
        TEST(a_born_turn_survives_a_spoilt_transaction),
        TEST(a_born_turn_that_spoils_leaves_nothing),
        TEST(a_failed_commit_leaves_nothing),
        TEST(a_start_hears_of_a_store_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
