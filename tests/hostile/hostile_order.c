/*
 * hostile_order.c: the order of messages when clocks jump, producers stand still and processes meet; sessions at the
 * edge of their idle time.
 */
#include "hostile.h"

#include <durite/sys/store.h>
#include <sqlite3.h>

#define START_MS 1700000000000u

/* ---- a store with a clock of the test's own ---- */

typedef struct timed {
    world *w;
    dur_fake_world *fake;
    dur_arena *arena;
    dur_provider *store;
    dur_client *client;
} timed;

static void timed_open_store(timed *t) {
    char url[1100];
    world *w = t->w;
    snprintf(url, sizeof(url), "%s%s", w->url, on_provider("postgres") ? "&clock=caller" : "");
    OK(w, dur_open_ex(&t->store, url, DUR_OPEN_OPTIONS(.world = dur_fake_world_get(t->fake)), &w->err));
    OK(w, dur_client_new(&t->client, t->store, &w->err));
}

static void timed_close_store(timed *t) {
    dur_client_free(t->client);
    dur_provider_close(t->store);
}

/* The world's own store goes: a file has one clock in a process. */
static timed timed_begin(world *w) {
    timed t = { .w = w, .fake = dur_fake_world_new(START_MS, 1), .arena = dur_arena_new() };
    dur_client_free(w->client);
    dur_provider_close(w->store);
    w->client = NULL;
    w->store = NULL;
    if (on_provider("memory")) snprintf(w->url + strlen(w->url), 16, "-timed");
    timed_open_store(&t);
    return t;
}

static void timed_end(timed *t) {
    timed_close_store(t);
    dur_arena_free(t->arena);
    dur_fake_world_free(t->fake);
    world_open_store(t->w);
    OK(t->w, dur_client_new(&t->w->client, t->w->store, &t->w->err));
}

static void put(timed *t, const dur_work_item *item, uint64_t due_ms, uint64_t delay_ms) {
    world *w = t->w;
    dur_message_row message;
    OK(w, dur_message_row_from_work(&message, t->arena, item, &w->err));
    if (due_ms != 0) message.due_ms = due_ms;
    OK(w, dur_store_enqueue_for_orchestrator(t->store, &message, delay_ms, &w->err));
}

static void put_start(timed *t, const char *instance) {
    put(t,
        &(dur_work_item){ .kind = DUR_WORK_START_ORCHESTRATION,
                          .instance = instance,
                          .orchestration = "Any",
                          .input = "",
                          .version = "1.0.0",
                          .execution_id = 1 },
        0, 0);
}

static void put_number(timed *t, const char *instance, int number, uint64_t delay_ms) {
    char text[16];
    snprintf(text, sizeof(text), "%d", number);
    put(t, &(dur_work_item){ .kind = DUR_WORK_QUEUE_MESSAGE, .instance = instance, .name = "q", .data = text }, 0,
        delay_ms);
}

static dur_orchestration_item fetch(timed *t) {
    dur_orchestration_item item;
    OK(t->w,
       dur_store_fetch_orchestration_item(t->store, t->arena, &(dur_fetch){ .lock_ms = 60000 }, &item, &t->w->err));
    return item;
}

static const char *data_of(timed *t, const dur_fetched_message *message) {
    dur_work_item item;
    OK(t->w, dur_work_from_json(&item, t->arena, message->json, &t->w->err));
    return item.kind == DUR_WORK_QUEUE_MESSAGE ? item.data : item.kind == DUR_WORK_TIMER_FIRED ? "timer" : "start";
}

/* What was sent to the instance's queue is there, each once, in the order of sending. */
static void expect_numbers(timed *t, const dur_orchestration_item *item, int count) {
    int next = 0;
    for (size_t i = 0; i < item->message_count; i++) {
        if (item->messages[i].queue == NULL) continue;
        assert_int_equal(strtol(data_of(t, &item->messages[i]), NULL, 10), next);
        next++;
    }
    assert_int_equal(next, count);
}

static void fault_h61_first_in_is_first_out_whatever_the_clock_does(void **state) {
    timed t = timed_begin(*state);
    static const int64_t jumps[] = { -60000, 0, 3600000, -7200000, 1, -1 };
    put_start(&t, "a");
    for (int i = 0; i < 24; i++) {
        put_number(&t, "a", i, 0);
        dur_fake_world_jump(t.fake, jumps[i % 6]);
        if (i % 8 == 7 && !on_provider("memory")) { /* as another process, or one that was started again, would */
            timed_close_store(&t);
            timed_open_store(&t);
        }
    }
    dur_orchestration_item item = fetch(&t);
    expect_numbers(&t, &item, 24);
    timed_end(&t);
}

