/*
 * sqlite_vfs.c: the WAL, written in one piece per commit.
 *
 * SQLite writes each frame of a commit with two system calls, header and page, directly behind each other.  This layer
 * over the default VFS keeps what is written to the WAL until it must be in the file: at a sync, before anything is
 * read, and when a write does not continue the one before.  With synchronous=FULL SQLite syncs the WAL of a commit
 * before it tells anybody about its frames, so nobody can look for a frame that is still here; without that sync the
 * layer is not used (dur__sq_vfs_name).  What is in the file, and in which order it gets there, is unchanged.
 * Only a commit writes (cache_spill is off).  One that fails half-way may leave something here: it is dropped, because
 * once the lock is gone that place in the file may be somebody else's (dur__sq_vfs_drop).
 *
 * A file that grows makes every sync write the file system's metadata, too: so it grows by a megabyte of zeros at a
 * time.  Recovery ends at the first frame whose checksum is wrong, and zeros are never right.
 */
#include "provider/sqlite/sqlite_internal.h"
#include <stdlib.h>

enum {
    KEPT_MAX = 112 * 1024, /* SQLite's unix layer takes a write of a multiple of 128 KiB for a full disk */
    GROW_BYTES = DUR__SQ_WAL_GROWS,
    ZEROS = 64 * 1024
};

typedef struct layer {
    sqlite3_vfs vfs;
    sqlite3_vfs *below;
} layer;

typedef struct wal_file {
    sqlite3_file base;
    sqlite3_file *real; /* directly behind this struct */
    char *kept;
    size_t used;
    sqlite3_int64 at;   /* where kept begins in the file */
    sqlite3_int64 size; /* of the file, as far as we know; -1: ask */
} wal_file;

static wal_file *wal_of(sqlite3_file *file) {
    return (wal_file *)(void *)file;
}

/* ---- what is kept ---- */

/* Only a kindness: a full disk is reported by the write that needs the room. */
static void grow(wal_file *wal, sqlite3_int64 end) {
    static const char zeros[ZEROS];
    if (wal->size < 0 && wal->real->pMethods->xFileSize(wal->real, &wal->size) != SQLITE_OK) wal->size = -1;
    if (wal->size < 0 || end <= wal->size) return;
    sqlite3_int64 to = (end + GROW_BYTES - 1) / GROW_BYTES * GROW_BYTES;
    for (sqlite3_int64 at = end; at < to;) {
        int bytes = (int)(to - at < ZEROS ? to - at : ZEROS);
        if (wal->real->pMethods->xWrite(wal->real, zeros, bytes, at) != SQLITE_OK) break;
        at += bytes;
        wal->size = at;
    }
    if (wal->size < end) wal->size = end;
}

static int flush(wal_file *wal) {
    if (wal->used == 0) return SQLITE_OK;
    size_t used = wal->used;
    wal->used = 0; /* also when it fails: the transaction fails with it and is written anew */
    int result = wal->real->pMethods->xWrite(wal->real, wal->kept, (int)used, wal->at);
    if (result == SQLITE_OK) grow(wal, wal->at + (sqlite3_int64)used);
    return result;
}

static int wal_write(sqlite3_file *file, const void *data, int bytes, sqlite3_int64 at) {
    wal_file *wal = wal_of(file);
    if (wal->used > 0 && (at != wal->at + (sqlite3_int64)wal->used || wal->used + (size_t)bytes > KEPT_MAX)) {
        int result = flush(wal);
        if (result != SQLITE_OK) return result;
    }
    if (bytes > KEPT_MAX) return wal->real->pMethods->xWrite(wal->real, data, bytes, at);
    if (wal->used == 0) wal->at = at;
    memcpy(wal->kept + wal->used, data, (size_t)bytes);
    wal->used += (size_t)bytes;
    return SQLITE_OK;
}

