/*
 * decorator.c: the memory store with every method passed on, and the places where a mutant's hooks are called.
 */
#include "mutant.h"

/* ---- passed on as they are -------------------------------------------------------------------------------------- */

static uint64_t pass_now_ms(dur_provider *self) {
    return NEXT(self)->now_ms(INNER(self));
}

static int pass_abandon_orchestration_item(dur_provider *self, const char *lock_token, uint64_t delay_ms,
                                           bool ignore_attempt, dur_error *err) {
    return NEXT(self)->abandon_orchestration_item(INNER(self), lock_token, delay_ms, ignore_attempt, err);
}

static int pass_renew_orchestration_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms,
                                              dur_error *err) {
    return NEXT(self)->renew_orchestration_item_lock(INNER(self), lock_token, extend_ms, err);
}

static int pass_read(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution_id,
                     dur_event_row **out, size_t *count, dur_error *err) {
    return NEXT(self)->read(INNER(self), arena, instance, execution_id, out, count, err);
}

static int pass_append(dur_provider *self, const char *instance, uint64_t execution_id, const dur_event_row *events,
                       size_t count, dur_error *err) {
    return NEXT(self)->append(INNER(self), instance, execution_id, events, count, err);
}

static int pass_enqueue_for_worker(dur_provider *self, const dur_message_row *item, dur_error *err) {
    return NEXT(self)->enqueue_for_worker(INNER(self), item, err);
}

static int pass_ack_work_item(dur_provider *self, const char *lock_token, const dur_message_row *completion,
                              dur_error *err) {
    return NEXT(self)->ack_work_item(INNER(self), lock_token, completion, err);
}

static int pass_renew_work_item_lock(dur_provider *self, const char *lock_token, uint64_t extend_ms, dur_error *err) {
    return NEXT(self)->renew_work_item_lock(INNER(self), lock_token, extend_ms, err);
}

static int pass_abandon_work_item(dur_provider *self, const char *lock_token, uint64_t delay_ms, bool ignore_attempt,
                                  dur_error *err) {
    return NEXT(self)->abandon_work_item(INNER(self), lock_token, delay_ms, ignore_attempt, err);
}

static int pass_renew_session_lock(dur_provider *self, const char *const *owners, size_t owner_count,
                                   uint64_t extend_ms, uint64_t idle_ms, uint64_t *renewed, dur_error *err) {
    return NEXT(self)->renew_session_lock(INNER(self), owners, owner_count, extend_ms, idle_ms, renewed, err);
}

static int pass_cleanup_orphaned_sessions(dur_provider *self, uint64_t idle_ms, uint64_t *removed, dur_error *err) {
    return NEXT(self)->cleanup_orphaned_sessions(INNER(self), idle_ms, removed, err);
}

static int pass_enqueue_for_orchestrator(dur_provider *self, const dur_message_row *item, uint64_t delay_ms,
                                         dur_error *err) {
    return NEXT(self)->enqueue_for_orchestrator(INNER(self), item, delay_ms, err);
}

static int pass_get_custom_status(dur_provider *self, dur_arena *arena, const char *instance, uint64_t last_seen,
                                  bool *changed, const char **status, uint64_t *version, dur_error *err) {
    return NEXT(self)->get_custom_status(INNER(self), arena, instance, last_seen, changed, status, version, err);
}

static int pass_get_kv_value(dur_provider *self, dur_arena *arena, const char *instance, const char *key,
                             const char **value, dur_error *err) {
    return NEXT(self)->get_kv_value(INNER(self), arena, instance, key, value, err);
}

static int pass_get_kv_all_values(dur_provider *self, dur_arena *arena, const char *instance, dur_key_value **out,
                                  size_t *count, dur_error *err) {
    return NEXT(self)->get_kv_all_values(INNER(self), arena, instance, out, count, err);
}

static int pass_ack_works(dur_provider *self, dur_work_ack *acks, size_t count, dur_error *err) {
    return NEXT(self)->ack_works(INNER(self), acks, count, err);
}

static int pass_check_works(dur_provider *self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms,
                            bool *lost, dur_error *err) {
    return NEXT(self)->check_works(INNER(self), claims, count, extend_ms, lost, err);
}

