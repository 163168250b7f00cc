/*
 * kit_words.c: the vocabulary of checks: events, messages, turns, fetches and ready-made lives.
 */
#include "kit_view.h"

/* ---- events ------------------------------------------------------------------------------------------------------ */

static dur_event event_of(dur_event_kind kind, uint64_t id) {
    return (dur_event){ .kind = kind, .event_id = id, .timestamp_ms = 1700000000000u + id };
}

dur_event ev_started(uint64_t id) {
    dur_event event = event_of(DUR_EVENT_ORCHESTRATION_STARTED, id);
    event.name = KIT_NAME;
    event.version = KIT_VERSION;
    event.input = "{}";
    return event;
}

dur_event ev_scheduled(uint64_t id) {
    dur_event event = event_of(DUR_EVENT_ACTIVITY_SCHEDULED, id);
    event.name = "TestActivity";
    event.input = "in";
    return event;
}

dur_event ev_activity_done(uint64_t id, uint64_t source) {
    dur_event event = event_of(DUR_EVENT_ACTIVITY_COMPLETED, id);
    event.has_source_event_id = true;
    event.source_event_id = source;
    event.result = "result";
    return event;
}

dur_event ev_timer(uint64_t id, uint64_t fire_at_ms) {
    dur_event event = event_of(DUR_EVENT_TIMER_CREATED, id);
    event.fire_at_ms = fire_at_ms;
    return event;
}

dur_event ev_external(uint64_t id, const char *name) {
    dur_event event = event_of(DUR_EVENT_EXTERNAL_EVENT, id);
    event.name = name;
    event.data = "data";
    return event;
}

dur_event ev_done(uint64_t id, const char *output) {
    dur_event event = event_of(DUR_EVENT_ORCHESTRATION_COMPLETED, id);
    event.output = output;
    return event;
}

dur_event ev_failed(uint64_t id, const char *message) {
    static const dur_failure failure = { .category = DUR_FAILURE_APPLICATION,
                                         .kind = DUR_FAILURE_ORCHESTRATION_FAILED,
                                         .message = "failed on purpose" };
    dur_event event = event_of(DUR_EVENT_ORCHESTRATION_FAILED, id);
    (void)message; /* the store never looks: the output is in the metadata */
    event.details = &failure;
    return event;
}

dur_event ev_continued(uint64_t id, const char *input) {
    dur_event event = event_of(DUR_EVENT_ORCHESTRATION_CONTINUED_AS_NEW, id);
    event.input = input;
    return event;
}

dur_event ev_status(uint64_t id, const char *status) {
    dur_event event = event_of(DUR_EVENT_CUSTOM_STATUS_UPDATED, id);
    event.status = status;
    return event;
}

dur_event ev_set(uint64_t id, const char *key, const char *value) {
    dur_event event = event_of(DUR_EVENT_KEY_VALUE_SET, id);
    event.key = key;
    event.value = value;
    event.last_updated_at_ms = 1700000000000u + id;
    return event;
}

dur_event ev_clear(uint64_t id, const char *key) {
    dur_event event = event_of(DUR_EVENT_KEY_VALUE_CLEARED, id);
    event.key = key;
    return event;
}

dur_event ev_clear_all(uint64_t id) {
    return event_of(DUR_EVENT_KEY_VALUES_CLEARED, id);
}

