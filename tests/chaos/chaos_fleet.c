/*
 * chaos_fleet.c: nodes and clients as processes, and the poolers that some of them go through.
 */
#include "chaos.h"
#include "e2e/pooler.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

unsigned pick(chaos *c, unsigned below) {
    return (unsigned)rand_r(&c->seed) % below;
}

/* ---- poolers ----------------------------------------------------------------------------------------------------- */

static bool write_settings(const chaos *c, const bouncer *b) {
    char path[160];
    snprintf(path, sizeof(path), "%s/pid", b->dir);
    (void)unlink(path);
    snprintf(path, sizeof(path), "%s/pgbouncer.ini", b->dir);
    FILE *out = fopen(path, "w");
    if (out == NULL) return false;
    fprintf(out,
            "[databases]\npostgres = host=%s user=%s\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = %s\n"
            "listen_port = 5432\nauth_type = any\nmax_client_conn = 200\ndefault_pool_size = %d\npool_mode = %s\n"
            "server_login_retry = 0.2\nquery_wait_timeout = 10\nlogfile = %s/log\npidfile = %s/pid\n",
            c->servers[c->primary].socket, CHAOS_ROLE, b->dir, strcmp(b->mode, "session") == 0 ? 30 : 6, b->mode,
            b->dir, b->dir);
    return fclose(out) == 0 && chmod(path, 0666) == 0;
}

bool bouncer_begin(chaos *c, bouncer *b) {
    char path[160];
    if (access("/usr/sbin/pgbouncer", X_OK) != 0) return false;
    if (mkdir(b->dir, 0777) == 0) (void)chmod(b->dir, 0777);
    if (!write_settings(c, b)) return false;
    snprintf(path, sizeof(path), "%s/pgbouncer.ini", b->dir);
    b->pid = fork();
    if (b->pid != 0) return b->pid > 0;
    pooler_become(path);
}

void bouncer_kill(bouncer *b) {
    if (b->pid <= 0) return;
    kill(b->pid, SIGKILL);
    waitpid(b->pid, NULL, 0);
    b->pid = 0;
}

/* ---- nodes and clients ------------------------------------------------------------------------------------------- */

void process_url(const chaos *c, const process *p, char *out, size_t room) {
    char direct[500];
    const bouncer *b = p->pooler > 0 ? &c->bouncers[p->pooler - 1] : NULL;
    server_url(c, CHAOS_ROLE, direct, sizeof(direct));
    if (b == NULL)
        snprintf(out, room, "%s&application_name=%s&migrate=0&schema=%s", direct, p->name, CHAOS_SCHEMA);
    else
        snprintf(out, room, "postgres:///postgres?host=%s&user=%s&pooler=%s&application_name=%s&migrate=0&schema=%s",
                 b->dir, CHAOS_ROLE, b->mode, p->name, CHAOS_SCHEMA);
}

void process_spawn(chaos *c, process *p) {
    char url[900], log[200], number[24];
    char kind = p->name[0];
    p->generation++;
    snprintf(p->name + 2, sizeof(p->name) - 2, "g%u", p->generation);
    process_url(c, p, url, sizeof(url));
    snprintf(log, sizeof(log), "%s/%.2s.log", c->folder, p->name);
    snprintf(number, sizeof(number), "%llu",
             p->node ? (unsigned long long)c->owner_timeout_ms : (unsigned long long)pick(c, 1u << 30));
    p->pid = fork();
    if (p->pid != 0) return;
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (out < 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0) _exit(127);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    execl("/proc/self/exe", "chaos", kind == 'n' ? "--node" : "--client", url, p->name, number, c->folder,
          (char *)NULL);
    _exit(127);
}

void process_dies(chaos *c, const process *p) {
    char sql[300], tickers[400], pid[24];
    if (!p->node) return;
    PGconn *db = admin_begin(c);
    snprintf(sql, sizeof(sql),
             "SELECT coalesce(string_agg(instance_id, ','), '') FROM %s.dur_instances WHERE owner LIKE '%s-%%' AND"
             " instance_id LIKE 'ticker-%%'",
             CHAOS_SCHEMA, p->name);
    if (!sql_try(db, tickers, sizeof(tickers), sql)) tickers[0] = '\0';
    PQfinish(db);
    snprintf(pid, sizeof(pid), "%d", (int)p->pid);
    ledger("dead", pid, p->name, tickers);
}

void process_kill(chaos *c, process *p) {
    if (p->pid == 0) return;
    process_dies(c, p);
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
    p->pid = 0;
}

/* The last two nodes and the last client are behind poolers. */
void fleet_begin(chaos *c) {
    static const char *const modes[BOUNCERS] = { "session", "transaction" };
    bool pooled = true;
    for (size_t i = 0; i < BOUNCERS; i++) {
        bouncer *b = &c->bouncers[i];
        b->mode = modes[i];
        snprintf(b->dir, sizeof(b->dir), "%.100s/pool%zu", c->folder, i);
        pooled = bouncer_begin(c, b) && pooled;
    }
    if (!pooled) puts("# no pgbouncer on this machine: all nodes are connected directly");
    for (size_t i = 0; i < NODES + CLIENTS; i++) {
        process *p = &c->processes[i];
        p->node = i < NODES;
        snprintf(p->name, sizeof(p->name), "%c%zu", p->node ? 'n' : 'c', p->node ? i : i - NODES);
        if (pooled && (i == NODES - 2 || i == NODES - 1)) p->pooler = (unsigned)(i - (NODES - 2)) + 1;
        if (pooled && i == NODES + CLIENTS - 1) p->pooler = 2;
        process_spawn(c, p);
    }
}

void fleet_watch(chaos *c) {
    for (size_t i = 0; i < NODES + CLIENTS; i++) {
        process *p = &c->processes[i];
        int status = 0;
        if (p->pid == 0 || waitpid(p->pid, &status, WNOHANG) != p->pid) continue;
        ledger_fault("%s ended by itself: %s %d", p->name, WIFSIGNALED(status) ? "signal" : "exit code",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        process_spawn(c, p);
    }
}

void fleet_end(chaos *c, bool nodes) {
    for (size_t i = 0; i < NODES + CLIENTS; i++)
        if (c->processes[i].pid != 0 && c->processes[i].node == nodes) kill(c->processes[i].pid, SIGTERM);
    for (size_t i = 0; i < NODES + CLIENTS; i++) {
        process *p = &c->processes[i];
        int status = 0;
        if (p->pid == 0 || p->node != nodes) continue;
        for (uint64_t end_ms = now_ms() + 60000; waitpid(p->pid, &status, WNOHANG) != p->pid; pause_ms(20)) {
            if (now_ms() < end_ms) continue;
            ledger_fault("%s does not end when it is told to", p->name);
            kill(p->pid, SIGKILL);
            end_ms += 60000;
        }
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGTERM && WTERMSIG(status) != SIGKILL)
            ledger_fault("%s ended by signal %d", p->name, WTERMSIG(status));
        p->pid = 0;
    }
}
