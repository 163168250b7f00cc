/*
 * test_sqlite_unborn.c: starts that their first turn writes.  Whoever looks at the rows cannot tell such an instance
 * from one that was written, fetched and then had its first turn; and a start whose turn is not written is not lost.
 *
 * Starts are called by threads of their own while the test has the lead, so that nobody writes them before the lane has
 * taken them.
 */
#include "sqlite_test.h"

#include <durite/durite.h>
#include <pthread.h>
#include <time.h>

typedef struct caller {
    fixture *f;
    dur_message start;
    dur_exists_policy policy;
    uint64_t delay_ms;
    bool existed;
    int code;
    dur_error err;
    pthread_t thread;
} caller;

static void *call(void *data) {
    caller *c = data;
    c->code = dur_store_enqueue_start(c->f->store, &c->start, c->policy, c->delay_ms, &c->existed, &c->err);
    return NULL;
}

static size_t waiting(fixture *f) {
    size_t count = 0;
    dur__mutex_lock(&file_of(f)->lock);
    DUR__LIST_EACH(&file_of(f)->inbox, at) {
        count++;
    }
    dur__mutex_unlock(&file_of(f)->lock);
    return count;
}

/* Its start is in the inbox; the test leads. */
static void begin(fixture *f, caller *c, const char *instance) {
    size_t before = waiting(f);
    c->f = f;
    c->start = start_of(f, instance);
    assert_int_equal(pthread_create(&c->thread, NULL, call, c), 0);
    while (waiting(f) == before)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
}

static int answer_of(caller *c) {
    pthread_join(c->thread, NULL);
    return c->code;
}

typedef struct desk {
    fixture *f;
    dur_waker *waker;
    dur_lane *lane;
} desk;

static const dur_fetch fetch = { .owner = "o1", .max = 8, .kind = DUR_FETCH_FRESH, .queue_messages_max = 8 };

static dur_round look(desk *d) {
    dur_round round = { .fetch = &fetch, .queue_messages_max = 8 };
    OK(d->f, dur_store_lane_round(d->lane, d->f->arena, &round, &d->f->err));
    return round;
}

/* A lane that has looked and found nothing: from then on it is given starts. */
static desk desk_open(fixture *f) {
    desk d = { .f = f, .waker = dur_waker_new() };
    d.lane = lane_make(f, "o1", d.waker);
    assert_int_equal(look(&d).item_count, 0);
    return d;
}

static void desk_close(desk *d) {
    if (d->lane != NULL) dur_store_lane_close(d->lane);
    dur_waker_free(d->waker);
}

static size_t starts(desk *d, dur_orchestration_item *items, size_t max) {
    size_t count = 77;
    OK(d->f, dur_store_lane_starts(d->lane, d->f->arena, max, items, &count, &d->f->err));
    return count;
}

static void lead(fixture *f) {
    OK(f, dur__sq_lead(file_of(f), &f->err));
}

/* The lane has the start of this caller. */
static dur_orchestration_item take(desk *d, caller *c, const char *instance) {
    dur_orchestration_item items[2];
    lead(d->f);
    begin(d->f, c, instance);
    assert_int_equal(starts(d, items, 2), 1);
    dur__sq_unlead(file_of(d->f));
    assert_string_equal(items[0].instance, instance);
    return items[0];
}

static const dur_event_row two_events[] = { { .event_id = 1, .json = { "{\"event_id\":1}", 14 } },
                                            { .event_id = 2, .json = { "{\"event_id\":2}", 14 } } };

static dur_turn_commit first_turn(const dur_orchestration_item *item) {
    return (dur_turn_commit){ .lock_token = item->lock_token,
                              .instance = item->instance,
                              .store_key = item->store_key,
                              .execution_id = 1,
                              .events = two_events,
                              .event_count = 2,
                              .metadata = { .orchestration_name = "Test", .orchestration_version = "1.0.0" },
                              .consume_listed = true,
                              .consumed = &item->messages[0].id,
                              .consumed_count = 1,
                              .owner = "o1",
                              .keep_lease = true };
}

static dur_turn_commit born_turn(const dur_orchestration_item *item) {
    dur_turn_commit turn = first_turn(item);
    turn.writes_start = true;
    return turn;
}

static dur_round commit(desk *d, dur_turn_commit *turns, size_t count) {
    dur_round round = { .turns = turns, .turn_count = count, .queue_messages_max = 8 };
    OK(d->f, dur_store_lane_round(d->lane, d->f->arena, &round, &d->f->err));
    return round;
}

