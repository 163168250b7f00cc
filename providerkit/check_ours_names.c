/*
 * check_ours_names.c: our own: names are bytes.  Two that differ in case, in a blank at the end, in how an accent is
 * written or in the last byte of the longest that is allowed are two, whatever a database would rather compare.
 */
#include "kit_internal.h"

enum { TWINS = 8 };

typedef struct twins {
    const char *one, *two;
} twins;

/* Names that collations and short columns take for one; `longest` bytes are allowed. */
static void make_twins(kit *t, size_t longest, twins out[TWINS]) {
    static const twins usual[] = { { "Name", "name" },
                                   { "a", "a " },
                                   { "caf\xC3\xA9", "cafe\xCC\x81" },
                                   { "cafe", "caf\xC3\xA9!" },
                                   { "stra\xC3\x9F"
                                     "e",
                                     "strasse" },
                                   { "x", "x\n" },
                                   { "\xF0\x9F\x8D\x89", "\xF0\x9F\x8D\x8A" } };
    memcpy(out, usual, sizeof(usual));
    char *one = dur_arena_zalloc(t->arena, longest + 1), *two = dur_arena_zalloc(t->arena, longest + 1);
    memset(one, 'l', longest);
    memset(two, 'l', longest);
    two[longest - 1] = 'm';
    out[TWINS - 1] = (twins){ one, two };
}

static void ours_instance_ids_are_bytes(kit *t) {
    twins all[TWINS];
    make_twins(t, 1024, all);
    for (size_t i = 0; i < TWINS; i++) {
        kit_create(t, all[i].one);
        SAME(kit_history(t, all[i].two, 0, NULL), 0);
        kit_create(t, all[i].two);
        STEP(all[i].one, 1, ev_set(2, "k", "one"), ev_status(3, "one"));
        STEP(all[i].two, 1, ev_set(2, "k", "two"));
        TEXT(kit_value(t, all[i].one, "k"), "one");
        TEXT(kit_value(t, all[i].two, "k"), "two");
        SAME(kit_history(t, all[i].one, 1, NULL), 3);
        SAME(kit_history(t, all[i].two, 1, NULL), 2);
    }
}

static void ours_messages_go_to_one_of_two_ids(kit *t) {
    twins all[TWINS];
    make_twins(t, 1024, all);
    for (size_t i = 0; i < TWINS; i++) {
        kit_create(t, all[i].one);
        kit_create(t, all[i].two);
        MUST(kit_put(t, kit_raised(t, all[i].two, "go", "")));
        dur_orchestration_item two = TAKE(all[i].two);
        MUST(kit_put(t, kit_raised(t, all[i].one, "go", ""))); /* the lock of the other does not hold it up */
        dur_orchestration_item one = TAKE(all[i].one);
        SAME(one.message_count, 1);
        MUST(ACK(&one, EVENTS(ev_external(2, "go")),
                 WORK(kit_activity(t, all[i].one, 7), kit_activity(t, all[i].two, 7)),
                 CANCELLED(REF(all[i].two, 1, 7))));
        MUST(ACK(&two, EVENTS(ev_external(2, "go"))));
        dur_leased_work work = TAKE_WORK(7);
        TEXT(work.ref.instance, all[i].one);
        MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
        NO_WORK();
    }
}

static void ours_deleting_one_of_two_ids_leaves_the_other(kit *t) {
    NEEDS("delete_instances", "get_instance", "enqueue_start");
    twins all[TWINS];
    make_twins(t, 1024, all);
    for (size_t i = 0; i < TWINS; i++) {
        dur_delete_result result;
        bool existed = true;
        kit_create_ended(t, all[i].one, NULL, DUR_STATUS_COMPLETED, "one");
        dur_message_row start = kit_start(t, all[i].two);
        MUST(dur_store_enqueue_start(t->p, &start, DUR_EXISTS_FAIL, 0, &existed, ERR));
        THAT(!existed);
        TAKE(all[i].two);
        MUST(dur_store_delete_instances(t->p, &all[i].two, 1, true, &result, ERR));
        SAME(result.instances, 1);
        TEXT(kit_instance(t, all[i].one).output, "one");
        TEXT(kit_instance(t, all[i].one).instance_id, all[i].one);
    }
}

static void ours_queues_are_bytes(kit *t) {
    NEEDS("fetch_turns");
    twins all[TWINS];
    make_twins(t, 512, all);
    kit_create(t, "a");
    for (size_t i = 0; i < TWINS; i++) {
        MUST(kit_put(t, kit_queued(t, "a", all[i].one, "1")));
        MUST(kit_put(t, kit_queued(t, "a", all[i].two, "2")));
    }
    dur_orchestration_item item;
    size_t count = 0;
    dur_fetch how = { .lock_ms = t->lock_ms, .max = 1, .queue_messages_max = 1 };
    MUST(dur_store_fetch_turns(t->p, t->arena, &how, &item, &count, ERR));
    SAME(count, 1);
    SAME(item.message_count, 2 * TWINS); /* of each queue the first */
    THAT(!item.more_messages);
    for (size_t i = 0; i < TWINS; i++) {
        TEXT(item.messages[2 * i].queue, all[i].one);
        TEXT(item.messages[2 * i + 1].queue, all[i].two);
    }
}

