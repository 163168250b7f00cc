/*
 * client_terminate.c: ending an instance from outside, and keeping one from running.
 *
 * Terminating is one commit that asks nobody: it takes the lease away, appends the terminal event behind the last one,
 * removes all work of the instance, cancels its open children and tells its parent.  Calls of other parents that wait
 * in its queue stay there, and are answered by whoever fetches them; so do messages in its queues, which become dead
 * letters then, as behind every other end (triage.c).  The position is compared, so a turn that gets in between makes
 * us look again, and a terminal event is never followed by another.
 *
 * An instance that has not run yet (or whose next generation has not) has no history to end.  It gets one of two
 * events: a start made up from the message that waits, and the failure.
 */
#include "client/client_internal.h"

#include "base/arena_internal.h"
#include "base/buf.h"
#include "base/map.h"
#include "core/check.h"
#include "core/limits.h"
#include "core/parent.h"
#include "core/semver.h"
#include "core/unreported.h"
#include "provider/live.h"
#include <durite/version.h>

#include <inttypes.h>

enum { TRIES_MAX = 100, TRIES_FREE = 8 }; /* each is lost to a turn that was committed in between */

typedef struct ending {
    dur_client *client;
    dur_arena *arena; /* of one try */
    const char *instance;
    const dur_instance_row
        *only;               /* as the caller has seen it: not whoever has the id meanwhile; NULL: whoever has it */
    dur_instance_row *first; /* … as the first try has found it; birth and start alone */
    const char *reason;      /* for children that are cancelled with it */
    const dur_failure *why;  /* its end */
    bool if_unleased, if_uncancelled, if_going;
    dur_instance_row row;

    /* the newest execution, as far as it can be read */
    uint64_t execution_id;
    uint64_t last_id; /* 0: no history */
    bool corrupted;
    const dur_event *started;
    const dur_event *last;
    dur__map children; /* schedule id to event, of those without an answer */
    dur__unreported letters;

    /* what is written */
    bool fresh;        /* the first events of an execution */
    bool orphan;       /* it has not begun, and its parent is gone: there is nothing to end */
    uint64_t start_id; /* the message that is ended with it; 0: none */
    dur_event made_start;
    dur_event_row events[2];
    size_t event_count;
    dur_message_row *messages;
    size_t message_count;
} ending;

/* ---- reading ---- */

static void note_event(ending *self, const dur_event *event) {
    self->last = event;
    self->execution_id = event->execution_id;
    dur__unreported_note(&self->letters, event);
    switch (event->kind) {
    case DUR_EVENT_ORCHESTRATION_STARTED:
        if (self->started == NULL) self->started = event;
        break;
    case DUR_EVENT_SUB_ORCHESTRATION_SCHEDULED:
        dur__map_put_u64(&self->children, event->event_id, (void *)(uintptr_t)event);
        break;
    case DUR_EVENT_SUB_ORCHESTRATION_COMPLETED:
    case DUR_EVENT_SUB_ORCHESTRATION_FAILED:
    case DUR_EVENT_SUB_ORCHESTRATION_CANCEL_REQUESTED:
        dur__map_remove_u64(&self->children, event->source_event_id);
        break;
    default:
        break;
    }
}

/* Event by event: one that cannot be read must not keep the others from being used. */
static int read_history(ending *self, dur_error *err) {
    dur_event_row *rows = NULL;
    size_t count = 0;
    int code = dur_store_read(self->client->store, self->arena, self->instance, 0, &rows, &count, err);
    if (code == DUR_OK &&
        !dur__cover_need(DUR__ASIDE_BYTES + 4 * dur_arena_bytes(self->arena) + count * (sizeof(dur_event) + 256)))
        code = DUR__NO_MEMORY(err, "client.terminate");
    if (code != DUR_OK) return code;
    self->execution_id = self->row.current_execution_id > 0 ? self->row.current_execution_id : 1;
    for (size_t i = 0; i < count; i++) {
        dur_event *event = dur_arena_alloc(self->arena, sizeof(*event));
        if (rows[i].event_id > self->last_id) self->last_id = rows[i].event_id;
        if (dur_event_from_json(event, self->arena, rows[i].json, NULL) == DUR_OK) {
            note_event(self, event);
        } else {
            self->corrupted = true;
            self->last = NULL; /* it may be this one */
        }
    }
    return DUR_OK;
}

static bool ended(const ending *self) {
    if (self->row.status == DUR_STATUS_COMPLETED || self->row.status == DUR_STATUS_FAILED) return true;
    if (self->last == NULL) return false;
    return self->last->kind == DUR_EVENT_ORCHESTRATION_COMPLETED || self->last->kind == DUR_EVENT_ORCHESTRATION_FAILED;
}

