/*
 * semver.c: parsing and ordering of versions.
 */
#include "core/semver.h"

#include <string.h>

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}
static bool is_identifier(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
}

/* A number without leading zeros (strict), below 2^32; NULL: none. */
static const char *number(const char *at, bool strict, uint32_t *out) {
    uint64_t value = 0;
    const char *begin = at;
    for (; is_digit(*at); at++) {
        value = value * 10 + (uint64_t)(*at - '0');
        if (value > UINT32_MAX) return NULL;
    }
    if (at == begin || (strict && *begin == '0' && at - begin > 1)) return NULL;
    *out = (uint32_t)value;
    return at;
}

/* Identifiers between dots, up to '+' or the end; numeric ones of a pre-release have no leading zero. */
static const char *identifiers(const char *at, bool pre_release) {
    for (;;) {
        const char *begin = at;
        bool numeric = true;
        for (; is_identifier(*at); at++) {
            if (!is_digit(*at)) numeric = false;
        }
        if (at == begin) return NULL;
        if (pre_release && numeric && *begin == '0' && at - begin > 1) return NULL;
        if (*at != '.') return at;
        at++;
    }
}

bool dur__semver_parse(const char *text, dur_semver *out) {
    dur_semver v;
    if (text == NULL) return false;
    const char *at = number(text, true, &v.major);
    if (at == NULL || *at != '.') return false;
    at = number(at + 1, true, &v.minor);
    if (at == NULL || *at != '.') return false;
    at = number(at + 1, true, &v.patch);
    if (at != NULL && *at == '-') at = identifiers(at + 1, true);
    if (at != NULL && *at == '+') at = identifiers(at + 1, false);
    if (at == NULL || *at != '\0') return false;
    if (out != NULL) *out = v;
    return true;
}

bool dur__semver_parse_lenient(const char *text, dur_semver *out) {
    dur_semver v = { 0, 0, 0 };
    if (text == NULL) return false;
    if (*text == 'v') text++;
    const char *at = number(text, false, &v.major);
    if (at == NULL) return false;
    if (*at == '.') at = number(at + 1, false, &v.minor);
    if (at != NULL && *at == '.') at = number(at + 1, false, &v.patch);
    if (at == NULL) return false;
    if (out != NULL) *out = v;
    return true;
}

static int order(uint64_t a, uint64_t b) {
    return (a > b) - (a < b);
}

int dur__semver_compare(dur_semver a, dur_semver b) {
    if (a.major != b.major) return order(a.major, b.major);
    if (a.minor != b.minor) return order(a.minor, b.minor);
    return order(a.patch, b.patch);
}

/* One identifier of each: numbers by value (more digits is larger: no leading zeros), before words by bytes. */
static int identifier_compare(const char *a, size_t a_size, const char *b, size_t b_size) {
    bool a_number = strspn(a, "0123456789") >= a_size;
    bool b_number = strspn(b, "0123456789") >= b_size;
    if (a_number != b_number) return a_number ? -1 : 1;
    if (a_number && a_size != b_size) return order(a_size, b_size);
    int result = memcmp(a, b, a_size < b_size ? a_size : b_size);
    return result != 0 ? result : order(a_size, b_size);
}

/* Pre-releases behind their '-'; a version without one is larger. */
static int pre_release_compare(const char *a, const char *b) {
    bool a_has = *a == '-', b_has = *b == '-';
    if (!a_has || !b_has) return order(!a_has, !b_has);
    for (;;) {
        a++; /* the '-' or a dot */
        b++;
        size_t a_size = strcspn(a, ".+"), b_size = strcspn(b, ".+");
        int result = identifier_compare(a, a_size, b, b_size);
        if (result != 0) return result;
        a += a_size;
        b += b_size;
        if (*a != '.' || *b != '.') return order(*a == '.', *b == '.');
    }
}

int dur__semver_compare_text(const char *a, const char *b) {
    dur_semver va, vb;
    bool a_good = dur__semver_parse(a, &va), b_good = dur__semver_parse(b, &vb);
    if (!a_good || !b_good) {
        if (a_good != b_good) return a_good ? 1 : -1;
        return strcmp(a != NULL ? a : "", b != NULL ? b : "");
    }
    int result = dur__semver_compare(va, vb);
    if (result != 0) return result;
    return pre_release_compare(a + strcspn(a, "-+"), b + strcspn(b, "-+"));
}

bool dur__semver_in(const dur_version_range *range, dur_semver version) {
    return dur__semver_compare(version, range->min) >= 0 && dur__semver_compare(version, range->max) <= 0;
}
