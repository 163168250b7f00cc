/*
 * memory_lane.c: lanes: the rounds of a loop, and how it sleeps.
 */
#include "base/assert.h"
#include "provider/memory/memory_internal.h"

#include <stdlib.h>

#define FAKE_TIME_SLICE_US 2000u /* how often a sleeper looks at a clock that only a test moves */

static dur__mem_lane *lane_of(dur_lane *lane) {
    return (dur__mem_lane *)(void *)lane;
}

void dur__mem_lane_tell(dur__mem_lane *lane, dur__mem_instance *instance) {
    if (!dur__link_linked(&instance->told)) dur__list_push(&lane->told, &instance->told);
    if (lane->waker != NULL && lane != lane->mem->self) dur_waker_wake(lane->waker);
}

static void name_add(dur__mem_lane *lane, dur__mem_names *names, const char *instance) {
    if (names->count == names->room) {
        size_t room = names->room > 0 ? 2 * names->room : 8;
        names->list = dur__xrealloc(names->list, room * sizeof(*names->list));
        names->room = room;
    }
    names->list[names->count++] = dur__xstrdup(instance);
    if (lane->waker != NULL && lane != lane->mem->self) dur_waker_wake(lane->waker);
}

void dur__mem_lane_lost(dur__mem_lane *lane, const char *instance) {
    name_add(lane, &lane->lost, instance);
}

void dur__mem_lane_ask(dur__mem_lane *lane, const char *instance) {
    name_add(lane, &lane->asked, instance);
}

static size_t names_bytes(const dur__mem_names *names) {
    size_t bytes = 128u << 10; /* an arena's chunk */
    for (size_t i = 0; i < names->count; i++)
        bytes += 2 * (sizeof(char *) + strlen(names->list[i]) + 1);
    return bytes;
}

/* Copies in arena (NULL: forgotten); none are left. */
static const char **names_take(dur__mem_names *names, dur_arena *arena, size_t *count) {
    const char **out = arena != NULL ? dur_arena_zalloc(arena, (names->count + 1) * sizeof(*out)) : NULL;
    for (size_t i = 0; i < names->count; i++) {
        if (out != NULL) out[i] = dur_arena_strdup(arena, names->list[i]);
        dur__free(names->list[i]);
    }
    *count = names->count;
    names->count = 0;
    return out;
}

int dur__mem_lane_open(dur_provider *self, const dur_lane_options *options, dur_lane **out, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    int code = DUR_OK;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    if (options->owner != NULL && dur__mem_owner_find(mem, options->owner) == NULL) {
        code = dur_error_set(err, DUR_ESTATE, false, "memory.lane_open", "owner %s is not registered", options->owner);
    } else if (!dur__mem_room_bytes(mem, options->owner != NULL ? strlen(options->owner) : 0)) {
        code = DUR__NO_MEMORY(err, "memory.lane_open");
    } else {
        dur__mem_lane *lane = dur__xcalloc(1, sizeof(*lane));
        lane->base.store = self;
        lane->mem = mem;
        lane->owner = dur__xstrdup(options->owner);
        lane->waker = options->waker;
        lane->handlers = options->handlers;
        dur__list_init(&lane->leases);
        dur__list_init(&lane->told);
        dur__list_push(&mem->lanes, &lane->link);
        *out = &lane->base;
    }
    dur__mem_leave(mem);
    return code;
}

void dur__mem_lane_close(dur_lane *base) {
    dur__mem_lane *lane = lane_of(base);
    dur__mem *mem = lane->mem;
    dur__link *link;
    dur__mem_enter_anyway(mem);
    while ((link = dur__list_first(&lane->leases)) != NULL) { /* the leases stay with their owner */
        dur__mem_instance *instance = DUR__CONTAINER(link, dur__mem_instance, by_lane);
        dur__list_unlink(&instance->by_lane);
        dur__list_unlink(&instance->told);
        instance->lane = NULL;
    }
    dur__list_unlink(&lane->link);
    dur__mem_leave(mem);
    size_t dropped;
    (void)names_take(&lane->lost, NULL, &dropped);
    (void)names_take(&lane->asked, NULL, &dropped);
    dur__free(lane->lost.list);
    dur__free(lane->asked.list);
    dur__free(lane->owner);
    dur__free(lane);
}

/* ---- a round ----------------------------------------------------------------------------------------------------- */