/* ---- what is written ---- */

static dur_event envelope(const ending *self, dur_event_kind kind, uint64_t event_id) {
    return (dur_event){
        .kind = kind,
        .event_id = event_id,
        .instance_id = self->instance,
        .execution_id = self->execution_id,
        .timestamp_ms = dur_store_now_ms(self->client->store),
        .duroxide_version = DUR_VERSION,
    };
}

/* The start of an execution that never ran, from the message that waits and the execution before. */
static void make_start(ending *self) {
    dur_work_item item = { 0 };
    const dur_event *before = self->started;
    bool waiting = self->row.pending_start.size > 0 &&
                   dur_work_from_json(&item, self->arena, self->row.pending_start, NULL) == DUR_OK;
    bool own = waiting && item.kind == DUR_WORK_START_ORCHESTRATION && self->last_id == 0;
    if (own) self->start_id = self->row.pending_start_id;
    waiting = own || (waiting && item.kind == DUR_WORK_CONTINUE_AS_NEW); /* else it is a call that comes too late */
    if (self->last_id > 0) self->execution_id++;
    self->last_id = 0;
    self->corrupted = false;
    dur_event start = envelope(self, DUR_EVENT_ORCHESTRATION_STARTED, 1);
    start.trace = 1;
    /* Also one that never ran is somebody: without a birth it would pass for the parent of whoever names its id. */
    start.birth = self->row.birth != 0 ? self->row.birth : dur__birth_new(dur_world_real());
    start.name = self->row.orchestration_name;
    start.version = self->row.orchestration_version;
    start.input = self->last != NULL && self->last->input != NULL ? self->last->input : "";
    if (before != NULL) {
        start.name = before->name;
        start.birth = before->birth;
        dur__parent parent = DUR__PARENT_OF(before);
        DUR__PARENT_SET(&start, &parent);
    }
    if (waiting) {
        start.name = item.orchestration;
        start.input = item.input;
        if (item.version != NULL) start.version = item.version;
        if (own && item.birth != 0) start.birth = item.birth;
        if (item.parent_instance != NULL) {
            dur__parent parent = DUR__PARENT_OF(&item);
            DUR__PARENT_SET(&start, &parent);
        }
    }
    if (start.name == NULL) start.name = "";
    if (start.version == NULL) start.version = "0.0.0"; /* nobody has chosen one: reads as none */
    self->made_start = start;
    self->started = &self->made_start;
    self->fresh = true;
}

static int make_events(ending *self, dur_error *err) {
    uint64_t id = self->last_id + 1;
    int code = DUR_OK;
    if (self->fresh) {
        code = dur_event_row_from(&self->events[self->event_count++], self->arena, self->started, err);
        id = 2;
    } else if (self->corrupted && id < DUR__CORRUPTED_EVENT_ID) {
        id = DUR__CORRUPTED_EVENT_ID;
    }
    dur_event failed = envelope(self, DUR_EVENT_ORCHESTRATION_FAILED, id);
    failed.details = self->why;
    if (code == DUR_OK) code = dur_event_row_from(&self->events[self->event_count++], self->arena, &failed, err);
    return code;
}

const char *dur__client_child_id(dur_arena *arena, const char *parent, const char *stored) {
    if (strncmp(stored, "sub::", 5) != 0) return stored;
    return dur_arena_format(arena, "%s::%s", parent, stored);
}

/* The parent's execution is in our start; one of the original knows only the instance: its current one is meant. */
static uint64_t parent_execution(ending *self) {
    dur_instance_row parent;
    if (self->started->has_parent_execution_id) return self->started->parent_execution_id;
    if (dur__client_row(self->client, self->arena, self->started->parent_instance, &parent, NULL) != DUR_OK) return 1;
    return parent.current_execution_id;
}

