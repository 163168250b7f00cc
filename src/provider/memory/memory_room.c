/*
 * memory_room.c: what a change may need is set aside before it begins.
 *
 * Changes go through many trees, lists and maps, and none of them is undone: so no allocation within a change may fail.
 * Every method that changes something enters with a small reserve; a change that depends on what it is given (a turn, a
 * message, a deletion) asks for more first, and for room in the maps that grow with the store.  When that is not to be
 * had, nothing has happened, and the answer is DUR_ENOMEM.  The amounts are upper bounds, not estimates: what is asked
 * for costs nothing while there is memory, for a reserve is touched only when there is none.
 */
#include "provider/memory/memory_internal.h"

#define SMALL_BYTES (16u << 10)
#define BLOCK 48u /* what a block of a reserve costs beside its size, and the rounding of a map's */

static size_t text(const char *of) {
    return of != NULL ? strlen(of) + 1 + BLOCK : 0;
}

static size_t map_grows(size_t count) {
    return (count + 8) * 4 * (sizeof(dur__map_entry) + 2 * sizeof(uint32_t)) + BLOCK;
}

bool dur__mem_room(dur__mem *mem, const dur__mem_need *need) {
    size_t rows = need->messages + need->works;
    bool room = dur__reserve_fill(&mem->reserve, SMALL_BYTES + need->bytes) &&
                dur__map_reserve(&mem->instances, rows + 1) && dur__map_reserve(&mem->families, need->parents + 1) &&
                dur__map_reserve(&mem->leases, 1) && dur__map_reserve(&mem->messages, need->messages + 1) &&
                dur__map_reserve(&mem->letters, need->letters) && dur__map_reserve(&mem->works, need->works) &&
                dur__map_reserve(&mem->claims, need->works + 1) && dur__map_reserve(&mem->shelves, need->works + 1) &&
                dur__map_reserve(&mem->sessions, need->works);
    mem->no_room |= !room;
    return room;
}

bool dur__mem_room_bytes(dur__mem *mem, size_t bytes) {
    return dur__mem_room(mem, &(dur__mem_need){ .bytes = bytes });
}

void dur__mem_need_message(dur__mem *mem, dur__mem_need *need, const dur_message_row *item) {
    const dur__mem_instance *instance = dur__mem_find(mem, item->instance);
    need->messages++;
    need->parents += item->parent != NULL;
    need->bytes += sizeof(dur__mem_message) + sizeof(dur__mem_instance) + sizeof(dur__mem_channel) +
                   sizeof(dur__mem_family) + sizeof(dur__mem_bucket) + 10 * BLOCK + item->json.size +
                   2 * text(item->instance) + 3 * text(item->handler) + 2 * text(item->parent) + text(item->queue) +
                   sizeof(dur__mem_accepted) + text(item->message_id) +
                   map_grows(instance != NULL ? instance->queues.count : 0);
}

void dur__mem_need_work(dur__mem_need *need, const dur_message_row *item) {
    need->works++;
    need->bytes += sizeof(dur__mem_work) + sizeof(dur__mem_instance) + sizeof(dur__mem_shelf) +
                   sizeof(dur__mem_session) + 12 * BLOCK + item->json.size + text(item->instance) +
                   4 * (text(item->tag) + text(item->handler) + text(item->session_id)) + 4 * DUR__MEM_TOKEN_SIZE;
}

static void need_letter(dur__mem *mem, dur__mem_message *message, void *arg) {
    dur__mem_need *need = arg;
    (void)mem;
    need->letters++;
    need->bytes += sizeof(dur__mem_letter) + 3 * BLOCK + message->json_size + text(message->instance->id) + 256 +
                   4 * sizeof(void *);
}

void dur__mem_need_letters(dur__mem *mem, dur__mem_need *need, dur__mem_instance *instance) {
    dur__mem_each_message(mem, instance, need_letter, need);
}

