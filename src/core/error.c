/*
 * error.c: filling the caller's error object, and the names of the codes.
 */
#include "base/buf.h"

#include <durite/error.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static void text_set(char *out, size_t room, const char *text) {
    size_t size = dur__utf8_cut(text, room - 1);
    memcpy(out, text, size);
    out[size] = '\0';
}

/* People get one line: a multi-line text of a database becomes one, without blanks at the end. */
static void text_one_line(char *text) {
    size_t end = 0;
    for (size_t i = 0; text[i] != '\0'; i++) {
        if (text[i] == '\n' || text[i] == '\r') text[i] = ' ';
        if (text[i] != ' ') end = i + 1;
    }
    text[end] = '\0';
}

int dur_error_set(dur_error *err, dur_code code, bool retryable, const char *op, const char *format, ...) {
    if (err == NULL) return (int)code;
    int errno_kept = errno;
    char message[sizeof(err->message)]; /* the arguments may point into err */
    va_list args;
    va_start(args, format);
    if (vsnprintf(message, sizeof(message), format, args) < 0) message[0] = '\0';
    va_end(args);
    text_one_line(message);
    char op_kept[sizeof(err->op)];
    text_set(op_kept, sizeof(op_kept), op != NULL ? op : "");

    err->code = code;
    err->retryable = retryable;
    text_set(err->op, sizeof(err->op), op_kept);
    text_set(err->message, sizeof(err->message), message);
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
