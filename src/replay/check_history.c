/*
 * check_history.c: dur_replay_history: a saved history against today's code, without a store or threads.
 */
#include "replay/engine.h"
#include <durite/replay.h>
#include <inttypes.h>

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
        report->events++;
    }
    if (code == DUR_OK) code = dur__exec_replay_end(exec, err);
    report->finished = dur__exec_finished(exec);
    return code;
}

/* What an execution leaves to the next: copies in the arena. */
typedef struct left_keys {
    dur_arena *arena;
    const char *instance; /* NULL: this is the first */
    uint64_t execution_id;
    dur_key_value *keys;
    size_t count;
} left_keys;

static int no_memory(dur_error *err) {
    return dur_error_set(err, DUR_ENOMEM, true, "replay", "out of memory");
}

static void keep_keys(left_keys *left, const dur__exec *exec, const dur_event *started) {
    left->instance = dur_arena_strdup(left->arena, started->instance_id);
    left->execution_id = started->execution_id;
    left->count = exec->kv.count;
    left->keys = dur_arena_alloc(left->arena, (left->count + 1) * sizeof(*left->keys));
    for (size_t i = 0; i < left->count; i++)
        left->keys[i] = (dur_key_value){ .key = dur_arena_strdup(left->arena, exec->kv.entries[i].key),
                                         .value = dur_arena_strdup(left->arena, exec->kv.entries[i].value),
                                         .last_updated_at_ms = exec->kv.entries[i].stamp_ms };
}

static bool kept_keys(left_keys *left, const dur__exec *exec, const dur_event *started) {
    dur__way_out out;
    if (DUR__OUT_OF_MEMORY(&out)) return false;
    keep_keys(left, exec, started);
    dur__way_out_end(&out);
    return true;
}

static int read_history(dur_event **events, size_t *count, dur_arena *arena, const char *json, dur_error *err) {
    dur__way_out out;
    if (DUR__OUT_OF_MEMORY(&out)) return no_memory(err);
    int code = dur_history_from_json(events, count, arena, (dur_text){ json, strlen(json) }, err);
    dur__way_out_end(&out);
    return code;
}

static int begins(const left_keys *left, const dur_event *events, size_t count, dur_error *err) {
    if (count == 0 || events[0].kind != DUR_EVENT_ORCHESTRATION_STARTED)
        return dur_error_set(err, DUR_ECORRUPT, false, "replay", "a history must begin with OrchestrationStarted");
    if (left->instance != NULL &&
        (!dur__str_eq(left->instance, events[0].instance_id) || left->execution_id + 1 != events[0].execution_id))
        return dur_error_set(err, DUR_EINVAL, false, "replay",
                             "execution %" PRIu64 " of %s does not follow execution %" PRIu64 " of %s",
                             events[0].execution_id, events[0].instance_id, left->execution_id, left->instance);
    return DUR_OK;
}

static int replay_one(dur_replay_report *report, left_keys *left, dur__stacks *stacks, const dur_handler *handlers,
                      const char *history_json, dur_error *err) {
    if (history_json == NULL) return dur_error_set(err, DUR_EINVAL, false, "replay", "a history is NULL");
    dur_event *events = NULL;
    size_t count = 0;
    dur_arena *arena = dur_arena_new();
    if (arena == NULL) return no_memory(err);
    int code = read_history(&events, &count, arena, history_json, err);
    if (code == DUR_OK) code = begins(left, events, count, err);
    DUR_ASSERT(code != DUR_OK || events != NULL);
    const dur_handler *handler = code == DUR_OK ? find_handler(handlers, events[0].name, events[0].version) : NULL;
    if (handler != NULL) {
        dur__exec *exec = dur__exec_new(&(dur__exec_options){ .instance = events[0].instance_id,
                                                              .execution_id = events[0].execution_id,
                                                              .name = events[0].name,
                                                              .version = events[0].version,
                                                              .fn = handler->orchestration,
                                                              .data = handler->data,
                                                              .unwind = handler->unwind,
                                                              .stack_bytes = handler->stack_bytes,
                                                              .stacks = stacks,
                                                              .kv = left->keys,
                                                              .kv_count = left->count,
                                                              .random = no_random });
        code = exec != NULL ? replay_all(report, exec, events, count, err) : no_memory(err);
        if (exec != NULL && code == DUR_OK && !kept_keys(left, exec, &events[0])) code = no_memory(err);
        dur__exec_free(exec);
    } else if (code == DUR_OK) {
        code = dur_error_set(err, DUR_ENOTFOUND, false, "replay", "no handler for orchestration %s version %s",
                             events[0].name, events[0].version);
    }
    dur_arena_free(arena);
    return code;
}

int dur_replay_histories(dur_replay_report *out, const dur_handler *handlers, const char *const *histories_json,
                         size_t count, dur_error *err) {
    if (handlers == NULL || histories_json == NULL || count == 0)
        return dur_error_set(err, DUR_EINVAL, false, "replay", "handlers and at least one history are required");
    dur_replay_report report = { .size = sizeof(report) };
    left_keys left = { .arena = dur_arena_new() };
    dur__stacks *stacks = dur__stacks_new();
    int code = DUR_OK;
    if (left.arena == NULL || stacks == NULL) code = no_memory(err);
    for (size_t i = 0; i < count && code == DUR_OK; i++)
        code = replay_one(&report, &left, stacks, handlers, histories_json[i], err);
    if (out != NULL) {
        size_t size = out->size != 0 && out->size < sizeof(report) ? out->size : sizeof(report);
        report.size = out->size;
        memcpy(out, &report, size);
    }
    dur__stacks_free(stacks);
    dur_arena_free(left.arena);
    return code;
}

int dur_replay_history(dur_replay_report *out, const dur_handler *handlers, const char *history_json, dur_error *err) {
    return dur_replay_histories(out, handlers, &history_json, 1, err);
}
