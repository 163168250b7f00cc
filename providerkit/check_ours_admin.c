/*
 * check_ours_admin.c: our own: dead letters, suspension, queries, sizes, backup and upkeep.
 */
#include "kit_internal.h"

#include <durite/provider.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static size_t letters(kit *t, dur_dead_letter **out) {
    size_t count = 0;
    MUST(dur_store_list_dead_letters(t->p, t->arena, 0, 100, out, &count, ERR));
    return count;
}

static void ours_orphan_queue_messages_are_dead_letters(kit *t) {
    NEEDS("list_dead_letters", "delete_dead_letters", "get_queue_depths");
    dur_dead_letter *rows;
    dur_message_row lost = kit_queued(t, "nobody", "q", "lost");
    SAME(letters(t, &rows), 0);
    MUST(kit_put(t, lost));
    NOTHING();
    SAME(letters(t, &rows), 1);
    TEXT(rows[0].instance, "nobody");
    THAT(rows[0].reason != NULL && rows[0].reason[0] != '\0');
    THAT(kit_equal_text(rows[0].json, lost.json));
    SAME(kit_depths(t).dead_letters, 1);
    MUST(dur_store_delete_dead_letters(t->p, &rows[0].id, 1, ERR));
    SAME(letters(t, &rows), 0);
}

static void ours_orphans_are_buried_by_the_fetch_that_passes_them(kit *t) {
    NEEDS("list_dead_letters");
    dur_dead_letter *rows;
    MUST(kit_put(t, kit_queued(t, "nobody", "q", "1")));
    MUST(kit_put(t, kit_raised(t, "nobody", "waits", "")));
    MUST(kit_put(t, kit_queued(t, "nobody", "q", "2")));
    NOTHING();
    SAME(letters(t, &rows), 2); /* in their order */
    THAT(kit_says(rows[0].json, "\"1\"") && kit_says(rows[1].json, "\"2\""));
    dur_message_row later = kit_queued(t, "nobody", "q", "3");
    MUST(dur_store_enqueue_for_orchestrator(t->p, &later, 300, ERR));
    MUST(kit_put(t, kit_queued(t, "nobody", "q", "4")));
    NOTHING();
    SAME(letters(t, &rows), 3); /* not visible yet: the instance may still come */
    kit_advance(t, 400);
    NOTHING();
    SAME(letters(t, &rows), 4);
    MUST(kit_put(t, kit_start(t, "nobody")));
    dur_orchestration_item item = TAKE("nobody");
    SAME(item.message_count, 2);
    THAT(kit_says(item.messages[0].json, "waits"));
}

static void ours_dead_letter_messages(kit *t) {
    NEEDS("list_dead_letters", "dead_letter_messages");
    dur_dead_letter *rows;
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "bad", "")));
    MUST(kit_put(t, kit_raised(t, "a", "good", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(dur_store_dead_letter_messages(t->p, "a", &item.messages[0].id, 1, "cannot be read", ERR));
    SAME(letters(t, &rows), 1);
    TEXT(rows[0].reason, "cannot be read");
    THAT(kit_says(rows[0].json, "bad"));
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 0, false, ERR));
    item = TAKE("a");
    SAME(item.message_count, 1);
    THAT(kit_says(item.messages[0].json, "good"));
}

static void ours_start_for_what_is_gone_begins_anew(kit *t) {
    NEEDS("dead_letter_messages");
    uint64_t start;
    MUST(kit_put(t, kit_start(t, "a")));
    dur_orchestration_item item = TAKE("a");
    start = item.messages[0].id;
    MUST(dur_store_dead_letter_messages(t->p, "a", &start, 1, "cannot be read", ERR));
    kit_expire(t); /* nothing is left of it but, perhaps, a count */
    MUST(kit_put(t, kit_raised(t, "a", "early", "")));
    MUST(kit_put(t, kit_start(t, "a")));
    item = TAKE("a");
    SAME(item.message_count, 2);
    THAT(item.acquisitions <= 1);
    start = item.messages[1].id;
    MUST(dur_store_dead_letter_messages(t->p, "a", &start, 1, "cannot be read", ERR));
    MUST(dur_store_abandon_orchestration_item(t->p, item.lock_token, 10 * t->lock_ms, false, ERR));
    MUST(kit_put(t, kit_start(t, "a"))); /* a message of it waits, but it does not exist: neither does the delay */
    item = TAKE("a");
    SAME(item.message_count, 2);
    THAT(item.acquisitions <= 1);
}

