/*
 * test_sqlite_processes.c: several processes on one file: wake-ups, fairness, death and what is left of it.
 *
 * The program runs itself as the other process: argv[1] says what that one does.
 */
#include "sqlite_test.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

static char self_path[512];

typedef struct child {
    pid_t pid;
    FILE *out;
} child;

static child spawn(const char *role, const char *url, const char *argument) {
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], 1);
        close(fds[0]);
        close(fds[1]);
        execl(self_path, self_path, role, url, argument, (char *)NULL);
        _exit(127);
    }
    close(fds[1]);
    return (child){ pid, fdopen(fds[0], "r") };
}

static void wait_for(child *c, const char *word) {
    char line[128] = "";
    while (fgets(line, sizeof line, c->out) != NULL)
        if (strncmp(line, word, strlen(word)) == 0) return;
    fail_msg("the child ended before it said %s", word);
}

static void finish(child *c, int signal) {
    int status;
    if (signal != 0) kill(c->pid, signal);
    waitpid(c->pid, &status, 0);
    fclose(c->out);
}

/* ---- what the other process does ---- */

static int role_raise(fixture *f, int count) {
    for (int i = 0; i < count; i++) {
        char data[32];
        snprintf(data, sizeof data, "%d", i);
        dur_message_row message = raised_of(f, "a", data);
        if (dur_store_enqueue_existing(f->store, &message, 0, &f->err) != DUR_OK) return 1;
    }
    return 0;
}

/* Say each id when it is durable. */
static int role_start(fixture *f) {
    for (int i = 0;; i++) {
        char id[32];
        snprintf(id, sizeof id, "i%d", i);
        dur_message_row message = start_of(f, id);
        if (dur_store_enqueue_for_orchestrator(f->store, &message, 0, &f->err) != DUR_OK) return 1;
        printf("%d\n", i);
        fflush(stdout);
        dur_arena_reset(f->arena);
    }
}

static int role_busy(fixture *f) {
    printf("ready\n");
    fflush(stdout);
    for (int i = 0;; i++) {
        char id[32];
        snprintf(id, sizeof id, "busy%d", i);
        dur_message_row message = start_of(f, id);
        if (dur_store_enqueue_for_orchestrator(f->store, &message, 0, &f->err) != DUR_OK) return 1;
        dur_arena_reset(f->arena);
    }
}

/* Hold a lease, leave a forked child behind that lives longer, and wait to be killed. */
static int role_hold(fixture *f) {
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = NULL;
    dur_owner_options holder = { .owner = "holder", .timeout_ms = DUR_HOURS(1) }; /* only its lock tells of its death */
    OK(f, dur_store_owner_register(f->store, &holder, &f->err));
    OK(f, dur_store_lane_open(f->store, &(dur_lane_options){ .owner = "holder", .waker = waker }, &lane, &f->err));
    park(f, lane, "holder", "held");
    pid_t left = fork();
    if (left == 0) {
        close(1);
        for (;;)
            pause();
    }
    printf("ready %d\n", (int)left);
    fflush(stdout);
    while (getppid() != 1)
        pause();
    return 0;
}

static int role_main(char **argv) {
    fixture f = { .store = NULL };
    f.arena = dur_arena_new();
    if (dur_open(&f.store, argv[2], &f.err) != DUR_OK) return 2;
    int code = 3;
    if (strcmp(argv[1], "raise") == 0) code = role_raise(&f, atoi(argv[3]));
    if (strcmp(argv[1], "start") == 0) code = role_start(&f);
    if (strcmp(argv[1], "busy") == 0) code = role_busy(&f);
    if (strcmp(argv[1], "hold") == 0) code = role_hold(&f);
    dur_provider_close(f.store);
    dur_arena_free(f.arena);
    return code;
}

/* ---- tests ---- */

