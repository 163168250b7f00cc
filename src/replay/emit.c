/*
 * emit.c: commands become events: new ones are encoded into the turn, stored ones are compared (match.c).
 */
#include "core/encode.h"
#include "core/limits.h"
#include "replay/engine.h"
#include <durite/version.h>
#include <inttypes.h>
#include <stdio.h>

/* Ids of children and detached starts that were not given: unique over all executions of the instance. */
static void fill_instance(dur__exec *exec, dur_event *event) {
    const char *own = exec->options.instance;
    uint64_t execution = exec->options.execution_id;
    if (event->instance != NULL) return;
    if (event->kind == DUR_EVENT_ORCHESTRATION_CHAINED)
        event->instance =
            dur_arena_format(exec->turn_arena, "%s::start::%" PRIu64 ".%" PRIu64, own, execution, event->event_id);
    else if (event->kind == DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED && execution <= 1)
        event->instance = dur_arena_format(exec->turn_arena, "%s::sub::%" PRIu64, own, event->event_id);
    else if (event->kind == DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED)
        event->instance =
            dur_arena_format(exec->turn_arena, "%s::sub::%" PRIu64 ".%" PRIu64, own, execution, event->event_id);
}

void dur__emit(dur__exec *exec, dur_event *event) {
    event->event_id = ++exec->last_id;
    event->instance_id = exec->options.instance;
    event->execution_id = exec->options.execution_id;
    event->timestamp_ms = exec->now_ms;
    event->duroxide_version = DUR_VERSION;
    if (event->kind == DUR_EVENT_KEY_VALUE_SET) event->last_updated_at_ms = exec->now_ms;
    fill_instance(exec, event);

    DUR__GROW(exec->rows, exec->row_count, exec->row_room);
    struct dur__row_at *row = &exec->rows[exec->row_count++];
    *row = (struct dur__row_at){ .row = { .event_id = event->event_id, .kind = event->kind }, .at = exec->json.size };
    if (event->kind == DUR_EVENT_CUSTOM_STATUS_UPDATED) {
        row->row.value = dur_arena_strdup(exec->turn_arena, event->status);
    } else if (event->kind == DUR_EVENT_KEY_VALUE_SET || event->kind == DUR_EVENT_KEY_VALUE_CLEARED) {
        row->row.key = dur_arena_strdup(exec->turn_arena, event->key);
        row->row.value = dur_arena_strdup(exec->turn_arena, event->value);
        row->row.stamp_ms = event->last_updated_at_ms;
    }
    dur__event_encode(&exec->json, event);
    row->row.json.size = exec->json.size - row->at;
    dur__buf_char(&exec->json, '\0'); /* rows are NUL-terminated texts, too */
    if (event->event_id == DUR__EVENTS_WARN)
        dur__log_held(exec, DUR_LOG_WARN, "the history has %d events: dur_continue_as_new would begin a new one",
                      (int)DUR__EVENTS_WARN);
}

bool dur__command(dur__exec *exec, dur_event *event, const char *site) {
    if (exec->broken != DUR_OK) return false;
    dur__exec_at(exec, site);
    if (exec->original) return dur__original_command(exec, event, NULL, NULL, NULL, site);
    if (exec->replaying) return dur__match(exec, event, site);
    dur__emit(exec, event);
    return true;
}

bool dur__command_pair(dur__exec *exec, dur_event *event, const char *made, const char **result, const char *site) {
    if (exec->broken != DUR_OK) return false;
    dur__exec_at(exec, site);
    if (exec->replaying) return dur__match_pair(exec, event, result, site);
    dur__emit(exec, event);
    dur_event answer = { .kind = DUR_EVENT_ACTIVITY_COMPLETED,
                         .has_source_event_id = true,
                         .source_event_id = event->event_id,
                         .result = made };
    dur__emit(exec, &answer);
    *result = made;
    return true;
}

void dur__break(dur__exec *exec, dur_code code, const char *format, ...) {
    if (exec->broken != DUR_OK) return; /* the first reason counts */
    char text[sizeof(exec->error.message)];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    exec->broken = code;
    dur_error_set(&exec->error, code, false, "replay", "%s", text);
}

void dur__log_vheld(dur__exec *exec, dur_log_level level, const char *format, va_list args) {
    DUR__GROW(exec->logs, exec->log_count, exec->log_room);
    exec->logs[exec->log_count++] = (dur__turn_log){ level, dur_arena_vformat(exec->turn_arena, format, args) };
}

void dur__log_held(dur__exec *exec, dur_log_level level, const char *format, ...) {
    if (exec->replaying) return;
    va_list args;
    va_start(args, format);
    dur__log_vheld(exec, level, format, args);
    va_end(args);
}

const dur_event *dur__event_copy(dur_arena *arena, const dur_event *event, dur_event *out) {
    *out = *event;
    const char **texts[] = {
        &out->name,   &out->version, &out->instance, &out->input,           &out->output,
        &out->result, &out->data,    &out->reason,   &out->session_id,      &out->tag,
        &out->status, &out->key,     &out->value,    &out->parent_instance, &out->initial_custom_status,
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (*texts[i] != NULL) *texts[i] = dur_arena_strdup(arena, *texts[i]);
    out->instance_id = NULL; /* the execution's own; nobody asks the copy */
    out->duroxide_version = NULL;
    if (event->carry_forward_count > 0) {
        dur_carried *carried = dur_arena_alloc(arena, event->carry_forward_count * sizeof(*carried));
        for (size_t i = 0; i < event->carry_forward_count; i++) {
            carried[i].name = dur_arena_strdup(arena, event->carry_forward_events[i].name);
            carried[i].data = dur_arena_strdup(arena, event->carry_forward_events[i].data);
        }
        out->carry_forward_events = carried;
    }
    if (event->details != NULL) out->details = dur__failure_copy(arena, event->details);
    return out;
}

const dur_failure *dur__failure_copy(dur_arena *arena, const dur_failure *failure) {
    dur_failure *copy = dur_arena_alloc(arena, sizeof(*copy));
    *copy = *failure;
    copy->operation = dur_arena_strdup(arena, failure->operation);
    copy->message = dur_arena_strdup(arena, failure->message);
    copy->resource = dur_arena_strdup(arena, failure->resource);
    copy->reason = dur_arena_strdup(arena, failure->reason);
    copy->said = dur_arena_strdup(arena, failure->said);
    copy->missing = dur_arena_strdup(arena, failure->missing);
    copy->instance = dur_arena_strdup(arena, failure->instance);
    copy->activity_name = dur_arena_strdup(arena, failure->activity_name);
    copy->error = dur_arena_strdup(arena, failure->error);
    return copy;
}
