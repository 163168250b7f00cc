/*
 * test_pg_fence.c: the instance's row as the fence of its lease, on PostgreSQL: who waits for whom, who is refused, and
 * that nobody writes what a lease protects without the lock (src/provider/postgres/README.md).
 *
 * The judge of tests/support/pg_fence.sql is told of this test's schema alone; tools/check-fence runs whole programs
 * under it.
 */
#include "pg_rig.h"

#include <inttypes.h>
#include <pthread.h>

/* ---- the judge --------------------------------------------------------------------------------------------------- */

/* The file up to what concerns other schemas; its functions are in our own, and go with it. */
static void judge(const rig *r) {
    static const char name[] = "durite_fence", others[] = "-- Every schema whose last table";
    static const char made[] = "CREATE SCHEMA durite_fence;";
    bench *b = &r->p->b;
    FILE *file = fopen(DURITE_SOURCE_DIR "/tests/support/pg_fence.sql", "re");
    char text[8192];
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[size] = '\0';
    char *end = strstr(text, others);
    assert_non_null(end);
    *end = '\0';
    char *schema = strstr(text, made);
    assert_non_null(schema);
    memset(schema, ' ', sizeof(made) - 1);
    const char *sql = "SELECT pg_advisory_xact_lock(7466);", *at = text;
    for (char *found; (found = strstr(at, name)) != NULL; at = found + strlen(name)) {
        *found = '\0';
        sql = dur_arena_format(b->arena, "%s%s%s", sql, at, r->p->schema);
    }
    sql =
        dur_arena_format(b->arena, "BEGIN; SET LOCAL client_min_messages = error; %s%s; COMMIT; SELECT %s.judge('%s')",
                         sql, at, r->p->schema, r->p->schema);
    pg_do(r->p->db, sql);
}

static bool is_raised(const rig *r, const char *sql) {
    PGresult *result = PQexec(r->p->db, sql);
    bool raised = strstr(PQresultErrorMessage(result), "fence: ") != NULL;
    PQclear(result);
    pg_do(r->p->db, "ROLLBACK");
    return raised;
}

static const char *of_schema(const rig *r, const char *format) {
    return dur_arena_format(r->p->b.arena, format, r->p->schema, r->p->schema);
}

static void forgotten_writers_are_raised(void **state) {
    rig r = rig_open(*state);
    (void)begun(&r, "x");
    judge(&r);
    assert_true(is_raised(&r, of_schema(&r, "BEGIN; UPDATE %s.dur_instances SET token = NULL, owner = NULL")));
    assert_true(is_raised(&r, of_schema(&r, "BEGIN; SELECT 1 FROM %s.dur_instances FOR NO KEY UPDATE; UPDATE"
                                            " %s.dur_instances SET owner = 'another'")));
    assert_true(is_raised(&r, of_schema(&r, "BEGIN; INSERT INTO %s.dur_history (instance_id, execution_id, first_id,"
                                            " at_ms, block) VALUES ('x', 1, 2, 0, '')")));
    assert_false(is_raised(&r, of_schema(&r, "BEGIN; SELECT 1 FROM %s.dur_instances FOR UPDATE; UPDATE"
                                             " %s.dur_instances SET token = NULL, owner = NULL")));
    assert_false(
        is_raised(&r, of_schema(&r, "BEGIN; SELECT 1 FROM %s.dur_instances FOR KEY SHARE; INSERT INTO"
                                    " %s.dur_history (instance_id, execution_id, first_id, at_ms, block) VALUES"
                                    " ('x', 1, 2, 0, '')")));
    rig_close(&r);
}

/* ---- turns beside others ----------------------------------------------------------------------------------------- */

static PGconn *hold(const rig *r, const char *instance, const char *strength) {
    PGconn *other = PQconnectdb(pg_server());
    pg_do(other,
          dur_arena_format(r->p->b.arena, "BEGIN; SELECT 1 FROM %s.dur_instances WHERE instance_id = '%s' FOR %s",
                           r->p->schema, instance, strength));
    return other;
}

