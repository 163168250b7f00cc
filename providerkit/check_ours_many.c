/*
 * check_ours_many.c: our own: more rows than a page, a packet or a buffer has; numbers beyond 32 bits and beyond what
 * a double holds; texts as long as they may be; and a crowd that does not fit in front of the one that does.
 */
#include "kit_internal.h"

#include <stdlib.h>

enum { MANY = 1500, EVENTS_MANY = 12000, EVENTS_TURN = 4000, LISTED = 1100, CROWD = 150 };

/* A crowd is for a store of its own: everybody else would have to look through it. */
static void needs_room(kit *t) {
    if (t->view != NULL) kit_skip(t, "it needs a store of its own: it is a crowd");
}

static dur_message_row *messages_of(kit *t, size_t count) {
    return dur_arena_zalloc(t->arena, count * sizeof(dur_message_row));
}

/* ---- many -------------------------------------------------------------------------------------------------------- */

static void ours_many_messages_at_once(kit *t) {
    needs_room(t);
    dur_message_row *sent = messages_of(t, MANY);
    for (size_t i = 0; i < MANY; i++)
        sent[i] = i % 10 == 0 ? kit_queued(t, "a", "q", kit_format(t, "m%zu.", i))
                              : kit_raised(t, "a", kit_format(t, "m%zu.", i), "");
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED, .messages = sent, .message_count = MANY));
    item = TAKE("a");
    SAME(item.message_count, MANY);
    uint64_t *ids = dur_arena_zalloc(t->arena, MANY * sizeof(*ids));
    for (size_t i = 0; i < MANY; i++) {
        THAT(kit_equal_text(item.messages[i].json, sent[i].json));
        SAME(item.messages[i].attempt_count, 1);
        ids[i] = item.messages[i].id;
    }
    if (!dur_store_has(t->p, "commit_turns")) {
        MUST(ACK(&item, EVENTS(ev_external(2, "all"))));
        NOTHING();
        return;
    }
    uint64_t last = ids[MANY - 1];
    ids[MANY - 1] = 0;
    dur_turn_commit commit = COMMIT_OF(&item, EVENTS(ev_external(2, "all but one")));
    commit.consume_listed = true;
    commit.consumed = ids;
    commit.consumed_count = MANY;
    MUST(kit_commit(t, &commit));
    item = TAKE("a");
    SAME(item.message_count, 1);
    SAME(item.messages[0].id, last);
}

static void ours_many_events_in_order(kit *t) {
    needs_room(t);
    dur_event *events = dur_arena_zalloc(t->arena, EVENTS_TURN * sizeof(*events));
    MUST(kit_put(t, kit_start(t, "a")));
    for (uint64_t from = 1; from <= EVENTS_MANY; from += EVENTS_TURN) {
        dur_orchestration_item item = TAKE("a");
        SAME(item.last_event_id, from - 1);
        for (uint64_t i = 0; i < EVENTS_TURN; i++)
            events[i] = from + i == 1 ? ev_started(1) : ev_scheduled(from + i);
        MUST(ACK(&item, .events = events, .event_count = EVENTS_TURN, NAMED, MESSAGES(kit_raised(t, "a", "go", ""))));
    }
    dur_event_row *rows = NULL;
    SAME(kit_history(t, "a", 1, &rows), EVENTS_MANY);
    for (uint64_t i = 0; i < EVENTS_MANY; i++)
        SAME(rows[i].event_id, i + 1); /* by number: 10 is behind 9 */
    dur_orchestration_item item = TAKE("a");
    SAME(item.history_count, EVENTS_MANY);
    SAME(item.history[EVENTS_MANY - 1].event_id, EVENTS_MANY);
    if (dur_store_has(t->p, "list_executions")) SAME(kit_execution(t, "a", 1).event_count, EVENTS_MANY);
}