static void round_fetch(dur__mem *mem, dur__mem_lane *lane, dur_arena *arena, dur_round *round) {
    const dur_fetch any = { .kind = DUR_FETCH_ANY, .handlers = lane->handlers };
    const dur_fetch *how = round->fetch;
    if (how == NULL) {
        round->more = dur__mem_fetchable(mem, &any);
        return;
    }
    size_t max = how->max > 0 ? how->max : 1;
    size_t room = max < 16 ? max : 16;
    if (!dur__mem_room_bytes(mem, 4 * max * sizeof(*round->items) + (128u << 10))) {
        round->more = true;
        return;
    }
    round->items = dur_arena_alloc(arena, room * sizeof(*round->items));
    while (round->item_count < max) {
        if (round->item_count == room) {
            size_t larger = 2 * room < max ? 2 * room : max;
            dur_orchestration_item *items = dur_arena_alloc(arena, larger * sizeof(*items));
            memcpy(items, round->items, room * sizeof(*items));
            round->items = items;
            room = larger;
        }
        if (!dur__mem_fetch_one(mem, lane, how, arena, &round->items[round->item_count])) break;
        round->item_count++;
    }
    if (round->item_count == max) round->more = dur__mem_fetchable(mem, how);
}

static void round_work(dur__mem *mem, dur_arena *arena, dur_round *round) {
    const dur_work_fetch *how = round->work;
    if (how == NULL || how->tags.mode == DUR_TAGS_NONE) return;
    size_t max = how->max > 0 ? how->max : 1;
    if (!dur__mem_room_bytes(mem, 2 * max * sizeof(*round->works) + (128u << 10))) {
        round->more = true;
        return;
    }
    round->works = dur_arena_alloc(arena, max * sizeof(*round->works));
    const dur__mem_work *head = dur__mem_work_first(mem, how, DUR_FETCH_ANY);
    round->work_waiting_long = head != NULL && mem->boot_ms - head->since_boot_ms > DUR__MEM_WAITED_LONG_MS;
    while (round->work_count < max && dur__mem_work_fetch(mem, how, arena, &round->works[round->work_count]))
        round->work_count++;
    if (round->work_count == max && dur__mem_work_first(mem, how, how->kind) != NULL) round->more = true;
}

static void round_suspects(dur__mem *mem, dur_round *round) {
    if (round->fetch != NULL) {
        dur_fetch suspects = *round->fetch;
        suspects.kind = DUR_FETCH_SUSPECT;
        round->suspect_instance = dur__mem_suspect_first(mem, &suspects);
    }
    if (round->work == NULL) return;
    const dur__mem_work *work = dur__mem_work_first(mem, round->work, DUR_FETCH_SUSPECT);
    round->suspect_work = work != NULL ? work->crashes_alone + 1 : 0;
}

static void round_held(dur__mem *mem, dur__mem_lane *lane, dur_arena *arena, dur_round *round) {
    dur__mem_batch batch = { NULL, 0, 0 };
    dur__link *link;
    size_t bytes = 0;
    while ((link = dur__list_first(&lane->told)) != NULL) {
        dur__mem_instance *instance = DUR__CONTAINER(link, dur__mem_instance, told);
        if (!dur__mem_room_held(mem, instance, &bytes)) break; /* the next round */
        dur__list_unlink(link);
        dur__mem_give(mem, instance, false, round->queue_messages_max, &batch);
        dur__mem_place(mem, instance);
    }
    dur__mem_batch_sort(&batch);
    round->held_count = batch.count;
    round->held = dur_arena_zalloc(arena, (batch.count + 1) * sizeof(*round->held));
    for (size_t i = 0; i < batch.count; i++) {
        const dur__mem_message *message = batch.items[i];
        round->held[i].instance = dur_arena_strdup(arena, message->instance->id);
        round->held[i].lock_token = dur_arena_strdup(arena, message->instance->token);
        round->held[i].message = dur__mem_message_copy(message, arena);
    }
    dur__free(batch.items);
}

/* A round that did nothing for want of memory has failed: its caller pauses. */
static bool did_something(const dur_round *round) {
    return round->turn_count + round->ack_count + round->item_count + round->work_count + round->held_count +
               round->lost_count + round->asked_count >
           0;
}

