/*
 * sqlite_mark.c: does the -wal belong to the file?
 *
 * SQLite knows a -wal by its name alone.  Whoever moves a database away and leaves its -wal, or copies a backup over a
 * database and leaves it, has the next opener destroy the -wal, or write it into a file that it was not made for.
 *
 * A database that is missing or empty beside a -wal that is not: refused, nothing is made.
 *
 * A database with a -wal: the row "mark" of dur_meta says which belong together.  It is a list of random numbers: the
 * row's own, and behind it each that the file may have, read without the -wal, as long as this row is in the -wal.
 * So the row that the file has alone begins with a number that is in the row that file and -wal have together; a copy
 * from another time has another.  A new number is drawn
 *   - with the first transaction after the -wal was written into the file as a whole: what the file has then is
 *     known, and the list is that one number;
 *   - before a checkpoint and at the last close: so that what was copied before differs from what the -wal that
 *     follows is made for;
 *   - for each copy of ours (sqlite_backup.c).
 * The row changes by comparison with what was known of it: whoever comes second leaves it alone.
 *
 * A loss of power in the middle of a checkpoint leaves pages in the file that are half old and half new, the row's
 * among them; the -wal has all of them and mends the file.  So each number ends with check digits, and what is not a
 * whole number, or not a whole file, says nothing: it is not refused.
 *
 * The same list tells a process that has the store open whether what was written into the file was a checkpoint.
 */
#include "provider/sqlite/sqlite_internal.h"
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NUMBER_CHARS = 16, CHECK_CHARS = 4, NUMBERS_MAX = 8, LOOKS_MAX = 100, STEADY_NS = 20000000 };

/* ---- a database that is not there ---- */

/* -1: there is none. */
static int64_t size_of(const char *path, const char *suffix) {
    struct stat state;
    char *name = dur__sq_beside(path, suffix);
    int64_t size = stat(name, &state) == 0 ? (int64_t)state.st_size : -1;
    dur__free(name);
    return size;
}

int dur__sq_leftover_check(const char *path, dur_error *err) {
    int64_t before, after = size_of(path, ""), wal, journal;
    do { /* somebody else may just be making it: first the file, then the others */
        before = after;
        wal = size_of(path, "-wal");
        journal = size_of(path, "-journal");
        after = size_of(path, "");
    } while (before != after);
    if (after > 0 || (wal <= 0 && (journal <= 0 || after == 0))) return DUR_OK;
    const char *suffix = wal > 0 ? "-wal" : "-journal";
    return dur_error_set(err, DUR_ESTATE, false, "sqlite.open",
                         "the %s of %s holds %lld bytes, but the database is %s: a new one would destroy them.  Put "
                         "the database back under its name, or move the %s away",
                         suffix, path, (long long)(wal > 0 ? wal : journal), after < 0 ? "missing" : "empty", suffix);
}

/* ---- a database beside the -wal of another ---- */

enum { URI_BYTES = 3 * PATH_MAX + 32 };

/* A name for SQLite as a URI: the file as it is, without its -wal. */
static void uri_of(const char *path, char out[URI_BYTES]) {
    int size = snprintf(out, URI_BYTES, "file:");
    for (const char *at = path; *at != '\0' && size < URI_BYTES - 16; at++) {
        bool plain = *at != '?' && *at != '#' && *at != '%';
        size += snprintf(out + size, 4, plain ? "%c" : "%%%02x", (unsigned char)*at);
    }
    snprintf(out + size, 16, "?immutable=1");
}

static void check_digits(const char *number, char out[CHECK_CHARS + 1]) {
    uint32_t sum = 2166136261u;
    for (int i = 0; i < NUMBER_CHARS - CHECK_CHARS; i++)
        sum = (sum ^ (unsigned char)number[i]) * 16777619u;
    snprintf(out, CHECK_CHARS + 1, "%04x", (sum ^ sum >> 16) & 0xffff);
}

/* Is what a row begins with a number as it was drawn?  Otherwise half of its page is from another time. */
static bool is_whole(const char *row) {
    char check[CHECK_CHARS + 1];
    if (strcspn(row, " ") != NUMBER_CHARS) return false;
    check_digits(row, check);
    return memcmp(row + NUMBER_CHARS - CHECK_CHARS, check, CHECK_CHARS) == 0;
}

