/*
 * test_pg_owner.c: how an owner finds dead peers: one look a second, an earlier one when a peer seems dead, and nobody
 * who lives is taken for dead.  First every case of it on paper (pg_look.c, with made-up clocks), then on a server.
 */
#include "pg_flow.h"

#include "provider/postgres/pg_internal.h"
#include "support/faulty.h"

/* ---- on paper: a victim, an observer, and a millisecond at a time ------------------------------------------------ */

enum { SECOND = 1000, NEVER = INT32_MAX, LOOKS = 40, BEATS = 64 };

/* What happens to the two; times in milliseconds from the start. */
typedef struct story {
    int beats[BEATS];  /* when the victim's beats are there for others to see */
    int stamps[BEATS]; /* and when the server stamped them */
    size_t beat_count;
    int lost_at;          /* its sessions are gone … */
    int found_at;         /* … and there again */
    int look_at;          /* the observer's first look */
    int trip;             /* how long an answer takes at most */
    int jump_at, jump_ms; /* the server's clock */
    int stop_at, stop_ms; /* the observer stands still */
    unsigned seed;
} story;

typedef struct end {
    int dead_at; /* NEVER: it was not taken over */
    int looks;
} end;

static int pick(story *s, int below) {
    return below > 0 ? (int)((unsigned)rand_r(&s->seed) % (unsigned)below) : 0;
}

static int64_t server_ms(const story *s, int at) {
    return 1700000000000 + at + (at >= s->jump_at ? s->jump_ms : 0);
}

/* The last beat that can be seen: as beat_sql writes it, each later than the one before; 0: it is not there yet. */
static int64_t beat_at(const story *s, int at) {
    int64_t stamp = 0;
    for (size_t i = 0; i < s->beat_count && s->beats[i] <= at; i++) {
        int64_t now = server_ms(s, s->stamps[i]);
        stamp = now > stamp ? now : stamp + 1;
    }
    return stamp;
}

static int stopped(const story *s, int at) {
    return at >= s->stop_at && at < s->stop_at + s->stop_ms ? s->stop_at + s->stop_ms : at;
}

/* The observer as the keeper is: a look a second, or as soon as the last one wants. */
static end watch(story *s, int until) {
    dur__pg_look look = { 0 };
    dur__pg_glance looked = { 0 };
    end result = { .dead_at = NEVER };
    for (int next = s->look_at; next < until;) {
        int asked = stopped(s, next), there = asked + pick(s, s->trip + 1);
        int seen = stopped(s, there + pick(s, s->trip + 1));
        dur__pg_glance at = { .now_ms = server_ms(s, there),
                              .asked_us = (uint64_t)(asked + 1) * 1000u,
                              .seen_us = (uint64_t)(seen + 1) * 1000u };
        dur__pg_sight sight = { .beat_ms = beat_at(s, there),
                                .timeout_ms = 10000,
                                .is_free = there >= s->lost_at && there < s->found_at };
        uint64_t left_us = UINT64_MAX;
        result.looks++;
        if (sight.beat_ms != 0) {
            dur__pg_look_add(&look, &looked, &at, &sight);
            left_us = dur__pg_look_left_us(&look);
            result.dead_at = seen;
            if ((left_us == 0 || dur__pg_look_silent(&look)) && beat_at(s, seen) == sight.beat_ms) return result;
            result.dead_at = NEVER;
        }
        looked = at;
        int left = left_us / 1000u < SECOND ? (int)(left_us / 1000u) + 1 : SECOND;
        next = left < SECOND ? seen + left : asked + SECOND;
    }
    return result;
}

/* Beats each second, each late by less than this, up to the end. */
static void beat_until(story *s, int first, int late, int end_ms) {
    s->beat_count = 0;
    for (int at = first; at < end_ms && s->beat_count < BEATS; at += SECOND) {
        s->stamps[s->beat_count] = at + pick(s, late);
        s->beats[s->beat_count] = s->stamps[s->beat_count] + pick(s, 10);
        s->beat_count++;
    }
}

static const story quiet = { .lost_at = NEVER, .found_at = NEVER, .jump_at = NEVER, .stop_at = NEVER };

