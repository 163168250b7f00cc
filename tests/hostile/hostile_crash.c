/*
 * hostile_crash.c: what happens after a crash: who runs again, at once or alone, and who is given up.
 *
 * Nodes are this program again; activities and handlers of theirs kill the process.  What ran is in a ledger, one line
 * each ("begin NAME"), because a process that dies says nothing else.  Stores that live in one process have no crash.
 */
#include "hostile.h"

enum { ATTEMPTS = 3, WORKERS = 16 };

/* ---- the ledger ---- */

static char folder[100];

static void ledger_path(char out[160], const char *name) {
    const char *dir = getenv("HOSTILE_FOLDER");
    snprintf(out, 160, "%s/%s", dir != NULL ? dir : folder, name);
}

static void note(const char *what, const char *name) {
    char line[160], path[160];
    int size = snprintf(line, sizeof(line), "%s %s \n", what, name);
    ledger_path(path, "ledger");
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, line, (size_t)size) != size) abort();
    close(fd);
}

/* How many lines begin so. */
static size_t lines_of(const char *begin) {
    char line[256], path[160];
    size_t found = 0;
    ledger_path(path, "ledger");
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        found += strncmp(line, begin, strlen(begin)) == 0;
    if (file != NULL) fclose(file);
    return found;
}

static void until_lines(const char *begin, size_t count) {
    for (uint64_t waited_ms = 0; lines_of(begin) < count; waited_ms += 5) {
        if (waited_ms > patience_ms()) fail_msg("\"%s\" %zu times, wanted %zu", begin, lines_of(begin), count);
        pause_ms(5);
    }
}

static bool gate_is_open(void) {
    char path[160];
    ledger_path(path, "open");
    return access(path, F_OK) == 0;
}

static int crash_setup(void **state) {
    temporary_path(folder, sizeof(folder), "durite-crash-XXXXXX");
    if (mkdtemp(folder) == NULL) return -1;
    setenv("HOSTILE_FOLDER", folder, 1);
    return world_setup(state);
}

static int crash_teardown(void **state) {
    char command[160];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    int code = world_teardown(state);
    return system(command) == 0 ? code : -1;
}

#define CRASH_TEST(name) cmocka_unit_test_setup_teardown(name, crash_setup, crash_teardown)

/* ---- handlers ---- */

static dur_outcome die(void) {
    raise(SIGKILL);
    abort();
}

/* Ends when the test opens the gate. */
static dur_outcome gated(dur_act *act, const char *input) {
    note("begin", input);
    while (!gate_is_open() && !dur_act_cancelled(act))
        pause_ms(2);
    note("end", input);
    return dur_act_complete(act, input);
}

/* "NAME MILLISECONDS" */
static dur_outcome takes(dur_act *act, const char *input) {
    note("begin", input);
    pause_ms(strtol(strchr(input, ' ') + 1, NULL, 10));
    return dur_act_complete(act, input);
}

static dur_outcome crashes(dur_act *act, const char *input) {
    (void)act;
    note("begin", input);
    return die();
}

static dur_outcome crashes_late(dur_act *act, const char *input) {
    (void)act;
    note("begin", input);
    pause_ms(strtol(strchr(input, ' ') + 1, NULL, 10));
    return die();
}

/* The activity's name is what stands before the colon; what follows is its input. */
static dur_outcome calls(dur_ctx *ctx, const char *input) {
    char name[64];
    const char *colon = strchr(input, ':');
    snprintf(name, sizeof(name), "%.*s", (int)(colon - input), input);
    return dur_complete(ctx, dur_await(dur_activity(ctx, name, colon + 1)));
}

/* More than all workers have room for. */
enum { OTHERS = 12 * WORKERS };
static dur_outcome fans(dur_ctx *ctx, const char *input) {
    dur_future *all[OTHERS];
    for (size_t i = 0; i < OTHERS; i++)
        all[i] = dur_activity(ctx, "Takes", input);
    dur_join_n(all, OTHERS);
    return dur_complete(ctx, "all");
}

