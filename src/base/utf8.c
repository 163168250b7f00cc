/*
 * utf8.c: is it text, and where may it be cut.
 *
 * Nearly all text is ASCII, so eight bytes are looked at in one go.
 */
#include "base/buf.h"

/* Eight bytes, each from 0x01 to 0x7f? */
static bool ascii_8(const char *data) {
    uint64_t word;
    memcpy(&word, data, sizeof(word));
    uint64_t high = 0x8080808080808080u;
    return (word & high) == 0 && ((word - 0x0101010101010101u) & high) == 0;
}

/* Length of the well-formed character at data, of at most `left` bytes; 0: none. */
static size_t utf8_char(const unsigned char *data, size_t left) {
    unsigned char first = data[0];
    if (first < 0x80) return first != 0;
    if (first < 0xc2 || first > 0xf4) return 0; /* a continuation, an overlong form, beyond U+10FFFF */
    size_t size = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (left < size) return 0;
    unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;  /* overlong below */
    unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf; /* surrogates, too large above */
    if (data[1] < low || data[1] > high) return 0;
    for (size_t i = 2; i < size; i++)
        if ((data[i] & 0xc0) != 0x80) return 0;
    return size;
}

bool dur__utf8_valid(const char *data, size_t size, size_t *bad) {
    size_t at = 0;
    while (at < size) {
        if (size - at >= 8 && ascii_8(data + at)) {
            at += 8;
            continue;
        }
        size_t step = utf8_char((const unsigned char *)data + at, size - at);
        if (step == 0) {
            if (bad != NULL) *bad = at;
            return false;
        }
        at += step;
    }
    return true;
}

size_t dur__utf8_cut(const char *text, size_t max) {
    size_t size = strnlen(text, max);
    /* Look back for the first byte of the last character, and drop that character when it is not whole.  This reads
       nothing behind `size`, so a text that was cut by others before is mended too. */
    for (size_t back = 1; back <= 4 && back <= size; back++) {
        unsigned char byte = (unsigned char)text[size - back];
        if ((byte & 0xc0) == 0x80) continue;
        size_t whole = byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
        return back < whole ? size - back : size;
    }
    return size;
}
