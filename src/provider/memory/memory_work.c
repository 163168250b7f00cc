/*
 * memory_work.c: the worker queue: rows, their shelves and their locks.
 *
 * Rows that the same callers may take stand on one shelf, first in first out, so that a fetch compares the heads of a
 * few shelves instead of walking over rows that it must not take.
 */
#include "base/assert.h"
#include "provider/memory/memory_internal.h"
#include "provider/tags.h"

#include <stdlib.h>

static dur__mem_work *work_at(dur__mem_node *node) {
    return node != NULL ? DUR__CONTAINER(node, dur__mem_work, place) : NULL;
}

/* ---- shelves ----------------------------------------------------------------------------------------------------- */

static dur__mem_shelf_kind shelf_kind(const dur__mem_work *work) {
    if (work->session == NULL) return DUR__MEM_PLAIN;
    return work->session->held ? DUR__MEM_SESSION_HELD : DUR__MEM_SESSION_FREE;
}

static dur__mem_shelf *shelf_of(dur__mem *mem, const dur__mem_work *work) {
    dur__mem_shelf_kind kind = shelf_kind(work);
    const char *holder = kind == DUR__MEM_SESSION_HELD ? work->session->holder : NULL;
    dur__buf_clear(&mem->scratch);
    dur__buf_char(&mem->scratch, (char)('0' + (int)kind));
    dur__buf_char(&mem->scratch, work->tag != NULL ? '+' : '-');
    dur__buf_text(&mem->scratch, work->tag != NULL ? work->tag : "");
    dur__buf_char(&mem->scratch, '\n');
    dur__buf_text(&mem->scratch, holder != NULL ? holder : "");
    dur__buf_char(&mem->scratch, '\n');
    dur__buf_text(&mem->scratch, work->handler != NULL ? work->handler : "");
    dur__mem_shelf *shelf = dur__map_get(&mem->shelves, mem->scratch.data);
    if (shelf != NULL) return shelf;
    shelf = dur__xcalloc(1, sizeof(*shelf));
    shelf->key = dur__xstrdup(mem->scratch.data);
    shelf->kind = kind;
    shelf->tag = dur__xstrdup(work->tag);
    shelf->handler = dur__xstrdup(work->handler);
    shelf->holder = dur__xstrdup(holder);
    dur__map_put(&mem->shelves, shelf->key, shelf);
    return shelf;
}

void dur__mem_shelf_free(dur__mem_shelf *shelf) {
    dur__free(shelf->key);
    dur__free(shelf->tag);
    dur__free(shelf->handler);
    dur__free(shelf->holder);
    dur__free(shelf);
}

static void work_unshelve(dur__mem *mem, dur__mem_work *work) {
    dur__mem_shelf *shelf = work->shelf;
    dur__mem_tree_remove(&work->place);
    work->shelf = NULL;
    /* Tags and names are few and come again; holders come and go. */
    if (shelf == NULL || shelf->kind == DUR__MEM_PLAIN || shelf->rows[0].count + shelf->rows[1].count > 0) return;
    dur__map_remove(&mem->shelves, shelf->key);
    dur__mem_shelf_free(shelf);
}

void dur__mem_work_place(dur__mem *mem, dur__mem_work *work) {
    bool was_shelved = work->shelf != NULL;
    work_unshelve(mem, work);
    if (work->token != NULL && work->owner != NULL) return;
    if (work->token != NULL && work->until_boot_ms > mem->boot_ms) {
        dur__mem_tree_add(&mem->work_times, &work->place, work->until_boot_ms, work->id);
        return;
    }
    if (work->not_before_ms > mem->now_ms) {
        dur__mem_tree_add(&mem->work_delays, &work->place, work->not_before_ms, work->id);
        return;
    }
    work->not_before_ms = 0;
    if (work->token != NULL) { /* the timed lock has ended */
        dur__map_remove(&mem->claims, work->token);
        dur__mem_set_text(&work->token, NULL);
    }
    work->shelf = shelf_of(mem, work);
    dur__mem_tree_add(&work->shelf->rows[dur__mem_work_suspect(work)], &work->place, work->id, 0);
    if (!was_shelved) work->since_boot_ms = mem->boot_ms;
    mem->stamp++;
}

/* What it may need to stand on a shelf again. */
static size_t work_bytes(const dur__mem_work *work) {
    const char *holder = work->session != NULL && work->session->held ? work->session->holder : NULL;
    return 2048 + 4 * ((work->tag != NULL ? strlen(work->tag) : 0) +
                       (work->handler != NULL ? strlen(work->handler) : 0) + (holder != NULL ? strlen(holder) : 0));
}

