/*
 * observed.c: a decorator that counts, times and logs every call of any store.
 *
 * Every method is passed on to the same method of the inner table: what sys/store.h adds to a call (checks, decoding,
 * counts) is added once, outside.  A method that the inner store does not have stays absent here too, so that whoever
 * calls gets the same fallback with and without the decorator.  Lanes and watches are wrapped, because they lead back
 * to their store.
 *
 * A failure that the caller asked for (not found, exists, timeout, bad argument) or that protects it (a lost lease, a
 * conflicting event) is an answer.  A failure of the store itself is an infrastructure error and counted as one.
 */
#include "base/buf.h"
#include "base/map.h"
#include "base/thread.h"
#include "obs/log_internal.h"
#include "obs/metrics_internal.h"
#include "provider/provider_internal.h"

#include <durite/metrics.h>
#include <durite/sys/store.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { FAILED_TURNS_MAX = 4096 };

typedef enum store_op {
    NO_OP = -1,
    OP_FETCH,
    OP_ACK_ORCHESTRATION,
    OP_ACK_WORK,
    OP_ENQUEUE,
    OP_FETCH_WORK,
    OP_COUNT
} store_op;
typedef enum store_fault {
    FAULT_TRANSACTION,
    FAULT_LOCK_TIMEOUT,
    FAULT_SERIALIZATION,
    FAULT_UNKNOWN,
    FAULT_COUNT
} store_fault;

/* A turn whose commit failed and may come again.  Its key is the instance, or the token where no instance is given. */
typedef struct failed_turn {
    uint64_t execution_id;
    uint64_t first_event_id; /* 0: the turn had none */
    uint64_t expected_last;
    char key[];
} failed_turn;

typedef struct observed {
    dur_provider base;
    dur_provider_methods methods;
    dur_provider *inner;
    dur__counter calls;
    dur__counter ack_retries;
    dur__histogram durations[OP_COUNT];
    dur__counter faults[OP_COUNT][FAULT_COUNT];
    atomic_size_t failed_count; /* of failed; read without the lock, so that a healthy store costs none */
    dur__mutex failed_lock;     /* guards failed */
    dur__map failed;            /* failed_turn by its key */
} observed;

typedef struct observed_lane {
    dur_lane base;
    dur_lane *inner;
} observed_lane;

typedef struct observed_watch {
    dur_watch base;
    dur_watch *inner;
} observed_watch;

/* ---- one call ---------------------------------------------------------------------------------------------------- */

typedef struct call {
    observed *store;
    const char *method;
    int op; /* a store_op */
    const char *instance;
    uint64_t began_us;
    dur_error *err; /* the caller's, or own: never NULL */
    dur_error own;
} call;

static void call_begin(call *c, dur_provider *self, const char *method, int op, const char *instance, dur_error *err) {
    c->store = (observed *)self;
    c->method = method;
    c->op = op;
    c->instance = instance;
    c->err = err != NULL ? err : &c->own;
    dur_error_clear(c->err);
    dur__count(&c->store->calls, 1);
    c->began_us = dur__monotonic_us();
}

/* An outcome that the caller must be ready for; everything else is worth a line at ERROR. */
static bool is_answer(int code) {
    switch (code) {
    case DUR_OK:
    case DUR_ENOTFOUND:
    case DUR_EEXISTS:
    case DUR_ETIMEOUT:
    case DUR_ERUNNING:
    case DUR_ESTATE:
    case DUR_ECHILD:
    case DUR_EUNSUPPORTED:
    case DUR_EDUPLICATE:
    case DUR_ELEASE: /* suspended, terminated, deleted, taken over: whoever had it says so, as loud as that is */
        return true;
    default:
        return false;
    }
}

/* Did the store itself fail? */
static bool is_infrastructure(int code, const dur_error *err) {
    switch (code) {
    case DUR_OK:
        return false;
    case DUR_ENOMEM:
    case DUR_EBUSY:
    case DUR_EIO:
    case DUR_EFULL:
    case DUR_ECORRUPT:
    case DUR_ESCHEMA:
    case DUR_EUNAVAILABLE:
    case DUR_EPERM:
    case DUR_EUNKNOWN:
        return true;
    default:
        return err->retryable;
    }
}

static bool mentions(const dur_error *err, const char *what) {
    return strcasestr(err->message, what) != NULL || strcasestr(err->op, what) != NULL;
}

