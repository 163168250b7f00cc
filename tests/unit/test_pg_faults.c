/*
 * test_pg_faults.c: connections that are cut while committing, owners that die, messages between nodes, poolers.
 */
#include "pg_help.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

/* ---- a proxy between a store and the server ---------------------------------------------------------------------- */

enum { PASS, CUT_BEFORE, CUT_AFTER }; /* a Sync that carries a commit: not forwarded, or forwarded and no answer */

typedef struct proxy {
    char dir[64];
    char target[256];
    int listener;
    atomic_int mode;
    atomic_int cuts;
    pthread_t thread;
    atomic_bool stop;
    atomic_int serving; /* copying threads: nothing of them may outlive the proxy */
} proxy;

static void copy_loop(proxy *x, int client, int server) {
    char buffer[65536];
    for (;;) {
        struct pollfd both[2] = { { .fd = client, .events = POLLIN }, { .fd = server, .events = POLLIN } };
        if (poll(both, 2, 50) < 0 || atomic_load(&x->stop)) return;
        if (both[0].revents != 0) {
            ssize_t size = read(client, buffer, sizeof(buffer));
            if (size <= 0) return;
            /* ‘history’ is written only by commits */
            bool commit = atomic_load(&x->mode) != PASS && memmem(buffer, (size_t)size, "event-two", 9) != NULL;
            if (commit && atomic_load(&x->mode) == CUT_BEFORE) {
                atomic_store(&x->mode, PASS);
                atomic_fetch_add(&x->cuts, 1);
                return;
            }
            if (write(server, buffer, (size_t)size) != size) return;
            if (commit) {
                atomic_store(&x->mode, PASS);
                pg_pause_ms(300); /* let the server commit; the answers are never read */
                atomic_fetch_add(&x->cuts, 1);
                return;
            }
        }
        if (both[1].revents != 0) {
            ssize_t size = read(server, buffer, sizeof(buffer));
            if (size <= 0 || write(client, buffer, (size_t)size) != size) return;
        }
    }
}

typedef struct pair {
    proxy *x;
    int client;
} pair;

static void *serve(void *arg) {
    pair *mine = arg;
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(to.sun_path, sizeof(to.sun_path), "%.100s", mine->x->target);
    if (connect(server, (struct sockaddr *)&to, sizeof(to)) == 0) copy_loop(mine->x, mine->client, server);
    close(server);
    close(mine->client);
    atomic_fetch_sub(&mine->x->serving, 1);
    free(mine);
    return NULL;
}

static void *accept_loop(void *arg) {
    proxy *x = arg;
    while (!atomic_load(&x->stop)) {
        struct pollfd wait = { .fd = x->listener, .events = POLLIN };
        if (poll(&wait, 1, 50) <= 0) continue;
        pair *mine = malloc(sizeof(*mine));
        pthread_t thread;
        *mine = (pair){ x, accept(x->listener, NULL, NULL) };
        atomic_fetch_add(&x->serving, 1);
        pthread_create(&thread, NULL, serve, mine);
        pthread_detach(thread);
    }
    return NULL;
}

static bool proxy_open(proxy *x) {
    const char *host = strstr(pg_server(), "host=/");
    struct sockaddr_un here = { .sun_family = AF_UNIX };
    if (host == NULL) return false; /* a server that is reached otherwise */
    memset(x, 0, sizeof(*x));
    snprintf(x->target, sizeof(x->target), "%.*s/.s.PGSQL.5432", (int)strcspn(host + 5, "&"), host + 5);
    snprintf(x->dir, sizeof(x->dir), "/tmp/durite-proxy-XXXXXX");
    assert_non_null(mkdtemp(x->dir));
    snprintf(here.sun_path, sizeof(here.sun_path), "%s/.s.PGSQL.5432", x->dir);
    x->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(x->listener, (struct sockaddr *)&here, sizeof(here)), 0);
    assert_int_equal(listen(x->listener, 16), 0);
    assert_int_equal(pthread_create(&x->thread, NULL, accept_loop, x), 0);
    return true;
}

static void proxy_close(proxy *x) {
    char path[128];
    atomic_store(&x->stop, true);
    pthread_join(x->thread, NULL);
    while (atomic_load(&x->serving) > 0)
        pg_pause_ms(5); /* the copying threads see it too */
    close(x->listener);
    snprintf(path, sizeof(path), "%s/.s.PGSQL.5432", x->dir);
    unlink(path);
    rmdir(x->dir);
}

/* ---- unknown outcomes -------------------------------------------------------------------------------------------- */