static int pass_return_works(dur_provider *self, const dur_worker_claim *claims, size_t count, dur_error *err) {
    return NEXT(self)->return_works(INNER(self), claims, count, err);
}

static int pass_alone_ended(dur_provider *self, const char *lock_token, dur_error *err) {
    return NEXT(self)->alone_ended(INNER(self), lock_token, err);
}

static int pass_blame(dur_provider *self, const char *lock_token, dur_error *err) {
    return NEXT(self)->blame(INNER(self), lock_token, err);
}

static int pass_owner_register(dur_provider *self, const dur_owner_options *options, dur_error *err) {
    return NEXT(self)->owner_register(INNER(self), options, err);
}

static int pass_owner_beat(dur_provider *self, const char *owner, dur_owner_report *out, dur_error *err) {
    return NEXT(self)->owner_beat(INNER(self), owner, out, err);
}

static int pass_owner_release(dur_provider *self, const char *owner, dur_error *err) {
    return NEXT(self)->owner_release(INNER(self), owner, err);
}

static int pass_owner_holdings(dur_provider *self, dur_arena *arena, const char *owner, dur_holding **out,
                               size_t *count, dur_error *err) {
    return NEXT(self)->owner_holdings(INNER(self), arena, owner, out, count, err);
}

static int pass_enqueue_start(dur_provider *self, const dur_message_row *item, dur_exists_policy policy,
                              uint64_t delay_ms, bool *existed, dur_error *err) {
    return NEXT(self)->enqueue_start(INNER(self), item, policy, delay_ms, existed, err);
}

static int pass_enqueue_existing(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    return NEXT(self)->enqueue_existing(INNER(self), item, delay_ms, err);
}

static int pass_get_instance_stats(dur_provider *self, dur_arena *arena, const char *instance, bool *found,
                                   dur_instance_stats *out, dur_error *err) {
    return NEXT(self)->get_instance_stats(INNER(self), arena, instance, found, out, err);
}

static int pass_list_instances(dur_provider *self, dur_arena *arena, const dur_instance_query *query,
                               dur_instance_row **out, size_t *count, dur_error *err) {
    return NEXT(self)->list_instances(INNER(self), arena, query, out, count, err);
}

static int pass_get_instance(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out,
                             dur_error *err) {
    return NEXT(self)->get_instance(INNER(self), arena, instance, out, err);
}

static int pass_list_executions(dur_provider *self, dur_arena *arena, const char *instance, dur_execution_row **out,
                                size_t *count, dur_error *err) {
    return NEXT(self)->list_executions(INNER(self), arena, instance, out, count, err);
}

static int pass_get_system_metrics(dur_provider *self, dur_system_metrics *out, dur_error *err) {
    return NEXT(self)->get_system_metrics(INNER(self), out, err);
}

static int pass_get_queue_depths(dur_provider *self, dur_queue_depths *out, dur_error *err) {
    return NEXT(self)->get_queue_depths(INNER(self), out, err);
}

static int pass_delete_instances(dur_provider *self, const char *const *ids, const dur_meant *meant, size_t count,
                                 bool force, dur_delete_result *out, dur_error *err) {
    return NEXT(self)->delete_instances(INNER(self), ids, meant, count, force, out, err);
}

static int pass_delete_instances_bulk(dur_provider *self, const dur_bulk_filter *filter, dur_delete_result *out,
                                      dur_error *err) {
    return NEXT(self)->delete_instances_bulk(INNER(self), filter, out, err);
}

static int pass_prune_executions(dur_provider *self, const char *instance, const dur_prune_options *options,
                                 dur_prune_result *out, dur_error *err) {
    return NEXT(self)->prune_executions(INNER(self), instance, options, out, err);
}

static int pass_prune_executions_bulk(dur_provider *self, const dur_bulk_filter *filter,
                                      const dur_prune_options *options, dur_prune_result *out, dur_error *err) {
    return NEXT(self)->prune_executions_bulk(INNER(self), filter, options, out, err);
}

