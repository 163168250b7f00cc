/*
 * hostile_file.c: a database file that others hold, restore, delete or replace; owners at the edge of their lives.
 */
#include "sqlite_file.h"

#include <durite/sqlite.h>
#include <durite/sys/store.h>
#include <pthread.h>

static dur_outcome wait_go(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_status_set(ctx, "waits");
    const char *first = dur_await(dur_pulse(ctx, "Go"));
    return dur_complete(ctx, first);
}

static dur_outcome take(dur_ctx *ctx, const char *input) { /* so many, in order */
    size_t count = strtoul(input, NULL, 10);
    for (size_t i = 0; i < count; i++)
        (void)dur_await(dur_message(ctx, "q"));
    return dur_complete(ctx, "taken");
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("WaitGo", "1.0.0", wait_go),
    DUR_ORCHESTRATION("Take", "1.0.0", take),
    DUR_HANDLERS_END,
};

/* ---- what an activity is handed ---- */

static dur_outcome insert_twice(dur_act *act, const char *input) {
    dur_error err = DUR_ERROR_INIT;
    sqlite3 *db = dur_act_sqlite(act, &err);
    (void)input;
    if (db == NULL) return dur_act_fail(act, err.message);
    (void)sqlite3_exec(db, "CREATE TEMP TABLE mine(id INTEGER PRIMARY KEY); INSERT INTO mine VALUES(1)", NULL, NULL,
                       NULL);
    int result = sqlite3_exec(db, "INSERT INTO mine VALUES(1)", NULL, NULL, NULL);
    return dur_act_complete(act, result == SQLITE_CONSTRAINT ? "constraint" : sqlite3_errstr(result));
}

static dur_outcome inserts(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "InsertTwice", input)));
}

/* Opening it to read waits for somebody who writes. */
static void fault_h178_a_pipe_with_an_owners_name_holds_up_nobody(void **state) {
    world *w = *state;
    char path[600];
    if (!on_provider("sqlite")) skip();
    snprintf(path, sizeof(path), "%s.owner-nobody", path_of(w));
    assert_int_equal(mkfifo(path, 0600), 0);
    RUN(w, handlers);
    start(w, "WaitGo", "", "i");
    until_status(w, "i", "waits");
    OK(w, dur_client_pulse(w->client, &w->err, "i", "Go", "went"));
    expect(w, "i", "went");
    world_stop(w);
    assert_false(access(path, F_OK) == 0); /* it is taken for the file of somebody dead */
}

static void fault_h42_result_codes_are_the_plain_ones(void **state) {
    world *w = *state;
    static const dur_handler table[] = { DUR_ACTIVITY("InsertTwice", insert_twice),
                                         DUR_ORCHESTRATION("Inserts", "1.0.0", inserts), DUR_HANDLERS_END };
    if (!on_provider("sqlite")) skip();
    RUN(w, table);
    start(w, "Inserts", "", "i");
    expect(w, "i", "constraint");
}

/* ---- owners ---- */

static void register_owner(world *w, dur_provider *store, const char *owner, uint64_t timeout_ms) {
    OK(w, dur_store_owner_register(store, &(dur_owner_options){ .owner = owner, .timeout_ms = timeout_ms }, &w->err));
}

typedef struct beats {
    dur_provider *store;
    const char *owner;
    pthread_barrier_t *together;
    dur_owner_report report;
    dur_error err;
    int code;
} beats;

static void *beat_once(void *arg) {
    beats *self = arg;
    pthread_barrier_wait(self->together);
    self->code = dur_store_owner_beat(self->store, self->owner, &self->report, &self->err);
    return NULL;
}

/*
 * Time stands still at the moment when the silent one may be taken for dead.  It beats, the other looks: whoever comes
 * first, an owner that was told "still ours" is still there, because no time has passed; and what was freed is reported
 * by the one who freed it.
 */