dur_event_row kit_row(kit *t, const char *instance, uint64_t execution, dur_event event) {
    dur_event_row row;
    event.instance_id = instance;
    event.execution_id = execution;
    if (event.duroxide_version == NULL) event.duroxide_version = "0.1.26";
    MUST(dur_event_row_from(&row, t->arena, &event, ERR));
    return row;
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

dur_message_row kit_message(kit *t, const dur_work_item *item) {
    dur_message_row message;
    MUST(dur_message_row_from_work(&message, t->arena, item, ERR));
    return message;
}

dur_message_row kit_start(kit *t, const char *instance) {
    return kit_start_as(t, instance, KIT_NAME, KIT_VERSION);
}

dur_message_row kit_start_as(kit *t, const char *instance, const char *name, const char *version) {
    return kit_message(t, &(dur_work_item){ .kind = DUR_WORK_START_ORCHESTRATION,
                                            .instance = instance,
                                            .orchestration = name,
                                            .version = version,
                                            .input = "{}",
                                            .execution_id = 1 });
}

dur_message_row kit_child(kit *t, const char *instance, const char *parent, uint64_t parent_id) {
    return kit_message(t, &(dur_work_item){ .kind = DUR_WORK_START_ORCHESTRATION,
                                            .instance = instance,
                                            .orchestration = KIT_NAME,
                                            .version = KIT_VERSION,
                                            .input = "{}",
                                            .execution_id = 1,
                                            .parent_instance = parent,
                                            .has_parent_id = true,
                                            .parent_id = parent_id });
}

dur_message_row kit_next(kit *t, const char *instance, const char *input) {
    return kit_message(t, &(dur_work_item){ .kind = DUR_WORK_CONTINUE_AS_NEW,
                                            .instance = instance,
                                            .orchestration = KIT_NAME,
                                            .version = KIT_VERSION,
                                            .input = input });
}

dur_message_row kit_activity(kit *t, const char *instance, uint64_t id) {
    return kit_activity_in(t, instance, 1, id, NULL, NULL);
}

dur_message_row kit_activity_in(kit *t, const char *instance, uint64_t execution, uint64_t id, const char *session,
                                const char *tag) {
    return kit_message(t, &(dur_work_item){ .kind = DUR_WORK_ACTIVITY_EXECUTE,
                                            .instance = instance,
                                            .execution_id = execution,
                                            .id = id,
                                            .name = "TestActivity",
                                            .input = "in",
                                            .session_id = session,
                                            .tag = tag });
}

dur_message_row kit_finished(kit *t, const char *instance, uint64_t execution, uint64_t id, const char *result) {
    return kit_message(t, &(dur_work_item){ .kind = DUR_WORK_ACTIVITY_COMPLETED,
                                            .instance = instance,
                                            .execution_id = execution,
                                            .id = id,
                                            .result = result });
}

dur_message_row kit_timer(kit *t, const char *instance, uint64_t execution, uint64_t id, uint64_t fire_at_ms) {
    return kit_message(t, &(dur_work_item){ .kind = DUR_WORK_TIMER_FIRED,
                                            .instance = instance,
                                            .execution_id = execution,
                                            .id = id,
                                            .fire_at_ms = fire_at_ms });
}

dur_message_row kit_raised(kit *t, const char *instance, const char *name, const char *data) {
    return kit_message(
        t, &(dur_work_item){ .kind = DUR_WORK_EXTERNAL_RAISED, .instance = instance, .name = name, .data = data });
}

dur_message_row kit_queued(kit *t, const char *instance, const char *queue, const char *data) {
    return kit_message(
        t, &(dur_work_item){ .kind = DUR_WORK_QUEUE_MESSAGE, .instance = instance, .name = queue, .data = data });
}

dur_message_row kit_cancel(kit *t, const char *instance, const char *reason) {
    return kit_message(t, &(dur_work_item){ .kind = DUR_WORK_CANCEL_INSTANCE, .instance = instance, .reason = reason });
}

int kit_put(kit *t, dur_message_row message) {
    return dur_store_enqueue_for_orchestrator(t->p, &message, 0, ERR);
}
int kit_put_work(kit *t, dur_message_row message) {
    return dur_store_enqueue_for_worker(t->p, &message, ERR);
}

bool kit_says(dur_text json, const char *part) {
    size_t size = strlen(part);
    for (size_t i = 0; i + size <= json.size; i++)
        if (memcmp(json.data + i, part, size) == 0) return true;
    return false;
}

bool kit_equal_text(dur_text a, dur_text b) {
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

dur_turn_commit kit_make_commit(kit *t, const kit_turn *turn) {
    const dur_orchestration_item *item = turn->item;
    const char *instance = item != NULL ? item->instance : NULL;
    dur_turn_commit out = { .expected_last = DUR_NOT_COMPARED };
    out.lock_token = turn->token != NULL ? turn->token : item != NULL ? item->lock_token : NULL;
    out.execution_id = turn->execution != 0 ? turn->execution : item != NULL ? item->execution_id : 1;
    out.instance = instance;
    out.store_key = item != NULL ? item->store_key : 0;
    dur_event_row *rows = dur_arena_zalloc(t->arena, (turn->event_count + 1) * sizeof(*rows));
    for (size_t i = 0; i < turn->event_count; i++)
        rows[i] = kit_row(t, instance != NULL ? instance : "?", out.execution_id, turn->events[i]);
    dur_turn_work *work = dur_arena_zalloc(t->arena, (turn->work_count + 1) * sizeof(*work));
    for (size_t i = 0; i < turn->work_count; i++)
        work[i].message = turn->work[i];
    dur_message_row *messages = dur_arena_zalloc(t->arena, (turn->message_count + 1) * sizeof(*messages));
    for (size_t i = 0; i < turn->message_count; i++)
        messages[i] = turn->messages[i];
    dur_activity_ref *cancelled = dur_arena_zalloc(t->arena, (turn->cancelled_count + 1) * sizeof(*cancelled));
    for (size_t i = 0; i < turn->cancelled_count; i++)
        cancelled[i] = turn->cancelled[i];
    out.events = rows;
    out.event_count = turn->event_count;
    out.worker_items = work;
    out.worker_item_count = turn->work_count;
    out.orchestrator_items = messages;
    out.orchestrator_item_count = turn->message_count;
    out.metadata = turn->meta;
    out.cancelled = cancelled;
    out.cancelled_count = turn->cancelled_count;
    return out;
}

int kit_ack(kit *t, const kit_turn *turn) {
    dur_turn_commit commit = kit_make_commit(t, turn);
    commit.instance = NULL; /* as the plain ack does: found by the token */
    commit.store_key = 0;
    return dur_store_ack_orchestration_item(t->p, &commit, ERR);
}

int kit_commit(kit *t, dur_turn_commit *commit) {
    int code = dur_store_commit_turns(t->p, commit, 1, ERR);
    if (code == DUR_OK && commit->error.code != DUR_OK) {
        t->err = commit->error;
        code = (int)commit->error.code;
    }
    return code;
}

/* ---- fetching ---------------------------------------------------------------------------------------------------- */

dur_orchestration_item kit_fetch_for(kit *t, const dur_capability_filter *filter) {
    dur_orchestration_item item;
    dur_fetch how = { .lock_ms = t->lock_ms, .filter = filter };
    memset(&item, 0x5a, sizeof(item)); /* the store fills all of it, or at least says that there is nothing */
    item.instance = NULL;
    MUST(dur_store_fetch_orchestration_item(t->p, t->arena, &how, &item, ERR));
    if (item.instance == NULL) memset(&item, 0, sizeof(item));
    return item;
}

dur_orchestration_item kit_fetch(kit *t) {
    return kit_fetch_for(t, NULL);
}

dur_orchestration_item kit_take_at(kit *t, const char *file, int line, const char *instance) {
    dur_orchestration_item item = kit_fetch(t);
    if (item.instance == NULL) kit_fail(t, file, line, "nothing was fetched, %s expected", instance);
    if (strcmp(item.instance, instance) != 0)
        kit_fail(t, file, line, "fetched %s, %s expected", item.instance, instance);
    if (item.lock_token == NULL || item.lock_token[0] == '\0') kit_fail(t, file, line, "no lock token");
    return item;
}

void kit_nothing_at(kit *t, const char *file, int line) {
    dur_orchestration_item item = kit_fetch(t);
    if (item.instance != NULL) kit_fail(t, file, line, "fetched %s, nothing expected", item.instance);
}

dur_leased_work kit_fetch_work(kit *t, const dur_work_fetch *how) {
    dur_leased_work work = { .json = { NULL, 0 } };
    dur_work_fetch full = *how;
    if (full.lock_ms == 0) full.lock_ms = t->lock_ms;
    MUST(dur_store_fetch_work_item(t->p, t->arena, &full, &work, ERR));
    return work;
}

dur_leased_work kit_take_work_at(kit *t, const char *file, int line, uint64_t id, const dur_work_fetch *how) {
    dur_leased_work work = kit_fetch_work(t, how);
    if (work.json.data == NULL)
        kit_fail(t, file, line, "no work was fetched, activity %llu expected", (unsigned long long)id);
    if (work.ref.activity_id != id)
        kit_fail(t, file, line, "fetched activity %llu, %llu expected", (unsigned long long)work.ref.activity_id,
                 (unsigned long long)id);
    if (work.lock_token == NULL || work.lock_token[0] == '\0') kit_fail(t, file, line, "no lock token");
    return work;
}

void kit_no_work_at(kit *t, const char *file, int line, const dur_work_fetch *how) {
    dur_leased_work work = kit_fetch_work(t, how);
    if (work.json.data != NULL)
        kit_fail(t, file, line, "fetched activity %llu, nothing expected", (unsigned long long)work.ref.activity_id);
}

/* ---- ready-made lives -------------------------------------------------------------------------------------------- */

void kit_advance(kit *t, uint64_t ms) {
    kit_needs_time(t);
    if (t->factory->advance != NULL)
        t->factory->advance(t->factory->data, &t->store, ms);
    else
        kit_sleep(ms);
}

void kit_expire(kit *t) {
    kit_advance(t, t->lock_ms + 100);
}

void kit_create(kit *t, const char *instance) {
    MUST(kit_put(t, kit_start(t, instance)));
    dur_orchestration_item item = TAKE(instance);
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED));
}

