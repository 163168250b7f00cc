/*
 * test_pg_faults.c: connections that are cut while committing, owners that die, messages between nodes.
 */
#include "pg_proxy.h"
#include "provider/postgres/pg_internal.h"

/* ---- unknown outcomes -------------------------------------------------------------------------------------------- */

static void take_one(bench *b, dur_lane *lane, const char *owner, dur_round *round) {
    static dur_fetch how;
    how = (dur_fetch){ .owner = owner, .max = 5 };
    int code = DUR_EBUSY;
    for (int i = 0; i < 100 && code != DUR_OK; i++) { /* a session that was lost may take a moment to end */
        *round = (dur_round){ .fetch = &how };
        code = dur_store_lane_round(lane, b->arena, round, &b->err);
        if (code != DUR_OK) {
            assert_true(b->err.retryable);
            pg_pause_ms(10);
        }
    }
    ASSERT_OK(b, code);
}

/* Two events, the first committed; the commit of the second is cut. */
static void cut_commit(pg_bench *p, int mode) {
    bench *b = &p->b;
    proxy x;
    dur_lane *lane;
    dur_round round;
    if (!proxy_open(&x, "event-two")) skip(); /* ‘history’ is written only by commits */
    dur_provider *store = proxy_store(&x, p);
    dur_owner_options owner = { .owner = "o" };
    dur_lane_options options = { .owner = "o", .waker = dur_waker_new() };
    ASSERT_OK(b, dur_store_owner_register(store, &owner, &b->err));
    ASSERT_OK(b, dur_store_lane_open(store, &options, &lane, &b->err));
    dur_message_row start = start_of(b, "a");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    take_one(b, lane, "o", &round);
    assert_int_equal(round.item_count, 1);
    dur_orchestration_item item = round.items[0];
    dur_event_row events[3] = { event_of(1), event_of(2), event_of(3) };
    events[1].json = text_of("{\"x\":\"event-two\"}");
    uint64_t consumed = item.messages[0].id;
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .instance = "a",
                             .execution_id = 1,
                             .events = &events[0],
                             .event_count = 1,
                             .metadata = named(),
                             .expected_last = 0,
                             .consume_listed = true,
                             .consumed = &consumed,
                             .consumed_count = 1,
                             .owner = "o",
                             .keep_lease = true };
    round = (dur_round){ .turns = &turn, .turn_count = 1 };
    ASSERT_OK(b, dur_store_lane_round(lane, b->arena, &round, &b->err));
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_true(turn.lease_kept);
    dur_message_row start_b = start_of(b, "b"); /* the lost round would claim this one */
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start_b, 0, &b->err));
    dur_fetch how = { .owner = "o", .max = 5 };
    turn.events = &events[1];
    turn.expected_last = 1;
    turn.consumed_count = 0;
    turn.metadata = (dur_execution_metadata){ 0 };
    round = (dur_round){ .turns = &turn, .turn_count = 1, .fetch = &how };
    atomic_store(&x.mode, mode);
    int code = dur_store_lane_round(lane, b->arena, &round, &b->err);
    assert_int_equal(atomic_load(&x.cuts), 1);
    assert_int_equal(code, DUR_EUNKNOWN);
    assert_true(round.settles);
    assert_int_equal(turn.fault, DUR_TURN_STORE);
    dur_event_row *rows;
    size_t count;
    ASSERT_OK(b, dur_store_read(b->store, b->arena, "a", 1, &rows, &count, &b->err));
    assert_int_equal(count, mode == PROXY_CUT_AFTER ? 2 : 1);
    /* The next round finds out what it holds: nothing of the lost round stays claimed by nobody, and what it held
       before it holds still. */
    size_t seen = 0;
    for (int i = 0; i < 20 && seen < 1; i++) {
        take_one(b, lane, "o", &round);
        assert_int_equal(round.lost_count, 0);
        for (size_t k = 0; k < round.item_count; k++)
            seen += strcmp(round.items[k].instance, "b") == 0;
        pg_pause_ms(10);
    }
    assert_int_equal(seen, 1);
    turn.events = &events[count];
    turn.expected_last = count;
    atomic_store(&x.mode, PROXY_PASS);
    round = (dur_round){ .turns = &turn, .turn_count = 1 };
    ASSERT_OK(b, dur_store_lane_round(lane, b->arena, &round, &b->err));
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    dur_store_lane_close(lane);
    ASSERT_OK(b, dur_store_owner_release(store, "o", &b->err));
    dur_provider_close(store);
    dur_waker_free(options.waker);
    proxy_close(&x);
}