static int pass_dead_letter_messages(dur_provider *self, const char *instance, const uint64_t *ids, size_t count,
                                     const char *reason, dur_error *err) {
    return NEXT(self)->dead_letter_messages(INNER(self), instance, ids, count, reason, err);
}

static int pass_dead_letter_work(dur_provider *self, const char *lock_token, const char *reason, dur_error *err) {
    return NEXT(self)->dead_letter_work(INNER(self), lock_token, reason, err);
}

static int pass_list_unserved(dur_provider *self, dur_arena *arena, size_t each, dur_unserved **out, size_t *count,
                              dur_error *err) {
    return NEXT(self)->list_unserved(INNER(self), arena, each, out, count, err);
}

static int pass_list_dead_letters(dur_provider *self, dur_arena *arena, uint64_t after_id, size_t limit,
                                  dur_dead_letter **out, size_t *count, dur_error *err) {
    return NEXT(self)->list_dead_letters(INNER(self), arena, after_id, limit, out, count, err);
}

static int pass_delete_dead_letters(dur_provider *self, const uint64_t *ids, size_t count, dur_error *err) {
    return NEXT(self)->delete_dead_letters(INNER(self), ids, count, err);
}

static int pass_set_suspended(dur_provider *self, const char *instance, const char *reason, dur_error *err) {
    return NEXT(self)->set_suspended(INNER(self), instance, reason, err);
}

static int pass_check(dur_provider *self, dur_error *err) {
    return NEXT(self)->check(INNER(self), err);
}

/* ---- with hooks ------------------------------------------------------------------------------------------------- */

typedef struct lane {
    dur_lane base;
    dur_lane *inner;
} lane;

typedef struct watch {
    dur_watch base;
    dur_watch *inner;
} watch;

#define LANE(at) ((lane *)(void *)(at))
#define WATCH(at) ((watch *)(void *)(at))

static void pass_close(dur_provider *self) {
    broken *me = BROKEN(self);
    dur_provider_close(me->inner);
    while (me->memos != NULL) {
        memo *gone = me->memos;
        me->memos = gone->next;
        free(gone->key);
        free(gone->value);
        free(gone);
    }
    dur_arena_free(me->scratch);
    pthread_mutex_destroy(&me->mutex);
    free(me);
}

/* The turn that the inner store sees: worker items are copied, so that hooks may change them. */
static dur_turn_commit before(broken *me, const dur_turn_commit *turn) {
    dur_turn_commit mine = *turn;
    if (me->what->turn == NULL) return mine;
    dur_turn_work *work = broken_alloc(me, (turn->worker_item_count + 1) * sizeof(*work));
    for (size_t i = 0; i < turn->worker_item_count; i++)
        work[i] = turn->worker_items[i];
    mine.worker_items = work;
    me->what->turn(me, &mine);
    return mine;
}

static void after(broken *me, dur_turn_commit *turn, dur_turn_commit *mine) {
    if (me->what->turned != NULL) me->what->turned(me, mine);
    turn->fault = mine->fault;
    turn->error = mine->error;
    turn->lease_kept = mine->lease_kept;
    turn->lost_work = mine->lost_work;
    turn->lost_work_count = mine->lost_work_count;
    for (size_t i = 0; i < turn->worker_item_count && i < mine->worker_item_count; i++) {
        turn->worker_items[i].locked = mine->worker_items[i].locked;
        turn->worker_items[i].row_id = mine->worker_items[i].row_id;
        turn->worker_items[i].local = mine->worker_items[i].local;
    }
}

static int pass_ack_orchestration_item(dur_provider *self, dur_turn_commit *turn, dur_error *err) {
    dur_turn_commit mine = before(BROKEN(self), turn);
    NEXT(self)->ack_orchestration_item(INNER(self), &mine, NULL);
    after(BROKEN(self), turn, &mine);
    if (err != NULL) *err = turn->error;
    return (int)turn->error.code;
}

static int pass_commit_turns(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    dur_turn_commit *mine = broken_alloc(BROKEN(self), (count + 1) * sizeof(*mine));
    for (size_t i = 0; i < count; i++)
        mine[i] = before(BROKEN(self), &turns[i]);
    int code = NEXT(self)->commit_turns(INNER(self), mine, count, err);
    for (size_t i = 0; i < count; i++)
        after(BROKEN(self), &turns[i], &mine[i]);
    return code;
}

