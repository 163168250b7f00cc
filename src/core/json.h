/*
 * json.h: a pull parser and a writer for the JSON that we store.
 *
 * The reader copies the text once into an arena and decodes strings in place, so that a string costs a scan and no
 * allocation.  It is strict (RFC 8259), never recurses, limits nesting, keeps unsigned numbers exact to 2^64-1, and
 * refuses what our texts cannot hold: U+0000, lone surrogates, bytes that are not UTF-8.
 * Every reading function returns false after the first error, which stays in code and err with its byte offset.
 */
#ifndef DURITE_CORE_JSON_H
#define DURITE_CORE_JSON_H

#include "base/buf.h"
#include <durite/error.h>
#include <durite/sys/arena.h>

/* ---- reading ---- */

typedef struct dur__json {
    char *at;    /* next byte */
    char *start; /* our copy */
    char *end;   /* behind the last byte; followed by 8 NULs, so that words can be read */
    dur_arena *arena;
    dur_error *err;
    const char *what; /* "event": opens every message */
    size_t number;    /* of the event in a history, from 1; 0: no history */
    int code;         /* first error; DUR_OK so far */
    bool compact;     /* blanks between values are errors */
} dur__json;

void dur__json_begin(dur__json *json, dur_arena *arena, dur_text text, const char *what, dur_error *err);
/* Nothing but blanks may follow.  Returns the code of the whole read.  DUR_EUNSUPPORTED stays only if the whole text
   (as it was given to begin) is well-formed. */
int dur__json_end(dur__json *json, dur_text text);

/* Note an error at a place (NULL: here), unless there is one already.  Always false. */
bool dur__json_fail(dur__json *json, int code, const char *at, const char *format, ...) DUR_PRINTF(4, 5);

/* First byte of the next value, blanks skipped; NUL at the end. */
char dur__json_peek(dur__json *json);
/* '{' or '['. */
bool dur__json_open(dur__json *json, char bracket, const char *expected);
/* Is there one more member or element?  Takes the comma or the closing bracket; *first is true before the first. */
bool dur__json_more(dur__json *json, char close, bool *first);
/* more() of an object, its key and the colon. */
bool dur__json_member(dur__json *json, bool *first, dur_text *key);
bool dur__json_colon(dur__json *json);
/* A string, ended by NUL, in the arena.  size may be NULL. */
bool dur__json_string(dur__json *json, const char **out, size_t *size);
bool dur__json_u64(dur__json *json, uint64_t *out);
bool dur__json_bool(dur__json *json, bool *out);
/* Takes `null` if it is next; otherwise false and nothing happened. */
bool dur__json_null(dur__json *json);
/* Pass over any value, checking it.  Changes nothing in the text.  raw may be NULL. */
bool dur__json_skip(dur__json *json, dur_text *raw);

/* ---- writing: append to a buffer ---- */

void dur__json_write_text(dur__buf *out, const char *text); /* with quotes; bytes from 0x80 on as they are */
void dur__json_write_key(dur__buf *out, const char *key);   /* "key": where key needs no escapes */

/* A word of 8 bytes: all of one byte, and the high bits. */
#define DUR__EACH(byte) (UINT64_C(0x0101010101010101) * (byte))
#define DUR__HIGH DUR__EACH(0x80)

#endif
