/*
 * check_ours_owners.c: our own: leases that hold while their owner lives.
 */
#include "kit_internal.h"

#define NEEDS_OWNERS()                                                                                                 \
    NEEDS("owner_register", "owner_beat", "owner_release", "fetch_turns", "fetch_works", "commit_turns")

static dur_owner_report beat(kit *t, const char *owner) {
    dur_owner_report report = { .still_ours = false };
    MUST(dur_store_owner_beat(t->p, owner, &report, ERR));
    return report;
}

/* Time goes by in steps, and these owners (NULL at the end) show life; timeouts are 2 lock_ms (kit_owner). */
static void live(kit *t, uint64_t ms, const char *const *owners) {
    for (uint64_t gone = 0; gone < ms; gone += t->lock_ms / 2) {
        kit_advance(t, t->lock_ms / 2);
        for (size_t i = 0; owners[i] != NULL; i++)
            THAT(beat(t, owners[i]).still_ours);
    }
}
#define LIVE(ms, ...) live(t, (ms), (const char *const[]){ __VA_ARGS__, NULL })

static dur_leased_work work_of(kit *t, const char *owner, uint64_t id) {
    dur_leased_work work = { .json = { NULL, 0 } };
    dur_work_fetch how = { .lock_ms = t->lock_ms, .owner = owner, .max = 1 };
    size_t count = 0;
    MUST(dur_store_fetch_works(t->p, t->arena, &how, &work, &count, ERR));
    SAME(count, 1);
    SAME(work.ref.activity_id, id);
    return work;
}

static void ours_lease_holds_while_its_owner_lives(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "me");
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dur_orchestration_item item = ACQUIRE("me", "a");
    dur_leased_work work = work_of(t, "me", 1);
    MUST(dur_store_renew_orchestration_item_lock(t->p, item.lock_token, 1, ERR)); /* which changes nothing */
    MUST(dur_store_renew_work_item_lock(t->p, work.lock_token, 1, ERR));
    LIVE(t->lock_ms * 5, "me"); /* far beyond every lock time */
    NOTHING();
    NO_WORK();
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(2, "go")));
    commit.owner = "me";
    MUST(kit_commit(t, &commit));
    MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
}

static void ours_dead_owner_loses_everything(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "dead");
    kit_owner(t, "alive");
    kit_create(t, "a");
    kit_create(t, "b");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dur_orchestration_item item = ACQUIRE("dead", "a");
    dur_leased_work work = work_of(t, "dead", 1);
    MUST(kit_put(t, kit_raised(t, "b", "go", "")));
    dur_orchestration_item mine = ACQUIRE("alive", "b");
    SAME(beat(t, "alive").peers, 1);
    uint32_t taken = 0, freed = 0;
    char last[64] = "";
    for (int i = 0; i < 8; i++) {
        kit_advance(t, t->lock_ms / 2);
        dur_owner_report report = beat(t, "alive");
        THAT(report.still_ours);
        taken += report.taken_over;
        freed += report.freed;
        if (report.taken_over > 0) memcpy(last, report.last_dead, sizeof(last));
    }
    SAME(taken, 1);
    SAME(freed, 2);
    TEXT(last, "dead");
    SAME(beat(t, "alive").peers, 0);
    dur_turn_commit late = COMMIT_OF(&item, EVENTS(ev_external(2, "go")));
    late.owner = "dead";
    THAT(kit_commit(t, &late) != DUR_OK);
    SAME(late.fault, DUR_TURN_LEASE_LOST);
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
    SAME(ACQUIRE("alive", "a").message_count, 1);
    dur_leased_work again = work_of(t, "alive", 1);
    SAME(again.crashes, 1); /* it was running at an owner that did not stop cleanly */
    THAT(!beat(t, "dead").still_ours);
    dur_turn_commit commit = COMMIT_OF(&mine, EVENTS(ev_external(2, "go"))); /* a live one loses nothing */
    commit.owner = "alive";
    MUST(kit_commit(t, &commit));
}

/* Whoever has found it: all are careful then (the runtime's, for a minute). */
static void ours_a_death_is_told_to_every_owner(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "alive");
    kit_owner(t, "leaves");
    MUST(dur_store_owner_release(t->p, "leaves", ERR));
    SAME(beat(t, "alive").crashed_at_ms, 0);
    kit_owner(t, "dead");
    uint64_t before = dur_store_now_ms(t->p);
    LIVE(t->lock_ms * 4, "alive");
    kit_owner(t, "later");
    uint64_t at = beat(t, "later").crashed_at_ms;
    THAT(at >= before && at <= dur_store_now_ms(t->p));
    SAME(beat(t, "alive").crashed_at_ms, at);
}