static void cut_after_the_commit_was_sent(void **state) {
    cut_commit(*state, PROXY_CUT_AFTER);
}
static void cut_before_the_commit_was_sent(void **state) {
    cut_commit(*state, PROXY_CUT_BEFORE);
}

/* What the lost round handed out is handed out again; what nobody knows of is given back, and what is gone is told. */
static void what_was_lost_is_found(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_owner_options owner = { .owner = "o" };
    dur_lane_options options = { .owner = "o", .waker = dur_waker_new() };
    dur_lane *lane;
    dur_round round;
    dur_message_row start = start_of(b, "a"), other = start_of(b, "gone"),
                    event = message_of(DUR_WORK_EXTERNAL_RAISED, "a");
    ASSERT_OK(b, dur_store_owner_register(b->store, &owner, &b->err));
    ASSERT_OK(b, dur_store_lane_open(b->store, &options, &lane, &b->err));
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    take_one(b, lane, "o", &round);
    assert_int_equal(round.item_count, 1);
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &other, 0, &b->err));
    take_one(b, lane, "o", &round);
    assert_int_equal(round.item_count, 1);
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &event, 0, &b->err));
    take_one(b, lane, "o", &round);
    assert_int_equal(round.held_count, 1);
    dur__pg_lane *self = (dur__pg_lane *)(void *)lane;
    self->unknown = true; /* as if that round had not been answered */
    self->unknown_round = self->rounds;
    pg_do(p->db, dur_arena_format(b->arena,
                                  "UPDATE %s.dur_instances SET token = NULL, owner = NULL, holder = NULL WHERE"
                                  " instance_id = 'gone'; UPDATE %s.dur_queue SET delivered = 0 WHERE instance_id ="
                                  " 'gone'; INSERT INTO %s.dur_instances (instance_id, known, has_row, token, owner,"
                                  " holder, acquisitions) SELECT 'unknown', true, true, 't', 'o', holder, 1 FROM"
                                  " %s.dur_lanes",
                                  p->schema, p->schema, p->schema, p->schema));
    take_one(b, lane, "o", &round);
    assert_int_equal(round.held_count, 1);
    assert_string_equal(round.held[0].instance, "a");
    assert_int_equal(round.held[0].message.attempt_count, 1);
    assert_int_equal(round.lost_count, 1);
    assert_string_equal(round.lost[0], "gone");
    assert_int_equal(pg_number(p->db, dur_arena_format(b->arena,
                                                       "SELECT count(*) FROM %s.dur_instances WHERE instance_id ="
                                                       " 'unknown' AND token IS NULL AND acquisitions = 0",
                                                       p->schema)),
                     1);
    dur_store_lane_close(lane);
    ASSERT_OK(b, dur_store_owner_release(b->store, "o", &b->err));
    dur_waker_free(options.waker);
}

/* A lease that is asked for is asked for once; not where nobody heard it. */
static void fault_h156_what_a_lost_round_asked_for_is_asked_for_again(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_owner_options owner = { .owner = "o" };
    dur_lane_options options = { .owner = "o", .waker = dur_waker_new() };
    dur_lane *lane;
    dur_round round;
    dur_message_row start = start_of(b, "a"), other = start_of(b, "b");
    ASSERT_OK(b, dur_store_owner_register(b->store, &owner, &b->err));
    ASSERT_OK(b, dur_store_lane_open(b->store, &options, &lane, &b->err));
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &other, 0, &b->err));
    take_one(b, lane, "o", &round);
    assert_int_equal(round.item_count, 2);
    ASSERT_OK(b, dur_store_set_suspended(b->store, "a", "why", &b->err));
    take_one(b, lane, "o", &round);
    assert_int_equal(round.asked_count, 1);
    dur__pg_lane *self = (dur__pg_lane *)(void *)lane;
    for (int i = 0; i < 2; i++) {
        self->unknown = i == 0; /* as if that round had not been answered */
        self->unknown_round = self->rounds;
        take_one(b, lane, "o", &round);
        assert_int_equal(round.asked_count, i == 0);
        assert_int_equal(round.lost_count, 0);
        if (i == 0) assert_string_equal(round.asked[0], "a");
    }
    dur_store_lane_close(lane);
    ASSERT_OK(b, dur_store_owner_release(b->store, "o", &b->err));
    dur_waker_free(options.waker);
}

/* ---- owners ------------------------------------------------------------------------------------------------------ */

