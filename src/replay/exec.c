/*
 * exec.c: the life of an execution: new, started or replayed, stepped, freed.  One arrival at a time (R1).
 */
#include "core/limits.h"
#include "core/unreported.h"
#include "replay/engine.h"
#include <durite/version.h>
#include <inttypes.h>
#include <stdlib.h>

/* ---- new and free ---- */

/*
 * Everything that an execution has is freed with it, and nothing else knows what it is doing: so an allocation that
 * fails breaks it, wherever it is.  On a handler's stack that is left for good, as for any other breach; on the
 * caller's by a jump to where the execution was entered.
 */
static void out_of_memory(void *data) {
    dur__exec *exec = data;
    dur__break(exec, DUR_ENOMEM, "out of memory; what has been committed is replayed when there is some");
    dur__branch_leave(exec); /* returns where none is running */
    dur__cover_end(&exec->cover);
    _longjmp(exec->way_out, 1);
}

static void covered(dur__exec *exec) {
    exec->cover = (dur__cover){ .out = out_of_memory, .data = exec };
    dur__cover_begin(&exec->cover);
}

/* True: the execution has been left by a jump, and the cover is over. */
#define LEFT(exec) (covered(exec), _setjmp((exec)->way_out) != 0)

static void fill(dur__exec *exec, const dur__exec_options *options) {
    exec->options = *options;
    exec->options.kv = NULL;
    if (exec->options.stack_bytes == 0) exec->options.stack_bytes = 256 << 10;
    exec->options.instance = dur_arena_strdup(exec->arena, options->instance);
    exec->options.name = dur_arena_strdup(exec->arena, options->name);
    exec->options.version = dur_arena_strdup(exec->arena, options->version);
    dur__kv_load(exec, options->kv, options->kv_count);
}

dur__exec *dur__exec_new(const dur__exec_options *options) {
    dur__exec *exec = dur__zget(sizeof(*exec));
    if (exec == NULL) return NULL;
    exec->ctx.exec = exec;
    exec->turn = 1;
    dur__list_init(&exec->free_leaves);
    dur__list_init(&exec->unbound);
    dur__list_init(&exec->tries);
    dur__list_init(&exec->unmarked);
    dur__list_init(&exec->retries);
    dur__list_init(&exec->branches);
    dur__list_init(&exec->consumed);
    dur__mailbox_init(&exec->mailbox);
    exec->arena = dur_arena_new();
    exec->turn_arena = dur_arena_new();
    exec->group.arena = dur_arena_new();
    exec->region = dur__region_new();
    bool made = exec->arena != NULL && exec->turn_arena != NULL && exec->group.arena != NULL && exec->region != NULL;
    if (!made || LEFT(exec)) {
        dur__exec_free(exec);
        return NULL;
    }
    fill(exec, options);
    dur__cover_end(&exec->cover);
    return exec;
}

static void names_free(dur__map *names) {
    dur__map_entry *entry;
    for (size_t at = 0; (entry = dur__map_next(names, &at)) != NULL;)
        dur__free(entry->value);
    dur__map_free(names);
}

static void leaves_free(dur__exec *exec) {
    for (dur__leaf *leaf; (leaf = dur__open_after(exec, 0)) != NULL;)
        dur__leaf_close(exec, leaf);
    for (dur__link *link; (link = dur__list_first(&exec->unbound)) != NULL;)
        dur__leaf_free(exec, DUR__CONTAINER(link, dur__leaf, wait));
    for (dur__link *link; (link = dur__list_pop(&exec->free_leaves)) != NULL;)
        dur__free(DUR__CONTAINER(link, dur__leaf, wait));
    dur__free(exec->open.entries);
}

void dur__exec_free(dur__exec *exec) {
    if (exec == NULL) return;
    dur__branches_free(exec);
    dur__retries_free(exec);
    dur__original_free(exec);
    leaves_free(exec);
    dur__mailbox_free(&exec->mailbox);
    dur__heap_free(&exec->runnable);
    dur__graveyard_clear(exec);
    dur__free(exec->graves);
    if (exec->region != NULL) dur__region_unref(exec, exec->region);
    dur__kv_free(exec);
    names_free(&exec->names);
    dur__markers_free(exec);
    dur__effects_free(exec);
    dur__free(exec->status);
    dur__free(exec->group.records);
    dur_arena_free(exec->group.arena);
    dur_arena_free(exec->turn_arena);
    dur_arena_free(exec->arena);
    dur__free(exec);
}

/* ---- running ---- */

static int exec_result(dur__exec *exec, dur_error *err) {
    if (exec->broken == DUR_OK) return DUR_OK;
    if (err != NULL) *err = exec->error;
    return exec->broken;
}