/* A database without our tables: another one, or the first page of a checkpoint that was cut off? */
static int is_intact(sqlite3 *db) {
    sqlite3_stmt *stmt = NULL;
    int result = sqlite3_prepare_v2(db, "PRAGMA integrity_check(1)", -1, &stmt, NULL);
    bool intact = result == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW &&
                  dur__str_eq((const char *)sqlite3_column_text(stmt, 0), "ok");
    bool starved = sqlite3_errcode(db) == SQLITE_NOMEM;
    sqlite3_finalize(stmt);
    return intact ? SQLITE_OK : starved ? SQLITE_NOMEM : SQLITE_CORRUPT;
}

/* The row, in a connection of its own that writes nothing, also not at its end; "" where there is none.  Alone:
   SQLITE_CORRUPT where the file may be half of a checkpoint. */
static int row_read(const dur__sq_file *file, bool alone, char out[DUR__SQ_MARK_BYTES]) {
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    char uri[URI_BYTES];
    if (alone) uri_of(file->path, uri);
    int flags = alone ? SQLITE_OPEN_READONLY | SQLITE_OPEN_URI : SQLITE_OPEN_READWRITE;
    int result = sqlite3_open_v2(alone ? uri : file->path, &db, flags | SQLITE_OPEN_NOMUTEX, NULL);
    memset(out, 0, DUR__SQ_MARK_BYTES);
    if (result == SQLITE_OK) result = sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (result == SQLITE_OK) result = sqlite3_busy_timeout(db, 1000);
    if (result == SQLITE_OK)
        result = sqlite3_prepare_v2(db, "SELECT value FROM dur_meta WHERE name='mark'", -1, &stmt, NULL);
    if (result == SQLITE_ERROR) result = alone ? is_intact(db) : SQLITE_OK; /* no such table */
    if (result == SQLITE_OK && stmt != NULL) {
        result = sqlite3_step(stmt);
        const char *text = result == SQLITE_ROW ? (const char *)sqlite3_column_text(stmt, 0) : NULL;
        if (text != NULL) snprintf(out, DUR__SQ_MARK_BYTES, "%s", text);
        if (result == SQLITE_ROW || result == SQLITE_DONE) result = SQLITE_OK;
        if (text == NULL && sqlite3_errcode(db) == SQLITE_NOMEM) result = SQLITE_NOMEM;
        if (result == SQLITE_OK && alone && !is_whole(out)) result = SQLITE_CORRUPT;
    }
    sqlite3_finalize(stmt);
    sqlite3_close_v2(db);
    return result & 0xff;
}

/* "-" stands in the list for a file without the row, "*" for any: the row of a copy of ours comes into a -wal only with
   all of the copy, by a restore into a store in use. */
static bool belongs(const char *alone, const char *together) {
    char first[NUMBER_CHARS + 1] = "-";
    if (strchr(together, '*') != NULL) return true;
    if (alone[0] != '\0') snprintf(first, sizeof first, "%.*s", (int)strcspn(alone, " "), alone);
    return together[0] == '\0' || strstr(together, first) != NULL;
}

static int not_its_wal(const dur__sq_file *file, dur_error *err) {
    return dur_error_set(err, DUR_ESTATE, false, "sqlite.open",
                         "the -wal of %s belongs to another file: a copy was put in its place, and the -wal stayed.  "
                         "To go on with the copy move -wal and -shm away; to go on with the old database put it back",
                         file->path);
}