/* How long it takes at worst, over all phases of its beats and the observer's looks; first: its first beat of all. */
static int worst_of(bool first, const char *what) {
    enum { DETAIL = 10, KILLED = 6000, NOTICED = 20, TRIP = 10 };
    int worst = 0;
    long sum = 0, count = 0;
    for (int since_beat = 0; since_beat < SECOND; since_beat += DETAIL) {
        for (int phase = 0; phase < SECOND; phase += DETAIL) {
            story s = quiet;
            s.seed = (unsigned)(since_beat * SECOND + phase);
            s.trip = TRIP;
            s.look_at = phase;
            int last = KILLED - since_beat;
            beat_until(&s, first ? last : last % SECOND, 1, last + 1);
            s.lost_at = KILLED + NOTICED; /* its server processes see that nobody is there */
            int took = watch(&s, 60 * SECOND).dead_at - KILLED;
            if (took > worst) worst = took;
            assert_true(took >= 0);
            sum += took;
            count++;
        }
    }
    print_message("# %s in %ld ways: dead after %ld ms (mean), %d ms (worst)\n", what, count, sum / count, worst);
    assert_true(worst <= 1700 + NOTICED + 4 * TRIP);
    return worst;
}

/* Killed at any moment of its second, with the observer's looks at any other: the sum on top of pg_look.c. */
static void the_worst_case_is_below_two_seconds(void **state) {
    (void)state;
    assert_true(worst_of(false, "killed") >= 1690); /* else this does not go through all of it */
}

/* Nobody has seen it beat before. */
static void nor_does_a_new_name_take_longer(void **state) {
    (void)state;
    (void)worst_of(true, "killed within a second of its start");
}

/* Its sessions are lost for ever, so only its beats speak for it; each comes late, by up to almost half a second. */
static void late_beats_are_beats(void **state) {
    (void)state;
    for (unsigned seed = 0; seed < 2000; seed++) {
        story s = quiet;
        s.seed = seed;
        s.look_at = pick(&s, SECOND);
        s.trip = 20;
        beat_until(&s, pick(&s, SECOND), 480, LOOKS * SECOND + 2 * SECOND);
        s.lost_at = pick(&s, 5 * SECOND);
        end seen = watch(&s, LOOKS * SECOND);
        if (seen.dead_at != NEVER) fail_msg("seed %u: taken for dead at %d ms", seed, seen.dead_at);
    }
}

/* The same while the server's clock jumps, a little or far, either way, and while the observer stands still. */
static void jumps_and_stops_kill_nobody(void **state) {
    (void)state;
    static const int jumps[] = { 0, 300, 700, 2000, 3600000, -300, -700, -2000, -3600000 };
    for (unsigned seed = 0; seed < 4000; seed++) {
        story s = quiet;
        s.seed = seed;
        s.look_at = pick(&s, SECOND);
        s.trip = 20;
        beat_until(&s, pick(&s, SECOND), 400, LOOKS * SECOND + 2 * SECOND);
        s.lost_at = pick(&s, 5 * SECOND);
        s.jump_at = 3 * SECOND + pick(&s, 5 * SECOND);
        s.jump_ms = jumps[seed % (sizeof(jumps) / sizeof(jumps[0]))];
        s.stop_at = 8 * SECOND + pick(&s, 5 * SECOND);
        s.stop_ms = pick(&s, 8 * SECOND);
        end seen = watch(&s, LOOKS * SECOND);
        if (seen.dead_at != NEVER) fail_msg("seed %u: taken for dead at %d ms", seed, seen.dead_at);
    }
}

/* Both stood still, for example with the machine: the first look afterwards confirms nothing. */
static void a_late_look_confirms_nothing(void **state) {
    (void)state;
    for (unsigned seed = 0; seed < 2000; seed++) {
        story s = quiet;
        s.seed = seed;
        s.look_at = pick(&s, SECOND);
        s.stop_at = 5 * SECOND + pick(&s, SECOND);
        s.stop_ms = 1600 + pick(&s, 30 * SECOND);
        beat_until(&s, pick(&s, SECOND), 1, s.stop_at);
        int again = s.stop_at + s.stop_ms + pick(&s, 400); /* a moment later it beats again */
        s.stamps[s.beat_count] = s.beats[s.beat_count] = again;
        s.beat_count++;
        s.lost_at = 3 * SECOND;
        end seen = watch(&s, again + SECOND);
        if (seen.dead_at != NEVER) fail_msg("seed %u: taken for dead at %d ms", seed, seen.dead_at);
    }
}

