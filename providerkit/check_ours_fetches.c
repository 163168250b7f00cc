/*
 * check_ours_fetches.c: our own: every fetch is a fetch.  What the plain ones promise (versions, suspension, delays,
 * order, tags, sessions, counts) the arrays and the rounds promise, too.
 */
#include "kit_internal.h"

typedef enum way { PLAIN, ARRAY, ROUND, WAYS } way;

typedef struct desk {
    dur_lane *lane; /* NULL: the store has none */
    const char *owner;
} desk;

static desk open_desk(kit *t) {
    desk out = { NULL, NULL };
    if (dur_store_has(t->p, "owner_register")) {
        kit_owner(t, "me");
        out.owner = "me";
    }
    if (dur_store_has(t->p, "lane_round")) out.lane = kit_lane(t, out.owner);
    return out;
}

static bool can(kit *t, const desk *at, way how) {
    if (how == ARRAY) return dur_store_has(t->p, "fetch_turns") && dur_store_has(t->p, "fetch_works");
    return how == PLAIN || at->lane != NULL;
}

/* One instance by this way; instance NULL: none. */
static dur_orchestration_item fetch_by(kit *t, const desk *at, way how, dur_fetch fetch) {
    dur_orchestration_item item = { .instance = NULL };
    size_t count = 0;
    fetch.lock_ms = t->lock_ms;
    fetch.max = 1;
    if (how == PLAIN) {
        MUST(dur_store_fetch_orchestration_item(t->p, t->arena, &fetch, &item, ERR));
    } else if (how == ARRAY) {
        MUST(dur_store_fetch_turns(t->p, t->arena, &fetch, &item, &count, ERR));
        if (count == 0) item.instance = NULL;
    } else {
        dur_round round = { .fetch = &fetch };
        fetch.owner = at->owner;
        kit_round(t, at->lane, &round);
        if (round.item_count > 0) item = round.items[0];
    }
    return item;
}
#define FETCH(how, ...) fetch_by(t, &me, (how), (dur_fetch){ __VA_ARGS__ })

static dur_leased_work work_by(kit *t, const desk *at, way how, dur_work_fetch fetch) {
    dur_leased_work work = { .lock_token = NULL };
    size_t count = 0;
    fetch.lock_ms = t->lock_ms;
    fetch.max = 1;
    if (how == PLAIN) {
        MUST(dur_store_fetch_work_item(t->p, t->arena, &fetch, &work, ERR));
    } else if (how == ARRAY) {
        MUST(dur_store_fetch_works(t->p, t->arena, &fetch, &work, &count, ERR));
        if (count == 0) work.json.data = NULL;
    } else {
        dur_round round = { .work = &fetch };
        kit_round(t, at->lane, &round);
        if (round.work_count > 0) work = round.works[0];
    }
    return work;
}
#define WORK_BY(how, ...) work_by(t, &me, (how), (dur_work_fetch){ __VA_ARGS__ })

static void back(kit *t, const dur_orchestration_item *item) {
    MUST(dur_store_abandon_orchestration_item(t->p, item->lock_token, 0, true, ERR));
}

static void ours_every_fetch_looks_at_versions(kit *t) {
    const dur_version_range twos = { { 2, 0, 0 }, { 2, 9, 9 } }, pairs[] = { { { 1, 0, 0 }, { 1, 9, 9 } }, twos };
    const dur_capability_filter two = { &twos, 1 }, none = { &twos, 0 }, first_counts = { pairs, 2 };
    desk me = open_desk(t);
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), PINNED(2, 3, 4), MESSAGES(kit_raised(t, "a", "go", ""))));
    for (way how = PLAIN; how < WAYS; how++) {
        if (!can(t, &me, how)) continue;
        THAT(FETCH(how, .filter = &none).instance == NULL);
        THAT(FETCH(how, .filter = &first_counts).instance == NULL);
        item = FETCH(how, .filter = &two);
        TEXT(item.instance, "a");
        SAME(item.attempt_count, 1); /* those that passed it by have not counted */
        back(t, &item);
    }
}

