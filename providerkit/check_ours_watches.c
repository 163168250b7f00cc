/*
 * check_ours_watches.c: our own: who waits is told, whatever it is that came: watches of clients, and lanes that sleep.
 */
#include "kit_internal.h"

enum { PATIENCE_MS = 5000, SOON_MS = 4000 };

/* ---- watches ----------------------------------------------------------------------------------------------------- */

typedef struct scene {
    kit *t;
    dur_watch *watch;
    bool owners;
} scene;

static void look(kit *t, scene *s, const char *instance) {
    *s = (scene){ .t = t, .owners = dur_store_has(t->p, "owner_register") };
    MUST(dur_store_watch_open(t->p, instance, &s->watch, ERR));
}

/* Spurious returns are allowed; that it never stops is not. */
static void quiet(kit *t, scene *s) {
    int code = DUR_OK;
    for (int i = 0; i < 50 && code == DUR_OK; i++)
        code = dur_store_watch_wait(s->watch, 0, ERR);
    if (code == DUR_ETIMEOUT) return;
    dur_store_watch_close(s->watch);
    kit_fail(t, __FILE__, __LINE__, "the watch never comes to rest (%s)", dur_code_name(code));
}

static void told(kit *t, scene *s, const char *what) {
    int code = dur_store_watch_wait(s->watch, PATIENCE_MS, ERR);
    if (code == DUR_OK) return;
    dur_store_watch_close(s->watch);
    kit_fail(t, __FILE__, __LINE__, "the watch says nothing of %s (%s)", what, dur_code_name(code));
}

static void ours_watch_sees_every_commit(kit *t) {
    NEEDS("watch_open", "watch_wait");
    scene s;
    look(t, &s, "a"); /* before there is such an instance */
    quiet(t, &s);
    kit_create(t, "a");
    quiet(t, &s); /* of the first turn it may be told or not: a start that waits is running, too */
    STEP("a", 1, ev_set(2, "k", "v"));
    told(t, &s, "a value");
    quiet(t, &s);
    STEP("a", 1, ev_status(3, "s"));
    told(t, &s, "a custom status");
    quiet(t, &s);
    kit_continue(t, "a", 1);
    told(t, &s, "a continue-as-new");
    quiet(t, &s);
    STEP_END("a", 2, FAILED, "why", ev_failed(2, "why"));
    told(t, &s, "a failure");
    dur_store_watch_close(s.watch);
    kit_create(t, "b");
    look(t, &s, "b");
    quiet(t, &s);
    STEP_END("b", 1, COMPLETED, "out", ev_done(2, "out"));
    told(t, &s, "an end");
    dur_store_watch_close(s.watch);
}

/* Who waits for an id learns that something runs under it: its first turn need not be told. */
static void ours_watch_sees_a_start(kit *t) {
    NEEDS("watch_open", "watch_wait", "enqueue_start");
    scene s;
    bool existed = true;
    look(t, &s, "a");
    quiet(t, &s);
    dur_message_row start = kit_start(t, "a");
    int code = dur_store_enqueue_start(t->p, &start, DUR_EXISTS_FAIL, 0, &existed, ERR);
    told(t, &s, "a start");
    dur_store_watch_close(s.watch);
    SAME(code, DUR_OK);
}

static void ours_watch_sees_a_terminate(kit *t) {
    NEEDS("watch_open", "watch_wait", "commit_turns");
    scene s;
    kit_create(t, "a");
    look(t, &s, "a");
    quiet(t, &s);
    dur_orchestration_item nobody = { .instance = "a", .execution_id = 1 };
    dur_turn_commit end = COMMIT_OF(&nobody, EVENTS(ev_failed(2, "x")), ENDS(FAILED, "x"));
    end.take_over = end.remove_work = true;
    int code = kit_commit(t, &end);
    told(t, &s, "a terminate");
    dur_store_watch_close(s.watch);
    SAME(code, DUR_OK);
}

