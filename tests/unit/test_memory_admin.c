/*
 * test_memory_admin.c: starts, message ids, watching, KV, lists, deletion and pruning of the memory store.
 */
#include "store_help.h"

#include "base/thread.h"

static int start(bench *b, const char *id, dur_exists_policy policy, bool *existed) {
    dur_message_row m = start_of(b, id);
    return dur_store_enqueue_start(b->store, &m, policy, 0, existed, &b->err);
}

/* One turn of whatever is fetched next, in an execution, with a status. */
static void turn(bench *b, uint64_t execution, dur_status status, const char *parent, const dur_event_row *events,
                 size_t count) {
    dur_orchestration_item item = fetch(b, 5000);
    assert_non_null(item.instance);
    dur_turn_commit commit = { .lock_token = item.lock_token,
                               .execution_id = execution,
                               .events = events,
                               .event_count = count,
                               .metadata = named() };
    commit.metadata.status = status;
    commit.metadata.parent_instance_id = parent;
    ASSERT_OK(b, dur_store_ack_orchestration_item(b->store, &commit, &b->err));
}

static void make(bench *b, const char *id, dur_status status, const char *parent) {
    dur_event_row event = event_of(1);
    ASSERT_OK(b, start(b, id, DUR_EXISTS_FAIL, NULL));
    turn(b, 1, status, parent, &event, 1);
}

static void poke(bench *b, const char *id) {
    dur_message_row m = message_of(DUR_WORK_EXTERNAL_RAISED, id);
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &m, 0, &b->err));
}

static void start_policies(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    bool existed;
    ASSERT_OK(b, start(b, "a", DUR_EXISTS_FAIL, &existed));
    assert_false(existed);
    assert_int_equal(start(b, "a", DUR_EXISTS_FAIL, &existed), DUR_EEXISTS); /* it waits to start: it exists */
    assert_true(existed);
    dur_instance_row row;
    ASSERT_OK(b, dur_store_get_instance(b->store, b->arena, "a", &row, &b->err));
    assert_true(row.start_pending);
    ASSERT_OK(b, start(b, "a", DUR_EXISTS_RETURN, &existed));
    assert_true(existed);
    dur_queue_depths depths;
    ASSERT_OK(b, dur_store_get_queue_depths(b->store, &depths, &b->err));
    assert_int_equal(depths.orchestrator_queue, 1);
    assert_int_equal(start(b, "a", DUR_EXISTS_REPLACE_FINISHED, &existed), DUR_EEXISTS);
    dur_event_row event = event_of(1);
    turn(b, 1, DUR_STATUS_COMPLETED, NULL, &event, 1);
    make(b, "child", DUR_STATUS_NONE, "a");
    assert_int_equal(start(b, "a", DUR_EXISTS_REPLACE_FINISHED, &existed), DUR_EEXISTS); /* its tree still runs */
    assert_non_null(strstr(b->err.message, "child"));
    poke(b, "child");
    dur_event_row last = event_of(2);
    turn(b, 1, DUR_STATUS_FAILED, NULL, &last, 1);
    ASSERT_OK(b, start(b, "a", DUR_EXISTS_REPLACE_FINISHED, &existed));
    assert_int_equal(dur_store_get_instance(b->store, b->arena, "child", &row, &b->err), DUR_ENOTFOUND);
    ASSERT_OK(b, dur_store_get_instance(b->store, b->arena, "a", &row, &b->err));
    assert_true(row.start_pending);
    bench_close(b);
}

static void messages_to_those_that_exist(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    dur_message_row m = queue_of("a", "q", "id-1");
    assert_int_equal(dur_store_enqueue_existing(b->store, &m, 0, &b->err), DUR_ENOTFOUND);
    ASSERT_OK(b, start(b, "a", DUR_EXISTS_FAIL, NULL));
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &m, 0, &b->err));
    assert_int_equal(dur_store_enqueue_existing(b->store, &m, 0, &b->err), DUR_EDUPLICATE);
    dur_event_row event = event_of(1);
    turn(b, 1, DUR_STATUS_COMPLETED, NULL, &event, 1);
    assert_int_equal(dur_store_enqueue_existing(b->store, &m, 0, &b->err), DUR_EDUPLICATE); /* still known */
    m.message_id = "id-2";
    assert_int_equal(dur_store_enqueue_existing(b->store, &m, 0, &b->err), DUR_ESTATE);
    dur_message_row raise = message_of(DUR_WORK_EXTERNAL_RAISED, "a");
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &raise, 0, &b->err)); /* accepted, without effect */
    bench_close(b);
}

