/*
 * sim_ledger.c: entries that are filled before they are there.
 */
#include "sim_ledger.h"

#include <stdio.h>
#include <string.h>

static const sim_run *the_run;
static size_t the_actor;
static bool the_book_closed;

void sim_enter(const sim_run *run, size_t actor) {
    the_run = run;
    the_actor = actor;
}

const sim_run *sim_run_of(void) {
    return the_run;
}

sim_ledger *sim_book(void) {
    return the_run->shared;
}

size_t sim_actor(void) {
    return the_actor;
}

void sim_book_close(bool closed) {
    the_book_closed = closed;
}

void sim_copy(char *out, size_t size, const char *text) {
    snprintf(out, size, "%s", text == NULL ? "" : text);
}

uint32_t sim_order(void) {
    return atomic_fetch_add(&sim_book()->order, 1) + 1;
}

/* The next free entry of an array; max: it is full. */
static uint32_t claim(_Atomic uint32_t *count, uint32_t max) {
    uint32_t at = atomic_load(count);
    if (at >= max) return max;
    return atomic_fetch_add(count, 1);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

sim_call *sim_call_new(sim_call_kind kind, const char *instance) {
    sim_ledger *book = sim_book();
    uint32_t at = claim(&book->call_count, SIM_CALLS_MAX);
    if (at >= SIM_CALLS_MAX) return NULL;
    sim_call *call = &book->calls[at];
    call->kind = (uint8_t)kind;
    call->who = (uint8_t)the_actor;
    sim_copy(call->instance, sizeof(call->instance), instance);
    return call;
}

uint32_t sim_call_number(const sim_call *call) {
    return (uint32_t)(call - sim_book()->calls);
}

void sim_call_begin(sim_call *call) {
    call->begun_ms = sim_now_ms();
    atomic_store(&call->begun, sim_order());
}

void sim_call_end(sim_call *call, int code) {
    call->code = code;
    call->ended_ms = sim_now_ms();
    atomic_store(&call->ended, sim_order());
}

const sim_call *sim_call_at(uint32_t number) {
    const sim_ledger *book = sim_book();
    if (number >= SIM_CALLS_MAX || atomic_load(&book->calls[number].begun) == 0) return NULL;
    return &book->calls[number];
}

sim_faith sim_call_faith(const sim_call *call) {
    if (atomic_load(&call->begun) == 0) return SIM_NO;
    if (atomic_load(&call->ended) == 0) return SIM_PERHAPS;
    switch (call->code) {
    case DUR_OK:
        return SIM_YES;
    case DUR_EINVAL:
    case DUR_ENOTFOUND:
    case DUR_EEXISTS:
    case DUR_ESTATE:
    case DUR_ECHILD:
    case DUR_ERUNNING:
    case DUR_EUNSUPPORTED:
        return SIM_NO;
    default: /* the store failed: perhaps behind its commit */
        return SIM_PERHAPS;
    }
}

bool sim_call_before(const sim_call *call, uint32_t when) {
    uint32_t ended = atomic_load(&call->ended);
    return sim_call_faith(call) == SIM_YES && ended < when;
}

bool sim_asked(const char *instance, unsigned kinds) {
    const sim_ledger *book = sim_book();
    for (uint32_t i = 0; i < SIM_CALLS_MAX && i < atomic_load(&book->call_count); i++) {
        const sim_call *call = sim_call_at(i);
        if (call != NULL && (kinds >> call->kind & 1) != 0 && sim_call_faith(call) != SIM_NO &&
            (instance == NULL || call->instance[0] == '\0' || strcmp(call->instance, instance) == 0))
            return true;
    }
    return false;
}

/* ---- what flows and activities did ------------------------------------------------------------------------------- */

static uint32_t the_life;

void sim_work_life(uint32_t life) {
    the_life = life;
}

sim_work *sim_work_begin(const char *name, const char *path, uint32_t attempt, uint32_t delivery, const char *session) {
    sim_ledger *book = sim_book();
    if (the_book_closed) return NULL;
    uint32_t at = claim(&book->work_count, SIM_WORKS_MAX);
    if (at >= SIM_WORKS_MAX) return NULL;
    sim_work *work = &book->works[at];
    work->begun_ms = sim_now_ms();
    work->attempt = attempt;
    work->delivery = delivery;
    work->who = (uint8_t)the_actor;
    work->life = the_life;
    sim_copy(work->name, sizeof(work->name), name);
    sim_copy(work->path, sizeof(work->path), path);
    sim_copy(work->session, sizeof(work->session), session);
    atomic_store(&work->begun, sim_order());
    return work;
}

void sim_work_end(sim_work *work) {
    if (work != NULL) atomic_store(&work->ended, sim_order());
}

void sim_hint_add(const char *ticket, uint32_t message) {
    sim_ledger *book = sim_book();
    if (the_book_closed || sim_hint_has(ticket, message)) return;
    uint32_t at = claim(&book->hint_count, SIM_HINTS_MAX);
    if (at >= SIM_HINTS_MAX) return;
    sim_hint *hint = &book->hints[at];
    hint->message = message;
    sim_copy(hint->ticket, sizeof(hint->ticket), ticket);
    atomic_store(&hint->begun, sim_order());
}

bool sim_hint_has(const char *ticket, uint32_t message) {
    const sim_ledger *book = sim_book();
    for (uint32_t i = 0; i < SIM_HINTS_MAX && i < atomic_load(&book->hint_count); i++) {
        const sim_hint *hint = &book->hints[i];
        if (atomic_load(&hint->begun) != 0 && hint->message == message &&
            (ticket == NULL || strcmp(hint->ticket, ticket) == 0))
            return true;
    }
    return false;
}

void sim_told_add(uint32_t begun, const char *instance, int code, const char *text) {
    sim_ledger *book = sim_book();
    uint32_t at = claim(&book->told_count, SIM_TOLD_MAX);
    if (at >= SIM_TOLD_MAX) return;
    sim_told *told = &book->told[at];
    told->code = code;
    sim_copy(told->instance, sizeof(told->instance), instance);
    sim_copy(told->text, sizeof(told->text), text);
    told->ended = sim_order();
    atomic_store(&told->begun, begun);
}