/* All its messages may become letters, and all its starts come again. */
static void need_again(dur__mem *mem, dur__mem_message *message, void *arg) {
    dur__mem_need *need = arg;
    need_letter(mem, message, arg);
    need->messages++;
    need->parents++;
    need->bytes += sizeof(*message) + 2 * message->json_size + sizeof(dur_message_row) + sizeof(dur__mem_instance) +
                   16 * BLOCK + 3 * text(message->handler) + 3 * text(message->parent) + 1024 + map_grows(0);
}

void dur__mem_need_erase(dur__mem *mem, dur__mem_need *need, dur__mem_instance *instance) {
    need->bytes += 1024 + sizeof(void *) * 4 + text(instance->id) +
                   (instance->lane != NULL ? dur__mem_need_name(&instance->lane->lost, instance->id) : 0);
    dur__mem_each_message(mem, instance, need_again, need);
}

size_t dur__mem_need_name(const dur__mem_names *names, const char *instance) {
    return text(instance) + 4 * (names->count + 8) * sizeof(char *) + BLOCK;
}

static void need_values(dur__mem_need *need, const dur__map *values) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(values, &i)) != NULL;) {
        const dur__mem_value *value = entry->value;
        need->bytes += sizeof(*value) + 3 * BLOCK + text(value->key) + text(value->value);
    }
    need->bytes += map_grows(2 * values->count);
}

static void need_events(dur__mem_need *need, const dur__mem_instance *instance, const dur_turn_commit *turn) {
    size_t keys = 0;
    for (size_t i = 0; i < turn->event_count; i++) {
        const dur_event_row *event = &turn->events[i];
        need->bytes += event->json.size + 1 + BLOCK;
        if (event->key == NULL && event->value == NULL && event->kind != DUR_EVENT_KEY_VALUES_CLEARED) continue;
        keys++;
        need->bytes += 2 * (sizeof(dur__mem_value) + 3 * BLOCK + text(event->key) + text(event->value));
        if (event->kind == DUR_EVENT_KEY_VALUES_CLEARED) need_values(need, &instance->kv);
    }
    if (keys == 0 && turn->metadata.status == DUR_STATUS_NONE) return;
    need->bytes += map_grows(instance->kv.count + instance->kv_delta.count + keys);
    if (turn->metadata.status == DUR_STATUS_NONE) return;
    need_values(need, &instance->kv_delta);
    need->bytes += map_grows(instance->kv.count + instance->kv_delta.count + keys);
}

static void need_metadata(dur__mem_need *need, const dur__mem_instance *instance, const dur_turn_commit *turn) {
    const dur_execution_metadata *metadata = &turn->metadata;
    need->parents += metadata->parent_instance_id != NULL;
    need->bytes += 3 * (text(metadata->orchestration_name) + text(metadata->orchestration_version)) +
                   3 * text(metadata->parent_instance_id) + text(metadata->output) + text(turn->suspended) +
                   sizeof(dur__mem_family) + sizeof(dur__mem_bucket) + sizeof(dur__mem_execution) + 2048 + 16 * BLOCK +
                   4 * (instance->execution_count + 2) * sizeof(void *) + 4 * text(instance->handler);
    if (instance->lane != NULL) need->bytes += dur__mem_need_name(&instance->lane->lost, instance->id);
}

/* Room for the events themselves is made where they will stand: histories are long. */
static bool room_for_events(const dur__mem_execution *known, const dur_turn_commit *turn) {
    dur__mem_execution *execution = (dur__mem_execution *)(uintptr_t)known;
    size_t need = execution != NULL ? execution->event_count + turn->event_count : 0;
    if (execution == NULL || need <= execution->event_room) return true;
    size_t room = need > 2 * execution->event_room ? need : 2 * execution->event_room;
    dur__mem_event *moved = dur__resize(execution->events, room * sizeof(*moved));
    if (moved == NULL) return false;
    execution->events = moved;
    execution->event_room = room;
    return true;
}