/* How old a beat with this stamp is, first seen a second after the look before. */
static uint64_t age_ms(int64_t beat_ms) {
    dur__pg_glance before = { .now_ms = 10000, .asked_us = 5000000, .seen_us = 5001000 };
    dur__pg_glance at = { .now_ms = 11000, .asked_us = 6000000, .seen_us = 6001000 };
    dur__pg_look look = { 0 };
    dur__pg_look_add(&look, &before, &at, &(dur__pg_sight){ .beat_ms = beat_ms, .timeout_ms = 10000, .is_free = true });
    return look.quiet_us / 1000u;
}

/* A stamp is believed within what we have seen ourselves. */
static void a_stamp_tells_no_more_than_looks_allow(void **state) {
    (void)state;
    assert_int_equal(age_ms(10900), 100);
    assert_int_equal(age_ms(10400), 600);
    assert_int_equal(age_ms(10000), 1000);
    assert_int_equal(age_ms(9000), 1000);  /* it was on its way for a second: nobody could see it before */
    assert_int_equal(age_ms(11001), 0);    /* ahead of its clock, which was set back */
    assert_int_equal(age_ms(-3600000), 0); /* of another clock */
}

/* One look a second while its lock is there, however late its beats are; and one more when it was gone for a moment. */
static void looks_are_counted(void **state) {
    (void)state;
    for (unsigned seed = 0; seed < 500; seed++) {
        story s = quiet;
        s.seed = seed;
        s.look_at = pick(&s, SECOND);
        beat_until(&s, pick(&s, SECOND), 900, LOOKS * SECOND + 2 * SECOND);
        int usual = watch(&s, LOOKS * SECOND).looks;
        assert_int_equal(usual, LOOKS);
        s.lost_at = 5 * SECOND + pick(&s, SECOND);
        s.found_at = s.lost_at + pick(&s, 400);
        end seen = watch(&s, LOOKS * SECOND);
        assert_int_equal(seen.dead_at, NEVER);
        assert_in_range(seen.looks, usual, usual + 1);
    }
}

/* Behind a pooler there is no lock: its silence, and no earlier look for it. */
static void without_locks_only_silence_counts(void **state) {
    (void)state;
    for (unsigned seed = 0; seed < 500; seed++) {
        story s = quiet;
        s.seed = seed;
        s.look_at = pick(&s, SECOND);
        int killed = 5 * SECOND + pick(&s, SECOND);
        beat_until(&s, pick(&s, SECOND), 1, killed);
        end seen = watch(&s, 60 * SECOND);
        assert_in_range(seen.dead_at - killed, 9 * SECOND - 10, 11 * SECOND + 10);
        assert_in_range(seen.looks, (seen.dead_at - s.look_at) / SECOND, (seen.dead_at - s.look_at) / SECOND + 1);
    }
}

/* ---- on a server ------------------------------------------------------------------------------------------------- */

static dur_provider *open_named(pg_bench *p, const char *name) {
    dur_provider *store = NULL;
    char url[1200];
    snprintf(url, sizeof(url), "%s&schema=%s&application_name=%s_%s", pg_server(), p->schema, name, p->schema);
    ASSERT_OK(&p->b, dur_open(&store, url, &p->b.err));
    return store;
}

/* Its sessions end, and their locks are gone. */
static void kill_sessions(pg_bench *p, const char *name) {
    char sql[300], left[300];
    snprintf(sql, sizeof(sql),
             "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '%s_%s'", name,
             p->schema);
    snprintf(left, sizeof(left), "SELECT count(*) FROM pg_stat_activity WHERE application_name = '%s_%s'", name,
             p->schema);
    pg_do(p->db, sql);
    while (pg_number(p->db, left) > 0)
        pg_pause_ms(2);
}

/* A beat of one whose sessions were ended: it may learn of that by this call only. */
static void beat_again(pg_bench *p, dur_provider *store, const char *owner) {
    dur_owner_report report;
    int code;
    while ((code = dur_store_owner_beat(store, owner, &report, &p->b.err)) != DUR_OK)
        assert_true(p->b.err.retryable);
    assert_true(report.still_ours);
}