/* Every row of every table, but for what is drawn or counted: tokens, ids and places of messages, and the owners. */
static char *rows(fixture *f) {
    sqlite3 *db = file_of(f)->writer.db;
    sqlite3_stmt *tables = NULL, *row = NULL;
    size_t size = 65536, at = 0;
    char *out = calloc(1, size);
    assert_int_equal(
        sqlite3_prepare_v2(db,
                           "SELECT name FROM sqlite_schema WHERE type='table' AND name LIKE 'dur\\_%' "
                           "ESCAPE '\\' AND name NOT IN ('dur_meta', 'dur_owner', 'dur_served') ORDER BY name",
                           -1, &tables, NULL),
        SQLITE_OK);
    while (sqlite3_step(tables) == SQLITE_ROW) {
        char sql[100];
        const char *table = (const char *)sqlite3_column_text(tables, 0);
        snprintf(sql, sizeof sql, "SELECT * FROM %s ORDER BY 1, 2", table);
        assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &row, NULL), SQLITE_OK);
        while (sqlite3_step(row) == SQLITE_ROW) {
            at += (size_t)snprintf(out + at, size - at, "%s:", table);
            for (int i = 0; i < sqlite3_column_count(row); i++) {
                const char *name = sqlite3_column_name(row, i), *text = (const char *)sqlite3_column_text(row, i);
                bool drawn = strcmp(name, "token") == 0 || (strcmp(name, "id") == 0 && strcmp(table, "dur_queue") == 0);
                if (strcmp(name, "ready_seq") == 0 || strcmp(name, "seq") == 0) continue; /* places in queues */
                at += (size_t)snprintf(out + at, size - at, " %s=%s", name, text == NULL ? "-" : drawn ? "*" : text);
                assert_true(at < size);
            }
            at += (size_t)snprintf(out + at, size - at, "\n");
        }
        sqlite3_finalize(row);
    }
    sqlite3_finalize(tables);
    return out;
}

static void assert_rows(fixture *f, const char *expected) {
    char *now = rows(f);
    if (strcmp(now, expected) != 0) fail_msg("there is\n%sinstead of\n%s", now, expected);
    free(now);
}

static uint64_t status_of(fixture *f, const char *instance) {
    dur_instance_row row;
    OK(f, dur_store_get_instance(f->store, f->arena, instance, &row, &f->err));
    return (uint64_t)row.status;
}

/* ---- the rows ---- */

static dur_message own_message(fixture *f, dur_work_kind kind, uint64_t due_ms) {
    dur_message message;
    dur_work_item item = { .kind = kind,
                           .instance = "a",
                           .orchestration = "Test",
                           .input = "next",
                           .version = "1.0.0",
                           .execution_id = 1,
                           .id = 2,
                           .fire_at_ms = due_ms };
    OK(f, dur_message_from_work(&message, f->arena, &item, &f->err));
    message.due_ms = due_ms;
    return message;
}

static void goes_on(fixture *f, dur_turn_commit *turn) {
    (void)f;
    (void)turn;
}

static void has_everything(fixture *f, dur_turn_commit *turn) {
    static dur_event_row events[] = {
        { .event_id = 1, .json = { "{}", 2 } },
        { .event_id = 2, .json = { "{}", 2 }, .kind = DUR_EVENT_KEY_VALUE_SET, .key = "k", .value = "v" },
        { .event_id = 3, .json = { "{}", 2 }, .kind = DUR_EVENT_CUSTOM_STATUS_UPDATED, .value = "half" },
    };
    dur_message work;
    dur_work_item item = {
        .kind = DUR_WORK_ACTIVITY_EXECUTE, .instance = "a", .execution_id = 1, .id = 1, .name = "A", .input = ""
    };
    OK(f, dur_message_from_work(&work, f->arena, &item, &f->err));
    dur_turn_work *works = dur_arena_zalloc(f->arena, 2 * sizeof(*works));
    works[0] = (dur_turn_work){ .message = work, .lock_token = "w1" };
    works[1] = (dur_turn_work){ .message = work };
    works[1].message.activity_id = 2;
    turn->worker_items = works;
    turn->worker_item_count = 2;
    turn->events = events;
    turn->event_count = 3;
    turn->metadata.has_pinned_version = true;
    turn->metadata.pinned_version = (dur_semver){ 1, 2, 3 };
}

static void ends_at_once(fixture *f, dur_turn_commit *turn) {
    has_everything(f, turn);
    turn->worker_item_count = 0;
    turn->keep_lease = false;
    turn->metadata.status = DUR_STATUS_COMPLETED;
    turn->metadata.output = "done";
}

static void sends(fixture *f, dur_turn_commit *turn, dur_message message) {
    dur_message *one = dur_arena_zalloc(f->arena, sizeof(*one));
    *one = message;
    turn->orchestrator_items = one;
    turn->orchestrator_item_count = 1;
}

