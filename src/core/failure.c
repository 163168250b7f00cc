/*
 * failure.c: why something failed: its JSON (externally tagged, as the wire format has it) and its text for people.
 *
 * Nesting is fixed by the format (details, kind, reason), so functions call each other at most three deep whatever the
 * input says.
 */
#include "core/record.h"

#include "base/assert.h"
#include "core/encode.h"
#include <inttypes.h>

enum {
    OPERATION,
    RESOURCE_KIND,
    RESOURCE,
    KIND,
    MESSAGE,
    RETRYABLE,
    ATTEMPT_COUNT,
    MAX_ATTEMPTS,
    MESSAGE_TYPE,
    POISON_MESSAGE,
    MISSING
};

#define BIT(i) (UINT64_C(1) << (i))
#define OF(member) offsetof(dur_failure, member)

static const dur__field detail_fields[] = {
    [OPERATION] = DUR__FIELD("operation", DUR__FIELD_TEXT, OF(operation), 0),
    [RESOURCE_KIND] = DUR__FIELD("kind", DUR__FIELD_CONFIGURATION, OF(kind), 0),
    [RESOURCE] = DUR__FIELD("resource", DUR__FIELD_TEXT, OF(resource), 0),
    [KIND] = DUR__FIELD("kind", DUR__FIELD_APPLICATION, OF(kind), 0),
    [MESSAGE] = DUR__FIELD("message", DUR__FIELD_TEXT, OF(message), 0),
    [RETRYABLE] = DUR__FIELD("retryable", DUR__FIELD_BOOL, OF(retryable), 0),
    [ATTEMPT_COUNT] = DUR__FIELD("attempt_count", DUR__FIELD_U32, OF(attempt_count), 0),
    [MAX_ATTEMPTS] = DUR__FIELD("max_attempts", DUR__FIELD_U32, OF(max_attempts), 0),
    [MESSAGE_TYPE] = DUR__FIELD("message_type", DUR__FIELD_POISON, OF(poison), 0),
    [POISON_MESSAGE] = DUR__FIELD("message", DUR__FIELD_TEXT, OF(message), 0),
    [MISSING] = DUR__FIELD("missing", DUR__FIELD_TEXT, OF(missing), 0),
};
static const dur__record details = { detail_fields, sizeof(detail_fields) / sizeof(detail_fields[0]) };

static const char *const category_variants[] = { "Infrastructure", "Configuration", "Application", "Poison" };
static const dur__shape category_shapes[] = {
    [DUR_FAILURE_INFRASTRUCTURE] = { BIT(OPERATION) | BIT(MESSAGE) | BIT(RETRYABLE), 0, 0 },
    [DUR_FAILURE_CONFIGURATION] = { BIT(RESOURCE_KIND) | BIT(RESOURCE), 0, BIT(MESSAGE) | BIT(MISSING) },
    [DUR_FAILURE_APPLICATION] = { BIT(KIND) | BIT(MESSAGE) | BIT(RETRYABLE), 0, 0 },
    [DUR_FAILURE_POISON] = { BIT(ATTEMPT_COUNT) | BIT(MAX_ATTEMPTS) | BIT(MESSAGE_TYPE) | BIT(POISON_MESSAGE), 0, 0 },
};

static const char *const kind_variants[] = { "ActivityFailed", "OrchestrationFailed", "Panicked", "Cancelled" };
static const dur__field cancelled_fields[] = { DUR__FIELD("reason", DUR__FIELD_TEXT, OF(reason), 0),
                                               DUR__FIELD("said", DUR__FIELD_TEXT, OF(said), 0) };
static const dur__record cancelled = { cancelled_fields, 2 };
static const dur__shape cancelled_shape = { BIT(0), 0, BIT(1) };

static const dur__field poison_fields[] = {
    DUR__FIELD("instance", DUR__FIELD_TEXT, OF(instance), 0),
    DUR__FIELD("execution_id", DUR__FIELD_U64, OF(execution_id), 0),
    DUR__FIELD("activity_name", DUR__FIELD_TEXT, OF(activity_name), 0),
    DUR__FIELD("activity_id", DUR__FIELD_U64, OF(activity_id), 0),
    DUR__FIELD("error", DUR__FIELD_TEXT, OF(error), 0),
};
static const dur__record poison = { poison_fields, sizeof(poison_fields) / sizeof(poison_fields[0]) };
static const char *const poison_variants[] = { "Orchestration", "Activity", "FailedDeserialization" };
static const dur__shape poison_shapes[] = {
    [DUR_POISON_ORCHESTRATION] = { 3, 0, 0 },
    [DUR_POISON_ACTIVITY] = { 15, 0, 0 },
    [DUR_POISON_FAILED_DESERIALIZATION] = { 3 | 16, 0, 0 },
};

/* ---- writing ---- */

