/*
 * memory_session.c: sessions: which worker node may take the rows of one.
 *
 * A claim made under an owner holds while the owner lives; when it dies the session stays reserved for the same node
 * for its lock time, and after a clean end where the node has a name of its own.  A claim without an owner knows only
 * its time.
 */
#include "provider/memory/memory_internal.h"

#include <stdlib.h>

dur__mem_session *dur__mem_session_make(dur__mem *mem, const char *name) {
    dur__mem_session *session = dur__map_get(&mem->sessions, name);
    if (session != NULL) return session;
    session = dur__xcalloc(1, sizeof(*session));
    session->name = dur__xstrdup(name);
    session->serial = ++mem->last_session;
    dur__list_init(&session->rows);
    dur__map_put(&mem->sessions, session->name, session);
    return session;
}

void dur__mem_session_free(dur__mem_session *session) {
    dur__free(session->name);
    dur__free(session->holder);
    dur__free(session);
}

static void session_drop(dur__mem *mem, dur__mem_session *session) {
    dur__mem_tree_remove(&session->expiry);
    dur__list_unlink(&session->by_owner);
    dur__map_remove(&mem->sessions, session->name);
    dur__mem_session_free(session);
}

void dur__mem_session_tidy(dur__mem *mem, dur__mem_session *session) {
    if (session->row_count == 0 && session->holder == NULL) session_drop(mem, session);
}

bool dur__mem_session_admits(const dur__mem_session *session, const char *holder) {
    if (holder == NULL) return false;
    return !session->held || strcmp(session->holder, holder) == 0;
}

static bool reshelve_room(dur__mem *mem, const dur__mem_session *session) {
    size_t bytes = 1024;
    DUR__LIST_EACH(&session->rows, at) {
        const dur__mem_work *work = DUR__CONTAINER(at, dur__mem_work, by_session);
        bytes +=
            sizeof(dur__mem_shelf) + 512 +
            4 * ((work->tag != NULL ? strlen(work->tag) : 0) + (work->handler != NULL ? strlen(work->handler) : 0) +
                 (session->holder != NULL ? strlen(session->holder) : 0));
    }
    return dur__mem_room(mem, &(dur__mem_need){ .bytes = bytes, .works = session->row_count });
}

/* Rows on shelves go where the session's state says. */
static void session_reshelve(dur__mem *mem, dur__mem_session *session) {
    DUR__LIST_EACH(&session->rows, at) {
        dur__mem_work *work = DUR__CONTAINER(at, dur__mem_work, by_session);
        if (work->shelf != NULL) dur__mem_work_place(mem, work);
    }
}

static void session_until(dur__mem *mem, dur__mem_session *session, uint64_t lock_ms) {
    dur__mem_tree_remove(&session->expiry);
    dur__mem_tree_add(&mem->session_times, &session->expiry, dur__mem_boot_after(mem, lock_ms), session->serial);
}

void dur__mem_session_claim(dur__mem *mem, dur__mem_session *session, const char *holder, dur__mem_owner *owner,
                            uint64_t lock_ms) {
    bool moves = !session->held || strcmp(session->holder, holder) != 0;
    if (moves) dur__mem_set_text(&session->holder, holder);
    session->held = true;
    session->lock_ms = lock_ms;
    session->active_boot_ms = mem->boot_ms;
    dur__list_unlink(&session->by_owner);
    session->owner = owner;
    if (owner != NULL) {
        dur__mem_tree_remove(&session->expiry);
        dur__list_push(&owner->sessions, &session->by_owner);
    } else {
        session_until(mem, session, lock_ms);
    }
    if (moves) session_reshelve(mem, session);
}

static void session_release(dur__mem *mem, dur__mem_session *session) {
    dur__mem_tree_remove(&session->expiry);
    dur__list_unlink(&session->by_owner);
    session->owner = NULL;
    session->held = false;
    session_reshelve(mem, session);
}

void dur__mem_session_orphan(dur__mem *mem, dur__mem_session *session) {
    bool named = strcmp(session->holder, session->owner->id) != 0; /* by a name that outlives the owner */
    if (!named || session->lock_ms == 0) {
        session_release(mem, session);
        return;
    }
    dur__list_unlink(&session->by_owner);
    session->owner = NULL;
    session_until(mem, session, session->lock_ms);
}

void dur__mem_sessions_due(dur__mem *mem) {
    dur__mem_node *node;
    while ((node = dur__mem_tree_first(&mem->session_times)) != NULL && node->hi <= mem->boot_ms) {
        dur__mem_session *session = DUR__CONTAINER(node, dur__mem_session, expiry);
        if (!reshelve_room(mem, session)) return;
        session_release(mem, session);
    }
}

static bool active_within(const dur__mem *mem, const dur__mem_session *session, uint64_t idle_ms) {
    return mem->boot_ms - session->active_boot_ms < idle_ms;
}

int dur__mem_renew_session_lock(dur_provider *self, const char *const *owners, size_t owner_count, uint64_t extend_ms,
                                uint64_t idle_ms, uint64_t *renewed, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    dur__map_entry *entry;
    (void)err;
    *renewed = 0;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    for (size_t i = 0; (entry = dur__map_next(&mem->sessions, &i)) != NULL;) {
        dur__mem_session *session = entry->value;
        bool ours = false;
        for (size_t k = 0; k < owner_count && !ours; k++)
            ours = session->held && strcmp(session->holder, owners[k]) == 0;
        if (!ours || !active_within(mem, session, idle_ms)) continue;
        (*renewed)++;
        if (session->owner == NULL) session_until(mem, session, extend_ms);
    }
    dur__mem_leave(mem);
    return DUR_OK;
}

/* Rows that wait, and that its owner has no handler for, are for another node. */
static bool owner_needs(const dur__mem_session *session) {
    DUR__LIST_EACH(&session->rows, at) {
        const dur__mem_work *work = DUR__CONTAINER(at, dur__mem_work, by_session);
        if (work->token != NULL || !dur__mem_session_stuck(work)) return true;
    }
    return false;
}

int dur__mem_cleanup_orphaned_sessions(dur_provider *self, uint64_t idle_ms, uint64_t *removed, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    dur__map_entry *entry;
    (void)err;
    *removed = 0;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    for (size_t i = 0; (entry = dur__map_next(&mem->sessions, &i)) != NULL;) {
        dur__mem_session *session = entry->value;
        /* Under a live owner nothing expires: there a session has ended when it has been idle for so long. */
        bool over = !session->held || (session->owner != NULL && !active_within(mem, session, idle_ms));
        if (!over || owner_needs(session) || !reshelve_room(mem, session)) continue;
        if (session->row_count == 0)
            session_drop(mem, session);
        else
            session_release(mem, session);
        (*removed)++;
    }
    dur__mem_leave(mem);
    return DUR_OK;
}
