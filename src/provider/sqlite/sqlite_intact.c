/*
 * sqlite_intact.c: what happens to a database file behind the back of a process that uses it.
 *
 * Deleted, renamed, replaced: what we have open has no name any more, and whoever opens the name works elsewhere.  Seen
 * by stat() alone: opening the file and closing it would drop the locks that SQLite holds for the whole process.
 *
 * Restored: an older copy was written over it (".restore", sqlite3_backup_step into it), which for everybody else is a
 * transaction like any other.  It changes SQLite's number of the schema, as statements like CREATE TABLE do; then what
 * is remembered here is compared with the file.
 */
#include "obs/log_internal.h"
#include "provider/sqlite/sqlite_internal.h"
#include <errno.h>
#include <sys/stat.h>

static int is_gone(const dur__sq_file *file, dur_error *err) {
    return dur_error_set(err, DUR_EIO, false, "sqlite",
                         "%s was deleted, renamed or replaced while it was open: nothing is read or written any more",
                         file->path);
}

int dur__sq_present(dur__sq_file *file, dur_error *err) {
    struct stat state;
    if (file->path == NULL) return DUR_OK;
    if (atomic_load_explicit(&file->gone, memory_order_relaxed)) return is_gone(file, err);
    bool there = stat(file->path, &state) == 0;
    if (there ? state.st_dev == file->dev && state.st_ino == file->ino : errno != ENOENT && errno != ENOTDIR)
        return DUR_OK;
    if (!atomic_exchange(&file->gone, true))
        dur__log(DUR_LOG_ERROR, DUR__LOG_PROVIDER, DUR__FIELDS(DUR__TEXT("file", file->path)),
                 "%s was deleted, renamed or replaced while it was open: nothing is read or written any more; put it "
                 "back under its name with its -wal file before this process ends, and start again",
                 file->path);
    return is_gone(file, err);
}

/* ---- restored ---- */

static int same_position(dur__sq_txn *txn, const dur__sq_lease *lease, bool *same, dur_error *err) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(txn->conn, DUR__SQ_INSTANCE_BY_KEY, &row, err, "i", lease->key);
    bool ours = code == DUR_OK && row != NULL && dur__str_eq(dur__sq_text(row, 13), lease->token);
    uint64_t execution = ours ? dur__sq_u64(row, 4) : 0, last = 0;
    dur__sq_end(&row);
    *same = true;
    if (code != DUR_OK || !ours) return code; /* ended by somebody: that happens without a restore */
    if (execution != 0) code = dur__sq_first(txn->conn, DUR__SQ_EVENT_LAST, &row, err, "ii", lease->key, execution);
    if (code == DUR_OK && row != NULL) last = dur__sq_u64(row, 0);
    dur__sq_end(&row);
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
    dur__sq_file *file = txn->file;
    sqlite3_stmt *row = NULL;
    bool older = false;
    int code = dur__sq_first(txn->conn, DUR__SQ_SCHEMA_VERSION, &row, err, "");
    uint64_t schema = code == DUR_OK && row != NULL ? dur__sq_u64(row, 0) : 0;
    dur__sq_end(&row);
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
    file->mark_was_restored = true;
    file->queue_seen_id = file->top_id = 0;
    file->due_seen_ms = 0;
    return DUR_OK;
}
