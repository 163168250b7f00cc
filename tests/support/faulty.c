/*
 * faulty.c: the decorator of faulty.h.
 */
#include "support/faulty.h"

#include "base/assert.h"
#include "base/buf.h"
#include "base/map.h"
#include "base/thread.h"

#include <durite/sys/store.h>
#include <stdlib.h>
#include <time.h>

#define PLANS_MAX 16u

typedef struct faulty_plan {
    dur__fault_plan plan;
    uint64_t matched;
} faulty_plan;

typedef struct faulty {
    dur_provider base;
    dur_provider *inner;
    dur_provider_methods table;
    dur__mutex mutex; /* guards what follows */
    faulty_plan plans[PLANS_MAX];
    size_t plan_count;
    dur__map calls; /* uint64_t by method */
    uint64_t call_count, fault_count;
    uint64_t random;
} faulty;

typedef struct faulty_lane {
    dur_lane base;
    dur_lane *inner;
} faulty_lane;

typedef struct faulty_watch {
    dur_watch base;
    dur_watch *inner;
} faulty_watch;

static faulty *faulty_of(dur_provider *store) {
    return (faulty *)(void *)store;
}

/* ---- deciding ---------------------------------------------------------------------------------------------------- */

typedef enum verdict { PASS, FAIL_BEFORE, FAIL_AFTER } verdict;

static uint64_t next_random(faulty *f) { /* xorshift64* */
    f->random ^= f->random >> 12;
    f->random ^= f->random << 25;
    f->random ^= f->random >> 27;
    return f->random * UINT64_C(0x2545f4914f6cdd1d);
}

static bool plan_applies(faulty *f, faulty_plan *entry, const char *method) {
    const dur__fault_plan *plan = &entry->plan;
    if (plan->method != NULL && strcmp(plan->method, method) != 0) return false;
    uint64_t first = plan->first > 0 ? plan->first : 1;
    uint64_t count = plan->count > 0 ? plan->count : 1;
    entry->matched++;
    if (entry->matched < first || entry->matched - first >= count) return false;
    return plan->per_mille == 0 || next_random(f) % 1000u < plan->per_mille;
}

static void count_call(faulty *f, const char *method) {
    uint64_t *count = dur__map_get(&f->calls, method);
    if (count == NULL) {
        count = dur__xcalloc(1, sizeof(*count));
        dur__map_put(&f->calls, method, count);
    }
    (*count)++;
}

static void sleep_us(uint64_t us) {
    struct timespec rest = { (time_t)(us / 1000000u), (long)(us % 1000000u) * 1000 };
    if (us > 0) nanosleep(&rest, NULL);
}

/* Count the call and say what becomes of it; err is filled when it fails. */
static verdict decide(faulty *f, const char *method, dur_error *err) {
    dur__fault_plan plan = { .method = NULL };
    bool struck = false;
    bool is_method = strcmp(method, "turn") != 0 && strcmp(method, "ack") != 0;
    dur__mutex_lock(&f->mutex);
    count_call(f, method);
    f->call_count += is_method;
    for (size_t i = 0; i < f->plan_count; i++) { /* every rule counts, the first that applies decides */
        if (!is_method && f->plans[i].plan.method == NULL) continue;
        if (!plan_applies(f, &f->plans[i], method) || struck) continue;
        struck = true;
        plan = f->plans[i].plan;
    }
    f->fault_count += struck && !plan.only_delay;
    dur__mutex_unlock(&f->mutex);
    sleep_us(plan.delay_us);
    if (!struck || plan.only_delay) return PASS;
    dur_code code = plan.code != DUR_OK ? plan.code : plan.after ? DUR_EUNKNOWN : DUR_EUNAVAILABLE;
    dur_error_set(err, code, !plan.permanent, method, "injected fault %s the call", plan.after ? "after" : "before");
    return plan.after ? FAIL_AFTER : FAIL_BEFORE;
}

