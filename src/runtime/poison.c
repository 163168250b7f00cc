/*
 * poison.c: who runs alone after crashes, and who is given up (L6).
 *
 * A handler or an activity that crashes takes the process with it, and everything beside it looks as guilty as the one
 * that did it.  So evidence is collected.  After one crash whatever ran runs again at once.  After two
 * (DUR_SUSPECT_CRASHES) it is a suspect: of suspects, instances and activities of all runtimes of this process, one
 * runs at a time until what it did is recorded, and whoever is no suspect runs beside it as ever.  The time alone
 * doubles with each crash (5, 10, 20 s …); a suspect that still runs then goes on in company, which the store is told:
 * a crash from then on is no evidence against it.  After max_attempts crashes alone it is poison.
 *
 * What is no suspect yet runs beside the one that is alone, and may be the one to blame.  So a crash in which there was
 * such company stays in doubt, which the store keeps, until all of the company has shown that it can end; when one of
 * it is given up instead, the crash was its doing (dur_store_blame).
 *
 * Whoever has claimed the gate holds a ticket; a ticket opens the gate for others only while it is the one that closed
 * it, so that nobody can end a claim that is not his.
 */
#include "runtime/runtime_internal.h"

#include <stdlib.h>

#define DOUBLINGS_MAX 10 /* 5 s become an hour and a half */

static struct {
    dur__mutex mutex;
    uint64_t ticket; /* of who runs alone, or is about to be fetched; 0: nobody */
    uint64_t last_ticket;
    dur_runtime *runtime; /* whose it is */
    uint64_t until_us;    /* monotonic */
    uint64_t alone_us;
    char *token;
    char what[256]; /* for people */
    bool told;      /* that others wait for it */
} gate = { .mutex = DUR__MUTEX_INIT };

static atomic_bool gate_taken; /* gate.ticket != 0, for those who look at every round */

uint64_t dur__gate_claim(dur_runtime *runtime) {
    dur__mutex_lock(&gate.mutex);
    bool claimed = gate.ticket == 0;
    if (claimed) {
        gate.ticket = ++gate.last_ticket;
        atomic_store_explicit(&gate_taken, true, memory_order_relaxed);
        gate.runtime = runtime;
        gate.until_us = UINT64_MAX; /* until it is known what it is */
        gate.what[0] = '\0';
        gate.told = false;
    }
    uint64_t ticket = claimed ? gate.ticket : 0;
    dur__mutex_unlock(&gate.mutex);
    return ticket;
}

bool dur__gate_open(void) {
    char what[sizeof(gate.what)] = "";
    dur__mutex_lock(&gate.mutex);
    bool open = gate.ticket == 0;
    if (!open && gate.what[0] != '\0' && !gate.told) {
        gate.told = true;
        memcpy(what, gate.what, sizeof(what));
    }
    dur__mutex_unlock(&gate.mutex);
    if (what[0] != '\0')
        dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME, NULL, 0, "others that ran when processes died wait for %s", what);
    return open;
}

bool dur__gate_held(void) {
    return atomic_load_explicit(&gate_taken, memory_order_relaxed);
}

static uint64_t alone_us(const dur_runtime *runtime, uint32_t crashes) {
    uint32_t doublings = crashes > DUR_SUSPECT_CRASHES ? crashes - DUR_SUSPECT_CRASHES : 0;
    return runtime->options.suspect_alone_ms * 1000u << (doublings < DOUBLINGS_MAX ? doublings : DOUBLINGS_MAX);
}

void dur__gate_enter(uint64_t ticket, const char *token, uint32_t crashes, const char *what) {
    dur__mutex_lock(&gate.mutex);
    DUR_ASSERT(gate.ticket == ticket);
    dur_runtime *runtime = gate.runtime;
    dur__free(gate.token);
    gate.token = dur__xstrdup(token);
    gate.alone_us = alone_us(runtime, crashes);
    gate.until_us = dur__monotonic_us() + gate.alone_us;
    snprintf(gate.what, sizeof(gate.what), "%s", what);
    double seconds = (double)gate.alone_us / 1e6;
    dur__mutex_unlock(&gate.mutex);
    dur__log(DUR_LOG_WARN, DUR__LOG_RUNTIME, DUR__FIELDS(DUR__NUMBER("crashes", crashes)),
             "%s ran when %u processes died: of all such it runs alone now, until it has ended or run %g s", what,
             (unsigned)crashes, seconds);
    dur__keeper_look(runtime);
}

void dur__gate_started(uint64_t ticket) {
    dur__mutex_lock(&gate.mutex);
    if (gate.ticket == ticket) gate.until_us = dur__monotonic_us() + gate.alone_us;
    dur__mutex_unlock(&gate.mutex);
}

/* Loops of other runtimes, whose stores may be others, look by themselves from time to time. */
void dur__gate_release(uint64_t *ticket) {
    if (*ticket == 0) return;
    dur_runtime *runtime = NULL;
    dur__mutex_lock(&gate.mutex);
    if (gate.ticket == *ticket) {
        if (gate.told) runtime = gate.runtime;
        gate.ticket = 0;
        atomic_store_explicit(&gate_taken, false, memory_order_relaxed);
        gate.runtime = NULL;
    }
    dur__mutex_unlock(&gate.mutex);
    *ticket = 0;
    if (runtime == NULL || dur__runtime_phase(runtime) != DUR__PHASE_RUN) return;
    for (size_t i = 0; i < runtime->loop_count; i++)
        dur_waker_wake(runtime->loops[i].waker);
}

uint64_t dur__gate_due_us(const dur_runtime *runtime) {
    dur__mutex_lock(&gate.mutex);
    uint64_t until_us = gate.ticket != 0 && gate.runtime == runtime ? gate.until_us : UINT64_MAX;
    dur__mutex_unlock(&gate.mutex);
    return until_us;
}

/* The store first: as long as it counts what happens as alone, nobody else may begin. */
void dur__gate_expire(dur_runtime *runtime, dur_arena *arena, uint64_t now_us) {
    dur_error err = DUR_ERROR_INIT;
    dur__mutex_lock(&gate.mutex);
    bool over = gate.ticket != 0 && gate.runtime == runtime && gate.until_us <= now_us;
    uint64_t ticket = gate.ticket;
    const char *token = over ? dur_arena_strdup(arena, gate.token) : NULL;
    const char *what = over ? dur_arena_strdup(arena, gate.what) : NULL;
    dur__mutex_unlock(&gate.mutex);
    if (!over) return;
    if (dur_store_alone_ended(runtime->store, token, &err) != DUR_OK) {
        DUR__COUNT(runtime, provider_errors);
        return; /* with the next tick */
    }
    dur__gate_release(&ticket);
    dur__log(DUR_LOG_INFO, DUR__LOG_RUNTIME, NULL, 0, "%s has run alone long enough and goes on beside others", what);
}
