/*
 * hostile_sight.c: what waits is seen: starts that nobody has taken yet, in lists, counts and trees; and work that
 * nobody can take, in the log and in dur_client_info.
 */
#include "neighbour.h"

#include <durite/sys/store.h>
#include <pthread.h>

/* ---- handlers ---------------------------------------------------------------------------------------------------- */

static dur_outcome sleeper(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Wake")));
}

static dur_outcome caller(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_orchestration(ctx, "Nobody", "", .instance = input)));
}

/* A new execution with every turn, without end. */
static dur_outcome eternal(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "Echo", input));
    return dur_continue_as_new(ctx, input);
}

static dur_outcome brief(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}

static dur_outcome echo_back(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Echo", echo_back),
    DUR_ORCHESTRATION("Brief", "1.0.0", brief),
    DUR_ORCHESTRATION("Sleeper", "1.0.0", sleeper),
    DUR_ORCHESTRATION("Caller", "1.0.0", caller),
    DUR_ORCHESTRATION("Eternal", "1.0.0", eternal),
    DUR_HANDLERS_END,
};

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b) {
    return (a == NULL) == (b == NULL) && (a == NULL || strcmp(a, b) == 0);
}

/* An item of a list says what dur_client_info says; no_handler is left to that. */
static void as_info_says(world *w, const dur_instance_info *item) {
    dur_instance_info *info = NULL;
    OK(w, dur_client_info(&info, w->client, item->instance, &w->err));
    assert_string_equal(item->name, info->name);
    assert_true(same_text(item->version, info->version));
    assert_int_equal(item->status, info->status);
    assert_int_equal(item->suspended, info->suspended);
    assert_true(same_text(item->suspend_reason, info->suspend_reason));
    assert_int_equal(item->start_pending, info->start_pending);
    assert_true(same_text(item->output, info->output));
    assert_true(same_text(item->parent, info->parent));
    assert_int_equal(item->execution_id, info->execution_id);
    assert_int_equal(item->created_at_ms, info->created_at_ms);
    assert_int_equal(item->updated_at_ms, info->updated_at_ms);
    dur_instance_info_free(info);
}

/* The ids of a list, with a blank between them. */
static void lists(world *w, const char *expected, const dur_list_options *options) {
    char found[400] = "";
    dur_instance_list *list = NULL;
    OK(w, dur_client_list(&list, w->client, options, &w->err));
    for (size_t i = 0; i < list->count; i++) {
        size_t size = strlen(found);
        snprintf(found + size, sizeof(found) - size, "%s%s", i > 0 ? " " : "", list->items[i]->instance);
        as_info_says(w, list->items[i]);
    }
    dur_instance_list_free(list);
    assert_string_equal(found, expected);
}
#define LISTS(w, expected, ...) lists((w), (expected), DUR_LIST(__VA_ARGS__))

static uint64_t created(world *w, const char *instance) {
    dur_instance_info *info = NULL;
    OK(w, dur_client_info(&info, w->client, instance, &w->err));
    uint64_t at_ms = info->created_at_ms;
    dur_instance_info_free(info);
    return at_ms;
}

static void counts(world *w, uint64_t total, uint64_t running, uint64_t suspended) {
    dur_store_counts found = { .size = sizeof(found) };
    OK(w, dur_client_counts(&found, w->client, &w->err));
    assert_int_equal(found.total_instances, total);
    assert_int_equal(found.running, running);
    assert_int_equal(found.suspended, suspended);
}