/* Two runtimes with nothing to do.  A slow machine makes fewer beats, never more. */
static void beside_a_peer_one_statement_a_second(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *stores[2] = { NULL, NULL };
    dur_runtime *runtimes[2];
    char sql[600];
    /* Each beat updates the owner's row: counted where it arrives, too. */
    snprintf(sql, sizeof(sql),
             "CREATE TABLE %s.seen (owner text); CREATE FUNCTION %s.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
             " INSERT INTO %s.seen VALUES (NEW.owner); RETURN NEW; END $$; CREATE TRIGGER see AFTER UPDATE ON"
             " %s.dur_owners FOR EACH ROW EXECUTE FUNCTION %s.see()",
             p->schema, p->schema, p->schema, p->schema, p->schema);
    pg_do(p->db, sql);
    uint64_t began_ms = pg_monotonic_ms();
    for (int i = 0; i < 2; i++) {
        dur_provider *store = open_named(p, "n");
        ASSERT_OK(b, dur__faulty_wrap(&stores[i], store, 1, &b->err));
        ASSERT_OK(b,
                  dur_runtime_start(&runtimes[i], DUR_RUNTIME(.store = stores[i], .handlers = flow_handlers), &b->err));
    }
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s.seen", p->schema);
    while (dur__faulty_calls(stores[0], "owner_beat") < 5 || dur__faulty_calls(stores[1], "owner_beat") < 5)
        pg_pause_ms(20);
    uint64_t calls = 0;
    for (int i = 0; i < 2; i++)
        calls += dur__faulty_calls(stores[i], "owner_beat");
    long beats = pg_number(p->db, sql);
    uint64_t took_ms = pg_monotonic_ms() - began_ms;
    print_message("# two nodes: %llu looks, %ld beats in %llu ms\n", (unsigned long long)calls, beats,
                  (unsigned long long)took_ms);
    assert_true(calls <= 2 * (took_ms / 1000u + 1));
    assert_true((uint64_t)beats <= 2 * (took_ms / 1000u + 1));
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(b, dur_runtime_stop(runtimes[i], DUR_SECONDS(20), &b->err));
        dur_provider_close(stores[i]);
    }
}

/* A's sessions end: B wants a look as soon as it can tell.  A beats again: B wants none, and A keeps what it has. */
static void suspicion_wants_an_earlier_look(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *a = open_named(p, "a");
    dur_owner_options first = { .owner = "one" }, second = { .owner = "two" };
    dur_owner_report report;
    ASSERT_OK(b, dur_store_owner_register(a, &first, &b->err));
    ASSERT_OK(b, dur_store_owner_register(b->store, &second, &b->err));
    for (int i = 0; i < 3; i++) {
        beat_again(p, a, "one");
        ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
        assert_int_equal(report.look_again_ms, 0);
        assert_int_equal(report.peers, 1);
        assert_int_equal(report.taken_over, 0);
        pg_pause_ms(700);
        kill_sessions(p, "a");
        ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
        assert_int_equal(report.taken_over, 0); /* seen free once */
        assert_int_equal(report.peers, 1);
        assert_in_range(report.look_again_ms, 700, 801); /* 1.5 s after its beat, of which 0.7 are over */
    }
    beat_again(p, a, "one");
    ASSERT_OK(b, dur_store_owner_release(a, "one", &b->err));
    ASSERT_OK(b, dur_store_owner_release(b->store, "two", &b->err));
    dur_provider_close(a);
}

/* It loses its sessions after every beat, for as long as a dead one would have been found three times. */
static void a_beat_without_a_lock_is_life(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *a = open_named(p, "a");
    dur_owner_options first = { .owner = "one" }, second = { .owner = "two" };
    dur_owner_report report;
    ASSERT_OK(b, dur_store_owner_register(a, &first, &b->err));
    ASSERT_OK(b, dur_store_owner_register(b->store, &second, &b->err));
    for (uint64_t began_ms = pg_monotonic_ms(); pg_monotonic_ms() - began_ms < 5000; pg_pause_ms(300)) {
        beat_again(p, a, "one");
        kill_sessions(p, "a");
        ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
        assert_int_equal(report.taken_over, 0);
        assert_in_range(report.look_again_ms, 1, 1501);
    }
    beat_again(p, a, "one");
    ASSERT_OK(b, dur_store_owner_release(a, "one", &b->err));
    ASSERT_OK(b, dur_store_owner_release(b->store, "two", &b->err));
    dur_provider_close(a);
}

