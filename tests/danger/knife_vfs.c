/*
 * knife_vfs.c: the shim behind knife_vfs.h: one wrapped file per opened file, everything else goes through.
 */
#include "danger/knife_vfs.h"

#include <signal.h>
#include <sqlite3.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

knife_vfs knife;

static sqlite3_vfs *real;
static sqlite3_vfs shim;

typedef struct shim_file {
    sqlite3_file base;
    sqlite3_io_methods methods;
    sqlite3_file *inner; /* behind this struct */
} shim_file;

static sqlite3_file *inner_of(sqlite3_file *file) {
    return ((shim_file *)(void *)file)->inner;
}

/* SQLITE_OK: go on. */
static int change(bool is_write) {
    long now = atomic_fetch_add(&knife.ops, 1) + 1;
    if (now == atomic_load(&knife.kill_at)) {
        kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
    int code = SQLITE_OK;
    long fail_at = atomic_load(&knife.fail_at);
    if (fail_at != 0 && now >= fail_at && now < fail_at + atomic_load(&knife.fail_count))
        code = atomic_load(&knife.fail_code);
    else if (is_write && atomic_load(&knife.full))
        code = SQLITE_FULL;
    if (code != SQLITE_OK) atomic_fetch_add(&knife.failed, 1);
    return code;
}

static int shim_write(sqlite3_file *file, const void *bytes, int size, sqlite3_int64 offset) {
    int code = change(true);
    return code != SQLITE_OK ? code : inner_of(file)->pMethods->xWrite(inner_of(file), bytes, size, offset);
}

static int shim_truncate(sqlite3_file *file, sqlite3_int64 size) {
    int code = change(false);
    return code != SQLITE_OK ? code : inner_of(file)->pMethods->xTruncate(inner_of(file), size);
}

static int shim_sync(sqlite3_file *file, int flags) {
    int code = change(false);
    return code != SQLITE_OK ? code : inner_of(file)->pMethods->xSync(inner_of(file), flags);
}

static int shim_shm_lock(sqlite3_file *file, int offset, int count, int flags) {
    /* Taking the lock of the writer is "before BEGIN", giving it back is "after COMMIT".  It cannot fail, only die. */
    if (offset == 0 && (flags & SQLITE_SHM_EXCLUSIVE) != 0) {
        long now = atomic_fetch_add(&knife.ops, 1) + 1;
        if (now == atomic_load(&knife.kill_at)) kill(getpid(), SIGKILL);
    }
    return inner_of(file)->pMethods->xShmLock(inner_of(file), offset, count, flags);
}

static int shim_close(sqlite3_file *file) {
    return inner_of(file)->pMethods->xClose(inner_of(file));
}
static int shim_read(sqlite3_file *file, void *bytes, int size, sqlite3_int64 offset) {
    return inner_of(file)->pMethods->xRead(inner_of(file), bytes, size, offset);
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
static void shim_shm_barrier(sqlite3_file *file) {
    inner_of(file)->pMethods->xShmBarrier(inner_of(file));
}
static int shim_shm_unmap(sqlite3_file *file, int delete_flag) {
    return inner_of(file)->pMethods->xShmUnmap(inner_of(file), delete_flag);
}

static int shim_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags) {
    shim_file *self = (shim_file *)(void *)file;
    (void)vfs;
    memset(self, 0, sizeof(*self));
    self->inner = (sqlite3_file *)(void *)(self + 1);
    int code = real->xOpen(real, name, self->inner, flags, out_flags);
    if (self->inner->pMethods == NULL) return code;
    self->methods = (sqlite3_io_methods){
        .iVersion = self->inner->pMethods->iVersion < 2 ? 1 : 2, /* 2: no memory-mapped reads around us */
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
    self->base.pMethods = &self->methods;
    return code;
}

void knife_install(void) {
    real = sqlite3_vfs_find(NULL);
    shim = *real;
    shim.zName = "knife";
    shim.szOsFile = (int)sizeof(shim_file) + real->szOsFile;
    shim.xOpen = shim_open;
    shim.pNext = NULL;
    sqlite3_vfs_register(&shim, 1);
}
