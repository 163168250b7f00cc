/*
 * work.c: kinds of work items, their JSON (externally tagged) and the messages that carry them.
 */
#include "core/encode.h"
#include "core/record.h"

#include "base/assert.h"

/* In the order in which they are written; SubOrch* name three of our fields otherwise. */
/* clang-format off */
enum {
    INSTANCE, ORCHESTRATION, EXECUTION_ID, ID, NAME, INPUT, VERSION, PARENT_INSTANCE, PARENT_ID, START_EXECUTION_ID,
    PARENT_EXECUTION_ID, PARENT_BIRTH, BIRTH, DEPTH, RESULT, DETAILS, FIRE_AT_MS, DATA, REASON, SESSION_ID, TAG,
    CARRY_FORWARD_EVENTS, INITIAL_CUSTOM_STATUS, MESSAGE_ID, ORCHESTRATION_NAME, ORCHESTRATION_VERSION, ATTEMPT,
    CANCEL_SEQ, FIRST_ID, TO_INSTANCE, TO_EXECUTION_ID, TO_ID, TO_BIRTH, TO_RESULT, TO_DETAILS, FIELD_COUNT
};
/* clang-format on */

#define BIT(i) (UINT64_C(1) << (i))
#define OF(member) offsetof(dur_work_item, member)
#define TEXT(name) DUR__FIELD(#name, DUR__FIELD_TEXT, OF(name), 0)
#define U64(name) DUR__FIELD(#name, DUR__FIELD_U64, OF(name), 0)
#define U64_FLAG(name) DUR__FIELD(#name, DUR__FIELD_U64, OF(name), OF(has_##name))

static const dur__field work_fields[FIELD_COUNT] = {
    [INSTANCE] = TEXT(instance),
    [ORCHESTRATION] = TEXT(orchestration),
    [EXECUTION_ID] = U64(execution_id),
    [ID] = U64(id),
    [NAME] = TEXT(name),
    [INPUT] = TEXT(input),
    [VERSION] = TEXT(version),
    [PARENT_INSTANCE] = TEXT(parent_instance),
    [PARENT_ID] = U64_FLAG(parent_id),
    [START_EXECUTION_ID] = U64(execution_id), /* a start has it behind the parent */
    [PARENT_EXECUTION_ID] = U64_FLAG(parent_execution_id),
    [PARENT_BIRTH] = U64(parent_birth),
    [BIRTH] = U64(birth),
    [DEPTH] = U64(depth),
    [RESULT] = TEXT(result),
    [DETAILS] = DUR__FIELD("details", DUR__FIELD_FAILURE, OF(details), 0),
    [FIRE_AT_MS] = U64(fire_at_ms),
    [DATA] = TEXT(data),
    [REASON] = TEXT(reason),
    [SESSION_ID] = TEXT(session_id),
    [TAG] = TEXT(tag),
    [CARRY_FORWARD_EVENTS] =
        DUR__FIELD("carry_forward_events", DUR__FIELD_CARRIED, OF(carry_forward_events), OF(carry_forward_count)),
    [INITIAL_CUSTOM_STATUS] = TEXT(initial_custom_status),
    [MESSAGE_ID] = TEXT(message_id),
    [ORCHESTRATION_NAME] = TEXT(orchestration_name),
    [ORCHESTRATION_VERSION] = TEXT(orchestration_version),
    [ATTEMPT] = U64(attempt),
    [CANCEL_SEQ] = U64(cancel_seq),
    [FIRST_ID] = U64(first_id),
    [TO_INSTANCE] = DUR__FIELD("parent_instance", DUR__FIELD_TEXT, OF(instance), 0),
    [TO_EXECUTION_ID] = DUR__FIELD("parent_execution_id", DUR__FIELD_U64, OF(execution_id), 0),
    [TO_ID] = DUR__FIELD("parent_id", DUR__FIELD_U64, OF(id), 0),
    [TO_BIRTH] = U64(parent_birth),
    [TO_RESULT] = TEXT(result),
    [TO_DETAILS] = DUR__FIELD("details", DUR__FIELD_FAILURE, OF(details), 0),
};
static const dur__record work_record = { work_fields, FIELD_COUNT };

#define CALL (BIT(INSTANCE) | BIT(EXECUTION_ID) | BIT(ID))
#define PARENT (BIT(PARENT_INSTANCE) | BIT(PARENT_ID) | BIT(PARENT_EXECUTION_ID) | BIT(PARENT_BIRTH))
#define TO_PARENT (BIT(TO_INSTANCE) | BIT(TO_EXECUTION_ID) | BIT(TO_ID))