void dur__mem_work_due(dur__mem *mem) {
    dur__mem_node *node;
    while ((node = dur__mem_tree_first(&mem->work_times)) != NULL && node->hi <= mem->boot_ms &&
           dur__mem_room_bytes(mem, work_bytes(work_at(node))))
        dur__mem_work_place(mem, work_at(node));
    while ((node = dur__mem_tree_first(&mem->work_delays)) != NULL && node->hi <= mem->now_ms &&
           dur__mem_room_bytes(mem, work_bytes(work_at(node))))
        dur__mem_work_place(mem, work_at(node));
}

static bool shelf_admitted(const dur__mem_shelf *shelf, const dur_work_fetch *how) {
    if (!dur__tag_admitted(&how->tags, shelf->tag) || !dur_handler_passes(how->handlers, shelf->handler)) return false;
    if (shelf->kind == DUR__MEM_PLAIN) return true;
    if (how->session_owner == NULL) return false;
    return shelf->kind == DUR__MEM_SESSION_FREE || strcmp(shelf->holder, how->session_owner) == 0;
}

/* Suspects are few: the first of those that have crashed alone least often. */
static dur__mem_work *suspect_first(const dur__mem_shelf *shelf) {
    dur__mem_work *first = NULL;
    for (dur__mem_node *node = dur__mem_tree_first(&shelf->rows[1]); node != NULL; node = dur__mem_tree_next(node)) {
        dur__mem_work *work = work_at(node);
        if (first == NULL || work->crashes_alone < first->crashes_alone) first = work;
    }
    return first;
}

static bool work_before(const dur__mem_work *a, const dur__mem_work *b, dur_fetch_kind kind) {
    if (kind == DUR_FETCH_SUSPECT && a->crashes_alone != b->crashes_alone) return a->crashes_alone < b->crashes_alone;
    return a->id < b->id;
}

