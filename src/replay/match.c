/*
 * match.c: stored commands against the ones that the code gives (R8), and the reports when they differ.
 *
 * The k-th command of a group is compared with its k-th record and takes id, stamp and answer from it.  A report names
 * the event, what history holds, what the code asked for and where, and a later record of the group that would have
 * matched. Payloads never appear in a report: of a text that differs it tells the sizes and the first byte that does.
 */
#include "core/unreported.h"
#include "replay/engine.h"
#include <inttypes.h>
#include <stdio.h>

bool dur__is_pair_name(const char *name) {
    size_t prefix = sizeof(DUR__SYSCALL) - 1;
    if (name == NULL || strncmp(name, DUR__SYSCALL, prefix) != 0) return false;
    const char *call = name + prefix;
    return strcmp(call, "utc_now_ms") == 0 || strcmp(call, "new_guid") == 0 || strcmp(call, "random") == 0 ||
           strcmp(call, "patched") == 0;
}

bool dur__is_marker(const dur_event *event) {
    return event->kind == DUR_EVENT_ACTIVITY_SCHEDULED && dur__str_eq(event->name, DUR__MARKER);
}

/* ---- in words ---- */

static void describe_activity(const dur_event *event, char *out, size_t size) {
    const char *name = event->name != NULL ? event->name : "?";
    if (dur__is_marker(event))
        snprintf(out, size, "marker \"%s\"", event->input != NULL ? event->input : "");
    else if (dur__is_pair_name(name))
        snprintf(out, size, "system call %s", name + sizeof(DUR__SYSCALL) - 1);
    else
        snprintf(out, size, "activity \"%s\"%s%s%s%s", name, event->tag != NULL ? " tag " : "",
                 event->tag != NULL ? event->tag : "", event->session_id != NULL ? " session " : "",
                 event->session_id != NULL ? event->session_id : "");
}

void dur__event_describe(const dur_event *event, char *out, size_t size) {
    const char *name = event->name != NULL ? event->name : "?";
    switch (event->kind) {
    case DUR_EVENT_ACTIVITY_SCHEDULED:
        describe_activity(event, out, size);
        break;
    case DUR_EVENT_TIMER_CREATED:
        snprintf(out, size, "timer");
        break;
    case DUR_EVENT_EXTERNAL_SUBSCRIBED:
        snprintf(out, size, "wait for pulse \"%s\"", name);
        break;
    case DUR_EVENT_QUEUE_SUBSCRIBED:
        snprintf(out, size, "wait for message \"%s\"", name);
        break;
    case DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED:
    case DUR_EVENT_ORCHESTRATION_CHAINED:
        snprintf(out, size, "%s \"%s\"%s%s%s%s",
                 event->kind == DUR_EVENT_ORCHESTRATION_CHAINED ? "detached orchestration" : "sub-orchestration", name,
                 event->version != NULL ? " version " : "", event->version != NULL ? event->version : "",
                 event->instance != NULL ? " as " : "", event->instance != NULL ? event->instance : "");
        break;
    case DUR_EVENT_CUSTOM_STATUS_UPDATED:
        snprintf(out, size, event->status != NULL ? "status set" : "status clear");
        break;
    case DUR_EVENT_KEY_VALUE_SET:
        snprintf(out, size, "set of key \"%s\"", event->key != NULL ? event->key : "?");
        break;
    case DUR_EVENT_KEY_VALUE_CLEARED:
        snprintf(out, size, "clear of key \"%s\"", event->key != NULL ? event->key : "?");
        break;
    case DUR_EVENT_KEY_VALUES_CLEARED:
        snprintf(out, size, "clear of all keys");
        break;
    case DUR_EVENT_ACTIVITY_CANCEL_REQUESTED:
        snprintf(out, size, "drop of activity #%" PRIu64, event->source_event_id);
        break;
    case DUR_EVENT_EXTERNAL_SUBSCRIBED_CANCELLED:
        snprintf(out, size, "drop of pulse wait #%" PRIu64, event->source_event_id);
        break;
    case DUR_EVENT_QUEUE_SUBSCRIPTION_CANCELLED:
        snprintf(out, size, "drop of message wait #%" PRIu64, event->source_event_id);
        break;
    case DUR_EVENT_SUB_ORCHESTRATION_CANCEL_REQUESTED:
        snprintf(out, size, "drop of sub-orchestration #%" PRIu64, event->source_event_id);
        break;
    case DUR_EVENT_ORCHESTRATION_COMPLETED:
        snprintf(out, size, "completion");
        break;
    case DUR_EVENT_ORCHESTRATION_FAILED:
        snprintf(out, size, "failure");
        break;
    case DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW:
        snprintf(out, size, "continue-as-new");
        break;
    default:
        snprintf(out, size, "%s", dur_event_kind_name(event->kind));
        break;
    }
}