static void messages_from_another_process_reach_a_parked_instance(void **state) {
    fixture *f = *state;
    enum { COUNT = 40 };
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    park(f, lane, "o1", "a");
    child other = spawn("raise", f->url, "40");
    size_t got = 0;
    while (got < COUNT) {
        OK(f, dur_store_lane_wait(lane, DUR_HOURS(1), &f->err)); /* no polling: it must be woken */
        dur_round round = { .turn_count = 0 };
        OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
        for (size_t i = 0; i < round.held_count; i++, got++) {
            char part[32];
            snprintf(part, sizeof part, "\"data\":\"%zu\"", got); /* each once, in order */
            assert_non_null(strstr(round.held[i].message.json.data, part));
        }
    }
    assert_int_equal(got, COUNT);
    finish(&other, 0);
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

static void the_dead_are_recognised_at_once_though_their_child_lives(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    child other = spawn("hold", f->url, "");
    char line[64] = "";
    assert_non_null(fgets(line, sizeof line, other.out));
    int left = atoi(line + 6);
    assert_true(left > 0);
    dur_fetch fetch = { .owner = "o1", .max = 1 };
    dur_round before = { .fetch = &fetch };
    OK(f, dur_store_lane_round(lane, f->arena, &before, &f->err));
    assert_int_equal(before.item_count, 0);
    dur_message_row message = raised_of(f, "held", "go");
    OK(f, dur_store_enqueue_existing(f->store, &message, 0, &f->err)); /* leased: only the queue knows */
    finish(&other, SIGKILL);
    size_t items = 0;
    while (items == 0) { /* the heartbeat would need an hour */
        OK(f, dur_store_lane_wait(lane, 1000, &f->err));
        dur_round round = { .fetch = &fetch };
        OK(f, dur_store_lane_round(lane, f->arena, &round, &f->err));
        items = round.item_count;
        if (items > 0) assert_string_equal(round.items[0].instance, "held");
    }
    kill(left, SIGKILL);
    assert_int_equal(items, 1);
    dur_owner_report report;
    OK(f, dur_store_owner_beat(f->store, "o1", &report, &f->err));
    assert_int_equal(report.taken_over, 1);
    assert_string_equal(report.last_dead, "holder");
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

/* Two processes cannot be the same owner; one takes the name of another that is dead, and what that one held is free.
 */
static void a_name_is_taken_from_the_dead_only(void **state) {
    fixture *f = *state;
    dur_owner_options options = { .owner = "holder", .timeout_ms = DUR_HOURS(1) };
    dur_instance_row row;
    char line[64] = "";
    child other = spawn("hold", f->url, "");
    assert_non_null(fgets(line, sizeof line, other.out));
    dur_error_clear(&f->err);
    assert_int_equal(dur_store_owner_register(f->store, &options, &f->err), DUR_EEXISTS);
    OK(f, dur_store_get_instance(f->store, f->arena, "held", &row, &f->err));
    assert_string_equal(row.owner, "holder");
    finish(&other, SIGKILL);
    int code;
    do { /* its child, which has just been forked, may not have closed its copy of the file yet */
        dur_error_clear(&f->err);
        code = dur_store_owner_register(f->store, &options, &f->err);
    } while (code == DUR_EEXISTS);
    assert_int_equal(code, DUR_OK);
    kill(atoi(line + 6), SIGKILL);
    OK(f, dur_store_get_instance(f->store, f->arena, "held", &row, &f->err));
    assert_null(row.owner);
}

static void what_was_confirmed_survives_a_kill(void **state) {
    fixture *f = *state;
    dur_provider_close(f->store);
    f->store = NULL;
    child other = spawn("start", f->url, "");
    int last = -1;
    char line[32];
    while (last < 30 && fgets(line, sizeof line, other.out) != NULL)
        last = atoi(line);
    kill(other.pid, SIGKILL);
    while (fgets(line, sizeof line, other.out) != NULL)
        if (strchr(line, '\n') != NULL) last = atoi(line);
    finish(&other, 0);
    assert_true(last >= 30);
    OK(f, dur_open(&f->store, f->url, &f->err));
    OK(f, dur_store_check(f->store, &f->err));
    for (int i = 0; i <= last; i++) {
        dur_instance_row row;
        snprintf(line, sizeof line, "i%d", i);
        OK(f, dur_store_get_instance(f->store, f->arena, line, &row, &f->err));
    }
}

static int order(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void a_quiet_process_gets_its_turn_beside_a_busy_one(void **state) {
    fixture *f = *state;
    enum { CALLS = 40 };
    uint64_t took[CALLS];
    child busy = spawn("busy", f->url, "");
    wait_for(&busy, "ready");
    for (int i = 0; i < CALLS; i++) {
        char id[32];
        snprintf(id, sizeof id, "quiet%d", i);
        dur_message_row message = start_of(f, id);
        uint64_t begin = dur__monotonic_us();
        OK(f, dur_store_enqueue_for_orchestrator(f->store, &message, 0, &f->err));
        took[i] = dur__monotonic_us() - begin;
    }
    finish(&busy, SIGKILL);
    qsort(took, CALLS, sizeof took[0], order);
    print_message("quiet beside busy: p50 %llu us, max %llu us\n", (unsigned long long)took[CALLS / 2],
                  (unsigned long long)took[CALLS - 1]); /* judged by danger_process, where the machine is ours */
}

/* One that was stopped in front of a write transaction holds the gate for as long as it likes. */
static void nobody_waits_at_the_gate_for_ever(void **state) {
    fixture *f = *state;
    char path[400];
    snprintf(path, sizeof path, "%s.lock", f->path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    struct flock presence = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1 };
    struct flock gate = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1 };
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &presence), 0);
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &gate), 0);
    for (int i = 0; i < 100; i++) { /* a minute each would be the end of this test */
        char id[32];
        snprintf(id, sizeof id, "gate%d", i);
        dur_message_row message = start_of(f, id);
        OK(f, dur_store_enqueue_for_orchestrator(f->store, &message, 0, &f->err));
    }
    close(fd);
}