static void ours_many_executions_in_order(kit *t) {
    enum { LAST = 12 };
    MUST(kit_put(t, kit_start(t, "a")));
    for (uint64_t n = 1; n < LAST; n++) {
        dur_orchestration_item item = TAKE("a");
        SAME(item.execution_id, n > 1 ? n - 1 : 1);
        MUST(ACK(&item, .execution = n,
                 EVENTS(ev_started(1), ev_set(2, kit_format(t, "k%llu", (unsigned long long)n), "v"),
                        ev_continued(3, "next")),
                 MESSAGES(kit_next(t, "a", "next")), ENDS(CONTINUED_AS_NEW, "next")));
    }
    dur_orchestration_item item = TAKE("a");
    SAME(item.kv_count, LAST - 1);
    MUST(ACK(&item, .execution = LAST, EVENTS(ev_started(1)), NAMED));
    SAME(kit_history(t, "a", 0, NULL), 1);
    SAME(kit_history(t, "a", 9, NULL), 3);
    if (!dur_store_has(t->p, "list_executions")) return;
    dur_execution_row *rows = NULL;
    size_t count = 0;
    MUST(dur_store_list_executions(t->p, t->arena, "a", &rows, &count, ERR));
    SAME(count, LAST);
    for (size_t i = 0; i < LAST; i++)
        SAME(rows[i].execution_id, i + 1);
    if (!dur_store_has(t->p, "prune_executions")) return;
    dur_prune_result pruned;
    dur_prune_options keep = { .has_keep_last = true, .keep_last = 3 };
    MUST(dur_store_prune_executions(t->p, "a", &keep, &pruned, ERR));
    SAME(pruned.executions_deleted, LAST - 3);
    SAME(kit_history(t, "a", 9, NULL), 0);
    SAME(kit_history(t, "a", 10, NULL), 3);
}

/* Starts of so many instances, sent by one turn. */
static void start_many(kit *t, const char *prefix, size_t count) {
    dur_message_row *starts = messages_of(t, count);
    const char *sender = kit_format(t, "sender-%s", prefix);
    for (size_t i = 0; i < count; i++)
        starts[i] = kit_start(t, kit_format(t, "%s%05zu", prefix, i));
    MUST(kit_put(t, kit_start(t, sender)));
    dur_orchestration_item item = TAKE(sender);
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED, .messages = starts, .message_count = count));
}

/* Take all that there is and end each with this turn. */
static void commit_many(kit *t, size_t count, const kit_turn *turn) {
    dur_orchestration_item *items = dur_arena_zalloc(t->arena, count * sizeof(*items));
    dur_turn_commit *turns = dur_arena_zalloc(t->arena, count * sizeof(*turns));
    size_t got = 0;
    dur_fetch how = { .lock_ms = 100 * t->lock_ms, .max = count };
    MUST(dur_store_fetch_turns(t->p, t->arena, &how, items, &got, ERR));
    SAME(got, count);
    for (size_t i = 0; i < count; i++) {
        kit_turn one = *turn;
        one.item = &items[i];
        turns[i] = kit_make_commit(t, &one);
    }
    MUST(dur_store_commit_turns(t->p, turns, count, ERR));
    for (size_t i = 0; i < count; i++)
        SAME(turns[i].error.code, DUR_OK);
}

static void ours_many_instances_are_listed_and_deleted(kit *t) {
    NEEDS("list_instances", "fetch_turns", "commit_turns", "delete_instances_bulk", "delete_instances");
    needs_room(t);
    dur_instance_row *rows = NULL;
    size_t count = 0, seen = 0;
    start_many(t, "i-", LISTED);
    MUST(dur_store_list_instances(t->p, t->arena, &(dur_instance_query){ .id_prefix = "i-" }, &rows, &count, ERR));
    SAME(count, LISTED); /* limit 0: all; starts that wait */
    commit_many(t, LISTED, &(kit_turn){ EVENTS(ev_started(1), ev_done(2, "out")), ENDS(COMPLETED, "out") });
    MUST(dur_store_list_instances(t->p, t->arena, &(dur_instance_query){ .id_prefix = "i-" }, &rows, &count, ERR));
    SAME(count, LISTED);
    const char *after = NULL;
    do {
        dur_instance_query page = { .id_prefix = "i-", .limit = 400, .after = after };
        MUST(dur_store_list_instances(t->p, t->arena, &page, &rows, &count, ERR));
        for (size_t i = 0; i < count; i++, seen++)
            TEXT(rows[i].instance_id, kit_format(t, "i-%05zu", seen));
        if (count > 0) after = rows[count - 1].instance_id;
    } while (count > 0);
    SAME(seen, LISTED);
    const char *ids[50];
    for (size_t i = 0; i < 50; i++)
        ids[i] = kit_format(t, "i-%05zu", i);
    dur_delete_result gone;
    MUST(dur_store_delete_instances(t->p, ids, 50, false, &gone, ERR));
    SAME(gone.instances, 50);
    MUST(dur_store_delete_instances_bulk(t->p, &(dur_bulk_filter){ .limit = 0 }, &gone, ERR));
    SAME(gone.instances, 1000); /* limit 0: so many at a time */
    MUST(dur_store_delete_instances_bulk(t->p, &(dur_bulk_filter){ .limit = 0 }, &gone, ERR));
    SAME(gone.instances, LISTED - 1050);
}

