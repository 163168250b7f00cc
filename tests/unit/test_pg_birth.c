/*
 * test_pg_birth.c: turns that write their start, on PostgreSQL.  The rows are those of a start, a fetch and a turn, and
 * nothing stays behind where it is refused, or its answer lost.
 */
#include "pg_lane_rig.h"
#include "pg_proxy.h"

/* ---- the rows ---------------------------------------------------------------------------------------------------- */

static void goes_on(bench *b, dur_turn_commit *turn) {
    (void)b;
    (void)turn;
}

static void has_everything(bench *b, dur_turn_commit *turn) {
    static const dur_event_row events[] = {
        { .event_id = 1, .json = { "{}", 2 } },
        { .event_id = 2, .json = { "{}", 2 }, .kind = DUR_EVENT_KEY_VALUE_SET, .key = "k", .value = "v" },
        { .event_id = 3, .json = { "{}", 2 }, .kind = DUR_EVENT_CUSTOM_STATUS_UPDATED, .value = "half" },
    };
    dur_turn_work *works = dur_arena_zalloc(b->arena, 2 * sizeof(*works));
    works[0] = (dur_turn_work){ .message = activity_of(b, "a", 1, NULL, NULL), .lock_token = "w1" };
    works[1] = (dur_turn_work){ .message = activity_of(b, "a", 2, NULL, NULL) };
    turn->worker_items = works;
    turn->worker_item_count = 2;
    turn->events = events;
    turn->event_count = 3;
    turn->metadata.has_pinned_version = true;
    turn->metadata.pinned_version = (dur_semver){ 1, 2, 3 };
}

static void ends_at_once(bench *b, dur_turn_commit *turn) {
    has_everything(b, turn);
    turn->worker_item_count = 0;
    turn->keep_lease = false;
    turn->metadata.status = DUR_STATUS_COMPLETED;
    turn->metadata.output = "done";
}

static void sends_itself_a_timer(bench *b, dur_turn_commit *turn) {
    dur_message_row timer = message_of(DUR_WORK_TIMER_FIRED, "a");
    timer.due_ms = START_MS + 60000;
    timer.execution_id = 1;
    timer.activity_id = 2;
    sends(b, turn, timer);
}

static void sends_itself_a_timer_and_goes(bench *b, dur_turn_commit *turn) {
    sends_itself_a_timer(b, turn);
    turn->keep_lease = false;
}

static void continues_as_new(bench *b, dur_turn_commit *turn) {
    sends(b, turn, message_of(DUR_WORK_CONTINUE_AS_NEW, "a"));
    turn->metadata.status = DUR_STATUS_CONTINUED_AS_NEW;
    turn->metadata.output = "next";
}

static void continues_as_new_elsewhere(bench *b, dur_turn_commit *turn) {
    continues_as_new(b, turn);
    turn->keep_lease = false;
}

static void waits_for_anybody(bench *b, dur_turn_commit *turn) {
    (void)b;
    turn->keep_lease = false;
}

static void is_suspended(bench *b, dur_turn_commit *turn) {
    (void)b;
    turn->set_suspended = true;
    turn->suspended = "why not";
}

static void starts_another(bench *b, dur_turn_commit *turn) {
    sends(b, turn, start_of(b, "b"));
}

typedef void change(bench *b, dur_turn_commit *turn);
static change *const changes[] = {
    goes_on,
    has_everything,
    ends_at_once,
    sends_itself_a_timer,
    sends_itself_a_timer_and_goes,
    continues_as_new,
    continues_as_new_elsewhere,
    waits_for_anybody,
    is_suspended,
    starts_another,
};

/* A timer that a lane keeps (pg_timer.c), as it would stand there without. */
static void put_timers_back(const rig *r) {
    const char *schema = r->p->schema;
    pg_do(r->p->db,
          dur_arena_format(r->p->b.arena,
                           "UPDATE %s.dur_instances i SET ready_at = q.due_ms, ready_due = q.due_ms FROM"
                           " %s.dur_queue q WHERE q.instance_id = i.instance_id AND q.kind = 5 AND q.delivered <> 0;"
                           "UPDATE %s.dur_queue SET delivered = 0 WHERE kind = 5",
                           schema, schema, schema));
}

