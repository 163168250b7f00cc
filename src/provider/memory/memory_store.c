/*
 * memory_store.c: the memory store as a whole: opening by URL, sharing by name, time, and the table of methods.
 */
#include "base/assert.h"
#include "provider/memory/memory_internal.h"
#include "provider/openers.h"

#include <stdio.h>
#include <stdlib.h>

#define FAKE_TIME_SLICE_US 2000u /* how often a sleeper looks at a clock that only a test moves */
#define SLEEP_MAX_US 60000000u

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* An instance that time was to bring somewhere: a lock ends, a message is due, a delay is over. */
static void instance_due(dur__mem *mem, dur__mem_instance *instance) {
    if (dur__mem_leased(instance)) {
        if (instance->owner == NULL && instance->expires_boot_ms <= mem->boot_ms)
            dur__mem_lease_lost(mem, instance);
        else if (instance->lane != NULL)
            dur__mem_lane_tell(instance->lane, instance);
    }
    dur__mem_settle(mem, instance);
}

/* What a lock that ends may need: its lane is told, and the instance stands somewhere else. */
static bool due_room(dur__mem *mem, const dur__mem_instance *instance) {
    size_t bytes = 1024 + (instance->handler != NULL ? 2 * strlen(instance->handler) : 0);
    if (instance->lane != NULL) bytes += dur__mem_need_name(&instance->lane->lost, instance->id);
    return dur__mem_room_bytes(mem, bytes);
}

static bool due_first(dur__mem *mem, dur__mem_tree *tree, uint64_t now) {
    dur__mem_node *node = dur__mem_tree_first(tree);
    if (node == NULL || node->hi > now) return false;
    dur__mem_instance *instance = DUR__CONTAINER(node, dur__mem_instance, place);
    if (!due_room(mem, instance)) return false; /* it stays due: whoever enters next comes back to it */
    instance_due(mem, instance);
    return true;
}

void dur__mem_advance(dur__mem *mem) {
    mem->now_ms = mem->world->wall_ms(mem->world->data);
    mem->boot_ms = mem->world->boot_ms(mem->world->data);
    while (due_first(mem, &mem->wall, mem->now_ms)) {
    }
    while (due_first(mem, &mem->boot, mem->boot_ms)) {
    }
    dur__mem_sessions_due(mem);
    dur__mem_work_due(mem);
}

static void inside(dur__mem *mem) {
    mem->cover = (dur__cover){ .reserve = &mem->reserve };
    dur__cover_begin(&mem->cover);
}

void dur__mem_enter_anyway(dur__mem *mem) {
    dur__mutex_lock(&mem->mutex);
    inside(mem);
    dur__mem_advance(mem);
}

bool dur__mem_enter(dur__mem *mem) {
    dur__mutex_lock(&mem->mutex);
    if (!dur__mem_room_bytes(mem, 0)) {
        dur__mutex_unlock(&mem->mutex);
        return false;
    }
    inside(mem);
    dur__mem_advance(mem);
    return true;
}

static void wake_sleepers(dur__mem *mem) {
    if (mem->stamp == mem->stamp_told) return;
    mem->stamp_told = mem->stamp;
    DUR__LIST_EACH(&mem->lanes, at) {
        dur__mem_lane *lane = DUR__CONTAINER(at, dur__mem_lane, link);
        if (lane != mem->self && lane->waker != NULL) dur_waker_wake(lane->waker);
    }
    dur__cond_broadcast(&mem->changed);
}

void dur__mem_leave(dur__mem *mem) {
    wake_sleepers(mem);
    mem->self = NULL;
    dur__cover_end(&mem->cover);
    dur__mutex_unlock(&mem->mutex);
}

static uint64_t sooner(const dur__mem *mem, const dur__mem_tree *tree, uint64_t due) {
    const dur__mem_node *node = dur__mem_tree_first(tree);
    if (node == NULL) return due;
    uint64_t left = node->hi > mem->boot_ms ? node->hi - mem->boot_ms : 0;
    uint64_t when = left > UINT64_MAX - 1 - mem->now_ms ? DUR_NEVER : mem->now_ms + left;
    return when < due ? when : due;
}