dur__mem_work *dur__mem_work_first(dur__mem *mem, const dur_work_fetch *how, dur_fetch_kind kind) {
    dur__mem_work *first = NULL;
    dur__map_entry *entry;
    for (size_t i = 0; (entry = dur__map_next(&mem->shelves, &i)) != NULL;) {
        const dur__mem_shelf *shelf = entry->value;
        if (!shelf_admitted(shelf, how)) continue;
        for (int suspects = 0; suspects <= 1; suspects++) {
            if (kind != DUR_FETCH_ANY && (kind == DUR_FETCH_SUSPECT) != (suspects != 0)) continue;
            dur__mem_work *head =
                kind == DUR_FETCH_SUSPECT ? suspect_first(shelf) : work_at(dur__mem_tree_first(&shelf->rows[suspects]));
            if (head != NULL && (first == NULL || work_before(head, first, kind))) first = head;
        }
    }
    return first;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

dur__mem_work *dur__mem_work_add(dur__mem *mem, const dur_message_row *item) {
    dur__mem_instance *instance = dur__mem_make(mem, item->instance);
    dur__mem_work *work = dur__xcalloc(1, sizeof(*work) + item->json.size + 1);
    work->id = ++mem->last_work_id;
    work->instance = instance;
    work->execution_id = item->execution_id;
    work->activity_id = item->activity_id;
    work->tag = dur__xstrdup(item->tag);
    work->handler = dur__xstrdup(item->handler);
    work->json_size = item->json.size;
    if (item->json.size > 0) memcpy(work->json, item->json.data, item->json.size);
    if (item->session_id != NULL) {
        work->session = dur__mem_session_make(mem, item->session_id);
        work->session->row_count++;
        dur__list_push(&work->session->rows, &work->by_session);
    }
    dur__mem_tree_add(&instance->works, &work->by_ref, work->activity_id, work->id);
    dur__map_put_u64(&mem->works, work->id, work);
    return work;
}

void dur__mem_work_remove(dur__mem *mem, dur__mem_work *work) {
    dur__mem_session *session = work->session;
    work_unshelve(mem, work);
    dur__mem_tree_remove(&work->by_ref);
    dur__list_unlink(&work->by_owner);
    dur__list_unlink(&work->by_session);
    if (work->token != NULL) dur__map_remove(&mem->claims, work->token);
    dur__map_remove_u64(&mem->works, work->id);
    dur__free(work->token);
    dur__free(work->tag);
    dur__free(work->handler);
    dur__free(work);
    if (session == NULL) return;
    session->row_count--;
    dur__mem_session_tidy(mem, session);
}

void dur__mem_work_drop(dur__mem *mem, dur__mem_work *work) {
    dur__mem_doubt_for_good(mem, work->instance->id, work->id);
    dur__mem_work_remove(mem, work);
}

dur__mem_work *dur__mem_work_find(dur__mem *mem, const dur_activity_ref *ref, const char *instance) {
    const char *id = ref->instance != NULL ? ref->instance : instance;
    if (ref->row_id != 0) {
        dur__mem_work *work = dur__map_get_u64(&mem->works, ref->row_id);
        return work != NULL && id != NULL && strcmp(work->instance->id, id) == 0 ? work : NULL;
    }
    dur__mem_instance *row = dur__mem_find(mem, id);
    if (row == NULL) return NULL;
    dur__mem_node *node = dur__mem_tree_from(&row->works, ref->activity_id, 0);
    for (; node != NULL && node->hi == ref->activity_id; node = dur__mem_tree_next(node)) {
        dur__mem_work *work = DUR__CONTAINER(node, dur__mem_work, by_ref);
        if (work->execution_id == ref->execution_id) return work;
    }
    return NULL;
}

/* ---- locks ------------------------------------------------------------------------------------------------------- */

static void work_lock(dur__mem *mem, dur__mem_work *work, const char *token, dur__mem_owner *owner, uint64_t lock_ms) {
    work_unshelve(mem, work);
    dur__mem_set_text(&work->token, token);
    dur__map_put(&mem->claims, work->token, work);
    work->attempts++;
    work->owner = owner;
    work->until_boot_ms = owner != NULL ? 0 : dur__mem_boot_after(mem, lock_ms);
    if (owner != NULL)
        dur__list_push(&owner->works, &work->by_owner);
    else
        dur__mem_tree_add(&mem->work_times, &work->place, work->until_boot_ms, work->id);
}

void dur__mem_work_unlock(dur__mem *mem, dur__mem_work *work, uint64_t delay_ms) {
    if (work->token != NULL) dur__map_remove(&mem->claims, work->token);
    dur__mem_set_text(&work->token, NULL);
    dur__list_unlink(&work->by_owner);
    work->owner = NULL;
    work->until_boot_ms = 0;
    work->not_before_ms = dur__mem_wall_after(mem, delay_ms);
    dur__mem_work_place(mem, work);
}

bool dur__mem_work_lock_eagerly(dur__mem *mem, dur__mem_work *work, const dur_turn_commit *turn, const char *token) {
    dur__mem_owner *owner = dur__mem_owner_find(mem, turn->owner);
    if (owner == NULL || token[0] == '\0' || dur__map_get(&mem->claims, token) != NULL) return false;
    if (work->session != NULL) {
        if (!dur__mem_session_admits(work->session, turn->session_owner)) return false;
        dur__mem_session_claim(mem, work->session, turn->session_owner, owner, turn->session_lock_ms);
    }
    work_lock(mem, work, token, owner, 0);
    return true;
}

/* The row, if it is locked with this token.  A timed lock that has ended was taken away when the clock was read. */
dur__mem_work *dur__mem_work_claimed(dur__mem *mem, const dur_worker_claim *claim, const char *instance) {
    if (claim->lock_token == NULL) return NULL;
    dur__mem_work *work = dur__map_get(&mem->claims, claim->lock_token);
    if (work == NULL || (instance != NULL && strcmp(work->instance->id, instance) != 0)) return NULL;
    if (claim->ref.row_id != 0 && claim->ref.row_id != work->id) return NULL;
    return work;
}

void dur__mem_work_touch(dur__mem *mem, dur__mem_work *work) {
    if (work->session != NULL) work->session->active_boot_ms = mem->boot_ms;
}

bool dur__mem_work_fetch(dur__mem *mem, const dur_work_fetch *how, dur_arena *arena, dur_leased_work *out) {
    char token[DUR__MEM_TOKEN_SIZE];
    memset(out, 0, sizeof(*out));
    dur__mem_owner *owner = dur__mem_owner_find(mem, how->owner);
    if (how->owner != NULL && owner == NULL) return false;
    dur__mem_work *work = dur__mem_work_first(mem, how, how->kind);
    if (work == NULL || !dur__mem_room_work(mem, work, how)) return false;
    dur__mem_token(mem, token);
    if (work->session != NULL)
        dur__mem_session_claim(mem, work->session, how->session_owner, owner, how->session_lock_ms);
    work_lock(mem, work, token, owner, how->lock_ms);
    work->runs_alone = how->kind == DUR_FETCH_SUSPECT;
    out->ref.instance = dur_arena_strdup(arena, work->instance->id);
    out->ref.execution_id = work->execution_id;
    out->ref.activity_id = work->activity_id;
    out->ref.row_id = work->id;
    out->lock_token = dur_arena_strdup(arena, token);
    out->attempt_count = work->attempts;
    out->crashes = work->crashes;
    out->crashes_alone = work->crashes_alone - dur__mem_doubts(mem, work->instance->id, work->id);
    out->json = (dur_text){ dur_arena_memdup(arena, work->json, work->json_size), work->json_size };
    return true;
}

void dur__mem_work_ack(dur__mem *mem, dur_work_ack *ack) {
    dur_worker_claim claim = { ack->ref, ack->lock_token };
    dur__mem_work *work = dur__mem_work_claimed(mem, &claim, ack->ref.instance);
    dur_error_clear(&ack->error);
    if (work == NULL) {
        dur_error_set(&ack->error, DUR_ELEASE, false, "memory.ack_work",
                      "the worker row is gone or its lock has ended");
        return;
    }
    dur__mem_instance *instance = work->instance;
    dur__mem_need need = { .bytes = 0 };
    if (ack->completion != NULL) dur__mem_need_message(mem, &need, ack->completion);
    if (!dur__mem_room(mem, &need)) {
        DUR__NO_MEMORY(&ack->error, "memory.ack_work");
        return;
    }
    dur__mem_work_touch(mem, work);
    dur__mem_work_remove(mem, work);
    if (ack->completion != NULL) dur__mem_enqueue(mem, ack->completion, 0);
    dur__mem_settle(mem, instance);
}

/* ---- methods ----------------------------------------------------------------------------------------------------- */

int dur__mem_enqueue_for_worker(dur_provider *self, const dur_message_row *item, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_need need = { .bytes = 0 };
    dur__mem_need_work(&need, item);
    bool room = dur__mem_room(mem, &need);
    if (room) dur__mem_work_place(mem, dur__mem_work_add(mem, item));
    dur__mem_leave(mem);
    return room ? DUR_OK : DUR__NO_MEMORY(err, "memory.enqueue_work");
}

int dur__mem_fetch_work_item(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                             dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    dur_work_fetch seeds = *how;
    uint64_t deadline = dur__mem_deadline(dur__mem_poll_ms(self, how->poll_ms));
    (void)err;
    seeds.owner = NULL;
    seeds.kind = DUR_FETCH_ANY;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    while (!dur__mem_work_fetch(mem, &seeds, arena, out))
        if (!dur__mem_sleep(mem, &mem->changed, deadline)) break;
    dur__mem_leave(mem);
    return DUR_OK;
}

int dur__mem_fetch_works(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                         size_t *count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    size_t max = how->max > 0 ? how->max : 1;
    uint64_t deadline = dur__mem_deadline(dur__mem_poll_ms(self, how->poll_ms));
    int code = DUR_OK;
    *count = 0;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    if (how->owner != NULL && dur__mem_owner_find(mem, how->owner) == NULL) {
        code = dur_error_set(err, DUR_ELEASE, false, "memory.fetch_works", "owner %s is not registered", how->owner);
    } else {
        do {
            while (*count < max && dur__mem_work_fetch(mem, how, arena, &out[*count]))
                (*count)++;
        } while (*count == 0 && dur__mem_sleep(mem, &mem->changed, deadline));
    }
    dur__mem_leave(mem);
    return code;
}

int dur__mem_ack_work_item(dur_provider *self, const char *lock_token, const dur_message_row *completion,
                           dur_error *err) {
    dur_work_ack ack = { .lock_token = lock_token, .completion = completion };
    int code = dur__mem_ack_works(self, &ack, 1, err);
    if (code == DUR_OK && ack.error.code != DUR_OK) {
        if (err != NULL) *err = ack.error;
        code = (int)ack.error.code;
    }
    return code;
}

int dur__mem_ack_works(dur_provider *self, dur_work_ack *acks, size_t count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    for (size_t i = 0; i < count; i++)
        dur__mem_work_ack(mem, &acks[i]);
    dur__mem_leave(mem);
    return DUR_OK;
}

static void work_renew(dur__mem *mem, dur__mem_work *work, uint64_t extend_ms) {
    dur__mem_work_touch(mem, work);
    if (work->owner != NULL) return;
    work->until_boot_ms = dur__mem_boot_after(mem, extend_ms);
    dur__mem_work_place(mem, work);
}

static int gone(dur_error *err, const char *op) {
    return dur_error_set(err, DUR_ELEASE, false, op, "the worker row is gone or its lock has ended");
}

int dur__mem_renew_work_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    dur_worker_claim claim = { .lock_token = lock_token };
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_work *work = dur__mem_work_claimed(mem, &claim, NULL);
    if (work != NULL) work_renew(mem, work, extend_ms);
    dur__mem_leave(mem);
    return work != NULL ? DUR_OK : gone(err, "memory.renew_work");
}

