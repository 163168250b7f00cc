/*
 * test_sqlite_commit.c: transactions that many requests share: who fails, who does not, and what is in the file.
 */
#include "sqlite_test.h"

#include <pthread.h>

static int (*real_write)(sqlite3_file *, const void *, int, sqlite3_int64);
static int (*real_read)(sqlite3_file *, void *, int, sqlite3_int64);

/* ---- a disk that fails: a VFS whose Nth write says that it is full ---- */

static long writes_left = -1; /* negative: never fails */
static bool read_fails;       /* the next one */
static sqlite3_vfs shim;
static sqlite3_vfs *below;
static struct {
    const sqlite3_io_methods *from;
    sqlite3_io_methods to;
} shim_methods[8]; /* the database's and the WAL's differ */

static int shim_write(sqlite3_file *file, const void *data, int size, sqlite3_int64 at) {
    if (writes_left == 0) return SQLITE_FULL;
    if (writes_left > 0) writes_left--;
    return real_write(file, data, size, at);
}

static int shim_read(sqlite3_file *file, void *data, int size, sqlite3_int64 at) {
    bool fails = read_fails;
    read_fails = false;
    return fails ? SQLITE_IOERR_READ : real_read(file, data, size, at);
}

static int shim_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *file, int flags, int *out) {
    (void)vfs;
    int result = below->xOpen(below, name, file, flags, out);
    if (result == SQLITE_OK && file->pMethods != NULL) {
        int i = 0;
        while (i < 7 && shim_methods[i].from != NULL && shim_methods[i].from != file->pMethods)
            i++;
        shim_methods[i].from = file->pMethods;
        shim_methods[i].to = *file->pMethods;
        shim_methods[i].to.xWrite = shim_write;
        shim_methods[i].to.xRead = shim_read;
        real_write = file->pMethods->xWrite;
        real_read = file->pMethods->xRead;
        file->pMethods = &shim_methods[i].to;
    }
    return result;
}

static int shim_setup(void **state) {
    below = sqlite3_vfs_find(NULL);
    shim = *below;
    shim.zName = "full";
    shim.xOpen = shim_open;
    writes_left = -1;
    assert_int_equal(sqlite3_vfs_register(&shim, 1), SQLITE_OK);
    return fixture_open(state);
}

static int shim_teardown(void **state) {
    writes_left = -1;
    int result = fixture_close(state);
    sqlite3_vfs_unregister(&shim);
    sqlite3_vfs_register(below, 1);
    return result;
}

/* Header and page of each frame would be two: a full disk after the first is noticed only if there is a second. */
static void a_commit_writes_the_wal_once(void **state) {
    fixture *f = *state;
    bool existed = false;
    dur_message_row start = start_of(f, "first");
    OK(f, dur_store_enqueue_start(f->store, &start, DUR_EXISTS_FAIL, 0, &existed, &f->err)); /* the WAL grows */
    start = start_of(f, "second");
    writes_left = 1;
    int code = dur_store_enqueue_start(f->store, &start, DUR_EXISTS_FAIL, 0, &existed, &f->err);
    writes_left = -1;
    assert_int_equal(code, DUR_OK);
}

/* Every answer is checked with a second look at the file: OK means that it is there, an error that it is not. */
static void every_ok_is_in_the_file_when_the_disk_is_full(void **state) {
    fixture *f = *state;
    bool there[64] = { false };
    int count = 0, failed = 0;
    for (long limit = 0; limit < 24; limit++) {
        char id[32];
        snprintf(id, sizeof id, "i%d", count);
        dur_message_row start = start_of(f, id);
        bool existed = false;
        writes_left = limit % 3; /* a commit is one write, and another one where the WAL grows */
        int code = dur_store_enqueue_start(f->store, &start, DUR_EXISTS_FAIL, 0, &existed, &f->err);
        writes_left = -1;
        there[count++] = code == DUR_OK;
        failed += code != DUR_OK;
        if (code != DUR_OK) assert_true(f->err.retryable);
    }
    assert_true(failed > 2);
    assert_true(failed < count);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < count; i++) {
            char id[32];
            dur_instance_row row;
            snprintf(id, sizeof id, "i%d", i);
            int code = dur_store_get_instance(f->store, f->arena, id, &row, &f->err);
            assert_int_equal(code, there[i] ? DUR_OK : DUR_ENOTFOUND);
        }
        OK(f, dur_store_check(f->store, &f->err));
        dur_provider_close(f->store); /* and again from the file alone */
        OK(f, dur_open(&f->store, f->url, &f->err));
    }
}

/* ---- groups ---- */

