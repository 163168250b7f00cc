/*
 * hostile_leftover.c: files of a SQLite store that were parted: a -wal without its database, a copy beside the -wal of
 * the file that it replaces.
 */
#include "danger/knife_vfs.h"
#include "sqlite_file.h"

#include <durite/sqlite.h>
#include <durite/sys/store.h>

/* ---- a file without its -wal, a -wal without its file ---- */

static void name_with(char out[1200], const char *path, const char *suffix) {
    snprintf(out, 1200, "%s%s", path, suffix);
}

static long size_of(const char *path, const char *suffix) { /* -1: not there */
    char name[1200];
    struct stat state;
    name_with(name, path, suffix);
    return stat(name, &state) == 0 ? (long)state.st_size : -1;
}

static void remove_one(const char *path, const char *suffix) {
    char name[1200];
    name_with(name, path, suffix);
    (void)unlink(name);
}

/* Starts of one client in a process that dies; what it wrote is in the -wal alone. */
static int start_and_die(const char *url, long number) {
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_error err = DUR_ERROR_INIT;
    char id[32];
    if (dur_open(&store, url, &err) != DUR_OK || dur_client_new(&client, store, &err) != DUR_OK) return 1;
    for (long i = 0; i < number; i++) {
        snprintf(id, sizeof(id), "kept-%ld", i);
        if (dur_client_start(client, &err, "WaitGo", "", .instance = id) != DUR_OK) return 2;
    }
    raise(SIGKILL);
    return 3;
}

/* A file of an application that does without a WAL; dies in the middle of a transaction that has gone to the disk. */
static int write_and_die(const char *url, long number) {
    sqlite3 *db = NULL;
    (void)number;
    if (sqlite3_open(url + strlen("sqlite:"), &db) != SQLITE_OK) return 1;
    const char *sql = "PRAGMA journal_mode=DELETE; CREATE TABLE mine(x); INSERT INTO mine VALUES(randomblob(100000));"
                      "PRAGMA cache_size=1; PRAGMA cache_spill=1; BEGIN IMMEDIATE;"
                      "UPDATE mine SET x=randomblob(100000);"
                      "INSERT INTO mine SELECT randomblob(100000) FROM mine";
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) return 2;
    raise(SIGKILL);
    return 3;
}

static void expect_killed(pid_t pid) {
    int status = node_wait(pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) fail_msg("the writer ended with status %d", status);
}

/* Refused, and the leftover is as it was. */
static void expect_refused(world *w, const char *path, const char *suffix) {
    char url[1200];
    dur_provider *store = NULL;
    long before = size_of(path, suffix), main_before = size_of(path, "");
    snprintf(url, sizeof(url), "sqlite:%s", path);
    int code = dur_open(&store, url, &w->err);
    if (code != DUR_ESTATE) fail_msg("open beside a leftover %s: %s %s", suffix, dur_code_name(code), w->err.message);
    if (strstr(w->err.message, suffix) == NULL) fail_msg("\"%s\" does not name the %s", w->err.message, suffix);
    assert_false(w->err.retryable);
    assert_int_equal(size_of(path, suffix), before);
    assert_int_equal(size_of(path, ""), main_before);
}

static void fault_h66_no_store_is_made_beside_a_wal(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    char url[200], path[160], away[200];
    dur_provider *store = NULL;
    dur_client *client = NULL;
    snprintf(path, sizeof(path), "%s/moved.db", w->dir);
    snprintf(away, sizeof(away), "%s.away", path);
    snprintf(url, sizeof(url), "sqlite:%s", path);
    expect_killed(node_spawn("start_and_die", url, 3, -1));
    assert_true(size_of(path, "-wal") > 0);
    assert_int_equal(rename(path, away), 0);
    expect_refused(w, path, "-wal");
    FILE *empty = fopen(path, "w"); /* an empty file in its place is no better */
    assert_non_null(empty);
    fclose(empty);
    expect_refused(w, path, "-wal");
    assert_int_equal(rename(away, path), 0);
    OK(w, dur_open(&store, url, &w->err));
    OK(w, dur_client_new(&client, store, &w->err));
    dur_instance_info *info = NULL;
    OK(w, dur_client_info(&info, client, "kept-2", &w->err));
    dur_instance_info_free(info);
    dur_client_free(client);
    dur_provider_close(store);
    assert_true(size_of(path, "-wal") <= 0);
    assert_int_equal(unlink(path), 0); /* whoever deletes a store that was closed may make a new one */
    OK(w, dur_open(&store, url, &w->err));
    dur_provider_close(store);
}

