/*
 * disk_vfs.c: the VFS that keeps the log, and clocks and sleeps that cost nothing.
 */
#include "disk/disk.h"
#include "support/sqlite_alone.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BYTES_MAX ((size_t)1 << 28)

/* Instead of the C library's, for every library in this process. */
#define INSTEAD __attribute__((visibility("default")))

disk_shared *disk;
int disk_node;
bool disk_trace;
static char *log_bytes;
static sqlite3_vfs *real;
static sqlite3_vfs shim;

typedef struct shim_file {
    sqlite3_file base;
    sqlite3_file *inner; /* directly behind this struct */
    int slot;            /* -1: not in the log */
    int32_t inode;
    bool folder; /* its next sync reaches the folder: SQLite's way with a new journal */
} shim_file;

static shim_file *file_of(sqlite3_file *file) {
    return (shim_file *)(void *)file;
}
static sqlite3_file *inner_of(sqlite3_file *file) {
    return file_of(file)->inner;
}

uint64_t disk_mix(uint64_t a, uint64_t b) {
    uint64_t z = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t disk_random(uint64_t *state) {
    *state += 0x9e3779b97f4a7c15u;
    return disk_mix(*state, 1);
}

/* ---- the log ---- */

static void log_op(disk_kind kind, int slot, int32_t inode, uint64_t offset, const void *bytes, size_t size,
                   bool folder) {
    if (disk->op_count == DISK_OPS_MAX || disk->bytes_used + size > BYTES_MAX) {
        fprintf(stderr, "disk: the log is full\n");
        abort();
    }
    if (disk_trace) {
        static const char *const kinds[] = {
            "write", "truncate", "sync", "sync that fails", "new name", "deleted name"
        };
        static const char *const files[] = { "database", "wal", "journal" };
        fprintf(stderr, "  operation %zu: %s: %s", disk->op_count, files[slot], kinds[kind]);
        fprintf(stderr, kind <= DISK_TRUNCATE ? " of %zu bytes at %llu\n" : "\n", size, (unsigned long long)offset);
    }
    const char *kept = NULL;
    bool zeros =
        bytes == NULL || (((const char *)bytes)[0] == 0 && memcmp(bytes, (const char *)bytes + 1, size - 1) == 0);
    if (!zeros) {
        kept = memcpy(log_bytes + disk->bytes_used, bytes, size);
        disk->bytes_used += size;
    }
    disk->ops[disk->op_count++] = (disk_op){ .kind = (uint8_t)kind,
                                             .slot = (uint8_t)slot,
                                             .node = (uint8_t)disk_node,
                                             .folder = folder,
                                             .inode = inode,
                                             .size = (uint32_t)size,
                                             .offset = offset,
                                             .bytes = kept };
}

static bool falls_on(disk_fault a, disk_fault b) {
    if ((disk->fault != a && disk->fault != b) || (disk->fault_node >= 0 && disk->fault_node != disk_node))
        return false;
    uint64_t now = disk->counted++;
    if (now < disk->fault_at || now - disk->fault_at >= disk->fault_count) return false;
    disk->faults_made++;
    return true;
}

static void perhaps_die(void) {
    if (disk->kill_node != disk_node || disk->op_count < disk->kill_at) return;
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static int shim_write(sqlite3_file *file, const void *bytes, int size, sqlite3_int64 offset) {
    shim_file *self = file_of(file);
    if (self->slot < 0) return self->inner->pMethods->xWrite(self->inner, bytes, size, offset);
    perhaps_die();
    int some = size;
    bool fails = falls_on(FAULT_FULL, FAULT_WRITE);
    if (fails) some = disk_random(&disk->random) % 2 == 0 ? 0 : (int)(disk_random(&disk->random) % (uint64_t)size);
    int code = some > 0 ? self->inner->pMethods->xWrite(self->inner, bytes, some, offset) : SQLITE_OK;
    if (code == SQLITE_OK && some > 0)
        log_op(DISK_WRITE, self->slot, self->inode, (uint64_t)offset, bytes, (size_t)some, false);
    if (!fails) return code;
    return disk->fault == FAULT_FULL ? SQLITE_FULL : SQLITE_IOERR_WRITE;
}

static int shim_truncate(sqlite3_file *file, sqlite3_int64 size) {
    shim_file *self = file_of(file);
    if (self->slot >= 0) {
        perhaps_die();
        if (falls_on(FAULT_WRITE, FAULT_WRITE)) return SQLITE_IOERR_TRUNCATE;
        log_op(DISK_TRUNCATE, self->slot, self->inode, (uint64_t)size, NULL, 0, false);
    }
    return self->inner->pMethods->xTruncate(self->inner, size);
}

static int shim_sync(sqlite3_file *file, int flags) {
    shim_file *self = file_of(file);
    (void)flags;
    if (self->slot < 0) return SQLITE_OK;
    perhaps_die();
    if (falls_on(FAULT_WRITE, FAULT_WRITE)) {
        log_op(DISK_SYNC_FAILED, self->slot, self->inode, 0, NULL, 0, false);
        return SQLITE_IOERR_FSYNC;
    }
    log_op(DISK_SYNC, self->slot, self->inode, 0, NULL, 0, self->folder);
    self->folder = false;
    return SQLITE_OK;
}

static int shim_read(sqlite3_file *file, void *bytes, int size, sqlite3_int64 offset) {
    if (file_of(file)->slot >= 0 && falls_on(FAULT_READ, FAULT_READ)) return SQLITE_IOERR_READ;
    return inner_of(file)->pMethods->xRead(inner_of(file), bytes, size, offset);
}

/* ---- what passes through ---- */

static int shim_close(sqlite3_file *file) {
    return inner_of(file)->pMethods->xClose(inner_of(file));
}
static int shim_size(sqlite3_file *file, sqlite3_int64 *out) {
    return inner_of(file)->pMethods->xFileSize(inner_of(file), out);
}
static int shim_lock(sqlite3_file *file, int level) {
    return inner_of(file)->pMethods->xLock(inner_of(file), level);
}
static int shim_unlock(sqlite3_file *file, int level) {
    return inner_of(file)->pMethods->xUnlock(inner_of(file), level);
}
static int shim_reserved(sqlite3_file *file, int *out) {
    return inner_of(file)->pMethods->xCheckReservedLock(inner_of(file), out);
}
static int shim_control(sqlite3_file *file, int op, void *arg) {
    return inner_of(file)->pMethods->xFileControl(inner_of(file), op, arg);
}
static int shim_sector(sqlite3_file *file) {
    return inner_of(file)->pMethods->xSectorSize(inner_of(file));
}
static int shim_traits(sqlite3_file *file) {
    return inner_of(file)->pMethods->xDeviceCharacteristics(inner_of(file));
}
static int shim_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **out) {
    return inner_of(file)->pMethods->xShmMap(inner_of(file), page, size, extend, out);
}
static int shim_shm_lock(sqlite3_file *file, int offset, int count, int flags) {
    return inner_of(file)->pMethods->xShmLock(inner_of(file), offset, count, flags);
}
static void shim_shm_barrier(sqlite3_file *file) {
    inner_of(file)->pMethods->xShmBarrier(inner_of(file));
}
static int shim_shm_unmap(sqlite3_file *file, int delete_flag) {
    return inner_of(file)->pMethods->xShmUnmap(inner_of(file), delete_flag);
}

static const sqlite3_io_methods methods = {
    .iVersion = 2, /* no memory-mapped reads around us */
    .xClose = shim_close,
    .xRead = shim_read,
    .xWrite = shim_write,
    .xTruncate = shim_truncate,
    .xSync = shim_sync,
    .xFileSize = shim_size,
    .xLock = shim_lock,
    .xUnlock = shim_unlock,
    .xCheckReservedLock = shim_reserved,
    .xFileControl = shim_control,
    .xSectorSize = shim_sector,
    .xDeviceCharacteristics = shim_traits,
    .xShmMap = shim_shm_map,
    .xShmLock = shim_shm_lock,
    .xShmBarrier = shim_shm_barrier,
    .xShmUnmap = shim_shm_unmap,
};

/* ---- names ---- */

static int slot_of(const char *name) {
    size_t size = name != NULL ? strlen(name) : 0;
    if (size >= 4 && strcmp(name + size - 4, "-wal") == 0) return DISK_WAL;
    if (size >= 8 && strcmp(name + size - 8, "-journal") == 0) return DISK_JOURNAL;
    if (size >= 8 && strcmp(name + size - 8, "/disk.db") == 0) return DISK_DB;
    return -1;
}

static int32_t name_made(int slot) {
    if (disk->names[slot] < 0) {
        disk->names[slot] = disk->inode_count++;
        log_op(DISK_CREATE, slot, disk->names[slot], 0, NULL, 0, false);
    }
    return disk->names[slot];
}

static int shim_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags) {
    shim_file *self = file_of(file);
    (void)vfs;
    memset(self, 0, sizeof(*self));
    self->inner = (sqlite3_file *)(void *)(self + 1);
    self->slot = slot_of(name);
    int code = real->xOpen(real, name, self->inner, flags, out_flags);
    if (self->inner->pMethods == NULL) return code;
    self->base.pMethods = &methods;
    if (code != SQLITE_OK || self->slot < 0) return code;
    self->inode = name_made(self->slot); /* the database itself was made by the store, before SQLite saw it */
    self->folder = self->slot != DISK_DB && (flags & SQLITE_OPEN_CREATE) != 0;
    return code;
}

