/*
 * sqlite_open.c: opening and closing; one file object per database file and process.
 *
 * Nothing here opens the database file except through SQLite: closing a descriptor of it would drop the POSIX locks
 * that SQLite holds for the whole process.  A new file is made with mode 0600 before SQLite sees it.
 *
 * What SQLite knows of those locks is a child's by fork(), and the locks are not: a connection that the child opens to
 * such a file locks nothing.  SQLite cannot be told; so a file that was open at a fork is refused in the child, for as
 * long as it lives.  That is why the list is locked over a fork.
 */
#include "base/arena_internal.h"
#include "provider/openers.h"
#include "provider/provider_internal.h"
#include "provider/sqlite/sqlite_internal.h"
#include "provider/sqlite/sqlite_own.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { WAL_PAGES = 4000, BUSY_MS = 60000 };

/* Guards the list, the counts and who is busy, and is never held over anything that waits: a file that is being opened
   or closed is in the list as busy, and only who wants that very file waits for it. */
static dur__mutex files_lock = DUR__MUTEX_INIT;
static dur__cond files_turn = DUR__COND_INIT; /* a file is no longer busy */
static dur__link files = { &files, &files };

/* A file that SQLite has, or has had in a parent, without being a store that is open here. */
struct dur__sq_held {
    dev_t dev;
    ino_t ino;
    uint64_t serial; /* dur__process_serial */
    dur__link link;
};
static dur__link held = { &held, &held };

/* ---- over a fork ---- */

static void before_fork(void) {
    dur__sq_hooks_lock(true);
    dur__mutex_lock(&files_lock);
}

static void after_fork(void) {
    dur__mutex_unlock(&files_lock);
    dur__sq_hooks_lock(false);
}

static void in_child(void) {
    files_turn = (dur__cond)DUR__COND_INIT; /* who waited there is not here */
    after_fork();
}

static void watch_forks(void) {
    (void)dur__process_serial(); /* it has a lock that is taken after this one, here too: handlers run last first */
    int failed = pthread_atfork(before_fork, after_fork, in_child);
    DUR_ASSERT(failed == 0);
}

/* With files_lock held: was it open in a process that this one is a child of, when it was forked? */
static bool was_open_at_fork(const struct stat *state) {
    uint64_t now = dur__process_serial();
    DUR__LIST_EACH(&files, at) {
        const dur__sq_file *file = DUR__CONTAINER(at, dur__sq_file, link);
        if (file->serial != now && file->dev == state->st_dev && file->ino == state->st_ino) return true;
    }
    DUR__LIST_EACH(&held, at) {
        const dur__sq_held *other = DUR__CONTAINER(at, dur__sq_held, link);
        if (other->serial != now && other->dev == state->st_dev && other->ino == state->st_ino) return true;
    }
    return false;
}

static int refuse_forked(const char *op, const char *path, dur_error *err) {
    return dur_error_set(err, DUR_EFORKED, false, op,
                         "%s was open in the parent process at the fork, and SQLite would not lock it in this one: "
                         "close it before the fork and open it after, or exec a program that opens it",
                         path);
}

/* With files_lock held. */
static dur__sq_held *held_add(dev_t dev, ino_t ino, uint64_t serial) {
    dur__sq_held *made = dur__xcalloc(1, sizeof(*made));
    *made = (dur__sq_held){ .dev = dev, .ino = ino, .serial = serial };
    dur__list_push(&held, &made->link);
    return made;
}

int dur__sq_hold(dur__sq_held **out, int fd, const char *op, const char *path, dur_error *err) {
    struct stat state;
    *out = NULL;
    if (fstat(fd, &state) != 0) return dur__sq_os_fail(err, op, path);
    dur__mutex_lock(&files_lock);
    bool forked = was_open_at_fork(&state);
    if (!forked) *out = held_add(state.st_dev, state.st_ino, dur__process_serial());
    dur__mutex_unlock(&files_lock);
    return forked ? refuse_forked(op, path, err) : DUR_OK;
}

void dur__sq_hold_end(dur__sq_held *self) {
    if (self == NULL) return;
    dur__mutex_lock(&files_lock);
    dur__list_unlink(&self->link);
    dur__mutex_unlock(&files_lock);
    dur__free(self);
}

/* ---- connections ---- */

