/*
 * sqlite_intact.c: what happens to a database file behind the back of a process that uses it.
 *
 * Deleted, renamed, replaced, and so its -wal and -shm: what we have open has no name any more, and whoever opens the
 * name works elsewhere.  Seen by stat() alone: opening a file and closing it would drop the locks that SQLite holds for
 * the whole process.  While the folder's time stands, no name in it has changed; SQLite itself removes -wal and -shm
 * only when nobody has the file open.
 *
 * Written over, by cp, which leaves the name and the inode: the file's time tells that something was written, by whom
 * the mark does (sqlite_mark.c).  A checkpoint is nothing strange.
 *
 * A commit is looked at after it, before it is answered: what was answered was where the next one will look for it.
 *
 * Restored: an older copy was written over it (".restore", sqlite3_backup_step into it), which for everybody else is a
 * transaction like any other.  It changes SQLite's number of the schema, as statements like CREATE TABLE do; then what
 * is remembered here is compared with the file.
 */
#include "obs/log_internal.h"
#include "provider/sqlite/sqlite_internal.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Longer than the times of any file system stand still. */
enum { SETTLED_MS = 100 };

/* ---- words ---- */

enum { HAPPENED_BYTES = PATH_MAX + 128 };

static void what_happened(const dur__sq_file *file, int gone, char out[HAPPENED_BYTES]) {
    static const char end[] = "while it was open: nothing is read or written any more";
    if (gone == DUR__SQ_OVER)
        snprintf(out, HAPPENED_BYTES, "another file was written over %s %s", file->path, end);
    else
        snprintf(out, HAPPENED_BYTES, "%s%s was deleted, renamed or replaced %s",
                 gone == DUR__SQ_GONE ? "" : "the -wal or -shm of ", file->path, end);
}

static const char *what_to_do(int gone) {
    if (gone == DUR__SQ_GONE)
        return "put it back under its name with its -wal file before this process ends, and start again";
    if (gone == DUR__SQ_OVER)
        return "stop every process that has it open; then move -wal and -shm away to go on with what was written over "
               "it, or put the old database back";
    return gone == DUR__SQ_LACKS ? "what was committed is written into the database by this process; stop every "
                                   "process that has it open, and start again"
                                 : "stop every process that has it open, and put back what belongs there";
}

static int gone_error(const dur__sq_file *file, dur_error *err) {
    char text[HAPPENED_BYTES];
    what_happened(file, atomic_load(&file->intact.gone), text);
    return dur_error_set(err, DUR_EIO, false, "sqlite", "%s", text);
}

/* The first that finds it says so. */
static int gone_now(dur__sq_file *file, dur__sq_gone how, dur_error *err) {
    int here = DUR__SQ_HERE;
    if (atomic_compare_exchange_strong(&file->intact.gone, &here, (int)how)) {
        char text[HAPPENED_BYTES];
        what_happened(file, (int)how, text);
        dur__log(DUR_LOG_ERROR, DUR__LOG_PROVIDER, DUR__FIELDS(DUR__TEXT("file", file->path)), "%s; %s", text,
                 what_to_do((int)how));
    }
    return gone_error(file, err);
}

/* ---- times ---- */

/* Could something that is done from now on get the same time?  The file system's clock is no injected one. */
static bool is_young(const struct timespec *at) {
    uint64_t now_ms = dur_world_real()->wall_ms(dur_world_real()->data);
    return now_ms < (uint64_t)at->tv_sec * 1000 + (uint64_t)at->tv_nsec / 1000000 + SETTLED_MS;
}

static bool is_seen(dur__sq_file *file, const dur__sq_stamp *seen, const struct timespec *at, off_t size,
                    bool *settled) {
    dur__mutex_lock(&file->intact.lock);
    bool same = seen->at.tv_sec == at->tv_sec && seen->at.tv_nsec == at->tv_nsec && seen->size == size;
    *settled = seen->settled;
    dur__mutex_unlock(&file->intact.lock);
    return same;
}