static void sends_itself_a_timer(fixture *f, dur_turn_commit *turn) {
    sends(f, turn, own_message(f, DUR_WORK_TIMER_FIRED, 2000000));
}

static void sends_itself_a_timer_and_goes(fixture *f, dur_turn_commit *turn) {
    sends_itself_a_timer(f, turn);
    turn->keep_lease = false;
}

static void continues_as_new(fixture *f, dur_turn_commit *turn) {
    sends(f, turn, own_message(f, DUR_WORK_CONTINUE_AS_NEW, 0));
    turn->metadata.status = DUR_STATUS_CONTINUED_AS_NEW;
    turn->metadata.output = "next";
}

static void continues_as_new_elsewhere(fixture *f, dur_turn_commit *turn) {
    continues_as_new(f, turn);
    turn->keep_lease = false;
}

static void waits_for_anybody(fixture *f, dur_turn_commit *turn) {
    (void)f;
    turn->keep_lease = false;
}

static void waits_a_while(fixture *f, dur_turn_commit *turn) {
    sends_itself_a_timer(f, turn);
    turn->keep_lease = false;
    turn->delay_ms = 5000;
}

static void is_suspended(fixture *f, dur_turn_commit *turn) {
    (void)f;
    turn->set_suspended = true;
    turn->suspended = "why not";
}

static void starts_another(fixture *f, dur_turn_commit *turn) {
    sends(f, turn, start_of(f, "b"));
}

typedef void change(fixture *f, dur_turn_commit *turn);
static change *const changes[] = {
    goes_on,
    has_everything,
    ends_at_once,
    sends_itself_a_timer,
    sends_itself_a_timer_and_goes,
    continues_as_new,
    continues_as_new_elsewhere,
    waits_for_anybody,
    waits_a_while,
    is_suspended,
    starts_another,
};

/* Time stands still: the same turn at the same time writes the same. */
static void stop_time(fixture *f, dur_fake_world *world) {
    dur_provider_close(f->store);
    OK(f, dur_open_ex(&f->store, f->url, DUR_OPEN_OPTIONS(.world = dur_fake_world_get(world)), &f->err));
}

static char *by_the_usual_way(change *how, dur_fake_world *world, bool *kept) {
    fixture *f;
    bool existed;
    fixture_open((void **)&f);
    stop_time(f, world);
    desk d = desk_open(f);
    dur_message start = start_of(f, "a");
    OK(f, dur_store_enqueue_start(f->store, &start, DUR_EXISTS_FAIL, 0, &existed, &f->err));
    dur_round round = look(&d);
    assert_int_equal(round.item_count, 1);
    dur_turn_commit turn = first_turn(&round.items[0]);
    how(f, &turn);
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    *kept = turn.lease_kept;
    char *out = rows(f);
    desk_close(&d);
    fixture_close((void **)&f);
    return out;
}

static void rows_are_those_of_a_start_a_fetch_and_a_turn(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        dur_fake_world *world = dur_fake_world_new(1000000, 1);
        fixture *f;
        caller c = { .policy = DUR_EXISTS_FAIL };
        bool kept = false;
        char *usual = by_the_usual_way(changes[i], world, &kept);
        fixture_open((void **)&f);
        stop_time(f, world);
        desk d = desk_open(f);
        dur_orchestration_item item = take(&d, &c, "a");
        assert_int_equal(item.message_count, 1);
        assert_int_equal(item.messages[0].id, 0);
        assert_int_equal(item.messages[0].attempt_count, 1);
        assert_int_equal(item.acquisitions, 1);
        assert_string_equal(item.orchestration_name, "Test");
        assert_string_equal(item.version, "1.0.0");
        dur_turn_commit turn = born_turn(&item);
        changes[i](f, &turn);
        (void)commit(&d, &turn, 1);
        assert_int_equal(turn.fault, DUR_TURN_FINE);
        assert_int_equal(turn.lease_kept, kept);
        assert_true(turn.store_key != 0);
        assert_int_equal(answer_of(&c), DUR_OK);
        assert_false(c.existed);
        assert_rows(f, usual);
        OK(f, dur_provider_check(f->store, &f->err));
        free(usual);
        desk_close(&d);
        fixture_close((void **)&f);
        dur_fake_world_free(world);
    }
}

/* ---- the lease ---- */

