/*
 * sim_libc.c: what stands in front of libc.
 *
 * These definitions are the program's own, so the linker gives them to the library, to SQLite and to libpq alike.
 * Clocks and randomness are answered from the run; locks, writes and truncates are points at which an actor may stop;
 * waits are where it sleeps.  Outside of a run everything goes to the kernel as it is.
 */
#include "sim_machine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define STALL_PERCENT 3
#define STALL_MS_MAX 20
#define LOOK_NS 1000u /* each look at a clock takes so long: whoever spins until a time comes to it */

#pragma GCC visibility push(default) /* or nobody outside would call what stands in front of libc */

sim_common *sim_shared_memory;
sim_slot *sim_me;
bool sim_outside;

static bool running(void) {
    return sim_shared_memory != NULL && !sim_outside;
}

/* ---- the trace ---- */

static void trace_bytes(const char *text, size_t size) {
    sim_common *all = sim_shared_memory;
    for (size_t i = 0; i < size; i++)
        all->trace_hash = (all->trace_hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    if (!all->tracing || all->trace_bytes + size >= SIM_TRACE_BYTES) return;
    memcpy(all->trace + all->trace_bytes, text, size);
    all->trace_bytes += size;
}

void sim_trace(const char *who, const char *format, ...) {
    sim_common *all = sim_shared_memory;
    if (all == NULL) return;
    char line[512];
    int size = snprintf(line, sizeof(line), "%llu.%06llu %s ", (unsigned long long)(all->mono_ns / 1000000000u),
                        (unsigned long long)(all->mono_ns / 1000u % 1000000u), who);
    va_list more;
    va_start(more, format);
    int rest = vsnprintf(line + size, sizeof(line) - (size_t)size - 1, format, more);
    va_end(more);
    size += rest;
    if ((size_t)size > sizeof(line) - 2) size = sizeof(line) - 2;
    line[size++] = '\n';
    trace_bytes(line, (size_t)size);
}

static const char *my_name(void) {
    return sim_me != NULL ? sim_me->name : "-";
}

void sim_note(const char *format, ...) {
    char text[400];
    va_list more;
    va_start(more, format);
    vsnprintf(text, sizeof(text), format, more);
    va_end(more);
    sim_trace(my_name(), "%s", text);
}

/* ---- whose turn it is ---- */

void sim_turn_give(_Atomic uint32_t *turn) {
    atomic_fetch_add(&sim_shared_memory->turns, 1);
    atomic_store(turn, 1);
    syscall(SYS_futex, turn, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void sim_hand_over(sim_state state) {
    sim_slot *me = sim_me;
    me->state = state;
    sim_slot *next = sim_schedule_next();
    if (next == me) return;
    atomic_store(&me->turn, 0); /* before anybody can give it back */
    sim_turn_give(next != NULL ? &next->turn : &sim_shared_memory->machine_turn);
    while (atomic_load(&me->turn) == 0)
        syscall(SYS_futex, &me->turn, FUTEX_WAIT, 0, NULL, NULL, 0);
    if (me->order != SIM_DIE_LATE) return;
    sim_wire_flush_all(); /* what was on its way arrives */
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
}

_Noreturn void sim_fail(const char *format, ...) {
    sim_common *all = sim_shared_memory;
    va_list more;
    va_start(more, format);
    vsnprintf(all->failure, sizeof(all->failure), format, more);
    va_end(more);
    all->failed = true;
    sim_trace(my_name(), "FAILED: %s", all->failure);
    for (;;) {
        if (sim_me != NULL)
            sim_hand_over(SIM_BROKEN);
        else
            sim_run_ended(false); /* memory: the run is this process */
    }
}

static bool interrupted(void) {
    return sim_me != NULL && !sim_me->alone;
}

void sim_point(const char *what, long detail) {
    sim_common *all = sim_shared_memory;
    if (all == NULL || !interrupted()) return;
    all->points++;
    all->mono_ns += 1000u * sim_between(&sim_me->pace, 1, 30);
    sim_trace(sim_me->name, "%s %ld", what, detail);
    if (sim_me->quantum > 0 && --sim_me->quantum > 0) return;
    sim_hand_over(SIM_AT_POINT);
}

static void changed(void) {
    if (sim_shared_memory != NULL) sim_shared_memory->changes++;
}

bool sim_write_fails(const char *what) {
    sim_slot *me = sim_me;
    if (me == NULL || me->fault_in == 0 || --me->fault_in > 0) return false;
    if (me->fault_count > 0) {
        me->fault_count--;
        me->fault_in = 1;
    }
    sim_trace(me->name, "%s fails: %s", what, strerror(me->fault_errno));
    errno = me->fault_errno;
    return true;
}

/* ---- waiting ---- */

int sim_real_poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
    struct timespec left = { .tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L };
    return (int)syscall(SYS_ppoll, fds, count, timeout_ms < 0 ? NULL : &left, NULL, 8);
}

/* How many are ready; *backend is the server process that one of them waits for. */
static int ready_now(struct pollfd *fds, nfds_t count, int *backend) {
    *backend = 0;
    int ready = count > 0 ? sim_real_poll(fds, count, 0) : 0;
    for (nfds_t i = 0; i < count; i++) {
        if (!sim_wire_owns(fds[i].fd)) continue;
        bool before = fds[i].revents != 0;
        fds[i].revents = (short)(fds[i].events & POLLOUT);
        if ((fds[i].events & POLLIN) != 0 && sim_wire_ready(fds[i].fd)) fds[i].revents |= POLLIN;
        if (fds[i].revents == 0 && *backend == 0) *backend = sim_wire_backend(fds[i].fd);
        ready += (fds[i].revents != 0) - before;
    }
    return ready;
}

static bool ordered(void) {
    return sim_me != NULL && sim_me->top && sim_me->order != SIM_GO;
}

int sim_wait(struct pollfd *fds, nfds_t count, uint64_t deadline_ns) {
    sim_common *all = sim_shared_memory;
    for (;;) {
        if (sim_me != NULL) sim_me->heard = all->changes;
        int backend = 0;
        int ready = ready_now(fds, count, &backend);
        if (ready != 0 || all->mono_ns >= deadline_ns || ordered()) return ready;
        if (interrupted()) {
            sim_me->deadline_ns = deadline_ns;
            sim_me->backend = backend;
            sim_hand_over(backend != 0 ? SIM_BLOCKED : SIM_ASLEEP);
        } else if (backend == 0) {
            if (deadline_ns == SIM_NEVER) sim_fail("%s waits for ever", my_name());
            all->mono_ns = deadline_ns;
        }
    }
}

static uint64_t after_ns(uint64_t ns) {
    uint64_t now = sim_shared_memory->mono_ns;
    return ns > SIM_NEVER - now ? SIM_NEVER : now + ns;
}

static uint64_t in_ns(const struct timespec *time) {
    return (uint64_t)time->tv_sec * 1000000000u + (uint64_t)time->tv_nsec;
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask) {
    if (!running()) return (int)syscall(SYS_ppoll, fds, count, timeout, mask, 8);
    return sim_wait(fds, count, timeout == NULL ? SIM_NEVER : after_ns(in_ns(timeout)));
}

int poll(struct pollfd *fds, nfds_t count, int timeout_ms) {
    if (!running()) return sim_real_poll(fds, count, timeout_ms);
    return sim_wait(fds, count, timeout_ms < 0 ? SIM_NEVER : after_ns((uint64_t)timeout_ms * 1000000u));
}

int nanosleep(const struct timespec *time, struct timespec *left) {
    if (!running()) return (int)syscall(SYS_nanosleep, time, left);
    (void)sim_wait(NULL, 0, after_ns(in_ns(time)));
    return 0;
}

int usleep(useconds_t us) {
    struct timespec time = { .tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000 };
    return nanosleep(&time, NULL);
}

unsigned sleep(unsigned seconds) {
    struct timespec time = { .tv_sec = (time_t)seconds };
    (void)nanosleep(&time, NULL);
    return 0;
}

/* Actors have no threads: nobody signals, so that only a time ends such a wait. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    (void)cond;
    (void)mutex;
    if (!running()) return ETIMEDOUT;
    (void)sim_wait(NULL, 0, in_ns(until));
    return ETIMEDOUT;
}

int pthread_cond_wait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex) {
    (void)cond;
    (void)mutex;
    sim_fail("%s waits for a thread that there is not", my_name());
}

/* ---- clocks and randomness ---- */

static int clock_answer(struct timespec *out, uint64_t ns) {
    *out = (struct timespec){ .tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u) };
    return 0;
}

uint64_t sim_now_ms(void) {
    return ((uint64_t)((int64_t)sim_shared_memory->mono_ns + sim_shared_memory->wall_ns)) / 1000000u;
}

/* When a file was changed is the kernel's to say, by its own clock: the same in each run only if it is not said. */
int stat(const char *restrict path, struct stat *restrict out) {
    int result = fstatat(AT_FDCWD, path, out, 0);
    if (result == 0 && running()) out->st_mtim = out->st_ctim = out->st_atim = (struct timespec){ 0, 0 };
    return result;
}

/* In some runs whoever looks at a clock is now and then not on a core for a while: what was true before is history. */
static void stall(sim_common *all) {
    static sim_rng memory;
    sim_rng *rng = sim_me != NULL ? &sim_me->pace : &memory;
    if (rng->state == 0) *rng = sim_stream(all->seed, "stalls of memory", 0);
    if (sim_chance(rng, STALL_PERCENT)) all->mono_ns += 1000000u * sim_between(rng, 1, STALL_MS_MAX);
}

int clock_gettime(clockid_t clock, struct timespec *out) {
    sim_common *all = sim_shared_memory;
    if (!running() || clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID)
        return (int)syscall(SYS_clock_gettime, clock, out);
    all->mono_ns += LOOK_NS;
    if (all->stalls) stall(all);
    bool wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    return clock_answer(out, wall ? (uint64_t)((int64_t)all->mono_ns + all->wall_ns) : all->mono_ns);
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    (void)zone;
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){ .tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000 };
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) *out = now.tv_sec;
    return now.tv_sec;
}

