/*
 * check_ours_contract.c: our own: what the required methods promise beyond the reference.
 */
#include "kit_internal.h"

#include <stdio.h>

static void ours_event_id_zero_refused(kit *t) {
    dur_event_row zero = kit_row(t, "a", 1, ev_started(1));
    zero.event_id = 0;
    REFUSED(DUR_EINVAL, NULL, dur_store_append(t->p, "a", 1, &zero, 1, ERR));
    SAME(kit_history(t, "a", 1, NULL), 0);
    MUST(kit_put(t, kit_start(t, "b")));
    dur_orchestration_item item = TAKE("b");
    dur_turn_commit commit = COMMIT_OF(&item, WORK(kit_activity(t, "b", 1)), NAMED);
    commit.events = &zero;
    commit.event_count = 1;
    REFUSED(DUR_EINVAL, NULL, dur_store_ack_orchestration_item(t->p, &commit, ERR));
    NO_WORK();
    NOTHING();
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
}

static void ours_duplicate_inside_one_turn_refused(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    REFUSED(DUR_ECONFLICT, NULL, ACK(&item, EVENTS(ev_started(1), ev_scheduled(2), ev_timer(2, 7)), NAMED));
    SAME(kit_history(t, "a", 1, NULL), 0);
    MUST(ACK(&item, EVENTS(ev_started(1), ev_scheduled(2)), NAMED));
}

static void ours_messages_ordered_by_due_then_id(kit *t) {
    kit_create(t, "a");
    uint64_t now = dur_store_now_ms(t->p);
    MUST(kit_put(t, kit_timer(t, "a", 1, 5, now + 300)));
    MUST(kit_put(t, kit_timer(t, "a", 1, 6, now + 100)));
    MUST(kit_put(t, kit_timer(t, "a", 1, 7, now + 300)));
    kit_advance(t, 200);
    MUST(kit_put(t, kit_raised(t, "a", "between", ""))); /* undelayed: ordered by when it came */
    kit_advance(t, 200);
    MUST(kit_put(t, kit_raised(t, "a", "last", "")));
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 5);
    THAT(kit_says(item.messages[0].json, "\"id\":6"));
    THAT(kit_says(item.messages[1].json, "between"));
    THAT(kit_says(item.messages[2].json, "\"id\":5"));
    THAT(kit_says(item.messages[3].json, "\"id\":7"));
    THAT(kit_says(item.messages[4].json, "last"));
}

static void ours_abandon_keeps_order(kit *t) {
    kit_create(t, "a");
    for (int i = 0; i < 3; i++)
        MUST(kit_put(t, kit_raised(t, "a", kit_format(t, "m%d", i), "")));
    dur_orchestration_item first = TAKE("a");
    MUST(dur_store_abandon_orchestration_item(t->p, first.lock_token, 0, false, ERR));
    MUST(kit_put(t, kit_raised(t, "a", "m3", "")));
    dur_orchestration_item again = TAKE("a");
    SAME(again.message_count, 4);
    for (size_t i = 0; i < 4; i++)
        THAT(kit_says(again.messages[i].json, kit_format(t, "m%zu", i)));
    for (size_t i = 0; i < 3; i++)
        SAME(again.messages[i].id, first.messages[i].id);
}

static void ours_abandon_with_delay_makes_the_instance_wait(kit *t) {
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "first", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 400, false, ERR));
    MUST(kit_put(t, kit_raised(t, "a", "second", "")));
    NOTHING(); /* later messages wait behind it */
    kit_advance(t, 450);
    item = TAKE("a");
    SAME(item.message_count, 2);
    THAT(kit_says(item.messages[0].json, "first") && kit_says(item.messages[1].json, "second"));
}

static void ours_message_ids_grow(kit *t) {
    kit_create(t, "a");
    uint64_t last = 0;
    for (int i = 0; i < 5; i++) {
        MUST(kit_put(t, kit_raised(t, "a", "go", "")));
        dur_orchestration_item item = TAKE("a");
        SAME(item.message_count, 1);
        THAT(item.messages[0].id > last); /* although the one before is gone */
        last = item.messages[0].id;
        MUST(ACK(&item, .event_count = 0));
    }
}

static void ours_activity_id_zero_accepted(kit *t) {
    MUST(kit_put_work(t, kit_activity(t, "a", 0)));
    dur_leased_work work = TAKE_WORK(0);
    MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), WORK(kit_activity(t, "a", 0), kit_activity(t, "a", 1)), NAMED,
             CANCELLED(REF("a", 1, 0))));
    TAKE_WORK(1);
    NO_WORK();
}

