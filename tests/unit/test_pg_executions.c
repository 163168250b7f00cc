/*
 * test_pg_executions.c: the execution that begins with its instance's row stands in it, on PostgreSQL (pg_usual.c). Who
 * asks for executions sees it like any other; what is not usual makes it a row of its own first.
 */
#include "pg_lane_rig.h"

/* The store's time is the test's: what a column says is known to the millisecond. */
typedef struct stage {
    rig r;
    dur_fake_world *fake;
} stage;

#define STEP_MS 10u

static dur_provider *store_at(pg_bench *p, dur_fake_world *fake) {
    char url[1100];
    dur_provider *store = NULL;
    snprintf(url, sizeof(url), "%s&clock=caller", p->url);
    ASSERT_OK(&p->b, dur_open_ex(&store, url, DUR_OPEN_OPTIONS(.world = dur_fake_world_get(fake)), &p->b.err));
    return store;
}

static stage stage_open(pg_bench *p) {
    stage s = { .fake = dur_fake_world_new(START_MS, 7) };
    s.r = rig_on(p, store_at(p, s.fake));
    return s;
}

static void stage_close(stage *s) {
    ASSERT_OK(&s->r.p->b, dur_store_check(s->r.store, &s->r.p->b.err));
    rig_close(&s->r);
    ASSERT_OK(&s->r.p->b, dur_store_owner_release(s->r.store, "o", &s->r.p->b.err));
    dur_provider_close(s->r.store);
    dur_fake_world_free(s->fake);
}

static void later(stage *s) {
    dur_fake_world_advance(s->fake, STEP_MS);
}

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static void fine(stage *s, dur_turn_commit *turn) {
    (void)run(&s->r, turn, 1, NULL);
    assert_int_equal(turn->fault, DUR_TURN_FINE);
}

/* Beside an end of work a round is not a usual one. */
static void fine_beside_work(stage *s, dur_turn_commit *turn) {
    bench *b = &s->r.p->b;
    dur_work_ack ack = { .lock_token = "nobody's" };
    dur_round round = { .turns = turn, .turn_count = 1, .acks = &ack, .ack_count = 1 };
    ASSERT_OK(b, dur_store_lane_round(s->r.lane, b->arena, &round, &b->err));
    assert_int_equal(turn->fault, DUR_TURN_FINE);
}

static dur_turn_commit turn_to(const dur_turn_commit *born, dur_event_row *event, uint64_t id) {
    *event = event_of(id);
    return next_turn(born->instance, born->lock_token, event);
}

static dur_turn_commit end_of(const dur_turn_commit *born, dur_event_row *event, uint64_t id, dur_status status) {
    dur_turn_commit turn = turn_to(born, event, id);
    turn.keep_lease = false;
    turn.metadata.status = status;
    turn.metadata.output = "what came of it";
    return turn;
}

static void goes_on(stage *s, const dur_turn_commit *born, uint64_t id) {
    dur_event_row event;
    dur_turn_commit turn = turn_to(born, &event, id);
    later(s);
    fine(s, &turn);
}

static void ends(stage *s, const dur_turn_commit *born, uint64_t id, dur_status status) {
    dur_event_row event;
    dur_turn_commit turn = end_of(born, &event, id, status);
    later(s);
    fine(s, &turn);
}

/* Born at START_MS and over a step later, with two events. */
static void over(stage *s, const char *instance, dur_status status) {
    dur_turn_commit born = parked(&s->r, instance);
    ends(s, &born, 2, status);
}

static void is_moved(stage *s, const dur_turn_commit *born, uint64_t id) {
    dur_event_row event;
    dur_turn_commit turn = turn_to(born, &event, id);
    later(s);
    fine_beside_work(s, &turn);
}

/* ---- what is seen ------------------------------------------------------------------------------------------------ */

static long apart(const stage *s) {
    return count(&s->r, "executions", "true");
}

static long in_rows(const stage *s) {
    return count(&s->r, "instances", "status IS NOT NULL");
}

static dur_execution_row *listed(stage *s, const char *instance, size_t expected) {
    bench *b = &s->r.p->b;
    dur_execution_row *rows;
    size_t found;
    ASSERT_OK(b, dur_store_list_executions(s->r.store, b->arena, instance, &rows, &found, &b->err));
    assert_int_equal(found, expected);
    return rows;
}

static void same_text(const char *found, const char *expected) {
    if (expected == NULL)
        assert_null(found);
    else
        assert_string_equal(found, expected);
}