static void ours_timed_locks_are_not_freed_by_liveness(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "dead");
    kit_owner(t, "alive");
    dur_fetch how = { .lock_ms = t->lock_ms * 100 };
    dur_orchestration_item item = { .instance = NULL };
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(dur_store_fetch_orchestration_item(t->p, t->arena, &how, &item, ERR));
    TEXT(item.instance, "a");
    LIVE(t->lock_ms * 4, "alive");
    NOTHING();
}

/* ---- crashes and suspects ---- */

static size_t works_of(kit *t, const char *owner, dur_fetch_kind kind, dur_leased_work got[4]) {
    dur_work_fetch how = { .lock_ms = t->lock_ms, .owner = owner, .max = 4, .kind = kind };
    size_t count = 0;
    MUST(dur_store_fetch_works(t->p, t->arena, &how, got, &count, ERR));
    return count;
}

/* An owner takes all work of that kind, which it must be, and dies with it; what it had. */
static dur_leased_work dies_with_work(kit *t, const char *owner, dur_fetch_kind kind) {
    dur_leased_work got[4];
    kit_owner(t, owner);
    SAME(works_of(t, owner, kind, got), 1);
    LIVE(t->lock_ms * 4, "alive");
    return got[0];
}

static void ours_two_crashes_make_a_suspect_of_work(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "alive");
    dur_leased_work got[4];
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    SAME(dies_with_work(t, "d1", DUR_FETCH_FRESH).crashes, 0);
    SAME(works_of(t, "alive", DUR_FETCH_SUSPECT, got), 0); /* the first redelivery is free */
    SAME(dies_with_work(t, "d2", DUR_FETCH_FRESH).crashes, 1);
    MUST(kit_put_work(t, kit_activity(t, "a", 2)));
    SAME(works_of(t, "alive", DUR_FETCH_FRESH, got), 1);
    SAME(got[0].ref.activity_id, 2);
    dur_leased_work alone = dies_with_work(t, "d3", DUR_FETCH_SUSPECT);
    SAME(alone.ref.activity_id, 1);
    SAME(alone.attempt_count, 3);
    SAME(alone.crashes, 2);
    SAME(alone.crashes_alone, 0);
    SAME(works_of(t, "alive", DUR_FETCH_SUSPECT, got), 1);
    SAME(got[0].crashes, 3);
    SAME(got[0].crashes_alone, 1);
}

static void ours_work_that_is_not_alone_any_more(kit *t) {
    NEEDS_OWNERS();
    NEEDS("alone_ended");
    kit_owner(t, "alive");
    dur_leased_work got[4];
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dies_with_work(t, "d1", DUR_FETCH_FRESH);
    dies_with_work(t, "d2", DUR_FETCH_FRESH);
    kit_owner(t, "d3");
    SAME(works_of(t, "d3", DUR_FETCH_SUSPECT, got), 1);
    MUST(dur_store_alone_ended(t->p, got[0].lock_token, ERR));
    MUST(dur_store_alone_ended(t->p, "nobody's", ERR));
    LIVE(t->lock_ms * 4, "alive");
    SAME(dies_with_work(t, "d4", DUR_FETCH_ANY).crashes_alone, 0); /* and this one was never told to be alone */
    SAME(works_of(t, "alive", DUR_FETCH_SUSPECT, got), 1);
    SAME(got[0].crashes, 4);
    SAME(got[0].crashes_alone, 0);
}

static void ours_suspect_with_the_fewest_crashes_alone_first(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "alive");
    dur_leased_work got[4];
    for (uint64_t id = 1; id <= 2; id++)
        MUST(kit_put_work(t, kit_activity(t, "a", id)));
    for (int i = 0; i < 2; i++) {
        kit_owner(t, i == 0 ? "d1" : "d2");
        SAME(works_of(t, i == 0 ? "d1" : "d2", DUR_FETCH_FRESH, got), 2);
        LIVE(t->lock_ms * 4, "alive");
    }
    dur_work_fetch how = { .lock_ms = t->lock_ms, .owner = "d3", .max = 1, .kind = DUR_FETCH_SUSPECT };
    size_t count = 0;
    kit_owner(t, "d3");
    MUST(dur_store_fetch_works(t->p, t->arena, &how, got, &count, ERR));
    SAME(got[0].ref.activity_id, 1);
    LIVE(t->lock_ms * 4, "alive");
    how.owner = "alive";
    MUST(dur_store_fetch_works(t->p, t->arena, &how, got, &count, ERR));
    SAME(count, 1);
    SAME(got[0].ref.activity_id, 2);
}