static int pragmas(sqlite3 *db, const dur__sq_file *file, dur_error *err) {
    uint64_t level = 0;
    bool relaxed = atomic_load(&file->relaxed); /* once: it may become stricter meanwhile, for the writer */
    int code = dur__sq_exec(db,
                            "PRAGMA temp_store=MEMORY; PRAGMA mmap_size=0; PRAGMA wal_autocheckpoint=0;"
                            "PRAGMA trusted_schema=0; PRAGMA cache_size=-32768; PRAGMA secure_delete=FAST",
                            err);
    if (code == DUR_OK) code = dur__sq_exec(db, relaxed ? "PRAGMA synchronous=NORMAL" : "PRAGMA synchronous=FULL", err);
    if (code == DUR_OK) code = dur__sq_pragma_u64(db, "PRAGMA synchronous", &level, err);
    if (code == DUR_OK && level != (relaxed ? 1u : 2u)) /* an unknown word would silently mean NORMAL */
        code = dur_error_set(err, DUR_EIO, false, "sqlite.open", "synchronous is %llu, not what was asked for",
                             (unsigned long long)level);
    return code;
}

int dur__sq_connect(sqlite3 **out, dur__sq_file *file, bool writer, dur_error *err) {
    const char *path = file->path != NULL ? file->path : ":memory:";
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (file->path == NULL ? SQLITE_OPEN_CREATE : 0);
    const char *vfs = writer && file->path != NULL ? dur__sq_vfs_name(!atomic_load(&file->relaxed)) : NULL;
    int result = sqlite3_open_v2(path, out, flags, vfs);
    if (*out == NULL) return dur_error_set(err, DUR_ENOMEM, true, "sqlite.open", "out of memory");
    sqlite3_extended_result_codes(*out, 1);
    int code = DUR_OK;
    if (result != SQLITE_OK)
        code = dur__sq_fail(err, *out, "sqlite.open");
    else if ((code = dur__sq_present(file, err)) == DUR_OK) { /* it was opened by its name */
        sqlite3_busy_timeout(*out, (int)(file->busy_ms > INT_MAX ? INT_MAX : file->busy_ms));
        code = pragmas(*out, file, err);
        if (code == DUR_OK && vfs != NULL) code = dur__sq_exec(*out, "PRAGMA cache_spill=0", err);
    }
    return code;
}

static int try_wal_mode(dur__sq_file *file, dur_error *err) {
    sqlite3_stmt *stmt = NULL;
    sqlite3 *db = file->writer.db;
    if (sqlite3_prepare_v2(db, "PRAGMA journal_mode=WAL", -1, &stmt, NULL) != SQLITE_OK)
        return dur__sq_fail(err, db, "sqlite.open");
    int code = DUR_OK;
    const char *mode = sqlite3_step(stmt) == SQLITE_ROW ? dur__sq_text(stmt, 0) : NULL;
    if (mode == NULL)
        code = dur__sq_fail(err, db, "sqlite.open");
    else if (strcmp(mode, "wal") != 0)
        code = dur_error_set(err, DUR_EUNSUPPORTED, false, "sqlite.open",
                             "the file system does not allow WAL mode (journal mode is %s)", mode);
    else if (sqlite3_step(stmt) != SQLITE_DONE) /* it says "wal" first, and writes so into the file then */
        code = dur__sq_fail(err, db, "sqlite.open");
    sqlite3_finalize(stmt);
    return code;
}

/* SQLite does not wait for a lock in order to change the mode: of two processes that make a store one would be told
   that the other is there. */
static int wal_mode(dur__sq_file *file, dur_error *err) {
    uint64_t until_us = dur__sq_busy_until(file);
    int code;
    while ((code = try_wal_mode(file, err)) == DUR_EBUSY && dur__monotonic_us() < until_us)
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
    return code;
}

/* ---- the file object ---- */

static void boot_id(dur__sq_file *file) {
    snprintf(file->boot, sizeof file->boot, "injected");
    if (file->world != dur_world_real()) return;
    dur__boot_id(file->boot, sizeof file->boot);
}

static void forked(void *data) {
    dur__sq_file *file = data;
    dur__sq_wake_close(file);
    dur__sq_gate_close(file);
    dur__sq_owners_forked(file);
}

