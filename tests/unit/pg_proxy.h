/*
 * pg_proxy.h: between a store and the server: cuts a connection before a commit is sent, or after it happened.
 */
#ifndef DURITE_TESTS_PG_PROXY_H
#define DURITE_TESTS_PG_PROXY_H

#include "pg_help.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

/* What carries the trigger is not forwarded; or is, and its answer is not; or a pooler's last word is the answer.  Cut:
   the connections end; silent: they stay, and nothing comes through any more. */
enum { PROXY_PASS, PROXY_CUT_BEFORE, PROXY_CUT_AFTER, PROXY_GIVE_UP_AFTER, PROXY_SILENT_BEFORE, PROXY_SILENT_AFTER };

typedef struct proxy {
    char dir[64];
    char target[256];
    const char *trigger; /* a text in what the client sends; a word that is a query by itself with its end */
    int listener;
    atomic_int mode;
    atomic_int cuts;
    /* the next connections break off behind so many pieces of the server's: they end, or nothing comes any more */
    atomic_int to_break, break_behind;
    atomic_bool breaks_silently;
    atomic_uint ended; /* those that are there end when it grows */
    pthread_t thread;
    atomic_bool stop;
    atomic_int serving; /* copying threads: nothing of them may outlive the proxy */
} proxy;

/* Forwards what still comes from the client (a batch is sent in pieces when the machine is busy) until the server says
   that it is ready: then the transaction is over; what it says before may be a part of the answer. */
static inline void proxy_await_commit(proxy *x, int client, int server) {
    static const char ready[5] = { 'Z', 0, 0, 0, 5 };
    char answer[65536], sent[65536];
    size_t held = 0;
    while (!atomic_load(&x->stop)) {
        struct pollfd both[2] = { { .fd = client, .events = POLLIN }, { .fd = server, .events = POLLIN } };
        if (poll(both, 2, 50) < 0) return;
        if (both[0].revents != 0) {
            ssize_t size = read(client, sent, sizeof(sent));
            if (size <= 0 || write(server, sent, (size_t)size) != size) return;
        }
        if (both[1].revents == 0) continue;
        ssize_t size = read(server, answer + held, sizeof(answer) - held);
        if (size <= 0) return;
        held += (size_t)size;
        if (memmem(answer, held, ready, sizeof(ready)) != NULL) return;
        if (held > sizeof(ready)) { /* the end may be its beginning */
            memmove(answer, answer + held - sizeof(ready), sizeof(ready));
            held = sizeof(ready);
        }
    }
}

/* As pgbouncer does when a server's session ends while a transaction runs there. */
static inline void proxy_give_up(int client) {
    static const char fields[] = "SFATAL\0C08P01\0Mserver conn crashed?\0";
    char message[5 + sizeof(fields)] = { 'E', 0, 0, 0, 4 + sizeof(fields) };
    memcpy(message + 5, fields, sizeof(fields));
    (void)!write(client, message, sizeof(message));
}

/* Until the client gives it up. */
static inline void proxy_stay_silent(proxy *x, int client) {
    char sent[4096];
    struct pollfd one = { .fd = client, .events = POLLIN };
    while (!atomic_load(&x->stop) && (poll(&one, 1, 50) <= 0 || read(client, sent, sizeof(sent)) > 0))
        continue;
}

/* The server hears nothing of it. */
static inline void proxy_break_off(proxy *x, int client, int server) {
    int left = atomic_load(&x->break_behind);
    while (left > 0 && !atomic_load(&x->stop)) {
        char piece[65536];
        struct pollfd both[2] = { { .fd = client, .events = POLLIN }, { .fd = server, .events = POLLIN } };
        if (poll(both, 2, 50) < 0) return;
        for (int i = 0; i < 2; i++) {
            if (both[i].revents == 0) continue;
            ssize_t size = read(both[i].fd, piece, sizeof(piece));
            if (size <= 0 || write(both[1 - i].fd, piece, (size_t)size) != size) return;
            left -= i;
        }
    }
    if (!atomic_load(&x->breaks_silently)) return;
    proxy_stay_silent(x, client);
    while (!atomic_load(&x->stop))
        pg_pause_ms(20);
}

static inline bool proxy_breaks_off(proxy *x) {
    int left = atomic_load(&x->to_break);
    while (left > 0 && !atomic_compare_exchange_weak(&x->to_break, &left, left - 1))
        continue;
    return left > 0;
}