static void fault_h60_an_answered_beat_is_not_taken_over(void **state) {
    world *w = *state;
    enum { TIMEOUT_MS = 1000 };
    char url[1100];
    dur_provider *one = NULL, *two = NULL;
    dur_fake_world *fake = dur_fake_world_new(1700000000000u, 1);
    const dur_open_options *how = DUR_OPEN_OPTIONS(.world = dur_fake_world_get(fake));
    dur_client_free(w->client);
    dur_provider_close(w->store);
    w->client = NULL;
    w->store = NULL;
    snprintf(url, sizeof(url), "%s%s", w->url,
             on_provider("postgres") ? "&clock=caller"
             : on_provider("memory") ? "-timed"
                                     : "");
    OK(w, dur_open_ex(&one, url, how, &w->err));
    OK(w, dur_open_ex(&two, url, how, &w->err));
    register_owner(w, two, "looks", TIMEOUT_MS);
    pthread_barrier_t together;
    pthread_barrier_init(&together, NULL, 2);
    size_t rounds = scaled(150, 20);
    uint32_t lost = 0, reported = 0, serial = 0;
    char owner[32] = "";
    for (size_t i = 0; i < rounds; i++) {
        if (owner[0] == '\0') {
            snprintf(owner, sizeof(owner), "beats-%u", serial++);
            register_owner(w, one, owner, TIMEOUT_MS);
        }
        beats silent = { .store = one, .owner = owner, .together = &together, .err = DUR_ERROR_INIT };
        beats looks = { .store = two, .owner = "looks", .together = &together, .err = DUR_ERROR_INIT };
        dur_fake_world_advance(fake, TIMEOUT_MS / 2);
        OK(w, dur_store_owner_beat(two, "looks", &looks.report, &w->err));
        reported += looks.report.taken_over;
        dur_fake_world_advance(fake, TIMEOUT_MS / 2);
        pthread_t threads[2];
        assert_int_equal(pthread_create(&threads[0], NULL, beat_once, &silent), 0);
        assert_int_equal(pthread_create(&threads[1], NULL, beat_once, &looks), 0);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        if (silent.code != DUR_OK) fail_msg("beat: %s", silent.err.message);
        if (looks.code != DUR_OK) fail_msg("look: %s", looks.err.message);
        reported += looks.report.taken_over;
        assert_int_equal(silent.report.taken_over, 0); /* the other has beaten half a timeout ago */
        dur_owner_report now;
        OK(w, dur_store_owner_beat(one, owner, &now, &w->err));
        if (silent.report.still_ours && !now.still_ours) fail_msg("round %zu: answered, and taken over at once", i);
        if (!now.still_ours) {
            lost++;
            owner[0] = '\0';
        }
        if (reported != lost) fail_msg("round %zu: %u were lost, %u reported as taken over", i, lost, reported);
    }
    if (owner[0] != '\0') OK(w, dur_store_owner_release(one, owner, &w->err));
    OK(w, dur_store_owner_release(two, "looks", &w->err));
    pthread_barrier_destroy(&together);
    dur_provider_close(one);
    dur_provider_close(two);
    dur_fake_world_free(fake);
}

/* Each owner hears of what it freed itself.  Some stores look for the dead when an owner registers, some when it beats.
 */