static dur_outcome handler_crashes(dur_ctx *ctx, const char *input) {
    (void)ctx;
    note("begin", input);
    return die();
}

/* Crashes behind a wait: its first turn is committed. */
static dur_outcome handler_crashes_later(dur_ctx *ctx, const char *input) {
    (void)dur_await(dur_activity(ctx, "Takes", "before 1"));
    note("begin", input);
    return die();
}

static dur_outcome refund(dur_act *act, const char *input) {
    note("refund", input);
    return dur_act_complete(act, input);
}

static dur_outcome saga(dur_ctx *ctx, const char *input) {
    dur_saga *steps = dur_saga_begin(ctx);
    (void)dur_await(dur_activity(ctx, "Takes", "charge 1"));
    dur_saga_undo(steps, "Refund", input);
    dur_future *ship = dur_activity(ctx, "Crashes", input, .retry = DUR_RETRY(.attempts_max = 5));
    dur_code code = dur_try(ship, NULL);
    if (code == DUR_OK) return dur_complete(ctx, "shipped");
    (void)dur_saga_compensate(steps);
    char text[512];
    snprintf(text, sizeof(text), "%s: %.400s", dur_code_name(code), dur_reason(ship));
    return dur_complete(ctx, text);
}

/* A child that is given up is the parent's to judge, too. */
static dur_outcome parent_of_a_crasher(dur_ctx *ctx, const char *input) {
    dur_future *child = dur_orchestration(ctx, "HandlerCrashesLater", input);
    dur_code code = dur_try(child, NULL);
    char text[512];
    snprintf(text, sizeof(text), "%s: %.400s", dur_code_name(code), dur_reason(child));
    return dur_complete(ctx, text);
}

static const dur_handler handlers[] = {
    DUR_ACTIVITY("Gated", gated),
    DUR_ACTIVITY("Takes", takes),
    DUR_ACTIVITY("Crashes", crashes),
    DUR_ACTIVITY("CrashesLate", crashes_late),
    DUR_ACTIVITY("Refund", refund),
    DUR_ORCHESTRATION("Calls", "1.0.0", calls),
    DUR_ORCHESTRATION("Fans", "1.0.0", fans),
    DUR_ORCHESTRATION("HandlerCrashes", "1.0.0", handler_crashes),
    DUR_ORCHESTRATION("HandlerCrashesLater", "1.0.0", handler_crashes_later),
    DUR_ORCHESTRATION("Saga", "1.0.0", saga),
    DUR_ORCHESTRATION("Parent", "1.0.0", parent_of_a_crasher),
    DUR_HANDLERS_END,
};

/* ---- nodes ---- */

static int run_node(const char *url, long alone_ms, bool starts) {
    dur_provider *store = NULL;
    dur_runtime *runtime = NULL;
    dur_client *client = NULL;
    dur_error err = DUR_ERROR_INIT;
    if (dur_open(&store, url, &err) != DUR_OK) return 2;
    dur_runtime_options options = { .size = sizeof(options),
                                    .store = store,
                                    .handlers = handlers,
                                    .worker_concurrency = WORKERS,
                                    .owner_timeout_ms = 3000,
                                    .max_attempts = ATTEMPTS,
                                    .suspect_alone_ms = (uint64_t)alone_ms };
    if (dur_client_new(&client, store, &err) != DUR_OK) return 3;
    if (dur_runtime_start(&runtime, &options, &err) != DUR_OK) return 4;
    /* A program that begins with a start of its own, each time that it begins and as soon as its runtime is at rest. */
    if (starts) pause_ms(100);
    if (starts) (void)dur_client_start(client, &err, "HandlerCrashes", "boot", .instance = "boot");
    for (;;)
        pause_ms(1000);
}

/* number: how long a suspect runs alone at first, ms; 0: as by default. */
static int role_run(const char *url, long number) {
    return run_node(url, number, false);
}