/* Every row of every table, but for what is drawn: tokens, holders and ids.  Of history every event: how many are put
   into a row is another matter.  In the arena. */
static const char *rows(rig *r) {
    put_timers_back(r);
    static const char *const tables[] = { "instances", "executions", "events", "queue", "worker", "kv", "kv_delta" };
    const char *out = "";
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        char sql[900], from[400];
        snprintf(from, sizeof(from), "%s.dur_%s", r->p->schema, tables[i]);
        snprintf(sql, sizeof(sql),
                 "SELECT coalesce(string_agg(x, E'\\n' ORDER BY x), '') FROM (SELECT ((to_jsonb(t) - 'id' -"
                 " 'next' - 'next_execution' - 'delivered') ||" /* what a start said, until its execution began */
                 " jsonb_strip_nulls(jsonb_build_object('token', CASE WHEN to_jsonb(t)->>'token' IS NOT NULL THEN '*'"
                 " END, 'holder', CASE WHEN to_jsonb(t)->>'holder' IS NOT NULL THEN '*' END,"
                 " 'delivered', (to_jsonb(t)->>'delivered')::bigint > 0)))::text AS x FROM"
                 " %s t) y",
                 from);
        PGresult *result = PQexec(r->p->db, sql);
        if (PQresultStatus(result) != PGRES_TUPLES_OK) fail_msg("%s", PQresultErrorMessage(result));
        out = dur_arena_format(r->p->b.arena, "%s%s:\n%s\n", out, tables[i], PQgetvalue(result, 0, 0));
        PQclear(result);
    }
    return out;
}

static void empty(rig *r) {
    char sql[600];
    snprintf(sql, sizeof(sql),
             "TRUNCATE %s.dur_instances, %s.dur_executions, %s.dur_history, %s.dur_queue, %s.dur_worker, %s.dur_kv,"
             " %s.dur_kv_delta",
             r->p->schema, r->p->schema, r->p->schema, r->p->schema, r->p->schema, r->p->schema, r->p->schema);
    pg_do(r->p->db, sql);
}

static const char *by_the_usual_way(rig *r, change *how, bool *kept) {
    bench *b = &r->p->b;
    dur_message_row start = start_of(b, "a");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(r->store, &start, 0, &b->err));
    dur_round round = run(r, NULL, 0, &fresh);
    assert_int_equal(round.item_count, 1);
    dur_turn_commit turn = first_turn(&round.items[0]);
    how(b, &turn);
    (void)run(r, &turn, 1, NULL);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    *kept = turn.lease_kept;
    const char *out = rows(r);
    empty(r);
    return out;
}

static void rows_are_those_of_a_start_a_fetch_and_a_turn(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    char url[1100];
    dur_provider *store = NULL; /* time stands still: the same turn at the same time writes the same */
    dur_fake_world *fake = dur_fake_world_new(START_MS, 7);
    snprintf(url, sizeof(url), "%s&clock=caller", p->url);
    ASSERT_OK(b, dur_open_ex(&store, url, DUR_OPEN_OPTIONS(.world = dur_fake_world_get(fake)), &b->err));
    rig r = rig_on(p, store);
    for (size_t i = 0; i < 2 * sizeof(changes) / sizeof(changes[0]); i++) {
        bool kept = false, beside = i % 2 == 1; /* beside an end of work the batch is an unusual one */
        const char *usual = by_the_usual_way(&r, changes[i / 2], &kept);
        dur_orchestration_item item = take(&r, "a");
        dur_turn_commit turn = born_turn(&item);
        changes[i / 2](b, &turn);
        dur_round round = { .turns = &turn, .turn_count = 1 };
        dur_work_ack ack = { .lock_token = "nobody's" };
        if (beside) {
            round.acks = &ack;
            round.ack_count = 1;
        }
        ASSERT_OK(b, dur_store_lane_round(r.lane, b->arena, &round, &b->err));
        assert_int_equal(turn.fault, DUR_TURN_FINE);
        assert_int_equal(turn.lease_kept, kept);
        const char *born = rows(&r);
        if (strcmp(born, usual) != 0) fail_msg("%zu: there is\n%sinstead of\n%s", i, born, usual);
        empty(&r);
    }
    rig_close(&r);
    dur_provider_close(store);
    dur_fake_world_free(fake);
}

/* ---- beside others ----------------------------------------------------------------------------------------------- */

