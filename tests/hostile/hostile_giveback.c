/*
 * hostile_giveback.c: who takes something and cannot keep it gives it back until that succeeds; sessions of nodes that
 * die or leave.
 */
#include "hostile.h"
#include <durite/sys/store.h>
#include <durite/sys/work.h>

#define AN_HOUR DUR_SECONDS(3600)

static dur_outcome note(dur_act *act, const char *input) {
    return dur_act_complete(act, input);
}

/* Never ends by itself. */
static dur_outcome stands(dur_act *act, const char *input) {
    const char *path = getenv("HOSTILE_STANDS");
    int fd = path != NULL ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (fd >= 0) close(fd);
    while (path != NULL && !dur_act_cancelled(act))
        pause_ms(5);
    return dur_act_complete(act, input);
}

static dur_outcome in_session(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, input, "done", .session = "s")));
}

static dur_outcome sleeps(dur_ctx *ctx, const char *input) {
    dur_await(dur_timer(ctx, 0));
    return dur_complete(ctx, input);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Note", note),
    DUR_ACTIVITY("Stands", stands),
    DUR_ORCHESTRATION("InSession", "1.0.0", in_session),
    DUR_ORCHESTRATION("Sleeps", "1.0.0", sleeps),
    DUR_HANDLERS_END,
};

/* ---- a store that fails when something is given back ---- */

static struct {
    const dur_provider_methods *inner;
    dur_provider_methods table;
    atomic_uint fail, failed, done;
} failing;

static bool fails_now(dur_error *err) {
    unsigned left = atomic_load(&failing.fail);
    if (left == 0) return false;
    atomic_store(&failing.fail, left - 1);
    atomic_fetch_add(&failing.failed, 1);
    dur_error_set(err, DUR_EFULL, true, "test", "no space left on device");
    return true;
}

static int abandon_work(dur_provider *self, const char *token, uint64_t delay_ms, bool ignore, dur_error *err) {
    if (fails_now(err)) return DUR_EFULL;
    int code = failing.inner->abandon_work_item(self, token, delay_ms, ignore, err);
    if (code == DUR_OK) atomic_fetch_add(&failing.done, 1);
    return code;
}

static int bury_work(dur_provider *self, const char *token, const char *reason, dur_error *err) {
    if (fails_now(err)) return DUR_EFULL;
    int code = failing.inner->dead_letter_work(self, token, reason, err);
    if (code == DUR_OK) atomic_fetch_add(&failing.done, 1);
    return code;
}

static int owner_release(dur_provider *self, const char *owner, dur_error *err) {
    if (fails_now(err)) return DUR_EFULL;
    return failing.inner->owner_release(self, owner, err);
}

/* The next `count` times that something is given back the disk is full. */
static void let_fail(world *w, unsigned count) {
    if (w->store->methods != &failing.table) {
        failing.inner = w->store->methods;
        memset(&failing.table, 0, sizeof(failing.table));
        memcpy(&failing.table, failing.inner, failing.inner->size);
        failing.table.abandon_work_item = abandon_work;
        failing.table.dead_letter_work = bury_work;
        failing.table.owner_release = owner_release;
        w->store->methods = &failing.table;
    }
    atomic_store(&failing.fail, count);
    atomic_store(&failing.failed, 0);
    atomic_store(&failing.done, 0);
}

static void until(atomic_uint *counter, unsigned value) {
    for (uint64_t waited_ms = 0; atomic_load(counter) < value; waited_ms++) {
        if (waited_ms > patience_ms()) fail_msg("%u of %u", atomic_load(counter), value);
        pause_ms(1);
    }
}

static void put_work(world *w, const char *json) {
    dur_message_row item = { .kind = DUR_WORK_ACTIVITY_EXECUTE,
                             .instance = "nobody",
                             .execution_id = 1,
                             .activity_id = 1,
                             .json = { json, strlen(json) } };
    OK(w, dur_store_enqueue_for_worker(w->store, &item, &w->err));
}

static void fault_h48_work_that_cannot_be_kept_is_given_back_until_that_succeeds(void **state) {
    static const char *const texts[] = { "{ not json", "{\"SomethingOfNextYear\":{}}" };
    world *w = *state;
    w->broken = true; /* work of no instance: only another engine puts it there */
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        for (unsigned times = 1; times <= 4; times++) {
            let_fail(w, times);
            RUN(w, handlers);
            put_work(w, texts[i]);
            until(&failing.done, 1);
            assert_int_equal(atomic_load(&failing.failed), times);
            OK(w, dur_runtime_check(w->runtime, &w->err));
            world_stop(w);
        }
    }
}