static void fault_h60_a_beat_reports_what_it_freed_itself(void **state) {
    world *w = *state;
    enum { TIMEOUT_MS = 1000 };
    char url[1100];
    dur_provider *store = NULL;
    dur_fake_world *fake = dur_fake_world_new(1700000000000u, 1);
    dur_owner_report report;
    dur_client_free(w->client);
    dur_provider_close(w->store);
    w->client = NULL;
    w->store = NULL;
    snprintf(url, sizeof(url), "%s%s", w->url,
             on_provider("postgres") ? "&clock=caller"
             : on_provider("memory") ? "-timed"
                                     : "");
    OK(w, dur_open_ex(&store, url, DUR_OPEN_OPTIONS(.world = dur_fake_world_get(fake)), &w->err));
    register_owner(w, store, "first", 10 * TIMEOUT_MS);
    register_owner(w, store, "second", 10 * TIMEOUT_MS);
    register_owner(w, store, "silent", TIMEOUT_MS);
    dur_arena *arena = dur_arena_new();
    dur_message_row message;
    dur_orchestration_item item;
    size_t count = 0;
    OK(w, dur_message_row_from_work(&message, arena,
                                    &(dur_work_item){ .kind = DUR_WORK_START_ORCHESTRATION,
                                                      .instance = "a",
                                                      .orchestration = "Any",
                                                      .input = "",
                                                      .version = "1.0.0",
                                                      .execution_id = 1 },
                                    &w->err));
    OK(w, dur_store_enqueue_for_orchestrator(store, &message, 0, &w->err));
    OK(w, dur_store_fetch_turns(store, arena, &(dur_fetch){ .owner = "silent", .max = 1 }, &item, &count, &w->err));
    assert_int_equal(count, 1);
    dur_fake_world_advance(fake, TIMEOUT_MS);
    register_owner(w, store, "third", 10 * TIMEOUT_MS);
    OK(w, dur_store_fetch_turns(store, arena, &(dur_fetch){ .owner = "third", .max = 1 }, &item, &count, &w->err));
    bool by_third = count == 1; /* it is free already */
    OK(w, dur_store_owner_beat(store, "first", &report, &w->err));
    assert_int_equal(report.taken_over, by_third ? 0 : 1);
    assert_int_equal(report.freed, by_third ? 0 : 1);
    OK(w, dur_store_owner_beat(store, "second", &report, &w->err));
    assert_int_equal(report.taken_over, 0);
    OK(w, dur_store_owner_beat(store, "third", &report, &w->err));
    assert_int_equal(report.taken_over, by_third ? 1 : 0);
    assert_int_equal(report.freed, by_third ? 1 : 0);
    if (by_third) assert_string_equal(report.last_dead, "silent");
    dur_arena_free(arena);
    OK(w, dur_store_owner_release(store, "first", &w->err));
    OK(w, dur_store_owner_release(store, "second", &w->err));
    OK(w, dur_store_owner_release(store, "third", &w->err));
    dur_provider_close(store);
    dur_fake_world_free(fake);
}

/* ---- restored under a running process ---- */

static int restore(const char *url, long number) { /* as `.restore` of sqlite3 does, in a process of its own */
    char copy[200];
    (void)number;
    snprintf(copy, sizeof(copy), "%.180s.copy", url + strlen("sqlite:"));
    return copy_into(copy, url + strlen("sqlite:"));
}

static void backup_world(world *w) {
    char copy[1100];
    snprintf(copy, sizeof(copy), "%s.copy", path_of(w));
    OK(w, dur_provider_backup(w->store, copy, &w->err));
}

static void fault_h08_a_restored_file_hides_no_event(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    RUN(w, handlers);
    start(w, "WaitGo", "", "w");
    start(w, "WaitGo", "", "ended");
    until_status(w, "w", "waits");
    until_status(w, "ended", "waits");
    backup_world(w);
    for (int i = 0; i < 50; i++) /* ids grow beyond what the copy knows */
        OK(w, dur_client_pulse(w->client, &w->err, "w", "Other", ""));
    OK(w, dur_client_pulse(w->client, &w->err, "ended", "Go", "first life"));
    expect(w, "ended", "first life");
    assert_int_equal(node_wait(node_spawn("restore", w->url, 0, -1)), 0);
    /* What waits in the copy waits now: here for the event, and what has ended since does again. */
    OK(w, dur_client_pulse(w->client, &w->err, "w", "Go", "heard"));
    expect(w, "w", "heard");
    OK(w, dur_client_pulse(w->client, &w->err, "ended", "Go", "second life"));
    expect(w, "ended", "second life");
    start(w, "WaitGo", "", "new");
    OK(w, dur_client_pulse(w->client, &w->err, "new", "Go", "on"));
    expect(w, "new", "on");
}

/* ---- held by somebody ---- */

typedef struct opener {
    const char *url;
    dur_provider *store;
    dur_error err;
    int code;
    _Atomic bool done;
} opener;

static void *open_it(void *arg) {
    opener *self = arg;
    self->code = dur_open(&self->store, self->url, &self->err);
    atomic_store(&self->done, true);
    return NULL;
}