int dur__mem_lane_round(dur_lane *base, dur_arena *arena, dur_round *round, dur_error *err) {
    dur__mem_lane *lane = lane_of(base);
    dur__mem *mem = lane->mem;
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    mem->self = lane;
    mem->no_room = false;
    for (size_t i = 0; i < round->turn_count; i++)
        dur__mem_commit(mem, lane, arena, &round->turns[i]);
    for (size_t i = 0; i < round->ack_count; i++)
        dur__mem_work_ack(mem, &round->acks[i]);
    round_fetch(mem, lane, arena, round);
    round_work(mem, arena, round);
    round_suspects(mem, round);
    round_held(mem, lane, arena, round);
    if (dur__mem_room_bytes(mem, names_bytes(&lane->lost) + names_bytes(&lane->asked))) {
        round->lost = names_take(&lane->lost, arena, &round->lost_count);
        round->asked = names_take(&lane->asked, arena, &round->asked_count);
    }
    round->now_ms = mem->now_ms;
    round->seen_id = mem->last_message_id;
    round->next_due_ms = dur__mem_next_due(mem);
    /* A round that does not look everywhere leaves the news for the next wait. */
    bool whole = !mem->no_room;
    if (round->fetch != NULL && round->work != NULL) lane->looked = mem->stamp;
    if (!whole) lane->looked = UINT64_MAX; /* what was left is news again */
    dur__mem_leave(mem);
    return whole || did_something(round) ? DUR_OK : DUR__NO_MEMORY(err, "memory.round");
}

/* ---- sleeping ---------------------------------------------------------------------------------------------------- */

/* How long nothing can come by itself; 0: there is something. */
static uint64_t quiet_us(dur__mem *mem, dur__mem_lane *lane) {
    uint64_t us = UINT64_MAX;
    dur__mem_enter_anyway(mem);
    if (lane->looked != mem->stamp || lane->lost.count + lane->asked.count > 0 || !dur__list_empty(&lane->told)) us = 0;
    uint64_t due = us == 0 ? DUR_NEVER : dur__mem_next_due(mem);
    if (due != DUR_NEVER) us = due <= mem->now_ms ? 0 : (due - mem->now_ms) * 1000u;
    lane->looked = mem->stamp; /* what it is told once it need not be told again */
    mem->self = lane;
    dur__mem_leave(mem);
    return us;
}

int dur__mem_lane_rest(dur_lane *base, dur_rest *out, dur_error *err) {
    dur__mem_lane *lane = lane_of(base);
    uint64_t us = quiet_us(lane->mem, lane);
    (void)err;
    if (us == 0 || !dur_waker_sleep_begin(lane->waker)) return DUR_OK;
    out->fds[out->fd_count++] = (struct pollfd){ .fd = dur_waker_fd(lane->waker), .events = POLLIN };
    out->us = !lane->mem->real_time && us > FAKE_TIME_SLICE_US ? FAKE_TIME_SLICE_US : us;
    return DUR_OK;
}

int dur__mem_lane_rise(dur_lane *base, const dur_rest *slept, bool *news, dur_error *err) {
    (void)slept, (void)err;
    *news = dur_waker_sleep_end(lane_of(base)->waker);
    return DUR_OK;
}

/* ---- reads of a leased instance ---------------------------------------------------------------------------------- */

static dur__mem_instance *held_instance(dur__mem *mem, const char *instance, const char *token, dur_error *err) {
    dur__mem_instance *row = dur__mem_lease_find(mem, token);
    if (row != NULL && strcmp(row->id, instance) == 0) return row;
    dur_error_set(err, DUR_ELEASE, false, "memory.lane", "Invalid lock token");
    return NULL;
}

static void tree_collect(dur__mem *mem, dur__mem_tree *tree, uint64_t due_ms, uint64_t id, size_t max,
                         dur__mem_batch *batch) {
    dur__mem_node *node = dur__mem_tree_from(tree, due_ms, id);
    for (size_t taken = 0; node != NULL && taken < max; node = dur__mem_tree_next(node)) {
        dur__mem_message *message = DUR__CONTAINER(node, dur__mem_message, place);
        if (message->order_ms == due_ms && message->id == id) continue; /* `after` itself */
        if (!dur__mem_visible(mem, message)) continue;
        dur__mem_batch_add(batch, message);
        taken++;
    }
}

