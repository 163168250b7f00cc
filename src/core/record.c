/*
 * record.c: writing and reading the fields of a struct by its table.
 */
#include "core/record.h"
#include "base/assert.h"

#define AT(type, base, offset) ((type *)(void *)((char *)(base) + (offset)))
#define AT_CONST(type, base, offset) ((const type *)(const void *)((const char *)(base) + (offset)))

static dur_text field_name(const dur__field *field) {
    return (dur_text){ field->prefix + 2, (size_t)field->prefix_size - 4 };
}

/* ---- writing ---- */

static bool field_present(const dur__field *field, const void *base) {
    switch ((dur__field_type)field->type) {
    case DUR__FIELD_TEXT:
        return *AT_CONST(char *, base, field->at) != NULL;
    case DUR__FIELD_U64:
        if (field->beside != 0) return *AT_CONST(bool, base, field->beside);
        return *AT_CONST(uint64_t, base, field->at) != 0;
    case DUR__FIELD_U32:
        return *AT_CONST(uint32_t, base, field->at) != 0;
    case DUR__FIELD_CARRIED: /* a list that is empty is not a list that is absent */
        return *AT_CONST(dur_carried *, base, field->at) != NULL || *AT_CONST(size_t, base, field->beside) != 0;
    case DUR__FIELD_FAILURE:
        return *AT_CONST(dur_failure *, base, field->at) != NULL;
    default:
        return true;
    }
}

static void carried_write(dur__buf *out, const dur_carried *carried, size_t count) {
    dur__buf_char(out, '[');
    for (size_t i = 0; i < count; i++) {
        dur__buf_text(out, i == 0 ? "[" : ",[");
        dur__json_write_text(out, carried[i].name);
        dur__buf_char(out, ',');
        dur__json_write_text(out, carried[i].data);
        dur__buf_char(out, ']');
    }
    dur__buf_char(out, ']');
}

/* Room for the prefix and a number; texts and the rest ask for their own. */
static inline char *prefix_write(dur__buf *out, const dur__field *field) {
    if (out->room - out->size < 64) dur__buf_grow(out, 64);
    char *to = out->data + out->size;
    memcpy(to, field->prefix, sizeof(field->prefix));
    out->size += field->prefix_size;
    return to + field->prefix_size;
}

static void field_write(dur__buf *out, const dur__field *field, const void *base) {
    char *to = prefix_write(out, field);
    switch ((dur__field_type)field->type) {
    case DUR__FIELD_TEXT: {
        const char *text = *AT_CONST(char *, base, field->at);
        DUR_ASSERT(text != NULL);
        dur__json_write_text(out, text);
        break;
    }
    case DUR__FIELD_U64:
        out->size += dur__u64_text(to, *AT_CONST(uint64_t, base, field->at));
        break;
    case DUR__FIELD_U32:
        out->size += dur__u64_text(to, *AT_CONST(uint32_t, base, field->at));
        break;
    case DUR__FIELD_BOOL:
        dur__buf_text(out, *AT_CONST(bool, base, field->at) ? "true" : "false");
        break;
    case DUR__FIELD_CARRIED:
        carried_write(out, *AT_CONST(dur_carried *, base, field->at), *AT_CONST(size_t, base, field->beside));
        break;
    case DUR__FIELD_FAILURE: {
        const dur_failure *failure = *AT_CONST(dur_failure *, base, field->at);
        DUR_ASSERT(failure != NULL);
        dur__failure_write(out, failure);
        break;
    }
    case DUR__FIELD_APPLICATION:
    case DUR__FIELD_CONFIGURATION:
    case DUR__FIELD_POISON:
        dur__failure_kind_write(out, base, (dur__field_type)field->type);
        break;
    case DUR__FIELD_KIND:
        DUR_ASSERT(field->type != DUR__FIELD_KIND); /* the event codec writes it */
        break;
    }
}

void dur__record_write(dur__buf *out, const dur__record *record, const dur__shape *shape, const void *base) {
    uint64_t always = shape->required | shape->defaulted;
    for (uint64_t left = always | shape->optional; left != 0; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctzll(left);
        const dur__field *field = &record->fields[i];
        if ((always >> i & 1) == 0 && !field_present(field, base)) continue;
        field_write(out, field, base);
    }
}