/* Everything that is open; may take long (a checkpoint, somebody who holds the file). */
static void file_shut(dur__sq_file *file) {
    bool child = file->serial != dur__process_serial();
    dur__at_fork_remove(forked, file);
    dur__sq_owners_close(file);
    dur__sq_wake_close(file);
    for (dur__link *at; !child && (at = dur__list_pop(&file->pool.readers)) != NULL;) {
        dur__sq_conn *conn = DUR__CONTAINER(at, dur__sq_conn, link);
        dur__sq_conn_close(conn);
        dur__free(conn);
    }
    if (!child) dur__sq_lead_alone(file, true);
    if (!child) dur__sq_intact_close(file);
    if (!child && !dur__sq_gate_others(file)) dur__sq_mark_end(file);
    if (!child) dur__sq_conn_close(&file->writer); /* in a child the parent's connections are left alone */
    dur__sq_gate_close(file);
}

static void file_free(dur__sq_file *file) {
    dur__map_free(&file->leases);
    dur__mutex_destroy(&file->desk.lock);
    dur__mutex_destroy(&file->pool.lock);
    dur__mutex_destroy(&file->peers.wake_lock);
    dur__mutex_destroy(&file->peers.owners_lock);
    dur__mutex_destroy(&file->intact.lock);
    dur__cond_destroy(&file->desk.turn);
    dur__buf_free(&file->block);
    dur_arena_free(file->scratch);
    dur__reserve_free(&file->aside);
    dur__free(file->news.changed);
    dur__free(file->alive);
    dur__free(file->intact.folder.path);
    dur__free(file->intact.wal.path);
    dur__free(file->intact.shm.path);
    dur__free(file->path);
    dur__free(file);
}

static dur__sq_file *file_new(char *path, const dur_sqlite_options *options) {
    dur__sq_file *file = dur__xcalloc(1, sizeof(*file));
    file->refs = 1;
    file->scratch = dur__arena_xnew();
    file->path = path;
    snprintf(file->identity, sizeof(file->identity), "%p", (void *)file);
    file->world = options->world != NULL ? options->world : dur_world_real();
    atomic_store(&file->relaxed, options->relaxed_durability);
    file->wal_size.every = file->wal_size.next = options->wal_pages > 0 ? options->wal_pages : WAL_PAGES;
    file->busy_ms = options->busy_ms > 0 ? options->busy_ms : BUSY_MS;
    file->serial = dur__process_serial();
    file->peers.lock_fd = file->peers.inotify = -1;
    file->epoch = 1;
    file->relook = file->ready_maybe = true;
    file->sessions_used = true;
    atomic_store(&file->times.due_ms, DUR_NEVER);
    atomic_store(&file->times.expiry_ms, DUR_NEVER);
    dur__mutex_init(&file->desk.lock);
    dur__mutex_init(&file->pool.lock);
    dur__mutex_init(&file->peers.wake_lock);
    dur__mutex_init(&file->peers.owners_lock);
    dur__mutex_init(&file->intact.lock);
    dur__cond_init(&file->desk.turn);
    dur__list_init(&file->desk.queue);
    dur__list_init(&file->desk.inbox);
    dur__list_init(&file->desk.answered);
    dur__list_init(&file->desk.lanes);
    dur__list_init(&file->desk.waiters);
    dur__list_init(&file->pool.readers);
    dur__list_init(&file->peers.owners);
    boot_id(file);
    dur__at_fork_child(forked, file);
    return file;
}

/* Only a file without pages takes it, and asking for it takes the write lock. */
static int new_file_mode(dur__sq_file *file, dur_error *err) {
    uint64_t pages = 0;
    int code = dur__sq_pragma_u64(file->writer.db, "PRAGMA page_count", &pages, err);
    return code == DUR_OK && pages == 0 ? dur__sq_exec(file->writer.db, "PRAGMA auto_vacuum=INCREMENTAL", err) : code;
}

static int file_start(dur__sq_file *file, dur_error *err) {
    dur__sq_lead_alone(file, true);
    int code = dur__sq_gate_open(file, err);
    if (code == DUR_OK) code = dur__sq_mark_check(file, err);
    if (code == DUR_OK) code = dur__sq_connect(&file->writer.db, file, true, err);
    if (code == DUR_OK) dur__sq_busy_install(file);
    if (code == DUR_OK) code = new_file_mode(file, err);
    if (code == DUR_OK && file->path != NULL) code = wal_mode(file, err);
    if (code == DUR_OK) code = dur__sq_checkpoint_open(file, err);
    if (code == DUR_OK) code = dur__sq_schema_open(file, err);
    if (code == DUR_OK) code = dur__sq_mark_open(file, err);
    if (code == DUR_OK) code = dur__sq_intact_open(file, err);
    if (code == DUR_OK) code = dur__sq_wake_open(file, err);
    file->desk.held_from_us = 0; /* nobody else waits yet */
    dur__sq_lead_alone(file, false);
    return code;
}