/* The next turn under the lease that a born turn has told. */
static void goes_on_from(desk *d, const dur_turn_commit *born, uint64_t last) {
    dur_event_row event = { .event_id = last + 1, .json = text_of("{}") };
    parked p = { .key = born->store_key, .last = last };
    snprintf(p.token, sizeof p.token, "%s", born->lock_token);
    dur_turn_commit turn = turn_of(born->instance, &p, &event, 1);
    (void)commit(d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_true(turn.lease_kept);
}

static int writes;
static int count_write(unsigned what, void *data, void *statement, void *text) {
    (void)what;
    (void)data;
    (void)text;
    writes += !sqlite3_stmt_readonly(statement) && strstr(sqlite3_sql(statement), "dur_") != NULL;
    return 0;
}

static void a_born_turn_costs_one_commit_and_no_message(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a");
    dur_turn_commit turn = born_turn(&item);
    uint64_t before = file_of(f)->commits;
    sqlite3_trace_v2(file_of(f)->writer.db, SQLITE_TRACE_STMT, count_write, NULL);
    writes = 0;
    (void)commit(&d, &turn, 1);
    sqlite3_trace_v2(file_of(f)->writer.db, 0, NULL, NULL);
    assert_int_equal(writes, 3); /* the instance, two events */
    assert_int_equal(file_of(f)->commits, before + 1);
    assert_int_equal(answer_of(&c), DUR_OK);
    goes_on_from(&d, &turn, 2);
    desk_close(&d);
}

static void several_are_born_together_and_beside_others(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c[4] = { { .policy = DUR_EXISTS_FAIL }, { .policy = DUR_EXISTS_FAIL }, { .policy = DUR_EXISTS_FAIL } };
    static const char *const ids[] = { "a", "b", "c", "d" };
    dur_orchestration_item items[4];
    dur_turn_commit turns[4];
    lead(f);
    for (int i = 0; i < 3; i++)
        begin(f, &c[i], ids[i]);
    assert_int_equal(starts(&d, items, 2), 2); /* no more than asked for */
    assert_int_equal(starts(&d, items + 2, 2), 1);
    dur__sq_unlead(file_of(f));
    for (int i = 0; i < 3; i++) {
        assert_string_equal(items[i].instance, ids[i]); /* who came first goes first */
        turns[i] = born_turn(&items[i]);
    }
    starts_another(f, &turns[0]); /* "b": it is not born yet, and then it need not be */
    (void)commit(&d, turns, 3);
    assert_int_equal(turns[0].fault, DUR_TURN_FINE);
    assert_int_equal(turns[1].fault, DUR_TURN_LEASE_LOST);
    assert_int_equal(turns[2].fault, DUR_TURN_FINE);
    dur_store_lane_start_back(d.lane, items[1].lock_token);
    assert_int_equal(answer_of(&c[0]), DUR_OK);
    assert_int_equal(answer_of(&c[1]), DUR_EEXISTS);
    assert_int_equal(answer_of(&c[2]), DUR_OK);
    assert_int_equal(look(&d).item_count, 1); /* the "b" that was sent */
    (void)look(&d);
    items[3] = take(&d, &c[3], "d");
    turns[3] = born_turn(&items[3]);
    (void)commit(&d, &turns[3], 1);
    assert_int_equal(answer_of(&c[3]), DUR_OK);
    assert_true(turns[0].store_key != turns[2].store_key && turns[2].store_key != turns[3].store_key);
    goes_on_from(&d, &turns[0], 2);
    goes_on_from(&d, &turns[2], 2);
    goes_on_from(&d, &turns[3], 2);
    desk_close(&d);
}

static void a_message_in_the_same_transaction_reaches_the_lease(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    parked p = park(f, d.lane, "o1", "sender");
    (void)look(&d);
    dur_orchestration_item item = take(&d, &c, "a");
    dur_event_row event = { .event_id = 3, .json = text_of("{}") };
    dur__sq_lane *lane = (dur__sq_lane *)(void *)d.lane;
    atomic_store(&lane->signalled, false);
    dur_turn_commit turns[2] = { born_turn(&item), turn_of("sender", &p, &event, 1) };
    sends(f, &turns[1], raised_of(f, "a", "hello"));
    dur_round round = commit(&d, turns, 2);
    assert_int_equal(turns[0].fault, DUR_TURN_FINE);
    assert_int_equal(turns[1].fault, DUR_TURN_FINE);
    assert_int_equal(round.held_count, 0);
    assert_int_equal(answer_of(&c), DUR_OK);
    assert_true(atomic_load(&lane->signalled)); /* there is something to do */
    round = commit(&d, NULL, 0);
    assert_int_equal(round.held_count, 1);
    assert_string_equal(round.held[0].instance, "a");
    assert_string_equal(round.held[0].lock_token, turns[0].lock_token);
    /* left in the queue at the end of the lease it is a reason to fetch the instance */
    parked born = { .key = turns[0].store_key, .last = 2 };
    snprintf(born.token, sizeof born.token, "%s", turns[0].lock_token);
    dur_turn_commit last = turn_of("a", &born, &event, 1);
    last.keep_lease = false;
    (void)commit(&d, &last, 1);
    assert_int_equal(last.fault, DUR_TURN_FINE);
    round = look(&d);
    assert_int_equal(round.item_count, 1);
    assert_int_equal(round.items[0].message_count, 1);
    desk_close(&d);
}

static void a_timer_of_the_first_turn_fires(void **state) {
    fixture *f = *state;
    dur_fake_world *world = dur_fake_world_new(1000000, 1);
    stop_time(f, world);
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a");
    dur_turn_commit turn = born_turn(&item);
    sends_itself_a_timer(f, &turn);
    assert_int_equal(commit(&d, &turn, 1).held_count, 0);
    assert_int_equal(answer_of(&c), DUR_OK);
    assert_int_equal(look(&d).held_count, 0);
    dur_fake_world_advance(world, 1000000);
    dur_round round = look(&d);
    assert_int_equal(round.held_count, 1);
    assert_string_equal(round.held[0].lock_token, turn.lock_token);
    desk_close(&d);
    dur_provider_close(f->store);
    f->store = NULL;
    dur_fake_world_free(world);
}

static void an_owner_that_ends_leaves_the_newborn_to_others(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a");
    dur_turn_commit turn = born_turn(&item);
    (void)commit(&d, &turn, 1);
    assert_int_equal(answer_of(&c), DUR_OK);
    dur_message event = raised_of(f, "a", "x");
    OK(f, dur_store_enqueue_existing(f->store, &event, 0, &f->err));
    dur_store_lane_close(d.lane);
    OK(f, dur_store_owner_release(f->store, "o1", &f->err));
    d.lane = lane_make(f, "o1", d.waker);
    dur_round round = look(&d);
    assert_int_equal(round.item_count, 1);
    assert_int_equal(round.items[0].message_count, 1);
    assert_int_equal(round.items[0].history_count, 2);
    desk_close(&d);
}

/* ---- several of one call ---- */

typedef struct crowd {
    fixture *f;
    dur_message items[3];
    dur_start starts[3];
    atomic_bool back;
    int code;
    pthread_t thread;
} crowd;

static void *call_crowd(void *data) {
    crowd *c = data;
    c->code = dur_store_enqueue_starts(c->f->store, c->starts, 3, NULL);
    atomic_store(&c->back, true);
    return NULL;
}

/* Two are the lane's, the third is in the inbox. */
static void take_two(desk *d, crowd *c, const char *const ids[3], dur_orchestration_item taken[2]) {
    c->f = d->f;
    for (size_t i = 0; i < 3; i++) {
        c->items[i] = start_of(d->f, ids[i]);
        c->starts[i] = (dur_start){ .item = &c->items[i], .policy = DUR_EXISTS_FAIL };
    }
    lead(d->f);
    assert_int_equal(pthread_create(&c->thread, NULL, call_crowd, c), 0);
    while (waiting(d->f) < 3)
        nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    assert_int_equal(starts(d, taken, 2), 2);
    dur__sq_unlead(file_of(d->f));
}

/* One is born, one is given back, one has the id of the first: the caller goes on when the last is answered. */
static void each_of_a_call_has_its_own_answer(void **state) {
    static const char *const ids[3] = { "a", "b", "a" };
    desk d = desk_open(*state);
    crowd c = { .code = -1 };
    dur_orchestration_item items[2];
    take_two(&d, &c, ids, items);
    dur_store_lane_start_back(d.lane, items[1].lock_token);
    assert_false(atomic_load(&c.back));
    dur_turn_commit turn = born_turn(&items[0]);
    (void)commit(&d, &turn, 1);
    /* The caller may have lost patience and written the third before the turn of the first: one of them has the id. */
    bool first = turn.fault == DUR_TURN_FINE;
    if (!first) dur_store_lane_start_back(d.lane, items[0].lock_token);
    pthread_join(c.thread, NULL);
    assert_int_equal(c.code, DUR_OK);
    assert_int_equal(c.starts[0].error.code, first ? DUR_OK : DUR_EEXISTS);
    assert_int_equal(c.starts[1].error.code, DUR_OK);
    assert_int_equal(c.starts[2].error.code, first ? DUR_EEXISTS : DUR_OK);
    desk_close(&d);
}

static void a_lane_that_closes_gives_all_of_a_call_back(void **state) {
    static const char *const ids[3] = { "a", "b", "c" };
    desk d = desk_open(*state);
    crowd c = { .code = -1 };
    dur_orchestration_item items[2];
    take_two(&d, &c, ids, items);
    dur_store_lane_close(d.lane);
    pthread_join(c.thread, NULL);
    assert_int_equal(c.code, DUR_OK);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(c.starts[i].error.code, DUR_OK);
    OK(d.f, dur_store_owner_release(d.f->store, "o1", &d.f->err));
    d.lane = lane_make(d.f, "o1", d.waker);
    assert_int_equal(look(&d).item_count, 3);
    desk_close(&d);
}

/* ---- refused ---- */

static void an_id_that_exists_is_refused(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    (void)park(f, d.lane, "o1", "a");
    (void)look(&d);
    static const dur_exists_policy policies[] = { DUR_EXISTS_FAIL, DUR_EXISTS_RETURN, DUR_EXISTS_REPLACE_FINISHED };
    char *before = rows(f);
    for (int i = 0; i < 3; i++) {
        caller c = { .policy = policies[i] };
        dur_orchestration_item item = take(&d, &c, "a");
        dur_turn_commit turn = born_turn(&item);
        has_everything(f, &turn);
        (void)commit(&d, &turn, 1);
        assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
        assert_int_equal(turn.error.code, DUR_ELEASE);
        assert_false(turn.lease_kept);
        assert_false(turn.worker_items[0].locked);
        assert_rows(f, before);
        dur_store_lane_start_back(d.lane, item.lock_token);
        assert_int_equal(answer_of(&c), i == 1 ? DUR_OK : DUR_EEXISTS); /* "a" runs: it is not replaced */
        if (i == 1) assert_true(c.existed);
        assert_rows(f, before);
    }
    free(before);
    desk_close(&d);
}

static void one_that_has_ended_is_replaced(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller first = { .policy = DUR_EXISTS_FAIL }, second = { .policy = DUR_EXISTS_REPLACE_FINISHED };
    dur_orchestration_item item = take(&d, &first, "a");
    dur_turn_commit turn = born_turn(&item);
    ends_at_once(f, &turn);
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_false(turn.lease_kept);
    assert_int_equal(answer_of(&first), DUR_OK);
    assert_int_equal(status_of(f, "a"), DUR_STATUS_COMPLETED);
    assert_int_equal(look(&d).item_count, 0);
    item = take(&d, &second, "a");
    turn = born_turn(&item);
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    dur_store_lane_start_back(d.lane, item.lock_token);
    assert_int_equal(answer_of(&second), DUR_OK);
    dur_round round = look(&d);
    assert_int_equal(round.item_count, 1);
    assert_int_equal(round.items[0].history_count, 0);
    desk_close(&d);
}

static void a_token_of_nobodys_start_is_refused(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a");
    dur_turn_commit turn = born_turn(&item);
    turn.lock_token = "u77";
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    turn = born_turn(&item); /* not through its lane */
    OK(f, dur_store_commit_turns(f->store, &turn, 1, &f->err));
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    turn = born_turn(&item); /* somebody else's start */
    turn.instance = "b";
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    dur_event_row zero = { .event_id = 0, .json = text_of("{}") };
    turn = born_turn(&item);
    turn.events = &zero;
    turn.event_count = 1;
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.error.code, DUR_EINVAL);
    assert_rows(f, "");
    turn = born_turn(&item);
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_int_equal(answer_of(&c), DUR_OK);
    dur_store_lane_start_back(d.lane, item.lock_token); /* no harm */
    desk_close(&d);
}

