/*
 * nemesis_standby.c: the primary dies for good, and a standby takes its place.
 *
 * With a synchronous standby nothing that was accepted may be missing afterwards.  An asynchronous one did not have the
 * last commits: samples of the primary's log say from which moment on, and the judge excuses what was accepted since.
 */
#include "chaos.h"

#include <stdio.h>
#include <stdlib.h>

static const char *in_env(const char *name) {
    const char *value = getenv(name);
    return value != NULL ? value : "";
}

/* Until a query's number is at least that; false: not within a minute. */
static bool until_at_least(chaos *c, PGconn *db, const char *sql, long least) {
    for (uint64_t end_ms = now_ms() + 60000; now_ms() < end_ms; nap_all(c, 50)) {
        long number = sql_number(db, "%s", sql);
        if (number >= least) return true;
        if (number < 0) return false;
    }
    return false;
}

/* In the other place, until it follows the primary; NULL, or what went wrong. */
static const char *make_standby(chaos *c, PGconn *db) {
    size_t which = 1 - c->primary;
    const server *from = &c->servers[c->primary], *to = &c->servers[which];
    const char *as = in_env("DURITE_TEST_POSTGRES_AS"), *bin = in_env("DURITE_TEST_POSTGRES_BIN");
    server_put_away(c, which);
    if (shell(
            "cd / && %s mkdir -p '%s' && %s '%s/pg_basebackup' -h '%s' -U durite -D '%s' -X stream -c fast -R --no-sync"
            " >>'%s.ctl' 2>&1",
            as, to->socket, as, bin, from->socket, to->data, to->log) != 0)
        return "no base backup (see the server's log)";
    if (!server_start(c, which)) return "the standby does not start (see its log)";
    if (!until_at_least(c, db, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'", 1))
        return "the standby does not follow";
    return NULL;
}

static void promote(chaos *c) {
    size_t old = c->primary;
    ledger("down", "the primary is lost", "", "");
    server_kill(c, old);
    nap(c, pick(c, 2) * pick(c, 2000));
    const server *to = &c->servers[1 - old];
    if (shell("cd / && %s '%s/pg_ctl' -D '%s' -w promote >>'%s.ctl' 2>&1", in_env("DURITE_TEST_POSTGRES_AS"),
              in_env("DURITE_TEST_POSTGRES_BIN"), to->data, to->log) != 0)
        ledger_fault("the standby is not promoted");
    c->primary = 1 - old;
    server_put_away(c, old);
    for (size_t i = 0; i < BOUNCERS; i++) { /* they do not look for the primary by themselves */
        if (c->bouncers[i].pid == 0) continue;
        bouncer_kill(&c->bouncers[i]);
        (void)bouncer_begin(c, &c->bouncers[i]);
    }
}

const char *nemesis_promote_synchronous(chaos *c) {
    PGconn *db = admin_begin(c);
    const char *wrong = make_standby(c, db);
    if (wrong == NULL && (sql_number(db, "ALTER SYSTEM SET synchronous_standby_names = '*'") < 0 ||
                          sql_number(db, "SELECT pg_reload_conf()::int") < 0 ||
                          !until_at_least(c, db,
                                          "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync',"
                                          " 'quorum')",
                                          1)))
        wrong = "the standby does not become synchronous";
    PQfinish(db);
    if (wrong != NULL) return wrong;
    nap(c, 3000 + pick(c, 3000)); /* commits wait for it from now on */
    promote(c);
    nap(c, 6000);
    return NULL;
}

/* ---- asynchronous ------------------------------------------------------------------------------------------------ */

/* Whatever was accepted before is flushed when the answer comes. */
static bool take_sample(PGconn *db, sample *out) {
    out->at_ms = now_ms();
    long lsn = sql_number(db, "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint");
    out->lsn = (uint64_t)lsn;
    return lsn > 0;
}

/* For some time the standby gets nothing; then it is all that is left. */
static const char *lose_a_tail(chaos *c, PGconn *db) {
    sample samples[SAMPLES_MAX];
    size_t count = 0;
    char since[24], until[24], sql[120];
    if (!take_sample(db, &samples[count++])) return "no position of the log";
    snprintf(sql, sizeof(sql), "SELECT (min(flush_lsn) - '0/0')::bigint FROM pg_stat_replication");
    if (!until_at_least(c, db, sql, (long)samples[0].lsn)) return "the standby does not keep up";
    long sender = sql_number(db, "SELECT pid FROM pg_stat_replication");
    if (sender <= 1) return "no sender";
    if (pick(c, 4) != 0) kill((pid_t)sender, SIGSTOP); /* it dies with its server */
    for (uint64_t end_ms = now_ms() + 300 + pick(c, 1500); now_ms() < end_ms; nap_all(c, 20))
        if (count < SAMPLES_MAX && take_sample(db, &samples[count])) count++;
    promote(c);
    PGconn *now = admin_begin(c);
    long kept = sql_number(now, "SELECT (pg_last_wal_replay_lsn() - '0/0')::bigint");
    PQfinish(now);
    size_t last = 0;
    for (size_t i = 0; i < count; i++)
        if (kept > 0 && samples[i].lsn <= (uint64_t)kept) last = i;
    snprintf(since, sizeof(since), "%llu", (unsigned long long)samples[last].at_ms);
    snprintf(until, sizeof(until), "%llu", (unsigned long long)now_ms());
    ledger("lost", since, until, "");
    return NULL;
}

const char *nemesis_promote_asynchronous(chaos *c) {
    PGconn *db = admin_begin(c);
    const char *wrong = make_standby(c, db);
    if (wrong == NULL) {
        nap(c, 2000 + pick(c, 2000));
        wrong = lose_a_tail(c, db);
    }
    PQfinish(db);
    if (wrong == NULL) nap(c, 6000);
    return wrong;
}
