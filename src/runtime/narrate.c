/*
 * narrate.c: the log lines of a life: a runtime that starts, executions and activities that begin and end.
 *
 * Ordinary ends are for DEBUG; what somebody may want to look at is louder.  Nothing of a payload appears, and reasons
 * that an application gave are payloads.
 */
#include "runtime/runtime_internal.h"
#include <durite/version.h>

void dur__narrate_start(dur_runtime *runtime) {
    dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME,
             DUR__FIELDS(DUR__TEXT("version", dur_version()), DUR__TEXT("provider", dur_provider_name(runtime->store)),
                         DUR__TEXT("owner", dur_runtime_owner(runtime)),
                         DUR__TEXT("replay_version_min", runtime->options.replay_version_min != NULL
                                                             ? runtime->options.replay_version_min
                                                             : "0.0.0"),
                         DUR__TEXT("replay_version_max", runtime->options.replay_version_max)),
             "runtime \"%s\" has started", runtime->options.name);
}

static dur_log_level failure_level(const dur_failure *failure) {
    if (failure == NULL) return DUR_LOG_ERROR;
    bool cancelled = failure->category == DUR_FAILURE_APPLICATION && failure->kind == DUR_FAILURE_CANCELLED;
    bool ours = failure->category == DUR_FAILURE_INFRASTRUCTURE || failure->category == DUR_FAILURE_CONFIGURATION;
    return cancelled ? DUR_LOG_INFO : ours ? DUR_LOG_ERROR : DUR_LOG_WARN;
}

static void execution_line(const dur__inst *inst, dur_log_level level, const char *outcome, const char *message) {
    dur__log(level, DUR__LOG_ORCHESTRATION,
             DUR__FIELDS(DUR__TEXT("instance_id", inst->id), DUR__NUMBER("execution_id", inst->execution_id),
                         DUR__TEXT("orchestration_name", inst->handler->name),
                         DUR__TEXT("orchestration_version", inst->handler->version), DUR__TEXT("outcome", outcome),
                         DUR__NUMBER("duration_ms", dur__exec_age_ms(inst->exec)),
                         DUR__NUMBER("history_events", dur__exec_last_event(inst->exec))),
             "%s", message);
}

void dur__narrate_turn(const dur__inst *inst, const dur__turn *turn) {
    if (inst->first_turn && dur__log_enabled(DUR_LOG_DEBUG))
        dur__log(DUR_LOG_DEBUG, DUR__LOG_ORCHESTRATION,
                 DUR__FIELDS(DUR__TEXT("instance_id", inst->id), DUR__NUMBER("execution_id", inst->execution_id),
                             DUR__TEXT("orchestration_name", inst->handler->name),
                             DUR__TEXT("orchestration_version", inst->handler->version)),
                 "orchestration started");
    if (turn->end == DUR__END_NOT) return;
    dur_log_level level = turn->end == DUR__END_FAILED ? failure_level(turn->failure) : DUR_LOG_DEBUG;
    if (!dur__log_enabled(level)) return;
    if (turn->end == DUR__END_COMPLETED)
        execution_line(inst, level, "success", "orchestration completed");
    else if (turn->end == DUR__END_CONTINUED)
        execution_line(inst, level, "continuedAsNew", "orchestration continued as new");
    else
        execution_line(inst, level, level == DUR_LOG_INFO ? "cancelled" : "failed",
                       level == DUR_LOG_INFO ? "orchestration cancelled" : "orchestration failed");
}

static void activity_line(const dur__task *task, dur_log_level level, const char *outcome, const char *message) {
    dur__log(level, DUR__LOG_ACTIVITY,
             DUR__FIELDS(DUR__TEXT("instance_id", task->item.instance),
                         DUR__NUMBER("execution_id", task->item.execution_id),
                         DUR__TEXT("activity_name", task->item.name), DUR__NUMBER("activity_id", task->item.id),
                         DUR__TEXT("activity_tag", task->item.tag != NULL ? task->item.tag : "default"),
                         DUR__TEXT("worker_id", task->worker_id), DUR__TEXT("outcome", outcome),
                         DUR__NUMBER("duration_ms", (dur__monotonic_us() - task->started_at_us) / 1000)),
             "%s", message);
}

void dur__narrate_activity_start(const dur__task *task) {
    if (dur__log_enabled(DUR_LOG_DEBUG)) activity_line(task, DUR_LOG_DEBUG, "", "activity started");
}

void dur__narrate_activity_end(const dur__task *task, bool cancelled) {
    const dur_work_item *end = &task->letter.arrival.item;
    if (cancelled) {
        if (dur__log_enabled(DUR_LOG_INFO)) activity_line(task, DUR_LOG_INFO, "cancelled", "activity cancelled");
    } else if (end->kind == DUR_WORK_ACTIVITY_COMPLETED) {
        if (dur__log_enabled(DUR_LOG_DEBUG)) activity_line(task, DUR_LOG_DEBUG, "success", "activity completed");
    } else if (end->details != NULL && end->details->category == DUR_FAILURE_APPLICATION) {
        if (dur__log_enabled(DUR_LOG_WARN)) activity_line(task, DUR_LOG_WARN, "app_error", "activity failed");
    } else if (dur__log_enabled(DUR_LOG_ERROR)) {
        activity_line(task, DUR_LOG_ERROR, "infra_error", "activity failed");
    }
}