static void let_go(PGconn *other, const char *how) {
    pg_do(other, how);
    PQfinish(other);
}

/* Both go on, in one round: the answers. */
static void both_go_on(rig *r, const dur_orchestration_item *items, uint64_t last, dur_turn_fault *faults) {
    bench *b = &r->p->b;
    dur_event_row event = event_of(last + 1);
    dur_turn_commit turns[2] = { turn_of(&items[0], &event, last), turn_of(&items[1], &event, last) };
    dur_round round = { .turns = turns, .turn_count = 2 };
    ASSERT_OK(b, dur_store_lane_round(r->lane, b->arena, &round, &b->err));
    for (int i = 0; i < 2; i++) {
        faults[i] = turns[i].fault;
        if (faults[i] == DUR_TURN_STORE) assert_true(turns[i].error.retryable);
    }
}

static void a_sender_holds_up_no_turn(void **state) {
    rig r = rig_open(*state);
    dur_turn_fault faults[2];
    judge(&r);
    dur_orchestration_item items[2] = { begun(&r, "x"), begun(&r, "y") };
    PGconn *sender = hold(&r, "x", "NO KEY UPDATE");
    both_go_on(&r, items, 1, faults);
    let_go(sender, "ROLLBACK");
    assert_int_equal(faults[0], DUR_TURN_FINE);
    assert_int_equal(faults[1], DUR_TURN_FINE);
    rig_close(&r);
}

/* Whoever is about to end a lease: that turn alone waits, and is then refused, or not. */
static void only_the_turn_whose_lease_is_to_end_waits(void **state) {
    rig r = rig_open(*state);
    dur_turn_fault faults[2];
    judge(&r);
    dur_orchestration_item items[2] = { begun(&r, "x"), begun(&r, "y") };
    PGconn *other = hold(&r, "x", "UPDATE");
    both_go_on(&r, items, 1, faults);
    let_go(other, "ROLLBACK");
    assert_int_equal(faults[0], DUR_TURN_STORE);
    assert_int_equal(faults[1], DUR_TURN_FINE);
    dur_event_row second = event_of(2), third = event_of(3);
    dur_turn_commit again = turn_of(&items[0], &second, 1);
    (void)run(&r, &again, 1, NULL); /* the same, once more */
    other = hold(&r, "x", "UPDATE");
    pg_do(other, of_schema(&r, "UPDATE %s.dur_instances SET token = NULL, owner = NULL, holder = NULL WHERE"
                               " instance_id = 'x'"));
    let_go(other, "COMMIT");
    dur_turn_commit late[2] = { turn_of(&items[0], &third, 2), turn_of(&items[1], &third, 2) };
    dur_round round = { .turns = late, .turn_count = 2 };
    ASSERT_OK(&r.p->b, dur_store_lane_round(r.lane, r.p->b.arena, &round, &r.p->b.err));
    assert_int_equal(late[0].fault, DUR_TURN_LEASE_LOST);
    assert_int_equal(late[1].fault, DUR_TURN_FINE);
    assert_int_equal(count(&r, "history", "instance_id = 'x'"), 2);
    rig_close(&r);
}

typedef struct in_flight {
    rig *r;
    dur_turn_commit *turn;
    pthread_t thread;
} in_flight;

static void *commits(void *arg) {
    in_flight *self = arg;
    bench *b = &self->r->p->b;
    dur_arena *arena = dur_arena_new();
    dur_round round = { .turns = self->turn, .turn_count = 1 };
    (void)dur_store_lane_round(self->r->lane, arena, &round, &b->err);
    dur_arena_free(arena);
    return NULL;
}

static void *terminates(void *arg) {
    in_flight *self = arg;
    (void)dur_store_commit_turns(self->r->p->b.store, self->turn, 1, NULL);
    return NULL;
}

static void wait_until(const rig *r, long waiting) {
    const char *sql = dur_arena_format(r->p->b.arena,
                                       "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'durite_%s' AND"
                                       " wait_event_type = 'Lock'",
                                       r->p->schema);
    while (pg_number(r->p->db, sql) < waiting)
        pg_pause_ms(1);
}

