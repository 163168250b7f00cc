/*
 * check_race_replay.c: what decides a race is what a store hands out: the order of messages, the events of a turn as
 * they were written, the stamp of the engine that wrote them, and nothing lost between two executions.
 *
 * The original runs an engine over the store here; these ask the store for what that engine goes by, with the same
 * rows and messages.  That our engine ends as the original's does is tested apart (docs/parity.md).
 */
#include "kit_internal.h"

static dur_event of_kind(dur_event_kind kind, uint64_t id, uint64_t source, const char *name) {
    return (dur_event){ .kind = kind,
                        .event_id = id,
                        .has_source_event_id = source != 0,
                        .source_event_id = source,
                        .name = name,
                        .fire_at_ms = 1000,
                        .data = "first",
                        .reason = "dropped_future" };
}
#define SUBSCRIBED(id) of_kind(DUR_EVENT_QUEUE_SUBSCRIBED, (id), 0, "q")
#define DELIVERED(id) of_kind(DUR_EVENT_QUEUE_EVENT_DELIVERED, (id), 0, "q")
#define DROPPED(id, source) of_kind(DUR_EVENT_QUEUE_SUBSCRIPTION_CANCELLED, (id), (source), NULL)
#define TIMER(id) of_kind(DUR_EVENT_TIMER_CREATED, (id), 0, NULL)
#define FIRED(id, source) of_kind(DUR_EVENT_TIMER_FIRED, (id), (source), NULL)

static dur_event stamped(dur_event event, const char *version) {
    event.duroxide_version = version;
    return event;
}

/* A start that a turn answers with these events and messages. */
static void seed(kit *t, const char *instance, kit_turn turn) {
    MUST(kit_put(t, kit_start(t, instance)));
    dur_orchestration_item item = TAKE(instance);
    turn.item = &item;
    MUST(kit_ack(t, &turn));
}
#define SEED(instance, ...) seed(t, (instance), (kit_turn){ __VA_ARGS__ })

static dur_message_row next_with(kit *t, const char *instance, const char *carried) {
    dur_carried one = { "q", carried };
    return kit_message(t, &(dur_work_item){ .kind = DUR_WORK_CONTINUE_AS_NEW,
                                            .instance = instance,
                                            .orchestration = KIT_NAME,
                                            .version = KIT_VERSION,
                                            .input = "next",
                                            .carry_forward_events = &one,
                                            .carry_forward_count = 1 });
}

/* The messages of the item are exactly these, in this order, byte for byte. */
static void exactly(kit *t, const dur_orchestration_item *item, const dur_message_row *want, size_t count) {
    SAME(item->message_count, count);
    for (size_t i = 0; i < count; i++)
        if (!kit_equal_text(item->messages[i].json, want[i].json))
            kit_fail(t, __FILE__, __LINE__, "message %zu is %.*s", i, (int)item->messages[i].json.size,
                     item->messages[i].json.data);
}
#define EXACTLY(item, ...)                                                                                             \
    exactly(t, (item), (const dur_message_row[]){ __VA_ARGS__ },                                                       \
            sizeof((const dur_message_row[]){ __VA_ARGS__ }) / sizeof(dur_message_row))

/* Read and fetch give the events back as they were written, stamp and source included. */
static void comes_back(kit *t, const char *instance, const dur_event *events, size_t count) {
    dur_event_row *rows;
    SEED(instance, .events = events, .event_count = count, NAMED);
    SAME(kit_history(t, instance, 1, &rows), count);
    MUST(kit_put(t, kit_raised(t, instance, "look", "")));
    dur_orchestration_item item = TAKE(instance);
    SAME(item.history_count, count);
    for (size_t i = 0; i < count; i++) {
        dur_event_row want = kit_row(t, instance, 1, events[i]);
        THAT(kit_equal_text(rows[i].json, want.json));
        THAT(kit_equal_text(item.history[i].json, want.json));
    }
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, true, ERR));
    MUST(ACK(&(dur_orchestration_item){ .instance = NULL }, .token = TAKE(instance).lock_token, .execution = 1));
}
#define COMES_BACK(instance, ...)                                                                                      \
    comes_back(t, (instance), (const dur_event[]){ __VA_ARGS__ },                                                      \
               sizeof((const dur_event[]){ __VA_ARGS__ }) / sizeof(dur_event))

/* ---- histories --------------------------------------------------------------------------------------------------- */

static void queue_replay_version_stamp_roundtrip(kit *t) {
    COMES_BACK("a", stamped(ev_started(1), "0.1.30"));
}