static int role_starter(const char *url, long number) {
    return run_node(url, number, true);
}

static const hostile_role roles[] = { { "run", role_run }, { "starter", role_starter } };

static void processes_or_skip(void) {
    if (on_provider("memory:")) skip(); /* it dies with its process */
}

/* True: the instance has ended. */
static bool ended(world *w, const char *instance) {
    dur_instance_info *info = NULL;
    if (dur_client_info(&info, w->client, instance, NULL) != DUR_OK) return false;
    bool over = info->status == DUR_INSTANCE_FAILED || info->status == DUR_INSTANCE_COMPLETED;
    dur_instance_info_free(info);
    return over;
}

static bool all_ended(world *w, const char *const *instances) {
    for (size_t i = 0; instances[i] != NULL; i++)
        if (!ended(w, instances[i])) return false;
    return true;
}

/* Restart nodes as a supervisor would, until all of these have ended; how often one of them died. */
static size_t supervise(world *w, const char *role, long number, size_t nodes, const char *const *until) {
    pid_t pids[4] = { 0 };
    size_t died = 0;
    for (uint64_t waited_ms = 0; !all_ended(w, until); waited_ms += 5) {
        for (size_t i = 0; i < nodes; i++) {
            int status = 0;
            if (pids[i] != 0 && !node_gone(pids[i], &status)) continue;
            if (pids[i] != 0) {
                assert_true(WIFSIGNALED(status));
                died++;
            }
            pids[i] = node_spawn(role, w->url, number, -1);
        }
        if (died > 60) fail_msg("%zu crashes and no end", died);
        if (waited_ms > patience_ms()) fail_msg("no end after %zu crashes", died);
        pause_ms(5);
    }
    for (size_t i = 0; i < nodes; i++)
        if (pids[i] != 0) node_kill(pids[i]);
    return died;
}

static void start_innocents(world *w, const char *activity, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char id[32], input[64];
        snprintf(id, sizeof(id), "innocent-%zu", i);
        snprintf(input, sizeof(input), activity, i);
        start(w, "Calls", input, id);
    }
}

/* ---- the first redelivery ---- */

/* None of them ends before all have begun again: one at a time would never do. */
static void fault_h10_twelve_activities_run_again_at_once_after_kill_9(void **state) {
    enum { MANY = 12 };
    world *w = *state;
    processes_or_skip();
    for (int i = 0; i < MANY; i++) {
        char id[32], input[64];
        snprintf(id, sizeof(id), "long-%d", i);
        snprintf(input, sizeof(input), "Gated:g%d", i);
        start(w, "Calls", input, id);
    }
    pid_t node = node_spawn("run", w->url, 3600000, -1);
    until_lines("begin", MANY);
    node_kill(node);
    node = node_spawn("run", w->url, 3600000, -1);
    until_lines("begin", 2 * MANY);
    assert_int_equal(lines_of("end"), 0);
    file_touch(folder, "open");
    for (int i = 0; i < MANY; i++) {
        char id[32], result[32];
        snprintf(id, sizeof(id), "long-%d", i);
        snprintf(result, sizeof(result), "g%d", i);
        expect(w, id, result);
    }
    node_kill(node);
}

/* From the second crash on they run one at a time; who is no suspect waits for none of them. */
static void fault_h10_suspects_hold_up_nobody_else(void **state) {
    world *w = *state;
    processes_or_skip();
    start(w, "Calls", "Gated:a", "a");
    start(w, "Calls", "Gated:b", "b");
    for (size_t crash = 0; crash < 2; crash++) {
        pid_t node = node_spawn("run", w->url, 3600000, -1);
        until_lines("begin", 2 * (crash + 1));
        node_kill(node);
    }
    pid_t node = node_spawn("run", w->url, 3600000, -1);
    until_lines("begin", 5);
    for (int i = 0; i < 5; i++) {
        char id[32];
        snprintf(id, sizeof(id), "other-%d", i);
        start(w, "Calls", "Takes:other 1", id);
        expect(w, id, "other 1");
    }
    assert_int_equal(lines_of("begin a") + lines_of("begin b"), 5); /* one of them runs alone */
    file_touch(folder, "open");
    expect(w, "a", "a");
    expect(w, "b", "b");
    node_kill(node);
}