static void kill_sessions(pg_bench *p, const char *name) {
    char sql[256];
    snprintf(sql, sizeof(sql), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '%s'",
             name);
    pg_do(p->db, sql);
}

static dur_provider *open_named(pg_bench *p, const char *name) {
    dur_provider *store = NULL;
    char url[1200];
    snprintf(url, sizeof(url), "%s&schema=%s&application_name=%s_%s", pg_server(), p->schema, name, p->schema);
    ASSERT_OK(&p->b, dur_open(&store, url, &p->b.err));
    return store;
}

/* A beats while its sessions are terminated again and again: B never takes it for dead. */
static void a_live_owner_is_not_taken_over(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    char name[128];
    dur_provider *a = open_named(p, "a"), *other = open_named(p, "b");
    dur_owner_options first = { .owner = "one" }, second = { .owner = "two" };
    dur_owner_report report;
    ASSERT_OK(b, dur_store_owner_register(a, &first, &b->err));
    ASSERT_OK(b, dur_store_owner_register(other, &second, &b->err));
    snprintf(name, sizeof(name), "a_%s", p->schema);
    for (int i = 0; i < 8; i++) {
        kill_sessions(p, name);
        pg_pause_ms(250);
        int code = dur_store_owner_beat(a, "one", &report, &b->err);
        if (code != DUR_OK) assert_true(b->err.retryable);
        ASSERT_OK(b, dur_store_owner_beat(other, "two", &report, &b->err));
        assert_int_equal(report.taken_over, 0);
        assert_int_equal(report.peers, 1);
    }
    ASSERT_OK(b, dur_store_owner_release(a, "one", &b->err));
    ASSERT_OK(b, dur_store_owner_release(other, "two", &b->err));
    dur_provider_close(a);
    dur_provider_close(other);
}

/* A's process is gone, and with it its lock: B has its leases long before the timeout. */
static void a_dead_owner_is_taken_over_early(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    char name[128];
    dur_provider *a = open_named(p, "a");
    dur_owner_options first = { .owner = "one", .timeout_ms = DUR_HOURS(1) }, second = { .owner = "two" };
    dur_owner_report report = { 0 };
    dur_orchestration_item item;
    size_t count = 0;
    dur_message_row start = start_of(b, "x");
    ASSERT_OK(b, dur_store_owner_register(a, &first, &b->err));
    ASSERT_OK(b, dur_store_owner_register(b->store, &second, &b->err));
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    dur_fetch how = { .owner = "one", .max = 1 };
    ASSERT_OK(b, dur_store_fetch_turns(a, b->arena, &how, &item, &count, &b->err));
    assert_int_equal(count, 1);
    snprintf(name, sizeof(name), "a_%s", p->schema);
    kill_sessions(p, name);          /* and it never comes back */
    while (report.taken_over == 0) { /* its silence would be noticed in an hour */
        ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
        pg_pause_ms(100);
    }
    assert_int_equal(report.taken_over, 1);
    assert_int_equal(report.freed, 1);
    assert_string_equal(report.last_dead, "one");
    how.owner = "two";
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &how, &item, &count, &b->err));
    assert_int_equal(count, 1);
    assert_int_equal(item.acquisitions, 2);
    ASSERT_OK(b, dur_store_owner_beat(a, "one", &report, &b->err)); /* it comes back after all */
    assert_false(report.still_ours);
    ASSERT_OK(b, dur_store_owner_release(b->store, "two", &b->err));
    dur_provider_close(a);
}

/* Somebody holds one of the two rows, and whoever took the owner for dead stops there: another node finishes it. Should
   the dead one live after all it is told. */
