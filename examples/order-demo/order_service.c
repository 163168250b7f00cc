/*
 * order_service.c: the order service.
 *
 *   order-demo --db FILE --orders N           run the service until all N orders have ended; started again on the same
 *                                             file it resumes, whoever killed it and when
 *   order-demo --demo --db FILE --orders N    the same in a child process that is killed with SIGKILL half-way and
 *                                             started again
 *
 * Last line: demo: N orders, N shipped, N compensated, N lost, N charged twice, recovered N in flight in N ms
 */
#include "orders.h"
#include <durite/sqlite.h>
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct service {
    const char *path;
    unsigned long orders;
    dur_provider *store;
    dur_runtime *runtime;
    dur_client *client;
    sqlite3 *db; /* the shop's tables */
    unsigned long recovered;
    unsigned long recovery_ms;
} service;

static uint64_t now_ms(void) {
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

static void pause_ms(long ms) {
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

static int complain(const char *what, const dur_error *err) {
    fprintf(stderr, "order-demo: %s: %s: %s\n", what, err->op, err->message);
    return EXIT_FAILURE;
}

static unsigned long count(sqlite3 *db, const char *sql) {
    sqlite3_stmt *select = NULL;
    unsigned long result = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &select, NULL) == SQLITE_OK && sqlite3_step(select) == SQLITE_ROW)
        result = (unsigned long)sqlite3_column_int64(select, 0);
    sqlite3_finalize(select);
    return result;
}

static bool tables_open(service *s, dur_error *err) {
    if (sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        dur_error_set(err, DUR_EIO, false, "order-demo", "%s: %s", s->path, sqlite3_errmsg(s->db));
        return false;
    }
    sqlite3_busy_timeout(s->db, 10000);
    if (dur_sqlite_begin(s->store, s->db, err) != DUR_OK) return false;
    if (sqlite3_exec(s->db, ORDERS_SCHEMA, NULL, NULL, NULL) != SQLITE_OK) {
        dur_error_set(err, DUR_EIO, false, "order-demo", "tables: %s", sqlite3_errmsg(s->db));
        dur_sqlite_rollback(s->store, s->db, NULL);
        return false;
    }
    return dur_sqlite_commit(s->store, s->db, err) == DUR_OK;
}

/* Orders that a dead process still seems to hold. */
static unsigned long held_by_others(service *s) {
    unsigned long held = 0;
    dur_instance_list *list = NULL;
    if (dur_client_list(&list, s->client, DUR_LIST(.status = DUR_INSTANCE_RUNNING, .limit = 100000), NULL) != DUR_OK)
        return 0;
    for (size_t i = 0; i < list->count; i++)
        held += list->items[i]->owner != NULL && strcmp(list->items[i]->owner, dur_runtime_owner(s->runtime)) != 0;
    dur_instance_list_free(list);
    return held;
}

static int service_start(service *s, dur_error *err) {
    dur_store_counts before = { .size = sizeof(before) };
    char url[4200];
    snprintf(url, sizeof(url), "sqlite:%s", s->path);
    uint64_t begin = now_ms();
    int code = dur_open(&s->store, url, err);
    if (code == DUR_OK) code = dur_client_new(&s->client, s->store, err);
    if (code == DUR_OK) code = dur_client_counts(&before, s->client, err);
    if (code == DUR_OK && !tables_open(s, err)) code = DUR_EIO;
    if (code == DUR_OK)
        code = dur_runtime_start(
            &s->runtime, DUR_RUNTIME(.store = s->store, .handlers = order_handlers, .worker_concurrency = 4), err);
    if (code != DUR_OK) return code;
    while (held_by_others(s) > 0)
        pause_ms(1);
    s->recovered = before.running;
    s->recovery_ms = s->recovered > 0 ? (unsigned long)(now_ms() - begin) : 0;
    if (s->recovered > 0)
        printf("found %lu orders in flight, all taken over after %lu ms\n", s->recovered, s->recovery_ms);
    return DUR_OK;
}

static int orders_start(service *s, dur_error *err) {
    for (unsigned long i = 1; i <= s->orders; i++) {
        char id[32];
        snprintf(id, sizeof(id), "order-%lu", i);
        int code = dur_client_start(s->client, err, "Order", "", .instance = id, .exists = DUR_START_RETURN_EXISTING);
        if (code != DUR_OK) return code;
    }
    return DUR_OK;
}

