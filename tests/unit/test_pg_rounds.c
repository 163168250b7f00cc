/*
 * test_pg_rounds.c: rounds of the PostgreSQL store: starts that they fetch, what they say without looking, and who is
 * told.
 */
#include "pg_rig.h"

#include <pthread.h>

#define PATIENCE_MS 60000u

typedef struct caller {
    rig *r;
    dur_message_row start;
    int code;
    bool existed;
    pthread_t thread;
} caller;

static void *call(void *arg) {
    caller *c = arg;
    dur_error err = DUR_ERROR_INIT;
    c->code = dur_store_enqueue_start(c->r->p->b.store, &c->start, DUR_EXISTS_FAIL, 0, &c->existed, &err);
    return NULL;
}

/* Write these starts from threads of their own, and run rounds until as many were fetched as can be. */
static void start_all(rig *r, caller *callers, size_t callers_count, dur_orchestration_item *items, size_t expected) {
    uint64_t end_ms = pg_monotonic_ms() + PATIENCE_MS;
    size_t got = 0;
    for (size_t i = 0; i < callers_count; i++) {
        callers[i].r = r;
        pthread_create(&callers[i].thread, NULL, call, &callers[i]);
    }
    while (got < expected && pg_monotonic_ms() < end_ms) {
        dur_round round = run(r, NULL, 0, &fresh);
        for (size_t i = 0; i < round.item_count; i++)
            items[got++] = round.items[i];
    }
    assert_int_equal(got, expected);
    for (size_t i = 0; i < callers_count; i++)
        pthread_join(callers[i].thread, NULL);
}

static dur_orchestration_item started(rig *r, const char *instance) {
    dur_orchestration_item item;
    caller one = { .start = start_of(&r->p->b, instance) };
    start_all(r, &one, 1, &item, 1);
    assert_int_equal(one.code, DUR_OK);
    return item;
}

static void finish(rig *r, const dur_orchestration_item *item, uint64_t expected) {
    dur_event_row event = event_of(expected + 1);
    dur_turn_commit turn = turn_of(item, &event, expected);
    turn.keep_lease = false;
    turn.metadata.status = DUR_STATUS_COMPLETED;
    turn.metadata.output = "done";
    (void)run(r, &turn, 1, NULL);
}

/* ---- starts ------------------------------------------------------------------------------------------------------ */

static void a_start_is_fetched_and_begun(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = started(&r, "x");
    assert_string_equal(item.instance, "x");
    assert_int_equal(item.acquisitions, 1);
    assert_int_equal(item.message_count, 1);
    assert_int_equal(item.messages[0].attempt_count, 1);
    char mine[256];
    snprintf(mine, sizeof(mine), "owner = 'o' AND acquisitions = 1 AND known AND token = '%s'", item.lock_token);
    assert_int_equal(count(&r, "instances", mine), 1);
    assert_int_equal(count(&r, "queue", "delivered <> 0 AND attempts = 1"), 1);
    begin(&r, &item);
    assert_int_equal(count(&r, "instances", "owner = 'o' AND acquisitions = 0 AND has_history"), 1);
    assert_int_equal(count(&r, "queue", "true"), 0);
    finish(&r, &item, 1);
    assert_int_equal(count(&r, "instances", "owner IS NULL AND token IS NULL AND ready_at IS NULL AND status = 2"), 1);
    assert_int_equal(count(&r, "instances", "status = 2 AND output = 'done' AND completed_at > 0"), 1);
    rig_close(&r);
}

static void of_two_starts_of_one_id_one_is_refused(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    caller callers[3] = { { .start = start_of(b, "x") }, { .start = start_of(b, "x") }, { .start = start_of(b, "y") } };
    dur_orchestration_item items[8];
    start_all(&r, callers, 3, items, 2);
    assert_int_equal((callers[0].code == DUR_OK) + (callers[1].code == DUR_OK), 1);
    assert_int_equal((callers[0].code == DUR_EEXISTS) + (callers[1].code == DUR_EEXISTS), 1);
    assert_int_equal(callers[2].code, DUR_OK);
    assert_int_equal(count(&r, "queue", "true"), 2);
    rig_close(&r);
}

