/*
 * check_stats.c: the eight younger ones: sizes of an instance, and reading what cannot be read.
 */
#include "kit_internal.h"

static dur_instance_stats stats(kit *t, const char *instance) {
    dur_instance_stats out = { 0, 0, 0, 0, 0 };
    bool found = false;
    MUST(dur_store_get_instance_stats(t->p, t->arena, instance, &found, &out, ERR));
    THAT(found);
    return out;
}

static void get_instance_stats_nonexistent(kit *t) {
    NEEDS("get_instance_stats");
    dur_instance_stats out;
    bool found = true;
    MUST(dur_store_get_instance_stats(t->p, t->arena, "nobody", &found, &out, ERR));
    THAT(!found);
}

static void get_instance_stats_history(kit *t) {
    NEEDS("get_instance_stats");
    dur_event_row *rows;
    kit_create(t, "a");
    STEP("a", 1, ev_scheduled(2), ev_activity_done(3, 2));
    size_t count = kit_history(t, "a", 1, &rows);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += rows[i].json.size;
    dur_instance_stats now = stats(t, "a");
    SAME(now.history_event_count, 3);
    SAME(now.history_size_bytes, bytes);
    kit_continue(t, "a", 1); /* the current execution counts */
    SAME(stats(t, "a").history_event_count, 1);
}

static void get_instance_stats_kv(kit *t) {
    NEEDS("get_instance_stats");
    kit_create(t, "a");
    SAME(stats(t, "a").kv_user_key_count, 0);
    STEP_END("a", 1, COMPLETED, "out", ev_set(2, "k", "12345"), ev_set(3, "l", "123"), ev_done(4, "out"));
    dur_instance_stats now = stats(t, "a");
    SAME(now.kv_user_key_count, 2);
    SAME(now.kv_total_value_bytes, 8);
}

static void get_instance_stats_kv_delta_only(kit *t) {
    NEEDS("get_instance_stats");
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "12345"));
    dur_instance_stats now = stats(t, "a");
    SAME(now.kv_user_key_count, 1);
    SAME(now.kv_total_value_bytes, 5);
}

static void get_instance_stats_kv_merged(kit *t) {
    NEEDS("get_instance_stats");
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "stays", "12"), ev_set(3, "changes", "12345"), ev_set(4, "goes", "1234567"));
    kit_continue(t, "a", 1);
    STEP("a", 2, ev_set(2, "changes", "1"), ev_clear(3, "goes"), ev_set(4, "new", "1234"));
    dur_instance_stats now = stats(t, "a");
    SAME(now.kv_user_key_count, 3);
    SAME(now.kv_total_value_bytes, 7);
}

static void get_instance_stats_carry_forward(kit *t) {
    NEEDS("get_instance_stats");
    static const dur_carried carried[] = { { "q", "1" }, { "q", "2" }, { "r", "3" } };
    kit_create(t, "a");
    SAME(stats(t, "a").queue_pending_count, 0);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_continued(2, "next")), MESSAGES(kit_next(t, "a", "next")),
             ENDS(CONTINUED_AS_NEW, "next")));
    item = TAKE("a");
    dur_event started = ev_started(1);
    started.carry_forward_events = carried;
    started.carry_forward_count = COUNT(carried);
    MUST(ACK(&item, .execution = 2, EVENTS(started), NAMED));
    SAME(stats(t, "a").queue_pending_count, 3);
}

/* An instance of two executions; the second cannot be read. */
static void unreadable(kit *t) {
    kit_create(t, "a");
    kit_continue(t, "a", 1);
    kit_corrupt(t, "a");
}

static void read_corrupted_history_returns_error(kit *t) {
    dur_event *events = NULL;
    size_t count = 0;
    unreadable(t);
    REFUSED(DUR_ECORRUPT, "deserialization failed",
            dur_store_read_events(t->p, t->arena, "a", 0, &events, &count, ERR));
}

static void read_with_execution_corrupted_history_returns_error(kit *t) {
    dur_event *events = NULL;
    size_t count = 0;
    unreadable(t);
    REFUSED(DUR_ECORRUPT, "deserialization failed",
            dur_store_read_events(t->p, t->arena, "a", 2, &events, &count, ERR));
    if (t->factory->corrupt_history == NULL) { /* only the one execution was touched */
        MUST(dur_store_read_events(t->p, t->arena, "a", 1, &events, &count, ERR));
        SAME(count, 2);
    }
}

const kit_check kit_stats[] = {
    CHECK(get_instance_stats_nonexistent),
    CHECK(get_instance_stats_history),
    CHECK(get_instance_stats_kv),
    CHECK(get_instance_stats_kv_delta_only),
    CHECK(get_instance_stats_kv_merged),
    CHECK(get_instance_stats_carry_forward),
    CHECK(read_corrupted_history_returns_error),
    CHECK(read_with_execution_corrupted_history_returns_error),
    CHECKS_END,
};