static void set_seen(dur__sq_file *file, dur__sq_stamp *seen, const struct timespec *at, off_t size, bool settled) {
    dur__mutex_lock(&file->intact.lock);
    *seen = (dur__sq_stamp){ .at = *at, .size = size, .settled = settled };
    dur__mutex_unlock(&file->intact.lock);
}

/* ---- names ---- */

static dur__sq_gone name_lost(const dur__sq_name *name) {
    struct stat state = { 0 };
    if (name->ino == 0) return DUR__SQ_HERE;
    if (stat(name->path, &state) == 0)
        return state.st_dev == name->dev && state.st_ino == name->ino ? DUR__SQ_HERE : DUR__SQ_PARTED;
    return errno == ENOENT || errno == ENOTDIR ? DUR__SQ_LACKS : DUR__SQ_HERE;
}

static dur__sq_gone names_lost(dur__sq_file *file) {
    struct stat folder = { 0 };
    bool settled, there = stat(file->intact.folder.path, &folder) == 0;
    if (there && folder.st_dev == file->intact.folder.dev && folder.st_ino == file->intact.folder.ino &&
        is_seen(file, &file->intact.names_seen, &folder.st_mtim, 0, &settled) && settled)
        return DUR__SQ_HERE;
    bool young = !there || is_young(&folder.st_mtim);
    dur__sq_gone wal = name_lost(&file->intact.wal), shm = name_lost(&file->intact.shm);
    if (wal != DUR__SQ_HERE || shm != DUR__SQ_HERE) return wal > shm ? wal : shm;
    set_seen(file, &file->intact.names_seen, &folder.st_mtim, 0, !young);
    return DUR__SQ_HERE;
}

static int look(dur__sq_file *file, struct stat *state, dur_error *err) {
    if (atomic_load_explicit(&file->intact.gone, memory_order_relaxed) != DUR__SQ_HERE) return gone_error(file, err);
    bool there = stat(file->path, state) == 0;
    if (there ? state->st_dev != file->dev || state->st_ino != file->ino : errno == ENOENT || errno == ENOTDIR)
        return gone_now(file, DUR__SQ_GONE, err);
    if (!there) state->st_ino = 0;
    dur__sq_gone lost = file->intact.folder.path != NULL ? names_lost(file) : DUR__SQ_HERE;
    return lost != DUR__SQ_HERE ? gone_now(file, lost, err) : DUR_OK;
}

int dur__sq_present(dur__sq_file *file, dur_error *err) {
    struct stat state = { 0 };
    return file->path != NULL ? look(file, &state, err) : DUR_OK;
}

/* ---- written over ---- */

int dur__sq_intact(dur__sq_file *file, dur__sq_conn *conn, dur_error *err) {
    struct stat state = { 0 };
    bool settled, leads = conn == &file->writer;
    if (file->path == NULL) return DUR_OK;
    int code = look(file, &state, err);
    if (code == DUR_OK && state.st_ino != 0 && file->intact.folder.path != NULL) {
        dur__sq_stamp *seen = leads ? &file->intact.text_seen : &file->intact.text_read;
        bool same = is_seen(file, seen, &state.st_ctim, state.st_size, &settled);
        if (same && settled) return DUR_OK;
        bool young = is_young(&state.st_ctim);
        if (same && young) return DUR_OK; /* once more, when it is old */
        if (state.st_size == 0 || dur__sq_mark_is_strange(file, conn))
            code = gone_now(file, DUR__SQ_OVER, err);
        else
            set_seen(file, seen, &state.st_ctim, state.st_size, !young);
    }
    return code != DUR_OK && leads ? dur__sq_found_gone(file, err) : code;
}

