/*
 * crash_kill.c: processes that run orchestrations are killed with SIGKILL at random moments and started again.
 *
 * This process is the client: it starts instances and sends messages, and every call that returned DUR_OK must have its
 * effect.  The workers are this program again, executed with the file's name.  At the end everything must have finished
 * with the right result, each scheduled step must have exactly one completion, and the ledger that the activities write
 * in their own transactions must hold each step once: the first attempts of many steps write, and then fail or are not
 * heard of in time, so that a key which were not the same over attempts would stand there twice.
 *
 * A hundred kills, then everything is checked and a fresh file begins with the next seed, until all kills are done: 100
 * with one process and 100 with two in make test, 1,000 and 1,000 in make crash.  Each seed is printed;
 * DURITE_TEST_SEED=n begins with seed n.
 */
#include "crash/node_end.h"
#include <durite/sqlite.h>
#include <durite/sys/store.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { STEPS = 4, MESSAGES = 3, KILLS_PER_SEED = 100 };

#define PATIENT DUR_RETRY(.attempts_max = 50, .delay_ms = 5, .attempt_timeout_ms = 400)

static dur_outcome step(dur_act *act, const char *input) {
    dur_error err = DUR_ERROR_INIT;
    sqlite3 *db = dur_act_sqlite(act, &err);
    if (db == NULL || dur_sqlite_begin(dur_act_store(act), db, &err) != DUR_OK) return dur_act_fail(act, err.message);
    char *sql = sqlite3_mprintf("INSERT OR IGNORE INTO ledger(key) VALUES(%Q)", dur_act_key(act));
    bool written = sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK;
    sqlite3_free(sql);
    if (!written) {
        dur_sqlite_rollback(dur_act_store(act), db, NULL);
        return dur_act_fail(act, "ledger");
    }
    if (dur_sqlite_commit(dur_act_store(act), db, &err) != DUR_OK) return dur_act_fail(act, err.message);
    unsigned sum = 0;
    for (const char *at = input; *at != '\0'; at++)
        sum += (unsigned char)*at;
    if (dur_act_attempt(act) > 1 || sum % 4 != 0) return dur_act_complete(act, input);
    if (sum % 32 == 0) dur_act_sleep(act, DUR_SECONDS(60)); /* until the attempt's time is over */
    return dur_act_fail(act, "done, but nobody heard of it");
}

static dur_outcome child(dur_ctx *ctx, const char *input) {
    return dur_complete(ctx, dur_await(dur_activity(ctx, "Step", input, .retry = PATIENT)));
}

static dur_outcome work(dur_ctx *ctx, const char *input) {
    for (int i = 0; i < STEPS; i++) {
        char *expected = dur_format(ctx, "%s/%d", input, i);
        const char *got = dur_await(dur_activity(ctx, "Step", expected, .retry = PATIENT));
        if (strcmp(got, expected) != 0) return dur_failf(ctx, "step %d: %s", i, got);
    }
    dur_await(dur_timer(ctx, 2));
    dur_future *kid = dur_orchestration(ctx, "Child", input);
    for (int i = 0; i < MESSAGES; i++) {
        const char *got = dur_await(dur_message(ctx, "q"));
        if (strtol(got, NULL, 10) != i) return dur_failf(ctx, "message %d: %s", i, got);
    }
    if (strcmp(dur_await(kid), input) != 0) return dur_fail(ctx, "child");
    return dur_complete(ctx, "ok");
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Step", step),
    DUR_ORCHESTRATION("Child", "1.0.0", child),
    DUR_ORCHESTRATION("Work", "1.0.0", work),
    DUR_HANDLERS_END,
};

/* ---- the worker ---- */

static int worker_main(const char *url) {
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    dur_error err = DUR_ERROR_INIT;
    node_listen();
    if (dur_open(&store, url, &err) != DUR_OK ||
        /* On a busy machine one instance may be hit many times before it commits; none of it is its own fault. */
        dur_runtime_start(&runtime, DUR_RUNTIME(.store = store, .handlers = handlers, .max_attempts = 1000), &err) !=
            DUR_OK) {
        fprintf(stderr, "worker: %s: %s\n", err.op, err.message);
        return 1;
    }
    for (;; pause_ms(10))
        node_end_if_told(runtime);
}

static pid_t worker_spawn(const char *url) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves nobody behind */
        execl("/proc/self/exe", "crash_kill", "--worker", url, (char *)NULL);
        _exit(127);
    }
    return pid;
}

static void worker_kill(pid_t pid) {
    int status = 0;
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    if (!WIFSIGNALED(status)) fail_msg("a worker ended by itself with status %d", status);
}

/* ---- the client ---- */

static uint64_t now_us(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

static void ledger_create(world *w) {
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(w->url + strlen("sqlite:"), &db), SQLITE_OK);
    OK(w, dur_sqlite_begin(w->store, db, &w->err));
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE ledger(key TEXT PRIMARY KEY)", NULL, NULL, NULL), SQLITE_OK);
    OK(w, dur_sqlite_commit(w->store, db, &w->err));
    sqlite3_close(db);
}

static void start_one(world *w, size_t number) {
    char id[32];
    snprintf(id, sizeof(id), "w-%zu", number);
    OK(w, dur_client_start(w->client, &w->err, "Work", id, .instance = id));
    for (int i = 0; i < MESSAGES; i++) {
        char data[16];
        snprintf(data, sizeof(data), "%d", i);
        OK(w, dur_client_send(w->client, &w->err, id, "q", data));
    }
}

