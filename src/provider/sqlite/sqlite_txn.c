/*
 * sqlite_txn.c: the caller's own transaction, with the caller's own connection.
 *
 * begin takes the lead of this process and the gate between processes, so that the caller waits its turn like
 * everybody else and nobody waits behind SQLite's busy handler; commit gives both back and wakes who must be woken.
 * Calls that would need the lead in the same thread meanwhile are refused (DUR_EDEADLK) instead of waiting for ever.
 */
#include "provider/provider_internal.h"
#include "provider/sqlite/sqlite_internal.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

static int file_of(dur_provider *store, struct sqlite3 *db, dur__sq_file **out, const char *op, dur_error *err) {
    dur_error_clear(err);
    if (store == NULL || db == NULL)
        return dur_error_set(err, DUR_EINVAL, false, op, "store and connection are required");
    int code = dur__store_enter(store, op, err);
    if (code != DUR_OK) return code;
    store = dur__store_innermost(store);
    if (store->methods != &dur__sq_methods)
        return dur_error_set(err, DUR_EINVAL, false, op, "the store is not a SQLite file");
    *out = dur__sq_file_of(store);
    return DUR_OK;
}

static int same_file(const dur__sq_file *file, sqlite3 *db, const char *op, dur_error *err) {
    struct stat state;
    const char *name = sqlite3_db_filename(db, "main");
    if (file->path == NULL || name == NULL || name[0] == '\0' || stat(name, &state) != 0 || state.st_dev != file->dev ||
        state.st_ino != file->ino)
        return dur_error_set(err, DUR_EINVAL, false, op, "the connection is to another file (\"%s\")",
                             name != NULL ? name : "");
    return DUR_OK;
}

static int begin_immediate(dur__sq_file *file, sqlite3 *db, dur_error *err) {
    uint64_t until = dur__sq_busy_until(file);
    file->wait.is_ours = false;
    for (;;) {
        int result = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        if (result == SQLITE_OK) return dur__sq_busy_ended(file, DUR_OK, err);
        if ((result & 0xff) != SQLITE_BUSY) return dur__sq_fail(err, db, "sqlite.begin");
        dur__sq_busy_say(file);
        if (dur__monotonic_us() >= until) return dur__sq_busy_ended(file, dur__sq_fail(err, db, "sqlite.begin"), err);
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL); /* somebody without the gate */
    }
}

/* What ends it needs no more memory then. */
static int own_open(dur__sq_file *file, sqlite3 *db, dur_error *err) {
    file->own.conn.db = db;
    int code = dur__sq_prepare(&file->own.conn, DUR__SQ_COMMIT, err);
    return code == DUR_OK ? dur__sq_prepare(&file->own.conn, DUR__SQ_ROLLBACK, err) : code;
}

static void own_close(dur__sq_file *file) {
    for (int i = 0; i < DUR__SQ_COUNT; i++) {
        sqlite3_finalize(file->own.conn.stmts[i]);
        file->own.conn.stmts[i] = NULL;
    }
    file->own.conn.db = NULL;
}

int dur_sqlite_begin(dur_provider *store, struct sqlite3 *db, dur_error *err) {
    dur__sq_file *file = NULL;
    int code = file_of(store, db, &file, "sqlite.begin", err);
    if (code != DUR_OK || file == NULL) return code;
    code = dur__sq_present(file, err);
    if (code == DUR_OK) code = same_file(file, db, "sqlite.begin", err);
    if (code == DUR_OK && !dur__sq_in_own_txn(file) && sqlite3_get_autocommit(db) == 0)
        code = dur_error_set(err, DUR_ESTATE, false, "sqlite.begin", "the connection has a transaction already");
    if (code == DUR_OK) code = dur__sq_lead(file, err);
    if (code != DUR_OK) return code;
    dur__sq_gate_enter(file);
    code = own_open(file, db, err);
    if (code == DUR_OK) code = begin_immediate(file, db, err);
    if (code != DUR_OK) {
        own_close(file);
        dur__sq_gate_leave(file);
        dur__sq_unlead(file);
        return code;
    }
    file->own.version = 0;
    (void)dur__sq_pragma_u64(file->writer.db, "PRAGMA data_version", &file->own.version, NULL);
    dur__sq_checkpoint_borrow(file, db);
    dur__sq_set_own_txn(file);
    return DUR_OK;
}

static int inside(dur_provider *store, struct sqlite3 *db, dur__sq_file **out, const char *op, dur_error *err) {
    int code = file_of(store, db, out, op, err);
    if (code != DUR_OK || *out == NULL) return code;
    if (!dur__sq_in_own_txn(*out) || (*out)->own.conn.db != db)
        return dur_error_set(err, DUR_ESTATE, false, op,
                             "no transaction was begun with dur_sqlite_begin on this connection and thread");
    return DUR_OK;
}

/*
 * The transaction is over, and not by us: SQLite has rolled back by itself, or the caller has sent COMMIT or ROLLBACK.
 * What the writer's connection sees of the file tells: in this process nobody else has written meanwhile.
 */
