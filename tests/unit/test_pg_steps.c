/*
 * test_pg_steps.c: work that stands in its instance's row, and what becomes of it when it is needed elsewhere.
 */
#include "pg_steps.h"

/* The turn behind event `last`: it takes what was done (NULL: nothing) and makes what is next (NULL: nothing). */
static void turn(rig *r, const dur_orchestration_item *item, uint64_t last, const dur_turn_work *done,
                 dur_turn_work *next) {
    dur_event_row event = event_of(last + 1);
    dur_worker_claim claim;
    dur_turn_commit commit = turn_of(item, &event, last);
    if (done != NULL) {
        claim = claim_of(item->instance, done);
        commit.worker_consumed = &claim;
        commit.worker_consumed_count = 1;
    }
    commit.worker_items = next;
    commit.worker_item_count = next != NULL;
    (void)run(r, &commit, 1, NULL);
    if (next != NULL) assert_true(next->locked);
}

static long steps(const rig *r) {
    return count(r, "instances", "step_id IS NOT NULL");
}

/* An instance whose step stands in its row. */
static dur_orchestration_item stepping(rig *r, const char *instance, dur_turn_work *work) {
    dur_orchestration_item item = begun(r, instance);
    *work = work_of(instance, 2, "w");
    turn(r, &item, 1, NULL, work);
    assert_int_equal(steps(r), 1);
    assert_int_equal(count(r, "worker", "true"), 0);
    return item;
}

#define MOVED "activity_id = 2 AND execution_id = 1 AND attempts = 1 AND json = '{\"work\":1}'"

/* ---- in the row -------------------------------------------------------------------------------------------------- */

static void one_after_the_other(void **state) {
    rig r = rig_open(*state);
    dur_turn_work first, second = work_of("x", 3, "v");
    dur_orchestration_item item = stepping(&r, "x", &first);
    turn(&r, &item, 2, &first, &second);
    assert_int_equal(count(&r, "instances", "step_token = 'v' AND step_json = '{\"work\":1}'"), 1);
    turn(&r, &item, 3, &second, NULL);
    assert_int_equal(steps(&r), 0);
    assert_int_equal(count(&r, "worker", "true"), 0);
    rig_close(&r);
}

/* Several instances in one round; one of them ends. */
static void many_in_a_round(void **state) {
    rig r = rig_open(*state);
    static const char *const names[] = { "a", "b", "c" };
    dur_orchestration_item items[3];
    dur_turn_work first[3], second[3];
    dur_worker_claim claims[3];
    dur_event_row events[3];
    dur_turn_commit turns[3];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < 3; i++) {
            dur_turn_work *work = round == 0 ? &first[i] : &second[i];
            if (round == 0) items[i] = begun(&r, names[i]);
            events[i] = event_of(2 + (uint64_t)round);
            turns[i] = turn_of(&items[i], &events[i], 1 + (uint64_t)round);
            *work = work_of(names[i], 2 + (uint64_t)round, names[i]);
            if (round == 1) {
                claims[i] = claim_of(names[i], &first[i]);
                turns[i].worker_consumed = &claims[i];
                turns[i].worker_consumed_count = 1;
            }
            if (round == 0 || i < 2) {
                turns[i].worker_items = work;
                turns[i].worker_item_count = 1;
            } else {
                turns[i].keep_lease = false;
                turns[i].metadata.status = DUR_STATUS_COMPLETED;
            }
        }
        (void)run(&r, turns, 3, NULL);
    }
    assert_int_equal(steps(&r), 2);
    assert_int_equal(count(&r, "instances", "-step_id & 255 = 3 AND token IS NOT NULL"), 2);
    assert_int_equal(count(&r, "instances", "instance_id = 'c' AND owner IS NULL"), 1);
    assert_int_equal(count(&r, "worker", "true"), 0);
    rig_close(&r);
}

