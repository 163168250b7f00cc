/*
 * memory_owner.c: runtimes that show life, and what becomes of the locks of one that does not.
 */
#include "provider/memory/memory_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define OWNER_TIMEOUT_MS 10000u

dur__mem_owner *dur__mem_owner_find(dur__mem *mem, const char *id) {
    return id != NULL ? dur__map_get(&mem->owners, id) : NULL;
}

static void has_fill(dur__mem_has *has, const dur_handler_filter *filter) {
    has->count = filter != NULL ? filter->count : SIZE_MAX;
    if (filter == NULL || filter->count == 0) return;
    has->keys = dur__xcalloc(filter->count, sizeof(*has->keys));
    for (size_t i = 0; i < filter->count; i++)
        has->keys[i] = dur__xstrdup(filter->keys[i]);
}

static void has_free(dur__mem_has *has) {
    for (size_t i = 0; has->keys != NULL && i < has->count; i++)
        dur__free(has->keys[i]);
    dur__free(has->keys);
}

static bool has_it(const dur__mem_has *has, const char *key) {
    dur_handler_filter filter = { (const char *const *)has->keys, has->count };
    return has->count == SIZE_MAX || dur_handler_passes(&filter, key);
}

/* Has a registered owner this orchestration, or this activity? */
static bool served(dur__mem *mem, const char *key, bool activity) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&mem->owners, &i)) != NULL;) {
        const dur__mem_owner *owner = entry->value;
        if (has_it(activity ? &owner->activities : &owner->handlers, key)) return true;
    }
    return false;
}

bool dur__mem_session_stuck(const dur__mem_work *work) {
    const dur__mem_session *session = work->session;
    return session != NULL && session->owner != NULL && work->handler != NULL && work->token == NULL &&
           !has_it(&session->owner->activities, work->handler);
}

bool dur__mem_unserved(dur__mem *mem, const dur__mem_instance *instance) {
    return instance->handler != NULL && !dur__mem_leased(instance) && !served(mem, instance->handler, false);
}

void dur__mem_owner_free(dur__mem_owner *owner) {
    has_free(&owner->handlers);
    has_free(&owner->activities);
    dur__free(owner->id);
    dur__free(owner);
}

static size_t filter_bytes(const dur_handler_filter *filter) {
    size_t bytes = 64;
    for (size_t i = 0; filter != NULL && i < filter->count; i++)
        bytes += sizeof(char *) + strlen(filter->keys[i]) + 64;
    return bytes;
}

static size_t owner_bytes(const dur_owner_options *options) {
    return sizeof(dur__mem_owner) + strlen(options->owner) + 256 + filter_bytes(options->handlers) +
           filter_bytes(options->activities);
}

int dur__mem_owner_register(dur_provider *self, const dur_owner_options *options, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    int code = DUR_OK;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    if (dur__mem_owner_find(mem, options->owner) != NULL) {
        code = dur_error_set(err, DUR_EEXISTS, false, "memory.owner", "owner %s is registered", options->owner);
    } else if (!dur__map_reserve(&mem->owners, 1) || !dur__mem_room_bytes(mem, owner_bytes(options))) {
        code = DUR__NO_MEMORY(err, "memory.owner");
    } else {
        dur__mem_owner *owner = dur__xcalloc(1, sizeof(*owner));
        owner->id = dur__xstrdup(options->owner);
        owner->timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : OWNER_TIMEOUT_MS;
        owner->beat_boot_ms = mem->boot_ms;
        has_fill(&owner->handlers, options->handlers);
        has_fill(&owner->activities, options->activities);
        dur__list_init(&owner->leases);
        dur__list_init(&owner->works);
        dur__list_init(&owner->sessions);
        dur__map_put(&mem->owners, owner->id, owner);
    }
    dur__mem_leave(mem);
    return code;
}

