/*
 * pg_sql.c: from texts with abbreviations to SQL, and parameters and answers.
 */
#include "base/assert.h"
#include "provider/postgres/pg_internal.h"

#include <arpa/inet.h>
#include <stdlib.h>

#define OID_TEXT 25
#define OID_I64 20
#define OID_TEXTS 1009
#define OID_I64S 1016
#define OID_BOOL 16

/* The server's clock, moved by a setting that tests use; the caller's, where it was opened so.  date_part computes with
   doubles, which are exact enough and twice as fast as extract. */
#define NOW                                                                                                            \
    "(SELECT coalesce($1::bigint, (date_part('epoch', clock_timestamp()) * 1000)::bigint + "                           \
    "coalesce(nullif(current_setting('durite.clock_offset_ms', true), '')::bigint, 0)))"

static char *expand(const dur__pg *store, const char *text) {
    dur__buf out = { 0 };
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '@') {
            dur__buf_text(&out, dur__buf_str(&store->prefix));
            dur__buf_text(&out, "dur_");
        } else if (strncmp(at, "#now", 4) == 0) {
            dur__buf_text(&out, NOW);
            at += 3;
        } else {
            dur__buf_char(&out, *at);
        }
    }
    return dur__buf_take(&out);
}

const char *dur__pg_sql(dur__pg *store, const char *text) {
    dur__mutex_lock(&store->mutex);
    char *known = dur__map_get_u64(&store->sqls, (uint64_t)(uintptr_t)text);
    if (known == NULL) {
        known = expand(store, text);
        dur__map_put_u64(&store->sqls, (uint64_t)(uintptr_t)text, known);
    }
    dur__mutex_unlock(&store->mutex);
    return known;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static int next(dur__pg_args *args, Oid type, int format) {
    int at = args->count++;
    args->types[at] = type;
    args->formats[at] = format;
    args->lengths[at] = 0;
    args->values[at] = NULL;
    return at;
}

void dur__pg_args_begin(dur__pg *store, dur__pg_args *args) {
    args->count = 0;
    args->walks = false;
    memset(args->owned, 0, sizeof(args->owned));
    if (store->caller_clock)
        dur__pg_u64(args, store->world->wall_ms(store->world->data));
    else
        next(args, OID_I64, 0);
}

void dur__pg_args_free(dur__pg_args *args) {
    for (int i = 0; i < args->count; i++)
        dur__buf_free(&args->owned[i]);
    args->count = 0;
}

void dur__pg_text(dur__pg_args *args, const char *text) {
    args->values[next(args, OID_TEXT, 0)] = text;
}

void dur__pg_json(dur__pg_args *args, dur_text text) {
    int at = next(args, OID_TEXT, 1); /* binary, so that it need not end with a NUL */
    args->values[at] = text.size > 0 ? text.data : "";
    args->lengths[at] = (int)text.size;
}

void dur__pg_args_of(dur__pg *store, dur__pg_args *args, const char *id) {
    dur__pg_args_begin(store, args);
    dur__pg_text(args, id);
}

void dur__pg_i64(dur__pg_args *args, int64_t value) {
    int at = next(args, OID_I64, 0);
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    args->numbers[at][0] = '-';
    dur__u64_text(&args->numbers[at][1], size);
    args->values[at] = &args->numbers[at][value < 0 ? 0 : 1];
}

int64_t dur__pg_ms(uint64_t value) {
    return (int64_t)(value > DUR__PG_DELAY_FOREVER ? DUR__PG_DELAY_FOREVER : value);
}
void dur__pg_u64(dur__pg_args *args, uint64_t value) {
    dur__pg_i64(args, dur__pg_ms(value));
}
void dur__pg_id(dur__pg_args *args, uint64_t value) {
    dur__pg_i64(args, (int64_t)value);
}
void dur__pg_bool(dur__pg_args *args, bool value) {
    args->values[next(args, OID_BOOL, 0)] = value ? "t" : "f";
}
void dur__pg_null(dur__pg_args *args) {
    next(args, OID_TEXT, 0);
}

/* A statement keeps the types with which it was prepared: an array that is absent is one all the same. */
void dur__pg_null_texts(dur__pg_args *args) {
    next(args, OID_TEXTS, 1);
}

/* ---- arrays: the binary form is a header and, for each element, its size and bytes ------------------------------- */

#define ARRAY_HEADER 20
#define ARRAY_ROOM 1000u

static void put_u32(char *at, uint32_t value) {
    uint32_t wire = htonl(value);
    memcpy(at, &wire, sizeof(wire));
}

static void add_u32(dur__buf *buf, uint32_t value) {
    uint32_t wire = htonl(value);
    dur__buf_add(buf, &wire, sizeof(wire));
}

dur__pg_array dur__pg_array_text(void) {
    return (dur__pg_array){ .element = OID_TEXT };
}
dur__pg_array dur__pg_array_i64(void) {
    return (dur__pg_array){ .element = OID_I64 };
}

/* Most arrays are made for what a round may have, and stay empty. */
static void begin_array(dur__pg_array *array) {
    static const char header[ARRAY_HEADER];
    if (array->data.size > 0) return;
    dur__buf_grow(&array->data, ARRAY_ROOM);
    dur__buf_add(&array->data, header, sizeof(header));
}

static void add_element(dur__pg_array *array, uint32_t size) {
    begin_array(array);
    add_u32(&array->data, size);
    array->count++;
}

void dur__pg_add_null(dur__pg_array *array) {
    add_element(array, UINT32_MAX);
    array->has_null = true;
}

void dur__pg_add_json(dur__pg_array *array, dur_text text) {
    add_element(array, (uint32_t)text.size);
    dur__buf_add(&array->data, text.data, text.size);
}

void dur__pg_add_all(dur__pg_array *to, const dur__pg_array *from) {
    if (from->count == 0) return;
    begin_array(to);
    dur__buf_add(&to->data, from->data.data + ARRAY_HEADER, from->data.size - ARRAY_HEADER);
    to->count += from->count;
    to->has_null |= from->has_null;
}

void dur__pg_add_text(dur__pg_array *array, const char *text) {
    if (text == NULL)
        dur__pg_add_null(array);
    else
        dur__pg_add_json(array, (dur_text){ text, strlen(text) });
}

void dur__pg_add_i64(dur__pg_array *array, int64_t value) {
    add_element(array, 8);
    add_u32(&array->data, (uint32_t)((uint64_t)value >> 32));
    add_u32(&array->data, (uint32_t)(uint64_t)value);
}

static const char no_texts[12] = { [11] = OID_TEXT }, no_numbers[12] = { [11] = OID_I64 };

void dur__pg_array_arg(dur__pg_args *args, dur__pg_array *array) {
    bool texts = array->element == OID_TEXT;
    int at = next(args, texts ? OID_TEXTS : OID_I64S, 1);
    if (array->count == 0) {
        dur__buf_free(&array->data);
        args->values[at] = texts ? no_texts : no_numbers;
        args->lengths[at] = sizeof(no_texts);
        return;
    }
    char *head = array->data.data;
    put_u32(head, 1); /* dimensions */
    put_u32(head + 4, array->has_null ? 1 : 0);
    put_u32(head + 8, array->element);
    put_u32(head + 12, array->count);
    put_u32(head + 16, 1); /* the first index */
    args->owned[at] = array->data;
    args->values[at] = array->data.data;
    args->lengths[at] = (int)array->data.size;
    memset(array, 0, sizeof(*array));
}

void dur__pg_array_copy_arg(dur__pg_args *args, const dur__pg_array *array) {
    dur__pg_array copy = { .element = array->element };
    dur__pg_add_all(&copy, array);
    dur__pg_array_arg(args, &copy);
}

/* ---- tables: columns of arrays ----------------------------------------------------------------------------------- */

dur__pg_table dur__pg_table_of(const char *types) {
    dur__pg_table table = { .types = types };
    DUR_ASSERT(types[0] != '\0' && strlen(types) <= DUR__PG_COLUMNS);
    for (int i = 0; types[i] != '\0'; i++)
        table.columns[i] = types[i] == 't' ? dur__pg_array_text() : dur__pg_array_i64();
    return table;
}

static dur__pg_array *next_column(dur__pg_table *table, char type) {
    int at = table->next++;
    DUR_ASSERT(table->types[at] == type);
    if (at == 0) table->rows++;
    if (table->types[table->next] == '\0') table->next = 0;
    return &table->columns[at];
}

void dur__pg_put_text(dur__pg_table *table, const char *text) {
    dur__pg_add_text(next_column(table, 't'), text);
}
void dur__pg_put_json(dur__pg_table *table, dur_text text) {
    dur__pg_add_json(next_column(table, 't'), text);
}
void dur__pg_put_i64(dur__pg_table *table, int64_t value) {
    dur__pg_add_i64(next_column(table, 'i'), value);
}
void dur__pg_put_id(dur__pg_table *table, uint64_t value) {
    dur__pg_put_i64(table, (int64_t)value);
}

const char *dur__pg_pin(dur_semver version, char out[DUR__PG_PIN_SIZE]) {
    snprintf(out, DUR__PG_PIN_SIZE, "{%u,%u,%u}", version.major, version.minor, version.patch);
    return out;
}

void dur__pg_table_args(dur__pg_args *args, dur__pg_table *table) {
    DUR_ASSERT(table->next == 0);
    for (int i = 0; table->types[i] != '\0'; i++)
        dur__pg_array_arg(args, &table->columns[i]);
    table->rows = 0;
}

void dur__pg_table_free(dur__pg_table *table) {
    for (int i = 0; table->types[i] != '\0'; i++)
        dur__buf_free(&table->columns[i].data);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

const char *dur__pg_get(const PGresult *result, int row, int column) {
    return PQgetisnull(result, row, column) ? NULL : PQgetvalue(result, row, column);
}

int64_t dur__pg_get_i64(const PGresult *result, int row, int column) {
    const char *text = dur__pg_get(result, row, column);
    return text != NULL ? (int64_t)strtoll(text, NULL, 10) : 0;
}

uint64_t dur__pg_get_u64(const PGresult *result, int row, int column) {
    return (uint64_t)dur__pg_get_i64(result, row, column);
}

bool dur__pg_get_bool(const PGresult *result, int row, int column) {
    const char *text = dur__pg_get(result, row, column);
    return text != NULL && text[0] == 't';
}

char *dur__pg_get_text(const PGresult *result, int row, int column, dur_arena *arena) {
    if (PQgetisnull(result, row, column)) return NULL;
    return dur_arena_memdup(arena, PQgetvalue(result, row, column), (size_t)PQgetlength(result, row, column));
}

dur_text dur__pg_get_json(const PGresult *result, int row, int column, dur_arena *arena) {
    size_t size = (size_t)PQgetlength(result, row, column);
    return (dur_text){ dur_arena_memdup(arena, PQgetvalue(result, row, column), size), size };
}