static void fault_h66_no_store_is_made_beside_a_journal(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    char url[200], path[160], away[200];
    dur_provider *store = NULL;
    snprintf(path, sizeof(path), "%s/mine.db", w->dir);
    snprintf(away, sizeof(away), "%s.away", path);
    snprintf(url, sizeof(url), "sqlite:%s", path);
    expect_killed(node_spawn("write_and_die", url, 0, -1));
    assert_true(size_of(path, "-journal") > 0);
    assert_int_equal(rename(path, away), 0);
    expect_refused(w, path, "-journal");
    assert_int_equal(rename(away, path), 0);
    OK(w, dur_open(&store, url, &w->err)); /* rolled back, and ours beside it */
    sqlite3 *db = NULL;
    int rows = 0;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "SELECT x FROM mine", count_row, &rows, NULL), SQLITE_OK);
    assert_int_equal(rows, 1);
    sqlite3_close(db);
    dur_provider_close(store);
}

enum { COPY_BY_US, COPY_BY_SQLITE, COPY_KINDS };

/* A store that is copied at some moment of its life, and killed at another: the number is kind and seed. */
static int copy_and_die(const char *url, long number) {
    const char *path = url + strlen("sqlite:");
    char copy[1200], id[32];
    static char input[3000];
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_error err = DUR_ERROR_INIT;
    unsigned seed = (unsigned)(number / COPY_KINDS);
    int before = (int)((unsigned)rand_r(&seed) % 40u), after = 1 + (int)((unsigned)rand_r(&seed) % 60u);
    bool reopened = (unsigned)rand_r(&seed) % 4u == 0;
    memset(input, 'x', sizeof(input) - 1);
    name_with(copy, path, ".copy");
    const dur_sqlite_options *how = DUR_SQLITE(.path = path, .wal_pages = 40, .relaxed_durability = true);
    if (dur_sqlite_open(&store, how, &err) != DUR_OK || dur_client_new(&client, store, &err) != DUR_OK) return 1;
    for (int i = 0; i < before + after; i++) {
        if (i == before) {
            int code = number % COPY_KINDS == COPY_BY_US ? dur_provider_backup(store, copy, &err) : DUR_OK;
            if (number % COPY_KINDS == COPY_BY_SQLITE) {
                FILE *made = fopen(copy, "w");
                if (made == NULL || fclose(made) != 0 || copy_into(path, copy) != 0) return 2;
            }
            if (code != DUR_OK) return 2;
        }
        if (i == before + after / 2 && reopened) {
            dur_client_free(client);
            dur_provider_close(store);
            if (dur_sqlite_open(&store, how, &err) != DUR_OK) return 1;
            if (dur_client_new(&client, store, &err) != DUR_OK) return 1;
        }
        snprintf(id, sizeof(id), "i-%d", i);
        if (dur_client_start(client, &err, "WaitGo", input, .instance = id) != DUR_OK) return 3;
        if (i % 3 == 2 && dur_client_delete(NULL, client, id, true, &err) != DUR_OK) return 4;
    }
    raise(SIGKILL);
    return 5;
}

static void copy_bytes(const char *from, const char *to) { /* as cp does: into the file that is there */
    FILE *source = fopen(from, "r"), *target = fopen(to, "w");
    char block[4096];
    assert_non_null(source);
    assert_non_null(target);
    for (size_t size; (size = fread(block, 1, sizeof(block), source)) > 0;)
        assert_int_equal(fwrite(block, 1, size, target), size);
    fclose(source);
    assert_int_equal(fclose(target), 0);
}