/* What comes before the last turn and was never given is a reason to look at the instance after its end. */
static void a_message_before_the_end_is_not_forgotten(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = started(&r, "x");
    begin(&r, &item);
    dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, "x");
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &event, 0, &b->err));
    /* in one transaction with the end: the round's own look comes after the lease is gone */
    finish(&r, &item, 1);
    assert_int_equal(count(&r, "instances", "token IS NULL AND ready_at > 0 AND ready_due = 0"), 1);
    dur_round round = run(&r, NULL, 0, &fresh);
    assert_int_equal(round.item_count, 1);
    assert_int_equal(round.items[0].message_count, 1);
    rig_close(&r);
}

/* ---- usual turns: those that begin, go on and are over in one round -----------------------------------------------
 */

static void one_round_begins_goes_on_and_ends(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item a = started(&r, "a"), b = started(&r, "b"), c = started(&r, "c");
    begin(&r, &b);
    begin(&r, &c);
    dur_event_row first = event_of(1), second = event_of(2), last = event_of(2);
    second.kind = DUR_EVENT_CUSTOM_STATUS_UPDATED;
    second.value = "half";
    dur_turn_commit turns[3] = { turn_of(&c, &last, 1), turn_of(&b, &second, 1), turn_of(&a, &first, 0) };
    turns[0].keep_lease = false;
    turns[0].metadata.status = DUR_STATUS_COMPLETED;
    turns[2].consumed = &a.messages[0].id;
    turns[2].consumed_count = 1;
    turns[2].metadata = (dur_execution_metadata){ .orchestration_name = "N",
                                                  .orchestration_version = "2.0.0",
                                                  .parent_instance_id = "p",
                                                  .has_pinned_version = true,
                                                  .pinned_version = { 1, 2, 3 } };
    (void)run(&r, turns, 3, NULL);
    assert_int_equal(count(&r, "instances",
                           "instance_id = 'a' AND name = 'N' AND version = '2.0.0' AND parent = 'p' AND pin = '{1,2,3}'"
                           " AND has_row AND has_history AND created_at > 0 AND current_execution = 1 AND owner = 'o' "
                           "AND acquisitions = 0"),
                     1);
    assert_int_equal(count(&r, "instances",
                           "instance_id = 'b' AND custom_status = 'half' AND custom_status_version = 1 AND name = "
                           "'Flow' AND parent IS NULL AND pin IS NULL AND token IS NOT NULL"),
                     1);
    assert_int_equal(count(&r, "instances",
                           "instance_id = 'c' AND token IS NULL AND owner IS NULL AND holder IS NULL AND ready_at IS"
                           " NULL AND custom_status_version = 0"),
                     1);
    /* The lease and the position are compared: an answer each, and nothing of the others is lost. */
    dur_event_row third = event_of(3), again = event_of(2);
    dur_turn_commit late[2] = { turn_of(&b, &third, 2), turn_of(&a, &again, 7) };
    late[1].keep_lease = false;
    late[1].metadata.status = DUR_STATUS_COMPLETED;
    dur_round round = { .turns = late, .turn_count = 2 };
    ASSERT_OK(&r.p->b, dur_store_lane_round(r.lane, r.p->b.arena, &round, &r.p->b.err));
    assert_int_equal(late[0].fault, DUR_TURN_FINE);
    assert_int_equal(late[1].fault, DUR_TURN_POSITION);
    rig_close(&r);
}