void kit_create_child(kit *t, const char *instance, const char *parent) {
    MUST(kit_put(t, kit_child(t, instance, parent, 2)));
    dur_orchestration_item item = TAKE(instance);
    MUST(ACK(&item, EVENTS(ev_started(1)), NAMED_CHILD_OF(parent)));
}

void kit_create_ended(kit *t, const char *instance, const char *parent, dur_status how, const char *output) {
    MUST(kit_put(t, parent != NULL ? kit_child(t, instance, parent, 2) : kit_start(t, instance)));
    dur_orchestration_item item = TAKE(instance);
    dur_event end = how == DUR_STATUS_FAILED ? ev_failed(2, output) : ev_done(2, output);
    MUST(ACK(&item, EVENTS(ev_started(1), end),
             .meta = { .orchestration_name = KIT_NAME,
                       .orchestration_version = KIT_VERSION,
                       .parent_instance_id = parent,
                       .status = how,
                       .output = output }));
}

void kit_continue(kit *t, const char *instance, uint64_t execution) {
    dur_event_row *rows;
    uint64_t last = kit_history(t, instance, execution, &rows);
    MUST(kit_put(t, kit_raised(t, instance, "go", "")));
    dur_orchestration_item item = TAKE(instance);
    MUST(ACK(&item, .execution = execution, EVENTS(ev_continued(last + 1, "next")),
             MESSAGES(kit_next(t, instance, "next")),
             .meta = { .status = DUR_STATUS_CONTINUED_AS_NEW, .output = "next" }));
    item = TAKE(instance);
    MUST(ACK(&item, .execution = execution + 1, EVENTS(ev_started(1)), NAMED));
}