static void live_arrival(dur__exec *exec, dur__arrival *arrival);

/* "Empty" is said of what the store has, not of what was offered. */
static dur__arrival *take_for_try(dur__exec *exec, const dur__leaf *leaf) {
    dur__topic *topic = leaf->topic;
    dur__arrival *older = dur__mailbox_take_older(exec, topic, leaf->limit_ms, leaf->limit_id);
    if (older != NULL || topic->messages != NULL || exec->options.more == NULL) return older;
    dur_error err = DUR_ERROR_INIT;
    dur__cover *inner = dur__cover_swap(exec->cover.outer); /* out there nothing may be left by our way out */
    int code = exec->options.more(exec->options.more_data, topic->name, topic->last_ms, topic->last_id, &err);
    (void)dur__cover_swap(inner);
    if (code != DUR_OK) {
        dur__break(exec, (dur_code)code, "queue \"%s\" cannot be read: %s", topic->name, err.message);
        return NULL;
    }
    return dur__mailbox_take_older(exec, topic, leaf->limit_ms, leaf->limit_id);
}

/* Decide the oldest try-dequeue, when all branches wait.  False: nothing to decide, or (replay) history says later. */
static bool decide_try(dur__exec *exec) {
    dur__link *link = dur__list_first(&exec->tries);
    if (link == NULL) return false;
    dur__leaf *leaf = DUR__CONTAINER(link, dur__leaf, trying);
    if (exec->replaying) {
        if (exec->original || !dur__match_drop(exec, leaf)) return false;
    } else {
        dur__arrival *older = take_for_try(exec, leaf);
        if (exec->broken != DUR_OK) return false;
        if (older != NULL) { /* the limit stays, so that a loop of them empties the queue */
            live_arrival(exec, older);
            return true;
        }
    }
    dur_future *future = leaf->future;
    leaf->future = NULL;
    if (exec->original) { /* recorded here and now, as all that the engine decides */
        dur_event drop;
        dur__leaf_drop_event(leaf, "dropped_future", &drop);
        dur__emit(exec, &drop);
        dur__leaf_dropped(exec, leaf);
    } else {
        dur__leaf_drop(exec, leaf, "dropped_future");
    }
    if (future != NULL) {
        future->of.leaf = NULL;
        dur__settle(future, DUR_ENOTFOUND, "the queue is empty");
    }
    return true;
}

void dur__quiesce(dur__exec *exec) {
    do {
        dur__branches_run(exec);
        if (exec->original && !exec->replaying && exec->broken == DUR_OK) dur__original_settle(exec);
    } while (exec->broken == DUR_OK && !exec->finished && decide_try(exec));
}

/* All branches wait: what has been given to a dequeue and not reported by now is so in every state that is stored. */
static void group_end(dur__exec *exec) {
    DUR__LIST_EACH_SAFE(&exec->unmarked, at, after) {
        dur__leaf *leaf = DUR__CONTAINER(at, dur__leaf, trying);
        if (!dur__mark(exec, DUR__MARK_HELD, leaf)) continue; /* written by a version that did not: the next group's */
        leaf->marked = true;
        dur__list_unlink(&leaf->trying);
    }
    dur__graveyard_clear(exec);
}

static void run_root(dur__exec *exec) {
    exec->root = dur__branch_new(exec, NULL, NULL, NULL);
}

/* ---- live ---- */

int dur__exec_start(dur__exec *exec, const dur__exec_begin *begin, uint64_t now_ms, dur_error *err) {
    if (exec->started) return dur_error_set(err, DUR_ESTATE, false, "replay", "the execution has been started");
    exec->started = exec->live = true;
    exec->now_ms = now_ms;
    bool unordered = begin->order_ms == 0 && begin->order_id == 0;
    exec->group_ms = unordered ? UINT64_MAX : begin->order_ms;
    exec->group_id = unordered ? UINT64_MAX : begin->order_id;
    if (LEFT(exec)) return exec_result(exec, err);
    dur_event started = { .kind = DUR_EVENT_ORCHESTRATION_STARTED,
                          .name = exec->options.name,
                          .version = exec->options.version,
                          .input = begin->input != NULL ? begin->input : "",
                          .carry_forward_events = begin->carried_count > 0 ? begin->carried : NULL,
                          .carry_forward_count = begin->carried_count,
                          .initial_custom_status = begin->initial_custom_status,
                          .birth = begin->birth,
                          .trace = 1 };
    DUR__PARENT_SET(&started, &begin->parent);
    dur__emit(exec, &started);
    dur__apply_started(exec, &started);
    run_root(exec);
    dur__quiesce(exec);
    group_end(exec);
    dur__turn_room(exec);
    dur__cover_end(&exec->cover);
    return exec_result(exec, err);
}