/* ---- methods that are passed on ---------------------------------------------------------------------------------- */

/* inner_ is the decorated store, in the arguments of the call. */
#define FORWARD(name, params, args)                                                                                    \
    static int faulty_##name params {                                                                                  \
        dur_provider *inner_ = faulty_of(self)->inner;                                                                 \
        dur_error fault_ = DUR_ERROR_INIT;                                                                             \
        verdict verdict_ = decide(faulty_of(self), #name, &fault_);                                                    \
        int code_ = (int)fault_.code;                                                                                  \
        if (verdict_ != FAIL_BEFORE) code_ = inner_->methods->name args;                                               \
        if (verdict_ == PASS) return code_;                                                                            \
        if (err != NULL) *err = fault_;                                                                                \
        return (int)fault_.code;                                                                                       \
    }

FORWARD(fetch_orchestration_item,
        (dur_provider * self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out, dur_error *err),
        (inner_, arena, how, out, err))
FORWARD(abandon_orchestration_item,
        (dur_provider * self, const char *token, uint64_t delay_ms, bool ignore_attempt, dur_error *err),
        (inner_, token, delay_ms, ignore_attempt, err))
FORWARD(renew_orchestration_item_lock, (dur_provider * self, const char *token, uint64_t extend_ms, dur_error *err),
        (inner_, token, extend_ms, err))
FORWARD(read,
        (dur_provider * self, dur_arena *arena, const char *instance, uint64_t execution_id, dur_event_row **out,
         size_t *count, dur_error *err),
        (inner_, arena, instance, execution_id, out, count, err))
FORWARD(append,
        (dur_provider * self, const char *instance, uint64_t execution_id, const dur_event_row *events, size_t count,
         dur_error *err),
        (inner_, instance, execution_id, events, count, err))
FORWARD(enqueue_for_worker, (dur_provider * self, const dur_message_row *item, dur_error *err), (inner_, item, err))
FORWARD(fetch_work_item,
        (dur_provider * self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out, dur_error *err),
        (inner_, arena, how, out, err))
FORWARD(renew_work_item_lock, (dur_provider * self, const char *token, uint64_t extend_ms, dur_error *err),
        (inner_, token, extend_ms, err))
FORWARD(abandon_work_item,
        (dur_provider * self, const char *token, uint64_t delay_ms, bool ignore_attempt, dur_error *err),
        (inner_, token, delay_ms, ignore_attempt, err))
FORWARD(renew_session_lock,
        (dur_provider * self, const char *const *owners, size_t owner_count, uint64_t extend_ms, uint64_t idle_ms,
         uint64_t *renewed, dur_error *err),
        (inner_, owners, owner_count, extend_ms, idle_ms, renewed, err))
FORWARD(cleanup_orphaned_sessions, (dur_provider * self, uint64_t idle_ms, uint64_t *removed, dur_error *err),
        (inner_, idle_ms, removed, err))
FORWARD(enqueue_for_orchestrator, (dur_provider * self, const dur_message_row *item, uint64_t delay_ms, dur_error *err),
        (inner_, item, delay_ms, err))
FORWARD(get_custom_status,
        (dur_provider * self, dur_arena *arena, const char *instance, uint64_t last_seen, bool *changed,
         const char **status, uint64_t *version, dur_error *err),
        (inner_, arena, instance, last_seen, changed, status, version, err))
FORWARD(get_kv_value,
        (dur_provider * self, dur_arena *arena, const char *instance, const char *key, const char **value,
         dur_error *err),
        (inner_, arena, instance, key, value, err))
FORWARD(get_kv_all_values,
        (dur_provider * self, dur_arena *arena, const char *instance, dur_key_value **out, size_t *count,
         dur_error *err),
        (inner_, arena, instance, out, count, err))
FORWARD(fetch_turns,
        (dur_provider * self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out, size_t *count,
         dur_error *err),
        (inner_, arena, how, out, count, err))