static void fault_h70_a_start_that_waits_is_listed_and_counted(void **state) {
    world *w = *state;
    RUN(w, handlers);
    start(w, "Sleeper", "", "b-begun");
    until_history(w, "b-begun", "\"ExternalSubscribed\"", 1);
    world_stop(w);
    start(w, "Sleeper", "", "a-waits");
    while (created(w, "a-waits") == dur_store_now_ms(w->store)) /* times have milliseconds */
        pause_ms(1);
    OK(w, dur_client_start(w->client, &w->err, "Odd@Name", "", .instance = "c-later", .delay_ms = DUR_HOURS(1)));
    OK(w, dur_client_start(w->client, &w->err, "Sleeper", "", .instance = "d-version", .version = "2.0.0"));
    OK(w, dur_client_suspend(w->client, "d-version", "before its first turn", &w->err));
    LISTS(w, "a-waits b-begun c-later d-version", .limit = 0);
    LISTS(w, "a-waits b-begun c-later d-version", .status = DUR_INSTANCE_RUNNING);
    LISTS(w, "", .status = DUR_INSTANCE_COMPLETED);
    LISTS(w, "", .status = DUR_INSTANCE_FAILED);
    LISTS(w, "a-waits b-begun d-version", .name = "Sleeper");
    LISTS(w, "a-waits b-begun d-version", .name = "Sleeper", .status = DUR_INSTANCE_RUNNING);
    LISTS(w, "c-later", .name = "Odd@Name");
    LISTS(w, "", .name = "Odd");
    LISTS(w, "", .name = "Sleep");
    LISTS(w, "d-version", .suspended_only = true);
    LISTS(w, "d-version", .suspended_only = true, .status = DUR_INSTANCE_RUNNING);
    LISTS(w, "a-waits", .id_prefix = "a");
    LISTS(w, "a-waits b-begun c-later d-version", .roots_only = true);
    LISTS(w, "a-waits b-begun", .limit = 2);
    LISTS(w, "c-later d-version", .limit = 2, .after = "b-begun", .status = DUR_INSTANCE_RUNNING);
    LISTS(w, "c-later d-version", .created_after_ms = created(w, "a-waits"));
    LISTS(w, "a-waits b-begun", .created_before_ms = created(w, "a-waits") + 1);
    counts(w, 4, 4, 1);
    OK(w, dur_client_resume(w->client, "d-version", &w->err));
    OK(w, dur_client_delete(NULL, w->client, "c-later", true, &w->err));
    LISTS(w, "a-waits b-begun d-version", .status = DUR_INSTANCE_RUNNING);
    counts(w, 3, 3, 0);
    dur_client_stats stats = { .size = sizeof(stats) }; /* what is known of it is little, but not "no such instance" */
    OK(w, dur_client_stats_get(&stats, w->client, "a-waits", &w->err));
    assert_int_equal(stats.history_event_count, 0);
}

/* A message makes nothing visible that nobody has started. */
static void fault_h70_what_was_never_started_is_in_no_list(void **state) {
    world *w = *state;
    assert_int_equal(dur_client_pulse(w->client, &w->err, "nobody", "E", ""), DUR_ENOTFOUND);
    dur_message_row stray = { .kind = DUR_WORK_EXTERNAL_RAISED, .instance = "nobody", .json = { "{}", 2 } };
    OK(w, dur_store_enqueue_for_orchestrator(w->store, &stray, 0, &w->err));
    w->broken = true; /* nobody asks for it, ever */
    LISTS(w, "", .limit = 0);
    LISTS(w, "", .status = DUR_INSTANCE_RUNNING);
    counts(w, 0, 0, 0);
}

static void fault_h70_a_child_that_waits_is_listed(void **state) {
    world *w = *state;
    dur_id_list *tree = NULL;
    RUN(w, handlers);
    start(w, "Caller", "kid", "parent");
    start(w, "Caller", "kid-2", "other");
    until_history(w, "parent", "\"SubOrchestrationScheduled\"", 1);
    until_history(w, "other", "\"SubOrchestrationScheduled\"", 1);
    LISTS(w, "kid", .parent = "parent");
    LISTS(w, "kid", .parent = "parent", .status = DUR_INSTANCE_RUNNING);
    LISTS(w, "", .parent = "parent", .status = DUR_INSTANCE_FAILED);
    LISTS(w, "kid-2", .parent = "other", .name = "Nobody");
    LISTS(w, "other parent", .roots_only = true);
    LISTS(w, "kid kid-2 other parent", .status = DUR_INSTANCE_RUNNING);
    counts(w, 4, 4, 0);
    OK(w, dur_client_tree(&tree, w->client, "parent", &w->err));
    assert_int_equal(tree->count, 2);
    assert_string_equal(tree->ids[1], "kid");
    dur_id_list_free(tree);
    OK(w, dur_client_terminate(w->client, "parent", "enough", &w->err));
    expect_failure(w, "parent", DUR_ECANCELLED, "enough");
    OK(w, dur_client_delete(NULL, w->client, "parent", true, &w->err)); /* with the child, whoever ended the parent */
    LISTS(w, "kid-2 other", .limit = 0);
    counts(w, 2, 2, 0);
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Every one once, in order, whatever becomes of them meanwhile. */
static void page_through(world *w, size_t count, size_t page, dur_instance_status status, bool runs_between) {
    char after[32] = "", id[32];
    size_t seen = 0;
    bool more = true;
    while (more) {
        dur_instance_list *list = NULL;
        OK(w, dur_client_list(&list, w->client,
                              DUR_LIST(.status = status, .limit = page, .after = after[0] != '\0' ? after : NULL),
                              &w->err));
        for (size_t i = 0; i < list->count; i++, seen++) {
            snprintf(id, sizeof(id), "i-%04zu", seen);
            assert_string_equal(list->items[i]->instance, id);
            assert_string_equal(list->items[i]->name, "Sleeper");
        }
        more = list->next != NULL;
        if (more) snprintf(after, sizeof(after), "%s", list->next);
        dur_instance_list_free(list);
        if (runs_between && w->runtime == NULL) {
            RUN(w, handlers);
            snprintf(id, sizeof(id), "i-%04zu", count - 1);
            until_history(w, id, "\"ExternalSubscribed\"", 1);
        }
    }
    assert_int_equal(seen, count);
}

static void start_many(world *w, size_t count) {
    char id[32];
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "i-%04zu", i);
        start(w, "Sleeper", "", id);
    }
}