/* Sound, as SQLite and as we see it. */
static void expect_sound(world *w, const char *url, const char *path) {
    dur_provider *store = NULL;
    sqlite3 *db = NULL;
    int rows = 0;
    OK(w, dur_open(&store, url, &w->err));
    OK(w, dur_provider_check(store, &w->err));
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(db, "SELECT * FROM pragma_integrity_check WHERE integrity_check <> 'ok'", count_row, &rows, NULL),
        SQLITE_OK);
    assert_int_equal(rows, 0);
    sqlite3_close(db);
    dur_provider_close(store);
}

/*
 * `cp copy store.db` while the -wal of the dead process is still there: SQLite would write it into the copy.  A copy of
 * ours is always told from the file that the -wal belongs to; any other is either refused or gives a sound store.
 */
static void fault_h66_a_copy_is_not_mixed_with_an_old_wal(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    size_t rounds = scaled(6, 4), refused = 0;
    unsigned seed = (unsigned)now_ms() & 0xffff;
    for (size_t i = 0; i < rounds; i++) {
        char url[200], path[160], copy[1200];
        long number = (long)(seed + i) * COPY_KINDS + (long)(i % COPY_KINDS);
        snprintf(path, sizeof(path), "%s/round-%zu.db", w->dir, i);
        snprintf(url, sizeof(url), "sqlite:%s", path);
        name_with(copy, path, ".copy");
        print_message("number %ld\n", number);
        expect_killed(node_spawn("copy_and_die", url, number, -1));
        assert_true(size_of(path, "-wal") > 0);
        copy_bytes(copy, path);
        dur_provider *store = NULL;
        int code = dur_open(&store, url, &w->err);
        dur_provider_close(store);
        if (code == DUR_OK && number % COPY_KINDS == COPY_BY_US) fail_msg("a leftover -wal was written into a copy");
        if (code == DUR_OK) {
            expect_sound(w, url, path);
            continue;
        }
        refused++;
        expect_refused(w, path, "-wal");
        remove_one(path, "-wal"); /* as the error says */
        remove_one(path, "-shm");
        expect_sound(w, url, path);
    }
    print_message("%zu of %zu refused\n", refused, rounds);
}

/* The same file with its own -wal is never refused, however often it is killed. */
static void fault_h66_a_crash_is_no_reason_to_refuse(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    char url[200], path[160], copy[1200];
    snprintf(path, sizeof(path), "%s/crashes.db", w->dir);
    snprintf(url, sizeof(url), "sqlite:%s", path);
    name_with(copy, path, ".copy");
    unsigned seed = (unsigned)now_ms() & 0xffff;
    print_message("seed %u\n", seed);
    for (size_t i = 0; i < scaled(4, 2); i++) {
        (void)unlink(copy);
        pid_t pid = node_spawn("write_on", url, (long)(seed + i), -1);
        pid_t other = i % 2 == 0 ? node_spawn("write_on", url, (long)(seed + i + 1000), -1) : -1;
        expect_killed(pid);
        if (other >= 0) expect_killed(other);
    }
    expect_sound(w, url, path);
}

/* Opens, writes over several checkpoints, perhaps closes and opens again, and dies somewhere. */
static int write_on(const char *url, long number) {
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_error err = DUR_ERROR_INIT;
    static char input[3000];
    char id[64];
    unsigned seed = (unsigned)number;
    int count = 1 + (int)((unsigned)rand_r(&seed) % 50u), again = (int)((unsigned)rand_r(&seed) % 50u);
    memset(input, 'x', sizeof(input) - 1);
    const dur_sqlite_options *how =
        DUR_SQLITE(.path = url + strlen("sqlite:"), .wal_pages = 30, .relaxed_durability = true);
    for (int i = 0; i < count; i++) {
        if (i == 0 || i == again) {
            dur_client_free(client);
            dur_provider_close(store);
            if (dur_sqlite_open(&store, how, &err) != DUR_OK) return 1;
            if (dur_client_new(&client, store, &err) != DUR_OK) return 1;
        }
        snprintf(id, sizeof(id), "i-%ld-%d-%d", number, (int)getpid(), i);
        if (dur_client_start(client, &err, "WaitGo", input, .instance = id) != DUR_OK) return 3;
    }
    raise(SIGKILL);
    return 5;
}