static void ours_dead_letter_work(kit *t) {
    NEEDS("list_dead_letters", "dead_letter_work");
    dur_dead_letter *rows;
    MUST(kit_put_work(t, kit_activity(t, "a", 1)));
    dur_leased_work work = TAKE_WORK(1);
    REFUSED(DUR_ELEASE, NULL, dur_store_dead_letter_work(t->p, "no-such-token", "why", ERR));
    MUST(dur_store_dead_letter_work(t->p, work.lock_token, "cannot be read", ERR));
    SAME(letters(t, &rows), 1);
    TEXT(rows[0].instance, "a");
    THAT(kit_equal_text(rows[0].json, work.json));
    kit_expire(t);
    NO_WORK();
}

static void ours_dead_letters_in_pages(kit *t) {
    NEEDS("list_dead_letters");
    dur_dead_letter *rows = NULL;
    size_t count = 0;
    for (int i = 0; i < 5; i++)
        MUST(kit_put(t, kit_queued(t, "nobody", "q", kit_format(t, "m%d", i))));
    NOTHING();
    uint64_t after = 0;
    size_t seen = 0;
    do {
        MUST(dur_store_list_dead_letters(t->p, t->arena, after, 2, &rows, &count, ERR));
        THAT(count <= 2);
        for (size_t i = 0; i < count; i++) {
            THAT(rows[i].id > after);
            after = rows[i].id;
        }
        seen += count;
    } while (count > 0);
    SAME(seen, 5);
}

static void ours_suspend_and_resume(kit *t) {
    NEEDS("set_suspended", "get_instance", "list_instances", "get_system_metrics");
    dur_system_metrics metrics;
    REFUSED(DUR_ENOTFOUND, NULL, dur_store_set_suspended(t->p, "nobody", "why", ERR));
    kit_create(t, "a");
    kit_create(t, "b");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(dur_store_set_suspended(t->p, "a", "on purpose", ERR));
    REFUSED(DUR_ELEASE, NULL, ACK(&item, EVENTS(ev_external(2, "go")))); /* its lease has ended */
    NOTHING();
    kit_expire(t);
    NOTHING();
    TEXT(kit_instance(t, "a").suspended, "on purpose");
    dur_instance_row *rows = NULL;
    size_t count = 0;
    dur_instance_query query = { .suspended_only = true };
    MUST(dur_store_list_instances(t->p, t->arena, &query, &rows, &count, ERR));
    SAME(count, 1);
    TEXT(rows[0].instance_id, "a");
    MUST(dur_store_get_system_metrics(t->p, &metrics, ERR));
    SAME(metrics.suspended, 1);
    MUST(kit_put(t, kit_raised(t, "b", "go", "")));
    TAKE("b"); /* others run */
    MUST(dur_store_set_suspended(t->p, "a", NULL, ERR));
    SAME(TAKE("a").message_count, 1);
}

/* What is left of one that has ended is to be fetched: nobody would resume it. */
static void ours_suspend_refuses_what_has_ended(kit *t) {
    NEEDS("set_suspended", "get_instance");
    kit_create_ended(t, "a", NULL, DUR_STATUS_COMPLETED, "out");
    REFUSED(DUR_ESTATE, "ended", dur_store_set_suspended(t->p, "a", "too late", ERR));
    TEXT(kit_instance(t, "a").suspended, NULL);
    MUST(kit_put(t, kit_raised(t, "a", "late", "")));
    SAME(TAKE("a").message_count, 1);
    MUST(dur_store_set_suspended(t->p, "a", NULL, ERR));
}

