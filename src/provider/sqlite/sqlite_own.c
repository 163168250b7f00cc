/*
 * sqlite_own.c: the life of a caller's transaction, from dur_sqlite_begin to its end, whoever brings that about.
 *
 * Its thread leads this process's writers for all that time, so a transaction that nobody ends would stop them.  It is
 * ended by whatever can be seen of its end:
 *   - its own commit or rollback (sqlite_txn.c);
 *   - the end of the activity or handler in which it was begun, of its thread, or of its store: rolled back here, by
 *     its own thread, with a warning;
 *   - the end of its connection, of which a function of ours that SQLite forgets with the connection tells;
 *   - a COMMIT or ROLLBACK of the caller's own.  The connection is not ours to look at from another thread: whoever has
 *     waited for a second tries with a connection of his own whether the write lock is free.
 * What is left, a transaction that goes on and on, is named in the log, and others are DUR_EBUSY when their time is up.
 *
 * Between two calls of the caller nobody needs what the leader knows, so who must have it for a moment, without writing
 * (dur__sq_lead_memory), has it: `used` excludes the two.  An object is freed by its own thread only, which may come
 * back to it when it is over.
 */
#include "provider/sqlite/sqlite_own.h"
#include "obs/log_internal.h"
#include "provider/provider_internal.h"
#include "provider/sqlite/sqlite_internal.h"
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LOOK_EVERY_US = 1000000, SAY_STEP_US = 64000000 };

static _Thread_local dur__sq_own *mine; /* of this thread, also those that are over */
static _Thread_local dur__guest *guest;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_end; /* anything but NULL: the thread has some */

/* ---- the end of a connection ---- */

/* One for each connection that has ever been used, until it is closed. */
typedef struct conn_hook {
    sqlite3 *db;
    dur__sq_own *own; /* NULL: none is open */
    dur__link link;
} conn_hook;
static dur__mutex hooks_lock = DUR__MUTEX_INIT; /* taken before a desk's */
static dur__link hooks = { &hooks, &hooks };

void dur__sq_hooks_lock(bool locks) {
    if (locks)
        dur__mutex_lock(&hooks_lock);
    else
        dur__mutex_unlock(&hooks_lock);
}

static void is_called_by_nobody(sqlite3_context *context, int count, sqlite3_value **values) {
    (void)count, (void)values;
    sqlite3_result_null(context);
}

static bool take(dur__sq_own *own);
static void give_up(dur__sq_own *own);
static void finish(dur__sq_file *file);

/* By SQLite, when the transaction is rolled back and nothing else of the connection is left. */
static void connection_closed(void *data) {
    conn_hook *hook = data;
    dur__sq_file *file = NULL;
    dur__mutex_lock(&hooks_lock);
    dur__sq_own *own = hook->own;
    if (own != NULL) {
        own->conn.db = NULL;
        if (own->file->serial == dur__process_serial() && take(own)) { /* else its end is under way */
            file = own->file;
            give_up(own); /* from here on it is its thread's */
        }
    }
    dur__list_unlink(&hook->link);
    dur__mutex_unlock(&hooks_lock);
    dur__free(hook);
    if (file != NULL) finish(file);
}

/* With hooks_lock held. */
static conn_hook *hook_find(const sqlite3 *db) {
    DUR__LIST_EACH(&hooks, at) {
        conn_hook *hook = DUR__CONTAINER(at, conn_hook, link);
        if (hook->db == db) return hook;
    }
    return NULL;
}

/* NULL: SQLite has no memory. */
static conn_hook *hook_of(sqlite3 *db) {
    dur__mutex_lock(&hooks_lock);
    conn_hook *hook = hook_find(db);
    dur__mutex_unlock(&hooks_lock);
    if (hook != NULL) return hook;
    hook = dur__xcalloc(1, sizeof(*hook));
    hook->db = db;
    dur__mutex_lock(&hooks_lock);
    dur__list_push(&hooks, &hook->link);
    dur__mutex_unlock(&hooks_lock);
    /* After a failure it has told us already that it is gone. */
    int result = sqlite3_create_function_v2(db, "durite_transaction", 0, SQLITE_UTF8 | SQLITE_DIRECTONLY, hook,
                                            is_called_by_nobody, NULL, NULL, connection_closed);
    return result == SQLITE_OK ? hook : NULL;
}