static void ours_crashes_of_work_stay_until_it_ran(kit *t) {
    NEEDS_OWNERS();
    NEEDS("return_works");
    kit_owner(t, "alive");
    kit_owner(t, "leaves");
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    kit_owner(t, "dead");
    work_of(t, "dead", 1);
    LIVE(t->lock_ms * 4, "alive", "leaves");
    dur_leased_work work = work_of(t, "alive", 1);
    SAME(work.crashes, 1);
    SAME(work.attempt_count, 2);
    dur_worker_claim claim = { .ref = work.ref, .lock_token = work.lock_token };
    MUST(dur_store_return_works(t->p, &claim, 1, ERR)); /* not started */
    work = work_of(t, "alive", 1);
    SAME(work.crashes, 1);
    MUST(dur_store_abandon_work_item(t->p, work.lock_token, 0, true, ERR)); /* not started either */
    work = work_of(t, "leaves", 1);
    SAME(work.crashes, 1);
    MUST(dur_store_owner_release(t->p, "leaves", ERR));
    work = work_of(t, "alive", 1);
    SAME(work.crashes, 1);
    SAME(work.attempt_count, 2);
    MUST(dur_store_abandon_work_item(t->p, work.lock_token, 0, false, ERR)); /* it ran and came back */
    work = work_of(t, "alive", 1);
    SAME(work.crashes, 0);
    SAME(work.attempt_count, 3);
}

static size_t turns_of(kit *t, const char *owner, dur_fetch_kind kind, dur_orchestration_item got[4]) {
    dur_fetch how = { .owner = owner, .max = 4, .kind = kind };
    size_t count = 0;
    MUST(dur_store_fetch_turns(t->p, t->arena, &how, got, &count, ERR));
    return count;
}

static dur_orchestration_item dies_with_turn(kit *t, const char *owner, dur_fetch_kind kind) {
    dur_orchestration_item got[4];
    kit_owner(t, owner);
    SAME(turns_of(t, owner, kind, got), 1);
    LIVE(t->lock_ms * 4, "alive");
    return got[0];
}

static void ours_two_crashes_make_a_suspect_of_an_instance(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "alive");
    dur_orchestration_item got[4];
    MUST(kit_put(t, kit_start(t, "bad")));
    dur_orchestration_item first = dies_with_turn(t, "d1", DUR_FETCH_FRESH);
    if (first.acquisitions == 0) kit_skip(t, "the store does not count acquisitions");
    SAME(turns_of(t, "alive", DUR_FETCH_SUSPECT, got), 0);
    SAME(dies_with_turn(t, "d2", DUR_FETCH_FRESH).crashes, 1);
    MUST(kit_put(t, kit_start(t, "good")));
    SAME(turns_of(t, "alive", DUR_FETCH_FRESH, got), 1);
    TEXT(got[0].instance, "good");
    dur_orchestration_item alone = dies_with_turn(t, "d3", DUR_FETCH_SUSPECT);
    TEXT(alone.instance, "bad");
    SAME(alone.acquisitions, 3);
    SAME(alone.crashes, 2);
    SAME(alone.crashes_alone, 0);
    SAME(turns_of(t, "alive", DUR_FETCH_SUSPECT, got), 1);
    SAME(got[0].crashes_alone, 1);
    dur_turn_commit commit = COMMIT_OF(&got[0], EVENTS(ev_started(1)), NAMED); /* it has shown that it can */
    commit.owner = "alive";
    MUST(kit_commit(t, &commit));
    MUST(kit_put(t, kit_raised(t, "bad", "go", "")));
    SAME(turns_of(t, "alive", DUR_FETCH_FRESH, got), 1);
    SAME(got[0].acquisitions, 1);
    SAME(got[0].crashes, 0);
    SAME(got[0].crashes_alone, 0);
}

static void ours_instance_that_is_not_alone_any_more(kit *t) {
    NEEDS_OWNERS();
    NEEDS("alone_ended");
    kit_owner(t, "alive");
    dur_orchestration_item got[4];
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item first = dies_with_turn(t, "d1", DUR_FETCH_FRESH);
    if (first.acquisitions == 0) kit_skip(t, "the store does not count acquisitions");
    dies_with_turn(t, "d2", DUR_FETCH_FRESH);
    kit_owner(t, "d3");
    SAME(turns_of(t, "d3", DUR_FETCH_SUSPECT, got), 1);
    MUST(dur_store_alone_ended(t->p, got[0].lock_token, ERR));
    LIVE(t->lock_ms * 4, "alive");
    kit_owner(t, "leaves");
    SAME(turns_of(t, "leaves", DUR_FETCH_SUSPECT, got), 1);
    MUST(dur_store_owner_release(t->p, "leaves", ERR)); /* a clean end is no crash */
    SAME(turns_of(t, "alive", DUR_FETCH_SUSPECT, got), 1);
    SAME(got[0].crashes, 3);
    SAME(got[0].crashes_alone, 0);
}