/* A round of one step: the lease, the position and the work that is done are compared. */
static void compare_a_step_alone(pg_bench *p, bool local) {
    rig r = rig_open(p);
    dur_orchestration_item item = started(&r, "x");
    begin(&r, &item);
    dur_event_row scheduled = event_of(2), events[2] = { event_of(3), event_of(4) };
    dur_turn_work first = { .message = message_of(DUR_WORK_ACTIVITY_EXECUTE, "x"), .lock_token = "w1" };
    dur_turn_work next = { .message = message_of(DUR_WORK_ACTIVITY_EXECUTE, "x"), .lock_token = "w2" };
    first.message.execution_id = next.message.execution_id = 1;
    first.message.activity_id = 2;
    next.message.activity_id = 4;
    first.may_be_local = next.may_be_local = local;
    dur_turn_commit turn = turn_of(&item, &scheduled, 1);
    turn.worker_items = &first;
    turn.worker_item_count = 1;
    (void)run(&r, &turn, 1, NULL);
    assert_int_equal(first.locked, !local);
    assert_int_equal(first.local, local);
    dur_worker_claim done = { .ref = { .instance = "x", .execution_id = 1, .activity_id = 2, .row_id = first.row_id },
                              .lock_token = "w1" };
    const struct {
        const char *token, *work;
        uint64_t expected;
        dur_turn_fault fault;
    } tries[] = { { "another", "w1", 2, DUR_TURN_LEASE_LOST },
                  { item.lock_token, "w1", 1, DUR_TURN_POSITION },
                  { item.lock_token, "another", 2, local ? DUR_TURN_FINE : DUR_TURN_WORK_LOST },
                  { item.lock_token, "w1", 2, local ? DUR_TURN_POSITION : DUR_TURN_FINE },
                  { item.lock_token, "w1", 2, DUR_TURN_POSITION } };
    bool over = false;
    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        turn = turn_of(&item, events, tries[i].expected);
        turn.event_count = 2;
        turn.lock_token = tries[i].token;
        done.lock_token = tries[i].work;
        turn.worker_consumed = &done;
        turn.worker_consumed_count = local ? 0 : 1;
        turn.worker_items = &next;
        turn.worker_item_count = 1;
        dur_round round = { .turns = &turn, .turn_count = 1 };
        ASSERT_OK(&r.p->b, dur_store_lane_round(r.lane, r.p->b.arena, &round, &r.p->b.err));
        assert_int_equal(turn.fault, tries[i].fault);
        over |= turn.fault == DUR_TURN_FINE;
        assert_int_equal(count(&r, "events", "event_id <= 2"), 2);
        assert_int_equal(count(&r, "events", "event_id > 2"), over ? 2 : 0);
        assert_int_equal(count(&r, "worker", "activity_id = 2 AND token = 'w1' AND owner = 'o'"), !over && !local);
        assert_int_equal(count(&r, "worker", "activity_id = 4 AND token = 'w2' AND owner = 'o' AND attempts = 1"),
                         over && !local);
    }
    assert_true(over);
    rig_close(&r);
}

static void a_step_alone_is_compared(void **state) {
    compare_a_step_alone(*state, true);
}

static void a_step_with_a_row_is_compared(void **state) {
    compare_a_step_alone(*state, false);
}