static void lease_end(dur__mem *mem, dur__mem_instance *instance, bool clean) {
    bool worked = instance->acquisitions == 0; /* else nothing was handed out under this lease */
    if (clean) {
        dur__mem_lease_uncount(mem, instance);
    } else if (instance->acquisitions > 0) {
        instance->crashes++;
        instance->crashes_alone += instance->runs_alone;
    }
    dur__mem_lease_lost(mem, instance);
    if (!clean && worked && instance->look != DUR__MEM_LOOK_NONE) instance->look = DUR__MEM_LOOK_CRASH;
    dur__mem_settle(mem, instance);
}

static void work_end(dur__mem *mem, dur__mem_work *work, bool clean) {
    if (!clean) {
        work->crashes++;
        work->crashes_alone += work->runs_alone;
    } else if (work->attempts > 0) {
        work->attempts--;
    }
    dur__mem_work_unlock(mem, work, 0);
}

/* Its end goes through everything that it holds, at once. */
static bool end_room(dur__mem *mem, const dur__mem_owner *owner) {
    dur__mem_need need = { .bytes = 1024 };
    DUR__LIST_EACH(&owner->leases, at) {
        const dur__mem_instance *instance = DUR__CONTAINER(at, dur__mem_instance, by_owner);
        need.bytes += 1024 + 3 * strlen(instance->id) +
                      (instance->handler != NULL ? 2 * strlen(instance->handler) : 0) +
                      (instance->lane != NULL ? dur__mem_need_name(&instance->lane->lost, instance->id) : 0);
    }
    DUR__LIST_EACH(&owner->works, at) {
        const dur__mem_work *work = DUR__CONTAINER(at, dur__mem_work, by_owner);
        need.works++;
        need.bytes +=
            2048 + strlen(work->instance->id) +
            4 * ((work->tag != NULL ? strlen(work->tag) : 0) + (work->handler != NULL ? strlen(work->handler) : 0));
    }
    DUR__LIST_EACH(&owner->sessions, at) {
        const dur__mem_session *session = DUR__CONTAINER(at, dur__mem_session, by_owner);
        need.works += session->row_count;
        need.bytes += session->row_count * (1024 + 4 * (session->holder != NULL ? strlen(session->holder) : 0));
    }
    return dur__mem_room(mem, &need);
}

/* Everything under the owner is free; how many leases and rows. */
static uint32_t owner_end(dur__mem *mem, dur__mem_owner *owner, bool clean) {
    uint32_t freed = 0;
    dur__link *link;
    if (!clean) dur__mem_crash_begin(mem, owner);
    while ((link = dur__list_first(&owner->leases)) != NULL) {
        lease_end(mem, DUR__CONTAINER(link, dur__mem_instance, by_owner), clean);
        freed++;
    }
    while ((link = dur__list_first(&owner->works)) != NULL) {
        work_end(mem, DUR__CONTAINER(link, dur__mem_work, by_owner), clean);
        freed++;
    }
    if (!clean) dur__mem_crash_end(mem);
    while ((link = dur__list_first(&owner->sessions)) != NULL)
        dur__mem_session_orphan(mem, DUR__CONTAINER(link, dur__mem_session, by_owner));
    dur__map_remove(&mem->owners, owner->id);
    dur__mem_owner_free(owner);
    return freed;
}

static void look_for_dead(dur__mem *mem, const dur__mem_owner *self, dur_owner_report *out) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&mem->owners, &i)) != NULL;) {
        dur__mem_owner *peer = entry->value;
        if (peer == self) continue;
        if (mem->boot_ms - peer->beat_boot_ms < peer->timeout_ms) {
            out->peers++;
            continue;
        }
        if (!end_room(mem, peer)) continue; /* at the next beat */
        snprintf(out->last_dead, sizeof(out->last_dead), "%s", peer->id);
        out->taken_over++;
        out->freed += owner_end(mem, peer, false);
    }
}