/* Of both kinds, so that who asks can take the one with the fewest first. */
static void ours_round_tells_how_often_suspects_crashed_alone(kit *t) {
    NEEDS_OWNERS();
    NEEDS("lane_open", "lane_round");
    dur_leased_work got[4];
    kit_owner(t, "alive");
    MUST(kit_put(t, kit_start(t, "bad")));
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    for (int i = 0; i < 2; i++) {
        const char *owner = i == 0 ? "d1" : "d2";
        kit_owner(t, owner);
        SAME(works_of(t, owner, DUR_FETCH_FRESH, got), 1);
        dur_orchestration_item items[4];
        SAME(turns_of(t, owner, DUR_FETCH_FRESH, items), 1);
        if (items[0].acquisitions == 0) kit_skip(t, "the store does not count acquisitions");
        LIVE(t->lock_ms * 4, "alive");
    }
    dies_with_turn(t, "d3", DUR_FETCH_SUSPECT);
    dur_fetch fetch = { .owner = "alive", .max = 4, .kind = DUR_FETCH_FRESH };
    dur_work_fetch work = { .owner = "alive", .max = 4, .kind = DUR_FETCH_FRESH };
    dur_lane *lane = kit_lane(t, "alive");
    dur_round round = { .fetch = &fetch, .work = &work };
    kit_round(t, lane, &round);
    SAME(round.item_count + round.work_count, 0);
    SAME(round.suspect_instance, 2);
    SAME(round.suspect_work, 1);
    work.kind = DUR_FETCH_SUSPECT;
    round = (dur_round){ .work = &work };
    kit_round(t, lane, &round);
    SAME(round.work_count, 1);
    SAME(round.suspect_instance, 0); /* nobody asked */
    work.kind = DUR_FETCH_FRESH;
    round = (dur_round){ .fetch = &fetch, .work = &work };
    kit_round(t, lane, &round);
    SAME(round.suspect_instance, 2);
    SAME(round.suspect_work, 0);
}

/* Behind all that came meanwhile it would not show for long that it can commit. */
static void ours_what_a_crash_has_hit_keeps_its_place(kit *t) {
    NEEDS_OWNERS();
    dur_orchestration_item got[4];
    size_t count = 0;
    kit_owner(t, "alive");
    kit_owner(t, "dead");
    MUST(kit_put(t, kit_start(t, "first")));
    SAME(turns_of(t, "dead", DUR_FETCH_FRESH, got), 1);
    kit_advance(t, 5);
    MUST(kit_put(t, kit_start(t, "later")));
    LIVE(t->lock_ms * 4, "alive");
    dur_fetch how = { .owner = "alive", .max = 1, .kind = DUR_FETCH_FRESH };
    MUST(dur_store_fetch_turns(t->p, t->arena, &how, got, &count, ERR));
    SAME(count, 1);
    TEXT(got[0].instance, "first");
}

/* ---- crashes in doubt ---- */

/* Activity 1 of "a" is a suspect, and the last crash happened while it ran alone; beside it ran activity 2. */
static void crash_in_company(kit *t) {
    dur_leased_work got[4];
    kit_owner(t, "alive");
    kit_create(t, "a");
    kit_create(t, "b");
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dies_with_work(t, "d1", DUR_FETCH_FRESH);
    dies_with_work(t, "d2", DUR_FETCH_FRESH);
    MUST(kit_put_work(t, kit_activity(t, "b", 2)));
    kit_owner(t, "d3");
    SAME(works_of(t, "d3", DUR_FETCH_SUSPECT, got), 1);
    SAME(got[0].ref.activity_id, 1);
    SAME(works_of(t, "d3", DUR_FETCH_FRESH, got), 1);
    SAME(got[0].ref.activity_id, 2);
    LIVE(t->lock_ms * 4, "alive");
}

/* The suspect is looked at, and given back unstarted. */
static void told(kit *t, uint32_t crashes, uint32_t crashes_alone) {
    dur_leased_work got[4];
    SAME(works_of(t, "alive", DUR_FETCH_SUSPECT, got), 1);
    SAME(got[0].ref.activity_id, 1);
    SAME(got[0].crashes, crashes);
    SAME(got[0].crashes_alone, crashes_alone);
    dur_worker_claim claim = { .ref = got[0].ref, .lock_token = got[0].lock_token };
    MUST(dur_store_return_works(t->p, &claim, 1, ERR));
    if (dur_store_has(t->p, "check")) MUST(dur_store_check(t->p, ERR));
}

#define NEEDS_DOUBTS()                                                                                                 \
    NEEDS_OWNERS();                                                                                                    \
    NEEDS("blame", "return_works")