int dur__sq_mark_check(const dur__sq_file *file, dur_error *err) {
    char alone[DUR__SQ_MARK_BYTES], together[DUR__SQ_MARK_BYTES], again[DUR__SQ_MARK_BYTES];
    if (file->path == NULL || size_of(file->path, "-wal") <= 0) return DUR_OK;
    /* Others may write meanwhile: what the file had before and after was what it had in between. */
    for (int looks = 0; looks < LOOKS_MAX; looks++) {
        int result = row_read(file, true, alone);
        if (result != SQLITE_OK && result != SQLITE_NOMEM) return DUR_OK; /* half a page: the -wal may mend it */
        if (result == SQLITE_OK) result = row_read(file, false, together);
        if (result == SQLITE_NOMEM) return DUR__NO_MEMORY(err, "sqlite.open");
        if (result == SQLITE_CORRUPT || result == SQLITE_NOTADB) return not_its_wal(file, err);
        if (result != SQLITE_OK || belongs(alone, together)) return DUR_OK; /* opening says what is wrong */
        result = row_read(file, true, again);
        if (result == SQLITE_NOMEM) return DUR__NO_MEMORY(err, "sqlite.open");
        if (result == SQLITE_OK && strcmp(alone, again) == 0) return not_its_wal(file, err);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    return DUR_OK;
}

/* ---- drawing numbers ---- */

void dur__sq_mark_draw(char out[DUR__SQ_MARK_BYTES], const char *behind) {
    static const char digits[] = "0123456789abcdef";
    unsigned char random[(NUMBER_CHARS - CHECK_CHARS) / 2];
    char check[CHECK_CHARS + 1];
    sqlite3_randomness(sizeof random, random);
    for (size_t i = 0; i < sizeof random; i++) {
        out[2 * i] = digits[random[i] >> 4];
        out[2 * i + 1] = digits[random[i] & 15];
    }
    check_digits(out, check);
    snprintf(out + NUMBER_CHARS - CHECK_CHARS, DUR__SQ_MARK_BYTES - NUMBER_CHARS + CHECK_CHARS, "%s %s", check, behind);
}

static size_t numbers_in(const char *list) {
    size_t count = list[0] != '\0';
    for (; *list != '\0'; list++)
        count += *list == ' ';
    return count;
}

static int row_get(dur__sq_conn *conn, char out[DUR__SQ_MARK_BYTES], dur_error *err) {
    sqlite3_stmt *row = NULL;
    int code = dur__sq_first(conn, DUR__SQ_META_GET, &row, err, "t", "mark");
    out[0] = '\0';
    const char *text = row != NULL ? dur__sq_text(row, 0) : NULL;
    if (text != NULL)
        snprintf(out, DUR__SQ_MARK_BYTES, "%s", text);
    else if (row != NULL && sqlite3_errcode(conn->db) == SQLITE_NOMEM)
        code = dur__sq_fail(err, conn->db, "sqlite.mark");
    dur__sq_end(&row);
    return code;
}

int dur__sq_mark_open(dur__sq_file *file, dur_error *err) {
    int code = file->path != NULL ? row_get(&file->writer, file->mark.known, err) : DUR_OK;
    /* Read before that look: an empty -wal has nothing that the file has not. */
    file->mark.due = code == DUR_OK && file->path != NULL && size_of(file->path, "-wal") == 0;
    return code;
}

/* A transaction of ours has left it so. */
static void mark_known(dur__sq_file *file) {
    snprintf(file->mark.known, sizeof file->mark.known, "%s", file->mark.next);
    snprintf(file->mark.row, sizeof file->mark.row, "%s", file->mark.next);
    file->mark.epoch = file->epoch;
}

/* In a transaction; whole: the file is known to have file->mark.known. */
static int mark_swap(dur__sq_file *file, bool whole, dur_error *err) {
    char next[DUR__SQ_MARK_BYTES], first[NUMBER_CHARS + 1];
    file->mark.next[0] = '\0';
    if (file->mark.known[0] == '\0' || (!whole && numbers_in(file->mark.known) >= NUMBERS_MAX)) return DUR_OK;
    snprintf(first, sizeof first, "%.*s", (int)strcspn(file->mark.known, " "), file->mark.known);
    dur__sq_mark_draw(next, whole ? first : file->mark.known);
    int code = dur__sq_run(&file->writer, DUR__SQ_META_SWAP, err, "ttt", "mark", next, file->mark.known);
    if (code == DUR_OK && sqlite3_changes64(file->writer.db) == 0) return row_get(&file->writer, file->mark.next, err);
    snprintf(file->mark.next, sizeof file->mark.next, "%s", next);
    return code;
}

/* A copy was written over everything, this row too; the file has what it had, until a checkpoint. */
static int mark_restored(dur__sq_file *file, dur_error *err) {
    char now[DUR__SQ_MARK_BYTES], both[2 * DUR__SQ_MARK_BYTES];
    int code = row_get(&file->writer, now, err);
    file->mark.next[0] = '\0';
    if (code != DUR_OK || numbers_in(now) + numbers_in(file->mark.known) >= NUMBERS_MAX) return code;
    snprintf(both, sizeof both, "%s%s%s", file->mark.known, file->mark.known[0] != '\0' && now[0] != '\0' ? " " : "",
             now);
    dur__sq_mark_draw(file->mark.next, both);
    return dur__sq_run(&file->writer, DUR__SQ_META_SET, err, "tt", "mark", file->mark.next);
}

int dur__sq_mark_write(dur__sq_file *file, dur_error *err) {
    DUR_ASSERT(dur__sq_leads(file));
    if (file->mark.was_restored) return mark_restored(file, err);
    return file->mark.due ? mark_swap(file, true, err) : DUR_OK;
}

void dur__sq_mark_committed(dur__sq_file *file) {
    DUR_ASSERT(dur__sq_leads(file));
    if ((file->mark.due || file->mark.was_restored) && file->mark.next[0] != '\0') mark_known(file);
    file->mark.due = file->mark.was_restored = false;
    file->mark.used = true;
}

/* Only a kindness to who restores copies: where it cannot be done at once, it is not done. */
void dur__sq_mark_end(dur__sq_file *file) {
    sqlite3 *db = file->writer.db;
    if (file->path == NULL || db == NULL || !file->mark.used || atomic_load(&file->intact.gone)) return;
    sqlite3_busy_timeout(db, 0);
    int code = dur__sq_run(&file->writer, DUR__SQ_BEGIN, NULL, "");
    if (code == DUR_OK) {
        code = mark_swap(file, false, NULL);
        if (code == DUR_OK) code = dur__sq_run(&file->writer, DUR__SQ_COMMIT, NULL, "");
        if (code == DUR_OK && file->mark.next[0] != '\0') {
            mark_known(file);
            file->mark.used = false;
        }
        if (code != DUR_OK) dur__sq_vfs_drop(db);
        if (sqlite3_get_autocommit(db) == 0) dur__sq_run(&file->writer, DUR__SQ_ROLLBACK, NULL, "");
    }
    dur__sq_busy_install(file);
}

/* ---- a file that something was written over ---- */

/*
 * What file and -wal have together.  As long as nobody else has written, the leader knows, and need not ask: where the
 * -wal is empty, SQLite would answer with what was written over the file.
 */
static int row_now(dur__sq_file *file, dur__sq_conn *conn, char out[DUR__SQ_MARK_BYTES]) {
    bool changed;
    if (conn != &file->writer) return row_get(conn, out, NULL);
    int code = dur__sq_foreign(file, &changed, NULL);
    if (code == DUR_OK && file->mark.epoch != file->epoch) code = row_get(conn, file->mark.row, NULL);
    if (code != DUR_OK) return code;
    file->mark.epoch = file->epoch;
    memcpy(out, file->mark.row, DUR__SQ_MARK_BYTES);
    return DUR_OK;
}

/* The row that the file has alone; false: it cannot be told. */
static bool row_alone(const dur__sq_file *file, char out[DUR__SQ_MARK_BYTES]) {
    int result = row_read(file, true, out);
    if (result == SQLITE_NOTADB) snprintf(out, DUR__SQ_MARK_BYTES, "not a database");
    return result == SQLITE_OK || result == SQLITE_NOTADB;
}

/*
 * Others may write and checkpoint meanwhile.  But no number is drawn twice: a row that is the same before and after was
 * the same in between, and with it the list of what the file could have had.
 */
bool dur__sq_mark_is_strange(dur__sq_file *file, dur__sq_conn *conn) {
    char alone[DUR__SQ_MARK_BYTES], together[DUR__SQ_MARK_BYTES], alone_then[DUR__SQ_MARK_BYTES],
        together_then[DUR__SQ_MARK_BYTES];
    for (int looks = 0; looks < LOOKS_MAX; looks++) {
        if (row_now(file, conn, together) != DUR_OK || !row_alone(file, alone) || belongs(alone, together))
            return false; /* what cannot be read is an error of whoever reads next */
        nanosleep(&(struct timespec){ .tv_nsec = STEADY_NS }, NULL); /* a checkpoint under way goes on */
        if (row_now(file, conn, together_then) != DUR_OK || !row_alone(file, alone_then)) return false;
        if (strcmp(alone, alone_then) == 0 && strcmp(together, together_then) == 0) return true;
    }
    return false;
}
