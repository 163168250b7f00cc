/*
 * memory_message.c: messages to instances: their order, who knows them, and which are a reason to fetch.
 */
#include "base/assert.h"
#include "provider/dead_reason.h"
#include "provider/memory/memory_internal.h"

#include <stdlib.h>

static dur__mem_message *message_at(dur__mem_node *node) {
    return node != NULL ? DUR__CONTAINER(node, dur__mem_message, place) : NULL;
}

static dur__mem_message *reason_at(dur__mem_node *node) {
    return node != NULL ? DUR__CONTAINER(node, dur__mem_message, reason) : NULL;
}

bool dur__mem_visible(const dur__mem *mem, const dur__mem_message *message) {
    return message->due_ms == 0 || message->due_ms <= mem->now_ms;
}

static bool starts(dur_work_kind kind) {
    return kind == DUR_WORK_START_ORCHESTRATION || kind == DUR_WORK_CONTINUE_AS_NEW;
}

/* ---- channels ---------------------------------------------------------------------------------------------------- */

dur__mem_channel *dur__mem_channel_find(dur__mem_instance *instance, const char *queue) {
    return queue == NULL ? &instance->plain : dur__map_get(&instance->queues, queue);
}

static dur__mem_channel *channel_make(dur__mem_instance *instance, const char *queue) {
    dur__mem_channel *channel = dur__mem_channel_find(instance, queue);
    if (channel != NULL) return channel;
    channel = dur__xcalloc(1, sizeof(*channel));
    channel->queue = dur__xstrdup(queue);
    dur__map_put(&instance->queues, channel->queue, channel);
    return channel;
}

static void channel_tidy(dur__mem_instance *instance, dur__mem_channel *channel) {
    if (channel->queue == NULL || channel->now.count + channel->later.count + channel->given.count > 0) return;
    dur__map_remove(&instance->queues, channel->queue);
    dur__free(channel->queue);
    dur__free(channel);
}

/* Of the messages of a channel that the holder does not know, the first that is visible. */
static dur__mem_message *channel_first(const dur__mem *mem, const dur__mem_channel *channel) {
    dur__mem_message *now = message_at(dur__mem_tree_first(&channel->now));
    dur__mem_message *later = message_at(dur__mem_tree_first(&channel->later));
    if (later != NULL && !dur__mem_visible(mem, later)) later = NULL;
    if (now == NULL || later == NULL) return now != NULL ? now : later;
    return dur__mem_before(now->order_ms, now->id, later->order_ms, later->id) ? now : later;
}

/* ---- a message comes and goes ------------------------------------------------------------------------------------ */

static void message_unknown(dur__mem_message *message) { /* the holder does not know it */
    dur__mem_channel *channel = message->channel;
    dur__mem_tree_add(message->due_ms == 0 ? &channel->now : &channel->later, &message->place, message->order_ms,
                      message->id);
}

static void message_counts(dur__mem_message *message) { /* it is a reason to fetch */
    dur__mem_instance *instance = message->instance;
    if (message->reason.tree != NULL) return;
    dur__mem_tree_add(message->due_ms == 0 ? &instance->reason_now : &instance->reason_later, &message->reason,
                      message->order_ms, message->id);
}

static uint64_t due_of(const dur__mem *mem, const dur_message_row *item, uint64_t delay_ms) {
    if (delay_ms == 0) return item->due_ms;
    uint64_t due = delay_ms > UINT64_MAX - 1 - mem->now_ms ? UINT64_MAX - 1 : mem->now_ms + delay_ms;
    return due > item->due_ms ? due : item->due_ms;
}