/* All delays are by the store's time (`now`), whatever they are delays of. */
static void fault_h61_a_delay_follows_the_stores_time(void **state) {
    timed t = timed_begin(*state);
    world *w = t.w;
    put_start(&t, "a");
    dur_orchestration_item item = fetch(&t);
    OK(w, dur_store_abandon_orchestration_item(t.store, item.lock_token, 60000, false, &w->err));
    assert_null(fetch(&t).instance);
    dur_fake_world_jump(t.fake, 60000);
    assert_string_equal(fetch(&t).instance, "a");

    dur_message_row message;
    dur_leased_work work;
    dur_work_fetch how = { .lock_ms = 60000 };
    OK(w, dur_message_row_from_work(&message, t.arena,
                                    &(dur_work_item){ .kind = DUR_WORK_ACTIVITY_EXECUTE,
                                                      .instance = "a",
                                                      .execution_id = 1,
                                                      .id = 2,
                                                      .name = "A",
                                                      .input = "" },
                                    &w->err));
    OK(w, dur_store_enqueue_for_worker(t.store, &message, &w->err));
    OK(w, dur_store_fetch_work_item(t.store, t.arena, &how, &work, &w->err));
    OK(w, dur_store_abandon_work_item(t.store, work.lock_token, 60000, false, &w->err));
    OK(w, dur_store_fetch_work_item(t.store, t.arena, &how, &work, &w->err));
    assert_null(work.json.data);
    dur_fake_world_jump(t.fake, 60000);
    OK(w, dur_store_fetch_work_item(t.store, t.arena, &how, &work, &w->err));
    assert_non_null(work.json.data);
    timed_end(&t);
}

/* A delayed abandon puts the whole instance off, what comes later behind it; afterwards all is there, in order. */
static void fault_h47_a_delayed_abandon_puts_the_instance_off(void **state) {
    timed t = timed_begin(*state);
    world *w = t.w;
    put_start(&t, "a");
    put_number(&t, "a", 0, 0);
    dur_orchestration_item item = fetch(&t);
    OK(w, dur_store_abandon_orchestration_item(t.store, item.lock_token, 5000, false, &w->err));
    put_number(&t, "a", 1, 0);
    assert_null(fetch(&t).instance);
    dur_fake_world_advance(t.fake, 5000);
    item = fetch(&t);
    assert_string_equal(item.instance, "a");
    expect_numbers(&t, &item, 2);
    timed_end(&t);
}

/* An attempt that is given back is that of its own fetch: those before it stay counted. */
static void fault_h47_an_attempt_given_back_is_its_own(void **state) {
    timed t = timed_begin(*state);
    world *w = t.w;
    put_start(&t, "a");
    OK(w, dur_store_abandon_orchestration_item(t.store, fetch(&t).lock_token, 0, false, &w->err));
    OK(w, dur_store_abandon_orchestration_item(t.store, fetch(&t).lock_token, 1000, false, &w->err));
    put_number(&t, "a", 0, 0);
    dur_fake_world_advance(t.fake, 1000);
    for (int i = 0; i < 3; i++) {
        dur_orchestration_item item = fetch(&t);
        assert_int_equal(item.message_count, 2);
        assert_int_equal(item.messages[0].attempt_count, 3);
        assert_int_equal(item.messages[1].attempt_count, 1);
        put_number(&t, "a", 1, 3600000); /* whatever comes meanwhile is not its own */
        OK(w, dur_store_abandon_orchestration_item(t.store, item.lock_token, 0, true, &w->err));
    }
    timed_end(&t);
}

/* ---- a runtime that reads ---- */

static dur_outcome take(dur_ctx *ctx, const char *input) { /* so many, in order */
    size_t count = strtoul(input, NULL, 10);
    for (size_t i = 0; i < count; i++) {
        const char *message = dur_await(dur_message(ctx, "q"));
        if (strtoul(message, NULL, 10) != i) return dur_failf(ctx, "got %s, not %zu", message, i);
        if (i % 50 == 49) dur_status_setf(ctx, "%zu", i + 1);
    }
    return dur_completef(ctx, "%zu in order", count);
}