static void ours_odd_but_legal_turns_accepted(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    /* status Running, a version that is no semver, a first event that is not Started, gaps in the ids */
    MUST(ACK(&item, EVENTS(ev_scheduled(3), ev_scheduled(7)), WORK(kit_activity(t, "a", 3)),
             .meta = { .status = DUR_STATUS_RUNNING, .orchestration_name = "N", .orchestration_version = "1.0" }));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    item = TAKE("a");
    TEXT(item.version, "1.0");
    SAME(item.last_event_id, 7);
    MUST(ACK(&item, EVENTS(ev_done(8, "out")), WORK(kit_activity(t, "a", 9)),
             .meta = { .status = DUR_STATUS_COMPLETED, .output = "out" }));
    TAKE_WORK(3);
    TAKE_WORK(9); /* work of a terminal turn is work */
    if (dur_store_has(t->p, "get_instance")) SAME(kit_instance(t, "a").status, DUR_STATUS_COMPLETED);
}

static void ours_status_without_events(kit *t) {
    NEEDS("get_instance");
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, .meta = { .status = DUR_STATUS_FAILED, .output = "why" }));
    dur_instance_row row = kit_instance(t, "a");
    SAME(row.status, DUR_STATUS_FAILED);
    TEXT(row.output, "why");
    TEXT(row.orchestration_name, KIT_NAME);
}

static void ours_unknown_instances_never_hide_others(kit *t) {
    for (int i = 0; i < 20; i++) {
        const char *nobody = kit_format(t, "nobody-%d", i);
        MUST(kit_put(t, kit_raised(t, nobody, "go", "")));
        MUST(kit_put(t, kit_finished(t, nobody, 1, 2, "r")));
        MUST(kit_put(t, kit_queued(t, nobody, "q", "x")));
        MUST(kit_put(t, kit_cancel(t, nobody, "why")));
    }
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
    NOTHING();
}

static void ours_messages_wait_for_their_instance(kit *t) {
    MUST(kit_put(t, kit_raised(t, "a", "early", "")));
    NOTHING();
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 2);
    TEXT(item.orchestration_name, KIT_NAME); /* from the start, wherever it stands */
    SAME(item.execution_id, 1);
}

static void ours_queue_messages_of_a_delayed_start_kept(kit *t) {
    dur_message_row start = kit_start(t, "a");
    MUST(dur_store_enqueue_for_orchestrator(t->p, &start, 400, ERR));
    MUST(kit_put(t, kit_queued(t, "a", "q", "kept")));
    dur_orchestration_item item = kit_fetch(t);
    if (item.instance != NULL) MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, true, ERR));
    kit_advance(t, 450);
    item = TAKE("a");
    SAME(item.message_count, 2);
    TEXT(item.orchestration_name, KIT_NAME);
}

static void ours_enqueue_delay(kit *t) {
    kit_create(t, "a");
    uint64_t now = dur_store_now_ms(t->p);
    dur_message_row soon = kit_raised(t, "a", "soon", "");
    dur_message_row late = kit_timer(t, "a", 1, 2, now + 600);
    MUST(dur_store_enqueue_for_orchestrator(t->p, &soon, 300, ERR));
    MUST(dur_store_enqueue_for_orchestrator(t->p, &late, 100, ERR)); /* the later of the two */
    NOTHING();
    kit_advance(t, 350);
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 1);
    MUST(ACK(&item, .event_count = 0));
    NOTHING();
    kit_advance(t, 300);
    SAME(TAKE("a").message_count, 1);
}

static void ours_timer_in_the_past_is_due(kit *t) {
    kit_create(t, "a");
    MUST(kit_put(t, kit_timer(t, "a", 1, 2, 1)));
    SAME(TAKE("a").message_count, 1);
}

static void ours_texts_kept_verbatim(kit *t) {
    size_t size = 1 << 20;
    char *large = dur_arena_alloc(t->arena, size);
    memset(large, ' ', size);
    static const char head[] = "{\"ExternalRaised\":{ \"odd\" :\t\"\xF0\x9F\x8D\x89'\"";
    memcpy(large, head, sizeof(head) - 1);
    memcpy(large + size - 2, "}}", 2);
    kit_create(t, "a");
    dur_message_row message = kit_raised(t, "a", "x", "");
    message.json = (dur_text){ large, size };
    MUST(kit_put(t, message));
    dur_orchestration_item item = TAKE("a");
    THAT(kit_equal_text(item.messages[0].json, message.json));
    dur_turn_commit commit = COMMIT_OF(&item, WORK(kit_activity(t, "a", 3)));
    dur_event_row row = { .event_id = 2, .kind = DUR_EVENT_EXTERNAL_EVENT, .json = message.json };
    commit.events = &row;
    commit.event_count = 1;
    commit.worker_items[0].message.json = message.json;
    MUST(dur_store_ack_orchestration_item(t->p, &commit, ERR));
    dur_event_row *rows;
    SAME(kit_history(t, "a", 1, &rows), 2);
    THAT(kit_equal_text(rows[1].json, message.json));
    THAT(kit_equal_text(TAKE_WORK(3).json, message.json));
}

