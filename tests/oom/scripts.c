/*
 * scripts.c: one short script for each feature.  Each is fair: it does nothing that fails while there is memory.
 */
#include "oom.h"

#include <durite/sqlite.h>
#include <sqlite3.h>
#include <string.h>

/* ---- handlers ---- */

static int wobbles; /* how often it has failed: the first time of each run */

static dur_outcome echo(dur_act *act, const char *input) {
    return dur_act_completef(act, "<%s>", input);
}
static dur_outcome wobbly(dur_act *act, const char *input) {
    if (dur_act_attempt(act) == 1 && ++wobbles > 0) return dur_act_fail(act, "not yet");
    return dur_act_complete(act, input);
}
/* More than its arena has at first: the end of an activity needs memory, and what is of this size is always kept. */
static dur_outcome fills(dur_act *act, const char *input) {
    char text[2001];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    return strcmp(input, "copied") == 0 ? dur_act_complete(act, text) : dur_act_completef(act, "%3000s", input);
}
static dur_outcome reports(dur_ctx *ctx, const char *input) {
    const char *a = dur_await(dur_activity(ctx, "Fills", input));
    return dur_complete(ctx, dur_format(ctx, "%zu", strlen(a)));
}
static dur_outcome calls(dur_ctx *ctx, const char *input) {
    const char *a = dur_await(dur_activity(ctx, "Echo", input));
    const char *b = dur_await(dur_activity(ctx, "Echo", a));
    return dur_complete(ctx, b);
}
static dur_outcome many(dur_ctx *ctx, const char *input) {
    dur_future *all[12];
    (void)input;
    for (int i = 0; i < 12; i++)
        all[i] = dur_activity(ctx, "Echo", "x");
    for (int i = 0; i < 12; i++)
        (void)dur_await(all[i]);
    return dur_complete(ctx, "all");
}
static dur_outcome sleeps(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_future *late = dur_timer(ctx, DUR_DAYS(1)), *soon = dur_timer(ctx, DUR_SECONDS(10));
    if (dur_select(late, soon) != soon) return dur_fail(ctx, "wrong");
    (void)dur_await(dur_timer(ctx, DUR_HOURS(2)));
    return dur_complete(ctx, "awake");
}
static dur_outcome listens(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *a = dur_await(dur_pulse(ctx, "Paid"));
    const char *b = dur_await(dur_pulse(ctx, "Sent"));
    return dur_complete(ctx, dur_format(ctx, "%s+%s", a, b));
}
static dur_outcome dequeues(dur_ctx *ctx, const char *input) {
    (void)input;
    const char *a = dur_await(dur_message(ctx, "in"));
    const char *b = dur_await(dur_message(ctx, "in"));
    const char *c = dur_await(dur_message(ctx, "in"));
    return dur_complete(ctx, dur_format(ctx, "%s%s%s", a, b, c));
}
static dur_outcome parent(dur_ctx *ctx, const char *input) {
    const char *a = dur_await(dur_orchestration(ctx, "Calls", input));
    const char *b = dur_await(dur_orchestration(ctx, "Calls", a, .instance = "named-child"));
    return dur_complete(ctx, b);
}
static dur_outcome in_session(dur_ctx *ctx, const char *input) {
    const char *a = dur_await(dur_activity(ctx, "Echo", input, .session = "s-1"));
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", a, .session = "s-1")));
}
static dur_outcome tagged(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", input, .tag = "gpu")));
}
static dur_outcome retries(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Wobbly", input, .retry = DUR_RETRY(.attempts_max = 9))));
}
static dur_outcome keys(dur_ctx *ctx, const char *input) {
    dur_kv_set(ctx, "a", input);
    dur_kv_set(ctx, "b", "2");
    (void)dur_await(dur_activity(ctx, "Echo", "x"));
    dur_kv_clear(ctx, "b");
    dur_kv_set(ctx, "c", dur_kv_get(ctx, "a"));
    (void)dur_await(dur_pulse(ctx, "Go"));
    dur_kv_clear_all(ctx);
    dur_kv_set(ctx, "d", "4");
    return dur_complete(ctx, "kept");
}
static dur_outcome tells(dur_ctx *ctx, const char *input) {
    dur_status_set(ctx, "begun");
    (void)dur_await(dur_activity(ctx, "Echo", input));
    dur_status_setf(ctx, "%s of %d", "half", 2);
    (void)dur_await(dur_pulse(ctx, "Go"));
    dur_status_clear(ctx);
    return dur_complete(ctx, "told");
}
static dur_outcome generations(dur_ctx *ctx, const char *input) {
    if (strlen(input) >= 4) return dur_complete(ctx, input);
    (void)dur_await(dur_activity(ctx, "Echo", "x"));
    return dur_continue_as_new(ctx, dur_format(ctx, "%s.", input));
}
static dur_outcome waits(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Never")));
}
static dur_outcome branch(dur_ctx *ctx, void *arg) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Echo", arg)));
}
static dur_outcome branches(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_scope *scope = dur_scope_begin(ctx);
    dur_future *a = dur_spawn(ctx, branch, "a"), *b = dur_spawn(ctx, branch, "b");
    const char *x = dur_await(a), *y = dur_await(b);
    const char *both = dur_format(ctx, "%s%s", x, y);
    char kept[32];
    (void)strncpy(kept, both, sizeof(kept) - 1);
    kept[sizeof(kept) - 1] = '\0';
    dur_scope_end(scope);
    return dur_complete(ctx, kept);
}