/* The looks that are wanted, and no others, find it. */
static void a_dead_peer_is_found_by_the_looks_that_are_wanted(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *a = open_named(p, "a");
    dur_owner_options first = { .owner = "one", .timeout_ms = DUR_HOURS(1) }, second = { .owner = "two" };
    dur_owner_report report;
    ASSERT_OK(b, dur_store_owner_register(a, &first, &b->err));
    ASSERT_OK(b, dur_store_owner_register(b->store, &second, &b->err));
    ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
    kill_sessions(p, "a");
    int looks = 0;
    uint64_t began_ms = pg_monotonic_ms();
    do {
        ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
        looks++;
        assert_true(report.taken_over == 1 || report.look_again_ms > 0);
        /* Not as the keeper would, each second at least: so one wait does, unless that was late and proves nothing. */
        if (report.taken_over == 0) pg_pause_ms((long)report.look_again_ms);
    } while (report.taken_over == 0);
    print_message("# dead after %d looks, %llu ms\n", looks, (unsigned long long)(pg_monotonic_ms() - began_ms));
    assert_string_equal(report.last_dead, "one");
    assert_int_equal(report.look_again_ms, 0);
    ASSERT_OK(b, dur_store_owner_release(b->store, "two", &b->err));
    dur_provider_close(a);
}

/* What was seen was seen by this process, whatever its name: a new one does not make it wait from the beginning. */
static void a_new_name_forgets_nothing(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *a = open_named(p, "a");
    dur_owner_options first = { .owner = "one" }, second = { .owner = "two" }, third = { .owner = "three" };
    dur_owner_report report;
    ASSERT_OK(b, dur_store_owner_register(a, &first, &b->err));
    ASSERT_OK(b, dur_store_owner_register(b->store, &second, &b->err));
    ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
    pg_pause_ms(1000);
    kill_sessions(p, "a");
    ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
    assert_int_equal(report.peers, 1);
    assert_int_equal(report.look_again_ms, 701);
    ASSERT_OK(b, dur_store_owner_register(b->store, &third, &b->err));
    ASSERT_OK(b, dur_store_owner_release(b->store, "two", &b->err));
    ASSERT_OK(b, dur_store_owner_beat(b->store, "three", &report, &b->err));
    if (report.taken_over == 0) assert_in_range(report.look_again_ms, 1, 701); /* or this took so long */
    ASSERT_OK(b, dur_store_owner_release(b->store, "three", &b->err));
    dur_provider_close(a);
}

/* In a transaction of its own, as a batch does that takes something under an owner's name. */
static PGconn *hold_fence(pg_bench *p, const char *owner, const char *user) {
    char sql[300], url[1200];
    snprintf(url, sizeof(url), "%s%s%s", pg_server(), user != NULL ? "&user=" : "", user != NULL ? user : "");
    PGconn *holder = PQconnectdb(url);
    if (PQstatus(holder) != CONNECTION_OK) fail_msg("%s", PQerrorMessage(holder));
    snprintf(sql, sizeof(sql),
             "BEGIN; SELECT pg_advisory_xact_lock_shared(%lld); SELECT 1 FROM %s.dur_owners WHERE owner"
             " = '%s' FOR KEY SHARE",
             (long long)dur__pg_fence_key(dur__pg_of(p->b.store), owner), p->schema, owner);
    pg_do(holder, sql);
    return holder;
}

/* "one" is dead, known to be, and was once refused to "two": as the report says. */
static void die_and_be_refused(pg_bench *p, dur_owner_report *report) {
    bench *b = &p->b;
    ASSERT_OK(b, dur_store_owner_beat(b->store, "two", report, &b->err));
    kill_sessions(p, "a");
    do {
        pg_pause_ms(100);
        ASSERT_OK(b, dur_store_owner_beat(b->store, "two", report, &b->err));
        assert_int_equal(report->taken_over, 0);
    } while (report->peers == 1); /* it lives, as far as is known */
}

/*
 * Something of the dead one still runs on the server, for another role than ours, so we may not end it: the take-over
 * is tried again soon, and not for ever so often.
 */