/* ---- finding the file ---- */

int dur__sq_os_fail(dur_error *err, const char *op, const char *path) {
    dur_code code = errno == EACCES || errno == EPERM || errno == EROFS ? DUR_EPERM
                    : errno == ENOENT || errno == ENOTDIR               ? DUR_ENOTFOUND
                    : errno == EEXIST                                   ? DUR_EEXISTS
                    : errno == ENOSPC || errno == EDQUOT                ? DUR_EFULL
                    : errno == ENOMEM                                   ? DUR_ENOMEM
                                                                        : DUR_EIO;
    return dur_error_set(err, code, code == DUR_EFULL || code == DUR_ENOMEM, op, "%s: %s", path, strerror(errno));
}

char *dur__sq_beside(const char *path, const char *suffix) {
    dur__buf text = { 0 };
    dur__buf_format(&text, "%s%s", path, suffix);
    return dur__buf_take(&text);
}

char *dur__sq_folder(const dur__sq_file *file) {
    char *folder = dur__xstrdup(file->path); /* absolute */
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    return folder;
}

/* Make the file when it may be made, and find its absolute name.  With files_lock held: another thread that opened it
   between the two calls below would lose its locks with our closing. */
static int path_resolve(const dur_sqlite_options *options, char **out, struct stat *state, dur_error *err) {
    if (stat(options->path, state) != 0) {
        if (errno != ENOENT || options->must_exist) return dur__sq_os_fail(err, "sqlite.open", options->path);
        int code = dur__sq_leftover_check(options->path, err);
        if (code != DUR_OK) return code;
        int fd = open(options->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST) return dur__sq_os_fail(err, "sqlite.open", options->path);
        if (fd >= 0) close(fd); /* nobody here has it open yet: no lock is lost */
        if (stat(options->path, state) != 0) return dur__sq_os_fail(err, "sqlite.open", options->path);
    }
    if (!S_ISREG(state->st_mode))
        return dur_error_set(err, DUR_EINVAL, false, "sqlite.open", "%s is not a regular file", options->path);
    if (access(options->path, R_OK | W_OK) != 0) return dur__sq_os_fail(err, "sqlite.open", options->path);
    char *resolved = realpath(options->path, NULL);
    if (resolved == NULL) return dur__sq_os_fail(err, "sqlite.open", options->path);
    *out = dur__xstrdup(resolved);
    free(resolved);
    int code = state->st_size == 0 ? dur__sq_leftover_check(*out, err) : DUR_OK;
    if (code == DUR_OK) return DUR_OK;
    dur__free(*out);
    *out = NULL;
    return code;
}

/* The stricter of two wishes: the writer's connection must change, and somebody may be using it. */
static int file_harden(dur__sq_file *file, dur_error *err) {
    if (!atomic_load(&file->relaxed)) return DUR_OK;
    int code = dur__sq_lead(file, err);
    if (code != DUR_OK) return code;
    code = dur__sq_exec(file->writer.db, "PRAGMA synchronous=FULL", err);
    if (code == DUR_OK) atomic_store(&file->relaxed, false);
    dur__sq_unlead(file);
    return code;
}

void dur__sq_file_retain(dur__sq_file *file) {
    dur__mutex_lock(&files_lock);
    DUR_ASSERT(file->refs > 0);
    file->refs++;
    dur__mutex_unlock(&files_lock);
}

void dur__sq_file_release(dur__sq_file *file) {
    dur__mutex_lock(&files_lock);
    bool last = --file->refs == 0;
    file->busy = file->busy || last;
    dur__mutex_unlock(&files_lock);
    if (!last) return;
    file_shut(file); /* a second open finds it busy, and waits: all of it or nothing */
    dur__mutex_lock(&files_lock);
    if (dur__link_linked(&file->link) && file->serial != dur__process_serial())
        (void)held_add(file->dev, file->ino, file->serial); /* SQLite has it still */
    dur__list_unlink(&file->link);
    dur__cond_broadcast(&files_turn);
    dur__mutex_unlock(&files_lock);
    file_free(file);
}