const dur_handler oom_handlers[] = {
    DUR_ACTIVITY("Echo", echo),
    DUR_ACTIVITY("Wobbly", wobbly),
    DUR_ACTIVITY("Fills", fills),
    DUR_ORCHESTRATION("Reports", "1.0.0", reports),
    DUR_ORCHESTRATION("Calls", "1.0.0", calls),
    DUR_ORCHESTRATION("Many", "1.0.0", many),
    DUR_ORCHESTRATION("Sleeps", "1.0.0", sleeps),
    DUR_ORCHESTRATION("Listens", "1.0.0", listens),
    DUR_ORCHESTRATION("Dequeues", "1.0.0", dequeues),
    DUR_ORCHESTRATION("Parent", "1.0.0", parent),
    DUR_ORCHESTRATION("InSession", "1.0.0", in_session),
    DUR_ORCHESTRATION("Tagged", "1.0.0", tagged),
    DUR_ORCHESTRATION("Retries", "1.0.0", retries),
    DUR_ORCHESTRATION("Keys", "1.0.0", keys),
    DUR_ORCHESTRATION("Tells", "1.0.0", tells),
    DUR_ORCHESTRATION("Generations", "1.0.0", generations),
    DUR_ORCHESTRATION("Waits", "1.0.0", waits),
    DUR_ORCHESTRATION("Branches", "1.0.0", branches),
    DUR_HANDLERS_END,
};

/* ---- scripts ---- */

static void start(world *w, const char *name, const char *input, const char *instance) {
    DO(w, dur_client_start(w->client, &err, name, input, .instance = instance));
}