static void ours_many_works_at_once(kit *t) {
    NEEDS("fetch_works", "ack_works");
    needs_room(t);
    dur_message_row *work = messages_of(t, MANY);
    for (uint64_t i = 0; i < MANY; i++)
        work[i] = kit_activity(t, "a", i + 10);
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED, .work = work, .work_count = MANY));
    dur_leased_work *got = dur_arena_zalloc(t->arena, (MANY + 1) * sizeof(*got));
    dur_work_ack *acks = dur_arena_zalloc(t->arena, MANY * sizeof(*acks));
    size_t count = 0;
    MUST(dur_store_fetch_works(t->p, t->arena, &(dur_work_fetch){ .lock_ms = 100 * t->lock_ms, .max = MANY + 1 }, got,
                               &count, ERR));
    SAME(count, MANY);
    dur_message_row *ends = messages_of(t, MANY);
    for (size_t i = 0; i < MANY; i++) {
        SAME(got[i].ref.activity_id, i + 10); /* first in, first out */
        ends[i] = kit_finished(t, "a", 1, i + 10, "r");
        acks[i] = (dur_work_ack){ .lock_token = got[i].lock_token, .ref = got[i].ref, .completion = &ends[i] };
    }
    MUST(dur_store_ack_works(t->p, acks, MANY, ERR));
    for (size_t i = 0; i < MANY; i++)
        SAME(acks[i].error.code, DUR_OK);
    item = TAKE("a");
    SAME(item.message_count, MANY);
    dur_activity_ref *refs = dur_arena_zalloc(t->arena, MANY * sizeof(*refs));
    for (uint64_t i = 0; i < MANY; i++)
        refs[i] = REF("a", 1, i + 10);
    MUST(ACK(&item, EVENTS(ev_external(2, "x")), .work = work, .work_count = MANY, .cancelled = refs,
             .cancelled_count = MANY - 1));
    TAKE_WORK(MANY + 9);
    NO_WORK();
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

#define B32 (UINT64_C(1) << 32)
#define B53 (UINT64_C(1) << 53)

static void ours_ids_of_events_have_63_bits(kit *t) {
    static const uint64_t ids[] = { 2, B32 + 2, B53 + 2, B53 + 3, (UINT64_C(1) << 62) + 1 };
    dur_event_row *rows = NULL;
    kit_create(t, "a");
    for (size_t i = 0; i < COUNT(ids); i++)
        STEP("a", 1, ev_scheduled(ids[i]));
    SAME(kit_history(t, "a", 1, &rows), COUNT(ids) + 1);
    for (size_t i = 0; i < COUNT(ids); i++)
        SAME(rows[i + 1].event_id, ids[i]);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    SAME(item.last_event_id, ids[COUNT(ids) - 1]);
    REFUSED(DUR_ECONFLICT, NULL, ACK(&item, EVENTS(ev_scheduled(B53 + 3))));
}

static void ours_ids_of_activities_have_63_bits(kit *t) {
    static const uint64_t ids[] = { 2, B32 + 2, B53 + 2, B53 + 3 };
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED,
             WORK(kit_activity(t, "a", ids[0]), kit_activity(t, "a", ids[1]), kit_activity(t, "a", ids[2]),
                  kit_activity(t, "a", ids[3]), kit_activity_in(t, "a", B32 + 1, ids[0], NULL, NULL)),
             CANCELLED(REF("a", 1, ids[1]), REF("a", 1, ids[2]))));
    TAKE_WORK(ids[0]);
    dur_leased_work work = TAKE_WORK(ids[3]);
    SAME(work.ref.execution_id, 1);
    work = TAKE_WORK(ids[0]);
    SAME(work.ref.execution_id, B32 + 1);
    NO_WORK();
}

