/*
 * ending.c: ending an instance whose handler cannot be asked: poison, a history that cannot be read, nondeterminism
 * under the policy "fail".  Terminal means terminal here too: open activities, timers and children go with it, and the
 * parent is told.
 */
#include "runtime/runtime_internal.h"

#include "core/limits.h"
#include "core/semver.h"
#include "core/unreported.h"
#include <durite/version.h>

/* What a history says about the instance as a whole. */
typedef struct story {
    dur_event started;
    bool has_started;
    bool corrupted; /* some of it cannot be read */
    uint64_t last_id;
    const dur_event **open; /* schedules without an answer */
    size_t open_count;
    dur__unreported letters;
} story;

static bool is_schedule(dur_event_kind kind) {
    return kind == DUR_EVENT_ACTIVITY_SCHEDULED || kind == DUR_EVENT_TIMER_CREATED ||
           kind == DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED;
}

static void note(story *known, dur__map *open, dur_event *event) {
    dur__unreported_note(&known->letters, event);
    if (event->kind == DUR_EVENT_ORCHESTRATION_STARTED) {
        known->started = *event;
        known->has_started = true;
    } else if (is_schedule(event->kind)) {
        dur__map_put_u64(open, event->event_id, event);
    } else if (event->has_source_event_id) {
        (void)dur__map_remove_u64(open, event->source_event_id);
    }
}

/* Event by event: one that cannot be read must not keep the others from being used. */
static int read_story(dur__inst *inst, dur_arena *arena, story *out, dur__map *open, dur_error *err) {
    dur_event_row *rows = NULL;
    size_t count = 0;
    int code = dur_store_read(inst->loop->runtime->store, arena, inst->id, inst->execution_id, &rows, &count, err);
    if (code == DUR_ECORRUPT) out->corrupted = true; /* a store that reads them itself */
    if (code != DUR_OK && code != DUR_ECORRUPT) return code;
    for (size_t i = 0; i < count; i++) {
        dur_event *event = dur_arena_alloc(arena, sizeof(*event));
        if (rows[i].event_id > out->last_id) out->last_id = rows[i].event_id;
        if (dur_event_from_json(event, arena, rows[i].json, NULL) == DUR_OK)
            note(out, open, event);
        else
            out->corrupted = true;
    }
    out->open = dur_arena_alloc(arena, (open->count + 1) * sizeof(dur_event *));
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(open, &i)) != NULL;)
        out->open[out->open_count++] = entry->value;
    return DUR_OK;
}

static void envelope(const dur__inst *inst, dur_event *event, dur_event_kind kind, uint64_t id) {
    *event = (dur_event){ .kind = kind,
                          .event_id = id,
                          .instance_id = inst->id,
                          .execution_id = inst->execution_id,
                          .timestamp_ms = inst->loop->now_ms,
                          .duroxide_version = DUR_VERSION };
}

static void synthetic_start(const dur__inst *inst, const dur_work_item *start, dur_event *event) {
    envelope(inst, event, DUR_EVENT_ORCHESTRATION_STARTED, 1);
    event->name = start->orchestration;
    event->version = start->version != NULL ? start->version : "0.0.0";
    event->input = start->input != NULL ? start->input : "";
    dur__parent parent = DUR__PARENT_OF(start);
    DUR__PARENT_SET(event, &parent);
    /* also one that never ran is somebody: without a birth it would pass for the parent of whoever names its id */
    event->birth = start->birth;
    if (start->kind == DUR_WORK_START_ORCHESTRATION && start->birth == 0)
        event->birth = dur__birth_new(inst->loop->runtime->world);
    event->initial_custom_status = start->initial_custom_status;
    event->carry_forward_events = start->carry_forward_events;
    event->carry_forward_count = start->carry_forward_count;
    event->trace = 1;
}

static int add_events(dur__inst *inst, const dur__ending *ending, story *known, dur_error *err) {
    dur_arena *arena = inst->commit_arena;
    dur_turn_commit *commit = inst->commit;
    dur_event_row *rows = dur_arena_zalloc(arena, 2 * sizeof(*rows));
    size_t count = 0;
    int code = DUR_OK;
    if (!known->has_started && !known->corrupted && ending->start != NULL) {
        synthetic_start(inst, ending->start, &known->started);
        dur__unreported_note(&known->letters, &known->started);
        known->has_started = true;
        known->last_id = 1;
        code = dur_event_row_from(&rows[count++], arena, &known->started, err);
        commit->metadata.orchestration_name = ending->start->orchestration;
        commit->metadata.orchestration_version = known->started.version;
        commit->metadata.parent_instance_id = ending->start->parent_instance;
        commit->metadata.parent_birth = ending->start->parent_birth;
        commit->metadata.birth = known->started.birth;
        commit->needs_parent = ending->start->parent_instance != NULL && inst->execution_id == 1;
        commit->metadata.has_pinned_version = dur__semver_parse(DUR_VERSION, &commit->metadata.pinned_version);
        commit->expected_last = 0;
    } else if (!known->corrupted) {
        commit->expected_last = known->last_id;
    }
    uint64_t id = known->last_id + 1;
    if (known->corrupted && id < DUR__CORRUPTED_EVENT_ID) id = DUR__CORRUPTED_EVENT_ID;
    dur_event failed;
    envelope(inst, &failed, DUR_EVENT_ORCHESTRATION_FAILED, id);
    failed.details = ending->failure;
    if (code == DUR_OK) code = dur_event_row_from(&rows[count++], arena, &failed, err);
    commit->events = rows;
    commit->event_count = count;
    return code;
}