/* ---- innocents beside a crasher ---- */

enum { INNOCENTS = 6 };

/* Whoever crashes is given up in the end, and nobody else is. */
static void mix(world *w, const char *const *crashers, const char *innocent, size_t nodes, long alone_ms, size_t runs) {
    const char *ids[INNOCENTS + 4] = { NULL };
    char names[INNOCENTS][32];
    size_t count = 0;
    for (size_t i = 0; crashers[2 * i] != NULL; i++)
        ids[count++] = crashers[2 * i + 1];
    start_innocents(w, innocent, INNOCENTS);
    for (size_t i = 0; i < INNOCENTS; i++) {
        snprintf(names[i], sizeof(names[i]), "innocent-%zu", i);
        ids[count++] = names[i];
    }
    for (size_t i = 0; crashers[2 * i] != NULL; i++) {
        bool activity = strchr(crashers[2 * i], ':') != NULL;
        start(w, activity ? "Calls" : crashers[2 * i], activity ? crashers[2 * i] : "crasher", crashers[2 * i + 1]);
    }
    size_t died = supervise(w, "run", alone_ms, nodes, ids);
    print_message("%zu crashes\n", died);
    for (size_t i = 0; i < INNOCENTS; i++) {
        char begin[64], *result = NULL;
        OK(w, result_of(w, names[i], &result));
        dur_free(result);
        snprintf(begin, sizeof(begin), "begin i%zu ", i);
        size_t ran = lines_of(begin);
        if (ran > runs) fail_msg("%s ran %zu times", names[i], ran);
    }
    for (size_t i = 0; crashers[2 * i] != NULL; i++)
        expect_failure(w, crashers[2 * i + 1], DUR_EFAILED, "ran 3 times and the process died each time");
}
#define CRASHERS(...) ((const char *const[]){ __VA_ARGS__, NULL, NULL })

/* Two crashes may hit an innocent, then it runs apart from the crasher. */
static void fault_h11_a_crashing_handler_takes_no_activity_with_it(void **state) {
    processes_or_skip();
    mix(*state, CRASHERS("HandlerCrashes", "c"), "Takes:i%zu 100", 1, 0, 3);
}

static void fault_h11_a_handler_that_crashes_later_takes_no_activity_with_it(void **state) {
    processes_or_skip();
    mix(*state, CRASHERS("HandlerCrashesLater", "c"), "Takes:i%zu 100", 1, 0, 4);
}

static void fault_h11_a_crashing_activity_takes_no_other_with_it(void **state) {
    processes_or_skip();
    mix(*state, CRASHERS("Crashes:crasher", "c"), "Takes:i%zu 100", 1, 0, 3);
}

static void fault_h11_crashers_of_both_kinds_take_nobody_with_them(void **state) {
    processes_or_skip();
    mix(*state, CRASHERS("Crashes:crasher", "c", "HandlerCrashes", "d"), "Takes:i%zu 100", 1, 0, 4);
}

static void fault_h11_crashers_on_two_nodes_take_nobody_with_them(void **state) {
    processes_or_skip();
    mix(*state, CRASHERS("Crashes:crasher", "c", "HandlerCrashes", "d"), "Takes:i%zu 100", 2, 0, 6);
}

/* Longer than the time alone, which doubles until it is long enough. */
static void fault_h52_a_long_activity_is_not_poisoned_beside_a_crasher(void **state) {
    processes_or_skip();
    mix(*state, CRASHERS("Crashes:crasher", "c"), "Takes:i%zu 400", 1, 50, 40);
}

static void fault_h52_a_late_crasher_is_caught(void **state) {
    processes_or_skip();
    mix(*state, CRASHERS("CrashesLate:crasher 200", "c"), "Takes:i%zu 100", 1, 50, 40);
}

