/*
 * test_observed.c: the measuring decorator, over a store that answers as it is told and over the memory store.
 */
#include <durite/durite.h>
#include <durite/sys/store.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a store that fails as it is told ---------------------------------------------------------------------------- */

typedef struct told {
    dur_provider base;
    dur_provider_methods methods;
    dur_error fail; /* code DUR_OK: succeed */
    unsigned calls;
    bool closed;
    bool *closed_out;
} told;

static int answer(dur_provider *self, dur_error *err) {
    told *t = (told *)self;
    t->calls++;
    if (t->fail.code == DUR_OK) return DUR_OK;
    return dur_error_set(err, t->fail.code, t->fail.retryable, t->fail.op, "%s", t->fail.message);
}

static void told_close(dur_provider *self) {
    *((told *)self)->closed_out = true;
    free(self);
}
static uint64_t told_now(dur_provider *self) {
    (void)self;
    return 42;
}
static int told_fetch(dur_provider *self, dur_arena *arena, const dur_fetch *how, dur_orchestration_item *out,
                      dur_error *err) {
    (void)arena, (void)how;
    memset(out, 0, sizeof(*out));
    return answer(self, err);
}
static int told_ack(dur_provider *self, dur_turn_commit *turn, dur_error *err) {
    int code = answer(self, err);
    turn->error = code == DUR_OK ? (dur_error)DUR_ERROR_INIT : ((told *)self)->fail;
    turn->fault = code == DUR_OK ? DUR_TURN_FINE : DUR_TURN_STORE;
    return code;
}
static int told_abandon(dur_provider *self, const char *token, uint64_t delay_ms, bool ignore, dur_error *err) {
    (void)token, (void)delay_ms, (void)ignore;
    return answer(self, err);
}
static int told_renew(dur_provider *self, const char *token, uint64_t extend_ms, dur_error *err) {
    (void)token, (void)extend_ms;
    return answer(self, err);
}
static int told_read(dur_provider *self, dur_arena *arena, const char *instance, uint64_t execution_id,
                     dur_event_row **out, size_t *count, dur_error *err) {
    (void)arena, (void)instance, (void)execution_id;
    *out = NULL;
    *count = 0;
    return answer(self, err);
}
static int told_append(dur_provider *self, const char *instance, uint64_t execution_id, const dur_event_row *events,
                       size_t count, dur_error *err) {
    (void)instance, (void)execution_id, (void)events, (void)count;
    return answer(self, err);
}
static int told_enqueue_worker(dur_provider *self, const dur_message_row *item, dur_error *err) {
    (void)item;
    return answer(self, err);
}
static int told_fetch_work(dur_provider *self, dur_arena *arena, const dur_work_fetch *how, dur_leased_work *out,
                           dur_error *err) {
    (void)arena, (void)how;
    memset(out, 0, sizeof(*out));
    return answer(self, err);
}
static int told_ack_work(dur_provider *self, const char *token, const dur_message_row *completion, dur_error *err) {
    (void)token, (void)completion;
    return answer(self, err);
}
static int told_renew_sessions(dur_provider *self, const char *const *owners, size_t count, uint64_t extend_ms,
                               uint64_t idle_ms, uint64_t *renewed, dur_error *err) {
    (void)owners, (void)count, (void)extend_ms, (void)idle_ms;
    *renewed = 0;
    return answer(self, err);
}
static int told_cleanup(dur_provider *self, uint64_t idle_ms, uint64_t *removed, dur_error *err) {
    (void)idle_ms;
    *removed = 0;
    return answer(self, err);
}
static int told_enqueue(dur_provider *self, const dur_message_row *item, uint64_t delay_ms, dur_error *err) {
    (void)item, (void)delay_ms;
    return answer(self, err);
}
static int told_status(dur_provider *self, dur_arena *arena, const char *instance, uint64_t last_seen, bool *changed,
                       const char **status, uint64_t *version, dur_error *err) {
    (void)arena, (void)instance, (void)last_seen, (void)status, (void)version;
    *changed = false;
    return answer(self, err);
}
static int told_kv(dur_provider *self, dur_arena *arena, const char *instance, const char *key, const char **value,
                   dur_error *err) {
    (void)arena, (void)instance, (void)key;
    *value = NULL;
    return answer(self, err);
}
static int told_kv_all(dur_provider *self, dur_arena *arena, const char *instance, dur_key_value **out, size_t *count,
                       dur_error *err) {
    (void)arena, (void)instance;
    *out = NULL;
    *count = 0;
    return answer(self, err);
}
/* Optional ones, given to the store where a test wants them. */
static int told_commit_turns(dur_provider *self, dur_turn_commit *turns, size_t count, dur_error *err) {
    (void)err;
    ((told *)self)->calls++;
    for (size_t i = 0; i < count; i++) { /* every second turn fails */
        turns[i].error = i % 2 == 1 ? ((told *)self)->fail : (dur_error)DUR_ERROR_INIT;
        turns[i].fault = turns[i].error.code != DUR_OK ? DUR_TURN_STORE : DUR_TURN_FINE;
    }
    return DUR_OK;
}
static int told_get_instance(dur_provider *self, dur_arena *arena, const char *instance, dur_instance_row *out,
                             dur_error *err) {
    (void)arena, (void)instance;
    memset(out, 0, sizeof(*out));
    return answer(self, err);
}

