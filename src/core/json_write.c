/*
 * json_write.c: texts as JSON strings.
 *
 * Eight bytes at a time are copied and looked at; only quotes, backslashes and control characters need more.
 */
#include "base/bytes.h"
#include "core/json.h"

/* Room for the escape that comes next and all that follows it. */
static char *escape_write(dur__buf *out, char *to, unsigned char c, size_t left) {
    static const char hex[] = "0123456789abcdef";
    static const char brief[32] = { ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't' };
    out->size = (size_t)(to - out->data);
    dur__buf_grow(out, left + 16);
    to = out->data + out->size;
    *to++ = '\\';
    if (c >= 0x20) {
        *to++ = (char)c;
    } else if (brief[c] != 0) {
        *to++ = brief[c];
    } else {
        memcpy(to, "u00", 3);
        to[3] = hex[c >> 4];
        to[4] = hex[c & 15];
        to += 5;
    }
    return to;
}

static inline bool needs_escape(unsigned char c) {
    return c < 0x20 || c == '"' || c == '\\';
}

/* High bits of the bytes that need an escape; the lowest flag is exact, those above it may be borrowed. */
static inline uint64_t escape_flags(const char *at) {
    uint64_t word = dur__word_at(at);
    uint64_t quote = word ^ DUR__EACH('"');
    uint64_t slash = word ^ DUR__EACH('\\');
    uint64_t flags = (word - DUR__EACH(0x20)) & ~word;
    flags |= ((quote - DUR__EACH(1)) & ~quote) | ((slash - DUR__EACH(1)) & ~slash);
    return flags & DUR__HIGH;
}

void dur__json_write_text(dur__buf *out, const char *text) {
    size_t size = strlen(text);
    size_t i = 0;
    if (out->room - out->size < size + 16) dur__buf_grow(out, size + 16);
    char *to = out->data + out->size;
    *to++ = '"';
    while (i + 8 <= size) {
        uint64_t flags = escape_flags(text + i);
        memcpy(to, text + i, 8);
        if (flags == 0) {
            i += 8;
            to += 8;
            continue;
        }
        size_t plain = (size_t)__builtin_ctzll(flags) >> 3;
        i += plain;
        to = escape_write(out, to + plain, (unsigned char)text[i], size - i);
        i++;
    }
    if (i < size && size >= 8 && escape_flags(text + size - 8) == 0) {
        size_t rest = size - i; /* the last word again: no escape in it, so its head stands there already */
        memcpy(to + rest - 8, text + size - 8, 8);
        to += rest;
        i = size;
    }
    for (; i < size; i++) {
        unsigned char c = (unsigned char)text[i];
        if (needs_escape(c)) {
            to = escape_write(out, to, c, size - i);
        } else {
            *to++ = (char)c;
        }
    }
    *to++ = '"';
    *to = '\0';
    out->size = (size_t)(to - out->data);
}

void dur__json_write_key(dur__buf *out, const char *key) {
    size_t size = strlen(key);
    dur__buf_grow(out, size + 3);
    char *to = out->data + out->size;
    *to++ = '"';
    memcpy(to, key, size);
    to += size;
    memcpy(to, "\":", 3);
    out->size += size + 3;
}
