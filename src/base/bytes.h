/*
 * bytes.h: the order of bytes in a word.
 */
#ifndef DURITE_BASE_BYTES_H
#define DURITE_BASE_BYTES_H

#include <stdint.h>
#include <string.h>

/* Eight bytes of a text as a number whose lowest byte is the first one, on every machine. */
static inline uint64_t dur__word_at(const char *text) {
    uint64_t word;
    memcpy(&word, text, sizeof(word));
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

#endif