static int shim_delete(sqlite3_vfs *vfs, const char *name, int sync) {
    int slot = slot_of(name);
    (void)vfs;
    if (slot >= 0 && disk->names[slot] >= 0) {
        perhaps_die();
        log_op(DISK_DELETE, slot, disk->names[slot], 0, NULL, 0, sync != 0);
        disk->names[slot] = -1;
    }
    return real->xDelete(real, name, 0);
}

static int shim_randomness(sqlite3_vfs *vfs, int size, char *out) {
    (void)vfs;
    for (int i = 0; i < size; i++)
        out[i] = (char)disk_random(&disk->random);
    return size;
}

void *disk_shared_memory(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return memory;
}

void disk_install(void) {
    disk = disk_shared_memory(sizeof(*disk));
    log_bytes = disk_shared_memory(BYTES_MAX);
    disk->kill_node = -1;
    /* A store is opened for each point: what opening costs is memory, mostly. */
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
    mallopt(M_MMAP_THRESHOLD, 1 << 28);
    sqlite_alone();
    real = sqlite3_vfs_find(NULL);
    shim = *real;
    shim.zName = "disk";
    shim.szOsFile = (int)sizeof(shim_file) + real->szOsFile;
    shim.xOpen = shim_open;
    shim.xDelete = shim_delete;
    shim.xRandomness = shim_randomness;
    shim.pNext = NULL;
    sqlite3_vfs_register(&shim, 1);
}

