/*
 * nemesis_server.c: a server that lives and does not serve as it did: no connections left, an old snapshot, other
 * settings of the role, a clock that jumps, a full disk.
 */
#include "chaos.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* All connections that the role can have, and whatever becomes free. */
const char *nemesis_connections(chaos *c) {
    static PGconn *hoard[HOARD_MAX];
    char url[600];
    size_t count = 0;
    uint64_t end_ms = now_ms() + 6000 + pick(c, 4000);
    server_url(c, CHAOS_ROLE, url, sizeof(url));
    for (bool cut = false; now_ms() < end_ms; nap_all(c, 20)) {
        while (count < HOARD_MAX) {
            PGconn *db = PQconnectdb(url);
            if (PQstatus(db) != CONNECTION_OK) {
                PQfinish(db);
                break;
            }
            hoard[count++] = db;
        }
        if (cut) continue;
        cut = true; /* some that are needed will not be had again */
        PGconn *db = admin_begin(c);
        (void)sql_number(db,
                         "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '%s' AND"
                         " application_name <> '' AND random() < 0.3",
                         CHAOS_ROLE);
        PQfinish(db);
    }
    while (count > 0)
        PQfinish(hoard[--count]);
    nap(c, 3000);
    return NULL;
}

/* Held while other things happen; nap_all ends it. */
const char *nemesis_snapshot(chaos *c) {
    if (c->snapshot != NULL) return NULL;
    c->snapshot = admin_begin(c);
    (void)sql_number(c->snapshot, "BEGIN ISOLATION LEVEL REPEATABLE READ");
    (void)sql_number(c->snapshot, "SELECT count(*) FROM %s.dur_instances", CHAOS_SCHEMA);
    uint64_t share = (c->end_ms - c->begin_ms) / 5;
    c->snapshot_ms = now_ms() + (share < 150000 ? share : 150000);
    return NULL;
}

/* An administrator thinks of other limits for applications; new sessions have them. */
const char *nemesis_role(chaos *c) {
    static const char *const names[] = { "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout",
                                         "idle_session_timeout" };
    PGconn *db = admin_begin(c);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        (void)sql_number(db, "ALTER ROLE %s SET %s = %u", CHAOS_ROLE, names[i], 1 + pick(c, 100));
    (void)sql_number(db, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '%s'",
                     CHAOS_ROLE);
    PQfinish(db);
    nap(c, 6000);
    return NULL;
}

/* Far ahead, where it stays, and back by less than the quiet time can wait for: a delay follows the server's time. */
const char *nemesis_clock(chaos *c) {
    if (c->clock_ns == NULL) return "the server's clock cannot be set";
    *c->clock_ns += (int64_t)(1 + pick(c, 3600)) * 1000000000;
    nap(c, 2000 + pick(c, 4000));
    *c->clock_ns -= (int64_t)(1 + pick(c, 8)) * 1000000000;
    nap(c, 4000 + pick(c, 6000));
    return NULL;
}

/* Nothing is left; then there is room again.  A server that could not write its log has ended. */
const char *nemesis_disk(chaos *c) {
    char path[200];
    struct statvfs free;
    if (c->disk == NULL) return "mounting is not allowed here (root, unshare -m)";
    snprintf(path, sizeof(path), "%s/balloon", c->disk);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) return "no file";
    for (uint64_t end_ms = now_ms() + 6000 + pick(c, 6000); now_ms() < end_ms; nap_all(c, 50)) {
        off_t size = lseek(fd, 0, SEEK_END);
        if (statvfs(c->disk, &free) != 0 || free.f_bavail == 0) continue;
        if (posix_fallocate(fd, size, (off_t)(free.f_bavail * free.f_bsize)) != 0)
            pause_ms(1); /* the rest, next time */
    }
    close(fd);
    unlink(path);
    if (!server_is_up(c, c->primary)) {
        ledger("down", "the server has ended on a full disk", "", "");
        if (!server_start(c, c->primary)) ledger_fault("the server does not start again after its disk was full");
    }
    nap(c, 5000);
    return NULL;
}