/* With files_lock held. */
static dur__sq_file *file_find(const struct stat *state) {
    DUR__LIST_EACH(&files, at) {
        dur__sq_file *known = DUR__CONTAINER(at, dur__sq_file, link);
        if (known->dev == state->st_dev && known->ino == state->st_ino && known->serial == dur__process_serial())
            return known;
    }
    return NULL;
}

/* One that is open already, with one more reference; or a new one in the list, busy. */
static int file_enter(dur__sq_file **out, bool *made, const dur_sqlite_options *options, dur_error *err) {
    struct stat state;
    char *path = NULL;
    static pthread_once_t forks = PTHREAD_ONCE_INIT;
    pthread_once(&forks, watch_forks);
    dur__mutex_lock(&files_lock); /* before the file is made: see path_resolve */
    int code = path_resolve(options, &path, &state, err);
    while (code == DUR_OK && (*out = file_find(&state)) != NULL && (*out)->busy) {
        dur__cond_wait(&files_turn, &files_lock);
        dur__free(path); /* what has that name now? */
        path = NULL;
        code = path_resolve(options, &path, &state, err);
    }
    if (code == DUR_OK && was_open_at_fork(&state)) {
        code = refuse_forked("sqlite.open", path, err);
        dur__free(path);
        path = NULL;
    }
    *made = code == DUR_OK && *out == NULL;
    if (*made) {
        *out = file_new(path, options);
        (*out)->dev = state.st_dev;
        (*out)->ino = state.st_ino;
        (*out)->busy = true;
        dur__list_push(&files, &(*out)->link);
    } else if (code == DUR_OK) {
        const dur_world *world = options->world != NULL ? options->world : dur_world_real();
        if (world != (*out)->world)
            code = dur_error_set(err, DUR_EINVAL, false, "sqlite.open",
                                 "the file is open in this process with another clock (dur_world)");
        else
            (*out)->refs++;
        dur__free(path);
    }
    dur__mutex_unlock(&files_lock);
    return code;
}

static int file_open(dur__sq_file **out, const dur_sqlite_options *options, dur_error *err) {
    bool made = false;
    int code = file_enter(out, &made, options, err);
    if (code != DUR_OK) return code;
    if (!made) {
        if (!options->relaxed_durability) code = file_harden(*out, err);
        if (code != DUR_OK) dur__sq_file_release(*out);
        return code;
    }
    code = file_start(*out, err);
    if (code != DUR_OK) {
        dur__sq_file_release(*out);
        return code;
    }
    dur__mutex_lock(&files_lock);
    (*out)->busy = false;
    dur__cond_broadcast(&files_turn);
    dur__mutex_unlock(&files_lock);
    return DUR_OK;
}

static void store_close(dur_provider *base) {
    dur__sq_store *self = (dur__sq_store *)(void *)base;
    dur__sq_own_drop(self->file, base, "its store was closed");
    dur__sq_file_release(self->file);
    dur__free(self);
}

static uint64_t store_now_ms(dur_provider *base) {
    dur__sq_file *file = dur__sq_file_of(base);
    return file->world->wall_ms(file->world->data);
}

#define METHOD(name) .name = dur__sq_##name,
/* clang-format off */
const dur_provider_methods dur__sq_methods = {
    .size = sizeof(dur_provider_methods),
    .abi = DUR_PROVIDER_ABI,
    .name = "sqlite",
    .version = "1",
    .own_clock = false,
    .local_work = true,
    .close = store_close,
    .now_ms = store_now_ms,
    DUR__SQ_METHODS(METHOD)
};
/* clang-format on */
#undef METHOD

static int store_open(dur_provider **out, const dur_sqlite_options *options, bool long_poll, dur_error *err) {
    dur__sq_file *file = NULL;
    int code = DUR_OK;
    if (strcmp(options->path, ":memory:") == 0) {
        file = file_new(NULL, options);
        atomic_store(&file->relaxed, false);
        code = file_start(file, err);
        if (code != DUR_OK) dur__sq_file_release(file);
    } else
        code = file_open(&file, options, err);
    if (code != DUR_OK) return code;
    dur__sq_store *store = dur__xcalloc(1, sizeof(*store));
    store->base.methods = &dur__sq_methods;
    store->file = file;
    store->long_poll = long_poll;
    *out = &store->base;
    return DUR_OK;
}

/* ---- options ---- */

