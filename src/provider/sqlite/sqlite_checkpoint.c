/*
 * sqlite_checkpoint.c: the -wal, written into the database.
 *
 * By the leader, between two transactions, when the -wal has so many pages: a -wal that is used again from its
 * beginning is twice as fast to sync as one that grows.  The next writer begins anew by itself once the database has
 * everything and nobody reads from the -wal, and cuts off what is longer than usual (journal_size_limit).
 *
 * SQLite before 3.51.3 destroys a database where a checkpoint begins just when another connection starts the -wal anew
 * (sqlite.org/wal.html#walresetbug): the checkpoint takes the number of frames from before that moment, and how many of
 * them were copied from after it; later commits are then taken for copied, and are lost.  So a second connection, the
 * anchor, has a transaction open during each checkpoint, and the -wal cannot start anew meanwhile:
 *   - a read transaction.  Frames that it reads from keep their place.  Where it reads nothing from the -wal, because
 *     the database has everything, SQLite does not let the checkpoint write;
 *   - or the write lock, without which nobody starts anew: for a -wal that has grown, because others write all the time
 *     and the copy never catches up with them.
 * The modes of a checkpoint that wait (FULL, RESTART, TRUNCATE) are not used: where they do not get the write lock they
 * go on without it.  A caller's own connection makes no checkpoint inside of the bracket: the leader does.
 */
#include "provider/sqlite/sqlite_internal.h"
#include "provider/sqlite/sqlite_own.h"
#include <stdlib.h>
#include <time.h>

enum { READERS_WAIT_MS = 100, WAL_FRAME_BYTES = 4096 + 24, GROWN_TIMES = 4 };

static int on_commit(void *data, sqlite3 *db, const char *name, int pages) {
    (void)db;
    (void)name;
    ((dur__sq_file *)data)->wal_size.pages = (uint64_t)pages;
    return SQLITE_OK;
}

static uint64_t pages_grown(const dur__sq_file *file) {
    return GROWN_TIMES * file->wal_size.every;
}

int dur__sq_checkpoint_open(dur__sq_file *file, dur_error *err) {
    char limit[80];
    file->wal_size.wait = pages_grown(file);
    sqlite3_wal_hook(file->writer.db, on_commit, file);
    snprintf(limit, sizeof limit, "PRAGMA journal_size_limit=%llu",
             (unsigned long long)(pages_grown(file) * WAL_FRAME_BYTES + DUR__SQ_WAL_GROWS));
    return dur__sq_exec(file->writer.db, limit, err);
}

/* ---- a caller's own connection ---- */

void dur__sq_checkpoint_borrow(dur__sq_own *own) {
    DUR_ASSERT(dur__sq_leads(own->file));
    if (dur__sq_pragma_u64(own->conn.db, "PRAGMA wal_autocheckpoint", &own->checkpoints, NULL) != DUR_OK)
        own->checkpoints = 0;
    if (own->checkpoints > 0) /* else a hook of the caller's, perhaps */
        sqlite3_wal_hook(own->conn.db, on_commit, own->file);
}

void dur__sq_checkpoint_return(const dur__sq_own *own) {
    if (own->checkpoints > 0) sqlite3_wal_autocheckpoint(own->conn.db, (int)own->checkpoints);
}

/* ---- the anchor ---- */

static void anchor_close(dur__sq_conn *anchor) {
    dur__sq_conn_close(anchor);
    dur__free(anchor);
}

static dur__sq_conn *anchor_open(dur__sq_file *file, const char *begin) {
    dur__sq_conn *anchor = NULL;
    if (dur__sq_reader(file, &anchor, NULL) != DUR_OK) return NULL;
    if (sqlite3_exec(anchor->db, begin, NULL, NULL, NULL) == SQLITE_OK) return anchor;
    anchor_close(anchor);
    return NULL;
}

/* ---- checkpoints ---- */

static bool copy(const dur__sq_file *file, int *frames) {
    int done = 0;
    int result = sqlite3_wal_checkpoint_v2(file->writer.db, NULL, SQLITE_CHECKPOINT_PASSIVE, frames, &done);
    return result == SQLITE_OK && done >= *frames;
}

/* Others read and write meanwhile; or, for one that has grown, nobody writes, and readers, which are short, are waited
   for. */
static bool copy_anchored(dur__sq_file *file, bool grown, int *frames) {
    dur__sq_conn *anchor = anchor_open(file, grown ? "PRAGMA query_only=0; PRAGMA busy_timeout=100; BEGIN IMMEDIATE"
                                                   : "BEGIN; SELECT 1 FROM dur_meta LIMIT 1");
    if (anchor == NULL) return false;
    bool all = copy(file, frames);
    for (int waited = 0; grown && !all && waited < READERS_WAIT_MS; waited++) {
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        all = copy(file, frames);
    }
    if (!grown && sqlite3_exec(anchor->db, "ROLLBACK", NULL, NULL, NULL) == SQLITE_OK)
        dur__sq_reader_done(file, anchor);
    else
        anchor_close(anchor);
    return all;
}

/* While a reader holds up a -wal it is looked at after each quarter more, and waited for only when it has doubled. */
void dur__sq_checkpoint(dur__sq_file *file) {
    DUR_ASSERT(dur__sq_leads(file));
    int frames = 0;
    if (file->wal_size.pages < file->wal_size.next) return;
    dur__sq_mark_end(file);
    if (dur__sq_present(file, NULL) != DUR_OK) return;
    bool all = copy_anchored(file, false, &frames);
    if (frames > 0 && (uint64_t)frames > file->wal_size.wait) {
        all = copy_anchored(file, true, &frames);
        file->wal_size.wait = 2 * (uint64_t)frames;
    }
    if (all) file->wal_size.wait = pages_grown(file);
    file->wal_size.pages = 0;
    file->mark.due = file->mark.due || all;
    file->wal_size.next =
        all ? file->wal_size.every : (uint64_t)(frames > 0 ? frames : 0) + file->wal_size.every / 4 + 1;
}
