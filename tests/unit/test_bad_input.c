/*
 * test_bad_input.c: every exported function with input that it must refuse.
 *
 * Each function of tools/exported-symbols.txt stands in one of the tables here, or in the list of those that other
 * tests call badly; a new one that is in neither makes the first test fail.  Stores: no store, nothing where something
 * is required, and a forked child.  What authors of handlers and activities call: outside of both.
 */
#include "store_help.h"

#include <durite/durite.h>
#include <durite/sqlite.h>
#include <durite/sys/clock.h>
#include <durite/sys/kit.h>
#include <durite/sys/memory.h>
#include <durite/sys/waker.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct call {
    const char *symbol;
    int (*of_store)(dur_provider *store); /* a code */
    bool (*harmless)(void);               /* true: it answered as it must */
} call;

static dur_arena *arena;
static dur_error err;

/* ---- stores ------------------------------------------------------------------------------------------------------ */

#define STORE(name, ...)                                                                                               \
    static int call_##name(dur_provider *store) {                                                                      \
        return dur_store_##name(__VA_ARGS__);                                                                          \
    }

static dur_message_row start_message = { .kind = DUR_WORK_START_ORCHESTRATION, .instance = "i", .json = { "{}", 2 } };
static dur_message_row work_message = { .kind = DUR_WORK_ACTIVITY_EXECUTE, .instance = "i", .json = { "{}", 2 } };
static const dur_fetch fetch_one = { .lock_ms = 1000 };
static const dur_work_fetch work_one = { .lock_ms = 1000 };
static dur_orchestration_item item_out;
static dur_leased_work work_out;
static dur_turn_commit turn = { .lock_token = "t" };
static dur_event_row event_row = { .event_id = 1, .json = { "{}", 2 } };
static dur_event_row *rows_out;
static dur_event *events_out;
static dur_key_value *values_out;
static dur_work_ack ack = { .lock_token = "t" };
static const dur_worker_claim claim = { .lock_token = "t" };
static dur_lane *lane_out;
static dur_watch *watch_out;
static dur_owner_report report_out;
static dur_instance_row instance_out, *instances_out;
static dur_instance_stats stats_out;
static dur_execution_row *executions_out;
static dur_system_metrics metrics_out;
static dur_queue_depths depths_out;
static dur_delete_result deleted_out;
static dur_prune_result pruned_out;
static dur_dead_letter *letters_out;
static const dur_instance_query all_instances = { .limit = 1 };
static const dur_bulk_filter all_of_them = { .limit = 1 };
static const dur_prune_options keep_one = { true, 1, 0 };
static const char *const ids[] = { "i" };
static dur_start_request start_of_many = { .item = &start_message };
static const uint64_t numbers[] = { 1 };
static const char *text_out;
static uint64_t number_out;
static size_t count_out;
static dur_unserved *unserved_out;
static dur_holding *holdings_out;
static bool flag_out;

STORE(fetch_orchestration_item, store, arena, &fetch_one, &item_out, &err)
STORE(ack_orchestration_item, store, &turn, &err)
STORE(abandon_orchestration_item, store, "t", 0, false, &err)
STORE(renew_orchestration_item_lock, store, "t", 1, &err)
STORE(read, store, arena, "i", 0, &rows_out, &count_out, &err)
STORE(read_events, store, arena, "i", 0, &events_out, &count_out, &err)
STORE(append, store, "i", 1, &event_row, 1, &err)
STORE(enqueue_for_worker, store, &work_message, &err)
STORE(fetch_work_item, store, arena, &work_one, &work_out, &err)
STORE(ack_work_item, store, "t", NULL, &err)
STORE(renew_work_item_lock, store, "t", 1, &err)
STORE(abandon_work_item, store, "t", 0, false, &err)
STORE(renew_session_lock, store, ids, 1, 1, 1, &number_out, &err)
STORE(cleanup_orphaned_sessions, store, 1, &number_out, &err)
STORE(enqueue_for_orchestrator, store, &start_message, 0, &err)
STORE(get_custom_status, store, arena, "i", 0, &flag_out, &text_out, &number_out, &err)
STORE(get_kv_value, store, arena, "i", "k", &text_out, &err)
STORE(get_kv_all_values, store, arena, "i", &values_out, &count_out, &err)
STORE(lane_open, store, &(dur_lane_options){ .waker = NULL }, &lane_out, &err)
STORE(fetch_turns, store, arena, &fetch_one, &item_out, &count_out, &err)
STORE(commit_turns, store, &turn, 1, &err)
STORE(fetch_works, store, arena, &work_one, &work_out, &count_out, &err)
STORE(ack_works, store, &ack, 1, &err)
STORE(check_works, store, &claim, 1, 0, &flag_out, &err)
STORE(return_works, store, &claim, 1, &err)
STORE(alone_ended, store, "t", &err)
STORE(blame, store, "t", &err)
STORE(list_unserved, store, arena, 1, &unserved_out, &count_out, &err)
STORE(owner_register, store, &(dur_owner_options){ .owner = "o" }, &err)
STORE(owner_beat, store, "o", &report_out, &err)
STORE(owner_release, store, "o", &err)
STORE(owner_holdings, store, arena, "o", &holdings_out, &count_out, &err)
STORE(enqueue_start, store, &start_message, DUR_EXISTS_FAIL, 0, NULL, &err)
STORE(enqueue_starts, store, &start_of_many, 1, &err)
STORE(enqueue_existing, store, &work_message, 0, &err)
STORE(watch_open, store, "i", &watch_out, &err)
STORE(get_instance_stats, store, arena, "i", &flag_out, &stats_out, &err)
STORE(list_instances, store, arena, &all_instances, &instances_out, &count_out, &err)
STORE(get_instance, store, arena, "i", &instance_out, &err)
STORE(list_executions, store, arena, "i", &executions_out, &count_out, &err)
STORE(get_system_metrics, store, &metrics_out, &err)
STORE(get_queue_depths, store, &depths_out, &err)
STORE(delete_instances, store, ids, 1, true, &deleted_out, &err)
STORE(delete_meant, store, ids, NULL, 1, true, &deleted_out, &err)
STORE(delete_instances_bulk, store, &all_of_them, &deleted_out, &err)
STORE(prune_executions, store, "i", &keep_one, &pruned_out, &err)
STORE(prune_executions_bulk, store, &all_of_them, &keep_one, &pruned_out, &err)
STORE(dead_letter_messages, store, "i", numbers, 1, "r", &err)
STORE(dead_letter_work, store, "t", "r", &err)
STORE(list_dead_letters, store, arena, 0, 1, &letters_out, &count_out, &err)
STORE(delete_dead_letters, store, numbers, 1, &err)
STORE(set_suspended, store, "i", "r", &err)
STORE(backup, store, "/nowhere/at/all", &err)
STORE(check, store, &err)
STORE(vacuum, store, 1, &number_out, &err)

