/*
 * sqlite_internal.h: what the files of the SQLite store share.
 *
 * One dur__sq_file per database file and process, however often it is opened.  It has one writer connection, and
 * whoever leads (dur__sq_lead) may use it and everything marked "leader" below; README.md tells the whole story.
 */
#ifndef DURITE_SQLITE_INTERNAL_H
#define DURITE_SQLITE_INTERNAL_H

#include "base/assert.h"
#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "base/thread.h"
#include "provider/sqlite/sqlite_sql.h"
#include "provider/turn.h"
#include <durite/sqlite.h>
#include <durite/sys/provider_methods.h>
#include <sqlite3.h>
#include <sys/types.h>
#include <time.h>

/* Worker rows and ready instances are numbered from here, 64 a millisecond: small integers in six bytes. */
#define DUR__SQ_SEQ_EPOCH_MS 1704067200000u

enum { DUR__SQ_MARK_BYTES = 160, DUR__SQ_WAL_GROWS = 1024 * 1024 };

typedef struct dur__sq_file dur__sq_file;
typedef struct dur__sq_lane dur__sq_lane;
typedef struct dur__sq_op dur__sq_op;
typedef struct dur__sq_own dur__sq_own;

/* ---- connections and statements (sqlite_stmt.c) ------------------------------------------------------------------ */

typedef struct dur__sq_conn {
    sqlite3 *db;
    sqlite3_stmt *stmts[DUR__SQ_COUNT]; /* prepared at first use */
    dur__link link;                     /* of a reader: in the file's pool */
} dur__sq_conn;

void dur__sq_conn_close(dur__sq_conn *conn);
/* A way out was taken while its statements ran: none does any more. */
void dur__sq_conn_reset(dur__sq_conn *conn);
/* Fill err from the connection's last error and return its code. */
int dur__sq_fail(dur_error *err, sqlite3 *db, const char *op);
/* How the writer's connection waits for a lock (sqlite_busy.c).  After a failure: say who it was. */
void dur__sq_busy_install(dur__sq_file *file);
/* BEGIN was answered: who had the lock is in the error, or forgotten. */
int dur__sq_busy_ended(dur__sq_file *file, int code, dur_error *err);
/* DUR_EBUSY: who has the lock.  file->desk.lock held. */
int dur__sq_busy_error(const dur__sq_file *file, dur_error *err);
uint64_t dur__sq_busy_until(const dur__sq_file *file); /* when who begins to wait now has waited busy_ms */
/* Leader: the log tells, after a second and then less and less often, that a lock is waited for. */
void dur__sq_busy_say(dur__sq_file *file);
/*
 * Bind by format and run: i uint64_t, o const uint64_t * (NULL: null), t const char * (NULL: null), j const dur_text *,
 * n (nothing): null.
 * run: expects no row.  first: *out is the statement at its first row, or NULL when there is none; the caller goes on
 * with next and must end it unless it came to NULL.
 */
int dur__sq_prepare(dur__sq_conn *conn, dur__sq_sql sql, dur_error *err); /* so that it needs no more later */
int dur__sq_run(dur__sq_conn *conn, dur__sq_sql sql, dur_error *err, const char *format, ...);
int dur__sq_first(dur__sq_conn *conn, dur__sq_sql sql, sqlite3_stmt **out, dur_error *err, const char *format, ...);
int dur__sq_next(sqlite3_stmt **stmt, dur_error *err);
/* Is there a row?  And: the first numbers of the first row; 0 where there is none, or NULL in it. */
int dur__sq_has(dur__sq_conn *conn, dur__sq_sql sql, bool *out, dur_error *err, const char *format, ...);
int dur__sq_get(dur__sq_conn *conn, dur__sq_sql sql, uint64_t *out, int count, dur_error *err, const char *format, ...);
void dur__sq_end(sqlite3_stmt **stmt);
int dur__sq_exec(sqlite3 *db, const char *sql, dur_error *err);
/* One number from a statement without parameters. */
int dur__sq_pragma_u64(sqlite3 *db, const char *sql, uint64_t *out, dur_error *err);
uint64_t dur__sq_u64(sqlite3_stmt *stmt, int column);
bool dur__sq_is_null(sqlite3_stmt *stmt, int column);
/* Borrowed until the next step; NULL.  Under a way out: what is not null is never NULL, but leaves. */
const char *dur__sq_text(sqlite3_stmt *stmt, int column);
char *dur__sq_dup(dur_arena *arena, sqlite3_stmt *stmt, int column);
dur_text dur__sq_json(dur_arena *arena, sqlite3_stmt *stmt, int column);

/* A vector that grows in an arena while rows are read; zeroed but for that: empty. */
typedef struct dur__sq_rows {
    dur_arena *arena;
    char *data;
    size_t count, room;
} dur__sq_rows;
void *dur__sq_rows_add(dur__sq_rows *rows, size_t more, size_t size); /* so many more, not initialized; the first */
void *dur__sq_rows_take(dur__sq_rows *rows, size_t *count);

/* ---- the file ---------------------------------------------------------------------------------------------------- */

#define DUR__SQ_NOT_COUNTED SIZE_MAX

