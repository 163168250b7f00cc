/*
 * sim_judge_ends.c: starts run and end as their programs say; nobody is told another's end; activities run once.
 */
#include "sim_load.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASKED(kind) (1u << SIM_CALL_##kind)

/* Was instance `id` already another one than that of start `number`, for certain, at order `when`? */
static const sim_call *replaced_before(uint32_t number, uint32_t when) {
    const sim_ledger *book = sim_book();
    const sim_call *mine = sim_call_at(number);
    if (mine == NULL || sim_call_faith(mine) != SIM_YES) return NULL;
    for (uint32_t i = 0; i < atomic_load(&book->call_count) && i < SIM_CALLS_MAX; i++) {
        const sim_call *call = sim_call_at(i);
        if (call != NULL && call != mine && call->kind == SIM_CALL_START &&
            strcmp(call->instance, mine->instance) == 0 && call->policy != DUR_START_RETURN_EXISTING &&
            sim_call_before(call, when) && call->begun > mine->ended)
            return call;
    }
    return NULL;
}

/* An end by its program: "TICKET|FOLD|…". */
static void judge_text(const sim_end *end, bool failed) {
    const char *program;
    size_t size;
    char text[SIM_TICKET_MAX + 32];
    if (!sim_ticket_program(end->ticket, &program, &size))
        sim_fail("%s has ended with the ticket of no start: \"%s\"", end->instance, end->text);
    snprintf(text, sizeof(text), "%s|%" PRIu64 "|", end->ticket, sim_program_fold(program, size));
    if (strncmp(end->text, text, strlen(text)) != 0 || sim_program_fails(program, size) != failed)
        sim_fail("%s has ended as \"%s\" instead of %s\"%s\"", end->instance, end->text, failed ? "" : "not ", text);
}

/* A ticket of a client's start belongs to one id, and to nobody who came before another start. */
static void judge_birth(const sim_end *end, const char *instance, uint32_t when) {
    char *rest;
    uint32_t number = (uint32_t)strtoul(end->ticket, &rest, 10);
    const sim_call *call = sim_call_at(number);
    if (call == NULL || call->kind != SIM_CALL_START) sim_fail("%s: no start has the ticket %s", instance, end->ticket);
    if (*rest != '\0') return;
    if (strcmp(call->instance, instance) != 0)
        sim_fail("%s has the end of %s, \"%s\"", instance, call->instance, end->text);
    const sim_call *later = replaced_before(number, when);
    if (later != NULL)
        sim_fail("%s has the end of start %u, \"%s\", though start %u was accepted since", instance, number, end->text,
                 sim_call_number(later));
}

static void judge_failure(sim_case *self, const dur_instance_info *info) {
    static const char none[16];
    const char *output = info->output == NULL ? none : info->output;
    const char *mark = strstr(output, "call-");
    if (info->cancelled) {
        const sim_call *call = mark == NULL ? NULL : sim_call_at((uint32_t)strtoul(mark + 5, NULL, 10));
        bool asked = call != NULL && (call->kind == SIM_CALL_CANCEL || call->kind == SIM_CALL_TERMINATE);
        /* A client died, or froze, in the middle of a deletion by force (client_delete.c, going.c). */
        bool midway = sim_asked(NULL, ASKED(DELETE) | ASKED(TERMINATE)) &&
                      (strstr(output, "a client died") != NULL || strstr(output, "deleted") != NULL);
        if (!asked && !midway && info->parent == NULL)
            sim_fail("%s was cancelled by nobody: \"%s\"", info->instance, output);
        if (asked && info->parent == NULL && strcmp(call->instance, info->instance) != 0)
            sim_fail("%s was cancelled by a call for %s", info->instance, call->instance);
        if (info->said != NULL) sim_case_end(self, info->instance, info->said);
        return;
    }
    const sim_end *end = sim_case_end(self, info->instance, output);
    if (strncmp(output, "planned ", 8) != 0 || end == NULL || info->failure_category != DUR_FAILURE_APPLICATION)
        sim_fail("%s has failed, which nobody planned: %s: %s", info->instance,
                 dur_failure_category_name(info->failure_category), output);
    judge_text(end, true);
    judge_birth(end, info->instance, UINT32_MAX);
}

