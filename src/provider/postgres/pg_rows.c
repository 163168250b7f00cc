/*
 * pg_rows.c: single statements, by what is wanted of their answer.
 */
#include "provider/postgres/pg_internal.h"

#include <stdlib.h>

int dur__pg_list(dur__pg *store, const char *op, const char *sql, dur__pg_args *args, dur__pg_rows *out,
                 dur_error *err) {
    PGresult *result;
    out->rows = NULL;
    out->count = 0;
    int code = dur__pg_one(store, op, sql, args, false, &result, err);
    if (code == DUR_OK) {
        out->count = (size_t)PQntuples(result);
        out->rows = dur_arena_zalloc(out->arena, (out->count + 1) * out->size);
        for (size_t i = 0; i < out->count; i++)
            out->read(result, (int)i, out->arena, (char *)out->rows + i * out->size);
    }
    PQclear(result);
    return code;
}

int dur__pg_first_text(dur__pg *store, const char *op, const char *sql, dur__pg_args *args, dur_arena *arena,
                       const char **out, dur_error *err) {
    PGresult *result;
    int code = dur__pg_one(store, op, sql, args, false, &result, err);
    *out = code == DUR_OK && PQntuples(result) > 0 ? dur__pg_get_text(result, 0, 0, arena) : NULL;
    PQclear(result);
    return code;
}

int dur__pg_numbers(dur__pg *store, const char *op, const char *sql, dur__pg_args *args, uint64_t *const *out,
                    size_t count, bool *found, dur_error *err) {
    PGresult *result;
    int code = dur__pg_one(store, op, sql, args, false, &result, err);
    *found = code == DUR_OK && PQntuples(result) > 0;
    for (size_t i = 0; *found && i < count; i++)
        *out[i] = dur__pg_get_u64(result, 0, (int)i);
    PQclear(result);
    return code;
}

int dur__pg_write(dur__pg *store, const char *op, const char *sql, dur__pg_args *args, uint64_t *touched,
                  dur_error *err) {
    PGresult *result;
    int code = dur__pg_one(store, op, sql, args, true, &result, err);
    if (touched != NULL) *touched = code == DUR_OK ? strtoull(PQcmdTuples(result), NULL, 10) : 0;
    PQclear(result);
    return code;
}

int dur__pg_write_locked(dur__pg *store, const char *op, const char *sql, dur__pg_args *args, dur_error *err) {
    PGresult *result;
    int code = dur__pg_one(store, op, sql, args, true, &result, err);
    if (code == DUR_OK && PQntuples(result) == 0)
        code = dur_error_set(err, DUR_ELEASE, false, op, "Invalid lock token: the row is gone or its lock has ended");
    PQclear(result);
    return code;
}