static int call_provider_backup(dur_provider *store) {
    return dur_provider_backup(store, "/nowhere/at/all", &err);
}
static int call_provider_check(dur_provider *store) {
    return dur_provider_check(store, &err);
}
static int call_provider_vacuum(dur_provider *store) {
    return dur_provider_vacuum(store, 1, &number_out, &err);
}
static int call_client_new(dur_provider *store) {
    dur_client *client = NULL;
    return dur_client_new(&client, store, &err);
}

#define OF_STORE(name)                                                                                                 \
    { "dur_store_" #name, call_##name, NULL }
static const call of_stores[] = {
    OF_STORE(fetch_orchestration_item),
    OF_STORE(ack_orchestration_item),
    OF_STORE(abandon_orchestration_item),
    OF_STORE(renew_orchestration_item_lock),
    OF_STORE(read),
    OF_STORE(read_events),
    OF_STORE(append),
    OF_STORE(enqueue_for_worker),
    OF_STORE(fetch_work_item),
    OF_STORE(ack_work_item),
    OF_STORE(renew_work_item_lock),
    OF_STORE(abandon_work_item),
    OF_STORE(renew_session_lock),
    OF_STORE(cleanup_orphaned_sessions),
    OF_STORE(enqueue_for_orchestrator),
    OF_STORE(get_custom_status),
    OF_STORE(get_kv_value),
    OF_STORE(get_kv_all_values),
    OF_STORE(lane_open),
    OF_STORE(fetch_turns),
    OF_STORE(commit_turns),
    OF_STORE(fetch_works),
    OF_STORE(ack_works),
    OF_STORE(check_works),
    OF_STORE(return_works),
    OF_STORE(alone_ended),
    OF_STORE(blame),
    OF_STORE(list_unserved),
    OF_STORE(owner_register),
    OF_STORE(owner_beat),
    OF_STORE(owner_release),
    OF_STORE(owner_holdings),
    OF_STORE(enqueue_start),
    OF_STORE(enqueue_starts),
    OF_STORE(enqueue_existing),
    OF_STORE(watch_open),
    OF_STORE(get_instance_stats),
    OF_STORE(list_instances),
    OF_STORE(get_instance),
    OF_STORE(list_executions),
    OF_STORE(get_system_metrics),
    OF_STORE(get_queue_depths),
    OF_STORE(delete_instances),
    OF_STORE(delete_meant),
    OF_STORE(delete_instances_bulk),
    OF_STORE(prune_executions),
    OF_STORE(prune_executions_bulk),
    OF_STORE(dead_letter_messages),
    OF_STORE(dead_letter_work),
    OF_STORE(list_dead_letters),
    OF_STORE(delete_dead_letters),
    OF_STORE(set_suspended),
    OF_STORE(backup),
    OF_STORE(check),
    OF_STORE(vacuum),
    { "dur_provider_backup", call_provider_backup, NULL },
    { "dur_provider_check", call_provider_check, NULL },
    { "dur_provider_vacuum", call_provider_vacuum, NULL },
    { "dur_client_new", call_client_new, NULL },
};
enum { OF_STORES = sizeof(of_stores) / sizeof(of_stores[0]) };

static void without_a_store(void **state) {
    (void)state;
    for (size_t i = 0; i < OF_STORES; i++) {
        dur_error_clear(&err);
        int code = of_stores[i].of_store(NULL);
        if (code != DUR_EINVAL || err.code != DUR_EINVAL || err.message[0] == '\0')
            fail_msg("%s: %s \"%s\"", of_stores[i].symbol, dur_code_name(code), err.message);
    }
}

/* Nothing but the store. */
static void with_nothing_else(void **state) {
    (void)state;
    dur_provider *store = NULL;
    assert_int_equal(dur_open(&store, "memory:", &err), DUR_OK);
#define REFUSED(call_) assert_int_equal((call_), DUR_EINVAL)
    REFUSED(dur_store_fetch_orchestration_item(store, NULL, NULL, NULL, &err));
    REFUSED(dur_store_ack_orchestration_item(store, NULL, &err));
    REFUSED(dur_store_abandon_orchestration_item(store, NULL, 0, false, &err));
    REFUSED(dur_store_renew_orchestration_item_lock(store, NULL, 0, &err));
    REFUSED(dur_store_read(store, NULL, NULL, 0, NULL, NULL, &err));
    REFUSED(dur_store_read_events(store, NULL, NULL, 0, NULL, NULL, &err));
    REFUSED(dur_store_append(store, NULL, 1, NULL, 1, &err));
    REFUSED(dur_store_enqueue_for_worker(store, NULL, &err));
    REFUSED(dur_store_fetch_work_item(store, NULL, NULL, NULL, &err));
    REFUSED(dur_store_ack_work_item(store, NULL, NULL, &err));
    REFUSED(dur_store_renew_work_item_lock(store, NULL, 0, &err));
    REFUSED(dur_store_abandon_work_item(store, NULL, 0, false, &err));
    REFUSED(dur_store_renew_session_lock(store, NULL, 1, 0, 0, NULL, &err));
    REFUSED(dur_store_enqueue_for_orchestrator(store, NULL, 0, &err));
    REFUSED(dur_store_get_custom_status(store, NULL, NULL, 0, NULL, NULL, NULL, &err));
    REFUSED(dur_store_get_kv_value(store, NULL, NULL, NULL, NULL, &err));
    REFUSED(dur_store_get_kv_all_values(store, NULL, NULL, NULL, NULL, &err));
    REFUSED(dur_store_lane_open(store, NULL, NULL, &err));
    REFUSED(dur_store_lane_round(NULL, arena, NULL, &err));
    REFUSED(dur_store_lane_wait(NULL, 0, &err));
    REFUSED(dur_store_lane_rest(NULL, NULL, &err));
    REFUSED(dur_store_lane_rise(NULL, NULL, NULL, &err));
    REFUSED(dur_store_lane_messages(NULL, arena, "i", "t", NULL, 0, 0, 1, NULL, &count_out, &err));
    REFUSED(dur_store_lane_history(NULL, arena, "i", "t", 0, &item_out, &err));
    REFUSED(dur_store_fetch_turns(store, NULL, NULL, NULL, NULL, &err));
    REFUSED(dur_store_commit_turns(store, NULL, 1, &err));
    REFUSED(dur_store_fetch_works(store, NULL, NULL, NULL, NULL, &err));
    REFUSED(dur_store_ack_works(store, NULL, 1, &err));
    REFUSED(dur_store_check_works(store, NULL, 1, 0, NULL, &err));
    REFUSED(dur_store_return_works(store, NULL, 1, &err));
    REFUSED(dur_store_alone_ended(store, NULL, &err));
    REFUSED(dur_store_blame(store, NULL, &err));
    REFUSED(dur_store_list_unserved(store, NULL, 1, NULL, NULL, &err));
    REFUSED(dur_store_owner_register(store, NULL, &err));
    REFUSED(dur_store_owner_beat(store, NULL, NULL, &err));
    REFUSED(dur_store_owner_release(store, NULL, &err));
    REFUSED(dur_store_owner_holdings(store, NULL, NULL, NULL, NULL, &err));
    REFUSED(dur_store_enqueue_start(store, NULL, DUR_EXISTS_FAIL, 0, NULL, &err));
    REFUSED(dur_store_enqueue_starts(store, NULL, 1, &err));
    REFUSED(dur_store_enqueue_starts(store, &(dur_start_request){ .item = NULL }, 1, &err));
    REFUSED(dur_store_enqueue_starts(
        store, &(dur_start_request){ .item = &start_message, .policy = (dur_exists_policy)9 }, 1, &err));
    assert_false(dur_store_watch_wake(NULL));
    REFUSED(dur_store_enqueue_existing(store, NULL, 0, &err));
    REFUSED(dur_store_watch_open(store, NULL, NULL, &err));
    REFUSED(dur_store_watch_wait(NULL, 0, &err));
    REFUSED(dur_store_get_instance_stats(store, NULL, NULL, NULL, NULL, &err));
    REFUSED(dur_store_list_instances(store, NULL, NULL, NULL, NULL, &err));
    REFUSED(dur_store_get_instance(store, NULL, NULL, NULL, &err));
    REFUSED(dur_store_list_executions(store, NULL, NULL, NULL, NULL, &err));
    REFUSED(dur_store_get_system_metrics(store, NULL, &err));
    REFUSED(dur_store_get_queue_depths(store, NULL, &err));
    REFUSED(dur_store_delete_instances(store, NULL, 1, false, NULL, &err));
    REFUSED(dur_store_delete_meant(store, NULL, NULL, 1, false, NULL, &err));
    REFUSED(dur_store_delete_instances_bulk(store, NULL, NULL, &err));
    REFUSED(dur_store_prune_executions(store, NULL, NULL, NULL, &err));
    REFUSED(dur_store_prune_executions_bulk(store, NULL, NULL, NULL, &err));
    REFUSED(dur_store_dead_letter_messages(store, NULL, NULL, 1, NULL, &err));
    REFUSED(dur_store_dead_letter_work(store, NULL, NULL, &err));
    REFUSED(dur_store_list_dead_letters(store, NULL, 0, 1, NULL, NULL, &err));
    REFUSED(dur_store_delete_dead_letters(store, NULL, 1, &err));
    REFUSED(dur_store_set_suspended(store, NULL, NULL, &err));
    REFUSED(dur_store_backup(store, NULL, &err));
    REFUSED(dur_store_append(store, "i", 0, &(dur_event_row){ .event_id = 0, .json = { "{}", 2 } }, 1, &err));
    dur_provider_close(store);
}

static void forked(void (*in_child)(dur_provider *store), const char *url) {
    dur_provider *store = NULL;
    assert_int_equal(dur_open(&store, url, &err), DUR_OK);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        in_child(store);
        dur_provider_close(store);
        /* By exec: what only the parent knows is no leak of the child's, whatever valgrind says. */
        execl("/bin/sh", "sh", "-c", "exit 0", (char *)NULL);
        _exit(1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) fail_msg("the child ended with %x", (unsigned)status);
    assert_int_equal(dur_store_enqueue_for_orchestrator(store, &start_message, 0, &err), DUR_OK); /* we go on */
    dur_provider_close(store);
}

static void all_stores_calls(dur_provider *store) {
    for (size_t i = 0; i < OF_STORES; i++) {
        int code = of_stores[i].of_store(store);
        if (code == DUR_EFORKED) continue;
        fprintf(stderr, "%s in a forked child: %s\n", of_stores[i].symbol, dur_code_name(code));
        _exit(1);
    }
}

static void in_a_forked_child(void **state) {
    (void)state;
    char folder[] = "/tmp/durite-bad-XXXXXX", url[64], command[64];
    assert_non_null(mkdtemp(folder));
    snprintf(url, sizeof(url), "sqlite:%s/s.db", folder);
    forked(all_stores_calls, "memory:");
    forked(all_stores_calls, url);
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* ---- SQLite: the caller's own transaction -------------------------------------------------------------------------
 */

typedef int sqlite_fn(dur_provider *store, sqlite3 *db, dur_error *error);
static const dur_start_args one_start = { .size = sizeof(one_start), .name = "N", .instance = "s", .input = "" };
static const dur_message_args one_message = { .size = sizeof(one_message), .instance = "s", .name = "n" };
static int sqlite_start(dur_provider *store, sqlite3 *db, dur_error *error) {
    return dur_sqlite_start(store, db, &one_start, error);
}
static int sqlite_pulse(dur_provider *store, sqlite3 *db, dur_error *error) {
    return dur_sqlite_pulse(store, db, &one_message, error);
}
static int sqlite_send(dur_provider *store, sqlite3 *db, dur_error *error) {
    return dur_sqlite_send(store, db, &one_message, error);
}
static sqlite_fn *const of_sqlite[] = { dur_sqlite_begin, dur_sqlite_commit, dur_sqlite_rollback,
                                        sqlite_start,     sqlite_pulse,      sqlite_send };
enum { OF_SQLITE = sizeof(of_sqlite) / sizeof(of_sqlite[0]) };
static sqlite3 *own_db;

static void all_of_sqlite(dur_provider *store) {
    for (size_t i = 0; i < OF_SQLITE; i++) {
        int code = of_sqlite[i](store, own_db, &err);
        if (code == DUR_EFORKED) continue;
        fprintf(stderr, "dur_sqlite call %zu in a forked child: %s\n", i, dur_code_name(code));
        _exit(1);
    }
}

static void the_callers_transaction(void **state) {
    (void)state;
    char folder[] = "/tmp/durite-bad-XXXXXX", path[64], url[80], command[64];
    dur_provider *store = NULL, *memory = NULL;
    sqlite3 *db = NULL, *other = NULL;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/s.db", folder);
    snprintf(url, sizeof(url), "sqlite:%s", path);
    REFUSED(dur_sqlite_open(NULL, DUR_SQLITE(.path = path), &err));
    REFUSED(dur_sqlite_open(&store, NULL, &err));
    REFUSED(dur_sqlite_open(&store, DUR_SQLITE(.path = NULL), &err));
    REFUSED(dur_sqlite_open(&store, &(dur_sqlite_options){ .path = path }, &err)); /* no size */
    assert_int_equal(dur_sqlite_open(&store, DUR_SQLITE(.path = path, .must_exist = true), &err), DUR_ENOTFOUND);
    assert_int_equal(dur_open(&store, url, &err), DUR_OK);
    assert_int_equal(dur_open(&memory, "memory:", &err), DUR_OK);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_open(":memory:", &other), SQLITE_OK);
    for (size_t i = 0; i < OF_SQLITE; i++) {
        REFUSED(of_sqlite[i](NULL, db, &err));
        REFUSED(of_sqlite[i](store, NULL, &err));
        REFUSED(of_sqlite[i](memory, db, &err));
        int code = of_sqlite[i](store, other, &err);
        if (code != DUR_EINVAL && code != DUR_ESTATE) fail_msg("call %zu, another file: %s", i, dur_code_name(code));
        if (i > 0) assert_int_equal(of_sqlite[i](store, db, &err), DUR_ESTATE); /* nothing has begun */
    }
    assert_int_equal(dur_sqlite_begin(store, db, &err), DUR_OK);
    assert_int_equal(dur_sqlite_begin(store, db, &err), DUR_EDEADLK);
    REFUSED(dur_sqlite_start(store, db, NULL, &err));
    REFUSED(dur_sqlite_pulse(store, db, NULL, &err));
    REFUSED(dur_sqlite_send(store, db, NULL, &err));
    REFUSED(dur_sqlite_start(store, db, &(dur_start_args){ .size = sizeof(dur_start_args) }, &err));
    REFUSED(dur_sqlite_pulse(
        store, db, &(dur_message_args){ .size = sizeof(dur_message_args), .instance = "\xff", .name = "n" }, &err));
    assert_int_equal(dur_sqlite_send(store, db, &one_message, &err), DUR_ENOTFOUND);
    assert_int_equal(dur_sqlite_rollback(store, db, &err), DUR_OK);
    assert_int_equal(dur_sqlite_commit(store, db, &err), DUR_ESTATE);
    own_db = db;
    forked(all_of_sqlite, url);
    sqlite3_close(db);
    sqlite3_close(other);
    dur_provider_close(memory);
    dur_provider_close(store);
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* ---- handlers' and activities' calls, made by nobody of the kind ---------------------------------------------------
 */

#define HARMLESS(name, ...)                                                                                            \
    static bool nobody_##name(void) {                                                                                  \
        return __VA_ARGS__;                                                                                            \
    }
#define VOID_CALL(...) ((__VA_ARGS__), true)
#define EMPTY(text) ((text) == NULL || (text)[0] == '\0')

HARMLESS(activity_ex, dur_activity(NULL, "A", "") == NULL)
HARMLESS(orchestration_ex, dur_orchestration(NULL, "A", "") == NULL)
HARMLESS(start_ex, EMPTY(dur_start(NULL, "A", "")))
HARMLESS(timer_ex, dur_timer(NULL, 1) == NULL)
HARMLESS(pulse_ex, dur_pulse(NULL, "E") == NULL)
HARMLESS(message_ex, dur_message(NULL, "q") == NULL)
HARMLESS(kv_remote_ex, dur_kv_remote(NULL, "i", "k") == NULL)
HARMLESS(spawn_ex, dur_spawn(NULL, NULL, NULL) == NULL)
HARMLESS(all_of, dur_all_of(NULL, NULL, 1) == NULL)
HARMLESS(first_of, dur_first_of(NULL, NULL, 1) == NULL)
HARMLESS(await, dur_await(NULL) == NULL)
HARMLESS(try, dur_try(NULL, &text_out) == DUR_EINVAL)
HARMLESS(try_for_ex, dur_try_for(NULL, 1, &text_out) == DUR_EINVAL)
HARMLESS(try_message_ex, dur_try_message(NULL, "q", &text_out) == DUR_EINVAL)
HARMLESS(any_n, dur_any_n(NULL, 1) == NULL)
HARMLESS(select_n, dur_select_n(NULL, 1) == NULL)
HARMLESS(join_n, VOID_CALL(dur_join_n(NULL, 1)))
HARMLESS(is_settled, !dur_is_settled(NULL))
HARMLESS(code_of, dur_code_of(NULL) == DUR_EINVAL)
HARMLESS(reason, EMPTY(dur_reason(NULL)))
HARMLESS(is_none, !dur_is_none(NULL))
HARMLESS(is_final, !dur_is_final(NULL))
HARMLESS(drop, VOID_CALL(dur_drop(NULL)))
HARMLESS(detach, VOID_CALL(dur_detach(NULL)))
HARMLESS(now_ms_ex, dur_now_ms(NULL) == 0)
HARMLESS(guid_ex, EMPTY(dur_guid(NULL)))
HARMLESS(random_ex, dur_random(NULL) == 0)
HARMLESS(patched_ex, !dur_patched(NULL, "p"))
HARMLESS(trace, VOID_CALL(dur_trace(NULL, DUR_LOG_INFO, "x")))
HARMLESS(status_set, VOID_CALL(dur_status_set(NULL, "x")))
HARMLESS(status_setf, VOID_CALL(dur_status_setf(NULL, "x")))
HARMLESS(status_clear, VOID_CALL(dur_status_clear(NULL)))
HARMLESS(status_get, dur_status_get(NULL) == NULL)
HARMLESS(kv_set, VOID_CALL(dur_kv_set(NULL, "k", "v")))
HARMLESS(kv_get, dur_kv_get(NULL, "k") == NULL)
HARMLESS(kv_clear, VOID_CALL(dur_kv_clear(NULL, "k")))
HARMLESS(kv_clear_all, VOID_CALL(dur_kv_clear_all(NULL)))
HARMLESS(kv_count, dur_kv_count(NULL) == 0)
HARMLESS(kv_key, dur_kv_key(NULL, 0) == NULL)
HARMLESS(kv_prune, dur_kv_prune(NULL, 1) == 0)
HARMLESS(instance_id, EMPTY(dur_instance_id(NULL)))
HARMLESS(execution_id, dur_execution_id(NULL) == 0)
HARMLESS(orchestration_name, EMPTY(dur_orchestration_name(NULL)))
HARMLESS(orchestration_version, EMPTY(dur_orchestration_version(NULL)))
HARMLESS(parent_instance, EMPTY(dur_parent_instance(NULL)))
HARMLESS(is_replaying, !dur_is_replaying(NULL))
HARMLESS(history_events, dur_history_events(NULL) == 0)
HARMLESS(cancel_reason, dur_cancel_reason(NULL) == NULL)
HARMLESS(saga_begin, dur_saga_begin(NULL) == NULL)
HARMLESS(saga_undo_ex, VOID_CALL(dur_saga_undo(NULL, "A", "")))
HARMLESS(saga_compensate, dur_saga_compensate(NULL) == 0)
HARMLESS(alloc, dur_alloc(NULL, 8) == NULL)
HARMLESS(strdup, dur_strdup(NULL, "x") == NULL)
HARMLESS(format, dur_format(NULL, "x") == NULL)
HARMLESS(scope_begin, dur_scope_begin(NULL) == NULL)
HARMLESS(scope_end, VOID_CALL(dur_scope_end(NULL)))
HARMLESS(on_drop, VOID_CALL(dur_on_drop(NULL, NULL, NULL)))
HARMLESS(complete, VOID_CALL((void)dur_complete(NULL, NULL)))
HARMLESS(completef, VOID_CALL((void)dur_completef(NULL, "%d", 1)))
HARMLESS(fail, VOID_CALL((void)dur_fail(NULL, NULL)))
HARMLESS(failf, VOID_CALL((void)dur_failf(NULL, "%d", 1)))
HARMLESS(continue_as_new_ex, VOID_CALL((void)dur_continue_as_new_ex(NULL, NULL)))

HARMLESS(act_complete, VOID_CALL((void)dur_act_complete(NULL, NULL)))
HARMLESS(act_completef, VOID_CALL((void)dur_act_completef(NULL, "%d", 1)))
HARMLESS(act_fail, VOID_CALL((void)dur_act_fail(NULL, NULL)))
HARMLESS(act_failf, VOID_CALL((void)dur_act_failf(NULL, "%d", 1)))
HARMLESS(act_fail_final, VOID_CALL((void)dur_act_fail_final(NULL, NULL)))
HARMLESS(act_instance_id, EMPTY(dur_act_instance_id(NULL)))
HARMLESS(act_execution_id, dur_act_execution_id(NULL) == 0)
HARMLESS(act_orchestration_name, EMPTY(dur_act_orchestration_name(NULL)))
HARMLESS(act_orchestration_version, EMPTY(dur_act_orchestration_version(NULL)))
HARMLESS(act_name, EMPTY(dur_act_name(NULL)))
HARMLESS(act_id, dur_act_id(NULL) == 0)
HARMLESS(act_worker_id, EMPTY(dur_act_worker_id(NULL)))
HARMLESS(act_session, dur_act_session(NULL) == NULL)
HARMLESS(act_tag, dur_act_tag(NULL) == NULL)
HARMLESS(act_attempt, dur_act_attempt(NULL) == 0)
HARMLESS(act_delivery, dur_act_delivery(NULL) == 0)
HARMLESS(act_key, EMPTY(dur_act_key(NULL)))
HARMLESS(act_attempt_key, EMPTY(dur_act_attempt_key(NULL)))
HARMLESS(act_cancelled, !dur_act_cancelled(NULL))
HARMLESS(act_cancel_fd, dur_act_cancel_fd(NULL) == -1)
HARMLESS(act_sleep, !dur_act_sleep(NULL, 1))
HARMLESS(act_client, dur_act_client(NULL) == NULL)
HARMLESS(act_data, dur_act_data(NULL) == NULL)
HARMLESS(handler_data, dur_handler_data(NULL) == NULL)
HARMLESS(fail_as, VOID_CALL((void)dur_fail_as(NULL, DUR_OK, NULL)))
HARMLESS(memory_hooks, dur_memory_hooks(NULL, NULL, NULL, NULL) == DUR_EINVAL)
HARMLESS(memory_alloc, dur_memory_alloc(SIZE_MAX) == NULL)
HARMLESS(memory_zalloc, dur_memory_zalloc(SIZE_MAX) == NULL)
HARMLESS(memory_resize, dur_memory_resize(NULL, SIZE_MAX) == NULL)
HARMLESS(act_store, dur_act_store(NULL) == NULL)
HARMLESS(act_sqlite, dur_act_sqlite(NULL, &err) == NULL && err.code == DUR_EINVAL)
HARMLESS(act_alloc, dur_act_alloc(NULL, 8) == NULL)
HARMLESS(act_format, dur_act_format(NULL, "x") == NULL)
HARMLESS(act_trace, VOID_CALL(dur_act_trace(NULL, DUR_LOG_INFO, "x")))

static char *vformat_of(const char *format, ...) {
    va_list args;
    va_start(args, format);
    char *made = dur_vformat(NULL, format, args);
    va_end(args);
    return made;
}
HARMLESS(vformat, vformat_of("%d", 1) == NULL)

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

HARMLESS(arena_free, VOID_CALL(dur_arena_free(NULL)))
HARMLESS(arena_strdup, dur_arena_strdup(arena, NULL) == NULL)
HARMLESS(arena_memdup, dur_arena_memdup(arena, NULL, 0) != NULL)
HARMLESS(client_free, VOID_CALL(dur_client_free(NULL)))
HARMLESS(client_has_admin, !dur_client_has_admin(NULL))
HARMLESS(code_name, !EMPTY(dur_code_name(-1)) && !EMPTY(dur_code_name(100000)))
HARMLESS(code_text, !EMPTY(dur_code_text(-1)) && !EMPTY(dur_code_text(100000)))
HARMLESS(error_clear, VOID_CALL(dur_error_clear(NULL)))
HARMLESS(error_set, dur_error_set(NULL, DUR_EIO, false, NULL, "x") == DUR_EIO)
HARMLESS(event_kind_name,
         !EMPTY(dur_event_kind_name((dur_event_kind)-1)) && !EMPTY(dur_event_kind_name((dur_event_kind)10000)))
HARMLESS(event_kind_role, VOID_CALL((void)dur_event_kind_role((dur_event_kind)10000)))
HARMLESS(work_kind_name, !EMPTY(dur_work_kind_name((dur_work_kind)10000)))
HARMLESS(failure_category_name, !EMPTY(dur_failure_category_name((dur_failure_category)10000)))
HARMLESS(execution_status_name, !EMPTY(dur_execution_status_name((dur_execution_status)10000)))
HARMLESS(instance_status_name, !EMPTY(dur_instance_status_name((dur_instance_status)10000)))
HARMLESS(status_name, !EMPTY(dur_status_name((dur_status)10000)))
HARMLESS(log_level_name, !EMPTY(dur_log_level_name((dur_log_level)10000)))
HARMLESS(log_say, VOID_CALL(dur_log_say(DUR_LOG_ERROR, NULL, "x")) &&
                      VOID_CALL(dur_log_say(DUR_LOG_ERROR, "x", NULL)) &&
                      VOID_CALL(dur_log_say((dur_log_level)10000, "x", "x")))
HARMLESS(log_set_sink, dur_log_set_sink(NULL, NULL, (dur_log_level)77) == DUR_EINVAL)
HARMLESS(free, VOID_CALL(dur_free(NULL)))
HARMLESS(provider_close, VOID_CALL(dur_provider_close(NULL)))
HARMLESS(provider_name, VOID_CALL((void)dur_provider_name(NULL)))
HARMLESS(registry_free, VOID_CALL(dur_registry_free(NULL)))
HARMLESS(registry_count, dur_registry_count(NULL) == 0)
HARMLESS(registry_versions, dur_registry_versions(NULL, DUR_HANDLER_ORCHESTRATION, NULL) == NULL)
HARMLESS(runtime_owner, EMPTY(dur_runtime_owner(NULL)))
HARMLESS(runtime_stop, dur_runtime_stop(NULL, 0, &err) == DUR_OK)
HARMLESS(runtime_metrics, dur_runtime_metrics(NULL, NULL, &err) == DUR_EINVAL)
HARMLESS(runtime_check, dur_runtime_check(NULL, &err) == DUR_EINVAL)
HARMLESS(runtime_start, dur_runtime_start(NULL, NULL, &err) == DUR_EINVAL)
HARMLESS(open, dur_open(NULL, NULL, &err) == DUR_EINVAL)
HARMLESS(open_ex, dur_open_ex(NULL, NULL, NULL, &err) == DUR_EINVAL)
HARMLESS(store_has, !dur_store_has(NULL, NULL))
HARMLESS(store_now_ms, dur_store_now_ms(NULL) == 0)
HARMLESS(store_retain, dur_store_retain(NULL) == NULL)
HARMLESS(store_lane_close, VOID_CALL(dur_store_lane_close(NULL)))
HARMLESS(store_watch_close, VOID_CALL(dur_store_watch_close(NULL)))
HARMLESS(waker_free, VOID_CALL(dur_waker_free(NULL)))
HARMLESS(fake_world_free, VOID_CALL(dur_fake_world_free(NULL)))

#define NOBODY(name)                                                                                                   \
    { "dur_" #name, NULL, nobody_##name }
static const call of_nobody[] = {
    NOBODY(activity_ex),
    NOBODY(orchestration_ex),
    NOBODY(start_ex),
    NOBODY(timer_ex),
    NOBODY(pulse_ex),
    NOBODY(message_ex),
    NOBODY(kv_remote_ex),
    NOBODY(spawn_ex),
    NOBODY(all_of),
    NOBODY(first_of),
    NOBODY(await),
    NOBODY(try),
    NOBODY(try_for_ex),
    NOBODY(try_message_ex),
    NOBODY(any_n),
    NOBODY(select_n),
    NOBODY(join_n),
    NOBODY(is_settled),
    NOBODY(code_of),
    NOBODY(reason),
    NOBODY(is_none),
    NOBODY(is_final),
    NOBODY(drop),
    NOBODY(detach),
    NOBODY(now_ms_ex),
    NOBODY(guid_ex),
    NOBODY(random_ex),
    NOBODY(patched_ex),
    NOBODY(trace),
    NOBODY(status_set),
    NOBODY(status_setf),
    NOBODY(status_clear),
    NOBODY(status_get),
    NOBODY(kv_set),
    NOBODY(kv_get),
    NOBODY(kv_clear),
    NOBODY(kv_clear_all),
    NOBODY(kv_count),
    NOBODY(kv_key),
    NOBODY(kv_prune),
    NOBODY(instance_id),
    NOBODY(execution_id),
    NOBODY(orchestration_name),
    NOBODY(orchestration_version),
    NOBODY(parent_instance),
    NOBODY(is_replaying),
    NOBODY(history_events),
    NOBODY(cancel_reason),
    NOBODY(saga_begin),
    NOBODY(saga_undo_ex),
    NOBODY(saga_compensate),
    NOBODY(alloc),
    NOBODY(strdup),
    NOBODY(format),
    NOBODY(scope_begin),
    NOBODY(scope_end),
    NOBODY(on_drop),
    NOBODY(complete),
    NOBODY(completef),
    NOBODY(fail),
    NOBODY(failf),
    NOBODY(continue_as_new_ex),
    NOBODY(act_complete),
    NOBODY(act_completef),
    NOBODY(act_fail),
    NOBODY(act_failf),
    NOBODY(act_fail_final),
    NOBODY(act_instance_id),
    NOBODY(act_execution_id),
    NOBODY(act_orchestration_name),
    NOBODY(act_orchestration_version),
    NOBODY(act_name),
    NOBODY(act_id),
    NOBODY(act_worker_id),
    NOBODY(act_session),
    NOBODY(act_tag),
    NOBODY(act_attempt),
    NOBODY(act_delivery),
    NOBODY(act_key),
    NOBODY(act_attempt_key),
    NOBODY(act_cancelled),
    NOBODY(act_cancel_fd),
    NOBODY(act_sleep),
    NOBODY(act_client),
    NOBODY(act_store),
    NOBODY(act_sqlite),
    NOBODY(act_alloc),
    NOBODY(act_format),
    NOBODY(act_trace),
    NOBODY(vformat),
    NOBODY(arena_free),
    NOBODY(arena_strdup),
    NOBODY(arena_memdup),
    NOBODY(client_free),
    NOBODY(client_has_admin),
    NOBODY(code_name),
    NOBODY(code_text),
    NOBODY(error_clear),
    NOBODY(error_set),
    NOBODY(event_kind_name),
    NOBODY(event_kind_role),
    NOBODY(work_kind_name),
    NOBODY(failure_category_name),
    NOBODY(act_data),
    NOBODY(handler_data),
    NOBODY(fail_as),
    NOBODY(memory_hooks),
    NOBODY(memory_alloc),
    NOBODY(memory_zalloc),
    NOBODY(memory_resize),
    NOBODY(execution_status_name),
    NOBODY(instance_status_name),
    NOBODY(status_name),
    NOBODY(log_level_name),
    NOBODY(log_say),
    NOBODY(log_set_sink),
    NOBODY(free),
    NOBODY(provider_close),
    NOBODY(provider_name),
    NOBODY(registry_free),
    NOBODY(registry_count),
    NOBODY(registry_versions),
    NOBODY(runtime_owner),
    NOBODY(runtime_stop),
    NOBODY(runtime_metrics),
    NOBODY(runtime_check),
    NOBODY(runtime_start),
    NOBODY(open),
    NOBODY(open_ex),
    NOBODY(store_has),
    NOBODY(store_now_ms),
    NOBODY(store_retain),
    NOBODY(store_lane_close),
    NOBODY(store_watch_close),
    NOBODY(waker_free),
    NOBODY(fake_world_free),
};
enum { OF_NOBODY = sizeof(of_nobody) / sizeof(of_nobody[0]) };

static void called_by_nobody(void **state) {
    (void)state;
    for (size_t i = 0; i < OF_NOBODY; i++) {
        dur_error_clear(&err);
        if (!of_nobody[i].harmless()) fail_msg("%s: a wrong answer (%s)", of_nobody[i].symbol, err.message);
    }
}

/* ---- is every function here? --------------------------------------------------------------------------------------
 */

/* Called badly in other files, by their calls there. */
static const struct {
    const char *file, *symbols;
} elsewhere[] = {
    { "tests/unit/test_client_refused.c",
      " dur_client_cancel dur_client_counts dur_client_dead_letters dur_client_dead_letters_delete"
      " dur_client_delete dur_client_delete_bulk dur_client_send_ex dur_client_executions"
      " dur_client_history dur_client_info dur_client_kv_all dur_client_kv_get dur_client_kv_wait"
      " dur_client_list dur_client_prune dur_client_prune_bulk dur_client_pulse_ex dur_client_result"
      " dur_client_resume dur_client_start_ex dur_client_stats_get dur_client_suspend dur_client_terminate"
      " dur_client_tree dur_client_wait dur_client_wait_status dur_dead_letter_list_free"
      " dur_execution_list_free dur_id_list_free dur_instance_info_free dur_instance_list_free"
      " dur_kv_list_free dur_runs_count dur_runs_flush dur_runs_free dur_runs_new dur_runs_next"
      " dur_runs_start_ex dur_runs_watch" },
    { "tests/unit/test_codec_event.c",
      " dur_event_from_json dur_event_row_from dur_event_to_json dur_failure_display dur_failure_from_json"
      " dur_failure_to_json dur_history_from_json dur_history_to_json dur_status_from_name" },
    { "tests/unit/test_codec_work.c",
      " dur_handler_key dur_handler_passes dur_message_row_from_work dur_work_from_json dur_work_to_json" },
    { "tests/unit/test_registry.c",
      " dur_registry_add dur_registry_has dur_registry_merge dur_registry_name dur_registry_new"
      " dur_registry_policy dur_registry_resolve" },
    { "tests/e2e/e2e_host.c",
      " dur_client_run_ex dur_host_client dur_host_free dur_host_run dur_host_runtime dur_host_start dur_host_start_ex"
      " dur_host_stop dur_host_store" },
    { "tests/e2e/e2e_step.c",
      " dur_act_beat dur_act_end dur_act_input dur_runtime_due_ms dur_runtime_fd dur_runtime_host dur_runtime_next_ms"
      " dur_runtime_run_until_idle dur_runtime_step dur_runtime_take" },
    { "tests/unit/test_goldens.c", " dur_replay_history dur_replay_histories" },
    { "tests/unit/test_log.c", " dur_log_json dur_log_text" },
    { "tests/unit/test_observed.c", " dur_observe dur_observe_snapshot" },
    { "tests/unit/test_provider_open.c", " dur_provider_register" },
    { "tests/unit/test_bad_input.c",
      " dur_sqlite_begin dur_sqlite_commit dur_sqlite_send dur_sqlite_open dur_sqlite_pulse"
      " dur_sqlite_rollback dur_sqlite_start dur_store_lane_history dur_store_lane_messages"
      " dur_store_lane_rest dur_store_lane_rise dur_store_lane_round"
      " dur_store_lane_wait dur_store_watch_wait"
      " dur_store_watch_wake" },
};

/* Nothing can be wrong with them but an object of the library's own that is not one (as with free). */
static const char cannot_go_wrong[] =
    " dur_arena_alloc dur_arena_bytes dur_arena_format dur_arena_new dur_arena_reset dur_arena_vformat"
    " dur_arena_zalloc dur_client_limit dur_assert_failed dur_assert_hook dur_at_fork_child dur_at_fork_remove"
    " dur_crash_report_install dur_deadline_set dur_deadline_us dur_fake_world_advance dur_fake_world_alone"
    " dur_fake_world_enter dur_fake_world_get dur_fake_world_jump dur_fake_world_new dur_process_serial dur_version dur_waker_fd"
    " dur_waker_new dur_waker_sleep dur_waker_sleep_begin dur_waker_sleep_end dur_waker_wake dur_world_real"
    " dur_memory_limit dur_memory_must dur_memory_used";

static bool listed(const char *symbols, const char *symbol) {
    size_t size = strlen(symbol);
    for (const char *at = symbols; (at = strstr(at, symbol)) != NULL; at += size)
        if (at > symbols && at[-1] == ' ' && (at[size] == ' ' || at[size] == '\0')) return true;
    return false;
}

static char *whole_file(const char *path) {
    char name[1024];
    snprintf(name, sizeof(name), "%s/%s", DURITE_SOURCE_DIR, path);
    FILE *file = fopen(name, "rb");
    if (file == NULL) fail_msg("%s is not there", name);
    char *text = calloc(1, 1 << 18);
    assert_true(fread(text, 1, (1 << 18) - 1, file) > 0);
    fclose(file);
    return text;
}

/* The name as it is written in a call: the macro's, where there is one. */
static bool calls(const char *text, const char *symbol) {
    char name[128];
    size_t size = strlen(symbol);
    if (size > 3 && strcmp(symbol + size - 3, "_ex") == 0) size -= 3;
    snprintf(name, sizeof(name), "%.*s", (int)size, symbol);
    return strstr(text, name) != NULL;
}

static bool is_here(const char *symbol) {
    if (listed(cannot_go_wrong, symbol)) return true;
    for (size_t i = 0; i < OF_STORES; i++)
        if (strcmp(of_stores[i].symbol, symbol) == 0) return true;
    for (size_t i = 0; i < OF_NOBODY; i++)
        if (strcmp(of_nobody[i].symbol, symbol) == 0) return true;
    for (size_t i = 0; i < sizeof(elsewhere) / sizeof(elsewhere[0]); i++) {
        if (!listed(elsewhere[i].symbols, symbol)) continue;
        char *text = whole_file(elsewhere[i].file);
        bool called = calls(text, symbol);
        free(text);
        return called;
    }
    return false;
}

static void every_exported_function_is_here(void **state) {
    (void)state;
    char *list = whole_file("tools/exported-symbols.txt"), *rest = list;
    size_t missing = 0, seen = 0;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (line[0] == '#' || line[0] == '\0') continue;
        line[strcspn(line, " \t")] = '\0';
        seen++;
        if (is_here(line)) continue;
        print_error("%s is exported, and nobody calls it badly\n", line);
        missing++;
    }
    free(list);
    assert_true(seen > 200);
    assert_int_equal(missing, 0);
}

int main(void) {
    arena = dur_arena_new();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_exported_function_is_here),
        cmocka_unit_test(without_a_store),
        cmocka_unit_test(with_nothing_else),
        cmocka_unit_test(in_a_forked_child),
        cmocka_unit_test(the_callers_transaction),
        cmocka_unit_test(called_by_nobody),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    dur_arena_free(arena);
    return failed;
}