static dur_fetch asked(broken *me, const dur_fetch *how) {
    dur_fetch mine = *how;
    if (me->what->fetch != NULL) me->what->fetch(me, &mine);
    return mine;
}

static dur_work_fetch asked_work(broken *me, const dur_work_fetch *how) {
    dur_work_fetch mine = *how;
    if (me->what->work != NULL) me->what->work(me, &mine);
    return mine;
}

static int pass_fetch_orchestration_item(dur_provider *self, dur_arena *arena, const dur_fetch *how,
                                         dur_orchestration_item *out, dur_error *err) {
    dur_fetch mine = asked(BROKEN(self), how);
    int code = NEXT(self)->fetch_orchestration_item(INNER(self), arena, &mine, out, err);
    if (code == DUR_OK && out->instance != NULL && BROKEN(self)->what->fetched != NULL)
        BROKEN(self)->what->fetched(BROKEN(self), arena, out);
    return code;
}

static int pass_fetch_turns(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                            size_t *count, dur_error *err) {
    dur_fetch mine = asked(BROKEN(self), how);
    int code = NEXT(self)->fetch_turns(INNER(self), arena, &mine, out, count, err);
    for (size_t i = 0; code == DUR_OK && i < *count && BROKEN(self)->what->fetched != NULL; i++)
        BROKEN(self)->what->fetched(BROKEN(self), arena, &out[i]);
    return code;
}

static int pass_fetch_work_item(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                                dur_error *err) {
    dur_work_fetch mine = asked_work(BROKEN(self), how);
    int code = NEXT(self)->fetch_work_item(INNER(self), arena, &mine, out, err);
    if (code == DUR_OK && out->json.data != NULL && BROKEN(self)->what->worked != NULL)
        BROKEN(self)->what->worked(BROKEN(self), out);
    return code;
}

static int pass_fetch_works(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                            size_t *count, dur_error *err) {
    dur_work_fetch mine = asked_work(BROKEN(self), how);
    int code = NEXT(self)->fetch_works(INNER(self), arena, &mine, out, count, err);
    for (size_t i = 0; code == DUR_OK && i < *count && BROKEN(self)->what->worked != NULL; i++)
        BROKEN(self)->what->worked(BROKEN(self), &out[i]);
    return code;
}

static int pass_lane_open(dur_provider *self, const dur_lane_options *options, dur_lane **out, dur_error *err) {
    lane *mine = calloc(1, sizeof(*mine));
    int code = NEXT(self)->lane_open(INNER(self), options, &mine->inner, err);
    if (code != DUR_OK) {
        free(mine);
        return code;
    }
    mine->inner->store = INNER(self);
    mine->base.store = self;
    *out = &mine->base;
    return code;
}

static int pass_lane_round(dur_lane *at, dur_arena *arena, dur_round *round, dur_error *err) {
    broken *me = BROKEN(at->store);
    dur_round mine = *round;
    dur_turn_commit *turns = broken_alloc(me, (round->turn_count + 1) * sizeof(*turns));
    for (size_t i = 0; i < round->turn_count; i++)
        turns[i] = before(me, &round->turns[i]);
    dur_fetch fetch = { .max = 0 };
    dur_work_fetch work = { .max = 0 };
    mine.turns = turns;
    if (round->fetch != NULL) fetch = asked(me, round->fetch), mine.fetch = &fetch;
    if (round->work != NULL) work = asked_work(me, round->work), mine.work = &work;
    int code = me->inner->methods->lane_round(LANE(at)->inner, arena, &mine, err);
    for (size_t i = 0; i < round->turn_count; i++)
        after(me, &round->turns[i], &turns[i]);
    for (size_t i = 0; code == DUR_OK && i < mine.item_count && me->what->fetched != NULL; i++)
        me->what->fetched(me, arena, &mine.items[i]);
    for (size_t i = 0; code == DUR_OK && i < mine.work_count && me->what->worked != NULL; i++)
        me->what->worked(me, &mine.works[i]);
    if (code == DUR_OK && me->what->round != NULL) me->what->round(me, arena, &mine);
    mine.turns = round->turns;
    mine.fetch = round->fetch;
    mine.work = round->work;
    *round = mine;
    return code;
}