static void ours_ids_of_executions_have_63_bits(kit *t) {
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, .execution = B32 + 1, EVENTS(ev_started(1)), MESSAGES(kit_raised(t, "a", "go", ""))));
    item = TAKE("a");
    SAME(item.execution_id, B32 + 1);
    MUST(ACK(&item, .execution = B53 + 3, EVENTS(ev_started(1), ev_scheduled(2))));
    SAME(kit_history(t, "a", 1, NULL), 1);
    SAME(kit_history(t, "a", B53 + 2, NULL), 0);
    SAME(kit_history(t, "a", 0, NULL), 2);
}

static void ours_births_have_64_bits(kit *t) {
    NEEDS("get_instance");
    static const uint64_t births[] = { 1, B32 + 1, B53 + 1, UINT64_MAX, (UINT64_C(1) << 63) + 1 };
    for (size_t i = 0; i < COUNT(births); i++) {
        const char *id = kit_format(t, "i-%zu", i);
        MUST(kit_put(t, kit_start(t, id)));
        dur_orchestration_item item = TAKE(id);
        MUST(ACK(&item, EVENTS(ev_started(1)),
                 .meta = { .orchestration_name = KIT_NAME, .orchestration_version = KIT_VERSION, .birth = births[i] }));
        SAME(kit_instance(t, id).birth, births[i]);
    }
}

/* Far away is not overflown: whoever waits a century waits, and a lock may hold as long as one can say. */
static void ours_long_times_do_not_wrap(kit *t) {
    uint64_t century = UINT64_C(100) * 366 * 86400000;
    kit_create(t, "a");
    dur_message_row later = kit_raised(t, "a", "late", "");
    MUST(dur_store_enqueue_for_orchestrator(t->p, &later, century, ERR));
    MUST(kit_put(t, kit_timer(t, "a", 1, 2, dur_store_now_ms(t->p) + century)));
    NOTHING();
    MUST(kit_put_work(t, kit_activity(t, "b", 1)));
    dur_leased_work work = kit_fetch_work(t, HOW(.lock_ms = century));
    SAME(work.ref.activity_id, 1);
    NO_WORK();
    MUST(dur_store_abandon_work_item(t->p, work.lock_token, century, false, ERR));
    NO_WORK();
    MUST(kit_put(t, kit_raised(t, "a", "now", "")));
    dur_orchestration_item item = { .instance = NULL };
    MUST(dur_store_fetch_orchestration_item(t->p, t->arena, &(dur_fetch){ .lock_ms = century }, &item, ERR));
    TEXT(item.instance, "a");
    SAME(item.message_count, 1);
    NOTHING();
    MUST(dur_store_renew_orchestration_item_lock(t->p, item.lock_token, century, ERR));
    MUST(ACK(&item, EVENTS(ev_external(2, "now"))));
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* Every character of one byte but NUL, then characters of two, three and four bytes up to this size. */
static const char *long_text(kit *t, size_t size) {
    static const char wide[] = "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8D\x89\\\"'%_";
    char *text = dur_arena_zalloc(t->arena, size + sizeof(wide) + 1);
    size_t at = 0;
    for (int c = 1; c < 128 && at < size; c++)
        text[at++] = (char)c;
    while (at + sizeof(wide) < size) {
        memcpy(text + at, wide, sizeof(wide) - 1);
        at += sizeof(wide) - 1;
    }
    while (at < size)
        text[at++] = '.';
    return text;
}

static void ours_texts_come_back_whole(kit *t) {
    const char *output = long_text(t, 4 << 20), *status = long_text(t, 256 << 10), *value = long_text(t, 64 << 10);
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", value), ev_status(3, status));
    TEXT(kit_value(t, "a", "k"), value);
    bool changed = false;
    const char *got = NULL;
    uint64_t version = 0;
    MUST(dur_store_get_custom_status(t->p, t->arena, "a", 0, &changed, &got, &version, ERR));
    TEXT(got, status);
    if (dur_store_has(t->p, "get_instance_stats")) {
        dur_instance_stats stats;
        bool found = false;
        MUST(dur_store_get_instance_stats(t->p, t->arena, "a", &found, &stats, ERR));
        SAME(stats.kv_total_value_bytes, strlen(value)); /* bytes, not characters */
    }
    STEP_END("a", 1, COMPLETED, output, ev_done(4, "out"));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    TEXT(kit_snapshot(&(dur_orchestration_item){ .kv = TAKE("a").kv, .kv_count = 1 }, "k"), value);
    if (!dur_store_has(t->p, "get_instance")) return;
    TEXT(kit_instance(t, "a").output, output);
    TEXT(kit_instance(t, "a").custom_status, status);
    if (!dur_store_has(t->p, "set_suspended")) return;
    const char *reason = long_text(t, 64 << 10);
    kit_create(t, "b");
    MUST(dur_store_set_suspended(t->p, "b", reason, ERR));
    TEXT(kit_instance(t, "b").suspended, reason);
}

/* What waits to start is shown as it is stored, so that somebody can say that it will not. */
static void ours_waiting_start_is_shown_whole(kit *t) {
    NEEDS("get_instance");
    dur_work_item item = { .kind = DUR_WORK_START_ORCHESTRATION,
                           .instance = "a",
                           .orchestration = KIT_NAME,
                           .input = long_text(t, 256 << 10),
                           .execution_id = 1 };
    dur_message_row start = kit_message(t, &item);
    MUST(kit_put(t, start));
    THAT(kit_equal_text(kit_instance(t, "a").pending_start, start.json));
}

static void ours_letters_are_whole(kit *t) {
    NEEDS("dead_letter_messages", "dead_letter_work", "list_dead_letters");
    const char *reason = long_text(t, 2000);
    dur_dead_letter *letters = NULL;
    size_t count = 0;
    kit_create(t, "a");
    dur_message_row message = kit_raised(t, "a", "go", long_text(t, 256 << 10));
    MUST(kit_put(t, message));
    uint64_t id = TAKE("a").messages[0].id;
    MUST(dur_store_dead_letter_messages(t->p, "a", &id, 1, reason, ERR));
    dur_work_item item = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                           .instance = "a",
                           .execution_id = 1,
                           .id = 2,
                           .name = "Act",
                           .input = long_text(t, 256 << 10) };
    dur_message_row work = kit_message(t, &item);
    MUST(kit_put_work(t, work));
    MUST(dur_store_dead_letter_work(t->p, TAKE_WORK(2).lock_token, reason, ERR));
    MUST(dur_store_list_dead_letters(t->p, t->arena, 0, 0, &letters, &count, ERR));
    SAME(count, 2);
    THAT(kit_equal_text(letters[0].json, message.json) && kit_equal_text(letters[1].json, work.json));
    TEXT(letters[0].reason, reason);
    TEXT(letters[1].reason, reason);
}