static void take_one(bench *b, dur_lane *lane, const char *owner, dur_round *round) {
    static dur_fetch how;
    how = (dur_fetch){ .owner = owner, .max = 5 };
    int code = DUR_EBUSY;
    for (int i = 0; i < 100 && code != DUR_OK; i++) { /* a session that was lost may take a moment to end */
        *round = (dur_round){ .fetch = &how };
        code = dur_store_lane_round(lane, b->arena, round, &b->err);
        if (code != DUR_OK) {
            assert_true(b->err.retryable);
            pg_pause_ms(10);
        }
    }
    ASSERT_OK(b, code);
}

/* Two events, the first committed; the commit of the second is cut. */
static void cut_commit(pg_bench *p, int mode) {
    bench *b = &p->b;
    proxy x;
    dur_provider *store = NULL;
    dur_lane *lane;
    dur_round round;
    char url[1024];
    if (!proxy_open(&x)) return;
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&schema=%s", x.dir, p->schema);
    ASSERT_OK(b, dur_open(&store, url, &b->err));
    dur_owner_options owner = { .owner = "o" };
    dur_lane_options options = { .owner = "o", .waker = dur_waker_new() };
    ASSERT_OK(b, dur_store_owner_register(store, &owner, &b->err));
    ASSERT_OK(b, dur_store_lane_open(store, &options, &lane, &b->err));
    dur_message start = start_of(b, "a");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    take_one(b, lane, "o", &round);
    assert_int_equal(round.item_count, 1);
    dur_orchestration_item item = round.items[0];
    dur_event_row events[2] = { event_of(1), event_of(2) };
    events[1].json = text_of("{\"x\":\"event-two\"}");
    uint64_t consumed = item.messages[0].id;
    dur_turn_commit turn = { .lock_token = item.lock_token,
                             .instance = "a",
                             .execution_id = 1,
                             .events = &events[0],
                             .event_count = 1,
                             .metadata = named(),
                             .expected_last = 0,
                             .consume_listed = true,
                             .consumed = &consumed,
                             .consumed_count = 1,
                             .owner = "o",
                             .keep_lease = true };
    round = (dur_round){ .turns = &turn, .turn_count = 1 };
    ASSERT_OK(b, dur_store_lane_round(lane, b->arena, &round, &b->err));
    assert_int_equal(turn.fault, DUR_TURN_FINE);
    assert_true(turn.lease_kept);
    dur_message start_b = start_of(b, "b"); /* the lost round would claim this one */
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start_b, 0, &b->err));
    dur_fetch how = { .owner = "o", .max = 5 };
    turn.events = &events[1];
    turn.expected_last = 1;
    turn.consumed_count = 0;
    turn.metadata = (dur_execution_metadata){ 0 };
    round = (dur_round){ .turns = &turn, .turn_count = 1, .fetch = &how };
    atomic_store(&x.mode, mode);
    int code = dur_store_lane_round(lane, b->arena, &round, &b->err);
    assert_int_equal(atomic_load(&x.cuts), 1);
    assert_int_equal(code, DUR_EUNKNOWN);
    assert_int_equal(turn.fault, DUR_TURN_STORE);
    dur_event_row *rows;
    size_t count;
    ASSERT_OK(b, dur_store_read(b->store, b->arena, "a", 1, &rows, &count, &b->err));
    assert_int_equal(count, mode == CUT_AFTER ? 2 : 1);
    /* The next round finds out what it holds: nothing of the lost round stays claimed by nobody. */
    size_t seen = 0;
    bool lost = false;
    for (int i = 0; i < 20 && seen < 1; i++) {
        take_one(b, lane, "o", &round);
        for (size_t k = 0; k < round.lost_count; k++)
            lost = lost || strcmp(round.lost[k], "a") == 0;
        for (size_t k = 0; k < round.item_count; k++)
            seen += strcmp(round.items[k].instance, "b") == 0;
        pg_pause_ms(10);
    }
    assert_true(lost);
    assert_int_equal(seen, 1);
    dur_store_lane_close(lane);
    ASSERT_OK(b, dur_store_owner_release(store, "o", &b->err));
    dur_provider_close(store);
    dur_waker_free(options.waker);
    proxy_close(&x);
}

static void cut_after_the_commit_was_sent(void **state) {
    cut_commit(*state, CUT_AFTER);
}
static void cut_before_the_commit_was_sent(void **state) {
    cut_commit(*state, CUT_BEFORE);
}

/* ---- owners ------------------------------------------------------------------------------------------------------ */

static void kill_sessions(pg_bench *p, const char *name) {
    char sql[256];
    snprintf(sql, sizeof(sql), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '%s'",
             name);
    pg_do(p->db, sql);
}