void sim_judge_ends(sim_case *self) {
    const sim_ledger *book = sim_book();
    for (size_t i = 0; i < self->instances->count; i++) {
        const dur_instance_info *info = self->instances->items[i];
        if (info->status == DUR_INSTANCE_RUNNING) sim_fail("%s has not ended", info->instance);
        if (info->status == DUR_INSTANCE_FAILED) {
            dur_error err = DUR_ERROR_INIT;
            dur_instance_info *more = NULL;
            if (dur_client_info(&more, self->client, info->instance, &err) != DUR_OK)
                sim_fail("info of %s: %s", info->instance, err.message);
            judge_failure(self, more);
            dur_instance_info_free(more);
            continue;
        }
        const sim_end *end = sim_case_end(self, info->instance, info->output == NULL ? "" : info->output);
        if (end == NULL) sim_fail("%s has the output \"%s\"", info->instance, info->output == NULL ? "" : info->output);
        judge_text(end, false);
        judge_birth(end, info->instance, UINT32_MAX);
    }
    for (uint32_t i = 0; i < atomic_load(&book->told_count) && i < SIM_TOLD_MAX; i++) {
        const sim_told *told = &book->told[i];
        if (atomic_load(&told->begun) == 0) continue;
        const sim_end *end = sim_case_end(self, told->instance, told->text);
        if (end == NULL && told->code == DUR_ECANCELLED && strstr(told->text, "cancelled") != NULL) continue;
        if (end == NULL)
            sim_fail("a client was told %s of %s: \"%s\"", dur_code_name(told->code), told->instance, told->text);
        if (told->code != DUR_ECANCELLED) judge_text(end, told->code == DUR_EFAILED);
        judge_birth(end, told->instance, told->begun);
    }
}

/* ---- starts ------------------------------------------------------------------------------------------------------ */

static bool exists(const sim_case *self, const char *id) {
    for (size_t i = 0; i < self->instances->count; i++) {
        if (strcmp(self->instances->items[i]->instance, id) == 0) return true;
    }
    return false;
}

bool sim_has_run(const char *path) {
    const sim_ledger *book = sim_book();
    for (uint32_t i = 0; i < atomic_load(&book->work_count) && i < SIM_WORKS_MAX; i++) {
        if (strcmp(book->works[i].path, path) == 0) return true;
    }
    return false;
}

/* What a flow has started without waiting has begun, too.  (Whose end is asked for may be its id's next.) */
static void judge_detached(const sim_end *end) {
    const char *program;
    size_t size, next = 0;
    if (!sim_ticket_program(end->ticket, &program, &size) ||
        sim_asked(NULL, ASKED(CANCEL) | ASKED(TERMINATE) | ASKED(DELETE) | ASKED(DELETE_BULK)))
        return;
    for (sim_op op; sim_op_read(program, size, &next, &op);) {
        char ticket[SIM_TICKET_MAX + 24];
        snprintf(ticket, sizeof(ticket), "%s%c%zu", end->ticket, op.kind == 'D' ? '@' : '.', op.at);
        if ((op.kind == 'd' && !sim_hint_has(ticket, SIM_NO_MESSAGE)) ||
            (op.kind == 'D' && op.n[0] % 3 > 0 && !sim_has_run(ticket)))
            sim_fail("%s has started %s, which never began", end->instance, ticket);
    }
}