/* ---- new crashers beside a suspect ---- */

/* A node under a supervisor: it begins again when it died. */
typedef struct kept_node {
    pid_t pid;
    long alone_ms;
    size_t died;
    size_t innocent; /* how often that one had begun when this node was started */
} kept_node;

static void keep_up(world *w, kept_node *node) {
    int status = 0;
    if (node->pid != 0 && !node_gone(node->pid, &status)) return;
    if (node->pid != 0) {
        assert_true(WIFSIGNALED(status));
        node->died++;
    }
    if (node->died > 100) fail_msg("%zu crashes and no end", node->died);
    node->innocent = lines_of("begin innocent");
    node->pid = node_spawn("run", w->url, node->alone_ms, -1);
}

static void until_died(world *w, kept_node *node, size_t times) {
    for (uint64_t waited_ms = 0; node->died < times; waited_ms += 5) {
        keep_up(w, node);
        if (waited_ms > patience_ms()) fail_msg("died %zu times, wanted %zu", node->died, times);
        pause_ms(5);
    }
}

/* In the node that lives now. */
static void until_innocent_runs(world *w, kept_node *node) {
    for (uint64_t waited_ms = 0; lines_of("begin innocent") <= node->innocent; waited_ms += 5) {
        if (ended(w, "innocent")) expect(w, "innocent", "innocent");
        keep_up(w, node);
        if (waited_ms > patience_ms()) fail_msg("it does not run again after %zu crashes", node->died);
        pause_ms(5);
    }
}

/* It ran in two crashes, and runs alone now. */
static void make_suspect(world *w, kept_node *node) {
    start(w, "Calls", "Gated:innocent", "innocent");
    for (size_t crash = 0; crash < 2; crash++) {
        keep_up(w, node);
        until_innocent_runs(w, node);
        node_kill(node->pid);
        node->pid = 0;
    }
    keep_up(w, node);
    until_innocent_runs(w, node);
}

/* Two crashes each: two are enough to reach ATTEMPTS. */
static size_t orders(void) {
    return scaled(ATTEMPTS + 1, 2);
}

/* Each order kills the process twice before it is a suspect itself, and with it what runs alone. */
static void fault_h65_new_crashers_do_not_poison_a_suspect(void **state) {
    world *w = *state;
    kept_node node = { .alone_ms = 3600000 };
    char id[32], input[48];
    processes_or_skip();
    make_suspect(w, &node);
    for (size_t i = 0; i < orders(); i++) {
        snprintf(id, sizeof(id), "bad-%zu", i);
        snprintf(input, sizeof(input), "Crashes:%s", id);
        start(w, "Calls", input, id);
        until_died(w, &node, node.died + 2);
        until_innocent_runs(w, &node);
    }
    file_touch(folder, "open");
    for (uint64_t waited_ms = 0; !ended(w, "innocent"); waited_ms += 5) {
        keep_up(w, &node);
        if (waited_ms > patience_ms()) fail_msg("no end after %zu crashes", node.died);
        pause_ms(5);
    }
    expect(w, "innocent", "innocent");
    for (size_t i = 0; i < orders(); i++) {
        snprintf(id, sizeof(id), "bad-%zu", i);
        for (; !ended(w, id); pause_ms(5))
            keep_up(w, &node);
        expect_failure(w, id, DUR_EFAILED, "ran 3 times and the process died each time");
    }
    print_message("%zu crashes\n", node.died);
    node_kill(node.pid);
}

