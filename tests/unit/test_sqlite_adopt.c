/*
 * test_sqlite_adopt.c: starts that a lane's round acquires as they come.  Whoever looks at the rows or at the item
 * cannot tell them from starts that were written first and fetched later.
 *
 * Requests are put into the inbox by hand, so that they are there when the round begins.
 */
#include "sqlite_test.h"

typedef struct start_op {
    dur__sq_op op;
    dur__cond answered;
    dur_message message;
    dur_exists_policy policy;
    bool existed;
    dur__sq_delete_list deleted;
} start_op;

static int start_run(dur__sq_op *op, dur__sq_txn *txn) {
    start_op *self = (start_op *)(void *)op;
    return dur__sq_start(txn, &self->message, self->policy, 0, &self->existed, &self->deleted, &op->err);
}

static void put(fixture *f, dur__sq_op *op, dur__cond *answered) {
    dur__cond_init(answered);
    op->answered = answered;
    op->starts = true;
    dur__list_push(&file_of(f)->inbox, &op->link);
}

static void put_start(fixture *f, start_op *self, const char *instance) {
    *self = (start_op){ .op = { .run = start_run }, .message = start_of(f, instance), .policy = DUR_EXISTS_FAIL };
    put(f, &self->op, &self->answered);
}

static void answered(dur__sq_op *op, dur__cond *cond) {
    assert_true(op->finished);
    dur__list_unlink(&op->link);
    dur__cond_destroy(cond);
}

typedef struct looking {
    dur_waker *waker;
    dur_lane *lane;
    dur_fetch fetch;
    dur_round round;
} looking;

static void look(fixture *f, looking *l) {
    l->round = (dur_round){ .fetch = &l->fetch };
    OK(f, dur_store_lane_round(l->lane, f->arena, &l->round, &f->err));
}

/* A lane that has looked and found nothing: from then on starts are acquired as they come. */
static looking begin(fixture *f, size_t max) {
    looking l = { .waker = dur_waker_new() };
    l.lane = lane_make(f, "o1", l.waker);
    l.fetch = (dur_fetch){ .owner = "o1", .max = max, .kind = DUR_FETCH_FRESH, .queue_messages_max = 8 };
    look(f, &l);
    assert_false(file_of(f)->ready_maybe);
    return l;
}

static void end(looking *l) {
    dur_store_lane_close(l->lane);
    dur_waker_free(l->waker);
}

/* What the rows of an instance say, in one line. */
static void rows_of(fixture *f, const char *instance, char out[400]) {
    sqlite3_stmt *row = NULL;
    int code = sqlite3_prepare_v2(
        file_of(f)->writer.db,
        "SELECT i.name, i.execution, i.status, i.owner, i.locked_until, i.acquisitions, i.ready_at, i.not_before, "
        "i.token = q.token, q.due, q.ord = q.at, q.kind, q.qname, q.attempts, q.execution, q.activity, q.json "
        "FROM dur_instance i JOIN dur_queue q USING(key) WHERE i.id=?1",
        -1, &row, NULL);
    assert_int_equal(code, SQLITE_OK);
    sqlite3_bind_text(row, 1, instance, -1, SQLITE_STATIC);
    assert_int_equal(sqlite3_step(row), SQLITE_ROW);
    size_t at = 0;
    for (int i = 0; i < 16; i++) {
        const char *text = (const char *)sqlite3_column_text(row, i);
        at += (size_t)snprintf(out + at, 400 - at, "%s|", text != NULL ? text : "-");
    }
    sqlite3_finalize(row);
}

static void assert_same_item(const dur_orchestration_item *a, const dur_orchestration_item *b) {
    assert_string_equal(a->orchestration_name, b->orchestration_name);
    assert_string_equal(a->version, b->version);
    assert_int_equal(a->acquisitions, b->acquisitions);
    assert_int_equal(a->attempt_count, b->attempt_count);
    assert_int_equal(a->execution_id, b->execution_id);
    assert_int_equal(a->last_event_id, b->last_event_id);
    assert_int_equal(a->history_count, b->history_count);
    assert_int_equal(a->kv_count, b->kv_count);
    assert_int_equal(a->more_messages, b->more_messages);
    assert_int_equal(a->message_count, 1);
    assert_int_equal(b->message_count, 1);
    assert_int_equal(a->messages[0].attempt_count, b->messages[0].attempt_count);
    assert_null(a->messages[0].queue);
    assert_int_equal(a->messages[0].json.size, b->messages[0].json.size);
    assert_true(a->messages[0].id != b->messages[0].id);
}

static int writes;
static int count_write(unsigned what, void *data, void *statement, void *text) {
    (void)what;
    (void)data;
    (void)text;
    writes += !sqlite3_stmt_readonly(statement) && strstr(sqlite3_sql(statement), "dur_") != NULL;
    return 0;
}