dur__mem_message *dur__mem_enqueue(dur__mem *mem, const dur_message_row *item, uint64_t delay_ms) {
    dur__mem_instance *instance = dur__mem_make(mem, item->instance);
    dur__mem_message *message = dur__xcalloc(1, sizeof(*message) + item->json.size + 1);
    if (starts(item->kind) && !dur__mem_exists(instance) && !dur__mem_leased(instance)) { /* it begins anew */
        instance->acquisitions = 0;
        instance->not_before_ms = 0;
    }
    message->id = ++mem->last_message_id;
    message->due_ms = due_of(mem, item, delay_ms);
    if (mem->now_ms > mem->came_ms) mem->came_ms = mem->now_ms;
    message->order_ms = message->due_ms != 0 ? message->due_ms : mem->came_ms;
    message->kind = item->kind;
    message->execution_id = item->execution_id;
    message->activity_id = item->activity_id;
    message->instance = instance;
    message->channel = channel_make(instance, item->kind == DUR_WORK_QUEUE_MESSAGE ? item->queue : NULL);
    message->handler = dur__xstrdup(item->handler);
    message->parent = dur__xstrdup(item->parent);
    if (item->parent != NULL) dur__list_push(&dur__mem_family_make(mem, item->parent)->calls, &message->call);
    message->json_size = item->json.size;
    if (item->json.size > 0) memcpy(message->json, item->json.data, item->json.size);
    /* The first start makes the instance; those for one that exists are answered by whoever has its handler. */
    if (item->kind == DUR_WORK_CONTINUE_AS_NEW ||
        (item->kind == DUR_WORK_START_ORCHESTRATION && !dur__mem_exists(instance)))
        dur__mem_set_text(&instance->handler, item->handler);
    message_unknown(message);
    message_counts(message);
    if (item->kind == DUR_WORK_TIMER_FIRED)
        dur__mem_tree_add(&instance->timers, &message->timer, message->activity_id, message->id);
    instance->message_count++;
    instance->queue_message_count += item->kind == DUR_WORK_QUEUE_MESSAGE;
    instance->cancel_count += item->kind == DUR_WORK_CANCEL_INSTANCE;
    if (starts(item->kind) && instance->start_count++ == 0) instance->start_at_ms = mem->now_ms;
    dur__map_put_u64(&mem->messages, message->id, message);
    if (instance->lane != NULL && dur__mem_visible(mem, message)) dur__mem_lane_tell(instance->lane, instance);
    dur__mem_place(mem, instance);
    return message;
}

void dur__mem_message_free(dur__mem *mem, dur__mem_message *message) {
    dur__mem_instance *instance = message->instance;
    dur__mem_channel *channel = message->channel;
    /* A place among the first few of its queue is free again. */
    if (instance->lane != NULL && channel->queue != NULL && message->place.tree == &channel->given &&
        channel->now.count + channel->later.count > 0)
        dur__mem_lane_tell(instance->lane, instance);
    dur__mem_tree_remove(&message->place);
    dur__mem_tree_remove(&message->reason);
    dur__mem_tree_remove(&message->timer);
    instance->message_count--;
    instance->queue_message_count -= message->kind == DUR_WORK_QUEUE_MESSAGE;
    instance->cancel_count -= message->kind == DUR_WORK_CANCEL_INSTANCE;
    instance->start_count -= starts(message->kind);
    dur__map_remove_u64(&mem->messages, message->id);
    channel_tidy(instance, channel);
    dur__mem_family_leave(mem, message->parent, &message->call);
    dur__free(message->handler);
    dur__free(message->parent);
    dur__free(message);
}

/* ---- reasons ----------------------------------------------------------------------------------------------------- */

dur__mem_message *dur__mem_first_reason(const dur__mem *mem, const dur__mem_instance *instance) {
    dur__mem_message *now = reason_at(dur__mem_tree_first(&instance->reason_now));
    dur__mem_message *later = reason_at(dur__mem_tree_first(&instance->reason_later));
    if (later != NULL && !dur__mem_visible(mem, later)) later = NULL;
    if (now == NULL || later == NULL) return now != NULL ? now : later;
    return dur__mem_before(now->order_ms, now->id, later->order_ms, later->id) ? now : later;
}

