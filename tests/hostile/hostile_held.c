/*
 * hostile_held.c: a SQLite file whose write lock another program holds, and does not give back for long.
 */
#include "sqlite_file.h"

#include <durite/sqlite.h>
#include <durite/sys/store.h>
#include <pthread.h>

static dur_outcome wait_go(dur_ctx *ctx, const char *input) {
    (void)input;
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("WaitGo", "1.0.0", wait_go),
    DUR_HANDLERS_END,
};

/* ---- the other program ---- */

static int hold(const char *url, long number) { /* as sqlite3 with BEGIN IMMEDIATE, until "free" is there */
    char dir[128];
    sqlite3 *db = NULL;
    (void)number;
    folder_of(dir, url);
    if (sqlite3_open(url + strlen("sqlite:"), &db) != SQLITE_OK) return 1;
    sqlite3_busy_timeout(db, 100000);
    if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK) return 2;
    file_touch(dir, "held");
    while (!file_exists(dir, "free"))
        pause_ms(1);
    if (sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK) return 3;
    return sqlite3_close(db) == SQLITE_OK ? 0 : 4;
}

static pid_t hold_begins(const world *w) {
    pid_t holder = node_spawn("hold", w->url, 0, -1);
    for (uint64_t waited = 0; !file_exists(w->dir, "held"); waited++) {
        if (waited > patience_ms()) fail_msg("the holder does not hold");
        pause_ms(1);
    }
    return holder;
}

static void hold_ends(const world *w, pid_t holder) {
    file_touch(w->dir, "free");
    assert_int_equal(node_wait(holder), 0);
}

/* ---- looking ---- */

static void look_at_everything(world *w, const char *url, const dur_open_options *how) {
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_instance_info *info = NULL;
    dur_instance_list *list = NULL;
    char *history = NULL;
    OK(w, dur_open_ex(&store, url, how, &w->err));
    OK(w, dur_client_new(&client, store, &w->err));
    OK(w, dur_client_info(&info, client, "w", &w->err));
    OK(w, dur_client_list(&list, client, NULL, &w->err));
    assert_int_equal(list->count, 1);
    OK(w, dur_client_history(&history, client, "w", 0, &w->err));
    OK(w, dur_provider_check(store, &w->err));
    dur_instance_info_free(info);
    dur_instance_list_free(list);
    dur_free(history);
    dur_client_free(client);
    dur_provider_close(store);
}

static void fault_h67_opening_and_looking_need_no_write_lock(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    RUN(w, handlers);
    start(w, "WaitGo", "", "w");
    until_history(w, "w", "ExternalSubscribed", 1);
    world_stop(w);
    reopen(w, NULL);
    pid_t holder = hold_begins(w);
    look_at_everything(w, w->url, NULL);
    /* … also by the first process after the machine was started again: for the file another clock is another boot */
    dur_fake_world *fake = dur_fake_world_new(1700000000000u, 1);
    look_at_everything(w, w->url, DUR_OPEN_OPTIONS(.world = dur_fake_world_get(fake)));
    dur_fake_world_free(fake);
    hold_ends(w, holder);
}

/* ---- making ---- */