/* Whoever takes a lease away has learned nothing of the instance. */
static void ours_suspend_counts_no_attempt(kit *t) {
    NEEDS("set_suspended");
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    MUST(dur_store_abandon_orchestration_item(t->p, TAKE("a").lock_token, 0, false, ERR)); /* this one counts */
    for (uint32_t i = 0; i < 3; i++) {
        dur_orchestration_item item = TAKE("a");
        SAME(item.message_count, 1);
        SAME(item.messages[0].attempt_count, 2);
        if (item.acquisitions != 0) SAME(item.acquisitions, 2);
        MUST(dur_store_set_suspended(t->p, "a", "on purpose", ERR));
        MUST(dur_store_set_suspended(t->p, "a", "once more", ERR)); /* nothing is held any more */
        MUST(dur_store_set_suspended(t->p, "a", NULL, ERR));
    }
}

static void listed(kit *t, const dur_instance_query *query, const char *want) {
    dur_instance_row *rows = NULL;
    size_t count = 0;
    const char *got = "";
    MUST(dur_store_list_instances(t->p, t->arena, query, &rows, &count, ERR));
    for (size_t i = 0; i < count; i++)
        got = kit_format(t, "%s%s%s", got, i > 0 ? " " : "", rows[i].instance_id);
    TEXT(got, want);
}
#define LISTED(want, ...) listed(t, &(dur_instance_query){ __VA_ARGS__ }, (want))

static void ours_queries(kit *t) {
    NEEDS("list_instances");
    uint64_t times[4];
    static const char *const ids[] = { "order-1", "order-2", "order_x", "zebra" };
    for (size_t i = 0; i < 4; i++) {
        kit_advance(t, 20);
        times[i] = dur_store_now_ms(t->p);
        kit_advance(t, 20);
        if (i == 3) {
            MUST(kit_put(t, kit_child(t, "zebra", "order-1", 2)));
            dur_orchestration_item item = TAKE("zebra");
            MUST(ACK(&item, EVENTS(ev_started(1)),
                     .meta = { .orchestration_name = "Other",
                               .orchestration_version = "1.0.0",
                               .parent_instance_id = "order-1" }));
        } else {
            kit_create(t, ids[i]);
        }
    }
    LISTED("order-1 order-2 order_x zebra", .limit = 0);
    LISTED("order-1 order-2", .id_prefix = "order-");
    LISTED("order_x", .id_prefix = "order_"); /* no wildcards */
    LISTED("", .id_prefix = "order%");
    LISTED("zebra", .name = "Other");
    LISTED("order-1 order-2 order_x", .roots_only = true);
    LISTED("zebra", .parent = "order-1");
    LISTED("order-1 order-2", .limit = 2);
    LISTED("order_x zebra", .limit = 2, .after = "order-2");
    LISTED("", .after = "zebra");
    LISTED("order_x zebra", .created_after_ms = times[2]);
    LISTED("order-1 order-2", .created_before_ms = times[2]);
    LISTED("order-2", .created_after_ms = times[1], .created_before_ms = times[2], .id_prefix = "order");
}

/* What a start will make is seen before any turn: as get_instance shows it, and by every filter. */
static void ours_starts_that_wait_are_listed(kit *t) {
    NEEDS("list_instances", "get_instance");
    kit_create(t, "begun");
    kit_advance(t, 20);
    uint64_t between = dur_store_now_ms(t->p);
    kit_advance(t, 20);
    MUST(kit_put(t, kit_start_as(t, "waits", "Other", NULL)));
    kit_advance(t, 20); /* the first is fetched first */
    MUST(kit_put(t, kit_start_as(t, "odd", "Odd@Name", "1.0.0")));
    MUST(kit_put(t, kit_child(t, "kid", "begun", 2)));
    MUST(kit_put(t, kit_raised(t, "stray", "go", "")));
    LISTED("begun kid odd waits", .limit = 0);
    LISTED("begun kid odd waits", .status = DUR_STATUS_RUNNING);
    LISTED("", .status = DUR_STATUS_COMPLETED);
    LISTED("", .status = DUR_STATUS_CONTINUED_AS_NEW);
    LISTED("waits", .name = "Other");
    LISTED("odd", .name = "Odd@Name", .status = DUR_STATUS_RUNNING);
    LISTED("", .name = "Odd");
    LISTED("begun odd waits", .roots_only = true);
    LISTED("kid", .parent = "begun");
    LISTED("kid", .parent = "begun", .status = DUR_STATUS_RUNNING);
    LISTED("kid odd waits", .created_after_ms = between);
    LISTED("begun", .created_before_ms = between);
    LISTED("kid odd", .limit = 2, .after = "begun", .status = DUR_STATUS_RUNNING);
    dur_instance_row *rows = NULL, row = kit_instance(t, "waits");
    size_t count = 0;
    dur_instance_query query = { .id_prefix = "waits" };
    MUST(dur_store_list_instances(t->p, t->arena, &query, &rows, &count, ERR));
    SAME(count, 1);
    THAT(rows[0].start_pending && row.start_pending);
    SAME(rows[0].status, DUR_STATUS_RUNNING);
    SAME(rows[0].created_at_ms, row.created_at_ms);
    SAME(rows[0].pending_start.size, row.pending_start.size);
    THAT(row.pending_start.size > 0 &&
         memcmp(rows[0].pending_start.data, row.pending_start.data, row.pending_start.size) == 0);
    dur_orchestration_item item = TAKE("waits"); /* taken is not begun */
    LISTED("begun kid odd waits", .status = DUR_STATUS_RUNNING);
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
    LISTED("begun kid odd waits", .status = DUR_STATUS_RUNNING);
    LISTED("", .name = "Other"); /* its row says now what it is */
}

