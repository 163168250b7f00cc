/*
 * kit_view.c: a part of a store that looks like a whole one, so that many checks can share one store.
 *
 * Names of instances, owners, sessions and tags get the view's prefix on the way in and lose it on the way out.  Work
 * is kept apart by its tags.  Instances cannot be asked for by name: a fetch takes whatever comes, keeps what belongs
 * to the view and gives the rest back uncounted, while nobody else looks (commons.look).  All else runs side by side.
 *
 * Time belongs to everybody.  A view without the right to move the clock holds its locks for ever; a check that wants
 * the clock, or hands in something for later, is told so by `wants_time` and run again with that right, of which there
 * is one.  What tells of the whole store (metrics, depths, lanes, owners' peers) cannot be shared: `alone` says why.
 */
#include "kit_view.h"

#include <durite/provider.h>
#include <stdio.h>
#include <stdlib.h>

#define FOR_EVER_MS 100000000000u /* about three years: no check advances so far */
#define FOREIGN_MAX 4096

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* The check's arena is not for its threads: names live with the view. */
static char *kept(kit_view *view, char *text) {
    pthread_mutex_lock(&view->mutex);
    if (view->text_count == view->text_room) {
        view->text_room = view->text_room > 0 ? 2 * view->text_room : 64;
        view->texts = realloc(view->texts, view->text_room * sizeof(*view->texts));
        if (view->texts == NULL) abort();
    }
    view->texts[view->text_count++] = text;
    pthread_mutex_unlock(&view->mutex);
    return text;
}

const char *kit_in(dur_provider *self, const char *name) {
    kit_view *view = view_of(self);
    if (name == NULL) return NULL;
    size_t size = strlen(view->prefix) + strlen(name) + 1;
    char *text = malloc(size);
    if (text == NULL) abort();
    snprintf(text, size, "%s%s", view->prefix, name);
    return kept(view, text);
}

bool kit_mine(const kit_view *view, const char *name) {
    return name != NULL && strncmp(name, view->prefix, strlen(view->prefix)) == 0;
}

const char *kit_out(dur_provider *self, const char *name) {
    kit_view *view = view_of(self);
    return kit_mine(view, name) ? name + strlen(view->prefix) : name;
}

/* Tokens of the store pass; those that a check chose for eager locks are made its own. */
static const char *token_in(dur_provider *self, const char *token) {
    kit_view *view = view_of(self);
    bool chosen = false;
    pthread_mutex_lock(&view->mutex);
    for (size_t i = 0; token != NULL && i < view->chosen_count && !chosen; i++)
        chosen = strcmp(view->chosen[i], token) == 0;
    pthread_mutex_unlock(&view->mutex);
    return chosen ? kit_in(self, token) : token;
}

static const char *token_choose(dur_provider *self, const char *token) {
    kit_view *view = view_of(self);
    if (token == NULL || token[0] == 0) return token;
    pthread_mutex_lock(&view->mutex);
    if (view->chosen_count < KIT_CHOSEN_MAX)
        snprintf(view->chosen[view->chosen_count++], sizeof(view->chosen[0]), "%s", token);
    pthread_mutex_unlock(&view->mutex);
    return kit_in(self, token);
}

static const char *tag_in(dur_provider *self, const char *tag) {
    kit_view *view = view_of(self);
    const char *text = kit_in(self, tag != NULL ? tag : "");
    bool known = false;
    pthread_mutex_lock(&view->mutex);
    for (size_t i = 0; i < view->tag_count && !known; i++)
        known = strcmp(view->tags[i], text) == 0;
    if (!known && view->tag_count < KIT_TAGS_MAX) view->tags[view->tag_count++] = text;
    pthread_mutex_unlock(&view->mutex);
    return text;
}

/* ---- what cannot be shared --------------------------------------------------------------------------------------- */

int kit_alone(dur_provider *self, const char *why, dur_error *err) {
    view_of(self)->alone = why;
    return dur_error_set(err, DUR_EUNSUPPORTED, false, "kit.shared", "it needs a store of its own: %s", why);
}