/* A copy of ours is restored into the live store, as `.restore` does; odd numbers write something behind it. */
static int restore_and_die(const char *url, long number) {
    const char *path = url + strlen("sqlite:");
    char copy[1200], id[32];
    static char input[3000];
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_error err = DUR_ERROR_INIT;
    memset(input, 'x', sizeof(input) - 1);
    name_with(copy, path, ".copy");
    const dur_sqlite_options *how = DUR_SQLITE(.path = path, .wal_pages = 40, .relaxed_durability = true);
    if (dur_sqlite_open(&store, how, &err) != DUR_OK || dur_client_new(&client, store, &err) != DUR_OK) return 1;
    for (long i = 0; i < 40 + number; i++) {
        if (i == 10 && dur_provider_backup(store, copy, &err) != DUR_OK) return 2;
        snprintf(id, sizeof(id), "i-%ld", i);
        if (dur_client_start(client, &err, "WaitGo", input, .instance = id) != DUR_OK) return 3;
    }
    if (copy_into(copy, path) != 0) return 4;
    if (number % 2 == 1 && dur_client_start(client, &err, "WaitGo", "", .instance = "after") != DUR_OK) return 5;
    raise(SIGKILL);
    return 6;
}

/* What the -wal holds then is the whole copy: it does not matter what the file is. */
static void fault_h66_a_live_restore_and_a_crash_are_no_reason_either(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    for (long i = 0; i < 4; i++) {
        char url[200], path[160];
        dur_provider *store = NULL;
        dur_client *client = NULL;
        dur_instance_info *info = NULL;
        snprintf(path, sizeof(path), "%s/live-%ld.db", w->dir, i);
        snprintf(url, sizeof(url), "sqlite:%s", path);
        expect_killed(node_spawn("restore_and_die", url, i, -1));
        expect_sound(w, url, path);
        OK(w, dur_open(&store, url, &w->err));
        OK(w, dur_client_new(&client, store, &w->err));
        OK(w, dur_client_info(&info, client, i % 2 == 1 ? "after" : "i-9", &w->err));
        dur_instance_info_free(info);
        info = NULL;
        assert_int_equal(dur_client_info(&info, client, "i-11", &w->err), DUR_ENOTFOUND);
        dur_client_free(client);
        dur_provider_close(store);
    }
}

/* ---- a loss of power in the middle of a checkpoint ---- */

enum { PAGE = 4096, FRAME = PAGE + 24, WAL_HEADER = 32 };

static unsigned char *bytes_of(const char *path, const char *suffix, size_t *size) {
    char name[1200];
    name_with(name, path, suffix);
    FILE *file = fopen(name, "r");
    assert_non_null(file);
    *size = (size_t)size_of(path, suffix);
    unsigned char *bytes = malloc(*size);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *size, file), *size);
    fclose(file);
    return bytes;
}

