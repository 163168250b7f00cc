/*
 * check_tag_filtering.c: which work a node takes.
 */
#include "kit_internal.h"

static void put(kit *t, uint64_t id, const char *tag) {
    MUST(kit_put_work(t, kit_activity_in(t, "a", 1, id, NULL, tag)));
}

static const char *tag_of(kit *t, dur_leased_work work) {
    dur_work_item item;
    MUST(dur_work_from_json(&item, t->arena, work.json, ERR));
    return item.tag;
}

#define ANY_TAG .tags = { .mode = DUR_TAGS_ANY }
#define NO_TAG .tags = { .mode = DUR_TAGS_NONE }

static void default_only_fetches_untagged(kit *t) {
    put(t, 1, NULL);
    put(t, 2, "gpu");
    put(t, 3, NULL);
    TEXT(tag_of(t, TAKE_WORK(1)), NULL);
    TEXT(tag_of(t, TAKE_WORK(3)), NULL);
    NO_WORK();
}

static void tags_fetches_only_matching(kit *t) {
    put(t, 1, NULL);
    put(t, 2, "cpu");
    put(t, 3, "gpu");
    put(t, 4, "gpu");
    TAKE_WORK_AS(3, TAGS(ONLY, "gpu"));
    TAKE_WORK_AS(4, TAGS(ONLY, "gpu"));
    NO_WORK_AS(TAGS(ONLY, "gpu"));
    NO_WORK_AS(TAGS(ONLY, "GPU"));
    NO_WORK_AS(TAGS(ONLY, "cp"));
}

static void default_and_fetches_untagged_and_matching(kit *t) {
    put(t, 1, "cpu");
    put(t, 2, NULL);
    put(t, 3, "gpu");
    TAKE_WORK_AS(2, TAGS(AND_DEFAULT, "gpu"));
    TAKE_WORK_AS(3, TAGS(AND_DEFAULT, "gpu"));
    NO_WORK_AS(TAGS(AND_DEFAULT, "gpu"));
}

static void none_filter_returns_nothing(kit *t) {
    put(t, 1, NULL);
    put(t, 2, "gpu");
    NO_WORK_AS(NO_TAG);
    NO_WORK_AS(NO_TAG, SESSION("A"));
    SAME(TAKE_WORK(1).attempt_count, 1); /* nothing was locked */
}

static void multi_tag_filter(kit *t) {
    put(t, 1, "red");
    put(t, 2, "green");
    put(t, 3, "blue");
    TAKE_WORK_AS(1, TAGS(ONLY, "blue", "red"));
    TAKE_WORK_AS(3, TAGS(ONLY, "blue", "red"));
    NO_WORK_AS(TAGS(ONLY, "blue", "red"));
}

static void tag_round_trip_preservation(kit *t) {
    put(t, 1, "we/ird t\xC3\xA4g'\"");
    dur_leased_work work = TAKE_WORK_AS(1, TAGS(ONLY, "we/ird t\xC3\xA4g'\""));
    TEXT(tag_of(t, work), "we/ird t\xC3\xA4g'\"");
}

static void any_filter_fetches_everything(kit *t) {
    put(t, 1, "x");
    put(t, 2, NULL);
    put(t, 3, "y");
    for (uint64_t id = 1; id <= 3; id++)
        TAKE_WORK_AS(id, ANY_TAG);
    NO_WORK_AS(ANY_TAG);
}

static void tag_survives_abandon_and_refetch(kit *t) {
    put(t, 1, "gpu");
    put(t, 2, NULL);
    dur_leased_work work = TAKE_WORK_AS(1, TAGS(ONLY, "gpu"));
    MUST(dur_store_abandon_work_item(t->p, work.lock_token, 0, false, ERR));
    dur_leased_work again = TAKE_WORK_AS(1, TAGS(ONLY, "gpu"));
    TEXT(tag_of(t, again), "gpu");
    SAME(again.attempt_count, 2);
    THAT(strcmp(again.lock_token, work.lock_token) != 0);
    work = TAKE_WORK(2);
    MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
    kit_expire(t);
    NO_WORK();
    TAKE_WORK_AS(1, TAGS(AND_DEFAULT, "gpu"));
}

static void multi_runtime_tag_isolation(kit *t) {
    /* disjoint */
    put(t, 1, "a");
    put(t, 2, "b");
    NO_WORK_AS(TAGS(ONLY, "c"));
    TAKE_WORK_AS(2, TAGS(ONLY, "b"));
    TAKE_WORK_AS(1, TAGS(ONLY, "a"));
    /* overlapping */
    put(t, 3, "a");
    put(t, 4, "b");
    put(t, 5, "c");
    TAKE_WORK_AS(3, TAGS(ONLY, "a", "b"));
    TAKE_WORK_AS(4, TAGS(ONLY, "b", "c"));
    NO_WORK_AS(TAGS(ONLY, "a", "b"));
    TAKE_WORK_AS(5, TAGS(ONLY, "b", "c"));
    /* one that takes all */
    put(t, 6, NULL);
    put(t, 7, "a");
    TAKE_WORK_AS(6, ANY_TAG);
    TAKE_WORK_AS(7, TAGS(AND_DEFAULT, "a"));
}

static void tag_preserved_through_ack_orchestration_item(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)),
             WORK(kit_activity_in(t, "a", 1, 2, NULL, "gpu"), kit_activity_in(t, "a", 1, 3, NULL, NULL)), NAMED));
    TAKE_WORK(3);
    NO_WORK();
    TEXT(tag_of(t, TAKE_WORK_AS(2, TAGS(ONLY, "gpu"))), "gpu");
}

const kit_check kit_tag_filtering[] = {
    CHECK(default_only_fetches_untagged),
    CHECK(tags_fetches_only_matching),
    CHECK(default_and_fetches_untagged_and_matching),
    CHECK(none_filter_returns_nothing),
    CHECK(multi_tag_filter),
    CHECK(tag_round_trip_preservation),
    CHECK(any_filter_fetches_everything),
    CHECK(tag_survives_abandon_and_refetch),
    CHECK(multi_runtime_tag_isolation),
    CHECK(tag_preserved_through_ack_orchestration_item),
    CHECKS_END,
};