static dur_provider *open_named(pg_bench *p, const char *name) {
    dur_provider *store = NULL;
    char url[1200];
    snprintf(url, sizeof(url), "%s&schema=%s&application_name=%s_%s", pg_server(), p->schema, name, p->schema);
    ASSERT_OK(&p->b, dur_open(&store, url, &p->b.err));
    return store;
}

/* A beats while its sessions are terminated again and again: B never takes it for dead. */
static void a_live_owner_is_not_taken_over(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    char name[128];
    dur_provider *a = open_named(p, "a"), *other = open_named(p, "b");
    dur_owner_options first = { .owner = "one" }, second = { .owner = "two" };
    dur_owner_report report;
    ASSERT_OK(b, dur_store_owner_register(a, &first, &b->err));
    ASSERT_OK(b, dur_store_owner_register(other, &second, &b->err));
    snprintf(name, sizeof(name), "a_%s", p->schema);
    for (int i = 0; i < 8; i++) {
        kill_sessions(p, name);
        pg_pause_ms(250);
        int code = dur_store_owner_beat(a, "one", &report, &b->err);
        if (code != DUR_OK) assert_true(b->err.retryable);
        ASSERT_OK(b, dur_store_owner_beat(other, "two", &report, &b->err));
        assert_int_equal(report.taken_over, 0);
        assert_int_equal(report.peers, 1);
    }
    ASSERT_OK(b, dur_store_owner_release(a, "one", &b->err));
    ASSERT_OK(b, dur_store_owner_release(other, "two", &b->err));
    dur_provider_close(a);
    dur_provider_close(other);
}

/* A's process is gone, and with it its lock: B has its leases long before the timeout. */
static void a_dead_owner_is_taken_over_early(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    char name[128];
    dur_provider *a = open_named(p, "a");
    dur_owner_options first = { .owner = "one" }, second = { .owner = "two" };
    dur_owner_report report = { 0 };
    dur_orchestration_item item;
    size_t count = 0;
    dur_message start = start_of(b, "x");
    ASSERT_OK(b, dur_store_owner_register(a, &first, &b->err));
    ASSERT_OK(b, dur_store_owner_register(b->store, &second, &b->err));
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    dur_fetch how = { .owner = "one", .max = 1 };
    ASSERT_OK(b, dur_store_fetch_turns(a, b->arena, &how, &item, &count, &b->err));
    assert_int_equal(count, 1);
    snprintf(name, sizeof(name), "a_%s", p->schema);
    kill_sessions(p, name); /* and it never comes back */
    uint64_t began = pg_monotonic_ms();
    while (report.taken_over == 0 && pg_monotonic_ms() - began < 8000) {
        ASSERT_OK(b, dur_store_owner_beat(b->store, "two", &report, &b->err));
        pg_pause_ms(100);
    }
    assert_int_equal(report.taken_over, 1);
    assert_int_equal(report.freed, 1);
    assert_string_equal(report.last_dead, "one");
    assert_true(pg_monotonic_ms() - began < 5000);
    how.owner = "two";
    ASSERT_OK(b, dur_store_fetch_turns(b->store, b->arena, &how, &item, &count, &b->err));
    assert_int_equal(count, 1);
    assert_int_equal(item.acquisitions, 2);
    ASSERT_OK(b, dur_store_owner_beat(a, "one", &report, &b->err)); /* it comes back after all */
    assert_false(report.still_ours);
    ASSERT_OK(b, dur_store_owner_release(b->store, "two", &b->err));
    dur_provider_close(a);
}

/* ---- wake-ups ---------------------------------------------------------------------------------------------------- */

typedef struct sender {
    pg_bench *p;
    dur_provider *store;
} sender;

static void *send_later(void *arg) {
    sender *s = arg;
    dur_message raised = message_of(DUR_WORK_EXTERNAL_RAISED, "a");
    pg_pause_ms(100);
    (void)dur_store_enqueue_for_orchestrator(s->store, &raised, 0, NULL);
    return NULL;
}

static void a_message_of_another_node_wakes_the_holder(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    dur_provider *other = open_named(p, "b");
    dur_owner_options owner = { .owner = "o" };
    dur_lane_options options = { .owner = "o", .waker = dur_waker_new() };
    dur_lane *lane;
    dur_round round;
    dur_message start = start_of(b, "a");
    pthread_t thread;
    ASSERT_OK(b, dur_store_owner_register(b->store, &owner, &b->err));
    ASSERT_OK(b, dur_store_lane_open(b->store, &options, &lane, &b->err));
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(b->store, &start, 0, &b->err));
    take_one(b, lane, "o", &round);
    assert_int_equal(round.item_count, 1);
    take_one(b, lane, "o", &round);
    sender s = { p, other };
    uint64_t began = pg_monotonic_ms();
    assert_int_equal(pthread_create(&thread, NULL, send_later, &s), 0);
    size_t held = 0;
    while (held == 0 && pg_monotonic_ms() - began < 5000) {
        ASSERT_OK(b, dur_store_lane_wait(lane, 5000, &b->err));
        take_one(b, lane, "o", &round);
        held = round.held_count;
    }
    pthread_join(thread, NULL);
    assert_int_equal(held, 1);
    assert_true(pg_monotonic_ms() - began < 600); /* sooner than the look each second */
    take_one(b, lane, "o", &round);
    assert_int_equal(round.held_count, 0); /* handed out once */
    dur_store_lane_close(lane);
    ASSERT_OK(b, dur_store_owner_release(b->store, "o", &b->err));
    dur_waker_free(options.waker);
    dur_provider_close(other);
}

