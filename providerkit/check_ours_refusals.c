/*
 * check_ours_refusals.c: our own: what is refused leaves no trace.  A turn that does everything at once is refused in
 * every way; and every method is called with a token that is no longer the caller's.
 */
#include "kit_internal.h"

/* ---- turns ------------------------------------------------------------------------------------------------------- */

typedef struct scene {
    dur_orchestration_item item; /* of a, held */
    dur_leased_work mine, lost;  /* two activities of a that run: one is ours, of one the lock is gone */
    uint64_t due;
    uint64_t ids[4];
    dur_worker_claim claims[2];
    dur_activity_ref cancelled, timer;
} scene;

/* Instance a has events, values, a status, a timer, three activities and two messages; b waits for messages. */
static void set_scene(kit *t, scene *s) {
    memset(s, 0, sizeof(*s));
    s->due = dur_store_now_ms(t->p) + 600000;
    kit_create(t, "b");
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item first = TAKE("a");
    MUST(ACK(&first, EVENTS(ev_started(1), ev_set(2, "k", "old"), ev_status(3, "old"), ev_scheduled(4)),
             WORK(kit_activity(t, "a", 4), kit_activity(t, "a", 5), kit_activity(t, "a", 6)),
             MESSAGES(kit_timer(t, "a", 1, 7, s->due), kit_raised(t, "a", "go", ""), kit_queued(t, "a", "q", "x")),
             .meta = { .orchestration_name = KIT_NAME,
                       .orchestration_version = KIT_VERSION,
                       .birth = 77,
                       .has_pinned_version = true,
                       .pinned_version = { 1, 0, 0 } }));
    s->lost = TAKE_WORK(4);
    s->mine = TAKE_WORK(5);
    MUST(dur_store_abandon_work_item(t->p, s->lost.lock_token, 0, true, ERR));
    s->item = TAKE("a");
    SAME(s->item.message_count, 2);
    s->ids[0] = s->item.messages[0].id;
    s->ids[1] = s->item.messages[1].id;
    s->claims[0] = (dur_worker_claim){ .ref = s->mine.ref, .lock_token = s->mine.lock_token };
    s->claims[1] = (dur_worker_claim){ .ref = s->lost.ref, .lock_token = s->lost.lock_token };
    s->cancelled = REF("a", 1, 6);
    s->timer = REF("a", 1, 7);
}

/* All that a turn can do; `ends`: it completes the instance, else it suspends it. */
static dur_turn_commit everything(kit *t, scene *s, bool ends) {
    dur_turn_commit commit =
        COMMIT_OF(&s->item, EVENTS(ev_set(20, "k", "new"), ev_set(21, "new", "new"), ev_status(22, "new")),
                  WORK(kit_activity(t, "a", 20), kit_activity(t, "b", 21)),
                  MESSAGES(kit_raised(t, "b", "from a", ""), kit_start(t, "c"), kit_timer(t, "b", 1, 9, s->due)),
                  .meta = { .orchestration_name = "Other",
                            .orchestration_version = "9.9.9",
                            .parent_instance_id = "b",
                            .status = ends ? DUR_STATUS_COMPLETED : DUR_STATUS_NONE,
                            .output = ends ? "new" : NULL,
                            .has_pinned_version = true,
                            .pinned_version = { 9, 9, 9 } });
    commit.cancelled = &s->cancelled;
    commit.cancelled_count = 1;
    commit.timers_dropped = &s->timer;
    commit.timers_dropped_count = 1;
    commit.consume_listed = true;
    commit.consumed = s->ids;
    commit.consumed_count = 2;
    commit.worker_consumed = s->claims;
    commit.worker_consumed_count = 1;
    commit.remove_work = ends;
    commit.set_suspended = !ends;
    commit.suspended = ends ? NULL : "new";
    commit.delay_ms = 600000;
    commit.open = 3;
    return commit;
}

/* What can be seen of the store, in words. */
static const char *seen(kit *t) {
    dur_queue_depths depths = kit_depths(t);
    dur_instance_row a = kit_instance(t, "a"), b = kit_instance(t, "b"), c;
    dur_key_value *values = NULL;
    dur_execution_row *executions = NULL;
    size_t value_count = 0, execution_count = 0;
    MUST(dur_store_get_kv_all_values(t->p, t->arena, "a", &values, &value_count, ERR));
    MUST(dur_store_list_executions(t->p, t->arena, "a", &executions, &execution_count, ERR));
    int code = dur_store_get_instance(t->p, t->arena, "c", &c, ERR);
    return kit_format(
        t,
        "depths %llu %llu %llu %llu, a %s %s %s %d %s %s %llu %s %s %llu %llu, b %d %zu, c %s, values %zu %s, "
        "executions %zu %llu, events %zu %zu",
        (unsigned long long)depths.orchestrator_queue, (unsigned long long)depths.worker_queue,
        (unsigned long long)depths.timer_queue, (unsigned long long)depths.dead_letters, a.orchestration_name,
        a.orchestration_version, a.parent_instance_id != NULL ? a.parent_instance_id : "-", (int)a.status,
        a.output != NULL ? a.output : "-", a.custom_status, (unsigned long long)a.custom_status_version,
        a.suspended != NULL ? a.suspended : "-", a.handler != NULL ? a.handler : "-", (unsigned long long)a.birth,
        (unsigned long long)a.current_execution_id, (int)b.status, kit_history(t, "b", 0, NULL),
        code == DUR_OK ? "there" : "not there", value_count, value_count > 0 ? values[0].value : "-", execution_count,
        (unsigned long long)executions[0].completed_at_ms, kit_history(t, "a", 1, NULL), kit_history(t, "a", 2, NULL));
}