/* The text is asked first: stores have one code for "busy" and name the reason in the message. */
static store_fault classify(int code, const dur_error *err) {
    if (mentions(err, "deadlock") || (mentions(err, "serializ") && !mentions(err, "deserializ")))
        return FAULT_SERIALIZATION;
    if (code == DUR_EBUSY || mentions(err, "locked") || mentions(err, "lock timeout") || mentions(err, "lock wait"))
        return FAULT_LOCK_TIMEOUT;
    if (code == DUR_EUNKNOWN || mentions(err, "commit") || mentions(err, "transaction")) return FAULT_TRANSACTION;
    return FAULT_UNKNOWN;
}

/* Count and log one outcome: of a call, or of one element of an array that the call carried. */
static void note(observed *o, const char *method, int op, const char *instance, uint64_t took_us, int code,
                 const dur_error *err) {
    if (op != NO_OP && is_infrastructure(code, err)) dur__count(&o->faults[op][classify(code, err)], 1);
    dur_log_level level = is_answer(code) ? DUR_LOG_DEBUG : DUR_LOG_ERROR;
    if (!dur__log_enabled(level)) return;
    dur_log_field fields[5];
    size_t count = 0;
    fields[count++] = (dur_log_field)DUR__TEXT("operation", method);
    fields[count++] = (dur_log_field)DUR__TEXT("store", o->methods.name);
    fields[count++] = (dur_log_field)DUR__NUMBER("duration_us", took_us);
    if (instance != NULL) fields[count++] = (dur_log_field)DUR__TEXT("instance_id", instance);
    if (code != DUR_OK) fields[count++] = (dur_log_field)DUR__TEXT("code", dur_code_name(code));
    if (code == DUR_OK)
        dur__log(level, DUR__LOG_PROVIDER, fields, count, "%s", method);
    else
        dur__log(level, DUR__LOG_PROVIDER, fields, count, "%s failed: %s: %s", method, err->op, err->message);
}

static uint64_t call_took(const call *c) {
    return dur__monotonic_us() - c->began_us;
}

static int call_end(call *c, int code) {
    uint64_t took_us = call_took(c);
    if (c->op != NO_OP) dur__histogram_add(&c->store->durations[c->op], took_us);
    note(c->store, c->method, c->op, c->instance, took_us, code, c->err);
    return code;
}

/* ---- commits that come again ------------------------------------------------------------------------------------- */

static const char *turn_key(const dur_turn_commit *turn) {
    return turn->instance != NULL ? turn->instance : turn->lock_token != NULL ? turn->lock_token : "";
}

static uint64_t first_event_id(const dur_turn_commit *turn) {
    return turn->event_count > 0 ? turn->events[0].event_id : 0;
}

static void failed_forget(observed *o, const char *key) {
    failed_turn *old = dur__map_remove(&o->failed, key);
    if (old != NULL) {
        dur__free(old);
        atomic_fetch_sub(&o->failed_count, 1);
    }
}

/* Before the commit: is it one that failed before? */
static void turn_submitted(observed *o, const dur_turn_commit *turn) {
    if (atomic_load(&o->failed_count) == 0) return;
    dur__mutex_lock(&o->failed_lock);
    const failed_turn *old = dur__map_get(&o->failed, turn_key(turn));
    if (old != NULL && old->execution_id == turn->execution_id && old->first_event_id == first_event_id(turn) &&
        old->expected_last == turn->expected_last)
        dur__count(&o->ack_retries, 1);
    dur__mutex_unlock(&o->failed_lock);
}

/* After it: remember a failure that may be followed by another try, forget everything else. */
static void turn_answered(observed *o, const dur_turn_commit *turn, int code, const dur_error *err) {
    bool may_come_again = code != DUR_OK && (err->retryable || code == DUR_EUNKNOWN);
    if (!may_come_again && atomic_load(&o->failed_count) == 0) return;
    const char *key = turn_key(turn);
    dur__mutex_lock(&o->failed_lock);
    failed_forget(o, key);
    if (may_come_again && o->failed.count < FAILED_TURNS_MAX) {
        size_t size = strlen(key) + 1;
        failed_turn *failed = dur__map_reserve(&o->failed, 1) ? dur__get(sizeof(*failed) + size) : NULL;
        if (failed == NULL) { /* one retry is not counted */
            dur__mutex_unlock(&o->failed_lock);
            return;
        }
        failed->execution_id = turn->execution_id;
        failed->first_event_id = first_event_id(turn);
        failed->expected_last = turn->expected_last;
        memcpy(failed->key, key, size);
        dur__map_put(&o->failed, failed->key, failed);
        atomic_fetch_add(&o->failed_count, 1);
    }
    dur__mutex_unlock(&o->failed_lock);
}