/* A turn that does not end the step leaves it where it is; more work is a row. */
static void beside_it(void **state) {
    rig r = rig_open(*state);
    dur_turn_work first, second = work_of("x", 4, "v"), third = work_of("x", 6, "u");
    dur_orchestration_item item = stepping(&r, "x", &first);
    turn(&r, &item, 2, NULL, NULL);
    turn(&r, &item, 3, NULL, &second);
    assert_int_equal(count(&r, "instances", "step_token = 'w'"), 1);
    assert_int_equal(count(&r, "worker", "token = 'v'"), 1);
    turn(&r, &item, 4, &second, NULL);
    assert_int_equal(count(&r, "worker", "true"), 0);
    turn(&r, &item, 5, &first, &third);
    assert_int_equal(count(&r, "instances", "step_token = 'u'"), 1);
    rig_close(&r);
}

static void cancelled(void **state) {
    rig r = rig_open(*state);
    for (int by_id = 0; by_id < 2; by_id++) {
        const char *name = by_id ? "x" : "y";
        dur_turn_work work;
        dur_orchestration_item item = stepping(&r, name, &work);
        dur_activity_ref ref = { .execution_id = 1, .activity_id = 2, .row_id = by_id ? work.row_id : 0 };
        dur_event_row event = event_of(3);
        dur_turn_commit commit = turn_of(&item, &event, 2);
        commit.cancelled = &ref;
        commit.cancelled_count = 1;
        (void)run(&r, &commit, 1, NULL);
        assert_int_equal(steps(&r), 0);
        dur_worker_claim claim = claim_of(name, &work);
        bool lost = false;
        ASSERT_OK(&r.p->b, dur_store_check_works(r.p->b.store, &claim, 1, 0, &lost, &r.p->b.err));
        assert_true(lost);
    }
    rig_close(&r);
}

/* What would make the row large, or must be found by something else than its instance, is a row of its own. */
static void not_in_the_row(void **state) {
    rig r = rig_open(*state);
    char *large = dur_arena_zalloc(r.p->b.arena, 2000);
    memset(large, ' ', 1999);
    large[0] = '{', large[1998] = '}';
    dur_turn_work works[3] = { work_of("x", 2, "w"), work_of("x", 3, "v"), work_of("x", 4, "u") };
    works[0].message.json = (dur_text){ large, 1999 };
    works[1].message.tag = "gpu";
    dur_orchestration_item item = begun(&r, "x");
    turn(&r, &item, 1, NULL, &works[0]);
    turn(&r, &item, 2, &works[0], &works[1]);
    assert_int_equal(steps(&r), 0);
    assert_int_equal(count(&r, "worker", "tag = 'gpu'"), 1);
    turn(&r, &item, 3, &works[1], &works[2]);
    assert_int_equal(steps(&r), 1);
    assert_int_equal(count(&r, "worker", "true"), 0);
    rig_close(&r);
}

/* ---- moved ------------------------------------------------------------------------------------------------------- */

/* An end that leaves it running: it is work like any other, and who runs it is heard. */
static void outlives_its_instance(void **state) {
    rig r = rig_open(*state);
    dur_turn_work work;
    dur_orchestration_item item = stepping(&r, "x", &work);
    dur_event_row event = event_of(3);
    dur_turn_commit end = turn_of(&item, &event, 2);
    end.keep_lease = false;
    end.metadata.status = DUR_STATUS_COMPLETED;
    (void)run(&r, &end, 1, NULL);
    assert_int_equal(steps(&r), 0);
    assert_int_equal(count(&r, "worker", MOVED " AND token = 'w' AND owner = 'o'"), 1);
    dur_message completion = message_of(DUR_WORK_ACTIVITY_COMPLETED, "x");
    dur_work_ack ack = { .ref = claim_of("x", &work).ref, .lock_token = "w", .completion = &completion };
    ASSERT_OK(&r.p->b, dur_store_ack_works(r.p->b.store, &ack, 1, &r.p->b.err));
    assert_int_equal(ack.error.code, DUR_OK);
    assert_int_equal(count(&r, "worker", "true"), 0);
    rig_close(&r);
}

