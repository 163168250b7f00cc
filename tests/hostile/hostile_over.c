/*
 * hostile_over.c: a SQLite store that is in use while its file is written over, or its -wal or -shm is taken away, or
 * others write into its tables.
 */
#include "sqlite_file.h"

#include <durite/sqlite.h>
#include <durite/sys/store.h>

static dur_outcome wait_go(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_status_set(ctx, "waits");
    return dur_complete(ctx, dur_await(dur_pulse(ctx, "Go")));
}

static const dur_handler handlers[] = { DUR_ORCHESTRATION("WaitGo", "1.0.0", wait_go), DUR_HANDLERS_END };

static _Atomic int errors_logged;

static void count_errors(void *data, const dur_log_record *record) {
    const char *text = data;
    if (record->level == DUR_LOG_ERROR && strstr(record->message, text) != NULL) atomic_fetch_add(&errors_logged, 1);
}

static void listen_for(const char *text) {
    atomic_store(&errors_logged, 0);
    dur_log_set_sink(count_errors, (void *)(uintptr_t)text, DUR_LOG_ERROR);
}

static void until_logged(void) {
    for (uint64_t waited = 0; atomic_load(&errors_logged) == 0; waited += 5) {
        if (waited > patience_ms()) fail_msg("nothing in the log");
        pause_ms(5);
    }
}

static void name_with(char out[1200], const char *path, const char *suffix) {
    snprintf(out, 1200, "%s%s", path, suffix);
}

/* As cp does: into the file that is there. */
static void copy_over(const char *from, const char *to) {
    FILE *source = fopen(from, "r"), *target = fopen(to, "w");
    char block[4096];
    assert_non_null(source);
    assert_non_null(target);
    for (size_t size; (size = fread(block, 1, sizeof(block), source)) > 0;)
        assert_int_equal(fwrite(block, 1, size, target), size);
    fclose(source);
    assert_int_equal(fclose(target), 0);
}

static void write_over(const char *path, const char *text) {
    FILE *target = fopen(path, "w");
    assert_non_null(target);
    assert_true(fputs(text, target) >= 0);
    assert_int_equal(fclose(target), 0);
}

/* The times of a file system stand still for some milliseconds: what happens within them is seen later. */
static void until_old(const char *path) {
    for (;;) {
        struct stat state;
        struct timespec now;
        assert_int_equal(stat(path, &state), 0);
        clock_gettime(CLOCK_REALTIME, &now);
        int64_t ms =
            (int64_t)(now.tv_sec - state.st_ctim.tv_sec) * 1000 + (now.tv_nsec - state.st_ctim.tv_nsec) / 1000000;
        if (ms > 50) return;
        pause_ms(5);
    }
}

/* The very next call, and all that follow; the log has said why. */
static void expect_refused(world *w, const char *text) {
    for (int i = 0; i < 3; i++) {
        dur_instance_info *info = NULL;
        int code = dur_client_start(w->client, &w->err, "WaitGo", "", .instance = "late");
        if (code != DUR_EIO) fail_msg("start: %s", dur_code_name(code));
        assert_non_null(strstr(w->err.message, text));
        assert_false(w->err.retryable);
        assert_int_equal(dur_client_pulse(w->client, &w->err, "w", "Go", ""), DUR_EIO);
        assert_int_equal(dur_client_info(&info, w->client, "w", &w->err), DUR_EIO);
    }
    until_logged();
}

static void world_close(world *w) {
    if (w->runtime != NULL) (void)dur_runtime_stop(w->runtime, 100, NULL);
    w->runtime = NULL;
    stepped_runtime = NULL;
    dur_log_set_sink(NULL, NULL, DUR_LOG_ERROR);
    dur_client_free(w->client);
    dur_provider_close(w->store);
    w->client = NULL;
    w->store = NULL;
}

static void world_again(world *w) {
    world_open_store(w);
    OK(w, dur_client_new(&w->client, w->store, &w->err));
}

/* ---- written over ---- */

