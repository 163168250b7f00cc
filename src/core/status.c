/*
 * status.c: names of statuses, and events as rows of a store.
 */
#include "base/buf.h"
#include <durite/sys/provider_methods.h>

static const char *const status_names[] = {
    [DUR_STATUS_NONE] = "NotFound",
    [DUR_STATUS_RUNNING] = "Running",
    [DUR_STATUS_COMPLETED] = "Completed",
    [DUR_STATUS_FAILED] = "Failed",
    [DUR_STATUS_CONTINUED_AS_NEW] = "ContinuedAsNew",
};

const char *dur_status_name(dur_status status) {
    return (unsigned)status <= DUR_STATUS_CONTINUED_AS_NEW ? status_names[status] : "?";
}

dur_status dur_status_from_name(const char *name) {
    for (int i = DUR_STATUS_RUNNING; i <= DUR_STATUS_CONTINUED_AS_NEW; i++) {
        if (dur__str_eq(status_names[i], name)) return (dur_status)i;
    }
    return DUR_STATUS_NONE;
}

int dur_event_row_from(dur_event_row *out, dur_arena *arena, const dur_event *event, dur_error *err) {
    dur_text json;
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, "codec.write", "out is required");
    int code = dur_event_to_json(&json, arena, event, err);
    if (code != DUR_OK) return code;
    *out = (dur_event_row){ .event_id = event->event_id, .kind = event->kind, .json = json };
    if (event->kind == DUR_EVENT_CUSTOM_STATUS_UPDATED) {
        out->value = dur_arena_strdup(arena, event->status);
    } else if (event->kind == DUR_EVENT_KEY_VALUE_SET) {
        out->key = dur_arena_strdup(arena, event->key);
        out->value = dur_arena_strdup(arena, event->value);
        out->stamp_ms = event->last_updated_at_ms;
    } else if (event->kind == DUR_EVENT_KEY_VALUE_CLEARED) {
        out->key = dur_arena_strdup(arena, event->key);
    }
    return DUR_OK;
}