/* A lease that a lane of this process holds: the store's row, remembered.  Leader. */
typedef struct dur__sq_lease {
    uint64_t key;
    char *instance;
    char *token;
    char *name; /* as the instance's row has them; NULL */
    char *version;
    dur__sq_lane *lane;
    uint64_t execution;  /* current; it has begun, as the row says, when has_execution */
    uint64_t last_event; /* of that execution */
    uint64_t epoch;      /* the file's when last compared with the row; 0: compare again */
    uint64_t seen_id;    /* messages that were handed out: id up to this and due up to seen_now */
    uint64_t seen_now;
    bool has_execution;
    bool untimed;     /* an owner holds it: the row has no end of the lock, and no time to be fetched at */
    bool no_values;   /* its execution has written no key: known because it began with this lease */
    bool counted;     /* the row still counts the acquisition */
    uint64_t *tagged; /* ids of messages that the acquisition counted and no turn has consumed */
    size_t tagged_count;
    size_t queued;       /* rows of its in the queue, due or not; DUR__SQ_NOT_COUNTED */
    bool dirty;          /* there may be messages to hand out; in lane->dirty */
    bool read;           /* … and this round has read them */
    bool gap;            /* queue messages were left out: of each queue the first few may be out at a time */
    bool asked;          /* its lane was asked to give it up */
    dur__map given;      /* ids of queue messages that were handed out, and not consumed */
    dur__link lane_link; /* lane->leases, or lane->lost */
    dur__link dirty_link;
    dur__link asked_link; /* lane->asked */
} dur__sq_lease;

typedef struct dur__sq_owner { /* an owner registered by this process (sqlite_owner.c) */
    char *id;
    char *path;
    int fd; /* flock held; -1: a database in memory */
    uint64_t timeout_ms;
    uint64_t heartbeat_ms; /* boot clock */
    bool was_late;         /* somebody may have taken it for dead: its beat asks */
    uint32_t taken_over;   /* by it, and not reported yet … */
    uint32_t freed;        /* … and what was set free by that */
    char last_dead[64];
    dur__link link;
} dur__sq_owner;

struct dur__sq_lane {
    dur_lane base;
    dur__sq_file *file;
    dur_waker *waker;
    char *owner;
    const dur_handler_filter *handlers; /* NULL: all */
    pthread_t thread;                   /* that calls it, when has_thread */
    bool has_thread;
    bool rests;             /* it has to be woken; file->desk.lock */
    _Atomic bool signalled; /* something may have come; consumed by a round */
    bool stepped;           /* dur_lane_options: whoever rests it has other things to do than to spin */
    uint64_t rest_us;       /* how long its sleeps were lately */
    uint64_t rest_at_us;    /* when the last began */
    bool asks_instances;    /* its round would find what has become ready … */
    bool asks_work;         /* … and what has come to the worker queue */
    bool left_inbox;        /* the last wait returned because of the inbox; nobody served it since */
    dur__link leases;       /* leader */
    dur__link dirty;        /* leader */
    dur__link lost;         /* leader: leases that went away, until the lane was told … */
    dur__link asked;        /* … and those that are to be given up */
    dur__link link;         /* file->desk.lock */
};

/* Somebody who waits for changes with a waker of his own: long polls and watches. */
typedef struct dur__sq_waiter {
    dur_waker *waker;
    char *instance; /* NULL: anything */
    dur__link link; /* file->desk.lock */
} dur__sq_waiter;

/* Names in the file's folder, and the folder itself (sqlite_intact.c). */
typedef struct dur__sq_name {
    char *path;
    dev_t dev;
    ino_t ino; /* 0: not there, or not known yet */
} dur__sq_name;

/* A time that a file system gave, which may stand still for some milliseconds. */
typedef struct dur__sq_stamp {
    struct timespec at;
    off_t size;
    bool settled; /* it was old when it was read: whatever comes later changes it */
} dur__sq_stamp;

typedef enum dur__sq_gone {
    DUR__SQ_HERE,
    DUR__SQ_GONE,   /* the file's name is somebody else's, or nobody's */
    DUR__SQ_OVER,   /* something was written over it */
    DUR__SQ_LACKS,  /* its -wal or -shm has no name any more … */
    DUR__SQ_PARTED, /* … or that name is another file's */
} dur__sq_gone;

/* What was seen of the files, so that it is noticed when they are not the same any more (sqlite_intact.c). */
typedef struct dur__sq_files {
    _Atomic int gone; /* dur__sq_gone.  But for HERE nothing is read or written any more */
    dur__sq_name folder, wal, shm;
    dur__mutex lock;          /* guards the stamps */
    dur__sq_stamp names_seen; /* of the folder: its names were right */
    dur__sq_stamp text_seen;  /* of the file: nothing strange was written over it, as the leader can tell … */
    dur__sq_stamp text_read;  /* … and as readers can */
    bool saved;               /* leader: a -wal that has lost its name was written into the file */
} dur__sq_files;

/* Who asks, who leads and who waits: all under its lock. */
typedef struct dur__sq_desk {
    dur__mutex lock;
    dur__cond turn; /* leading went false, or an op was finished */
    bool leading;
    pthread_t leader; /* … while somebody does */
    dur__link queue;  /* threads that wait for the lead, in order */
    dur__sq_own *own; /* the caller's transaction, whose thread leads until its end; NULL: none */
    dur__link inbox;
    dur__link answered; /* requests that are done, whose threads have not gone */
    dur__link lanes;
    dur__link waiters;
    uint64_t
        held_from_us; /* since when another program has the write lock, as far as we wait for it; 0: it has not … */
    char holder[64];  /* … and who that is, when known */
    _Atomic uint32_t waiter_count; /* also read without the lock, after a commit: see dur__sq_changed */
    bool watching;                 /* somebody polls inotify */
} dur__sq_desk;

/* The writer's connection waits for a lock (sqlite_busy.c).  Leader. */
typedef struct dur__sq_wait {
    uint64_t from_us;     /* since when … */
    uint64_t looked_us;   /* … when it was last looked who has it … */
    uint64_t until_us;    /* … how long it may; 0: busy_ms … */
    bool is_ours;         /* … and that is somebody of this process */
    uint64_t said_us;     /* when a lock was last waited for */
    uint64_t say_at_us;   /* when the log is told next … */
    uint64_t say_step_us; /* … and how long after that again */
} dur__sq_wait;