/* A copy over a store that a runtime and a client use: an error, and the copy is not harmed by what they have. */
static void fault_h83_a_copy_over_a_store_in_use_is_an_error(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    char copy[1200], suffixed[1200];
    name_with(copy, path_of(w), ".copy");
    RUN(w, handlers);
    start(w, "WaitGo", "", "w");
    until_status(w, "w", "waits");
    OK(w, dur_provider_backup(w->store, copy, &w->err));
    start(w, "WaitGo", "", "after");
    until_old(path_of(w));
    listen_for("written over");
    copy_over(copy, path_of(w));
    expect_refused(w, "written over");
    world_close(w);
    /* What the processes had is not in the copy: whoever opens next is told of the -wal that does not belong to it. */
    assert_int_equal(dur_open(&w->store, w->url, &w->err), DUR_ESTATE);
    name_with(suffixed, path_of(w), "-wal");
    assert_int_equal(unlink(suffixed), 0);
    name_with(suffixed, path_of(w), "-shm");
    (void)unlink(suffixed);
    world_again(w);
    OK(w, dur_provider_check(w->store, &w->err));
    assert_true(is_known(w, "w"));
    assert_false(is_known(w, "after"));
}

/* Whatever it is that was written over it, whether the -wal holds something or not, without a runtime. */
static void fault_h83_anything_over_a_store_in_use_is_an_error(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    for (int kind = 0; kind < 6; kind++) {
        char copy[1200];
        if (kind > 0) world_again(w);
        name_with(copy, path_of(w), ".copy");
        if (kind % 2 == 0) start(w, "WaitGo", "", "w");
        OK(w, dur_provider_backup(w->store, copy, &w->err));
        if (kind % 2 == 0) start(w, "WaitGo", "", "after");
        until_old(path_of(w));
        listen_for("written over");
        if (kind / 2 == 0) copy_over(copy, path_of(w));
        if (kind / 2 == 1) write_over(path_of(w), "");
        if (kind / 2 == 2) write_over(path_of(w), "this is no database, and somebody has saved it here");
        expect_refused(w, "written over");
        world_close(w);
        static const char *const all[] = { "", "-wal", "-shm", ".copy" };
        for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
            name_with(copy, path_of(w), all[i]);
            (void)unlink(copy);
        }
    }
}

/* A runtime that has nothing to do sees it by itself. */
static void fault_h83_an_idle_runtime_sees_what_was_written_over(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    char copy[1200];
    name_with(copy, path_of(w), ".copy");
    OK(w, dur_provider_backup(w->store, copy, &w->err));
    RUN(w, handlers);
    start(w, "WaitGo", "", "w");
    until_status(w, "w", "waits");
    until_old(path_of(w));
    listen_for("written over");
    copy_over(copy, path_of(w));
    until_logged();
    world_close(w);
}

/* ---- without its -wal or -shm ---- */

enum { LOSE_WAL, LOSE_SHM, LOSE_BOTH, MOVE_WAL, LOSE_KINDS };

static void lose(const char *path, int kind) {
    char name[1200], away[1300];
    name_with(name, path, "-wal");
    snprintf(away, sizeof(away), "%s.away", name);
    if (kind == LOSE_WAL || kind == LOSE_BOTH) assert_int_equal(unlink(name), 0);
    if (kind == MOVE_WAL) assert_int_equal(rename(name, away), 0);
    name_with(name, path, "-shm");
    if (kind == LOSE_SHM || kind == LOSE_BOTH) assert_int_equal(unlink(name), 0);
}

static void fault_h83_a_store_in_use_without_its_wal_is_an_error(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    for (int kind = 0; kind < LOSE_KINDS; kind++) {
        char id[32];
        snprintf(id, sizeof(id), "w-%d", kind);
        if (kind > 0) world_again(w);
        start(w, "WaitGo", "", id);
        listen_for("-wal or -shm");
        lose(path_of(w), kind);
        expect_refused(w, "-wal or -shm");
        world_close(w);
    }
    world_again(w); /* what had been accepted is there */
    for (int kind = 0; kind < LOSE_KINDS; kind++) {
        char id[32];
        snprintf(id, sizeof(id), "w-%d", kind);
        assert_true(is_known(w, id));
    }
    OK(w, dur_provider_check(w->store, &w->err));
}

