/*
 * sqlite_gate.c: fairness between processes that write to one file.
 *
 * SQLite's own lock is taken by whoever tries at the right moment, and a busy process tries all the time.  So, while
 * another process has the file open, each write transaction first takes two locks in "<file>.lock": the gate, then
 * main, and gives the gate back at once.  Whoever comes back must pass the gate, where the one that waits for main
 * stands.  They are only about fairness.  A process that was stopped may hold one for ever: whoever has waited for
 * PATIENCE_US goes on without them, and so does everything that it writes for a while.
 *
 * Bytes of the lock file (open-file-description locks): 0 presence, shared by all; 1 gate; 2 main.
 */
#include "provider/sqlite/sqlite_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

enum { BYTE_PRESENCE, BYTE_GATE, BYTE_MAIN };
enum { PAUSE_US = 60, PATIENCE_US = 250000, WITHOUT_US = 2000000 };

static int lock_byte(int fd, int command, short type, off_t byte, struct flock *out) {
    struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };
    int result = fcntl(fd, command, &lock);
    if (out != NULL) *out = lock;
    return result;
}

int dur__sq_gate_open(dur__sq_file *file, dur_error *err) {
    file->peers.lock_fd = -1;
    if (file->path == NULL) return DUR_OK;
    char *path = dur__sq_beside(file->path, ".lock");
    file->peers.lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int code = file->peers.lock_fd < 0 ? dur__sq_os_fail(err, "sqlite.open", path) : DUR_OK;
    if (code == DUR_OK) (void)lock_byte(file->peers.lock_fd, F_OFD_SETLK, F_RDLCK, BYTE_PRESENCE, NULL);
    dur__free(path);
    return code;
}

bool dur__sq_gate_others(const dur__sq_file *file) {
    struct flock found;
    return file->peers.lock_fd >= 0 &&
           lock_byte(file->peers.lock_fd, F_OFD_GETLK, F_WRLCK, BYTE_PRESENCE, &found) == 0 && found.l_type != F_UNLCK;
}

static bool take(const dur__sq_file *file, off_t byte, uint64_t until_us) {
    while (lock_byte(file->peers.lock_fd, F_OFD_SETLK, F_WRLCK, byte, NULL) != 0) {
        if ((errno != EAGAIN && errno != EACCES && errno != EINTR) || dur__monotonic_us() >= until_us) return false;
        nanosleep(&(struct timespec){ .tv_nsec = PAUSE_US * 1000 }, NULL);
    }
    return true;
}

void dur__sq_gate_enter(dur__sq_file *file) {
    DUR_ASSERT(dur__sq_leads(file));
    file->peers.gated = false;
    uint64_t now = dur__monotonic_us();
    if (now < file->peers.ungated_until_us || !dur__sq_gate_others(file)) return;
    bool gate = take(file, BYTE_GATE, now + PATIENCE_US);
    file->peers.gated = gate && take(file, BYTE_MAIN, now + PATIENCE_US);
    if (!file->peers.gated) file->peers.ungated_until_us = dur__monotonic_us() + WITHOUT_US;
    if (gate) (void)lock_byte(file->peers.lock_fd, F_OFD_SETLK, F_UNLCK, BYTE_GATE, NULL);
}

void dur__sq_gate_leave(dur__sq_file *file) {
    DUR_ASSERT(dur__sq_leads(file));
    if (file->peers.gated) (void)lock_byte(file->peers.lock_fd, F_OFD_SETLK, F_UNLCK, BYTE_MAIN, NULL);
    file->peers.gated = false;
}

void dur__sq_gate_close(dur__sq_file *file) {
    if (file->peers.lock_fd >= 0) close(file->peers.lock_fd);
    file->peers.lock_fd = -1;
}