/* … nor does company that somebody takes away before it could be found out whose doing it was. */
static void fault_h65_company_that_is_taken_away_leaves_a_suspect_in_doubt(void **state) {
    world *w = *state;
    kept_node node = { .alone_ms = 3600000 };
    char id[32], input[48], begin[48];
    processes_or_skip();
    make_suspect(w, &node);
    for (size_t i = 0; i < 2 * orders(); i++) {
        snprintf(id, sizeof(id), "company-%zu", i);
        snprintf(input, sizeof(input), "Gated:%s", id);
        snprintf(begin, sizeof(begin), "begin %s ", id);
        start(w, "Calls", input, id);
        until_lines(begin, 1);
        node_kill(node.pid);
        node.pid = 0;
        keep_up(w, &node);
        until_lines(begin, 2); /* so the crash is counted */
        until_innocent_runs(w, &node);
        if (i % 2 == 0)
            OK(w, dur_client_terminate(w->client, id, "enough", &w->err));
        else
            OK(w, dur_client_delete(NULL, w->client, id, true, &w->err));
    }
    file_touch(folder, "open");
    expect(w, "innocent", "innocent");
    node_kill(node.pid);
}

/* Whatever runs beside it all the time: who crashes is given up.  The others come as fast as they can end. */
static void fault_h65_a_crasher_is_stopped_under_load(void **state) {
    enum { BESIDE = 8 };
    world *w = *state;
    kept_node node = { 0 };
    size_t load = 0;
    char id[32];
    processes_or_skip();
    start(w, "Calls", "CrashesLate:crasher 20", "c");
    while (!ended(w, "c")) {
        keep_up(w, &node);
        pause_ms(3);
        snprintf(id, sizeof(id), "load-%zu", load >= BESIDE ? load - BESIDE : 0);
        if (load >= BESIDE && !ended(w, id)) continue;
        snprintf(id, sizeof(id), "load-%zu", load++);
        start(w, "Calls", "Takes:load 5", id);
    }
    print_message("%zu crashes, %zu others\n", node.died, load);
    expect_failure(w, "c", DUR_EFAILED, "ran 3 times and the process died each time");
    for (size_t i = 0; i < load; i++) {
        snprintf(id, sizeof(id), "load-%zu", i);
        expect(w, id, "load 5");
    }
    node_kill(node.pid);
}

/* In each crash something ran beside the crasher that had never run before: what ran there ends all the same, between
   two crashes, and so it is found out who it was. */
static void fault_h86_a_crasher_is_stopped_under_more_load_than_ends(void **state) {
    enum { BESIDE = 6, CRASHES_MAX = 2 + 4 * ATTEMPTS };
    world *w = *state;
    kept_node node = { 0 };
    size_t load = 0, running = 0, lives = 0;
    char id[32];
    processes_or_skip();
    start(w, "HandlerCrashes", "crasher", "c");
    while (!ended(w, "c")) {
        if (node.died > CRASHES_MAX) fail_msg("%zu crashes and no end", node.died);
        snprintf(id, sizeof(id), "load-%zu", running);
        if (node.died + 1 != lives)
            running = load; /* from here on none has been in a crash */
        else if (running < load && ended(w, id))
            running++;
        lives = node.died + 1;
        for (; load < running + BESIDE; load++) {
            snprintf(id, sizeof(id), "load-%zu", load);
            start(w, "Calls", "Takes:load 40", id);
        }
        keep_up(w, &node);
        pause_ms(2);
    }
    print_message("%zu crashes, %zu others\n", node.died, load);
    expect_failure(w, "c", DUR_EFAILED, "ran 3 times and the process died each time");
    for (size_t i = 0; i < load; i++) {
        snprintf(id, sizeof(id), "load-%zu", i);
        expect(w, id, "load 40");
    }
    node_kill(node.pid);
}

/* How many lines that begin with the one stand in front of the last that begins with the other. */
static size_t lines_before(const char *begin, const char *last) {
    char line[256], path[160];
    size_t found = 0, before = 0;
    ledger_path(path, "ledger");
    FILE *file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        found += strncmp(line, begin, strlen(begin)) == 0;
        if (strncmp(line, last, strlen(last)) == 0) before = found;
    }
    if (file != NULL) fclose(file);
    return before;
}