/* ---- given back ---- */

static void what_is_given_back_is_written_and_fetched(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a"), again[1];
    lead(f);
    dur_store_lane_start_back(d.lane, item.lock_token);
    assert_int_equal(waiting(f), 1);
    assert_int_equal(starts(&d, again, 1), 0); /* once is enough */
    dur__sq_unlead(file_of(f));
    dur_turn_commit turn = born_turn(&item); /* too late */
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_LEASE_LOST);
    assert_int_equal(answer_of(&c), DUR_OK);
    dur_round round = look(&d);
    assert_int_equal(round.item_count, 1);
    assert_string_equal(round.items[0].instance, "a");
    assert_int_equal(round.items[0].attempt_count, 1);
    assert_true(round.items[0].messages[0].id > 0);
    turn = first_turn(&round.items[0]);
    (void)commit(&d, &turn, 1);
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    desk_close(&d);
}

/* Whoever owns the lane, when the turn does not say. */
static void a_lease_has_an_owner(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a");
    dur_turn_commit turn = born_turn(&item);
    turn.owner = NULL;
    (void)commit(&d, &turn, 1);
    assert_int_equal(answer_of(&c), DUR_OK);
    char *now = rows(f);
    assert_non_null(strstr(now, " owner=o1 "));
    free(now);
    desk_close(&d);
}