static void fill_random(void *out, size_t size) {
    static sim_rng memory;
    sim_rng *rng = sim_me != NULL ? &sim_me->random : &memory;
    if (rng->state == 0) *rng = sim_stream(sim_shared_memory->seed, "memory", 0);
    unsigned char *at = out;
    uint64_t word = 0;
    for (size_t i = 0; i < size; i++) {
        if (i % 8 == 0) word = sim_next(rng);
        at[i] = (unsigned char)(word >> (i % 8 * 8));
    }
}

ssize_t getrandom(void *out, size_t size, unsigned flags) {
    if (!running()) return syscall(SYS_getrandom, out, size, flags);
    fill_random(out, size);
    return (ssize_t)size;
}

/* ---- files ---- */

static int seeded_file(void) {
    unsigned char bytes[512];
    fill_random(bytes, sizeof(bytes));
    int fd = memfd_create("random", MFD_CLOEXEC);
    if (fd >= 0 && syscall(SYS_pwrite64, fd, bytes, sizeof(bytes), 0) < 0) return -1;
    return fd;
}

static int open_file(const char *path, int flags, mode_t mode) {
    if (running() && strcmp(path, "/dev/urandom") == 0) return seeded_file();
    if ((flags & O_CREAT) != 0) sim_point("create", 0);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_file(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open_file(path, flags, mode);
}

int close(int fd) {
    sim_wire_closed(fd);
    changed(); /* a lock goes with its descriptor, and who watches the file is told */
    return (int)syscall(SYS_close, fd);
}

int unlink(const char *path) {
    sim_point("unlink", 0);
    changed();
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

int rename(const char *from, const char *to) {
    sim_point("rename", 0);
    changed();
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static ssize_t write_at(int fd, const void *bytes, size_t size, off_t at) {
    sim_point("write", (long)at);
    if (sim_write_fails("write")) return -1;
    changed();
    return syscall(SYS_pwrite64, fd, bytes, size, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    return write_at(fd, bytes, size, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    return write_at(fd, bytes, size, at);
}

static int cut_off(int fd, off_t size) {
    sim_point("truncate", (long)size);
    if (sim_write_fails("truncate")) return -1;
    changed();
    return (int)syscall(SYS_ftruncate, fd, size);
}

int ftruncate(int fd, off_t size) {
    return cut_off(fd, size);
}

int ftruncate64(int fd, off64_t size) {
    return cut_off(fd, size);
}

/* Nothing loses power here (tests/disk does that), so a sync is a point and nothing else. */
static int sync_file(int fd) {
    if (!running()) return (int)syscall(SYS_fdatasync, fd);
    sim_point("sync", 0);
    return sim_write_fails("sync") ? -1 : 0;
}

int fsync(int fd) {
    return sync_file(fd);
}

int fdatasync(int fd) {
    return sync_file(fd);
}

/* ---- locks ---- */

static int lock_waiting(int fd, int command, struct flock *lock) {
    int try = command == F_SETLKW ? F_SETLK : F_OFD_SETLK;
    for (;;) {
        if (sim_me != NULL) sim_me->heard = sim_shared_memory->changes;
        int result = (int)syscall(SYS_fcntl, fd, try, lock);
        if (result == 0 || (errno != EAGAIN && errno != EACCES)) return result;
        if (!interrupted()) sim_fail("%s is blocked by a lock", my_name());
        sim_me->backend = 0;
        sim_me->deadline_ns = SIM_NEVER;
        sim_hand_over(SIM_BLOCKED);
    }
}

static int lock_file(int fd, int command, struct flock *lock) {
    sim_point(lock->l_type == F_UNLCK ? "unlock" : "lock", (long)lock->l_start);
    if (lock->l_type == F_UNLCK) changed();
    if (command == F_SETLKW || command == F_OFD_SETLKW) return lock_waiting(fd, command, lock);
    return (int)syscall(SYS_fcntl, fd, command, lock);
}

static int file_control(int fd, int command, void *argument) {
    bool locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
    if (locks && running()) return lock_file(fd, command, argument);
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

int fcntl(int fd, int command, ...) {
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    return file_control(fd, command, argument);
}

int fcntl64(int fd, int command, ...) {
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    return file_control(fd, command, argument);
}

int flock(int fd, int operation) {
    if (!running()) return (int)syscall(SYS_flock, fd, operation);
    sim_point("flock", operation);
    if ((operation & LOCK_UN) != 0) changed();
    for (;;) {
        if (sim_me != NULL) sim_me->heard = sim_shared_memory->changes;
        int result = (int)syscall(SYS_flock, fd, operation | LOCK_NB);
        if (result == 0 || errno != EWOULDBLOCK || (operation & LOCK_NB) != 0) return result;
        if (!interrupted()) sim_fail("%s is blocked by a lock", my_name());
        sim_me->backend = 0;
        sim_me->deadline_ns = SIM_NEVER;
        sim_hand_over(SIM_BLOCKED);
    }
}
