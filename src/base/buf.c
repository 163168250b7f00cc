/*
 * buf.c: the growing buffer, and decimal numbers.
 */
#include "base/buf.h"
#include "base/assert.h"

#include <stdio.h>

void dur__buf_free(dur__buf *buf) {
    if (buf->arena == NULL) dur__free(buf->data);
    *buf = (dur__buf){ .arena = buf->arena };
}

void dur__buf_clear(dur__buf *buf) {
    buf->size = 0;
    if (buf->data != NULL) buf->data[0] = '\0';
}

void dur__buf_grow(dur__buf *buf, size_t more) {
    DUR_ASSERT(more < SIZE_MAX / 2 && buf->size < SIZE_MAX / 2 - more);
    size_t need = buf->size + more + 1;
    if (need <= buf->room) return;
    size_t room = buf->room > 0 ? buf->room * 2 : 64;
    if (room < need) room = need;
    if (buf->arena != NULL) {
        char *moved = dur_arena_alloc(buf->arena, room);
        if (buf->size > 0) memcpy(moved, buf->data, buf->size);
        buf->data = moved;
    } else {
        buf->data = dur__xrealloc(buf->data, room);
    }
    buf->room = room;
    buf->data[buf->size] = '\0';
}

void dur__buf_add(dur__buf *buf, const void *data, size_t size) {
    if (size == 0) return; /* data may be NULL */
    dur__buf_grow(buf, size);
    /* cppcheck-suppress uninitvar ; data is a parameter */
    memcpy(buf->data + buf->size, data, size);
    buf->size += size;
    buf->data[buf->size] = '\0';
}

void dur__buf_text(dur__buf *buf, const char *text) {
    dur__buf_add(buf, text, strlen(text));
}

void dur__buf_format(dur__buf *buf, const char *format, ...) {
    va_list args;
    va_list again;
    va_start(args, format);
    va_copy(again, args);
    dur__buf_grow(buf, 64);
    size_t room = buf->room - buf->size;
    int size = vsnprintf(buf->data + buf->size, room, format, args);
    DUR_ASSERT(size >= 0); /* our own formats */
    if ((size_t)size >= room) {
        dur__buf_grow(buf, (size_t)size);
        vsnprintf(buf->data + buf->size, (size_t)size + 1, format, again);
    }
    buf->size += (size_t)size;
    va_end(again);
    va_end(args);
}

void dur__buf_u64(dur__buf *buf, uint64_t value) {
    char digits[21];
    dur__buf_add(buf, digits, dur__u64_text(digits, value));
}

char *dur__buf_take(dur__buf *buf) {
    DUR_ASSERT(buf->arena == NULL);
    char *text = buf->data != NULL ? buf->data : dur__xstrdup("");
    *buf = (dur__buf){ 0 };
    return text;
}

size_t dur__u64_text(char out[21], uint64_t value) {
    static const char pairs[] = "00010203040506070809101112131415161718192021222324252627282930313233343536373839"
                                "40414243444546474849505152535455565758596061626364656667686970717273747576777879"
                                "8081828384858687888990919293949596979899";
    char back[20];
    size_t at = sizeof(back);
    while (value >= 100) { /* two digits per division: numbers are a third of an event's cost otherwise */
        at -= 2;
        memcpy(back + at, pairs + value % 100 * 2, 2);
        value /= 100;
    }
    if (value >= 10) {
        at -= 2;
        memcpy(back + at, pairs + value * 2, 2);
    } else {
        back[--at] = (char)('0' + value);
    }
    memcpy(out, back + at, sizeof(back) - at);
    out[sizeof(back) - at] = '\0';
    return sizeof(back) - at;
}

bool dur__u64_parse(const char *text, size_t size, uint64_t *out) {
    if (size == 0) return false;
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}