bool dur__sq_hook(sqlite3 *db) {
    return hook_of(db) != NULL;
}

bool dur__sq_hooked(const sqlite3 *db) {
    dur__mutex_lock(&hooks_lock);
    bool is_there = hook_find(db) != NULL;
    dur__mutex_unlock(&hooks_lock);
    return is_there;
}

static void hook_set(dur__sq_own *own, bool on) {
    dur__mutex_lock(&hooks_lock);
    conn_hook *hook = own->conn.db != NULL ? hook_find(own->conn.db) : NULL;
    if (hook != NULL && on) hook->own = own;
    if (hook != NULL && !on && hook->own == own) hook->own = NULL;
    dur__mutex_unlock(&hooks_lock);
}

/* ---- the object ---- */

static char *who_begins(void) {
    char name[16] = "";
    dur__buf text = { 0 };
    (void)prctl(PR_GET_NAME, name);
    if (guest != NULL && guest->activity != NULL)
        dur__buf_format(&text, "activity \"%s\" of instance \"%s\", ", guest->activity, guest->instance);
    else if (guest != NULL)
        dur__buf_format(&text, "the handler of instance \"%s\", ", guest->instance);
    dur__buf_format(&text, "thread %ld (%s)", (long)syscall(SYS_gettid), name);
    return dur__buf_take(&text);
}

static void this_thread_ends(void *data);

static void make_key(void) {
    int failed = pthread_key_create(&thread_end, this_thread_ends);
    DUR_ASSERT(failed == 0);
}

dur__sq_own *dur__sq_own_new(const dur_provider *store, dur__sq_file *file, sqlite3 *db) {
    pthread_once(&once, make_key);
    if (hook_of(db) == NULL) return NULL;
    dur__sq_own *own = dur__xcalloc(1, sizeof(*own));
    own->store = store;
    own->file = file;
    own->conn.db = db;
    own->guest = guest;
    own->who = who_begins();
    dur__sq_file_retain(file);
    return own;
}

/* By its own thread.  While its connection has a hook of ours it keeps the file. */
void dur__sq_own_free(dur__sq_own *own) {
    for (dur__sq_own **at = &mine; *at != NULL; at = &(*at)->next)
        if (*at == own) {
            *at = own->next;
            break;
        }
    if (mine == NULL) (void)pthread_setspecific(thread_end, NULL);
    if (own->conn.db != NULL) dur__sq_checkpoint_return(own);
    for (int i = 0; i < DUR__SQ_COUNT; i++) /* of a connection that sqlite3_close_v2 was called for: it ends here */
        sqlite3_finalize(own->conn.stmts[i]);
    hook_set(own, false);
    dur__sq_file_release(own->file);
    dur__free(own->who);
    dur__free(own);
}

void dur__sq_own_open(dur__sq_own *own) {
    static _Atomic uint64_t serial;
    dur__sq_file *file = own->file;
    DUR_ASSERT(dur__sq_leads(file));
    own->serial = atomic_fetch_add(&serial, 1) + 1;
    own->thread = pthread_self();
    own->from_us = dur__monotonic_us();
    own->look_at_us = own->say_at_us = own->from_us + LOOK_EVERY_US;
    own->say_step_us = LOOK_EVERY_US;
    own->next = mine;
    mine = own;
    (void)pthread_setspecific(thread_end, own);
    hook_set(own, true);
    dur__mutex_lock(&file->desk.lock);
    file->desk.own = own;
    dur__cond_broadcast(&file->desk.turn); /* who waits for the lead has an eye on it from now on */
    dur__mutex_unlock(&file->desk.lock);
}

dur__sq_own *dur__sq_own_of(const dur__sq_file *file, const sqlite3 *db) {
    for (dur__sq_own *at = mine; at != NULL; at = at->next)
        if (at->file == file && at->conn.db == db) return at;
    return NULL;
}

bool dur__sq_in_own_txn(const dur__sq_file *file) {
    for (const dur__sq_own *at = mine; at != NULL; at = at->next)
        if (at->file == file && !atomic_load(&at->over)) return true;
    return false;
}

/* ---- who has it in hand ---- */