typedef enum refusal {
    BAD_TOKEN,
    OTHERS_TOKEN,
    BAD_POSITION,
    NO_PARENT,
    LOST_WORK,
    DOUBLE_EVENT,
    LEASED,
    OTHER_BIRTH,
    NOT_SUSPENDED,
    GONE_MESSAGE,
    REFUSALS
} refusal;

static void spoil(kit *t, scene *s, dur_turn_commit *commit, refusal how) {
    (void)t;
    switch (how) {
    case BAD_TOKEN:
        commit->lock_token = "no-such-token";
        break;
    case OTHERS_TOKEN:
        commit->lock_token = s->mine.lock_token;
        break; /* a token, but of a worker row */
    case BAD_POSITION:
        commit->expected_last = 3;
        break;
    case NO_PARENT:
        commit->metadata.parent_instance_id = "nobody";
        commit->needs_parent = true;
        break;
    case LOST_WORK:
        commit->worker_consumed_count = 2;
        break;
    case DOUBLE_EVENT:
        ((dur_event_row *)(uintptr_t)commit->events)[2].event_id = 4;
        break;
    case LEASED:
        commit->take_over = commit->if_unleased = true;
        break;
    case OTHER_BIRTH:
        commit->take_over = true;
        commit->metadata.birth = 78;
        break;
    case NOT_SUSPENDED:
        commit->take_over = true;
        commit->if_suspended = "another reason";
        break;
    case GONE_MESSAGE:
        commit->take_over = true;
        s->ids[2] = 987654321;
        commit->consumed_count = 3;
        break;
    case REFUSALS:
        break;
    }
    if (commit->take_over) {
        commit->lock_token = NULL;
        commit->delay_ms = 0;
    }
}

static void refuse_all(kit *t, dur_lane *lane) {
    static const dur_turn_fault faults[REFUSALS] = {
        [BAD_TOKEN] = DUR_TURN_LEASE_LOST,  [OTHERS_TOKEN] = DUR_TURN_LEASE_LOST, [BAD_POSITION] = DUR_TURN_POSITION,
        [NO_PARENT] = DUR_TURN_ORPHAN,      [LOST_WORK] = DUR_TURN_WORK_LOST,     [DOUBLE_EVENT] = DUR_TURN_POSITION,
        [LEASED] = DUR_TURN_LEASE_LOST,     [OTHER_BIRTH] = DUR_TURN_POSITION,    [NOT_SUSPENDED] = DUR_TURN_POSITION,
        [GONE_MESSAGE] = DUR_TURN_POSITION,
    };
    scene s;
    set_scene(t, &s);
    const char *before = seen(t);
    for (int ends = 0; ends <= 1; ends++)
        for (int how = 0; how < REFUSALS; how++) {
            dur_turn_commit commit = everything(t, &s, ends);
            spoil(t, &s, &commit, (refusal)how);
            if (lane != NULL)
                kit_round(t, lane, &(dur_round){ .turns = &commit, .turn_count = 1 });
            else
                THAT(kit_commit(t, &commit) != DUR_OK);
            SAME(commit.fault, faults[how]);
            THAT(commit.error.code != DUR_OK && !commit.error.retryable);
            TEXT(seen(t), before);
            NOTHING(); /* neither b nor c has a message, and a is held */
        }
    /* the lease, the row and the messages are as they were */
    bool lost = true;
    if (dur_store_has(t->p, "check_works")) {
        MUST(dur_store_check_works(t->p, s.claims, 1, 0, &lost, ERR));
        THAT(!lost);
    }
    dur_turn_commit good = COMMIT_OF(&s.item, EVENTS(ev_external(5, "go")));
    good.expected_last = 4;
    good.consume_listed = true;
    good.consumed = s.ids;
    good.consumed_count = 1;
    good.worker_consumed = s.claims;
    good.worker_consumed_count = 1;
    MUST(kit_commit(t, &good));
    s.item = TAKE("a");
    SAME(s.item.message_count, 1);
    SAME(s.item.messages[0].id, s.ids[1]);
    TAKE_WORK(4);
    TAKE_WORK(6);
    NO_WORK();
}