/* dur_meta's row, which tells whose a -wal is (sqlite_mark.c).  Leader. */
typedef struct dur__sq_mark {
    char known[DUR__SQ_MARK_BYTES]; /* as last known … */
    char next[DUR__SQ_MARK_BYTES];  /* … and as the transaction under way leaves it; "": unchanged */
    bool due;                       /* the file is known to have it: the next transaction draws another */
    bool was_restored;              /* … or a copy was restored */
    bool used;                      /* something was committed since the last number was drawn */
    char row[DUR__SQ_MARK_BYTES];   /* what the row is, when nobody else has written since … */
    uint64_t epoch;                 /* … this epoch; 0: read it */
} dur__sq_mark;

/* How large the -wal is, in pages (sqlite_checkpoint.c).  Leader. */
typedef struct dur__sq_wal_size {
    uint64_t pages;
    uint64_t every; /* checkpoint after so many */
    uint64_t next;  /* the next one then */
    uint64_t wait;  /* from so many on readers are waited for */
} dur__sq_wal_size;

/* Whom the transaction under way will wake after its commit (sqlite_wake.c).  Leader. */
typedef struct dur__sq_news {
    bool ready;
    bool work;
    bool due;       /* the next due time moved */
    bool all;       /* every watcher: somebody else wrote, or there was no memory for a name */
    char **changed; /* instances that watchers may wait for */
    size_t changed_count, changed_room;
} dur__sq_news;

/* When something happens by itself.  The leader writes, anybody reads. */
typedef struct dur__sq_times {
    _Atomic uint64_t due_ms;    /* wall; when something becomes visible */
    _Atomic uint64_t expiry_ms; /* boot; when a timed lock ends */
    bool stale;                 /* leader: they may be too early: what they stood for is gone */
} dur__sq_times;

typedef struct dur__sq_pool { /* of readers (sqlite_read.c) */
    dur__mutex lock;
    dur__link readers;
    uint32_t count;
} dur__sq_pool;

/* Between processes (sqlite_wake.c, sqlite_gate.c, sqlite_owner.c). */
typedef struct dur__sq_peers {
    int lock_fd;               /* "<path>.lock"; -1: in memory */
    bool gated;                /* leader: main is locked */
    uint64_t ungated_until_us; /* leader: somebody does not give a lock back; until then without */
    int inotify;               /* -1: none */
    int wal_watch;
    int dir_watch;
    dur__mutex wake_lock;        /* guards reading inotify */
    _Atomic bool wal_moved;      /* the WAL was written since we last looked */
    _Atomic uint64_t echo_at_us; /* look again then: what was written may not have been visible yet; 0: no need */
    _Atomic uint64_t echo_step_us;
    _Atomic bool owners_moved; /* an owner's file came, went or was closed */
    dur__mutex owners_lock;    /* guards owners; taken before desk.lock */
    dur__link owners;
} dur__sq_peers;

struct dur__sq_file {
    /* which file it is; unchanged while it is open */
    dev_t dev;
    ino_t ino;
    char *path;        /* NULL: in memory */
    char identity[24]; /* unlike that of any other file that is open */
    const dur_world *world;
    uint64_t busy_ms;
    uint64_t serial; /* dur__process_serial at birth */
    char boot[64];
    _Atomic bool relaxed;
    uint32_t refs; /* files_lock */
    bool busy;     /* files_lock: being opened or closed, without that lock */
    dur__link link;

    dur__sq_desk desk;
    dur__sq_files intact;
    dur__sq_pool pool;
    dur__sq_peers peers;
    dur__sq_times times;
    _Atomic uint64_t commits;

    /* leader */
    dur__sq_conn writer;
    dur__sq_wait wait;
    dur__sq_mark mark;
    dur__sq_wal_size wal_size;
    dur__sq_news news;
    uint64_t data_version;
    uint64_t epoch;         /* grows whenever somebody else has written */
    uint64_t lost_seq;      /* dur_meta: grows whenever leases were taken away */
    uint64_t last_seq;      /* order of worker rows and ready instances */
    uint64_t top_id;        /* highest message id of any transaction that was committed or seen */
    uint64_t schema;        /* SQLite's number of the schema; 0: not read yet */
    uint64_t queue_seen_id; /* messages up to this id were looked at for the leases of this process */
    uint64_t due_seen_ms;   /* … and those due up to this time */
    uint64_t max_id;        /* highest message id given out, when max_id_known */
    bool max_id_known;
    uint64_t next_key;         /* above all instances; 0: not known, somebody may have made one */
    unsigned char random[256]; /* drawn for tokens, and not used yet */
    size_t random_left;
    bool ready_maybe;   /* there may be instances to fetch; false: a look found none, and none has come since */
    uint64_t born_from; /* instances that the transaction under way has made with their first turn; 0: none … */
    bool born_mail;     /* … and something was sent to one of them */
    bool sessions_used; /* there may be session rows */
    bool relook;        /* memory may be behind the store: look at everything once more */
    bool boot_known;    /* the file has this boot's id */
    char *alive;        /* an owner that is registered, as of alive_epoch */
    uint64_t alive_epoch;
    dur__map leases;     /* by key */
    dur__buf block;      /* the events of the turn that is being written */
    dur_arena *scratch;  /* what the transaction under way has made, until the next begins */
    dur__reserve aside;  /* what is done after its COMMIT draws on this … */
    size_t needs;        /* … for which so many bytes … */
    size_t needs_leases; /* … and leases were asked for */
};

/* Does this thread lead?  Then what is the leader's is this thread's. */
static inline bool dur__sq_leads(const dur__sq_file *file) {
    return file->desk.leading && pthread_equal(file->desk.leader, pthread_self());
}