static void an_id_that_exists_is_refused_alone(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_turn_commit old = parked(&r, "old");
    dur_message_row start = start_of(b, "new"); /* nobody has fetched it yet */
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    dur_orchestration_item a = take(&r, "a"), twice = take(&r, "old"), z = take(&r, "z");
    dur_orchestration_item also = take(&r, "new");
    dur_event_row event = event_of(2);
    dur_turn_commit turns[5] = { born_turn(&a), born_turn(&twice), born_turn(&z), born_turn(&also),
                                 next_turn("old", old.lock_token, &event) };
    (void)run(&r, turns, 5, NULL);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(turns[i].fault, i % 2 == 0 ? DUR_TURN_FINE : DUR_TURN_LEASE_LOST);
        assert_int_equal(turns[i].error.code, i % 2 == 0 ? DUR_OK : DUR_ELEASE);
    }
    assert_int_equal(count(&r, "history", "instance_id = 'old'"), 2);
    assert_int_equal(count(&r, "instances", "instance_id = 'new' AND token IS NULL AND NOT has_row"), 1);
    goes_on_from(&r, &turns[0]);
    goes_on_from(&r, &turns[2]);
    rig_close(&r);
}

/* Somebody holds a row in a way that lets it be updated but not locked as a whole; whoever waits for him is found out
   when his session ends. */
static void a_birth_leaves_the_rows_of_usual_turns_alone(void **state) {
    rig r = rig_open(*state);
    dur_turn_commit old = parked(&r, "x");
    char sql[256];
    snprintf(sql, sizeof(sql),
             "SET idle_in_transaction_session_timeout = '5s'; BEGIN; SELECT 1 FROM %s.dur_instances FOR KEY SHARE",
             r.p->schema);
    PGconn *other = PQconnectdb(pg_server());
    pg_do(other, sql);
    dur_orchestration_item item = take(&r, "y");
    dur_event_row event = event_of(2);
    dur_turn_commit turns[2] = { born_turn(&item), next_turn("x", old.lock_token, &event) };
    (void)run(&r, turns, 2, NULL);
    assert_int_equal(turns[0].fault, DUR_TURN_FINE);
    assert_int_equal(turns[1].fault, DUR_TURN_FINE);
    pg_do(other, "COMMIT");
    PQfinish(other);
    rig_close(&r);
}

static void a_message_in_the_same_transaction_reaches_the_lease(void **state) {
    rig r = rig_open(*state);
    dur_turn_commit old = parked(&r, "sender");
    dur_orchestration_item item = take(&r, "a");
    dur_event_row event = event_of(2);
    dur_turn_commit turns[2] = { born_turn(&item), next_turn("sender", old.lock_token, &event) };
    sends(&r.p->b, &turns[1], message_of(DUR_WORK_EXTERNAL_RAISED, "a"));
    dur_round round = run(&r, turns, 2, &fresh);
    assert_int_equal(turns[0].fault, DUR_TURN_FINE);
    assert_int_equal(turns[1].fault, DUR_TURN_FINE);
    if (round.held_count == 0) round = run(&r, NULL, 0, &fresh);
    assert_int_equal(round.held_count, 1);
    assert_string_equal(round.held[0].instance, "a");
    assert_string_equal(round.held[0].lock_token, turns[0].lock_token);
    rig_close(&r);
}

/* Nor is one that came with its birth: it was given, so an end must see to it. */
static void a_message_of_its_birth_is_given_back_at_the_end(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_turn_commit old = parked(&r, "sender");
    dur_orchestration_item item = take(&r, "a");
    dur_event_row event = event_of(2), last = event_of(2);
    dur_turn_commit turns[2] = { born_turn(&item), next_turn("sender", old.lock_token, &event) };
    sends(b, &turns[1], message_of(DUR_WORK_EXTERNAL_RAISED, "a"));
    dur_round round = run(&r, turns, 2, &fresh);
    assert_int_equal(round.held_count, 1);
    dur_turn_commit end = next_turn("a", turns[0].lock_token, &last);
    end.keep_lease = false;
    end.metadata.status = DUR_STATUS_COMPLETED;
    (void)run(&r, &end, 1, NULL);
    assert_int_equal(end.fault, DUR_TURN_FINE);
    assert_int_equal(count(&r, "queue", "instance_id = 'a' AND delivered <> 0"), 0);
    ASSERT_OK(b, dur_store_check(r.store, &b->err));
    assert_int_equal(run(&r, NULL, 0, &fresh).item_count, 1); /* the end has not said what it saw */
    rig_close(&r);
}