static void what_one_has_begun_another_finishes(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    char name[128], sql[256];
    dur_provider *a = open_named(p, "a"), *other = open_named(p, "c");
    dur_owner_options first = { .owner = "one", .timeout_ms = DUR_HOURS(1) }, second = { .owner = "two" },
                      third = { .owner = "three" };
    dur_lane_options options = { .owner = "one", .waker = dur_waker_new() };
    dur_owner_report report = { 0 };
    dur_lane *lane;
    dur_round round;
    dur_message_row x = start_of(b, "x"), y = start_of(b, "y");
    ASSERT_OK(b, dur_store_owner_register(a, &first, &b->err));
    ASSERT_OK(b, dur_store_owner_register(b->store, &second, &b->err));
    ASSERT_OK(b, dur_store_owner_register(other, &third, &b->err));
    ASSERT_OK(b, dur_store_lane_open(a, &options, &lane, &b->err));
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &x, 0, &b->err));
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &y, 0, &b->err));
    take_one(b, lane, "one", &round);
    assert_int_equal(round.item_count, 2);
    snprintf(sql, sizeof(sql), "BEGIN; SELECT 1 FROM %s.dur_instances WHERE instance_id = 'y' FOR UPDATE", p->schema);
    PGconn *holder = PQconnectdb(pg_server());
    pg_do(holder, sql);
    snprintf(name, sizeof(name), "a_%s", p->schema);
    kill_sessions(p, name);
    while (report.taken_over == 0) {
        ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
        pg_pause_ms(100);
    }
    assert_int_equal(report.freed, 1);
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s.dur_owners WHERE owner = 'one' AND dead = 1", p->schema);
    long marked = pg_number(p->db, sql);
    int code = dur_store_owner_beat(a, "one", &report, &b->err);
    bool lives = report.still_ours;
    dur_fetch how = { .owner = "one", .max = 5 };
    round = (dur_round){ .fetch = &how };
    if (code == DUR_OK) code = dur_store_lane_round(lane, b->arena, &round, &b->err);
    PQfinish(holder); /* whatever came of it: the schema is to be dropped */
    ASSERT_OK(b, code);
    assert_int_equal(marked, 1);
    assert_false(lives);
    assert_int_equal(round.item_count, 0); /* x is free, and nothing is taken under this name any more */
    ASSERT_OK(b, dur_store_owner_beat(other, "three", &report, &b->err));
    assert_int_equal(report.freed, 1);
    assert_int_equal(report.taken_over, 0); /* it was another's */
    assert_int_equal(pg_number(p->db, sql), 0);
    dur_store_lane_close(lane);
    ASSERT_OK(b, dur_store_owner_release(b->store, "two", &b->err));
    ASSERT_OK(b, dur_store_owner_release(other, "three", &b->err));
    dur_waker_free(options.waker);
    dur_provider_close(other);
    dur_provider_close(a);
}

/* What the server's clock says is no evidence: here it says something else to each of the two, as after a jump. */
static void clocks_that_jump_kill_nobody(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *stores[2] = { NULL, NULL };
    static const char *const owners[2] = { "behind", "ahead" };
    dur_owner_report report;
    char url[1200];
    for (int i = 0; i < 2; i++) {
        dur_owner_options options = { .owner = owners[i], .timeout_ms = 1500 };
        snprintf(url, sizeof(url), "%s&options=-c%%20durite.clock_offset_ms%%3D%d", p->url, i * 3600000);
        ASSERT_OK(b, dur_open(&stores[i], url, &b->err));
        ASSERT_OK(b, dur_store_owner_register(stores[i], &options, &b->err));
    }
    for (int i = 0; i < 12; i++) { /* beyond the timeout of both */
        ASSERT_OK(b, dur_store_owner_beat(stores[i % 2], owners[i % 2], &report, &b->err));
        assert_true(report.still_ours);
        assert_int_equal(report.taken_over, 0);
        assert_int_equal(report.peers, 1);
        pg_pause_ms(200);
    }
    /* Each sees that the other is silent, after the timeout and not before. */
    for (int i = 0; i < 2; i++) {
        dur_owner_options silent = { .owner = "silent", .timeout_ms = 1500 };
        ASSERT_OK(b, dur_store_owner_register(stores[1 - i], &silent, &b->err));
        uint64_t begin_ms = pg_monotonic_ms();
        do {
            pg_pause_ms(100);
            ASSERT_OK(b, dur_store_owner_beat(stores[1 - i], owners[1 - i], &report, &b->err));
            if (report.taken_over == 0) ASSERT_OK(b, dur_store_owner_beat(stores[i], owners[i], &report, &b->err));
        } while (report.taken_over == 0);
        assert_string_equal(report.last_dead, "silent");
        assert_true(pg_monotonic_ms() - begin_ms >= 1500);
    }
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(b, dur_store_owner_release(stores[i], owners[i], &b->err));
        dur_provider_close(stores[i]);
    }
}

typedef struct beater {
    dur_provider *store;
    const char *owner;
    dur_owner_report report;
    dur_error err;
    int code;
} beater;

static void *beat_once(void *arg) {
    beater *who = arg;
    who->code = dur_store_owner_beat(who->store, who->owner, &who->report, &who->err);
    return NULL;
}