/* A handle: what dur_open gave out. */
typedef struct dur__sq_store {
    dur_provider base;
    dur__sq_file *file;
    bool long_poll;
} dur__sq_store;

static inline dur__sq_file *dur__sq_file_of(dur_provider *self) {
    return ((dur__sq_store *)(void *)self)->file;
}

/* ---- the WAL's layer (sqlite_vfs.c) -------------------------------------------------------------------------------
 */

/* For a connection that writes; synced: its commits sync the WAL.  NULL: the default VFS. */
const char *dur__sq_vfs_name(bool synced);
/* After a rollback: what a commit that failed has left. */
void dur__sq_vfs_drop(sqlite3 *db);

/* ---- transactions and the inbox (sqlite_inbox.c) ----------------------------------------------------------------- */

typedef struct dur__sq_txn {
    dur__sq_file *file;
    dur__sq_conn *conn;
    uint64_t now_ms;
    uint64_t boot_ms;
    sqlite3_int64 changes; /* of the connection, at its begin */
} dur__sq_txn;

/* Requests that one thread has made together and waits for.  file->desk.lock */
typedef struct dur__sq_call {
    dur__cond answered;
    size_t left; /* not finished */
} dur__sq_call;

/*
 * One request.  run works inside a transaction, may be called again after a rollback, and fills err when it fails;
 * done runs after COMMIT, by the leader, and changes what is remembered in memory.
 */
struct dur__sq_op {
    int (*run)(dur__sq_op *op, dur__sq_txn *txn);
    void (*done)(dur__sq_op *op, dur__sq_file *file);
    dur_error err;
    bool failed;
    bool undone;        /* by a failed COMMIT, whatever run had found */
    dur__sq_call *call; /* NULL: the leader's own */
    dur__link link;     /* desk.inbox, or desk.answered */
    dur__sq_op *next;   /* of the same batch */
};

/* Put the request into the inbox and wait until it is durable or has failed; op->err also in err. */
int dur__sq_submit(dur__sq_file *file, dur__sq_op *op, dur_error *err);
/* Several at once, in one transaction; an error only if none was run, else each op has its own. */
int dur__sq_submit_all(dur__sq_file *file, dur__sq_op **ops, size_t count, dur_error *err);
/* Take and give up the lead.  lead fails in the thread that has a transaction of its own (DUR_EDEADLK), and when
   another thread's has been open for busy_ms (DUR_EBUSY). */
int dur__sq_lead(dur__sq_file *file, dur_error *err);
void dur__sq_unlead(dur__sq_file *file);
/* The same while nobody else has the file: it is being opened, or closed. */
void dur__sq_lead_alone(dur__sq_file *file, bool leads);
/* Leader: run ops and everything in the inbox in one transaction; `last` follow after the inbox (reads of a round).
   Another program's lock is waited for until that time. */
void dur__sq_batch(dur__sq_file *file, uint64_t until_us, dur__sq_lane *self, dur__sq_op **ops, size_t count,
                   dur__sq_op **last, size_t last_count);
/* Leader: what another connection has written may concern our leases. */
int dur__sq_look(dur__sq_txn *txn, dur_error *err);
/* Leader: messages whose time has come. */
int dur__sq_due(dur__sq_txn *txn, dur_error *err);
void dur__sq_due_at(dur__sq_file *file, uint64_t wall_ms);     /* something becomes visible then */
void dur__sq_expires_at(dur__sq_file *file, uint64_t boot_ms); /* a timed lock ends then */
int dur__sq_next_times(dur__sq_txn *txn, dur_error *err);      /* look for both again */
int dur__sq_max_id(dur__sq_txn *txn, uint64_t *out, dur_error *err);
void dur__sq_wake_flush(dur__sq_file *file, dur__sq_lane *self);
bool dur__sq_inbox_waits(dur__sq_file *file);

/* A version as one number that sorts as it does. */
static inline uint64_t dur__sq_packed(dur_semver v) {
    return ((uint64_t)(v.major & 0x1fffff) << 42) | ((uint64_t)(v.minor & 0x1fffff) << 21) | (v.patch & 0x1fffff);
}

/* ---- handlers (sqlite_handler.c) --------------------------------------------------------------------------------- */

/* The first handler, from `from` (NULL: none) on, for which the statement has rows and that passes; NULL: no more. */
int dur__sq_handler_next(dur__sq_conn *conn, dur__sq_sql sql, const dur_handler_filter *filter, dur_arena *arena,
                         const char *from, const char **out, dur_error *err);
/* Where to go on behind it. */
const char *dur__sq_handler_after(const dur_handler_filter *filter, dur_arena *arena, const char *handler);
/* The handler after a turn, "" for none; NULL: as before. */
const char *dur__sq_turn_handler(dur__sq_txn *txn, const dur_execution_metadata *meta, bool named, bool status);

/* Keys of instances, for the time of a transaction; zeroed: none. */
typedef struct dur__sq_keys {
    uint64_t *list; /* scratch */
    size_t count, room;
} dur__sq_keys;
void dur__sq_keys_add(dur__sq_txn *txn, dur__sq_keys *keys, uint64_t key);
/* The first column of this row and of all that follow. */
int dur__sq_keys_read(dur__sq_txn *txn, dur__sq_keys *keys, sqlite3_stmt *row, dur_error *err);

/* ---- turns that write their start (sqlite_birth.c) ------------------------------------------------------------------
 */

struct dur__sq_turn_op;
/* Of a turn that writes its start: the instance, with its lease; a lease in memory after COMMIT. */
int dur__sq_born(struct dur__sq_turn_op *turn, dur__sq_txn *txn);
void dur__sq_born_done(struct dur__sq_turn_op *turn, dur__sq_file *file);

/* ---- history (sqlite_history.c) ---------------------------------------------------------------------------------- */