static void ours_foreign_kinds_pass_through(kit *t) {
    static const char text[] = "{\"KindOfTheFuture\":{\"instance\":\"a\",\"id\":4}}";
    kit_create(t, "a");
    dur_message_row foreign = { .kind = DUR_WORK_UNKNOWN, .instance = "a", .json = { text, sizeof(text) - 1 } };
    MUST(kit_put(t, foreign));
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, 1);
    THAT(kit_equal_text(item.messages[0].json, foreign.json));
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 400, true, ERR)); /* it stays in place */
    NOTHING();
    kit_advance(t, 450);
    item = TAKE("a");
    SAME(item.attempt_count, 1);
    THAT(kit_equal_text(item.messages[0].json, foreign.json));
}

static void ours_strange_ids(kit *t) {
    char *longest = dur_arena_zalloc(t->arena, 1025);
    memset(longest, 'l', 1024);
    const char *const ids[] = { longest, "quote'; DROP TABLE instances; --", "sp ace/\xC3\xA9\\\"%_", "::a::1::" };
    for (size_t i = 0; i < COUNT(ids); i++) {
        kit_create(t, ids[i]);
        STEP(ids[i], 1, ev_set(2, "k", ids[i]));
        TEXT(kit_value(t, ids[i], "k"), ids[i]);
        SAME(kit_history(t, ids[i], 0, NULL), 2);
    }
}

static void ours_time_of_the_store(kit *t) {
    uint64_t before = dur_store_now_ms(t->p);
    THAT(before > 1500000000000u); /* milliseconds since 1970 */
    kit_advance(t, 1000);
    uint64_t after = dur_store_now_ms(t->p);
    THAT(after >= before + 990 && after <= before + 60000);
}

static void ours_jumping_wall_clock(kit *t) {
    if (t->factory->jump == NULL) kit_skip(t, "the factory cannot make the clock jump");
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dur_leased_work work = TAKE_WORK(1);
    t->factory->jump(t->factory->data, &t->store, 3600000);
    NOTHING(); /* an hour on the wall ends no lock */
    NO_WORK();
    t->factory->jump(t->factory->data, &t->store, -7200000);
    MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
    MUST(ACK(&item, EVENTS(ev_started(1)), MESSAGES(kit_raised(t, "a", "go", "")), NAMED));
    TAKE("a"); /* and what is not delayed is visible whatever the clock says */
}

static void ours_first_in_first_out_when_the_clock_jumps(kit *t) {
    static const int64_t jumps[] = { -3600000, 7200000, -1, -7200000, 3600001 };
    if (t->factory->jump == NULL) kit_skip(t, "the factory cannot make the clock jump");
    enum { COUNT = 10 };
    uint64_t id = 0;
    kit_create(t, "a");
    for (int i = 0; i < COUNT; i++) {
        char number[16];
        snprintf(number, sizeof(number), "%d", i);
        MUST(kit_put(t, kit_queued(t, "a", "q", number)));
        t->factory->jump(t->factory->data, &t->store, jumps[i % 5]);
    }
    dur_orchestration_item item = TAKE("a");
    SAME(item.message_count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        THAT(item.messages[i].id > id); /* ids grow in order of enqueueing */
        id = item.messages[i].id;
    }
}

static void ours_delays_follow_the_stores_time(kit *t) {
    if (t->factory->jump == NULL || t->p->methods->own_clock) kit_skip(t, "the factory cannot make its clock jump");
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 3600000, false, ERR));
    MUST(kit_put_work(t, kit_activity(t, "b", 1)));
    dur_leased_work work = TAKE_WORK(1);
    MUST(dur_store_abandon_work_item(t->p, work.lock_token, 3600000, false, ERR));
    NOTHING();
    NO_WORK();
    t->factory->jump(t->factory->data, &t->store, 3600000);
    TAKE("a");
    TAKE_WORK(1);
}

