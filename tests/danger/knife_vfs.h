/*
 * knife_vfs.h: SQLite's way to the disk, with a knife in it.
 *
 * Once installed it is SQLite's default: every change of a file (write, sync, truncate, taking or giving back the
 * writer's lock of the log) is counted, and at a chosen one the process dies or the call fails.
 */
#ifndef TESTS_DANGER_KNIFE_VFS_H
#define TESTS_DANGER_KNIFE_VFS_H

#include <stdatomic.h>
#include <stdbool.h>

typedef struct knife_vfs {
    atomic_long ops;        /* changes so far */
    atomic_long kill_at;    /* SIGKILL instead of this change; 0: never */
    atomic_long fail_at;    /* this change fails … ; 0: none */
    atomic_long fail_count; /* … and so many in all, from there on */
    atomic_int fail_code;   /* with this */
    atomic_bool full;       /* every write fails with SQLITE_FULL */
    atomic_long failed;     /* how many failed */
} knife_vfs;

extern knife_vfs knife;

/* Before the first database is opened. */
void knife_install(void);

#endif
