/*
 * json_read.c: the pull parser.
 *
 * The copy ends with NULs, and no place where a value goes on accepts a NUL, so that single bytes are looked at without
 * comparing with the end.  The closing quote of a string that was read becomes its NUL.
 */
#include "base/bytes.h"
#include "core/json.h"
#include "core/limits.h"

#include <stdio.h>

void dur__json_begin(dur__json *json, dur_arena *arena, dur_text text, const char *what, dur_error *err) {
    char *copy = dur_arena_alloc(arena, text.size + 8);
    if (text.size > 0) memcpy(copy, text.data, text.size);
    memset(copy + text.size, 0, 8);
    *json = (dur__json){ copy, copy, copy + text.size, arena, err, what, 0, DUR_OK, false };
}

bool dur__json_fail(dur__json *json, int code, const char *at, const char *format, ...) {
    char why[320];
    if (json->code != DUR_OK) return false;
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    if (at == NULL) at = json->at;
    size_t offset = (size_t)(at - json->start);
    if (json->number > 0) {
        dur_error_set(json->err, (dur_code)code, false, "codec.read", "%s: event %zu: %s at byte %zu", json->what,
                      json->number, why, offset);
    } else {
        dur_error_set(json->err, (dur_code)code, false, "codec.read", "%s: %s at byte %zu", json->what, why, offset);
    }
    json->code = code;
    return false;
}

/* The byte at a place in words, for messages. */
static const char *shown(const dur__json *json, const char *at, char out[16]) {
    unsigned char c = (unsigned char)*at;
    if (at >= json->end) return "the end";
    if (c > 0x20 && c < 0x7f) {
        snprintf(out, 16, "'%c'", c);
    } else {
        snprintf(out, 16, "byte 0x%02x", c);
    }
    return out;
}

static bool unexpected(dur__json *json, const char *expected) {
    char byte[16];
    return dur__json_fail(json, DUR_ECORRUPT, NULL, "expected %s, found %s", expected, shown(json, json->at, byte));
}

static inline void blanks(dur__json *json) {
    while ((*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t') && !json->compact)
        json->at++;
}

char dur__json_peek(dur__json *json) {
    blanks(json);
    return *json->at;
}

bool dur__json_open(dur__json *json, char bracket, const char *expected) {
    if (json->code != DUR_OK) return false;
    if (dur__json_peek(json) != bracket) return unexpected(json, expected);
    json->at++;
    return true;
}

bool dur__json_more(dur__json *json, char close, bool *first) {
    if (json->code != DUR_OK) return false;
    char next = dur__json_peek(json);
    if (next == close) {
        json->at++;
        return false;
    }
    if (*first) {
        *first = false;
        return true;
    }
    if (next != ',') return unexpected(json, close == '}' ? "',' or '}'" : "',' or ']'");
    json->at++;
    return true;
}

bool dur__json_colon(dur__json *json) {
    if (json->code != DUR_OK) return false;
    if (dur__json_peek(json) != ':') return unexpected(json, "':'");
    json->at++;
    return true;
}

bool dur__json_member(dur__json *json, bool *first, dur_text *key) {
    return dur__json_more(json, '}', first) && dur__json_string(json, &key->data, &key->size) && dur__json_colon(json);
}

/* ---- strings ---- */

/* The first byte that is not plain: a quote, a backslash, a control character, or not ASCII.  A flagged
   byte may borrow from the one above it, so only the lowest flag of a word is trusted. */
static inline char *plain_end(char *at) {
    for (;;) {
        uint64_t word = dur__word_at(at);
        uint64_t quote = word ^ DUR__EACH('"');
        uint64_t slash = word ^ DUR__EACH('\\');
        uint64_t flags = (word - DUR__EACH(0x20)) | (quote - DUR__EACH(1)) | (slash - DUR__EACH(1)) | word;
        flags &= DUR__HIGH;
        if (flags != 0) return at + (__builtin_ctzll(flags) >> 3);
        at += 8;
    }
}

/* Length of the well-formed UTF-8 sequence at `at`, whose first byte is not ASCII; 0: malformed. */
static size_t utf8_length(const unsigned char *at) {
    unsigned char c = at[0];
    if (c < 0xc2 || c > 0xf4) return 0;
    if ((at[1] & 0xc0) != 0x80) return 0;
    if (c < 0xe0) return 2;
    if ((at[2] & 0xc0) != 0x80) return 0;
    if (c < 0xf0) {
        if (c == 0xe0 && at[1] < 0xa0) return 0; /* overlong */
        if (c == 0xed && at[1] > 0x9f) return 0; /* surrogate */
        return 3;
    }
    if ((at[3] & 0xc0) != 0x80) return 0;
    if (c == 0xf0 && at[1] < 0x90) return 0; /* overlong */
    if (c == 0xf4 && at[1] > 0x8f) return 0; /* over U+10FFFF */
    return 4;
}

static bool hex4(const char *at, uint32_t *out) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        uint32_t digit;
        if (c >= '0' && c <= '9') {
            digit = (uint32_t)(c - '0');
        } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
            digit = (uint32_t)((c | 0x20) - 'a' + 10);
        } else {
            return false; /* the closing NULs too: never read past the end */
        }
        value = value << 4 | digit;
    }
    *out = value;
    return true;
}