static void ours_every_fetch_skips_the_suspended(kit *t) {
    NEEDS("set_suspended");
    desk me = open_desk(t);
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    for (way how = PLAIN; how < WAYS; how++) {
        if (!can(t, &me, how)) continue;
        MUST(dur_store_set_suspended(t->p, "a", "on purpose", ERR));
        THAT(FETCH(how, .lock_ms = 0).instance == NULL);
        MUST(dur_store_set_suspended(t->p, "a", NULL, ERR));
        dur_orchestration_item item = FETCH(how, .lock_ms = 0);
        TEXT(item.instance, "a");
        back(t, &item);
    }
}

static void ours_every_fetch_waits_for_its_time(kit *t) {
    desk me = open_desk(t);
    for (way how = PLAIN; how < WAYS; how++) {
        if (!can(t, &me, how)) continue;
        const char *id = kit_format(t, "i-%d", (int)how);
        kit_create(t, id);
        dur_message_row later = kit_raised(t, id, "later", "");
        MUST(dur_store_enqueue_for_orchestrator(t->p, &later, 400, ERR));
        THAT(FETCH(how, .lock_ms = 0).instance == NULL);
        MUST(kit_put(t, kit_raised(t, id, "now", "")));
        dur_orchestration_item item = FETCH(how, .lock_ms = 0);
        TEXT(item.instance, id);
        SAME(item.message_count, 1); /* what is not due does not come along */
        MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 400, true, ERR));
        THAT(FETCH(how, .lock_ms = 0).instance == NULL);
        kit_advance(t, 450);
        item = FETCH(how, .lock_ms = 0);
        TEXT(item.instance, id);
        SAME(item.message_count, 2);
        MUST(ACK(&item, EVENTS(ev_external(2, "go"))));
    }
}

static void ours_every_fetch_counts_attempts(kit *t) {
    desk me = open_desk(t);
    uint32_t attempt = 0;
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    MUST(kit_put_work(t, kit_activity(t, "b", 1)));
    for (int again = 0; again < 2; again++)
        for (way how = PLAIN; how < WAYS; how++) {
            if (!can(t, &me, how)) continue;
            dur_orchestration_item item = FETCH(how, .lock_ms = 0);
            TEXT(item.instance, "a");
            attempt++;
            SAME(item.attempt_count, attempt);
            SAME(item.messages[0].attempt_count, attempt);
            MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, false, ERR));
            dur_leased_work work = WORK_BY(how, .lock_ms = 0);
            SAME(work.ref.activity_id, 1);
            SAME(work.attempt_count, attempt);
            MUST(dur_store_abandon_work_item(t->p, work.lock_token, 0, false, ERR));
        }
}

static void ours_every_fetch_is_told_the_same(kit *t) {
    desk me = open_desk(t);
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"));
    kit_continue(t, "a", 1);
    STEP("a", 2, ev_scheduled(2), ev_scheduled(3));
    MUST(kit_put(t, kit_queued(t, "a", "q", "x")));
    for (way how = PLAIN; how < WAYS; how++) {
        if (!can(t, &me, how)) continue;
        dur_orchestration_item item = FETCH(how, .lock_ms = 0);
        TEXT(item.instance, "a");
        TEXT(item.orchestration_name, KIT_NAME);
        TEXT(item.version, KIT_VERSION);
        SAME(item.execution_id, 2);
        SAME(item.last_event_id, 3);
        SAME(item.history_count, 3);
        SAME(item.kv_count, 1);
        TEXT(kit_snapshot(&item, "k"), "v");
        SAME(item.kv[0].last_updated_at_ms, 1700000000002u);
        TEXT(item.messages[0].queue, "q");
        back(t, &item);
    }
}