static void the_work_of_a_session_is_finished_too(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = started(&r, "x");
    begin(&r, &item);
    for (uint64_t last = 1; last < 7; last += 2) {
        char token[16], sql[512];
        snprintf(token, sizeof(token), "t%d", (int)last);
        dur_event_row events[2] = { event_of(last + 1), event_of(last + 2) };
        dur_turn_work work = { .message = { .instance = "x",
                                            .execution_id = 1,
                                            .activity_id = last + 1,
                                            .tag = "gpu", /* a row of its own */
                                            .json = { "{}", 2 },
                                            .kind = DUR_WORK_ACTIVITY_EXECUTE },
                               .lock_token = token };
        dur_turn_commit first = turn_of(&item, &events[0], last), second = turn_of(&item, &events[1], last + 1);
        first.worker_items = &work;
        first.worker_item_count = 1;
        (void)run(&r, &first, 1, NULL);
        assert_true(work.locked);
        snprintf(sql, sizeof(sql),
                 "INSERT INTO %s.dur_sessions (session_id, holder, owner) VALUES ('s', 'n', 'o') ON CONFLICT"
                 " (session_id) DO UPDATE SET active_ms = 0; UPDATE %s.dur_worker SET session_id = 's'",
                 r.p->schema, r.p->schema);
        pg_do(r.p->db, sql);
        dur_worker_claim claim = { .ref = { .instance = "x", .row_id = work.row_id }, .lock_token = token };
        second.worker_consumed = &claim;
        second.worker_consumed_count = 1;
        (void)run(&r, &second, 1, NULL);
        assert_int_equal(count(&r, "worker", "true"), 0);
        assert_int_equal(count(&r, "sessions", "active_ms > 0"), 1);
    }
    rig_close(&r);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* A round with turns need not look around, but "no suspect" is an answer that only a look can give. */
static void a_busy_round_finds_suspects(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = started(&r, "x"), suspect;
    begin(&r, &item);
    dur_message_row start = start_of(b, "s");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    ASSERT_OK(
        b, dur_store_fetch_orchestration_item(b->store, b->arena, &(dur_fetch){ .lock_ms = 60000 }, &suspect, &b->err));
    char sql[256]; /* as if by another process whose notification was lost */
    (void)run(&r, NULL, 0, &fresh);
    snprintf(sql, sizeof(sql),
             "UPDATE %s.dur_instances SET token = NULL, holder = NULL, expires_at = NULL, crashes = 2 WHERE"
             " instance_id = 's'",
             r.p->schema);
    pg_do(r.p->db, sql);
    dur_fetch how = { .owner = "o", .max = 1, .kind = DUR_FETCH_SUSPECT };
    dur_event_row event = event_of(2);
    dur_turn_commit turn = turn_of(&item, &event, 1);
    dur_round round = run(&r, &turn, 1, &how);
    assert_int_equal(round.item_count, 1);
    assert_string_equal(round.items[0].instance, "s");
    rig_close(&r);
}

/* What was given back keeps its place in the line, which may be long before the last look: a lane that is never idle
   takes it too, with its next whole look. */
static void a_busy_lane_takes_what_was_given_back(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = started(&r, "x"), other;
    begin(&r, &item);
    dur_message_row start = start_of(b, "s");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    ASSERT_OK(
        b, dur_store_fetch_orchestration_item(b->store, b->arena, &(dur_fetch){ .lock_ms = 60000 }, &other, &b->err));
    (void)run(&r, NULL, 0, &fresh);
    char sql[512]; /* as if by another process whose notification was lost */
    snprintf(sql, sizeof(sql),
             "UPDATE %s.dur_queue SET delivered = 0, order_ms = order_ms - 60000;"
             "UPDATE %s.dur_instances SET token = NULL, holder = NULL, expires_at = NULL, acquisitions = 0, ready_at ="
             " (SELECT order_ms FROM %s.dur_queue) WHERE instance_id = 's'",
             r.p->schema, r.p->schema, r.p->schema);
    pg_do(r.p->db, sql);
    size_t got = 0;
    uint64_t end_ms = pg_monotonic_ms() + 3000; /* a whole look comes four times a second */
    for (uint64_t last = 1; got == 0 && pg_monotonic_ms() < end_ms; last++) {
        dur_event_row event = event_of(last + 1);
        dur_turn_commit turn = turn_of(&item, &event, last);
        got = run(&r, &turn, 1, &fresh).item_count;
    }
    assert_int_equal(got, 1);
    rig_close(&r);
}

/* Somebody stands still with the row of an instance that has a message: the lane comes back for it, from time to time.
 */
static void a_held_row_keeps_nobody_awake(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = started(&r, "x");
    begin(&r, &item);
    dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, "x");
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &event, 0, &b->err));
    char sql[200];
    snprintf(sql, sizeof(sql), "BEGIN; SELECT 1 FROM %s.dur_instances WHERE instance_id = 'x' FOR UPDATE", r.p->schema);
    PGconn *other = PQconnectdb(pg_server());
    pg_do(other, sql);
    int rounds = 0;
    for (uint64_t end_ms = pg_monotonic_ms() + 1000; pg_monotonic_ms() < end_ms; rounds++) {
        dur_round round = run(&r, NULL, 0, &fresh);
        if (round.held_count > 0) break;
        (void)dur_store_lane_wait(r.lane, 1000, &b->err);
    }
    PQfinish(other);
    assert_true(rounds < 60);
    size_t held = 0;
    for (int i = 0; i < 20 && held == 0; i++) {
        (void)dur_store_lane_wait(r.lane, 1000, &b->err);
        held = run(&r, NULL, 0, &fresh).held_count;
    }
    assert_int_equal(held, 1);
    rig_close(&r);
}