/* Starts until it is refused, says after each that it was accepted, and dies. */
static int start_until_refused(const char *url, long number) {
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_error err = DUR_ERROR_INIT;
    char dir[128], id[48];
    folder_of(dir, url);
    if (dur_open(&store, url, &err) != DUR_OK || dur_client_new(&client, store, &err) != DUR_OK) return 1;
    for (int i = 0; i < 5000; i++) {
        snprintf(id, sizeof(id), "i-%ld-%d", number, i);
        int code = dur_client_start(client, &err, "WaitGo", "", .instance = id);
        if (code == DUR_EIO) break;
        if (code != DUR_OK) return 2;
        file_touch(dir, id);
    }
    raise(SIGKILL); /* also when it is never refused: then what was accepted is lost */
    return 3;
}

/* What was accepted before the -wal went, and meanwhile, is in the file, although the process is killed at once. */
static void fault_h83_nothing_is_lost_with_a_wal_that_was_deleted(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    for (int kind = 0; kind < LOSE_KINDS; kind++) {
        char url[200], path[160], dir[128], id[48];
        dur_provider *store = NULL;
        dur_client *client = NULL;
        snprintf(dir, sizeof(dir), "%s/%d", w->dir, kind);
        assert_int_equal(mkdir(dir, 0700), 0);
        snprintf(path, sizeof(path), "%s/lost.db", dir);
        snprintf(url, sizeof(url), "sqlite:%s", path);
        pid_t pid = node_spawn("start_until_refused", url, kind, -1);
        snprintf(id, sizeof(id), "i-%d-%d", kind, 20);
        for (uint64_t waited = 0; !file_exists(dir, id); waited++) {
            if (waited > patience_ms()) fail_msg("nothing is accepted");
            pause_ms(1);
        }
        lose(path, kind);
        int status = node_wait(pid);
        if (!WIFSIGNALED(status)) fail_msg("the writer ended with status %d", status);
        OK(w, dur_open(&store, url, &w->err));
        OK(w, dur_client_new(&client, store, &w->err));
        int i = 0;
        for (snprintf(id, sizeof(id), "i-%d-%d", kind, i); file_exists(dir, id);
             snprintf(id, sizeof(id), "i-%d-%d", kind, ++i)) {
            dur_instance_info *info = NULL;
            int code = dur_client_info(&info, client, id, &w->err);
            if (code != DUR_OK) fail_msg("kind %d: %s was accepted, and is %s", kind, id, dur_code_name(code));
            dur_instance_info_free(info);
        }
        print_message("kind %d: %d accepted\n", kind, i);
        OK(w, dur_provider_check(store, &w->err));
        dur_client_free(client);
        dur_provider_close(store);
    }
}

/* ---- what is no reason ---- */

/* Writes over many checkpoints, reads in between, and ends well. */
static int write_and_read(const char *url, long number) {
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_error err = DUR_ERROR_INIT;
    static char input[3000];
    char id[48];
    memset(input, 'x', sizeof(input) - 1);
    const dur_sqlite_options *how =
        DUR_SQLITE(.path = url + strlen("sqlite:"), .wal_pages = 20, .relaxed_durability = true);
    int code = dur_sqlite_open(&store, how, &err);
    if (code == DUR_OK) code = dur_client_new(&client, store, &err);
    for (int i = 0; code == DUR_OK && i < 150; i++) {
        dur_instance_info *info = NULL;
        snprintf(id, sizeof(id), "i-%ld-%d", number, i);
        code = dur_client_start(client, &err, "WaitGo", input, .instance = id);
        if (code == DUR_OK) code = dur_client_info(&info, client, id, &err);
        dur_instance_info_free(info);
    }
    if (code != DUR_OK) fprintf(stderr, "node %ld: %s: %s\n", number, dur_code_name(code), err.message);
    dur_client_free(client);
    dur_provider_close(store);
    return code != DUR_OK;
}

