/*
 * sqlite_backup.c: copying and shrinking a store while it is used.
 */
#include "provider/sqlite/sqlite_internal.h"
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { BACKUP_PAGES = 1024 };

/* Copy page by page from a snapshot that the reader holds: what is written meanwhile does not make it start again. */
static int copy_pages(sqlite3 *from, sqlite3 *to, dur_error *err) {
    sqlite3_backup *backup = sqlite3_backup_init(to, "main", from, "main");
    if (backup == NULL) return dur__sq_fail(err, to, "sqlite.backup");
    int result;
    do {
        result = sqlite3_backup_step(backup, BACKUP_PAGES);
        if (result == SQLITE_BUSY || result == SQLITE_LOCKED) nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    } while (result == SQLITE_OK || result == SQLITE_BUSY || result == SQLITE_LOCKED);
    int finished = sqlite3_backup_finish(backup);
    return result == SQLITE_DONE && finished == SQLITE_OK ? DUR_OK : dur__sq_fail(err, to, "sqlite.backup");
}

/* So that the copy is never taken for the file that somebody's -wal belongs to (sqlite_mark.c).  Without a -wal of its
   own: what is written is in the copy, or an error says that it is not. */
static int mark_copy(sqlite3 *to, dur_error *err) {
    char mark[DUR__SQ_MARK_BYTES], text[DUR__SQ_MARK_BYTES + 96];
    dur__sq_mark_draw(mark, "*");
    snprintf(text, sizeof text, "UPDATE dur_meta SET value='%s' WHERE name='mark'", mark);
    int code = dur__sq_exec(to, "PRAGMA journal_mode=DELETE", err);
    return code == DUR_OK ? dur__sq_exec(to, text, err) : code;
}

int dur__sq_backup(dur_provider *self, const char *target, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    dur__sq_conn *conn = NULL;
    sqlite3 *to = NULL;
    int fd = open(target, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return dur__sq_os_fail(err, "sqlite.backup", target);
    dur__sq_held *held = NULL;
    int code = dur__sq_hold(&held, fd, "sqlite.backup", target, err);
    close(fd);
    if (code == DUR_OK) code = dur__sq_reader(file, &conn, err);
    if (code == DUR_OK && sqlite3_open_v2(target, &to, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK)
        code = dur__sq_fail(err, to, "sqlite.backup");
    if (code == DUR_OK) code = dur__sq_exec(to, "PRAGMA synchronous=FULL", err);
    uint64_t rows = 0;
    if (code == DUR_OK && conn != &file->writer) code = dur__sq_run(conn, DUR__SQ_READ_BEGIN, err, "");
    if (code == DUR_OK) code = dur__sq_pragma_u64(conn->db, "SELECT count(*) FROM dur_meta", &rows, err);
    if (code == DUR_OK) code = copy_pages(conn->db, to, err);
    if (code == DUR_OK) code = mark_copy(to, err);
    if (conn != NULL && conn != &file->writer) dur__sq_run(conn, DUR__SQ_READ_END, NULL, "");
    dur__sq_reader_done(file, conn);
    if (to != NULL && sqlite3_close_v2(to) != SQLITE_OK && code == DUR_OK)
        code = dur_error_set(err, DUR_EIO, true, "sqlite.backup", "cannot close the copy");
    dur__sq_hold_end(held);
    if (code != DUR_OK) unlink(target);
    return code;
}

int dur__sq_vacuum(dur_provider *self, uint64_t pages_max, uint64_t *pages_left, dur_error *err) {
    dur__sq_file *file = dur__sq_file_of(self);
    char text[64];
    *pages_left = 0;
    int code = dur__sq_lead(file, err);
    if (code != DUR_OK) return code;
    dur__sq_gate_enter(file);
    snprintf(text, sizeof text, "PRAGMA incremental_vacuum(%llu)", (unsigned long long)pages_max);
    if (pages_max > 0) code = dur__sq_exec(file->writer.db, text, err);
    if (code == DUR_OK) code = dur__sq_pragma_u64(file->writer.db, "PRAGMA freelist_count", pages_left, err);
    if (code == DUR_OK) code = dur__sq_intact(file, &file->writer, err);
    dur__sq_gate_leave(file);
    dur__sq_unlead(file);
    return code;
}