bool dur__mem_room_turn(dur__mem *mem, dur__mem_instance *instance, const dur__mem_execution *execution,
                        const dur_turn_commit *turn, bool letters) {
    dur__mem_need need = { .bytes = execution == NULL ? turn->event_count * sizeof(dur__mem_event) + BLOCK : 0 };
    need_metadata(&need, instance, turn);
    need_events(&need, instance, turn);
    if (letters) dur__mem_need_letters(mem, &need, instance);
    size_t doubts = 0;
    DUR__LIST_EACH(&mem->members, at) doubts++;
    for (size_t i = 0; i < turn->worker_item_count; i++) {
        dur__mem_need_work(&need, &turn->worker_items[i].message);
        need.bytes += text(turn->worker_items[i].lock_token) + 2 * text(turn->session_owner);
        if (turn->worker_items[i].recovered) need.bytes += doubts * (text(instance->id) + 2 * BLOCK);
    }
    for (size_t i = 0; i < turn->orchestrator_item_count; i++)
        dur__mem_need_message(mem, &need, &turn->orchestrator_items[i]);
    return dur__mem_room(mem, &need) && room_for_events(execution, turn);
}

bool dur__mem_room_append(dur__mem *mem, const dur__mem_execution *execution, const char *instance,
                          const dur_event_row *events, size_t count) {
    size_t room = execution != NULL ? execution->event_count + execution->event_room : 0;
    dur__mem_need need = { .bytes = sizeof(dur__mem_instance) + sizeof(dur__mem_execution) + 16 * BLOCK +
                                    2 * text(instance) + 2 * (room + count) * sizeof(dur__mem_event) +
                                    count * sizeof(uint64_t),
                           .messages = 1 };
    for (size_t i = 0; i < count; i++)
        need.bytes += events[i].json.size + 1 + BLOCK;
    return dur__mem_room(mem, &need);
}

static void need_copy(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)mem;
    *(size_t *)arg += sizeof(dur_fetched_message) + 4 * sizeof(void *) + message->json_size + 64 +
                      text(message->channel->queue) + text(message->instance->id);
}

/* Copies go into an arena: its chunks are larger than what is put into them. */
static size_t in_arena(size_t bytes) {
    return 2 * bytes + (128u << 10);
}

bool dur__mem_room_held(dur__mem *mem, dur__mem_instance *instance, size_t *bytes) {
    dur__mem_each_message(mem, instance, need_copy, bytes);
    return dur__mem_room_bytes(mem, in_arena(*bytes));
}

bool dur__mem_room_fetch(dur__mem *mem, dur__mem_instance *instance, const dur_fetch *how) {
    const dur__mem_execution *execution = dur__mem_execution_find(instance, instance->current_execution);
    size_t bytes = 4 * (text(instance->id) + text(instance->name) + text(instance->version)) +
                   instance->works.count * sizeof(uint64_t);
    dur__mem_each_message(mem, instance, need_copy, &bytes);
    if (!how->without_history) {
        dur__mem_need kv = { .bytes = 0 };
        need_values(&kv, &instance->kv);
        bytes += kv.bytes + instance->kv.count * sizeof(dur_key_value);
        if (execution != NULL) bytes += execution->event_bytes + execution->event_count * (sizeof(dur_event_row) + 1);
    }
    return dur__mem_room_bytes(mem, in_arena(bytes));
}

bool dur__mem_room_work(dur__mem *mem, const dur__mem_work *work, const dur_work_fetch *how) {
    dur__mem_need need = { .works = 1 };
    size_t rows = work->session != NULL ? work->session->row_count : 0;
    size_t shelf =
        sizeof(dur__mem_shelf) + 8 * BLOCK + 4 * (text(work->tag) + text(work->handler)) + 4 * text(how->session_owner);
    need.bytes = in_arena(work->json_size + 2 * text(work->instance->id) + 256) + (rows + 2) * shelf;
    return dur__mem_room(mem, &need);
}