static void ours_crash_in_company_is_told_when_the_company_has_ended(kit *t) {
    NEEDS_DOUBTS();
    dur_leased_work got[4];
    crash_in_company(t);
    told(t, 3, 0);
    SAME(works_of(t, "alive", DUR_FETCH_FRESH, got), 1);
    told(t, 3, 0); /* also while it runs again */
    MUST(dur_store_ack_work_item(t->p, got[0].lock_token, NULL, ERR));
    told(t, 3, 1);
}

static void ours_crash_in_company_is_told_when_the_company_came_back(kit *t) {
    NEEDS_DOUBTS();
    dur_leased_work got[4];
    crash_in_company(t);
    SAME(works_of(t, "alive", DUR_FETCH_FRESH, got), 1);
    MUST(dur_store_abandon_work_item(t->p, got[0].lock_token, 0, true, ERR)); /* it did not run */
    told(t, 3, 0);
    SAME(works_of(t, "alive", DUR_FETCH_FRESH, got), 1);
    MUST(dur_store_abandon_work_item(t->p, got[0].lock_token, 0, false, ERR)); /* it ran */
    told(t, 3, 1);
    kit_owner(t, "d4"); /* it may crash again: that is another crash */
    SAME(works_of(t, "d4", DUR_FETCH_FRESH, got), 1);
    LIVE(t->lock_ms * 4, "alive");
    told(t, 3, 1);
}

static void ours_crash_in_company_is_told_when_the_company_was_buried(kit *t) {
    NEEDS_DOUBTS();
    NEEDS("dead_letter_work");
    dur_leased_work got[4];
    crash_in_company(t);
    SAME(works_of(t, "alive", DUR_FETCH_FRESH, got), 1);
    MUST(dur_store_dead_letter_work(t->p, got[0].lock_token, "why", ERR));
    told(t, 3, 1);
}

static void ours_crash_in_company_is_never_told_when_the_company_is_blamed(kit *t) {
    NEEDS_DOUBTS();
    dur_leased_work got[4];
    crash_in_company(t);
    SAME(works_of(t, "alive", DUR_FETCH_FRESH, got), 1);
    MUST(dur_store_blame(t->p, got[0].lock_token, ERR));
    MUST(dur_store_blame(t->p, got[0].lock_token, ERR));
    MUST(dur_store_blame(t->p, "nobody's", ERR));
    MUST(dur_store_ack_work_item(t->p, got[0].lock_token, NULL, ERR));
    told(t, 3, 0);
    SAME(dies_with_work(t, "d4", DUR_FETCH_SUSPECT).crashes_alone, 0); /* the next one is its own */
    told(t, 4, 1);
}

/* Whoever goes before it could be seen has shown nothing. */
static void company_taken_away(kit *t, bool cancelled, bool removed, bool deleted) {
    NEEDS_DOUBTS();
    NEEDS("delete_instances");
    crash_in_company(t);
    MUST(kit_put(t, kit_raised(t, "b", "go", "")));
    dur_orchestration_item item = ACQUIRE("alive", "b");
    dur_activity_ref ref = { .instance = "b", .execution_id = 1, .activity_id = 2 };
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(2, "go")));
    commit.owner = "alive";
    commit.cancelled = &ref;
    commit.cancelled_count = cancelled;
    commit.remove_work = removed;
    MUST(kit_commit(t, &commit));
    const char *ids[] = { "b" };
    dur_delete_result gone;
    if (deleted) MUST(dur_store_delete_instances(t->p, ids, 1, true, &gone, ERR));
    told(t, 3, 0);
}

static void ours_crash_in_company_is_never_told_when_the_company_was_cancelled(kit *t) {
    company_taken_away(t, true, false, false);
}

static void ours_crash_in_company_is_never_told_when_the_company_was_removed(kit *t) {
    company_taken_away(t, false, true, false);
}

static void ours_crash_in_company_is_never_told_when_the_company_was_deleted(kit *t) {
    company_taken_away(t, false, false, true);
}