void sim_judge_starts(sim_case *self) {
    const sim_ledger *book = sim_book();
    for (uint32_t i = 0; i < atomic_load(&book->call_count) && i < SIM_CALLS_MAX; i++) {
        const sim_call *call = sim_call_at(i);
        char ticket[16];
        if (call == NULL || call->kind != SIM_CALL_START || sim_call_faith(call) != SIM_YES ||
            call->policy == DUR_START_RETURN_EXISTING)
            continue;
        snprintf(ticket, sizeof(ticket), "%u", i);
        if (!sim_hint_has(ticket, SIM_NO_MESSAGE) &&
            !sim_asked(call->instance, ASKED(CANCEL) | ASKED(TERMINATE) | ASKED(DELETE)))
            sim_fail("start %u of %s was accepted and never ran", i, call->instance);
        if (!exists(self, call->instance) && !sim_asked(call->instance, ASKED(DELETE) | ASKED(DELETE_BULK)))
            sim_fail("start %u of %s was accepted, and there is no such instance", i, call->instance);
    }
    for (size_t i = 0; i < self->end_count; i++) {
        const char *program;
        size_t size;
        char text[SIM_TICKET_MAX + 32];
        if (!sim_ticket_program(self->ends[i].ticket, &program, &size)) continue;
        snprintf(text, sizeof(text), "%s|%" PRIu64 "|", self->ends[i].ticket, sim_program_fold(program, size));
        if (strncmp(self->ends[i].text, text, strlen(text)) == 0) /* not one that was cancelled */
            judge_detached(&self->ends[i]);
    }
}

/* ---- activities -------------------------------------------------------------------------------------------------- */

/* The shortest time after which any of the nodes ends a session that is not used. */
static uint64_t session_lives_ms(const sim_run *run) {
    sim_world world;
    uint64_t least = 300000; /* without the option */
    sim_world_make(&world, run);
    for (size_t i = 0; i < world.nodes; i++) {
        uint64_t ms = world.node[i].session_idle_timeout_ms;
        if (ms > 0 && ms < least) least = ms;
    }
    return least;
}

/* Where nobody dies a session stays where it is as long as it is used.  (For the finale all nodes stop and begin.) */
static void judge_session(const sim_work *first, const sim_work *second, uint64_t lives_ms) {
    if (first->session[0] == '\0' || strcmp(first->session, second->session) != 0) return;
    if (first->begun < second->begun && second->begun < first->ended)
        sim_fail("activities %s and %s of session %s ran at the same time", first->path, second->path, first->session);
    if (first->who != second->who && first->life == second->life && second->begun_ms - first->begun_ms < lives_ms)
        sim_fail("session %s was on node%u (%s) and %u ms later on node%u (%s)", first->session, first->who + 1u,
                 first->path, (unsigned)(second->begun_ms - first->begun_ms), second->who + 1u, second->path);
}

void sim_judge_works(sim_case *self) {
    const sim_ledger *book = sim_book();
    uint32_t count = atomic_load(&book->work_count);
    uint64_t lives_ms = session_lives_ms(self->run);
    for (uint32_t i = 0; i < count && i < SIM_WORKS_MAX; i++) {
        const sim_work *first = &book->works[i];
        for (uint32_t k = i + 1; k < count && k < SIM_WORKS_MAX; k++) {
            const sim_work *second = &book->works[k];
            bool again = strcmp(first->path, second->path) == 0 && first->attempt == second->attempt;
            /* A cancel while a saga undoes a step gives that up, and it is undone once more, as another activity. */
            bool undone = strstr(first->path, "/u") != NULL;
            /* Counted before it runs.  (A node that has lost its server gives everything up uncounted.) */
            if (again && !undone && first->delivery == second->delivery && self->run->store != SIM_POSTGRES)
                sim_fail("activity %s ran twice as delivery %u", first->path, first->delivery);
            if (!self->run->calm) continue; /* what was taken over may run twice, and at the same time */
            if (again && !undone) sim_fail("activity %s ran twice, in attempt %u", first->path, first->attempt);
            judge_session(first, second, lives_ms);
        }
    }
}
