/*
 * check_capability_filtering.c: pinned versions decide who may fetch, before any lock and before history is touched.
 */
#include "kit_internal.h"

#define RANGE(a, b, c, d, e, f)                                                                                        \
    {                                                                                                                  \
        { (a), (b), (c) }, {                                                                                           \
            (d), (e), (f)                                                                                              \
        }                                                                                                              \
    }
#define FILTER(...)                                                                                                    \
    (&(dur_capability_filter){ (const dur_version_range[]){ __VA_ARGS__ },                                             \
                               sizeof((const dur_version_range[]){ __VA_ARGS__ }) / sizeof(dur_version_range) })
#define ONE_X FILTER(RANGE(1, 0, 0, 1, 9, 99))
#define TWO_X FILTER(RANGE(2, 0, 0, 2, 9, 99))

static dur_orchestration_item take_for(kit *t, const char *instance, const dur_capability_filter *filter) {
    dur_orchestration_item item = kit_fetch_for(t, filter);
    TEXT(item.instance, instance);
    return item;
}

#define NOTHING_FOR(filter) THAT(kit_fetch_for(t, (filter)).instance == NULL)

/* A running instance pinned to major.minor.patch, with a message waiting. */
static void pinned(kit *t, const char *instance, uint32_t major, uint32_t minor, uint32_t patch) {
    MUST(kit_put(t, kit_start(t, instance)));
    dur_orchestration_item item = TAKE(instance);
    MUST(ACK(&item, EVENTS(ev_started(1)), MESSAGES(kit_raised(t, instance, "go", "")), PINNED(major, minor, patch)));
}

static void fetch_with_filter_none_returns_any_item(kit *t) {
    pinned(t, "a", 99, 0, 0);
    TAKE("a");
}

static void fetch_with_compatible_filter_returns_item(kit *t) {
    pinned(t, "a", 1, 2, 3);
    take_for(t, "a", ONE_X);
}

static void fetch_with_incompatible_filter_skips_item(kit *t) {
    pinned(t, "a", 1, 2, 3);
    NOTHING_FOR(TWO_X);
}

static void fetch_filter_skips_incompatible_selects_compatible(kit *t) {
    /* each is pinned while it is the only one with a message, so that the older one comes first */
    pinned(t, "old", 1, 0, 0);
    MUST(kit_put(t, kit_start(t, "young")));
    dur_orchestration_item item = kit_fetch(t), other = kit_fetch(t);
    dur_orchestration_item *young = strcmp(item.instance, "young") == 0 ? &item : &other;
    dur_orchestration_item *old = young == &item ? &other : &item;
    MUST(ACK(young, EVENTS(ev_started(1)), MESSAGES(kit_raised(t, "young", "go", "")), PINNED(2, 0, 0)));
    MUST(dur_store_abandon_orchestration_item(t->p, old->lock_token, 0, false, ERR));
    take_for(t, "young", TWO_X);
    NOTHING_FOR(TWO_X);
    take_for(t, "old", ONE_X);
}

static void fetch_filter_does_not_lock_skipped_instances(kit *t) {
    pinned(t, "a", 1, 0, 0);
    NOTHING_FOR(TWO_X);
    dur_orchestration_item item = take_for(t, "a", ONE_X);
    SAME(item.attempt_count, 1); /* skipping is no attempt */
}

static void fetch_filter_null_pinned_version_always_compatible(kit *t) {
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = take_for(t, "a", FILTER(RANGE(77, 0, 0, 77, 0, 0)));
    MUST(ACK(&item, EVENTS(ev_external(2, "go"))));
    MUST(kit_put(t, kit_start(t, "b"))); /* no row at all */
    take_for(t, "b", TWO_X);
}