static void same_execution(const dur_execution_row *found, const dur_execution_row *expected) {
    assert_int_equal(found->execution_id, expected->execution_id);
    assert_int_equal(found->status, expected->status);
    same_text(found->output, expected->output);
    assert_int_equal(found->started_at_ms, expected->started_at_ms);
    assert_int_equal(found->completed_at_ms, expected->completed_at_ms);
    assert_int_equal(found->event_count, expected->event_count);
}

static bool is_listed_as(stage *s, const char *instance, dur_status status) {
    bench *b = &s->r.p->b;
    dur_instance_query query = { .status = status, .id_prefix = instance };
    dur_instance_row *rows;
    size_t found;
    ASSERT_OK(b, dur_store_list_instances(s->r.store, b->arena, &query, &rows, &found, &b->err));
    return found == 1 && rows[0].status == status;
}

/* By all who tell of an instance. */
static void is_seen(stage *s, const char *instance, dur_status status, const char *output) {
    bench *b = &s->r.p->b;
    dur_instance_row row;
    ASSERT_OK(b, dur_store_get_instance(s->r.store, b->arena, instance, &row, &b->err));
    assert_int_equal(row.status, status);
    same_text(row.output, output);
    for (dur_status other = DUR_STATUS_RUNNING; other <= DUR_STATUS_CONTINUED_AS_NEW; other++)
        assert_int_equal(is_listed_as(s, instance, other), other == status);
}

static void are_counted(stage *s, uint64_t executions, uint64_t running, uint64_t completed, uint64_t failed) {
    bench *b = &s->r.p->b;
    dur_system_metrics all;
    ASSERT_OK(b, dur_store_get_system_metrics(s->r.store, &all, &b->err));
    assert_int_equal(all.total_executions, executions);
    assert_int_equal(all.running, running);
    assert_int_equal(all.completed, completed);
    assert_int_equal(all.failed, failed);
}

static const dur_execution_row running_from_start = {
    .execution_id = 1, .status = DUR_STATUS_RUNNING, .started_at_ms = START_MS, .event_count = 2
};
static const dur_execution_row over_a_step_later = { .execution_id = 1,
                                                     .status = DUR_STATUS_COMPLETED,
                                                     .output = "what came of it",
                                                     .started_at_ms = START_MS,
                                                     .completed_at_ms = START_MS + STEP_MS,
                                                     .event_count = 2 };

/* ---- in the row -------------------------------------------------------------------------------------------------- */

static void begins_in_the_row(void **state) {
    stage s = stage_open(*state);
    dur_turn_commit born = parked(&s.r, "x");
    goes_on(&s, &born, 2);
    assert_int_equal(apart(&s), 0);
    assert_int_equal(count(&s.r, "instances", "status = 1 AND output IS NULL AND updated_at > created_at"), 1);
    same_execution(listed(&s, "x", 1), &running_from_start);
    is_seen(&s, "x", DUR_STATUS_RUNNING, NULL);
    are_counted(&s, 1, 1, 0, 0);
    (void)listed(&s, "y", 0);
    stage_close(&s);
}

static void ends_in_the_row(void **state) {
    static const dur_status both[] = { DUR_STATUS_COMPLETED, DUR_STATUS_FAILED };
    stage s = stage_open(*state);
    for (size_t i = 0; i < 2; i++) {
        const char *id = i == 0 ? "x" : "y";
        dur_execution_row expected = over_a_step_later;
        expected.status = both[i];
        expected.started_at_ms += i * STEP_MS;
        expected.completed_at_ms += i * STEP_MS;
        over(&s, id, both[i]);
        assert_int_equal(apart(&s), 0);
        same_execution(listed(&s, id, 1), &expected);
        is_seen(&s, id, both[i], "what came of it");
        are_counted(&s, i + 1, 0, 1, i);
    }
    assert_int_equal(count(&s.r, "instances", "token IS NULL AND owner IS NULL AND status > 1"), 2);
    stage_close(&s);
}

static void tells_how_far_it_is_and_goes_on(void **state) {
    stage s = stage_open(*state);
    dur_turn_commit born = parked(&s.r, "x");
    dur_event_row event;
    dur_turn_commit turn = turn_to(&born, &event, 2);
    event.kind = DUR_EVENT_CUSTOM_STATUS_UPDATED;
    event.value = "half";
    later(&s);
    fine(&s, &turn);
    assert_int_equal(count(&s.r, "instances", "status = 1 AND custom_status = 'half'"), 1);
    assert_int_equal(apart(&s), 0);
    same_execution(listed(&s, "x", 1), &running_from_start);
    stage_close(&s);
}