static void a_lane_that_closes_gives_back(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c[2] = { { .policy = DUR_EXISTS_FAIL }, { .policy = DUR_EXISTS_FAIL } };
    (void)take(&d, &c[0], "a");
    (void)take(&d, &c[1], "b");
    dur_store_lane_close(d.lane);
    assert_int_equal(answer_of(&c[0]), DUR_OK);
    assert_int_equal(answer_of(&c[1]), DUR_OK);
    OK(f, dur_store_lane_open(f->store, &(dur_lane_options){ .owner = "o1", .waker = d.waker }, &d.lane, &f->err));
    assert_int_equal(look(&d).item_count, 2);
    desk_close(&d);
}

/* ---- not handed out ---- */

static void a_delayed_start_is_not_handed_out(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL, .delay_ms = DUR_HOURS(1) };
    dur_orchestration_item items[1];
    lead(f);
    begin(f, &c, "a");
    assert_int_equal(starts(&d, items, 1), 0);
    dur__sq_unlead(file_of(f));
    assert_int_equal(answer_of(&c), DUR_OK);
    assert_int_equal(look(&d).item_count, 0);
    desk_close(&d);
}

static void none_is_handed_out_while_others_wait(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c[2] = { { .policy = DUR_EXISTS_FAIL }, { .policy = DUR_EXISTS_FAIL } };
    dur_orchestration_item items[1];
    dur_message start = start_of(f, "first");
    OK(f, dur_store_enqueue_for_orchestrator(f->store, &start, 0, &f->err));
    (void)commit(&d, NULL, 0); /* a round that fetches nothing */
    lead(f);
    begin(f, &c[0], "a");
    assert_int_equal(starts(&d, items, 1), 0);
    dur__sq_unlead(file_of(f));
    assert_int_equal(answer_of(&c[0]), DUR_OK);
    assert_int_equal(look(&d).item_count, 2);
    (void)look(&d); /* nobody is left */
    (void)take(&d, &c[1], "b");
    desk_close(&d);
    assert_int_equal(answer_of(&c[1]), DUR_OK);
}