/* Histories keep a child's id as it was made: "sub::N" stands for PARENT::sub::N. */
static const char *child_id(dur_arena *arena, const char *parent, const char *short_id) {
    if (short_id == NULL || strncmp(short_id, "sub::", 5) != 0) return short_id;
    return dur_arena_format(arena, "%s::%s", parent, short_id);
}

/* The event that names the parent cannot be read: the store may know who it is, and its history the call. */
static void ask_parent(dur__inst *inst, dur_arena *arena, story *known) {
    dur_provider *store = inst->loop->runtime->store;
    dur_instance_row row = { .instance_id = NULL }, parent = { .instance_id = NULL };
    dur_event_row *rows = NULL;
    size_t count = 0;
    if (known->has_started || !known->corrupted) return;
    if (dur_store_get_instance(store, arena, inst->id, &row, NULL) != DUR_OK || row.parent_instance_id == NULL) return;
    if (dur_store_get_instance(store, arena, row.parent_instance_id, &parent, NULL) != DUR_OK) return;
    uint64_t execution = parent.current_execution_id;
    if (dur_store_read(store, arena, row.parent_instance_id, execution, &rows, &count, NULL) != DUR_OK) return;
    for (size_t i = 0; i < count; i++) {
        dur_event event;
        if (dur_event_from_json(&event, arena, rows[i].json, NULL) != DUR_OK) continue;
        if (event.kind != DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED) continue;
        if (!dur__str_eq(child_id(arena, row.parent_instance_id, event.instance), inst->id)) continue;
        /* the last such call is meant */
        dur__parent call = DUR__CALL(row.parent_instance_id, parent.birth, execution, event.event_id);
        known->started = (dur_event){ .kind = DUR_EVENT_ORCHESTRATION_STARTED, .birth = row.birth };
        DUR__PARENT_SET(&known->started, &call);
        known->has_started = true;
    }
}

static void push_message(dur__inst *inst, dur_message_row *messages, size_t *count, const dur_work_item *item,
                         uint64_t due_ms) {
    dur_error err = DUR_ERROR_INIT;
    if (dur_message_row_from_work(&messages[*count], inst->commit_arena, item, &err) == DUR_OK)
        messages[(*count)++].due_ms = due_ms;
    else
        dur__log(DUR_LOG_ERROR, DUR__LOG_RUNTIME, DUR__FIELDS(DUR__TEXT("instance_id", inst->id)), "%s", err.message);
}

static void add_effects(dur__inst *inst, const dur__ending *ending, const story *known) {
    dur_arena *arena = inst->commit_arena;
    dur_turn_commit *commit = inst->commit;
    dur_activity_ref *activities = dur_arena_zalloc(arena, (known->open_count + 1) * sizeof(*activities));
    dur_activity_ref *timers = dur_arena_zalloc(arena, (known->open_count + 1) * sizeof(*timers));
    size_t activity_count = 0, timer_count = 0, message_count = 0, letter_count = 0;
    const dur_carried *letters = dur__unreported_list(&known->letters, &letter_count);
    dur_message_row *messages = dur_arena_zalloc(arena, (known->open_count + letter_count + 1) * sizeof(*messages));
    for (size_t i = 0; i < known->open_count; i++) {
        const dur_event *event = known->open[i];
        dur_activity_ref ref = { .instance = inst->id,
                                 .execution_id = inst->execution_id,
                                 .activity_id = event->event_id };
        if (event->kind == DUR_EVENT_ACTIVITY_SCHEDULED)
            activities[activity_count++] = ref;
        else if (event->kind == DUR_EVENT_TIMER_CREATED)
            timers[timer_count++] = ref;
        else {
            dur__parent call = DUR__CALL(inst->id, known->started.birth, inst->execution_id, event->event_id);
            dur_work_item cancel = { .kind = DUR_WORK_CANCEL_INSTANCE,
                                     .instance = child_id(arena, inst->id, event->instance),
                                     .reason = "parent failed" };
            DUR__PARENT_SET(&cancel, &call);
            push_message(inst, messages, &message_count, &cancel, 0);
        }
    }
    if (known->has_started && known->started.parent_instance != NULL && known->started.has_parent_id) {
        dur__parent parent = DUR__PARENT_OF(&known->started);
        dur_work_item tell = { .kind = DUR_WORK_SUB_ORCH_FAILED, .details = ending->failure };
        dur__answer_to(&tell, &parent);
        push_message(inst, messages, &message_count, &tell, 0);
    }
    for (size_t i = 0; i < letter_count; i++) {
        dur_work_item back = dur__unreported_back(inst->id, &letters[i]);
        push_message(inst, messages, &message_count, &back, DUR__DUE_FIRST);
    }
    commit->cancelled = activities;
    commit->cancelled_count = activity_count;
    commit->timers_dropped = timers;
    commit->timers_dropped_count = timer_count;
    commit->orchestrator_items = messages;
    commit->orchestrator_item_count = message_count;
}