#define DUR__SQ_LAST_UNKNOWN UINT64_MAX

/* Where events go. */
typedef struct dur__sq_history {
    uint64_t key, execution;
    const char *instance;
    uint64_t last;  /* no event behind it is stored; DUR__SQ_LAST_UNKNOWN: look */
    uint64_t open;  /* activities that are open after them */
    const char *op; /* of an error */
} dur__sq_history;
/* DUR_ECONFLICT: one of them exists. */
int dur__sq_history_add(dur__sq_txn *txn, const dur__sq_history *to, const dur_event_row *events, size_t count,
                        dur_error *err);
/* Of executions from … to; adds how many events they were. */
int dur__sq_history_delete(dur__sq_txn *txn, uint64_t key, uint64_t from, uint64_t to, uint64_t *events,
                           dur_error *err);
int dur__sq_read_history(dur__sq_conn *conn, dur_arena *arena, const char *instance, uint64_t key, uint64_t execution,
                         dur_event_row **out, size_t *count, dur_error *err);

/* ---- leases in memory, messages (sqlite_queue.c) ----------------------------------------------------------------- */

uint64_t dur__sq_seq(dur__sq_txn *txn);
/* Key of an instance: 0 when there is none; `make` makes an id holder. */
int dur__sq_key(dur__sq_txn *txn, const char *instance, bool make, uint64_t *key, dur_error *err);
int dur__sq_enqueue(dur__sq_txn *txn, const dur_message_row *item, uint64_t delay_ms, uint64_t key, dur_error *err);
/* Only if nothing is known of the instance, not even its id; *made says so. */
int dur__sq_enqueue_new(dur__sq_txn *txn, const dur_message_row *item, uint64_t delay_ms, bool *made, dur_error *err);
/* End the lease or lock of an instance and find out when there is a reason to fetch it again. */
typedef struct dur__sq_release_how {
    uint64_t seen_id, seen_now; /* messages that are no reason; 0, 0: all are */
    uint64_t not_before;        /* wall; 0: at once */
    bool uncount;               /* the acquisition does not count */
    bool in_its_place;          /* it stands where it stood when it was acquired, if that was never used */
    bool by_holder;             /* who has written rows of what had none; else somebody must look whether there are */
    bool crashed;               /* its owner is dead */
} dur__sq_release_how;
/* dur_instance.look: a lease has ended without its holder, and activities were open; CRASHED: its owner died. */
enum { DUR__SQ_LOOK_NONE, DUR__SQ_LOOK, DUR__SQ_LOOK_CRASHED };
int dur__sq_release(dur__sq_txn *txn, uint64_t key, const dur__sq_release_how *how, dur_error *err);
int dur__sq_reason(dur__sq_txn *txn, uint64_t key, uint64_t seen_id, uint64_t seen_now, bool *any, uint64_t *due,
                   dur_error *err);
/* One that nobody has is ready for any message, and for work that somebody must look for. */
int dur__sq_ready_anew(dur__sq_txn *txn, uint64_t key, dur_error *err);
/* What is known of an id; all 0: nothing. */
typedef struct dur__sq_state {
    uint64_t key, execution;
    bool exists;  /* not only as somebody whom messages wait for */
    bool ended;   /* and nothing is to follow … */
    bool running; /* … and: it is to run, or something is to follow */
} dur__sq_state;
int dur__sq_state_of(dur__sq_txn *txn, const char *instance, dur__sq_state *out, dur_error *err);
/* The instance of that birth, or one that came here with its history and without a birth. */
int dur__sq_is_meant(dur__sq_txn *txn, uint64_t key, uint64_t birth, bool *yes, dur_error *err);
void dur__sq_lease_dirty(dur__sq_file *file, uint64_t key);
void dur__sq_lease_recheck(dur__sq_file *file, uint64_t key);
void dur__sq_lease_drop(dur__sq_file *file, uint64_t key, bool lost); /* leader, after COMMIT */
void dur__sq_lease_ask(dur__sq_file *file, uint64_t key);             /* the same: it is suspended */
/* Of a lane that has it, or will have it after COMMIT: then it is entered.  *out is it before it is whole: to be freed
   when the thread leaves by its way out. */
void dur__sq_lease_new(dur__sq_lease **out, dur__sq_lane *lane, uint64_t key, const char *instance, const char *token,
                       const char *name, const char *version);
enum { DUR__SQ_BLOCK = 48 }; /* what a block of a reserve costs beside its size, at most */
/* In a transaction: after COMMIT there will be so many leases more, whose texts these are, or texts of one (0). */
void dur__sq_needs(dur__sq_txn *txn, size_t leases, const char *instance, const char *name, const char *version);
void dur__sq_lease_enter(dur__sq_lease *lease);
void dur__sq_lease_free(dur__sq_lease *lease);
void dur__sq_lease_give(dur__sq_lease *lease, const char *queue, uint64_t id);
/* A turn that keeps the lease consumes a message: in its transaction, for the same round … */
void dur__sq_lease_take(dur__sq_txn *txn, const dur__sq_lease *lease, uint64_t id);
/* … and after it. */
void dur__sq_lease_taken(dur__sq_lease *lease, uint64_t id);
void dur__sq_ready(dur__sq_file *file); /* an instance can be fetched from now on */
int dur__sq_set_ready(dur__sq_txn *txn, uint64_t key, bool any, uint64_t due, dur_error *err);
void dur__sq_changed(dur__sq_file *file, const char *instance);
int dur__sq_count_lost(dur__sq_txn *txn, dur_error *err); /* tell other processes that leases were taken away */
void dur__sq_token(dur__sq_txn *txn, char out[80], char kind, uint64_t key);
uint64_t dur__sq_token_key(const char *token, char kind); /* 0: not ours */
/* An absolute time `delay` after now, without overflow. */
uint64_t dur__sq_after(uint64_t now, uint64_t delay);