static void a_lane_of_nobody_is_given_none(void **state) {
    fixture *f = *state;
    desk d = { .f = f, .waker = dur_waker_new() };
    dur_orchestration_item items[1];
    caller c = { .policy = DUR_EXISTS_FAIL };
    OK(f, dur_store_lane_open(f->store, &(dur_lane_options){ .waker = d.waker }, &d.lane, &f->err));
    dur_fetch timed = { .lock_ms = 1000, .max = 8 };
    dur_round round = { .fetch = &timed };
    OK(f, dur_store_lane_round(d.lane, f->arena, &round, &f->err));
    lead(f);
    begin(f, &c, "a");
    assert_int_equal(starts(&d, items, 1), 0);
    dur__sq_unlead(file_of(f));
    assert_int_equal(answer_of(&c), DUR_OK);
    desk_close(&d);
}

/* ---- transactions that fail ---- */

static const dur_event_row twice[] = { { .event_id = 3, .json = { "{}", 2 } }, { .event_id = 3, .json = { "{}", 2 } } };

static void a_born_turn_survives_a_spoilt_transaction(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c[2] = { { .policy = DUR_EXISTS_FAIL }, { .policy = DUR_EXISTS_FAIL } };
    parked p = park(f, d.lane, "o1", "bad");
    (void)look(&d);
    dur_orchestration_item a = take(&d, &c[0], "a"), b = take(&d, &c[1], "b");
    dur_turn_commit turns[3] = { born_turn(&a), turn_of("bad", &p, twice, 2), born_turn(&b) };
    (void)commit(&d, turns, 3);
    assert_int_equal(turns[0].fault, DUR_TURN_FINE);
    assert_int_equal(turns[1].error.code, DUR_ECONFLICT);
    assert_int_equal(turns[2].fault, DUR_TURN_FINE);
    assert_int_equal(answer_of(&c[0]), DUR_OK);
    assert_int_equal(answer_of(&c[1]), DUR_OK);
    goes_on_from(&d, &turns[0], 2);
    goes_on_from(&d, &turns[2], 2);
    OK(f, dur_provider_check(f->store, &f->err));
    desk_close(&d);
}

static void a_born_turn_that_spoils_leaves_nothing(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c[2] = { { .policy = DUR_EXISTS_FAIL }, { .policy = DUR_EXISTS_FAIL } };
    dur_orchestration_item a = take(&d, &c[0], "a"), b = take(&d, &c[1], "b");
    dur_turn_commit turns[2] = { born_turn(&a), born_turn(&b) };
    turns[0].events = twice;
    (void)commit(&d, turns, 2);
    assert_int_equal(turns[0].fault, DUR_TURN_POSITION);
    assert_int_equal(turns[1].fault, DUR_TURN_FINE);
    assert_int_equal(answer_of(&c[1]), DUR_OK);
    goes_on_from(&d, &turns[1], 2);
    dur_instance_row row;
    assert_int_equal(dur_store_get_instance(f->store, f->arena, "a", &row, &f->err), DUR_ENOTFOUND);
    dur_store_lane_start_back(d.lane, a.lock_token);
    assert_int_equal(answer_of(&c[0]), DUR_OK);
    assert_int_equal(look(&d).item_count, 1);
    desk_close(&d);
}