/* With its owner's leases it is free; crash_nodes has those that died. */
static void of_an_owner_that_leaves(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_turn_work work;
    (void)stepping(&r, "x", &work);
    rig_close(&r);
    ASSERT_OK(b, dur_store_owner_release(b->store, "o", &b->err));
    assert_int_equal(steps(&r), 0);
    assert_int_equal(count(&r, "worker", "activity_id = 2 AND owner IS NULL AND token IS NULL AND attempts = 0"), 1);
    dur_leased_work got;
    size_t found = 0;
    dur_work_fetch how = { .lock_ms = 60000, .max = 1 };
    ASSERT_OK(b, dur_store_fetch_works(b->store, b->arena, &how, &got, &found, &b->err));
    assert_int_equal(found, 1);
    assert_int_equal(got.ref.activity_id, 2);
    assert_int_equal(got.ref.row_id, work.row_id);
    assert_int_equal(got.json.size, 10);
}

/* By whoever ends its lease from outside, and goes on being claimed by who runs it. */
static void suspended(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_turn_work work;
    (void)stepping(&r, "x", &work);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "x", "wait", &b->err));
    assert_int_equal(steps(&r), 0);
    assert_int_equal(count(&r, "worker", MOVED " AND token = 'w' AND owner = 'o'"), 1);
    dur_worker_claim claim = claim_of("x", &work);
    bool lost = true;
    ASSERT_OK(b, dur_store_check_works(b->store, &claim, 1, 0, &lost, &b->err));
    assert_false(lost);
    rig_close(&r);
}

static void given_up_by_its_lease_token(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_turn_work work;
    dur_orchestration_item item = stepping(&r, "x", &work);
    ASSERT_OK(b, dur_store_abandon_orchestration_item(b->store, item.lock_token, 0, false, &b->err));
    assert_int_equal(steps(&r), 0);
    assert_int_equal(count(&r, "worker", MOVED " AND token = 'w' AND owner = 'o'"), 1);
    rig_close(&r);
}

static void deleted(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    const char *id = "x";
    dur_turn_work work;
    dur_delete_result gone;
    (void)stepping(&r, id, &work);
    ASSERT_OK(b, dur_store_delete_instances(b->store, &id, 1, true, &gone, &b->err));
    assert_int_equal(gone.queue_messages, 1);
    assert_int_equal(count(&r, "worker", "true"), 0);
    rig_close(&r);
}

/* By the token alone, as whoever fetched work may speak of it. */
static void by_its_token(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_turn_work work;
    dur_message completion = message_of(DUR_WORK_ACTIVITY_COMPLETED, "a");
    (void)stepping(&r, "a", &work);
    ASSERT_OK(b, dur_store_renew_work_item_lock(b->store, "w", 1000, &b->err));
    ASSERT_OK(b, dur_store_ack_work_item(b->store, "w", &completion, &b->err));
    assert_int_equal(count(&r, "queue", "instance_id = 'a'"), 1);
    (void)stepping(&r, "b", &work);
    ASSERT_OK(b, dur_store_ack_work_item(b->store, "w", NULL, &b->err));
    (void)stepping(&r, "c", &work);
    ASSERT_OK(b, dur_store_dead_letter_work(b->store, "w", "why", &b->err));
    assert_int_equal(count(&r, "dead_letters", "instance_id = 'c' AND json = '{\"work\":1}'"), 1);
    (void)stepping(&r, "d", &work);
    ASSERT_OK(b, dur_store_abandon_work_item(b->store, "w", 0, true, &b->err));
    assert_int_equal(count(&r, "worker", "instance_id = 'd' AND owner IS NULL AND attempts = 0"), 1);
    assert_int_equal(dur_store_ack_work_item(b->store, "w", NULL, &b->err), DUR_ELEASE);
    rig_close(&r);
}

