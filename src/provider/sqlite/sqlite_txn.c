/*
 * sqlite_txn.c: the caller's own transaction, with the caller's own connection.
 *
 * begin takes the lead of this process and the gate between processes, so that the caller waits its turn like
 * everybody else and nobody waits behind SQLite's busy handler; commit gives both back and wakes who must be woken.
 * Calls that would need the lead in the same thread meanwhile are refused (DUR_EDEADLK) instead of waiting for ever.
 * sqlite_own.c has what becomes of one that nobody ends.
 */
#include "provider/provider_internal.h"
#include "provider/sqlite/sqlite_internal.h"
#include "provider/sqlite/sqlite_own.h"
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

static int begin(dur__sq_own *own, dur_error *err) {
    dur__sq_file *file = own->file;
    int code = dur__sq_lead(file, err);
    if (code != DUR_OK) return code;
    dur__sq_gate_enter(file);
    code = begin_immediate(file, own->conn.db, err);
    if (code != DUR_OK) {
        dur__sq_gate_leave(file);
        dur__sq_unlead(file);
        return code;
    }
    (void)dur__sq_pragma_u64(file->writer.db, "PRAGMA data_version", &own->version, NULL);
    dur__sq_checkpoint_borrow(own);
    dur__sq_own_open(own);
    return DUR_OK;
}

int dur_sqlite_begin(dur_provider *store, struct sqlite3 *db, dur_error *err) {
    dur__sq_file *file = NULL;
    int code = file_of(store, db, &file, "sqlite.begin", err);
    if (code != DUR_OK || file == NULL) return code;
    dur__sq_own_forget();
    code = dur__sq_present(file, err);
    if (code == DUR_OK) code = same_file(file, db, "sqlite.begin", err);
    if (code == DUR_OK && !dur__sq_in_own_txn(file) && sqlite3_get_autocommit(db) == 0)
        code = dur_error_set(err, DUR_ESTATE, false, "sqlite.begin", "the connection has a transaction already");
    if (code != DUR_OK) return code;
    dur__sq_own *own = dur__sq_own_new(dur__store_innermost(store), file, db);
    if (own == NULL) return dur_error_set(err, DUR_ENOMEM, true, "sqlite.begin", "out of memory");
    code = begin(own, err);
    if (code != DUR_OK) dur__sq_own_free(own);
    return code;
}

static int none_begun(const char *op, dur_error *err) {
    (void)dur_error_set(err, DUR_ESTATE, false, op,
                        "no transaction was begun with dur_sqlite_begin on this connection and thread");
    return DUR_ESTATE;
}

static int is_over(bool committed, const char *op, dur_error *err) {
    if (committed)
        return dur_error_set(err, DUR_ESTATE, false, op,
                             "the transaction is over: it was ended by a COMMIT that was not dur_sqlite_commit, and "
                             "what was written before that stays");
    return dur_error_set(err, DUR_ESTATE, false, op, "the transaction is over: it was rolled back");
}

/*
 * The transaction is over, and not by us: SQLite has rolled back by itself, or the caller has sent COMMIT or ROLLBACK.
 * What the writer's connection sees of the file tells: in this process nobody else has written meanwhile.
 */
static int ended_by_hand(const dur__sq_own *own, const char *op, dur_error *err) {
    uint64_t version = 0;
    bool seen = dur__sq_pragma_u64(own->file->writer.db, "PRAGMA data_version", &version, NULL) == DUR_OK;
    return is_over(seen && version != own->version, op, err);
}

/* It is in hand then. */
static int inside(dur_provider *store, struct sqlite3 *db, dur__sq_own **out, const char *op, dur_error *err) {
    dur__sq_file *file = NULL;
    int code = file_of(store, db, &file, op, err);
    if (code != DUR_OK) return code;
    *out = file != NULL ? dur__sq_own_of(file, db) : NULL;
    if (*out == NULL) return none_begun(op, err);
    return dur__sq_own_enter(*out) ? DUR_OK : is_over((*out)->committed, op, err);
}

/* To write.  Once SQLite has rolled back by itself, each row would be a transaction of its own. */
static int taking_part(dur_provider *store, struct sqlite3 *db, dur__sq_own **out, const char *op, dur_error *err) {
    int code = inside(store, db, out, op, err);
    if (code != DUR_OK || sqlite3_get_autocommit(db) == 0) return code;
    code = ended_by_hand(*out, op, err);
    dur__sq_own_leave(*out);
    return code;
}

