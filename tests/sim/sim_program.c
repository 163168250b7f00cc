/*
 * sim_program.c: programs of flows: made, read, and computed without being run.
 *
 *   a N          an activity                          A N k        k activities, joined
 *   r N f max    one that fails f times, with retry   x N          one that fails for good
 *   g N          with a tag                           s N S        in session S
 *   o N ms       one that the host takes, with a timeout of ms
 *   t ms         a timer                              T ms k       k timers, joined
 *   S N ms       an activity against a timer          D N          an activity that nobody waits for
 *   e E ms       an event, or a deadline              q Q k ms     up to k messages of a queue, a deadline for each
 *   Q Q          whatever the queue has now           y Q ms       a message in a branch against a timer
 *   b {…}        two branches with the same body      c v {…}      a child
 *   C ms {…}     a child with a timeout               H s {…}      a child under an id that was used
 *   d {…}        a start that does not answer         w Q          an activity that sends a message to us
 *   k K V        a key of ours                        K r          a key of another instance
 *   u V          the status                           m            guid, random, now, patched, version
 *   G N          a saga, undone                       n            continue as new
 *   O Q ms       ask for a message, wait for a timer, and give the message up, whether it has come or not
 *   z N ms       a select over a spawned branch       f            fail, as planned (last)
 */
#include "sim_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t sim_fold(uint64_t fold, uint64_t value) {
    return (fold ^ value) * 1099511628211u + 1;
}

uint64_t sim_echo(uint64_t number) {
    return ((number * 2654435761u) >> 3 & 0xffffff) + 1;
}

bool sim_op_read(const char *program, size_t size, size_t *next, sim_op *out) {
    size_t at = *next;
    if (at >= size || program[at] == '\0') return false;
    *out = (sim_op){ .kind = program[at], .at = at };
    at++;
    for (size_t i = 0; i < 4 && at < size && program[at] >= '0' && program[at] <= '9'; i++) {
        while (at < size && program[at] >= '0' && program[at] <= '9')
            out->n[i] = out->n[i] * 10 + (uint32_t)(program[at++] - '0');
        if (at < size && program[at] == ':') at++;
    }
    if (at < size && program[at] == '{') {
        out->body = program + ++at;
        for (unsigned depth = 1; at < size; at++) {
            depth += program[at] == '{';
            depth -= program[at] == '}';
            if (depth == 0) break;
            out->body_size++;
        }
        at++;
    }
    if (at < size && program[at] == ';') at++;
    *next = at;
    return true;
}

uint64_t sim_program_fold(const char *program, size_t size) {
    uint64_t fold = 1;
    size_t next = 0;
    for (sim_op op; sim_op_read(program, size, &next, &op);) {
        switch (op.kind) {
        case 'a':
        case 'g':
        case 's':
            fold = sim_fold(fold, sim_echo(op.n[0]));
            break;
        case 'A':
            for (uint32_t i = 0; i < op.n[1]; i++)
                fold = sim_fold(fold, sim_echo(op.n[0] + i));
            break;
        case 'r':
            fold = sim_fold(fold, op.n[1] < op.n[2] ? sim_echo(op.n[0]) : 3);
            break;
        case 'b':
            fold = sim_fold(fold, sim_program_fold(op.body, op.body_size));
            fold = sim_fold(fold, sim_program_fold(op.body, op.body_size));
            break;
        case 'c':
            fold = sim_fold(fold, sim_program_fold(op.body, op.body_size));
            break;
        default:
            fold = sim_fold(fold, (uint64_t)op.kind);
        }
    }
    return fold;
}

bool sim_program_fails(const char *program, size_t size) {
    size_t next = 0;
    bool fails = false;
    for (sim_op op; sim_op_read(program, size, &next, &op);)
        fails = fails || op.kind == 'f';
    return fails;
}

uint32_t sim_program_key(const char *program, size_t at, uint32_t key) {
    size_t next = 0;
    uint32_t value = 0;
    for (sim_op op; sim_op_read(program, at, &next, &op);) {
        if (op.kind == 'k' && op.n[0] == key) value = op.n[1] % 5 == 0 ? 0 : op.n[1]; /* it is cleared then */
    }
    return value;
}