FORWARD(fetch_works,
        (dur_provider * self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out, size_t *count,
         dur_error *err),
        (inner_, arena, how, out, count, err))
FORWARD(check_works,
        (dur_provider * self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms, bool *lost,
         dur_error *err),
        (inner_, claims, count, extend_ms, lost, err))
FORWARD(return_works, (dur_provider * self, const dur_worker_claim *claims, size_t count, dur_error *err),
        (inner_, claims, count, err))
FORWARD(alone_ended, (dur_provider * self, const char *lock_token, dur_error *err), (inner_, lock_token, err))
FORWARD(blame, (dur_provider * self, const char *lock_token, dur_error *err), (inner_, lock_token, err))
FORWARD(owner_register, (dur_provider * self, const dur_owner_options *options, dur_error *err), (inner_, options, err))
FORWARD(owner_beat, (dur_provider * self, const char *owner, dur_owner_report *out, dur_error *err),
        (inner_, owner, out, err))
FORWARD(owner_release, (dur_provider * self, const char *owner, dur_error *err), (inner_, owner, err))
FORWARD(owner_holdings,
        (dur_provider * self, dur_arena *arena, const char *owner, dur_holding **out, size_t *count, dur_error *err),
        (inner_, arena, owner, out, count, err))
FORWARD(enqueue_start,
        (dur_provider * self, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms, bool *existed,
         dur_error *err),
        (inner_, item, policy, delay_ms, existed, err))
FORWARD(enqueue_starts, (dur_provider * self, dur_start_request *starts, size_t count, dur_error *err),
        (inner_, starts, count, err))
FORWARD(enqueue_existing, (dur_provider * self, const dur_message_row *item, uint64_t delay_ms, dur_error *err),
        (inner_, item, delay_ms, err))
FORWARD(list_unserved,
        (dur_provider * self, dur_arena *arena, size_t each, dur_unserved **out, size_t *count, dur_error *err),
        (inner_, arena, each, out, count, err))
FORWARD(get_instance_stats,
        (dur_provider * self, dur_arena *arena, const char *instance, bool *found, dur_instance_stats *out,
         dur_error *err),
        (inner_, arena, instance, found, out, err))
FORWARD(list_instances,
        (dur_provider * self, dur_arena *arena, const dur_instance_query *query, dur_instance_row **out, size_t *count,
         dur_error *err),
        (inner_, arena, query, out, count, err))
FORWARD(get_instance,
        (dur_provider * self, dur_arena *arena, const char *instance, dur_instance_row *out, dur_error *err),
        (inner_, arena, instance, out, err))
FORWARD(list_executions,
        (dur_provider * self, dur_arena *arena, const char *instance, dur_execution_row **out, size_t *count,
         dur_error *err),
        (inner_, arena, instance, out, count, err))
FORWARD(get_system_metrics, (dur_provider * self, dur_system_metrics *out, dur_error *err), (inner_, out, err))
FORWARD(get_queue_depths, (dur_provider * self, dur_queue_depths *out, dur_error *err), (inner_, out, err))
FORWARD(delete_instances,
        (dur_provider * self, const char *const *ids, const dur_meant *meant, size_t count, bool force,
         dur_delete_result *out, dur_error *err),
        (inner_, ids, meant, count, force, out, err))
FORWARD(delete_instances_bulk,
        (dur_provider * self, const dur_bulk_filter *filter, dur_delete_result *out, dur_error *err),
        (inner_, filter, out, err))
FORWARD(prune_executions,
        (dur_provider * self, const char *instance, const dur_prune_options *options, dur_prune_result *out,
         dur_error *err),
        (inner_, instance, options, out, err))
FORWARD(prune_executions_bulk,
        (dur_provider * self, const dur_bulk_filter *filter, const dur_prune_options *options, dur_prune_result *out,
         dur_error *err),
        (inner_, filter, options, out, err))
