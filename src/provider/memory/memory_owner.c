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

void dur__mem_owner_free(dur__mem_owner *owner) {
    free(owner->id);
    free(owner);
}

int dur__mem_owner_register(dur_provider *self, const dur_owner_options *options, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    int code = DUR_OK;
    dur__mem_enter(mem);
    if (dur__mem_owner_find(mem, options->owner) != NULL) {
        code = dur_error_set(err, DUR_EEXISTS, false, "memory.owner", "owner %s is registered", options->owner);
    } else {
        dur__mem_owner *owner = dur__xcalloc(1, sizeof(*owner));
        owner->id = dur__xstrdup(options->owner);
        owner->timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : OWNER_TIMEOUT_MS;
        owner->beat_boot_ms = mem->boot_ms;
        dur__list_init(&owner->leases);
        dur__list_init(&owner->works);
        dur__list_init(&owner->sessions);
        dur__map_put(&mem->owners, owner->id, owner);
    }
    dur__mem_leave(mem);
    return code;
}

static void give_back(dur__mem *mem, dur__mem_message *message, void *arg) {
    (void)mem;
    (void)arg;
    dur__mem_uncount(message);
}

static void lease_end(dur__mem *mem, dur__mem_instance *instance, bool clean) {
    if (clean && instance->acquisitions > 0) {
        dur__mem_each_given(mem, instance, give_back, NULL);
        instance->acquisitions--;
    }
    dur__mem_lease_lost(mem, instance);
    dur__mem_settle(mem, instance);
}

static void work_end(dur__mem *mem, dur__mem_work *work, bool clean) {
    if (!clean)
        work->suspect = true;
    else if (work->attempts > 0)
        work->attempts--;
    dur__mem_work_unlock(mem, work, 0);
}

/* Everything under the owner is free; how many leases and rows. */
static uint32_t owner_end(dur__mem *mem, dur__mem_owner *owner, bool clean) {
    uint32_t freed = 0;
    dur__link *link;
    while ((link = dur__list_first(&owner->leases)) != NULL) {
        lease_end(mem, DUR__CONTAINER(link, dur__mem_instance, by_owner), clean);
        freed++;
    }
    while ((link = dur__list_first(&owner->works)) != NULL) {
        work_end(mem, DUR__CONTAINER(link, dur__mem_work, by_owner), clean);
        freed++;
    }
    while ((link = dur__list_first(&owner->sessions)) != NULL)
        dur__mem_session_orphan(mem, DUR__CONTAINER(link, dur__mem_session, by_owner), clean);
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
        snprintf(out->last_dead, sizeof(out->last_dead), "%s", peer->id);
        out->taken_over++;
        out->freed += owner_end(mem, peer, false);
    }
}

int dur__mem_owner_beat(dur_provider *self, const char *owner, dur_owner_report *out, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    memset(out, 0, sizeof(*out));
    dur__mem_enter(mem);
    dur__mem_owner *row = dur__mem_owner_find(mem, owner);
    out->now_ms = mem->now_ms;
    if (row != NULL) {
        out->still_ours = true;
        row->beat_boot_ms = mem->boot_ms;
        look_for_dead(mem, row, out);
    }
    dur__mem_leave(mem);
    return DUR_OK;
}

int dur__mem_owner_release(dur_provider *self, const char *owner, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    dur__mem_enter(mem);
    dur__mem_owner *row = dur__mem_owner_find(mem, owner);
    if (row != NULL) owner_end(mem, row, true);
    dur__mem_leave(mem);
    return DUR_OK; /* an owner that was taken for dead has nothing left to release */
}