/* {"Variant":{fields}} */
static void tagged_write(dur__buf *out, const char *variant, const dur__record *record, const dur__shape *shape,
                         const dur_failure *failure) {
    dur__buf_char(out, '{');
    dur__json_write_key(out, variant);
    size_t open = out->size;
    dur__record_write(out, record, shape, failure);
    out->data[open] = '{'; /* the first field's comma */
    dur__buf_add(out, "}}", 2);
}

void dur__failure_write(dur__buf *out, const dur_failure *failure) {
    DUR_ASSERT((unsigned)failure->category <= DUR_FAILURE_POISON);
    tagged_write(out, category_variants[failure->category], &details, &category_shapes[failure->category], failure);
}

void dur__failure_kind_write(dur__buf *out, const dur_failure *failure, dur__field_type type) {
    if (type == DUR__FIELD_CONFIGURATION) {
        dur__buf_text(out, "\"Nondeterminism\"");
    } else if (type == DUR__FIELD_POISON) {
        DUR_ASSERT((unsigned)failure->poison <= DUR_POISON_FAILED_DESERIALIZATION);
        tagged_write(out, poison_variants[failure->poison], &poison, &poison_shapes[failure->poison], failure);
    } else if (failure->kind == DUR_FAILURE_CANCELLED) {
        tagged_write(out, "Cancelled", &cancelled, &cancelled_shape, failure);
    } else {
        DUR_ASSERT((unsigned)failure->kind < DUR_FAILURE_CANCELLED);
        dur__json_write_text(out, kind_variants[failure->kind]);
    }
}

int dur__failure_check(const dur_failure *failure, const char *what, dur_error *err) {
    int code;
    if ((unsigned)failure->category > DUR_FAILURE_POISON || (unsigned)failure->kind > DUR_FAILURE_CANCELLED ||
        (unsigned)failure->poison > DUR_POISON_FAILED_DESERIALIZATION)
        return dur_error_set(err, DUR_EINVAL, false, "codec.write", "%s: details have no known category or kind", what);
    code = dur__record_check(&details, &category_shapes[failure->category], failure, what, err);
    if (code == DUR_OK && failure->category == DUR_FAILURE_POISON)
        code = dur__record_check(&poison, &poison_shapes[failure->poison], failure, what, err);
    if (code == DUR_OK && failure->category == DUR_FAILURE_APPLICATION && failure->kind == DUR_FAILURE_CANCELLED)
        code = dur__record_check(&cancelled, &cancelled_shape, failure, what, err);
    return code;
}

/* ---- reading ---- */

/* Which of the variants is the text? */
static int variant_find(dur__json *json, const char *const *variants, int count, const char *name, const char *what) {
    for (int i = 0; i < count; i++) {
        if (strcmp(variants[i], name) == 0) return i;
    }
    dur__json_fail(json, DUR_EUNSUPPORTED, name, "unknown %s \"%.100s\"", what, name);
    return -1;
}

/* Opens {"Variant": and gives the variant; a plain string is a variant without fields (*plain). */
static int tagged_open(dur__json *json, const char *const *variants, int count, const char *what, bool *plain) {
    const char *name;
    bool first = true;
    dur_text key;
    *plain = dur__json_peek(json) == '"';
    if (*plain) return dur__json_string(json, &name, NULL) ? variant_find(json, variants, count, name, what) : -1;
    if (!dur__json_open(json, '{', "a variant as object or string")) return -1;
    if (!dur__json_member(json, &first, &key)) {
        dur__json_fail(json, DUR_ECORRUPT, NULL, "%s without a variant", what);
        return -1;
    }
    return variant_find(json, variants, count, key.data, what);
}

static bool tagged_close(dur__json *json) {
    bool first = false;
    if (dur__json_more(json, '}', &first)) return dur__json_fail(json, DUR_ECORRUPT, NULL, "more than one variant");
    return json->code == DUR_OK;
}

bool dur__failure_read(dur__json *json, dur_failure *out) {
    bool plain;
    int variant = tagged_open(json, category_variants, 4, "error category", &plain);
    if (variant < 0) return false;
    if (plain) return dur__json_fail(json, DUR_ECORRUPT, NULL, "%s without fields", category_variants[variant]);
    out->category = (dur_failure_category)variant;
    return dur__record_read(json, &details, &category_shapes[variant], category_variants[variant], out) &&
           tagged_close(json);
}

static bool configuration_read(dur__json *json) {
    static const char *const names[] = { "Nondeterminism" };
    bool plain;
    if (tagged_open(json, names, 1, "configuration error", &plain) < 0) return false;
    return plain || (dur__json_skip(json, NULL) && tagged_close(json));
}

static bool application_read(dur__json *json, dur_failure *out) {
    bool plain;
    int variant = tagged_open(json, kind_variants, 4, "application error", &plain);
    if (variant < 0) return false;
    out->kind = (dur_failure_kind)variant;
    if (out->kind != DUR_FAILURE_CANCELLED) return plain || (dur__json_skip(json, NULL) && tagged_close(json));
    if (plain) return dur__json_fail(json, DUR_ECORRUPT, NULL, "Cancelled has no \"reason\"");
    return dur__record_read(json, &cancelled, &cancelled_shape, "Cancelled", out) && tagged_close(json);
}