/* ---- moved ------------------------------------------------------------------------------------------------------- */

/* And where it is then, there it ends. */
static void is_moved_by_what_is_not_usual(void **state) {
    stage s = stage_open(*state);
    dur_turn_commit born = parked(&s.r, "x");
    is_moved(&s, &born, 2);
    assert_int_equal(count(&s.r, "executions", "execution_id = 1 AND status = 1 AND output IS NULL"), 1);
    assert_int_equal(in_rows(&s), 0);
    same_execution(listed(&s, "x", 1), &running_from_start);
    is_seen(&s, "x", DUR_STATUS_RUNNING, NULL);
    are_counted(&s, 1, 1, 0, 0);
    dur_execution_row expected = over_a_step_later;
    expected.completed_at_ms += STEP_MS;
    expected.event_count = 3;
    ends(&s, &born, 3, DUR_STATUS_COMPLETED);
    assert_int_equal(apart(&s), 1);
    assert_int_equal(in_rows(&s), 0);
    assert_int_equal(count(&s.r, "instances", "output IS NOT NULL"), 0);
    same_execution(listed(&s, "x", 1), &expected);
    is_seen(&s, "x", DUR_STATUS_COMPLETED, "what came of it");
    are_counted(&s, 1, 0, 1, 0);
    stage_close(&s);
}

static void is_moved_by_a_message_to_another(void **state) {
    stage s = stage_open(*state);
    dur_turn_commit born = parked(&s.r, "x"), other = parked(&s.r, "y");
    dur_event_row event;
    dur_turn_commit turn = turn_to(&born, &event, 2);
    sends(&s.r.p->b, &turn, message_of(DUR_WORK_EXTERNAL_RAISED, "y"));
    later(&s);
    fine(&s, &turn);
    assert_int_equal(count(&s.r, "executions", "instance_id = 'x'"), 1);
    assert_int_equal(count(&s.r, "instances", "instance_id = 'x' AND status IS NULL"), 1);
    same_execution(listed(&s, "x", 1), &running_from_start);
    assert_int_equal(count(&s.r, "executions", "instance_id = 'y'"), 0); /* to it nothing has been done */
    assert_int_equal(count(&s.r, "instances", "instance_id = 'y' AND status = 1"), 1);
    goes_on(&s, &other, 2);
    same_execution(listed(&s, "y", 1), &running_from_start);
    are_counted(&s, 2, 2, 0, 0);
    stage_close(&s);
}

/* A round that ends some of each kind. */
static void ends_where_it_stands(void **state) {
    stage s = stage_open(*state);
    dur_turn_commit moved = parked(&s.r, "a"), in_row = parked(&s.r, "b"), stays = parked(&s.r, "c");
    is_moved(&s, &moved, 2);
    dur_event_row events[3];
    dur_turn_commit turns[3] = { end_of(&moved, &events[0], 3, DUR_STATUS_FAILED),
                                 end_of(&in_row, &events[1], 2, DUR_STATUS_COMPLETED), turn_to(&stays, &events[2], 2) };
    (void)run(&s.r, turns, 3, NULL);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(turns[i].fault, DUR_TURN_FINE);
    assert_int_equal(apart(&s), 1);
    assert_int_equal(count(&s.r, "executions", "instance_id = 'a' AND status = 3 AND output IS NOT NULL"), 1);
    assert_int_equal(count(&s.r, "instances", "instance_id = 'a' AND status IS NULL AND output IS NULL"), 1);
    assert_int_equal(count(&s.r, "instances", "instance_id = 'b' AND status = 2 AND output IS NOT NULL"), 1);
    assert_int_equal(count(&s.r, "instances", "instance_id = 'c' AND status = 1 AND output IS NULL"), 1);
    same_execution(listed(&s, "b", 1), &over_a_step_later);
    same_execution(listed(&s, "c", 1), &running_from_start);
    are_counted(&s, 3, 1, 1, 1);
    stage_close(&s);
}