static void one_bad_turn_does_not_hurt_its_neighbours(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    parked p[3];
    static const char *const ids[] = { "a", "b", "c" };
    for (int i = 0; i < 3; i++)
        p[i] = park(f, lane, "o1", ids[i]);
    dur_event_row good[] = { { .event_id = 3, .json = text_of("{}") } };
    dur_event_row bad[] = { { .event_id = 3, .json = text_of("{}") }, { .event_id = 3, .json = text_of("{}") } };
    dur_turn_commit turns[3];
    for (int i = 0; i < 3; i++)
        turns[i] = turn_of(ids[i], &p[i], i == 1 ? bad : good, i == 1 ? 2 : 1);
    uint64_t before = file_of(f)->commits;
    dur_round round = { .turns = turns, .turn_count = 3 };
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(turns[0].fault, DUR_TURN_FINE);
    assert_int_equal(turns[1].error.code, DUR_ECONFLICT);
    assert_int_equal(turns[2].fault, DUR_TURN_FINE);
    assert_int_equal(file_of(f)->commits, before + 1); /* one transaction for all that is left */
    for (int i = 0; i < 3; i++) {
        dur_event_row *rows = NULL;
        size_t count = 0;
        OK(f, dur_store_read(f->store, f->arena, ids[i], 0, &rows, &count, &f->err));
        assert_int_equal(count, i == 1 ? 2 : 3);
    }
    turns[1] = turn_of("b", &p[1], good, 1); /* its lease is still good */
    dur_round again = { .turns = &turns[1], .turn_count = 1 };
    OK(f, dur_store_lane_round(lane, f->arena, &again, &f->err));
    assert_int_equal(turns[1].fault, DUR_TURN_FINE);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* ---- comparisons ---- */

static dur_turn_fault commit_one(fixture *f, dur_lane *lane, dur_turn_commit *turn, size_t *lost) {
    dur_round round = { .turns = turn, .turn_count = 1 };
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    if (lost != NULL) *lost = round.lost_count;
    return turn->fault;
}

static void comparisons_say_what_is_wrong(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    parked p = park(f, lane, "o1", "a");
    dur_event_row events[] = { { .event_id = 3, .json = text_of("{}") } };
    dur_turn_commit turn = turn_of("a", &p, events, 1);
    turn.expected_last = 1;
    assert_int_equal(commit_one(f, lane, &turn, NULL), DUR_TURN_POSITION);
    turn = turn_of("a", &p, events, 1);
    turn.lock_token = "k1.0000";
    assert_int_equal(commit_one(f, lane, &turn, NULL), DUR_TURN_LEASE_LOST);
    assert_non_null(strstr(turn.error.message, "Invalid lock token"));
    dur_worker_claim claim = { .ref = { "a", 1, 2, 77 }, .lock_token = "never" };
    turn = turn_of("a", &p, events, 1);
    turn.worker_consumed = &claim;
    turn.worker_consumed_count = 1;
    assert_int_equal(commit_one(f, lane, &turn, NULL), DUR_TURN_WORK_LOST);
    assert_int_equal(turn.lost_work_count, 1);
    assert_ptr_equal(turn.lost_work[0], &claim);
    turn = turn_of("a", &p, events, 1);
    assert_int_equal(commit_one(f, lane, &turn, NULL), DUR_TURN_FINE);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

static void delete_and_start_again_under_a_parked_handler(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    parked p = park(f, lane, "o1", "a");
    dur_delete_result deleted;
    OK(f, dur_store_delete_instances(f->store, (const char *const[]){ "a" }, 1, true, &deleted, &f->err));
    parked fresh = park(f, lane, "o1", "a"); /* same id, same execution, same last event */
    assert_string_not_equal(fresh.token, p.token);
    dur_event_row events[] = { { .event_id = 3, .json = text_of("{}") } };
    dur_turn_commit turn = turn_of("a", &p, events, 1);
    turn.store_key = p.key;
    assert_int_equal(commit_one(f, lane, &turn, NULL), DUR_TURN_LEASE_LOST);
    turn = turn_of("a", &fresh, events, 1);
    assert_int_equal(commit_one(f, lane, &turn, NULL), DUR_TURN_FINE);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* Another connection writes: what was remembered is compared with the store again. */
static void a_lease_that_somebody_else_took_is_noticed(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    parked p = park(f, lane, "o1", "a");
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    sqlite3_exec(db, "UPDATE dur_instance SET token='stolen'; INSERT OR REPLACE INTO dur_meta VALUES('lost', 99)", NULL,
                 NULL, NULL);
    sqlite3_close(db);
    dur_event_row events[] = { { .event_id = 3, .json = text_of("{}") } };
    dur_turn_commit turn = turn_of("a", &p, events, 1);
    size_t lost = 0;
    assert_int_equal(commit_one(f, lane, &turn, &lost), DUR_TURN_LEASE_LOST);
    assert_int_equal(lost, 1);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* ---- what a step costs ---- */

static int statements;
static int writes; /* of rows that a turn writes … */
static int looks; /* … and questions that are not about the file itself, which depend on when it was last looked at */

static int count_statement(unsigned type, void *data, void *stmt, void *text) {
    (void)type;
    (void)data;
    (void)stmt;
    const char *sql = text;
    statements++;
    if (strstr(sql, "dur_meta") != NULL) return 0;
    writes += strncmp(sql, "INSERT", 6) == 0 || strncmp(sql, "DELETE", 6) == 0 || strncmp(sql, "UPDATE", 6) == 0;
    looks += strncmp(sql, "SELECT", 6) == 0;
    return 0;
}

/* The turn that records an activity's end and schedules the next one. */
typedef struct step {
    dur_event_row events[2];
    dur_turn_work work;
    dur_turn_commit turn;
} step;

static void step_make(fixture *f, step *s, const parked *p, const char *token) {
    s->events[0] = event_of(f, "a", p->last + 1, p->last, "\"ActivityCompleted\",\"result\":\"\"");
    s->events[1] = event_of(f, "a", p->last + 2, 0, "\"ActivityScheduled\",\"name\":\"A\",\"input\":\"\"");
    s->work = (dur_turn_work){ .message = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                                            .instance = "a",
                                            .execution_id = 1,
                                            .activity_id = p->last + 2,
                                            .json = text_of("{}") },
                               .lock_token = token };
    s->turn = turn_of("a", p, s->events, 2);
    s->turn.owner = "o1";
    s->turn.worker_items = &s->work;
    s->turn.worker_item_count = 1;
    s->turn.open = 1;
}

static void step_commit(fixture *f, dur_lane *lane, step *s, parked *p) {
    statements = writes = looks = 0;
    sqlite3_trace_v2(file_of(f)->writer.db, SQLITE_TRACE_STMT, count_statement, NULL);
    assert_int_equal(commit_one(f, lane, &s->turn, NULL), DUR_TURN_FINE);
    sqlite3_trace_v2(file_of(f)->writer.db, 0, NULL, NULL);
    p->last += 2;
}

static void a_step_costs_one_write(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    parked p = park(f, lane, "o1", "a");
    step s;
    for (uint64_t i = 0; i < 3; i++) {
        step_make(f, &s, &p, "e");
        s.work.may_be_local = true;
        step_commit(f, lane, &s, &p);
        assert_true(s.work.local && !s.work.locked);
        if (i == 0) continue; /* the first one of a lease learns who lives */
        assert_int_equal(writes, 1);
        assert_true(looks <= 1); /* is anything ready? */
    }
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

static void a_step_with_a_worker_row_costs_three_writes(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    parked p = park(f, lane, "o1", "a");
    char tokens[4][8] = { "e0", "e1", "e2", "e3" };
    uint64_t row_id = 0;
    step s;
    for (uint64_t i = 0; i < 3; i++) {
        dur_worker_claim claim = { .ref = { "a", 1, p.last, row_id }, .lock_token = tokens[i] };
        step_make(f, &s, &p, tokens[i + 1]);
        s.turn.worker_consumed = &claim;
        s.turn.worker_consumed_count = i > 0;
        step_commit(f, lane, &s, &p);
        assert_true(s.work.locked);
        row_id = s.work.row_id;
        if (i == 0) continue;
        assert_int_equal(writes, 3);
        assert_true(looks <= 1); /* is anything ready? */
    }
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

static void idle_costs_no_statement(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    park(f, lane, "o1", "a");
    OK(f, dur_store_lane_wait(lane, 20, &f->err));
    dur_round round = { .turn_count = 0 };
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    for (int i = 0; i < 60; i++) /* what the last write of the WAL makes it look for is over within a second */
        OK(f, dur_store_lane_wait(lane, 20, &f->err));
    statements = 0;
    sqlite3_trace_v2(file_of(f)->writer.db, SQLITE_TRACE_STMT, count_statement, NULL);
    dur_owner_report report;
    for (int i = 0; i < 5; i++) {
        OK(f, dur_store_lane_wait(lane, 30, &f->err));
        OK(f, dur_store_owner_beat(f->store, "o1", &report, &f->err));
        assert_true(report.still_ours);
    }
    sqlite3_trace_v2(file_of(f)->writer.db, 0, NULL, NULL);
    assert_int_equal(statements, 0);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* ---- news ---- */

/* Does the lane's next wait return at once? */
static bool has_news(dur_lane *lane) {
    return atomic_load(&((dur__sq_lane *)(void *)lane)->signalled);
}

static void look_everywhere(fixture *f, dur_lane *lane, size_t expected_works) {
    dur_fetch fetch = { .owner = "o1", .max = 1 };
    dur_work_fetch work = { .owner = "o1", .max = 1 };
    dur_round round = { .fetch = &fetch, .work = &work };
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(round.work_count, expected_works);
}

/* A round that commits and asks for nothing must not pass for a look at what has come. */
static void a_round_that_only_commits_keeps_the_news(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    look_everywhere(f, lane, 0);
    assert_false(has_news(lane));
    dur_message_row work = { .kind = DUR_WORK_ACTIVITY_EXECUTE, .instance = "a", .json = text_of("{}") };
    OK(f, dur_store_enqueue_for_worker(f->store, &work, &f->err));
    dur_round commit = { .turn_count = 0 };
    OK(f, dur_store_lane_round(lane, f->arena, &commit, &f->err));
    assert_true(has_news(lane));
    OK(f, dur_store_lane_wait(lane, DUR_NEVER, &f->err));
    look_everywhere(f, lane, 1);
    assert_false(has_news(lane));
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* The same for what only time makes visible, in the very round that does not ask: the lane that leads is told too. */
static void time_is_news_too(void **state) {
    fixture *f = *state;
    dur_fake_world *fake = dur_fake_world_new(1700000000000u, 7);
    dur_provider_close(f->store);
    OK(f, dur_open_ex(&f->store, f->url, DUR_OPEN_OPTIONS(.world = dur_fake_world_get(fake)), &f->err));
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    dur_message_row item = { .kind = DUR_WORK_ACTIVITY_EXECUTE, .instance = "a", .json = text_of("{}") };
    OK(f, dur_store_enqueue_for_worker(f->store, &item, &f->err));
    dur_work_fetch how = { .lock_ms = 1000 };
    dur_leased_work work;
    OK(f, dur_store_fetch_work_item(f->store, f->arena, &how, &work, &f->err));
    OK(f, dur_store_abandon_work_item(f->store, work.lock_token, 500, true, &f->err));
    look_everywhere(f, lane, 0);
    assert_false(has_news(lane));
    dur_fake_world_advance(fake, 500);
    dur_round commit = { .turn_count = 0 };
    OK(f, dur_store_lane_round(lane, f->arena, &commit, &f->err));
    assert_true(has_news(lane));
    look_everywhere(f, lane, 1);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
    dur_provider_close(f->store);
    dur_fake_world_free(fake);
    OK(f, dur_open(&f->store, f->url, &f->err));
}

/* Who waits in a fetch sleeps no longer than until something becomes visible by itself. */
static void a_long_poll_ends_when_something_falls_due(void **state) {
    fixture *f = *state;
    char url[400];
    dur_orchestration_item item;
    dur_leased_work work;
    dur_provider_close(f->store);
    snprintf(url, sizeof url, "%s?poll=long", f->url);
    OK(f, dur_open(&f->store, url, &f->err));
    dur_message_row start = start_of(f, "a");
    OK(f, dur_store_enqueue_for_orchestrator(f->store, &start, 100, &f->err));
    uint64_t begun = dur__monotonic_us();
    dur_fetch how = { .lock_ms = 60000, .poll_ms = 4000 };
    OK(f, dur_store_fetch_orchestration_item(f->store, f->arena, &how, &item, &f->err));
    assert_non_null(item.instance);
    dur_message_row act = { .kind = DUR_WORK_ACTIVITY_EXECUTE, .instance = "a", .json = text_of("{}") };
    OK(f, dur_store_enqueue_for_worker(f->store, &act, &f->err));
    dur_work_fetch how_work = { .lock_ms = 100, .poll_ms = 4000 };
    OK(f, dur_store_fetch_work_item(f->store, f->arena, &how_work, &work, &f->err));
    OK(f, dur_store_fetch_work_item(f->store, f->arena, &how_work, &work, &f->err)); /* its lock ends */
    assert_non_null(work.json.data);
    assert_true(dur__monotonic_us() - begun < 3000000);
}

/* ---- a disk that cannot be read ---- */

static int fail_at_owner(unsigned type, void *data, void *stmt, void *text) {
    (void)type;
    (void)data;
    (void)stmt;
    if (strstr(text, "FROM dur_owner") != NULL) read_fails = true;
    return 0;
}

static int number_of(fixture *f, const char *sql) {
    uint64_t number = 0;
    OK(f, dur__sq_pragma_u64(file_of(f)->writer.db, sql, &number, &f->err));
    return (int)number;
}

/* SQLite rolls everything back by itself: what follows must not be written without a transaction. */
static void a_read_error_inside_a_turn_leaves_nothing_of_it(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    parked p = park(f, lane, "o1", "a");
    dur_event_row events[] = { { .event_id = 3, .json = text_of("{}") } };
    dur_message_row to_itself = raised_of(f, "a", "again");
    dur_turn_work work = { .message = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                                        .instance = "a",
                                        .execution_id = 1,
                                        .activity_id = 3,
                                        .json = text_of("{}") },
                           .lock_token = "e1" };
    for (int again = 0; again < 2; again++) {
        dur_turn_commit turn = turn_of("a", &p, events, 1);
        turn.owner = "o1";
        turn.worker_items = &work;
        turn.worker_item_count = 1;
        turn.orchestrator_items = &to_itself;
        turn.orchestrator_item_count = 1;
        file_of(f)->alive_epoch = 0; /* so that it asks whether its owner lives, and not from the cache */
        sqlite3_db_release_memory(file_of(f)->writer.db);
        if (!again) sqlite3_trace_v2(file_of(f)->writer.db, SQLITE_TRACE_STMT, fail_at_owner, NULL);
        dur_round round = { .turns = &turn, .turn_count = 1 };
        int code = dur_store_lane_round(lane, f->arena, &round, &f->err);
        sqlite3_trace_v2(file_of(f)->writer.db, 0, NULL, NULL);
        read_fails = false;
        assert_int_equal(number_of(f, "SELECT count(*) FROM dur_worker"), again);
        assert_int_equal(number_of(f, "SELECT count(*) FROM dur_queue"), again);
        assert_int_equal(number_of(f, "SELECT sum(count) FROM dur_history"), 2 + again);
        assert_int_equal(code, DUR_OK);
        assert_int_equal(turn.fault, again ? DUR_TURN_FINE : DUR_TURN_STORE);
        assert_true(again || turn.error.retryable);
    }
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* ---- news from others ---- */

/* Another process writes: for this one that is a connection that it does not know. */
static void somebody_else(fixture *f, const char *sql) {
    sqlite3 *db = NULL;
    char *message = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK) fail_msg("%s", message);
    sqlite3_close(db);
}

static const char foreign_work[] =
    "INSERT INTO dur_instance(id) VALUES('far');"
    "INSERT INTO dur_worker(key, execution, activity, seq, json) SELECT key, 1, 1, 7, '{}' FROM dur_instance";

/* The round that first sees the write is the one that is told of it, also when it did not ask for work. */
static void a_round_that_only_commits_keeps_the_news_of_others(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    look_everywhere(f, lane, 0);
    somebody_else(f, foreign_work);
    dur_fetch fetch = { .owner = "o1", .max = 1 };
    dur_round commit = { .fetch = &fetch };
    OK(f, dur_store_lane_round(lane, f->arena, &commit, &f->err));
    assert_true(has_news(lane));
    look_everywhere(f, lane, 1);
    assert_false(has_news(lane));
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* The same for what another thread asks for, when the round takes it along. */
static void *give_work_back(void *data) {
    fixture *f = data;
    dur_message_row work = { .kind = DUR_WORK_ACTIVITY_EXECUTE, .instance = "a", .json = text_of("{}") };
    return dur_store_enqueue_for_worker(f->store, &work, NULL) == DUR_OK ? NULL : f;
}

static void a_round_that_only_commits_keeps_the_news_that_it_wrote(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    pthread_t thread;
    void *failed = f;
    look_everywhere(f, lane, 0);
    OK(f, dur__sq_lead(file_of(f), &f->err)); /* so that nobody writes it before the round */
    assert_int_equal(pthread_create(&thread, NULL, give_work_back, f), 0);
    while (!dur__sq_inbox_waits(file_of(f)))
        usleep(100);
    dur__sq_unlead(file_of(f));
    dur_round commit = { .turn_count = 0 };
    OK(f, dur_store_lane_round(lane, f->arena, &commit, &f->err));
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_true(has_news(lane));
    look_everywhere(f, lane, 1);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* A request that changes nothing must not swallow what its transaction has noticed. */
static void a_delete_of_nothing_keeps_the_news_of_others(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    dur_watch *watch = NULL;
    dur_delete_result deleted;
    park(f, lane, "o1", "a");
    OK(f, dur_store_watch_open(f->store, "a", &watch, &f->err));
    while (dur_store_watch_wait(watch, 0, &f->err) == DUR_OK) {
    }
    somebody_else(f, "UPDATE dur_instance SET custom_status='half', custom_status_version=1");
    OK(f, dur_store_delete_instances_bulk(f->store, &(dur_bulk_filter){ .limit = 1 }, &deleted, &f->err));
    assert_int_equal(deleted.instances, 0);
    OK(f, dur_store_watch_wait(watch, 0, &f->err));
    dur_store_watch_close(watch);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* While there are lanes they watch the file for everybody; the last one that goes must not leave nobody. */
typedef struct watcher {
    fixture *f;
    dur_watch *watch;
    int code;
    uint64_t took_ms;
} watcher;

static void *watch_until_changed(void *data) {
    watcher *w = data;
    uint64_t begun = dur__monotonic_us();
    bool changed = false;
    while (!changed && (w->code = dur_store_watch_wait(w->watch, 3000, NULL)) == DUR_OK) {
        const char *status = NULL;
        uint64_t version = 0;
        dur_arena *arena = dur_arena_new();
        w->code = dur_store_get_custom_status(w->f->store, arena, "a", 0, &changed, &status, &version, NULL);
        dur_arena_free(arena);
    }
    w->took_ms = (dur__monotonic_us() - begun) / 1000;
    return NULL;
}

static void a_watch_outlives_the_lane_that_watched_for_it(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    watcher w = { .f = f };
    pthread_t thread;
    park(f, lane, "o1", "a");
    OK(f, dur_store_watch_open(f->store, "a", &w.watch, &f->err));
    assert_int_equal(pthread_create(&thread, NULL, watch_until_changed, &w), 0);
    usleep(100000); /* it sleeps */
    dur_store_lane_close(lane);
    usleep(100000);
    somebody_else(f, "UPDATE dur_instance SET custom_status='half', custom_status_version=1");
    pthread_join(thread, NULL);
    assert_int_equal(w.code, DUR_OK);
    assert_true(w.took_ms < 2000);
    dur_store_watch_close(w.watch);
    dur_waker_free(waker);
}

/* The clock went back, and another process has sent something that is due before the time at which it had been. */
static void what_others_send_after_the_clock_went_back_is_in_time(void **state) {
    fixture *f = *state;
    dur_fake_world *fake = dur_fake_world_new(1700000000000u, 7);
    dur_provider_close(f->store);
    OK(f, dur_open_ex(&f->store, f->url, DUR_OPEN_OPTIONS(.world = dur_fake_world_get(fake)), &f->err));
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    park(f, lane, "o1", "a");
    dur_message_row one = raised_of(f, "a", "one");
    OK(f, dur_store_enqueue_existing(f->store, &one, 10, &f->err));
    dur_fake_world_advance(fake, 10);
    dur_round round = { .turn_count = 0 };
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(round.held_count, 1);
    dur_fake_world_jump(fake, -3600000);
    uint64_t due = dur_store_now_ms(f->store) + 60000;
    char sql[300];
    snprintf(sql, sizeof sql,
             "INSERT INTO dur_queue(key, due, ord, at, kind, json) SELECT key, %llu, %llu, 0, 4, '{}' FROM "
             "dur_instance WHERE id='a'",
             (unsigned long long)due, (unsigned long long)due);
    somebody_else(f, sql);
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(round.held_count, 0);
    assert_int_equal(round.next_due_ms, due);
    dur_fake_world_advance(fake, 60000);
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(round.held_count, 1);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
    dur_provider_close(f->store);
    dur_fake_world_free(fake);
    OK(f, dur_open(&f->store, f->url, &f->err));
}

/* ---- messages for parked instances ---- */

static void messages_reach_the_holder_and_are_consumed_by_id(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    parked p = park(f, lane, "o1", "a");
    dur_message_row one = raised_of(f, "a", "one"), two = raised_of(f, "a", "two");
    OK(f, dur_store_enqueue_existing(f->store, &one, 0, &f->err));
    dur_round round = { .turn_count = 0 };
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(round.held_count, 1);
    uint64_t id = round.held[0].message.id;
    OK(f, dur_store_enqueue_existing(f->store, &two, 0, &f->err)); /* between run and commit */
    dur_event_row events[] = { { .event_id = 3, .json = text_of("{}") } };
    dur_turn_commit turn = turn_of("a", &p, events, 1);
    turn.consumed = &id;
    turn.consumed_count = 1;
    dur_round commit = { .turns = &turn, .turn_count = 1 };
    OK(f, dur_store_lane_round(lane, f->arena, &commit, &f->err));
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_int_equal(commit.held_count, 1); /* the second one is there, and comes once */
    assert_non_null(strstr(commit.held[0].message.json.data, "two"));
    dur_round after = { .turn_count = 0 };
    OK(f, dur_store_lane_round(lane, f->arena, &after, &f->err));
    assert_int_equal(after.held_count, 0);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

static dur_message_row queued_of(fixture *f, const char *instance, const char *data) {
    dur_message_row message;
    dur_work_item item = { .kind = DUR_WORK_QUEUE_MESSAGE, .instance = instance, .name = "q", .data = data };
    OK(f, dur_message_row_from_work(&message, f->arena, &item, &f->err));
    return message;
}

/* What is buried is out no more: there is room for the next of its queue. */
static void a_dead_letter_makes_room_in_its_queue(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    park(f, lane, "o1", "a");
    dur_message_row one = queued_of(f, "a", "one"), two = queued_of(f, "a", "two");
    OK(f, dur_store_enqueue_existing(f->store, &one, 0, &f->err));
    OK(f, dur_store_enqueue_existing(f->store, &two, 0, &f->err));
    dur_round round = { .queue_messages_max = 1 };
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(round.held_count, 1);
    uint64_t id = round.held[0].message.id;
    OK(f, dur_store_dead_letter_messages(f->store, "a", &id, 1, "cannot be read", &f->err));
    assert_true(has_news(lane));
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(round.held_count, 1);
    assert_non_null(strstr(round.held[0].message.json.data, "two"));
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* A lease of nobody's lane, by time, that a round keeps: the lane has it now, with what came before. */
static void a_lane_that_keeps_a_lock_gets_what_came_before(void **state) {
    fixture *f = *state;
    dur_fake_world *fake = dur_fake_world_new(1700000000000u, 7);
    dur_provider_close(f->store);
    OK(f, dur_open_ex(&f->store, f->url, DUR_OPEN_OPTIONS(.world = dur_fake_world_get(fake)), &f->err));
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    dur_message_row start = start_of(f, "a"), one = raised_of(f, "a", "one"), two = raised_of(f, "a", "two");
    OK(f, dur_store_enqueue_for_orchestrator(f->store, &start, 0, &f->err));
    dur_orchestration_item item;
    OK(f, dur_store_fetch_orchestration_item(f->store, f->arena, &(dur_fetch){ .lock_ms = 1000 }, &item, &f->err));
    OK(f, dur_store_enqueue_existing(f->store, &one, 0, &f->err));
    parked p = { .key = item.store_key };
    snprintf(p.token, sizeof p.token, "%s", item.lock_token);
    dur_event_row events[] = { { .event_id = 1, .json = text_of("{}") } };
    dur_turn_commit turn = turn_of("a", &p, events, 1);
    turn.metadata.orchestration_name = "Test";
    turn.metadata.orchestration_version = "1.0.0";
    turn.consumed = &item.messages[0].id;
    turn.consumed_count = 1;
    assert_int_equal(commit_one(f, lane, &turn, NULL), DUR_TURN_FINE);
    assert_true(turn.lease_kept);
    dur_round round = { .turn_count = 0 };
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(round.held_count, 1);
    dur_fake_world_advance(fake, 2000); /* and when its time is over the lane is told, once */
    OK(f, dur_store_enqueue_existing(f->store, &two, 0, &f->err));
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(round.held_count, 0);
    assert_int_equal(round.lost_count, 1);
    look_everywhere(f, lane, 0);
    look_everywhere(f, lane, 0);
    assert_false(has_news(lane));
    dur_store_lane_close(lane);
    dur_waker_free(waker);
    dur_provider_close(f->store);
    dur_fake_world_free(fake);
    OK(f, dur_open(&f->store, f->url, &f->err));
}

/* ---- the caller's own transaction ---- */

static void the_callers_transaction_is_all_or_nothing(void **state) {
    fixture *f = *state;
    sqlite3 *db = NULL, *other = NULL;
    dur_instance_row row;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_open(":memory:", &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE app(x)", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(dur_sqlite_begin(f->store, other, &f->err), DUR_EINVAL);
    assert_int_equal(dur_sqlite_commit(f->store, db, &f->err), DUR_ESTATE);
    dur_start_args start = { .size = sizeof start, .name = "Order", .instance = "order-1" };
    for (int keep = 0; keep < 2; keep++) {
        OK(f, dur_sqlite_begin(f->store, db, &f->err));
        assert_int_equal(sqlite3_exec(db, "INSERT INTO app VALUES(1)", NULL, NULL, NULL), SQLITE_OK);
        OK(f, dur_sqlite_start(f->store, db, &start, &f->err));
        dur_message_row message = start_of(f, "other");
        assert_int_equal(dur_store_enqueue_for_orchestrator(f->store, &message, 0, &f->err), DUR_EDEADLK);
        assert_int_equal(dur_sqlite_begin(f->store, db, &f->err), DUR_EDEADLK);
        if (keep)
            OK(f, dur_sqlite_commit(f->store, db, &f->err));
        else
            OK(f, dur_sqlite_rollback(f->store, db, &f->err));
        int code = dur_store_get_instance(f->store, f->arena, "order-1", &row, &f->err);
        assert_int_equal(code, keep ? DUR_OK : DUR_ENOTFOUND);
    }
    OK(f, dur_sqlite_begin(f->store, db, &f->err));
    assert_int_equal(dur_sqlite_start(f->store, db, &start, &f->err), DUR_EEXISTS);
    dur_message_args raise = {
        .size = sizeof raise, .instance = "order-1", .name = "Paid", .data = "1", .message_id = "m1"
    };
    OK(f, dur_sqlite_pulse(f->store, db, &raise, &f->err));
    OK(f, dur_sqlite_pulse(f->store, db, &raise, &f->err)); /* the same id again: accepted once */
    raise.instance = "nobody";
    assert_int_equal(dur_sqlite_pulse(f->store, db, &raise, &f->err), DUR_ENOTFOUND);
    OK(f, dur_sqlite_commit(f->store, db, &f->err));
    dur_queue_depths depths;
    OK(f, dur_store_get_queue_depths(f->store, &depths, &f->err));
    assert_int_equal(depths.orchestrator_queue, 2);
    sqlite3_close(db);
    sqlite3_close(other);
}

/* SQLite rolls back by itself at some errors; what the caller asks for afterwards must not happen alone. */
static void nothing_takes_part_in_a_transaction_that_is_over(void **state) {
    fixture *f = *state;
    sqlite3 *db = NULL;
    dur_instance_row row;
    dur_message_row exists = start_of(f, "there");
    OK(f, dur_store_enqueue_for_orchestrator(f->store, &exists, 0, &f->err));
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE app(x UNIQUE); INSERT INTO app VALUES(1)", NULL, NULL, NULL),
                     SQLITE_OK);
    OK(f, dur_sqlite_begin(f->store, db, &f->err));
    assert_int_equal(sqlite3_exec(db, "INSERT OR ROLLBACK INTO app VALUES(1)", NULL, NULL, NULL), SQLITE_CONSTRAINT);
    dur_start_args start = { .size = sizeof start, .name = "Order", .instance = "order-1" };
    assert_int_equal(dur_sqlite_start(f->store, db, &start, &f->err), DUR_ESTATE);
    dur_message_args raise = { .size = sizeof raise, .instance = "there", .name = "Paid", .data = "1" };
    assert_int_equal(dur_sqlite_pulse(f->store, db, &raise, &f->err), DUR_ESTATE);
    assert_int_equal(dur_sqlite_commit(f->store, db, &f->err), DUR_ESTATE);
    assert_int_equal(dur_store_get_instance(f->store, f->arena, "order-1", &row, &f->err), DUR_ENOTFOUND);
    sqlite3_close(db);
}

static void a_lane_sees_the_callers_commit(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    park(f, lane, "o1", "a");
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    OK(f, dur_sqlite_begin(f->store, db, &f->err));
    dur_message_args raise = { .size = sizeof raise, .instance = "a", .name = "Paid", .data = "1" };
    OK(f, dur_sqlite_pulse(f->store, db, &raise, &f->err));
    OK(f, dur_sqlite_commit(f->store, db, &f->err));
    dur_round round = { .turn_count = 0 };
    OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
    assert_int_equal(round.held_count, 1);
    sqlite3_close(db);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* Of several the one whose message is the oldest, also when it was fetched and given back meanwhile. */
static void who_is_given_back_keeps_its_place(void **state) {
    fixture *f = *state;
    dur_fetch how = { .lock_ms = 60000 };
    dur_orchestration_item item;
    dur_message_row starts[2] = { start_of(f, "a"), start_of(f, "b") };
    for (int i = 0; i < 2; i++)
        OK(f, dur_store_enqueue_for_orchestrator(f->store, &starts[i], 0, &f->err));
    for (int i = 0; i < 3; i++) {
        OK(f, dur_store_fetch_orchestration_item(f->store, f->arena, &how, &item, &f->err));
        assert_string_equal(item.instance, "a");
        OK(f, dur_store_abandon_orchestration_item(f->store, item.lock_token, 0, i % 2 == 0, &f->err));
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_ok_is_in_the_file_when_the_disk_is_full, shim_setup, shim_teardown),
        cmocka_unit_test_setup_teardown(a_commit_writes_the_wal_once, shim_setup, shim_teardown),
        cmocka_unit_test_setup_teardown(a_read_error_inside_a_turn_leaves_nothing_of_it, shim_setup, shim_teardown),
        TEST(one_bad_turn_does_not_hurt_its_neighbours),
        TEST(comparisons_say_what_is_wrong),
        TEST(delete_and_start_again_under_a_parked_handler),
        TEST(a_lease_that_somebody_else_took_is_noticed),
        TEST(a_step_costs_one_write),
        TEST(a_step_with_a_worker_row_costs_three_writes),
        TEST(idle_costs_no_statement),
        TEST(a_round_that_only_commits_keeps_the_news),
        TEST(time_is_news_too),
        TEST(a_long_poll_ends_when_something_falls_due),
        TEST(a_round_that_only_commits_keeps_the_news_of_others),
        TEST(a_round_that_only_commits_keeps_the_news_that_it_wrote),
        TEST(a_delete_of_nothing_keeps_the_news_of_others),
        TEST(a_watch_outlives_the_lane_that_watched_for_it),
        TEST(what_others_send_after_the_clock_went_back_is_in_time),
        TEST(messages_reach_the_holder_and_are_consumed_by_id),
        TEST(a_dead_letter_makes_room_in_its_queue),
        TEST(a_lane_that_keeps_a_lock_gets_what_came_before),
        TEST(the_callers_transaction_is_all_or_nothing),
        TEST(nothing_takes_part_in_a_transaction_that_is_over),
        TEST(a_lane_sees_the_callers_commit),
        TEST(who_is_given_back_keeps_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