/* Remembered until the execution after next ends, and a day. */
static void message_ids_are_forgotten_in_time(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    ASSERT_OK(b, start(b, "a", DUR_EXISTS_FAIL, NULL));
    dur_message_row m = queue_of("a", "q", "id-1");
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &m, 0, &b->err));
    dur_event_row event = event_of(1);
    for (uint64_t execution = 1; execution <= 3; execution++) {
        turn(b, execution, DUR_STATUS_CONTINUED_AS_NEW, NULL, &event, 1);
        assert_int_equal(dur_store_enqueue_existing(b->store, &m, 0, &b->err), DUR_EDUPLICATE); /* no day has passed */
        poke(b, "a");
    }
    dur_fake_world_advance(b->fake, DUR_HOURS(24));
    assert_int_equal(dur_store_enqueue_existing(b->store, &m, 0, &b->err), DUR_EDUPLICATE);
    turn(b, 4, DUR_STATUS_CONTINUED_AS_NEW, NULL, &event, 1);
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &m, 0, &b->err));
    dur_fake_world_advance(b->fake, DUR_HOURS(25)); /* accepted in 4: 5 may end, 6 must */
    poke(b, "a");
    turn(b, 5, DUR_STATUS_CONTINUED_AS_NEW, NULL, &event, 1);
    assert_int_equal(dur_store_enqueue_existing(b->store, &m, 0, &b->err), DUR_EDUPLICATE);
    poke(b, "a");
    turn(b, 6, DUR_STATUS_CONTINUED_AS_NEW, NULL, &event, 1);
    ASSERT_OK(b, dur_store_enqueue_existing(b->store, &m, 0, &b->err));
    bench_close(b);
}

static dur_event_row kv(uint64_t id, dur_event_kind kind, const char *key, const char *value) {
    return (dur_event_row){
        .event_id = id, .kind = kind, .key = key, .value = value, .stamp_ms = id, .json = text_of("{}")
    };
}

static void kv_in_two_tables(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    const char *value;
    ASSERT_OK(b, start(b, "a", DUR_EXISTS_FAIL, NULL));
    dur_event_row first[2] = { kv(1, DUR_EVENT_KEY_VALUE_SET, "k", "1"), kv(2, DUR_EVENT_KEY_VALUE_SET, "l", "") };
    turn(b, 1, DUR_STATUS_NONE, NULL, first, 2);
    poke(b, "a");
    dur_orchestration_item item = fetch(b, 5000);
    assert_int_equal(item.kv_count, 0); /* writes of the running execution are not in its snapshot */
    ASSERT_OK(b, dur_store_get_kv_value(b->store, b->arena, "a", "k", &value, &b->err));
    assert_string_equal(value, "1");
    ASSERT_OK(b, dur_store_abandon_orchestration_item(b->store, item.lock_token, 0, false, &b->err));
    dur_event_row end = event_of(3);
    turn(b, 1, DUR_STATUS_CONTINUED_AS_NEW, NULL, &end, 1);
    poke(b, "a");
    item = fetch(b, 5000);
    assert_int_equal(item.kv_count, 2);
    assert_string_equal(item.kv[1].key, "l");
    assert_string_equal(item.kv[1].value, "");
    assert_int_equal(item.kv[1].last_updated_at_ms, 2);
    ASSERT_OK(b, dur_store_abandon_orchestration_item(b->store, item.lock_token, 0, false, &b->err));
    dur_event_row second[2] = { kv(1, DUR_EVENT_KEY_VALUES_CLEARED, NULL, NULL),
                                kv(2, DUR_EVENT_KEY_VALUE_SET, "m", "3") };
    turn(b, 2, DUR_STATUS_NONE, NULL, second, 2);
    ASSERT_OK(b, dur_store_get_kv_value(b->store, b->arena, "a", "k", &value, &b->err));
    assert_null(value);
    dur_key_value *all;
    size_t count;
    ASSERT_OK(b, dur_store_get_kv_all_values(b->store, b->arena, "a", &all, &count, &b->err));
    assert_int_equal(count, 1);
    assert_string_equal(all[0].key, "m");
    dur_instance_stats stats;
    bool found;
    ASSERT_OK(b, dur_store_get_instance_stats(b->store, b->arena, "a", &found, &stats, &b->err));
    assert_int_equal(stats.kv_user_key_count, 1);
    assert_int_equal(stats.kv_total_value_bytes, 1);
    bench_close(b);
}