static void end(dur__sq_own *own) {
    dur__sq_own_end(own);
    dur__sq_own_free(own);
}

/* There is no memory to end it: that is tried again by whoever has begun it. */
static int still_open(dur__sq_own *own, int code) {
    dur__sq_own_leave(own);
    return code;
}

int dur_sqlite_commit(dur_provider *store, struct sqlite3 *db, dur_error *err) {
    dur__sq_own *own = NULL;
    int code = inside(store, db, &own, "sqlite.commit", err);
    if (code != DUR_OK) {
        if (own != NULL) dur__sq_own_free(own); /* somebody else has seen that it was over */
        return code;
    }
    if (sqlite3_get_autocommit(db) != 0)
        code = ended_by_hand(own, "sqlite.commit", err);
    else {
        code = dur__sq_run(&own->conn, DUR__SQ_COMMIT, err, "");
        if (sqlite3_get_autocommit(db) == 0) (void)dur__sq_run(&own->conn, DUR__SQ_ROLLBACK, NULL, "");
        if (sqlite3_get_autocommit(db) == 0) return still_open(own, code);
    }
    if (code == DUR_OK) code = dur__sq_intact(own->file, &own->file->writer, err);
    end(own);
    return code;
}

int dur_sqlite_rollback(dur_provider *store, struct sqlite3 *db, dur_error *err) {
    dur__sq_own *own = NULL;
    int code = inside(store, db, &own, "sqlite.rollback", err);
    if (code != DUR_OK && own != NULL) { /* that is what is wanted */
        dur__sq_own_free(own);
        dur_error_clear(err);
        return DUR_OK;
    }
    if (code != DUR_OK) return code;
    if (sqlite3_get_autocommit(db) == 0) code = dur__sq_run(&own->conn, DUR__SQ_ROLLBACK, err, "");
    if (sqlite3_get_autocommit(db) == 0) return still_open(own, code);
    end(own);
    return code;
}

/* ---- what takes part ---- */