static void add_consumed_messages(dur__inst *inst) {
    size_t count = 0;
    DUR__LIST_EACH(&inst->drained, at) count++;
    uint64_t *ids = dur_arena_alloc(inst->commit_arena, (count + 1) * sizeof(*ids));
    count = 0;
    DUR__LIST_EACH(&inst->drained, link) ids[count++] = DUR__CONTAINER(link, dur__letter, arrival.link)->message_id;
    inst->commit->consumed = ids;
    inst->commit->consumed_count = count;
}

/* The failure as it is told: its texts live in the commit. */
static const dur_failure *keep_failure(dur_arena *arena, const dur_failure *failure) {
    dur_failure *kept = dur_arena_alloc(arena, sizeof(*kept));
    *kept = *failure;
    kept->message = dur_arena_strdup(arena, failure->message != NULL ? failure->message : "");
    kept->resource = dur_arena_strdup(arena, failure->resource);
    kept->missing = dur_arena_strdup(arena, failure->missing);
    kept->reason = dur_arena_strdup(arena, failure->reason);
    kept->error = dur_arena_strdup(arena, failure->error);
    kept->instance = dur_arena_strdup(arena, failure->instance);
    return kept;
}

static int build(dur__inst *inst, const dur__ending *given, story *known, dur__map *open, dur_error *err) {
    dur_turn_commit *commit = inst->commit;
    dur__ending ending = *given;
    ending.failure = keep_failure(inst->commit_arena, given->failure);
    if (given->item != NULL) known->last_id = given->item->last_event_id;
    int code = read_story(inst, inst->commit_arena, known, open, err);
    known->corrupted |= given->corrupted;
    if (code == DUR_OK) ask_parent(inst, inst->commit_arena, known);
    if (code == DUR_OK) code = add_events(inst, &ending, known, err);
    if (code != DUR_OK) return code;
    add_effects(inst, &ending, known);
    add_consumed_messages(inst);
    commit->metadata.status = DUR_STATUS_FAILED;
    commit->metadata.output = dur_failure_display(inst->commit_arena, ending.failure);
    return DUR_OK;
}

/* Nothing has left yet, and a history is as long as it is. */
static int build_or_leave(dur__inst *inst, const dur__ending *given, story *known, dur__map *open, dur_error *err) {
    dur__way_out out;
    if (DUR__OUT_OF_MEMORY(&out)) return DUR__NO_MEMORY(err, "runtime.ending");
    int code = build(inst, given, known, open, err);
    dur__way_out_end(&out);
    return code;
}

int dur__ending_build(dur__inst *inst, const dur__ending *given, dur_error *err) {
    dur__commit_end(inst);
    (void)dur__commit_begin(inst);
    story known = { .letters = { .arena = inst->commit_arena } };
    dur__map open = { 0 };
    int code = build_or_leave(inst, given, &known, &open, err);
    if (code != DUR_OK) dur__commit_end(inst);
    dur__map_free(&open);
    dur__unreported_free(&known.letters);
    return code;
}

dur_failure dur__cancelled_by(const dur_work_item *request) {
    const char *reason = request->reason != NULL ? request->reason : "";
    return (dur_failure){
        .category = DUR_FAILURE_APPLICATION, .kind = DUR_FAILURE_CANCELLED, .message = reason, .reason = reason
    };
}

void dur__ending_refuse_start(dur_work_item *out, dur_arena *arena, const dur_work_item *start) {
    dur_failure *failure = dur_arena_zalloc(arena, sizeof(*failure));
    failure->category = DUR_FAILURE_APPLICATION;
    failure->kind = DUR_FAILURE_ORCHESTRATION_FAILED;
    failure->message = dur_arena_format(arena, "instance \"%s\" already exists", start->instance);
    dur__parent parent = DUR__PARENT_OF(start);
    *out = (dur_work_item){ .kind = DUR_WORK_SUB_ORCH_FAILED, .details = failure };
    dur__answer_to(out, &parent);
}