static void custom_status_has_a_version(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    bool changed;
    const char *status;
    uint64_t version;
    ASSERT_OK(b, start(b, "a", DUR_EXISTS_FAIL, NULL));
    dur_event_row set[2] = { kv(1, DUR_EVENT_CUSTOM_STATUS_UPDATED, NULL, "one"),
                             kv(2, DUR_EVENT_CUSTOM_STATUS_UPDATED, NULL, "two") };
    turn(b, 1, DUR_STATUS_NONE, NULL, set, 2);
    ASSERT_OK(b, dur_store_get_custom_status(b->store, b->arena, "a", 0, &changed, &status, &version, &b->err));
    assert_true(changed);
    assert_string_equal(status, "two");
    assert_int_equal(version, 1);
    ASSERT_OK(b, dur_store_get_custom_status(b->store, b->arena, "a", 1, &changed, &status, &version, &b->err));
    assert_false(changed);
    bench_close(b);
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

typedef struct watcher {
    dur_watch *watch;
    int code;
} watcher;

static void wait_for_it(void *arg) {
    watcher *w = arg;
    w->code = dur_store_watch_wait(w->watch, 60000, NULL);
}

static void watchers_are_woken(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    watcher mine = { .code = -1 }, other = { .code = -1 };
    ASSERT_OK(b, dur_store_watch_open(b->store, "a", &mine.watch, &b->err)); /* before it exists */
    ASSERT_OK(b, dur_store_watch_open(b->store, "b", &other.watch, &b->err));
    dur__thread thread;
    assert_int_equal(dur__thread_start(&thread, "watcher", wait_for_it, &mine), 0);
    make(b, "a", DUR_STATUS_NONE, NULL);
    dur__thread_join(&thread);
    assert_int_equal(mine.code, DUR_OK);
    assert_int_equal(dur_store_watch_wait(other.watch, 1, &b->err), DUR_ETIMEOUT);
    dur_store_watch_close(mine.watch);
    dur_store_watch_close(other.watch);
    bench_close(b);
}

/* ---- lists, deletion, pruning ------------------------------------------------------------------------------------ */

static void lists_by_query(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    dur_instance_row *rows;
    size_t count;
    make(b, "b-root", DUR_STATUS_NONE, NULL);
    dur_fake_world_advance(b->fake, 10);
    make(b, "a-done", DUR_STATUS_COMPLETED, NULL);
    make(b, "b-child", DUR_STATUS_FAILED, "b-root");
    ASSERT_OK(b, start(b, "pending", DUR_EXISTS_FAIL, NULL)); /* it waits, and is seen as that (H70) */
    ASSERT_OK(b, dur_store_list_instances(b->store, b->arena, NULL, &rows, &count, &b->err));
    assert_int_equal(count, 4);
    assert_string_equal(rows[0].instance_id, "a-done");
    assert_string_equal(rows[2].parent_instance_id == NULL ? rows[2].instance_id : "", "b-root");
    assert_true(rows[3].start_pending && rows[3].status == DUR_STATUS_RUNNING && rows[3].pending_start.size > 0);
    assert_false(rows[2].start_pending);
    struct {
        dur_instance_query query;
        size_t count;
    } cases[] = {
        { { .status = DUR_STATUS_FAILED }, 1 },
        { { .status = DUR_STATUS_RUNNING }, 2 },
        { { .roots_only = true }, 3 },
        { { .parent = "b-root" }, 1 },
        { { .parent = "nobody" }, 0 },
        { { .id_prefix = "b-" }, 2 },
        { { .limit = 2 }, 2 },
        { { .after = "a-done" }, 3 },
        { { .name = "Flow" }, 4 },
        { { .name = "Other" }, 0 },
        { { .created_after_ms = START_MS }, 3 },
        { { .suspended_only = true }, 0 },
        { { .created_before_ms = START_MS + 10 }, 1 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ASSERT_OK(b, dur_store_list_instances(b->store, b->arena, &cases[i].query, &rows, &count, &b->err));
        assert_int_equal(count, cases[i].count);
    }
    dur_system_metrics metrics;
    ASSERT_OK(b, dur_store_get_system_metrics(b->store, &metrics, &b->err));
    assert_int_equal(metrics.total_instances, 3);
    assert_int_equal(metrics.running, 1);
    assert_int_equal(metrics.starts_waiting, 1);
    assert_int_equal(metrics.total_events, 3);
    bench_close(b);
}

static void deletes_all_or_nothing(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    dur_delete_result result;
    make(b, "root", DUR_STATUS_COMPLETED, NULL);
    make(b, "child", DUR_STATUS_COMPLETED, "root");
    make(b, "runs", DUR_STATUS_NONE, NULL);
    const char *unknown[] = { "root", "nobody" }, *alone[] = { "root" }, *running[] = { "root", "child", "runs" };
    assert_int_equal(dur_store_delete_instances(b->store, unknown, 2, false, &result, &b->err), DUR_ENOTFOUND);
    assert_non_null(strstr(b->err.message, "not found"));
    assert_int_equal(dur_store_delete_instances(b->store, alone, 1, false, &result, &b->err), DUR_ECHILD);
    assert_non_null(strstr(b->err.message, "child"));
    assert_int_equal(dur_store_delete_instances(b->store, running, 3, false, &result, &b->err), DUR_ERUNNING);
    assert_non_null(strstr(b->err.message, "running"));
    dur_instance_row row;
    ASSERT_OK(b, dur_store_get_instance(b->store, b->arena, "root", &row, &b->err));
    poke(b, "runs");
    ASSERT_OK(b, dur_store_delete_instances(b->store, running, 3, true, &result, &b->err));
    assert_int_equal(result.instances, 3);
    assert_int_equal(result.events, 3);
    assert_int_equal(result.queue_messages, 1);
    assert_int_equal(dur_store_get_instance(b->store, b->arena, "runs", &row, &b->err), DUR_ENOTFOUND);
    ASSERT_OK(b, dur_store_check(b->store, &b->err));
    bench_close(b);
}

static void deletes_finished_trees(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    dur_delete_result result;
    make(b, "old", DUR_STATUS_COMPLETED, NULL);
    make(b, "old-child", DUR_STATUS_COMPLETED, "old");
    make(b, "half", DUR_STATUS_COMPLETED, NULL);
    make(b, "half-child", DUR_STATUS_NONE, "half"); /* still runs */
    make(b, "runs", DUR_STATUS_NONE, NULL);
    dur_fake_world_advance(b->fake, 100);
    make(b, "new", DUR_STATUS_FAILED, NULL);
    dur_bulk_filter filter = { .completed_before_ms = START_MS + 50 };
    ASSERT_OK(b, dur_store_delete_instances_bulk(b->store, &filter, &result, &b->err));
    assert_int_equal(result.instances, 2);
    const char *ids[] = { "new", "runs", "nobody" };
    filter = (dur_bulk_filter){ .instance_ids = ids, .instance_id_count = 3 };
    ASSERT_OK(b, dur_store_delete_instances_bulk(b->store, &filter, &result, &b->err));
    assert_int_equal(result.instances, 1);
    bench_close(b);
}

static void prunes_executions(void **state) {
    (void)state;
    bench *b = bench_open("memory:");
    dur_prune_result result;
    dur_event_row event = event_of(1);
    ASSERT_OK(b, start(b, "a", DUR_EXISTS_FAIL, NULL));
    for (uint64_t execution = 1; execution <= 5; execution++) {
        turn(b, execution, execution < 5 ? DUR_STATUS_CONTINUED_AS_NEW : DUR_STATUS_NONE, NULL, &event, 1);
        poke(b, "a");
        dur_fake_world_advance(b->fake, 10);
    }
    dur_prune_options both = { .has_keep_last = true, .keep_last = 2, .completed_before_ms = START_MS + 15 };
    ASSERT_OK(b, dur_store_prune_executions(b->store, "a", &both, &result, &b->err));
    assert_int_equal(result.executions_deleted, 2);      /* 1 and 2: ended at +0 and +10 */
    dur_prune_options last = { .has_keep_last = false }; /* no rule: all but the current one, as in the original */
    ASSERT_OK(b, dur_store_prune_executions_bulk(b->store, &(dur_bulk_filter){ .limit = 1 }, &last, &result, &b->err));
    assert_int_equal(result.executions_deleted, 2);
    assert_int_equal(result.events_deleted, 2);
    dur_execution_row *rows;
    size_t count;
    ASSERT_OK(b, dur_store_list_executions(b->store, b->arena, "a", &rows, &count, &b->err));
    assert_int_equal(count, 1);
    assert_int_equal(rows[0].execution_id, 5);
    assert_int_equal(dur_store_prune_executions(b->store, "nobody", &last, &result, &b->err), DUR_ENOTFOUND);
    bench_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(start_policies),
        cmocka_unit_test(messages_to_those_that_exist),
        cmocka_unit_test(message_ids_are_forgotten_in_time),
        cmocka_unit_test(kv_in_two_tables),
        cmocka_unit_test(custom_status_has_a_version),
        cmocka_unit_test(watchers_are_woken),
        cmocka_unit_test(lists_by_query),
        cmocka_unit_test(deletes_all_or_nothing),
        cmocka_unit_test(deletes_finished_trees),
        cmocka_unit_test(prunes_executions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