static void continues_as_new(stage *s, const char *instance) {
    dur_turn_commit born = parked(&s->r, instance);
    dur_event_row event;
    dur_turn_commit turn = end_of(&born, &event, 2, DUR_STATUS_CONTINUED_AS_NEW);
    sends(&s->r.p->b, &turn, message_of(DUR_WORK_CONTINUE_AS_NEW, instance));
    later(s);
    fine(s, &turn);
}

static void next_execution(stage *s, dur_status status) {
    dur_round round = run(&s->r, NULL, 0, &fresh);
    assert_int_equal(round.item_count, 1);
    dur_turn_commit turn = first_turn(&round.items[0]);
    turn.execution_id = 2;
    turn.metadata.status = status;
    turn.keep_lease = status == DUR_STATUS_NONE;
    later(s);
    fine(s, &turn);
}

static void is_moved_when_it_continues_as_new(void **state) {
    static const dur_execution_row second = { .execution_id = 2,
                                              .status = DUR_STATUS_COMPLETED,
                                              .started_at_ms = START_MS + 2u * STEP_MS,
                                              .completed_at_ms = START_MS + 2u * STEP_MS,
                                              .event_count = 1 };
    stage s = stage_open(*state);
    dur_execution_row first = over_a_step_later;
    first.status = DUR_STATUS_CONTINUED_AS_NEW;
    continues_as_new(&s, "x");
    assert_int_equal(apart(&s), 1);
    assert_int_equal(in_rows(&s), 0);
    same_execution(listed(&s, "x", 1), &first);
    is_seen(&s, "x", DUR_STATUS_CONTINUED_AS_NEW, "what came of it");
    are_counted(&s, 1, 1, 0, 0);
    next_execution(&s, DUR_STATUS_COMPLETED);
    assert_int_equal(apart(&s), 2);
    assert_int_equal(in_rows(&s), 0);
    dur_execution_row *rows = listed(&s, "x", 2);
    same_execution(&rows[0], &first);
    same_execution(&rows[1], &second);
    is_seen(&s, "x", DUR_STATUS_COMPLETED, NULL);
    are_counted(&s, 2, 0, 1, 0);
    stage_close(&s);
}

/* Who knows only the token of the work that stands there. */
static void is_moved_with_its_step(void **state) {
    stage s = stage_open(*state);
    bench *b = &s.r.p->b;
    dur_turn_commit born = parked(&s.r, "x");
    dur_event_row event;
    dur_turn_commit turn = turn_to(&born, &event, 2);
    dur_turn_work work = { .message = activity_of(b, "x", 2, NULL, NULL), .lock_token = "w" };
    turn.worker_items = &work;
    turn.worker_item_count = 1;
    later(&s);
    fine(&s, &turn);
    assert_int_equal(count(&s.r, "instances", "step_token = 'w' AND status = 1"), 1);
    ASSERT_OK(b, dur_store_renew_work_item_lock(s.r.store, "w", 60000, &b->err));
    assert_int_equal(count(&s.r, "worker", "token = 'w'"), 1);
    assert_int_equal(count(&s.r, "instances", "step_token IS NULL AND status IS NULL"), 1);
    same_execution(listed(&s, "x", 1), &running_from_start);
    stage_close(&s);
}

static void is_moved_by_events_from_outside(void **state) {
    stage s = stage_open(*state);
    bench *b = &s.r.p->b;
    dur_event_row event = event_of(2), third = event_of(3), first = event_of(1);
    dur_turn_commit born = parked(&s.r, "x");
    later(&s);
    ASSERT_OK(b, dur_store_append(s.r.store, "x", 1, &event, 1, &b->err));
    assert_int_equal(apart(&s), 1);
    assert_int_equal(in_rows(&s), 0);
    same_execution(listed(&s, "x", 1), &running_from_start);
    ends(&s, &born, 3, DUR_STATUS_FAILED);
    assert_int_equal(count(&s.r, "executions", "status = 3"), apart(&s));
    is_seen(&s, "x", DUR_STATUS_FAILED, "what came of it");

    dur_execution_row expected = over_a_step_later; /* what is over stays so, with its times */
    expected.started_at_ms += 2u * STEP_MS;
    expected.completed_at_ms += 2u * STEP_MS;
    expected.event_count = 3;
    over(&s, "y", DUR_STATUS_COMPLETED);
    later(&s);
    ASSERT_OK(b, dur_store_append(s.r.store, "y", 1, &third, 1, &b->err));
    assert_int_equal(count(&s.r, "executions", "instance_id = 'y'"), 1);
    assert_int_equal(count(&s.r, "instances", "status IS NULL AND output IS NULL"), 2);
    same_execution(listed(&s, "y", 1), &expected);
    is_seen(&s, "y", DUR_STATUS_COMPLETED, "what came of it");
    ASSERT_OK(b, dur_store_append(s.r.store, "y", 2, &first, 1, &b->err)); /* of a second one */
    same_execution(listed(&s, "y", 2), &expected);
    is_seen(&s, "y", DUR_STATUS_RUNNING, NULL);
    stage_close(&s);
}

