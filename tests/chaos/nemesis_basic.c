/*
 * nemesis_basic.c: sessions, servers and nodes that die; nodes that stand still.
 */
#include "chaos.h"

/* Sessions of nodes and clients, some or all, five times. */
const char *nemesis_terminate(chaos *c) {
    for (int i = 0; i < 5; i++) {
        PGconn *db = admin_begin(c);
        unsigned percent = pick(c, 4) == 0 ? 100 : 5 + pick(c, 50);
        long ended = sql_number(db,
                                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '%s' AND"
                                " random() * 100 < %u",
                                CHAOS_ROLE, percent);
        if (ended > 0) c->terminated += (size_t)ended;
        PQfinish(db);
        nap(c, 200 + pick(c, 1500));
    }
    return NULL;
}

const char *nemesis_restart(chaos *c) {
    ledger("down", "the server is killed", "", "");
    server_kill(c, c->primary);
    nap(c, pick(c, 2) * pick(c, 3000));
    if (!server_start(c, c->primary)) ledger_fault("the server does not start again");
    nap(c, 3000);
    return NULL;
}

/* One or two nodes; now and then a client, whose calls then have no answer. */
const char *nemesis_kill(chaos *c) {
    process *first = &c->processes[pick(c, NODES)];
    process *second = &c->processes[pick(c, NODES + CLIENTS)];
    process_kill(c, first);
    if (pick(c, 2) == 0) process_kill(c, second);
    nap(c, pick(c, 4000));
    if (first->pid == 0) process_spawn(c, first);
    if (second->pid == 0) process_spawn(c, second);
    nap(c, 3000);
    return NULL;
}

/* Poolers die and come back; who is connected through them loses all its sessions at once. */
const char *nemesis_poolers(chaos *c) {
    if (c->bouncers[0].pid == 0) return "no pgbouncer on this machine";
    for (size_t i = 0; i < BOUNCERS; i++) {
        bouncer_kill(&c->bouncers[i]);
        nap(c, pick(c, 1500));
        (void)bouncer_begin(c, &c->bouncers[i]);
        nap(c, 500 + pick(c, 1000));
    }
    return NULL;
}

/* Longer than an owner may be silent: its work is taken over, and it learns of that when it goes on. */
const char *nemesis_stop(chaos *c) {
    process *p = &c->processes[pick(c, NODES)];
    process_dies(c, p);
    kill(p->pid, SIGSTOP);
    nap_all(c, c->owner_timeout_ms + 1500 + pick(c, 2000));
    kill(p->pid, SIGCONT);
    nap(c, 3000);
    return NULL;
}
