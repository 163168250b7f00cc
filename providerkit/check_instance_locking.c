/*
 * check_instance_locking.c: one holder at a time, and what its lock covers.
 */
#include "kit_internal.h"

static void exclusive_instance_lock(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item first = TAKE("a");
    NOTHING();
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    NOTHING();
    kit_expire(t);
    THAT(strcmp(TAKE("a").lock_token, first.lock_token) != 0);
}

static void lock_token_uniqueness(kit *t) {
    const char *tokens[6];
    for (size_t i = 0; i < 5; i++) {
        MUST(kit_put(t, kit_start(t, kit_format(t, "i-%zu", i))));
        dur_orchestration_item item = kit_fetch(t);
        THAT(item.instance != NULL);
        tokens[i] = item.lock_token;
    }
    MUST(dur_store_abandon_orchestration_item(t->p, tokens[0], 0, false, ERR));
    tokens[5] = kit_fetch(t).lock_token; /* the same instance again */
    THAT(tokens[5] != NULL);
    for (size_t i = 0; i < 6; i++)
        for (size_t k = 0; k < i; k++)
            THAT(strcmp(tokens[i], tokens[k]) != 0);
}

static void invalid_lock_token_rejection(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    REFUSED(DUR_ELEASE, "Invalid lock token", ACK(&item, .token = "no-such-token", EVENTS(ev_started(1)), NAMED));
    REFUSED(DUR_ELEASE, NULL, dur_store_abandon_orchestration_item(t->p, "no-such-token", 0, false, ERR));
    REFUSED(DUR_ELEASE, NULL, dur_store_renew_orchestration_item_lock(t->p, "no-such-token", t->lock_ms, ERR));
    NOTHING(); /* still locked */
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
    REFUSED(DUR_ELEASE, "Invalid lock token", ACK(&item, EVENTS(ev_scheduled(2)))); /* used up */
    REFUSED(DUR_ELEASE, NULL, dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, false, ERR));
}

/* Fetch until nothing comes (a lost race may look like nothing once), noting the instances. */
static void fetch_some(kit_thread *self) {
    const size_t *most = self->data;
    dur_fetch how = { .lock_ms = self->t->lock_ms };
    for (int empty = 0; empty < 20 && self->count < *most;) {
        dur_orchestration_item item = { .instance = NULL };
        self->code = dur_store_fetch_orchestration_item(self->t->p, self->arena, &how, &item, &self->err);
        if (self->code != DUR_OK) return;
        if (item.instance != NULL)
            self->text[self->count++] = item.instance;
        else
            empty++;
    }
}

static void each_once(kit *t, const kit_thread *threads, size_t n, size_t instances) {
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        if (threads[i].code != DUR_OK) kit_fail(t, __FILE__, __LINE__, "a thread's fetch: %s", threads[i].err.message);
        total += threads[i].count;
        for (size_t a = 0; a < threads[i].count; a++)
            for (size_t k = 0; k <= i; k++)
                for (size_t b = 0; b < (k == i ? a : threads[k].count); b++)
                    if (strcmp(threads[i].text[a], threads[k].text[b]) == 0)
                        kit_fail(t, __FILE__, __LINE__, "%s was fetched twice", threads[i].text[a]);
    }
    SAME(total, instances);
}

static void concurrent_instance_fetching(kit *t) {
    size_t most = 1;
    for (int i = 0; i < 10; i++)
        MUST(kit_put(t, kit_start(t, kit_format(t, "i-%d", i))));
    each_once(t, kit_threads(t, 10, fetch_some, &most), 10, 10);
}

static void completions_arriving_during_lock_blocked(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    TAKE("a");
    for (uint64_t id = 2; id <= 4; id++)
        MUST(kit_put(t, kit_finished(t, "a", 1, id, "r")));
    NOTHING();
    kit_expire(t);
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 4);
    THAT(kit_says(item.messages[0].json, "StartOrchestration"));
    for (size_t i = 1; i < 4; i++) {
        THAT(kit_says(item.messages[i].json, "ActivityCompleted"));
        THAT(item.messages[i].id > item.messages[i - 1].id);
    }
}

static void cross_instance_lock_isolation(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item a = TAKE("a");
    MUST(kit_put(t, kit_start(t, "b")));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item b = TAKE("b");
    MUST(ACK(&b, EVENTS(ev_started(1)), NAMED));
    NOTHING();
    MUST(kit_put(t, kit_finished(t, "b", 1, 2, "r")));
    TAKE("b"); /* b goes on while a is locked */
    MUST(ACK(&a, EVENTS(ev_started(1)), NAMED));
    SAME(TAKE("a").message_count, 1);
}

static void message_tagging_during_lock(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(kit_put(t, kit_raised(t, "a", "early", "")));
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 2);
    MUST(kit_put(t, kit_raised(t, "a", "later", "")));
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
    item = TAKE("a");
    SAME(item.message_count, 1);
    THAT(kit_says(item.messages[0].json, "later"));
    SAME(item.messages[0].attempt_count, 1);
}

static void ack_only_affects_locked_messages(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(kit_put(t, kit_raised(t, "a", "early", "")));
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 2);
    MUST(kit_put(t, kit_raised(t, "a", "late-1", "")));
    MUST(kit_put(t, kit_raised(t, "a", "late-2", "")));
    MUST(kit_put(t, kit_start(t, "b")));
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
    dur_orchestration_item one = kit_fetch(t), two = kit_fetch(t);
    THAT(one.instance != NULL && two.instance != NULL);
    dur_orchestration_item *a = strcmp(one.instance, "a") == 0 ? &one : &two;
    TEXT(a->instance, "a");
    SAME(a->message_count, 2);
    THAT(kit_says(a->messages[0].json, "late-1") && kit_says(a->messages[1].json, "late-2"));
}

static void multi_threaded_lock_contention(kit *t) {
    size_t most = 1;
    MUST(kit_put(t, kit_start(t, "a")));
    each_once(t, kit_threads(t, 8, fetch_some, &most), 8, 1);
    NOTHING();
}

static void multi_threaded_no_duplicate_processing(kit *t) {
    size_t most = 60;
    for (int i = 0; i < 40; i++)
        MUST(kit_put(t, kit_start(t, kit_format(t, "i-%d", i))));
    each_once(t, kit_threads(t, 6, fetch_some, &most), 6, 40);
}

static void multi_threaded_lock_expiration_recovery(kit *t) {
    size_t most = 1;
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item first = TAKE("a");
    each_once(t, kit_threads(t, 4, fetch_some, &most), 4, 0);
    kit_expire(t);
    each_once(t, kit_threads(t, 4, fetch_some, &most), 4, 1);
    REFUSED(DUR_ELEASE, "Invalid lock token", ACK(&first, EVENTS(ev_started(1)), NAMED));
}

const kit_check kit_instance_locking[] = {
    CHECK(exclusive_instance_lock),
    CHECK(lock_token_uniqueness),
    CHECK(invalid_lock_token_rejection),
    CHECK(concurrent_instance_fetching),
    CHECK(completions_arriving_during_lock_blocked),
    CHECK(cross_instance_lock_isolation),
    CHECK(message_tagging_during_lock),
    CHECK(ack_only_affects_locked_messages),
    CHECK(multi_threaded_lock_contention),
    CHECK(multi_threaded_no_duplicate_processing),
    CHECK(multi_threaded_lock_expiration_recovery),
    CHECKS_END,
};
