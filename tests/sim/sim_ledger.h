/*
 * sim_ledger.h: what everybody did and was told, in memory that every actor shares.
 *
 * An actor may be killed between any two stores: an entry is filled first, and is there when its `begun` is set.  The
 * orders are one counter for all actors: of two entries the one with the smaller order came first, and a call that
 * has ended before another has begun happened before that one.  Nothing here is read by the code under test.
 */
#ifndef TESTS_SIM_SIM_LEDGER_H
#define TESTS_SIM_SIM_LEDGER_H

#include "sim.h"

#include <stdatomic.h>

#define SIM_PROGRAM_MAX 400
#define SIM_TICKET_MAX 48
#define SIM_ID_MAX 96
#define SIM_TEXT_MAX 512

/* What a client asks for that changes something. */
typedef enum sim_call_kind {
    SIM_CALL_START,
    SIM_CALL_SEND,  /* into a queue */
    SIM_CALL_RAISE, /* an event */
    SIM_CALL_CANCEL,
    SIM_CALL_TERMINATE,
    SIM_CALL_SUSPEND,
    SIM_CALL_RESUME,
    SIM_CALL_DELETE,
    SIM_CALL_DELETE_BULK,
    SIM_CALL_PRUNE,
    SIM_CALL_LETTERS /* dead letters are thrown away; text lists them */
} sim_call_kind;

/* One call.  Its index is its name: message 12 carries "m12", the instance of start 12 has the ticket "12". */
typedef struct sim_call {
    _Atomic uint32_t begun; /* order; 0: there is no such call */
    _Atomic uint32_t ended; /* order; 0: not known */
    int32_t code;
    uint8_t kind, who, policy;
    uint64_t begun_ms, ended_ms, delay_ms;
    char instance[SIM_ID_MAX]; /* "": all */
    char name[16];             /* orchestration, queue or event */
    char version[8];
    char message_id[48];
    char text[SIM_TEXT_MAX]; /* a program; dead letters */
} sim_call;

/* One run of an activity. */
typedef struct sim_work {
    _Atomic uint32_t begun, ended;
    uint64_t begun_ms;
    uint32_t attempt, delivery;
    uint8_t who;
    uint32_t life; /* how often that node had been opened before */
    char name[12];
    char session[12];
    char path[SIM_TICKET_MAX + 24]; /* which call of which flow */
} sim_work;

/* A flow has received a message, as its handler saw it; whether that was ever committed is another matter. */
typedef struct sim_hint {
    _Atomic uint32_t begun;
    uint32_t message; /* the call that sent it; UINT32_MAX: none, the flow has begun */
    char ticket[SIM_TICKET_MAX];
} sim_hint;

/* How an instance had ended, as a client was told. */
typedef struct sim_told {
    _Atomic uint32_t begun; /* order before the call */
    uint32_t ended;
    int32_t code;
    char instance[SIM_ID_MAX];
    char text[SIM_TEXT_MAX];
} sim_told;

#define SIM_CALLS_MAX 768
#define SIM_WORKS_MAX 4096
#define SIM_HINTS_MAX 4096
#define SIM_TOLD_MAX 768

typedef struct sim_ledger {
    _Atomic uint32_t order;
    _Atomic uint32_t call_count, work_count, hint_count, told_count;
    _Atomic uint32_t next[SIM_ACTORS_MAX]; /* of each client: the next step of its script */
    sim_call calls[SIM_CALLS_MAX];
    sim_work works[SIM_WORKS_MAX];
    sim_hint hints[SIM_HINTS_MAX];
    sim_told told[SIM_TOLD_MAX];
} sim_ledger;

_Static_assert(sizeof(sim_ledger) <= SIM_SHARED_BYTES, "the ledger fits");

/* Which run this process works for, and who of it goes on now. */
void sim_enter(const sim_run *run, size_t actor);
const sim_run *sim_run_of(void);
sim_ledger *sim_book(void);
size_t sim_actor(void);
/* The judge replays handlers, which then write nothing down. */
void sim_book_close(bool closed);

/* Begin: NULL when the ledger is full, and then the call is not made. */
sim_call *sim_call_new(sim_call_kind kind, const char *instance);
uint32_t sim_call_number(const sim_call *call);
void sim_call_begin(sim_call *call);
void sim_call_end(sim_call *call, int code);
const sim_call *sim_call_at(uint32_t number); /* NULL: none */

/* How sure is it that a call has happened? */
typedef enum sim_faith { SIM_NO, SIM_PERHAPS, SIM_YES } sim_faith;
sim_faith sim_call_faith(const sim_call *call);
/* Was every change by `call` over before order `when`, for certain? */
bool sim_call_before(const sim_call *call, uint32_t when);

void sim_work_life(uint32_t life); /* of the node that goes on now */
sim_work *sim_work_begin(const char *name, const char *path, uint32_t attempt, uint32_t delivery, const char *session);
void sim_work_end(sim_work *work);
void sim_hint_add(const char *ticket, uint32_t message);
bool sim_hint_has(const char *ticket, uint32_t message);
uint32_t sim_order(void);
void sim_told_add(uint32_t begun, const char *instance, int code, const char *text);

/* Did anybody ask for the end of an instance by one of these kinds (a mask of 1 << kind)? */
bool sim_asked(const char *instance, unsigned kinds); /* NULL: of any */

void sim_copy(char *out, size_t size, const char *text);

#endif