static void ours_refused_turn_leaves_no_part(kit *t) {
    NEEDS("commit_turns", "get_queue_depths", "get_instance", "list_executions");
    refuse_all(t, NULL);
}

static void ours_refused_turn_of_a_round_leaves_no_part(kit *t) {
    NEEDS("commit_turns", "get_queue_depths", "get_instance", "list_executions", "lane_open", "lane_round");
    bool owners = dur_store_has(t->p, "owner_register");
    if (owners) kit_owner(t, "me");
    refuse_all(t, kit_lane(t, owners ? "me" : NULL));
}

/* Beside one that is refused the others of the array happen, each as a whole. */
static void ours_refused_turn_takes_nobody_along(kit *t) {
    NEEDS("commit_turns");
    enum { MANY = 12 };
    dur_orchestration_item items[MANY];
    dur_turn_commit turns[MANY];
    for (int i = 0; i < MANY; i++) {
        const char *id = kit_format(t, "i-%d", i);
        MUST(kit_put(t, kit_start(t, id)));
        items[i] = TAKE(id);
        turns[i] = COMMIT_OF(&items[i], EVENTS(ev_started(1)), WORK(kit_activity(t, id, (uint64_t)i)), NAMED);
        if (i % 3 == 1) turns[i].lock_token = "no-such-token";
        if (i % 3 == 2) turns[i].expected_last = 7;
    }
    MUST(dur_store_commit_turns(t->p, turns, MANY, ERR));
    for (int i = 0; i < MANY; i++) {
        SAME(turns[i].fault, i % 3 == 0 ? DUR_TURN_FINE : i % 3 == 1 ? DUR_TURN_LEASE_LOST : DUR_TURN_POSITION);
        SAME(kit_history(t, items[i].instance, 1, NULL), i % 3 == 0);
        if (i % 3 == 0) TAKE_WORK((uint64_t)i);
    }
    NO_WORK();
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

/* Every method that takes the token of an instance, with one that is not good any more. */
static void refuse_lease(kit *t, const dur_orchestration_item *old) {
    REFUSED(DUR_ELEASE, NULL, dur_store_renew_orchestration_item_lock(t->p, old->lock_token, 100 * t->lock_ms, ERR));
    REFUSED(DUR_ELEASE, NULL, dur_store_abandon_orchestration_item(t->p, old->lock_token, 0, false, ERR));
    REFUSED(DUR_ELEASE, NULL, dur_store_abandon_orchestration_item(t->p, old->lock_token, 100 * t->lock_ms, true, ERR));
    REFUSED(DUR_ELEASE, "Invalid lock token",
            ACK(old, EVENTS(ev_external(50, "x")), WORK(kit_activity(t, old->instance, 50))));
    dur_turn_commit commit = COMMIT_OF(old, EVENTS(ev_external(50, "x")));
    THAT(kit_commit(t, &commit) != DUR_OK);
    SAME(commit.error.code, DUR_ELEASE);
    dur_turn_commit release = COMMIT_OF(old, .event_count = 0);
    release.execution_id = 0;
    release.consume_listed = release.give_back = true;
    if (dur_store_has(t->p, "commit_turns")) {
        THAT(kit_commit(t, &release) != DUR_OK);
        SAME(release.fault, DUR_TURN_LEASE_LOST);
    }
    if (dur_store_has(t->p, "alone_ended")) MUST(dur_store_alone_ended(t->p, old->lock_token, ERR));
}

static void ours_stale_lease_changes_nothing(kit *t) {
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item old = TAKE("a");
    kit_expire(t);
    refuse_lease(t, &old); /* nobody else has come */
    dur_orchestration_item held = TAKE("a");
    SAME(held.attempt_count, 2);
    refuse_lease(t, &old); /* somebody has */
    NOTHING();
    MUST(ACK(&held, EVENTS(ev_external(2, "go"))));
    refuse_lease(t, &held); /* used */
    NO_WORK();
    SAME(kit_history(t, "a", 1, NULL), 2);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    held = TAKE("a");
    SAME(held.attempt_count, 1);
    MUST(dur_store_abandon_orchestration_item(t->p, held.lock_token, 0, false, ERR));
    refuse_lease(t, &held); /* given back */
    held = TAKE("a");
    SAME(held.attempt_count, 2);
}

/* What the holder asked for is what it has, whoever calls with the old token. */
static void ours_stale_lease_does_not_end_the_holders(kit *t) {
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item old = TAKE("a");
    kit_expire(t);
    dur_orchestration_item held = TAKE("a");
    kit_advance(t, t->lock_ms / 2);
    refuse_lease(t, &old);
    kit_advance(t, t->lock_ms / 4);
    NOTHING();
    kit_advance(t, t->lock_ms / 4 + 100);
    REFUSED(DUR_ELEASE, NULL, ACK(&held, EVENTS(ev_external(2, "go"))));
    SAME(TAKE("a").attempt_count, 3); /* nobody's renewal with the old token made it longer */
}

/* Every method that takes the token of a worker row. */
static void refuse_work(kit *t, const dur_leased_work *old) {
    dur_message_row done = kit_finished(t, "a", 1, old->ref.activity_id, "late");
    dur_worker_claim claim = { .ref = old->ref, .lock_token = old->lock_token };
    dur_work_ack ack = { .lock_token = old->lock_token, .ref = old->ref, .completion = &done };
    bool lost = false;
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, old->lock_token, &done, ERR));
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, old->lock_token, NULL, ERR));
    REFUSED(DUR_ELEASE, NULL, dur_store_renew_work_item_lock(t->p, old->lock_token, 100 * t->lock_ms, ERR));
    REFUSED(DUR_ELEASE, NULL, dur_store_abandon_work_item(t->p, old->lock_token, 0, false, ERR));
    REFUSED(DUR_ELEASE, NULL, dur_store_abandon_work_item(t->p, old->lock_token, 100 * t->lock_ms, true, ERR));
    if (dur_store_has(t->p, "ack_works")) {
        MUST(dur_store_ack_works(t->p, &ack, 1, ERR));
        SAME(ack.error.code, DUR_ELEASE);
    }
    if (dur_store_has(t->p, "check_works")) {
        MUST(dur_store_check_works(t->p, &claim, 1, 100 * t->lock_ms, &lost, ERR));
        THAT(lost);
    }
    if (dur_store_has(t->p, "return_works")) MUST(dur_store_return_works(t->p, &claim, 1, ERR));
    if (dur_store_has(t->p, "alone_ended")) MUST(dur_store_alone_ended(t->p, old->lock_token, ERR));
    if (dur_store_has(t->p, "dead_letter_work"))
        REFUSED(DUR_ELEASE, NULL, dur_store_dead_letter_work(t->p, old->lock_token, "why", ERR));
}