FORWARD(dead_letter_messages,
        (dur_provider * self, const char *instance, const uint64_t *ids, size_t count, const char *reason,
         dur_error *err),
        (inner_, instance, ids, count, reason, err))
FORWARD(dead_letter_work, (dur_provider * self, const char *token, const char *reason, dur_error *err),
        (inner_, token, reason, err))
FORWARD(list_dead_letters,
        (dur_provider * self, dur_arena *arena, uint64_t after_id, size_t limit, dur_dead_letter **out, size_t *count,
         dur_error *err),
        (inner_, arena, after_id, limit, out, count, err))
FORWARD(delete_dead_letters, (dur_provider * self, const uint64_t *ids, size_t count, dur_error *err),
        (inner_, ids, count, err))
FORWARD(set_suspended, (dur_provider * self, const char *instance, const char *reason, dur_error *err),
        (inner_, instance, reason, err))
FORWARD(backup, (dur_provider * self, const char *target, dur_error *err), (inner_, target, err))
FORWARD(check, (dur_provider * self, dur_error *err), (inner_, err))
FORWARD(vacuum, (dur_provider * self, uint64_t pages_max, uint64_t *pages_left, dur_error *err),
        (inner_, pages_max, pages_left, err))

static uint64_t faulty_now_ms(dur_provider *self) {
    dur_provider *inner = faulty_of(self)->inner;
    return inner->methods->now_ms(inner);
}

/* ---- turns and acks, each with a fate of its own ----------------------------------------------------------------- */

typedef struct fate {
    verdict verdict;
    dur_error error;
} fate;

typedef struct sifted {
    dur_turn_commit *turns; /* those that reach the inner store */
    fate *turn_fates;
    dur_work_ack *acks;
    fate *ack_fates;
    size_t turn_count, ack_count;
} sifted;

static void turn_refuse(dur_turn_commit *turn, const dur_error *error) {
    turn->error = *error;
    turn->fault = DUR_TURN_STORE;
    turn->lease_kept = false;
    turn->lost_work = NULL;
    turn->lost_work_count = 0;
}

static void sift(faulty *f, sifted *out, dur_turn_commit *turns, size_t turn_count, dur_work_ack *acks,
                 size_t ack_count) {
    *out = (sifted){ .turns = dur__xcalloc(turn_count + 1, sizeof(*turns)),
                     .turn_fates = dur__xcalloc(turn_count + 1, sizeof(fate)),
                     .acks = dur__xcalloc(ack_count + 1, sizeof(*acks)),
                     .ack_fates = dur__xcalloc(ack_count + 1, sizeof(fate)) };
    for (size_t i = 0; i < turn_count; i++) {
        out->turn_fates[i].verdict = decide(f, "turn", &out->turn_fates[i].error);
        if (out->turn_fates[i].verdict != FAIL_BEFORE) out->turns[out->turn_count++] = turns[i];
    }
    for (size_t i = 0; i < ack_count; i++) {
        out->ack_fates[i].verdict = decide(f, "ack", &out->ack_fates[i].error);
        if (out->ack_fates[i].verdict != FAIL_BEFORE) out->acks[out->ack_count++] = acks[i];
    }
}

/* Answers of the inner store and of fate, back in the caller's places. */
static void unsift(const sifted *in, dur_turn_commit *turns, size_t turn_count, dur_work_ack *acks, size_t ack_count) {
    size_t turn_at = 0, ack_at = 0;
    for (size_t i = 0; i < turn_count; i++) {
        if (in->turn_fates[i].verdict != FAIL_BEFORE) turns[i] = in->turns[turn_at++];
        if (in->turn_fates[i].verdict != PASS) turn_refuse(&turns[i], &in->turn_fates[i].error);
    }
    for (size_t i = 0; i < ack_count; i++) {
        if (in->ack_fates[i].verdict != FAIL_BEFORE) acks[i] = in->acks[ack_at++];
        if (in->ack_fates[i].verdict != PASS) acks[i].error = in->ack_fates[i].error;
    }
    free(in->turns);
    free(in->turn_fates);
    free(in->acks);
    free(in->ack_fates);
}

