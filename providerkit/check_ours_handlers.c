/*
 * check_ours_handlers.c: our own: fetches that name the handlers which the caller has, and what nobody has.
 *
 * A store may ignore filters; one that has list_unserved must not.
 */
#include "kit_internal.h"

#define CROWD 150

#define ONLY(...)                                                                                                      \
    (&(dur_handler_filter){ (const char *const[]){ __VA_ARGS__ },                                                      \
                            sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *) })

/* The one instance that a fetch with this filter finds; NULL: none. */
static dur_orchestration_item found(kit *t, const dur_handler_filter *handlers) {
    dur_orchestration_item items[4];
    size_t count = 0;
    dur_fetch how = { .lock_ms = t->lock_ms, .handlers = handlers, .max = 4 };
    MUST(dur_store_fetch_turns(t->p, t->arena, &how, items, &count, ERR));
    THAT(count <= 1);
    if (count == 0) items[0].instance = NULL;
    return items[0];
}

static void give_back(kit *t, const dur_orchestration_item *item) {
    MUST(dur_store_abandon_orchestration_item(t->p, item->lock_token, 0, true, ERR));
}

#define FINDS(id, ...)                                                                                                 \
    do {                                                                                                               \
        dur_orchestration_item found_ = found(t, ONLY(__VA_ARGS__));                                                   \
        THAT(found_.instance != NULL && strcmp(found_.instance, (id)) == 0);                                           \
        SAME(found_.attempt_count, 1);                                                                                 \
        give_back(t, &found_);                                                                                         \
    } while (0)
#define FINDS_NONE(...) THAT(found(t, ONLY(__VA_ARGS__)).instance == NULL)

static size_t unserved(kit *t, dur_unserved_kind kind, const char *handler) {
    dur_unserved *rows = NULL;
    size_t count = 0, same = 0;
    MUST(dur_store_list_unserved(t->p, t->arena, 1, &rows, &count, ERR));
    for (size_t i = 0; i < count; i++)
        same += rows[i].kind == kind && strcmp(rows[i].handler, handler) == 0;
    return same;
}

/* Rows without a handler are everybody's: beside other checks these would be found, too. */
static void alone(kit *t) {
    SAME(unserved(t, DUR_UNSERVED_CANCEL, "Wanted@"), 0);
}

static void ours_handlers_choose_instances(kit *t) {
    NEEDS("list_unserved", "fetch_turns");
    alone(t);
    for (int i = 0; i < CROWD; i++)
        MUST(kit_put(t, kit_start_as(t, kit_format(t, "crowd-%d", i), "Crowd", "1.0.0")));
    MUST(kit_put(t, kit_start_as(t, "exact", "Wanted", "1.2.3")));
    MUST(kit_put(t, kit_start_as(t, "any", "Wanted", NULL)));
    FINDS("exact", "Wanted@1.2.3");
    FINDS("any", "Wanted@");
    FINDS_NONE("Crowd@", "Wante@", "Wanted@1.2", "Wanted@1.2.30");
    THAT(found(t, &(dur_handler_filter){ NULL, 0 }).instance == NULL);
    dur_orchestration_item item;
    MUST(dur_store_fetch_orchestration_item(
        t->p, t->arena, &(dur_fetch){ .lock_ms = t->lock_ms, .handlers = ONLY("Wanted@1.2.3") }, &item, ERR));
    THAT(item.instance != NULL && strcmp(item.instance, "exact") == 0);
    give_back(t, &item);
    item = TAKE("crowd-0"); /* nobody has touched it, and without a filter the oldest comes first */
    SAME(item.attempt_count, 1);
}