static told *told_new(bool *closed) {
    told *t = calloc(1, sizeof(*t));
    t->closed_out = closed;
    *closed = false;
    t->base.methods = &t->methods;
    t->methods = (dur_provider_methods){
        .size = sizeof(dur_provider_methods),
        .abi = DUR_PROVIDER_ABI,
        .name = "told",
        .version = "7",
        .own_clock = true,
        .close = told_close,
        .now_ms = told_now,
        .fetch_orchestration_item = told_fetch,
        .ack_orchestration_item = told_ack,
        .abandon_orchestration_item = told_abandon,
        .renew_orchestration_item_lock = told_renew,
        .read = told_read,
        .append = told_append,
        .enqueue_for_worker = told_enqueue_worker,
        .fetch_work_item = told_fetch_work,
        .ack_work_item = told_ack_work,
        .renew_work_item_lock = told_renew,
        .abandon_work_item = told_abandon,
        .renew_session_lock = told_renew_sessions,
        .cleanup_orphaned_sessions = told_cleanup,
        .enqueue_for_orchestrator = told_enqueue,
        .get_custom_status = told_status,
        .get_kv_value = told_kv,
        .get_kv_all_values = told_kv_all,
    };
    return t;
}

/* ---- the world of a test ----------------------------------------------------------------------------------------- */

typedef struct world {
    told *inner;
    dur_provider *store; /* observed */
    dur_arena *arena;
    dur_error err;
    bool closed;
    char log[65536];
} world;

static void collect(void *data, const dur_log_record *record) {
    world *w = data;
    size_t used = strlen(w->log);
    used += (size_t)snprintf(w->log + used, sizeof(w->log) - used, "%s %s: %s", dur_log_level_name(record->level),
                             record->target, record->message);
    for (size_t i = 0; i < record->field_count && used < sizeof(w->log); i++)
        if (record->fields[i].text != NULL)
            used += (size_t)snprintf(w->log + used, sizeof(w->log) - used, " %s=%s", record->fields[i].key,
                                     record->fields[i].text);
    if (used + 1 < sizeof(w->log)) strcat(w->log, "\n");
}

static int setup(void **state) {
    world *w = calloc(1, sizeof(*w));
    w->inner = told_new(&w->closed);
    w->arena = dur_arena_new();
    if (dur_observe(&w->store, &w->inner->base, &w->err) != DUR_OK) return -1;
    *state = w;
    return dur_log_set_sink(collect, w, DUR_LOG_DEBUG);
}

