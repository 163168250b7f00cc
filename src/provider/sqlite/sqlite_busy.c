/*
 * sqlite_busy.c: waiting for the write lock, and who has it.
 *
 * Somebody of another process comes to an end, and is waited for.  A connection of this very process may belong to
 * the thread that waits for us (a bare BEGIN, then a call of a client): then nobody ever comes to an end.  Threads
 * cannot be told apart, so such a lock is waited for, for a while, as long as a transaction in an activity may take;
 * then the error says what is wrong.
 *
 * Whoever waits for another program says so in the log after a second, and then less and less often, with the process
 * that has the lock where the system tells.
 */
#include "obs/log_internal.h"
#include "provider/sqlite/sqlite_internal.h"
#include "provider/sqlite/sqlite_own.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    OURS_PATIENCE_MS = 5000,
    LOOK_EVERY_US = 1000000,
    WAL_WRITE_LOCK = 120,
    SAY_AFTER_US = 1000000,
    SAY_STEP_US = 64000000
};

/* Which process has the WAL's write lock?  SQLite's locks are a process's, and the system lists them.  0: not known. */
static uint64_t holder_of(const dur__sq_file *file) {
    struct stat state;
    bool there = file->intact.shm.path != NULL && stat(file->intact.shm.path, &state) == 0;
    FILE *locks = there ? fopen("/proc/locks", "re") : NULL;
    uint64_t holder = 0;
    char line[256], access[16], pid[24], place[64], from[24], to[24];
    while (locks != NULL && holder == 0 && fgets(line, sizeof line, locks) != NULL) {
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
        if (inode == state.st_ino && strcmp(access, "WRITE") == 0 && first <= WAL_WRITE_LOCK && last >= WAL_WRITE_LOCK)
            holder = process;
    }
    if (locks != NULL) fclose(locks);
    return holder;
}

/* " (process 12, sqlite3)" */
static void holder_name(uint64_t process, char *out, size_t size) {
    char path[48], name[24] = "";
    snprintf(path, sizeof path, "/proc/%llu/comm", (unsigned long long)process);
    int fd = process != 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t got = fd >= 0 ? read(fd, name, sizeof name - 1) : 0;
    if (fd >= 0) close(fd);
    name[got > 0 ? (size_t)got : 0] = '\0';
    name[strcspn(name, "\n")] = '\0';
    out[0] = '\0';
    if (process != 0)
        snprintf(out, size, " (process %llu%s%s)", (unsigned long long)process, name[0] != '\0' ? ", " : "", name);
}

void dur__sq_busy_say(dur__sq_file *file) {
    DUR_ASSERT(dur__sq_leads(file));
    uint64_t now = dur__monotonic_us();
    bool other = now - file->wait.said_us > SAY_STEP_US; /* nobody has waited since: that lock is another one */
    file->wait.said_us = now;
    if (file->desk.held_from_us == 0 || other) {
        dur__mutex_lock(&file->desk.lock);
        file->desk.held_from_us = now;
        file->desk.holder[0] = '\0';
        dur__mutex_unlock(&file->desk.lock);
        file->wait.say_step_us = SAY_AFTER_US;
        file->wait.say_at_us = now + SAY_AFTER_US;
    }
    if (now < file->wait.say_at_us) return;
    char holder[sizeof file->desk.holder];
    holder_name(holder_of(file), holder, sizeof holder);
    dur__mutex_lock(&file->desk.lock);
    snprintf(file->desk.holder, sizeof file->desk.holder, "%s", holder);
    dur__mutex_unlock(&file->desk.lock);
    dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER, DUR__FIELDS(DUR__TEXT("file", file->path)),
             "nothing is written to %s: for %llu s another program has held its write lock%s", file->path,
             (unsigned long long)((now - file->desk.held_from_us) / 1000000), holder);
    if (file->wait.say_step_us < SAY_STEP_US) file->wait.say_step_us *= 2;
    file->wait.say_at_us = now + file->wait.say_step_us;
}

static int wait_a_moment(void *data, int tries) {
    static const uint8_t pauses_ms[] = { 1, 2, 5, 10, 15, 20, 25, 25, 25, 50, 50, 100 };
    dur__sq_file *file = data;
    uint64_t now = dur__monotonic_us();
    if (tries == 0) {
        file->wait.from_us = file->wait.looked_us = now;
        file->wait.is_ours = false;
    }
    uint64_t waited_ms = (now - file->wait.from_us) / 1000;
    bool over = file->wait.until_us != 0 ? now >= file->wait.until_us : waited_ms >= file->busy_ms;
    bool patient = waited_ms < OURS_PATIENCE_MS;
    if (over || (!patient && now - file->wait.looked_us >= LOOK_EVERY_US)) {
        file->wait.looked_us = now;
        file->wait.is_ours = holder_of(file) == (uint64_t)getpid();
    }
    dur__sq_busy_say(file);
    if (over || file->wait.is_ours) return 0;
    size_t step = tries < (int)sizeof pauses_ms ? (size_t)tries : sizeof pauses_ms - 1;
    nanosleep(&(struct timespec){ .tv_nsec = pauses_ms[step] * 1000000 }, NULL);
    return 1;
}

void dur__sq_busy_install(dur__sq_file *file) {
    if (file->path != NULL) sqlite3_busy_handler(file->writer.db, wait_a_moment, file);
}

uint64_t dur__sq_busy_until(const dur__sq_file *file) {
    return dur__monotonic_us() + file->busy_ms * 1000;
}

int dur__sq_busy_error(const dur__sq_file *file, dur_error *err) {
    const dur__sq_own *own = file->desk.own;
    if (own != NULL)
        return dur_error_set(err, DUR_EBUSY, true, "sqlite",
                             "a transaction on %s has been open for %llu ms: it was begun with dur_sqlite_begin by %s",
                             file->path, (unsigned long long)((dur__monotonic_us() - own->from_us) / 1000), own->who);
    return dur_error_set(
        err, DUR_EBUSY, true, "sqlite", "another program holds the write lock of %s%s: nothing was written for %llu ms",
        file->path, file->desk.holder, (unsigned long long)((dur__monotonic_us() - file->desk.held_from_us) / 1000));
}

int dur__sq_busy_ended(dur__sq_file *file, int code, dur_error *err) {
    if (code == DUR_EBUSY && file->wait.is_ours)
        return dur_error_set(err, DUR_EBUSY, true, "sqlite",
                             "a connection of this process holds the write lock of %s: a transaction that was begun "
                             "without dur_sqlite_begin, perhaps by the thread that waits for this call",
                             file->path);
    if (file->desk.held_from_us == 0) return code;
    dur__mutex_lock(&file->desk.lock);
    if (code == DUR_EBUSY) (void)dur__sq_busy_error(file, err);
    if (code == DUR_OK) file->desk.held_from_us = 0;
    dur__mutex_unlock(&file->desk.lock);
    return code;
}
