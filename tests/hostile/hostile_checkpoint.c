/*
 * hostile_checkpoint.c: another program that writes to a SQLite store's file in the middle of a checkpoint.
 *
 * The default VFS of this process is SQLite's own, but for two calls for the database file: when a checkpoint takes its
 * lock, and when it has read how many frames the -wal has.  In both, somebody else does something.
 */
#include "sqlite_file.h"

#include <durite/sqlite.h>
#include <sqlite3.h>

enum { CHECKPOINT_LOCK = 1, INSTANCES = 60 };

static sqlite3_vfs hooked_vfs;
static sqlite3_vfs *real_vfs;
static sqlite3_io_methods hooked_methods;
static const sqlite3_io_methods *real_methods;

static sqlite3 *neighbour; /* who comes between; NULL: nobody */
static bool began;
static int written, between;

/* Unless the checkpoint has the write lock. */
static void neighbour_writes(int rows) {
    char sql[200];
    snprintf(sql, sizeof(sql),
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
             "INSERT INTO neighbour(text) SELECT hex(zeroblob(1500)) FROM n",
             rows);
    if (sqlite3_exec(neighbour, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK) return;
    assert_int_equal(sqlite3_exec(neighbour, sql, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(neighbour, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    written += rows;
}

static int hooked_lock(sqlite3_file *file, int offset, int count, int flags) {
    if (neighbour != NULL && !began && offset == CHECKPOINT_LOCK && flags == (SQLITE_SHM_LOCK | SQLITE_SHM_EXCLUSIVE)) {
        began = true;
        neighbour_writes(1);
        (void)sqlite3_wal_checkpoint_v2(neighbour, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    }
    return real_methods->xShmLock(file, offset, count, flags);
}

static int hooked_unfetch(sqlite3_file *file, sqlite3_int64 at, void *page) {
    if (neighbour != NULL && began && page == NULL) {
        began = false;
        between++;
        neighbour_writes(2);
    }
    return real_methods->xUnfetch(file, at, page);
}

static int hooked_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags) {
    (void)vfs;
    int result = real_vfs->xOpen(real_vfs, name, file, flags, out_flags);
    if (result != SQLITE_OK || (flags & SQLITE_OPEN_MAIN_DB) == 0) return result;
    if (real_methods == NULL) {
        real_methods = file->pMethods;
        hooked_methods = *real_methods;
        hooked_methods.xShmLock = hooked_lock;
        hooked_methods.xUnfetch = hooked_unfetch;
    }
    if (file->pMethods == real_methods) file->pMethods = &hooked_methods;
    return result;
}

static int count_rows(void *data, int columns, char **values, char **names) {
    (void)columns;
    (void)names;
    *(int *)data = atoi(values[0]);
    return 0;
}

/* SQLite before 3.51.3 took frames for copied that were not, and both programs' later commits were lost. */
static void fault_h110_who_writes_in_a_checkpoint_loses_nothing(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    static char input[3000];
    char id[32];
    sqlite3 *db = NULL;
    int rows = 0;
    memset(input, 'x', sizeof(input) - 1);
    real_vfs = sqlite3_vfs_find(NULL);
    hooked_vfs = *real_vfs;
    hooked_vfs.zName = "hooked";
    hooked_vfs.xOpen = hooked_open;
    assert_int_equal(sqlite3_vfs_register(&hooked_vfs, 1), SQLITE_OK);
    reopen(w, DUR_SQLITE(.path = path_of(w), .wal_pages = 20));
    assert_int_equal(sqlite3_open_v2(path_of(w), &db, SQLITE_OPEN_READWRITE, real_vfs->zName), SQLITE_OK);
    const char *prepare = "PRAGMA wal_autocheckpoint=0; CREATE TABLE neighbour(id INTEGER PRIMARY KEY, text)";
    assert_int_equal(sqlite3_exec(db, prepare, NULL, NULL, NULL), SQLITE_OK);
    neighbour = db;
    for (int i = 0; i < INSTANCES; i++) {
        snprintf(id, sizeof(id), "i-%d", i);
        start(w, "Nobody", input, id);
    }
    neighbour = NULL;
    print_message("%d times between a look and its deed\n", between);
    assert_true(between > 0);
    reopen(w, DUR_SQLITE(.path = path_of(w)));
    assert_int_equal(sqlite3_exec(db, "SELECT count(*) FROM neighbour", count_rows, &rows, NULL), SQLITE_OK);
    sqlite3_close(db);
    reopen(w, DUR_SQLITE(.path = path_of(w)));
    for (int i = 0; i < INSTANCES; i++) {
        snprintf(id, sizeof(id), "i-%d", i);
        if (!is_known(w, id)) fail_msg("%s was accepted, and is gone", id);
    }
    OK(w, dur_provider_check(w->store, &w->err));
    assert_int_equal(rows, written);
    assert_int_equal(sqlite3_vfs_register(real_vfs, 1), SQLITE_OK);
}

static const struct CMUnitTest tests[] = {
    TEST(fault_h110_who_writes_in_a_checkpoint_loses_nothing),
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