/* What DUR__SQ_INSTANCE_LEASE reads of an instance. */
enum { DUR__SQ_LEASE_ID, DUR__SQ_LEASE_EXECUTION, DUR__SQ_LEASE_STATUS, DUR__SQ_LEASE_SUSPENDED };
enum { DUR__SQ_LEASE_OWNER = 4, DUR__SQ_LEASE_TOKEN, DUR__SQ_LEASE_UNTIL, DUR__SQ_LEASE_ACQUISITIONS };

/* ---- turns, fetches, work ---------------------------------------------------------------------------------------- */

typedef struct dur__sq_turn_op {
    dur__sq_op op;
    dur_turn_commit *turn;
    dur_arena *arena; /* for lost_work; may be NULL */
    dur__turn_facts facts;
    dur__sq_lane *lane; /* of a round; NULL */
    /* found by run, used by done */
    uint64_t key;
    const char *instance; /* of the row, when it was read */
    dur__sq_lease *lease;
    dur_turn_fault fault;
    uint64_t look;                 /* of the instance before the turn, where it writes what was recovered */
    const dur_worker_claim **lost; /* where somebody is to be told; the turn's arena */
    size_t lost_count;
    uint64_t last_event, current;
    size_t messages_gone; /* rows that it has deleted from the queue */
    bool was_leased, counted, row_written, released, values, visible_change;
    char token[80];                    /* of a lease that began with this turn */
    uint64_t born_max_id, born_now_ms; /* … what it has seen of the queue */
} dur__sq_turn_op;
void dur__sq_turn_op_init(dur__sq_turn_op *self, dur_turn_commit *turn, dur_arena *arena);
int dur__sq_refuse(dur__sq_turn_op *self, dur__turn_check check, const char *text);
int dur__sq_turn_op_answer(dur__sq_turn_op *self);

typedef struct dur__sq_fetch_op {
    dur__sq_op op;
    const dur_fetch *how;
    dur_arena *arena;
    dur__sq_lane *lane; /* NULL: no lane; leases are not remembered */
    dur_orchestration_item *items;
    size_t max, count;
    dur__sq_lease **leases; /* made, not yet in the map; NULL where none */
    uint64_t now_ms, max_id;
    bool more;
    uint32_t suspect; /* as in dur_round */
} dur__sq_fetch_op;
void dur__sq_fetch_op_init(dur__sq_fetch_op *self, const dur_fetch *how, dur_arena *arena, dur__sq_lane *lane,
                           dur_orchestration_item *items, size_t max);
void dur__sq_fetch_op_drop(dur__sq_fetch_op *self); /* leases that were not handed over */
/* The start that came first, whenever it is due; id 0: none was found. */
typedef struct dur__sq_first_start {
    uint64_t id;
    bool later; /* it is not due */
} dur__sq_first_start;
/* Which messages: visible at now_ms, and not (id up to `id` and due up to seen_now). */
typedef struct dur__sq_seen {
    uint64_t key, now_ms, id, seen_now;
    const dur__sq_lease *lease; /* NULL: nothing was handed out yet; else not what it was given of queues */
    dur__sq_first_start *start; /* where its first start goes, when it was learned; NULL: not asked */
    size_t *queued;             /* where the number of all its rows goes, when it was learned; NULL: not asked */
} dur__sq_seen;
int dur__sq_read_messages(dur__sq_conn *conn, dur_arena *arena, const dur__sq_seen *seen, uint32_t queue_max,
                          dur_fetched_message **out, size_t *count, bool *more, dur_error *err);
typedef struct dur__sq_behind {
    uint64_t key, now_ms;
    const char *queue; /* NULL: all */
    uint64_t after_due_ms, after_id;
    size_t max; /* 0: all */
} dur__sq_behind;
int dur__sq_read_behind(dur__sq_conn *conn, dur_arena *arena, const dur__sq_behind *which, dur_fetched_message **out,
                        size_t *count, dur_error *err);
int dur__sq_read_kv(dur__sq_conn *conn, dur_arena *arena, uint64_t key, bool merged, dur_key_value **out, size_t *count,
                    dur_error *err);

typedef struct dur__sq_work_op {
    dur__sq_op op;
    const dur_work_fetch *how;
    dur_arena *arena;
    dur_leased_work *works;
    size_t max, count;
    bool more, waiting_long;
    uint32_t suspect; /* as in dur_round */
} dur__sq_work_op;
void dur__sq_work_op_init(dur__sq_work_op *self, const dur_work_fetch *how, dur_arena *arena, dur_leased_work *works,
                          size_t max);
typedef struct dur__sq_ack_op {
    dur__sq_op op;
    dur_work_ack *ack;
} dur__sq_ack_op;
void dur__sq_ack_op_init(dur__sq_ack_op *self, dur_work_ack *ack);
int dur__sq_insert_work(dur__sq_txn *txn, uint64_t key, const dur_message_row *item, const char *token,
                        const char *owner, uint64_t *row_id, dur_error *err);
int dur__sq_claim_session(dur__sq_txn *txn, const char *session, const char *node, const char *owner, uint64_t lock_ms,
                          bool *claimed, dur_error *err);
/* A session is active when one of its worker rows is renewed, or ends; before that goes. */
int dur__sq_touch_session(dur__sq_txn *txn, uint64_t key, uint64_t execution, uint64_t activity, uint64_t seq,
                          const char *token, dur_error *err);
