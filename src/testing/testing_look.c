/*
 * testing_look.c: what a test asks: how an instance stands, what it waits for, what its history holds; and histories as
 * files.
 */
#include "testing_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- how it stands ---- */

dur_instance_status dur_test_status(dur_test *t, const char *instance) {
    if (t == NULL || instance == NULL) return DUR_INSTANCE_NOT_FOUND;
    dur_instance_info *info = NULL;
    dur__test_enter(t);
    if (dur_client_info(&info, t->client, instance, NULL) != DUR_OK) return DUR_INSTANCE_NOT_FOUND;
    dur_instance_status status = info->status;
    dur_instance_info_free(info);
    return status;
}

const char *dur_test_output(dur_test *t, const char *instance) {
    if (t == NULL || instance == NULL) return NULL;
    dur_instance_info *info = NULL;
    dur__test_enter(t);
    if (dur_client_info(&info, t->client, instance, NULL) != DUR_OK) return NULL;
    bool ended = info->status == DUR_INSTANCE_COMPLETED || info->status == DUR_INSTANCE_FAILED;
    const char *output = NULL;
    if (ended) output = dur__test_strdup(t, info->output != NULL ? info->output : "");
    dur_instance_info_free(info);
    return output;
}

/* ---- what it waits for ---- */

static int read_events(dur_test *t, dur_arena *arena, const char *instance, uint64_t execution_id, dur_event **out,
                       size_t *count) {
    *count = 0;
    *out = NULL;
    if (arena == NULL) return DUR_ENOMEM;
    return dur_store_read_events(t->store, arena, instance, execution_id, out, count, NULL);
}

static bool is_wait(const dur_event *event, dur_wait_kind *kind) {
    switch (event->kind) {
    case DUR_EVENT_TIMER_CREATED:
        *kind = DUR_WAIT_TIMER;
        return true;
    case DUR_EVENT_ACTIVITY_SCHEDULED:
        *kind = DUR_WAIT_ACTIVITY;
        return event->name != NULL && strncmp(event->name, "__", 2) != 0; /* the engine's own */
    case DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED:
        *kind = DUR_WAIT_CHILD;
        return true;
    case DUR_EVENT_EXTERNAL_SUBSCRIBED:
        *kind = DUR_WAIT_PULSE;
        return true;
    case DUR_EVENT_QUEUE_SUBSCRIBED:
        *kind = DUR_WAIT_MESSAGE;
        return true;
    default:
        return false;
    }
}

/* An event goes to the oldest wait of its name, and so does a queue's message; all else names what it answers. */
static bool answers(const dur_event *event, const dur_event *wait) {
    bool raised = event->kind == DUR_EVENT_EXTERNAL_EVENT && wait->kind == DUR_EVENT_EXTERNAL_SUBSCRIBED;
    bool queued = event->kind == DUR_EVENT_QUEUE_EVENT_DELIVERED && wait->kind == DUR_EVENT_QUEUE_SUBSCRIBED;
    if (raised || queued) return event->name != NULL && wait->name != NULL && strcmp(event->name, wait->name) == 0;
    return event->has_source_event_id && event->source_event_id == wait->event_id;
}

/* The indexes of open waits, in order; *out is free's. */
static size_t open_waits(const dur_event *events, size_t count, size_t **out) {
    size_t *open = NULL, open_count = 0, room = 0;
    dur_wait_kind kind;
    for (size_t i = 0; i < count; i++) {
        if (dur_event_kind_role(events[i].kind) == DUR_EVENT_ROLE_TERMINAL) open_count = 0;
        for (size_t w = 0; w < open_count; w++) {
            if (!answers(&events[i], &events[open[w]])) continue;
            memmove(open + w, open + w + 1, (--open_count - w) * sizeof(*open));
            break;
        }
        if (is_wait(&events[i], &kind)) {
            open = dur__grow(open, open_count, &room, sizeof(*open));
            open[open_count++] = i;
        }
    }
    *out = open;
    return open_count;
}

bool dur_test_waits(dur_test *t, const char *instance, dur_wait_kind kind, const char *name) {
    if (t == NULL || instance == NULL) return false;
    dur_event *events;
    size_t count, open_count = 0, *open = NULL;
    bool found = false;
    dur__test_enter(t);
    dur_arena *arena = dur_arena_new();
    if (read_events(t, arena, instance, 0, &events, &count) == DUR_OK) open_count = open_waits(events, count, &open);
    for (size_t i = 0; i < open_count && !found; i++) {
        dur_wait_kind has = kind;
        const dur_event *event = &events[open[i]];
        found = is_wait(event, &has) && has == kind &&
                (name == NULL || (event->name != NULL && strcmp(event->name, name) == 0));
    }
    free(open);
    dur_arena_free(arena);
    return found;
}