static void ours_empty_texts_are_texts(kit *t) {
    kit_create(t, "a");
    STEP("a", 1, ev_status(2, ""), ev_set(3, "k", ""));
    bool changed = false;
    const char *status = NULL;
    uint64_t version = 0;
    MUST(dur_store_get_custom_status(t->p, t->arena, "a", 0, &changed, &status, &version, ERR));
    TEXT(status, "");
    STEP_END("a", 1, COMPLETED, "", ev_done(4, ""));
    if (dur_store_has(t->p, "get_instance")) TEXT(kit_instance(t, "a").output, "");
    kit_create(t, "b");
    STEP_END("b", 1, COMPLETED, NULL, ev_done(2, "")); /* none is none */
    if (dur_store_has(t->p, "get_instance")) TEXT(kit_instance(t, "b").output, NULL);
    MUST(kit_put(t, kit_queued(t, "a", "", "x")));
    dur_orchestration_item item = TAKE("a");
    TEXT(item.messages[0].queue, "");
    if (!dur_store_has(t->p, "set_suspended") || !dur_store_has(t->p, "get_instance")) return;
    kit_create(t, "c");
    MUST(dur_store_set_suspended(t->p, "c", "", ERR)); /* a reason that says nothing, and not none */
    TEXT(kit_instance(t, "c").suspended, "");
    MUST(kit_put(t, kit_raised(t, "c", "go", "")));
    NOTHING();
    MUST(dur_store_set_suspended(t->p, "c", NULL, ERR));
    TEXT(kit_instance(t, "c").suspended, NULL);
    TAKE("c");
}

/* ---- a crowd in front -------------------------------------------------------------------------------------------- */