/* Said again it is said anew: who waits for the next one is told. */
static void ours_same_custom_status_has_a_new_version(kit *t) {
    bool changed = false;
    const char *status = NULL;
    uint64_t version = 0;
    kit_create(t, "a");
    STEP("a", 1, ev_status(2, "same"));
    STEP("a", 1, ev_status(3, "same"));
    MUST(dur_store_get_custom_status(t->p, t->arena, "a", 1, &changed, &status, &version, ERR));
    THAT(changed);
    TEXT(status, "same");
    SAME(version, 2);
}

static void ours_events_are_read_by_their_ids(kit *t) {
    const dur_event_row later = kit_row(t, "a", 1, ev_scheduled(3));
    const dur_event_row first[] = { kit_row(t, "a", 1, ev_scheduled(2)), kit_row(t, "a", 1, ev_started(1)) };
    dur_event_row *rows = NULL;
    MUST(dur_store_append(t->p, "a", 1, &later, 1, ERR));
    MUST(dur_store_append(t->p, "a", 1, first, 2, ERR));
    SAME(kit_history(t, "a", 1, &rows), 3);
    for (uint64_t i = 0; i < 3; i++)
        SAME(rows[i].event_id, i + 1);
}

static void ours_custom_status_over_executions(kit *t) {
    bool changed = false;
    const char *status = NULL;
    uint64_t version = 0;
    kit_create(t, "a");
    STEP("a", 1, ev_status(2, "kept"));
    kit_continue(t, "a", 1);
    MUST(dur_store_get_custom_status(t->p, t->arena, "a", 0, &changed, &status, &version, ERR));
    THAT(changed);
    TEXT(status, "kept");
    SAME(version, 1);
}

static void ours_bad_arguments(kit *t) {
    dur_orchestration_item item;
    dur_leased_work work;
    dur_event_row *rows;
    size_t count;
    dur_fetch how = { .lock_ms = t->lock_ms };
    dur_message_row nobody = kit_start(t, "a");
    nobody.instance = NULL;
    REFUSED(DUR_EINVAL, NULL, dur_store_enqueue_for_orchestrator(t->p, NULL, 0, ERR));
    REFUSED(DUR_EINVAL, NULL, dur_store_enqueue_for_orchestrator(t->p, &nobody, 0, ERR));
    REFUSED(DUR_EINVAL, NULL, dur_store_enqueue_for_worker(t->p, NULL, ERR));
    REFUSED(DUR_EINVAL, NULL, dur_store_read(t->p, t->arena, NULL, 0, &rows, &count, ERR));
    REFUSED(DUR_EINVAL, NULL, dur_store_ack_orchestration_item(t->p, NULL, ERR));
    REFUSED(DUR_EINVAL, NULL, dur_store_ack_work_item(t->p, NULL, NULL, ERR));
    REFUSED(DUR_EINVAL, NULL, dur_store_abandon_work_item(t->p, NULL, 0, false, ERR));
    REFUSED(DUR_EINVAL, NULL, dur_store_fetch_orchestration_item(t->p, t->arena, NULL, &item, ERR));
    REFUSED(DUR_EINVAL, NULL, dur_store_fetch_orchestration_item(NULL, t->arena, &how, &item, ERR));
    REFUSED(DUR_EINVAL, NULL, dur_store_fetch_work_item(t->p, t->arena, NULL, &work, ERR));
}

const kit_check kit_ours_contract[] = {
    CHECK(ours_event_id_zero_refused),
    CHECK(ours_duplicate_inside_one_turn_refused),
    CHECK(ours_messages_ordered_by_due_then_id),
    CHECK(ours_abandon_keeps_order),
    CHECK(ours_abandon_with_delay_makes_the_instance_wait),
    CHECK(ours_message_ids_grow),
    CHECK(ours_activity_id_zero_accepted),
    CHECK(ours_odd_but_legal_turns_accepted),
    CHECK(ours_status_without_events),
    CHECK(ours_unknown_instances_never_hide_others),
    CHECK(ours_messages_wait_for_their_instance),
    CHECK(ours_queue_messages_of_a_delayed_start_kept),
    CHECK(ours_enqueue_delay),
    CHECK(ours_timer_in_the_past_is_due),
    CHECK(ours_texts_kept_verbatim),
    CHECK(ours_foreign_kinds_pass_through),
    CHECK(ours_strange_ids),
    CHECK(ours_time_of_the_store),
    CHECK(ours_jumping_wall_clock),
    CHECK(ours_first_in_first_out_when_the_clock_jumps),
    CHECK(ours_delays_follow_the_stores_time),
    CHECK(ours_same_custom_status_has_a_new_version),
    CHECK(ours_events_are_read_by_their_ids),
    CHECK(ours_custom_status_over_executions),
    CHECK(ours_bad_arguments),
    CHECKS_END,
};