static int faulty_ack_orchestration_item(dur_provider *self, dur_turn_commit *turn, dur_error *err) {
    faulty *f = faulty_of(self);
    fate method, one;
    dur_error_clear(&method.error);
    dur_error_clear(&one.error);
    method.verdict = decide(f, "ack_orchestration_item", &method.error);
    one.verdict = decide(f, "turn", &one.error);
    if (method.verdict == PASS) method = one;
    if (method.verdict != FAIL_BEFORE) {
        int code = f->inner->methods->ack_orchestration_item(f->inner, turn, err);
        if (method.verdict == PASS) return code;
    }
    turn_refuse(turn, &method.error);
    if (err != NULL) *err = method.error;
    return (int)method.error.code;
}

static int faulty_commit_turns(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    faulty *f = faulty_of(self);
    dur_error fault = DUR_ERROR_INIT;
    sifted in;
    verdict what = decide(f, "commit_turns", &fault);
    int code = (int)fault.code;
    if (what != FAIL_BEFORE) {
        sift(f, &in, turns, count, NULL, 0);
        code = f->inner->methods->commit_turns(f->inner, in.turns, in.turn_count, err);
        unsift(&in, turns, count, NULL, 0);
        if (what == PASS) return code;
    }
    for (size_t i = 0; i < count; i++)
        turn_refuse(&turns[i], &fault);
    if (err != NULL) *err = fault;
    return (int)fault.code;
}

static int faulty_ack_work_item(dur_provider *self, const char *token, const dur_message_row *completion,
                                dur_error *err) {
    faulty *f = faulty_of(self);
    dur_error fault = DUR_ERROR_INIT;
    dur_error ack_fault = DUR_ERROR_INIT;
    verdict what = decide(f, "ack_work_item", &fault);
    if (what == PASS) {
        what = decide(f, "ack", &ack_fault);
        fault = ack_fault;
    }
    if (what != FAIL_BEFORE) {
        int code = f->inner->methods->ack_work_item(f->inner, token, completion, err);
        if (what == PASS) return code;
    }
    if (err != NULL) *err = fault;
    return (int)fault.code;
}

static int faulty_ack_works(dur_provider *self, dur_work_ack *acks, size_t count, dur_error *err) {
    faulty *f = faulty_of(self);
    dur_error fault = DUR_ERROR_INIT;
    sifted in;
    verdict what = decide(f, "ack_works", &fault);
    if (what != FAIL_BEFORE) {
        sift(f, &in, NULL, 0, acks, count);
        int code = f->inner->methods->ack_works(f->inner, in.acks, in.ack_count, err);
        unsift(&in, NULL, 0, acks, count);
        if (what == PASS) return code;
    }
    for (size_t i = 0; i < count; i++)
        acks[i].error = fault;
    if (err != NULL) *err = fault;
    return (int)fault.code;
}

/* ---- lanes and watches ------------------------------------------------------------------------------------------- */

static dur_lane *inner_lane(dur_lane *lane) {
    return ((faulty_lane *)(void *)lane)->inner;
}

static int faulty_lane_open(dur_provider *self, const dur_lane_options *options, dur_lane **out, dur_error *err) {
    faulty *f = faulty_of(self);
    dur_error fault = DUR_ERROR_INIT;
    dur_lane *inner;
    if (decide(f, "lane_open", &fault) != PASS) { /* nothing is left behind that nobody could close */
        if (err != NULL) *err = fault;
        return (int)fault.code;
    }
    int code = f->inner->methods->lane_open(f->inner, options, &inner, err);
    if (code != DUR_OK) return code;
    faulty_lane *lane = dur__xcalloc(1, sizeof(*lane));
    lane->base.store = self;
    lane->inner = inner;
    *out = &lane->base;
    return DUR_OK;
}