static void ours_crowd_of_instances_hides_nobody(kit *t) {
    NEEDS("fetch_turns", "commit_turns", "set_suspended");
    needs_room(t);
    const dur_version_range ones = { { 1, 0, 0 }, { 1, 9, 9 } };
    const dur_capability_filter first = { &ones, 1 };
    dur_orchestration_item *held = dur_arena_zalloc(t->arena, CROWD * sizeof(*held)), item;
    dur_message_row *sent = messages_of(t, 2 * CROWD);
    size_t count = 0;
    start_many(t, "pinned-", CROWD);
    commit_many(t, CROWD, &(kit_turn){ EVENTS(ev_started(1)), PINNED(9, 0, 0) });
    start_many(t, "held-", CROWD);
    dur_fetch all = { .lock_ms = 100 * t->lock_ms, .max = CROWD };
    MUST(dur_store_fetch_turns(t->p, t->arena, &all, held, &count, ERR));
    SAME(count, CROWD);
    for (size_t i = 0; i < CROWD; i++) {
        sent[2 * i] = kit_raised(t, kit_format(t, "pinned-%05zu", i), "go", "");
        sent[2 * i + 1] = kit_raised(t, kit_format(t, "nobody-%05zu", i), "go", "");
        dur_turn_commit pause = COMMIT_OF(&held[i], .event_count = 0);
        pause.execution_id = 0;
        pause.consume_listed = pause.set_suspended = true;
        pause.suspended = "on purpose";
        if (i % 3 == 0) MUST(kit_commit(t, &pause));
        if (i % 3 == 1) MUST(dur_store_abandon_orchestration_item(t->p, held[i].lock_token, 3600000, false, ERR));
    }
    MUST(kit_put(t, kit_start(t, "sender")));
    item = TAKE("sender");
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED, .messages = sent, .message_count = 2 * CROWD));
    THAT(kit_fetch_for(t, &first).instance == NULL);
    MUST(kit_put(t, kit_start(t, "last")));
    TEXT(kit_fetch_for(t, &first).instance, "last");
    THAT(kit_fetch_for(t, &first).instance == NULL);
}

static void ours_crowd_of_works_hides_nobody(kit *t) {
    NEEDS("fetch_works");
    needs_room(t);
    dur_message_row *work = messages_of(t, 4 * CROWD);
    dur_leased_work *got = dur_arena_zalloc(t->arena, CROWD * sizeof(*got));
    size_t count = 0;
    for (size_t i = 0; i < 4 * CROWD; i++)
        work[i] = kit_activity_in(t, "a", 1, i + 10, i / CROWD == 1 ? "held" : NULL, i / CROWD == 2 ? "gpu" : NULL);
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED, .work = work, .work_count = 4 * CROWD));
    uint64_t long_ms = 100 * t->lock_ms;
    dur_work_fetch some = { .lock_ms = long_ms, .max = CROWD };
    MUST(dur_store_fetch_works(t->p, t->arena, &some, got, &count, ERR)); /* locked */
    SAME(count, CROWD);
    TAKE_WORK_AS(CROWD + 10, .lock_ms = long_ms, .session_owner = "B",
                 .session_lock_ms = long_ms);                             /* the session is B's */
    MUST(dur_store_fetch_works(t->p, t->arena, &some, got, &count, ERR)); /* those behind the tagged ones … */
    SAME(count, CROWD);
    SAME(got[0].ref.activity_id, 3 * CROWD + 10);
    for (size_t i = 0; i < CROWD; i++) /* … are put off */
        MUST(dur_store_abandon_work_item(t->p, got[i].lock_token, 3600000, false, ERR));
    NO_WORK_AS(SESSION("A"));
    MUST(kit_put_work(t, kit_activity(t, "a", 9999)));
    TAKE_WORK_AS(9999, SESSION("A"));
    NO_WORK_AS(SESSION("A"));
}

const kit_check kit_ours_many[] = {
    CHECK(ours_many_messages_at_once),
    CHECK(ours_many_events_in_order),
    CHECK(ours_many_executions_in_order),
    CHECK(ours_many_instances_are_listed_and_deleted),
    CHECK(ours_many_works_at_once),
    CHECK(ours_ids_of_events_have_63_bits),
    CHECK(ours_ids_of_activities_have_63_bits),
    CHECK(ours_ids_of_executions_have_63_bits),
    CHECK(ours_births_have_64_bits),
    CHECK(ours_long_times_do_not_wrap),
    CHECK(ours_texts_come_back_whole),
    CHECK(ours_waiting_start_is_shown_whole),
    CHECK(ours_letters_are_whole),
    CHECK(ours_empty_texts_are_texts),
    CHECK(ours_crowd_of_instances_hides_nobody),
    CHECK(ours_crowd_of_works_hides_nobody),
    CHECKS_END,
};