static void ours_handlers_follow_the_instance(kit *t) {
    NEEDS("list_unserved", "fetch_turns", "commit_turns");
    alone(t);
    MUST(kit_put(t, kit_start_as(t, "a", "Wanted", NULL)));
    dur_orchestration_item item = found(t, ONLY("Wanted@"));
    dur_event started = ev_started(1);
    MUST(ACK(&item, EVENTS(started), .meta = { .orchestration_name = "Wanted", .orchestration_version = "2.0.0" }));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    FINDS_NONE("Wanted@", "Wanted@1.0.0");
    FINDS("a", "Wanted@2.0.0");
    MUST(kit_put(t, kit_start_as(t, "a", "Other", "1.0.0"))); /* of one that exists it says nothing */
    FINDS_NONE("Other@1.0.0");
    item = found(t, ONLY("Wanted@2.0.0"));
    MUST(ACK(&item, EVENTS(ev_done(2, "")), .meta = { .status = DUR_STATUS_COMPLETED, .output = "" }));
    MUST(kit_put(t, kit_raised(t, "a", "late", "")));
    FINDS("a", "Whatever@"); /* nothing runs any more: anybody clears up */
}

static void ours_handlers_choose_works(kit *t) {
    NEEDS("list_unserved", "fetch_works");
    alone(t);
    dur_leased_work works[4];
    size_t count = 0;
    for (uint64_t i = 1; i <= CROWD + 1; i++) {
        dur_work_item item = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                               .instance = "a",
                               .execution_id = 1,
                               .id = i,
                               .name = i <= CROWD ? "Crowd" : "Wanted",
                               .input = "" };
        MUST(kit_put_work(t, kit_message(t, &item)));
    }
    dur_work_fetch how = { .lock_ms = t->lock_ms, .handlers = ONLY("Nobody", "Wanted"), .max = 4 };
    MUST(dur_store_fetch_works(t->p, t->arena, &how, works, &count, ERR));
    SAME(count, 1);
    SAME(works[0].ref.activity_id, CROWD + 1);
    MUST(dur_store_abandon_work_item(t->p, works[0].lock_token, 0, true, ERR));
    MUST(dur_store_fetch_work_item(t->p, t->arena, &how, &works[0], ERR));
    SAME(works[0].ref.activity_id, CROWD + 1);
    MUST(dur_store_fetch_works(t->p, t->arena, &how, works, &count, ERR));
    SAME(count, 0);
    dur_message_row nameless = kit_activity(t, "a", CROWD + 2);
    nameless.handler = NULL;
    MUST(kit_put_work(t, nameless)); /* it needs none, and any node may take it that has one */
    MUST(dur_store_fetch_works(t->p, t->arena, &how, works, &count, ERR));
    SAME(count, 1);
    SAME(works[0].ref.activity_id, CROWD + 2);
    SAME(TAKE_WORK(1).attempt_count, 1);
}

static void ours_unserved_is_told(kit *t) {
    NEEDS("list_unserved", "owner_register", "owner_release", "get_instance");
    dur_owner_options one = {
        .timeout_ms = 2 * t->lock_ms, .owner = "one", .handlers = ONLY("Other@"), .activities = ONLY("Other")
    };
    dur_owner_options two = {
        .timeout_ms = 2 * t->lock_ms, .owner = "two", .handlers = ONLY("Wanted@"), .activities = ONLY("Act")
    };
    MUST(dur_store_owner_register(t->p, &one, ERR));
    MUST(kit_put(t, kit_start_as(t, "a", "Wanted", NULL)));
    MUST(kit_put(t, kit_start_as(t, "b", "Wanted", NULL)));
    SAME(unserved(t, DUR_UNSERVED_INSTANCE, "Wanted@"), 1);
    MUST(kit_put(t, kit_start_as(t, "c", "Missed", NULL))); /* so many of each handler */
    SAME(unserved(t, DUR_UNSERVED_INSTANCE, "Wanted@"), 1);
    SAME(unserved(t, DUR_UNSERVED_INSTANCE, "Missed@"), 1);
    SAME(unserved(t, DUR_UNSERVED_CANCEL, "Wanted@"), 0);
    THAT(kit_instance(t, "a").unserved);
    MUST(kit_put(t, kit_cancel(t, "b", "why")));
    SAME(unserved(t, DUR_UNSERVED_CANCEL, "Wanted@"), 1);
    MUST(dur_store_owner_register(t->p, &two, ERR));
    SAME(unserved(t, DUR_UNSERVED_INSTANCE, "Wanted@") + unserved(t, DUR_UNSERVED_CANCEL, "Wanted@"), 0);
    THAT(!kit_instance(t, "a").unserved);
    MUST(dur_store_owner_release(t->p, "two", ERR));
    SAME(unserved(t, DUR_UNSERVED_INSTANCE, "Wanted@"), 1);
}