static void a_forked_child_closes_without_a_word(void **state) {
    fixture *f = *state;
    dur_waker *waker = dur_waker_new();
    dur_lane *lane = lane_make(f, "o1", waker);
    park(f, lane, "o1", "a");
    pid_t pid = fork();
    if (pid == 0) {
        dur_message_row message = raised_of(f, "a", "from the child");
        bool refused = dur_store_enqueue_existing(f->store, &message, 0, NULL) == DUR_EFORKED;
        dur_provider_close(f->store);
        _exit(refused ? 0 : 1);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    dur_owner_report report; /* the parent's lock and store are as they were */
    OK(f, dur_store_owner_beat(f->store, "o1", &report, &f->err));
    assert_true(report.still_ours);
    dur_message_row message = raised_of(f, "a", "from the parent");
    OK(f, dur_store_enqueue_existing(f->store, &message, 0, &f->err));
    dur_store_lane_close(lane);
    dur_waker_free(waker);
}

int main(int argc, char **argv) {
    if (argc >= 3) return role_main(argv);
    ssize_t size = readlink("/proc/self/exe", self_path, sizeof self_path - 1);
    if (size <= 0) return 1;
#define TEST(name) cmocka_unit_test_setup_teardown(name, fixture_open, fixture_close)
    const struct CMUnitTest tests[] = {
        TEST(messages_from_another_process_reach_a_parked_instance),
        TEST(the_dead_are_recognised_at_once_though_their_child_lives),
        TEST(a_name_is_taken_from_the_dead_only),
        TEST(what_was_confirmed_survives_a_kill),
        TEST(a_quiet_process_gets_its_turn_beside_a_busy_one),
        TEST(nobody_waits_at_the_gate_for_ever),
        TEST(a_forked_child_closes_without_a_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