/* DUR_OK: the view may hand in something for later. */
int kit_later(dur_provider *self, bool delayed, dur_error *err) {
    kit_view *view = view_of(self);
    if (!delayed || view->has_time || !view->commons->moves) return DUR_OK;
    view->wants_time = true;
    return dur_error_set(err, DUR_EUNSUPPORTED, false, "kit.shared", "it needs the clock");
}

bool kit_is_later(dur_provider *self, uint64_t due_ms) {
    return due_ms > INNER->methods->now_ms(INNER);
}

/* The time of a lock: nobody's clock ends those of a view that has not the right to move it. */
uint64_t kit_held_ms(dur_provider *self, uint64_t ms) {
    kit_view *view = view_of(self);
    return view->has_time || !view->commons->moves || ms == 0 ? ms : FOR_EVER_MS;
}

/* ---- messages and turns ------------------------------------------------------------------------------------------ */

dur_message_row kit_message_in(dur_provider *self, const dur_message_row *item) {
    dur_message_row message = *item;
    message.instance = kit_in(self, item->instance);
    message.session_id = kit_in(self, item->session_id);
    message.parent = kit_in(self, item->parent);
    if (item->kind == DUR_WORK_ACTIVITY_EXECUTE) message.tag = tag_in(self, item->tag);
    return message;
}

static dur_activity_ref ref_in(dur_provider *self, dur_activity_ref ref) {
    ref.instance = kit_in(self, ref.instance);
    return ref;
}

static dur_worker_claim claim_in(dur_provider *self, const dur_worker_claim *claim) {
    return (dur_worker_claim){ ref_in(self, claim->ref), token_in(self, claim->lock_token) };
}

/* A turn as the store gets it; its lists are the caller's to free. */
typedef struct translated {
    dur_turn_commit turn;
    dur_turn_work *work;
    dur_message_row *messages;
    dur_activity_ref *cancelled, *timers;
    dur_worker_claim *claims;
} translated;

void *kit_list(size_t count, size_t size) {
    void *all = calloc(count + 1, size);
    if (all == NULL) abort();
    return all;
}

static bool turn_in(dur_provider *self, const dur_turn_commit *turn, translated *to) {
    bool delayed = turn->delay_ms > 0;
    *to = (translated){ .turn = *turn };
    to->turn.instance = kit_in(self, turn->instance);
    to->turn.owner = kit_in(self, turn->owner);
    to->turn.session_owner = kit_in(self, turn->session_owner);
    to->turn.session_lock_ms = kit_held_ms(self, turn->session_lock_ms);
    to->turn.metadata.parent_instance_id = kit_in(self, turn->metadata.parent_instance_id);
    to->turn.worker_items = to->work = kit_list(turn->worker_item_count, sizeof(*to->work));
    to->turn.orchestrator_items = to->messages = kit_list(turn->orchestrator_item_count, sizeof(*to->messages));
    to->turn.cancelled = to->cancelled = kit_list(turn->cancelled_count, sizeof(*to->cancelled));
    to->turn.timers_dropped = to->timers = kit_list(turn->timers_dropped_count, sizeof(*to->timers));
    to->turn.worker_consumed = to->claims = kit_list(turn->worker_consumed_count, sizeof(*to->claims));
    for (size_t i = 0; i < turn->worker_item_count; i++) {
        to->work[i] = turn->worker_items[i];
        to->work[i].message = kit_message_in(self, &turn->worker_items[i].message);
        to->work[i].lock_token = token_choose(self, turn->worker_items[i].lock_token);
    }
    for (size_t i = 0; i < turn->orchestrator_item_count; i++) {
        to->messages[i] = kit_message_in(self, &turn->orchestrator_items[i]);
        delayed |= kit_is_later(self, turn->orchestrator_items[i].due_ms);
    }
    for (size_t i = 0; i < turn->cancelled_count; i++)
        to->cancelled[i] = ref_in(self, turn->cancelled[i]);
    for (size_t i = 0; i < turn->timers_dropped_count; i++)
        to->timers[i] = ref_in(self, turn->timers_dropped[i]);
    for (size_t i = 0; i < turn->worker_consumed_count; i++)
        to->claims[i] = claim_in(self, &turn->worker_consumed[i]);
    return delayed;
}