/* ---- comparing ---- */

static const char *text_of(const char *text) {
    return text != NULL ? text : "";
}

static bool child_instance_fits(const dur__exec *exec, const dur_event *record, const dur_event *event) {
    char made[64];
    const char *recorded = text_of(record->instance), *own = exec->options.instance;
    if (event->instance != NULL) return strcmp(recorded, event->instance) == 0;
    size_t prefix = strlen(own);
    if (strncmp(recorded, own, prefix) == 0 && strncmp(recorded + prefix, "::", 2) == 0)
        recorded += prefix + 2;
    else if (record->kind == DUR_EVENT_ORCHESTRATION_CHAINED)
        return false;
    if (record->kind == DUR_EVENT_ORCHESTRATION_CHAINED) {
        snprintf(made, sizeof(made), "start::%" PRIu64 ".%" PRIu64, exec->options.execution_id, record->event_id);
        return strcmp(recorded, made) == 0;
    }
    snprintf(made, sizeof(made), "sub::%" PRIu64, record->event_id); /* also the short form of the original */
    if (strcmp(recorded, made) == 0) return true;
    snprintf(made, sizeof(made), "sub::%" PRIu64 ".%" PRIu64, exec->options.execution_id, record->event_id);
    if (strcmp(recorded, made) == 0) return true;
    snprintf(made, sizeof(made), "sub::%" PRIu64 "_%" PRIu64, exec->options.execution_id, record->event_id);
    return strcmp(recorded, made) == 0; /* the original since 0.1.30 */
}

/* Which field differs: NULL none, "" the thing itself. */
static const char *difference(const dur__exec *exec, const dur_event *record, const dur_event *event) {
    if (record->kind != event->kind) return "";
    switch (event->kind) {
    case DUR_EVENT_ACTIVITY_SCHEDULED:
        if (!dur__str_eq(record->name, event->name)) return "";
        if (strcmp(text_of(record->input), text_of(event->input)) != 0) return "input";
        if (!dur__str_eq(record->session_id, event->session_id)) return "session";
        return dur__str_eq(record->tag, event->tag) ? NULL : "tag";
    case DUR_EVENT_EXTERNAL_SUBSCRIBED:
    case DUR_EVENT_QUEUE_SUBSCRIBED:
        return dur__str_eq(record->name, event->name) ? NULL : "";
    case DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED:
    case DUR_EVENT_ORCHESTRATION_CHAINED:
        if (!dur__str_eq(record->name, event->name)) return "";
        if (strcmp(text_of(record->input), text_of(event->input)) != 0) return "input";
        if (!exec->original && !dur__str_eq(record->version, event->version)) return "version";
        return child_instance_fits(exec, record, event) ? NULL : "instance";
    case DUR_EVENT_KEY_VALUE_SET:
        if (!dur__str_eq(record->key, event->key)) return "";
        return strcmp(text_of(record->value), text_of(event->value)) == 0 ? NULL : "value";
    case DUR_EVENT_KEY_VALUE_CLEARED:
        return dur__str_eq(record->key, event->key) ? NULL : "";
    case DUR_EVENT_ACTIVITY_CANCEL_REQUESTED:
    case DUR_EVENT_EXTERNAL_SUBSCRIBED_CANCELLED:
    case DUR_EVENT_QUEUE_SUBSCRIPTION_CANCELLED:
    case DUR_EVENT_SUB_ORCHESTRATION_CANCEL_REQUESTED:
        return record->source_event_id == event->source_event_id ? NULL : "";
    default:
        return NULL; /* timers and status: the kind is enough; the end: that it ended so */
    }
}