static void ours_crash_of_an_instance_in_company_is_told_by_a_commit(kit *t) {
    NEEDS_DOUBTS();
    dur_orchestration_item got[4];
    kit_owner(t, "alive");
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item first = dies_with_turn(t, "d1", DUR_FETCH_FRESH);
    if (first.acquisitions == 0) kit_skip(t, "the store does not count acquisitions");
    dies_with_turn(t, "d2", DUR_FETCH_FRESH);
    for (int i = 0; i < 2; i++) {
        const char *owner = i == 0 ? "d3" : "d4";
        kit_owner(t, owner);
        SAME(turns_of(t, owner, DUR_FETCH_SUSPECT, got), 1);
        MUST(kit_put(t, i == 0 ? kit_start(t, "b") : kit_raised(t, "b", "go", "")));
        SAME(turns_of(t, owner, DUR_FETCH_FRESH, got), 1);
        TEXT(got[0].instance, "b");
        LIVE(t->lock_ms * 4, "alive");
        SAME(turns_of(t, "alive", DUR_FETCH_FRESH, got), 1); /* it has not committed yet */
        dur_orchestration_item company = got[0];
        kit_owner(t, "looks");
        SAME(turns_of(t, "looks", DUR_FETCH_SUSPECT, got), 1);
        SAME(got[0].crashes, (uint64_t)i + 3);
        SAME(got[0].crashes_alone, (uint64_t)i);
        MUST(dur_store_owner_release(t->p, "looks", ERR));
        dur_turn_commit commit = COMMIT_OF(&company, EVENTS(ev_external((uint64_t)i + 1, "go")), NAMED);
        commit.owner = "alive";
        MUST(kit_commit(t, &commit));
    }
    SAME(turns_of(t, "alive", DUR_FETCH_SUSPECT, got), 1);
    SAME(got[0].crashes_alone, 2);
}

/* What has committed under its lease, and waits, has killed nobody. */
static void ours_parked_instance_is_no_suspect(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "alive");
    MUST(kit_put(t, kit_start(t, "a")));
    for (uint64_t i = 0; i < 3; i++) {
        const char *owner = i == 0 ? "d1" : i == 1 ? "d2" : "d3";
        kit_owner(t, owner);
        dur_orchestration_item item = ACQUIRE(owner, "a");
        SAME(item.crashes, 0);
        dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(i + 1, "go")), NAMED);
        commit.owner = owner;
        commit.keep_lease = true;
        MUST(kit_commit(t, &commit));
        LIVE(t->lock_ms * 4, "alive");
        MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    }
    dur_orchestration_item got[4];
    SAME(turns_of(t, "alive", DUR_FETCH_FRESH, got), 1);
}

/* A timed lock that ran out says nothing: its holder may only have been slow. */
static void ours_timed_locks_know_no_crashes(kit *t) {
    NEEDS("fetch_turns", "fetch_works");
    dur_orchestration_item item;
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    for (int i = 0; i < 3; i++) {
        dur_fetch how = { .lock_ms = t->lock_ms, .max = 1, .kind = DUR_FETCH_FRESH };
        dur_work_fetch how_work = { .lock_ms = t->lock_ms, .max = 1, .kind = DUR_FETCH_FRESH };
        dur_leased_work work;
        size_t count = 0;
        MUST(dur_store_fetch_turns(t->p, t->arena, &how, &item, &count, ERR));
        SAME(count, 1);
        SAME(item.crashes, 0);
        MUST(dur_store_fetch_works(t->p, t->arena, &how_work, &work, &count, ERR));
        SAME(count, 1);
        SAME(work.crashes, 0);
        kit_expire(t);
    }
}

static void ours_owner_release_is_clean(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "me");
    kit_owner(t, "next");
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dur_orchestration_item item = ACQUIRE("me", "a");
    work_of(t, "me", 1);
    MUST(dur_store_owner_release(t->p, "me", ERR));
    dur_leased_work work = work_of(t, "next", 1); /* at once */
    SAME(work.crashes, 0);
    SAME(work.attempt_count, 1);
    dur_orchestration_item again = ACQUIRE("next", "a");
    if (again.acquisitions != 0) SAME(again.acquisitions, 1);
    SAME(again.attempt_count, 1);
    SAME(beat(t, "next").peers, 0);
    dur_turn_commit late = COMMIT_OF(&item, EVENTS(ev_external(2, "go")));
    THAT(kit_commit(t, &late) != DUR_OK);
}

/* The owner has exactly so many, and one of them is this. */
static void holds(kit *t, const char *owner, size_t want, const dur_holding *one) {
    dur_holding *all = NULL;
    size_t count = 0, same = 0;
    MUST(dur_store_owner_holdings(t->p, t->arena, owner, &all, &count, ERR));
    SAME(count, want);
    for (size_t i = 0; one != NULL && i < count; i++)
        same += all[i].kind == one->kind && strcmp(all[i].instance, one->instance) == 0 &&
                all[i].execution_id == one->execution_id && all[i].activity_id == one->activity_id &&
                strcmp(all[i].token, one->token) == 0;
    if (one != NULL) SAME(same, 1);
}
#define HOLDS(owner, want, ...) holds(t, (owner), (want), &(dur_holding){ __VA_ARGS__ })
#define HOLDS_NOTHING(owner) holds(t, (owner), 0, NULL)