/* The answers, and the lists freed.  locks: also those about worker items, which a plain ack does not give. */
static void turn_out(translated *from, dur_turn_commit *turn, bool locks) {
    turn->fault = from->turn.fault;
    turn->error = from->turn.error;
    turn->lease_kept = from->turn.lease_kept;
    turn->lost_work = NULL; /* the store's answer points into a list that is gone now */
    turn->lost_work_count = from->turn.lost_work_count;
    for (size_t i = 0; locks && i < turn->worker_item_count; i++) {
        turn->worker_items[i].locked = from->work[i].locked;
        turn->worker_items[i].row_id = from->work[i].row_id;
        turn->worker_items[i].local = from->work[i].local;
    }
    free(from->work);
    free(from->messages);
    free(from->cancelled);
    free(from->timers);
    free(from->claims);
}

static int view_ack(dur_provider *self, dur_turn_commit *turn, dur_error *err) {
    translated to;
    kit_view *view = view_of(self);
    int code = kit_later(self, turn_in(self, turn, &to), &to.turn.error);
    if (code == DUR_OK) {
        pthread_rwlock_rdlock(&view->commons->look);
        code = INNER->methods->ack_orchestration_item(INNER, &to.turn, err);
        pthread_rwlock_unlock(&view->commons->look);
    } else if (err != NULL) {
        *err = to.turn.error;
    }
    turn_out(&to, turn, false);
    return code;
}

static int view_commit_turns(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    kit_view *view = view_of(self);
    translated *to = kit_list(count, sizeof(*to));
    dur_turn_commit *copies = kit_list(count, sizeof(*copies));
    int code = DUR_OK;
    for (size_t i = 0; i < count; i++)
        if (kit_later(self, turn_in(self, &turns[i], &to[i]), err) != DUR_OK) code = DUR_EUNSUPPORTED;
    for (size_t i = 0; i < count; i++)
        copies[i] = to[i].turn;
    if (code == DUR_OK) {
        pthread_rwlock_rdlock(&view->commons->look);
        code = INNER->methods->commit_turns(INNER, copies, count, err);
        pthread_rwlock_unlock(&view->commons->look);
    }
    for (size_t i = 0; i < count; i++) {
        to[i].turn = copies[i];
        if (code != DUR_OK && err != NULL) to[i].turn.error = *err;
        turn_out(&to[i], &turns[i], true);
    }
    free(copies);
    free(to);
    return code;
}

/* ---- fetching instances ------------------------------------------------------------------------------------------ */

static void item_out(dur_provider *self, dur_orchestration_item *item) {
    item->instance = kit_out(self, item->instance);
}

static int take(dur_provider *self, dur_arena *arena, const dur_fetch *how, bool plain, dur_orchestration_item *out,
                bool *any, dur_error *err) {
    size_t count = 0;
    memset(out, 0, sizeof(*out));
    int code = plain ? INNER->methods->fetch_orchestration_item(INNER, arena, how, out, err)
                     : INNER->methods->fetch_turns(INNER, arena, how, out, &count, err);
    *any = code == DUR_OK && (plain ? out->instance != NULL : count > 0);
    return code;
}

/* Whoever's it is: back where it was, or, if nobody is left to want it, locked for good. */
static int give_back(dur_provider *self, const dur_orchestration_item *item, bool owned, dur_error *err) {
    unsigned serial = 0;
    bool over = sscanf(item->instance, "k%u.", &serial) == 1 && serial < KIT_VIEWS_MAX &&
                atomic_load(&view_of(self)->commons->over[serial]);
    if (over && !owned) return INNER->methods->renew_orchestration_item_lock(INNER, item->lock_token, FOR_EVER_MS, err);
    return INNER->methods->abandon_orchestration_item(INNER, item->lock_token, 0, true, err);
}