/* ---- checking before writing ---- */

int dur__text_check(const char *text, const char *what, const char *field, size_t field_size, dur_error *err) {
    size_t bad;
    if (dur__utf8_valid(text, strlen(text), &bad)) return DUR_OK;
    return dur_error_set(err, DUR_EINVAL, false, "codec.write", "%s: %.*s is not UTF-8 at byte %zu", what,
                         (int)field_size, field, bad);
}

static int carried_check(const dur_carried *carried, size_t count, const char *what, dur_error *err) {
    static const char name[] = "carry_forward_events";
    int code = DUR_OK;
    for (size_t i = 0; i < count && code == DUR_OK; i++) {
        if (carried == NULL || carried[i].name == NULL || carried[i].data == NULL)
            return dur_error_set(err, DUR_EINVAL, false, "codec.write", "%s: %s[%zu] has no name or no data", what,
                                 name, i);
        code = dur__text_check(carried[i].name, what, name, sizeof(name) - 1, err);
        if (code == DUR_OK) code = dur__text_check(carried[i].data, what, name, sizeof(name) - 1, err);
    }
    return code;
}

int dur__record_check(const dur__record *record, const dur__shape *shape, const void *base, const char *what,
                      dur_error *err) {
    uint64_t always = shape->required | shape->defaulted;
    int code = DUR_OK;
    for (uint64_t left = always | shape->optional; left != 0 && code == DUR_OK; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctzll(left);
        const dur__field *field = &record->fields[i];
        dur_text name = field_name(field);
        if (!field_present(field, base)) {
            if ((shape->required >> i & 1) == 0) continue;
            if (field->type != DUR__FIELD_TEXT && field->type != DUR__FIELD_FAILURE) continue; /* 0 is a number */
            return dur_error_set(err, DUR_EINVAL, false, "codec.write", "%s: %.*s is required", what, (int)name.size,
                                 name.data);
        }
        if (field->type == DUR__FIELD_TEXT) {
            code = dur__text_check(*AT_CONST(char *, base, field->at), what, name.data, name.size, err);
        } else if (field->type == DUR__FIELD_FAILURE) {
            code = dur__failure_check(*AT_CONST(dur_failure *, base, field->at), what, err);
        } else if (field->type == DUR__FIELD_CARRIED) {
            code = carried_check(*AT_CONST(dur_carried *, base, field->at), *AT_CONST(size_t, base, field->beside),
                                 what, err);
        }
    }
    return code;
}

/* ---- reading ---- */

unsigned dur__record_find(const dur__record *record, uint64_t allowed, dur_text key, unsigned hint) {
    size_t size = key.size + 4;
    for (unsigned n = 0, i = hint; n < record->count; n++, i++) {
        if (i >= record->count) i = 0; /* writers keep the table's order, so the next one is nearly always close */
        const dur__field *field = &record->fields[i];
        if (field->prefix_size == size && (allowed >> i & 1) != 0 && memcmp(field->prefix + 2, key.data, key.size) == 0)
            return i;
    }
    return record->count;
}

bool dur__record_once(dur__json *json, const dur__record *record, unsigned field, uint64_t *seen) {
    dur_text name = field_name(&record->fields[field]);
    if ((*seen >> field & 1) != 0)
        return dur__json_fail(json, DUR_ECORRUPT, NULL, "\"%.*s\" given twice", (int)name.size, name.data);
    *seen |= UINT64_C(1) << field;
    return true;
}