static void ours_every_fetch_of_work_chooses(kit *t) {
    desk me = open_desk(t);
    for (way how = PLAIN; how < WAYS; how++) {
        if (!can(t, &me, how)) continue;
        uint64_t id = 10 * ((uint64_t)how + 1);
        const char *session = kit_format(t, "s-%d", (int)how);
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, id, NULL, "gpu")));
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, id + 1, session, NULL)));
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, id + 2, session, NULL)));
        THAT(WORK_BY(how, .lock_ms = 0).json.data == NULL);
        THAT(WORK_BY(how, TAGS(ONLY, "cpu")).json.data == NULL);
        SAME(WORK_BY(how, TAGS(ONLY, "cpu", "gpu")).ref.activity_id, id);
        SAME(WORK_BY(how, SESSION("A")).ref.activity_id, id + 1);
        THAT(WORK_BY(how, SESSION("B")).json.data == NULL);
        THAT(WORK_BY(how, .tags = { .mode = DUR_TAGS_ANY }).json.data == NULL);
        SAME(WORK_BY(how, SESSION("A"), .tags = { .mode = DUR_TAGS_ANY }).ref.activity_id, id + 2);
    }
}

/* Of those that wait the one whose first message came first: nobody who sends to itself keeps others waiting. */
static void ours_who_waits_longest_is_fetched_first(kit *t) {
    desk me = open_desk(t);
    static const char *const ids[] = { "z", "a", "m" };
    for (way how = PLAIN; how < WAYS; how++) {
        if (!can(t, &me, how)) continue;
        for (size_t i = 0; i < 3; i++) {
            const char *id = kit_format(t, "%s-%d", ids[i], (int)how);
            kit_create(t, id);
        }
        for (size_t i = 0; i < 3; i++) {
            MUST(kit_put(t, kit_raised(t, kit_format(t, "%s-%d", ids[i], (int)how), "go", "")));
            kit_advance(t, 20);
        }
        for (size_t i = 0; i < 9; i++) { /* each sends itself a message and is the last then */
            const char *id = kit_format(t, "%s-%d", ids[i % 3], (int)how);
            dur_orchestration_item item = FETCH(how, .lock_ms = 0);
            TEXT(item.instance, id);
            kit_advance(t, 20);
            MUST(ACK(&item, EVENTS(ev_external(i + 2, "go")), MESSAGES(kit_raised(t, id, "go", ""))));
        }
        for (size_t i = 0; i < 3; i++) {
            dur_orchestration_item item = FETCH(how, .lock_ms = 0);
            MUST(ACK(&item, EVENTS(ev_external(99, "go"))));
        }
    }
}

static void ours_suspending_turn_ends_the_lease(kit *t) {
    NEEDS("commit_turns", "fetch_turns", "set_suspended");
    bool owners = dur_store_has(t->p, "owner_register");
    if (owners) kit_owner(t, "me");
    for (int owned = 0; owned <= owners; owned++) {
        const char *id = kit_format(t, "i-%d", owned), *owner = owned ? "me" : NULL;
        kit_create(t, id);
        MUST(kit_put(t, kit_raised(t, id, "go", "")));
        dur_orchestration_item item = ACQUIRE(owner, id);
        dur_turn_commit pause = COMMIT_OF(&item, EVENTS(ev_external(2, "go")));
        pause.owner = owner;
        pause.consume_listed = pause.set_suspended = true;
        pause.suspended = "does not fit";
        MUST(kit_commit(t, &pause));
        THAT(!pause.lease_kept);
        REFUSED(DUR_ELEASE, NULL, dur_store_renew_orchestration_item_lock(t->p, item.lock_token, t->lock_ms, ERR));
        REFUSED(DUR_ELEASE, NULL, ACK(&item, EVENTS(ev_external(3, "go"))));
        NOTHING();
        MUST(dur_store_set_suspended(t->p, id, NULL, ERR));
        SAME(ACQUIRE(owner, id).message_count, 1);
    }
}

const kit_check kit_ours_fetches[] = {
    CHECK(ours_every_fetch_looks_at_versions),
    CHECK(ours_every_fetch_skips_the_suspended),
    CHECK(ours_every_fetch_waits_for_its_time),
    CHECK(ours_every_fetch_counts_attempts),
    CHECK(ours_every_fetch_is_told_the_same),
    CHECK(ours_every_fetch_of_work_chooses),
    CHECK(ours_who_waits_longest_is_fetched_first),
    CHECK(ours_suspending_turn_ends_the_lease),
    CHECKS_END,
};