uint64_t dur__mem_next_due(const dur__mem *mem) {
    const dur__mem_node *node = dur__mem_tree_first(&mem->wall), *delay = dur__mem_tree_first(&mem->work_delays);
    uint64_t due = node != NULL ? node->hi : DUR_NEVER;
    if (delay != NULL && delay->hi < due) due = delay->hi;
    due = sooner(mem, &mem->boot, due);
    due = sooner(mem, &mem->work_times, due);
    return sooner(mem, &mem->session_times, due);
}

uint64_t dur__mem_deadline(uint64_t timeout_ms) {
    if (timeout_ms == 0) return 0;
    uint64_t now = dur__monotonic_us();
    return timeout_ms > (UINT64_MAX - 1 - now) / 1000u ? UINT64_MAX : now + timeout_ms * 1000u;
}

bool dur__mem_sleep(dur__mem *mem, dur__cond *cond, uint64_t deadline_us) {
    uint64_t now = deadline_us > 0 ? dur__monotonic_us() : 0;
    if (now >= deadline_us) return false;
    uint64_t us = deadline_us - now;
    uint64_t due = dur__mem_next_due(mem);
    if (due != DUR_NEVER && due - mem->now_ms < us / 1000u) us = (due - mem->now_ms) * 1000u + 1;
    if (us > SLEEP_MAX_US) us = SLEEP_MAX_US;
    if (!mem->real_time && us > FAKE_TIME_SLICE_US) us = FAKE_TIME_SLICE_US;
    wake_sleepers(mem);
    dur__cover_end(&mem->cover);
    dur__cond_wait_us(cond, &mem->mutex, us);
    inside(mem);
    dur__mem_advance(mem);
    return true;
}

static uint64_t memory_now_ms(dur_provider *self) {
    dur__mem *mem = dur__mem_of(self);
    return mem->world->wall_ms(mem->world->data);
}

void dur__mem_token(dur__mem *mem, char out[DUR__MEM_TOKEN_SIZE]) {
    static const char digits[] = "0123456789abcdef";
    unsigned char bytes[(DUR__MEM_TOKEN_SIZE - 1) / 2];
    mem->world->random(mem->world->data, bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[DUR__MEM_TOKEN_SIZE - 1] = '\0';
}

/* ---- dead letters ------------------------------------------------------------------------------------------------ */

void dur__mem_bury(dur__mem *mem, const char *instance, const char *reason, const char *json, size_t json_size) {
    dur__mem_letter *letter = dur__xcalloc(1, sizeof(*letter) + json_size + 1);
    letter->id = ++mem->last_letter_id;
    letter->instance = dur__xstrdup(instance);
    letter->reason = dur__xstrdup(reason);
    letter->at_ms = mem->now_ms;
    letter->json_size = json_size;
    if (json_size > 0) memcpy(letter->json, json, json_size);
    dur__map_put_u64(&mem->letters, letter->id, letter);
}

void dur__mem_letter_free(dur__mem_letter *letter) {
    dur__free(letter->instance);
    dur__free(letter->reason);
    dur__free(letter);
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static dur__mutex registry_mutex = DUR__MUTEX_INIT;
static dur__map registry; /* dur__mem by name, guarded by registry_mutex, which also guards dur__mem.handles */
static bool registry_knows_forks;

/* Another thread may have held the mutex at the time of the fork; its stores are not ours. */
static void registry_in_child(void *arg) {
    (void)arg;
    dur__mutex_init(&registry_mutex);
    registry = (dur__map){ .entries = NULL };
}

/* `name` is taken over. */
static dur__mem *store_new(char *name, const dur_world *world) {
    dur__mem *mem = dur__zget(sizeof(*mem));
    if (mem == NULL) return NULL;
    dur__mutex_init(&mem->mutex);
    dur__cond_init(&mem->changed);
    dur__list_init(&mem->lanes);
    dur__list_init(&mem->members);
    mem->world = world != NULL ? world : dur_world_real();
    mem->real_time = mem->world == dur_world_real() || dur__world_is_home(mem->world);
    mem->name = name;
    mem->serial = dur__process_serial();
    return mem;
}

static void erase_everything(dur__mem *mem) {
    dur_delete_result ignored = { 0, 0, 0, 0 };
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&mem->instances, &i)) != NULL;)
        dur__mem_erase(mem, entry->value, &ignored);
    for (size_t i = 0; (entry = dur__map_next(&mem->sessions, &i)) != NULL;)
        dur__mem_session_free(entry->value);
    for (size_t i = 0; (entry = dur__map_next(&mem->owners, &i)) != NULL;)
        dur__mem_owner_free(entry->value);
    for (size_t i = 0; (entry = dur__map_next(&mem->letters, &i)) != NULL;)
        dur__mem_letter_free(entry->value);
    for (size_t i = 0; (entry = dur__map_next(&mem->shelves, &i)) != NULL;) {
        dur__mem_shelf_free(entry->value);
    }
    while (mem->buckets != NULL) {
        dur__mem_bucket *next = mem->buckets->next;
        dur__free(mem->buckets->handler);
        dur__free(mem->buckets);
        mem->buckets = next;
    }
}