static int faulty_lane_round(dur_lane *lane, dur_arena *arena, dur_round *round, dur_error *err) {
    faulty *f = faulty_of(lane->store);
    dur_error fault = DUR_ERROR_INIT;
    verdict what = decide(f, "lane_round", &fault);
    if (what != FAIL_BEFORE) {
        sifted in;
        dur_turn_commit *turns = round->turns;
        dur_work_ack *acks = round->acks;
        size_t turn_count = round->turn_count, ack_count = round->ack_count;
        sift(f, &in, turns, turn_count, acks, ack_count);
        round->turns = in.turns;
        round->turn_count = in.turn_count;
        round->acks = in.acks;
        round->ack_count = in.ack_count;
        int code = f->inner->methods->lane_round(inner_lane(lane), arena, round, err);
        round->turns = turns;
        round->turn_count = turn_count;
        round->acks = acks;
        round->ack_count = ack_count;
        unsift(&in, turns, turn_count, acks, ack_count);
        if (what == PASS) return code;
    }
    for (size_t i = 0; i < round->turn_count; i++)
        turn_refuse(&round->turns[i], &fault);
    for (size_t i = 0; i < round->ack_count; i++)
        round->acks[i].error = fault;
    round->item_count = round->work_count = round->held_count = round->lost_count = round->asked_count = 0;
    round->settles = false; /* the lane believes that it was heard */
    if (err != NULL) *err = fault;
    return (int)fault.code;
}

#define FORWARD_LANE(name, params, args)                                                                               \
    static int faulty_##name params {                                                                                  \
        dur_provider *inner_ = faulty_of(lane->store)->inner;                                                          \
        dur_error fault_ = DUR_ERROR_INIT;                                                                             \
        verdict verdict_ = decide(faulty_of(lane->store), #name, &fault_);                                             \
        int code_ = (int)fault_.code;                                                                                  \
        if (verdict_ != FAIL_BEFORE) code_ = inner_->methods->name args;                                               \
        if (verdict_ == PASS) return code_;                                                                            \
        if (err != NULL) *err = fault_;                                                                                \
        return (int)fault_.code;                                                                                       \
    }

FORWARD_LANE(lane_rest, (dur_lane * lane, dur_rest *out, dur_error *err), (inner_lane(lane), out, err))

/* Its own, and never a fault: who rests rises. */
static int faulty_lane_rise(dur_lane *lane, const dur_rest *slept, bool *news, dur_error *err) {
    return faulty_of(lane->store)->inner->methods->lane_rise(inner_lane(lane), slept, news, err);
}
FORWARD_LANE(lane_messages,
             (dur_lane * lane, dur_arena *arena, const char *instance, const char *token, const char *queue,
              uint64_t after_due_ms, uint64_t after_id, size_t max, dur_fetched_message **out, size_t *count,
              dur_error *err),
             (inner_lane(lane), arena, instance, token, queue, after_due_ms, after_id, max, out, count, err))
FORWARD_LANE(lane_history,
             (dur_lane * lane, dur_arena *arena, const char *instance, const char *token, uint64_t execution_id,
              dur_orchestration_item *out, dur_error *err),
             (inner_lane(lane), arena, instance, token, execution_id, out, err))

static const char *faulty_births(dur_provider *self) {
    faulty *f = faulty_of(self);
    return f->inner->methods->births(f->inner);
}

static void faulty_lane_close(dur_lane *lane) {
    faulty *f = faulty_of(lane->store);
    f->inner->methods->lane_close(inner_lane(lane));
    free(lane);
}

