/*
 * sim_wire.c: sockets to a PostgreSQL server, a statement at a time.
 *
 * What an actor sends is kept here and goes to the server in units: up to an Execute, with a Flush of ours behind it, a
 * Query, or a Sync.  Before each unit the actor may be stopped: so another session's statements come between any two of
 * its own, while its transaction stays open.  Behind an error the server skips what follows up to the Sync, which
 * therefore is one unit.  An actor that is killed takes what was not sent along; the machine may let it be sent first,
 * as a network would.
 *
 * Messages: a byte of kind and four of length, which counts itself.  The first one of a connection has no kind.
 */
#include "sim_machine.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WIRES_MAX 64
#define SLICE_MS 3 /* of real time: what the server needs for a statement that waits for nobody */

typedef struct bytes {
    unsigned char *data;
    size_t size, room;
} bytes;

typedef struct wire {
    int fd;        /* 0: free */
    bytes out;     /* from the client, not sent yet */
    bytes in;      /* from the server, not taken yet */
    bool started;  /* the first message is through */
    bool pending;  /* a unit is with the server */
    bool skipping; /* the server ignores everything up to the next Sync */
    bool ended;    /* no more will come */
    char awaits;   /* pending: 'C' the end of a statement, 'Z' ready */
    int backend;   /* the server's process */
    unsigned statements;
    unsigned char head[80]; /* the message that is being received: kind, length, and what of its body is wanted */
    size_t head_size, body_left;
} wire;

static wire wires[WIRES_MAX];

static wire *find(int fd) {
    if (fd <= 0 || sim_me == NULL) return NULL;
    for (size_t i = 0; i < WIRES_MAX; i++)
        if (wires[i].fd == fd) return &wires[i];
    return NULL;
}