static int teardown(void **state) {
    world *w = *state;
    dur_log_set_sink(NULL, NULL, DUR_LOG_DEBUG);
    dur_provider_close(w->store);
    dur_provider_close(&w->inner->base);
    int code = w->closed ? 0 : -1; /* both references are gone */
    dur_arena_free(w->arena);
    free(w);
    return code;
}

enum { OP_FETCH, OP_ACK_ORCHESTRATION, OP_ACK_WORK, OP_ENQUEUE, OP_FETCH_WORK, OP_COUNT };
enum { FAULT_TRANSACTION, FAULT_LOCK_TIMEOUT, FAULT_SERIALIZATION, FAULT_UNKNOWN, FAULT_COUNT };

static const dur_op_metrics *op_of(const dur_store_metrics *m, int op) {
    const dur_op_metrics *const ops[] = { &m->fetch, &m->ack_orchestration, &m->ack_work, &m->enqueue, &m->fetch_work };
    return ops[op];
}

static uint64_t faults_of(const dur_store_metrics *m, int op, int fault) {
    const dur_op_metrics *o = op_of(m, op);
    const uint64_t faults[] = { o->transactions_failed, o->lock_timeouts, o->serialization_errors, o->unknown_errors };
    return faults[fault];
}

static dur_store_metrics snapshot(world *w) {
    dur_store_metrics m = { .size = sizeof(m) };
    assert_int_equal(dur_observe_snapshot(&m, w->store, &w->err), DUR_OK);
    return m;
}

static void fail_with(world *w, dur_code code, bool retryable, const char *op, const char *message) {
    dur_error_set(&w->inner->fail, code, retryable, op, "%s", message);
}

static dur_message_row message_for(world *w, dur_work_kind kind) {
    dur_message_row message;
    dur_work_item item = { .kind = kind,
                           .instance = "order-7",
                           .execution_id = 1,
                           .id = 2,
                           .name = "Ship",
                           .input = "x",
                           .orchestration = "Order",
                           .data = "d",
                           .result = "r" };
    assert_int_equal(dur_message_row_from_work(&message, w->arena, &item, &w->err), DUR_OK);
    return message;
}