static void ours_stale_token_of_work_changes_nothing(kit *t) {
    kit_create(t, "a");
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dur_leased_work old = TAKE_WORK(1);
    kit_expire(t);
    refuse_work(t, &old); /* nobody else has come */
    dur_leased_work held = TAKE_WORK(1);
    SAME(held.attempt_count, 2);
    kit_advance(t, t->lock_ms / 2);
    refuse_work(t, &old); /* somebody has */
    NO_WORK();
    kit_advance(t, t->lock_ms / 4);
    NO_WORK();
    kit_expire(t);
    held = TAKE_WORK(1);
    SAME(held.attempt_count, 3); /* nobody's renewal with the old token made it longer */
    MUST(dur_store_abandon_work_item(t->p, held.lock_token, 0, false, ERR));
    refuse_work(t, &held); /* given back */
    held = TAKE_WORK(1);
    SAME(held.attempt_count, 4);
    MUST(dur_store_ack_work_item(t->p, held.lock_token, NULL, ERR));
    refuse_work(t, &held); /* used */
    NOTHING();             /* no completion came of any of it */
    kit_expire(t);
    NO_WORK();
}

/* A lock of a session is the holder's alone, too. */
static void ours_stale_worker_does_not_move_its_session(kit *t) {
    static const char *const first[] = { "A" };
    uint64_t renewed = 9;
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2, "s", NULL)));
    dur_leased_work old = TAKE_WORK_AS(1, SESSION("A"));
    kit_expire(t);
    TAKE_WORK_AS(1, SESSION("B"));
    MUST(dur_store_renew_session_lock(t->p, first, 1, 100 * t->lock_ms, 100 * t->lock_ms, &renewed, ERR));
    SAME(renewed, 0);
    REFUSED(DUR_ELEASE, NULL, dur_store_renew_work_item_lock(t->p, old.lock_token, t->lock_ms, ERR));
    NO_WORK_AS(SESSION("A"));
    TAKE_WORK_AS(2, SESSION("B"));
}

const kit_check kit_ours_refusals[] = {
    CHECK(ours_refused_turn_leaves_no_part),
    CHECK(ours_refused_turn_of_a_round_leaves_no_part),
    CHECK(ours_refused_turn_takes_nobody_along),
    CHECK(ours_stale_lease_changes_nothing),
    CHECK(ours_stale_lease_does_not_end_the_holders),
    CHECK(ours_stale_token_of_work_changes_nothing),
    CHECK(ours_stale_worker_does_not_move_its_session),
    CHECKS_END,
};