/* A goodbye that the store does not take at first is said again: nobody waits for a timeout, nothing seems to crash. */
static void fault_h48_a_goodbye_is_said_until_it_is_heard(void **state) {
    world *w = *state;
    for (unsigned times = 1; times <= 3; times++) {
        let_fail(w, 0);
        RUN(w, handlers);
        let_fail(w, times);
        world_stop(w);
        assert_int_equal(atomic_load(&failing.failed), times);
        dur_owner_report report = { 0 };
        OK(w, dur_store_owner_register(w->store, &(dur_owner_options){ .owner = "looks" }, &w->err));
        OK(w, dur_store_owner_beat(w->store, "looks", &report, &w->err));
        assert_int_equal(report.peers, 0);
        let_fail(w, 0);
        OK(w, dur_store_owner_release(w->store, "looks", &w->err));
    }
}

/* ---- sessions ---- */

static int role_run(const char *url, long number) {
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    dur_error err = DUR_ERROR_INIT;
    const char *stop = getenv("HOSTILE_STOP");
    (void)number;
    if (dur_open(&store, url, &err) != DUR_OK) return 2;
    if (dur_runtime_start(&runtime,
                          DUR_RUNTIME(.store = store, .handlers = handlers, .owner_timeout_ms = 1000,
                                      .session_lock_timeout_ms = AN_HOUR),
                          &err) != DUR_OK)
        return 3;
    while (stop == NULL || access(stop, F_OK) != 0)
        pause_ms(5);
    int code = dur_runtime_stop(runtime, patience_ms(), &err);
    dur_provider_close(store);
    return code == DUR_OK ? 0 : 4;
}

static const hostile_role roles[] = { { "run", role_run } };

static char stands_path[128], stop_path[128];

static void paths(void) {
    temporary_path(stands_path, sizeof(stands_path), "durite-stands");
    temporary_path(stop_path, sizeof(stop_path), "durite-stop");
    unlink(stands_path);
    unlink(stop_path);
}

/* No worker_node_id was given: nobody comes back under that name, and nobody waits for it. */
static void fault_h22_a_dead_nodes_session_is_free_with_it(void **state) {
    world *w = *state;
    if (on_provider("memory:")) skip(); /* it dies with its process */
    paths();
    setenv("HOSTILE_STANDS", stands_path, 1);
    pid_t node = node_spawn("run", w->url, 0, -1);
    unsetenv("HOSTILE_STANDS");
    start(w, "InSession", "Stands", "a");
    while (access(stands_path, F_OK) != 0)
        pause_ms(5);
    node_kill(node);
    RUN(w, handlers, .session_lock_timeout_ms = AN_HOUR);
    expect(w, "a", "done");
    unlink(stands_path);
}

static void fault_h51_a_session_is_given_back_by_who_was_taken_over(void **state) {
    world *w = *state;
    if (on_provider("memory:")) skip();
    paths();
    setenv("HOSTILE_STOP", stop_path, 1);
    pid_t node = node_spawn("run", w->url, 0, -1);
    start(w, "InSession", "Note", "a");
    expect(w, "a", "done");
    kill(node, SIGSTOP);
    RUN(w, handlers, .owner_timeout_ms = 1000);
    dur_metrics metrics = { .size = sizeof(metrics) };
    while (metrics.take_overs == 0) {
        OK(w, dur_runtime_metrics(&metrics, w->runtime, &w->err));
        pause_ms(5);
    }
    world_stop(w);
    kill(node, SIGCONT);
    start(w, "InSession", "Note", "b"); /* under its new id */
    expect(w, "b", "done");
    int fd = open(stop_path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) close(fd);
    int status = node_wait(node);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    RUN(w, handlers);
    start(w, "InSession", "Note", "c");
    expect(w, "c", "done");
    unlink(stop_path);
}

/* ---- trouble that lasts is said once, then less and less often ---- */

static atomic_uint warned, counted;

static void count_trouble(void *data, const dur_log_record *record) {
    (void)data;
    if (record->level != DUR_LOG_WARN || strstr(record->message, "no space left") == NULL) return;
    atomic_fetch_add(&warned, 1);
    if (strstr(record->message, "more since this was last said") != NULL) atomic_fetch_add(&counted, 1);
}

/* Each round that commits fails once, and succeeds when it is tried again: every time it is news to the loop. */
static int full_round(dur_lane *lane, dur_arena *arena, dur_round *round, dur_error *err) {
    static atomic_uint rounds;
    if (round->turn_count > 0 && atomic_fetch_add(&rounds, 1) % 2 == 0 && fails_now(err)) return DUR_EFULL;
    return failing.inner->lane_round(lane, arena, round, err);
}