/* SQLite before 3.51.3 destroys the file where somebody starts the -wal anew meanwhile: not without the write lock. */
static void neighbour_checkpoint(sqlite3 *db, sqlite3 *locker) {
    if (sqlite3_exec(locker, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK) return;
    (void)sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    assert_int_equal(sqlite3_exec(locker, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
}

/* Checkpoints of several processes and of sqlite3, files that come and go beside the store, a touch. */
static void fault_h83_checkpoints_are_no_reason_to_refuse(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    enum { NODES = 3 };
    pid_t pids[NODES];
    sqlite3 *db = NULL, *locker = NULL;
    for (int i = 0; i < NODES; i++)
        pids[i] = node_spawn("write_and_read", w->url, i, -1);
    assert_int_equal(sqlite3_open(path_of(w), &db), SQLITE_OK);
    assert_int_equal(sqlite3_open(path_of(w), &locker), SQLITE_OK);
    sqlite3_busy_timeout(locker, 1000);
    int left = NODES;
    for (int round = 0; left > 0; round++) {
        char id[32];
        snprintf(id, sizeof(id), "r-%d", round);
        start(w, "WaitGo", "", id);
        assert_true(is_known(w, id));
        neighbour_checkpoint(db, locker);
        if (round % 8 == 0) assert_int_equal(utimensat(AT_FDCWD, path_of(w), NULL, 0), 0);
        file_touch(w->dir, id);
        left = NODES;
        for (int i = 0; i < NODES; i++) {
            int status = 0;
            if (pids[i] > 0 && node_gone(pids[i], &status)) {
                if (status != 0) fail_msg("a node ended with status %d", status);
                pids[i] = 0;
            }
            left -= pids[i] == 0;
        }
    }
    sqlite3_close(db);
    sqlite3_close(locker);
    OK(w, dur_provider_check(w->store, &w->err));
}

static _Atomic int triggers_told, conflicts_told;

static void hear_of_triggers(void *data, const dur_log_record *record) {
    (void)data;
    if (strstr(record->message, "a trigger of somebody else") != NULL) atomic_fetch_add(&triggers_told, 1);
    if (strstr(record->message, "has changed") != NULL) atomic_fetch_add(&conflicts_told, 1);
}

/* It is named, nothing is counted against the instance, and things go on when it is gone. */
static void a_trigger_of_others_is_no_changed_history(void **state) {
    world *w = *state;
    sqlite3 *db = NULL;
    if (!on_provider("sqlite:")) skip();
    RUN(w, handlers);
    start(w, "WaitGo", "", "a");
    until_status(w, "a", "waits");
    assert_int_equal(sqlite3_open(path_of(w), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 60000);
    assert_int_equal(sqlite3_exec(db,
                                  "CREATE TRIGGER no_way BEFORE INSERT ON dur_history BEGIN SELECT RAISE(ABORT, 'no "
                                  "way'); END",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    dur_log_set_sink(hear_of_triggers, NULL, DUR_LOG_DEBUG);
    OK(w, dur_client_pulse(w->client, &w->err, "a", "Go", "gone"));
    for (uint64_t end_ms = now_ms() + patience_ms(); atomic_load(&triggers_told) == 0 && now_ms() < end_ms;)
        pause_ms(1);
    assert_int_equal(sqlite3_exec(db, "DROP TRIGGER no_way", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    expect(w, "a", "gone");
    dur_log_set_sink(NULL, NULL, DUR_LOG_DEBUG);
    assert_true(atomic_load(&triggers_told) > 0);
    assert_int_equal(atomic_load(&conflicts_told), 0);
}

static const hostile_role roles[] = {
    { "start_until_refused", start_until_refused },
    { "write_and_read", write_and_read },
};

static const struct CMUnitTest tests[] = {
    TEST(fault_h83_a_copy_over_a_store_in_use_is_an_error),
    TEST(fault_h83_anything_over_a_store_in_use_is_an_error),
    TEST(fault_h83_an_idle_runtime_sees_what_was_written_over),
    TEST(fault_h83_a_store_in_use_without_its_wal_is_an_error),
    TEST(fault_h83_nothing_is_lost_with_a_wal_that_was_deleted),
    TEST(fault_h83_checkpoints_are_no_reason_to_refuse),
    TEST(a_trigger_of_others_is_no_changed_history),
};

HOSTILE_MAIN(roles, tests)