void kit_turn_with(kit *t, const char *instance, uint64_t execution, const dur_event *events, size_t count,
                   dur_execution_metadata meta) {
    MUST(kit_put(t, kit_raised(t, instance, "go", "")));
    dur_orchestration_item item = TAKE(instance);
    MUST(ACK(&item, .execution = execution, .events = events, .event_count = count, .meta = meta));
}

size_t kit_history(kit *t, const char *instance, uint64_t execution, dur_event_row **rows) {
    size_t count = 0;
    dur_event_row *own = NULL;
    MUST(dur_store_read(t->p, t->arena, instance, execution, rows != NULL ? rows : &own, &count, ERR));
    return count;
}

bool kit_exists(kit *t, const char *instance) {
    dur_instance_row row = { .start_pending = false };
    int code = dur_store_get_instance(t->p, t->arena, instance, &row, ERR);
    if (code != DUR_OK && code != DUR_ENOTFOUND) kit_must(t, __FILE__, __LINE__, "get_instance", code);
    return code == DUR_OK && !row.start_pending; /* a start that waits is no instance yet */
}

dur_instance_row kit_instance(kit *t, const char *instance) {
    dur_instance_row row = { .instance_id = NULL };
    MUST(dur_store_get_instance(t->p, t->arena, instance, &row, ERR));
    return row;
}

dur_execution_row kit_execution(kit *t, const char *instance, uint64_t execution) {
    dur_execution_row *rows = NULL;
    size_t count = 0;
    MUST(dur_store_list_executions(t->p, t->arena, instance, &rows, &count, ERR));
    for (size_t i = 0; i < count; i++)
        if (rows[i].execution_id == execution) return rows[i];
    kit_fail(t, __FILE__, __LINE__, "%s has no execution %llu", instance, (unsigned long long)execution);
}

const char *kit_value(kit *t, const char *instance, const char *key) {
    const char *value = NULL;
    MUST(dur_store_get_kv_value(t->p, t->arena, instance, key, &value, ERR));
    return value;
}

const char *kit_snapshot(const dur_orchestration_item *item, const char *key) {
    for (size_t i = 0; i < item->kv_count; i++)
        if (strcmp(item->kv[i].key, key) == 0) return item->kv[i].value;
    return NULL;
}

dur_queue_depths kit_depths(kit *t) {
    dur_queue_depths depths = { 0, 0, 0, 0 };
    MUST(dur_store_get_queue_depths(t->p, &depths, ERR));
    return depths;
}