static void ours_starts_that_wait_are_counted(kit *t) {
    NEEDS("get_system_metrics", "get_instance", "set_suspended");
    dur_system_metrics metrics;
    kit_create(t, "begun");
    MUST(kit_put(t, kit_start(t, "waits")));
    MUST(kit_put(t, kit_start(t, "suspended")));
    MUST(kit_put(t, kit_raised(t, "stray", "go", "")));
    MUST(dur_store_set_suspended(t->p, "suspended", "why", ERR));
    MUST(dur_store_get_system_metrics(t->p, &metrics, ERR));
    SAME(metrics.total_instances, 1);
    SAME(metrics.running, 1);
    SAME(metrics.starts_waiting, 2);
    SAME(metrics.suspended, 1);
    dur_orchestration_item item = TAKE("waits");
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
    MUST(dur_store_get_system_metrics(t->p, &metrics, ERR));
    SAME(metrics.running, 2);
    SAME(metrics.starts_waiting, 1);
}

/* An id is taken from the moment when a start was accepted: a call that comes behind it is one of an id that is taken,
   though it is due before. */
static void ours_a_start_that_is_not_due_has_the_id(kit *t) {
    NEEDS("enqueue_start", "commit_turns", "get_instance");
    bool existed = false;
    dur_instance_row row;
    dur_message_row first = kit_start(t, "a");
    MUST(dur_store_enqueue_start(t->p, &first, DUR_EXISTS_FAIL, DUR_HOURS(1), &existed, ERR));
    MUST(dur_store_get_instance(t->p, t->arena, "a", &row, ERR));
    uint64_t id = row.pending_start_id;
    MUST(kit_put(t, kit_start(t, "a")));
    MUST(dur_store_get_instance(t->p, t->arena, "a", &row, ERR));
    SAME(row.pending_start_id, id);
    dur_orchestration_item item = TAKE("a");
    THAT(item.start_later);
    SAME(item.message_count, 1);
    dur_message_row answer = kit_raised(t, "b", "refused", "");
    dur_turn_commit refusal = { .lock_token = item.lock_token,
                                .instance = "a",
                                .expected_last = DUR_NOT_COMPARED,
                                .consume_listed = true,
                                .consumed = &item.messages[0].id,
                                .consumed_count = 1,
                                .orchestrator_items = &answer,
                                .orchestrator_item_count = 1 };
    MUST(dur_store_commit_turns(t->p, &refusal, 1, ERR));
    SAME(refusal.error.code, DUR_OK);
    MUST(dur_store_get_instance(t->p, t->arena, "a", &row, ERR));
    THAT(row.start_pending);
    SAME(row.pending_start_id, id);
    NOTHING();
    MUST(kit_put(t, kit_start(t, "b")));
    item = TAKE("b");
    SAME(item.message_count, 2);
    THAT(!item.start_later);
}