static void fault_h88_a_full_disk_is_said_once_and_counted(void **state) {
    world *w = *state;
    enum { STARTS = 20 };
    let_fail(w, 0);
    failing.table.lane_round = full_round;
    atomic_store(&warned, 0);
    atomic_store(&counted, 0);
    dur_log_set_sink(count_trouble, NULL, DUR_LOG_WARN);
    RUN(w, handlers);
    uint64_t begun_ms = now_ms();
    atomic_store(&failing.fail, 1000000);
    for (unsigned i = 0; i < STARTS || atomic_load(&counted) == 0; i++) { /* what was not said is counted */
        char id[32], *result = NULL;
        if (now_ms() - begun_ms > patience_ms()) fail_msg("nothing was counted");
        snprintf(id, sizeof(id), "full-%u", i);
        start(w, "InSession", "Note", id);
        OK(w, result_of(w, id, &result));
        dur_free(result);
    }
    /* Of both kinds, of rounds and of turns: at once, then after 1, 3, 7, … s. */
    unsigned said = atomic_load(&warned), most = 2;
    for (uint64_t ms = now_ms() - begun_ms, step = 1000; ms >= step; ms -= step, step *= 2)
        most += 2;
    atomic_store(&failing.fail, 0);
    print_message("%u of %u failures were said\n", said, atomic_load(&failing.failed));
    world_stop(w);
    dur_log_set_sink(NULL, NULL, DUR_LOG_WARN);
    failing.table.lane_round = failing.inner->lane_round;
    if (said > most) fail_msg("%u lines where %u are enough", said, most);
}

/* ---- H128: a stop is no answer of an activity ---- */

static atomic_uint begun;
static atomic_bool patient; /* nobody stops us any more */

/* As the guide says: it looks whether it is cancelled, and returns. */
static dur_outcome obeys(dur_act *act, const char *input) {
    atomic_fetch_add(&begun, 1);
    if (!atomic_load(&patient) && dur_act_sleep(act, AN_HOUR)) return dur_act_fail_final(act, "I was cancelled");
    return dur_act_complete(act, input);
}

static dur_outcome waits_for(dur_ctx *ctx, const char *session) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Obeys", "mine", .session = *session ? session : NULL)));
}

static const dur_handler obedient[] = {
    DUR_ACTIVITY("Obeys", obeys),
    DUR_ORCHESTRATION("WaitsFor", "1.0.0", waits_for),
    DUR_HANDLERS_END,
};

static void stop_in_the_middle(world *w, const char *session, bool evicts) {
    atomic_store(&begun, 0);
    atomic_store(&patient, false);
    RUN(w, obedient, .evict_every_turn = evicts, .worker_concurrency = 4);
    start(w, "WaitsFor", session, "a");
    start(w, "WaitsFor", session, "b");
    for (uint64_t end_ms = now_ms() + patience_ms(); atomic_load(&begun) < (*session ? 1 : 2); pause_ms(1))
        if (now_ms() > end_ms) fail_msg("the activities do not begin");
    OK(w, dur_runtime_stop(w->runtime, 0, &w->err));
    w->runtime = NULL;
    atomic_store(&patient, true);
    RUN(w, obedient);
    expect(w, "a", "mine");
    expect(w, "b", "mine");
}

static void fault_h128_a_stop_is_no_answer_of_an_activity(void **state) {
    stop_in_the_middle(*state, "", false);
}

static void fault_h128_nor_of_one_whose_instance_is_evicted(void **state) {
    stop_in_the_middle(*state, "", true);
}

static void fault_h128_nor_of_one_in_a_session(void **state) {
    stop_in_the_middle(*state, "s", false);
}

/* ---- a stop right behind a start ---- */

static void fault_h174_a_stop_behind_a_start_hides_no_timer(void **state) {
    enum { ROUNDS = 40 };
    world *w = *state;
    char id[32];
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(id, sizeof(id), "i-%d", i);
        RUN(w, handlers);
        start(w, "Sleeps", "slept", id);
        world_stop(w);
        OK(w, dur_provider_check(w->store, &w->err));
    }
    RUN(w, handlers);
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(id, sizeof(id), "i-%d", i);
        expect(w, id, "slept");
    }
}

static const struct CMUnitTest tests[] = {
    TEST(fault_h174_a_stop_behind_a_start_hides_no_timer),
    TEST(fault_h128_a_stop_is_no_answer_of_an_activity),
    TEST(fault_h128_nor_of_one_whose_instance_is_evicted),
    TEST(fault_h128_nor_of_one_in_a_session),
    TEST(fault_h48_work_that_cannot_be_kept_is_given_back_until_that_succeeds),
    TEST(fault_h48_a_goodbye_is_said_until_it_is_heard),
    TEST(fault_h22_a_dead_nodes_session_is_free_with_it),
    TEST(fault_h51_a_session_is_given_back_by_who_was_taken_over),
    TEST(fault_h88_a_full_disk_is_said_once_and_counted),
};

HOSTILE_MAIN(roles, tests)