static int is_over(dur__sq_file *file, const char *op, dur_error *err) {
    uint64_t version = 0;
    if (dur__sq_pragma_u64(file->writer.db, "PRAGMA data_version", &version, NULL) == DUR_OK &&
        version != file->own.version)
        return dur_error_set(err, DUR_ESTATE, false, op,
                             "the transaction is over: it was ended by a COMMIT that was not dur_sqlite_commit, and "
                             "what was written before that stays");
    return dur_error_set(err, DUR_ESTATE, false, op, "the transaction is over: it was rolled back");
}

/* To write.  Once SQLite has rolled back by itself, each row would be a transaction of its own. */
static int taking_part(dur_provider *store, struct sqlite3 *db, dur__sq_file **out, const char *op, dur_error *err) {
    int code = inside(store, db, out, op, err);
    if (code == DUR_OK && *out != NULL && sqlite3_get_autocommit(db) != 0) code = is_over(*out, op, err);
    return code;
}

static void own_end(dur__sq_file *file) {
    dur__sq_checkpoint_return(file, file->own.conn.db);
    own_close(file);
    dur__sq_set_own_txn(NULL);
    dur__sq_gate_leave(file);
}

int dur_sqlite_commit(dur_provider *store, struct sqlite3 *db, dur_error *err) {
    dur__sq_file *file = NULL;
    int code = inside(store, db, &file, "sqlite.commit", err);
    if (code != DUR_OK || file == NULL) return code;
    if (sqlite3_get_autocommit(db) != 0)
        code = is_over(file, "sqlite.commit", err);
    else {
        code = dur__sq_run(&file->own.conn, DUR__SQ_COMMIT, err, "");
        if (sqlite3_get_autocommit(db) == 0) (void)dur__sq_run(&file->own.conn, DUR__SQ_ROLLBACK, NULL, "");
    }
    own_end(file);
    if (code == DUR_OK) code = dur__sq_intact(file, &file->writer, err);
    file->relook = true; /* another connection has written: look at it as if another process had */
    file->news.work = file->news.all = true;
    dur__sq_ready(file);
    dur__sq_wake_flush(file, NULL);
    dur__sq_checkpoint(file);
    dur__sq_unlead(file);
    return code;
}

int dur_sqlite_rollback(dur_provider *store, struct sqlite3 *db, dur_error *err) {
    dur__sq_file *file = NULL;
    int code = inside(store, db, &file, "sqlite.rollback", err);
    if (code != DUR_OK || file == NULL) return code;
    if (sqlite3_get_autocommit(db) == 0) code = dur__sq_run(&file->own.conn, DUR__SQ_ROLLBACK, err, "");
    own_end(file);
    file->relook = true;
    file->max_id_known = false;
    dur__sq_unlead(file);
    return code;
}

/* ---- what takes part ---- */

static dur__sq_txn own_txn(dur__sq_file *file) {
    return (dur__sq_txn){ .file = file,
                          .conn = &file->own.conn,
                          .now_ms = file->world->wall_ms(file->world->data),
                          .boot_ms = file->world->boot_ms(file->world->data) };
}

static int check_delay(uint64_t delay_ms, const char *op, dur_error *err) {
    if (delay_ms <= DUR__DELAY_MS_MAX) return DUR_OK;
    return dur_error_set(err, DUR_ELIMIT, false, op, "a delay over a century is not allowed");
}

typedef struct own_call {
    const char *op;
    const dur_start_args *start;
    const dur_message_args *message;
    dur_work_kind kind;
} own_call;

static int start_write(dur__sq_txn *txn, const own_call *call, dur_error *err) {
    const dur_start_args *args = call->start;
    dur_work_item item = { .kind = DUR_WORK_START_ORCHESTRATION,
                           .instance = args->instance,
                           .orchestration = args->name,
                           .input = args->input != NULL ? args->input : "",
                           .version = args->version,
                           .execution_id = 1 };
    dur__sq_keys deleted = { NULL, 0, 0 };
    bool existed = false;
    dur_message_row message;
    dur_exists_policy policy = args->exists == DUR_START_RETURN_EXISTING    ? DUR_EXISTS_RETURN
                               : args->exists == DUR_START_REPLACE_FINISHED ? DUR_EXISTS_REPLACE_FINISHED
                                                                            : DUR_EXISTS_FAIL;
    int code = dur_message_row_from_work(&message, txn->file->scratch, &item, err);
    if (code == DUR_OK) code = dur__store_check_message(err, call->op, &message);
    return code == DUR_OK ? dur__sq_start(txn, &message, policy, args->delay_ms, &existed, &deleted, err) : code;
}

static int message_write(dur__sq_txn *txn, const own_call *call, dur_error *err) {
    const dur_message_args *args = call->message;
    dur_work_item item = { .kind = call->kind,
                           .instance = args->instance,
                           .name = args->name,
                           .data = args->data != NULL ? args->data : "",
                           .message_id = args->message_id };
    dur_message_row message;
    int code = dur_message_row_from_work(&message, txn->file->scratch, &item, err);
    if (code == DUR_OK) code = dur__store_check_message(err, call->op, &message);
    return code == DUR_OK ? dur__sq_message(txn, &message, args->delay_ms, err) : code;
}