int dur__mem_owner_beat(dur_provider *self, const char *owner, dur_owner_report *out, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    memset(out, 0, sizeof(*out));
    dur__mem_enter_anyway(mem); /* life is shown without memory, too */
    dur__mem_owner *row = dur__mem_owner_find(mem, owner);
    out->now_ms = mem->now_ms;
    if (row != NULL) {
        out->still_ours = true;
        row->beat_boot_ms = mem->boot_ms;
        look_for_dead(mem, row, out);
        out->crashed_at_ms = mem->crashed_at_ms;
    }
    dur__mem_leave(mem);
    return DUR_OK;
}

int dur__mem_owner_release(dur_provider *self, const char *owner, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_owner *row = dur__mem_owner_find(mem, owner);
    bool room = row == NULL || end_room(mem, row);
    if (row != NULL && room) owner_end(mem, row, true);
    dur__mem_leave(mem);
    if (!room) return DUR__NO_MEMORY(err, "memory.owner_release");
    return DUR_OK; /* an owner that was taken for dead has nothing left to release */
}

/* ---- what waits for a handler that nobody has -------------------------------------------------------------------- */

#define UNSERVED_MAX 256

typedef struct unserved_list {
    dur_arena *arena;
    dur_unserved *rows;
    size_t count;
} unserved_list;

static void unserved_add(unserved_list *list, dur_unserved_kind kind, const char *handler, const char *instance,
                         const dur__mem_message *cancel) {
    if (list->count == UNSERVED_MAX) return;
    dur_unserved *row = &list->rows[list->count++];
    *row = (dur_unserved){ .kind = kind,
                           .handler = dur_arena_strdup(list->arena, handler),
                           .instance = dur_arena_strdup(list->arena, instance) };
    if (cancel == NULL) return;
    row->since_ms = cancel->order_ms;
    row->json = (dur_text){ dur_arena_memdup(list->arena, cancel->json, cancel->json_size), cancel->json_size };
}

static void unserved_cancels(const dur__mem *mem, const dur__mem_instance *instance, const char *handler,
                             unserved_list *list) {
    const dur__mem_tree *const trees[] = { &instance->plain.now, &instance->plain.later };
    for (size_t i = 0; i < 2 && instance->cancel_count > 0; i++) {
        for (dur__mem_node *node = dur__mem_tree_first(trees[i]); node != NULL; node = dur__mem_tree_next(node)) {
            const dur__mem_message *message = DUR__CONTAINER(node, dur__mem_message, place);
            if (message->kind == DUR_WORK_CANCEL_INSTANCE && dur__mem_visible(mem, message))
                unserved_add(list, DUR_UNSERVED_CANCEL, handler, instance->id, message);
        }
    }
}

static void unserved_instances(dur__mem *mem, size_t each, unserved_list *list) {
    for (dur__mem_bucket *bucket = mem->buckets; bucket != NULL; bucket = bucket->next) {
        if (bucket->handler[0] == '\0' || bucket->ready[0].count + bucket->ready[1].count == 0) continue;
        if (served(mem, bucket->handler, false)) continue;
        size_t told = 0;
        for (int suspects = 0; suspects <= 1; suspects++) {
            dur__mem_node *node = dur__mem_tree_first(&bucket->ready[suspects]);
            for (; node != NULL; node = dur__mem_tree_next(node)) {
                const dur__mem_instance *instance = DUR__CONTAINER(node, dur__mem_instance, place);
                if (told++ < each) unserved_add(list, DUR_UNSERVED_INSTANCE, bucket->handler, instance->id, NULL);
                unserved_cancels(mem, instance, bucket->handler, list);
            }
        }
    }
}