static void ours_keys_are_bytes(kit *t) {
    twins all[TWINS];
    make_twins(t, 512, all);
    kit_create(t, "a");
    for (size_t i = 0; i < TWINS; i++)
        STEP("a", 1, ev_set(10 * i + 2, all[i].one, "one"), ev_set(10 * i + 3, all[i].two, "two"));
    for (size_t i = 0; i < TWINS; i++) {
        TEXT(kit_value(t, "a", all[i].one), "one");
        TEXT(kit_value(t, "a", all[i].two), "two");
    }
    kit_continue(t, "a", 1); /* and in the snapshot */
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    SAME(item.kv_count, 2 * TWINS);
    for (size_t i = 0; i < TWINS; i++)
        TEXT(kit_snapshot(&item, all[i].two), "two");
    MUST(ACK(&item, EVENTS(ev_clear(2, all[0].one), ev_clear(3, all[1].two), ev_clear(4, all[2].one))));
    dur_key_value *left = NULL;
    size_t count = 0;
    MUST(dur_store_get_kv_all_values(t->p, t->arena, "a", &left, &count, ERR));
    SAME(count, 2 * TWINS - 3);
    TEXT(kit_value(t, "a", all[0].two), "two");
    TEXT(kit_value(t, "a", all[1].one), "one");
    TEXT(kit_value(t, "a", all[2].two), "two");
}

static void ours_tags_are_bytes(kit *t) {
    twins all[TWINS];
    make_twins(t, 256, all);
    for (size_t i = 0; i < TWINS; i++) {
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2 * i, NULL, all[i].one)));
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, 2 * i + 1, NULL, all[i].two)));
    }
    for (size_t i = 0; i < TWINS; i++) {
        TAKE_WORK_AS(2 * i + 1, TAGS(ONLY, all[i].two));
        NO_WORK_AS(TAGS(ONLY, all[i].two));
        TAKE_WORK_AS(2 * i, TAGS(ONLY, all[i].one));
    }
}

static void ours_sessions_are_bytes(kit *t) {
    twins all[TWINS];
    make_twins(t, 512, all);
    for (size_t i = 0; i < TWINS; i++) {
        uint64_t id = 10 * i;
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, id, all[i].one, NULL)));
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, id + 1, all[i].two, NULL)));
        MUST(kit_put_work(t, kit_activity_in(t, "a", 1, id + 2, all[i].one, NULL)));
        TAKE_WORK_AS(id, SESSION("A"));
        TAKE_WORK_AS(id + 1, SESSION("a")); /* neither is A's session a's, nor is A's a's */
        NO_WORK_AS(SESSION("a"));
        TAKE_WORK_AS(id + 2, SESSION("A"));
    }
}

static void ours_message_ids_are_bytes(kit *t) {
    NEEDS("enqueue_existing");
    twins all[TWINS];
    make_twins(t, 512, all);
    kit_create(t, "a");
    for (size_t i = 0; i < TWINS; i++) {
        dur_message_row message = kit_raised(t, "a", "go", "");
        message.message_id = all[i].one;
        MUST(dur_store_enqueue_existing(t->p, &message, 0, ERR));
        message.message_id = all[i].two;
        MUST(dur_store_enqueue_existing(t->p, &message, 0, ERR));
        REFUSED(DUR_EDUPLICATE, NULL, dur_store_enqueue_existing(t->p, &message, 0, ERR));
    }
    SAME(TAKE("a").message_count, 2 * TWINS);
}

static void ours_owners_are_bytes(kit *t) {
    NEEDS("owner_register", "owner_release", "fetch_turns");
    kit_owner(t, "Me");
    kit_owner(t, "me");
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = ACQUIRE("Me", "a");
    MUST(dur_store_owner_release(t->p, "me", ERR));
    NOTHING();
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
}

static void ours_handlers_are_bytes(kit *t) {
    NEEDS("fetch_turns");
    static const char *const keys[] = { "name@1.0.0" };
    dur_handler_filter lower = { keys, 1 };
    dur_orchestration_item item = { .instance = NULL };
    dur_fetch how = { .lock_ms = t->lock_ms, .handlers = &lower };
    MUST(kit_put(t, kit_start_as(t, "upper", "Name", "1.0.0")));
    MUST(dur_store_fetch_orchestration_item(t->p, t->arena, &how, &item, ERR));
    if (item.instance != NULL) {
        SAME(dur_store_has(t->p, "list_unserved"), false);
        kit_skip(t, "the store ignores handlers");
    }
    MUST(kit_put(t, kit_start_as(t, "lower", "name", "1.0.0")));
    MUST(dur_store_fetch_orchestration_item(t->p, t->arena, &how, &item, ERR));
    TEXT(item.instance, "lower");
}