/* With the desk's lock. */
static bool take_locked(dur__sq_own *own) {
    if (atomic_load(&own->over) || own->used) return false;
    own->used = true;
    own->file->desk.leader = pthread_self();
    return true;
}

static bool take(dur__sq_own *own) {
    dur__mutex_lock(&own->file->desk.lock);
    bool taken = take_locked(own);
    dur__mutex_unlock(&own->file->desk.lock);
    return taken;
}

bool dur__sq_own_enter(dur__sq_own *own) {
    dur__sq_desk *desk = &own->file->desk;
    dur__mutex_lock(&desk->lock);
    while (!atomic_load(&own->over) && own->used)
        dur__cond_wait(&desk->turn, &desk->lock);
    bool taken = take_locked(own);
    dur__mutex_unlock(&desk->lock);
    return taken;
}

void dur__sq_own_leave(dur__sq_own *own) {
    dur__sq_desk *desk = &own->file->desk;
    dur__mutex_lock(&desk->lock);
    DUR_ASSERT(own->used && desk->own == own);
    own->used = false;
    desk->leader = own->thread;
    dur__cond_broadcast(&desk->turn);
    dur__mutex_unlock(&desk->lock);
}

void dur__sq_lead_memory(dur__sq_file *file) {
    dur__sq_desk *desk = &file->desk;
    dur__link ticket = { NULL, NULL };
    dur__mutex_lock(&desk->lock);
    dur__list_push(&desk->queue, &ticket);
    for (;;) {
        bool between = desk->own != NULL && !desk->own->used;
        if (between || (!desk->leading && dur__list_first(&desk->queue) == &ticket)) break;
        dur__cond_wait(&desk->turn, &desk->lock);
    }
    if (desk->own != NULL) desk->own->used = true;
    dur__list_unlink(&ticket);
    desk->leading = true;
    desk->leader = pthread_self();
    dur__mutex_unlock(&desk->lock);
}

void dur__sq_unlead_memory(dur__sq_file *file) {
    if (file->desk.own != NULL) /* which nobody ends while it is used */
        dur__sq_own_leave(file->desk.own);
    else
        dur__sq_unlead(file);
}

/* ---- its end ---- */

/* Who has it in hand leads on, as anybody does. */
static void give_up(dur__sq_own *own) {
    dur__sq_file *file = own->file;
    uint64_t version = 0;
    own->committed =
        dur__sq_pragma_u64(file->writer.db, "PRAGMA data_version", &version, NULL) == DUR_OK && version != own->version;
    dur__sq_file_retain(file); /* until finish */
    dur__mutex_lock(&file->desk.lock);
    DUR_ASSERT(file->desk.own == own && own->used);
    file->desk.own = NULL;
    atomic_store(&own->over, true);
    dur__cond_broadcast(&file->desk.turn);
    dur__mutex_unlock(&file->desk.lock);
}

/* Whatever has become of it: another connection may have written, so look at everything as if another process had. */
static void finish(dur__sq_file *file) {
    dur__sq_gate_leave(file);
    file->relook = true;
    file->max_id_known = false;
    file->next_key = 0;
    file->news.work = file->news.all = true;
    dur__sq_ready(file);
    dur__sq_wake_flush(file, NULL);
    dur__sq_checkpoint(file);
    dur__sq_unlead(file);
    dur__sq_file_release(file);
}

void dur__sq_own_end(dur__sq_own *own) {
    dur__sq_file *file = own->file;
    give_up(own);
    finish(file);
}

static void say_dropped(const char *path, const char *who, const char *why, bool was_open) {
    if (was_open)
        dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER, DUR__FIELDS(DUR__TEXT("file", path)),
                 "a transaction on %s that was begun with dur_sqlite_begin by %s was open when %s: it is rolled back",
                 path, who, why);
    else
        dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER, DUR__FIELDS(DUR__TEXT("file", path)),
                 "a transaction on %s that was begun with dur_sqlite_begin by %s was ended by hand when %s: end it by "
                 "dur_sqlite_commit or dur_sqlite_rollback",
                 path, who, why);
}