static int wal_read(sqlite3_file *file, void *data, int bytes, sqlite3_int64 at) {
    wal_file *wal = wal_of(file);
    int result = flush(wal);
    return result != SQLITE_OK ? result : wal->real->pMethods->xRead(wal->real, data, bytes, at);
}

static int wal_sync(sqlite3_file *file, int flags) {
    wal_file *wal = wal_of(file);
    int result = flush(wal);
    return result != SQLITE_OK ? result : wal->real->pMethods->xSync(wal->real, flags);
}

static int wal_truncate(sqlite3_file *file, sqlite3_int64 size) {
    wal_file *wal = wal_of(file);
    int result = flush(wal);
    wal->size = -1;
    return result != SQLITE_OK ? result : wal->real->pMethods->xTruncate(wal->real, size);
}

static int wal_file_size(sqlite3_file *file, sqlite3_int64 *out) {
    wal_file *wal = wal_of(file);
    int result = flush(wal);
    return result != SQLITE_OK ? result : wal->real->pMethods->xFileSize(wal->real, out);
}

static int wal_close(sqlite3_file *file) { /* what is kept now belongs to no commit */
    wal_file *wal = wal_of(file);
    int result = wal->real->pMethods->xClose(wal->real);
    sqlite3_free(wal->kept);
    wal->kept = NULL;
    return result;
}

static int wal_control(sqlite3_file *file, int op, void *arg) {
    wal_file *wal = wal_of(file);
    int result = flush(wal);
    return result != SQLITE_OK ? result : wal->real->pMethods->xFileControl(wal->real, op, arg);
}

/* ---- what only passes through: nobody locks or maps a WAL ---- */

static int wal_lock(sqlite3_file *file, int level) {
    return wal_of(file)->real->pMethods->xLock(wal_of(file)->real, level);
}
static int wal_unlock(sqlite3_file *file, int level) {
    return wal_of(file)->real->pMethods->xUnlock(wal_of(file)->real, level);
}
static int wal_check_lock(sqlite3_file *file, int *out) {
    return wal_of(file)->real->pMethods->xCheckReservedLock(wal_of(file)->real, out);
}
static int wal_sector(sqlite3_file *file) {
    return wal_of(file)->real->pMethods->xSectorSize(wal_of(file)->real);
}
static int wal_device(sqlite3_file *file) {
    return wal_of(file)->real->pMethods->xDeviceCharacteristics(wal_of(file)->real);
}

static const sqlite3_io_methods wal_methods = {
    .iVersion = 1,
    .xClose = wal_close,
    .xRead = wal_read,
    .xWrite = wal_write,
    .xTruncate = wal_truncate,
    .xSync = wal_sync,
    .xFileSize = wal_file_size,
    .xLock = wal_lock,
    .xUnlock = wal_unlock,
    .xCheckReservedLock = wal_check_lock,
    .xFileControl = wal_control,
    .xSectorSize = wal_sector,
    .xDeviceCharacteristics = wal_device,
};

/* ---- the layer ---- */

static sqlite3_vfs *below_of(sqlite3_vfs *vfs) {
    return ((layer *)(void *)vfs)->below;
}

/* A WAL becomes a wal_file; every other file is the one below, as if this layer were not there. */
static int layer_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out_flags) {
    sqlite3_vfs *below = below_of(vfs);
    if ((flags & SQLITE_OPEN_WAL) == 0) return below->xOpen(below, name, file, flags, out_flags);
    wal_file *wal = wal_of(file);
    memset(wal, 0, sizeof *wal);
    wal->real = (sqlite3_file *)(void *)(wal + 1);
    wal->size = -1;
    wal->kept = sqlite3_malloc(KEPT_MAX);
    if (wal->kept == NULL) return SQLITE_NOMEM;
    int result = below->xOpen(below, name, wal->real, flags, out_flags);
    if (result == SQLITE_OK) {
        wal->base.pMethods = &wal_methods;
        return SQLITE_OK;
    }
    if (wal->real->pMethods != NULL) (void)wal->real->pMethods->xClose(wal->real);
    sqlite3_free(wal->kept);
    return result;
}