/* In the bracket of a caller's own transaction other stores are opened and closed, whatever other threads open. */
static void fault_h32_stores_open_and_close_inside_the_bracket(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    char relaxed[1100], other[1100];
    snprintf(relaxed, sizeof(relaxed), "%s?durability=relaxed", w->url);
    snprintf(other, sizeof(other), "sqlite:%s/other.db", w->dir);
    dur_client_free(w->client);
    dur_provider_close(w->store);
    w->client = NULL;
    OK(w, dur_open(&w->store, relaxed, &w->err));
    dur_provider *before = NULL, *inside = NULL, *again = NULL;
    OK(w, dur_open(&before, other, &w->err));
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path_of(w), &db), SQLITE_OK);
    OK(w, dur_sqlite_begin(w->store, db, &w->err));
    opener strict = { .url = w->url, .err = DUR_ERROR_INIT }; /* it wants what only the writer can change */
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, open_it, &strict), 0);
    pause_ms(50);
    dur_provider_close(before);
    OK(w, dur_open(&inside, other, &w->err));
    OK(w, dur_open(&again, relaxed, &w->err));
    dur_provider_close(again);
    dur_provider_close(inside);
    OK(w, dur_sqlite_commit(w->store, db, &w->err));
    pthread_join(thread, NULL);
    if (strict.code != DUR_OK) fail_msg("open: %s", strict.err.message);
    dur_provider_close(strict.store);
    sqlite3_close(db);
}

static int hold(const char *url, long number) { /* the file, until "free" is there */
    char dir[128];
    sqlite3 *db = NULL;
    (void)number;
    folder_of(dir, url);
    if (sqlite3_open(url + strlen("sqlite:"), &db) != SQLITE_OK) return 1;
    if (sqlite3_exec(db, "CREATE TABLE mine(x); BEGIN EXCLUSIVE", NULL, NULL, NULL) != SQLITE_OK) return 2;
    file_touch(dir, "held");
    while (!file_exists(dir, "free"))
        pause_ms(1);
    if (sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) return 3;
    return sqlite3_close(db) == SQLITE_OK ? 0 : 4;
}

static void fault_h32_a_locked_file_holds_up_no_other(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    char locked[1100], other[1100];
    snprintf(locked, sizeof(locked), "sqlite:%s/locked.db", w->dir);
    snprintf(other, sizeof(other), "sqlite:%s/other.db", w->dir);
    pid_t holder = node_spawn("hold", locked, 0, -1);
    for (uint64_t waited = 0; !file_exists(w->dir, "held"); waited++) {
        if (waited > patience_ms()) fail_msg("the holder does not hold");
        pause_ms(1);
    }
    opener waits = { .url = locked, .err = DUR_ERROR_INIT };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, open_it, &waits), 0);
    pause_ms(50);
    dur_provider *store = NULL;
    OK(w, dur_open(&store, other, &w->err));
    bool waited = !atomic_load(&waits.done); /* this open did not wait for that one */
    dur_provider_close(store);
    file_touch(w->dir, "free");
    pthread_join(thread, NULL);
    assert_int_equal(node_wait(holder), 0);
    assert_true(waited);
    if (waits.code != DUR_OK) fail_msg("open: %s", waits.err.message);
    dur_provider_close(waits.store);
}

/* ---- deleted, renamed, replaced ---- */

static _Atomic int errors_logged;

static void count_errors(void *data, const dur_log_record *record) {
    const char *text = data;
    if (record->level == DUR_LOG_ERROR && strstr(record->message, text) != NULL) atomic_fetch_add(&errors_logged, 1);
}

static void until_refused(world *w) {
    for (uint64_t waited = 0;; waited += 5) {
        if (waited > patience_ms()) fail_msg("a file that is gone takes everything");
        char id[32];
        snprintf(id, sizeof(id), "n-%llu", (unsigned long long)waited);
        int code = dur_client_start(w->client, &w->err, "WaitGo", "", .instance = id);
        if (code == DUR_EIO) return;
        if (code != DUR_OK) fail_msg("%s: %s", dur_code_name(code), w->err.message);
        pause_ms(5);
    }
}

