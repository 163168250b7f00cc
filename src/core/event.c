/*
 * event.c: kinds of events and their JSON.
 *
 * An event is one flat object: the envelope, `type`, and the fields of the kind.  `type` usually comes before the
 * kind's fields; where it does not, it is looked for ahead once, because a name means nothing before the kind is known.
 */
#include "core/encode.h"
#include "core/record.h"

#include "base/assert.h"

/* In the order in which they are written. */
/* clang-format off */
enum {
    EVENT_ID, SOURCE_EVENT_ID, INSTANCE_ID, EXECUTION_ID, TIMESTAMP_MS, DUROXIDE_VERSION, TYPE, /* the envelope */
    NAME, VERSION, INSTANCE, INPUT, OUTPUT, RESULT, DATA, REASON, SESSION_ID, TAG, FIRE_AT_MS, STATUS, KEY, VALUE,
    LAST_UPDATED_AT_MS, DETAILS, PARENT_INSTANCE, PARENT_ID, CARRY_FORWARD_EVENTS, INITIAL_CUSTOM_STATUS,
    PARENT_EXECUTION_ID, PARENT_BIRTH, BIRTH, DEPTH, TRACE, FIELD_COUNT
};
/* clang-format on */

#define BIT(i) (UINT64_C(1) << (i))
#define OF(member) offsetof(dur_event, member)
#define TEXT(name) DUR__FIELD(#name, DUR__FIELD_TEXT, OF(name), 0)
#define U64(name) DUR__FIELD(#name, DUR__FIELD_U64, OF(name), 0)
#define U64_FLAG(name) DUR__FIELD(#name, DUR__FIELD_U64, OF(name), OF(has_##name))

static const dur__field event_fields[FIELD_COUNT] = {
    [EVENT_ID] = U64(event_id),
    [SOURCE_EVENT_ID] = U64_FLAG(source_event_id),
    [INSTANCE_ID] = TEXT(instance_id),
    [EXECUTION_ID] = U64(execution_id),
    [TIMESTAMP_MS] = U64(timestamp_ms),
    [DUROXIDE_VERSION] = TEXT(duroxide_version),
    [TYPE] = DUR__FIELD("type", DUR__FIELD_KIND, 0, 0),
    [NAME] = TEXT(name),
    [VERSION] = TEXT(version),
    [INSTANCE] = TEXT(instance),
    [INPUT] = TEXT(input),
    [OUTPUT] = TEXT(output),
    [RESULT] = TEXT(result),
    [DATA] = TEXT(data),
    [REASON] = TEXT(reason),
    [SESSION_ID] = TEXT(session_id),
    [TAG] = TEXT(tag),
    [FIRE_AT_MS] = U64(fire_at_ms),
    [STATUS] = TEXT(status),
    [KEY] = TEXT(key),
    [VALUE] = TEXT(value),
    [LAST_UPDATED_AT_MS] = U64(last_updated_at_ms),
    [DETAILS] = DUR__FIELD("details", DUR__FIELD_FAILURE, OF(details), 0),
    [PARENT_INSTANCE] = TEXT(parent_instance),
    [PARENT_ID] = U64_FLAG(parent_id),
    [CARRY_FORWARD_EVENTS] =
        DUR__FIELD("carry_forward_events", DUR__FIELD_CARRIED, OF(carry_forward_events), OF(carry_forward_count)),
    [INITIAL_CUSTOM_STATUS] = TEXT(initial_custom_status),
    [PARENT_EXECUTION_ID] = U64_FLAG(parent_execution_id),
    [PARENT_BIRTH] = U64(parent_birth),
    [BIRTH] = U64(birth),
    [DEPTH] = U64(depth),
    [TRACE] = DUR__FIELD("trace", DUR__FIELD_U32, OF(trace), 0),
};
static const dur__record event_record = { event_fields, FIELD_COUNT };

static const dur__shape envelope = { BIT(EVENT_ID) | BIT(INSTANCE_ID) | BIT(EXECUTION_ID) | BIT(TIMESTAMP_MS) |
                                         BIT(DUROXIDE_VERSION),
                                     0, BIT(SOURCE_EVENT_ID) };

/* The fields of each kind behind the envelope: required, defaulted, optional. */
#define ONE_MORE(upper, name, role) +1
enum { KIND_COUNT = 0 DUR_EVENT_KINDS(ONE_MORE) };
#undef ONE_MORE