/* A turn is stopped in the middle of its commit: a sender does not wait for it, who ends the lease does, and sees it.
 */
static void who_ends_a_lease_waits_for_the_turn(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    judge(&r);
    dur_orchestration_item item = begun(&r, "x");
    PQclear(PQexec(((dur__pg_lane *)(void *)r.lane)->conn->pg, "SET lock_timeout = 0"));
    pg_do(r.p->db,
          of_schema(&r, "CREATE FUNCTION %s.stop() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.first_id"
                        " = 2 THEN PERFORM pg_advisory_xact_lock_shared(4711); END IF; RETURN NEW; END $$"));
    pg_do(r.p->db, dur_arena_format(b->arena,
                                    "CREATE TRIGGER stop BEFORE INSERT ON %s.dur_history FOR EACH ROW EXECUTE FUNCTION"
                                    " %s.stop(); SELECT pg_advisory_lock(4711)",
                                    r.p->schema, r.p->schema));
    dur_event_row second = event_of(2), third = event_of(3);
    dur_turn_commit turn = turn_of(&item, &second, 1);
    dur_turn_commit end = { .instance = "x",
                            .take_over = true,
                            .execution_id = 1,
                            .events = &third,
                            .event_count = 1,
                            .expected_last = 2, /* as it is when it comes to it */
                            .metadata = { .status = DUR_STATUS_FAILED, .output = "x" } };
    in_flight first = { .r = &r, .turn = &turn }, second_one = { .r = &r, .turn = &end };
    assert_int_equal(pthread_create(&first.thread, NULL, commits, &first), 0);
    wait_until(&r, 1);
    dur_message_row message = message_of(DUR_WORK_EXTERNAL_RAISED, "x");
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &message, 0, &b->err));
    assert_int_equal(pthread_create(&second_one.thread, NULL, terminates, &second_one), 0);
    wait_until(&r, 2);
    pg_do(r.p->db, "SELECT pg_advisory_unlock(4711)");
    pthread_join(first.thread, NULL);
    pthread_join(second_one.thread, NULL);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_int_equal(end.fault, DUR_TURN_FINE);
    assert_int_equal(count(&r, "history", "instance_id = 'x'"), 3);
    rig_close(&r);
}

/* ---- positions --------------------------------------------------------------------------------------------------- */

/* A server that has taken the place of another knows less: nothing is written behind a gap. */
static void nothing_is_written_behind_a_gap(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = begun(&r, "x");
    dur_event_row second = event_of(2), third = event_of(3);
    dur_turn_commit turn = turn_of(&item, &second, 1), next = turn_of(&item, &third, 2);
    (void)run(&r, &turn, 1, NULL);
    pg_do(r.p->db, of_schema(&r, "DELETE FROM %s.dur_history WHERE first_id = 2"));
    ((dur__pg_lane *)(void *)r.lane)->server_start -= 1000;
    dur_round round = { .turns = &next, .turn_count = 1 };
    ASSERT_OK(&r.p->b, dur_store_lane_round(r.lane, r.p->b.arena, &round, &r.p->b.err));
    assert_int_equal(next.fault, DUR_TURN_POSITION);
    assert_int_equal(count(&r, "history", "true"), 1);
    rig_close(&r);
}