/* It is known to have nothing but its history, so its end looks for nothing: but what came meanwhile is not forgotten.
 */
static void a_message_before_the_end_is_not_forgotten(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_turn_commit born = parked(&r, "x");
    dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, "x");
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &event, 0, &b->err));
    dur_event_row last = event_of(2);
    dur_turn_commit turn = next_turn("x", born.lock_token, &last);
    turn.keep_lease = false;
    turn.metadata.status = DUR_STATUS_COMPLETED;
    (void)run(&r, &turn, 1, NULL);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    dur_round round = run(&r, NULL, 0, &fresh);
    assert_int_equal(round.item_count, 1);
    assert_int_equal(round.items[0].message_count, 1);
    rig_close(&r);
}

/* But what the first turn has set is not nothing. */
static void an_end_keeps_what_the_first_turn_has_set(void **state) {
    rig r = rig_open(*state);
    dur_orchestration_item item = take(&r, "a");
    dur_turn_commit turn = born_turn(&item);
    has_everything(&r.p->b, &turn);
    turn.worker_item_count = 0;
    (void)run(&r, &turn, 1, NULL);
    dur_event_row last = event_of(4);
    dur_turn_commit end = next_turn("a", turn.lock_token, &last);
    end.keep_lease = false;
    end.metadata.status = DUR_STATUS_COMPLETED;
    (void)run(&r, &end, 1, NULL);
    assert_int_equal(end.fault, DUR_TURN_FINE);
    assert_int_equal(count(&r, "kv", "instance_id = 'a' AND key = 'k' AND value = 'v'"), 1);
    assert_int_equal(count(&r, "kv_delta", "true"), 0);
    rig_close(&r);
}

/* ---- not written by its turn ------------------------------------------------------------------------------------- */

static void only_a_lane_makes_one(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item item = take(&r, "a");
    dur_turn_commit wrong = born_turn(&item);
    ASSERT_OK(b, dur_store_commit_turns(b->store, &wrong, 1, &b->err));
    assert_int_equal(wrong.fault, DUR_TURN_LEASE_LOST);
    assert_int_equal(count(&r, "instances", "true"), 0);
    dur_turn_commit turn = born_turn(&item);
    (void)run(&r, &turn, 1, NULL);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    (void)run(&r, &turn, 1, NULL);
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST); /* once */
    rig_close(&r);
}

static void an_owner_that_is_gone_makes_nobody(void **state) {
    rig r = rig_open(*state);
    bench *b = &r.p->b;
    dur_orchestration_item a = take(&r, "a"), z = take(&r, "z");
    ASSERT_OK(b, dur_store_owner_release(b->store, "o", &b->err));
    dur_turn_commit turns[2] = { born_turn(&a), born_turn(&z) };
    starts_another(b, &turns[1]); /* by the unusual way */
    for (int i = 0; i < 2; i++) {
        dur_round round = { .turns = &turns[i], .turn_count = 1 };
        (void)dur_store_lane_round(r.lane, b->arena, &round, &b->err);
        assert_int_not_equal(turns[i].fault, DUR_TURN_FINE);
    }
    assert_int_equal(count(&r, "instances", "true"), 0);
    rig_close(&r);
}

typedef struct round_thread {
    rig *r;
    dur_turn_commit *turn;
    pthread_t thread;
} round_thread;

static void *run_it(void *arg) {
    round_thread *t = arg;
    (void)run(t->r, t->turn, 1, NULL);
    return NULL;
}