static dur__sq_txn own_txn(dur__sq_own *own) {
    const dur__sq_file *file = own->file;
    return (dur__sq_txn){ .file = own->file,
                          .conn = &own->conn,
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

static int write_or_leave(dur__sq_own *own, const own_call *call, dur_error *err) {
    dur__way_out out_of_memory;
    dur_arena_reset(own->file->scratch);
    if (DUR__OUT_OF_MEMORY(&out_of_memory)) {
        for (int i = 0; i < DUR__SQ_COUNT; i++)
            sqlite3_reset(own->conn.stmts[i]); /* the others are the caller's */
        return DUR__NO_MEMORY(err, call->op);
    }
    dur__sq_txn txn = own_txn(own);
    int code = call->start != NULL ? start_write(&txn, call, err) : message_write(&txn, call, err);
    dur__way_out_end(&out_of_memory);
    return code;
}

/* All of it or nothing: the caller may commit what else he has written.  What ends it needs no more memory then. */
static int write_whole(dur__sq_own *own, const own_call *call, dur_error *err) {
    dur__sq_conn *conn = &own->conn;
    int code = dur__sq_prepare(conn, DUR__SQ_COMMIT, err);
    if (code == DUR_OK) code = dur__sq_prepare(conn, DUR__SQ_ROLLBACK, err);
    if (code == DUR_OK) code = dur__sq_prepare(conn, DUR__SQ_SAVEPOINT_BACK, err);
    if (code == DUR_OK) code = dur__sq_prepare(conn, DUR__SQ_SAVEPOINT_END, err);
    if (code == DUR_OK) code = dur__sq_run(conn, DUR__SQ_SAVEPOINT, err, "");
    if (code != DUR_OK) return code;
    code = write_or_leave(own, call, err);
    if (sqlite3_get_autocommit(conn->db) != 0) return code; /* SQLite has rolled all of it back */
    bool whole = code == DUR_OK || dur__sq_run(conn, DUR__SQ_SAVEPOINT_BACK, NULL, "") == DUR_OK;
    if (!whole || dur__sq_run(conn, DUR__SQ_SAVEPOINT_END, code == DUR_OK ? err : NULL, "") != DUR_OK) {
        (void)dur__sq_run(conn, DUR__SQ_ROLLBACK, NULL, ""); /* what follows is told so */
        return code == DUR_OK ? DUR__NO_MEMORY(err, call->op) : code;
    }
    return code;
}

static int own_start(dur__sq_own *own, const dur_start_args *args, const char *op, dur_error *err) {
    if (args == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "args is required");
    int code = dur__check_name(err, op, "name", args->name, DUR__NAME_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK)
        code = dur__check_name(err, op, "instance", args->instance, DUR__INSTANCE_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK) code = dur__check_version(err, op, args->version);
    if (code == DUR_OK) code = check_delay(args->delay_ms, op, err);
    return code == DUR_OK ? write_whole(own, &(own_call){ .op = op, .start = args }, err) : code;
}

int dur_sqlite_start(dur_provider *store, struct sqlite3 *db, const dur_start_args *args, dur_error *err) {
    dur__sq_own *own = NULL;
    int code = taking_part(store, db, &own, "sqlite.start", err);
    if (code != DUR_OK) return code;
    code = own_start(own, args, "sqlite.start", err);
    dur__sq_own_leave(own);
    return code;
}

static int own_message(dur__sq_own *own, const dur_message_args *args, dur_work_kind kind, const char *op,
                       dur_error *err) {
    if (args == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "args is required");
    int code = dur__check_name(err, op, "name", args->name, DUR__NAME_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK)
        code = dur__check_name(err, op, "instance", args->instance, DUR__INSTANCE_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK) code = check_delay(args->delay_ms, op, err);
    if (code == DUR_OK) code = write_whole(own, &(own_call){ .op = op, .message = args, .kind = kind }, err);
    if (code == DUR_EDUPLICATE) { /* it has happened already */
        dur_error_clear(err);
        code = DUR_OK;
    }
    return code;
}

static int message(dur_provider *store, struct sqlite3 *db, const dur_message_args *args, dur_work_kind kind,
                   const char *op, dur_error *err) {
    dur__sq_own *own = NULL;
    int code = taking_part(store, db, &own, op, err);
    if (code != DUR_OK) return code;
    code = own_message(own, args, kind, op, err);
    dur__sq_own_leave(own);
    return code;
}

int dur_sqlite_pulse(dur_provider *store, struct sqlite3 *db, const dur_message_args *args, dur_error *err) {
    return message(store, db, args, DUR_WORK_EXTERNAL_RAISED, "sqlite.pulse", err);
}

int dur_sqlite_send(dur_provider *store, struct sqlite3 *db, const dur_message_args *args, dur_error *err) {
    return message(store, db, args, DUR_WORK_QUEUE_MESSAGE, "sqlite.send", err);
}

/* ---- what the runtime asks ---- */

bool dur__store_in_own_txn(dur_provider *store) {
    store = dur__store_innermost(store);
    return store->methods == &dur__sq_methods && dur__sq_in_own_txn(dur__sq_file_of(store));
}

void dur__store_drop_own_txn(dur_provider *store, const char *why) {
    store = dur__store_innermost(store);
    if (store->methods == &dur__sq_methods) dur__sq_own_drop(dur__sq_file_of(store), NULL, why);
}

/* ---- a connection for an activity ---- */

struct sqlite3 *dur__store_open_sqlite(dur_provider *store, dur_error *err) {
    sqlite3 *opened = NULL;
    store = dur__store_innermost(store);
    if (store->methods != &dur__sq_methods || dur__sq_file_of(store)->path == NULL) {
        dur_error_set(err, DUR_EUNSUPPORTED, false, "act.sqlite", "the store is not a SQLite file");
        return NULL;
    }
    int code = dur__sq_connect(&opened, dur__sq_file_of(store), false, err);
    if (code == DUR_OK && !dur__sq_hook(opened))
        code = dur_error_set(err, DUR_ENOMEM, true, "act.sqlite", "out of memory");
    if (code == DUR_OK) {
        sqlite3_extended_result_codes(opened, 0); /* it is the caller's, who compares with SQLITE_CONSTRAINT */
        return opened;
    }
    if (opened != NULL) sqlite3_close_v2(opened);
    return NULL;
}

void dur__store_close_sqlite(struct sqlite3 *db) {
    if (db == NULL || !dur__sq_hooked(db)) return; /* the activity has closed it */
    dur__sq_own_drop_connection(db, "its activity ended");
    if (sqlite3_get_autocommit(db) == 0) sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close_v2(db);
}