static void live_arrival(dur__exec *exec, dur__arrival *arrival) {
    dur__list_push(&exec->consumed, &arrival->link);
    dur_event event;
    arrival->unused = !dur__arrival_event(exec, &arrival->item, &event);
    if (arrival->unused) return;
    dur__emit(exec, &event);
    dur__apply_arrival(exec, &event);
}

/* The caller's clock may be an estimate of the store's, and behind: whose timer has fired sees its time at least. */
static uint64_t group_time(const dur__arrival *arrival, uint64_t now_ms) {
    bool behind = arrival->item.kind == DUR_WORK_TIMER_FIRED && arrival->item.fire_at_ms > now_ms;
    return behind ? arrival->item.fire_at_ms : now_ms;
}

int dur__exec_step(dur__exec *exec, uint64_t now_ms, bool *took, dur_error *err) {
    *took = false;
    if (exec->broken != DUR_OK) return exec_result(exec, err);
    if (!exec->live) return dur_error_set(err, DUR_ESTATE, false, "replay", "the execution has not been started");
    if (exec->finished) return DUR_OK;
    dur__arrival *arrival = dur__mailbox_take(exec);
    if (arrival == NULL) return DUR_OK;
    *took = true;
    exec->now_ms = group_time(arrival, now_ms);
    exec->group_ms = arrival->order_ms;
    exec->group_id = arrival->order_id;
    if (LEFT(exec)) return exec_result(exec, err);
    live_arrival(exec, arrival);
    dur__quiesce(exec);
    group_end(exec);
    dur__turn_room(exec);
    dur__cover_end(&exec->cover);
    return exec_result(exec, err);
}

/* ---- replay ---- */

/* The stored group is complete: run it against its records. */
static void group_run(dur__exec *exec) {
    dur__group *group = &exec->group;
    if (!group->filled) return;
    group->filled = false;
    exec->replaying = true;
    exec->now_ms = group->arrival.timestamp_ms;
    exec->last_id = group->arrival.event_id;
    if (group->arrival.kind == DUR_EVENT_ORCHESTRATION_STARTED) {
        dur__apply_started(exec, &group->arrival);
        run_root(exec);
    } else {
        dur__link *trying = dur__list_first(&exec->tries);
        dur__leaf *leaf = trying != NULL ? DUR__CONTAINER(trying, dur__leaf, trying) : NULL;
        if (leaf != NULL && (group->arrival.kind != DUR_EVENT_QUEUE_EVENT_DELIVERED ||
                             strcmp(group->arrival.name, leaf->topic->name) != 0))
            dur__break(exec, DUR_ENONDETERMINISM,
                       "event %" PRIu64 ": history holds %s, the code asked at %s whether there is a message \"%s\"",
                       group->arrival.event_id, dur_event_kind_name(group->arrival.kind), leaf->site,
                       leaf->topic->name);
        else
            dur__apply_arrival(exec, &group->arrival);
    }
    dur__quiesce(exec);
    group_end(exec);
    if (exec->broken == DUR_OK) dur__match_end(exec);
}

static void group_begin(dur__exec *exec, const dur_event *event) {
    dur__group *group = &exec->group;
    dur_arena_reset(group->arena);
    group->count = group->next = 0;
    dur__event_copy(group->arena, event, &group->arrival);
    group->filled = true;
}

static void group_append(dur__exec *exec, const dur_event *event) {
    dur__group *group = &exec->group;
    DUR__GROW(group->records, group->count, group->room);
    dur__event_copy(group->arena, event, &group->records[group->count++]);
}

/* The answer of a system call belongs to its command. */
static bool completes_pair(const dur__group *group, const dur_event *event) {
    if (event->kind != DUR_EVENT_ACTIVITY_COMPLETED || group->count == 0) return false;
    const dur_event *last = &group->records[group->count - 1];
    return last->kind == DUR_EVENT_ACTIVITY_SCHEDULED && last->event_id == event->source_event_id &&
           dur__is_pair_name(last->name);
}

static int corrupt(dur__exec *exec, dur_error *err, const char *why, uint64_t id) {
    dur__break(exec, DUR_ECORRUPT, "event %" PRIu64 ": %s", id, why);
    return exec_result(exec, err);
}

/* The end over a history that cannot be read has an id of its own. */
static bool ends_unreadable(const dur_event *event) {
    return dur_event_kind_role(event->kind) == DUR_EVENT_ROLE_TERMINAL && event->event_id == DUR__CORRUPTED_EVENT_ID;
}