void disk_reset(const char *folder, uint64_t seed) {
    static const char *const suffix[DISK_SLOTS] = { "", "-wal", "-journal" };
    disk->op_count = disk->bytes_used = 0;
    disk->inode_count = DISK_SLOTS;
    for (int slot = 0; slot < DISK_SLOTS; slot++) {
        char path[512];
        struct stat state;
        snprintf(path, sizeof(path), "%s/disk.db%s", folder, suffix[slot]);
        disk->names[slot] = stat(path, &state) == 0 ? slot : -1;
    }
    disk->fault = FAULT_NONE;
    disk->fault_node = -1;
    disk->counted = disk->faults_made = 0;
    disk->kill_node = -1;
    disk->seed = disk->random = seed;
    disk->noise = disk_mix(seed, 11);
    disk->boot++;
    disk->boot_at_ms = disk->world_ms;
    disk->clock_us = 1000000; /* behind the real clock, so that no wait by it is long */
    sqlite3_randomness(0, NULL);
}

/* ---- time, for everything in this process ---- */

void disk_advance_ms(uint64_t ms) {
    disk->clock_us += ms * 1000;
    disk->world_ms += ms;
}

static void pass(const struct timespec *by) {
    disk->clock_us += (uint64_t)by->tv_sec * 1000000 + (uint64_t)by->tv_nsec / 1000;
}