bool sim_ticket_program(const char *ticket, const char **program, size_t *size) {
    char *rest;
    const sim_call *call = sim_call_at((uint32_t)strtoul(ticket, &rest, 10));
    if (rest == ticket || call == NULL || call->kind != SIM_CALL_START) return false;
    *program = call->text;
    *size = strlen(call->text);
    while (*rest == '.') {
        const char *digits = rest + 1;
        size_t at = strtoul(digits, &rest, 10);
        sim_op op;
        if (rest == digits || !sim_op_read(*program, *size, &at, &op) || op.body == NULL) return false;
        *program = op.body;
        *size = op.body_size;
        while (*rest == 'x' || *rest == 'y') /* which of two branches */
            rest++;
    }
    return *rest == '\0';
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

typedef struct maker {
    char *out;
    size_t size, used;
    sim_rng *rng;
} maker;

/* What may stand where: top: a flow; inner: a branch, which does not continue as new and has no keys. */
static const char top_ops[] = "aaaArrxgssotttTSSDeeqqqqqqqQQOOyybbcccCHHHHdwwkkkKuummGnnnz";
static const char leaf_ops[] = "aaaArrxgssotttTSSDeqqQOywkkkumGnz";
static const char inner_ops[] = "aaArgsttTSqqqQOec";
static const char innermost_ops[] = "aaArgsttTSqqqQOe";

static void put(maker *self, const char *text) {
    size_t length = strlen(text);
    if (self->used + length + 1 > self->size) return;
    memcpy(self->out + self->used, text, length + 1);
    self->used += length;
}

static uint32_t draw(maker *self, uint32_t low, uint32_t high) {
    return (uint32_t)sim_between(self->rng, low, high);
}

/* Timeouts: mostly short, now and then a second or so. */
static uint32_t draw_ms(maker *self) {
    return sim_chance(self->rng, 25) ? draw(self, 200, 2500) : draw(self, 0, 150);
}

static void make_body(maker *self, const char *ops, unsigned count, unsigned depth);

static void make_op(maker *self, char kind, unsigned depth) {
    char text[64];
    uint32_t number = draw(self, 1, 99);
    text[0] = kind;
    text[1] = '\0';
    char *rest = text + 1;
    size_t room = sizeof(text) - 1;
    switch (kind) {
    case 'a':
    case 'x':
    case 'g':
    case 'D':
    case 'G':
        snprintf(rest, room, "%u;", number);
        break;
    case 'A':
        snprintf(rest, room, "%u:%u;", number, draw(self, 2, 4));
        break;
    case 'r': {
        uint32_t fails = draw(self, 0, 3);
        snprintf(rest, room, "%u:%u:%u:%u;", number, fails, draw(self, 1, 4), draw(self, 0, 3));
        break;
    }
    case 's':
        snprintf(rest, room, "%u:%u;", number, draw(self, 0, SIM_SESSIONS - 1));
        break;
    case 'o':
    case 'S':
    case 'z':
        snprintf(rest, room, "%u:%u;", number, draw_ms(self));
        break;
    case 't':
        snprintf(rest, room, "%u;", draw_ms(self));
        break;
    case 'T': {
        uint32_t ms = draw_ms(self);
        snprintf(rest, room, "%u:%u;", ms, draw(self, 2, 3));
        break;
    }
    case 'e': {
        uint32_t name = draw(self, 0, 1);
        snprintf(rest, room, "%u:%u;", name, draw_ms(self));
        break;
    }
    case 'q': {
        uint32_t queue = draw(self, 0, SIM_QUEUES - 1);
        uint32_t count = draw(self, 1, 4);
        snprintf(rest, room, "%u:%u:%u:%u;", queue, count, draw(self, 20, 1500), draw(self, 0, 2));
        break;
    }
    case 'Q':
    case 'w':
        snprintf(rest, room, "%u;", draw(self, 0, SIM_QUEUES - 1));
        break;
    case 'O':
    case 'y': {
        uint32_t queue = draw(self, 0, SIM_QUEUES - 1);
        snprintf(rest, room, "%u:%u;", queue, draw_ms(self));
        break;
    }
    case 'k': {
        uint32_t key = draw(self, 0, 2);
        snprintf(rest, room, "%u:%u;", key, number);
        break;
    }
    case 'K':
        snprintf(rest, room, "%u;", draw(self, 0, SIM_ROOTS - 1));
        break;
    case 'u':
        snprintf(rest, room, "%u;", number);
        break;
    case 'b':
        put(self, "b{");
        make_body(self, depth > 0 ? inner_ops : innermost_ops, draw(self, 1, 3), depth);
        put(self, "};");
        return;
    case 'c':
    case 'C':
    case 'H':
    case 'd':
        snprintf(rest, room, "%u{",
                 kind == 'C'   ? draw_ms(self)
                 : kind == 'H' ? draw(self, 0, SIM_SHARED + SIM_OWN - 1)
                               : draw(self, 0, 3));
        put(self, text);
        make_body(self, depth > 1 ? top_ops : leaf_ops, draw(self, 1, 4), depth > 1 ? depth - 1 : 0);
        if (sim_chance(self->rng, 15)) put(self, "f;");
        put(self, "};");
        return;
    default: /* m, n */
        snprintf(rest, room, ";");
    }
    put(self, text);
}

/* The bodies are put one op at a time as long as there is room for what must close them. */
static void make_body(maker *self, const char *ops, unsigned count, unsigned depth) {
    for (unsigned i = 0; i < count && self->used + 120 < self->size; i++)
        make_op(self, ops[sim_below(self->rng, strlen(ops))], depth);
}

void sim_program_make(char *out, size_t size, sim_rng *rng, unsigned depth) {
    maker self = { .out = out, .size = size, .rng = rng };
    out[0] = '\0';
    make_body(&self, depth > 0 ? top_ops : leaf_ops, (unsigned)sim_between(rng, 1, 7), depth);
    if (sim_chance(rng, 8)) put(&self, "f;");
}

void sim_program_make_for_crowd(char *out, size_t size, sim_rng *rng) {
    static const char ops[] = "qqqqqaawwnH";
    maker self = { .out = out, .size = size, .rng = rng };
    uint64_t count = sim_between(rng, 1, 4);
    out[0] = '\0';
    for (uint64_t i = 0; i < count; i++) {
        char kind = ops[sim_below(rng, sizeof(ops) - 1)], text[64];
        if (kind != 'q') {
            make_op(&self, kind, 0);
            continue;
        }
        uint32_t queue = draw(&self, 0, SIM_QUEUES - 1);
        uint32_t messages = draw(&self, 1, 4);
        snprintf(text, sizeof(text), "q%u:%u:%u:%u;", queue, messages, draw(&self, 3000, 9000), draw(&self, 0, 2));
        put(&self, text);
    }
}