static void ours_owner_holdings_are_what_it_has_locked(kit *t) {
    NEEDS_OWNERS();
    NEEDS("owner_holdings", "return_works");
    kit_owner(t, "me");
    kit_owner(t, "next");
    kit_create(t, "a");
    kit_create(t, "b");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    MUST(kit_put_work(t, kit_activity(t, "a", 7)));
    HOLDS_NOTHING("me"); /* nothing of it is locked */
    dur_orchestration_item item = ACQUIRE("me", "a");
    HOLDS("me", 1, DUR_HOLDS_INSTANCE, "a", .token = item.lock_token);
    dur_leased_work work = work_of(t, "me", 7);
    HOLDS("me", 2, DUR_HOLDS_INSTANCE, "a", .token = item.lock_token);
    HOLDS("me", 2, DUR_HOLDS_WORK, "a", 1, 7, work.lock_token);
    HOLDS_NOTHING("next");
    HOLDS_NOTHING("nobody");

    dur_turn_commit keeps = COMMIT_OF(&item, EVENTS(ev_external(2, "go")), WORK(kit_activity(t, "a", 3)));
    keeps.owner = "me";
    keeps.worker_items[0].lock_token = "eager";
    keeps.keep_lease = true;
    MUST(kit_commit(t, &keeps));
    size_t eager = keeps.worker_items[0].locked;
    HOLDS("me", 2 + eager, DUR_HOLDS_INSTANCE, "a", .token = item.lock_token);
    if (eager == 1) HOLDS("me", 3, DUR_HOLDS_WORK, "a", 1, 3, "eager");
    dur_worker_claim claim = { .ref = work.ref, .lock_token = work.lock_token };
    MUST(dur_store_return_works(t->p, &claim, 1, ERR));
    HOLDS("me", 1 + eager, DUR_HOLDS_INSTANCE, "a", .token = item.lock_token);
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, true, ERR));
    work = work_of(t, "next", 7);
    HOLDS("next", 1, DUR_HOLDS_WORK, "a", 1, 7, work.lock_token);
    MUST(dur_store_owner_release(t->p, "me", ERR));
    HOLDS_NOTHING("me");
    HOLDS("next", 1, DUR_HOLDS_WORK, "a", 1, 7, work.lock_token);
    MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
    HOLDS_NOTHING("next");
}

static void ours_owner_holdings_have_its_sessions(kit *t) {
    NEEDS_OWNERS();
    NEEDS("owner_holdings");
    kit_owner(t, "me");
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    dur_leased_work work;
    size_t count = 0;
    dur_work_fetch how = { .lock_ms = t->lock_ms, .owner = "me", .max = 1, SESSION("node") };
    MUST(dur_store_fetch_works(t->p, t->arena, &how, &work, &count, ERR));
    SAME(count, 1);
    HOLDS("me", 2, DUR_HOLDS_WORK, "a", 1, 1, work.lock_token);
    HOLDS("me", 2, DUR_HOLDS_SESSION, "s", .token = "");
}

static void ours_session_of_a_dead_owner_waits_for_its_node(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "dead");
    kit_owner(t, "alive");
    for (uint64_t id = 1; id <= 2; id++)
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, id, "s", NULL)));
    dur_leased_work work;
    size_t count = 0;
    dur_work_fetch how = {
        .lock_ms = t->lock_ms, .owner = "dead", .max = 1, .session_owner = "node", .session_lock_ms = t->lock_ms * 4
    };
    MUST(dur_store_fetch_works(t->p, t->arena, &how, &work, &count, ERR));
    SAME(count, 1);
    LIVE(t->lock_ms * 5 / 2, "alive"); /* dead by now, its session's reserve is not over */
    NO_WORK_AS(SESSION("other"));
    how.owner = "alive"; /* the node came back */
    MUST(dur_store_fetch_works(t->p, t->arena, &how, &work, &count, ERR));
    SAME(count, 1);
}

/* Nobody will come back under that name. */
static void ours_session_of_a_dead_owner_without_a_node_is_free(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "dead");
    kit_owner(t, "alive");
    for (uint64_t id = 1; id <= 2; id++)
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, id, "s", NULL)));
    dur_leased_work work;
    size_t count = 0;
    dur_work_fetch how = {
        .lock_ms = t->lock_ms, .owner = "dead", .max = 1, .session_owner = "dead", .session_lock_ms = t->lock_ms * 100
    };
    MUST(dur_store_fetch_works(t->p, t->arena, &how, &work, &count, ERR));
    SAME(count, 1);
    LIVE(t->lock_ms * 4, "alive");
    how.owner = how.session_owner = "alive";
    MUST(dur_store_fetch_works(t->p, t->arena, &how, &work, &count, ERR));
    SAME(count, 1);
}