static void start_script(world *w) {
    start(w, "Waits", "", "one");
    DO(w, dur_client_start(w->client, &err, "Calls", "i", .instance = "one", .exists = DUR_START_RETURN_EXISTING));
    DO(w, dur_client_start(w->client, &err, "Calls", "i", .instance = "two", .delay_ms = 5000));
    ends(w, "two", DUR_OK, "<<i>>");
    DO(w, dur_client_start(w->client, &err, "Calls", "j", .instance = "two", .exists = DUR_START_REPLACE_FINISHED));
    ends(w, "two", DUR_OK, "<<j>>");
}
static void activity_script(world *w) {
    start(w, "Calls", "hello", "a");
    start(w, "Many", "", "b");
    ends(w, "a", DUR_OK, "<<hello>>");
    ends(w, "b", DUR_OK, "all");
}
static void report_script(world *w) {
    start(w, "Reports", "copied", "a");
    start(w, "Reports", "", "b");
    ends(w, "a", DUR_OK, "2000");
    ends(w, "b", DUR_OK, "3000");
}
static void timer_script(world *w) {
    start(w, "Sleeps", "", "t");
    ends(w, "t", DUR_OK, "awake");
}
static void event_script(world *w) {
    start(w, "Listens", "", "e");
    settle(w);
    DO(w, dur_client_pulse(w->client, &err, "e", "Paid", "1", .message_id = "m-1"));
    DO(w, dur_client_pulse(w->client, &err, "e", "Paid", "1", .message_id = "m-1"));
    settle(w);
    DO(w, dur_client_pulse(w->client, &err, "e", "Sent", "2"));
    ends(w, "e", DUR_OK, "1+2");
}
static void queue_script(world *w) {
    start(w, "Dequeues", "", "q");
    DO(w, dur_client_send(w->client, &err, "q", "in", "a"));
    DO(w, dur_client_send(w->client, &err, "q", "in", "b", .message_id = "b"));
    settle(w);
    DO(w, dur_client_send(w->client, &err, "q", "in", "c"));
    ends(w, "q", DUR_OK, "abc");
}
static void child_script(world *w) {
    start(w, "Parent", "p", "p");
    ends(w, "p", DUR_OK, "<<<<p>>>>");
    dur_id_list *tree = NULL;
    DO(w, dur_client_tree(&tree, w->client, "p", &err));
    if (tree->count != 3) fail(w, "a tree of %zu", tree->count);
    dur_id_list_free(tree);
}
static void session_script(world *w) {
    start(w, "InSession", "s", "s");
    start(w, "InSession", "t", "t");
    ends(w, "s", DUR_OK, "<<s>>");
    ends(w, "t", DUR_OK, "<<t>>");
}
static void tag_script(world *w) { /* nobody here takes that tag */
    start(w, "Tagged", "g", "g");
    settle(w);
    DO(w, dur_client_terminate(w->client, "g", "no such worker", &err));
    ends(w, "g", DUR_ECANCELLED, NULL);
}
static void retry_script(world *w) {
    start(w, "Retries", "r", "r");
    ends(w, "r", DUR_OK, "r");
}
static void kv_script(world *w) {
    char *value = NULL;
    dur_kv_list *all = NULL;
    start(w, "Keys", "1", "k");
    DO(w, dur_client_kv_wait(&value, w->client, "k", "c", DUR_MINUTES(1), &err));
    dur_free(value);
    DO(w, dur_client_kv_get(&value, w->client, "k", "a", &err));
    if (value == NULL || strcmp(value, "1") != 0) fail(w, "a is %s", value != NULL ? value : "none");
    dur_free(value);
    DO(w, dur_client_kv_all(&all, w->client, "k", &err));
    if (all->count != 2) fail(w, "%zu keys", all->count);
    dur_kv_list_free(all);
    DO(w, dur_client_pulse(w->client, &err, "k", "Go", ""));
    ends(w, "k", DUR_OK, "kept");
}
static void status_script(world *w) {
    dur_instance_info *info = NULL;
    start(w, "Tells", "x", "st");
    DO(w, dur_client_wait_status(&info, w->client, "st", 1, DUR_MINUTES(1), &err));
    if (info->custom_status == NULL || strcmp(info->custom_status, "half of 2") != 0) fail(w, "no status");
    dur_instance_info_free(info);
    DO(w, dur_client_pulse(w->client, &err, "st", "Go", ""));
    DO(w, dur_client_wait(&info, w->client, "st", DUR_MINUTES(1), &err));
    dur_instance_info_free(info);
    ends(w, "st", DUR_OK, "told");
}
static void continue_script(world *w) {
    dur_execution_list *all = NULL;
    dur_pruned pruned = { .size = sizeof(pruned) };
    char *history = NULL;
    start(w, "Generations", ".", "c");
    ends(w, "c", DUR_OK, "....");
    DO(w, dur_client_executions(&all, w->client, "c", &err));
    if (all->count != 4) fail(w, "%zu executions", all->count);
    dur_execution_list_free(all);
    DO(w, dur_client_history(&history, w->client, "c", 2, &err));
    dur_free(history);
    DO(w, dur_client_prune(&pruned, w->client, "c", DUR_PRUNE(.keep_last = 1), &err));
}
static void cancel_script(world *w) {
    start(w, "Waits", "", "x");
    settle(w);
    DO(w, dur_client_cancel(w->client, "x", "enough", &err));
    ends(w, "x", DUR_ECANCELLED, NULL);
    start(w, "Parent", "y", "y");
    DO(w, dur_client_cancel(w->client, "y", "at once", &err));
    settle(w);
}
static void terminate_script(world *w) {
    start(w, "Waits", "", "x");
    settle(w);
    DO(w, dur_client_send(w->client, &err, "x", "q", "left over"));
    DO(w, dur_client_terminate(w->client, "x", "enough", &err));
    ends(w, "x", DUR_ECANCELLED, NULL);
    settle(w);
    dur_dead_letter_list *letters = NULL;
    DO(w, dur_client_dead_letters(&letters, w->client, 0, 0, &err));
    dur_dead_letter_list_free(letters);
}
static void suspend_script(world *w) {
    start(w, "Listens", "", "z");
    settle(w);
    DO(w, dur_client_suspend(w->client, "z", "wait", &err));
    settle(w);
    DO(w, dur_client_pulse(w->client, &err, "z", "Paid", "1"));
    DO(w, dur_client_resume(w->client, "z", &err));
    settle(w);
    DO(w, dur_client_pulse(w->client, &err, "z", "Sent", "2"));
    ends(w, "z", DUR_OK, "1+2");
}
static void delete_script(world *w) {
    dur_deleted gone = { .size = sizeof(gone) };
    start(w, "Parent", "p", "p");
    ends(w, "p", DUR_OK, "<<<<p>>>>");
    start(w, "Waits", "", "r");
    settle(w);
    DO(w, dur_client_delete(&gone, w->client, "p", false, &err));
    if (gone.instances != 3) fail(w, "%llu deleted", (unsigned long long)gone.instances);
    DO(w, dur_client_delete(&gone, w->client, "r", true, &err));
    start(w, "Calls", "1", "b");
    ends(w, "b", DUR_OK, "<<1>>");
    DO(w, dur_client_delete_bulk(&gone, w->client, NULL, &err));
    if (gone.instances != 1) fail(w, "%llu deleted in bulk", (unsigned long long)gone.instances);
}
static void list_script(world *w) {
    dur_instance_list *list = NULL;
    dur_store_counts counts = { .size = sizeof(counts) };
    dur_client_stats stats = { .size = sizeof(stats) };
    dur_instance_info *info = NULL;
    start(w, "Calls", "1", "l-1");
    start(w, "Waits", "", "l-2");
    DO(w, dur_client_start(w->client, &err, "Calls", "i", .instance = "l-3", .delay_ms = DUR_HOURS(50)));
    ends(w, "l-1", DUR_OK, "<<1>>");
    DO(w, dur_client_list(&list, w->client, NULL, &err));
    if (list->count != 3) fail(w, "a list of %zu", list->count);
    dur_instance_list_free(list);
    DO(w, dur_client_counts(&counts, w->client, &err));
    DO(w, dur_client_stats_get(&stats, w->client, "l-1", &err));
    DO(w, dur_client_info(&info, w->client, "l-3", &err));
    dur_instance_info_free(info);
}
static void runs_script(world *w) {
    dur_runs *runs = NULL;
    const dur_run *end = NULL;
    DO(w, dur_runs_new(&runs, w->client, &err));
    for (int i = 0; i < 4; i++) {
        char id[16] = "run-0";
        id[4] = (char)('0' + i);
        DO(w, dur_runs_start(runs, &err, "Calls", "r", .instance = id));
    }
    for (int i = 0; i < 4; i++) {
        DO(w, dur_runs_next(&end, runs, DUR_MINUTES(1), &err));
        bool refused = end->code == DUR_ENOMEM && memory_failed();
        if (end->code != DUR_OK && !refused) fail(w, "%s: %s", end->instance, end->error);
        if (refused) memory_back();
    }
    dur_runs_free(runs);
}
static void branch_script(world *w) {
    start(w, "Branches", "", "br");
    ends(w, "br", DUR_OK, "<a><b>");
}
static void crowd_script(world *w) { /* more than a few of everything at once */
    char id[16];
    for (int i = 0; i < 20; i++) {
        id[0] = (char)('a' + i);
        id[1] = '\0';
        start(w, i % 2 == 0 ? "Calls" : "Sleeps", "n", id);
    }
    for (int i = 0; i < 20; i++) {
        id[0] = (char)('a' + i);
        id[1] = '\0';
        ends(w, id, DUR_OK, i % 2 == 0 ? "<<n>>" : "awake");
    }
}