/* While the server stands still nobody's beat gets through; who comes first afterwards has seen no silence. */
static void a_server_that_stood_still_kills_nobody(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *a = open_named(p, "a");
    dur_owner_options first = { .owner = "one", .timeout_ms = 1000 }, second = { .owner = "two" };
    beater two = { .store = b->store, .owner = "two", .err = DUR_ERROR_INIT };
    pthread_t thread;
    char sql[400];
    ASSERT_OK(b, dur_store_owner_register(a, &first, &b->err));
    ASSERT_OK(b, dur_store_owner_register(b->store, &second, &b->err));
    beat_once(&two);
    ASSERT_OK(b, two.code);
    snprintf(sql, sizeof(sql), "BEGIN; LOCK TABLE %s.dur_owners", p->schema);
    pg_do(p->db, sql);
    assert_int_equal(pthread_create(&thread, NULL, beat_once, &two), 0);
    snprintf(sql, sizeof(sql),
             "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '%s.dur_owners'::regclass", p->schema);
    while (pg_number(p->db, sql) == 0)
        pg_pause_ms(5);
    pg_pause_ms(1500); /* longer than one's timeout */
    pg_do(p->db, "COMMIT");
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (two.code != DUR_OK) assert_true(two.err.retryable);
    assert_int_equal(two.report.taken_over, 0);
    ASSERT_OK(b, dur_store_owner_beat(a, "one", &two.report, &b->err));
    assert_true(two.report.still_ours);
    ASSERT_OK(b, dur_store_owner_release(a, "one", &b->err));
    ASSERT_OK(b, dur_store_owner_release(b->store, "two", &b->err));
    dur_provider_close(a);
}

/* ---- wake-ups ---------------------------------------------------------------------------------------------------- */

typedef struct sender {
    pg_bench *p;
    dur_provider *store;
} sender;

static void *send_later(void *arg) {
    sender *s = arg;
    dur_message_row raised = message_of(DUR_WORK_EXTERNAL_RAISED, "a");
    pg_pause_ms(100);
    (void)dur_store_enqueue_for_orchestrator(s->store, &raised, 0, NULL);
    return NULL;
}

static void a_message_of_another_node_wakes_the_holder(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *other = open_named(p, "b");
    dur_owner_options owner = { .owner = "o" };
    dur_lane_options options = { .owner = "o", .waker = dur_waker_new() };
    dur_lane *lane;
    dur_round round;
    dur_message_row start = start_of(b, "a");
    pthread_t thread;
    ASSERT_OK(b, dur_store_owner_register(b->store, &owner, &b->err));
    ASSERT_OK(b, dur_store_lane_open(b->store, &options, &lane, &b->err));
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    take_one(b, lane, "o", &round);
    assert_int_equal(round.item_count, 1);
    take_one(b, lane, "o", &round);
    sender s = { p, other };
    uint64_t began = pg_monotonic_ms();
    assert_int_equal(pthread_create(&thread, NULL, send_later, &s), 0);
    size_t held = 0;
    while (held == 0) {
        ASSERT_OK(b, dur_store_lane_wait(lane, 5000, &b->err));
        take_one(b, lane, "o", &round);
        held = round.held_count;
    }
    pthread_join(thread, NULL);
    assert_int_equal(held, 1);
    uint64_t took = pg_monotonic_ms() - began;
    print_message("seen %llu ms after it was sent\n", (unsigned long long)(took - 100));
    if (getenv("DURITE_TEST_TIMES") != NULL) assert_true(took < 600); /* sooner than the look each second */
    take_one(b, lane, "o", &round);
    assert_int_equal(round.held_count, 0); /* handed out once */
    dur_store_lane_close(lane);
    ASSERT_OK(b, dur_store_owner_release(b->store, "o", &b->err));
    dur_waker_free(options.waker);
    dur_provider_close(other);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(cut_after_the_commit_was_sent),
        PG_TEST(cut_before_the_commit_was_sent),
        PG_TEST(what_was_lost_is_found),
        PG_TEST(fault_h156_what_a_lost_round_asked_for_is_asked_for_again),
        PG_TEST(a_live_owner_is_not_taken_over),
        PG_TEST(a_dead_owner_is_taken_over_early),
        PG_TEST(what_one_has_begun_another_finishes),
        PG_TEST(clocks_that_jump_kill_nobody),
        PG_TEST(a_server_that_stood_still_kills_nobody),
        PG_TEST(a_message_of_another_node_wakes_the_holder),
    };
    signal(SIGPIPE, SIG_IGN); /* of the proxy */
    PG_MAIN(tests);
}