/* A database of others, as they have it: not in WAL mode. */
static void of_others(const char *path) {
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE of_others (x)", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* A file that is no store yet and that another program writes: SQLite does not wait in order to change the mode. */
static void fault_h141_opening_waits_for_who_writes_the_file(void **state) {
    enum { BUSY_MS = 300 };
    world *w = *state, other = { 0 };
    if (!on_provider("sqlite")) skip();
    snprintf(other.url, sizeof(other.url), "sqlite:%s/other.db", w->dir);
    snprintf(other.dir, sizeof(other.dir), "%s", w->dir);
    dur_sqlite_options how = { .size = sizeof(how), .path = path_of(&other), .busy_ms = BUSY_MS };
    of_others(path_of(&other));
    pid_t holder = hold_begins(&other);
    uint64_t from_ms = now_ms();
    assert_int_equal(dur_sqlite_open(&other.store, &how, &other.err), DUR_EBUSY);
    assert_true(now_ms() - from_ms >= BUSY_MS - 1); /* a clock of whole milliseconds */
    hold_ends(&other, holder);
    OK(&other, dur_sqlite_open(&other.store, &how, &other.err));
    dur_provider_close(other.store);
}

/* ---- writing ---- */

typedef struct writer {
    world *w;
    const char *instance;
    bool raises;
    dur_error err;
    int code;
    uint64_t took_ms;
    _Atomic bool done;
} writer;

static void *write_once(void *arg) {
    writer *self = arg;
    uint64_t from = now_ms();
    self->code = self->raises ? dur_client_pulse(self->w->client, &self->err, self->instance, "Go", "late")
                              : dur_client_start(self->w->client, &self->err, "WaitGo", "", .instance = self->instance);
    self->took_ms = now_ms() - from;
    atomic_store(&self->done, true);
    return NULL;
}

static _Atomic int said;

static void count_lines(void *data, const dur_log_record *record) {
    (void)data;
    if (record->level <= DUR_LOG_WARN && strstr(record->message, "write lock") != NULL) atomic_fetch_add(&said, 1);
}

static void until_said(const writer *waits, int times) {
    for (uint64_t waited = 0; atomic_load(&said) < times; waited += 5) {
        if (waited > patience_ms()) fail_msg("nothing in the log");
        if (atomic_load(&waits->done)) fail_msg("the call ended, and the log has said %d", atomic_load(&said));
        pause_ms(5);
    }
}

/* What waits says so in the log, more than once, and goes on when it can. */
static void waiting_is_said(world *w, bool runs) {
    if (!on_provider("sqlite")) skip();
    pthread_t thread;
    if (runs) RUN(w, handlers);
    atomic_store(&said, 0);
    dur_log_set_sink(count_lines, NULL, DUR_LOG_WARN);
    pid_t holder = hold_begins(w);
    writer waits = { .w = w, .instance = "w", .err = DUR_ERROR_INIT };
    assert_int_equal(pthread_create(&thread, NULL, write_once, &waits), 0);
    until_said(&waits, runs ? 2 : 1); /* after one second, and after three */
    hold_ends(w, holder);
    pthread_join(thread, NULL);
    if (waits.code != DUR_OK) fail_msg("%s: %s", dur_code_name(waits.code), waits.err.message);
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
    if (!runs) return;
    OK(w, dur_client_pulse(w->client, &w->err, "w", "Go", "on"));
    expect(w, "w", "on");
}

static void fault_h67_a_waiting_runtime_says_so(void **state) {
    waiting_is_said(*state, true);
}
static void fault_h67_a_waiting_client_says_so(void **state) {
    waiting_is_said(*state, false);
}

/* Each call ends by itself while the lock is held, having done nothing, and can be made again. */
static void blocked_calls_end(world *w, bool runs) {
    enum { WRITERS = 6, BUSY_MS = 400 };
    if (!on_provider("sqlite")) skip();
    writer all[WRITERS];
    pthread_t threads[WRITERS];
    char ids[WRITERS][16];
    reopen(w, DUR_SQLITE(.path = path_of(w), .busy_ms = BUSY_MS));
    if (runs) RUN(w, handlers);
    start(w, "WaitGo", "", "known");
    if (runs) until_history(w, "known", "ExternalSubscribed", 1);
    pid_t holder = hold_begins(w);
    for (int i = 0; i < WRITERS; i++) {
        snprintf(ids[i], sizeof(ids[i]), "w-%d", i);
        all[i] = (writer){ .w = w, .instance = i % 3 == 2 ? "known" : ids[i], .raises = i % 3 == 2 };
        assert_int_equal(pthread_create(&threads[i], NULL, write_once, &all[i]), 0);
        pause_ms(BUSY_MS / 4); /* they come one after the other, while others wait */
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        print_message("%llu ms ", (unsigned long long)all[i].took_ms);
        if (all[i].code != DUR_EBUSY) fail_msg("call %d: %s %s", i, dur_code_name(all[i].code), all[i].err.message);
        if (strstr(all[i].err.message, "write lock") == NULL) fail_msg("it says \"%s\"", all[i].err.message);
        assert_true(all[i].err.retryable);
    }
    print_message("\n");
    hold_ends(w, holder);
    for (int i = 0; i < WRITERS; i++)
        if (i % 3 != 2) start(w, "WaitGo", "", ids[i]);
    if (!runs) return;
    OK(w, dur_client_pulse(w->client, &w->err, "known", "Go", "once"));
    expect(w, "known", "once"); /* nothing came late */
    for (int i = 0; i < WRITERS; i++) {
        if (i % 3 == 2) continue;
        until_history(w, ids[i], "ExternalSubscribed", 1);
        OK(w, dur_client_pulse(w->client, &w->err, ids[i], "Go", "on"));
        expect(w, ids[i], "on");
    }
}

static void fault_h67_blocked_calls_beside_a_runtime_end(void **state) {
    blocked_calls_end(*state, true);
}
static void fault_h67_blocked_calls_of_clients_end(void **state) {
    blocked_calls_end(*state, false);
}

/* ---- a reader that stays ---- */

/* While somebody reads from an old snapshot the -wal grows; afterwards it is as small as before, while it is used. */
static void fault_h84_a_wal_that_has_grown_is_cut_off(void **state) {
    enum { STARTS_MAX = 20000, GROWN = 8 << 20, SMALL = 3 << 20 };
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    static char input[20000];
    char wal[1100], id[32];
    struct stat now = { .st_size = 0 };
    sqlite3 *db = NULL;
    int rows = 0, started = 0;
    memset(input, 'x', sizeof(input) - 1);
    snprintf(wal, sizeof(wal), "%s-wal", path_of(w));
    reopen(w, DUR_SQLITE(.path = path_of(w), .wal_pages = 50, .relaxed_durability = true));
    assert_int_equal(sqlite3_open(path_of(w), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN; SELECT * FROM dur_meta", count_row, &rows, NULL), SQLITE_OK);
    for (; started < STARTS_MAX && now.st_size < GROWN; started++) {
        snprintf(id, sizeof(id), "i-%d", started);
        start(w, "WaitGo", input, id);
        assert_int_equal(stat(wal, &now), 0);
    }
    if (started == STARTS_MAX) fail_msg("the reader holds nothing up: that should be the test's fault");
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    for (; started < STARTS_MAX && now.st_size > SMALL; started++) {
        snprintf(id, sizeof(id), "i-%d", started);
        start(w, "WaitGo", input, id);
        assert_int_equal(stat(wal, &now), 0);
    }
    if (started == STARTS_MAX) fail_msg("the -wal stays at %lld bytes", (long long)now.st_size);
}

/* ---- H97: leases that were taken away, and a round that fails ---- */

static void fault_h99_a_lost_lease_is_told_behind_a_round_that_fails(void **state) {
    world *w = *state;
    dur_lane *lane = NULL;
    if (!on_provider("sqlite")) skip();
    reopen(w, DUR_SQLITE(.path = path_of(w), .busy_ms = 20));
    dur_arena *arena = dur_arena_new();
    dur_waker *waker = dur_waker_new();
    OK(w, dur_store_owner_register(w->store, &(dur_owner_options){ .owner = "me", .timeout_ms = 60000 }, &w->err));
    OK(w, dur_store_lane_open(w->store, &(dur_lane_options){ .owner = "me", .waker = waker }, &lane, &w->err));
    start(w, "WaitGo", "", "w");
    dur_round round = { .fetch = &(dur_fetch){ .owner = "me", .max = 1 } };
    OK(w, dur_store_lane_round(lane, arena, &round, &w->err));
    assert_int_equal(round.item_count, 1);
    dur_delete_result deleted;
    OK(w, dur_store_delete_instances(w->store, &(const char *){ "w" }, 1, true, &deleted, &w->err));
    pid_t holder = hold_begins(w);
    round = (dur_round){ .turns = NULL };
    assert_int_equal(dur_store_lane_round(lane, arena, &round, &w->err), DUR_EBUSY);
    hold_ends(w, holder);
    round = (dur_round){ .turns = NULL };
    OK(w, dur_store_lane_round(lane, arena, &round, &w->err));
    assert_int_equal(round.lost_count, 1);
    assert_string_equal(round.lost[0], "w");
    dur_store_lane_close(lane);
    OK(w, dur_store_owner_release(w->store, "me", &w->err));
    dur_waker_free(waker);
    dur_arena_free(arena);
}

static const hostile_role roles[] = { { "hold", hold } };

static const struct CMUnitTest tests[] = {
    TEST(fault_h67_opening_and_looking_need_no_write_lock),
    TEST(fault_h141_opening_waits_for_who_writes_the_file),
    TEST(fault_h67_a_waiting_runtime_says_so),
    TEST(fault_h67_a_waiting_client_says_so),
    TEST(fault_h67_blocked_calls_beside_a_runtime_end),
    TEST(fault_h67_blocked_calls_of_clients_end),
    TEST(fault_h84_a_wal_that_has_grown_is_cut_off),
    TEST(fault_h99_a_lost_lease_is_told_behind_a_round_that_fails),
};

HOSTILE_MAIN(roles, tests)
