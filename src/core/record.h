/*
 * record.h: JSON objects whose fields are described by a table.
 *
 * Events, work items and failures are C structs with the fields of all their kinds side by side.  One table per struct
 * says where each field lies; one shape per kind says which of them the kind has, as bits of the table's indexes.
 * Fields are written in the order of the table and read in any order.
 */
#ifndef DURITE_CORE_RECORD_H
#define DURITE_CORE_RECORD_H

#include "core/json.h"
#include <durite/sys/event.h>

typedef enum dur__field_type {
    DUR__FIELD_TEXT,
    DUR__FIELD_U64,
    DUR__FIELD_U32,
    DUR__FIELD_BOOL,
    DUR__FIELD_KIND,          /* event: `type`, which is handled by the event codec */
    DUR__FIELD_FAILURE,       /* const dur_failure * */
    DUR__FIELD_CARRIED,       /* const dur_carried *; beside is the count */
    DUR__FIELD_APPLICATION,   /* dur_failure: kind of Application */
    DUR__FIELD_CONFIGURATION, /* dur_failure: kind of Configuration, always Nondeterminism */
    DUR__FIELD_POISON         /* dur_failure: message_type of Poison */
} dur__field_type;

typedef struct dur__field {
    char prefix[32]; /* ,"name": with NULs behind it, so that it is copied in one piece */
    uint8_t prefix_size;
    uint8_t type;
    uint16_t at;     /* offset of the value */
    uint16_t beside; /* offset of its has_ flag or count; 0: NULL or 0 means absent */
} dur__field;

#define DUR__FIELD(name, type, at, beside)                                                                             \
    { ",\"" name "\":", (uint8_t)(sizeof(name) - 1 + 4), (uint8_t)(type), (uint16_t)(at), (uint16_t)(beside) }

/* Bits are indexes of the table. */
typedef struct dur__shape {
    uint64_t required;  /* always written, must be there */
    uint64_t defaulted; /* always written, may be absent when read */
    uint64_t optional;  /* written when present */
} dur__shape;

typedef struct dur__record {
    const dur__field *fields;
    unsigned count; /* at most 64 */
} dur__record;

/* Append the fields of the shape, each opened by a comma. */
void dur__record_write(dur__buf *out, const dur__record *record, const dur__shape *shape, const void *base);

/* What a public encoder asks first: required texts are there, all texts are UTF-8.  DUR_EINVAL names the field. */
int dur__record_check(const dur__record *record, const dur__shape *shape, const void *base, const char *what,
                      dur_error *err);

/* Reading, member by member: which field of `allowed` has this key?  Record's count when none has. */
unsigned dur__record_find(const dur__record *record, uint64_t allowed, dur_text key, unsigned hint);
/* The value of a field, into base.  null is the same as absent for one that is not required. */
bool dur__record_value(dur__json *json, const dur__field *field, bool required, void *base);
/* Fails with the first required field that was not seen; kind opens the message. */
bool dur__record_complete(dur__json *json, const dur__record *record, const dur__shape *shape, uint64_t seen,
                          const char *kind);
/* A whole object. */
bool dur__record_read(dur__json *json, const dur__record *record, const dur__shape *shape, const char *kind,
                      void *base);

/* Fails when the field stands twice; notes it otherwise. */
bool dur__record_once(dur__json *json, const dur__record *record, unsigned field, uint64_t *seen);

/* ---- failure.c: the nested ones ---- */

void dur__failure_write(dur__buf *out, const dur_failure *failure);
int dur__failure_check(const dur_failure *failure, const char *what, dur_error *err);
bool dur__failure_read(dur__json *json, dur_failure *out);
void dur__failure_kind_write(dur__buf *out, const dur_failure *failure, dur__field_type type);
bool dur__failure_kind_read(dur__json *json, dur_failure *out, dur__field_type type);

/* Text is UTF-8, or DUR_EINVAL: what, field, offset. */
int dur__text_check(const char *text, const char *what, const char *field, size_t field_size, dur_error *err);

#endif