static int make_messages(ending *self, dur_error *err) {
    dur__map_entry *entry;
    int code = DUR_OK;
    size_t letter_count = 0;
    const dur_carried *letters = dur__unreported_list(&self->letters, &letter_count);
    self->messages = dur_arena_alloc(self->arena, (self->children.count + letter_count + 1) * sizeof(*self->messages));
    for (size_t i = 0; code == DUR_OK && i < letter_count; i++) {
        dur_work_item back = dur__unreported_back(self->instance, &letters[i]);
        code = dur_message_row_from_work(&self->messages[self->message_count], self->arena, &back, err);
        self->messages[self->message_count++].due_ms = DUR__DUE_FIRST;
    }
    for (size_t i = 0; code == DUR_OK && (entry = dur__map_next(&self->children, &i)) != NULL;) {
        const dur_event *scheduled = entry->value;
        dur_work_item cancel = {
            .kind = DUR_WORK_CANCEL_INSTANCE,
            .instance = dur__client_child_id(self->arena, self->instance, scheduled->instance),
            .reason = dur_arena_format(self->arena, "parent terminated: %s", self->reason),
        };
        dur__parent call = DUR__CALL(self->instance, self->started != NULL ? self->started->birth : 0,
                                     scheduled->execution_id, scheduled->event_id);
        DUR__PARENT_SET(&cancel, &call);
        code = dur_message_row_from_work(&self->messages[self->message_count++], self->arena, &cancel, err);
    }
    if (code == DUR_OK && self->started != NULL && self->started->parent_instance != NULL &&
        self->started->has_parent_id) {
        dur__parent parent = DUR__PARENT_OF(self->started);
        parent.execution_id = parent_execution(self);
        parent.has_execution_id = true;
        dur_work_item tell = { .kind = DUR_WORK_SUB_ORCH_FAILED, .details = self->why };
        dur__answer_to(&tell, &parent);
        code = dur_message_row_from_work(&self->messages[self->message_count++], self->arena, &tell, err);
    }
    return code;
}

static void fill_metadata(ending *self, dur_execution_metadata *metadata) {
    metadata->status = DUR_STATUS_FAILED;
    metadata->output = dur_failure_display(self->arena, self->why);
    metadata->birth = self->row.birth; /* who is meant */
    if (!self->fresh) return;
    metadata->orchestration_name = self->made_start.name;
    metadata->orchestration_version = self->made_start.version;
    metadata->parent_instance_id = self->made_start.parent_instance;
    metadata->parent_birth = self->made_start.parent_birth;
    metadata->birth = self->made_start.birth;
    metadata->has_pinned_version = dur__semver_parse_lenient(DUR_VERSION, &metadata->pinned_version);
}

/* *again: somebody was faster, look again. */
static int commit(ending *self, bool *again, dur_error *err) {
    dur_turn_commit turn = {
        .lock_token = "terminate", /* not compared: take_over */
        .instance = self->instance,
        .execution_id = self->execution_id,
        .events = self->events,
        .event_count = self->event_count,
        .orchestrator_items = self->messages,
        .orchestrator_item_count = self->message_count,
        .expected_last = self->last_id,
        .consume_listed = true,
        .consumed = &self->start_id,
        .consumed_count = self->start_id != 0,
        .take_over = true,
        .if_unleased = self->if_unleased,
        .if_uncancelled = self->if_uncancelled,
        .if_suspended = self->if_going ? DUR__GOING : NULL,
        .remove_work = true,
        .set_suspended = true, /* to nothing */
    };
    fill_metadata(self, &turn.metadata);
    turn.needs_parent = turn.metadata.parent_instance_id != NULL && self->execution_id == 1;
    int code = dur_store_commit_turns(self->client->store, &turn, 1, err);
    *again = code == DUR_EUNKNOWN;
    if (code != DUR_OK) return code;
    if (turn.fault == DUR_TURN_FINE) return DUR_OK;
    *again = turn.fault == DUR_TURN_POSITION || turn.error.code == DUR_EUNKNOWN;
    self->orphan = turn.fault == DUR_TURN_ORPHAN;
    if (err != NULL) *err = turn.error;
    return turn.error.code != DUR_OK ? (int)turn.error.code : DUR_ECONFLICT;
}

int dur__client_take_start(dur_client *client, const char *instance, uint64_t start_id, bool if_unleased,
                           dur_error *err) {
    dur_turn_commit turn = {
        .lock_token = "terminate", /* not compared: take_over */
        .instance = instance,
        .expected_last = DUR_NOT_COMPARED,
        .consume_listed = true,
        .consumed = &start_id,
        .consumed_count = 1,
        .take_over = true,
        .if_unleased = if_unleased,
        .remove_work = true,
    };
    int code = dur_store_commit_turns(client->store, &turn, 1, err);
    if (code != DUR_OK || turn.fault == DUR_TURN_FINE) return code;
    if (err != NULL) *err = turn.error;
    return (int)turn.error.code;
}

/*
 * A child whose parent was deleted, or deleted and started again: a row of its own would stand in the way of the next
 * parent's call under the same id, which may wait behind it.  Its start goes, as it does where a node takes it; then
 * there may be another one to end.
 */
static int take_start_away(ending *self, bool *again, dur_error *err) {
    int code = dur__client_take_start(self->client, self->instance, self->start_id, self->if_unleased, err);
    *again = self->only == NULL && (code == DUR_OK || code == DUR_EUNKNOWN || code == DUR_ECONFLICT);
    self->first->instance_id = NULL;
    return code;
}