static size_t works_of(kit *t, const char *owner, const char *handler) {
    dur_leased_work works[4];
    size_t count = 0;
    dur_work_fetch how = {
        .owner = owner, .session_owner = owner, .session_lock_ms = t->lock_ms, .handlers = ONLY(handler), .max = 4
    };
    MUST(dur_store_fetch_works(t->p, t->arena, &how, works, &count, ERR));
    for (size_t i = 0; i < count; i++)
        MUST(dur_store_ack_work_item(t->p, works[i].lock_token, NULL, ERR));
    return count;
}

static void put_in_session(kit *t, uint64_t id, const char *name) {
    dur_work_item item = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                           .instance = "a",
                           .execution_id = 1,
                           .id = id,
                           .name = name,
                           .session_id = "s",
                           .input = "" };
    MUST(kit_put_work(t, kit_message(t, &item)));
}

/* A session whose owner has no handler for what waits in it is told, and ends when it is idle. */
static void ours_a_session_moves_to_who_has_the_handler(kit *t) {
    NEEDS("list_unserved", "owner_register", "fetch_works", "get_instance");
    uint64_t removed = 9;
    MUST(dur_store_owner_register(
        t->p, &(dur_owner_options){ .owner = "one", .timeout_ms = 2 * t->lock_ms, .activities = ONLY("First") }, ERR));
    MUST(dur_store_owner_register(
        t->p, &(dur_owner_options){ .owner = "two", .timeout_ms = 2 * t->lock_ms, .activities = ONLY("Second") }, ERR));
    kit_create(t, "a");
    put_in_session(t, 1, "First");
    SAME(works_of(t, "one", "First"), 1);
    put_in_session(t, 2, "Second");
    SAME(works_of(t, "two", "Second"), 0);
    SAME(unserved(t, DUR_UNSERVED_SESSION, "Second"), 1);
    SAME(unserved(t, DUR_UNSERVED_ACTIVITY, "Second"), 0);
    TEXT(kit_instance(t, "a").stuck_session, "Second in session s of one");
    MUST(dur_store_cleanup_orphaned_sessions(t->p, 3600000, &removed, ERR)); /* it was active just now */
    SAME(removed, 0);
    put_in_session(t, 3, "First"); /* what its owner can run is the session's */
    MUST(dur_store_cleanup_orphaned_sessions(t->p, 0, &removed, ERR));
    SAME(removed, 0);
    SAME(works_of(t, "one", "First"), 1);
    MUST(dur_store_cleanup_orphaned_sessions(t->p, 0, &removed, ERR));
    SAME(removed, 1);
    SAME(unserved(t, DUR_UNSERVED_SESSION, "Second"), 0);
    TEXT(kit_instance(t, "a").stuck_session, NULL);
    SAME(works_of(t, "two", "Second"), 1);
}

static void ours_take_over_if_unleased(kit *t) {
    NEEDS("list_unserved", "commit_turns", "get_instance");
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item held = TAKE("a"), nobody = { .instance = "a", .execution_id = 1 };
    dur_turn_commit end =
        COMMIT_OF(&nobody, EVENTS(ev_failed(2, "ended")), .meta = { .status = DUR_STATUS_FAILED, .output = "ended" });
    end.take_over = end.if_unleased = true;
    THAT(kit_commit(t, &end) != DUR_OK);
    SAME(end.fault, DUR_TURN_LEASE_LOST);
    give_back(t, &held);
    MUST(kit_commit(t, &end));
    SAME(kit_instance(t, "a").status, DUR_STATUS_FAILED);
}

const kit_check kit_ours_handlers[] = {
    CHECK(ours_handlers_choose_instances),
    CHECK(ours_handlers_follow_the_instance),
    CHECK(ours_handlers_choose_works),
    CHECK(ours_unserved_is_told),
    CHECK(ours_a_session_moves_to_who_has_the_handler),
    CHECK(ours_take_over_if_unleased),
    CHECKS_END,
};