static void store_free(dur__mem *mem) {
    erase_everything(mem);
    dur__mem_doubts_free(mem);
    dur__map *maps[] = { &mem->instances, &mem->families, &mem->leases, &mem->messages, &mem->owners,  &mem->points,
                         &mem->letters,   &mem->works,    &mem->claims, &mem->shelves,  &mem->sessions };
    for (size_t i = 0; i < sizeof(maps) / sizeof(maps[0]); i++)
        dur__map_free(maps[i]);
    dur__buf_free(&mem->scratch);
    dur__reserve_free(&mem->reserve);
    dur__cond_destroy(&mem->changed);
    dur__mutex_destroy(&mem->mutex);
    dur__free(mem->name);
    dur__free(mem);
}

static void memory_close(dur_provider *self) {
    dur__mem *mem = dur__mem_of(self);
    dur__free(self);
    /* In a forked child another thread may have held the mutex, and the rows may be half changed: leave them. */
    if (mem->serial != dur__process_serial()) return;
    dur__mutex_lock(&registry_mutex);
    bool last = --mem->handles == 0;
    if (last && mem->name != NULL) dur__map_remove(&registry, mem->name);
    dur__mutex_unlock(&registry_mutex);
    if (last) store_free(mem);
}

static const dur_provider_methods memory_methods = {
    .size = sizeof(dur_provider_methods),
    .abi = DUR_PROVIDER_ABI,
    .name = "memory",
    .version = "1",
    .own_clock = false,
    .local_work = true,
    .close = memory_close,
    .now_ms = memory_now_ms,
    .fetch_orchestration_item = dur__mem_fetch_orchestration_item,
    .ack_orchestration_item = dur__mem_ack_orchestration_item,
    .abandon_orchestration_item = dur__mem_abandon_orchestration_item,
    .renew_orchestration_item_lock = dur__mem_renew_orchestration_item_lock,
    .read = dur__mem_read,
    .append = dur__mem_append,
    .enqueue_for_worker = dur__mem_enqueue_for_worker,
    .fetch_work_item = dur__mem_fetch_work_item,
    .ack_work_item = dur__mem_ack_work_item,
    .renew_work_item_lock = dur__mem_renew_work_item_lock,
    .abandon_work_item = dur__mem_abandon_work_item,
    .renew_session_lock = dur__mem_renew_session_lock,
    .cleanup_orphaned_sessions = dur__mem_cleanup_orphaned_sessions,
    .enqueue_for_orchestrator = dur__mem_enqueue_for_orchestrator,
    .get_custom_status = dur__mem_get_custom_status,
    .get_kv_value = dur__mem_get_kv_value,
    .get_kv_all_values = dur__mem_get_kv_all_values,
    .lane_open = dur__mem_lane_open,
    .lane_round = dur__mem_lane_round,
    .lane_rest = dur__mem_lane_rest,
    .lane_rise = dur__mem_lane_rise,
    .lane_close = dur__mem_lane_close,
    .lane_messages = dur__mem_lane_messages,
    .lane_history = dur__mem_lane_history,
    .fetch_turns = dur__mem_fetch_turns,
    .commit_turns = dur__mem_commit_turns,
    .fetch_works = dur__mem_fetch_works,
    .ack_works = dur__mem_ack_works,
    .check_works = dur__mem_check_works,
    .return_works = dur__mem_return_works,
    .alone_ended = dur__mem_alone_ended,
    .blame = dur__mem_blame,
    .owner_register = dur__mem_owner_register,
    .owner_beat = dur__mem_owner_beat,
    .owner_release = dur__mem_owner_release,
    .owner_holdings = dur__mem_owner_holdings,
    .enqueue_start = dur__mem_enqueue_start,
    .enqueue_existing = dur__mem_enqueue_existing,
    .watch_open = dur__mem_watch_open,
    .watch_wait = dur__mem_watch_wait,
    .watch_close = dur__mem_watch_close,
    .enqueue_starts = dur__mem_enqueue_starts,
    .watch_wake = dur__mem_watch_wake,
    .list_unserved = dur__mem_list_unserved,
    .get_instance_stats = dur__mem_get_instance_stats,
    .list_instances = dur__mem_list_instances,
    .get_instance = dur__mem_get_instance,
    .list_executions = dur__mem_list_executions,
    .get_system_metrics = dur__mem_get_system_metrics,
    .get_queue_depths = dur__mem_get_queue_depths,
    .delete_instances = dur__mem_delete_instances,
    .delete_instances_bulk = dur__mem_delete_instances_bulk,
    .prune_executions = dur__mem_prune_executions,
    .prune_executions_bulk = dur__mem_prune_executions_bulk,
    .dead_letter_messages = dur__mem_dead_letter_messages,
    .dead_letter_work = dur__mem_dead_letter_work,
    .list_dead_letters = dur__mem_list_dead_letters,
    .delete_dead_letters = dur__mem_delete_dead_letters,
    .set_suspended = dur__mem_set_suspended,
    .check = dur__mem_check,
};

