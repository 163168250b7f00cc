/*
 * chaos.h: nodes, clients, a PostgreSQL server, somebody who breaks it all, and a judge.
 *
 * One program.  The run (chaos_run.c) is a process without threads; nodes and clients are processes of their own that
 * use public headers only.  What they did is in the ledger, one file that outlives each of them.
 */
#ifndef TESTS_CHAOS_CHAOS_H
#define TESTS_CHAOS_CHAOS_H

#include <libpq-fe.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { NODES = 4, CLIENTS = 3, TICKERS = 12, BOUNCERS = 2, SERVERS = 2, HOARD_MAX = 200, SAMPLES_MAX = 400 };

#define CHAOS_SCHEMA "chaos"
#define CHAOS_ROLE "durite_run" /* of nodes and clients: the rights that docs/operations.md names, and no more */

/* ---- the ledger -------------------------------------------------------------------------------------------------- */

/* A line is "MILLISECONDS<tab>PID<tab>KIND<tab>A<tab>B<tab>C", one write to a file opened with O_APPEND: it is there as
   a whole, or not at all, whoever dies next.  Milliseconds are of CLOCK_MONOTONIC, which all processes share. */
void ledger_open(const char *path);
void ledger(const char *kind, const char *a, const char *b, const char *c);
__attribute__((format(printf, 1, 2))) void ledger_fault(const char *format,
                                                        ...); /* what must not be, seen by the run */
uint64_t now_ms(void);
void pause_ms(uint64_t ms);

/* ---- processes --------------------------------------------------------------------------------------------------- */

extern volatile sig_atomic_t is_told; /* SIGTERM: end when it suits */
void listen_to_sigterm(void);
int node_main(const char *url, const char *name, uint64_t owner_timeout_ms);
int client_main(const char *url, const char *name, unsigned seed);

typedef struct process {
    char name[24];
    pid_t pid; /* 0: none */
    unsigned generation;
    unsigned pooler; /* which bouncer it goes through, from 1; 0: none */
    bool node;
} process;

typedef struct bouncer {
    char dir[120];
    const char *mode; /* "session", "transaction" */
    pid_t pid;
} bouncer;

typedef struct server {
    char socket[120]; /* folder */
    char data[140];
    char log[160];
} server;

typedef struct sample { /* all that was accepted before at_ms is in the log up to lsn */
    uint64_t at_ms, lsn;
} sample;

typedef struct chaos {
    const char *folder; /* logs and the ledger: kept when something is wrong */
    const char *disk;   /* a file system of our own that the servers are on; NULL: none */
    char base[120];     /* of the servers */
    server servers[SERVERS];
    size_t primary;
    process processes[NODES + CLIENTS];
    bouncer bouncers[BOUNCERS];
    unsigned seed;
    uint64_t owner_timeout_ms, begin_ms, end_ms;
    bool brief, copying; /* copying: a subscriber follows, so nobody is promoted any more */
    PGconn *snapshot;    /* held open until */
    uint64_t snapshot_ms;
    volatile int64_t *clock_ns; /* what the servers' clock has beyond the real time; NULL: it cannot be set */
    size_t terminated;
} chaos;

unsigned pick(chaos *c, unsigned below); /* 0 … below - 1, by the seed */

/* chaos_fleet.c: nodes, clients, poolers. */
void process_url(const chaos *c, const process *p, char *out, size_t room);
void process_spawn(chaos *c, process *p);
void process_dies(chaos *c, const process *p); /* now: into the ledger, with the tickers that it holds */
void process_kill(chaos *c, process *p);       /* SIGKILL */
void fleet_begin(chaos *c);
void fleet_watch(chaos *c); /* who has ended without having been told? */
void fleet_end(chaos *c, bool nodes);
bool bouncer_begin(chaos *c, bouncer *b); /* also again, after a kill, in front of the server that is the primary now */
void bouncer_kill(bouncer *b);

/* chaos_server.c: the servers. */
__attribute__((format(printf, 1, 2))) int shell(const char *format, ...);
void servers_begin(chaos *c);
bool server_start(chaos *c, size_t which);
void server_kill(chaos *c, size_t which); /* SIGKILL: postmaster and children */
bool server_is_up(const chaos *c, size_t which);
void server_put_away(chaos *c, size_t which);
void server_url(const chaos *c, const char *user, char *out, size_t room); /* of whichever is the primary */
PGconn *admin_begin(chaos *c);                                             /* to the primary, when there is one */
bool sql_try(PGconn *db, char *out, size_t room, const char *sql);
__attribute__((format(printf, 2, 3))) long sql_number(PGconn *db, const char *format, ...); /* -1: it failed */

/* ---- who breaks things: each returns when the worst is over, the load goes on all the time ----------------------- */

typedef struct nemesis {
    const char *name;
    const char *(*run)(chaos *c); /* NULL, or why it could not be done here */
    bool brief;                   /* in the short form, too */
    bool moves;                   /* another server is the primary afterwards */
    bool stays;                   /* it works until the end of the run, from three quarters of it on */
    bool lasts;                   /* it says its end by itself */
} nemesis;
extern const nemesis nemeses[];
extern const size_t nemesis_count;

void nap_all(chaos *c, uint64_t ms); /* while the background goes on: who has ended, what is held open */
void nap(chaos *c, uint64_t ms);     /* the same; a third of it in the short form */
void nemesis_sweep(chaos *c);        /* the load is over: nothing is held, stopped or away */

const char *nemesis_terminate(chaos *c);
const char *nemesis_restart(chaos *c);
const char *nemesis_kill(chaos *c);
const char *nemesis_stop(chaos *c);
const char *nemesis_poolers(chaos *c);
const char *nemesis_promote_synchronous(chaos *c);
const char *nemesis_promote_asynchronous(chaos *c);
const char *nemesis_connections(chaos *c);
const char *nemesis_snapshot(chaos *c);
const char *nemesis_role(chaos *c);
const char *nemesis_clock(chaos *c);
const char *nemesis_disk(chaos *c);
const char *nemesis_logical(chaos *c);
void logical_compare(chaos *c); /* when nothing runs any more */

/* ---- what must hold ---------------------------------------------------------------------------------------------- */

struct sqlite3;

/* Send an end to whatever waits for one, wait until nothing runs any more, then judge: how many rules are broken. */
size_t judge(chaos *c);
void report(chaos *c, struct sqlite3 *db);

#endif