/* A transaction of the caller's own: what was refused in it has left nothing there. */
static int own_start(world *w, sqlite3 *db, dur_error *err) {
    int code = dur_sqlite_begin(w->store, db, err);
    if (code != DUR_OK) return code;
    code = dur_sqlite_start(w->store, db, &(dur_start_args){ .name = "Listens", .instance = "own" }, err);
    if (code == DUR_OK) {
        const dur_message_args paid = { .instance = "own", .name = "Paid", .data = "1", .message_id = "m" };
        code = dur_sqlite_pulse(w->store, db, &paid, err);
        if (code == DUR_OK) return dur_sqlite_commit(w->store, db, err);
        (void)dur_sqlite_rollback(w->store, db, NULL);
        return code;
    }
    memory_back();
    if (sqlite3_get_autocommit(db) != 0)
        (void)dur_sqlite_rollback(w->store, db, NULL);
    else if (dur_sqlite_commit(w->store, db, NULL) != DUR_OK)
        fail(w, "the rest is not committed");
    dur_instance_info *info = NULL;
    if (dur_client_info(&info, w->client, "own", NULL) != DUR_ENOTFOUND) fail(w, "half a start");
    return code;
}
static void own_script(world *w) {
    sqlite3 *db = NULL;
    if (w->path == NULL) return;
    if (sqlite3_open(w->path, &db) != SQLITE_OK) {
        memory_back();
        (void)sqlite3_close(db);
        if (sqlite3_open(w->path, &db) != SQLITE_OK) fail(w, "no connection");
    }
    dur_error why = DUR_ERROR_INIT;
    int code = own_start(w, db, &why);
    if (code != DUR_OK && memory_failed()) {
        memory_back();
        code = own_start(w, db, &why);
    }
    if (code != DUR_OK) fail(w, "own: %s", why.message);
    (void)sqlite3_close(db);
    DO(w, dur_client_pulse(w->client, &err, "own", "Sent", "2"));
    ends(w, "own", DUR_OK, "1+2");
}

const script scripts[] = {
    { "start", start_script },
    { "activity", activity_script },
    { "report", report_script },
    { "timer", timer_script },
    { "event", event_script },
    { "queue", queue_script },
    { "child", child_script },
    { "session", session_script },
    { "tag", tag_script },
    { "retry", retry_script },
    { "kv", kv_script },
    { "status", status_script },
    { "continue", continue_script },
    { "cancel", cancel_script },
    { "terminate", terminate_script },
    { "suspend", suspend_script },
    { "delete", delete_script },
    { "list", list_script },
    { "runs", runs_script },
    { "branch", branch_script },
    { "crowd", crowd_script },
    { "own", own_script },
    { NULL, NULL },
};