/* Only the first few of a long queue are handed out, and the others stay where they are. */
static void a_backlog_is_handed_out_in_pieces(void **state) {
    enum { MESSAGES = 300, AT_ONCE = 10 };
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = started(&r, "x");
    begin(&r, &item);
    char sql[512];
    snprintf(sql, sizeof(sql),
             "INSERT INTO %s.dur_queue (instance_id, due_ms, order_ms, kind, queue, json) SELECT 'x', 0, n, 7,"
             " CASE WHEN n %% 3 = 0 THEN 'b' ELSE 'a' END, n::text FROM generate_series(1, %d) n;"
             "UPDATE %s.dur_instances SET ready_at = 0, ready_due = 0",
             r.p->schema, MESSAGES, r.p->schema);
    pg_do(r.p->db, sql);
    uint64_t seen_a = 0, taken = 0;
    for (int rounds = 0; rounds < MESSAGES && taken < MESSAGES; rounds++) {
        dur_round round = { .queue_messages_max = AT_ONCE };
        ASSERT_OK(b, dur_store_lane_round(r.lane, b->arena, &round, &b->err));
        assert_true(round.held_count <= 2 * AT_ONCE);
        uint64_t ids[2 * AT_ONCE];
        for (size_t i = 0; i < round.held_count; i++) {
            uint64_t number = strtoull(round.held[i].message.json.data, NULL, 10);
            if (strcmp(round.held[i].message.queue, "a") == 0) {
                assert_true(number > seen_a);
                seen_a = number;
            }
            ids[i] = round.held[i].message.id;
        }
        taken += round.held_count;
        dur_turn_commit turn = turn_of(&item, NULL, 1);
        turn.event_count = 0;
        turn.consumed = ids;
        turn.consumed_count = round.held_count;
        if (round.held_count > 0) (void)run(&r, &turn, 1, NULL);
    }
    assert_int_equal(taken, MESSAGES);
    assert_int_equal(count(&r, "queue", "true"), 0);
    rig_close(&r);
}

/* ---- telling ----------------------------------------------------------------------------------------------------- */

static void a_watch_is_told_of_its_own_instance(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_watch *x, *again, *y;
    dur_orchestration_item first = started(&r, "x"), second = started(&r, "y");
    begin(&r, &first);
    begin(&r, &second);
    ASSERT_OK(b, dur_store_watch_open(b->store, "x", &x, &b->err));
    ASSERT_OK(b, dur_store_watch_open(b->store, "x", &again, &b->err));
    ASSERT_OK(b, dur_store_watch_open(b->store, "y", &y, &b->err));
    finish(&r, &second, 1);
    assert_int_equal(dur_store_watch_wait(x, 100, &b->err), DUR_ETIMEOUT);
    ASSERT_OK(b, dur_store_watch_wait(y, PATIENCE_MS, &b->err));
    dur_store_watch_close(x);
    finish(&r, &first, 1);
    ASSERT_OK(b, dur_store_watch_wait(again, PATIENCE_MS, &b->err));
    dur_store_watch_close(again);
    dur_store_watch_close(y);
    rig_close(&r);
}

static bool heard(PGconn *other) {
    pg_do(other, "SELECT 1"); /* what was sent before comes with the answer */
    PGnotify *note = PQnotifies(other);
    bool any = note != NULL;
    PQfreemem(note);
    return any;
}

/* Every notification costs all who listen a wake-up, and this lane a round trip: an end can wait until it has time. */
static void an_end_is_told_when_there_is_time(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    char sql[128];
    PGconn *other = PQconnectdb(pg_server());
    dur_orchestration_item item = started(&r, "x");
    begin(&r, &item);
    ASSERT_OK(b, dur_store_lane_wait(r.lane, 20, &b->err)); /* what was to be told so far is told */
    snprintf(sql, sizeof(sql), "LISTEN %s", dur__pg_of(b->store)->channel);
    pg_do(other, sql);
    (void)heard(other);
    finish(&r, &item, 1);
    dur_waker_wake(r.waker); /* there is work */
    ASSERT_OK(b, dur_store_lane_wait(r.lane, 1000, &b->err));
    assert_false(heard(other));
    ASSERT_OK(b, dur_store_lane_wait(r.lane, 100, &b->err));
    assert_true(heard(other));
    PQfinish(other);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(a_start_is_fetched_and_begun),
        PG_TEST(of_two_starts_of_one_id_one_is_refused),
        PG_TEST(a_message_before_the_end_is_not_forgotten),
        PG_TEST(one_round_begins_goes_on_and_ends),
        PG_TEST(a_step_alone_is_compared),
        PG_TEST(a_step_with_a_row_is_compared),
        PG_TEST(the_work_of_a_session_is_finished_too),
        PG_TEST(a_busy_round_finds_suspects),
        PG_TEST(a_busy_lane_takes_what_was_given_back),
        PG_TEST(a_held_row_keeps_nobody_awake),
        PG_TEST(a_backlog_is_handed_out_in_pieces),
        PG_TEST(a_watch_is_told_of_its_own_instance),
        PG_TEST(an_end_is_told_when_there_is_time),
    };
    PG_MAIN(tests);
}
