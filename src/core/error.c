/*
 * error.c: filling the caller's error object, and the names of the codes.
 */
#include "base/buf.h"
#include "base/memory.h"

#include <durite/error.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void text_set(char *out, size_t room, const char *text) {
    size_t size = dur__utf8_cut(text, room - 1);
    memcpy(out, text, size);
    out[size] = '\0';
}

/* People get one line of UTF-8: a multi-line text of a database becomes one, without blanks at the end; and what a name
   or a URL brings along does not steer their terminal. */
static void text_one_line(char *text) {
    size_t end = 0, at = 0, size = strlen(text);
    for (size_t bad; !dur__utf8_valid(text + at, size - at, &bad); text[at - 1] = '?')
        at += bad + 1;
    for (size_t i = 0; text[i] != '\0'; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) text[i] = ' ';
        if (text[i] != ' ') end = i + 1;
    }
    text[end] = '\0';
}

/* What is too long loses its middle: the beginning says what, the end says why. */
static void text_shorten(char *out, size_t room, const char *text) {
    static const char gap[] = " … ";
    size_t size = strlen(text);
    if (size < room) {
        memcpy(out, text, size + 1);
        return;
    }
    size_t head = dur__utf8_cut(text, room / 2), tail = size - (room - 1 - head - (sizeof(gap) - 1));
    while ((text[tail] & 0xc0) == 0x80)
        tail++;
    memcpy(out, text, head);
    memcpy(out + head, gap, sizeof(gap) - 1);
    memcpy(out + head + sizeof(gap) - 1, text + tail, size - tail + 1);
}

int dur_error_set(dur_error *err, dur_code code, bool retryable, const char *op, const char *format, ...) {
    if (err == NULL) return (int)code;
    int errno_kept = errno;
    char message[4 * sizeof(err->message)]; /* the arguments may point into err */
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int size = vsnprintf(message, sizeof(message), format, args);
    if (size < 0) message[0] = '\0';
    char *whole = NULL; /* its end says why; without memory for it the beginning has to do */
    if (size >= (int)sizeof(message)) {
        whole = dur__get((size_t)size + 1);
        if (whole != NULL) vsnprintf(whole, (size_t)size + 1, format, again);
        message[dur__utf8_cut(message, sizeof(message) - 2)] = '\0';
    }
    va_end(again);
    va_end(args);
    char *text = whole != NULL ? whole : message;
    text_one_line(text);
    char op_kept[sizeof(err->op)];
    text_set(op_kept, sizeof(op_kept), op != NULL ? op : "");

    err->code = code;
    err->retryable = retryable;
    text_set(err->op, sizeof(err->op), op_kept);
    text_shorten(err->message, sizeof(err->message), text);
    dur__free(whole);
    errno = errno_kept;
    return (int)code;
}

void dur_error_clear(dur_error *err) {
    if (err == NULL) return;
    err->code = DUR_OK;
    err->retryable = false;
    err->op[0] = '\0';
    err->message[0] = '\0';
}

const char *dur_code_name(int code) {
    switch (code) {
#define NAME_CASE(name, value, text)                                                                                   \
    case value:                                                                                                        \
        return "DUR_" #name;
        DUR_CODES(NAME_CASE)
#undef NAME_CASE
    default:
        return "DUR_E?";
    }
}

const char *dur_code_text(int code) {
    switch (code) {
#define TEXT_CASE(name, value, text)                                                                                   \
    case value:                                                                                                        \
        return text;
        DUR_CODES(TEXT_CASE)
#undef TEXT_CASE
    default:
        return "unknown code";
    }
}