static void ours_watch_sees_turns_that_keep_their_lease(kit *t) {
    NEEDS("watch_open", "watch_wait", "commit_turns", "fetch_turns", "owner_register");
    scene s;
    kit_owner(t, "me");
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = ACQUIRE("me", "a");
    look(t, &s, "a");
    quiet(t, &s);
    for (uint64_t last = 1; last < 4; last++) {
        dur_turn_commit turn = COMMIT_OF(&item, EVENTS(ev_status(last + 1, "s")));
        turn.keep_lease = turn.consume_listed = true;
        turn.owner = "me";
        turn.expected_last = last;
        int code = kit_commit(t, &turn);
        told(t, &s, "a turn that keeps its lease");
        quiet(t, &s);
        if (code != DUR_OK || !turn.lease_kept) break;
    }
    dur_store_watch_close(s.watch);
    SAME(kit_history(t, "a", 1, NULL), 4);
}

static void ours_watch_sees_turns_of_a_round(kit *t) {
    NEEDS("watch_open", "watch_wait", "lane_open", "lane_round", "owner_register");
    scene s;
    kit_owner(t, "me");
    dur_lane *lane = kit_lane(t, "me");
    dur_fetch how = { .owner = "me", .max = 1 };
    MUST(kit_put(t, kit_start(t, "a")));
    dur_round round = { .fetch = &how };
    kit_round(t, lane, &round);
    SAME(round.item_count, 1);
    dur_orchestration_item item = round.items[0];
    look(t, &s, "a");
    quiet(t, &s);
    for (uint64_t last = 0; last < 4; last++) {
        dur_turn_commit turn = COMMIT_OF(&item, EVENTS(last == 0 ? ev_started(1) : ev_status(last + 1, "s")), NAMED);
        turn.keep_lease = last < 3;
        turn.consume_listed = true;
        turn.consumed = &item.messages[0].id;
        turn.consumed_count = 1;
        turn.owner = "me";
        turn.expected_last = last;
        round = (dur_round){ .turns = &turn, .turn_count = 1 };
        kit_round(t, lane, &round);
        if (last > 0) told(t, &s, "a turn of a round");
        quiet(t, &s);
    }
    dur_store_watch_close(s.watch);
    SAME(kit_history(t, "a", 1, NULL), 4);
}

/* Who waits for an instance is to learn that there is none any more, and why it does not go on. */
static void ours_watch_sees_deletes_and_pauses(kit *t) {
    NEEDS("watch_open", "watch_wait", "delete_instances", "set_suspended");
    static const char *const ids[] = { "a" };
    scene s;
    dur_delete_result gone;
    kit_create(t, "a");
    look(t, &s, "a");
    quiet(t, &s);
    int code = dur_store_set_suspended(t->p, "a", "on purpose", ERR);
    told(t, &s, "a suspension");
    quiet(t, &s);
    if (code == DUR_OK) code = dur_store_delete_instances(t->p, ids, 1, true, &gone, ERR);
    told(t, &s, "a deletion");
    dur_store_watch_close(s.watch);
    SAME(code, DUR_OK);
}

static void ours_watches_are_apart(kit *t) {
    NEEDS("watch_open", "watch_wait");
    scene a, again;
    kit_create(t, "a");
    look(t, &a, "a");
    look(t, &again, "a");
    quiet(t, &a);
    quiet(t, &again);
    STEP("a", 1, ev_status(2, "s"));
    told(t, &a, "a change");
    told(t, &again, "a change that another watch was told of");
    dur_store_watch_close(a.watch); /* closing one leaves the other */
    quiet(t, &again);
    STEP("a", 1, ev_status(3, "s"));
    told(t, &again, "a change after another watch was closed");
    dur_store_watch_close(again.watch);
}

static void wake_or_wait(kit_thread *self) {
    dur_watch *watch = self->data;
    if (self->index == 0) {
        kit_sleep(20);
        self->code = dur_store_watch_wake(watch) ? DUR_OK : DUR_EUNSUPPORTED;
    } else {
        uint64_t from = kit_real_ms();
        self->code = dur_store_watch_wait(watch, PATIENCE_MS, &self->err);
        self->count = kit_real_ms() - from < SOON_MS;
    }
}