static int call_op(world *w, int op) {
    dur_message_row message;
    switch (op) {
    case OP_FETCH: {
        dur_orchestration_item out;
        return dur_store_fetch_orchestration_item(w->store, w->arena, &(dur_fetch){ .lock_ms = 1000 }, &out, &w->err);
    }
    case OP_ACK_ORCHESTRATION: {
        dur_turn_commit turn = {
            .lock_token = "t", .instance = "order-7", .execution_id = 1, .expected_last = DUR_NOT_COMPARED
        };
        return dur_store_ack_orchestration_item(w->store, &turn, &w->err);
    }
    case OP_ACK_WORK:
        message = message_for(w, DUR_WORK_ACTIVITY_COMPLETED);
        return dur_store_ack_work_item(w->store, "t", &message, &w->err);
    case OP_ENQUEUE:
        message = message_for(w, DUR_WORK_EXTERNAL_RAISED);
        return dur_store_enqueue_for_orchestrator(w->store, &message, 0, &w->err);
    default: {
        dur_leased_work out;
        dur_work_fetch how = { .lock_ms = 1000, .tags = { .mode = DUR_TAGS_ANY } };
        return dur_store_fetch_work_item(w->store, w->arena, &how, &out, &w->err);
    }
    }
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void each_operation_moves_its_own_histogram(void **state) {
    world *w = *state;
    for (int op = 0; op < OP_COUNT; op++) {
        for (int times = 0; times <= op; times++)
            assert_int_equal(call_op(w, op), DUR_OK);
    }
    dur_store_metrics m = snapshot(w);
    for (int op = 0; op < OP_COUNT; op++) {
        assert_int_equal(op_of(&m, op)->durations.count, op + 1);
        uint64_t in_buckets = 0;
        for (size_t i = 0; i < DUR_HISTOGRAM_BUCKETS; i++)
            in_buckets += op_of(&m, op)->durations.buckets[i];
        assert_int_equal(in_buckets, op + 1);
        for (int fault = 0; fault < FAULT_COUNT; fault++)
            assert_int_equal(faults_of(&m, op, fault), 0);
    }
    assert_int_equal(m.calls, 15);
    assert_int_equal(m.ack_orchestration_retries, 0);
}

static void enqueueing_for_workers_counts_as_enqueue(void **state) {
    world *w = *state;
    dur_message_row message = message_for(w, DUR_WORK_ACTIVITY_EXECUTE);
    assert_int_equal(dur_store_enqueue_for_worker(w->store, &message, &w->err), DUR_OK);
    assert_int_equal(snapshot(w).enqueue.durations.count, 1);
}

static void failures_are_counted_by_operation_and_type(void **state) {
    world *w = *state;
    static const struct {
        dur_code code;
        bool retryable;
        const char *op, *message;
        int fault; /* -1: an answer, not a fault of the store */
    } cases[] = {
        { DUR_EBUSY, true, "pg.fetch", "could not serialize access", FAULT_SERIALIZATION },
        { DUR_EIO, true, "pg.commit", "deadlock detected", FAULT_SERIALIZATION },
        { DUR_EBUSY, true, "sqlite.begin", "database is locked", FAULT_LOCK_TIMEOUT },
        { DUR_EBUSY, true, "x", "later", FAULT_LOCK_TIMEOUT },
        { DUR_EIO, true, "sqlite.commit", "disk I/O error", FAULT_TRANSACTION },
        { DUR_EIO, false, "pg", "current transaction is aborted", FAULT_TRANSACTION },
        { DUR_EUNKNOWN, false, "pg", "connection lost", FAULT_TRANSACTION },
        { DUR_EUNAVAILABLE, true, "pg.connect", "connection refused", FAULT_UNKNOWN },
        { DUR_EFULL, true, "sqlite.step", "disk is full", FAULT_UNKNOWN },
        { DUR_ECORRUPT, false, "read", "event 3: deserialization failed", FAULT_UNKNOWN },
        { DUR_ELEASE, false, "ack", "Invalid lock token", -1 },
        { DUR_ECONFLICT, false, "ack", "event 2 exists", -1 },
        { DUR_ENOTFOUND, false, "get", "no such instance", -1 },
        { DUR_EINVAL, false, "ack", "event id 0", -1 },
    };
    uint64_t expected[OP_COUNT][FAULT_COUNT];
    memset(expected, 0, sizeof(expected));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fail_with(w, cases[i].code, cases[i].retryable, cases[i].op, cases[i].message);
        for (int op = 0; op < OP_COUNT; op++) {
            assert_int_equal(call_op(w, op), cases[i].code);
            assert_string_equal(w->err.message, cases[i].message); /* passed on as it is */
            if (cases[i].fault >= 0) expected[op][cases[i].fault]++;
        }
        dur_store_metrics m = snapshot(w);
        for (int op = 0; op < OP_COUNT; op++)
            for (int fault = 0; fault < FAULT_COUNT; fault++)
                assert_int_equal(faults_of(&m, op, fault), expected[op][fault]);
    }
}

static int commit(world *w, const char *instance, uint64_t first_event) {
    dur_event_row event = { .event_id = first_event, .kind = DUR_EVENT_TIMER_FIRED, .json = { "{}", 2 } };
    dur_turn_commit turn = { .lock_token = "t",
                             .instance = instance,
                             .execution_id = 1,
                             .events = &event,
                             .event_count = 1,
                             .expected_last = DUR_NOT_COMPARED };
    return dur_store_ack_orchestration_item(w->store, &turn, &w->err);
}