/* From then on nothing is said to be done, to writers and to readers, and the log has said why. */
static void expect_gone(world *w) {
    until_refused(w);
    assert_non_null(strstr(w->err.message, "deleted, renamed or replaced"));
    assert_false(w->err.retryable);
    for (int i = 0; i < 3; i++) {
        dur_instance_info *info = NULL;
        assert_int_equal(dur_client_start(w->client, &w->err, "WaitGo", "", .instance = "late"), DUR_EIO);
        assert_int_equal(dur_client_pulse(w->client, &w->err, "w", "Go", ""), DUR_EIO);
        assert_int_equal(dur_client_info(&info, w->client, "w", &w->err), DUR_EIO);
        pause_ms(5);
    }
}

static void gone_by(world *w, bool runs, void (*how)(const char *path)) {
    if (runs) RUN(w, handlers);
    start(w, "WaitGo", "", "w");
    if (runs) until_status(w, "w", "waits");
    atomic_store(&errors_logged, 0);
    dur_log_set_sink(count_errors, (void *)(uintptr_t) "deleted, renamed or replaced", DUR_LOG_ERROR);
    how(path_of(w));
    expect_gone(w);
    for (uint64_t waited = 0; runs && atomic_load(&errors_logged) == 0; waited += 5) {
        if (waited > patience_ms()) fail_msg("nothing in the log");
        pause_ms(5);
    }
    /* It ends, whatever it says; with a long grace it tries for ten seconds to give back what it holds. */
    if (w->runtime != NULL) (void)dur_runtime_stop(w->runtime, 100, NULL);
    w->runtime = NULL;
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
}

static void delete_file(const char *path) {
    assert_int_equal(unlink(path), 0);
}

static void rename_file(const char *path) {
    char to[1100];
    snprintf(to, sizeof(to), "%s.old", path);
    assert_int_equal(rename(path, to), 0);
}