/*
 * At each try it is the same one, for whose history or start we look.  One that had not begun at first may have begun
 * since; what has been deleted and started again has another birth, or another start waits.
 */
static bool is_meant(ending *self) {
    dur_instance_row *first = self->first;
    if (first->instance_id == NULL)
        *first = (dur_instance_row){ .instance_id = self->instance,
                                     .birth = self->row.birth,
                                     .start_pending = self->row.start_pending,
                                     .pending_start_id = self->row.pending_start_id };
    if (self->row.start_pending && (!first->start_pending || first->pending_start_id != self->row.pending_start_id))
        return false;
    if (!first->start_pending && first->birth != self->row.birth) return false;
    if (self->only == NULL) return true;
    return self->row.birth == self->only->birth && self->row.start_pending == self->only->start_pending &&
           (!self->row.start_pending || self->row.pending_start_id == self->only->pending_start_id);
}

/* Row and history are two reads: what has a birth has history, and what is known by its start alone has none. */
static bool fit(const ending *self) {
    return self->last_id > 0 ? !self->row.start_pending : self->row.birth == 0;
}

static int try_terminate(ending *self, bool *again, dur_error *err) {
    *again = false;
    int code = dur__client_row(self->client, self->arena, self->instance, &self->row, err);
    if (code == DUR_OK && !is_meant(self))
        code = dur_error_set(err, DUR_ENOTFOUND, false, "client.terminate", "instance \"%.200s\" is another one now",
                             self->instance);
    if (code == DUR_OK && self->if_going && !dur__str_eq(self->row.suspended, DUR__GOING))
        code = dur_error_set(err, DUR_ESTATE, false, "client.terminate", "nobody is about to end instance \"%.200s\"",
                             self->instance);
    if (code == DUR_OK) code = read_history(self, err);
    if (code == DUR_OK && !fit(self)) {
        *again = true;
        return dur_error_set(err, DUR_EBUSY, true, "client.terminate", "instance \"%.200s\" changed meanwhile",
                             self->instance);
    }
    if (code != DUR_OK || ended(self)) return code;
    if (self->last_id == 0 || (self->last != NULL && self->last->kind == DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW))
        make_start(self);
    code = make_events(self, err);
    if (code == DUR_OK) code = make_messages(self, err);
    if (code == DUR_OK) code = commit(self, again, err);
    return self->orphan && self->start_id != 0 ? take_start_away(self, again, err) : code;
}

int dur__client_holds_letters(dur_client *client, dur_arena *arena, const char *instance, bool *out, dur_error *err) {
    ending self = { .client = client, .arena = arena, .instance = instance, .letters = { .arena = arena } };
    size_t count = 0;
    int code = read_history(&self, err);
    if (code == DUR_OK) (void)dur__unreported_list(&self.letters, &count);
    dur__map_free(&self.children);
    dur__unreported_free(&self.letters);
    *out = count > 0;
    return code == DUR_ECORRUPT ? DUR_OK : code; /* what cannot be read can be no message */
}

/* It was made to stand still and has not ended: who did that lets it go on, also where the store fails for a while. */
void dur__client_resume(dur_client *client, const char *instance) {
    dur_error err = DUR_ERROR_INIT;
    for (int tries = 0; tries < 8; tries++) {
        dur_instance_row row;
        dur_arena *arena = dur__arena_xnew();
        int code = dur__client_row(client, arena, instance, &row, &err);
        bool ours = code == DUR_OK && dur__str_eq(row.suspended, DUR__GOING);
        dur_arena_free(arena);
        if (ours) code = dur_store_set_suspended(client->store, instance, NULL, &err);
        if (code == DUR_OK || !(err.retryable || err.code == DUR_EUNKNOWN)) return;
        dur__sleep_us(UINT64_C(5000) << tries);
    }
}

/*
 * A store may ask the node that holds it to give it up, which takes as long as its turn.  Whoever is about to read its
 * history and to delete it by what is there cannot wait for that: the lease is ended.  What the node had of it is not
 * needed any more; should the instance go on after all, it is looked for.
 */
