/*
 * test_pg_hearing.c: lanes tell of their rounds where somebody in another process listens, and only there.
 *
 * A second store on the same schema stands for the other process.  An ear is a session that listens and does not say
 * so: it hears what is sent and changes nothing.
 */
#include "pg_rig.h"

#include <durite/durite.h>

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#define PATIENCE_MS 60000u
#define BELOW_LOOK_MS 400u /* a watch that comes back with a change before its look has been told of it */

static dur__pg_lane *lane_of(const rig *r) {
    return (dur__pg_lane *)(void *)r->lane;
}

static bool unheard(dur_provider *store) {
    return atomic_load(&dur__pg_of(store)->unheard);
}

static unsigned greetings(dur_provider *store) {
    return atomic_load(&dur__pg_of(store)->greetings);
}

#define AWAIT(condition)                                                                                               \
    do {                                                                                                               \
        uint64_t end_ms_ = pg_monotonic_ms() + PATIENCE_MS;                                                            \
        while (!(condition)) {                                                                                         \
            if (pg_monotonic_ms() > end_ms_) fail_msg("never: %s", #condition);                                        \
            pg_pause_ms(2);                                                                                            \
        }                                                                                                              \
    } while (0)

/* ---- who listens ------------------------------------------------------------------------------------------------- */

typedef struct sounds {
    int notes, greetings;
} sounds;

static sounds hear(PGconn *ear) {
    sounds heard = { 0, 0 };
    PGnotify *note;
    pg_do(ear, "SELECT 1"); /* what was sent before comes with the answer */
    while ((note = PQnotifies(ear)) != NULL) {
        if (strcmp(note->extra, DUR__PG_GREETING) == 0)
            heard.greetings++;
        else
            heard.notes++;
        PQfreemem(note);
    }
    return heard;
}

static PGconn *ear_open(pg_bench *p) {
    PGconn *ear = PQconnectdb(pg_server());
    pg_do(ear, dur_arena_format(p->b.arena, "LISTEN %s", dur__pg_of(p->b.store)->channel));
    return ear;
}

/* Sessions that say that they listen; backend 0: all. */
static long listeners(pg_bench *p, int backend) {
    return pg_number(p->db,
                     dur_arena_format(p->b.arena,
                                      "SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database WHERE"
                                      " d.datname = current_database() AND l.locktype = 'advisory' AND l.granted AND"
                                      " l.mode = 'ShareLock' AND l.classid::bigint << 32 | l.objid::bigint = %lld AND"
                                      " l.objsubid = 1 AND %d IN (0, l.pid)",
                                      (long long)dur__pg_hearing_key(dur__pg_of(p->b.store)), backend));
}

static dur_provider *other_open(pg_bench *p) {
    dur_provider *store = NULL;
    const char *url =
        dur_arena_format(p->b.arena, "%s&schema=%s&application_name=other_%s", pg_server(), p->schema, p->schema);
    ASSERT_OK(&p->b, dur_open(&store, url, &p->b.err));
    return store;
}

static void end_sessions(pg_bench *p, const char *which) {
    pg_do(p->db,
          dur_arena_format(p->b.arena, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE %s", which));
    AWAIT(pg_number(p->db, dur_arena_format(p->b.arena, "SELECT count(*) FROM pg_stat_activity WHERE %s", which)) == 0);
}

static dur_watch *watch_open(pg_bench *p, dur_provider *store, const char *instance) {
    dur_watch *watch;
    ASSERT_OK(&p->b, dur_store_watch_open(store, instance, &watch, &p->b.err));
    return watch;
}

static bool told(pg_bench *p, dur_watch *watch, uint64_t within_ms) {
    assert_true(within_ms <= BELOW_LOOK_MS);
    int code = dur_store_watch_wait(watch, within_ms, &p->b.err);
    assert_true(code == DUR_OK || code == DUR_ETIMEOUT);
    return code == DUR_OK;
}

static void beat(pg_bench *p, dur_provider *store, const char *owner) {
    dur_owner_report report;
    ASSERT_OK(&p->b, dur_store_owner_beat(store, owner, &report, &p->b.err));
    assert_true(report.still_ours);
}

/* ---- lanes ------------------------------------------------------------------------------------------------------- */

/* Until it sleeps through: then it has told what it had to tell, and has seen what it was told. */
static void rest(rig *r) {
    bench *b = &r->p->b;
    for (int rounds = 0;; rounds++) {
        ASSERT_OK(b, dur_store_lane_wait(r->lane, 10, &b->err));
        if (!atomic_load(&lane_of(r)->news)) return;
        assert_true(rounds < 1000);
        (void)run(r, NULL, 0, NULL);
    }
}

/* The last notification was long ago. */
static void may_tell(rig *r) {
    atomic_store(&lane_of(r)->store->notified_us, 0);
}

/* One that has beaten, and found nobody. */
static rig rig_alone(pg_bench *p) {
    rig r = rig_open(p);
    beat(p, p->b.store, "o");
    rest(&r);
    assert_true(unheard(p->b.store));
    return r;
}

/* A further lane, of this store and owner. */
static rig rig_beside(pg_bench *p, dur_provider *store, const char *owner) {
    rig r = { .p = p, .waker = dur_waker_new() };
    dur_lane_options options = { .owner = owner, .waker = r.waker };
    ASSERT_OK(&p->b, dur_store_lane_open(store, &options, &r.lane, &p->b.err));
    (void)run(&r, NULL, 0, NULL);
    return r;
}

static dur_turn_commit last_turn(const dur_orchestration_item *item, const dur_event_row *event) {
    dur_turn_commit turn = turn_of(item, event, event->event_id - 1);
    turn.keep_lease = false;
    turn.metadata.status = DUR_STATUS_COMPLETED;
    turn.metadata.output = "done";
    return turn;
}

static void finish(rig *r, const dur_orchestration_item *item, uint64_t expected) {
    dur_event_row event = event_of(expected + 1);
    dur_turn_commit turn = last_turn(item, &event);
    (void)run(r, &turn, 1, NULL);
}

static void send_to(rig *r, const dur_orchestration_item *item, uint64_t expected, const char *instance) {
    dur_event_row event = event_of(expected + 1);
    dur_turn_commit turn = turn_of(item, &event, expected);
    dur_message message = message_of(DUR_WORK_EXTERNAL_RAISED, instance);
    turn.orchestrator_items = &message;
    turn.orchestrator_item_count = 1;
    (void)run(r, &turn, 1, NULL);
}

/* What was sent to the lane is there for its next look at the socket. */
static void something_arrives(rig *r) {
    struct pollfd watched = { .fd = PQsocket(lane_of(r)->conn->pg), .events = POLLIN };
    assert_int_equal(poll(&watched, 1, (int)PATIENCE_MS), 1);
}

/* Whether it tells of a message for another instance, and of ends, before it sleeps and by its next round. */
static void expect_told(rig *r, PGconn *ear, bool expected) {
    static int serial;
    dur_orchestration_item items[3];
    for (int i = 0; i < 3; i++)
        items[i] = begun(r, dur_arena_format(r->p->b.arena, "i%d", ++serial));
    rest(r);
    (void)hear(ear);
    send_to(r, &items[0], 1, items[1].instance);
    rest(r);
    assert_int_equal(hear(ear).notes > 0, expected);
    finish(r, &items[0], 2);
    rest(r);
    assert_int_equal(hear(ear).notes > 0, expected);
    finish(r, &items[2], 1);
    assert_int_equal(hear(ear).notes, 0);
    may_tell(r);
    (void)run(r, NULL, 0, NULL);
    assert_int_equal(hear(ear).notes > 0, expected);
}

/* ---- a statement that stands still ------------------------------------------------------------------------------- */

/* From here on a statement that updates this table has done its work and does not come back. */
static void hold_updates(pg_bench *p, const char *table) {
    pg_do(p->db, dur_arena_format(
                     p->b.arena,
                     "SELECT pg_advisory_lock(hashtextextended('%s', 0)); CREATE FUNCTION %s.hold() RETURNS trigger"
                     " LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('lock_timeout', '0', true); PERFORM"
                     " pg_advisory_xact_lock_shared(hashtextextended('%s', 0)); RETURN NULL; END $$;"
                     "CREATE TRIGGER hold AFTER UPDATE ON %s.dur_%s FOR EACH STATEMENT EXECUTE FUNCTION %s.hold()",
                     p->schema, p->schema, p->schema, p->schema, table, p->schema));
}

static void await_held(pg_bench *p) {
    const char *sql = dur_arena_format(p->b.arena,
                                       "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND"
                                       " classid::bigint << 32 | objid::bigint = hashtextextended('%s', 0)",
                                       p->schema);
    AWAIT(pg_number(p->db, sql) == 1);
}

static void let_go(pg_bench *p) {
    pg_do(p->db, dur_arena_format(p->b.arena, "SELECT pg_advisory_unlock(hashtextextended('%s', 0))", p->schema));
}

/* Something that a lane or its owner does while the test does something else. */
typedef struct aside {
    rig *r;
    const dur_orchestration_item *item; /* to finish */
    int code;
    bool still_ours;
    dur_error err;
    pthread_t thread;
} aside;

static void *finish_aside(void *arg) {
    aside *a = arg;
    dur_arena *arena = dur_arena_new();
    dur_event_row event = event_of(2);
    dur_turn_commit turn = last_turn(a->item, &event);
    dur_round round = { .turns = &turn, .turn_count = 1 };
    a->code = dur_store_lane_round(a->r->lane, arena, &round, &a->err);
    a->still_ours = turn.fault == DUR_TURN_FINE;
    dur_arena_free(arena);
    return NULL;
}

static void *beat_aside(void *arg) {
    aside *a = arg;
    dur_owner_report report = { .still_ours = false };
    a->code = dur_store_owner_beat(a->r->p->b.store, "o", &report, &a->err);
    a->still_ours = report.still_ours;
    return NULL;
}

static void *sleep_aside(void *arg) {
    aside *a = arg;
    a->code = dur_store_lane_wait(a->r->lane, PATIENCE_MS, &a->err);
    a->still_ours = true;
    return NULL;
}

static void aside_begin(aside *a, void *(*what)(void *)) {
    assert_int_equal(pthread_create(&a->thread, NULL, what, a), 0);
}

static void aside_end(aside *a) {
    pthread_join(a->thread, NULL);
    if (a->code != DUR_OK) fail_msg("%s", a->err.message);
    assert_true(a->still_ours);
}

/* ---- nobody ------------------------------------------------------------------------------------------------------ */

static void alone_a_lane_tells_nobody(void **state) {
    pg_bench *p = *state;
    rig r = rig_open(p);
    PGconn *ear = ear_open(p);
    assert_false(unheard(p->b.store)); /* nobody has looked yet */
    expect_told(&r, ear, true);
    beat(p, p->b.store, "o");
    assert_true(unheard(p->b.store));
    expect_told(&r, ear, false);
    PQfinish(ear);
    rig_close(&r);
}

/* What was owed when it was found that nobody listens is not told later, when somebody does and has looked. */
static void what_nobody_was_to_hear_is_forgotten(void **state) {
    pg_bench *p = *state;
    rig r = rig_alone(p);
    dur_orchestration_item item = begun(&r, "x");
    rest(&r);
    PGconn *ear = ear_open(p);
    finish(&r, &item, 1);
    rest(&r);
    atomic_store(&dur__pg_of(p->b.store)->unheard, false);
    rest(&r);
    assert_int_equal(hear(ear).notes, 0);
    PQfinish(ear);
    rig_close(&r);
}

/* Two lanes and a watch hear what they need directly. */
static void sessions_of_ones_own_do_not_count(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    rig r = rig_open(p), beside = rig_beside(p, b->store, "o");
    dur_watch *watch = watch_open(p, b->store, "x");
    assert_int_equal(listeners(p, 0), 3);
    rest(&r); /* what they have greeted each other with is no reason, either */
    rest(&beside);
    assert_false(told(p, watch, 20));
    assert_int_equal(greetings(b->store), 0);
    beat(p, b->store, "o");
    assert_true(unheard(b->store));
    PGconn *ear = ear_open(p);
    expect_told(&r, ear, false);
    assert_true(unheard(b->store));
    dur_orchestration_item item = begun(&r, "x");
    finish(&r, &item, 1);
    assert_true(told(p, watch, BELOW_LOOK_MS));
    PQfinish(ear);
    dur_store_watch_close(watch);
    rig_close(&beside);
    rig_close(&r);
}

/* Nor do those of another schema, in the same database. */
static void another_schema_is_another_world(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *other = NULL;
    rig r = rig_alone(p);
    PGconn *ear = ear_open(p);
    const char *url = dur_arena_format(b->arena, "%s&schema=%s_2", pg_server(), p->schema);
    ASSERT_OK(b, dur_open(&other, url, &b->err));
    dur_watch *watch = watch_open(p, other, "x");
    rest(&r);
    assert_int_equal(hear(ear).greetings, 0);
    beat(p, b->store, "o");
    assert_true(unheard(b->store));
    dur_store_watch_close(watch);
    dur_provider_close(other);
    pg_do(p->db, dur_arena_format(b->arena, "SET client_min_messages = error; DROP SCHEMA %s_2 CASCADE", p->schema));
    PQfinish(ear);
    rig_close(&r);
}

/* ---- somebody comes ---------------------------------------------------------------------------------------------- */

static void a_watch_elsewhere_is_heard_of_at_once(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    rig r = rig_alone(p);
    dur_orchestration_item x = begun(&r, "x"), y = begun(&r, "y");
    rest(&r);
    PGconn *ear = ear_open(p);
    dur_provider *other = other_open(p);
    dur_watch *watch = watch_open(p, other, "x");
    assert_int_equal(hear(ear).greetings, 1);
    assert_false(told(p, watch, 20));
    something_arrives(&r);
    finish(&r, &x, 1);
    assert_false(unheard(b->store)); /* without a beat */
    assert_int_equal(greetings(b->store), 1);
    assert_int_equal(hear(ear).notes, 0);
    may_tell(&r);
    ASSERT_OK(b, dur_store_lane_wait(r.lane, 20, &b->err)); /* before it sleeps */
    assert_int_equal(hear(ear).notes, 1);
    assert_true(told(p, watch, BELOW_LOOK_MS));
    rest(&r);
    assert_int_equal(hear(ear).notes, 0); /* once is enough */
    finish(&r, &y, 1);
    may_tell(&r);
    (void)run(&r, NULL, 0, NULL); /* and by its next round */
    assert_int_equal(hear(ear).notes, 1);
    beat(p, b->store, "o");
    assert_false(unheard(b->store));
    expect_told(&r, ear, true);
    dur_store_watch_close(watch);
    dur_provider_close(other);
    PQfinish(ear);
    rig_close(&r);
}

static void a_lane_elsewhere_is_heard_of_at_once(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    rig r = rig_alone(p);
    dur_orchestration_item item = begun(&r, "x");
    rest(&r);
    PGconn *ear = ear_open(p);
    dur_provider *other = other_open(p);
    ASSERT_OK(b, dur_store_owner_register(other, &(dur_owner_options){ .owner = "b" }, &b->err));
    rig there = rig_beside(p, other, "b");
    rest(&there);
    assert_int_equal(hear(ear).greetings, 1);
    something_arrives(&r);
    /* given back: anybody may go on with it */
    dur_event_row event = event_of(2);
    dur_turn_commit turn = turn_of(&item, &event, 1);
    turn.keep_lease = false;
    dur_message message = message_of(DUR_WORK_EXTERNAL_RAISED, "x");
    turn.orchestrator_items = &message;
    turn.orchestrator_item_count = 1;
    (void)run(&r, &turn, 1, NULL);
    assert_false(unheard(b->store));
    may_tell(&r);
    (void)run(&r, NULL, 0, NULL);
    assert_int_equal(hear(ear).notes, 1);
    assert_false(atomic_load(&lane_of(&there)->news));
    ASSERT_OK(b, dur_store_lane_wait(there.lane, BELOW_LOOK_MS, &b->err));
    assert_true(atomic_load(&lane_of(&there)->news)); /* it was told; a second without that is over without */
    dur_fetch how = { .owner = "b", .max = 8, .kind = DUR_FETCH_FRESH };
    assert_int_equal(run(&there, NULL, 0, &how).item_count, 1);
    beat(p, other, "b"); /* and the other way round */
    assert_false(unheard(other));
    rig_close(&there);
    dur_provider_close(other);
    PQfinish(ear);
    rig_close(&r);
}

/* It looks, and begins to listen, while a round commits of which nobody is to be told: then it is told all the same. */
static void who_comes_during_a_commit_is_told(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    rig r = rig_alone(p);
    dur_orchestration_item item = begun(&r, "x");
    rest(&r);
    PGconn *ear = ear_open(p);
    dur_provider *other = other_open(p);
    aside a = { .r = &r, .item = &item };
    hold_updates(p, "instances");
    aside_begin(&a, finish_aside);
    await_held(p);
    dur_watch *watch = watch_open(p, other, "x");
    assert_int_equal(count(&r, "instances", "owner = 'o'"), 1); /* what it sees with its first look */
    let_go(p);
    aside_end(&a);
    assert_int_equal(count(&r, "instances", "owner = 'o'"), 0);
    assert_int_equal(hear(ear).notes, 0);
    assert_false(told(p, watch, 20));
    AWAIT((rest(&r), !unheard(b->store))); /* with nothing to commit */
    assert_true(hear(ear).notes > 0);
    assert_true(told(p, watch, BELOW_LOOK_MS));
    dur_store_watch_close(watch);
    dur_provider_close(other);
    PQfinish(ear);
    rig_close(&r);
}

static void a_greeting_wakes_and_is_answered(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    rig r = rig_alone(p);
    PGconn *ear = ear_open(p);
    dur_provider *other = other_open(p);
    aside a = { .r = &r };
    beat(p, b->store, "o"); /* for a while it sleeps without a look of its own */
    rest(&r);
    aside_begin(&a, sleep_aside);
    AWAIT(atomic_load(&lane_of(&r)->asleep));
    dur_watch *watch = watch_open(p, other, "x");
    aside_end(&a);
    assert_true(atomic_load(&lane_of(&r)->news)); /* it has not slept to the end */
    assert_false(unheard(b->store));
    may_tell(&r);
    (void)run(&r, NULL, 0, NULL);
    assert_int_equal(hear(ear).notes, 1);
    assert_true(told(p, watch, BELOW_LOOK_MS));
    dur_store_watch_close(watch);
    dur_provider_close(other);
    PQfinish(ear);
    rig_close(&r);
}

/* Each lane may have committed something of which it has not told, whoever of them has heard the greeting. */
static void every_lane_answers(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    rig r = rig_alone(p), beside = rig_beside(p, b->store, "o");
    rest(&beside);
    rest(&r);
    beat(p, b->store, "o");
    assert_true(unheard(b->store));
    PGconn *ear = ear_open(p);
    dur_provider *other = other_open(p);
    dur_watch *watch = watch_open(p, other, "x");
    something_arrives(&r);
    (void)run(&r, NULL, 0, NULL); /* it alone has seen it */
    assert_int_equal(greetings(b->store), 1);
    assert_int_equal(hear(ear).notes, 0);
    rig *both[2] = { &r, &beside };
    for (int i = 0; i < 2; i++) {
        may_tell(both[i]);
        ASSERT_OK(b, dur_store_lane_wait(both[i]->lane, 1, &b->err));
        assert_int_equal(hear(ear).notes, 1);
    }
    dur_store_watch_close(watch);
    dur_provider_close(other);
    PQfinish(ear);
    rig_close(&beside);
    rig_close(&r);
}

/* ---- beats ------------------------------------------------------------------------------------------------------- */

/* The server has looked and found nobody, somebody comes, and then its answer arrives. */
static void a_look_before_a_greeting_says_nothing(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    rig r = rig_alone(p);
    dur_provider *other = other_open(p);
    aside a = { .r = &r };
    hold_updates(p, "owners");
    aside_begin(&a, beat_aside);
    await_held(p);
    dur_watch *watch = watch_open(p, other, "x");
    something_arrives(&r);
    (void)run(&r, NULL, 0, NULL);
    assert_false(unheard(b->store));
    let_go(p);
    aside_end(&a);
    assert_false(unheard(b->store));
    rest(&r);
    assert_true(told(p, watch, BELOW_LOOK_MS));
    dur_store_watch_close(watch);
    dur_provider_close(other);
    rig_close(&r);
}

/* The same by hand: what a look says counts where no greeting came since. */
static void looks_are_compared_with_greetings(void **state) {
    pg_bench *p = *state;
    dur__pg *store = dur__pg_of(p->b.store);
    rig r = rig_alone(p);
    unsigned before = greetings(p->b.store);
    dur_provider *other = other_open(p);
    dur_watch *watch = watch_open(p, other, "x");
    something_arrives(&r);
    (void)run(&r, NULL, 0, NULL);
    assert_int_equal(greetings(p->b.store), before + 1);
    dur__pg_saw_hearing(store, false, before);
    assert_false(unheard(p->b.store));
    dur__pg_saw_hearing(store, false, before + 1);
    assert_true(unheard(p->b.store));
    dur__pg_saw_hearing(store, true, before + 1);
    assert_false(unheard(p->b.store));
    dur_store_watch_close(watch);
    dur_provider_close(other);
    rig_close(&r);
}

/* ---- somebody goes ----------------------------------------------------------------------------------------------- */

/* A keeper and pooled sessions do not listen, and nor does a lane that is closed. */
static void who_does_not_listen_does_not_count(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    rig r = rig_alone(p);
    PGconn *ear = ear_open(p);
    dur_provider *other = other_open(p);
    ASSERT_OK(b, dur_store_owner_register(other, &(dur_owner_options){ .owner = "b" }, &b->err));
    beat(p, other, "b");
    beat(p, b->store, "o");
    assert_true(unheard(b->store));
    assert_int_equal(hear(ear).greetings, 0);
    assert_int_equal(listeners(p, 0), 1);
    rig there = rig_beside(p, other, "b");
    beat(p, b->store, "o"); /* by its lock: the greeting has not been seen yet */
    assert_false(unheard(b->store));
    (void)hear(ear);
    something_arrives(&r);
    rest(&r);
    assert_int_equal(greetings(b->store), 2); /* found by the beat, and heard */
    assert_true(hear(ear).notes > 0);         /* which is answered all the same */
    rig_close(&there);
    AWAIT(listeners(p, 0) == 1);
    assert_false(unheard(b->store)); /* until the next beat */
    beat(p, b->store, "o");
    assert_true(unheard(b->store));
    expect_told(&r, ear, false);
    dur_provider_close(other);
    PQfinish(ear);
    rig_close(&r);
}

/* It has greeted, and is gone before anybody has answered. */
static void who_has_gone_is_not_answered(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    rig r = rig_alone(p);
    PGconn *ear = ear_open(p);
    dur_provider *other = other_open(p);
    dur_store_watch_close(watch_open(p, other, "x"));
    something_arrives(&r);
    (void)run(&r, NULL, 0, NULL);
    assert_int_equal(greetings(b->store), 1);
    dur_provider_close(other);
    AWAIT(listeners(p, 0) == 1);
    beat(p, b->store, "o");
    assert_true(unheard(b->store));
    rest(&r);
    atomic_store(&dur__pg_of(b->store)->unheard, false);
    rest(&r);
    assert_int_equal(hear(ear).notes, 0);
    PQfinish(ear);
    rig_close(&r);
}

/* By its own will or not. */
static void when_the_last_one_goes_nobody_is_told(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    rig r = rig_alone(p);
    PGconn *ear = ear_open(p);
    for (int killed = 0; killed < 2; killed++) {
        dur_provider *other = other_open(p);
        dur_watch *watch = watch_open(p, other, "x");
        something_arrives(&r);
        rest(&r);
        beat(p, b->store, "o");
        assert_false(unheard(b->store));
        expect_told(&r, ear, true);
        if (killed > 0) end_sessions(p, dur_arena_format(b->arena, "application_name = 'other_%s'", p->schema));
        dur_store_watch_close(watch);
        dur_provider_close(other);
        AWAIT(listeners(p, 0) == 1);
        beat(p, b->store, "o");
        assert_true(unheard(b->store));
        expect_told(&r, ear, false);
    }
    PQfinish(ear);
    rig_close(&r);
}

/* ---- sessions that are lost -------------------------------------------------------------------------------------- */

/* Its server process is gone from the tables a moment before the socket is closed, and until then nobody here knows. */
static void end_session_of(pg_bench *p, const dur__pg_conn *conn) {
    struct pollfd closed = { .fd = PQsocket(conn->pg), .events = POLLRDHUP };
    end_sessions(p, dur_arena_format(p->b.arena, "pid = %d", conn->backend));
    assert_int_equal(poll(&closed, 1, (int)PATIENCE_MS), 1);
}

static size_t sessions_known(dur_provider *store) {
    dur__pg_array sessions = dur__pg_array_i64();
    dur__pg_args args;
    assert_int_equal(dur__pg_sessions_of_ours(dur__pg_of(store), &sessions), greetings(store));
    size_t known = sessions.count;
    dur__pg_args_begin(dur__pg_of(store), &args); /* which frees what it is given */
    dur__pg_array_arg(&args, &sessions);
    dur__pg_args_free(&args);
    return known;
}

/* It listens, says so and greets, as the first time.  The number of the lost one may be another's soon. */
static void a_new_session_of_a_lane_greets_again(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    rig r = rig_alone(p);
    PGconn *ear = ear_open(p);
    int lost = lane_of(&r)->conn->backend;
    size_t known = sessions_known(b->store);
    end_session_of(p, lane_of(&r)->conn);
    assert_int_equal(listeners(p, 0), 0);
    rest(&r);
    assert_int_not_equal(lane_of(&r)->conn->backend, lost);
    assert_int_equal(hear(ear).greetings, 1);
    assert_int_equal(listeners(p, lane_of(&r)->conn->backend), 1);
    assert_int_equal(listeners(p, 0), 1);
    assert_int_equal(sessions_known(b->store), known);
    pg_do(p->db, dur_arena_format(b->arena, "NOTIFY %s", dur__pg_of(b->store)->channel));
    something_arrives(&r);
    ASSERT_OK(b, dur_store_lane_wait(r.lane, BELOW_LOOK_MS, &b->err));
    assert_true(atomic_load(&lane_of(&r)->news));
    beat(p, b->store, "o"); /* the new one is its own, too */
    assert_true(unheard(b->store));
    PQfinish(ear);
    rig_close(&r);
}

/* Somebody came while its session was lost: from the new one on all is told; at the latest from the beat on that finds
   him, and what was not told of before then. */
static void a_greeting_that_nobody_heard_is_answered(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    rig r = rig_alone(p);
    PGconn *ear = ear_open(p);
    for (int by_a_beat = 0; by_a_beat < 2; by_a_beat++) {
        end_session_of(p, lane_of(&r)->conn);
        dur_provider *other = other_open(p);
        dur_watch *watch = watch_open(p, other, "x");
        rest(&r); /* it connects again */
        if (by_a_beat) {
            atomic_store(&dur__pg_of(b->store)->unheard, true);
            rest(&r);
            (void)hear(ear);
            may_tell(&r);
            rest(&r);
            assert_int_equal(hear(ear).notes, 0);
            beat(p, b->store, "o");
        }
        assert_false(unheard(b->store));
        may_tell(&r);
        rest(&r);
        assert_int_equal(hear(ear).notes, 1);
        assert_true(told(p, watch, BELOW_LOOK_MS));
        dur_store_watch_close(watch);
        dur_provider_close(other);
        AWAIT(listeners(p, 0) == 1);
        beat(p, b->store, "o");
        assert_true(unheard(b->store));
        (void)hear(ear);
    }
    PQfinish(ear);
    rig_close(&r);
}

/* What was told while it was away it has not heard: the greeting asks for it. */
static void a_new_session_of_a_watch_greets_again(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    rig r = rig_alone(p);
    dur_provider *other = other_open(p);
    dur_watch *watch = watch_open(p, other, "x");
    dur__pg_conn *listener = dur__pg_of(other)->listener;
    something_arrives(&r);
    rest(&r);
    PGconn *ear = ear_open(p);
    int lost = listener->backend;
    end_session_of(p, listener);
    beat(p, b->store, "o");
    assert_true(unheard(b->store));
    dur_orchestration_item item = begun(&r, "x");
    finish(&r, &item, 1);
    rest(&r);
    (void)hear(ear);
    (void)told(p, watch, 20);
    assert_int_not_equal(listener->backend, lost);
    assert_int_equal(hear(ear).greetings, 1);
    assert_int_equal(listeners(p, listener->backend), 1);
    something_arrives(&r);
    rest(&r);
    assert_true(hear(ear).notes > 0);
    assert_true(told(p, watch, BELOW_LOOK_MS));
    dur_store_watch_close(watch);
    dur_provider_close(other);
    PQfinish(ear);
    rig_close(&r);
}

/* ---- runtimes ---------------------------------------------------------------------------------------------------- */

static dur_outcome wait_for_word(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_dequeue(ctx, "q")));
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("Wait", "1.0.0", wait_for_word),
    DUR_HANDLERS_END,
};

typedef struct waiting {
    dur_client *client;
    const char *instance;
    char *result;
    int code;
    uint64_t at_ms;
    dur_error err;
    pthread_t thread;
} waiting;

static void *wait_for_end(void *arg) {
    waiting *w = arg;
    w->code = dur_client_result(&w->result, w->client, w->instance, PATIENCE_MS, &w->err);
    w->at_ms = pg_monotonic_ms();
    return NULL;
}

static bool reads(dur_provider *store) {
    dur__pg *pg = dur__pg_of(store);
    dur__mutex_lock(&pg->mutex);
    bool reading = pg->reader != NULL;
    dur__mutex_unlock(&pg->mutex);
    return reading;
}

/* A runtime that has found nobody; a client comes in another process, waits, and is told of the end at once. */
static void a_client_elsewhere_is_told_of_an_end(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_runtime *runtime;
    dur_client *here;
    ASSERT_OK(b, dur_runtime_start(&runtime, DUR_RUNTIME(.store = b->store, .handlers = handlers), &b->err));
    ASSERT_OK(b, dur_client_new(&here, b->store, &b->err));
    for (int i = 0; i < 5; i++) {
        waiting w = { .instance = dur_arena_format(b->arena, "w%d", i) };
        ASSERT_OK(b, dur_client_start(here, &b->err, "Wait", "", .instance = w.instance));
        AWAIT(unheard(b->store));
        dur_provider *other = other_open(p);
        ASSERT_OK(b, dur_client_new(&w.client, other, &b->err));
        assert_int_equal(pthread_create(&w.thread, NULL, wait_for_end, &w), 0);
        AWAIT(reads(other));
        uint64_t began_ms = pg_monotonic_ms();
        ASSERT_OK(b, dur_client_enqueue(here, &b->err, w.instance, "q", "over"));
        pthread_join(w.thread, NULL);
        if (w.code != DUR_OK) fail_msg("%s", w.err.message);
        assert_string_equal(w.result, "over");
        assert_in_range(w.at_ms - began_ms, 0, BELOW_LOOK_MS);
        dur_free(w.result);
        dur_client_free(w.client);
        dur_provider_close(other);
    }
    dur_client_free(here);
    ASSERT_OK(b, dur_runtime_stop(runtime, DUR_SECONDS(20), &b->err));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(alone_a_lane_tells_nobody),
        PG_TEST(what_nobody_was_to_hear_is_forgotten),
        PG_TEST(sessions_of_ones_own_do_not_count),
        PG_TEST(another_schema_is_another_world),
        PG_TEST(a_watch_elsewhere_is_heard_of_at_once),
        PG_TEST(a_lane_elsewhere_is_heard_of_at_once),
        PG_TEST(who_comes_during_a_commit_is_told),
        PG_TEST(a_greeting_wakes_and_is_answered),
        PG_TEST(every_lane_answers),
        PG_TEST(a_look_before_a_greeting_says_nothing),
        PG_TEST(looks_are_compared_with_greetings),
        PG_TEST(who_does_not_listen_does_not_count),
        PG_TEST(who_has_gone_is_not_answered),
        PG_TEST(when_the_last_one_goes_nobody_is_told),
        PG_TEST(a_new_session_of_a_lane_greets_again),
        PG_TEST(a_greeting_that_nobody_heard_is_answered),
        PG_TEST(a_new_session_of_a_watch_greets_again),
        PG_TEST(a_client_elsewhere_is_told_of_an_end),
    };
    PG_MAIN(tests);
}
