/*
 * test_pg_executions.c: the current execution stands in its instance's row, on PostgreSQL, and past ones in a table of
 * their own.  Who asks for executions sees all of them alike.
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
    assert_int_equal(count(&s.r, "instances", "status = 1 AND output IS NULL AND started_at = created_at"), 1);
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

/* ---- past -------------------------------------------------------------------------------------------------------- */

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

static void is_past_when_the_next_one_begins(void **state) {
    static const dur_execution_row second = { .execution_id = 2,
                                              .status = DUR_STATUS_COMPLETED,
                                              .started_at_ms = START_MS + 2u * STEP_MS,
                                              .completed_at_ms = START_MS + 2u * STEP_MS,
                                              .event_count = 1 };
    stage s = stage_open(*state);
    dur_execution_row first = over_a_step_later;
    first.status = DUR_STATUS_CONTINUED_AS_NEW;
    continues_as_new(&s, "x");
    assert_int_equal(apart(&s), 0);
    assert_int_equal(in_rows(&s), 1);
    same_execution(listed(&s, "x", 1), &first);
    is_seen(&s, "x", DUR_STATUS_CONTINUED_AS_NEW, "what came of it");
    are_counted(&s, 1, 1, 0, 0);
    next_execution(&s, DUR_STATUS_COMPLETED);
    assert_int_equal(apart(&s), 1);
    assert_int_equal(in_rows(&s), 1);
    dur_execution_row *rows = listed(&s, "x", 2);
    same_execution(&rows[0], &first);
    same_execution(&rows[1], &second);
    is_seen(&s, "x", DUR_STATUS_COMPLETED, NULL);
    are_counted(&s, 2, 0, 1, 0);
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
    dur_message_row start = start_of(b, instance);
    bool existed;
    return dur_store_enqueue_start(s->r.store, &start, policy, 0, &existed, &b->err);
}

static answers asked(stage *s, const char *instance) {
    bench *b = &s->r.p->b;
    dur_message_row queued = queue_of(instance, "q", NULL), raised = message_of(DUR_WORK_EXTERNAL_RAISED, instance);
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

static void is_asked_like_any_other(void **state) {
    static const dur_status all[] = { DUR_STATUS_COMPLETED, DUR_STATUS_FAILED, DUR_STATUS_NONE };
    stage s = stage_open(*state);
    for (size_t i = 0; i < 3; i++) {
        char id[2] = { (char)('a' + i), '\0' };
        dur_status status = all[i];
        dur_turn_commit born = parked(&s.r, dur_arena_strdup(s.r.p->b.arena, id));
        if (status != DUR_STATUS_NONE) ends(&s, &born, 2, status);
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
    assert_string_equal(b->err.message, "dur_executions: y: execution 1 is not past");
    pg_do(s.r.p->db, dur_arena_format(b->arena, "DELETE FROM %s.dur_executions", s.r.p->schema));
    stage_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(begins_in_the_row),
        PG_TEST(ends_in_the_row),
        PG_TEST(tells_how_far_it_is_and_goes_on),
        PG_TEST(is_past_when_the_next_one_begins),
        PG_TEST(is_counted_when_it_is_deleted),
        PG_TEST(is_deleted_by_its_end),
        PG_TEST(is_left_when_others_are_pruned),
        PG_TEST(is_asked_like_any_other),
        PG_TEST(is_found_where_it_is_twice),
    };
    PG_MAIN(tests);
}