/* Behind the lane's back: its next turn finds the row that it does not expect. */
static void returned_from_elsewhere(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    for (size_t taken = 0; taken < 2; taken++) {
        const char *name = taken ? "x" : "y";
        dur_turn_work work, next = work_of(name, 3, "v");
        dur_orchestration_item item = stepping(&r, name, &work);
        dur_worker_claim claim = claim_of(name, &work);
        ASSERT_OK(b, dur_store_return_works(b->store, &claim, 1, &b->err));
        assert_int_equal(steps(&r), 0);
        assert_int_equal(count(&r, "worker", "owner IS NULL AND attempts = 0"), 1);
        dur_event_row event = event_of(3);
        dur_turn_commit commit = turn_of(&item, &event, 2);
        commit.worker_consumed = &claim;
        commit.worker_consumed_count = taken;
        commit.worker_items = &next;
        commit.worker_item_count = 1;
        dur_round round = { .turns = &commit, .turn_count = 1 };
        ASSERT_OK(b, dur_store_lane_round(r.lane, b->arena, &round, &b->err));
        assert_int_equal(commit.fault, taken ? DUR_TURN_WORK_LOST : DUR_TURN_FINE);
        pg_do(r.p->db, dur_arena_format(b->arena, "DELETE FROM %s.dur_worker", r.p->schema));
    }
    rig_close(&r);
}

/* Where the answer to its turn was lost, whoever runs it knows its token and its instance, or only the token. */
static void without_its_id(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_turn_work work;
    dur_orchestration_item item = stepping(&r, "x", &work);
    dur_worker_claim claims[3] = { { .ref = { .instance = "x" }, .lock_token = "w" },
                                   { .lock_token = "w" },
                                   { .ref = { .instance = "x" }, .lock_token = "v" } };
    bool lost[3] = { true, true, false };
    ASSERT_OK(b, dur_store_check_works(b->store, claims, 3, 0, lost, &b->err));
    assert_false(lost[0]);
    assert_false(lost[1]);
    assert_true(lost[2]);
    dur_turn_work nameless = work; /* a claim without a token is nobody's */
    nameless.lock_token = NULL;
    dur_worker_claim claim = claim_of("x", &nameless);
    dur_event_row event = event_of(3);
    dur_turn_commit commit = turn_of(&item, &event, 2);
    commit.worker_consumed = &claim;
    commit.worker_consumed_count = 1;
    dur_round round = { .turns = &commit, .turn_count = 1 };
    ASSERT_OK(b, dur_store_lane_round(r.lane, b->arena, &round, &b->err));
    assert_int_equal(commit.fault, DUR_TURN_WORK_LOST);
    work.row_id = 0;
    turn(&r, &item, 2, &work, NULL);
    assert_int_equal(steps(&r), 0);
    (void)stepping(&r, "y", &work);
    dur_work_ack ack = { .ref = { .instance = "y" }, .lock_token = "w" };
    ASSERT_OK(b, dur_store_ack_works(b->store, &ack, 1, &b->err));
    assert_int_equal(ack.error.code, DUR_OK);
    (void)stepping(&r, "z", &work);
    dur_worker_claim given = { .ref = { .instance = "z" }, .lock_token = "w" };
    ASSERT_OK(b, dur_store_return_works(b->store, &given, 1, &b->err));
    assert_int_equal(count(&r, "worker", "instance_id = 'z' AND owner IS NULL"), 1);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(one_after_the_other),
        PG_TEST(many_in_a_round),
        PG_TEST(beside_it),
        PG_TEST(cancelled),
        PG_TEST(not_in_the_row),
        PG_TEST(outlives_its_instance),
        PG_TEST(of_an_owner_that_leaves),
        PG_TEST(suspended),
        PG_TEST(given_up_by_its_lease_token),
        PG_TEST(deleted),
        PG_TEST(by_its_token),
        PG_TEST(returned_from_elsewhere),
        PG_TEST(without_its_id),
    };
    PG_MAIN(tests);
}
