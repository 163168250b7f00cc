/*
 * chaos_run.c: one run: servers, fleet, what happens to them and when.
 */
#include "chaos.h"
#include "chaos_flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const nemesis nemeses[] = {
    { .name = "sessions terminated", .run = nemesis_terminate, .brief = true },
    { .name = "server killed", .run = nemesis_restart, .brief = true },
    { .name = "nodes killed", .run = nemesis_kill, .brief = true },
    { .name = "a node stopped", .run = nemesis_stop, .brief = true },
    { .name = "poolers killed", .run = nemesis_poolers, .brief = true },
    { .name = "synchronous standby", .run = nemesis_promote_synchronous, .moves = true },
    { .name = "asynchronous standby", .run = nemesis_promote_asynchronous, .moves = true },
    { .name = "no connections left", .run = nemesis_connections },
    { .name = "an old snapshot", .run = nemesis_snapshot, .lasts = true },
    { .name = "timeouts of the role", .run = nemesis_role },
    { .name = "the clock jumps", .run = nemesis_clock },
    { .name = "disk full", .run = nemesis_disk },
    { .name = "logical replication", .run = nemesis_logical, .stays = true },
};
const size_t nemesis_count = sizeof(nemeses) / sizeof(nemeses[0]);

static void drop_snapshot(chaos *c) {
    PQfinish(c->snapshot);
    c->snapshot = NULL;
    ledger("end", "an old snapshot", "", "");
}

void nap_all(chaos *c, uint64_t ms) {
    uint64_t end_ms = now_ms() + ms;
    do {
        fleet_watch(c);
        if (c->snapshot != NULL && now_ms() > c->snapshot_ms) drop_snapshot(c);
        pause_ms(20);
    } while (now_ms() < end_ms);
}

void nap(chaos *c, uint64_t ms) {
    nap_all(c, c->brief ? ms / 3 : ms);
}

void nemesis_sweep(chaos *c) {
    if (c->snapshot != NULL) drop_snapshot(c);
    for (size_t i = 0; i < NODES + CLIENTS; i++)
        if (c->processes[i].pid == 0) process_spawn(c, &c->processes[i]);
}

/* ---- the schema, as somebody who may make it; the fleet only uses it --------------------------------------------- */

static bool make_store(chaos *c) {
    char url[700];
    dur_provider *store;
    PGconn *db = admin_begin(c);
    long done = sql_number(db, "CREATE ROLE %s LOGIN", CHAOS_ROLE);
    server_url(c, "durite", url, sizeof(url));
    snprintf(url + strlen(url), sizeof(url) - strlen(url), "&schema=%s", CHAOS_SCHEMA);
    if (done < 0 || (store = open_somehow(url)) == NULL) return false;
    dur_provider_close(store);
    done =
        sql_number(db,
                   "ALTER ROLE " CHAOS_ROLE " SET statement_timeout = 20; ALTER ROLE " CHAOS_ROLE " SET lock_timeout ="
                   " 5; ALTER ROLE " CHAOS_ROLE " SET idle_in_transaction_session_timeout = 20;"
                   "GRANT USAGE ON SCHEMA %s TO %s; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s"
                   " TO %s; GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA %s TO %s",
                   CHAOS_SCHEMA, CHAOS_ROLE, CHAOS_SCHEMA, CHAOS_ROLE, CHAOS_SCHEMA, CHAOS_ROLE);
    PQfinish(db);
    return done >= 0;
}

static bool start_tickers(chaos *c) {
    char url[700], id[32];
    dur_client *client;
    dur_error err = DUR_ERROR_INIT;
    server_url(c, CHAOS_ROLE, url, sizeof(url));
    snprintf(url + strlen(url), sizeof(url) - strlen(url), "&schema=%s&migrate=0", CHAOS_SCHEMA);
    dur_provider *store = open_somehow(url);
    bool good = store != NULL && dur_client_new(&client, store, &err) == DUR_OK;
    for (int i = 0; good && i < TICKERS; i++) {
        snprintf(id, sizeof(id), "ticker-%d", i);
        ledger("call-start", id, "", "");
        good = dur_client_start(client, &err, "Ticker", "", .instance = id) == DUR_OK;
        if (good) ledger("ok-start", id, "", "");
    }
    if (!good) fprintf(stderr, "%s\n", err.message);
    if (good) dur_client_free(client);
    dur_provider_close(store);
    return good;
}

/* ---- what happens when ------------------------------------------------------------------------------------------- */

typedef struct plan {
    size_t order[64]; /* of one pass: each that can be done, once */
    size_t count, next;
    bool impossible[64];
} plan;

static void shuffle(chaos *c, plan *p) {
    p->count = p->next = 0;
    for (size_t i = 0; i < nemesis_count; i++)
        if (!p->impossible[i] && !nemeses[i].stays && (!c->brief || nemeses[i].brief)) p->order[p->count++] = i;
    for (size_t i = p->count; i > 1; i--) {
        size_t other = pick(c, (unsigned)i), kept = p->order[i - 1];
        p->order[i - 1] = p->order[other];
        p->order[other] = kept;
    }
}

static void happen(chaos *c, plan *p, size_t which) {
    const nemesis *n = &nemeses[which];
    printf("# %5.1f s: %s\n", (double)(now_ms() - c->begin_ms) / 1000.0, n->name);
    fflush(stdout);
    ledger("begin", n->name, "", "");
    const char *reason = n->run(c);
    if (!n->lasts) ledger("end", n->name, reason != NULL ? reason : "", "");
    if (reason == NULL) return;
    printf("# %s: not done: %s\n", n->name, reason);
    p->impossible[which] = true;
}

static void storm(chaos *c) {
    static plan p;
    shuffle(c, &p);
    while (now_ms() < c->end_ms) {
        bool late = now_ms() - c->begin_ms > (c->end_ms - c->begin_ms) * 3 / 4;
        for (size_t i = 0; late && !c->brief && !c->copying && i < nemesis_count; i++)
            if (nemeses[i].stays && !p.impossible[i]) happen(c, &p, i);
        if (p.next == p.count) {
            if (c->brief) break; /* each once, and then it is judged */
            shuffle(c, &p);
        }
        size_t which = p.order[p.next++];
        if (!(nemeses[which].moves && c->copying)) happen(c, &p, which);
        nap(c, 1000 + pick(c, 3000));
    }
}

int chaos_run(chaos *c) {
    servers_begin(c);
    if (!make_store(c) || !start_tickers(c)) return 1;
    fleet_begin(c);
    nap(c, 2000);
    storm(c);
    nemesis_sweep(c);
    fleet_end(c, false);
    size_t broken = judge(c);
    for (size_t i = 0; i < BOUNCERS; i++)
        bouncer_kill(&c->bouncers[i]);
    if (broken > 0) printf("# %zu rules are broken; seed and logs: %s\n", broken, c->folder);
    for (size_t i = 0; i < SERVERS; i++)
        server_kill(c, i);
    return broken > 0;
}