static void ours_session_of_a_dead_owner_is_free_in_the_end(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "dead");
    kit_owner(t, "alive");
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    dur_leased_work work;
    size_t count = 0;
    dur_work_fetch how = { .lock_ms = t->lock_ms, .owner = "dead", .max = 1, SESSION("node") };
    MUST(dur_store_fetch_works(t->p, t->arena, &how, &work, &count, ERR));
    SAME(count, 1);
    LIVE(t->lock_ms * 8, "alive");
    TAKE_WORK_AS(1, SESSION("other"));
}

static void ours_eager_rows_of_a_dead_owner(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "dead");
    kit_owner(t, "alive");
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = ACQUIRE("dead", "a");
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_started(1)), WORK(kit_activity(t, "a", 2)), NAMED);
    commit.owner = "dead";
    commit.worker_items[0].lock_token = "eager-1";
    commit.keep_lease = true;
    MUST(kit_commit(t, &commit));
    if (!commit.worker_items[0].locked) kit_skip(t, "the store does not lock eagerly");
    NO_WORK();
    LIVE(t->lock_ms * 4, "alive");
    SAME(work_of(t, "alive", 2).crashes, 1);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    ACQUIRE("alive", "a"); /* the kept lease ended with it */
}

static void ours_dead_owner_acquires_nothing(kit *t) {
    NEEDS_OWNERS();
    kit_owner(t, "dead");
    kit_owner(t, "alive");
    LIVE(t->lock_ms * 4, "alive"); /* it was taken for dead, and does not know */
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dur_orchestration_item item = { .instance = NULL };
    dur_leased_work work;
    dur_fetch how = { .lock_ms = t->lock_ms, .owner = "dead", .max = 1 };
    dur_work_fetch how_work = { .lock_ms = t->lock_ms, .owner = "dead", .max = 1 };
    size_t count = 0;
    int code = dur_store_fetch_turns(t->p, t->arena, &how, &item, &count, ERR);
    THAT(code == DUR_ELEASE || (code == DUR_OK && count == 0)); /* nobody would ever set it free */
    count = 0;
    code = dur_store_fetch_works(t->p, t->arena, &how_work, &work, &count, ERR);
    THAT(code == DUR_ELEASE || (code == DUR_OK && count == 0));
    item = ACQUIRE("alive", "a");
    work_of(t, "alive", 1);
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_started(1)), WORK(kit_activity(t, "a", 2)), NAMED);
    commit.owner = "dead"; /* nor is anything locked for it, or kept */
    commit.worker_items[0].lock_token = "eager-1";
    commit.keep_lease = true;
    code = kit_commit(t, &commit);
    if (code == DUR_OK) THAT(!commit.worker_items[0].locked);
}

const kit_check kit_ours_owners[] = {
    CHECK(ours_lease_holds_while_its_owner_lives),
    CHECK(ours_dead_owner_loses_everything),
    CHECK(ours_a_death_is_told_to_every_owner),
    CHECK(ours_timed_locks_are_not_freed_by_liveness),
    CHECK(ours_two_crashes_make_a_suspect_of_work),
    CHECK(ours_work_that_is_not_alone_any_more),
    CHECK(ours_suspect_with_the_fewest_crashes_alone_first),
    CHECK(ours_crashes_of_work_stay_until_it_ran),
    CHECK(ours_two_crashes_make_a_suspect_of_an_instance),
    CHECK(ours_instance_that_is_not_alone_any_more),
    CHECK(ours_round_tells_how_often_suspects_crashed_alone),
    CHECK(ours_what_a_crash_has_hit_keeps_its_place),
    CHECK(ours_parked_instance_is_no_suspect),
    CHECK(ours_crash_in_company_is_told_when_the_company_has_ended),
    CHECK(ours_crash_in_company_is_told_when_the_company_came_back),
    CHECK(ours_crash_in_company_is_told_when_the_company_was_buried),
    CHECK(ours_crash_in_company_is_never_told_when_the_company_is_blamed),
    CHECK(ours_crash_in_company_is_never_told_when_the_company_was_cancelled),
    CHECK(ours_crash_in_company_is_never_told_when_the_company_was_removed),
    CHECK(ours_crash_in_company_is_never_told_when_the_company_was_deleted),
    CHECK(ours_crash_of_an_instance_in_company_is_told_by_a_commit),
    CHECK(ours_timed_locks_know_no_crashes),
    CHECK(ours_owner_release_is_clean),
    CHECK(ours_owner_holdings_are_what_it_has_locked),
    CHECK(ours_owner_holdings_have_its_sessions),
    CHECK(ours_session_of_a_dead_owner_waits_for_its_node),
    CHECK(ours_session_of_a_dead_owner_is_free_in_the_end),
    CHECK(ours_session_of_a_dead_owner_without_a_node_is_free),
    CHECK(ours_eager_rows_of_a_dead_owner),
    CHECK(ours_dead_owner_acquires_nothing),
    CHECKS_END,
};