static void write_anew(const char *path, const char *suffix, const unsigned char *bytes, size_t size) {
    char name[1200];
    name_with(name, path, suffix);
    (void)unlink(name);
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static uint32_t big_endian(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* The last page of the -wal that has the text; its number. */
static const unsigned char *page_with(const unsigned char *wal, size_t size, const char *text, uint32_t *number) {
    const unsigned char *found = NULL;
    for (size_t at = WAL_HEADER; at + FRAME <= size && memcmp(wal + at + 8, wal + 16, 8) == 0; at += FRAME) {
        if (memmem(wal + at + 24, PAGE, text, strlen(text)) == NULL) continue;
        found = wal + at + 24;
        *number = big_endian(wal + at);
    }
    return found;
}

static void expect_kept(world *w, const char *url, size_t cut, bool head) {
    dur_provider *store = NULL;
    dur_client *client = NULL;
    dur_instance_info *info = NULL;
    if (dur_open(&store, url, &w->err) != DUR_OK)
        fail_msg("a page of which %zu bytes are %s: %s", cut, head ? "new" : "old", w->err.message);
    OK(w, dur_client_new(&client, store, &w->err));
    OK(w, dur_client_info(&info, client, "kept-2", &w->err));
    dur_instance_info_free(info);
    dur_client_free(client);
    dur_provider_close(store);
}

/* The page that says which -wal belongs to the file, as a checkpoint leaves it that is cut off at any byte of it. */
static void fault_h95_a_page_that_is_half_written_is_no_reason_either(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    char url[200], path[160];
    dur_provider *store = NULL;
    snprintf(path, sizeof(path), "%s/torn.db", w->dir);
    snprintf(url, sizeof(url), "sqlite:%s", path);
    OK(w, dur_open(&store, url, &w->err));
    dur_provider_close(store);
    expect_killed(node_spawn("start_and_die", url, 3, -1));
    size_t file_size, wal_size, tried = 0;
    unsigned char *file = bytes_of(path, "", &file_size), *wal = bytes_of(path, "-wal", &wal_size), old[PAGE];
    uint32_t number = 0;
    const unsigned char *page = page_with(wal, wal_size, "mark", &number);
    assert_non_null(page);
    assert_true((size_t)number * PAGE <= file_size);
    unsigned char *torn = file + (size_t)(number - 1) * PAGE;
    memcpy(old, torn, PAGE);
    for (size_t cut = 0; cut < PAGE; cut++) {
        if (old[cut] == page[cut]) continue;
        for (int head = 0; head < 2; head++) {
            memcpy(torn, head ? page : old, cut);
            memcpy(torn + cut, (head ? old : page) + cut, PAGE - cut);
            write_anew(path, "", file, file_size);
            write_anew(path, "-wal", wal, wal_size);
            remove_one(path, "-shm");
            expect_kept(w, url, cut, head);
            tried++;
        }
    }
    assert_true(tried > 10);
    free(file);
    free(wal);
}

/* ---- a new file on a disk that fails once ---- */

static void expect_wal_mode(const char *path, long at) {
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA journal_mode", -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    const char *mode = (const char *)sqlite3_column_text(stmt, 0);
    if (strcmp(mode, "wal") != 0) fail_msg("change %ld has failed, and the store is open in mode %s", at, mode);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

/* Whichever of its first writes fails: the store is refused, or is as it must be. */
static void fault_h96_a_new_store_is_in_wal_mode_or_refused(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    long at = 1, opened = 0;
    knife_install();
    atomic_store(&knife.fail_code, SQLITE_IOERR_WRITE);
    atomic_store(&knife.fail_count, 1);
    for (bool reached = true; reached && at < 500; at++) {
        char url[200], path[160];
        dur_provider *store = NULL;
        snprintf(path, sizeof(path), "%s/new-%ld.db", w->dir, at);
        snprintf(url, sizeof(url), "sqlite:%s", path);
        atomic_store(&knife.ops, 0);
        atomic_store(&knife.fail_at, at);
        int code = dur_open(&store, url, &w->err);
        reached = atomic_load(&knife.ops) >= at;
        atomic_store(&knife.fail_at, 0);
        if (code != DUR_OK) OK(w, dur_open(&store, url, &w->err)); /* it can be opened when the disk is well again */
        opened += code == DUR_OK;
        expect_wal_mode(path, at);
        dur_provider_close(store);
    }
    assert_true(at > 10 && at < 500 && opened > 0);
}

static const hostile_role roles[] = {
    { "restore_and_die", restore_and_die }, { "start_and_die", start_and_die }, { "write_and_die", write_and_die },
    { "copy_and_die", copy_and_die },       { "write_on", write_on },
};

static const struct CMUnitTest tests[] = {
    TEST(fault_h66_no_store_is_made_beside_a_wal),
    TEST(fault_h66_no_store_is_made_beside_a_journal),
    TEST(fault_h66_a_copy_is_not_mixed_with_an_old_wal),
    TEST(fault_h66_a_crash_is_no_reason_to_refuse),
    TEST(fault_h66_a_live_restore_and_a_crash_are_no_reason_either),
    TEST(fault_h95_a_page_that_is_half_written_is_no_reason_either),
    TEST(fault_h96_a_new_store_is_in_wal_mode_or_refused),
};

HOSTILE_MAIN(roles, tests)