static const dur__shape kind_shapes[KIND_COUNT] = {
    [DUR_EVENT_ORCHESTRATION_STARTED] = { BIT(NAME) | BIT(VERSION) | BIT(INPUT), 0,
                                          BIT(PARENT_INSTANCE) | BIT(PARENT_ID) | BIT(CARRY_FORWARD_EVENTS) |
                                              BIT(INITIAL_CUSTOM_STATUS) | BIT(PARENT_EXECUTION_ID) |
                                              BIT(PARENT_BIRTH) | BIT(BIRTH) | BIT(DEPTH) | BIT(TRACE) },
    [DUR_EVENT_ORCHESTRATION_COMPLETED] = { BIT(OUTPUT), 0, 0 },
    [DUR_EVENT_ORCHESTRATION_FAILED] = { BIT(DETAILS), 0, 0 },
    [DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW] = { BIT(INPUT), 0, 0 },
    [DUR_EVENT_ORCHESTRATION_CANCEL_REQUESTED] = { BIT(REASON), 0, 0 },
    [DUR_EVENT_ORCHESTRATION_CHAINED] = { BIT(NAME) | BIT(INSTANCE) | BIT(INPUT), 0, BIT(VERSION) },
    [DUR_EVENT_ACTIVITY_SCHEDULED] = { BIT(NAME) | BIT(INPUT), 0, BIT(SESSION_ID) | BIT(TAG) },
    [DUR_EVENT_ACTIVITY_COMPLETED] = { BIT(RESULT), 0, 0 },
    [DUR_EVENT_ACTIVITY_FAILED] = { BIT(DETAILS), 0, 0 },
    [DUR_EVENT_ACTIVITY_CANCEL_REQUESTED] = { BIT(REASON), 0, 0 },
    [DUR_EVENT_TIMER_CREATED] = { BIT(FIRE_AT_MS), 0, 0 },
    [DUR_EVENT_TIMER_FIRED] = { BIT(FIRE_AT_MS), 0, 0 },
    [DUR_EVENT_EXTERNAL_SUBSCRIBED] = { BIT(NAME), 0, 0 },
    [DUR_EVENT_EXTERNAL_EVENT] = { BIT(NAME) | BIT(DATA), 0, 0 },
    [DUR_EVENT_EXTERNAL_SUBSCRIBED_CANCELLED] = { BIT(REASON), 0, 0 },
    [DUR_EVENT_QUEUE_SUBSCRIBED] = { BIT(NAME), 0, 0 },
    [DUR_EVENT_QUEUE_EVENT_DELIVERED] = { BIT(NAME) | BIT(DATA), 0, 0 },
    [DUR_EVENT_QUEUE_SUBSCRIPTION_CANCELLED] = { BIT(REASON), 0, 0 },
    [DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED] = { BIT(NAME) | BIT(INSTANCE) | BIT(INPUT), 0, BIT(VERSION) },
    [DUR_EVENT_SUB_ORCHESTRATION_COMPLETED] = { BIT(RESULT), 0, 0 },
    [DUR_EVENT_SUB_ORCHESTRATION_FAILED] = { BIT(DETAILS), 0, 0 },
    [DUR_EVENT_SUB_ORCHESTRATION_CANCEL_REQUESTED] = { BIT(REASON), 0, 0 },
    [DUR_EVENT_CUSTOM_STATUS_UPDATED] = { 0, 0, BIT(STATUS) },
    [DUR_EVENT_KEY_VALUE_SET] = { BIT(KEY) | BIT(VALUE), BIT(LAST_UPDATED_AT_MS), 0 },
    [DUR_EVENT_KEY_VALUE_CLEARED] = { BIT(KEY), 0, 0 },
    [DUR_EVENT_KEY_VALUES_CLEARED] = { 0, 0, 0 },
};

/* ---- kinds ---- */

typedef struct kind_info {
    const char *name;
    uint8_t size;
    uint8_t role;
} kind_info;

static const kind_info kinds[KIND_COUNT] = {
#define KIND_INFO(upper, name, role) { name, sizeof(name) - 1, DUR_EVENT_ROLE_##role },
    DUR_EVENT_KINDS(KIND_INFO)
#undef KIND_INFO
};

const char *dur_event_kind_name(dur_event_kind kind) {
    return (unsigned)kind < KIND_COUNT ? kinds[kind].name : "?";
}