static void queue_race_cancellation_replay(kit *t) {
    dur_event start = stamped(ev_started(1), "0.1.31");
    COMES_BACK("q1", start, SUBSCRIBED(2), SUBSCRIBED(3), TIMER(4), FIRED(5, 4), DELIVERED(6), DELIVERED(7),
               SUBSCRIBED(8), SUBSCRIBED(9), DROPPED(10, 2), DROPPED(11, 3), ev_scheduled(12));
    COMES_BACK("q2", start, SUBSCRIBED(2), SUBSCRIBED(3), TIMER(4), DELIVERED(5), DELIVERED(6), SUBSCRIBED(7),
               DROPPED(8, 3), ev_scheduled(9));
    COMES_BACK("q6", start, SUBSCRIBED(2), TIMER(3), TIMER(4), FIRED(5, 4), DELIVERED(6), SUBSCRIBED(7), DROPPED(8, 2),
               ev_scheduled(9));
}

static void positional_wait_race_replay(kit *t) {
    COMES_BACK("a", ev_started(1), of_kind(DUR_EVENT_EXTERNAL_SUBSCRIBED, 2, 0, "s"), TIMER(3), ev_external(4, "s"),
               of_kind(DUR_EVENT_EXTERNAL_SUBSCRIBED, 5, 0, "s"), ev_external(6, "s"));
}

/* ---- order of messages ------------------------------------------------------------------------------------------- */

/* Timers that were due long ago, and a message between them in the same turn: who is first decides the race. */
static void legacy_queue_race_decision_preserved(kit *t) {
    static const char *const stamps[] = { "0.1.30", "0.1.31" };
    for (size_t i = 0; i < COUNT(stamps); i++) {
        const char *a = stamps[i];
        dur_message_row one = kit_timer(t, a, 1, 4, 1), two = kit_timer(t, a, 1, 5, 1);
        dur_message_row between = kit_queued(t, a, "q", "first");
        SEED(a, EVENTS(stamped(ev_started(1), a), SUBSCRIBED(2), SUBSCRIBED(3), TIMER(4), TIMER(5)),
             MESSAGES(one, between, two), NAMED);
        dur_orchestration_item item = TAKE(a);
        EXACTLY(&item, one, between, two);
        THAT(kit_says(item.history[0].json, a)); /* the stamp of the policy */
        MUST(ACK(&item, EVENTS(FIRED(6, 4), DELIVERED(7), FIRED(8, 5), ev_scheduled(9)),
                 MESSAGES(kit_finished(t, a, 1, 9, "ok"))));
        item = TAKE(a);
        SAME(item.history_count, 9);
        THAT(kit_says(item.history[0].json, a));
        MUST(ACK(&item, EVENTS(ev_activity_done(10, 9))));
    }
}

static void continue_as_new_queue_race_replay(kit *t) {
    dur_message_row fired = kit_timer(t, "a", 1, 3, 1000), m1 = kit_queued(t, "a", "q", "m1");
    dur_message_row m2 = kit_queued(t, "a", "q", "m2");
    SEED("a", EVENTS(ev_started(1), SUBSCRIBED(2), TIMER(3)), MESSAGES(fired, m1, m2), NAMED);
    dur_orchestration_item item = TAKE("a");
    EXACTLY(&item, fired, m1, m2);
}

static void duplicate_start_preserves_pinned_handler(kit *t) {
    static const char *const names[] = { "Original", "WrongHandler" };
    for (size_t i = 0; i < COUNT(names); i++) {
        const char *a = names[i];
        dur_message_row again = kit_start_as(t, a, names[i], NULL), done = kit_finished(t, a, 1, 2, "ok");
        SEED(a, EVENTS(ev_started(1), ev_scheduled(2)), MESSAGES(again, done),
             .meta = { .orchestration_name = "Original", .orchestration_version = "1.0.0" });
        dur_orchestration_item item = TAKE(a);
        EXACTLY(&item, again, done);
        TEXT(item.orchestration_name, "Original");
        TEXT(item.version, "1.0.0");
        MUST(ACK(&item, EVENTS(ev_activity_done(3, 2))));
    }
}

/* ---- between two executions -------------------------------------------------------------------------------------- */

#define CONTINUED EVENTS(ev_started(1), ev_continued(2, "next"))

