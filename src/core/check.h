/*
 * check.h: argument checks that the client and handlers' calls share.
 *
 * Messages say what is wrong, why, and where: "instance is not UTF-8 at byte 7", "name has 600 bytes, 512 are allowed".
 */
#ifndef DURITE_CORE_CHECK_H
#define DURITE_CORE_CHECK_H

#include <durite/error.h>

typedef enum dur__need {
    DUR__OPTIONAL, /* NULL is fine */
    DUR__REQUIRED, /* not NULL */
    DUR__NOT_EMPTY /* not NULL, not "" */
} dur__need;

/* DUR_EINVAL (missing, empty, not UTF-8), DUR_ELIMIT (over bytes_max). */
int dur__check_text(dur_error *err, const char *op, const char *what, const char *text, size_t bytes_max,
                    dur__need need);
/* A version that a registry could hold: MAJOR.MINOR.PATCH.  NULL is fine. */
int dur__check_version(dur_error *err, const char *op, const char *version);
/* Where the first control character is; the text's size: there is none. */
size_t dur__control_at(const char *text);
/* Names and ids: also no control characters, which would break logs and terminals. */
int dur__check_name(dur_error *err, const char *op, const char *what, const char *text, size_t bytes_max,
                    dur__need need);

#endif