/* The answers of many turns.  With code the call as a whole failed, and so did each. */
static void note_turns(observed *o, const char *method, const dur_turn_commit *turns, size_t count, uint64_t took_us,
                       int code, const dur_error *err) {
    if (count > 0) dur__histogram_add(&o->durations[OP_ACK_ORCHESTRATION], took_us);
    for (size_t i = 0; i < count; i++) {
        const dur_turn_commit *turn = &turns[i];
        const dur_error *why = code != DUR_OK ? err : &turn->error;
        note(o, method, OP_ACK_ORCHESTRATION, turn->instance, took_us, code != DUR_OK ? code : (int)turn->error.code,
             why);
        turn_answered(o, turn, code != DUR_OK ? code : (int)turn->error.code, why);
    }
}

static void note_acks(observed *o, const char *method, const dur_work_ack *acks, size_t count, uint64_t took_us,
                      int code, const dur_error *err) {
    if (count > 0) dur__histogram_add(&o->durations[OP_ACK_WORK], took_us);
    for (size_t i = 0; i < count; i++) {
        const dur_error *why = code != DUR_OK ? err : &acks[i].error;
        note(o, method, OP_ACK_WORK, acks[i].ref.instance, took_us, code != DUR_OK ? code : (int)acks[i].error.code,
             why);
    }
}

/* ---- methods that carry turns or find their instance themselves -------------------------------------------------- */

static uint64_t observed_now_ms(dur_provider *self) {
    observed *o = (observed *)self;
    dur__count(&o->calls, 1);
    return o->inner->methods->now_ms(o->inner);
}

static int observed_fetch_orchestration_item(dur_provider *self, dur_arena *arena, const dur_fetch *how,
                                             dur_orchestration_item *out, dur_error *err) {
    call c;
    call_begin(&c, self, "fetch_orchestration_item", OP_FETCH, NULL, err);
    int code = c.store->inner->methods->fetch_orchestration_item(c.store->inner, arena, how, out, c.err);
    if (code == DUR_OK) c.instance = out->instance;
    return call_end(&c, code);
}

static int observed_ack_orchestration_item(dur_provider *self, dur_turn_commit *turn, dur_error *err) {
    call c;
    call_begin(&c, self, "ack_orchestration_item", OP_ACK_ORCHESTRATION, turn->instance, err);
    turn_submitted(c.store, turn);
    int code = call_end(&c, c.store->inner->methods->ack_orchestration_item(c.store->inner, turn, c.err));
    turn_answered(c.store, turn, code, c.err);
    return code;
}

static int observed_commit_turns(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    call c;
    call_begin(&c, self, "commit_turns", OP_ACK_ORCHESTRATION, NULL, err);
    for (size_t i = 0; i < count; i++)
        turn_submitted(c.store, &turns[i]);
    int code = c.store->inner->methods->commit_turns(c.store->inner, turns, count, c.err);
    note_turns(c.store, c.method, turns, count, call_took(&c), code, c.err);
    return code;
}

static int observed_ack_works(dur_provider *self, dur_work_ack *acks, size_t count, dur_error *err) {
    call c;
    call_begin(&c, self, "ack_works", OP_ACK_WORK, NULL, err);
    int code = c.store->inner->methods->ack_works(c.store->inner, acks, count, c.err);
    note_acks(c.store, c.method, acks, count, call_took(&c), code, c.err);
    return code;
}

static int observed_fetch_work_item(dur_provider *self, dur_arena *arena, const dur_work_fetch *how,
                                    dur_leased_work *out, dur_error *err) {
    call c;
    call_begin(&c, self, "fetch_work_item", OP_FETCH_WORK, NULL, err);
    int code = c.store->inner->methods->fetch_work_item(c.store->inner, arena, how, out, c.err);
    if (code == DUR_OK && out->json.data != NULL) c.instance = out->ref.instance;
    return call_end(&c, code);
}

/* ---- lanes and watches ------------------------------------------------------------------------------------------- */

static int observed_lane_open(dur_provider *self, const dur_lane_options *options, dur_lane **out, dur_error *err) {
    call c;
    call_begin(&c, self, "lane_open", NO_OP, NULL, err);
    dur_lane *inner = NULL;
    int code = call_end(&c, c.store->inner->methods->lane_open(c.store->inner, options, &inner, c.err));
    if (code != DUR_OK) return code;
    observed_lane *lane = dur__zget(sizeof(*lane));
    if (lane == NULL) {
        c.store->inner->methods->lane_close(inner);
        return DUR__NO_MEMORY(err, "lane_open");
    }
    lane->base.store = self;
    lane->inner = inner;
    *out = &lane->base;
    return DUR_OK;
}