/* ---- a pooler in transaction mode -------------------------------------------------------------------------------- */

static pid_t bouncer_start(const char *dir, const char *target) {
    char path[256];
    snprintf(path, sizeof(path), "%s/pgbouncer.ini", dir);
    FILE *file = fopen(path, "w");
    fprintf(file,
            "[databases]\npostgres = host=%s user=durite\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = %s\n"
            "listen_port = 5432\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 3\n"
            "max_client_conn = 100\nlogfile = %s/log\npidfile = %s/pid\nignore_startup_parameters = options\n",
            target, dir, dir, dir);
    fclose(file);
    chmod(dir, 0777);
    chmod(path, 0666);
    pid_t pid = fork();
    if (pid != 0) return pid;
    if (getuid() == 0)
        execl("/usr/bin/setpriv", "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups",
              "/usr/sbin/pgbouncer", "-q", path, (char *)NULL);
    else
        execl("/usr/sbin/pgbouncer", "pgbouncer", "-q", path, (char *)NULL);
    _exit(127);
}

static void behind_a_pooler(void **state) {
    pg_bench *p = *state;
    bench *b = &p->b;
    const char *host = strstr(pg_server(), "host=/");
    char dir[] = "/tmp/durite-bouncer-XXXXXX", target[200], url[1024], command[128];
    if (access("/usr/sbin/pgbouncer", X_OK) != 0 || host == NULL) skip();
    snprintf(target, sizeof(target), "%.*s", (int)strcspn(host + 5, "&"), host + 5);
    assert_non_null(mkdtemp(dir));
    pid_t pid = bouncer_start(dir, target);
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&schema=%s&pooler=transaction", dir, p->schema);
    dur_provider *store = NULL;
    int code = DUR_EUNAVAILABLE;
    for (int i = 0; i < 100 && code == DUR_EUNAVAILABLE; i++) {
        code = dur_open(&store, url, &b->err);
        pg_pause_ms(30);
    }
    ASSERT_OK(b, code);
    dur_provider *direct = b->store;
    b->store = store;
    for (int i = 0; i < 10; i++) { /* more than the pooler has sessions */
        char id[16];
        snprintf(id, sizeof(id), "i%d", i);
        make_running(b, id);
    }
    dur_owner_options owner = { .owner = "o" };
    dur_lane_options options = { .owner = "o", .waker = dur_waker_new() };
    dur_owner_report report;
    dur_lane *lane;
    dur_round round;
    ASSERT_OK(b, dur_store_owner_register(store, &owner, &b->err));
    ASSERT_OK(b, dur_store_owner_beat(store, "o", &report, &b->err));
    assert_true(report.still_ours);
    ASSERT_OK(b, dur_store_lane_open(store, &options, &lane, &b->err));
    dur_message start = start_of(b, "z");
    ASSERT_OK(b, dur_store_enqueue_for_orchestrator(store, &start, 0, &b->err));
    take_one(b, lane, "o", &round);
    assert_int_equal(round.item_count, 1);
    ASSERT_OK(b, dur_store_lane_wait(lane, 50, &b->err));
    dur_store_lane_close(lane);
    ASSERT_OK(b, dur_store_owner_release(store, "o", &b->err));
    b->store = direct;
    dur_provider_close(store);
    dur_waker_free(options.waker);
    kill(pid, SIGTERM);
    waitpid(pid, NULL, 0);
    snprintf(command, sizeof(command), "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        PG_TEST(cut_after_the_commit_was_sent),
        PG_TEST(cut_before_the_commit_was_sent),
        PG_TEST(a_live_owner_is_not_taken_over),
        PG_TEST(a_dead_owner_is_taken_over_early),
        PG_TEST(a_message_of_another_node_wakes_the_holder),
        PG_TEST(behind_a_pooler),
    };
    signal(SIGPIPE, SIG_IGN); /* of the proxy */
    PG_MAIN(tests);
}