static int faulty_watch_open(dur_provider *self, const char *instance, dur_watch **out, dur_error *err) {
    faulty *f = faulty_of(self);
    dur_error fault = DUR_ERROR_INIT;
    dur_watch *inner;
    if (decide(f, "watch_open", &fault) != PASS) {
        if (err != NULL) *err = fault;
        return (int)fault.code;
    }
    int code = f->inner->methods->watch_open(f->inner, instance, &inner, err);
    if (code != DUR_OK) return code;
    faulty_watch *watch = dur__xcalloc(1, sizeof(*watch));
    watch->base.store = self;
    watch->inner = inner;
    *out = &watch->base;
    return DUR_OK;
}

static int faulty_watch_wait(dur_watch *watch, uint64_t timeout_ms, dur_error *err) {
    faulty *f = faulty_of(watch->store);
    dur_error fault = DUR_ERROR_INIT;
    verdict what = decide(f, "watch_wait", &fault);
    if (what != FAIL_BEFORE) {
        int code = f->inner->methods->watch_wait(((faulty_watch *)(void *)watch)->inner, timeout_ms, err);
        if (what == PASS) return code;
    }
    if (err != NULL) *err = fault;
    return (int)fault.code;
}

static void faulty_watch_wake(dur_watch *watch) {
    faulty *f = faulty_of(watch->store);
    f->inner->methods->watch_wake(((faulty_watch *)(void *)watch)->inner);
}

static void faulty_watch_close(dur_watch *watch) {
    faulty *f = faulty_of(watch->store);
    f->inner->methods->watch_close(((faulty_watch *)(void *)watch)->inner);
    free(watch);
}

/* ---- making one -------------------------------------------------------------------------------------------------- */

static void faulty_close(dur_provider *self) {
    faulty *f = faulty_of(self);
    dur__map_entry *entry;
    dur_provider_close(f->inner);
    for (size_t i = 0; (entry = dur__map_next(&f->calls, &i)) != NULL;)
        free(entry->value);
    dur__map_free(&f->calls);
    dur__mutex_destroy(&f->mutex);
    free(f);
}

/* Every method of the table but close and now_ms; X gets its name. */
#define METHODS(X)                                                                                                     \
    X(fetch_orchestration_item)                                                                                        \
    X(ack_orchestration_item)                                                                                          \
    X(abandon_orchestration_item)                                                                                      \
    X(renew_orchestration_item_lock)                                                                                   \
    X(read)                                                                                                            \
    X(append)                                                                                                          \
    X(enqueue_for_worker)                                                                                              \
    X(fetch_work_item)                                                                                                 \
    X(ack_work_item)                                                                                                   \
    X(renew_work_item_lock)                                                                                            \
    X(abandon_work_item)                                                                                               \
    X(renew_session_lock)                                                                                              \
    X(cleanup_orphaned_sessions)                                                                                       \
    X(enqueue_for_orchestrator)                                                                                        \
    X(get_custom_status)                                                                                               \
    X(get_kv_value)                                                                                                    \
    X(get_kv_all_values)                                                                                               \
    X(lane_open)                                                                                                       \
    X(lane_round)                                                                                                      \
    X(lane_rest)                                                                                                       \
    X(lane_rise)                                                                                                       \
    X(lane_close)                                                                                                      \
    X(lane_messages)                                                                                                   \
    X(lane_history)                                                                                                    \
    X(births)                                                                                                          \
    X(fetch_turns)                                                                                                     \
    X(commit_turns)                                                                                                    \
    X(fetch_works)                                                                                                     \
    X(ack_works)                                                                                                       \
    X(check_works)                                                                                                     \
    X(return_works)                                                                                                    \
    X(alone_ended)                                                                                                     \
    X(blame)                                                                                                           \
    X(owner_register)                                                                                                  \
    X(owner_beat)                                                                                                      \
    X(owner_release)                                                                                                   \
    X(owner_holdings)                                                                                                  \
    X(enqueue_start)                                                                                                   \
    X(enqueue_existing)                                                                                                \
    X(watch_open)                                                                                                      \
    X(watch_wait)                                                                                                      \
    X(watch_close)                                                                                                     \
    X(get_instance_stats)                                                                                              \
    X(list_instances)                                                                                                  \
    X(get_instance)                                                                                                    \
    X(list_executions)                                                                                                 \
    X(get_system_metrics)                                                                                              \
    X(get_queue_depths)                                                                                                \
    X(delete_instances)                                                                                                \
    X(delete_instances_bulk)                                                                                           \
    X(prune_executions)                                                                                                \
    X(prune_executions_bulk)                                                                                           \
    X(dead_letter_messages)                                                                                            \
    X(dead_letter_work)                                                                                                \
    X(list_dead_letters)                                                                                               \
    X(delete_dead_letters)                                                                                             \
    X(set_suspended) X(backup) X(check) X(vacuum) X(enqueue_starts) X(watch_wake) X(list_unserved)

