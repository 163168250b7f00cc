/*
 * check_calls.c: does every child answer to a call that its parent has made?
 *
 * A child's first event names the call by four fields: the parent's instance, birth, execution and schedule event
 * (core/parent.h).  Each is compared with what the parent's own history says.  Histories only grow, so that no snapshot
 * is needed: what does not fit is looked at once more, in case both were deleted or replaced in between.
 */
#include "core/parent.h"
#include "provider/provider_internal.h"

#include "base/buf.h"

#include <durite/sys/store.h>
#include <stdlib.h>

#define PAGE 500

typedef struct call_check {
    dur_provider *store;
    dur_arena *rows, *child, *parent; /* the page; one child; the parent that was looked at last */
    const char *parent_id;            /* … its id; NULL: none was */
    uint64_t parent_birth, execution;
    bool parent_found;
    dur_event *events;
    size_t event_count; /* 0: that execution was pruned, or cannot be read */
} call_check;

static int parent_read(call_check *self, const dur__parent *call, dur_error *err) {
    dur_instance_row row;
    if (self->parent_id != NULL && strcmp(self->parent_id, call->instance) == 0 &&
        self->execution == call->execution_id)
        return DUR_OK;
    dur_arena_reset(self->parent);
    self->parent_id = dur_arena_strdup(self->parent, call->instance);
    self->execution = call->execution_id;
    int code = dur_store_get_instance(self->store, self->parent, call->instance, &row, err);
    self->parent_found = code == DUR_OK;
    self->parent_birth = code == DUR_OK ? row.birth : 0;
    self->event_count = 0;
    if (code == DUR_ENOTFOUND) return DUR_OK; /* the store's own check judges that */
    if (code != DUR_OK || !call->has_execution_id) return code;
    if (dur_store_read_events(self->store, self->parent, call->instance, call->execution_id, &self->events,
                              &self->event_count, NULL) != DUR_OK)
        self->event_count = 0;
    return DUR_OK;
}

/* Histories of the original keep a child's id without its parent's. */
static bool names(const char *parent, const char *stored, const char *child) {
    size_t size = strlen(parent);
    if (strncmp(stored, "sub::", 5) != 0) return strcmp(stored, child) == 0;
    return strncmp(child, parent, size) == 0 && strncmp(child + size, "::", 2) == 0 &&
           strcmp(child + size + 2, stored) == 0;
}

/* NULL: the parent has made this call, as far as that can be known. */
static const char *judge(const call_check *self, const dur__parent *call, const char *child) {
    if (!self->parent_found) return NULL;
    if (!dur__same_birth(self->parent_birth, call->birth)) return "is another instance under the id of its parent";
    if (self->event_count == 0 || !call->has_id) return NULL;
    for (size_t i = 0; i < self->event_count; i++) {
        const dur_event *event = &self->events[i];
        if (event->event_id != call->id) continue;
        if (event->kind == DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED && event->instance != NULL &&
            names(call->instance, event->instance, child))
            return NULL;
        break;
    }
    return "has not made the call that it answers to";
}

static int child_check(call_check *self, const dur_instance_row *row, dur_error *err) {
    for (int look = 0;; look++) {
        dur_event_row *events = NULL;
        dur_event started;
        size_t count = 0;
        dur_arena_reset(self->child);
        int code = dur_store_read(self->store, self->child, row->instance_id, 0, &events, &count, err);
        if (code != DUR_OK || count == 0) return code; /* deleted meanwhile */
        if (dur_event_from_json(&started, self->child, events[0].json, NULL) != DUR_OK) return DUR_OK;
        if (started.kind != DUR_EVENT_ORCHESTRATION_STARTED || started.parent_instance == NULL) return DUR_OK;
        if (!dur__same_birth(started.birth, row->birth)) return DUR_OK; /* replaced meanwhile */
        dur__parent call = DUR__PARENT_OF(&started);
        code = parent_read(self, &call, err);
        if (code != DUR_OK) return code;
        const char *wrong = judge(self, &call, row->instance_id);
        if (wrong == NULL && !dur__str_eq(row->parent_instance_id, call.instance)) wrong = "is not who its row names";
        if (wrong == NULL) return DUR_OK;
        self->parent_id = NULL;
        if (look > 0)
            return dur_error_set(err, DUR_ECORRUPT, false, "store.check",
                                 "history: %.150s: its parent \"%.150s\" %s (execution %llu, event %llu)",
                                 row->instance_id, call.instance, wrong, (unsigned long long)call.execution_id,
                                 (unsigned long long)call.id);
    }
}

int dur__check_calls(dur_provider *store, dur_error *err) {
    call_check self = { .store = store, .rows = dur_arena_new(), .child = dur_arena_new(), .parent = dur_arena_new() };
    char *after = NULL;
    int code = DUR_OK;
    if (self.rows == NULL || self.child == NULL || self.parent == NULL) code = DUR__NO_MEMORY(err, "store.check");
    for (bool more = dur_store_has(store, "list_instances") && dur_store_has(store, "get_instance");
         more && code == DUR_OK;) {
        dur_instance_row *rows = NULL;
        size_t count = 0;
        dur_instance_query query = { .limit = PAGE, .after = after };
        code = dur_store_list_instances(store, self.rows, &query, &rows, &count, err);
        for (size_t i = 0; i < count && code == DUR_OK; i++)
            if (rows[i].parent_instance_id != NULL && !rows[i].start_pending) code = child_check(&self, &rows[i], err);
        more = count == PAGE;
        char *last = more ? dur__xstrdup(rows[count - 1].instance_id) : NULL;
        dur__free(after);
        after = last;
        dur_arena_reset(self.rows);
    }
    dur__free(after);
    dur_arena_free(self.rows);
    dur_arena_free(self.child);
    dur_arena_free(self.parent);
    return code;
}