/* Running is what has not ended, between two executions, too. */
static void ours_what_continues_is_running(kit *t) {
    NEEDS("list_instances");
    kit_create(t, "a");
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    dur_orchestration_item item = TAKE("a");
    MUST(ACK(&item, EVENTS(ev_continued(2, "next")), MESSAGES(kit_next(t, "a", "next")),
             .meta = { .status = DUR_STATUS_CONTINUED_AS_NEW, .output = "next" }));
    LISTED("a", .status = DUR_STATUS_RUNNING);
    LISTED("a", .status = DUR_STATUS_CONTINUED_AS_NEW);
    LISTED("a", .limit = 0);
    LISTED("", .status = DUR_STATUS_COMPLETED);
}

static void ours_stats_count_waiting_queue_messages(kit *t) {
    NEEDS("get_instance_stats");
    dur_instance_stats stats;
    bool found = false;
    kit_create(t, "a");
    MUST(kit_put(t, kit_queued(t, "a", "q", "1")));
    MUST(kit_put(t, kit_queued(t, "a", "r", "2")));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    MUST(dur_store_get_instance_stats(t->p, t->arena, "a", &found, &stats, ERR));
    THAT(found);
    SAME(stats.queue_pending_count, 2);
}

static void ours_instance_times(kit *t) {
    NEEDS("get_instance");
    uint64_t before = dur_store_now_ms(t->p);
    kit_advance(t, 20);
    kit_create(t, "a");
    dur_instance_row row = kit_instance(t, "a");
    THAT(row.created_at_ms > before && row.created_at_ms <= dur_store_now_ms(t->p));
    kit_advance(t, 50);
    STEP("a", 1, ev_scheduled(2));
    dur_instance_row later = kit_instance(t, "a");
    SAME(later.created_at_ms, row.created_at_ms);
    THAT(later.updated_at_ms > row.updated_at_ms);
}

static void ours_owner_is_shown(kit *t) {
    NEEDS("get_instance", "owner_register", "fetch_turns");
    kit_owner(t, "me");
    kit_create(t, "a");
    TEXT(kit_instance(t, "a").owner, NULL);
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    ACQUIRE("me", "a");
    TEXT(kit_instance(t, "a").owner, "me");
}

/* What was accepted for its queues is kept, in its order; nothing else is. */
static void ours_delete_keeps_queue_messages(kit *t) {
    NEEDS("delete_instances", "list_dead_letters", "enqueue_start");
    dur_dead_letter *rows;
    dur_delete_result result;
    bool existed = false;
    const char *ids[] = { "a" };
    kit_create(t, "a");
    dur_message_row first = kit_queued(t, "a", "q", "first"), second = kit_queued(t, "a", "r", "second");
    MUST(kit_put(t, first));
    MUST(kit_put(t, second));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    MUST(dur_store_delete_instances(t->p, ids, 1, true, &result, ERR));
    SAME(result.queue_messages, 3);
    SAME(letters(t, &rows), 2);
    TEXT(rows[0].instance, "a");
    THAT(rows[0].reason != NULL && rows[0].reason[0] != '\0');
    THAT(kit_equal_text(rows[0].json, first.json) && kit_equal_text(rows[1].json, second.json));
    kit_create(t, "b");
    dur_message_row third = kit_queued(t, "b", "q", "third");
    MUST(kit_put(t, third));
    dur_orchestration_item item = TAKE("b");
    dur_turn_commit end = COMMIT_OF(&item, EVENTS(ev_done(2, "")), ENDS(COMPLETED, ""));
    end.consume_listed = true;
    MUST(kit_commit(t, &end));
    dur_message_row again = kit_start(t, "b");
    MUST(dur_store_enqueue_start(t->p, &again, DUR_EXISTS_REPLACE_FINISHED, 0, &existed, ERR));
    SAME(letters(t, &rows), 3);
    THAT(kit_equal_text(rows[2].json, third.json));
    SAME(TAKE("b").message_count, 1);
}

static void ours_delete_a_waiting_start(kit *t) {
    NEEDS("delete_instances");
    const char *ids[] = { "a" };
    dur_delete_result result;
    MUST(kit_put(t, kit_start(t, "a")));
    int code = dur_store_delete_instances(t->p, ids, 1, true, &result, ERR);
    if (code != DUR_OK) SAME(code, DUR_ENOTFOUND); /* either answer is honest: it has no row */
    if (code == DUR_OK) NOTHING();
}