static void ours_watch_is_woken(kit *t) {
    NEEDS("watch_open", "watch_wait", "watch_wake");
    scene s;
    kit_create(t, "a");
    look(t, &s, "a");
    quiet(t, &s);
    kit_thread *two = kit_threads(t, 2, wake_or_wait, s.watch);
    int slept = two[1].code;
    bool soon = two[1].count > 0;
    quiet(t, &s); /* one wake is one */
    dur_store_watch_wake(s.watch);
    int next = dur_store_watch_wait(s.watch, PATIENCE_MS, ERR); /* or the next wait */
    dur_store_watch_close(s.watch);
    SAME(slept, DUR_OK);
    THAT(soon);
    SAME(next, DUR_OK);
}

/* ---- lanes that sleep -------------------------------------------------------------------------------------------- */

typedef struct sleeper {
    dur_lane *lane;
    int (*act)(kit_thread *self, void *data);
    void *data;
} sleeper;

static void act_or_sleep(kit_thread *self) {
    sleeper *all = self->data;
    if (self->index == 0) {
        kit_sleep(25);
        self->code = all->act(self, all->data);
        return;
    }
    uint64_t from = kit_real_ms();
    self->code = dur_store_lane_wait(all->lane, PATIENCE_MS, &self->err);
    self->count = kit_real_ms() - from < SOON_MS;
}

/* The lane has looked everywhere and sleeps; then somebody does this. */
static void wakes(kit *t, dur_lane *lane, const char *what, int (*act)(kit_thread *self, void *data), void *data) {
    static const char *const no_tag[] = { "nobody's" };
    const dur_capability_filter no_version = { NULL, 0 };
    const dur_fetch none = { .lock_ms = 1, .filter = &no_version };
    const dur_work_fetch no_work = { .tags = { .mode = DUR_TAGS_ONLY, .tags = no_tag, .tag_count = 1 } };
    sleeper all = { lane, act, data };
    for (int i = 0; i < 20; i++) { /* what there was to be told has been told */
        kit_round(t, lane, &(dur_round){ .fetch = &none, .work = &no_work });
        dur_rest rest = { .us = 0 };
        bool news = true;
        MUST(dur_store_lane_rest(lane, &rest, ERR));
        if (rest.us == 0) continue;
        MUST(dur_store_lane_rise(lane, &rest, &news, ERR));
        if (!news) break;
    }
    kit_thread *two = kit_threads(t, 2, act_or_sleep, &all);
    if (two[0].code != DUR_OK)
        kit_fail(t, __FILE__, __LINE__, "%s: %s, %s", what, dur_code_name(two[0].code), two[0].err.message);
    if (two[1].code != DUR_OK || two[1].count == 0) kit_fail(t, __FILE__, __LINE__, "a lane sleeps through %s", what);
}

typedef struct cause {
    const char *instance, *token, *owner;
    dur_turn_commit *turn;
    dur_worker_claim claim;
} cause;

static int act_resume(kit_thread *self, void *data) {
    return dur_store_set_suspended(self->t->p, ((cause *)data)->instance, NULL, &self->err);
}
static int act_abandon(kit_thread *self, void *data) {
    return dur_store_abandon_orchestration_item(self->t->p, ((cause *)data)->token, 0, false, &self->err);
}
static int act_abandon_work(kit_thread *self, void *data) {
    return dur_store_abandon_work_item(self->t->p, ((cause *)data)->token, 0, false, &self->err);
}
static int act_return_work(kit_thread *self, void *data) {
    return dur_store_return_works(self->t->p, &((cause *)data)->claim, 1, &self->err);
}
static int act_commit(kit_thread *self, void *data) {
    return dur_store_ack_orchestration_item(self->t->p, ((cause *)data)->turn, &self->err);
}
static int act_release(kit_thread *self, void *data) {
    return dur_store_owner_release(self->t->p, ((cause *)data)->owner, &self->err);
}
static int act_enqueue_work(kit_thread *self, void *data) {
    return dur_store_enqueue_for_worker(self->t->p, data, &self->err);
}
static int act_beat(kit_thread *self, void *data) {
    dur_owner_report report;
    return dur_store_owner_beat(self->t->p, ((cause *)data)->owner, &report, &self->err);
}