static uint64_t completed(world *w, uint64_t *running) {
    dur_store_counts counts = { .size = sizeof(counts) };
    OK(w, dur_client_counts(&counts, w->client, &w->err));
    *running = counts.running;
    return counts.completed;
}

/* Each schedule has exactly one completion, ids are dense; how many activities completed. */
static size_t check_history(world *w, dur_arena *arena, const char *instance) {
    dur_event *events = NULL;
    size_t count = 0, completions = 0;
    OK(w, dur_store_read_events(w->store, arena, instance, 0, &events, &count, &w->err));
    unsigned char *seen = dur_arena_zalloc(arena, count + 1);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(events[i].event_id, i + 1);
        if (events[i].kind != DUR_EVENT_ACTIVITY_COMPLETED) continue;
        assert_in_range(events[i].source_event_id, 1, count);
        assert_int_equal(seen[events[i].source_event_id]++, 0);
        completions++;
    }
    return completions;
}

static void check_everything(world *w, size_t instances) {
    dur_arena *arena = dur_arena_new();
    size_t steps = 0;
    dur_instance_list *list = NULL;
    for (size_t i = 0; i < instances; i++) {
        char id[32];
        snprintf(id, sizeof(id), "w-%zu", i);
        expect(w, id, "ok");
    }
    OK(w, dur_client_list(&list, w->client, DUR_LIST(.limit = 100000), &w->err));
    for (size_t i = 0; i < list->count; i++) {
        steps += check_history(w, arena, list->items[i]->instance);
        dur_arena_reset(arena);
    }
    assert_int_equal(list->count, instances * 2);
    dur_instance_list_free(list);
    dur_arena_free(arena);

    sqlite3 *db = NULL;
    sqlite3_stmt *count = NULL;
    assert_int_equal(sqlite3_open_v2(w->url + strlen("sqlite:"), &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT count(*) FROM ledger", -1, &count, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(count), SQLITE_ROW);
    assert_int_equal((size_t)sqlite3_column_int64(count, 0), steps);
    sqlite3_finalize(count);
    sqlite3_close(db);
    OK(w, dur_provider_check(w->store, &w->err));
}

typedef struct recovery {
    uint64_t count, sum_us, max_us; /* from the restart to the next completion */
} recovery;

static void kill_at_random(world *w, unsigned seed, size_t processes, size_t kills, recovery *total) {
    size_t instances = 0;
    pid_t workers[4];
    ledger_create(w);
    for (size_t i = 0; i < processes; i++)
        workers[i] = worker_spawn(w->url);
    for (size_t k = 0; k < kills; k++) {
        for (int i = 0; i < 5; i++)
            start_one(w, instances++);
        /* mostly in the midst of starting up and recovering, sometimes in the midst of work */
        pause_ms((long)(rand_r(&seed) % (k % 3 == 0 ? 200 : 40)));
        size_t victim = (size_t)rand_r(&seed) % processes;
        worker_kill(workers[victim]);
        uint64_t running = 0, before = completed(w, &running), begin = now_us();
        workers[victim] = worker_spawn(w->url);
        if (k % 5 != 0 || running == 0) continue;
        while (completed(w, &running) == before)
            pause_ms(1);
        uint64_t took = now_us() - begin;
        total->sum_us += took;
        total->count++;
        if (took > total->max_us) total->max_us = took;
    }
    check_everything(w, instances);
    for (size_t i = 0; i < processes; i++)
        node_end(workers[i]);
}

static void kills_over_seeds(void **state, size_t processes) {
    const char *seed_text = getenv("DURITE_TEST_SEED");
    unsigned seed = seed_text != NULL ? (unsigned)strtoul(seed_text, NULL, 10) : (unsigned)now_us();
    size_t kills = scaled(100, 5), done = 0;
    recovery total = { 0, 0, 0 };
    while (done < kills) {
        size_t now = kills - done < KILLS_PER_SEED ? kills - done : KILLS_PER_SEED;
        fprintf(stderr, "%zu process%s, seed %u: ", processes, processes == 1 ? "" : "es", seed);
        kill_at_random(*state, seed++, processes, now, &total);
        done += now;
        fprintf(stderr, "%zu of %zu kills, nothing lost, nothing recorded twice, nothing stuck\n", done, kills);
        if (done == kills) break;
        world_teardown(state);
        assert_int_equal(world_setup(state), 0);
    }
    print_message("%zu kills of %zu process%s; from restart to the next completion: mean %llu ms, max %llu ms\n", kills,
                  processes, processes == 1 ? "" : "es",
                  (unsigned long long)(total.sum_us / (total.count ? total.count : 1) / 1000),
                  (unsigned long long)(total.max_us / 1000));
}

static void one_process_killed_at_random(void **state) {
    kills_over_seeds(state, 1);
}
static void two_processes_killed_at_random(void **state) {
    kills_over_seeds(state, 2);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "--worker") == 0) return worker_main(argv[2]);
    setenv("DURITE_TEST_URL", "sqlite:", 1);
    const struct CMUnitTest tests[] = {
        TEST(one_process_killed_at_random),
        TEST(two_processes_killed_at_random),
    };
    return cmocka_run_group_tests_name("crash_kill", tests, NULL, NULL);
}