bool dur__failure_kind_read(dur__json *json, dur_failure *out, dur__field_type type) {
    bool plain;
    int variant;
    if (type == DUR__FIELD_CONFIGURATION) return configuration_read(json);
    if (type == DUR__FIELD_APPLICATION) return application_read(json, out);
    variant = tagged_open(json, poison_variants, 3, "poison message type", &plain);
    if (variant < 0) return false;
    if (plain) return dur__json_fail(json, DUR_ECORRUPT, NULL, "%s without fields", poison_variants[variant]);
    out->poison = (dur_poison_kind)variant;
    return dur__record_read(json, &poison, &poison_shapes[variant], poison_variants[variant], out) &&
           tagged_close(json);
}

/* ---- public ---- */

int dur_failure_to_json(dur_text *out, dur_arena *arena, const dur_failure *failure, dur_error *err) {
    dur__buf buf = { .arena = arena };
    if (out == NULL || arena == NULL || failure == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "codec.write", "out, arena and failure are required");
    int code = dur__failure_check(failure, "failure", err);
    if (code != DUR_OK) return code;
    dur__failure_write(&buf, failure);
    *out = (dur_text){ buf.data, buf.size };
    return DUR_OK;
}

int dur_failure_from_json(dur_failure *out, dur_arena *arena, dur_text text, dur_error *err) {
    dur__json json;
    if (out == NULL || arena == NULL || (text.data == NULL && text.size > 0))
        return dur_error_set(err, DUR_EINVAL, false, "codec.read", "out, arena and a text are required");
    memset(out, 0, sizeof(*out));
    dur__json_begin(&json, arena, text, "failure", err);
    dur__failure_read(&json, out);
    return dur__json_end(&json, text);
}

const char *dur_failure_category_name(dur_failure_category category) {
    static const char *const names[] = { "infrastructure", "configuration", "application", "poison" };
    return (unsigned)category <= DUR_FAILURE_POISON ? names[category] : "?";
}

static const char *or_empty(const char *text) {
    return text != NULL ? text : "";
}

/* Ours says what happened so often; the original's counts one more than there were. */
static char *poison_display(dur_arena *arena, const dur_failure *f) {
    const char *instance = or_empty(f->instance);
    if (f->attempt_count <= f->max_attempts && f->message != NULL && f->poison == DUR_POISON_ACTIVITY)
        return dur_arena_format(arena, "poison: activity %s#%" PRIu64 " %s", or_empty(f->activity_name), f->activity_id,
                                f->message);
    if (f->attempt_count <= f->max_attempts && f->message != NULL && f->poison == DUR_POISON_ORCHESTRATION)
        return dur_arena_format(arena, "poison: orchestration %s %s", instance, f->message);
    switch (f->poison) {
    case DUR_POISON_ACTIVITY:
        return dur_arena_format(arena,
                                "poison: activity %s#%" PRIu64 " exceeded %" PRIu32 " attempts (max %" PRIu32 ")",
                                or_empty(f->activity_name), f->activity_id, f->attempt_count, f->max_attempts);
    case DUR_POISON_FAILED_DESERIALIZATION:
        return dur_arena_format(arena,
                                "poison: deserialization of %s failed after %" PRIu32 " attempts (max %" PRIu32 "): %s",
                                instance, f->attempt_count, f->max_attempts, or_empty(f->error));
    case DUR_POISON_ORCHESTRATION:
        break;
    }
    return dur_arena_format(arena, "poison: orchestration %s exceeded %" PRIu32 " attempts (max %" PRIu32 ")", instance,
                            f->attempt_count, f->max_attempts);
}

char *dur_failure_display(dur_arena *arena, const dur_failure *f) {
    switch (f->category) {
    case DUR_FAILURE_INFRASTRUCTURE:
        return dur_arena_format(arena, "infrastructure:%s: %s", or_empty(f->operation), or_empty(f->message));
    case DUR_FAILURE_CONFIGURATION:
        return dur_arena_format(arena, "%s: %s", f->missing != NULL ? "configuration" : "nondeterministic",
                                f->message != NULL ? f->message : or_empty(f->resource));
    case DUR_FAILURE_POISON:
        return poison_display(arena, f);
    case DUR_FAILURE_APPLICATION:
        break;
    }
    if (f->kind == DUR_FAILURE_CANCELLED) {
        const char *between = f->said != NULL ? "; " : "";
        return dur_arena_format(arena, "cancelled: %s%s%s", or_empty(f->reason), between, or_empty(f->said));
    }
    if (f->kind == DUR_FAILURE_PANICKED)
        return dur_arena_format(arena, "orchestration panicked: %s", or_empty(f->message));
    return dur_arena_strdup(arena, or_empty(f->message));
}