uint64_t dur__mem_next_reason(const dur__mem *mem, const dur__mem_instance *instance) {
    dur__mem_node *node = dur__mem_tree_from(&instance->reason_later, mem->now_ms + 1, 0);
    return node != NULL ? node->hi : DUR_NEVER;
}

/* Queue messages of an instance that does not exist: the first visible one. */
dur__mem_message *dur__mem_first_orphan(const dur__mem *mem, const dur__mem_instance *instance) {
    dur__mem_message *first = NULL;
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&instance->queues, &i)) != NULL;) {
        dur__mem_message *message = channel_first(mem, entry->value);
        if (message == NULL) continue;
        if (first == NULL || dur__mem_before(message->order_ms, message->id, first->order_ms, first->id))
            first = message;
    }
    return first;
}

void dur__mem_bury_orphans(dur__mem *mem, dur__mem_instance *instance) {
    dur__mem_message *message;
    while ((message = dur__mem_first_orphan(mem, instance)) != NULL) {
        dur__mem_bury(mem, instance->id, DUR__NO_INSTANCE, message->json, message->json_size);
        dur__mem_message_free(mem, message);
    }
}

/* ---- what the holder knows --------------------------------------------------------------------------------------- */

void dur__mem_batch_add(dur__mem_batch *batch, dur__mem_message *message) {
    if (batch->count == batch->room) {
        size_t room = batch->room > 0 ? 2 * batch->room : 8;
        batch->items = dur__xrealloc(batch->items, room * sizeof(dur__mem_message *));
        batch->room = room;
    }
    batch->items[batch->count++] = message;
}

static int compare_messages(const void *a, const void *b) {
    const dur__mem_message *x = *(dur__mem_message *const *)a;
    const dur__mem_message *y = *(dur__mem_message *const *)b;
    if (x->id == y->id) return 0;
    return dur__mem_before(x->order_ms, x->id, y->order_ms, y->id) ? -1 : 1;
}

void dur__mem_batch_sort(dur__mem_batch *batch) {
    if (batch->count > 1) qsort(batch->items, batch->count, sizeof(dur__mem_message *), compare_messages);
}

static bool channel_give(dur__mem *mem, dur__mem_channel *channel, bool fetch, uint32_t max, dur__mem_batch *batch) {
    dur__mem_message *message;
    while ((message = channel_first(mem, channel)) != NULL) {
        if (max != 0 && channel->given.count >= max) return true;
        dur__mem_tree_remove(&message->place);
        dur__mem_tree_remove(&message->reason);
        dur__mem_tree_add(&channel->given, &message->place, message->order_ms, message->id);
        message->counted = fetch;
        message->attempts += fetch;
        dur__mem_batch_add(batch, message);
    }
    return false;
}

bool dur__mem_give(dur__mem *mem, dur__mem_instance *instance, bool fetch, uint32_t queue_max, dur__mem_batch *batch) {
    bool more = channel_give(mem, &instance->plain, fetch, 0, batch);
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&instance->queues, &i)) != NULL;)
        if (channel_give(mem, entry->value, fetch, queue_max, batch)) more = true;
    return more;
}

static void tree_each(dur__mem *mem, dur__mem_tree *tree, dur__mem_message_fn *fn, void *arg) {
    dur__mem_node *node = dur__mem_tree_first(tree);
    while (node != NULL) {
        dur__mem_node *next = dur__mem_tree_next(node);
        fn(mem, message_at(node), arg);
        node = next;
    }
}

/* A call may free the message, and with the last one of a queue its channel: trees are looked at one by one. */
static void channel_each(dur__mem *mem, dur__mem_channel *channel, bool given_only, dur__mem_message_fn *fn,
                         void *arg) {
    size_t now = given_only ? 0 : channel->now.count;
    size_t later = given_only ? 0 : channel->later.count;
    size_t given = channel->given.count;
    dur__mem_tree *last = given > 0 ? &channel->given : later > 0 ? &channel->later : &channel->now;
    if (now > 0 && last != &channel->now) tree_each(mem, &channel->now, fn, arg);
    if (later > 0 && last != &channel->later) tree_each(mem, &channel->later, fn, arg);
    if (now + later + given > 0) tree_each(mem, last, fn, arg);
}

