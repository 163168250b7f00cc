/*
 * disk.h: a disk that knows what was synced, the SQLite VFS that writes its log, and time that only the test moves.
 *
 * The VFS passes everything on to real files in a folder and keeps a log: every write, truncate, sync, new name and
 * deleted name.  What a disk may hold after a loss of power at position n of the log is a function of the log and a
 * seed: disk_state_advance and disk_state_compose.  Everything stands in memory that processes share, so that two nodes
 * write one log.
 */
#ifndef TESTS_DISK_DISK_H
#define TESTS_DISK_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DISK_DB, DISK_WAL, DISK_JOURNAL, DISK_SLOTS };
enum { DISK_OPS_MAX = 1 << 17, DISK_OWNERS_MAX = 16 };

typedef enum disk_kind {
    DISK_WRITE,
    DISK_TRUNCATE,
    DISK_SYNC,
    DISK_SYNC_FAILED, /* the kernel says EIO, and takes what was dirty for clean: some of it is on the disk */
    DISK_CREATE,
    DISK_DELETE
} disk_kind;

typedef struct disk_op {
    uint8_t kind, slot, node;
    bool folder; /* a sync that reaches the folder, too */
    int32_t inode;
    uint32_t size;
    uint64_t offset;   /* truncate: the new size */
    const char *bytes; /* NULL: zeros */
} disk_op;

typedef enum disk_fault { FAULT_NONE, FAULT_FULL, FAULT_WRITE, FAULT_READ } disk_fault;

/* What all processes of one machine share; it outlives the machine. */
typedef struct disk_shared {
    /* the log */
    size_t op_count, bytes_used;
    disk_op ops[DISK_OPS_MAX];
    int32_t names[DISK_SLOTS]; /* the inode that has the name now; -1: none */
    int32_t inode_count;
    /* what goes wrong: the fault_count things from number fault_at on, of those that the kind counts */
    disk_fault fault;
    int fault_node; /* -1: any */
    uint64_t fault_at, fault_count, counted, faults_made;
    uint64_t seed, random; /* what the VFS calls random */
    int kill_node;         /* dies by SIGKILL before the operation kill_at of the log; -1: nobody */
    size_t kill_at;
    /* time, and the machine's own randomness */
    uint64_t clock_us, world_ms;
    uint64_t boot, boot_at_ms; /* each loss of power is followed by another boot, whose clock begins anew */
    uint64_t noise;
} disk_shared;

extern disk_shared *disk; /* made by disk_install */
extern int disk_node;     /* which node this process is */
extern bool disk_trace;   /* say what is written */

void disk_install(void);
/* An empty log for a machine that is switched on with this folder; names: what is in it. */
void disk_reset(const char *folder, uint64_t seed);
void disk_advance_ms(uint64_t ms);
void disk_news(void); /* as inotify would tell: the WAL was written by somebody */
void *disk_shared_memory(size_t size);

uint64_t disk_random(uint64_t *state);
uint64_t disk_mix(uint64_t a, uint64_t b);

/* ---- what may be on the disk ------------------------------------------------------------------------------------- */

typedef struct disk_image {
    char *bytes[DISK_SLOTS]; /* NULL: there is no such file */
    size_t used[DISK_SLOTS]; /* beyond it zeros */
    size_t size[DISK_SLOTS];
} disk_image;
void disk_image_free(disk_image *image);
void disk_image_write(const disk_image *image, const char *folder); /* and nothing else is in the folder */

/* A log that the next machine does not write over. */
typedef struct disk_log {
    disk_op *ops;
    char *bytes;
    size_t count;
} disk_log;
disk_log disk_log_copy(void);
void disk_log_free(disk_log *log);

typedef struct disk_state disk_state;
/* first: what was on the disk when the log began; NULL: nothing.  seed: what a failed sync leaves. */
disk_state *disk_state_new(const disk_image *first, const disk_op *ops, uint64_t seed);
void disk_state_free(disk_state *state);
size_t disk_state_at(const disk_state *state);
void disk_state_advance(disk_state *state, size_t to);
/* A loss of power now.  trace: say what becomes of each write. */
void disk_state_compose(disk_state *state, uint64_t seed, disk_image *out, bool trace);
/* No loss of power: everything that was written. */
void disk_state_whole(disk_state *state, disk_image *out);

#endif