/* Nobody will end it, and this thread may. */
static void drop(dur__sq_own *own, const char *why) {
    if (own->file->serial != dur__process_serial() || !dur__sq_own_enter(own)) return;
    char *who = dur__xstrdup(own->who), *path = dur__xstrdup(own->file->path);
    bool is_open = own->conn.db != NULL && sqlite3_get_autocommit(own->conn.db) == 0;
    if (is_open) (void)sqlite3_exec(own->conn.db, "ROLLBACK", NULL, NULL, NULL);
    dur__sq_own_end(own);
    say_dropped(path, who, why, is_open);
    dur__free(who);
    dur__free(path);
}

static void drop_and_free(dur__sq_own *own, const char *why) {
    bool ours = own->file->serial == dur__process_serial();
    drop(own, why);
    if (ours) dur__sq_own_free(own);
}

static void this_thread_ends(void *data) {
    (void)data;
    for (dur__sq_own *at = mine, *next; at != NULL; at = next) {
        next = at->next;
        drop_and_free(at, "its thread ended");
    }
}

void dur__sq_own_forget(void) {
    for (dur__sq_own *at = mine, *next; at != NULL; at = next) {
        next = at->next;
        if (atomic_load(&at->over)) dur__sq_own_free(at);
    }
}

void dur__sq_own_drop(const dur__sq_file *file, const dur_provider *store, const char *why) {
    for (dur__sq_own *at = mine, *next; at != NULL; at = next) {
        next = at->next;
        if (at->file == file && (store == NULL || at->store == store)) drop_and_free(at, why);
    }
}

void dur__sq_own_drop_connection(sqlite3 *db, const char *why) {
    dur__mutex_lock(&hooks_lock);
    conn_hook *hook = hook_find(db);
    dur__sq_own *own = hook != NULL ? hook->own : NULL;
    dur__mutex_unlock(&hooks_lock);
    if (own == NULL) return;
    drop(own, why);
    if (pthread_equal(own->thread, pthread_self())) dur__sq_own_free(own);
}

/* ---- users' functions ---- */

void dur__guest_enter(dur__guest *self) {
    self->outer = guest;
    guest = self;
}

void dur__guest_leave(dur__guest *self) {
    guest = self->outer;
    for (dur__sq_own *at = mine, *next; at != NULL; at = next) {
        next = at->next;
        if (at->guest == self) drop_and_free(at, "that returned");
    }
}

/* ---- who waits for it ---- */

static bool lock_is_free(dur__sq_file *file) {
    sqlite3 *db = NULL;
    bool is_free = dur__sq_connect(&db, file, false, NULL) == DUR_OK && sqlite3_busy_timeout(db, 0) == SQLITE_OK &&
                   sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) == SQLITE_OK;
    sqlite3_close_v2(db); /* which ends it */
    return is_free;
}

static void say_open(const dur__sq_file *file, const char *who, uint64_t s) {
    dur__log(DUR_LOG_WARN, DUR__LOG_PROVIDER, DUR__FIELDS(DUR__TEXT("file", file->path)),
             "nothing is written to %s: for %llu s a transaction has been open, begun with dur_sqlite_begin by %s",
             file->path, (unsigned long long)s, who);
}

bool dur__sq_own_watch(dur__sq_file *file) {
    dur__sq_desk *desk = &file->desk;
    dur__sq_own *own = desk->own;
    uint64_t now = dur__monotonic_us();
    if (own == NULL || now < own->look_at_us) return false;
    own->look_at_us = now + LOOK_EVERY_US;
    bool is_time = now >= own->say_at_us;
    if (is_time && own->say_step_us < SAY_STEP_US) own->say_step_us *= 2;
    if (is_time) own->say_at_us = now + own->say_step_us;
    uint64_t serial = own->serial, s = (now - own->from_us) / 1000000;
    bool idle = !own->used;
    char *who = dur__xstrdup(own->who);
    dur__mutex_unlock(&desk->lock);
    bool over = idle && lock_is_free(file);
    dur__mutex_lock(&desk->lock);
    over = over && desk->own == own && own->serial == serial && take_locked(own);
    dur__mutex_unlock(&desk->lock);
    if (over) dur__sq_own_end(own);
    if (over)
        say_dropped(file->path, who, "others had waited for it", false);
    else if (is_time)
        say_open(file, who, s);
    dur__free(who);
    dur__mutex_lock(&desk->lock);
    return true;
}