int dur__faulty_wrap(dur_provider **out, dur_provider *inner, uint64_t seed, dur_error *err) {
    if (out == NULL || inner == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "faulty", "out and inner are required");
    faulty *f = dur__xcalloc(1, sizeof(*f));
    f->inner = inner;
    f->random = seed != 0 ? seed : 1;
    dur__mutex_init(&f->mutex);
    f->table.size = sizeof(f->table);
    f->table.abi = DUR_PROVIDER_ABI;
    f->table.name = inner->methods->name;
    f->table.version = inner->methods->version;
    f->table.own_clock = inner->methods->own_clock;
    f->table.local_work = inner->methods->local_work;
    f->table.close = faulty_close;
    f->table.now_ms = faulty_now_ms;
#define PASS_ON(method)                                                                                                \
    if (DUR_HAS_METHOD(inner->methods, method)) f->table.method = faulty_##method;
    METHODS(PASS_ON)
#undef PASS_ON
    f->base.methods = &f->table;
    *out = &f->base;
    return DUR_OK;
}

int dur__minimal_wrap(dur_provider **out, dur_provider *inner, dur_error *err) {
    int code = dur__faulty_wrap(out, inner, 1, err);
    if (code == DUR_OK) faulty_of(*out)->table.size = offsetof(dur_provider_methods, lane_open);
    return code;
}

int dur__faulty_hide(dur_provider *store, const char *method) {
    dur_provider_methods *table = &faulty_of(store)->table;
#define HIDE(name)                                                                                                     \
    if (strcmp(method, #name) == 0) {                                                                                  \
        table->name = NULL;                                                                                            \
        return DUR_OK;                                                                                                 \
    }
    METHODS(HIDE)
#undef HIDE
    return DUR_EINVAL;
}

void dur__faulty_add(dur_provider *store, const dur__fault_plan *plan) {
    faulty *f = faulty_of(store);
    dur__mutex_lock(&f->mutex);
    DUR_ASSERT(f->plan_count < PLANS_MAX);
    f->plans[f->plan_count++] = (faulty_plan){ *plan, 0 };
    dur__mutex_unlock(&f->mutex);
}

void dur__faulty_clear(dur_provider *store) {
    faulty *f = faulty_of(store);
    dur__mutex_lock(&f->mutex);
    f->plan_count = 0;
    dur__mutex_unlock(&f->mutex);
}

uint64_t dur__faulty_calls(dur_provider *store, const char *method) {
    faulty *f = faulty_of(store);
    dur__mutex_lock(&f->mutex);
    const uint64_t *count = method != NULL ? dur__map_get(&f->calls, method) : &f->call_count;
    uint64_t calls = count != NULL ? *count : 0;
    dur__mutex_unlock(&f->mutex);
    return calls;
}

uint64_t dur__faulty_faults(dur_provider *store) {
    faulty *f = faulty_of(store);
    dur__mutex_lock(&f->mutex);
    uint64_t faults = f->fault_count;
    dur__mutex_unlock(&f->mutex);
    return faults;
}