static void a_commit_that_comes_again_after_a_retryable_failure_is_a_retry(void **state) {
    world *w = *state;
    fail_with(w, DUR_EIO, true, "commit", "not now");
    assert_int_equal(commit(w, "a", 2), DUR_EIO);
    assert_int_equal(snapshot(w).ack_orchestration_retries, 0);
    assert_int_equal(commit(w, "b", 2), DUR_EIO); /* another instance */
    assert_int_equal(snapshot(w).ack_orchestration_retries, 0);
    assert_int_equal(commit(w, "a", 2), DUR_EIO);
    assert_int_equal(snapshot(w).ack_orchestration_retries, 1);
    dur_error_clear(&w->inner->fail);
    assert_int_equal(commit(w, "a", 2), DUR_OK);
    assert_int_equal(snapshot(w).ack_orchestration_retries, 2);
    assert_int_equal(commit(w, "a", 2), DUR_OK); /* it was forgotten when it succeeded */
    assert_int_equal(commit(w, "b", 3), DUR_OK); /* another turn of b */
    assert_int_equal(snapshot(w).ack_orchestration_retries, 2);
}

static void a_commit_that_failed_for_good_is_not_waited_for(void **state) {
    world *w = *state;
    fail_with(w, DUR_ELEASE, false, "commit", "Invalid lock token");
    assert_int_equal(commit(w, "a", 2), DUR_ELEASE);
    assert_int_equal(commit(w, "a", 2), DUR_ELEASE);
    assert_int_equal(snapshot(w).ack_orchestration_retries, 0);
}

static void every_turn_of_an_array_is_judged_alone(void **state) {
    world *w = *state;
    /* An observed store copies the table when it is made. */
    dur_provider_close(w->store);
    w->inner->methods.commit_turns = told_commit_turns;
    assert_int_equal(dur_observe(&w->store, &w->inner->base, &w->err), DUR_OK);
    dur_turn_commit turns[4];
    memset(turns, 0, sizeof(turns));
    const char *const ids[] = { "t0", "t1", "t2", "t3" };
    for (size_t i = 0; i < 4; i++) {
        turns[i].instance = turns[i].lock_token = ids[i];
        turns[i].execution_id = 1;
        turns[i].expected_last = 5;
    }
    fail_with(w, DUR_EBUSY, true, "commit", "database is locked");
    assert_int_equal(dur_store_commit_turns(w->store, turns, 4, &w->err), DUR_OK);
    dur_store_metrics m = snapshot(w);
    assert_int_equal(op_of(&m, OP_ACK_ORCHESTRATION)->durations.count, 1);
    assert_int_equal(faults_of(&m, OP_ACK_ORCHESTRATION, FAULT_LOCK_TIMEOUT), 2);
    assert_non_null(strstr(w->log, "instance_id=t1"));
    assert_int_equal(dur_store_commit_turns(w->store, turns, 4, &w->err), DUR_OK);
    assert_int_equal(snapshot(w).ack_orchestration_retries, 2);
}

static void success_is_a_debug_line_and_failure_an_error_line_with_the_instance(void **state) {
    world *w = *state;
    assert_int_equal(call_op(w, OP_ENQUEUE), DUR_OK);
    assert_non_null(strstr(w->log, "debug durite::provider: enqueue_for_orchestrator"));
    assert_non_null(strstr(w->log, "instance_id=order-7"));
    assert_null(strstr(w->log, "error "));
    w->log[0] = '\0';
    fail_with(w, DUR_EIO, true, "told.write", "no luck");
    assert_int_equal(call_op(w, OP_ACK_ORCHESTRATION), DUR_EIO);
    assert_non_null(strstr(w->log, "error durite::provider: ack_orchestration_item failed: told.write: no luck"));
    assert_non_null(strstr(w->log, "instance_id=order-7"));
    assert_non_null(strstr(w->log, "code=DUR_EIO"));
}