int dur__sq_delete_tree(dur__sq_txn *txn, uint64_t key, dur__sq_keys *deleted, dur_delete_result *out, dur_error *err);
int dur__sq_tree_lives(dur__sq_txn *txn, uint64_t key, bool *lives, dur_error *err); /* some of it has not ended */
void dur__sq_deleted_forget(dur__sq_file *file, const dur__sq_keys *keys);
/* Also inside a caller's own transaction. */
int dur__sq_start(dur__sq_txn *txn, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms,
                  bool *existed, dur__sq_keys *deleted, dur_error *err);
int dur__sq_message(dur__sq_txn *txn, const dur_message_row *item, uint64_t delay_ms, dur_error *err);

/* ---- lanes, waiting, owners, processes --------------------------------------------------------------------------- */

int dur__sq_wake_open(dur__sq_file *file, dur_error *err);
void dur__sq_wake_close(dur__sq_file *file);
void dur__sq_wake_drain(dur__sq_file *file);
void dur__sq_wake_others(dur__sq_file *file, uint64_t commit_us); /* after a commit that took so long */
/* Submit it until it has found something, or, with poll=long, that time is over. */
int dur__sq_poll(dur__sq_store *store, dur__sq_op *op, const size_t *count, uint64_t poll_ms, dur_error *err);
/* Did another connection commit since the writer last looked?  Leader. */
int dur__sq_foreign(dur__sq_file *file, bool *changed, dur_error *err);
/* Milliseconds until something becomes visible by itself, or `most`. */
uint64_t dur__sq_time_left(dur__sq_file *file, uint64_t most);
/* The two halves of a lane's sleep.  rest: false when its waker was woken already; rise: was it? */
bool dur__sq_rest(dur__sq_file *file, dur_waker *waker, uint64_t ms, dur_rest *out);
bool dur__sq_rise(dur__sq_file *file, dur_waker *waker);
void dur__sq_watch_pass_on(dur__sq_file *file,
                           const dur_waker *self); /* file->desk.lock held; self: who goes, or NULL */
void dur__sq_signal_all(dur__sq_file *file);

/* Has another process the file open? */
bool dur__sq_gate_others(const dur__sq_file *file);
void dur__sq_gate_enter(dur__sq_file *file);
void dur__sq_gate_leave(dur__sq_file *file);
int dur__sq_gate_open(dur__sq_file *file, dur_error *err);
void dur__sq_gate_close(dur__sq_file *file);

/* Find dead peers of an owner (NULL: nobody's) and free their leases; any thread. */
int dur__sq_owners_look(dur__sq_file *file, const char *self_id, dur_error *err);
/* DUR_ELEASE when the owner was never registered or was taken for dead: it may acquire nothing.  NULL is fine. */
int dur__sq_owner_lives(dur__sq_txn *txn, const char *id, dur_error *err);
bool dur__sq_owner_known(dur__sq_file *file, const char *id);
void dur__sq_owners_close(dur__sq_file *file);
void dur__sq_owners_forked(dur__sq_file *file);

/* ---- does the -wal belong to the file? (sqlite_mark.c) ----------------------------------------------------------- */

/* DUR_ESTATE: the database is missing or empty, beside a -wal or -journal that is not. */
int dur__sq_leftover_check(const char *path, dur_error *err);
/* Before the first connection.  DUR_ESTATE: the -wal is another file's. */
int dur__sq_mark_check(const dur__sq_file *file, dur_error *err);
int dur__sq_mark_open(dur__sq_file *file, dur_error *err);
/* A new number, with a list behind it. */
void dur__sq_mark_draw(char out[DUR__SQ_MARK_BYTES], const char *behind);
/* Leader, in a transaction that has written, before its COMMIT; and after it. */
int dur__sq_mark_write(dur__sq_file *file, dur_error *err);
void dur__sq_mark_committed(dur__sq_file *file);
/* Has the file a number that it cannot have?  conn as for dur__sq_intact. */
bool dur__sq_mark_is_strange(dur__sq_file *file, dur__sq_conn *conn);
/* Leader, before a checkpoint or the last close: a transaction of its own. */
void dur__sq_mark_end(dur__sq_file *file);

int dur__sq_schema_open(dur__sq_file *file, dur_error *err);
/* In the first transaction: after a new boot nothing is locked for a time any more. */
int dur__sq_boot_look(dur__sq_txn *txn, dur_error *err);
typedef struct dur__sq_migration {
    uint64_t version; /* applied to files whose version is below it */
    const char *sql;
} dur__sq_migration;
/* Apply what the file lacks.  more: the migrations of a later version of this library, for tests. */
/* 0: no table of ours.  DUR_ECORRUPT: there are some, and they do not say. */
int dur__sq_schema_version(sqlite3 *db, uint64_t *version, dur_error *err);
/* sqlite_values.c: DUR_ECORRUPT names the first value that its column cannot have. */
int dur__sq_check_values(sqlite3 *db, dur_error *err);
int dur__sq_migrate(sqlite3 *db, const dur__sq_migration *more, size_t more_count, dur_error *err);

/* ---- the -wal, written into the database (sqlite_checkpoint.c) --------------------------------------------------- */

int dur__sq_checkpoint_open(dur__sq_file *file, dur_error *err);
/* Leader, between two transactions: if it is time. */
void dur__sq_checkpoint(dur__sq_file *file);
/* Leader: a connection of the caller's makes none of its own from borrow to return. */
void dur__sq_checkpoint_borrow(dur__sq_own *own);
void dur__sq_checkpoint_return(const dur__sq_own *own);

/* ---- is it still what it was? (sqlite_intact.c) ------------------------------------------------------------------ */

/* Once -wal and -shm are there: remember which files they are. */
int dur__sq_intact_open(dur__sq_file *file, dur_error *err);
/* Was it found gone?  Then DUR_EIO.  Costs nothing; leader. */
int dur__sq_found_gone(dur__sq_file *file, dur_error *err);
/* The file, its -wal and its -shm have their names; else DUR_EIO, from then on.  Costs two stats; any thread. */
int dur__sq_present(dur__sq_file *file, dur_error *err);
/* … and nothing was written over it but by SQLite.  conn: the writer's, of the leader, which can tell for certain, or
   that of a reader.  Before a write is answered, and before anything is read. */