static void progress(service *s, bool last) {
    unsigned long shipped = count(s->db, "SELECT count(*) FROM orders WHERE state = 'shipped'");
    unsigned long compensated = count(s->db, "SELECT count(*) FROM orders WHERE state = 'compensated'");
    unsigned long charged = count(s->db, "SELECT count(*) FROM ledger WHERE kind = 'charge'");
    bool terminal = isatty(STDOUT_FILENO) != 0;
    printf("%sorders: %lu charged, %lu in flight, %lu shipped, %lu compensated%s", terminal ? "\r" : "", charged,
           s->orders - shipped - compensated, shipped, compensated, terminal && !last ? "   " : "\n");
    fflush(stdout);
}

static int service_run(service *s) {
    dur_error err = DUR_ERROR_INIT;
    if (service_start(s, &err) != DUR_OK) return complain("start", &err);
    if (orders_start(s, &err) != DUR_OK) return complain("orders", &err);
    for (unsigned ticks = 0; count(s->db, "SELECT count(*) FROM orders") < s->orders; ticks++) {
        if (isatty(STDOUT_FILENO) || ticks % 10 == 0) progress(s, false);
        pause_ms(100);
    }
    for (unsigned long i = 1; i <= s->orders; i++) { /* confirmed is written; wait until each has really ended */
        char id[32];
        char *result = NULL;
        snprintf(id, sizeof(id), "order-%lu", i);
        if (dur_client_result(&result, s->client, id, DUR_SECONDS(60), &err) != DUR_OK) return complain(id, &err);
        dur_free(result);
    }
    progress(s, true);
    unsigned long shipped = count(s->db, "SELECT count(*) FROM orders WHERE state = 'shipped'");
    unsigned long compensated = count(s->db, "SELECT count(*) FROM orders WHERE state = 'compensated'");
    unsigned long twice = count(s->db, "SELECT count(*) FROM (SELECT 1 FROM ledger WHERE kind = 'charge' "
                                       "GROUP BY order_id HAVING count(*) > 1)");
    printf("demo: %lu orders, %lu shipped, %lu compensated, %lu lost, %lu charged twice, "
           "recovered %lu in flight in %lu ms\n",
           s->orders, shipped, compensated, s->orders - shipped - compensated, twice, s->recovered, s->recovery_ms);
    dur_client_free(s->client);
    dur_runtime_stop(s->runtime, DUR_SECONDS(5), NULL);
    sqlite3_close(s->db);
    dur_provider_close(s->store);
    return twice == 0 && shipped + compensated == s->orders ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Run the service as a child; kill it when half of the orders have ended. */
static int demo(const char *self, const service *s) {
    char orders[32];
    snprintf(orders, sizeof(orders), "%lu", s->orders);
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, "--db", s->path, "--orders", orders, (char *)NULL);
        _exit(127);
    }
    sqlite3 *db = NULL;
    unsigned long ended = 0;
    int status = 0;
    while (ended < s->orders / 2 && waitpid(child, &status, WNOHANG) == 0) {
        if (db == NULL && access(s->path, F_OK) == 0 &&
            sqlite3_open_v2(s->path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK)
            sqlite3_busy_timeout(db, 1000);
        if (db != NULL) ended = count(db, "SELECT count(*) FROM orders");
        pause_ms(5);
    }
    sqlite3_close(db);
    printf("\n--- kill -9 with %lu of %lu orders ended ---\n", ended, s->orders);
    fflush(stdout);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    execl(self, self, "--db", s->path, "--orders", orders, (char *)NULL);
    fprintf(stderr, "order-demo: cannot start again: %s\n", strerror(errno));
    return EXIT_FAILURE;
}

static int usage(FILE *out) {
    fputs("usage: order-demo --db FILE [--orders N] [--demo]\n"
          "  --db FILE   SQLite file of the shop and its orchestrations; created when missing\n"
          "  --orders N  how many orders (default 200)\n"
          "  --demo      kill the service half-way and start it again\n",
          out);
    return out == stdout ? EXIT_SUCCESS : 2;
}

int main(int argc, char **argv) {
    static const struct option options[] = { { "db", required_argument, NULL, 'd' },
                                             { "orders", required_argument, NULL, 'n' },
                                             { "demo", no_argument, NULL, 'k' },
                                             { "help", no_argument, NULL, 'h' },
                                             { NULL, 0, NULL, 0 } };
    service s = { .orders = 200 };
    bool kill_half_way = false;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        char *end = NULL;
        if (c == 'd')
            s.path = optarg;
        else if (c == 'n') {
            s.orders = strtoul(optarg, &end, 10);
            if (*end != '\0' || s.orders == 0 || s.orders > 1000000) return usage(stderr);
        } else if (c == 'k')
            kill_half_way = true;
        else
            return usage(c == 'h' ? stdout : stderr);
    }
    if (s.path == NULL || optind != argc) return usage(stderr);
    return kill_half_way ? demo(argv[0], &s) : service_run(&s);
}