static int fetch(dur_provider *self, dur_arena *arena, const dur_fetch *how, bool plain, dur_orchestration_item *out,
                 size_t max, size_t *count, dur_error *err) {
    kit_view *view = view_of(self);
    dur_fetch one = *how;
    dur_orchestration_item *foreign = kit_list(FOREIGN_MAX, sizeof(*foreign));
    size_t strangers = 0;
    bool any = true;
    int code = how->poll_ms > 0 ? kit_alone(self, "it waits for whatever comes", err) : DUR_OK;
    one.max = 1;
    one.lock_ms = kit_held_ms(self, how->lock_ms);
    one.owner = kit_in(self, how->owner);
    *count = 0;
    pthread_rwlock_wrlock(&view->commons->look);
    while (code == DUR_OK && *count < max && strangers < FOREIGN_MAX) {
        dur_orchestration_item item;
        code = take(self, arena, &one, plain, &item, &any, err);
        if (code != DUR_OK || !any) break;
        if (kit_mine(view, item.instance)) {
            item_out(self, &item);
            out[(*count)++] = item;
        } else {
            foreign[strangers++] = item;
        }
    }
    for (size_t i = 0; i < strangers; i++) {
        int back = give_back(self, &foreign[i], one.owner != NULL, err);
        if (code == DUR_OK) code = back;
    }
    pthread_rwlock_unlock(&view->commons->look);
    free(foreign);
    return code;
}

static int view_fetch(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                      dur_error *err) {
    size_t count = 0;
    memset(out, 0, sizeof(*out));
    return fetch(self, arena, how, true, out, 1, &count, err);
}

static int view_fetch_turns(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                            size_t *count, dur_error *err) {
    return fetch(self, arena, how, false, out, how->max > 0 ? how->max : 1, count, err);
}

static int view_abandon(dur_provider *self, const char *lock_token, uint64_t delay_ms, bool ignore, dur_error *err) {
    int code = kit_later(self, delay_ms > 0, err);
    if (code != DUR_OK) return code;
    TOGETHER(INNER->methods->abandon_orchestration_item(INNER, lock_token, delay_ms, ignore, err));
}