static uint64_t clock_now_us(clockid_t clock) {
    switch (clock) {
    case CLOCK_REALTIME:
        return (1700000000000u + disk->world_ms) * 1000;
    case CLOCK_BOOTTIME:
        return (5000 + disk->world_ms - disk->boot_at_ms) * 1000;
    default:
        return disk->clock_us++;
    }
}

INSTEAD int clock_gettime(clockid_t clock, struct timespec *out) {
    if (disk == NULL || clock == CLOCK_PROCESS_CPUTIME_ID) return (int)syscall(SYS_clock_gettime, clock, out);
    uint64_t us = clock_now_us(clock);
    *out = (struct timespec){ .tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000 };
    return 0;
}

INSTEAD ssize_t getrandom(void *out, size_t size, unsigned flags) {
    if (disk == NULL) return (ssize_t)syscall(SYS_getrandom, out, size, flags);
    for (size_t i = 0; i < size; i++)
        ((char *)out)[i] = (char)disk_random(&disk->noise);
    return (ssize_t)size;
}

/* The kernel's name for this boot. */
static int boot_open(void) {
    char text[64];
    int fd = memfd_create("boot_id", MFD_CLOEXEC);
    int size = snprintf(text, sizeof(text), "00000000-0000-0000-0000-%012llu\n", (unsigned long long)disk->boot);
    if (fd >= 0 && pwrite(fd, text, (size_t)size, 0) != size) perror("disk: boot");
    return fd;
}

INSTEAD int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, int) : 0;
    va_end(args);
    if (disk != NULL && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0) return boot_open();
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

INSTEAD int nanosleep(const struct timespec *by, struct timespec *left) {
    if (disk == NULL) return (int)syscall(SYS_nanosleep, by, left);
    pass(by);
    return 0;
}

INSTEAD int usleep(useconds_t us) {
    return nanosleep(&(struct timespec){ .tv_sec = us / 1000000, .tv_nsec = (long)(us % 1000000) * 1000 }, NULL);
}

/* Nobody comes while this process waits: what is not there now is not there when the time is over. */
static int look(struct pollfd *fds, nfds_t count, bool ever, uint64_t us) {
    int ready = (int)syscall(SYS_ppoll, fds, count, &(struct timespec){ 0, 0 }, NULL, 0);
    if (ready != 0) return ready;
    if (ever) {
        fprintf(stderr, "disk: waits for ever\n");
        abort();
    }
    disk->clock_us += us;
    return 0;
}

INSTEAD int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *signals) {
    if (disk == NULL) return (int)syscall(SYS_ppoll, fds, count, timeout, signals, sizeof(uint64_t));
    return look(fds, count, timeout == NULL,
                timeout == NULL ? 0 : (uint64_t)timeout->tv_sec * 1000000 + (uint64_t)timeout->tv_nsec / 1000);
}

INSTEAD int poll(struct pollfd *fds, nfds_t count, int ms) {
    if (disk == NULL) return (int)syscall(SYS_poll, fds, count, ms);
    return look(fds, count, ms < 0, ms < 0 ? 0 : (uint64_t)ms * 1000);
}

/* ---- inotify: closing one waits for the whole kernel, so its place is taken by a pipe ---- */

static int news_in = -1;

INSTEAD int inotify_init1(int flags) {
    int ends[2];
    if (news_in >= 0) close(news_in);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return -1;
    (void)flags;
    news_in = ends[1];
    return ends[0];
}

INSTEAD int inotify_add_watch(int fd, const char *path, uint32_t mask) {
    (void)fd;
    (void)mask;
    return slot_of(path) == DISK_WAL ? 1 : 2;
}

void disk_news(void) {
    struct inotify_event event = { .wd = 1, .mask = IN_MODIFY };
    if (news_in >= 0 && write(news_in, &event, sizeof(event)) < 0 && errno != EAGAIN && errno != EPIPE)
        perror("disk: news");
}