static int refuse_commit(void *data) {
    (void)data;
    return 1;
}

static void a_failed_commit_leaves_nothing(void **state) {
    fixture *f = *state;
    desk d = desk_open(f);
    caller c = { .policy = DUR_EXISTS_FAIL };
    dur_orchestration_item item = take(&d, &c, "a");
    dur_turn_commit turn = born_turn(&item);
    dur_round round = { .turns = &turn, .turn_count = 1 };
    sqlite3_commit_hook(file_of(f)->writer.db, refuse_commit, NULL);
    assert_int_not_equal(dur_store_lane_round(d.lane, f->arena, &round, &f->err), DUR_OK);
    sqlite3_commit_hook(file_of(f)->writer.db, NULL, NULL);
    assert_int_equal(turn.fault, DUR_TURN_STORE);
    assert_true(turn.error.retryable);
    assert_rows(f, "");
    dur_store_lane_start_back(d.lane, item.lock_token);
    assert_int_equal(answer_of(&c), DUR_OK);
    assert_int_equal(look(&d).item_count, 1);
    desk_close(&d);
}

/* ---- a runtime on a file that cannot be written ---- */

static dur_outcome at_once(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, input);
}

static void set_hook(fixture *f, int (*hook)(void *)) {
    lead(f);
    sqlite3_commit_hook(file_of(f)->writer.db, hook, NULL);
    dur__sq_unlead(file_of(f));
}

/* Whoever starts is told; nobody waits until the file can be written again. */
static void a_start_hears_of_a_store_that_fails(void **state) {
    fixture *f = *state;
    const dur_handler handlers[] = { DUR_ORCHESTRATION("AtOnce", "1.0.0", at_once), DUR_HANDLERS_END };
    dur_runtime *runtime = NULL;
    dur_client *client = NULL;
    char *result = NULL;
    OK(f, dur_client_new(&client, f->store, &f->err));
    OK(f, dur_runtime_start(&runtime, DUR_RUNTIME(.store = f->store, .handlers = handlers), &f->err));
    OK(f, dur_client_start(client, &f->err, "AtOnce", "1", .instance = "before"));
    OK(f, dur_client_result(&result, client, "before", DUR_SECONDS(60), &f->err));
    dur_free(result);
    set_hook(f, refuse_commit);
    for (int i = 0; i < 5; i++) {
        assert_int_not_equal(dur_client_start(client, &f->err, "AtOnce", "2", .instance = "meanwhile"), DUR_OK);
        assert_true(f->err.retryable);
    }
    set_hook(f, NULL);
    OK(f, dur_client_start(client, &f->err, "AtOnce", "3", .instance = "meanwhile"));
    OK(f, dur_client_result(&result, client, "meanwhile", DUR_SECONDS(60), &f->err));
    assert_string_equal(result, "3");
    dur_free(result);
    OK(f, dur_runtime_stop(runtime, DUR_SECONDS(60), &f->err));
    dur_client_free(client);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)
int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_a_start_a_fetch_and_a_turn),
        TEST(a_born_turn_costs_one_commit_and_no_message),
        TEST(several_are_born_together_and_beside_others),
        TEST(a_message_in_the_same_transaction_reaches_the_lease),
        TEST(a_timer_of_the_first_turn_fires),
        TEST(an_owner_that_ends_leaves_the_newborn_to_others),
        TEST(each_of_a_call_has_its_own_answer),
        TEST(a_lane_that_closes_gives_all_of_a_call_back),
        TEST(an_id_that_exists_is_refused),
        TEST(one_that_has_ended_is_replaced),
        TEST(a_token_of_nobodys_start_is_refused),
        TEST(what_is_given_back_is_written_and_fetched),
        TEST(a_lease_has_an_owner),
        TEST(a_lane_that_closes_gives_back),
        TEST(a_delayed_start_is_not_handed_out),
        TEST(none_is_handed_out_while_others_wait),
        TEST(a_lane_of_nobody_is_given_none),
        TEST(a_born_turn_survives_a_spoilt_transaction),
        TEST(a_born_turn_that_spoils_leaves_nothing),
        TEST(a_failed_commit_leaves_nothing),
        TEST(a_start_hears_of_a_store_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