static void ours_tokens_are_bytes(kit *t) {
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dur_orchestration_item item = TAKE("a");
    dur_leased_work work = TAKE_WORK(1);
    const char *longer = kit_format(t, "%s ", item.lock_token), *work_longer = kit_format(t, "%s ", work.lock_token);
    REFUSED(DUR_ELEASE, NULL, ACK(&item, .token = longer, EVENTS(ev_started(1)), NAMED));
    REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, work_longer, NULL, ERR));
    char *upper = dur_arena_strdup(t->arena, item.lock_token),
         *work_upper = dur_arena_strdup(t->arena, work.lock_token);
    for (char *at = upper; *at != '\0'; at++)
        if (*at >= 'a' && *at <= 'z') *at = (char)(*at - 'a' + 'A');
    for (char *at = work_upper; *at != '\0'; at++)
        if (*at >= 'a' && *at <= 'z') *at = (char)(*at - 'a' + 'A');
    if (strcmp(upper, item.lock_token) != 0) REFUSED(DUR_ELEASE, NULL, ACK(&item, .token = upper, NAMED));
    if (strcmp(work_upper, work.lock_token) != 0)
        REFUSED(DUR_ELEASE, NULL, dur_store_ack_work_item(t->p, work_upper, NULL, ERR));
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
    MUST(dur_store_ack_work_item(t->p, work.lock_token, NULL, ERR));
}

static size_t listed(kit *t, const dur_instance_query *query, dur_instance_row **rows) {
    size_t count = 0;
    MUST(dur_store_list_instances(t->p, t->arena, query, rows, &count, ERR));
    return count;
}

/* Pages go on behind an id, so the order is the bytes' for everybody. */
static void ours_lists_are_in_order_of_bytes(kit *t) {
    NEEDS("list_instances");
    static const char *const ids[] = { "A",  "B",  "B-2", "B_1",       "Z", "a",       "a ",
                                       "aB", "ab", "b",   "e\xCC\x81", "z", "\xC3\xA9" };
    for (size_t i = COUNT(ids); i-- > 0;)
        kit_create(t, ids[i]);
    dur_instance_row *rows = NULL;
    const char *after = NULL;
    for (size_t i = 0; i < COUNT(ids); i++) {
        SAME(listed(t, &(dur_instance_query){ .limit = 1, .after = after }, &rows), 1);
        TEXT(rows[0].instance_id, ids[i]);
        after = rows[0].instance_id;
    }
    SAME(listed(t, &(dur_instance_query){ .limit = 1, .after = after }, &rows), 0);
    SAME(listed(t, &(dur_instance_query){ .limit = 0 }, &rows), COUNT(ids));
    for (size_t i = 0; i < COUNT(ids); i++)
        TEXT(rows[i].instance_id, ids[i]);
    SAME(listed(t, &(dur_instance_query){ .id_prefix = "B" }, &rows), 3);
    SAME(listed(t, &(dur_instance_query){ .id_prefix = "a" }, &rows), 4);
    SAME(listed(t, &(dur_instance_query){ .id_prefix = "e" }, &rows), 1);
}

static void ours_parents_and_names_are_bytes(kit *t) {
    NEEDS("list_instances");
    dur_instance_row *rows = NULL;
    kit_create(t, "Root");
    kit_create(t, "root");
    kit_create_child(t, "c1", "Root");
    kit_create_child(t, "c2", "root");
    SAME(listed(t, &(dur_instance_query){ .parent = "Root" }, &rows), 1);
    TEXT(rows[0].instance_id, "c1");
    SAME(listed(t, &(dur_instance_query){ .parent = "root " }, &rows), 0);
    SAME(listed(t, &(dur_instance_query){ .name = "testorch" }, &rows), 0);
    SAME(listed(t, &(dur_instance_query){ .name = KIT_NAME " " }, &rows), 0);
    SAME(listed(t, &(dur_instance_query){ .name = KIT_NAME }, &rows), 4);
}

const kit_check kit_ours_names[] = {
    CHECK(ours_instance_ids_are_bytes),
    CHECK(ours_messages_go_to_one_of_two_ids),
    CHECK(ours_deleting_one_of_two_ids_leaves_the_other),
    CHECK(ours_queues_are_bytes),
    CHECK(ours_keys_are_bytes),
    CHECK(ours_tags_are_bytes),
    CHECK(ours_sessions_are_bytes),
    CHECK(ours_message_ids_are_bytes),
    CHECK(ours_owners_are_bytes),
    CHECK(ours_handlers_are_bytes),
    CHECK(ours_tokens_are_bytes),
    CHECK(ours_lists_are_in_order_of_bytes),
    CHECK(ours_parents_and_names_are_bytes),
    CHECKS_END,
};