bool dur__match_is_next(const dur__exec *exec, const dur_event *event) {
    const dur__group *group = &exec->group;
    return exec->replaying && group->next < group->count &&
           difference(exec, &group->records[group->next], event) == NULL;
}

static void explain(const char *field, const dur_event *record, const dur_event *event, char *out, size_t size) {
    out[0] = '\0';
    if (*field == '\0') return;
    bool input = strcmp(field, "input") == 0, value = strcmp(field, "value") == 0;
    if (!input && !value) {
        snprintf(out, size, " with another %s", field);
        return;
    }
    const char *a = text_of(input ? record->input : record->value), *b = text_of(input ? event->input : event->value);
    size_t same = 0;
    while (a[same] != '\0' && a[same] == b[same])
        same++;
    snprintf(out, size, " with another %s (%zu bytes recorded, %zu asked for, first difference at byte %zu)", field,
             strlen(a), strlen(b), same);
}

/* A later record of the group that the command would have fitted. */
static void nearest(const dur__exec *exec, const dur_event *event, char *out, size_t size) {
    out[0] = '\0';
    for (size_t i = exec->group.next; i < exec->group.count; i++) {
        if (difference(exec, &exec->group.records[i], event) != NULL) continue;
        snprintf(out, size, "; that stands at event %" PRIu64, exec->group.records[i].event_id);
        return;
    }
}

bool dur__match_compare(dur__exec *exec, const dur_event *record, const dur_event *event, const char *site) {
    const char *field = difference(exec, record, event);
    if (field == NULL) return true;
    char holds[160], asked[160], why[160], where[64];
    dur__event_describe(record, holds, sizeof(holds));
    dur__event_describe(event, asked, sizeof(asked));
    explain(field, record, event, why, sizeof(why));
    nearest(exec, event, where, sizeof(where));
    dur__break(exec, DUR_ENONDETERMINISM, "event %" PRIu64 ": history holds %s, the code asked for %s%s at %s%s",
               record->event_id, holds, asked, why, site != NULL ? site : "?", where);
    return false;
}

/* Does the answer of the system call at `at` stand behind it?  Both are recorded at once. */
static bool answered(const dur__group *group, size_t at) {
    return at + 1 < group->count && group->records[at + 1].kind == DUR_EVENT_ACTIVITY_COMPLETED &&
           group->records[at + 1].source_event_id == group->records[at].event_id;
}

/* Markers that the code no longer asks for are passed over (R9).  They are history all the same: what comes next gets
   an id behind theirs. */
static void skip_markers(dur__exec *exec) {
    dur__group *group = &exec->group;
    for (; group->next < group->count && dur__is_marker(&group->records[group->next]); group->next += 2) {
        if (!answered(group, group->next)) {
            dur__break(exec, DUR_ECORRUPT, "event %" PRIu64 ": the system call is not followed by its answer",
                       group->records[group->next].event_id);
            return;
        }
        exec->last_id = group->records[group->next + 1].event_id;
    }
}

static void take_record(dur__exec *exec, dur_event *event) {
    const dur_event *record = &exec->group.records[exec->group.next++];
    exec->last_id = record->event_id;
    event->event_id = record->event_id;
    event->timestamp_ms = record->timestamp_ms;
    event->fire_at_ms = record->fire_at_ms;
    event->last_updated_at_ms = record->last_updated_at_ms;
    if (record->instance != NULL) {
        bool brief = event->instance == NULL && strncmp(record->instance, "sub::", 5) == 0;
        event->instance = brief
                              ? dur_arena_format(exec->group.arena, "%s::%s", exec->options.instance, record->instance)
                              : record->instance;
    }
}