static void channel_collect(dur__mem *mem, dur__mem_channel *channel, uint64_t due_ms, uint64_t id, size_t max,
                            dur__mem_batch *batch) {
    tree_collect(mem, &channel->now, due_ms, id, max, batch);
    tree_collect(mem, &channel->given, due_ms, id, max, batch);
    /* Of the delayed ones only those that are due: the tree is in order of time. */
    dur__mem_node *node = dur__mem_tree_from(&channel->later, due_ms, id);
    for (size_t taken = 0; node != NULL && node->hi <= mem->now_ms && taken < max; node = dur__mem_tree_next(node)) {
        if (node->hi == due_ms && node->lo == id) continue;
        dur__mem_batch_add(batch, DUR__CONTAINER(node, dur__mem_message, place));
        taken++;
    }
}

/* What is handed out here is known to the holder and does not come again with a round. */
static void mark_given(dur__mem_message *message) {
    dur__mem_channel *channel = message->channel;
    if (message->place.tree == &channel->given) return;
    dur__mem_tree_remove(&message->place);
    dur__mem_tree_remove(&message->reason);
    dur__mem_tree_add(&channel->given, &message->place, message->order_ms, message->id);
}

int dur__mem_lane_messages(dur_lane *base, dur_arena *arena, const char *instance, const char *lock_token,
                           const char *queue, uint64_t after_due_ms, uint64_t after_id, size_t max,
                           dur_fetched_message **out, size_t *count, dur_error *err) {
    dur__mem *mem = lane_of(base)->mem;
    dur__mem_batch batch = { NULL, 0, 0 };
    dur__map_entry *entry;
    size_t limit = max > 0 ? max : SIZE_MAX;
    *out = NULL;
    *count = 0;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_instance *row = held_instance(mem, instance, lock_token, err);
    size_t bytes = 0;
    if (row != NULL && !dur__mem_room_held(mem, row, &bytes)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory.lane_messages");
    }
    if (row != NULL) {
        dur__mem_channel *one = queue != NULL ? dur__mem_channel_find(row, queue) : &row->plain;
        if (one != NULL) channel_collect(mem, one, after_due_ms, after_id, limit, &batch);
        for (size_t i = 0; queue == NULL && (entry = dur__map_next(&row->queues, &i)) != NULL;)
            channel_collect(mem, entry->value, after_due_ms, after_id, limit, &batch);
        dur__mem_batch_sort(&batch);
        *count = batch.count < limit ? batch.count : limit;
        *out = dur_arena_zalloc(arena, (*count + 1) * sizeof(**out));
        for (size_t i = 0; i < *count; i++) {
            mark_given(batch.items[i]);
            (*out)[i] = dur__mem_message_copy(batch.items[i], arena);
        }
        dur__mem_place(mem, row);
    }
    dur__mem_leave(mem);
    dur__free(batch.items);
    return row != NULL ? DUR_OK : DUR_ELEASE;
}

int dur__mem_lane_history(dur_lane *base, dur_arena *arena, const char *instance, const char *lock_token,
                          uint64_t execution_id, dur_orchestration_item *out, dur_error *err) {
    dur__mem *mem = lane_of(base)->mem;
    memset(out, 0, sizeof(*out));
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__way_out way_out; /* nothing is changed here */
    if (DUR__OUT_OF_MEMORY(&way_out)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory");
    }
    dur__mem_instance *row = held_instance(mem, instance, lock_token, err);
    if (row != NULL) {
        uint64_t wanted = execution_id != 0 ? execution_id : row->current_execution;
        const dur__mem_execution *execution = dur__mem_execution_find(row, wanted);
        out->instance = dur_arena_strdup(arena, row->id);
        out->lock_token = dur_arena_strdup(arena, row->token);
        out->orchestration_name = dur_arena_strdup(arena, row->name);
        out->version = dur_arena_strdup(arena, row->version);
        out->execution_id = wanted > 0 ? wanted : 1;
        out->last_event_id = dur__mem_last_event(execution);
        out->acquisitions = row->acquisitions;
        out->crashes = row->acquisitions > 0 ? row->crashes : 0;
        out->crashes_alone = row->acquisitions > 0 ? row->crashes_alone - dur__mem_doubts(mem, row->id, 0) : 0;
        out->history = dur__mem_events_copy(execution, arena, &out->history_count);
        out->kv = dur__mem_kv_snapshot(row, arena, &out->kv_count);
    }
    dur__way_out_end(&way_out);
    dur__mem_leave(mem);
    return row != NULL ? DUR_OK : DUR_ELEASE;
}