static void nothing_is_appended_inside_a_row(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = begun(&r, "x");
    dur_event_row events[3], inside = event_of(3), behind = event_of(5);
    for (uint64_t i = 0; i < 3; i++) /* such that fit into one block */
        events[i] = (dur_event_row){ .event_id = i + 2,
                                     .json = text_of(dur_arena_format(
                                         b->arena, "{\"event_id\":%" PRIu64 ",\"instance_id\":\"x\",\"execution_id\":1,"
                                                   "\"timestamp_ms\":1,\"duroxide_version\":\"0.1.0\","
                                                   "\"type\":\"TimerCreated\",\"fire_at_ms\":2}", i + 2)) };
    dur_turn_commit turn = turn_of(&item, events, 1);
    turn.event_count = 3;
    judge(&r);
    (void)run(&r, &turn, 1, NULL);
    assert_int_equal(count(&r, "history", "first_id = 2 AND count = 3"), 1);
    assert_int_equal(dur_store_append(b->store, "x", 1, &inside, 1, &b->err), DUR_ECONFLICT);
    ASSERT_OK(b, dur_store_append(b->store, "x", 1, &behind, 1, &b->err));
    dur_event_row late = event_of(5);
    dur_turn_commit next = turn_of(&item, &late, 4);
    dur_round round = { .turns = &next, .turn_count = 1 };
    ASSERT_OK(b, dur_store_lane_round(r.lane, b->arena, &round, &b->err));
    assert_int_equal(next.fault, DUR_TURN_POSITION);
    rig_close(&r);
}

/* ---- suspending -------------------------------------------------------------------------------------------------- */

typedef struct suspender {
    pg_bench *p;
    int failed;
    pthread_t thread;
} suspender;

enum { SUSPENDS = 40 };

/* The turn, again while a suspend stands still with its row; how often the lane was asked for a lease meanwhile. */
static size_t commit_turn(rig *r, dur_turn_commit *turn) {
    bench *b = &r->p->b;
    size_t asked = 0;
    do {
        dur_round round = { .turns = turn, .turn_count = 1 };
        ASSERT_OK(b, dur_store_lane_round(r->lane, b->arena, &round, &b->err));
        asked += round.asked_count;
    } while (turn->fault == DUR_TURN_STORE && turn->error.retryable);
    assert_int_equal(turn->fault, DUR_TURN_FINE);
    return asked;
}

static void *suspends(void *arg) {
    suspender *self = arg;
    for (int i = 0; i < SUSPENDS; i++)
        if (dur_store_set_suspended(self->p->b.store, "x", i % 2 == 0 ? "why" : NULL, NULL) != DUR_OK) self->failed++;
    return NULL;
}

/* An instance that reads queues, suspended and resumed while it goes on: it is asked, and nobody waits in a circle. */
static void suspends_and_rounds_do_not_deadlock(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    judge(&r);
    dur_orchestration_item item = begun(&r, "x");
    suspender other = { .p = r.p };
    assert_int_equal(pthread_create(&other.thread, NULL, suspends, &other), 0);
    size_t asked = 0;
    for (uint64_t last = 1; last <= SUSPENDS; last++) {
        dur_message_row message = queue_of("x", last % 2 == 0 ? "q" : "p", NULL);
        ASSERT_OK(b, dur_store_enqueue_existing(b->store, &message, 0, &b->err));
        dur_round round = run(&r, NULL, 0, NULL);
        asked += round.asked_count;
        dur_event_row event = event_of(last + 1);
        dur_turn_commit turn = turn_of(&item, &event, last);
        uint64_t taken[64];
        for (size_t i = 0; i < round.held_count && i < 64; i++)
            taken[turn.consumed_count++] = round.held[i].message.id;
        turn.consumed = taken;
        asked += commit_turn(&r, &turn);
    }
    pthread_join(other.thread, NULL);
    assert_int_equal(other.failed, 0);
    asked += run(&r, NULL, 0, NULL).asked_count;
    assert_int_equal(asked, SUSPENDS / 2); /* each is told once */
    assert_int_equal(count(&r, "instances", "owner = 'o' AND token IS NOT NULL"), 1);
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(forgotten_writers_are_raised),
        PG_TEST(a_sender_holds_up_no_turn),
        PG_TEST(only_the_turn_whose_lease_is_to_end_waits),
        PG_TEST(who_ends_a_lease_waits_for_the_turn),
        PG_TEST(nothing_is_written_behind_a_gap),
        PG_TEST(nothing_is_appended_inside_a_row),
        PG_TEST(suspends_and_rounds_do_not_deadlock),
    };
    PG_MAIN(tests);
}