int dur__client_stand_still(dur_client *client, dur_arena *arena, const char *instance, dur_error *err) {
    dur_instance_row row = { .owner = NULL };
    int code = dur_store_set_suspended(client->store, instance, DUR__GOING, err);
    if (code != DUR_OK) return code;
    code = dur__client_row(client, arena, instance, &row, err);
    if (code != DUR_OK || row.owner == NULL) return code;
    dur_turn_commit take = { .instance = instance,
                             .metadata = { .birth = row.birth },
                             .expected_last = DUR_NOT_COMPARED,
                             .consume_listed = true,
                             .take_over = true,
                             .set_suspended = true,
                             .suspended = DUR__GOING };
    code = dur_store_commit_turns(client->store, &take, 1, err);
    if (code == DUR_OK && take.error.code != DUR_OK && err != NULL) *err = take.error;
    return code == DUR_OK ? (int)take.error.code : code;
}

int dur__client_end(dur_client *client, const char *instance, const dur_instance_row *only, const dur_failure *failure,
                    dur__client_end_if when, dur_error *err) {
    dur_arena *arena = dur__arena_xnew();
    dur_instance_row first = { .instance_id = NULL };
    bool if_unleased = when == DUR__END_IF_UNLEASED || when == DUR__END_IF_UNCANCELLED;
    bool again = true, held = false, orphan = false;
    int code = DUR_OK;
    for (int i = 0; again && i < TRIES_MAX; i++) {
        /* One that never stands still is made to: the end that follows takes the flag away again. */
        if (i == TRIES_FREE && when == DUR__END_ALWAYS)
            held = dur__client_stand_still(client, arena, instance, NULL) == DUR_OK;
        ending self = { .client = client,
                        .arena = arena,
                        .instance = instance,
                        .only = only,
                        .first = &first,
                        .reason = failure->message,
                        .why = failure,
                        .if_unleased = if_unleased,
                        .if_uncancelled = when == DUR__END_IF_UNCANCELLED,
                        .if_going = when == DUR__END_IF_GOING,
                        .letters = { .arena = arena } };
        code = try_terminate(&self, &again, err);
        if (code == DUR_ENOTFOUND && orphan) code = DUR_OK; /* nothing else was there */
        orphan |= self.orphan;
        dur__map_free(&self.children);
        dur__unreported_free(&self.letters);
        dur_arena_reset(arena);
    }
    dur_arena_free(arena);
    if (held && code != DUR_OK) dur__client_resume(client, instance);
    if (again)
        return dur_error_set(err, DUR_EBUSY, true, "client.terminate",
                             "instance \"%.200s\" is too busy: its history grew at each of %d tries", instance,
                             TRIES_MAX);
    if (code == DUR_OK) {
        dur__live_unexpect(client->store, instance); /* whoever waits for it looks */
        dur_error_clear(err);
    }
    return code;
}

int dur_client_terminate(dur_client *client, const char *instance, const char *reason, dur_error *err) {
    const char *op = "client.terminate";
    DUR__SET_ASIDE(op, err);
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code == DUR_OK) code = dur__check_text(err, op, "reason", reason, DUR__REASON_BYTES_MAX, DUR__OPTIONAL);
    if (code != DUR_OK) return code;
    if (reason == NULL) reason = "terminated by a client";
    dur_failure failure = {
        .category = DUR_FAILURE_APPLICATION, .kind = DUR_FAILURE_CANCELLED, .message = reason, .reason = reason
    };
    return dur__client_end(client, instance, NULL, &failure, DUR__END_ALWAYS, err);
}

/* ---- suspend and resume ---- */

int dur_client_suspend(dur_client *client, const char *instance, const char *reason, dur_error *err) {
    const char *op = "client.suspend";
    DUR__SET_ASIDE(op, err);
    dur_instance_row row;
    int code = dur__client_enter_instance(client, instance, op, err);
    if (code == DUR_OK) code = dur__check_text(err, op, "reason", reason, DUR__REASON_BYTES_MAX, DUR__OPTIONAL);
    if (code != DUR_OK) return code;
    dur_arena *arena = dur__arena_xnew();
    code = dur__client_row(client, arena, instance, &row, err);
    if (code == DUR_OK && (row.status == DUR_STATUS_COMPLETED || row.status == DUR_STATUS_FAILED))
        code = dur_error_set(err, DUR_ESTATE, false, op, "instance \"%.200s\" has ended (%s)", instance,
                             dur_status_name(row.status));
    dur_arena_free(arena);
    if (code != DUR_OK) return code;
    code = dur_store_set_suspended(client->store, instance, reason != NULL ? reason : "suspended by a client", err);
    if (code == DUR_OK) dur__live_unexpect(client->store, instance);
    return code;
}

int dur_client_resume(dur_client *client, const char *instance, dur_error *err) {
    DUR__SET_ASIDE("client.resume", err);
    int code = dur__client_enter_instance(client, instance, "client.resume", err);
    return code != DUR_OK ? code : dur_store_set_suspended(client->store, instance, NULL, err);
}