static void fault_h70_a_start_that_begins_between_two_pages_is_listed_once(void **state) {
    world *w = *state;
    const size_t count = scaled(60, 20);
    start_many(w, count);
    page_through(w, count, 7, DUR_INSTANCE_RUNNING, false);
    page_through(w, count, 7, DUR_INSTANCE_NOT_FOUND, true);
}

static void fault_h70_starts_that_begin_while_pages_are_read_are_listed_once(void **state) {
    world *w = *state;
    const size_t count = scaled(200, 40);
    start_many(w, count);
    RUN(w, handlers);
    dur_instance_info *last = NULL;
    for (bool pending = true; pending;) { /* as often as there is one that has not begun */
        page_through(w, count, 9, DUR_INSTANCE_RUNNING, false);
        page_through(w, count, count, DUR_INSTANCE_NOT_FOUND, false);
        char id[32];
        pending = false;
        for (size_t i = 0; i < count && !pending; i++) {
            snprintf(id, sizeof(id), "i-%04zu", i);
            OK(w, dur_client_info(&last, w->client, id, &w->err));
            pending = last->start_pending;
            dur_instance_info_free(last);
        }
    }
    counts(w, count, count, 0);
}

/* The same of those that are between two executions: running, in every list. */
static void fault_h70_what_continues_as_new_is_in_every_list_of_what_runs(void **state) {
    world *w = *state;
    enum { COUNT = 8 };
    char id[32];
    RUN(w, handlers, .worker_concurrency = 4);
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(id, sizeof(id), "e-%zu", i);
        start(w, "Eternal", "x", id);
    }
    for (size_t round = 0; round < scaled(400, 40); round++) {
        dur_instance_list *list = NULL;
        OK(w, dur_client_list(&list, w->client, DUR_LIST(.status = DUR_INSTANCE_RUNNING), &w->err));
        size_t found = list->count;
        dur_instance_list_free(list);
        assert_int_equal(found, COUNT);
    }
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(id, sizeof(id), "e-%zu", i);
        OK(w, dur_client_terminate(w->client, id, "enough", &w->err));
    }
}

/* ---- what it costs ----------------------------------------------------------------------------------------------- */

#ifdef HAVE_LIBPQ
static void lists_cost(world *w, PGconn *db, const char *url, size_t most, const char *expected,
                       const dur_list_options *options) {
    char schema[80];
    long visited;
    uint64_t end_ms = now_ms() + patience_ms();
    schema_of(w, schema);
    do { /* what has been there stays in the indexes until it is cleaned up, and no snapshot is as old */
        pg_do(db, "VACUUM (ANALYZE) %s.dur_instances", schema);
        pg_do(db, "VACUUM (ANALYZE) %s.dur_queue", schema);
        long before = rows_visited(db, schema);
        world looker = elsewhere(w, url);
        lists(&looker, expected, options);
        leave(&looker);
        until_gone(db, strrchr(url, '=') + 1);
        visited = rows_visited(db, schema) - before;
        printf("# \"%s\": %ld rows read\n", expected, visited);
    } while (visited >= (long)most && now_ms() < end_ms);
    assert_true(visited < (long)most);
}

/* Among many that have ended, and as many that begin behind others. */
static void fault_h70_a_list_of_what_waits_reads_what_it_lists(void **state) {
    world *w = *state;
    size_t count = scaled(1000, 400);
    char id[32], url[900];
    dur_runs *runs = NULL;
    const dur_run *run = NULL;
    if (!on_provider("postgres")) skip();
    PGconn *db = pg_beside();
    snprintf(url, sizeof(url), "%s&application_name=sight_%d", getenv("DURITE_TEST_URL"), (int)getpid());
    world maker = elsewhere(w, url);
    RUN(&maker, handlers);
    OK(&maker, dur_runs_new(&runs, maker.client, &maker.err));
    for (size_t i = 0; i < count; i++) {
        snprintf(id, sizeof(id), "e-%zu", i);
        OK(&maker, dur_runs_start(runs, &maker.err, "Brief", "", .instance = id));
    }
    for (size_t i = 0; i < count; i++)
        OK(&maker, dur_runs_next(&run, runs, patience_ms(), &maker.err));
    dur_runs_free(runs);
    start(&maker, "Caller", "kid", "parent");
    until_history(&maker, "parent", "\"SubOrchestrationScheduled\"", 1);
    start(&maker, "Nobody", "", "waits");
    leave(&maker);
    until_gone(db, strrchr(url, '=') + 1);
    lists_cost(w, db, url, count / 2, "kid parent waits", DUR_LIST(.status = DUR_INSTANCE_RUNNING));
    lists_cost(w, db, url, count / 2, "kid", DUR_LIST(.parent = "parent"));
    lists_cost(w, db, url, count / 2, "kid parent", DUR_LIST(.status = DUR_INSTANCE_RUNNING, .limit = 2));
    PQfinish(db);
}
#endif

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static dur_outcome two_in_a_session(dur_ctx *ctx, const char *input) {
    dur_await(dur_activity(ctx, "First", input, .session = "s"));
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Second", input, .session = "s")));
}