static void ours_backup_can_be_opened(kit *t) {
    NEEDS("backup");
    const char *folder = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof(path), "%s/durite-kit-backup-%ld-%llu", folder != NULL ? folder : "/tmp", (long)getpid(),
             (unsigned long long)kit_random(&t->random));
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"));
    MUST(kit_put(t, kit_raised(t, "a", "go", "")));
    MUST(dur_store_backup(t->p, path, ERR));
    dur_provider *copy = NULL;
    const char *value = NULL;
    dur_orchestration_item item = { .instance = NULL };
    dur_fetch how = { .lock_ms = t->lock_ms };
    int opened = dur_open(&copy, kit_format(t, "%s:%s", dur_provider_name(t->p), path), ERR);
    int read = DUR_EINVAL, fetched = DUR_EINVAL, checked = DUR_OK;
    if (opened == DUR_OK) {
        read = dur_store_get_kv_value(copy, t->arena, "a", "k", &value, ERR);
        fetched = dur_store_fetch_orchestration_item(copy, t->arena, &how, &item, ERR);
        if (dur_store_has(copy, "check")) checked = dur_store_check(copy, ERR);
        dur_provider_close(copy);
    }
    (void)unlink(path);
    (void)unlink(kit_format(t, "%s-wal", path));
    (void)unlink(kit_format(t, "%s-shm", path));
    (void)unlink(kit_format(t, "%s.lock", path));
    kit_must(t, __FILE__, __LINE__, "opening the copy", opened);
    SAME(read, DUR_OK);
    TEXT(value, "v");
    SAME(fetched, DUR_OK);
    TEXT(item.instance, "a");
    SAME(checked, DUR_OK);
    TAKE("a"); /* the original was not touched */
}

static void ours_check_and_vacuum(kit *t) {
    NEEDS("check", "vacuum");
    kit_create(t, "a");
    STEP("a", 1, ev_set(2, "k", "v"));
    MUST(dur_store_check(t->p, ERR));
    uint64_t left = 99;
    MUST(dur_store_vacuum(t->p, 1000, &left, ERR));
    MUST(dur_store_check(t->p, ERR));
    TEXT(kit_value(t, "a", "k"), "v");
}

static void ours_missing_methods_are_named(kit *t) {
    /* A store without a method says which, in words; one that has it all passes by having nothing to say. */
    dur_queue_depths depths;
    dur_error_clear(ERR);
    int code = dur_store_get_queue_depths(t->p, &depths, ERR);
    if (dur_store_has(t->p, "get_queue_depths"))
        SAME(code, DUR_OK);
    else {
        SAME(code, DUR_EUNSUPPORTED);
        THAT(strstr(t->err.message, "get_queue_depths") != NULL);
    }
    THAT(!dur_store_has(t->p, "no_such_method"));
    THAT(dur_store_has(t->p, "read"));
}

const kit_check kit_ours_admin[] = {
    CHECK(ours_orphan_queue_messages_are_dead_letters),
    CHECK(ours_orphans_are_buried_by_the_fetch_that_passes_them),
    CHECK(ours_dead_letter_messages),
    CHECK(ours_start_for_what_is_gone_begins_anew),
    CHECK(ours_dead_letter_work),
    CHECK(ours_dead_letters_in_pages),
    CHECK(ours_suspend_and_resume),
    CHECK(ours_suspend_refuses_what_has_ended),
    CHECK(ours_suspend_counts_no_attempt),
    CHECK(ours_queries),
    CHECK(ours_starts_that_wait_are_listed),
    CHECK(ours_starts_that_wait_are_counted),
    CHECK(ours_a_start_that_is_not_due_has_the_id),
    CHECK(ours_what_continues_is_running),
    CHECK(ours_stats_count_waiting_queue_messages),
    CHECK(ours_instance_times),
    CHECK(ours_owner_is_shown),
    CHECK(ours_delete_a_waiting_start),
    CHECK(ours_delete_keeps_queue_messages),
    CHECK(ours_backup_can_be_opened),
    CHECK(ours_check_and_vacuum),
    CHECK(ours_missing_methods_are_named),
    CHECKS_END,
};
