/*
 * sqlite_busy.c: waiting for the write lock, and who has it.
 *
 * Somebody of another process comes to an end, and is waited for.  A connection of this very process may belong to
 * the thread that waits for us (a bare BEGIN, then a call of a client): then nobody ever comes to an end.  Threads
 * cannot be told apart, so such a lock is waited for, for a while, as long as a transaction in an activity may take;
 * then the error says what is wrong.
 */
#include "provider/sqlite/sqlite_internal.h"
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { OURS_PATIENCE_MS = 5000, LOOK_EVERY_US = 1000000, WAL_WRITE_LOCK = 120 };

/* Has a connection of this process the WAL's write lock?  SQLite's locks are the process's, and the system lists them.
 */
static bool lock_is_ours(const dur__sq_file *file) {
    struct stat state;
    dur__buf path = { NULL, 0, 0 };
    dur__buf_format(&path, "%s-shm", file->path);
    bool there = stat(dur__buf_str(&path), &state) == 0;
    dur__buf_free(&path);
    FILE *locks = there ? fopen("/proc/locks", "re") : NULL;
    bool ours = false;
    char line[256], access[16], pid[24], place[64], from[24], to[24];
    while (locks != NULL && !ours && fgets(line, sizeof line, locks) != NULL) {
        if (sscanf(line, "%*s POSIX %*s %15s %23s %63s %23s %23s", access, pid, place, from, to) != 5) continue;
        /* Device and inode; the device is left out: some file systems have one name for it here and another in stat. */
        const char *number = strrchr(place, ':');
        uint64_t process = 0, inode = 0;
        if (number == NULL || !dur__u64_parse(pid, strlen(pid), &process) ||
            !dur__u64_parse(number + 1, strlen(number + 1), &inode))
            continue;
        uint64_t first = 0, last = UINT64_MAX;
        (void)dur__u64_parse(from, strlen(from), &first);
        if (strcmp(to, "EOF") != 0) (void)dur__u64_parse(to, strlen(to), &last);
        ours = process == (uint64_t)getpid() && inode == state.st_ino && strcmp(access, "WRITE") == 0 &&
               first <= WAL_WRITE_LOCK && last >= WAL_WRITE_LOCK;
    }
    if (locks != NULL) fclose(locks);
    return ours;
}

static int wait_a_moment(void *data, int tries) {
    static const uint8_t pauses_ms[] = { 1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100 };
    dur__sq_file *file = data;
    uint64_t now = dur__monotonic_us();
    if (tries == 0) {
        file->waits_from_us = file->wait_looked_us = now;
        file->wait_is_ours = false;
    }
    uint64_t waited_ms = (now - file->waits_from_us) / 1000;
    bool over = waited_ms >= file->busy_ms, patient = waited_ms < OURS_PATIENCE_MS;
    if (over || (!patient && now - file->wait_looked_us >= LOOK_EVERY_US)) {
        file->wait_looked_us = now;
        file->wait_is_ours = lock_is_ours(file);
    }
    if (over || file->wait_is_ours) return 0;
    size_t step = tries < (int)sizeof pauses_ms ? (size_t)tries : sizeof pauses_ms - 1;
    nanosleep(&(struct timespec){ .tv_nsec = pauses_ms[step] * 1000000 }, NULL);
    return 1;
}

void dur__sq_busy_install(dur__sq_file *file) {
    if (file->path != NULL) sqlite3_busy_handler(file->writer.db, wait_a_moment, file);
}

int dur__sq_busy_explain(const dur__sq_file *file, int code, dur_error *err) {
    if (code != DUR_EBUSY || !file->wait_is_ours) return code;
    return dur_error_set(err, DUR_EBUSY, true, "sqlite",
                         "a connection of this process holds the write lock of %s: a transaction that was begun "
                         "without dur_sqlite_begin, perhaps by the thread that waits for this call",
                         file->path);
}