#define ONE_MORE(upper, name, queue) +1
enum { KIND_COUNT = 0 DUR_WORK_KINDS(ONE_MORE) };
#undef ONE_MORE

static const dur__shape work_shapes[KIND_COUNT] = {
    [DUR_WORK_START_ORCHESTRATION] = { BIT(INSTANCE) | BIT(ORCHESTRATION) | BIT(INPUT), BIT(START_EXECUTION_ID),
                                       BIT(VERSION) | PARENT | BIT(BIRTH) | BIT(DEPTH) },
    [DUR_WORK_CONTINUE_AS_NEW] = { BIT(INSTANCE) | BIT(ORCHESTRATION) | BIT(INPUT), BIT(CARRY_FORWARD_EVENTS),
                                   BIT(VERSION) | PARENT | BIT(BIRTH) | BIT(DEPTH) | BIT(INITIAL_CUSTOM_STATUS) },
    [DUR_WORK_ACTIVITY_EXECUTE] = { CALL | BIT(NAME) | BIT(INPUT), 0,
                                    BIT(SESSION_ID) | BIT(TAG) | BIT(ORCHESTRATION_NAME) | BIT(ORCHESTRATION_VERSION) |
                                        BIT(ATTEMPT) | BIT(FIRST_ID) | BIT(BIRTH) },
    [DUR_WORK_ACTIVITY_COMPLETED] = { CALL | BIT(RESULT), 0, 0 },
    [DUR_WORK_ACTIVITY_FAILED] = { CALL | BIT(DETAILS), 0, 0 },
    [DUR_WORK_TIMER_FIRED] = { CALL | BIT(FIRE_AT_MS), 0, 0 },
    [DUR_WORK_EXTERNAL_RAISED] = { BIT(INSTANCE) | BIT(NAME) | BIT(DATA), 0, BIT(MESSAGE_ID) },
    [DUR_WORK_QUEUE_MESSAGE] = { BIT(INSTANCE) | BIT(NAME) | BIT(DATA), 0, BIT(MESSAGE_ID) },
    [DUR_WORK_SUB_ORCH_COMPLETED] = { TO_PARENT | BIT(TO_RESULT), 0, BIT(TO_BIRTH) },
    [DUR_WORK_SUB_ORCH_FAILED] = { TO_PARENT | BIT(TO_DETAILS), 0, BIT(TO_BIRTH) },
    [DUR_WORK_CANCEL_INSTANCE] = { BIT(INSTANCE) | BIT(REASON), 0, PARENT | BIT(CANCEL_SEQ) },
};

typedef struct kind_info {
    const char *name;
    size_t size;
} kind_info;

static const kind_info kinds[KIND_COUNT] = {
#define KIND_INFO(upper, name, queue) { name, sizeof(name) - 1 },
    DUR_WORK_KINDS(KIND_INFO)
#undef KIND_INFO
};

const char *dur_work_kind_name(dur_work_kind kind) {
    return (unsigned)kind < KIND_COUNT ? kinds[kind].name : "?";
}

static dur_work_kind kind_find(dur_text name) {
    unsigned i = 0;
    while (i < KIND_COUNT && (kinds[i].size != name.size || memcmp(kinds[i].name, name.data, name.size) != 0))
        i++;
    return i < KIND_COUNT ? (dur_work_kind)i : DUR_WORK_UNKNOWN;
}

/* ---- writing ---- */

#define USUAL_BYTES 400u

void dur__work_encode(dur__buf *out, const dur_work_item *item) {
    DUR_ASSERT((unsigned)item->kind < KIND_COUNT);
    dur__buf_add(out, "{\"", 2);
    dur__buf_add(out, kinds[item->kind].name, kinds[item->kind].size);
    dur__buf_add(out, "\":", 2);
    size_t open = out->size;
    dur__record_write(out, &work_record, &work_shapes[item->kind], item);
    out->data[open] = '{'; /* the first field's comma */
    dur__buf_add(out, "}}", 2);
}

int dur_work_to_json(dur_text *out, dur_arena *arena, const dur_work_item *item, dur_error *err) {
    dur__buf buf = { .arena = arena };
    if (out == NULL || arena == NULL || item == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "codec.write", "out, arena and item are required");
    if ((unsigned)item->kind >= KIND_COUNT)
        return dur_error_set(err, DUR_EINVAL, false, "codec.write", "work item: %d is no kind", (int)item->kind);
    int code = dur__record_check(&work_record, &work_shapes[item->kind], item, kinds[item->kind].name, err);
    if (code != DUR_OK) return code;
    dur__buf_grow(&buf, USUAL_BYTES);
    dur__work_encode(&buf, item);
    *out = (dur_text){ buf.data, buf.size };
    return DUR_OK;
}