static int pass_lane_rest(dur_lane *at, dur_rest *out, dur_error *err) {
    return INNER(at->store)->methods->lane_rest(LANE(at)->inner, out, err);
}
static int pass_lane_rise(dur_lane *at, const dur_rest *slept, bool *news, dur_error *err) {
    return INNER(at->store)->methods->lane_rise(LANE(at)->inner, slept, news, err);
}

static void pass_lane_close(dur_lane *at) {
    INNER(at->store)->methods->lane_close(LANE(at)->inner);
    free(at);
}

static int pass_lane_messages(dur_lane *at, dur_arena *arena, const char *instance, const char *lock_token,
                              const char *queue, uint64_t after_due_ms, uint64_t after_id, size_t max,
                              dur_fetched_message **out, size_t *count, dur_error *err) {
    return INNER(at->store)->methods->lane_messages(LANE(at)->inner, arena, instance, lock_token, queue, after_due_ms,
                                                    after_id, max, out, count, err);
}

static int pass_lane_history(dur_lane *at, dur_arena *arena, const char *instance, const char *lock_token,
                             uint64_t execution_id, dur_orchestration_item *out, dur_error *err) {
    return INNER(at->store)->methods->lane_history(LANE(at)->inner, arena, instance, lock_token, execution_id, out,
                                                   err);
}

static int pass_watch_open(dur_provider *self, const char *instance, dur_watch **out, dur_error *err) {
    watch *mine = calloc(1, sizeof(*mine));
    int code = NEXT(self)->watch_open(INNER(self), instance, &mine->inner, err);
    if (code != DUR_OK) {
        free(mine);
        return code;
    }
    mine->inner->store = INNER(self);
    mine->base.store = self;
    *out = &mine->base;
    return code;
}

static int pass_watch_wait(dur_watch *at, uint64_t timeout_ms, dur_error *err) {
    return INNER(at->store)->methods->watch_wait(WATCH(at)->inner, timeout_ms, err);
}

static void pass_watch_close(dur_watch *at) {
    INNER(at->store)->methods->watch_close(WATCH(at)->inner);
    free(at);
}

static const dur_provider_methods passing = {
    .size = sizeof(dur_provider_methods),
    .abi = DUR_PROVIDER_ABI,
    .name = "mutant",
    .version = "0",
    .close = pass_close,
    .now_ms = pass_now_ms,
    .fetch_orchestration_item = pass_fetch_orchestration_item,
    .ack_orchestration_item = pass_ack_orchestration_item,
    .abandon_orchestration_item = pass_abandon_orchestration_item,
    .renew_orchestration_item_lock = pass_renew_orchestration_item_lock,
    .read = pass_read,
    .append = pass_append,
    .enqueue_for_worker = pass_enqueue_for_worker,
    .fetch_work_item = pass_fetch_work_item,
    .ack_work_item = pass_ack_work_item,
    .renew_work_item_lock = pass_renew_work_item_lock,
    .abandon_work_item = pass_abandon_work_item,
    .renew_session_lock = pass_renew_session_lock,
    .cleanup_orphaned_sessions = pass_cleanup_orphaned_sessions,
    .enqueue_for_orchestrator = pass_enqueue_for_orchestrator,
    .get_custom_status = pass_get_custom_status,
    .get_kv_value = pass_get_kv_value,
    .get_kv_all_values = pass_get_kv_all_values,
    .lane_open = pass_lane_open,
    .lane_round = pass_lane_round,
    .lane_rest = pass_lane_rest,
    .lane_rise = pass_lane_rise,
    .lane_close = pass_lane_close,
    .lane_messages = pass_lane_messages,
    .lane_history = pass_lane_history,
    .fetch_turns = pass_fetch_turns,
    .commit_turns = pass_commit_turns,
    .fetch_works = pass_fetch_works,
    .ack_works = pass_ack_works,
    .check_works = pass_check_works,
    .return_works = pass_return_works,
    .alone_ended = pass_alone_ended,
    .blame = pass_blame,
    .owner_register = pass_owner_register,
    .owner_beat = pass_owner_beat,
    .owner_release = pass_owner_release,
    .owner_holdings = pass_owner_holdings,
    .enqueue_start = pass_enqueue_start,
    .enqueue_existing = pass_enqueue_existing,
    .watch_open = pass_watch_open,
    .watch_wait = pass_watch_wait,
    .watch_close = pass_watch_close,
    .get_instance_stats = pass_get_instance_stats,
    .list_instances = pass_list_instances,
    .get_instance = pass_get_instance,
    .list_executions = pass_list_executions,
    .get_system_metrics = pass_get_system_metrics,
    .get_queue_depths = pass_get_queue_depths,
    .delete_instances = pass_delete_instances,
    .delete_instances_bulk = pass_delete_instances_bulk,
    .prune_executions = pass_prune_executions,
    .prune_executions_bulk = pass_prune_executions_bulk,
    .dead_letter_messages = pass_dead_letter_messages,
    .dead_letter_work = pass_dead_letter_work,
    .list_dead_letters = pass_list_dead_letters,
    .delete_dead_letters = pass_delete_dead_letters,
    .set_suspended = pass_set_suspended,
    .check = pass_check,
    .list_unserved = pass_list_unserved,
};