static void methods_that_the_inner_store_lacks_stay_absent(void **state) {
    world *w = *state;
    assert_false(dur_store_has(w->store, "lane_open"));
    assert_false(dur_store_has(w->store, "commit_turns"));
    assert_true(dur_store_has(w->store, "read"));
    dur_instance_row row;
    assert_int_equal(dur_store_get_instance(w->store, w->arena, "i", &row, &w->err), DUR_EUNSUPPORTED);
    dur_provider_close(w->store);
    w->inner->methods.get_instance = told_get_instance;
    assert_int_equal(dur_observe(&w->store, &w->inner->base, &w->err), DUR_OK);
    assert_true(dur_store_has(w->store, "get_instance"));
    assert_int_equal(dur_store_get_instance(w->store, w->arena, "i", &row, &w->err), DUR_OK);
}

static void a_table_that_ends_early_is_not_read_beyond_its_end(void **state) {
    world *w = *state;
    dur_provider_close(w->store);
    w->inner->methods.get_instance = told_get_instance;
    w->inner->methods.size = offsetof(dur_provider_methods, lane_open);
    assert_int_equal(dur_observe(&w->store, &w->inner->base, &w->err), DUR_OK);
    assert_false(dur_store_has(w->store, "get_instance"));
}

static void it_looks_like_the_store_it_wraps(void **state) {
    world *w = *state;
    assert_string_equal(dur_provider_name(w->store), "told");
    assert_true(w->store->methods->own_clock);
    assert_int_equal(dur_store_now_ms(w->store), 42);
}

static void bad_arguments_are_refused(void **state) {
    world *w = *state;
    dur_provider *out = NULL;
    dur_store_metrics m = { .size = sizeof(m) };
    assert_int_equal(dur_observe(NULL, &w->inner->base, &w->err), DUR_EINVAL);
    assert_int_equal(dur_observe(&out, NULL, &w->err), DUR_EINVAL);
    assert_int_equal(dur_observe_snapshot(NULL, w->store, &w->err), DUR_EINVAL);
    assert_int_equal(dur_observe_snapshot(&m, NULL, NULL), DUR_EINVAL);
    assert_int_equal(dur_observe_snapshot(&m, &w->inner->base, &w->err), DUR_EINVAL);
    assert_non_null(strstr(w->err.message, "not one of dur_observe"));
    m.size = 0;
    assert_int_equal(dur_observe_snapshot(&m, w->store, &w->err), DUR_EINVAL);
}

static void an_error_object_is_not_needed(void **state) {
    world *w = *state;
    fail_with(w, DUR_EBUSY, true, "x", "locked");
    assert_int_equal(dur_store_cleanup_orphaned_sessions(w->store, 1, &(uint64_t){ 0 }, NULL), DUR_EBUSY);
    assert_non_null(strstr(w->log, "cleanup_orphaned_sessions failed: x: locked"));
}

/* ---- over the memory store, with lanes --------------------------------------------------------------------------- */