/* ---- moved while it goes on -------------------------------------------------------------------------------------- */

typedef struct mover {
    stage *s;
    dur_turn_commit *turn; /* NULL: it has the work's token */
    int how;
    pthread_t thread;
} mover;

static void *turns_or_moves(void *arg) {
    mover *m = arg;
    rig *r = &m->s->r;
    dur_worker_claim claim = { .ref = { .instance = "x" }, .lock_token = "w" };
    dur_work_ack ack = { .ref = { .instance = "x" }, .lock_token = "w" };
    if (m->turn != NULL)
        (void)run(r, m->turn, 1, NULL);
    else if (m->how == 0)
        (void)dur_store_renew_work_item_lock(r->store, "w", 60000, NULL);
    else if (m->how == 1)
        (void)dur_store_return_works(r->store, &claim, 1, NULL);
    else
        (void)dur_store_ack_works(r->store, &ack, 1, NULL);
    return NULL;
}

static void begin_and_wait(mover *m, long waiting) {
    const rig *r = &m->s->r;
    const char *sql = dur_arena_format(r->p->b.arena,
                                       "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'durite_%s' AND"
                                       " wait_event_type = 'Lock'",
                                       r->p->schema);
    assert_int_equal(pthread_create(&m->thread, NULL, turns_or_moves, m), 0);
    while (pg_number(r->p->db, sql) < waiting)
        pg_pause_ms(1);
}

/* The turn behind its step comes first; the one who moves has waited for it. */
static void turn_before_move(stage *s, dur_turn_commit *turn, int how) {
    mover first = { .s = s, .turn = turn }, second = { .s = s, .how = how };
    PGconn *other = PQconnectdb(pg_server());
    pg_do(other, dur_arena_format(s->r.p->b.arena, "BEGIN; SELECT 1 FROM %s.dur_instances FOR UPDATE", s->r.p->schema));
    begin_and_wait(&first, 1);
    begin_and_wait(&second, 2);
    pg_do(other, "COMMIT");
    PQfinish(other);
    pthread_join(first.thread, NULL);
    pthread_join(second.thread, NULL);
    assert_int_equal(turn->fault, DUR_TURN_FINE);
}

static void is_moved_as_it_is_by_who_has_waited(void **state) {
    stage s = stage_open(*state);
    bench *b = &s.r.p->b;
    for (int i = 0; i < 6; i++) {
        const char *id = "x";
        dur_delete_result gone;
        dur_event_row events[2];
        dur_turn_commit born = parked(&s.r, "x"), turn = turn_to(&born, &events[0], 2);
        dur_turn_work work = { .message = activity_of(b, "x", 2, NULL, NULL), .lock_token = "w" };
        dur_turn_work next = { .message = activity_of(b, "x", 3, NULL, NULL), .lock_token = "v" };
        turn.worker_items = &work;
        turn.worker_item_count = 1;
        fine(&s, &turn);
        dur_worker_claim done = { .ref = { .instance = "x", .activity_id = 2, .row_id = work.row_id },
                                  .lock_token = "w" };
        bool is_over = i < 3;
        turn = is_over ? end_of(&born, &events[1], 3, DUR_STATUS_COMPLETED) : turn_to(&born, &events[1], 3);
        turn.worker_consumed = &done;
        turn.worker_consumed_count = 1;
        turn.worker_items = is_over ? NULL : &next;
        turn.worker_item_count = is_over ? 0 : 1;
        turn_before_move(&s, &turn, i % 3);
        assert_int_equal(count(&s.r, "worker", "activity_id = 2"), 0); /* it is done */
        assert_int_equal(count(&s.r, "worker", "token = 'v'") + count(&s.r, "instances", "step_token = 'v'"), !is_over);
        is_seen(&s, "x", is_over ? DUR_STATUS_COMPLETED : DUR_STATUS_RUNNING, is_over ? "what came of it" : NULL);
        ASSERT_OK(b, dur_store_delete_instances(s.r.store, &id, 1, true, &gone, &b->err));
        assert_int_equal(gone.executions, 1);
    }
    stage_close(&s);
}