static int parse_parameters(const char *text, bool *long_poll, dur_error *err) {
    *long_poll = false;
    if (text == NULL || strcmp(text, "poll=short") == 0 || text[0] == '\0') return DUR_OK;
    if (strcmp(text, "poll=long") != 0)
        return dur_error_set(err, DUR_EINVAL, false, "memory.open", "a memory URL knows only poll=short and poll=long");
    *long_poll = true;
    return DUR_OK;
}

/* The store of that name (NULL: a new one of its own), one handle more.  `name` is taken over; NULL: no memory. */
static dur__mem *store_get(char *name, const dur_world *world) {
    dur__mutex_lock(&registry_mutex);
    if (!registry_knows_forks) dur__at_fork_child(registry_in_child, NULL);
    registry_knows_forks = true;
    dur__mem *mem = name != NULL ? dur__map_get(&registry, name) : NULL;
    if (mem != NULL) {
        dur__free(name);
    } else if (name == NULL || dur__map_reserve(&registry, 1)) {
        mem = store_new(name, world);
        if (mem != NULL && name != NULL) dur__map_put(&registry, mem->name, mem);
    }
    if (mem != NULL) mem->handles++;
    dur__mutex_unlock(&registry_mutex);
    return mem;
}

int dur__memory_open_url(dur_provider **out, const char *url, const dur_open_options *options, dur_error *err) {
    const char *rest = url + strlen("memory:");
    const char *query = strchr(rest, '?');
    size_t name_size = query != NULL ? (size_t)(query - rest) : strlen(rest);
    bool long_poll;
    int code = parse_parameters(query != NULL ? query + 1 : NULL, &long_poll, err);
    if (code != DUR_OK) return code;
    char *name = NULL;
    dur__mem_handle *handle = dur__zget(sizeof(*handle));
    if (handle != NULL && name_size > 0) name = dur__get(name_size + 1);
    if (handle == NULL || (name_size > 0 && name == NULL)) {
        dur__free(handle);
        return DUR__NO_MEMORY(err, "memory.open");
    }
    if (name != NULL) {
        memcpy(name, rest, name_size);
        name[name_size] = '\0';
    }
    handle->base.methods = &memory_methods;
    handle->long_poll = long_poll;
    handle->mem = store_get(name, options != NULL ? options->world : NULL);
    if (handle->mem == NULL) {
        dur__free(name);
        dur__free(handle);
        return DUR__NO_MEMORY(err, "memory.open");
    }
    *out = &handle->base;
    return DUR_OK;
}