/* Whatever else waits: suspects are not behind all of that. */
static void fault_h87_suspects_get_their_turn_beside_more_work_than_workers(void **state) {
    enum { SUSPECTS = 3 };
    world *w = *state;
    processes_or_skip();
    for (size_t i = 0; i < SUSPECTS; i++) {
        char id[32];
        snprintf(id, sizeof(id), "innocent-%zu", i);
        start(w, "Calls", "Gated:innocent", id);
    }
    for (size_t crash = 1; crash <= 2; crash++) {
        pid_t node = node_spawn("run", w->url, 3600000, -1);
        until_lines("begin innocent", crash * SUSPECTS);
        if (crash == 2) {
            /* Still there when the death is known. */
            start(w, "Fans", on_provider("postgres") ? "other 400" : "other 40", "others");
            until_history(w, "others", "\"ActivityScheduled\"", OTHERS);
        }
        node_kill(node);
    }
    size_t done = lines_of("begin other");
    file_touch(folder, "open");
    pid_t node = node_spawn("run", w->url, 3600000, -1);
    expect(w, "others", "all");
    until_lines("begin innocent", 3 * SUSPECTS);
    size_t before = lines_before("begin other", "begin innocent") - done;
    print_message("%zu of %zu before the last of them\n", before, lines_of("begin other") - done);
    assert_true(before + 2 * WORKERS <= OTHERS);
    node_kill(node);
}

/* ---- no trace ---- */

static void fault_h12_a_handler_that_crashes_in_its_first_turn_is_stopped(void **state) {
    world *w = *state;
    processes_or_skip();
    size_t died = supervise(w, "starter", 0, 1, (const char *const[]){ "boot", NULL });
    assert_in_range(died, ATTEMPTS, 2 * ATTEMPTS + 2);
    expect_failure(w, "boot", DUR_EFAILED, "ran 3 times and the process died each time");
}

/* Also where a peer has found the death first, and the node that begins finds nobody dead. */
static void fault_h72_so_it_is_where_a_peer_found_the_death(void **state) {
    static const dur_handler others[] = { DUR_ACTIVITY("Other", takes), DUR_HANDLERS_END };
    world *w = *state;
    size_t died = 0;
    processes_or_skip();
    RUN(w, others, .owner_timeout_ms = 3000);
    for (; !ended(w, "boot"); died++) {
        if (died > 2 * ATTEMPTS + 2) fail_msg("%zu crashes and no end", died);
        pid_t node = node_spawn("starter", w->url, 0, -1);
        for (int status = 0; !node_gone(node, &status); pause_ms(5)) {
            if (!ended(w, "boot")) continue;
            node_kill(node);
            break;
        }
        dur_metrics metrics = { .size = sizeof(metrics) };
        for (uint64_t waited_ms = 0; metrics.take_overs <= died; waited_ms += 5) {
            if (waited_ms > patience_ms()) fail_msg("a death that nobody finds");
            OK(w, dur_runtime_metrics(&metrics, w->runtime, &w->err));
            pause_ms(5);
        }
    }
    expect_failure(w, "boot", DUR_EFAILED, "ran 3 times and the process died each time");
}

/* ---- the handler decides ---- */

static void fault_h13_a_poisoned_activity_is_its_handlers_to_judge(void **state) {
    world *w = *state;
    char *result = NULL;
    processes_or_skip();
    start(w, "Saga", "order", "s");
    (void)supervise(w, "run", 0, 1, (const char *const[]){ "s", NULL });
    OK(w, result_of(w, "s", &result));
    if (strstr(result, "DUR_EPOISON: ") != result) fail_msg("%s", result);
    if (strstr(result, "ran 3 times and the process died each time") == NULL) fail_msg("%s", result);
    dur_free(result);
    assert_int_equal(lines_of("refund order"), 1);
    /* Twice in company, three times alone; a retry policy does not begin it again. */
    assert_int_equal(lines_of("begin order"), ATTEMPTS + 2);
}