/* The one that came first, whenever it is due.  Starts are in no queue, and queues may be long. */
dur__mem_message *dur__mem_first_start(const dur__mem_instance *instance) {
    const dur__mem_tree *const trees[] = { &instance->plain.now, &instance->plain.later, &instance->plain.given };
    dur__mem_message *first = NULL;
    if (instance->start_count == 0) return NULL;
    for (size_t i = 0; i < sizeof(trees) / sizeof(trees[0]); i++) {
        dur__mem_node *node = dur__mem_tree_first(trees[i]);
        for (; node != NULL; node = dur__mem_tree_next(node)) {
            dur__mem_message *here = message_at(node);
            if (starts(here->kind) && (first == NULL || here->id < first->id)) first = here;
        }
    }
    return first;
}

void dur__mem_each_given(dur__mem *mem, dur__mem_instance *instance, dur__mem_message_fn *fn, void *arg) {
    dur__map_entry *entry;
    channel_each(mem, &instance->plain, true, fn, arg);
    for (size_t i = 0; (entry = dur__map_next(&instance->queues, &i)) != NULL;)
        channel_each(mem, entry->value, true, fn, arg);
}

void dur__mem_each_message(dur__mem *mem, dur__mem_instance *instance, dur__mem_message_fn *fn, void *arg) {
    dur__map_entry *entry;
    channel_each(mem, &instance->plain, false, fn, arg);
    for (size_t i = 0; (entry = dur__map_next(&instance->queues, &i)) != NULL;)
        channel_each(mem, entry->value, false, fn, arg);
}

typedef struct seen_mark {
    uint64_t id, now_ms;
} seen_mark;

static bool was_seen(const dur__mem_message *message, const seen_mark *seen) {
    return message->id <= seen->id && (message->due_ms == 0 || message->due_ms <= seen->now_ms);
}

static void message_back(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)mem;
    message->counted = false;
    dur__mem_tree_remove(&message->place);
    message_unknown(message);
    if (!was_seen(message, arg)) message_counts(message);
}

static void reasons_forget(dur__mem_tree *tree, const seen_mark *seen) {
    dur__mem_node *node = dur__mem_tree_first(tree);
    while (node != NULL) {
        dur__mem_node *next = dur__mem_tree_next(node);
        if (was_seen(reason_at(node), seen)) dur__mem_tree_remove(node);
        node = next;
    }
}

static void count_message(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)mem;
    (void)arg;
    message_counts(message);
}

void dur__mem_all_count(dur__mem_instance *instance) {
    if (instance->reason_now.count + instance->reason_later.count < instance->message_count)
        dur__mem_each_message(NULL, instance, count_message, NULL);
}

void dur__mem_take_back(dur__mem *mem, dur__mem_instance *instance, uint64_t seen_id, uint64_t seen_now_ms) {
    seen_mark seen = { seen_id, seen_now_ms };
    dur__mem_each_given(mem, instance, message_back, &seen);
    if (seen_id == 0 && seen_now_ms == 0) {
        dur__mem_all_count(instance);
        return;
    }
    reasons_forget(&instance->reason_now, &seen);
    reasons_forget(&instance->reason_later, &seen);
}

void dur__mem_uncount(dur__mem_message *message) {
    if (message->counted && message->attempts > 0) message->attempts--;
}

dur_fetched_message dur__mem_message_copy(const dur__mem_message *message, dur_arena *arena) {
    return (dur_fetched_message){
        .id = message->id,
        .due_ms = message->order_ms,
        .attempt_count = message->attempts + !message->counted,
        .queue = dur_arena_strdup(arena, message->channel->queue),
        .json = { dur_arena_memdup(arena, message->json, message->json_size), message->json_size },
    };
}