static int write_or_leave(dur__sq_file *file, const own_call *call, dur_error *err) {
    dur__way_out out_of_memory;
    dur_arena_reset(file->scratch);
    if (DUR__OUT_OF_MEMORY(&out_of_memory)) {
        for (int i = 0; i < DUR__SQ_COUNT; i++)
            sqlite3_reset(file->own.conn.stmts[i]); /* the others are the caller's */
        return DUR__NO_MEMORY(err, call->op);
    }
    dur__sq_txn txn = own_txn(file);
    int code = call->start != NULL ? start_write(&txn, call, err) : message_write(&txn, call, err);
    dur__way_out_end(&out_of_memory);
    return code;
}

/* All of it or nothing: the caller may commit what else he has written. */
static int write_whole(dur__sq_file *file, const own_call *call, dur_error *err) {
    dur__sq_conn *conn = &file->own.conn;
    int code = dur__sq_prepare(conn, DUR__SQ_SAVEPOINT_BACK, err);
    if (code == DUR_OK) code = dur__sq_prepare(conn, DUR__SQ_SAVEPOINT_END, err);
    if (code == DUR_OK) code = dur__sq_run(conn, DUR__SQ_SAVEPOINT, err, "");
    if (code != DUR_OK) return code;
    code = write_or_leave(file, call, err);
    if (sqlite3_get_autocommit(conn->db) != 0) return code; /* SQLite has rolled all of it back */
    bool whole = code == DUR_OK || dur__sq_run(conn, DUR__SQ_SAVEPOINT_BACK, NULL, "") == DUR_OK;
    if (!whole || dur__sq_run(conn, DUR__SQ_SAVEPOINT_END, code == DUR_OK ? err : NULL, "") != DUR_OK) {
        (void)dur__sq_run(conn, DUR__SQ_ROLLBACK, NULL, ""); /* what follows is told so */
        return code == DUR_OK ? DUR__NO_MEMORY(err, call->op) : code;
    }
    return code;
}

int dur_sqlite_start(dur_provider *store, struct sqlite3 *db, const dur_start_args *args, dur_error *err) {
    static const char op[] = "sqlite.start";
    dur__sq_file *file = NULL;
    int code = taking_part(store, db, &file, op, err);
    if (code != DUR_OK || file == NULL) return code;
    if (args == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "args is required");
    code = dur__check_name(err, op, "name", args->name, DUR__NAME_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK)
        code = dur__check_name(err, op, "instance", args->instance, DUR__INSTANCE_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK) code = dur__check_version(err, op, args->version);
    if (code == DUR_OK) code = check_delay(args->delay_ms, op, err);
    return code == DUR_OK ? write_whole(file, &(own_call){ .op = op, .start = args }, err) : code;
}

static int own_message(dur_provider *store, struct sqlite3 *db, const dur_message_args *args, dur_work_kind kind,
                       const char *op, dur_error *err) {
    dur__sq_file *file = NULL;
    int code = taking_part(store, db, &file, op, err);
    if (code != DUR_OK || file == NULL) return code;
    if (args == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "args is required");
    code = dur__check_name(err, op, "name", args->name, DUR__NAME_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK)
        code = dur__check_name(err, op, "instance", args->instance, DUR__INSTANCE_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK) code = check_delay(args->delay_ms, op, err);
    if (code == DUR_OK) code = write_whole(file, &(own_call){ .op = op, .message = args, .kind = kind }, err);
    if (code == DUR_EDUPLICATE) { /* it has happened already */
        dur_error_clear(err);
        code = DUR_OK;
    }
    return code;
}

int dur_sqlite_pulse(dur_provider *store, struct sqlite3 *db, const dur_message_args *args, dur_error *err) {
    return own_message(store, db, args, DUR_WORK_EXTERNAL_RAISED, "sqlite.pulse", err);
}

int dur_sqlite_send(dur_provider *store, struct sqlite3 *db, const dur_message_args *args, dur_error *err) {
    return own_message(store, db, args, DUR_WORK_QUEUE_MESSAGE, "sqlite.send", err);
}

/* ---- a connection for an activity ---- */

struct sqlite3 *dur__store_open_sqlite(dur_provider *store, dur_error *err) {
    sqlite3 *opened = NULL;
    store = dur__store_innermost(store);
    if (store->methods != &dur__sq_methods || dur__sq_file_of(store)->path == NULL) {
        dur_error_set(err, DUR_EUNSUPPORTED, false, "act.sqlite", "the store is not a SQLite file");
        return NULL;
    }
    if (dur__sq_connect(&opened, dur__sq_file_of(store), false, err) == DUR_OK) {
        sqlite3_extended_result_codes(opened, 0); /* it is the caller's, who compares with SQLITE_CONSTRAINT */
        return opened;
    }
    if (opened != NULL) sqlite3_close_v2(opened);
    return NULL;
}

void dur__store_close_sqlite(struct sqlite3 *db) {
    if (db == NULL) return;
    if (sqlite3_get_autocommit(db) == 0) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close_v2(db);
}
