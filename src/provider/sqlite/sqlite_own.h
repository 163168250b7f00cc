/*
 * sqlite_own.h: the caller's transaction, as the files of the SQLite store see it.
 */
#ifndef DURITE_SQLITE_OWN_H
#define DURITE_SQLITE_OWN_H

#include "provider/sqlite/sqlite_internal.h"

/* The caller's transaction, from dur_sqlite_begin to its end (sqlite_own.c); of the thread that has begun it. */
struct dur__sq_own {
    dur__sq_file *file;        /* it has a reference */
    const dur_provider *store; /* with which it was begun; only compared */
    dur__sq_conn conn;         /* db NULL: it was closed */
    const void *guest;         /* the user's function in which it was begun; only compared */
    char *who;                 /* begins it, for people */
    pthread_t thread;          /* the same */
    uint64_t serial;
    uint64_t version;     /* data_version at its begin, */
    uint64_t checkpoints; /* … and after how many pages the connection makes its own */
    uint64_t from_us;
    bool committed;           /* when it was over: by a COMMIT that was not ours */
    struct dur__sq_own *next; /* of its thread */
    /* file->desk.lock */
    _Atomic bool over;    /* never open again; also read without the lock */
    bool used;            /* somebody has it in hand, and with it the lead */
    uint64_t look_at_us;  /* when somebody who waits looks whether it is there … */
    uint64_t say_at_us;   /* … and says that it is … */
    uint64_t say_step_us; /* … and how long after that again */
};

/* This thread is inside dur_sqlite_begin … commit of this file. */
bool dur__sq_in_own_txn(const dur__sq_file *file);
/* NULL: no memory.  open: leader, when it has begun; who leads is it then. */
dur__sq_own *dur__sq_own_new(const dur_provider *store, dur__sq_file *file, sqlite3 *db);
void dur__sq_own_open(dur__sq_own *own);
/* Of this thread, also when it is over; NULL: none was begun, or it was freed. */
dur__sq_own *dur__sq_own_of(const dur__sq_file *file, const sqlite3 *db);
/* Have it in hand, and lead; false: it is over.  Its end waits until it is left. */
bool dur__sq_own_enter(dur__sq_own *own);
void dur__sq_own_leave(dur__sq_own *own);
/* Instead of leave, when the transaction is: others lead.  Then the thread that has begun it frees it. */
void dur__sq_own_end(dur__sq_own *own);
void dur__sq_own_free(dur__sq_own *own);
void dur__sq_own_forget(void); /* those of this thread that are over */
/* Roll back, and say so: what this thread has begun with that handle (NULL: any), or what is open on a connection. */
void dur__sq_own_drop(const dur__sq_file *file, const dur_provider *store, const char *why);
void dur__sq_own_drop_connection(sqlite3 *db, const char *why);
/* file->desk.lock held, by who waits for the lead: is there somebody to wait for?  The log tells who it is.  True: the
   lock was given up meanwhile. */
bool dur__sq_own_watch(dur__sq_file *file);
/* The lead for what is only memory.  Does not fail: also inside of somebody's transaction, between two calls of his. */
void dur__sq_lead_memory(dur__sq_file *file);
void dur__sq_unlead_memory(dur__sq_file *file);
/* Learn of a connection's end; false: no memory.  hooked: it has not come. */
bool dur__sq_hook(sqlite3 *db);
bool dur__sq_hooked(const sqlite3 *db);
void dur__sq_hooks_lock(bool locks); /* over a fork, before the files' lock */

#endif