static inline void proxy_copy(proxy *x, int client, int server) {
    enum { PIECE = 65536, LONGEST = 128 };
    char buffer[LONGEST + PIECE]; /* what came before, then what came now: the trigger may lie across the two */
    size_t before = 0, wanted = strlen(x->trigger) + (strcmp(x->trigger, "COMMIT") == 0);
    unsigned ended = atomic_load(&x->ended);
    assert_true(wanted <= LONGEST);
    for (;;) {
        struct pollfd both[2] = { { .fd = client, .events = POLLIN }, { .fd = server, .events = POLLIN } };
        if (poll(both, 2, 50) < 0 || atomic_load(&x->stop) || atomic_load(&x->ended) != ended) return;
        if (both[0].revents != 0) {
            ssize_t size = read(client, buffer + before, PIECE);
            if (size <= 0) return;
            size_t held = before + (size_t)size;
            int mode = atomic_load(&x->mode);
            bool cut = mode != PROXY_PASS && memmem(buffer, held, x->trigger, wanted) != NULL;
            if (cut) {
                atomic_store(&x->mode, PROXY_PASS);
                atomic_fetch_add(&x->cuts, 1);
            }
            if (cut && mode == PROXY_SILENT_BEFORE) proxy_stay_silent(x, client);
            if (cut && (mode == PROXY_CUT_BEFORE || mode == PROXY_SILENT_BEFORE)) return;
            if (write(server, buffer + before, (size_t)size) != size) return;
            if (cut) {
                proxy_await_commit(x, client, server);
                if (mode == PROXY_GIVE_UP_AFTER) proxy_give_up(client);
                if (mode == PROXY_SILENT_AFTER) proxy_stay_silent(x, client);
                return;
            }
            /* Less than the trigger is kept: what was seen once with another mode is not seen again. */
            before = held < wanted - 1 ? held : wanted - 1;
            memmove(buffer, buffer + held - before, before);
        }
        if (both[1].revents != 0) {
            char answer[PIECE];
            ssize_t size = read(server, answer, sizeof(answer));
            if (size <= 0 || write(client, answer, (size_t)size) != size) return;
        }
    }
}

typedef struct proxy_pair {
    proxy *x;
    int client;
} proxy_pair;

static inline void *proxy_serve(void *arg) {
    proxy_pair *mine = arg;
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    int server = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(to.sun_path, sizeof(to.sun_path), "%.100s", mine->x->target);
    if (connect(server, (struct sockaddr *)&to, sizeof(to)) == 0)
        (proxy_breaks_off(mine->x) ? proxy_break_off : proxy_copy)(mine->x, mine->client, server);
    close(server);
    close(mine->client);
    atomic_fetch_sub(&mine->x->serving, 1);
    free(mine);
    return NULL;
}

static inline void *proxy_accept(void *arg) {
    proxy *x = arg;
    while (!atomic_load(&x->stop)) {
        struct pollfd wait = { .fd = x->listener, .events = POLLIN };
        if (poll(&wait, 1, 50) <= 0) continue;
        proxy_pair *mine = malloc(sizeof(*mine));
        pthread_t thread;
        *mine = (proxy_pair){ x, accept(x->listener, NULL, NULL) };
        atomic_fetch_add(&x->serving, 1);
        pthread_create(&thread, NULL, proxy_serve, mine);
        pthread_detach(thread);
    }
    return NULL;
}

/* False: the server is reached otherwise than by a socket in a folder. */
static inline bool proxy_open(proxy *x, const char *trigger) {
    const char *host = strstr(pg_server(), "host=/");
    struct sockaddr_un here = { .sun_family = AF_UNIX };
    if (host == NULL) return false;
    memset(x, 0, sizeof(*x));
    x->trigger = trigger;
    snprintf(x->target, sizeof(x->target), "%.*s/.s.PGSQL.5432", (int)strcspn(host + 5, "&"), host + 5);
    const char *folder = getenv("TMPDIR");
    snprintf(x->dir, sizeof(x->dir), "%s/durite-proxy-XXXXXX", folder != NULL ? folder : "/tmp");
    assert_non_null(mkdtemp(x->dir));
    snprintf(here.sun_path, sizeof(here.sun_path), "%s/.s.PGSQL.5432", x->dir);
    x->listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(x->listener, (struct sockaddr *)&here, sizeof(here)), 0);
    assert_int_equal(listen(x->listener, 16), 0);
    assert_int_equal(pthread_create(&x->thread, NULL, proxy_accept, x), 0);
    return true;
}

static inline dur_provider *proxy_store(proxy *x, pg_bench *p) {
    dur_provider *store = NULL;
    char url[1024];
    snprintf(url, sizeof(url), "postgres:///postgres?host=%s&user=durite&schema=%s", x->dir, p->schema);
    ASSERT_OK(&p->b, dur_open(&store, url, &p->b.err));
    return store;
}

static inline void proxy_close(proxy *x) {
    char path[128];
    atomic_store(&x->stop, true);
    pthread_join(x->thread, NULL);
    while (atomic_load(&x->serving) > 0)
        pg_pause_ms(5); /* the copying threads see it too */
    close(x->listener);
    snprintf(path, sizeof(path), "%.100s/.s.PGSQL.5432", x->dir);
    unlink(path);
    rmdir(x->dir);
}

#endif