static void fetch_filter_boundary_versions(kit *t) {
    pinned(t, "a", 1, 0, 0);
    dur_orchestration_item item = take_for(t, "a", ONE_X);
    MUST(ACK(&item, EVENTS(ev_external(2, "go")), MESSAGES(kit_raised(t, "a", "go", "")), PINNED(1, 9, 99)));
    item = take_for(t, "a", ONE_X);
    MUST(ACK(&item, EVENTS(ev_external(3, "go")), MESSAGES(kit_raised(t, "a", "go", "")), PINNED(2, 0, 0)));
    NOTHING_FOR(ONE_X);
    item = take_for(t, "a", TWO_X);
    /* parts of 1000 and more are parts, not carries */
    MUST(ACK(&item, EVENTS(ev_external(4, "go")), MESSAGES(kit_raised(t, "a", "go", "")), PINNED(1, 1000, 0)));
    NOTHING_FOR(TWO_X);
    NOTHING_FOR(ONE_X);
    take_for(t, "a", FILTER(RANGE(1, 999, 4000, 1, 1000, 0)));
}

static void pinned_version_stored_via_ack_metadata(kit *t) {
    pinned(t, "a", 3, 1, 4);
    NOTHING_FOR(FILTER(RANGE(3, 1, 5, 9, 0, 0)));
    NOTHING_FOR(FILTER(RANGE(0, 0, 0, 3, 1, 3)));
    take_for(t, "a", FILTER(RANGE(3, 1, 4, 3, 1, 4)));
}

static void pinned_version_immutable_across_ack_cycles(kit *t) {
    pinned(t, "a", 1, 0, 0);
    dur_orchestration_item item = take_for(t, "a", ONE_X);
    MUST(ACK(&item, EVENTS(ev_external(2, "go")), MESSAGES(kit_raised(t, "a", "go", "")), NAMED));
    NOTHING_FOR(TWO_X);
    take_for(t, "a", ONE_X);
}

static void continue_as_new_execution_gets_own_pinned_version(kit *t) {
    pinned(t, "a", 1, 0, 0);
    dur_orchestration_item item = take_for(t, "a", ONE_X);
    MUST(ACK(&item, EVENTS(ev_continued(2, "next")), MESSAGES(kit_next(t, "a", "next")),
             ENDS(CONTINUED_AS_NEW, "next")));
    item = TAKE("a");
    MUST(ACK(&item, .execution = 2, EVENTS(ev_started(1)), MESSAGES(kit_raised(t, "a", "go", "")), PINNED(2, 0, 0)));
    NOTHING_FOR(ONE_X);
    SAME(take_for(t, "a", TWO_X).execution_id, 2);
}

static void filter_with_empty_supported_versions_returns_nothing(kit *t) {
    static const dur_capability_filter nothing = { NULL, 0 };
    pinned(t, "a", 1, 0, 0);
    NOTHING_FOR(&nothing);
    MUST(kit_put(t, kit_start(t, "b"))); /* not even one without a pin */
    NOTHING_FOR(&nothing);
}

static void fetch_filtered(kit_thread *self) {
    dur_orchestration_item item = { .instance = NULL };
    dur_fetch how = { .lock_ms = self->t->lock_ms, .filter = self->data };
    self->code = dur_store_fetch_orchestration_item(self->t->p, self->arena, &how, &item, &self->err);
    if (self->code == DUR_OK && item.instance != NULL) self->text[self->count++] = item.instance;
}

static void concurrent_filtered_fetch_no_double_lock(kit *t) {
    pinned(t, "a", 1, 0, 0);
    dur_capability_filter filter = *ONE_X;
    kit_thread *two = kit_threads(t, 2, fetch_filtered, &filter);
    SAME(two[0].code, DUR_OK);
    SAME(two[1].code, DUR_OK);
    SAME(two[0].count + two[1].count, 1);
}

static void ack_stores_pinned_version_via_metadata_update(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_external(2, "go"));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = take_for(t, "a", TWO_X); /* no pin yet */
    MUST(ACK(&item, EVENTS(ev_external(3, "go")), MESSAGES(kit_raised(t, "a", "go", "")), PINNED(1, 0, 0)));
    NOTHING_FOR(TWO_X);
    take_for(t, "a", ONE_X);
}

static void provider_updates_pinned_version_when_told(kit *t) {
    pinned(t, "a", 1, 0, 0);
    dur_orchestration_item item = take_for(t, "a", ONE_X);
    MUST(ACK(&item, EVENTS(ev_external(2, "go")), MESSAGES(kit_raised(t, "a", "go", "")), PINNED(2, 0, 0)));
    NOTHING_FOR(ONE_X);
    take_for(t, "a", TWO_X);
}