static void append(bytes *to, const void *data, size_t size) {
    if (to->size + size > to->room) {
        to->room = (to->size + size) * 2;
        to->data = realloc(to->data, to->room);
        if (to->data == NULL) sim_fail("out of memory");
    }
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

static void consume(bytes *from, size_t size) {
    memmove(from->data, from->data + size, from->size - size);
    from->size -= size;
}

static uint32_t number_at(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* ---- for the trace: which statement, and what came of it ---- */

#define KNOWN_MAX 512
#define KNOWN_TEXT 88

typedef struct known_statement {
    char name[24], text[KNOWN_TEXT];
} known_statement;

static known_statement known[KNOWN_MAX]; /* of this process: a name stands for the same text in all its sessions */

static const char *text_of(const char *name) {
    for (size_t i = 0; i < KNOWN_MAX && known[i].text[0] != '\0'; i++)
        if (strcmp(known[i].name, name) == 0) return known[i].text;
    return name;
}

static void remember(const char *name, const char *text) {
    for (size_t i = 0; i < KNOWN_MAX; i++) {
        if (known[i].text[0] != '\0' && strcmp(known[i].name, name) != 0) continue;
        snprintf(known[i].name, sizeof(known[i].name), "%s", name);
        snprintf(known[i].text, sizeof(known[i].text), "%s", text);
        return;
    }
}

static void trace_unit(const unsigned char *at, size_t size, bool started) {
    if (sim_me->alone || !started) return;
    for (size_t step; size >= 5; at += step, size -= step) {
        const char *body = (const char *)at + 5;
        step = number_at(at + 1) + 1u;
        if (at[0] == 'P') remember(body, body + strlen(body) + 1);
        if (at[0] == 'B') sim_trace(sim_me->name, "sends %s", text_of(body + strlen(body) + 1));
        if (at[0] == 'Q') sim_trace(sim_me->name, "sends %.80s", body);
        if (at[0] == 'S') sim_trace(sim_me->name, "sends a sync");
    }
}

/* Of an error the code stands behind a C, between zeros. */
static void trace_answer(const wire *self) {
    if (sim_me->alone) return;
    const char *body = (const char *)self->head + 5;
    size_t size = self->head_size - 5;
    if (self->head[0] == 'C') sim_trace(sim_me->name, "answer %.*s", (int)size, body);
    for (size_t i = 1; self->head[0] == 'E' && i + 6 < size; i++)
        if (body[i] == 'C' && body[i - 1] == '\0') sim_trace(sim_me->name, "error %.5s", body + i + 1);
}

/* ---- from the server ---- */

static void message_ended(wire *self) {
    trace_answer(self);
    switch (self->head[0]) {
    case 'K':
        self->backend = (int)number_at(self->head + 5);
        if (sim_me->backend_count < SIM_BACKENDS_MAX) sim_me->backends[sim_me->backend_count++] = self->backend;
        break;
    case 'E':
        self->skipping = self->started && self->awaits != 'Q';
        if (self->awaits == 'C' || !self->started) self->pending = false;
        break;
    case 'C':
    case 'I':
    case 's':
        if (self->awaits == 'C') self->pending = false;
        break;
    case 'Z':
        self->pending = self->skipping = false;
        break;
    default:
        break;
    }
}

static void scan(wire *self, const unsigned char *at, size_t size) {
    while (size > 0) {
        bool in_head = self->head_size < 5;
        if (in_head) {
            self->head[self->head_size++] = *at++;
            size--;
            if (self->head_size == 5) self->body_left = number_at(self->head + 1) - 4;
        } else {
            size_t part = size < self->body_left ? size : self->body_left;
            for (size_t i = 0; i < part && self->head_size < sizeof(self->head); i++)
                self->head[self->head_size++] = at[i];
            at += part;
            size -= part;
            self->body_left -= part;
        }
        if (self->head_size < 5 || self->body_left > 0) continue;
        message_ended(self);
        self->head_size = 0;
    }
}

static void receive(wire *self) {
    unsigned char part[16384];
    for (;;) {
        ssize_t got = syscall(SYS_recvfrom, self->fd, part, sizeof(part), MSG_DONTWAIT, NULL, NULL);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got <= 0) {
            self->ended = true;
            self->pending = false;
            return;
        }
        scan(self, part, (size_t)got);
        append(&self->in, part, (size_t)got);
    }
}

/* ---- to the server ---- */

static void send_all(wire *self, const unsigned char *data, size_t size) {
    while (size > 0 && !self->ended) {
        ssize_t put = syscall(SYS_sendto, self->fd, data, size, MSG_NOSIGNAL, NULL, 0);
        if (put > 0) {
            data += put;
            size -= (size_t)put;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            struct pollfd room = { .fd = self->fd, .events = POLLOUT };
            (void)sim_real_poll(&room, 1, 1000);
        } else if (errno != EINTR) {
            self->ended = true;
        }
    }
}

/* The size of the next unit, 0 if none is whole; what ends it. */
static size_t next_unit(const wire *self, char *last) {
    const bytes *out = &self->out;
    if (!self->started) {
        *last = 'Q';
        return out->size >= 4 && out->size >= number_at(out->data) ? number_at(out->data) : 0;
    }
    for (size_t at = 0; out->size - at >= 5;) {
        size_t size = number_at(out->data + at + 1) + 1u;
        if (out->size - at < size) return 0;
        *last = (char)out->data[at];
        at += size;
        bool ends = *last == 'Q' || *last == 'S' || *last == 'X' || *last == 'p' || *last == 'H';
        if (ends || (*last == 'E' && !self->skipping)) return at;
    }
    return 0;
}

static bool cut(wire *self, bool executed) {
    if (!sim_write_fails(executed ? "answer" : "statement")) return false;
    shutdown(self->fd, SHUT_RDWR);
    self->ended = true;
    self->pending = false;
    self->out.size = self->in.size = 0;
    return true;
}

static void send_unit(wire *self, size_t size, char last) {
    static const unsigned char flush[] = { 'H', 0, 0, 0, 4 };
    sim_point("statement", (long)++self->statements);
    if (sim_me->fault_errno == ENOSPC && cut(self, false)) return;
    self->awaits = last == 'E' ? 'C' : last == 'Q' ? 'Q' : 'Z';
    self->pending = last != 'X' && last != 'H' && last != 'p';
    trace_unit(self->out.data, size, self->started);
    send_all(self, self->out.data, size);
    if (last == 'E') send_all(self, flush, sizeof(flush));
    consume(&self->out, size);
    self->started = true;
    sim_shared_memory->changes++;
}

static void await_answer(wire *self) {
    struct pollfd answer = { .fd = self->fd, .events = POLLIN };
    for (int i = 0; i < 4 && self->pending && !self->ended; i++) {
        (void)sim_real_poll(&answer, 1, SLICE_MS);
        receive(self);
    }
    if (!self->pending && sim_me->fault_errno == EIO) (void)cut(self, true);
}

static void pump(wire *self) {
    receive(self);
    if (self->pending) await_answer(self);
    while (!self->pending && !self->ended && self->in.size == 0) {
        char last = 0;
        size_t size = next_unit(self, &last);
        if (size == 0) return;
        send_unit(self, size, last);
        if (self->pending) await_answer(self);
    }
}

/* ---- for the rest of the machine ---- */

bool sim_wire_owns(int fd) {
    return find(fd) != NULL;
}

bool sim_wire_ready(int fd) {
    wire *self = find(fd);
    pump(self);
    return self->in.size > 0 || self->ended;
}

int sim_wire_backend(int fd) {
    const wire *self = find(fd);
    if (self == NULL || !self->pending) return 0;
    return self->backend != 0 ? self->backend : SIM_BACKEND_UNKNOWN;
}

void sim_wire_flush_all(void) {
    for (size_t i = 0; i < WIRES_MAX; i++)
        if (wires[i].fd > 0) send_all(&wires[i], wires[i].out.data, wires[i].out.size);
}

void sim_wire_closed(int fd) {
    wire *self = find(fd);
    if (self == NULL) return;
    send_all(self, self->out.data, self->out.size);
    free(self->out.data);
    free(self->in.data);
    memset(self, 0, sizeof(*self));
}

#pragma GCC visibility push(default) /* or nobody outside would call what stands in front of libc */

/* ---- libc ---- */

int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t size) {
    if (sim_me != NULL && !sim_outside) {
        sim_point("connect", 0);
        for (size_t i = 0; i < WIRES_MAX; i++) {
            if (wires[i].fd != 0) continue;
            wires[i].fd = fd;
            break;
        }
    }
    int result = 0;
    do {
        result = (int)syscall(SYS_connect, fd, address.__sockaddr__, size);
    } while (result < 0 && errno == EINTR);
    return result;
}

ssize_t send(int fd, const void *data, size_t size, int flags) {
    wire *self = find(fd);
    if (self == NULL) return syscall(SYS_sendto, fd, data, size, flags, NULL, 0);
    if (self->ended) {
        errno = EPIPE;
        return -1;
    }
    append(&self->out, data, size);
    return (ssize_t)size;
}

ssize_t recv(int fd, void *data, size_t size, int flags) {
    wire *self = find(fd);
    if (self == NULL) return syscall(SYS_recvfrom, fd, data, size, flags, NULL, NULL);
    if (self->in.size == 0) pump(self);
    bool blocking = (syscall(SYS_fcntl, fd, F_GETFL) & O_NONBLOCK) == 0;
    while (self->in.size == 0 && !self->ended && blocking) {
        struct pollfd one = { .fd = fd, .events = POLLIN };
        (void)sim_wait(&one, 1, SIM_NEVER);
    }
    if (self->in.size == 0) {
        if (self->ended) return 0;
        errno = EAGAIN;
        return -1;
    }
    size_t part = size < self->in.size ? size : self->in.size;
    memcpy(data, self->in.data, part);
    consume(&self->in, part);
    return (ssize_t)part;
}