static dur_lane *sleepy(kit *t) {
    kit_owner(t, "me");
    return kit_lane(t, "me");
}
#define NEEDS_SLEEP() NEEDS("lane_open", "lane_round", "lane_rest", "lane_rise", "owner_register")

static void ours_lane_wakes_for_instances_that_come_back(kit *t) {
    NEEDS_SLEEP();
    NEEDS("set_suspended");
    dur_lane *lane = sleepy(t);
    cause why = { .instance = "a" };
    kit_create(t, "a");
    MUST(dur_store_set_suspended(t->p, "a", "on purpose", ERR));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    wakes(t, lane, "a resume", act_resume, &why);
    why.token = TAKE("a").lock_token;
    wakes(t, lane, "an instance that is given back", act_abandon, &why);
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_external(2, "go"))));
    MUST(kit_put(t, kit_start(t, "sender")));
    item = TAKE("sender");
    dur_turn_commit turn = COMMIT_OF(&item, EVENTS(ev_started(1)), NAMED, MESSAGES(kit_raised(t, "a", "go", "")));
    why.turn = &turn;
    wakes(t, lane, "a message of a turn", act_commit, &why);
    TAKE("a");
}

static void ours_lane_wakes_for_work(kit *t) {
    NEEDS_SLEEP();
    NEEDS("return_works");
    dur_lane *lane = sleepy(t);
    cause why = { .instance = "a" };
    dur_message_row work = kit_activity(t, "b", 1);
    wakes(t, lane, "work", act_enqueue_work, &work);
    dur_leased_work got = TAKE_WORK(1);
    why.token = got.lock_token;
    wakes(t, lane, "work that is given back", act_abandon_work, &why);
    got = TAKE_WORK(1);
    why.claim = (dur_worker_claim){ .ref = got.ref, .lock_token = got.lock_token };
    wakes(t, lane, "work that is returned", act_return_work, &why);
    TAKE_WORK(1);
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    dur_turn_commit turn = COMMIT_OF(&item, EVENTS(ev_started(1)), NAMED, WORK(kit_activity(t, "a", 2)));
    why.turn = &turn;
    wakes(t, lane, "work of a turn", act_commit, &why);
    TAKE_WORK(2);
}

static void ours_lane_wakes_for_what_others_had(kit *t) {
    NEEDS_SLEEP();
    NEEDS("owner_release", "fetch_works");
    if (t->factory->advance == NULL) kit_skip(t, "time is not the kit's");
    dur_lane *lane = sleepy(t);
    dur_leased_work got;
    size_t count = 0;
    kit_owner(t, "leaves");
    MUST(kit_put_work(t, kit_activity(t, "b", 1)));
    dur_work_fetch how = { .owner = "leaves", .max = 1 };
    MUST(dur_store_fetch_works(t->p, t->arena, &how, &got, &count, ERR));
    SAME(count, 1);
    cause why = { .owner = "leaves" };
    wakes(t, lane, "the rows of an owner that leaves", act_release, &why);
    TAKE_WORK(1);
    kit_owner(t, "dies");
    kit_owner(t, "judge");
    MUST(kit_put_work(t, kit_activity(t, "b", 2)));
    how.owner = "dies";
    MUST(dur_store_fetch_works(t->p, t->arena, &how, &got, &count, ERR));
    SAME(count, 1);
    for (int i = 0; i < 4; i++) { /* "me" and "judge" live, "dies" is silent for its time */
        dur_owner_report report;
        kit_advance(t, t->lock_ms / 2 + 10);
        if (i < 3) MUST(dur_store_owner_beat(t->p, "judge", &report, ERR));
        if (i == 3) break;
    }
    kit_round(t, lane, &(dur_round){ .turn_count = 0 });
    why.owner = "judge";
    wakes(t, lane, "the rows of an owner that is dead", act_beat, &why);
}