static void continue_as_new_duplicate_start(kit *t) {
    dur_message_row again = kit_start_as(t, "a", "WrongHandler", NULL), next = next_with(t, "a", "carried");
    dur_message_row late = kit_queued(t, "a", "q", "late");
    SEED("a", CONTINUED, MESSAGES(again, next, late), ENDS(CONTINUED_AS_NEW, "next"));
    dur_orchestration_item item = TAKE("a");
    EXACTLY(&item, again, next, late);
    TEXT(item.orchestration_name, KIT_NAME);
    MUST(ACK(&item, .execution = 2, EVENTS(ev_started(1)), NAMED));
    SAME(kit_history(t, "a", 1, NULL), 2);
    SAME(kit_history(t, "a", 2, NULL), 1);
}

static void continue_as_new_poisoned_successor_is_own_execution(kit *t) {
    dur_event_row *rows;
    SEED("a", CONTINUED, MESSAGES(kit_next(t, "a", "next")), ENDS(CONTINUED_AS_NEW, "next"));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, .execution = 2, EVENTS(ev_started(1), ev_failed(2, "poison")), ENDS(FAILED, "poison")));
    SAME(kit_history(t, "a", 1, &rows), 2);
    THAT(kit_says(rows[1].json, "OrchestrationContinuedAsNew"));
    SAME(kit_history(t, "a", 0, &rows), 2); /* the latest is the second */
    THAT(kit_says(rows[0].json, "OrchestrationStarted") && kit_says(rows[1].json, "OrchestrationFailed"));
    MUST(kit_put(t, kit_queued(t, "a", "q", "late")));
    item = TAKE("a");
    SAME(item.execution_id, 2);
    MUST(ACK(&item, .execution = 2));
    NOTHING(); /* a late input is taken, not left waiting */
}

/* A start that no handler is known for is put off; what comes meanwhile waits or is handed out, and nothing is lost. */
static void continue_as_new_unregistered_backoff(kit *t) {
    dur_message_row next = next_with(t, "a", "carried");
    SEED("a", CONTINUED, MESSAGES(next), ENDS(CONTINUED_AS_NEW, "next"));
    dur_orchestration_item item = TAKE("a");
    EXACTLY(&item, next);
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 2000, false, ERR));
    NOTHING(); /* put off, not merely locked */
    SAME(kit_history(t, "a", 1, NULL), 2);
    MUST(kit_put(t, kit_queued(t, "a", "q", "late")));
    kit_advance(t, 2100);
    item = TAKE("a");
    SAME(item.message_count, 2);
    bool first = kit_equal_text(item.messages[0].json, next.json);
    THAT(first || kit_equal_text(item.messages[1].json, next.json));
    THAT(kit_says(item.messages[first ? 1 : 0].json, "late"));
}

static void continue_as_new_transition_delivery(kit *t) {
    dur_message_row late = kit_queued(t, "a", "q", "late"), stale = kit_finished(t, "a", 1, 99, "stale");
    dur_message_row raised = kit_raised(t, "a", "signal", "answer"), cancel = kit_cancel(t, "a", "requested");
    dur_message_row next = next_with(t, "a", "carried");
    SEED("a", CONTINUED, MESSAGES(late, stale, raised, cancel), ENDS(CONTINUED_AS_NEW, "next"));
    MUST(dur_store_enqueue_for_orchestrator(t->p, &next, 2000, ERR));
    dur_orchestration_item item = TAKE("a"); /* the instance exists: nothing is thrown away as nobody's */
    EXACTLY(&item, late, stale, raised, cancel);
    SAME(item.execution_id, 1);
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 2500, false, ERR));
    NOTHING();
    kit_advance(t, 3000);
    item = TAKE("a");
    SAME(item.message_count, 5);
    SAME(item.history_count, 2); /* waiting has changed nothing */
    bool found = false;
    for (size_t i = 0; i < item.message_count; i++)
        found = found || kit_equal_text(item.messages[i].json, next.json);
    THAT(found);
    MUST(ACK(&item, .execution = 2, EVENTS(ev_started(1)), NAMED));
    SAME(kit_history(t, "a", 1, NULL), 2);
}

const kit_check kit_race_replay[] = {
    CHECK(duplicate_start_preserves_pinned_handler),
    CHECK(continue_as_new_unregistered_backoff),
    CHECK(continue_as_new_poisoned_successor_is_own_execution),
    CHECK(continue_as_new_duplicate_start),
    CHECK(continue_as_new_transition_delivery),
    CHECK(queue_race_cancellation_replay),
    CHECK(continue_as_new_queue_race_replay),
    CHECK(queue_replay_version_stamp_roundtrip),
    CHECK(positional_wait_race_replay),
    CHECK(legacy_queue_race_decision_preserved),
    CHECKS_END,
};