static dur_outcome gather(dur_ctx *ctx, const char *input) { /* each producer's in its order, whoever comes first */
    size_t producers = strtoul(input, NULL, 10), count = strtoul(strchr(input, ' '), NULL, 10);
    size_t *next = dur_alloc(ctx, producers * sizeof(*next));
    for (size_t i = 0; i < producers * count; i++) {
        char *end;
        size_t who = strtoul(dur_await(dur_message(ctx, "q")), &end, 10), which = strtoul(end, NULL, 10);
        if (who >= producers || which != next[who]) return dur_failf(ctx, "%zu of %zu, not %zu", which, who, next[who]);
        next[who]++;
        if (i == 99) dur_status_set(ctx, "100");
    }
    return dur_complete(ctx, "all");
}

/* The message is there before the timer is asked for. */
static dur_outcome timer_or_message(dur_ctx *ctx, const char *input) {
    (void)input;
    dur_await(dur_pulse(ctx, "Go"));
    dur_future *message = dur_message(ctx, "q");
    dur_future *timer = dur_timer(ctx, 0);
    return dur_complete(ctx, dur_select(timer, message) == message ? "message" : "timer");
}

static const dur_handler handlers[] = {
    DUR_ORCHESTRATION("Take", "1.0.0", take),
    DUR_ORCHESTRATION("Gather", "1.0.0", gather),
    DUR_ORCHESTRATION("TimerOrMessage", "1.0.0", timer_or_message),
    DUR_HANDLERS_END,
};

static void send_numbers(dur_client *client, world *w, const char *instance, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        char number[24];
        snprintf(number, sizeof(number), "%zu", i);
        OK(w, dur_client_send(client, &w->err, instance, "q", number));
    }
}

static void until_status(dur_client *client, const char *instance, const char *text) {
    for (uint64_t waited = 0;; waited++) {
        if (waited > patience_ms()) fail_msg("%s: no status %s", instance, text);
        dur_instance_info *info = NULL;
        bool there = dur_client_info(&info, client, instance, NULL) == DUR_OK && info->custom_status != NULL &&
                     strcmp(info->custom_status, text) == 0;
        dur_instance_info_free(info);
        if (there) return;
        pause_ms(1);
    }
}

/* More wait than the runtime is given at once; it has read them all; the clock goes back; more come. */
static void fault_h03_a_clock_that_goes_back_hides_no_message(void **state) {
    timed t = timed_begin(*state);
    world *w = t.w;
    char *result = NULL;
    OK(w, dur_client_start(t.client, &w->err, "Take", "300", .instance = "t"));
    send_numbers(t.client, w, "t", 0, 100);
    dur_runtime *runtime = NULL;
    OK(w, dur_runtime_start(&runtime,
                            DUR_RUNTIME(.store = t.store, .handlers = handlers, .world = dur_fake_world_get(t.fake)),
                            &w->err));
    until_status(t.client, "t", "100");
    dur_fake_world_jump(t.fake, -60000);
    send_numbers(t.client, w, "t", 100, 200);
    until_status(t.client, "t", "200");
    dur_fake_world_jump(t.fake, -60000);
    send_numbers(t.client, w, "t", 200, 300);
    OK(w, dur_client_result(&result, t.client, "t", patience_ms(), &w->err));
    assert_string_equal(result, "300 in order");
    dur_free(result);
    OK(w, dur_runtime_check(runtime, &w->err));
    OK(w, dur_runtime_stop(runtime, patience_ms(), &w->err));
    timed_end(&t);
}

/* What is due the moment that it is asked for stands behind what was there before. */
static void fault_h47_an_overdue_timer_comes_behind_messages_before_it(void **state) {
    world *w = *state;
    RUN(w, handlers);
    for (int i = 0; i < 5; i++) {
        char id[16];
        snprintf(id, sizeof(id), "t%d", i);
        start(w, "TimerOrMessage", "", id);
        until_history(w, id, "\"ExternalSubscribed\"", 1);
        OK(w, dur_client_send(w->client, &w->err, id, "q", "0"));
        pause_ms(5);
        OK(w, dur_client_pulse(w->client, &w->err, id, "Go", ""));
        expect(w, id, "message");
    }
}

/* ---- producers in other processes ---- */

static const char *const ready[] = { "ready-0", "ready-1", "ready-2", "ready-3" };
enum { PRODUCERS = sizeof(ready) / sizeof(ready[0]) };