static void replace_file(const char *path) {
    char copy[1100];
    snprintf(copy, sizeof(copy), "%s.copy", path);
    FILE *file = fopen(copy, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(rename(copy, path), 0);
}

static void fault_h33_a_deleted_file_is_an_error(void **state) {
    if (!on_provider("sqlite")) skip();
    gone_by(*state, true, delete_file);
}
static void fault_h33_a_renamed_file_is_an_error(void **state) {
    if (!on_provider("sqlite")) skip();
    gone_by(*state, true, rename_file);
}
static void fault_h33_a_replaced_file_is_an_error(void **state) {
    if (!on_provider("sqlite")) skip();
    gone_by(*state, true, replace_file);
}
static void fault_h33_a_client_alone_sees_it_too(void **state) {
    if (!on_provider("sqlite")) skip();
    gone_by(*state, false, delete_file);
}

/* A runtime that has nothing to do sees it by itself. */
static void fault_h33_an_idle_runtime_says_so(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    RUN(w, handlers);
    atomic_store(&errors_logged, 0);
    dur_log_set_sink(count_errors, (void *)(uintptr_t) "deleted, renamed or replaced", DUR_LOG_ERROR);
    delete_file(path_of(w));
    for (uint64_t waited = 0; atomic_load(&errors_logged) == 0; waited += 5) {
        if (waited > patience_ms()) fail_msg("nothing in the log");
        pause_ms(5);
    }
    (void)dur_runtime_stop(w->runtime, patience_ms(), NULL);
    w->runtime = NULL;
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
}

/* ---- what SQLite's errors say ---- */

static void fault_h38_a_commit_of_the_callers_own_is_called_one(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path_of(w), &db), SQLITE_OK);
    OK(w, dur_sqlite_begin(w->store, db, &w->err));
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE mine(x); COMMIT", NULL, NULL, NULL), SQLITE_OK);
    dur_start_args args = { .size = sizeof(args), .name = "WaitGo", .instance = "w" };
    assert_int_equal(dur_sqlite_start(w->store, db, &args, &w->err), DUR_ESTATE);
    assert_non_null(strstr(w->err.message, "COMMIT"));
    assert_null(strstr(w->err.message, "rolled back"));
    assert_int_equal(dur_sqlite_commit(w->store, db, &w->err), DUR_ESTATE);
    assert_non_null(strstr(w->err.message, "COMMIT"));
    assert_null(strstr(w->err.message, "rolled back"));
    OK(w, dur_sqlite_begin(w->store, db, &w->err)); /* the bracket is closed all the same */
    assert_int_equal(sqlite3_exec(db, "INSERT INTO mine VALUES(1); ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(dur_sqlite_commit(w->store, db, &w->err), DUR_ESTATE);
    assert_non_null(strstr(w->err.message, "rolled back"));
    start(w, "WaitGo", "", "w");
    sqlite3_close(db);
}

static void fault_h38_a_bare_begin_of_this_process_is_named(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    dur_client_free(w->client);
    dur_provider_close(w->store);
    OK(w, dur_sqlite_open(&w->store, DUR_SQLITE(.path = path_of(w), .busy_ms = 300), &w->err));
    OK(w, dur_client_new(&w->client, w->store, &w->err));
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path_of(w), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(dur_client_start(w->client, &w->err, "WaitGo", "", .instance = "w"), DUR_EBUSY);
    assert_non_null(strstr(w->err.message, "this process"));
    assert_non_null(strstr(w->err.message, "dur_sqlite_begin"));
    assert_null(strstr(w->err.message, "another process"));
    assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    start(w, "WaitGo", "", "w");
    sqlite3_close(db);
}

static int fill(const char *url, long number) { /* until the file may not grow any more; says what the error says */
    char dir[128], path[192], id[32];
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_error err = DUR_ERROR_INIT;
    (void)number;
    folder_of(dir, url);
    snprintf(path, sizeof(path), "%s/says", dir);
    FILE *says = fopen(path, "w");
    if (says == NULL || dur_open(&store, url, &err) != DUR_OK) return 1;
    if (dur_client_new(&client, store, &err) != DUR_OK) return 1;
    signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit is an error then (EFBIG), which is not a full disk */
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 1 << 20, 1 << 20 });
    static char input[65536];
    memset(input, 'x', sizeof(input) - 1);
    int code = DUR_OK;
    for (int i = 0; code == DUR_OK && i < 1000; i++) {
        snprintf(id, sizeof(id), "n-%d", i);
        code = dur_client_start(client, &err, "WaitGo", input, .instance = id);
    }
    fprintf(says, "%s: %s", dur_code_name(code), err.message);
    dur_client_free(client);
    dur_provider_close(store);
    return fclose(says) == 0 ? 0 : 2;
}

static void fault_h38_extended_codes_have_names(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    assert_int_equal(node_wait(node_spawn("fill", w->url, 0, -1)), 0);
    char path[192], text[512] = "";
    snprintf(path, sizeof(path), "%s/says", w->dir);
    FILE *says = fopen(path, "r");
    assert_non_null(says);
    assert_true(fread(text, 1, sizeof(text) - 1, says) > 0);
    fclose(says);
    if (strstr(text, "DUR_EIO") == NULL || strstr(text, "SQLITE_IOERR_WRITE") == NULL) fail_msg("it says \"%s\"", text);
}

