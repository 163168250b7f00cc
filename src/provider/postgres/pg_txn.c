/*
 * pg_txn.c: start, send and pulse inside the caller's own transaction.
 */
#include "core/check.h"
#include "core/limits.h"
#include "provider/postgres/pg_internal.h"

#include <durite/postgres.h>
#include <stdlib.h>

/* The store is one of ours, the connection is idle in an open transaction on the same database. */
static int enter(dur_provider *base, PGconn *db, const char *op, dur_error *err) {
    if (base == NULL || base->methods == NULL || db == NULL)
        return dur_error_set(err, DUR_EINVAL, false, op, "a store and a connection are required");
    if (base->methods->close != dur__pg_methods.close)
        return dur_error_set(err, DUR_EINVAL, false, op, "the store is not a PostgreSQL store");
    if (dur__pg_of(base)->serial != dur__process_serial())
        return dur_error_set(err, DUR_EFORKED, false, op, "the store was opened before fork()");
    if (PQstatus(db) != CONNECTION_OK)
        return dur_error_set(err, DUR_EUNAVAILABLE, true, op, "the connection is not open");
    if (PQpipelineStatus(db) != PQ_PIPELINE_OFF)
        return dur_error_set(err, DUR_ESTATE, false, op, "the connection is in pipeline mode");
    if (PQtransactionStatus(db) != PQTRANS_INTRANS)
        return dur_error_set(err, DUR_ESTATE, false, op, "no transaction is open on the connection");
    int code = dur__pg_check_encoding(db, op, err);
    if (code == DUR_OK) dur_error_clear(err);
    return code;
}

static int check_delay(uint64_t delay_ms, const char *op, dur_error *err) {
    if (delay_ms <= DUR__DELAY_MS_MAX) return DUR_OK;
    return dur_error_set(err, DUR_ELIMIT, false, op, "a delay is at most a century");
}

int dur_postgres_start(dur_provider *store, PGconn *db, const dur_start_args *given, dur_error *err) {
    static const dur_exists_policy policies[] = { DUR_EXISTS_FAIL, DUR_EXISTS_RETURN, DUR_EXISTS_REPLACE_FINISHED };
    const char *op = "postgres.start";
    dur_start_args args = { .size = sizeof(args) };
    dur_message_row message;
    int code = enter(store, db, op, err);
    if (code != DUR_OK) return code;
    if (given == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "args are required");
    memcpy(&args, given, given->size != 0 && given->size < sizeof(args) ? given->size : sizeof(args));
    if ((size_t)args.exists >= sizeof(policies) / sizeof(policies[0]))
        return dur_error_set(err, DUR_EINVAL, false, op, "exists is not a policy");
    code = dur__check_name(err, op, "name", args.name, DUR__NAME_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK)
        code = dur__check_name(err, op, "instance", args.instance, DUR__INSTANCE_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK) code = dur__check_text(err, op, "input", args.input, DUR__PAYLOAD_BYTES_MAX, DUR__OPTIONAL);
    if (code == DUR_OK) code = dur__check_version(err, op, args.version);
    if (code == DUR_OK) code = check_delay(args.delay_ms, op, err);
    if (code != DUR_OK) return code;
    dur_work_item item = { .kind = DUR_WORK_START_ORCHESTRATION,
                           .instance = args.instance,
                           .orchestration = args.name,
                           .input = args.input != NULL ? args.input : "",
                           .version = args.version,
                           .execution_id = 1 };
    dur_arena *arena = dur_arena_new();
    dur__pg_conn conn = { .store = dur__pg_of(store), .pg = db, .foreign = true };
    code = dur_message_row_from_work(&message, arena, &item, err);
    dur_start_request start = { .item = &message, .policy = policies[args.exists], .delay_ms = args.delay_ms };
    if (code == DUR_OK) code = dur__pg_start_on(&conn, &start, err);
    dur_arena_free(arena);
    return code;
}

static int send(dur_provider *store, PGconn *db, const dur_message_args *given, dur_work_kind kind, const char *op,
                dur_error *err) {
    dur_message_args args = { .size = sizeof(args) };
    dur_message_row message;
    int code = enter(store, db, op, err);
    if (code != DUR_OK) return code;
    if (given == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "args are required");
    memcpy(&args, given, given->size != 0 && given->size < sizeof(args) ? given->size : sizeof(args));
    code = dur__check_name(err, op, "instance", args.instance, DUR__INSTANCE_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK) code = dur__check_name(err, op, "name", args.name, DUR__NAME_BYTES_MAX, DUR__NOT_EMPTY);
    if (code == DUR_OK) code = dur__check_text(err, op, "data", args.data, DUR__PAYLOAD_BYTES_MAX, DUR__OPTIONAL);
    if (code == DUR_OK)
        code = dur__check_name(err, op, "message_id", args.message_id, DUR__MESSAGE_ID_BYTES_MAX, DUR__OPTIONAL);
    if (code == DUR_OK) code = check_delay(args.delay_ms, op, err);
    if (code != DUR_OK) return code;
    dur_work_item item = { .kind = kind,
                           .instance = args.instance,
                           .name = args.name,
                           .data = args.data != NULL ? args.data : "",
                           .message_id = args.message_id };
    dur_arena *arena = dur_arena_new();
    dur__pg_conn conn = { .store = dur__pg_of(store), .pg = db, .foreign = true };
    code = dur_message_row_from_work(&message, arena, &item, err);
    if (code == DUR_OK) code = dur__pg_existing_on(&conn, &message, args.delay_ms, err);
    dur_arena_free(arena);
    if (code == DUR_EDUPLICATE) { /* what was asked for has happened, by the first of the two calls */
        dur_error_clear(err);
        code = DUR_OK;
    }
    return code;
}

int dur_postgres_pulse(dur_provider *store, PGconn *db, const dur_message_args *args, dur_error *err) {
    return send(store, db, args, DUR_WORK_EXTERNAL_RAISED, "postgres.pulse", err);
}

int dur_postgres_send(dur_provider *store, PGconn *db, const dur_message_args *args, dur_error *err) {
    return send(store, db, args, DUR_WORK_QUEUE_MESSAGE, "postgres.send", err);
}