int dur__mem_abandon_work_item(dur_provider *self, const char *lock_token, uint64_t delay_ms, bool ignore_attempt,
                               dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    dur_worker_claim claim = { .lock_token = lock_token };
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_work *work = dur__mem_work_claimed(mem, &claim, NULL);
    if (work != NULL) {
        if (!dur__mem_room_bytes(mem, work_bytes(work))) {
            dur__mem_leave(mem);
            return DUR__NO_MEMORY(err, "memory.abandon_work");
        }
        if (!ignore_attempt)
            work->crashes = work->crashes_alone = 0; /* it ran, and its process lives */
        else if (work->attempts > 0)
            work->attempts--;
        dur__mem_work_unlock(mem, work, delay_ms);
    }
    dur__mem_leave(mem);
    return work != NULL ? DUR_OK : gone(err, "memory.abandon_work");
}

int dur__mem_check_works(dur_provider *self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                         bool *lost, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    for (size_t i = 0; i < count; i++) {
        dur__mem_work *work = dur__mem_work_claimed(mem, &claims[i], claims[i].ref.instance);
        lost[i] = work == NULL;
        if (work != NULL && extend_ms > 0) work_renew(mem, work, extend_ms);
    }
    dur__mem_leave(mem);
    return DUR_OK;
}

