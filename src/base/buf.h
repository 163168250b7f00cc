/*
 * buf.h: a growing buffer of bytes, and the few string helpers that we need.
 *
 * The content is always followed by a NUL that does not count.  A zeroed dur__buf is empty and valid.  Growing is a
 * covered allocation (base/memory.h).
 */
#ifndef DURITE_BASE_BUF_H
#define DURITE_BASE_BUF_H

#include "base/memory.h"

#include <durite/export.h>
#include <durite/sys/arena.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct dur__buf {
    char *data;
    size_t size;
    size_t room;      /* bytes allocated, the NUL's included */
    dur_arena *arena; /* NULL: the content is ours to free; otherwise it is this arena's */
} dur__buf;

void dur__buf_free(dur__buf *buf);
void dur__buf_clear(dur__buf *buf);             /* size 0, keeps the memory */
void dur__buf_grow(dur__buf *buf, size_t more); /* room for `more` bytes and the NUL */
void dur__buf_add(dur__buf *buf, const void *data, size_t size);
void dur__buf_text(dur__buf *buf, const char *text);
void dur__buf_format(dur__buf *buf, const char *format, ...) DUR_PRINTF(2, 3);
void dur__buf_u64(dur__buf *buf, uint64_t value);
char *dur__buf_take(dur__buf *buf); /* the text, yours to dur__free; the buffer is empty again */

static inline void dur__buf_char(dur__buf *buf, char c) {
    if (buf->size + 2 > buf->room) dur__buf_grow(buf, 1);
    buf->data[buf->size++] = c;
    buf->data[buf->size] = '\0';
}
static inline const char *dur__buf_str(const dur__buf *buf) {
    return buf->data != NULL ? buf->data : "";
}

/* Decimal digits of value, ended by NUL; how many. */
size_t dur__u64_text(char out[21], uint64_t value);
/* A whole text of digits, without sign and blanks, at most 2^64-1. */
bool dur__u64_parse(const char *text, size_t size, uint64_t *out);

/* True for well-formed UTF-8 without U+0000, surrogates and overlong forms; else *bad is the offset. */
bool dur__utf8_valid(const char *data, size_t size, size_t *bad);
/* The largest length <= max at which the text can be cut between characters. */
size_t dur__utf8_cut(const char *text, size_t max);

static inline bool dur__str_eq(const char *a, const char *b) { /* NULL equals NULL only */
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

#endif