/* A -wal without a name ends with the processes that have it open: what it holds is saved before. */
int dur__sq_found_gone(dur__sq_file *file, dur_error *err) {
    int gone = atomic_load_explicit(&file->intact.gone, memory_order_relaxed);
    if (gone == DUR__SQ_HERE) return DUR_OK;
    if (gone == DUR__SQ_LACKS &&
        !file->intact.saved) /* nobody's commits are answered any more: no anchor, no new connection */
        (void)sqlite3_wal_checkpoint_v2(file->writer.db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    file->intact.saved = true;
    return gone_error(file, err);
}

static void name_init(dur__sq_name *name, const char *path, const char *suffix) {
    struct stat state = { 0 };
    name->path = dur__sq_beside(path, suffix);
    if (stat(name->path, &state) != 0) return;
    name->dev = state.st_dev;
    name->ino = state.st_ino;
}

int dur__sq_intact_open(dur__sq_file *file, dur_error *err) {
    if (file->path == NULL) return DUR_OK;
    char *folder = dur__sq_folder(file);
    name_init(&file->intact.wal, file->path, "-wal");
    name_init(&file->intact.shm, file->path, "-shm");
    name_init(&file->intact.folder, folder, "");
    dur__free(folder);
    return dur__sq_intact(file, &file->writer, err);
}

/* SQLite would write the -wal into whatever is there now. */
void dur__sq_intact_close(dur__sq_file *file) {
    if (file->path == NULL || file->writer.db == NULL || file->intact.folder.path == NULL) return;
    (void)dur__sq_intact(file, &file->writer, NULL);
    int gone = atomic_load(&file->intact.gone);
    if (gone == DUR__SQ_OVER || gone == DUR__SQ_PARTED)
        (void)sqlite3_db_config(file->writer.db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
}

/* ---- restored ---- */

static int same_position(dur__sq_txn *txn, const dur__sq_lease *lease, bool *same, dur_error *err) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_LEASE, &row, err, "i", lease->key);
    bool ours = code == DUR_OK && row != NULL && dur__str_eq(dur__sq_text(row, DUR__SQ_LEASE_TOKEN), lease->token);
    uint64_t execution = ours ? dur__sq_u64(row, DUR__SQ_LEASE_EXECUTION) : 0, last = 0;
    dur__sq_end(&row);
    *same = true;
    if (code != DUR_OK || !ours) return code; /* ended by somebody: that happens without a restore */
    if (execution != 0) code = dur__sq_get(txn->conn, DUR__SQ_HISTORY_LAST, &last, 1, err, "ii", lease->key, execution);
    *same = execution == lease->execution && last == lease->last_event;
    return code;
}

/* Is the file behind what this process knows to be in it? */
static int is_older(dur__sq_txn *txn, bool *older, dur_error *err) {
    dur__sq_file *file = txn->file;
    uint64_t top = 0;
    dur__map_entry *entry;
    int code = dur__sq_max_id(txn, &top, err);
    *older = top < file->top_id;
    for (size_t at = 0; code == DUR_OK && !*older && (entry = dur__map_next(&file->leases, &at)) != NULL;) {
        bool same = true;
        code = same_position(txn, entry->value, &same, err);
        *older = !same;
    }
    if (code == DUR_OK && !*older) code = dur__sq_owners_hold_unknown(txn, older, err);
    return code;
}

static void leases_forget(dur__sq_file *file) {
    dur__map_entry *entry;
    for (size_t at = 0; (entry = dur__map_next(&file->leases, &at)) != NULL;)
        dur__sq_lease_drop(file, ((dur__sq_lease *)entry->value)->key, true);
}

int dur__sq_restored_look(dur__sq_txn *txn, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(txn->file));
    dur__sq_file *file = txn->file;
    uint64_t schema = 0;
    bool older = false;
    int code = dur__sq_get(txn->conn, DUR__SQ_SCHEMA_VERSION, &schema, 1, err, "");
    if (code != DUR_OK || schema == file->schema) return code;
    if (file->schema != 0) code = is_older(txn, &older, err);
    if (code == DUR_OK && older) code = dur__sq_owners_resign(txn, err);
    if (code != DUR_OK) return code;
    file->schema = schema;
    if (!older) return DUR_OK;
    dur__log(DUR_LOG_ERROR, DUR__LOG_PROVIDER, DUR__FIELDS(DUR__TEXT("file", file->path)),
             "an older copy was restored over %s while it was open: this process gives up all that it held and begins "
             "again with what the file says",
             file->path);
    leases_forget(file);
    file->mark.was_restored = true;
    file->queue_seen_id = file->top_id = 0;
    file->due_seen_ms = 0;
    return DUR_OK;
}