static void fault_h13_a_poisoned_child_is_its_parents_to_judge(void **state) {
    world *w = *state;
    char *result = NULL;
    processes_or_skip();
    start(w, "Parent", "child", "p");
    (void)supervise(w, "run", 0, 1, (const char *const[]){ "p", NULL });
    OK(w, result_of(w, "p", &result));
    if (strstr(result, "DUR_EPOISON: ") != result) fail_msg("%s", result);
    if (strstr(result, "ran 3 times and the process died each time") == NULL) fail_msg("%s", result);
    dur_free(result);
}

/* Those that take longest first (run_all_apart). */
static const struct CMUnitTest tests[] = {
    CRASH_TEST(fault_h52_a_long_activity_is_not_poisoned_beside_a_crasher),
    CRASH_TEST(fault_h52_a_late_crasher_is_caught),
    CRASH_TEST(fault_h65_new_crashers_do_not_poison_a_suspect),
    CRASH_TEST(fault_h65_company_that_is_taken_away_leaves_a_suspect_in_doubt),
    CRASH_TEST(fault_h86_a_crasher_is_stopped_under_more_load_than_ends),
    CRASH_TEST(fault_h65_a_crasher_is_stopped_under_load),
    CRASH_TEST(fault_h87_suspects_get_their_turn_beside_more_work_than_workers),
    CRASH_TEST(fault_h10_twelve_activities_run_again_at_once_after_kill_9),
    CRASH_TEST(fault_h10_suspects_hold_up_nobody_else),
    CRASH_TEST(fault_h11_a_crashing_handler_takes_no_activity_with_it),
    CRASH_TEST(fault_h11_a_handler_that_crashes_later_takes_no_activity_with_it),
    CRASH_TEST(fault_h11_a_crashing_activity_takes_no_other_with_it),
    CRASH_TEST(fault_h11_crashers_of_both_kinds_take_nobody_with_them),
    CRASH_TEST(fault_h11_crashers_on_two_nodes_take_nobody_with_them),
    CRASH_TEST(fault_h72_so_it_is_where_a_peer_found_the_death),
    CRASH_TEST(fault_h12_a_handler_that_crashes_in_its_first_turn_is_stopped),
    CRASH_TEST(fault_h13_a_poisoned_activity_is_its_handlers_to_judge),
    CRASH_TEST(fault_h13_a_poisoned_child_is_its_parents_to_judge),
};

/*
 * On PostgreSQL a death is known a second and a half later, and nearly all of these tests' time is that wait: each runs
 * in a process of its own, several at a time.
 */
enum { AT_A_TIME = 12, TESTS = sizeof(tests) / sizeof(tests[0]) };

static pid_t run_apart(const char *name, int out) {
    pid_t parent = getpid(), pid = fork();
    if (pid != 0) return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(127);
    setenv("DURITE_TEST_ONLY", name, 1);
    dup2(out, 1);
    dup2(out, 2);
    execl("/proc/self/exe", "hostile_crash", (char *)NULL);
    _exit(127);
}

/* What each has printed, one after the other: every one is a plan of one test. */
static int run_all_apart(void) {
    FILE *out[TESTS] = { NULL };
    pid_t pids[TESTS] = { 0 };
    int failed = 0;
    for (size_t i = 0; i < TESTS + AT_A_TIME; i++) {
        if (i >= AT_A_TIME && i - AT_A_TIME < TESTS) failed += node_wait(pids[i - AT_A_TIME]) != 0;
        if (i >= TESTS) continue;
        out[i] = tmpfile();
        if (out[i] == NULL || (pids[i] = run_apart(tests[i].name, fileno(out[i]))) < 0) return 1;
    }
    for (size_t i = 0; i < TESTS; i++) {
        char line[1024];
        rewind(out[i]);
        while (fgets(line, sizeof(line), out[i]) != NULL)
            fputs(line, stdout);
        fclose(out[i]);
    }
    return failed != 0;
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "--node") == 0) return hostile_role_run(roles, 2, argv);
    if (on_provider("postgres") && getenv("DURITE_TEST_ONLY") == NULL) return run_all_apart();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