static void a_refused_take_over_is_tried_again_soon(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *a = open_named(p, "a");
    dur_owner_options first = { .owner = "one" }, second = { .owner = "two" };
    dur_owner_report report = { 0 };
    char role[80], sql[500];
    snprintf(role, sizeof(role), "other_%s", p->schema);
    snprintf(sql, sizeof(sql),
             "CREATE ROLE %s LOGIN; GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT, UPDATE ON %s.dur_owners TO %s", role,
             p->schema, role, p->schema, role);
    pg_do(p->db, sql);
    ASSERT_OK(b, dur_store_owner_register(a, &first, &b->err));
    ASSERT_OK(b, dur_store_owner_register(b->store, &second, &b->err));
    PGconn *holder = hold_fence(p, "one", role);
    die_and_be_refused(p, &report);
    for (uint64_t soon = 100; soon <= 800; soon *= 2) {
        assert_int_equal(report.look_again_ms, soon);
        ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
        assert_int_equal(report.taken_over, 0);
    }
    assert_int_equal(report.look_again_ms, 0);
    pg_do(holder, "COMMIT");
    ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
    assert_int_equal(report.taken_over, 1);
    assert_string_equal(report.last_dead, "one");
    ASSERT_OK(b, dur_store_owner_release(b->store, "two", &b->err));
    PQfinish(holder);
    dur_provider_close(a);
    snprintf(sql, sizeof(sql), "DROP OWNED BY %s; DROP ROLE %s", role, role);
    pg_do(p->db, sql);
}

/* Of leases that were ended a lane is told within a second; what is a day old is for one that is gone. */
static void what_nobody_was_told_is_forgotten(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_owner_options options = { .owner = "one" };
    char sql[300];
    snprintf(sql, sizeof(sql),
             "INSERT INTO %s.dur_lost (holder, instance_id, at_ms) SELECT 7, 'i', (extract(epoch FROM"
             " clock_timestamp()) * 1000)::bigint - age FROM unnest(ARRAY[0, 86000000, 87000000]) age",
             p->schema);
    pg_do(p->db, sql);
    ASSERT_OK(b, dur_store_owner_register(b->store, &options, &b->err));
    snprintf(sql, sizeof(sql), "SELECT count(*) FROM %s.dur_lost", p->schema);
    assert_int_equal(pg_number(p->db, sql), 2);
    ASSERT_OK(b, dur_store_owner_release(b->store, "one", &b->err));
}

/* The dead one stood still in the middle of a batch, and so does the server: the second refusal ends it. */
static void half_a_batch_of_a_dead_peer_is_ended(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *a = open_named(p, "a");
    dur_owner_options first = { .owner = "one" }, second = { .owner = "two" };
    dur_owner_report report = { 0 };
    ASSERT_OK(b, dur_store_owner_register(a, &first, &b->err));
    ASSERT_OK(b, dur_store_owner_register(b->store, &second, &b->err));
    PGconn *holder = hold_fence(p, "one", NULL), *living = hold_fence(p, "two", NULL);
    die_and_be_refused(p, &report);
    pg_do(holder, "SELECT 1"); /* once may be bad luck: the last statement of one that was killed */
    ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
    for (int i = 0; i < 100 && report.taken_over == 0; i++) {
        pg_pause_ms(20); /* the server ends it when it comes to it */
        ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
    }
    assert_int_equal(report.taken_over, 1);
    assert_string_equal(report.last_dead, "one");
    PGresult *result = PQexec(holder, "COMMIT");
    assert_int_not_equal(PQresultStatus(result), PGRES_COMMAND_OK);
    PQclear(result);
    pg_do(living, "COMMIT");
    ASSERT_OK(b, dur_store_owner_release(b->store, "two", &b->err));
    PQfinish(holder);
    PQfinish(living);
    dur_provider_close(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worst_case_is_below_two_seconds),
        cmocka_unit_test(nor_does_a_new_name_take_longer),
        cmocka_unit_test(late_beats_are_beats),
        cmocka_unit_test(jumps_and_stops_kill_nobody),
        cmocka_unit_test(a_late_look_confirms_nothing),
        cmocka_unit_test(a_stamp_tells_no_more_than_looks_allow),
        cmocka_unit_test(looks_are_counted),
        cmocka_unit_test(without_locks_only_silence_counts),
        PG_TEST(beside_a_peer_one_statement_a_second),
        PG_TEST(suspicion_wants_an_earlier_look),
        PG_TEST(a_beat_without_a_lock_is_life),
        PG_TEST(a_dead_peer_is_found_by_the_looks_that_are_wanted),
        PG_TEST(a_new_name_forgets_nothing),
        PG_TEST(a_refused_take_over_is_tried_again_soon),
        PG_TEST(half_a_batch_of_a_dead_peer_is_ended),
        PG_TEST(what_nobody_was_told_is_forgotten),
    };
    PG_MAIN(tests);
}