int dur__mem_return_works(dur_provider *self, const dur_worker_claim *claims, size_t count, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    int code = DUR_OK;
    for (size_t i = 0; i < count && code == DUR_OK; i++) {
        dur__mem_work *work = dur__mem_work_claimed(mem, &claims[i], claims[i].ref.instance);
        if (work == NULL) continue; /* taken away meanwhile, or returned by a call that did not come to the end */
        if (!dur__mem_room_bytes(mem, work_bytes(work))) {
            code = DUR__NO_MEMORY(err, "memory.return_works");
            break;
        }
        if (work->attempts > 0) work->attempts--;
        dur__mem_work_unlock(mem, work, 0);
    }
    dur__mem_leave(mem);
    return code;
}

int dur__mem_alone_ended(dur_provider *self, const char *lock_token, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    (void)err;
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_work *work = dur__mem_work_claimed(mem, &(dur_worker_claim){ .lock_token = lock_token }, NULL);
    dur__mem_instance *instance = dur__mem_lease_find(mem, lock_token);
    if (work != NULL) work->runs_alone = false;
    if (instance != NULL) instance->runs_alone = false;
    dur__mem_leave(mem);
    return DUR_OK;
}

int dur__mem_dead_letter_work(dur_provider *self, const char *lock_token, const char *reason, dur_error *err) {
    dur__mem *mem = dur__mem_of(self);
    dur_worker_claim claim = { .lock_token = lock_token };
    if (!dur__mem_enter(mem)) return DUR__NO_MEMORY(err, "memory");
    dur__mem_work *work = dur__mem_work_claimed(mem, &claim, NULL);
    if (work != NULL) {
        dur__mem_instance *instance = work->instance;
        dur__mem_need need = { .bytes = 1024 + work->json_size + strlen(instance->id) + strlen(reason), .letters = 1 };
        if (!dur__mem_room(mem, &need)) {
            dur__mem_leave(mem);
            return DUR__NO_MEMORY(err, "memory.dead_letter_work");
        }
        dur__mem_bury(mem, instance->id, reason, work->json, work->json_size);
        dur__mem_work_remove(mem, work);
        dur__mem_settle(mem, instance);
    }
    dur__mem_leave(mem);
    return work != NULL ? DUR_OK : gone(err, "memory.dead_letter_work");
}