static int view_renew(dur_provider *self, const char *lock_token, uint64_t extend_ms, dur_error *err) {
    TOGETHER(INNER->methods->renew_orchestration_item_lock(INNER, lock_token, kit_held_ms(self, extend_ms), err));
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

/* Tags keep the views apart: every row has one here, and no tag is one of its own. */
static dur_tag_filter tags_in(dur_provider *self, const dur_tag_filter *filter, const char *names[KIT_TAGS_MAX + 1]) {
    kit_view *view = view_of(self);
    dur_tag_filter to = { .mode = filter->mode == DUR_TAGS_NONE ? DUR_TAGS_NONE : DUR_TAGS_ONLY, .tags = names };
    if (filter->mode == DUR_TAGS_ANY) {
        pthread_mutex_lock(&view->mutex);
        for (size_t i = 0; i < view->tag_count; i++)
            names[to.tag_count++] = view->tags[i];
        pthread_mutex_unlock(&view->mutex);
        return to;
    }
    if (filter->mode != DUR_TAGS_ONLY) names[to.tag_count++] = tag_in(self, NULL);
    if (filter->mode == DUR_TAGS_DEFAULT_ONLY) return to;
    for (size_t i = 0; i < filter->tag_count && to.tag_count < KIT_TAGS_MAX; i++)
        names[to.tag_count++] = tag_in(self, filter->tags[i]);
    return to;
}

static dur_work_fetch work_in(dur_provider *self, const dur_work_fetch *how, const char *names[KIT_TAGS_MAX + 1]) {
    dur_work_fetch to = *how;
    to.lock_ms = kit_held_ms(self, how->lock_ms);
    to.session_owner = kit_in(self, how->session_owner);
    to.session_lock_ms = kit_held_ms(self, how->session_lock_ms);
    to.owner = kit_in(self, how->owner);
    to.tags = tags_in(self, &how->tags, names);
    return to;
}

static int view_enqueue_for_worker(dur_provider *self, const dur_message_row *item, dur_error *err) {
    dur_message_row message = kit_message_in(self, item);
    TOGETHER(INNER->methods->enqueue_for_worker(INNER, &message, err));
}

static int view_fetch_work(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                           dur_error *err) {
    kit_view *view = view_of(self);
    const char *names[KIT_TAGS_MAX + 1];
    if (how->poll_ms > 0) return kit_alone(self, "it waits for whatever comes", err);
    dur_work_fetch to = work_in(self, how, names);
    pthread_rwlock_rdlock(&view->commons->look);
    int code = INNER->methods->fetch_work_item(INNER, arena, &to, out, err);
    pthread_rwlock_unlock(&view->commons->look);
    out->ref.instance = kit_out(self, out->ref.instance);
    return code;
}

static int view_fetch_works(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                            size_t *count, dur_error *err) {
    kit_view *view = view_of(self);
    const char *names[KIT_TAGS_MAX + 1];
    *count = 0;
    if (how->poll_ms > 0) return kit_alone(self, "it waits for whatever comes", err);
    dur_work_fetch to = work_in(self, how, names);
    pthread_rwlock_rdlock(&view->commons->look);
    int code = INNER->methods->fetch_works(INNER, arena, &to, out, count, err);
    pthread_rwlock_unlock(&view->commons->look);
    for (size_t i = 0; code == DUR_OK && i < *count; i++)
        out[i].ref.instance = kit_out(self, out[i].ref.instance);
    return code;
}

static int view_ack_work(dur_provider *self, const char *lock_token, const dur_message_row *completion,
                         dur_error *err) {
    dur_message_row message;
    if (completion != NULL) message = kit_message_in(self, completion);
    TOGETHER(
        INNER->methods->ack_work_item(INNER, token_in(self, lock_token), completion != NULL ? &message : NULL, err));
}

static int view_ack_works(dur_provider *self, dur_work_ack *acks, size_t count, dur_error *err) {
    kit_view *view = view_of(self);
    dur_work_ack *to = kit_list(count, sizeof(*to));
    dur_message_row *messages = kit_list(count, sizeof(*messages));
    for (size_t i = 0; i < count; i++) {
        if (acks[i].completion != NULL) messages[i] = kit_message_in(self, acks[i].completion);
        to[i] = (dur_work_ack){ .lock_token = token_in(self, acks[i].lock_token),
                                .ref = ref_in(self, acks[i].ref),
                                .completion = acks[i].completion != NULL ? &messages[i] : NULL };
    }
    pthread_rwlock_rdlock(&view->commons->look);
    int code = INNER->methods->ack_works(INNER, to, count, err);
    pthread_rwlock_unlock(&view->commons->look);
    for (size_t i = 0; i < count; i++)
        acks[i].error = to[i].error;
    free(messages);
    free(to);
    return code;
}

static int view_check_works(dur_provider *self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                            bool *lost, dur_error *err) {
    kit_view *view = view_of(self);
    dur_worker_claim *to = kit_list(count, sizeof(*to));
    for (size_t i = 0; i < count; i++)
        to[i] = claim_in(self, &claims[i]);
    pthread_rwlock_rdlock(&view->commons->look);
    int code = INNER->methods->check_works(INNER, to, count, kit_held_ms(self, extend_ms), lost, err);
    pthread_rwlock_unlock(&view->commons->look);
    free(to);
    return code;
}

static int view_return_works(dur_provider *self, const dur_worker_claim *claims, size_t count, dur_error *err) {
    kit_view *view = view_of(self);
    dur_worker_claim *to = kit_list(count, sizeof(*to));
    for (size_t i = 0; i < count; i++)
        to[i] = claim_in(self, &claims[i]);
    pthread_rwlock_rdlock(&view->commons->look);
    int code = INNER->methods->return_works(INNER, to, count, err);
    pthread_rwlock_unlock(&view->commons->look);
    free(to);
    return code;
}

static int view_alone_ended(dur_provider *self, const char *lock_token, dur_error *err) {
    TOGETHER(INNER->methods->alone_ended(INNER, token_in(self, lock_token), err));
}

static int view_blame(dur_provider *self, const char *lock_token, dur_error *err) {
    TOGETHER(INNER->methods->blame(INNER, token_in(self, lock_token), err));
}

static int view_renew_work(dur_provider *self, const char *lock_token, uint64_t extend_ms, dur_error *err) {
    TOGETHER(
        INNER->methods->renew_work_item_lock(INNER, token_in(self, lock_token), kit_held_ms(self, extend_ms), err));
}

static int view_abandon_work(dur_provider *self, const char *lock_token, uint64_t delay_ms, bool ignore,
                             dur_error *err) {
    int code = kit_later(self, delay_ms > 0, err);
    if (code != DUR_OK) return code;
    TOGETHER(INNER->methods->abandon_work_item(INNER, token_in(self, lock_token), delay_ms, ignore, err));
}

static int view_dead_letter_work(dur_provider *self, const char *lock_token, const char *reason, dur_error *err) {
    TOGETHER(INNER->methods->dead_letter_work(INNER, token_in(self, lock_token), reason, err));
}

static int view_renew_session(dur_provider *self, const char *const *owners, size_t owner_count, uint64_t extend_ms,
                              uint64_t idle_ms, uint64_t *renewed, dur_error *err) {
    const char *to[16];
    if (owner_count > 16) return kit_alone(self, "it renews for more than sixteen workers", err);
    for (size_t i = 0; i < owner_count; i++)
        to[i] = kit_in(self, owners[i]);
    TOGETHER(INNER->methods->renew_session_lock(INNER, to, owner_count, kit_held_ms(self, extend_ms),
                                                kit_held_ms(self, idle_ms), renewed, err));
}

static int view_cleanup_sessions(dur_provider *self, uint64_t idle_ms, uint64_t *removed, dur_error *err) {
    (void)idle_ms;
    *removed = 0;
    return kit_alone(self, "cleanup_orphaned_sessions counts everybody's", err);
}

/* ---- making one -------------------------------------------------------------------------------------------------- */

static void view_close(dur_provider *self) {
    kit_view *view = view_of(self);
    for (size_t i = 0; i < view->text_count; i++)
        free(view->texts[i]);
    free(view->texts);
    pthread_mutex_destroy(&view->mutex);
    free(view);
}

static const dur_provider_methods every_method = {
    .size = sizeof(dur_provider_methods),
    .abi = DUR_PROVIDER_ABI,
    .close = view_close,
    .now_ms = kit_view_now,
    .fetch_orchestration_item = view_fetch,
    .ack_orchestration_item = view_ack,
    .abandon_orchestration_item = view_abandon,
    .renew_orchestration_item_lock = view_renew,
    .read = kit_view_read,
    .append = kit_view_append,
    .enqueue_for_worker = view_enqueue_for_worker,
    .fetch_work_item = view_fetch_work,
    .ack_work_item = view_ack_work,
    .renew_work_item_lock = view_renew_work,
    .abandon_work_item = view_abandon_work,
    .renew_session_lock = view_renew_session,
    .cleanup_orphaned_sessions = view_cleanup_sessions,
    .enqueue_for_orchestrator = kit_view_enqueue,
    .get_custom_status = kit_view_custom_status,
    .get_kv_value = kit_view_kv_value,
    .get_kv_all_values = kit_view_kv_all,
    .fetch_turns = view_fetch_turns,
    .commit_turns = view_commit_turns,
    .fetch_works = view_fetch_works,
    .ack_works = view_ack_works,
    .check_works = view_check_works,
    .return_works = view_return_works,
    .alone_ended = view_alone_ended,
    .blame = view_blame,
    .owner_register = kit_view_owner_register,
    .owner_beat = kit_view_owner_beat,
    .owner_release = kit_view_owner_release,
    .owner_holdings = kit_view_owner_holdings,
    .enqueue_start = kit_view_enqueue_start,
    .enqueue_existing = kit_view_enqueue_existing,
    .watch_open = kit_view_watch_open,
    .watch_wait = kit_view_watch_wait,
    .watch_close = kit_view_watch_close,
    .get_instance_stats = kit_view_stats,
    .list_instances = kit_view_list,
    .get_instance = kit_view_get,
    .list_executions = kit_view_executions,
    .get_system_metrics = kit_view_metrics,
    .get_queue_depths = kit_view_depths,
    .delete_instances = kit_view_delete,
    .delete_instances_bulk = kit_view_delete_bulk,
    .prune_executions = kit_view_prune,
    .prune_executions_bulk = kit_view_prune_bulk,
    .dead_letter_messages = kit_view_dead_letter_messages,
    .dead_letter_work = view_dead_letter_work,
    .list_dead_letters = kit_view_letters,
    .delete_dead_letters = kit_view_delete_letters,
    .set_suspended = kit_view_suspend,
    .check = kit_view_check,
    .enqueue_starts = kit_view_enqueue_starts,
    .watch_wake = kit_view_watch_wake,
    .list_unserved = kit_view_list_unserved,
};

/* What the store lacks the view lacks, so that fallbacks are used and checks skipped as without a view. */
static void copy_methods(dur_provider_methods *to, const dur_provider_methods *from) {
    *to = every_method;
    to->name = from->name;
    to->version = from->version;
    to->own_clock = from->own_clock;
#define AS_THE_STORE(method)                                                                                           \
    if (!DUR_HAS_METHOD(from, method)) to->method = NULL
    AS_THE_STORE(fetch_turns);
    AS_THE_STORE(commit_turns);
    AS_THE_STORE(fetch_works);
    AS_THE_STORE(ack_works);
    AS_THE_STORE(check_works);
    AS_THE_STORE(return_works);
    AS_THE_STORE(alone_ended);
    AS_THE_STORE(blame);
    AS_THE_STORE(owner_register);
    AS_THE_STORE(owner_beat);
    AS_THE_STORE(owner_release);
    AS_THE_STORE(owner_holdings);
    AS_THE_STORE(enqueue_start);
    AS_THE_STORE(enqueue_starts);
    AS_THE_STORE(watch_wake);
    AS_THE_STORE(list_unserved);
    AS_THE_STORE(enqueue_existing);
    AS_THE_STORE(watch_open);
    AS_THE_STORE(watch_wait);
    AS_THE_STORE(watch_close);
    AS_THE_STORE(get_instance_stats);
    AS_THE_STORE(list_instances);
    AS_THE_STORE(get_instance);
    AS_THE_STORE(list_executions);
    AS_THE_STORE(get_system_metrics);
    AS_THE_STORE(get_queue_depths);
    AS_THE_STORE(delete_instances);
    AS_THE_STORE(delete_instances_bulk);
    AS_THE_STORE(prune_executions);
    AS_THE_STORE(prune_executions_bulk);
    AS_THE_STORE(dead_letter_messages);
    AS_THE_STORE(dead_letter_work);
    AS_THE_STORE(list_dead_letters);
    AS_THE_STORE(delete_dead_letters);
    AS_THE_STORE(set_suspended);
    AS_THE_STORE(check);
#undef AS_THE_STORE
}

int kit_commons_open(kit_commons *commons, const dur_kit_factory *factory, dur_error *err) {
    memset(commons, 0, sizeof(*commons));
    commons->factory = factory;
    commons->moves = factory->advance != NULL;
    int code = factory->open(factory->data, &commons->store, err);
    if (code != DUR_OK) return code;
    copy_methods(&commons->methods, commons->store.provider->methods);
    pthread_rwlock_init(&commons->look, NULL);
    return DUR_OK;
}

void kit_commons_close(kit_commons *commons) {
    pthread_rwlock_destroy(&commons->look);
    commons->factory->close(commons->factory->data, &commons->store);
}

kit_view *kit_view_open(kit_commons *commons, bool has_time) {
    kit_view *view = calloc(1, sizeof(*view));
    if (view == NULL) abort();
    view->base.methods = &commons->methods;
    view->commons = commons;
    view->has_time = has_time;
    view->serial = atomic_fetch_add(&commons->serials, 1) + 1;
    snprintf(view->prefix, sizeof(view->prefix), "k%u.", view->serial);
    pthread_mutex_init(&view->mutex, NULL);
    return view;
}

const char *kit_view_name(kit_view *view, const char *name) {
    return kit_in(&view->base, name);
}

void kit_view_close(kit_view *view) {
    dur_provider *inner = view->commons->store.provider;
    for (size_t i = 0; i < view->owner_count; i++)
        (void)inner->methods->owner_release(inner, view->owners[i], NULL);
    if (view->serial < KIT_VIEWS_MAX) atomic_store(&view->commons->over[view->serial], true);
    dur_provider_close(&view->base);
}
