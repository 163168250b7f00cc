/*
 * check_ours_arrays.c: our own: methods that take and give arrays.
 */
#include "kit_internal.h"

static size_t fetch(kit *t, const dur_fetch *how, dur_orchestration_item *out) {
    dur_fetch full = *how;
    size_t count = 0;
    if (full.lock_ms == 0) full.lock_ms = t->lock_ms;
    MUST(dur_store_fetch_turns(t->p, t->arena, &full, out, &count, ERR));
    return count;
}
#define FETCH(out, ...) fetch(t, &(dur_fetch){ __VA_ARGS__ }, (out))

static size_t works(kit *t, const dur_work_fetch *how, dur_leased_work *out) {
    dur_work_fetch full = *how;
    size_t count = 0;
    if (full.lock_ms == 0) full.lock_ms = t->lock_ms;
    MUST(dur_store_fetch_works(t->p, t->arena, &full, out, &count, ERR));
    return count;
}
#define WORKS(out, ...) works(t, &(dur_work_fetch){ __VA_ARGS__ }, (out))

static void ours_fetch_many_turns(kit *t) {
    NEEDS("fetch_turns");
    dur_orchestration_item items[8];
    for (int i = 0; i < 5; i++)
        MUST(kit_put(t, kit_start(t, kit_format(t, "i-%d", i))));
    SAME(FETCH(items, .max = 3), 3);
    SAME(FETCH(items + 3, .max = 5), 2);
    SAME(FETCH(items + 5, .max = 3), 0);
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < i; k++) {
            THAT(strcmp(items[i].instance, items[k].instance) != 0);
            THAT(strcmp(items[i].lock_token, items[k].lock_token) != 0);
        }
}

static void ours_fetch_first_of_each_queue(kit *t) {
    NEEDS("fetch_turns");
    dur_orchestration_item item;
    kit_create(t, "a");
    for (int i = 0; i < 4; i++) {
        MUST(kit_put(t, kit_queued(t, "a", "q", kit_format(t, "q%d", i))));
        if (i < 2) MUST(kit_put(t, kit_queued(t, "a", "r", kit_format(t, "r%d", i))));
        MUST(kit_put(t, kit_raised(t, "a", kit_format(t, "e%d", i), "")));
    }
    SAME(FETCH(&item, .max = 1, .queue_messages_max = 2), 1);
    static const char *const order[] = { "q0", "r0", "e0", "q1", "r1", "e1", "e2", "e3" };
    SAME(item.message_count, COUNT(order));
    for (size_t i = 0; i < COUNT(order); i++)
        THAT(kit_says(item.messages[i].json, order[i]));
    THAT(item.more_messages);
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, true, ERR));
    SAME(FETCH(&item, .max = 1), 1);
    SAME(item.message_count, 10);
    THAT(!item.more_messages);
}

static void ours_fetch_without_history(kit *t) {
    NEEDS("fetch_turns");
    dur_orchestration_item item;
    kit_create(t, "a");
    STEP("a", 1, ev_scheduled(2), ev_scheduled(3));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    SAME(FETCH(&item, .max = 1, .without_history = true), 1);
    SAME(item.history_count, 0);
    SAME(item.last_event_id, 3);
    SAME(item.message_count, 1);
    TEXT(item.orchestration_name, KIT_NAME);
    TEXT(item.version, KIT_VERSION);
    SAME(item.execution_id, 1);
}

static void ours_fetch_many_works(kit *t) {
    NEEDS("fetch_works");
    dur_leased_work got[8];
    for (uint64_t id = 1; id <= 5; id++)
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, id, id == 2 ? "s" : NULL, id == 3 ? "gpu" : NULL)));
    SAME(WORKS(got, .max = 2), 2); /* neither the session's nor the tagged one */
    SAME(got[0].ref.activity_id, 1);
    SAME(got[1].ref.activity_id, 4);
    SAME(WORKS(got + 2, .max = 6, SESSION("A"), TAGS(AND_DEFAULT, "gpu")), 3);
    SAME(got[2].ref.activity_id, 2);
    SAME(got[3].ref.activity_id, 3);
    SAME(got[4].ref.activity_id, 5);
    SAME(WORKS(got + 5, .max = 3, SESSION("A"), TAGS(AND_DEFAULT, "gpu")), 0);
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < i; k++)
            THAT(strcmp(got[i].lock_token, got[k].lock_token) != 0);
}

static void ours_fetch_works_one_session_one_worker(kit *t) {
    NEEDS("fetch_works");
    dur_leased_work got[8];
    for (uint64_t id = 1; id <= 4; id++)
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, id, id % 2 ? "odd" : "even", NULL)));
    SAME(WORKS(got, .max = 1, SESSION("A")), 1);
    SAME(WORKS(got, .max = 8, SESSION("B")), 2);
    SAME(got[0].ref.activity_id, 2);
    SAME(got[1].ref.activity_id, 4);
    SAME(WORKS(got, .max = 8, SESSION("A")), 1);
    SAME(got[0].ref.activity_id, 3);
}