/* Rows on one shelf have one handler, and sessions of one holder. */
static void unserved_session(unserved_list *list, const dur__mem_shelf *shelf) {
    dur__mem_node *node = dur__mem_tree_first(&shelf->rows[shelf->rows[0].count == 0]);
    const dur__mem_work *work = DUR__CONTAINER(node, dur__mem_work, place);
    if (!dur__mem_session_stuck(work)) return;
    size_t before = list->count;
    unserved_add(list, DUR_UNSERVED_SESSION, shelf->handler, work->instance->id, NULL);
    if (list->count == before) return;
    list->rows[before].session = dur_arena_strdup(list->arena, work->session->name);
    list->rows[before].owner = dur_arena_strdup(list->arena, work->session->owner->id);
}

static void unserved_works(dur__mem *mem, size_t each, unserved_list *list) {
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&mem->shelves, &i)) != NULL;) {
        const dur__mem_shelf *shelf = entry->value;
        if (shelf->handler == NULL || shelf->rows[0].count + shelf->rows[1].count == 0) continue;
        if (served(mem, shelf->handler, true)) {
            unserved_session(list, shelf);
            continue;
        }
        size_t told = 0;
        for (int suspects = 0; suspects <= 1; suspects++) {
            dur__mem_node *node = dur__mem_tree_first(&shelf->rows[suspects]);
            for (; node != NULL && told < each; node = dur__mem_tree_next(node), told++)
                unserved_add(list, DUR_UNSERVED_ACTIVITY, shelf->handler,
                             DUR__CONTAINER(node, dur__mem_work, place)->instance->id, NULL);
        }
    }
}

int dur__mem_list_unserved(dur_provider *self, dur_arena *arena, size_t each, dur_unserved **out, size_t *count,
                           dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    unserved_list list = { .arena = arena };
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__way_out way_out; /* nothing is changed here */
    if (DUR__OUT_OF_MEMORY(&way_out)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory");
    }
    list.rows = dur_arena_zalloc(arena, UNSERVED_MAX * sizeof(dur_unserved));
    unserved_instances(mem, each, &list);
    unserved_works(mem, each, &list);
    dur__way_out_end(&way_out);
    dur__mem_leave(mem);
    *out = list.rows;
    *count = list.count;
    return DUR_OK;
}

static dur_holding *holding_add(dur_arena *arena, dur_holding *all, size_t *count, dur_holding_kind kind,
                                const char *instance, const char *token) {
    all[*count] = (dur_holding){ .kind = kind,
                                 .instance = dur_arena_strdup(arena, instance),
                                 .token = dur_arena_strdup(arena, token) };
    return &all[(*count)++];
}

int dur__mem_owner_holdings(dur_provider *self, dur_arena *arena, const char *owner, dur_holding **out, size_t *count,
                            dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__way_out way_out; /* nothing is changed here */
    if (DUR__OUT_OF_MEMORY(&way_out)) {
        dur__mem_leave(mem);
        return DUR__NO_MEMORY(err, "memory");
    }
    dur__mem_owner *row = dur__mem_owner_find(mem, owner);
    size_t most = mem->leases.count + mem->claims.count + mem->sessions.count;
    dur_holding *all = dur_arena_zalloc(arena, (most + 1) * sizeof(*all));
    if (row != NULL) {
        DUR__LIST_EACH(&row->leases, at) {
            const dur__mem_instance *instance = DUR__CONTAINER(at, dur__mem_instance, by_owner);
            holding_add(arena, all, count, DUR_HOLDS_INSTANCE, instance->id, instance->token);
        }
        DUR__LIST_EACH(&row->works, at) {
            const dur__mem_work *work = DUR__CONTAINER(at, dur__mem_work, by_owner);
            dur_holding *added = holding_add(arena, all, count, DUR_HOLDS_WORK, work->instance->id, work->token);
            added->execution_id = work->execution_id;
            added->activity_id = work->activity_id;
        }
        DUR__LIST_EACH(&row->sessions, at)
        holding_add(arena, all, count, DUR_HOLDS_SESSION, DUR__CONTAINER(at, dur__mem_session, by_owner)->name, "");
    }
    dur__way_out_end(&way_out);
    dur__mem_leave(mem);
    *out = all;
    return DUR_OK;
}