/* One transaction is several operations: each that took part gets its duration, and its failure if there is one. */
static int observed_lane_round(dur_lane *base, dur_arena *arena, dur_round *round, dur_error *err) {
    observed_lane *lane = (observed_lane *)base;
    call c;
    call_begin(&c, base->store, "lane_round", NO_OP, NULL, err);
    observed *o = c.store;
    for (size_t i = 0; i < round->turn_count; i++)
        turn_submitted(o, &round->turns[i]);
    int code = o->inner->methods->lane_round(lane->inner, arena, round, c.err);
    uint64_t took_us = call_took(&c);
    note_turns(o, c.method, round->turns, round->turn_count, took_us, code, c.err);
    note_acks(o, c.method, round->acks, round->ack_count, took_us, code, c.err);
    if (round->fetch != NULL) {
        dur__histogram_add(&o->durations[OP_FETCH], took_us);
        note(o, c.method, OP_FETCH, code == DUR_OK && round->item_count == 1 ? round->items[0].instance : NULL, took_us,
             code, c.err);
    }
    if (round->work != NULL) {
        dur__histogram_add(&o->durations[OP_FETCH_WORK], took_us);
        note(o, c.method, OP_FETCH_WORK, NULL, took_us, code, c.err);
    }
    return code;
}

static int observed_lane_rest(dur_lane *base, dur_rest *out, dur_error *err) {
    call c;
    call_begin(&c, base->store, "lane_rest", NO_OP, NULL, err);
    return call_end(&c, c.store->inner->methods->lane_rest(((observed_lane *)base)->inner, out, c.err));
}

static int observed_lane_rise(dur_lane *base, const dur_rest *slept, bool *news, dur_error *err) {
    call c;
    call_begin(&c, base->store, "lane_rise", NO_OP, NULL, err);
    return call_end(&c, c.store->inner->methods->lane_rise(((observed_lane *)base)->inner, slept, news, c.err));
}

static void observed_lane_close(dur_lane *base) {
    observed_lane *lane = (observed_lane *)base;
    observed *o = (observed *)base->store;
    dur__count(&o->calls, 1);
    o->inner->methods->lane_close(lane->inner);
    dur__free(lane);
}

static int observed_lane_messages(dur_lane *base, dur_arena *arena, const char *instance, const char *lock_token,
                                  const char *queue, uint64_t after_due_ms, uint64_t after_id, size_t max,
                                  dur_fetched_message **out, size_t *count, dur_error *err) {
    call c;
    call_begin(&c, base->store, "lane_messages", NO_OP, instance, err);
    dur_lane *inner = ((observed_lane *)base)->inner;
    return call_end(&c, c.store->inner->methods->lane_messages(inner, arena, instance, lock_token, queue, after_due_ms,
                                                               after_id, max, out, count, c.err));
}

static int observed_lane_history(dur_lane *base, dur_arena *arena, const char *instance, const char *lock_token,
                                 uint64_t execution_id, dur_orchestration_item *out, dur_error *err) {
    call c;
    call_begin(&c, base->store, "lane_history", NO_OP, instance, err);
    dur_lane *inner = ((observed_lane *)base)->inner;
    return call_end(
        &c, c.store->inner->methods->lane_history(inner, arena, instance, lock_token, execution_id, out, c.err));
}

/* What is begun here is no call of the store, but for the round that it comes with. */
static const char *observed_births(dur_provider *self) {
    dur_provider *inner = ((observed *)(void *)self)->inner;
    return inner->methods->births(inner);
}

static int observed_watch_open(dur_provider *self, const char *instance, dur_watch **out, dur_error *err) {
    call c;
    call_begin(&c, self, "watch_open", NO_OP, instance, err);
    dur_watch *inner = NULL;
    int code = call_end(&c, c.store->inner->methods->watch_open(c.store->inner, instance, &inner, c.err));
    if (code != DUR_OK) return code;
    observed_watch *watch = dur__zget(sizeof(*watch));
    if (watch == NULL) {
        c.store->inner->methods->watch_close(inner);
        return DUR__NO_MEMORY(err, "watch_open");
    }
    watch->base.store = self;
    watch->inner = inner;
    *out = &watch->base;
    return DUR_OK;
}

static int observed_watch_wait(dur_watch *base, uint64_t timeout_ms, dur_error *err) {
    call c;
    call_begin(&c, base->store, "watch_wait", NO_OP, NULL, err);
    return call_end(&c, c.store->inner->methods->watch_wait(((observed_watch *)base)->inner, timeout_ms, c.err));
}