int dur__sq_intact(dur__sq_file *file, dur__sq_conn *conn, dur_error *err);
/* Leader, before the writer's connection is closed. */
void dur__sq_intact_close(dur__sq_file *file);
/* Leader, when somebody else has written: was an older copy written over it?  Then all leases of this process end. */
int dur__sq_restored_look(dur__sq_txn *txn, dur_error *err);
/* Leader: everything under the owners of this process is free, and they are gone: their beats say so. */
int dur__sq_owners_resign(dur__sq_txn *txn, dur_error *err);
/* Does an owner with a lane here hold an instance by the file that no lane knows of? */
int dur__sq_owners_hold_unknown(dur__sq_txn *txn, bool *any, dur_error *err);
int dur__sq_connect(sqlite3 **out, dur__sq_file *file, bool writer, dur_error *err);
void dur__sq_file_retain(dur__sq_file *file); /* by who has a reference */
void dur__sq_file_release(dur__sq_file *file);
/* A file that is no store here, for as long as SQLite has it open; fd: any descriptor of it, before SQLite opens it.
   DUR_EFORKED: SQLite had it open in a parent, at the fork. */
typedef struct dur__sq_held dur__sq_held;
int dur__sq_hold(dur__sq_held **out, int fd, const char *op, const char *path, dur_error *err);
void dur__sq_hold_end(dur__sq_held *self); /* NULL: nothing */
/* errno, of a file. */
int dur__sq_os_fail(dur_error *err, const char *op, const char *path);
char *dur__sq_beside(const char *path, const char *suffix); /* the name of a file beside; free */
char *dur__sq_folder(const dur__sq_file *file);             /* … and of their folder; free */
int dur__sq_reader(dur__sq_file *file, dur__sq_conn **out, dur_error *err);
void dur__sq_reader_done(dur__sq_file *file, dur__sq_conn *conn);

/*
 * A read, which changes nothing: its function is left where there is no memory.  It ends with done, after a failure,
 * too.
 *
 *     DUR__SQ_READ(read, file, err);
 *     int code = dur__sq_read_open(&read, &conn, err);     or snapshot: all that is read is as of one moment
 *     …
 *     dur__sq_read_done(&read);
 */
typedef struct dur__sq_reading {
    dur__way_out out;
    dur__sq_file *file;
    dur__sq_conn *conn;
} dur__sq_reading;
#define DUR__SQ_READ(name, of, err)                                                                                    \
    dur__sq_reading name = { .file = (of) };                                                                           \
    if (DUR__OUT_OF_MEMORY(&name.out)) return dur__sq_read_lost(&name, err)
int dur__sq_read_lost(dur__sq_reading *read, dur_error *err);
int dur__sq_read_open(dur__sq_reading *read, dur__sq_conn **out, dur_error *err);
int dur__sq_read_snapshot(dur__sq_reading *read, dur__sq_conn **out, dur_error *err);
void dur__sq_read_done(dur__sq_reading *read);

/* The methods, each said once: what is here is declared below, and is in the table (sqlite_open.c). */
/* clang-format off */
#define DUR__SQ_METHODS(METHOD)                                                                                        \
    METHOD(fetch_orchestration_item) METHOD(ack_orchestration_item) METHOD(abandon_orchestration_item)                 \
    METHOD(renew_orchestration_item_lock) METHOD(read) METHOD(append) METHOD(enqueue_for_worker)                       \
    METHOD(fetch_work_item) METHOD(ack_work_item) METHOD(renew_work_item_lock) METHOD(abandon_work_item)               \
    METHOD(renew_session_lock) METHOD(cleanup_orphaned_sessions) METHOD(enqueue_for_orchestrator)                      \
    METHOD(get_custom_status) METHOD(get_kv_value) METHOD(get_kv_all_values) METHOD(lane_open) METHOD(lane_round)      \
    METHOD(lane_rest) METHOD(lane_rise) METHOD(lane_close) METHOD(lane_messages) METHOD(lane_history)                  \
    METHOD(births) METHOD(fetch_turns) METHOD(commit_turns) METHOD(fetch_works)           \
    METHOD(ack_works) METHOD(check_works) METHOD(return_works) METHOD(alone_ended) METHOD(blame)                       \
    METHOD(owner_register) METHOD(owner_beat) METHOD(owner_release) METHOD(owner_holdings) METHOD(enqueue_start)       \
    METHOD(enqueue_existing) METHOD(watch_open) METHOD(watch_wait) METHOD(watch_close) METHOD(enqueue_starts)          \
    METHOD(watch_wake) METHOD(list_unserved) METHOD(get_instance_stats) METHOD(list_instances) METHOD(get_instance)    \
    METHOD(list_executions) METHOD(get_system_metrics) METHOD(get_queue_depths) METHOD(delete_instances)               \
    METHOD(delete_instances_bulk) METHOD(prune_executions) METHOD(prune_executions_bulk)                               \
    METHOD(dead_letter_messages) METHOD(dead_letter_work) METHOD(list_dead_letters) METHOD(delete_dead_letters)        \
    METHOD(set_suspended) METHOD(backup) METHOD(check) METHOD(vacuum)
/* clang-format on */
#define DUR__SQ_METHOD_(name) __typeof__(*((dur_provider_methods *)NULL)->name) dur__sq_##name;
DUR__SQ_METHODS(DUR__SQ_METHOD_)
#undef DUR__SQ_METHOD_
extern const dur_provider_methods dur__sq_methods;

#endif