/* An array of two-element arrays. */
static bool carried_read(dur__json *json, const dur_carried **out, size_t *out_count) {
    dur_carried *items = NULL;
    size_t count = 0, room = 0;
    bool first = true;
    if (!dur__json_open(json, '[', "an array of pairs")) return false;
    while (dur__json_more(json, ']', &first)) {
        if (count == room) {
            dur_carried *larger = dur_arena_alloc(json->arena, (room * 2 + 4) * sizeof(*larger));
            if (count > 0) memcpy(larger, items, count * sizeof(*items));
            items = larger;
            room = room * 2 + 4;
        }
        bool in_pair = true;
        dur_carried *pair = &items[count++];
        bool good = dur__json_open(json, '[', "a pair") && dur__json_more(json, ']', &in_pair) &&
                    dur__json_string(json, &pair->name, NULL) && dur__json_more(json, ']', &in_pair) &&
                    dur__json_string(json, &pair->data, NULL);
        if (!good) return dur__json_fail(json, DUR_ECORRUPT, NULL, "expected a pair of name and data");
        if (dur__json_more(json, ']', &in_pair)) return dur__json_fail(json, DUR_ECORRUPT, NULL, "a pair of three");
    }
    static const dur_carried empty = { "", "" };
    *out = count > 0 ? items : &empty; /* given, with nothing in it: written again as it was read */
    *out_count = count;
    return json->code == DUR_OK;
}

static bool u32_read(dur__json *json, uint32_t *out) {
    uint64_t value;
    char *at = json->at;
    if (!dur__json_u64(json, &value)) return false;
    if (value > UINT32_MAX) return dur__json_fail(json, DUR_ECORRUPT, at, "a number over 2^32-1");
    *out = (uint32_t)value;
    return true;
}

bool dur__record_value(dur__json *json, const dur__field *field, bool required, void *base) {
    if (!required && dur__json_null(json)) return true;
    switch ((dur__field_type)field->type) {
    case DUR__FIELD_TEXT:
        return dur__json_string(json, AT(const char *, base, field->at), NULL);
    case DUR__FIELD_U64:
        if (field->beside != 0) *AT(bool, base, field->beside) = true;
        return dur__json_u64(json, AT(uint64_t, base, field->at));
    case DUR__FIELD_U32:
        return u32_read(json, AT(uint32_t, base, field->at));
    case DUR__FIELD_BOOL:
        return dur__json_bool(json, AT(bool, base, field->at));
    case DUR__FIELD_CARRIED:
        return carried_read(json, AT(const dur_carried *, base, field->at), AT(size_t, base, field->beside));
    case DUR__FIELD_FAILURE: {
        dur_failure *failure = dur_arena_zalloc(json->arena, sizeof(*failure));
        *AT(const dur_failure *, base, field->at) = failure;
        return dur__failure_read(json, failure);
    }
    case DUR__FIELD_APPLICATION:
    case DUR__FIELD_CONFIGURATION:
    case DUR__FIELD_POISON:
        return dur__failure_kind_read(json, base, (dur__field_type)field->type);
    case DUR__FIELD_KIND:
        break;
    }
    DUR_ASSERT(field->type != DUR__FIELD_KIND); /* the event codec reads it */
    return false;
}

bool dur__record_complete(dur__json *json, const dur__record *record, const dur__shape *shape, uint64_t seen,
                          const char *kind) {
    uint64_t missing = shape->required & ~seen;
    if (json->code != DUR_OK) return false;
    if (missing == 0) return true;
    dur_text name = field_name(&record->fields[__builtin_ctzll(missing)]);
    return dur__json_fail(json, DUR_ECORRUPT, NULL, "%s has no \"%.*s\"", kind, (int)name.size, name.data);
}

bool dur__record_read(dur__json *json, const dur__record *record, const dur__shape *shape, const char *kind,
                      void *base) {
    uint64_t allowed = shape->required | shape->defaulted | shape->optional, seen = 0;
    unsigned hint = 0;
    bool first = true;
    dur_text key;
    if (!dur__json_open(json, '{', "an object")) return false;
    while (dur__json_member(json, &first, &key)) {
        unsigned i = dur__record_find(record, allowed, key, hint);
        if (i == record->count) {
            dur__json_skip(json, NULL);
            continue;
        }
        hint = i + 1;
        if (dur__record_once(json, record, i, &seen))
            dur__record_value(json, &record->fields[i], (shape->required >> i & 1) != 0, base);
    }
    return dur__record_complete(json, record, shape, seen, kind);
}
