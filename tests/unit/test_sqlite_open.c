/*
 * test_sqlite_open.c: opening, the schema, durability, copies, the size of the WAL.
 */
#include "sqlite_test.h"
#include <fcntl.h>
#include <sys/stat.h>

static uint64_t number(sqlite3 *db, const char *sql) {
    uint64_t out = 0;
    dur_error err = DUR_ERROR_INIT;
    if (dur__sq_pragma_u64(db, sql, &out, &err) != DUR_OK) fail_msg("%s: %s", sql, err.message);
    return out;
}

static void exec(const char *path, const char *sql) {
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

static void durability_is_what_was_asked_for(void **state) {
    fixture *f = *state;
    assert_int_equal(number(file_of(f)->writer.db, "PRAGMA synchronous"), 2);
    assert_int_equal(number(file_of(f)->writer.db, "PRAGMA page_size"), 4096);
    assert_int_equal(number(file_of(f)->writer.db, "PRAGMA auto_vacuum"), 2);
    char url[440];
    snprintf(url, sizeof url, "sqlite:%s/relaxed.db?durability=relaxed", f->folder);
    dur_provider *relaxed = NULL, *full = NULL;
    OK(f, dur_open(&relaxed, url, &f->err));
    sqlite3 *writer = dur__sq_file_of(relaxed)->writer.db;
    assert_int_equal(number(writer, "PRAGMA synchronous"), 1);
    url[strcspn(url, "?")] = '\0'; /* a second handle that wants more gets it, for both */
    OK(f, dur_open(&full, url, &f->err));
    assert_ptr_equal(dur__sq_file_of(full), dur__sq_file_of(relaxed));
    assert_int_equal(number(writer, "PRAGMA synchronous"), 2);
    dur_provider_close(relaxed);
    dur_provider_close(full);
}

static void a_bad_value_is_named(void **state) {
    fixture *f = *state;
    static const char *const bad[] = { "busy_ms=-1", "busy_ms=0", "busy_ms=", "durability=half", "create=yes" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char url[440], named[64];
        dur_provider *store = NULL;
        snprintf(url, sizeof url, "sqlite:%s/bad.db?%s", f->folder, bad[i]);
        snprintf(named, sizeof named, "\"%s\" is no such value", bad[i]);
        assert_int_equal(dur_open(&store, url, &f->err), DUR_EINVAL);
        assert_non_null(strstr(f->err.message, named));
    }
}

static void the_file_is_private(void **state) {
    fixture *f = *state;
    struct stat info;
    assert_int_equal(stat(f->path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
}

static int opening(fixture *f, const char *url) {
    dur_provider *store = NULL;
    dur_error_clear(&f->err);
    int code = dur_open(&store, url, &f->err);
    if (code == DUR_OK) dur_provider_close(store);
    return code;
}

static void what_cannot_be_opened_says_why(void **state) {
    fixture *f = *state;
    char path[400], url[440];
    snprintf(path, sizeof path, "%s/text", f->folder);
    FILE *out = fopen(path, "w");
    for (int i = 0; i < 500; i++)
        fputs("this is no database ", out);
    fclose(out);
    snprintf(url, sizeof url, "sqlite:%s", path);
    assert_int_equal(opening(f, url), DUR_ECORRUPT);
    assert_non_null(strstr(f->err.message, "not a"));
    snprintf(url, sizeof url, "sqlite:%s/none.db?create=0", f->folder);
    assert_int_equal(opening(f, url), DUR_ENOTFOUND);
    snprintf(url, sizeof url, "sqlite:%s/no/such/folder.db", f->folder);
    assert_int_equal(opening(f, url), DUR_ENOTFOUND);
    snprintf(url, sizeof url, "sqlite:%s", f->folder);
    assert_int_equal(opening(f, url), DUR_EINVAL);
    snprintf(url, sizeof url, "sqlite:%s?colour=red", f->path);
    assert_int_equal(opening(f, url), DUR_EINVAL);
    assert_non_null(strstr(f->err.message, "colour=red"));
    assert_int_equal(opening(f, "sqlite:"), DUR_EINVAL);
}

static void a_newer_schema_is_refused(void **state) {
    fixture *f = *state;
    dur_provider_close(f->store);
    f->store = NULL;
    exec(f->path, "UPDATE dur_meta SET value=99 WHERE name='schema'");
    assert_int_equal(opening(f, f->url), DUR_ESCHEMA);
    assert_non_null(strstr(f->err.message, "99"));
    exec(f->path, "UPDATE dur_meta SET value=1 WHERE name='schema'; PRAGMA user_version=7");
    assert_int_equal(opening(f, f->url), DUR_ESCHEMA); /* our own file: the header counts, too */
    exec(f->path, "PRAGMA user_version=1");
    OK(f, dur_open(&f->store, f->url, &f->err));
}

/* As a later version of this library would: its step 2, on a file of version 1 with something in it. */
static void an_older_file_becomes_a_newer_one(void **state) {
    fixture *f = *state;
    static const dur__sq_migration later[] = {
        { 2, "ALTER TABLE dur_instance ADD COLUMN colour TEXT NOT NULL DEFAULT 'red'" },
        { 2, "CREATE TABLE dur_later(x)" },
    };
    const dur__sq_migration broken[] = { later[0], { 2, "CREATE TABLE dur_meta(x)" } };
    sqlite3 *db = file_of(f)->writer.db;
    assert_int_equal(number(db, "SELECT value FROM dur_meta WHERE name='schema'"), 1);
    exec(f->path, "INSERT INTO dur_instance(id, name) VALUES('old', 'N')");
    assert_int_not_equal(dur__sq_migrate(db, broken, 2, &f->err), DUR_OK); /* nothing of it is left */
    assert_int_equal(number(db, "SELECT count(*) FROM pragma_table_info('dur_instance') WHERE name='colour'"), 0);
    assert_int_equal(number(db, "SELECT value FROM dur_meta WHERE name='schema'"), 1);
    OK(f, dur__sq_migrate(db, later, 2, &f->err));
    OK(f, dur__sq_migrate(db, later, 2, &f->err)); /* once */
    assert_int_equal(number(db, "SELECT count(*) FROM dur_instance WHERE id='old' AND colour='red'"), 1);
    assert_int_equal(number(db, "SELECT value FROM dur_meta WHERE name='schema'"), 2);
    assert_int_equal(number(db, "PRAGMA user_version"), 2);
    dur_provider_close(f->store);
    f->store = NULL;
    assert_int_equal(opening(f, f->url), DUR_ESCHEMA); /* this library knows only version 1 */
    assert_non_null(strstr(f->err.message, "schema version 2, this library knows up to 1"));
}

/* Steps of the virtual machine that all statements of the readers have taken; counted anew from here on. */
static uint64_t steps_of_readers(fixture *f) {
    uint64_t steps = 0;
    DUR__LIST_EACH(&file_of(f)->pool.readers, at) {
        sqlite3 *db = DUR__CONTAINER(at, dur__sq_conn, link)->db;
        for (sqlite3_stmt *stmt = sqlite3_next_stmt(db, NULL); stmt != NULL; stmt = sqlite3_next_stmt(db, stmt))
            steps += (uint64_t)sqlite3_stmt_status(stmt, SQLITE_STMTSTATUS_VM_STEP, 1);
    }
    return steps;
}

/* fault H39, as far as it can be seen from inside only: what a list costs goes by what it lists. */
static void a_list_by_status_reads_what_it_lists(void **state) {
    fixture *f = *state;
    static const struct {
        dur_instance_query query;
        size_t count;
    } lists[] = { { { .status = DUR_STATUS_RUNNING }, 11 },
                  { { .status = DUR_STATUS_RUNNING, .limit = 3 }, 3 },
                  { { .status = DUR_STATUS_FAILED }, 10 },
                  { { .status = DUR_STATUS_COMPLETED, .limit = 10 }, 10 },
                  { { .parent = "00001" }, 1 },
                  { { .suspended_only = true }, 10 } };
    enum { MANY = 5000 };
    exec(f->path, "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
                  " INSERT INTO dur_instance(id, name, version, execution, status, started, suspended)"
                  " SELECT printf('%05d', i), 'N', '1.0.0', 1, CASE WHEN i > 4990 THEN 1 WHEN i > 4980 THEN 3 ELSE 2"
                  " END, 1, CASE WHEN i > 4990 THEN 'why' END FROM n");
    exec(f->path, "INSERT INTO dur_instance(id) VALUES('waits');" /* no more than a start, a call of 00001 (H70) */
                  "INSERT INTO dur_queue(key, due, ord, at, kind, handler, parent, json) SELECT key, 0, 1, 1, 0, 'N@',"
                  " '00001', '{}' FROM dur_instance WHERE id='waits'");
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        dur_instance_row *rows = NULL;
        size_t count = 0;
        (void)steps_of_readers(f);
        OK(f, dur_store_list_instances(f->store, f->arena, &lists[i].query, &rows, &count, &f->err));
        uint64_t steps = steps_of_readers(f);
        assert_int_equal(count, lists[i].count);
        assert_true(steps > 0 && steps < MANY); /* a walk takes several for each row */
    }
}

static void an_application_keeps_its_own_file(void **state) {
    fixture *f = *state;
    char path[400], url[440];
    snprintf(path, sizeof path, "%s/app.db", f->folder);
    snprintf(url, sizeof url, "sqlite:%s", path);
    exec(path, "CREATE TABLE instances(mine); INSERT INTO instances VALUES(1); PRAGMA user_version=42");
    dur_provider *store = NULL;
    OK(f, dur_open(&store, url, &f->err));
    OK(f, dur_store_check(store, &f->err));
    sqlite3 *db = dur__sq_file_of(store)->writer.db;
    assert_int_equal(number(db, "PRAGMA user_version"), 42);
    assert_int_equal(number(db, "SELECT count(*) FROM instances"), 1);
    dur_provider_close(store);
    OK(f, dur_open(&store, url, &f->err));
    dur_provider_close(store);
}

static void two_handles_share_one_writer(void **state) {
    fixture *f = *state;
    dur_provider *second = NULL;
    char link_path[400], url[440];
    snprintf(link_path, sizeof link_path, "%s/other-name.db", f->folder);
    assert_int_equal(symlink(f->path, link_path), 0);
    snprintf(url, sizeof url, "sqlite:%s", link_path);
    OK(f, dur_open(&second, url, &f->err));
    assert_ptr_equal(dur__sq_file_of(second), file_of(f));
    dur_message_row start = start_of(f, "a");
    OK(f, dur_store_enqueue_for_orchestrator(second, &start, 0, &f->err));
    dur_provider_close(second);
    dur_orchestration_item item;
    OK(f, dur_store_fetch_orchestration_item(f->store, f->arena, &(dur_fetch){ .lock_ms = 1000 }, &item, &f->err));
    assert_string_equal(item.instance, "a");
}

static void memory_is_one_store_per_open(void **state) {
    fixture *f = *state;
    dur_provider *one = NULL, *two = NULL;
    OK(f, dur_open(&one, "sqlite::memory:", &f->err));
    OK(f, dur_open(&two, "sqlite::memory:", &f->err));
    dur_message_row start = start_of(f, "a");
    bool existed = false;
    OK(f, dur_store_enqueue_start(one, &start, DUR_EXISTS_FAIL, 0, &existed, &f->err));
    dur_instance_row row;
    OK(f, dur_store_get_instance(one, f->arena, "a", &row, &f->err));
    assert_true(row.start_pending);
    assert_int_equal(dur_store_get_instance(two, f->arena, "a", &row, &f->err), DUR_ENOTFOUND);
    dur_provider_close(one);
    dur_provider_close(two);
}

static void put(fixture *f, int from, int count) {
    for (int i = from; i < from + count; i++) {
        char id[32];
        snprintf(id, sizeof id, "i%d", i);
        dur_message_row start = start_of(f, id);
        OK(f, dur_store_enqueue_for_orchestrator(f->store, &start, 0, &f->err));
    }
}

static void the_wal_stays_bounded(void **state) {
    fixture *f = *state;
    dur_provider_close(f->store);
    f->store = NULL;
    OK(f, dur_sqlite_open(&f->store, DUR_SQLITE(.path = f->path, .wal_pages = 50), &f->err));
    put(f, 0, 400);
    char wal[400];
    struct stat info;
    snprintf(wal, sizeof wal, "%s-wal", f->path);
    assert_int_equal(stat(wal, &info), 0);
    assert_true(info.st_size <= 1024 * 1024); /* it grows by so much; 400 commits are 8 MiB */
}

static void a_copy_made_while_writing_can_be_used(void **state) {
    fixture *f = *state;
    char target[400], url[440];
    snprintf(target, sizeof target, "%s/copy.db", f->folder);
    snprintf(url, sizeof url, "sqlite:%s", target);
    put(f, 0, 20);
    OK(f, dur_store_backup(f->store, target, &f->err));
    put(f, 20, 5);
    assert_int_equal(dur_store_backup(f->store, target, &f->err), DUR_EEXISTS);
    dur_provider *copy = NULL;
    OK(f, dur_open(&copy, url, &f->err));
    OK(f, dur_store_check(copy, &f->err));
    dur_queue_depths depths;
    OK(f, dur_store_get_queue_depths(copy, &depths, &f->err));
    assert_int_equal(depths.orchestrator_queue, 20);
    dur_provider_close(copy);
}

static void check_finds_what_is_wrong_and_vacuum_shrinks(void **state) {
    fixture *f = *state;
    put(f, 0, 50);
    OK(f, dur_store_check(f->store, &f->err));
    exec(f->path,
         "INSERT INTO dur_history(key, execution, first_id, count, at, block) VALUES(4711, 1, 1, 1, 0, '={}')");
    assert_int_equal(dur_store_check(f->store, &f->err), DUR_ECORRUPT);
    assert_non_null(strstr(f->err.message, "4711"));
    exec(f->path, "DELETE FROM dur_history; DELETE FROM dur_queue; DELETE FROM dur_instance");
    uint64_t before = 0, left = 0;
    OK(f, dur_store_vacuum(f->store, 0, &before, &f->err));
    OK(f, dur_store_vacuum(f->store, 1, &left, &f->err));
    assert_true(before > 0);
    assert_int_equal(left, before - 1);
}

/* The machine lost power: the file system kept the name of an owner's file, and nothing of what was in it. */
static void an_owner_whose_file_is_empty_is_dead(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "node/1", waker);
    dur_instance_row row;
    char path[600];
    park(f, lane, "node/1", "a");
    dur_store_lane_close(lane);
    dur_provider_close(f->store);
    snprintf(path, sizeof path, "%s.owner-node_2f1", f->path);
    assert_int_equal(truncate(path, 0), 0);
    OK(f, dur_open(&f->store, f->url, &f->err));
    OK(f, dur_store_owner_register(f->store, &(dur_owner_options){ .owner = "node/2" }, &f->err));
    OK(f, dur_store_get_instance(f->store, f->arena, "a", &row, &f->err));
    assert_null(row.owner);
    assert_int_not_equal(access(path, F_OK), 0);
    dur_waker_free(waker);
}

/* Its file goes before the transaction that frees what it held: whoever died between the two has left this. */
static void an_owner_without_a_file_is_dead(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "marked", waker);
    dur_instance_row row;
    dur_owner_report report;
    char path[600];
    park(f, lane, "marked", "a");
    OK(f, dur_store_owner_register(f->store, &(dur_owner_options){ .owner = "other" }, &f->err));
    snprintf(path, sizeof path, "%s.owner-marked", f->path);
    assert_int_equal(unlink(path), 0);
    OK(f, dur_store_owner_beat(f->store, "other", &report, &f->err));
    assert_int_equal(report.taken_over, 1);
    assert_int_equal(report.peers, 0);
    OK(f, dur_store_get_instance(f->store, f->arena, "a", &row, &f->err));
    assert_null(row.owner);
    OK(f, dur_store_owner_beat(f->store, "marked", &report, &f->err));
    assert_false(report.still_ours);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* After a silence in which somebody may have taken it for dead an owner asks, until it is told: the transaction that
   takes it over may be under way.  One that nobody has looked at meanwhile is as it was. */
static void one_that_was_silent_asks_whether_it_lives(void **state) {
    fixture *f = *state;
    enum { TIMEOUT_MS = 1000 };
    dur_fake_world *fake = dur_fake_world_new(1700000000000u, 1);
    dur_owner_report report;
    char url[440], path[600];
    snprintf(path, sizeof path, "%s/silent.db", f->folder);
    snprintf(url, sizeof url, "sqlite:%s/silent.db?busy_ms=50", f->folder);
    dur_provider *store = NULL;
    OK(f, dur_open_ex(&store, url, DUR_OPEN_OPTIONS(.world = dur_fake_world_get(fake)), &f->err));
    const dur_owner_options silent = { .owner = "silent", .timeout_ms = TIMEOUT_MS },
                            other = { .owner = "other", .timeout_ms = 100 * TIMEOUT_MS };
    OK(f, dur_store_owner_register(store, &silent, &f->err));
    OK(f, dur_store_owner_register(store, &other, &f->err));
    dur_fake_world_advance(fake, TIMEOUT_MS);
    OK(f, dur_store_owner_beat(store, "silent", &report, &f->err));
    assert_true(report.still_ours);
    OK(f, dur_store_owner_beat(store, "other", &report, &f->err));
    assert_int_equal(report.taken_over, 0);
    assert_int_equal(report.peers, 1);
    dur_fake_world_advance(fake, TIMEOUT_MS);
    sqlite3 *taker = NULL;
    assert_int_equal(sqlite3_open(path, &taker), SQLITE_OK);
    assert_int_equal(sqlite3_exec(taker, "BEGIN IMMEDIATE; DELETE FROM dur_owner WHERE id='silent'", NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(dur_store_owner_beat(store, "silent", &report, &f->err), DUR_EBUSY);
    assert_int_equal(sqlite3_exec(taker, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(taker);
    dur_error_clear(&f->err);
    OK(f, dur_store_owner_beat(store, "silent", &report, &f->err)); /* in time */
    assert_false(report.still_ours);
    snprintf(path, sizeof path, "%s/silent.db.owner-silent", f->folder);
    assert_int_not_equal(access(path, F_OK), 0);
    dur_provider_close(store);
    dur_fake_world_free(fake);
}

static void whoever_registers_clears_up_what_nobody_has_locked(void **state) {
    fixture *f = *state;
    char path[2][600];
    OK(f, dur_store_owner_register(f->store, &(dur_owner_options){ .owner = "here" }, &f->err));
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s.owner-%s", f->path, i == 0 ? "left" : "left.new");
        FILE *left = fopen(path[i], "w");
        assert_non_null(left);
        fclose(left);
    }
    OK(f, dur_store_owner_register(f->store, &(dur_owner_options){ .owner = "next" }, &f->err));
    for (int i = 0; i < 2; i++)
        assert_int_not_equal(access(path[i], F_OK), 0);
    snprintf(path[0], sizeof path[0], "%s.owner-here", f->path);
    assert_int_equal(access(path[0], F_OK), 0);
    assert_int_equal(dur_store_owner_register(f->store, &(dur_owner_options){ .owner = "here" }, &f->err), DUR_EEXISTS);
}

/* The application's own tables change the schema, and nobody loses anything by that. */
static void tables_of_the_application_end_no_lease(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "node", waker);
    dur_instance_row row;
    dur_owner_report report;
    park(f, lane, "node", "a");
    exec(f->path, "CREATE TABLE mine(x)");
    dur_round round = { .turn_count = 0 };
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(round.lost_count, 0);
    OK(f, dur_store_owner_beat(f->store, "node", &report, &f->err));
    assert_true(report.still_ours);
    OK(f, dur_store_get_instance(f->store, f->arena, "a", &row, &f->err));
    assert_string_equal(row.owner, "node");
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(durability_is_what_was_asked_for),
        TEST(a_bad_value_is_named),
        TEST(the_file_is_private),
        TEST(what_cannot_be_opened_says_why),
        TEST(a_newer_schema_is_refused),
        TEST(an_older_file_becomes_a_newer_one),
        TEST(a_list_by_status_reads_what_it_lists),
        TEST(an_application_keeps_its_own_file),
        TEST(two_handles_share_one_writer),
        TEST(memory_is_one_store_per_open),
        TEST(the_wal_stays_bounded),
        TEST(a_copy_made_while_writing_can_be_used),
        TEST(check_finds_what_is_wrong_and_vacuum_shrinks),
        TEST(an_owner_whose_file_is_empty_is_dead),
        TEST(an_owner_without_a_file_is_dead),
        TEST(one_that_was_silent_asks_whether_it_lives),
        TEST(whoever_registers_clears_up_what_nobody_has_locked),
        TEST(tables_of_the_application_end_no_lease),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