static void fetch_corrupted_history_filtered_vs_unfiltered(kit *t) {
    pinned(t, "a", 1, 0, 0);
    kit_corrupt(t, "a");
    NOTHING_FOR(TWO_X);
    dur_orchestration_item item = TAKE("a");
    THAT(item.history_error != NULL);
    THAT(strstr(item.history_error, "deserialization failed") != NULL);
    SAME(item.history_count, 0);
    SAME(item.message_count, 1);
    NOTHING(); /* it is locked like any other */
}

static void fetch_deserialization_error_increments_attempt_count(kit *t) {
    pinned(t, "a", 1, 0, 0);
    kit_corrupt(t, "a");
    for (uint32_t i = 1; i <= 3; i++) {
        dur_orchestration_item item = TAKE("a");
        THAT(item.history_error != NULL);
        SAME(item.attempt_count, i);
        SAME(kit_attempts(t, &item), i);
        kit_expire(t);
    }
}

static void fetch_deserialization_error_eventually_reaches_poison(kit *t) {
    pinned(t, "a", 1, 0, 0);
    kit_corrupt(t, "a");
    uint32_t seen = 0;
    for (uint32_t i = 0; i < 4; i++) {
        dur_orchestration_item item = TAKE("a");
        THAT(item.history_error != NULL);
        seen = item.attempt_count;
        MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, false, ERR));
    }
    THAT(seen > 3);
}

static void fetch_filter_applied_before_history_deserialization(kit *t) {
    pinned(t, "a", 99, 0, 0);
    kit_corrupt(t, "a");
    NOTHING_FOR(ONE_X);
    THAT(TAKE("a").history_error != NULL); /* who may have it is told */
}

static void fetch_single_range_only_uses_first_range(kit *t) {
    pinned(t, "a", 2, 0, 0);
    NOTHING_FOR(FILTER(RANGE(1, 0, 0, 1, 9, 99), RANGE(2, 0, 0, 2, 9, 99)));
    take_for(t, "a", FILTER(RANGE(2, 0, 0, 2, 9, 99), RANGE(1, 0, 0, 1, 9, 99)));
}

static void ack_appends_event_to_corrupted_history(kit *t) {
    pinned(t, "a", 1, 0, 0);
    kit_corrupt(t, "a");
    dur_orchestration_item item = TAKE("a");
    THAT(item.history_error != NULL);
    MUST(ACK(&item, EVENTS(ev_failed(99999, "cannot be read")), ENDS(FAILED, "cannot be read")));
    NOTHING();
    if (dur_store_has(t->p, "get_instance")) {
        dur_instance_row row = kit_instance(t, "a");
        SAME(row.status, DUR_STATUS_FAILED);
        TEXT(row.output, "cannot be read");
    }
}

const kit_check kit_capability_filtering[] = {
    CHECK(fetch_with_filter_none_returns_any_item),
    CHECK(fetch_with_compatible_filter_returns_item),
    CHECK(fetch_with_incompatible_filter_skips_item),
    CHECK(fetch_filter_skips_incompatible_selects_compatible),
    CHECK(fetch_filter_does_not_lock_skipped_instances),
    CHECK(fetch_filter_null_pinned_version_always_compatible),
    CHECK(fetch_filter_boundary_versions),
    CHECK(pinned_version_stored_via_ack_metadata),
    CHECK(pinned_version_immutable_across_ack_cycles),
    CHECK(continue_as_new_execution_gets_own_pinned_version),
    CHECK(filter_with_empty_supported_versions_returns_nothing),
    CHECK(concurrent_filtered_fetch_no_double_lock),
    CHECK(ack_stores_pinned_version_via_metadata_update),
    CHECK(provider_updates_pinned_version_when_told),
    CHECK(fetch_corrupted_history_filtered_vs_unfiltered),
    CHECK(fetch_deserialization_error_increments_attempt_count),
    CHECK(fetch_deserialization_error_eventually_reaches_poison),
    CHECK(fetch_filter_applied_before_history_deserialization),
    CHECK(fetch_single_range_only_uses_first_range),
    CHECK(ack_appends_event_to_corrupted_history),
    CHECKS_END,
};
