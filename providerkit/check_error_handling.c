/*
 * check_error_handling.c: what a store answers when it is asked for the wrong thing.
 */
#include "kit_internal.h"

static void invalid_lock_token_on_ack(kit *t) {
    kit_create(t, "a");
    REFUSED(DUR_ELEASE, "Invalid lock token", ACK(NULL, .token = "no-such-token", EVENTS(ev_started(1))));
    SAME(kit_history(t, "a", 0, NULL), 1);
}

static void duplicate_event_id_rejection(kit *t) {
    dur_event_row *rows;
    dur_event_row first = kit_row(t, "a", 1, ev_started(1));
    dur_event_row same = kit_row(t, "a", 1, ev_scheduled(1));
    dur_event_row two[] = { kit_row(t, "a", 1, ev_scheduled(2)), same };
    MUST(dur_store_append(t->p, "a", 1, &first, 1, ERR));
    REFUSED(DUR_ECONFLICT, NULL, dur_store_append(t->p, "a", 1, &same, 1, ERR));
    REFUSED(DUR_ECONFLICT, NULL, dur_store_append(t->p, "a", 1, two, 2, ERR)); /* as a whole */
    SAME(kit_history(t, "a", 1, &rows), 1);
    THAT(kit_equal_text(rows[0].json, first.json));
    MUST(dur_store_append(t->p, "a", 2, &same, 1, ERR)); /* another execution has its own ids */
    kit_create(t, "b");
    MUST(kit_put(t, kit_raised(t, "b", "go", "")));
    dur_orchestration_item item = TAKE("b");
    REFUSED(DUR_ECONFLICT, NULL, ACK(&item, EVENTS(ev_scheduled(1)))); /* the same by a turn */
    SAME(kit_history(t, "b", 1, &rows), 1);
    THAT(kit_says(rows[0].json, "OrchestrationStarted"));
}

static void missing_instance_metadata(kit *t) {
    SAME(kit_history(t, "nobody", 0, NULL), 0);
    SAME(kit_history(t, "nobody", 1, NULL), 0);
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)))); /* an ack without a name: no instance row, but a history */
    SAME(kit_history(t, "a", 0, NULL), 1);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    item = TAKE("a");
    SAME(item.history_count, 1);
    TEXT(item.orchestration_name, KIT_NAME);
}

static void corrupted_serialization_data(kit *t) {
    static const char broken[] = "{\"StartOrchestration\": {\"instance\": ";
    dur_message_row bad = kit_start(t, "bad");
    bad.json = (dur_text){ broken, sizeof(broken) - 1 };
    MUST(kit_put(t, bad)); /* a store keeps texts as they are */
    MUST(kit_put(t, kit_start(t, "good")));
    bool good = false;
    for (int i = 0; i < 3 && !good; i++) {
        dur_orchestration_item item = { .instance = NULL };
        dur_fetch how = { .lock_ms = t->lock_ms };
        int code = dur_store_fetch_orchestration_item(t->p, t->arena, &how, &item, ERR);
        good = code == DUR_OK && item.instance != NULL && strcmp(item.instance, "good") == 0;
    }
    THAT(good); /* whatever it does with the broken one, the good one is not hidden */
}

static void lock_expiration_during_ack(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    kit_expire(t);
    REFUSED(DUR_ELEASE, "Invalid lock token", ACK(&item, EVENTS(ev_started(1)), NAMED));
    SAME(kit_history(t, "a", 0, NULL), 0);
    item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
}

const kit_check kit_error_handling[] = {
    CHECK(invalid_lock_token_on_ack),    CHECK(duplicate_event_id_rejection), CHECK(missing_instance_metadata),
    CHECK(corrupted_serialization_data), CHECK(lock_expiration_during_ack),   CHECKS_END,
};