static int layer_delete(sqlite3_vfs *vfs, const char *name, int sync) {
    return below_of(vfs)->xDelete(below_of(vfs), name, sync);
}
static int layer_access(sqlite3_vfs *vfs, const char *name, int flags, int *out) {
    return below_of(vfs)->xAccess(below_of(vfs), name, flags, out);
}
static int layer_full_name(sqlite3_vfs *vfs, const char *name, int size, char *out) {
    return below_of(vfs)->xFullPathname(below_of(vfs), name, size, out);
}
static void *layer_dl_open(sqlite3_vfs *vfs, const char *name) {
    return below_of(vfs)->xDlOpen(below_of(vfs), name);
}
static void layer_dl_error(sqlite3_vfs *vfs, int size, char *out) {
    below_of(vfs)->xDlError(below_of(vfs), size, out);
}
static void (*layer_dl_sym(sqlite3_vfs *vfs, void *library, const char *name))(void) {
    return below_of(vfs)->xDlSym(below_of(vfs), library, name);
}
static void layer_dl_close(sqlite3_vfs *vfs, void *library) {
    below_of(vfs)->xDlClose(below_of(vfs), library);
}
static int layer_random(sqlite3_vfs *vfs, int size, char *out) {
    return below_of(vfs)->xRandomness(below_of(vfs), size, out);
}
static int layer_sleep(sqlite3_vfs *vfs, int us) {
    return below_of(vfs)->xSleep(below_of(vfs), us);
}
static int layer_time(sqlite3_vfs *vfs, double *out) {
    return below_of(vfs)->xCurrentTime(below_of(vfs), out);
}
static int layer_last_error(sqlite3_vfs *vfs, int size, char *out) {
    return below_of(vfs)->xGetLastError(below_of(vfs), size, out);
}

/* Registered, as SQLite has it, until the process ends. */
static void layer_make(sqlite3_vfs *below, const char *name) {
    layer *made = dur__xcalloc(1, sizeof(*made));
    made->vfs = (sqlite3_vfs){ .iVersion = 1,
                               .szOsFile = below->szOsFile + (int)sizeof(wal_file),
                               .mxPathname = below->mxPathname,
                               .zName = dur__xstrdup(name),
                               .xOpen = layer_open,
                               .xDelete = layer_delete,
                               .xAccess = layer_access,
                               .xFullPathname = layer_full_name,
                               .xDlOpen = layer_dl_open,
                               .xDlError = layer_dl_error,
                               .xDlSym = layer_dl_sym,
                               .xDlClose = layer_dl_close,
                               .xRandomness = layer_random,
                               .xSleep = layer_sleep,
                               .xCurrentTime = layer_time,
                               .xGetLastError = layer_last_error };
    made->below = below;
    (void)sqlite3_vfs_register(&made->vfs, 0); /* or it is not found, and not used */
}

void dur__sq_vfs_drop(sqlite3 *db) {
    sqlite3_file *file = NULL;
    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &file) != SQLITE_OK || file == NULL) return;
    if (file->pMethods == &wal_methods) wal_of(file)->used = 0;
}

/* NULL means the default, without the layer: also where another default has its name, or there is no memory. */
const char *dur__sq_vfs_name(bool synced) {
    static dur__mutex lock = DUR__MUTEX_INIT;
    sqlite3_vfs *below = sqlite3_vfs_find(NULL);
    if (!synced || below == NULL) return NULL;
    char *name = dur__sq_beside("durite-", below->zName);
    dur__mutex_lock(&lock);
    if (sqlite3_vfs_find(name) == NULL) layer_make(below, name);
    sqlite3_vfs *found = sqlite3_vfs_find(name);
    dur__mutex_unlock(&lock);
    dur__free(name);
    return found != NULL && found->xOpen == layer_open && below_of(found) == below ? found->zName : NULL;
}