static void observed_watch_wake(dur_watch *base) {
    observed *o = (observed *)base->store;
    dur__count(&o->calls, 1);
    o->inner->methods->watch_wake(((observed_watch *)base)->inner);
}

static void observed_watch_close(dur_watch *base) {
    observed_watch *watch = (observed_watch *)base;
    observed *o = (observed *)base->store;
    dur__count(&o->calls, 1);
    o->inner->methods->watch_close(watch->inner);
    dur__free(watch);
}

/* ---- the rest: passed on as it is -------------------------------------------------------------------------------- */

/* PASS(method, operation, instance or NULL, (parameters), (arguments)): `inner` is the store, `err` never NULL. */
#define PASS(method, op_, instance_, parameters, arguments)                                                            \
    static int observed_##method parameters {                                                                          \
        call c_;                                                                                                       \
        call_begin(&c_, self, #method, op_, instance_, err);                                                           \
        dur_provider *inner = c_.store->inner;                                                                         \
        err = c_.err;                                                                                                  \
        return call_end(&c_, inner->methods->method arguments);                                                        \
    }

PASS(abandon_orchestration_item, NO_OP, NULL,
     (dur_provider * self, const char *lock_token, uint64_t delay_ms, bool ignore_attempt, dur_error *err),
     (inner, lock_token, delay_ms, ignore_attempt, err))
PASS(renew_orchestration_item_lock, NO_OP, NULL,
     (dur_provider * self, const char *lock_token, uint64_t extend_ms, dur_error *err),
     (inner, lock_token, extend_ms, err))
PASS(read, NO_OP, instance,
     (dur_provider * self, dur_arena *arena, const char *instance, uint64_t execution_id, dur_event_row **out,
      size_t *count, dur_error *err),
     (inner, arena, instance, execution_id, out, count, err))
PASS(append, NO_OP, instance,
     (dur_provider * self, const char *instance, uint64_t execution_id, const dur_event_row *events, size_t count,
      dur_error *err),
     (inner, instance, execution_id, events, count, err))
PASS(enqueue_for_worker, OP_ENQUEUE, item->instance, (dur_provider * self, const dur_message_row *item, dur_error *err),
     (inner, item, err))
PASS(ack_work_item, OP_ACK_WORK, completion != NULL ? completion->instance : NULL,
     (dur_provider * self, const char *lock_token, const dur_message_row *completion, dur_error *err),
     (inner, lock_token, completion, err))
PASS(renew_work_item_lock, NO_OP, NULL,
     (dur_provider * self, const char *lock_token, uint64_t extend_ms, dur_error *err),
     (inner, lock_token, extend_ms, err))
PASS(abandon_work_item, NO_OP, NULL,
     (dur_provider * self, const char *lock_token, uint64_t delay_ms, bool ignore_attempt, dur_error *err),
     (inner, lock_token, delay_ms, ignore_attempt, err))
PASS(renew_session_lock, NO_OP, NULL,
     (dur_provider * self, const char *const *owners, size_t owner_count, uint64_t extend_ms, uint64_t idle_ms,
      uint64_t *renewed, dur_error *err),
     (inner, owners, owner_count, extend_ms, idle_ms, renewed, err))
PASS(cleanup_orphaned_sessions, NO_OP, NULL, (dur_provider * self, uint64_t idle_ms, uint64_t *removed, dur_error *err),
     (inner, idle_ms, removed, err))
PASS(enqueue_for_orchestrator, OP_ENQUEUE, item->instance,
     (dur_provider * self, const dur_message_row *item, uint64_t delay_ms, dur_error *err),
     (inner, item, delay_ms, err))
PASS(get_custom_status, NO_OP, instance,
     (dur_provider * self, dur_arena *arena, const char *instance, uint64_t last_seen, bool *changed,
      const char **status, uint64_t *version, dur_error *err),
     (inner, arena, instance, last_seen, changed, status, version, err))
PASS(get_kv_value, NO_OP, instance,
     (dur_provider * self, dur_arena *arena, const char *instance, const char *key, const char **value, dur_error *err),
     (inner, arena, instance, key, value, err))
PASS(get_kv_all_values, NO_OP, instance,
     (dur_provider * self, dur_arena *arena, const char *instance, dur_key_value **out, size_t *count, dur_error *err),
     (inner, arena, instance, out, count, err))