static size_t utf8_encode(char out[4], uint32_t code) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/* \uXXXX, or two of them; at stands on the u.  Moves at behind it. */
static bool unicode_escape(dur__json *json, char **at, uint32_t *code) {
    char *u = *at;
    uint32_t low = 0;
    if (!hex4(u + 1, code)) return dur__json_fail(json, DUR_ECORRUPT, u - 1, "\\u needs four hexadecimal digits");
    *at = u + 5;
    if (*code == 0) return dur__json_fail(json, DUR_ECORRUPT, u - 1, "U+0000 in a text");
    if (*code < 0xd800 || *code > 0xdfff) return true;
    if (*code < 0xdc00 && u[5] == '\\' && u[6] == 'u' && hex4(u + 7, &low) && low >= 0xdc00 && low <= 0xdfff) {
        *code = 0x10000 + ((*code - 0xd800) << 10) + (low - 0xdc00);
        *at = u + 11;
        return true;
    }
    return dur__json_fail(json, DUR_ECORRUPT, u - 1, "lone surrogate \\u%.4s", u + 1);
}

/* One escape; at stands on the backslash.  Writes the character (at most 4 bytes, never more than were read). */
static bool escape(dur__json *json, char **at, char out[4], size_t *size) {
    static const char brief[128] = {
        ['"'] = '"', ['\\'] = '\\', ['/'] = '/', ['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r', ['t'] = '\t'
    };
    char *c = *at + 1;
    uint32_t code = 0;
    if ((unsigned char)*c < 128 && brief[(unsigned char)*c] != 0) {
        out[0] = brief[(unsigned char)*c];
        *size = 1;
        *at = c + 1;
        return true;
    }
    if (*c != 'u') return dur__json_fail(json, DUR_ECORRUPT, *at, "unknown escape");
    *at = c;
    if (!unicode_escape(json, at, &code)) return false;
    *size = utf8_encode(out, code);
    return true;
}

/* The rest of a string from the first byte that is not plain.  With write the text is closed up in place from `to` on;
   without it nothing is changed.  at ends behind the closing quote. */
static bool string_rest(dur__json *json, char *at, bool write, size_t *size, const char *begin) {
    char *to = at;
    while (*at != '"') {
        size_t length = 1;
        if (*at == '\\') {
            char character[4];
            if (!escape(json, &at, character, &length)) return false;
            if (write) memcpy(to, character, length);
            to += length;
            continue;
        }
        if ((unsigned char)*at < 0x20) {
            if (at >= json->end) return dur__json_fail(json, DUR_ECORRUPT, at, "the text ends inside a string");
            return dur__json_fail(json, DUR_ECORRUPT, at, "control character 0x%02x in a string", (unsigned)*at);
        }
        if ((unsigned char)*at >= 0x80) {
            length = utf8_length((unsigned char *)at);
            if (length == 0)
                return dur__json_fail(json, DUR_ECORRUPT, at, "byte 0x%02x is not UTF-8", (unsigned)(unsigned char)*at);
        } else {
            length = (size_t)(plain_end(at) - at);
        }
        if (write && to != at) memmove(to, at, length);
        to += length;
        at += length;
    }
    if (write) *to = '\0';
    *size = (size_t)(to - begin);
    json->at = at + 1;
    return true;
}

bool dur__json_string(dur__json *json, const char **out, size_t *size) {
    size_t length;
    if (json->code != DUR_OK) return false;
    if (dur__json_peek(json) != '"') return unexpected(json, "a string");
    char *begin = json->at + 1;
    char *stop = plain_end(begin);
    if (*stop == '"') {
        *stop = '\0';
        length = (size_t)(stop - begin);
        json->at = stop + 1;
    } else if (!string_rest(json, stop, true, &length, begin)) {
        return false;
    }
    *out = begin;
    if (size != NULL) *size = length;
    return true;
}

static bool skip_string(dur__json *json) {
    size_t length;
    if (dur__json_peek(json) != '"') return unexpected(json, "a string");
    return string_rest(json, plain_end(json->at + 1), false, &length, json->at + 1);
}

/* ---- numbers and words ---- */

static inline bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

bool dur__json_u64(dur__json *json, uint64_t *out) {
    if (json->code != DUR_OK) return false;
    if (!is_digit(dur__json_peek(json))) return unexpected(json, "a whole number from 0 on");
    char *begin = json->at;
    char *at = begin;
    uint64_t value = 0;
    for (; is_digit(*at); at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (at - begin >= 19 && (value > UINT64_MAX / 10 || value * 10 > UINT64_MAX - digit))
            return dur__json_fail(json, DUR_ECORRUPT, begin, "a number over 2^64-1");
        value = value * 10 + digit;
    }
    if (*begin == '0' && at - begin > 1)
        return dur__json_fail(json, DUR_ECORRUPT, begin, "a number with a leading zero");
    if (*at == '.' || *at == 'e' || *at == 'E')
        return dur__json_fail(json, DUR_ECORRUPT, begin, "a number that is not whole");
    json->at = at;
    *out = value;
    return true;
}

static bool word(dur__json *json, const char *text, size_t size) {
    if (strncmp(json->at, text, size) != 0) return false; /* stops at the NULs */
    json->at += size;
    return true;
}

bool dur__json_bool(dur__json *json, bool *out) {
    if (json->code != DUR_OK) return false;
    char next = dur__json_peek(json);
    if (next == 't' && word(json, "true", 4)) {
        *out = true;
        return true;
    }
    if (next == 'f' && word(json, "false", 5)) {
        *out = false;
        return true;
    }
    return unexpected(json, "true or false");
}

bool dur__json_null(dur__json *json) {
    return json->code == DUR_OK && dur__json_peek(json) == 'n' && word(json, "null", 4);
}

static bool skip_number(dur__json *json) {
    char *at = json->at;
    if (*at == '-') at++;
    if (!is_digit(*at)) goto bad;
    if (*at == '0') {
        at++;
    } else {
        while (is_digit(*at))
            at++;
    }
    if (*at == '.') {
        at++;
        if (!is_digit(*at)) goto bad;
        while (is_digit(*at))
            at++;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        if (*at == '+' || *at == '-') at++;
        if (!is_digit(*at)) goto bad;
        while (is_digit(*at))
            at++;
    }
    json->at = at;
    return true;
bad:
    json->at = at;
    return unexpected(json, "a digit");
}

/* ---- whole values ---- */

static bool skip_scalar(dur__json *json, char next) {
    if (next == '"') return skip_string(json);
    if (next == '-' || is_digit(next)) return skip_number(json);
    if (word(json, "true", 4) || word(json, "false", 5) || word(json, "null", 4)) return true;
    return unexpected(json, "a value");
}

/* One bit per open bracket says whether it is an object's. */
bool dur__json_skip(dur__json *json, dur_text *raw) {
    uint64_t objects = 0;
    unsigned depth = 0;
    if (json->code != DUR_OK) return false;
    dur__json_peek(json);
    char *begin = json->at;
    for (;;) {
        char next = dur__json_peek(json);
        bool first = false;
        if (next == '{' || next == '[') {
            if (depth == DUR__JSON_DEPTH_MAX)
                return dur__json_fail(json, DUR_ECORRUPT, NULL, "nested deeper than %d", DUR__JSON_DEPTH_MAX);
            depth++;
            objects = objects << 1 | (next == '{');
            json->at++;
            first = true;
        } else if (!skip_scalar(json, next)) {
            return false;
        }
        while (depth > 0 && !dur__json_more(json, (objects & 1) != 0 ? '}' : ']', &first)) {
            if (json->code != DUR_OK) return false;
            depth--;
            objects >>= 1;
            first = false;
        }
        if (depth == 0) break;
        if ((objects & 1) != 0 && !(skip_string(json) && dur__json_colon(json))) return false;
    }
    if (raw != NULL) *raw = (dur_text){ begin, (size_t)(json->at - begin) };
    return true;
}

int dur__json_end(dur__json *json, dur_text text) {
    if (json->code == DUR_EUNSUPPORTED) {
        dur__json whole;
        dur_error worse = DUR_ERROR_INIT;
        dur__json_begin(&whole, json->arena, text, json->what, &worse);
        dur__json_skip(&whole, NULL);
        dur__json_peek(&whole);
        if (whole.code == DUR_OK && whole.at != whole.end) unexpected(&whole, "nothing behind the value");
        if (whole.code != DUR_OK && json->err != NULL) *json->err = worse;
        return whole.code != DUR_OK ? whole.code : DUR_EUNSUPPORTED;
    }
    if (json->code != DUR_OK) return json->code;
    blanks(json);
    if (json->at != json->end) unexpected(json, "nothing behind the value");
    return json->code;
}