/* ---- deleted and pruned ------------------------------------------------------------------------------------------ */

static void is_counted_when_it_is_deleted(void **state) {
    stage s = stage_open(*state);
    bench *b = &s.r.p->b;
    const char *x = "x", *y = "y";
    dur_delete_result gone;
    over(&s, "x", DUR_STATUS_FAILED);
    dur_turn_commit born = parked(&s.r, "y");
    goes_on(&s, &born, 2);
    assert_int_equal(dur_store_delete_instances(s.r.store, &y, 1, false, &gone, &b->err), DUR_ERUNNING);
    ASSERT_OK(b, dur_store_delete_instances(s.r.store, &x, 1, false, &gone, &b->err));
    assert_int_equal(gone.instances, 1);
    assert_int_equal(gone.executions, 1);
    assert_int_equal(gone.events, 2);
    (void)listed(&s, "x", 0);
    are_counted(&s, 1, 1, 0, 0);
    ASSERT_OK(b, dur_store_delete_instances(s.r.store, &y, 1, true, &gone, &b->err));
    assert_int_equal(gone.executions, 1);
    assert_int_equal(apart(&s), 0);
    are_counted(&s, 0, 0, 0, 0);
    stage_close(&s);
}

static uint64_t deleted_before(stage *s, uint64_t ms) {
    bench *b = &s->r.p->b;
    dur_delete_result gone;
    dur_bulk_filter filter = { .completed_before_ms = ms };
    ASSERT_OK(b, dur_store_delete_instances_bulk(s->r.store, &filter, &gone, &b->err));
    assert_int_equal(gone.executions, gone.instances);
    return gone.instances;
}

static void is_deleted_by_its_end(void **state) {
    stage s = stage_open(*state);
    over(&s, "x", DUR_STATUS_COMPLETED);
    (void)parked(&s.r, "y");
    over(&s, "z", DUR_STATUS_FAILED);
    assert_int_equal(deleted_before(&s, START_MS + STEP_MS), 0);
    assert_int_equal(deleted_before(&s, START_MS + STEP_MS + 1), 1);
    (void)listed(&s, "x", 0);
    assert_int_equal(deleted_before(&s, 0), 1); /* whenever it was */
    (void)listed(&s, "z", 0);
    is_seen(&s, "y", DUR_STATUS_RUNNING, NULL); /* it is not over */
    stage_close(&s);
}

static dur_prune_result pruned(stage *s, const char *instance, uint64_t completed_before_ms) {
    bench *b = &s->r.p->b;
    dur_prune_options options = { .has_keep_last = true, .keep_last = 1, .completed_before_ms = completed_before_ms };
    dur_bulk_filter filter = { .completed_before_ms = completed_before_ms };
    dur_prune_result gone;
    ASSERT_OK(b, instance != NULL ? dur_store_prune_executions(s->r.store, instance, &options, &gone, &b->err)
                                  : dur_store_prune_executions_bulk(s->r.store, &filter, &options, &gone, &b->err));
    return gone;
}

static void is_left_when_others_are_pruned(void **state) {
    stage s = stage_open(*state);
    over(&s, "x", DUR_STATUS_COMPLETED);
    for (int i = 0; i < 2; i++) {
        dur_prune_result gone = pruned(&s, i == 0 ? "x" : NULL, i == 0 ? 0 : START_MS + STEP_MS + 1);
        assert_int_equal(gone.instances_processed, 1);
        assert_int_equal(gone.executions_deleted, 0);
        assert_int_equal(gone.events_deleted, 0);
    }
    assert_int_equal(pruned(&s, NULL, START_MS + STEP_MS).instances_processed, 0); /* it has not ended by then */
    same_execution(listed(&s, "x", 1), &over_a_step_later);
    continues_as_new(&s, "y"); /* one that has a second goes */
    next_execution(&s, DUR_STATUS_NONE);
    dur_prune_result gone = pruned(&s, "y", 0);
    assert_int_equal(gone.executions_deleted, 1);
    assert_int_equal(gone.events_deleted, 2);
    assert_int_equal(listed(&s, "y", 1)->execution_id, 2);
    stage_close(&s);
}

/* ---- messages and starts ----------------------------------------------------------------------------------------- */

typedef struct answers {
    int queued, raised, started, replaced;
} answers;