PASS(fetch_turns, OP_FETCH, NULL,
     (dur_provider * self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out, size_t *count,
      dur_error *err),
     (inner, arena, how, out, count, err))
PASS(fetch_works, OP_FETCH_WORK, NULL,
     (dur_provider * self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out, size_t *count,
      dur_error *err),
     (inner, arena, how, out, count, err))
PASS(check_works, NO_OP, NULL,
     (dur_provider * self, const dur_worker_claim *claims, size_t count, uint64_t extend_ms, bool *lost,
      dur_error *err),
     (inner, claims, count, extend_ms, lost, err))
PASS(return_works, NO_OP, NULL, (dur_provider * self, const dur_worker_claim *claims, size_t count, dur_error *err),
     (inner, claims, count, err))
PASS(alone_ended, NO_OP, NULL, (dur_provider * self, const char *lock_token, dur_error *err), (inner, lock_token, err))
PASS(blame, NO_OP, NULL, (dur_provider * self, const char *lock_token, dur_error *err), (inner, lock_token, err))
PASS(owner_register, NO_OP, NULL, (dur_provider * self, const dur_owner_options *options, dur_error *err),
     (inner, options, err))
PASS(owner_beat, NO_OP, NULL, (dur_provider * self, const char *owner, dur_owner_report *out, dur_error *err),
     (inner, owner, out, err))
PASS(owner_release, NO_OP, NULL, (dur_provider * self, const char *owner, dur_error *err), (inner, owner, err))
PASS(owner_holdings, NO_OP, NULL,
     (dur_provider * self, dur_arena *arena, const char *owner, dur_holding **out, size_t *count, dur_error *err),
     (inner, arena, owner, out, count, err))
PASS(enqueue_start, OP_ENQUEUE, item->instance,
     (dur_provider * self, const dur_message_row *item, dur_exists_policy policy, uint64_t delay_ms, bool *existed,
      dur_error *err),
     (inner, item, policy, delay_ms, existed, err))
PASS(enqueue_starts, OP_ENQUEUE, count == 1 ? starts[0].item->instance : NULL,
     (dur_provider * self, dur_start_request *starts, size_t count, dur_error *err), (inner, starts, count, err))
PASS(enqueue_existing, OP_ENQUEUE, item->instance,
     (dur_provider * self, const dur_message_row *item, uint64_t delay_ms, dur_error *err),
     (inner, item, delay_ms, err))
PASS(list_unserved, NO_OP, NULL,
     (dur_provider * self, dur_arena *arena, size_t each, dur_unserved **out, size_t *count, dur_error *err),
     (inner, arena, each, out, count, err))
PASS(get_instance_stats, NO_OP, instance,
     (dur_provider * self, dur_arena *arena, const char *instance, bool *found, dur_instance_stats *out,
      dur_error *err),
     (inner, arena, instance, found, out, err))
PASS(list_instances, NO_OP, NULL,
     (dur_provider * self, dur_arena *arena, const dur_instance_query *query, dur_instance_row **out, size_t *count,
      dur_error *err),
     (inner, arena, query, out, count, err))
PASS(get_instance, NO_OP, instance,
     (dur_provider * self, dur_arena *arena, const char *instance, dur_instance_row *out, dur_error *err),
     (inner, arena, instance, out, err))
PASS(list_executions, NO_OP, instance,
     (dur_provider * self, dur_arena *arena, const char *instance, dur_execution_row **out, size_t *count,
      dur_error *err),
     (inner, arena, instance, out, count, err))
PASS(get_system_metrics, NO_OP, NULL, (dur_provider * self, dur_system_metrics *out, dur_error *err), (inner, out, err))
PASS(get_queue_depths, NO_OP, NULL, (dur_provider * self, dur_queue_depths *out, dur_error *err), (inner, out, err))
PASS(delete_instances, NO_OP, count == 1 ? ids[0] : NULL,
     (dur_provider * self, const char *const *ids, const dur_meant *meant, size_t count, bool force,
      dur_delete_result *out, dur_error *err),
     (inner, ids, meant, count, force, out, err))
PASS(delete_instances_bulk, NO_OP, NULL,
     (dur_provider * self, const dur_bulk_filter *filter, dur_delete_result *out, dur_error *err),
     (inner, filter, out, err))
PASS(prune_executions, NO_OP, instance,
     (dur_provider * self, const char *instance, const dur_prune_options *options, dur_prune_result *out,
      dur_error *err),
     (inner, instance, options, out, err))
PASS(prune_executions_bulk, NO_OP, NULL,
     (dur_provider * self, const dur_bulk_filter *filter, const dur_prune_options *options, dur_prune_result *out,
      dur_error *err),
     (inner, filter, options, out, err))