static int act_delete(kit_thread *self, void *data) {
    dur_delete_result gone;
    return dur_store_delete_instances(self->t->p, &((cause *)data)->instance, 1, true, &gone, &self->err);
}
static int act_suspend(kit_thread *self, void *data) {
    return dur_store_set_suspended(self->t->p, ((cause *)data)->instance, "why", &self->err);
}
static int act_take_over(kit_thread *self, void *data) {
    int code = dur_store_commit_turns(self->t->p, ((cause *)data)->turn, 1, &self->err);
    return code == DUR_OK ? (int)((cause *)data)->turn->error.code : code;
}

/* Leases that it loses, and those that it is asked for. */
static void ours_lane_wakes_for_its_leases(kit *t) {
    NEEDS_SLEEP();
    NEEDS("delete_instances", "set_suspended", "commit_turns");
    dur_lane *lane = sleepy(t);
    static const char *const ids[] = { "a", "b", "c" };
    dur_fetch fetch = { .owner = "me", .max = 4 };
    for (size_t i = 0; i < COUNT(ids); i++)
        kit_create(t, ids[i]);
    for (size_t i = 0; i < COUNT(ids); i++)
        MUST(kit_put(t, kit_raised(t, ids[i], "go", "")));
    dur_round round = { .fetch = &fetch };
    kit_round(t, lane, &round);
    SAME(round.item_count, 3);
    cause why = { .instance = "a" };
    wakes(t, lane, "the end of a lease whose instance is deleted", act_delete, &why);
    why.instance = "b";
    wakes(t, lane, "a pause of an instance that it holds", act_suspend, &why);
    dur_orchestration_item nobody = { .instance = "c", .execution_id = 1 };
    dur_turn_commit turn = COMMIT_OF(&nobody, EVENTS(ev_external(2, "x")));
    turn.lock_token = NULL;
    turn.take_over = true;
    why.turn = &turn;
    wakes(t, lane, "the end of a lease that is taken over", act_take_over, &why);
}

/* When a session of another ends by its time its rows are there for everybody: that is told beforehand. */
static void ours_round_tells_when_a_session_ends(kit *t) {
    NEEDS("lane_open", "lane_round");
    bool owners = dur_store_has(t->p, "owner_register");
    if (owners) kit_owner(t, "me");
    dur_lane *lane = kit_lane(t, owners ? "me" : NULL);
    dur_work_fetch work = { .owner = owners ? "me" : NULL, .lock_ms = t->lock_ms, .max = 4, SESSION("me") };
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2, "s", NULL)));
    TAKE_WORK_AS(1, .lock_ms = 100 * t->lock_ms, SESSION("other"));
    dur_round round = { .work = &work };
    kit_round(t, lane, &round);
    SAME(round.work_count, 0);
    THAT(round.next_due_ms <= round.now_ms + t->lock_ms + 1);
    kit_expire(t);
    round = (dur_round){ .work = &work };
    kit_round(t, lane, &round);
    SAME(round.work_count, 1);
}

const kit_check kit_ours_watches[] = {
    CHECK(ours_watch_sees_every_commit),
    CHECK(ours_watch_sees_a_start),
    CHECK(ours_watch_sees_a_terminate),
    CHECK(ours_watch_sees_turns_that_keep_their_lease),
    CHECK(ours_watch_sees_turns_of_a_round),
    CHECK(ours_watch_sees_deletes_and_pauses),
    CHECK(ours_watches_are_apart),
    CHECK(ours_watch_is_woken),
    CHECK(ours_lane_wakes_for_instances_that_come_back),
    CHECK(ours_lane_wakes_for_work),
    CHECK(ours_lane_wakes_for_what_others_had),
    CHECK(ours_lane_wakes_for_its_leases),
    CHECK(ours_round_tells_when_a_session_ends),
    CHECKS_END,
};