static int start_with(stage *s, const char *instance, dur_exists_policy policy) {
    bench *b = &s->r.p->b;
    dur_message start = start_of(b, instance);
    bool existed;
    return dur_store_enqueue_start(s->r.store, &start, policy, 0, &existed, &b->err);
}

static answers asked(stage *s, const char *instance) {
    bench *b = &s->r.p->b;
    dur_message queued = queue_of(instance, "q", NULL), raised = message_of(DUR_WORK_EXTERNAL_RAISED, instance);
    answers out = { .queued = dur_store_enqueue_existing(s->r.store, &queued, 0, &b->err) };
    if (out.queued == DUR_ESTATE) assert_non_null(strstr(b->err.message, instance));
    out.raised = dur_store_enqueue_existing(s->r.store, &raised, 0, &b->err);
    dur_store_lane_close(s->r.lane); /* it would be asked for the start first */
    s->r.lane = NULL;
    out.started = start_with(s, instance, DUR_EXISTS_FAIL);
    out.replaced = start_with(s, instance, DUR_EXISTS_REPLACE_FINISHED);
    dur_lane_options options = { .owner = "o", .waker = s->r.waker };
    ASSERT_OK(b, dur_store_lane_open(s->r.store, &options, &s->r.lane, &b->err));
    (void)run(&s->r, NULL, 0, &fresh);
    return out;
}

/* What stands in the row is answered for as what does not. */
static void is_asked_like_any_other(void **state) {
    static const dur_status all[] = { DUR_STATUS_COMPLETED, DUR_STATUS_FAILED, DUR_STATUS_NONE };
    stage s = stage_open(*state);
    for (size_t i = 0; i < 6; i++) {
        char id[2] = { (char)('a' + i), '\0' };
        bool moves = i % 2 == 1;
        dur_status status = all[i / 2];
        long before = apart(&s);
        dur_turn_commit born = parked(&s.r, dur_arena_strdup(s.r.p->b.arena, id));
        if (moves) is_moved(&s, &born, 2);
        if (status != DUR_STATUS_NONE) ends(&s, &born, moves ? 3 : 2, status);
        assert_int_equal(apart(&s), before + moves);
        answers found = asked(&s, born.instance);
        bool running = status == DUR_STATUS_NONE;
        assert_int_equal(found.queued, running ? DUR_OK : DUR_ESTATE);
        assert_int_equal(found.raised, DUR_OK);
        assert_int_equal(found.started, DUR_EEXISTS);
        assert_int_equal(found.replaced, running ? DUR_EEXISTS : DUR_OK);
        (void)listed(&s, born.instance, running ? 1 : 0); /* of its successor nothing has begun */
    }
    stage_close(&s);
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

static void is_found_where_it_is_twice(void **state) {
    stage s = stage_open(*state);
    bench *b = &s.r.p->b;
    over(&s, "x", DUR_STATUS_COMPLETED);
    (void)parked(&s.r, "y");
    ASSERT_OK(b, dur_store_check(s.r.store, &b->err));
    pg_do(s.r.p->db, dur_arena_format(b->arena, "INSERT INTO %s.dur_executions VALUES ('y', 1)", s.r.p->schema));
    assert_int_equal(dur_store_check(s.r.store, &b->err), DUR_ECORRUPT);
    assert_string_equal(b->err.message, "dur_executions: y: execution 1 is there twice");
    pg_do(s.r.p->db, dur_arena_format(b->arena, "DELETE FROM %s.dur_executions", s.r.p->schema));
    stage_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(begins_in_the_row),
        PG_TEST(ends_in_the_row),
        PG_TEST(tells_how_far_it_is_and_goes_on),
        PG_TEST(is_moved_by_what_is_not_usual),
        PG_TEST(is_moved_by_a_message_to_another),
        PG_TEST(ends_where_it_stands),
        PG_TEST(is_moved_when_it_continues_as_new),
        PG_TEST(is_moved_with_its_step),
        PG_TEST(is_moved_by_events_from_outside),
        PG_TEST(is_moved_as_it_is_by_who_has_waited),
        PG_TEST(is_counted_when_it_is_deleted),
        PG_TEST(is_deleted_by_its_end),
        PG_TEST(is_left_when_others_are_pruned),
        PG_TEST(is_asked_like_any_other),
        PG_TEST(is_found_where_it_is_twice),
    };
    PG_MAIN(tests);
}