/* Editing a constant must not suspend a fleet: said, not refused. */
static void warn_changed(dur__exec *exec, const dur_event *record, const dur_event *event, const char *site) {
    const char *what = NULL;
    if (event->kind == DUR_EVENT_TIMER_CREATED && event->fire_at_ms != 0 && event->fire_at_ms != record->fire_at_ms)
        what = "timer with another duration";
    if (event->kind == DUR_EVENT_CUSTOM_STATUS_UPDATED && !dur__str_eq(event->status, record->status))
        what = "status with another text";
    if (what == NULL) return;
    DUR__GROW(exec->logs, exec->log_count, exec->log_room);
    exec->logs[exec->log_count++] =
        (dur__turn_log){ DUR_LOG_WARN,
                         dur_arena_format(exec->turn_arena,
                                          "event %" PRIu64 ": the code at %s asks for a %s than history holds",
                                          record->event_id, site != NULL ? site : "?", what) };
}

bool dur__match(dur__exec *exec, dur_event *event, const char *site) {
    dur__group *group = &exec->group;
    skip_markers(exec);
    if (exec->broken != DUR_OK) return false;
    if (group->next == group->count) {
        char asked[160];
        dur__event_describe(event, asked, sizeof(asked));
        dur__break(exec, DUR_ENONDETERMINISM,
                   "after event %" PRIu64
                   ": history holds no further command before the next arrival, the code asked for %s at %s",
                   exec->last_id, asked, site != NULL ? site : "?");
        return false;
    }
    const dur_event *record = &group->records[group->next];
    if (!dur__match_compare(exec, record, event, site)) return false;
    warn_changed(exec, record, event, site);
    take_record(exec, event);
    return true;
}

bool dur__match_pair(dur__exec *exec, dur_event *event, const char **result, const char *site) {
    if (!dur__match(exec, event, site)) return false;
    dur__group *group = &exec->group;
    if (!answered(group, group->next - 1)) {
        dur__break(exec, DUR_ENONDETERMINISM, "event %" PRIu64 ": the system call is not followed by its answer",
                   event->event_id);
        return false;
    }
    const dur_event *answer = &group->records[group->next++];
    *result = text_of(answer->result);
    exec->last_id = answer->event_id;
    return true;
}

bool dur__match_marker(dur__exec *exec, const char *id) {
    dur__group *group = &exec->group;
    for (size_t at = group->next; answered(group, at) && dur__is_marker(&group->records[at]); at += 2) {
        if (strcmp(text_of(group->records[at].input), id) != 0) continue;
        exec->last_id = group->records[at + 1].event_id;
        group->next = at + 2;
        return true;
    }
    return false;
}

bool dur__match_drop(dur__exec *exec, const dur__leaf *leaf) {
    dur__group *group = &exec->group;
    skip_markers(exec);
    return group->next < group->count && group->records[group->next].kind == DUR_EVENT_QUEUE_SUBSCRIPTION_CANCELLED &&
           group->records[group->next].source_event_id == leaf->id;
}

/* What is left can only be an end that came from outside: cancel grace, terminate, poison. */
static bool ended_outside(dur__exec *exec) {
    dur__group *group = &exec->group;
    const dur_event *last = &group->records[group->count - 1];
    if (exec->finished || last->kind != DUR_EVENT_ORCHESTRATION_FAILED || last->details == NULL) return false;
    if (last->details->category == DUR_FAILURE_APPLICATION && last->details->kind != DUR_FAILURE_CANCELLED)
        return false;
    for (size_t i = group->next; i + 1 < group->count; i++)
        if (dur_event_kind_role(group->records[i].kind) != DUR_EVENT_ROLE_DROP) return false;
    exec->last_id = last->event_id;
    group->next = group->count;
    return dur__finish_forced(exec, last);
}

bool dur__match_end(dur__exec *exec) {
    dur__group *group = &exec->group;
    skip_markers(exec);
    if (exec->broken != DUR_OK) return false;
    if (group->next == group->count || ended_outside(exec)) return true;
    const dur_event *record = &group->records[group->next];
    char holds[160], waits[160] = "nothing";
    dur__event_describe(record, holds, sizeof(holds));
    if (exec->finished)
        snprintf(waits, sizeof(waits), "nothing, it has ended");
    else
        dur__exec_waiting(exec, 0, waits, sizeof(waits));
    dur__break(exec, DUR_ENONDETERMINISM,
               "event %" PRIu64 ": history holds %s, the code did not ask for it (last call at %s; it waits for %s)",
               record->event_id, holds, exec->where != NULL ? exec->where : "?", waits);
    return false;
}