static void fault_h38_the_history_view_shows_unreadable_rows(void **state) {
    world *w = *state;
    w->broken = true; /* a row with a number of its own */
    if (!on_provider("sqlite")) skip();
    RUN(w, handlers);
    start(w, "WaitGo", "", "w");
    until_status(w, "w", "waits");
    OK(w, dur_client_pulse(w->client, &w->err, "w", "Go", ""));
    expect(w, "w", "");
    world_stop(w);
    sqlite3 *db = NULL;
    int all = 0, readable = 0, rows = 0;
    assert_int_equal(sqlite3_open(path_of(w), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "SELECT * FROM durite_history", count_row, &all, NULL), SQLITE_OK);
    dur_event_row bad = { .event_id = 900, .kind = DUR_EVENT_UNKNOWN, .json = { "{no json", 8 } };
    OK(w, dur_store_append(w->store, "w", 1, &bad, 1, &w->err));
    bad = (dur_event_row){ .event_id = 901, .kind = DUR_EVENT_UNKNOWN, .json = { "{\"type\":\"Later\"}", 16 } };
    OK(w, dur_store_append(w->store, "w", 1, &bad, 1, &w->err));
    assert_int_equal(sqlite3_exec(db, "SELECT * FROM durite_history ORDER BY event_id", count_row, &rows, NULL),
                     SQLITE_OK);
    assert_int_equal(rows, all + 2);
    assert_int_equal(
        sqlite3_exec(db, "SELECT * FROM durite_history WHERE event_type='Later'", count_row, &readable, NULL),
        SQLITE_OK);
    assert_int_equal(readable, 1);
    sqlite3_close(db);
}

/* ---- H133: a damaged file ---- */

static void run_on(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    sqlite3_close(db);
}

/* A lock that is in the index and not in the table: whoever takes it away finds it again. */
static void fault_h133_an_index_that_has_what_the_table_has_not_is_an_error(void **state) {
    world *w = *state;
    char path[512];
    dur_provider *store = NULL;
    dur_client *client = NULL;
    if (!on_provider("sqlite")) skip();
    snprintf(path, sizeof(path), "%s-index", path_of(w));
    OK(w, dur_sqlite_open(&store, DUR_SQLITE(.path = path), &w->err));
    OK(w, dur_client_new(&client, store, &w->err));
    OK(w, dur_client_start(client, &w->err, "WaitGo", "", .instance = "one"));
    dur_client_free(client);
    dur_provider_close(store);
    run_on(path, "UPDATE dur_instance SET locked_until = 1; PRAGMA writable_schema = ON;"
                 "CREATE TABLE kept AS SELECT * FROM sqlite_master WHERE name = 'dur_instance_lock';"
                 "DELETE FROM sqlite_master WHERE name = 'dur_instance_lock'");
    run_on(path, "UPDATE dur_instance SET locked_until = NULL; PRAGMA writable_schema = ON;"
                 "INSERT INTO sqlite_master SELECT * FROM kept");
    OK(w, dur_sqlite_open(&store, DUR_SQLITE(.path = path), &w->err));
    OK(w, dur_client_new(&client, store, &w->err));
    int code = dur_client_start(client, &w->err, "WaitGo", "", .instance = "two");
    if (code != DUR_ECORRUPT) fail_msg("%s: %s", dur_code_name(code), w->err.message);
    dur_client_free(client);
    dur_provider_close(store);
}

static const hostile_role roles[] = { { "restore", restore }, { "hold", hold }, { "fill", fill } };

static const struct CMUnitTest tests[] = {
    TEST(fault_h60_an_answered_beat_is_not_taken_over),
    TEST(fault_h42_result_codes_are_the_plain_ones),
    TEST(fault_h178_a_pipe_with_an_owners_name_holds_up_nobody),
    TEST(fault_h60_a_beat_reports_what_it_freed_itself),
    TEST(fault_h08_a_restored_file_hides_no_event),
    TEST(fault_h32_stores_open_and_close_inside_the_bracket),
    TEST(fault_h32_a_locked_file_holds_up_no_other),
    TEST(fault_h33_a_deleted_file_is_an_error),
    TEST(fault_h33_a_renamed_file_is_an_error),
    TEST(fault_h33_a_replaced_file_is_an_error),
    TEST(fault_h33_a_client_alone_sees_it_too),
    TEST(fault_h33_an_idle_runtime_says_so),
    TEST(fault_h38_a_commit_of_the_callers_own_is_called_one),
    TEST(fault_h38_a_bare_begin_of_this_process_is_named),
    TEST(fault_h38_extended_codes_have_names),
    TEST(fault_h38_the_history_view_shows_unreadable_rows),
    TEST(fault_h133_an_index_that_has_what_the_table_has_not_is_an_error),
};

HOSTILE_MAIN(roles, tests)
