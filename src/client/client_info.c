/*
 * client_info.c: what is known about one instance.
 *
 * A store with get_instance answers at once.  One with the required methods alone is asked for the newest history: its
 * first and last event say nearly the same, except that a start which no turn has consumed cannot be seen there.
 */
#include "client/client_internal.h"

#include "base/buf.h"

const char *dur_instance_status_name(dur_instance_status status) {
    static const char *const names[] = { "NotFound", "Running", "Completed", "Failed" };
    return (unsigned)status <= DUR_INSTANCE_FAILED ? names[status] : "?";
}

bool dur__client_sees_starts(const dur_client *client) {
    return dur_store_has(client->store, "get_instance");
}

/* ---- rows ---- */

static void row_from_start(dur_instance_row *row, const dur_event *event) {
    row->orchestration_name = event->name;
    row->orchestration_version = event->version;
    row->parent_instance_id = event->parent_instance;
    row->created_at_ms = event->timestamp_ms;
}

static void row_from_last(dur_instance_row *row, const dur_event *event, dur_arena *arena) {
    row->updated_at_ms = event->timestamp_ms;
    if (event->kind == DUR_EVENT_ORCHESTRATION_COMPLETED) {
        row->status = DUR_STATUS_COMPLETED;
        row->output = event->output;
    } else if (event->kind == DUR_EVENT_ORCHESTRATION_FAILED) {
        row->status = DUR_STATUS_FAILED;
        row->output = dur_failure_display(arena, event->details);
    }
}

static int row_from_history(dur_client *client, dur_arena *arena, const char *instance, dur_instance_row *out,
                            dur_error *err) {
    dur_event_row *events;
    dur_event first, last;
    size_t count = 0;
    bool changed = false;
    int code = dur_store_read(client->store, arena, instance, 0, &events, &count, err);
    if (code == DUR_OK) code = dur__client_room(arena, "client.info", err);
    if (code != DUR_OK) return code;
    if (count == 0)
        return dur_error_set(err, DUR_ENOTFOUND, false, "client.info", "instance \"%s\" not found", instance);
    memset(out, 0, sizeof(*out));
    out->instance_id = dur_arena_strdup(arena, instance);
    out->status = DUR_STATUS_RUNNING;
    out->current_execution_id = 1;
    if (dur_event_from_json(&first, arena, events[0].json, NULL) == DUR_OK) {
        out->current_execution_id = first.execution_id;
        row_from_start(out, &first);
    }
    if (dur_event_from_json(&last, arena, events[count - 1].json, NULL) == DUR_OK) row_from_last(out, &last, arena);
    return dur_store_get_custom_status(client->store, arena, instance, 0, &changed, &out->custom_status,
                                       &out->custom_status_version, err);
}

/* A start that waits says what the store's columns do not know yet. */
void dur__client_row_complete(dur_instance_row *row, dur_arena *arena) {
    dur_work_item item;
    if (!row->start_pending || row->pending_start.size == 0) return;
    if (dur_work_from_json(&item, arena, row->pending_start, NULL) != DUR_OK) return;
    if (row->orchestration_name == NULL) row->orchestration_name = item.orchestration;
    if (row->orchestration_version == NULL) row->orchestration_version = item.version;
    if (row->parent_instance_id == NULL) row->parent_instance_id = item.parent_instance;
}

int dur__client_row(dur_client *client, dur_arena *arena, const char *instance, dur_instance_row *out, dur_error *err) {
    if (!dur__client_sees_starts(client)) return row_from_history(client, arena, instance, out, err);
    memset(out, 0, sizeof(*out));
    int code = dur_store_get_instance(client->store, arena, instance, out, err);
    if (code == DUR_OK) code = dur__client_room(arena, "client.info", err);
    if (code == DUR_OK) dur__client_row_complete(out, arena);
    return code;
}

/* ---- infos ---- */

static dur_instance_status status_of(dur_status status) {
    switch (status) {
    case DUR_STATUS_COMPLETED:
        return DUR_INSTANCE_COMPLETED;
    case DUR_STATUS_FAILED:
        return DUR_INSTANCE_FAILED;
    case DUR_STATUS_NONE:
    case DUR_STATUS_RUNNING:
    case DUR_STATUS_CONTINUED_AS_NEW:
        break;
    }
    return DUR_INSTANCE_RUNNING;
}