/* ---- common ----------------------------------------------------------------------------------------------------- */

dur_provider *broken_new(dur_provider *inner, const mutant *what) {
    broken *me = calloc(1, sizeof(*me));
    me->inner = inner;
    me->what = what;
    me->table = passing;
    me->table.local_work = inner->methods->local_work;
    me->base.methods = &me->table;
    me->scratch = dur_arena_new();
    pthread_mutex_init(&me->mutex, NULL);
    if (what->patch != NULL) what->patch(&me->table);
    return &me->base;
}

void *broken_alloc(broken *self, size_t size) {
    pthread_mutex_lock(&self->mutex);
    void *memory = dur_arena_zalloc(self->scratch, size);
    pthread_mutex_unlock(&self->mutex);
    return memory;
}

void broken_note(broken *self, const char *key, const char *value) {
    pthread_mutex_lock(&self->mutex);
    memo *at = self->memos;
    while (at != NULL && strcmp(at->key, key) != 0)
        at = at->next;
    if (at == NULL) {
        at = calloc(1, sizeof(*at));
        at->key = strdup(key);
        at->next = self->memos;
        self->memos = at;
    }
    free(at->value);
    at->value = value != NULL ? strdup(value) : NULL;
    pthread_mutex_unlock(&self->mutex);
}

const char *broken_noted(broken *self, const char *key) {
    const char *value = NULL;
    pthread_mutex_lock(&self->mutex);
    for (memo *at = self->memos; at != NULL; at = at->next)
        if (strcmp(at->key, key) == 0 && at->value != NULL) value = dur_arena_strdup(self->scratch, at->value);
    pthread_mutex_unlock(&self->mutex);
    return value;
}

int broken_force(broken *self, dur_turn_commit *turn) {
    static const char text[] = "{}";
    dur_turn_commit mine = *turn;
    dur_instance_row row;
    dur_arena *arena = dur_arena_new();
    mine.fault = DUR_TURN_FINE; /* as a turn comes to a store */
    dur_error_clear(&mine.error);
    mine.lost_work = NULL;
    mine.lost_work_count = 0;
    mine.take_over = true;
    /* Only what exists can be taken over: a start that is removed again by the turn makes it so. */
    if (self->inner->methods->get_instance(self->inner, arena, turn->instance, &row, NULL) != DUR_OK) {
        dur_message_row start = { .kind = DUR_WORK_START_ORCHESTRATION,
                                  .instance = turn->instance,
                                  .json = { text, sizeof(text) - 1 } };
        self->inner->methods->enqueue_for_orchestrator(self->inner, &start, 0, NULL);
        mine.remove_work = true;
    }
    dur_arena_free(arena);
    self->inner->methods->commit_turns(self->inner, &mine, 1, NULL);
    return (int)mine.error.code;
}