static int replay_event(dur__exec *exec, const dur_event *event, dur_error *err) {
    if (exec->live) return dur_error_set(err, DUR_ESTATE, false, "replay", "the execution is past its stored history");
    bool first = event->kind == DUR_EVENT_ORCHESTRATION_STARTED;
    if (!exec->started && (!first || event->event_id != 1))
        return corrupt(exec, err, "a history must begin with OrchestrationStarted as event 1", event->event_id);
    if (exec->started && first) return corrupt(exec, err, "a second OrchestrationStarted", event->event_id);
    if (event->event_id <= exec->read_id) return corrupt(exec, err, "event ids do not ascend", event->event_id);
    if (event->event_id != exec->read_id + 1 && !ends_unreadable(event))
        return corrupt(exec, err, "an event before it is missing", event->event_id);
    exec->read_id = event->event_id;
    if (first) {
        exec->started = exec->replaying = true;
        exec->original = event->trace == 0;
    }
    if (exec->original) {
        dur__original_replay(exec, event);
        return exec_result(exec, err);
    }
    dur_event_role role = dur_event_kind_role(event->kind);
    bool opens =
        role == DUR_EVENT_ROLE_START || (role == DUR_EVENT_ROLE_ARRIVAL && !completes_pair(&exec->group, event));
    if (!opens) {
        group_append(exec, event);
        return DUR_OK;
    }
    group_run(exec);
    if (exec->broken == DUR_OK && exec->finished)
        return corrupt(exec, err, "it stands behind the terminal event", event->event_id);
    group_begin(exec, event);
    return exec_result(exec, err);
}

int dur__exec_replay_event(dur__exec *exec, const dur_event *event, dur_error *err) {
    if (exec->broken != DUR_OK) return exec_result(exec, err);
    if (LEFT(exec)) return exec_result(exec, err);
    int code = replay_event(exec, event, err);
    dur__cover_end(&exec->cover);
    return code;
}

static int replay_end(dur__exec *exec, dur_error *err) {
    if (!exec->started) return corrupt(exec, err, "the history is empty", 0);
    if (exec->live) return DUR_OK;
    if (exec->original)
        dur__original_end(exec);
    else
        group_run(exec);
    if (exec->broken == DUR_OK && !dur__list_empty(&exec->tries))
        dur__break(exec, DUR_ENONDETERMINISM,
                   "after event %" PRIu64 ": history ends and the code asks whether a queue has a message",
                   exec->last_id);
    dur_arena_reset(exec->group.arena);
    dur__free(exec->group.records);
    exec->group.records = NULL;
    exec->group.count = exec->group.room = exec->group.next = 0;
    exec->replaying = false;
    exec->live = true;
    dur__turn_room(exec);
    return exec_result(exec, err);
}

int dur__exec_replay_end(dur__exec *exec, dur_error *err) {
    if (exec->broken != DUR_OK) return exec_result(exec, err);
    if (LEFT(exec)) return exec_result(exec, err);
    int code = replay_end(exec, err);
    dur__cover_end(&exec->cover);
    return code;
}

/* ---- looking ---- */

uint64_t dur__exec_last_event(const dur__exec *exec) {
    return exec->last_id;
}
bool dur__exec_finished(const dur__exec *exec) {
    return exec->finished;
}
uint64_t dur__exec_age_ms(const dur__exec *exec) {
    return exec->now_ms > exec->began_ms ? exec->now_ms - exec->began_ms : 0; /* the clock may have been set back */
}
const char *dur__exec_where(const dur__exec *exec) {
    const char *where = __atomic_load_n(&exec->where, __ATOMIC_RELAXED);
    return where != NULL ? where : "";
}

size_t dur__exec_bytes(const dur__exec *exec) {
    size_t bytes = sizeof(*exec) + exec->bytes + dur_arena_bytes(exec->arena) + exec->json.room +
                   exec->open.room * sizeof(*exec->open.entries);
    DUR__LIST_EACH(&exec->branches, at) {
        const dur__branch *branch = DUR__CONTAINER(at, dur__branch, link);
        bytes += branch->body->methods->touched(branch->body);
    }
    return bytes;
}

size_t dur__exec_stack_high_water(const dur__exec *exec) {
    size_t most = exec->stack_high_water;
    DUR__LIST_EACH(&exec->branches, at) {
        const dur__branch *branch = DUR__CONTAINER(at, dur__branch, link);
        size_t touched = branch->body->methods->touched(branch->body);
        if (touched > most) most = touched;
    }
    return most;
}
