/*
 * fuzz_bytes.h: the input of a fuzz target, read as a sequence of choices; behind its end every choice is 0.
 */
#ifndef TESTS_FUZZ_BYTES_H
#define TESTS_FUZZ_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct bytes {
    const uint8_t *at, *end;
} bytes;

static inline uint8_t byte(bytes *in) {
    return in->at < in->end ? *in->at++ : 0;
}
static inline uint32_t choice(bytes *in, size_t below) {
    return below > 0 ? (uint32_t)(byte(in) % below) : 0;
}
static inline size_t bytes_left(const bytes *in) {
    return (size_t)(in->end - in->at);
}
static inline void not_held(const char *what, const char *file, int line, const char *why) {
    fprintf(stderr, "%s:%d: %s does not hold: %s\n", file, line, what, why);
    abort();
}
/* A finding otherwise, with NDEBUG, too; `why` is a text that helps. */
#define MUST(holds, why) ((holds) ? (void)0 : not_held(#holds, __FILE__, __LINE__, (why)))

#endif