dur_event_role dur_event_kind_role(dur_event_kind kind) {
    return (unsigned)kind < KIND_COUNT ? (dur_event_role)kinds[kind].role : DUR_EVENT_ROLE_ARRIVAL;
}

static dur_event_kind kind_find(dur_text name) {
    unsigned i = 0;
    while (i < KIND_COUNT && (kinds[i].size != name.size || memcmp(kinds[i].name, name.data, name.size) != 0))
        i++;
    return i < KIND_COUNT ? (dur_event_kind)i : DUR_EVENT_UNKNOWN;
}

/* ---- writing ---- */

void dur__event_encode(dur__buf *out, const dur_event *event) {
    DUR_ASSERT((unsigned)event->kind < KIND_COUNT);
    size_t open = out->size;
    dur__record_write(out, &event_record, &envelope, event);
    out->data[open] = '{'; /* the first field's comma */
    dur__buf_add(out, ",\"type\":\"", 9);
    dur__buf_add(out, kinds[event->kind].name, kinds[event->kind].size);
    dur__buf_char(out, '"');
    dur__record_write(out, &event_record, &kind_shapes[event->kind], event);
    dur__buf_char(out, '}');
}

static int event_check(const dur_event *event, dur_error *err) {
    if ((unsigned)event->kind >= KIND_COUNT)
        return dur_error_set(err, DUR_EINVAL, false, "codec.write", "event: %d is no kind", (int)event->kind);
    const char *what = kinds[event->kind].name;
    int code = dur__record_check(&event_record, &envelope, event, what, err);
    if (code == DUR_OK) code = dur__record_check(&event_record, &kind_shapes[event->kind], event, what, err);
    return code;
}

int dur_event_to_json(dur_text *out, dur_arena *arena, const dur_event *event, dur_error *err) {
    if (event == NULL) return dur_error_set(err, DUR_EINVAL, false, "codec.write", "event is required");
    dur__buf buf = { .arena = arena };
    if (out == NULL || arena == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "codec.write", "out and arena are required");
    int code = event_check(event, err);
    if (code != DUR_OK) return code;
    dur__event_encode(&buf, event);
    *out = (dur_text){ buf.data, buf.size };
    return DUR_OK;
}

int dur_history_to_json(dur_text *out, dur_arena *arena, const dur_event *events, size_t count, dur_error *err) {
    dur__buf buf = { .arena = arena };
    int code = DUR_OK;
    if (out == NULL || arena == NULL || (events == NULL && count > 0))
        return dur_error_set(err, DUR_EINVAL, false, "codec.write", "out, arena and events are required");
    dur__buf_char(&buf, '[');
    for (size_t i = 0; i < count && code == DUR_OK; i++) {
        dur_error why = DUR_ERROR_INIT;
        code = event_check(&events[i], &why);
        if (code != DUR_OK) {
            dur_error_set(err, (dur_code)code, false, "codec.write", "event %zu of %zu: %s", i + 1, count, why.message);
            break;
        }
        if (i > 0) dur__buf_char(&buf, ',');
        dur__event_encode(&buf, &events[i]);
    }
    dur__buf_char(&buf, ']');
    if (code == DUR_OK) *out = (dur_text){ buf.data, buf.size };
    return code;
}

/* ---- reading ---- */

/* A raw string (quotes and all) as text.  Escapes are decoded in a copy, so that the original can be read again. */
static bool raw_text(dur__json *json, dur_text raw, dur_text *out) {
    dur__json part;
    if (memchr(raw.data, '\\', raw.size) == NULL) {
        *out = (dur_text){ raw.data + 1, raw.size - 2 };
        return true;
    }
    dur__json_begin(&part, json->arena, raw, json->what, json->err);
    if (dur__json_string(&part, &out->data, &out->size)) return true;
    json->code = part.code;
    return false;
}

/* Look for `type` behind the member whose value is next.  *kind stays as it is when there is none. */
static void kind_ahead(dur__json *json, dur_event_kind *kind) {
    dur__json ahead = *json;
    bool first = false;
    dur_text raw, key;
    dur__json_skip(&ahead, NULL);
    while (dur__json_more(&ahead, '}', &first)) {
        if (dur__json_peek(&ahead) != '"') break; /* the reader itself will say so */
        if (!dur__json_skip(&ahead, &raw) || !raw_text(&ahead, raw, &key) || !dur__json_colon(&ahead)) break;
        if (!dur__json_skip(&ahead, &raw)) break;
        if (key.size != 4 || memcmp(key.data, "type", 4) != 0) continue;
        if (raw.data[0] == '"' && raw_text(&ahead, raw, &key)) *kind = kind_find(key);
        break;
    }
    json->code = ahead.code;
}