static void ours_ack_many_works(kit *t) {
    NEEDS("ack_works", "fetch_works");
    dur_leased_work got[3];
    kit_create(t, "a");
    for (uint64_t id = 1; id <= 3; id++)
        MUST(kit_put_work(t, kit_activity(t, "a", id)));
    SAME(WORKS(got, .max = 3), 3);
    dur_message_row one = kit_finished(t, "a", 1, 1, "one"), two = kit_finished(t, "a", 1, 2, "two");
    dur_work_ack acks[4] = { { .lock_token = got[0].lock_token, .completion = &one, .ref = got[0].ref },
                             { .lock_token = "no-such-token", .completion = &two },
                             { .lock_token = got[1].lock_token, .completion = &two }, /* found by the token */
                             { .lock_token = got[2].lock_token, .ref = got[2].ref } };
    MUST(dur_store_ack_works(t->p, acks, 4, ERR));
    SAME(acks[0].error.code, DUR_OK);
    SAME(acks[1].error.code, DUR_ELEASE);
    SAME(acks[2].error.code, DUR_OK);
    SAME(acks[3].error.code, DUR_OK);
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 2);
    kit_expire(t);
    NO_WORK();
}

static void ours_check_works(kit *t) {
    NEEDS("check_works");
    for (uint64_t id = 1; id <= 2; id++)
        MUST(kit_put_work(t, kit_activity(t, "a", id)));
    dur_leased_work one = TAKE_WORK(1), two = TAKE_WORK(2);
    dur_worker_claim claims[3] = { { .ref = one.ref, .lock_token = one.lock_token },
                                   { .ref = two.ref, .lock_token = two.lock_token },
                                   { .ref = one.ref, .lock_token = "no-such-token" } };
    bool lost[3] = { true, true, false };
    MUST(dur_store_check_works(t->p, claims, 3, 0, lost, ERR));
    THAT(!lost[0] && !lost[1] && lost[2]);
    kit_advance(t, t->lock_ms / 2);
    MUST(dur_store_ack_work_item(t->p, two.lock_token, NULL, ERR));
    MUST(dur_store_check_works(t->p, claims, 2, t->lock_ms, lost, ERR)); /* and longer */
    THAT(!lost[0] && lost[1]);
    kit_advance(t, t->lock_ms * 3 / 4);
    NO_WORK();
    kit_expire(t);
    MUST(dur_store_check_works(t->p, claims, 1, 0, lost, ERR));
    THAT(lost[0]);
}

static void ours_look_at_works_is_no_activity(kit *t) {
    NEEDS("check_works");
    static const char *const nodes[] = { "node" };
    uint64_t renewed = 0, third = t->lock_ms / 3;
    bool lost = true;
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 1, "s", NULL)));
    dur_leased_work work = TAKE_WORK_AS(1, SESSION("node"));
    dur_worker_claim claim = { .ref = work.ref, .lock_token = work.lock_token };
    kit_advance(t, third);
    MUST(dur_store_check_works(t->p, &claim, 1, 0, &lost, ERR));
    THAT(!lost);
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, t->lock_ms, third / 2, &renewed, ERR));
    SAME(renewed, 0); /* idle since it was claimed */
    MUST(dur_store_check_works(t->p, &claim, 1, t->lock_ms, &lost, ERR));
    MUST(dur_store_renew_session_lock(t->p, nodes, 1, t->lock_ms, third / 2, &renewed, ERR));
    SAME(renewed, 1);
}

static void ours_return_works(kit *t) {
    NEEDS("return_works");
    for (uint64_t id = 1; id <= 3; id++)
        MUST(kit_put_work(t, kit_activity(t, "a", id)));
    dur_leased_work one = TAKE_WORK(1), two = TAKE_WORK(2);
    dur_worker_claim claims[] = { { .ref = two.ref, .lock_token = two.lock_token },
                                  { .ref = one.ref, .lock_token = one.lock_token } };
    MUST(dur_store_return_works(t->p, claims, 2, ERR));
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, one.lock_token, NULL, ERR));
    SAME(TAKE_WORK(1).attempt_count, 1); /* its place in the order is kept, its attempt not counted */
    SAME(TAKE_WORK(2).attempt_count, 1);
    TAKE_WORK(3);
}

const kit_check kit_ours_arrays[] = {
    CHECK(ours_fetch_many_turns),
    CHECK(ours_fetch_first_of_each_queue),
    CHECK(ours_fetch_without_history),
    CHECK(ours_fetch_many_works),
    CHECK(ours_fetch_works_one_session_one_worker),
    CHECK(ours_ack_many_works),
    CHECK(ours_check_works),
    CHECK(ours_look_at_works_is_no_activity),
    CHECK(ours_return_works),
    CHECKS_END,
};