size_t kit_children(kit *t, const char *parent, dur_instance_row **rows) {
    size_t count = 0;
    dur_instance_query query = { .parent = parent };
    MUST(dur_store_list_instances(t->p, t->arena, &query, rows, &count, ERR));
    return count;
}

size_t kit_tree(kit *t, const char *root, const char *ids[], size_t max) {
    size_t count = 0;
    ids[count++] = root;
    for (size_t i = 0; i < count; i++) {
        dur_instance_row *rows = NULL;
        size_t children = kit_children(t, ids[i], &rows);
        for (size_t k = 0; k < children && count < max; k++)
            ids[count++] = rows[k].instance_id;
    }
    return count;
}

int kit_delete(kit *t, const char *instance, bool force, dur_delete_result *out) {
    dur_instance_row row;
    dur_delete_result own;
    const char *ids[64];
    int code = dur_store_get_instance(t->p, t->arena, instance, &row, ERR);
    if (code != DUR_OK) return code;
    if (row.parent_instance_id != NULL)
        return dur_error_set(ERR, DUR_ECHILD, false, "kit.delete", "%s is a sub-orchestration: delete its root",
                             instance);
    size_t count = kit_tree(t, instance, ids, COUNT(ids));
    return dur_store_delete_instances(t->p, ids, count, force, out != NULL ? out : &own, ERR);
}

void kit_corrupt(kit *t, const char *instance) {
    if (t->factory->corrupt_history != NULL) {
        const char *name = t->view != NULL ? kit_view_name(t->view, instance) : instance;
        MUST(t->factory->corrupt_history(t->factory->data, &t->store, name, ERR));
        return;
    }
    static const char json[] = "{\"event_id\":90000,\"instance_id\":\"x\",\"execution_id\":1,\"timestamp_ms\":1,"
                               "\"duroxide_version\":\"99.0.0\",\"type\":\"KindOfTheFuture\"}";
    dur_event_row row = { .event_id = 90000, .kind = DUR_EVENT_EXTERNAL_EVENT, .json = { json, sizeof(json) - 1 } };
    dur_event_row *rows;
    uint64_t execution = 1;
    while (kit_history(t, instance, execution + 1, &rows) > 0)
        if (++execution > 1000)
            kit_fail(t, __FILE__, __LINE__, "%s has a history for executions that never were", instance);
    MUST(dur_store_append(t->p, instance, execution, &row, 1, ERR));
}

uint32_t kit_attempts(kit *t, const dur_orchestration_item *item) {
    uint32_t count = item->attempt_count;
    if (t->factory->max_attempt_count != NULL) {
        const char *name = t->view != NULL ? kit_view_name(t->view, item->instance) : item->instance;
        MUST(t->factory->max_attempt_count(t->factory->data, &t->store, name, &count, ERR));
    }
    return count;
}

/* ---- owners and lanes -------------------------------------------------------------------------------------------- */

void kit_owner(kit *t, const char *owner) {
    dur_owner_options options = { .owner = owner, .timeout_ms = 2 * t->lock_ms };
    MUST(dur_store_owner_register(t->p, &options, ERR));
}

dur_orchestration_item kit_acquire_at(kit *t, const char *file, int line, const char *owner, const char *instance) {
    dur_orchestration_item item = { .instance = NULL };
    dur_fetch how = { .lock_ms = t->lock_ms, .owner = owner, .max = 1 };
    size_t count = 0;
    MUST(dur_store_fetch_turns(t->p, t->arena, &how, &item, &count, ERR));
    if (count != 1) kit_fail(t, file, line, "%zu instances acquired, %s expected", count, instance);
    if (strcmp(item.instance, instance) != 0)
        kit_fail(t, file, line, "acquired %s, %s expected", item.instance, instance);
    return item;
}

dur_lane *kit_lane(kit *t, const char *owner) {
    dur_lane *lane = NULL;
    if (t->waker == NULL) t->waker = dur_waker_new();
    dur_lane_options options = { .owner = owner, .waker = t->waker };
    THAT(t->lane_count < KIT_LANES_MAX);
    MUST(dur_store_lane_open(t->p, &options, &lane, ERR));
    THAT(lane != NULL);
    t->lanes[t->lane_count++] = lane;
    return lane;
}

void kit_round(kit *t, dur_lane *lane, dur_round *round) {
    MUST(dur_store_lane_round(lane, t->arena, round, ERR));
}