static const dur_handler has_the_first[] = {
    DUR_ACTIVITY("First", echo_back),
    DUR_ORCHESTRATION("Two", "1.0.0", two_in_a_session),
    DUR_HANDLERS_END,
};
static const dur_handler has_the_second[] = {
    DUR_ACTIVITY("Second", echo_back),
    DUR_HANDLERS_END,
};

static atomic_uint said; /* lines about a session whose holder has no handler */

static void listen_for_sessions(void *data, const dur_log_record *record) {
    (void)data;
    if (strstr(record->message, "session \"s\"") != NULL && strstr(record->message, "no handler") != NULL)
        atomic_fetch_add(&said, 1);
}

/* The one that holds the session lacks the second activity, and the other one has only that. */
static void two_nodes(world *w, dur_runtime **other, uint64_t idle_ms, uint64_t clean_ms) {
    RUN(w, has_the_first, .session_idle_timeout_ms = idle_ms, .session_cleanup_interval_ms = clean_ms,
        .worker_lock_timeout_ms = 1000);
    dur_runtime_options options = { .size = sizeof(options),
                                    .store = w->store,
                                    .handlers = has_the_second,
                                    .session_idle_timeout_ms = idle_ms,
                                    .session_cleanup_interval_ms = clean_ms,
                                    .worker_lock_timeout_ms = 1000 };
    OK(w, dur_runtime_start(other, &options, &w->err));
    start(w, "Two", "x", "a");
    until_history(w, "a", "\"ActivityScheduled\"", 2);
}

static void fault_h71_work_that_its_sessions_holder_cannot_run_is_told(void **state) {
    world *w = *state;
    dur_runtime *other = NULL;
    dur_instance_info *info = NULL;
    atomic_store(&said, 0);
    OK(w, dur_log_set_sink(listen_for_sessions, NULL, DUR_LOG_WARN));
    two_nodes(w, &other, 0, 0);
    for (uint64_t end_ms = now_ms() + patience_ms(); atomic_load(&said) == 0; pause_ms(5))
        if (now_ms() > end_ms) fail_msg("nothing was said");
    OK(w, dur_client_info(&info, w->client, "a", &w->err));
    assert_non_null(info->stuck_session);
    assert_non_null(strstr(info->stuck_session, "Second in session s of "));
    assert_non_null(strstr(info->stuck_session, dur_runtime_owner(w->runtime)));
    assert_null(info->no_handler);
    dur_instance_info_free(info);
    world_stop(w); /* with its holder the session is free */
    RUN(w, has_the_first);
    expect(w, "a", "x");
    OK(w, dur_client_info(&info, w->client, "a", &w->err));
    assert_null(info->stuck_session);
    dur_instance_info_free(info);
    OK(w, dur_log_set_sink(NULL, NULL, DUR_LOG_WARN));
    OK(w, dur_runtime_stop(other, patience_ms(), &w->err));
}

static void fault_h71_an_idle_session_moves_to_who_has_the_handler(void **state) {
    world *w = *state;
    dur_runtime *other = NULL;
    two_nodes(w, &other, 1000, 100);
    expect(w, "a", "x");
    OK(w, dur_runtime_stop(other, patience_ms(), &w->err));
}

static const hostile_role roles[] = { { "none", NULL } };

static const struct CMUnitTest tests[] = {
    TEST(fault_h70_a_start_that_waits_is_listed_and_counted),
    TEST(fault_h70_what_was_never_started_is_in_no_list),
    TEST(fault_h70_a_child_that_waits_is_listed),
    TEST(fault_h70_a_start_that_begins_between_two_pages_is_listed_once),
    TEST(fault_h70_starts_that_begin_while_pages_are_read_are_listed_once),
    TEST(fault_h70_what_continues_as_new_is_in_every_list_of_what_runs),
    TEST(fault_h71_work_that_its_sessions_holder_cannot_run_is_told),
    TEST(fault_h71_an_idle_session_moves_to_who_has_the_handler),
#ifdef HAVE_LIBPQ
    TEST(fault_h70_a_list_of_what_waits_reads_what_it_lists),
#endif
};

HOSTILE_MAIN(roles, tests)