static int produce(const char *url, long number) { /* number: which one, and how many messages */
    dur_provider *store = NULL;
    dur_client *client = NULL;
    char dir[128], text[48];
    if (dur_open(&store, url, NULL) != DUR_OK || dur_client_new(&client, store, NULL) != DUR_OK) return 1;
    folder_of(dir, url);
    file_touch(dir, ready[number / 100000]);
    while (!file_exists(dir, "go"))
        pause_ms(1);
    file_touch(dir, "going");
    for (long i = 0; i < number % 100000; i++) {
        snprintf(text, sizeof(text), "%ld %ld", number / 100000, i);
        if (dur_client_send(client, NULL, "g", "q", text) != DUR_OK) return 2;
    }
    dur_client_free(client);
    dur_provider_close(store);
    return 0;
}

static void until_file(const char *dir, const char *name) {
    for (uint64_t waited = 0; !file_exists(dir, name); waited++) {
        if (waited > patience_ms()) fail_msg("no file %s", name);
        pause_ms(1);
    }
}

static void node_wait_well(pid_t pid) {
    int status = node_wait(pid);
    if (status != 0) fail_msg("a producer ended with status 0x%x", (unsigned)status);
}

/* One producer is stopped while it waits for the file, another goes on and is read, then it writes. */
static void fault_h03_a_producer_that_stood_still_is_heard(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip(); /* other processes read no clock for it */
    RUN(w, handlers);
    start(w, "Gather", "2 100", "g");
    until_history(w, "g", "\"OrchestrationStarted\"", 1);
    world_stop(w);
    pid_t slow = node_spawn("produce", w->url, 100000 + 100, -1);
    until_file(w->dir, ready[1]);
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(w->url + strlen("sqlite:"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    file_touch(w->dir, "go");
    until_file(w->dir, "going");
    pause_ms(50); /* time to come to the lock; where it is stopped is not what holds */
    kill(slow, SIGSTOP);
    assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    node_wait_well(node_spawn("produce", w->url, 100, -1));
    RUN(w, handlers);
    until_status(w->client, "g", "100");
    kill(slow, SIGCONT);
    expect(w, "g", "all");
    node_wait_well(slow);
}

static void fault_h03_producers_that_stop_and_go_lose_nothing(void **state) {
    world *w = *state;
    if (!on_provider("sqlite")) skip();
    unsigned seed = (unsigned)now_ms();
    const char *given = getenv("DURITE_TEST_SEED");
    if (given != NULL) seed = (unsigned)strtoul(given, NULL, 10);
    printf("seed %u\n", seed);
    size_t count = scaled(400, 50);
    char input[32];
    snprintf(input, sizeof(input), "%d %zu", (int)PRODUCERS, count);
    RUN(w, handlers);
    start(w, "Gather", input, "g");
    until_history(w, "g", "\"OrchestrationStarted\"", 1);
    world_stop(w);
    pid_t pids[PRODUCERS];
    file_touch(w->dir, "go");
    for (int i = 0; i < PRODUCERS; i++)
        pids[i] = node_spawn("produce", w->url, i * 100000 + (long)count, -1);
    for (int i = 0; i < PRODUCERS; i++)
        until_file(w->dir, ready[i]);
    bool runs = false;
    for (int left = PRODUCERS; left > 0;) {
        int who = (int)(rand_r(&seed) % PRODUCERS), status = 0;
        if (pids[who] != 0) {
            kill(pids[who], SIGSTOP);
            pause_ms((long)(rand_r(&seed) % 20));
            kill(pids[who], SIGCONT);
            pause_ms((long)(rand_r(&seed) % 5));
        }
        dur_instance_stats stats;
        bool found = false;
        dur_arena *arena = dur_arena_new();
        OK(w, dur_store_get_instance_stats(w->store, arena, "g", &found, &stats, &w->err));
        dur_arena_free(arena);
        if (!runs && stats.queue_pending_count > 100) { /* more than it is given at once */
            RUN(w, handlers);
            runs = true;
        }
        for (int i = 0; i < PRODUCERS; i++) {
            if (pids[i] == 0 || !node_gone(pids[i], &status)) continue;
            if (status != 0) fail_msg("producer %d ended with status 0x%x", i, (unsigned)status);
            pids[i] = 0;
            left--;
        }
    }
    if (!runs) RUN(w, handlers);
    expect(w, "g", "all");
}

/* ---- sessions ---- */

static void fault_h46_idle_zero_renews_nothing(void **state) {
    timed t = timed_begin(*state);
    world *w = t.w;
    dur_message_row message;
    dur_leased_work work;
    const char *owner = "node";
    w->broken = true; /* work of no instance: only another engine puts it there */
    uint64_t changed = 7;
    OK(w, dur_message_row_from_work(&message, t.arena,
                                    &(dur_work_item){ .kind = DUR_WORK_ACTIVITY_EXECUTE,
                                                      .instance = "a",
                                                      .execution_id = 1,
                                                      .id = 2,
                                                      .name = "A",
                                                      .input = "",
                                                      .session_id = "s" },
                                    &w->err));
    OK(w, dur_store_enqueue_for_worker(t.store, &message, &w->err));
    OK(w, dur_store_fetch_work_item(
              t.store, t.arena, &(dur_work_fetch){ .lock_ms = 60000, .session_owner = owner, .session_lock_ms = 60000 },
              &work, &w->err));
    assert_non_null(work.json.data);
    OK(w, dur_store_renew_session_lock(t.store, &owner, 1, 60000, 0, &changed, &w->err));
    assert_int_equal(changed, 0); /* its last activity is now: idle for 0 ms */
    OK(w, dur_store_renew_session_lock(t.store, &owner, 1, 60000, 1, &changed, &w->err));
    assert_int_equal(changed, 1);
    dur_fake_world_advance(t.fake, 10);
    OK(w, dur_store_renew_session_lock(t.store, &owner, 1, 60000, 10, &changed, &w->err));
    assert_int_equal(changed, 0);
    OK(w, dur_store_renew_session_lock(t.store, &owner, 1, 60000, 11, &changed, &w->err));
    assert_int_equal(changed, 1);
    timed_end(&t);
}

/* ---- time that passes while a store is at work ---- */

/* Each look at the clock finds it 7 ms later, as on a machine that others use, or behind a write that took long. */
static uint64_t later_wall_ms(void *data) {
    dur_fake_world_advance(data, 7);
    const dur_world *fake = dur_fake_world_get(data);
    return fake->wall_ms(fake->data);
}

static uint64_t later_boot_ms(void *data) {
    const dur_world *fake = dur_fake_world_get(data);
    return fake->boot_ms(fake->data);
}

static void later_random(void *data, void *out, size_t size) {
    const dur_world *fake = dur_fake_world_get(data);
    fake->random(fake->data, out, size);
}

static void lane_runs(timed *t, dur_lane *lane, dur_round *round) {
    OK(t->w, dur_store_lane_round(lane, t->arena, round, &t->w->err));
    for (size_t i = 0; i < round->turn_count; i++)
        OK(t->w, round->turns[i].error.code);
}

/* The lease is given back by what its last round says that it has seen: what that round did not hand out is not that.
 */
static void timer_is_handed_out(timed *t, dur_lane *lane, int delay_ms) {
    char id[32];
    world *w = t->w;
    dur_fetch any = { .owner = "me", .max = 1 };
    snprintf(id, sizeof(id), "sleeps-%d", delay_ms);
    put_start(t, id);
    dur_round taken = { .fetch = &any };
    lane_runs(t, lane, &taken);
    assert_int_equal(taken.item_count, 1);
    put(t,
        &(dur_work_item){ .kind = DUR_WORK_TIMER_FIRED,
                          .instance = id,
                          .execution_id = 1,
                          .id = 2,
                          .fire_at_ms = dur_store_now_ms(t->store) + (uint64_t)delay_ms },
        dur_store_now_ms(t->store) + (uint64_t)delay_ms, 0);
    dur_round looked = { .fetch = NULL };
    bool told = false;
    for (int i = 0; i < 2 && !told; i++) { /* the first hears of it, the second of nothing but the time */
        looked = (dur_round){ .fetch = NULL };
        lane_runs(t, lane, &looked);
        told = looked.held_count > 0;
    }
    dur_turn_commit release = { .lock_token = taken.items[0].lock_token,
                                .instance = id,
                                .expected_last = DUR_NOT_COMPARED,
                                .consume_listed = true,
                                .seen_id = told ? 0 : looked.seen_id,
                                .seen_now_ms = told ? 0 : looked.now_ms,
                                .owner = "me" };
    dur_round given_back = { .turns = &release, .turn_count = 1 };
    lane_runs(t, lane, &given_back);
    dur_fake_world_advance(t->fake, 1000);
    dur_round again = { .fetch = &any };
    lane_runs(t, lane, &again);
    if (again.item_count == 0) fail_msg("a timer of %d ms is lost", delay_ms);
    assert_int_equal(again.items[0].message_count, 2);
    dur_delete_result deleted;
    OK(w, dur_store_delete_instances(t->store, &(const char *){ id }, 1, true, &deleted, &w->err));
    dur_round forgets = { .fetch = NULL };
    lane_runs(t, lane, &forgets);
}

/* What falls due behind the fetch of a round, while it looks for work, is handed out by the next. */
static void timer_follows_a_fetch(timed *t, dur_lane *lane, int delay_ms) {
    char id[32];
    world *w = t->w;
    dur_fetch any = { .owner = "me", .max = 1 };
    dur_work_fetch work = { .owner = "me", .max = 1 };
    snprintf(id, sizeof(id), "follows-%d", delay_ms);
    uint64_t due_ms = dur_store_now_ms(t->store) + (uint64_t)delay_ms;
    put_start(t, id);
    put(t,
        &(dur_work_item){
            .kind = DUR_WORK_TIMER_FIRED, .instance = id, .execution_id = 1, .id = 2, .fire_at_ms = due_ms },
        due_ms, 0);
    dur_round taken = { .fetch = &any, .work = &work };
    lane_runs(t, lane, &taken);
    assert_int_equal(taken.item_count, 1);
    size_t told = taken.items[0].message_count - 1;
    for (int i = 0; i < 40 && told == 0; i++) {
        dur_round looked = { .fetch = NULL };
        lane_runs(t, lane, &looked);
        told = looked.held_count;
    }
    if (told != 1) fail_msg("a timer of %d ms is not handed out", delay_ms);
    dur_delete_result deleted;
    OK(w, dur_store_delete_instances(t->store, &(const char *){ id }, 1, true, &deleted, &w->err));
    dur_round forgets = { .fetch = NULL };
    lane_runs(t, lane, &forgets);
}

/* At each look of the store at its clock it is 7 ms later. */
static void on_a_slow_machine(void **state, void (*attempt)(timed *t, dur_lane *lane, int delay_ms)) {
    timed t = timed_begin(*state);
    world *w = t.w;
    dur_lane *lane = NULL;
    char url[1100];
    const dur_world later = { t.fake, later_wall_ms, later_boot_ms, later_random };
    timed_close_store(&t);
    snprintf(url, sizeof(url), "%s%s", w->url, on_provider("postgres") ? "&clock=caller" : "");
    OK(w, dur_open_ex(&t.store, url, DUR_OPEN_OPTIONS(.world = &later), &w->err));
    OK(w, dur_client_new(&t.client, t.store, &w->err));
    dur_waker *waker = dur_waker_new();
    OK(w, dur_store_owner_register(t.store, &(dur_owner_options){ .owner = "me", .timeout_ms = 60000 }, &w->err));
    OK(w, dur_store_lane_open(t.store, &(dur_lane_options){ .owner = "me", .waker = waker }, &lane, &w->err));
    for (int delay_ms = 1; delay_ms <= 120; delay_ms++)
        attempt(&t, lane, delay_ms);
    dur_store_lane_close(lane);
    OK(w, dur_store_owner_release(t.store, "me", &w->err));
    dur_waker_free(waker);
    timed_end(&t);
}

static void fault_h165_time_that_passes_in_a_round_hides_no_timer(void **state) {
    on_a_slow_machine(state, timer_is_handed_out);
}

static void fault_h170_time_that_passes_behind_a_fetch_hides_no_timer(void **state) {
    on_a_slow_machine(state, timer_follows_a_fetch);
}

static const hostile_role roles[] = { { "produce", produce } };

static const struct CMUnitTest tests[] = {
    TEST(fault_h61_first_in_is_first_out_whatever_the_clock_does),
    TEST(fault_h61_a_delay_follows_the_stores_time),
    TEST(fault_h47_a_delayed_abandon_puts_the_instance_off),
    TEST(fault_h47_an_attempt_given_back_is_its_own),
    TEST(fault_h47_an_overdue_timer_comes_behind_messages_before_it),
    TEST(fault_h03_a_clock_that_goes_back_hides_no_message),
    TEST(fault_h03_a_producer_that_stood_still_is_heard),
    TEST(fault_h03_producers_that_stop_and_go_lose_nothing),
    TEST(fault_h165_time_that_passes_in_a_round_hides_no_timer),
    TEST(fault_h170_time_that_passes_behind_a_fetch_hides_no_timer),
    TEST(fault_h46_idle_zero_renews_nothing),
};

HOSTILE_MAIN(roles, tests)
