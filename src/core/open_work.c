/*
 * open_work.c: activities that are open in a history.
 */
#include "core/open_work.h"

void dur__open_work_see(dur__open_work *self, size_t place, const dur_event *event) {
    switch (event->kind) {
    case DUR_EVENT_ACTIVITY_SCHEDULED:
        dur__map_put_u64(&self->at, event->event_id, (void *)(uintptr_t)(place + 1));
        break;
    case DUR_EVENT_ACTIVITY_COMPLETED:
    case DUR_EVENT_ACTIVITY_FAILED:
    case DUR_EVENT_ACTIVITY_CANCEL_REQUESTED:
        (void)dur__map_remove_u64(&self->at, event->source_event_id);
        break;
    default:
        break;
    }
}

void dur__open_work_known(dur__open_work *self, uint64_t activity_id) {
    (void)dur__map_remove_u64(&self->at, activity_id);
}

/* Which attempt of which call it is no event says: only first attempts are ever left out of the store. */
dur_work_item dur__open_work_item(const dur_event *started, const dur_event *schedule) {
    return (dur_work_item){ .kind = DUR_WORK_ACTIVITY_EXECUTE,
                            .instance = schedule->instance_id,
                            .execution_id = schedule->execution_id,
                            .id = schedule->event_id,
                            .name = schedule->name,
                            .input = schedule->input,
                            .session_id = schedule->session_id,
                            .tag = schedule->tag,
                            .orchestration_name = started->name,
                            .orchestration_version = started->version,
                            .birth = started->birth };
}