static void describe(dur_test *t, const dur_event *event, dur__lines *out) {
    dur_wait_kind kind = DUR_WAIT_TIMER;
    uint64_t now_ms = dur_test_now_ms(t);
    (void)is_wait(event, &kind);
    if (out->size > 0) dur__lines_add(out, "; ");
    switch (kind) {
    case DUR_WAIT_TIMER:
        dur__lines_add(out, "timer in %llu ms",
                       (unsigned long long)(event->fire_at_ms > now_ms ? event->fire_at_ms - now_ms : 0));
        break;
    case DUR_WAIT_ACTIVITY:
        dur__lines_add(out, "activity %s(\"%.80s\")%s", event->name, event->input != NULL ? event->input : "",
                       dur__test_find_activity(t, event->name) == NULL ? ", which is not registered here" : "");
        break;
    case DUR_WAIT_CHILD:
        dur__lines_add(out, "child %s (%s)", event->name, event->instance);
        break;
    case DUR_WAIT_PULSE:
        dur__lines_add(out, "pulse %s", event->name);
        break;
    case DUR_WAIT_MESSAGE:
        dur__lines_add(out, "message %s", event->name);
        break;
    }
}

const char *dur_test_waits_text(dur_test *t, const char *instance) {
    if (t == NULL || instance == NULL) return "no such instance";
    dur_instance_info *info = NULL;
    dur__test_enter(t);
    if (dur_client_info(&info, t->client, instance, NULL) != DUR_OK) return "no such instance";
    dur__lines lines = { 0 };
    if (info->status == DUR_INSTANCE_COMPLETED || info->status == DUR_INSTANCE_FAILED) {
        bool failed = info->status == DUR_INSTANCE_FAILED;
        dur__lines_add(&lines, "%s: %s", failed ? "failed" : "completed", info->output != NULL ? info->output : "");
    } else {
        dur_event *events;
        size_t count, *open;
        dur_arena *arena = dur_arena_new();
        int code = read_events(t, arena, instance, 0, &events, &count);
        size_t open_count = open_waits(events, count, &open);
        for (size_t i = 0; i < open_count; i++)
            describe(t, &events[open[i]], &lines);
        free(open);
        dur_arena_free(arena);
        if (info->no_handler != NULL)
            dur__lines_add(&lines, "%sa handler %s", lines.size > 0 ? "; " : "", info->no_handler);
        if (info->suspended)
            dur__lines_add(&lines, "%sto be resumed: %s", lines.size > 0 ? "; " : "",
                           info->suspend_reason != NULL ? info->suspend_reason : "");
        if (lines.size == 0 && code == DUR_OK) dur__lines_add(&lines, count == 0 ? "its beginning" : "nothing");
        if (lines.size == 0) dur__lines_add(&lines, "%s", dur_code_text(code));
    }
    dur_instance_info_free(info);
    const char *out = dur__test_strdup(t, lines.data);
    free(lines.data);
    return out;
}

size_t dur_test_events(dur_test *t, const char *instance, const char *kind) {
    if (t == NULL || instance == NULL) return 0;
    dur_execution_list *list = NULL;
    size_t total = 0;
    dur__test_enter(t);
    if (dur_client_executions(&list, t->client, instance, NULL) != DUR_OK) return 0;
    dur_arena *arena = dur_arena_new();
    for (size_t e = 0; arena != NULL && e < list->count; e++) {
        dur_event *events;
        size_t count;
        (void)read_events(t, arena, instance, list->items[e]->execution_id, &events, &count);
        for (size_t i = 0; i < count; i++)
            total += kind == NULL || strcmp(dur_event_kind_name(events[i].kind), kind) == 0;
        dur_arena_reset(arena);
    }
    dur_arena_free(arena);
    dur_execution_list_free(list);
    return total;
}

/* ---- files ---- */

int dur_test_save_history(dur_test *t, const char *instance, const char *path, dur_error *err) {
    char *json = NULL;
    if (t == NULL || instance == NULL || path == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "test.save_history", "test, instance and path are required");
    dur__test_enter(t);
    int code = dur_client_history(&json, t->client, instance, 0, err);
    if (code != DUR_OK) return code;
    FILE *file = fopen(path, "wb");
    bool written = file != NULL && fputs(json, file) >= 0 && fputc('\n', file) != EOF;
    if (file != NULL && fclose(file) != 0) written = false;
    dur_free(json);
    if (!written) return dur_error_set(err, DUR_EIO, false, "test.save_history", "%s: %s", path, strerror(errno));
    return DUR_OK;
}

static int read_file(dur__lines *out, const char *path, dur_error *err) {
    static const char op[] = "test.replay_file";
    char part[4096];
    size_t size;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return dur_error_set(err, errno == ENOENT ? DUR_ENOTFOUND : DUR_EIO, false, op, "%s: %s", path,
                             strerror(errno));
    while ((size = fread(part, 1, sizeof(part), file)) > 0)
        dur__lines_add(out, "%.*s", (int)size, part);
    bool failed = ferror(file) != 0;
    fclose(file);
    return failed ? dur_error_set(err, DUR_EIO, false, op, "%s cannot be read", path) : DUR_OK;
}

int dur_test_replay_file(dur_replay_report *out, const dur_handler *handlers, const char *path, dur_error *err) {
    dur__lines json = { 0 };
    if (handlers == NULL || path == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "test.replay_file", "handlers and a path are required");
    int code = read_file(&json, path, err);
    if (code == DUR_OK) code = dur_replay_history(out, handlers, json.data != NULL ? json.data : "", err);
    free(json.data);
    return code;
}