PASS(dead_letter_messages, NO_OP, instance,
     (dur_provider * self, const char *instance, const uint64_t *ids, size_t count, const char *reason, dur_error *err),
     (inner, instance, ids, count, reason, err))
PASS(dead_letter_work, NO_OP, NULL, (dur_provider * self, const char *lock_token, const char *reason, dur_error *err),
     (inner, lock_token, reason, err))
PASS(list_dead_letters, NO_OP, NULL,
     (dur_provider * self, dur_arena *arena, uint64_t after_id, size_t limit, dur_dead_letter **out, size_t *count,
      dur_error *err),
     (inner, arena, after_id, limit, out, count, err))
PASS(delete_dead_letters, NO_OP, NULL, (dur_provider * self, const uint64_t *ids, size_t count, dur_error *err),
     (inner, ids, count, err))
PASS(set_suspended, NO_OP, instance, (dur_provider * self, const char *instance, const char *reason, dur_error *err),
     (inner, instance, reason, err))
PASS(backup, NO_OP, NULL, (dur_provider * self, const char *target, dur_error *err), (inner, target, err))
PASS(check, NO_OP, NULL, (dur_provider * self, dur_error *err), (inner, err))
PASS(vacuum, NO_OP, NULL, (dur_provider * self, uint64_t pages_max, uint64_t *pages_left, dur_error *err),
     (inner, pages_max, pages_left, err))
#undef PASS

/* ---- opening, closing, reading ----------------------------------------------------------------------------------- */

static void observed_close(dur_provider *self) {
    observed *o = (observed *)self;
    size_t at = 0;
    for (dur__map_entry *e; (e = dur__map_next(&o->failed, &at)) != NULL;) {
        failed_turn *failed = e->value;
        dur__map_remove(&o->failed, e->key);
        dur__free(failed);
    }
    dur__map_free(&o->failed);
    dur__mutex_destroy(&o->failed_lock);
    dur_provider_close(o->inner);
    dur__free(o);
}

dur_provider *dur__store_innermost(dur_provider *store) {
    while (store->methods->close == observed_close)
        store = ((observed *)(void *)store)->inner;
    return store;
}

/* METHOD(name): everything behind close, in the order of the table. */
#define REQUIRED(METHOD)                                                                                               \
    METHOD(now_ms)                                                                                                     \
    METHOD(fetch_orchestration_item)                                                                                   \
    METHOD(ack_orchestration_item)                                                                                     \
    METHOD(abandon_orchestration_item)                                                                                 \
    METHOD(renew_orchestration_item_lock)                                                                              \
    METHOD(read)                                                                                                       \
    METHOD(append)                                                                                                     \
    METHOD(enqueue_for_worker)                                                                                         \
    METHOD(fetch_work_item)                                                                                            \
    METHOD(ack_work_item)                                                                                              \
    METHOD(renew_work_item_lock)                                                                                       \
    METHOD(abandon_work_item)                                                                                          \
    METHOD(renew_session_lock)                                                                                         \
    METHOD(cleanup_orphaned_sessions)                                                                                  \
    METHOD(enqueue_for_orchestrator) METHOD(get_custom_status) METHOD(get_kv_value) METHOD(get_kv_all_values)
#define OPTIONAL(METHOD)                                                                                               \
    METHOD(lane_open)                                                                                                  \
    METHOD(lane_round)                                                                                                 \
    METHOD(lane_rest)                                                                                                  \
    METHOD(lane_rise)                                                                                                  \
    METHOD(lane_close)                                                                                                 \
    METHOD(lane_messages)                                                                                              \
    METHOD(lane_history)                                                                                               \
    METHOD(births)                                                                                                     \
    METHOD(fetch_turns)                                                                                                \
    METHOD(commit_turns)                                                                                               \
    METHOD(fetch_works)                                                                                                \
    METHOD(ack_works)                                                                                                  \
    METHOD(check_works)                                                                                                \
    METHOD(return_works)                                                                                               \
    METHOD(alone_ended)                                                                                                \
    METHOD(blame)                                                                                                      \
    METHOD(owner_register)                                                                                             \
    METHOD(owner_beat)                                                                                                 \
    METHOD(owner_release)                                                                                              \
    METHOD(owner_holdings)                                                                                             \
    METHOD(enqueue_start)                                                                                              \
    METHOD(enqueue_existing)                                                                                           \
    METHOD(watch_open)                                                                                                 \
    METHOD(watch_wait)                                                                                                 \
    METHOD(watch_close)                                                                                                \
    METHOD(get_instance_stats)                                                                                         \
    METHOD(list_instances)                                                                                             \
    METHOD(get_instance)                                                                                               \
    METHOD(list_executions)                                                                                            \
    METHOD(get_system_metrics)                                                                                         \
    METHOD(get_queue_depths)                                                                                           \
    METHOD(delete_instances)                                                                                           \
    METHOD(delete_instances_bulk)                                                                                      \
    METHOD(prune_executions)                                                                                           \
    METHOD(prune_executions_bulk)                                                                                      \
    METHOD(dead_letter_messages)                                                                                       \
    METHOD(dead_letter_work)                                                                                           \
    METHOD(list_dead_letters)                                                                                          \
    METHOD(delete_dead_letters)                                                                                        \
    METHOD(set_suspended)                                                                                              \
    METHOD(backup) METHOD(check) METHOD(vacuum) METHOD(enqueue_starts) METHOD(watch_wake) METHOD(list_unserved)