static void a_round_counts_as_each_operation_that_took_part(void **state) {
    (void)state;
    dur_error err = DUR_ERROR_INIT;
    dur_provider *memory = NULL, *store = NULL;
    assert_int_equal(dur_open(&memory, "memory:", &err), DUR_OK);
    assert_int_equal(dur_observe(&store, memory, &err), DUR_OK);
    dur_provider_close(memory); /* the decorator keeps it open */
    assert_string_equal(dur_provider_name(store), "memory");
    dur_arena *arena = dur_arena_new();

    dur_work_item start = {
        .kind = DUR_WORK_START_ORCHESTRATION, .instance = "i", .execution_id = 1, .orchestration = "Order", .input = "x"
    };
    dur_message_row message;
    assert_int_equal(dur_message_row_from_work(&message, arena, &start, &err), DUR_OK);
    bool existed = true;
    assert_int_equal(dur_store_enqueue_start(store, &message, DUR_EXISTS_FAIL, 0, &existed, &err), DUR_OK);

    dur_waker *waker = dur_waker_new();
    dur_lane *lane = NULL;
    assert_int_equal(dur_store_owner_register(store, &(dur_owner_options){ .owner = "o" }, &err), DUR_OK);
    assert_int_equal(dur_store_lane_open(store, &(dur_lane_options){ .owner = "o", .waker = waker }, &lane, &err),
                     DUR_OK);
    dur_round round = { .fetch = &(dur_fetch){ .owner = "o", .max = 4 },
                        .work = &(dur_work_fetch){ .owner = "o", .max = 4, .tags = { .mode = DUR_TAGS_ANY } } };
    assert_int_equal(dur_store_lane_round(lane, arena, &round, &err), DUR_OK);
    assert_int_equal(round.item_count, 1);
    assert_string_equal(round.items[0].instance, "i");

    dur_store_metrics m = { .size = sizeof(m) };
    assert_int_equal(dur_observe_snapshot(&m, store, &err), DUR_OK);
    assert_int_equal(op_of(&m, OP_ENQUEUE)->durations.count, 1);
    assert_int_equal(op_of(&m, OP_FETCH)->durations.count, 1);
    assert_int_equal(op_of(&m, OP_FETCH_WORK)->durations.count, 1);
    assert_int_equal(op_of(&m, OP_ACK_ORCHESTRATION)->durations.count, 0);

    dur_turn_commit turn = { .lock_token = round.items[0].lock_token,
                             .instance = "i",
                             .store_key = round.items[0].store_key,
                             .execution_id = 1,
                             .expected_last = 0,
                             .consume_listed = true,
                             .consumed = &round.items[0].messages[0].id,
                             .consumed_count = 1,
                             .owner = "o" };
    dur_turn_commit lost = { .lock_token = "stolen",
                             .instance = "i",
                             .execution_id = 1,
                             .expected_last = 0,
                             .owner = "o",
                             .consume_listed = true };
    dur_turn_commit turns[] = { turn, lost };
    dur_round second = { .turns = turns, .turn_count = 2 };
    assert_int_equal(dur_store_lane_round(lane, arena, &second, &err), DUR_OK);
    assert_int_equal(turns[0].error.code, DUR_OK);
    assert_int_not_equal(turns[1].error.code, DUR_OK);
    assert_int_equal(dur_observe_snapshot(&m, store, &err), DUR_OK);
    assert_int_equal(op_of(&m, OP_FETCH)->durations.count, 1);
    assert_int_equal(op_of(&m, OP_ACK_ORCHESTRATION)->durations.count, 1);
    assert_int_equal(m.ack_orchestration_retries, 0);

    dur_store_lane_close(lane);
    dur_watch *watch = NULL;
    assert_int_equal(dur_store_watch_open(store, "i", &watch, &err), DUR_OK);
    int waited = dur_store_watch_wait(watch, 1, &err);
    assert_true(waited == DUR_OK || waited == DUR_ETIMEOUT);
    dur_store_watch_close(watch);
    assert_int_equal(dur_store_owner_release(store, "o", &err), DUR_OK);
    dur_waker_free(waker);
    dur_arena_free(arena);
    dur_provider_close(store);
}

int main(void) {
#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_WORLD(each_operation_moves_its_own_histogram),
        WITH_WORLD(enqueueing_for_workers_counts_as_enqueue),
        WITH_WORLD(failures_are_counted_by_operation_and_type),
        WITH_WORLD(a_commit_that_comes_again_after_a_retryable_failure_is_a_retry),
        WITH_WORLD(a_commit_that_failed_for_good_is_not_waited_for),
        WITH_WORLD(every_turn_of_an_array_is_judged_alone),
        WITH_WORLD(success_is_a_debug_line_and_failure_an_error_line_with_the_instance),
        WITH_WORLD(methods_that_the_inner_store_lacks_stay_absent),
        WITH_WORLD(a_table_that_ends_early_is_not_read_beyond_its_end),
        WITH_WORLD(it_looks_like_the_store_it_wraps),
        WITH_WORLD(bad_arguments_are_refused),
        WITH_WORLD(an_error_object_is_not_needed),
        cmocka_unit_test(a_round_counts_as_each_operation_that_took_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