void dur__client_info_fill(dur_instance_info *info, const dur_instance_row *row) {
    dur_instance_status status = status_of(row->status);
    bool ended = status == DUR_INSTANCE_COMPLETED || status == DUR_INSTANCE_FAILED;
    *info = (dur_instance_info){
        .size = sizeof(*info),
        .instance = row->instance_id,
        .name = row->orchestration_name != NULL ? row->orchestration_name : "",
        .version = row->orchestration_version,
        .status = status,
        .suspended = row->suspended != NULL && !ended,
        .start_pending = row->start_pending,
        .output = ended ? row->output : NULL, /* of an execution that continued as new it is the next one's input */
        .suspend_reason = ended ? NULL : row->suspended,
        .custom_status = row->custom_status,
        .custom_status_version = row->custom_status_version,
        .parent = row->parent_instance_id,
        .execution_id = row->current_execution_id,
        .created_at_ms = row->created_at_ms,
        .updated_at_ms = row->updated_at_ms,
        .owner = row->owner,
        .no_handler = row->unserved ? row->handler : NULL,
        .stuck_session = ended ? NULL : row->stuck_session,
    };
}

static bool starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* What the stored text suggests.  Certain only for a text without any of the prefixes: an application's message. */
static bool failure_from_text(dur_instance_info *info) {
    static const struct {
        const char *prefix;
        dur_failure_category category;
        bool cancelled;
    } known[] = { { "cancelled: ", DUR_FAILURE_APPLICATION, true },
                  { "canceled: ", DUR_FAILURE_APPLICATION, true }, /* as the original spells it */
                  { "infrastructure:", DUR_FAILURE_INFRASTRUCTURE, false },
                  { "nondeterministic: ", DUR_FAILURE_CONFIGURATION, false },
                  { "configuration: ", DUR_FAILURE_CONFIGURATION, false },
                  { "poison: ", DUR_FAILURE_POISON, false } };
    info->failure_category = DUR_FAILURE_APPLICATION;
    info->cancelled = false;
    if (info->output == NULL) return false;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (!starts_with(info->output, known[i].prefix)) continue;
        info->failure_category = known[i].category;
        info->cancelled = known[i].cancelled;
        return false;
    }
    return true;
}

int dur__client_info_failure(dur_client *client, dur_arena *arena, dur_instance_info *info, dur_error *err) {
    dur_event_row *events = NULL;
    dur_event last;
    size_t count = 0;
    if (info->status != DUR_INSTANCE_FAILED || failure_from_text(info)) return DUR_OK;
    int code = dur_store_read(client->store, arena, info->instance, 0, &events, &count, NULL);
    if (code == DUR_OK) code = dur__client_room(arena, "client.info", NULL);
    if (code == DUR_ENOMEM) return DUR__NO_MEMORY(err, "client.info");
    if (code != DUR_OK || count == 0) return DUR_OK;
    if (dur_event_from_json(&last, arena, events[count - 1].json, NULL) != DUR_OK) return DUR_OK;
    if (last.kind != DUR_EVENT_ORCHESTRATION_FAILED) return DUR_OK;
    info->failure_category = last.details->category;
    info->cancelled = last.details->category == DUR_FAILURE_APPLICATION && last.details->kind == DUR_FAILURE_CANCELLED;
    info->said = info->cancelled ? last.details->said : NULL;
    if (info->output == NULL) info->output = dur_failure_display(arena, last.details);
    return DUR_OK;
}

int dur_client_info(dur_instance_info **out, dur_client *client, const char *instance, dur_error *err) {
    DUR__LIMITED(client);
    const char *op = "client.info";
    DUR__SET_ASIDE(op, err);
    dur_arena *arena;
    dur_instance_row row;
    if (out == NULL) return dur_error_set(err, DUR_EINVAL, false, op, "out is required, got NULL");
    *out = NULL;
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code != DUR_OK) return code;
    dur_instance_info *info = dur__client_box(sizeof(*info), &arena);
    code = dur__client_row(client, arena, instance, &row, err);
    if (code == DUR_OK) {
        dur__client_info_fill(info, &row);
        code = dur__client_info_failure(client, arena, info, err);
    }
    if (code == DUR_OK)
        *out = info;
    else
        dur__client_box_free(info);
    return code;
}

void dur_instance_info_free(dur_instance_info *info) {
    dur__client_box_free(info);
}
