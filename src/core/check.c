/*
 * check.c: texts that come from outside.
 */
#include "core/check.h"

#include "base/buf.h"
#include "core/limits.h"
#include "core/semver.h"

int dur__check_text(dur_error *err, const char *op, const char *what, const char *text, size_t bytes_max,
                    dur__need need) {
    size_t bad = 0;
    if (text == NULL) {
        if (need == DUR__OPTIONAL) return DUR_OK;
        return dur_error_set(err, DUR_EINVAL, false, op, "%s is required, got NULL", what);
    }
    if (*text == '\0') {
        if (need != DUR__NOT_EMPTY) return DUR_OK;
        return dur_error_set(err, DUR_EINVAL, false, op, "%s must not be empty", what);
    }
    size_t size = strlen(text);
    if (size > bytes_max)
        return dur_error_set(err, DUR_ELIMIT, false, op, "%s has %zu bytes, %zu are allowed", what, size, bytes_max);
    if (!dur__utf8_valid(text, size, &bad))
        return dur_error_set(err, DUR_EINVAL, false, op, "%s is not UTF-8 at byte %zu", what, bad);
    return DUR_OK;
}

size_t dur__control_at(const char *text) {
    const char *at = text;
    while ((unsigned char)*at >= 0x20 && *at != 0x7f)
        at++;
    return (size_t)(at - text);
}

int dur__check_name(dur_error *err, const char *op, const char *what, const char *text, size_t bytes_max,
                    dur__need need) {
    int code = dur__check_text(err, op, what, text, bytes_max, need);
    if (code != DUR_OK || text == NULL) return code;
    size_t bad = dur__control_at(text);
    if (text[bad] == '\0') return DUR_OK;
    return dur_error_set(err, DUR_EINVAL, false, op, "%s has control character 0x%02x at byte %zu", what,
                         (unsigned)(unsigned char)text[bad], bad);
}

int dur__check_version(dur_error *err, const char *op, const char *version) {
    int code = dur__check_text(err, op, "version", version, DUR__VERSION_BYTES_MAX, DUR__OPTIONAL);
    if (code != DUR_OK || version == NULL) return code;
    if (dur__semver_parse(version, NULL)) return DUR_OK;
    return dur_error_set(err, DUR_EINVAL, false, op, "version \"%s\" is not MAJOR.MINOR.PATCH", version);
}
