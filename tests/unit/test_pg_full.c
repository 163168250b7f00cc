/*
 * test_pg_full.c: the server's file system is really full, for its tables and then for its log as well.
 *
 * A private server lives on a small file system in memory, mounted in a mount namespace of our own so that nothing is
 * left of it.  Where mounting is not permitted everything is skipped.
 */
#include "pg_flow.h"
#include "pg_private.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#define SIZE "size=160m" /* a new server needs less than half of it */

/* ---- the file system --------------------------------------------------------------------------------------------- */

static void skip_all(const char *why) {
    printf("1..1\nok 1 - all # SKIP %s\n", why);
    fflush(stdout);
    _exit(0);
}

/* The test's own folder, unless its path is too long for the server's socket or the server's user may not go there. */
static const char *place(void) {
    char path[sizeof(((struct sockaddr_un *)NULL)->sun_path) -
              sizeof("/durite-full-XXXXXX/durite-pg.XXXXXX/.s.PGSQL.5432")];
    const char *own = getenv("TMPDIR");
    struct stat info;
    if (own == NULL || own[0] != '/' || strlen(own) >= sizeof(path)) return "/tmp";
    strcpy(path, own);
    for (char *slash; (slash = strrchr(path, '/')) != NULL; *slash = '\0') /* it, and all above it */
        if (stat(path, &info) != 0 || (info.st_mode & S_IXOTH) == 0) return "/tmp";
    return own;
}

/* The outer program waits, because only it sees the folder without what is mounted there. */
static void on_small_disk(char **argv) {
    char folder[128];
    int status = 0;
    if (getenv("DURITE_TEST_PRIVATE") != NULL) return;
    snprintf(folder, sizeof(folder), "%s/durite-full-XXXXXX", place());
    if (mkdtemp(folder) == NULL) skip_all("no temporary folder");
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("tmpfs", folder, "tmpfs", 0, SIZE ",mode=0755") != 0)
            skip_all("mounting a file system is not permitted");
        setenv("DURITE_POSTGRES_UNDER", folder, 1);
        pg_private_server(argv);
        _exit(1);
    }
    (void)waitpid(pid, &status, 0);
    (void)rmdir(folder);
    exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void ballast_name(char out[1024]) {
    snprintf(out, 1024, "%s/ballast", getenv("DURITE_POSTGRES_UNDER"));
}

/* Nothing more fits. */
static void fill(void) {
    static const char zeros[65536];
    char name[1024];
    ballast_name(name);
    int file = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
    assert_true(file >= 0);
    for (size_t size = sizeof(zeros); size > 0;) {
        ssize_t wrote = write(file, zeros, size);
        if (wrote < 0) assert_int_equal(errno, ENOSPC);
        if (wrote < (ssize_t)size) size /= 2;
    }
    close(file);
}

static void make_room(void) {
    char name[1024];
    ballast_name(name);
    assert_int_equal(unlink(name), 0);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

typedef struct party {
    dur_client *client;
    flow_node nodes[2];
    size_t started;
} party;

/* Two nodes with instances on their way. */
static void begin(pg_bench *p, party *all) {
    ASSERT_OK(&p->b, dur_client_new(&all->client, p->b.store, &p->b.err));
    for (size_t i = 0; i < 2; i++)
        all->nodes[i] = flow_node_start(p->url, NULL);
    flow_start(all->client, 0, 20);
    all->started = 20;
}

/* What was answered with OK is done, each step once, and new work goes through; the same runtimes, all the time. */
static void end(pg_bench *p, party *all) {
    flow_start(all->client, all->started, all->started + 5);
    flow_expect(all->client, p->b.store, 0, all->started + 5);
    dur_client_free(all->client);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(dur_runtime_stop(all->nodes[i].runtime, DUR_SECONDS(20), &p->b.err), DUR_OK);
        dur_provider_close(all->nodes[i].store);
    }
}

/* One that does not fit into any page that is there. */
static int start_large(party *all, dur_error *err) {
    static char input[200000];
    char id[32];
    uint32_t random = 1;
    for (size_t i = 0; i + 1 < sizeof(input); i++) { /* text that does not compress */
        random = random * 1664525u + 1013904223u;
        input[i] = (char)('0' + (random >> 24) % 64);
    }
    snprintf(id, sizeof(id), "large%zu", all->started);
    return dur_client_start(all->client, err, "Child", input, .instance = id);
}

static void no_room_for_tables(void **state) {
    pg_bench *p = *state;
    party all;
    dur_error err = DUR_ERROR_INIT;
    begin(p, &all);
    fill();
    int code = start_large(&all, &err);
    assert_int_equal(code, DUR_EFULL);
    assert_true(err.retryable);
    assert_non_null(strstr(err.message, "No space left on device"));
    for (int i = 0; i < 20; i++) { /* small ones may still find a place; what is answered with OK counts */
        char id[32];
        snprintf(id, sizeof(id), "f%zu", all.started);
        code = dur_client_start(all.client, &err, "Flow", id, .instance = id);
        if (code == DUR_OK) code = dur_client_send(all.client, &err, id, "q", id, .message_id = "only");
        if (code != DUR_OK) break;
        all.started++;
    }
    if (code != DUR_OK) assert_true(err.retryable);
    make_room();
    FLOW_PERSIST(&err, start_large(&all, &err));
    end(p, &all);
}

/* Without room for its log the server gives up, and so may its recovery. */
static void no_room_for_the_log(void **state) {
    pg_bench *p = *state;
    party all;
    begin(p, &all);
    fill();
    for (int i = 0; i < 50 && PQstatus(p->db) == CONNECTION_OK; i++)
        PQclear(PQexec(p->db, "SELECT pg_logical_emit_message(true, 'x', 'y'), pg_switch_wal()"));
    assert_int_equal(PQstatus(p->db), CONNECTION_BAD);
    pg_pause_ms(300); /* they try, and fail */
    make_room();
    for (int i = 0; i < 600 && PQstatus(p->db) != CONNECTION_OK; i++) {
        (void)pg_ctl("start"); /* unless it came back by itself */
        PQreset(p->db);
        pg_pause_ms(50);
    }
    assert_int_equal(PQstatus(p->db), CONNECTION_OK);
    end(p, &all);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        PG_TEST(no_room_for_tables),
        PG_TEST(no_room_for_the_log),
    };
    (void)argc;
    on_small_disk(argv);
    PG_MAIN(tests);
}