#define ONE(method) +1
_Static_assert(sizeof(dur_provider_methods) ==
                   offsetof(dur_provider_methods, close) +
                       (1 REQUIRED(ONE) OPTIONAL(ONE)) * sizeof(((dur_provider_methods *)0)->close),
               "a method was added to the table: pass it on here, too");
#undef ONE

static void methods_fill(dur_provider_methods *table, const dur_provider_methods *inner) {
    table->size = sizeof(*table);
    table->abi = DUR_PROVIDER_ABI;
    table->name = inner->name;
    table->version = inner->version;
    table->own_clock = inner->own_clock;
    table->local_work = inner->local_work;
    table->close = observed_close;
#define PASS_ON(method) table->method = observed_##method;
    REQUIRED(PASS_ON)
#undef PASS_ON
#define PASS_ON_IF_THERE(method) table->method = DUR_HAS_METHOD(inner, method) ? observed_##method : NULL;
    OPTIONAL(PASS_ON_IF_THERE)
#undef PASS_ON_IF_THERE
}

int dur_observe(dur_provider **out, dur_provider *inner, dur_error *err) {
    if (out == NULL || inner == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "observe", "out and inner are required");
    *out = NULL;
    observed *o = dur__zget(sizeof(*o));
    if (o == NULL || !dur__provider_adopt(inner)) {
        dur__free(o);
        return DUR__NO_MEMORY(err, "observe");
    }
    methods_fill(&o->methods, inner->methods);
    o->base.methods = &o->methods;
    dur__mutex_init(&o->failed_lock);
    o->inner = dur_store_retain(inner);
    *out = &o->base;
    dur_error_clear(err);
    return DUR_OK;
}

static void op_read(dur_op_metrics *out, const observed *o, store_op op) {
    dur__histogram_read(&out->durations, &o->durations[op]);
    out->transactions_failed = dur__counted(&o->faults[op][FAULT_TRANSACTION]);
    out->lock_timeouts = dur__counted(&o->faults[op][FAULT_LOCK_TIMEOUT]);
    out->serialization_errors = dur__counted(&o->faults[op][FAULT_SERIALIZATION]);
    out->unknown_errors = dur__counted(&o->faults[op][FAULT_UNKNOWN]);
}

int dur_observe_snapshot(dur_store_metrics *out, dur_provider *store, dur_error *err) {
    if (out == NULL || store == NULL)
        return dur_error_set(err, DUR_EINVAL, false, "observe_snapshot", "out and observed are required");
    if (store->methods->close != observed_close)
        return dur_error_set(err, DUR_EINVAL, false, "observe_snapshot", "the store is not one of dur_observe");
    if (out->size < sizeof(out->size))
        return dur_error_set(err, DUR_EINVAL, false, "observe_snapshot", "out->size is not set");
    const observed *o = (const observed *)store;
    dur_store_metrics all = { .size = out->size };
    op_read(&all.fetch, o, OP_FETCH);
    op_read(&all.ack_orchestration, o, OP_ACK_ORCHESTRATION);
    op_read(&all.ack_work, o, OP_ACK_WORK);
    op_read(&all.enqueue, o, OP_ENQUEUE);
    op_read(&all.fetch_work, o, OP_FETCH_WORK);
    all.ack_orchestration_retries = dur__counted(&o->ack_retries);
    all.calls = dur__counted(&o->calls);
    memcpy(out, &all, out->size < sizeof(all) ? out->size : sizeof(all));
    dur_error_clear(err);
    return DUR_OK;
}