static void adopted_as_if_fetched(void **state) {
    fixture *f = *state;
    looking l = begin(f, 4);
    start_op one;
    char adopted[400], fetched[400];
    put_start(f, &one, "a");
    sqlite3_trace_v2(file_of(f)->writer.db, SQLITE_TRACE_STMT, count_write, NULL);
    writes = 0;
    look(f, &l);
    assert_int_equal(writes, 2); /* the instance and its start */
    sqlite3_trace_v2(file_of(f)->writer.db, 0, NULL, NULL);
    answered(&one.op, &one.answered);
    assert_int_equal(l.round.item_count, 1);
    dur_orchestration_item first = l.round.items[0];
    assert_string_equal(first.instance, "a");
    rows_of(f, "a", adopted);

    dur_message start = start_of(f, "b");
    bool existed;
    file_of(f)->ready_maybe = true; /* somebody waits: no hurry */
    start_op two;
    put_start(f, &two, "b");
    sqlite3_trace_v2(file_of(f)->writer.db, SQLITE_TRACE_STMT, count_write, NULL);
    writes = 0;
    look(f, &l);
    assert_int_equal(writes, 4); /* it waits its turn: written, found, and both rows locked */
    sqlite3_trace_v2(file_of(f)->writer.db, 0, NULL, NULL);
    answered(&two.op, &two.answered);
    assert_int_equal(dur_store_enqueue_start(f->store, &start, DUR_EXISTS_FAIL, 0, &existed, &f->err), DUR_EEXISTS);
    assert_int_equal(l.round.item_count, 1);
    rows_of(f, "b", fetched);
    assert_string_equal(adopted, fetched);
    assert_same_item(&first, &l.round.items[0]);

    parked p = { .key = first.store_key };
    snprintf(p.token, sizeof p.token, "%s", first.lock_token);
    dur_event_row event = { .event_id = 1, .json = text_of("{}") };
    dur_turn_commit turn = turn_of("a", &p, &event, 1);
    uint64_t consumed = first.messages[0].id;
    turn.consumed = &consumed;
    turn.consumed_count = 1;
    turn.metadata = (dur_execution_metadata){ .orchestration_name = "Test", .orchestration_version = "1.0.0" };
    dur_round commit = { .turns = &turn, .turn_count = 1 };
    OK(f, dur_store_lane_round(l.lane, f->arena, &commit, &f->err));
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_true(turn.lease_kept);
    end(&l);
}

static void only_as_many_as_there_is_room_for(void **state) {
    fixture *f = *state;
    looking l = begin(f, 2);
    start_op all[4];
    put_start(f, &all[0], "a");
    put_start(f, &all[1], "a"); /* twice */
    put_start(f, &all[2], "b");
    put_start(f, &all[3], "c");
    look(f, &l);
    for (size_t i = 0; i < 4; i++) {
        answered(&all[i].op, &all[i].answered);
        assert_int_equal(all[i].op.err.code, i == 1 ? DUR_EEXISTS : DUR_OK);
    }
    assert_int_equal(l.round.item_count, 2);
    assert_true(l.round.more);
    assert_string_equal(l.round.items[0].instance, "a");
    assert_string_equal(l.round.items[1].instance, "b");
    look(f, &l);
    assert_int_equal(l.round.item_count, 1);
    assert_string_equal(l.round.items[0].instance, "c");
    end(&l);
}

static void not_by_whoever_looks_for_suspects(void **state) {
    fixture *f = *state;
    looking l = begin(f, 4);
    start_op one;
    l.fetch.kind = DUR_FETCH_SUSPECT;
    put_start(f, &one, "a");
    look(f, &l);
    answered(&one.op, &one.answered);
    assert_int_equal(l.round.item_count, 0);
    l.fetch.kind = DUR_FETCH_FRESH;
    look(f, &l);
    assert_int_equal(l.round.item_count, 1);
    end(&l);
}

/* ---- the look itself fails ---- */

static sqlite3_stmt *real, *broken;

static int break_run(dur__sq_op *op, dur__sq_txn *txn) {
    (void)op;
    dur__sq_ready(txn->file); /* it will look, and fail before it has written anything */
    txn->conn->stmts[DUR__SQ_INSTANCE_CANDIDATES] = broken;
    return DUR_OK;
}

static void what_was_adopted_is_nobodys_when_the_look_fails(void **state) {
    fixture *f = *state;
    looking l = begin(f, 4);
    start_op one;
    dur__sq_op breaks = { .run = break_run };
    dur__cond cond;
    real = file_of(f)->writer.stmts[DUR__SQ_INSTANCE_CANDIDATES];
    assert_non_null(real);
    assert_int_equal(
        sqlite3_prepare_v2(file_of(f)->writer.db, "SELECT abs(-9223372036854775807 - 1)", -1, &broken, NULL),
        SQLITE_OK);
    put_start(f, &one, "a");
    put(f, &breaks, &cond);
    look(f, &l);
    answered(&one.op, &one.answered);
    answered(&breaks, &cond);
    file_of(f)->writer.stmts[DUR__SQ_INSTANCE_CANDIDATES] = real;
    sqlite3_finalize(broken);
    assert_int_equal(one.op.err.code, DUR_OK); /* started all the same */
    assert_int_equal(l.round.item_count, 0);
    look(f, &l);
    assert_int_equal(l.round.item_count, 1);
    assert_string_equal(l.round.items[0].instance, "a");
    assert_int_equal(l.round.items[0].attempt_count, 1);
    end(&l);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(adopted_as_if_fetched),
        TEST(only_as_many_as_there_is_room_for),
        TEST(not_by_whoever_looks_for_suspects),
        TEST(what_was_adopted_is_nobodys_when_the_look_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