static bool kind_read(dur__json *json, dur_event_kind *kind) {
    dur_text name;
    if (!dur__json_string(json, &name.data, &name.size)) return false;
    *kind = kind_find(name);
    if (*kind != DUR_EVENT_UNKNOWN) return true;
    return dur__json_fail(json, DUR_EUNSUPPORTED, name.data, "unknown kind \"%.100s\"", name.data);
}

/* One event object, at any place of a text. */
static bool event_read(dur__json *json, dur_event *out) {
    const uint64_t outer = envelope.required | envelope.optional | BIT(TYPE);
    dur_event_kind kind = DUR_EVENT_UNKNOWN;
    uint64_t allowed = outer, required = envelope.required, seen = 0;
    unsigned hint = 0;
    bool first = true, looked_ahead = false;
    dur_text key;
    memset(out, 0, sizeof(*out));
    if (!dur__json_open(json, '{', "an object")) return false;
    while (dur__json_member(json, &first, &key)) {
        unsigned i = dur__record_find(&event_record, allowed, key, hint);
        if (i == FIELD_COUNT && kind == DUR_EVENT_UNKNOWN && !looked_ahead) {
            looked_ahead = true;
            kind_ahead(json, &kind);
            if (kind != DUR_EVENT_UNKNOWN) {
                allowed |= kind_shapes[kind].required | kind_shapes[kind].defaulted | kind_shapes[kind].optional;
                required |= kind_shapes[kind].required;
            }
            i = dur__record_find(&event_record, allowed, key, hint);
        }
        if (i == FIELD_COUNT) {
            dur__json_skip(json, NULL);
            continue;
        }
        hint = i + 1;
        if (!dur__record_once(json, &event_record, i, &seen)) break;
        if (i != TYPE) {
            dur__record_value(json, &event_fields[i], (required >> i & 1) != 0, out);
        } else if (kind_read(json, &kind)) {
            allowed = outer | kind_shapes[kind].required | kind_shapes[kind].defaulted | kind_shapes[kind].optional;
            required = envelope.required | kind_shapes[kind].required;
        }
    }
    if (json->code != DUR_OK) return false;
    if ((seen & BIT(TYPE)) == 0) return dur__json_fail(json, DUR_ECORRUPT, NULL, "an event has no \"type\"");
    out->kind = kind;
    dur__shape all = { required, 0, 0 };
    return dur__record_complete(json, &event_record, &all, seen, kinds[kind].name);
}

int dur_event_from_json(dur_event *out, dur_arena *arena, dur_text text, dur_error *err) {
    dur__json json;
    if (out == NULL || arena == NULL || (text.data == NULL && text.size > 0))
        return dur_error_set(err, DUR_EINVAL, false, "codec.read", "out, arena and a text are required");
    dur__json_begin(&json, arena, text, "event", err);
    event_read(&json, out);
    return dur__json_end(&json, text);
}

int dur_history_from_json(dur_event **out, size_t *count, dur_arena *arena, dur_text text, dur_error *err) {
    dur_event *events = NULL;
    size_t used = 0, room = 0;
    bool first = true;
    dur__json json;
    if (out == NULL || count == NULL || arena == NULL || (text.data == NULL && text.size > 0))
        return dur_error_set(err, DUR_EINVAL, false, "codec.read", "out, count, arena and a text are required");
    dur__json_begin(&json, arena, text, "history", err);
    dur__json_open(&json, '[', "an array of events");
    while (dur__json_more(&json, ']', &first)) {
        if (used == room) {
            dur_event *larger = dur_arena_alloc(arena, (room * 2 + 16) * sizeof(*larger));
            if (used > 0) memcpy(larger, events, used * sizeof(*events));
            events = larger;
            room = room * 2 + 16;
        }
        json.number = used + 1;
        event_read(&json, &events[used++]);
    }
    json.number = 0;
    int code = dur__json_end(&json, text);
    if (code != DUR_OK) return code;
    *out = events;
    *count = used;
    return DUR_OK;
}
