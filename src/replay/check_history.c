/*
 * check_history.c: dur_replay_history: a saved history against today's code, without a store or threads.
 */
#include "replay/engine.h"
#include <durite/replay.h>

static const dur_handler *find_handler(const dur_handler *handlers, const char *name, const char *version) {
    for (; handlers->kind != DUR_HANDLER_END; handlers++) {
        if (handlers->kind != DUR_HANDLER_ORCHESTRATION || !dur__str_eq(handlers->name, name)) continue;
        if (strcmp(handlers->version != NULL ? handlers->version : "1.0.0", version) == 0) return handlers;
    }
    return NULL;
}

static void no_random(void *data, void *out, size_t size) {
    (void)data;
    memset(out, 0, size);
}

static int replay_all(dur_replay_report *report, dur__exec *exec, const dur_event *events, size_t count,
                      dur_error *err) {
    int code = DUR_OK;
    for (size_t i = 0; i < count && code == DUR_OK; i++) {
        code = dur__exec_replay_event(exec, &events[i], err);
        report->events = i + 1;
    }
    if (code == DUR_OK) code = dur__exec_replay_end(exec, err);
    report->finished = dur__exec_finished(exec);
    return code;
}

int dur_replay_history(dur_replay_report *out, const dur_handler *handlers, const char *history_json, dur_error *err) {
    if (handlers == NULL || history_json == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "replay", "handlers and history are required");
    dur_replay_report report = { .size = sizeof(report) };
    dur_event *events = NULL;
    size_t count = 0;
    dur__stacks *stacks = NULL;
    dur__exec *exec = NULL;
    dur_arena *arena = dur_arena_new();
    if (arena == NULL) return dur_error_set(err, DUR_ENOMEM, true, "replay", "no memory");
    int code = dur_history_from_json(&events, &count, arena, (dur_text){ history_json, strlen(history_json) }, err);
    if (code != DUR_OK) goto done;
    if (count == 0 || events[0].kind != DUR_EVENT_ORCHESTRATION_STARTED) {
        code = dur_error_set(err, DUR_ECORRUPT, false, "replay", "a history must begin with OrchestrationStarted");
        goto done;
    }
    const dur_handler *handler = find_handler(handlers, events[0].name, events[0].version);
    if (handler == NULL) {
        code = dur_error_set(err, DUR_ENOTFOUND, false, "replay", "no handler for orchestration %s version %s",
                             events[0].name, events[0].version);
        goto done;
    }
    stacks = dur__stacks_new();
    if (stacks == NULL) {
        code = dur_error_set(err, DUR_ENOMEM, true, "replay", "no memory for stacks");
        goto done;
    }
    exec = dur__exec_new(&(dur__exec_options){ .instance = events[0].instance_id,
                                               .execution_id = events[0].execution_id,
                                               .name = events[0].name,
                                               .version = events[0].version,
                                               .fn = handler->orchestration,
                                               .stack_bytes = handler->stack_bytes,
                                               .stacks = stacks,
                                               .random = no_random });
    code = replay_all(&report, exec, events, count, err);
done:
    if (out != NULL) {
        size_t size = out->size != 0 && out->size < sizeof(report) ? out->size : sizeof(report);
        report.size = out->size;
        memcpy(out, &report, size);
    }
    dur__exec_free(exec);
    dur__stacks_free(stacks);
    dur_arena_free(arena);
    return code;
}