static const char *handler_of(dur_arena *arena, const dur_work_item *item) {
    if (item->kind == DUR_WORK_ACTIVITY_EXECUTE) return dur_arena_strdup(arena, item->name);
    if (item->kind != DUR_WORK_START_ORCHESTRATION && item->kind != DUR_WORK_CONTINUE_AS_NEW) return NULL;
    return dur_handler_key(arena, item->orchestration, item->version);
}

/* An id belongs to a queue, and stores know ids of instances: the size keeps two queues' names and ids apart. */
static const char *message_key(dur_arena *arena, const dur_work_item *item) {
    if (item->kind == DUR_WORK_EXTERNAL_RAISED) return dur_arena_strdup(arena, item->message_id);
    if (item->kind != DUR_WORK_QUEUE_MESSAGE || item->message_id == NULL) return NULL;
    const char *queue = item->name != NULL ? item->name : "";
    return dur_arena_format(arena, "%zu:%s/%s", strlen(queue), queue, item->message_id);
}

int dur_message_row_from_work(dur_message_row *out, dur_arena *arena, const dur_work_item *item, dur_error *err) {
    dur_text json;
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, "codec.write", "out is required");
    int code = dur_work_to_json(&json, arena, item, err);
    if (code != DUR_OK) return code;
    bool is_activity = item->kind == DUR_WORK_ACTIVITY_EXECUTE;
    bool is_timer = item->kind == DUR_WORK_TIMER_FIRED;
    bool is_queue = item->kind == DUR_WORK_QUEUE_MESSAGE;
    *out = (dur_message_row){
        .kind = item->kind,
        .instance = dur_arena_strdup(arena, item->instance),
        .execution_id = is_activity || is_timer ? item->execution_id : 0,
        .activity_id = is_activity || is_timer ? item->id : 0,
        .session_id = is_activity ? dur_arena_strdup(arena, item->session_id) : NULL,
        .tag = is_activity ? dur_arena_strdup(arena, item->tag) : NULL,
        .queue = is_queue ? dur_arena_strdup(arena, item->name) : NULL,
        .message_id = message_key(arena, item),
        .handler = handler_of(arena, item),
        .parent = item->kind == DUR_WORK_START_ORCHESTRATION ? dur_arena_strdup(arena, item->parent_instance) : NULL,
        .due_ms = is_timer ? item->fire_at_ms : 0,
        .json = json,
    };
    return DUR_OK;
}

/* ---- reading ---- */

static bool work_read(dur__json *json, dur_work_item *out) {
    bool first = true;
    dur_text key;
    if (dur__json_peek(json) == '"') { /* a variant without fields: none of ours, perhaps of a later version */
        if (!dur__json_string(json, &key.data, &key.size)) return false;
        if (kind_find(key) == DUR_WORK_UNKNOWN)
            return dur__json_fail(json, DUR_EUNSUPPORTED, key.data, "unknown kind \"%.100s\"", key.data);
        return dur__json_fail(json, DUR_ECORRUPT, NULL, "%s without fields", key.data);
    }
    if (!dur__json_open(json, '{', "an object")) return false;
    if (!dur__json_member(json, &first, &key)) return dur__json_fail(json, DUR_ECORRUPT, NULL, "no kind");
    out->kind = kind_find(key);
    if (out->kind == DUR_WORK_UNKNOWN)
        return dur__json_fail(json, DUR_EUNSUPPORTED, key.data, "unknown kind \"%.100s\"", key.data);
    if (out->kind == DUR_WORK_START_ORCHESTRATION) out->execution_id = 1; /* where an older writer left it out */
    if (!dur__record_read(json, &work_record, &work_shapes[out->kind], kinds[out->kind].name, out)) return false;
    if (dur__json_more(json, '}', &first)) return dur__json_fail(json, DUR_ECORRUPT, NULL, "more than one kind");
    return json->code == DUR_OK;
}

int dur_work_from_json(dur_work_item *out, dur_arena *arena, dur_text text, dur_error *err) {
    dur__json json;
    if (out == NULL || arena == NULL || (text.data == NULL && text.size > 0))
        return dur_error_set(err, DUR_EINVAL, false, "codec.read", "out, arena and a text are required");
    memset(out, 0, sizeof(*out));
    out->kind = DUR_WORK_UNKNOWN;
    dur__json_begin(&json, arena, text, "work item", err);
    work_read(&json, out);
    return dur__json_end(&json, text);
}