int dur_sqlite_open(dur_provider **out, const dur_sqlite_options *options, dur_error *err) {
    dur_error_clear(err);
    DUR__SET_ASIDE("sqlite.open", err);
    if (out == NULL || options == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "sqlite.open", "out and options are required");
    *out = NULL;
    if (options->size < offsetof(dur_sqlite_options, must_exist) || options->size > 4096)
        return dur_error_set(err, DUR_EINVAL, false, "sqlite.open",
                             "size is not a size of dur_sqlite_options: use DUR_SQLITE(...)");
    dur_sqlite_options filled = { .size = sizeof filled };
    memcpy(&filled, options, options->size < sizeof filled ? options->size : sizeof filled);
    if (filled.path == NULL || filled.path[0] == '\0')
        return dur_error_set(err, DUR_EINVAL, false, "sqlite.open", "a path is required");
    int code = store_open(out, &filled, false, err);
    if (code == DUR_OK) dur__provider_adopt(*out);
    return code;
}

/* busy_ms=N: at least 1, because 0 would mean the default. */
static bool busy_parameter(dur_sqlite_options *options, const char *text, size_t size) {
    static const char name[] = "busy_ms=";
    uint64_t ms = 0;
    size_t at = sizeof(name) - 1;
    if (size <= at || size > at + 9 || memcmp(text, name, at) != 0) return false;
    for (; at < size; at++) {
        if (text[at] < '0' || text[at] > '9') return false;
        ms = ms * 10 + (uint64_t)(text[at] - '0');
    }
    options->busy_ms = ms;
    return ms > 0;
}

/* Is the text one of the two?  Then *out says whether it is the second. */
static bool one_of(const char *text, size_t size, const char *no, const char *yes, bool *out) {
    bool is_yes = strlen(yes) == size && memcmp(yes, text, size) == 0;
    bool is_no = strlen(no) == size && memcmp(no, text, size) == 0;
    if (is_yes || is_no) *out = is_yes;
    return is_yes || is_no;
}

/* Whatever its value. */
static bool is_known(const char *text, size_t size) {
    static const char *const names[] = { "durability=", "create=", "poll=", "busy_ms=" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (size >= strlen(names[i]) && memcmp(text, names[i], strlen(names[i])) == 0) return true;
    return false;
}

static int url_parameter(dur_sqlite_options *options, bool *long_poll, const char *text, size_t size, dur_error *err) {
    if (one_of(text, size, "durability=full", "durability=relaxed", &options->relaxed_durability)) return DUR_OK;
    if (one_of(text, size, "create=1", "create=0", &options->must_exist)) return DUR_OK;
    if (one_of(text, size, "poll=short", "poll=long", long_poll)) return DUR_OK;
    if (busy_parameter(options, text, size)) return DUR_OK;
    if (is_known(text, size))
        return dur_error_set(err, DUR_EINVAL, false, "sqlite.open",
                             "\"%.*s\" is no such value: durability=full|relaxed, create=0|1, busy_ms=1…999999999, "
                             "poll=short|long",
                             (int)size, text);
    return dur_error_set(err, DUR_EINVAL, false, "sqlite.open",
                         "unknown parameter \"%.*s\": durability=full|relaxed, create=0|1, busy_ms=1…999999999 and "
                         "poll=short|long are known",
                         (int)size, text);
}

int dur__sqlite_open_url(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err) {
    dur_sqlite_options filled = { .size = sizeof filled };
    bool long_poll = false;
    int code = DUR_OK;
    if (options != NULL) filled.world = options->world;
    const char *path = strchr(url, ':') != NULL ? strchr(url, ':') + 1 : "";
    if (strncmp(path, "//", 2) == 0) path += 2;
    const char *query = strchr(path, '?');
    size_t size = query != NULL ? (size_t)(query - path) : strlen(path);
    if (size == 0)
        return dur_error_set(err, DUR_EINVAL, false, "sqlite.open", "the URL names no file: sqlite:PATH is expected");
    for (const char *at = query; code == DUR_OK && at != NULL && at[0] != '\0' && at[1] != '\0';) {
        at++;
        size_t length = strcspn(at, "&");
        code = url_parameter(&filled, &long_poll, at, length, err);
        at += length;
    }
    if (code != DUR_OK) return code;
    char *copy = dur__xmalloc(size + 1);
    memcpy(copy, path, size);
    copy[size] = '\0';
    filled.path = copy;
    code = store_open(out, &filled, long_poll, err);
    dur__free(copy);
    return code;
}