/* Somebody takes the owner for dead in this moment: the birth waits for him, and then sees what he did. */
static void nor_does_one_that_is_just_going(void **state) {
    rig r = rig_open(*state);
    char sql[400];
    dur_orchestration_item item = take(&r, "a");
    dur_turn_commit turn = born_turn(&item);
    round_thread t = { .r = &r, .turn = &turn };
    PGconn *other = PQconnectdb(pg_server());
    snprintf(sql, sizeof(sql), "BEGIN; UPDATE %s.dur_owners SET dead = 1 WHERE owner = 'o'; DELETE FROM %s.dur_lanes",
             r.p->schema, r.p->schema);
    pg_do(other, sql);
    pthread_create(&t.thread, NULL, run_it, &t);
    snprintf(sql, sizeof(sql),
             "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'durite_%s' AND wait_event_type = 'Lock'",
             r.p->schema);
    while (pg_number(r.p->db, sql) == 0)
        pg_pause_ms(1);
    pg_do(other, "COMMIT");
    PQfinish(other);
    pthread_join(t.thread, NULL);
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    assert_int_equal(count(&r, "instances", "true"), 0);
    rig_close(&r);
}

/* ---- the answer to the commit is lost ---------------------------------------------------------------------------- */

static void cut_birth(pg_bench *p, int mode) {
    bench *b = &p->b;
    proxy x;
    if (!proxy_open(&x, "event-one")) skip();
    rig r = rig_on(p, proxy_store(&x, p));
    dur_orchestration_item item = take(&r, "a");
    dur_turn_commit turn = born_turn(&item);
    dur_round round = { .turns = &turn, .turn_count = 1 };
    atomic_store(&x.mode, mode);
    int code = dur_store_lane_round(r.lane, b->arena, &round, &b->err);
    assert_int_equal(atomic_load(&x.cuts), 1);
    assert_int_equal(code, DUR_EUNKNOWN);
    assert_int_equal(turn.fault, DUR_TURN_STORE);
    assert_int_equal(turn.error.code, DUR_EUNKNOWN);
    assert_int_equal(count(&r, "instances", "instance_id = 'a'"), mode == PROXY_CUT_AFTER);
    /* Who asks again learns it, by another way than a lane that does not know what it holds. */
    dur_message_row start = start_of(b, "a");
    int again = dur_store_enqueue_start(r.store, &start, DUR_EXISTS_FAIL, 0, NULL, &b->err);
    assert_int_equal(again, mode == PROXY_CUT_AFTER ? DUR_EEXISTS : DUR_OK);
    /* The next round gives up what the lost one may have made: it is not held by nobody. */
    for (int i = 0; i < 200 && code != DUR_OK; i++) { /* a session that was lost may take a moment to end */
        round = (dur_round){ .fetch = &fresh };
        code = dur_store_lane_round(r.lane, b->arena, &round, &b->err);
        if (code != DUR_OK) pg_pause_ms(10);
    }
    ASSERT_OK(b, code);
    assert_int_equal(round.lost_count, 0); /* nobody has heard of it */
    dur_message_row event = message_of(DUR_WORK_EXTERNAL_RAISED, "a");
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &event, 0, &b->err));
    if (round.item_count == 0) round = run(&r, NULL, 0, &fresh);
    assert_int_equal(round.item_count, 1);
    assert_int_equal(round.items[0].history_count, mode == PROXY_CUT_AFTER ? 1 : 0);
    (void)parked(&r, "b"); /* and makes others as before */
    dur_store_lane_close(r.lane);
    r.lane = NULL;
    dur_provider_close(r.store);
    rig_close(&r);
    proxy_close(&x);
}

static void cut_after_it_happened(void **state) {
    cut_birth(*state, PROXY_CUT_AFTER);
}
static void cut_before_it_was_sent(void **state) {
    cut_birth(*state, PROXY_CUT_BEFORE);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN); /* of the proxy */
    const struct CMUnitTest tests[] = {
        PG_TEST(rows_are_those_of_a_start_a_fetch_and_a_turn),
        PG_TEST(an_id_that_exists_is_refused_alone),
        PG_TEST(a_birth_leaves_the_rows_of_usual_turns_alone),
        PG_TEST(a_message_in_the_same_transaction_reaches_the_lease),
        PG_TEST(a_message_before_the_end_is_not_forgotten),
        PG_TEST(a_message_of_its_birth_is_given_back_at_the_end),
        PG_TEST(an_end_keeps_what_the_first_turn_has_set),
        PG_TEST(only_a_lane_makes_one),
        PG_TEST(an_owner_that_is_gone_makes_nobody),
        PG_TEST(nor_does_one_that_is_just_going),
        PG_TEST(cut_after_it_happened),
        PG_TEST(cut_before_it_was_sent),
    };
    PG_MAIN(tests);
}
